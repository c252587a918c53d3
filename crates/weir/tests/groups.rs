//! Tests groups and the latest values through the public API.
#![allow(
    clippy::unwrap_used,
    reason = "a failed expectation is what a test is for"
)]

use std::time::Duration;

use weir::{Claim, Current, ErrorCode, GroupMode, GroupSetup, Settle, Topic, Weir, WeirError};

const NOW: Duration = Duration::ZERO;

fn topic(dir: &tempfile::TempDir) -> (Weir, Topic) {
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("work").unwrap();
    topic.ensure().unwrap();
    (weir, topic)
}

#[test]
fn a_work_queue_from_claim_to_cursor() {
    let dir = tempfile::tempdir().unwrap();
    let (weir, topic) = topic(&dir);
    for n in 0..5 {
        topic
            .put(format!("k{n}"), "v")
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    let mut anna = topic
        .group("jobs", GroupMode::Shared)
        .unwrap()
        .member("anna");
    let mut bert = topic
        .group("jobs", GroupMode::Shared)
        .unwrap()
        .member("bert");
    let first = anna.claim(2, NOW).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(
        (first[0].record().key, first[0].attempts()),
        (&b"k0"[..], 1)
    );
    let rest = bert.claim(10, NOW).unwrap();
    assert_eq!(rest.len(), 3);
    assert!(bert.claim(10, NOW).unwrap().is_empty());
    assert_eq!(bert.ack(&rest).unwrap(), []);
    assert_eq!(anna.nack(&first[..1], NOW, "busy").unwrap(), []);
    let again = bert.claim(10, NOW).unwrap();
    assert_eq!((again.len(), again[0].attempts()), (1, 2));
    // One of the two records is now claimed by bert; the other one is acknowledged.
    assert_eq!(anna.ack(&first).unwrap(), [first[0].record().offset]);
    assert_eq!(
        anna.extend(&first[..1], NOW).unwrap(),
        [first[0].record().offset]
    );
    assert_eq!(bert.ack(&again).unwrap(), []);
    assert_eq!((bert.cursor().unwrap().0, bert.lag().unwrap()), (6, 0));
    drop((anna, bert));
    weir.close().unwrap();
}

#[test]
fn an_error_names_the_topic_the_mode_or_the_options_of_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let (weir, topic) = topic(&dir);
    let check = |failed: WeirError, code: ErrorCode, text: &str| {
        assert_eq!((failed.code(), failed.to_string()), (code, text.to_owned()));
    };
    let nowhere = weir.topic("nowhere").unwrap();
    let missing = nowhere.group("jobs", GroupMode::Shared).unwrap_err();
    check(missing, ErrorCode::TopicAbsent, "there is no topic nowhere");

    let mut jobs = topic.group("jobs", GroupMode::Shared).unwrap();
    let keyed = topic.group("jobs", GroupMode::Keyed).unwrap_err();
    check(
        keyed,
        ErrorCode::GroupMode,
        "group jobs is shared, not keyed",
    );
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    let works = jobs.claim(1, NOW).unwrap();
    let soon = jobs.settle(&[Claim::from(&works[0])], Settle::DoneSoon);
    let text = "group jobs is shared, not exclusive";
    check(soon.unwrap_err(), ErrorCode::GroupMode, text);

    let mut setup = GroupSetup::new(GroupMode::Shared);
    setup.attempts_max = 3;
    let alone = topic.group_with("limited", &setup).unwrap_err();
    let text = "the group to create has a wrong number of attempts: set `attempts` and \
                `dead_letters` together, or neither";
    check(alone, ErrorCode::BadRequest, text);
}

#[test]
fn a_lease_or_a_delay_above_24_hours_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (_weir, topic) = topic(&dir);
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    let day = Duration::from_hours(24);
    let longer = day + Duration::from_millis(1);
    let group = topic.group("jobs", GroupMode::Shared).unwrap();
    let is_too_long = |failed: WeirError, time: &str| {
        assert_eq!(failed.code(), ErrorCode::BadRequest);
        let text = format!("a {time} of 86400001 ms is too long; the limit is 86400000 ms");
        assert_eq!(failed.to_string(), text);
    };

    let mut group = group.lease(Some(longer));
    is_too_long(group.claim(1, NOW).unwrap_err(), "lease");
    assert_eq!(group.info().unwrap().leased, 0);
    let mut group = group.lease(Some(day));
    let works = group.claim(1, NOW).unwrap();
    assert_eq!(works.len(), 1);

    is_too_long(group.extend(&works, longer).unwrap_err(), "lease");
    is_too_long(group.nack(&works, longer, "").unwrap_err(), "delay");
    assert_eq!(group.extend(&works, day).unwrap(), []);
    assert_eq!(group.nack(&works, day, "").unwrap(), []);
    assert!(
        group.claim(1, NOW).unwrap().is_empty(),
        "the delay lasts a day"
    );
}

#[test]
fn an_exclusive_group_ignores_the_lease_of_a_member() {
    let dir = tempfile::tempdir().unwrap();
    let (_weir, topic) = topic(&dir);
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    let longer = Duration::from_hours(25);
    let group = topic.group("mail", GroupMode::Exclusive).unwrap();
    let mut group = group.lease(Some(longer));
    let works = group.claim(1, NOW).unwrap();
    assert_eq!(works.len(), 1);
    assert_eq!(group.extend(&works, longer).unwrap(), []);
}

#[test]
fn a_claim_of_no_records_returns_none() {
    let dir = tempfile::tempdir().unwrap();
    let (_weir, topic) = topic(&dir);
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    for (name, mode) in [
        ("shared", GroupMode::Shared),
        ("owned", GroupMode::Exclusive),
    ] {
        let mut group = topic.group(name, mode).unwrap();
        assert!(group.claim(0, NOW).unwrap().is_empty());
        let info = group.info().unwrap();
        assert_eq!((info.leased, info.owner), (0, None));
    }
}

#[test]
fn another_member_takes_over_an_exclusive_group() {
    let dir = tempfile::tempdir().unwrap();
    let (weir, topic) = topic(&dir);
    for n in 0..6 {
        topic
            .put(format!("k{n}"), "v")
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    let mut anna = topic
        .group("mail", GroupMode::Exclusive)
        .unwrap()
        .member("anna");
    let mut bert = topic
        .group("mail", GroupMode::Exclusive)
        .unwrap()
        .member("bert");
    let mut works = Vec::new();
    for work in anna.works(NOW).take(4) {
        works.push(work.unwrap());
    }
    assert_eq!(works.len(), 4);
    assert!(
        bert.claim(10, NOW).unwrap().is_empty(),
        "anna owns the group"
    );
    assert_eq!(anna.ack(&works[..2]).unwrap(), []);
    bert.take_over().unwrap();
    let found = bert.claim(10, NOW).unwrap();
    let keys: Vec<&[u8]> = found.iter().map(|work| work.record().key).collect();
    assert_eq!(
        keys,
        [b"k2", b"k3", b"k4", b"k5"],
        "the records that anna did not acknowledge"
    );
    assert_eq!(
        anna.ack(&works[2..]).unwrap().len(),
        2,
        "anna is no longer the owner"
    );
    bert.nack(&found[1..], NOW, "").unwrap();
    assert_eq!(bert.claim(10, NOW).unwrap().len(), 3, "read again");
    bert.ack_soon(&found).unwrap();
    weir.store().unwrap().flush_cursors().unwrap();
    assert_eq!(bert.cursor().unwrap().0, 7);
    bert.leave().unwrap();
    topic.put("k6", "v").unwrap().ensure_valid().unwrap();
    assert_eq!(
        anna.claim(10, NOW).unwrap().len(),
        1,
        "the group has no owner"
    );
    assert!(
        anna.reset(weir::ReadFrom::After(weir::ConsequenceOffset(1)))
            .unwrap()
            .is_valid()
    );
    assert_eq!(anna.claim(10, NOW).unwrap().len(), 7);
    assert!(anna.delete().unwrap().is_valid());
    assert!(bert.info().is_err());
    assert!(anna.claim(10, NOW).is_err(), "the group is deleted");
    let again = anna.delete().unwrap();
    assert_eq!(again.reason(), Some(ErrorCode::GroupAbsent));
}

#[test]
fn a_claim_waits_for_a_record() {
    let dir = tempfile::tempdir().unwrap();
    let (_weir, topic) = topic(&dir);
    let setup = GroupSetup::new(GroupMode::Shared);
    let mut group = topic.group_with("jobs", &setup).unwrap();
    let writer = topic.clone();
    let later = std::thread::spawn(move || writer.put("k", "v").unwrap());
    let works = group.claim(1, Duration::from_mins(1)).unwrap();
    assert_eq!(works.len(), 1);
    later.join().unwrap().ensure_valid().unwrap();
}

#[test]
fn the_latest_values_come_before_new_records() {
    let dir = tempfile::tempdir().unwrap();
    let (_weir, topic) = topic(&dir);
    for (key, value) in [("b", "1"), ("a", "1"), ("b", "2"), ("c", "1")] {
        topic.put(key, value).unwrap().ensure_valid().unwrap();
    }
    topic.delete("c").unwrap().ensure_valid().unwrap();
    let mut latest = topic.latest(NOW).unwrap();
    let next = |found: Option<Result<Current, WeirError>>| {
        let found = found.unwrap().unwrap();
        let record = found.value.record();
        (record.key.to_vec(), record.value.to_vec(), found.replay)
    };
    assert_eq!(next(latest.next()), (b"a".to_vec(), b"1".to_vec(), true));
    assert_eq!(next(latest.next()), (b"b".to_vec(), b"2".to_vec(), true));
    assert!(latest.next().is_none());
    topic.put("a", "2").unwrap().ensure_valid().unwrap();
    assert_eq!(next(latest.next()), (b"a".to_vec(), b"2".to_vec(), false));
    assert!(latest.next().is_none());
}

#[test]
fn a_member_that_has_lost_its_ownership_gets_no_more_records() {
    let dir = tempfile::tempdir().unwrap();
    let (_weir, topic) = topic(&dir);
    for key in ["k0", "k1"] {
        topic.put(key, "v").unwrap().ensure_valid().unwrap();
    }
    let join = |name: &str| {
        topic
            .group("jobs", GroupMode::Exclusive)
            .unwrap()
            .member(name)
    };
    let (mut anna, mut bert) = (join("anna"), join("bert"));
    let works = anna.claim(1, NOW).unwrap();
    assert_eq!(anna.extend(&works, NOW).unwrap(), []);
    bert.take_over().unwrap();
    let lost = anna.extend(&works, NOW).unwrap();
    assert_eq!(lost, [works[0].record().offset]);
    let more = anna.claim(1, NOW).unwrap();
    assert!(more.is_empty(), "bert owns the group");
}
