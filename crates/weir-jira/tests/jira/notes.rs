//! Tests the answers of the notes server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;
use weir_jira::notes::{NotesOptions, NotesServer};

fn small() -> NotesOptions {
    NotesOptions {
        port: 0,
        connect_latency: Duration::from_millis(20),
        think: Duration::from_millis(30),
        ..NotesOptions::default()
    }
}

fn agent() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false);
    Agent::new_with_config(config.build())
}

/// Status and body of an answer.
fn ask(agent: &Agent, method: &str, url: &str, body: Option<&Value>) -> (u16, String) {
    let request = ureq::http::Request::builder().method(method).uri(url);
    let answer = match body {
        Some(body) => agent.run(request.body(body.to_string()).unwrap()),
        None => agent.run(request.body(()).unwrap()),
    };
    let mut answer = answer.unwrap();
    let status = answer.status().as_u16();
    (status, answer.body_mut().read_to_string().unwrap())
}

#[test]
fn notes_are_listed_added_and_replaced() {
    let server = NotesServer::start(&small()).unwrap();
    let agent = agent();
    let url = |path: &str| format!("{}{path}", server.url());
    let check = |method: &str, path: &str, body: Option<Value>, status: u16, expected: Value| {
        let (found, text) = ask(&agent, method, &url(path), body.as_ref());
        let text: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((found, text), (status, expected), "{method} {path}");
    };
    assert_eq!(ask(&agent, "GET", &url("/"), None).0, 200);
    let note = |id: usize, message: &str| json!({"id": id, "message": message});
    check(
        "GET",
        "/notes",
        None,
        200,
        json!([note(0, "note 0"), note(1, "note 1"), note(2, "note 2")]),
    );
    check(
        "POST",
        "/notes",
        Some(json!({"message": "é"})),
        201,
        note(3, "é"),
    );
    let with_id = json!({"id": 9, "message": "x"});
    check("POST", "/notes", Some(with_id), 400, Value::Null);
    check("GET", "/notes/3", None, 200, note(3, "é"));
    check("GET", "/notes/4", None, 404, Value::Null);
    for (method, text) in [("PUT", "new"), ("POST", "newer")] {
        check(method, "/notes/1", Some(note(1, text)), 200, note(1, text));
        check("GET", "/notes/1", None, 200, note(1, text));
    }
    check("PUT", "/notes/4", Some(note(4, "x")), 404, Value::Null);
    check("PUT", "/notes/1", Some(json!([])), 400, Value::Null);
}

#[test]
fn the_slow_listener_returns_the_notes_after_a_delay() {
    let server = NotesServer::start(&small()).unwrap();
    let agent = agent();
    let begin = Instant::now();
    let slow = ask(&agent, "GET", &format!("{}/notes", server.slow_url()), None);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(
        ask(&agent, "GET", &format!("{}/notes", server.url()), None),
        slow
    );
}

#[test]
fn a_server_without_keep_alive_closes_each_connection() {
    let server = NotesServer::start(&NotesOptions {
        keep_alive: false,
        ..small()
    })
    .unwrap();
    let agent = agent();
    for _ in 0..3 {
        let url = format!("{}/notes", server.url());
        let answer = agent.get(&url).call().unwrap();
        assert_eq!(answer.headers()["connection"], "close");
    }
}
