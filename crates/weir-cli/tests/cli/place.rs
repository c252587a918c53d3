//! Where a command works: flag, environment, context, file, default.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use crate::run::{Place, command_output};

#[test]
fn flag_environment_context_and_file_have_this_precedence() {
    let place = Place::new();
    let at = |words: &[&str], variable: Option<&str>| {
        let mut command = place.weir();
        command
            .args(["topic", "ls", "-o", "raw", "--columns", "name"])
            .args(words);
        command.envs(variable.map(|value| ("WEIR_AT", value)));
        command_output(command.output().unwrap())
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
    place.run("context create here context").ok();
    let none = place.run("context use -").code(2);
    assert!(
        none.err.contains("there is no previous context"),
        "{}",
        none.err
    );
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
fn a_variable_that_is_not_utf_8_is_an_error() {
    let place = Place::new();
    let run = |name: &str, line: &str| {
        let mut command = place.weir();
        command.args(line.split(' '));
        command.env(name, OsStr::from_bytes(b"./other\xff"));
        command_output(command.output().unwrap())
    };
    for (name, line) in [
        ("WEIR_AT", "put t x"),
        ("WEIR_OUTPUT", "put t x"),
        ("WEIR_DURABILITY", "put t x"),
        ("WEIR_SERVE_IDENTITIES", "serve --print-config"),
    ] {
        let done = run(name, line).code(2);
        let origin = format!("environment {name}");
        assert!(done.err.contains(&origin), "{}", done.err);
    }
    assert!(!place.path("weir-data").exists());
    for (name, line) in [
        ("WEIR_AT", "put t x --at ./flag"),
        ("WEIR_OUTPUT", "put t x -o json"),
        ("WEIR_DURABILITY", "put t x --durability each"),
        (
            "WEIR_SERVE_IDENTITIES",
            "serve --identities a.toml --print-config",
        ),
    ] {
        run(name, line).ok();
    }
}

#[test]
fn a_variable_that_is_no_setting_of_the_server_is_reported() {
    let place = Place::new();
    let mut command = place.weir();
    command.args(["serve", "--print-config"]);
    // The name of the setting is `identities`.
    command.env("WEIR_SERVE_IDENTITES", "a.toml");
    let done = command_output(command.output().unwrap()).ok();
    let expected = "warning: WEIR_SERVE_IDENTITES is not a setting";
    assert!(done.err.contains(expected), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn names_of_contexts_can_be_used() {
    let place = Place::new();
    let none = place.run("context use here").code(4);
    assert!(none.err.contains("there are no contexts"), "{}", none.err);
    for name in ["-", ""] {
        place.words(&["context", "create", name, "./x"]).code(2);
    }
    assert_eq!(place.run("context ls -o json").ok().text(), "[]\n");
}

#[test]
fn an_error_in_the_file_of_contexts_has_a_position() {
    let place = Place::new();
    place.run("context create here ./x").ok();
    let file = place.path(".config/weir/contexts.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("# a comment\ncurrent = here\n{text}")).unwrap();
    let done = place.run("context ls").code(2);
    assert!(done.err.contains("line 2 column"), "{}", done.err);
}

#[test]
fn concurrent_changes_of_contexts_are_kept() {
    let place = Place::new();
    let spawn = |number: u32| {
        let mut command = place.weir();
        command.args(["context", "create", &format!("c{number}"), "./x", "-q"]);
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..16).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let all = place.run("context ls -o json").ok().json();
    assert_eq!(all.as_array().unwrap().len(), 16, "{all}");
    // The file may be a symbolic link into the user's other files.
    let file = place.path(".config/weir/contexts.toml");
    let target = place.path("contexts-elsewhere");
    fs::rename(&file, &target).unwrap();
    std::os::unix::fs::symlink(&target, &file).unwrap();
    place.run("context create more ./x").ok();
    assert!(file.symlink_metadata().unwrap().is_symlink());
    let text = fs::read_to_string(&target).unwrap();
    assert!(text.contains("[contexts.more]"), "{text}");
}

#[test]
fn a_file_with_an_unknown_key_is_rejected_with_its_line_and_a_similar_key() {
    let place = Place::new();
    place.write("weir.toml", "at = \"x\"\n\noutputt = \"json\"\n");
    let done = place.run("topic ls").code(2);
    assert!(done.err.contains("line 3 column 1"), "{}", done.err);
    assert!(done.err.contains("did you mean output?"), "{}", done.err);
}

#[test]
fn an_error_about_an_address_names_the_origin_of_the_address() {
    let place = Place::new();
    place.run("context create shop weir://127.0.0.1:1").ok();
    place.run("context use shop").ok();
    let done = place.run("get t 1 --lock-wait 0s").code(1);
    let what = "cannot connect to weir://127.0.0.1:1 (from context shop) (E503)";
    assert!(done.err.contains(what), "{}", done.err);
    let done = place.run("verify");
    let what = "cannot use the server weir://127.0.0.1:1 (from context shop) (E505)";
    assert!(done.err.contains(what), "{}", done.err);
    let done = place.run("get t 1 --lock-wait 0s --at weir://127.0.0.1:1");
    let what = "cannot connect to weir://127.0.0.1:1 (E503)";
    assert!(done.err.contains(what), "{}", done.err);
    let mut command = place.weir();
    command
        .args(["get", "t", "1"])
        .env("WEIR_AT", "http://host");
    let done = command_output(command.output().unwrap()).code(2);
    let what = "cannot use the address http://host (from environment WEIR_AT) (E505)";
    assert!(done.err.contains(what), "{}", done.err);
}

#[test]
fn an_address_without_a_scheme_creates_no_directory() {
    let place = Place::new();
    for words in [
        &["put", "t", "x", "--at", "127.0.0.1:7071"][..],
        &["context", "create", "far", "127.0.0.1:7071"],
        &["serve", "--at", "127.0.0.1:7071"],
    ] {
        let done = place.words(words).code(2);
        assert!(done.err.contains("weir://127.0.0.1:7071"), "{}", done.err);
        assert!(done.err.contains("E505"), "{}", done.err);
    }
    assert!(!place.path("127.0.0.1:7071").exists());
    // A directory of that name is still within reach.
    place.run("put t x --at ./127.0.0.1:7071").ok();
    assert!(place.path("127.0.0.1:7071").is_dir());
}

#[test]
fn a_store_is_created_beside_other_files_only_on_request() {
    let place = Place::new();
    fs::create_dir(place.path("etc")).unwrap();
    place.write("etc/passwd", "root");
    for (line, code) in [
        ("put t x --at etc", 1),
        ("topic create t --at etc", 1),
        ("serve --at etc --http :0 --native :0", 73),
    ] {
        let done = place.run(line).code(code);
        assert!(done.err.contains("E407"), "{}", done.err);
        assert!(done.err.contains("passwd"), "{}", done.err);
        assert!(done.err.contains("--create"), "{}", done.err);
    }
    let left: Vec<_> = fs::read_dir(place.path("etc")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    place.run("put t x --at etc --create").ok();
    // Afterwards it is a store like any other.
    place.run("put t y --at etc").ok();
    fs::create_dir_all(place.path("disk/lost+found")).unwrap();
    place.run("put t x --at disk").ok();
    // A creation that was killed is taken up.
    fs::create_dir_all(place.path("killed")).unwrap();
    place.write("killed/LOCK", "");
    place.write("killed/weir.id.new", "WEIRSTOR");
    place.run("put t x --at killed").ok();
    assert!(!place.path("killed/weir.id.new").exists());
}

/// A user without rights, for a test that runs as root.
const NOBODY: u32 = 65534;

#[test]
fn a_store_without_read_permission_is_not_reported_as_missing() {
    let place = Place::new();
    place.run("put t x --at store").ok();
    let mut command = place.weir();
    if rustix::process::geteuid().is_root() {
        // Root may read everything: another user runs a copy of the command.
        fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_weir"), place.path("weir")).unwrap();
        command = place.command(place.path("weir"));
        command.uid(NOBODY);
    } else {
        fs::set_permissions(place.path("store"), Permissions::from_mode(0o000)).unwrap();
    }
    command.args(["get", "t", "1", "--at", "store"]);
    let done = command_output(command.output().unwrap());
    fs::set_permissions(place.path("store"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(done.code, 7, "{}", done.err);
    assert!(done.err.contains("E409"), "{}", done.err);
}
