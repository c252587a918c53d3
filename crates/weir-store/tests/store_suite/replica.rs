//! The interface to a log provider: entries that are not batches, the committed index,
//! votes, waiting callers, and a single store that becomes a node.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use weir_core::intention::IntentionLimits;
use weir_core::{ErrorCode, IntentionOffset, RecordKind};
use weir_store::disk::{Disk, SimDisk};
use weir_store::replica::{
    EntryBody, EntryId, IntentionLog, LatencyClass, NodeOptions, ProposedBatch, Replica,
    ReplicaEntry, Vote,
};
use weir_store::{History, LogIndex, OpenOptions, Store, StoreError, verify};

use crate::world::{create, execute, options, put, records, try_execute};

const CLUSTER: [u8; 16] = [0xc1; 16];
const MEMBERS: &[u8] = b"three nodes";

pub fn node() -> NodeOptions {
    NodeOptions {
        node: 3,
        cluster: CLUSTER,
        incarnation: 0,
        allow_gaps: false,
    }
}

/// A cluster of one node: appends each proposed batch, and commits it when it is durable.
#[derive(Default)]
pub struct SingleNode {
    replica: OnceLock<Replica>,
    lock: Arc<Mutex<()>>,
    /// Proposals that wait for `release`; `None` while proposals are not held.
    held: Mutex<Option<Vec<ProposedBatch>>>,
    purgeable: Mutex<Vec<EntryId>>,
}

impl SingleNode {
    pub fn follow(&self, replica: &Replica) {
        assert!(self.replica.set(replica.clone()).is_ok());
    }

    fn commit(replica: &Replica, lock: &Mutex<()>, batch: ProposedBatch) {
        let _guard = lock.lock().unwrap();
        let last = replica.log_state().last;
        let (term, index) = last.map_or((7, LogIndex(1)), |id| (id.term, id.index.next()));
        let entry = ReplicaEntry {
            id: EntryId { term, index },
            body: EntryBody::Batch {
                count: batch.count,
                payload: batch.payload,
            },
        };
        append(replica, vec![entry.clone()]).unwrap();
        replica.save_committed(entry.id).unwrap();
        let outcomes = replica.apply(entry).unwrap();
        batch.waiters.answer(&outcomes);
    }
}

impl IntentionLog for SingleNode {
    fn propose(&self, batch: ProposedBatch) {
        if let Some(held) = &mut *self.held.lock().unwrap() {
            held.push(batch);
            return;
        }
        let (replica, lock) = (self.replica.get().unwrap().clone(), Arc::clone(&self.lock));
        // On another thread, because a commit on the writer thread would wait for itself.
        std::thread::spawn(move || Self::commit(&replica, &lock, batch));
    }

    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Disk
    }

    fn purgeable(&self, id: EntryId) {
        self.purgeable.lock().unwrap().push(id);
    }
}

pub fn append(replica: &Replica, entries: Vec<ReplicaEntry>) -> Result<(), StoreError> {
    let (sender, results) = mpsc::channel();
    let durable = sender.clone();
    replica.append(
        entries,
        Box::new(move |result| drop(sender.send(result.map_err(|left| left.error)))),
        Box::new(move |result| drop(durable.send(result))),
    );
    for _ in ["written", "durable"] {
        results.recv().unwrap_or(Err(StoreError::Closed))?;
    }
    Ok(())
}

pub fn wait(start: impl FnOnce(weir_store::replica::Callback)) -> Result<(), StoreError> {
    let (sender, result) = mpsc::channel();
    start(Box::new(move |done| drop(sender.send(done))));
    result.recv().unwrap_or(Err(StoreError::Closed))
}

pub fn open_node(directory: &Path) -> Result<(Store, Replica, Arc<SingleNode>), StoreError> {
    let provider = Arc::new(SingleNode::default());
    let (store, replica) =
        Store::open_node(directory, &options(), &node(), Arc::clone(&provider) as _)?;
    assert!(provider.replica.set(replica.clone()).is_ok());
    Ok((store, replica, provider))
}

pub fn entry(term: u64, index: u64, body: EntryBody) -> ReplicaEntry {
    let index = LogIndex(index);
    ReplicaEntry {
        id: EntryId { term, index },
        body,
    }
}

fn open_as_store(directory: &Path) -> Result<Store, StoreError> {
    Store::open(
        directory,
        &OpenOptions {
            create: false,
            ..options()
        },
    )
}

fn code<T: std::fmt::Debug>(result: Result<T, StoreError>) -> ErrorCode {
    result.unwrap_err().code()
}

#[test]
fn only_committed_entries_are_applied_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (store, replica, _) = open_node(directory.path()).unwrap();
    create(&store, "orders");
    execute(&store, &[put("orders", b"a", b"1")]);
    let members = EntryBody::Membership(MEMBERS.into());
    let committed = vec![entry(7, 3, EntryBody::Blank), entry(7, 4, members)];
    append(&replica, committed.clone()).unwrap();
    for one in committed {
        replica.save_committed(one.id).unwrap();
        assert!(replica.apply(one).unwrap().is_empty());
    }
    execute(&store, &[put("orders", b"b", b"2")]);
    let (digest, applied) = (store.digest(), store.applied());
    // Append a batch of another leader that is not on a majority.
    let tail = replica.reader().read(LogIndex(2), LogIndex(2), 1).unwrap();
    let body = tail[0].body.clone();
    append(&replica, vec![entry(8, 6, body)]).unwrap();
    store.close().unwrap();

    let (store, replica, _) = open_node(directory.path()).unwrap();
    assert_eq!((store.digest(), store.applied()), (digest, applied));
    assert_eq!(store.report().replayed_entries, 5);
    let state = replica.applied();
    assert_eq!(state.last, Some(entry(7, 5, EntryBody::Blank).id));
    let (id, body) = state.membership.unwrap();
    assert_eq!((id.index, &body[..]), (LogIndex(4), MEMBERS));
    assert_eq!(replica.log_state().last.unwrap().term, 8);
    // A checkpoint retains the members; the tail is truncated and replaced.
    store.checkpoint().unwrap();
    wait(|done| replica.truncate_after(LogIndex(5), done)).unwrap();
    append(&replica, vec![entry(9, 6, EntryBody::Blank)]).unwrap();
    store.close().unwrap();

    let found = verify(directory.path()).unwrap();
    assert!(found.is_clean(), "{:?}", found.findings);
    assert_eq!((found.digest, found.entries), (Some(digest), 5));
    let history = History::open(directory.path(), None).unwrap();
    let mut seen = Vec::new();
    history
        .replay(IntentionOffset(1)..=IntentionOffset(u64::MAX), &mut |one| {
            seen.push(one.key.to_vec());
        })
        .unwrap();
    assert_eq!(seen, [&b""[..], b"a", b"b"]);

    let (store, replica, _) = open_node(directory.path()).unwrap();
    assert_eq!(store.report().snapshot, Some(LogIndex(5)));
    assert_eq!(replica.applied().membership.unwrap().1, MEMBERS);
    assert_eq!(store.digest(), digest);
    // Later entries are after the blank entry, which is not committed yet.
    let blank = entry(9, 6, EntryBody::Blank);
    replica.save_committed(blank.id).unwrap();
    replica.apply(blank).unwrap();
    execute(&store, &[put("orders", b"c", b"3")]);
    let kinds: Vec<_> = records(&store, "orders").iter().map(|r| r.kind).collect();
    assert_eq!(kinds.last(), Some(&RecordKind::Put));
}

/// The committed index is not synced, so it may survive a power cut that entries do not survive.
#[test]
fn a_committed_index_after_the_end_of_the_log_is_lowered_by_the_open() {
    let directory = tempfile::tempdir().unwrap();
    let (store, replica, _) = open_node(directory.path()).unwrap();
    let first = entry(7, 1, EntryBody::Blank).id;
    replica.save_committed(first).unwrap();
    store.close().unwrap();
    let (store, replica, _) = open_node(directory.path()).unwrap();
    assert_eq!((replica.committed(), replica.applied().last), (None, None));

    create(&store, "orders");
    let digest = store.digest();
    let last = replica.log_state().last;
    assert_eq!(last, Some(first));
    let lost = entry(7, 3, EntryBody::Blank).id;
    replica.save_committed(lost).unwrap();
    store.close().unwrap();
    let (store, replica, _) = open_node(directory.path()).unwrap();
    assert_eq!((replica.committed(), replica.applied().last), (last, last));
    assert_eq!(store.digest(), digest);
    // A later leader appends other entries, and the node is killed before they are committed.
    let others = [2, 3].map(|index| entry(8, index, EntryBody::Blank));
    append(&replica, others.into()).unwrap();
    store.close().unwrap();
    let (_store, replica, _) = open_node(directory.path()).unwrap();
    assert_eq!(replica.applied().last, last);
}

#[test]
fn a_directory_of_a_node_opens_only_as_that_node() {
    let directory = tempfile::tempdir().unwrap();
    let (store, replica, _) = open_node(directory.path()).unwrap();
    let vote = Vote {
        term: 5,
        voted_for: 2,
        is_committed: false,
    };
    wait(|done| replica.save_vote(vote, done)).unwrap();
    assert_eq!(replica.vote(), Some(vote));
    store.close().unwrap();

    assert_eq!(code(open_as_store(directory.path())), ErrorCode::BadOption);
    let as_other = |node: &NodeOptions| {
        let provider = Arc::new(SingleNode::default());
        Store::open_node(directory.path(), &options(), node, provider).map(drop)
    };
    let other = NodeOptions { node: 4, ..node() };
    assert_eq!(code(as_other(&other)), ErrorCode::BadOption);
    let foreign = NodeOptions {
        cluster: [9; 16],
        ..node()
    };
    assert_eq!(code(as_other(&foreign)), ErrorCode::BadOption);

    // One bad copy of the vote is repaired; with two bad copies, the vote is lost.
    let file = directory.path().join("cluster/vote");
    let good = std::fs::read(&file).unwrap();
    for copy in [0, 512] {
        let mut bad = good.clone();
        bad[copy + 41] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        let (store, replica, _) = open_node(directory.path()).unwrap();
        assert_eq!(replica.vote(), Some(vote));
        store.close().unwrap();
        let written = std::fs::read(&file).unwrap();
        assert_eq!(written[..512], written[512..]);
    }
    std::fs::write(&file, [0; 1024]).unwrap();
    let is_lost = || {
        let opened = open_node(directory.path()).map(drop);
        // The node id of the directory cannot be read, and the directory does not open as a store.
        let identity = Store::node_identity(directory.path()).map(drop);
        let alone = open_as_store(directory.path()).map(drop);
        for error in [opened, identity, alone].map(Result::unwrap_err) {
            assert!(matches!(error, StoreError::VoteLost { .. }), "{error}");
            assert_eq!(error.code(), ErrorCode::Damaged);
        }
    };
    is_lost();
    // A missing vote is lost too, while any other file of the node exists.
    std::fs::remove_file(&file).unwrap();
    is_lost();
    let found = verify(directory.path()).unwrap();
    let [found] = &found.findings[..] else {
        panic!("{:?}", found.findings);
    };
    assert!(found.what.contains("has lost its vote"), "{found:?}");
    std::fs::remove_file(directory.path().join("cluster/committed")).unwrap();
    is_lost();
}

/// The copy must not send the members of its old cluster to nodes that join the new one.
#[test]
fn a_copy_of_a_node_that_becomes_a_node_ships_only_its_own_members() {
    let directory = tempfile::tempdir().unwrap();
    let (store, replica, _) = open_node(&directory.path().join("node")).unwrap();
    create(&store, "orders");
    let members = entry(7, 2, EntryBody::Membership(MEMBERS.into()));
    append(&replica, vec![members.clone()]).unwrap();
    replica.save_committed(members.id).unwrap();
    replica.apply(members).unwrap();
    store.backup(&directory.path().join("backup")).unwrap();
    store.close().unwrap();
    std::fs::remove_dir_all(directory.path().join("node/cluster")).unwrap();
    for (name, members) in [("backup", None), ("node", Some(MEMBERS))] {
        let copy = directory.path().join(name);
        let found = verify(&copy).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
        let store = open_as_store(&copy).unwrap();
        assert_eq!(store.membership().unwrap().as_deref(), members, "{name}");
        store.checkpoint().unwrap();
        store.into_node(3, 5, b"one node").unwrap();
        let (store, replica, _) = open_node(&copy).unwrap();
        let shipped = replica.ship().unwrap().unwrap();
        let shipped = shipped.membership.as_ref().map(|(_, body)| &body[..]);
        assert_eq!(shipped, members.map(|_| &b"one node"[..]), "{name}");
        assert_eq!(replica.applied().membership.unwrap().1, &b"one node"[..]);
        store.close().unwrap();
    }
}

#[test]
fn a_store_becomes_a_node_with_its_whole_content() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), &options()).unwrap();
    create(&store, "orders");
    execute(&store, &[put("orders", b"a", b"1")]);
    execute(&store, &[put("orders", b"b", b"2")]);
    let (digest, cluster) = (store.digest(), store.identity().store_id);
    let before = NodeOptions { cluster, ..node() };
    let provider = Arc::new(SingleNode::default());
    drop(store);
    let refused = Store::open_node(directory.path(), &options(), &before, provider.clone());
    assert_eq!(code(refused.map(drop)), ErrorCode::BadOption);

    let store = open_as_store(directory.path()).unwrap();
    let id = store.into_node(3, 5, MEMBERS).unwrap();
    assert_eq!((id.term, id.index), (1, LogIndex(4)));
    assert_eq!(code(open_as_store(directory.path())), ErrorCode::BadOption);

    let (store, replica) =
        Store::open_node(directory.path(), &options(), &before, provider.clone()).unwrap();
    assert!(provider.replica.set(replica.clone()).is_ok());
    let vote = replica.vote().unwrap();
    assert_eq!((vote.term, vote.voted_for, vote.is_committed), (1, 3, true));
    assert_eq!(replica.applied().membership.unwrap().1, MEMBERS);
    assert_eq!((replica.committed(), store.digest()), (Some(id), digest));
    execute(&store, &[put("orders", b"c", b"3")]);
    assert_eq!(records(&store, "orders").len(), 4);
}

#[test]
fn a_store_ignores_entries_of_an_interrupted_conversion() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), &options()).unwrap();
    create(&store, "orders");
    execute(&store, &[put("orders", b"a", b"1")]);
    store.into_node(3, 5, MEMBERS).unwrap();
    // The vote file makes the directory a node, and is written last.
    std::fs::remove_dir_all(directory.path().join("cluster")).unwrap();
    let store = open_as_store(directory.path()).unwrap();
    assert_eq!(store.report().replayed_entries, 3);
    execute(&store, &[put("orders", b"b", b"2")]);
    store.close().unwrap();
    let found = verify(directory.path()).unwrap();
    assert!(found.is_clean(), "{:?}", found.findings);
    assert_eq!(
        records(&open_as_store(directory.path()).unwrap(), "orders").len(),
        3
    );
}

#[test]
fn a_lost_proposal_is_indeterminate_and_the_queue_still_batches() {
    let directory = tempfile::tempdir().unwrap();
    let (store, replica, provider) = open_node(directory.path()).unwrap();
    create(&store, "orders");
    execute(&store, &[put("orders", b"a", b"1")]);
    *provider.held.lock().unwrap() = Some(Vec::new());
    let waiting: Vec<_> = (0..40_u8)
        .map(|n| store.propose(&[put("orders", &[n], b"2")]).unwrap())
        .collect();
    // A task runs after the batches that the writer took before it.
    store.sync().unwrap();
    let held = provider.held.lock().unwrap().take().unwrap();
    assert!((1..=2).contains(&held.len()), "{} in flight", held.len());
    let lost: u32 = held.iter().map(|batch| batch.count).sum();
    drop(held);
    let mut unknown = 0;
    for proposal in waiting {
        match proposal.wait() {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Indeterminate);
                unknown += 1;
            }
        }
    }
    assert_eq!(unknown, lost);
    assert_eq!(records(&store, "orders").len() as u32, 2 + 40 - lost);
    // The provider is notified of entries that may be purged, and decides when to purge.
    let compacted = store.compact_log().unwrap();
    let newest = provider.purgeable.lock().unwrap().last().copied().unwrap();
    assert_eq!(newest.index, compacted.index);
    assert_eq!(replica.log_state().purged, None);
    wait(|done| replica.purge_through(newest, done)).unwrap();
    let purged = replica.log_state().purged;
    assert!(purged.is_none_or(|purged| purged <= newest), "{purged:?}");
    drop(replica);
    let gap = entry(7, 99, EntryBody::Blank);
    assert_eq!(
        code(provider.replica.get().unwrap().apply(gap)),
        ErrorCode::BadRequest
    );
    assert!(try_execute(&store, &[put("orders", b"z", b"")]).is_ok());
}

/// Values that the writer reported before the power cut.
#[derive(Default)]
struct Reported {
    vote: Option<Vote>,
    /// Terms of the entries, from index 1.
    entries: Vec<u64>,
    /// Number of entries retained by a truncation that has begun.
    truncated_to: Option<usize>,
    committed: u64,
}

fn batch_of_one() -> EntryBody {
    let intention = put("orders", b"key", b"value");
    let mut builder = weir_core::batch::BatchBuilder::default();
    let limits = IntentionLimits::default();
    let pushed = builder.push(&intention, &limits);
    assert!(pushed.is_ok());
    EntryBody::Batch {
        count: 1,
        payload: builder.to_bytes(1_000).into(),
    }
}

/// Runs a node until the first failure. All values in `reported` must be durable then.
fn run_until_power_cut(disk: &SimDisk, reported: &mut Reported) -> Result<(), StoreError> {
    let provider: Arc<dyn IntentionLog> = Arc::new(SingleNode::default());
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (store, replica) = Store::open_node_disk(disk, &options(), &node(), provider)?;
    for term in 1..=4_u64 {
        let vote = |is_committed| Vote {
            term,
            voted_for: term % 3 + 1,
            is_committed,
        };
        for is_committed in [false, true] {
            wait(|done| replica.save_vote(vote(is_committed), done))?;
            reported.vote = Some(vote(is_committed));
        }
        if term == 3 {
            let keep = usize::try_from(reported.committed).unwrap();
            reported.truncated_to = Some(keep);
            wait(|done| replica.truncate_after(LogIndex(reported.committed), done))?;
            reported.entries.truncate(keep);
            reported.truncated_to = None;
        }
        for body in [
            EntryBody::Blank,
            batch_of_one(),
            batch_of_one(),
            batch_of_one(),
        ] {
            let index = reported.entries.len() as u64 + 1;
            append(&replica, vec![entry(term, index, body)])?;
            reported.entries.push(term);
        }
        let through = LogIndex(reported.entries.len() as u64 - 1);
        let from = LogIndex(reported.committed + 1);
        for one in replica.reader().read(from, through, usize::MAX)? {
            replica.save_committed(one.id)?;
            reported.committed = one.id.index.0;
            replica.apply(one)?;
        }
        if term == 2 {
            store.checkpoint()?;
        }
    }
    store.close()
}

#[test]
fn no_power_cut_loses_a_reported_vote_or_entry() {
    let uncut = SimDisk::new();
    run_until_power_cut(&uncut, &mut Reported::default()).unwrap();
    let operations = uncut.counts().ops;
    assert!(operations > 100, "{operations}");
    for at in 1..=operations {
        let disk = SimDisk::new();
        disk.cut_at(at);
        let mut reported = Reported::default();
        drop(run_until_power_cut(&disk, &mut reported));
        for seed in 0..3 {
            let crashed: Arc<dyn Disk> = Arc::new(disk.power_cut(at * 10 + seed));
            let provider: Arc<dyn IntentionLog> = Arc::new(SingleNode::default());
            let opened = Store::open_node_disk(crashed, &options(), &node(), provider);
            let (_store, replica) = opened.unwrap_or_else(|error| panic!("cut {at}: {error}"));
            let key = |vote: Vote| (vote.term, vote.is_committed);
            let (found, durable) = (replica.vote().map(key), reported.vote.map(key));
            assert!(found >= durable, "cut {at}: {found:?} after {durable:?}");
            let last = LogIndex(u64::MAX);
            let entries = replica
                .reader()
                .read(LogIndex(1), last, usize::MAX)
                .unwrap();
            let terms: Vec<u64> = entries.iter().map(|one| one.id.term).collect();
            let required = reported.truncated_to.unwrap_or(reported.entries.len());
            let required = &reported.entries[..required];
            assert!(
                terms.starts_with(required),
                "cut {at}: {terms:?} after {required:?}"
            );
            let applied = replica.applied().last.map_or(0, |id| id.index.0);
            assert!(applied <= reported.committed + 1, "cut {at}: {applied}");
        }
    }
}
