;;; check.el --- Byte-compile without warnings, checkdoc and package-lint -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Runs in batch mode; exits with 1 if a file has a fault.  package-lint checks
;; the files of the package, but not those of the tests.

;;; Code:

(require 'bytecomp)
(require 'checkdoc)
(require 'package)
(require 'package-lint)

(defvar weir-check-faults 0 "Faults found.")

(defconst weir-check-not-ours
  '(;; There is no public address yet, and no placeholder for it either.
    "should have a Homepage or URL header"
    ;; A package-lint older than Emacs 28 reports this for Emacs 28.
    "uninstallable in all released Emacs versions"
    ;; The other package is in this directory; no archive is contacted.
    "Package weir is not installable")
  "Parts of messages of package-lint that are not faults.")

(defun weir-check-fault (file line text)
  "Count the fault TEXT of FILE at LINE, and print it."
  (message "%s:%d: %s" file line text)
  (setq weir-check-faults (1+ weir-check-faults)))

(defun weir-check-lint (file)
  "Check FILE with package-lint, as a part of its package."
  (let ((package-lint-main-file
         (expand-file-name (if (string-prefix-p "weir-jira" file) "weir-jira.el" "weir.el")))
        (text-quoting-style 'grave))
    (with-temp-buffer
      (insert-file-contents file t)
      (emacs-lisp-mode)
      (pcase-dolist (`(,line ,_ ,_ ,text) (package-lint-buffer))
        (unless (seq-some (lambda (part) (string-match-p (regexp-quote part) text))
                          weir-check-not-ours)
          (weir-check-fault file line text))))))

(package-initialize)
(let ((byte-compile-error-on-warn t)
      (byte-compile-dest-file-function (lambda (_) (make-temp-file "weir" nil ".elc")))
      (checkdoc-create-error-function
       (lambda (text start &rest _)
         (weir-check-fault (buffer-name) (if start (line-number-at-pos start) 0) text)
         nil)))
  (dolist (file command-line-args-left)
    (unless (byte-compile-file file)
      (setq weir-check-faults (1+ weir-check-faults)))
    (unless (string-match-p "\\`\\(test\\|bench\\)/" file)
      (weir-check-lint file))
    (with-current-buffer (find-file-noselect file)
      (checkdoc-current-buffer t)))
  (setq command-line-args-left nil)
  (kill-emacs (if (= weir-check-faults 0) 0 1)))

;;; check.el ends here
