//! The storage test suite of openraft, run on a store in a directory.

use std::io;
use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;
use weir_raft::suite::{LogStore, StateMachine, Types};
use weir_store::replica::{EntryId, IntentionLog, LatencyClass, NodeOptions, ProposedBatch};
use weir_store::{OpenOptions, Store};

/// A log provider that ignores proposals: the suite makes none.
pub struct NoProposals;

impl IntentionLog for NoProposals {
    fn propose(&self, _: ProposedBatch) {}

    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Network
    }

    fn purgeable(&self, _: EntryId) {}
}

struct Directories;

impl StoreBuilder<Types, LogStore, StateMachine, (Store, TempDir)> for Directories {
    async fn build(
        &self,
    ) -> Result<((Store, TempDir), LogStore, StateMachine), StorageError<Types>> {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            log_segment_bytes: 32 << 10,
            ..OpenOptions::default()
        };
        let node = NodeOptions {
            node: 0,
            cluster: [7; 16],
            incarnation: 0,
            allow_gaps: true,
        };
        let opened = Store::open_node(directory.path(), &options, &node, Arc::new(NoProposals));
        let (store, replica) = opened.unwrap();
        let machine = StateMachine::new(replica.clone()).unwrap();
        Ok(((store, directory), LogStore::new(replica), machine))
    }
}

type Tests = Suite<Types, LogStore, StateMachine, Directories, (Store, TempDir)>;

/// Runs one test on a separate store.
async fn run<F, R>(test: impl FnOnce(LogStore, StateMachine) -> F) -> R
where
    F: Future<Output = Result<R, io::Error>>,
{
    let (guard, log, machine) = Directories.build().await.unwrap();
    let result = test(log, machine).await;
    drop(guard);
    result.unwrap()
}

macro_rules! suite {
    ($($test:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            run(Tests::$test).await;
        }
    )*};
}

suite! {
    last_membership_in_log_initial
    last_membership_in_log
    last_membership_in_log_multi_step
    get_membership_initial
    get_membership_from_log_and_empty_sm
    get_membership_from_empty_log_and_sm
    get_membership_from_log_le_sm_last_applied
    get_membership_from_log_gt_sm_last_applied_1
    get_membership_from_log_gt_sm_last_applied_2
    get_initial_state_without_init
    get_initial_state_membership_from_empty_log_and_sm
    get_initial_state_membership_from_sm_inlog_is_smaller
    get_initial_state_membership_from_log_insm_is_smaller
    get_initial_state_with_state
    get_initial_state_last_log_gt_sm
    get_initial_state_last_log_lt_sm
    get_initial_state_inverted_log_order
    get_initial_state_conflict_at_same_index
    get_initial_state_log_ids
    get_initial_state_re_apply_committed
    save_vote
    get_log_entries
    limited_get_log_entries
    leader_bounded_stream
    entries_stream
    try_get_log_entry
    log_reader_reads_new_entries
    initial_logs
    get_log_state
    get_log_id
    last_id_in_log
    last_applied_state
    purge_logs_upto_0
    purge_logs_upto_5
    purge_logs_upto_20
    delete_logs_after_11
    delete_logs_after_5
    delete_logs_after_0
    delete_logs_after_none
    append_to_log
    snapshot_meta
    snapshot_meta_optional
    apply_single
    apply_multiple
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_snapshot() {
    Tests::transfer_snapshot(&Directories).await.unwrap();
}
