;;; weir-tests.el --- Tests of weir.el with the real module -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The variable WEIR_MODULE of the environment names the module.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'weir)

(declare-function weir--debug-counts "ext:weir-module")
(declare-function weir--debug-panic "ext:weir-module")
(declare-function weir--debug-panic-task "ext:weir-module")
(declare-function weir--module-version "ext:weir-module")

(when (getenv "WEIR_MODULE")
  (setq weir-module-file (expand-file-name (getenv "WEIR_MODULE"))))

;; Far longer than any operation takes; only a hang reaches this limit.
(setq weir-timeout 60)

(defconst weir-tests-directory
  (expand-file-name (file-name-directory (locate-library "weir")))
  "Directory of the package.")

(defmacro weir-tests-with (store &rest body)
  "Bind STORE to a new store around BODY."
  (declare (indent 1) (debug (symbolp body)))
  `(let* ((directory (make-temp-file "weir-tests" t))
          (,store (weir-open directory)))
     (unwind-protect (progn ,@body)
       (weir-close ,store)
       (delete-directory directory t))))

(defun weir-tests-until (predicate)
  "Run the event loop until PREDICATE is non-nil; fail after a minute."
  (let ((end (+ (float-time) 60)))
    (while (not (funcall predicate))
      (when (> (float-time) end)
        (ert-fail "It did not come"))
      (accept-process-output nil 0.02))))

(defun weir-tests-stop (process)
  "Stop PROCESS, and wait until all its threads are stopped."
  (signal-process process 'SIGSTOP)
  (weir-tests-until (lambda () (eq (process-status process) 'stop))))

(ert-deftest weir-tests-put-get-scan-read ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (should (integerp (weir-await (weir-put store "t" "a" "eins"))))
    (weir-await (weir-put store "t" "b" "zwei é 文"))
    (weir-await (weir-append store "t" "{}"))
    (should (equal (weir-get store "t" "a") "eins"))
    (should (equal (weir-get store "t" "b") "zwei é 文"))
    (should-not (weir-get store "t" "none"))
    (should (equal (weir-scan store "t") '(("a" . "eins") ("b" . "zwei é 文"))))
    (should (equal (weir-scan store "t" :prefix "b" :limit 1) '(("b" . "zwei é 文"))))
    (let ((values (mapcar (lambda (record) (aref record 4)) (weir-read store "t"))))
      (should (equal (last values 3) '("eins" "zwei é 文" "{}"))))
    (weir-await (weir-delete store "t" "a"))
    (should-not (weir-get store "t" "a"))
    (should (equal (mapcar (lambda (topic) (aref topic 0)) (weir-topics store)) '("t")))))

(ert-deftest weir-tests-a-put-expects-the-value-that-was-read ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (let ((offset (weir-await (weir-put store "t" "k" "first" :expect 0))))
      (should-error (weir-await (weir-put store "t" "k" "lost" :expect 0)) :type 'weir-conflict)
      (should (weir-await (weir-put store "t" "k" "second" :expect offset)))
      (should-error (weir-await (weir-put store "t" "k" "lost" :expect offset))
                    :type 'weir-conflict))
    (should (equal (weir-get store "t" "k") "second"))
    (should-error (weir-put store "t" "k" "v" :expect "1"))))

(ert-deftest weir-tests-written-records-are-read-after-an-open ()
  (let ((directory (make-temp-file "weir-tests" t)))
    (unwind-protect
        (let ((store (weir-open directory)))
          (weir-await (weir-create store "t"))
          (weir-await (weir-put store "t" "k" "v"))
          (should (weir-close store))
          (should-not (weir-close store))
          (setq store (weir-open directory))
          (should (equal (weir-get store "t" "k") "v"))
          (weir-close store))
      (delete-directory directory t))))

(ert-deftest weir-tests-callbacks ()
  (weir-tests-with store
    (let (seen)
      (weir-create store "t" :callback (lambda (status _) (push status seen)))
      (weir-put store "t" "k" "v" :callback (lambda (status offset) (push (cons status offset) seen)))
      (weir-tests-until (lambda () (= (length seen) 2)))
      (should (eq (cadr seen) 'done))
      (should (eq (caar seen) 'done)))))

(ert-deftest weir-tests-an-error-in-a-callback-is-a-warning ()
  (weir-tests-with store
    (let ((warned nil))
      (cl-letf (((symbol-function 'display-warning)
                 (lambda (_ text &rest _) (setq warned text))))
        (weir-create store "t" :callback (lambda (&rest _) (error "Oops")))
        (weir-tests-until (lambda () warned)))
      (should (equal warned "Oops"))
      ;; Later results arrive.
      (should (weir-await (weir-put store "t" "k" "v"))))))

(ert-deftest weir-tests-conditions ()
  (weir-tests-with store
    (should-error (weir-await (weir-put store "absent" "k" "v")) :type 'weir-not-found)
    (should-error (weir-create store "no name!") :type 'weir-usage)
    (should-error (weir-connect "weir://127.0.0.1:1") :type 'weir-network)
    (should-error (weir-open "/dev/null/store") :type 'weir-error)
    (weir-close store)
    (should-error (weir-get store "t" "k") :type 'weir-usage)
    (should-error (weir-get nil "t" "k"))
    (should-error (weir-get store "t" 7))))

(ert-deftest weir-tests-conditions-have-properties ()
  (weir-tests-with store
    (let ((data (lambda (error) (cddr error))))
      (let ((locked (funcall data (should-error (weir-open directory) :type 'weir-locked))))
        (should (equal (plist-get locked :path) directory))
        (should (= (plist-get locked :pid) (emacs-pid))))
      (let ((failed (funcall data (should-error (weir-open "/dev/null/store") :type 'weir-storage))))
        (should (string-prefix-p "/dev/null" (plist-get failed :path)))
        ;; ENOTDIR
        (should (= (plist-get failed :os-error) 20)))
      (weir-await (weir-create store "t"))
      (let* ((offset (weir-await (weir-put store "t" "k" "v")))
             (conflict (funcall data (should-error
                                      (weir-await (weir-put store "t" "k" "w" :expect 0))
                                      :type 'weir-conflict))))
        (should (equal conflict (list :code "CONFLICT" :topic "t" :actual offset
                                      :key "k" :expected 0))))
      ;; A condition without further data has only its code.
      (should (equal (funcall data (should-error (weir-create store "no name!")
                                                 :type 'weir-usage))
                     '(:code "BAD_NAME"))))))

(ert-deftest weir-tests-a-panic-is-a-signal ()
  (weir--ensure)
  (should-error (weir--debug-panic))
  (should (weir--module-version))
  ;; A task ends with a failure, and later tasks run.
  (let ((error (should-error (weir-await (weir--expect (weir--debug-panic-task) nil))
                             :type 'weir-panic)))
    (should (string-search "asked for" (cadr error))))
  (weir-tests-with store
    (should-not (weir-query store "*" :where "$.n > 1"))))

(ert-deftest weir-tests-follow ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (let* ((seen nil)
           (follower (weir-follow store "t"
                                  (lambda (records)
                                    (dolist (record records)
                                      (push (aref record 4) seen))))))
      (dotimes (number 300)
        (weir-put store "t" "k" (number-to-string number) :callback #'ignore))
      (weir-tests-until (lambda () (equal (car seen) "299")))
      (should (equal (seq-take (reverse (seq-filter (lambda (value) (string-match-p "[0-9]" value)) seen)) 3)
                     '("0" "1" "2")))
      (should (weir-stop follower))
      (should-not (weir-stop follower))
      (weir-tests-until (lambda () (eq (gethash follower weir--callbacks 'gone) 'gone)))
      (should-not (weir-stop follower))
      (should (eq (gethash follower weir--callbacks 'gone) 'gone)))))

(ert-deftest weir-tests-writes-survive-the-end-of-the-pipe ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (weir-put store "t" "k" "v" :callback #'ignore)
    (delete-process weir--pipe)
    ;; The next write creates a new pipe.
    (weir-await (weir-put store "t" "l" "w"))
    (should (equal (weir-get store "t" "k") "v"))))

(ert-deftest weir-tests-results-are-read-at-once ()
  ;; Emacs reads the variable when it creates the pipe.
  (let ((seen 'none)
        (make (symbol-function 'make-pipe-process))
        (process-adaptive-read-buffering t))
    (weir--ensure)
    (delete-process weir--pipe)
    (cl-letf (((symbol-function 'make-pipe-process)
               (lambda (&rest arguments)
                 (setq seen process-adaptive-read-buffering)
                 (apply make arguments))))
      (weir--ensure))
    (should-not seen)))

(ert-deftest weir-tests-a-wait-ends-at-its-deadline ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    ;; A follower has no end.
    (let ((follower (weir-follow store "t" #'ignore)))
      (should-error (weir-await follower 0.01) :type 'weir-timeout)
      (should (weir-cancel follower))
      (weir-tests-until (lambda () (eq (gethash follower weir--callbacks 'gone) 'gone))))))

(ert-deftest weir-tests-a-process-of-emacs-inherits-no-file-of-a-store ()
  (skip-unless (file-directory-p "/proc/self/fd"))
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (let ((files (with-temp-buffer
                   (call-process "sh" nil t nil "-c" "ls -l /proc/$$/fd")
                   (buffer-string))))
      (should (string-search "-> " files))
      (should-not (string-search directory files)))))

(ert-deftest weir-tests-browse-and-tail ()
  (weir-tests-with store
    (weir-await (weir-create store "orders"))
    (weir-await (weir-put store "orders" "4711" "{\"state\":\"open\"}"))
    (weir-browse store)
    (should (string-match-p "orders" (buffer-string)))
    (goto-char (point-min))
    (weir-browse-tail)
    (let ((buffer (current-buffer)))
      (weir-tests-until (lambda () (string-match-p "4711" (with-current-buffer buffer (buffer-string)))))
      (weir-put store "orders" "4712" "two\nlines" :callback #'ignore)
      (weir-tests-until
       (lambda () (string-match-p "4712  two lines" (with-current-buffer buffer (buffer-string)))))
      (kill-buffer buffer))
    (kill-buffer "*weir*")))

(ert-deftest weir-tests-a-topic-is-chosen-for-a-tail-and-for-a-query ()
  (weir-tests-with store
    (weir-tests-orders store)
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_ topics &rest _)
                 (should (equal topics '("orders")))
                 "orders"))
              ((symbol-function 'read-string) (lambda (&rest _) "$.n >= 9")))
      (cl-flet ((call (command)
                  (with-temp-buffer
                    (setq weir--store store)
                    (call-interactively command))))
        (let ((buffer (call #'weir-tail)))
          (weir-tests-until
           (lambda () (string-match-p "last" (with-current-buffer buffer (buffer-string)))))
          (kill-buffer buffer))
        (let ((buffer (call #'weir-query-show)))
          (weir-tests-until
           (lambda () (equal (buffer-local-value 'header-line-format buffer) "2 results")))
          (kill-buffer buffer))))))

(defun weir-tests-browsed (place)
  "Browse the store at PLACE, which the user types; return the buffer."
  (cl-letf (((symbol-function 'completing-read)
             (lambda (_ table &rest options)
               (should (eq table #'weir--complete-store))
               (should (eq (nth 3 options) 'weir--store-history))
               place)))
    (with-temp-buffer
      (call-interactively #'weir-browse t)
      (current-buffer))))

(ert-deftest weir-tests-a-command-uses-the-store-that-is-open ()
  (weir-tests-with store
    (weir-tests-orders store)
    (let ((link (concat directory "-link"))
          (command-history nil)
          (browser nil))
      (make-symbolic-link directory link)
      (unwind-protect
          (progn
            (dolist (place (list directory (file-name-as-directory directory) link))
              (setq browser (weir-tests-browsed place))
              (should (equal (buffer-name browser) "*weir*"))
              (should (eq (buffer-local-value 'weir--store browser) store)))
            ;; The buffer that shows the store is shown again, at its topic.
            (with-current-buffer browser
              (rename-buffer "*weir of mine*"))
            (should (eq (weir-tests-browsed directory) browser))
            (should-not (get-buffer "*weir*"))
            ;; The end of a buffer does not close the store.
            (kill-buffer browser)
            (garbage-collect)
            (should (weir-get store "orders" "last"))
            ;; The history of commands does not keep the store open.
            (should command-history)
            (should-not (string-search "user-ptr" (prin1-to-string command-history)))
            ;; A store that was closed is opened again.
            (weir-close store)
            (setq browser (weir-tests-browsed directory))
            (let ((opened (buffer-local-value 'weir--store browser)))
              (should-not (eq opened store))
              (kill-buffer browser)
              (should (weir-get opened "orders" "last"))
              (should (weir-close opened))))
        (delete-file link)))))

(ert-deftest weir-tests-the-answer-for-a-store-is-completed ()
  (let ((weir--store-history '("weir://localhost:7071" "/srv/old" "orders/"))
        (default-directory (file-name-as-directory
                            (make-temp-file "weir-tests" t))))
    (unwind-protect
        (cl-flet ((all (text) (all-completions text #'weir--complete-store))
                  (boundaries (text)
                    (completion-boundaries text #'weir--complete-store nil "")))
          (make-directory "orders/2026" t)
          (write-region "" nil "ordered")
          ;; A file is no candidate.
          (should (equal (all "ord") '("orders/")))
          (should (equal (all "weir:") '("weir://localhost:7071")))
          (should (cl-subsetp weir--store-history (all "") :test #'equal))
          (should (equal (all "orders/2") '("2026/")))
          (let ((typed (expand-file-name "ord")))
            (should (equal (try-completion typed #'weir--complete-store)
                           (expand-file-name "orders/")))
            (should (equal (boundaries typed)
                           (cons (length default-directory) 0))))
          (should (equal (boundaries "weir://") '(0 . 0)))
          (should-not (all "/nonexistent/")))
      (delete-directory default-directory t))))

(ert-deftest weir-tests-an-empty-answer-opens-no-store ()
  (let ((default-directory (file-name-as-directory (make-temp-file "weir-tests" t))))
    (should-error (weir-tests-browsed "") :type 'user-error)
    (should-not (directory-files default-directory nil "\\`[^.]"))
    (delete-directory default-directory)))

(ert-deftest weir-tests-a-store-is-not-an-argument-in-the-history ()
  (weir-tests-with store
    (weir-tests-orders store)
    (let ((program (expand-file-name "../programs/prebuilt/unique.wasm" weir-tests-directory))
          (command-history nil)
          (deployed nil))
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (prompt &rest _)
                   (if (string-prefix-p "Store" prompt) directory "orders")))
                ((symbol-function 'read-string)
                 (lambda (prompt &rest _)
                   (if (string-prefix-p "Topic" prompt) "names" "")))
                ((symbol-function 'read-file-name) (lambda (&rest _) program))
                ((symbol-function 'weir--deployed) (lambda (status _) (setq deployed status))))
        (dolist (command '(weir-tail weir-query-show))
          (kill-buffer (with-temp-buffer (call-interactively command t))))
        (with-temp-buffer
          (call-interactively #'weir-deploy t))
        (weir-tests-until (lambda () deployed)))
      (should (eq deployed 'done))
      (should (member "names" (mapcar (lambda (topic) (aref topic 0)) (weir-topics store))))
      (should (equal (mapcar #'car command-history) '(weir-deploy weir-query-show weir-tail)))
      (should-not (string-search "user-ptr" (prin1-to-string command-history))))))

(ert-deftest weir-tests-a-mode-is-no-command ()
  (let ((modes nil))
    (mapatoms (lambda (symbol)
                (when (and (fboundp symbol)
                           (string-match-p "\\`weir-.*-mode\\'" (symbol-name symbol)))
                  (push symbol modes))))
    (should (memq 'weir-tail-mode modes))
    (should-not (cl-remove-if-not #'commandp modes))))

;;;; Strings at the boundary

(ert-deftest weir-tests-strings-of-every-kind ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (dolist (value (list "a" "é文🦀" (string 0 1 0) (make-string 20000 ?x) (make-string 10000 ?文)
                         (make-string 1000000 ?y)))
      (weir-await (weir-put store "t" "k" value))
      (should (equal (weir-get store "t" "k") value)))
    (should-error (weir-await (weir-put store "t" "k" (make-string 10000000 ?y)))
                  :type 'weir-rejected)
    ;; Bytes that are not UTF-8 stay bytes.
    (weir-await (weir-put store "t" "k" "\xff\xfe\x00\x80"))
    (should (equal (weir-get store "t" "k") "\xff\xfe\x00\x80"))
    (should-not (multibyte-string-p (weir-get store "t" "k")))
    ;; A multibyte string with raw bytes has no encoding.
    (should-error (weir-put store "t" "k" (string-to-multibyte "\xff")))
    ;; A short string must not contain the rest of an earlier, long string.
    (weir-await (weir-put store "t" "k" "short"))
    (should (equal (weir-get store "t" "k") "short"))
    (should-error (weir-read store "t" :limit (expt 2 70)))
    (should-error (weir-read store "t" :after -1))))

;;;; Queries and programs

(defun weir-tests-orders (store)
  "Write ten orders to STORE."
  (weir-await (weir-create store "orders"))
  (dotimes (number 10)
    (weir-put store "orders" (format "k%d" (% number 4))
              (format "{\"n\":%d,\"even\":%s}" number (if (= 0 (% number 2)) "true" "false"))
              :callback #'ignore))
  (weir-await (weir-put store "orders" "last" "{\"n\":10,\"even\":true}")))

(ert-deftest weir-tests-query ()
  (weir-tests-with store
    (weir-tests-orders store)
    (should (equal (weir-query store "orders" :where "$.even==true" :select "$.n")
                   '("0" "2" "4" "6" "8" "10")))
    (should (equal (weir-query store '("orders") :order-by "$.n desc" :select "$.n" :limit 2)
                   '("10" "9")))
    (should (equal (weir-query store "orders" :select "count" :where "$.n > 100") '("0")))
    (should (= (length (weir-query store "orders" :latest t)) 5))
    (should-error (weir-query store "orders" :where "$.n >") :type 'weir-usage)
    (should-error (weir-query store "absent") :type 'weir-not-found)
    (let (statuses rows)
      (weir-query store "orders"
                  :callback (lambda (status value)
                              (push status statuses)
                              (when (eq status 'part)
                                (setq rows (append rows value)))))
      (weir-tests-until (lambda () (memq 'done statuses)))
      (should (= (length rows) 11))
      (should (eq (car statuses) 'done)))
    (should (= (hash-table-count weir--parts) 0))
    (should (= (hash-table-count weir--results) 0))))

(ert-deftest weir-tests-a-query-finds-a-text ()
  (weir-tests-with store
    (weir-await (weir-create store "notes"))
    (dolist (title '("a printer" "a plotter"))
      (weir-await (weir-append store "notes" (format "{\"title\":\"%s\"}" title))))
    (should (equal (weir-query store "notes" :where "search($.title, '[Pp]rinter')"
                               :select "$.title")
                   '("\"a printer\"")))))

(ert-deftest weir-tests-query-buffer ()
  (weir-tests-with store
    (weir-tests-orders store)
    (let ((buffer (weir-query-show store "orders" :where "$.n >= 9")))
      (weir-tests-until
       (lambda () (equal (buffer-local-value 'header-line-format buffer) "2 results")))
      (should (string-match-p "\"n\":9" (with-current-buffer buffer (buffer-string))))
      (kill-buffer buffer))
    (let ((buffer (weir-query-show store "orders" :where "oops(")))
      (weir-tests-until
       (lambda () (not (equal (buffer-local-value 'header-line-format buffer) "running"))))
      ;; A % in the text of an error is shown as it is.
      (with-current-buffer buffer
        (weir--query-insert buffer 'failed '(weir-usage "50% of it"))
        (should (equal header-line-format "50%% of it")))
      (kill-buffer buffer))))

(ert-deftest weir-tests-a-query-and-a-tail-are-reverted ()
  (weir-tests-with store
    (weir-tests-orders store)
    (let* ((query (weir-query-show store "orders" :where "$.n >= 9"))
           (tail (weir-tail store "orders"))
           (shows (lambda (buffer pattern)
                    (with-current-buffer buffer
                      (string-match-p pattern (buffer-string)))))
           (rows (lambda ()
                   (with-current-buffer tail
                     (count-lines (point-min) (point-max)))))
           (before nil))
      (weir-tests-until
       (lambda () (equal (buffer-local-value 'header-line-format query) "2 results")))
      (weir-await (weir-put store "orders" "k" "{\"n\":11}"))
      (weir-tests-until (lambda () (funcall shows tail "\"n\":11")))
      (setq before (funcall rows))
      ;; The results of the first of two runs are not added.
      (dolist (buffer (list query query tail tail))
        (with-current-buffer buffer
          (revert-buffer)
          (should (= (buffer-size) 0))))
      (weir-tests-until
       (lambda () (equal (buffer-local-value 'header-line-format query) "3 results")))
      (weir-tests-until (lambda () (funcall shows tail "\"n\":11")))
      (weir-await (weir-put store "orders" "k" "{\"n\":12}"))
      (weir-tests-until (lambda () (funcall shows tail "\"n\":12")))
      (should (= (funcall rows) (1+ before)))
      (kill-buffer query)
      (kill-buffer tail)
      (weir-tests-until (lambda () (= (nth 1 (weir--debug-counts)) 0))))))

(ert-deftest weir-tests-deploy ()
  (weir-tests-with store
    (let ((program (expand-file-name "../programs/prebuilt/unique.wasm" weir-tests-directory)))
      (weir-await (weir-deploy store "names" program))
      (should (weir-await (weir-put store "names" "k" "first")))
      (let ((error (should-error (weir-await (weir-put store "names" "k" "second"))
                                 :type 'weir-rejected)))
        (should (equal (plist-get (cddr error) :topic) "names"))
        (should (string-search (plist-get (cddr error) :reason) (cadr error))))
      (should (equal (weir-get store "names" "k") "first"))
      ;; The second call replaces the program.
      (weir-await (weir-deploy store "names" program))
      (should-error (weir-await (weir-put store "names" "k" "second")) :type 'weir-rejected)
      (should-error (weir-await (weir-deploy store "t" "/nonexistent.wasm")) :type 'weir-not-found)
      (should-error (weir-await
                     (weir-deploy store "t" (expand-file-name "weir.el" weir-tests-directory)))
                    :type 'weir-rejected))))

;;;; Cancelling

(ert-deftest weir-tests-a-write-that-waits-is-cancelled ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (let ((end (+ (float-time) 60))
          (attempt 0)
          (cancelled nil))
      ;; On a busy machine, all writes can be executed before the first cancel.
      (while (not (memq t cancelled))
        (should (< (float-time) end))
        (setq attempt (1+ attempt))
        (let* ((key (lambda (number) (format "%d-%04d" attempt number)))
               (ids (mapcar (lambda (number) (weir-put store "t" (funcall key number) "v"))
                            (number-sequence 0 499)))
               (numbers (number-sequence 400 499)))
          (setq cancelled (mapcar (lambda (number) (weir-cancel (nth number ids))) numbers))
          (cl-mapc (lambda (number stopped)
                     (if stopped
                         (should-error (weir-await (nth number ids)) :type 'weir-cancelled)
                       (should (weir-await (nth number ids))))
                     (should (eq (null (weir-get store "t" (funcall key number))) stopped)))
                   numbers cancelled)
          (dotimes (number 400)
            (should (weir-await (nth number ids))))
          (should-not (weir-cancel (car ids))))))))

(ert-deftest weir-tests-a-query-is-cancelled ()
  (weir-tests-with store
    (weir-tests-orders store)
    (let* ((ended nil)
           (id (weir-query store "orders"
                           :callback (lambda (status value)
                                       (unless (eq status 'part)
                                         (setq ended (cons status value)))))))
      (let ((stopped (weir-cancel id)))
        (weir-tests-until (lambda () ended))
        (should (equal (eq (car ended) 'failed) stopped))
        (when stopped
          (should (eq (cadr ended) 'weir-cancelled)))))
    (weir-tests-until (lambda () (= (nth 1 (weir--debug-counts)) 0)))))

;;;; A server

(defmacro weir-tests-served (url &rest body)
  "Bind URL to the address of a new server around BODY."
  (declare (indent 1) (debug (symbolp body)))
  `(let* ((directory (make-temp-file "weir-served" t))
          (text "")
          (server (make-process
                   :name "weir-serve" :noquery t :connection-type 'pipe
                   :command (list (getenv "WEIR_BINARY") "serve" "--http" "off" "--native"
                                  "127.0.0.1:0" "--at" (expand-file-name "store" directory))
                   :filter (lambda (_ new) (setq text (concat text new)))
                   :stderr (make-pipe-process
                            :name "weir-serve-says" :noquery t :sentinel #'ignore
                            :filter (lambda (_ new) (setq text (concat text new)))))))
     (unwind-protect
         (progn
           (weir-tests-until (lambda () (string-match "\\(weir://[0-9.:]+\\)\n" text)))
           (let ((,url (match-string 1 text)))
             ,@body))
       (delete-process server)
       (delete-directory directory t))))

(ert-deftest weir-tests-a-server-is-used-like-a-store ()
  (weir-tests-served url
    (let (seen store)
      (should (integerp (weir-connect url :callback (lambda (status value)
                                                      (setq seen status store value)))))
      (should-not seen)
      (weir-tests-until (lambda () seen))
      (should (eq seen 'done))
      (weir-tests-orders store)
      (should (equal (weir-get store "orders" "last") "{\"n\":10,\"even\":true}"))
      (should (= (length (weir-scan store "orders")) 5))
      (should (= (length (seq-filter (lambda (record) (eq (aref record 2) 'PUT))
                                     (weir-read store "orders")))
                 11))
      (should (equal (aref (car (weir-topics store)) 0) "orders"))
      (should (equal (weir-query store "orders" :select "count") '("11")))
      (should-error (weir-get store "absent" "k") :type 'weir-not-found)
      (weir-close store))
    (let ((store (weir-connect url)))
      (should (weir-get store "orders" "last"))
      (should (weir-close store)))))

(ert-deftest weir-tests-a-failed-connection-calls-its-callback ()
  (let (seen)
    (weir--ensure)
    (weir-connect "weir://127.0.0.1:1" :callback (lambda (status value) (setq seen (cons status value))))
    (weir-tests-until (lambda () seen))
    (should (eq (car seen) 'failed))
    (should (eq (cadr seen) 'weir-network))))

;;;; The end of Emacs

(defvar weir-tests-options nil "Further options of `weir-tests-child'.")

(defun weir-tests-child (&rest forms)
  "Evaluate FORMS in another Emacs with the package; return (STATUS . OUTPUT)."
  (with-temp-buffer
    (let ((status (apply #'call-process
                         (expand-file-name invocation-name invocation-directory) nil t nil
                         `(,@weir-tests-options
                           "-Q" "--batch" "-L" ,(file-name-directory (locate-library "weir"))
                           "--eval" ,(prin1-to-string
                                      `(progn (require 'weir)
                                              (setq weir-module-file ,weir-module-file)
                                              ,@forms))))))
      (cons status (buffer-string)))))

(ert-deftest weir-tests-the-assertions-of-emacs-hold ()
  ;; Emacs aborts with a message if a value is used on another thread, after its
  ;; call, or while an exit is pending.
  (let ((directory (make-temp-file "weir-tests" t))
        (weir-tests-options '("--module-assertions"))
        (weir-timeout 60))
    (unwind-protect
        (should
         (equal
          (weir-tests-child
           `(let* ((weir-timeout 60)
                   (store (weir-open ,directory))
                   (seen 0)
                   (follower nil))
              (weir-await (weir-create store "t"))
              (setq follower (weir-follow store "t"
                                          (lambda (records) (setq seen (+ seen (length records))))))
              (dotimes (number 20)
                (weir-put store "t" (format "k%d" number) (format "{\"n\":%d}" number)
                          :callback #'ignore)
                (garbage-collect))
              (weir-await (weir-put store "t" "last" "{\"n\":\"\u65e5\"}"))
              (while (< seen 21)
                (accept-process-output nil 0.05))
              (weir-stop follower)
              (princ (list (length (weir-query store "t" :where "$.n>9"))
                           (length (weir-scan store "t" :prefix "k"))
                           (string-search "\u65e5" (weir-get store "t" "last"))))
              ;; Calls that signal an error, with invalid handles and strings.
              (dolist (bad (list (lambda () (weir-get 5 "t" "k")) (lambda () (weir-get nil "t" "k"))
                                 (lambda () (weir-get store "no" "k"))
                                 (lambda () (weir-get store "\xff" "k"))
                                 (lambda () (weir-read store "t" :after (expt 2 80)))
                                 (lambda () (weir-query store "t" :where "$$$"))
                                 (lambda () (weir-close store) (weir-get store "t" "k"))))
                (condition-case nil (funcall bad) (error (princ ".")))
                (garbage-collect))))
          '(0 . "(10 20 6).......")))
      (delete-directory directory t))))

(ert-deftest weir-tests-a-write-is-executed-at-the-end-of-emacs ()
  (let ((directory (make-temp-file "weir-tests" t)))
    (unwind-protect
        (progn
          (should (equal (car (weir-tests-child
                               `(let ((store (weir-open ,directory)))
                                  (weir-await (weir-create store "t"))
                                  (weir-follow store "t" #'ignore)
                                  (weir-put store "t" "k" "v" :callback #'ignore))))
                         0))
          (let ((store (weir-open directory)))
            (should (equal (weir-get store "t" "k") "v"))
            (weir-close store)))
      (delete-directory directory t))))

(ert-deftest weir-tests-a-shutdown-closes-all-stores ()
  (let ((directory (make-temp-file "weir-tests" t)))
    (unwind-protect
        (should (equal (weir-tests-child
                        `(let ((store (weir-open ,directory)))
                           (weir-await (weir-create store "t"))
                           (weir-follow store "t" #'ignore)
                           (weir--at-exit)
                           (princ (list (nth 0 (weir--debug-counts)) (nth 1 (weir--debug-counts))))
                           (princ (condition-case nil (weir-get store "t" "k") (weir-usage 'closed)))))
                       '(0 . "(0 0)closed")))
      (delete-directory directory t))))

(ert-deftest weir-tests-an-unsupported-emacs-is-reported ()
  (dolist (case '(((setq module-file-suffix nil) . "loads no modules; use Emacs 28\\.1")
                  ((setq emacs-version "27.2") . "This is Emacs 27\\.2; .* needs Emacs 28\\.1")))
    (let ((child (weir-tests-child (car case)
                                   '(condition-case error (weir-open "/tmp")
                                      (user-error (princ (cadr error)))))))
      (should (equal (car child) 0))
      (should (string-match-p (cdr case) (cdr child))))))

(ert-deftest weir-tests-a-failed-load-of-the-module-is-reported ()
  (let ((file (make-temp-file "weir-module" nil ".so" "no module")))
    (unwind-protect
        (let ((output (cdr (weir-tests-child
                            `(setq weir-module-file ,file)
                            '(condition-case error (weir-open "/tmp")
                               (user-error (princ (cadr error))))))))
          (should (string-match-p "does not load in Emacs .*28\\.1" output)))
      (delete-file file)))
  (let ((output (cdr (weir-tests-child
                      '(setq weir-module-file nil weir-module-directory "/nonexistent/")
                      '(condition-case error (weir-open "/tmp")
                         (user-error (princ (cadr error))))))))
    (should (string-match-p "no weir-module\\.so in /nonexistent/, .*M-x weir-module-install" output))))

(ert-deftest weir-tests-a-missing-module-is-reported-before-the-questions ()
  (dolist (command '(weir-browse weir-jira-setup))
    (let ((output (cdr (weir-tests-child
                        '(require 'weir-jira)
                        '(setq weir-module-file nil weir-module-directory "/nonexistent/")
                        `(condition-case error (call-interactively #',command)
                           (user-error (princ (cadr error))))))))
      (should (string-match-p "no weir-module\\.so in /nonexistent/" output))
      (should-not (string-match-p "directory or URL\\|Address of the site" output)))))

(ert-deftest weir-tests-a-module-of-another-version-is-rejected-each-time ()
  (should (equal (weir-tests-child
                  '(defconst weir-version "9.9.9")
                  '(dotimes (_ 2)
                     (condition-case error (weir-open "/tmp")
                       (user-error (princ (cadr error)) (terpri)))))
                 (cons 0 (apply #'concat
                                (make-list 2 (concat "The file weir.el has version 9.9.9, the module "
                                                     weir-version
                                                     "; install both of one version\n")))))))

(ert-deftest weir-tests-a-store-is-opened-only-once ()
  (weir-tests-with store
    (let ((error (should-error (weir-open directory) :type 'weir-locked)))
      (should (string-match-p "already open in this Emacs" (cadr error))))))

(ert-deftest weir-tests-the-module-is-loaded-twice ()
  (let ((directory (make-temp-file "weir-tests" t)))
    (unwind-protect
        (should (equal (weir-tests-child
                        '(weir--ensure)
                        '(module-load weir-module-file)
                        `(let ((store (weir-open ,directory)))
                           (weir-await (weir-create store "t") 60)
                           (module-load weir-module-file)
                           (weir-await (weir-put store "t" "k" "v") 60)
                           (princ (weir-get store "t" "k"))
                           (weir-close store)))
                       '(0 . "v")))
      (delete-directory directory t))))

(ert-deftest weir-tests-loading-has-no-side-effects ()
  (should (equal (weir-tests-child
                  '(princ (list (fboundp 'weir--open) (process-list)
                                (memq 'weir--at-exit kill-emacs-hook))))
                 '(0 . "(nil nil nil)"))))

(ert-deftest weir-tests-an-open-store-is-read-by-another-process ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (weir-await (weir-put store "t" "k" "v"))
    ;; The bytes of a topic depend on the time between its records.
    (let ((output (weir-tests-child
                   `(princ (condition-case nil (weir-open ,directory) (weir-locked 'locked)))
                   `(princ (weir-topics (weir-open ,directory :readonly t))))))
      (should (equal (car output) 0))
      (should (string-match-p "\\`locked(\\[t 1 2 1 [0-9]+\\])\\'" (cdr output))))))

(ert-deftest weir-tests-the-guide-runs ()
  (let* ((home (make-temp-file "weir-guide" t))
         (guide (expand-file-name "../docs/guide/emacs.md" weir-tests-directory))
         (process-environment (cons (concat "HOME=" home) process-environment))
         (forms nil))
    (with-temp-buffer
      (insert-file-contents guide)
      (while (re-search-forward "^```elisp\n" nil t)
        (let ((end (save-excursion (re-search-forward "^```$") (match-beginning 0))))
          (while (progn (skip-chars-forward " \n") (< (point) end))
            (push (read (current-buffer)) forms)
            (when (looking-at " *;.*")
              (goto-char (match-end 0)))))))
    (setq forms (nreverse forms))
    (should (member '(weir-get store "orders" "4711") forms))
    (unwind-protect
        (should (equal (weir-tests-child
                        `(setenv "HOME" ,home)
                        `(progn
                           ,@(mapcar (lambda (form)
                                       (if (memq (car form) '(weir-get weir-query))
                                           `(princ ,form)
                                         form))
                                     forms)))
                       '(0 . "{\"state\":\"open\"}({\"state\":\"open\"})")))
      (delete-directory home t))))

(ert-deftest weir-tests-doctor ()
  (weir-doctor)
  (with-current-buffer "*weir doctor*"
    (dotimes (_ 2)
      (should (string-match-p (regexp-quote (concat "Module         " weir-version))
                              (buffer-string)))
      (let ((inhibit-read-only t))
        (erase-buffer))
      (revert-buffer))
    (kill-buffer)))

(ert-deftest weir-tests-a-record-is-shown-formatted ()
  (weir-tests-with store
    (weir-tests-orders store)
    (let ((buffer (weir-tail store "orders")))
      (weir-tests-until
       (lambda () (string-match-p "last" (with-current-buffer buffer (buffer-string)))))
      (with-current-buffer buffer
        (goto-char (point-min))
        (search-forward "last")
        (weir-show-record))
      (with-current-buffer "*weir record*"
        (let ((text (buffer-string))
              (said nil))
          (should (string-match-p "\"even\": true" text))
          ;; The command g reports why the record stays as it is.
          (cl-letf (((symbol-function 'message)
                     (lambda (&rest arguments) (setq said (apply #'format arguments)))))
            (revert-buffer))
          (should (string-match-p "a record never changes" said))
          (should (equal (buffer-string) text))))
      (kill-buffer "*weir record*")
      (kill-buffer buffer))))

(ert-deftest weir-tests-a-line-of-a-large-value-is-cut ()
  (let* ((value (make-string 3000000 ?x))
         (line (weir--line (vector 7 0 'put "k" value))))
    (should (< (length line) 101000))
    (should (string-suffix-p "x…\n" line))
    ;; The record is whole.
    (should (equal (aref (get-text-property 0 'weir-record line) 4) value))
    (with-temp-buffer
      (weir-query-mode)
      (weir--query-insert (current-buffer) 'part (list value "short"))
      (should (< (buffer-size) 101000))
      (should (string-suffix-p "x…\nshort\n" (buffer-string))))))

(ert-deftest weir-tests-handles-are-freed ()
  (weir-tests-until
   (lambda ()
     (garbage-collect)
     (pcase-let ((`(,_ ,followers ,_) (weir--debug-counts)))
       (= followers 0))))
  (let ((before (car (weir--debug-counts)))
        (directory (make-temp-file "weir-tests" t)))
    (dotimes (_ 20)
      (weir-close (weir-open directory)))
    (garbage-collect)
    (should (= (car (weir--debug-counts)) before))
    (delete-directory directory t)))

(ert-deftest weir-tests-an-installed-module-is-complete ()
  (let* ((weir-module-directory (make-temp-file "weir-tests" t))
         (built (make-temp-file "weir-built" nil nil "a module"))
         (weir-module-file nil))
    (unwind-protect
        (let ((inhibit-message t)
              (target (weir-module-install built)))
          (should (equal (weir--module-path) target))
          (should (equal (directory-files weir-module-directory nil "\\`[^.]")
                         (list (file-name-nondirectory target))))
          (let ((weir-source-directory weir-module-directory))
            (should-error (weir-module-compile) :type 'user-error)))
      (delete-file built)
      (delete-directory weir-module-directory t))))

(provide 'weir-tests)
;;; weir-tests.el ends here
