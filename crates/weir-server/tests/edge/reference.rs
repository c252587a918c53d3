//! The reference of the HTTP API: its examples are correct, and it describes every operation.

use std::path::PathBuf;

use crate::vectors::{read, run};
use crate::world::with;

fn file(name: &str) -> String {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api"));
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the blocks of the language `http`: a request, a blank line, and its response from
/// `HTTP/1.1` on. The requests omit `Host` and their length.
fn examples(page: &str) -> String {
    let mut text = String::new();
    for block in page.split("\n```http\n").skip(1) {
        let (block, _) = block.split_once("\n```").unwrap();
        let (request, response) = block.split_once("\n\nHTTP/1.1 ").expect(block);
        let (line, rest) = request.split_once('\n').unwrap_or((request, ""));
        let (status, response) = response.split_at(3);
        let response = response.split_once('\n').map_or("", |(_, rest)| rest);
        let empty = line.starts_with("POST") && !request.contains("\n\n");
        let length = if empty { "Content-Length: 0\n" } else { "" };
        let blank = if request.contains("\n\n") { "" } else { "\n" };
        text.push_str(&format!(
            "\n>>>\n{line}\nHost: localhost\n{length}{rest}\n{blank}<<< {status}\n{response}\n"
        ));
    }
    text
}

#[test]
fn the_examples_of_the_reference_are_correct() {
    let world = with(&[]);
    let examples = read("docs/api/http.md", &examples(&file("http.md")));
    for example in &examples {
        run(&world, example, 0);
    }
    assert!(examples.len() > 40, "{}", examples.len());
}

#[test]
fn the_reference_describes_every_operation() {
    let page = file("http.md");
    let description = file("openapi.yaml");
    let (_, paths) = description.split_once("\n\"paths\":").unwrap();
    let (paths, _) = paths.split_once("\n\"").unwrap();
    let mut path = "";
    let mut count = 0;
    for line in paths.lines() {
        let name = line.trim().trim_matches(['"', ':']);
        let depth = line.len() - line.trim_start().len();
        if depth == 2 && name.starts_with('/') {
            path = name;
        } else if depth == 4 && ["get", "put", "post", "patch", "delete"].contains(&name) {
            let heading = format!("### `{} {path}`\n", name.to_uppercase());
            assert!(page.contains(&heading), "docs/api/http.md lacks {heading}");
            count += 1;
        }
    }
    let headings = page.lines().filter(|line| line.starts_with("### `"));
    assert_eq!(
        headings.count(),
        count,
        "the page has operations that do not exist"
    );
}
