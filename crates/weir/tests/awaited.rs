//! Tests asynchronous reads of a local store, on a disk that waits or fails.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use weir::{ConsequenceOffset, GroupMode, OpenOptions, ReadFrom, Store, StoreError, Weir};
use weir_store::disk::{Disk, DiskFile, FileDisk, OpenMode};

/// Blocks reads of topics while it is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    /// Whether reads at `FAILS_FROM` and after it fail.
    fails: AtomicBool,
}

/// A position in the middle of the file of the topic.
const FAILS_FROM: u64 = 200_000;

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

#[derive(Debug)]
struct SlowDisk(FileDisk, Arc<Gate>);

#[derive(Debug)]
struct SlowFile(Arc<dyn DiskFile>, Option<Arc<Gate>>);

impl Disk for SlowDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let gate = path.starts_with("topics/").then(|| Arc::clone(&self.1));
        Ok(Arc::new(SlowFile(self.0.open(path, mode)?, gate)))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.0.create_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_dir(&self, dir: &str) -> io::Result<()> {
        self.0.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

impl DiskFile for SlowFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(gate) = &self.1 {
            let closed = gate.closed.lock().unwrap();
            drop(gate.opened.wait_while(closed, |closed| *closed).unwrap());
            if offset >= FAILS_FROM && gate.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("a failed read"));
            }
        }
        self.0.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_all_at(parts, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
}

struct ChannelWaker(Sender<()>);

impl Wake for ChannelWaker {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        let _ = self.0.send(());
    }
}

/// Runs a future on this thread. Returns whether it had to wait. Calls `meanwhile` at the first
/// wait.
fn run<T>(future: impl Future<Output = T>, meanwhile: impl FnOnce()) -> (T, bool) {
    let (sender, signals) = channel();
    let waker = Waker::from(Arc::new(ChannelWaker(sender)));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut meanwhile = Some(meanwhile);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, meanwhile.is_none());
        }
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
        signals.recv().unwrap();
    }
}

/// A store with a hundred keys; the records of most are only on disk.
fn store_on_slow_disk(directory: &std::path::Path) -> (Weir, Arc<Gate>) {
    let options = OpenOptions::default();
    let weir = Weir::open_with(directory, &options).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    for n in 0..100 {
        // Many records, so that only the last blocks are in memory.
        topic
            .put(format!("k{n}"), format!("{n:04000}"))
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    weir.close().unwrap();
    let gate = Arc::<Gate>::default();
    let disk = SlowDisk(FileDisk::open(directory).unwrap(), Arc::clone(&gate));
    let store = Store::open_disk(Arc::new(disk), &options).unwrap();
    (Weir::with_store(Arc::new(store)), gate)
}

#[test]
fn the_thread_of_an_executor_does_not_wait_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (weir, gate) = store_on_slow_disk(dir.path());
    let topic = weir.topic("t").unwrap();
    // A thread that blocked in the read would never open the gate.
    let open = || gate.set(false);

    gate.set(true);
    let (value, waited) = run(topic.get_async("k7"), open);
    assert!(waited && value.unwrap().unwrap().value().ends_with(b"07"));
    gate.set(true);
    let (value, waited) = run(topic.at_async(ConsequenceOffset(2)), open);
    assert!(waited && value.unwrap().unwrap().value().ends_with(b"00"));
    gate.set(true);
    let (mut reader, _) = run(topic.listener_async(ReadFrom::Start), || {});
    let reader = reader.as_mut().unwrap();
    let (page, waited) = run(reader.next(), open);
    assert!(waited && page.unwrap().iter().count() > 1);
    gate.set(true);
    let mut latest = run(topic.latest_async(Duration::ZERO), || {}).0.unwrap();
    {
        // The future is dropped during its read.
        let mut next = pin!(latest.next_async());
        assert!(
            next.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    let (first, waited) = run(latest.next_async(), open);
    assert!(waited && first.unwrap().value.record().key == b"k0");
    let keys = 1
        + (0..99)
            .map(|_| run(latest.next_async(), || {}).0.unwrap())
            .count();
    assert_eq!(keys, 100, "each key once");
}

#[test]
fn a_reader_awaits_the_next_record_and_fails_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    let mut reader = topic.listener_async(ReadFrom::Start).wait().unwrap();
    let (page, waited) = run(reader.next(), || assert!(topic.ensure().unwrap()));
    assert!(waited && page.unwrap().iter().count() == 1);
    let (page, waited) = run(reader.next(), || drop(topic.put("k", "v").unwrap()));
    assert!(waited && page.unwrap().iter().next().unwrap().unwrap().value == b"v");
    assert_eq!(topic.get_async("k").wait().unwrap().unwrap().value(), b"v");
    assert!(topic.get_async("none").wait().unwrap().is_none());
    let unknown = weir.topic("other").unwrap().get_async("k").wait();
    assert!(unknown.is_err(), "as in the blocking call");
    let (page, _) = run(reader.next(), || weir.clone().close().unwrap());
    assert!(matches!(page, Err(StoreError::Closed)), "{page:?}");
}

#[test]
fn the_owner_of_a_group_gets_the_records_before_the_unreadable_one() {
    let dir = tempfile::tempdir().unwrap();
    let (weir, gate) = store_on_slow_disk(dir.path());
    let topic = weir.topic("t").unwrap();
    let mut group = topic.group("g", GroupMode::Exclusive).unwrap();
    let mut keys = Vec::new();
    let mut claim = |keys: &mut Vec<Vec<u8>>| {
        let works = group.claim(1000, Duration::ZERO)?;
        keys.extend(works.iter().map(|work| work.record().key.to_vec()));
        Ok::<_, weir::WeirError>(works.len())
    };
    gate.fails.store(true, Ordering::Relaxed);
    let before = claim(&mut keys).unwrap();
    assert!((1..100).contains(&before), "{before}");
    claim(&mut keys).unwrap_err();
    gate.fails.store(false, Ordering::Relaxed);
    while claim(&mut keys).unwrap() > 0 {}
    let all: Vec<Vec<u8>> = (0..100).map(|n| format!("k{n}").into_bytes()).collect();
    assert_eq!(keys, all, "each once, in order");
}
