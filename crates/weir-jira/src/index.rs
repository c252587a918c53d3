//! All issues of a replica in memory, with an index of their words, for lists, searches and queries
//! without disk reads.
//!
//! The index suits a long-lived process. [`Index::refresh`] reads only records that were added
//! since the last refresh. A query returns the result of [`offline::select`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use weir::ReadFrom;

use crate::error::Result;
use crate::jql::{self, Condition, Context, Operand, Operator, Query};
use crate::offline;
use crate::op;
use crate::overlay::Overlay;
use crate::replica::{Location, Replica};
use crate::time;

/// Fields of an issue that are not used by lists or queries.
const UNUSED_FIELDS: &[&str] = &["worklog", "issuelinks", "attachment", "subtasks", "watches"];

/// Fields whose values are indexed, as JQL names them: a comparison with `=` or `!=` and IS EMPTY
/// read no issue.
const INDEXED_FIELDS: &[&str] = &[
    "assignee",
    "creator",
    "issuetype",
    "labels",
    "priority",
    "project",
    "reporter",
    "resolution",
    "status",
    "statuscategory",
];

/// Fields whose words are indexed. The text of an issue includes the other three.
const TEXT_FIELDS: &[&str] = &["comment", "description", "summary", "text"];

/// The fields of an issue in a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Row {
    /// Id at the site, or temporary key.
    pub id: String,
    /// Key.
    pub key: String,
    /// Key of the project.
    pub project: String,
    /// Name of the type.
    pub kind: String,
    /// Summary.
    pub summary: String,
    /// Name of the status.
    pub status: String,
    /// Key of the category of the status: `new`, `indeterminate` or `done`.
    pub category: String,
    /// Name of the assignee; empty: not assigned.
    pub assignee: String,
    /// Name of the priority.
    pub priority: String,
    /// Labels.
    pub labels: Vec<String>,
    /// Key of the parent; empty: none.
    pub parent: String,
    /// Time of the last change, in milliseconds since 1970-01-01 UTC.
    pub updated_ms: i64,
    /// Time of the creation, in milliseconds since 1970-01-01 UTC.
    pub created_ms: i64,
    /// Due date `YYYY-MM-DD`; empty: none.
    pub due: String,
    /// Number of outbox operations that were not executed at the site yet.
    pub pending: u32,
}

/// The index of a replica.
#[derive(Debug, Default)]
pub struct Index {
    /// Entries by number; `None`: replaced by a later entry.
    entries: Vec<Option<Entry>>,
    by_id: HashMap<String, usize>,
    /// Numbers by key in capital letters.
    by_key: HashMap<String, usize>,
    /// For each word, the numbers of its entries, ascending.
    words: BTreeMap<Box<str>, Vec<usize>>,
    /// For each value of an indexed field, the numbers of its entries, ascending. The keys are from
    /// `value_key`.
    values: HashMap<Box<str>, Vec<usize>>,
    /// Offset of the last record that was read, by topic.
    offsets: HashMap<String, u64>,
    overlay: Arc<Overlay>,
    /// The account and its time zone.
    context: Context,
}

#[derive(Debug)]
struct Entry {
    row: Row,
    /// The hash of the row.
    hash: u64,
    /// The issue with plain texts instead of rich text, and without fields that no query uses.
    issue: Value,
    /// Project and number of the key, which order issues of the same time.
    order: (String, u64),
    /// The id as a number, which orders issues with equal keys of ORDER BY.
    id: i64,
}

/// An entry with the terms under which the index finds it. It is built without the index.
#[derive(Debug)]
struct PreparedEntry {
    entry: Entry,
    words: BTreeSet<String>,
    /// Keys of `value_key`.
    values: Vec<Box<str>>,
}

/// A refresh of an index; reads the new records.
#[derive(Debug)]
pub struct Refresh {
    offsets: HashMap<String, u64>,
    overlay: Arc<Overlay>,
}

/// The result of a refresh.
#[derive(Debug)]
pub struct Update {
    offsets: HashMap<String, u64>,
    changed: BTreeSet<String>,
    entries: Vec<PreparedEntry>,
    /// The outbox and the account, if they may have changed.
    outbox: Option<(Arc<Overlay>, Context)>,
}

impl Refresh {
    /// Reads the new records of the replica.
    pub fn read(mut self, replica: &Replica) -> Result<Update> {
        let mut changed: BTreeSet<String> = BTreeSet::new();
        for (project, _) in replica.projects()? {
            for list in ["issues", "comments", "worklogs"] {
                let topic = format!("{list}.{project}");
                if let Some(before) = record_offset(&mut self.offsets, replica, &topic)? {
                    collect(replica, &topic, before, &mut changed)?;
                }
            }
        }
        // The account and the statuses are in `meta`.
        let meta = record_offset(&mut self.offsets, replica, "meta")?.is_some();
        let mut outbox = None;
        if record_offset(&mut self.offsets, replica, "outbox")?.is_some() || meta {
            let overlay = Arc::new(Overlay::load(replica)?);
            changed.extend(self.overlay.changed_issues(&overlay));
            outbox = Some((Arc::clone(&overlay), offline::context(replica, 0)?));
            self.overlay = overlay;
        }
        let created = if changed.is_empty() {
            Vec::new()
        } else {
            self.overlay.created()
        };
        let mut entries = Vec::new();
        for id in &changed {
            let issue = if let Some(location) = replica.locate(id)?.filter(|_| !id.contains('+')) {
                with_comments(replica, &location)?
            } else {
                let mut created = created.iter();
                created.find(|issue| issue["id"] == id.as_str()).cloned()
            };
            entries.extend(issue.map(|issue| PreparedEntry::new(issue, &self.overlay)));
        }
        Ok(Update {
            offsets: self.offsets,
            changed,
            entries,
            outbox,
        })
    }
}

/// Records the last offset of a topic. Returns the previously recorded offset if the topic has
/// grown.
fn record_offset(
    offsets: &mut HashMap<String, u64>,
    replica: &Replica,
    topic: &str,
) -> Result<Option<u64>> {
    let info = replica.topic(topic)?.try_info()?;
    let last = info.map_or(0, |info| info.last.0);
    let before = offsets.insert(topic.to_owned(), last).unwrap_or(0);
    Ok((last > before).then_some(before))
}

/// A set of entries.
#[derive(Clone, Debug)]
struct EntrySet(Vec<u64>);

impl EntrySet {
    fn empty(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn intersect(&mut self, other: &Self) {
        for (word, mask) in self.0.iter_mut().zip(&other.0) {
            *word &= mask;
        }
    }

    fn subtract(&mut self, other: &Self) {
        for (word, mask) in self.0.iter_mut().zip(&other.0) {
            *word &= !mask;
        }
    }

    fn union(&mut self, other: &Self) {
        for (word, mask) in self.0.iter_mut().zip(&other.0) {
            *word |= mask;
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            (0..64)
                .filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| at * 64 + bit)
        })
    }
}

impl PreparedEntry {
    /// Builds the entry of an issue. Applies the operations of `overlay`, except to an issue with a
    /// temporary key, which has them already.
    fn new(mut issue: Value, overlay: &Overlay) -> Self {
        let id = issue["id"].as_str().unwrap_or_default().to_owned();
        if !id.contains('+') {
            overlay.apply(&mut issue);
        }
        let pending = overlay.pending(&id);
        strip(&mut issue);
        let (words, values) = (words_of(&issue), value_keys(&issue));
        let row = row(&issue, u32::try_from(pending).unwrap_or(u32::MAX));
        read_times(&mut issue);
        let (project, count) = row.key.rsplit_once('-').unwrap_or((&row.key, "0"));
        let order = (project.to_owned(), count.parse().unwrap_or(0));
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        let entry = Entry {
            row,
            hash: hasher.finish(),
            id: jql::id_of(&issue),
            issue,
            order,
        };
        Self {
            entry,
            words,
            values,
        }
    }
}

impl Index {
    /// Reads all issues of a replica.
    pub fn load(replica: &Replica) -> Result<Self> {
        let mut index = Self::default();
        for (project, _) in replica.projects()? {
            for list in ["issues", "comments", "worklogs"] {
                record_offset(&mut index.offsets, replica, &format!("{list}.{project}"))?;
            }
        }
        for topic in ["projects", "meta", "outbox"] {
            record_offset(&mut index.offsets, replica, topic)?;
        }
        index.overlay = Arc::new(Overlay::load(replica)?);
        index.context = offline::context(replica, 0)?;
        for (project, _) in replica.projects()? {
            let mut comments: HashMap<String, Vec<Value>> = HashMap::new();
            for (key, comment) in replica.values(&format!("comments.{project}"), "")? {
                let issue = key.split('.').next().unwrap_or_default().to_owned();
                comments.entry(issue).or_default().push(comment);
            }
            for (id, mut issue) in replica.values(&format!("issues.{project}"), "")? {
                let own = comments.remove(&id).unwrap_or_default();
                issue["fields"]["comment"]["comments"] = own.into();
                index.insert(PreparedEntry::new(issue, &index.overlay));
            }
        }
        for issue in index.overlay.created() {
            index.insert(PreparedEntry::new(issue, &index.overlay));
        }
        Ok(index)
    }

    /// Reads the new records of the replica. Returns the number of issues that were reloaded.
    pub fn refresh(&mut self, replica: &Replica) -> Result<usize> {
        Ok(self.apply(self.begin_refresh().read(replica)?))
    }

    /// Begins a refresh. It reads without the index, which can be queried meanwhile. Apply its
    /// update before the next refresh begins.
    pub fn begin_refresh(&self) -> Refresh {
        Refresh {
            offsets: self.offsets.clone(),
            overlay: Arc::clone(&self.overlay),
        }
    }

    /// Applies the update of a refresh. Returns the number of issues that were reloaded.
    pub fn apply(&mut self, update: Update) -> usize {
        self.offsets = update.offsets;
        if let Some((overlay, context)) = update.outbox {
            (self.overlay, self.context) = (overlay, context);
        }
        for id in &update.changed {
            self.remove(id);
        }
        for entry in update.entries {
            self.insert(entry);
        }
        self.compact();
        update.changed.len()
    }

    /// Whether the outbox has operations.
    pub fn has_operations(&self) -> bool {
        !self.overlay.is_empty()
    }

    fn insert(&mut self, prepared: PreparedEntry) {
        let number = self.entries.len();
        for word in prepared.words {
            let numbers = self.words.entry(word.into_boxed_str()).or_default();
            numbers.push(number);
        }
        for key in prepared.values {
            self.values.entry(key).or_default().push(number);
        }
        let row = &prepared.entry.row;
        self.by_id.insert(row.id.clone(), number);
        self.by_key.insert(row.key.to_ascii_uppercase(), number);
        self.entries.push(Some(prepared.entry));
    }

    fn remove(&mut self, id: &str) {
        let Some(number) = self.by_id.remove(id) else {
            return;
        };
        let entry = self.entries.get_mut(number).and_then(Option::take);
        let key = entry.map(|entry| entry.row.key.to_ascii_uppercase());
        // Another issue may have this key now.
        if let Some(key) = key.filter(|key| self.by_key.get(key) == Some(&number)) {
            self.by_key.remove(&key);
        }
    }

    /// Renumbers the entries when more than half of the numbers are unused. It does not read the
    /// issues again, because lists wait for it.
    fn compact(&mut self) {
        if self.entries.len() < 2 * self.by_id.len() + 64 {
            return;
        }
        let mut used = 0;
        let mut numbers: Vec<Option<usize>> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            numbers.push(entry.as_ref().map(|_| used));
            used += usize::from(entry.is_some());
        }
        // Returns whether the number is still used.
        let renumber = |number: &mut usize| match numbers.get(*number) {
            Some(Some(new)) => {
                *number = *new;
                true
            }
            _ => false,
        };
        self.words.retain(|_, list| {
            list.retain_mut(renumber);
            !list.is_empty()
        });
        self.values.retain(|_, list| {
            list.retain_mut(renumber);
            !list.is_empty()
        });
        self.by_id.retain(|_, number| renumber(number));
        self.by_key.retain(|_, number| renumber(number));
        self.entries.retain(Option::is_some);
    }

    /// Number of issues.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are no issues.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The row of the issue with this key or id.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.hashed_row(key).map(|(row, _)| row)
    }

    /// The row of the issue with this key or id, and its hash: equal rows have equal hashes, also
    /// in two indexes of this process.
    pub fn hashed_row(&self, key: &str) -> Option<(&Row, u64)> {
        let number = self.by_id.get(key);
        let number = number.or_else(|| self.by_key.get(&key.to_ascii_uppercase()))?;
        let entry = self.entry(*number)?;
        Some((&entry.row, entry.hash))
    }

    fn entry(&self, number: usize) -> Option<&Entry> {
        self.entries.get(number)?.as_ref()
    }

    fn all(&self) -> EntrySet {
        let mut all = EntrySet::empty(self.entries.len());
        for number in self.by_id.values() {
            all.insert(*number);
        }
        all
    }

    /// The first `limit` issues that a query selects, in its order; without an order, the newest
    /// first. The empty query selects all.
    ///
    /// # Errors
    /// `Jql` with the position of the first character outside of the subset.
    pub fn select(&self, query: &str, now_ms: i64, limit: usize) -> Result<Vec<&Row>> {
        let query = jql::parse(query)?;
        let context = Context {
            now_ms,
            ..self.context.clone()
        };
        let mut found = self.all();
        if let Some(condition) = &query.condition {
            found = self.select_entries(condition, &found, &context);
        }
        if query.order.is_empty() {
            return Ok(self.newest(&found, limit));
        }
        if let Some(rows) = self.sorted_by_time(&query, &found, limit) {
            return Ok(rows);
        }
        let mut rows: Vec<_> = found
            .iter()
            .filter_map(|number| {
                let entry = self.entry(number)?;
                Some((jql::order_of(&query, &entry.issue), &entry.row))
            })
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(rows.into_iter().take(limit).map(|(_, row)| row).collect())
    }

    /// The first `limit` issues, the newest first, whose summary, description or comments contain
    /// all words, matched by prefix. Without a word, all issues.
    pub fn search(&self, words: &str, limit: usize) -> Vec<&Row> {
        let parts = words
            .split(|c: char| !c.is_alphanumeric())
            .filter(|part| !part.is_empty());
        let mut found = self.all();
        for part in parts {
            found.intersect(&self.with_word(&part.to_lowercase(), true));
        }
        self.newest(&found, limit)
    }

    fn newest(&self, found: &EntrySet, limit: usize) -> Vec<&Row> {
        let mut entries: Vec<&Entry> = found
            .iter()
            .filter_map(|number| self.entry(number))
            .collect();
        if limit < entries.len() {
            entries.select_nth_unstable_by(limit, |a, b| {
                let newer = b.row.updated_ms.cmp(&a.row.updated_ms);
                newer.then_with(|| a.order.cmp(&b.order))
            });
            entries.truncate(limit);
        }
        entries.sort_by_cached_key(|entry| newest_first(entry));
        entries.into_iter().map(|entry| &entry.row).collect()
    }

    /// The first `limit` issues in the order of a query that sorts by a time of the rows; `None` for
    /// any other order.
    fn sorted_by_time(&self, query: &Query, found: &EntrySet, limit: usize) -> Option<Vec<&Row>> {
        let [(field, descends)] = query.order.as_slice() else {
            return None;
        };
        let is_update = match field.as_str() {
            "updated" => true,
            "created" => false,
            _ => return None,
        };
        let mut rows: Vec<(i64, i64, &Row)> = found
            .iter()
            .filter_map(|number| {
                let entry = self.entry(number)?;
                let row = &entry.row;
                let time = if is_update {
                    row.updated_ms
                } else {
                    row.created_ms
                };
                // `!` reverses the order of integers.
                Some((if *descends { !time } else { time }, entry.id, row))
            })
            .collect();
        rows.sort_by_key(|(time, id, _)| (*time, *id));
        Some(
            rows.into_iter()
                .take(limit)
                .map(|(_, _, row)| row)
                .collect(),
        )
    }

    /// The entries that contain a word, or with `prefix`, a word with this prefix.
    fn with_word(&self, word: &str, prefix: bool) -> EntrySet {
        let mut found = EntrySet::empty(self.entries.len());
        let mut take = |numbers: &[usize]| numbers.iter().for_each(|number| found.insert(*number));
        if prefix {
            let from = self
                .words
                .range::<str, _>((Bound::Included(word), Bound::Unbounded));
            for (_, numbers) in from.take_while(|(found, _)| found.starts_with(word)) {
                take(numbers);
            }
        } else if let Some(numbers) = self.words.get(word) {
            take(numbers);
        }
        found
    }

    /// The entries in `within` that satisfy a condition.
    fn select_entries(
        &self,
        condition: &Condition,
        within: &EntrySet,
        context: &Context,
    ) -> EntrySet {
        match condition {
            Condition::And(parts) => parts.iter().fold(within.clone(), |found, part| {
                self.select_entries(part, &found, context)
            }),
            Condition::Or(parts) => {
                let mut found = EntrySet::empty(self.entries.len());
                for part in parts {
                    found.union(&self.select_entries(part, within, context));
                }
                found
            }
            Condition::Compare {
                field,
                operator: Operator::Contains,
                values,
            } if TEXT_FIELDS.contains(&field.as_str()) => {
                let mut found = EntrySet::empty(self.entries.len());
                for value in values {
                    found.union(&self.with_text(value));
                }
                found.intersect(within);
                if field == "text" {
                    found
                } else {
                    self.select_by_issue(condition, &found, context)
                }
            }
            other => self
                .select_by_value(other, within, context)
                .unwrap_or_else(|| self.select_by_issue(other, within, context)),
        }
    }

    /// The entries in `within` whose issue satisfies a condition.
    fn select_by_issue(
        &self,
        condition: &Condition,
        within: &EntrySet,
        context: &Context,
    ) -> EntrySet {
        let query = Query {
            condition: Some(condition.clone()),
            order: Vec::new(),
        };
        let mut found = EntrySet::empty(self.entries.len());
        for number in within.iter() {
            let entry = self.entry(number);
            if entry.is_some_and(|entry| jql::matches(&query, &entry.issue, context)) {
                found.insert(number);
            }
        }
        found
    }

    /// The entries in `within` that satisfy a condition on the values of an indexed field; `None`
    /// for any other condition.
    fn select_by_value(
        &self,
        condition: &Condition,
        within: &EntrySet,
        context: &Context,
    ) -> Option<EntrySet> {
        let (Condition::Compare { field, .. } | Condition::Empty { field, .. }) = condition else {
            return None;
        };
        let field = if field == "type" {
            "issuetype"
        } else {
            field.as_str()
        };
        if !INDEXED_FIELDS.contains(&field) {
            return None;
        }
        let mut found = within.clone();
        match condition {
            Condition::Empty { negated: true, .. } => found.intersect(&self.with_value(field, "")),
            Condition::Empty { .. } => found.subtract(&self.with_value(field, "")),
            Condition::Compare {
                operator: Operator::Equal,
                values,
                ..
            } => found.intersect(&self.with_any_value(field, values, context)),
            // As in Jira: an empty field never satisfies `!=`.
            Condition::Compare {
                operator: Operator::NotEqual,
                values,
                ..
            } => {
                found.intersect(&self.with_value(field, ""));
                found.subtract(&self.with_any_value(field, values, context));
            }
            _ => return None,
        }
        Some(found)
    }

    /// The entries that have at least one of these values in an indexed field.
    fn with_any_value(&self, field: &str, values: &[Operand], context: &Context) -> EntrySet {
        let mut found = EntrySet::empty(self.entries.len());
        let texts = values
            .iter()
            .filter_map(|value| jql::wanted_text(value, context));
        // No field has the empty text as a value.
        for text in texts.filter(|text| !text.is_empty()) {
            found.union(&self.with_value(field, text));
        }
        if values.contains(&Operand::Empty) {
            let mut empty = self.all();
            empty.subtract(&self.with_value(field, ""));
            found.union(&empty);
        }
        found
    }

    /// The entries that have a value in an indexed field; with an empty text, any value.
    fn with_value(&self, field: &str, text: &str) -> EntrySet {
        let mut found = EntrySet::empty(self.entries.len());
        let numbers = self.values.get(&value_key(field, text));
        for number in numbers.into_iter().flatten() {
            found.insert(*number);
        }
        found
    }

    /// The entries whose text contains a value of `text ~ …`.
    fn with_text(&self, value: &Operand) -> EntrySet {
        let Operand::Text(wanted) = value else {
            return EntrySet::empty(self.entries.len());
        };
        let wanted = wanted.to_lowercase();
        let parts = wanted.split(|c: char| !c.is_alphanumeric() && c != '*');
        let mut found = self.all();
        for part in parts.filter(|part| !part.is_empty()) {
            match part.strip_suffix('*') {
                Some("") => {}
                Some(prefix) => found.intersect(&self.with_word(prefix, true)),
                None => found.intersect(&self.with_word(part, false)),
            }
        }
        found
    }
}

/// The sort key of an issue without an order: the newest first.
fn newest_first(entry: &Entry) -> (Reverse<i64>, &(String, u64)) {
    (Reverse(entry.row.updated_ms), &entry.order)
}

/// Collects the issues for which a topic has new records.
fn collect(replica: &Replica, topic: &str, after: u64, into: &mut BTreeSet<String>) -> Result<()> {
    let from = ReadFrom::After(weir::ConsequenceOffset(after));
    for page in replica.topic(topic)?.pages(from)? {
        let page = page.map_err(weir::WeirError::from)?;
        for record in &page {
            let record = record.map_err(weir::WeirError::from)?;
            let key = String::from_utf8_lossy(record.key);
            let id = key.split('.').next().unwrap_or_default();
            if !id.is_empty() {
                into.insert(id.to_owned());
            }
        }
    }
    Ok(())
}

fn with_comments(replica: &Replica, location: &Location) -> Result<Option<Value>> {
    let topic = format!("issues.{}", location.project);
    let Some(mut issue) = replica.read::<Value>(&topic, &location.id)? else {
        return Ok(None);
    };
    issue["fields"]["comment"]["comments"] = replica.comments(location)?.into();
    Ok(Some(issue))
}

/// Replaces rich text with plain text, and removes fields that no query uses.
fn strip(issue: &mut Value) {
    let fields = &mut issue["fields"];
    fields["description"] = jql::searched_text(&fields["description"]).into();
    let comments = fields["comment"]["comments"]
        .as_array()
        .into_iter()
        .flatten();
    let comments: Vec<Value> = comments
        .map(|comment| json!({"body": jql::searched_text(&comment["body"])}))
        .collect();
    fields["comment"] = json!({"comments": comments});
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| !UNUSED_FIELDS.contains(&name.as_str()));
    }
    if let Some(issue) = issue.as_object_mut() {
        issue.remove("pending");
    }
}

/// Replaces times with milliseconds, so that a query that compares or sorts them does not parse
/// them.
fn read_times(issue: &mut Value) {
    for name in ["created", "updated", "resolutiondate"] {
        if let Some(field) = issue["fields"].get_mut(name)
            && let Some(time) = field.as_str().and_then(time::parse)
        {
            *field = time.into();
        }
    }
}

/// The different words in the JQL field `text`.
fn words_of(issue: &Value) -> BTreeSet<String> {
    let fields = &issue["fields"];
    let mut words = BTreeSet::new();
    let mut take = |value: &Value| {
        let text = value.as_str().unwrap_or_default().to_lowercase();
        let parts = text.split(|c: char| !c.is_alphanumeric());
        words.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
    };
    take(&fields["summary"]);
    take(&fields["description"]);
    for comment in fields["comment"]["comments"]
        .as_array()
        .into_iter()
        .flatten()
    {
        take(&comment["body"]);
    }
    words
}

/// The key of a value of an indexed field. With an empty text, the key of all entries that have a
/// value there.
fn value_key(field: &str, text: &str) -> Box<str> {
    format!("{field} {}", text.to_lowercase()).into_boxed_str()
}

/// The keys of the values of all indexed fields of an issue.
fn value_keys(issue: &Value) -> Vec<Box<str>> {
    let mut keys = Vec::new();
    for field in INDEXED_FIELDS {
        let texts = jql::texts(issue, field);
        keys.extend(texts.iter().map(|text| value_key(field, text)));
        if !texts.is_empty() {
            keys.push(value_key(field, ""));
        }
    }
    keys
}

fn row(issue: &Value, pending: u32) -> Row {
    let fields = &issue["fields"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let at = |value: &Value| value.as_str().and_then(time::parse).unwrap_or(0);
    let labels = fields["labels"].as_array().into_iter().flatten();
    Row {
        id: text(&issue["id"]),
        key: text(&issue["key"]),
        project: text(&fields["project"]["key"]),
        kind: op::text(&fields["issuetype"]),
        summary: text(&fields["summary"]),
        status: text(&fields["status"]["name"]),
        category: text(&fields["status"]["statusCategory"]["key"]),
        assignee: op::text(&fields["assignee"]),
        priority: op::text(&fields["priority"]),
        labels: labels
            .filter_map(|label| label.as_str().map(str::to_owned))
            .collect(),
        parent: text(&fields["parent"]["key"]),
        updated_ms: at(&fields["updated"]),
        created_ms: at(&fields["created"]),
        due: text(&fields["duedate"]),
        pending,
    }
}
