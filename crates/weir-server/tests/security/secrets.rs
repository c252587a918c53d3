//! Searches logs and files for the secrets of a run, which must be only in the files for them.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use weir_server::security::Token;

use crate::peer::assert_line;
use crate::world::{Files, files_containing};

/// All log events of the process, at every level.
#[derive(Clone, Default)]
struct CollectedLog(Arc<Mutex<String>>);

impl Visit for CollectedLog {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut text = self.0.lock().unwrap();
        writeln!(text, "{field}={value:?}").unwrap();
    }
}

impl Subscriber for CollectedLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_token_is_in_no_log_record_file_or_response() {
    let log = CollectedLog::default();
    // A process has one subscriber, and only this test sets it.
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let files = Files::new();
    files.certificate(&files.authority, &["localhost"]);
    let good = files.token("good", &["put t"]);
    let world = files.start(|_| {});
    world.create("t");
    let wrong = Token::random().unwrap();
    let mut answers = String::new();
    for (token, put) in [(&good, true), (&wrong, false)] {
        let mut peer = world.secure();
        answers += &peer.hello(token.expose());
        if put {
            answers += &peer.put("t", "1");
            answers += &peer.put("u", "1");
            answers += &peer.ask(&format!(":_token\t{}\n_request_hello", token.expose()));
        }
    }
    // A token in place of a hash.
    let path = world.files.path("identities.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let hash = text
        .split("hash = \"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    world
        .files
        .write("identities.toml", &text.replace(hash, wrong.expose()));
    let error = world.server.reload().unwrap_err();
    write!(answers, "{error} {error:?} {:?}", world.server).unwrap();
    world.files.write("identities.toml", &text);
    world.audited(&["\"failed\"", "identities.toml"]);
    assert_line(&answers, "_notice_committed");
    assert_line(&answers, "_error_forbidden");
    assert_line(&answers, "_error_unauthenticated");

    let logged = log.0.lock().unwrap().clone();
    assert!(
        logged.contains("identities.toml:"),
        "the log has the error of the reload: {logged}"
    );
    let key = std::fs::read_to_string(world.files.path("server.key")).unwrap();
    let key = key.lines().nth(1).unwrap().to_owned();
    for token in [&good, &wrong] {
        let secret = token.expose().rsplit('_').next().unwrap();
        for (place, text) in [("log", &logged), ("answers", &answers)] {
            assert!(!text.contains(secret), "a token is in the {place}");
            assert!(!text.contains(&key), "a key is in the {place}");
        }
        let found = files_containing(world.files.folder.path(), secret.as_bytes());
        assert!(found.is_empty(), "a token is in {found:?}");
    }
    assert_eq!(
        files_containing(world.files.folder.path(), key.as_bytes()).len(),
        1,
        "only the file of the key"
    );
}
