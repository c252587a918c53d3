//! The help of commands that have too many subcommands for a line each in the short help.
//!
//! The short help names the subcommands in groups, and the long help explains them. Invariant: each
//! subcommand is in exactly one group; a test compares the groups with the grammar.

use std::fmt::Write as _;

use clap::Command;

/// Groups of subcommands: the name of each group, and its subcommands in the order of the help.
type Groups = [(&'static str, &'static [&'static str])];

/// The commands of `weir`.
const WEIR: &Groups = &[
    ("Write", &["put", "delete", "txn", "import"]),
    ("Read", &["get", "tail", "query", "export"]),
    ("Topics", &["topic", "group"]),
    ("Programs", &["program"]),
    ("Serve", &["serve", "cluster", "token", "cert"]),
    (
        "Operate",
        &[
            "status", "doctor", "verify", "backup", "restore", "repair", "compact",
        ],
    ),
    ("Set up", &["context", "config", "completion", "man"]),
    (
        "Tools",
        &[
            "demo",
            "bench",
            "lab",
            "psyc",
            "jira",
            "jira-sim",
            "notes-sim",
            "version",
            "help",
        ],
    ),
];

/// The commands of `weir jira`.
const JIRA: &Groups = &[
    (
        "Site",
        &["login", "pull", "push", "watch", "outbox", "resolve"],
    ),
    ("Read", &["ls", "show", "search", "fields"]),
    (
        "Change",
        &[
            "create", "clone", "set", "move", "assign", "label", "link", "rm",
        ],
    ),
    ("Activity", &["comment", "worklog", "watch-issue"]),
    ("Projects", &["project"]),
];

/// The grammar of `weir`, with the commands of `weir` and `weir jira` in groups.
pub(crate) fn grouped(weir: Command) -> Command {
    with_groups(weir, WEIR).mut_subcommand("jira", |jira| with_groups(jira, JIRA))
}

fn with_groups(command: Command, groups: &Groups) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let of_groups = groups.iter().map(|(group, _)| group.len()).max();
    let of_names = groups.iter().flat_map(|(_, names)| *names);
    let of_names = of_names.map(|name| name.len()).max();
    let (of_groups, of_names) = (of_groups.unwrap_or_default(), of_names.unwrap_or_default());
    let mut short = format!("{header}Commands:{header:#}");
    let mut long = String::new();
    for (group, names) in groups {
        // Writing into a string does not fail.
        let _ = write!(short, "\n  {group:of_groups$}  {}", names.join("  "));
        let _ = writeln!(long, "{header}{group}:{header:#}");
        for name in *names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(long, "  {literal}{name:of_names$}{literal:#}  {about}");
        }
        long.push('\n');
    }
    command
        .help_template(format!(
            "{{about-section}}\n{{usage-heading}} {{usage}}\n\n{{before-help}}\
             {header}Options:{header:#}\n{{options}}{{after-help}}"
        ))
        .before_help(short)
        .before_long_help(long.trim_end().to_owned())
}

#[cfg(test)]
pub(crate) fn names(of_jira: bool) -> Vec<&'static str> {
    let groups = if of_jira { JIRA } else { WEIR };
    groups
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect()
}
