;;; weir-jira-edit.el --- Change issues of Jira, online or not -*- lexical-binding: t; -*-

;; Author: The Weir authors
;; SPDX-License-Identifier: GPL-3.0-or-later

;;; Commentary:

;; Each change goes into an outbox, which is durable before the command
;; reports success, and is sent in the background.  If another user has changed
;; the same value in the meantime, it becomes a conflict, which
;; `weir-jira-outbox' shows.

;;; Code:

(require 'cl-lib)
(require 'smerge-mode)
(require 'subr-x)
(require 'url-util)
(require 'weir-jira)

(declare-function org-entry-get "org")
(declare-function org-entry-put "org")
(declare-function org-back-to-heading "org")
(declare-function org-end-of-subtree "org")
(declare-function org-map-entries "org")
(declare-function outline-next-heading "outline")
(declare-function org-parse-time-string "org-macs")
(declare-function weir--jira-change "ext:weir-module")
(declare-function weir--jira-conflict "ext:weir-module")
(declare-function weir--jira-edit-base "ext:weir-module")
(declare-function weir--jira-offered "ext:weir-module")
(declare-function weir--jira-outbox "ext:weir-module")
(declare-function weir--jira-project "ext:weir-module")
(declare-function weir--jira-push "ext:weir-module")
(declare-function weir--jira-resolve "ext:weir-module")
(declare-function weir--jira-projects "ext:weir-module")
(declare-function weir--jira-row "ext:weir-module")
(declare-function weir--jira-text "ext:weir-module")

(defcustom weir-jira-push-at-once t
  "Whether a change is sent as soon as it is queued.
Otherwise `weir-jira-push' sends the outbox."
  :group 'weir-jira
  :type 'boolean
  :package-version '(weir-jira . "0.1.0"))

;;;; Queue and push

(defun weir-jira--change (site verb &rest words)
  "Queue the change VERB of SITE with WORDS."
  (weir-jira--change-then site #'ignore verb words))

(defun weir-jira--change-then (site function verb words &optional base failed)
  "Queue the change VERB of SITE with WORDS; call FUNCTION once it is durable.
BASE is the version that was edited; nil means the current version.  Call
FAILED, if it is non-nil, when the change is rejected."
  (weir--expect
   (weir--jira-change (weir-jira--site-handle site) verb
                      (mapcar (lambda (word) (or word "")) words) base)
   (lambda (status value)
     (funcall (if (eq status 'failed) (or failed #'ignore) function))
     (weir-jira--queued site status value))))

(defun weir-jira--edit-base (site key)
  "Return the current version of the issue KEY of SITE, as base of an edit."
  (weir--jira-edit-base (weir-jira--site-handle site) key))

(defun weir-jira--queued (site status value &optional text)
  "Report the result of a change of SITE: STATUS and VALUE.
TEXT describes the change if it is durable; nil means that it was queued."
  (if (eq status 'failed)
      (progn
        (weir-jira--log site (weir--error-text value))
        (message "Jira: %s" (cadr value)))
    (let ((stale (plist-get value :stale)))
      (when stale
        (weir-jira--log site (format "lists do not show the last change: %s" stale)))
      (message "Jira: %s%s"
               (or text
                   (format (if (plist-get value :logged) "%s has this worklog" "%s queued")
                           (or (plist-get value :key) "the change")))
               (if stale
                   (format "; lists do not show it yet: %s" stale)
                 "")))
    (weir-jira--refresh site)
    (when weir-jira-push-at-once
      (weir-jira--push site))))

;;;###autoload
(defun weir-jira-push ()
  "Send the outbox, then pull."
  (interactive)
  (weir-jira--open (weir-jira--default) #'weir-jira--push))

(defun weir-jira--push (site)
  "Send the outbox of SITE; if a sync is running, send it after that."
  (if (weir-jira--site-pull site)
      (setf (weir-jira--site-push-wanted site) t)
    (setf (weir-jira--site-push-wanted site) nil)
    (condition-case error
        (setf (weir-jira--site-pull site)
              (weir--expect
               (weir--jira-push (weir-jira--site-handle site) (weir-jira--token site))
               (lambda (status value) (weir-jira--pushed site status value)))
              (weir-jira--site-started site) (float-time))
      (weir-error
       (setf (weir-jira--site-failure site) error)
       (message "Jira: %s" (cadr error))))
    (weir-jira--update-headers site)))

(defun weir-jira--pushed (site status value)
  "Handle the end of a push of SITE with STATUS and VALUE."
  (if (eq status 'failed)
      (weir-jira--pulled site status value nil)
    (let ((stuck (+ (plist-get value :conflicts) (plist-get value :rejected)
                    (plist-get value :unknown)))
          (sent (+ (plist-get value :sent) (plist-get value :already))))
      (weir-jira--log site (concat "pushed: " (weir-jira--counts value weir-jira--push-counts)))
      (dolist (sentence (append (plist-get value :messages) nil))
        (weir-jira--log site (weir--one-line sentence)))
      (weir-jira--pulled site 'done (plist-get value :pull) nil t)
      (when (> (+ stuck sent) 0)
        (message "Jira: %d sent%s" sent
                 (if (> stuck 0)
                     (format ", %d need you: M-x weir-jira-outbox" stuck)
                   ""))))))

;;;; Completion

(defun weir-jira--changeable ()
  "Return the open site of the buffer; signal an error if it is read-only."
  (let ((site (weir-jira--current-site)))
    (when (weir-jira--about site :read-only)
      (user-error "Weir only reads Jira Data Center; change it at the site, then pull"))
    site))

(defun weir-jira--key-to-change ()
  "Return the key of the issue at point, if its site can be changed."
  (weir-jira--changeable)
  (weir-jira--key-or-error))

(defun weir-jira--offered (what &optional key)
  "Return completion candidates WHAT for KEY, by default the issue at point."
  (weir--jira-offered (weir-jira--site-handle (weir-jira--changeable)) what
                      (or key (weir-jira--key-or-error))))

(defun weir-jira--read-person (prompt)
  "Ask for a person with PROMPT; return a name."
  (let ((people (mapcar (lambda (person) (plist-get person :name)) (weir-jira--offered "people" ""))))
    (completing-read prompt
                     (lambda (text predicate action)
                       (if (eq action 'metadata)
                           '(metadata (category . weir-user))
                         (complete-with-action action people text predicate))))))

(defun weir-jira--field-info (field &optional key)
  "Return the description of FIELD of the issue KEY, or nil.
KEY is by default the issue at point."
  (cl-find-if (lambda (info)
                (or (equal (plist-get info :id) field)
                    (equal (downcase (plist-get info :name)) (downcase field))))
              (weir-jira--offered "fields" key)))

(defun weir-jira--read-value (field old &optional info key)
  "Ask for a value of FIELD, now OLD; INFO is the description of the field.
Without INFO, the field is that of the issue KEY, by default the one at point."
  (let ((allowed (plist-get (or info (weir-jira--field-info field key)) :allowed))
        (prompt (format "%s: " (if info (plist-get info :name) (capitalize field)))))
    (cond
     ((member field '("assignee" "reporter")) (weir-jira--read-person prompt))
     ((equal field "labels")
      (string-join (split-string (read-string prompt old) "[ ,]+" t) ","))
     (allowed (completing-read prompt allowed nil nil nil nil old))
     (t (read-string prompt old)))))

;;;; Changes

;; A command reads its issues before it asks the user: a sync during the
;; question can move point to another issue.

(defun weir-jira-set-field (field &optional key)
  "Set FIELD of the issue KEY; interactively, the field and the issue at point.
On a comment or worklog, edit the comment or worklog instead."
  (interactive
   (let ((key (weir-jira--key-or-error)))
     (list (cond
            ((get-text-property (point) 'weir-jira-comment) 'comment)
            ((get-text-property (point) 'weir-jira-worklog) 'worklog)
            ((get-text-property (point) 'weir-jira-field))
            (t (completing-read "Field: " (mapcar (lambda (info) (plist-get info :id))
                                                  (weir-jira--offered "fields" key))
                                nil t)))
           key)))
  (let ((key (or key (weir-jira--key-or-error)))
        (site (weir-jira--changeable)))
    (pcase field
      ('comment (weir-jira-comment-edit (get-text-property (point) 'weir-jira-comment)))
      ('worklog (call-interactively #'weir-jira-worklog-edit))
      ("status" (apply #'weir-jira-transition (weir-jira--read-transition key (list key))))
      ("description" (weir-jira-edit key))
      (_ (let* ((base (weir-jira--edit-base site key))
                (value (weir-jira--read-value field (weir--jira-text base field nil) nil key)))
           (weir-jira--change-then site #'ignore "edit" (list key field value) base))))))

(defun weir-jira--read-fields (infos)
  "Ask for values of the fields INFOS; return names and values alternately.
An empty value omits the field."
  (let ((words nil))
    (dolist (info infos words)
      (let ((value (weir-jira--read-value (plist-get info :id) "" info)))
        (unless (equal value "")
          (setq words (append words (list (plist-get info :id) value))))))))

(defun weir-jira--read-transition (key keys)
  "Ask for a status of the issue KEY; return arguments of `weir-jira-transition'.
KEYS are the issues to move."
  (let* ((status (completing-read "Status: " (weir-jira--offered "transitions" key)))
         (screen (weir-jira--offered "screen" (concat key "\n" status))))
    (list status
          (and current-prefix-arg (read-string "Comment: "))
          (weir-jira--read-fields
           (if current-prefix-arg
               screen
             (cl-remove-if-not (lambda (info) (plist-get info :required)) screen)))
          keys)))

(defun weir-jira-transition (status &optional comment fields keys)
  "Move the issues KEYS to STATUS.
By default, move the issue at point; in a list the marked issues.  Ask for
the fields that the transition requires; with a prefix argument, ask for all
fields of its screen and for a COMMENT.  FIELDS are names and values
alternately."
  (interactive (weir-jira--read-transition (weir-jira--key-or-error) (weir-jira--chosen)))
  (dolist (key (or keys (weir-jira--chosen)))
    (apply #'weir-jira--change (weir-jira--changeable) "transition" key status comment fields)))

(defun weir-jira-assign (who &optional keys)
  "Assign the issues KEYS to WHO: a name, me or none; nil means to ask.
By default, assign the issue at point; in a list the marked issues."
  (interactive (list nil))
  (let* ((keys (or keys (weir-jira--chosen)))
         (site (weir-jira--changeable))
         ;; An assignment that is pulled during the question conflicts with this
         ;; one.  In the arguments, `command-history' would keep the versions.
         (bases (unless who
                  (mapcar (lambda (key) (weir-jira--edit-base site key)) keys)))
         (who (or who (weir-jira--read-person "Assign to: "))))
    (dolist (key keys)
      (weir-jira--change-then site #'ignore "assign" (list key who) (pop bases)))))

(defun weir-jira-assign-me ()
  "Assign the issue at point to me; in a list the marked issues."
  (interactive)
  (weir-jira-assign "me"))

(defun weir-jira-unassign ()
  "Assign the issue at point to nobody; in a list the marked issues."
  (interactive)
  (weir-jira-assign "none"))

(defun weir-jira--label-changes (text)
  "Return TEXT, labels such as \"a,-b\", with a sign before each label.
A text without signs would replace all labels of the issue."
  (let ((labels (cl-remove-if (lambda (label) (member label '("+" "-")))
                              (split-string text "," t "[ \t]+"))))
    (unless labels
      (user-error "The text has no label"))
    (mapconcat (lambda (label)
                 (if (string-match-p "\\`[-+]" label) label (concat "+" label)))
               labels ",")))

(defun weir-jira-label (labels &optional keys)
  "Add and remove LABELS of the issues KEYS, such as \"a,-b\".
A label without a sign is added.  By default, change the issue at point; in a
list the marked issues."
  (interactive (progn
                 (weir-jira--changeable)
                 (let ((keys (weir-jira--chosen)))
                   (list (read-string "Labels (a,-b adds a, removes b): ") keys))))
  (let ((changes (weir-jira--label-changes labels)))
    (dolist (key (or keys (weir-jira--chosen)))
      (weir-jira--change (weir-jira--changeable) "edit" key "labels" changes))))

(defun weir-jira-watch (&optional off)
  "Watch the issue at point; with a prefix argument OFF, stop watching it.
In a list watch the marked issues."
  (interactive "P")
  (dolist (key (weir-jira--chosen))
    (weir-jira--change (weir-jira--changeable) "watch" key (if off "" "on"))))

(defun weir-jira-link (phrase other &optional remove key)
  "Link the issue KEY with OTHER by PHRASE; with a prefix REMOVE the link.
KEY is by default the issue at point."
  (interactive
   (let ((key (weir-jira--key-to-change)))
     (list (completing-read "The issue: " (weir-jira--offered "phrases" "") nil t)
           (weir-jira--read-key (weir-jira--changeable) "Other issue: ")
           current-prefix-arg
           key)))
  (weir-jira--change (weir-jira--changeable) "link" (or key (weir-jira--key-or-error))
                     phrase other (and remove "remove")))

(defun weir-jira--read-required (project type)
  "Ask for the required fields of a new issue of TYPE in PROJECT."
  (weir-jira--read-fields
   (cl-remove "parent" (weir-jira--offered "required" (concat project "\n" type))
              :key (lambda (info) (plist-get info :id)) :test #'equal)))

;;;###autoload
(defun weir-jira-create (project type summary &optional parent fields)
  "Create an issue of TYPE in PROJECT with SUMMARY, below PARENT if it is given.
FIELDS are names of fields and values alternately.  Interactively, ask for
the fields that the site requires."
  (interactive
   (let* ((site (weir-jira--changeable))
          (projects (mapcar (lambda (project) (plist-get project :key))
                            (weir--jira-projects (weir-jira--site-handle site))))
          (project (completing-read "Project: " projects nil t))
          (type (completing-read "Type: " (weir-jira--offered "types" project))))
     (list project type (read-string "Summary: ") nil
           (weir-jira--read-required project type))))
  (apply #'weir-jira--change (weir-jira--changeable) "create" project type summary parent fields))

(defun weir-jira-create-subtask (summary &optional key)
  "Create a subtask of the issue KEY, by default the one at point, with SUMMARY."
  (interactive (let ((key (weir-jira--key-to-change)))
                 (list (read-string "Summary of the subtask: ") key)))
  (let* ((key (or key (weir-jira--key-or-error)))
         (row (weir--jira-row (weir-jira--site-handle (weir-jira--changeable)) key))
         (project (plist-get row :project))
         (types (weir-jira--offered "types" project))
         (type (or (cl-find-if (lambda (type) (string-match-p "sub" (downcase type))) types)
                   (completing-read "Type: " types))))
    (weir-jira-create project type summary key (weir-jira--read-required project type))))

(defun weir-jira-clone (summary &optional key)
  "Create a copy of the issue KEY, by default the one at point, with SUMMARY."
  (interactive
   (let* ((key (weir-jira--key-to-change))
          (row (weir--jira-row (weir-jira--site-handle (weir-jira--changeable)) key)))
     (list (read-string "Summary of the copy: " (plist-get row :summary)) key)))
  (weir-jira--change (weir-jira--changeable) "clone" (or key (weir-jira--key-or-error))
                     "summary" summary))

(defun weir-jira-delete (typed &optional subtasks)
  "Delete the issue at point; with a prefix argument SUBTASKS, its subtasks too.
TYPED is the key as the user has typed it for confirmation; nil means to ask.
If the issue changed at the site after the version that the user saw, the
deletion becomes a conflict."
  (interactive (list nil current-prefix-arg))
  (let* ((key (weir-jira--key-to-change))
         (site (weir-jira--changeable))
         (base (weir-jira--edit-base site key)))
    (unless (equal (or typed (read-string (format "Type %s to delete it: " key))) key)
      (user-error "Nothing is deleted"))
    (weir-jira--change-then site #'ignore "delete" (list key (and subtasks "subtasks")) base)))

;;;; Projects

(defun weir-jira--project (verb site &rest words)
  "Send the change VERB of a project of SITE with WORDS, without queueing it."
  (let ((key (car words)))
    (message "Jira: %s project %s" verb key)
    (weir--expect
     (weir--jira-project (weir-jira--site-handle site) (weir-jira--token-for-command site)
                         verb words)
     (lambda (status value)
       (if (eq status 'failed)
           (progn
             (weir-jira--log site (weir--error-text value))
             (message "Jira: %s" (weir--error-text value)))
         (message "Jira: %s project %s: done" verb key)
         (weir-jira--refresh site))))))

(defun weir-jira--read-project ()
  "Return the key of the project at point, or ask for one."
  (or (and (derived-mode-p 'weir-jira-projects-mode) (tabulated-list-get-id))
      (completing-read "Project: "
                       (mapcar (lambda (project) (plist-get project :key))
                               (weir--jira-projects (weir-jira--site-handle (weir-jira--changeable))))
                       nil t)))

(defun weir-jira-project-create (key name type lead)
  "Create the project KEY called NAME, of TYPE and led by LEAD, a person.
The request is sent at once; the account needs the right ADMINISTER."
  (interactive
   (progn
     (weir-jira--changeable)
     (list (read-string "Key of the new project: ")
           (read-string "Name: ")
           (completing-read "Type: " '("software" "business" "service_desk") nil t)
           (weir-jira--read-person "Lead (empty: me): "))))
  (weir-jira--project "create" (weir-jira--changeable) key name type lead))

(defun weir-jira-project-edit (key field value)
  "Set FIELD of the project KEY to VALUE; the request is sent at once."
  (interactive
   (let* ((key (weir-jira--read-project))
          (field (completing-read "Field: " '("name" "description" "url" "lead" "assignee")
                                  nil t)))
     (list key field
           (pcase field
             ("lead" (weir-jira--read-person "Lead: "))
             ("assignee" (completing-read "Assignee of new issues: " '("lead" "none") nil t))
             (_ (read-string (format "%s: " (capitalize field))))))))
  (weir-jira--project "edit" (weir-jira--changeable) key field value))

(defun weir-jira-project-delete (key typed)
  "Delete the project KEY with its issues at the site.
TYPED is the key as the user has typed it for confirmation."
  (interactive
   (let ((key (weir-jira--read-project)))
     (list key (read-string (format "Type %s to delete it with its issues: " key)))))
  (unless (equal typed key)
    (user-error "Nothing is deleted"))
  (weir-jira--project "delete" (weir-jira--changeable) key))

;;;; Texts in a buffer

(defvar-local weir-jira--commit nil
  "Function that queues the text of the buffer.
Its arguments are the site, the text, a function to call once the text is
durable, and a function to call if the text is rejected.  It returns nil if
there is nothing to queue.")

(defvar-local weir-jira--edited-text nil
  "The text that the buffer edits: (SITE . NAME), SITE the name of a site.")

(defvar-local weir-jira--had-conflicts nil
  "Whether the text of the buffer had conflicts, which the user must resolve.")

(defvar weir-jira-edit-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'weir-jira-edit-commit)
    (define-key map (kbd "C-c C-k") #'weir-jira-edit-abort)
    map)
  "Keys of `weir-jira-edit-mode'.")

(define-minor-mode weir-jira-edit-mode
  "Edit a text of an issue; \\[weir-jira-edit-commit] queues it.
\\[weir-jira-edit-abort] drops it."
  :lighter " Jira"
  :interactive nil
  (setq header-line-format
        (substitute-command-keys
         "\\<weir-jira-edit-mode-map>\\[weir-jira-edit-commit] queues, \\[weir-jira-edit-abort] drops")))

(defun weir-jira--is-unsaved (buffer)
  "Return whether BUFFER has a text that was edited but not queued."
  (and (buffer-local-value 'weir-jira--commit buffer)
       (buffer-modified-p buffer)
       (not (buffer-local-value 'buffer-read-only buffer))))

(defun weir-jira--may-kill ()
  "Return whether the edit buffer may be killed; ask the user if necessary."
  (or (not (weir-jira--is-unsaved (current-buffer)))
      (yes-or-no-p (format "Drop the text in %s? " (buffer-name)))))

(defun weir-jira--may-exit ()
  "Return whether Emacs may end; ask the user if texts were not queued.
Emacs saves them as drafts when it ends."
  (let ((unsaved (cl-remove-if-not #'weir-jira--is-unsaved (buffer-list))))
    (or (null unsaved)
        (yes-or-no-p (format "Exit, and keep the text in %s as a draft? "
                             (mapconcat #'buffer-name unsaved ", "))))))

(defconst weir-jira--draft-coding 'utf-8-emacs-unix
  "The coding system in which Emacs saves a buffer automatically.")

(defun weir-jira--draft-directory ()
  "Return the directory of drafts."
  (expand-file-name "drafts" weir-jira-directory))

(defun weir-jira--draft-file (edited text)
  "Return the file of a draft of EDITED that began with TEXT.
EDITED is the value of `weir-jira--edited-text'."
  (expand-file-name (concat (weir-jira--draft-name edited) (sha1 text))
                    (weir-jira--draft-directory)))

(defun weir-jira--draft-name (edited)
  "Return the beginning of the names of all drafts of EDITED."
  (concat (url-hexify-string (format "%s %s" (car edited) (cdr edited))) "."))

(defun weir-jira--save-drafts (edited text)
  "Let Emacs save the buffer, which edits EDITED and began with TEXT, as a draft."
  (with-file-modes #o700
    (make-directory (weir-jira--draft-directory) t))
  (setq buffer-auto-save-file-name (weir-jira--draft-file edited text))
  (add-hook 'kill-buffer-hook #'weir-jira--delete-draft nil t))

(defun weir-jira--delete-draft ()
  "Delete the draft of the buffer, unless another buffer has the same draft."
  (let ((file buffer-auto-save-file-name))
    (when (and file (file-exists-p file)
               (not (cl-some (lambda (other)
                               (and (not (eq other (current-buffer)))
                                    (equal file (buffer-local-value 'buffer-auto-save-file-name
                                                                    other))))
                             (buffer-list))))
      (delete-file file))))

(defun weir-jira-drafts ()
  "Show the directory of drafts, including those of dropped operations."
  (interactive)
  (unless (file-directory-p (weir-jira--draft-directory))
    (user-error "There are no drafts"))
  (dired (weir-jira--draft-directory)))

(defun weir-jira--outdated (draft)
  "Return DRAFT with references that are errors.
They refer to numbered parts of an earlier text.  In the present text, the
numbers can be those of other parts."
  (replace-regexp-in-string "{{{adf(\\([0-9]\\{1,6\\}[^0-9]\\)" "{{{adf(9000000\\1" draft))

(defun weir-jira--draft (edited text)
  "Offer the draft of EDITED, whose text is TEXT now; return the text to edit.
The result is nil if there is no draft or the user does not want it.  If
the text has changed since the draft began, the result has both as a conflict."
  (let* ((directory (weir-jira--draft-directory))
         (name (weir-jira--draft-name edited))
         (file (and (file-directory-p directory)
                    (car (directory-files directory t (concat "\\`" (regexp-quote name)))))))
    (when file
      (let ((draft (let ((coding-system-for-read weir-jira--draft-coding))
                     (with-temp-buffer
                       (insert-file-contents file)
                       (buffer-string))))
            (present (weir-jira--draft-file edited text))
            (time (file-attribute-modification-time (file-attributes file))))
        (cond
         ((or (equal draft text)
              (not (yes-or-no-p (format "Continue the draft of %s (no deletes it)? "
                                        (format-time-string "%F %R" time)))))
          (delete-file file)
          nil)
         ((equal file present) draft)
         (t
          (let ((both (weir-jira--marked nil (weir-jira--outdated draft) text))
                (coding-system-for-write weir-jira--draft-coding))
            ;; A file has the draft at any time.
            (write-region both nil present nil 'silent)
            (delete-file file)
            both)))))))

(defun weir-jira--edit-text (site name text commit)
  "Show a buffer with TEXT of SITE in org; COMMIT gets the edited text.
If a buffer of this NAME has a text that was not queued, show that buffer."
  (let* ((edited (cons (weir-jira--site-name site) name))
         (open (cl-find-if (lambda (buffer)
                             (and (equal (buffer-local-value 'weir-jira--edited-text buffer) edited)
                                  (weir-jira--is-unsaved buffer)))
                           (buffer-list))))
    (if open
        (message "Jira: this text was not queued yet")
      ;; Loading org can take seconds; a quit during that time leaves no buffer.
      (require 'org)
      (setq open (weir-jira--edit-buffer edited text commit (weir-jira--draft edited text))))
    (pop-to-buffer open)))

(defun weir-jira--edit-buffer (edited text commit draft)
  "Return a buffer with TEXT in org; COMMIT gets the edited text.
EDITED is the value of `weir-jira--edited-text'.  DRAFT is the text as it was
edited before, or nil."
  (let ((buffer (generate-new-buffer (format "*jira edit %s*" (cdr edited))))
        (complete nil))
    (unwind-protect
        (with-current-buffer buffer
          ;; When its mode starts, org obeys lines such as #+SETUPFILE, which
          ;; make it read a file or a URL.  The text may be from the site.
          (delay-mode-hooks (org-mode))
          ;; To highlight code, org would call the mode that its block names.
          (setq-local org-src-fontify-natively nil)
          (insert (or draft text))
          (goto-char (point-min))
          (weir-jira-edit-mode)
          (setq weir-jira--edited-text edited
                weir-jira--commit commit)
          (add-hook 'kill-buffer-query-functions #'weir-jira--may-kill nil t)
          (add-hook 'kill-emacs-query-functions #'weir-jira--may-exit)
          (when (cl-some (lambda (part)
                           (and part (string-match-p
                                      "^\\(?:<<<<<<< \\(?:mine\\|draft\\)\\|>>>>>>> theirs\\)$"
                                      part)))
                         (list draft text))
            (setq weir-jira--had-conflicts t)
            (smerge-mode 1))
          (set-buffer-modified-p (and draft t))
          (weir-jira--save-drafts edited text)
          (setq complete t))
      (unless complete
        (kill-buffer buffer)))
    buffer))

(defun weir-jira--end-edit (buffer)
  "Kill the edit buffer BUFFER, and restore the windows that show it."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (set-buffer-modified-p nil))
    (quit-windows-on buffer t t)
    (when (buffer-live-p buffer)
      (kill-buffer buffer))))

(defun weir-jira-edit-commit ()
  "Queue the text of the buffer.
The buffer is killed once the text is durable.  If the text is rejected, the
buffer is kept."
  (interactive)
  (let ((buffer (current-buffer))
        (site (weir-jira--find (car weir-jira--edited-text))))
    (unless weir-jira--commit
      (user-error "Nothing is edited here"))
    (when buffer-read-only
      (user-error "The text is being queued"))
    (when (and weir-jira--had-conflicts
               (string-match-p "^\\(<<<<<<<\\|=======\\|>>>>>>>\\)" (buffer-string)))
      (user-error "A conflict is left in the text"))
    (if (and site (weir-jira--site-handle site))
        (weir-jira--commit-text site buffer)
      ;; The replica was closed during the edit.
      (weir-jira--open (car weir-jira--edited-text)
                       (lambda (site)
                         (when (buffer-live-p buffer)
                           (condition-case error
                               (weir-jira--commit-text site buffer)
                             (user-error (message "Jira: %s" (cadr error))))))))))

(defun weir-jira--commit-text (site buffer)
  "Queue the text of BUFFER as a change of SITE."
  (with-current-buffer buffer
    (if (funcall weir-jira--commit site
                 (buffer-substring-no-properties (point-min) (point-max))
                 (lambda () (weir-jira--end-edit buffer))
                 (lambda ()
                   (when (buffer-live-p buffer)
                     (with-current-buffer buffer
                       (setq buffer-read-only nil))
                     (display-buffer buffer))))
        (setq buffer-read-only t)
      (message "Jira: nothing changed")
      (weir-jira--end-edit buffer))))

(defun weir-jira-edit-abort ()
  "Drop the text of the buffer."
  (interactive)
  (unless weir-jira--commit
    (user-error "Nothing is edited here"))
  (when (or (not (buffer-modified-p)) (yes-or-no-p "Drop this text? "))
    (weir-jira--end-edit (current-buffer))))

(defconst weir-jira--header '("summary" "priority" "labels" "duedate")
  "Fields at the head of an edit buffer.")

(defun weir-jira--header-values (text)
  "Return the fields at the head of TEXT, an alist, and the rest of TEXT."
  (let ((fields nil)
        (rest text))
    (while (string-match "\\`#\\+\\([A-Z]+\\):[ \t]*\\(.*\\)\n?" rest)
      (push (cons (downcase (match-string 1 rest)) (string-trim (match-string 2 rest))) fields)
      (setq rest (substring rest (match-end 0))))
    (list fields (replace-regexp-in-string "\\`\n" "" rest))))

(defun weir-jira-edit (key)
  "Edit the issue KEY in a buffer: fields at its head, then the description."
  (interactive (list (weir-jira--key-to-change)))
  (let* ((site (weir-jira--changeable))
         (base (weir-jira--edit-base site key))
         (head (mapconcat
                (lambda (name)
                  (let ((value (weir--jira-text base name nil)))
                    (format "#+%s: %s\n" (upcase name)
                            (weir--one-line
                             (if (equal name "labels") (string-replace "," " " value) value)))))
                weir-jira--header ""))
         (text (concat head "\n" (weir--jira-text base "description" nil))))
    (weir-jira--edit-text
     site key text
     (lambda (site new done failed)
       (let ((words (weir-jira--edited text new)))
         (when words
           (weir-jira--change-then site done "edit" (cons key words) base failed)))))))

(defun weir-jira--edited (old new)
  "Return names and values of the fields that differ in the texts OLD and NEW."
  (pcase-let* ((`(,before ,body) (weir-jira--header-values old))
               (`(,after ,new-body) (weir-jira--header-values new))
               (words nil))
    (dolist (field after)
      (let ((name (car field)))
        (unless (member name weir-jira--header)
          (user-error "There is no field %s at the head" name))
        (unless (equal (cdr field) (cdr (assoc name before)))
          (setq words (append words (list name
                                          (if (equal name "labels")
                                              (string-join (split-string (cdr field)) ",")
                                            (cdr field))))))))
    ;; An unchanged text is not sent.
    (unless (equal (string-trim-right body) (string-trim-right new-body))
      (setq words (append words (list "description" new-body))))
    words))

(defun weir-jira-comment ()
  "Write a comment on the issue at point."
  (interactive)
  (let ((site (weir-jira--changeable))
        (key (weir-jira--key-or-error)))
    (weir-jira--edit-text
     site (concat "comment " key) ""
     (lambda (site text done failed)
       (weir-jira--change-then site done "comment" (list key text) nil failed)))))

(defun weir-jira-delete-part ()
  "Delete the comment or worklog at point."
  (interactive)
  (call-interactively (if (get-text-property (point) 'weir-jira-worklog)
                          #'weir-jira-worklog-delete
                        #'weir-jira-comment-delete)))

(defun weir-jira--comment-or-error ()
  "Return the id of the comment at point, or signal an error for the user."
  (or (get-text-property (point) 'weir-jira-comment) (user-error "There is no comment at point")))

(defun weir-jira-comment-edit (comment)
  "Edit COMMENT, the id of a comment on the issue of the buffer."
  (interactive (list (weir-jira--comment-or-error)))
  (let* ((site (weir-jira--changeable))
         (key (weir-jira--key-or-error))
         (base (weir-jira--edit-base site key))
         (text (weir--jira-text base "comment" comment)))
    (weir-jira--edit-text
     site (format "comment %s %s" key comment) text
     (lambda (site new done failed)
       (unless (equal new text)
         (weir-jira--change-then site done "edit-comment" (list key comment new)
                                 base failed))))))

(defun weir-jira-comment-delete (comment)
  "Delete COMMENT, the id of a comment on the issue of the buffer."
  (interactive (list (weir-jira--comment-or-error)))
  (weir-jira--confirm-delete "Delete this comment? " "delete-comment" comment))

(defun weir-jira--confirm-delete (question verb id)
  "Ask QUESTION, then queue the change VERB of the issue at point.
ID is that of the comment or worklog."
  (let* ((site (weir-jira--changeable))
         (key (weir-jira--key-or-error))
         (base (weir-jira--edit-base site key)))
    (when (yes-or-no-p question)
      (weir-jira--change-then site #'ignore verb (list key id) base))))

;;;; Worklogs

(defun weir-jira--seconds (text)
  "Return the seconds of TEXT, such as 1h30m or 1:30, or signal an error."
  (cond
   ((string-match "\\`\\([0-9]+\\):\\([0-5][0-9]\\)\\'" text)
    (+ (* 3600 (string-to-number (match-string 1 text)))
       (* 60 (string-to-number (match-string 2 text)))))
   ((string-match "\\`\\(?:\\([0-9]+\\)h\\)? ?\\(?:\\([0-9]+\\)m\\)?\\'" text)
    (let ((hours (match-string 1 text))
          (minutes (match-string 2 text)))
      (unless (or hours minutes)
        (user-error "The text has no time such as 1h30m"))
      (+ (* 3600 (string-to-number (or hours "0")))
         (* 60 (string-to-number (or minutes "0"))))))
   (t (user-error "The text %s is not a time such as 1h30m" text))))

(defun weir-jira--time-text (seconds)
  "Return SECONDS as a text for `weir-jira--seconds', without the rest of a minute."
  (format "%dh%dm" (/ seconds 3600) (/ (% seconds 3600) 60)))

(defun weir-jira-worklog (time &optional comment key)
  "Log TIME of work, which ends now, on the issue KEY, with COMMENT.
KEY is by default the issue at point."
  (interactive (let ((key (weir-jira--key-to-change)))
                 (list (read-string "Time (1h30m): ") (read-string "Comment: ") key)))
  (let ((seconds (weir-jira--seconds time)))
    (weir-jira--change (weir-jira--changeable) "worklog" (or key (weir-jira--key-or-error))
                       (number-to-string seconds)
                       (format "%d" (* 1000 (- (float-time) seconds)))
                       comment)))

(defun weir-jira--worklog-or-error ()
  "Return the id of the worklog at point, or signal an error for the user."
  (or (get-text-property (point) 'weir-jira-worklog) (user-error "There is no worklog at point")))

(defun weir-jira-worklog-edit (worklog &optional time)
  "Set the time of WORKLOG, an id in the issue of the buffer, to TIME.
If TIME is nil, ask for it.  The comment of the worklog is then edited in a
buffer."
  (interactive (list (weir-jira--worklog-or-error)))
  ;; A change that is pulled during the question conflicts with this edit.
  (let* ((site (weir-jira--changeable))
         (key (weir-jira--key-or-error))
         (base (weir-jira--edit-base site key))
         (data (weir-jira--worklog-data worklog))
         (before (plist-get data :seconds))
         (shown (weir-jira--time-text before))
         (time (or time (read-string "Time: " shown)))
         ;; An unchanged time keeps its seconds, which the text does not show.
         (seconds (if (equal time shown) before (weir-jira--seconds time)))
         (text (plist-get data :text)))
    (weir-jira--edit-text
     site (format "worklog %s %s" key worklog) text
     (lambda (site new done failed)
       (unless (and (equal new text) (= seconds before))
         (weir-jira--change-then site done "edit-worklog"
                                 (list key worklog (number-to-string seconds) "" new)
                                 base failed))))))

(defun weir-jira--worklog-data (worklog)
  "Return the data of WORKLOG, an id in the issue of the buffer."
  (weir-jira--offered "worklog" (concat (weir-jira--key-or-error) "\n" worklog)))

(defun weir-jira-worklog-delete (worklog)
  "Delete WORKLOG, the id of a worklog of the issue of the buffer."
  (interactive (list (weir-jira--worklog-or-error)))
  (weir-jira--confirm-delete "Delete this worklog? " "delete-worklog" worklog))

(defun weir-jira--logged ()
  "Return the clocks that are recorded as logged at the org heading at point."
  (split-string (or (org-entry-get nil "JIRA_LOGGED") "") ";" t))

(defun weir-jira--clocks ()
  "Return the clocks of the org heading at point that are not logged yet.
Clocks of headings below it are included, except below a heading with its
own JIRA_KEY.  A clock is (SPAN START SECONDS HEADING), HEADING a marker."
  (let ((clocks nil))
    (save-excursion
      (org-back-to-heading t)
      (let ((top (point))
            (end (save-excursion (org-end-of-subtree t t) (point))))
        (while (< (point) end)
          (if (and (> (point) top) (org-entry-get nil "JIRA_KEY"))
              (org-end-of-subtree t t)
            (let ((heading (point-marker))
                  (logged (weir-jira--logged))
                  (next (save-excursion (outline-next-heading) (point))))
              (while (re-search-forward
                      "^[ \t]*CLOCK: \\[\\([^]]+\\)\\]--\\[\\([^]]+\\)\\] *=> *\\([0-9]+:[0-9][0-9]\\)"
                      next t)
                (let* ((start (match-string-no-properties 1))
                       (span (concat start "--" (match-string-no-properties 2)))
                       (seconds (weir-jira--seconds (match-string-no-properties 3))))
                  (unless (member span logged)
                    (push (list span start seconds heading) clocks))))
              (goto-char next))))))
    (nreverse clocks)))

;;;###autoload
(defun weir-jira-worklog-from-clocks (&optional dry-run)
  "Log the clocks of the org heading at point on its issue.
The property JIRA_KEY of the heading names the issue.  Headings below it
are included, unless they have their own JIRA_KEY.  Logged clocks are recorded
in the property JIRA_LOGGED of their heading.  A clock is not logged again if
the issue already has such a worklog.  With a prefix argument DRY-RUN, only
show the clocks that would be logged."
  (interactive "P")
  (unless (derived-mode-p 'org-mode)
    (user-error "This is not an org buffer"))
  (let ((key (or (org-entry-get nil "JIRA_KEY" t) (user-error "The heading has no JIRA_KEY"))))
    (weir-jira--log-clocks (list (cons key (weir-jira--clocks))) dry-run)))

;;;###autoload
(defun weir-jira-worklog-from-agenda (&optional dry-run)
  "Log the clocks of all headings with a JIRA_KEY in the org agenda files.
Each heading is logged as by `weir-jira-worklog-from-clocks'.  With a prefix
argument DRY-RUN, only show the clocks that would be logged."
  (interactive "P")
  (require 'org)
  (weir-jira--log-clocks
   (org-map-entries (lambda ()
                      (let ((key (org-entry-get nil "JIRA_KEY")))
                        (cons key (and key (weir-jira--clocks)))))
                    nil 'agenda)
   dry-run))

(defun weir-jira--log-clocks (issues dry-run)
  "Log clocks on ISSUES, a list of (KEY . CLOCKS), after a question.
With DRY-RUN, only show the clocks."
  (let* ((new (mapcan (lambda (issue)
                        (mapcar (lambda (clock) (cons (car issue) clock)) (cdr issue)))
                      issues))
         (lines (mapconcat (pcase-lambda (`(,key ,span ,_ ,seconds ,_))
                             (format "%s  %s  %d min" key span (/ seconds 60)))
                           new "\n")))
    (cond
     ((null new) (message "Jira: no new clocks"))
     (dry-run (message "Jira: would log:\n%s" lines))
     ((yes-or-no-p (format "%s\nLog this? " lines))
      (weir-jira--open
       (weir-jira--default)
       (lambda (site)
         (pcase-dolist (`(,key ,span ,start ,seconds ,heading) new)
           (weir-jira--change-then
            site
            (lambda () (weir-jira--note-clock heading span))
            "clock"
            (list key (number-to-string seconds)
                  (format "%d" (* 1000 (float-time
                                        (encode-time (org-parse-time-string start))))))))))))))

(defun weir-jira--note-clock (heading span)
  "Record at HEADING, a marker, that the clock SPAN is in the outbox."
  (when (buffer-live-p (marker-buffer heading))
    (with-current-buffer (marker-buffer heading)
      (save-excursion
        (goto-char heading)
        (let ((logged (weir-jira--logged)))
          (unless (member span logged)
            (org-entry-put nil "JIRA_LOGGED" (string-join (append logged (list span)) ";"))))))))

;;;; Outbox

(defvar weir-jira-outbox-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map (kbd "RET") #'weir-jira-outbox-visit)
    (define-key map (kbd "SPC") #'weir-jira-outbox-show)
    (define-key map "m" #'weir-jira-outbox-mine)
    (define-key map "t" #'weir-jira-outbox-theirs)
    (define-key map "e" #'weir-jira-outbox-edit)
    (define-key map "r" #'weir-jira-outbox-retry)
    (define-key map "d" #'weir-jira-outbox-drop)
    (define-key map "P" #'weir-jira-push)
    map)
  "Keys of `weir-jira-outbox-mode'.")

(define-derived-mode weir-jira-outbox-mode tabulated-list-mode "Jira-Outbox"
  "Changes that the site has not executed yet.
\\{weir-jira-outbox-mode-map}"
  :interactive nil
  (setq tabulated-list-format
        [("No" 5 nil) ("State" 10 t) ("Issue" 12 t) ("Change" 40 nil) ("Problem" 40 nil)]
        tabulated-list-entries #'weir-jira--outbox-rows)
  (tabulated-list-init-header))

(defvar-local weir-jira--only-conflicts nil "Whether the buffer shows only conflicts.")

(defvar-local weir-jira--ops nil "The operations that the buffer shows.")

(defun weir-jira--outbox-rows ()
  "Return the rows of the outbox, each with the number of its operation."
  (let ((ops (weir--jira-outbox (weir-jira--site-handle (weir-jira--current-site)) nil)))
    (setq weir-jira--ops
          (if weir-jira--only-conflicts
              (cl-remove "conflict" ops :key (lambda (op) (plist-get op :state))
                         :test-not #'equal)
            ops))
    (mapcar (lambda (op)
              (list (plist-get op :number)
                    (vector (number-to-string (plist-get op :number))
                            (plist-get op :state)
                            (plist-get op :key)
                            (weir--one-line (or (plist-get op :what) ""))
                            (weir-jira--op-problem op))))
            weir-jira--ops)))

(defun weir-jira--conflict-texts (op field)
  "Return the base, local and remote text of FIELD, which is in conflict in OP."
  (weir--jira-conflict (weir-jira--site-handle (weir-jira--current-site))
                       (number-to-string (plist-get op :number)) field))

(defun weir-jira--conflict-fields (op)
  "Return the fields of the operation OP that are in conflict."
  (mapcar (lambda (conflict) (plist-get conflict :field)) (plist-get op :conflicts)))

(defun weir-jira--op-problem (op)
  "Return the problem of the operation OP in one line, with the values of the site."
  (let* ((conflicts (plist-get op :conflicts))
         (theirs (mapcar (lambda (conflict)
                           (format "%s: %s"
                                   (if (cdr conflicts)
                                       (concat (plist-get conflict :field) " at the site")
                                     "theirs")
                                   (plist-get conflict :shown)))
                         conflicts)))
    (string-join (append theirs
                         (delq nil (list (and (plist-get op :problem)
                                              (weir--one-line (plist-get op :problem))))))
                 "; ")))

(defun weir-jira--show-outbox (only-conflicts)
  "Show the outbox; with ONLY-CONFLICTS, only the operations in conflict."
  (weir-jira--open
   (weir-jira--default)
   (lambda (site)
     (let ((buffer (get-buffer-create "*jira outbox*")))
       (with-current-buffer buffer
         (weir-jira-outbox-mode)
         (setq weir-jira--site site
               weir-jira--only-conflicts only-conflicts)
         (tabulated-list-print))
       (pop-to-buffer buffer)
       (message (substitute-command-keys
                 "\\<weir-jira-outbox-mode-map>\\[weir-jira-outbox-mine] takes yours, \
\\[weir-jira-outbox-theirs] theirs, \\[weir-jira-outbox-edit] edits, \
\\[weir-jira-outbox-retry] sends again, \\[weir-jira-outbox-drop] drops"))))))

;;;###autoload
(defun weir-jira-outbox ()
  "Show the operations that the site has not executed yet, and their conflicts."
  (interactive)
  (weir-jira--show-outbox nil))

;;;###autoload
(defun weir-jira-conflicts ()
  "Show only the operations in conflict with the site."
  (interactive)
  (weir-jira--show-outbox t))

(defun weir-jira--op-at-point ()
  "Return the operation at point, or signal an error for the user."
  (or (weir-jira--of-field (tabulated-list-get-id) :number weir-jira--ops)
      (user-error "There is no change at point")))

(defun weir-jira-outbox-visit ()
  "Show the issue of the change at point.
If the replica does not have the issue, show the change."
  (interactive)
  (let ((site (weir-jira--current-site))
        (key (plist-get (weir-jira--op-at-point) :key)))
    (if (weir--jira-row (weir-jira--site-handle site) key)
        (pop-to-buffer (weir-jira--show site key))
      (weir-jira-outbox-show)
      (message "Jira: the replica has no issue %s; this is the whole change" key))))

(defun weir-jira-outbox-show ()
  "Show the whole change at point, with all its texts, in a buffer."
  (interactive)
  (weir-jira--show-op (weir-jira--current-site) (weir-jira--op-at-point)))

(defun weir-jira--revert-op (number)
  "Show the present state of the operation NUMBER of the site of the buffer."
  (let* ((site (weir-jira--current-site))
         (ops (weir--jira-outbox (weir-jira--site-handle site) nil)))
    (weir-jira--show-op site
                        (or (weir-jira--of-field number :number ops)
                            (user-error "The outbox no longer has change %d" number)))))

(defun weir-jira--show-op (site op)
  "Show the operation OP of SITE, the site of the buffer, with all its texts."
  (let ((number (plist-get op :number))
        (parts (append
                (weir-jira--op-parts op)
                (mapcan (lambda (field)
                          (pcase-let ((`(,base ,_ ,theirs) (weir-jira--conflict-texts op field)))
                            (list (cons (concat field ", before") base)
                                  (cons (concat field ", at the site") theirs))))
                        (weir-jira--conflict-fields op)))))
    (with-help-window "*jira change*"
      (with-current-buffer standard-output
        (setq weir-jira--site site)
        ;; The function of `help-mode' cannot show the buffer again.
        (setq-local revert-buffer-function (lambda (&rest _) (weir-jira--revert-op number)))
        (insert (format "%s %s, number %d: %s\n" (plist-get op :key)
                        (string-replace "_" " " (plist-get op :kind))
                        number (plist-get op :state)))
        (when (plist-get op :problem)
          (insert (plist-get op :problem) "\n"))
        (pcase-dolist (`(,title . ,text) parts)
          (insert "\n" (propertize title 'face 'weir-jira-heading) "\n" text "\n"))))))

(defun weir-jira--op-parts (op)
  "Return the new values of the operation OP as pairs (TITLE . TEXT)."
  (let ((action (plist-get op :action))
        (parts nil))
    (cl-flet ((add (title value)
                (when value
                  (push (cons title (weir-jira--value-text value)) parts))))
      (add "status" (plist-get action :to))
      (cl-loop for (name value) on (plist-get action :fields) by #'cddr
               do (add (substring (symbol-name name) 1)
                       (if (plist-member value :mine) (plist-get value :mine) value)))
      (cl-loop for (name value) on (plist-get action :sets) by #'cddr
               do (add (concat (substring (symbol-name name) 1) ", added") (plist-get value :add))
               do (add (concat (substring (symbol-name name) 1) ", removed")
                       (plist-get value :remove)))
      (add "comment" (plist-get action :body))
      (pcase (plist-get op :kind)
        ("comment_edit" (add "comment" (plist-get action :mine)))
        ("worklog_add" (add "worklog" (plist-get action :comment)))
        ("worklog_edit" (add "worklog" (plist-get (plist-get action :mine) :comment)))))
    (or (nreverse parts) (list (cons "change" (or (plist-get op :what) ""))))))

(defun weir-jira--value-text (value)
  "Return VALUE, a value of a field as the site has it, as text.
Rich text has its words and paragraphs, but no emphasis and no links."
  (cond
   ((stringp value) value)
   ((numberp value) (number-to-string value))
   ((not (consp value)) "")
   ((not (keywordp (car value))) (mapconcat #'weir-jira--value-text value ", "))
   ((plist-get value :text))
   ((plist-member value :content)
    (pcase-let ((`(,before ,between ,after)
                 (pcase (plist-get value :type)
                   ("doc" '("" "\n\n" ""))
                   ((or "bulletList" "orderedList" "blockquote" "panel" "table") '("" "\n" ""))
                   ("listItem" '("- " "\n" ""))
                   ("tableRow" '("| " " | " " |"))
                   (_ '("" "" "")))))
      (concat before
              (mapconcat #'weir-jira--value-text (append (plist-get value :content) nil) between)
              after)))
   ((equal (plist-get value :type) "hardBreak") "\n")
   ((plist-get (plist-get value :attrs) :text))
   ((cl-some (lambda (name) (plist-get value name)) '(:displayName :name :value :key :id)))
   (t (format "(%s)" (or (plist-get value :type) "a value")))))

(defun weir-jira--resolve (site op choice &optional field value done failed)
  "Apply CHOICE to FIELD of the operation OP of SITE, with VALUE.
Call DONE once the decision is durable, or FAILED if it is rejected."
  (weir--expect
   (weir--jira-resolve (weir-jira--site-handle site) (number-to-string (plist-get op :number))
                       choice field value)
   (lambda (status answer)
     (funcall (or (if (eq status 'failed) failed done) #'ignore))
     (weir-jira--queued site status answer
                        (pcase choice
                          ("mine" "your value replaces that of the site")
                          ("theirs" "the value of the site stays")
                          ("retry" "the change is sent again")
                          ("drop" "the change is dropped")))
     (when (eq status 'failed)
       (weir-jira--refresh site)))))

(defun weir-jira-outbox-mine ()
  "Replace the value at the site with the local value."
  (interactive)
  (weir-jira--resolve (weir-jira--current-site) (weir-jira--op-at-point) "mine"))

(defun weir-jira-outbox-theirs ()
  "Keep the value at the site, and discard the local value."
  (interactive)
  (let ((op (weir-jira--op-at-point)))
    (when (yes-or-no-p (format "Discard your change of %s (%s)? "
                               (string-join (weir-jira--conflict-fields op) ", ")
                               (weir-jira--op-problem op)))
      (weir-jira--resolve (weir-jira--current-site) op "theirs"))))

(defun weir-jira-outbox-retry ()
  "Send the change at point again."
  (interactive)
  (weir-jira--resolve (weir-jira--current-site) (weir-jira--op-at-point) "retry"))

(defun weir-jira-outbox-drop ()
  "Do not send the change at point."
  (interactive)
  (let ((op (weir-jira--op-at-point))
        (site (weir-jira--current-site)))
    (when (yes-or-no-p (format "Drop change %d of %s (%s)? " (plist-get op :number)
                               (plist-get op :key) (weir--one-line (or (plist-get op :what) ""))))
      (weir-jira--resolve site op "drop"))))

(defun weir-jira-outbox-edit ()
  "Edit the change at point: merge its conflict, or correct its text."
  (interactive)
  (if (weir-jira--conflict-fields (weir-jira--op-at-point))
      (weir-jira-outbox-merge)
    (weir-jira-outbox-correct)))

(defun weir-jira-outbox-correct ()
  "Correct the text of the change at point, which is queued or rejected.
A buffer shows the text; the corrected text replaces it in the outbox.
Changes of a list are written as +a,-b.  A value out of a list, a watcher and
a link are corrected in the minibuffer."
  (interactive)
  (let* ((op (weir-jira--op-at-point))
         (site (weir-jira--current-site))
         (number (number-to-string (plist-get op :number)))
         (texts (weir--jira-offered (weir-jira--site-handle site) "texts" number))
         (fields (mapcar (lambda (text) (plist-get text :field)) texts))
         (field (if (cdr fields) (completing-read "Field: " fields nil t) (car fields)))
         (shown (weir-jira--of-field field :field texts))
         (text (plist-get shown :text))
         (allowed (plist-get shown :allowed)))
    (cond
     ((not (member (plist-get op :state) '("queued" "rejected")))
      (user-error "This change is in state %s and cannot be corrected" (plist-get op :state)))
     (allowed
      (weir-jira--change site "correct" number field text
                         (weir-jira--read-allowed field allowed text)))
     ((equal field "issue")
      (weir-jira--change site "correct" number field text
                         (weir-jira--read-key site "Other issue: " text)))
     (field (weir-jira--correct-text site number field text))
     (t (user-error "This change has no text; drop it, then change the issue again")))))

(defun weir-jira--correct-text (site number field text)
  "Correct TEXT, the text of FIELD of the operation NUMBER of SITE, in a buffer."
  (weir-jira--edit-text
   site (format "change %s %s" number field) text
   (lambda (site new done failed)
     (unless (equal new text)
       (weir-jira--change-then site done "correct"
                               (list number field text (string-trim new "\n+" "\n+"))
                               nil failed)))))

(defun weir-jira--of-field (field property list)
  "Return the first element of LIST whose PROPERTY is FIELD."
  (cl-find field list :key (lambda (one) (plist-get one property)) :test #'equal))

(defun weir-jira--allowed (site op field)
  "Return the possible values of FIELD of the issue of OP at SITE; nil if any."
  (plist-get (weir-jira--of-field field :id (weir-jira--known-fields site (plist-get op :key)))
             :allowed))

(defun weir-jira-outbox-merge ()
  "Merge the values of the conflict at point.
For a text, a buffer shows both versions and their base in the form of
`smerge-mode'.  For a field with a list of values, ask for one of them."
  (interactive)
  (let* ((op (weir-jira--op-at-point))
         (site (weir-jira--current-site))
         (fields (or (weir-jira--conflict-fields op)
                     (user-error "The change at point has no conflict")))
         (field (if (cdr fields) (completing-read "Field: " fields nil t) (car fields)))
         (allowed (weir-jira--allowed site op field)))
    (cond
     ((string-prefix-p "worklog:" field)
      (user-error "Worklogs cannot be merged: choose your worklog or that of the site"))
     ((equal (plist-get op :kind) "delete")
      (user-error "A deletion has no text: m deletes the issue, t keeps it"))
     ((equal field "status") (weir-jira--choose-status site op))
     (allowed
      (weir-jira--resolve site op "mine" field (weir-jira--read-allowed field allowed nil)))
     (t (weir-jira--merge-text site op field)))))

(defun weir-jira--read-allowed (field allowed default)
  "Ask for one of the values ALLOWED in FIELD; an empty answer is DEFAULT.
Without a default, it is an error: an empty value would clear the field."
  (let* ((prompt (if default
                     (format "%s (default %s): " (capitalize field) default)
                   (format "%s: " (capitalize field))))
         (value (completing-read prompt allowed nil t nil nil default)))
    (when (string-empty-p value)
      (user-error "The field %s needs a value" field))
    value))

(defun weir-jira--known-fields (site key)
  "Return the fields of the issue KEY of SITE; nil if there is no such issue."
  (condition-case nil
      (weir--jira-offered (weir-jira--site-handle site) "fields" key)
    (weir-not-found nil)))

(defun weir-jira--choose-status (site op)
  "Ask for a status in place of that of OP, a transition of SITE in conflict."
  (let* ((key (plist-get op :key))
         (status (completing-read
                  (format "Status (%s): " (weir-jira--op-problem op))
                  (weir--jira-offered (weir-jira--site-handle site) "transitions" key) nil t)))
    (when (string-empty-p status)
      (user-error "The issue needs a status"))
    (weir-jira--resolve site op "mine" "status" status)))

(defun weir-jira--merge-text (site op field)
  "Merge the texts of FIELD of the operation OP of SITE in a buffer."
  (let ((texts (weir-jira--conflict-texts op field)))
    (weir-jira--edit-text
     site (format "conflict %s %s" (plist-get op :key) field)
     (apply #'weir-jira--marked texts)
     (lambda (site text done failed)
       (let ((now (weir-jira--present-conflict site op field)))
         ;; Without a conflict, the outbox rejects the text.
         (unless (or (null now) (equal now texts))
           (setq texts now)
           (weir-jira--merge-again text (nth 2 now))))
       (weir-jira--resolve site op "mine" field (string-trim text "\n+" "\n+")
                           done failed)))))

(defun weir-jira--present-conflict (site op field)
  "Return the texts of FIELD in the conflict that OP of SITE has now, or nil.
They are in the order of `weir-jira--conflict-texts'."
  (condition-case nil
      (weir--jira-conflict (weir-jira--site-handle site)
                           (number-to-string (plist-get op :number)) field)
    (weir-error nil)))

(defun weir-jira--merge-again (text theirs)
  "Show TEXT and THEIRS, a later text of the site, as a conflict in the buffer.
Then signal an error for the user."
  (erase-buffer)
  (insert (weir-jira--marked nil (weir-jira--outdated text) theirs))
  (goto-char (point-min))
  (user-error "The site has another value now: merge your text with it"))

(defun weir-jira--marked (base mine theirs)
  "Return the texts BASE, MINE and THEIRS as a conflict.
BASE is nil if MINE is a draft whose base is unknown."
  (cl-flet ((line (text) (if (string-suffix-p "\n" text) text (concat text "\n"))))
    (concat "<<<<<<< " (if base "mine" "draft") "\n" (line mine)
            (if base (concat "||||||| before\n" (line base)) "")
            "=======\n" (line theirs) ">>>>>>> theirs\n")))

;;;; Keys

(defvar weir-jira-change-map
  (let ((map (make-sparse-keymap)))
    (define-key map "e" #'weir-jira-set-field)
    (define-key map "E" #'weir-jira-edit)
    (define-key map "t" #'weir-jira-transition)
    (define-key map "a" #'weir-jira-assign)
    (define-key map "A" #'weir-jira-assign-me)
    (define-key map "c" #'weir-jira-comment)
    (define-key map "k" #'weir-jira-delete-part)
    (define-key map "+" #'weir-jira-create)
    (define-key map "&" #'weir-jira-create-subtask)
    (define-key map "C" #'weir-jira-clone)
    (define-key map "i" #'weir-jira-worklog)
    (define-key map "L" #'weir-jira-label)
    (define-key map "K" #'weir-jira-link)
    (define-key map "!" #'weir-jira-watch)
    (define-key map "D" #'weir-jira-delete)
    (define-key map "o" #'weir-jira-outbox)
    (define-key map "P" #'weir-jira-push)
    map)
  "Keys of changes, in lists and in the buffer of an issue.")

(map-keymap (lambda (event command)
              (define-key weir-jira-list-mode-map (vector event) command)
              (define-key weir-jira-issue-mode-map (vector event) command))
            weir-jira-change-map)

(provide 'weir-jira-edit)
;;; weir-jira-edit.el ends here
