//! Modules of a snapshot: checked when the snapshot is loaded, compiled later.
//!
//! A store may have thousands of modules, and one module may take two seconds to compile. An open
//! must not wait for them. These modules were accepted before, so only a problem of this machine
//! can make their compilation fail.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use weir_core::{CodeHash, Program, Refusal, Setup, Trap};

use super::stack::Stacks;
use super::{Compiled, ModuleCompiler, RunningProgram, WasmtimeHost};
use crate::host::{Cache, CountedBytes};
use crate::initial_memory::InitialMemory;
use crate::report::Report;
use crate::validate::inspect;

/// The code of a program.
#[derive(Clone)]
pub(super) enum Code {
    /// A compiled module.
    Ready(Arc<Compiled>),
    /// A module that will be compiled at the latest by its first call.
    Restored(Arc<CheckedModule>),
}

/// A checked module.
pub(super) struct CheckedModule {
    hash: CodeHash,
    code: Arc<[u8]>,
    report: Report,
    compiled: OnceLock<Arc<Compiled>>,
    module_compiler: Arc<ModuleCompiler>,
    modules: Arc<Cache<Compiled>>,
}

/// Modules that are not compiled yet, by the hash of their code.
#[derive(Default)]
pub(super) struct Restored(Mutex<BTreeMap<CodeHash, Arc<CheckedModule>>>);

impl Restored {
    /// The module with this code. Checks the code unless another topic has the module.
    pub(super) fn add(
        &self,
        hash: CodeHash,
        code: &[u8],
        host: &WasmtimeHost,
    ) -> Result<Arc<CheckedModule>, Refusal> {
        if let Some(checked) = self.0.lock().get(&hash) {
            return Ok(Arc::clone(checked));
        }
        let checked = Arc::new(CheckedModule {
            hash,
            code: Arc::from(code),
            report: inspect(code).map_err(Refusal::Bad)?,
            compiled: OnceLock::new(),
            module_compiler: Arc::clone(&host.module_compiler),
            modules: Arc::clone(&host.modules),
        });
        self.0.lock().insert(hash, Arc::clone(&checked));
        Ok(checked)
    }

    pub(super) fn has(&self, hash: CodeHash) -> bool {
        self.0.lock().contains_key(&hash)
    }

    /// Compiles one of the modules, preferably `first`. Returns its hash; `None` if no module is
    /// left.
    pub(super) fn compile_next(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        let checked = {
            let modules = self.0.lock();
            let wanted = first.and_then(|hash| modules.get(&hash));
            let (_, next) = modules.first_key_value()?;
            Arc::clone(wanted.unwrap_or(next))
        };
        // Only a live topic needs the module, and its first call reports an error. The module stays
        // in the list until it is compiled, so a call waits for it.
        if Arc::strong_count(&checked) > 2 {
            drop(checked.compiled());
        }
        self.0.lock().remove(&checked.hash);
        Some(checked.hash)
    }
}

impl CheckedModule {
    fn compiled(&self) -> Result<&Arc<Compiled>, Refusal> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let compiled = self.modules.get(self.hash, || {
            let (module_compiler, code) =
                (Arc::clone(&self.module_compiler), Arc::clone(&self.code));
            move || module_compiler.compile(&code)
        })?;
        Ok(self.compiled.get_or_init(|| compiled))
    }
}

impl Code {
    /// A program with this code for a topic with this setup.
    pub(super) fn bind(self, setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        self.report().fits(setup).map_err(Refusal::Bad)?;
        Ok(Box::new(RunningProgram {
            code: self,
            mode: setup.mode,
            live: None,
        }))
    }

    pub(super) fn report(&self) -> &Report {
        match self {
            Self::Ready(module) => &module.report,
            Self::Restored(checked) => &checked.report,
        }
    }

    /// The module. Compiles it now if necessary.
    pub(super) fn compiled(&self) -> Result<&Compiled, Trap> {
        match self {
            Self::Ready(module) => Ok(module),
            Self::Restored(checked) => match checked.compiled() {
                Ok(module) => Ok(module),
                Err(Refusal::Bad(why) | Refusal::Unable(why)) => Err(Trap::Unable(why)),
            },
        }
    }

    fn if_compiled(&self) -> Option<&Compiled> {
        match self {
            Self::Ready(module) => Some(module),
            Self::Restored(checked) => checked.compiled.get().map(Arc::as_ref),
        }
    }

    /// The initial contents of a memory, if an instance was created before.
    pub(super) fn initial_memory(&self) -> Option<&(InitialMemory, CountedBytes)> {
        self.if_compiled()?.initial_memory.get()
    }

    /// See [`Compiled`].
    pub(super) fn stack_budget(&self) -> Option<u32> {
        self.if_compiled()?.stack_budget
    }

    /// See [`Compiled`].
    pub(super) fn stacks(&self) -> Option<&Stacks> {
        self.if_compiled()?.stacks.as_ref()
    }
}
