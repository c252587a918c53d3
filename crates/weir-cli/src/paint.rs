//! Colours. No meaning depends on colour alone. Colour is off in pipes, with `NO_COLOR`, and on
//! terminals without colours.

use std::fmt::Write as _;

/// Foreground colours, as ANSI colour codes.
pub(crate) const GREEN: u8 = 32;
/// As above.
pub(crate) const RED: u8 = 31;
/// Less bright than other text.
pub(crate) const DIM: u8 = 2;

/// Names of object members.
const BLUE: u8 = 34;
/// Numbers and words.
const CYAN: u8 = 36;

/// The text in a colour, if colours are on.
pub(crate) fn paint(text: &str, colour: u8, terminal: bool) -> String {
    if is_on(terminal) {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Colours the strings, numbers and names of JSON. The text may be truncated; it is coloured up to
/// its end.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' => string_len(rest),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
        let is_name = after.trim_start().starts_with(':');
        let colour = match first {
            '"' if is_name => Some(BLUE),
            '"' => Some(GREEN),
            _ if token == "null" => Some(DIM),
            c if is_word(c) => Some(CYAN),
            _ => None,
        };
        match colour {
            // Writing into a string does not fail.
            Some(colour) => drop(write!(out, "\x1b[{colour}m{token}\x1b[0m")),
            None => out.push_str(token),
        }
        rest = after;
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')
}

/// Bytes of the string at the start of the text.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether colours are on for standard output or error; `terminal`: that output is a terminal.
pub(crate) fn is_on(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    !set("NO_COLOR") && (forced || (terminal && !dumb))
}

#[cfg(test)]
mod tests {
    use super::json;

    /// Colours as letters: b, g, c, d, and `.` for the end of a colour.
    fn shown(text: &str) -> String {
        let mut text = json(text);
        for (code, letter) in [
            ("34", "b"),
            ("32", "g"),
            ("36", "c"),
            ("2", "d"),
            ("0", "."),
        ] {
            text = text.replace(&format!("\x1b[{code}m"), letter);
        }
        text
    }

    #[test]
    fn values_and_names_have_colours() {
        assert_eq!(
            shown("{\"a\" : [1,-2.5e3,true,null]}"),
            "{b\"a\". : [c1.,c-2.5e3.,ctrue.,dnull.]}"
        );
        assert_eq!(shown("\"x\\\":\""), "g\"x\\\":\".");
        // Truncated text that is not valid JSON.
        assert_eq!(shown("{\"é\":\"lon…"), "{b\"é\".:g\"lon….");
        assert_eq!(shown("é, ü"), "é, ü");
        assert_eq!(shown(""), "");
    }
}
