//! The state as bytes: equal for equal histories. Any other bytes are rejected (Z5, M5).

use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::{ApplyError, Machine, ProgramHost, SnapshotError, StateMode, TopicOptions};
use weir_program::WasmtimeHost;

use crate::world::{TestMachine, encoded, module, run_script};

/// A topic in each mode, one that reads its keys, and one in quarantine.
fn populated(seed: u64, host: &Arc<dyn ProgramHost>) -> TestMachine {
    let kv = wat::parse_str(module("emit_input state_put", "", "(call $state_put (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 2)) (call $emit_input) i32.const 0")).unwrap();
    let keys = wat::parse_str(module(
        "emit_input key_offset",
        "",
        "(call $emit_input) i32.const 0",
    ))
    .unwrap();
    let memory = wat::parse_str(module(
        "",
        "(global $g (mut i64) (i64.const 3))",
        "(global.set $g (i64.const -1)) (i32.store8 (i32.const 9000) (i32.const 1)) i32.const 0",
    ))
    .unwrap();
    let mut tested = TestMachine::new(seed, host);
    for (topic, code, mode) in [
        ("kv", &kv, StateMode::Kv),
        ("keys", &keys, StateMode::None),
        ("memory", &memory, StateMode::Memory),
    ] {
        let mut options = TopicOptions::default();
        options.program.state = mode;
        let create = Operation::CreateProgram {
            options: &options,
            code,
            args: b"args",
        };
        assert!(
            tested
                .send(&Intention::new(topic, create))
                .unwrap()
                .commit()
                .unwrap()
                .reason
                .is_none()
        );
        for (key, value) in [("a", "1"), ("b", ""), ("", "no key"), ("a", "2")] {
            let put = Operation::Put {
                key: key.as_bytes(),
                value: value.as_bytes(),
            };
            assert!(
                tested
                    .send(&Intention::new(topic, put))
                    .unwrap()
                    .commit()
                    .unwrap()
                    .reason
                    .is_none()
            );
        }
    }
    tested
        .send(&Intention::new(
            "keys",
            Operation::Quarantine { stopped: true },
        ))
        .unwrap();
    tested
}

#[test]
fn equal_histories_have_equal_bytes_on_every_engine() {
    let mut first: Option<(Vec<u8>, Vec<String>)> = None;
    for host in crate::world::hosts() {
        for seed in [1, u64::MAX, 77] {
            let tested = populated(seed, &host);
            let found = (tested.saved(), tested.records.0);
            assert_eq!(*first.get_or_insert_with(|| found.clone()), found);
        }
    }
}

/// Changes every byte. Either the bytes are rejected, or they are a state that is saved as the same
/// bytes again.
#[test]
fn a_changed_byte_is_rejected_or_saved_again() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let saved = populated(1, &host).saved();
    let load = |mut bytes: &[u8]| Machine::load_with(&mut bytes, 2, Some(Arc::clone(&host)));
    let (mut accepted, mut rejected) = (0, 0);
    let mut seed = 1_u64;
    for at in 0..saved.len() {
        for flip in [0x01, 0x80, 0xff, 0x42] {
            let mut bytes = saved.clone();
            bytes[at] ^= flip;
            match load(&bytes) {
                Ok(machine) => {
                    let mut again = Vec::new();
                    machine.save(&mut again).unwrap();
                    assert_eq!(again, bytes, "byte {at}");
                    accepted += 1;
                }
                Err(_) => rejected += 1,
            }
        }
        // Truncated, and with a duplicated part.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        assert!(load(&saved[..at]).is_err());
        if at % 8 == 0 {
            let mut bytes = saved[..at].to_vec();
            let from = at - (seed >> 33) as usize % (at + 1);
            bytes.extend_from_slice(&saved[from..]);
            if let Ok(machine) = load(&bytes) {
                let mut again = Vec::new();
                machine.save(&mut again).unwrap();
                assert_eq!(again, bytes[..again.len()], "doubled at {at}");
            }
        }
    }
    assert!(
        rejected > 1000 && accepted > 1000,
        "{rejected} rejected, {accepted} accepted"
    );
}

/// A state that the module cannot have produced is rejected.
#[test]
fn a_memory_that_does_not_fit_its_module_is_rejected() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let code = wat::parse_str(module(
        "",
        "(global $g (mut i64) (i64.const 3))",
        "(i32.store8 (i32.const 0) (i32.const 1)) i32.const 0",
    ))
    .unwrap();
    let mut tested = TestMachine::new(1, &host);
    let mut options = TopicOptions::default();
    options.program.state = StateMode::Memory;
    let create = Operation::CreateProgram {
        options: &options,
        code: &code,
        args: b"",
    };
    tested.send(&Intention::new("t", create)).unwrap();
    tested
        .send(&Intention::new(
            "t",
            Operation::Put {
                key: b"",
                value: b"",
            },
        ))
        .unwrap();
    let saved = tested.saved();
    // Bytes of memory (65,536), pages in use (1), page 0.
    let image = [0x80, 0x80, 0x04, 0x01, 0x00, 0x01];
    let at = saved
        .windows(image.len())
        .position(|bytes| bytes == image)
        .unwrap();
    let load = |bytes: &[u8]| Machine::load_with(&mut &bytes[..], 2, Some(Arc::clone(&host)));
    load(&saved).unwrap();
    for (memory, fine) in [
        ([0x80, 0x80, 0x08], true),  // two pages, the maximum
        ([0x80, 0x80, 0x0c], false), // three
        ([0x80, 0xa0, 0x04], false), // one and 4 KiB
    ] {
        let mut bytes = saved.clone();
        bytes[at..at + 3].copy_from_slice(&memory);
        let loaded = load(&bytes);
        assert_eq!(loaded.is_ok(), fine, "{memory:?}: {:?}", loaded.err());
    }
    // The global and its number follow the page.
    let mut bytes = saved.clone();
    let globals = at + 5 + 4096;
    assert_eq!(bytes[globals..globals + 9], [1, 3, 0, 0, 0, 0, 0, 0, 0]);
    bytes.splice(globals..globals + 9, [0]);
    let lengths = load(&bytes).unwrap_err();
    assert!(matches!(lengths, SnapshotError::Malformed(_)), "{lengths}");
}

/// Z5: a build with another meter detects it, in a log and in a snapshot, and stops.
#[test]
fn another_meter_is_detected() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let code = wat::parse_str(module("", "", "i32.const 0")).unwrap();
    let options = TopicOptions::default();
    let create = Operation::CreateProgram {
        options: &options,
        code: &code,
        args: b"",
    };
    let replace = Operation::Replace {
        expected: None,
        code: &code,
        args: b"",
    };
    let mut tested = TestMachine::new(1, &host);
    // The meter is the last byte in both cases.
    let mut other = encoded(&Intention::new("t", create), 10);
    assert_eq!(other.pop(), Some(1));
    other.push(2);
    let error = tested.apply(&other).unwrap_err();
    assert!(
        matches!(&error, ApplyError::ProgramUnable { why, .. } if why.contains("meter 2")),
        "{error}"
    );

    let mut tested = TestMachine::new(1, &host);
    tested.send(&Intention::new("t", create)).unwrap();
    let mut other = encoded(&Intention::new("t", replace), 20);
    *other.last_mut().unwrap() = 9;
    let error = tested.apply(&other).unwrap_err();
    assert!(
        matches!(&error, ApplyError::ProgramUnable { why, .. } if why.contains("meter 9")),
        "{error}"
    );

    let mut tested = TestMachine::new(1, &host);
    tested.send(&Intention::new("t", create)).unwrap();
    assert_eq!(tested.machine.topic("t").unwrap().program.unwrap().meter, 1);
    let hash = host.hash(&code);
    let saved = tested.saved();
    let at = saved
        .windows(33)
        .position(|bytes| bytes[..32] == hash.0)
        .unwrap()
        + 32;
    assert_eq!(saved[at], 1);
    let mut bytes = saved.clone();
    bytes[at] = 3;
    let error = Machine::load_with(&mut &bytes[..], 2, Some(Arc::clone(&host))).unwrap_err();
    assert!(
        matches!(&error, SnapshotError::Program(why) if why.contains("meter 3")),
        "{error}"
    );

    // A request is recognised as equal even if a build with another meter sent it.
    let session = weir_core::ClientId([9; 16]);
    let mut first = encoded(&Intention::new("u", create).under(session, 1), 30);
    let done = tested.apply(&first).unwrap();
    *first.last_mut().unwrap() = 5;
    let again = tested.apply(&first).unwrap();
    assert!(
        matches!(again, weir_core::Outcome::Replayed(_)),
        "{done:?} {again:?}"
    );
}

/// Programs that differ only in the code or the text of a reject have different digests.
#[test]
fn the_digest_includes_the_text_of_a_reject() {
    let with = |code: u32, text: &str| {
        let parts = format!(r#"(data (i32.const 0) "{text}")"#);
        let body = format!("(call $reject_text (i32.const 0) (i32.const 1)) i32.const {code}");
        module("reject_text", &parts, &body)
    };
    let mut digests = Vec::new();
    for wat in [with(1, "a"), with(2, "a"), with(1, "b")] {
        // The digest also includes the CREATE with its code. So the digests before and after the
        // PUT are compared.
        let (_, before) = crate::world::run_script_on(
            &crate::world::hosts(),
            "create t program=p",
            &[("p", &wat)],
        );
        let (_, after) = crate::world::run_script_on(
            &crate::world::hosts(),
            "create t program=p\nput t =",
            &[("p", &wat)],
        );
        digests.push((before.digest(), after.digest()));
    }
    digests.dedup();
    assert_eq!(digests.len(), 3);
    let _ = run_script;
}
