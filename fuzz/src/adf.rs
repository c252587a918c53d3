//! Any bytes as a document of rich text, and any text as an edit of that document. The bytes before
//! the first zero byte are the document, the bytes after it are the edited text.
//!
//! Reading never panics, a document converted to text and back is unchanged, and an edit gives a
//! valid document.

use weir_adf::{Options, check, empty, from_org, parse, to_org, to_plain};

/// The fuzz target.
pub fn run(input: &[u8]) {
    let cut = input.iter().position(|byte| *byte == 0);
    let (document, text) = input.split_at(cut.unwrap_or(input.len()));
    let base = parse(document).unwrap_or_else(|_| empty());
    let options = Options::default();
    let org = to_org(&base, &options).expect("a document that was read can be shown");
    let back = from_org(&org.text, &base, &options).expect("its text can be read");
    assert_eq!(back, base);
    // With an empty line before it, the text differs from the original, so all of it is parsed.
    let spaced = format!("\n{}", org.text);
    let back = from_org(&spaced, &base, &options).expect("its text can be read");
    assert_eq!(back, base);
    assert!(to_plain(&base).is_ok());
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(edited) = from_org(text, &base, &options)
    {
        // The check fails only for an edit that nests too deeply for a document.
        if check(&edited).is_ok() {
            let shown = to_org(&edited, &options).expect("an edit can be shown");
            assert_eq!(from_org(&shown.text, &edited, &options), Ok(edited));
        }
    }
}
