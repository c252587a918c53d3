//! Conditions of a request, converted to conditions of its intention. The store checks them when it
//! applies the intention.

use weir_core::Expect;

use crate::http::head::{FieldName, Head};
use crate::http::problem::Problem;
use crate::http::query::offset_of;

/// The conditions of a request, with owned values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// Conditions that must all hold.
    pub(crate) all: Vec<Condition>,
    /// The tags of `If-Match`. If there are any, one of them must match.
    pub(crate) tags: Vec<Condition>,
    /// Fingerprint of the options that the server has read and changes; `None` for other requests.
    pub(crate) options: Option<u64>,
}

/// One condition. Conditions on a key refer to the key of the intention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    KeyOffset(u64),
    KeyAbsent,
    KeyPresent,
    TopicOffset(u64),
    TopicAbsentOr(u64),
    TopicEmpty,
    Incarnation(u64),
}

impl Condition {
    pub(crate) const fn expect(self) -> Expect<'static> {
        match self {
            Self::KeyOffset(n) => Expect::KeyOffset(None, n),
            Self::KeyAbsent => Expect::KeyAbsent(None),
            Self::KeyPresent => Expect::KeyPresent(None),
            Self::TopicOffset(n) => Expect::TopicOffset(n),
            Self::TopicAbsentOr(n) => Expect::TopicAbsentOr(n),
            Self::TopicEmpty => Expect::TopicEmpty,
            Self::Incarnation(n) => Expect::Incarnation(n),
        }
    }

    pub(crate) const fn of(expect: &Expect<'_>) -> Option<Self> {
        Some(match *expect {
            Expect::KeyOffset(_, n) => Self::KeyOffset(n),
            Expect::KeyAbsent(_) => Self::KeyAbsent,
            Expect::KeyPresent(_) => Self::KeyPresent,
            Expect::TopicOffset(n) => Self::TopicOffset(n),
            Expect::TopicAbsentOr(n) => Self::TopicAbsentOr(n),
            Expect::TopicEmpty => Self::TopicEmpty,
            Expect::Incarnation(n) => Self::Incarnation(n),
            _ => return None,
        })
    }

    /// Adds the expected value to a conflict.
    pub(crate) fn explain(self, problem: Problem) -> Problem {
        let (number, name) = self.expected();
        problem.number("expected", number).text("condition", name)
    }

    /// Returns the expected number, and the name of the condition.
    fn expected(self) -> (u64, &'static str) {
        match self {
            Self::KeyOffset(n) => (n, "key-offset"),
            Self::KeyAbsent => (0, "key-absent"),
            Self::KeyPresent => (0, "key-present"),
            Self::TopicOffset(n) => (n, "topic-offset"),
            Self::TopicAbsentOr(n) => (n, "topic-absent-or"),
            Self::TopicEmpty => (0, "topic-empty"),
            Self::Incarnation(n) => (n, "incarnation"),
        }
    }

    /// Parses `name` or `name=number`.
    pub(crate) fn read(name: &str, number: Option<&str>) -> Option<Self> {
        let n = || number.and_then(offset_of);
        Some(match (name, number) {
            ("key-offset", _) => Self::KeyOffset(n()?),
            ("topic-offset", _) => Self::TopicOffset(n()?),
            ("topic-absent-or", _) => Self::TopicAbsentOr(n()?),
            ("incarnation", _) => Self::Incarnation(n()?),
            ("key-absent", None) => Self::KeyAbsent,
            ("key-present", None) => Self::KeyPresent,
            ("topic-empty", None) => Self::TopicEmpty,
            _ => return None,
        })
    }
}

/// What an entity tag of the resource identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagKind {
    /// The topic's last offset: `"o41"`.
    Events,
    /// A key's offset: `"k17"`.
    Key,
    /// A topic's incarnation: `"i5"` or `"i5.o41"`.
    Topic,
}

impl TagKind {
    /// The error text for a tag that the resource does not have.
    fn refusal(self, tag: &str) -> String {
        let example = match self {
            Self::Events => r#""o3""#,
            Self::Key => r#""k3""#,
            Self::Topic => r#""i3""#,
        };
        let wrong = if tag.contains('"') {
            "a tag of If-Match is not a tag of this resource"
        } else {
            "a tag of If-Match needs quotes"
        };
        format!("{wrong}; write it as in If-Match: {example}")
    }
}

impl Conditions {
    /// Parses `If-Match`, `If-None-Match` and `Weir-Expect`.
    pub(crate) fn read(head: &Head, kind: TagKind) -> Result<Self, Problem> {
        let mut conditions = Self::default();
        check_readable(head, FieldName::IfMatch)?;
        for tag in head.list(FieldName::IfMatch) {
            let condition = if tag == "*" {
                any(kind)
            } else {
                of_tag(tag, kind)
            };
            conditions
                .tags
                .push(condition.ok_or_else(|| Problem::bad(kind.refusal(tag)))?);
        }
        if conditions.tags.len() > weir_core::limits::EXPECTS_MAX {
            return Err(Problem::too_large(
                "the number of tags",
                weir_core::limits::EXPECTS_MAX,
            ));
        }
        if conditions.tags.len() == 1 {
            conditions.all.append(&mut conditions.tags);
        }
        conditions.all.extend(Self::without_tags(head, kind)?.all);
        Ok(conditions)
    }

    /// Parses `If-None-Match` and `Weir-Expect`.
    pub(crate) fn without_tags(head: &Head, kind: TagKind) -> Result<Self, Problem> {
        let mut conditions = Self::default();
        check_readable(head, FieldName::IfNoneMatch)?;
        for tag in head.list(FieldName::IfNoneMatch) {
            conditions.all.push(match (tag, kind) {
                ("*", TagKind::Key) => Condition::KeyAbsent,
                ("*", TagKind::Events) => Condition::TopicEmpty,
                ("*", TagKind::Topic) => continue,
                _ => return Err(Problem::bad("a write accepts only `If-None-Match: *`")),
            });
        }
        check_readable(head, FieldName::WeirExpect)?;
        for element in head.list(FieldName::WeirExpect) {
            let (name, number) = match element.split_once('=') {
                Some((name, number)) => (name.trim(), Some(number.trim())),
                None => (element, None),
            };
            let condition = Condition::read(name, number);
            conditions.all.push(
                condition.ok_or_else(|| Problem::bad("Weir-Expect has an unknown condition"))?,
            );
        }
        Ok(conditions)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.tags.is_empty()
    }

    /// Returns the conditions, with one tag of several.
    pub(crate) fn expects(&self, tag: Option<Condition>) -> Vec<Expect<'static>> {
        self.all
            .iter()
            .copied()
            .chain(tag)
            .map(Condition::expect)
            .chain(self.options.map(Expect::Options))
            .collect()
    }

    /// Adds the first expected value to a conflict.
    pub(crate) fn explain(&self, problem: Problem) -> Problem {
        match self.all.first().or(self.tags.first()) {
            Some(condition) => condition.explain(problem),
            None => problem,
        }
    }
}

/// Refuses a field of conditions that has no element, or that is not ASCII. Its conditions could be
/// ignored.
pub(crate) fn check_readable(head: &Head, field: FieldName) -> Result<(), Problem> {
    if !head.has(field) {
        return Ok(());
    }
    let mut values = head.fields().filter(|(name, _)| *name == field.name());
    if head.list(field).next().is_some() && values.all(|(_, value)| value.is_ascii()) {
        return Ok(());
    }
    let name = field.name();
    Err(Problem::bad(format!(
        "{name} has no condition, or characters other than ASCII"
    )))
}

/// Converts `If-Match: *`, which requires that the resource exists.
fn any(kind: TagKind) -> Option<Condition> {
    // A live topic has at least the record of its creation. Destroying or changing an absent topic
    // is refused in any case.
    (kind == TagKind::Key).then_some(Condition::KeyPresent)
}

fn of_tag(tag: &str, kind: TagKind) -> Option<Condition> {
    let text = tag.strip_prefix('"')?.strip_suffix('"')?;
    // The tag of a coded response has a suffix, which does not change the resource.
    let text = text.split_once('-').map_or(text, |(text, _)| text);
    match kind {
        TagKind::Events => offset_of(text.strip_prefix('o')?).map(Condition::TopicOffset),
        TagKind::Key => offset_of(text.strip_prefix('k')?).map(Condition::KeyOffset),
        TagKind::Topic => {
            let text = text.strip_prefix('i')?;
            offset_of(text.split_once('.').map_or(text, |(text, _)| text))
                .map(Condition::Incarnation)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::http::head::parse;

    fn read(fields: &str, kind: TagKind) -> Option<Conditions> {
        let text = format!("PUT / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        Conditions::read(&parse(text.as_bytes(), 20).unwrap().head, kind).ok()
    }

    #[test]
    fn a_change_of_options_also_requires_the_options_that_were_read() {
        let mut conditions = read("If-Match: \"i3\"", TagKind::Topic).unwrap();
        conditions.options = Some(9);
        assert_eq!(
            conditions.expects(None),
            [Expect::Incarnation(3), Expect::Options(9)]
        );
    }

    #[test]
    fn header_fields_are_converted_to_conditions() {
        let all = |fields, kind| read(fields, kind).map(|conditions| conditions.all);
        assert_eq!(
            all("If-Match: \"o41-gzip\"", TagKind::Events),
            Some(vec![Condition::TopicOffset(41)])
        );
        assert_eq!(
            all("If-None-Match: *", TagKind::Events),
            Some(vec![Condition::TopicEmpty])
        );
        assert_eq!(
            all("If-None-Match: *", TagKind::Key),
            Some(vec![Condition::KeyAbsent])
        );
        assert_eq!(
            all("If-Match: *", TagKind::Key),
            Some(vec![Condition::KeyPresent])
        );
        assert_eq!(
            all("If-Match: \"i5.o9\"", TagKind::Topic),
            Some(vec![Condition::Incarnation(5)])
        );
        let several = "If-Match: \"k1\"\r\nWeir-Expect: topic-absent-or=9, key-present";
        assert_eq!(
            all(several, TagKind::Key),
            Some(vec![
                Condition::KeyOffset(1),
                Condition::TopicAbsentOr(9),
                Condition::KeyPresent
            ])
        );
        let tags = read("If-Match: \"k1\", \"k2\"", TagKind::Key).unwrap().tags;
        assert_eq!(tags, [Condition::KeyOffset(1), Condition::KeyOffset(2)]);
        let detail = |fields: &str, kind| {
            let text = format!("PUT / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
            let read = Conditions::read(&parse(text.as_bytes(), 20).unwrap().head, kind);
            read.unwrap_err().detail
        };
        let bare = detail("If-Match: o3", TagKind::Events);
        assert!(bare.contains(r#"needs quotes; write it as in If-Match: "o3""#));
        let other = detail("If-Match: \"o3\"", TagKind::Key);
        assert!(other.contains("not a tag of this resource") && other.contains("\"k3\""));
        for wrong in [
            "If-Match:",
            "If-None-Match: ,",
            "Weir-Expect:",
            "If-Match: o41",
            "If-Match: \"k41\"",
            "If-Match: W/\"o41\"",
            "If-Match: \"o041\"",
            "If-None-Match: \"o1\"",
            "Weir-Expect: key-offset",
            "Weir-Expect: x=1",
            "Weir-Expect: key-absent=1",
        ] {
            assert_eq!(read(wrong, TagKind::Events), None, "{wrong}");
        }
    }
}
