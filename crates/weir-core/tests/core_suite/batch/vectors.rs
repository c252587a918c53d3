//! `vectors/record/batch-*.txt`. Each entry has bytes in hexadecimal with an explanation after `|`,
//! then a rule, the description of the batch, and an empty line. `WEIR_REWRITE=1` rewrites the
//! descriptions.

use std::path::Path;

use weir_core::batch::BatchBuilder;
use weir_core::intention::{Intention, IntentionLimits};
use weir_core::{ClientId, Operation};

use super::text::describe;

fn bytes(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u8> = lines
        .flat_map(|line| line.split('|').next().unwrap_or_default().bytes())
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[test]
fn every_vector_decodes_to_its_description() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/record");
    let rewrite = std::env::var_os("WEIR_REWRITE").is_some_and(|value| value == "1");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("batch-") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("# "),
            "{name} must start with a description"
        );
        let (mut rewritten, mut above) = (String::new(), String::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            above += line;
            above += "\n";
            if line != "----" {
                continue;
            }
            let below = lines.by_ref().take_while(|line| !line.is_empty());
            let expected: String = below.map(|line| line.to_owned() + "\n").collect();
            let described = describe(&bytes(above.trim_end_matches("----\n")));
            assert!(
                rewrite || expected == described,
                "{name}:\n{above}{described}"
            );
            let gap = if rewritten.is_empty() { "" } else { "\n" };
            rewritten.extend([gap, &above, &described]);
            above.clear();
            count += 1;
        }
        assert_eq!(above, "", "{name}: bytes without a rule");
        if rewrite {
            std::fs::write(&path, rewritten).unwrap();
        }
    }
    assert!(count > 0, "there are vectors");
    println!("{count} batches");
}

/// Reads the example from docs/formats/batch.md.
#[test]
fn the_builder_writes_the_example_of_the_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/batch.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (_, example) = document.split_once("## Example").unwrap();
    let example = example.split("```").nth(1).unwrap();
    let mut builder = BatchBuilder::default();
    for (nonce, key, value) in [(1, b"a", b"1"), (2, b"b", b"2")] {
        let put = Intention::new("orders", Operation::Put { key, value });
        let put = put.under(ClientId([0x11; 16]), nonce);
        builder.push(&put, &IntentionLimits::default()).unwrap();
    }
    assert_eq!(builder.to_bytes(1000), bytes(example));
}
