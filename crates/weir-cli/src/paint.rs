//! Colours: never the only carrier of a meaning, and dropped where they are not
//! wanted (`NO_COLOR`, pipes, terminals without).

/// Foreground colours by their numbers in the terminal's language.
pub(crate) const GREEN: u8 = 32;
/// See above.
pub(crate) const RED: u8 = 31;
/// Less bright than the rest.
pub(crate) const DIM: u8 = 2;

/// The text in a colour, if there may be one.
pub(crate) fn paint(text: &str, colour: u8, terminal: bool) -> String {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    if !set("NO_COLOR") && (forced || (terminal && !dumb)) {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}
