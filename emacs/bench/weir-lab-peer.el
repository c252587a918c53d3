;;; weir-lab-peer.el --- A contender of the lab: Lisp and the module -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Speaks the line protocol of docs/guide/lab.md on standard input and output, for
;; the experiments boundary-string, boundary-json and boundary-http.  The
;; parameter `way' of an input names the work, which is one of the closures
;; below.  Each returns an integer: the sum over all iterations is the touch.
;;
;; The garbage collector runs before the clock starts, and again after each 256
;; MiB.  The CPU time is that of the process with all its threads.
;;
;; The words after `--' are the program of the lab and `weir', which
;; boundary-http starts as `weir notes-sim', so that the lab ends it with Emacs.
;; WEIR_LAB_SITE in the environment names another address that answers with notes.

;;; Code:

(require 'cl-lib)
(require 'weir-bench)

(declare-function weir--bench-bytes "ext:weir-module")
(declare-function weir--bench-call "ext:weir-module")
(declare-function weir--bench-direct "ext:weir-module")
(declare-function weir--bench-json "ext:weir-module")
(declare-function weir--bench-make "ext:weir-module")
(declare-function weir--bench-notes "ext:weir-module")
(declare-function weir--bench-notes-loop "ext:weir-module")
(declare-function weir--bench-nothing "ext:weir-module")
(declare-function weir--bench-profile "ext:weir-module")
(declare-function weir--bench-sum "ext:weir-module")
(declare-function weir--bench-take "ext:weir-module")
(declare-function weir--bench-take-owned "ext:weir-module")

(defvar weir-lab--inputs (make-hash-table) "The closure of each input.")
(defvar weir-lab--site nil "The address of the notes and that of the delayed ones.")

(defun weir-lab--string (way size)
  "Return the closure of WAY for a string of SIZE letters."
  (let ((text (make-string size ?R)))
    (pcase way
      ("nothing" (lambda () (weir--bench-nothing) 0))
      ("nothing-lisp" (lambda () (ignore) 0))
      ("nothing-c" (lambda () (point) 0))
      ("to-lisp" (lambda () (length (weir--bench-make size))))
      ("to-lisp-bytes" (lambda () (length (weir--bench-bytes size))))
      ("to-lisp-read" (lambda () (weir-bench--sum (weir--bench-make size))))
      ("to-rust" (lambda () (weir--bench-take text)))
      ("to-rust-crate" (lambda () (weir--bench-take-owned text)))
      ("to-rust-read" (lambda () (weir--bench-sum text)))
      ("back-and-forth" (lambda () (weir--bench-call size #'weir--bench-sum)))
      ("rust-alone" (lambda () (weir--bench-direct size))))))

(defun weir-lab--json (way depth)
  "Return the closure of WAY for a tree of DEPTH."
  (let ((text (weir-bench--tree depth)))
    (pcase way
      ("module" (lambda () (weir--bench-json text)))
      ("native-hash" (lambda () (weir-bench--deepest (json-parse-string text))))
      ("native-alist"
       (lambda ()
         (weir-bench--deepest-alist (json-parse-string text :object-type 'alist))))
      ("json-el" (lambda () (weir-bench--deepest-alist (json-read-from-string text)))))))

(defun weir-lab--server ()
  "Start `weir notes-sim' under the guard of the lab; return its two addresses."
  (let* ((words (cdr (member "--" command-line-args)))
         (text "")
         (process (make-process
                   :name "weir-notes-sim" :noquery t :connection-type 'pipe
                   :command (list (car words) "guard" (number-to-string (emacs-pid)) "--"
                                  (cadr words) "notes-sim" "--port" "0")
                   :filter #'ignore
                   :stderr (make-pipe-process
                            :name "weir-notes-sim-says" :noquery t :sentinel #'ignore
                            :filter (lambda (_ new) (setq text (concat text new)))))))
    (while (not (string-match "notes at \\(http://[0-9.:]+\\), delayed at \\(http://[0-9.:]+\\)\n"
                              text))
      (unless (or (accept-process-output nil 30) (process-live-p process))
        (error "The command `weir notes-sim' did not start: %s" text)))
    (list (match-string 1 text) (match-string 2 text))))

(defun weir-lab--address (remote)
  "Return the address of the notes, the delayed ones if REMOTE."
  (or (getenv "WEIR_LAB_SITE")
      (let ((site (or weir-lab--site (setq weir-lab--site (weir-lab--server)))))
        (concat (if remote (cadr site) (car site)) "/notes"))))

(defun weir-lab--http (way count remote)
  "Return the closure of WAY for COUNT requests, which are delayed if REMOTE.
It returns how many notes the last of them had."
  (let* ((url (weir-lab--address remote))
         (get (lambda (function)
                (lambda ()
                  (let ((notes nil))
                    (dotimes (_ count)
                      (setq notes (funcall function url)))
                    (length notes)))))
         (needs (lambda (feature function)
                  (require feature)
                  (funcall get function))))
    (pcase way
      ("module-lisp" (funcall get (lambda (url) (weir--bench-notes url nil))))
      ("module-lisp-fresh" (funcall get (lambda (url) (weir--bench-notes url t))))
      ("module" (lambda () (/ (weir--bench-notes-loop url count nil 1) count)))
      ("module-4-threads" (lambda () (/ (weir--bench-notes-loop url count nil 4) count)))
      ("module-fresh" (lambda () (/ (weir--bench-notes-loop url count t 1) count)))
      ("socket" (funcall get #'weir-bench--get-socket))
      ("url-el" (funcall get #'weir-bench--get-url))
      ("request-el" (funcall needs 'request #'weir-bench--get-request))
      ("plz" (funcall needs 'plz #'weir-bench--get-plz)))))

(defun weir-lab--load (fields)
  "Return the closure for FIELDS, an alist of texts."
  (let* ((field (lambda (name) (cdr (assoc name fields))))
         (way (funcall field "way"))
         (size (string-to-number (or (funcall field "size") "1"))))
    (or (pcase (funcall field "work")
          ("string" (weir-lab--string way size))
          ("json" (weir-lab--json way size))
          ("http" (weir-lab--http way size (equal (funcall field "remote") "true"))))
        (error "There is no way %s" way))))

(defun weir-lab--nanoseconds (time)
  "Return TIME as an integer of nanoseconds."
  (car (time-convert time 1000000000)))

(defun weir-lab--run (function count)
  "Call FUNCTION COUNT times; return wall and CPU nanoseconds and the sum."
  (garbage-collect)
  (let ((gc-cons-threshold (* 256 1024 1024))
        (sum 0)
        (cpu (get-internal-run-time))
        (wall (current-time)))
    (dotimes (_ count)
      (setq sum (+ sum (funcall function))))
    (let ((wall (time-subtract nil wall))
          (cpu (time-subtract (get-internal-run-time) cpu)))
      (format "time\t%d\t%d\t%x" (weir-lab--nanoseconds wall)
              (weir-lab--nanoseconds cpu) sum))))

(defun weir-lab--answer (line)
  "Return the answer to LINE, or nil to end."
  (pcase (split-string line "\t")
    (`("load" ,input . ,fields)
     (puthash input
              (weir-lab--load (mapcar (lambda (field)
                                        (let ((at (string-search "=" field)))
                                          (cons (substring field 0 at)
                                                (substring field (1+ at)))))
                                      fields))
              weir-lab--inputs)
     "ok")
    (`("check" ,input)
     (let ((sum (funcall (gethash input weir-lab--inputs))))
       (format "answer\t%016x\t%x\t0\t0" sum sum)))
    (`("run" ,input ,count)
     (weir-lab--run (gethash input weir-lab--inputs) (string-to-number count)))
    (`("quit") nil)
    (_ (error "The request %S is not known" line))))

(defun weir-lab-serve ()
  "Greet, then answer each line of standard input until it ends.
With the word --version, print the version of Emacs and end."
  (when (member "--version" command-line-args)
    (princ (format "emacs-weir: Emacs %s\n" emacs-version))
    (kill-emacs))
  (setq weir-lab--inputs (make-hash-table :test 'equal)
        weir-module-file (getenv "WEIR_MODULE"))
  (weir--ensure)
  (let ((answer (format "hello\t1\tprofile=%s\temacs=%s\tjson=%s" (weir--bench-profile)
                        emacs-version (if (fboundp 'json-parse-string) "native" "none"))))
    (while answer
      (princ (concat answer "\n"))
      ;; Reading from the terminal flushes the output first.
      (setq answer
            (condition-case nil
                (let ((line (read-from-minibuffer "")))
                  (condition-case failure
                      (weir-lab--answer line)
                    (error (concat "error\t" (error-message-string failure)))))
              (end-of-file nil))))))

(provide 'weir-lab-peer)
;;; weir-lab-peer.el ends here
