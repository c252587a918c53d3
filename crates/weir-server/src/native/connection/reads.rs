//! Reads: values, keys, topics, counts.

use std::sync::Arc;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use weir_core::codec::{put_bytes, put_varint};
use weir_core::{ConsequenceOffset, ErrorCode, RecordKind};
use weir_protocol::{
    ANSWER_BYTES_MAX, Consistency, FILE_BYTES_MAX, Message, Packet, ProgramAnswer, TopicLine,
    write_status, write_topic,
};
use weir_store::{
    Current, HistoryPath, Page, PageBuilder, SCAN_KEYS_MAX, Store, StoreError, TopicInfo, key_after,
};

use super::Connection;
use crate::cluster::{ClusterNode, NodeError};
use crate::limits::BLOCK_BYTES_FREE;
use crate::limits::readers::READER_THREAD;
use crate::listing;
use crate::native::listeners::PACKET_HEAD_BYTES;
use crate::native::refuse::{self, Refused};
use crate::security::{EVERY_TOPIC, Right};
use crate::shared::Shared;
use crate::status;

/// Longest time that a read waits until the node catches up.
pub(super) const LAG_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// Whether a read got its response.
pub(super) enum Read {
    /// The response was sent.
    Done,
    /// The node lags: the packet is retried later.
    Wait,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Responds to a read.
    pub(super) async fn read(
        &mut self,
        tag: &[u8],
        message: &Message<'_>,
        consistency: Consistency,
    ) -> Result<Read, Refused> {
        match *message {
            Message::Get {
                topic,
                key,
                at_least,
                applied,
            } => {
                let seen = [at_least, applied];
                return self.get(tag, topic, key, seen, consistency).await;
            }
            Message::GetRecord { topic, offset } => {
                return self.record(tag, topic, offset, consistency).await;
            }
            Message::Scan {
                topic,
                prefix,
                after,
                limit,
            } => {
                self.check_read(Right::Read, topic, consistency).await?;
                self.scan(tag, topic, prefix, after, limit).await?;
            }
            Message::Topics {
                prefix,
                after,
                limit,
                dead,
            } => {
                self.check_read(Right::Read, "", consistency).await?;
                self.topics(tag, prefix, after, limit, dead).await?;
            }
            Message::Topic { topic } => {
                self.check_read(Right::Read, topic, consistency).await?;
                let info = self.port.shared.store.topic(topic);
                let info = info.ok_or(Refused::plain(ErrorCode::TopicUnknown))?;
                let mut lines = Vec::new();
                line(&mut lines, &info);
                self.lines(tag, false, &lines);
            }
            Message::Program { topic } => return self.program(tag, topic, consistency).await,
            Message::Group { topic, group } => {
                self.group(tag, topic, group, consistency).await?;
            }
            Message::Groups { topic, after } => {
                self.groups(tag, topic, after, consistency).await?;
            }
            Message::Applied => {
                self.check_read(Right::Read, "", consistency).await?;
                let answer = applied(&self.port.shared.store, &[]);
                self.send(&Packet::tagged(tag, answer));
            }
            Message::Status => {
                self.check_status()?;
                let shared = Arc::clone(&self.port.shared);
                let lines = self.blocking(move |_| Ok(status_lines(&shared))).await?;
                self.send(&Packet::tagged(
                    tag,
                    Message::StatusResponse { lines: &lines },
                ));
            }
            Message::Files { .. } | Message::File { .. } => self.history(tag, message).await?,
            Message::Compact => {
                self.check_request(Right::Admin, "")?;
                let report = self.blocking(Store::compact).await?;
                let answer = Message::Compacted {
                    index: report.index.0,
                    bytes_before: report.log_bytes_before,
                    bytes_after: report.log_bytes_after,
                };
                self.send(&Packet::tagged(tag, answer));
            }
            Message::ClusterAdd { .. }
            | Message::ClusterRemove { .. }
            | Message::ClusterTransfer { .. } => self.change_cluster(tag, message).await?,
            Message::Sync => {
                self.check_request(Right::Admin, "")?;
                let store = Arc::clone(&self.port.shared.store);
                match tokio::task::spawn_blocking(move || store.sync()).await {
                    Ok(Ok(_)) => self.send(&Packet::tagged(tag, Message::Synced)),
                    Ok(Err(error)) => return Err(refuse::of_store(&error)),
                    Err(_) => return Err(Refused::plain(ErrorCode::Internal)),
                }
            }
            _ => return Err(Refused::plain(ErrorCode::Unsupported)),
        }
        Ok(Read::Done)
    }

    /// Responds to a read of the history files.
    async fn history(&mut self, tag: &[u8], message: &Message<'_>) -> Result<(), Refused> {
        match *message {
            Message::Files { path } => {
                let path = self.history_path(path, 0)?;
                let names = self.reading(move |store| store.history_names(&path));
                let (names, permit) = names.await?;
                let lines = names.join("\n");
                let lines = lines.as_bytes();
                drop(permit);
                self.send(&Packet::tagged(tag, Message::FilesResponse { lines }));
            }
            Message::File { path, at, bytes } => {
                let path = self.history_path(path, at)?;
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                let bytes = bytes.min(FILE_BYTES_MAX);
                let part = self.reading(move |store| store.history_part(&path, at, bytes));
                let (part, permit) = part.await?;
                drop(permit);
                let (length, part) =
                    part.map_or((None, Vec::new()), |(length, part)| (Some(length), part));
                let part = part.as_slice();
                self.send(&Packet::tagged(tag, Message::FileResponse { length, part }));
            }
            _ => return Err(Refused::plain(ErrorCode::Unsupported)),
        }
        Ok(())
    }

    /// Changes the members of the cluster, or transfers leadership, at the leader.
    async fn change_cluster(&mut self, tag: &[u8], message: &Message<'_>) -> Result<(), Refused> {
        match *message {
            Message::ClusterAdd { peer } => {
                let cluster = self.cluster_to_change()?;
                match Box::pin(cluster.add(peer)).await {
                    Ok(node) => self.send(&Packet::tagged(tag, Message::ClusterAdded { node })),
                    Err(error) => self.answer_change(tag, Err(error))?,
                }
            }
            Message::ClusterRemove { node } => {
                let cluster = self.cluster_to_change()?;
                let changed = Box::pin(cluster.remove(node)).await;
                self.answer_change(tag, changed)?;
            }
            Message::ClusterTransfer { node } => {
                let cluster = self.cluster_to_change()?;
                let changed = Box::pin(cluster.transfer_leadership(node)).await;
                self.answer_change(tag, changed)?;
            }
            _ => return Err(Refused::plain(ErrorCode::Unsupported)),
        }
        Ok(())
    }

    /// Checks a read that may be retried several times. Charges its rate, and waits until it may
    /// begin, only once. Returns false if the memory for its response is still not free.
    pub(super) async fn may_retry(
        &mut self,
        topic: &str,
        consistency: Consistency,
    ) -> Result<bool, Refused> {
        let is_first = self.lag_deadline.is_none() && self.needed_bytes == 0;
        if is_first {
            self.check_rate(1, 0)?;
        }
        self.check_right(Right::Read, topic)?;
        if is_first {
            self.wait_for_consistency(consistency).await?;
        }
        Ok(self.out.reserve(self.needed_bytes))
    }

    /// Reserves memory for a block before it is read. Returns false if it is not free.
    fn reserve_block(&mut self, block_bytes: usize) -> bool {
        if block_bytes > BLOCK_BYTES_FREE {
            self.needed_bytes = self.needed_bytes.max(block_bytes);
        }
        self.out.reserve(self.needed_bytes)
    }

    /// Parses the path of a file of the history, which needs rights on all topics. The audit
    /// records the check only for the first part of a file; entries for each part would
    /// displace other entries.
    fn history_path(&self, path: &str, at: u64) -> Result<HistoryPath, Refused> {
        self.check_rate(1, 0)?;
        let shared = &self.port.shared;
        if at == 0 || !shared.security.has(&self.principal, Right::Admin, "") {
            self.check_right(Right::Admin, "")?;
        }
        self.check_right(Right::Read, EVERY_TOPIC)?;
        let text = "the history has no file with this path";
        HistoryPath::new(path).ok_or_else(|| Refused::new(ErrorCode::BadOption, text))
    }

    /// Returns the node, if the caller may change its cluster.
    fn cluster_to_change(&mut self) -> Result<Arc<ClusterNode>, Refused> {
        self.check_request(Right::Admin, "")?;
        let cluster = self.port.shared.cluster.clone();
        let text = "this server is not a node of a cluster";
        cluster.ok_or_else(|| Refused::new(ErrorCode::Unsupported, text))
    }

    /// Responds to a change of the cluster.
    fn answer_change(&mut self, tag: &[u8], changed: Result<(), NodeError>) -> Result<(), Refused> {
        changed.map_err(|error| match error {
            NodeError::Store(error) => refuse::of_store(&error),
            NodeError::NotReady(why) => Refused::new(ErrorCode::Unreachable, why),
            error => Refused::new(ErrorCode::BadOption, error.to_string()),
        })?;
        self.send(&Packet::tagged(tag, Message::ClusterChanged));
        Ok(())
    }

    /// Retries the request later, because this node has not applied the intention that the request
    /// names. After `LAG_MAX`, refuses it.
    pub(super) fn wait_for_node(&mut self) -> Result<Read, Refused> {
        let until = *self.lag_deadline.get_or_insert(Instant::now() + LAG_MAX);
        if Instant::now() < until {
            return Ok(Read::Wait);
        }
        Err(Refused::plain(ErrorCode::Lagging))
    }

    /// Checks a read that is not retried, and waits until it may begin.
    pub(super) async fn check_read(
        &mut self,
        right: Right,
        topic: &str,
        consistency: Consistency,
    ) -> Result<(), Refused> {
        self.check_request(right, topic)?;
        self.wait_for_consistency(consistency).await
    }

    /// Waits until this node has applied everything that a read with this consistency must see.
    ///
    /// All packets of a turn arrived before it. So a refusal of the wait applies to the whole turn.
    async fn wait_for_consistency(&mut self, consistency: Consistency) -> Result<(), Refused> {
        if consistency == Consistency::Local || self.port.shared.cluster.is_none() {
            return Ok(());
        }
        if let Some((level, refused)) = &self.unconfirmed
            && *level == consistency
        {
            return Err(refused.clone());
        }
        let waited = self.port.shared.wait_for_consistency(consistency).await;
        self.waited = true;
        // The client was not silent: nothing was read from it meanwhile.
        self.last_received = Instant::now();
        let waited = waited.map_err(|error| refuse::of_store(&error));
        let refused = waited.as_ref().err();
        self.unconfirmed = refused.map(|refused| (consistency, refused.clone()));
        waited
    }

    async fn get(
        &mut self,
        tag: &[u8],
        topic: &str,
        key: &[u8],
        [at_least, applied]: [u64; 2],
        consistency: Consistency,
    ) -> Result<Read, Refused> {
        if !self.may_retry(topic, consistency).await? {
            return Ok(Read::Wait);
        }
        let store = Arc::clone(&self.port.shared.store);
        let is_lagging = (applied > 0 && store.applied().0 < applied)
            || (at_least > 0 && store.topic(topic).is_none_or(|info| info.last.0 < at_least));
        if is_lagging {
            return self.wait_for_node();
        }
        let mut permit = None;
        let page = match store.try_get(topic, key) {
            Poll::Ready(Current::Record(page)) => Some(page),
            Poll::Ready(Current::NoKey) => None,
            // The blocking read distinguishes a destroyed topic from one that never existed.
            Poll::Ready(Current::NoTopic) | Poll::Pending => {
                let before = store.key_offset(topic, key).map(|offset| offset.0 - 1);
                let reader = before.and_then(|at| store.read(topic, ConsequenceOffset(at)).ok());
                if !self.reserve_block(reader.map_or(0, |reader| reader.next_page_bytes())) {
                    return Ok(Read::Wait);
                }
                let (topic, key) = (topic.to_owned(), key.to_vec());
                let (found, reader_permit) =
                    self.reading(move |store| store.get(&topic, &key)).await?;
                permit = Some(reader_permit);
                found
            }
        };
        let page = page.ok_or(Refused::plain(ErrorCode::KeyAbsent))?;
        let read = self.value(tag, page);
        drop(permit);
        read
    }

    async fn record(
        &mut self,
        tag: &[u8],
        topic: &str,
        offset: u64,
        consistency: Consistency,
    ) -> Result<Read, Refused> {
        if !self.may_retry(topic, consistency).await? {
            return Ok(Read::Wait);
        }
        let absent = || Refused::plain(ErrorCode::RecordAbsent);
        let mut permit = None;
        let before = ConsequenceOffset(offset.checked_sub(1).ok_or_else(absent)?);
        let result = match self.port.shared.store.try_read(topic, before) {
            Poll::Ready(reader) => reader
                .map_err(|error| refuse::of_store(&error))?
                .try_next_page(),
            Poll::Pending => Poll::Pending,
        };
        let page = if let Poll::Ready(page) = result {
            page
        } else {
            let reader = self.port.shared.store.read(topic, before).ok();
            if !self.reserve_block(reader.map_or(0, |reader| reader.next_page_bytes())) {
                return Ok(Read::Wait);
            }
            let topic = topic.to_owned();
            let read = self.reading(move |store| store.read(&topic, before)?.next_page());
            let (page, reader_permit) = read.await?;
            permit = Some(reader_permit);
            page
        };
        let page = page.ok_or_else(absent)?;
        let first = page.iter().next().transpose();
        let first = first.map_err(|error| refuse::of_store(&error))?;
        if first.is_none_or(|record| record.offset.0 != offset) {
            return Err(absent());
        }
        let read = self.value(tag, page);
        drop(permit);
        read
    }

    /// Runs a read that may block, on a reader thread; the permit is held until the response is
    /// built. If the connection ends, the read holds its permit and its memory until it is dropped.
    async fn reading<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), Refused> {
        let readers = &self.port.shared.readers;
        let permit = readers.permit().await;
        let permit = permit.map_err(Refused::exhausted)?;
        let store = Arc::clone(&self.port.shared.store);
        let reserved = self.out.take_reserved();
        let read = readers.run(move || (work(&store), permit, reserved)).await;
        let (read, permit, reserved) = read.map_err(|_| {
            let thread = READER_THREAD;
            refuse::of_store(&StoreError::Panicked { thread })
        })?;
        self.out.restore_reserved(reserved);
        let read = read.map_err(|error| refuse::of_store(&error))?;
        Ok((read, permit))
    }

    /// Sends the first record of a page as a page with only this record.
    fn value(&mut self, tag: &[u8], page: Page) -> Result<Read, Refused> {
        let first = page.iter().next().transpose();
        let record = first.map_err(|error| refuse::of_store(&error))?;
        let record = record.ok_or(Refused::plain(ErrorCode::KeyAbsent))?;
        debug_assert!(record.kind >= RecordKind::Create, "records have a kind");
        let mut one = PageBuilder::default();
        let page = if page.len() == 1 && page.from() <= record.offset.0 {
            page
        } else {
            one.push(&record);
            one.take().unwrap_or(page)
        };
        let size = page.wire_bytes();
        if !self.out.admit(size) {
            self.needed_bytes = size;
            return Ok(Read::Wait);
        }
        let mut bytes = Vec::new();
        bytes.reserve_exact(size);
        page.write_to(&mut bytes);
        // Free the page before the response is copied again.
        drop(page);
        if self.out.is_long(size) {
            self.out.bytes.reserve_exact(size + PACKET_HEAD_BYTES);
        }
        self.send(&Packet::tagged(tag, Message::Value { page: &bytes }));
        Ok(Read::Done)
    }

    async fn scan(
        &mut self,
        tag: &[u8],
        topic: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: u64,
    ) -> Result<(), Refused> {
        let limit = usize::try_from(limit)
            .unwrap_or(SCAN_KEYS_MAX)
            .min(SCAN_KEYS_MAX);
        let store = Arc::clone(&self.port.shared.store);
        let (topic, prefix) = (topic.to_owned(), prefix.to_vec());
        let from = after.map(key_after).unwrap_or_default();
        let scan = move || store.scan_page(&topic, &prefix, &from, limit, ANSWER_BYTES_MAX);
        let scanned = tokio::task::spawn_blocking(scan).await;
        let (keys, more) = scanned
            .unwrap_or(Err(StoreError::Closed))
            .map_err(|error| refuse::of_store(&error))?;
        let mut entries = Vec::new();
        for entry in &keys {
            put_varint(&mut entries, entry.offset.0);
            put_bytes(&mut entries, &entry.key);
        }
        let message = Message::Keys {
            more,
            entries: &entries,
        };
        self.send(&Packet::tagged(tag, message));
        Ok(())
    }

    async fn topics(
        &mut self,
        tag: &[u8],
        prefix: &[u8],
        after: &[u8],
        limit: u64,
        dead: bool,
    ) -> Result<(), Refused> {
        let limit = usize::try_from(limit).unwrap_or(SCAN_KEYS_MAX);
        let limit = limit.min(SCAN_KEYS_MAX);
        // Names are ASCII. Bytes that are not UTF-8 are replaced by a character that sorts after
        // all names and starts none.
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (prefix, after) = (text(prefix), text(after));
        let shared = Arc::clone(&self.port.shared);
        let principal = self.principal.clone();
        let (lines, more) = self
            .blocking(move |_| {
                let requested = limit.saturating_add(1);
                let found = listing::topics(&shared, &principal, &after, &prefix, requested, dead);
                let mut lines = Vec::new();
                for (at, info) in found.iter().enumerate() {
                    if at >= limit || lines.len() >= ANSWER_BYTES_MAX {
                        return Ok((lines, true));
                    }
                    line(&mut lines, info);
                }
                Ok((lines, false))
            })
            .await?;
        self.lines(tag, more, &lines);
        Ok(())
    }

    fn lines(&mut self, tag: &[u8], more: bool, lines: &[u8]) {
        self.send(&Packet::tagged(
            tag,
            Message::TopicsResponse { more, lines },
        ));
    }

    async fn program(
        &mut self,
        tag: &[u8],
        topic: &str,
        consistency: Consistency,
    ) -> Result<Read, Refused> {
        if !self.may_retry(topic, consistency).await? {
            return Ok(Read::Wait);
        }
        let store = Arc::clone(&self.port.shared.store);
        if store.topic(topic).is_none() {
            return Err(Refused::plain(ErrorCode::TopicUnknown));
        }
        let program = store.program(topic);
        if let Some(program) = &program
            && !self.out.admit(program.args.len())
        {
            self.needed_bytes = program.args.len();
            return Ok(Read::Wait);
        }
        let answer = program.as_ref().map(|program| ProgramAnswer {
            hash: program.code.0,
            args: &program.args,
            mode: program.mode as u64,
            entries: program.state_entries,
            bytes: program.state_bytes,
            counts: program.counts,
        });
        self.send(&Packet::tagged(tag, Message::ProgramResponse(answer)));
        Ok(Read::Done)
    }
}

/// Message with the position that this node has applied, and the listeners that lag behind it.
pub(super) fn applied<'a>(store: &Store, lagging: &'a [u8]) -> Message<'a> {
    // Each value is read after the previous one, so it is at least as new.
    let first_applied = store.applied().0;
    Message::AppliedResponse {
        applied: store.applied().0,
        settled: first_applied,
        created: store.newest_topic().0,
        lagging,
    }
}

fn line(lines: &mut Vec<u8>, info: &TopicInfo) {
    let mut options = Vec::new();
    info.options.encode(&mut options);
    if !lines.is_empty() {
        lines.push(b'\n');
    }
    let topic = TopicLine {
        name: &info.name,
        number: info.id.0,
        incarnation: info.incarnation.map_or(0, |offset| offset.0),
        first: info.first.0,
        last: info.last.0,
        keys: info.keys,
        bytes: info.bytes,
        options,
    };
    write_topic(lines, &topic);
}

fn status_lines(shared: &Shared) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in status::fields(shared) {
        write_status(&mut lines, name, &value);
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use weir::{Durability, Intention, OpenOptions, Operation, TopicOptions, Weir};

    use crate::config::ServerConfig;
    use crate::native::{connect, late};

    #[test]
    fn long_arguments_of_a_program_are_reserved_until_they_are_sent() {
        const ARGS_BYTES: usize = 700_000;
        const MODULE: &str = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../programs/prebuilt/nothing.wasm"
        );
        let folder = tempfile::tempdir().unwrap();
        let store_options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        // `Weir` provides the engine of programs.
        let weir = Weir::open_with(folder.path(), &store_options).unwrap();
        let store = weir.shared_store().unwrap();
        let options = TopicOptions::default();
        let (code, args) = (std::fs::read(MODULE).unwrap(), vec![0; ARGS_BYTES]);
        let create = Operation::CreateProgram {
            options: &options,
            code: &code,
            args: &args,
        };
        let proposed = store.propose(&[Intention::new("t", create)]);
        proposed.unwrap().wait().unwrap();
        late::run(async {
            let port = late::port_of(store, ServerConfig::default());
            let answers = port.shared.admission.answers.clone();
            let (server_io, mut client) = duplex(1000);
            let owner = port.shared.security.owner();
            tokio::spawn(async move { connect(&port, server_io, owner, None).await });
            let requests = b"|\n\n_request_hello\n|\n\n:_topic\tt\n_request_program\n|\n";
            client.write_all(requests).await.unwrap();
            let mut received = Vec::new();
            // More than the response to HELLO, and a small part of the arguments.
            while received.len() < ARGS_BYTES / 10 {
                assert!(client.read_buf(&mut received).await.unwrap() > 0);
            }
            assert!(answers.used() >= ARGS_BYTES);
            while received.len() < ARGS_BYTES {
                assert!(client.read_buf(&mut received).await.unwrap() > 0);
            }
            assert_eq!(answers.used(), 0);
        });
    }
}
