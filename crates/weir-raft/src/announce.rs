//! Requests that only announce a commit, replaced by requests with entries that soon follow them
//! (docs/decisions/0101).
//!
//! Invariants:
//! - Requests keep their order.
//! - A request is omitted only if the next request announces the same or a later commit.
//! - A request waits at most [`ANNOUNCE_WAIT`].

use std::time::Duration;

use futures_util::stream::{Fuse, Stream, StreamExt, unfold};
use openraft::raft::AppendEntriesRequest;
use tokio::time::{Instant, timeout};

use crate::types::Types;

type Request = AppendEntriesRequest<Types>;

/// Time for which the announcement of a commit waits for further entries, if entries followed the
/// last announcement within this time. The timers of tokio round it up to at most 2 ms.
const ANNOUNCE_WAIT: Duration = Duration::from_millis(1);

/// The requests of one stream to a peer.
struct Requests<S> {
    input: Fuse<S>,
    /// When the newest request was sent, if it had no entries.
    announced: Option<Instant>,
    /// Whether entries followed the last announcement within [`ANNOUNCE_WAIT`].
    is_followed: bool,
}

impl<S: Stream<Item = Request> + Unpin> Requests<S> {
    async fn next(&mut self) -> Option<Request> {
        let mut request = self.input.next().await?;
        if request.entries.is_empty() && self.is_followed {
            // An expired wait takes nothing from the stream.
            match timeout(ANNOUNCE_WAIT, self.input.next()).await {
                Ok(Some(later)) => request = later,
                Ok(None) => {}
                Err(_) => self.is_followed = false,
            }
        }
        if request.entries.is_empty() {
            self.announced = Some(Instant::now());
        } else if let Some(announced) = self.announced.take() {
            self.is_followed = announced.elapsed() <= ANNOUNCE_WAIT;
        }
        Some(request)
    }
}

/// Returns the requests of `input`. If entries keep following announcements of commits, an
/// announcement waits for them and is omitted: one request for each round of a client that waits
/// for its answers, instead of two.
pub(crate) fn merge_announcements<S>(input: S) -> impl Stream<Item = Request> + Send + 'static
where
    S: Stream<Item = Request> + Send + Unpin + 'static,
{
    let requests = Requests {
        input: input.fuse(),
        announced: None,
        is_followed: false,
    };
    unfold(requests, |mut requests| async move {
        let request = requests.next().await?;
        Some((request, requests))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use openraft::EntryPayload;
    use openraft::entry::RaftEntry;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
    use weir_store::LogIndex;
    use weir_store::replica::{EntryId, Vote};

    use super::*;
    use crate::convert::{entry_id, log_id, vote};
    use crate::types::Entry;

    type Merged = Pin<Box<dyn Stream<Item = Request>>>;

    /// Runs a test whose clock moves only while the test waits for it.
    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(test);
    }

    fn requests() -> (UnboundedSender<Request>, Merged) {
        let (sender, receiver) = unbounded_channel();
        let input = unfold(
            receiver,
            |mut receiver: UnboundedReceiver<Request>| async move {
                let request = receiver.recv().await?;
                Some((request, receiver))
            },
        );
        (sender, Box::pin(merge_announcements(Box::pin(input))))
    }

    /// A request with one entry or none, which announces the commit of the entry `commit`.
    fn request(has_entry: bool, commit: u64) -> Request {
        let id = |index| {
            let index = LogIndex(index);
            log_id(EntryId { term: 1, index })
        };
        let entry = has_entry.then(|| Entry::new(id(commit + 1), EntryPayload::Blank));
        Request {
            vote: vote(Vote {
                term: 1,
                voted_for: 1,
                is_committed: true,
            }),
            prev_log_id: Some(id(commit)),
            entries: entry.into_iter().collect(),
            leader_commit: Some(id(commit)),
        }
    }

    /// Whether the next request has an entry, which commit it announces, and after which wait it is
    /// sent.
    async fn next(merged: &mut Merged) -> Option<(bool, u64, Duration)> {
        let begun = Instant::now();
        let request = merged.next().await?;
        let commit = entry_id(request.leader_commit.as_ref().unwrap()).index.0;
        Some((!request.entries.is_empty(), commit, begun.elapsed()))
    }

    #[test]
    fn an_announcement_is_omitted_if_entries_keep_following() {
        run(async {
            let (sender, mut merged) = requests();
            let send = |has_entry, commit| sender.send(request(has_entry, commit)).unwrap();
            send(true, 1);
            assert_eq!(next(&mut merged).await, Some((true, 1, Duration::ZERO)));
            send(false, 2);
            assert_eq!(next(&mut merged).await, Some((false, 2, Duration::ZERO)));
            send(true, 2);
            assert_eq!(next(&mut merged).await, Some((true, 2, Duration::ZERO)));
            // Entries have followed: from now on, announcements wait for them.
            send(false, 3);
            send(true, 3);
            assert_eq!(next(&mut merged).await, Some((true, 3, Duration::ZERO)));
            send(false, 4);
            send(true, 4);
            assert_eq!(next(&mut merged).await, Some((true, 4, Duration::ZERO)));
        });
    }

    #[test]
    fn an_announcement_that_no_entries_follow_is_sent_after_a_short_wait() {
        run(async {
            let (sender, mut merged) = requests();
            let send = |has_entry, commit| sender.send(request(has_entry, commit)).unwrap();
            send(false, 1);
            send(true, 1);
            assert_eq!(next(&mut merged).await, Some((false, 1, Duration::ZERO)));
            assert_eq!(next(&mut merged).await, Some((true, 1, Duration::ZERO)));
            send(false, 2);
            let (has_entry, commit, waited) = next(&mut merged).await.unwrap();
            assert_eq!((has_entry, commit), (false, 2));
            assert!(waited >= ANNOUNCE_WAIT && waited <= 2 * ANNOUNCE_WAIT);
            // No entries followed: the next announcement does not wait.
            send(false, 3);
            assert_eq!(next(&mut merged).await, Some((false, 3, Duration::ZERO)));
        });
    }

    #[test]
    fn the_end_of_the_stream_ends_a_wait() {
        run(async {
            let (sender, mut merged) = requests();
            for (has_entry, commit) in [(false, 1), (true, 1), (false, 2)] {
                sender.send(request(has_entry, commit)).unwrap();
            }
            drop(sender);
            assert_eq!(next(&mut merged).await, Some((false, 1, Duration::ZERO)));
            assert_eq!(next(&mut merged).await, Some((true, 1, Duration::ZERO)));
            assert_eq!(next(&mut merged).await, Some((false, 2, Duration::ZERO)));
            assert_eq!(next(&mut merged).await, None);
        });
    }
}
