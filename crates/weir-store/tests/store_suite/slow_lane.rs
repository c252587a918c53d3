//! The slow lane: the order in which calls of costly programs and other calls are logged.
//! The tests hold a sync while they propose calls, and then compare the intention offsets
//! of the calls. No result depends on time.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use weir_core::call_context::{CallContext, Image};
use weir_core::intention::{Intention, Operation};
use weir_core::program::{Decision, Entry, Trap};
use weir_core::{
    ClientId, CodeHash, ConsequenceOffset, Effect, ErrorCode, Facts, GroupMode, GroupSetup,
    GroupStep, Outcome, Program, ProgramHost, Refusal, Setup, TopicOptions,
};
use weir_store::disk::{Disk, FileDisk, SimDisk};
use weir_store::replica::Replica;
use weir_store::{LogIndex, OpenOptions, Proposal, Store, StoreError};

use crate::disks::{EIO, ENOSPC, Gate as DiskGate, Op, PATIENCE, Rule};
use crate::replica::{SingleNode, append, node};
use crate::world::{CLIENT, SplitMix, create, execute, options, put, records};

/// Holds calls with the value "hold" until the test opens the gate.
#[derive(Debug, Default)]
struct CallGate {
    state: Mutex<CallGateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CallGateState {
    arrived: usize,
    open: bool,
    /// The threads that ran a program.
    threads: Vec<ThreadId>,
}

impl CallGate {
    fn pass(&self) {
        let mut held = self.state.lock().unwrap();
        held.arrived += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(held, |held| !held.open).unwrap());
    }

    /// Waits until a number of calls have arrived.
    fn await_calls(&self, number: usize) {
        let held = self.state.lock().unwrap();
        let enough = |held: &mut CallGateState| held.arrived < number;
        drop(self.changed.wait_while(held, enough).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }
}

/// Fuel from which a call is costly.
const COSTLY_FUEL: u64 = 100_000;
/// Fuel of a call that uses the default limit.
const LOOP_FUEL: u64 = 1_000_000;

/// A program whose calls are costly unless the value is "cheap". With the value "hold", a
/// call waits at the gate; with "panic", it panics; with "loop", it uses all its fuel and
/// fails. Other calls write the value. The arguments of a start are used like a value.
#[derive(Clone, Debug)]
struct Slow(Arc<CallGate>);

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

    fn judge(
        &mut self,
        entry: Entry,
        _: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap> {
        let thread = std::thread::current().id();
        self.0.state.lock().unwrap().threads.push(thread);
        let what = if entry == Entry::Apply { 1 } else { 2 };
        let value = context.input(what, 0).unwrap().to_vec();
        match &value[..] {
            b"hold" => self.0.pass(),
            b"panic" => panic!("requested by the test"),
            _ => {}
        }
        context.consume_fuel(match &value[..] {
            b"cheap" => 1,
            b"loop" => LOOP_FUEL,
            _ => COSTLY_FUEL,
        });
        if value == b"loop" {
            return Err(Trap::OutOfFuel);
        }
        if entry == Entry::Apply {
            context.emit_input(|_| Ok(())).unwrap();
        }
        Ok(Decision::Accept)
    }

    fn end_intention(&mut self, _: bool, _: &mut CallContext) {}

    fn fork(&self) -> Box<dyn Program> {
        Box::new(self.clone())
    }
}

struct World {
    dir: tempfile::TempDir,
    gate: Arc<CallGate>,
    options: OpenOptions,
}

impl World {
    fn new() -> Self {
        let gate = Arc::new(CallGate::default());
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

    /// As [`start`](Self::start), on a simulated disk, which is returned too.
    fn start_gated(&self) -> (DiskGate, Store) {
        let disk = DiskGate::new(SimDisk::new());
        let store = Store::open_disk(disk.disk(), &self.options).unwrap();
        fill(&store);
        (disk, store)
    }

    fn open(&self) -> Store {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(self.dir.path()).unwrap());
        Store::open_disk(disk, &self.options).unwrap()
    }

    /// Returns a store in which the topics `slow` and `slower` are estimated as costly, and
    /// `plain` has no program.
    fn start(&self) -> Store {
        let store = self.open();
        fill(&store);
        store
    }

    /// Returns the digest after a replay of the whole log.
    fn reopen_digest(&self) -> weir_core::Digest {
        let store = self.open();
        let digest = store.digest();
        store.close().unwrap();
        digest
    }
}

/// Creates the topics for [`World::start`].
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

/// Creates a topic whose program is estimated as cheap.
fn create_cheap(store: &Store, topic: &str) {
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

/// Proposes a CREATE or REPLACE of a program with these start arguments.
fn propose_start(store: &Store, topic: &str, replace: bool, args: &[u8]) -> Proposal {
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

/// Creates an exclusive group of a topic, and returns the generation of its owner.
fn create_group(store: &Store, topic: &str) -> u64 {
    let setup = GroupSetup::new(GroupMode::Exclusive);
    let made = store
        .group_step(topic, "g", GroupStep::Open(setup))
        .unwrap();
    assert_eq!(made.effect, Effect::Valid);
    let (member, takeover) = (&b"anna"[..], false);
    let joined = store.group_step(topic, "g", GroupStep::Join { member, takeover });
    joined.unwrap().intention.0
}

fn wait_valid(proposal: Proposal) {
    let outcomes = proposal.wait().unwrap();
    assert!(
        outcomes
            .iter()
            .all(|o| o.commit().is_some_and(|c| c.effect == Effect::Valid))
    );
}

/// Returns the intention offsets of a call, with any effect.
fn offsets(proposal: Proposal) -> Vec<u64> {
    let outcomes = proposal.wait().unwrap();
    let commit = |o: Outcome| o.commit().expect("executed").intention.0;
    outcomes.iter().map(commit).collect()
}

/// Holds the commit thread in a sync while calls are proposed.
fn while_held<T>(disk: &DiskGate, store: &Store, propose: impl FnOnce() -> T) -> T {
    disk.rule(Op::Sync, "log/", Rule::Hold);
    let first = send(store, "plain", "first");
    disk.wait_held();
    let proposals = propose();
    disk.release();
    wait_valid(first);
    proposals
}

fn send_loops(store: &Store, topic: &str, number: usize) -> Vec<Proposal> {
    (0..number).map(|_| send(store, topic, "loop")).collect()
}

/// Returns how many of these calls were logged before an offset.
fn count_before(calls: Vec<Proposal>, offset: u64) -> usize {
    let all = calls.into_iter().flat_map(offsets);
    all.filter(|one| *one < offset).count()
}

#[test]
fn a_program_never_runs_on_the_thread_of_a_caller() {
    let world = World::new();
    let store = world.open();
    create_cheap(&store, "cheap");
    for _ in 0..20 {
        let write = store.propose_inline(&[put("cheap", b"k", b"cheap")]);
        write.unwrap().wait().unwrap();
    }
    let threads = &world.gate.state.lock().unwrap().threads;
    assert!(threads.len() > 20);
    assert!(!threads.contains(&std::thread::current().id()));
}

#[test]
fn a_cheap_call_overtakes_waiting_costly_calls() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let (waiting, other) = while_held(&disk, &store, || {
        let waiting = send_loops(&store, "slow", 300);
        assert!(waiting.iter().all(Proposal::is_costly));
        (waiting, send(&store, "plain", "value"))
    });
    assert!(!other.is_costly());
    let offset = offsets(other)[0];
    assert_eq!(count_before(waiting, offset), 0);
    store.close().unwrap();
}

#[test]
fn a_cheap_call_overtakes_a_call_of_many_costly_intentions() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let many = vec![put("slow", b"k", b"costly"); 1_000];
    let (call, other) = while_held(&disk, &store, || {
        let call = store.propose(&many).unwrap();
        (call, send(&store, "plain", "value"))
    });
    let offset = offsets(other)[0];
    let all = offsets(call);
    assert!(all.iter().all(|one| *one > offset));
    assert_eq!(all.len(), 1_000, "one result for all");
    assert!(all.is_sorted());
    let stats = store.stats();
    // 20 calls use the fuel of one call at the default limit.
    assert!(stats.batches >= 50, "in small batches: {}", stats.batches);
    let digest = store.digest();
    let found = store.topic("slow").unwrap().last.0;
    store.close().unwrap();
    let store = Store::open_disk(disk.disk(), &world.options).unwrap();
    assert_eq!(
        (store.digest(), store.topic("slow").unwrap().last.0),
        (digest, found)
    );
}

/// At their arrival, nothing is known about the program of their topic.
#[test]
fn calls_that_wait_for_the_first_cheap_calls_share_batches() {
    for call_len in [1, 100] {
        let world = World::new();
        let (disk, store) = world.start_gated();
        wait_valid(propose_start(&store, "new", false, b""));
        let before = store.stats().batches;
        let waiting: Vec<_> = while_held(&disk, &store, || {
            let call = vec![put("new", b"k", b"cheap"); call_len];
            let calls = 0..3_000 / call_len;
            calls.map(|_| store.propose(&call).unwrap()).collect()
        });
        assert!(waiting.iter().all(Proposal::is_costly));
        let found: Vec<_> = waiting.into_iter().flat_map(offsets).collect();
        assert_eq!(found.len(), 3_000);
        assert!(found.is_sorted());
        let batches = store.stats().batches - before;
        assert!(batches < 60, "{call_len}: {batches}");
        let digest = store.digest();
        store.close().unwrap();
        let store = Store::open_disk(disk.disk(), &world.options).unwrap();
        assert_eq!(store.digest(), digest);
    }
}

#[test]
fn costly_topics_take_turns() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let (waiting, other) = while_held(&disk, &store, || {
        (
            send_loops(&store, "slow", 300),
            send(&store, "slower", "costly"),
        )
    });
    assert!(other.is_costly());
    let offset = offsets(other)[0];
    let before = count_before(waiting, offset);
    assert!(before <= 2, "{before}");
    store.close().unwrap();
}

#[test]
fn a_refused_start_delays_no_other_call() {
    // TOPIC_EXISTS for a plain topic and for one with a program, and a REPLACE of a program
    // that does not exist.
    for (topic, replace) in [("plain", false), ("cheap", false), ("plain", true)] {
        let world = World::new();
        let (disk, store) = world.start_gated();
        create_cheap(&store, "cheap");
        let (waiting, start, write) = while_held(&disk, &store, || {
            let waiting = send_loops(&store, "slow", 300);
            let start = propose_start(&store, topic, replace, b"loop");
            (waiting, start, send(&store, topic, "cheap"))
        });
        assert!(!start.is_costly() && !write.is_costly());
        let outcomes = start.wait().unwrap();
        let reason = outcomes.iter().next().and_then(|o| o.commit()?.reason);
        let expected = if replace {
            ErrorCode::BadProgram
        } else {
            ErrorCode::TopicExists
        };
        assert_eq!(reason, Some(expected));
        let offset = offsets(write)[0];
        assert_eq!(count_before(waiting, offset), 0);
        assert!(!send(&store, topic, "cheap").is_costly());
        store.close().unwrap();
    }
}

#[test]
fn a_replaced_program_takes_turns_with_other_topics() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    create_cheap(&store, "cheap");
    let (waiting, start, write) = while_held(&disk, &store, || {
        let waiting = send_loops(&store, "slow", 300);
        let start = propose_start(&store, "cheap", true, b"cheap");
        (waiting, start, send(&store, "cheap", "cheap"))
    });
    let (start, write) = (offsets(start)[0], offsets(write)[0]);
    assert!(start < write);
    let before = count_before(waiting, write);
    assert!(before <= 4, "{before}");
    store.close().unwrap();
}

#[test]
fn a_start_after_a_destroy_is_not_estimated_as_refused() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let (destroy, start, write) = while_held(&disk, &store, || {
        let destroy = store.propose(&[Intention::new("plain", Operation::Destroy)]);
        let start = propose_start(&store, "plain", false, b"cheap");
        (destroy.unwrap(), start, send(&store, "plain", "cheap"))
    });
    assert!(start.is_costly() && write.is_costly());
    for proposal in [destroy, start, write] {
        wait_valid(proposal);
    }
    assert!(store.program("plain").is_some());
    store.close().unwrap();
}

#[test]
fn calls_of_a_client_and_of_a_topic_keep_their_order() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let session = |topic, nonce, value| Intention {
        client: CLIENT,
        nonce,
        ..put(topic, b"k", value)
    };
    let (sent, other) = while_held(&disk, &store, || {
        let mut sent = vec![
            store.propose(&[session("slow", 1, b"loop")]).unwrap(),
            store.propose(&[session("slower", 2, b"costly")]).unwrap(),
            store.propose(&[session("plain", 3, b"value")]).unwrap(),
        ];
        sent.push(send(&store, "plain", "value"));
        (sent, send(&store, "slow", "cheap"))
    });
    assert!(
        sent.iter().all(Proposal::is_costly),
        "the last one because of its topic"
    );
    let offsets_of: Vec<_> = sent.into_iter().map(|one| offsets(one)[0]).collect();
    assert!(offsets_of.is_sorted(), "{offsets_of:?}");
    assert!(offsets(other)[0] > offsets_of[0]);
    assert_eq!(store.last_nonce(CLIENT), 3);
    store.close().unwrap();
}

#[test]
fn group_steps_overtake_the_writes_of_a_costly_topic() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let generation = create_group(&store, "slow");
    let step = GroupStep::Move {
        generation,
        offset: 1,
    };
    let (waiting, moved) = while_held(&disk, &store, || {
        let waiting = send_loops(&store, "slow", 100);
        let operation = Operation::Cursor { group: "g", step };
        let moved = store.propose(&[Intention::new("slow", operation)]);
        (waiting, moved.unwrap())
    });
    assert!(!moved.is_costly());
    let offset = offsets(moved)[0];
    assert_eq!(count_before(waiting, offset), 0);
    store.close().unwrap();
}

#[test]
fn a_group_step_waits_for_the_start_of_its_topic() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let setup = GroupSetup::new(GroupMode::Exclusive);
    let (start, opened) = while_held(&disk, &store, || {
        let start = propose_start(&store, "new", false, b"cheap");
        let operation = Operation::Cursor {
            group: "g",
            step: GroupStep::Open(setup),
        };
        let opened = store.propose(&[Intention::new("new", operation)]);
        (start, opened.unwrap())
    });
    wait_valid(start);
    wait_valid(opened);
    store.close().unwrap();
}

#[test]
fn a_call_with_a_failed_part_is_not_executed_further() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let before = store.applied().0;
    let many = vec![put("slow", b"k", b"loop"); 20];
    let full = disk.clone();
    disk.wait_sealed();
    disk.observe(move |op, path| {
        if op == Op::Sync && path.starts_with("log/") {
            full.rule(Op::Write, "log/", Rule::Fail(ENOSPC));
        }
    });
    let failed = store.propose(&many).unwrap().wait();
    assert!(failed.is_err(), "{failed:?}");
    disk.observe(|_, _| {});
    disk.release();
    assert_eq!(store.applied().0, before + 1, "only the first part");
}

#[test]
fn a_call_for_several_topics_is_executed_in_its_order() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    measure_costs(&store);
    let (call, _waiting) = while_held(&disk, &store, || {
        // `slow` has waiting calls, `slower` has none.
        let waiting: Vec<_> = (0..200).map(|_| send(&store, "slow", "costly")).collect();
        let mut many = vec![put("slow", b"k", b"costly"); 20];
        many.extend(vec![put("slower", b"k", b"costly"); 20]);
        (store.propose(&many).unwrap(), waiting)
    });
    let all = offsets(call);
    let newest = |topic| records(&store, topic).last().map(|record| record.intention);
    assert_eq!(all.len(), 40);
    assert_eq!(newest("slow"), all.get(19).copied(), "{all:?}");
    assert_eq!(newest("slower"), all.last().copied(), "{all:?}");
    assert!(all.is_sorted(), "{all:?}");
    store.close().unwrap();
}

/// Executes calls, so that the queue estimates the fuel of the costly topics.
fn measure_costs(store: &Store) {
    for topic in ["slow", "slower"] {
        for _ in 0..4 {
            execute(store, &vec![put(topic, b"k", b"costly"); 100]);
        }
        // A small charge to the topic before the test begins.
        execute(store, &[put(topic, b"k", b"costly")]);
    }
}

/// Proposes a call of two batches, and a call for `slower`, which shares a sync with the
/// second batch. Both write `value`. Calls `inject` when the first batch is in the log.
fn fail_second_batch(
    disk: &DiskGate,
    store: &Store,
    value: &[u8],
    inject: impl FnOnce() + Send + 'static,
) -> (StoreError, StoreError) {
    measure_costs(store);
    disk.wait_sealed();
    let (mut syncs, mut inject) = (0, Some(inject));
    disk.observe(move |op, path| {
        syncs += u32::from(op == Op::Sync && path.starts_with("log/"));
        if syncs == 2
            && let Some(inject) = inject.take()
        {
            inject();
        }
    });
    let before = store.applied().0;
    let (call, other) = while_held(disk, store, || {
        let mut many = vec![put("slow", b"k", b"costly"); 20];
        many.push(put("slow", b"k", value));
        let call = store.propose(&many).unwrap();
        let other = store.propose(&[put("slower", b"k", value)]).unwrap();
        (call, other)
    });
    let (call, other) = (call.wait().unwrap_err(), other.wait().unwrap_err());
    disk.observe(|_, _| {});
    disk.release();
    let first = 1 + 20;
    assert_eq!(
        store.applied().0,
        before + first,
        "the first batch of the call"
    );
    (call, other)
}

#[test]
fn a_partly_logged_call_is_in_doubt_after_a_failed_write() {
    let mut world = World::new();
    world.options.log_segment_bytes = 1 << 20;
    let (disk, store) = world.start_gated();
    let failing = disk.clone();
    let (call, other) = fail_second_batch(&disk, &store, b"costly", move || {
        failing.rule(Op::Write, "log/", Rule::Fail(EIO));
    });
    assert_eq!(other.code(), ErrorCode::Indeterminate, "{other}");
    assert_eq!(call.code(), ErrorCode::Indeterminate, "{call}");
}

#[test]
fn a_partly_logged_call_is_in_doubt_on_a_full_disk() {
    let world = World::new();
    let sim = SimDisk::new();
    let disk = DiskGate::new(sim.clone());
    let store = Store::open_disk(disk.disk(), &world.options).unwrap();
    fill(&store);
    // The second batch needs a new log segment.
    let value = vec![7; 64 << 10];
    let full = sim.clone();
    let (call, other) = fail_second_batch(&disk, &store, &value, move || full.set_capacity(0));
    assert_eq!(other.code(), ErrorCode::DiskFull, "{other}");
    assert_eq!(call.code(), ErrorCode::Indeterminate, "{call}");
    assert!(store.poison_cause().is_none());
    sim.set_capacity(u64::MAX);
    wait_valid(send(&store, "plain", "again"));
    store.close().unwrap();
}

#[test]
fn the_estimate_before_a_call_equals_the_lane_of_the_call() {
    let world = World::new();
    let (disk, store) = world.start_gated();
    let estimate = |intention: Intention<'_>| {
        let estimated = store.is_costly(&[intention]);
        let proposal = store.propose(&[intention]).unwrap();
        assert_eq!(proposal.is_costly(), estimated);
        (estimated, proposal)
    };
    let session = |topic, nonce, value| Intention {
        client: CLIENT,
        nonce,
        ..put(topic, b"k", value)
    };
    let sent = while_held(&disk, &store, || {
        [
            (estimate(put("plain", b"k", b"v")), false),
            (estimate(session("slow", 1, b"costly")), true),
            (estimate(put("plain", b"k", b"v")), false),
            (estimate(session("plain", 2, b"v")), true),
            // It must not overtake the previous call.
            (estimate(put("plain", b"k", b"v")), true),
        ]
    });
    for ((estimated, proposal), expected) in sent {
        assert_eq!(estimated, expected);
        wait_valid(proposal);
    }
    store.close().unwrap();
}

/// Opens a node that leads if something is proposed to it.
fn open_node(options: &OpenOptions) -> (Store, Replica) {
    let provider = Arc::new(SingleNode::default());
    let disk = Arc::new(SimDisk::new());
    let opened = Store::open_node_disk(disk, options, &node(), Arc::clone(&provider) as _);
    let (store, replica) = opened.unwrap();
    provider.follow(&replica);
    (store, replica)
}

#[test]
fn a_node_that_did_not_lead_knows_which_topics_have_programs() {
    let world = World::new();
    let (leader, sender) = open_node(&world.options);
    let (follower, receiver) = open_node(&world.options);
    fill(&leader);
    // Now without a program.
    execute(&leader, &[Intention::new("slower", Operation::Destroy)]);
    create(&leader, "slower");
    let last = sender.log_state().last.unwrap().index;
    let entries = sender.reader().read(LogIndex(1), last, usize::MAX);
    for entry in entries.unwrap() {
        append(&receiver, vec![entry.clone()]).unwrap();
        receiver.apply(entry).unwrap();
    }
    for store in [leader, follower] {
        let is_costly = |topic| store.is_costly(&[put(topic, b"k", b"costly")]);
        assert_eq!(
            ["slow", "slower", "plain"].map(is_costly),
            [true, false, false]
        );
        store.close().unwrap();
    }
}

#[test]
fn a_close_completes_logged_calls_and_refuses_waiting_ones() {
    let mut world = World::new();
    world.options.cursor_flush = Duration::ZERO;
    let store = world.start();
    let slow = create_group(&store, "slow");
    let held = send(&store, "slow", "hold");
    world.gate.await_calls(1);
    let waiting: Vec<_> = (0..2).map(|_| send(&store, "slower", "hold")).collect();
    store
        .move_cursor("slow", "g", slow, ConsequenceOffset(2))
        .unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| store.close());
        let refused: Vec<_> = waiting
            .into_iter()
            .map(|waiting| waiting.wait_for(PATIENCE))
            .collect();
        world.gate.open();
        for refused in refused {
            let refused = refused.expect("the close does not wait for the call");
            assert!(matches!(refused, Err(StoreError::Closed)));
        }
        wait_valid(held);
        closing.join().unwrap().unwrap();
    });
    let executed = world.gate.state.lock().unwrap().arrived;
    assert_eq!(executed, 1, "the others were not executed");
    let store = world.open();
    assert_eq!(
        store.group("slow", "g").unwrap().cursor.0,
        2,
        "the close wrote the cursor"
    );
    store.close().unwrap();
}

#[test]
fn a_close_completes_a_started_call() {
    let world = World::new();
    let store = world.start();
    let mut many = vec![put("slow", b"k", b"costly"); 50];
    many[0] = put("slow", b"k", b"hold");
    let call = store.propose(&many).unwrap();
    world.gate.await_calls(1);
    let waiting = send(&store, "slower", "costly");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| store.close());
        assert!(matches!(waiting.wait(), Err(StoreError::Closed)));
        world.gate.open();
        assert_eq!(offsets(call).len(), 50);
        closing.join().unwrap().unwrap();
    });
}

#[test]
fn a_program_that_panics_poisons_the_store() {
    let world = World::new();
    let store = world.start();
    let panicked = send(&store, "slow", "panic");
    assert!(panicked.wait().is_err());
    let refused = store.propose(&[put("plain", b"k", b"v")]);
    let refused = refused.and_then(Proposal::wait);
    assert!(matches!(refused, Err(StoreError::Poisoned { .. })));
}

/// Waits for the call; its effects may be any.
fn wait_executed(proposal: Proposal) {
    let outcomes = proposal.wait().unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.commit().is_some()));
}

#[test]
fn a_replay_of_mixed_writers_gives_an_equal_digest() {
    let world = World::new();
    let store = world.start();
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                let mut draw = SplitMix(u64::from(writer));
                let mut sent = VecDeque::new();
                for nonce in 1..=600 {
                    let topic = ["slow", "slower", "plain", "more"][draw.below(4) as usize];
                    // Most calls are cheap, so that some topics are wrongly estimated as
                    // cheap.
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
                        wait_executed(sent.pop_front().unwrap());
                    }
                }
                sent.into_iter().for_each(wait_executed);
            });
        }
    });
    let digest = store.digest();
    store.close().unwrap();
    assert_eq!(world.reopen_digest(), digest);
}

#[test]
fn a_large_batch_is_applied_while_the_next_one_is_synced() {
    let world = World::new();
    let disk = DiskGate::new(SimDisk::new());
    let store = Store::open_disk(disk.disk(), &world.options).unwrap();
    let options = TopicOptions::default();
    let operation = Operation::CreateProgram {
        options: &options,
        code: b"code",
        args: b"",
    };
    execute(&store, &[Intention::new("fresh", operation)]);
    let mut many = vec![put("fresh", b"k", b"cheap"); 1000];
    while store.is_costly(&many) {
        execute(&store, &[put("fresh", b"k", b"cheap")]);
    }
    disk.rule(Op::Sync, "log/", Rule::Hold);
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
    // The program still runs in the first batch, and both batches are synced.
    for _ in 0..2 {
        syncs.recv_timeout(PATIENCE).unwrap();
    }
    assert!(!first.is_done() && !second.is_done());
    world.gate.open();
    wait_valid(first);
    wait_valid(second);
}
