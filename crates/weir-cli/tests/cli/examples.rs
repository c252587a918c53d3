//! Checks that the help of every command has examples, and that every example works.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::{Place, command_output};

/// Finds all commands with help, from the command lists in the help.
fn commands(place: &Place, prefix: &[&str], all: &mut Vec<Vec<String>>) {
    let mut words = prefix.to_vec();
    words.push("--help");
    let help = place.words(&words).ok().text();
    let owned: Vec<String> = prefix.iter().map(|word| (*word).to_owned()).collect();
    all.push(owned);
    let mut within = false;
    // The help of these lists the commands in groups.
    let in_groups = matches!(prefix, [] | ["jira"]);
    for line in help.lines() {
        match line.strip_prefix("  ") {
            _ if line == "Commands:" => within = true,
            None if in_groups && line.ends_with(':') => {
                within = !line.ends_with("ptions:") && line != "Examples:";
            }
            Some(line) if within && !line.starts_with(' ') => {
                if let Some(name) = line.split(' ').next() {
                    let mut next = prefix.to_vec();
                    next.push(name);
                    commands(place, &next, all);
                }
            }
            Some(_) => {}
            None => within = false,
        }
    }
}

/// The lines below "Examples:" that are commands.
fn examples(help: &str) -> Vec<String> {
    let below = help.split("\nExamples:\n").nth(1).unwrap_or_default();
    let lines = below.lines().take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Creates the files that the examples of programs name: prebuilt modules, and a script for them.
fn modules(place: &Place) {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for (from, name) in [
        ("programs/prebuilt/balance.wasm", "balance.wasm"),
        ("programs/prebuilt/balance.wasm", "balance2.wasm"),
        ("programs/prebuilt/unique.wasm", "unique.wasm"),
        ("vectors/programs/balance.txt", "balance.txt"),
    ] {
        place.write(name, std::fs::read(root.join(from)).unwrap());
    }
}

/// Runs the examples in the help of a command. Returns their number.
fn run_examples(words: &[String]) -> usize {
    let place = Place::new();
    let mut with_help: Vec<&str> = words.iter().map(String::as_str).collect();
    with_help.push("--help");
    let help = place.words(&with_help).ok().text();
    let examples = examples(&help);
    let group = help.contains(" <COMMAND>\n") && !words.is_empty();
    let first = words.first().map(String::as_str);
    assert!(group || examples.len() >= 2, "{words:?} has {examples:?}");
    // `weir lab` runs another program, which may not be built. `weir jira` needs a site; a test
    // of docs/guide/jira.md covers it. A cluster runs until it is ended; tests/serve/cluster.rs
    // covers it.
    if matches!(first, Some("lab" | "jira" | "cluster")) {
        return 0;
    }
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_weir"))
        .parent()
        .unwrap();
    let path = std::env::var("PATH").unwrap();
    if first == Some("program") {
        modules(&place);
    }
    for example in &examples {
        let mut shell = place.command("/bin/sh");
        shell.args(["-c", example]);
        shell.env("PATH", format!("{}:{path}", bin.display()));
        let done = command_output(shell.output().unwrap());
        assert_eq!(done.code, 0, "{example}\n{}{}", done.err, done.text());
    }
    examples.len()
}

/// Most examples wait for a disk, so several threads share the commands.
#[test]
fn every_example_of_every_help_runs() {
    let mut all = Vec::new();
    commands(&Place::new(), &[], &mut all);
    assert!(all.len() > 20, "{all:?}");
    let next = AtomicUsize::new(0);
    let run_some = || {
        let indexes = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let commands = indexes.map_while(|index| all.get(index));
        commands.map(|words| run_examples(words)).sum::<usize>()
    };
    let ran: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run_some)).collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(ran > 80, "{ran}");
}
