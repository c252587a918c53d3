//! Rights on streams are those of their topics.

use std::io::{Read, Write};
use std::net::TcpStream;

use weir_server::security::Token;

use crate::world::{Files, TEST_TIMEOUT, World, loopback};

fn ask(world: &World, token: &Token, line: &str, fields: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(world.http.unwrap()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let length = body.len();
    let token = token.expose();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\
         Content-Type: text/plain\r\nAuthorization: Bearer {token}\r\n{fields}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[test]
fn a_stream_has_the_rights_of_its_topic() {
    let files = Files::new();
    let all = files.token("owner", &["all **"]);
    let creator = files.token("creator", &["create s.*", "read s.open"]);
    let writer = files.token("writer", &["put s.open"]);
    let reader = files.token("reader", &["read s.open"]);
    let world = files.start(|config| config.http = Some(loopback()));
    let closed = "Stream-Closed: true\r\n";
    let status = |token: &Token, line: &str, fields: &str, body: &str| {
        ask(&world, token, line, fields, body).0
    };
    assert_eq!(status(&all, "PUT /ds/s/open", "", "x"), 201);
    assert_eq!(status(&all, "PUT /ds/s/secret", "", "x"), 201);
    // Creating, appending and destroying need different rights.
    assert_eq!(status(&creator, "PUT /ds/s/new", "", ""), 201);
    assert_eq!(status(&creator, "PUT /ds/s/full", "", "x"), 403);
    assert_eq!(status(&creator, "PUT /ds/s/full", closed, ""), 403);
    assert_eq!(status(&creator, "DELETE /ds/s/new", "", ""), 403);
    assert_eq!(status(&creator, "PUT /ds/other", "", ""), 403);
    // A fork reads its source, so it needs the right to read it.
    let fork = |name: &str| format!("Stream-Forked-From: /ds/s/{name}\r\n");
    assert_eq!(status(&creator, "PUT /ds/s/f1", &fork("open"), ""), 201);
    let (code, answer) = ask(&world, &creator, "PUT /ds/s/f2", &fork("secret"), "");
    assert_eq!(code, 403);
    assert!(answer.contains("\"topic\":\"s.secret\""), "{answer}");
    assert_eq!(
        status(&creator, "PUT /ds/s/f2", &fork("missing"), ""),
        403,
        "the response does not reveal whether the source exists"
    );
    // Append and read.
    assert_eq!(status(&writer, "POST /ds/s/open", "", "y"), 204);
    assert_eq!(status(&writer, "GET /ds/s/open", "", ""), 403);
    assert_eq!(status(&writer, "POST /ds/s/secret", "", "y"), 403);
    assert_eq!(status(&reader, "GET /ds/s/open", "", ""), 200);
    assert_eq!(status(&reader, "HEAD /ds/s/open", "", ""), 200);
    assert_eq!(status(&reader, "POST /ds/s/open", closed, ""), 403);
    let none = Token::random().unwrap();
    let (code, answer) = ask(&world, &none, "GET /ds/s/open", "", "");
    assert_eq!(code, 401);
    assert!(
        answer.contains("x-content-type-options: nosniff"),
        "{answer}"
    );
    world.audited(&["\"denied\"", "\"read\"", "s.secret", "creator"]);
}

#[test]
fn a_writer_can_neither_destroy_a_stream_nor_read_others_through_it() {
    let files = Files::new();
    let all = files.token("owner", &["all **"]);
    let writer = files.token("writer", &["put mine", "read mine"]);
    let world = files.start(|config| config.http = Some(loopback()));
    let status = |token: &Token, line: &str, fields: &str, body: &str| {
        ask(&world, token, line, fields, body).0
    };
    assert_eq!(status(&all, "PUT /ds/secret", "", "secret"), 201);
    assert_eq!(status(&all, "PUT /ds/mine", "", "mine"), 201);
    let incarnation = world
        .store
        .topic_state("secret")
        .unwrap()
        .incarnation
        .unwrap()
        .0;
    let part =
        format!(r#"{{"topic":"secret","incarnation":{incarnation},"first":1,"base":0,"end":9}}"#);
    let fork = format!(
        r#"{{"from":"secret","incarnation":{incarnation},"at":9,"sub":0,"base":9,"parts":[{part}]}}"#
    );
    for (key, value) in [
        (
            ".ds/config",
            format!(r#"{{"content_type":"text/plain","expiry":"never","fork":{fork}}}"#),
        ),
        (
            ".ds/config",
            r#"{"content_type":"text/plain","expiry":{"idle":0}}"#.to_owned(),
        ),
        (".ds/config", "{".to_owned()),
        (".ds/gone", String::new()),
    ] {
        let line = "POST /v1/topics/mine/events";
        let key = format!("Weir-Key: {key}\r\n");
        assert_eq!(status(&writer, line, &key, &value), 201);
        // This server may have cached the description of the stream.
        let (code, answer) = ask(&world, &writer, "GET /ds/mine", "", "");
        assert_eq!(code, 200, "{answer}");
        assert!(answer.ends_with("\r\n\r\nmine"), "{answer}");
        assert!(world.store.topic("mine").unwrap().live, "{value}");
    }
    // A stream whose description is not cached is equally safe.
    let topic = "POST /v1/topics/other/events";
    world.create("other");
    let config = format!(r#"{{"content_type":"text/plain","expiry":{{"at":1}},"fork":{fork}}}"#);
    let key = "Weir-Key: .ds/config\r\n";
    assert_eq!(status(&all, topic, key, &config), 201);
    let (code, answer) = ask(&world, &all, "GET /ds/other", "", "");
    assert_eq!(code, 200, "{answer}");
    assert!(!answer.contains("secret"), "{answer}");
    assert!(world.store.topic("other").unwrap().live);
}
