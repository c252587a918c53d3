//! Converts wiki markup, the rich text of Jira Data Center, to text for people.

/// Converts the markup to lines that an org buffer shows unchanged. Line ends become `\n`, and
/// other control characters are removed. A line that org would read as a headline is indented by
/// one space. A text that is not empty ends with a line end.
pub(crate) fn shown(markup: &str) -> String {
    let mut text = String::with_capacity(markup.len() + 1);
    for line in markup.trim_end().lines() {
        let stars = line.trim_start_matches('*');
        if stars.len() < line.len() && stars.starts_with(' ') {
            text.push(' ');
        }
        text.extend(line.chars().filter(|c| *c == '\t' || !c.is_control()));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_wiki_markup_is_no_headline() {
        let markup = "h1. Head\r\n* one\r\n** two\u{1b}[2J\r\n*bold*\r\n";
        assert_eq!(shown(markup), "h1. Head\n * one\n ** two[2J\n*bold*\n");
        assert_eq!(shown(" \r\n"), "");
    }
}
