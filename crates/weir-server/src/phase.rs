//! How far the end of a server has come.

/// How far the end of a server has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    #[default]
    Open,
    /// Still accepting, but no longer ready (lame duck).
    Leaving,
    /// Nothing new is accepted; connections end after what they are doing.
    Draining,
    /// Everything ends at once.
    Cut,
}
