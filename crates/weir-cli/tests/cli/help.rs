//! Tests what a user without the source finds in the command: guides, error codes, fields,
//! completion.

use crate::run::{Place, command_output};
use crate::served::Served;

#[test]
fn the_command_prints_its_guides_and_error_codes() {
    let place = Place::new();
    let list = place.run("help guide").ok().text();
    let names = list
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    for name in names {
        let guide = place.words(&["help", "guide", name]).ok().text();
        assert!(guide.starts_with("# ") && guide.len() > 1_000, "{name}");
    }
    assert!(
        place
            .run("help guide query")
            .ok()
            .text()
            .contains("RFC 9535")
    );
    let missing = place.run("help guide nothing").code(2);
    assert!(missing.err.contains("no guide nothing"), "{}", missing.err);
    // Each code of the list is explained, and no advice names a file of the repository.
    let errors = place.run("help errors").ok().text();
    let codes: Vec<&str> = errors
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(codes.contains(&"E701") && codes.len() > 60, "{errors}");
    for code in codes {
        let text = place.words(&["help", code]).ok().text();
        assert!(text.contains("Try: ") && !text.contains("docs/"), "{text}");
    }
    let none = place.run("help E999").code(2);
    assert!(none.err.contains("no error code E999"), "{}", none.err);
}

#[test]
fn the_help_lists_the_sources_of_the_token_in_their_order() {
    let help = Place::new().run("get --help").ok().text();
    let words: Vec<&str> = help.split_whitespace().collect();
    let order = "[else WEIR_TOKEN_FILE, WEIR_TOKEN, the context]";
    assert!(words.join(" ").contains(order), "{help}");
}

#[test]
fn the_fields_of_a_command_are_listed_without_its_arguments() {
    let place = Place::new();
    for line in [
        "tail -o help",
        "-o help tail",
        "get --output=help",
        "export -ohelp",
    ] {
        let fields = place.run(line).ok().text();
        assert!(fields.contains("intention"), "{line}: {fields}");
    }
    assert!(
        place
            .run("group claim jobs -o help")
            .ok()
            .text()
            .contains("attempts")
    );
    // No description is cut off, whatever the width of the terminal.
    let mut narrow = place.weir();
    narrow.args(["tail", "-o", "help"]).env("COLUMNS", "40");
    for fields in [
        place.run("tail -o help").ok(),
        command_output(narrow.output().unwrap()),
    ] {
        let fields = fields.ok().text();
        assert!(!fields.contains('…'), "{fields}");
        let whole = "program and arguments of a CREATE or REPLACE\n";
        assert!(fields.contains(whole), "{fields}");
    }
    place.run("tail -o json").code(2);
    // The command opened and created no store.
    assert!(!place.path("weir-data").exists());
}

/// The candidates of bash for the last of these words.
fn completed(place: &Place, words: &[&str]) -> Vec<String> {
    let script = "source <(weir completion bash); COMP_TYPE=9 COMP_WORDS=(\"$@\"); \
        COMP_CWORD=$(($# - 1)); complete -p weir | grep -qe '-F _weir weir' || exit; \
        _weir weir \"${@: -1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = place.command("bash");
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_weir")).parent();
    let path = std::env::var("PATH").unwrap();
    bash.env("PATH", format!("{}:{path}", bin.unwrap().display()));
    bash.args(["-c", script, "bash"]).args(words);
    let offered = command_output(bash.output().unwrap()).ok().text();
    offered.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_topics() {
    let place = Place::new();
    for topic in ["orders", "orders.old", "people"] {
        place.words(&["put", topic, "1"]).ok();
        place.words(&["put", topic, "1", "--at", "other"]).ok();
    }
    place.run("put elsewhere 1 --at other").ok();
    assert_eq!(
        completed(&place, &["weir", "comp"]),
        ["compact", "completion"]
    );
    let options = completed(&place, &["weir", "put", "--if-topic"]);
    assert_eq!(options, ["--if-topic-offset"]);
    assert_eq!(
        completed(&place, &["weir", "tail", "ord"]),
        ["orders", "orders.old"]
    );
    assert_eq!(completed(&place, &["weir", "tail", "-f", "pe"]), ["people"]);
    assert_eq!(
        completed(&place, &["weir", "query", "--topic", "pe"]),
        ["people"]
    );
    assert_eq!(
        completed(&place, &["weir", "topic", "show", "pe"]),
        ["people"]
    );
    let other = ["weir", "--at", "other", "group", "ls", "e"];
    assert_eq!(completed(&place, &other), ["elsewhere"]);
    let other = ["weir", "tail", "--at", "other", "e"];
    assert_eq!(completed(&place, &other), ["elsewhere"]);
    // The parts of words that bash splits.
    let other = ["weir", "tail", "--at", "=", "other", "e"];
    assert_eq!(completed(&place, &other), ["elsewhere"]);
    let topic = ["weir", "query", "--topic", "=", "pe"];
    assert_eq!(completed(&place, &topic), ["people"]);
    place.run("put remote 1 --at data").ok();
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    let address = served.url.strip_prefix("weir:").unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let remote = ["weir", "tail", "--at", "weir", ":", host, ":", port, "r"];
    assert_eq!(completed(&place, &remote), ["remote"]);
    // Without a store there are no candidates, and no store is created.
    let none = ["weir", "tail", "--at", "none", "e"];
    assert_eq!(completed(&place, &none), [""; 0]);
    assert!(!place.path("none").exists());
}
