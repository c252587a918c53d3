//! `weir jira project`: lists projects of the replica; creates, edits and deletes them at the site.

use std::borrow::Cow;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;
use weir_jira::JiraError;
use weir_jira::client::Client;
use weir_jira::project::{self, NewProject};
use weir_jira::replica::Replica;

use super::edit::assignment;
use super::{client, failed, replica, select_site};
use crate::caller::Caller;
use crate::confirm::confirm;
use crate::output::{Cell, Field, Output, Shape, field, wide};
use crate::place::Access;
use crate::report::note;

/// Fields of a project.
const FIELDS: &[Field] = &[
    field("key", "text", "key of the project"),
    field("name", "text", "name of the project"),
    field("visible", "flag", "whether the account can see the project"),
    field("lead", "text", "name of the project lead, null: unknown"),
    wide("type", "text", "type: software, business or service_desk"),
    wide("id", "text", "id of the project at the site"),
];

#[derive(Debug, Args)]
pub(super) struct ProjectArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the projects of the replica
    Ls(LsArgs),
    /// Create a project at the site
    Create(CreateArgs),
    /// Set fields of a project at the site
    Set(EditArgs),
    /// Delete a project with its issues at the site
    Rm(DeleteArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir jira project ls
  weir jira project ls -o json")]
struct LsArgs {}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The request is sent at once, not stored in the outbox. After a lost connection, the command checks
whether the site has a project with this key, so that no project is created twice.

Examples:
  weir jira project create NEW 'The new one'
  weir jira project create NEW 'The new one' --type business --lead 'User 2'")]
struct CreateArgs {
    /// Key: 2 to 10 letters and digits, a letter first
    key: String,
    /// Name of the project
    name: String,
    /// Type of the project: software, business or `service_desk`
    #[arg(long = "type", default_value = "software", value_name = "TYPE")]
    kind: String,
    /// Project lead: `me`, a name, an e-mail address or an account id
    #[arg(long, default_value = "me", value_name = "WHO")]
    lead: String,
    /// Key of a project template [else the default of the site for the type]
    #[arg(long, value_name = "KEY")]
    template: Option<String>,
    /// Description of the project
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The request is sent at once, not stored in the outbox. The fields are name, description, url, lead (a
person), and assignee, which is the assignee of new issues (lead or none).

Examples:
  weir jira project set AA name='Another name' lead=me
  weir jira project set AA assignee=lead")]
struct EditArgs {
    /// Key of the project
    key: String,
    /// Fields with their new values
    #[arg(required = true, value_name = "FIELD=VALUE", value_parser = assignment)]
    fields: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
The request is sent at once, not stored in the outbox. The site keeps a deleted project in its trash
for 60 days. Its issues remain in the replica; `weir jira pull --census --purge-lost` removes them.

Examples:
  weir jira project rm BB
  weir jira project rm BB --yes -o json")]
struct DeleteArgs {
    /// Key of the project
    key: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// Runs `weir jira project`.
pub(super) fn run(
    caller: &Caller,
    named: Option<&str>,
    args: &ProjectArgs,
) -> anyhow::Result<ExitCode> {
    let shape = match &args.verb {
        Verb::Ls(_) => Shape::List,
        _ => Shape::One,
    };
    let Some(mut out) = caller.style.open(shape, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (name, site) = select_site(named)?;
    if let Verb::Ls(LsArgs {}) = &args.verb {
        let replica = replica(caller, Access::Read, &name)?;
        let all = replica.projects();
        let all = all.map_err(|error| failed("cannot list projects", &error))?;
        for (_, value) in &all {
            row(&mut out, &value["project"], value["visible"] == true)?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let (what, key) = match &args.verb {
        Verb::Create(own) => ("create", &own.key),
        Verb::Set(own) => ("edit", &own.key),
        Verb::Rm(own) => ("delete", &own.key),
        Verb::Ls(_) => unreachable!("handled above"),
    };
    if let Verb::Rm(own) = &args.verb
        && !own.yes
    {
        confirm("project", key)?;
    }
    let client = client(caller, &name, &site)?;
    let replica = replica(caller, Access::Write, &name)?;
    let done = send(&client, &replica, &args.verb);
    let project = done.map_err(|error| failed(&format!("cannot {what} project {key}"), &error))?;
    match project {
        Some((project, visible)) => row(&mut out, &project, visible)?,
        None => note(caller.quiet, &format!("there was no project {key}")),
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a change. Returns the project, and whether the site shows it.
fn send(
    client: &Client,
    replica: &Replica,
    verb: &Verb,
) -> Result<Option<(Value, bool)>, JiraError> {
    match verb {
        Verb::Ls(_) => Ok(None),
        Verb::Create(own) => {
            let new = NewProject {
                key: own.key.clone(),
                name: own.name.clone(),
                kind: own.kind.clone(),
                lead: own.lead.clone(),
                template: own.template.clone().unwrap_or_default(),
                description: own.description.clone().unwrap_or_default(),
            };
            Ok(Some((project::create(client, replica, &new)?, true)))
        }
        Verb::Set(own) => {
            let project = project::edit(client, replica, &own.key, &own.fields)?;
            Ok(Some((project, true)))
        }
        Verb::Rm(own) => {
            project::delete(client, replica, &own.key)?;
            let mut all = replica.projects()?.into_iter();
            let key = own.key.to_uppercase();
            let held = all.find(|(_, value)| value["project"]["key"] == key.as_str());
            Ok(held.map(|(_, value)| (value["project"].clone(), false)))
        }
    }
}

fn row(out: &mut Output, project: &Value, visible: bool) -> anyhow::Result<()> {
    let text = |value: &Value| match value.as_str() {
        Some(text) => Cell::Text(Cow::Owned(text.to_owned())),
        None => Cell::Nothing,
    };
    out.row(&[
        text(&project["key"]),
        text(&project["name"]),
        Cell::Flag(visible),
        text(&project["lead"]["displayName"]),
        text(&project["projectTypeKey"]),
        text(&project["id"]),
    ])
}
