//! Tests verify, backup, restore, compact, config, man, completion, and interrupts.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::fs::inotify;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::run::{Place, command_output};

fn filled(place: &Place) {
    place.pipe("put t -", "line\n".repeat(1000)).ok();
    place.run("put t v --key k").ok();
}

/// All files below a directory, largest first.
fn files(dir: &Path, found: &mut Vec<(u64, PathBuf)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push((entry.metadata().unwrap().len(), entry.path()));
        }
    }
    found.sort();
    found.reverse();
}

#[test]
fn a_backup_restores_to_the_same_state() {
    let place = Place::new();
    filled(&place);
    let before = place.run("verify -o json").ok().json();
    assert_eq!(
        (&before["sound"], &before["clean"]),
        (&json!(true), &json!(true))
    );
    place.run("backup copy").ok();
    place.run("put t later").ok();
    let restored = place.run("restore copy again -o json").ok().json();
    assert_eq!(restored["digest"], before["digest"]);
    assert_eq!(place.run("get t --key k --at again").ok().text(), "v");
    assert_eq!(
        place.run("topic show t --at again -o json").ok().json()["last"],
        1002
    );
    let full = place.run("restore copy again").code(73);
    assert!(full.err.contains("E407"), "{}", full.err);
    place.run("backup again").code(73);
    for line in ["restore nothing new", "verify nothing"] {
        let missing = place.run(line).code(78).err;
        assert!(missing.contains("check the path nothing"), "{missing}");
    }
    assert!(!place.path("new").exists());
}

#[test]
fn a_target_that_a_copy_cannot_replace_is_refused_first() {
    let place = Place::new();
    filled(&place);
    // A separator at the end, as shells complete it, is not a part of the name.
    place.run("backup copy/").ok();
    std::fs::create_dir(place.path("again")).unwrap();
    place.run("restore copy/ again/").ok();
    place.run("verify again").ok();
    let mode = place.path("again/log").metadata().unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    std::fs::create_dir(place.path("empty")).unwrap();
    std::os::unix::fs::symlink("empty", place.path("link")).unwrap();
    for line in [
        "backup link",
        "restore copy link",
        "repair link",
        "backup weir-data/inside",
        "restore copy copy/inside",
        "repair weir-data/inside",
    ] {
        let refused = place.run(line).code(78);
        assert!(refused.err.contains("E415"), "{}", refused.err);
    }
    place.run("restore copy .").code(73);
    let mut all = Vec::new();
    files(&place.path(""), &mut all);
    for (_, path) in all {
        let path = path.display().to_string();
        let is_left = path.contains("partial") || path.contains("inside");
        assert!(!is_left, "{path}");
    }
}

/// A backup of a node lacks the entries that the node did not know to be committed.
#[test]
fn a_second_init_of_a_node_names_the_chapters_on_new_clusters() {
    let place = Place::new();
    let init = "cluster init --at data --peer 127.0.0.1:7072";
    place.run(init).ok();
    let refused = place.run(&format!("{init} --force")).code(78);
    for text in [
        "already a node",
        "\"A lost majority\"",
        "\"Backup and restore\"",
        "`weir help guide cluster`",
    ] {
        assert!(refused.err.contains(text), "{text}: {}", refused.err);
    }
}

/// A copy with the vote of a node would be an older copy of it, which is not always detected.
#[test]
fn no_command_copies_the_vote_of_a_node() {
    let place = Place::new();
    place.run("put t v --key k --at data").ok();
    place
        .run("cluster init --at data --peer 127.0.0.1:7072")
        .ok();
    for line in ["restore data copy", "backup copy --at data"] {
        let refused = place.run(line).code(78);
        for text in ["E415", "weir serve --at data --backups DIR", "SIGUSR1"] {
            assert!(refused.err.contains(text), "{text}: {}", refused.err);
        }
    }
    let refused = place.run("backup copy --at weir://127.0.0.1:7071").code(2);
    for text in ["E505", "weir serve --backups DIR", "SIGUSR1"] {
        assert!(refused.err.contains(text), "{text}: {}", refused.err);
    }
    for name in ["copy", "copy.partial"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    // A repair reads the directory of a node, and creates a store that is not a node.
    place.run("repair repaired --at data").ok();
    assert!(!place.path("repaired/cluster").exists());
    let value = place.run("get t --key k --at repaired").ok();
    assert_eq!(value.text(), "v");
    // The folder of a node is not copied either if it has no vote yet.
    std::fs::create_dir(place.path("repaired/cluster")).unwrap();
    place.write("repaired/cluster/vote.new", "x");
    place.run("restore repaired copy").ok();
    assert!(!place.path("copy/cluster").exists());
}

#[test]
fn the_restored_store_of_a_read_only_backup_can_be_written() {
    let place = Place::new();
    filled(&place);
    place.run("backup copy").ok();
    let mut all = Vec::new();
    files(&place.path("copy"), &mut all);
    for (_, file) in &all {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    place.run("restore copy again").ok();
    place.run("put t later --at again").ok();
    let mut all = Vec::new();
    files(&place.path("again"), &mut all);
    assert!(!all.is_empty());
    for (_, file) in &all {
        // Root may write every file, so the modes are checked too.
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn a_restore_that_fails_leaves_no_files() {
    let place = Place::new();
    place
        .pipe("put t -", format!("{}\n", "x".repeat(2000)).repeat(100))
        .ok();
    place.run("backup copy").ok();
    let mut shell = place.command("sh");
    shell.args(["-c", "ulimit -f 16; exec \"$0\" restore copy again"]);
    let full = command_output(shell.arg(env!("CARGO_BIN_EXE_weir")).output().unwrap());
    assert!(full.err.contains("E403"), "{}", full.err);
    assert!(!place.path("again.partial").exists());
    place.run("restore copy again").ok();
}

#[test]
fn damage_is_reported_with_file_and_position_and_never_restored() {
    let place = Place::new();
    filled(&place);
    place.run("compact").ok();
    place.run("backup copy").ok();
    let mut all = Vec::new();
    files(&place.path("copy/topics"), &mut all);
    let victim = &all[0].1;
    let mut bytes = std::fs::read(victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(victim, bytes).unwrap();
    let bad = place.run("verify copy -o json").code(65);
    assert!(bad.err.contains("E405"), "{}", bad.err);
    let finding = &bad.json()["findings"][0];
    assert_eq!(finding["severity"], "damage");
    let file = finding["file"].as_str().unwrap();
    assert!(victim.ends_with(file), "{file}");
    assert!(finding["position"].is_u64());
    std::fs::create_dir(place.path("new.partial")).unwrap();
    place.write("new.partial/precious", "x");
    let refused = place.run("restore copy new").code(73);
    assert!(refused.err.contains("new.partial"), "{}", refused.err);
    std::fs::remove_file(place.path("new.partial/precious")).unwrap();
    std::fs::remove_dir(place.path("new.partial")).unwrap();
    place.run("restore copy new").code(65);
    assert!(!place.path("new").exists());
    let topic = place.run("topic verify t --at ./copy").code(65);
    assert!(topic.err.contains("E405"), "{}", topic.err);
    place.run("verify").ok();
}

#[test]
fn every_format_prints_the_records_before_damage() {
    let place = Place::new();
    filled(&place);
    // A block of a topic has 16 KiB; with these lines there are several blocks.
    place
        .pipe("put t -", format!("{}\n", "x".repeat(2000)).repeat(100))
        .ok();
    place.run("compact").ok();
    let mut all = Vec::new();
    files(&place.path("weir-data/topics"), &mut all);
    let victim = &all[0].1;
    let mut bytes = std::fs::read(victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(victim, bytes).unwrap();
    let shown = |format: &str| {
        let done = place.run(&format!("tail t --no-headers -o {format}"));
        assert!(done.err.contains("E405"), "{}", done.err);
        done.text().lines().count()
    };
    let before = shown("jsonl");
    assert!(before > 1000, "{before} records before the damage");
    assert_eq!(shown("table"), before);
}

#[test]
fn a_repair_reports_what_is_kept_and_what_is_lost() {
    let place = Place::new();
    filled(&place);
    // A block of a topic has 16 KiB; with these lines there are several blocks.
    place
        .pipe("put t -", format!("{}\n", "x".repeat(2000)).repeat(100))
        .ok();
    place.run("put u 1").ok();
    let dry = place.run("repair --dry-run -o json").ok().json();
    assert_eq!(
        (&dry["complete"], &dry["target"]),
        (&json!(true), &json!(null))
    );
    let whole = place.run("repair whole -o json").ok().json();
    assert_eq!(
        (&whole["digest"], &whole["target"]),
        (&dry["digest"], &json!("whole"))
    );
    place.run("compact").ok();
    place.run("backup copy").ok();
    let mut all = Vec::new();
    files(&place.path("copy/topics"), &mut all);
    let victim = &all[0].1;
    let mut bytes = std::fs::read(victim).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(victim, &bytes).unwrap();
    let dry = place.run("repair --dry-run --at copy -o json").code(1);
    assert!(
        dry.err.contains("would lose records of 1 topic"),
        "{}",
        dry.err
    );
    let mut dry = dry.json();
    assert_eq!(
        std::fs::read(victim).unwrap(),
        bytes,
        "nothing is changed in place"
    );
    place.run("repair --at copy").code(2);
    let made = place.run("repair new --at copy -o json").code(1).json();
    dry["target"] = json!("new");
    assert_eq!(made, dry);
    assert_eq!(made["complete"], false);
    let topic = |name: &str| {
        let mut topics = made["topics"].as_array().unwrap().iter();
        topics.find(|topic| topic["topic"] == name).unwrap()
    };
    assert_eq!(topic("u")["lost"], json!([]));
    let range = &topic("t")["lost"][0];
    let (first, last) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
    assert!(first > 1002 && last == 1102, "{range}");
    let left = place.run("tail t --at new").ok().lines();
    assert_eq!(left.len() as u64, 1102 - (last - first + 1));
    assert_eq!(place.run("get t --key k --at new").ok().text(), "v");
    place.run("verify new").ok();
    place.run("repair new --at copy").code(73);
    place.run("repair newer --at nothing").code(78);
    // A store without an identity cannot be repaired.
    place.write("copy/weir.id", "x");
    place.run("repair newer --at copy").code(65);
    assert!(!place.path("newer").exists());
}

/// A command that has the store open until its input ends.
fn owner(place: &Place) -> (Child, std::process::ChildStdin) {
    let mut command = place.weir();
    command.args(["put", "t", "-", "-o", "jsonl"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut owner = command.spawn().unwrap();
    let mut input = owner.stdin.take().unwrap();
    input.write_all(b"one\n").unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(owner.stdout.take().unwrap());
    output.read_line(&mut first).unwrap();
    (owner, input)
}

#[test]
fn a_store_in_use_is_not_checked() {
    let place = Place::new();
    let (mut owner, input) = owner(&place);
    let busy = place.run("verify").code(75);
    assert!(
        busy.err.contains(&format!("process {}", owner.id())),
        "{}",
        busy.err
    );
    drop(input);
    assert!(owner.wait().unwrap().success());
    place.run("verify").ok();
}

#[test]
fn a_command_reads_the_last_published_state_while_a_writer_is_open() {
    let place = Place::new();
    place.run("put t {\"n\":1} --key k").ok();
    place.run("group create t g").ok();
    let (mut owner, input) = owner(&place);
    let expected = format!(
        "process {} has ./weir-data open: reading its last published state, read-only",
        owner.id()
    );
    for line in [
        "get t --key k",
        "tail t",
        "export t",
        "query --topic t --where $.n==1 --on-bad-item skip",
        "topic ls",
        "topic show t",
        "topic verify t",
        "group ls",
        "group show t g",
        "program ls",
        "status",
    ] {
        let read = place.run(line).ok();
        assert!(!read.out.is_empty(), "{line}");
        assert_eq!(
            read.err.matches(&expected).count(),
            1,
            "{line}: {}",
            read.err
        );
        assert_eq!(
            place
                .run(&format!("{line} -q"))
                .ok()
                .err
                .matches(&expected)
                .count(),
            0,
            "{line}"
        );
    }
    // Acknowledged records are visible.
    let values = place.run("tail t --from -1 -o raw").ok().text();
    assert_eq!(values, "one\n");
    let status = place.run("status -o json").ok().json();
    assert!(status["writable"].is_null(), "{status}");
    // A writing command waits, reports the owner, and fails after its wait.
    // A line is due after 200 ms.
    let wait = place.run("put t two --lock-wait 1400ms").code(5);
    let waits = format!("waiting for process {}, which has it open", owner.id());
    assert!(wait.err.contains(&waits), "{}", wait.err);
    for line in [
        "topic rm t -y",
        "group rm t g -y",
        "compact",
        "tail t --group h",
    ] {
        let refused = place.run(&format!("{line} --lock-wait 0s")).code(5);
        assert!(refused.err.contains("E404"), "{line}: {}", refused.err);
    }
    drop(input);
    assert!(owner.wait().unwrap().success());
}

#[test]
fn a_store_without_write_permission_can_be_read() {
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    place.run("put t x --key k --at store").ok();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let mut all = Vec::new();
    files(&place.path("store"), &mut all);
    for (_, file) in &all {
        mode(file, 0o444);
    }
    for folder in ["", "store", "store/log"] {
        mode(&place.path(folder), 0o555);
    }
    let root = rustix::process::geteuid().is_root();
    let copy = Place::new();
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), copy.path("weir")).unwrap();
    mode(&copy.path(""), 0o755);
    let command = |line: &str| {
        let mut command = place.command(copy.path("weir"));
        if root {
            // Root may write every file, so another user runs a copy of the command.
            command.uid(65534);
        }
        command.args(line.split(' '));
        command
    };
    let run = |line: &str| command_output(command(line).output().unwrap());
    for line in [
        "get t --key k",
        "tail t",
        "topic show t",
        "export t",
        "status",
        "verify",
    ] {
        let read = run(&format!("{line} --at store")).ok();
        assert!(!read.out.is_empty(), "{line}");
        let note = "store cannot be written to: reading its last published state, read-only";
        assert_eq!(
            read.err.contains(note),
            line != "verify",
            "{line}: {}",
            read.err
        );
    }
    let refused = run("put t y --at store");
    assert_eq!(refused.code, 7, "{}", refused.err);
    // A follower opens the store repeatedly, but prints the note once.
    let opens = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    let lock = place.path("store/LOCK");
    inotify::add_watch(&opens, &lock, inotify::WatchFlags::OPEN).unwrap();
    let mut tail = command("tail t -f --at store");
    let tail = tail.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tail = tail.spawn().unwrap();
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&opens, &mut buffer);
    for _ in 0..20 {
        events.next().unwrap();
    }
    tail.kill().unwrap();
    let followed = command_output(tail.wait_with_output().unwrap());
    let notes = followed.err.matches("read-only").count();
    assert_eq!(notes, 1, "{}", followed.err);
    mode(&place.path(""), 0o755);
}

#[test]
fn compaction_keeps_the_newest_value_of_each_key() {
    let place = Place::new();
    place.run("topic create s compaction=latest").ok();
    let mut lines = String::new();
    for n in 0..500 {
        writeln!(lines, "{{\"key\":\"k{}\",\"value\":{n}}}", n % 5).unwrap();
    }
    place.pipe("put s --format jsonl", lines).ok();
    let done = place.run("compact s -o json").ok().json();
    assert_eq!(done["records_before"], 501);
    assert!(done["records_after"].as_u64().unwrap() < 20, "{done}");
    let latest = place.run("export s --latest --raw -o raw");
    assert_eq!(latest.code, 2, "export has no --raw");
    assert_eq!(
        place.run("export s --latest -o raw").ok().text(),
        "495\n496\n497\n498\n499\n"
    );
    place.run("put t x").ok();
    let off = place.run("compact t").code(2);
    assert!(
        off.err.contains("weir topic set t compaction=latest"),
        "{}",
        off.err
    );
    place.run("compact none").code(4);
}

#[test]
fn settings_have_their_sources() {
    let place = Place::new();
    place.run("config create").ok();
    place.run("config check").ok();
    place.run("config create").code(1);
    place.write("weir.toml", "durability = \"each\"\noutput = \"json\"\n");
    let rows = place.run("config show --at here").ok().json();
    assert_eq!(
        rows[0],
        json!({"key": "at", "value": "here", "origin": "flag"})
    );
    assert_eq!(
        rows[1],
        json!({"key": "output", "value": "json", "origin": "weir.toml"})
    );
    assert_eq!(
        rows[2],
        json!({"key": "durability", "value": "each", "origin": "weir.toml"})
    );
    // The output contains the path of the secret, never the secret.
    place.write("secret", "weir_0_1");
    let line = "config show --token-file secret --server-ca ca.pem";
    let rows = place.run(line).ok().json();
    assert_eq!(
        (&rows[3], &rows[4], &rows[5]),
        (
            &json!({"key": "token", "value": "(file secret)", "origin": "flag"}),
            &json!({"key": "server_ca", "value": "ca.pem", "origin": "flag"}),
            &json!({"key": "client_cert", "value": null, "origin": "default"}),
        )
    );
    place.write("weir.toml", "durability = \"slow\"\n");
    place.run("config check").code(2);
    place.run("topic ls --config none.toml").code(2);
}

#[test]
fn completions_and_manual_pages_are_printed() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = place.run(&format!("completion {shell}")).ok().text();
        assert!(script.contains("COMPLETE"), "{shell}");
    }
    place.run("man pages").ok();
    let page = std::fs::read_to_string(place.path("pages/weir-topic-create.1")).unwrap();
    assert!(page.contains("compaction=off|latest"), "{page}");
    assert!(
        place
            .run("help topic create")
            .ok()
            .text()
            .contains("Examples:")
    );
    place.run("help nothing").code(2);
}

#[test]
fn the_version_names_its_commit_where_git_knows_it() {
    let place = Place::new();
    let version = place.run("version -o json").ok().json();
    let git = std::process::Command::new("git")
        .args(["rev-parse", "--show-prefix"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let ours = git.is_ok_and(|git| git.stdout == b"crates/weir-cli/\n");
    let commit = version["commit"].as_str();
    assert_eq!(commit.is_some(), ours, "{version}");
    assert!(commit.is_none_or(|commit| commit.len() >= 7), "{version}");
}

#[test]
fn an_interrupted_import_can_be_resumed_and_an_interrupted_tail_ends() {
    let place = Place::new();
    // Without another process, whose start takes long on a busy machine.
    let interrupt = |id: u32| {
        let process = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        kill_process(process, Signal::INT).unwrap();
    };
    let fifo = place.path("fifo");
    let mut pipe = place.command("mkfifo");
    assert!(pipe.arg("fifo").status().unwrap().success());
    place.run("put t x").ok();
    // A background job ignores interrupts, and so would its children.
    let mut tail = place.command("/usr/bin/env");
    tail.args(["--default-signal=INT", env!("CARGO_BIN_EXE_weir")])
        .args(["tail", "t", "-f", "-o", "raw", "--type", "put"])
        .stdout(Stdio::piped());
    let mut tail = tail.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(tail.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert_eq!(first, "x\n");
    interrupt(tail.id());
    assert_eq!(
        tail.wait().unwrap().signal(),
        Some(2),
        "a shell calls that 130"
    );
    // An idle input does not delay the end.
    let start = |file: &str| {
        let mut import = place.weir();
        import
            .args(["import", file, "-t", "u", "-k", "id", "-o", "json"])
            // Slow, so that the import is still running at the interrupt.
            .args(["--batch", "1", "--durability", "each"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        import.spawn().unwrap()
    };
    let stopped = |mut import: Child| {
        let mut made = String::new();
        let mut err = BufReader::new(import.stderr.take().unwrap());
        err.read_line(&mut made).unwrap();
        interrupt(import.id());
        err.read_to_string(&mut made).unwrap();
        let done = command_output(import.wait_with_output().unwrap()).code(130);
        assert_eq!(done.json()["complete"], false);
        (done.json()["imported"].as_u64().unwrap(), made)
    };
    let import = start("fifo");
    let mut input = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    input.write_all(b"{\"id\":1}\n{\"id\":2}\n").unwrap();
    let (written, err) = stopped(import);
    drop(input);
    assert!(err.contains("E508"), "{err}");
    assert!(err.contains("cannot be resumed"), "{err}");
    let stored = place.run("export u").ok().lines().len() as u64;
    assert_eq!(stored, written);
    place.run("topic rm u --yes").ok();
    let mut lines = String::new();
    for n in 0..20_000 {
        writeln!(lines, "{{\"id\":{n}}}").unwrap();
    }
    place.write("data", lines);
    let (written, err) = stopped(start("data"));
    assert!(err.contains("run the same command again"), "{err}");
    let info = place.run("topic show u -o json").ok().json();
    assert_eq!(info["keys"].as_u64().unwrap(), written);
    let rest = place.run("import data -t u -k id -o json").ok().json();
    assert_eq!(rest["imported"].as_u64().unwrap() + written, 20_000);
    assert_eq!(
        place.run("topic show u -o json").ok().json()["keys"],
        20_000
    );
    place.run("verify").ok();
}

#[test]
fn the_lab_is_a_separate_program() {
    let place = Place::new();
    let mut command = place.weir();
    command
        .args(["lab", "run", "x", "--quick"])
        .env("PATH", place.path("bin"));
    let missing = command_output(command.output().unwrap());
    if missing.code == 1 && missing.err.contains("cannot run weir-lab") {
        assert!(
            missing
                .err
                .contains("cargo build --release --package weir-lab")
        );
    }
    std::fs::create_dir(place.path("bin")).unwrap();
    let copy = place.path("bin/weir");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &copy).unwrap();
    let lab = place.write("bin/weir-lab", "#!/bin/sh\necho \"lab $*\"\nexit 4\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(lab, mode).unwrap();
    let mut command = place.command(copy);
    let ran = command_output(
        command
            .args(["lab", "run", "x", "--quick"])
            .output()
            .unwrap(),
    );
    assert_eq!((ran.code, ran.text().as_str()), (4, "lab run x --quick\n"));
}

#[test]
fn help_is_wrapped_once_to_the_width_of_the_terminal() {
    let place = Place::new();
    for width in [60, 80, 100] {
        let mut command = place.weir();
        command
            .args(["compact", "--help"])
            .env("COLUMNS", width.to_string());
        let help = command_output(command.output().unwrap()).ok().text();
        let (_, after) = help.split_once("Removes records").expect("the help");
        let lines: Vec<&str> = after.lines().collect();
        let mut wrapped = 0;
        for pair in lines.windows(2) {
            let [line, next] = pair else { continue };
            if line.is_empty() || next.is_empty() || next.starts_with(' ') || next == &lines[0] {
                continue;
            }
            let word = next.split(' ').next().unwrap();
            let whole = line.len() + 1 + word.len();
            // The first line starts in the middle of its text.
            let whole = whole + if line == &lines[0] { 15 } else { 0 };
            assert!(whole > width, "`{word}` fits after `{line}` at {width}");
            wrapped += 1;
        }
        assert!(wrapped >= 3, "{help}");
    }
}
