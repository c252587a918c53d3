;;; weir-jira-doctor.el --- Describe the Jira sites for a bug report -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; `M-x weir-jira-doctor' shows the settings of each site, the state of its
;; replica, and the rights of the account.  It never shows a token.

;;; Code:

(require 'cl-lib)
(require 'weir-jira)

(declare-function weir--jira-about "ext:weir-module")
(declare-function weir--jira-outbox "ext:weir-module")
(declare-function weir--jira-rights "ext:weir-module")

(defconst weir-jira-doctor--buffer "*weir-jira doctor*" "Name of the report.")

(defun weir-jira-doctor--add (site format &rest arguments)
  "Add a line about SITE to the report: FORMAT with ARGUMENTS."
  (with-current-buffer (get-buffer-create weir-jira-doctor--buffer)
    (let ((inhibit-read-only t))
      (save-excursion
        (goto-char (point-min))
        (if (search-forward (format "\n* %s\n" site) nil t)
            (if (re-search-forward "^\\* " nil t)
                (goto-char (1- (match-beginning 0)))
              (goto-char (point-max)))
          (goto-char (point-max)))
        (insert (apply #'format format arguments) "\n")))))

(defun weir-jira-doctor--line (site label value)
  "Add LABEL and VALUE to the section about SITE in the report."
  (weir-jira-doctor--add site "%-16s%s" label value))

(defun weir-jira-doctor--token (site)
  "Return the place where the token of SITE is stored, never the token."
  (let ((about (weir--jira-about (weir-jira--site-handle site)))
        (login (weir-jira--login site)))
    (cond
     ((null login) "none")
     ((weir-jira--stored-secret (plist-get about :site-url) login) "auth-source")
     ((weir-jira--known-token site) "not stored; in memory until Emacs ends")
     ((equal (plist-get about :token-store) "keyring") "keyring")
     ((weir-jira--token-file site) (concat "file " (weir-jira--token-file site)))
     (t "missing; use M-x weir-jira-setup"))))

(defun weir-jira-doctor--expiry (days)
  "Return when a token expires that is valid for DAYS more days, as a text."
  (if (< days 0)
      (concat (weir-jira--count (- days) "day") " ago; use M-x weir-jira-setup")
    (concat "in " (weir-jira--count days "day"))))

(defun weir-jira-doctor--site (site)
  "Describe SITE, whose replica is open."
  (let* ((name (weir-jira--site-name site))
         (handle (weir-jira--site-handle site))
         (about (weir--jira-about handle))
         (days (plist-get about :expires-in))
         (last (weir-jira--site-last-pull site))
         (outbox (weir--jira-outbox handle nil)))
    (weir-jira-doctor--line name "Address" (plist-get about :site-url))
    (weir-jira-doctor--line name "Requests to" (plist-get about :api-url))
    (weir-jira-doctor--line name "Kind" (if (plist-get about :read-only)
                                            "Data Center, only read"
                                          "Cloud"))
    (weir-jira-doctor--line name "Account" (or (plist-get about :display-name) "not known yet"))
    (weir-jira-doctor--line name "Token" (weir-jira-doctor--token site))
    (when days
      (weir-jira-doctor--line name "Token expires" (weir-jira-doctor--expiry days)))
    (weir-jira-doctor--line name "Projects" (or (string-join (plist-get about :projects) " ") "all"))
    (weir-jira-doctor--line name "Issues" (plist-get about :issues))
    (weir-jira-doctor--line name "Last pull" (if last (format-time-string "%F %T" last) "none since Emacs started"))
    (weir-jira-doctor--line name "Last failure" (if (weir-jira--site-failure site)
                                                    (weir--error-text (weir-jira--site-failure site))
                                                  "none"))
    (weir-jira-doctor--line
     name "Outbox" (format "%s, %d in conflict" (weir-jira--count (length outbox) "change")
                           (cl-count "conflict" outbox :test #'equal
                                     :key (lambda (op) (plist-get op :state)))))
    (condition-case error
        (weir--expect
         (weir--jira-rights handle (weir-jira--token site))
         (lambda (status value) (weir-jira-doctor--rights name status value)))
      (weir-auth (weir-jira-doctor--rights name 'failed error)))))

(defun weir-jira-doctor--rights (name status value)
  "Add the rights at the site NAME to the report: STATUS and VALUE."
  (if (eq status 'failed)
      (weir-jira-doctor--line name "Connection" (weir--error-text value))
    (let ((missing (cl-remove-if (lambda (right) (plist-get right :granted)) value)))
      (weir-jira-doctor--line name "Connection" "the site answered")
      (weir-jira-doctor--line
       name "Missing rights"
       (if missing
           (mapconcat (lambda (right)
                        (format "%s (%s)" (plist-get right :name) (plist-get right :purpose)))
                      missing ", ")
         "none")))))

;;;###autoload
(defun weir-jira-doctor ()
  "Describe the installation and the sites in a buffer, for a bug report.
The rights of the account are requested from each site; each answer is added
when it arrives.  No token is shown."
  (interactive)
  (let ((installation (weir--description)))
    (with-current-buffer (get-buffer-create weir-jira-doctor--buffer)
      (unless (derived-mode-p 'special-mode)
        (special-mode)
        (setq-local revert-buffer-function (lambda (&rest _) (weir-jira-doctor))))
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert "* Installation\n" installation)))
    (pop-to-buffer weir-jira-doctor--buffer)
    (dolist (name (weir-jira--names))
      (weir-jira-doctor--add name "\n* %s" name)
      (weir-jira--open name #'weir-jira-doctor--site))))

(provide 'weir-jira-doctor)
;;; weir-jira-doctor.el ends here
