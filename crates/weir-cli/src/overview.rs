//! The help of `weir` itself: its commands in groups.
//!
//! Invariant: each command is in exactly one group; a test compares the groups with the grammar.

use std::fmt::Write as _;

use clap::Command;

/// The groups, each with its commands in the order of the help.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Records",
        &[
            "put", "get", "tail", "query", "delete", "txn", "import", "export",
        ],
    ),
    ("Topics", &["topic", "group", "program"]),
    ("Servers", &["serve", "cluster", "token", "cert"]),
    (
        "Care of a store",
        &[
            "status", "doctor", "verify", "backup", "restore", "repair", "compact",
        ],
    ),
    ("Settings", &["context", "config", "completion", "man"]),
    ("Jira", &["jira", "jira-sim"]),
    (
        "Demonstrations and measurements",
        &["demo", "bench", "lab", "psyc", "notes-sim"],
    ),
    ("About weir", &["version", "help"]),
];

/// The verbs of `weir jira` in its short help, which has too few lines for one line each.
const JIRA: &[(&str, &[&str])] = &[
    (
        "Site",
        &["login", "pull", "push", "watch", "outbox", "resolve"],
    ),
    ("Read", &["list", "show", "search", "fields"]),
    (
        "Change",
        &[
            "create",
            "clone",
            "edit",
            "move",
            "assign",
            "label",
            "link",
            "comment",
            "worklog",
            "watch-issue",
            "delete",
        ],
    ),
    ("Projects", &["project"]),
];

/// `weir jira`, whose short help names its verbs in groups; the long help explains them.
pub(crate) fn short_verbs(jira: Command) -> Command {
    let header = *jira.get_styles().get_header();
    let mut short = String::new();
    for (group, verbs) in JIRA {
        // Writing into a string does not fail.
        let _ = write!(short, "\n  {group:9} {}", verbs.join("  "));
    }
    let mut long = format!("{header}Commands:{header:#}\n");
    for verb in jira.get_subcommands() {
        let about = verb.get_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        let _ = writeln!(long, "  {:11}  {about}", verb.get_name());
    }
    if let Some(more) = jira.get_after_long_help() {
        let _ = write!(long, "\n{more}");
    }
    jira.help_template("{about-section}\n{usage-heading} {usage}\n\n{options}{after-help}")
        .after_help(format!("{header}Commands:{header:#}{short}"))
        .after_long_help(long)
}

/// The command whose help lists its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let longest = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = longest.map(|name| name.len()).max().unwrap_or_default();
    let mut list = String::new();
    for (group, names) in GROUPS {
        // Writing into a string does not fail.
        let _ = writeln!(list, "{header}{group}:{header:#}");
        for name in *names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {literal}{name:width$}{literal:#}  {about}");
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-section}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Common options:{header:#}\n\
         {{options}}{{after-help}}"
    ))
}

#[cfg(test)]
pub(crate) fn names(of_jira: bool) -> Vec<&'static str> {
    let groups = if of_jira { JIRA } else { GROUPS };
    groups
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect()
}
