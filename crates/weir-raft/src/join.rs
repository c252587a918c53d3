//! Requests to join a cluster.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use weir_store::OpenOptions;
use weir_store::replica::{NodeIdentity, new_incarnation};

use crate::error::NodeError;
use crate::frame::{self, HELLO_BYTES_MAX, Kind, invalid};
use crate::members::ADDRESS_BYTES_MAX;
use crate::secure::{self, PeerTls};
use crate::types::Member;
use crate::wire::{Join, JoinAnswer};

/// Time limit for the connection to one member and its reply. Followers name a leader that has ended
/// or hangs until they know another one. The leader first commits a change of the members, which may
/// take longer: then the repeated request gets the reply of the first one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before the request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// A request of a process to join a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The node identity in the directory; `None` for an empty directory.
    pub known: Option<NodeIdentity>,
    /// The number that an empty directory requests; `None` for any.
    pub node: Option<u64>,
    /// The addresses of the node.
    pub member: Member,
    /// [`fingerprint`] of the options with which the directory is opened.
    pub engine: String,
    /// Whether its durability is one that syncs before an acknowledgement.
    pub is_synced: bool,
}

/// A text with everything that affects the outcome of programs: the engine, its meter, and the
/// features of the CPU. Empty without an engine.
#[must_use]
pub fn fingerprint(options: &OpenOptions) -> String {
    let engine = options.host.as_ref();
    engine.map_or_else(String::new, |engine| engine.fingerprint())
}

/// Requests a number for an empty directory from the members at these peer addresses, or reports
/// the new addresses of an existing node. Repeats the request until the leader replies. The node is
/// then a member that does not vote.
///
/// # Errors
/// Fails if the cluster rejects the request, or no leader replies within `patience`.
pub async fn join(
    members: &[String],
    request: &JoinRequest,
    patience: Duration,
) -> Result<NodeIdentity, NodeError> {
    join_by(members, request, patience, None).await
}

/// As [`join`], with TLS.
///
/// # Errors
/// As for [`join`]. With an empty directory, a rejected certificate fails at once.
pub async fn join_by(
    members: &[String],
    request: &JoinRequest,
    patience: Duration,
    tls: Option<&PeerTls>,
) -> Result<NodeIdentity, NodeError> {
    let until = Instant::now() + patience;
    // An empty directory gets its incarnation when it is opened.
    let known = request.known.map(|known| known.incarnation);
    let incarnation = known.unwrap_or_else(new_incarnation);
    let join = Join {
        cluster: request.known.map(|known| known.cluster),
        node: request
            .known
            .map_or(request.node.unwrap_or(0), |known| known.node),
        member: Member {
            incarnation,
            ..request.member.clone()
        },
        engine: request.engine.clone(),
        is_synced: request.is_synced,
    };
    for address in [&join.member.peer, &join.member.client, &join.engine] {
        if address.len() > ADDRESS_BYTES_MAX {
            let text = format!("{} bytes are too long: {address}", address.len());
            return Err(NodeError::Refused(text));
        }
    }
    let mut leader_peer: Option<String> = None;
    let mut failure = "no address of a member was given".to_owned();
    loop {
        let hint = leader_peer.take();
        for address in hint.iter().chain(members) {
            match timeout(ANSWER_TIMEOUT, request_join(address, &join, tls)).await {
                Ok(Ok(JoinAnswer::Joined { cluster, node })) => {
                    return Ok(NodeIdentity {
                        node,
                        cluster,
                        incarnation,
                    });
                }
                // That leader was asked in this round, and may have ended. Another member may know
                // a later one.
                Ok(Ok(JoinAnswer::NotLeader(peer))) if hint.as_ref() == Some(&peer) => {}
                Ok(Ok(JoinAnswer::NotLeader(peer))) => {
                    leader_peer = Some(peer);
                    break;
                }
                // The peer of a node may just be ending, or get another certificate.
                Ok(Err(JoinFailure::Denied(text))) if known.is_some() => failure = text,
                Ok(Err(JoinFailure::Refused(text) | JoinFailure::Denied(text))) => {
                    return Err(NodeError::Refused(text));
                }
                Ok(Err(JoinFailure::Retry(text))) => failure = format!("{address}: {text}"),
                Err(_) => failure = format!("{address} did not answer in time"),
            }
        }
        if Instant::now() >= until {
            return Err(NodeError::Unreachable(failure));
        }
        sleep(PAUSE).await;
    }
}

enum JoinFailure {
    /// The cluster has refused the request.
    Refused(String),
    /// A certificate was rejected, or a peer has ended the handshake.
    Denied(String),
    Retry(String),
}

impl From<io::Error> for JoinFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(error.to_string()),
            _ => Self::Retry(error.to_string()),
        }
    }
}

async fn request_join(
    address: &str,
    join: &Join,
    tls: Option<&PeerTls>,
) -> Result<JoinAnswer, JoinFailure> {
    let mut stream = secure::connect(address, tls).await?;
    frame::write(&mut stream, Kind::Join, 0, &join.encode()).await?;
    let answer = frame::read(&mut stream, HELLO_BYTES_MAX).await;
    let answer = answer.map_err(|error| secure::explain(error, address))?;
    let answer = answer.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let text = || {
        let text = String::from_utf8_lossy(&answer.body);
        text.chars().take(500).collect()
    };
    match answer.kind {
        Kind::Answer => Ok(JoinAnswer::decode(&answer.body)?),
        Kind::Refused => Err(JoinFailure::Refused(text())),
        Kind::Failed => Err(JoinFailure::Retry(text())),
        _ => Err(invalid("a peer answered a request to join with an unexpected frame").into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn join_request(known: Option<NodeIdentity>) -> JoinRequest {
        JoinRequest {
            known,
            node: None,
            member: Member::default(),
            engine: String::new(),
            is_synced: true,
        }
    }

    /// A member that gives the same answer to each request. Returns its address.
    async fn member(answer: JoinAnswer) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let asked = frame::read(&mut stream, HELLO_BYTES_MAX).await;
                if let Ok(Some(_)) = asked {
                    let answer = answer.encode();
                    drop(frame::write(&mut stream, Kind::Answer, 0, &answer).await);
                }
            }
        });
        address
    }

    /// After a restart, a node names its last leader until another one reaches it.
    #[tokio::test]
    async fn a_member_that_names_an_ended_leader_does_not_hide_the_others() {
        let ended = "127.0.0.1:2".to_owned();
        let cluster = [5; 16];
        let members = [
            member(JoinAnswer::NotLeader(ended)).await,
            member(JoinAnswer::Joined { cluster, node: 3 }).await,
        ];
        let request = join_request(None);
        let joined = join(&members, &request, Duration::from_mins(1)).await;
        assert_eq!(joined.unwrap().node, 3);
    }

    #[tokio::test]
    async fn only_an_empty_directory_fails_at_once_if_a_certificate_is_rejected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let members = [listener.local_addr().unwrap().to_string()];
        let rejected = || io::Error::new(io::ErrorKind::PermissionDenied, "rejected");
        let tls = PeerTls::new(move || Err(rejected()));
        let node = NodeIdentity {
            node: 2,
            cluster: [5; 16],
            incarnation: 7,
        };
        for known in [None, Some(node)] {
            let request = join_request(known);
            let joined = join_by(&members, &request, Duration::ZERO, Some(&tls)).await;
            let error = joined.unwrap_err();
            assert!(error.to_string().contains("rejected"), "{error}");
            let is_final = matches!(error, NodeError::Refused(_));
            assert_eq!(is_final, known.is_none(), "{error}");
        }
    }
}
