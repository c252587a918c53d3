;;; weir-package-tests.el --- The packages as a user installs them -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The packages are built from their recipes, installed by
;; `package-install-file' in an Emacs without settings, and used by another
;; Emacs.  The manual is built from its source, and must not mention commands
;; that do not exist.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'weir-jira)
(require 'weir-jira-org)
(require 'weir-tests)

(defun weir-package-tests-file (name)
  "Return the file NAME of the package directory."
  (expand-file-name name weir-tests-directory))

(defun weir-package-tests-text (name)
  "Return the text of the file NAME of the package directory."
  (with-temp-buffer
    (insert-file-contents (weir-package-tests-file name))
    (buffer-string)))

(defun weir-package-tests-files (package)
  "Return the files of PACKAGE by its recipe, without directories."
  (with-temp-buffer
    (insert-file-contents (weir-package-tests-file (concat "recipes/" package)))
    (let ((recipe (read (current-buffer))))
      (should (equal (symbol-name (car recipe)) package))
      (mapcar (lambda (file)
                (should (string-prefix-p "emacs/" file))
                (substring file (length "emacs/")))
              (plist-get (cdr recipe) :files)))))

(defun weir-package-tests-commands ()
  "Return the commands of both packages, without modes."
  (let ((found nil))
    (mapatoms
     (lambda (symbol)
       (let ((name (symbol-name symbol)))
         (when (and (string-match-p "\\`weir-" name)
                    (not (string-match-p
                          "--\\|\\`weir-\\(tests\\|bench\\|lab\\|package\\|session\\)\\|-mode\\'" name))
                    (commandp symbol))
           (push name found)))))
    (sort found #'string<)))

(ert-deftest weir-package-tests-every-file-is-in-one-recipe ()
  (let ((files (append (weir-package-tests-files "weir") (weir-package-tests-files "weir-jira"))))
    (should (equal (sort (cl-remove-if-not (lambda (file) (string-suffix-p ".el" file)) files)
                         #'string<)
                   (directory-files weir-tests-directory nil "\\`weir.*\\.el\\'")))
    (dolist (file files)
      (should (file-exists-p (weir-package-tests-file file)))))
  ;; Files for developers are not in a package.
  (should (equal (split-string (weir-package-tests-text ".elpaignore"))
                 '("bench" "recipes" "test")))
  (should (string-match-p (regexp-quote (concat "* Version " weir-version))
                          (weir-package-tests-text "NEWS")))
  (dolist (file '("weir.el" "weir-jira.el"))
    (should (string-match-p (format "^;; Version: %s$" (regexp-quote weir-version))
                            (weir-package-tests-text file)))))

(ert-deftest weir-package-tests-the-manual-has-every-command ()
  (let ((manual (weir-package-tests-text "weir.org")))
    (dolist (name (weir-package-tests-commands))
      (should (string-match-p (format "\\_<%s\\_>" (regexp-quote name)) manual)))
    ;; The manual mentions no command that does not exist.
    (with-temp-buffer
      (insert manual)
      (goto-char (point-min))
      (while (re-search-forward "~\\(?:M-x \\)?\\(weir-[a-z-]+\\)~" nil t)
        (let ((symbol (intern (match-string 1))))
          (should (or (fboundp symbol) (boundp symbol) (get symbol 'error-conditions)
                      (memq symbol '(weir-module weir-jira weir-jira-org)))))))))

(ert-deftest weir-package-tests-the-manual-becomes-info ()
  (let ((directory (make-temp-file "weir-manual" t)))
    (unwind-protect
        (let* ((texinfo (expand-file-name "weir.texi" directory))
               (info (expand-file-name "weir.info" directory))
               (output (weir-package-tests-emacs
                        directory
                        `(progn
                           (require 'ox-texinfo)
                           (find-file ,(weir-package-tests-file "weir.org"))
                           (org-export-to-file 'texinfo ,texinfo)))))
          (should (file-exists-p texinfo))
          (should-not (string-match-p "[Ee]rror" output))
          (with-temp-buffer
            (should (equal (call-process "makeinfo" nil t nil "--output" info texinfo) 0))
            ;; There must be no warning.
            (should (equal (buffer-string) "")))
          (with-temp-buffer
            (insert-file-contents info)
            (should (search-forward "* Weir: (weir)." nil t))
            (should (search-forward "Node: Outbox and conflicts" nil t))))
      (delete-directory directory t))))

(defun weir-package-tests-emacs (home &rest forms)
  "Evaluate FORMS in an Emacs with the home directory HOME; return its output."
  (let ((process-environment
         (append (list (concat "HOME=" home) (concat "XDG_CONFIG_HOME=" home "/.config"))
                 process-environment)))
    (with-temp-buffer
      (let ((status (apply #'call-process
                           (expand-file-name invocation-name invocation-directory) nil t nil
                           "--batch" "-Q"
                           (cl-mapcan (lambda (form) (list "--eval" (prin1-to-string form)))
                                      forms))))
        (should (equal (cons status (buffer-string)) (cons 0 (buffer-string))))
        (buffer-string)))))

(defun weir-package-tests-build (package directory)
  "Build PACKAGE by its recipe in DIRECTORY; return its archive."
  (let* ((name (concat package "-" weir-version))
         (folder (expand-file-name name directory))
         (archive (concat folder ".tar"))
         (requires (if (equal package "weir")
                       '((emacs "28.1"))
                     '((emacs "28.1") (weir "0.1.0")))))
    ;; The output of the recipe builder equals the headers of the file.
    (should (string-match-p (regexp-quote (format "Package-Requires: %S" requires))
                            (weir-package-tests-text (concat package ".el"))))
    (make-directory folder)
    (dolist (file (weir-package-tests-files package))
      (copy-file (weir-package-tests-file file) (file-name-as-directory folder)))
    (with-temp-file (expand-file-name (concat package "-pkg.el") folder)
      (prin1 `(define-package ,package ,weir-version "A test" ',requires) (current-buffer)))
    (let ((default-directory directory))
      (should (equal (call-process "tar" nil nil nil "-cf" archive name) 0)))
    archive))

(ert-deftest weir-package-tests-the-packages-are-installed-in-an-emacs-without-settings ()
  (let ((home (make-temp-file "weir-home" t)))
    (unwind-protect
        (let ((output (weir-package-tests-emacs
                       home
                       '(progn (require 'package) (package-initialize))
                       `(package-install-file ,(weir-package-tests-build "weir" home))
                       `(package-install-file ,(weir-package-tests-build "weir-jira" home)))))
          ;; The package is compiled without a warning at its installation.
          (should-not (string-match-p "Warning\\|Error" output))
          (should (= (length (directory-files-recursively home "\\`weir[a-z-]*\\.elc\\'")) 7))
          ;; Another Emacs finds the commands without loading the package; then
          ;; one command loads it.
          (should
           (string-match-p
            (regexp-quote "(t t t t nil nil nil) t")
            (weir-package-tests-emacs
             home
             '(package-initialize)
             '(princ (list (autoloadp (symbol-function 'weir-jira-setup))
                           (autoloadp (symbol-function 'weir-jira))
                           (autoloadp (symbol-function 'weir-jira-outbox))
                           (autoloadp (symbol-function 'weir-browse))
                           (featurep 'weir) (featurep 'weir-jira) (process-list)))
             `(setq weir-module-file ,weir-module-file)
             '(condition-case nil (call-interactively #'weir-jira-sync)
                ;; No site is set up.
                (user-error (princ " t")))))))
      (delete-directory home t))))

(provide 'weir-package-tests)
;;; weir-package-tests.el ends here
