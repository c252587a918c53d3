//! The issues of a replica in memory, for lists that answer while one types.

use std::collections::HashMap;

use serde_json::Value;
use weir_jira::jql::{self, Context};
use weir_jira::replica::Replica;
use weir_jira::{Result, offline, time};

/// What a list shows of an issue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) project: String,
    pub(crate) kind: String,
    pub(crate) summary: String,
    pub(crate) status: String,
    pub(crate) category: String,
    pub(crate) assignee: String,
    pub(crate) priority: String,
    pub(crate) labels: String,
    pub(crate) parent: String,
    pub(crate) updated_ms: i64,
    pub(crate) due: String,
    pub(crate) pending: u32,
}

impl Row {
    fn of(issue: &Value) -> Self {
        let fields = &issue["fields"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = fields["labels"].as_array().into_iter().flatten();
        let labels: Vec<&str> = labels.filter_map(Value::as_str).collect();
        Self {
            id: text(&issue["id"]),
            key: text(&issue["key"]),
            project: text(&fields["project"]["key"]),
            kind: text(&fields["issuetype"]["name"]),
            summary: text(&fields["summary"]),
            status: text(&fields["status"]["name"]),
            category: text(&fields["status"]["statusCategory"]["key"]),
            assignee: text(&fields["assignee"]["displayName"]),
            priority: text(&fields["priority"]["name"]),
            labels: labels.join(" "),
            parent: text(&fields["parent"]["key"]),
            updated_ms: time::parse(fields["updated"].as_str().unwrap_or_default()).unwrap_or(0),
            due: text(&fields["duedate"]),
            pending: 0,
        }
    }
}

/// The issues, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Index {
    issues: Vec<Value>,
    rows: Vec<Row>,
    by_key: HashMap<String, usize>,
    me: String,
}

impl Index {
    /// Reads all issues.
    pub(crate) fn load(replica: &Replica) -> Result<Self> {
        let mut index = Self::default();
        index.refresh(replica)?;
        Ok(index)
    }

    /// Reads what changed. Returns how many rows there are more, or were changed.
    pub(crate) fn refresh(&mut self, replica: &Replica) -> Result<usize> {
        let before: HashMap<String, i64> = self
            .rows
            .iter()
            .map(|row| (row.id.clone(), row.updated_ms))
            .collect();
        let myself: Option<Value> = replica.read("meta", "myself")?;
        let me = myself.and_then(|myself| myself["accountId"].as_str().map(str::to_owned));
        self.me = me.unwrap_or_default();
        self.issues = offline::select(replica, "", 0)?;
        self.rows = self.issues.iter().map(Row::of).collect();
        let keys = self.rows.iter().enumerate();
        self.by_key = keys.map(|(at, row)| (row.key.clone(), at)).collect();
        let rows = self.rows.iter();
        Ok(rows
            .filter(|row| before.get(&row.id) != Some(&row.updated_ms))
            .count())
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn row(&self, key: &str) -> Option<&Row> {
        self.by_key.get(key).and_then(|at| self.rows.get(*at))
    }

    /// The issues that a query selects, in its order; the empty query selects all.
    pub(crate) fn select(&self, query: &str, now_ms: i64) -> Result<Vec<&Row>> {
        let query = jql::parse(query)?;
        let context = Context {
            me: self.me.clone(),
            now_ms,
            offset_minutes: 0,
        };
        let issues = self.issues.iter();
        let mut found: Vec<&Value> = issues
            .filter(|issue| jql::matches(&query, issue, &context))
            .collect();
        if !query.order.is_empty() {
            jql::sort(&query, &mut found);
        }
        let key = |issue: &Value| self.row(issue["key"].as_str().unwrap_or_default());
        Ok(found.into_iter().filter_map(key).collect())
    }

    /// The issues in which all words occur, by their beginnings.
    pub(crate) fn search(&self, words: &str, now_ms: i64) -> Result<Vec<&Row>> {
        let parts = words.split(|c: char| !c.is_alphanumeric());
        let parts = parts.filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(|part| format!("{part}*")).collect();
        if parts.is_empty() {
            return self.select("", now_ms);
        }
        let query = format!("text ~ {}", offline::quoted(&parts.join(" ")));
        self.select(&query, now_ms)
    }
}
