//! The options that every command has, resolved: settings, style, limits.

use std::time::Duration;

use weir::{Consistency, IntentionLimits};

use crate::credentials::Credentials;
use crate::output::Style;
use crate::settings::Settings;

/// What holds for this call.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct Caller {
    /// Settings with their origins.
    pub(crate) settings: Settings,
    /// How rows are printed.
    pub(crate) style: Style,
    /// `--token-file` and the like, as they were typed.
    pub(crate) credentials: Credentials,
    /// Whether only data and errors are wanted.
    pub(crate) quiet: bool,
    /// Whether explanations are wanted.
    pub(crate) verbose: bool,
    /// How long to wait for a lock.
    pub(crate) lock_wait: Duration,
    /// What a node of a cluster must have seen to read a key.
    pub(crate) consistency: Consistency,
    /// Whether a store may be created beside other files.
    pub(crate) create: bool,
    /// Limits of keys and values.
    pub(crate) limits: IntentionLimits,
    /// Whether the exit codes of the store tools hold.
    pub(crate) tool: bool,
}
