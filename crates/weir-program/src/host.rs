//! What both engines share: limits of a module, and a memory of what was
//! compiled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::{CodeHash, Refusal};

/// Limits of a module, checked before anything is compiled. They decide
/// outcomes, so a change of one is a change of the fingerprint.
pub mod limits {
    /// Bytes of a module.
    pub const MODULE_BYTES_MAX: usize = 1 << 20;
    /// Bytes of the body of one function.
    pub const FUNCTION_BYTES_MAX: usize = 128 << 10;
    /// Functions of a module.
    pub const FUNCTIONS_MAX: u32 = 10_000;
    /// Elements of a table.
    pub const TABLE_ELEMENTS_MAX: u64 = 10_000;
    /// Tables of a module.
    pub const TABLES_MAX: u32 = 16;
    /// Bytes of stack that nested calls may take.
    pub const STACK_BYTES_MAX: usize = 512 << 10;
    /// Compiled modules that no topic runs but are kept for the next one.
    pub const IDLE_MODULES_MAX: usize = 32;
    /// Fuel of the call that asks for the version of the interface.
    pub const VERSION_FUEL: u64 = 10_000;
}

/// Compiled modules by the hash of their code.
pub(crate) struct Cache<M> {
    modules: Mutex<Modules<M>>,
    /// Held while a module is compiled: one at a time.
    compiling: Mutex<()>,
}

struct Modules<M> {
    by_hash: BTreeMap<CodeHash, (Arc<M>, u64)>,
    clock: u64,
}

impl<M> Default for Cache<M> {
    fn default() -> Self {
        Self {
            modules: Mutex::new(Modules {
                by_hash: BTreeMap::new(),
                clock: 0,
            }),
            compiling: Mutex::new(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked left a map that is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Send + Sync> Cache<M> {
    fn find(&self, hash: CodeHash) -> Option<Arc<M>> {
        let mut modules = lock(&self.modules);
        modules.clock += 1;
        let now = modules.clock;
        let (module, used) = modules.by_hash.get_mut(&hash)?;
        *used = now;
        Some(Arc::clone(module))
    }

    /// The module with this hash, compiled now if it is not known yet. The
    /// compiler runs on a thread of its own with a stack of fixed size.
    pub(crate) fn get(
        &self,
        hash: CodeHash,
        compile: impl FnOnce() -> Result<M, Refusal> + Send,
    ) -> Result<Arc<M>, Refusal> {
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let _one = lock(&self.compiling);
        if let Some(module) = self.find(hash) {
            return Ok(module);
        }
        let module = Arc::new(on_own_stack(compile)?);
        let mut modules = lock(&self.modules);
        modules.clock += 1;
        let now = modules.clock;
        modules.by_hash.insert(hash, (Arc::clone(&module), now));
        modules.forget();
        Ok(module)
    }
}

impl<M> Modules<M> {
    /// Drops the modules that were not used for longest, of those that no
    /// topic runs.
    fn forget(&mut self) {
        loop {
            let idle = self.by_hash.iter();
            let idle = idle.filter(|(_, (module, _))| Arc::strong_count(module) == 1);
            let mut idle: Vec<_> = idle.map(|(hash, (_, used))| (*used, *hash)).collect();
            if idle.len() <= limits::IDLE_MODULES_MAX {
                return;
            }
            idle.sort_unstable();
            if let Some((_, hash)) = idle.first() {
                self.by_hash.remove(hash);
            }
        }
    }
}

/// Bytes of stack for a compiler.
const COMPILER_STACK_BYTES: usize = 16 << 20;

fn on_own_stack<M: Send>(
    compile: impl FnOnce() -> Result<M, Refusal> + Send,
) -> Result<M, Refusal> {
    let unable = |what: &str| Refusal::Unable(what.to_owned());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("weir-compile".to_owned())
            .stack_size(COMPILER_STACK_BYTES)
            .spawn_scoped(scope, compile)
            .map_err(|error| unable(&format!("no thread for the compiler: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(unable("the compiler failed")))
    })
}
