//! The exchanges of vectors/http, each sent whole, split in two, and byte by byte, with equal
//! responses.

use std::path::PathBuf;

use crate::client::Client;
use crate::world::{World, with};

pub struct Exchange {
    context: String,
    pub request: Vec<u8>,
    status: u16,
    fields: Vec<(String, String)>,
    body: Option<String>,
}

/// Parses the exchanges of a file. `>>>` starts a request, and `<<< STATUS` its response. Each line
/// is a field; a body follows a blank line. `*` matches any text.
pub fn read(name: &str, text: &str) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for (at, part) in text.split("\n>>>\n").enumerate().skip(1) {
        let (request, answer) = part.split_once("\n<<< ").unwrap();
        let (head, body) = request
            .split_once("\n\n")
            .unwrap_or((request.trim_end(), ""));
        let mut bytes = head.replace('\n', "\r\n").into_bytes();
        if !body.is_empty() && !head.contains("Content-Length") {
            bytes.extend_from_slice(format!("\r\nContent-Length: {}", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(body.as_bytes());
        let answer: Vec<&str> = answer
            .lines()
            .take_while(|line| !line.starts_with('#'))
            .collect();
        let blank = answer
            .iter()
            .position(|line| line.is_empty())
            .unwrap_or(answer.len());
        let fields = answer[1..blank].iter().map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        let body = answer.get(blank + 1..).unwrap_or_default().join("\n");
        exchanges.push(Exchange {
            context: format!("{name}, exchange {at}: {}", head.lines().next().unwrap()),
            request: bytes,
            status: answer[0].trim().parse().unwrap(),
            fields: fields.collect(),
            body: (!body.trim().is_empty()).then(|| body.trim_end().to_owned()),
        });
    }
    assert!(!exchanges.is_empty(), "{name}");
    exchanges
}

/// Whether a text matches a pattern in which `*` is any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

pub fn run(world: &World, exchange: &Exchange, split: usize) {
    let mut client = Client::connect(world.address);
    let bytes = &exchange.request;
    match split {
        0 => client.send(bytes),
        1 => client.send_cut(bytes, std::iter::once(bytes.len() * 2 / 3)),
        _ => client.send_cut(bytes, 1..bytes.len()),
    }
    let reply = client.reply(exchange.request.starts_with(b"HEAD "));
    let context = &exchange.context;
    assert_eq!(reply.status, exchange.status, "{context}: {reply:?}");
    for (name, value) in &exchange.fields {
        match (reply.get(name), value.as_str()) {
            (None, "-") => {}
            (Some(found), value) => {
                assert!(matches_pattern(value, found), "{context}: {name}: {found}");
            }
            (None, _) => panic!("{context}: no {name} in {reply:?}"),
        }
    }
    if let Some(body) = &exchange.body {
        let found = reply.text().replace('\u{1e}', "<RS>");
        assert!(
            matches_pattern(body, found.trim_end()),
            "{context}:\n{found}"
        );
    }
}

/// Returns the exchanges of each file, in the order of the file names.
pub fn all() -> Vec<Vec<Exchange>> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/http"));
    let files = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files = paths.iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        read(&name, &std::fs::read_to_string(path).unwrap())
    });
    files.collect()
}

#[test]
fn the_exchanges_of_the_vectors_are_reproduced() {
    let mut count = 0;
    for exchanges in all() {
        for split in 0..3 {
            let world = with(&[("cors_origins", "https://a.example")]);
            for exchange in &exchanges {
                run(&world, exchange, split);
                count += 1;
            }
        }
    }
    assert!(count > 150, "{count}");
}
