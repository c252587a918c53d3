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
use super::{Compiled, Maker, Running, WasmtimeHost};
use crate::first::InitialMemory;
use crate::host::{Cache, CountedBytes};
use crate::report::Report;
use crate::validate::inspect;

/// The code of a program.
#[derive(Clone)]
pub(super) enum Code {
    /// A compiled module.
    Ready(Arc<Compiled>),
    /// A module that will be compiled at the latest by its first call.
    Later(Arc<Later>),
}

/// A checked module.
pub(super) struct Later {
    hash: CodeHash,
    code: Arc<[u8]>,
    report: Report,
    made: OnceLock<Arc<Compiled>>,
    maker: Arc<Maker>,
    modules: Arc<Cache<Compiled>>,
}

/// Modules that are not compiled yet, by the hash of their code.
#[derive(Default)]
pub(super) struct Restored(Mutex<BTreeMap<CodeHash, Arc<Later>>>);

impl Restored {
    /// The module with this code. Checks the code unless another topic has the module.
    pub(super) fn add(
        &self,
        hash: CodeHash,
        code: &[u8],
        host: &WasmtimeHost,
    ) -> Result<Arc<Later>, Refusal> {
        if let Some(later) = self.0.lock().get(&hash) {
            return Ok(Arc::clone(later));
        }
        let later = Arc::new(Later {
            hash,
            code: Arc::from(code),
            report: inspect(code).map_err(Refusal::Bad)?,
            made: OnceLock::new(),
            maker: Arc::clone(&host.maker),
            modules: Arc::clone(&host.modules),
        });
        self.0.lock().insert(hash, Arc::clone(&later));
        Ok(later)
    }

    pub(super) fn has(&self, hash: CodeHash) -> bool {
        self.0.lock().contains_key(&hash)
    }

    /// Compiles one of the modules, preferably `first`. Returns its hash; `None` if no module is
    /// left.
    pub(super) fn compile_next(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        let later = {
            let modules = self.0.lock();
            let wanted = first.and_then(|hash| modules.get(&hash));
            let (_, next) = modules.first_key_value()?;
            Arc::clone(wanted.unwrap_or(next))
        };
        // Only a live topic needs the module, and its first call reports an error. The module stays
        // in the list until it is compiled, so a call waits for it.
        if Arc::strong_count(&later) > 2 {
            drop(later.compiled());
        }
        self.0.lock().remove(&later.hash);
        Some(later.hash)
    }
}

impl Later {
    fn compiled(&self) -> Result<&Arc<Compiled>, Refusal> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = self.modules.get(self.hash, || {
            let (maker, code) = (Arc::clone(&self.maker), Arc::clone(&self.code));
            move || maker.compile(&code)
        })?;
        Ok(self.made.get_or_init(|| made))
    }
}

impl Code {
    /// A program with this code for a topic with this setup.
    pub(super) fn bind(self, setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        self.report().fits(setup).map_err(Refusal::Bad)?;
        Ok(Box::new(Running {
            code: self,
            mode: setup.mode,
            live: None,
        }))
    }

    pub(super) fn report(&self) -> &Report {
        match self {
            Self::Ready(module) => &module.report,
            Self::Later(later) => &later.report,
        }
    }

    /// The module. Compiles it now if necessary.
    pub(super) fn compiled(&self) -> Result<&Compiled, Trap> {
        match self {
            Self::Ready(module) => Ok(module),
            Self::Later(later) => match later.compiled() {
                Ok(module) => Ok(module),
                Err(Refusal::Bad(why) | Refusal::Unable(why)) => Err(Trap::Unable(why)),
            },
        }
    }

    fn known(&self) -> Option<&Compiled> {
        match self {
            Self::Ready(module) => Some(module),
            Self::Later(later) => later.made.get().map(Arc::as_ref),
        }
    }

    /// The initial contents of a memory, if an instance was created before.
    pub(super) fn first(&self) -> Option<&(InitialMemory, CountedBytes)> {
        self.known()?.first.get()
    }

    /// See [`Compiled`].
    pub(super) fn room(&self) -> Option<u32> {
        self.known()?.room
    }

    /// See [`Compiled`].
    pub(super) fn stacks(&self) -> Option<&Stacks> {
        self.known()?.stacks.as_ref()
    }
}
