//! Where a command works: flag, environment, context, file, default.

use crate::run::Place;

#[test]
fn flag_environment_context_and_file_win_in_this_order() {
    let place = Place::new();
    let at = |words: &[&str], variable: Option<&str>| {
        let mut command = place.weir();
        command
            .args(["topic", "ls", "-o", "raw", "--columns", "name"])
            .args(words);
        command.envs(variable.map(|value| ("WEIR_AT", value)));
        crate::run::done(command.output().unwrap())
            .ok()
            .text()
            .trim()
            .to_owned()
    };
    for name in ["flag", "variable", "context", "file", "weir-data"] {
        place.run(&format!("put {name} x --at ./{name}")).ok();
    }
    assert_eq!(at(&[], None), "weir-data");
    place.write("weir.toml", "at = \"./file\"\n");
    assert_eq!(at(&[], None), "file");
    place.run("context add here context").ok();
    let none = place.run("context use -").code(2);
    assert!(none.err.contains("no context was in use"), "{}", none.err);
    place.run("context use here").ok();
    assert_eq!(at(&[], None), "context");
    assert_eq!(at(&[], Some("./variable")), "variable");
    assert_eq!(at(&["--at", "./flag"], Some("./variable")), "flag");
    assert_eq!(
        place
            .run("--at ./flag topic ls --columns name -o raw")
            .ok()
            .text(),
        "flag\n"
    );
    place.run("context use --none").ok();
    assert_eq!(at(&[], None), "file");
    place.run("context use -").ok();
    assert_eq!(at(&[], None), "context");
    place.run("context rm here").ok();
    assert_eq!(at(&[], None), "file");
}

#[test]
fn a_file_with_a_wrong_key_is_refused_with_line_and_neighbour() {
    let place = Place::new();
    place.write("weir.toml", "at = \"x\"\n\noutputt = \"json\"\n");
    let done = place.run("topic ls").code(2);
    assert!(done.err.contains("line 3 column 1"), "{}", done.err);
    assert!(done.err.contains("did you mean output?"), "{}", done.err);
}
