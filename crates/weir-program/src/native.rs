//! Programs on wasmtime: compiled, metered, one warm instance for each topic.

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
use crate::first::First;
use crate::fresh;
use crate::host::{Cache, CountedBytes, CountedInstance, Warm, limits, speaks};
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
    maker: Arc<Maker>,
    modules: Arc<Cache<Compiled>>,
    restored: Restored,
}

/// Makes modules.
#[derive(Default)]
struct Maker {
    /// Made when the first program comes.
    compiler: OnceLock<Result<Compiler, String>>,
    warm: Arc<Warm>,
    /// What programs say.
    lines: Arc<Lines>,
    /// Writes down what they ask for.
    tracer: Option<Arc<Tracer>>,
}

struct Compiler {
    engine: Engine,
    linker: Linker<Data>,
    /// `perf` is told what functions are called.
    maps: bool,
}

impl std::fmt::Debug for WasmtimeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmtimeHost").finish_non_exhaustive()
    }
}

/// What the host functions work on. The context is here only during a call.
#[derive(Default)]
struct Data {
    context: Box<CallContext>,
    memory: Option<Memory>,
    /// Why a host function ended the call.
    stop: Option<Stop>,
    /// What host functions wrote into the guest's memory.
    dirty: DirtyPages,
}

impl Data {
    fn wrote(&mut self, (at, bytes): (usize, usize)) {
        self.dirty.add(at, bytes);
    }
}

/// A memory grows as far as its module says and no further (Z3): where this
/// machine has none left, the node stops instead of telling the program.
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
    /// Index of the global in which the module marks what it wrote; none when
    /// it has no instruction that writes.
    mask: Option<u32>,
    /// Index of the global with the units of stack that are left.
    room: Option<u32>,
    /// What is copied into the memory of a fresh instance: where, and what.
    data: Vec<(usize, Vec<u8>)>,
    /// Data segments are in the module.
    keeps_data: bool,
    /// The memory of a fresh instance; its room is counted.
    first: OnceLock<(First, CountedBytes)>,
    warm: Arc<Warm>,
    /// Keeps where calls fail, on a host with a tracer.
    stacks: Option<Stacks>,
}

struct Live {
    store: Store<Data>,
    memory: Memory,
    /// Mutable globals with their first values, in order of their index.
    globals: Vec<(Global, Val)>,
    mask: Option<Global>,
    /// Pieces whose writes are paid for (mode `memory`).
    paid: u64,
    apply: TypedFunc<(), i32>,
    instance: Instance,
    place: CountedInstance,
}

struct Running {
    code: Code,
    mode: StateMode,
    live: Option<Box<Live>>,
}

/// What decides how modules are compiled, and how they run.
fn config(stack_bytes_max: usize) -> Config {
    let mut cost = OperatorCost::new();
    // It leaves the program, as a host call does, and may well fail: two
    // million of them at the price of an addition take a third of a second.
    cost.MemoryGrow = GROW_FUEL;
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .operator_cost(cost)
        .cranelift_nan_canonicalization(true)
        // Modules come optimised from their own compilers: once more makes
        // calls faster by a hundredth, and deploying twice as dear.
        .cranelift_opt_level(OptLevel::None)
        // Nobody asks where in a module a trap was.
        .generate_address_map(false)
        .native_unwind_info(false)
        // The host fills memories itself; an image takes a descriptor.
        .memory_init_cow(false)
        .max_wasm_stack(stack_bytes_max)
        // Nothing is asynchronous; the engine compares the two all the same.
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

fn said(error: &Error) -> String {
    format!("{error:#}")
}

impl WasmtimeHost {
    /// A host that writes down what programs ask for. It gives the same
    /// outcomes at the same fuel, more slowly.
    #[must_use]
    pub fn traced(tracer: Arc<Tracer>) -> Self {
        let maker = Maker {
            tracer: Some(tracer),
            ..Maker::default()
        };
        Self {
            maker: Arc::new(maker),
            ..Self::default()
        }
    }

    /// The newest lines that programs wrote with `log` on this host, oldest
    /// first, and how many were left out because they came too fast.
    #[must_use]
    pub fn lines(&self) -> (Vec<LogLine>, u64) {
        self.maker.lines.read()
    }

    /// How many modules were compiled, those that turned out to be none
    /// included.
    #[must_use]
    pub fn compiled(&self) -> u64 {
        self.modules.compiled()
    }
}

impl Maker {
    fn compiler(&self) -> Result<&Compiler, Refusal> {
        let compiler = self.compiler.get_or_init(|| {
            Compiler::new(&self.lines, self.tracer.as_ref()).map_err(|error| said(&error))
        });
        compiler
            .as_ref()
            .map_err(|error| Refusal::Unable(error.clone()))
    }

    fn compile(&self, code: &[u8]) -> Result<Compiled, Refusal> {
        let unable = |error: &Error| Refusal::Unable(said(error));
        let report = inspect(code).map_err(Refusal::Bad)?;
        report.version.map_or(Ok(()), speaks)?;
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
            room,
            data,
            keeps_data,
        } = rewrite(deployed, dirty, report.needs())
            .map_err(|error| Refusal::Unable(error.to_string()))?;
        if engine.maps {
            perf_map::add_names(&mut code, deployed, report.unused);
        }
        // What is wrong with the code was found before: the compiler decides
        // nothing, so what it cannot do is this node's own trouble.
        let module = Module::new(&engine.engine, &code).map_err(|error| unable(&error))?;
        let pre = engine
            .linker
            .instantiate_pre(&module)
            .map_err(|error| unable(&error))?;
        let compiled = Compiled {
            pre,
            report,
            mask,
            room,
            data,
            keeps_data,
            first: OnceLock::new(),
            warm: Arc::clone(&self.warm),
            stacks,
        };
        if compiled.report.version.is_none() {
            let mut live = compiled.start().map_err(|error| unable(&error))?;
            let spoken = version(&mut live)
                .map_err(|_| Refusal::Bad("weir_abi fails or does not return".to_owned()))?;
            speaks(spoken)?;
        }
        Ok(compiled)
    }
}

impl ProgramHost for WasmtimeHost {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash(abi::sha256(code))
    }

    fn admit(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        counts_by(setup.meter)?;
        let module = self.modules.get(self.hash(code), || {
            let (maker, code) = (Arc::clone(&self.maker), code.to_vec());
            move || maker.compile(&code)
        })?;
        Code::Ready(module).bind(setup)
    }

    fn restore(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        counts_by(setup.meter)?;
        let hash = self.hash(code);
        let code = match self.modules.find(hash) {
            Some(known) => Code::Ready(known?),
            None => Code::Later(self.restored.add(hash, code, self)?),
        };
        code.bind(setup)
    }

    fn compile_restored(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        self.restored.compile_next(first)
    }

    fn is_put_off(&self, code: CodeHash) -> bool {
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

/// Features of this CPU that change the code which the compiler makes, each after a
/// space.
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
    fn start(&self) -> Result<Live, Error> {
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
        self.first.get_or_init(|| {
            let memory = memory.data(&store);
            let first = if self.keeps_data {
                First::of_memory(memory)
            } else {
                First::of_segments(memory, &self.data)
            };
            let kept = self.warm.keep(first.taken());
            (first, kept)
        });
        Ok(Live {
            store,
            memory,
            globals,
            mask,
            paid: 0,
            apply,
            instance,
            place: self.warm.place(self.report.memory_bytes),
        })
    }
}

/// A global that [`rewrite`] exported.
fn global(instance: &Instance, store: &mut Store<Data>, index: u32) -> Option<Global> {
    match instance.get_export(store, &global_name(index)) {
        Some(Extern::Global(global)) => Some(global),
        _ => None,
    }
}

/// Asks for the version of the interface that the module speaks.
fn version(live: &mut Live) -> Result<i32, Error> {
    let Live {
        store, instance, ..
    } = live;
    let version = instance.get_typed_func::<(), i32>(&mut *store, abi::VERSION_NAME)?;
    version.call(store, ())
}

impl Running {
    /// The warm instance, or a fresh one in the state that the context knows.
    fn instance(&mut self, context: &CallContext) -> Result<Box<Live>, Trap> {
        if let Some(live) = self.live.take() {
            return Ok(live);
        }
        let unable = |error: Error| Trap::Unable(format!("no instance: {error:#}"));
        let module = self.code.compiled()?;
        let mut live = Box::new(module.start().map_err(unable)?);
        if self.mode == StateMode::Memory
            && !context.image().memory.is_empty()
            && let Some((first, _)) = module.first.get()
        {
            load(&mut live, first, context).map_err(unable)?;
        }
        Ok(live)
    }

    /// Makes the instance as good as new; `None` when only a new one is. The
    /// topic pays for either, after a call that used so much fuel.
    fn reset(
        &self,
        mut live: Box<Live>,
        used: u64,
        context: &mut CallContext,
    ) -> Option<Box<Live>> {
        let report = self.code.report();
        let (first, _) = self.code.first()?;
        if report.changes_segments || live.memory.data_size(&live.store) != first.len() {
            self.pay_for_another(&mut live, used, context);
            return None;
        }
        let written = live.take_marks();
        context.burn(fresh::put_back(fresh::bytes_of(written.clone())));
        let memory = live.memory.data_mut(&mut live.store);
        written.for_each(|part| first.restore(part, memory));
        let Live { store, globals, .. } = &mut *live;
        for (global, value) in globals.iter().filter(|_| report.sets_globals) {
            global.set(&mut *store, *value).ok()?;
        }
        Some(live)
    }

    fn pay_for_another(&self, live: &mut Live, used: u64, context: &mut CallContext) {
        let memory = live.memory.data_size(&live.store) as u64;
        let written = fresh::bytes_of(live.take_marks());
        let kept = context.image().memory.pages().count() as u64;
        let report = self.code.report();
        context.burn(fresh::renewal(report, used, memory, written, kept));
    }
}

/// The instance, if there is room for it to wait for its next call.
fn stays(mut live: Box<Live>) -> Option<Box<Live>> {
    let bytes = live.memory.data_size(&live.store) as u64;
    live.place.may_stay(bytes).then_some(live)
}

impl Live {
    /// Bytes that were marked and are not paid for: they will be looked through
    /// or put back when the intention is over.
    fn unpaid(&mut self) -> u64 {
        let Self { store, mask, .. } = self;
        let bits = mask.as_ref().and_then(|mask| mask.get(&mut *store).i64());
        let mut dirty = store.data().dirty;
        dirty.bits |= bits.map_or(0, i64::cast_unsigned);
        dirty.bits &= !std::mem::replace(&mut self.paid, dirty.bits);
        fresh::bytes_of(dirty.take(self.memory.data_size(&self.store)))
    }

    /// Removes the marks: the parts of the memory that may have been written
    /// since they were removed.
    fn take_marks(&mut self) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let Self {
            store,
            memory,
            mask,
            paid,
            ..
        } = self;
        let mut dirty = store.data().dirty;
        *paid = 0;
        if let Some(mask) = mask {
            // It is an i64; else everything counts as written.
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

    /// Whether it can have what `image` keeps: there is something, and the
    /// memory has not grown since.
    fn is_like(&self, image: &Image) -> bool {
        !image.memory.is_empty() && self.memory.data_size(&self.store) == image.memory.len()
    }

    /// Takes back what a call did to the memory and the globals of `image`;
    /// false when only a fresh instance can be trusted.
    fn put_back(&mut self, image: &Image) -> bool {
        if !self.is_like(image) {
            return false;
        }
        let written = self.take_marks();
        let memory = self.memory.data_mut(&mut self.store);
        written.for_each(|part| image.memory.restore(part, memory));
        self.put_globals(image).is_ok()
    }
}

/// Gives a fresh instance the memory and the globals of the last good call.
fn load(live: &mut Live, first: &First, context: &CallContext) -> Result<(), Error> {
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
    first.wipe(memory);
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

impl Program for Running {
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
        let Live {
            store,
            apply,
            instance,
            ..
        } = &mut *live;
        store.set_fuel(fuel).map_err(|error| unable(&error))?;
        // The function of every call is at hand; copying it would cost more
        // than calling it.
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
                context.burn(used);
                self.live = if self.mode == StateMode::Memory {
                    if code == 0 || live.is_like(context.image()) {
                        context.burn(fresh::put_back(live.unpaid()));
                        Some(live)
                    } else {
                        // What it did is not kept, and cannot be put back.
                        self.pay_for_another(&mut live, used, context);
                        None
                    }
                } else {
                    self.reset(live, used, context).and_then(stays)
                };
                decision(code)
            }
            Err(error) => {
                // The instance is thrown away: nobody knows what it holds.
                let overflowed = overflowed(self.code.room(), instance, store);
                let trap = why(&error, store.data().stop, overflowed);
                if let Some(stacks) = self.code.stacks() {
                    stacks.keep(&error, context);
                }
                let used = match trap {
                    Trap::OutOfFuel => fuel,
                    _ => fuel - left.min(fuel),
                };
                context.burn(used);
                self.pay_for_another(&mut live, used, context);
                Err(trap)
            }
        }
    }

    fn settle(&mut self, kept: bool, context: &mut CallContext) {
        if self.mode != StateMode::Memory {
            return;
        }
        let Some(mut live) = self.live.take() else {
            return;
        };
        if kept {
            let written = live.take_marks();
            let Live {
                store,
                memory,
                globals,
                ..
            } = &mut *live;
            context.keep_memory(memory.data(&*store), written);
            let values = globals.iter().map(|(global, _)| global.get(&mut *store));
            context.keep_globals(values.map(|value| to_bits(&value)));
        } else if !live.put_back(context.image()) {
            // The calls were good; something else refused the intention.
            self.pay_for_another(&mut live, context.fuel(), context);
            return;
        }
        self.live = stays(live);
    }

    fn fork(&self) -> Box<dyn Program> {
        Box::new(Self {
            code: self.code.clone(),
            mode: self.mode,
            live: None,
        })
    }
}

/// One meter is known: fuel as this version of the engine counts it.
pub(crate) fn counts_by(meter: u32) -> Result<(), Refusal> {
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

/// Runs what may call a program, on another stack if there is not enough left
/// of this one for the deepest calls that the meter allows.
fn on_deep_stack<R>(work: impl FnOnce() -> R) -> R {
    const NEEDED: usize = limits::NATIVE_STACK_BYTES_MAX + limits::HOST_STACK_BYTES;
    const { assert!(NEEDED + limits::HOST_STACK_BYTES < PROGRAM_STACK_BYTES) };
    stacker::maybe_grow(NEEDED, NEEDED + limits::HOST_STACK_BYTES, work)
}

/// Whether the stack meter stopped a call.
fn overflowed(room: Option<u32>, instance: &Instance, store: &mut Store<Data>) -> bool {
    let room = room.and_then(|index| global(instance, store, index));
    let left = room.and_then(|room| room.get(store).i32());
    left.is_some_and(|left| left < 0)
}

fn why(error: &Error, stop: Option<Stop>, overflowed: bool) -> Trap {
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
        // A native stack that overflows all the same is no outcome either.
        _ => return Trap::Unable(said(error)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::format_collect, reason = "tests")]
mod tests {
    use super::*;
    use crate::rewrite::Needs;

    /// Bytes of native stack that were measured for.
    const STACK_BYTES: usize = 2 << 20;

    /// Bytes of the native frame of `$deep`, which calls itself without end and
    /// counts in `$n`, and its units. What else the module has is in `parts`.
    fn frame(parts: &str) -> Option<(u64, u64)> {
        let text = format!(
            r#"(module (memory (export "memory") 1 1) (global $n (export "n") (mut i32) (i32.const 0))
            (global $s (mut i32) (i32.const 0))
            (func (export "weir_abi") (result i32) i32.const 1)
            (type $kinds (func)) (func $f (result i64) (i64.load (i32.const 8)))
            {parts})"#
        );
        let code = wat::parse_str(text).unwrap();
        // Some cost more to compile than is allowed.
        let report = inspect(&code).ok()?;
        let units = report.frames.iter().max().copied().unwrap();
        // As it is compiled, but for the meter.
        let dirty = report
            .stores
            .then(|| DirtyPages::new(report.memory_bytes_max));
        let needs = Needs {
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

    /// `weir_apply`, which calls itself between what begins and what ends it.
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

    /// Modules whose frames are large for their units.
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
                // On the operand stack.
                let push = |_| format!("({load} (i32.const 8))");
                let pop = |_| format!("{test} global.set $s ");
                let body = deep("", &each(count, push), &each(count, pop));
                all.push((format!("{count} values of {kind}"), body));
            }
        }
        // Nine values live all along, and each of many more lives across a call
        // with the one before it: a slot for each, if slots are not found again.
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
        // Results that come many at once.
        let results = "f64 ".repeat(16);
        let loads = "(f64.load (i32.const 8))".repeat(16);
        let many = format!("(func $many (result {results}) {loads})");
        let calls = each(200, |_| "call $many ".to_owned());
        let drops = each(3200, |_| "i32.trunc_sat_f64_s global.set $s ".to_owned());
        all.push(("results".to_owned(), many + &deep("", &calls, &drops)));
        // Variables that differ at the end of each of many blocks.
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
        // Arguments.
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

    /// The native stack holds twice what the meter allows, whatever the frames.
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
