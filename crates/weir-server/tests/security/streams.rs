//! Rights on streams: those of their topics.

use std::io::{Read, Write};
use std::net::TcpStream;

use weir_server::security::Token;

use crate::world::{Files, PATIENCE, World, loopback};

fn ask(world: &World, token: &Token, line: &str, fields: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(world.http.unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
    let maker = files.token("maker", &["create s.*", "read s.open"]);
    let writer = files.token("writer", &["put s.open"]);
    let reader = files.token("reader", &["read s.open"]);
    let world = files.start(|config| config.http = Some(loopback()));
    let closed = "Stream-Closed: true\r\n";
    let status = |token: &Token, line: &str, fields: &str, body: &str| {
        ask(&world, token, line, fields, body).0
    };
    assert_eq!(status(&all, "PUT /ds/s/open", "", "x"), 201);
    assert_eq!(status(&all, "PUT /ds/s/secret", "", "x"), 201);
    // Making one takes another right than filling or ending it.
    assert_eq!(status(&maker, "PUT /ds/s/new", "", ""), 201);
    assert_eq!(status(&maker, "PUT /ds/s/full", "", "x"), 403);
    assert_eq!(status(&maker, "PUT /ds/s/full", closed, ""), 403);
    assert_eq!(status(&maker, "DELETE /ds/s/new", "", ""), 403);
    assert_eq!(status(&maker, "PUT /ds/other", "", ""), 403);
    // A fork reads its source.
    let fork = |name: &str| format!("Stream-Forked-From: /ds/s/{name}\r\n");
    assert_eq!(status(&maker, "PUT /ds/s/f1", &fork("open"), ""), 201);
    let (code, answer) = ask(&world, &maker, "PUT /ds/s/f2", &fork("secret"), "");
    assert_eq!(code, 403);
    assert!(answer.contains("\"topic\":\"s.secret\""), "{answer}");
    assert_eq!(
        status(&maker, "PUT /ds/s/f2", &fork("missing"), ""),
        403,
        "nor whether it is"
    );
    // Writing and reading.
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
    world.audited(&["\"denied\"", "\"read\"", "s.secret", "maker"]);
}
