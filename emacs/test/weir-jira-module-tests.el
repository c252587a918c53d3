;;; weir-jira-module-tests.el --- Tests of what the module reports -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; What a user reads when a replica or its settings cannot be used.

;;; Code:

(require 'weir-jira-tests)

(defun weir-jira-module-tests-damage (directory text)
  "Replace TEXT in the files of the log in DIRECTORY."
  (let ((coding-system-for-read 'no-conversion)
        (coding-system-for-write 'no-conversion)
        (inhibit-message t))
    (dolist (file (directory-files (expand-file-name "log" directory) t "\\.log\\'"))
      (with-temp-buffer
        (set-buffer-multibyte nil)
        (insert-file-contents-literally file)
        (while (search-forward text nil t)
          (replace-match (make-string (length text) ?#) t t))
        (write-region nil nil file nil 'silent)))))

(ert-deftest weir-jira-module-tests-the-error-for-damage-has-the-directory ()
  (let ((directory (make-temp-file "weir-damaged" t)))
    (unwind-protect
        (let ((store (weir-open directory)))
          (weir-await (weir-create store "t"))
          (dotimes (number 3)
            (weir-await (weir-put store "t" "k" (format "a value to damage %d" number))))
          (weir-close store)
          (weir-jira-module-tests-damage directory "a value to damage 0")
          (let ((text (cadr (should-error (weir-open directory) :type 'weir-storage))))
            (should (string-search (concat "the store in " directory " is damaged") text))
            (should (string-search (concat "weir repair NEW --at " directory) text))))
      (delete-directory directory t))))

(ert-deftest weir-jira-module-tests-unreadable-settings-are-reported ()
  (let ((weir-jira-directory (make-temp-file "weir-no-folder")))
    (unwind-protect
        (let ((text (cadr (should-error (weir-jira--names) :type 'weir-error))))
          (should (string-search weir-jira-directory text)))
      (delete-file weir-jira-directory)))
  (should-not (let ((weir-jira-directory "/nonexistent/weir")) (weir-jira--names))))

(ert-deftest weir-jira-module-tests-a-past-date-of-expiry-is-rejected ()
  (weir-jira-tests-with url '("--issues" "3")
    (dolist (case '(("2020-01-01" . "in the past") ("t0ken-at-the-wrong-place" . "not a date")))
      (let ((output (weir-jira-tests-output (lambda () (weir-jira-setup url "" nil (car case)))
                                            (cdr case))))
        (should-not (cl-some (lambda (text) (string-search "t0ken" text)) output))))
    (should-not (weir-jira--names))))

(provide 'weir-jira-module-tests)

;;; weir-jira-module-tests.el ends here
