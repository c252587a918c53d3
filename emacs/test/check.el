;;; check.el --- Byte-compile without warnings, and checkdoc -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Run by `cargo xtask emacs' in batch; exits with 1 if a file has a fault.

;;; Code:

(require 'bytecomp)
(require 'checkdoc)

(defvar weir-check-faults 0 "Faults found.")

(let ((byte-compile-error-on-warn t)
      (byte-compile-dest-file-function (lambda (_) (make-temp-file "weir" nil ".elc")))
      (checkdoc-create-error-function
       (lambda (text start &rest _)
         (message "%s:%d: %s" (buffer-name) (if start (line-number-at-pos start) 0) text)
         (setq weir-check-faults (1+ weir-check-faults))
         nil)))
  (dolist (file command-line-args-left)
    (unless (byte-compile-file file)
      (setq weir-check-faults (1+ weir-check-faults)))
    (with-current-buffer (find-file-noselect file)
      (checkdoc-current-buffer t)))
  (setq command-line-args-left nil)
  (kill-emacs (if (= weir-check-faults 0) 0 1)))

;;; check.el ends here
