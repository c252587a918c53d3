//! Groups and latest values: a local and a remote store return equal results.

use std::time::Duration;

use weir::{
    ConsequenceOffset, Current, Durability, ErrorCode, Group, GroupMode, GroupSetup, OpenOptions,
    ReadFrom, StoreError, Topic, Weir, WeirError, Work,
};

use crate::proxy::Proxy;
use crate::redirect::{Script, peer};
use crate::world::World;

const NOW: Duration = Duration::ZERO;
/// Longest time that a test waits; then it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn offsets(works: &[Work]) -> Vec<(u64, u32)> {
    let pair = |work: &Work| (work.record().offset.0, work.attempts());
    works.iter().map(pair).collect()
}

fn info(group: &Group) -> String {
    let mut info = group.info().unwrap();
    // Timestamps depend on the clock.
    info.oldest_ms = info.oldest_ms.map(|_| 1);
    if let Some(owner) = &mut info.owner {
        owner.until_ms = 1;
    }
    format!("{info:?}")
}

fn filled(weir: &Weir, name: &str, keys: &[&str]) -> Topic {
    let topic = weir.topic(name).unwrap();
    topic.ensure().unwrap();
    for (n, key) in keys.iter().enumerate() {
        topic
            .put(key, n.to_string())
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    topic
}

fn member(topic: &Topic, group: &str, mode: GroupMode, name: &str) -> Group {
    topic.group(group, mode).unwrap().member(name)
}

/// A work queue: claims, acknowledgements, returned records, dead letters.
fn shared(weir: &Weir, push: &mut impl FnMut(String)) {
    let topic = filled(weir, "work", &["a", "b", "c", "d", "e"]);
    let mut setup = GroupSetup::new(GroupMode::Shared);
    setup.attempts_max = 2;
    setup.dead_letters = "work.dead";
    let mut anna = topic.group_with("jobs", &setup).unwrap().member("anna");
    let mut bert = member(&topic, "jobs", GroupMode::Shared, "bert");
    let first = anna.claim(2, NOW).unwrap();
    let rest = bert.claim(10, NOW).unwrap();
    push(format!("{:?} {:?}", offsets(&first), offsets(&rest)));
    push(format!("{:?}", offsets(&bert.claim(10, NOW).unwrap())));
    push(info(&anna));
    push(format!("{:?}", bert.ack(&rest).unwrap()));
    push(format!(
        "{:?}",
        anna.nack(&first[..1], NOW, "busy").unwrap()
    ));
    let again = bert.claim(10, NOW).unwrap();
    push(format!("{:?}", offsets(&again)));
    push(format!("{:?}", anna.ack(&first).unwrap()));
    push(format!("{:?}", anna.extend(&first[..1], NOW).unwrap()));
    let longer = Duration::from_hours(1);
    push(format!("{:?}", bert.extend(&again, longer).unwrap()));
    push(format!("{:?}", bert.nack(&again, NOW, "broken").unwrap()));
    // Only the next claim ends delivery of the record and writes the dead letter.
    push(format!("{:?}", offsets(&bert.claim(10, NOW).unwrap())));
    let dead = weir.topic("work.dead").unwrap();
    for entry in dead.scan(b"", None, 10).unwrap() {
        let value = dead.value(&entry).unwrap().unwrap();
        let text = String::from_utf8(value.value().to_vec()).unwrap();
        let text = text.split("\"time_ms\"").next().unwrap().to_owned();
        push(format!("{text} {}", entry.key.len()));
    }
    push(info(&bert));
    push(format!("{:?}", topic.group("jobs", GroupMode::Keyed).err()));
    push(format!("{:?}", topic.group_info("none").unwrap()));
    push(format!("{:?}", weir.topic("none").unwrap().groups().err()));
    let none = weir.topic("none").unwrap();
    push(format!("{:?}", none.group("g", GroupMode::Shared).err()));
    push(format!("{:?}", bert.reset(ReadFrom::Start).unwrap()));
    push(format!("{:?}", offsets(&anna.claim(1, NOW).unwrap())));
    push(format!("{:?}", anna.delete().unwrap()));
    push(format!("{:?}", bert.claim(1, NOW).err()));
}

/// Two members of a keyed group: each key belongs to one member at a time, in order.
fn keyed(weir: &Weir, push: &mut impl FnMut(String)) {
    let topic = filled(weir, "keyed", &["x", "y", "x", "y", "x"]);
    let mut anna = member(&topic, "keys", GroupMode::Keyed, "anna");
    let mut bert = member(&topic, "keys", GroupMode::Keyed, "bert");
    let first = anna.claim(1, NOW).unwrap();
    let second = bert.claim(10, NOW).unwrap();
    // All records of x wait for anna.
    push(format!("{:?} {:?}", offsets(&first), offsets(&second)));
    push(info(&anna));
    let more = anna.claim(10, NOW).unwrap();
    push(format!("{:?}", offsets(&more)));
    push(format!("{:?}", anna.ack(&more).unwrap()));
    push(format!("{:?}", anna.ack(&first).unwrap()));
    push(format!("{:?}", bert.ack(&second).unwrap()));
    push(info(&bert));
    let names: Vec<String> = topic
        .groups()
        .unwrap()
        .iter()
        .map(|group| group.name.clone())
        .collect();
    push(format!("{names:?}"));
}

/// One member reads, and another member becomes the owner.
fn exclusive(weir: &Weir, push: &mut impl FnMut(String)) {
    let topic = filled(weir, "mail", &["a", "b", "c", "d", "e", "f"]);
    let mut anna = member(&topic, "mail", GroupMode::Exclusive, "anna");
    let mut bert = member(&topic, "mail", GroupMode::Exclusive, "bert");
    let mut works = Vec::new();
    for _ in 0..4 {
        works.extend(anna.claim(1, NOW).unwrap());
    }
    push(format!("{:?}", offsets(&works)));
    push(format!("{:?}", offsets(&bert.claim(10, NOW).unwrap())));
    push(format!("{:?}", anna.ack(&works[..2]).unwrap()));
    push(info(&anna));
    bert.take_over().unwrap();
    let found = bert.claim(10, NOW).unwrap();
    push(format!("{:?}", offsets(&found)));
    push(format!("{:?}", anna.ack(&works[2..]).unwrap()));
    bert.nack(&found[1..], NOW, "").unwrap();
    push(format!("{:?}", offsets(&bert.claim(10, NOW).unwrap())));
    bert.ack_soon(&found).unwrap();
    bert.leave().unwrap();
    topic.put("g", "7").unwrap().ensure_valid().unwrap();
    let next = anna.claim(10, TEST_TIMEOUT).unwrap();
    push(format!("{:?}", offsets(&next)));
    push(format!("{:?}", anna.extend(&next, NOW).unwrap()));
    push(format!(
        "{:?}",
        anna.reset(ReadFrom::After(ConsequenceOffset(3))).unwrap()
    ));
    push(format!("{:?}", offsets(&anna.claim(2, NOW).unwrap())));
    push(info(&anna));
}

fn latest(weir: &Weir, push: &mut impl FnMut(String)) {
    let topic = filled(weir, "now", &["b", "a", "b", "c"]);
    topic.delete("c").unwrap().ensure_valid().unwrap();
    let mut latest = topic.latest(NOW).unwrap();
    let mut next = |found: Option<Result<Current, WeirError>>| {
        let found = found.map(Result::unwrap);
        let found = found.map(|found| {
            let record = found.value.record();
            (
                record.offset,
                record.key.to_vec(),
                record.value.to_vec(),
                found.replay,
            )
        });
        push(format!("{found:?}"));
    };
    for _ in 0..3 {
        next(latest.next());
    }
    topic.put("a", "2").unwrap().ensure_valid().unwrap();
    let immediate = latest.next();
    // The read does not wait for the server, which may not have sent the record yet.
    next(immediate.or_else(|| {
        let mut again = topic.latest(TEST_TIMEOUT).unwrap().skip(1);
        let found = again.next();
        assert!(found.as_ref().unwrap().is_ok());
        latest.find(Result::is_ok)
    }));
}

fn script(weir: &Weir) -> Vec<String> {
    let mut lines = Vec::new();
    let mut push = |line: String| lines.push(line);
    shared(weir, &mut push);
    keyed(weir, &mut push);
    exclusive(weir, &mut push);
    lines
}

fn local() -> (Weir, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    (Weir::open_with(dir.path(), &options).unwrap(), dir)
}

#[test]
fn a_script_of_groups_gets_equal_results_local_and_remote() {
    let world = World::new();
    let (local, _dir) = local();
    let (local, remote) = (script(&local), script(&world.connect()));
    for (local, remote) in local.iter().zip(&remote) {
        assert_eq!(local, remote);
    }
    assert_eq!(local.len(), remote.len());
    // The results are also the expected ones.
    assert_eq!(local[0], "[(2, 1), (3, 1)] [(4, 1), (5, 1), (6, 1)]");
    assert!(
        local
            .iter()
            .any(|line| line.contains("\"reason\":\"broken\""))
    );
    assert!(
        local.contains(&"[(2, 1)] [(3, 1), (5, 1)]".to_owned()),
        "{local:#?}"
    );
}

#[test]
fn the_latest_values_are_equal_local_and_remote() {
    let world = World::new();
    let (local, _dir) = local();
    let (mut here, mut there) = (Vec::new(), Vec::new());
    latest(&local, &mut |line| here.push(line));
    latest(&world.connect(), &mut |line| there.push(line));
    assert_eq!(here[..3], there[..3]);
    assert!(here[0].contains("[97]") && here[2] == "None", "{here:?}");
}

#[test]
fn new_records_follow_the_latest_values() {
    let world = World::new();
    let remote = world.connect();
    let topic = filled(&remote, "t", &["b", "a"]);
    let mut latest = topic.latest(TEST_TIMEOUT).unwrap();
    let replayed: Vec<_> = latest.by_ref().take(2).map(Result::unwrap).collect();
    assert!(replayed.iter().all(|current| current.replay));
    topic.put("a", "new").unwrap().ensure_valid().unwrap();
    let new = latest.next().unwrap().unwrap();
    assert_eq!((new.replay, new.value.value()), (false, &b"new"[..]));
}

#[test]
fn the_latest_values_survive_a_broken_connection() {
    let world = World::new();
    let topic = filled(&world.connect(), "t", &[]);
    let mut session = world.connect().session(crate::world::CLIENT);
    let keys: Vec<String> = (0..3_000).map(|n| format!("{n:05}")).collect();
    let value = "x".repeat(2_000);
    for key in &keys {
        drop(
            session
                .send(&[crate::world::put("t", key, &value)])
                .unwrap(),
        );
    }
    drop((session, topic));
    // All records together have 6 MB.
    let proxy = Proxy::new(world.address, 1 << 40, 1_500_000);
    let remote = Weir::connect(&format!("weir://{}", proxy.address)).unwrap();
    let mut latest = remote.topic("t").unwrap().latest(NOW).unwrap();
    let mut seen = Vec::new();
    for found in latest.by_ref() {
        let found = found.unwrap();
        assert!(found.replay);
        seen.push(String::from_utf8(found.value.record().key.to_vec()).unwrap());
    }
    assert_eq!(seen, keys);
    assert!(proxy.connections() > 1);
}

#[test]
fn records_can_be_claimed_again_after_their_lease() {
    let world = World::new();
    let remote = world.connect();
    let topic = filled(&remote, "t", &["a", "b"]);
    let short = Some(Duration::from_millis(50));
    let mut anna = member(&topic, "g", GroupMode::Shared, "anna").lease(short);
    let mut bert = member(&topic, "g", GroupMode::Shared, "bert");
    let claimed = anna.claim(10, NOW).unwrap();
    assert_eq!(offsets(&claimed), [(2, 1), (3, 1)]);
    // There is no write: the waiting claim detects the expired lease without a wake-up.
    let again = bert.claim(10, TEST_TIMEOUT).unwrap();
    assert_eq!(offsets(&again), [(2, 2), (3, 2)]);
    assert_eq!(
        anna.ack(&claimed).unwrap().len(),
        2,
        "another member has claimed the records"
    );
    assert_eq!(bert.ack(&again).unwrap(), []);
    assert_eq!(bert.lag().unwrap(), 0);
}

#[test]
fn waiting_claims_block_no_request_and_end_with_a_record() {
    let world = World::new();
    let remote = world.connect();
    let topic = filled(&remote, "t", &[]);
    drop(topic.group("g", GroupMode::Shared).unwrap());
    let waiting: Vec<_> = (0..3)
        .map(|n| {
            let topic = topic.clone();
            std::thread::spawn(move || {
                let name = format!("m{n}");
                let mut group = member(&topic, "g", GroupMode::Shared, &name);
                let works = group.claim(1, TEST_TIMEOUT).unwrap();
                assert_eq!(group.ack(&works).unwrap(), []);
                offsets(&works)
            })
        })
        .collect();
    // Requests on a connection that has waiting claims.
    for key in ["a", "b", "c"] {
        topic.put(key, "v").unwrap().ensure_valid().unwrap();
        assert!(topic.get(key).unwrap().is_some());
    }
    let mut got: Vec<_> = waiting
        .into_iter()
        .flat_map(|t| t.join().unwrap())
        .collect();
    got.sort_unstable();
    assert_eq!(got, [(2, 1), (3, 1), (4, 1)]);
}

#[test]
fn a_claim_is_limited_in_bytes_and_returns_large_records_one_by_one() {
    let world = World::new();
    let remote = world.connect();
    let topic = filled(&remote, "t", &[]);
    let long = vec![b'x'; 200_000];
    for _ in 0..3 {
        topic.append(long.clone()).unwrap().ensure_valid().unwrap();
    }
    topic
        .append(vec![b'y'; 900_000])
        .unwrap()
        .ensure_valid()
        .unwrap();
    let mut group = member(&topic, "g", GroupMode::Shared, "m");
    let mut sizes = Vec::new();
    loop {
        let works = group.claim(10, NOW).unwrap();
        if works.is_empty() {
            break;
        }
        let bytes: usize = works.iter().map(|work| work.record().value.len()).sum();
        assert!(works.len() == 1 || bytes <= 256 << 10);
        sizes.push(bytes);
        // Records that are claimed again are limited as well.
        if sizes.len() == 1 {
            group.nack(&works, NOW, "").unwrap();
        } else {
            group.ack(&works).unwrap();
        }
    }
    assert_eq!(sizes, [200_000, 200_000, 200_000, 200_000, 900_000]);
    assert_eq!(group.lag().unwrap(), 0);
}

#[test]
fn a_member_continues_after_cuts_and_a_restart() {
    let mut world = World::new();
    let proxy = Proxy::new(world.address, 2_000, 6_000);
    let remote = Weir::connect(&format!("weir://{}", proxy.address)).unwrap();
    let keys: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    drop(filled(&world.connect(), "t", &names));
    let topic = remote.topic("t").unwrap();
    let lease = Some(Duration::from_millis(300));
    let mut shared = member(&topic, "s", GroupMode::Shared, "m").lease(lease);
    let mut owner = member(&topic, "x", GroupMode::Exclusive, "m");
    let (mut done, mut read) = (std::collections::BTreeSet::new(), Vec::new());
    let mut rounds = 0;
    while done.len() < keys.len() {
        rounds += 1;
        if rounds == 4 {
            world.restart();
        }
        let works = shared.claim(10, Duration::from_secs(1)).unwrap();
        let lost = shared.ack(&works).unwrap();
        let mine = works.iter().map(|work| work.record().offset);
        done.extend(mine.filter(|offset| !lost.contains(offset)));
        let works = owner.claim(7, NOW).unwrap();
        read.extend(works.iter().map(|work| work.record().offset.0));
        assert_eq!(owner.ack(&works).unwrap(), []);
        assert!(rounds < 200);
    }
    while let works = owner.claim(7, NOW).unwrap()
        && !works.is_empty()
    {
        read.extend(works.iter().map(|work| work.record().offset.0));
        assert_eq!(owner.ack(&works).unwrap(), []);
    }
    assert_eq!(read, (2..102).collect::<Vec<u64>>(), "in order, each once");
    assert_eq!(shared.lag().unwrap(), 0);
    assert!(proxy.connections() > 2);
}

#[test]
fn a_waiting_claim_ends_when_the_server_stops() {
    let world = World::new();
    let remote = world.connect();
    let topic = filled(&remote, "t", &[]);
    let mut options = weir::ConnectOptions::default();
    options.patience = Duration::from_secs(2);
    let other = Weir::connect_with(&format!("weir://{}", world.address), &options).unwrap();
    let mut group = member(&other.topic("t").unwrap(), "g", GroupMode::Shared, "m");
    drop(topic);
    let waiting = std::thread::spawn(move || group.claim(1, TEST_TIMEOUT).err());
    let mut world = world;
    if let Some(server) = world.server.take() {
        server.drain();
        drop(server);
    }
    let error = waiting.join().unwrap().unwrap();
    let WeirError::Store(StoreError::Remote { code, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(code, ErrorCode::Unreachable | ErrorCode::Draining),
        "{code:?}"
    );
}

/// Otherwise, the member would read the topic from its start again.
#[test]
fn a_member_that_cannot_read_its_position_joins_again() {
    let (address, seen) = peer(vec![Script::Owner]);
    let remote = Weir::connect(&format!("weir://{address}")).unwrap();
    let topic = remote.topic("t").unwrap();
    let mut owner = member(&topic, "g", GroupMode::Exclusive, "m");
    for joins in 1..=2 {
        assert!(owner.claim(1, NOW).is_err());
        let seen = seen.lock().unwrap();
        let writes = seen.iter().filter(|one| **one == b"write");
        assert_eq!(writes.count(), joins);
    }
}
