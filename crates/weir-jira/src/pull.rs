//! Copies changes from a site into the replica, without omission or repetition; see jira.md,
//! section 5.
//!
//! Invariants:
//! - The watermark advances only after the changes are stored; an interrupted pull resumes there.
//! - A stored issue is replaced only by a newer version, or by a different version of equal age. A
//!   stored version with a time in the future is replaced by any other version.
//! - An issue is removed only after the site answered 404 for it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{Client, Deployment};
use crate::error::{JiraError, Result};
use crate::meta;
use crate::op::State;
use crate::outbox;
use crate::overlay;
use crate::replica::{Change, Replica};
use crate::search::{Page, Search};
use crate::time::{self, DAY_MS, MINUTE_MS};

/// Number of issues on a page.
const PAGE: usize = 100;
/// Number of ids in one `bulkfetch`.
const BULK: usize = 100;
/// Limit on the pages of one query.
const PAGES_MAX: usize = 100_000;
/// Limit on the reads of a list of an issue whose pages are inconsistent.
const LIST_READS_MAX: usize = 3;
/// Key of the cursor with the ids of issues whose comments or worklogs are incomplete.
const INCOMPLETE: &str = "incomplete";
/// Limit on these ids.
const INCOMPLETE_MAX: usize = 1000;
/// Limit on the bytes of the comments or worklogs of one issue.
const LIST_BYTES_MAX: usize = 256 << 20;
/// Size of the comments and worklogs, in bytes, at which they are stored before more are read.
const PARTS_BYTES_MAX: usize = 4 << 20;
/// Limit on consecutive empty pages with a token.
const EMPTY_MAX: usize = 3;
/// Limit on the issues of which one query requests the newest version.
const RECONCILED_MAX: usize = 50;
/// Limit on the restarts of a query with inconsistent pages, while the watermark does not advance.
const RESTARTS_MAX: usize = 3;
/// Limit on the projects whose fields are read once a day; those of other projects are read when
/// they are needed.
const FIELDS_OF_PROJECTS_MAX: usize = 20;
/// Number of ids in one `worklog/list`.
const WORKLOGS: usize = 1000;
/// Limit on the retries of one issue whose record another process has changed.
const RACES_MAX: u32 = 10;
/// The member of a stored project with the time from which its worklogs may have been hidden, in
/// milliseconds.
const WORKLOGS_HIDDEN: &str = "worklogs_hidden_ms";
/// Time between two samples, in milliseconds.
const SAMPLE_INTERVAL_MS: i64 = 7 * DAY_MS;
/// A sample has one hundredth (1 / `SAMPLE_PART`) of the issues, but at least those of one request.
const SAMPLE_PART: usize = 100;
/// Limit on the issues of a sample.
const SAMPLE_MAX: usize = 1000;
/// A census that would remove more than one fifth (1 / `GONE_PART`) of a project needs a
/// confirmation.
const GONE_PART: usize = 5;

/// Options of a pull.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Keys of the projects, in letters of either case; empty: all that the account can see.
    pub projects: Vec<String>,
    /// Milliseconds before the watermark at which a pull begins, and before their times at which
    /// the feeds of worklogs begin. Covers the lag of the index, the minute precision of JQL, and
    /// clock skew. Default 5 minutes.
    pub overlap_ms: i64,
    /// Whether to search for deletions now; otherwise once a day.
    pub census: bool,
    /// Whether a census may remove more than a fifth of a project.
    pub confirm_removal: bool,
    /// Whether a census removes the issues of projects that the account can no longer see.
    pub purge_lost: bool,
    /// The time, in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            projects: Vec::new(),
            overlap_ms: 5 * MINUTE_MS,
            census: false,
            confirm_removal: false,
            purge_lost: false,
            now_ms: jiff::Timestamp::now().as_millisecond(),
        }
    }
}

/// The results of a pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PullReport {
    /// Requests sent.
    pub requests: u64,
    /// Issues stored because they were new or had changed.
    pub stored: u64,
    /// Issues that the site sent in the version that was already stored.
    pub unchanged: u64,
    /// Issues in an unreadable form, which were skipped.
    pub unreadable: u64,
    /// Issues whose comments or worklogs the site did not send completely. The census reads these
    /// lists again.
    pub incomplete: u64,
    /// Issues that a lagging index returned in an older version than the stored one.
    pub stale: u64,
    /// Issues removed because the site answered 404, or because their project is no longer visible.
    pub gone: u64,
    /// Issues that moved into another project.
    pub moved: u64,
    /// Issues that a pull had missed, and the census found.
    pub repaired: u64,
    /// Issues of the weekly sample, which were read again.
    pub sampled: u64,
    /// Issues of the sample that had changed without a new time of change.
    pub outdated: u64,
    /// Restarts of a query because of inconsistent pages.
    pub restarted: u64,
    /// Records written, including cursors.
    pub writes: u64,
}

/// The position at which a pull resumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    /// Every change before this time is stored, in milliseconds; `None`: before the first pull.
    watermark_ms: Option<i64>,
    /// Time of the last complete census; `None`: none.
    census_ms: Option<i64>,
    /// Time at which the reference data was read.
    reference_ms: Option<i64>,
    /// Time of the last sample, or of the first census.
    #[serde(default)]
    sample_ms: Option<i64>,
    /// Id of the last issue of the last sample.
    #[serde(default)]
    sampled_to: Option<String>,
    /// Every worklog that was changed before this time by the clock of the site is stored; `None`:
    /// before the first pull.
    #[serde(default)]
    worklogs_ms: Option<i64>,
    /// The time from which the feed of changed worklogs was last read.
    #[serde(default)]
    worklogs_from_ms: Option<i64>,
    /// As `worklogs_ms`, for deleted worklogs.
    #[serde(default)]
    deleted_worklogs_ms: Option<i64>,
    /// Ids of the projects for which the watermark holds.
    #[serde(default)]
    projects: BTreeSet<String>,
}

/// Pulls the changes since the last pull.
pub fn pull(client: &Client, replica: &Replica, options: &PullOptions) -> Result<PullReport> {
    pull_with(client, replica, options, |_| ())
}

/// As [`pull`], and calls `stored` after each page of issues with the results so far. The first
/// page of a first pull has the issues that changed last.
pub fn pull_with(
    client: &Client,
    replica: &Replica,
    options: &PullOptions,
    mut stored: impl FnMut(&PullReport),
) -> Result<PullReport> {
    let mut pull = Pull::new(client, replica, options)?;
    pull.progress = Some(&mut stored);
    pull.run()
}

/// Reads an issue from the site into the replica. Returns the issue with its history under
/// `changelog`; `None` after the site answered 404 and the issue was removed.
pub(crate) fn refresh(client: &Client, replica: &Replica, id: &str) -> Result<Option<Value>> {
    let options = PullOptions::default();
    Pull::new(client, replica, &options)?.refresh(id)
}

struct Pull<'a> {
    client: &'a Client,
    replica: &'a Replica,
    options: &'a PullOptions,
    report: PullReport,
    first: u64,
    cursor: Cursor,
    /// Key of the project that is read from its first change, instead of the changes of all
    /// projects.
    whole_project: Option<String>,
    /// Ids of the issues that the first request of a first pull stored. The pull reads them a second
    /// time, and does not count them as unchanged.
    newest: BTreeSet<String>,
    /// Called after each stored page.
    progress: Option<&'a mut dyn FnMut(&PullReport)>,
}

/// The result of a query for changes.
enum ReadResult {
    Complete,
    /// The server returned inconsistent pages.
    Inconsistent(&'static str),
}

impl<'a> Pull<'a> {
    fn new(client: &'a Client, replica: &'a Replica, options: &'a PullOptions) -> Result<Self> {
        Ok(Self {
            client,
            replica,
            options,
            report: PullReport::default(),
            first: client.requests(),
            cursor: replica.read("cursors", "issues")?.unwrap_or_default(),
            whole_project: None,
            newest: BTreeSet::new(),
            progress: None,
        })
    }

    fn run(&mut self) -> Result<PullReport> {
        let now_ms = self.options.now_ms;
        let due = |last: Option<i64>| last.is_none_or(|last| distance_ms(now_ms, last) >= DAY_MS);
        let (reference, census) = (due(self.cursor.reference_ms), due(self.cursor.census_ms));
        if reference {
            self.reference()?;
        }
        let loaded = self.read_new_projects(reference)?;
        if self.cursor.watermark_ms.is_none() {
            // A first pull can take days: the feeds of worklogs begin before it.
            let begin = self.options.now_ms - DAY_MS;
            self.cursor.worklogs_ms.get_or_insert(begin);
            self.store_newest()?;
        }
        self.read_changes()?;
        self.read_back()?;
        if census || self.options.census {
            if !(reference || loaded) {
                self.projects()?;
            }
            self.read_incomplete()?;
            self.sample()?;
            self.census()?;
            if self.is_cloud() {
                self.worklogs()?;
            }
            if self.options.purge_lost {
                self.purge_lost()?;
            }
        }
        self.report.requests = self.client.requests() - self.first;
        Ok(self.report)
    }

    /// The projects of this pull that are visible to the account: ids and keys.
    fn selected_projects(&self) -> Result<BTreeMap<String, String>> {
        let wanted = &self.options.projects;
        let all = self.replica.projects()?.into_iter();
        let all = all.filter(|(_, value)| value["visible"] == true);
        let all = all.map(|(id, value)| (id, text(&value["project"]["key"])));
        let fits = |key: &String| {
            wanted.is_empty() || wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(key))
        };
        Ok(all.filter(|(_, key)| fits(key)).collect())
    }

    /// Reads the projects that the watermark does not cover, from their first change. Also reads
    /// the list of projects if a selected project is unknown, except if `is_listed`, because then
    /// the list was just read. Returns whether it was read.
    fn read_new_projects(&mut self, is_listed: bool) -> Result<bool> {
        let mut wanted = self.selected_projects()?;
        let is_unknown = |key: &String| {
            wanted
                .values()
                .all(|known| !known.eq_ignore_ascii_case(key))
        };
        let reads = !is_listed && self.options.projects.iter().any(is_unknown);
        if reads {
            self.projects()?;
            wanted = self.selected_projects()?;
        }
        let before = self.cursor.projects.clone();
        if self.cursor.watermark_ms.is_none() {
            self.cursor.projects = wanted.into_keys().collect();
        } else {
            // A project outside of this pull is no longer covered by the watermark.
            self.cursor.projects.retain(|id| wanted.contains_key(id));
            for (id, key) in wanted {
                if !self.cursor.projects.contains(&id) {
                    self.whole_project = Some(key);
                    let result = self.read_changes();
                    self.whole_project = None;
                    result?;
                    self.cursor.projects.insert(id);
                    self.save()?;
                }
            }
        }
        if self.cursor.projects != before {
            self.save()?;
        }
        Ok(reads)
    }

    /// Reads changes; restarts if the server returns inconsistent pages.
    fn read_changes(&mut self) -> Result<()> {
        let (mut restarts, mut reached) = (0, self.cursor.watermark_ms);
        while let ReadResult::Inconsistent(what) = self.read_changes_once()? {
            self.report.restarted += 1;
            restarts = if self.cursor.watermark_ms > reached {
                0
            } else {
                restarts + 1
            };
            reached = self.cursor.watermark_ms;
            if restarts > RESTARTS_MAX {
                return Err(JiraError::Paging(what));
            }
        }
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        self.report.writes += self.replica.store("cursors", "issues", &self.cursor)?;
        Ok(())
    }

    /// Reads data that rarely changes: the account, fields, statuses, projects.
    fn reference(&mut self) -> Result<()> {
        for (key, path) in [
            ("server", "serverInfo"),
            ("myself", "myself"),
            ("fields", "field"),
            ("statuses", "status"),
            ("types", "issuetype"),
        ] {
            let mut value: Value = self.client.get(path)?;
            if let Some(value) = value.as_object_mut() {
                // The server time differs in each answer.
                value.remove("serverTime");
            }
            self.report.writes += self.replica.store("meta", key, &value)?;
        }
        // The pull continues at a site that has no filters for the account.
        match self.client.get::<Value>("filter/favourite") {
            Ok(filters) => {
                self.report.writes += self.replica.store("meta", "filters", &filters)?;
            }
            Err(JiraError::Status { .. }) => {}
            Err(error) => return Err(error),
        }
        self.projects()?;
        if self.is_cloud() {
            self.fetch_edit_metadata()?;
        }
        self.cursor.reference_ms = Some(self.options.now_ms);
        self.save()
    }

    fn is_cloud(&self) -> bool {
        self.client.deployment() == Deployment::Cloud
    }

    /// Reads the data that edits need: people, types of links and fields of projects.
    fn fetch_edit_metadata(&mut self) -> Result<()> {
        self.report.writes += meta::fetch_site(self.client, self.replica)?;
        for project in self
            .selected_projects()?
            .into_keys()
            .take(FIELDS_OF_PROJECTS_MAX)
        {
            self.report.writes += meta::fetch_project(self.client, self.replica, &project)?;
        }
        Ok(())
    }

    /// Reads which projects are visible. The feeds of worklogs omit hidden projects. When a project
    /// becomes visible again, the feeds are read again from the start of the last read before a
    /// pull found the project hidden: that read may have omitted the project already.
    fn projects(&mut self) -> Result<()> {
        let mut found: BTreeMap<String, Value> = BTreeMap::new();
        let shown: Vec<Value> = if self.is_cloud() {
            self.live_projects()?
        } else {
            self.client.get("project?expand=description,lead")?
        };
        for project in shown {
            let id = text(&project["id"]);
            found.insert(id, json!({"project": project, "visible": true}));
        }
        let from_ms = self.cursor.worklogs_from_ms;
        let from_ms = from_ms.unwrap_or_else(|| self.worklogs_ms());
        for (id, mut value) in self.replica.projects()? {
            let Entry::Vacant(hidden) = found.entry(id) else {
                self.reread_worklogs(value[WORKLOGS_HIDDEN].as_i64())?;
                continue;
            };
            if value[WORKLOGS_HIDDEN].is_null() {
                value[WORKLOGS_HIDDEN] = from_ms.into();
            }
            value["visible"] = false.into();
            hidden.insert(value);
        }
        for (id, value) in found {
            self.report.writes += self.replica.store("projects", &id, &value)?;
        }
        Ok(())
    }

    /// The time from which the feed of changed worklogs is read. A time in the future is from a
    /// wrong clock; then the whole feed is read.
    fn worklogs_ms(&self) -> i64 {
        match self.cursor.worklogs_ms {
            Some(since) if since > self.latest_ms() => 0,
            Some(since) => since,
            None => self.options.now_ms - DAY_MS,
        }
    }

    /// Sets the start of the feeds of worklogs back to a time; `None`: no change. The start is
    /// stored before the project counts as visible, so that the pull after an interrupted one sets
    /// it again.
    fn reread_worklogs(&mut self, from_ms: Option<i64>) -> Result<()> {
        let Some(from_ms) = from_ms else {
            return Ok(());
        };
        let earlier = |ms: Option<i64>| ms.map(|ms| ms.min(from_ms)).or(Some(from_ms));
        self.cursor.worklogs_ms = earlier(self.cursor.worklogs_ms);
        self.cursor.deleted_worklogs_ms = earlier(self.cursor.deleted_worklogs_ms);
        self.save()
    }

    /// The projects of Jira Cloud that are neither archived nor deleted.
    fn live_projects(&self) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            let start = all.len();
            let path = format!("project/search?startAt={start}&maxResults=50&status=live");
            let page: Value = self.client.get(&path)?;
            // A page without this list is invalid: otherwise it would hide all projects.
            let found = page["values"].as_array();
            let found = found.ok_or_else(|| JiraError::Garbage {
                method: "GET",
                path,
                cause: "it has no `values`".to_owned(),
            })?;
            if found.is_empty() {
                return Ok(all);
            }
            let fresh = found.iter().filter(|one| seen.insert(text(&one["id"])));
            all.extend(fresh.cloned());
            if page["isLast"] == true {
                return Ok(all);
            }
            if all.len() == start {
                return Err(JiraError::Paging("a page repeats the projects before it"));
            }
        }
    }

    /// The condition for the projects of the replica, followed by AND; empty: all projects.
    fn scope(&self) -> String {
        let keys = match &self.whole_project {
            Some(key) => std::slice::from_ref(key),
            None => self.options.projects.as_slice(),
        };
        let keys = keys.iter();
        let keys: Vec<String> = keys.map(|key| crate::offline::quoted(key)).collect();
        if keys.is_empty() {
            return String::new();
        }
        format!("project in ({}) AND ", keys.join(", "))
    }

    /// The time from which changes are requested.
    fn since(&self) -> i64 {
        let since = match self.cursor.watermark_ms {
            _ if self.whole_project.is_some() => 0,
            Some(ms) => ms.div_euclid(MINUTE_MS) * MINUTE_MS - self.options.overlap_ms,
            None => 0,
        };
        since.max(0)
    }

    fn changes_since(&self, since: i64) -> String {
        let scope = self.scope();
        format!("{scope}updated >= {since} ORDER BY updated ASC, key ASC")
    }

    /// Stores one page of the issues that changed last, so that lists show them during the first
    /// pull. The watermark does not advance, because the pull will read these issues again.
    fn store_newest(&mut self) -> Result<()> {
        let jql = format!("{}updated >= 0 ORDER BY updated DESC", self.scope());
        let page = self.page(&jql, &["*all"], PAGE, None, &[])?;
        let rows = self.parsed(&page.issues);
        self.store_changed(&rows)?;
        let ids = rows.iter().map(|(_, issue)| text(&issue["id"]));
        self.newest = ids.collect();
        self.report_progress();
        Ok(())
    }

    /// Parses rows individually; an unreadable row is counted and skipped.
    fn parsed<'r>(&mut self, rows: &'r [Box<RawValue>]) -> Vec<(&'r RawValue, Value)> {
        let read = rows
            .iter()
            .filter_map(|raw| Some((&**raw, serde_json::from_str(raw.get()).ok()?)));
        let read: Vec<_> = read.collect();
        self.report.unreadable += u64::try_from(rows.len() - read.len()).unwrap_or(0);
        read
    }

    /// Reports a stored page.
    fn report_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress(&self.report);
        }
    }

    /// Stores a page of changes, then advances the watermark.
    fn store_page(&mut self, rows: &[(&RawValue, Value)]) -> Result<()> {
        self.store_changed(rows)?;
        // An importer can give an issue a time in the future: later changes would be before the
        // watermark.
        let latest = self.latest_ms();
        let times = rows.iter().filter_map(|(_, issue)| updated(issue));
        let newest = times.filter(|ms| *ms <= latest).max();
        if self.whole_project.is_none() && newest > self.cursor.watermark_ms {
            self.cursor.watermark_ms = newest;
            self.save()?;
        }
        self.report_progress();
        Ok(())
    }

    /// Reads the changes at Data Center, whose pages are cut by offset. An issue that is edited
    /// meanwhile moves to the end, so the next page would skip one issue. Therefore each query
    /// begins again at the minute of the last row. A minute with more than one page is read by
    /// offset, until a pass over it finds nothing new.
    fn read_changes_by_offset(&mut self) -> Result<ReadResult> {
        let mut since = self.since();
        let (mut start, mut empty, mut fresh) = (None::<String>, 0, false);
        let mut seen: BTreeSet<(String, Option<i64>)> = BTreeSet::new();
        for _ in 0..PAGES_MAX {
            let jql = self.changes_since(since);
            let page = self.page(&jql, &["*all"], PAGE, start.as_deref(), &[])?;
            let rows = self.parsed(&page.issues);
            self.store_page(&rows)?;
            for (_, issue) in &rows {
                fresh |= seen.insert((text(&issue["id"]), updated(issue)));
            }
            let none = page.issues.is_empty();
            empty = if none { empty + 1 } else { 0 };
            let at = start.as_deref().and_then(|start| start.parse().ok());
            let cut_short = none && page.total.is_some_and(|total| total > at.unwrap_or(0));
            if cut_short {
                if empty > EMPTY_MAX {
                    return Ok(ReadResult::Inconsistent("it sends only empty pages"));
                }
                continue;
            }
            let newest = rows.iter().filter_map(|(_, issue)| updated(issue)).max();
            let minute = newest.map(|ms| ms.div_euclid(MINUTE_MS) * MINUTE_MS);
            match page.next {
                // All rows are on one page, so no row can have moved.
                None if start.is_none() => return Ok(ReadResult::Complete),
                None if !fresh => return Ok(ReadResult::Complete),
                Some(_) if start.is_none() && minute > Some(since) => {
                    since = minute.unwrap_or(since);
                    fresh = false;
                }
                Some(next) => start = Some(next),
                None => (start, fresh) = (None, false),
            }
        }
        Ok(ReadResult::Inconsistent("its pages do not end"))
    }

    /// Reads the changes since the watermark, the oldest first.
    fn read_changes_once(&mut self) -> Result<ReadResult> {
        if !self.is_cloud() {
            return self.read_changes_by_offset();
        }
        let jql = self.changes_since(self.since());
        let waiting: BTreeSet<String> = self
            .replica
            .read("cursors", "reconcile")?
            .unwrap_or_default();
        let current: Vec<u64> = waiting.iter().filter_map(|id| id.parse().ok()).collect();
        let mut seen = BTreeSet::new();
        let mut token: Option<String> = None;
        let mut empty = 0;
        let mut tokens = BTreeSet::new();
        for _ in 0..PAGES_MAX {
            let page = match self.page(&jql, &["*all"], PAGE, token.as_deref(), &current) {
                // The token is no longer valid: restart at the watermark.
                Err(JiraError::Status { status: 400, .. }) if token.is_some() => {
                    return Ok(ReadResult::Inconsistent("a page token is refused"));
                }
                page => page?,
            };
            let rows = self.parsed(&page.issues);
            seen.extend(rows.iter().map(|(_, issue)| text(&issue["id"])));
            self.store_page(&rows)?;
            empty = if page.issues.is_empty() { empty + 1 } else { 0 };
            match page.next {
                None => {
                    if !waiting.is_empty() {
                        let left: BTreeSet<&String> = waiting.difference(&seen).collect();
                        self.report.writes += self.replica.store("cursors", "reconcile", &left)?;
                    }
                    return Ok(ReadResult::Complete);
                }
                Some(next) if !tokens.insert(next.clone()) => {
                    return Ok(ReadResult::Inconsistent("it repeats a page token"));
                }
                Some(_) if empty > EMPTY_MAX => {
                    return Ok(ReadResult::Inconsistent("it sends only empty pages"));
                }
                Some(next) => token = Some(next),
            }
        }
        Ok(ReadResult::Inconsistent("its pages do not end"))
    }

    fn page(
        &self,
        jql: &str,
        fields: &[&str],
        most: usize,
        next: Option<&str>,
        current: &[u64],
    ) -> Result<Page> {
        let current = current.get(..RECONCILED_MAX).unwrap_or(current);
        let search = Search {
            jql,
            fields,
            most,
            current,
            // Ids of deleted issues must not fail the query.
            validate: false,
        };
        search.page(self.client, next)
    }

    /// Reads the issues of operations that were sent but not read back, because a push was
    /// interrupted.
    fn read_back(&mut self) -> Result<()> {
        let sent = overlay::ops(self.replica)?.into_iter();
        for op in sent.filter(|op| op.state == State::Sent) {
            let mut is_read = true;
            for id in op.issues() {
                match self.refresh(&id) {
                    // The next pull reads the issue again. It must not stop the pull of the others.
                    Err(error) if error.is_about_one_object() => is_read = false,
                    read => drop(read?),
                }
            }
            if is_read {
                outbox::remove_sent(self.replica, op.number)?;
            }
        }
        Ok(())
    }

    fn refresh(&mut self, id: &str) -> Result<Option<Value>> {
        let found: Result<Value> = self.client.get(&format!("issue/{id}?expand=changelog"));
        let issue = match found {
            Err(JiraError::Status { status: 404, .. }) => {
                if let Some(location) = self.replica.locate(id)? {
                    self.remove_issue(&location.project, id, true)?;
                }
                return Ok(None);
            }
            found => found?,
        };
        let mut stored = issue.clone();
        if let Some(stored) = stored.as_object_mut() {
            stored.remove("changelog");
        }
        let raw = serde_json::value::to_raw_value(&stored)?;
        let rows = [raw];
        for attempt in 1.. {
            let rows = self.parsed(&rows);
            match self.store_changed(&rows) {
                // Another pull wrote to the same topic at the same time.
                Err(JiraError::Busy) if attempt < RACES_MAX => {}
                result => {
                    result?;
                    break;
                }
            }
        }
        Ok(Some(issue))
    }

    /// The latest time that is not in the future. Clocks can differ by less than a day.
    fn latest_ms(&self) -> i64 {
        self.options.now_ms.saturating_add(DAY_MS)
    }

    /// Whether an issue is an older version than the stored one. A stored time in the future, which
    /// an importer can set, orders no versions: each later version would look older.
    fn is_older(&self, issue: &Value, stored: &Value) -> bool {
        let time = updated(stored);
        updated(issue) < time && time <= Some(self.latest_ms())
    }

    fn decide(&self, stored: Option<&[u8]>, issue: &Value) -> Result<Decision> {
        let Some(stored) = stored else {
            return Ok(Decision::Store);
        };
        let stored: Value = serde_json::from_slice(stored)?;
        if self.is_older(issue, &stored) {
            return Ok(Decision::Stale);
        }
        let same = issue["key"] == stored["key"] && content(issue) == content(&stored);
        Ok(if same {
            Decision::Same
        } else {
            Decision::Store
        })
    }

    /// Stores issues that are new or have changed. Returns how many.
    fn store_changed(&mut self, rows: &[(&RawValue, Value)]) -> Result<u64> {
        let mut changes: BTreeMap<String, Vec<Change>> = BTreeMap::new();
        let mut aliases: BTreeMap<String, Change> = BTreeMap::new();
        let mut moved_aliases: BTreeMap<String, Change> = BTreeMap::new();
        let mut moved: BTreeSet<(String, String)> = BTreeSet::new();
        let mut stored_issues = BTreeMap::new();
        for (raw, issue) in rows {
            let (id, project) = (text(&issue["id"]), text(&issue["fields"]["project"]["id"]));
            if id.is_empty() || project.is_empty() {
                continue;
            }
            let mut names = vec![text(&issue["key"]), id.clone()];
            let before = self.replica.locate(&id)?;
            let before = before.filter(|before| before.project != project);
            if let Some(before) = &before {
                let topic = format!("issues.{}", before.project);
                let old: Value = self.replica.read(&topic, &id)?.unwrap_or_default();
                if self.is_older(issue, &old) {
                    // A lagging index shows the issue in its old project.
                    self.report.stale += 1;
                    continue;
                }
                // The old key still finds the moved issue.
                names.extend(old["key"].as_str().map(str::to_owned));
            }
            let topic = format!("issues.{project}");
            let stored = self.replica.get(&topic, &id)?;
            let bytes = stored.as_ref().map(|stored| stored.bytes.as_slice());
            match self.decide(bytes, issue)? {
                Decision::Same if before.is_none() => {
                    self.report.unchanged += u64::from(!self.newest.remove(&id));
                    continue;
                }
                Decision::Stale => {
                    self.report.stale += 1;
                    continue;
                }
                // A pull was interrupted after it had stored the issue in its new project.
                Decision::Same => {}
                // An issue twice on one page: the second one is compared after the first one is
                // stored.
                Decision::Store if stored_issues.contains_key(&id) => continue,
                Decision::Store => {
                    stored_issues.insert(id.clone(), issue);
                    changes.entry(topic).or_default().push(Change {
                        key: id.clone(),
                        value: Some(raw.get().as_bytes().to_vec()),
                        found: stored.map(|stored| stored.offset),
                    });
                }
            }
            let target = match before {
                Some(before) => {
                    moved.insert((before.project, id.clone()));
                    &mut moved_aliases
                }
                None => &mut aliases,
            };
            for name in names {
                if let Some(alias) = self.replica.alias(&name, &id, &project)? {
                    target.insert(name, alias);
                }
            }
        }
        // The order is names, comments, issues. If the pull is interrupted, the next pull finds the
        // issue changed again and completes the rest. The old copy of a moved issue is removed
        // last, because its names refer to it until they refer to the new one.
        let aliases: Vec<Change> = aliases.into_values().collect();
        self.write("aliases", &aliases)?;
        let count = u64::try_from(stored_issues.len()).unwrap_or(0);
        let ids: BTreeSet<String> = stored_issues.keys().cloned().collect();
        let result = self.store_with_parts(stored_issues, changes);
        if matches!(result, Err(JiraError::Busy)) {
            // Another process has stored newer versions of these issues. This page can have removed
            // comments and worklogs that only the newer versions have.
            self.record_incomplete(ids)?;
        }
        result?;
        let aliases: Vec<Change> = moved_aliases.into_values().collect();
        self.write("aliases", &aliases)?;
        for (project, id) in moved {
            self.report.moved += 1;
            self.remove_issue(&project, &id, false)?;
        }
        self.report.stored += count;
        Ok(count)
    }

    /// Stores the comments and worklogs of `issues`, by id. Then stores `changes`: the issues, by
    /// topic.
    fn store_with_parts(
        &mut self,
        issues: BTreeMap<String, &Value>,
        changes: BTreeMap<String, Vec<Change>>,
    ) -> Result<()> {
        let incomplete = self.store_parts(issues.into_values())?;
        self.record_incomplete(incomplete)?;
        self.write_all(changes)
    }

    fn write(&mut self, topic: &str, changes: &[Change]) -> Result<()> {
        self.report.writes += u64::try_from(changes.len()).unwrap_or(0);
        if !self.replica.apply(topic, changes)? {
            return Err(JiraError::Busy);
        }
        Ok(())
    }

    /// Stores the comments and worklogs of issues. Those of many issues share a transaction,
    /// because each transaction waits for a sync. Returns the ids of issues with incomplete lists.
    fn store_parts<'v>(
        &mut self,
        issues: impl Iterator<Item = &'v Value>,
    ) -> Result<BTreeSet<String>> {
        let mut waiting: BTreeMap<String, Vec<Change>> = BTreeMap::new();
        let mut incomplete = BTreeSet::new();
        let mut bytes = 0;
        for issue in issues {
            for (field, list) in [("comment", "comments"), ("worklog", "worklogs")] {
                let parts = self.part_changes(issue, field, list)?;
                let sizes = parts.changes.iter();
                let sizes = sizes.filter_map(|change| change.value.as_ref());
                bytes += sizes.map(Vec::len).sum::<usize>();
                waiting
                    .entry(parts.topic)
                    .or_default()
                    .extend(parts.changes);
                if !parts.is_complete {
                    incomplete.insert(text(&issue["id"]));
                }
            }
            if bytes > PARTS_BYTES_MAX {
                self.write_all(std::mem::take(&mut waiting))?;
                bytes = 0;
            }
        }
        self.write_all(waiting)?;
        Ok(incomplete)
    }

    /// Records issues whose lists the next census reads again.
    fn record_incomplete(&mut self, ids: BTreeSet<String>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.report.incomplete += u64::try_from(ids.len()).unwrap_or(u64::MAX);
        let mut all: BTreeSet<String> = self
            .replica
            .read("cursors", INCOMPLETE)?
            .unwrap_or_default();
        all.extend(ids);
        let all: BTreeSet<String> = all.into_iter().take(INCOMPLETE_MAX).collect();
        self.report.writes += self.replica.store("cursors", INCOMPLETE, &all)?;
        Ok(())
    }

    /// Reads the comments and worklogs again that the site did not send completely.
    fn read_incomplete(&mut self) -> Result<()> {
        let ids: Option<BTreeSet<String>> = self.replica.read("cursors", INCOMPLETE)?;
        let Some(ids) = ids.filter(|ids| !ids.is_empty()) else {
            return Ok(());
        };
        let mut issues: Vec<Value> = Vec::new();
        for id in ids {
            if let Some(location) = self.replica.locate(&id)? {
                let topic = format!("issues.{}", location.project);
                issues.extend(self.replica.read(&topic, &id)?);
            }
        }
        let left = self.store_parts(issues.iter())?;
        self.report.incomplete += u64::try_from(left.len()).unwrap_or(u64::MAX);
        self.report.writes += self.replica.store("cursors", INCOMPLETE, &left)?;
        Ok(())
    }

    fn write_all(&mut self, changes: BTreeMap<String, Vec<Change>>) -> Result<()> {
        for (topic, changes) in changes {
            self.write(&topic, &changes)?;
        }
        Ok(())
    }

    /// The changes of the comments or worklogs of an issue; requests those that the issue does not
    /// contain. An incomplete list removes none.
    fn part_changes(&self, issue: &Value, field: &str, list: &str) -> Result<PartChanges> {
        let (id, project) = (text(&issue["id"]), text(&issue["fields"]["project"]["id"]));
        let topic = format!("{list}.{project}");
        let part = &issue["fields"][field];
        let (Some(embedded), Some(total)) = (part[list].as_array(), part["total"].as_u64()) else {
            // The answer does not contain the list, so the stored items remain.
            return Ok(PartChanges {
                topic,
                changes: Vec::new(),
                is_complete: true,
            });
        };
        let is_embedded = usize::try_from(total).is_ok_and(|total| total <= embedded.len());
        let (items, is_complete) = if is_embedded {
            (embedded.clone(), true)
        } else {
            self.list(&format!("issue/{id}/{field}"), list)?
        };
        let prefix = format!("{id}.");
        let mut left: BTreeSet<String> = self.replica.keys(&topic, &prefix)?.into_iter().collect();
        let mut changes = BTreeMap::new();
        for item in &items {
            let key = format!("{prefix}{}", text(&item["id"]));
            left.remove(&key);
            let bytes = serde_json::to_vec(item)?;
            let stored = self.replica.get(&topic, &key)?;
            if stored.as_ref().is_some_and(|stored| stored.bytes == bytes) {
                continue;
            }
            let found = stored.map(|stored| stored.offset);
            changes.insert(
                key.clone(),
                Change {
                    key,
                    value: Some(bytes),
                    found,
                },
            );
        }
        for key in left.into_iter().filter(|_| is_complete) {
            let found = self.replica.get(&topic, &key)?.map(|stored| stored.offset);
            changes.insert(
                key.clone(),
                Change {
                    key,
                    value: None,
                    found,
                },
            );
        }
        Ok(PartChanges {
            topic,
            changes: changes.into_values().collect(),
            is_complete,
        })
    }

    /// The items of a list that is paged by offset, and whether they are all. A list that the site
    /// refuses, or whose pages are inconsistent, is read again. It must not stop the pull of all
    /// other issues.
    fn list(&self, path: &str, list: &str) -> Result<(Vec<Value>, bool)> {
        let mut most = Vec::new();
        for _ in 0..LIST_READS_MAX {
            let (items, is_complete) = match self.list_once(path, list) {
                Err(error) if error.is_about_one_object() => (Vec::new(), false),
                once => once?,
            };
            if is_complete {
                return Ok((items, true));
            }
            if items.len() > most.len() {
                most = items;
            }
        }
        Ok((most, false))
    }

    fn list_once(&self, path: &str, list: &str) -> Result<(Vec<Value>, bool)> {
        let (mut items, mut seen, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
        loop {
            let start = items.len();
            let page: Value = self
                .client
                .get(&format!("{path}?startAt={start}&maxResults=100"))?;
            let found = page[list].as_array().map_or(&[][..], Vec::as_slice);
            if found.is_empty() {
                // The total may shrink meanwhile, so the total of this page is used.
                let total = page["total"].as_u64();
                let total = total.and_then(|total| usize::try_from(total).ok());
                return Ok((items, total.is_some_and(|total| total <= start)));
            }
            for item in found.iter().filter(|item| seen.insert(text(&item["id"]))) {
                bytes += item.to_string().len();
                items.push(item.clone());
            }
            let repeats = items.len() == start;
            if repeats || bytes > LIST_BYTES_MAX {
                return Ok((items, false));
            }
        }
    }

    /// Stores worklogs that were changed or deleted without a change of their issue.
    fn worklogs(&mut self) -> Result<()> {
        let changed_since = self.worklogs_ms();
        // Each feed has its own time, because the time of a feed without items may not advance.
        let deleted_since = self.cursor.deleted_worklogs_ms;
        let deleted_since = deleted_since.filter(|since| *since <= self.latest_ms());
        let deleted_since = deleted_since.unwrap_or(changed_since);
        // A pull from a lagging index can have restored older worklogs after the last census.
        let overlap_ms = self.options.overlap_ms;
        let (changed, until) = match self.feed("worklog/updated", changed_since - overlap_ms) {
            // The site does not log work.
            Err(JiraError::Status { .. }) => return Ok(()),
            found => found?,
        };
        for ids in changed.chunks(WORKLOGS) {
            let found: Vec<Value> = self
                .client
                .read_by_post("worklog/list", &json!({"ids": ids}))?;
            self.store_worklogs(&found)?;
        }
        let (deleted, deleted_until) = self.feed("worklog/deleted", deleted_since - overlap_ms)?;
        self.remove_worklogs(&deleted.iter().map(u64::to_string).collect())?;
        self.cursor.worklogs_from_ms = Some(changed_since);
        self.cursor.worklogs_ms = Some(until.max(changed_since));
        self.cursor.deleted_worklogs_ms = Some(deleted_until.max(deleted_since));
        self.save()
    }

    /// The ids of worklogs in a feed since a time, and the time up to which the feed is complete.
    fn feed(&self, path: &str, since: i64) -> Result<(Vec<u64>, i64)> {
        let (mut ids, mut since) = (Vec::new(), since.max(0));
        for _ in 0..PAGES_MAX {
            let page: Value = self.client.get(&format!("{path}?since={since}"))?;
            let values = page["values"].as_array();
            let values = values.ok_or(JiraError::Paging("a feed has no `values`"))?;
            // An empty page may have no time.
            let until = page["until"].as_i64().unwrap_or(since);
            ids.extend(
                values
                    .iter()
                    .filter_map(|value| value["worklogId"].as_u64()),
            );
            if page["lastPage"] != false {
                return Ok((ids, until.max(since)));
            }
            if until <= since {
                return Err(JiraError::Paging(
                    "a page of a feed repeats the one before it",
                ));
            }
            since = until;
        }
        Err(JiraError::Paging("its pages do not end"))
    }

    /// Stores worklogs of issues that the replica has.
    fn store_worklogs(&mut self, found: &[Value]) -> Result<()> {
        for worklog in found {
            let (id, issue) = (text(&worklog["id"]), text(&worklog["issueId"]));
            let Some(location) = self.replica.locate(&issue)? else {
                continue;
            };
            let topic = format!("worklogs.{}", location.project);
            let key = format!("{issue}.{id}");
            let stored: Option<Value> = self.replica.read(&topic, &key)?;
            if stored.is_none_or(|stored| stored["updated"] != worklog["updated"]) {
                self.report.writes += self.replica.store(&topic, &key, worklog)?;
            }
        }
        Ok(())
    }

    /// Removes worklogs by their ids.
    fn remove_worklogs(&mut self, ids: &BTreeSet<String>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        for (project, _) in self.replica.projects()? {
            let topic = format!("worklogs.{project}");
            for key in self.replica.keys(&topic, "")? {
                if key.rsplit_once('.').is_some_and(|(_, id)| ids.contains(id)) {
                    self.replica.remove(&topic, &key)?;
                    self.report.writes += 1;
                }
            }
        }
        Ok(())
    }

    /// Reads a part of the issues again, at most once a week: some changes, such as a new rank or a
    /// new name of a person, do not change the time of an issue. Each sample begins after the last
    /// issue of the one before it.
    fn sample(&mut self) -> Result<()> {
        let now_ms = self.options.now_ms;
        // The first pull has just read all issues.
        let last = *self.cursor.sample_ms.get_or_insert(now_ms);
        if distance_ms(now_ms, last) < SAMPLE_INTERVAL_MS {
            return Ok(());
        }
        let mut ids = Vec::new();
        for project in self.selected_projects()?.into_keys() {
            ids.extend(self.replica.keys(&format!("issues.{project}"), "")?);
        }
        ids.sort_unstable();
        let count = ids.len().div_ceil(SAMPLE_PART).clamp(BULK, SAMPLE_MAX);
        let before = self.cursor.sampled_to.as_ref();
        let start = ids.partition_point(|id| Some(id) <= before);
        ids.rotate_left(start);
        ids.truncate(count);
        for part in ids.chunks(BULK) {
            let page = self.fetch_issues(part)?;
            let rows = self.parsed(&page.issues);
            self.report.sampled += u64::try_from(rows.len()).unwrap_or(u64::MAX);
            self.report.outdated += self.store_changed(&rows)?;
        }
        self.cursor.sample_ms = Some(now_ms);
        self.cursor.sampled_to = ids.pop();
        self.save()
    }

    /// Compares the ids of each project with those of the replica.
    fn census(&mut self) -> Result<()> {
        let mut unconfirmed = None;
        for (project, key) in self.selected_projects()? {
            match self.compare_project(&project, &key) {
                Err(error @ JiraError::TooManyGone { .. }) => {
                    unconfirmed.get_or_insert(error);
                }
                counted => counted?,
            }
        }
        // A census that needs a confirmation also counts; otherwise the next pull would ask again.
        self.cursor.census_ms = Some(self.options.now_ms);
        self.save()?;
        unconfirmed.map_or(Ok(()), Err)
    }

    /// Removes the issues of projects that the account can no longer see.
    fn purge_lost(&mut self) -> Result<()> {
        for (project, value) in self.replica.projects()? {
            if value["visible"] == true {
                continue;
            }
            for id in self.replica.keys(&format!("issues.{project}"), "")? {
                self.remove_issue(&project, &id, true)?;
                self.report.gone += 1;
            }
        }
        Ok(())
    }

    /// Compares the issues of a project in the replica with those at the site: reads missed
    /// changes, and removes deleted issues.
    fn compare_project(&mut self, project: &str, key: &str) -> Result<()> {
        let at_site = self.list_issues(key)?;
        let topic = format!("issues.{project}");
        let known: BTreeSet<String> = self.replica.keys(&topic, "")?.into_iter().collect();
        let mut missed = Vec::new();
        for (id, at) in &at_site {
            let stored: Option<Value> = self.replica.read(&topic, id)?;
            let is_missed = |stored: Value| {
                let time = updated(&stored);
                time < *at || (time != *at && time > Some(self.latest_ms()))
            };
            if stored.is_none_or(is_missed) {
                missed.push(id.clone());
            }
        }
        for ids in missed.chunks(BULK) {
            let page = self.fetch_issues(ids)?;
            let rows = self.parsed(&page.issues);
            self.report.repaired += self.store_changed(&rows)?;
        }
        let absent: Vec<String> = known
            .into_iter()
            .filter(|id| !at_site.contains_key(id))
            .collect();
        let mut gone = Vec::new();
        for ids in absent.chunks(BULK) {
            let page = self.fetch_issues(ids)?;
            let rows = self.parsed(&page.issues);
            self.store_changed(&rows)?;
            let found: BTreeSet<String> =
                rows.iter().map(|(_, issue)| text(&issue["id"])).collect();
            for id in &found {
                // An interrupted pull stored it in another project, and left it here.
                let location = self.replica.locate(id)?;
                if location.is_some_and(|location| location.project != project) {
                    self.remove_issue(project, id, false)?;
                }
            }
            for id in ids.iter().filter(|id| !found.contains(*id)) {
                let issue: Result<Box<RawValue>> = self.client.get(&format!("issue/{id}"));
                match issue {
                    Ok(issue) => {
                        let row = [issue];
                        let row = self.parsed(&row);
                        self.store_changed(&row)?;
                    }
                    Err(JiraError::Status { status: 404, .. }) => gone.push(id.clone()),
                    Err(error) => return Err(error),
                }
            }
        }
        let known = at_site.len() + gone.len();
        if gone.len() > 1 && gone.len() * GONE_PART > known && !self.options.confirm_removal {
            let project = key.to_owned();
            return Err(JiraError::TooManyGone {
                project,
                gone: gone.len(),
                known,
            });
        }
        for id in gone {
            self.remove_issue(project, &id, true)?;
            self.report.gone += 1;
        }
        Ok(())
    }

    /// Ids and times of change of the issues of a project at the site. Queries continue after the
    /// greatest id until a page is empty, which detects a server that stops early.
    fn list_issues(&mut self, key: &str) -> Result<BTreeMap<String, Option<i64>>> {
        if !self.is_cloud() {
            return self.list_issues_by_offset(key);
        }
        let mut at_site = BTreeMap::new();
        let mut last = 0_u64;
        for _ in 0..PAGES_MAX {
            let project = crate::offline::quoted(key);
            let jql = format!("project = {project} AND id > {last} ORDER BY id ASC");
            let before = at_site.len();
            let (mut token, mut tokens): (Option<String>, _) = (None, BTreeSet::new());
            loop {
                let page = self.page(&jql, &["updated"], 5000, token.as_deref(), &[])?;
                for (_, issue) in self.parsed(&page.issues) {
                    let id = text(&issue["id"]);
                    last = last.max(id.parse().unwrap_or(0));
                    at_site.insert(id, updated(&issue));
                }
                match page.next {
                    Some(next) if tokens.insert(next.clone()) => token = Some(next),
                    // The next query continues after the greatest id.
                    _ => break,
                }
                if tokens.len() > PAGES_MAX {
                    return Err(JiraError::Paging("its pages do not end"));
                }
            }
            if at_site.len() == before {
                return Ok(at_site);
            }
        }
        Err(JiraError::Paging("its pages do not end"))
    }

    /// As `list_issues` at Data Center, where ids cannot be compared. A deletion meanwhile can hide
    /// an issue from the pages; the census then requests that issue separately.
    fn list_issues_by_offset(&mut self, key: &str) -> Result<BTreeMap<String, Option<i64>>> {
        let project = crate::offline::quoted(key);
        let jql = format!("project = {project} ORDER BY key ASC");
        let mut at_site = BTreeMap::new();
        let mut start: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let page = self.page(&jql, &["updated"], 1000, start.as_deref(), &[])?;
            for (_, issue) in self.parsed(&page.issues) {
                at_site.insert(text(&issue["id"]), updated(&issue));
            }
            match page.next {
                None => return Ok(at_site),
                next => start = next,
            }
        }
        Err(JiraError::Paging("its pages do not end"))
    }

    fn fetch_issues(&self, ids: &[String]) -> Result<Page> {
        if !self.is_cloud() {
            let jql = format!("id in ({})", ids.join(", "));
            return self.page(&jql, &["*all"], BULK, None, &[]);
        }
        let body = json!({"issueIdsOrKeys": ids, "fields": ["*all"]});
        self.client.read_by_post("issue/bulkfetch", &body)
    }

    /// Removes an issue from a project, and with `names` also its keys. The records remain in the
    /// history of the topics.
    fn remove_issue(&mut self, project: &str, id: &str, names: bool) -> Result<()> {
        let topic = format!("issues.{project}");
        let stored: Option<Value> = self.replica.read(&topic, id)?;
        for list in ["comments", "worklogs"] {
            let topic = format!("{list}.{project}");
            for key in self.replica.keys(&topic, &format!("{id}."))? {
                self.replica.remove(&topic, &key)?;
                self.report.writes += 1;
            }
        }
        let Some(stored) = stored else {
            return Ok(());
        };
        self.replica.remove(&topic, id)?;
        self.report.writes += 1;
        let key = text(&stored["key"]);
        for name in [id, &key].into_iter().filter(|_| names) {
            self.replica.remove("aliases", name)?;
            self.report.writes += 1;
        }
        Ok(())
    }
}

/// The changes of the comments or worklogs of an issue.
struct PartChanges {
    topic: String,
    changes: Vec<Change>,
    /// Whether the site sent the whole list.
    is_complete: bool,
}

enum Decision {
    Store,
    Same,
    Stale,
}

/// The time between two times, in milliseconds. After the clock was set back, `last` can be in the
/// future.
fn distance_ms(now: i64, last: i64) -> i64 {
    now.saturating_sub(last).saturating_abs()
}

/// The fields, with only the count of the parts that a search truncates.
fn content(issue: &Value) -> Value {
    let mut fields = issue["fields"].clone();
    for part in ["comment", "worklog"] {
        let total = fields[part]["total"].clone();
        if let Some(fields) = fields.as_object_mut() {
            fields.insert(part.to_owned(), total);
        }
    }
    fields
}

fn updated(issue: &Value) -> Option<i64> {
    time::parse(issue["fields"]["updated"].as_str()?)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
