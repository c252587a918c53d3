//! The number of intentions that an open replays after programs used much fuel.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use weir_core::call_context::{CallContext, Image};
use weir_core::intention::{Intention, Operation};
use weir_core::program::{Decision, Entry, Trap};
use weir_core::{
    CodeHash, Effect, Facts, Program, ProgramHost, Refusal, Setup, StateMode, TopicOptions,
};
use weir_store::disk::{Disk, SimDisk};
use weir_store::replica::Replica;
use weir_store::{LogIndex, OnProgress, OpenOptions, Store, StoreError};

use crate::disks::PATIENCE;
use crate::replica::{SingleNode, append, node};
use crate::world::{create, execute, options, put};

/// Fuel used by each call.
const CALL_FUEL: u64 = 1_000_000_000;
/// Fuel after which a snapshot is due.
const SNAPSHOT_FUEL: u64 = 10 * CALL_FUEL;

/// A program that accepts each write and uses much fuel.
#[derive(Debug)]
pub struct ExpensiveProgram;

impl ProgramHost for ExpensiveProgram {
    fn hash(&self, code: &[u8]) -> CodeHash {
        let mut hash = CodeHash([0; 32]);
        hash.0[..code.len()].copy_from_slice(code);
        hash
    }

    fn admit(&self, _: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        Ok(Box::new(Self))
    }

    fn fingerprint(&self) -> String {
        "expensive".to_owned()
    }
}

impl Program for ExpensiveProgram {
    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn fits(&self, _: &Setup) -> Result<(), String> {
        Ok(())
    }

    fn accepts(&self, _: &Image) -> bool {
        true
    }

    fn judge(
        &mut self,
        _: Entry,
        _: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap> {
        context.consume_fuel(CALL_FUEL);
        context.emit_input(|_| Ok(())).unwrap();
        Ok(Decision::Accept)
    }

    fn end_intention(&mut self, _: bool, _: &mut CallContext) {}

    fn fork(&self) -> Box<dyn Program> {
        Box::new(Self)
    }
}

fn with_expensive_program() -> OpenOptions {
    OpenOptions {
        host: Some(Arc::new(ExpensiveProgram)),
        ..options()
    }
}

/// Microseconds to compile a module of a [`Compiler`].
const COMPILE_US: u64 = 2_700_000;

/// A host of modules whose facts report seconds of compile time. While it is armed, a call
/// waits until a module of `later` is compiled.
#[derive(Clone, Debug, Default)]
struct Compiler(Arc<(Mutex<Compiled>, Condvar)>);

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "four independent switches")]
struct Compiled {
    codes: Vec<Vec<u8>>,
    /// Modules that were restored and are not compiled.
    later: Vec<Vec<u8>>,
    /// The store is open: restored modules may be compiled.
    is_open: bool,
    is_armed: bool,
    /// Compiling takes no time, so no snapshot is due.
    is_quick: bool,
    waited: bool,
}

impl ProgramHost for Compiler {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash([code[0]; 32])
    }

    fn admit(&self, code: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        self.0.0.lock().unwrap().codes.push(code.to_vec());
        self.0.1.notify_all();
        Ok(Box::new(self.clone()))
    }

    fn restore(&self, code: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        self.0.0.lock().unwrap().later.push(code.to_vec());
        Ok(Box::new(self.clone()))
    }

    fn compile_restored(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, PATIENCE, |state| !state.is_open);
        let (mut state, late) = waited.unwrap();
        assert!(!late.timed_out(), "the store was not opened");
        let wanted = |code: &Vec<u8>| Some(self.hash(code)) == first;
        let position = state.later.iter().position(wanted);
        let position = position.or(state.later.len().checked_sub(1))?;
        let code = state.later.remove(position);
        let hash = self.hash(&code);
        state.codes.push(code);
        changed.notify_all();
        Some(hash)
    }

    fn is_deferred(&self, code: CodeHash) -> bool {
        let state = self.0.0.lock().unwrap();
        state.later.iter().any(|later| self.hash(later) == code)
    }

    fn fingerprint(&self) -> String {
        "compiler".to_owned()
    }
}

impl Program for Compiler {
    fn facts(&self) -> Facts {
        Facts {
            compile_us: if self.0.0.lock().unwrap().is_quick {
                0
            } else {
                COMPILE_US
            },
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
        _: Entry,
        _: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        if state.is_armed {
            let missing = |state: &mut Compiled| !state.codes.iter().any(|code| code == b"later");
            let waited = changed.wait_timeout_while(state, PATIENCE, missing);
            let (found, late) = waited.unwrap();
            assert!(!late.timed_out(), "the later module was not compiled ahead");
            state = found;
            state.waited = true;
        }
        drop(state);
        context.consume_fuel(1);
        context.emit_input(|_| Ok(())).unwrap();
        Ok(Decision::Accept)
    }

    fn end_intention(&mut self, _: bool, _: &mut CallContext) {}

    fn fork(&self) -> Box<dyn Program> {
        Box::new(self.clone())
    }
}

impl Compiler {
    fn options(&self) -> OpenOptions {
        OpenOptions {
            host: Some(Arc::new(self.clone())),
            ..options()
        }
    }

    fn open(&self, disk: &SimDisk) -> Store {
        Store::open_disk(Arc::new(disk.clone()), &self.options()).unwrap()
    }

    /// Opens a node of a cluster on a new disk.
    fn node(&self) -> (Store, Replica) {
        let (disk, provider) = (Arc::new(SimDisk::new()), Arc::new(SingleNode::default()));
        let log = Arc::clone(&provider) as _;
        let made = Store::open_node_disk(disk, &self.options(), &node(), log).unwrap();
        provider.follow(&made.1);
        made
    }
}

/// Creates a topic with a module.
fn deploy(store: &Store, topic: &str, code: &[u8]) -> Effect {
    let mut options = TopicOptions::default();
    options.program.state = StateMode::None;
    let operation = Operation::CreateProgram {
        options: &options,
        code,
        args: b"",
    };
    execute(store, &[Intention::new(topic, operation)])[0].effect
}

fn open(disk: &SimDisk) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_disk(disk, &with_expensive_program()).unwrap()
}

fn write(store: &Store) {
    let done = execute(store, &[put("t", b"k", b"v")]);
    assert_eq!(done[0].effect, Effect::Valid);
    assert_eq!(done[0].fuel, CALL_FUEL);
}

/// Creates a topic with an expensive program and executes `calls` calls.
fn run_expensive(store: &Store, calls: u64) {
    let mut topic = TopicOptions::default();
    topic.program.state = StateMode::None;
    let operation = Operation::CreateProgram {
        options: &topic,
        code: b"code",
        args: b"",
    };
    execute(store, &[Intention::new("t", operation)]);
    for _ in 0..calls {
        write(store);
    }
}

#[test]
fn no_expensive_call_is_replayed_after_a_close() {
    let disk = SimDisk::new();
    let store = open(&disk);
    run_expensive(&store, 10);
    let digest = store.digest();
    store.close().unwrap();
    let store = open(&disk);
    let report = store.report();
    assert_eq!((report.replayed_intentions, report.replayed_fuel), (0, 0));
    assert_eq!(store.digest(), digest);
    // After a run without calls, the next open replays nothing either.
    store.close().unwrap();
    let store = open(&disk);
    assert_eq!(store.report().replayed_intentions, 0);
    store.close().unwrap();
}

#[test]
fn a_close_after_cheap_calls_writes_no_snapshot() {
    let disk = SimDisk::new();
    let store = open(&disk);
    create(&store, "plain");
    execute(&store, &[put("plain", b"k", b"v")]);
    store.close().unwrap();
    let store = open(&disk);
    assert_eq!(store.report().snapshot, None);
    assert_eq!(store.report().replayed_intentions, 2);
    store.close().unwrap();
}

#[test]
fn the_fuel_of_a_replay_after_a_kill_is_bounded() {
    let disk = SimDisk::new();
    let store = open(&disk);
    run_expensive(&store, 0);
    let mut snapshots = 0;
    for n in 1..=40_u64 {
        write(&store);
        if n % 11 == 0 {
            // The write that exceeded the bound has started a snapshot.
            snapshots += 1;
            while store.stats().snapshots < snapshots {
                std::thread::yield_now();
            }
        }
        let killed = open(&disk.killed());
        let fuel = killed.report().replayed_fuel;
        assert!(fuel <= SNAPSHOT_FUEL + CALL_FUEL, "after {n}: {fuel}");
        assert_eq!(killed.digest(), store.digest());
    }
    store.close().unwrap();
}

#[test]
fn no_module_is_compiled_by_a_replay_after_a_close() {
    let disk = SimDisk::new();
    let store = Compiler::default().open(&disk);
    for n in 0..10 {
        let effect = deploy(&store, &format!("t{n}"), &[n; 4]);
        assert_eq!(effect, Effect::Valid);
    }
    store.close().unwrap();
    let compiler = Compiler::default();
    let store = compiler.open(&disk);
    assert_eq!(store.report().replayed_intentions, 0);
    // The open has compiled no module; a thread compiles them now.
    let (state, changed) = &*compiler.0;
    let mut state = state.lock().unwrap();
    assert_eq!((state.codes.len(), state.later.len()), (0, 10));
    state.is_open = true;
    changed.notify_all();
    let waited = changed.wait_timeout_while(state, PATIENCE, |state| state.codes.len() < 10);
    assert!(
        !waited.unwrap().1.timed_out(),
        "not all modules were compiled"
    );
    // A module that was compiled before takes the same compile time in the next process.
    let again = deploy(&store, "again", &[0; 4]);
    assert_eq!(again, Effect::Valid);
    store.close().unwrap();
    let store = Compiler::default().open(&disk);
    assert_eq!(store.report().replayed_intentions, 0);
    store.close().unwrap();
}

/// A store with `modules` topics, each with its own module, and a plain topic. It was
/// opened from a snapshot by a host that has compiled no module yet.
fn with_restored(modules: u8) -> (Compiler, Store) {
    let disk = SimDisk::new();
    let store = Compiler::default().open(&disk);
    create(&store, "plain");
    for n in 0..modules {
        deploy(&store, &format!("t{n}"), &[n; 4]);
    }
    store.close().unwrap();
    let compiler = Compiler::default();
    let store = compiler.open(&disk);
    assert_eq!(store.report().replayed_intentions, 0);
    (compiler, store)
}

#[test]
fn only_calls_of_a_module_wait_for_its_compilation() {
    let (compiler, store) = with_restored(10);
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(store.propose(&[put("t3", b"k", b"v")]).unwrap());
    }
    let done = execute(&store, &[put("plain", b"k", b"v")]);
    assert_eq!(done[0].effect, Effect::Valid);
    assert_eq!(deploy(&store, "new", b"new"), Effect::Valid);
    let done = execute(&store, &[put("new", b"k", b"v")]);
    assert_eq!(done[0].effect, Effect::Valid);
    calls = calls
        .into_iter()
        .map(|call| {
            call.wait_for(Duration::ZERO)
                .expect_err("the module is not compiled")
        })
        .collect();
    let (state, changed) = &*compiler.0;
    state.lock().unwrap().is_open = true;
    changed.notify_all();
    for call in calls {
        let done = call.wait().unwrap();
        let effect = done
            .iter()
            .next()
            .and_then(|one| Some(one.commit()?.effect));
        assert_eq!(effect, Some(Effect::Valid));
    }
    // The module whose compilation began before the calls, then the modules of the calls.
    let codes = state.lock().unwrap().codes.clone();
    let restored: Vec<_> = codes.iter().filter(|code| *code != b"new").collect();
    let position = restored.iter().position(|code| **code == [3; 4]);
    assert!(position.unwrap() <= 1, "{codes:?}");
    store.close().unwrap();
}

#[test]
fn a_close_refuses_calls_that_wait_for_their_modules() {
    let (compiler, store) = with_restored(2);
    let call = store.propose(&[put("t1", b"k", b"v")]).unwrap();
    store.close().unwrap();
    assert!(matches!(call.wait(), Err(StoreError::Closed)));
    let (state, changed) = &*compiler.0;
    state.lock().unwrap().is_open = true;
    changed.notify_all();
}

#[test]
fn another_node_compiles_a_module_before_it_is_committed() {
    let code = b"\0asm\x01\0\0\0, the rest of a module";
    let (store, leader) = Compiler::default().node();
    assert_eq!(deploy(&store, "t", code), Effect::Valid);
    let first = LogIndex(1);
    let entries = leader.reader().read(first, first, 1).unwrap();
    let compiler = Compiler::default();
    let (other, follower) = compiler.node();
    append(&follower, entries).unwrap();
    let (state, changed) = &*compiler.0;
    let missing = |state: &mut Compiled| !state.codes.iter().any(|one| one == code);
    let waited = changed.wait_timeout_while(state.lock().unwrap(), PATIENCE, missing);
    assert!(
        !waited.unwrap().1.timed_out(),
        "the module was not compiled before the apply"
    );
    assert_eq!(follower.applied().last, None);
    store.close().unwrap();
    other.close().unwrap();
}

#[test]
fn the_compilations_of_a_replay_after_a_kill_are_bounded() {
    let disk = SimDisk::new();
    let store = Compiler::default().open(&disk);
    let mut snapshots = 0;
    for n in 0..10_u8 {
        deploy(&store, &format!("t{n}"), &[n; 4]);
        if n % 2 == 1 {
            // Two modules take more than three seconds.
            snapshots += 1;
            let until = Instant::now() + PATIENCE;
            while store.stats().snapshots < snapshots {
                assert!(Instant::now() < until, "no snapshot after {n}");
                std::thread::yield_now();
            }
        }
        let killed = Compiler::default().open(&disk.killed());
        let replayed = killed.report().replayed_intentions;
        assert!(replayed <= 2, "after {n}: {replayed}");
        assert_eq!(killed.digest(), store.digest());
    }
    store.close().unwrap();
}

#[test]
fn a_replay_compiles_modules_ahead_of_their_apply() {
    let disk = SimDisk::new();
    let quick = Compiler::default();
    quick.0.0.lock().unwrap().is_quick = true;
    let store = quick.open(&disk);
    deploy(&store, "first", b"first");
    execute(&store, &[put("first", b"k", b"v")]);
    deploy(&store, "later", b"later");
    let digest = store.digest();
    let killed = disk.killed();
    store.close().unwrap();
    let compiler = Compiler::default();
    compiler.0.0.lock().unwrap().is_armed = true;
    let store = compiler.open(&killed);
    assert_eq!(store.digest(), digest);
    assert!(compiler.0.0.lock().unwrap().waited, "the call was replayed");
    store.close().unwrap();
}

#[test]
fn an_open_reports_its_progress() {
    let disk = SimDisk::new();
    let store = open(&disk);
    create(&store, "plain");
    for _ in 0..9 {
        execute(&store, &[put("plain", b"k", b"v")]);
    }
    store.close().unwrap();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&reports);
    let options = OpenOptions {
        on_progress: Some(OnProgress::new(move |progress| {
            list.lock()
                .unwrap()
                .push((progress.entries_done, progress.entries));
            assert_eq!(progress.percent(), progress.entries_done * 10);
        })),
        ..with_expensive_program()
    };
    let again: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_disk(again, &options).unwrap().close().unwrap();
    let expected: Vec<_> = (0..=10).map(|done| (done, 10)).collect();
    assert_eq!(*reports.lock().unwrap(), expected);
}
