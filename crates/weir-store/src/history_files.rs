//! The files of a history, for a reader that has no access to the directory.
//!
//! Invariant: no other file of the directory is read, and none is written.

use std::io;
use std::sync::Arc;

use weir_core::ProgramHost;

use crate::disk::OpenMode;
use crate::error::{IoVerb, StoreError};
use crate::history::History;
use crate::identity;
use crate::log::{LOG_DIR, START_FILE, parse_segment_name};
use crate::node::files::{COMMITTED, DIRECTORY as CLUSTER};
use crate::snapshot;
use crate::store::Store;
use crate::topic::files::{parse_directory, parse_segment};

/// A directory or file from which a [`History`] is read, relative to the directory of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPath(String);

impl HistoryPath {
    /// Returns the path if a history is read from it: the identity, the log, snapshots, topic
    /// segments, and the committed index of a node. Otherwise returns `None`.
    #[must_use]
    pub fn new(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let fits = match (parts.next()?, parts.next(), parts.next()) {
            // The empty path is the directory itself.
            (only, None, None) => {
                ["", identity::PATH, LOG_DIR, snapshot::DIRECTORY, CLUSTER].contains(&only)
            }
            (LOG_DIR, Some(name), None) => path == START_FILE || parse_segment_name(name).is_some(),
            (snapshot::DIRECTORY, Some(name), None) => snapshot::parse_name(name).is_some(),
            ("topics", Some(topic), name) => {
                let is_segment = |name| parse_segment(name).is_some();
                parse_directory(topic).is_some() && name.is_none_or(is_segment)
            }
            _ => path == COMMITTED,
        };
        (fits && parts.next().is_none()).then(|| Self(path.to_owned()))
    }
}

impl Store {
    /// Returns the history of this store, read from its files; programs run on `host`.
    ///
    /// # Errors
    /// As for [`History::open`].
    pub fn history(&self, host: Option<Arc<dyn ProgramHost>>) -> Result<History, StoreError> {
        History::on(Arc::clone(&self.disk), host)
    }

    /// Returns the names of the files in a directory of a history; none if the directory is missing.
    pub fn history_names(&self, directory: &HistoryPath) -> Result<Vec<String>, StoreError> {
        let path = directory.0.as_str();
        let names = self.disk.list(path);
        names.map_err(StoreError::io(IoVerb::List, path))
    }

    /// Returns the length of a file of a history, and at most `bytes` bytes of it from `at`. `None`
    /// if the file does not exist.
    pub fn history_part(
        &self,
        path: &HistoryPath,
        at: u64,
        bytes: usize,
    ) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let path = path.0.as_str();
        let read = |error| StoreError::io(IoVerb::Read, path)(error);
        let file = match self.disk.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read(error)),
        };
        let length = file.len().map_err(read)?;
        let mut part = Vec::new();
        if at < length {
            let remaining = usize::try_from(length - at);
            part.resize(remaining.map_or(bytes, |remaining| remaining.min(bytes)), 0);
            file.read_exact_at(&mut part, at).map_err(read)?;
        }
        Ok(Some((length, part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_a_history_are_accepted() {
        for path in [
            "",
            "weir.id",
            "log",
            "log/00000000000000000001.log",
            "log/start",
            "snapshots",
            "snapshots/00000000000000000007.snap",
            "topics/0000000a",
            "topics/0000000a/0000000001.seg",
            "cluster",
            "cluster/committed",
        ] {
            assert!(HistoryPath::new(path).is_some(), "{path}");
        }
        let long = format!("log/{}", "a".repeat(65));
        for path in [
            "/",
            ".",
            "..",
            "log/",
            "log/..",
            "log/../weir.id",
            "log/.hidden",
            "log/00000000000000000001.log.new",
            "log/00000000000000000001.seg",
            "snapshots/7.snap",
            "topics/a",
            "topics/0000000a/1.seg",
            "log/a/b",
            "/log/a",
            "lock",
            "socket",
            "cluster/",
            "cluster/vote",
            "topics",
            "topics/a/b/c",
            "topics/a/",
            "topics//a",
            "topics/../weir.id",
            "log/a\0b",
            "weir.id/x",
            &long,
        ] {
            assert!(HistoryPath::new(path).is_none(), "{path:?}");
        }
    }
}
