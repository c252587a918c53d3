//! Reads, packet by packet.

use weir_core::ErrorCode;
use weir_protocol::{Consistency, Message, Packet, TopicLines};

use crate::peer::World;

#[test]
fn a_get_waits_until_the_topic_has_reached_its_offset() {
    let world = World::new();
    world.create("t");
    let mut reader = world.plain();
    let mut writer = world.plain();
    let get = Message::Get {
        topic: "t",
        key: b"k",
        at_least: 3,
        applied: 0,
    };
    reader.send(&Packet::tagged(b"g", get));
    for value in ["one", "two"] {
        writer.send_text(&format!(
            "\n:_topic\tt\n:_key\tk\n_request_put\n{value}\n|\n"
        ));
    }
    let got = reader.next().unwrap();
    let Message::Value { page } = got.packet().message else {
        panic!("{:?}", got.packet().message);
    };
    assert!(page.ends_with(b"two"));
    // A read that requires an intention to be applied.
    let get = Message::Get {
        topic: "t",
        key: b"k",
        at_least: 0,
        applied: 4,
    };
    reader.send(&Packet::tagged(b"h", get));
    writer.send_text("\n:_topic\tt\n:_key\tk\n_request_put\nthree\n|\n");
    let got = reader.next().unwrap();
    assert!(matches!(got.packet().message, Message::Value { page } if page.ends_with(b"three")));
}

#[test]
fn reads_of_missing_data_are_refused_with_a_code() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    for (message, code) in [
        (
            Message::Get {
                topic: "t",
                key: b"k",
                at_least: 0,
                applied: 0,
            },
            ErrorCode::KeyAbsent,
        ),
        (
            Message::Get {
                topic: "u",
                key: b"k",
                at_least: 0,
                applied: 0,
            },
            ErrorCode::TopicUnknown,
        ),
        (
            Message::GetRecord {
                topic: "t",
                offset: 2,
            },
            ErrorCode::RecordAbsent,
        ),
        (
            Message::GetRecord {
                topic: "t",
                offset: 0,
            },
            ErrorCode::RecordAbsent,
        ),
        (
            Message::GetRecord {
                topic: "u",
                offset: 1,
            },
            ErrorCode::TopicUnknown,
        ),
        (Message::Topic { topic: "u" }, ErrorCode::TopicUnknown),
        (Message::Program { topic: "u" }, ErrorCode::TopicUnknown),
    ] {
        peer.send(&Packet::tagged(b"q", message));
        let got = peer.next().unwrap();
        assert_eq!(got.refusal().code(), Some(code), "{message:?}");
        assert!(!got.refusal().fatal);
        assert_eq!(got.packet().tag, b"q");
    }
}

#[test]
fn a_single_server_answers_reads_of_every_consistency() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    let reads = [
        Message::Scan {
            topic: "t",
            prefix: b"",
            after: None,
            limit: 1,
        },
        Message::GetRecord {
            topic: "t",
            offset: 1,
        },
        Message::Topic { topic: "t" },
        Message::Topics {
            prefix: b"",
            after: b"",
            limit: 1,
            dead: false,
        },
        Message::Program { topic: "t" },
        Message::Groups {
            topic: "t",
            after: "",
        },
        Message::Applied,
    ];
    let levels = [Consistency::Local, Consistency::Leader, Consistency::Linear];
    for level in levels {
        for message in reads {
            peer.send(&Packet::request(b"q", message, Some(level)));
            let got = peer.next().unwrap();
            let packet = got.packet();
            let is_refused = matches!(packet.message, Message::Refusal(_));
            assert!(!is_refused, "{level:?} {message:?}: {packet:?}");
        }
    }
}

#[test]
fn a_single_server_refuses_changes_of_a_cluster() {
    let world = World::new();
    let mut peer = world.plain();
    for message in [
        Message::ClusterAdd {
            peer: "127.0.0.1:1",
        },
        Message::ClusterRemove { node: 1 },
        Message::ClusterTransfer { node: 1 },
    ] {
        peer.send(&Packet::tagged(b"c", message));
        let got = peer.next().unwrap();
        let refusal = got.refusal();
        assert_eq!(refusal.code(), Some(ErrorCode::Unsupported), "{message:?}");
        assert!(refusal.text.ends_with(b"not a node of a cluster"));
    }
}

#[test]
fn topics_are_listed_in_pages() {
    let world = World::new();
    for n in 0..25 {
        world.create(&format!("topic.{n:02}"));
    }
    world.create("other");
    let mut peer = world.plain();
    let mut after = String::new();
    let mut names = Vec::new();
    loop {
        peer.send(&Packet::new(Message::Topics {
            prefix: b"topic.",
            after: after.as_bytes(),
            limit: 10,
            dead: false,
        }));
        let got = peer.next().unwrap();
        let Message::TopicsResponse { more, lines } = got.packet().message else {
            panic!("{:?}", got.packet().message);
        };
        names.extend(TopicLines::new(lines).map(|line| line.unwrap().name.to_owned()));
        after = names.last().unwrap().clone();
        if !more {
            break;
        }
    }
    let wanted: Vec<String> = (0..25).map(|n| format!("topic.{n:02}")).collect();
    assert_eq!(names, wanted);
}

#[test]
fn a_status_has_one_line_per_value() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    peer.send(&Packet::tagged(b"s", Message::Status));
    let got = peer.next().unwrap();
    let Message::StatusResponse { lines } = got.packet().message else {
        panic!("{:?}", got.packet().message);
    };
    let text = std::str::from_utf8(lines).unwrap();
    for line in [
        "intentions 1",
        "topics 1",
        "ready 1",
        "log_first_index 1",
        "answers_bytes 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    }
    peer.send(&Packet::tagged(b"y", Message::Sync));
    assert_eq!(peer.next().unwrap().packet().message, Message::Synced);
}
