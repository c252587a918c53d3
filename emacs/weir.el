;;; weir.el --- Durable topics of records in a store or at a server -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: data, tools
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Weir is a durable event store: topics of records, each with an optional
;; key.  This package opens a store in the Emacs process or connects to a
;; server, through a dynamic module that `weir-module-file' names.
;;
;; Reads answer at once.  Writes and followers run on threads of the module;
;; their results arrive through a pipe, so that no command waits for a disk.
;;
;; `M-x weir-browse' shows the topics of a store; RET follows one live.

;;; Code:

(require 'cl-lib)
(require 'tabulated-list)

(declare-function weir--close "ext:weir-module")
(declare-function weir--connect "ext:weir-module")
(declare-function weir--drain "ext:weir-module")
(declare-function weir--follow "ext:weir-module")
(declare-function weir--get "ext:weir-module")
(declare-function weir--module-version "ext:weir-module")
(declare-function weir--open "ext:weir-module")
(declare-function weir--read "ext:weir-module")
(declare-function weir--scan "ext:weir-module")
(declare-function weir--start "ext:weir-module")
(declare-function weir--stop "ext:weir-module")
(declare-function weir--submit "ext:weir-module")
(declare-function weir--topics "ext:weir-module")

(defgroup weir nil
  "An event store in Emacs, or at a server."
  :group 'applications
  :prefix "weir-")

(defcustom weir-module-file nil
  "File of the dynamic module; nil means `weir-module' on `load-path'."
  :type '(choice (const :tag "On load-path" nil) file)
  :package-version '(weir . "0.1.0"))

(defcustom weir-timeout 10
  "Seconds that `weir-await' waits for a write."
  :type 'number
  :package-version '(weir . "0.1.0"))

;;;; Conditions

(define-error 'weir-error "Weir")
(define-error 'weir-usage "Wrong use of Weir" 'weir-error)
(define-error 'weir-not-found "Not found" 'weir-error)
(define-error 'weir-exists "It exists" 'weir-error)
(define-error 'weir-rejected "The write was rejected" 'weir-error)
(define-error 'weir-conflict "The write conflicts" 'weir-error)
(define-error 'weir-locked "The store is open in another process" 'weir-error)
(define-error 'weir-storage "The store failed" 'weir-error)
(define-error 'weir-network "The server cannot be reached" 'weir-error)
(define-error 'weir-timeout "No answer in time" 'weir-network)

;;;; Module and pipe

(defconst weir-version "0.1.0"
  "Version of this package; that of the module must be equal.")

(defvar weir--pipe nil "The pipe process at which the module rings.")
(defvar weir--callbacks (make-hash-table) "Functions of operations, by number.")
(defvar weir--results (make-hash-table) "Results that nobody has awaited, by number.")

(defun weir--ensure ()
  "Load the module and make the pipe, unless that was done."
  (unless (fboundp 'weir--open)
    (unless module-file-suffix
      (signal 'weir-usage '("This Emacs loads no modules; use Emacs 28.1 or later")))
    (if weir-module-file
        (module-load (expand-file-name weir-module-file))
      (require 'weir-module))
    (unless (equal (weir--module-version) weir-version)
      (signal 'weir-usage
              (list (format "weir.el is %s, the module is %s; install both of one version"
                            weir-version (weir--module-version))))))
  (unless (process-live-p weir--pipe)
    ;; With adaptive reading each result would wait for about 24 ms.
    (let ((process-adaptive-read-buffering nil))
      (setq weir--pipe (make-pipe-process
                        :name "weir" :buffer nil :noquery t
                        :coding 'no-conversion :filter #'weir--wake)))
    (weir--start weir--pipe)))

(defun weir--wake (&rest _)
  "Take the results of the module and hand them to their callbacks."
  (let ((more t))
    (while more
      (pcase-let ((`(,left . ,results) (weir--drain)))
        (setq more left)
        (dolist (result results)
          (weir--deliver result))))))

(defun weir--deliver (result)
  "Hand RESULT, a list (ID STATUS VALUE), to whom it belongs."
  (pcase-let* ((`(,id ,status ,value) result)
               (callback (gethash id weir--callbacks)))
    (unless (eq status 'rows)
      (remhash id weir--callbacks))
    (cond
     ((functionp callback) (run-at-time 0 nil #'weir--call callback status value))
     ((eq callback 'await) (puthash id (cons status value) weir--results))
     ((eq status 'failed)
      (display-warning 'weir (error-message-string value))))))

(defun weir--call (callback status value)
  "Call CALLBACK with STATUS and VALUE; an error in it becomes a warning."
  (condition-case error
      (funcall callback status value)
    (error (display-warning 'weir (error-message-string error)))))

;;;; Stores

(defun weir-open (directory)
  "Open the store in DIRECTORY in this process, and return it."
  (weir--ensure)
  (weir--open (expand-file-name directory)))

(defun weir-connect (url)
  "Connect to the server at URL, such as weir://localhost:7077.
Return a store that is used like one of `weir-open'."
  (weir--ensure)
  (weir--connect url))

(defun weir-close (store)
  "Close STORE.  Return t if it was open."
  (weir--close store))

(defun weir-topics (store)
  "Return the topics of STORE as vectors [NAME FIRST LAST KEYS BYTES]."
  (weir--topics store))

;;;; Reads

(defun weir-get (store topic key)
  "Return the value of KEY in TOPIC of STORE, or nil."
  (weir--get store topic key))

(cl-defun weir-scan (store topic &key (prefix "") (limit 1000))
  "Return pairs (KEY . VALUE) of TOPIC in STORE in the order of keys.
PREFIX restricts the keys; at most LIMIT pairs are returned."
  (weir--scan store topic prefix limit))

(cl-defun weir-read (store topic &key (after 0) (limit 1000))
  "Return records of TOPIC in STORE after the offset AFTER, at most LIMIT.
A record is a vector [OFFSET TIME-MS KIND KEY VALUE]."
  (weir--read store topic after limit))

;;;; Writes

(defun weir--write (store kind topic key value callback)
  "Queue a write of KIND with KEY and VALUE to TOPIC of STORE.
CALLBACK gets a status, `done' or `failed', and an offset or an error."
  (weir--ensure)
  (let ((id (weir--submit store kind topic key value)))
    (puthash id (or callback 'await) weir--callbacks)
    id))

(cl-defun weir-create (store topic &key callback)
  "Create TOPIC in STORE if it does not exist, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'create topic nil nil callback))

(cl-defun weir-put (store topic key value &key callback)
  "Write VALUE under KEY to TOPIC of STORE, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'put topic key value callback))

(cl-defun weir-append (store topic value &key callback)
  "Append VALUE without a key to TOPIC of STORE, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'append topic nil value callback))

(cl-defun weir-delete (store topic key &key callback)
  "Delete KEY in TOPIC of STORE, then call CALLBACK.
Return the number of the operation for `weir-await'."
  (weir--write store 'delete topic key nil callback))

(defun weir-await (operation &optional timeout)
  "Wait for OPERATION, a write without a callback, and return its offset.
TIMEOUT is in seconds, `weir-timeout' by default.  A quit ends the wait, not
the write."
  (let ((end (+ (float-time) (or timeout weir-timeout))))
    (while (and (not (gethash operation weir--results)) (< (float-time) end))
      (accept-process-output weir--pipe 0.05))
    (pcase (gethash operation weir--results)
      (`(done . ,offset) (remhash operation weir--results) offset)
      (`(failed . (,symbol . ,data))
       (remhash operation weir--results)
       (signal symbol data))
      (_ (signal 'weir-timeout (list "The write has no answer yet"))))))

;;;; Following

(cl-defun weir-follow (store topic function &key (after 0))
  "Call FUNCTION with each batch of records of TOPIC in STORE.
The first batch begins after the offset AFTER; a batch is a list as that of
`weir-read'.  Return a number for `weir-stop'."
  (weir--ensure)
  (let ((id (weir--follow store topic after)))
    (puthash id
             (lambda (status value)
               (if (eq status 'rows)
                   (funcall function value)
                 (signal (car value) (cdr value))))
             weir--callbacks)
    id))

(defun weir-stop (follower)
  "End FOLLOWER, a number of `weir-follow'.  Return t if it ran."
  (remhash follower weir--callbacks)
  (weir--stop follower))

;;;; Topics browser

(defvar-local weir--store nil "The store that the buffer shows.")
(defvar-local weir--topic nil "The topic that the buffer shows.")
(defvar-local weir--follower nil "The follower of the buffer.")

(defvar weir-browse-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map (kbd "RET") #'weir-browse-tail)
    map)
  "Keys of `weir-browse-mode'.")

(define-derived-mode weir-browse-mode tabulated-list-mode "Weir"
  "Topics of a store."
  (setq tabulated-list-format
        [("Topic" 40 t) ("First" 10 nil) ("Last" 10 nil) ("Keys" 10 nil) ("Bytes" 12 nil)])
  (setq tabulated-list-entries #'weir--entries)
  (tabulated-list-init-header))

(defun weir--entries ()
  "Return the rows of the browser."
  (mapcar (lambda (topic)
            (list (aref topic 0)
                  (vconcat (list (aref topic 0))
                           (mapcar #'number-to-string (cl-subseq topic 1)))))
          (weir-topics weir--store)))

;;;###autoload
(defun weir-browse (store)
  "Show the topics of STORE; interactively, of a store that is opened."
  (interactive (list (weir-open (read-directory-name "Store: "))))
  (let ((buffer (get-buffer-create "*weir*")))
    (with-current-buffer buffer
      (weir-browse-mode)
      (setq weir--store store)
      (tabulated-list-print))
    (pop-to-buffer-same-window buffer)))

(defun weir-browse-tail ()
  "Follow the topic at point."
  (interactive)
  (let ((topic (tabulated-list-get-id)))
    (unless topic
      (user-error "No topic here"))
    (weir-tail weir--store topic)))

;;;; Live tail

(define-derived-mode weir-tail-mode special-mode "Weir-Tail"
  "Records of a topic, as they come."
  (setq truncate-lines t)
  (add-hook 'kill-buffer-hook #'weir--tail-end nil t))

(defun weir--tail-end ()
  "End the follower of the buffer."
  (when weir--follower
    (weir-stop weir--follower)
    (setq weir--follower nil)))

(defun weir--line (record)
  "Return RECORD as a line."
  (pcase-let ((`[,offset ,time ,kind ,key ,value] record))
    (format "%8d  %s  %-8s %s  %s\n" offset
            (format-time-string "%F %T" (/ time 1000)) kind key
            (replace-regexp-in-string "\n" " " value))))

(defun weir-tail (store topic)
  "Show the records of TOPIC in STORE, and each new one as it comes."
  (let ((buffer (generate-new-buffer (format "*weir %s*" topic))))
    (with-current-buffer buffer
      (weir-tail-mode)
      (setq weir--store store
            weir--topic topic
            weir--follower
            (weir-follow store topic
                         (lambda (records) (weir--tail-insert buffer records)))))
    (pop-to-buffer buffer)
    buffer))

(defun weir--tail-insert (buffer records)
  "Insert RECORDS at the end of BUFFER, in one piece."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t)
            (at-end (eobp)))
        (save-excursion
          (goto-char (point-max))
          (insert (mapconcat #'weir--line records "")))
        (when at-end
          (goto-char (point-max)))))))

(provide 'weir)
;;; weir.el ends here
