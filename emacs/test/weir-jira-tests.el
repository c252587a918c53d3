;;; weir-jira-tests.el --- Tests of weir-jira.el at a simulated site -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The site is `weir jira-sim'; the variable WEIR_BINARY of the environment
;; names the command.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'imenu)
(require 'url)
(require 'org)
(require 'weir-jira)
(require 'weir-jira-doctor)
(require 'weir-jira-org)
(require 'weir-tests)

(declare-function weir--jira-size "ext:weir-module")
(declare-function weir--jira-has-operations "ext:weir-module")
(declare-function weir--jira-keys "ext:weir-module")
(declare-function weir--jira-list "ext:weir-module")
(declare-function weir--jira-row "ext:weir-module")

(defun weir-jira-tests-simulator (&rest options)
  "Start a simulated site with OPTIONS; return (PROCESS . URL)."
  (let* ((text "")
         (process (make-process
                   :name "weir-jira-sim" :noquery t :connection-type 'pipe
                   :command `(,(getenv "WEIR_BINARY") "jira-sim" "--port" "0" ,@options)
                   :filter #'ignore
                   :stderr (make-pipe-process
                            :name "weir-jira-sim-stderr" :noquery t :sentinel #'ignore
                            :filter (lambda (_ new) (setq text (concat text new)))))))
    (weir-tests-until (lambda () (string-match "\\(http://[0-9.:]+\\)\n" text)))
    (cons process (match-string 1 text))))

(defmacro weir-jira-tests-with (url options &rest body)
  "Bind URL to the address of a site with OPTIONS around BODY.
Settings and replica are in a new directory."
  (declare (indent 2) (debug (symbolp form body)))
  `(let* ((simulator (apply #'weir-jira-tests-simulator ,options))
          (,url (cdr simulator))
          (weir-jira-directory (make-temp-file "weir-jira-tests" t))
          (weir-jira-default-site nil)
          (weir-jira-sync-interval nil)
          (weir-jira-push-at-once nil)
          (inhibit-message t))
     (unwind-protect (progn ,@body)
       (weir-jira-close)
       (delete-process (car simulator))
       (dolist (buffer (buffer-list))
         (when (string-match-p "\\`\\*jira" (buffer-name buffer))
           (with-current-buffer buffer
             (set-buffer-modified-p nil))
           (kill-buffer buffer)))
       (delete-directory weir-jira-directory t))))

(defun weir-jira-tests-pulled (url &optional email)
  "Set up the site at URL for EMAIL, and wait for the first pull; return the site."
  (weir-jira-setup url (or email ""))
  (weir-jira-tests-until-pulled))

(defun weir-jira-tests-until-pulled ()
  "Wait for the first pull from the first site; return the site."
  (weir-tests-until (lambda ()
                      (and weir-jira--sites
                           (weir-jira--site-last-pull (car weir-jira--sites)))))
  (car weir-jira--sites))

(defun weir-jira-tests-sync (site)
  "Pull from SITE and wait for the end; return the failure, or nil."
  (weir-jira--pull site nil nil)
  (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
  (weir-jira--site-failure site))

(defun weir-jira-tests-post (url path data)
  "Send DATA, which becomes JSON, to PATH of the simulator at URL."
  (let ((url-request-method "POST")
        (url-request-extra-headers '(("Content-Type" . "application/json")))
        (url-request-data (encode-coding-string (json-serialize data) 'utf-8)))
    (with-current-buffer (url-retrieve-synchronously (concat url path) t)
      (prog1 (buffer-string)
        (kill-buffer)))))

(defun weir-jira-tests-rows ()
  "Return the number of lines of the buffer."
  (count-lines (point-min) (point-max)))

(ert-deftest weir-jira-tests-setup-list-and-visit ()
  (weir-jira-tests-with url '("--issues" "30")
    (let ((site (weir-jira-tests-pulled url)))
      (should-not (weir-jira--site-failure site))
      ;; A site is not a store.
      (should-error (weir-get (weir-jira--site-handle site) "t" "k"))
      (with-current-buffer (format "*jira %s*" (weir-jira--site-name site))
        (should (= (weir-jira-tests-rows) 30))
        (goto-char (point-min))
        (forward-line 3)
        (let ((key (weir-jira--key-or-error)))
          (should (string-match-p (concat "^  " key) (buffer-substring (line-beginning-position)
                                                                       (line-end-position))))
          (weir-jira-open-issue)
          (with-current-buffer weir-jira--issue-buffer
            (should (string-prefix-p (concat key "  ") (buffer-string)))
            (should (string-match-p "^\\* Description" (buffer-string)))
            (should (string-match-p "^\\* Comments (" (buffer-string)))
            (should (equal weir-jira--key key))
            (weir-jira-copy-key)
            (should (equal (current-kill 0) key))
            (weir-jira-copy-url)
            (should (equal (current-kill 0) (concat url "/browse/" key)))
            (let ((seen nil))
              (cl-letf (((symbol-function 'browse-url) (lambda (url &rest _) (setq seen url))))
                (weir-jira-browse))
              (should (equal seen (concat url "/browse/" key))))
            ;; The next issue replaces this issue in the buffer.
            (weir-jira-next)
            (should-not (equal weir-jira--key key))
            (weir-jira-previous)
            (should (equal weir-jira--key key))))))))

(ert-deftest weir-jira-tests-the-first-pull-shows-the-newest-issues-at-once ()
  (weir-jira-tests-with url '("--issues" "250")
    (weir-jira-tests-post url "/_sim/edit"
                          '((issue . "AA-7") (fields . ((summary . "Changed last")))))
    ;; From the second page on, the site answers very slowly.
    (weir-jira-tests-post url "/_sim/faults"
                          '((match . ((method . "POST") (path . "/rest/api/3/search/jql")
                                      (nth . 2) (count . 1)))
                            (fault . ((name . "slow") (ms . 600000)))))
    (weir-jira-setup url "")
    (weir-tests-until (lambda ()
                        (and weir-jira--sites
                             (weir-jira--site-stored (car weir-jira--sites)))))
    (let* ((site (car weir-jira--sites))
           (buffer (format "*jira %s*" (weir-jira--site-name site))))
      (should (= (weir-jira--site-stored site) 100))
      (should (weir-jira--site-pull site))
      (with-current-buffer buffer
        (weir-tests-until (lambda () (= (weir-jira-tests-rows) 100)))
        (should (string-match-p "syncing, 100 issues" (weir-jira--state)))
        (should (equal mode-line-process " [sync 100]"))
        (weir-jira-list "ORDER BY updated DESC" site)
        (goto-char (point-min))
        (should (equal (weir-jira--key-at-point) "AA-7"))))))

(ert-deftest weir-jira-tests-a-query-is-answered-offline ()
  (weir-jira-tests-with url '("--issues" "30")
    (let ((site (weir-jira-tests-pulled url)))
      (delete-process (car simulator))
      (weir-jira-list "status = Done ORDER BY key ASC" site)
      (let ((done (weir-jira-tests-rows)))
        (should (< 0 done 30))
        (weir-jira-list "status != Done" site)
        (should (= (weir-jira-tests-rows) (- 30 done)))
        (should (string-match-p "status != Done" (weir-jira--list-header)))
        ;; A rejected query reports the position of the fault, and the list
        ;; remains.
        (let ((error (should-error (weir-jira-list "status =" site) :type 'user-error)))
          (should (string-match-p "M-x weir-jira-ask" (cadr error))))
        (should (= (weir-jira-tests-rows) (- 30 done))))
      ;; While a pull tries to reach the site, the replica remains readable.
      (weir-jira--pull site nil nil)
      (should (string-match-p "syncing" (weir-jira--state)))
      (weir-jira-list "" site)
      (should (= (weir-jira-tests-rows) 30)))))

(ert-deftest weir-jira-tests-the-site-answers-a-query ()
  (weir-jira-tests-with url '("--issues" "30")
    (let* ((site (weir-jira-tests-pulled url))
           (buffer (format "*jira asked %s*" (weir-jira--site-name site)))
           (asked (lambda ()
                    (weir-jira-ask "project = AA ORDER BY key ASC")
                    (weir-tests-until (lambda () (get-buffer buffer)))
                    (with-current-buffer buffer
                      (should (> (weir-jira-tests-rows) 1))
                      (should (string-match-p "asked: project = AA" (weir-jira--list-header)))
                      (goto-char (point-min))
                      (should (equal (weir-jira--key-at-point) "AA-1"))
                      (revert-buffer nil t)
                      (should (> (weir-jira-tests-rows) 1))))))
      (funcall asked)
      ;; If the site is unreachable, its last answer is shown.
      (kill-buffer buffer)
      (delete-process (car simulator))
      (funcall asked)
      (with-current-buffer buffer
        (should-not (eq (plist-get weir-jira--site-answer :fresh) t))))))

(ert-deftest weir-jira-tests-a-pull-shows-changes ()
  (weir-jira-tests-with url '("--issues" "12")
    (let* ((site (weir-jira-tests-pulled url))
           (key (progn (weir-jira-list "ORDER BY key ASC" site)
                       (goto-char (point-min))
                       (weir-jira--key-or-error))))
      (weir-jira-visit key)
      (weir-jira-tests-post url "/_sim/edit" `((issue . ,key) (fields . ((summary . "Changed by another")))))
      (should-not (weir-jira-tests-sync site))
      ;; Both buffers show the change automatically.
      (with-current-buffer weir-jira--issue-buffer
        (should (string-match-p "Changed by another" (buffer-string)))
        (weir-jira-history)
        (weir-tests-until (lambda () (string-match-p "^\\* History (2" (buffer-string))))
        (should (string-match-p "^- summary: .* → Changed by another$" (buffer-string)))
        (weir-jira-history)
        (weir-tests-until (lambda () (string-match-p "^\\* History (2" (buffer-string))))
        (should (= (how-many "^\\* History" (point-min)) 1)))
      ;; The history of an issue is also shown from a list.
      (kill-buffer weir-jira--issue-buffer)
      (with-current-buffer (format "*jira %s*" (weir-jira--site-name site))
        (weir-jira--goto key)
        (weir-jira-history))
      (with-current-buffer weir-jira--issue-buffer
        (weir-tests-until (lambda () (string-match-p "^\\* History (2" (buffer-string)))))
      (with-current-buffer (format "*jira %s*" (weir-jira--site-name site))
        (should (string-match-p "Changed by another" (buffer-string)))))))

(ert-deftest weir-jira-tests-search-while-typing ()
  (weir-jira-tests-with url '("--issues" "40")
    (let ((site (weir-jira-tests-pulled url))
          (name nil)
          (word nil))
      (setq name (format "*jira search %s*" (weir-jira--site-name site)))
      (let* ((handle (weir-jira--site-handle site))
             (key (car (weir--jira-keys handle (weir--jira-list handle "") 0 1))))
        (setq word (car (split-string (plist-get (weir--jira-row handle key) :summary)))))
      (weir-jira--list-buffer name site "" :words word)
      (with-current-buffer name
        (let ((all (weir-jira-tests-rows)))
          (should (> all 0))
          (weir-jira--list-buffer name site "" :words (concat word " nosuchword"))
          (should (= (weir-jira-tests-rows) 0))
          ;; Prefixes of words match, in any case.
          (weir-jira--list-buffer name site "" :words (upcase (substring word 0 (1- (length word)))))
          (should (>= (weir-jira-tests-rows) all))
          ;; Text that looks like JQL is treated as words.
          (weir-jira--list-buffer name site "" :words "\" OR key = AA-1 \\")
          (should (= (weir-jira-tests-rows) 0)))))))

(ert-deftest weir-jira-tests-long-lists-are-filled-when-idle ()
  (weir-jira-tests-with url '("--issues" "450")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira-list "" site)
      (should (= (weir-jira-tests-rows) weir-jira--first-rows))
      (should weir-jira--fill-timer)
      ;; Batch mode has no idle time.
      (weir-jira--add-more (current-buffer))
      (should (= (weir-jira-tests-rows) 450))
      (should-not weir-jira--fill-timer)
      (let ((last (progn (goto-char (point-max)) (forward-line -1) (weir-jira--key-or-error))))
        (revert-buffer nil t)
        (weir-jira--add-more (current-buffer))
        (should (weir-jira--goto last))))))

(defun weir-jira-tests-lines ()
  "Return the rows of the buffer: the text, and the key of the issue."
  (save-excursion
    (goto-char (point-min))
    (let ((lines nil))
      (while (not (eobp))
        (push (cons (buffer-substring-no-properties (point) (line-end-position))
                    (get-text-property (1- (line-end-position)) 'weir-jira-key))
              lines)
        (forward-line))
      (nreverse lines))))

(defun weir-jira-tests-replaced (function)
  "Call FUNCTION; return the keys of the rows that were inserted meanwhile.
Check that the rows are those of a list that is filled anew."
  (let ((inhibit-read-only t))
    (put-text-property (point-min) (point-max) 'weir-jira-tests-kept t))
  (funcall function)
  (let ((lines (weir-jira-tests-lines))
        (key (weir-jira--key-at-point))
        (replaced nil))
    (save-excursion
      (goto-char (point-min))
      (while (not (eobp))
        (unless (get-text-property (1- (line-end-position)) 'weir-jira-tests-kept)
          (push (get-text-property (point) 'weir-jira-key) replaced))
        (forward-line)))
    (weir-jira--fill)
    (while weir-jira--fill-timer
      (weir-jira--add-more (current-buffer)))
    (weir-jira--goto key)
    (should (equal (weir-jira-tests-lines) lines))
    (nreverse replaced)))

(ert-deftest weir-jira-tests-a-refresh-replaces-only-rows-that-differ ()
  (weir-jira-tests-with url '("--issues" "300")
    (let* ((site (weir-jira-tests-pulled url))
           (elsewhere (lambda (key summary)
                        (weir-jira-tests-post
                         url "/_sim/edit" `((issue . ,key) (fields . ((summary . ,summary)))))
                        (should-not (weir-jira-tests-sync site)))))
      (weir-jira-list "ORDER BY key ASC" site)
      ;; The time since a change would differ from one moment to the next.
      (weir-jira-set-columns '("key" "status" "summary"))
      (while weir-jira--fill-timer
        (weir-jira--add-more (current-buffer)))
      (should (= (weir-jira-tests-rows) 300))
      (weir-jira--goto "AA-9")
      (weir-jira-mark)
      (weir-jira--goto "AA-8")
      (should-not (weir-jira-tests-replaced (lambda () (revert-buffer nil t))))
      ;; A row stays at its place, and keeps its mark; point stays at its issue.
      (should (equal (weir-jira-tests-replaced (lambda () (funcall elsewhere "AA-9" "Other")))
                     '("AA-9")))
      (should (equal weir-jira--marks '("AA-9")))
      (should (equal (weir-jira--key-or-error) "AA-8"))
      (should (equal (weir-jira-tests-replaced (lambda () (funcall elsewhere "AA-8" "Other")))
                     '("AA-8")))
      (should (equal (weir-jira--key-or-error) "AA-8"))
      ;; A row is gone.
      (weir-jira-tests-post url "/_sim/delete" '((issue . "AA-2")))
      (should-not (weir-jira-tests-replaced
                   (lambda ()
                     (weir-jira--pull site t nil)
                     (weir-tests-until (lambda () (null (weir-jira--site-pull site)))))))
      (should (= (weir-jira-tests-rows) 299))
      ;; Rows move up, and a new one is added.
      (weir-jira-sort "updated")
      (while weir-jira--fill-timer
        (weir-jira--add-more (current-buffer)))
      (should (equal (weir-jira-tests-replaced (lambda () (funcall elsewhere "AA-20" "Newest")))
                     '("AA-20")))
      (goto-char (point-min))
      (should (equal (weir-jira--key-or-error) "AA-20"))
      (should (= (length (weir-jira-tests-replaced
                          (lambda ()
                            (weir-jira--change site "create" "AA" "Task" "Made here" "")
                            (weir-tests-until
                             (lambda () (weir--jira-has-operations (weir-jira--site-handle site))))
                            (weir-tests-until
                             (lambda () (= (hash-table-count weir--callbacks) 0)))
                            (revert-buffer nil t))))
                 1))
      ;; A different order replaces all rows.
      (weir-jira-sort "key")
      (should (= (weir-jira-tests-rows) weir-jira--first-rows))
      (should weir-jira--fill-timer))))

(ert-deftest weir-jira-tests-a-narrowed-list-is-refreshed ()
  (weir-jira-tests-with url '("--issues" "220")
    (let* ((site (weir-jira-tests-pulled url))
           (narrowed (lambda (function)
                       (weir-jira-tests-replaced
                        (lambda ()
                          (goto-char (point-min))
                          (forward-line 5)
                          (save-restriction
                            (narrow-to-region (point) (line-beginning-position 5))
                            (funcall function)))))))
      (weir-jira-list "ORDER BY key ASC" site)
      (weir-jira-set-columns '("key" "status" "summary"))
      (should weir-jira--fill-timer)
      (funcall narrowed (lambda () (weir-jira--add-more (current-buffer))))
      (should (= (weir-jira-tests-rows) 220))
      (setq weir-jira--query "ORDER BY key DESC")
      (funcall narrowed (lambda () (revert-buffer nil t)))
      (should (= (weir-jira-tests-rows) 220)))))

(defun weir-jira-tests-interrupt (function)
  "Call FUNCTION, and quit when it has inserted the first text."
  (let ((quit (lambda (start end _)
                (when (< start end)
                  (signal 'quit nil)))))
    (add-hook 'after-change-functions quit nil t)
    (unwind-protect
        (should (eq (condition-case nil
                        (funcall function)
                      (quit 'interrupted))
                    'interrupted))
      (remove-hook 'after-change-functions quit t))))

(ert-deftest weir-jira-tests-the-refresh-after-an-interrupted-one-shows-all-rows ()
  (weir-jira-tests-with url '("--issues" "20")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira-list "ORDER BY key ASC" site)
      (weir-jira-set-columns '("key" "status" "summary"))
      (setq weir-jira--query "ORDER BY key DESC")
      (dolist (function (list (lambda () (revert-buffer nil t)) #'weir-jira--fill))
        (weir-jira-tests-replaced
         (lambda ()
           (weir-jira-tests-interrupt function)
           (revert-buffer nil t)))
        (should (= (weir-jira-tests-rows) 20))))))

(ert-deftest weir-jira-tests-commands-of-lists-change-no-other-buffer ()
  (let ((file (make-temp-file "weir-notes" nil ".org" "* Heading\n")))
    (unwind-protect
        (with-current-buffer (find-file-noselect file)
          (goto-char (point-max))
          (insert "not saved\n")
          (cl-letf (((symbol-function 'weir-jira--pull) #'ignore)
                    ((symbol-function 'weir-jira--current-site) #'ignore)
                    ((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
            (weir-jira-refresh)
            (dolist (call '((weir-jira-toggle-tree) (weir-jira-unmark-all) (weir-jira-edit-abort)
                            (weir-jira-mark) (weir-jira-unmark) (weir-jira-sort "key")
                            (weir-jira-set-columns ("key"))))
              (should-error (apply (car call) (cdr call)) :type 'user-error)))
          (should (equal (buffer-string) "* Heading\nnot saved\n"))
          (should (buffer-modified-p))
          (set-buffer-modified-p nil)
          (kill-buffer))
      (delete-file file))))

(ert-deftest weir-jira-tests-projects-and-trees ()
  (weir-jira-tests-with url '("--issues" "20" "--projects" "2")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira--show-projects site)
      (should (= (weir-jira-tests-rows) 2))
      (goto-char (point-min))
      (let ((key (tabulated-list-get-id)))
        (weir-jira-project-tree)
        (should (> (weir-jira-tests-rows) 0))
        (goto-char (point-min))
        (should (string-prefix-p (concat key "-") (weir-jira--key-or-error)))
        (let ((rows (weir-jira-tests-rows)))
          (weir-jira-toggle-tree)
          (should (= (weir-jira-tests-rows) rows)))))))

(ert-deftest weir-jira-tests-exports ()
  (weir-jira-tests-with url '("--issues" "5")
    ;; A spreadsheet would execute this summary.
    (weir-jira-tests-post url "/_sim/edit"
                          '((issue . "AA-1") (fields . ((summary . "=1+1, two")))))
    (let ((site (weir-jira-tests-pulled url)))
      (dolist (format '("csv" "org" "md" "json"))
        (weir-jira-list "" site)
        (weir-jira-export format)
        (should (= (weir-jira-tests-rows)
                   (cdr (assoc format '(("csv" . 6) ("org" . 7) ("md" . 7) ("json" . 5))))))
        (kill-buffer))
      (weir-jira-list "" site)
      (let ((file (expand-file-name "issues.csv" weir-jira-directory)))
        (weir-jira-export-csv file)
        (with-temp-buffer
          (insert-file-contents file)
          (should (= (weir-jira-tests-rows) 6))
          (should (search-forward ",\"'=1+1, two\"\n" nil t)))
        (write-region "old" nil file)
        (cl-letf (((symbol-function 'y-or-n-p) #'ignore))
          (should-error (weir-jira-export-csv file) :type 'file-already-exists))
        (with-temp-buffer
          (insert-file-contents file)
          (should (equal (buffer-string) "old"))))
      (should-error (weir-jira-export "pdf") :type 'weir-usage)
      (goto-char (point-min))
      (weir-jira-open-issue)
      (with-current-buffer weir-jira--issue-buffer
        (weir-jira-org-export))
      (set-buffer (window-buffer))
      (should (derived-mode-p 'org-mode))
      (kill-buffer))))

(ert-deftest weir-jira-tests-views-and-bookmarks ()
  (weir-jira-tests-with url '("--issues" "10")
    (let ((site (weir-jira-tests-pulled url))
          (weir-jira-views '(("Done" . "status = Done"))))
      (weir-jira-view "Done")
      (should (equal weir-jira--query "status = Done"))
      (let ((bookmark (weir-jira--list-bookmark)))
        (weir-jira-list "" site)
        (weir-jira-jump bookmark)
        (should (equal weir-jira--query "status = Done")))
      (weir-jira-list "" site)
      (goto-char (point-min))
      (weir-jira-open-issue)
      (let ((bookmark (with-current-buffer weir-jira--issue-buffer (weir-jira--issue-bookmark)))
            (key (buffer-local-value 'weir-jira--key (get-buffer weir-jira--issue-buffer))))
        (kill-buffer weir-jira--issue-buffer)
        (weir-jira-jump bookmark)
        (should (equal weir-jira--key key)))
      (should-error (weir-jira-view "None") :type 'user-error)
      (should-error (weir-jira-visit "NO-1") :type 'user-error))))

(ert-deftest weir-jira-tests-a-list-is-sorted-and-gets-other-columns ()
  (weir-jira-tests-with url '("--issues" "30")
    (let* ((site (weir-jira-tests-pulled url))
           (keys (lambda () (let ((found nil))
                              (goto-char (point-min))
                              (while (not (eobp))
                                (push (get-text-property (point) 'weir-jira-key) found)
                                (forward-line))
                              (nreverse found))))
           (weir-jira-views nil)
           (custom-file (make-temp-file "weir-custom")))
      (weir-jira-list "labels = red" site)
      (weir-jira-sort "key")
      (should (equal weir-jira--query "labels = red ORDER BY key ASC"))
      (let ((ascending (funcall keys)))
        (should (cdr ascending))
        (weir-jira-sort "key")
        (should (equal weir-jira--query "labels = red ORDER BY key DESC"))
        (should (equal (funcall keys) (reverse ascending))))
      ;; Times begin with the newest; another field replaces the order.
      (weir-jira-sort "updated")
      (should (equal weir-jira--query "labels = red ORDER BY updated DESC"))
      ;; A list can be sorted by every offered field.
      (dolist (field weir-jira--orders)
        (weir-jira-sort field)
        (should (> (weir-jira-tests-rows) 0)))
      ;; ORDER BY within a text is not an order.
      (should (equal (weir-jira--split-order "summary ~ \"a ORDER BY b\"  order  by key, due")
                     '("summary ~ \"a ORDER BY b\"" . "key, due")))
      (should (equal (weir-jira--split-order "order by key") '("" . "key")))
      (weir-jira-list "ORDER BY key ASC" site)
      (weir-jira-set-columns '("labels" "key"))
      (goto-char (point-min))
      (should (looking-at "  \\(red\\|green\\|blue\\) +AA-1$"))
      ;; The view keeps order and columns; a list by another query has the
      ;; default columns.
      (weir-jira-save-view "Mine")
      (let ((screen (buffer-string)))
        (weir-jira-list "ORDER BY key ASC" site)
        (should-not (equal (buffer-string) screen))
        (weir-jira-view "Mine")
        (should (equal (buffer-string) screen))
        (let ((bookmark (weir-jira--list-bookmark)))
          (weir-jira-list "" site)
          (weir-jira-jump bookmark)
          (should (equal (buffer-string) screen))))
      (should-error (weir-jira-set-columns nil) :type 'user-error)
      ;; The result of a search keeps its order.
      (setq weir-jira--words "print")
      (should-error (weir-jira-sort "key") :type 'user-error)
      (should-error (weir-jira-save-view "Search") :type 'user-error)
      (should-not (assoc "Search" weir-jira-views))
      (delete-file custom-file))))

(ert-deftest weir-jira-tests-completions-have-a-category-and-annotations ()
  (weir-jira-tests-with url '("--issues" "5")
    (let* ((site (weir-jira-tests-pulled url))
           (row (weir--jira-row (weir-jira--site-handle site) "AA-1"))
           (seen nil))
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_ collection &rest _)
                   (setq seen (completion-metadata "" collection nil))
                   (car (all-completions "AA-1" collection)))))
        (should (equal (weir-jira--read-key site "Issue: ") "AA-1"))
        (should (eq (alist-get 'category seen) 'weir-issue))
        (should (string-suffix-p (plist-get row :summary)
                                 (funcall (alist-get 'annotation-function seen) "AA-1")))
        (should (equal (car (funcall (alist-get 'affixation-function seen) '("AA-1")))
                       (list "AA-1" "  " (weir-jira--annotate (weir-jira--site-handle site)
                                                              "AA-1"))))
        (set-buffer (weir-jira--show site "AA-1"))
        (weir-jira--read-person "Assign to: ")
        (should (eq (alist-get 'category seen) 'weir-user))))))

(ert-deftest weir-jira-tests-an-issue-has-an-index-and-is-the-next-error ()
  (weir-jira-tests-with url '("--issues" "10")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira-list "ORDER BY key ASC" site)
      (let ((rows (weir-jira-tests-lines)))
        (goto-char (point-min))
        (next-error)
        (with-current-buffer weir-jira--issue-buffer
          (should (equal weir-jira--key (cdr (nth 1 rows))))
          (should (assoc "Description" (imenu--make-index-alist t))))))))

(ert-deftest weir-jira-tests-favourite-filters-become-views ()
  (weir-jira-tests-with url '("--issues" "10")
    (weir-jira-tests-pulled url)
    (let ((weir-jira-views '(("Open bugs" . "my own")))
          (custom-file (make-temp-file "weir-custom")))
      (weir-jira-import-views)
      (should (equal (cdr (assoc "Open bugs" weir-jira-views)) "my own"))
      (should (equal (cdr (assoc "Done by key" weir-jira-views)) "status = Done ORDER BY key ASC"))
      (weir-jira-import-views)
      (should (= (length weir-jira-views) 2))
      (weir-jira-import-views t)
      (should (= (length weir-jira-views) 2))
      (should (string-match-p "^issuetype = Bug" (cdr (assoc "Open bugs" weir-jira-views))))
      (weir-jira-view "Open bugs")
      (should (string-match-p "Bug" (buffer-string)))
      (delete-file custom-file))))

(ert-deftest weir-jira-tests-issues-of-a-lost-project-are-kept-hidden-or-purged ()
  (weir-jira-tests-with url '("--issues" "20" "--projects" "2")
    (let* ((site (weir-jira-tests-pulled url))
           (census (lambda ()
                     (weir-jira--pull site t nil)
                     (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
                     (should-not (weir-jira--site-failure site))))
           (shown (lambda (project)
                    (weir-jira-list "ORDER BY key ASC" site)
                    (string-match-p (concat "^  " project "-") (buffer-string)))))
      (weir-jira-tests-post url "/_sim/revoke" '((project . "AA")))
      (funcall census)
      (should (funcall shown "AA"))
      (let ((weir-jira-on-lost-access 'hide))
        (should-not (funcall shown "AA"))
        (should (funcall shown "BB"))
        (funcall census))
      (should (funcall shown "AA"))
      (let ((weir-jira-on-lost-access 'purge))
        (funcall census))
      (should-not (funcall shown "AA"))
      (should (funcall shown "BB")))))

(ert-deftest weir-jira-tests-org-stores-and-follows-links ()
  (weir-jira-tests-with url '("--issues" "10")
    (let* ((site (weir-jira-tests-pulled url))
           (name (weir-jira--site-name site))
           (org-stored-links nil)
           (org-link-search-must-match-exact-headline t))
      (weir-jira-list "ORDER BY key ASC" site)
      (goto-char (point-min))
      (let* ((key (weir-jira--key-or-error))
             (link (format "weir-jira:%s/%s" name key)))
        ;; The row of a list, and the buffer of an issue, store the same link.
        (call-interactively #'org-store-link)
        (should (equal (caar org-stored-links) link))
        (setq org-stored-links nil)
        (weir-jira-open-issue)
        (call-interactively #'org-store-link)
        (should (equal (car org-stored-links) (list link key)))
        (kill-buffer weir-jira--issue-buffer)
        ;; A link is opened and completed without the site.
        (delete-process (car simulator))
        (with-temp-buffer
          (org-mode)
          (org-link-open-from-string (format "[[%s][%s]]" link key)))
        (should (equal (buffer-local-value 'weir-jira--key (get-buffer weir-jira--issue-buffer))
                       key))
        (cl-letf (((symbol-function 'completing-read) (lambda (&rest _) key)))
          (with-temp-buffer
            (should (equal (weir-jira-org-complete) link))
            (weir-jira-org-insert-link)
            (should (equal (buffer-string) (format "[[%s][%s]]" link key)))))
        ;; A link that cannot be opened reports the reason; other buffers store
        ;; no link.
        (dolist (path (list key "" "none/AA-1" (concat name "/NO-1") (concat name "/a/b")))
          (should-error (weir-jira-org-follow path) :type 'user-error))
        (with-temp-buffer
          (should-not (weir-jira-org-store)))))))

(ert-deftest weir-jira-tests-an-issue-is-captured-in-org ()
  (weir-jira-tests-with url '("--issues" "10")
    ;; Org must not expand the parts of a summary that look like a template.
    (weir-jira-tests-post url "/_sim/edit"
                          '((issue . "AA-1")
                            (fields . ((summary . "100%^{ask}p of %t, %\\1 and \\%^g <%%(beep)>")))))
    (let* ((site (weir-jira-tests-pulled url))
           (notes (expand-file-name "notes.org" weir-jira-directory))
           (weir-jira-org-target `(file ,notes))
           (summary (plist-get (weir--jira-row (weir-jira--site-handle site) "AA-1") :summary)))
      (set-buffer (weir-jira--show site "AA-1"))
      (weir-jira-org-capture)
      (org-capture-finalize)
      (with-temp-buffer
        (insert-file-contents notes)
        (org-mode)
        (goto-char (point-min))
        ;; The agenda would evaluate the form.
        (should (looking-at (regexp-quote (format "* TODO %s\n"
                                                  (string-replace "%%(" "%% (" summary)))))
        ;; This property is needed to log clocks as worklogs.
        (should (equal (org-entry-get nil "JIRA_KEY") "AA-1"))
        (should (search-forward (format "[[weir-jira:%s/AA-1][AA-1]]" (weir-jira--site-name site)))))
      (with-temp-buffer
        (should-error (weir-jira-org-capture) :type 'user-error)))))

(ert-deftest weir-jira-tests-a-list-is-written-for-the-agenda ()
  (weir-jira-tests-with url '("--issues" "10")
    (let* ((site (weir-jira-tests-pulled url))
           (weir-jira-org-agenda-file (expand-file-name "agenda.org" weir-jira-directory))
           (org-agenda-files nil))
      (weir-jira-tests-post url "/_sim/edit"
                            '((issue . "AA-2") (fields . ((duedate . "2031-05-06")
                                                          (summary . "x <%%(beep)>")))))
      (should-not (weir-jira-tests-sync site))
      ;; Nothing is written before the command is called.
      (should-not (file-exists-p weir-jira-org-agenda-file))
      (weir-jira-list "key in (AA-1, AA-2) ORDER BY key ASC" site)
      (weir-jira-org-agenda)
      (should-not org-agenda-files)
      (with-temp-buffer
        (insert-file-contents weir-jira-org-agenda-file)
        (org-mode)
        (should (equal (org-map-entries
                        (lambda ()
                          (list (org-entry-get nil "JIRA_KEY") (org-entry-get nil "DEADLINE"))))
                       '(("AA-1" nil) ("AA-2" "<2031-05-06>"))))
        ;; The agenda would evaluate the form.
        (goto-char (point-min))
        (should (search-forward "AA-2 x <%% (beep)>" nil t)))
      ;; Clocks in the file are not lost without a question.
      (write-region "CLOCK: [2026-11-23 Mon 09:00]--[2026-11-23 Mon 10:00] =>  1:00\n" nil
                    weir-jira-org-agenda-file t 'silent)
      (cl-letf (((symbol-function 'yes-or-no-p) #'ignore))
        (should-error (weir-jira-org-agenda) :type 'user-error))
      (with-temp-buffer
        (insert-file-contents weir-jira-org-agenda-file)
        (should (search-forward "CLOCK:" nil t)))
      ;; The next list replaces the file.
      (weir-jira-list "key = AA-1" site)
      (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
        (weir-jira-org-agenda))
      (with-temp-buffer
        (insert-file-contents weir-jira-org-agenda-file)
        (should-not (search-forward "AA-2" nil t)))
      (with-temp-buffer
        (should-error (weir-jira-org-agenda) :type 'user-error)))))

(ert-deftest weir-jira-tests-the-token-comes-from-auth-source ()
  (let* ((token "s3cret-of-the-test")
         (file (make-temp-file "weir-token" nil nil token))
         (authinfo (make-temp-file "weir-authinfo")))
    (unwind-protect
        (weir-jira-tests-with url (list "--issues" "5" "--email" "me@example.com"
                                        "--token-file" file)
          (let* ((auth-sources (list authinfo))
                 (host (weir-jira--host url)))
            (with-temp-file authinfo
              (insert (format "machine %s login me@example.com password %s\n" host token)))
            (auth-source-forget-all-cached)
            (let ((site (weir-jira-tests-pulled url "me@example.com")))
              (should-not (weir-jira--site-failure site))
              (weir-jira-list "" site)
              (should (= (weir-jira-tests-rows) 5))
              ;; A rejected token gives one clear sentence, and the replica
              ;; remains readable.
              (with-temp-file authinfo
                (insert (format "machine %s login me@example.com password wrong\n" host)))
              (auth-source-forget-all-cached)
              (let ((failure (weir-jira-tests-sync site)))
                (should (eq (car failure) 'weir-auth))
                (should (string-match-p "the token" (cadr failure))))
              (weir-jira-list "" site)
              (should (= (weir-jira-tests-rows) 5))
              (should (string-match-p "refused the token" (weir-jira--state))))
            ;; The token is not in a file of the settings, a topic or a message.
            (dolist (place (directory-files-recursively weir-jira-directory ""))
              (with-temp-buffer
                (set-buffer-multibyte nil)
                (insert-file-contents-literally place)
                (should-not (search-forward token nil t))))
            (dolist (name '("*Messages*" "*weir-jira-log*"))
              (with-current-buffer (get-buffer-create name)
                (should-not (string-match-p token (buffer-string)))))))
      (delete-file file)
      (delete-file authinfo))))

(defun weir-jira-tests-output (function pattern)
  "Call FUNCTION, and wait until a message matches PATTERN; return all messages."
  (let ((output nil))
    (cl-letf (((symbol-function 'message)
               (lambda (format &rest arguments)
                 (when format
                   (push (apply #'format-message format arguments) output)))))
      (funcall function)
      (weir-tests-until (lambda ()
                          (cl-some (lambda (text) (string-match-p pattern text)) output))))
    output))

(ert-deftest weir-jira-tests-a-login-reports-missing-rights ()
  (weir-jira-tests-with url '("--issues" "3")
    (dolist (right '("ADD_COMMENTS" "DELETE_ISSUES"))
      (weir-jira-tests-post url "/_sim/deny" `((right . ,right))))
    (weir-jira-tests-output (lambda () (weir-jira-setup url ""))
                            "missing rights: ADD_COMMENTS, DELETE_ISSUES$")
    (weir-jira-tests-until-pulled)
    (weir-jira-close)
    ;; Without the right to read, no site is set up.
    (delete-directory weir-jira-directory t)
    (weir-jira-tests-post url "/_sim/deny" '((right . "BROWSE_PROJECTS")))
    (weir-jira-tests-output (lambda () (weir-jira-setup url ""))
                            "BROWSE_PROJECTS is missing.*scope read:jira-work")
    (should-not (weir-jira--names))))

(ert-deftest weir-jira-tests-a-login-with-an-expired-token-reports-its-place ()
  (let ((file (make-temp-file "weir-token" nil nil "the-new-one"))
        (authinfo (make-temp-file "weir-authinfo")))
    (unwind-protect
        (weir-jira-tests-with url (list "--issues" "3" "--email" "me@example.com"
                                        "--token-file" file)
          (let ((auth-sources (list authinfo))
                (line (format "machine %s login me@example.com password " (weir-jira--host url))))
            (with-temp-file authinfo
              (insert line "the-old-one\n"))
            (auth-source-forget-all-cached)
            (let ((output (weir-jira-tests-output
                           (lambda () (weir-jira-setup url "me@example.com"))
                           "refused the token.*auth-source has the token for me@example.com")))
              (should-not (string-match-p "the-old-one" (string-join output))))
            ;; After the token was replaced there, the same command succeeds.
            (with-temp-file authinfo
              (insert line "the-new-one\n"))
            (weir-jira-tests-output (lambda () (weir-jira-setup url "me@example.com"))
                                    "logged in")
            (weir-jira-tests-until-pulled)))
      (delete-file file)
      (delete-file authinfo))))

(ert-deftest weir-jira-tests-a-version-is-compared ()
  (weir-jira-tests-with url '("--issues" "5")
    (let* ((site (weir-jira-tests-pulled url))
           (change (lambda (summary)
                     (weir-jira-tests-post
                      url "/_sim/edit" `((issue . "AA-1") (fields . ((summary . ,summary)))))
                     (should-not (weir-jira-tests-sync site))))
           (shows (lambda (pattern)
                    (when-let ((buffer (get-buffer "*jira diff*")))
                      (with-current-buffer buffer
                        (string-match-p pattern (buffer-string)))))))
      (funcall change "Another summary")
      (with-current-buffer (weir-jira--show site "AA-1")
        (cl-letf (((symbol-function 'completing-read)
                   (lambda (_ collection &rest _)
                     ;; The oldest version is the last one.
                     (car (last (all-completions "" collection))))))
          (weir-jira-diff)
          (weir-tests-until (lambda () (funcall shows "^\\+Summary +Another summary")))))
      ;; A revert compares the current state with the same version.
      (funcall change "The newest summary")
      (should-not (funcall shows "The newest summary"))
      (with-current-buffer "*jira diff*"
        (revert-buffer))
      (weir-tests-until (lambda () (funcall shows "^\\+Summary +The newest summary")))
      (should (funcall shows "^-Summary "))
      (should-not (funcall shows "Another summary"))
      (weir-jira-close)
      (with-current-buffer "*jira diff*"
        (should-error (revert-buffer) :type 'user-error)))))

(ert-deftest weir-jira-tests-the-doctor-describes-sites ()
  (let* ((token "s3cret-of-the-test")
         (file (make-temp-file "weir-token" nil nil token))
         (authinfo (make-temp-file "weir-authinfo")))
    (unwind-protect
        (weir-jira-tests-with url (list "--issues" "5" "--email" "me@example.com"
                                        "--token-file" file)
          (let ((auth-sources (list authinfo)))
            (with-temp-file authinfo
              (insert (format "machine %s login me@example.com password %s\n"
                              (weir-jira--host url) token)))
            (auth-source-forget-all-cached)
            (weir-jira-tests-pulled url "me@example.com")
            (weir-jira-doctor)
            (weir-tests-until
             (lambda () (with-current-buffer weir-jira-doctor--buffer
                          (string-match-p "^Missing rights +none" (buffer-string)))))
            (with-current-buffer weir-jira-doctor--buffer
              (dolist (line (list "^Module  " "^Requests to +http" "^Token +auth-source$"
                                  "^Issues +5$" "^Outbox +0 changes"
                                  "^Connection +the site answered"))
                (should (string-match-p line (buffer-string))))
              (should-not (string-match-p token (buffer-string)))
              ;; A second report replaces the first one.
              (revert-buffer)
              (weir-tests-until
               (lambda () (string-match-p "^Missing rights +none" (buffer-string))))
              (should (= (how-many "^Connection " (point-min) (point-max)) 1))
              (kill-buffer))))
      (delete-file file)
      (delete-file authinfo))))

(ert-deftest weir-jira-tests-the-doctor-shows-when-a-token-expires ()
  (should (equal (weir-jira-doctor--expiry 1) "in 1 day"))
  (should (equal (weir-jira-doctor--expiry 0) "in 0 days"))
  (should (equal (weir-jira-doctor--expiry -3) "3 days ago; use M-x weir-jira-setup")))

(ert-deftest weir-jira-tests-data-center-is-read-only ()
  (let* ((token "s3cret-of-the-test")
         (file (make-temp-file "weir-token" nil nil token))
         (authinfo (make-temp-file "weir-authinfo")))
    (unwind-protect
        (weir-jira-tests-with url (list "--issues" "7" "--mode" "dc" "--token-file" file)
          (let* ((auth-sources (list authinfo))
                 (host (weir-jira--host url)))
            (with-temp-file authinfo
              (insert (format "machine %s login token password %s\n" host token)))
            (auth-source-forget-all-cached)
            (weir-jira-setup url "" nil nil nil token)
            (weir-tests-until (lambda ()
                                (and weir-jira--sites
                                     (weir-jira--site-last-pull (car weir-jira--sites)))))
            (let ((site (car weir-jira--sites)))
              (should-not (weir-jira--site-failure site))
              (should-not (weir-jira-tests-sync site))
              (weir-jira-list "" site)
              (should (= (weir-jira-tests-rows) 7))
              (weir-jira-list "assignee = currentUser()" site)
              (set-buffer (weir-jira--show site "AA-1"))
              (should (string-match-p "^\\* Description" (buffer-string)))
              ;; A command that changes something fails at once, without asking
              ;; the user.
              (cl-letf (((symbol-function 'read-string) (lambda (&rest _) (ert-fail "Asked")))
                        ((symbol-function 'completing-read) (lambda (&rest _) (ert-fail "Asked")))
                        ((symbol-function 'yes-or-no-p) (lambda (&rest _) (ert-fail "Asked"))))
                (goto-char (point-min))
                (re-search-forward "^Summary")
                (dolist (command '(weir-jira-edit weir-jira-set-field weir-jira-transition
                                   weir-jira-assign weir-jira-assign-me weir-jira-unassign
                                   weir-jira-label weir-jira-watch weir-jira-link weir-jira-create
                                   weir-jira-create-subtask weir-jira-clone weir-jira-delete
                                   weir-jira-comment weir-jira-worklog weir-jira-project-create))
                  (let ((error (should-error (call-interactively command) :type 'user-error)))
                    (should (string-match-p "only reads Jira Data Center" (cadr error)))))
                (should-not (cl-find-if (lambda (buffer)
                                          (string-match-p "jira edit" (buffer-name buffer)))
                                        (buffer-list))))
              (let ((output nil))
                (cl-letf (((symbol-function 'message)
                           (lambda (format &rest arguments)
                             (push (apply #'format-message format arguments) output))))
                  (weir-jira--change site "edit" "AA-1" "summary" "Mine")
                  (weir-tests-until
                   (lambda () (cl-some (lambda (text) (string-match-p "only reads" text)) output))))))
            (dolist (place (directory-files-recursively weir-jira-directory ""))
              (with-temp-buffer
                (set-buffer-multibyte nil)
                (insert-file-contents-literally place)
                (should-not (search-forward token nil t))))))
      (delete-file file)
      (delete-file authinfo))))

(ert-deftest weir-jira-tests-no-token-is-in-the-history-of-commands ()
  (let* ((token "s3cret-of-the-test")
         (file (make-temp-file "weir-token" nil nil token))
         (authinfo (make-temp-file "weir-authinfo"))
         (auth-sources (list authinfo))
         (weir-jira-token-store 'file)
         (command-history nil))
    (unwind-protect
        (weir-jira-tests-with url (list "--issues" "3" "--mode" "dc" "--token-file" file)
          (let ((answers (list url "" "" "")))
            (cl-letf (((symbol-function 'read-string) (lambda (&rest _) (pop answers)))
                      ((symbol-function 'read-passwd) (lambda (&rest _) token)))
              (call-interactively #'weir-jira-setup t)))
          (should-not (weir-jira--site-failure (weir-jira-tests-until-pulled)))
          (should command-history)
          (should-not (string-match-p token (prin1-to-string command-history))))
      (delete-file file)
      (delete-file authinfo))))

(ert-deftest weir-jira-tests-the-menu-has-the-keys-of-the-buffers ()
  (let ((found nil))
    (cl-labels ((walk (part)
                  (cond
                   ((vectorp part) (mapc #'walk part))
                   ((and (consp part) (plist-get (cl-find-if #'consp part) :command))
                    (let ((suffix (cl-find-if #'consp part)))
                      (push (cons (plist-get suffix :key) (plist-get suffix :command)) found)))
                   ((consp part) (mapc #'walk part)))))
      (walk (get 'weir-jira-menu 'transient--layout)))
    (should (> (length found) 40))
    (pcase-dolist (`(,key . ,command) found)
      (let ((bound (list (lookup-key weir-jira-list-mode-map key)
                         (lookup-key weir-jira-issue-mode-map key))))
        (should (memq command bound))
        ;; A key never means something else.
        (dolist (other (remq command bound))
          (should (or (null other) (numberp other)
                      (memq other '(weir-jira-export weir-jira-org-export)))))))
    ;; Each key of a buffer, except those of movement, is in the menu.
    (dolist (map (list weir-jira-list-mode-map weir-jira-common-map weir-jira-change-map))
      (map-keymap (lambda (event command)
                    (when (and (characterp event) (symbolp command)
                               (not (memq event '(?n ?p ?? ?\r ?\s))))
                      (should (member (cons (string event) command) found))))
                  (let ((own (copy-keymap map)))
                    (set-keymap-parent own nil)
                    own)))))

(ert-deftest weir-jira-tests-the-menu-fits-into-80-columns ()
  ;; A group is [LEVEL CLASS PROPERTIES PARTS]; the last part of a suffix has its properties.
  (let ((rows (get 'weir-jira-menu 'transient--layout)))
    (should rows)
    (dolist (row rows)
      (let ((width -3))
        (dolist (column (aref row 3))
          (setq width
                (+ width 3
                   (apply #'max (length (plist-get (aref column 2) :description))
                          (mapcar (lambda (suffix)
                                    (+ 3 (length (plist-get (car (last suffix)) :description))))
                                  (aref column 3))))))
        (should (<= 40 width 80))))))

(ert-deftest weir-jira-tests-a-window-does-not-scroll-when-others-change-issues ()
  (weir-jira-tests-with url '("--issues" "9" "--comments" "6")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira-list "ORDER BY key ASC" site)
      (delete-other-windows)
      (let* ((list (selected-window))
             (window (display-buffer (weir-jira--show site "AA-1")))
             (place (lambda ()
                      (with-current-buffer weir-jira--issue-buffer
                        (list (weir-jira--place (window-start window))
                              (weir-jira--place (window-point window))))))
             (before nil))
        (with-current-buffer weir-jira--issue-buffer
          (goto-char (point-min))
          (re-search-forward "^Status")
          (set-window-start window (line-beginning-position))
          (re-search-forward "^Reporter")
          (set-window-point window (point))
          (goto-char (point-min)))
        (setq before (funcall place))
        (should (eq (selected-window) list))
        (weir-jira-tests-post url "/_sim/edit"
                              '((issue . "AA-2") (fields . ((summary . "Another issue")))))
        (should-not (weir-jira-tests-sync site))
        (should (equal (funcall place) before))
        (weir-jira-tests-post url "/_sim/edit"
                              '((issue . "AA-1") (fields . ((summary . "This issue")))))
        (should-not (weir-jira-tests-sync site))
        (with-current-buffer weir-jira--issue-buffer
          (should (string-match-p "^Summary     This issue$" (buffer-string))))
        (should (equal (funcall place) before))
        (delete-other-windows)))))

(ert-deftest weir-jira-tests-another-site-is-chosen ()
  (weir-jira-tests-with url '("--issues" "3")
    (let ((first (weir-jira-tests-pulled url))
          (other (weir-jira-tests-simulator "--issues" "4")))
      (unwind-protect
          (let ((second (progn
                          (weir-jira-setup (cdr other) "")
                          (weir-tests-until (lambda () (cdr weir-jira--sites)))
                          (weir-jira-tests-until-pulled))))
            (dolist (site (list first second))
              (cl-letf (((symbol-function 'completing-read)
                         (lambda (_ names _ _ _ _ default)
                           (should (= (length names) 2))
                           (should (member default names))
                           (weir-jira--site-name site))))
                (with-temp-buffer
                  (let ((current-prefix-arg '(4)))
                    (call-interactively #'weir-jira))
                  (should (eq weir-jira--site site)))
                (with-temp-buffer
                  (call-interactively #'weir-jira-switch-site)
                  (should (eq weir-jira--site site)))
                (with-temp-buffer
                  (weir-jira)
                  (should (eq weir-jira--site site))))))
        (delete-process (car other))))))

(ert-deftest weir-jira-tests-two-sites-are-open-at-once ()
  (weir-jira-tests-with url '("--issues" "3")
    (let ((first (weir-jira-tests-pulled url))
          (other (weir-jira-tests-simulator "--issues" "4")))
      (unwind-protect
          (let ((second (progn
                          (weir-jira-setup (cdr other) "")
                          (weir-tests-until (lambda () (cdr weir-jira--sites)))
                          (weir-jira-tests-until-pulled))))
            (should-not (eq first second))
            (weir-jira--close first)
            (should-not (weir-jira-tests-sync second))
            (weir-jira-list "" second)
            (should (= (weir-jira-tests-rows) 4)))
        (delete-process (car other))))))

(ert-deftest weir-jira-tests-a-new-setup-of-an-open-site-applies-at-once ()
  (weir-jira-tests-with url '("--issues" "20")
    (let ((site (weir-jira-tests-pulled url)))
      (should-not (weir-jira--about site :projects))
      (setf (weir-jira--site-last-pull site) nil)
      (weir-jira-setup url "" nil nil '("AA"))
      (should (eq (weir-jira-tests-until-pulled) site))
      (should (equal (weir-jira--about site :projects) '("AA"))))))

(ert-deftest weir-jira-tests-a-large-removal-needs-a-confirmation ()
  (weir-jira-tests-with url '("--issues" "20")
    (let* ((site (weir-jira-tests-pulled url))
           (handle (weir-jira--site-handle site))
           (all (weir--jira-list handle ""))
           (keys (weir--jira-keys handle all 0 12))
           (asked 0))
      (set-buffer (weir-jira--show site (car keys)))
      (dolist (key keys)
        (weir-jira-tests-post url "/_sim/delete" `((issue . ,key))))
      ;; The automatic pull does not ask the user.
      (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) (setq asked (1+ asked)))))
        (weir-jira--pull site t nil)
        (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
        (should (eq (car (weir-jira--site-failure site)) 'weir-unconfirmed))
        (should-not (weir-jira-tests-sync site))
        (should (= asked 0))
        (weir-jira-sync t)
        (weir-tests-until (lambda () (and (> asked 0) (null (weir-jira--site-pull site))))))
      (should-not (weir-jira--site-failure site))
      (should (= (weir--jira-size (weir--jira-list handle "")) 8))
      ;; The header line reports that the issue is gone; then it shows the
      ;; earlier text again.
      (should (string-match-p (car keys) (eval (cadr header-line-format) t)))
      (weir-tests-until (lambda ()
                          (string-match-p "no issue" (eval (cadr header-line-format) t))))
      (let ((left (car (weir--jira-keys handle (weir--jira-list handle "") 0 1))))
        (set-buffer (weir-jira--show site left))
        (should (string-match-p "synced" (eval (cadr header-line-format) t)))))))

(ert-deftest weir-jira-tests-an-expiring-token-causes-a-warning ()
  (dolist (case `((,(format-time-string "%F" (time-add nil (* 10 86400)) t)
                   . "expires in \\(9\\|10\\) days")
                  (,(format-time-string "%F" (time-add nil (* 30 86400)) t) . nil)))
    (weir-jira-tests-with url '("--issues" "3")
      (let ((output nil))
        (cl-letf (((symbol-function 'message)
                   (lambda (format &rest arguments)
                     (push (apply #'format-message format arguments) output))))
          (weir-jira-setup url "" nil (car case))
          (weir-tests-until (lambda ()
                              (and weir-jira--sites
                                   (weir-jira--site-last-pull (car weir-jira--sites))))))
        (let ((warned (cl-some (lambda (text) (and (string-match-p "expire" text) text)) output)))
          (if (cdr case)
              (should (string-match-p (cdr case) warned))
            (should-not warned)))))))

(ert-deftest weir-jira-tests-an-emacs-that-runs-for-weeks-warns-of-an-expiring-token ()
  (let ((expires (format-time-string "%F" (time-add nil (* 10 86400)) t)))
    (weir-jira-tests-with url '("--issues" "3")
      (weir-jira-setup url "" nil expires)
      (let ((site (weir-jira-tests-until-pulled))
            (count 0))
        (cl-letf (((symbol-function 'weir-jira--send-and-pull) #'ignore)
                  ((symbol-function 'message)
                   (lambda (format &rest _)
                     (when (and format (string-match-p "expires" format))
                       (setq count (1+ count))))))
          (weir-jira--tick)
          (should (= count 0))
          ;; The last check was on another day.
          (setf (weir-jira--site-expiry-checked site) "2020-01-01")
          (weir-jira--tick)
          (weir-jira--tick)
          (should (= count 1)))))))

(defmacro weir-jira-tests-with-token (url authinfo &rest body)
  "Bind URL to a site that needs a token around BODY, AUTHINFO to an empty file.
The account is me@example.com, the token s3cret-of-the-test."
  (declare (indent 2) (debug (symbolp symbolp body)))
  `(let ((file (make-temp-file "weir-token" nil nil "s3cret-of-the-test"))
         (,authinfo (make-temp-file "weir-authinfo"))
         (weir-jira--session-tokens nil)
         (weir-jira--answers nil))
     (unwind-protect
         (weir-jira-tests-with ,url (list "--issues" "5" "--email" "me@example.com"
                                          "--token-file" file)
           (let ((auth-sources (list ,authinfo)))
             ,@body))
       (delete-file file)
       (delete-file ,authinfo))))

(defun weir-jira-tests-typed (function &rest answers)
  "Call FUNCTION as a user who types ANSWERS to its questions, in this order.
An answer is (PATTERN . TEXT): TEXT is typed if PATTERN matches the prompt."
  (cl-flet ((answer (prompt)
              (let ((next (pop answers)))
                (should (string-match-p (car next) prompt))
                (cdr next))))
    (cl-letf (((symbol-function 'read-string) (lambda (prompt &rest _) (answer prompt)))
              ((symbol-function 'read-passwd) (lambda (prompt &rest _) (answer prompt)))
              ((symbol-function 'y-or-n-p) (lambda (prompt) (answer prompt))))
      (call-interactively function))
    (should-not answers)))

(ert-deftest weir-jira-tests-a-new-token-is-stored-in-auth-source ()
  (weir-jira-tests-with-token url authinfo
    (weir-jira-tests-typed #'weir-jira-setup
                           `("Address" . ,url) '("E-mail" . "me@example.com") '("Gateway" . "")
                           '("projects" . "") '("API token" . "s3cret-of-the-test")
                           '("expires" . "not a date") '("was not a date" . "2026-13-45")
                           '("was not a date" . "2020-01-01") '("in the past" . "")
                           '("Store the token in " . t))
    (let ((site (weir-jira-tests-until-pulled)))
      (should-not (weir-jira--site-failure site))
      (with-temp-buffer
        (insert-file-contents authinfo)
        (dolist (part '("login me@example.com" "password s3cret-of-the-test"))
          (should (string-match-p part (buffer-string)))))
      (should-not weir-jira--session-tokens)
      (should-not (weir-jira-tests-sync site)))))

(ert-deftest weir-jira-tests-requests-go-to-the-gateway-and-links-to-the-site ()
  (weir-jira-tests-with-token url authinfo
    (with-temp-file authinfo
      (insert "machine acme.atlassian.net login me@example.com password s3cret-of-the-test\n"))
    (auth-source-forget-all-cached)
    (weir-jira-setup "https://acme.atlassian.net" "me@example.com" url)
    (let ((site (weir-jira-tests-until-pulled))
          (address "https://acme.atlassian.net/browse/AA-1"))
      (should-not (weir-jira--site-failure site))
      (should (equal (weir-jira--site-name site) "acme"))
      (set-buffer (weir-jira--show site "AA-1"))
      (should (string-match-p (concat "^" (regexp-quote address) "$") (buffer-string)))
      (weir-jira-copy-url)
      (should (equal (current-kill 0) address)))))

(ert-deftest weir-jira-tests-a-token-that-is-not-stored-is-kept-until-emacs-ends ()
  (weir-jira-tests-with-token url authinfo
    (weir-jira-tests-typed #'weir-jira-setup
                           `("Address" . ,url) '("E-mail" . "me@example.com") '("Gateway" . "")
                           '("projects" . "") '("API token" . "s3cret-of-the-test")
                           '("expires" . "") '("Store the token in " . nil))
    (let ((site (weir-jira-tests-until-pulled)))
      (should-not (weir-jira--site-failure site))
      (should-not (weir-jira-tests-sync site))
      (should (= (file-attribute-size (file-attributes authinfo)) 0))
      (should (equal (weir-jira-doctor--token site) "not stored; in memory until Emacs ends"))
      ;; The next Emacs has no token, and says so.
      (setq weir-jira--session-tokens nil)
      (let ((failure (weir-jira-tests-sync site)))
        (should (eq (car failure) 'weir-auth))
        (should (string-match-p "auth-source has no token for me@example.com at 127.0.0.1:.*weir-jira-setup"
                                (cadr failure))))
      (should-error (weir-jira-ask "key = AA-1") :type 'user-error)
      ;; A token that the user adds to the file counts at once.
      (with-temp-file authinfo
        (insert (format "machine %s login me@example.com password s3cret-of-the-test\n"
                        (weir-jira--host url))))
      (should-not (weir-jira-tests-sync site)))))

(ert-deftest weir-jira-tests-a-later-setup-offers-to-store-the-token-again ()
  (weir-jira-tests-with-token url authinfo
    (let ((setup (lambda (output &rest answers)
                   (weir-jira-tests-output
                    (lambda ()
                      (apply #'weir-jira-tests-typed #'weir-jira-setup
                             `("Address" . ,url) '("E-mail" . "me@example.com")
                             '("Gateway" . "") '("projects" . "") answers))
                    output)))
          (site nil))
      (funcall setup "logged in" '("API token" . "s3cret-of-the-test") '("expires" . "")
               '("Store the token in " . nil))
      (setq site (weir-jira-tests-until-pulled))
      (should (equal (weir-jira-doctor--token site) "not stored; in memory until Emacs ends"))
      ;; The token is known, so the setup does not ask for it.
      (dolist (save '(nil t))
        (setf (weir-jira--site-last-pull site) nil)
        (funcall setup "logged in" '("expires" . "") `("Store the token in " . ,save))
        (should (eq (weir-jira-tests-until-pulled) site))
        (should-not (weir-jira--site-failure site))
        (should (= (length weir-jira--session-tokens) (if save 0 1))))
      (should (equal (weir-jira-doctor--token site) "auth-source"))
      ;; A stored token is not offered again.
      (setf (weir-jira--site-last-pull site) nil)
      (funcall setup "logged in" '("expires" . ""))
      (should-not (weir-jira--site-failure (weir-jira-tests-until-pulled))))))

(ert-deftest weir-jira-tests-a-token-that-cannot-be-stored-stays-in-memory ()
  (let ((weir-jira--session-tokens (list (cons '("site" . "me") (lambda () "a token")))))
    (cl-letf (((symbol-function 'auth-source-search) (lambda (&rest _) (error "Disk full"))))
      (should-error (weir-jira--keep-secret "https://site" "me" "a token" t)))
    (should (weir-jira--session-secret "https://site" "me"))))

(ert-deftest weir-jira-tests-a-refused-token-of-this-emacs-is-asked-for-again ()
  (weir-jira-tests-with-token url authinfo
    (setq weir-jira--session-tokens
          (list (cons (cons (weir-jira--host url) "me@example.com") (lambda () "expired"))))
    (let ((output (weir-jira-tests-output
                   (lambda ()
                     (weir-jira-tests-typed #'weir-jira-setup
                                            `("Address" . ,url) '("E-mail" . "me@example.com")
                                            '("Gateway" . "") '("projects" . "")
                                            '("expires" . "") '("Store the token in " . t)))
                   "refused the e-mail address or the token; nothing was stored")))
      (should-not (string-match-p "expired\\|auth-source has" (string-join output))))
    (should (= (file-attribute-size (file-attributes authinfo)) 0))
    (weir-jira-tests-typed #'weir-jira-setup
                           `("Address" . ,url) '("E-mail" . "me@example.com") '("Gateway" . "")
                           '("projects" . "") '("API token" . "s3cret-of-the-test")
                           '("expires" . "") '("Store the token in " . t))
    (should-not (weir-jira--site-failure (weir-jira-tests-until-pulled)))))

(ert-deftest weir-jira-tests-a-rejected-token-is-not-stored ()
  (weir-jira-tests-with-token url authinfo
    (weir-jira-tests-output
     (lambda ()
       (weir-jira-tests-typed #'weir-jira-setup
                              `("Address" . ,url) '("E-mail" . "me@example.com") '("Gateway" . "")
                              '("projects" . "AA BB") '("API token" . "wrong") '("expires" . "")
                              '("Store the token in " . t)))
     "refused the e-mail address or the token; nothing was stored")
    (should-not (weir-jira--names))
    (should (= (file-attribute-size (file-attributes authinfo)) 0))
    ;; The next setup proposes the same answers as defaults.
    (let ((proposed nil))
      (cl-letf (((symbol-function 'read-string)
                 (lambda (_ &optional initial _ default &rest _)
                   (should-not initial)
                   (push default proposed)
                   (or default "")))
                ((symbol-function 'read-passwd) (lambda (&rest _) "s3cret-of-the-test"))
                ((symbol-function 'y-or-n-p) #'ignore))
        (call-interactively #'weir-jira-setup))
      (should (equal (nreverse proposed) (list url "me@example.com" nil "AA BB" nil))))
    (should-not (weir-jira--site-failure (weir-jira-tests-until-pulled)))))

(ert-deftest weir-jira-tests-a-space-replaces-an-earlier-answer-by-an-empty-one ()
  (cl-letf (((symbol-function 'read-string)
             (lambda (prompt &rest _)
               (should (equal prompt "Keys of projects (default AA; SPC: all): "))
               " ")))
    (should (equal (weir-jira--read-answer "Keys of projects" "all" "AA") "")))
  (cl-letf (((symbol-function 'read-string)
             (lambda (prompt _ _ default)
               (should (equal prompt "Keys of projects (empty: all): "))
               (should-not default)
               "")))
    (should (equal (weir-jira--read-answer "Keys of projects" "all" "") ""))))

(ert-deftest weir-jira-tests-the-log-is-read-only-and-readable ()
  (when-let ((log (get-buffer "*weir-jira-log*")))
    (kill-buffer log))
  (weir-jira-tests-with url '("--issues" "4")
    (weir-jira-tests-pulled url)
    (weir-jira-sync-log)
    (should (derived-mode-p 'special-mode))
    (should-error (insert "x") :type 'buffer-read-only)
    (revert-buffer)
    (should (eobp))
    (should (string-match-p " pulled: [0-9]+ changed, 0 gone, .*[0-9]+ requests$"
                            (buffer-string))))
  (should (equal (weir-jira--counts '(:sent 1 :conflicts 0 :rejected 0 :waiting 2 :requests 7)
                                    weir-jira--push-counts)
                 "1 sent, 0 in conflict, 2 waiting, 7 requests")))

(ert-deftest weir-jira-tests-org-is-loaded-once-when-emacs-is-idle ()
  (let ((noninteractive nil)
        (weir-jira--org-timer nil)
        (featurep (symbol-function 'featurep))
        (loads nil))
    (cl-letf (((symbol-function 'featurep)
               (lambda (feature &rest rest)
                 (and (not (eq feature 'org)) (apply featurep feature rest))))
              ((symbol-function 'run-with-idle-timer)
               (lambda (_ _ function &rest arguments)
                 (when (eq function 'require)
                   (push (car arguments) loads))
                 'timer)))
      (with-temp-buffer (weir-jira-list-mode))
      (with-temp-buffer (weir-jira-issue-mode)))
    (should (equal loads '(org)))))

(ert-deftest weir-jira-tests-a-repair-by-the-census-is-reported ()
  (weir-jira-tests-with url '("--issues" "10")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira-tests-post url "/_sim/edit" '((issue . "AA-2") (fields . ((summary . "Left out")))))
      ;; The next two queries for changes leave the issue out; then the census
      ;; compares all issues.
      (weir-jira-tests-post url "/_sim/faults"
                            '((match . ((method . "POST") (path . "/rest/api/3/search/jql")
                                        (count . 2)))
                              (fault . ((name . "missing")))))
      (should-not (weir-jira-tests-sync site))
      (weir-jira-tests-output (lambda () (weir-jira--pull site t nil))
                              "1 issues changed, 0 gone; the site had left out 1 of them before"))))

(ert-deftest weir-jira-tests-a-failed-pull-is-not-reported-as-a-sync ()
  (weir-jira-tests-with url '("--issues" "5")
    (let* ((site (weir-jira-tests-pulled url))
           (name (weir-jira--site-name site))
           (last (weir-jira--site-last-pull site)))
      (weir-jira-tests-post url "/_sim/faults" '((match . ()) (fault . ((name . "401")))))
      (should (weir-jira-tests-sync site))
      (should (equal (weir-jira--site-last-pull site) last))
      (should (>= (weir-jira--site-last-attempt site) last))
      ;; A new Emacs knows that the replica was pulled before.
      (weir-jira-close)
      (let ((opened nil))
        (weir-jira--open name (lambda (site) (setq opened site)))
        (weir-tests-until (lambda () opened))
        (weir-jira-list "" opened)
        (should (string-match-p "synced before this Emacs" (weir-jira--state)))
        (should (weir-jira-tests-sync opened))
        (should (string-match-p "synced before this Emacs.*refused" (weir-jira--state)))))))

(ert-deftest weir-jira-tests-a-pull-ends-after-its-site-was-closed ()
  (weir-jira-tests-with url '("--issues" "5")
    (let ((site (weir-jira-tests-pulled url)))
      (setf (weir-jira--site-push-wanted site) t)
      (weir-jira-close)
      (weir-jira--pulled site 'failed '(weir-auth "refused" :code "") nil)
      (should-not (weir-jira--site-push-wanted site))
      (should-not (weir-jira--site-pull site)))))

(ert-deftest weir-jira-tests-a-limit-of-the-site-has-its-time ()
  (weir-jira-tests-with url '("--issues" "5")
    (let ((site (weir-jira-tests-pulled url)))
      ;; The client does not wait so long.
      (weir-jira-tests-post url "/_sim/faults"
                            '((match . ()) (fault . ((name . "429") (retry_after . "1200")))))
      (let ((failure (weir-jira-tests-sync site)))
        (should (eq (car failure) 'weir-throttled))
        (should (= (plist-get (cddr failure) :status) 429))
        (should (= (plist-get (cddr failure) :retry-after) 1200))))))

(ert-deftest weir-jira-tests-a-failed-command-stops-no-other-that-waits ()
  (weir-jira-tests-with url '("--issues" "5")
    (let ((name (weir-jira--site-name (weir-jira-tests-pulled url)))
          (called nil))
      (weir-jira-close)
      (weir-jira--open name (lambda (_) (user-error "No such query")))
      (weir-jira--open name (lambda (_) (signal 'quit nil)))
      (weir-jira--open name (lambda (site) (setq called site)))
      (weir-tests-until (lambda () called)))))

(ert-deftest weir-jira-tests-a-buffer-of-a-closed-replica-uses-the-opened-one ()
  (weir-jira-tests-with url '("--issues" "220")
    (let* ((site (weir-jira-tests-pulled url))
           (name (weir-jira--site-name site))
           (list (progn (weir-jira-list "" site) (current-buffer)))
           (issue (weir-jira--show site "AA-1"))
           (projects (progn (weir-jira--show-projects site) (current-buffer)))
           (outbox (progn (weir-jira-outbox) (current-buffer)))
           (buffers (list list issue projects outbox)))
      (weir-jira-close)
      ;; Rows that were to be added while Emacs is idle are not an error.
      (with-current-buffer list
        (should weir-jira--fill-timer)
        (weir-jira--add-more list))
      (dolist (buffer buffers)
        (with-current-buffer buffer
          (let ((error (should-error (revert-buffer nil t) :type 'user-error)))
            (should (string-match-p "not open; M-x weir-jira" (cadr error))))))
      (weir-jira--open name #'ignore)
      (weir-tests-until (lambda () (weir-jira--site-handle (weir-jira--find name))))
      (dolist (buffer buffers)
        (with-current-buffer buffer
          (revert-buffer nil t)
          (should (eq weir-jira--site (weir-jira--find name))))))))

(ert-deftest weir-jira-tests-an-opened-replica-is-synced-at-once ()
  (weir-jira-tests-with url '("--issues" "5")
    (let* ((site (weir-jira-tests-pulled url))
           (name (weir-jira--site-name site))
           (weir-jira-sync-interval 3600)
           (weir-jira-push-at-once t)
           (queued nil))
      (weir-jira--change-then site (lambda () (setq queued t)) "edit" '("AA-1" "summary" "Later"))
      (weir-tests-until (lambda () queued))
      (weir-jira-close)
      (weir-jira--open name #'ignore)
      (let ((opened (weir-jira-tests-until-pulled)))
        (should-not (weir-jira--site-failure opened))
        (should-not (weir--jira-has-operations (weir-jira--site-handle opened)))))))

(ert-deftest weir-jira-tests-emacs-runs-while-the-site-hangs ()
  (weir-jira-tests-with url '("--issues" "20")
    (let* ((site (weir-jira-tests-pulled url))
           (beats 0)
           (heart (run-with-timer 0 0.01 (lambda () (setq beats (1+ beats))))))
      (unwind-protect
          (progn
            (weir-tests-stop (car simulator))
            (weir-jira--pull site nil nil)
            (should (weir-jira--site-pull site))
            ;; Commands return, and timers run, while the answer is pending.
            (weir-jira-list "" site)
            (should (= (weir-jira-tests-rows) 20))
            (should (string-match-p "syncing$" (weir-jira--state)))
            (cl-decf (weir-jira--site-started site) 40)
            (should (string-match-p "syncing for 4[0-9] s$" (weir-jira--state)))
            (weir-tests-until (lambda () (> beats 20)))
            (should (weir-jira--site-pull site))
            (signal-process (car simulator) 'SIGCONT)
            (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
            (should-not (weir-jira--site-failure site)))
        (cancel-timer heart)
        (signal-process (car simulator) 'SIGCONT)))))

(ert-deftest weir-jira-tests-no-command-waits-for-a-pull ()
  (weir-jira-tests-with url '("--issues" "20")
    (let* ((site (weir-jira-tests-pulled url))
           (handle (weir-jira--site-handle site))
           (set (weir--jira-list handle ""))
           (key (car (weir--jira-keys handle set 0 1))))
      (unwind-protect
          (progn
            ;; The pull sends a request and gets no answer.
            (weir-tests-stop (car simulator))
            (weir-jira--pull site nil nil)
            ;; Each function of the module that reads the replica, and the
            ;; start of each one that runs on a thread.
            (dolist (form `((weir--jira-about ,handle)
                            (weir--jira-has-operations ,handle)
                            (weir--jira-list ,handle "status = Done ORDER BY key")
                            (weir--jira-search ,handle "login" 10)
                            (weir--jira-tree ,handle "")
                            (weir--jira-visible ,handle ,set)
                            (weir--jira-keys ,handle ,set 0 20)
                            (weir--jira-rows ,handle ,set 0 20 (("key" . 10) ("summary" . 0)))
                            (weir--jira-changes ,handle ,set ,(weir--jira-list handle "") 20
                                                (("key" . 10) ("summary" . 0)))
                            (weir--jira-row ,handle ,key)
                            (weir--jira-issue ,handle ,key)
                            (weir--jira-history ,handle ,key)
                            (weir--jira-version ,handle ,key nil)
                            (weir--jira-projects ,handle)
                            (weir--jira-export ,handle ,set "csv")
                            (weir--jira-outbox ,handle nil)
                            (weir--jira-offered ,handle "fields" ,key)
                            (weir--jira-edit-base ,handle ,key)
                            (weir--jira-change ,handle "comment" (,key "text") nil)))
              (apply (car form) (cdr form)))
            ;; A function that waited for the pull would have waited until the
            ;; pull failed.
            (signal-process (car simulator) 'SIGCONT)
            (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
            (should-not (weir-jira--site-failure site)))
        (signal-process (car simulator) 'SIGCONT)))))

(provide 'weir-jira-tests)
;;; weir-jira-tests.el ends here
