//! The outcomes of a batch, and the response with them.
//!
//! Invariants:
//! - The size of the response does not grow with the batch. Equal consecutive outcomes are one run,
//!   and only the first [`RUNS_MAX`] runs are reported.
//! - The budget of responses covers the runs. If it is used up, no run is reported.

use std::sync::Arc;

use weir_core::{Detail, Effect, ErrorCode, Outcome, Outcomes};

use crate::http::head::FieldName;
use crate::http::json::{Object, number, text};
use crate::http::prefer::Prefer;
use crate::http::problem::{Kind, Member, Problem};
use crate::http::reply::Reply;
use crate::limits::RUNS_MAX;
use crate::limits::budget::Reservation;
use crate::resources::context::{Call, Edge};

/// The outcomes of a batch so far.
#[derive(Debug, Default)]
pub(super) struct Summary {
    items: u64,
    valid: u64,
    runs: Vec<u8>,
    count: usize,
    first_intention: Option<u64>,
    replayed: bool,
}

impl Summary {
    pub(super) fn add(&mut self, outcomes: &Outcomes) {
        for run in outcomes.runs() {
            if self.count < RUNS_MAX {
                if self.count > 0 {
                    self.runs.push(b',');
                }
                self.run(self.items, run.count, &run.outcome);
            }
            self.count += 1;
            self.items += u64::from(run.count);
            if let Some(commit) = run.outcome.commit() {
                self.first_intention.get_or_insert(commit.intention.0);
                if commit.effect == Effect::Valid {
                    self.valid += u64::from(run.count);
                }
            }
            self.replayed |= matches!(run.outcome, Outcome::Replayed(_));
        }
    }

    /// Writes a run as `[from, count, "valid", first offset]`, as `[from, count, "invalid" or
    /// "error", code, text]`, or as `[from, count, "refused", code, text]`.
    fn run(&mut self, from: u64, count: u32, outcome: &Outcome) {
        let out = &mut self.runs;
        out.push(b'[');
        number(out, from);
        out.push(b',');
        number(out, count.into());
        out.push(b',');
        let (effect, code, sentence) = match outcome {
            Outcome::Refused { code, .. } => ("refused", Some(*code), code.sentence().to_owned()),
            Outcome::Committed(commit) | Outcome::Replayed(commit) => {
                let sentence = match &commit.detail {
                    Detail::Rejected { text, .. } | Detail::Text(text) if !text.is_empty() => {
                        text.to_string()
                    }
                    _ => commit.reason.map_or("", ErrorCode::sentence).to_owned(),
                };
                (commit.effect.name(), commit.reason, sentence)
            }
        };
        text(out, &effect.to_ascii_lowercase());
        match (code, outcome.commit()) {
            (Some(code), _) => {
                out.push(b',');
                number(out, code.number().into());
                out.push(b',');
                text(out, &sentence);
            }
            (None, Some(commit)) => {
                out.push(b',');
                number(out, commit.first.0);
            }
            (None, None) => {}
        }
        out.push(b']');
    }

    /// Reserves memory for the runs in a response, or removes them if the budget is used up.
    async fn reserve(&mut self, edge: &Edge, call: &Call) -> Reservation {
        let budget = &edge.shared.admission.answers;
        let mut reservation = Reservation::for_principal(budget, call.principal.share_key());
        // While the response is rendered, there are two copies.
        if reservation.cover(2 * self.runs.len()).await.is_err() {
            self.runs = Vec::new();
        }
        reservation
    }

    fn members(&self, object: &mut Object<'_>) {
        object
            .number("items", self.items)
            .number("valid", self.valid);
        let out = object.member("runs");
        out.push(b'[');
        out.extend_from_slice(&self.runs);
        out.push(b']');
        let reported = if self.runs.is_empty() { 0 } else { RUNS_MAX };
        if self.count > reported {
            object.number("runs_left_out", (self.count - reported) as u64);
        }
    }
}

/// The response to a batch.
pub(super) async fn answer(
    edge: &Edge,
    call: &Call,
    mut summary: Summary,
    failed: Option<Problem>,
) -> Result<Reply, Problem> {
    let reservation = summary.reserve(edge, call).await;
    if let Some(problem) = failed {
        let nonces = [FieldName::WeirNonce, FieldName::IdempotencyKey];
        let has_nonces = nonces.iter().any(|name| call.head.has(*name));
        let mut problem = without_repetition(problem, summary.items, has_nonces);
        // Some items may be in the log, so the problem is about an item, not the request.
        if problem.kind == Kind::BadRequest {
            problem.kind = Kind::BadItem;
        }
        let mut runs = Vec::new();
        let mut object = Object::new(&mut runs);
        summary.members(&mut object);
        object.end();
        problem.intention = summary.first_intention;
        let reserved = Member::Reserved(Arc::new(reservation));
        problem.members.push(reserved);
        return Err(problem.raw("done", runs));
    }
    let status = if summary.items == summary.valid && summary.items > 0 {
        201
    } else {
        200
    };
    let mut reply = Reply::new(status).number("weir-count", summary.items);
    if let Some(intention) = summary.first_intention {
        reply = reply.number("weir-intention", intention);
    }
    if summary.replayed {
        reply.add("weir-replayed", "?1");
    }
    reply.add("vary", "accept-encoding");
    if Prefer::read(&call.head).minimal && status == 201 {
        reply.status = 204;
        return Ok(reply);
    }
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    summary.members(&mut object);
    object.end();
    Ok(reply.with("application/json", body).reserved(reservation))
}

/// Replaces a redirect after items of the batch were executed. A client follows a redirect with the
/// whole batch, so these items would be executed again, unless they have nonces.
fn without_repetition(problem: Problem, items: u64, has_nonces: bool) -> Problem {
    if problem.kind != Kind::Redirect || items == 0 || has_nonces {
        return problem;
    }
    let detail = "another node became the leader after items of the batch were executed";
    Problem::new(Kind::NoLeader, detail).code(ErrorCode::NoLeader)
}

#[cfg(test)]
mod tests {
    use super::{Kind, Problem, without_repetition};

    #[test]
    fn a_batch_is_redirected_only_if_no_item_can_be_executed_twice() {
        for (items, has_nonces, kind) in [
            (0, false, Kind::Redirect),
            (3, true, Kind::Redirect),
            (3, false, Kind::NoLeader),
        ] {
            let redirect = Problem::new(Kind::Redirect, "").field("location", "http://b");
            let problem = without_repetition(redirect, items, has_nonces);
            assert_eq!(problem.kind, kind, "{items} {has_nonces}");
            assert_eq!(problem.fields.is_empty(), kind == Kind::NoLeader);
        }
    }
}
