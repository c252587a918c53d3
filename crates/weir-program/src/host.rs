//! Shared by both engines: the limits of a module, and a cache of compiled modules.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use weir_core::limits::DETAIL_TEXT_BYTES_MAX;
use weir_core::{CodeHash, Refusal};

use crate::abi;
use crate::worker::{JobError, Worker};

/// Limits of a module, checked before compilation. They decide outcomes, so a change needs a new
/// number of the meter.
pub mod limits {
    /// Bytes of a module.
    pub const MODULE_BYTES_MAX: usize = 1 << 20;
    /// Bytes of the body of one function.
    pub const FUNCTION_BYTES_MAX: usize = 128 << 10;
    /// Functions of a module.
    pub const FUNCTIONS_MAX: u32 = 10_000;
    /// Types, imports, globals and exports of a module, each kind. Each instance has memory for
    /// every import and global, and there are many instances.
    pub const ITEMS_MAX: u32 = 10_000;
    /// Elements of a table.
    pub const TABLE_ELEMENTS_MAX: u64 = 10_000;
    /// Data and element segments of a module, each kind.
    pub const SEGMENTS_MAX: u32 = 10_000;
    /// Parameters of a function or block.
    pub const PARAMETERS_MAX: usize = 128;
    /// Results of a function or block.
    pub const RESULTS_MAX: usize = 16;
    /// Local variables of a function.
    pub const LOCALS_MAX: u64 = 4096;
    /// Local variables of all functions of a module.
    pub const LOCALS_TOTAL_MAX: u64 = 200_000;
    /// Depth of nested blocks in a function.
    pub const NESTING_MAX: usize = 4096;
    /// Blocks, loops, branches and targets of branch tables in a function. The time of a compiler
    /// grows with their square.
    pub const BRANCHES_MAX: u64 = 8192;
    /// As `BRANCHES_MAX`, in all functions of a module.
    pub const BRANCHES_TOTAL_MAX: u64 = 100_000;
    /// Units of work to compile a function. A unit is about a microsecond (README of this crate).
    pub const WORK_FUNCTION_MAX: u64 = 500_000;
    /// As `WORK_FUNCTION_MAX`, for a module.
    pub const WORK_MAX: u64 = 2_000_000;
    /// Stack that nested calls of one entry may use, in units of the stack meter. A unit is about a
    /// byte of the frame of a function that calls others.
    pub const STACK_UNITS_MAX: u32 = 1 << 20;
    /// Bytes of native stack that the compiled code of these calls may use. The worst frame in the
    /// tests uses less than half of the bytes per unit. The remainder is for the frame of the last
    /// function.
    pub const NATIVE_STACK_BYTES_MAX: usize = 4 << 20;
    /// Bytes of native stack for the host functions that the last call calls.
    pub const HOST_STACK_BYTES: usize = 512 << 10;
    /// Number of cached compiled modules that no topic runs.
    pub const IDLE_MODULES_MAX: usize = 32;
    /// Number of modules whose rejection is cached.
    pub const REFUSED_MODULES_MAX: usize = 256;
    /// Instances that are kept for their next call. Any further topic gets a new instance for each
    /// call, because every instance reserves address space.
    pub const WARM_INSTANCES_MAX: usize = 4096;
    /// Bytes of the memories of kept instances, and of the stored initial contents of memories.
    pub const WARM_BYTES_MAX: u64 = 1 << 30;
    /// Fuel of the call that returns the version of the interface.
    pub const VERSION_FUEL: u64 = 10_000;
}

/// Compiled modules by the hash of their code.
pub(crate) struct Cache<M> {
    modules: Mutex<Modules<M>>,
    /// Locked while a module is compiled: one at a time.
    compiling: Mutex<()>,
    worker: Worker,
}

struct Modules<M> {
    by_hash: BTreeMap<CodeHash, (Arc<M>, u64)>,
    clock: u64,
    /// The errors of modules that break a rule, newest first. So a module that was rejected on
    /// receipt is not compiled again when its intention is applied.
    refused: VecDeque<(CodeHash, String)>,
    /// Errors that callers keep, and the number of entries at which the others are removed.
    kept: BTreeMap<CodeHash, Weak<str>>,
    kept_max: usize,
    compiled: u64,
}

impl<M> Default for Cache<M> {
    fn default() -> Self {
        Self {
            modules: Mutex::new(Modules {
                by_hash: BTreeMap::new(),
                clock: 0,
                refused: VecDeque::new(),
                kept: BTreeMap::new(),
                kept_max: limits::REFUSED_MODULES_MAX,
                compiled: 0,
            }),
            compiling: Mutex::new(()),
            worker: Worker::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread leaves the map consistent.
    mutex.lock()
}

impl<M: Send + Sync + 'static> Cache<M> {
    /// The module with this hash, if it is compiled or was refused.
    pub(crate) fn find(&self, hash: CodeHash) -> Option<Result<Arc<M>, Refusal>> {
        let mut modules = lock(&self.modules);
        modules.clock += 1;
        let now = modules.clock;
        if let Some((module, used)) = modules.by_hash.get_mut(&hash) {
            *used = now;
            return Some(Ok(Arc::clone(module)));
        }
        if let Some(sentence) = modules.kept.get(&hash).and_then(Weak::upgrade) {
            return Some(Err(Refusal::Bad(sentence.as_ref().to_owned())));
        }
        let (_, sentence) = modules.refused.iter().find(|(known, _)| *known == hash)?;
        Some(Err(Refusal::Bad(sentence.clone())))
    }

    /// Keeps the rejection of the module with this hash while the returned text exists. `None` if
    /// no rejection is cached.
    pub(crate) fn keep_rejection(&self, hash: CodeHash) -> Option<Arc<str>> {
        let mut modules = lock(&self.modules);
        if let Some(sentence) = modules.kept.get(&hash).and_then(Weak::upgrade) {
            return Some(sentence);
        }
        let (_, sentence) = modules.refused.iter().find(|(known, _)| *known == hash)?;
        let sentence: Arc<str> = Arc::from(sentence.as_str());
        if modules.kept.len() >= modules.kept_max {
            modules.kept.retain(|_, kept| kept.strong_count() > 0);
            modules.kept_max = limits::REFUSED_MODULES_MAX.max(2 * modules.kept.len());
        }
        modules.kept.insert(hash, Arc::downgrade(&sentence));
        Some(sentence)
    }

    /// How often the compiler ran.
    pub(crate) fn compiled(&self) -> u64 {
        lock(&self.modules).compiled
    }

    /// The module with this hash. If it is not known, compiles it now: `job` creates the job for
    /// the [`Worker`].
    pub(crate) fn get<J>(&self, hash: CodeHash, job: impl FnOnce() -> J) -> Result<Arc<M>, Refusal>
    where
        J: FnOnce() -> Result<M, Refusal> + Send + 'static,
    {
        if let Some(known) = self.find(hash) {
            return known;
        }
        let _one = lock(&self.compiling);
        if let Some(known) = self.find(hash) {
            return known;
        }
        let compiled = self.worker.run(job()).unwrap_or_else(|lost| {
            Err(Refusal::Unable(match lost {
                JobError::NoThread(error) => format!("no thread for the compiler: {error}"),
                JobError::Panicked => "the compiler failed".to_owned(),
            }))
        });
        let mut modules = lock(&self.modules);
        modules.compiled += 1;
        let module = match compiled {
            Ok(module) => Arc::new(module),
            Err(Refusal::Bad(mut sentence)) => {
                // The sentence may contain names of the module, which can be long. A verdict
                // contains at most this many bytes of the sentence.
                sentence.truncate(sentence.floor_char_boundary(DETAIL_TEXT_BYTES_MAX));
                modules.refused.truncate(limits::REFUSED_MODULES_MAX - 1);
                modules.refused.push_front((hash, sentence.clone()));
                return Err(Refusal::Bad(sentence));
            }
            Err(unable) => return Err(unable),
        };
        modules.clock += 1;
        let now = modules.clock;
        modules.by_hash.insert(hash, (Arc::clone(&module), now));
        let excess = modules.take_excess();
        drop(modules);
        // The drop of many modules takes long, and calls wait for the lock.
        drop(excess);
        Ok(module)
    }
}

/// Checks that this crate supports a version of the interface.
pub(crate) fn check_version(version: i32) -> Result<(), Refusal> {
    if version == abi::VERSION {
        return Ok(());
    }
    Err(Refusal::Bad(format!(
        "weir_abi returns {version}, this store speaks version {}",
        abi::VERSION
    )))
}

/// Counts the kept instances of a host, and the bytes of their memories.
#[derive(Debug, Default)]
pub(crate) struct InstanceUsage(Arc<WarmUsage>);

#[derive(Debug, Default)]
struct WarmUsage {
    instances: AtomicUsize,
    bytes: AtomicU64,
}

/// Counts an instance until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedInstance {
    usage: Arc<WarmUsage>,
    bytes: u64,
}

impl InstanceUsage {
    /// Counts bytes that belong to no instance.
    pub(crate) fn count_bytes(&self, bytes: u64) -> CountedBytes {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        CountedBytes {
            usage: Arc::clone(&self.0),
            bytes,
        }
    }

    /// Counts an instance with a memory of `bytes`.
    pub(crate) fn count_instance(&self, bytes: u64) -> CountedInstance {
        self.0.instances.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        CountedInstance {
            usage: Arc::clone(&self.0),
            bytes,
        }
    }
}

impl CountedInstance {
    /// Whether this instance may be kept for another call. `bytes` is the present size of its
    /// memory.
    pub(crate) fn may_be_kept(&mut self, bytes: u64) -> bool {
        if bytes != self.bytes {
            self.usage.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.usage.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            self.bytes = bytes;
        }
        self.usage.instances.load(Ordering::Relaxed) <= limits::WARM_INSTANCES_MAX
            && self.usage.bytes.load(Ordering::Relaxed) <= limits::WARM_BYTES_MAX
    }
}

/// Counts bytes until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedBytes {
    usage: Arc<WarmUsage>,
    bytes: u64,
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.usage.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for CountedInstance {
    fn drop(&mut self) {
        self.usage.instances.fetch_sub(1, Ordering::Relaxed);
        self.usage.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<M> Modules<M> {
    /// Removes modules that no topic runs, except those that were used last. Returns the removed
    /// modules. O(n log n) in the number of modules.
    fn take_excess(&mut self) -> Vec<Arc<M>> {
        let idle = self.by_hash.iter();
        let idle = idle.filter(|(_, (module, _))| Arc::strong_count(module) == 1);
        let mut idle: Vec<_> = idle.map(|(hash, (_, used))| (*used, *hash)).collect();
        idle.sort_unstable();
        let excess = idle.len().saturating_sub(limits::IDLE_MODULES_MAX);
        let removed = idle.iter().take(excess);
        let removed = removed.filter_map(|(_, hash)| self.by_hash.remove(hash));
        removed.map(|(module, _)| module).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module that counts itself when it is dropped, if its cache is not locked.
    struct Module(Weak<Cache<Self>>, Arc<AtomicUsize>);

    impl Drop for Module {
        fn drop(&mut self) {
            let Some(cache) = self.0.upgrade() else {
                return;
            };
            if cache.modules.try_lock().is_some() {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// All topics of many modules may be destroyed at once.
    #[test]
    fn excess_modules_are_dropped_together_and_without_the_lock() {
        let cache = Arc::new(Cache::default());
        let dropped = Arc::new(AtomicUsize::new(0));
        let compile = |n: u8| {
            let module = Module(Arc::downgrade(&cache), Arc::clone(&dropped));
            cache.get(CodeHash([n; 32]), || move || Ok(module)).ok()
        };
        let last = 200;
        let held: Vec<_> = (0..last).map(compile).collect();
        assert!(held.iter().all(Option::is_some));
        drop(held);
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        let newest = compile(last);
        let excess = usize::from(last) - limits::IDLE_MODULES_MAX;
        assert_eq!(dropped.load(Ordering::Relaxed), excess);
        let is_kept = |n: &u8| cache.find(CodeHash([*n; 32])).is_some();
        let kept: Vec<u8> = (0..last).filter(is_kept).collect();
        assert_eq!(kept.len(), limits::IDLE_MODULES_MAX);
        assert_eq!(kept.first().copied().map(usize::from), Some(excess));
        assert!(newest.is_some() && is_kept(&last));
    }

    #[test]
    fn a_cached_rejection_is_not_longer_than_that_of_a_verdict() {
        let cache = Cache::default();
        let hash = CodeHash([1; 32]);
        let long = "ä".repeat(100_000);
        let rejected: Result<Arc<()>, _> = cache.get(hash, || move || Err(Refusal::Bad(long)));
        let cut = Err(Refusal::Bad("ä".repeat(DETAIL_TEXT_BYTES_MAX / 2)));
        assert_eq!(rejected, cut);
        assert_eq!(cache.find(hash), Some(cut));
    }

    #[test]
    fn kept_instances_are_limited_by_number_and_bytes() {
        let warm = InstanceUsage::default();
        let half = limits::WARM_BYTES_MAX / 2;
        let mut first = warm.count_instance(half);
        let kept = warm.count_bytes(1);
        let mut second = warm.count_instance(half);
        assert!(!first.may_be_kept(half), "bytes of modules count too");
        drop(kept);
        assert!(first.may_be_kept(half) && second.may_be_kept(half));
        assert!(!second.may_be_kept(half + 1), "its memory has grown");
        assert!(!first.may_be_kept(half), "both together exceed the limit");
        drop(second);
        assert!(first.may_be_kept(half));
        let others: Vec<_> = (1..limits::WARM_INSTANCES_MAX)
            .map(|_| warm.count_instance(0))
            .collect();
        assert!(first.may_be_kept(half));
        let one_more = warm.count_instance(0);
        assert!(!first.may_be_kept(half));
        drop((one_more, others));
        assert!(first.may_be_kept(half));
    }
}
