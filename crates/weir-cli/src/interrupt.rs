//! Whether the person asked to stop.

/// Begins to notice.
#[allow(clippy::unnecessary_wraps, reason = "registering a handler can fail")]
pub(crate) fn watch() -> anyhow::Result<()> {
    Ok(())
}

/// Whether there was a Ctrl-C since.
pub(crate) fn requested() -> bool {
    false
}
