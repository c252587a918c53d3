;;; weir.el --- Durable topics of records in a store or at a server -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: data, tools
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Weir is a durable event store: topics of records, each with an optional
;; key.  This package opens a store in the Emacs process or connects to a
;; server, through a dynamic module.
;;
;; Reads of a store of this process answer at once.  Writes, queries,
;; followers and everything at a server run on threads of the module; their
;; results arrive through a pipe, so that no command waits for a disk.
;;
;; `M-x weir-browse' shows the topics of a store; RET follows one live.
;; `M-x weir-doctor' describes the installation for a bug report.

;;; Code:

(require 'cl-lib)
(require 'json)
(require 'tabulated-list)

(declare-function weir--cancel "ext:weir-module")
(declare-function weir--close "ext:weir-module")
(declare-function weir--connect "ext:weir-module")
(declare-function weir--debug-counts "ext:weir-module")
(declare-function weir--deploy "ext:weir-module")
(declare-function weir--drain "ext:weir-module")
(declare-function weir--follow "ext:weir-module")
(declare-function weir--get "ext:weir-module")
(declare-function weir--module-version "ext:weir-module")
(declare-function weir--open "ext:weir-module")
(declare-function weir--query "ext:weir-module")
(declare-function weir--read "ext:weir-module")
(declare-function weir--scan "ext:weir-module")
(declare-function weir--shutdown "ext:weir-module")
(declare-function weir--start "ext:weir-module")
(declare-function weir--submit "ext:weir-module")
(declare-function weir--topics "ext:weir-module")

(defgroup weir nil
  "Durable topics of records in a store or at a server."
  :group 'applications
  :prefix "weir-")

(defcustom weir-module-file nil
  "File of the dynamic module.
Nil means a file `weir-module' with `module-file-suffix' in
`weir-module-directory', in a directory lib/weir of the system, or on
`load-path'."
  :type '(choice (const :tag "Search for it" nil) file)
  :package-version '(weir . "0.1.0"))

(defcustom weir-module-directory (locate-user-emacs-file "weir/")
  "Directory of the dynamic module if `weir-module-file' is nil."
  :type 'directory
  :package-version '(weir . "0.1.0"))

(defcustom weir-timeout 10
  "Seconds that `weir-await' waits."
  :type 'number
  :package-version '(weir . "0.1.0"))

;;;; Conditions

(define-error 'weir-error "Weir")
(define-error 'weir-usage "Wrong use of Weir" 'weir-error)
(define-error 'weir-not-found "Not found" 'weir-error)
(define-error 'weir-exists "It exists" 'weir-error)
(define-error 'weir-rejected "The write was rejected" 'weir-error)
(define-error 'weir-conflict "The write conflicts" 'weir-error)
(define-error 'weir-locked "The store is open in another process" 'weir-error)
(define-error 'weir-storage "The store failed" 'weir-error)
(define-error 'weir-network "The server cannot be reached" 'weir-error)
(define-error 'weir-timeout "No answer in time" 'weir-network)
(define-error 'weir-http "The server refused" 'weir-error)
(define-error 'weir-auth "No permission" 'weir-http)
(define-error 'weir-throttled "Too many requests" 'weir-http)
(define-error 'weir-protocol "The server broke the protocol" 'weir-error)
(define-error 'weir-unconfirmed "It needs a confirmation" 'weir-error)
(define-error 'weir-cancelled "Cancelled" 'weir-error)
(define-error 'weir-panic "A fault of the module" 'weir-error)

;;;; Module and pipe

(defconst weir-version "0.1.0"
  "Version of this package, which must equal the version of the module.")

(defvar weir--is-loaded nil "Whether a module of the right version is loaded.")
(defvar weir--pipe nil "The pipe process to which the module writes when results are ready.")
(defvar weir--callbacks (make-hash-table) "Callbacks of operations, by number of the operation.")
(defvar weir--results (make-hash-table) "Results that are awaited, by number.")
(defvar weir--parts (make-hash-table) "Parts of results, the newest first, by number.")
(defvar weir--stores (make-hash-table :test #'equal :weakness 'value)
  "Stores that `weir-open' opened for writing and that are open, by directory.
Commands use them.  A store that nothing else uses any more is not kept.")

(defun weir--module-directories ()
  "Return the directories of the module, except those of `load-path'."
  (list (file-name-as-directory (expand-file-name weir-module-directory))
        "/usr/local/lib/weir/" "/usr/lib/weir/"))

(defun weir--module-path ()
  "Return the file of the module, or nil."
  (let ((name (concat "weir-module" module-file-suffix)))
    (cond
     (weir-module-file (expand-file-name weir-module-file))
     ((seq-find #'file-exists-p
                (mapcar (lambda (directory) (concat directory name))
                        (weir--module-directories))))
     ((locate-file name load-path)))))

(defun weir--load ()
  "Load the module."
  (unless module-file-suffix
    (user-error "This Emacs loads no modules; use Emacs 28.1 or later with modules"))
  (when (version< emacs-version "28.1")
    (user-error "This is Emacs %s; the module needs Emacs 28.1 or later" emacs-version))
  (let ((file (weir--module-path)))
    (unless file
      (user-error "There is no weir-module%s in %s or on `load-path'; %s"
                  module-file-suffix
                  (mapconcat #'abbreviate-file-name (weir--module-directories) ", ")
                  "use M-x weir-module-compile or M-x weir-module-install"))
    (condition-case error
        (module-load file)
      ((module-load-failed module-open-failed module-init-failed
                           module-not-gpl-compatible missing-module-init-function)
       (user-error "The module %s does not load in Emacs %s (it needs 28.1): %s"
                   file emacs-version (error-message-string error)))))
  (unless (equal (weir--module-version) weir-version)
    (user-error "The file weir.el has version %s, the module %s; install both of one version"
                weir-version (weir--module-version)))
  (add-hook 'kill-emacs-hook #'weir--at-exit)
  (setq weir--is-loaded t))

(defun weir--at-exit ()
  "Shut the module down; wait at most half a second."
  (weir--shutdown))

(defun weir--ensure ()
  "Load the module and create the pipe, if that was not done yet."
  (unless weir--is-loaded
    (weir--load))
  (unless (process-live-p weir--pipe)
    ;; With adaptive reading, each result would be delayed by about 24 ms.
    (let ((process-adaptive-read-buffering nil))
      (setq weir--pipe (make-pipe-process
                        :name "weir" :buffer nil :noquery t
                        :coding 'no-conversion :filter #'weir--wake)))
    (weir--start weir--pipe)))

(defun weir--wake (&rest _)
  "Read the results of the module and pass them to their callbacks."
  (let ((more t))
    (while more
      (pcase-let ((`(,left . ,results) (weir--drain)))
        (setq more left)
        (dolist (result results)
          (weir--deliver result))))))

(defun weir--deliver (result)
  "Pass RESULT, a list (ID STATUS VALUE), to the caller of operation ID."
  (pcase-let* ((`(,id ,status ,value) result)
               (callback (gethash id weir--callbacks)))
    (unless (eq status 'part)
      (remhash id weir--callbacks))
    (cond
     ((functionp callback) (run-at-time 0 nil #'weir--call callback status value))
     ((not (eq callback 'await))
      (when (and (eq status 'failed) (not (eq (car value) 'weir-cancelled)))
        (display-warning 'weir (weir--error-text value))))
     ((eq status 'part) (push value (gethash id weir--parts)))
     (t (puthash id (cons status value) weir--results)))))

(defun weir--call (callback status value)
  "Call CALLBACK with STATUS and VALUE; show an error of it as a warning."
  (condition-case error
      (funcall callback status value)
    (error (display-warning 'weir (weir--error-text error)))))

(defun weir--error-text (error)
  "Return ERROR, a condition with its data, as a sentence."
  (if (and (string-prefix-p "weir-" (symbol-name (car error))) (stringp (cadr error)))
      (cadr error)
    (error-message-string error)))

(defun weir--expect (id callback)
  "Register CALLBACK for the result of operation ID, and return ID.
With CALLBACK nil, a caller waits for the result."
  (puthash id (or callback 'await) weir--callbacks)
  ;; If the pipe was deleted, the result would never arrive.
  (weir--ensure)
  id)

;;;; Operations

(defun weir--wait (operation timeout)
  "Wait for OPERATION, at most TIMEOUT seconds; nil means `weir-timeout'.
Return its result (STATUS . VALUE), or nil."
  (let ((end (+ (float-time) (or timeout weir-timeout)))
        (finished nil))
    (unwind-protect
        (progn
          (while (and (not (gethash operation weir--results)) (< (float-time) end))
            (accept-process-output weir--pipe 0.05))
          (setq finished (gethash operation weir--results)))
      (remhash operation weir--results)
      (unless finished
        ;; Its result has no caller any more.
        (puthash operation nil weir--callbacks)))))

(defun weir-await (operation &optional timeout)
  "Wait for OPERATION, which has no callback, and return its value.
TIMEOUT is in seconds, `weir-timeout' by default.  A quit ends the wait, not
the operation."
  (pcase (weir--wait operation timeout)
    (`(done . ,value) value)
    (`(failed . (,symbol . ,data)) (signal symbol data))
    (_ (signal 'weir-timeout (list "The operation has no answer yet")))))

(defun weir-cancel (operation)
  "Cancel OPERATION.  Return t if it could be cancelled.
A write can be cancelled only before it begins.  A cancelled operation ends
with the condition `weir-cancelled'."
  (weir--cancel operation))

(defun weir--await-or-cancel (operation)
  "Wait for OPERATION without a timeout; a quit cancels the operation."
  (let ((finished nil))
    (unwind-protect
        (prog1 (weir-await operation most-positive-fixnum)
          (setq finished t))
      (unless finished
        (weir-cancel operation)))))

;;;; Stores

(cl-defun weir-open (directory &key readonly)
  "Open the store in DIRECTORY in this process, and return it.
With READONLY, open it for reading only, even while another process writes."
  (weir--ensure)
  (condition-case error
      (let ((store (weir--open (expand-file-name directory) readonly)))
        (unless readonly
          (puthash (weir--directory-key directory) store weir--stores))
        store)
    (weir-locked
     (signal 'weir-locked
             (if (string-match-p (format "\\_<process %d\\_>" (emacs-pid)) (cadr error))
                 (cons (concat directory " is already open in this Emacs; use the store that "
                               "`weir-open' returned, or close a replica with M-x weir-jira-close")
                       (cddr error))
               (cdr error))))))

(defun weir--directory-key (directory)
  "Return the key of DIRECTORY in `weir--stores'."
  (directory-file-name (file-truename directory)))

(defun weir--open-once (directory)
  "Return the store in DIRECTORY that is open in this Emacs, or open it."
  (or (gethash (weir--directory-key directory) weir--stores)
      (weir-open directory)))

(cl-defun weir-connect (url &key token callback)
  "Connect to the server at URL, such as weir://localhost:7071.
TOKEN authenticates the caller.  Return a store like that of
`weir-open'.  With CALLBACK, return a number at once; CALLBACK gets a status,
`done' or `failed', and the store or an error."
  (weir--ensure)
  (let ((id (weir--expect (weir--connect url token) callback)))
    (if callback id (weir--await-or-cancel id))))

(defun weir-close (store)
  "Close STORE.  Return t if it was open."
  (maphash (lambda (key open)
             (when (eq open store)
               (remhash key weir--stores)))
           weir--stores)
  (weir--close store))

;;;; Reads

(defun weir--await-read (result)
  "Return RESULT of a read; if it is the number of an operation, await its value."
  (if (integerp result)
      (weir--await-or-cancel (weir--expect result nil))
    result))

(defun weir-topics (store)
  "Return the topics of STORE as vectors [NAME FIRST LAST KEYS BYTES]."
  (weir--await-read (weir--topics store)))

(defun weir-get (store topic key)
  "Return the value of KEY in TOPIC of STORE, or nil."
  (weir--await-read (weir--get store topic key)))

(cl-defun weir-scan (store topic &key (prefix "") (limit 1000))
  "Return pairs (KEY . VALUE) of TOPIC in STORE in the order of keys.
PREFIX restricts the keys; at most LIMIT pairs are returned."
  (weir--await-read (weir--scan store topic prefix limit)))

(cl-defun weir-read (store topic &key (after 0) (limit 1000))
  "Return records of TOPIC in STORE after the offset AFTER, at most LIMIT.
A record is a vector [OFFSET TIME-MS KIND KEY VALUE]."
  (weir--await-read (weir--read store topic after limit)))

(cl-defun weir-query (store from &key where order-by select group-by limit latest callback)
  "Query the topics FROM of STORE; return the results as JSON texts.
FROM is a name, a pattern such as orders.*, or a list of them.  WHERE,
ORDER-BY, SELECT and GROUP-BY are texts as for the command `weir query', such
as $.state==\"open\", `$.n desc' and count.  LIMIT is the number of results.
With LATEST, only the current value of each key is read.

Without CALLBACK wait for all results; a quit cancels the query.  With
CALLBACK return a number at once: CALLBACK gets `part' and a list of results,
once or more, then `done' and nil, or `failed' and an error."
  (weir--ensure)
  (let ((id (weir--expect
             (weir--query store (ensure-list from) where order-by select group-by limit latest)
             callback)))
    (if callback
        id
      (unwind-protect
          (progn
            (weir--await-or-cancel id)
            (apply #'append (nreverse (gethash id weir--parts))))
        (remhash id weir--parts)))))

;;;; Writes

(defun weir--write (store kind topic key value callback &optional expect)
  "Queue a write of KIND with KEY and VALUE to TOPIC of STORE.
CALLBACK gets a status, `done' or `failed', and an offset or an error.
EXPECT is as for `weir-put'."
  (weir--ensure)
  (weir--expect (weir--submit store kind topic key value expect) callback))

(cl-defun weir-create (store topic &key callback)
  "Create TOPIC in STORE if it does not exist, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'create topic nil nil callback))

(cl-defun weir-put (store topic key value &key callback expect)
  "Write VALUE under KEY to TOPIC of STORE, then call CALLBACK.
With EXPECT, write only if the current value of KEY was written at this
offset; 0 means that KEY must have no value.  Otherwise the operation fails
with the condition `weir-conflict'.  The result of a put is its offset.
Return the number of the operation for `weir-await'."
  (weir--write store 'put topic key value callback expect))

(cl-defun weir-append (store topic value &key callback)
  "Append VALUE without a key to TOPIC of STORE, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'append topic nil value callback))

(cl-defun weir-delete (store topic key &key callback)
  "Delete KEY in TOPIC of STORE, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'delete topic key nil callback))

(cl-defun weir-deploy (store topic file &key (arguments "") callback)
  "Run the WebAssembly program in FILE for each write to TOPIC of STORE.
Create TOPIC with it, or replace the program of TOPIC.  ARGUMENTS is a string
for the program.  Then call CALLBACK.  Return the number of the operation for
`weir-await'.
If STORE is nil, ask for the store, for TOPIC and for FILE."
  (interactive (list nil nil nil :callback #'weir--deployed))
  (unless store
    (setq store (weir--read-store)
          topic (read-string "Topic: ")
          file (read-file-name "Program: " nil nil t)))
  (weir--ensure)
  (weir--expect (weir--deploy store topic (expand-file-name file) arguments) callback))

(defun weir--deployed (status value)
  "Report the result of a deployment to the user: STATUS and VALUE."
  (if (eq status 'done)
      (message "Weir: the program is deployed")
    (message "Weir: %s" (weir--error-text value))))

;;;; Following

(cl-defun weir-follow (store topic function &key (after 0))
  "Call FUNCTION with each batch of records of TOPIC in STORE.
The first batch begins after the offset AFTER.  A batch is a list of records
as `weir-read' returns it.  Return a number for `weir-stop'."
  (weir--ensure)
  (let ((id (weir--follow store topic after)))
    (puthash id
             (lambda (status value)
               (pcase status
                 ('part (funcall function value))
                 ('failed (signal (car value) (cdr value)))))
             weir--callbacks)
    id))

(defun weir-stop (follower)
  "End FOLLOWER, a number of `weir-follow'.  Return t if it ran."
  ;; An operation that has ended has no callback any more.
  (when (gethash follower weir--callbacks)
    (puthash follower nil weir--callbacks))
  (weir-cancel follower))

;;;; Topics browser

(defvar-local weir--store nil "The store that the buffer shows.")
(defvar-local weir--topic nil "The topic that the buffer shows.")
(defvar-local weir--follower nil "The follower of the buffer.")

(defvar weir-browse-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map (kbd "RET") #'weir-browse-tail)
    (define-key map (kbd "/") #'weir-browse-query)
    map)
  "Keys of `weir-browse-mode'.")

(define-derived-mode weir-browse-mode tabulated-list-mode "Weir"
  "Topics of a store."
  :interactive nil
  (setq tabulated-list-format
        [("Topic" 40 t) ("First" 10 nil) ("Last" 10 nil) ("Keys" 10 nil) ("Bytes" 12 nil)])
  (setq tabulated-list-entries #'weir--entries)
  (tabulated-list-init-header))

(defun weir--entries ()
  "Return the rows of the browser."
  (mapcar (lambda (topic)
            (list (aref topic 0)
                  (vconcat (list (aref topic 0))
                           (mapcar #'number-to-string (cl-subseq topic 1)))))
          (weir-topics weir--store)))

(defconst weir--url-regexp "\\`\\(weirs?:\\|unix:\\)"
  "Matches the URL of a server.")

(defvar weir--store-history nil
  "Answers to the question for a store, the newest first.")

(defun weir--complete-store (text predicate action)
  "Complete TEXT, the directory or the URL of a store.
The candidates are directories, and the answers in `weir--store-history'.
PREDICATE and ACTION are those of a function as a completion table."
  (let ((url (string-match-p weir--url-regexp text)))
    (if (and (not url)
             (or (file-name-directory text) (string-prefix-p "~" text)))
        ;; The parts of a file name are completed one by one, so that an answer
        ;; with several parts is no candidate.
        (completion-file-name-table text #'file-directory-p action)
      (complete-with-action
       action
       (delete-dups
        (append weir--store-history
                (unless url
                  (completion-file-name-table text #'file-directory-p t))))
       text predicate))))

(defun weir--read-place ()
  "Ask for the directory or the URL of a store; return the answer."
  (minibuffer-with-setup-hook
      (lambda ()
        ;; The name of a directory can have spaces.
        (use-local-map (make-composed-keymap
                        minibuffer-local-filename-completion-map
                        (current-local-map))))
    (completing-read "Store (directory or URL): " #'weir--complete-store
                     nil nil nil 'weir--store-history)))

(defun weir--read-store ()
  "Return the store of the buffer, or ask for a directory or a URL and open it."
  (if weir--store
      weir--store
    ;; A missing module is reported before the question.
    (weir--ensure)
    (let ((place (weir--read-place)))
      (cond
       ;; The working directory would become a store.
       ((equal place "") (user-error "The directory or URL of the store is missing"))
       ((string-match-p weir--url-regexp place) (weir-connect place))
       (t (weir--open-once place))))))

(defun weir--read-topic (store prompt match)
  "Ask for a topic of STORE with PROMPT; the topic at point is the default.
If MATCH is non-nil, the topic must exist."
  (let* ((default (or weir--topic
                      (and (derived-mode-p 'weir-browse-mode) (tabulated-list-get-id))))
         (topic (completing-read
                 (format-prompt prompt default)
                 (mapcar (lambda (topic) (aref topic 0)) (weir-topics store))
                 nil match nil nil default)))
    (when (equal topic "")
      (user-error "The name of a topic is missing"))
    topic))

(defun weir--browser (store)
  "Return the buffer with the topics of STORE, or nil."
  (seq-find (lambda (buffer)
              (and (eq (buffer-local-value 'weir--store buffer) store)
                   (eq (buffer-local-value 'major-mode buffer) 'weir-browse-mode)))
            (buffer-list)))

;;;###autoload
(defun weir-browse (&optional store)
  "Show the topics of STORE.
If STORE is nil, use the store of the buffer, or ask for a directory or a URL
and open it.  A directory that is already open in this Emacs is not opened
again."
  ;; As in the other commands, the store is not an argument of the interactive
  ;; call: `command-history' would keep the store, which would then stay open.
  (interactive)
  (let* ((store (or store (weir--read-store)))
         (buffer (weir--browser store)))
    (if buffer
        (with-current-buffer buffer
          (tabulated-list-print t))
      (setq buffer (get-buffer-create "*weir*"))
      (with-current-buffer buffer
        (weir-browse-mode)
        (setq weir--store store)
        (tabulated-list-print)))
    (pop-to-buffer-same-window buffer)))

(defun weir--topic-at-point ()
  "Return the topic at point, or signal an error for the user."
  (or (tabulated-list-get-id) (user-error "There is no topic at point")))

(defun weir-browse-tail ()
  "Follow the topic at point."
  (interactive)
  (weir-tail weir--store (weir--topic-at-point)))

(defun weir-browse-query (where)
  "Show the records of the topic at point for which WHERE is true."
  (interactive (list (read-string "Where (such as $.n > 1): ")))
  (weir-query-show weir--store (weir--topic-at-point) :where where))

;;;; Results of a query

(defvar-local weir--query nil "The arguments of `weir-query' for the buffer, without a callback.")
(defvar-local weir--run nil "An object for the query or the follower that fills the buffer.")

(defun weir--fill (start insert)
  "Replace the content of the buffer by what START delivers.
START is called with a callback, and returns the number of an operation.  The
callback calls INSERT with the buffer and the arguments of the callback."
  (let* ((buffer (current-buffer))
         (run (list nil))
         (inhibit-read-only t)
         (operation (funcall start
                             (lambda (&rest arguments)
                               ;; Results of an earlier run can still arrive.
                               (when (and (buffer-live-p buffer)
                                          (eq (buffer-local-value 'weir--run buffer) run))
                                 (apply insert buffer arguments))))))
    (weir--follow-end)
    (erase-buffer)
    (setq weir--run run
          weir--follower operation)))

(defun weir--run-query (&rest _)
  "Run the query of the buffer, and show its results as they arrive."
  (weir--fill (lambda (callback)
                (pcase-let ((`(,store ,from . ,options) weir--query))
                  (apply #'weir-query store from :callback callback options)))
              #'weir--query-insert)
  (setq header-line-format "running"))

(define-derived-mode weir-query-mode special-mode "Weir-Query"
  "Results of a query, one a line."
  :interactive nil
  (setq truncate-lines t)
  (setq-local revert-buffer-function #'weir--run-query)
  (add-hook 'kill-buffer-hook #'weir--follow-end nil t))

;;;###autoload
(defun weir-query-show (&optional store from &rest options)
  "Show the results of `weir-query' for STORE, FROM and OPTIONS in a buffer.
Results are inserted as they arrive; killing the buffer cancels the query.
Return the buffer.
If STORE is nil, ask for the store, for FROM, a topic or a pattern such as
orders.*, and for a condition."
  (interactive)
  (unless store
    (setq store (weir--read-store)
          from (weir--read-topic store "Topic or pattern" nil))
    (let ((where (read-string "Where (such as $.n > 1; empty: all records): ")))
      (unless (equal where "")
        (setq options (list :where where)))))
  (let ((buffer (generate-new-buffer (format "*weir query %s*" from))))
    (with-current-buffer buffer
      (weir-query-mode)
      (setq weir--store store
            weir--query (append (list store from) options))
      (weir--run-query))
    (pop-to-buffer buffer)
    buffer))

(defun weir--query-insert (buffer status value)
  "Insert VALUE, which arrived with STATUS, into BUFFER."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t))
        (pcase status
          ('part
           (save-excursion
             (goto-char (point-max))
             (insert (mapconcat (lambda (text) (concat (weir--short-line text) "\n")) value ""))))
          ('done
           (setq weir--follower nil
                 header-line-format
                 (format "%d results" (count-lines (point-min) (point-max)))))
          ('failed
           (setq weir--follower nil
                 header-line-format
                 (replace-regexp-in-string "%" "%%" (weir--error-text value)))))))))

;;;; Live tail

(defvar weir-tail-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map special-mode-map)
    (define-key map (kbd "RET") #'weir-show-record)
    map)
  "Keys of `weir-tail-mode'.")

(define-derived-mode weir-tail-mode special-mode "Weir-Tail"
  "Records of a topic, as they arrive."
  :interactive nil
  (setq truncate-lines t)
  (setq-local revert-buffer-function #'weir--run-tail)
  (add-hook 'kill-buffer-hook #'weir--follow-end nil t))

(defun weir--follow-end ()
  "End the follower or the query of the buffer."
  (when weir--follower
    (weir-stop weir--follower)
    (setq weir--follower nil)))

(defun weir--one-line (text)
  "Return TEXT without line ends."
  (replace-regexp-in-string "[\n\r]+" " " text))

(defconst weir--line-length 100000
  "Limit on the characters of a text in a line.
Emacs 28 blocks for seconds at a line of megabytes.")

(defun weir--short-line (text)
  "Return TEXT without line ends, and without what `weir--line-length' cuts."
  (if (<= (length text) weir--line-length)
      (weir--one-line text)
    (concat (weir--one-line (substring text 0 weir--line-length)) "…")))

(defun weir--line (record)
  "Return RECORD as a line."
  (pcase-let ((`[,offset ,time ,kind ,key ,value] record))
    (propertize (format "%8d  %s  %-8s %s  %s\n" offset
                        (format-time-string "%F %T" (/ time 1000)) kind
                        (weir--one-line key) (weir--short-line value))
                'weir-record record)))

(defun weir--keep-record (&rest _)
  "Report that the shown record is current, for a revert."
  (message "Weir: a record never changes, so this is its current state"))

(defun weir-show-record ()
  "Show the record at point; format its value if it is JSON."
  (interactive)
  (let ((record (or (get-text-property (point) 'weir-record)
                    (user-error "There is no record at point"))))
    (pcase-let ((`[,offset ,time ,kind ,key ,value] record))
      (with-help-window "*weir record*"
        (with-current-buffer standard-output
          (setq-local revert-buffer-function #'weir--keep-record)
          (insert (format "Offset  %d\nTime    %s\nKind    %s\nKey     %s\n\n" offset
                          (format-time-string "%F %T" (/ time 1000)) kind key))
          (let ((start (point)))
            (insert value "\n")
            (ignore-errors (json-pretty-print start (point)))))))))

;;;###autoload
(defun weir-tail (&optional store topic)
  "Show the records of TOPIC in STORE, and each new one as it arrives.
If STORE is nil, ask for the store and for TOPIC."
  (interactive)
  (unless store
    (setq store (weir--read-store)
          topic (weir--read-topic store "Topic" t)))
  (let ((buffer (generate-new-buffer (format "*weir %s*" topic))))
    (with-current-buffer buffer
      (weir-tail-mode)
      (setq weir--store store
            weir--topic topic)
      (weir--run-tail))
    (pop-to-buffer buffer)
    buffer))

(defun weir--run-tail (&rest _)
  "Follow the topic of the buffer from its first record."
  (weir--fill (lambda (function) (weir-follow weir--store weir--topic function))
              #'weir--tail-insert))

(defun weir--tail-insert (buffer records)
  "Insert RECORDS at the end of BUFFER with one insertion."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t)
            (at-end (eobp)))
        (save-excursion
          (goto-char (point-max))
          (insert (mapconcat #'weir--line records "")))
        (when at-end
          (goto-char (point-max)))))))

;;;; Doctor

(defun weir--description ()
  "Return lines that describe the installation."
  (let ((failure nil))
    (condition-case error
        (weir--ensure)
      ((weir-error user-error) (setq failure (error-message-string error))))
    (concat
     (format "Emacs          %s (%s)\n" emacs-version system-configuration)
     (format "Modules        %s\n" (or module-file-suffix "not supported"))
     (format "weir.el        %s\n" weir-version)
     (format "Module file    %s\n" (or (weir--module-path) "not found"))
     (if failure
         (format "Module         %s\n" failure)
       (pcase-let ((`(,stores ,tasks ,results) (weir--debug-counts)))
         (format "Module         %s\nOpen stores    %d\nTasks          %d\nResults        %d\n"
                 (weir--module-version) stores tasks results))))))

;;;###autoload
(defun weir-doctor ()
  "Describe the installation in a buffer, for a bug report."
  (interactive)
  (let ((text (weir--description)))
    (with-help-window "*weir doctor*"
      (with-current-buffer standard-output
        ;; The function of `help-mode' cannot show the buffer again.
        (setq-local revert-buffer-function (lambda (&rest _) (weir-doctor)))
        (insert text)))))

;;;; Installation of the module

(defcustom weir-source-directory nil
  "Directory of the sources of Weir, from which `weir-module-compile' builds.
Nil means the directory above the one of this file, if it has a Cargo.toml."
  :type '(choice (const :tag "Above this file" nil) directory)
  :package-version '(weir . "0.1.0"))

(defconst weir--file (or load-file-name buffer-file-name) "This file.")

(defun weir--source-directory ()
  "Return the directory of the sources of Weir, or signal an error for the user."
  (let ((directory (or weir-source-directory
                       (expand-file-name ".." (file-name-directory (file-truename weir--file))))))
    (unless (file-exists-p (expand-file-name "crates/weir-emacs/Cargo.toml" directory))
      (user-error "There are no sources of Weir in %s; set `weir-source-directory'" directory))
    (file-name-as-directory directory)))

;;;###autoload
(defun weir-module-install (file)
  "Install FILE, a built dynamic module, in `weir-module-directory'.
The file is replaced completely or not at all.  A loaded module stays in use
until Emacs is restarted."
  (interactive "fModule to install: ")
  (unless module-file-suffix
    (user-error "This Emacs loads no modules; use Emacs 28.1 or later with modules"))
  (make-directory weir-module-directory t)
  (let* ((target (expand-file-name (concat "weir-module" module-file-suffix)
                                   weir-module-directory))
         (draft (make-temp-file (concat target "-"))))
    (unwind-protect
        (progn
          (copy-file file draft t)
          (set-file-modes draft #o644)
          (rename-file draft target t))
      (when (file-exists-p draft)
        (delete-file draft)))
    (message "Installed %s%s" target
             (if (fboundp 'weir--open) "; start Emacs again to use it" ""))
    target))

;;;###autoload
(defun weir-module-compile ()
  "Build the dynamic module with cargo, and install it.
Cargo runs in a compilation buffer; see `weir-source-directory'."
  (interactive)
  (let* ((directory (weir--source-directory))
         (default-directory directory)
         (buffer (compile "cargo build --release --locked --package weir-emacs")))
    (with-current-buffer buffer
      (setq-local compilation-finish-functions
                  (list (lambda (_ outcome)
                          (when (string-prefix-p "finished" outcome)
                            (weir-module-install (weir--built-module directory)))))))
    buffer))

(defun weir--built-module (directory)
  "Return the module that cargo built from the sources in DIRECTORY."
  (let ((target (or (getenv "CARGO_TARGET_DIR") (expand-file-name "target" directory))))
    (expand-file-name (format "release/libweir_module%s"
                              (if (eq system-type 'darwin) ".dylib" module-file-suffix))
                      (expand-file-name target directory))))

(provide 'weir)
;;; weir.el ends here
