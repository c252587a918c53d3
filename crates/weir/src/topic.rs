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

/// A handle on a topic. Writing waits for the verdict; see
/// [`Session::send`](crate::Session::send) to go on without waiting.
#[derive(Clone, Debug)]
pub struct Topic {
    backend: Backend,
    name: TopicName,
}

/// Pages of records, in order; optionally waiting for new ones.
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

    /// The name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.name
    }

    fn one(&self, operation: Operation<'_>, expect: &[Expect<'_>]) -> Result<Verdict, WeirError> {
        let intention = Intention::new(self.name.as_str(), operation).expecting(expect);
        Verdict::first(&self.backend.write(&[intention])?)
    }

    /// Makes the topic live. INVALID with `TopicExists` when it does already.
    pub fn create(&self, options: &TopicOptions) -> Result<Verdict, WeirError> {
        self.one(Operation::Create { options }, &[])
    }

    /// Makes the topic live, with a program that judges each write to it: a
    /// WebAssembly module that speaks `weir1`, and arguments for it. ERROR
    /// with `BadProgram` when the module breaks a rule.
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
        self.one(create, &[])
    }

    /// Puts another program in the place of the topic's; if it fails the old
    /// one stays. With `expected` only in the place of that one.
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
        self.one(replace, &[])
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
            // Somebody else was faster.
            Some(ErrorCode::TopicExists) => Ok(false),
            Some(code) => Err(WeirError::NotCreated { code }),
        }
    }

    /// Ends the topic: its keys are gone, its offsets go on if it is created
    /// again.
    pub fn destroy(&self) -> Result<Verdict, WeirError> {
        self.one(Operation::Destroy, &[])
    }

    /// Replaces the options.
    pub fn alter(&self, options: &TopicOptions) -> Result<Verdict, WeirError> {
        self.one(Operation::Alter { options }, &[])
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
        self.one(
            Operation::Put {
                key: key.as_ref(),
                value: value.as_ref(),
            },
            expect,
        )
    }

    /// Removes a key. VALID even if it has no value.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Verdict, WeirError> {
        self.one(Operation::Delete { key: key.as_ref() }, &[])
    }

    /// All steps or none, in order.
    pub fn txn(&self, ops: &[TxnOp<'_>], expect: &[Expect<'_>]) -> Result<Verdict, WeirError> {
        self.one(Operation::Txn { ops }, expect)
    }

    /// The record with the key's current value.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, WeirError> {
        match self.backend.get(self.name.as_str(), key.as_ref())? {
            Some(page) => Ok(Value::new(page)?),
            None => Ok(None),
        }
    }

    /// The record at an offset, if it is there.
    pub fn at(&self, offset: ConsequenceOffset) -> Result<Option<Value>, WeirError> {
        match self.backend.record(self.name.as_str(), offset)? {
            Some(page) => Ok(Value::new(page)?),
            None => Ok(None),
        }
    }

    /// Keys in byte order; see [`weir_store::Store::scan`].
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

    /// The value of a scanned key; `None` when it was changed since.
    pub fn value(&self, entry: &KeyEntry) -> Result<Option<Value>, WeirError> {
        match self.backend.value(self.name.as_str(), entry)? {
            Some(page) => Ok(Value::new(page)?),
            None => Ok(None),
        }
    }

    /// A reader that starts there. The topic must have been created once.
    pub fn reader(&self, from: ReadFrom) -> Result<TopicReader, WeirError> {
        self.backend.read(self.name.as_str())?.starting(from)
    }

    /// Returns a reader of a topic that may not exist yet: its first record is then the
    /// one of its creation.
    pub fn listener(&self, from: ReadFrom) -> Result<TopicReader, WeirError> {
        self.backend.listen(self.name.as_str()).starting(from)
    }

    /// Pages from there to the newest record.
    pub fn pages(&self, from: ReadFrom) -> Result<Pages, WeirError> {
        Ok(Pages {
            reader: self.reader(from)?,
            patience: None,
        })
    }

    /// Pages from there on; at the end, waits up to `patience` for a new
    /// record before it gives up. The topic need not be there yet.
    pub fn follow(&self, from: ReadFrom, patience: Duration) -> Result<Pages, WeirError> {
        Ok(Pages {
            reader: self.listener(from)?,
            patience: Some(patience),
        })
    }

    /// What holds now and then what comes; at the end, waits up to `patience`
    /// for a new record. The topic need not be there yet.
    ///
    /// # Errors
    /// Those of a server.
    pub fn latest(&self, patience: Duration) -> Result<Latest, WeirError> {
        block_on(Latest::new(&self.backend, self.name.as_str(), patience))
    }

    /// What the topic is now; `None` when it never was created, or when a
    /// server cannot be asked (see [`try_info`](Self::try_info)).
    #[must_use]
    pub fn info(&self) -> Option<TopicInfo> {
        self.try_info().ok().flatten()
    }

    /// What the topic is now; `None` when it never was created.
    ///
    /// # Errors
    /// When a server cannot be asked; never for a store of this process.
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
