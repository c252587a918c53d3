;;; weir-session-tests.el --- A person at a terminal -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Another Emacs runs in a terminal that this one emulates: keys are typed,
;; and the screen is read.  If the variable WEIR_PICTURES of the environment
;; names a directory, the screens of the guide are written there as SVG.

;;; Code:

(require 'ert)
(require 'term)
(require 'weir-jira-tests)

(defvar term-height)
(defvar term-width)

(defconst weir-session-height 30 "Lines of the screen.")
(defconst weir-session-width 100 "Columns of the screen.")

(defvar weir-session-process nil "The Emacs in the terminal.")

(defun weir-session-start (home)
  "Start an Emacs in a terminal whose home directory is HOME."
  (let ((buffer (generate-new-buffer "*weir session*"))
        (start `(progn
                  (setq inhibit-startup-screen t ring-bell-function #'ignore
                        weir-module-file ,weir-module-file
                        weir-jira-sync-interval nil
                        ;; Org would be compiled in the directory HOME.
                        weir-jira--org-timer 'none)
                  (require 'weir-jira)
                  (message "ready %s" "to type"))))
    (with-current-buffer buffer
      (term-mode)
      (set 'term-height weir-session-height)
      (set 'term-width weir-session-width)
      (let ((process-environment
             (append (list "TERM=eterm-color" (concat "TERMINFO=" data-directory)
                           (concat "HOME=" home) "INSIDE_EMACS=" "LC_ALL=C.UTF-8")
                     process-environment))
            (process-connection-type t)
            (coding-system-for-read 'binary))
        (setq weir-session-process
              (start-process "weir-session" buffer
                             (expand-file-name invocation-name invocation-directory)
                             "-nw" "-Q" "-L" weir-tests-directory "--eval" (prin1-to-string start))))
      (set-process-query-on-exit-flag weir-session-process nil)
      (set-process-window-size weir-session-process weir-session-height weir-session-width)
      (set-marker (process-mark weir-session-process) (point-max))
      (set-process-filter weir-session-process #'term-emulate-terminal)
      (term-char-mode))
    (weir-session-until "ready to type")))

(defun weir-session-screen ()
  "Return the text of the screen."
  (with-current-buffer (process-buffer weir-session-process)
    (save-excursion
      (goto-char (symbol-value 'term-home-marker))
      (buffer-substring-no-properties (point) (point-max)))))

(defun weir-session-until (pattern &optional gone)
  "Wait until the screen matches PATTERN; fail after a minute.
With GONE, wait until it does not.
A screen is drawn in pieces, so old text may vanish after new text appears."
  (let ((end (+ (float-time) 60)))
    (while (eq (and gone t) (and (string-match-p pattern (weir-session-screen)) t))
      (when (> (float-time) end)
        (ert-fail (format "%s %S on the screen:\n%s"
                          (if gone "Still" "No") pattern (weir-session-screen))))
      (accept-process-output weir-session-process 0.05))))

(defun weir-session-type (&rest keys)
  "Type KEYS: texts, and symbols for keys without a letter."
  (dolist (key keys)
    (process-send-string
     weir-session-process
     (pcase key
       ('RET "\r")
       ('M-x "\ex")
       ('C-g "\C-g")
       ('C-c "\C-c")
       (_ key)))))

(defun weir-session-command (name)
  "Type the name of the command NAME."
  (weir-session-type 'M-x)
  (weir-session-until "M-x")
  (weir-session-type name 'RET))

(defconst weir-session-colours
  '(("magenta3" . "#8b008b") ("green3" . "#067a06") ("cyan3" . "#00707a") ("blue2" . "#0000c8")
    ("red3" . "#b00000") ("yellow3" . "#806600"))
  "Colours of the terminal, and those of pictures, which have a white ground.")

(defun weir-session--attribute (face key)
  "Return the attribute KEY of FACE, a list which may hold others."
  (when (consp face)
    (if (memq key face)
        (cadr (memq key face))
      (seq-some (lambda (part) (weir-session--attribute part key))
                (seq-filter #'consp face)))))

(defun weir-session--run (face text column line)
  "Return the part of a picture for TEXT with FACE at COLUMN of LINE."
  (let* ((words (flatten-tree face))
         (colour (cdr (assoc (weir-session--attribute face :foreground) weir-session-colours)))
         (inverse (weir-session--attribute face :inverse-video))
         (x (+ 8 (* column 8.4)))
         (y (+ 8 (* line 17)))
         (width (* (length text) 8.4)))
    (concat
     (when inverse
       (format "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"17\" fill=\"#444\"/>" x y width))
     (unless (string-blank-p text)
       (format
        "<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" fill=\"%s\"%s%s xml:space=\"preserve\">%s</text>"
        x (+ y 13) width
        (if inverse "#fff" (or colour "#222"))
        (if (memq 'term-bold words) " font-weight=\"bold\"" "")
        (if (memq 'term-underline words) " text-decoration=\"underline\"" "")
        (replace-regexp-in-string
         "[&<>]" (lambda (c) (cdr (assoc c '(("&" . "&amp;") ("<" . "&lt;") (">" . "&gt;"))))) text))))))

(defun weir-session-picture (name)
  "Write the screen as NAME.svg to the directory WEIR_PICTURES, if there is one."
  (when-let ((folder (getenv "WEIR_PICTURES")))
    (let ((parts nil)
          (line 0))
      (with-current-buffer (process-buffer weir-session-process)
        (save-excursion
          (goto-char (symbol-value 'term-home-marker))
          (while (and (< line weir-session-height) (not (eobp)))
            (let ((start (point)))
              (while (< (point) (line-end-position))
                (let ((end (next-single-property-change (point) 'font-lock-face nil
                                                        (line-end-position))))
                  (push (weir-session--run (get-text-property (point) 'font-lock-face)
                                           (buffer-substring-no-properties (point) end)
                                           (- (point) start) line)
                        parts)
                  (goto-char end))))
            (forward-line)
            (setq line (1+ line)))))
      (write-region
       (concat (format "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" \
font-family=\"monospace\" font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                       (+ 16 (* weir-session-width 8.4)) (+ 16 (* weir-session-height 17)))
               (mapconcat #'identity (delete "" (nreverse parts)) "\n")
               "\n</svg>\n")
       nil (expand-file-name (concat name ".svg") folder)))))

(defmacro weir-session-with (home &rest body)
  "Run BODY next to an Emacs in a terminal; HOME is its home directory."
  (declare (indent 1) (debug (symbolp body)))
  `(let ((,home (make-temp-file "weir-session" t)))
     (unwind-protect
         (progn
           (weir-session-start ,home)
           ,@body)
       (let ((buffer (process-buffer weir-session-process)))
         (delete-process weir-session-process)
         (kill-buffer buffer))
       (delete-directory ,home t))))

(ert-deftest weir-session-a-long-call-is-quit ()
  (weir-session-with home
    (weir-session-type "\e:")
    (weir-session-until "Eval:")
    (weir-session-type "(progn (weir--ensure) (message \"spinning\") (weir--debug-spin 600))" 'RET)
    (weir-session-until "^spinning")
    (weir-session-type 'C-g)
    (weir-session-until "^Quit")
    ;; The module still works.
    (weir-session-command "weir-doctor")
    (weir-session-until "Open stores")))

(ert-deftest weir-session-the-directory-of-a-store-is-completed ()
  (weir-session-with home
    (make-directory (expand-file-name "my orders" home))
    (weir-session-command "weir-browse")
    (weir-session-until "Store (directory or URL):")
    (weir-session-type (file-name-as-directory home) "my o\t")
    (weir-session-until "/my orders/")
    (weir-session-type 'RET)
    (weir-session-until "Topic +First +Last")))

(ert-deftest weir-session-jira ()
  (let ((simulator (weir-jira-tests-simulator "--issues" "40")))
    (unwind-protect
        (weir-session-with home
          (weir-session-command "weir-jira-setup")
          (weir-session-until "Address of the site: https://")
          ;; C-a C-k removes the proposed text.
          (weir-session-type "\C-a\C-k" (cdr simulator) 'RET)
          (weir-session-until "E-mail address")
          (weir-session-type 'RET)
          (weir-session-until "Keys of projects")
          (weir-session-type 'RET)
          (weir-session-until "Personal access token")
          (weir-session-type 'RET)
          (weir-session-until "40 issues .* synced")
          (weir-session-until "^  AA-[0-9]+ ")
          ;; Lists issues by JQL.
          (weir-session-type "l")
          (weir-session-until "JQL: ")
          (weir-session-type "status = Done ORDER BY key ASC" 'RET)
          (weir-session-until "issues · status = Done")
          (weir-session-until "To Do" 'gone)
          (weir-session-picture "jira-list")
          ;; Shows an issue, and the next one.
          (weir-session-type 'RET)
          (weir-session-until "^Reporter ")
          (let ((first (and (string-match "^\\([A-Z]+-[0-9]+\\)  " (weir-session-screen))
                            (match-string 1 (weir-session-screen)))))
            (should first)
            (weir-session-type "n")
            (weir-session-until (format "^\\([A-Z]+-[0-9]+\\)  \\(.\\|\n\\)*%s/browse/"
                                        (regexp-quote (cdr simulator))))
            (weir-session-type "q"))
          ;; Another user changes an issue, and then the site becomes
          ;; unreachable.
          (weir-jira-tests-post (cdr simulator) "/_sim/edit"
                                '((issue . "AA-8") (fields . ((summary . "Theirs at the site")))))
          (weir-tests-stop (car simulator))
          ;; All reads still return.
          (weir-session-type "s")
          (weir-session-until "Search: ")
          (weir-session-type "nosuchword")
          (weir-session-until "0 issues · search: nosuchword")
          (weir-session-type "\C-a\C-k" "print")
          (weir-session-until "[1-9][0-9]* issues · search: print")
          (weir-session-type 'RET)
          ;; The user edits the same issue, and the change is shown at once.
          (weir-session-command "weir-jira-visit")
          (weir-session-until "Issue: ")
          (weir-session-type "AA-8" 'RET)
          (weir-session-until "^AA-8  ")
          (weir-session-type "\e<\C-n\C-n\C-n" "e")
          (weir-session-until "Summary: ")
          (weir-session-type "\C-a\C-kMine offline" 'RET)
          (weir-session-until "^● .*summary")
          (weir-session-until "^Summary     Mine offline")
          (weir-session-picture "jira-offline")
          ;; The site is reachable again: the push finds the conflict, which is
          ;; resolved.
          (signal-process (car simulator) 'SIGCONT)
          (weir-session-until "1 need you")
          (weir-session-command "weir-jira-outbox")
          (weir-session-until "conflict +AA-8 ")
          (weir-session-picture "jira-conflict")
          (weir-session-type "t")
          (weir-session-until "Discard your change of summary")
          (weir-session-type "yes" 'RET)
          (weir-session-until "^Summary     Theirs at the site")
          (weir-session-until "●" 'gone))
      (signal-process (car simulator) 'SIGCONT)
      (delete-process (car simulator)))))

(provide 'weir-session-tests)
;;; weir-session-tests.el ends here
