//! P1: a module is compiled once, and the cause of a rejection is found once.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::{ProgramHost, TopicOptions};
use weir_program::{Refusal, WasmtimeHost, largest_setup, limits};

use crate::world::{TestMachine, module};

fn numbered(n: usize) -> Vec<u8> {
    wat::parse_str(module(
        "",
        &format!("(global i32 (i32.const {n}))"),
        "i32.const 0",
    ))
    .unwrap()
}

#[test]
fn each_module_is_compiled_once_while_it_is_needed() {
    let host = WasmtimeHost::default();
    let count = limits::IDLE_MODULES_MAX + 8;
    let held: Vec<_> = (0..count)
        .map(|n| host.admit(&numbered(n), &largest_setup()).unwrap())
        .collect();
    assert_eq!(host.compiled(), count as u64);
    for n in 0..count {
        drop(host.admit(&numbered(n), &largest_setup()).unwrap());
    }
    assert_eq!(host.compiled(), count as u64, "all are in use");
    drop(held);
    drop(host.admit(&numbered(count), &largest_setup()).unwrap());
    // Of the modules without a topic, only the newest are kept.
    drop(host.admit(&numbered(count - 1), &largest_setup()).unwrap());
    assert_eq!(host.compiled(), count as u64 + 1);
    drop(host.admit(&numbered(0), &largest_setup()).unwrap());
    assert_eq!(host.compiled(), count as u64 + 2);
}

#[test]
fn concurrent_requests_compile_a_module_once() {
    let host = WasmtimeHost::default();
    let code = numbered(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| drop(host.admit(&code, &largest_setup()).unwrap()));
        }
    });
    assert_eq!(host.compiled(), 1);
}

/// A version that is a literal is read from the code; any other function is called.
#[test]
fn a_computed_version_is_called() {
    let host = WasmtimeHost::default();
    let telling = |version: &str| {
        let wat = module("", "", "i32.const 0").replace("(result i32) i32.const 1)", version);
        let code = wat::parse_str(wat).unwrap();
        host.admit(&code, &largest_setup()).map(drop)
    };
    let sentence = |said: &str| Err(Refusal::Bad(said.to_owned()));
    assert_eq!(
        telling("(result i32) (i32.sub (i32.const 3) (i32.const 2)))"),
        Ok(())
    );
    assert_eq!(
        telling("(result i32) (i32.add (i32.const 3) (i32.const 2)))"),
        sentence("weir_abi returns 5, this store speaks version 1")
    );
    assert_eq!(
        telling("(result i32) (loop (br 0)) unreachable)"),
        sentence("weir_abi fails or does not return")
    );
    // A function with a literal to which another part refers: a table, a caller, another export.
    for part in [
        "(table 1 funcref) (elem (i32.const 0) $v)",
        "(func (drop (call $v)))",
        r#"(export "weir_init" (func $v))"#,
    ] {
        let version = format!("(result i32) i32.const 1) {part}");
        let wat = module("", "", "i32.const 0");
        let wat = wat.replace(
            r#"(func (export "weir_abi") (result i32) i32.const 1)"#,
            &format!(r#"(func $v (export "weir_abi") {version}"#),
        );
        let code = wat::parse_str(wat).unwrap();
        assert_eq!(
            host.admit(&code, &largest_setup()).map(drop),
            Ok(()),
            "{part}"
        );
    }
}

/// `weir_abi` may be called before its module belongs to a topic, so its lines would belong to none.
#[test]
fn the_call_of_a_version_writes_no_line() {
    let host = WasmtimeHost::default();
    let logs = "(result i32) (call $log (i32.const 1) (i32.const 0) (i32.const 4)) i32.const 1)";
    let wat = module("log", "", "i32.const 0").replace("(result i32) i32.const 1)", logs);
    let code = wat::parse_str(wat).unwrap();
    let admitted = host.admit(&code, &largest_setup()).map(drop);
    assert_eq!(admitted, Ok(()));
    assert_eq!(host.lines(), (Vec::new(), 0));
}

/// A rejection that needs the compiler or a first call is remembered. So it is not repeated on the
/// commit thread, while all writes wait.
#[test]
fn a_rejection_is_cached() {
    let host = WasmtimeHost::default();
    let other = module("", "", "i32.const 0")
        .replace("(result i32) i32.const 1)", "(result i32) i32.const 2)");
    let other = wat::parse_str(other).unwrap();
    let mut sentences = Vec::new();
    for _ in 0..3 {
        match host.admit(&other, &largest_setup()) {
            Err(Refusal::Bad(sentence)) => sentences.push(sentence),
            other => panic!("{:?}", other.err()),
        }
    }
    sentences.dedup();
    assert_eq!(
        sentences,
        ["weir_abi returns 2, this store speaks version 1"]
    );
    assert_eq!(host.compiled(), 1);
    for n in 0..=limits::REFUSED_MODULES_MAX {
        assert!(host.admit(&n.to_le_bytes(), &largest_setup()).is_err());
    }
    assert!(host.admit(&other, &largest_setup()).is_err());
    assert_eq!(
        host.compiled(),
        3 + limits::REFUSED_MODULES_MAX as u64,
        "the oldest are forgotten"
    );
}

/// A queued write keeps the rejection of its module until it is applied.
#[test]
fn a_kept_rejection_is_not_evicted() {
    let host = WasmtimeHost::default();
    let computed = "(result i32) (i32.add (i32.const 1) (i32.const 1)))";
    let wat = module("", "", "i32.const 0").replace("(result i32) i32.const 1)", computed);
    let code = wat::parse_str(wat).unwrap();
    assert_eq!(host.keep_rejection(&code), None, "not rejected yet");
    let is_compiled_again = |code: &[u8]| {
        for n in 0..=limits::REFUSED_MODULES_MAX {
            assert!(host.admit(&n.to_le_bytes(), &largest_setup()).is_err());
        }
        let before = host.compiled();
        assert!(host.admit(code, &largest_setup()).is_err());
        host.compiled() > before
    };
    assert!(is_compiled_again(&code));
    let kept = host.keep_rejection(&code);
    assert!(kept.is_some() && !is_compiled_again(&code));
    drop(kept);
    assert!(is_compiled_again(&code));
    // The check of the code finds the rejection of this module again.
    assert!(host.admit(b"no module", &largest_setup()).is_err());
    assert_eq!(host.keep_rejection(b"no module"), None);
}

/// The modules of a snapshot are compiled after it was loaded, each once.
#[test]
fn a_snapshot_is_loaded_without_compiling() {
    let count = limits::IDLE_MODULES_MAX + 8;
    let first: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut tested = TestMachine::new(1, &first);
    let options = TopicOptions::default();
    for n in 0..count {
        let create = Operation::CreateProgram {
            options: &options,
            code: &numbered(n),
            args: b"",
        };
        tested
            .send(&Intention::new(&format!("t{n}"), create))
            .unwrap();
    }
    let host = Arc::new(WasmtimeHost::default());
    let shared: Arc<dyn ProgramHost> = Arc::clone(&host) as Arc<dyn ProgramHost>;
    let mut tested = tested.reloaded(1, &shared);
    assert_eq!(host.compiled(), 0);
    let put = |tested: &mut TestMachine, n: usize| {
        let put = Operation::Put {
            key: b"k",
            value: b"v",
        };
        let outcome = tested.send(&Intention::new(&format!("t{n}"), put));
        assert_eq!(outcome.unwrap().commit().unwrap().reason, None);
    };
    // The first call compiles its module, even if others are not compiled yet.
    put(&mut tested, 7);
    put(&mut tested, 7);
    assert_eq!(host.compiled(), 1);
    while host.compile_restored(None).is_some() {}
    assert_eq!(host.compiled(), count as u64);
    // All modules are kept, although no other topic has called them.
    for n in 0..count {
        put(&mut tested, n);
    }
    assert_eq!(host.compiled(), count as u64);
    assert_eq!(host.compile_restored(None), None);
}

/// Environment variable of the child process, which compiles.
const CHILD: &str = "WEIR_TEST_PERF_MAP_CHILD";

#[test]
fn child_compiles_a_module_with_names() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let part = "(func $busy_part nop)";
    let code = wat::parse_str(module("", part, "call $busy_part i32.const 0")).unwrap();
    drop(
        WasmtimeHost::default()
            .admit(&code, &largest_setup())
            .unwrap(),
    );
    let map = Path::new("/tmp").join(format!("perf-{}.map", std::process::id()));
    let text = std::fs::read_to_string(&map);
    drop(std::fs::remove_file(&map));
    println!("map: {}", text.is_ok());
    println!("{}", text.unwrap_or_default());
}

#[test]
fn functions_of_programs_have_names_for_perf_if_enabled() {
    let child = |wanted: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "compiled::child_compiles_a_module_with_names"]);
        command.arg("--nocapture").env(CHILD, "1");
        let output = command.env("WEIR_PERF_MAP", wanted).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = child("1");
    let named = |name: &str| said.lines().any(|line| line.contains(name));
    assert!(named("busy_part") && named("weir_apply"), "{said}");
    assert!(child("").contains("map: false"));
}
