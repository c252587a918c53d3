//! A topic of an open store.

use std::time::{Duration, Instant};

use weir_core::intention::{Expect, Intention, Operation, TxnOp};
use weir_core::{CodeHash, ConsequenceOffset, ErrorCode, TopicName, TopicOptions};
use weir_store::{KeyEntry, Page, ReadFrom, StoreError, TopicInfo};

use crate::backend::{Backend, TopicReader};
use crate::error::WeirError;
use crate::latest::Latest;
use crate::reply::block_on;
use crate::value::Value;
use crate::verdict::Verdict;

mod awaited;

/// A handle to a topic. Each write blocks until its verdict;
/// [`Session::send`](crate::Session::send) does not.
#[derive(Clone, Debug)]
pub struct Topic {
    backend: Backend,
    name: TopicName,
}

/// Iterates over pages of records, in order. With a patience it waits for new records.
#[derive(Clone, Debug)]
pub struct Pages {
    reader: TopicReader,
    patience: Option<Duration>,
}

impl Topic {
    pub(crate) fn new(backend: Backend, name: TopicName) -> Self {
        Self { backend, name }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The name of the topic.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.name
    }

    fn execute(
        &self,
        operation: Operation<'_>,
        expect: &[Expect<'_>],
    ) -> Result<Verdict, WeirError> {
        let intention = Intention::new(self.name.as_str(), operation).expecting(expect);
        Verdict::first(&self.backend.write(&[intention])?)
    }

    /// Creates the topic. The verdict is INVALID with reason `TopicExists` if it exists.
    pub fn create(&self, options: &TopicOptions) -> Result<Verdict, WeirError> {
        self.execute(Operation::Create { options }, &[])
    }

    /// Creates the topic with a program that validates each write to it. The program is a
    /// WebAssembly module with the interface `weir1`, with arguments. The verdict is ERROR with
    /// reason `BadProgram` if the module breaks a rule.
    pub fn create_program(
        &self,
        options: &TopicOptions,
        code: &[u8],
        args: &[u8],
    ) -> Result<Verdict, WeirError> {
        let create = Operation::CreateProgram {
            options,
            code,
            args,
        };
        self.execute(create, &[])
    }

    /// Replaces the program of the topic. If that fails, the old program remains. With `expected`,
    /// replaces only that program.
    pub fn replace_program(
        &self,
        expected: Option<CodeHash>,
        code: &[u8],
        args: &[u8],
    ) -> Result<Verdict, WeirError> {
        let replace = Operation::Replace {
            expected,
            code,
            args,
        };
        self.execute(replace, &[])
    }

    /// Creates the topic if it does not exist. Returns `true` if this call created it.
    pub fn ensure(&self) -> Result<bool, WeirError> {
        match self.try_info() {
            Ok(info) if info.as_ref().is_some_and(|info| info.live) => return Ok(false),
            // A principal without the right to read may still have the right to create.
            Ok(_)
            | Err(WeirError::Store(StoreError::Remote {
                code: ErrorCode::Forbidden,
                ..
            })) => {}
            Err(error) => return Err(error),
        }
        let verdict = self.create(&TopicOptions::default())?;
        match verdict.reason() {
            None => Ok(true),
            // Another client created the topic first.
            Some(ErrorCode::TopicExists) => Ok(false),
            Some(code) => Err(WeirError::NotCreated { code }),
        }
    }

    /// Destroys the topic and its keys. If it is created again, its offsets continue.
    pub fn destroy(&self) -> Result<Verdict, WeirError> {
        self.execute(Operation::Destroy, &[])
    }

    /// Replaces all options of the topic.
    pub fn alter(&self, options: &TopicOptions) -> Result<Verdict, WeirError> {
        self.execute(Operation::Alter { options }, &[])
    }

    /// Appends a record without key.
    pub fn append(&self, value: impl AsRef<[u8]>) -> Result<Verdict, WeirError> {
        self.put("", value)
    }

    /// Appends a record and sets its key.
    pub fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Verdict, WeirError> {
        self.put_if(key, value, &[])
    }

    /// Puts the record if all conditions hold. Otherwise the verdict is INVALID with reason
    /// `Conflict` and the offset that was found.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expect: &[Expect<'_>],
    ) -> Result<Verdict, WeirError> {
        self.execute(
            Operation::Put {
                key: key.as_ref(),
                value: value.as_ref(),
            },
            expect,
        )
    }

    /// Removes a key. VALID even if it has no value.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Verdict, WeirError> {
        self.execute(Operation::Delete { key: key.as_ref() }, &[])
    }

    /// Executes all steps in order, or none of them.
    pub fn txn(&self, ops: &[TxnOp<'_>], expect: &[Expect<'_>]) -> Result<Verdict, WeirError> {
        self.execute(Operation::Txn { ops }, expect)
    }

    /// The record with the current value of the key; `None` if the key has no value.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, WeirError> {
        match self.backend.get(self.name.as_str(), key.as_ref())? {
            Some(page) => Ok(Value::new(page)?),
            None => Ok(None),
        }
    }

    /// The record at an offset; `None` if it does not exist.
    pub fn at(&self, offset: ConsequenceOffset) -> Result<Option<Value>, WeirError> {
        match self.backend.record(self.name.as_str(), offset)? {
            Some(page) => Ok(Value::new(page)?),
            None => Ok(None),
        }
    }

    /// Keys in byte order: at most `limit`, and at most [`weir_store::SCAN_KEYS_MAX`]. See
    /// [`weir_store::Store::scan`].
    pub fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<KeyEntry>, WeirError> {
        Ok(self
            .backend
            .scan(self.name.as_str(), prefix, after, limit)?)
    }

    /// The value of a scanned key; `None` if the key was written since the scan.
    pub fn value(&self, entry: &KeyEntry) -> Result<Option<Value>, WeirError> {
        match self.backend.value(self.name.as_str(), entry)? {
            Some(page) => Ok(Value::new(page)?),
            None => Ok(None),
        }
    }

    /// Returns a reader that starts at `from`. The topic must have been created once.
    pub fn reader(&self, from: ReadFrom) -> Result<TopicReader, WeirError> {
        self.backend.read(self.name.as_str())?.starting(from)
    }

    /// Returns a reader of a topic that may not exist yet. In that case the first record will be
    /// the one of the creation.
    pub fn listener(&self, from: ReadFrom) -> Result<TopicReader, WeirError> {
        self.backend.listen(self.name.as_str()).starting(from)
    }

    /// Reads the pages from `from` to the newest record.
    pub fn pages(&self, from: ReadFrom) -> Result<Pages, WeirError> {
        Ok(Pages {
            reader: self.reader(from)?,
            patience: None,
        })
    }

    /// Follows the topic from `from`. Blocks up to `patience` for the next record, then ends.
    /// The topic may be created later.
    pub fn follow(&self, from: ReadFrom, patience: Duration) -> Result<Pages, WeirError> {
        Ok(Pages {
            reader: self.listener(from)?,
            patience: Some(patience),
        })
    }

    /// Reads the current value of each key, then new records. Blocks up to `patience` for
    /// the next record, then ends. The topic may be created later.
    ///
    /// # Errors
    /// Errors of a server.
    pub fn latest(&self, patience: Duration) -> Result<Latest, WeirError> {
        block_on(Latest::new(&self.backend, self.name.as_str(), patience))
    }

    /// The state of the topic; `None` if it never was created, or if a server cannot be reached
    /// (see [`try_info`](Self::try_info)).
    #[must_use]
    pub fn info(&self) -> Option<TopicInfo> {
        self.try_info().ok().flatten()
    }

    /// The state of the topic; `None` if it never was created.
    ///
    /// # Errors
    /// If a server cannot be reached; never for a local store.
    pub fn try_info(&self) -> Result<Option<TopicInfo>, WeirError> {
        Ok(self.backend.topic(self.name.as_str())?)
    }
}

impl Iterator for Pages {
    type Item = Result<Page, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(page) = self.reader.next_page().transpose() {
            Some(page)
        } else {
            let deadline = Instant::now().checked_add(self.patience?);
            if self.reader.wait(deadline) {
                self.reader.next_page().transpose()
            } else {
                None
            }
        }
    }
}
