;;; weir-lab-peer.el --- A contender of the lab: Lisp and the module -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Speaks the line protocol of docs/guide/lab.md on standard input and output, for
;; the experiments boundary-string, boundary-json, boundary-http, jira-read and
;; jira-sync.
;; The parameter `way' of an input names the work, which is one of the closures
;; below.  Each returns an integer: the sum over all iterations is the touch.
;;
;; The garbage collector runs before the clock starts, and again after each 256
;; MiB.  The CPU time is that of the process with all its threads.
;;
;; The words after `--' are the program of the lab and `weir', which
;; boundary-http starts as `weir notes-sim' and the others as `weir jira-sim', so
;; that the lab ends it with Emacs.
;; The parameter `site' of boundary-http names another address, which answers with
;; notes or with any list of objects that have a name, such as Jira's fields.

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
(declare-function weir--jira-list "ext:weir-module")
(declare-function weir--jira-pull "ext:weir-module")
(declare-function weir--jira-size "ext:weir-module")

(defvar weir-lab--inputs (make-hash-table) "The closure of each input.")
(defvar weir-lab--site nil "The address of the notes and that of the delayed ones.")
(defvar weir-lab--simulators (make-hash-table :test 'equal)
  "The address of each Jira simulator, by issues, latency and purpose.")
(defvar weir-lab--directories (make-hash-table :test 'equal)
  "The directory of each replica, by the address of its site.")
(defconst weir-lab--page 50 "Number of issues in the first page of a list.")
(defconst weir-lab--all "project = AA ORDER BY updated DESC" "The query of a list.")
(defconst weir-lab--query "status = Done AND text ~ \"printer\"" "The query of a search.")
(defconst weir-lab--key "AA-1" "The issue that is opened.")

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

(defun weir-lab--start (pattern &rest words)
  "Start `weir' with WORDS under the guard of the lab.
Wait until its standard error matches PATTERN; return the groups of the match."
  (let* ((given (cdr (member "--" command-line-args)))
         (text "")
         (process (make-process
                   :name "weir-sim" :noquery t :connection-type 'pipe
                   :command (append (list (car given) "guard" (number-to-string (emacs-pid)) "--"
                                          (cadr given))
                                    words '("--port" "0"))
                   :filter #'ignore
                   :stderr (make-pipe-process
                            :name "weir-sim-stderr" :noquery t :sentinel #'ignore
                            :filter (lambda (_ new) (setq text (concat text new)))))))
    (while (not (string-match pattern text))
      (unless (or (accept-process-output nil 30) (process-live-p process))
        (error "The command `weir %s' did not start: %s" (car words) text)))
    (let ((groups nil)
          (group 1))
      (while (match-beginning group)
        (push (match-string group text) groups)
        (setq group (1+ group)))
      (nreverse groups))))

(defun weir-lab--server ()
  "Start `weir notes-sim'; return its two addresses."
  (weir-lab--start "notes at \\(http://[0-9.:]+\\), delayed at \\(http://[0-9.:]+\\)\n"
                   "notes-sim"))

(defun weir-lab--address (remote given)
  "Return the address GIVEN, or that of the notes, the delayed ones if REMOTE."
  (or given
      (let ((site (or weir-lab--site (setq weir-lab--site (weir-lab--server)))))
        (concat (if remote (cadr site) (car site)) "/notes"))))

(defun weir-lab--http (way count remote given)
  "Return the closure of WAY for COUNT requests, which are delayed if REMOTE.
They go to the address GIVEN, if it is non-nil.  The closure returns how many
notes the last of them had."
  (let* ((url (weir-lab--address remote given))
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

(defun weir-lab--simulator (issues latency &optional purpose)
  "Return the address of a Jira simulator with ISSUES issues.
It answers after LATENCY, in milliseconds.  Each PURPOSE has a separate one."
  (let ((key (list issues latency purpose)))
    (or (gethash key weir-lab--simulators)
        (puthash key (car (weir-lab--start "\\(http://[0-9.:]+\\)" "jira-sim"
                                           "--issues" (number-to-string issues)
                                           "--latency" (number-to-string latency)))
                 weir-lab--simulators))))

(defun weir-lab--until (done)
  "Wait until the function DONE gives a value."
  (while (not (funcall done))
    (accept-process-output nil 0.005)))

(defun weir-lab--find (url)
  "Return the open site whose replica has the issues of the site URL, or nil."
  (weir-jira--find (replace-regexp-in-string "[.:]" "-" (weir-jira--host url))))

(defun weir-lab--forget (url)
  "Close and delete the replica of the site URL if there is one."
  (when-let ((site (weir-lab--find url))
             (open t))
    (weir-jira--close site (lambda () (setq open nil)))
    (weir-lab--until (lambda () (not open)))
    (setq weir-jira--sites (delq site weir-jira--sites))
    (delete-directory (gethash url weir-lab--directories) t)))

(defun weir-lab--fill (url)
  "Return a site whose new replica has all issues of the site URL."
  (weir-lab--forget url)
  (let ((inhibit-message t)
        (directory (make-temp-file "weir-lab" t)))
    (puthash url directory weir-lab--directories)
    (add-hook 'kill-emacs-hook #'weir-lab--delete-directories)
    (setq weir-jira-directory directory
          weir-jira-default-site nil
          weir-jira-sync-interval nil)
    (weir-jira-setup url "")
    (weir-lab--until (lambda ()
                       (when-let ((site (weir-lab--find url)))
                         (when (weir-jira--site-failure site)
                           (error "The replica cannot be filled: %S" (weir-jira--site-failure site)))
                         (weir-jira--site-last-pull site))))
    (weir-lab--find url)))

(defun weir-lab--delete-directories ()
  "Delete all replicas."
  (maphash (lambda (_ directory) (delete-directory directory t)) weir-lab--directories))

(defun weir-lab--replica (url)
  "Return the site whose replica has all issues of the site URL."
  (or (weir-lab--find url) (weir-lab--fill url)))

(defun weir-lab--known (site)
  "Return the number of issues in the replica of SITE."
  (weir--jira-size (weir--jira-list (weir-jira--site-handle site) "")))

(defun weir-lab--pull (site)
  "Pull what is new from SITE."
  (let ((result nil))
    (weir--expect (weir--jira-pull (weir-jira--site-handle site) (weir-jira--token site) nil nil nil)
                  (lambda (status value)
                    (unless (eq status 'part)
                      (setq result (list status value)))))
    (weir-lab--until (lambda () result))
    (when (eq (car result) 'failed)
      (error "The pull failed: %S" (cadr result)))))

(defun weir-lab--sync-replica (read url)
  "Return the closure for READ, a load or an idle pull, from URL.
Its value is the number of issues that are known then."
  (pcase read
    ("load" (lambda () (weir-lab--known (weir-lab--fill url))))
    ("idle" (lambda ()
              (let ((site (weir-lab--replica url)))
                (weir-lab--pull site)
                (weir-lab--known site))))))

(defun weir-lab--sync-pages (url)
  "Return the closure for all pages of the issues at URL.
Its value is their number."
  (lambda ()
    (let ((known 0)
          (next t))
      (while next
        (let* ((body (json-serialize
                      `(:jql "project in (AA, BB) ORDER BY id" :maxResults 100 :fields ["*all"]
                        ,@(and (stringp next) (list :nextPageToken next)))))
               (answer (json-parse-string
                        (weir-bench--ask-socket (concat url "/rest/api/3/search/jql") body))))
          (setq known (+ known (length (gethash "issues" answer)))
                next (gethash "nextPageToken" answer))))
      known)))

(defun weir-lab--sync (way read issues latency)
  "Return the closure of WAY for READ of ISSUES issues.
The site answers after LATENCY, in milliseconds."
  ;; A load replaces the replica, so a pull needs another one.  It is filled before
  ;; the answers are delayed.
  (let* ((idle (equal read "idle"))
         (url (weir-lab--simulator issues (if idle 0 latency) (list read latency)))
         (closure (pcase way
                    ("replica" (when idle
                                 (weir-lab--replica url))
                               (weir-lab--sync-replica read url))
                    ("pages" (weir-lab--sync-pages url)))))
    (when idle
      (weir-bench--ask-socket
       (concat url "/_sim/faults")
       (json-serialize `(:match () :fault (:name "slow" :ms ,latency)))))
    closure))

(defun weir-lab--jira-replica (read issues)
  "Return the closure that does READ in a replica of ISSUES issues.
It shows the result in a buffer, as the commands do."
  (let* ((site (weir-lab--replica (weir-lab--simulator issues 0)))
         (shown (lambda (query)
                  (weir-jira-list query site)
                  ;; The list is now the current buffer.
                  (min weir-lab--page (weir--jira-size weir-jira--set)))))
    (pcase read
      ("list" (lambda () (funcall shown weir-lab--all)))
      ("search" (lambda () (funcall shown weir-lab--query)))
      ("issue" (lambda ()
                 (with-current-buffer (weir-jira--show site weir-lab--key)
                   (if (string-search weir-lab--key (buffer-string)) 1 0)))))))

(defun weir-lab--jira-remote (read url ask)
  "Return the closure that does READ at the site URL by the function ASK.
It decodes the answer and shows nothing."
  (let* ((search (lambda (jql)
                   (let* ((body (json-serialize
                                 `(:jql ,jql :maxResults ,weir-lab--page
                                   :fields ["summary" "status" "assignee" "priority" "updated"])))
                          (answer (funcall ask (concat url "/rest/api/3/search/jql") body)))
                     (length (gethash "issues" (json-parse-string answer)))))))
    (pcase read
      ("list" (lambda () (funcall search weir-lab--all)))
      ("search" (lambda () (funcall search weir-lab--query)))
      ("issue" (lambda ()
                 (let ((answer (funcall ask (concat url "/rest/api/3/issue/" weir-lab--key))))
                   (if (equal (gethash "key" (json-parse-string answer)) weir-lab--key) 1 0)))))))

(defun weir-lab--jira (way read issues latency)
  "Return the closure of WAY for READ of ISSUES issues.
The site answers after LATENCY, in milliseconds."
  (pcase way
    ("replica" (weir-lab--jira-replica read issues))
    ("socket" (weir-lab--jira-remote read (weir-lab--simulator issues latency)
                                     #'weir-bench--ask-socket))
    ("url-el" (weir-lab--jira-remote read (weir-lab--simulator issues latency)
                                     #'weir-bench--ask-url))))

(defun weir-lab--load (fields)
  "Return the closure for FIELDS, an alist of texts."
  (let* ((field (lambda (name) (cdr (assoc name fields))))
         (way (funcall field "way"))
         (size (string-to-number (or (funcall field "size") "1"))))
    (or (pcase (funcall field "work")
          ("string" (weir-lab--string way size))
          ("json" (weir-lab--json way size))
          ("http" (weir-lab--http way size (equal (funcall field "remote") "true")
                                  (funcall field "site")))
          ("sync" (weir-lab--sync way (funcall field "read") size
                                  (string-to-number (funcall field "latency"))))
          ("jira" (weir-lab--jira way (funcall field "read") size
                                  (string-to-number (funcall field "latency")))))
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
  "Greet, answer each line of standard input until it ends, then end Emacs.
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
              (end-of-file nil))))
    ;; Emacs would open the words after `--' as files.
    (kill-emacs)))

(provide 'weir-lab-peer)
;;; weir-lab-peer.el ends here
