//! The replica of a site in topics: where values are stored, and conditional writes.
//!
//! Topics are `jira.SITE.NAME`; see jira.md, section 5. Invariant: an equal value is not written
//! again, and a value is replaced only by a writer who has read it (conditional put).

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir::{ErrorCode, Expect, SCAN_KEYS_MAX, Topic, TxnOp, Weir, WeirError};

use crate::client::Deployment;
use crate::error::{JiraError, Result};
use crate::stored_ops::StoredOps;

/// The largest value, in bytes, that the store of a replica must accept: issues can have megabytes
/// of text.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// Limit on the conditional writes of one transaction.
const WRITES_MAX: usize = 64;
/// Size of the values, in bytes, at which a transaction is closed.
const TXN_BYTES_MAX: usize = 4 << 20;

/// A replica in a store.
#[derive(Debug)]
pub struct Replica {
    weir: Weir,
    site: String,
    ensured: Mutex<BTreeSet<String>>,
    stored_ops: Mutex<StoredOps>,
}

/// A value to store, and the offset of the value that it replaces (`None`: there is none).
#[derive(Clone, Debug)]
pub struct Change {
    /// Key in the topic.
    pub key: String,
    /// The value; `None` removes the key.
    pub value: Option<Vec<u8>>,
    /// Offset at which the current value was found.
    pub found: Option<u64>,
}

/// A stored value with its offset.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Offset in the topic.
    pub offset: u64,
    /// The value.
    pub bytes: Vec<u8>,
}

/// The location of an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Id of the issue.
    pub id: String,
    /// Id of its project.
    pub project: String,
}

impl Replica {
    /// The replica of the site with this name ([`Site::name_of`](crate::access::Site::name_of)).
    pub fn new(weir: Weir, site: &str) -> Self {
        Self {
            weir,
            site: site.to_owned(),
            ensured: Mutex::default(),
            stored_ops: Mutex::default(),
        }
    }

    /// The operations of the outbox, as far as they were read.
    pub(crate) fn stored_ops(&self) -> MutexGuard<'_, StoredOps> {
        self.stored_ops.lock()
    }

    /// The topic with this name under the site.
    pub fn topic(&self, name: &str) -> Result<Topic> {
        Ok(self.weir.topic(&format!("jira.{}.{name}", self.site))?)
    }

    fn writable(&self, name: &str) -> Result<Topic> {
        let topic = self.topic(name)?;
        let mut ensured = self.ensured.lock();
        if !ensured.contains(name) {
            topic.ensure()?;
            ensured.insert(name.to_owned());
        }
        Ok(topic)
    }

    /// The stored value of a key.
    pub fn get(&self, topic: &str, key: &str) -> Result<Option<Stored>> {
        let value = match self.topic(topic)?.get(key) {
            Err(WeirError::Store(weir::StoreError::TopicUnknown { .. })) => return Ok(None),
            value => value?,
        };
        Ok(value.map(|value| {
            let record = value.record();
            Stored {
                offset: record.offset.0,
                bytes: record.value.to_vec(),
            }
        }))
    }

    /// The stored value of a key, read as JSON.
    pub fn read<T: DeserializeOwned>(&self, topic: &str, key: &str) -> Result<Option<T>> {
        let stored = self.get(topic, key)?;
        let read = |stored: Stored| serde_json::from_slice(&stored.bytes);
        Ok(stored.map(read).transpose()?)
    }

    /// Stores a value as JSON if it differs from the stored value. Returns the number of writes: 0
    /// or 1.
    pub fn store(&self, topic: &str, key: &str, value: &impl Serialize) -> Result<u64> {
        let bytes = serde_json::to_vec(value)?;
        let found = self.get(topic, key)?;
        if found.as_ref().is_some_and(|stored| stored.bytes == bytes) {
            return Ok(0);
        }
        checked(&self.writable(topic)?.put(key, bytes)?)?;
        Ok(1)
    }

    /// Removes a key. The topic keeps its history.
    pub fn remove(&self, topic: &str, key: &str) -> Result<()> {
        checked(&self.writable(topic)?.delete(key)?)
    }

    /// Writes changes in transactions, in order. If another writer was faster, neither that
    /// transaction nor a later one is written. Returns whether all changes were written.
    pub fn apply(&self, topic: &str, changes: &[Change]) -> Result<bool> {
        let mut rest = changes;
        while !rest.is_empty() {
            let (part, others) = rest.split_at(transaction_len(rest));
            rest = others;
            let writable = self.writable(topic)?;
            let expect: Vec<Expect<'_>> = part
                .iter()
                .map(|change| match change.found {
                    Some(offset) => Expect::KeyOffset(Some(change.key.as_bytes()), offset),
                    None => Expect::KeyAbsent(Some(change.key.as_bytes())),
                })
                .collect();
            let ops: Vec<TxnOp<'_>> = part
                .iter()
                .map(|change| match &change.value {
                    Some(value) => TxnOp::Put {
                        key: change.key.as_bytes(),
                        value,
                        meta: b"",
                    },
                    None => TxnOp::Delete {
                        key: change.key.as_bytes(),
                        meta: b"",
                    },
                })
                .collect();
            let verdict = writable.txn(&ops, &expect)?;
            match verdict.reason() {
                None => {}
                Some(ErrorCode::Conflict) => return Ok(false),
                Some(code) => return Err(JiraError::Refused(code)),
            }
        }
        Ok(true)
    }

    /// The keys of a topic that begin with `prefix`, in byte order.
    pub fn keys(&self, topic: &str, prefix: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        self.walk(topic, prefix, |key, _| {
            all.push(key);
            Ok(())
        })?;
        Ok(all)
    }

    /// The values of a topic whose keys begin with `prefix`, in the order of keys.
    pub fn values(&self, topic: &str, prefix: &str) -> Result<Vec<(String, Value)>> {
        let mut all = Vec::new();
        let source = self.topic(topic)?;
        self.walk(topic, prefix, |key, entry| {
            if let Some(value) = source.value(entry)? {
                all.push((key, serde_json::from_slice(value.value())?));
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn walk(
        &self,
        topic: &str,
        prefix: &str,
        mut each: impl FnMut(String, &weir::KeyEntry) -> Result<()>,
    ) -> Result<()> {
        let source = self.topic(topic)?;
        if source.try_info()?.is_none() {
            return Ok(());
        }
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let entries = source.scan(prefix.as_bytes(), after.as_deref(), SCAN_KEYS_MAX)?;
            for entry in &entries {
                each(String::from_utf8_lossy(&entry.key).into_owned(), entry)?;
            }
            match entries.into_iter().next_back() {
                Some(last) => after = Some(last.key),
                None => return Ok(()),
            }
        }
    }

    /// The kind of the site: Cloud until a pull finds another kind.
    pub fn deployment(&self) -> Result<Deployment> {
        let server: Option<Value> = self.read("meta", "server")?;
        let server = server.unwrap_or_default();
        Ok(if server["deploymentType"] == "Server" {
            Deployment::DataCenter
        } else {
            Deployment::Cloud
        })
    }

    /// Ids and values of the projects of the replica.
    pub fn projects(&self) -> Result<Vec<(String, Value)>> {
        self.values("projects", "")
    }

    /// All issues, of all projects.
    pub fn issues(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for (project, _) in self.projects()? {
            let found = self.values(&format!("issues.{project}"), "")?;
            all.extend(found.into_iter().map(|(_, issue)| issue));
        }
        Ok(all)
    }

    /// The location of the issue with this key, which may be an old key of a moved issue.
    pub fn locate(&self, key: &str) -> Result<Option<Location>> {
        let found: Option<Value> = self.read("aliases", &key.to_uppercase())?;
        Ok(found.map(|found| Location {
            id: found["id"].as_str().unwrap_or_default().to_owned(),
            project: found["project"].as_str().unwrap_or_default().to_owned(),
        }))
    }

    /// The change that records the location of an issue under a key; `None` if it is recorded.
    pub(crate) fn alias(&self, key: &str, id: &str, project: &str) -> Result<Option<Change>> {
        let bytes = json!({"id": id, "project": project})
            .to_string()
            .into_bytes();
        let found = self.get("aliases", key)?;
        let same = found.as_ref().is_some_and(|stored| stored.bytes == bytes);
        let found = found.map(|stored| stored.offset);
        Ok((!same).then(|| Change {
            key: key.to_owned(),
            value: Some(bytes),
            found,
        }))
    }

    /// The issue with this key.
    ///
    /// # Errors
    /// `UnknownIssue` if the replica has no such issue.
    pub fn issue(&self, key: &str) -> Result<Value> {
        let unknown = || JiraError::UnknownIssue(key.to_owned());
        let location = self.locate(key)?.ok_or_else(unknown)?;
        let topic = format!("issues.{}", location.project);
        self.read(&topic, &location.id)?.ok_or_else(unknown)
    }

    /// Whether the replica has the issue with this id.
    pub fn has_issue(&self, id: &str) -> Result<bool> {
        let Some(location) = self.locate(id)? else {
            return Ok(false);
        };
        let topic = format!("issues.{}", location.project);
        Ok(self.get(&topic, &location.id)?.is_some())
    }

    /// The comments of an issue, in the order of their ids.
    pub fn comments(&self, location: &Location) -> Result<Vec<Value>> {
        self.parts("comments", location)
    }

    /// The worklogs of an issue, in the order of their ids.
    pub fn worklogs(&self, location: &Location) -> Result<Vec<Value>> {
        self.parts("worklogs", location)
    }

    fn parts(&self, list: &str, location: &Location) -> Result<Vec<Value>> {
        let topic = format!("{list}.{}", location.project);
        let found = self.values(&topic, &format!("{}.", location.id))?;
        Ok(found.into_iter().map(|(_, part)| part).collect())
    }
}

/// Number of the leading changes for one transaction; at least one.
fn transaction_len(changes: &[Change]) -> usize {
    let mut bytes = 0;
    let fits = changes.iter().take(WRITES_MAX).take_while(|change| {
        bytes += change.value.as_ref().map_or(0, Vec::len);
        bytes <= TXN_BYTES_MAX
    });
    fits.count().max(1).min(changes.len())
}

fn checked(verdict: &weir::Verdict) -> Result<()> {
    verdict
        .reason()
        .map_or(Ok(()), |code| Err(JiraError::Refused(code)))
}
