//! Implements requests of Jira Cloud (REST v3), and those that Data Center answers in the same way.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::faults::Fault;
use super::rows::{keep_fields, requested_fields, select};
use super::version2;
use super::world::{World, link_types, status_of};
use super::writes::{self, FIELD_END, PRIORITIES, Refusal};
use crate::time::{self, MINUTE_MS};
use crate::wire::{Request, Response};

/// Limit on the ids of one `bulkfetch`.
const BULK_MAX: usize = 100;
/// Limit on the worklogs on a page of a feed, and on the ids of one `worklog/list`.
const WORKLOGS_MAX: usize = 1000;
/// Limit on the issues on a page of a search for other fields than ids.
const PAGE_MAX: usize = 100;
/// Limit on the issues on a page of a search for ids.
const ID_PAGE_MAX: usize = 5000;

type Answer = Result<(u16, Value), Refusal>;

fn missing() -> Refusal {
    (
        404,
        "Issue does not exist or you do not have permission to see it.".to_owned(),
    )
}

fn no_part(list: &str) -> Refusal {
    (404, format!("Can not find a {list} for the id."))
}

/// Executes a request.
pub(super) fn route(world: &mut World, request: &Request, fault: Option<&Fault>) -> Response {
    let path = request.path.trim_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let answer = match parts.as_slice() {
        ["rest", "api", "2" | "latest", rest @ ..] if world.options.data_center => {
            let own = version2::serve(world, request, rest, fault);
            let answer = own.unwrap_or_else(|| serve(world, request, rest, fault));
            answer.map(|(status, body)| (status, version2::converted(body)))
        }
        ["rest", "api", "2" | "3", rest @ ..] if !world.options.data_center => {
            serve(world, request, rest, fault)
        }
        _ => Err((404, "no such path".to_owned())),
    };
    let (status, body) = match answer {
        Ok((204, _)) => (204, Vec::new()),
        Ok((status, body)) => (status, body.to_string().into_bytes()),
        Err((status, message)) => {
            let body = match message.split_once(FIELD_END) {
                Some((field, text)) => {
                    json!({"errorMessages": [], "errors": {field: text}, "status": status})
                }
                None => json!({"errorMessages": [message], "errors": {}, "status": status}),
            };
            (status, body.to_string().into_bytes())
        }
    };
    let mut headers = vec![("Content-Type", "application/json;charset=UTF-8".to_owned())];
    if status == 429 {
        // This answer limits only writes to one issue.
        headers.push(("Retry-After", "2".to_owned()));
        headers.push(("RateLimit-Reason", "jira-per-issue-on-write".to_owned()));
    }
    Response {
        status,
        headers,
        body,
    }
}

#[allow(clippy::too_many_lines, reason = "a table of requests")]
fn serve(world: &mut World, request: &Request, path: &[&str], fault: Option<&Fault>) -> Answer {
    let method = request.method.as_str();
    let body = || -> Result<Value, Refusal> {
        serde_json::from_slice(&request.body).map_err(|error| (400, error.to_string()))
    };
    match (method, path) {
        ("GET", ["serverInfo"]) => Ok((
            200,
            json!({
                "baseUrl": "http://127.0.0.1", "version": "1001.0.0-SNAPSHOT", "deploymentType": "Cloud",
                "serverTime": time::format(world.now_ms()),
            }),
        )),
        ("GET", ["myself"]) => {
            let mut me = world.me();
            me["timeZone"] = world.options.time_zone.clone().into();
            Ok((200, me))
        }
        ("GET", ["mypermissions"]) => {
            let names = request
                .argument("permissions")
                .unwrap_or_default()
                .split(',');
            let have = |name: &str| !world.lacks(name);
            let all: Map<String, Value> = names
                .map(|name| {
                    (
                        name.to_owned(),
                        json!({"key": name, "havePermission": have(name)}),
                    )
                })
                .collect();
            Ok((200, json!({"permissions": all})))
        }
        ("GET", ["field"]) => Ok((
            200,
            json!([
                {"id": "summary", "name": "Summary", "custom": false, "schema": {"type": "string"}},
                {"id": "labels", "name": "Labels", "custom": false, "schema": {"type": "array", "items": "string"}},
            ]),
        )),
        ("GET", ["status"]) => Ok((200, json!([status_of(0), status_of(1), status_of(2)]))),
        ("GET", ["priority", "search"]) => Ok((
            200,
            json!({
            "startAt": 0, "maxResults": 50, "total": PRIORITIES.len(), "isLast": true,
            "values": writes::all_of(PRIORITIES, "name")}),
        )),
        ("GET", ["issuetype"]) => Ok((200, world.types.clone().into())),
        ("GET", ["issueLinkType"]) => Ok((200, json!({"issueLinkTypes": link_types()}))),
        ("GET", ["users", "search"]) => {
            let start = request.number("startAt", 0);
            let most = request.number("maxResults", 50).min(1000);
            let page: Vec<&Value> = world.users.iter().skip(start).take(most).collect();
            Ok((200, json!(page)))
        }
        ("GET", ["filter", "favourite"]) => Ok((200, favourites())),
        ("GET", ["issue", "createmeta", project, "issuetypes", rest @ ..]) => {
            createmeta(world, request, project, rest)
        }
        ("POST", ["issueLink"]) => {
            writes::allow(world, "LINK_ISSUES")?;
            writes::link(world, &body()?)?;
            Ok((201, Value::Null))
        }
        ("DELETE", ["issueLink", link]) => {
            writes::allow(world, "LINK_ISSUES")?;
            if writes::unlink(world, link) {
                return Ok((204, Value::Null));
            }
            Err((404, format!("No issue link with id '{link}' exists.")))
        }
        ("GET", ["project", "search"]) => {
            let shown = world.projects.iter().filter(|(id, _)| !world.hides(**id));
            let shown: Vec<Value> = shown.map(|(_, project)| project.clone()).collect();
            let start = request.number("startAt", 0);
            let most = request.number("maxResults", 50).min(50);
            let page: Vec<&Value> = shown.iter().skip(start).take(most).collect();
            let last = start + page.len() >= shown.len();
            Ok((
                200,
                json!({"startAt": start, "maxResults": most, "total": shown.len(),
                "isLast": last, "values": page}),
            ))
        }
        ("POST", ["project"]) => {
            writes::allow(world, "ADMINISTER")?;
            let project = writes::create_project(world, &body()?)?;
            let (id, key) = (&project["id"], &project["key"]);
            let number = id.as_str().and_then(|id| id.parse::<u64>().ok());
            Ok((201, json!({"id": number, "key": key})))
        }
        (_, ["project", name]) => {
            let found = world.project(name).filter(|id| !world.hides(*id));
            let unknown = || (404, format!("No project could be found with key '{name}'."));
            let id = found.ok_or_else(unknown)?;
            match method {
                "PUT" => {
                    writes::allow(world, "ADMINISTER_PROJECTS")?;
                    writes::edit_project(world, id, &body()?)?;
                }
                "DELETE" => {
                    writes::allow(world, "ADMINISTER")?;
                    world.delete_project(id);
                    return Ok((204, Value::Null));
                }
                _ => {}
            }
            Ok((200, world.projects.get(&id).cloned().unwrap_or_default()))
        }
        ("GET" | "POST", ["search"]) => Err((
            410,
            "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API."
                .to_owned(),
        )),
        ("POST", ["search", "jql"]) => search(world, &body()?, fault),
        ("POST", ["search", "approximate-count"]) => {
            let found = select(world, &body()?)?;
            Ok((200, json!({"count": found.len()})))
        }
        ("GET", ["worklog", "updated"]) => {
            Ok((200, feed(world, request, world.changed_worklogs())))
        }
        ("GET", ["worklog", "deleted"]) => {
            Ok((200, feed(world, request, world.deleted_worklogs())))
        }
        ("POST", ["worklog", "list"]) => worklogs(world, &body()?),
        ("POST", ["issue", "bulkfetch"]) => bulk(world, &body()?),
        ("POST", ["issue"]) => {
            writes::allow(world, "CREATE_ISSUES")?;
            let id = writes::create(world, &body()?)?;
            let key = world.issues.get(&id).map(|issue| issue.key.clone());
            let address = format!("/rest/api/3/issue/{id}");
            Ok((
                201,
                json!({"id": id.to_string(), "key": key, "self": address}),
            ))
        }
        (_, ["issue", name, rest @ ..]) => {
            let id = world.find(name).ok_or_else(missing)?;
            if method != "GET" {
                limit(world, id)?;
            }
            issue(world, request, id, rest, fault)
        }
        _ => Err((
            404,
            format!("the simulator has no {method} {}", path.join("/")),
        )),
    }
}

/// The favourite filters of the account.
fn favourites() -> Value {
    let all = [
        (
            "10000",
            "Open bugs",
            "issuetype = Bug AND statusCategory != done ORDER BY updated DESC",
        ),
        ("10001", "Done by key", "status = Done ORDER BY key ASC"),
    ];
    let one = |(id, name, jql)| json!({"id": id, "name": name, "jql": jql, "favourite": true});
    all.into_iter().map(one).collect()
}

/// Rejects writes to an issue beyond the limits of Jira: 20 in 2 s and 100 in 30 s.
fn limit(world: &mut World, id: u64) -> Result<(), Refusal> {
    let now = world.now_ms();
    if !world.options.issue_write_limits {
        return Ok(());
    }
    let Some(issue) = world.issues.get_mut(id) else {
        return Ok(());
    };
    issue.writes.retain(|at| now - at < 30_000);
    let burst = issue.writes.iter().filter(|at| now - **at < 2_000).count();
    if issue.writes.len() >= 100 || burst >= 20 {
        return Err((
            429,
            "Rate limit exceeded for writes to this issue.".to_owned(),
        ));
    }
    issue.writes.push(now);
    Ok(())
}

/// Removes the links of an issue to issues that the account cannot see.
fn remove_hidden_links(world: &World, issue: &mut Value) {
    let is_shown = |link: &Value| {
        let ends = [&link["outwardIssue"]["id"], &link["inwardIssue"]["id"]];
        let mut ids = ends.into_iter().filter_map(Value::as_str);
        ids.all(|id| world.find(id) == world.find_any(id))
    };
    let links = issue.pointer_mut("/fields/issuelinks");
    if let Some(links) = links.and_then(Value::as_array_mut) {
        links.retain(is_shown);
    }
}

#[allow(clippy::too_many_lines, reason = "a table of requests")]
fn issue(
    world: &mut World,
    request: &Request,
    id: u64,
    path: &[&str],
    fault: Option<&Fault>,
) -> Answer {
    let now = world.now_ms();
    let body = || -> Result<Value, Refusal> {
        serde_json::from_slice(&request.body).map_err(|error| (400, error.to_string()))
    };
    let one = world.issues.get(&id).ok_or_else(missing)?;
    match (request.method.as_str(), path) {
        ("GET", []) => {
            let mut found = vec![one.render(false)];
            if let Some(fault) = fault {
                fault.change_issues(&mut found);
            }
            let mut found = found.into_iter().next().ok_or_else(missing)?;
            remove_hidden_links(world, &mut found);
            let fields = request.argument("fields").unwrap_or("*all");
            let names: Vec<&str> = fields.split(',').collect();
            keep_fields(&mut found, &names);
            if request
                .argument("expand")
                .is_some_and(|list| list.contains("changelog"))
            {
                let histories: Vec<&Value> = one.history.iter().rev().take(100).collect();
                found["changelog"] = json!({"startAt": 0, "total": one.history.len(),
                    "maxResults": histories.len(), "histories": histories});
            }
            if let Some(fault) = fault.filter(|fault| fault.name == "conflict") {
                // Another user changes the issue between the read and the write of the client.
                let (field, value) = fault.change_of_others();
                world.set_as(id, &field, value, &world.another());
            }
            Ok((200, found))
        }
        ("PUT", []) => {
            writes::allow(world, "EDIT_ISSUES")?;
            writes::edit(world, id, &body()?)?;
            Ok((204, Value::Null))
        }
        ("DELETE", []) => {
            writes::allow(world, "DELETE_ISSUES")?;
            let subtasks = request.argument("deleteSubtasks") == Some("true");
            writes::delete(world, id, subtasks)?;
            Ok((204, Value::Null))
        }
        ("GET", ["editmeta"]) => {
            let project = one.project.to_string();
            let all = writes::fields_of(world, &project, false, false).into_iter();
            let all =
                all.map(|field| (field["key"].as_str().unwrap_or_default().to_owned(), field));
            Ok((200, json!({"fields": all.collect::<Map<String, Value>>()})))
        }
        ("PUT", ["assignee"]) => {
            writes::allow(world, "ASSIGN_ISSUES")?;
            writes::edit(world, id, &json!({"fields": {"assignee": body()?}}))?;
            Ok((204, Value::Null))
        }
        ("GET", ["transitions"]) => {
            let status = one.fields.get("status").unwrap_or(&Value::Null);
            Ok((200, json!({"transitions": writes::transitions(status)})))
        }
        ("POST", ["transitions"]) => {
            writes::allow(world, "TRANSITION_ISSUES")?;
            writes::transition(world, id, &body()?)?;
            Ok((204, Value::Null))
        }
        ("GET", ["watchers"]) => {
            let watchers: Vec<Value> = one
                .watchers
                .iter()
                .map(|account| json!({"accountId": account}))
                .collect();
            Ok((
                200,
                json!({"watchCount": watchers.len(), "watchers": watchers}),
            ))
        }
        ("POST", ["watchers"]) => {
            let account = body()?.as_str().unwrap_or_default().to_owned();
            watch(world, id, &account, true)
        }
        ("DELETE", ["watchers"]) => {
            let account = request.argument("accountId").unwrap_or_default().to_owned();
            watch(world, id, &account, false)
        }
        ("GET", [list @ ("comment" | "worklog")]) => {
            let comments = *list == "comment";
            let items = one.parts(list);
            let mut start = request.number("startAt", 0);
            let mut most = request.number("maxResults", 100).min(100);
            let mut total = items.len();
            match fault.map(|fault| fault.name.as_str()) {
                Some("short-page") => most = most.div_ceil(2),
                Some("empty-page") => most = 0,
                Some("repeat-page") => start = 0,
                Some("shrink-total") => total = total.saturating_sub(1),
                _ => {}
            }
            let mut items: Vec<&Value> = items.iter().collect();
            if comments && request.argument("orderBy") == Some("-created") {
                items.reverse();
            }
            let page: Vec<&Value> = items.into_iter().skip(start).take(most).collect();
            let name = if comments { "comments" } else { "worklogs" };
            Ok((
                200,
                json!({"startAt": start, "maxResults": most, "total": total, name: page}),
            ))
        }
        ("POST", [list @ ("comment" | "worklog")]) => {
            let right = ["WORK_ON_ISSUES", "ADD_COMMENTS"];
            writes::allow(world, right[usize::from(*list == "comment")])?;
            let given = body()?;
            if *list == "comment" && given["body"]["type"] != "doc" {
                return Err((400, format!("comment{FIELD_END}Comment body is not valid!")));
            }
            if *list == "worklog" && given["timeSpentSeconds"].as_u64().unwrap_or(0) < 60 {
                return Err((
                    400,
                    format!("timeLogged{FIELD_END}Invalid time duration entered."),
                ));
            }
            let comment_id = world.new_id();
            let mut item = world.comment(comment_id, &given["body"], now);
            if let Some(properties) = given.get("properties") {
                item["properties"] = properties.clone();
            }
            if *list == "worklog" {
                item["timeSpentSeconds"] = given["timeSpentSeconds"].clone();
                item["started"] = given["started"].clone();
                item["issueId"] = id.to_string().into();
                item["comment"] = given["comment"].clone();
            }
            if let Some(one) = world.issues.get_mut(id) {
                one.parts_mut(list).push(item.clone());
            }
            world.touch(id, now);
            Ok((201, item))
        }
        ("GET", [list @ ("comment" | "worklog"), item]) => {
            let found = one.parts(list).iter().find(|part| part["id"] == **item);
            Ok((200, found.cloned().ok_or_else(|| no_part(list))?))
        }
        ("PUT", [list @ ("comment" | "worklog"), item]) => {
            let rights = ["EDIT_OWN_WORKLOGS", "EDIT_OWN_COMMENTS"];
            writes::allow(world, rights[usize::from(*list == "comment")])?;
            let given = body()?;
            let one = world.issues.get_mut(id).ok_or_else(missing)?;
            let found = one.parts_mut(list).iter_mut();
            let found = found.into_iter().find(|part| part["id"] == **item);
            let found = found.ok_or_else(|| no_part(list))?;
            let names: &[&str] = match *list {
                "comment" => &["body"],
                _ => &["timeSpentSeconds", "started", "comment"],
            };
            for name in names.iter().filter(|name| given.get(**name).is_some()) {
                found[*name] = given[*name].clone();
            }
            found["updated"] = time::format(now).into();
            let found = found.clone();
            world.touch(id, now);
            Ok((200, found))
        }
        ("DELETE", [list @ ("comment" | "worklog"), item]) => {
            let rights = ["DELETE_OWN_WORKLOGS", "DELETE_OWN_COMMENTS"];
            writes::allow(world, rights[usize::from(*list == "comment")])?;
            if !world.delete_part(id, list, item) {
                return Err(no_part(list));
            }
            world.touch(id, now);
            Ok((204, Value::Null))
        }
        ("GET", ["changelog"]) => Ok((
            200,
            json!({
            "startAt": 0, "maxResults": 100, "total": one.history.len(), "isLast": true,
            "values": one.history}),
        )),
        _ => Err((405, "Method Not Allowed".to_owned())),
    }
}

impl World {
    /// Sets a field as the account would, with an entry in the history.
    pub(super) fn set(&mut self, id: u64, field: &str, value: Value) {
        self.set_as(id, field, value, &self.me());
    }

    /// Sets a field as a user would, with an entry in the history.
    pub(super) fn set_as(&mut self, id: u64, field: &str, value: Value, author: &Value) {
        let now = self.now_ms();
        let entry = self.new_id();
        if let Some(issue) = self.issues.get_mut(id) {
            let to = crate::op::text(&value);
            let from = issue.fields.insert(field.to_owned(), value);
            issue.history.push(
                json!({"id": entry.to_string(), "created": time::format(now), "author": author,
                "items": [{"field": field, "fieldId": field,
                    "fromString": crate::op::text(&from.unwrap_or_default()), "toString": to}]}),
            );
        }
        self.touch(id, now);
    }
}

fn watch(world: &mut World, id: u64, account: &str, on: bool) -> Answer {
    if !world.users.iter().any(|user| user["accountId"] == account) {
        return Err((404, "The user does not exist.".to_owned()));
    }
    let now = world.now_ms();
    let one = world.issues.get_mut(id).ok_or_else(missing)?;
    if on {
        one.watchers.insert(account.to_owned());
    } else {
        one.watchers.remove(account);
    }
    world.touch(id, now);
    Ok((204, Value::Null))
}

/// Types of issues of a project, or the fields of one of them.
fn createmeta(world: &World, request: &Request, project: &str, rest: &[&str]) -> Answer {
    let none = || {
        (
            404,
            "No project could be found with this key or id.".to_owned(),
        )
    };
    let known = world.projects.iter().find(|(id, found)| {
        !world.hides(**id) && (found["key"] == project || found["id"] == project)
    });
    let project = known.ok_or_else(none)?.0.to_string();
    let (name, all) = match rest {
        [] => ("issueTypes", world.types.clone()),
        [kind] => {
            let subtask = world
                .types
                .iter()
                .any(|found| found["id"] == **kind && found["subtask"] == true);
            ("fields", writes::fields_of(world, &project, subtask, true))
        }
        _ => return Err((404, "no such path".to_owned())),
    };
    let start = request.number("startAt", 0);
    let most = request.number("maxResults", 50).min(50);
    let page: Vec<&Value> = all.iter().skip(start).take(most).collect();
    Ok((
        200,
        json!({"startAt": start, "maxResults": most, "total": all.len(), name: page}),
    ))
}

/// A page of a feed of worklogs since a time; changes of the last minute are not in the feed yet.
fn feed(world: &World, request: &Request, mut all: Vec<(u64, i64)>) -> Value {
    let argument = request.argument("since").and_then(|text| text.parse().ok());
    let since: i64 = argument.unwrap_or(0);
    let end = world.now_ms() - MINUTE_MS;
    all.retain(|(_, at)| (since..=end).contains(at));
    all.sort_unstable_by_key(|(id, at)| (*at, *id));
    let most = world.options.page_cap.clamp(1, WORKLOGS_MAX);
    let last = all.len() <= most;
    // A page ends between two times.
    let cut = all.get(most).map(|(_, at)| *at);
    if let Some(cut) = cut.filter(|cut| all.first().is_some_and(|(_, at)| at < cut)) {
        all.retain(|(_, at)| *at < cut);
    }
    let until = if last {
        end.max(since)
    } else {
        all.last().map_or(since, |(_, at)| at + 1)
    };
    let row = |(id, at): &(u64, i64)| json!({"worklogId": id, "updatedTime": at, "properties": []});
    let values: Vec<Value> = all.iter().map(row).collect();
    json!({"values": values, "since": since, "until": until, "lastPage": last})
}

/// The worklogs with these ids that are visible to the account.
fn worklogs(world: &World, body: &Value) -> Answer {
    let ids: BTreeSet<String> = body["ids"]
        .as_array()
        .into_iter()
        .flatten()
        .map(Value::to_string)
        .collect();
    if ids.len() > WORKLOGS_MAX {
        return Err((400, "The maximum number of worklogs is 1000.".to_owned()));
    }
    let shown = world.issues.values();
    let shown = shown.filter(|issue| !world.hides(issue.project));
    let mut found = Vec::new();
    for issue in shown {
        let wanted = |worklog: &&Value| worklog["id"].as_str().is_some_and(|id| ids.contains(id));
        found.extend(issue.worklogs.iter().filter(wanted).cloned());
    }
    Ok((200, found.into()))
}

fn bulk(world: &World, body: &Value) -> Answer {
    let names: Vec<&str> = body["issueIdsOrKeys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if names.len() > BULK_MAX {
        return Err((400, "The maximum number of issues is 100.".to_owned()));
    }
    let mut ids: Vec<u64> = names.iter().filter_map(|name| world.find(name)).collect();
    ids.sort_unstable();
    let names = requested_fields(body);
    let issues: Vec<Value> = ids
        .iter()
        .filter_map(|id| world.issues.get(id))
        .map(|issue| {
            let mut issue = issue.render(true);
            keep_fields(
                &mut issue,
                &names.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            issue
        })
        .collect();
    Ok((200, json!({"issues": issues, "issueErrors": []})))
}

fn search(world: &mut World, body: &Value, fault: Option<&Fault>) -> Answer {
    let fault_name = fault.map_or("", |fault| fault.name.as_str());
    if fault_name == "expired-token" && body.get("nextPageToken").is_some() {
        return Err((400, "The nextPageToken is expired.".to_owned()));
    }
    let rows = select(world, body)?;
    let names = requested_fields(body);
    let only_ids = names.iter().all(|name| name == "id" || name == "key");
    let cap = if only_ids { ID_PAGE_MAX } else { PAGE_MAX };
    let asked = body["maxResults"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(50);
    let mut most = asked.clamp(1, cap).min(world.options.page_cap.max(1));
    if fault_name == "short-page" {
        most = most.div_ceil(2);
    }
    // A token contains the rows that were sent, so a row that moved back is sent again.
    let sent: Vec<u64> = match body["nextPageToken"].as_str() {
        None => Vec::new(),
        Some(token) => world
            .pages
            .get(token)
            .cloned()
            .ok_or((400, "The nextPageToken is not valid.".to_owned()))?,
    };
    let id_of = |row: &Value| {
        row["id"]
            .as_str()
            .and_then(|id| id.parse().ok())
            .unwrap_or(0_u64)
    };
    let stamp = |row: &Value| {
        time::parse(row["fields"]["updated"].as_str().unwrap_or_default()).unwrap_or(0)
    };
    // `sent` contains pairs: an id, then the time of its version.
    let known: BTreeSet<(u64, u64)> = sent
        .chunks(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
        .collect();
    let version = |row: &Value| (id_of(row), u64::try_from(stamp(row)).unwrap_or(0));
    let rest = rows.iter().map(|row| &**row);
    let rest: Vec<&Value> = rest.filter(|row| !known.contains(&version(row))).collect();
    let page: Vec<Value> = rest.iter().take(most).map(|row| (*row).clone()).collect();
    let more = rest.len() > page.len();
    let mut memory = sent;
    for row in &page {
        let (id, at) = version(row);
        memory.extend([id, at]);
    }
    let mut page = page;
    let mut token = None;
    if more {
        world.next_token += 1;
        let name = format!("token-{}", world.next_token);
        world.pages.insert(name.clone(), memory);
        token = Some(name);
    }
    match fault_name {
        "repeat-token" => token = body["nextPageToken"].as_str().map(str::to_owned).or(token),
        "missing-token" => token = None,
        "empty-page" if more => {
            page.clear();
            let before = body["nextPageToken"].as_str();
            let memory = before.and_then(|name| world.pages.get(name).cloned());
            let name = format!("{}-again", before.unwrap_or("start"));
            world.pages.insert(name.clone(), memory.unwrap_or_default());
            token = Some(name);
        }
        _ => {}
    }
    if let Some(fault) = fault {
        fault.change_issues(&mut page);
    }
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let properties = body["properties"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    for row in &mut page {
        if properties && let Some(issue) = world.issues.get(&id_of(row)) {
            row["properties"] = Value::Object(issue.properties.clone());
        }
        keep_fields(row, &asked);
    }
    let mut answer = json!({"issues": page, "isLast": token.is_none()});
    if let Some(token) = token {
        answer["nextPageToken"] = token.into();
    }
    Ok((200, answer))
}
