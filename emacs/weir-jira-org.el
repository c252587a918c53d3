;;; weir-jira-org.el --- Issues of Jira in org: links, capture, agenda -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; `org-store-link' in an issue, or at a row of a list of issues, stores a link
;; weir-jira:SITE/KEY.  Links open in the replica, also without a network.
;; `org-insert-link' completes the keys of the default site, and
;; `weir-jira-org-insert-link' asks only for the key.
;;
;; `weir-jira-org-capture' captures a heading about the issue at point, and
;; `weir-jira-org-agenda' writes a list of issues to a file that org can show in
;; its agenda.  They write nothing unless called.
;;
;; This is a separate file because loading it registers a type of link.

;;; Code:

(require 'ol)
(require 'org-capture)
(require 'seq)
(require 'weir-jira)

(declare-function weir--jira-keys "ext:weir-module")
(declare-function weir--jira-row "ext:weir-module")
(declare-function weir--jira-size "ext:weir-module")

(defcustom weir-jira-org-template "* TODO %(weir-jira-org-captured :summary)
:PROPERTIES:
:JIRA_KEY: %(weir-jira-org-captured :key)
:END:
%(weir-jira-org-captured :link)
%?"
  "Template of a heading that `weir-jira-org-capture' adds.
The property JIRA_KEY names the issue for `weir-jira-worklog-from-clocks'.
The template is as in `org-capture-templates'.  In addition,
%(weir-jira-org-captured PROPERTY) inserts a property of the issue: :key,
:summary, :status, :assignee, :priority, :due or :link."
  :group 'weir-jira
  :type 'string
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-org-target '(file "")
  "Where `weir-jira-org-capture' adds a heading.
A target as in `org-capture-templates'; (file \"\") is the file
`org-default-notes-file'."
  :group 'weir-jira
  :type 'sexp
  :package-version '(weir-jira . "0.1.0"))

(defcustom weir-jira-org-agenda-file (locate-user-emacs-file "weir-jira/agenda.org")
  "File that `weir-jira-org-agenda' writes.
Org shows the file if it is in the variable `org-agenda-files', which this
package does not change."
  :group 'weir-jira
  :type 'file
  :package-version '(weir-jira . "0.1.0"))

;;;; Links

(defun weir-jira-org-follow (path &optional _)
  "Show the issue of the link PATH, SITE/KEY, from the replica."
  (unless (string-match "\\`\\([^/]+\\)/\\([^/]+\\)\\'" path)
    (user-error "A link to an issue is weir-jira:SITE/KEY, not weir-jira:%s" path))
  (let ((name (match-string 1 path))
        (key (match-string 2 path)))
    (unless (member name (weir-jira--names))
      (user-error "There is no site %s; M-x weir-jira-setup adds one" name))
    (weir-jira--open name (lambda (site)
                            (pop-to-buffer-same-window (weir-jira--show site key))))))

(defun weir-jira-org--link (site key)
  "Return the link to the issue KEY of SITE, without brackets."
  (format "weir-jira:%s/%s" (weir-jira--site-name site) key))

(defun weir-jira-org-store (&rest _)
  "Store a link to the issue at point; return nil if there is no issue."
  (when (derived-mode-p 'weir-jira-issue-mode 'weir-jira-list-mode)
    (let ((key (weir-jira--key-at-point)))
      (when key
        (org-link-store-props
         :type "weir-jira"
         :link (weir-jira-org--link (weir-jira--current-site) key)
         :description key)
        t))))

(defun weir-jira-org-complete (&rest _)
  "Ask for an issue of the default site, which must be open; return a link to it."
  (let* ((name (weir-jira--default))
         (site (seq-find (lambda (site)
                           (and (weir-jira--site-handle site)
                                (equal (weir-jira--site-name site) name)))
                         weir-jira--sites)))
    (unless site
      (user-error "The replica of %s is not open; M-x weir-jira opens it" name))
    (weir-jira-org--link site (weir-jira--read-key site "Issue: "))))

;;;###autoload
(defun weir-jira-org-insert-link ()
  "Ask for an issue of the default site, and insert a link to it at point.
The description of the link is the key of the issue."
  (interactive "*")
  (let ((link (weir-jira-org-complete)))
    (insert (org-link-make-string link (cadr (split-string link "/"))))))

(org-link-set-parameters "weir-jira"
                         :follow #'weir-jira-org-follow
                         :store #'weir-jira-org-store
                         :complete #'weir-jira-org-complete)

;;;; Capture

(defvar weir-jira-org--issue nil "Properties of the captured issue.")

(defun weir-jira-org-captured (property)
  "Return PROPERTY of the captured issue, as text for a template.
Org does not expand the text: neither %^ nor % before a backslash and a digit.
It does not evaluate a Lisp form in the text."
  (let ((value (plist-get weir-jira-org--issue property)))
    (if (stringp value)
        ;; An odd number of backslashes escapes %; org removes half of them.
        (replace-regexp-in-string "\\(\\\\*\\)%\\(\\^\\|\\\\[1-9]\\)" "\\1\\1\\\\%\\2"
                                  (weir-jira--inert (weir--one-line value)))
      "")))

;;;###autoload
(defun weir-jira-org-capture ()
  "Capture a heading about the issue at point.
`weir-jira-org-template' is the heading, `weir-jira-org-target' the place."
  (interactive)
  (let* ((key (weir-jira--key-or-error))
         (site (weir-jira--current-site))
         (row (weir--jira-row (weir-jira--site-handle site) key))
         (weir-jira-org--issue
          (append (list :link (format "[[%s][%s]]" (weir-jira-org--link site key) key)) row))
         (org-capture-templates
          `(("j" "Issue" entry ,weir-jira-org-target ,weir-jira-org-template))))
    (org-capture nil "j")))

;;;; Agenda

(defun weir-jira-org--heading (site key)
  "Return a heading about the issue KEY of SITE for the agenda."
  (let* ((row (weir--jira-row (weir-jira--site-handle site) key))
         (due (plist-get row :due))
         (done (equal (plist-get row :category) "done")))
    (concat (format "* %s %s %s\n" (if done "DONE" "TODO") key
                    (weir--one-line (or (plist-get row :summary) "")))
            (and (stringp due) (string-match-p "\\`[0-9]\\{4\\}-[0-9][0-9]-[0-9][0-9]\\'" due)
                 (format "DEADLINE: <%s>\n" due))
            (format ":PROPERTIES:\n:JIRA_KEY: %s\n:END:\n[[%s][%s]] %s %s\n"
                    key (weir-jira-org--link site key) key
                    (weir--one-line (or (plist-get row :status) ""))
                    (weir--one-line (or (plist-get row :assignee) ""))))))

(defun weir-jira-org--has-clocks (file)
  "Return whether FILE, or the buffer that visits it, has clocks."
  (let ((buffer (find-buffer-visiting file))
        (clock "^[ \t]*CLOCK:"))
    (cond
     (buffer
      (with-current-buffer buffer
        (save-excursion
          (save-restriction
            (widen)
            (goto-char (point-min))
            (re-search-forward clock nil t)))))
     ((file-exists-p file)
      (with-temp-buffer
        (insert-file-contents file)
        (re-search-forward clock nil t))))))

(defun weir-jira-org-agenda ()
  "Write the issues of the list to `weir-jira-org-agenda-file'.
The content of the file is replaced; the issues are not changed.  Ask first if
the file has clocks."
  (interactive)
  (unless (and (derived-mode-p 'weir-jira-list-mode) weir-jira--set)
    (user-error "This is not a list of issues"))
  (when (and (weir-jira-org--has-clocks (expand-file-name weir-jira-org-agenda-file))
             (not (yes-or-no-p "The file has clocks, which would be lost.  Replace it? ")))
    (user-error "The file is unchanged"))
  (let* ((site (weir-jira--current-site))
         (keys (weir--jira-keys (weir-jira--site-handle site) weir-jira--set 0
                                (weir--jira-size weir-jira--set)))
         (file (expand-file-name weir-jira-org-agenda-file))
         (draft (progn
                  (make-directory (file-name-directory file) t)
                  (make-temp-file (concat file "-")))))
    (with-temp-file draft
      (insert (format "# Written by M-x weir-jira-org-agenda for %s: %s\n"
                      (weir-jira--site-name site) (weir--one-line (or weir-jira--query ""))))
      (dolist (key keys)
        (insert (weir-jira--inert (weir-jira-org--heading site key)))))
    (rename-file draft file t)
    (when-let ((buffer (find-buffer-visiting file)))
      (with-current-buffer buffer
        (revert-buffer t t t)))
    (message "Jira: %d issues in %s%s" (length keys) (abbreviate-file-name file)
             (if (member file (mapcar #'expand-file-name (org-agenda-files t)))
                 ""
               "; org shows it once it is in `org-agenda-files'"))))

(provide 'weir-jira-org)
;;; weir-jira-org.el ends here
