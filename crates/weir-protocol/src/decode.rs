//! Decodes one complete packet to a message, strictly.

use thiserror::Error;
use weir_psyc::{Operator, PacketView};

use crate::fields::{hex, number, parse_id, words};
use crate::groups::{GroupAnswer, GroupClaim};
use crate::message::{
    After, Conditions, Consistency, Hello, HelloOk, Listen, ListenQuery, Message, Packet,
    ProgramAnswer, PushdownQuery, RefusalMessage, TextOperation, TextWrite,
};
use crate::{
    AGENT_BYTES_MAX, CLAIM_RECORDS_MAX, PAGE_HEAD_BYTES, PATH_BYTES_MAX, PEER_ADDRESS_BYTES_MAX,
    QUERY_PARAMS_BYTES_MAX, QUERY_TEXT_BYTES_MAX, TAG_BYTES_MAX, TEXT_BYTES_MAX, TOKEN_BYTES_MAX,
    WORDS_MAX,
};
use weir_core::ClientId;
use weir_core::group::GroupName;
use weir_core::limits::{
    CALL_ITEMS_MAX, GROUP_LEASE_MS_MAX, GROUP_MEMBER_BYTES_MAX, GROUP_NAME_BYTES_MAX,
    META_BYTES_MAX, OPTION_BYTES_MAX, TOPIC_NAME_BYTES_MAX,
};
use weir_core::program::ProgramCounts;
use weir_core::record::RecordKind;
use weir_scan::BadItem;

/// A packet with valid syntax that is not a valid message: its known method lacks a
/// variable, or has a malformed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{variable}: expected {what}")]
pub struct ProtocolError {
    /// The variable, or "data", or "packet".
    pub variable: &'static str,
    /// What was expected.
    pub what: &'static str,
}

const fn bad(variable: &'static str, what: &'static str) -> ProtocolError {
    ProtocolError { variable, what }
}

type Read<T> = Result<T, ProtocolError>;

/// Expands to the name of a variable as text, for errors, and as bytes.
macro_rules! var {
    ($name:literal) => {
        ($name, $name.as_bytes())
    };
}

type Name = (&'static str, &'static [u8]);

struct Fields<'v, 'a> {
    view: &'v PacketView<'a>,
}

impl<'a> Fields<'_, 'a> {
    /// Returns the variable. Fails if it occurs twice or has another operator than `:`.
    fn get(&self, (text, name): Name) -> Read<Option<&'a [u8]>> {
        let mut found = None;
        for variable in self.view.entity().filter(|variable| variable.name == name) {
            if found.is_some() || variable.operator != Operator::Set {
                return Err(bad(text, "at most one variable, set with a colon"));
            }
            found = Some(variable.value);
        }
        Ok(found)
    }

    fn bytes(&self, name: Name, max: usize) -> Read<Option<&'a [u8]>> {
        match self.get(name)? {
            Some(value) if value.len() > max => Err(bad(name.0, "fewer bytes")),
            found => Ok(found),
        }
    }

    fn or_empty(&self, name: Name, max: usize) -> Read<&'a [u8]> {
        Ok(self.bytes(name, max)?.unwrap_or_default())
    }

    fn optional_number(&self, name: Name) -> Read<Option<u64>> {
        match self.get(name)? {
            None => Ok(None),
            Some(value) => number(value).map(Some).ok_or(bad(name.0, "a number")),
        }
    }

    fn number(&self, name: Name) -> Read<u64> {
        self.optional_number(name)?.ok_or(bad(name.0, "a number"))
    }

    fn flag(&self, name: Name) -> Read<bool> {
        match self.optional_number(name)? {
            None | Some(0) => Ok(false),
            Some(1) => Ok(true),
            Some(_) => Err(bad(name.0, "0 or 1")),
        }
    }

    fn id(&self, name: Name) -> Read<Option<[u8; 16]>> {
        match self.get(name)? {
            None => Ok(None),
            Some(value) => parse_id(value)
                .map(Some)
                .ok_or(bad(name.0, "32 hexadecimal digits")),
        }
    }

    fn consistency(&self) -> Read<Option<Consistency>> {
        let name = var!("_consistency");
        let word = self.get(name)?;
        let what = bad(name.0, "local, leader or linear");
        word.map(|word| Consistency::from_name(word).ok_or(what))
            .transpose()
    }

    fn words(&self, name: Name) -> Read<&'a [u8]> {
        match self.get(name)? {
            None => Ok(&[]),
            Some(value) if words(value, WORDS_MAX).is_some() => Ok(value),
            Some(_) => Err(bad(name.0, "at most 16 words")),
        }
    }

    fn topic(&self) -> Read<&'a str> {
        let name = self.or_empty(var!("_topic"), TOPIC_NAME_BYTES_MAX)?;
        let text = std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.is_empty());
        text.ok_or(bad("_topic", "a topic name"))
    }

    fn peer(&self) -> Read<&'a str> {
        let address = self.or_empty(var!("_peer"), PEER_ADDRESS_BYTES_MAX)?;
        let text = std::str::from_utf8(address).ok();
        text.ok_or(bad("_peer", "an address"))
    }

    fn path(&self) -> Read<&'a str> {
        let path = self.or_empty(var!("_path"), PATH_BYTES_MAX)?;
        let text = std::str::from_utf8(path).ok();
        text.ok_or(bad("_path", "text"))
    }

    fn group(&self, name: Name) -> Read<&'a str> {
        let bytes = self.or_empty(name, GROUP_NAME_BYTES_MAX)?;
        let text = std::str::from_utf8(bytes).ok();
        text.filter(|text| GroupName::new(text).is_some())
            .ok_or(bad(name.0, "the name of a group"))
    }
}

impl<'a> Packet<'a> {
    /// Decodes a packet.
    ///
    /// # Errors
    /// Fails if a known method lacks a variable or has a malformed one. The connection
    /// cannot continue after this error.
    pub fn read(view: &PacketView<'a>) -> Result<Self, ProtocolError> {
        let fields = Fields { view };
        if view.state().is_some() {
            return Err(bad("packet", "no state operation"));
        }
        let mut tag: &[u8] = &[];
        for variable in view.routing() {
            if matches!(variable.name, b"_tag" | b"_tag_relay") {
                let fits = (1..=TAG_BYTES_MAX).contains(&variable.value.len());
                if !tag.is_empty() || !fits || variable.operator != Operator::Set {
                    return Err(bad("_tag", "one tag of 1 to 64 bytes"));
                }
                tag = variable.value;
            }
        }
        let message = message(&fields)?;
        let is_read = message.default_consistency().is_some();
        Ok(Self {
            tag,
            require: fields.words(var!("_require"))?,
            consistency: if is_read { fields.consistency()? } else { None },
            message,
        })
    }
}

fn message<'a>(fields: &Fields<'_, 'a>) -> Read<Message<'a>> {
    let view = fields.view;
    let data = view.data();
    Ok(match view.method() {
        b"" if view.entity().next().is_none() => Message::Empty,
        b"" => return Err(bad("packet", "a method")),
        b"_request_write" => {
            let count = fields.number(var!("_count"))?;
            let fits = 1..=CALL_ITEMS_MAX as u64;
            let count = u32::try_from(count)
                .ok()
                .filter(|n| fits.contains(&u64::from(*n)));
            let count = count.ok_or(bad("_count", "1 to 10,000 items"))?;
            Message::Write { count, items: data }
        }
        b"_notice_committed" => Message::Committed { lines: data },
        b"_data_records" => Message::Records {
            from: fields.number(var!("_from"))?,
            replay: fields.flag(var!("_replay"))?,
            page: page(data)?,
        },
        b"_request_credit" => Message::Credit {
            bytes: fields.number(var!("_bytes"))?,
            records: fields.number(var!("_records"))?,
        },
        b"_notice_received" => Message::Received {
            nonce: fields.number(var!("_nonce"))?,
            count: fields.number(var!("_count"))?,
        },
        b"_request_hello" => Message::Hello(hello(fields)?),
        b"_notice_hello" => Message::HelloOk(hello_ok(fields)?),
        b"_request_put" | b"_request_delete" | b"_request_create" | b"_request_destroy" => {
            Message::TextWrite(text_write(fields)?)
        }
        b"_request_get" => Message::Get {
            topic: fields.topic()?,
            key: fields
                .get(var!("_key"))?
                .filter(|key| !key.is_empty())
                .ok_or(bad("_key", "a key"))?,
            at_least: fields.optional_number(var!("_at_least"))?.unwrap_or(0),
            applied: fields.optional_number(var!("_applied"))?.unwrap_or(0),
        },
        b"_data_value" => Message::Value { page: page(data)? },
        b"_request_listen" => Message::Listen(listen(fields)?),
        b"_request_ping" => Message::Ping,
        b"_echo_ping" => Message::Pong,
        b"_request_bye" => Message::Bye,
        b"_notice_bye" => Message::ByeNotice,
        method if method.starts_with(b"_error_") || method.starts_with(b"_failure_") => {
            Message::Refusal(refusal(fields)?)
        }
        method => return infrequent_message(fields, method, data),
    })
}

fn page(data: &[u8]) -> Read<&[u8]> {
    if data.len() > PAGE_HEAD_BYTES {
        Ok(data)
    } else {
        Err(bad("data", "a page"))
    }
}

#[allow(clippy::too_many_lines, reason = "one arm for each message")]
fn infrequent_message<'a>(
    fields: &Fields<'_, 'a>,
    method: &'a [u8],
    data: &'a [u8],
) -> Read<Message<'a>> {
    let position = var!("_position");
    Ok(match method {
        b"_status_config" => Message::Config {
            term: fields.number(var!("_term"))?,
            leader: fields.id(var!("_leader"))?,
            nodes: data,
        },
        b"_notice_listen" => Message::Listening {
            position: fields.number(position)?,
            first: fields.number(var!("_first"))?,
            last: fields.number(var!("_last"))?,
        },
        b"_notice_progress" => Message::Progress {
            position: fields.number(position)?,
        },
        b"_notice_end" => Message::End {
            position: fields.number(position)?,
        },
        b"_notice_skipped" => Message::Skipped {
            count: fields.number(var!("_count"))?,
        },
        b"_request_applied" => Message::Applied,
        b"_data_applied" => Message::AppliedResponse {
            applied: fields.number(var!("_applied"))?,
            settled: fields.number(var!("_settled"))?,
            created: fields.number(var!("_created"))?,
            lagging: data,
        },
        b"_request_unlisten" => Message::Unlisten,
        b"_request_record" => Message::GetRecord {
            topic: fields.topic()?,
            offset: fields.number(var!("_offset"))?,
        },
        b"_request_scan" => Message::Scan {
            topic: fields.topic()?,
            prefix: fields.get(var!("_prefix"))?.unwrap_or_default(),
            after: fields.get(var!("_after"))?,
            limit: fields.optional_number(var!("_limit"))?.unwrap_or(u64::MAX),
        },
        b"_data_keys" => Message::Keys {
            more: fields.flag(var!("_more"))?,
            entries: data,
        },
        b"_request_topics" => Message::Topics {
            prefix: fields.or_empty(var!("_prefix"), TOPIC_NAME_BYTES_MAX)?,
            after: fields.or_empty(var!("_after"), TOPIC_NAME_BYTES_MAX)?,
            limit: fields.optional_number(var!("_limit"))?.unwrap_or(u64::MAX),
            dead: fields.flag(var!("_dead"))?,
        },
        b"_request_topic" => Message::Topic {
            topic: fields.topic()?,
        },
        b"_data_topics" => Message::TopicsResponse {
            more: fields.flag(var!("_more"))?,
            lines: data,
        },
        b"_request_program" => Message::Program {
            topic: fields.topic()?,
        },
        b"_data_program" => Message::ProgramResponse(program(fields, data)?),
        b"_request_group_claim" => Message::GroupClaim(claim(fields)?),
        b"_data_group_records" => Message::GroupRecords(GroupAnswer {
            claim: fields.optional_number(var!("_claim"))?.unwrap_or(0),
            reason: fields.optional_number(var!("_reason"))?.unwrap_or(0),
            frontier: fields.number(var!("_frontier"))?,
            due_ms: fields.optional_number(var!("_due_ms"))?,
            data,
        }),
        b"_request_group" => Message::Group {
            topic: fields.topic()?,
            group: fields.group(var!("_group"))?,
        },
        b"_request_groups" => Message::Groups {
            topic: fields.topic()?,
            after: match fields.get(var!("_after"))? {
                None => "",
                Some(_) => fields.group(var!("_after"))?,
            },
        },
        b"_data_groups" => Message::GroupsResponse {
            more: fields.flag(var!("_more"))?,
            lines: data,
        },
        b"_request_status" => Message::Status,
        b"_data_status" => Message::StatusResponse { lines: data },
        b"_request_files" => Message::Files {
            path: fields.path()?,
        },
        b"_data_files" => Message::FilesResponse { lines: data },
        b"_request_file" => Message::File {
            path: fields.path()?,
            at: fields.optional_number(var!("_at"))?.unwrap_or(0),
            bytes: fields.optional_number(var!("_bytes"))?.unwrap_or(0),
        },
        b"_data_file" => Message::FileResponse {
            length: fields.optional_number(var!("_length"))?,
            part: data,
        },
        b"_request_compact" => Message::Compact,
        b"_notice_compact" => Message::Compacted {
            index: fields.number(var!("_index"))?,
            bytes_before: fields.number(var!("_bytes_before"))?,
            bytes_after: fields.number(var!("_bytes_after"))?,
        },
        b"_request_sync" => Message::Sync,
        b"_request_cluster_add" => Message::ClusterAdd {
            peer: fields.peer()?,
        },
        b"_notice_cluster_added" => Message::ClusterAdded {
            node: fields.number(var!("_node"))?,
        },
        b"_request_cluster_remove" => Message::ClusterRemove {
            node: fields.number(var!("_node"))?,
        },
        b"_request_cluster_transfer" => Message::ClusterTransfer {
            node: fields.number(var!("_node"))?,
        },
        b"_notice_cluster_changed" => Message::ClusterChanged,
        b"_notice_sync" => Message::Synced,
        b"_notice_credit" => Message::Window {
            window: fields.number(var!("_window"))?,
            window_bytes: fields.number(var!("_window_bytes"))?,
        },
        b"_notice_drain" => Message::Drain {
            within_ms: fields.number(var!("_within_ms"))?,
        },
        method => Message::Unknown { method },
    })
}

fn claim<'a>(fields: &Fields<'_, 'a>) -> Read<GroupClaim<'a>> {
    let member = fields.or_empty(var!("_member"), GROUP_MEMBER_BYTES_MAX)?;
    if member.is_empty() {
        return Err(bad("_member", "1 to 64 bytes"));
    }
    let max = fields.number(var!("_max"))?;
    if !(1..=CLAIM_RECORDS_MAX).contains(&max) {
        return Err(bad("_max", "1 to 1,000 records"));
    }
    let lease_ms = fields.optional_number(var!("_lease_ms"))?.unwrap_or(0);
    if lease_ms > GROUP_LEASE_MS_MAX {
        return Err(bad("_lease_ms", "at most a day"));
    }
    Ok(GroupClaim {
        topic: fields.topic()?,
        group: fields.group(var!("_group"))?,
        member,
        max,
        wait_ms: fields.optional_number(var!("_wait_ms"))?.unwrap_or(0),
        lease_ms,
    })
}

fn hello<'a>(fields: &Fields<'_, 'a>) -> Read<Hello<'a>> {
    let client = fields.id(var!("_client"))?.map(ClientId);
    if client.is_some_and(ClientId::is_none) {
        return Err(bad("_client", "an id that is not zero"));
    }
    let resume = fields.optional_number(var!("_resume"))?;
    if resume == Some(0) || (resume.is_some() && client.is_none()) {
        return Err(bad("_resume", "a nonce of the session"));
    }
    Ok(Hello {
        versions: fields.words(var!("_versions"))?,
        client: client.unwrap_or_default(),
        resume,
        window: fields.optional_number(var!("_window"))?,
        received: fields.flag(var!("_received"))?,
        store: fields.id(var!("_store"))?,
        token: fields.or_empty(var!("_token"), TOKEN_BYTES_MAX)?,
        agent: fields.or_empty(var!("_agent"), AGENT_BYTES_MAX)?,
    })
}

fn hello_ok<'a>(fields: &Fields<'_, 'a>) -> Read<HelloOk<'a>> {
    let id = |name: Name| fields.id(name)?.ok_or(bad(name.0, "an id"));
    Ok(HelloOk {
        version: fields.or_empty(var!("_version"), AGENT_BYTES_MAX)?,
        store: id(var!("_store"))?,
        node: id(var!("_node"))?,
        level: fields.or_empty(var!("_level"), AGENT_BYTES_MAX)?,
        volatile: fields.or_empty(var!("_volatile"), AGENT_BYTES_MAX)?,
        failure: fields.or_empty(var!("_failure"), TEXT_BYTES_MAX)?,
        next: fields.number(var!("_next"))?,
        window: fields.number(var!("_window"))?,
        window_bytes: fields.number(var!("_window_bytes"))?,
        applied: fields.number(var!("_applied"))?,
        term: fields.number(var!("_term"))?,
        key_bytes_max: fields.number(var!("_key_bytes_max"))?,
        value_bytes_max: fields.number(var!("_value_bytes_max"))?,
        idle_ms: fields.number(var!("_idle_ms"))?,
        features: fields.words(var!("_features"))?,
        agent: fields.or_empty(var!("_agent"), AGENT_BYTES_MAX)?,
        client: fields.id(var!("_client"))?.map(ClientId),
    })
}

fn text_write<'a>(fields: &Fields<'_, 'a>) -> Read<TextWrite<'a>> {
    let key = fields.get(var!("_key"))?;
    let options = fields.bytes(var!("_options"), OPTION_BYTES_MAX)?;
    let data = fields.view.data();
    let kind = match fields.view.method() {
        b"_request_put" => TextOperation::Put {
            key: key.unwrap_or_default(),
            value: data,
        },
        b"_request_delete" => TextOperation::Delete {
            key: key.ok_or(bad("_key", "a key"))?,
        },
        b"_request_create" => TextOperation::Create {
            options: options.unwrap_or_default(),
        },
        _ => TextOperation::Destroy,
    };
    let expect = Conditions(fields.get(var!("_expect"))?.unwrap_or_default());
    if expect.read().is_none() {
        return Err(bad("_expect", "known conditions"));
    }
    let nonce = fields.optional_number(var!("_nonce"))?;
    if nonce == Some(0) {
        return Err(bad("_nonce", "a nonce above 0"));
    }
    Ok(TextWrite {
        topic: fields.topic()?,
        kind,
        nonce,
        expect,
        meta: fields.or_empty(var!("_meta"), META_BYTES_MAX)?,
    })
}

fn listen<'a>(fields: &Fields<'_, 'a>) -> Read<Listen<'a>> {
    let what = bad("_after", "an offset, tail, last:N, time:MS or latest");
    let after = match fields.get(var!("_after"))?.unwrap_or(b"0") {
        b"tail" => After::Tail,
        b"latest" => After::Latest,
        word => match (word.strip_prefix(b"last:"), word.strip_prefix(b"time:")) {
            (Some(n), _) => After::Last(number(n).ok_or(what)?),
            (_, Some(ms)) => After::Time(number(ms).ok_or(what)?),
            _ => After::Offset(number(word).ok_or(what)?),
        },
    };
    let mut kinds = 0;
    for word in fields.words(var!("_kinds"))?.split(|&byte| byte == b' ') {
        let kind = (1..8)
            .filter_map(RecordKind::from_number)
            .find(|kind| kind.name().as_bytes() == word);
        match kind {
            Some(kind) => kinds |= 1 << kind as u8,
            None if word.is_empty() => {}
            None => return Err(bad("_kinds", "kinds of records")),
        }
    }
    let reset = fields.get(var!("_reset"))?;
    if reset.is_some_and(|word| word != b"earliest") {
        return Err(bad("_reset", "earliest"));
    }
    Ok(Listen {
        topic: fields.topic()?,
        after,
        follow: fields.flag(var!("_follow"))?,
        bytes: fields.number(var!("_bytes"))?,
        records: fields.number(var!("_records"))?,
        key: fields.get(var!("_key"))?,
        prefix: fields.get(var!("_prefix"))?,
        kinds,
        reset_earliest: reset.is_some(),
        query: ListenQuery {
            pushdown: pushdown(fields)?,
            limit: fields.optional_number(var!("_limit"))?,
            until: fields.optional_number(var!("_until"))?,
            marks: fields.flag(var!("_marks"))?,
            from: fields.get(var!("_key_from"))?,
        },
    })
}

fn pushdown<'a>(fields: &Fields<'_, 'a>) -> Read<Option<PushdownQuery<'a>>> {
    let words = fields.words(var!("_filter"))?;
    if words.is_empty() {
        return Ok(None);
    }
    let text = |name| fields.or_empty(name, QUERY_TEXT_BYTES_MAX);
    let mut pushdown = PushdownQuery {
        filter: text(var!("_where"))?,
        params: fields.or_empty(var!("_params"), QUERY_PARAMS_BYTES_MAX)?,
        order: text(var!("_order"))?,
        group: text(var!("_group"))?,
        select: text(var!("_select"))?,
        ..PushdownQuery::default()
    };
    for word in words.split(|&byte| byte == b' ') {
        match word {
            b"structural" => {}
            b"strict" => pushdown.strict = true,
            b"skip" => pushdown.on_bad_item = BadItem::Skip,
            b"undefined" => pushdown.on_bad_item = BadItem::Undefined,
            b"utf16" => pushdown.utf16 = true,
            b"rank" => pushdown.rank = true,
            b"drop" => pushdown.drop = true,
            b"cut" => pushdown.cut = true,
            _ => return Err(bad("_filter", "known words")),
        }
    }
    Ok(Some(pushdown))
}

fn program<'a>(fields: &Fields<'_, 'a>, args: &'a [u8]) -> Read<Option<ProgramAnswer<'a>>> {
    let Some(digits) = fields.get(var!("_hash"))? else {
        return Ok(None);
    };
    let hash = hex(digits).and_then(|bytes| bytes.try_into().ok());
    Ok(Some(ProgramAnswer {
        hash: hash.ok_or(bad("_hash", "64 hexadecimal digits"))?,
        args,
        mode: fields.number(var!("_state"))?,
        entries: fields.number(var!("_entries"))?,
        bytes: fields.number(var!("_bytes"))?,
        counts: ProgramCounts {
            calls: fields.optional_number(var!("_calls"))?.unwrap_or(0),
            fuel: fields.optional_number(var!("_fuel"))?.unwrap_or(0),
            rejects: fields.optional_number(var!("_rejects"))?.unwrap_or(0),
            traps: fields.optional_number(var!("_traps"))?.unwrap_or(0),
        },
    }))
}

fn refusal<'a>(fields: &Fields<'_, 'a>) -> Read<RefusalMessage<'a>> {
    let text = fields.view.data();
    Ok(RefusalMessage {
        method: fields.view.method(),
        number: fields.optional_number(var!("_number"))?.unwrap_or(0),
        fatal: fields.flag(var!("_fatal"))?,
        retry_ms: fields.optional_number(var!("_retry_ms"))?,
        nonce: fields.optional_number(var!("_nonce"))?,
        count: fields.optional_number(var!("_count"))?,
        item: fields.optional_number(var!("_item"))?,
        expected: fields.optional_number(var!("_expected"))?,
        limit: fields.optional_number(var!("_limit"))?,
        record: fields.optional_number(var!("_record"))?,
        byte: fields.optional_number(var!("_byte"))?,
        first: fields.optional_number(var!("_first"))?,
        last: fields.optional_number(var!("_last"))?,
        address: fields.or_empty(var!("_address"), TEXT_BYTES_MAX)?,
        at: fields.optional_number(var!("_at"))?,
        versions: fields.words(var!("_versions"))?,
        text: text.split_at(text.len().min(TEXT_BYTES_MAX)).0,
    })
}
