//! Any bytes as a document of rich text, and any text as an edit of one: reading never panics, a
//! document comes back from its text, and what an edit gives is a document. Up to the first zero
//! byte it is the document, after it the edited text.

use weir_adf::{Options, check, empty, from_org, parse, to_org, to_plain};

/// The target.
pub fn run(input: &[u8]) {
    let cut = input.iter().position(|byte| *byte == 0);
    let (document, text) = input.split_at(cut.unwrap_or(input.len()));
    let base = parse(document).unwrap_or_else(|_| empty());
    let options = Options::default();
    let org = to_org(&base, &options).expect("a document that was read can be shown");
    let back = from_org(&org.text, &base, &options).expect("its text can be read");
    assert_eq!(back, base);
    // The same, but the text is another one, so that all of it is read.
    let spaced = format!("\n{}", org.text);
    let back = from_org(&spaced, &base, &options).expect("its text can be read");
    assert_eq!(back, base);
    assert!(to_plain(&base).is_ok());
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(edited) = from_org(text, &base, &options)
    {
        // Only one that nests too deep for a document.
        if check(&edited).is_ok() {
            let shown = to_org(&edited, &options).expect("an edit can be shown");
            assert_eq!(from_org(&shown.text, &edited, &options), Ok(edited));
        }
    }
}
