//! Payloads of every kind are returned unchanged, by every path.

use crate::client::Reply;
use crate::world::{World, world};

/// Number of payloads of each kind.
const COUNT: u64 = 150;

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn choose<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Generates JSON that a parser would render differently.
fn json(random: &mut Random, depth: usize) -> String {
    let space = random
        .choose(&["", "", " ", "\t", "  ", "\r\n", "\n"])
        .to_owned();
    let kinds = if depth == 0 { 7 } else { 9 };
    let value = match random.below(kinds) {
        0 => random
            .choose(&[
                "1.0",
                "1e2",
                "-0",
                "0.1E-7",
                "1E400",
                "123456789012345678901",
            ])
            .to_owned(),
        1 => random.choose(&["true", "false", "null"]).to_owned(),
        2 => random.next().to_string(),
        3 => format!(
            "\"{}\"",
            random.choose(&[
                "\\u0041",
                "\\/",
                "\\ud83d\\ude00",
                "\\n",
                "é",
                "\u{2028}",
                "\\u0000",
                "😀"
            ])
        ),
        4 => "\"\"".to_owned(),
        5 => "[ ]".to_owned(),
        6 => "{ }".to_owned(),
        7 => {
            let items: Vec<_> = (0..random.below(4))
                .map(|_| json(random, depth - 1))
                .collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            // A name may occur twice.
            let member = |random: &mut Random| {
                let name = random.choose(&["a", "a", "b", "", "\\u0061", "é"]);
                format!("{space}\"{name}\"{space}:{}", json(random, depth - 1))
            };
            let members: Vec<_> = (0..random.below(4)).map(|_| member(random)).collect();
            format!("{{{}}}", members.join(","))
        }
    };
    format!("{space}{value}{space}")
}

/// Generates bytes, often ones that end lines, strings and texts.
fn bytes(random: &mut Random) -> Vec<u8> {
    let special = b"\r\n\0\"\\\x1e{}\xff\xc3 data:";
    let byte = |random: &mut Random| match random.below(2) {
        0 => special[random.below(special.len())],
        _ => random.next() as u8,
    };
    (0..random.below(60)).map(|_| byte(random)).collect()
}

fn successful(reply: Reply, what: &str) -> Reply {
    assert!((200..300).contains(&reply.status), "{what}: {reply:?}");
    reply
}

/// Returns the payload of a record from a list in this format.
fn in_list(world: &World, offset: &str, accept: &str) -> Vec<u8> {
    let after = offset.parse::<u64>().unwrap() - 1;
    let line = format!("GET /v1/topics/t/events?after={after}&limit=1&fields=value");
    let reply = successful(world.ask(&line, accept, b""), &line);
    let text = reply.body;
    let (from, to) = (b"\"value\":".as_slice(), b"}\n".as_slice());
    let at = text.windows(from.len()).position(|part| part == from);
    let at = at.unwrap_or_else(|| panic!("{}", text.escape_ascii())) + from.len();
    text[at..]
        .strip_suffix(to)
        .unwrap_or_else(|| panic!("{}", text.escape_ascii()))
        .to_vec()
}

#[test]
fn json_is_returned_unchanged() {
    let (world, mut random) = (world(), Random(1));
    let media = "Content-Type: application/json";
    for n in 0..COUNT {
        let text = json(&mut random, 3);
        let sent = text.as_bytes();
        let created = successful(world.ask("POST /v1/topics/t/events", media, sent), &text);
        let offset = created.get("weir-offset").unwrap().to_owned();
        let one = world.ask(&format!("GET /v1/topics/t/events/{offset}"), "", b"");
        assert!(one.body == sent, "{n}: {text:?}");
        assert_eq!(one.get("content-type"), Some("application/json"));
        let listed = in_list(&world, &offset, "Accept: application/json-seq");
        assert!(
            listed == sent,
            "{n}: {text:?} in a list: {}",
            listed.escape_ascii()
        );
        let key = format!("PUT /v1/topics/t/keys/k{n}");
        successful(world.ask(&key, media, sent), &text);
        let value = world.ask(&key.replace("PUT", "GET"), "", b"");
        assert!(value.body == sent, "{n}: {text:?} of a key");
    }
}

#[test]
fn bytes_are_returned_unchanged() {
    let (world, mut random) = (world(), Random(2));
    let media = "Content-Type: application/octet-stream";
    for n in 0..COUNT {
        let sent = bytes(&mut random);
        let shown = sent.escape_ascii().to_string();
        let created = successful(world.ask("POST /v1/topics/t/events", media, &sent), &shown);
        let offset = created.get("weir-offset").unwrap().to_owned();
        let one = world.ask(&format!("GET /v1/topics/t/events/{offset}"), "", b"");
        assert!(one.body == sent, "{n}: {shown}");
        let key = format!("PUT /v1/topics/t/keys/k{n}");
        successful(world.ask(&key, media, &sent), &shown);
        let value = world.ask(&key.replace("PUT", "GET"), "", b"");
        assert!(value.body == sent, "{n}: {shown} of a key");
    }
}

#[test]
fn lines_of_a_batch_are_returned_unchanged() {
    let (world, mut random) = (world(), Random(3));
    let lines: Vec<String> = (0..COUNT)
        .map(|_| json(&mut random, 2).replace(['\r', '\n'], " "))
        .collect();
    let body = lines.join("\n");
    let media = "Content-Type: application/x-ndjson";
    let line = "POST /v1/topics/t/events";
    let created = successful(world.ask(line, media, body.as_bytes()), "a batch");
    assert_eq!(created.json()["valid"], COUNT);
    for (n, line) in lines.iter().enumerate() {
        let one = world.ask(&format!("GET /v1/topics/t/events/{}", n + 2), "", b"");
        assert!(
            one.body.trim_ascii() == line.as_bytes().trim_ascii(),
            "{n}: {line:?}"
        );
    }
}
