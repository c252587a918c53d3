//! Splits an org text into lines, and classifies the element that each line starts.

/// A line, without its end.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Line number in the text, from 1.
    pub(crate) number: usize,
    /// The line without the indentation of the element around it.
    pub(crate) text: String,
}

/// Columns from one tab stop to the next.
const TAB_COLUMNS: usize = 8;

/// The element that a line starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An empty line, or spaces only.
    Blank,
    /// `# …`: a comment; it ends a list.
    Comment,
    /// `#+begin_NAME ARGUMENT`; the name in lower case.
    Begin(String, String),
    /// `#+end_NAME`; the name in lower case.
    End(String),
    /// `#+hN: TEXT`: a heading inside of a block.
    Heading(u64, String),
    /// `** TEXT`: stars and text.
    Headline(usize, String),
    /// `-----`
    Rule,
    /// `| … |`
    Row,
    /// An item of a list.
    Item(Item),
    /// Any other line.
    Text,
}

/// The first line of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// Columns before the bullet.
    pub(crate) indent: usize,
    /// Columns of the bullet and the space after it.
    pub(crate) width: usize,
    /// The kind of list.
    pub(crate) bullet: Bullet,
    /// The line after the bullet.
    pub(crate) rest: String,
}

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bullet {
    /// `-` or `+`
    Plain,
    /// `3.` or `3)`
    Number(u64),
    /// `- [ ]`, or `- [X]` for a task that is done.
    Task(bool),
}

impl Bullet {
    /// Whether two items belong to one list.
    pub(crate) fn joins(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Returns the number of columns before the first character that is not a space.
pub(crate) fn indent(text: &str) -> usize {
    let mut columns = 0;
    for c in text.chars() {
        match c {
            ' ' => columns += 1,
            '\t' => columns += TAB_COLUMNS - columns % TAB_COLUMNS,
            _ => break,
        }
    }
    columns
}

/// Removes up to `columns` of indentation.
pub(crate) fn outdent(text: &str, columns: usize) -> String {
    let mut at = 0;
    for (byte, c) in text.char_indices() {
        if at >= columns {
            return format!("{}{}", " ".repeat(at - columns), &text[byte..]);
        }
        match c {
            ' ' => at += 1,
            '\t' => at += TAB_COLUMNS - at % TAB_COLUMNS,
            _ => return text[byte..].to_owned(),
        }
    }
    " ".repeat(at.saturating_sub(columns))
}

/// Removes spaces and tabs at both ends.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// The element that a line starts.
pub(crate) fn shape(text: &str) -> Shape {
    let inner = trim(text);
    let Some(first) = inner.chars().next() else {
        return Shape::Blank;
    };
    if first == '*' && text.starts_with('*') {
        let stars = text.chars().take_while(|c| *c == '*').count();
        let rest = &text[stars..];
        if rest.is_empty() || rest.starts_with(' ') {
            return Shape::Headline(stars, trim(rest).to_owned());
        }
    }
    match first {
        '#' => hash(inner),
        '|' => Shape::Row,
        '-' if inner.len() >= 5 && inner.chars().all(|c| c == '-') => Shape::Rule,
        _ => item(text, inner).map_or(Shape::Text, Shape::Item),
    }
}

fn hash(inner: &str) -> Shape {
    if inner == "#" || inner.starts_with("# ") {
        return Shape::Comment;
    }
    let Some(keyword) = inner.strip_prefix("#+") else {
        return Shape::Text;
    };
    let (name, rest) = keyword
        .split_once([' ', '\t'])
        .map_or((keyword, ""), |(name, rest)| (name, trim(rest)));
    let lower = name.to_ascii_lowercase();
    if let Some(block) = lower.strip_prefix("begin_") {
        return Shape::Begin(block.to_owned(), rest.to_owned());
    }
    if let Some(block) = lower.strip_prefix("end_") {
        return Shape::End(block.to_owned());
    }
    match lower.as_bytes() {
        [b'h', level @ b'1'..=b'6', b':'] => {
            Shape::Heading(u64::from(level - b'0'), rest.to_owned())
        }
        _ => Shape::Text,
    }
}

fn item(text: &str, inner: &str) -> Option<Item> {
    let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
    let (sign, plain) = match digits {
        0 => (1, inner.starts_with(['-', '+'])),
        1..=9 => (digits + 1, false),
        _ => return None,
    };
    let after = inner.get(sign..)?;
    if !(after.is_empty() || after.starts_with(' ')) {
        return None;
    }
    let mut rest = after.get(1..).unwrap_or("");
    let bullet = if plain {
        let done = match rest.get(..3) {
            Some("[ ]" | "[-]") => Some(false),
            Some("[X]" | "[x]") => Some(true),
            _ => None,
        };
        let after = rest.get(3..).unwrap_or("");
        match done {
            Some(done) if after.is_empty() || after.starts_with(' ') => {
                rest = after.get(1..).unwrap_or("");
                Bullet::Task(done)
            }
            _ => Bullet::Plain,
        }
    } else {
        let number = inner.get(..digits)?.parse().ok()?;
        [".", ")"]
            .contains(&inner.get(digits..sign)?)
            .then_some(Bullet::Number(number))?
    };
    Some(Item {
        indent: indent(text),
        width: sign + 1,
        bullet,
        rest: rest.to_owned(),
    })
}

/// Escapes a line of code for a block: adds a comma where org would read a headline or keyword.
pub(crate) fn escape_code(line: &str) -> String {
    let inner = line.trim_start_matches([' ', '\t']);
    let marked = inner.trim_start_matches(',');
    if marked.starts_with('*') || marked.starts_with("#+") {
        let spaces = &line[..line.len() - inner.len()];
        return format!("{spaces},{inner}");
    }
    line.to_owned()
}

/// Reverses [`escape_code`].
pub(crate) fn unescape_code(line: &str) -> String {
    let inner = line.trim_start_matches([' ', '\t']);
    let marked = inner.trim_start_matches(',');
    let escaped = marked.starts_with('*') || marked.starts_with("#+");
    match inner.strip_prefix(',') {
        Some(code) if escaped => format!("{}{code}", &line[..line.len() - inner.len()]),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Bullet, Shape, escape_code, indent, outdent, shape, unescape_code};

    #[test]
    fn a_line_has_one_shape() {
        assert_eq!(shape("** a"), Shape::Headline(2, "a".to_owned()));
        assert_eq!(shape("**a"), Shape::Text);
        assert_eq!(shape("-----"), Shape::Rule);
        assert_eq!(shape("----"), Shape::Text);
        assert_eq!(shape("  # x"), Shape::Comment);
        assert_eq!(shape("#x"), Shape::Text);
        assert_eq!(
            shape("#+BEGIN_SRC c"),
            Shape::Begin("src".to_owned(), "c".to_owned())
        );
        assert_eq!(shape("#+h2: a"), Shape::Heading(2, "a".to_owned()));
        assert_eq!(shape("#+title: a"), Shape::Text);
        let bullet = |text: &str| match shape(text) {
            Shape::Item(item) => Some((item.indent, item.width, item.bullet, item.rest)),
            _ => None,
        };
        assert_eq!(bullet("  - a"), Some((2, 2, Bullet::Plain, "a".to_owned())));
        assert_eq!(
            bullet("12) a"),
            Some((0, 4, Bullet::Number(12), "a".to_owned()))
        );
        assert_eq!(
            bullet("- [X] a"),
            Some((0, 2, Bullet::Task(true), "a".to_owned()))
        );
        assert_eq!(bullet("-a"), None);
        assert_eq!(bullet("1234567890. a"), None);
        assert_eq!(bullet("1 a"), None);
    }

    #[test]
    fn indentation_counts_tabs_as_columns() {
        assert_eq!(indent(" \tx"), 8);
        assert_eq!(outdent("\tx", 2), "      x");
        assert_eq!(outdent("  \tx", 2), "\tx");
        assert_eq!(outdent("x", 2), "x");
        assert_eq!(outdent("   ", 2), " ");
    }

    #[test]
    fn code_is_read_as_it_was_written() {
        for line in ["* a", ",* a", "  #+end_src", ",,#+x", ", a", "a * b", ""] {
            assert_eq!(unescape_code(&escape_code(line)), line);
        }
        assert_eq!(escape_code("  * a"), "  ,* a");
    }
}
