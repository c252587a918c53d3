//! Metadata of a site: fields with their kinds and values, statuses, people, types of links.
//!
//! The topic `meta` stores all of it, so that edits are checked without a request. If the fields of
//! a project were never requested, the list of all fields of the site is used.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::{JiraError, Result};
use crate::replica::Replica;
use crate::time;

/// Limit on the pages of one list.
const PAGES_MAX: usize = 1000;

/// The kind of the values of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// A line of text.
    Text,
    /// Rich text, edited as org.
    Rich,
    /// A number.
    Number,
    /// A date `YYYY-MM-DD`.
    Date,
    /// A time as Jira writes it.
    Time,
    /// A person.
    Person,
    /// A named object.
    Named,
    /// An option, which has a value instead of a name.
    Choice,
    /// Another issue.
    Issue,
    /// Several values of a kind; added and removed individually.
    List(Box<Self>),
    /// Any other kind, which cannot be edited.
    Other,
}

impl FieldKind {
    /// The name of the kind; that of a list begins with `list of`.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Text => "text",
            Self::Rich => "rich text",
            Self::Number => "number",
            Self::Date => "date",
            Self::Time => "time",
            Self::Person => "person",
            Self::Named => "name",
            Self::Choice => "choice",
            Self::Issue => "issue",
            Self::List(item) => return format!("list of {}", item.name()),
            Self::Other => "other",
        };
        name.to_owned()
    }
}

/// A field that can be set.
#[derive(Clone, Debug, Serialize)]
pub struct FieldInfo {
    /// Id, such as `summary` or `customfield_10010`.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Kind of its values.
    pub kind: FieldKind,
    /// Whether it cannot be empty.
    pub required: bool,
    /// Names of the allowed values; empty: any, or unknown.
    pub allowed: Vec<String>,
    /// The allowed values as Jira sends them.
    #[serde(skip)]
    pub options: Vec<Value>,
    /// Whether a new issue gets a default value.
    #[serde(skip)]
    pub has_default: bool,
}

impl FieldInfo {
    /// Whether a new issue needs a value of this field that only the user can provide.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.required && !self.has_default && self.id != "project" && self.id != "reporter"
    }
}

/// A person of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Person {
    /// Account id.
    pub account: String,
    /// Name for people.
    pub name: String,
    /// E-mail address; empty: hidden.
    pub email: String,
    /// The person as Jira sends it.
    #[serde(skip)]
    pub raw: Value,
}

/// Fields that every site has, with their schemas, used if the fields were not requested.
const DEFAULT_FIELDS: &[(&str, &str, &str)] = &[
    ("summary", "Summary", "string"),
    ("description", "Description", "doc"),
    ("environment", "Environment", "doc"),
    ("assignee", "Assignee", "user"),
    ("reporter", "Reporter", "user"),
    ("priority", "Priority", "priority"),
    ("issuetype", "Issue Type", "issuetype"),
    ("resolution", "Resolution", "resolution"),
    ("duedate", "Due date", "date"),
    ("parent", "Parent", "issuelink"),
    ("labels", "Labels", "array:string"),
    ("components", "Components", "array:component"),
    ("fixVersions", "Fix versions", "array:version"),
    ("versions", "Affects versions", "array:version"),
];

/// Short names of fields.
const SHORT: &[(&str, &str)] = &[
    ("type", "issuetype"),
    ("due", "duedate"),
    ("component", "components"),
    ("fixversion", "fixversions"),
    ("version", "versions"),
    ("epic", "parent"),
    ("label", "labels"),
    ("body", "description"),
];

fn kind(schema: &Value) -> FieldKind {
    let system = schema["system"].as_str().unwrap_or_default();
    let custom = schema["custom"].as_str().unwrap_or_default();
    match schema["type"].as_str().unwrap_or_default() {
        "array" => match named(schema["items"].as_str().unwrap_or_default()) {
            FieldKind::Other => FieldKind::Other,
            item => FieldKind::List(Box::new(item)),
        },
        "string"
            if matches!(system, "description" | "environment") || custom.ends_with(":textarea") =>
        {
            FieldKind::Rich
        }
        name => named(name),
    }
}

fn named(name: &str) -> FieldKind {
    match name {
        "string" => FieldKind::Text,
        "doc" => FieldKind::Rich,
        "number" => FieldKind::Number,
        "date" => FieldKind::Date,
        "datetime" => FieldKind::Time,
        "user" => FieldKind::Person,
        "option" => FieldKind::Choice,
        "issuelink" => FieldKind::Issue,
        "priority" | "issuetype" | "resolution" | "component" | "version" | "securitylevel" => {
            FieldKind::Named
        }
        _ => FieldKind::Other,
    }
}

/// The display name of a value.
pub fn name_of(value: &Value) -> String {
    crate::op::text(value)
}

fn described(raw: &Value, id: Option<&str>) -> FieldInfo {
    let text = |name: &str| raw[name].as_str().map(str::to_owned);
    let id = id.map(str::to_owned);
    let id = id
        .or_else(|| text("fieldId"))
        .or_else(|| text("id"))
        .or_else(|| text("key"));
    let options: Vec<Value> = raw["allowedValues"].as_array().cloned().unwrap_or_default();
    FieldInfo {
        name: text("name").or_else(|| id.clone()).unwrap_or_default(),
        id: id.unwrap_or_default(),
        kind: kind(&raw["schema"]),
        required: raw["required"] == true,
        has_default: raw["hasDefaultValue"] == true,
        allowed: options.iter().map(name_of).collect(),
        options,
    }
}

/// The key of the record with the fields for new issues of a project.
fn create_key(project: &str) -> String {
    format!("create.{project}")
}

fn edit_key(issue: &str) -> String {
    format!("edit.{issue}")
}

fn transitions_key(issue: &Value) -> String {
    let fields = &issue["fields"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (project, kind) = (
        text(&fields["project"]["id"]),
        name_of(&fields["issuetype"]),
    );
    let status = text(&fields["status"]["id"]);
    format!("transitions.{project}.{kind}.{status}")
}

/// Requests the types of issues of a project, and the fields of each type. Sends one request for
/// each type, and one for the list of types. Returns the number of records written.
pub fn fetch_project(client: &Client, replica: &Replica, project: &str) -> Result<u64> {
    let base = format!("issue/createmeta/{project}/issuetypes");
    let mut types = Vec::new();
    for mut kind in pages(client, &base, &["issueTypes", "values"])? {
        let id = kind["id"].as_str().unwrap_or_default().to_owned();
        let fields = pages(client, &format!("{base}/{id}"), &["fields", "values"])?;
        kind["fields"] = fields.into();
        types.push(kind);
    }
    replica.store("meta", &create_key(project), &json!({"types": types}))
}

/// Requests the editable fields of an issue, and the statuses to which it can be moved.
pub fn fetch_issue(client: &Client, replica: &Replica, key: &str) -> Result<()> {
    let issue = replica.issue(key)?;
    let id = issue["id"].as_str().unwrap_or_default();
    let edit: Value = client.get(&format!("issue/{id}/editmeta"))?;
    replica.store("meta", &edit_key(id), &edit["fields"])?;
    let path = format!("issue/{id}/transitions?expand=transitions.fields");
    let found: Value = client.get(&path)?;
    store_transitions(replica, &issue, &found)
}

/// Stores the answer to a request for transitions.
pub(crate) fn store_transitions(replica: &Replica, issue: &Value, found: &Value) -> Result<()> {
    replica.store("meta", &transitions_key(issue), &found["transitions"])?;
    Ok(())
}

/// Reads a list that is paged by offset under one of several names.
fn pages(client: &Client, path: &str, names: &[&str]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for _ in 0..PAGES_MAX {
        let page: Value = client.get(&format!("{path}?startAt={}&maxResults=50", all.len()))?;
        let found = names.iter().find_map(|name| page[*name].as_array());
        let found = found.cloned().unwrap_or_default();
        let count = found.len();
        all.extend(found);
        let total = page["total"]
            .as_u64()
            .and_then(|total| usize::try_from(total).ok());
        if count == 0 || total.is_some_and(|total| all.len() >= total) {
            return Ok(all);
        }
    }
    Err(JiraError::Paging("its pages do not end"))
}

/// The fields of an issue that can be set, in the order of their names.
pub(crate) fn fields_of(replica: &Replica, issue: &Value) -> Result<Vec<FieldInfo>> {
    let id = issue["id"].as_str().unwrap_or_default();
    let edit: Option<Value> = replica.read("meta", &edit_key(id))?;
    if let Some(Value::Object(fields)) = edit {
        let found = fields.iter().map(|(id, raw)| described(raw, Some(id)));
        return Ok(sorted(found.collect()));
    }
    let project = issue["fields"]["project"]["id"]
        .as_str()
        .unwrap_or_default();
    let kind = name_of(&issue["fields"]["issuetype"]);
    fields_for(replica, project, &kind)
}

fn sorted(mut fields: Vec<FieldInfo>) -> Vec<FieldInfo> {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    fields
}

/// The fields of new issues of a type, by the id of the project and the name of the type.
pub fn fields_for(replica: &Replica, project: &str, kind: &str) -> Result<Vec<FieldInfo>> {
    let types = types(replica, project)?;
    let own = types
        .iter()
        .find(|found| name_of(found).eq_ignore_ascii_case(kind));
    if let Some(own) = own {
        let raw = own["fields"].as_array().into_iter().flatten();
        return Ok(sorted(raw.map(|raw| described(raw, None)).collect()));
    }
    let all: Option<Value> = replica.read("meta", "fields")?;
    let all = all.unwrap_or_default();
    let mut found: Vec<FieldInfo> = all
        .as_array()
        .into_iter()
        .flatten()
        .map(|raw| described(raw, None))
        .collect();
    for (id, name, schema) in DEFAULT_FIELDS {
        if !found.iter().any(|field| field.id == *id) {
            let schema = match schema.split_once(':') {
                Some((_, items)) => json!({"type": "array", "items": items}),
                None => json!({"type": schema}),
            };
            found.push(described(
                &json!({"id": id, "name": name, "schema": schema}),
                None,
            ));
        }
    }
    Ok(sorted(found))
}

/// Names of the favourite filters of the account, each with its query in JQL.
pub fn filters(replica: &Replica) -> Result<Vec<(String, String)>> {
    let found: Option<Value> = replica.read("meta", "filters")?;
    let found = found.unwrap_or_default();
    let filters = found.as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(filters
        .filter_map(|filter| Some((text(&filter["name"])?, text(&filter["jql"])?)))
        .collect())
}

/// The values of a field of JQL that lists of the site have, each as the field of an issue; empty if
/// there is no list.
pub(crate) fn listed_values(replica: &Replica, field: &str) -> Result<Vec<Value>> {
    let list = |key: &str| -> Result<Vec<Value>> {
        let found: Option<Value> = replica.read("meta", key)?;
        let found = found.unwrap_or_default();
        Ok(found.as_array().cloned().unwrap_or_default())
    };
    let (name, found) = match field {
        "status" => ("status", list("statuses")?),
        "type" | "issuetype" => ("issuetype", list("types")?),
        "priority" => ("priority", priorities(replica)?),
        "project" => {
            let all = replica.projects()?.into_iter();
            let all = all.map(|(_, value)| value["project"].clone());
            ("project", all.collect())
        }
        _ => return Ok(Vec::new()),
    };
    let as_issue = |value: Value| json!({"fields": {name: value}});
    Ok(found.into_iter().map(as_issue).collect())
}

/// The priorities that new issues of the projects can have, as far as they were requested.
fn priorities(replica: &Replica) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for (project, _) in replica.projects()? {
        for kind in types(replica, &project)? {
            let fields = kind["fields"].as_array().into_iter().flatten();
            let fields = fields.map(|raw| described(raw, None));
            let own = fields.filter(|field| field.id == "priority");
            found.extend(own.flat_map(|field| field.options));
        }
    }
    Ok(found)
}

/// The types of issues of a project, with their fields; empty if they were not requested yet.
pub fn types(replica: &Replica, project: &str) -> Result<Vec<Value>> {
    let found: Option<Value> = replica.read("meta", &create_key(project))?;
    let found = found.unwrap_or_default();
    Ok(found["types"].as_array().cloned().unwrap_or_default())
}

/// The field with this id, name or short name.
pub(crate) fn field<'f>(fields: &'f [FieldInfo], given: &str) -> Result<&'f FieldInfo> {
    let short = SHORT
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(given));
    let wanted = short.map_or(given, |(_, id)| id);
    let found = fields
        .iter()
        .find(|field| field.id.eq_ignore_ascii_case(wanted))
        .or_else(|| {
            fields
                .iter()
                .find(|field| field.name.eq_ignore_ascii_case(wanted))
        });
    found.ok_or_else(|| {
        let known: Vec<&str> = fields.iter().map(|field| field.id.as_str()).collect();
        JiraError::Field {
            field: given.to_owned(),
            what: format!(
                "there is no such field here; there are {}",
                known.join(", ")
            ),
        }
    })
}

/// The required fields of new issues of a type, by the id of the project and the name of the type;
/// empty if there are none, or if they were not requested yet.
pub fn required(replica: &Replica, project: &str, kind: &str) -> Result<Vec<FieldInfo>> {
    if types(replica, project)?.is_empty() {
        return Ok(Vec::new());
    }
    let mut fields = fields_for(replica, project, kind)?;
    fields.retain(|info| info.is_asked_for() && info.id != "summary" && info.id != "issuetype");
    Ok(fields)
}

/// The fields that a transition of an issue to a status sets, as far as known.
pub(crate) fn transition_fields_of(
    replica: &Replica,
    issue: &Value,
    to: &str,
) -> Result<Vec<FieldInfo>> {
    let found: Option<Vec<Value>> = replica.read("meta", &transitions_key(issue))?;
    let mut all = found.unwrap_or_default().into_iter();
    let transition = all.find(|one| name_of(&one["to"]).eq_ignore_ascii_case(to));
    let transition = transition.unwrap_or_default();
    let fields = transition["fields"].as_object().into_iter().flatten();
    let fields = fields.map(|(id, raw)| described(raw, Some(id)));
    Ok(sorted(fields.collect()))
}

/// Names of the statuses to which an issue can be moved, as far as known: those of the last answer
/// for its type and status, otherwise all statuses of the site.
pub(crate) fn transitions_of(replica: &Replica, issue: &Value) -> Result<Vec<String>> {
    let found: Option<Vec<Value>> = replica.read("meta", &transitions_key(issue))?;
    if let Some(found) = found {
        return Ok(found.iter().map(|one| name_of(&one["to"])).collect());
    }
    let all: Option<Vec<Value>> = replica.read("meta", "statuses")?;
    let mut names: Vec<String> = all.unwrap_or_default().iter().map(name_of).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The people of the site.
pub fn people(replica: &Replica) -> Result<Vec<Person>> {
    let myself: Option<Value> = replica.read("meta", "myself")?;
    let users: Option<Vec<Value>> = replica.read("meta", "users")?;
    let mut people: Vec<Person> = Vec::new();
    for raw in myself.into_iter().chain(users.unwrap_or_default()) {
        let text = |name: &str| raw[name].as_str().unwrap_or_default().to_owned();
        let account = text("accountId");
        if account.is_empty() || people.iter().any(|known| known.account == account) {
            continue;
        }
        let raw = json!({"accountId": account, "displayName": text("displayName"), "active": true});
        people.push(Person {
            account,
            name: text("displayName"),
            email: text("emailAddress"),
            raw,
        });
    }
    Ok(people)
}

/// The account of the token.
pub fn myself(replica: &Replica) -> Result<Value> {
    let myself: Option<Value> = replica.read("meta", "myself")?;
    Ok(myself.unwrap_or_default())
}

/// The identity of the account of the token at the site: its id, or at Data Center its user name.
/// Empty before the first pull.
pub fn account(replica: &Replica) -> Result<String> {
    let myself = myself(replica)?;
    let name = myself["accountId"].as_str().or(myself["name"].as_str());
    Ok(name.unwrap_or_default().to_owned())
}

/// The time zone of the account of the token. Before the first pull, and for a zone that is unknown
/// here, it is UTC.
pub(crate) fn zone(replica: &Replica) -> Result<TimeZone> {
    let myself = myself(replica)?;
    let zone = myself["timeZone"].as_str().and_then(time::zone);
    Ok(zone.unwrap_or(TimeZone::UTC))
}

/// The types of links, as Jira sends them: `name`, `inward`, `outward`.
pub fn link_types(replica: &Replica) -> Result<Vec<Value>> {
    let found: Option<Vec<Value>> = replica.read("meta", "linktypes")?;
    Ok(found.unwrap_or_default())
}

/// The phrases of links in both directions, such as `blocks` and `is blocked by`.
pub fn link_phrases(replica: &Replica) -> Result<Vec<String>> {
    let mut phrases = Vec::new();
    for found in link_types(replica)? {
        for name in ["outward", "inward"] {
            phrases.extend(found[name].as_str().map(str::to_owned));
        }
    }
    phrases.sort();
    phrases.dedup();
    Ok(phrases)
}

/// Reads the data that edits need and that rarely changes: people and types of links. Returns the
/// number of records written.
pub(crate) fn fetch_site(client: &Client, replica: &Replica) -> Result<u64> {
    let mut writes = 0;
    let links: Value = client.get("issueLinkType")?;
    writes += replica.store("meta", "linktypes", &links["issueLinkTypes"])?;
    let (mut users, mut seen): (Vec<Value>, BTreeSet<String>) = Default::default();
    for _ in 0..PAGES_MAX {
        let path = format!("users/search?startAt={}&maxResults=1000", users.len());
        // An account may lack the right to list people; then only its own name is known.
        let page: Vec<Value> = match client.get(&path) {
            Err(JiraError::Status { status: 403, .. }) => break,
            page => page?,
        };
        let known = users.len();
        for user in page {
            if seen.insert(user["accountId"].to_string()) {
                users.push(user);
            }
        }
        // The last page, or a site that repeats the same page.
        if users.len() == known {
            break;
        }
    }
    let people = users.iter().filter(|user| user["active"] != false);
    let people: Vec<Value> = people
        .map(|user| {
            json!({"accountId": user["accountId"], "displayName": user["displayName"],
                "emailAddress": user["emailAddress"]})
        })
        .collect();
    writes += replica.store("meta", "users", &people)?;
    Ok(writes)
}
