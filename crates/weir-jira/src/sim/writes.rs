//! Checks and executes writes to issues, and rejects invalid ones.

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::world::{World, link_types, status_of};
use crate::time;

/// Why a request is rejected: status and message. A message about a field starts with its id and
/// [`FIELD_END`].
pub(super) type Refusal = (u16, String);

/// Marks the end of the field id in a message.
pub(super) const FIELD_END: char = '\u{1f}';

/// Names of the priorities; ids count from 1.
pub(super) const PRIORITIES: &[&str] = &["High", "Medium", "Low"];
/// Names of the resolutions; ids count from 1.
pub(super) const RESOLUTIONS: &[&str] = &["Fixed", "Won't do"];
/// Options of the custom field "Team"; ids count from 1.
const TEAMS: &[&str] = &["Red", "Blue"];
/// Limit on the characters of a summary.
const SUMMARY_CHARS_MAX: usize = 255;

/// An error that names a field.
fn field_error(field: &str, text: &str) -> Refusal {
    (400, format!("{field}{FIELD_END}{text}"))
}

/// Fails if the account lacks a right.
pub(super) fn allow(world: &World, right: &str) -> Result<(), Refusal> {
    if world.lacks(right) {
        let text = format!("You do not have the permission {right} for this issue.");
        return Err((403, text));
    }
    Ok(())
}

/// Creates a project. Returns it.
pub(super) fn create_project(world: &mut World, body: &Value) -> Result<Value, Refusal> {
    let key = body["key"].as_str().unwrap_or_default();
    if key.len() < 2
        || !key
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    {
        return Err(field_error(
            "projectKey",
            "Project keys must start with an uppercase letter.",
        ));
    }
    if world.project(key).is_some() {
        let text = "A project with that project key already exists.";
        return Err(field_error("projectKey", text));
    }
    for field in ["name", "projectTypeKey", "leadAccountId"] {
        if body[field].as_str().is_none_or(str::is_empty) {
            return Err(field_error(field, "It is required."));
        }
    }
    let last = world.projects.keys().next_back().copied();
    let id = last.unwrap_or(9_999) + 1;
    let project = json!({"id": id.to_string(), "key": key, "projectTypeKey": body["projectTypeKey"],
        "style": "classic"});
    world.projects.insert(id, project);
    edit_project(world, id, body)?;
    Ok(world.projects.get(&id).cloned().unwrap_or_default())
}

/// Sets fields of a project.
pub(super) fn edit_project(world: &mut World, id: u64, body: &Value) -> Result<(), Refusal> {
    let lead = match body["leadAccountId"].as_str() {
        Some(account) => {
            let found = world.users.iter().find(|user| user["accountId"] == account);
            let unknown = || field_error("projectLead", "The user does not exist.");
            Some(found.cloned().ok_or_else(unknown)?)
        }
        None => None,
    };
    if let Some(project) = world.projects.get_mut(&id) {
        for field in ["name", "description", "url", "assigneeType"] {
            if !body[field].is_null() {
                project[field] = body[field].clone();
            }
        }
        if let Some(lead) = lead {
            project["lead"] = lead;
        }
    }
    Ok(())
}

/// One named object of a list, in the form of field values.
pub(super) fn named(list: &[&str], at: usize, name: &str) -> Value {
    let found = list.get(at).copied().unwrap_or_default();
    json!({"id": (at + 1).to_string(), name: found})
}

/// All objects of a list.
pub(super) fn all_of(list: &[&str], name: &str) -> Vec<Value> {
    (0..list.len()).map(|at| named(list, at, name)).collect()
}

fn choose(list: &[&str], name: &str, given: &Value) -> Option<Value> {
    let at = list.iter().enumerate().position(|(at, found)| {
        given["id"] == (at + 1).to_string().as_str() || given[name] == **found
    });
    at.map(|at| named(list, at, name))
}

/// The fields that an edit or a creation can set.
pub(super) fn fields_of(world: &World, project: &str, subtask: bool, create: bool) -> Vec<Value> {
    let field = |id: &str, name: &str, schema: Value, required: bool, allowed: Vec<Value>| {
        json!({"fieldId": id, "key": id, "name": name, "required": required, "schema": schema,
            "hasDefaultValue": false, "operations": ["set"], "allowedValues": allowed})
    };
    let optional = |id: &str, name: &str, schema: Value| field(id, name, schema, false, Vec::new());
    let system = |kind: &str, name: &str| json!({"type": kind, "system": name});
    let mut all = vec![
        field(
            "summary",
            "Summary",
            system("string", "summary"),
            true,
            Vec::new(),
        ),
        optional(
            "description",
            "Description",
            system("string", "description"),
        ),
        field(
            "priority",
            "Priority",
            system("priority", "priority"),
            false,
            all_of(PRIORITIES, "name"),
        ),
        optional(
            "labels",
            "Labels",
            json!({"type": "array", "items": "string", "system": "labels"}),
        ),
        optional("assignee", "Assignee", system("user", "assignee")),
        optional("duedate", "Due date", system("date", "duedate")),
        field(
            "customfield_10010",
            "Team",
            json!({"type": "option", "custom": "x:select", "customId": 10010}),
            false,
            all_of(TEAMS, "value"),
        ),
        optional(
            "customfield_10011",
            "Points",
            json!({"type": "number", "custom": "x:float", "customId": 10011}),
        ),
        optional(
            "customfield_10012",
            "Starts",
            json!({"type": "datetime", "custom": "x:datetime", "customId": 10012}),
        ),
    ];
    if subtask || !create {
        let schema = system("issuelink", "parent");
        all.push(field(
            "parent",
            "Parent",
            schema,
            subtask && create,
            Vec::new(),
        ));
    }
    if create {
        let types: Vec<Value> = world.types.clone();
        all.push(field(
            "issuetype",
            "Issue Type",
            system("issuetype", "issuetype"),
            true,
            types,
        ));
        let own: Vec<Value> = world
            .projects
            .values()
            .filter(|found| found["id"] == project)
            .cloned()
            .collect();
        all.push(field(
            "project",
            "Project",
            system("project", "project"),
            true,
            own,
        ));
    }
    all
}

/// The new value of a field, or why it is invalid.
fn checked(world: &World, name: &str, value: &Value) -> Result<Value, Refusal> {
    let text = value.as_str().unwrap_or_default();
    match name {
        "summary" => {
            if text.is_empty() {
                return Err(field_error(
                    name,
                    "You must specify a summary of the issue.",
                ));
            }
            if text.contains('\n') || text.chars().count() > SUMMARY_CHARS_MAX {
                let text = "The summary is invalid because it contains newline characters or has \
                    more than 255.";
                return Err(field_error(name, text));
            }
            Ok(value.clone())
        }
        "description" => {
            if !value.is_null() && value["type"] != "doc" {
                return Err(field_error(
                    name,
                    "Operation value must be an Atlassian Document",
                ));
            }
            Ok(value.clone())
        }
        "assignee" | "reporter" => {
            if value["accountId"].is_null() {
                return Ok(Value::Null);
            }
            let mut users = world.users.iter();
            let found = users.find(|user| user["accountId"] == value["accountId"]);
            let found = found.cloned();
            found.ok_or_else(|| field_error(name, "Specify a valid value for the person."))
        }
        "priority" => choose(PRIORITIES, "name", value).ok_or_else(|| {
            field_error(
                name,
                "Specify the Priority (id or name) in the string format",
            )
        }),
        "resolution" => choose(RESOLUTIONS, "name", value)
            .ok_or_else(|| field_error(name, "Specify a valid 'id' or 'name' for Resolution")),
        "customfield_10010" | "customfield_10012" if value.is_null() => Ok(Value::Null),
        "customfield_10010" => choose(TEAMS, "value", value)
            .ok_or_else(|| field_error(name, "Specify a valid 'id' or 'name' for Team")),
        "customfield_10011" if value.is_null() || value.is_number() => Ok(value.clone()),
        "customfield_10011" => Err(field_error(name, "Operation value must be a number")),
        // The site shows a time with the offset of the account.
        "customfield_10012" => match time::parse(text) {
            Some(ms) => Ok(time::format_in(ms, &world.zone).into()),
            None => Err(field_error(name, "Error parsing the date and the time")),
        },
        "duedate" => {
            let valid = time::parse_literal(text, &TimeZone::UTC).is_some() && text.len() == 10;
            if !value.is_null() && !valid {
                return Err(field_error(
                    name,
                    "Error parsing date string: use yyyy-MM-dd",
                ));
            }
            Ok(value.clone())
        }
        "issuetype" => {
            let mut types = world.types.iter();
            let found = types.find(|kind| {
                kind["id"] == value["id"]
                    || (value["id"].is_null() && kind["name"] == value["name"])
            });
            let found = found.cloned();
            found.ok_or_else(|| field_error(name, "Specify a valid issue type"))
        }
        "parent" => {
            let name_of = value["id"].as_str().or_else(|| value["key"].as_str());
            let id = name_of.and_then(|name| world.find(name));
            let parent = id.and_then(|id| world.issues.get(&id));
            let parent = parent.ok_or_else(|| field_error(name, "Could not find valid parent"))?;
            Ok(json!({"id": parent.id.to_string(), "key": parent.key,
                "fields": {"summary": parent.fields["summary"]}}))
        }
        "labels" | "components" | "fixVersions" | "versions" => Ok(value.clone()),
        _ => Err(field_error(
            name,
            &format!(
                "Field '{name}' cannot be set. It is not on the appropriate screen, or unknown."
            ),
        )),
    }
}

/// Sets fields and changes lists: all or none.
pub(super) fn edit(world: &mut World, id: u64, body: &Value) -> Result<(), Refusal> {
    let empty = Map::new();
    let fields = body["fields"].as_object().unwrap_or(&empty);
    let update = body["update"].as_object().unwrap_or(&empty);
    if let Some(both) = fields.keys().find(|name| update.contains_key(*name)) {
        let text = format!("Field '{both}' cannot appear in both 'fields' and 'update'");
        return Err((400, text));
    }
    let mut values = Vec::new();
    for (name, value) in fields {
        values.push((name.clone(), checked(world, name, value)?));
    }
    for (name, steps) in update {
        let mut items = world.list_of(id, name);
        for step in steps.as_array().into_iter().flatten() {
            if let Some(added) = step.get("add").filter(|added| !items.contains(added)) {
                let spaces = |text: &str| text.contains(char::is_whitespace);
                if name == "labels" && added.as_str().is_none_or(spaces) {
                    let text = format!("The label '{added}' contains spaces which is invalid.");
                    return Err(field_error(name, &text));
                }
                items.push(added.clone());
            }
            if let Some(removed) = step.get("remove") {
                items.retain(|item| item != removed);
            }
        }
        values.push((name.clone(), checked(world, name, &items.into())?));
    }
    for (name, value) in values {
        world.set(id, &name, value);
    }
    Ok(())
}

/// Creates an issue; returns its id.
pub(super) fn create(world: &mut World, body: &Value) -> Result<u64, Refusal> {
    let missing = || (400, "fields are missing".to_owned());
    let given = body["fields"].as_object().ok_or_else(missing)?;
    let project = &body["fields"]["project"];
    let known = world.projects.iter().find(|(id, found)| {
        let same = |name: &str| !project[name].is_null() && found[name] == project[name];
        !world.hides(**id) && (same("key") || same("id"))
    });
    let known = known.ok_or_else(|| field_error("project", "valid project is required"))?;
    let project = *known.0;
    let mut fields = Map::new();
    for name in ["summary", "issuetype"] {
        let value = given.get(name).cloned().unwrap_or_default();
        fields.insert(name.to_owned(), checked(world, name, &value)?);
    }
    for (name, value) in given.iter().filter(|(name, _)| *name != "project") {
        fields.insert(name.clone(), checked(world, name, value)?);
    }
    if fields["issuetype"]["subtask"] == true && !fields.contains_key("parent") {
        let text = "Issue type is a sub-task but parent issue key or id not specified.";
        return Err(field_error("parent", text));
    }
    let mut properties = Map::new();
    for property in body["properties"].as_array().into_iter().flatten() {
        let key = property["key"].as_str().unwrap_or_default();
        properties.insert(key.to_owned(), property["value"].clone());
    }
    let now = world.now_ms();
    Ok(world.create(project, &fields, properties, now))
}

/// The transitions from a status: an unfinished issue can move to every other status, a finished
/// issue can only be reopened.
pub(super) fn transitions(status: &Value) -> Vec<Value> {
    let from = (0..3).find(|number| status_of(*number)["id"] == status["id"]);
    let to: &[usize] = match from.unwrap_or(0) {
        0 => &[1, 2],
        1 => &[0, 2],
        _ => &[0],
    };
    let one = |number: &usize| {
        let mut fields = Map::new();
        if *number == 2 {
            let field = json!({"required": false, "name": "Resolution", "key": "resolution",
                "schema": {"type": "resolution", "system": "resolution"}, "operations": ["set"],
                "allowedValues": all_of(RESOLUTIONS, "name")});
            fields.insert("resolution".to_owned(), field);
        }
        json!({"id": (number + 11).to_string(), "name": status_of(*number)["name"],
            "to": status_of(*number), "hasScreen": *number == 2, "isAvailable": true,
            "fields": fields})
    };
    to.iter().map(one).collect()
}

/// Executes a transition.
pub(super) fn transition(world: &mut World, id: u64, body: &Value) -> Result<(), Refusal> {
    let status = world
        .issues
        .get(&id)
        .and_then(|issue| issue.fields.get("status"));
    let all = transitions(status.unwrap_or(&Value::Null));
    let wanted = &body["transition"]["id"];
    let chosen = all.iter().find(|one| one["id"] == *wanted);
    let invalid = || {
        (
            400,
            format!("Transition id {wanted} is not valid for this issue."),
        )
    };
    let chosen = chosen.ok_or_else(invalid)?;
    let mut values = vec![("status".to_owned(), chosen["to"].clone())];
    for (name, value) in body["fields"].as_object().into_iter().flatten() {
        if chosen["fields"].get(name).is_none() {
            let text =
                format!("Field '{name}' cannot be set. It is not on the appropriate screen.");
            return Err(field_error(name, &text));
        }
        values.push((name.clone(), checked(world, name, value)?));
    }
    for (name, value) in values {
        world.set(id, &name, value);
    }
    Ok(())
}

/// Links two issues if they are not linked yet.
pub(super) fn link(world: &mut World, body: &Value) -> Result<(), Refusal> {
    let kinds = link_types();
    let kind = kinds
        .iter()
        .find(|kind| kind["name"] == body["type"]["name"]);
    let kind = kind.ok_or((404, "No issue link type with this name found.".to_owned()))?;
    let end = |name: &str| -> Result<(u64, Value), Refusal> {
        let wanted = &body[name];
        let found = wanted["id"].as_str().or_else(|| wanted["key"].as_str());
        let found = found.and_then(|name| world.find(name));
        let issue = found.and_then(|id| world.issues.get(&id));
        let issue = issue.ok_or((404, "The issue no longer exists.".to_owned()))?;
        let shown = json!({"id": issue.id.to_string(), "key": issue.key});
        Ok((issue.id, shown))
    };
    let ((inward, from), (outward, to)) = (end("inwardIssue")?, end("outwardIssue")?);
    let same = |link: &Value| {
        link["type"]["name"] == kind["name"] && link["outwardIssue"]["id"] == to["id"]
    };
    if world.list_of(inward, "issuelinks").iter().any(same) {
        return Ok(());
    }
    let id = world.new_id().to_string();
    for (issue, name, other) in [(inward, "outwardIssue", to), (outward, "inwardIssue", from)] {
        let mut links = world.list_of(issue, "issuelinks");
        links.push(json!({"id": id, "type": kind, name: other}));
        world.set(issue, "issuelinks", links.into());
    }
    Ok(())
}

/// Removes a link from both ends. Returns whether it existed.
pub(super) fn unlink(world: &mut World, link: &str) -> bool {
    let has = |issue: &super::world::Issue| {
        let links = issue.fields.get("issuelinks").and_then(Value::as_array);
        links.is_some_and(|links| links.iter().any(|found| found["id"] == link))
    };
    let ends: Vec<u64> = world
        .issues
        .values()
        .filter(|issue| has(issue))
        .map(|issue| issue.id)
        .collect();
    for id in &ends {
        let mut links = world.list_of(*id, "issuelinks");
        links.retain(|found| found["id"] != link);
        world.set(*id, "issuelinks", links.into());
    }
    !ends.is_empty()
}

/// Deletes an issue; its subtasks are deleted only with `subtasks`.
pub(super) fn delete(world: &mut World, id: u64, subtasks: bool) -> Result<(), Refusal> {
    let name = id.to_string();
    let own = world.issues.values().filter(|issue| {
        issue
            .fields
            .get("parent")
            .is_some_and(|parent| parent["id"] == name.as_str())
    });
    let own: Vec<u64> = own.map(|issue| issue.id).collect();
    if !own.is_empty() && !subtasks {
        let text = format!(
            "The issue has {} sub-tasks: set deleteSubtasks to true.",
            own.len()
        );
        return Err((400, text));
    }
    for id in own.into_iter().chain([id]) {
        for link in world.list_of(id, "issuelinks") {
            unlink(world, link["id"].as_str().unwrap_or_default());
        }
        world.delete(id);
    }
    Ok(())
}
