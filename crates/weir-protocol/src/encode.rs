//! Encodes messages to bytes. A connection owns one encoder, which reuses its scratch
//! memory: encoding a message does not allocate.

use weir_psyc::{Modifier, Packet as Psyc, Renderer};

use crate::fields::{put_hex, put_number};
use crate::message::{
    After, Hello, HelloOk, Listen, ListenQuery, Message, Packet, RefusalMessage, TextOperation,
    TextWrite,
};
use weir_core::record::RecordKind;
use weir_scan::BadItem;

/// No message has more variables.
const VARIABLES_MAX: usize = 28;

/// Renders messages.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The values of the variables, one after the other.
    scratch: Vec<u8>,
    /// Name of each variable and the end of its value in `scratch`, in the order of the
    /// header.
    ends: Vec<(&'static [u8], usize)>,
}

impl Encoder {
    /// Appends the packet to `out`. Returns `false` and appends nothing if a tag contains
    /// LF or a variable cannot represent its value.
    pub fn encode(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
        self.scratch.clear();
        self.ends.clear();
        if !packet.require.is_empty() {
            self.bytes(b"_require", packet.require);
        }
        let (method, data) = self.message(&packet.message);
        if let Some(consistency) = packet.consistency {
            self.bytes(b"_consistency", consistency.name().as_bytes());
        }
        let mut modifiers = [Modifier::set(b"_", b""); VARIABLES_MAX];
        let mut start = 0;
        for (slot, (name, end)) in modifiers.iter_mut().zip(&self.ends) {
            let Some(value) = self.scratch.get(start..*end) else {
                unreachable!("the ends of values ascend within the scratch buffer")
            };
            *slot = Modifier::set(name, value);
            start = *end;
        }
        let Some(entity) = modifiers.get(..self.ends.len()) else {
            unreachable!("a message has at most {VARIABLES_MAX} variables")
        };
        let name: &[u8] = if is_request(method) {
            b"_tag"
        } else {
            b"_tag_relay"
        };
        let tag = [Modifier::set(name, packet.tag)];
        let routing = if packet.tag.is_empty() { &[][..] } else { &tag };
        let psyc = Psyc::new(routing, entity, method, data);
        Renderer::new().append(&psyc, out).is_ok()
    }

    fn bytes(&mut self, name: &'static [u8], value: &[u8]) {
        self.scratch.extend_from_slice(value);
        self.ends.push((name, self.scratch.len()));
    }

    fn filled(&mut self, name: &'static [u8], value: &[u8]) {
        if !value.is_empty() {
            self.bytes(name, value);
        }
    }

    fn number(&mut self, name: &'static [u8], value: u64) {
        put_number(&mut self.scratch, value);
        self.ends.push((name, self.scratch.len()));
    }

    fn not_zero(&mut self, name: &'static [u8], value: u64) {
        if value != 0 {
            self.number(name, value);
        }
    }

    fn optional_number(&mut self, name: &'static [u8], value: Option<u64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    fn flag(&mut self, name: &'static [u8], value: bool) {
        if value {
            self.number(name, 1);
        }
    }

    fn hex(&mut self, name: &'static [u8], value: &[u8]) {
        put_hex(&mut self.scratch, value);
        self.ends.push((name, self.scratch.len()));
    }

    fn message<'a>(&mut self, message: &Message<'a>) -> (&'a [u8], &'a [u8]) {
        const NONE: &[u8] = b"";
        match *message {
            Message::Empty => (NONE, NONE),
            Message::Hello(ref hello) => self.hello(hello),
            Message::HelloOk(ref hello) => self.hello_ok(hello),
            Message::Config {
                term,
                leader,
                nodes,
            } => {
                self.number(b"_term", term);
                if let Some(id) = leader {
                    self.hex(b"_leader", &id);
                }
                (b"_status_config", nodes)
            }
            Message::Write { count, items } => {
                self.number(b"_count", u64::from(count));
                (b"_request_write", items)
            }
            Message::TextWrite(ref write) => self.text_write(write),
            Message::Committed { lines } => (b"_notice_committed", lines),
            Message::Received { nonce, count } => {
                self.number(b"_nonce", nonce);
                self.number(b"_count", count);
                (b"_notice_received", NONE)
            }
            Message::Refusal(ref refusal) => self.refusal(refusal),
            Message::Bye => (b"_request_bye", NONE),
            Message::ByeNotice => (b"_notice_bye", NONE),
            Message::Drain { within_ms } => {
                self.number(b"_within_ms", within_ms);
                (b"_notice_drain", NONE)
            }
            Message::Window {
                window,
                window_bytes,
            } => {
                self.number(b"_window", window);
                self.number(b"_window_bytes", window_bytes);
                (b"_notice_credit", NONE)
            }
            Message::Ping => (b"_request_ping", NONE),
            Message::Pong => (b"_echo_ping", NONE),
            Message::Unknown { method } => (method, NONE),
            ref other => self.reading(other),
        }
    }

    /// Listening and reading.
    #[allow(clippy::too_many_lines, reason = "one arm for each message")]
    fn reading<'a>(&mut self, message: &Message<'a>) -> (&'a [u8], &'a [u8]) {
        const NONE: &[u8] = b"";
        match *message {
            Message::Listen(ref listen) => self.listen(listen),
            Message::Listening {
                position,
                first,
                last,
            } => {
                self.number(b"_position", position);
                self.number(b"_first", first);
                self.number(b"_last", last);
                (b"_notice_listen", NONE)
            }
            Message::Records { from, replay, page } => {
                self.number(b"_from", from);
                self.flag(b"_replay", replay);
                (b"_data_records", page)
            }
            Message::Progress { position } => {
                self.number(b"_position", position);
                (b"_notice_progress", NONE)
            }
            Message::End { position } => {
                self.number(b"_position", position);
                (b"_notice_end", NONE)
            }
            Message::Skipped { count } => {
                self.number(b"_count", count);
                (b"_notice_skipped", NONE)
            }
            Message::Applied => (b"_request_applied", NONE),
            Message::AppliedResponse {
                applied,
                settled,
                created,
                lagging,
            } => {
                self.number(b"_applied", applied);
                self.number(b"_settled", settled);
                self.number(b"_created", created);
                (b"_data_applied", lagging)
            }
            Message::Unlisten => (b"_request_unlisten", NONE),
            Message::Credit { bytes, records } => {
                self.number(b"_bytes", bytes);
                self.number(b"_records", records);
                (b"_request_credit", NONE)
            }
            Message::Get {
                topic,
                key,
                at_least,
                applied,
            } => {
                self.bytes(b"_topic", topic.as_bytes());
                self.bytes(b"_key", key);
                self.not_zero(b"_at_least", at_least);
                self.not_zero(b"_applied", applied);
                (b"_request_get", NONE)
            }
            Message::GetRecord { topic, offset } => {
                self.bytes(b"_topic", topic.as_bytes());
                self.number(b"_offset", offset);
                (b"_request_record", NONE)
            }
            Message::Value { page } => (b"_data_value", page),
            Message::Scan {
                topic,
                prefix,
                after,
                limit,
            } => {
                self.bytes(b"_topic", topic.as_bytes());
                self.filled(b"_prefix", prefix);
                if let Some(key) = after {
                    self.bytes(b"_after", key);
                }
                self.number(b"_limit", limit);
                (b"_request_scan", NONE)
            }
            Message::Keys { more, entries } => {
                self.flag(b"_more", more);
                (b"_data_keys", entries)
            }
            Message::Topics {
                prefix,
                after,
                limit,
                dead,
            } => {
                self.filled(b"_prefix", prefix);
                self.filled(b"_after", after);
                self.number(b"_limit", limit);
                self.flag(b"_dead", dead);
                (b"_request_topics", NONE)
            }
            Message::Topic { topic } => {
                self.bytes(b"_topic", topic.as_bytes());
                (b"_request_topic", NONE)
            }
            Message::TopicsResponse { more, lines } => {
                self.flag(b"_more", more);
                (b"_data_topics", lines)
            }
            Message::Program { topic } => {
                self.bytes(b"_topic", topic.as_bytes());
                (b"_request_program", NONE)
            }
            Message::ProgramResponse(None) => (b"_data_program", NONE),
            Message::ProgramResponse(Some(program)) => {
                self.hex(b"_hash", &program.hash);
                self.number(b"_state", program.mode);
                self.number(b"_entries", program.entries);
                self.number(b"_bytes", program.bytes);
                self.not_zero(b"_calls", program.counts.calls);
                self.not_zero(b"_fuel", program.counts.fuel);
                self.not_zero(b"_rejects", program.counts.rejects);
                self.not_zero(b"_traps", program.counts.traps);
                (b"_data_program", program.args)
            }
            Message::GroupClaim(ref claim) => {
                self.bytes(b"_topic", claim.topic.as_bytes());
                self.bytes(b"_group", claim.group.as_bytes());
                self.bytes(b"_member", claim.member);
                self.number(b"_max", claim.max);
                self.not_zero(b"_wait_ms", claim.wait_ms);
                self.not_zero(b"_lease_ms", claim.lease_ms);
                (b"_request_group_claim", NONE)
            }
            Message::GroupRecords(ref answer) => {
                self.not_zero(b"_claim", answer.claim);
                self.not_zero(b"_reason", answer.reason);
                self.number(b"_frontier", answer.frontier);
                self.optional_number(b"_due_ms", answer.due_ms);
                (b"_data_group_records", answer.data)
            }
            Message::Group { topic, group } => {
                self.bytes(b"_topic", topic.as_bytes());
                self.bytes(b"_group", group.as_bytes());
                (b"_request_group", NONE)
            }
            Message::Groups { topic, after } => {
                self.bytes(b"_topic", topic.as_bytes());
                self.filled(b"_after", after.as_bytes());
                (b"_request_groups", NONE)
            }
            Message::GroupsResponse { more, lines } => {
                self.flag(b"_more", more);
                (b"_data_groups", lines)
            }
            Message::Status => (b"_request_status", NONE),
            Message::StatusResponse { lines } => (b"_data_status", lines),
            Message::Files { path } => {
                self.bytes(b"_path", path.as_bytes());
                (b"_request_files", NONE)
            }
            Message::FilesResponse { lines } => (b"_data_files", lines),
            Message::File { path, at, bytes } => {
                self.bytes(b"_path", path.as_bytes());
                self.not_zero(b"_at", at);
                self.not_zero(b"_bytes", bytes);
                (b"_request_file", NONE)
            }
            Message::FileResponse { length, part } => {
                self.optional_number(b"_length", length);
                (b"_data_file", part)
            }
            Message::Compact => (b"_request_compact", NONE),
            Message::Compacted {
                index,
                bytes_before,
                bytes_after,
            } => {
                self.number(b"_index", index);
                self.number(b"_bytes_before", bytes_before);
                self.number(b"_bytes_after", bytes_after);
                (b"_notice_compact", NONE)
            }
            Message::Sync => (b"_request_sync", NONE),
            Message::ClusterAdd { peer } => {
                self.bytes(b"_peer", peer.as_bytes());
                (b"_request_cluster_add", NONE)
            }
            Message::ClusterAdded { node } => {
                self.number(b"_node", node);
                (b"_notice_cluster_added", NONE)
            }
            Message::ClusterRemove { node } => {
                self.number(b"_node", node);
                (b"_request_cluster_remove", NONE)
            }
            Message::ClusterTransfer { node } => {
                self.number(b"_node", node);
                (b"_request_cluster_transfer", NONE)
            }
            Message::ClusterChanged => (b"_notice_cluster_changed", NONE),
            Message::Synced => (b"_notice_sync", NONE),
            _ => (NONE, NONE),
        }
    }

    fn hello<'a>(&mut self, hello: &Hello<'a>) -> (&'a [u8], &'a [u8]) {
        self.filled(b"_versions", hello.versions);
        if !hello.client.is_none() {
            self.hex(b"_client", &hello.client.0);
        }
        self.optional_number(b"_resume", hello.resume);
        self.optional_number(b"_window", hello.window);
        self.flag(b"_received", hello.received);
        if let Some(store) = hello.store {
            self.hex(b"_store", &store);
        }
        self.filled(b"_token", hello.token);
        self.filled(b"_agent", hello.agent);
        (b"_request_hello", b"")
    }

    fn hello_ok<'a>(&mut self, hello: &HelloOk<'a>) -> (&'a [u8], &'a [u8]) {
        self.bytes(b"_version", hello.version);
        self.hex(b"_store", &hello.store);
        self.hex(b"_node", &hello.node);
        self.bytes(b"_level", hello.level);
        self.filled(b"_volatile", hello.volatile);
        self.filled(b"_failure", hello.failure);
        self.number(b"_next", hello.next);
        self.number(b"_window", hello.window);
        self.number(b"_window_bytes", hello.window_bytes);
        self.number(b"_applied", hello.applied);
        self.number(b"_term", hello.term);
        self.number(b"_key_bytes_max", hello.key_bytes_max);
        self.number(b"_value_bytes_max", hello.value_bytes_max);
        self.number(b"_idle_ms", hello.idle_ms);
        self.filled(b"_features", hello.features);
        self.filled(b"_agent", hello.agent);
        if let Some(client) = hello.client {
            self.hex(b"_client", &client.0);
        }
        (b"_notice_hello", b"")
    }

    fn text_write<'a>(&mut self, write: &TextWrite<'a>) -> (&'a [u8], &'a [u8]) {
        self.bytes(b"_topic", write.topic.as_bytes());
        let (method, data): (&[u8], &[u8]) = match write.kind {
            TextOperation::Put { key, value } => {
                self.filled(b"_key", key);
                (b"_request_put", value)
            }
            TextOperation::Delete { key } => {
                self.bytes(b"_key", key);
                (b"_request_delete", b"")
            }
            TextOperation::Create { options } => {
                self.filled(b"_options", options);
                (b"_request_create", b"")
            }
            TextOperation::Destroy => (b"_request_destroy", b""),
        };
        self.optional_number(b"_nonce", write.nonce);
        self.filled(b"_expect", write.expect.0);
        self.filled(b"_meta", write.meta);
        (method, data)
    }

    fn listen<'a>(&mut self, listen: &Listen<'a>) -> (&'a [u8], &'a [u8]) {
        self.bytes(b"_topic", listen.topic.as_bytes());
        let (word, number): (&[u8], _) = match listen.after {
            After::Offset(offset) => (b"", Some(offset)),
            After::Tail => (b"tail", None),
            After::Last(n) => (b"last:", Some(n)),
            After::Time(ms) => (b"time:", Some(ms)),
            After::Latest => (b"latest", None),
        };
        self.scratch.extend_from_slice(word);
        if let Some(number) = number {
            put_number(&mut self.scratch, number);
        }
        self.ends.push((b"_after", self.scratch.len()));
        self.number(b"_follow", u64::from(listen.follow));
        self.number(b"_bytes", listen.bytes);
        self.number(b"_records", listen.records);
        if let Some(key) = listen.key {
            self.bytes(b"_key", key);
        }
        if let Some(prefix) = listen.prefix {
            self.bytes(b"_prefix", prefix);
        }
        if listen.kinds != 0 {
            let kinds = (1..8).filter(|n| listen.kinds & 1 << n != 0);
            let mut between: &[u8] = b"";
            for kind in kinds.filter_map(RecordKind::from_number) {
                self.scratch.extend_from_slice(between);
                self.scratch.extend_from_slice(kind.name().as_bytes());
                between = b" ";
            }
            self.ends.push((b"_kinds", self.scratch.len()));
        }
        if listen.reset_earliest {
            self.bytes(b"_reset", b"earliest");
        }
        self.query(&listen.query);
        (b"_request_listen", b"")
    }

    fn query(&mut self, query: &ListenQuery<'_>) {
        self.optional_number(b"_limit", query.limit);
        self.optional_number(b"_until", query.until);
        self.flag(b"_marks", query.marks);
        if let Some(from) = query.from {
            self.bytes(b"_key_from", from);
        }
        let Some(pushdown) = &query.pushdown else {
            return;
        };
        self.filled(b"_where", pushdown.filter);
        self.filled(b"_params", pushdown.params);
        self.filled(b"_order", pushdown.order);
        self.filled(b"_group", pushdown.group);
        self.filled(b"_select", pushdown.select);
        let level: &[u8] = if pushdown.strict {
            b"strict"
        } else {
            b"structural"
        };
        self.scratch.extend_from_slice(level);
        let words: [(bool, &[u8]); 6] = [
            (pushdown.on_bad_item == BadItem::Skip, b" skip"),
            (pushdown.on_bad_item == BadItem::Undefined, b" undefined"),
            (pushdown.utf16, b" utf16"),
            (pushdown.rank, b" rank"),
            (pushdown.drop, b" drop"),
            (pushdown.cut, b" cut"),
        ];
        for (_, word) in words.iter().filter(|(is_set, _)| *is_set) {
            self.scratch.extend_from_slice(word);
        }
        self.ends.push((b"_filter", self.scratch.len()));
    }

    fn refusal<'a>(&mut self, refusal: &RefusalMessage<'a>) -> (&'a [u8], &'a [u8]) {
        self.not_zero(b"_number", refusal.number);
        self.flag(b"_fatal", refusal.fatal);
        self.optional_number(b"_retry_ms", refusal.retry_ms);
        self.optional_number(b"_nonce", refusal.nonce);
        self.optional_number(b"_count", refusal.count);
        self.optional_number(b"_item", refusal.item);
        self.optional_number(b"_expected", refusal.expected);
        self.optional_number(b"_limit", refusal.limit);
        self.optional_number(b"_record", refusal.record);
        self.optional_number(b"_byte", refusal.byte);
        self.optional_number(b"_first", refusal.first);
        self.optional_number(b"_last", refusal.last);
        self.filled(b"_address", refusal.address);
        self.optional_number(b"_at", refusal.at);
        self.filled(b"_versions", refusal.versions);
        (refusal.method, refusal.text)
    }
}

fn is_request(method: &[u8]) -> bool {
    method.starts_with(b"_request_")
}
