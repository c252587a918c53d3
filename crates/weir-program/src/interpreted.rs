//! Runs programs with the interpreter wasmi, the second engine of the tests. This module
//! deliberately shares little code with the first engine, so that a bug in one engine appears as a
//! difference.

use std::sync::{Arc, OnceLock};

use wasmi::{
    Config, Engine, Error, Extern, Global, Instance, Linker, Memory, Module, Store, TrapCode,
    TypedFunc, Val,
};
use weir_core::call_context::{CallContext, Image, Stop};
use weir_core::program::{Decision, Entry, Program, ProgramHost};
use weir_core::{CodeHash, Facts, Refusal, Setup, StateMode, Trap, TrapKind};

use crate::abi;
use crate::abi::PAGE_BYTES;
use crate::host::{Cache, CountedInstance, InstanceUsage, check_version, limits};
use crate::native::{check_meter, decision};
use crate::report::Report;
use crate::rewrite::{RequiredParts, Rewritten, global_name, rewrite};
use crate::validate::inspect;

/// Runs programs with wasmi. Cheap to share; all topics of a store use one.
#[derive(Default)]
pub struct WasmiHost {
    module_compiler: Arc<ModuleCompiler>,
    modules: Cache<Compiled>,
}

/// Compiles modules.
#[derive(Default)]
struct ModuleCompiler {
    /// Created with the first program.
    compiler: OnceLock<Result<Compiler, String>>,
    warm: Arc<InstanceUsage>,
}

struct Compiler {
    engine: Engine,
    linker: Arc<Linker<Data>>,
}

impl std::fmt::Debug for WasmiHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmiHost").finish_non_exhaustive()
    }
}

/// The data of host functions. The context is here only during a call.
#[derive(Default)]
struct Data {
    context: Box<CallContext>,
    memory: Option<Memory>,
    /// Why a host function stopped the call.
    stop: Option<Stop>,
    /// Whether a host function wrote into the memory of the guest.
    wrote: bool,
}

impl Data {
    fn wrote(&mut self, (_, bytes): (usize, usize)) {
        self.wrote |= bytes > 0;
    }
}

fn stopped(mut guest: wasmi::Caller<'_, Data>, stop: Stop) -> Error {
    guest.data_mut().stop = Some(stop);
    Error::new("stopped by the host")
}

/// A module that passed every rule.
struct Compiled {
    module: Module,
    linker: Arc<Linker<Data>>,
    report: Report,
    /// Index of the global with the remaining units of stack.
    stack_budget: Option<u32>,
    /// The memory of a new instance.
    initial: OnceLock<Vec<u8>>,
    warm: Arc<InstanceUsage>,
}

struct LiveInstance {
    store: Store<Data>,
    memory: Memory,
    /// Mutable globals with their initial values, in order of their index.
    globals: Vec<(Global, Val)>,
    apply: TypedFunc<(), i32>,
    instance: Instance,
    usage: CountedInstance,
}

struct RunningProgram {
    module: Arc<Compiled>,
    mode: StateMode,
    live: Option<Box<LiveInstance>>,
}

impl Compiler {
    fn new() -> Result<Self, Error> {
        let mut config = Config::default();
        config
            .consume_fuel(true)
            // Larger than the stack meter allows.
            .set_max_recursion_depth(limits::STACK_UNITS_MAX as usize)
            .set_max_stack_height(limits::STACK_UNITS_MAX as usize * 16)
            .wasm_relaxed_simd(false)
            .wasm_multi_memory(false)
            .wasm_tail_call(false);
        let engine = Engine::new(&config);
        let mut linker: Linker<Data> = Linker::new(&engine);
        let lines = Arc::default();
        abi::link_all!(wasmi, linker, stopped, &lines);
        let linker = Arc::new(linker);
        Ok(Self { engine, linker })
    }
}

impl ModuleCompiler {
    fn compiler(&self) -> Result<&Compiler, Refusal> {
        let compiler = self
            .compiler
            .get_or_init(|| Compiler::new().map_err(|error| error.to_string()));
        compiler
            .as_ref()
            .map_err(|error| Refusal::Unable(error.clone()))
    }

    fn compile(&self, code: &[u8]) -> Result<Compiled, Refusal> {
        let unable = |error: &Error| Refusal::Unable(format!("{error}"));
        let report = inspect(code).map_err(Refusal::Bad)?;
        report.version.map_or(Ok(()), check_version)?;
        let engine = self.compiler()?;
        let needs = RequiredParts {
            data: true,
            without: None,
            ..report.needs()
        };
        let Rewritten {
            code, stack_budget, ..
        } = rewrite(code, None, needs).map_err(|error| Refusal::Unable(error.to_string()))?;
        let module = Module::new(&engine.engine, &code).map_err(|error| unable(&error))?;
        let compiled = Compiled {
            module,
            linker: Arc::clone(&engine.linker),
            report,
            stack_budget,
            initial: OnceLock::new(),
            warm: Arc::clone(&self.warm),
        };
        if compiled.report.version.is_none() {
            let mut live = compiled.start().map_err(|error| unable(&error))?;
            let returned = version(&mut live)
                .map_err(|_| Refusal::Bad("weir_abi fails or does not return".to_owned()))?;
            check_version(returned)?;
        }
        Ok(compiled)
    }
}

impl ProgramHost for WasmiHost {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash(abi::sha256(code))
    }

    fn admit(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        check_meter(setup.meter)?;
        let module = self.modules.get(self.hash(code), || {
            let (module_compiler, code) = (Arc::clone(&self.module_compiler), code.to_vec());
            move || module_compiler.compile(&code)
        })?;
        module.report.fits(setup).map_err(Refusal::Bad)?;
        Ok(Box::new(RunningProgram {
            module,
            mode: setup.mode,
            live: None,
        }))
    }

    fn fingerprint(&self) -> String {
        "wasmi 2.0.0".to_owned()
    }
}

impl Compiled {
    fn start(&self) -> Result<LiveInstance, Error> {
        let mut store = Store::new(self.module.engine(), Data::default());
        store.set_fuel(limits::VERSION_FUEL)?;
        let instance = self
            .linker
            .instantiate_and_start(&mut store, &self.module)?;
        let missing = || Error::new("an export that was checked is not there");
        let memory = instance.get_memory(&store, "memory").ok_or_else(missing)?;
        store.data_mut().memory = Some(memory);
        let apply = instance.get_typed_func(&store, abi::entry_name(Entry::Apply))?;
        let mut globals = Vec::with_capacity(self.report.globals.len());
        for index in &self.report.globals {
            let export = instance.get_export(&store, &global_name(*index));
            let Some(Extern::Global(global)) = export else {
                return Err(missing());
            };
            let value = global.get(&store);
            globals.push((global, value));
        }
        self.initial.get_or_init(|| memory.data(&store).to_vec());
        Ok(LiveInstance {
            store,
            memory,
            globals,
            apply,
            instance,
            usage: self.warm.count_instance(self.report.memory_bytes),
        })
    }
}

/// Calls the function that returns the version of the interface.
fn version(live: &mut LiveInstance) -> Result<i32, Error> {
    let LiveInstance {
        store, instance, ..
    } = live;
    let version = instance.get_typed_func::<(), i32>(&*store, "weir_abi")?;
    version.call(store, ())
}

impl RunningProgram {
    /// The kept instance, or a new one with the state of the context.
    fn instance(&mut self, context: &CallContext) -> Result<Box<LiveInstance>, Trap> {
        if let Some(live) = self.live.take() {
            return Ok(live);
        }
        let unable = |error: Error| Trap::Unable(format!("no instance: {error}"));
        let mut live = Box::new(self.module.start().map_err(unable)?);
        if self.mode == StateMode::Memory && !context.image().memory.is_empty() {
            load(&mut live, context).map_err(unable)?;
        }
        Ok(live)
    }

    /// Restores the initial state of the instance; `None` if the topic needs a new instance.
    fn reset(&self, mut live: Box<LiveInstance>) -> Option<Box<LiveInstance>> {
        let report = &self.module.report;
        if report.changes_segments {
            return None;
        }
        let wrote = std::mem::take(&mut live.store.data_mut().wrote);
        if report.stores || wrote {
            let initial = self.module.initial.get()?;
            let memory = live.memory.data_mut(&mut live.store);
            if memory.len() != initial.len() {
                return None;
            }
            memory.copy_from_slice(initial);
        }
        let LiveInstance { store, globals, .. } = &mut *live;
        for (global, value) in globals.iter() {
            global.set(&mut *store, value.clone()).ok()?;
        }
        Some(live)
    }
}

/// Returns the instance if it may be kept for its next call.
fn keep_if_allowed(mut live: Box<LiveInstance>) -> Option<Box<LiveInstance>> {
    let bytes = live.memory.data_size(&live.store) as u64;
    live.usage.may_be_kept(bytes).then_some(live)
}

/// Restores the memory and the globals of the last successful call.
fn load(live: &mut LiveInstance, context: &CallContext) -> Result<(), Error> {
    let image = context.image();
    let now = live.memory.data(&live.store).len();
    if let Some(more) = image.memory.len().checked_sub(now)
        && more > 0
    {
        live.memory
            .grow(&mut live.store, more as u64 / PAGE_BYTES)?;
    }
    let memory = live.memory.data_mut(&mut live.store);
    if memory.len() != image.memory.len() {
        return Err(Error::new("memory of another size"));
    }
    memory.fill(0);
    image.memory.copy_to(memory);
    let LiveInstance { store, globals, .. } = live;
    for ((global, first), bits) in globals.iter().zip(&image.globals) {
        global.set(&mut *store, of_bits(first, *bits))?;
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is the value")]
fn of_bits(kind: &Val, bits: u64) -> Val {
    match kind {
        Val::I64(_) => Val::I64(bits.cast_signed()),
        Val::F32(_) => Val::F32(wasmi::F32::from_bits(bits as u32)),
        Val::F64(_) => Val::F64(wasmi::F64::from_bits(bits)),
        _ => Val::I32((bits as u32).cast_signed()),
    }
}

fn to_bits(value: &Val) -> u64 {
    match value {
        Val::I32(n) => u64::from(n.cast_unsigned()),
        Val::I64(n) => n.cast_unsigned(),
        Val::F32(value) => u64::from(value.to_bits()),
        Val::F64(value) => value.to_bits(),
        _ => 0,
    }
}

impl Program for RunningProgram {
    fn facts(&self) -> Facts {
        self.module.report.facts
    }

    fn fits(&self, setup: &Setup) -> Result<(), String> {
        self.module.report.fits(setup)
    }

    fn accepts(&self, image: &Image) -> bool {
        self.module.report.accepts(image)
    }

    fn judge(
        &mut self,
        entry: Entry,
        fuel: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap> {
        let unable = |error: &Error| Trap::Unable(format!("{error}"));
        let mut live = self.instance(context)?;
        let LiveInstance {
            store,
            apply,
            instance,
            ..
        } = &mut *live;
        store.set_fuel(fuel).map_err(|error| unable(&error))?;
        let function = match entry {
            Entry::Apply => *apply,
            other => instance
                .get_typed_func(&*store, abi::entry_name(other))
                .map_err(|error| unable(&error))?,
        };
        std::mem::swap(context, &mut store.data_mut().context);
        let returned = function.call(&mut *store, ());
        std::mem::swap(context, &mut store.data_mut().context);
        let left = store.get_fuel().map_err(|error| unable(&error))?;
        match returned {
            Ok(code) => {
                context.consume_fuel(fuel - left.min(fuel));
                self.live = match self.mode {
                    StateMode::Memory => Some(live),
                    StateMode::None | StateMode::Kv => self.reset(live).and_then(keep_if_allowed),
                };
                decision(code)
            }
            Err(error) => {
                // The state of the instance is unknown, so it is dropped.
                let stack_budget = self.module.stack_budget.map(global_name);
                let stack_budget =
                    stack_budget.and_then(|name| instance.get_global(&*store, &name));
                let units = stack_budget.and_then(|stack_budget| stack_budget.get(&*store).i32());
                let overflowed = units.is_some_and(|units| units < 0);
                let trap = trap_of(&error, store.data().stop, overflowed);
                context.consume_fuel(match trap {
                    Trap::OutOfFuel => fuel,
                    _ => fuel - left.min(fuel),
                });
                Err(trap)
            }
        }
    }

    fn end_intention(&mut self, kept: bool, context: &mut CallContext) {
        if self.mode != StateMode::Memory {
            return;
        }
        let Some(live) = &mut self.live else {
            return;
        };
        if kept {
            let LiveInstance {
                store,
                memory,
                globals,
                ..
            } = &mut **live;
            let memory = memory.data(&*store);
            context.keep_memory(memory, std::iter::once(0..memory.len()));
            let values = globals.iter().map(|(global, _)| global.get(&*store));
            context.keep_globals(values.map(|value| to_bits(&value)));
        } else if context.image().memory.is_empty()
            || live.memory.data(&live.store).len() != context.image().memory.len()
            || load(live, context).is_err()
        {
            self.live = None;
        }
        self.live = self.live.take().and_then(keep_if_allowed);
    }

    fn fork(&self) -> Box<dyn Program> {
        Box::new(Self {
            module: Arc::clone(&self.module),
            mode: self.mode,
            live: None,
        })
    }
}

fn trap_of(error: &Error, stop: Option<Stop>, overflowed: bool) -> Trap {
    use TrapCode as T;
    match stop {
        Some(Stop::Trap(kind)) => return Trap::Trapped(kind),
        Some(Stop::Limit(max)) => return Trap::Limit(max),
        Some(Stop::OutOfFuel) => return Trap::OutOfFuel,
        None => {}
    }
    Trap::Trapped(match error.as_trap_code() {
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
        _ => return Trap::Unable(format!("{error}")),
    })
}
