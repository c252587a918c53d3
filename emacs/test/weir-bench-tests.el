;;; weir-bench-tests.el --- The benchmarks run, and their answers are right -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; One short round of each experiment; the tests do not check times.

;;; Code:

(require 'ert)
(require 'weir-bench)
(require 'weir-lab-peer)
(require 'weir-tests)

(declare-function weir--bench-call "ext:weir-module")
(declare-function weir--bench-make "ext:weir-module")
(declare-function weir--bench-next "ext:weir-module")
(declare-function weir--bench-notes "ext:weir-module")
(declare-function weir--bench-notes-loop "ext:weir-module")
(declare-function weir--bench-repeat "ext:weir-module")
(declare-function weir--bench-sum "ext:weir-module")
(declare-function weir--bench-take "ext:weir-module")

(ert-deftest weir-bench-tests-rows-are-json ()
  (weir--ensure)
  (let* ((process-environment (append '("WEIR_BENCH_ROUNDS=1" "WEIR_BENCH_MS=0")
                                      process-environment))
         (text (with-output-to-string
                 (weir-bench--about)
                 (weir-bench-call)
                 (weir-bench-json)))
         (rows (mapcar #'json-parse-string (split-string text "\n" t))))
    (should (= (length rows) (+ 1 7 36)))
    (dolist (row (cdr rows))
      (should (numberp (gethash "min_ns" row)))
      (should (gethash "column" row)))))

(ert-deftest weir-bench-tests-answers-are-correct ()
  (weir--ensure)
  (should (= (weir--bench-next 41) 42))
  (should (= (weir--bench-take (make-string 20000 ?R)) 20000))
  (should (= (weir--bench-sum "RRR") (* 3 ?R)))
  (should (= (weir-bench--sum (weir--bench-make 3)) (* 3 ?R)))
  (should (= (weir--bench-call 5 #'weir--bench-sum) (* 5 ?R))))

(ert-deftest weir-bench-tests-contender-of-the-lab-answers ()
  (weir--ensure)
  (let ((weir-lab--inputs (make-hash-table :test 'equal)))
    (dolist (way '("to-lisp-read" "to-rust-read" "back-and-forth" "rust-alone"))
      (should (equal (weir-lab--answer (concat "load\t0\twork=string\tsize=3\tway=" way)) "ok"))
      (should (equal (weir-lab--answer "check\t0") "answer\t00000000000000f6\tf6\t0\t0"))
      (should (string-match-p "\\`time\t[0-9]+\t[0-9]+\t3d8\\'" (weir-lab--answer "run\t0\t4"))))
    (dolist (way '("module" "native-hash" "native-alist" "json-el"))
      (should (equal (weir-lab--answer (concat "load\t1\twork=json\tsize=2\tway=" way)) "ok"))
      (should (equal (weir-lab--answer "check\t1") "answer\t0000000000001eef\t1eef\t0\t0")))
    (should-error (weir-lab--answer "load\t2\twork=string\tway=nobody"))
    (should-not (weir-lab--answer "quit"))))

(ert-deftest weir-bench-tests-http-clients-agree ()
  (weir--ensure)
  (let* ((server (weir-bench--server))
         (url (concat (car server) "/notes"))
         (wanted '("note 0" "note 1" "note 2")))
    (unwind-protect
        (progn
          (dolist (get '(weir-bench--get-socket weir-bench--get-url))
            (should (equal (funcall get url) wanted))
            (should (equal (weir--bench-repeat (lambda () (funcall get url)) 2) wanted)))
          (when (executable-find "curl")
            (should (equal (weir-bench--get-curl url) wanted)))
          (dolist (fresh '(nil t))
            (should (equal (weir--bench-notes url fresh) wanted))
            (should (= (weir--bench-notes-loop url 5 fresh 1) 15))
            (should (= (weir--bench-notes-loop url 5 fresh 4) 15)))
          (should-error (weir--bench-notes (concat (car server) "/") nil) :type 'weir-protocol)
          (let* ((process-environment
                  (append (list "WEIR_BENCH_ROUNDS=1" "WEIR_BENCH_MS=0" "WEIR_BENCH_GETS=2"
                                "WEIR_BENCH_REMOTE_GETS=1"
                                ;; Without the delay, because the test checks
                                ;; the rows, not the times.
                                (format "WEIR_BENCH_NOTES=%s %s" (car server) (car server)))
                          process-environment))
                 (text (with-output-to-string (weir-bench-http)))
                 (rows (mapcar #'json-parse-string (split-string text "\n" t))))
            (should (= (length rows) (+ 12 12 1)))
            (dolist (row rows)
              (should (or (gethash "skipped" row) (numberp (gethash "min_ns" row)))))))
      (weir-bench--close-socket)
      (delete-process (nth 2 server)))))

(ert-deftest weir-bench-tests-bars-have-a-row-each ()
  (let* ((process-environment (append '("WEIR_BENCH_ISSUES=30" "WEIR_BENCH_ROUNDS=1"
                                        "WEIR_BENCH_MS=0")
                                      process-environment))
         (text (with-output-to-string (weir-bench-bars)))
         (rows (mapcar #'json-parse-string (split-string text "\n" t)))
         (of (lambda (experiment)
               (cl-remove-if-not (lambda (row) (equal (gethash "experiment" row) experiment))
                                 rows)))
         (bars (funcall of "bar")))
    (should (equal (mapcar (lambda (row) (gethash "column" row)) (funcall of "jira-freeze"))
                   '("full load" "pull without changes" "push of one change"
                     "site that does not answer for 2 s")))
    (should (= (length bars) 18))
    (dolist (bar bars)
      (should (numberp (gethash "measured" bar)))
      (should (numberp (gethash "limit" bar)))
      ;; The test checks counts, not times.
      (when (member (gethash "unit" bar) '("requests" "records"))
        (should (eq (gethash "holds" bar) t))))))

(provide 'weir-bench-tests)
;;; weir-bench-tests.el ends here
