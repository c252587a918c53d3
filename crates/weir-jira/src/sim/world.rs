//! The state of the simulator: users, projects, and issues. Each issue also has the older versions
//! that a lagging index may show.

mod varied;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::SimOptions;
use super::account::Account;
use crate::time;

/// Time at which a virtual clock starts: 2024-11-28 13:20 UTC.
const VIRTUAL_START_MS: i64 = 1_732_800_000_000;
/// Limit on comments and worklogs in an issue of a search result.
const EMBEDDED_MAX: usize = 20;
/// Least number of users: one for each account.
const USERS_MIN: usize = 3;

/// An issue with its comments, worklogs and watchers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Issue {
    pub(super) id: u64,
    pub(super) key: String,
    pub(super) project: u64,
    pub(super) fields: Map<String, Value>,
    pub(super) comments: Vec<Value>,
    pub(super) worklogs: Vec<Value>,
    pub(super) history: Vec<Value>,
    pub(super) properties: Map<String, Value>,
    /// Account ids of the watchers.
    pub(super) watchers: BTreeSet<String>,
    /// Versions by their start time, for a lagging index.
    #[serde(skip)]
    versions: Vec<(i64, Option<Arc<Value>>)>,
    /// Times of the last writes, for the write limits of an issue.
    #[serde(skip)]
    pub(super) writes: Vec<i64>,
    /// The issue as a search shows it, if it was searched since its last change.
    #[serde(skip)]
    shown: OnceLock<Arc<Value>>,
}

/// The issues by id.
#[derive(Debug, Default)]
pub(super) struct Issues {
    all: BTreeMap<u64, Issue>,
    /// Ids of the issues that were changed since they were last stored.
    changed: BTreeSet<u64>,
}

impl Deref for Issues {
    type Target = BTreeMap<u64, Issue>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Issues {
    /// The issue with this id, to change it.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Issue> {
        let issue = self.all.get_mut(&id)?;
        issue.shown.take();
        self.changed.insert(id);
        Some(issue)
    }

    fn insert(&mut self, issue: Issue) {
        self.changed.insert(issue.id);
        self.all.insert(issue.id, issue);
    }

    fn remove(&mut self, id: u64) -> Option<Issue> {
        self.changed.insert(id);
        self.all.remove(&id)
    }

    /// Ids of the issues that were changed since they were last stored.
    pub(super) fn changed(&self) -> &BTreeSet<u64> {
        &self.changed
    }

    /// Records that all issues are stored.
    pub(super) fn clear_changed(&mut self) {
        self.changed.clear();
    }
}

/// The state besides the issues, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OtherState {
    clock_ms: Option<i64>,
    users: Vec<Value>,
    projects: BTreeMap<u64, Value>,
    deleted_worklogs: Vec<(u64, u64, i64)>,
    aliases: BTreeMap<String, u64>,
    revoked: BTreeSet<u64>,
    denied: Vec<String>,
    next_id: u64,
    counts: BTreeMap<u64, u64>,
}

impl Issue {
    /// The comments, or the worklogs.
    pub(super) fn parts(&self, list: &str) -> &Vec<Value> {
        if list == "comment" {
            &self.comments
        } else {
            &self.worklogs
        }
    }

    /// The comments or the worklogs, mutable.
    pub(super) fn parts_mut(&mut self, list: &str) -> &mut Vec<Value> {
        if list == "comment" {
            &mut self.comments
        } else {
            &mut self.worklogs
        }
    }
}

/// The state of the simulator.
#[derive(Debug)]
pub(super) struct World {
    pub(super) options: SimOptions,
    /// The account of the request.
    pub(super) account: Account,
    /// Time zone of all accounts.
    pub(super) zone: TimeZone,
    /// Virtual time; `None`: the system clock.
    clock_ms: Option<i64>,
    random: u64,
    pub(super) users: Vec<Value>,
    pub(super) projects: BTreeMap<u64, Value>,
    pub(super) issues: Issues,
    /// Deleted worklogs: the project, the id, and the time of the deletion.
    deleted_worklogs: Vec<(u64, u64, i64)>,
    /// Deleted issues, which a lagging index still shows.
    deleted: Vec<Issue>,
    /// Keys that issues had before they moved.
    pub(super) aliases: BTreeMap<String, u64>,
    /// Projects that no account can see.
    pub(super) revoked: BTreeSet<u64>,
    next_id: u64,
    counts: BTreeMap<u64, u64>,
    /// The rows on the pages before each page token: an id, then the time of the version, for each.
    pub(super) pages: BTreeMap<String, Vec<u64>>,
    pub(super) next_token: u64,
    /// Types of issues.
    pub(super) types: Vec<Value>,
}

impl World {
    /// Generates a world from the seed of the options.
    pub(super) fn new(options: SimOptions, zone: TimeZone) -> Self {
        let mut world = Self::empty(options, zone);
        world.generate();
        if world.options.varied {
            world.vary();
        }
        world
    }

    /// A world from its stored parts. Older versions of issues are not stored: a lagging index shows
    /// an issue when its last change is old enough.
    pub(super) fn restored(
        options: SimOptions,
        zone: TimeZone,
        other: OtherState,
        issues: Vec<Issue>,
    ) -> Self {
        let mut world = Self::empty(options, zone);
        if world.clock_ms.is_some() {
            world.clock_ms = other.clock_ms.or(world.clock_ms);
        }
        world.users = other.users;
        world.projects = other.projects;
        world.deleted_worklogs = other.deleted_worklogs;
        world.aliases = other.aliases;
        world.revoked = other.revoked;
        world.options.denied = other.denied;
        world.next_id = other.next_id;
        world.counts = other.counts;
        for issue in issues {
            let id = issue.id;
            world.issues.insert(issue);
            world.index(id, world.updated_ms(id));
        }
        world.issues.clear_changed();
        world
    }

    /// The state besides the issues.
    pub(super) fn other_state(&self) -> OtherState {
        OtherState {
            clock_ms: self.clock_ms,
            users: self.users.clone(),
            projects: self.projects.clone(),
            deleted_worklogs: self.deleted_worklogs.clone(),
            aliases: self.aliases.clone(),
            revoked: self.revoked.clone(),
            denied: self.options.denied.clone(),
            next_id: self.next_id,
            counts: self.counts.clone(),
        }
    }

    fn empty(options: SimOptions, zone: TimeZone) -> Self {
        Self {
            clock_ms: options.virtual_clock.then_some(VIRTUAL_START_MS),
            random: options.seed ^ 0x9e37_79b9_7f4a_7c15,
            users: Vec::new(),
            projects: BTreeMap::new(),
            issues: Issues::default(),
            deleted_worklogs: Vec::new(),
            deleted: Vec::new(),
            aliases: BTreeMap::new(),
            revoked: BTreeSet::new(),
            next_id: 10_000,
            counts: BTreeMap::new(),
            pages: BTreeMap::new(),
            next_token: 0,
            types: TYPES.iter().map(|name| type_of(name)).collect(),
            account: Account::default(),
            options,
            zone,
        }
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock_ms.unwrap_or_else(|| {
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// Advances a virtual clock; has no effect on the system clock.
    pub(super) fn advance(&mut self, ms: i64) {
        if let Some(clock) = &mut self.clock_ms {
            *clock += ms.max(0);
        }
    }

    /// The next number of the generator (splitmix64).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(1);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    /// Draws the delay of an answer.
    pub(super) fn next_latency(&mut self) -> Duration {
        let jitter = self.options.latency_jitter_ms.saturating_add(1);
        let jitter = self.next() % jitter;
        Duration::from_millis(self.options.latency_ms.saturating_add(jitter))
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn words(&mut self, count: usize) -> String {
        const WORDS: &[&str] = &[
            "login",
            "page",
            "slow",
            "index",
            "search",
            "crash",
            "button",
            "export",
            "naïve",
            "übersicht",
            "token",
            "expired",
            "sync",
            "offline",
            "report",
            "printer",
            "invoice",
            "mail",
            "queue",
            "cache",
            "release",
            "upgrade",
            "fails",
            "after",
            "before",
            "empty",
            "wrong",
            "time",
            "zone",
            "日本",
        ];
        let words: Vec<&str> = (0..count)
            .map(|_| {
                let at = self.below(WORDS.len());
                WORDS.get(at).copied().unwrap_or("word")
            })
            .collect();
        words.join(" ")
    }

    fn generate(&mut self) {
        for number in 0..self.options.users.max(USERS_MIN) {
            self.users.push(json!({
                "accountId": format!("user-{number}"), "displayName": format!("User {number}"),
                "emailAddress": format!("user{number}@example.com"), "active": true,
            }));
        }
        for number in 0..self.options.projects.max(1) {
            let id = 10_000 + u64::try_from(number).unwrap_or(0);
            let letter = char::from(b'A' + u8::try_from(number % 26).unwrap_or(0));
            let key = format!(
                "{letter}{letter}{}",
                if number < 26 {
                    String::new()
                } else {
                    (number / 26).to_string()
                }
            );
            let project = json!({
                "id": id.to_string(), "key": key, "name": format!("Project {key}"),
                "projectTypeKey": "software", "style": "classic",
            });
            self.projects.insert(id, project);
        }
        let projects: Vec<u64> = self.projects.keys().copied().collect();
        let start = self.now_ms() - 90 * time::DAY_MS;
        for number in 0..self.options.issues {
            let project = projects
                .get(self.below(projects.len()))
                .copied()
                .unwrap_or(10_000);
            let step = 80 * time::DAY_MS / i64::try_from(self.options.issues.max(1)).unwrap_or(1);
            let at = start + i64::try_from(number).unwrap_or(0) * step;
            let words = 2 + self.below(8);
            let summary = self.words(words);
            let kinds = ["Task", "Bug", "Story"];
            let kind = kinds.get(self.below(3)).copied().unwrap_or("Task");
            let length = 3 + self.below(60);
            let text = self.words(length);
            let mut fields = Map::new();
            fields.insert("summary".to_owned(), summary.into());
            fields.insert("issuetype".to_owned(), type_of(kind));
            fields.insert("description".to_owned(), document(&text));
            let label = ["red", "green", "blue"]
                .get(self.below(3))
                .copied()
                .unwrap_or("red");
            fields.insert("labels".to_owned(), json!([label]));
            let id = self.create(project, &fields, Map::new(), at);
            let status = self.below(3);
            let assignee = self.below(self.users.len());
            let assignee = self.users.get(assignee).cloned().unwrap_or_default();
            let count = self.below(2 * self.options.comments + 1);
            let mut comments = Vec::new();
            for _ in 0..count {
                let id = self.new_id();
                let words = 1 + self.below(20);
                let text = self.words(words);
                comments.push(self.comment(id, &document(&text), at));
            }
            let mut worklogs = Vec::new();
            if self.options.worklogs > 0 {
                let count = self.below(2 * self.options.worklogs + 1);
                for _ in 0..count {
                    let (worklog_id, minutes) = (self.new_id(), 1 + self.below(480));
                    let words = 1 + self.below(8);
                    let text = self.words(words);
                    let mut worklog = self.comment(worklog_id, &Value::Null, at);
                    worklog["issueId"] = id.to_string().into();
                    worklog["timeSpentSeconds"] = (60 * minutes).into();
                    worklog["started"] = time::format(at).into();
                    worklog["comment"] = document(&text);
                    worklogs.push(worklog);
                }
            }
            if let Some(issue) = self.issues.get_mut(id) {
                issue.fields.insert("status".to_owned(), status_of(status));
                issue.fields.insert("assignee".to_owned(), assignee);
                issue.comments = comments;
                issue.worklogs = worklogs;
            }
            self.touch(id, at);
        }
    }

    /// The items of a field that is a list.
    pub(super) fn list_of(&self, id: u64, field: &str) -> Vec<Value> {
        let issue = self.issues.get(&id);
        let items = issue.and_then(|issue| issue.fields.get(field)?.as_array());
        items.cloned().unwrap_or_default()
    }

    /// A user other than that of the account.
    pub(super) fn another(&self) -> Value {
        let me = self.me();
        let other = self.users.iter().find(|user| **user != me);
        other.cloned().unwrap_or_default()
    }

    /// The user of the account.
    pub(super) fn me(&self) -> Value {
        let me = self.users.get(self.account.user());
        me.cloned().unwrap_or_default()
    }

    /// Whether the account cannot see a project.
    pub(super) fn hides(&self, project: u64) -> bool {
        let first = self.projects.keys().next();
        let is_outside = self.account == Account::Outsider && first != Some(&project);
        is_outside || self.revoked.contains(&project)
    }

    /// Whether the account lacks a right.
    pub(super) fn lacks(&self, right: &str) -> bool {
        self.account.lacks(right) || self.options.denied.iter().any(|denied| denied == right)
    }

    pub(super) fn comment(&self, id: u64, body: &Value, at: i64) -> Value {
        json!({
            "id": id.to_string(), "author": self.me(), "updateAuthor": self.me(), "body": body,
            "created": time::format(at), "updated": time::format(at),
        })
    }

    /// Creates an issue; returns its id.
    pub(super) fn create(
        &mut self,
        project: u64,
        given: &Map<String, Value>,
        properties: Map<String, Value>,
        at: i64,
    ) -> u64 {
        let id = self.new_id();
        let count = self.counts.entry(project).or_default();
        *count += 1;
        let count = *count;
        let details = self.projects.get(&project).cloned().unwrap_or_default();
        let key = format!("{}-{count}", details["key"].as_str().unwrap_or("XX"));
        let mut fields = json!({
            "summary": "", "description": null, "labels": [], "assignee": null, "duedate": null,
            "resolution": null, "resolutiondate": null, "status": status_of(0),
            "priority": {"id": "2", "name": "Medium"}, "reporter": self.me(), "creator": self.me(),
            "issuetype": type_of("Task"), "issuelinks": [], "created": time::format(at),
        });
        if let Some(fields) = fields.as_object_mut() {
            fields.extend(given.clone());
            fields.insert("project".to_owned(), details);
            let issue = Issue {
                id,
                key,
                project,
                fields: fields.clone(),
                properties,
                ..Issue::default()
            };
            self.issues.insert(issue);
        }
        self.touch(id, at);
        id
    }

    /// Time of the last change of an issue, in milliseconds; the current time if it has none.
    fn updated_ms(&self, id: u64) -> i64 {
        let issue = self.issues.get(&id);
        let updated = issue.and_then(|issue| issue.fields.get("updated")?.as_str());
        updated
            .and_then(time::parse)
            .unwrap_or_else(|| self.now_ms())
    }

    /// Sets the time of the last change of an issue.
    pub(super) fn touch(&mut self, id: u64, at: i64) {
        if let Some(issue) = self.issues.get_mut(id) {
            let updated = time::format(at).into();
            issue.fields.insert("updated".to_owned(), updated);
        }
        self.index(id, at);
    }

    /// Adds the version of an issue that a lagging index will show.
    pub(super) fn index(&mut self, id: u64, at: i64) {
        let horizon = at - self.options.search_lag_ms;
        let Some(issue) = self.issues.get_mut(id) else {
            return;
        };
        if self.options.search_lag_ms > 0 {
            let rendered = issue.shown();
            issue.versions.push((at, Some(rendered)));
            let old = issue
                .versions
                .iter()
                .filter(|(began, _)| *began <= horizon)
                .count();
            issue.versions.drain(..old.saturating_sub(1));
        }
    }

    /// Removes a comment or worklog of an issue, without a change of the issue. Returns whether the
    /// issue had it.
    pub(super) fn delete_part(&mut self, id: u64, list: &str, part: &str) -> bool {
        let now = self.now_ms();
        let Some(issue) = self.issues.get_mut(id) else {
            return false;
        };
        let before = issue.parts(list).len();
        issue.parts_mut(list).retain(|item| item["id"] != part);
        let found = issue.parts(list).len() < before;
        let project = issue.project;
        if found && list == "worklog" {
            let id = part.parse().unwrap_or(0);
            self.deleted_worklogs.push((project, id, now));
        }
        self.index(id, now);
        found
    }

    /// The ids of deleted worklogs with the times of their deletion.
    pub(super) fn deleted_worklogs(&self) -> Vec<(u64, i64)> {
        let all = self.deleted_worklogs.iter();
        all.filter(|(project, ..)| !self.hides(*project))
            .map(|(_, id, at)| (*id, *at))
            .collect()
    }

    /// The ids of worklogs with the times of their last change.
    pub(super) fn changed_worklogs(&self) -> Vec<(u64, i64)> {
        let shown = self.issues.values();
        let shown = shown.filter(|issue| !self.hides(issue.project));
        let all = shown.flat_map(|issue| &issue.worklogs);
        all.filter_map(|worklog| {
            let at = time::parse(worklog["updated"].as_str()?)?;
            Some((worklog["id"].as_str()?.parse().ok()?, at))
        })
        .collect()
    }

    /// Removes an issue; a lagging index still shows it for some time.
    pub(super) fn delete(&mut self, id: u64) -> bool {
        let now = self.now_ms();
        let Some(mut issue) = self.issues.remove(id) else {
            return false;
        };
        if self.options.search_lag_ms > 0 {
            issue.versions.push((now, None));
            self.deleted.push(issue);
        }
        true
    }

    /// The id of the project with this id or key.
    pub(super) fn project(&self, name: &str) -> Option<u64> {
        let called = |project: &Value| project["key"] == name || project["id"] == name;
        let mut all = self.projects.iter();
        all.find(|(_, project)| called(project)).map(|(id, _)| *id)
    }

    /// Deletes a project with its issues.
    pub(super) fn delete_project(&mut self, id: u64) {
        let name = id.to_string();
        let own = |issue: &Issue| {
            let project = issue.fields.get("project");
            project.is_some_and(|project| project["id"] == name.as_str())
        };
        let issues = self.issues.iter().filter(|(_, issue)| own(issue));
        let issues: Vec<u64> = issues.map(|(id, _)| *id).collect();
        for issue in issues {
            self.delete(issue);
        }
        self.projects.remove(&id);
    }

    /// Moves an issue into another project; the old key still finds it.
    pub(super) fn relocate(&mut self, id: u64, project: u64) -> bool {
        let now = self.now_ms();
        let Some(details) = self.projects.get(&project).cloned() else {
            return false;
        };
        let count = self.counts.entry(project).or_default();
        *count += 1;
        let key = format!("{}-{count}", details["key"].as_str().unwrap_or("XX"));
        let Some(issue) = self.issues.get_mut(id) else {
            return false;
        };
        let old = std::mem::replace(&mut issue.key, key);
        issue.project = project;
        issue.fields.insert("project".to_owned(), details);
        self.aliases.insert(old, id);
        self.touch(id, now);
        true
    }

    /// The id of an issue by id or key, if it is visible to the account.
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        let id = self.find_any(name)?;
        let issue = self.issues.get(&id)?;
        (!self.hides(issue.project)).then_some(id)
    }

    /// The id of an issue by id or key, also if it is hidden from the account.
    pub(super) fn find_any(&self, name: &str) -> Option<u64> {
        let id = name.parse().ok().filter(|id| self.issues.contains_key(id));
        let by_key = || {
            self.issues
                .values()
                .find(|issue| issue.key == name)
                .map(|issue| issue.id)
        };
        id.or_else(by_key)
            .or_else(|| self.aliases.get(name).copied())
    }

    /// The issues that the index shows; those in `current` in their newest version.
    pub(super) fn indexed(&self, current: &BTreeSet<u64>) -> Vec<Arc<Value>> {
        let lag = self.options.search_lag_ms;
        let horizon = self.now_ms() - lag;
        let deleted = self.deleted.iter().filter(|_| lag > 0);
        let all = self.issues.values().chain(deleted);
        all.filter(|issue| !self.hides(issue.project))
            .filter_map(|issue| {
                let live = self.issues.contains_key(&issue.id);
                if live && (lag == 0 || current.contains(&issue.id)) {
                    return Some(issue.shown());
                }
                let mut versions = issue.versions.iter().rev();
                versions.find(|(began, _)| *began <= horizon)?.1.clone()
            })
            .collect()
    }

    /// A dump that is equal for equal worlds.
    pub(super) fn dump(&self) -> Value {
        let issues: Map<String, Value> = self
            .issues
            .values()
            .filter(|issue| !self.hides(issue.project))
            .map(|issue| (issue.id.to_string(), issue.render(false)))
            .collect();
        json!({"issues": issues, "revoked": self.revoked})
    }
}

impl Issue {
    /// The issue as a search shows it. It is rendered once after each change, because a query
    /// selects its page from all issues.
    fn shown(&self) -> Arc<Value> {
        Arc::clone(self.shown.get_or_init(|| Arc::new(self.render(true))))
    }

    /// The issue as JSON; with `cut`, only with the comments and worklogs of a search result.
    pub(super) fn render(&self, cut: bool) -> Value {
        let mut fields = self.fields.clone();
        for (name, list, items) in [
            ("comment", "comments", &self.comments),
            ("worklog", "worklogs", &self.worklogs),
        ] {
            let most = if cut { EMBEDDED_MAX } else { usize::MAX };
            let shown: Vec<&Value> = items.iter().take(most).collect();
            let part = json!({
                list: shown, "maxResults": shown.len(), "total": items.len(), "startAt": 0,
            });
            fields.insert(name.to_owned(), part);
        }
        let watches = json!({"watchCount": self.watchers.len()});
        fields.insert("watches".to_owned(), watches);
        json!({
            "id": self.id.to_string(), "key": self.key, "self": format!("/rest/api/3/issue/{}", self.id),
            "fields": fields,
        })
    }
}

/// The statuses, by number.
pub(super) fn status_of(number: usize) -> Value {
    let (id, name, category, label) = match number {
        0 => ("1", "To Do", "new", "To Do"),
        1 => ("2", "In Progress", "indeterminate", "In Progress"),
        _ => ("3", "Done", "done", "Done"),
    };
    json!({"id": id, "name": name, "statusCategory": {"key": category, "name": label}})
}

/// Names of the types of issues; ids count from 1.
const TYPES: &[&str] = &["Task", "Bug", "Story", "Subtask"];

/// A type of issues by its name.
pub(super) fn type_of(name: &str) -> Value {
    let at = TYPES.iter().position(|found| *found == name).unwrap_or(0);
    json!({"id": (at + 1).to_string(), "name": name, "subtask": name == "Subtask"})
}

/// A document of one paragraph.
pub(super) fn document(text: &str) -> Value {
    json!({"type": "doc", "version": 1, "content": [
        {"type": "paragraph", "content": [{"type": "text", "text": text}]}]})
}

/// The types of links.
pub(super) fn link_types() -> Vec<Value> {
    let all = [
        ("10000", "Blocks", "is blocked by", "blocks"),
        ("10001", "Cloners", "is cloned by", "clones"),
        ("10002", "Relates", "relates to", "relates to"),
    ];
    let one = |(id, name, inward, outward)| json!({"id": id, "name": name, "inward": inward, "outward": outward});
    all.into_iter().map(one).collect()
}
