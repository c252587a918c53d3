//! A machine without memory: its programs cannot detect it (Z3). The only test in its process,
//! because it exhausts the memory of the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::{
    ApplyError, Batch, BatchBuilder, ConsequenceSink, Machine, Outcomes, ProgramHost, Record,
    TopicId, TopicName, TopicOptions,
};
use weir_program::WasmtimeHost;

/// Emits the result of the instruction that grows its memory by 15 MiB.
const GROWS: &str = r#"(module
  (import "weir1" "emit_put" (func $put (param i32 i32 i32 i32)))
  (memory (export "memory") 1 241)
  (func (export "weir_abi") (result i32) i32.const 1)
  (func (export "weir_apply") (result i32)
    (i32.store (i32.const 0) (memory.grow (i32.const 240)))
    (call $put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4))
    i32.const 0))"#;

#[derive(Default)]
struct Values(Vec<Vec<u8>>);

impl ConsequenceSink for Values {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        self.0.push(record.value.to_vec());
    }
}

/// The value that the program writes, in a separate machine.
fn answer(host: &Arc<dyn ProgramHost>, code: &[u8]) -> Result<Vec<u8>, ApplyError> {
    let mut options = TopicOptions::default();
    options.program.memory_bytes_max = Some(16 << 20);
    let create = Operation::CreateProgram {
        options: &options,
        code,
        args: b"",
    };
    let put = Operation::Put {
        key: b"k",
        value: b"v",
    };
    let mut builder = BatchBuilder::default();
    for operation in [create, put] {
        let intention = Intention::new("t", operation);
        builder
            .push(&intention, &IntentionLimits::default())
            .unwrap();
    }
    let bytes = builder.to_bytes(1);
    let mut machine = Machine::new(7).with_host(Some(Arc::clone(host)));
    let (mut values, mut outcomes) = (Values::default(), Outcomes::default());
    let batch = Batch::read(&bytes, 1).unwrap();
    machine.apply(&batch, &mut values, &mut outcomes)?;
    Ok(values.0.pop().unwrap())
}

/// Size of the writable memory of the process, in bytes.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmData:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_program_cannot_detect_that_memory_is_exhausted() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let code = wat::parse_str(GROWS).unwrap();
    // The `weir_abi` of this module grows the memory too, so the version must be computed.
    let computes = GROWS.replace(
        "(result i32) i32.const 1)",
        "(result i32) (drop (memory.grow (i32.const 240))) i32.const 1)",
    );
    let computes = wat::parse_str(computes).unwrap();
    let grown = 1_u32.to_le_bytes();
    assert_eq!(answer(&host, &code).unwrap(), grown);
    let before = getrlimit(Resource::Data);
    let tight = Rlimit {
        current: Some(data_bytes() + (12 << 20)),
        ..before
    };
    setrlimit(Resource::Data, tight).unwrap();
    let starved = [&code, &computes].map(|code| answer(&host, code));
    setrlimit(Resource::Data, before).unwrap();
    for starved in starved {
        match starved {
            Err(ApplyError::ProgramUnable { why, .. }) => assert!(why.contains("memory"), "{why}"),
            other => panic!("the node must stop, and no outcome tell of it: {other:?}"),
        }
    }
    for code in [&code, &computes] {
        assert_eq!(answer(&host, code).unwrap(), grown, "it was this machine");
    }
}
