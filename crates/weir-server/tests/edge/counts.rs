//! `/metrics`: the text is valid `OpenMetrics`, the counters match the requests, and unknown
//! requests add no series.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{World, world};

/// Maximum number of series for HTTP, whatever clients send.
const SERIES_MAX: usize = 2_000;

/// Whether a text is a valid name.
fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    let mut bytes = text.bytes();
    bytes.next().is_some_and(letter) && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// Checks labels between braces; values end at an unescaped quote.
fn check_labels(text: &str) {
    let mut rest = text;
    let mut names = BTreeSet::new();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        assert!(is_name(name) && names.insert(name), "{text}");
        let mut escaped = false;
        let end = value.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        rest = &value[end.unwrap_or_else(|| panic!("{text}")) + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Returns the samples of a page by name and labels. Panics if the page is not `OpenMetrics`.
fn samples(world: &World) -> BTreeMap<String, f64> {
    let accept = "Accept: application/openmetrics-text";
    let page = world.ask("GET /metrics", accept, b"");
    assert_eq!(page.status, 200);
    let text = page.text().strip_suffix("# EOF\n").expect("the end mark");
    let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            assert!(is_name(name), "{line}");
            let value = words.next().expect(line);
            match what {
                "TYPE" => {
                    let known = [
                        "counter",
                        "gauge",
                        "histogram",
                        "info",
                        "summary",
                        "unknown",
                    ];
                    assert!(known.contains(&value), "{line}");
                    let before = families.insert(name.to_owned(), value.to_owned());
                    assert_eq!(before, None, "{line}: duplicate");
                }
                "HELP" | "UNIT" => {}
                _ => panic!("{line}"),
            }
            // The samples of a family are adjacent.
            name.clone_into(&mut family);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        let value: f64 = value.parse().expect(line);
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(is_name(name), "{line}");
        check_labels(labels.strip_suffix('}').expect(line));
        let kind = families.get(&family).expect(line);
        let endings: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let fits = |ending: &&&str| name.strip_suffix(**ending) == Some(&*family);
        assert!(
            endings.iter().any(|ending| fits(&ending)),
            "{line} in {family}"
        );
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "{line}: duplicate"
        );
    }
    assert!(samples.len() > 20, "{samples:?}");
    samples
}

fn requests(samples: &BTreeMap<String, f64>, route: &str, method: &str, status: u16) -> f64 {
    let labels = format!("{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}}");
    let count = samples.get(&format!("weir_http_requests_total{labels}"));
    count.copied().unwrap_or(0.0)
}

#[test]
fn counters_match_the_requests_of_the_client() {
    let world = world();
    let events = "/v1/topics/{topic}/events";
    let before = samples(&world);
    for n in 0..7 {
        let reply = world.ask("POST /v1/topics/t/events", "Weir-Key: k", b"x");
        assert_eq!(reply.status, 201, "{n}");
    }
    for _ in 0..3 {
        assert_eq!(
            world.ask("POST /v1/topics/none/events", "", b"x").status,
            404
        );
        assert_eq!(
            world
                .ask("GET /v1/topics/t/events?unknown=1", "", b"")
                .status,
            400
        );
    }
    let after = samples(&world);
    for (method, status, more) in [("POST", 201, 7.0), ("POST", 404, 3.0), ("GET", 400, 3.0)] {
        let counts = [&before, &after].map(|one| requests(one, events, method, status));
        assert!(
            (counts[1] - counts[0] - more).abs() < 0.5,
            "{method} {status}: {counts:?}"
        );
    }
    // Every request is in a bucket, and the counts of the buckets never decrease.
    let bucket = |bound: &str| {
        let labels = format!("{{route=\"{events}\",le=\"{bound}\"}}");
        after.get(&format!("weir_http_request_seconds_bucket{labels}"))
    };
    let count = after.get(&format!(
        "weir_http_request_seconds_count{{route=\"{events}\"}}"
    ));
    assert_eq!(bucket("+Inf"), count);
    assert!(*count.unwrap() > 12.5);
}

#[test]
fn unknown_requests_add_no_series() {
    let world = world();
    assert_eq!(world.ask("GET /a", "", b"").status, 404);
    assert_eq!(world.ask("BREW /b", "", b"").status, 404);
    assert_eq!(world.ask("GET /v1/topics/a/keys/k", "", b"").status, 404);
    // The request for a page is counted on the next page.
    drop(samples(&world));
    let before = samples(&world);
    for n in 0..200 {
        assert_eq!(world.ask(&format!("GET /unknown{n}"), "", b"").status, 404);
        assert_eq!(world.ask(&format!("BREW{n} /b"), "", b"").status, 404);
        let key = format!("GET /v1/topics/a{n}/keys/k{n}");
        assert_eq!(
            world.ask(&key, &format!("X-Unknown-{n}: {n}"), b"").status,
            404
        );
    }
    let after = samples(&world);
    let new: Vec<_> = after
        .keys()
        .filter(|name| !before.contains_key(*name))
        .collect();
    assert!(new.is_empty(), "{new:?}");
    assert!(after.len() < SERIES_MAX, "{}", after.len());
}

/// Returns the names of metrics in a text that follow `before`.
fn names_after<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let starts = text.match_indices(before).map(|(at, _)| at + before.len());
    let names = starts.map(|start| {
        let rest = &text[start..];
        let end = rest.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    names.filter(|name| name.starts_with("weir_")).collect()
}

/// docs/operating/metrics.md lists each family that the server prints, and no other.
#[test]
fn the_documentation_lists_every_metric_and_no_other() {
    let world = world();
    let page = world.ask("GET /metrics", "Accept: application/openmetrics-text", b"");
    let printed = names_after(page.text(), "# TYPE ");
    assert!(printed.len() > 20, "{printed:?}");
    let page = include_str!("../../../../docs/operating/metrics.md");
    let rows: String = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let listed = names_after(&rows, "`");
    let missing: Vec<_> = printed.difference(&listed).collect();
    assert_eq!(missing, [&""; 0], "not in docs/operating/metrics.md");
    // A cluster, groups and programs add further families.
    let sources = [
        include_str!("../../src/scrape.rs"),
        include_str!("../../src/scrape/cluster.rs"),
        include_str!("../../src/scrape/groups.rs"),
        include_str!("../../src/scrape/programs.rs"),
    ];
    for name in listed.difference(&printed) {
        let quoted = format!("\"{name}\"");
        assert!(
            sources.iter().any(|source| source.contains(&quoted)),
            "{name}"
        );
    }
}
