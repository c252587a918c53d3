//! Tests of the native protocol: its vectors, and that decoding a rendered message returns
//! an equal message.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use weir_core::batch::BatchBuilder;
use weir_core::intention::IntentionLimits;
use weir_core::limits::TXN_OPS_MAX;
use weir_core::{
    ClientId, Commit, ConsequenceOffset, Detail, Effect, ErrorCode, Intention, IntentionOffset,
    Operation, Outcome, OutcomeRun, TxnOp,
};
use weir_protocol::{
    After, ClientConnection, Conditions, Consistency, Deframer, Encoder, GroupAnswer, GroupClaim,
    GroupLines, Hello, HelloOk, Listen, ListenQuery, Message, OPERATIONS_MAX, OutcomeLines, Packet,
    PushdownQuery, RefusalMessage, StatusLines, StatusValue, TextOperation, TextWrite, TopicLine,
    TopicLines, read_items, write_outcome, write_status, write_topic,
};
use weir_scan::BadItem;

/// A case of a vector file: `> ` lines of text with escapes, the bytes in hexadecimal, and
/// the expected result.
struct Case {
    what: String,
    bytes: Vec<u8>,
    hex: Vec<u8>,
    expected: String,
}

fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [b't', after @ ..] => {
                bytes.push(b'\t');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digits = std::str::from_utf8(&[*high, *low]).unwrap().to_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
                rest = after;
            }
            _ => panic!("an escape of {line}"),
        }
    }
    bytes
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for block in text.split("\n\n").filter(|block| block.contains("\n> ")) {
        let mut case = Case {
            what: String::new(),
            bytes: Vec::new(),
            hex: Vec::new(),
            expected: String::new(),
        };
        for line in block.lines() {
            if let Some(what) = line.strip_prefix("# ") {
                case.what += what;
            } else if let Some(text) = line.strip_prefix("> ") {
                case.bytes.extend(unescape(text));
                case.bytes.push(b'\n');
            } else if let Some(hex) = line.strip_prefix("hex: ") {
                let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
                for pair in digits.chunks(2) {
                    let pair = std::str::from_utf8(pair).unwrap();
                    case.hex.push(u8::from_str_radix(pair, 16).unwrap());
                }
            } else if let Some(expected) = line.strip_prefix("is: ") {
                expected.clone_into(&mut case.expected);
            }
        }
        cases.push(case);
    }
    cases
}

/// Returns the first word of the debug text of a message.
fn name(message: &Message<'_>) -> String {
    let text = format!("{message:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

#[test]
fn packets_of_the_vectors_decode_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/native");
    let mut run = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for case in cases(&text) {
            run += 1;
            assert_eq!(case.bytes, case.hex, "{}: text and bytes", case.what);
            let mut deframer = Deframer::default();
            let read = deframer.find(&case.bytes).map(|size| {
                assert_eq!(size, Some(case.bytes.len()), "{}", case.what);
                deframer.read(&case.bytes)
            });
            let actual = match read {
                Ok(Ok(packet)) => {
                    let mut again = Vec::new();
                    assert!(Encoder::default().encode(&packet, &mut again));
                    let canonical = if again == case.bytes {
                        ""
                    } else {
                        ", written otherwise"
                    };
                    format!("{}{canonical}", name(&packet.message))
                }
                Ok(Err(error)) | Err(error) => format!("error: {error}"),
            };
            assert_eq!(actual, case.expected, "{}", case.what);
        }
    }
    assert!(run >= 20, "{run} vectors");
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn non_empty_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..max)
}

fn word() -> impl Strategy<Value = String> {
    "[a-z0-9/._-]{1,20}"
}

/// Renders a packet, decodes it, and compares the two.
fn assert_round_trip(packet: &Packet<'_>) {
    let mut out = b"before".to_vec();
    assert!(Encoder::default().encode(packet, &mut out));
    let bytes = &out[6..];
    let mut deframer = Deframer::default();
    assert_eq!(deframer.find(bytes), Ok(Some(bytes.len())));
    assert_eq!(deframer.read(bytes).as_ref(), Ok(packet));
    // Also decode it in two pieces: the first piece is never a complete packet.
    let mut deframer = Deframer::default();
    let half = bytes.len() / 2;
    assert_eq!(deframer.find(&bytes[..half]), Ok(None));
    assert_eq!(deframer.find(bytes), Ok(Some(bytes.len())));
}

proptest! {
    #[test]
    fn writes_round_trip(count in 1..10_000_u32, items in non_empty_bytes(300), tag in "[!-~]{0,64}") {
        let message = Message::Write { count, items: &items };
        assert_round_trip(&Packet::tagged(tag.as_bytes(), message));
    }

    #[test]
    fn text_writes_round_trip(
        topic in word(), key in non_empty_bytes(40), value in bytes(200), meta in bytes(30),
        options in bytes(20), nonce in prop::option::of(1_u64..), which in 0..4,
    ) {
        let kind = match which {
            0 => TextOperation::Put { key: &key, value: &value },
            1 => TextOperation::Delete { key: &key },
            2 => TextOperation::Create { options: &options },
            _ => TextOperation::Destroy,
        };
        let expect = Conditions(b"key_offset=7 topic_absent_or=9 key_absent topic_empty");
        let write = TextWrite { topic: &topic, kind, nonce, expect, meta: &meta };
        assert_round_trip(&Packet::new(Message::TextWrite(write)));
    }

    #[test]
    fn hellos_round_trip(
        client in 1..=255_u8, resume in prop::option::of(1_u64..), window in prop::option::of(any::<u64>()),
        received: bool, store in prop::option::of(any::<[u8; 16]>()), token in bytes(100), agent in "[ -~]{0,60}",
        numbers in any::<[u64; 8]>(), id in any::<[u8; 16]>(),
    ) {
        assert_round_trip(&Packet::new(Message::Hello(Hello {
            versions: b"weir/1 weir/2", client: ClientId([client; 16]), resume, window, received, store,
            token: &token, agent: agent.as_bytes(),
        })));
        assert_round_trip(&Packet::new(Message::HelloOk(HelloOk {
            version: b"weir/1", store: id, node: id, level: b"interval 1000", next: numbers[0],
                                                     volatile: b"tmpfs",
                                                     failure: b"no more writes",
            window: numbers[1], window_bytes: numbers[2], applied: numbers[3], term: numbers[4],
            key_bytes_max: numbers[5], value_bytes_max: numbers[6], idle_ms: numbers[7],
            features: b"groups more", agent: agent.as_bytes(), client: resume.map(|_| ClientId(id)),
        })));
    }

    #[test]
    fn listening_round_trips(
        topic in word(), numbers in any::<[u64; 4]>(), key in prop::option::of(non_empty_bytes(30)),
        prefix in prop::option::of(non_empty_bytes(30)), kinds in 0..64_u8, which in 0..5, follow: bool,
        reset_earliest: bool, replay_filter: bool, page in prop::collection::vec(any::<u8>(), 49..400),
    ) {
        let after = match which {
            0 => After::Offset(numbers[0]),
            1 => After::Tail,
            2 => After::Last(numbers[0]),
            3 => After::Time(numbers[0]),
            _ => After::Latest,
        };
        assert_round_trip(&Packet::tagged(b"9", Message::Listen(Listen {
            topic: &topic, after, follow, bytes: numbers[1], records: numbers[2], key: key.as_deref(),
            prefix: prefix.as_deref(), kinds: kinds << 1, reset_earliest,
            query: ListenQuery {
                pushdown: replay_filter.then_some(PushdownQuery {
                    filter: topic.as_bytes(), params: &page, order: b"$.a", group: b"", select: b"$.b",
                    strict: follow, on_bad_item: [BadItem::Error, BadItem::Skip, BadItem::Undefined][usize::from(kinds % 3)],
                    utf16: reset_earliest, rank: follow, drop: reset_earliest, cut: follow,
                }),
                limit: follow.then_some(numbers[2]), until: reset_earliest.then_some(numbers[1]), marks: follow,
                from: reset_earliest.then_some(page.as_slice()),
            },
        })));
        assert_round_trip(&Packet::tagged(b"9", Message::Records { from: numbers[3], replay: follow, page: &page }));
        assert_round_trip(&Packet::tagged(b"9", Message::Value { page: &page }));
        assert_round_trip(&Packet::tagged(b"9", Message::Credit { bytes: numbers[0], records: numbers[1] }));
        for message in [
            Message::Listening { position: numbers[0], first: numbers[1], last: numbers[2] },
            Message::Progress { position: numbers[0] },
            Message::End { position: numbers[0] },
            Message::Skipped { count: numbers[0] },
            Message::Applied,
            Message::AppliedResponse { applied: numbers[0], settled: numbers[1], created: numbers[2], lagging: &page },
            Message::Unlisten,
            Message::Status,
            Message::StatusResponse { lines: &page },
            Message::Compact,
            Message::Compacted { index: numbers[0], bytes_before: numbers[1], bytes_after: numbers[2] },
        ] {
            assert_round_trip(&Packet::tagged(b"9", message));
        }
    }

    #[test]
    fn refusals_round_trip(
        number in 0..8_usize, fatal: bool, maybe in any::<[Option<u64>; 9]>(), address in "[ -~]{0,60}",
        text in bytes(200),
    ) {
        let code = [ErrorCode::Busy, ErrorCode::NonceGap, ErrorCode::Gone, ErrorCode::Redirect,
            ErrorCode::BadRequest, ErrorCode::Forbidden, ErrorCode::Draining, ErrorCode::Io][number];
        assert_round_trip(&Packet::new(Message::Refusal(RefusalMessage {
            fatal, retry_ms: maybe[0], nonce: maybe[1], count: maybe[2], item: maybe[3],
            expected: maybe[4], limit: maybe[5], first: maybe[6], last: maybe[7], at: maybe[8],
            address: address.as_bytes(), versions: b"weir/1", text: &text,
            ..RefusalMessage::new(code)
        })));
    }

    #[test]
    fn answers_round_trip(
        nonce in 1..u64::MAX / 2, count in 1..100_000_u32, intention in 1..u64::MAX / 2,
        first in 1..u64::MAX / 2, fuel: u64, which in 0..9, text in "\\PC{0,100}", again: bool,
    ) {
        let (effect, reason, detail) = match which {
            2 => (Effect::Invalid, Some(ErrorCode::Conflict), Detail::Actual(fuel)),
            3 => (Effect::Error, Some(ErrorCode::Limit), Detail::Limit(fuel)),
            4 => (Effect::Invalid, Some(ErrorCode::TxnAborted),
                Detail::Operation { index: count, reason: ErrorCode::NoTopic }),
            5 => (Effect::Invalid, Some(ErrorCode::Rejected),
                Detail::Rejected { code: 7, text: Arc::from(format!("{text}\n\\|\u{7f}").as_str()) }),
            6 => (Effect::Error, Some(ErrorCode::BadProgram), Detail::Text(Arc::from(text.as_str()))),
            7 => (Effect::Error, Some(ErrorCode::NoTopic), Detail::None),
            _ => (Effect::Valid, None, Detail::None),
        };
        let valid = effect == Effect::Valid;
        let records = u32::from(valid && which == 0);
        let commit = Commit {
            nonce, effect, reason, detail, intention: IntentionOffset(intention),
            first: ConsequenceOffset(if records == 0 { 0 } else { first }), records, fuel,
        };
        let outcome = match (which, again) {
            (8, _) => Outcome::Refused { code: ErrorCode::NonceGap, expected: first },
            (_, true) => Outcome::Replayed(commit),
            _ => Outcome::Committed(commit),
        };
        let run = OutcomeRun { count, outcome };
        let mut lines = Vec::new();
        write_outcome(&mut lines, nonce, &run);
        lines.push(b'\n');
        write_outcome(&mut lines, nonce, &run);
        let read: Vec<_> = OutcomeLines::new(&lines).collect();
        prop_assert_eq!(read, vec![Some((nonce, run.clone())), Some((nonce, run))]);
        assert_round_trip(&Packet::new(Message::Committed { lines: &lines }));
    }

    #[test]
    fn topics_round_trip(name in "[A-Za-z0-9_][A-Za-z0-9._-]{0,50}", number: u32, n in any::<[u64; 5]>(), options in bytes(20)) {
        let topic = TopicLine {
            name: &name, number, incarnation: n[0], first: n[1], last: n[2], keys: n[3], bytes: n[4], options,
        };
        let mut lines = Vec::new();
        write_topic(&mut lines, &topic);
        prop_assert_eq!(TopicLines::new(&lines).collect::<Vec<_>>(), vec![Some(topic)]);
    }

    #[test]
    fn statuses_round_trip(name in "[a-z_]{1,20}", n: u64, words in "\\PC{0,100}") {
        let words = format!("{words}\n\\|\u{7f}");
        let mut lines = Vec::new();
        write_status(&mut lines, &name, &StatusValue::Number(n));
        write_status(&mut lines, "text", &StatusValue::Text(words.clone()));
        let read: Vec<_> = StatusLines::new(&lines).map(Option::unwrap).collect();
        prop_assert_eq!(read.len(), 2);
        prop_assert_eq!((read[0].name, read[0].number()), (name.as_str(), Some(n)));
        prop_assert_eq!((read[1].name, read[1].text()), ("text", Some(words)));
    }

    #[test]
    fn groups_round_trip(
        topic in word(), group in "[a-z0-9_][a-z0-9._-]{0,50}", member in non_empty_bytes(64), n in any::<[u64; 4]>(),
        max in 1..=1_000_u64, lease_ms in 0..86_400_000_u64, more: bool, data in bytes(300),
    ) {
        let claim = GroupClaim { topic: &topic, group: &group, member: &member, max, wait_ms: n[0], lease_ms };
        assert_round_trip(&Packet::tagged(b"1", Message::GroupClaim(claim)));
        let due_ms = Some(n[3]).filter(|_| more);
        let answer = GroupAnswer { claim: n[0], reason: n[1], frontier: n[2], due_ms, data: &data };
        // Decoding ends for any data.
        prop_assert!(answer.records().is_none_or(|(attempts, _)| attempts.len() <= data.len()));
        assert_round_trip(&Packet::tagged(b"1", Message::GroupRecords(answer)));
        assert_round_trip(&Packet::tagged(b"1", Message::Group { topic: &topic, group: &group }));
        assert_round_trip(&Packet::tagged(b"1", Message::Groups { topic: &topic, after: &group }));
        assert_round_trip(&Packet::tagged(b"1", Message::GroupsResponse { more, lines: &data }));
        prop_assert!(GroupLines::new(&data).count() <= data.len());
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in bytes(400)) {
        let mut deframer = Deframer::default();
        if let Ok(Some(size)) = deframer.find(&bytes) {
            let _ = deframer.read(&bytes[..size]);
        }
        OutcomeLines::new(&bytes).for_each(drop);
        TopicLines::new(&bytes).for_each(drop);
        StatusLines::new(&bytes).for_each(drop);
    }
}

#[test]
fn the_consistency_of_a_read_round_trips() {
    let (topic, group, after) = ("t", "g", "");
    let listen = Listen {
        topic,
        after: After::Tail,
        follow: true,
        bytes: 1,
        records: 1,
        key: None,
        prefix: None,
        kinds: 0,
        reset_earliest: false,
        query: ListenQuery::default(),
    };
    let claim = GroupClaim {
        topic,
        group,
        member: b"m",
        max: 1,
        wait_ms: 0,
        lease_ms: 0,
    };
    let reads = [
        Message::Get {
            topic,
            key: b"k",
            at_least: 7,
            applied: 9,
        },
        Message::Scan {
            topic,
            prefix: b"p",
            after: Some(b"k"),
            limit: 7,
        },
        Message::GetRecord { topic, offset: 7 },
        Message::Topic { topic },
        Message::Topics {
            prefix: b"p",
            after: b"t",
            limit: 7,
            dead: true,
        },
        Message::Program { topic },
        Message::Group { topic, group },
        Message::Groups { topic, after },
        Message::GroupClaim(claim),
        Message::Listen(listen),
        Message::Applied,
    ];
    let levels = [Consistency::Local, Consistency::Leader, Consistency::Linear];
    for message in reads {
        for level in levels {
            assert_round_trip(&Packet::request(b"1", message, Some(level)));
            assert_round_trip(&Packet {
                consistency: Some(level),
                ..Packet::tagged(b"1", message)
            });
        }
    }
}

#[test]
fn a_session_resends_unanswered_writes_and_accepts_each_answer_once() {
    let hello = |next| HelloOk {
        next,
        window: 100,
        window_bytes: 1000,
        ..HelloOk::default()
    };
    let mut client = ClientConnection::new(ClientId([1; 16]));
    assert_eq!(client.hello().resume, None);
    assert_eq!(client.opened(&hello(5)), Ok(0));
    client.sent(3, vec![0; 30]);
    client.sent(4, vec![0; 40]);
    assert_eq!(client.answer(5, 2), Ok((0, 2)));
    assert_eq!(client.answer(8, 1), Err("an answer is missing"));
    // The connection breaks: nonces 5 and 6 are answered, and the store knows nonces up to
    // 9.
    assert_eq!(client.hello().resume, Some(7));
    assert_eq!(client.opened(&hello(10)), Ok(1));
    assert_eq!(client.answer(7, 3), Ok((0, 3)));
    // The second write was sent again: nonces 8 and 9 are answered twice.
    assert_eq!(client.answer(8, 4), Ok((2, 2)));
    assert_eq!(client.unanswered().count(), 0);
    assert_eq!((client.answered(), client.last()), (11, 11));
    // A store that knows fewer nonces than it has answered has lost writes.
    client.sent(1, vec![0]);
    assert!(client.opened(&hello(9)).is_err());
}

#[test]
fn the_operations_of_a_write_are_limited() {
    let op = TxnOp::Put {
        key: b"",
        value: b"",
        meta: b"",
    };
    let ops = vec![op; TXN_OPS_MAX];
    let txn = Intention::new("t", Operation::Txn { ops: &ops });
    let mut builder = BatchBuilder::default();
    let most = u32::try_from(OPERATIONS_MAX / TXN_OPS_MAX).unwrap();
    for _ in 0..most {
        builder.push(&txn, &IntentionLimits::default()).unwrap();
    }
    let decoded = read_items(ClientId::NONE, most, builder.items());
    assert_eq!(decoded.unwrap().len(), most as usize);
    builder.push(&txn, &IntentionLimits::default()).unwrap();
    let refused = read_items(ClientId::NONE, most + 1, builder.items());
    assert_eq!(refused.unwrap_err().item(), most);
}
