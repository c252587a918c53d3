//! Names, faults and counts of the simulated disk.

use std::collections::BTreeMap;
use std::io;

use super::node::{Node, SplitMix};
use crate::disk::OpenMode;

/// The kind of an operation, for scripted faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimOp {
    /// A positioned write.
    Write,
    /// A data sync.
    Sync,
    /// A sync of a directory.
    SyncDir,
    /// A change of length or a reservation.
    Resize,
    /// A created file or directory.
    Create,
    /// A rename.
    Rename,
    /// A removal.
    Remove,
    /// A positioned read. Not counted in [`SimCounts::ops`].
    Read,
}

/// How a scripted operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimFailure {
    /// I/O error. A failed write changes nothing. A failed sync loses the unsynced data, and later
    /// syncs of that data succeed.
    Io,
    /// No space; the operation has no effect.
    Full,
    /// I/O error after about half of the sectors were written.
    Short,
}

/// Number of calls, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// All operations that change the disk or make changes durable.
    pub ops: u64,
    /// Writes.
    pub writes: u64,
    /// Data syncs.
    pub syncs: u64,
    /// Directory syncs.
    pub dir_syncs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Dir,
    File(u64),
}

/// An unsynced change of a name.
#[derive(Clone, Debug)]
enum NameOp {
    Set {
        path: String,
        entry: Entry,
    },
    Rename {
        from: String,
        to: String,
        entry: Entry,
    },
    Unset {
        path: String,
    },
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    op: SimOp,
    at: u64,
    failure: SimFailure,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) counts: SimCounts,
    pub(super) cut_at: Option<u64>,
    pub(super) off: bool,
    pub(super) capacity: u64,
    nodes: BTreeMap<u64, Node>,
    names: BTreeMap<String, Entry>,
    durable_names: BTreeMap<String, Entry>,
    pending: Vec<NameOp>,
    next_node: u64,
    faults: Vec<Fault>,
    by_op: BTreeMap<SimOp, u64>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            counts: SimCounts::default(),
            cut_at: None,
            off: false,
            capacity: u64::MAX,
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            next_node: 1,
            faults: Vec::new(),
            by_op: BTreeMap::new(),
        }
    }
}

/// The outcome of an operation.
enum OpOutcome {
    Done,
    /// The volatile state is changed, then the power is off.
    ThenOff,
    Fails(SimFailure),
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn io_error() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn size(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl State {
    pub(super) fn script(&mut self, op: SimOp, nth: u64, failure: SimFailure) {
        let at = self.by_op.get(&op).copied().unwrap_or(0) + nth;
        self.faults.push(Fault { op, at, failure });
    }

    /// Counts an operation and returns its outcome.
    fn count_op(&mut self, op: SimOp) -> io::Result<OpOutcome> {
        if self.off {
            return Err(power_is_off());
        }
        let count = self.by_op.entry(op).or_insert(0);
        *count += 1;
        let count = *count;
        match op {
            SimOp::Write => self.counts.writes += 1,
            SimOp::Sync => self.counts.syncs += 1,
            SimOp::SyncDir => self.counts.dir_syncs += 1,
            _ => {}
        }
        if op != SimOp::Read {
            self.counts.ops += 1;
            if self.cut_at == Some(self.counts.ops) {
                self.off = true;
                return Ok(OpOutcome::ThenOff);
            }
        }
        let fault = self
            .faults
            .iter()
            .find(|fault| fault.op == op && fault.at == count);
        Ok(fault.map_or(OpOutcome::Done, |fault| OpOutcome::Fails(fault.failure)))
    }

    /// Like `count_op`, for operations that cannot be executed in part. Returns whether the power is
    /// off afterwards.
    fn count_whole_op(&mut self, op: SimOp) -> io::Result<bool> {
        match self.count_op(op)? {
            OpOutcome::Done => Ok(false),
            OpOutcome::ThenOff => Ok(true),
            OpOutcome::Fails(SimFailure::Full) => Err(io::ErrorKind::StorageFull.into()),
            OpOutcome::Fails(_) => Err(io_error()),
        }
    }

    fn node(&mut self, node: u64) -> io::Result<&mut Node> {
        self.nodes
            .get_mut(&node)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|entry| match entry {
                Entry::File(node) => self.nodes.get(node),
                Entry::Dir => None,
            })
            .map(|node| node.len() as u64)
            .sum()
    }

    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        if self.off {
            Err(power_is_off())
        } else {
            Ok(self.capacity.saturating_sub(self.used()))
        }
    }

    fn change_name(&mut self, change: NameOp, off: bool) -> io::Result<()> {
        apply(&mut self.names, &change);
        self.pending.push(change);
        if off { Err(power_is_off()) } else { Ok(()) }
    }

    pub(super) fn open(&mut self, path: &str, mode: OpenMode) -> io::Result<u64> {
        if self.off {
            return Err(power_is_off());
        }
        match (self.names.get(path), mode) {
            (Some(Entry::File(node)), OpenMode::Read | OpenMode::Write) => Ok(*node),
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Entry::Dir), _) => Err(io::ErrorKind::IsADirectory.into()),
            (None, OpenMode::Read | OpenMode::Write) => Err(io::ErrorKind::NotFound.into()),
            (None, OpenMode::CreateNew) => {
                self.require_dir(parent(path))?;
                let off = self.count_whole_op(SimOp::Create)?;
                let node = self.next_node;
                self.next_node += 1;
                self.nodes.insert(node, Node::default());
                let entry = Entry::File(node);
                self.change_name(
                    NameOp::Set {
                        path: path.to_owned(),
                        entry,
                    },
                    off,
                )?;
                Ok(node)
            }
        }
    }

    fn require_dir(&self, dir: &str) -> io::Result<()> {
        if dir.is_empty() || self.names.get(dir) == Some(&Entry::Dir) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        if self.off {
            return Err(power_is_off());
        }
        let inside = |path: &&String| parent(path) == dir;
        let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(self.names.keys().filter(inside).map(name).collect())
    }

    pub(super) fn create_dir(&mut self, dir: &str) -> io::Result<()> {
        if !parent(dir).is_empty() {
            self.create_dir(parent(dir))?;
        }
        if self.names.contains_key(dir) {
            return Ok(());
        }
        let off = self.count_whole_op(SimOp::Create)?;
        self.change_name(
            NameOp::Set {
                path: dir.to_owned(),
                entry: Entry::Dir,
            },
            off,
        )
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let Some(entry) = self.names.get(from).copied() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        self.require_dir(parent(to))?;
        let off = self.count_whole_op(SimOp::Rename)?;
        self.change_name(
            NameOp::Rename {
                from: from.to_owned(),
                to: to.to_owned(),
                entry,
            },
            off,
        )
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        if !matches!(self.names.get(path), Some(Entry::File(_))) {
            return Err(if self.off {
                power_is_off()
            } else {
                io::ErrorKind::NotFound.into()
            });
        }
        let off = self.count_whole_op(SimOp::Remove)?;
        self.change_name(
            NameOp::Unset {
                path: path.to_owned(),
            },
            off,
        )
    }

    pub(super) fn remove_dir(&mut self, dir: &str) -> io::Result<()> {
        if self.names.get(dir) != Some(&Entry::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.names.keys().any(|path| parent(path) == dir) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let off = self.count_whole_op(SimOp::Remove)?;
        self.change_name(
            NameOp::Unset {
                path: dir.to_owned(),
            },
            off,
        )
    }

    pub(super) fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.require_dir(dir)?;
        if self.count_whole_op(SimOp::SyncDir)? {
            return Err(power_is_off());
        }
        let durable = &mut self.durable_names;
        self.pending.retain(|change| {
            let is_in_dir = match change {
                NameOp::Set { path, .. } | NameOp::Unset { path } => parent(path) == dir,
                NameOp::Rename { from, to, .. } => parent(from) == dir || parent(to) == dir,
            };
            if is_in_dir {
                apply(durable, change);
            }
            !is_in_dir
        });
        Ok(())
    }

    pub(super) fn read(&mut self, node: u64, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let OpOutcome::Fails(_) = self.count_op(SimOp::Read)? {
            return Err(io_error());
        }
        let offset = size(offset)?;
        let content = self.node(node)?.current();
        let end = offset.checked_add(buffer.len());
        match end.and_then(|end| content.get(offset..end)) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn write(&mut self, node: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        let outcome = self.count_op(SimOp::Write)?;
        let offset = size(offset)?;
        let grows = (offset + bytes.len()).saturating_sub(self.node(node)?.len()) as u64;
        if grows > self.free_bytes().unwrap_or(u64::MAX) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match outcome {
            OpOutcome::Done => self.node(node)?.write(bytes, offset),
            OpOutcome::ThenOff => {
                self.node(node)?.write(bytes, offset);
                return Err(power_is_off());
            }
            OpOutcome::Fails(SimFailure::Io) => return Err(io_error()),
            OpOutcome::Fails(SimFailure::Full) => return Err(io::ErrorKind::StorageFull.into()),
            OpOutcome::Fails(SimFailure::Short) => {
                // Kernels copy whole pages, so the retained data ends at a sector boundary.
                let half = (offset + bytes.len() / 2) / 512 * 512;
                let kept = half.saturating_sub(offset);
                self.node(node)?.write(&bytes[..kept], offset);
                return Err(io_error());
            }
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, node: u64) -> io::Result<()> {
        match self.count_op(SimOp::Sync)? {
            OpOutcome::Done => self.node(node)?.sync(),
            OpOutcome::ThenOff => return Err(power_is_off()),
            OpOutcome::Fails(_) => {
                self.node(node)?.lose_dirty();
                return Err(io_error());
            }
        }
        Ok(())
    }

    pub(super) fn len(&mut self, node: u64) -> io::Result<u64> {
        if self.off {
            return Err(power_is_off());
        }
        Ok(self.node(node)?.len() as u64)
    }

    pub(super) fn set_len(&mut self, node: u64, len: u64, only_grow: bool) -> io::Result<()> {
        let off = self.count_whole_op(SimOp::Resize)?;
        let len = size(len)?;
        let now = self.node(node)?.len();
        if len.saturating_sub(now) as u64 > self.free_bytes().unwrap_or(u64::MAX) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if !only_grow || len > now {
            self.node(node)?.set_len(len);
        }
        if off { Err(power_is_off()) } else { Ok(()) }
    }

    /// See [`SimDisk::power_cut`](super::SimDisk::power_cut).
    pub(super) fn power_cut(&self, seed: u64) -> Self {
        let mut draw = SplitMix(seed);
        // The probability ranges from 1/8 to 7/8, so that rare subsets of many sectors occur too.
        let likely = 1 + draw.next() % 7;
        let mut names = self.durable_names.clone();
        for change in &self.pending {
            if draw.chance(likely) {
                apply(&mut names, change);
            }
        }
        let all_names = names.clone();
        names.retain(|path, _| {
            let mut dir = parent(path);
            while !dir.is_empty() && all_names.get(dir) == Some(&Entry::Dir) {
                dir = parent(dir);
            }
            dir.is_empty()
        });
        let mut nodes = BTreeMap::new();
        for entry in names.values() {
            if let Entry::File(number) = entry
                && let Some(node) = self.nodes.get(number)
            {
                nodes.insert(
                    *number,
                    Node::with_content(node.after_cut(&mut draw, likely)),
                );
            }
        }
        Self {
            nodes,
            durable_names: names.clone(),
            names,
            next_node: self.next_node,
            capacity: self.capacity,
            ..Self::default()
        }
    }

    /// See [`SimDisk::killed`](super::SimDisk::killed).
    pub(super) fn killed(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            pending: self.pending.clone(),
            next_node: self.next_node,
            capacity: self.capacity,
            ..Self::default()
        }
    }

    pub(super) fn files(&self) -> Vec<String> {
        let is_file = |entry: &Entry| matches!(entry, Entry::File(_));
        self.names
            .iter()
            .filter(|(_, e)| is_file(e))
            .map(|(path, _)| path.clone())
            .collect()
    }

    pub(super) fn content(&self, path: &str) -> Option<Vec<u8>> {
        match self.names.get(path)? {
            Entry::File(node) => Some(self.nodes.get(node)?.current().to_vec()),
            Entry::Dir => None,
        }
    }

    pub(super) fn put(&mut self, path: &str, content: Vec<u8>) {
        let node = self.next_node;
        self.next_node += 1;
        self.nodes.insert(node, Node::with_content(content));
        for names in [&mut self.names, &mut self.durable_names] {
            let mut dir = parent(path);
            while !dir.is_empty() {
                names.insert(dir.to_owned(), Entry::Dir);
                dir = parent(dir);
            }
            names.insert(path.to_owned(), Entry::File(node));
        }
    }

    pub(super) fn take(&mut self, path: &str) -> Option<Vec<u8>> {
        let content = self.content(path);
        self.names.remove(path);
        self.durable_names.remove(path);
        content
    }

    pub(super) fn change(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(mut content) = self.content(path)
            && let Some(Entry::File(node)) = self.names.get(path)
        {
            change(&mut content);
            self.nodes.insert(*node, Node::with_content(content));
        }
    }
}

fn apply(names: &mut BTreeMap<String, Entry>, change: &NameOp) {
    match change {
        NameOp::Set { path, entry } => {
            names.insert(path.clone(), *entry);
        }
        NameOp::Rename { from, to, entry } => {
            names.remove(from);
            names.insert(to.clone(), *entry);
        }
        NameOp::Unset { path } => {
            names.remove(path);
        }
    }
}
