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
;; number of rounds, WEIR_BENCH_MS the milliseconds of a round.  A contender that
;; needs a package which is not installed gives a line with `skipped'.
;;
;; `weir-bench-bars' measures the speed that the package guarantees.  It adds a
;; line for each bar: the measured value, its limit, and whether the limit is
;; met.
;;
;; The experiments of HTTP start `weir notes-sim' with the command in the
;; variable WEIR_BINARY.  To use a running server, set WEIR_BENCH_NOTES to its
;; two addresses, separated by a space.  The variables WEIR_BENCH_GETS and
;; WEIR_BENCH_REMOTE_GETS set the number of requests of one measured call.

;;; Code:

(require 'cl-lib)
(require 'json)
(require 'url)
(require 'weir-jira)

(defvar url-http-end-of-headers)
(declare-function plz "ext:plz")
(declare-function request "ext:request")
(declare-function request-response-data "ext:request")

(declare-function weir--bench-bare "ext:weir-module")
(declare-function weir--bench-bare-bytes "ext:weir-module")
(declare-function weir--bench-bare-take "ext:weir-module")
(declare-function weir--bench-bytes "ext:weir-module")
(declare-function weir--bench-call "ext:weir-module")
(declare-function weir--bench-direct "ext:weir-module")
(declare-function weir--bench-json "ext:weir-module")
(declare-function weir--bench-json-path "ext:weir-module")
(declare-function weir--bench-json-strict "ext:weir-module")
(declare-function weir--bench-make "ext:weir-module")
(declare-function weir--bench-next "ext:weir-module")
(declare-function weir--bench-notes "ext:weir-module")
(declare-function weir--bench-notes-loop "ext:weir-module")
(declare-function weir--bench-nothing "ext:weir-module")
(declare-function weir--bench-profile "ext:weir-module")
(declare-function weir--bench-repeat "ext:weir-module")
(declare-function weir--bench-sum "ext:weir-module")
(declare-function weir--bench-take "ext:weir-module")
(declare-function weir--bench-take-owned "ext:weir-module")
(declare-function weir--jira-keys "ext:weir-module")
(declare-function weir--jira-list "ext:weir-module")
(declare-function weir--jira-pull "ext:weir-module")
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

(defvar weir-bench--results (make-hash-table :test 'equal)
  "Nanoseconds of each round, by (EXPERIMENT ROW COLUMN).")

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
      (puthash (list experiment row (car contender)) (gethash (car contender) times)
               weir-bench--results)
      (let ((sorted (sort (copy-sequence (gethash (car contender) times)) #'<)))
        (weir-bench--print :experiment experiment :row row :column (car contender)
                           :min_ns (car sorted)
                           :median_ns (nth (/ rounds 2) sorted)
                           :rounds rounds)))))

(defun weir-bench--about ()
  "Print a description of the measured system."
  (weir-bench--print :experiment "about" :emacs emacs-version
                     :system system-configuration
                     :native_compilation (if (and (fboundp 'native-comp-available-p)
                                                  (native-comp-available-p))
                                             t :false)
                     :native_json (if (fboundp 'json-parse-string) t :false)
                     :byte_compiled (if (byte-code-function-p (symbol-function 'weir-bench--row))
                                        t :false)
                     :profile (weir--bench-profile)
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

(declare-function weir-bench--bare "weir-bench")
(declare-function weir-bench--bare-bytes "weir-bench")
(declare-function weir-bench--bare-take "weir-bench")

(defun weir-bench-call ()
  "Measure a call: the experiment emacs-call."
  (fset 'weir-bench--bare (weir--bench-bare))
  (weir-bench--row "emacs-call" "no argument"
                   (list (cons "module" (lambda () (weir--bench-nothing)))
                         (cons "bare module function" (lambda () (weir-bench--bare)))
                         (cons "nothing" (lambda () nil))
                         (cons "byte-compiled Lisp" (lambda () (ignore)))
                         (cons "C primitive" (lambda () (point)))))
  (weir-bench--row "emacs-call" "integer to integer"
                   (list (cons "module" (lambda () (weir--bench-next 41)))
                         (cons "C primitive" (lambda () (1+ 41))))))

(defun weir-bench-strings (&optional sizes)
  "Measure strings in six directions: the experiment emacs-strings.
SIZES are their lengths, by default seven powers of ten.  The bare functions
are the minimum cost of any module."
  (fset 'weir-bench--bare-take (weir--bench-bare-take))
  (fset 'weir-bench--bare-bytes (weir--bench-bare-bytes))
  (dolist (size (or sizes '(1 10 100 1000 10000 100000 1000000)))
    (let ((text (make-string size ?R)))
      (weir-bench--row
       "emacs-strings" size
       (append
        ;; A bare function has a buffer of 1 MiB.
        (list (cons "bare module function, to Lisp, bytes"
                    (lambda () (ignore (weir-bench--bare-bytes size))))
              (cons "bare module function, to Rust" (lambda () (weir-bench--bare-take text))))
        (list (cons "to Lisp, not read" (lambda () (ignore (weir--bench-make size))))
              (cons "to Lisp, bytes" (lambda () (ignore (weir--bench-bytes size))))
              (cons "to Rust, not read" (lambda () (weir--bench-take text)))
              (cons "to Rust, not read, crate" (lambda () (weir--bench-take-owned text)))
              (cons "to Rust, read" (lambda () (weir--bench-sum text)))
              (cons "back and forth" (lambda () (weir--bench-call size #'weir--bench-sum)))
              (cons "Rust alone" (lambda () (weir--bench-direct size))))
        ;; A million steps of Lisp take 30 ms.
        (list (cons "nothing" (lambda () nil))
              (cons "to Lisp, read"
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

(defun weir-bench-json (&optional depths)
  "Measure decoding and navigation of a tree: the experiment emacs-json.
DEPTHS are those of the trees, by default six of them."
  (dolist (depth (or depths '(1 2 4 6 8 10)))
    (let ((text (weir-bench--tree depth))
          (path (concat "$" (apply #'concat (make-list (1- depth) ".left")) ".value")))
      (cl-assert (equal (weir--bench-json text) 7919))
      (cl-assert (equal (weir--bench-json-strict text) 7919))
      (cl-assert (equal (weir--bench-json-path text path) 7919))
      (cl-assert (equal (weir-bench--deepest (json-parse-string text)) 7919))
      (cl-assert (equal (weir-bench--deepest-alist (json-read-from-string text)) 7919))
      (weir-bench--row
       "emacs-json" depth
       (list (cons "module, typed serde" (lambda () (weir--bench-json text)))
             (cons "module, checked entirely" (lambda () (weir--bench-json-strict text)))
             (cons "module, by path" (lambda () (weir--bench-json-path text path)))
             (cons "native, hash table"
                   (lambda () (weir-bench--deepest (json-parse-string text))))
             (cons "native, alist"
                   (lambda ()
                     (weir-bench--deepest-alist
                      (json-parse-string text :object-type 'alist))))
             (cons "json.el, alist"
                   (lambda () (weir-bench--deepest-alist (json-read-from-string text)))))))))

;;;; HTTP

(defun weir-bench--notes-of (text)
  "Return the messages of the notes in TEXT, which is JSON."
  (mapcar (lambda (note) (alist-get 'message note))
          (json-parse-string text :object-type 'alist :array-type 'list)))

(defvar weir-bench--socket nil "The connection of `weir-bench--ask-socket'.")
(defvar weir-bench--address nil "The host and the port of the connection.")

(defun weir-bench--socket (url)
  "Return a connection to the host of URL; reuse an open connection."
  (let* ((parsed (url-generic-parse-url url))
         (address (list (url-host parsed) (url-port parsed)))
         (process-adaptive-read-buffering nil))
    (unless (and (process-live-p weir-bench--socket) (equal weir-bench--address address))
      (weir-bench--close-socket)
      (setq weir-bench--address address
            weir-bench--socket
            (make-network-process :name "weir-bench" :host (car address)
                                  :service (cadr address) :nodelay t :noquery t
                                  :buffer (generate-new-buffer " *weir-bench*")
                                  :coding 'binary))))
  weir-bench--socket)

(defun weir-bench--close-socket ()
  "Close the connection of `weir-bench--get-socket'."
  (when weir-bench--socket
    (let ((buffer (process-buffer weir-bench--socket)))
      (delete-process weir-bench--socket)
      (kill-buffer buffer))
    (setq weir-bench--socket nil)))

(defun weir-bench--ask-socket (url &optional body)
  "Return the text at URL over a persistent connection, only in Lisp.
With BODY, a text, send it by POST."
  (let ((process (weir-bench--socket url)))
    (with-current-buffer (process-buffer process)
      (erase-buffer)
      (process-send-string
       process
       (concat (if body "POST " "GET ") (url-filename (url-generic-parse-url url))
               " HTTP/1.1\r\nHost: localhost\r\n"
               (and body (format "Content-Type: application/json\r\nContent-Length: %d\r\n"
                                 (string-bytes body)))
               "\r\n" body))
      (let ((end nil))
        (while (not (and end (>= (point-max) end)))
          (unless (accept-process-output process 30)
            (error "No answer from %s" url))
          (unless end
            (goto-char (point-min))
            (when (search-forward "\r\n\r\n" nil t)
              (let ((body (point)))
                (goto-char (point-min))
                (re-search-forward "^content-length: *\\([0-9]+\\)" body)
                (setq end (+ body (string-to-number (match-string 1))))
                (goto-char body)))))
        (decode-coding-string (buffer-substring (point) end) 'utf-8)))))

(defun weir-bench--get-socket (url)
  "Return the notes at URL over a persistent connection, only in Lisp."
  (weir-bench--notes-of (weir-bench--ask-socket url)))

(defun weir-bench--ask-url (url &optional body)
  "Return the text at URL by url.el.
With BODY, a text, send it by POST."
  (let ((url-request-method (and body "POST"))
        (url-request-data body)
        (url-request-extra-headers (and body '(("Content-Type" . "application/json")))))
    (with-current-buffer (url-retrieve-synchronously url t)
      (prog1 (decode-coding-string
              (buffer-substring (1+ url-http-end-of-headers) (point-max)) 'utf-8)
        (kill-buffer)))))

(defun weir-bench--get-url (url)
  "Return the notes at URL by url.el."
  (weir-bench--notes-of (weir-bench--ask-url url)))

(defun weir-bench--get-curl (url)
  "Return the notes at URL by a process of curl."
  (with-temp-buffer
    (let ((coding-system-for-read 'utf-8))
      (call-process "curl" nil t nil "-s" url))
    (weir-bench--notes-of (buffer-string))))

(defun weir-bench--get-request (url)
  "Return the notes at URL by request.el."
  (mapcar (lambda (note) (alist-get 'message note))
          (request-response-data (request url :sync t :parser #'json-read))))

(defun weir-bench--get-plz (url)
  "Return the notes at URL by plz.el."
  (let ((notes nil))
    ;; plz 0.2 returns nil if the process ends before its sentinel runs.  Then
    ;; the request is sent again.
    (while (not notes)
      (setq notes
            ;; It can also leave a message of its process after the text.
            (plz 'get url
              :as (lambda ()
                    (mapcar (lambda (note) (alist-get 'message note))
                            (json-parse-buffer :object-type 'alist :array-type 'list))))))
    notes))

(defun weir-bench--clients (url count)
  "Return the contenders for COUNT requests to URL, which has notes.
If a contender cannot run, its second part is a text instead of a function."
  (let* ((lisp (lambda (get) (lambda () (dotimes (_ count) (funcall get url)))))
         (rust (lambda (get) (lambda () (weir--bench-repeat (lambda () (funcall get url)) count))))
         (needs (lambda (feature function)
                  (if (require feature nil t) function (format "%s.el is not installed" feature)))))
    (list
     (cons "1 Lisp alone, request.el"
           (funcall needs 'request (funcall lisp #'weir-bench--get-request)))
     (cons "2 Lisp over the module"
           (lambda () (dotimes (_ count) (weir--bench-notes url nil))))
     (cons "3 module alone" (lambda () (weir--bench-notes-loop url count nil 1)))
     (cons "4 module over request.el"
           (funcall needs 'request (funcall rust #'weir-bench--get-request)))
     (cons "Lisp alone, socket" (funcall lisp #'weir-bench--get-socket))
     (cons "module alone, 4 threads" (lambda () (weir--bench-notes-loop url count nil 4)))
     (cons "Lisp over the module, new connections"
           (lambda () (dotimes (_ count) (weir--bench-notes url t))))
     (cons "module alone, new connections" (lambda () (weir--bench-notes-loop url count t 1)))
     (cons "Lisp alone, url.el" (funcall lisp #'weir-bench--get-url))
     (cons "module over url.el" (funcall rust #'weir-bench--get-url))
     (cons "Lisp alone, plz.el" (funcall needs 'plz (funcall lisp #'weir-bench--get-plz)))
     (cons "Lisp alone, process of curl"
           (if (executable-find "curl")
               (funcall lisp #'weir-bench--get-curl)
             "curl is not installed")))))

(defun weir-bench--http (experiment url count)
  "Measure COUNT requests to URL for EXPERIMENT."
  (let* ((row (format "%d requests" count))
         (all (weir-bench--clients url count))
         (ready (cl-remove-if-not (lambda (one) (functionp (cdr one))) all)))
    (dolist (one all)
      (unless (functionp (cdr one))
        (weir-bench--print :experiment experiment :row row :column (car one)
                           :skipped (cdr one))))
    (weir-bench--row experiment row ready)
    (weir-bench--close-socket)))

(defun weir-bench--server ()
  "Start `weir notes-sim'.  Return (URL SLOW-URL PROCESS)."
  (let* ((text "")
         (process (make-process
                   :name "weir-notes-sim" :noquery t :connection-type 'pipe
                   :command (list (getenv "WEIR_BINARY") "notes-sim" "--port" "0")
                   :filter #'ignore
                   :stderr (make-pipe-process
                            :name "weir-notes-sim-stderr" :noquery t :sentinel #'ignore
                            :filter (lambda (_ new) (setq text (concat text new)))))))
    (while (not (string-match "notes at \\(http://[0-9.:]+\\), delayed at \\(http://[0-9.:]+\\)\n"
                              text))
      (unless (or (accept-process-output nil 30) (process-live-p process))
        (error "The command `weir notes-sim' did not start: %s" text)))
    (list (match-string 1 text) (match-string 2 text) process)))

(defun weir-bench-http ()
  "Measure clients of HTTP: the experiments emacs-http-local and emacs-http-remote.
The first four contenders of the local one are the tiers 1 to 4."
  (let* ((given (getenv "WEIR_BENCH_NOTES"))
         (server (if given (split-string given) (weir-bench--server))))
    (unwind-protect
        (progn
          (weir-bench--http "emacs-http-local" (concat (nth 0 server) "/notes")
                            (weir-bench--number "WEIR_BENCH_GETS" "100"))
          ;; Each request takes 0.3 s: one round.
          (let ((process-environment (cons "WEIR_BENCH_ROUNDS=1" process-environment)))
            (weir-bench--http "emacs-http-remote" (concat (nth 1 server) "/notes")
                              (weir-bench--number "WEIR_BENCH_REMOTE_GETS" "20"))
            (weir-bench--replica (nth 0 server))))
      (when (nth 2 server)
        (delete-process (nth 2 server))))))

(defun weir-bench--replica (url)
  "Measure a local replica of the notes at URL."
  (let* ((folder (make-temp-file "weir-bench" t))
         (store (weir-open folder))
         (count (weir-bench--number "WEIR_BENCH_REMOTE_GETS" "20"))
         (text (with-current-buffer (url-retrieve-synchronously (concat url "/notes") t)
                 (buffer-substring (1+ url-http-end-of-headers) (point-max)))))
    (unwind-protect
        (progn
          (weir-await (weir-create store "notes"))
          (weir-await (weir-put store "notes" "all" text))
          (cl-assert (weir-bench--notes-of (weir-get store "notes" "all")))
          (weir-bench--row
           "emacs-http-remote" (format "%d requests" count)
           (list (cons "local replica"
                       (lambda ()
                         (dotimes (_ count)
                           (weir-bench--notes-of (weir-get store "notes" "all"))))))))
      (weir-close store)
      (delete-directory folder t))))

(defun weir-bench--jira-reads (site)
  "Measure how fast the replica of SITE answers."
  (let* ((handle (weir-jira--site-handle site))
         (all (weir--jira-list handle ""))
         (size (weir--jira-size all))
         (keys (weir--jira-keys handle all 0 size))
         (at 0)
         ;; Types one word after the other, letter by letter, so that no two
         ;; consecutive answers are equal.
         (typed '("p" "pr" "pri" "prin" "q" "qu" "que" "o" "of" "off" "offl"))
         (strokes 0))
    (weir-bench--row
     "emacs-jira" size
     (list (cons "first screen" (lambda () (weir-jira-list "" site)))
           (cons "open an issue"
                 (lambda ()
                   (weir-jira--show site (nth at keys))
                   (setq at (mod (+ at 97) size))))
           (cons "search keystroke"
                 (lambda ()
                   (weir-jira--list-buffer "*bench*" site "" :words (nth strokes typed))
                   (setq strokes (mod (1+ strokes) (length typed)))))
           (cons "offline JQL"
                 (lambda () (weir--jira-list handle "status = Done AND text ~ \"printer\"")))
           (cons "100 reads of the issue list"
                 (lambda ()
                   (dotimes (_ 100)
                     (weir--jira-rows handle all 0 50 weir-jira-columns))))))))

(defun weir-bench-jira ()
  "Measure a replica: WEIR_BENCH_JIRA is its `weir-jira-directory'."
  (let ((weir-jira-directory (or (getenv "WEIR_BENCH_JIRA") (error "No WEIR_BENCH_JIRA")))
        (weir-jira-sync-interval nil)
        (site nil))
    (weir-jira--open (weir-jira--default) (lambda (opened) (setq site opened)))
    (while (not site)
      (accept-process-output nil 0.05))
    (weir-bench--jira-reads site)
    (weir-jira-close)))

(defun weir-bench--longest-stop (done)
  "Wait for DONE to return non-nil; return the longest stop meanwhile, in ns.
A stop is the time between two turns of a loop that waits for 1 ms at most.
The result is (STOP . GC), GC the time of garbage collections in the stop."
  (let ((longest '(0 . 0))
        (before (float-time))
        (collected gc-elapsed))
    (while (not (funcall done))
      (accept-process-output nil 0.001)
      (let ((now (float-time)))
        (when (> (- now before) (car longest))
          (setq longest (cons (- now before) (- gc-elapsed collected))))
        (setq before now
              collected gc-elapsed)))
    (cons (* 1e9 (car longest)) (* 1e9 (cdr longest)))))

(defun weir-bench-jira-pauses (&optional reads)
  "Measure the longest stops of Emacs while it syncs, as jira-freeze.
If READS is non-nil, measure how fast the replica answers as well.  The site is
`weir jira-sim' with WEIR_BENCH_ISSUES issues, by default 10,000."
  (weir--ensure)
  (let* ((issues (weir-bench--number "WEIR_BENCH_ISSUES" "10000"))
         (weir-jira-directory (make-temp-file "weir-bench" t))
         (weir-jira-default-site nil)
         (weir-jira-sync-interval nil)
         (weir-jira-push-at-once nil)
         (inhibit-message t)
         (text "")
         (simulator (make-process
                     :name "weir-jira-sim" :noquery t :connection-type 'pipe
                     :command (list (getenv "WEIR_BINARY") "jira-sim" "--port" "0"
                                    "--issues" (number-to-string issues))
                     :filter #'ignore
                     :stderr (make-pipe-process
                              :name "weir-jira-sim-stderr" :noquery t :sentinel #'ignore
                              :filter (lambda (_ new) (setq text (concat text new)))))))
    (unwind-protect
        (cl-labels ((row (column start)
                      (funcall start)
                      (pcase-let ((`(,stop . ,gc) (weir-bench--longest-stop #'idle)))
                        (puthash (list "jira-freeze" issues column) (list stop)
                                 weir-bench--results)
                        (weir-bench--print
                         :experiment "jira-freeze" :row issues :column column :max_ns stop
                         :gc_ns gc)))
                    (site () (car weir-jira--sites))
                    (idle () (and (site)
                                  (null (weir-jira--site-pull (site)))
                                  (or (weir-jira--site-last-pull (site))
                                      (weir-jira--site-failure (site))))))
          (while (not (string-match "http://[0-9.:]+" text))
            (unless (or (accept-process-output nil 30) (process-live-p simulator))
              (error "The command `weir jira-sim' did not start: %s" text)))
          (let ((url (match-string 0 text)))
            (row "full load" (lambda () (weir-jira-setup url "")))
            (row "pull without changes" (lambda () (weir-jira--pull (site) nil nil)))
            (weir-bench--idle-pull issues (site))
            (row "push of one change"
                 (lambda ()
                   (let ((queued nil))
                     (weir-jira--change-then (site) (lambda () (setq queued t))
                                             "edit" '("AA-1" "summary" "Another summary"))
                     (while (not queued)
                       (accept-process-output nil 0.05)))
                   (weir-jira--push (site))))
            (row "site that does not answer for 2 s"
                 (lambda ()
                   (signal-process simulator 'SIGSTOP)
                   (run-at-time 2 nil (lambda () (signal-process simulator 'SIGCONT)))
                   (weir-jira--pull (site) nil nil)))
            ;; They grow the heap, and with it each garbage collection.
            (when reads
              (weir-bench--jira-reads (site)))))
      (weir-jira-close)
      (delete-process simulator)
      (delete-directory weir-jira-directory t))))

(defun weir-bench--idle-pull (issues site)
  "Print the cost of a pull of SITE without any change.  It has ISSUES."
  (let ((report nil))
    (weir--expect (weir--jira-pull (weir-jira--site-handle site) (weir-jira--token site) nil nil nil)
                  (lambda (_ value) (setq report value)))
    (while (not report)
      (accept-process-output nil 0.01))
    (dolist (what '(:requests :writes))
      (puthash (list "jira-sync-idle" issues (substring (symbol-name what) 1))
               (list (plist-get report what)) weir-bench--results))
    (weir-bench--print :experiment "jira-sync-idle" :row issues :column "pull without changes"
                       :requests (plist-get report :requests)
                       :writes (plist-get report :writes))))

;;;; Bars

(defun weir-bench--least (experiment row column)
  "Return the least nanoseconds of COLUMN of ROW of EXPERIMENT."
  (apply #'min (or (gethash (list experiment row column) weir-bench--results)
                   (error "Nothing was measured as %s, %s, %s" experiment row column))))

(defun weir-bench--median-ratio (experiment row column other)
  "Return the median ratio of COLUMN to OTHER over the rounds.
Both are columns of ROW of EXPERIMENT."
  (let ((ratios (sort (cl-mapcar #'/
                                 (gethash (list experiment row column) weir-bench--results)
                                 (gethash (list experiment row other) weir-bench--results))
                      #'<)))
    (nth (/ (length ratios) 2) ratios)))

(defun weir-bench--bar (name measured limit unit)
  "Print the bar NAME: the MEASURED value and its LIMIT, both in UNIT."
  (weir-bench--print :experiment "bar" :row name :measured measured :limit limit :unit unit
                     :holds (if (<= measured limit) t :false)))

(defun weir-bench--print-bars ()
  "Print each bar with its measured value."
  (cl-flet* ((of (experiment row column) (weir-bench--least experiment row column))
             ;; The time of the surrounding loop is subtracted.
             (net (experiment row column)
               (max 0.1 (- (of experiment row column) (of experiment row "nothing"))))
             (string (column) (net "emacs-strings" 10000 column)))
    (weir-bench--bar "call without argument, by a bare module function"
                     (/ (net "emacs-call" "no argument" "module")
                        (net "emacs-call" "no argument" "bare module function"))
                     1.2 "ratio")
    (weir-bench--bar "receive a string of 10 kB" (string "to Rust, not read") 120 "ns")
    (weir-bench--bar "receive a string of 10 kB: minimum of any module"
                     (string "bare module function, to Rust") 120 "ns")
    (weir-bench--bar "hand 10 kB of bytes" (string "to Lisp, bytes") 500 "ns")
    (weir-bench--bar "hand 10 kB of bytes: minimum of any module"
                     (string "bare module function, to Lisp, bytes") 500 "ns")
    (weir-bench--bar "JSON tree of depth 10, checked entirely, by typed serde"
                     (weir-bench--median-ratio "emacs-json" 10 "module, checked entirely"
                                               "module, typed serde")
                     0.6 "ratio")
    (weir-bench--bar "100 local GETs, by a socket of Lisp"
                     (weir-bench--median-ratio "emacs-http-local" "100 requests"
                                               "2 Lisp over the module" "Lisp alone, socket")
                     0.85 "ratio")
    (let ((issues (weir-bench--number "WEIR_BENCH_ISSUES" "10000")))
      (pcase-dolist (`(,column . ,ms) '(("first screen" . 16) ("open an issue" . 10)
                                        ("search keystroke" . 16) ("offline JQL" . 30)
                                        ("100 reads of the issue list" . 5)))
        (weir-bench--bar column (/ (of "emacs-jira" issues column) 1e6) ms "ms"))
      (dolist (column '("full load" "pull without changes" "push of one change"
                        "site that does not answer for 2 s"))
        (weir-bench--bar (concat "longest stop: " column)
                         (/ (of "jira-freeze" issues column) 1e6) 50 "ms"))
      (weir-bench--bar "pull without changes: requests"
                       (of "jira-sync-idle" issues "requests") 1 "requests")
      (weir-bench--bar "pull without changes: writes"
                       (of "jira-sync-idle" issues "writes") 0 "records"))))

(defun weir-bench-bars ()
  "Measure everything that has a bar, and print each bar.
The command `weir' is in the variable WEIR_BINARY.  Byte-compile this file and
use a release build of the module; otherwise the bars are meaningless."
  (setq weir-module-file (or weir-module-file (getenv "WEIR_MODULE")))
  (weir--ensure)
  (weir-bench--about)
  ;; First, because the other rows grow the heap.
  (weir-bench-jira-pauses t)
  ;; A call takes nanoseconds: its least time needs more rounds.
  (let ((process-environment (cons "WEIR_BENCH_ROUNDS=21" process-environment)))
    (weir-bench-call))
  (weir-bench-strings '(10000))
  (weir-bench-json '(10))
  (weir-bench--bars-http)
  (weir-bench--print-bars))

(defun weir-bench--bars-http ()
  "Measure 100 local requests of the two clients that a bar compares."
  (let ((server (weir-bench--server)))
    (unwind-protect
        (weir-bench--row
         "emacs-http-local" "100 requests"
         (cl-remove-if-not
          (lambda (one) (member (car one) '("2 Lisp over the module" "Lisp alone, socket")))
          (weir-bench--clients (concat (nth 0 server) "/notes") 100)))
      (weir-bench--close-socket)
      (delete-process (nth 2 server)))))

(defun weir-bench-all ()
  "Run all experiments.
Those of HTTP run if there is a server, that of Jira if it has a replica."
  (setq weir-module-file (or weir-module-file (getenv "WEIR_MODULE")))
  (weir--ensure)
  (weir-bench--about)
  (weir-bench-call)
  (weir-bench-strings)
  (weir-bench-json)
  (when (or (getenv "WEIR_BINARY") (getenv "WEIR_BENCH_NOTES"))
    (weir-bench-http))
  (when (getenv "WEIR_BENCH_JIRA")
    (weir-bench-jira)))

(provide 'weir-bench)
;;; weir-bench.el ends here
