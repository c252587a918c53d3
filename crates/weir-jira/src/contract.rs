//! Checks of everything that this crate relies on at a Jira site. They run against the simulator in
//! tests, and manually against a real site, to detect changes of Jira.
//!
//! Invariants:
//! - No check changes the site unless a project for writes is given, and every created issue is
//!   deleted.
//! - No query without a condition is sent.

use std::cell::OnceCell;

use serde_json::{Value, json};

use crate::client::{Client, Deployment};
use crate::error::{JiraError, Result};
use crate::op::MARKER;
use crate::time;

/// An id that no issue has.
const NO_ISSUE: &str = "999999999999";

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The site behaves as this crate expects.
    Passed,
    /// The site does not behave as expected; the text describes the difference.
    Failed(String),
    /// The check could not run; the text has the reason.
    Skipped(String),
}

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The expected behavior of the site.
    pub expectation: &'static str,
    /// Whether it holds.
    pub outcome: Outcome,
}

type CheckResult = std::result::Result<(), Outcome>;
type Check = (&'static str, fn(&Site<'_>) -> CheckResult);

/// Runs the checks for the deployment of the client. `project` is the key of the project whose
/// issues are read, by default the first one. With `write`, issues of that project are also
/// created, changed and deleted.
///
/// # Errors
/// The site cannot be reached, rejects the token, or shows no project.
pub fn check(client: &Client, project: Option<&str>, write: bool) -> Result<Vec<Finding>> {
    let myself: Value = client.get("myself")?;
    let project = match project {
        Some(key) => key.to_owned(),
        None => first_project(client)?,
    };
    let site = Site {
        client,
        myself,
        project,
        page: OnceCell::new(),
    };
    let cloud = client.deployment() == Deployment::Cloud;
    let mut checks = BOTH.to_vec();
    checks.extend_from_slice(if cloud { CLOUD } else { DATA_CENTER });
    if cloud && write {
        checks.extend_from_slice(WRITES);
    }
    let found = checks.into_iter().map(|(expectation, check)| Finding {
        expectation,
        outcome: check(&site).err().unwrap_or(Outcome::Passed),
    });
    Ok(found.collect())
}

fn first_project(client: &Client) -> Result<String> {
    let found: Value = match client.deployment() {
        Deployment::Cloud => client.get("project/search?maxResults=1")?,
        Deployment::DataCenter => client.get("project")?,
    };
    let first = match &found {
        Value::Array(all) => all.first(),
        page => page["values"].get(0),
    };
    let key = first.and_then(|project| project["key"].as_str());
    let none = || JiraError::Settings("the site shows no project".to_owned());
    Ok(key.ok_or_else(none)?.to_owned())
}

/// Checks of every site.
const BOTH: &[Check] = &[
    ("serverInfo names the kind of site and its time", server),
    ("myself identifies the account", account),
    ("mypermissions returns each requested right", rights),
    ("field lists fields with id and name", fields),
    ("status lists statuses with a category", statuses),
    (
        "an issue is read by id and by key, with the requested fields",
        one_issue,
    ),
    ("an unknown issue is a 404 with a message", unknown_issue),
    ("comments come in pages by offset, with a total", comments),
    ("a wrong query is a 400 with a message", wrong_query),
];

/// Checks of Jira Cloud.
const CLOUD: &[Check] = &[
    ("projects come in pages by offset", projects),
    ("the search by offset is gone", old_search),
    (
        "a search page has issues, a token or an end, and no total",
        search_page,
    ),
    (
        "pages by token contain each issue once, in ascending order",
        search_pages,
    ),
    ("a search without fields returns only ids", search_default),
    (
        "a date in JQL may be milliseconds since 1970",
        search_by_time,
    ),
    ("JQL compares ids", search_by_id),
    ("a page of ids may be large", search_ids),
    ("bulkfetch omits issues that do not exist", bulk),
    ("the changelog comes in pages", changelog),
    (
        "createmeta names types, and fields with name and schema",
        createmeta,
    ),
    ("editmeta names fields with schema and operations", editmeta),
    (
        "transitions name their target and their fields",
        transitions,
    ),
    ("priorities come in pages", priorities),
    ("issueLinkType names both phrases", link_types),
    ("users/search is a bare list of accounts", users),
];

/// Checks of Jira Data Center.
const DATA_CENTER: &[Check] = &[
    ("projects are one list", project_list),
    ("a search page has issues and a total", offset_page),
    ("pages by offset contain each issue once", offset_pages),
];

/// Checks that create, change and delete issues.
const WRITES: &[Check] = &[(
    "an issue is created, edited, commented, found and deleted",
    created_and_deleted,
)];

/// The site, and what the checks have read from it.
struct Site<'a> {
    client: &'a Client,
    myself: Value,
    project: String,
    /// The newest issues of the project, read once.
    page: OnceCell<Vec<Value>>,
}

fn failed(text: impl Into<String>) -> Outcome {
    Outcome::Failed(text.into())
}

/// Checks that a request succeeds.
fn succeeded<T>(result: Result<T>) -> std::result::Result<T, Outcome> {
    result.map_err(|error| failed(error.to_string()))
}

/// Checks that a request fails with this status and a message.
fn refused(result: Result<Value>, wanted: u16) -> CheckResult {
    match result {
        Err(JiraError::Status {
            status, message, ..
        }) if status == wanted => {
            if message.is_empty() {
                return Err(failed(format!("HTTP {status} without a message")));
            }
            Ok(())
        }
        Err(error) => Err(failed(error.to_string())),
        Ok(_) => Err(failed(format!("it succeeded; expected HTTP {wanted}"))),
    }
}

/// Checks that each path leads to a value that is not null.
fn has(value: &Value, pointers: &[&str]) -> CheckResult {
    let missing = pointers
        .iter()
        .find(|pointer| value.pointer(pointer).is_none_or(Value::is_null));
    match missing {
        Some(pointer) => Err(failed(format!("{pointer} is missing"))),
        None => Ok(()),
    }
}

fn ensure(holds: bool, otherwise: &str) -> CheckResult {
    if holds {
        Ok(())
    } else {
        Err(failed(otherwise))
    }
}

/// The first item of a list that must not be empty.
fn first<'v>(list: &'v Value, what: &str) -> std::result::Result<&'v Value, Outcome> {
    let items = list
        .as_array()
        .ok_or_else(|| failed(format!("{what} is not a list")))?;
    items
        .first()
        .ok_or_else(|| Outcome::Skipped(format!("the site has no {what}")))
}

fn id_of(issue: &Value) -> &str {
    issue["id"].as_str().unwrap_or_default()
}

/// The time at which an issue changed, in milliseconds.
fn updated(issue: &Value) -> std::result::Result<i64, Outcome> {
    let text = issue["fields"]["updated"].as_str().unwrap_or_default();
    time::parse(text).ok_or_else(|| failed(format!("{text:?} is not a time as updated")))
}

impl Site<'_> {
    fn jql(&self, order: &str) -> String {
        format!("project = \"{}\" ORDER BY {order}", self.project)
    }

    fn search(&self, body: &Value) -> Result<Value> {
        match self.client.deployment() {
            Deployment::Cloud => self.client.read_by_post("search/jql", body),
            Deployment::DataCenter => self.client.read_by_post("search", body),
        }
    }

    fn issues(&self) -> std::result::Result<&[Value], Outcome> {
        if self.page.get().is_none() {
            let body = json!({"jql": self.jql("updated DESC"), "fields": ["summary", "updated", "project"],
                "maxResults": 5});
            let found = succeeded(self.search(&body))?;
            let issues = found["issues"].as_array().cloned();
            let issues = issues.ok_or_else(|| failed("the answer has no issues"))?;
            drop(self.page.set(issues));
        }
        let issues = self.page.get().map_or(&[][..], Vec::as_slice);
        if issues.is_empty() {
            let text = format!("project {} has no issue", self.project);
            return Err(Outcome::Skipped(text));
        }
        Ok(issues)
    }

    fn issue(&self) -> std::result::Result<&Value, Outcome> {
        self.issues()?.first().ok_or_else(|| failed("no issue"))
    }
}

fn server(site: &Site<'_>) -> CheckResult {
    let server: Value = succeeded(site.client.get("serverInfo"))?;
    let kind = match site.client.deployment() {
        Deployment::Cloud => "Cloud",
        Deployment::DataCenter => "Server",
    };
    ensure(server["deploymentType"] == kind, "deploymentType differs")?;
    let at = server["serverTime"].as_str().and_then(time::parse);
    ensure(at.is_some(), "serverTime is not a time")
}

fn account(site: &Site<'_>) -> CheckResult {
    let id = match site.client.deployment() {
        Deployment::Cloud => "/accountId",
        Deployment::DataCenter => "/name",
    };
    has(&site.myself, &[id, "/displayName", "/timeZone"])
}

fn rights(site: &Site<'_>) -> CheckResult {
    let path = "mypermissions?permissions=BROWSE_PROJECTS,EDIT_ISSUES";
    let found: Value = succeeded(site.client.get(path))?;
    for right in ["BROWSE_PROJECTS", "EDIT_ISSUES"] {
        let have = &found["permissions"][right]["havePermission"];
        ensure(have.is_boolean(), "havePermission is not a boolean")?;
    }
    Ok(())
}

fn fields(site: &Site<'_>) -> CheckResult {
    let found: Value = succeeded(site.client.get("field"))?;
    has(first(&found, "fields")?, &["/id", "/name"])
}

fn statuses(site: &Site<'_>) -> CheckResult {
    let found: Value = succeeded(site.client.get("status"))?;
    has(
        first(&found, "statuses")?,
        &["/id", "/name", "/statusCategory/key"],
    )
}

fn one_issue(site: &Site<'_>) -> CheckResult {
    let issue = site.issue()?;
    let key = issue["key"].as_str().unwrap_or_default();
    for name in [id_of(issue), key] {
        let path = format!("issue/{name}?fields=summary,updated");
        let found: Value = succeeded(site.client.get(&path))?;
        ensure(found["id"] == issue["id"], "the answer has another issue")?;
        has(&found, &["/fields/summary"])?;
        updated(&found)?;
        let others = found["fields"].get("description").is_some();
        ensure(!others, "it has fields that were not requested")?;
    }
    Ok(())
}

fn unknown_issue(site: &Site<'_>) -> CheckResult {
    refused(site.client.get(&format!("issue/{NO_ISSUE}")), 404)
}

fn comments(site: &Site<'_>) -> CheckResult {
    let path = format!("issue/{}/comment?maxResults=1", id_of(site.issue()?));
    let found: Value = succeeded(site.client.get(&path))?;
    has(&found, &["/startAt", "/maxResults", "/total", "/comments"])?;
    let count = found["comments"].as_array().map_or(0, Vec::len);
    ensure(count <= 1, "more comments than requested")
}

fn wrong_query(site: &Site<'_>) -> CheckResult {
    let jql = format!("project = \"{}\" AND no_such_field = 1", site.project);
    refused(site.search(&json!({"jql": jql, "fields": ["id"]})), 400)
}

fn projects(site: &Site<'_>) -> CheckResult {
    let path = "project/search?startAt=0&maxResults=1";
    let found: Value = succeeded(site.client.get(path))?;
    has(&found, &["/startAt", "/maxResults", "/total", "/isLast"])?;
    let first = first(&found["values"], "projects")?;
    has(first, &["/id", "/key", "/name"])?;
    ensure(first["id"].is_string(), "the id is not a string")
}

fn old_search(site: &Site<'_>) -> CheckResult {
    let body = json!({"jql": site.jql("updated ASC"), "maxResults": 1});
    refused(site.client.read_by_post("search", &body), 410)
}

fn search_page(site: &Site<'_>) -> CheckResult {
    let body = json!({"jql": site.jql("updated ASC"), "fields": ["updated"], "maxResults": 1});
    let found = succeeded(site.search(&body))?;
    has(&found, &["/issues"])?;
    ensure(found.get("total").is_none(), "the page has a total")?;
    let last = found.get("nextPageToken").is_none_or(Value::is_null);
    ensure(
        found["isLast"] != json!(!last),
        "isLast and the token differ",
    )?;
    let issue = first(&found["issues"], "issues")?;
    ensure(issue["id"].is_string(), "the id is not a string")?;
    has(issue, &["/key", "/fields/updated"])
}

/// Reads at most three pages of two issues.
fn search_pages(site: &Site<'_>) -> CheckResult {
    let mut body = json!({"jql": site.jql("updated ASC, key ASC"), "fields": ["updated"],
        "maxResults": 2});
    let (mut seen, mut before) = (Vec::new(), i64::MIN);
    for _ in 0..3 {
        let found = succeeded(site.search(&body))?;
        for issue in found["issues"].as_array().into_iter().flatten() {
            let at = updated(issue)?;
            ensure(at >= before, "a later issue is older")?;
            before = at;
            ensure(!seen.contains(&issue["id"]), "two pages have one issue")?;
            seen.push(issue["id"].clone());
        }
        match found["nextPageToken"].as_str() {
            Some(token) if body["nextPageToken"] == token => {
                return Err(failed("two pages have one token"));
            }
            Some(token) => body["nextPageToken"] = token.into(),
            None => return Ok(()),
        }
    }
    ensure(seen.len() > 2, "the pages are empty")
}

fn search_default(site: &Site<'_>) -> CheckResult {
    let found = succeeded(site.search(&json!({"jql": site.jql("updated ASC"), "maxResults": 1})))?;
    let issue = first(&found["issues"], "issues")?;
    has(issue, &["/id"])?;
    ensure(issue["fields"]["summary"].is_null(), "it has a summary")
}

fn search_by_time(site: &Site<'_>) -> CheckResult {
    let issue = site.issue()?;
    let at = updated(issue)?;
    let jql = |from: i64| {
        format!(
            "project = \"{}\" AND updated >= {from} ORDER BY updated DESC",
            site.project
        )
    };
    let minute = time::MINUTE_MS;
    let found = succeeded(
        site.search(&json!({"jql": jql(at - minute), "fields": ["id"], "maxResults": 50})),
    )?;
    let ids = |found: &Value| -> Vec<Value> {
        let issues = found["issues"].as_array().into_iter().flatten();
        issues.map(|issue| issue["id"].clone()).collect()
    };
    ensure(
        ids(&found).contains(&issue["id"]),
        "the newest issue is missing",
    )?;
    let later = succeeded(
        site.search(&json!({"jql": jql(at + 2 * minute), "fields": ["id"], "maxResults": 50})),
    )?;
    ensure(
        !ids(&later).contains(&issue["id"]),
        "an issue is found after its last change",
    )
}

fn search_by_id(site: &Site<'_>) -> CheckResult {
    let id = id_of(site.issue()?);
    let jql = format!(
        "project = \"{}\" AND id > {id} ORDER BY id ASC",
        site.project
    );
    let found = succeeded(site.search(&json!({"jql": jql, "fields": ["id"], "maxResults": 5})))?;
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let issues = found["issues"].as_array().into_iter().flatten();
    let all = issues
        .into_iter()
        .all(|issue| number(id_of(issue)) > number(id));
    ensure(all, "the answer has an issue with a smaller id")
}

fn search_ids(site: &Site<'_>) -> CheckResult {
    let body = json!({"jql": site.jql("id ASC"), "fields": ["id"], "maxResults": 5000});
    has(&succeeded(site.search(&body))?, &["/issues"])
}

fn bulk(site: &Site<'_>) -> CheckResult {
    let id = id_of(site.issue()?);
    let body = json!({"issueIdsOrKeys": [id, NO_ISSUE], "fields": ["summary"]});
    let found: Value = succeeded(site.client.read_by_post("issue/bulkfetch", &body))?;
    let issues = found["issues"].as_array().cloned().unwrap_or_default();
    let ids: Vec<&str> = issues.iter().map(id_of).collect();
    ensure(ids == [id], "the answer is not the existing issue alone")
}

fn changelog(site: &Site<'_>) -> CheckResult {
    let path = format!("issue/{}/changelog?maxResults=1", id_of(site.issue()?));
    let found: Value = succeeded(site.client.get(&path))?;
    has(&found, &["/startAt", "/total", "/isLast", "/values"])
}

fn createmeta(site: &Site<'_>) -> CheckResult {
    let path = format!("issue/createmeta/{}/issuetypes", site.project);
    let found: Value = succeeded(site.client.get(&path))?;
    has(&found, &["/startAt", "/total"])?;
    let kind = first(&found["issueTypes"], "issueTypes")?;
    has(kind, &["/id", "/name", "/subtask"])?;
    let id = id_of(kind);
    let found: Value = succeeded(site.client.get(&format!("{path}/{id}")))?;
    let field = first(&found["fields"], "fields")?;
    has(field, &["/fieldId", "/name", "/required", "/schema/type"])
}

fn editmeta(site: &Site<'_>) -> CheckResult {
    let path = format!("issue/{}/editmeta", id_of(site.issue()?));
    let found: Value = succeeded(site.client.get(&path))?;
    let fields = found["fields"].as_object();
    let fields = fields.ok_or_else(|| failed("fields is not an object"))?;
    let summary = fields.get("summary");
    let summary =
        summary.ok_or_else(|| Outcome::Skipped("the summary cannot be edited".to_owned()))?;
    has(summary, &["/name", "/schema/type", "/operations"])
}

fn transitions(site: &Site<'_>) -> CheckResult {
    let id = id_of(site.issue()?);
    let path = format!("issue/{id}/transitions?expand=transitions.fields");
    let found: Value = succeeded(site.client.get(&path))?;
    let one = first(&found["transitions"], "transitions")?;
    has(one, &["/id", "/name", "/to/id", "/to/name", "/fields"])
}

fn priorities(site: &Site<'_>) -> CheckResult {
    let found: Value = succeeded(site.client.get("priority/search"))?;
    has(&found, &["/total", "/isLast"])?;
    has(first(&found["values"], "priorities")?, &["/id", "/name"])
}

fn link_types(site: &Site<'_>) -> CheckResult {
    let found: Value = succeeded(site.client.get("issueLinkType"))?;
    let one = first(&found["issueLinkTypes"], "types of links")?;
    has(one, &["/name", "/inward", "/outward"])
}

fn users(site: &Site<'_>) -> CheckResult {
    let found: Value = succeeded(site.client.get("users/search?maxResults=2"))?;
    has(first(&found, "users")?, &["/accountId", "/displayName"])
}

fn project_list(site: &Site<'_>) -> CheckResult {
    let found: Value = succeeded(site.client.get("project"))?;
    has(first(&found, "projects")?, &["/id", "/key", "/name"])
}

fn offset_page(site: &Site<'_>) -> CheckResult {
    let body = json!({"jql": site.jql("updated ASC"), "fields": ["updated"], "maxResults": 1});
    let found = succeeded(site.search(&body))?;
    has(&found, &["/startAt", "/maxResults", "/total", "/issues"])?;
    updated(first(&found["issues"], "issues")?)?;
    Ok(())
}

/// Reads at most three pages of two issues.
fn offset_pages(site: &Site<'_>) -> CheckResult {
    let mut seen: Vec<Value> = Vec::new();
    for _ in 0..3 {
        let body = json!({"jql": site.jql("key ASC"), "fields": ["id"], "maxResults": 2,
            "startAt": seen.len()});
        let found = succeeded(site.search(&body))?;
        let total = found["total"].as_u64().unwrap_or(0);
        for issue in found["issues"].as_array().into_iter().flatten() {
            ensure(!seen.contains(&issue["id"]), "two pages have one issue")?;
            seen.push(issue["id"].clone());
        }
        if u64::try_from(seen.len()).unwrap_or(0) >= total {
            break;
        }
    }
    ensure(!seen.is_empty(), "the pages have no issue")
}

/// Creates an issue, and deletes it even if a check fails.
fn created_and_deleted(site: &Site<'_>) -> CheckResult {
    let path = format!("issue/createmeta/{}/issuetypes", site.project);
    let types: Value = succeeded(site.client.get(&path))?;
    let types = types["issueTypes"].as_array().into_iter().flatten();
    let kind = types
        .into_iter()
        .find(|kind| kind["subtask"] == false)
        .ok_or_else(|| Outcome::Skipped("the project has no type of issue".to_owned()))?;
    let marker = json!([{"key": MARKER, "value": {"id": "contract"}}]);
    let fields = json!({"project": {"key": site.project}, "issuetype": {"id": kind["id"]},
        "summary": "A check of Weir; it deletes this issue"});
    let body = json!({"fields": fields, "properties": marker});
    let new = succeeded(site.client.write("POST", "issue", &body))?;
    let id = id_of(&new).to_owned();
    let outcome = changed(site, &id, &marker);
    let deleted = site
        .client
        .write("DELETE", &format!("issue/{id}"), &Value::Null);
    outcome?;
    succeeded(deleted)?;
    refused(site.client.get(&format!("issue/{id}")), 404)
}

/// Changes a new issue, and finds it by a search.
fn changed(site: &Site<'_>, id: &str, marker: &Value) -> CheckResult {
    let path = format!("issue/{id}");
    let body = json!({"fields": {"summary": "A check of Weir"},
        "update": {"labels": [{"add": "weir-check"}]}});
    succeeded(site.client.write("PUT", &path, &body))?;
    let found: Value = succeeded(site.client.get(&format!("{path}?fields=summary,labels")))?;
    ensure(
        found["fields"]["summary"] == "A check of Weir",
        "the summary differs",
    )?;
    ensure(
        found["fields"]["labels"] == json!(["weir-check"]),
        "the label is missing",
    )?;
    let text = json!({"type": "doc", "version": 1, "content": [
        {"type": "paragraph", "content": [{"type": "text", "text": "a comment"}]}]});
    let comments = format!("{path}/comment");
    let body = json!({"body": text, "properties": marker});
    let comment = succeeded(site.client.write("POST", &comments, &body))?;
    let comment = id_of(&comment).to_owned();
    let read: Value = succeeded(site.client.get(&format!("{comments}?expand=properties")))?;
    let found = first(&read["comments"], "comments")?;
    ensure(
        found["body"]["content"] == text["content"],
        "the comment differs",
    )?;
    ensure(
        found["properties"][0]["key"] == MARKER,
        "the comment has no property",
    )?;
    succeeded(
        site.client
            .write("DELETE", &format!("{comments}/{comment}"), &Value::Null),
    )?;
    // The index may lag, so the query selects this issue by its id.
    let number: u64 = id.parse().map_err(|_| failed("the id is not a number"))?;
    let jql = format!("project = \"{}\" AND id = {id}", site.project);
    let body = json!({"jql": jql, "fields": ["summary"], "properties": [MARKER],
        "reconcileIssues": [number]});
    let found = succeeded(site.search(&body))?;
    let found = first(&found["issues"], "issues")?;
    ensure(id_of(found) == id, "the search found another issue")?;
    ensure(
        found["properties"][MARKER]["id"] == "contract",
        "the search shows no property of the issue",
    )
}
