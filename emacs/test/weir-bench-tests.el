;;; weir-bench-tests.el --- The benchmarks run, and their answers are right -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; One short round of each; no time is judged.

;;; Code:

(require 'ert)
(require 'weir-bench)
(require 'weir-tests)

(declare-function weir--bench-call "ext:weir-module")
(declare-function weir--bench-make "ext:weir-module")
(declare-function weir--bench-next "ext:weir-module")
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
    (should (= (length rows) (+ 1 5 18)))
    (dolist (row (cdr rows))
      (should (numberp (gethash "min_ns" row)))
      (should (gethash "column" row)))))

(ert-deftest weir-bench-tests-answers-are-right ()
  (weir--ensure)
  (should (= (weir--bench-next 41) 42))
  (should (= (weir--bench-take (make-string 20000 ?R)) 20000))
  (should (= (weir--bench-sum "RRR") (* 3 ?R)))
  (should (= (weir-bench--sum (weir--bench-make 3)) (* 3 ?R)))
  (should (= (weir--bench-call 5 #'weir--bench-sum) (* 5 ?R))))

(provide 'weir-bench-tests)
;;; weir-bench-tests.el ends here
