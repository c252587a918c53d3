//! A call of a warm program does not allocate: neither when it emits the write, nor when it emits
//! guest memory, nor with state, nor with the keys of the topic. `json_find` allocates for its
//! paths, and no more for a longer value. A memory of zeros is not stored.
#![allow(
    clippy::unwrap_used,
    unsafe_code,
    reason = "a test; `GlobalAlloc` cannot be implemented without it"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::{
    Batch, BatchBuilder, ConsequenceSink, Machine, Outcomes, ProgramHost, Record, StateMode,
    TopicId, TopicName, TopicOptions,
};
use weir_program::WasmtimeHost;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that are allocated now.
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every method passes its arguments to `System`, which fulfils the contract. The counter
// does not access memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller promised a layout of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller promised that this came from `alloc` above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
        BYTES.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller promised that this came from `alloc` above.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Sum(u64);

impl ConsequenceSink for Sum {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        self.0 += record.offset.0 + record.value.len() as u64;
    }
}

const CALLS: usize = 500;

/// The number of allocations of `CALLS` calls of a warm program.
fn allocations(code: &[u8], state: StateMode, value: &[u8]) -> u64 {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut machine = Machine::new(1).with_host(Some(host));
    let (mut sink, mut outcomes) = (Sum::default(), Outcomes::default());
    let mut options = TopicOptions::default();
    options.program.state = state;
    let create = Operation::CreateProgram {
        options: &options,
        code,
        args: &[],
    };
    let limits = IntentionLimits::default();
    let mut builder = BatchBuilder::default();
    builder.push(&Intention::new("t", create), &limits).unwrap();
    let bytes = builder.to_bytes(1);
    let batch = Batch::read(&bytes, 1).unwrap();
    machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
    builder.clear(0);
    for n in 0..CALLS {
        let key = [b'k', u8::try_from(n % 10).unwrap()];
        let put = Operation::Put { key: &key, value };
        builder.push(&Intention::new("t", put), &limits).unwrap();
    }
    let bytes = builder.to_bytes(2);
    let batch = Batch::read(&bytes, 1).unwrap();
    let mut allocations = 0;
    for _ in 0..3 {
        outcomes.clear();
        let before = ALLOCATIONS.load(Relaxed);
        machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
        allocations = ALLOCATIONS.load(Relaxed) - before;
        let valid = outcomes
            .iter()
            .all(|o| o.commit().unwrap().reason.is_none());
        assert!(valid && outcomes.len() == CALLS);
    }
    allocations
}

/// Bytes that remain allocated for each topic with its own module. Its memory is 16 MiB of zeros,
/// except for the write of one call.
fn retained_bytes(state: StateMode) -> u64 {
    const MODULES: u64 = 8;
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut machine = Machine::new(1).with_host(Some(host));
    let (mut sink, mut outcomes) = (Sum::default(), Outcomes::default());
    let mut options = TopicOptions::default();
    options.program.state = state;
    options.program.memory_bytes_max = Some(16 << 20);
    let mut before = 0;
    for number in 0..=MODULES {
        let code = format!(
            r#"(module (memory (export "memory") 256 256) (data (i32.const 70000) "{number}")
            (func (export "weir_abi") (result i32) i32.const 1)
            (func (export "weir_apply") (result i32)
                (i32.store (i32.const 9000000) (i32.const 1)) i32.const 0))"#
        );
        let code = wat::parse_str(code).unwrap();
        let name = format!("t{number}");
        let create = Operation::CreateProgram {
            options: &options,
            code: &code,
            args: &[],
        };
        let put = Operation::Put {
            key: b"k",
            value: b"v",
        };
        let mut builder = BatchBuilder::default();
        for operation in [create, put, put] {
            let intention = Intention::new(&name, operation);
            builder
                .push(&intention, &IntentionLimits::default())
                .unwrap();
        }
        let bytes = builder.to_bytes(1);
        let batch = Batch::read(&bytes, 1).unwrap();
        outcomes.clear();
        machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
        let valid = outcomes
            .iter()
            .all(|o| o.commit().unwrap().reason.is_none());
        assert!(valid, "{:?}", outcomes.runs());
        if number == 0 {
            // The engine is allocated by now.
            before = BYTES.load(Relaxed);
        }
    }
    BYTES.load(Relaxed).saturating_sub(before) / MODULES
}

/// The only test of this file, so that no other test allocates at the same time.
#[test]
fn a_warm_call_does_not_allocate() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt");
    let code = |name: &str| std::fs::read(folder.join(format!("{name}.wasm"))).unwrap();
    for (name, value) in [("vanilla", 100), ("vanilla-memory", 100), ("counter", 8)] {
        let value = vec![0; value];
        let allocations = allocations(&code(name), StateMode::Kv, &value);
        // One or two allocations of the test for the outcomes; none for each call.
        assert!(allocations < 5, "{name}: {allocations} for {CALLS} calls");
    }
    let keys = r#"(module
        (import "weir1" "key_get" (func $get (param i32 i32 i32 i32 i32) (result i32)))
        (import "weir1" "emit_put" (func $put (param i32 i32 i32 i32)))
        (memory (export "memory") 1 1) (data (i32.const 0) "key")
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32)
            (drop (call $get (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 8) (i32.const 8)))
            (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.const 1)))
            (call $put (i32.const 0) (i32.const 3) (i32.const 8) (i32.const 8)) i32.const 0))"#;
    let read = allocations(&wat::parse_str(keys).unwrap(), StateMode::Kv, b"");
    assert!(read < 5, "keys: {read} for {CALLS} calls");
    // Paths become a plan that is dropped after the call: some allocations for each step,
    // independent of the searched value.
    let finds = r#"(module (import "weir1" "json_find" (func $f (param i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1 1) (data (i32.const 0) "$[0]")
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32) (i32.sub (call $f (i32.const 1) (i32.const 1)
            (i32.const 0) (i32.const 4) (i32.const 512)) (i32.const 1))))"#;
    let finds = wat::parse_str(finds).unwrap();
    let mut long = vec![b' '; 100_000];
    long.splice(0..2, *b"[1");
    long.push(b']');
    let calls = CALLS as u64;
    for value in [&b"[1]"[..], &long] {
        let allocations = allocations(&finds, StateMode::Kv, value);
        let each = allocations / calls;
        assert!(each <= 8, "json_find: {allocations} for {calls} calls");
    }
    let counts = r#"(module (memory (export "memory") 1 1) (global $g (mut i64) (i64.const 0))
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32)
            (global.set $g (i64.add (global.get $g) (i64.const 1)))
            (i64.store (i32.const 512) (global.get $g)) i32.const 0))"#;
    let allocations = allocations(&wat::parse_str(counts).unwrap(), StateMode::Memory, b"");
    assert!(
        allocations < 5,
        "state mode memory: {allocations} for {CALLS} calls"
    );
    for state in [StateMode::None, StateMode::Memory] {
        let retained_bytes = retained_bytes(state);
        assert!(
            retained_bytes < 256 << 10,
            "{state:?}: {retained_bytes} bytes for each module"
        );
    }
}
