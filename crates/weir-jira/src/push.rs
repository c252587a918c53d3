//! Sends the outbox to the site: in order for each issue, and each operation exactly once. An
//! issue is created before an operation that names it.
//!
//! Invariants:
//! - An operation is durably in state `sending` before its request is sent.
//! - An operation becomes `sent` after the site reported its execution, or shows its effect. It
//!   leaves the outbox after the issue was read back into the replica.
//! - A creation without an answer is sent again only after the index of the site had time to show
//!   it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::error::{JiraError, Result};
use crate::meta;
use crate::op::{Action, Created, Op, State};
use crate::outbox;
use crate::overlay;
use crate::plan::{Plan, Planner, Request};
use crate::pull;
use crate::replica::Replica;
use crate::time;

/// Limit on the attempts of an operation in one push.
const SENDS_MAX: u32 = 3;
/// The longest pause of an operation that fails repeatedly, in milliseconds.
const BACK_OFF_MAX_MS: i64 = 5 * 60_000;
/// The longest pause that a push waits if the site limits writes.
const LIMIT_WAIT_MAX: Duration = Duration::from_mins(1);

/// Options of a push.
#[derive(Clone, Copy, Debug)]
pub struct PushOptions {
    /// The time, in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
}

impl Default for PushOptions {
    fn default() -> Self {
        let now_ms = jiff::Timestamp::now().as_millisecond();
        Self { now_ms }
    }
}

/// The results of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PushReport {
    /// Requests sent.
    pub requests: u64,
    /// Operations that were executed.
    pub sent: u64,
    /// Operations that needed no write, because the site already had the wanted state.
    pub already: u64,
    /// Texts that were merged with changes of other users.
    pub merged: u64,
    /// Operations in conflict.
    pub conflicts: u64,
    /// Operations that the site rejected.
    pub rejected: u64,
    /// Operations with an unknown outcome.
    pub unknown: u64,
    /// Operations that wait for another operation, or for their time.
    pub waiting: u64,
    /// Changes of other users between the read and the write, which were overwritten.
    pub overwritten: u64,
    /// One sentence for each conflict, rejection and overwritten change.
    pub messages: Vec<String>,
}

/// Pushes the outbox. Operations that cannot be pushed stay in it with their reason.
///
/// # Errors
/// Errors that affect all operations: the site cannot be reached, rejects the token, limits all
/// writes, or answers a read with HTTP 429 or 503 after all attempts. Operations that were already
/// pushed stay pushed.
pub fn push(client: &Client, replica: &Replica, options: &PushOptions) -> Result<PushReport> {
    let all = overlay::ops(replica)?;
    let first = client.requests();
    let mut report = PushReport::default();
    if all.iter().all(|op| op.state.is_stuck()) {
        for op in &all {
            count(&mut report, op);
        }
        return Ok(report);
    }
    let server: Value = client.get("serverInfo")?;
    let site_time = server["serverTime"].as_str().and_then(time::parse);
    let site_now_ms = site_time.unwrap_or(options.now_ms);
    let mut push = Push {
        client,
        replica,
        now_ms: options.now_ms,
        planner: Planner::new(client, replica, site_now_ms),
        report,
        deferred: Vec::new(),
        blocked: Vec::new(),
        written: BTreeMap::new(),
        unread: Vec::new(),
        fetch_again: BTreeSet::new(),
    };
    let mut end = Ok(());
    for number in order(&all) {
        end = push.step(number, &all);
        if end.is_err() {
            break;
        }
    }
    // Pushed changes are shown even if the other operations failed. If the site answers no reads,
    // a later push reads them back.
    let failed = end.as_ref().err();
    if failed.is_none_or(|error| !error.is_about_all_reads()) {
        end = end.and(push.refresh());
    }
    push.report.requests = client.requests() - first;
    push.report.merged = push.planner.merged;
    end.map(|()| push.report)
}

/// The numbers of operations in the order in which they are pushed: by number, but an issue is
/// created before the first operation that names it.
fn order(all: &[Op]) -> Vec<u64> {
    let created = all
        .iter()
        .filter(|op| matches!(op.action, Action::Create { .. }));
    let creations: BTreeMap<&str, &Op> = created.map(|op| (op.issue.as_str(), op)).collect();
    let (mut visited, mut numbers) = (BTreeSet::new(), Vec::new());
    for op in all {
        let first = visited.insert(op.number).then_some(op);
        let mut stack: Vec<&Op> = first.into_iter().collect();
        while let Some(op) = stack.last().copied() {
            let mut keys = op.temporary_keys().into_iter();
            let needed = keys.find_map(|key| {
                let creation = creations.get(key).copied();
                creation.filter(|creation| visited.insert(creation.number))
            });
            match needed {
                Some(creation) => stack.push(creation),
                None => numbers.extend(stack.pop().map(|op| op.number)),
            }
        }
    }
    numbers
}

fn count(report: &mut PushReport, op: &Op) {
    match op.state {
        State::Conflict => report.conflicts += 1,
        State::Rejected => report.rejected += 1,
        State::Unknown | State::Sending => report.unknown += 1,
        State::Queued => report.waiting += 1,
        State::Sent => {}
    }
}

struct Push<'a> {
    client: &'a Client,
    replica: &'a Replica,
    now_ms: i64,
    planner: Planner<'a>,
    report: PushReport,
    /// Operations that a later push sends without a decision of the user, in order. Later ones may
    /// have to wait for them.
    deferred: Vec<Op>,
    /// Operations that are stuck or wait for a stuck one, in order.
    blocked: Vec<Op>,
    /// Fields whose values were replaced, by issue.
    written: BTreeMap<String, BTreeSet<String>>,
    /// Numbers of executed operations, with the issues that must still be read back.
    unread: Vec<(u64, BTreeSet<String>)>,
    /// Projects whose stored field descriptions are outdated.
    fetch_again: BTreeSet<String>,
}

impl Push<'_> {
    /// Pushes one operation, as far as possible now.
    fn step(&mut self, number: u64, all: &[Op]) -> Result<()> {
        let Some((op, found)) = outbox::read(self.replica, number)? else {
            return Ok(());
        };
        if op.state == State::Sent {
            self.mark_executed(&op);
            return Ok(());
        }
        if self.blocked.iter().any(|left| left.precedes(&op, true)) {
            count(&mut self.report, &op);
            self.blocked.push(op);
            return Ok(());
        }
        let waits =
            op.is_paused(self.now_ms) || self.deferred.iter().any(|left| left.precedes(&op, false));
        if op.state.is_stuck() || waits {
            self.defer(op);
            return Ok(());
        }
        self.run(op, found, all)
    }

    /// Leaves an operation in the outbox that waits for no stuck one.
    fn defer(&mut self, op: Op) {
        count(&mut self.report, &op);
        if op.state.is_stuck() {
            self.blocked.push(op);
        } else {
            self.deferred.push(op);
        }
    }

    fn run(&mut self, mut op: Op, mut found: u64, all: &[Op]) -> Result<()> {
        let mut end = Ok(());
        for sends in 0..=SENDS_MAX {
            let plan = match self.planner.plan(&op, all) {
                // If only this issue is affected, the push continues with others.
                Err(error @ (JiraError::Status { .. } | JiraError::Garbage { .. })) => {
                    op.problem = Some(error.to_string());
                    op.attempts += 1;
                    if error.is_about_all_reads() {
                        end = Err(error);
                    }
                    break;
                }
                plan => plan?,
            };
            let (request, rest) = match plan {
                Plan::NoOp(created) => {
                    self.report.already += 1;
                    return self.finish(&op, found, created, None);
                }
                Plan::Conflict(mut rest) => {
                    rest.state = State::Conflict;
                    self.report_problem(&rest);
                    // Updates the replica with the change of the other user.
                    if let Some(id) = self.planner.site_id(&rest.issue)? {
                        self.written.entry(id).or_default();
                    }
                    return self.save_and_defer(*rest, found);
                }
                Plan::Reject(why) => {
                    op.state = State::Rejected;
                    op.problem = Some(why);
                    self.report_problem(&op);
                    return self.save_and_defer(op, found);
                }
                Plan::Wait(until_ms) => {
                    op.state = State::Unknown;
                    self.pause(&mut op, until_ms - self.planner.site_now_ms());
                    return self.save_and_defer(op, found);
                }
                Plan::Send(request, rest) => (request, rest),
            };
            if sends == SENDS_MAX {
                break;
            }
            if sends > 0 {
                self.client.wait(Duration::from_secs(1 << sends));
            }
            op.state = State::Sending;
            op.attempts += 1;
            op.sent_ms = Some(self.planner.site_now_ms());
            if !outbox::write(self.replica, &op, found)? {
                // The user changed the operation meanwhile: the next push sends the new version.
                if let Some((newer, _)) = outbox::read(self.replica, op.number)? {
                    self.defer(newer);
                }
                return Ok(());
            }
            found = self.offset(&op)?;
            let result = self
                .client
                .write(request.method, &request.path, &request.body);
            match result {
                Ok(answer) => {
                    let created = created(&op.action, &answer);
                    if created.is_none() && matches!(op.action, Action::Create { .. }) {
                        op.state = State::Unknown;
                        op.problem = Some("the answer names no issue".to_owned());
                        found = self.save(&op, found)?;
                        continue;
                    }
                    self.report.sent += 1;
                    return self.finish(&op, found, created, rest);
                }
                Err(error) if error.is_unknown() => {
                    op.state = State::Unknown;
                    op.problem = Some(error.to_string());
                    found = self.save(&op, found)?;
                }
                Err(error) => match self.handle_rejection(&mut op, found, &request, error)? {
                    Some(offset) => found = offset,
                    None => return Ok(()),
                },
            }
        }
        let pause_ms = (1000 << op.attempts.min(8)).min(BACK_OFF_MAX_MS);
        self.pause(&mut op, pause_ms);
        self.save_and_defer(op, found)?;
        end
    }

    /// Records why the site did not execute a write. Returns the offset of the operation if the
    /// write must be retried. The offset is from before the pause, so that the retry does not
    /// overwrite a correction during the pause.
    fn handle_rejection(
        &mut self,
        op: &mut Op,
        found: u64,
        request: &Request,
        error: JiraError,
    ) -> Result<Option<u64>> {
        op.state = State::Queued;
        op.sent_ms = None;
        op.problem = Some(error.to_string());
        match error {
            JiraError::Limited { wait, issue, .. } => {
                let ms = i64::try_from(wait.as_millis()).unwrap_or(BACK_OFF_MAX_MS);
                if issue {
                    self.pause(op, ms);
                    self.save_and_defer(op.clone(), found)?;
                    return Ok(None);
                }
                let offset = self.save(op, found)?;
                if wait > LIMIT_WAIT_MAX {
                    return Err(error);
                }
                self.client.wait(wait);
                Ok(Some(offset))
            }
            JiraError::Status { status: 409, .. } => Ok(Some(self.save(op, found)?)),
            // Without a read before it, this status can mean that the account cannot see the issue.
            JiraError::Status { status: 404, .. }
                if request.method == "DELETE" && !matches!(op.action, Action::Watch { .. }) =>
            {
                self.report.already += 1;
                self.finish(op, found, None, None)?;
                Ok(None)
            }
            JiraError::Status { status, .. } => {
                if status == 400 {
                    self.fetch_again.insert(op.issue.clone());
                }
                op.state = State::Rejected;
                self.report_problem(op);
                self.save_and_defer(op.clone(), found)?;
                Ok(None)
            }
            error => {
                self.save(op, found)?;
                Err(error)
            }
        }
    }

    /// Lets an operation wait for `ms` milliseconds.
    fn pause(&self, op: &mut Op, ms: i64) {
        op.paused_ms = self.now_ms;
        op.not_before_ms = self.now_ms.saturating_add(ms);
    }

    fn report_problem(&mut self, op: &Op) {
        let why = op.problem.as_deref().unwrap_or_default();
        let text = format!("{} {} ({}): {why}", op.key, op.state.name(), op.number);
        self.report.messages.push(text);
    }

    /// Stores an operation and leaves it in the outbox.
    fn save_and_defer(&mut self, op: Op, found: u64) -> Result<()> {
        self.save(&op, found)?;
        self.defer(op);
        Ok(())
    }

    /// Stores an operation; returns its offset.
    fn save(&self, op: &Op, found: u64) -> Result<u64> {
        if !outbox::write(self.replica, op, found)? {
            return Err(JiraError::Busy);
        }
        self.offset(op)
    }

    fn offset(&self, op: &Op) -> Result<u64> {
        let stored = outbox::read(self.replica, op.number)?;
        stored.map(|(_, offset)| offset).ok_or(JiraError::Busy)
    }

    /// Ends an executed operation: it leaves the outbox, or `rest` of it remains.
    fn finish(
        &mut self,
        op: &Op,
        found: u64,
        created: Option<Created>,
        rest: Option<Box<Op>>,
    ) -> Result<()> {
        if let (Action::Create { project, .. }, Some(created)) = (&op.action, &created) {
            // The temporary key still finds the issue.
            let projects = self.replica.projects()?;
            let own = projects
                .iter()
                .find(|(_, value)| value["project"]["key"] == **project);
            let project = own.map(|(id, _)| id.clone()).unwrap_or_default();
            if let Some(alias) = self.replica.alias(&op.issue, &created.id, &project)? {
                self.replica.apply("aliases", &[alias])?;
            }
        }
        if let Some(mut rest) = rest {
            for id in op.issues() {
                self.written
                    .entry(id)
                    .or_default()
                    .extend(op.action.replaces());
            }
            rest.state = State::Conflict;
            self.report_problem(&rest);
            return self.save_and_defer(*rest, found);
        }
        let mut sent = op.clone();
        sent.state = State::Sent;
        sent.problem = None;
        sent.created = created;
        self.save(&sent, found)?;
        self.mark_executed(&sent);
        Ok(())
    }

    /// Records that an operation was executed, and that its issues must be read back.
    fn mark_executed(&mut self, op: &Op) {
        for id in op.issues() {
            self.written
                .entry(id)
                .or_default()
                .extend(op.action.replaces());
        }
        self.unread
            .push((op.number, op.issues().into_iter().collect()));
    }

    /// Reads the written issues into the replica, and checks for changes that were overwritten.
    fn refresh(&mut self) -> Result<()> {
        let me = meta::myself(self.replica)?["accountId"].clone();
        let written = std::mem::take(&mut self.written);
        let mut own: BTreeSet<String> = BTreeSet::new();
        for (id, fields) in written {
            let seen = self.planner.seen.get(&id).cloned().unwrap_or_default();
            let read = match pull::refresh(self.client, self.replica, &id) {
                // The change was executed. Only the next push reads this issue back.
                Err(error) if error.is_about_one_object() => {
                    let text = format!("cannot read a changed issue back: {error}");
                    self.report.messages.push(text);
                    continue;
                }
                read => read?,
            };
            if let Some(issue) = read {
                let history = issue["changelog"]["histories"].as_array();
                for entry in history.into_iter().flatten() {
                    self.report_overwritten(entry, &issue, &me, &seen, &fields);
                }
                own.insert(id.clone());
            }
            self.remove_sent(&id)?;
        }
        if !own.is_empty() {
            let waiting: Option<BTreeSet<String>> = self.replica.read("cursors", "reconcile")?;
            own.extend(waiting.unwrap_or_default());
            self.replica.store("cursors", "reconcile", &own)?;
        }
        for issue in std::mem::take(&mut self.fetch_again) {
            self.refetch_fields(&issue)?;
        }
        Ok(())
    }

    /// Records that issue `id` was read back. Removes the operations that have no other unread
    /// issue.
    fn remove_sent(&mut self, id: &str) -> Result<()> {
        for (number, left) in &mut self.unread {
            if left.remove(id) && left.is_empty() {
                outbox::remove_sent(self.replica, *number)?;
            }
        }
        Ok(())
    }

    /// Reports the fields in an entry of the changelog that another user changed between the read
    /// and the write. `seen` has the time of the last change before the read, by field.
    fn report_overwritten(
        &mut self,
        entry: &Value,
        issue: &Value,
        me: &Value,
        seen: &BTreeMap<String, i64>,
        fields: &BTreeSet<String>,
    ) {
        let at = entry["created"].as_str().and_then(time::parse);
        let foreign = entry["author"]["accountId"] != *me;
        let Some(at) = at.filter(|_| foreign) else {
            return;
        };
        for item in entry["items"].as_array().into_iter().flatten() {
            let field = item["fieldId"].as_str().unwrap_or_default();
            let is_unseen = seen.get(field).is_some_and(|read| at > *read);
            // A change after the write was not overwritten.
            let is_replaced = last_own_change(issue, me, field) >= Some(at);
            if fields.contains(field) && is_unseen && is_replaced {
                self.report.overwritten += 1;
                let who = entry["author"]["displayName"]
                    .as_str()
                    .unwrap_or("somebody");
                let key = issue["key"].as_str().unwrap_or_default();
                let text = item["toString"].as_str().unwrap_or_default();
                self.report.messages.push(format!(
                    "{key}: {field} was set to {text:?} by {who} at the same time, and overwritten"
                ));
            }
        }
    }

    /// Reads the descriptions of the fields of a project again, after the site rejected a valid
    /// edit.
    fn refetch_fields(&self, issue: &str) -> Result<()> {
        let project = match issue.split_once('+') {
            Some((key, _)) => key.to_owned(),
            None => match self.replica.locate(issue)? {
                Some(location) => location.project,
                None => return Ok(()),
            },
        };
        let projects = self.replica.projects()?;
        let own = projects
            .iter()
            .find(|(id, value)| *id == project || value["project"]["key"] == project.as_str());
        if let Some((id, _)) = own {
            meta::fetch_project(self.client, self.replica, id)?;
        }
        Ok(())
    }
}

/// The time of the last change of a field by the account `me`, from the changelog of an issue.
fn last_own_change(issue: &Value, me: &Value, field: &str) -> Option<i64> {
    let history = issue["changelog"]["histories"].as_array();
    let entries = history.into_iter().flatten();
    let own = entries.filter(|entry| {
        let mut items = entry["items"].as_array().into_iter().flatten();
        entry["author"]["accountId"] == *me && items.any(|item| item["fieldId"] == field)
    });
    own.filter_map(|entry| time::parse(entry["created"].as_str()?))
        .max()
}

/// The issue, comment or worklog that was created, from the answer of the site.
fn created(action: &Action, answer: &Value) -> Option<Created> {
    let text = |name: &str| answer[name].as_str().map(str::to_owned);
    let (id, key) = match action {
        Action::Create { .. } => (text("id")?, text("key")?),
        Action::CommentAdd { .. } | Action::WorklogAdd { .. } => (text("id")?, String::new()),
        _ => return None,
    };
    Some(Created { id, key })
}
