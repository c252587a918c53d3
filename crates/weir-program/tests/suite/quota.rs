//! The memory of the state of programs has a limit for the store and one for each principal. Beyond
//! a limit, the reason is QUOTA; DESTROY releases the memory.

use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::limits::{MEMORY_BYTES_MAX, PRINCIPAL_STATES_BYTES_MAX, STATES_BYTES_MAX};
use weir_core::{Detail, ErrorCode, Machine, ProgramHost, StateMode, TopicOptions};
use weir_program::WasmtimeHost;

use crate::world::{TestMachine, module};

/// The reason of the verdict on an intention.
fn send_as(
    tested: &mut TestMachine,
    topic: &str,
    by: &str,
    operation: Operation<'_>,
) -> Option<ErrorCode> {
    let mut intention = Intention::new(topic, operation);
    intention.principal = by.as_bytes();
    let outcome = tested.send(&intention).unwrap();
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
    tested: &mut TestMachine,
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
    send_as(
        tested,
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
fn program_with_large_memory() -> Vec<u8> {
    wat::parse_str(module("", "", "i32.const 0").replace(" 1 2)", " 1 256)")).unwrap()
}

/// A program that stores a million bytes under each key.
fn storing_program() -> Vec<u8> {
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

const MEMORIES_OF_A_PRINCIPAL: u64 = PRINCIPAL_STATES_BYTES_MAX / MEMORY_BYTES_MAX;
const QUOTA: Option<ErrorCode> = Some(ErrorCode::Quota);

#[test]
fn memory_is_limited_for_each_principal_and_for_the_store() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let (mut tested, code) = (TestMachine::new(1, &host), program_with_large_memory());
    let make = |tested: &mut TestMachine, topic: &str, by: &str| {
        create(tested, topic, by, StateMode::Memory, &code)
    };
    for n in 0..MEMORIES_OF_A_PRINCIPAL {
        assert_eq!(make(&mut tested, &format!("a{n}"), "ann"), None);
    }
    assert_eq!(make(&mut tested, "too-many", "ann"), QUOTA);
    assert!(tested.machine.topic("too-many").is_none());
    let mut topics = MEMORIES_OF_A_PRINCIPAL;
    while topics * MEMORY_BYTES_MAX < STATES_BYTES_MAX {
        // Calls without a principal have no separate limit.
        assert_eq!(make(&mut tested, &format!("n{topics}"), ""), None);
        topics += 1;
    }
    assert_eq!(make(&mut tested, "too-many", "bob"), QUOTA);
    assert_eq!(make(&mut tested, "too-many", ""), QUOTA);
    let full = (STATES_BYTES_MAX, PRINCIPAL_STATES_BYTES_MAX);
    assert_eq!(tested.machine.state_bytes(b"ann"), full);
    // The creator is no longer charged, whichever client destroys the topic.
    assert_eq!(send_as(&mut tested, "a0", "bob", Operation::Destroy), None);
    let less = (full.0 - MEMORY_BYTES_MAX, full.1 - MEMORY_BYTES_MAX);
    assert_eq!(tested.machine.state_bytes(b"ann"), less);
    // A snapshot contains who is charged.
    let saved = tested.saved();
    tested.machine = Machine::load_with(&mut &saved[..], 5, Some(Arc::clone(&host))).unwrap();
    assert_eq!(tested.machine.state_bytes(b"ann"), less);
    assert_eq!(tested.machine.state_bytes(b"bob"), (less.0, 0));
    assert_eq!(make(&mut tested, "b", "bob"), None);
    let names: Vec<String> = tested
        .machine
        .topics()
        .map(|topic| topic.name.to_string())
        .collect();
    for name in names {
        assert_ne!(send_as(&mut tested, &name, "", Operation::Destroy), QUOTA);
    }
    assert_eq!(tested.machine.state_bytes(b"ann"), (0, 0));
}

#[test]
fn state_grows_to_the_limit_and_may_shrink_above_it() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let (mut tested, program_with_large_memory, storing_program) = (
        TestMachine::new(1, &host),
        program_with_large_memory(),
        storing_program(),
    );
    for n in 1..MEMORIES_OF_A_PRINCIPAL {
        let made = create(
            &mut tested,
            &format!("a{n}"),
            "ann",
            StateMode::Memory,
            &program_with_large_memory,
        );
        assert_eq!(made, None);
    }
    assert_eq!(
        create(&mut tested, "kv", "ann", StateMode::Kv, &storing_program),
        None
    );
    let value = b"";
    let put = |tested: &mut TestMachine, key: u8, by: &str| {
        send_as(tested, "kv", by, Operation::Put { key: &[key], value })
    };
    for key in 0..16 {
        assert_eq!(put(&mut tested, key, "bob"), None);
    }
    let before = tested.machine.state_bytes(b"ann");
    assert_eq!(put(&mut tested, 16, "bob"), QUOTA);
    let saved = tested.saved();
    assert_eq!(tested.machine.state_bytes(b"ann"), before);
    assert_eq!(put(&mut tested, 16, "bob"), QUOTA, "nothing was kept");
    assert_ne!(tested.saved(), saved, "but it was an intention");
    assert_eq!(put(&mut tested, 3, "bob"), None, "as much as before");
    assert_eq!(
        send_as(&mut tested, "kv", "bob", Operation::Delete { key: &[0] }),
        None
    );
    assert_eq!(put(&mut tested, 16, "bob"), None);
    // A program that needs more than the remaining memory does not replace the old one.
    let replace = Operation::Replace {
        code: &storing_program,
        args: b"",
        expected: None,
    };
    assert_eq!(send_as(&mut tested, "kv", "bob", replace), None);
    assert_eq!(tested.machine.state_bytes(b"ann"), before);
    assert_eq!(send_as(&mut tested, "kv", "bob", Operation::Destroy), None);
    let program_with_large_memory = MEMORY_BYTES_MAX * (MEMORIES_OF_A_PRINCIPAL - 1);
    assert_eq!(
        tested.machine.state_bytes(b"ann"),
        (program_with_large_memory, program_with_large_memory)
    );
}
