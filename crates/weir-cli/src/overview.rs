//! The help of `weir` itself: its commands in groups.
//!
//! Invariant: each command stands in one group; a test compares the groups with the grammar.

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
pub(crate) fn names() -> Vec<&'static str> {
    GROUPS
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect()
}
