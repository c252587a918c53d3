;;; weir-bench.el --- Measure the boundary between Lisp and the module -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Load it byte-compiled in batch, with the directories of the package and of
;; this file on `load-path', and call `weir-bench-all'.  The variable
;; WEIR_MODULE of the environment names the module, in a release build.
;;
;; Each line of the output is a JSON object: the experiment, the row, the
;; column, and nanoseconds for one call (least and median of the rounds).
;; The contenders of a row take turns.  The variable WEIR_BENCH_ROUNDS sets the
;; number of rounds, WEIR_BENCH_MS the milliseconds of a round.

;;; Code:

(require 'cl-lib)
(require 'json)
(require 'weir-jira)

(declare-function weir--bench-bytes "ext:weir-module")
(declare-function weir--bench-call "ext:weir-module")
(declare-function weir--bench-direct "ext:weir-module")
(declare-function weir--bench-json "ext:weir-module")
(declare-function weir--bench-make "ext:weir-module")
(declare-function weir--bench-next "ext:weir-module")
(declare-function weir--bench-nothing "ext:weir-module")
(declare-function weir--bench-sum "ext:weir-module")
(declare-function weir--bench-take "ext:weir-module")
(declare-function weir--bench-take-owned "ext:weir-module")
(declare-function weir--jira-keys "ext:weir-module")
(declare-function weir--jira-list "ext:weir-module")
(declare-function weir--jira-rows "ext:weir-module")
(declare-function weir--jira-size "ext:weir-module")

(defun weir-bench--number (name default)
  "Return the number in the variable NAME of the environment, or DEFAULT."
  (string-to-number (or (getenv name) default)))

(defun weir-bench--round (function nanoseconds)
  "Call FUNCTION for about NANOSECONDS; return nanoseconds for one call."
  (let ((count 0)
        (batch 1)
        (start (current-time))
        (spent 0))
    (while (or (= count 0) (< spent nanoseconds))
      (dotimes (_ batch)
        (funcall function))
      (setq count (+ count batch)
            batch (min 1000 (* 2 batch))
            spent (* 1e9 (float-time (time-subtract nil start)))))
    (/ spent count)))

(defun weir-bench--print (&rest fields)
  "Print FIELDS, a property list, as a line of JSON."
  (princ (concat (json-serialize fields) "\n")))

(defun weir-bench--row (experiment row contenders)
  "Measure CONTENDERS, pairs of a name and a function, for ROW of EXPERIMENT."
  (let* ((rounds (weir-bench--number "WEIR_BENCH_ROUNDS" "7"))
         (nanoseconds (* 1e6 (weir-bench--number "WEIR_BENCH_MS" "2")))
         (gc-cons-threshold (* 256 1024 1024))
         (times (make-hash-table :test 'equal)))
    (dolist (contender contenders)
      (funcall (cdr contender)))
    (dotimes (_ rounds)
      (garbage-collect)
      (dolist (contender contenders)
        (push (weir-bench--round (cdr contender) nanoseconds)
              (gethash (car contender) times))))
    (dolist (contender contenders)
      (let ((sorted (sort (gethash (car contender) times) #'<)))
        (weir-bench--print :experiment experiment :row row :column (car contender)
                           :min_ns (car sorted)
                           :median_ns (nth (/ rounds 2) sorted)
                           :rounds rounds)))))

(defun weir-bench--about ()
  "Print what was measured on."
  (weir-bench--print :experiment "about" :emacs emacs-version
                     :system system-configuration
                     :native_compilation (if (and (fboundp 'native-comp-available-p)
                                                  (native-comp-available-p))
                                             t :false)
                     :native_json (if (fboundp 'json-parse-string) t :false)
                     :byte_compiled (if (byte-code-function-p (symbol-function 'weir-bench--row))
                                        t :false)
                     :module (weir--module-path)))

(defun weir-bench--sum (text)
  "Return the sum of the characters of TEXT."
  (let ((sum 0)
        (at 0)
        (length (length text)))
    (while (< at length)
      (setq sum (+ sum (aref text at))
            at (1+ at)))
    sum))

(defun weir-bench-call ()
  "Measure a call: the experiment emacs-call."
  (weir-bench--row "emacs-call" "no argument"
                   (list (cons "module" (lambda () (weir--bench-nothing)))
                         (cons "byte-compiled Lisp" (lambda () (ignore)))
                         (cons "C primitive" (lambda () (point)))))
  (weir-bench--row "emacs-call" "integer to integer"
                   (list (cons "module" (lambda () (weir--bench-next 41)))
                         (cons "C primitive" (lambda () (1+ 41))))))

(defun weir-bench-strings ()
  "Measure strings in six directions: the experiment emacs-strings."
  (dolist (size '(1 10 100 1000 10000 100000 1000000))
    (let ((text (make-string size ?R)))
      (weir-bench--row
       "emacs-strings" size
       (append
        (list (cons "to Lisp, not read" (lambda () (ignore (weir--bench-make size))))
              (cons "to Lisp, bytes" (lambda () (ignore (weir--bench-bytes size))))
              (cons "to Rust, not read" (lambda () (weir--bench-take text)))
              (cons "to Rust, not read, crate" (lambda () (weir--bench-take-owned text)))
              (cons "to Rust, read" (lambda () (weir--bench-sum text)))
              (cons "back and forth" (lambda () (weir--bench-call size #'weir--bench-sum)))
              (cons "Rust alone" (lambda () (weir--bench-direct size))))
        ;; A million steps of Lisp take 30 ms.
        (list (cons "to Lisp, read"
                    (lambda () (weir-bench--sum (weir--bench-make size))))))))))

(defun weir-bench--tree (depth)
  "Return a binary tree of DEPTH as JSON."
  (if (= depth 0)
      "null"
    (format "{\"value\": %d, \"left\": %s, \"right\": %s}"
            (* 7919 depth) (weir-bench--tree (1- depth)) (weir-bench--tree (1- depth)))))

(defun weir-bench--deepest (tree)
  "Return the value of the deepest leftmost node of TREE, a hash table."
  (while (hash-table-p (gethash "left" tree))
    (setq tree (gethash "left" tree)))
  (gethash "value" tree))

(defun weir-bench--deepest-alist (tree)
  "Return the value of the deepest leftmost node of TREE, an alist."
  (while (consp (cdr (assq 'left tree)))
    (setq tree (cdr (assq 'left tree))))
  (cdr (assq 'value tree)))

(defun weir-bench-json ()
  "Measure decoding and navigation of a tree: the experiment emacs-json."
  (dolist (depth '(1 2 4 6 8 10))
    (let ((text (weir-bench--tree depth)))
      (cl-assert (equal (weir--bench-json text) 7919))
      (cl-assert (equal (weir-bench--deepest (json-parse-string text)) 7919))
      (weir-bench--row
       "emacs-json" depth
       (list (cons "module, typed serde" (lambda () (weir--bench-json text)))
             (cons "native, hash table"
                   (lambda () (weir-bench--deepest (json-parse-string text))))
             (cons "native, alist"
                   (lambda ()
                     (weir-bench--deepest-alist
                      (json-parse-string text :object-type 'alist)))))))))

(defun weir-bench-jira ()
  "Measure a replica: WEIR_BENCH_JIRA is its `weir-jira-directory'."
  (let ((weir-jira-directory (or (getenv "WEIR_BENCH_JIRA") (error "No WEIR_BENCH_JIRA")))
        (weir-jira-sync-interval nil)
        (site nil))
    (weir-jira--open (weir-jira--default) (lambda (opened) (setq site opened)))
    (while (not site)
      (accept-process-output nil 0.05))
    (let* ((handle (weir-jira--site-handle site))
           (all (weir--jira-list handle ""))
           (key (car (weir--jira-keys handle all 0 1))))
      (weir-bench--row
       "emacs-jira" (weir--jira-size all)
       (list (cons "first screen" (lambda () (weir-jira-list "" site)))
             (cons "issue" (lambda () (weir-jira--show site key)))
             (cons "search keystroke"
                   (lambda () (weir-jira--list-buffer "*bench*" site "" :words "pri")))
             (cons "offline JQL"
                   (lambda () (weir--jira-list handle "status = Done AND text ~ \"printer\"")))
             (cons "list of 50"
                   (lambda ()
                     (weir--jira-rows handle all 0 50 weir-jira-columns))))))
    (weir-jira-close)))

(defun weir-bench-all ()
  "Run all experiments that need no server; that of Jira where it has a replica."
  (setq weir-module-file (or weir-module-file (getenv "WEIR_MODULE")))
  (weir--ensure)
  (weir-bench--about)
  (weir-bench-call)
  (weir-bench-strings)
  (weir-bench-json)
  (when (getenv "WEIR_BENCH_JIRA")
    (weir-bench-jira)))

(provide 'weir-bench)
;;; weir-bench.el ends here
