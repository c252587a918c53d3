//! The settings of openraft. Each one has its reason in docs/decisions/0066.

use std::time::Duration;

use openraft::{Config, ConfigError, SnapshotPolicy};

/// The longest election timeout of a node, and the lease of a leader, in milliseconds.
const ELECTION_TIMEOUT_MAX_MS: u64 = 500;
/// Time without a leader after which a node no longer reports the last one: the lease, and the time
/// in which an election begins.
pub(crate) const LEADER_SILENCE_MAX: Duration = Duration::from_millis(2 * ELECTION_TIMEOUT_MAX_MS);
/// Limit on entries in one request to a peer.
const REQUEST_ENTRIES_MAX: u64 = 64;

/// The settings. With `may_lose_entries`, a power cut may remove entries that a node has
/// acknowledged. A leader then sends them again. Without `allow_log_reversion`, it would send the
/// entries after them, which the node refuses, without end.
pub(crate) fn config(cluster: [u8; 16], may_lose_entries: bool) -> Result<Config, ConfigError> {
    let name = u128::from_be_bytes(cluster);
    let config = Config {
        cluster_name: format!("{name:032x}"),
        heartbeat_interval: 50,
        election_timeout_min: 250,
        election_timeout_max: ELECTION_TIMEOUT_MAX_MS,
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(1_000),
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        allow_log_reversion: Some(may_lose_entries),
        replication_lag_threshold: REQUEST_ENTRIES_MAX,
        max_payload_entries: REQUEST_ENTRIES_MAX,
        backoff: "20ms 50ms 100ms ..200ms".to_owned(),
        ..Config::default()
    };
    config.validate()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use openraft::StepDownPolicy;

    use super::*;

    /// The table of decision 0066 must change together with these values.
    #[test]
    fn settings_match_the_decision() {
        let unsynced = config([1; 16], true).unwrap();
        assert_eq!(unsynced.allow_log_reversion, Some(true));
        let config = config([1; 16], false).unwrap();
        assert_eq!(config.heartbeat_interval, 50);
        let election = (config.election_timeout_min, config.election_timeout_max);
        assert_eq!(election, (250, 500));
        assert_eq!(config.enable_pre_vote, Some(true));
        assert_eq!(config.quorum_loss_probe_interval, Some(1_000));
        assert_eq!(config.enable_leader_restore, Some(false));
        assert_eq!(config.allow_log_reversion, Some(false));
        assert_eq!(config.snapshot_policy, SnapshotPolicy::Never);
        assert_eq!(config.max_in_snapshot_log_to_keep, u64::MAX);
        assert_eq!(config.replication_lag_threshold, 64);
        let step_down = StepDownPolicy::After(150);
        assert_eq!(config.removed_leader_step_down, step_down);
        assert_eq!(config.backoff, "20ms 50ms 100ms ..200ms");
        assert!(config.enable_tick && config.enable_elect && config.enable_heartbeat);
        assert_eq!(
            (config.max_payload_entries, config.api_batch_linger_ms),
            (64, 0)
        );
    }
}
