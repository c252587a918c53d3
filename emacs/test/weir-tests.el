;;; weir-tests.el --- Tests of weir.el with the real module -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; The variable WEIR_MODULE of the environment names the module.

;;; Code:

(require 'ert)
(require 'weir)

(declare-function weir--debug-counts "ext:weir-module")
(declare-function weir--debug-panic "ext:weir-module")
(declare-function weir--module-version "ext:weir-module")

(setq weir-module-file (getenv "WEIR_MODULE"))

(defmacro weir-tests-with (store &rest body)
  "Bind STORE to a new store around BODY."
  (declare (indent 1) (debug (symbolp body)))
  `(let* ((directory (make-temp-file "weir-tests" t))
          (,store (weir-open directory)))
     (unwind-protect (progn ,@body)
       (weir-close ,store)
       (delete-directory directory t))))

(defun weir-tests-until (predicate)
  "Run the event loop until PREDICATE is non-nil; fail after 20 seconds."
  (let ((end (+ (float-time) 20)))
    (while (not (funcall predicate))
      (when (> (float-time) end)
        (ert-fail "It did not come"))
      (accept-process-output nil 0.02))))

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

(ert-deftest weir-tests-what-was-written-is-there-after-an-open ()
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

(ert-deftest weir-tests-a-panic-is-a-signal ()
  (weir--ensure)
  (should-error (weir--debug-panic))
  (should (weir--module-version)))

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
      (should-not (weir-stop follower)))))

(ert-deftest weir-tests-writes-survive-the-pipe ()
  (weir-tests-with store
    (weir-await (weir-create store "t"))
    (weir-put store "t" "k" "v" :callback #'ignore)
    (delete-process weir--pipe)
    ;; The next write makes another pipe.
    (weir-await (weir-put store "t" "l" "w"))
    (should (equal (weir-get store "t" "k") "v"))))

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

(provide 'weir-tests)
;;; weir-tests.el ends here
