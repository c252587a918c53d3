//! `weir cluster snapshot`: writes a snapshot on every node, and removes the log before it.

use std::borrow::Cow;
use std::process::ExitCode;

use clap::Args;
use weir::ErrorCode;

use crate::caller::Caller;
use crate::cluster::status::{ANSWER_TIMEOUT, is_reserved};
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::report::{Failure, FailureContext};

/// Exit code if a node did not write a snapshot.
const MEMBER_DOWN: u8 = 1;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Each node in turn writes a snapshot, as with `weir compact`. A node that joins, or was down for long, then
may get a snapshot instead of the log. Each node keeps at least the newest `log_keep_bytes` of its log
(256 MiB by default), so the log of a small store does not shrink. Needs the right `admin`. A number
that is only reserved is left out, and so is a node that does not vote and has no ports for clients.
The exit code is 1 if a node does not respond or has no native port.

Examples:
  weir cluster snapshot --at weir://127.0.0.1:7071
  weir cluster snapshot --at weir://127.0.0.1:7071 -o json")]
pub(crate) struct SnapshotArgs {}

/// Fields of a node.
pub(crate) const FIELDS: &[Field] = &[
    field("node", "number", "number of the node"),
    field("index", "number", "newest log entry in the snapshot"),
    field("log_bytes_before", "number", "bytes of log before"),
    field("log_bytes_after", "number", "bytes of log afterwards"),
    field("error", "text", "why the node has written no snapshot"),
];

/// Runs `weir cluster snapshot`.
pub(crate) fn run(caller: &Caller, _args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Change)?;
    let status = weir.status();
    let status = status.failed(|| "cannot read the status".to_owned())?;
    let at = &caller.settings.at.value;
    let Some(cluster) = status.server.and_then(|server| server.cluster) else {
        let failure = Failure::new(ErrorCode::BadOption, format!("{at} is not a cluster"));
        return Err(failure.because("nothing serves it as a node").into());
    };
    let mut is_complete = true;
    for member in cluster.members.iter().filter(|member| !is_reserved(member)) {
        let mut native = member.client.iter();
        let native = native.find(|address| address.starts_with("weir"));
        let mut options = place::connect_options(caller)?;
        options.connect_timeout = ANSWER_TIMEOUT;
        options.patience = ANSWER_TIMEOUT;
        let compacted = match native {
            Some(url) => place::connect_member(at, url, &options)
                .and_then(|weir| weir.compact().map_err(|error| error.to_string())),
            None => Err("it has no native port".to_owned()),
        };
        is_complete &= compacted.is_ok();
        let count = |number: Option<u64>| number.map_or(Cell::Nothing, Cell::Count);
        let size = |number: Option<u64>| number.map_or(Cell::Nothing, Cell::Size);
        let report = compacted.as_ref().ok();
        out.row(&[
            Cell::Count(member.node),
            count(report.map(|report| report.index.0)),
            size(report.map(|report| report.log_bytes_before)),
            size(report.map(|report| report.log_bytes_after)),
            match &compacted {
                Ok(_) => Cell::Nothing,
                Err(error) => Cell::Text(Cow::Borrowed(error)),
            },
        ])?;
    }
    out.finish()?;
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(MEMBER_DOWN)
    })
}
