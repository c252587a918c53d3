//! Programs that take long: what they hold up, and what not. The program here
//! is held by the test until it lets it go, so nothing depends on time.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use weir_core::desk::{Desk, Image};
use weir_core::intention::{Intention, Operation};
use weir_core::machine::deferred::COSTLY_FUEL;
use weir_core::program::{Entry, Trap, Verdict};
use weir_core::{
    ClientId, CodeHash, ConsequenceOffset, Effect, Facts, GroupMode, GroupSetup, GroupStep,
    Outcome, Program, ProgramHost, Refusal, Setup, TopicOptions,
};
use weir_store::disk::{Disk, FileDisk, SimDisk};
use weir_store::{Ask, Durability, OpenOptions, Proposal, Store, StoreError};

use crate::disks::{Gate as Gates, Op, PATIENCE, Rule};
use crate::world::{CLIENT, Draw, create, execute, options, put};

/// Holds calls whose value says so.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    arrived: usize,
    open: bool,
}

impl Gate {
    fn pass(&self) {
        let mut held = self.state.lock().unwrap();
        held.arrived += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(held, |held| !held.open).unwrap());
    }

    /// Waits until so many calls have come.
    fn await_calls(&self, number: usize) {
        let held = self.state.lock().unwrap();
        let enough = |held: &mut Held| held.arrived < number;
        drop(self.changed.wait_while(held, enough).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

/// Costly unless the value is "cheap"; waits at the gate for "hold", dies for
/// "die". Writes what it was given, unless it is "undo": then what the call did
/// waits at the gate to be taken back. Begins by its arguments, as by a value.
#[derive(Clone, Debug)]
struct Slow(Arc<Gate>);

impl ProgramHost for Slow {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash([code[0]; 32])
    }

    fn admit(&self, _: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        Ok(Box::new(self.clone()))
    }

    fn fingerprint(&self) -> String {
        "slow".to_owned()
    }
}

impl Program for Slow {
    fn facts(&self) -> Facts {
        Facts {
            reads_input: true,
            has_init: true,
            has_upgrade: true,
            ..Facts::default()
        }
    }

    fn fits(&self, _: &Setup) -> Result<(), String> {
        Ok(())
    }

    fn accepts(&self, _: &Image) -> bool {
        true
    }

    fn judge(&mut self, entry: Entry, _: u64, desk: &mut Box<Desk>) -> Result<Verdict, Trap> {
        let what = if entry == Entry::Apply { 1 } else { 2 };
        let value = desk.input(what, 0).unwrap().to_vec();
        match &value[..] {
            b"hold" => self.0.pass(),
            b"die" => panic!("the test wants it"),
            _ => {}
        }
        desk.burn(if value == b"cheap" { 1 } else { COSTLY_FUEL });
        if entry == Entry::Apply {
            desk.emit_input(|_| Ok(())).unwrap();
        }
        if value == b"undo" {
            return Ok(Verdict::Reject(1));
        }
        Ok(Verdict::Valid)
    }

    fn settle(&mut self, kept: bool, _: &mut Desk) {
        if !kept {
            self.0.pass();
        }
    }

    fn fork(&self) -> Box<dyn Program> {
        Box::new(self.clone())
    }
}

struct World {
    dir: tempfile::TempDir,
    gate: Arc<Gate>,
    options: OpenOptions,
}

impl World {
    fn new() -> Self {
        let gate = Arc::new(Gate::default());
        let options = OpenOptions {
            host: Some(Arc::new(Slow(Arc::clone(&gate)))),
            ..options()
        };
        Self {
            dir: tempfile::tempdir().unwrap(),
            gate,
            options,
        }
    }

    fn open(&self) -> Store {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(self.dir.path()).unwrap());
        Store::open_disk(disk, &self.options).unwrap()
    }

    /// A store whose topics `slow` and `slower` are known to be costly, and
    /// `plain` has no program.
    fn start(&self) -> Store {
        let store = self.open();
        fill(&store);
        store
    }

    /// The digest after a replay of the whole log.
    fn reopened(&self) -> weir_core::Digest {
        let store = self.open();
        let digest = store.digest();
        store.close().unwrap();
        digest
    }
}

/// Makes the topics of a [`World::start`].
fn fill(store: &Store) {
    create(store, "plain");
    for topic in ["slow", "slower"] {
        let options = TopicOptions::default();
        let operation = Operation::CreateProgram {
            options: &options,
            code: b"code",
            args: b"",
        };
        let made = execute(store, &[Intention::new(topic, operation)]);
        assert_eq!(made[0].effect, Effect::Valid);
        execute(store, &[put(topic, b"k", b"costly")]);
    }
}

fn send(store: &Store, topic: &str, value: &str) -> Proposal {
    store
        .propose(&[put(topic, b"k", value.as_bytes())])
        .unwrap()
}

/// Nobody who has nothing to do with costly topics waits for them.
fn others_go_on(store: &Store) {
    let answer = send(store, "plain", "value").wait_for(PATIENCE);
    let outcomes = answer.expect("it waits for a program").unwrap();
    let commit = outcomes.iter().next().and_then(|o| o.commit().cloned());
    assert_eq!(commit.unwrap().effect, Effect::Valid);
}

fn valid(proposal: Proposal) {
    let outcomes = proposal.wait().unwrap();
    assert!(
        outcomes
            .iter()
            .all(|o| o.commit().is_some_and(|c| c.effect == Effect::Valid))
    );
}

#[test]
fn others_go_on_while_a_program_judges() {
    let world = World::new();
    let store = world.start();
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    // Writes, reads and questions about the topic itself are answered.
    for _ in 0..10 {
        valid(send(&store, "plain", "value"));
    }
    assert!(store.get("plain", b"k").unwrap().is_some());
    assert!(store.get("slow", b"k").unwrap().is_some());
    assert!(store.program("slow").is_some());
    assert_eq!(store.programs().len(), 2);
    let behind = send(&store, "slower", "costly");
    assert!(!held.is_done());
    world.gate.open();
    valid(held);
    valid(behind);
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopened(), digest);
}

/// Waits until so many batches are in the log: what comes then is in none of
/// them.
fn logged(store: &Store, batches: u64) {
    while store.stats().batches < batches {
        std::thread::yield_now();
    }
}

/// A topic whose program is taken for cheap.
fn cheap(store: &Store, topic: &str) {
    let options = TopicOptions::default();
    let operation = Operation::CreateProgram {
        options: &options,
        code: b"code",
        args: b"",
    };
    execute(store, &[Intention::new(topic, operation)]);
    while store.is_costly(&[put(topic, b"k", b"cheap")]) {
        execute(store, &[put(topic, b"k", b"cheap")]);
    }
}

#[test]
fn nothing_that_follows_a_costly_call_holds_up_others() {
    let world = World::new();
    let store = world.start();
    let session = |nonce, value| Intention {
        client: CLIENT,
        nonce,
        ..put("slow", b"k", value)
    };
    let options = TopicOptions::default();
    let mut other = TopicOptions::default();
    other.keys_max = Some(9);
    let create = Operation::CreateProgram {
        options: &options,
        code: b"code",
        args: b"",
    };
    let replace = Operation::Replace {
        expected: None,
        code: b"other",
        args: b"",
    };
    let held = store.propose(&[
        session(1, b"hold"),
        Intention::new("slow", Operation::Alter { options: &other }),
        session(2, b"costly"),
        // Again, and behind a gap.
        session(2, b"costly"),
        session(4, b"costly"),
        Intention::new("slow", replace),
        Intention::new("made", create),
        put("made", b"k", b"costly"),
        Intention::new("made", Operation::Destroy),
        put("slow", b"k", b"costly"),
    ]);
    let held = held.unwrap();
    world.gate.await_calls(1);
    others_go_on(&store);
    assert!(!held.is_done());
    world.gate.open();
    let outcomes = held.wait().unwrap();
    let said: Vec<_> = outcomes.iter().collect();
    assert!(matches!(said[3], Outcome::Replayed(_)), "{said:?}");
    assert!(matches!(said[4], Outcome::Refused { .. }), "{said:?}");
    for at in [0, 1, 2, 5, 6, 7, 8, 9] {
        assert_eq!(said[at].commit().unwrap().effect, Effect::Valid, "{at}");
    }
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopened(), digest);
}

#[test]
fn a_batch_that_was_queued_before_a_topic_was_costly_waits_alone() {
    let world = World::new();
    let disk = Gates::new(SimDisk::new());
    let store = Store::open_disk(disk.disk(), &world.options).unwrap();
    fill(&store);
    cheap(&store, "fresh");
    disk.rule(Op::Sync, "log/", Rule::Hold);
    let values: [&[u8]; 3] = [b"costly", b"hold", b"cheap"];
    let first = store
        .propose(&values.map(|value| put("fresh", b"k", value)))
        .unwrap();
    disk.wait_held();
    let batches = store.stats().batches;
    let second = store.propose(&[put("fresh", b"k", b"cheap")]).unwrap();
    disk.release();
    world.gate.await_calls(1);
    logged(&store, batches + 1);
    others_go_on(&store);
    assert!(!first.is_done() && !second.is_done());
    world.gate.open();
    valid(first);
    valid(second);
}

#[test]
fn a_second_topic_that_turns_costly_waits_alone() {
    let world = World::new();
    let store = world.start();
    cheap(&store, "fresh");
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let batches = store.stats().batches;
    let values: [&[u8]; 3] = [b"costly", b"costly", b"cheap"];
    let second = store
        .propose(&values.map(|value| put("fresh", b"k", value)))
        .unwrap();
    assert!(!second.is_costly(), "nobody knows yet");
    logged(&store, batches + 1);
    others_go_on(&store);
    assert!(!held.is_done() && !second.is_done());
    world.gate.open();
    valid(held);
    valid(second);
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopened(), digest);
}

#[test]
fn no_number_of_programs_makes_one_forgotten() {
    let world = World::new();
    let store = world.start();
    let names: Vec<String> = (0..1100).map(|n| format!("t{n:04}")).collect();
    let options = TopicOptions::default();
    let operation = Operation::CreateProgram {
        options: &options,
        code: b"code",
        args: b"",
    };
    let many: Vec<_> = names
        .iter()
        .map(|name| Intention::new(name, operation))
        .collect();
    execute(&store, &many);
    let batches = store.stats().batches;
    let held = send(&store, "t0000", "hold");
    world.gate.await_calls(1);
    logged(&store, batches + 1);
    others_go_on(&store);
    world.gate.open();
    valid(held);
    store.close().unwrap();
}

#[test]
fn a_topic_is_settled_while_others_are_judged() {
    let world = World::new();
    let store = world.start();
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    others_go_on(&store);
    let applied = store.applied();
    assert_eq!(store.settled_of("plain"), applied);
    assert_eq!(store.settled_of("slow"), store.settled());
    assert!(store.settled() < applied);
    world.gate.open();
    valid(held);
    assert_eq!(store.settled_of("slow"), applied);
    store.close().unwrap();
}

#[test]
fn what_a_call_did_is_taken_back_apart() {
    let world = World::new();
    let store = world.start();
    let undone = send(&store, "slow", "undo");
    world.gate.await_calls(1);
    others_go_on(&store);
    assert!(!undone.is_done());
    world.gate.open();
    let outcomes = undone.wait().unwrap();
    let effects: Vec<_> = outcomes
        .iter()
        .filter_map(|o| Some(o.commit()?.effect))
        .collect();
    assert_eq!(effects, [Effect::Invalid]);
    store.close().unwrap();
}

#[test]
fn not_even_the_first_call_of_a_program_holds_up_others() {
    let world = World::new();
    let store = world.start();
    let options = TopicOptions::default();
    let operation = Operation::CreateProgram {
        options: &options,
        code: b"code",
        args: b"",
    };
    execute(&store, &[Intention::new("new", operation)]);
    let held = send(&store, "new", "hold");
    world.gate.await_calls(1);
    valid(send(&store, "plain", "value"));
    world.gate.open();
    valid(held);
    store.close().unwrap();
}

/// A CREATE or REPLACE whose program begins by these arguments.
fn begin(store: &Store, topic: &str, replace: bool, args: &[u8]) -> Proposal {
    let options = TopicOptions::default();
    let (code, expected) = (&b"code"[..], None);
    let operation = if replace {
        Operation::Replace {
            expected,
            code,
            args,
        }
    } else {
        Operation::CreateProgram {
            options: &options,
            code,
            args,
        }
    };
    store.propose(&[Intention::new(topic, operation)]).unwrap()
}

#[test]
fn a_program_that_begins_holds_up_nobody() {
    for replace in [false, true] {
        let world = World::new();
        let store = world.start();
        let topic = if replace { "slow" } else { "new" };
        let held = begin(&store, topic, replace, b"hold");
        world.gate.await_calls(1);
        others_go_on(&store);
        assert!(store.get("plain", b"k").unwrap().is_some());
        assert_eq!(store.program(topic).is_some(), replace, "the old one");
        // Topics that come must wait, and nobody waits with them.
        let create = Operation::Create {
            options: &TopicOptions::default(),
        };
        let made = store.propose(&[Intention::new("made", create)]).unwrap();
        let behind = send(&store, topic, "costly");
        others_go_on(&store);
        assert!(!held.is_done() && !behind.is_done());
        world.gate.open();
        valid(held);
        valid(made);
        valid(behind);
        let digest = store.digest();
        store.close().unwrap();
        assert_eq!(world.reopened(), digest);
    }
}

#[test]
fn no_number_of_programs_that_begin_holds_up_others() {
    let world = World::new();
    let store = world.start();
    let held: Vec<_> = (0..100)
        .map(|n| begin(&store, &format!("new{n}"), false, b"hold"))
        .collect();
    world.gate.await_calls(1);
    others_go_on(&store);
    assert!(held.iter().all(|one| !one.is_done()));
    world.gate.open();
    held.into_iter().for_each(valid);
    store.close().unwrap();
}

#[test]
fn what_a_program_did_when_it_began_is_taken_back_apart() {
    let world = World::new();
    let store = world.start();
    let undone = begin(&store, "slow", true, b"undo");
    world.gate.await_calls(1);
    others_go_on(&store);
    world.gate.open();
    let outcomes = undone.wait().unwrap();
    let effects: Vec<_> = outcomes
        .iter()
        .filter_map(|o| Some(o.commit()?.effect))
        .collect();
    assert_eq!(effects, [Effect::Invalid]);
    valid(send(&store, "slow", "costly"));
    store.close().unwrap();
}

#[test]
fn a_client_is_answered_in_its_order() {
    let world = World::new();
    let store = world.start();
    let session = |topic, nonce, value| Intention {
        client: CLIENT,
        nonce,
        ..put(topic, b"k", value)
    };
    let first = store.propose(&[session("slow", 1, b"hold")]).unwrap();
    world.gate.await_calls(1);
    // Overtaking would be a gap in its nonces.
    let second = store.propose(&[session("plain", 2, b"value")]).unwrap();
    let other = store.propose(&[Intention {
        client: ClientId([0x22; 16]),
        ..session("plain", 1, b"value")
    }]);
    world.gate.open();
    valid(first);
    valid(second);
    valid(other.unwrap());
    assert_eq!(store.last_nonce(CLIENT), 2);
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopened(), digest);
}

#[test]
fn one_call_with_many_is_judged_one_by_one_and_answered_whole() {
    let world = World::new();
    let store = world.start();
    let values: Vec<Vec<u8>> = (0..50)
        .map(|n| {
            if n % 3 == 0 {
                b"cheap".to_vec()
            } else {
                vec![n]
            }
        })
        .collect();
    let many: Vec<_> = values
        .iter()
        .map(|value| put("slow", b"k", value))
        .collect();
    let done = execute(&store, &many);
    assert!(done.iter().all(|commit| commit.effect == Effect::Valid));
    let dense = done.windows(2).all(|two| {
        two[1].intention.0 == two[0].intention.0 + 1 && two[1].first.0 == two[0].first.0 + 1
    });
    assert!(dense, "offsets are dense: {done:?}");
    store.close().unwrap();
}

#[test]
fn a_checkpoint_waits_for_the_judge() {
    let world = World::new();
    let store = world.start();
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        valid(send(&store, "plain", "value"));
        world.gate.open();
        valid(held);
        checkpoint.join().unwrap().unwrap();
    });
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopened(), digest);
}

#[test]
fn closing_answers_what_is_logged_and_refuses_what_waits() {
    let world = World::new();
    let store = world.start();
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let behind = send(&store, "slower", "costly");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| store.close());
        assert!(matches!(behind.wait(), Err(StoreError::Closed)));
        world.gate.open();
        valid(held);
        closing.join().unwrap().unwrap();
    });
}

/// An exclusive group of a topic, and the generation of its owner.
fn group(store: &Store, topic: &str) -> u64 {
    let setup = GroupSetup::new(GroupMode::Exclusive);
    let made = store
        .group_step(topic, "g", GroupStep::Open(setup))
        .unwrap();
    assert_eq!(made.effect, Effect::Valid);
    let (member, takeover) = (&b"anna"[..], false);
    let joined = store.group_step(topic, "g", GroupStep::Join { member, takeover });
    joined.unwrap().intention.0
}

fn cursor(store: &Store, topic: &str) -> u64 {
    store.group(topic, "g").unwrap().cursor.0
}

/// Does something that takes no longer than the tests have patience.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    within_patience(work).expect("it waits for a program")
}

/// The same for those who must let a program go before they fail.
fn within_patience<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(PATIENCE).ok()
}

#[test]
fn what_waits_for_programs_is_known_before_and_afterwards() {
    let world = World::new();
    let store = world.start();
    let costly = |intention: Intention<'_>| {
        let known = store.is_costly(&[intention]);
        let proposal = store.propose(&[intention]).unwrap();
        assert_eq!(proposal.is_costly(), known);
        known.then_some(proposal)
    };
    assert!(costly(put("plain", b"k", b"v")).is_none());
    let session = |topic, nonce, value| Intention {
        client: CLIENT,
        nonce,
        ..put(topic, b"k", value)
    };
    let held = costly(session("slow", 1, b"hold")).unwrap();
    world.gate.await_calls(1);
    assert!(costly(put("plain", b"k", b"v")).is_none());
    let behind = costly(session("plain", 2, b"v")).unwrap();
    assert!(
        costly(put("plain", b"k", b"v")).is_some(),
        "behind what stands in line for the same topic"
    );
    world.gate.open();
    valid(held);
    valid(behind);
    store.close().unwrap();
}

#[test]
fn a_sync_waits_for_no_program() {
    let world = World::new();
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let options = OpenOptions {
        durability: Durability::Memory,
        ..world.options.clone()
    };
    let store = Arc::new(Store::open_disk(disk, &options).unwrap());
    fill(&store);
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let behind = send(&store, "slower", "costly");
    valid(send(&store, "plain", "value"));
    let last = store.stats().batches;
    let again = Arc::clone(&store);
    soon(move || again.sync().unwrap());
    assert_eq!(store.stats().durable_index, last, "what was answered, too");
    assert!(!held.is_done() && !behind.is_done());
    world.gate.open();
    valid(held);
    valid(behind);
    store.shut_down().unwrap();
}

#[test]
fn closing_waits_for_the_call_that_runs_and_for_nothing_behind_it() {
    let mut world = World::new();
    world.options.cursor_flush = Duration::ZERO;
    let store = world.start();
    let (slow, plain) = (group(&store, "slow"), group(&store, "plain"));
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let behind: Vec<_> = (0..2).map(|_| send(&store, "slower", "hold")).collect();
    // One of these stands in line by now, or waits to be written.
    store
        .move_cursor("slow", "g", slow, ConsequenceOffset(2))
        .unwrap();
    store
        .move_cursor("plain", "g", plain, ConsequenceOffset(1))
        .unwrap();
    while cursor(&store, "plain") < 1 {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| store.close());
        let refused: Vec<_> = behind
            .into_iter()
            .map(|behind| behind.wait_for(PATIENCE))
            .collect();
        world.gate.open();
        for refused in refused {
            let refused = refused.expect("closing does not wait for it");
            assert!(matches!(refused, Err(StoreError::Closed)));
        }
        valid(held);
        closing.join().unwrap().unwrap();
    });
    let judged = world.gate.state.lock().unwrap().arrived;
    assert_eq!(judged, 1, "the others were not executed");
    let store = world.open();
    assert_eq!(cursor(&store, "slow"), 2, "the close has written it");
    store.close().unwrap();
}

#[test]
fn cursors_of_others_do_not_wait_with_those_of_costly_topics() {
    let mut world = World::new();
    world.options.cursor_flush = Duration::ZERO;
    let store = Arc::new(world.start());
    let (slow, plain) = (group(&store, "slow"), group(&store, "plain"));
    valid(send(&store, "plain", "value"));
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let again = Arc::clone(&store);
    // In one round, or in one behind another.
    soon(move || {
        for offset in 1..=2 {
            let offset = ConsequenceOffset(offset);
            again.move_cursor("slow", "g", slow, offset).unwrap();
            again.move_cursor("plain", "g", plain, offset).unwrap();
            while cursor(&again, "plain") < offset.0 {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(cursor(&store, "slow"), 0);
    let again = Arc::clone(&store);
    soon(move || again.flush_cursor("plain", "g"));
    world.gate.open();
    valid(held);
    store.flush_cursors();
    assert_eq!(cursor(&store, "slow"), 2);
    store.shut_down().unwrap();
}

#[test]
fn a_claim_that_waits_for_a_program_holds_up_no_other_group() {
    let world = World::new();
    let store = Arc::new(world.start());
    let names: Vec<String> = (0..300).map(|n| format!("g{n}")).collect();
    for (topic, group) in names
        .iter()
        .map(|name| ("plain", name))
        .chain([("slow", &names[0])])
    {
        let setup = GroupSetup::new(GroupMode::Shared);
        let made = store.group_step(topic, group, GroupStep::Open(setup));
        let made = made.unwrap();
        assert_eq!(made.effect, Effect::Valid);
    }
    valid(send(&store, "plain", "value"));
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let ask = Ask {
        member: b"anna",
        max: 1,
        lease_ms: 0,
        bytes_max: usize::MAX,
    };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.claim("slow", "g0", &ask).unwrap());
        let again = Arc::clone(&store);
        let claimed = within_patience(move || {
            for name in &names {
                let claimed = again.claim("plain", name, &ask).unwrap();
                assert_eq!(claimed.deliveries.len(), 1);
            }
        });
        world.gate.open();
        claimed.expect("claims of others wait for a program");
        assert_eq!(waits.join().unwrap().deliveries.len(), 1);
    });
    valid(held);
    store.shut_down().unwrap();
}

#[test]
fn a_judge_that_dies_poisons_the_store() {
    let world = World::new();
    let store = world.start();
    let dead = send(&store, "slow", "die");
    assert!(dead.wait().is_err());
    let refused = store.propose(&[put("plain", b"k", b"v")]);
    assert!(matches!(refused, Err(StoreError::Poisoned { .. })));
}

/// Whatever came of them.
fn executed(proposal: Proposal) {
    let outcomes = proposal.wait().unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.commit().is_some()));
}

#[test]
fn any_mix_of_writers_is_replayed_alike() {
    let world = World::new();
    let store = world.start();
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                let mut draw = Draw(u64::from(writer));
                let mut sent = VecDeque::new();
                for nonce in 1..=600 {
                    let topic = ["slow", "slower", "plain", "more"][draw.below(4) as usize];
                    // Mostly cheap, so that topics are taken for cheap and are not.
                    let value: &[u8] = if draw.below(20) == 0 {
                        b"costly"
                    } else {
                        b"cheap"
                    };
                    let options = TopicOptions::default();
                    let mut intention = put(topic, b"k", value);
                    match draw.below(40) {
                        0 => intention.operation = Operation::Destroy,
                        1..3 => {
                            intention.operation = Operation::CreateProgram {
                                options: &options,
                                code: b"code",
                                args: value,
                            }
                        }
                        3 => {
                            intention.operation = Operation::Replace {
                                expected: None,
                                code: b"other",
                                args: value,
                            }
                        }
                        4 => intention.operation = Operation::Create { options: &options },
                        _ => {}
                    }
                    intention.client = ClientId([writer + 1; 16]);
                    intention.nonce = nonce;
                    sent.push_back(store.propose(&[intention]).unwrap());
                    if sent.len() > 10 {
                        executed(sent.pop_front().unwrap());
                    }
                }
                sent.into_iter().for_each(executed);
            });
        }
    });
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopened(), digest);
}

#[test]
fn a_large_batch_is_applied_while_the_next_one_is_synced() {
    let world = World::new();
    let disk = Gates::new(SimDisk::new());
    let store = Store::open_disk(disk.disk(), &world.options).unwrap();
    let options = TopicOptions::default();
    let operation = Operation::CreateProgram {
        options: &options,
        code: b"code",
        args: b"",
    };
    execute(&store, &[Intention::new("fresh", operation)]);
    // Known to be cheap after some calls, alone in their batches.
    for _ in 0..5 {
        execute(&store, &[put("fresh", b"k", b"cheap")]);
    }
    disk.rule(Op::Sync, "log/", Rule::Hold);
    let mut many = vec![put("fresh", b"k", b"cheap"); 1000];
    many[0] = put("fresh", b"k", b"hold");
    let first = store.propose(&many).unwrap();
    disk.wait_held();
    let second = store.propose(&many[1..]).unwrap();
    let (sender, syncs) = std::sync::mpsc::channel();
    disk.observe(move |op, path| {
        if op == Op::Sync && path.starts_with("log/") {
            sender.send(()).ok();
        }
    });
    disk.release();
    world.gate.await_calls(1);
    // The program still judges in the first batch, and both are synced.
    for _ in 0..2 {
        syncs.recv_timeout(PATIENCE).unwrap();
    }
    assert!(!first.is_done() && !second.is_done());
    world.gate.open();
    valid(first);
    valid(second);
}
