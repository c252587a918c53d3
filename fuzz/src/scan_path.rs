//! Any text as a path, a query and an expression, and any bytes as an item. The bytes before the
//! first zero byte are the text, the bytes after it are the item.
//!
//! Reading never panics, an error has a position within the text, a parsed text can be evaluated,
//! and every value is a part of the item.

use weir_scan::{Filter, Path, Query, equal, fingerprint};

/// The fuzz target.
pub fn run(input: &[u8]) {
    let cut = input
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(input.len());
    let (text, item) = input.split_at(cut);
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match Path::parse(text) {
        Ok(path) => assert_eq!(Path::parse(&path.to_string()).as_ref(), Ok(&path)),
        Err(error) => assert!(error.offset <= text.len()),
    }
    match Query::parse(text) {
        Ok(query) => {
            for value in query.all(item, &()).unwrap_or_default() {
                let found = value.span.of(item);
                assert!(!found.is_empty() && value.span.end() <= item.len());
                if fingerprint(found, |bytes| bytes.len() as u128).is_ok() {
                    assert!(equal(found, found));
                }
            }
        }
        Err(error) => assert!(error.offset <= text.len()),
    }
    match Filter::parse(text) {
        Ok(filter) => {
            let _ = filter.matches(item, &());
        }
        Err(error) => assert!(error.offset <= text.len()),
    }
}
