//! Queries that the site answers. The last answer to each query is stored, for use without a
//! connection.
//!
//! Invariants: a query without a condition is not sent; an answer has only ids, and the issues are
//! read from the replica.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::Client;
use crate::error::{JiraError, Result};
use crate::overlay::Overlay;
use crate::replica::Replica;
use crate::search::Search;

/// Topic with the last answer to each query.
const TOPIC: &str = "queries";
/// Limit on the bytes of a query whose answer is stored.
const QUERY_BYTES_MAX: usize = 200;
/// Number of ids on a page.
const PAGE: usize = 5000;
/// Limit on the pages of one query.
const PAGES_MAX: usize = 1000;

/// An answer of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteAnswer {
    /// Ids of the issues, in the order of the query.
    pub ids: Vec<String>,
    /// Time of the request, in milliseconds since 1970-01-01 UTC.
    pub at_ms: i64,
}

/// Sends a query, and stores its answer.
///
/// # Errors
/// `EmptyQuery` if the query has no condition; `Status` with the message of the site if the site
/// rejects the query.
pub fn fetch(client: &Client, replica: &Replica, jql: &str, now_ms: i64) -> Result<SiteAnswer> {
    let jql = jql.trim();
    let mut words = jql.split_whitespace();
    let mut next_is = |wanted: &str| {
        let start = words.next().and_then(|word| word.get(..wanted.len()));
        start.is_some_and(|start| start.eq_ignore_ascii_case(wanted))
    };
    if jql.is_empty() || (next_is("order") && next_is("by")) {
        return Err(JiraError::EmptyQuery);
    }
    let (mut ids, mut token) = (Vec::new(), None::<String>);
    let (mut seen, mut tokens) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..PAGES_MAX {
        let search = Search {
            jql,
            fields: &["id"],
            most: PAGE,
            current: &[],
            validate: true,
        };
        let page = search.page(client, token.as_deref())?;
        for issue in &page.issues {
            let issue: Value = serde_json::from_str(issue.get())?;
            let id = issue["id"].as_str().unwrap_or_default().to_owned();
            if seen.insert(id.clone()) {
                ids.push(id);
            }
        }
        match page.next {
            None => {
                let at_ms = now_ms;
                let answer = SiteAnswer { ids, at_ms };
                if jql.len() <= QUERY_BYTES_MAX {
                    replica.store(TOPIC, jql, &answer)?;
                }
                return Ok(answer);
            }
            Some(next) if !tokens.insert(next.clone()) => {
                return Err(JiraError::Paging("it repeats a page token"));
            }
            Some(next) => token = Some(next),
        }
    }
    Err(JiraError::Paging("its pages do not end"))
}

/// Sends a query; if the site cannot be reached, returns the last answer. A new answer has `at_ms`
/// equal to `now_ms`.
///
/// # Errors
/// As [`fetch`]; `Transport` if the site cannot be reached and there is no last answer.
pub fn fetch_or_cached(
    client: &Client,
    replica: &Replica,
    jql: &str,
    now_ms: i64,
) -> Result<SiteAnswer> {
    match fetch(client, replica, jql, now_ms) {
        Err(error @ JiraError::Transport { .. }) => replica.read(TOPIC, jql.trim())?.ok_or(error),
        answer => answer,
    }
}

/// The issues of an answer, in its order and with pending edits. Issues that the replica lacks are
/// left out.
pub fn issues(replica: &Replica, answer: &SiteAnswer) -> Result<Vec<Value>> {
    let overlay = Overlay::load(replica)?;
    let mut found = Vec::new();
    for id in &answer.ids {
        if let Some(location) = replica.locate(id)? {
            let topic = format!("issues.{}", location.project);
            if let Some(mut issue) = replica.read::<Value>(&topic, id)? {
                overlay.apply(&mut issue);
                found.push(issue);
            }
        }
    }
    Ok(found)
}
