//! Runs programs with wasmtime: compiled, metered, with one kept instance for each topic.

mod perf_map;
mod restored;
mod stack;
mod traced;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use wasmtime::{
    Config, Engine, Error, Extern, Global, Instance, InstancePre, Linker, Memory, Module,
    OperatorCost, OptLevel, ProfilingStrategy, ResourceLimiter, Store, TypedFunc, Val,
};
use weir_core::call_context::{CallContext, Image, Stop};
use weir_core::limits::METER;
use weir_core::program::{Decision, Entry, PROGRAM_STACK_BYTES, Program, ProgramHost};
use weir_core::{CodeHash, Facts, Refusal, Setup, StateMode, Trap, TrapKind};

use crate::abi;
use crate::abi::PAGE_BYTES;
use crate::host::{Cache, CountedBytes, CountedInstance, InstanceUsage, check_version, limits};
use crate::initial_memory::InitialMemory;
use crate::instance_fuel;
use crate::lines::{Lines, LogLine};
use crate::native::restored::{Code, Restored};
use crate::report::Report;
use crate::rewrite::{DirtyPages, Rewritten, global_name, rewrite};
use crate::trace::{FRAMES_MAX, Tracer};
use crate::validate::inspect;
use stack::Stacks;

/// The version that the workspace pins; a test compares it with the lock file.
pub(crate) const WASMTIME_VERSION: &str = "48.0.8";

/// Fuel of an instruction that grows the memory.
const GROW_FUEL: u8 = 100;

/// Runs programs with wasmtime. Cheap to share; all topics of a store use one.
#[derive(Default)]
pub struct WasmtimeHost {
    module_compiler: Arc<ModuleCompiler>,
    modules: Arc<Cache<Compiled>>,
    restored: Restored,
}

/// Compiles modules.
#[derive(Default)]
struct ModuleCompiler {
    /// Created with the first program.
    compiler: OnceLock<Result<Compiler, String>>,
    warm: Arc<InstanceUsage>,
    /// The lines that programs write.
    lines: Arc<Lines>,
    /// Records the host calls.
    tracer: Option<Arc<Tracer>>,
}

struct Compiler {
    engine: Engine,
    linker: Linker<Data>,
    /// Whether the names of functions are written for `perf`.
    maps: bool,
}

impl std::fmt::Debug for WasmtimeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmtimeHost").finish_non_exhaustive()
    }
}

/// The data of host functions. The context is here only during a call.
#[derive(Default)]
struct Data {
    context: Box<CallContext>,
    memory: Option<Memory>,
    /// Why a host function stopped the call.
    stop: Option<Stop>,
    /// The parts of the guest's memory to which host functions wrote.
    dirty: DirtyPages,
}

impl Data {
    fn wrote(&mut self, (at, bytes): (usize, usize)) {
        self.dirty.add(at, bytes);
    }
}

/// A memory grows exactly to the limit of its module (Z3). If this machine has no memory left, the
/// node stops, because a program must not see the difference.
impl ResourceLimiter for Data {
    fn memory_growing(&mut self, _: usize, to: usize, max: Option<usize>) -> Result<bool, Error> {
        Ok(max.is_none_or(|max| to <= max))
    }

    fn memory_grow_failed(&mut self, error: Error) -> Result<(), Error> {
        Err(error.context("no memory left for a program"))
    }

    fn table_growing(&mut self, _: usize, to: usize, max: Option<usize>) -> Result<bool, Error> {
        Ok(max.is_none_or(|max| to <= max))
    }
}

fn stopped(mut guest: wasmtime::Caller<'_, Data>, stop: Stop) -> Error {
    guest.data_mut().stop = Some(stop);
    Error::msg("stopped by the host")
}

/// A module that passed every rule.
struct Compiled {
    pre: InstancePre<Data>,
    report: Report,
    /// Index of the global that marks the parts of the memory that were written; `None` if no
    /// instruction of the module writes.
    mask: Option<u32>,
    /// Index of the global with the remaining units of stack.
    stack_budget: Option<u32>,
    /// The data for the memory of a new instance: address and bytes.
    data: Vec<(usize, Vec<u8>)>,
    /// Whether the module contains its data segments.
    keeps_data: bool,
    /// The initial contents of a memory. Their size is counted.
    initial_memory: OnceLock<(InitialMemory, CountedBytes)>,
    warm: Arc<InstanceUsage>,
    /// Records call stacks of failed calls, on a host with a tracer.
    stacks: Option<Stacks>,
}

struct LiveInstance {
    store: Store<Data>,
    memory: Memory,
    /// Mutable globals with their initial values, in order of their index.
    globals: Vec<(Global, Val)>,
    mask: Option<Global>,
    /// Parts of the memory whose writes are already charged (mode `memory`).
    charged: u64,
    apply: TypedFunc<(), i32>,
    instance: Instance,
    usage: CountedInstance,
}

struct RunningProgram {
    code: Code,
    mode: StateMode,
    live: Option<Box<LiveInstance>>,
}

/// The settings of the compiler and of the execution.
fn config(stack_bytes_max: usize) -> Config {
    let mut cost = OperatorCost::new();
    // Growing the memory leaves the program, like a host call, and often fails. At the price of an
    // addition, two million growths would take a third of a second.
    cost.MemoryGrow = GROW_FUEL;
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .operator_cost(cost)
        .cranelift_nan_canonicalization(true)
        // The compilers of programs already optimise their modules. Optimising again would make
        // calls 1 % faster and double the cost of deployment.
        .cranelift_opt_level(OptLevel::None)
        // No error reports the position of a trap in a module.
        .generate_address_map(false)
        .native_unwind_info(false)
        // The host fills memories itself; an image would need a file descriptor.
        .memory_init_cow(false)
        .max_wasm_stack(stack_bytes_max)
        // No call is asynchronous, but the engine compares the two settings anyway.
        .async_stack_size(stack_bytes_max)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .wasm_backtrace_max_frames(None);
    config
}

impl Compiler {
    fn new(lines: &Arc<Lines>, tracer: Option<&Arc<Tracer>>) -> Result<Self, Error> {
        let mut config = config(limits::NATIVE_STACK_BYTES_MAX);
        if tracer.is_some() {
            config.wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES_MAX));
        }
        let maps = perf_map::is_wanted();
        if maps {
            config.profiler(ProfilingStrategy::PerfMap);
        }
        let engine = Engine::new(&config)?;
        let mut linker: Linker<Data> = Linker::new(&engine);
        match tracer {
            None => abi::link_all!(wasmtime, linker, stopped, lines),
            Some(tracer) => traced::link(&mut linker, tracer, lines)?,
        }
        Ok(Self {
            engine,
            linker,
            maps,
        })
    }
}

fn error_text(error: &Error) -> String {
    format!("{error:#}")
}

impl WasmtimeHost {
    /// A host that records each host call. Outcomes and fuel do not change; calls are slower.
    #[must_use]
    pub fn traced(tracer: Arc<Tracer>) -> Self {
        let module_compiler = ModuleCompiler {
            tracer: Some(tracer),
            ..ModuleCompiler::default()
        };
        Self {
            module_compiler: Arc::new(module_compiler),
            ..Self::default()
        }
    }

    /// The newest lines that programs wrote with `log` on this host, oldest first, and the number
    /// of lines that a rate limit dropped.
    #[must_use]
    pub fn lines(&self) -> (Vec<LogLine>, u64) {
        self.module_compiler.lines.read()
    }

    /// The number of modules that were compiled, including those that were rejected afterwards.
    #[must_use]
    pub fn compiled(&self) -> u64 {
        self.modules.compiled()
    }
}

impl ModuleCompiler {
    fn compiler(&self) -> Result<&Compiler, Refusal> {
        let compiler = self.compiler.get_or_init(|| {
            Compiler::new(&self.lines, self.tracer.as_ref()).map_err(|error| error_text(&error))
        });
        compiler
            .as_ref()
            .map_err(|error| Refusal::Unable(error.clone()))
    }

    fn compile(&self, code: &[u8]) -> Result<Compiled, Refusal> {
        let unable = |error: &Error| Refusal::Unable(error_text(error));
        let report = inspect(code).map_err(Refusal::Bad)?;
        report.version.map_or(Ok(()), check_version)?;
        let engine = self.compiler()?;
        let dirty = report
            .stores
            .then(|| DirtyPages::new(report.memory_bytes_max));
        let tracer = self.tracer.as_ref();
        let stacks = tracer.map(|tracer| Stacks::new(tracer, code, report.unused));
        let deployed = code;
        let Rewritten {
            mut code,
            mask,
            stack_budget,
            data,
            keeps_data,
        } = rewrite(deployed, dirty, report.needs())
            .map_err(|error| Refusal::Unable(error.to_string()))?;
        if engine.maps {
            perf_map::add_names(&mut code, deployed, report.unused);
        }
        // The checks before have found every fault of the code. So a failure of the compiler is a
        // problem of this node only.
        let module = Module::new(&engine.engine, &code).map_err(|error| unable(&error))?;
        let pre = engine
            .linker
            .instantiate_pre(&module)
            .map_err(|error| unable(&error))?;
        let compiled = Compiled {
            pre,
            report,
            mask,
            stack_budget,
            data,
            keeps_data,
            initial_memory: OnceLock::new(),
            warm: Arc::clone(&self.warm),
            stacks,
        };
        if compiled.report.version.is_none() {
            check_version(compiled.call_version()?)?;
        }
        Ok(compiled)
    }
}

impl ProgramHost for WasmtimeHost {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash(abi::sha256(code))
    }

    fn admit(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        check_meter(setup.meter)?;
        let module = self.modules.get(self.hash(code), || {
            let (module_compiler, code) = (Arc::clone(&self.module_compiler), code.to_vec());
            move || module_compiler.compile(&code)
        })?;
        Code::Ready(module).bind(setup)
    }

    fn keep_rejection(&self, code: &[u8]) -> Option<Arc<str>> {
        // Only a version that must be computed needs the compiler.
        inspect(code)
            .ok()
            .filter(|report| report.version.is_none())?;
        self.modules.keep_rejection(self.hash(code))
    }

    fn restore(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        check_meter(setup.meter)?;
        let hash = self.hash(code);
        let code = match self.modules.find(hash) {
            Some(known) => Code::Ready(known?),
            None => Code::Restored(self.restored.add(hash, code, self)?),
        };
        code.bind(setup)
    }

    fn compile_restored(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        self.restored.compile_next(first)
    }

    fn is_deferred(&self, code: CodeHash) -> bool {
        self.restored.has(code)
    }

    fn on_deep_stack(&self, work: &mut dyn FnMut()) {
        on_deep_stack(work);
    }

    fn fingerprint(&self) -> String {
        format!(
            "wasmtime {WASMTIME_VERSION} {} meter {METER}{}",
            std::env::consts::ARCH,
            cpu_features()
        )
    }
}

/// Features of this CPU that change the compiled code, each followed by a space.
fn cpu_features() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! found {
            ($($name:tt)*) => {
                [$(($name, std::arch::is_x86_feature_detected!($name))),*]
            };
        }
        let features = found!(
            "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "avx" "avx2" "fma" "bmi1" "bmi2" "lzcnt"
            "avx512f" "avx512dq" "avx512vl" "avx512bitalg" "avx512vbmi"
        );
        let names = features.iter().filter(|(_, is_found)| *is_found);
        names.flat_map(|(name, _)| [" ", *name]).collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    String::new()
}

impl Compiled {
    fn start(&self) -> Result<LiveInstance, Error> {
        let mut store = Store::new(self.pre.module().engine(), Data::default());
        store.limiter(|data| data);
        store.set_fuel(limits::VERSION_FUEL)?;
        let instance = self.pre.instantiate(&mut store)?;
        let missing = || Error::msg("an export that was checked is not there");
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(missing)?;
        for (at, bytes) in &self.data {
            memory.write(&mut store, *at, bytes)?;
        }
        store.data_mut().memory = Some(memory);
        store.data_mut().dirty = DirtyPages::new(self.report.memory_bytes_max);
        let apply = instance.get_typed_func(&mut store, abi::entry_name(Entry::Apply))?;
        let mut globals = Vec::with_capacity(self.report.globals.len());
        for index in &self.report.globals {
            let global = global(&instance, &mut store, *index).ok_or_else(missing)?;
            let value = global.get(&mut store);
            globals.push((global, value));
        }
        let mask = match self.mask {
            Some(index) => Some(global(&instance, &mut store, index).ok_or_else(missing)?),
            None => None,
        };
        self.initial_memory.get_or_init(|| {
            let memory = memory.data(&store);
            let first = if self.keeps_data {
                InitialMemory::of_memory(memory)
            } else {
                InitialMemory::of_segments(memory, &self.data)
            };
            let kept = self.warm.count_bytes(first.bytes_used());
            (first, kept)
        });
        Ok(LiveInstance {
            store,
            memory,
            globals,
            mask,
            charged: 0,
            apply,
            instance,
            usage: self.warm.count_instance(self.report.memory_bytes),
        })
    }

    /// Calls the function that returns the version of the interface, in a new instance.
    fn call_version(&self) -> Result<i32, Refusal> {
        let unable = |error: &Error| Refusal::Unable(error_text(error));
        let mut live = self.start().map_err(|error| unable(&error))?;
        let LiveInstance {
            store, instance, ..
        } = &mut live;
        let version = instance
            .get_typed_func::<(), i32>(&mut *store, abi::VERSION_NAME)
            .map_err(|error| unable(&error))?;
        version.call(&mut *store, ()).map_err(|error| {
            let overflowed = overflowed(self.stack_budget, instance, store);
            // A problem of this node is no property of the module.
            if let Trap::Unable(why) = trap_of(&error, store.data().stop, overflowed) {
                return Refusal::Unable(why);
            }
            Refusal::Bad("weir_abi fails or does not return".to_owned())
        })
    }
}

/// A global that [`rewrite`] has exported.
fn global(instance: &Instance, store: &mut Store<Data>, index: u32) -> Option<Global> {
    match instance.get_export(store, &global_name(index)) {
        Some(Extern::Global(global)) => Some(global),
        _ => None,
    }
}

impl RunningProgram {
    /// The kept instance, or a new one with the state of the context.
    fn instance(&mut self, context: &CallContext) -> Result<Box<LiveInstance>, Trap> {
        if let Some(live) = self.live.take() {
            return Ok(live);
        }
        let unable = |error: Error| Trap::Unable(format!("no instance: {error:#}"));
        let module = self.code.compiled()?;
        let mut live = Box::new(module.start().map_err(unable)?);
        if self.mode == StateMode::Memory
            && !context.image().memory.is_empty()
            && let Some((first, _)) = module.initial_memory.get()
        {
            load(&mut live, first, context).map_err(unable)?;
        }
        Ok(live)
    }

    /// Restores the initial state of the instance; `None` if the topic needs a new instance.
    /// Charges the topic for the restored memory or for the new instance. `used` is the fuel of
    /// the call.
    fn reset(
        &self,
        mut live: Box<LiveInstance>,
        used: u64,
        context: &mut CallContext,
    ) -> Option<Box<LiveInstance>> {
        let report = self.code.report();
        let (first, _) = self.code.initial_memory()?;
        if report.changes_segments || live.memory.data_size(&live.store) != first.len() {
            self.charge_replacement(&mut live, used, context);
            return None;
        }
        let written = live.take_marks();
        context.consume_fuel(instance_fuel::restore_fuel(instance_fuel::bytes_of(
            written.clone(),
        )));
        let memory = live.memory.data_mut(&mut live.store);
        written.for_each(|part| first.restore(part, memory));
        let LiveInstance { store, globals, .. } = &mut *live;
        for (global, value) in globals.iter().filter(|_| report.sets_globals) {
            global.set(&mut *store, *value).ok()?;
        }
        Some(live)
    }

    fn charge_replacement(&self, live: &mut LiveInstance, used: u64, context: &mut CallContext) {
        let memory = live.memory.data_size(&live.store) as u64;
        let written = instance_fuel::bytes_of(live.take_marks());
        let kept = context.image().memory.pages().count() as u64;
        let report = self.code.report();
        context.consume_fuel(instance_fuel::replacement_fuel(
            report, used, memory, written, kept,
        ));
    }
}

/// Returns the instance if it may be kept for its next call.
fn keep_if_allowed(mut live: Box<LiveInstance>) -> Option<Box<LiveInstance>> {
    let bytes = live.memory.data_size(&live.store) as u64;
    live.usage.may_be_kept(bytes).then_some(live)
}

impl LiveInstance {
    /// Bytes that are marked and not charged yet. They will be compared or restored at the end of
    /// the intention.
    fn uncharged_bytes(&mut self) -> u64 {
        let Self { store, mask, .. } = self;
        let bits = mask.as_ref().and_then(|mask| mask.get(&mut *store).i64());
        let mut dirty = store.data().dirty;
        dirty.bits |= bits.map_or(0, i64::cast_unsigned);
        dirty.bits &= !std::mem::replace(&mut self.charged, dirty.bits);
        instance_fuel::bytes_of(dirty.take(self.memory.data_size(&self.store)))
    }

    /// Removes the marks. Returns the parts of the memory that may have been written since the last
    /// removal.
    fn take_marks(&mut self) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let Self {
            store,
            memory,
            mask,
            charged,
            ..
        } = self;
        let mut dirty = store.data().dirty;
        *charged = 0;
        if let Some(mask) = mask {
            // The global is an i64. If it were not, every part would count as written.
            let bits = mask.get(&mut *store).i64();
            dirty.bits |= bits.map_or(u64::MAX, i64::cast_unsigned);
            drop(mask.set(&mut *store, Val::I64(0)));
        }
        let written = dirty.take(memory.data_size(&*store));
        store.data_mut().dirty = dirty;
        written
    }

    fn put_globals(&mut self, image: &Image) -> Result<(), Error> {
        let Self { store, globals, .. } = self;
        for ((global, first), bits) in globals.iter().zip(&image.globals) {
            global.set(&mut *store, of_bits(first, *bits))?;
        }
        Ok(())
    }

    /// Whether the state of `image` can be restored into this instance: the image is not empty, and
    /// the memory has the same size.
    fn is_like(&self, image: &Image) -> bool {
        !image.memory.is_empty() && self.memory.data_size(&self.store) == image.memory.len()
    }

    /// Restores the memory and the globals of `image`. Returns `false` if a new instance is needed.
    fn restore(&mut self, image: &Image) -> bool {
        if !self.is_like(image) {
            return false;
        }
        let written = self.take_marks();
        let memory = self.memory.data_mut(&mut self.store);
        written.for_each(|part| image.memory.restore(part, memory));
        self.put_globals(image).is_ok()
    }
}

/// Restores the memory and the globals of the last successful call.
fn load(
    live: &mut LiveInstance,
    first: &InitialMemory,
    context: &CallContext,
) -> Result<(), Error> {
    let image = context.image();
    let now = live.memory.data_size(&live.store);
    if let Some(more) = image.memory.len().checked_sub(now)
        && more > 0
    {
        live.memory
            .grow(&mut live.store, more as u64 / PAGE_BYTES)?;
    }
    let memory = live.memory.data_mut(&mut live.store);
    if memory.len() != image.memory.len() {
        return Err(Error::msg("memory of another size"));
    }
    first.clear(memory);
    image.memory.copy_to(memory);
    live.put_globals(image)
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is the value")]
fn of_bits(kind: &Val, bits: u64) -> Val {
    match kind {
        Val::I64(_) => Val::I64(bits.cast_signed()),
        Val::F32(_) => Val::F32(bits as u32),
        Val::F64(_) => Val::F64(bits),
        _ => Val::I32((bits as u32).cast_signed()),
    }
}

fn to_bits(value: &Val) -> u64 {
    match value {
        Val::I32(n) => u64::from(n.cast_unsigned()),
        Val::I64(n) => n.cast_unsigned(),
        Val::F32(bits) => u64::from(*bits),
        Val::F64(bits) => *bits,
        _ => 0,
    }
}

impl Program for RunningProgram {
    fn facts(&self) -> Facts {
        self.code.report().facts
    }

    fn fits(&self, setup: &Setup) -> Result<(), String> {
        self.code.report().fits(setup)
    }

    fn accepts(&self, image: &Image) -> bool {
        self.code.report().accepts(image)
    }

    fn judge(
        &mut self,
        entry: Entry,
        fuel: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap> {
        let unable = |error: &Error| Trap::Unable(format!("{error:#}"));
        let mut live = self.instance(context)?;
        let LiveInstance {
            store,
            apply,
            instance,
            ..
        } = &mut *live;
        store.set_fuel(fuel).map_err(|error| unable(&error))?;
        // The function of ordinary calls is cached in the instance. Copying its handle would cost
        // more than calling it.
        let other = match entry {
            Entry::Apply => None,
            other => Some(
                instance
                    .get_typed_func(&mut *store, abi::entry_name(other))
                    .map_err(|error| unable(&error))?,
            ),
        };
        let function = other.as_ref().unwrap_or(apply);
        std::mem::swap(context, &mut store.data_mut().context);
        let returned = on_deep_stack(|| function.call(&mut *store, ()));
        std::mem::swap(context, &mut store.data_mut().context);
        let left = store.get_fuel().map_err(|error| unable(&error))?;
        match returned {
            Ok(code) => {
                let used = fuel - left.min(fuel);
                context.consume_fuel(used);
                self.live = if self.mode == StateMode::Memory {
                    if code == 0 || live.is_like(context.image()) {
                        context.consume_fuel(instance_fuel::restore_fuel(live.uncharged_bytes()));
                        Some(live)
                    } else {
                        // The changes of the call are not kept and cannot be reverted.
                        self.charge_replacement(&mut live, used, context);
                        None
                    }
                } else {
                    self.reset(live, used, context).and_then(keep_if_allowed)
                };
                decision(code)
            }
            Err(error) => {
                // The state of the instance is unknown, so it is dropped.
                let overflowed = overflowed(self.code.stack_budget(), instance, store);
                let trap = trap_of(&error, store.data().stop, overflowed);
                if let Some(stacks) = self.code.stacks() {
                    stacks.record(&error, context);
                }
                let used = match trap {
                    Trap::OutOfFuel => fuel,
                    _ => fuel - left.min(fuel),
                };
                context.consume_fuel(used);
                self.charge_replacement(&mut live, used, context);
                Err(trap)
            }
        }
    }

    fn end_intention(&mut self, kept: bool, context: &mut CallContext) {
        if self.mode != StateMode::Memory {
            return;
        }
        let Some(mut live) = self.live.take() else {
            return;
        };
        if kept {
            let written = live.take_marks();
            let LiveInstance {
                store,
                memory,
                globals,
                ..
            } = &mut *live;
            context.keep_memory(memory.data(&*store), written);
            let values = globals.iter().map(|(global, _)| global.get(&mut *store));
            context.keep_globals(values.map(|value| to_bits(&value)));
        } else if !live.restore(context.image()) {
            // The calls were successful, but the intention was rejected for another reason.
            self.charge_replacement(&mut live, context.fuel(), context);
            return;
        }
        self.live = keep_if_allowed(live);
    }

    fn fork(&self) -> Box<dyn Program> {
        Box::new(Self {
            code: self.code.clone(),
            mode: self.mode,
            live: None,
        })
    }
}

/// Checks the number of a meter. This build has only one: fuel as this version of the engine counts
/// it.
pub(crate) fn check_meter(meter: u32) -> Result<(), Refusal> {
    if meter == METER {
        return Ok(());
    }
    Err(Refusal::Unable(format!(
        "its fuel is counted by meter {meter}, and this build has only meter {METER}"
    )))
}

pub(crate) fn decision(code: i32) -> Result<Decision, Trap> {
    match u16::try_from(code) {
        Ok(0) => Ok(Decision::Accept),
        Ok(code) => Ok(Decision::Reject(code)),
        Err(_) => Err(Trap::Trapped(TrapKind::Return)),
    }
}

/// Runs `work`, which may call a program. Switches to another stack if the current stack has too
/// little space for the deepest calls that the meter allows.
fn on_deep_stack<R>(work: impl FnOnce() -> R) -> R {
    const NEEDED: usize = limits::NATIVE_STACK_BYTES_MAX + limits::HOST_STACK_BYTES;
    const { assert!(NEEDED + limits::HOST_STACK_BYTES < PROGRAM_STACK_BYTES) };
    stacker::maybe_grow(NEEDED, NEEDED + limits::HOST_STACK_BYTES, work)
}

/// Whether the stack meter stopped a call.
fn overflowed(stack_budget: Option<u32>, instance: &Instance, store: &mut Store<Data>) -> bool {
    let stack_budget = stack_budget.and_then(|index| global(instance, store, index));
    let left = stack_budget.and_then(|stack_budget| stack_budget.get(store).i32());
    left.is_some_and(|left| left < 0)
}

fn trap_of(error: &Error, stop: Option<Stop>, overflowed: bool) -> Trap {
    use wasmtime::Trap as T;
    match stop {
        Some(Stop::Trap(kind)) => return Trap::Trapped(kind),
        Some(Stop::Limit(max)) => return Trap::Limit(max),
        Some(Stop::OutOfFuel) => return Trap::OutOfFuel,
        None => {}
    }
    Trap::Trapped(match error.downcast_ref::<T>() {
        Some(T::OutOfFuel) => return Trap::OutOfFuel,
        Some(T::UnreachableCodeReached) if overflowed => TrapKind::Stack,
        Some(T::MemoryOutOfBounds) => TrapKind::Memory,
        Some(T::TableOutOfBounds) => TrapKind::Table,
        Some(T::IndirectCallToNull) => TrapKind::NullCall,
        Some(T::BadSignature) => TrapKind::Signature,
        Some(T::IntegerOverflow) => TrapKind::Overflow,
        Some(T::IntegerDivisionByZero) => TrapKind::Division,
        Some(T::BadConversionToInteger) => TrapKind::Conversion,
        Some(T::UnreachableCodeReached) => TrapKind::Unreachable,
        // An overflow of the native stack is not an outcome.
        _ => return Trap::Unable(error_text(error)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::format_collect, reason = "tests")]
mod tests {
    use super::*;
    use crate::rewrite::RequiredParts;

    /// Bytes of native stack in these measurements.
    const STACK_BYTES: usize = 2 << 20;

    /// Bytes of the native frame of `$deep`, and its units. `$deep` calls itself without end and
    /// counts in `$n`. `parts` has the rest of the module.
    fn frame(parts: &str) -> Option<(u64, u64)> {
        let text = format!(
            r#"(module (memory (export "memory") 1 1) (global $n (export "n") (mut i32) (i32.const 0))
            (global $s (mut i32) (i32.const 0))
            (func (export "weir_abi") (result i32) i32.const 1)
            (type $kinds (func)) (func $f (result i64) (i64.load (i32.const 8)))
            {parts})"#
        );
        let code = wat::parse_str(text).unwrap();
        // Some modules exceed the limit of compilation cost.
        let report = inspect(&code).ok()?;
        let units = report.frames.iter().max().copied().unwrap();
        // Compiled as usual, but without the meter.
        let dirty = report
            .stores
            .then(|| DirtyPages::new(report.memory_bytes_max));
        let needs = RequiredParts {
            frames: &[],
            ..report.needs()
        };
        let code = rewrite(&code, dirty, needs).unwrap().code;
        let engine = Engine::new(&config(STACK_BYTES)).unwrap();
        let module = Module::new(&engine, code).unwrap();
        let mut store = Store::new(&engine, ());
        store.set_fuel(1_000_000_000).unwrap();
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let apply = instance.get_typed_func::<(), i32>(&mut store, "weir_apply");
        let ended = on_deep_stack(|| apply.unwrap().call(&mut store, ()).unwrap_err());
        let trap = ended.downcast_ref::<wasmtime::Trap>();
        assert_eq!(trap, Some(&wasmtime::Trap::StackOverflow));
        let calls = instance.get_global(&mut store, "n").unwrap();
        let calls = calls.get(&mut store).i32().unwrap();
        let bytes = STACK_BYTES as u64 / u64::from(calls.cast_unsigned());
        Some((bytes, units.into()))
    }

    /// A `weir_apply` that calls itself between `begin` and `end`.
    fn deep(locals: &str, begin: &str, end: &str) -> String {
        format!(
            r#"(func $deep (export "weir_apply") (result i32) {locals} {begin}
            (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (drop (call $deep)) {end} (i32.const 0))"#
        )
    }

    fn each(count: usize, what: impl Fn(usize) -> String) -> String {
        (0..count).map(what).collect()
    }

    /// Modules whose frames are large in relation to their units.
    fn wide_frames() -> Vec<(String, String)> {
        let mut all = vec![("smallest".to_owned(), deep("", "", ""))];
        for (kind, load, test) in [
            ("i32", "i32.load", "i32.eqz"),
            ("i64", "i64.load", "i64.eqz"),
            ("f64", "f64.load", "i32.trunc_sat_f64_s"),
            ("v128", "v128.load", "v128.any_true"),
        ] {
            for count in [5, 50, 500, 4000] {
                let locals = format!("(local {})", format!("{kind} ").repeat(count));
                let set = |n: usize| format!("(local.set {n} ({load} (i32.const 8)))");
                let get = |n: usize| format!("(global.set $s ({test} (local.get {n})))");
                let body = deep(&locals, &each(count, set), &each(count, get));
                all.push((format!("{count} variables of {kind}"), body));
                // The values are on the operand stack.
                let push = |_| format!("({load} (i32.const 8))");
                let pop = |_| format!("{test} global.set $s ");
                let body = deep("", &each(count, push), &each(count, pop));
                all.push((format!("{count} values of {kind}"), body));
            }
        }
        // Nine values stay live throughout. Each of many more values lives across one call together
        // with the value before it. This needs a slot for each, unless the compiler reuses slots.
        for (kind, convert, test) in [
            ("i64", "", "i64.eqz"),
            ("f64", "f64.reinterpret_i64", "i32.trunc_sat_f64_s"),
        ] {
            for count in [100, 3000] {
                let locals = format!("(local {})", format!("{kind} ").repeat(11));
                let set = |n: usize| format!("call $f {convert} local.set {n} ");
                let get = |n: usize| format!("local.get {n} {test} global.set $s ");
                let long = each(9, set);
                let chain = each(count, |n| set(9 + n % 2) + &get(9 + (n + 1) % 2));
                let body = deep(&locals, &(long + &chain), &each(11, get));
                all.push((format!("a chain of {count} {kind}"), body));
            }
        }
        // Functions with many results.
        let results = "f64 ".repeat(16);
        let loads = "(f64.load (i32.const 8))".repeat(16);
        let many = format!("(func $many (result {results}) {loads})");
        let calls = each(200, |_| "call $many ".to_owned());
        let drops = each(3200, |_| "i32.trunc_sat_f64_s global.set $s ".to_owned());
        all.push(("results".to_owned(), many + &deep("", &calls, &drops)));
        // Variables that have different values at the end of each of many blocks.
        let locals = format!("(local {})", "i64 ".repeat(60));
        let set = |n: usize| format!("(local.set {n} (call $f))");
        let leave = |n: usize| format!("(br_if {} (i32.wrap_i64 (call $f)))", n % 60);
        let blocks = "block ".repeat(60);
        let sets = each(60, |n| set(n) + &leave(n));
        let ends = each(60, |n| format!("end {}", set((n * 7) % 60)));
        let gets = each(60, |n| format!("(global.set $s (i64.eqz (local.get {n})))"));
        all.push((
            "blocks".to_owned(),
            deep(&locals, &(blocks + &sets + &ends), &gets),
        ));
        let loops = each(40, |n| format!("(loop {} {})", set(n), leave(0)));
        all.push(("loops".to_owned(), deep(&locals, &loops, &gets)));
        // Functions with many arguments.
        for kind in ["i64", "f64", "v128"] {
            let types = format!("{kind} ").repeat(128);
            let zero = format!("({kind}.load (i32.const 8))").repeat(128);
            let args = each(128, |n| format!("local.get {n} "));
            let deep = format!(
                r#"(func $deep (param {types}) (global.set $n (i32.add (global.get $n) (i32.const 1)))
                {args} (call $deep) {args} (call $deep))
                (func (export "weir_apply") (result i32) {zero} (call $deep) (i32.const 0))"#
            );
            all.push((format!("arguments of {kind}"), deep));
        }
        all
    }

    /// The native stack has twice the space that the meter allows, for every kind of frame.
    #[test]
    fn a_frame_is_within_its_units() {
        let allowed = limits::NATIVE_STACK_BYTES_MAX as u64 / u64::from(limits::STACK_UNITS_MAX);
        let (mut worst, mut measured) = ((0, String::new()), 0);
        for (name, parts) in wide_frames() {
            let Some((bytes, units)) = frame(&parts) else {
                continue;
            };
            measured += 1;
            println!("{bytes:>7} bytes {units:>7} units  {name}");
            worst = worst.max((bytes * 100 / units, name));
        }
        assert!(measured > 30, "{measured}");
        assert!(
            worst.0 * 2 <= allowed * 100,
            "{worst:?} hundredths of a byte for a unit"
        );
    }
}
