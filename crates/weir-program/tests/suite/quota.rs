//! The memory of the state of programs has a limit for the store and one for each principal. Beyond
//! a limit, the reason is QUOTA; DESTROY releases the memory.

use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::limits::{MEMORY_BYTES_MAX, PRINCIPAL_STATES_BYTES_MAX, STATES_BYTES_MAX};
use weir_core::{Detail, ErrorCode, Machine, ProgramHost, StateMode, TopicOptions};
use weir_program::WasmtimeHost;

use crate::world::{Life, module};

/// The reason of the verdict on an intention.
fn said(life: &mut Life, topic: &str, by: &str, operation: Operation<'_>) -> Option<ErrorCode> {
    let mut intention = Intention::new(topic, operation);
    intention.principal = by.as_bytes();
    let outcome = life.send(&intention).unwrap();
    let commit = outcome.commit().unwrap();
    if commit.reason == Some(ErrorCode::Quota) {
        let cap = |max| commit.detail == Detail::Limit(max);
        assert!(
            cap(STATES_BYTES_MAX) || cap(PRINCIPAL_STATES_BYTES_MAX),
            "{commit:?}"
        );
    }
    commit.reason
}

fn create(
    life: &mut Life,
    topic: &str,
    by: &str,
    mode: StateMode,
    code: &[u8],
) -> Option<ErrorCode> {
    let mut options = TopicOptions::default();
    options.program.memory_bytes_max = Some(MEMORY_BYTES_MAX);
    options.program.fuel_max = Some(10_000_000);
    options.program.state = mode;
    let options = &options;
    let args = b"";
    said(
        life,
        topic,
        by,
        Operation::CreateProgram {
            options,
            code,
            args,
        },
    )
}

/// A program whose memory may grow to the largest size that options allow.
fn wide() -> Vec<u8> {
    wat::parse_str(module("", "", "i32.const 0").replace(" 1 2)", " 1 256)")).unwrap()
}

/// A program that stores a million bytes under each key.
fn keeper() -> Vec<u8> {
    let read = "(drop (call $input_read (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)))";
    let op = "(call $input_info (i32.const 100))";
    let put = "(call $state_put (i32.const 0) (i32.const 1) (i32.const 8) (i32.const 1000000))";
    let delete = "(call $state_delete (i32.const 0) (i32.const 1))";
    let body = format!(
        "{read} {op} (if (i32.eq (i32.load (i32.const 100)) (i32.const 1)) (then {put}) (else {delete})) i32.const 0"
    );
    let text = module("input_read input_info state_put state_delete", "", &body);
    wat::parse_str(text.replace(" 1 2)", " 16 16)")).unwrap()
}

const ROOM: u64 = PRINCIPAL_STATES_BYTES_MAX / MEMORY_BYTES_MAX;
const QUOTA: Option<ErrorCode> = Some(ErrorCode::Quota);

#[test]
fn memories_have_a_cap_for_each_principal_and_for_the_store() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let (mut life, code) = (Life::new(1, &host), wide());
    let make =
        |life: &mut Life, topic: &str, by: &str| create(life, topic, by, StateMode::Memory, &code);
    for n in 0..ROOM {
        assert_eq!(make(&mut life, &format!("a{n}"), "ann"), None);
    }
    assert_eq!(make(&mut life, "too-many", "ann"), QUOTA);
    assert!(life.machine.topic("too-many").is_none());
    let mut topics = ROOM;
    while topics * MEMORY_BYTES_MAX < STATES_BYTES_MAX {
        // Calls without a principal have no separate limit.
        assert_eq!(make(&mut life, &format!("n{topics}"), ""), None);
        topics += 1;
    }
    assert_eq!(make(&mut life, "too-many", "bob"), QUOTA);
    assert_eq!(make(&mut life, "too-many", ""), QUOTA);
    let full = (STATES_BYTES_MAX, PRINCIPAL_STATES_BYTES_MAX);
    assert_eq!(life.machine.state_bytes(b"ann"), full);
    // The creator is no longer charged, whichever client destroys the topic.
    assert_eq!(said(&mut life, "a0", "bob", Operation::Destroy), None);
    let less = (full.0 - MEMORY_BYTES_MAX, full.1 - MEMORY_BYTES_MAX);
    assert_eq!(life.machine.state_bytes(b"ann"), less);
    // A snapshot contains who is charged.
    let saved = life.saved();
    life.machine = Machine::load_with(&mut &saved[..], 5, Some(Arc::clone(&host))).unwrap();
    assert_eq!(life.machine.state_bytes(b"ann"), less);
    assert_eq!(life.machine.state_bytes(b"bob"), (less.0, 0));
    assert_eq!(make(&mut life, "b", "bob"), None);
    let names: Vec<String> = life
        .machine
        .topics()
        .map(|topic| topic.name.to_string())
        .collect();
    for name in names {
        assert_ne!(said(&mut life, &name, "", Operation::Destroy), QUOTA);
    }
    assert_eq!(life.machine.state_bytes(b"ann"), (0, 0));
}

#[test]
fn state_grows_to_the_cap_and_shrinks_beyond_it() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let (mut life, wide, keeper) = (Life::new(1, &host), wide(), keeper());
    for n in 1..ROOM {
        let made = create(&mut life, &format!("a{n}"), "ann", StateMode::Memory, &wide);
        assert_eq!(made, None);
    }
    assert_eq!(create(&mut life, "kv", "ann", StateMode::Kv, &keeper), None);
    let value = b"";
    let put = |life: &mut Life, key: u8, by: &str| {
        said(life, "kv", by, Operation::Put { key: &[key], value })
    };
    for key in 0..16 {
        assert_eq!(put(&mut life, key, "bob"), None);
    }
    let before = life.machine.state_bytes(b"ann");
    assert_eq!(put(&mut life, 16, "bob"), QUOTA);
    let saved = life.saved();
    assert_eq!(life.machine.state_bytes(b"ann"), before);
    assert_eq!(put(&mut life, 16, "bob"), QUOTA, "nothing was kept");
    assert_ne!(life.saved(), saved, "but it was an intention");
    assert_eq!(put(&mut life, 3, "bob"), None, "as much as before");
    assert_eq!(
        said(&mut life, "kv", "bob", Operation::Delete { key: &[0] }),
        None
    );
    assert_eq!(put(&mut life, 16, "bob"), None);
    // A program that needs more than the remaining memory does not replace the old one.
    let replace = Operation::Replace {
        code: &keeper,
        args: b"",
        expected: None,
    };
    assert_eq!(said(&mut life, "kv", "bob", replace), None);
    assert_eq!(life.machine.state_bytes(b"ann"), before);
    assert_eq!(said(&mut life, "kv", "bob", Operation::Destroy), None);
    let wide = MEMORY_BYTES_MAX * (ROOM - 1);
    assert_eq!(life.machine.state_bytes(b"ann"), (wide, wide));
}
