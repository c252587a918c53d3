//! The resolved common options of a command: settings, style, limits.

use std::time::Duration;

use weir::{Consistency, IntentionLimits};

use crate::credentials::Credentials;
use crate::output::Style;
use crate::settings::Settings;

/// The settings of one run of the command.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct Caller {
    /// Settings with their origins.
    pub(crate) settings: Settings,
    /// How rows are printed.
    pub(crate) style: Style,
    /// `--token-file` and the related options, as typed.
    pub(crate) credentials: Credentials,
    /// Whether to print data and errors only.
    pub(crate) quiet: bool,
    /// Whether to print explanations.
    pub(crate) verbose: bool,
    /// Maximum wait for the lock of a store, or for a server.
    pub(crate) lock_wait: Duration,
    /// Consistency of reads in a cluster; `None`: the default of each read.
    pub(crate) consistency: Option<Consistency>,
    /// Whether a store may be created in a directory that has other files.
    pub(crate) create: bool,
    /// Limits of keys and values.
    pub(crate) limits: IntentionLimits,
    /// Whether the exit codes of the store tools apply.
    pub(crate) tool: bool,
}
