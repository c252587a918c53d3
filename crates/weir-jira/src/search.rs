//! Requests one page of a query at the site: by token at Jira Cloud, by offset at Data Center.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{Client, Deployment};
use crate::error::Result;

/// A query, with the fields to return for each issue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'a> {
    pub(crate) jql: &'a str,
    /// Names of fields; `*all` for all of them.
    pub(crate) fields: &'a [&'a str],
    /// Limit on the issues of the page; the site may return fewer.
    pub(crate) most: usize,
    /// Ids of issues whose newest version the index must return; Cloud only.
    pub(crate) current: &'a [u64],
    /// Whether the site refuses a query with an unknown field or id, which otherwise selects
    /// nothing; Data Center only, because Cloud always refuses it.
    pub(crate) validate: bool,
}

/// The page that the site sent.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Page {
    pub(crate) issues: Vec<Box<RawValue>>,
    /// The start of the next page; `None`: this is the last page. At Data Center, a decimal offset.
    #[serde(rename = "nextPageToken")]
    pub(crate) next: Option<String>,
    /// Issues of the whole query; Data Center only.
    pub(crate) total: Option<usize>,
}

impl Search<'_> {
    /// Requests the page that begins at `next`; `None`: the first page.
    pub(crate) fn page(&self, client: &Client, next: Option<&str>) -> Result<Page> {
        match client.deployment() {
            Deployment::Cloud => self.by_token(client, next),
            Deployment::DataCenter => self.by_offset(client, next),
        }
    }

    fn by_token(&self, client: &Client, next: Option<&str>) -> Result<Page> {
        let mut body = json!({"jql": self.jql, "fields": self.fields, "maxResults": self.most});
        if let Some(next) = next {
            body["nextPageToken"] = next.into();
        }
        if !self.current.is_empty() {
            body["reconcileIssues"] = self.current.into();
        }
        client.read_by_post("search/jql", &body)
    }

    /// The next page begins after the received rows, because a site may send fewer than requested.
    fn by_offset(&self, client: &Client, next: Option<&str>) -> Result<Page> {
        let start: usize = next.and_then(|next| next.parse().ok()).unwrap_or(0);
        let body: Value = json!({"jql": self.jql, "fields": self.fields, "startAt": start,
            "maxResults": self.most, "validateQuery": self.validate});
        let mut page: Page = client.read_by_post("search", &body)?;
        let end = start + page.issues.len();
        let last = page.issues.is_empty() || page.total.is_some_and(|total| end >= total);
        page.next = (!last).then(|| end.to_string());
        Ok(page)
    }
}
