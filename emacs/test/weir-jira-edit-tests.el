;;; weir-jira-edit-tests.el --- Tests of changes at a simulated site -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Tests that changes are queued, shown, pushed, and executed at the site.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'org)
(require 'weir-jira-tests)

(declare-function weir--jira-offered "ext:weir-module")
(declare-function weir--jira-list "ext:weir-module")
(declare-function weir--jira-outbox "ext:weir-module")

(defun weir-jira-edit-tests-site (url)
  "Set up the site at URL and show its first issue; return (SITE . KEY)."
  (let ((site (weir-jira-tests-pulled url)))
    (weir-jira-list "ORDER BY key ASC" site)
    (goto-char (point-min))
    (let ((key (weir-jira--key-or-error)))
      (set-buffer (weir-jira--show site key))
      (cons site key))))

(defun weir-jira-edit-tests-ops (site)
  "Return the operations in the outbox of SITE."
  (weir--jira-outbox (weir-jira--site-handle site) nil))

(defun weir-jira-edit-tests-queued (site count)
  "Wait until the outbox of SITE has COUNT operations; return them."
  (weir-tests-until (lambda () (= (length (weir-jira-edit-tests-ops site)) count)))
  (weir-jira-edit-tests-called)
  (weir-jira-edit-tests-ops site))

(defun weir-jira-edit-tests-called ()
  "Wait until each callback has run, including the refresh of buffers."
  (weir-tests-until
   (lambda ()
     (and (= (hash-table-count weir--callbacks) 0)
          (not (cl-some (lambda (timer) (eq (timer--function timer) #'weir--call))
                        timer-list))))))

(defun weir-jira-edit-tests-settled (site)
  "Wait until every change of SITE is queued; return the outbox.
Changes of the same issue may become one operation."
  (weir-jira-edit-tests-called)
  (should-not (weir-jira--site-failure site))
  (weir-jira-edit-tests-ops site))

(defun weir-jira-edit-tests-push (site)
  "Push the outbox of SITE, wait for the end, and return the rest of it."
  (weir-jira--push site)
  (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
  (should-not (weir-jira--site-failure site))
  (weir-jira-edit-tests-ops site))

(defun weir-jira-edit-tests-at-site (url key &rest path)
  "Return the value at PATH in the fields of the issue KEY at the site URL."
  (with-current-buffer (url-retrieve-synchronously (concat url "/rest/api/3/issue/" key) t)
    (goto-char (point-min))
    (search-forward "\n\n")
    (let ((value (alist-get 'fields (json-parse-buffer :object-type 'alist :null-object nil))))
      (kill-buffer)
      (dolist (name path)
        (setq value (alist-get name value)))
      value)))

(ert-deftest weir-jira-edit-tests-a-field-is-changed-offline-and-sent-later ()
  (weir-jira-tests-with url '("--issues" "10")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      ;; Edits the field at point.
      (goto-char (point-min))
      (re-search-forward "^Summary")
      (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "Typed offline")))
        (call-interactively #'weir-jira-set-field))
      (let ((ops (weir-jira-edit-tests-queued site 1)))
        (should (equal (plist-get (car ops) :state) "queued"))
        (should (equal (plist-get (car ops) :key) key)))
      ;; The change is shown before it is sent, in the issue and in the list.
      (with-current-buffer weir-jira--issue-buffer
        (should (string-match-p "^Summary     Typed offline$" (buffer-string)))
        (should (string-match-p "^● queued  summary" (buffer-string))))
      (with-current-buffer (format "*jira %s*" (weir-jira--site-name site))
        (should (string-match-p (format "^● %s .*Typed offline" key) (buffer-string))))
      (should-not (equal (weir-jira-edit-tests-at-site url key 'summary) "Typed offline"))
      (should-not (weir-jira-edit-tests-push site))
      (should (equal (weir-jira-edit-tests-at-site url key 'summary) "Typed offline"))
      (with-current-buffer weir-jira--issue-buffer
        (should-not (string-match-p "●" (buffer-string)))))))

(ert-deftest weir-jira-edit-tests-the-edit-buffer ()
  (weir-jira-tests-with url '("--issues" "10")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (let ((before (weir-jira-edit-tests-at-site url key 'priority 'name)))
        (weir-jira-edit key)
        (set-buffer (window-buffer))
        (should (derived-mode-p 'org-mode))
        (goto-char (point-min))
        (re-search-forward "^#\\+SUMMARY: .*$")
        (replace-match "#+SUMMARY: New head" t t)
        (goto-char (point-max))
        (insert "\nA paragraph with *bold* words.\n")
        (weir-jira-edit-commit)
        (let ((op (car (weir-jira-edit-tests-queued site 1))))
          (should (equal (plist-get op :kind) "edit")))
        (should-not (weir-jira-edit-tests-push site))
        (should (equal (weir-jira-edit-tests-at-site url key 'summary) "New head"))
        (should (equal (weir-jira-edit-tests-at-site url key 'priority 'name) before))
        (set-buffer (weir-jira--show site key))
        (should (string-match-p "^A paragraph with \\*bold\\* words\\.$" (buffer-string))))
      ;; An unchanged field is not sent.
      (weir-jira-edit key)
      (set-buffer (window-buffer))
      (weir-jira-edit-commit)
      (should-not (weir-jira-edit-tests-ops site))
      ;; An unknown field is rejected, and the buffer remains.
      (set-buffer (weir-jira--show site key))
      (weir-jira-edit key)
      (set-buffer (window-buffer))
      (goto-char (point-min))
      (insert "#+NOFIELD: x\n")
      (should-error (weir-jira-edit-commit) :type 'user-error)
      (set-buffer-modified-p nil)
      (weir-jira-edit-abort)
      (should-not (weir-jira-edit-tests-ops site)))))

(ert-deftest weir-jira-edit-tests-broken-and-huge-texts-are-shown ()
  (weir-jira-tests-with url '("--issues" "20")
    (let ((site (weir-jira-tests-pulled url))
          (documents
           '((5 . "not a valid document")
             (((type . "doc") (version . 1) (content . "x")) . "not a valid document")
             (((type . "doc") (version . 1)
               (content . [((type . "paragraph") (content . [((type . "text") (text . "left"))])) 7]))
              . "^left")
             ;; An unknown node of a later version is preserved.
             (((type . "doc") (version . 1)
               (content . [((type . "hologram") (attrs . ((depth . 3))))]))
              . "{{{adf(1)}}}")))
          (number 0))
      (dolist (document documents)
        (setq number (1+ number))
        (weir-jira-tests-post url "/_sim/edit"
                              `((issue . ,(format "AA-%d" number))
                                (fields . ((description . ,(car document)))))))
      ;; Ten megabytes in one line; a buffer shows the beginning.
      (weir-jira-tests-post
       url "/_sim/edit"
       `((issue . "AA-6")
         (fields . ((description
                     . ((type . "doc") (version . 1)
                        (content . [((type . "paragraph")
                                     (content . [((type . "text")
                                                  (text . ,(make-string (ash 10 20) ?x)))]))])))))))
      (should-not (weir-jira-tests-sync site))
      (setq number 0)
      (dolist (document documents)
        (setq number (1+ number))
        (with-current-buffer (weir-jira--show site (format "AA-%d" number))
          (should (string-match-p "^\\* Description" (buffer-string)))
          (should (string-match-p (cdr document) (buffer-string)))))
      (with-current-buffer (weir-jira--show site "AA-6")
        (should (< (buffer-size) 200000))
        (should (string-match-p "^([0-9]+ more bytes are not shown here" (buffer-string))))
      ;; Unchanged fields stay as they are at the site, valid or not.
      (set-buffer (weir-jira--show site "AA-2"))
      (weir-jira-edit "AA-2")
      (set-buffer (window-buffer))
      (goto-char (point-min))
      (re-search-forward "^#\\+SUMMARY: .*$")
      (replace-match "#+SUMMARY: A new head" t t)
      (weir-jira-edit-commit)
      (weir-jira-edit-tests-queued site 1)
      (should-not (weir-jira-edit-tests-push site))
      (should (equal (weir-jira-edit-tests-at-site url "AA-2" 'description 'content) "x"))
      (with-current-buffer (weir-jira--show site "AA-2")
        (should (string-match-p "^Summary     A new head$" (buffer-string)))
        (should (string-match-p "not a valid document" (buffer-string)))))))

(defun weir-jira-edit-tests-elsewhere (url key fields)
  "Set FIELDS, an alist, of the issue KEY at URL, as another user."
  (let ((url-request-method "PUT")
        (url-request-extra-headers '(("Content-Type" . "application/json")))
        (url-request-data (encode-coding-string (json-serialize `((fields . ,fields))) 'utf-8)))
    (kill-buffer (url-retrieve-synchronously (concat url "/rest/api/3/issue/" key) t))))

(ert-deftest weir-jira-edit-tests-a-pull-beside-an-edit-buffer-loses-no-change ()
  (weir-jira-tests-with url '("--issues" "5")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (weir-jira-edit key)
      (let ((buffer (window-buffer)))
        (weir-jira-edit-tests-elsewhere url key '((summary . "Of a colleague")))
        (weir-jira--pull site nil nil)
        (weir-tests-until (lambda () (null (weir-jira--site-pull site))))
        (with-current-buffer buffer
          (goto-char (point-min))
          (re-search-forward "^#\\+SUMMARY: .*$")
          (replace-match "#+SUMMARY: Of mine" t t)
          (weir-jira-edit-commit)))
      (weir-jira-edit-tests-queued site 1)
      (should (equal (plist-get (car (weir-jira-edit-tests-push site)) :state) "conflict"))
      (should (equal (weir-jira-edit-tests-at-site url key 'summary) "Of a colleague")))))

(ert-deftest weir-jira-edit-tests-a-refused-text-is-kept ()
  (weir-jira-tests-with url '("--issues" "5")
    (pcase-let ((`(,site . ,_) (weir-jira-edit-tests-site url)))
      (weir-jira-comment)
      (let ((buffer (window-buffer)))
        (with-current-buffer buffer
          (insert "An hour of work.\n#+begin_src\nnever closed\n")
          (weir-jira-edit-commit)
          (should-error (weir-jira-edit-commit) :type 'user-error))
        (should-not (get-buffer-window buffer))
        (weir-jira-edit-tests-called)
        (should-not (weir-jira-edit-tests-ops site))
        (should (get-buffer-window buffer))
        (with-current-buffer buffer
          (should (string-prefix-p "An hour of work." (buffer-string)))
          (goto-char (point-max))
          (insert "#+end_src\n")
          (weir-jira-edit-commit))
        (weir-jira-edit-tests-queued site 1)
        (should-not (buffer-live-p buffer))))))

(ert-deftest weir-jira-edit-tests-every-change-reaches-the-site ()
  (weir-jira-tests-with url '("--issues" "10" "--comments" "0")
    (pcase-let* ((`(,site . ,key) (weir-jira-edit-tests-site url))
                 (project (car (split-string key "-")))
                 (issue (current-buffer))
                 (transitions (weir-jira--offered "transitions")))
      (weir-jira-assign-me)
      (weir-jira-edit-tests-queued site 1)
      (weir-jira-label "+fromemacs")
      (weir-jira-edit-tests-settled site)
      (weir-jira-comment)
      (set-buffer (window-buffer))
      (insert "A comment with /emphasis/.")
      (weir-jira-edit-commit)
      (weir-jira-edit-tests-settled site)
      (set-buffer issue)
      (weir-jira-worklog "1h30m" "worked")
      (weir-jira-edit-tests-settled site)
      (weir-jira-watch)
      (weir-jira-edit-tests-settled site)
      (weir-jira-create project "Task" "Made in Emacs")
      (weir-jira-edit-tests-settled site)
      (when transitions
        (weir-jira-transition (car transitions))
        (weir-jira-edit-tests-settled site))
      (should (equal (weir-jira-edit-tests-push site) nil))
      (should (weir-jira-edit-tests-at-site url key 'assignee))
      (should (seq-contains-p (weir-jira-edit-tests-at-site url key 'labels) "fromemacs"))
      (weir-jira-list "summary ~ \"Made in Emacs\"" site)
      (should (= (weir-jira-tests-rows) 1))
      ;; The comment exists; it is edited, then deleted.
      (set-buffer (weir-jira--show site key))
      (should (string-match-p "^A comment with /emphasis/\\.$" (buffer-string)))
      (should (string-match-p "^\\* Worklogs (1)" (buffer-string)))
      (goto-char (point-min))
      (re-search-forward "^A comment")
      (weir-jira-comment-edit (weir-jira--comment-or-error))
      (set-buffer (window-buffer))
      (erase-buffer)
      (insert "Another text")
      (weir-jira-edit-commit)
      (weir-jira-edit-tests-queued site 1)
      (should-not (weir-jira-edit-tests-push site))
      (set-buffer (weir-jira--show site key))
      (should (string-match-p "^Another text$" (buffer-string)))
      (goto-char (point-min))
      (re-search-forward "^Another text")
      (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
        (weir-jira-comment-delete (weir-jira--comment-or-error)))
      (weir-jira-edit-tests-queued site 1)
      (should-not (weir-jira-edit-tests-push site))
      (set-buffer (weir-jira--show site key))
      (should-not (string-match-p "Another text" (buffer-string)))
      ;; Clone and delete; the user must type the key.
      (weir-jira-clone "A copy")
      (weir-jira-edit-tests-settled site)
      (should-not (weir-jira-edit-tests-push site))
      (weir-jira-list "summary ~ \"A copy\"" site)
      (should (= (weir-jira-tests-rows) 1))
      (goto-char (point-min))
      (should-error (weir-jira-delete "AA-9999") :type 'user-error)
      (weir-jira-delete (weir-jira--key-or-error))
      (weir-jira-edit-tests-queued site 1)
      (should-not (weir-jira-edit-tests-push site))
      (weir-jira-list "summary ~ \"A copy\"" site)
      (should (= (weir-jira-tests-rows) 0)))))

(defun weir-jira-edit-tests-conflict (site key url mine theirs)
  "Make a conflict about the summary of the issue KEY of SITE at URL.
MINE is the local value, THEIRS is the value of another user."
  (weir-jira--change site "edit" key "summary" mine)
  (weir-jira-edit-tests-queued site 1)
  (weir-jira-tests-post url "/_sim/edit" `((issue . ,key) (fields . ((summary . ,theirs)))))
  (let ((left (weir-jira-edit-tests-push site)))
    (should (equal (plist-get (car left) :state) "conflict"))
    (weir-jira-outbox)
    (set-buffer "*jira outbox*")
    (should (string-match-p "conflict" (buffer-string)))
    (goto-char (point-min))))

(ert-deftest weir-jira-edit-tests-a-conflict-is-shown-and-resolved ()
  (weir-jira-tests-with url '("--issues" "10")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (weir-jira-edit-tests-conflict site key url "Mine" "Theirs")
      (should (equal (weir-jira-edit-tests-at-site url key 'summary) "Theirs"))
      (weir-jira-outbox-theirs)
      (weir-jira-edit-tests-queued site 0)
      (weir-jira-edit-tests-conflict site key url "Mine" "Theirs 2")
      (weir-jira-outbox-mine)
      (weir-tests-until
       (lambda () (not (equal (plist-get (car (weir-jira-edit-tests-ops site)) :state) "conflict"))))
      (should-not (weir-jira-edit-tests-push site))
      (should (equal (weir-jira-edit-tests-at-site url key 'summary) "Mine"))
      ;; Both versions are merged in one buffer.
      (weir-jira-edit-tests-conflict site key url "Mine 3" "Theirs 3")
      (weir-jira-outbox-merge)
      (set-buffer (window-buffer))
      (should (string-match-p "^<<<<<<< mine\nMine 3\n" (buffer-string)))
      (should-error (weir-jira-edit-commit) :type 'user-error)
      (erase-buffer)
      (insert "Both")
      (weir-jira-edit-commit)
      (weir-tests-until
       (lambda () (not (equal (plist-get (car (weir-jira-edit-tests-ops site)) :state) "conflict"))))
      (should-not (weir-jira-edit-tests-push site))
      (should (equal (weir-jira-edit-tests-at-site url key 'summary) "Both"))
      (weir-jira--change site "edit" key "summary" "Dropped")
      (weir-jira-edit-tests-queued site 1)
      (weir-jira-outbox)
      (set-buffer "*jira outbox*")
      (goto-char (point-min))
      (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
        (weir-jira-outbox-drop))
      (weir-jira-edit-tests-queued site 0))))

(ert-deftest weir-jira-edit-tests-clocks-become-worklogs-once ()
  (weir-jira-tests-with url '("--issues" "10")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (with-temp-buffer
        (org-mode)
        (insert "* Work\n:PROPERTIES:\n:JIRA_KEY: " key "\n:END:\n"
                "CLOCK: [2026-11-23 Mon 09:00]--[2026-11-23 Mon 10:30] =>  1:30\n"
                "CLOCK: [2026-11-23 Mon 11:00]--[2026-11-23 Mon 11:15] =>  0:15\n")
        (goto-char (point-min))
        (weir-jira-worklog-from-clocks t)
        (should-not (weir-jira-edit-tests-ops site))
        (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
          (weir-jira-worklog-from-clocks)
          (weir-jira-edit-tests-queued site 2)
          (weir-tests-until
           (lambda () (string-match-p "JIRA_LOGGED:.*09:00.*11:00" (buffer-string))))
          (weir-jira-worklog-from-clocks))
        (should (= (length (weir-jira-edit-tests-queued site 2)) 2))
        (should (string-match-p "JIRA_LOGGED" (buffer-string))))
      (should-not (weir-jira-edit-tests-push site))
      (set-buffer (weir-jira--show site key))
      (should (string-match-p "1h 30m" (buffer-string)))
      (should (string-match-p "15m" (buffer-string))))))

(ert-deftest weir-jira-edit-tests-clocks-belong-to-their-heading ()
  (weir-jira-tests-with url '("--issues" "10")
    (pcase-let* ((`(,site . ,key) (weir-jira-edit-tests-site url))
                 (text (concat "* Work\n:PROPERTIES:\n:JIRA_KEY: " key "\n:END:\n"
                               "CLOCK: [2026-11-23 Mon 09:00]--[2026-11-23 Mon 09:10] =>  0:10\n"
                               "CLOCK: [2026-11-23 Mon 09:00]--[2026-11-23 Mon 09:20] =>  0:20\n"
                               "** Part\n"
                               "CLOCK: [2026-11-24 Tue 09:00]--[2026-11-24 Tue 09:30] =>  0:30\n"
                               "** Other issue\n:PROPERTIES:\n:JIRA_KEY: AA-2\n:END:\n"
                               "CLOCK: [2026-11-25 Wed 09:00]--[2026-11-25 Wed 09:40] =>  0:40\n"
                               "*** Part of the other issue\n"
                               "CLOCK: [2026-11-26 Thu 09:00]--[2026-11-26 Thu 09:50] =>  0:50\n"))
                 (log (lambda ()
                        (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
                          (weir-jira-worklog-from-clocks))
                        (weir-jira-edit-tests-called))))
      (with-temp-buffer
        (org-mode)
        (insert text)
        (goto-char (point-min))
        (funcall log)
        (should (= (length (weir-jira-edit-tests-ops site)) 3))
        (goto-char (point-min))
        (search-forward "** Part")
        (should (equal (org-entry-get nil "JIRA_LOGGED")
                       "2026-11-24 Tue 09:00--2026-11-24 Tue 09:30"))
        (search-forward "** Other issue")
        (should-not (org-entry-get nil "JIRA_LOGGED")))
      ;; The recorded clocks are lost, as in an Emacs that was killed before the
      ;; buffer was saved.
      (dotimes (_ 2)
        (with-temp-buffer
          (org-mode)
          (insert text)
          (goto-char (point-min))
          (funcall log)
          (should (org-entry-get nil "JIRA_LOGGED")))
        (should (<= (length (weir-jira-edit-tests-ops site)) 3))
        (should-not (weir-jira-edit-tests-push site)))
      (should-not (weir-jira-edit-tests-ops site)))))

(ert-deftest weir-jira-edit-tests-a-worklog-is-edited-and-deleted ()
  (weir-jira-tests-with url '("--issues" "10")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (cl-flet ((here (pattern)
                  (set-buffer (weir-jira--show site key))
                  (goto-char (point-min))
                  (re-search-forward pattern)))
        (weir-jira-worklog "1h30m" "worked")
        (weir-jira-edit-tests-queued site 1)
        ;; The worklog is shown before it is at the site; it cannot be edited
        ;; yet.
        (here "^\\*\\* .*, 1h 30m$")
        (should-error (weir-jira-worklog-edit (weir-jira--worklog-or-error) "2h"))
        (should-not (weir-jira-edit-tests-push site))
        (here "^\\*\\* .*, 1h 30m$")
        (cl-letf (((symbol-function 'read-string)
                   (lambda (_ initial &rest _)
                     (should (equal initial "1h30m"))
                     "2h15m")))
          (call-interactively #'weir-jira-set-field))
        (set-buffer (window-buffer))
        (should (equal (string-trim (buffer-string)) "worked"))
        (goto-char (point-max))
        (insert " and tested")
        (weir-jira-edit-commit)
        (weir-jira-edit-tests-queued site 1)
        (here "^\\*\\* .*, 2h 15m$")
        (should-not (weir-jira-edit-tests-push site))
        (let ((worklog (seq-elt (weir-jira-edit-tests-at-site url key 'worklog 'worklogs) 0)))
          (should (equal (alist-get 'timeSpentSeconds worklog) 8100)))
        (here "^worked and tested$")
        ;; An unchanged text is not sent.
        (weir-jira-worklog-edit (weir-jira--worklog-or-error) "2h15m")
        (set-buffer (window-buffer))
        (weir-jira-edit-commit)
        (should-not (weir-jira-edit-tests-settled site))
        (here "^worked and tested$")
        (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
          (weir-jira-delete-part))
        (weir-jira-edit-tests-queued site 1)
        (should-not (weir-jira-edit-tests-push site))
        (set-buffer (weir-jira--show site key))
        (should-not (string-match-p "Worklogs" (buffer-string)))
        (should (= (length (weir-jira-edit-tests-at-site url key 'worklog 'worklogs)) 0))))))

(ert-deftest weir-jira-edit-tests-what-is-queued-survives-a-killed-emacs ()
  (weir-jira-tests-with url '("--issues" "5")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (let ((name (weir-jira--site-name site)))
        (weir-jira-close)
        (let* ((said "")
               (child (weir-jira-edit-tests-child
                       name
                       (lambda (new) (setq said (concat said new)))
                       `(weir--expect
                         (weir--jira-change (weir-jira--site-handle site) "edit"
                                            '(,key "summary" "Survives") nil)
                         (lambda (status _) (message "%s" status))))))
          (weir-tests-until (lambda () (string-match-p "done" said)))
          (signal-process child 'SIGKILL)
          (weir-tests-until (lambda () (not (process-live-p child)))))
        (let ((opened (weir-jira-edit-tests-reopen name)))
          (should (= (length (weir-jira-edit-tests-ops opened)) 1))
          (should-not (weir-jira-edit-tests-push opened))
          (should (equal (weir-jira-edit-tests-at-site url key 'summary) "Survives")))))))

(defun weir-jira-edit-tests-child (name filter form)
  "Evaluate FORM in another Emacs with the replica NAME open as `site'.
FILTER gets its output.  Return the process; it ends when it is killed."
  (make-process
   :name "weir-child" :noquery t :connection-type 'pipe
   :filter (lambda (_ new) (funcall filter new))
   :command
   (list (expand-file-name invocation-name invocation-directory)
         "-Q" "--batch" "-L" weir-tests-directory "--eval"
         (prin1-to-string
          `(progn
             (require 'weir-jira)
             (setq weir-module-file ,weir-module-file
                   weir-jira-directory ,weir-jira-directory
                   weir-jira-sync-interval nil
                   weir-jira-push-at-once nil)
             (weir-jira--open ,name (lambda (site) ,form))
             (while t (accept-process-output nil 1)))))))

(defun weir-jira-edit-tests-reopen (name)
  "Open the replica NAME again, and return its site."
  (let ((opened nil))
    (weir-jira--open name (lambda (site) (setq opened site)))
    (weir-tests-until (lambda () opened))
    opened))

(defun weir-jira-edit-tests-marks (value)
  "Return the number of each mark in VALUE, ascending."
  (let ((text (format "%S" value))
        (marks nil)
        (start 0))
    (while (string-match "mark\\([0-9]+\\)x" text start)
      (push (string-to-number (match-string 1 text)) marks)
      (setq start (match-end 0)))
    (sort marks #'<)))

(ert-deftest weir-jira-edit-tests-emacs-is-killed-while-it-queues ()
  (dolist (least '(1 5 20))
    (weir-jira-tests-with url '("--issues" "5")
      (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
        (let ((name (weir-jira--site-name site))
              (said "")
              (child nil))
          (weir-jira-close)
          (setq child
                (weir-jira-edit-tests-child
                 name
                 (lambda (new)
                   (setq said (concat said new))
                   ;; Killed while other changes are being sent.
                   (when (>= (length (weir-jira-edit-tests-marks said)) least)
                     (signal-process child 'SIGKILL)))
                 `(dotimes (number 200)
                    (weir--expect
                     (weir--jira-change (weir-jira--site-handle site) "comment"
                                        (list ,key (format "mark%dx" number)) nil)
                     (lambda (status _) (when (eq status 'done) (message "mark%dx" number)))))))
          (weir-tests-until (lambda () (not (process-live-p child))))
          (let* ((told (weir-jira-edit-tests-marks said))
                 (again (weir-jira-edit-tests-reopen name))
                 (held (weir-jira-edit-tests-marks
                        (mapcar (lambda (op) (plist-get op :what))
                                (weir-jira-edit-tests-ops again)))))
            (should (>= (length told) least))
            (should-not (cl-set-difference told held))
            (should (equal held (delete-dups (copy-sequence held))))))))))

(ert-deftest weir-jira-edit-tests-emacs-is-killed-while-it-pushes ()
  (weir-jira-tests-with url '("--issues" "5" "--latency" "20")
    (pcase-let ((`(,site . ,key) (weir-jira-edit-tests-site url)))
      (let ((name (weir-jira--site-name site))
            (all (number-sequence 0 9)))
        (dolist (number all)
          (weir-jira--change site "comment" key (format "mark%dx" number)))
        (weir-jira-edit-tests-queued site (length all))
        (weir-jira-close)
        (let ((child (weir-jira-edit-tests-child name #'ignore '(weir-jira--push site))))
          ;; Killed after some comments, but not all, have reached the site.
          (weir-tests-until
           (lambda ()
             (>= (length (weir-jira-edit-tests-marks
                          (weir-jira-edit-tests-at-site url key 'comment)))
                 3)))
          (signal-process child 'SIGKILL)
          (weir-tests-until (lambda () (not (process-live-p child)))))
        (let* ((again (weir-jira-edit-tests-reopen name))
               ;; The outcome of the comment that was being sent may still be
               ;; unknown.
               (left (weir-jira-edit-tests-push again))
               (there (weir-jira-edit-tests-marks
                       (weir-jira-edit-tests-at-site url key 'comment)))
               (waiting (weir-jira-edit-tests-marks
                         (mapcar (lambda (op) (plist-get op :what)) left))))
          (should (equal there (delete-dups (copy-sequence there))))
          (should (equal (sort (append there waiting) #'<) all)))))))

(ert-deftest weir-jira-edit-tests-a-clock-that-was-refused-is-not-noted ()
  (weir-jira-tests-with url '("--issues" "5")
    (weir-jira-edit-tests-site url)
    (with-temp-buffer
      (org-mode)
      (insert "* Work\n:PROPERTIES:\n:JIRA_KEY: NO-1\n:END:\n"
              "CLOCK: [2026-11-23 Mon 09:00]--[2026-11-23 Mon 10:30] =>  1:30\n")
      (goto-char (point-min))
      (cl-letf (((symbol-function 'yes-or-no-p) (lambda (&rest _) t)))
        (weir-jira-worklog-from-clocks))
      (weir-tests-until (lambda ()
                          (with-current-buffer "*weir-jira-log*"
                            (string-match-p "no issue NO-1" (buffer-string)))))
      (should-not (string-match-p "JIRA_LOGGED" (buffer-string))))))

(ert-deftest weir-jira-edit-tests-fields-of-a-transition-and-of-a-new-issue ()
  (weir-jira-tests-with url '("--issues" "5")
    (pcase-let* ((`(,site . ,key) (weir-jira-edit-tests-site url))
                 (handle (weir-jira--site-handle site)))
      ;; An issue whose creation is queued has fields and statuses too.
      (weir-jira-create "AA" "Task" "Fresh")
      (weir-jira-edit-tests-queued site 1)
      (dolist (what '("fields" "transitions"))
        (should (weir--jira-offered handle what "AA+1")))
      (should-not (weir--jira-offered handle "required" "AA\nTask"))
      (should (equal (mapcar (lambda (info) (plist-get info :id))
                             (weir--jira-offered handle "required" "AA\nSubtask"))
                     '("parent")))
      (should-not (weir-jira-edit-tests-push site))
      ;; A push to a status shows which fields its screen has.
      (weir-jira-tests-post url "/_sim/edit"
                            `((issue . ,key) (fields . ((status . ((id . "1") (name . "To Do")))))))
      (weir-jira-tests-sync site)
      (with-current-buffer weir-jira--issue-buffer
        (weir-jira--show site key)
        (weir-jira-transition "In Progress")
        (weir-jira-edit-tests-queued site 1)
        (should-not (weir-jira-edit-tests-push site))
        (weir-jira-tests-post url "/_sim/edit"
                              `((issue . ,key) (fields . ((status . ((id . "1") (name . "To Do")))))))
        (weir-jira-tests-sync site)
        (should (equal (plist-get (car (weir--jira-offered handle "screen" (concat key "\nDone")))
                                  :id)
                       "resolution"))
        (cl-letf (((symbol-function 'completing-read)
                   (lambda (prompt &rest _) (if (equal prompt "Status: ") "Done" "Fixed")))
                  ((symbol-function 'read-string) (lambda (&rest _) "shipped")))
          (let ((current-prefix-arg '(4)))
            (call-interactively #'weir-jira-transition)))
        (weir-jira-edit-tests-queued site 2)
        (should-not (weir-jira-edit-tests-push site)))
      (should (equal (weir-jira-edit-tests-at-site url key 'resolution 'name) "Fixed"))
      (should (equal (weir-jira-edit-tests-at-site url key 'status 'name) "Done")))))

(ert-deftest weir-jira-edit-tests-projects-are-created-edited-and-deleted ()
  (weir-jira-tests-with url '("--issues" "5")
    (let* ((site (weir-jira-tests-pulled url))
           (shows (lambda (text)
                    (weir-tests-until (lambda () (string-match-p text (buffer-string)))))))
      (weir-jira-projects)
      (with-current-buffer (format "*jira projects %s*" (weir-jira--site-name site))
        (weir-jira-project-create "NEW" "The new one" "software" "")
        (funcall shows "^NEW .* The new one$")
        (goto-char (point-min))
        (re-search-forward "^NEW ")
        (weir-jira-project-edit (tabulated-list-get-id) "name" "Renamed")
        (funcall shows "^NEW .* Renamed$")
        (should-error (weir-jira-project-delete "NEW" "OLD") :type 'user-error)
        (weir-jira-project-delete "NEW" "NEW")
        (funcall shows "^NEW .* Renamed (not visible)$")
        ;; A change that the site rejects is reported, and has no effect.
        (weir-jira-project-create "AA" "Again" "software" "")
        (weir-tests-until
         (lambda ()
           (with-current-buffer "*weir-jira-log*"
             (string-match-p "already exists" (buffer-string)))))
        (should-not (string-match-p "Again" (buffer-string)))))))

(ert-deftest weir-jira-edit-tests-marked-issues-are-changed-together ()
  (weir-jira-tests-with url '("--issues" "9")
    (let ((site (weir-jira-tests-pulled url)))
      (weir-jira-list "ORDER BY key ASC" site)
      (let ((keys nil))
        (goto-char (point-min))
        (dotimes (_ 3)
          (push (get-text-property (point) 'weir-jira-key) keys)
          (weir-jira-mark))
        ;; The command must not affect the second issue.
        (weir-jira--goto (nth 1 keys))
        (weir-jira-unmark)
        (setq keys (list (nth 0 keys) (nth 2 keys)))
        (weir-jira-label "+together")
        (weir-tests-until
         (lambda () (= (length (weir--jira-outbox (weir-jira--site-handle site) nil)) 2)))
        (let ((queued (mapcar (lambda (op) (plist-get op :key))
                              (weir--jira-outbox (weir-jira--site-handle site) nil))))
          (should (equal (sort queued #'string<) (sort (copy-sequence keys) #'string<))))
        ;; Marks remain after a refresh of the list; an export has only the
        ;; marked issues.
        (revert-buffer nil t)
        (should (= (count-matches "^\\*" (point-min) (point-max)) 2))
        (weir-jira-export "csv")
        (should (= (count-lines (point-min) (point-max)) 3))
        (kill-buffer)
        (set-buffer (format "*jira %s*" (weir-jira--site-name site)))
        (weir-jira-unmark-all)
        (should (= (count-matches "^\\*" (point-min) (point-max)) 0))
        (weir-jira--goto (car keys))
        (should (equal (weir-jira--chosen) (list (car keys))))))))

(provide 'weir-jira-edit-tests)
;;; weir-jira-edit-tests.el ends here
