//! Seeded fuzzing of HTTP/1.1: the exchanges of vectors/http, damaged and concatenated, and random
//! bytes. The split of the bytes into pieces changes neither the parsed requests nor the responses,
//! and nothing panics.

use weir_server::pieces::{Limits, Reading, read};

use crate::client::Client;
use crate::vectors;
use crate::world::{World, with};

const SEED: u64 = 0x005e_ed0f_ed6e;
/// Number of streams that are parsed without a server.
const PARSED_STREAMS: usize = 20_000;
/// Number of streams that are sent to a server.
const SENT_STREAMS: usize = 400;

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Parts of HTTP messages, and bytes that break them.
const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    ":",
    " ",
    "\0",
    "\t",
    "%00",
    "%2f",
    "?",
    "#",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "Host: localhost\r\n",
    "0\r\n\r\n",
    "5\r\nabcde\r\n",
    "5;a=b\r\nabcde\r\n0\r\nx: y\r\n\r\n",
    "ffffffffffffffff\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/1.0",
    "HTTP/2.0",
    "\u{ff}",
];

/// Requests that leave the framing of the stream intact, so that requests after a damaged one are
/// parsed too.
fn seeds() -> Vec<Vec<u8>> {
    let requests = vectors::all().into_iter().flatten();
    let mut seeds: Vec<Vec<u8>> = requests.map(|exchange| exchange.request).collect();
    seeds.extend(
        [
            "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            "PUT /v1/topics/t/keys/k HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nvalue",
            "GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        ]
        .map(|text| text.as_bytes().to_vec()),
    );
    seeds
}

/// One to three requests, with some damage.
fn stream(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(3) {
        let seed: &Vec<u8> = random.choose(seeds);
        bytes.extend_from_slice(seed);
    }
    for _ in 0..random.below(5) {
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(8)).min(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, again));
            }
            4 => drop(bytes.splice(at..at, random.choose::<&str>(WORDS).bytes())),
            _ => drop(bytes.splice(at..end, random.choose::<&str>(WORDS).bytes())),
        }
        if bytes.is_empty() {
            bytes.push(b'\r');
        }
    }
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len()) + 1);
    }
    bytes
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(30) {
        if random.below(3) == 0 {
            bytes.push(random.next() as u8);
        } else {
            bytes.extend_from_slice(random.choose(WORDS).as_bytes());
        }
    }
    bytes
}

/// Parses the bytes in one piece, in two, and byte by byte. The results must be equal.
fn parse_in_pieces(bytes: &[u8], cut: usize, limits: Limits) -> Reading {
    let whole = read(bytes, [], limits);
    let shown = String::from_utf8_lossy(bytes);
    assert_eq!(whole, read(bytes, [cut], limits), "cut at {cut}: {shown:?}");
    assert_eq!(
        whole,
        read(bytes, 0..bytes.len(), limits),
        "byte by byte: {shown:?}"
    );
    whole
}

#[test]
fn parsed_requests_do_not_depend_on_the_split() {
    let (mut random, seeds) = (Random(SEED), seeds());
    let usual = Limits::default();
    // Low limits, so that heads are about as long as allowed.
    let mut low = usual;
    (low.line, low.head, low.fields) = (40, 60, 4);
    let (mut requests, mut refused) = (0, 0);
    for n in 0..PARSED_STREAMS {
        let bytes = match n % 4 {
            0 => random_bytes(&mut random),
            _ => stream(&mut random, &seeds),
        };
        let limits = if n % 2 == 0 { usual } else { low };
        let reading = parse_in_pieces(&bytes, random.below(bytes.len()), limits);
        assert_eq!(reading.heads.len(), reading.bodies.len());
        requests += reading.heads.len();
        refused += usize::from(reading.end.contains("Syntax"));
    }
    // Otherwise the test would check too little.
    assert!(requests > PARSED_STREAMS / 4, "{requests}");
    assert!(refused > PARSED_STREAMS / 10, "{refused}");
}

/// Lengths just below and above the limits, split at every byte.
#[test]
fn lengths_at_the_limits_are_parsed_equally_for_every_split() {
    let mut limits = Limits::default();
    (limits.line, limits.head, limits.fields) = (30, 40, 8);
    for path in 10..24 {
        for value in 0..40 {
            for end in ["\r\n", "\n", "\r"] {
                let (path, value) = ("p".repeat(path), "v".repeat(value));
                let text = format!("GET /{path} HTTP/1.1{end}Host: a\r\nb: {value}{end}\r\n");
                for cut in 0..text.len() {
                    parse_in_pieces(text.as_bytes(), cut, limits);
                }
            }
        }
    }
}

/// Returns the responses of a server to a stream, up to its end.
fn answers(world: &World, bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<String> {
    let mut client = Client::connect(world.address);
    client.send_cut(bytes, cuts);
    // The server may have closed the connection already.
    drop(client.stream.shutdown(std::net::Shutdown::Write));
    while client.fill() {}
    let text = String::from_utf8_lossy(&client.buffer).into_owned();
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers
        .filter(|answer| !answer.starts_with("100 "))
        .map(str::to_owned)
        .collect()
}

/// Compares the responses. The number may differ: if the body of a refused request has not arrived,
/// the server closes the connection; otherwise it continues.
fn compare(whole: &[String], pieces: &[String], context: &str) {
    for (whole, pieces) in whole.iter().zip(pieces) {
        assert_eq!(
            without_variable_parts(whole),
            without_variable_parts(pieces),
            "{context}"
        );
    }
    let shorter = if whole.len() < pieces.len() {
        whole
    } else {
        pieces
    };
    if whole.len() != pieces.len() {
        let last = shorter
            .last()
            .unwrap_or_else(|| panic!("no answer: {context}"));
        assert!(last.contains("connection: close\r\n"), "{context}: {last}");
    }
}

/// Returns a response without the parts that differ between two servers: request numbers and times.
fn without_variable_parts(answer: &str) -> String {
    let mut plain = String::new();
    for line in answer.lines() {
        let name = line.split(':').next().unwrap_or_default();
        if matches!(
            name,
            "date"
                | "ce-time"
                | "weir-time"
                | "weir-request-id"
                | "content-length"
                | "connection"
                | "last-modified"
        ) {
            continue;
        }
        plain.push_str(line);
        plain.push('\n');
    }
    let mut from = 0;
    // The size of a topic depends on its timestamps.
    for (name, end) in [
        ("\"instance\":\"", '"'),
        ("\"time\":\"", '"'),
        ("\"bytes\":", ','),
    ] {
        if let Some(at) = plain.find(name) {
            let end = plain[at + name.len()..].find(end).unwrap_or(0);
            plain.replace_range(at + name.len()..at + name.len() + end, "*");
        }
    }
    // Milliseconds since 1970.
    while let Some(at) = plain[from..].find(|one: char| one.is_ascii_digit()) {
        from += at;
        let rest = &plain[from..];
        let digits = rest.len()
            - rest
                .trim_start_matches(|one: char| one.is_ascii_digit())
                .len();
        if digits == 13 {
            plain.replace_range(from..from + 13, "*************");
        }
        from += digits;
    }
    plain
}

#[test]
fn responses_do_not_depend_on_the_split() {
    let mut random = Random(SEED ^ 1);
    // Responses with times or counters always differ.
    let mut seeds = seeds();
    seeds.retain(|seed| {
        let text = String::from_utf8_lossy(seed);
        !["metrics", "wait", "stream", "live"]
            .iter()
            .any(|word| text.contains(word))
    });
    let start_servers = || {
        let worlds = [with(&[]), with(&[]), with(&[])];
        for world in &worlds {
            assert_eq!(world.ask("PUT /v1/topics/t", "", b"").status, 201);
        }
        worlds
    };
    let mut worlds = start_servers();
    let mut count = 0;
    for n in 0..SENT_STREAMS {
        let bytes = match n % 8 {
            0 => random_bytes(&mut random),
            _ => stream(&mut random, &seeds),
        };
        let cut = random.below(bytes.len());
        let whole = answers(&worlds[0], &bytes, std::iter::empty());
        let two = answers(&worlds[1], &bytes, std::iter::once(cut));
        let many = answers(&worlds[2], &bytes, 1..bytes.len().max(1));
        let shown = String::from_utf8_lossy(&bytes);
        compare(&whole, &two, &format!("cut at {cut}: {shown:?}"));
        compare(&whole, &many, &format!("byte by byte: {shown:?}"));
        count += whole.len();
        if whole.len() != two.len() || whole.len() != many.len() {
            // The servers have different states from here on, so start new ones.
            for world in &worlds {
                assert_eq!(world.ask("GET /healthz", "", b"").body, b"ok\n");
            }
            worlds = start_servers();
        }
    }
    assert!(count > SENT_STREAMS / 2, "{count}");
}
