;;; weir-jira.el --- Jira without waiting, over a replica in a store -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1") (weir "0.1.0"))
;; Keywords: comm, tools
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; A client of Jira Cloud that never waits for the network: issues are in a
;; replica on this machine, which pulls in the background.
;;
;; `M-x weir-jira-setup' asks for the address of the site and for a token, and
;; starts the first pull.  `M-x weir-jira' then lists issues, and
;; `M-x weir-jira-search' searches all text while you type.

;;; Code:

(require 'auth-source)
(require 'bookmark)
(require 'browse-url)
(require 'cl-lib)
(require 'diff)
(require 'outline)
(require 'transient)
(require 'weir)

(declare-function weir--jira-about "ext:weir-module")
(declare-function weir--jira-ask "ext:weir-module")
(declare-function weir--jira-changes "ext:weir-module")
(declare-function weir--jira-set "ext:weir-module")
(declare-function weir--jira-close "ext:weir-module")
(declare-function weir--jira-export "ext:weir-module")
(declare-function weir--jira-history "ext:weir-module")
(declare-function weir--jira-issue "ext:weir-module")
(declare-function weir--jira-keys "ext:weir-module")
(declare-function weir--jira-list "ext:weir-module")
(declare-function weir--jira-login "ext:weir-module")
(declare-function weir--jira-open "ext:weir-module")
(declare-function weir--jira-has-operations "ext:weir-module")
(declare-function weir--jira-projects "ext:weir-module")
(declare-function weir--jira-pull "ext:weir-module")
(declare-function weir--jira-row "ext:weir-module")
(declare-function weir--jira-rows "ext:weir-module")
(declare-function weir--jira-search "ext:weir-module")
(declare-function weir--jira-sites "ext:weir-module")
(declare-function weir--jira-size "ext:weir-module")
(declare-function weir--jira-tree "ext:weir-module")
(declare-function weir--jira-version "ext:weir-module")
(declare-function weir--jira-visible "ext:weir-module")
(declare-function weir--jira-offered "ext:weir-module")
(declare-function weir-jira-doctor "weir-jira-doctor")
(declare-function weir-jira--push "weir-jira-edit")
(defvar weir-jira-push-at-once)
(declare-function weir-jira-delete-part "weir-jira-edit")
(declare-function weir-jira-project-create "weir-jira-edit")
(declare-function weir-jira-project-delete "weir-jira-edit")
(declare-function weir-jira-project-edit "weir-jira-edit")

(defgroup weir-jira nil
  "Jira without waiting, over a replica in a store."
  :group 'weir
  :prefix "weir-jira-")

(defcustom weir-jira-directory (locate-user-emacs-file "weir-jira/")
  "Directory of the settings of sites, with the replica below it."
  :type 'directory
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-default-site nil
  "Name of the site that commands use; nil means the first one."
  :type '(choice (const :tag "The first one" nil) string)
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-token-store 'auth-source
  "Where `weir-jira-setup' stores a token.
The symbol `file' means a file of mode 0600 beside the settings, `keyring'
the keyring of the desktop, which needs the program secret-tool."
  :type '(choice (const auth-source) (const file) (const keyring))
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-sync-interval 60
  "Seconds between two automatic pulls; nil means no automatic pull.
After Emacs was idle for five minutes, the interval is five minutes."
  :type '(choice (const :tag "On demand only" nil) (integer :tag "Seconds"))
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-views
  '(("Open issues of mine" . "assignee = currentUser() AND resolution IS EMPTY ORDER BY updated DESC")
    ("Open issues" . "resolution IS EMPTY ORDER BY updated DESC")
    ("All issues" . ""))
  "Saved views: names, each with a query in JQL.
A view with columns of its own is (NAME JQL . COLUMNS), with COLUMNS as in
`weir-jira-columns'."
  :type '(alist :key-type string
                :value-type (choice (string :tag "JQL")
                                    (cons :tag "JQL and columns" string
                                          (alist :key-type string :value-type integer))))
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-default-view "All issues"
  "Name in `weir-jira-views' of the view that `weir-jira' shows."
  :type 'string
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-columns
  '(("key" . 10) ("status" . 13) ("type" . 8) ("assignee" . 14) ("updated" . 5) ("summary" . 0))
  "Columns of a list: names, each with its width; 0 means the rest of the line."
  :type '(alist :key-type (choice (const "key") (const "status") (const "type") (const "assignee")
                                  (const "updated") (const "summary") (const "priority")
                                  (const "labels") (const "parent") (const "project") (const "due"))
                :value-type integer)
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-on-lost-access 'keep
  "What happens to the issues of a project that the account can no longer see.
With `keep' they remain, with `hide' lists omit them, and with `purge' the
next search for deletions removes them from the replica."
  :type '(choice (const keep) (const hide) (const purge))
  :package-version '(weir-jira . "0.1.0"))

(defface weir-jira-key '((t :inherit font-lock-constant-face))
  "Face of keys of issues.")
(defface weir-jira-title '((t :inherit bold))
  "Face of the summary of a shown issue.")
(defface weir-jira-heading '((t :inherit outline-1))
  "Face of headings of a shown issue.")
(defface weir-jira-label '((t :inherit shadow))
  "Face of labels of fields.")
(defface weir-jira-dim '((t :inherit shadow))
  "Face of less important columns.")
(defface weir-jira-mark '((t :inherit warning))
  "Face of marks of a list.")
(defface weir-jira-status-new '((t :inherit default))
  "Face of a status of issues that are not started.")
(defface weir-jira-status-active '((t :inherit font-lock-keyword-face))
  "Face of a status of issues that are worked on.")
(defface weir-jira-status-done '((t :inherit success))
  "Face of a status of issues that are done.")

;;;; Sites

(cl-defstruct (weir-jira--site (:copier nil))
  "A site whose replica is open, or is being opened."
  name handle waiting pull started stored push-wanted pulled-before read-only last-pull
  last-attempt failure expiry-checked)

(defvar weir-jira--sites nil "Sites that are open.")
(defvar weir-jira--timer nil "The timer of pulls.")
(defvar-local weir-jira--site nil "The site of the buffer.")
(defvar-local weir-jira--problem nil "Reason why the buffer shows an old state, or nil.")

(defun weir-jira--names ()
  "Return the names of the sites that were set up."
  (weir--ensure)
  (weir--jira-sites (expand-file-name weir-jira-directory)))

(defun weir-jira--default ()
  "Return the name of the site that commands use."
  (or (and weir-jira--site (weir-jira--site-name weir-jira--site))
      weir-jira-default-site
      (car (weir-jira--names))
      (user-error "No site is set up; use `M-x weir-jira-setup'")))

(defun weir-jira--find (name)
  "Return the site NAME if it is open or being opened."
  (cl-find name weir-jira--sites :key #'weir-jira--site-name :test #'equal))

(defun weir-jira--open (name function)
  "Call FUNCTION with the site NAME, once its replica is open."
  (weir--ensure)
  (let ((site (weir-jira--find name)))
    (cond
     ((and site (weir-jira--site-handle site)) (funcall function site))
     ((and site (weir-jira--site-waiting site)) (push function (weir-jira--site-waiting site)))
     (t
      (unless site
        (setq site (make-weir-jira--site :name name))
        (push site weir-jira--sites))
      (setf (weir-jira--site-waiting site) (list function))
      (weir--expect (weir--jira-open (expand-file-name "store" weir-jira-directory)
                                     (expand-file-name weir-jira-directory) name)
                    (lambda (status value) (weir-jira--opened site status value)))))))

(defun weir-jira--opened (site status value)
  "Handle the result of opening SITE: STATUS and VALUE."
  (if (eq status 'failed)
      (progn
        (setq weir-jira--sites (delq site weir-jira--sites))
        (message "Jira: %s" (weir--error-text value)))
    (setf (weir-jira--site-handle site) value
          (weir-jira--site-pulled-before site) (weir-jira--about site :pulled)
          (weir-jira--site-read-only site) (weir-jira--about site :store-read-only)
          (weir-jira--site-expiry-checked site) nil)
    (weir-jira--start-timer)
    (weir-jira--warn-of-expiry site)
    (let ((waiting (nreverse (weir-jira--site-waiting site))))
      (setf (weir-jira--site-waiting site) nil)
      (dolist (function waiting)
        (weir-jira--call function site)))
    (when (and weir-jira-sync-interval (not (weir-jira--site-read-only site)))
      (weir-jira--send-and-pull site nil))))

(defun weir-jira--call (function site)
  "Call FUNCTION of a command that waited until SITE was open.
Its error or quit must not stop other commands that wait, nor the first sync."
  (condition-case error
      (funcall function site)
    ((error quit) (message "Jira: %s" (weir--error-text error)))))

(defun weir-jira--current-site ()
  "Return the open site of the buffer, or signal an error for the user.
A buffer without a site has the default one."
  (let ((site (or (weir-jira--find (weir-jira--default))
                  (user-error "The replica is not open; M-x weir-jira opens it"))))
    (unless (weir-jira--site-handle site)
      (user-error "The replica is being opened; try again later"))
    (when weir-jira--site
      ;; After `weir-jira-close', another object is the open site.
      (setq weir-jira--site site))
    site))

(defun weir-jira--about (site property)
  "Return PROPERTY, a keyword, of SITE."
  (plist-get (weir--jira-about (weir-jira--site-handle site)) property))

(defun weir-jira--warn-of-expiry (site)
  "Warn the user once a day if the token of SITE expires within 14 days."
  (let ((today (format-time-string "%F")))
    (unless (equal (weir-jira--site-expiry-checked site) today)
      (setf (weir-jira--site-expiry-checked site) today)
      (when-let ((days (weir-jira--about site :expires-in)))
        (message (if (< days 0)
                     "Jira: the token of %s has expired; use `M-x weir-jira-setup'"
                   "Jira: the token of %s expires in %d days")
                 (weir-jira--site-name site) days)))))

(defun weir-jira--close (site &optional function)
  "Close the replica of SITE, then call FUNCTION.  SITE can be opened again."
  (let ((handle (weir-jira--site-handle site)))
    (setf (weir-jira--site-handle site) nil
          (weir-jira--site-failure site) nil)
    (weir--expect (weir--jira-close handle)
                  (lambda (&rest _) (when function (funcall function))))))

(defun weir-jira-close ()
  "Close all replicas, so that another process can open them."
  (interactive)
  (when weir-jira--timer
    (cancel-timer weir-jira--timer)
    (setq weir-jira--timer nil))
  (let ((open 0))
    (dolist (site weir-jira--sites)
      (when (weir-jira--site-handle site)
        (setq open (1+ open))
        (weir-jira--close site (lambda () (setq open (1- open))))))
    (setq weir-jira--sites nil)
    (while (> open 0)
      (accept-process-output nil 0.05))))

;;;; Tokens

(defun weir-jira--host (url)
  "Return the host of URL, with its port if it has one."
  (replace-regexp-in-string "\\`[a-z]+://\\|/.*\\'" "" url))

(defconst weir-jira--bearer-login "token"
  "The login of a personal access token of Data Center in auth-source.")

(defvar weir-jira--session-tokens nil
  "Tokens that auth-source does not store, until Emacs ends.
The keys are (HOST . LOGIN), the values functions that return the token.")

(defun weir-jira--stored-secret (url login)
  "Return the token for LOGIN at the site URL from auth-source, or nil.
The value can be a function that returns the token."
  (let* ((host (weir-jira--host url))
         (found (car (auth-source-search :host host :user login :max 1))))
    (unless found
      ;; auth-source also remembers that it found nothing.
      (auth-source-forget+ :host host))
    (plist-get found :secret)))

(defun weir-jira--session-secret (url login)
  "Return a function for the token for LOGIN at the site URL, or nil.
The token is from `weir-jira-setup' in this Emacs, and is not stored."
  (cdr (assoc (cons (weir-jira--host url) login) weir-jira--session-tokens)))

(defun weir-jira--revealed (secret)
  "Return the token of SECRET: a token, a function for one, or nil."
  (if (functionp secret) (funcall secret) secret))

(defun weir-jira--secret (url login)
  "Return the token for LOGIN at the site URL, or nil.
The token is from auth-source, or from `weir-jira-setup' in this Emacs."
  (weir-jira--revealed (or (weir-jira--stored-secret url login)
                           (weir-jira--session-secret url login))))

(defun weir-jira--forget-secret (url)
  "Read the tokens for the site URL again when they are next needed."
  (let ((host (weir-jira--host url)))
    (auth-source-forget+ :host host)
    (setq weir-jira--session-tokens
          (cl-remove host weir-jira--session-tokens :key #'caar :test #'equal))))

(defun weir-jira--forget-session-token (url login)
  "Forget the token for LOGIN at the site URL that auth-source does not store."
  (setq weir-jira--session-tokens
        (assoc-delete-all (cons (weir-jira--host url) login) weir-jira--session-tokens)))

(defun weir-jira--saves-secret ()
  "Return whether to store a token in auth-source; ask the user if necessary."
  (if (memq auth-source-save-behavior '(nil t))
      auth-source-save-behavior
    (y-or-n-p (format "Store the token in %s? "
                      (if (stringp (car auth-sources))
                          (abbreviate-file-name (car auth-sources))
                        "auth-source")))))

(defun weir-jira--keep-secret (url login token save)
  "Keep TOKEN for LOGIN at the site URL in this Emacs.
If SAVE is non-nil, store it in auth-source instead."
  (let ((host (weir-jira--host url)))
    (when save
      (let* ((auth-source-save-behavior t)
             (auth-source-creation-defaults `((secret . ,token) (port . "https")))
             (found (car (auth-source-search :host host :user login :port "https"
                                             :max 1 :create t)))
             (function (plist-get found :save-function)))
        (when (functionp function)
          (funcall function))
        (auth-source-forget+ :host host)))
    ;; If storing fails, this Emacs keeps the token that it had.
    (weir-jira--forget-session-token url login)
    (unless save
      (push (cons (cons host login) (lambda () token)) weir-jira--session-tokens))))

(defun weir-jira--login (site)
  "Return the login of the token of SITE, or nil if the site needs no token."
  (if (weir-jira--about site :bearer)
      weir-jira--bearer-login
    (weir-jira--or-nil (or (weir-jira--about site :email) ""))))

(defun weir-jira--known-token (site)
  "Return the token of SITE, or nil if it has none or a file has it."
  (when-let ((login (weir-jira--login site)))
    (weir-jira--secret (weir-jira--about site :site-url) login)))

(defun weir-jira--token-file (site)
  "Return the file that has the token of SITE, if it exists."
  (let ((file (expand-file-name (concat (weir-jira--site-name site) ".token")
                                weir-jira-directory)))
    (and (file-exists-p file) file)))

(defun weir-jira--token (site)
  "Return the token of SITE, or nil if it has none or a file has it.
Signal `weir-auth' if the token is missing."
  (or (weir-jira--known-token site)
      (when (and (weir-jira--login site)
                 (equal (weir-jira--about site :token-store) "file")
                 (not (weir-jira--token-file site)))
        (signal 'weir-auth
                (list (format "auth-source has no token for %s at %s; use M-x weir-jira-setup"
                              (weir-jira--login site)
                              (weir-jira--host (weir-jira--about site :site-url))))))))

(defun weir-jira--token-for-command (site)
  "Return the token of SITE as `weir-jira--token'.
A missing token is an error for the user."
  (condition-case error
      (weir-jira--token site)
    (weir-auth (user-error "%s" (cadr error)))))

;;;; Setup

(defvar weir-jira--answers nil
  "Answers at the last setup that failed: address, e-mail, gateway and projects.")

;;;###autoload
(defun weir-jira-setup (url email &optional gateway expires projects bearer)
  "Set up the Jira site at URL for the account EMAIL, and start the first pull.
GATEWAY is the address for requests of a token with scopes, EXPIRES the date
on which the token expires, PROJECTS a list of keys; nil means all projects.
An empty EMAIL means a site without authentication, such as `weir jira-sim',
or Jira Data Center with the personal access token BEARER.  The symbol `ask'
as EXPIRES or BEARER means to ask for it.
The token is read from auth-source, or from the user.  Data Center is
read-only."
  (interactive
   (progn
     ;; A missing module is reported before the questions.
     (weir--ensure)
     (pcase-let* ((`(,url ,email ,gateway ,projects) weir-jira--answers)
                  (url (if url
                           (read-string (format-prompt "Address of the site" url) nil nil url)
                         (read-string "Address of the site: " "https://")))
                  (email (weir-jira--read-answer "E-mail address of the account" "Data Center"
                                                 email))
                  (with-token (not (equal email ""))))
       (list url email
             (and with-token
                  (weir-jira--or-nil
                   (weir-jira--read-answer "Gateway address" "the token has no scopes" gateway)))
             ;; `command-history' keeps the arguments.
             'ask
             (split-string (weir-jira--read-answer "Keys of projects" "all"
                                                   (string-join projects " "))
                           "[ ,]+" t)
             (and (not with-token) 'ask)))))
  (weir--ensure)
  (setq weir-jira--answers (list url email gateway projects))
  (let* ((with-token (not (equal email "")))
         (login (if with-token email weir-jira--bearer-login))
         (stored (and (or with-token bearer) (weir-jira--stored-secret url login)))
         (known (and (or with-token bearer)
                     (weir-jira--revealed (or stored (weir-jira--session-secret url login)))))
         (token (cond
                 ((stringp bearer) bearer)
                 (known)
                 (with-token (read-passwd "API token: "))
                 (bearer (weir-jira--or-nil
                          (read-passwd "Personal access token (Data Center, else empty): ")))))
         (expires (if (eq expires 'ask) (and token (weir-jira--read-expiry)) expires))
         ;; A token that an earlier setup kept only in this Emacs is not stored.
         (unstored (and token (not (and stored (equal token known)))))
         (store (and unstored (not (eq weir-jira-token-store 'auth-source))
                     (symbol-name weir-jira-token-store)))
         (save (and unstored (not store) (weir-jira--saves-secret))))
    (message "Jira: logging in at %s" url)
    (weir--expect
     (weir--jira-login (expand-file-name weir-jira-directory) url gateway
                       (weir-jira--or-nil email) token expires projects store)
     (lambda (status value)
       (cond
        ((eq status 'done)
         (setq weir-jira--answers nil)
         (cond (store (weir-jira--forget-session-token url login))
               (unstored (weir-jira--keep-secret url login token save))))
        ((not (eq (car-safe value) 'weir-auth)))
        ((and token (not unstored))
         ;; The next attempt reads the token again.
         (weir-jira--forget-secret url)
         (setq value (list 'weir-auth (format "%s; auth-source has the token for %s at %s"
                                              (cadr value) login (weir-jira--host url)))))
        (unstored
         ;; The next attempt asks for the token.
         (when (equal token known)
           (weir-jira--forget-session-token url login))
         (when (string-match-p "HTTP 401" (cadr value))
           (setq value
                 (list 'weir-auth
                       (format "the site refused %s; nothing was stored; use M-x weir-jira-setup again"
                               (if with-token "the e-mail address or the token" "the token")))))))
       (weir-jira--logged-in status value)))))

(defun weir-jira--read-answer (prompt meaning before)
  "Ask for a setting with PROMPT, in which MEANING explains an empty answer.
BEFORE, the answer at the setup that failed, is the default; the user then
types a space for an empty answer."
  (let ((default (weir-jira--or-nil before)))
    (string-trim
     (read-string (format "%s (%s: %s): " prompt
                          (if default (format "default %s; SPC" default) "empty")
                          meaning)
                  nil nil default))))

(defun weir-jira--read-expiry ()
  "Ask for the date on which a token expires; return nil if there is none."
  (let ((prompt "Token expires on (YYYY-MM-DD, or empty): ")
        (text nil)
        (problem t))
    (while problem
      ;; A token that is pasted here by mistake must not be in a history.
      (setq text (string-trim (read-string prompt nil t))
            problem (weir-jira--expiry-problem text)
            prompt (format "Token expires on (YYYY-MM-DD, or empty; %s): " problem)))
    (weir-jira--or-nil text)))

(defun weir-jira--expiry-problem (text)
  "Return why TEXT is not a date on which a token expires, or nil."
  (cond
   ((equal text "") nil)
   ((not (and (string-match "\\`\\([0-9]\\{4\\}\\)-\\([0-9][0-9]\\)-\\([0-9][0-9]\\)\\'" text)
              (equal text (format-time-string
                           "%F"
                           (encode-time (list 0 0 12 (string-to-number (match-string 3 text))
                                              (string-to-number (match-string 2 text))
                                              (string-to-number (match-string 1 text)) nil nil t))
                           t))))
    "that was not a date")
   ((string< text (format-time-string "%F")) "that date is in the past")))

(defun weir-jira--or-nil (text)
  "Return TEXT, or nil if it is empty."
  (unless (equal text "") text))

(defun weir-jira--logged-in (status value)
  "Report the result of a login, STATUS and VALUE, and start the first pull."
  (if (eq status 'failed)
      (message "Jira: %s" (weir--error-text value))
    (let ((missing (cl-remove-if (lambda (right) (plist-get right :granted))
                                 (plist-get value :rights)))
          (name (plist-get value :name)))
      (message "Jira: logged in; the site is called %s%s%s" name
               (if (plist-get value :read-only) " (Data Center, which is only read)" "")
               (if missing
                   (format "; missing rights: %s"
                           (mapconcat (lambda (right) (plist-get right :name)) missing ", "))
                 ""))
      ;; An open site still has the old settings.
      (let ((site (weir-jira--find name))
            (open (lambda ()
                    (weir-jira--open name (lambda (site)
                                            (weir-jira-list "" site)
                                            (weir-jira--pull site nil nil))))))
        (if (and site (weir-jira--site-handle site))
            (weir-jira--close site open)
          (funcall open))))))

;;;; Pulls

(defun weir-jira--start-timer ()
  "Start the timer of pulls if it is not running."
  (when (and weir-jira-sync-interval (not weir-jira--timer))
    (setq weir-jira--timer
          (run-with-timer weir-jira-sync-interval weir-jira-sync-interval #'weir-jira--tick))))

(defun weir-jira--tick ()
  "Pull from each site whose next pull is due, and check when its token expires."
  (let ((idle (current-idle-time)))
    (dolist (site weir-jira--sites)
      (when (weir-jira--site-handle site)
        (weir-jira--warn-of-expiry site))
      (let ((last (weir-jira--site-last-attempt site)))
        (unless (or (weir-jira--site-pull site)
                    (null (weir-jira--site-handle site))
                    ;; A rejected token is not retried automatically.
                    (eq (car-safe (weir-jira--site-failure site)) 'weir-auth)
                    (weir-jira--site-read-only site)
                    (and idle last (> (float-time idle) 300)
                         (< (- (float-time) last) 300)))
          (weir-jira--send-and-pull site nil))))))

(defun weir-jira--send-and-pull (site verbose)
  "Send the outbox of SITE, if it has operations, and pull.
If `weir-jira-push-at-once' is nil, only pull.  With VERBOSE, also report a
pull without changes."
  (if (and weir-jira-push-at-once
           (weir--jira-has-operations (weir-jira--site-handle site)))
      (weir-jira--push site)
    (weir-jira--pull site nil verbose)))

;;;###autoload
(defun weir-jira-sync (&optional census)
  "Send the outbox, then pull what is new at the site.
If `weir-jira-push-at-once' is nil, only pull.  With a prefix argument CENSUS,
only pull, and also search for deletions."
  (interactive "P")
  (weir-jira--open
   (weir-jira--default)
   (lambda (site)
     (cond
      ((weir-jira--site-pull site)
       (message "Jira: %s is already syncing" (weir-jira--site-name site)))
      (census (weir-jira--pull site census t))
      (t (weir-jira--send-and-pull site t))))))

(defun weir-jira--pull (site census verbose &optional confirm)
  "Pull from SITE if no pull is running; with CENSUS search for deletions.
With VERBOSE, also report a pull without changes.  CONFIRM permits the removal
of many issues."
  (unless (weir-jira--site-pull site)
    (condition-case error
        (setf (weir-jira--site-pull site)
              (weir--expect
               (weir--jira-pull (weir-jira--site-handle site) (weir-jira--token site)
                                census confirm (eq weir-jira-on-lost-access 'purge))
               (lambda (status value)
                 (if (eq status 'part)
                     (weir-jira--stored site (plist-get value :stored))
                   (weir-jira--pulled site status value verbose))))
              (weir-jira--site-started site) (float-time))
      (weir-error
       (setf (weir-jira--site-failure site) error)
       (message "Jira: %s" (weir--error-text error))))
    (weir-jira--update-headers site)))

(defun weir-jira--stored (site count)
  "Record that the running pull of SITE has stored COUNT issues.
The first issues are shown at once, the others when the pull ends."
  (let ((first (null (weir-jira--site-stored site))))
    (setf (weir-jira--site-stored site) count)
    (when first
      (weir-jira--refresh site))
    (weir-jira--update-headers site)))

(defconst weir-jira--pull-counts
  '((:changed . "changed") (:gone . "gone") (:moved . "moved to another project")
    (:repaired . "left out by the site before") (:outdated . "changed without a new time")
    (:unreadable . "unreadable") (:incomplete . "incomplete") (:stale . "sent in an old version")
    (:requests . "requests"))
  "Numbers in the report of a pull that the log shows, and their names.")

(defconst weir-jira--push-counts
  '((:sent . "sent") (:conflicts . "in conflict") (:rejected . "rejected")
    (:unknown . "with an unknown outcome") (:already . "not needed") (:merged . "merged")
    (:waiting . "waiting") (:overwritten . "overwritten changes of others")
    (:requests . "requests"))
  "Numbers in the report of a push that the log shows, and their names.")

(defun weir-jira--counts (report names)
  "Return the numbers of REPORT under their NAMES, as a text for the log.
The first two are always shown, the others if they are not 0."
  (mapconcat (lambda (name) (format "%d %s" (plist-get report (car name)) (cdr name)))
             (append (cl-subseq names 0 2)
                     (cl-remove 0 (nthcdr 2 names)
                                :key (lambda (name) (or (plist-get report (car name)) 0))))
             ", "))

(defun weir-jira--pulled (site status value verbose &optional pushed)
  "Handle the end of a pull of SITE with STATUS and VALUE.
With VERBOSE, also report a pull without changes.  PUSHED is non-nil if the
pull followed a push, which can have changed the outbox."
  (setf (weir-jira--site-pull site) nil
        (weir-jira--site-stored site) nil
        (weir-jira--site-last-attempt site) (float-time))
  (cond
   ;; The site was closed meanwhile.
   ((null (weir-jira--site-handle site))
    (setf (weir-jira--site-push-wanted site) nil))
   ((eq status 'failed)
    (setf (weir-jira--site-failure site) value)
    (weir-jira--log site (weir--error-text value))
    ;; What was sent or stored before the failure is shown.
    (weir-jira--refresh site)
    (when (and (eq (car value) 'weir-unconfirmed) verbose)
      (weir-jira--confirm-removal site value))
    (when (eq (car value) 'weir-auth)
      (weir-jira--forget-secret (weir-jira--about site :site-url)))
    (message "Jira: %s" (weir--error-text value)))
   (t
    (setf (weir-jira--site-failure site) nil
          (weir-jira--site-last-pull site) (float-time))
    (let ((changed (plist-get value :changed))
          (gone (plist-get value :gone))
          (repaired (plist-get value :repaired)))
      (weir-jira--log site (concat "pulled: " (weir-jira--counts value weir-jira--pull-counts)))
      (when (or verbose (> (+ changed gone) 0))
        (message "Jira: %d issues changed, %d gone%s" changed gone
                 (if (> repaired 0)
                     (format "; the site had left out %d of them before" repaired)
                   "")))
      (when (or pushed (> (+ changed gone) 0))
        (weir-jira--refresh site)))))
  (weir-jira--update-headers site)
  (when (weir-jira--site-push-wanted site)
    (weir-jira--push site)))

(defun weir-jira--confirm-removal (site failure)
  "Ask whether to remove the issues of SITE that FAILURE counts."
  (when (yes-or-no-p (format "%s.  Remove them from the replica? " (cadr failure)))
    (weir-jira--pull site t t t)))

(defun weir-jira--log-buffer ()
  "Return the buffer of the log, which the user cannot edit."
  (with-current-buffer (get-buffer-create "*weir-jira-log*")
    (unless (derived-mode-p 'special-mode)
      (special-mode)
      ;; The buffer has every line at once.
      (setq-local revert-buffer-function #'ignore))
    (current-buffer)))

(defun weir-jira--log (site text)
  "Add TEXT about SITE to the log."
  (with-current-buffer (weir-jira--log-buffer)
    (save-excursion
      (let ((inhibit-read-only t))
        (goto-char (point-max))
        (insert (format-time-string "%F %T ") (weir-jira--site-name site) " " text "\n")))))

(defun weir-jira-sync-log ()
  "Show the log of pulls and pushes, at its newest line."
  (interactive)
  (pop-to-buffer (weir-jira--log-buffer))
  (goto-char (point-max)))

(defun weir-jira--buffers (site)
  "Return the buffers that show something of SITE."
  (cl-remove-if-not (lambda (buffer) (eq (buffer-local-value 'weir-jira--site buffer) site))
                    (buffer-list)))

(defun weir-jira--refresh (site)
  "Show the current state of SITE in its buffers: now, or soon in hidden ones.
Each buffer takes some milliseconds, and Emacs reacts to keys in between."
  (let ((hidden nil))
    (dolist (buffer (weir-jira--buffers site))
      (if (get-buffer-window buffer t)
          (weir-jira--refresh-buffer buffer)
        (push buffer hidden)))
    (weir-jira--refresh-soon hidden)))

(defun weir-jira--refresh-soon (buffers)
  "Refresh BUFFERS, each by a timer of its own."
  (when buffers
    (run-at-time 0 nil (lambda ()
                         (weir-jira--refresh-soon (cdr buffers))
                         (weir-jira--refresh-buffer (car buffers))))))

(defun weir-jira--is-shown ()
  "Return whether the buffer is a view of a replica."
  (derived-mode-p 'weir-jira-list-mode 'weir-jira-issue-mode
                  'weir-jira-outbox-mode 'weir-jira-projects-mode))

(defun weir-jira--refresh-buffer (buffer)
  "Show the current state of the site in BUFFER, if both are still open."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (when (and (weir-jira--is-shown)
                 (memq weir-jira--site weir-jira--sites)
                 (weir-jira--site-handle weir-jira--site))
        (setq weir-jira--problem
              (condition-case error
                  (progn
                    (revert-buffer nil t)
                    ;; A new text moves the points of windows that are not selected.
                    (when (derived-mode-p 'tabulated-list-mode)
                      (dolist (window (get-buffer-window-list nil nil t))
                        (set-window-point window (point))))
                    nil)
                ;; The issue was deleted meanwhile.
                (weir-not-found (cadr error))))))))

(defun weir-jira--update-headers (site)
  "Update the header lines of the buffers of SITE."
  (dolist (buffer (weir-jira--buffers site))
    (with-current-buffer buffer
      (setq mode-line-process
            (and (weir-jira--site-pull site)
                 (format " [sync%s]" (if (weir-jira--site-stored site)
                                         (format " %d" (weir-jira--site-stored site))
                                       ""))))
      (force-mode-line-update))))

(defun weir-jira--state ()
  "Return the state of the site of the buffer, for a header line."
  (let* ((site weir-jira--site)
         (last (and site (weir-jira--site-last-pull site)))
         (failure (and site (weir-jira--site-failure site))))
    (concat
     (and site (weir-jira--site-name site))
     (cond
      ((null site) "opening")
      ((weir-jira--site-pull site)
       (if (weir-jira--site-stored site)
           (format " · syncing, %d issues" (weir-jira--site-stored site))
         (concat " · syncing" (weir-jira--waits site))))
      ((weir-jira--site-read-only site)
       " · the store cannot be written: nothing is synced, edited or sent")
      (last (format " · synced %s ago" (weir-jira--ago (- (float-time) last))))
      ((weir-jira--site-pulled-before site) " · synced before this Emacs started")
      (t " · not synced yet"))
     (and failure (concat " · " (replace-regexp-in-string "%" "%%" (weir--error-text failure)))))))

(defun weir-jira--waits (site)
  "Return for how long SITE is syncing, for a header line; empty below 10 s."
  (let ((seconds (- (float-time) (or (weir-jira--site-started site) (float-time)))))
    (if (< seconds 10)
        ""
      (format " for %s" (weir-jira--ago seconds)))))

(defun weir-jira--count (count noun)
  "Return COUNT with NOUN, in the plural unless COUNT is 1."
  (format "%d %s%s" count noun (if (= count 1) "" "s")))

(defun weir-jira--ago (seconds)
  "Return SECONDS as a text."
  (cond
   ((< seconds 60) (format "%d s" seconds))
   ((< seconds 3600) (format "%d min" (/ seconds 60)))
   (t (format "%d h" (/ seconds 3600)))))

;;;; Pages

(defconst weir-jira--faces
  '((key . weir-jira-key) (title . weir-jira-title) (heading . weir-jira-heading)
    (label . weir-jira-label) (dim . weir-jira-dim) (status-new . weir-jira-status-new)
    (status-active . weir-jira-status-active) (status-done . weir-jira-status-done))
  "Faces of parts of a page.")

(defconst weir-jira--properties
  '((issue . weir-jira-key) (field . weir-jira-field) (comment . weir-jira-comment)
    (worklog . weir-jira-worklog) (op . weir-jira-op) (link . weir-jira-url))
  "Text properties of parts of a page.")

(defun weir-jira--insert (page)
  "Insert PAGE, a text with faces and properties.
It is (TEXT . [SPAN KIND DATA ...]), where SPAN is the first character
plus the number of characters times 2^32.  A face has no DATA."
  (let* ((start (point))
         (runs (cdr page))
         (length (length runs))
         (at 0))
    (insert (car page))
    (while (< at length)
      (let* ((span (aref runs at))
             (from (+ start (logand span #xffffffff)))
             (to (+ from (ash span -32)))
             (kind (aref runs (+ at 1)))
             (property (cdr (assq kind weir-jira--properties))))
        (if property
            (put-text-property from to property (aref runs (+ at 2)))
          (put-text-property from to 'face (cdr (assq kind weir-jira--faces))))
        (when (eq kind 'link)
          (put-text-property from to 'face 'link))
        (setq at (+ at (if property 3 2)))))))

;;;; Lists

(defvar weir-jira--org-timer nil
  "The timer that loads org while Emacs is idle; nil before the first list.")

(defun weir-jira--load-org-when-idle ()
  "Load org when Emacs is next idle, so that no command waits for it.
The second and later calls do nothing."
  (unless (or noninteractive weir-jira--org-timer (featurep 'org))
    (setq weir-jira--org-timer (run-with-idle-timer 2 nil #'require 'org nil t))))

(defconst weir-jira--first-rows 200 "Number of rows that are shown at once.")
(defconst weir-jira--added-rows 250 "Number of rows that are added at a time while Emacs is idle.")

(defvar-local weir-jira--query nil "The query of the buffer.")
(defvar-local weir-jira--columns nil "The columns of the buffer; nil means `weir-jira-columns'.")
(defvar-local weir-jira--words nil "The words of the search that the buffer shows, or nil.")
(defvar-local weir-jira--site-answer nil "The answer of the site that the buffer shows, or nil.")
(defvar-local weir-jira--is-tree nil "Whether the buffer shows a tree.")
(defvar-local weir-jira--set nil "The issues that the buffer shows.")
(defvar-local weir-jira--shown 0 "Number of rows in the buffer.")
(defvar-local weir-jira--fill-timer nil "The timer for more rows.")
(defvar-local weir-jira--marks nil "Keys of the marked issues, the last one first.")

(defvar weir-jira-common-map
  (let ((map (make-sparse-keymap)))
    (define-key map "?" #'weir-jira-menu)
    (define-key map "b" #'weir-jira-browse)
    (define-key map "w" #'weir-jira-copy-key)
    (define-key map "W" #'weir-jira-copy-url)
    (define-key map "s" #'weir-jira-search)
    (define-key map "j" #'weir-jira-visit)
    (define-key map "v" #'weir-jira-view)
    (define-key map "l" #'weir-jira-list)
    (define-key map "Q" #'weir-jira-ask)
    (define-key map "N" #'weir-jira-projects)
    (define-key map "H" #'weir-jira-history)
    (define-key map "=" #'weir-jira-diff)
    (define-key map "g" #'weir-jira-refresh)
    (define-key map "G" #'weir-jira-sync)
    (define-key map "$" #'weir-jira-sync-log)
    (define-key map "d" #'weir-jira-doctor)
    (define-key map "@" #'weir-jira-switch-site)
    map)
  "Keys of lists and issues.")

(defvar weir-jira-list-mode-map
  (let ((map (make-composed-keymap weir-jira-common-map special-mode-map)))
    (setq map (let ((own (make-sparse-keymap)))
                (set-keymap-parent own map)
                own))
    (define-key map "n" #'next-line)
    (define-key map "p" #'previous-line)
    (define-key map (kbd "RET") #'weir-jira-open-issue)
    (define-key map (kbd "SPC") #'weir-jira-peek)
    (define-key map "S" #'weir-jira-save-view)
    (define-key map "f" #'weir-jira-import-views)
    (define-key map "T" #'weir-jira-toggle-tree)
    (define-key map "O" #'weir-jira-sort)
    (define-key map "|" #'weir-jira-set-columns)
    (define-key map "x" #'weir-jira-export)
    (define-key map "m" #'weir-jira-mark)
    (define-key map "u" #'weir-jira-unmark)
    (define-key map "U" #'weir-jira-unmark-all)
    map)
  "Keys of `weir-jira-list-mode'.")

(define-derived-mode weir-jira-list-mode special-mode "Jira"
  "Issues of a site.
\\{weir-jira-list-mode-map}"
  :interactive nil
  (setq-local revert-buffer-function #'weir-jira--revert-list)
  (setq truncate-lines t
        header-line-format '(:eval (weir-jira--list-header)))
  (setq-local next-error-function #'weir-jira--next-issue)
  (setq-local bookmark-make-record-function #'weir-jira--list-bookmark)
  ;; Otherwise each refresh keeps a copy of the text before it.
  (buffer-disable-undo)
  (hl-line-mode 1)
  (weir-jira--load-org-when-idle)
  (add-hook 'kill-buffer-hook #'weir-jira--stop-filling nil t))

(defun weir-jira--list-header ()
  "Return the header line of a list."
  (format " %s · %s · %s"
          (weir-jira--count (if weir-jira--set (weir--jira-size weir-jira--set) 0) "issue")
          (replace-regexp-in-string
           "%" "%%"
           (cond (weir-jira--site-answer (format "asked: %s" weir-jira--query))
                 (weir-jira--words (format "search: %s" weir-jira--words))
                 ((equal weir-jira--query "") "all")
                 (t (or weir-jira--query ""))))
          (weir-jira--state)))

(defun weir-jira--stop-filling ()
  "Cancel the timer for more rows."
  (when weir-jira--fill-timer
    (cancel-timer weir-jira--fill-timer)
    (setq weir-jira--fill-timer nil)))

(defun weir-jira--select ()
  "Return the issues to show in the buffer."
  (let* ((handle (weir-jira--site-handle weir-jira--site))
         (set (cond
               (weir-jira--site-answer (weir--jira-set (append (plist-get weir-jira--site-answer :ids) nil)))
               (weir-jira--words (weir--jira-search handle weir-jira--words 1000))
               (weir-jira--is-tree (weir--jira-tree handle weir-jira--query))
               (t (weir--jira-list handle weir-jira--query)))))
    (if (eq weir-jira-on-lost-access 'keep)
        set
      (weir--jira-visible handle set))))

(defun weir-jira--fill (&optional set)
  "Show the issues SET in the buffer, the first rows now.
SET nil means the issues that the buffer is to show."
  (weir-jira--stop-filling)
  (let ((set (or set (weir-jira--select)))
        (inhibit-read-only t))
    (setq weir-jira--set nil
          weir-jira--shown 0)
    (erase-buffer)
    (weir-jira--add-rows set weir-jira--first-rows)))

(defun weir-jira--add-rows (set count)
  "Add COUNT rows of SET, and the rest when Emacs is idle."
  (let ((inhibit-read-only t))
    ;; After an interruption, the next refresh replaces the whole text.
    (setq weir-jira--set nil)
    (save-excursion
      (save-restriction
        (widen)
        (goto-char (point-max))
        (weir-jira--insert-rows (weir--jira-rows (weir-jira--site-handle weir-jira--site)
                                                 set weir-jira--shown count
                                                 (or weir-jira--columns weir-jira-columns)))))
    (setq weir-jira--set set))
  (weir-jira--set-shown (+ weir-jira--shown count)))

(defun weir-jira--insert-rows (page)
  "Insert PAGE, rows of a list, and show which of them are marked."
  (let ((start (point)))
    (weir-jira--insert page)
    (when weir-jira--marks
      (let ((end (point)))
        (goto-char start)
        (weir-jira--show-marks end)
        (goto-char end)))))

(defun weir-jira--set-shown (count)
  "Record COUNT as the number of rows; add the rest when Emacs is idle."
  (let ((total (weir--jira-size weir-jira--set)))
    (setq weir-jira--shown (min total count)
          weir-jira--fill-timer
          (and (< weir-jira--shown total)
               (run-with-idle-timer 0.05 nil #'weir-jira--add-more (current-buffer))))))

(defun weir-jira--update ()
  "Show the current state of the issues of the buffer.
Only rows that differ are replaced: windows do not scroll, and Emacs has little
garbage to collect."
  (let* ((set (weir-jira--select))
         (count (max weir-jira--first-rows
                     (if (< weir-jira--shown (weir--jira-size weir-jira--set))
                         weir-jira--shown
                       (weir--jira-size set))))
         (steps (weir--jira-changes (weir-jira--site-handle weir-jira--site) weir-jira--set set
                                    count (or weir-jira--columns weir-jira-columns)))
         (inhibit-read-only t))
    (if (eq steps t)
        (weir-jira--fill set)
      (weir-jira--stop-filling)
      ;; After an interruption, the next refresh replaces the whole text.
      (setq weir-jira--set nil)
      (save-excursion
        (save-restriction
          (widen)
          (goto-char (point-min))
          (dolist (step steps)
            (cond
             ((consp step) (weir-jira--insert-rows step))
             ((> step 0) (forward-line step))
             (t (delete-region (point) (line-beginning-position (- 1 step))))))))
      (setq weir-jira--set set)
      (weir-jira--set-shown count))))

;; Marks

(defun weir-jira--show-mark (on)
  "Show a mark in the first column of the row if ON, otherwise remove the mark."
  (let ((inhibit-read-only t)
        (key (get-text-property (point) 'weir-jira-key)))
    (save-excursion
      (beginning-of-line)
      (delete-char 1)
      (insert (propertize (if on "*" " ") 'weir-jira-key key 'face 'weir-jira-mark)))))

(defun weir-jira--show-marks (end)
  "Show which rows from point to END are marked."
  (let ((marked (make-hash-table :test #'equal)))
    (dolist (key weir-jira--marks)
      (puthash key t marked))
    (while (< (point) end)
      (when (gethash (get-text-property (point) 'weir-jira-key) marked)
        (weir-jira--show-mark t))
      (forward-line))))

(defun weir-jira--check-list ()
  "Signal an error for the user unless the buffer is a list of issues."
  (unless (derived-mode-p 'weir-jira-list-mode)
    (user-error "This is not a list of issues")))

(defun weir-jira--set-mark (on)
  "Mark the issue of the row if ON, otherwise unmark it; move to the next row."
  (weir-jira--check-list)
  (let ((key (weir-jira--key-or-error)))
    (setq weir-jira--marks (delete key weir-jira--marks))
    (when on
      (push key weir-jira--marks))
    (weir-jira--show-mark on)
    (forward-line)))

(defun weir-jira-mark ()
  "Mark the issue at point, and move to the next row.
Transitions, assignments, labels, watches and exports then apply to all
marked issues of the list."
  (interactive nil weir-jira-list-mode)
  (weir-jira--set-mark t))

(defun weir-jira-unmark ()
  "Remove the mark of the issue at point, and move to the next row."
  (interactive nil weir-jira-list-mode)
  (weir-jira--set-mark nil))

(defun weir-jira-unmark-all ()
  "Unmark all issues of the list."
  (interactive nil weir-jira-list-mode)
  (weir-jira--check-list)
  (setq weir-jira--marks nil)
  (save-excursion
    (goto-char (point-min))
    (while (not (eobp))
      (when (eq (char-after) ?*)
        (weir-jira--show-mark nil))
      (forward-line))))

(defun weir-jira--marked-keys ()
  "Return the keys of the marked issues of the list, the first marked one first.
An issue that the list no longer has, such as after another query, is omitted.
If the list has none of them, signal an error for the user; the command would
otherwise apply to issues without a mark."
  (when (and weir-jira--marks (derived-mode-p 'weir-jira-list-mode))
    (let* ((handle (weir-jira--site-handle (weir-jira--current-site)))
           ;; After an interruption, the buffer has no set.
           (set (or weir-jira--set (weir-jira--select)))
           (listed (make-hash-table :test #'equal)))
      (dolist (key (weir--jira-keys handle set 0 (weir--jira-size set)))
        (puthash key t listed))
      (or (cl-remove-if-not (lambda (key) (gethash key listed))
                            (reverse weir-jira--marks))
          (user-error "The list no longer has the %s; %s"
                      (weir-jira--count (length weir-jira--marks) "marked issue")
                      (substitute-command-keys
                       "\\[weir-jira-unmark-all] removes all marks"))))))

(defun weir-jira--chosen ()
  "Return the keys of the marked issues of the list, the first marked one first.
Without a mark, return the key of the issue at point in a list."
  (or (weir-jira--marked-keys) (list (weir-jira--key-or-error))))

(defun weir-jira--add-more (buffer)
  "Add rows to BUFFER if it is live."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      ;; The site can be closed meanwhile.
      (when (and weir-jira--set (weir-jira--site-handle weir-jira--site))
        (weir-jira--add-rows weir-jira--set weir-jira--added-rows)))))

(defun weir-jira--revert-list (&rest _)
  "Show the current state of the issues; point stays at its issue."
  (let ((key (weir-jira--key-at-point))
        (line (line-number-at-pos)))
    (weir-jira--current-site)
    (if weir-jira--set
        (weir-jira--update)
      (weir-jira--fill))
    (unless (and key (or (equal (weir-jira--key-at-point) key) (weir-jira--goto key)))
      (goto-char (point-min))
      (forward-line (1- line)))
    (dolist (window (get-buffer-window-list nil nil t))
      (set-window-point window (point)))))

(defun weir-jira--goto (key)
  "Move point to the row of the issue KEY.  Return nil if there is none."
  (let ((found nil)
        (start (point)))
    (goto-char (point-min))
    (while (and (not found) (not (eobp)))
      (if (equal (get-text-property (point) 'weir-jira-key) key)
          (setq found t)
        (forward-line)))
    (unless found
      (goto-char start))
    found))

(defun weir-jira--list-buffer (name site query &rest options)
  "Return the buffer NAME with the issues of SITE for QUERY.
OPTIONS are `:words' of a search, `:tree', `:asked', an answer of the site,
and `:columns' of the list."
  (with-current-buffer (get-buffer-create name)
    (unless (derived-mode-p 'weir-jira-list-mode)
      (weir-jira-list-mode))
    (let ((before (list weir-jira--query weir-jira--words weir-jira--site-answer weir-jira--is-tree)))
      (setq weir-jira--site site
            weir-jira--query query
            weir-jira--columns (plist-get options :columns)
            weir-jira--words (plist-get options :words)
            weir-jira--site-answer (plist-get options :asked)
            weir-jira--is-tree (plist-get options :tree))
      (condition-case error
          (weir-jira--fill)
        (weir-error
         (pcase-setq `(,weir-jira--query ,weir-jira--words ,weir-jira--site-answer ,weir-jira--is-tree)
                     before)
         (user-error (if (eq (car error) 'weir-usage)
                         "%s; \"M-x weir-jira-ask\" sends a query to the site"
                       "%s")
                     (cadr error)))))
    (goto-char (point-min))
    (current-buffer)))

;;;###autoload
(defun weir-jira (&optional name)
  "List the issues of the view `weir-jira-default-view'.
With a prefix argument, ask for the NAME of the site."
  (interactive (list (and current-prefix-arg (weir-jira--read-site))))
  (weir-jira--list-view (cdr (assoc weir-jira-default-view weir-jira-views)) name))

(defun weir-jira--list-view (view &optional name)
  "List the issues of VIEW, JQL or a cons of JQL and columns; nil means all.
NAME is that of the site; nil means the default one."
  (weir-jira--open
   (or name (weir-jira--default))
   (lambda (site)
     (weir-jira-list (or (if (consp view) (car view) view) "") site (cdr-safe view)))))

(defun weir-jira--read-site ()
  "Ask for a site, by default the current one; return its name."
  (let ((default (weir-jira--default)))
    (completing-read (format-prompt "Site" default) (weir-jira--names) nil t nil nil default)))

;;;###autoload
(defun weir-jira-switch-site (name)
  "Use the site NAME in later commands, and list its issues.
The command sets `weir-jira-default-site' until Emacs ends."
  (interactive (list (weir-jira--read-site)))
  (setq weir-jira-default-site name)
  (weir-jira name))

;;;###autoload
(defun weir-jira-list (query &optional site columns)
  "List the issues of SITE for QUERY, which is JQL; all if it is empty.
COLUMNS are those of the list, as in the variable `weir-jira-columns'."
  (interactive
   (list (read-string "JQL: " weir-jira--query 'weir-jira--queries) nil weir-jira--columns))
  (if site
      (pop-to-buffer-same-window
       (weir-jira--list-buffer (format "*jira %s*" (weir-jira--site-name site)) site query
                               :columns columns))
    (weir-jira--open (weir-jira--default) (lambda (site) (weir-jira-list query site columns)))))

(defvar weir-jira--queries nil "History of queries.")

;;;###autoload
(defun weir-jira-ask (query)
  "Send QUERY, any JQL, to the site, and list the issues of its answer.
If the site cannot be reached, its last answer is shown."
  (interactive
   (list (read-string "JQL for the site: " weir-jira--query 'weir-jira--queries)))
  (weir-jira--open
   (weir-jira--default)
   (lambda (site)
     (message "Jira: asking %s" (weir-jira--site-name site))
     (weir--expect
      (weir--jira-ask (weir-jira--site-handle site) (weir-jira--token-for-command site) query)
      (lambda (status value) (weir-jira--answered site query status value))))))

(defun weir-jira--answered (site query status value)
  "Show the answer of SITE to QUERY: STATUS and VALUE."
  (if (eq status 'failed)
      (message "Jira: %s" (weir--error-text value))
    (pop-to-buffer-same-window
     (weir-jira--list-buffer (format "*jira asked %s*" (weir-jira--site-name site))
                             site query :asked value))
    (message (if (eq (plist-get value :fresh) t)
                 "Jira: %d issues"
               "Jira: %d issues; the site cannot be reached, this is its answer of %d min ago")
             (length (plist-get value :ids)) (plist-get value :minutes))))

;;;###autoload
(defun weir-jira-view (name)
  "List the issues of the saved view NAME."
  (interactive (list (completing-read "View: " weir-jira-views nil t)))
  (weir-jira--list-view (or (cdr (assoc name weir-jira-views))
                            (user-error "There is no view %s" name))))

(defun weir-jira-save-view (name)
  "Save the query of the buffer, with its order and its columns, as the view NAME."
  (interactive (list (read-string "Name of the view: ")) weir-jira-list-mode)
  (weir-jira--check-list)
  (when weir-jira--words
    (user-error "A view needs a query, but this list is the result of a search"))
  (let ((query (or weir-jira--query "")))
    (customize-save-variable
     'weir-jira-views
     (cons (cons name (if weir-jira--columns (cons query weir-jira--columns) query))
           (assoc-delete-all name (copy-alist weir-jira-views))))))

(defun weir-jira-import-views (&optional replace)
  "Add the favourite filters of the account to the saved views.
The daily pull of reference data reads the filters from the site.  A view of
the same name is kept; with a prefix argument REPLACE it is replaced."
  (interactive "P")
  (let* ((filters (weir--jira-offered (weir-jira--site-handle (weir-jira--current-site)) "filters" ""))
         (new (cl-remove-if (lambda (filter)
                              (and (not replace)
                                   (assoc (plist-get filter :name) weir-jira-views)))
                            (append filters nil)))
         (views (copy-alist weir-jira-views)))
    (dolist (filter new)
      (let ((name (plist-get filter :name)))
        (setq views (append (assoc-delete-all name views)
                            (list (cons name (plist-get filter :jql)))))))
    (when new
      (customize-save-variable 'weir-jira-views views))
    (message "Jira: %d of %d favourite filters are new views" (length new) (length filters))))

;; Order and columns

(defconst weir-jira--order-regexp
  "\"\\(?:[^\"\\]\\|\\\\.\\)*\"\\|'\\(?:[^'\\]\\|\\\\.\\)*'\\|\\(\\_<order[ \t\n]+by\\_>\\)"
  "Matches a string of JQL, or in its group 1 the words ORDER BY.")

(defun weir-jira--split-order (query)
  "Return (CONDITION . ORDER) of QUERY; ORDER is nil if QUERY has no order."
  (let ((case-fold-search t)
        (from 0)
        (found nil))
    (while (and (not found) (string-match weir-jira--order-regexp query from))
      (if (match-beginning 1)
          (setq found (cons (string-trim (substring query 0 (match-beginning 1)))
                            (string-trim (substring query (match-end 1)))))
        (setq from (match-end 0))))
    (or found (list (string-trim query)))))

(defconst weir-jira--orders
  '("updated" "created" "due" "priority" "status" "type" "assignee" "reporter" "key" "summary"
    "project" "resolution")
  "Fields by which a list can be sorted.")

(defun weir-jira-sort (field)
  "Sort the list by FIELD; reverse the order if it is sorted by FIELD.
The order becomes part of the query, so that `weir-jira-save-view' keeps it."
  (interactive (list (completing-read "Sort by: " weir-jira--orders nil t)) weir-jira-list-mode)
  (weir-jira--check-list)
  (when (or weir-jira--site-answer weir-jira--words)
    (user-error "Only the list of an offline query can be sorted"))
  (pcase-let ((`(,condition . ,order) (weir-jira--split-order weir-jira--query)))
    (let* ((dates (member field '("updated" "created")))
           (first (format "\\`%s\\(?:[ \t]+\\(asc\\|desc\\)\\)?\\(?:,\\|\\'\\)" field))
           (same (and order (string-match first (downcase order))))
           (descends (and same (equal (match-string 1 (downcase order)) "desc"))))
      (setq weir-jira--query
            (string-trim (format "%s ORDER BY %s %s" condition field
                                 (if (if same (not descends) dates) "DESC" "ASC"))))
      (revert-buffer nil t))))

(defconst weir-jira--widths
  '(("key" . 10) ("status" . 13) ("type" . 8) ("assignee" . 14) ("updated" . 5) ("summary" . 50)
    ("priority" . 8) ("labels" . 14) ("parent" . 10) ("project" . 8) ("due" . 10))
  "Columns that a list can have, each with the width of a new one.")

(defun weir-jira-set-columns (names)
  "Show the columns NAMES in the list, in this order.
The last one gets the rest of the line.  `weir-jira-save-view' stores them."
  (interactive
   (list (completing-read-multiple
          "Columns: " weir-jira--widths nil t
          (mapconcat #'car (or weir-jira--columns weir-jira-columns) ",")))
   weir-jira-list-mode)
  (weir-jira--check-list)
  (unless names
    (user-error "A list needs a column"))
  (let ((current (or weir-jira--columns weir-jira-columns)))
    (setq weir-jira--columns
          (mapcar (lambda (name)
                    (let ((width (cdr (assoc name current))))
                      (cons name
                            (cond ((equal name (car (last names))) 0)
                                  ((and width (> width 0)) width)
                                  (t (cdr (assoc name weir-jira--widths)))))))
                  names)))
  (revert-buffer nil t))

(defun weir-jira-refresh ()
  "Show the current state of the replica, and pull in the background."
  (interactive)
  ;; Another buffer could visit a file, whose changes would be lost.
  (when (weir-jira--is-shown)
    (revert-buffer nil t))
  (weir-jira--pull (weir-jira--current-site) nil t))

(defun weir-jira-toggle-tree ()
  "Toggle whether children are shown below their parents."
  (interactive nil weir-jira-list-mode)
  (weir-jira--check-list)
  (setq weir-jira--is-tree (not weir-jira--is-tree))
  (revert-buffer nil t))

;;;###autoload
(defun weir-jira-projects ()
  "Show the projects of the site; RET opens the tree of a project."
  (interactive)
  (weir-jira--open (weir-jira--default) #'weir-jira--show-projects))

(defvar weir-jira-projects-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map (kbd "RET") #'weir-jira-project-tree)
    (define-key map "+" #'weir-jira-project-create)
    (define-key map "e" #'weir-jira-project-edit)
    (define-key map "D" #'weir-jira-project-delete)
    map)
  "Keys of `weir-jira-projects-mode'.")

(define-derived-mode weir-jira-projects-mode tabulated-list-mode "Jira-Projects"
  "Projects of a site.
\\{weir-jira-projects-mode-map}"
  :interactive nil
  (setq tabulated-list-format
        [("Key" 10 t) ("Open" 8 nil) ("Issues" 8 nil) ("Name" 40 t)]
        tabulated-list-entries #'weir-jira--project-rows)
  (tabulated-list-init-header))

(defun weir-jira--project-rows ()
  "Return the rows of the projects."
  (mapcar (lambda (project)
            (let ((key (plist-get project :key)))
              (list key
                    (vector key
                            (number-to-string (plist-get project :open))
                            (number-to-string (plist-get project :issues))
                            (concat (plist-get project :name)
                                    (unless (plist-get project :visible) " (not visible)"))))))
          (weir--jira-projects (weir-jira--site-handle (weir-jira--current-site)))))

(defun weir-jira--show-projects (site)
  "Show the projects of SITE."
  (let ((buffer (get-buffer-create (format "*jira projects %s*" (weir-jira--site-name site)))))
    (with-current-buffer buffer
      (weir-jira-projects-mode)
      (setq weir-jira--site site)
      (tabulated-list-print))
    (pop-to-buffer-same-window buffer)))

(defun weir-jira-project-tree ()
  "Show the issues of the project at point as a tree."
  (interactive)
  (let ((key (or (tabulated-list-get-id) (user-error "There is no project at point")))
        (site (weir-jira--current-site)))
    (pop-to-buffer-same-window
     (weir-jira--list-buffer (format "*jira tree %s*" key) site
                             (format "project = \"%s\" ORDER BY key ASC" key) :tree t))))

;;;; Search as you type

;;;###autoload
(defun weir-jira-search ()
  "Search summaries, descriptions and comments while you type.
RET shows the found issues in a list."
  (interactive)
  (weir-jira--open (weir-jira--default) #'weir-jira--search))

(defun weir-jira--search (site)
  "Search the issues of SITE while the user types."
  (let* ((name (format "*jira search %s*" (weir-jira--site-name site)))
         (buffer (weir-jira--list-buffer name site ""))
         (show (lambda ()
                 (let ((words (minibuffer-contents-no-properties)))
                   (with-current-buffer buffer
                     (unless (equal words (or weir-jira--words ""))
                       (weir-jira--list-buffer name site "" :words (weir-jira--or-nil words)))
                     (dolist (window (get-buffer-window-list buffer nil t))
                       (set-window-point window (point-min))))))))
    (pop-to-buffer-same-window buffer)
    (minibuffer-with-setup-hook
        (lambda () (add-hook 'post-command-hook show nil t))
      (read-string "Search: "))))

;;;; One issue

(defvar-local weir-jira--key nil "Key of the issue that the buffer shows.")

(defvar weir-jira-issue-mode-map
  (let ((map (make-composed-keymap weir-jira-common-map special-mode-map)))
    (setq map (let ((own (make-sparse-keymap)))
                (set-keymap-parent own map)
                own))
    (define-key map "n" #'weir-jira-next)
    (define-key map "p" #'weir-jira-previous)
    (define-key map "x" #'weir-jira-org-export)
    (define-key map (kbd "TAB") #'outline-toggle-children)
    (define-key map (kbd "RET") #'weir-jira-follow)
    map)
  "Keys of `weir-jira-issue-mode'.")

(define-derived-mode weir-jira-issue-mode special-mode "Jira-Issue"
  "An issue, with its comments and its history.
\\{weir-jira-issue-mode-map}"
  :interactive nil
  (setq-local outline-regexp "\\*+ ")
  (setq-local imenu-generic-expression '((nil "^\\*+ \\(.*\\)" 1)))
  (setq-local bookmark-make-record-function #'weir-jira--issue-bookmark)
  (setq-local revert-buffer-function #'weir-jira--revert-issue)
  (setq header-line-format '(:eval (concat " " (or weir-jira--problem
                                                 (concat weir-jira--key " · "
                                                         (weir-jira--state))))))
  (buffer-disable-undo)
  (visual-line-mode 1)
  (weir-jira--load-org-when-idle)
  (outline-minor-mode 1))

(defconst weir-jira--issue-buffer "*jira issue*" "Name of the buffer that shows an issue.")

(defvar-local weir-jira--page nil "The page that the buffer shows.")

(defun weir-jira--show-page (page)
  "Replace the content of the buffer with PAGE."
  (let ((inhibit-read-only t))
    (erase-buffer)
    (weir-jira--insert page)
    (setq weir-jira--page page)))

(defun weir-jira--place (position)
  "Return the line and the column of POSITION in the buffer."
  (save-excursion
    (goto-char position)
    (cons (line-number-at-pos) (current-column))))

(defun weir-jira--position (place)
  "Return the position in the buffer that is nearest to PLACE."
  (save-excursion
    (goto-char (point-min))
    (forward-line (1- (car place)))
    (move-to-column (cdr place))
    (point)))

(defun weir-jira--revert-issue (&rest _)
  "Show the current state of the issue.
No window scrolls, and no point moves."
  (let ((page (weir--jira-issue (weir-jira--site-handle (weir-jira--current-site)) weir-jira--key)))
    (unless (equal page weir-jira--page)
      (let ((point (weir-jira--place (point)))
            (windows (mapcar (lambda (window)
                               (list window
                                     (weir-jira--place (window-start window))
                                     (weir-jira--place (window-point window))))
                             (get-buffer-window-list nil nil t))))
        (weir-jira--show-page page)
        (goto-char (weir-jira--position point))
        (pcase-dolist (`(,window ,start ,point) windows)
          (set-window-start window (weir-jira--position start) t)
          (set-window-point window (weir-jira--position point)))))))

(defun weir-jira--show (site key)
  "Show the issue KEY of SITE in the buffer for issues, and return the buffer."
  (let ((page (condition-case error
                  (weir--jira-issue (weir-jira--site-handle site) key)
                (weir-not-found (user-error "%s" (cadr error)))))
        (list (and (derived-mode-p 'weir-jira-list-mode) (current-buffer))))
    (with-current-buffer (get-buffer-create weir-jira--issue-buffer)
      (unless (derived-mode-p 'weir-jira-issue-mode)
        (weir-jira-issue-mode))
      (setq weir-jira--site site
            weir-jira--key key
            weir-jira--problem nil)
      (when list
        (setq next-error-last-buffer list))
      (weir-jira--show-page page)
      (goto-char (point-min))
      (current-buffer))))

(defun weir-jira--key-at-point ()
  "Return the key of the issue at point, or that of the buffer."
  (or (get-text-property (point) 'weir-jira-key)
      (and (derived-mode-p 'weir-jira-issue-mode) weir-jira--key)))

(defun weir-jira--key-or-error ()
  "Return the key of the issue at point, or signal an error for the user."
  (or (weir-jira--key-at-point) (user-error "There is no issue at point")))

(defun weir-jira-open-issue ()
  "Show the issue at point."
  (interactive)
  (pop-to-buffer (weir-jira--show (weir-jira--current-site) (weir-jira--key-or-error))))

(defun weir-jira-peek ()
  "Show the issue at point in another window; point stays in the list."
  (interactive)
  (display-buffer (weir-jira--show (weir-jira--current-site) (weir-jira--key-or-error))))

(defun weir-jira--next-issue (count &optional reset)
  "Move COUNT rows in a list, from its start if RESET, and show the issue there."
  (when reset
    (goto-char (point-min)))
  (forward-line count)
  (let ((key (get-text-property (point) 'weir-jira-key)))
    (unless key
      (forward-line (- count))
      (user-error "There are no more issues"))
    (dolist (window (get-buffer-window-list nil nil t))
      (set-window-point window (point)))
    (weir-jira--show (weir-jira--current-site) key)))

(defun weir-jira-next (&optional count)
  "Show the issue COUNT rows after this one in its list."
  (interactive "p")
  (let ((list next-error-last-buffer))
    (unless (buffer-live-p list)
      (user-error "There is no list of issues; M-x weir-jira shows one"))
    (with-current-buffer list
      (weir-jira--next-issue (or count 1)))))

(defun weir-jira-previous (&optional count)
  "Show the issue COUNT rows before this one in its list."
  (interactive "p")
  (weir-jira-next (- (or count 1))))

(defun weir-jira--annotate (handle key)
  "Return the annotation of KEY, an issue of the replica HANDLE."
  (let ((row (weir--jira-row handle key)))
    (concat "  " (plist-get row :status) "  " (plist-get row :summary))))

(defun weir-jira--affixes (handle keys)
  "Return KEYS, issues of the replica HANDLE, each with a prefix and a suffix.
The prefix shows whether changes of the issue wait in the outbox."
  (mapcar (lambda (key)
            (list key
                  (if (> (or (plist-get (weir--jira-row handle key) :pending) 0) 0) "● " "  ")
                  (weir-jira--annotate handle key)))
          keys))

(defun weir-jira--read-key (site prompt &optional default)
  "Ask for the key of an issue of SITE with PROMPT.
DEFAULT is a key; nil means that of the issue at point."
  (let* ((handle (weir-jira--site-handle site))
         (all (weir--jira-list handle ""))
         (keys (weir--jira-keys handle all 0 (weir--jira-size all))))
    (completing-read
     prompt
     (lambda (text predicate action)
       (if (eq action 'metadata)
           `(metadata (category . weir-issue)
                      (annotation-function
                       . ,(lambda (key) (weir-jira--annotate handle key)))
                      (affixation-function
                       . ,(lambda (keys) (weir-jira--affixes handle keys))))
         (complete-with-action action keys text predicate)))
     nil nil nil nil (or default (weir-jira--key-at-point)))))

;;;###autoload
(defun weir-jira-visit (key)
  "Show the issue KEY."
  (interactive (list nil))
  (weir-jira--open
   (weir-jira--default)
   (lambda (site)
     (pop-to-buffer
      (weir-jira--show site (or key (weir-jira--read-key site "Issue: ")))))))

(defun weir-jira-follow ()
  "Follow the link or visit the issue at point."
  (interactive)
  (let ((url (get-text-property (point) 'weir-jira-url))
        (key (get-text-property (point) 'weir-jira-key)))
    (cond
     (url (browse-url url))
     (key (weir-jira--show (weir-jira--current-site) key))
     (t (user-error "There is no link or issue at point")))))

(defun weir-jira-history ()
  "Show the history of the issue at point, version by version, below the issue."
  (interactive)
  (unless (derived-mode-p 'weir-jira-issue-mode)
    (weir-jira-open-issue))
  (let ((buffer (current-buffer))
        (key (weir-jira--key-or-error)))
    (weir--expect
     (weir--jira-history (weir-jira--site-handle (weir-jira--current-site)) key)
     (lambda (status value)
       (if (eq status 'failed)
           (message "Jira: %s" (weir--error-text value))
         (weir-jira--show-history buffer key value))))))

(defun weir-jira--show-history (buffer key versions)
  "Add VERSIONS of the issue KEY to BUFFER, if that is still its issue."
  (when (and (buffer-live-p buffer) (equal (buffer-local-value 'weir-jira--key buffer) key))
    (with-current-buffer buffer
      (let ((inhibit-read-only t))
        (save-excursion
          (goto-char (point-min))
          (when (re-search-forward "^\\* History" nil t)
            (delete-region (1- (line-beginning-position)) (point-max)))
          (goto-char (point-max))
          (insert "\n" (propertize (format "* History (%d versions in the replica)\n"
                                           (length versions))
                                   'face 'weir-jira-heading))
          (dolist (version versions)
            (insert (format "** Stored %s\n"
                            (format-time-string "%F %T" (/ (plist-get version :time-ms) 1000))))
            (if (plist-get version :changes)
                (dolist (change (plist-get version :changes))
                  (insert (format "- %s: %s → %s\n" (plist-get change :field)
                                  (plist-get change :from) (plist-get change :to))))
              (insert "- first version\n"))))))))

(defun weir-jira-diff ()
  "Compare the issue with an earlier version in the replica.
The current state includes the changes of the outbox.  Comments are omitted."
  (interactive)
  (let ((site (weir-jira--current-site))
        (key (weir-jira--key-or-error)))
    (weir--expect
     (weir--jira-history (weir-jira--site-handle site) key)
     (lambda (status value)
       (if (eq status 'failed)
           (message "Jira: %s" (weir--error-text value))
         (weir-jira--diff-with site key (weir-jira--read-version value)))))))

(defun weir-jira--read-version (versions)
  "Ask for one of VERSIONS, the newest first; return its offset."
  (let* ((names (mapcar (lambda (version)
                          (cons (format "%s  %s"
                                        (format-time-string
                                         "%F %T" (/ (plist-get version :time-ms) 1000))
                                        (mapconcat (lambda (change) (plist-get change :field))
                                                   (plist-get version :changes) " "))
                                (plist-get version :offset)))
                        versions))
         (chosen (if (cdr names)
                     (completing-read "Compare with the version of: "
                                      (lambda (text predicate action)
                                        (if (eq action 'metadata)
                                            '(metadata (display-sort-function . identity))
                                          (complete-with-action action names text predicate)))
                                      nil t nil nil (car (cadr names)))
                   (caar names))))
    (cdr (assoc chosen names))))

(defun weir-jira--diff-with (site key offset)
  "Show how the issue KEY of SITE differs from its version at OFFSET."
  (let ((handle (weir-jira--site-handle site)))
    (weir--expect
     (weir--jira-version handle key offset)
     (lambda (status old)
       (if (eq status 'failed)
           (message "Jira: %s" (weir--error-text old))
         (weir--expect
          (weir--jira-version handle key nil)
          (lambda (status new)
            (if (eq status 'failed)
                (message "Jira: %s" (weir--error-text new))
              (weir-jira--show-diff site key offset old new)))))))))

(defun weir-jira--show-diff (site key offset old new)
  "Show how the text NEW of the issue KEY of SITE differs from the text OLD.
OLD is the version at OFFSET, which a revert compares again."
  (cl-flet ((buffer (name text)
              (with-current-buffer (get-buffer-create (format " *jira %s %s*" name key))
                (erase-buffer)
                (insert text)
                (current-buffer))))
    (let ((before (buffer "before" old))
          (now (buffer "now" new))
          (shown (get-buffer-create "*jira diff*")))
      (diff-no-select before now nil t shown)
      (with-current-buffer shown
        (setq weir-jira--site site)
        ;; The function of `diff-no-select' would need both buffers.
        (setq-local revert-buffer-function
                    (lambda (&rest _)
                      (weir-jira--diff-with (weir-jira--current-site) key offset))))
      (pop-to-buffer shown)
      (kill-buffer before)
      (kill-buffer now))))

;;;; Browse, copy, export

(defun weir-jira--url (key)
  "Return the web address of the issue KEY."
  (concat (weir-jira--about (weir-jira--current-site) :site-url) "/browse/" key))

(defun weir-jira-browse ()
  "Show the issue at point in a browser."
  (interactive)
  (browse-url (weir-jira--url (weir-jira--key-or-error))))

(defun weir-jira-copy-key ()
  "Copy the key of the issue at point."
  (interactive)
  (let ((key (weir-jira--key-or-error)))
    (kill-new key)
    (message "%s" key)))

(defun weir-jira-copy-url ()
  "Copy the address of the issue at point."
  (interactive)
  (let ((url (weir-jira--url (weir-jira--key-or-error))))
    (kill-new url)
    (message "%s" url)))

(defun weir-jira--exported (format)
  "Return the issues of the list as FORMAT; if issues are marked, only those."
  (let ((handle (weir-jira--site-handle (weir-jira--current-site)))
        (marked (weir-jira--marked-keys)))
    (weir--jira-export
     handle
     (if marked
         (weir--jira-set (mapcar (lambda (key) (plist-get (weir--jira-row handle key) :id))
                                 marked))
       (or weir-jira--set (user-error "This is not a list of issues")))
     format)))

(defun weir-jira-export (format)
  "Show the issues of the list as FORMAT, csv, json, org or md, in a buffer.
If issues are marked, only those."
  (interactive (list (completing-read "Format: " '("org" "csv" "md" "json") nil t)))
  (pop-to-buffer (weir-jira--export-buffer (weir-jira--exported format) format)))

(defun weir-jira-export-csv (file)
  "Write the issues of the list to FILE as CSV; if issues are marked, only those.
Ask before an existing file is replaced."
  (interactive "FWrite CSV to: ")
  (let ((text (weir-jira--exported "csv"))
        (coding-system-for-write 'utf-8-unix))
    (write-region text nil file nil nil nil t)))

(defun weir-jira-org-export ()
  "Show the issue of the buffer as org text in a buffer."
  (interactive)
  (let* ((key (weir-jira--key-or-error))
         (page (weir--jira-issue (weir-jira--site-handle (weir-jira--current-site)) key)))
    (pop-to-buffer (weir-jira--export-buffer (car page) "org"))))

(defun weir-jira--inert (text)
  "Return TEXT with a space in each %%( of it.
Without it, the agenda of org would evaluate the Lisp form in the text."
  (string-replace "%%(" "%% (" text))

(defun weir-jira--export-buffer (text format)
  "Return a buffer with TEXT in the mode of FORMAT."
  (with-current-buffer (generate-new-buffer (format "*jira export %s*" format))
    ;; As in `weir-jira--edit-buffer': org must not obey lines of the text, and
    ;; not call the modes that its code names.
    (when (equal format "org")
      (org-mode)
      (setq-local org-src-fontify-natively nil))
    (insert (if (equal format "org") (weir-jira--inert text) text))
    (goto-char (point-min))
    (set-buffer-modified-p nil)
    (current-buffer)))

;;;; Bookmarks

(defun weir-jira--list-bookmark ()
  "Return a bookmark of the list."
  `(,(format "jira: %s" weir-jira--query)
    (query . ,weir-jira--query)
    (columns . ,weir-jira--columns)
    (site . ,(weir-jira--site-name weir-jira--site))
    (handler . weir-jira-jump)))

(defun weir-jira--issue-bookmark ()
  "Return a bookmark of the issue."
  `(,(format "jira: %s" weir-jira--key)
    (key . ,weir-jira--key)
    (site . ,(weir-jira--site-name weir-jira--site))
    (handler . weir-jira-jump)))

;;;###autoload
(defun weir-jira-jump (bookmark)
  "Show the list or the issue of BOOKMARK."
  (let ((key (bookmark-prop-get bookmark 'key))
        (query (bookmark-prop-get bookmark 'query)))
    (weir-jira--open (bookmark-prop-get bookmark 'site)
                     (lambda (site)
                       (if key
                           (pop-to-buffer-same-window (weir-jira--show site key))
                         (weir-jira-list query site (bookmark-prop-get bookmark 'columns)))))))

;;;; Menu

(transient-define-prefix weir-jira-menu ()
  "Commands for issues.
The keys are those of lists and of the buffer of an issue."
  [["Show"
    ("v" "View" weir-jira-view)
    ("l" "Query (JQL)" weir-jira-list)
    ("Q" "Query at the site" weir-jira-ask)
    ("s" "Search" weir-jira-search)
    ("j" "Issue by key" weir-jira-visit)
    ("N" "Projects" weir-jira-projects)
    ("g" "Refresh" weir-jira-refresh)]
   ["List"
    :if-derived weir-jira-list-mode
    ("T" "Tree" weir-jira-toggle-tree)
    ("O" "Sort" weir-jira-sort)
    ("|" "Columns" weir-jira-set-columns)
    ("m" "Mark" weir-jira-mark)
    ("u" "Unmark" weir-jira-unmark)
    ("U" "Unmark all" weir-jira-unmark-all)
    ("x" "Export" weir-jira-export)
    ("S" "Save view" weir-jira-save-view)
    ("f" "Import views" weir-jira-import-views)]
   ["Issue"
    ("b" "Browse" weir-jira-browse)
    ("w" "Copy key" weir-jira-copy-key)
    ("W" "Copy address" weir-jira-copy-url)
    ("H" "History" weir-jira-history)
    ("=" "Compare versions" weir-jira-diff)
    ("x" "Export as org" weir-jira-org-export :if-derived weir-jira-issue-mode)]
   ["Site"
    ("G" "Sync" weir-jira-sync)
    ("o" "Outbox" weir-jira-outbox)
    ("P" "Push" weir-jira-push)
    ("@" "Other site" weir-jira-switch-site)
    ("$" "Log" weir-jira-sync-log)
    ("d" "Doctor" weir-jira-doctor)]]
  [["Change"
    ("e" "Field at point" weir-jira-set-field)
    ("E" "Edit" weir-jira-edit)
    ("t" "Transition" weir-jira-transition)
    ("a" "Assign" weir-jira-assign)
    ("A" "Assign to me" weir-jira-assign-me)]
   ["Add"
    ("c" "Comment" weir-jira-comment)
    ("i" "Log work" weir-jira-worklog)
    ("L" "Labels" weir-jira-label)
    ("K" "Link" weir-jira-link)
    ("!" "Watch" weir-jira-watch)]
   ["Create, delete"
    ("+" "Issue" weir-jira-create)
    ("&" "Subtask" weir-jira-create-subtask)
    ("C" "Clone" weir-jira-clone)
    ("k" "Delete comment, worklog" weir-jira-delete-part)
    ("D" "Delete" weir-jira-delete)]])

(provide 'weir-jira)
(require 'weir-jira-edit)
(require 'weir-jira-doctor)
;;; weir-jira.el ends here
