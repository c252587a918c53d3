;;; weir-org.el --- Links from org to issues of Jira -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; `org-store-link' in an issue, or at a row of a list of issues, stores a link
;; weir-jira:SITE/KEY.  A link is followed in the replica, so without a network too.
;; `org-insert-link' completes the keys of the default site.
;;
;; A separate file, since it registers a type of link when it is loaded.

;;; Code:

(require 'ol)
(require 'seq)
(require 'weir-jira)

(defun weir-org-follow (path &optional _)
  "Show the issue of the link PATH, SITE/KEY, from the replica."
  (unless (string-match "\\`\\([^/]+\\)/\\([^/]+\\)\\'" path)
    (user-error "A link to an issue is weir-jira:SITE/KEY, not weir-jira:%s" path))
  (let ((name (match-string 1 path))
        (key (match-string 2 path)))
    (unless (member name (weir-jira--names))
      (user-error "There is no site %s; M-x weir-jira-setup adds one" name))
    (weir-jira--open name (lambda (site)
                            (pop-to-buffer-same-window (weir-jira--show site key))))))

(defun weir-org-store (&rest _)
  "Store a link to the issue at point; return nil where there is none."
  (when (derived-mode-p 'weir-jira-issue-mode 'weir-jira-list-mode)
    (let ((key (weir-jira--key-here)))
      (when key
        (org-link-store-props
         :type "weir-jira"
         :link (format "weir-jira:%s/%s" (weir-jira--site-name (weir-jira--here)) key)
         :description key)
        t))))

(defun weir-org-complete (&rest _)
  "Ask for an issue of the default site, which must be open; return a link to it."
  (let* ((name (weir-jira--default))
         (site (seq-find (lambda (site)
                           (and (weir-jira--site-handle site)
                                (equal (weir-jira--site-name site) name)))
                         weir-jira--sites)))
    (unless site
      (user-error "The replica of %s is not open; M-x weir-jira opens it" name))
    (format "weir-jira:%s/%s" name (weir-jira--read-key site "Issue: "))))

(org-link-set-parameters "weir-jira"
                         :follow #'weir-org-follow
                         :store #'weir-org-store
                         :complete #'weir-org-complete)

(provide 'weir-org)
;;; weir-org.el ends here
