//! Programs in a store on disk: when modules are compiled, and the parity script. The process is
//! killed between any two steps of that script, and every step is sent twice.

use std::path::Path;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::{
    ClientId, Commit, Detail, ErrorCode, Outcome, ProgramHost, StateMode, TopicOptions,
};
use weir_program::WasmtimeHost;
use weir_store::{OpenOptions, Store, verify_with};

use crate::world::module;

fn open(dir: &Path, host: &Arc<WasmtimeHost>) -> Store {
    let options = OpenOptions {
        host: Some(Arc::clone(host) as Arc<dyn ProgramHost>),
        ..OpenOptions::default()
    };
    Store::open(dir, &options).unwrap()
}

/// The directory that a killed process leaves: it contains every acknowledged write, and was not
/// closed.
fn killed(store: Store, dir: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &to);
            } else if entry.file_name() != "LOCK" {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    let left = tempfile::tempdir().unwrap();
    copy(dir, left.path());
    drop(store);
    left
}

struct Step {
    topic: &'static str,
    what: What,
}

enum What {
    Create(Option<Vec<u8>>, Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Destroy,
}

fn prebuilt(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt");
    std::fs::read(folder.join(format!("{name}.wasm"))).unwrap()
}

fn id(n: u8) -> Vec<u8> {
    [&[n][..], &[0; 31]].concat()
}

/// Destination, offset seen, amount, and the claimed balances.
fn transfer(to: u8, amount: i32, source: i32, destination: i32) -> Vec<u8> {
    let numbers = [amount, source, destination].map(i32::to_be_bytes).concat();
    [&id(to)[..], &[0; 8], &numbers].concat()
}

/// The steps, and for each the reason, the code of the program, the first record and the number of
/// records.
fn parity() -> Vec<(Step, Option<ErrorCode>, u16, u64, u32)> {
    use ErrorCode as E;
    use What::{Create, Delete, Destroy, Put};
    let on = |topic, what| Step { topic, what };
    let rejected = Some(E::Rejected);
    let put = || Put(id(1), id(2));
    vec![
        (
            on("bal", Create(Some(prebuilt("balance-cas")), vec![0, 4])),
            None,
            0,
            1,
            1,
        ),
        (
            on("bal", Create(None, Vec::new())),
            Some(E::TopicExists),
            0,
            0,
            0,
        ),
        (on("nope", put()), Some(E::NoTopic), 0, 0, 0),
        (on("nope", Destroy), Some(E::TopicAbsent), 0, 0, 0),
        (
            on("bal", Put(id(5), transfer(6, 1000, 1000, 0))),
            rejected,
            4,
            0,
            0,
        ),
        (on("bal", Put(id(0), transfer(7, 100, 0, 0))), None, 0, 2, 2),
        (
            on("bal", Put(id(7), transfer(6, -50, 0, 0))),
            rejected,
            2,
            0,
            0,
        ),
        (
            on("bal", Put(id(7), transfer(7, 10, 0, 100_000))),
            rejected,
            3,
            0,
            0,
        ),
        (
            on("bal", Put(id(6), transfer(7, 999_999, 0, 0))),
            rejected,
            6,
            0,
            0,
        ),
        (on("bal", Delete(id(6))), rejected, 1, 0, 0),
        (
            on("even", Create(Some(prebuilt("even")), Vec::new())),
            None,
            0,
            1,
            1,
        ),
        (on("even", put()), None, 0, 2, 1),
        (on("even", put()), rejected, 1, 0, 0),
        (on("even", put()), None, 0, 3, 1),
        (on("even", put()), rejected, 1, 0, 0),
        (
            on("nothing", Create(Some(prebuilt("nothing")), Vec::new())),
            None,
            0,
            1,
            1,
        ),
        (on("nothing", put()), None, 0, 0, 0),
        (
            on("simple", Create(Some(prebuilt("deployment")), id(9))),
            None,
            0,
            1,
            2,
        ),
        (on("simple", put()), None, 0, 3, 1),
        (
            on("bad", Create(Some(vec![1, 2, 3]), Vec::new())),
            Some(E::BadProgram),
            0,
            0,
            0,
        ),
        (on("simple", Destroy), None, 0, 4, 1),
        (on("simple", Create(None, Vec::new())), None, 0, 5, 1),
    ]
}

fn send(store: &Store, step: &Step, nonce: u64) -> Outcome {
    let options = TopicOptions::default();
    let operation = match &step.what {
        What::Create(None, _) => Operation::Create { options: &options },
        What::Create(Some(code), args) => Operation::CreateProgram {
            options: &options,
            code,
            args,
        },
        What::Put(key, value) => Operation::Put { key, value },
        What::Delete(key) => Operation::Delete { key },
        What::Destroy => Operation::Destroy,
    };
    let intention = Intention::new(step.topic, operation).under(ClientId([3; 16]), nonce);
    let outcomes = store.propose(&[intention]).unwrap().wait().unwrap();
    outcomes.iter().next().unwrap()
}

#[test]
fn the_parity_script_survives_a_kill_between_any_two_steps() {
    let host = Arc::new(WasmtimeHost::default());
    let mut dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), &host);
    let mut digest = None;
    for (number, (step, reason, code, first, records)) in parity().into_iter().enumerate() {
        let nonce = number as u64 + 1;
        let outcome = send(&store, &step, nonce);
        let Outcome::Committed(commit) = outcome else {
            panic!("step {nonce}: {outcome:?}");
        };
        assert_eq!(commit.intention.0, nonce);
        assert_eq!(
            (commit.reason, commit.first.0, commit.records),
            (reason, first, records),
            "step {nonce}"
        );
        if let Detail::Rejected { code: found, .. } = commit.detail {
            assert_eq!(found, code, "step {nonce}");
        }
        if number == 10 {
            store.checkpoint().unwrap();
        }
        let left = killed(store, dir.path());
        store = open(left.path(), &host);
        dir = left;
        // A resent step gets its stored verdict and changes nothing.
        let again = send(&store, &step, nonce);
        let kept = Commit { fuel: 0, ..commit };
        assert_eq!(again, Outcome::Replayed(kept), "step {nonce}");
        assert_eq!(store.applied().0, nonce, "step {nonce}");
        digest = Some(store.digest());
    }
    store.close().unwrap();
    let report = verify_with(
        dir.path(),
        Some(&(host as Arc<dyn ProgramHost>)),
        &mut |_| {},
    )
    .unwrap();
    assert!(report.is_clean() && report.digest == digest, "{report:?}");
}

/// P1: a rejection that needs the compiler is found on receipt too.
#[test]
fn rejected_modules_are_compiled_when_they_are_received() {
    let host = Arc::new(WasmtimeHost::default());
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &host);
    let count = weir_program::limits::REFUSED_MODULES_MAX + 1;
    let computed = "(result i32) (i32.add (i32.const 1) (i32.const 1)))";
    let numbered = |n: usize| {
        let parts = format!("(global i32 (i32.const {n}))");
        let wat = module("", &parts, "i32.const 0");
        wat::parse_str(wat.replace("(result i32) i32.const 1)", computed)).unwrap()
    };
    let codes: Vec<Vec<u8>> = (0..count).map(numbered).collect();
    let options = TopicOptions::default();
    let creates: Vec<Intention<'_>> = codes
        .iter()
        .map(|code| {
            let create = Operation::CreateProgram {
                options: &options,
                code,
                args: b"",
            };
            Intention::new("t", create)
        })
        .collect();
    let outcomes = store.propose(&creates).unwrap().wait().unwrap();
    let bad = Some(ErrorCode::BadProgram);
    let mut reasons = outcomes
        .iter()
        .map(|outcome| outcome.commit().unwrap().reason);
    assert!(reasons.all(|reason| reason == bad));
    assert_eq!(host.compiled(), count as u64);
}

/// P1: a module is compiled once, on receipt, for any number of modules in a call. The commit
/// thread never compiles.
#[test]
fn modules_are_compiled_when_they_are_received() {
    let host = Arc::new(WasmtimeHost::default());
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &host);
    let count = 2 * weir_program::limits::IDLE_MODULES_MAX;
    let numbered = |n: usize| {
        let parts = format!("(global i32 (i32.const {n}))");
        wat::parse_str(module(
            "emit_input",
            &parts,
            "(call $emit_input) i32.const 0",
        ))
        .unwrap()
    };
    let codes: Vec<Vec<u8>> = (0..count).map(numbered).collect();
    let names: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
    let options = TopicOptions::default();
    let creates: Vec<Intention<'_>> = names
        .iter()
        .zip(&codes)
        .map(|(name, code)| {
            let create = Operation::CreateProgram {
                options: &options,
                code,
                args: b"",
            };
            Intention::new(name, create)
        })
        .collect();
    let valid = |intentions: &[Intention<'_>]| {
        let outcomes = store.propose(intentions).unwrap().wait().unwrap();
        outcomes
            .iter()
            .filter(|outcome| outcome.commit().unwrap().reason.is_none())
            .count()
    };
    assert_eq!(valid(&creates), count);
    assert_eq!(host.compiled(), count as u64);
    // The module is not compiled again for other topics and incarnations.
    let more = [
        Intention::new("again", creates[0].operation),
        Intention::new("t0", Operation::Destroy),
        Intention::new("t0", creates[0].operation),
    ];
    assert_eq!(valid(&more), 3);
    assert_eq!(host.compiled(), count as u64);
    let put = Operation::Put {
        key: b"k",
        value: b"v",
    };
    assert_eq!(
        valid(&[Intention::new("t5", put), Intention::new("again", put)]),
        2
    );
    assert_eq!(host.compiled(), count as u64);
    // A module that is rejected only after its first call is checked once.
    let other = module("", "", "i32.const 0")
        .replace("(result i32) i32.const 1)", "(result i32) i32.const 7)");
    let other = wat::parse_str(other).unwrap();
    let bad = Operation::CreateProgram {
        options: &options,
        code: &other,
        args: b"",
    };
    assert_eq!(
        valid(&[Intention::new("bad", bad), Intention::new("bad", bad)]),
        0
    );
    assert_eq!(host.compiled(), count as u64 + 1);
    store.close().unwrap();
}

/// P8: a quarantine is part of the state.
#[test]
fn a_quarantine_survives_a_kill_and_a_checkpoint() {
    let host = Arc::new(WasmtimeHost::default());
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &host);
    let mut options = TopicOptions::default();
    options.program.state = StateMode::Kv;
    let code = prebuilt("vanilla");
    let say = |store: &Store, operation: Operation<'_>| {
        let outcomes = store
            .propose(&[Intention::new("t", operation)])
            .unwrap()
            .wait()
            .unwrap();
        outcomes.iter().next().unwrap().commit().unwrap().reason
    };
    let put = Operation::Put {
        key: b"k",
        value: b"v",
    };
    assert_eq!(
        say(
            &store,
            Operation::CreateProgram {
                options: &options,
                code: &code,
                args: b""
            }
        ),
        None
    );
    assert_eq!(say(&store, Operation::Quarantine { stopped: true }), None);
    assert_eq!(say(&store, put), Some(ErrorCode::Quarantined));
    store.checkpoint().unwrap();
    let left = killed(store, dir.path());
    let store = open(left.path(), &host);
    assert_eq!(say(&store, put), Some(ErrorCode::Quarantined));
    assert_eq!(
        say(
            &store,
            Operation::Replace {
                expected: Some(host.hash(&code)),
                code: &code,
                args: b""
            }
        ),
        None
    );
    assert_eq!(say(&store, put), None);
    store.close().unwrap();
}
