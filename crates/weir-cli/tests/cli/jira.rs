//! Tests `weir jira` at a simulated site, as in the guide.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::run::{CommandOutput, Place, command_output};

const GUIDE: &str = include_str!("../../../../docs/guide/jira.md");

/// A simulated site. Dropping this kills it.
struct Site {
    child: Child,
    url: String,
}

impl Site {
    fn new(place: &Place, options: &[&str]) -> Self {
        Self::start(place, "jira-sim", options)
    }

    #[allow(
        clippy::zombie_processes,
        reason = "dropping this waits for the process"
    )]
    fn start(place: &Place, simulator: &str, options: &[&str]) -> Self {
        let mut child = place
            .weir()
            .args([simulator, "--port", "0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = stderr.next().expect("the simulator starts").unwrap();
        let (_, url) = line.split_once(" at ").unwrap();
        let url = url.split(',').next().unwrap_or(url).trim().to_owned();
        Self { child, url }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn shell(place: &Place, command: &str) -> CommandOutput {
    let bin = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = place.command("/bin/sh");
    shell
        .args(["-c", command])
        .env("PATH", format!("{}:{path}", bin.display()));
    command_output(shell.output().unwrap())
}

/// Every command of the guide succeeds at a simulated site, and the last pull changes nothing.
#[test]
fn the_guide_to_jira_runs() {
    let place = Place::new();
    let commands: Vec<&str> = GUIDE
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    let (first, rest) = commands.split_first().unwrap();
    assert_eq!(*first, "weir jira-sim --issues 50 &");
    let site = Site::new(&place, &["--issues", "50"]);
    let mut last = String::new();
    for command in rest {
        let command = command.replace("http://127.0.0.1:1938", &site.url);
        let done = shell(&place, &command).ok();
        let text = done.text();
        assert!(!text.is_empty(), "{command} printed nothing");
        if command == "weir jira pull -o json" {
            last = text;
        }
    }
    let report: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(report["requests"], 1, "{report}");
    assert_eq!(report["writes"], 0, "{report}");
}

/// The replica can be read after the site has ended. A pull then reports that the site is
/// unreachable.
#[test]
fn a_replica_can_be_read_without_its_site() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "20"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    drop(site);
    assert_eq!(place.run("jira ls -o jsonl").ok().lines().len(), 20);
    let first = place.run("jira ls --limit 1 -o json").ok().json();
    let key = first[0]["key"].as_str().unwrap().to_owned();
    let shown = place.run(&format!("jira show {key}")).ok().text();
    assert!(shown.starts_with(&format!("* {key} ")), "{shown}");
    // The issues are records of ordinary topics.
    let name = format!("$.key == \"{key}\"");
    let query = ["query", "--topic", "jira.*.issues.*", "--latest"];
    let part = ["--where", &name, "--select", "$.fields.summary", "-r"];
    let summary = place.words(&[&query[..], &part].concat()).ok().text();
    assert_eq!(summary.trim_end(), first[0]["summary"].as_str().unwrap());
    let failed = place.run("jira pull");
    assert_ne!(failed.code, 0);
    assert!(failed.err.contains("cannot pull"), "{}", failed.err);
}

/// `watch` sends the outbox and pulls, until it is interrupted.
#[test]
fn a_watch_pushes_and_pulls() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5", "--projects", "1"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    place.run("jira set AA-1 summary=Mine").ok();
    // A background job ignores interrupts, and so would its children.
    let mut watch = place.command("/usr/bin/env");
    watch
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_weir")])
        .args(["jira", "watch", "--every", "10ms", "-o", "jsonl"])
        .stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut rows = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> serde_json::Value {
        let row = rows.next().expect("the watch continues").unwrap();
        serde_json::from_str(&row).unwrap()
    };
    // After the first row, the outbox was sent.
    next();
    let theirs = r#"{"issue": "AA-2", "fields": {"summary": "Theirs"}}"#;
    control(&site.url, "/_sim/edit", theirs);
    while next()["stored"] == 0 {}
    let kill = format!("kill -INT {}", watch.id());
    shell(&place, &kill).ok();
    assert!(watch.wait().unwrap().success());
    for (key, summary) in [("AA-1", "Mine"), ("AA-2", "Theirs")] {
        let shown = place.run(&format!("jira show {key} -o json")).ok().json();
        assert_eq!(shown["fields"]["summary"], summary);
    }
    assert_eq!(
        place.run("jira outbox -o json").ok().json(),
        serde_json::json!([])
    );
}

/// A replica of Data Center is read with a personal access token. It rejects changes in one
/// sentence.
#[test]
fn data_center_is_read_only() {
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret-of-the-test").unwrap();
    let file = file.to_str().unwrap();
    let site = Site::new(
        &place,
        &["--issues", "20", "--mode", "dc", "--token-file", file],
    );
    let login = format!("weir jira login {} --token-file {file}", site.url);
    let done = shell(&place, &login).ok();
    assert!(
        done.err.contains("Jira Data Center, read-only"),
        "{}",
        done.err
    );
    place.run("jira pull").ok();
    assert_eq!(place.run("jira ls -o jsonl").ok().lines().len(), 20);
    let shown = place.run("jira show AA-1").ok().text();
    assert!(shown.starts_with("* AA-1 "), "{shown}");
    assert_ne!(
        place.run("jira search login -o jsonl").ok().lines().len(),
        0
    );
    let asked = place.words(&["jira", "ls", "--ask", "project = AA", "-o", "jsonl"]);
    assert_ne!(asked.ok().lines().len(), 0);
    for words in [
        vec!["jira", "set", "AA-1", "summary=Mine"],
        vec!["jira", "create", "AA", "Task", "New"],
        vec!["jira", "project", "create", "NEW", "The new one"],
    ] {
        let refused = place.words(&words);
        assert_ne!(refused.code, 0);
        assert!(
            refused.err.contains("only reads Jira Data Center"),
            "{words:?}: {}",
            refused.err
        );
    }
    let without = shell(&place, &format!("weir jira login {}", site.url));
    assert!(without.err.contains("refused the token"), "{}", without.err);
}

/// A site with a certificate of its own is reached by those who trust the certificate.
#[test]
fn a_site_with_tls_needs_a_trusted_certificate() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5", "--tls", "site.pem"]);
    assert!(site.url.starts_with("https://127.0.0.1:"), "{}", site.url);
    let login = format!("weir jira login {}", site.url);
    let refused = shell(&place, &login);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("certificate"), "{}", refused.err);
    // A file that cannot be used is named; the authorities of the system do not replace it.
    std::fs::write(place.path("empty.pem"), "").unwrap();
    for (file, why) in [
        ("none.pem", "No such file"),
        ("empty.pem", "it has no certificate"),
    ] {
        let refused = shell(&place, &format!("SSL_CERT_FILE={file} {login}"));
        assert_ne!(refused.code, 0);
        let expected = format!("cannot use {file}, which SSL_CERT_FILE names: {why}");
        assert!(refused.err.contains(&expected), "{}", refused.err);
    }
    shell(&place, &format!("SSL_CERT_FILE=site.pem {login}")).ok();
    shell(&place, "SSL_CERT_FILE=site.pem weir jira pull").ok();
    assert_eq!(place.run("jira ls -o jsonl").ok().lines().len(), 5);
}

/// A client that trusts the certificate of the server of notes reaches it; it is no Jira.
#[test]
fn the_server_of_notes_answers_over_tls() {
    let place = Place::new();
    let notes = Site::start(&place, "notes-sim", &["--tls", "notes.pem"]);
    assert!(notes.url.starts_with("https://127.0.0.1:"), "{}", notes.url);
    let login = format!("weir jira login {}", notes.url);
    let refused = shell(&place, &login);
    assert!(refused.err.contains("certificate"), "{}", refused.err);
    let reached = shell(&place, &format!("SSL_CERT_FILE=notes.pem {login}"));
    assert!(reached.err.contains("HTTP 404"), "{}", reached.err);
}

#[test]
fn a_virtual_clock_advances_only_on_request() {
    let place = Place::new();
    let options = ["--issues", "1", "--projects", "1", "--clock", "virtual"];
    let site = Site::new(&place, &[&options[..], &["--latency", "0:1"]].concat());
    control(&site.url, "/_sim/clock", r#"{"advance_ms": 60000}"#);
    control(&site.url, "/_sim/comments", r#"{"issue": "AA-1"}"#);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let issues = place.run("jira ls -o json").ok().json();
    let updated = issues[0]["updated"].as_str().unwrap();
    assert!(updated.starts_with("2024-11-28T13:21:00"), "{updated}");
}

/// A query outside of the subset is rejected with the position of the error.
#[test]
fn a_query_outside_of_the_subset_is_rejected() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let refused = place.words(&["jira", "ls", "status = "]);
    assert_ne!(refused.code, 0);
    assert!(
        refused.err.contains("cannot list issues"),
        "{}",
        refused.err
    );
    let missing = place.run("jira show NO-1");
    assert_ne!(missing.code, 0);
}

/// A value that no issue has is not an error, but a note names it.
#[test]
fn a_note_names_a_value_that_no_issue_has() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    for (query, note) in [
        ("status = Nope", "note: no issue has the status \"Nope\""),
        (
            "assignee = me",
            "note: no issue has the assignee \"me\"; currentUser() is your account",
        ),
    ] {
        let found = place.words(&["jira", "ls", query, "-o", "json"]).ok();
        assert_eq!(found.json(), serde_json::json!([]));
        assert!(found.err.contains(note), "{}", found.err);
    }
    let found = place.words(&["jira", "ls", "status != Nope", "-q", "-o", "jsonl"]);
    let found = found.ok();
    assert_eq!(found.lines().len(), 5);
    assert_eq!(found.err, "");
}

/// The site accepts the connection and does not answer.
#[test]
fn a_command_that_waits_for_a_site_names_it() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "3"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let settings = settings_of(&place, &site.url);
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace(&site.url, &url)).unwrap();
    let expected = format!("weir: waiting for {url}; Ctrl-C ends the command");
    for words in [vec!["jira", "pull"], vec!["jira", "login", url.as_str()]] {
        let mut command = place
            .weir()
            .args(&words)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(command.stderr.take().unwrap()).lines();
        let line = lines.next();
        command.kill().unwrap();
        command.wait().unwrap();
        assert_eq!(line.unwrap().unwrap(), expected, "{words:?}");
    }
}

/// Changes are queued in the outbox without the site, are listed, and reach the site once.
#[test]
fn changes_wait_in_the_outbox_and_are_pushed() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "20"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let op = place.words(&[
        "jira",
        "set",
        "AA-1",
        "summary=From the shell",
        "-o",
        "json",
    ]);
    let op = op.ok().json();
    assert_eq!(
        (&op["number"], &op["state"]),
        (&1.into(), &"queued".into()),
        "{op}"
    );
    let made = place
        .words(&["jira", "create", "AA", "Task", "Fresh", "-o", "json"])
        .ok()
        .json();
    assert_eq!(made["issue"], "AA+2");
    place.words(&["jira", "comment", "AA+2", "a comment"]).ok();
    let shown = place.run("jira show AA-1").ok().text();
    assert!(
        shown.contains(":PENDING: ● 1 queued summary: From the shell"),
        "{shown}"
    );
    let found = place
        .words(&["jira", "ls", "summary ~ shell", "-o", "json"])
        .ok()
        .json();
    assert_eq!(
        (&found[0]["key"], &found[0]["pending"]),
        (&"AA-1".into(), &1.into())
    );
    let pushed = place.run("jira push -o json").ok().json();
    assert_eq!(
        (&pushed["sent"], &pushed["waiting"]),
        (&3.into(), &0.into()),
        "{pushed}"
    );
    assert_eq!(
        place.run("jira outbox -o json").ok().json(),
        serde_json::json!([])
    );
    let shown = place.run("jira show AA+2 -o json").ok().json();
    assert_eq!(shown["fields"]["comment"]["total"], 1, "{shown}");
    place.run("jira pull").ok();
    assert_eq!(place.run("jira pull -o json").ok().json()["writes"], 0);
}

/// While a command reads the text of an edit, another user changes the value and a pull stores the
/// change. The edit began before that, so it conflicts.
#[test]
fn an_edit_begins_with_its_command() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let text = place.path("text");
    let made = place.command("mkfifo").arg(&text).status().unwrap();
    assert!(made.success());
    let edit = ["jira", "set", "AA-1", "summary=@text"];
    let mut command = place
        .weir()
        .args(edit)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Blocks until the command reads the text.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&text).unwrap();
    let theirs = r#"{"issue": "AA-1", "fields": {"summary": "Theirs"}}"#;
    control(&site.url, "/_sim/edit", theirs);
    place.run("jira pull").ok();
    pipe.write_all(b"Mine").unwrap();
    drop(pipe);
    assert!(command.wait().unwrap().success());
    let pushed = place.run("jira push -o json");
    assert_ne!(pushed.code, 0);
    assert_eq!(pushed.json()["conflicts"], 1, "{}", pushed.err);
    place.run("jira resolve 1 theirs").ok();
    place.run("jira pull").ok();
    let shown = place.run("jira show AA-1 -o json").ok().json();
    assert_eq!(shown["fields"]["summary"], "Theirs");
}

#[test]
fn worklogs_and_favourites_of_a_site_in_another_zone() {
    let place = Place::new();
    let options = "--issues 20 --worklogs 2 --timezone +05:30 --connect-latency 1 --rate 500:500";
    let options: Vec<&str> = options.split(' ').collect();
    let site = Site::new(&place, &options);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let list = |words: &[&str]| {
        let all: Vec<&str> = ["jira", "ls", "-o", "jsonl"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        place.words(&all).ok().text()
    };
    let done = list(&["status = Done ORDER BY key ASC"]);
    assert!(!done.is_empty());
    assert_eq!(list(&["--filter", "Done by key"]), done);
    let failed = place.words(&["jira", "ls", "--filter", "Nothing"]);
    assert!(
        failed
            .err
            .contains("the favourites are Open bugs, Done by key"),
        "{}",
        failed.err
    );
    let advice = "try: mark the filter as a favourite at the site";
    assert!(failed.err.contains(advice), "{}", failed.err);
    let issues = place.run("jira ls -o json").ok().json();
    let mut issues = issues.as_array().unwrap().iter().map(|issue| {
        let key = issue["key"].as_str().unwrap();
        place.run(&format!("jira show {key} -o json")).ok().json()
    });
    let worked = issues.find(|issue| issue["fields"]["worklog"]["worklogs"][0].is_object());
    let worked = worked.unwrap();
    let (key, first) = (
        worked["key"].as_str().unwrap(),
        &worked["fields"]["worklog"]["worklogs"][0],
    );
    let id = first["id"].as_str().unwrap();
    let worklog = || {
        let shown = place.run(&format!("jira show {key} -o json")).ok().json();
        let all = shown["fields"]["worklog"]["worklogs"]
            .as_array()
            .unwrap()
            .clone();
        all.into_iter().find(|one| one["id"] == id)
    };
    place
        .run(&format!("jira worklog {key} 9h --edit {id}"))
        .ok();
    assert_eq!(worklog().unwrap()["timeSpentSeconds"], 32_400);
    assert_eq!(worklog().unwrap()["comment"], first["comment"]);
    place.run("jira push").ok();
    assert_eq!(worklog().unwrap()["timeSpentSeconds"], 32_400);
    place
        .run(&format!("jira worklog {key} --delete {id} -y"))
        .ok();
    place.run("jira push").ok();
    assert!(worklog().is_none());
    // A time is in the zone of the account.
    place
        .words(&[
            "jira",
            "worklog",
            key,
            "1h",
            "--started",
            "2026-11-23 09:00",
        ])
        .ok();
    let shown = place.run(&format!("jira show {key} -o json")).ok().json();
    let all = shown["fields"]["worklog"]["worklogs"].as_array().unwrap();
    assert!(
        all.iter()
            .any(|one| one["started"] == "2026-11-23T03:30:00.000+0000"),
        "{shown}"
    );
    for wrong in [
        format!("jira worklog {key}"),
        format!("jira worklog {key} 1h --delete {id}"),
        "jira-sim --check --port 0 --timezone Nowhere".to_owned(),
        "jira-sim --check --port 0 --rate 0:1".to_owned(),
    ] {
        place.run(&wrong).code(2);
    }
}

/// An impossible change is rejected with the field and its possible values.
#[test]
fn an_invalid_change_is_rejected_before_it_is_queued() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let key = place.run("jira ls --limit 1 -o json").ok().json()[0]["key"].clone();
    let key = key.as_str().unwrap();
    for (words, says) in [
        (
            vec!["set", key, "priority=Huge"],
            "choose from High, Medium, Low",
        ),
        (vec!["set", key, "nothing"], "no `=`"),
        (vec!["set", "NO-1", "summary=x"], "no issue NO-1"),
        (vec!["rm", key], "give --yes"),
        (vec!["comment", key, "--delete", "1"], "give --yes"),
        (vec!["worklog", key, "--delete", "1"], "give --yes"),
        (vec!["comment", key, "text", "--yes"], "cannot be used with"),
        (vec!["project", "rm", "AA"], "give --yes"),
        (vec!["resolve", "7", "mine"], "no operation 7"),
        (vec!["assign", key, "Nobody"], "no known person"),
    ] {
        let all: Vec<&str> = ["jira"].into_iter().chain(words).collect();
        let refused = place.words(&all);
        assert_ne!(refused.code, 0, "{all:?}");
        assert!(refused.err.contains(says), "{all:?}: {}", refused.err);
    }
    assert_eq!(
        place.run("jira outbox -o json").ok().json(),
        serde_json::json!([])
    );
    let queued = place.words(&["jira", "rm", key, "-y", "-o", "json"]);
    assert_eq!(queued.ok().json()["kind"], "delete");
}

/// A substitute for the program that accesses the desktop keyring. It stores secrets in files.
const SECRET_TOOL: &str = r#"#!/bin/sh
command=$1; shift
[ "$command" = store ] && shift 2
name=$(printf '%s-' "$@" | tr -c 'a-z0-9' '-')
case $command in
store) cat >"$KEYRING/$name" ;;
lookup) cat "$KEYRING/$name" ;;
esac
"#;

/// The keyring stores a token if the user selects it. The token is in no settings file and in no
/// record, and is not printed.
#[test]
fn only_the_keyring_stores_the_token() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "s3cret-of-the-test").unwrap();
    let file = file.to_str().unwrap();
    let options = [
        "--issues",
        "5",
        "--email",
        "me@example.com",
        "--token-file",
        file,
    ];
    let site = Site::new(&place, &options);
    let url = &site.url;
    let login =
        format!("weir jira login {url} --email me@example.com --token-file {file} --keep keyring");
    // Without the program, the login prints what to install, and stores nothing.
    let refused = shell(&place, &login);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("libsecret-tools"), "{}", refused.err);
    let bin = folder.path().join("bin");
    let keyring = folder.path().join("keyring");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&keyring).unwrap();
    let tool = bin.join("secret-tool");
    fs::write(&tool, SECRET_TOOL).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let with = |command: &str| {
        let (bin, keyring) = (bin.display(), keyring.display());
        shell(
            &place,
            &format!("export PATH={bin}:$PATH KEYRING={keyring}; {command}"),
        )
    };
    let mut printed = with(&login).ok().text();
    assert_eq!(fs::read_dir(&keyring).unwrap().count(), 1);
    for command in [
        "weir jira pull --verbose",
        "weir jira ls -o json",
        "weir jira create AA Task Fresh",
        "weir jira push",
        "weir topic ls",
        "weir doctor",
    ] {
        let done = with(command);
        printed.push_str(&done.text());
        printed.push_str(&done.err);
    }
    assert!(printed.contains("Fresh"), "{printed}");
    assert!(!printed.contains("s3cret"), "{printed}");
    // A date of expiry that is past or no date is refused. A text at this place may be the token.
    for (date, fault) in [
        ("2020-01-01", "is in the past"),
        ("2026-13-45", "not a date"),
        ("s3cret-of-the-test", "not a date"),
    ] {
        let refused = with(&format!("{login} --expires {date}"));
        assert_ne!(refused.code, 0);
        assert!(refused.err.contains(fault), "{}", refused.err);
        printed.push_str(&refused.err);
    }
    assert!(!printed.contains("s3cret"), "{printed}");
    // An expired token gives a warning, whatever the site responds.
    with(&format!("{login} --expires 2099-01-01")).ok();
    let settings = settings_of(&place, url);
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("2099-01-01", "2020-01-01")).unwrap();
    let late = with("weir jira pull").ok();
    assert!(late.err.contains("has expired"), "{}", late.err);
    // A token that is missing in the keyring is an error that names the keyring.
    for entry in fs::read_dir(&keyring).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let lost = with("weir jira pull");
    assert_ne!(lost.code, 0);
    assert!(
        lost.err.contains("the keyring has no token"),
        "{}",
        lost.err
    );
    // Neither a settings file nor the store contains the token.
    let mut folders = vec![place.path("")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let bytes = fs::read(&path).unwrap();
                let found = bytes.windows(6).any(|part| part == b"s3cret");
                assert!(!found, "{}", path.display());
            }
        }
    }
}

/// A proxy of the environment gets no request to this machine, because a request without TLS shows
/// the token to it. No server listens at the address of this proxy.
#[test]
fn a_request_to_this_machine_uses_no_proxy() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5"]);
    let proxy = "ALL_PROXY=http://127.0.0.1:1";
    shell(&place, &format!("{proxy} weir jira login {}", site.url)).ok();
    shell(&place, &format!("{proxy} weir jira pull")).ok();
}

/// The settings file of a site.
fn settings_of(place: &Place, url: &str) -> std::path::PathBuf {
    let name = weir_jira::access::Site::name_of(url);
    place.path(&format!(".config/weir/jira/{name}.json"))
}

/// A settings file that cannot be read is named. A folder that cannot be read does not mean that
/// there is no site.
#[test]
fn an_error_names_the_invalid_settings_file() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "3"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    let settings = settings_of(&place, &site.url);
    std::fs::write(&settings, "{bad").unwrap();
    let failed = place.run("jira ls");
    assert_ne!(failed.code, 0);
    let name = settings.file_name().unwrap().to_str().unwrap();
    assert!(failed.err.contains(name), "{}", failed.err);
    let folder = settings.parent().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let failed = place.run("jira ls");
    let why = "no site is configured (E415)\n  why: no login has stored a site yet\n  \
               try: run `weir jira login URL` first";
    assert!(failed.err.contains(why), "{}", failed.err);
    std::fs::write(folder, "a file").unwrap();
    let failed = place.run("jira ls");
    assert!(
        !failed.err.contains("no site is configured"),
        "{}",
        failed.err
    );
    assert!(failed.err.contains("weir/jira"), "{}", failed.err);
}

/// The error of a login at a server that sends this response.
fn refused_login(place: &Place, answer: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head = lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
        assert!(head.count() > 1);
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let failed = shell(place, &format!("weir jira login {url}"));
    assert_ne!(failed.code, 0);
    server.join().unwrap();
    failed.err
}

/// The advice about a site is not that about a server of Weir.
#[test]
fn a_failed_login_names_the_cause_and_the_next_step() {
    let place = Place::new();
    for (answer, cause, step) in [
        (
            "HTTP/1.1 302 Found\r\nLocation: https://jira.example.com/jira/login?from=x\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n",
            "it leads to https://jira.example.com/jira/login\n",
            "log in with the address to which the site redirects",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP 404",
            "check the address and path of the site",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>",
            "not a valid answer of Jira",
            "check that the address is that of a Jira site",
        ),
    ] {
        let printed = refused_login(&place, answer);
        assert!(
            printed.contains(cause) && printed.contains(step),
            "{printed}"
        );
        assert!(!printed.contains("Weir server"), "{printed}");
    }
}

/// Sends a control request to a simulated site.
fn control(url: &str, path: &str, body: &str) {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = String::new();
    BufReader::new(stream).read_line(&mut first).unwrap();
    assert!(first.contains(" 200 "), "{first}");
}

/// A site that violates an expectation gives an error with the expectation, and an exit code.
#[test]
fn a_site_is_checked() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "20"]);
    let check = || {
        let mut weir = place.weir();
        weir.args(["jira-sim", "--against", &site.url, "-o", "json"]);
        command_output(weir.output().unwrap())
    };
    let found = check().ok().json();
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 25);
    assert!(found.iter().all(|line| line["outcome"] == "kept"));
    let rule =
        r#"{"match": {"path": "/rest/api/3/issueLinkType"}, "fault": {"name": "garbage-json"}}"#;
    control(&site.url, "/_sim/faults", rule);
    let checked = check();
    assert!(
        checked.err.contains("1 of 25 expectations"),
        "{}",
        checked.err
    );
    let found = checked.json();
    let found = found.as_array().unwrap();
    let broken = found.iter().filter(|line| line["outcome"] == "broken");
    let broken: Vec<_> = broken.collect();
    assert_eq!(broken.len(), 1, "{found:?}");
    assert!(
        broken[0]["detail"]
            .as_str()
            .unwrap()
            .contains("not a valid answer")
    );
}
