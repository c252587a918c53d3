//! Creates, edits and deletes projects. Unlike changes of issues, these changes are sent
//! immediately.
//!
//! Invariants:
//! - No project is created twice: after a lost connection, the project is requested by its key.
//! - The issues of a deleted project stay in the replica until a census with `purge_lost` removes
//!   them; the project is marked as not visible.

use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::error::{JiraError, Result};
use crate::meta;
use crate::outbox::Assignments;
use crate::replica::Replica;
use crate::values;

/// Limit on the characters of a key.
const KEY_CHARS_MAX: usize = 10;
/// Limit on the characters of a name.
const NAME_CHARS_MAX: usize = 80;
/// Types of projects.
const KINDS: &[&str] = &["software", "business", "service_desk"];
/// Fields that can be edited.
const FIELDS: &[&str] = &["name", "description", "url", "lead", "assignee"];

/// A project to create.
#[derive(Clone, Debug, Default)]
pub struct NewProject {
    /// Key: 2 to 10 letters and digits, a letter first.
    pub key: String,
    /// Name: 1 to 80 characters.
    pub name: String,
    /// `software`, `business` or `service_desk`; empty: `software`.
    pub kind: String,
    /// Person who leads the project; empty: the account of the token.
    pub lead: String,
    /// Key of a template; empty: the default template of the site for the type.
    pub template: String,
    /// Description; empty: none.
    pub description: String,
}

/// Creates a project, and reads its types and fields. Returns the project as the site sends it.
///
/// # Errors
/// `Field` names an invalid value, before a request is sent.
pub fn create(client: &Client, replica: &Replica, new: &NewProject) -> Result<Value> {
    client.check_writable()?;
    let key = checked_key(&new.key)?;
    let name = checked_name(&new.name)?;
    let kind = Some(new.kind.as_str()).filter(|kind| !kind.is_empty());
    let kind = kind.unwrap_or("software");
    if !KINDS.contains(&kind) {
        let what = format!("{kind:?} is not a type; choose from {}", KINDS.join(", "));
        return Err(field_error("type", what));
    }
    let lead = if new.lead.is_empty() { "me" } else { &new.lead };
    let mut body = json!({"key": key, "name": name, "projectTypeKey": kind,
        "leadAccountId": account(replica, "lead", lead)?, "assigneeType": "UNASSIGNED"});
    for (field, text) in [
        ("projectTemplateKey", &new.template),
        ("description", &new.description),
    ] {
        if !text.is_empty() {
            body[field] = text.as_str().into();
        }
    }
    match client.write("POST", "project", &body) {
        Err(error) if error.is_unknown() => {
            let found = read_project(client, &key)?;
            if found.is_none_or(|project| project["name"] != name) {
                return Err(error);
            }
        }
        answer => drop(answer?),
    }
    let project = store_project(client, replica, &key)?;
    if let Some(id) = project["id"].as_str() {
        meta::fetch_project(client, replica, id)?;
    }
    Ok(project)
}

/// Sets fields of a project: `name`, `description`, `url`, `lead` (a person), `assignee` of new
/// issues (`lead` or `none`). Returns the project as the site sends it.
///
/// # Errors
/// `Field` names an invalid value, before a request is sent.
pub fn edit(
    client: &Client,
    replica: &Replica,
    key: &str,
    assignments: &Assignments,
) -> Result<Value> {
    client.check_writable()?;
    let key = checked_key(key)?;
    let mut body = Map::new();
    for (field, text) in assignments {
        let (field, text) = (field.to_lowercase(), text.as_str());
        let (name, value) = match field.as_str() {
            "name" => ("name", checked_name(text)?.into()),
            "description" => ("description", text.into()),
            "url" => ("url", text.into()),
            "lead" => ("leadAccountId", account(replica, "lead", text)?),
            "assignee" if text == "lead" => ("assigneeType", "PROJECT_LEAD".into()),
            "assignee" if text == "none" => ("assigneeType", "UNASSIGNED".into()),
            "assignee" => return Err(field_error("assignee", "it is `lead` or `none`")),
            _ => {
                let what = format!(
                    "a project has no such field; choose from {}",
                    FIELDS.join(", ")
                );
                return Err(field_error(&field, what));
            }
        };
        body.insert(name.to_owned(), value);
    }
    // The request is idempotent, so the caller may repeat it.
    client.write("PUT", &format!("project/{key}"), &body.into())?;
    store_project(client, replica, &key)
}

/// Deletes a project with its issues; the site keeps it in its trash for 60 days. Returns whether
/// the project existed.
pub fn delete(client: &Client, replica: &Replica, key: &str) -> Result<bool> {
    client.check_writable()?;
    let key = checked_key(key)?;
    let path = format!("project/{key}?enableUndo=true");
    let found = match client.write("DELETE", &path, &Value::Null) {
        Ok(_) => true,
        Err(JiraError::Status { status: 404, .. }) => false,
        Err(error) if error.is_unknown() => {
            if read_project(client, &key)?.is_some() {
                return Err(error);
            }
            true
        }
        Err(error) => return Err(error),
    };
    for (id, mut value) in replica.projects()? {
        if value["project"]["key"] == key.as_str() {
            value["visible"] = false.into();
            replica.store("projects", &id, &value)?;
        }
    }
    Ok(found)
}

fn field_error(field: &str, what: impl Into<String>) -> JiraError {
    JiraError::Field {
        field: field.to_owned(),
        what: what.into(),
    }
}

fn checked_key(key: &str) -> Result<String> {
    let key = key.trim().to_uppercase();
    let is_valid = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let fits = (2..=KEY_CHARS_MAX).contains(&key.len()) && key.chars().all(is_valid);
    if !fits || !key.starts_with(|c: char| c.is_ascii_uppercase()) {
        let what = format!("a key has 2 to {KEY_CHARS_MAX} letters and digits, a letter first");
        return Err(field_error("key", what));
    }
    Ok(key)
}

fn checked_name(name: &str) -> Result<&str> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        return Err(field_error(
            "name",
            format!("it has 1 to {NAME_CHARS_MAX} characters"),
        ));
    }
    Ok(name)
}

fn account(replica: &Replica, field: &str, text: &str) -> Result<Value> {
    let person = values::person(replica, text).map_err(|what| field_error(field, what))?;
    if person.is_null() {
        return Err(field_error(field, "a project has a lead"));
    }
    Ok(person["accountId"].clone())
}

/// The project as the site sends it; `None` if it does not exist.
fn read_project(client: &Client, key: &str) -> Result<Option<Value>> {
    match client.get(&format!("project/{key}")) {
        Err(JiraError::Status { status: 404, .. }) => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Reads a project into the replica.
fn store_project(client: &Client, replica: &Replica, key: &str) -> Result<Value> {
    let project: Value = client.get(&format!("project/{key}"))?;
    let id = project["id"].as_str().unwrap_or_default().to_owned();
    replica.store(
        "projects",
        &id,
        &json!({"project": project, "visible": true}),
    )?;
    Ok(project)
}
