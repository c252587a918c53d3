//! `weir cluster status`: shows the state of every node.

use std::borrow::Cow;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use clap::Args;
use weir::{ClusterStatus, ConnectOptions, ErrorCode, MemberStatus, Weir};

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::{self, Access, Location};
use crate::report::{Failure, FailureContext, note, print_failure};

/// Maximum time for the response of a node.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Exit code if a node does not respond or contradicts the others, but a majority agrees.
const MEMBER_DOWN: u8 = 1;
/// Exit code if no majority responds.
const NO_QUORUM: u8 = 5;
/// Role of a node that knows that it was removed from its cluster.
const REMOVED: &str = "removed";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Asks the node at --at, and then all members that it knows. Needs the right `admin`. Two nodes with
equal `applied` must have equal `digest`. Exit codes: 0; 1: a node does not respond, answers with other
members, or a second node leads; 5: the nodes that respond with the same members are not a majority.
A number that is reserved for a node does not change the exit code. A removed node counts as one that
does not respond. The command cannot ask a node without a native port: it shows the node as unreachable,
or as reserved if the node does not vote and has no HTTP port either. If no majority can run again, see
\"A lost majority\" in `weir help guide cluster`.

Examples:
  weir cluster status --at weir://127.0.0.1:7071
  weir cluster status --at weir://127.0.0.1:7071 -o json --columns node,role,applied,digest")]
pub(crate) struct StatusArgs {}

/// Fields of a node.
pub(crate) const FIELDS: &[Field] = &[
    field("node", "number", "number of the node"),
    field(
        "role",
        "text",
        "leader, follower, candidate, learner, full, removed or ended; unreachable: the node does not \
         respond, or has no native port; reserved: no node has used the number yet, or its node \
         has no ports for clients and does not vote",
    ),
    field("votes", "bool", "whether the node votes"),
    field("term", "number", "term of the node"),
    field(
        "leader",
        "number",
        "number of the leader that the node knows",
    ),
    field(
        "last_term",
        "number",
        "term of the newest entry of the log, null: unknown",
    ),
    field("last", "number", "newest entry of the log"),
    field(
        "committed",
        "number",
        "newest entry that the node knows to be committed",
    ),
    field("applied", "number", "newest applied entry"),
    field(
        "lag",
        "number",
        "entries that are committed on the most advanced node and not applied here",
    ),
    field(
        "contact_ms",
        "number",
        "milliseconds since the last contact with a leader; on the leader: with a majority",
    ),
    field("digest", "text", "digest of the applied state"),
    field("native", "text", "address for the native protocol"),
    wide("http", "text", "address for HTTP"),
    wide("peer", "text", "address for the other nodes"),
    wide("durability", "text", "durability level"),
    wide(
        "clock_ahead_ms",
        "number",
        "milliseconds by which the wall clock is ahead of a majority",
    ),
    wide("error", "text", "why the node does not respond"),
];

/// The state that one node reports.
struct Answer {
    cluster: ClusterStatus,
    durability: String,
}

/// Runs `weir cluster status`.
pub(crate) fn run(caller: &Caller, _args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read);
    let first = weir.and_then(|weir| ask(&weir).failed(|| "cannot read the status".to_owned()));
    let first = match first {
        Ok(first) => first,
        Err(error) => return without_answer(error),
    };
    let Some(first) = first else {
        let at = &caller.settings.at.value;
        let why = match place::location(caller)? {
            Location::Directory(_) => "it is a directory that nothing serves as a node",
            Location::Server(_) => "the server is not a node of a cluster",
        };
        let failure = Failure::new(ErrorCode::BadOption, format!("{at} is not a cluster"));
        return Err(failure.because(why).into());
    };
    let mut options = place::connect_options(caller)?;
    options.connect_timeout = ANSWER_TIMEOUT;
    options.patience = ANSWER_TIMEOUT;
    let at = &caller.settings.at.value;
    let (first, removed) = skip_removed(at, &options, first);
    let members = first.cluster.members.clone();
    let answers = query_others(at, &options, &first, &members);
    let known = |answer: &Result<Option<Answer>, String>| match answer {
        Ok(Some(answer)) => answer.cluster.committed,
        _ => 0,
    };
    let furthest = answers.iter().map(known).max().unwrap_or(0);
    let furthest = furthest.max(first.cluster.committed);
    for (member, answer) in members.iter().zip(&answers) {
        let (answer, error) = match answer {
            Ok(None) => (Some(&first), None),
            Ok(Some(answer)) => (Some(answer), None),
            Err(error) => (None, Some(&**error)),
        };
        out.row(&row(member, answer, error, furthest))?;
    }
    out.finish()?;
    let all = answers.iter().flatten().map(|answer| answer.as_ref());
    let mut all = all.map(|answer| answer.unwrap_or(&first));
    if let Some(unsynced) = all.find(|answer| !answer.cluster.synced) {
        let text = format!(
            "durability {}: a power cut of all nodes loses acknowledged writes",
            unsynced.durability
        );
        note(caller.quiet, &text);
    }
    if let Some(node) = removed {
        let text =
            format!("node {node} was removed from the cluster, but still runs: end its process");
        note(false, &text);
    }
    let contradictions = contradictions(&first, &members, &answers);
    for text in &contradictions {
        note(false, text);
    }
    Ok(exit_code(
        &first,
        &members,
        &answers,
        !contradictions.is_empty(),
    ))
}

/// The result if no state was read. If no node can be reached, no majority responds.
fn without_answer(error: anyhow::Error) -> anyhow::Result<ExitCode> {
    let failure = error.downcast::<Failure>()?;
    if failure.code != ErrorCode::Unreachable {
        return Err(failure.into());
    }
    print_failure(&failure);
    Ok(ExitCode::from(NO_QUORUM))
}

/// If `first` was removed from its cluster, its members are old: returns the state of one of them
/// instead, and the number of the removed node.
fn skip_removed(at: &str, options: &ConnectOptions, first: Answer) -> (Answer, Option<u64>) {
    if first.cluster.role != REMOVED {
        return (first, None);
    }
    let answers = query_others(at, options, &first, &first.cluster.members);
    let mut others = answers
        .into_iter()
        .filter_map(|answer| answer.ok().flatten());
    match others.find(|other| other.cluster.role != REMOVED) {
        Some(other) => (other, Some(first.cluster.node)),
        None => (first, None),
    }
}

/// Requests the state of each member. The result is `None` for the member of `first`.
fn query_others(
    at: &str,
    options: &ConnectOptions,
    first: &Answer,
    members: &[MemberStatus],
) -> Vec<Result<Option<Answer>, String>> {
    // In parallel, so that several unreachable members take the time of one.
    std::thread::scope(|scope| {
        let mut requests = Vec::new();
        for member in members {
            let is_other = member.node != first.cluster.node;
            let request = move || ask_member(at, options, member);
            requests.push(is_other.then(|| scope.spawn(request)));
        }
        let answers =
            requests
                .into_iter()
                .map(|request| match request.map(ScopedJoinHandle::join) {
                    None => Ok(None),
                    Some(Ok(answer)) => answer.map(Some),
                    Some(Err(_)) => Err("the request for its state has failed".to_owned()),
                });
        answers.collect()
    })
}

/// The cells of one member.
fn row<'a>(
    member: &'a MemberStatus,
    answer: Option<&'a Answer>,
    error: Option<&'a str>,
    furthest: u64,
) -> [Cell<'a>; 18] {
    let text = |text: Option<&str>| {
        text.map_or(Cell::Nothing, |text| {
            Cell::Text(Cow::Owned(text.to_owned()))
        })
    };
    let cluster = answer.map(|answer| &answer.cluster);
    let count = |of: fn(&ClusterStatus) -> Option<u64>| {
        cluster.and_then(of).map_or(Cell::Nothing, Cell::Count)
    };
    let address = |scheme: &str| {
        let mut addresses = member.client.iter();
        addresses
            .find(|address| address.starts_with(scheme))
            .map(|address| &**address)
    };
    [
        Cell::Count(member.node),
        text(Some(match cluster {
            Some(cluster) => &*cluster.role,
            None if is_reserved(member) => "reserved",
            None => "unreachable",
        })),
        Cell::Flag(member.votes),
        count(|cluster| Some(cluster.term)),
        count(|cluster| cluster.leader),
        count(|cluster| cluster.last_term),
        count(|cluster| Some(cluster.last)),
        count(|cluster| Some(cluster.committed)),
        count(|cluster| Some(cluster.applied)),
        cluster.map_or(Cell::Nothing, |cluster| {
            Cell::Count(furthest.saturating_sub(cluster.applied))
        }),
        count(|cluster| cluster.contact_ms),
        text(cluster.map(|cluster| &*cluster.digest)),
        text(address("weir")),
        text(address("http")),
        text(Some(&member.peer)),
        text(answer.map(|answer| &*answer.durability)),
        count(|cluster| Some(cluster.clock_ahead_ms)),
        text(error),
    ]
}

fn exit_code(
    first: &Answer,
    members: &[MemberStatus],
    answers: &[Result<Option<Answer>, String>],
    is_contradictory: bool,
) -> ExitCode {
    let is_down = |(member, answer): (&MemberStatus, &Result<Option<Answer>, String>)| {
        !is_current(first, answer) && !is_reserved(member)
    };
    let voters = members.iter().filter(|member| member.votes).count();
    let agreeing = members
        .iter()
        .zip(answers)
        .filter(|(member, answer)| {
            member.votes && is_current(first, answer) && !contradicts(first, answer)
        })
        .count();
    if agreeing * 2 <= voters {
        ExitCode::from(NO_QUORUM)
    } else if is_contradictory || members.iter().zip(answers).any(is_down) {
        ExitCode::from(MEMBER_DOWN)
    } else {
        ExitCode::SUCCESS
    }
}

/// Whether a node answers, and was not removed.
fn is_current(first: &Answer, answer: &Result<Option<Answer>, String>) -> bool {
    let is_member = |answer: &Option<Answer>| {
        let answer = answer.as_ref().unwrap_or(first);
        answer.cluster.role != REMOVED
    };
    answer.as_ref().is_ok_and(is_member)
}

/// Whether a node that was not removed answers with other members than the first one.
fn contradicts(first: &Answer, answer: &Result<Option<Answer>, String>) -> bool {
    match answer {
        Ok(Some(answer)) if answer.cluster.role != REMOVED => {
            voting(&answer.cluster) != voting(&first.cluster)
        }
        _ => false,
    }
}

/// Sentences that name the contradictions between the nodes.
fn contradictions(
    first: &Answer,
    members: &[MemberStatus],
    answers: &[Result<Option<Answer>, String>],
) -> Vec<String> {
    let mut found = Vec::new();
    for (member, answer) in members.iter().zip(answers) {
        if contradicts(first, answer) {
            found.push(format!(
                "node {} answers with other members than node {}: it is not part of this cluster, \
                 or lacks the newest change of the members",
                member.node, first.cluster.node
            ));
        }
    }
    let all = answers.iter().flatten().map(|answer| answer.as_ref());
    let all = all.map(|answer| &answer.unwrap_or(first).cluster);
    let leaders = all.filter(|cluster| cluster.role == "leader");
    let leaders: Vec<_> = leaders.map(|leader| leader.node.to_string()).collect();
    if leaders.len() > 1 {
        found.push(format!(
            "nodes {} lead: unless the leadership was just transferred, one of them belongs to \
             another cluster, and this cluster does not get its writes",
            leaders.join(" and ")
        ));
    }
    found
}

/// The members that a node knows, and whether they vote.
fn voting(cluster: &ClusterStatus) -> Vec<(u64, bool)> {
    let members = cluster.members.iter();
    members.map(|member| (member.node, member.votes)).collect()
}

/// Whether a number is reserved, and no node has joined with it yet.
pub(super) fn is_reserved(member: &MemberStatus) -> bool {
    !member.votes && member.client.iter().all(String::is_empty)
}

fn ask(weir: &Weir) -> Result<Option<Answer>, weir::WeirError> {
    let status = weir.status()?;
    let durability = weir.durability()?.name().to_owned();
    let cluster = status.server.and_then(|server| server.cluster);
    Ok(cluster.map(|cluster| Answer {
        cluster,
        durability,
    }))
}

/// Requests the state of another member. The error is a sentence for people.
fn ask_member(at: &str, options: &ConnectOptions, member: &MemberStatus) -> Result<Answer, String> {
    if is_reserved(member) {
        let text = "no node has joined with its number yet, or the node has no ports for clients";
        return Err(text.to_owned());
    }
    let mut native = member.client.iter();
    let native = native.find(|address| address.starts_with("weir"));
    let url = native.ok_or("it has no native port")?;
    let weir = place::connect_member(at, url, options)?;
    match ask(&weir) {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err("it is not a node of a cluster".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
