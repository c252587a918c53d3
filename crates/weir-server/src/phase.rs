//! The phases of a server's shutdown.

/// A phase of the shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    #[default]
    Open,
    /// Still accepting, but no longer ready (lame duck).
    Leaving,
    /// No new connections or requests are accepted; connections close after the current work.
    Draining,
    /// Everything ends at once.
    Cut,
}
