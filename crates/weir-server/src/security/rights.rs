//! Rights on topics: their names, their syntax, and their evaluation.
//!
//! A grant is one text: rights joined by commas, a space, then the patterns of topics to which they
//! apply, as in `put,read orders.** audit.*`. A pattern is a topic name in which a whole part
//! between dots may be `*` (any one part). The last part may be `**` (one or more parts). Names
//! with a leading dot belong to the store; only a pattern with a leading dot matches them.
//!
//! Invariant: a right without a grant is denied.

use std::fmt;

use thiserror::Error;
use weir_core::limits::TOPIC_NAME_BYTES_MAX;

/// Maximum number of grants of one identity.
pub const GRANTS_MAX: usize = 64;
/// Stands for all topics, including those of the store; no topic has this name.
pub(crate) const EVERY_TOPIC: &str = "**";
/// Maximum number of patterns of one grant.
pub const PATTERNS_MAX: usize = 64;

/// The kind of action of a request, equal for all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Create a topic, or change its options. Its retention may remove records.
    Create,
    /// Destroy a topic.
    Destroy,
    /// Write records.
    Put,
    /// Remove keys.
    Delete,
    /// Read records, keys, options.
    Read,
    /// Use groups.
    Group,
    /// Set or replace a program.
    Program,
    /// Read the state of the server, and change its behavior.
    Admin,
}

impl Right {
    /// All rights, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Destroy,
        Self::Put,
        Self::Delete,
        Self::Read,
        Self::Group,
        Self::Program,
        Self::Admin,
    ];

    /// The word in files, responses and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Destroy => "destroy",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Read => "read",
            Self::Group => "group",
            Self::Program => "program",
            Self::Admin => "admin",
        }
    }

    /// Whether each use of the right is recorded in the audit log, even if allowed. Reads of the
    /// status and the metrics are not.
    pub(crate) const fn is_administration(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Destroy | Self::Program | Self::Admin
        )
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RightSet(u8);

impl RightSet {
    const ALL: Self = Self(u8::MAX);

    pub(crate) const fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why a text is not a grant. The error does not quote the text, which may be a secret in the wrong
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RightsError {
    /// An unknown right.
    #[error(
        "unknown right; the rights are create, destroy, put, delete, read, group, program, admin and all"
    )]
    Right,
    /// Rights on topics without a pattern.
    #[error("rights without a pattern; write `read orders.**`, or `read **` for every topic")]
    PatternMissing,
    /// A malformed pattern.
    #[error(
        "malformed pattern; a pattern is a topic name whose parts between dots may be `*`, and whose last part may be `**`"
    )]
    Pattern,
    /// Too many grants or patterns.
    #[error("more than {GRANTS_MAX} grants, or more than {PATTERNS_MAX} patterns in one")]
    TooMany,
}

/// The topics to which a grant applies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// The pattern as written, without a final `**`.
    text: Box<str>,
    /// Whether any part is `*`.
    wild: bool,
    /// Whether the pattern ends in `**`.
    deep: bool,
    /// Whether the pattern starts with a dot; the text of `.**` is empty.
    dotted: bool,
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, RightsError> {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
        if text.is_empty() || text.len() > TOPIC_NAME_BYTES_MAX || !text.bytes().all(letter) {
            return Err(RightsError::Pattern);
        }
        let (head, deep) = match text.strip_suffix("**") {
            Some("") => ("", true),
            Some(head) => (head.strip_suffix('.').ok_or(RightsError::Pattern)?, true),
            None => (text, false),
        };
        let dotted = text.starts_with('.');
        let parts = || head.split('.');
        if parts().any(|part| part != "*" && part.contains('*')) {
            return Err(RightsError::Pattern);
        }
        Ok(Self {
            text: head.into(),
            wild: parts().any(|part| part == "*"),
            deep,
            dotted,
        })
    }

    /// Whether the pattern is exactly `**`, or `.**` if `dotted`.
    fn is_every(&self, dotted: bool) -> bool {
        self.deep && self.text.is_empty() && self.dotted == dotted
    }

    fn matches(&self, topic: &str) -> bool {
        if topic.starts_with('.') && !self.dotted {
            return false;
        }
        if self.is_every(false) {
            return true;
        }
        if !self.wild {
            let Some(rest) = topic.strip_prefix(&*self.text) else {
                return false;
            };
            // At least one more part.
            let is_below = rest.len() > 1 && rest.starts_with('.');
            return if self.deep { is_below } else { rest.is_empty() };
        }
        let mut parts = topic.split('.');
        for wanted in self.text.split('.') {
            match parts.next() {
                Some(part) if wanted == "*" || wanted == part => {}
                _ => return false,
            }
        }
        parts.next().is_some() == self.deep
    }
}

/// All grants of one identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    entries: Vec<(RightSet, Pattern)>,
    /// Rights that are granted for any topic; `admin` needs no topic.
    any: RightSet,
}

impl Grants {
    /// Parses grants, one in each text.
    ///
    /// # Errors
    /// With the index of the first text that is not a grant.
    pub fn parse<'a>(
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, (usize, RightsError)> {
        let mut grants = Self::default();
        for (index, text) in texts.into_iter().enumerate() {
            if index >= GRANTS_MAX {
                return Err((index, RightsError::TooMany));
            }
            grants.add(text).map_err(|error| (index, error))?;
        }
        Ok(grants)
    }

    fn add(&mut self, text: &str) -> Result<(), RightsError> {
        let mut words = text.split_ascii_whitespace();
        let rights = words.next().ok_or(RightsError::Right)?;
        let mut set = RightSet::default();
        for word in rights.split(',') {
            let one = match Right::ALL.iter().find(|right| right.name() == word) {
                Some(right) => RightSet(right.bit()),
                None if word == "all" => RightSet::ALL,
                None => return Err(RightsError::Right),
            };
            set = set.with(one);
        }
        let patterns: Vec<&str> = words.take(PATTERNS_MAX + 1).collect();
        if patterns.len() > PATTERNS_MAX {
            return Err(RightsError::TooMany);
        }
        if patterns.is_empty() && set != RightSet(Right::Admin.bit()) {
            return Err(RightsError::PatternMissing);
        }
        for pattern in patterns {
            self.entries.push((set, Pattern::parse(pattern)?));
        }
        self.any = self.any.with(set);
        Ok(())
    }

    /// Whether a right is granted on a topic. An empty topic stands for any topic: for the server
    /// as a whole, and for lists, whose entries are checked one by one. `**` requires grants on
    /// all topics: one on `**` and one on `.**`. Linear in the number of patterns.
    #[must_use]
    pub fn allow(&self, right: Right, topic: &str) -> bool {
        if topic.is_empty() {
            return self.any.has(right);
        }
        if topic == EVERY_TOPIC {
            let every = |dotted| {
                let mut entries = self.entries.iter();
                entries.any(|(set, pattern)| set.has(right) && pattern.is_every(dotted))
            };
            return every(false) && every(true);
        }
        let mut entries = self.entries.iter();
        entries.any(|(set, pattern)| set.has(right) && pattern.matches(topic))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Grants, Right, RightsError};

    fn allowed(grants: &[&str], right: Right, topic: &str) -> bool {
        Grants::parse(grants.iter().copied())
            .unwrap()
            .allow(right, topic)
    }

    #[test]
    fn every_topic_needs_two_patterns() {
        for (grants, expected) in [
            (&["read ** .**"][..], true),
            (&["put a", "put,read a **", "read .**"], true),
            (&["all ** .**"], true),
            (&["all **"], false),
            (&["all .**"], false),
            (&["read **", "put .**"], false),
            (&["read *", "read *.**", "read .**"], false),
            (&["put **"], false),
            (&["admin", "read a.**"], false),
        ] {
            let every = super::EVERY_TOPIC;
            assert_eq!(allowed(grants, Right::Read, every), expected, "{grants:?}");
        }
    }

    #[test]
    fn patterns_match_whole_parts() {
        let table = [
            ("orders", "orders", true),
            ("orders", "orders.eu", false),
            ("orders", "orders2", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("orders.*", "orders.eu.north", false),
            ("orders.*", "orders2.eu", false),
            ("orders.**", "orders.eu", true),
            ("orders.**", "orders.eu.north", true),
            ("orders.**", "orders", false),
            ("orders.**", "orders.", false),
            ("orders.**", "ordersx.eu", false),
            ("*.eu", "orders.eu", true),
            ("*.eu", "a.b.eu", false),
            ("*", "orders", true),
            ("*", "orders.eu", false),
            ("a.*.c.**", "a.b.c.d", true),
            ("a.*.c.**", "a.b.c.d.e", true),
            ("a.*.c.**", "a.b.c", false),
            ("**", "orders", true),
            ("**", "a.b.c", true),
            ("**", ".weir.audit", false),
            ("*.weir.audit", ".weir.audit", false),
            ("*.**", ".weir.audit", false),
            (".weir.*", ".weir.audit", true),
            (".weir.**", ".weir.audit", true),
            (".weir.audit", ".weir.audit", true),
            (".**", ".weir.audit", true),
            (".**", "orders", false),
            (".**", "orders.eu", false),
        ];
        for (pattern, topic, expected) in table {
            let grant = format!("read {pattern}");
            assert_eq!(
                allowed(&[&grant], Right::Read, topic),
                expected,
                "{pattern} on {topic}"
            );
        }
    }

    #[test]
    fn a_right_implies_no_other_right() {
        for granted in Right::ALL {
            for requested in Right::ALL {
                let grant = format!("{granted} t.*");
                assert_eq!(allowed(&[&grant], requested, "t.a"), granted == requested);
                assert!(!allowed(&[&grant], requested, "u.a"));
                // The result for "any topic" is equal.
                assert_eq!(allowed(&[&grant], requested, ""), granted == requested);
            }
            assert!(allowed(&["all t.*"], granted, "t.a"));
            assert!(!allowed(&[], granted, "t.a"));
            assert!(!allowed(&[], granted, ""));
        }
    }

    #[test]
    fn a_grant_only_adds_rights() {
        let grants = ["put,read a b.*", "delete b.*", "admin"];
        assert!(allowed(&grants, Right::Put, "a"));
        assert!(!allowed(&grants, Right::Delete, "a"));
        assert!(allowed(&grants, Right::Delete, "b.x"));
        assert!(allowed(&grants, Right::Admin, ""));
        assert!(!allowed(&grants, Right::Admin, "a"));
    }

    #[test]
    fn malformed_grants_are_refused() {
        let wrong = |text: &str| Grants::parse([text]).map(drop).unwrap_err().1;
        for text in ["", "write a", "PUT a", "put,,read a", "put,readx a"] {
            assert_eq!(wrong(text), RightsError::Right, "{text}");
        }
        for text in ["put", "all", "admin,read"] {
            assert_eq!(wrong(text), RightsError::PatternMissing, "{text}");
        }
        for text in [
            "put a*",
            "put **.a",
            "put a**",
            "put a.**.b",
            "put ä",
            "put a/b",
        ] {
            assert_eq!(wrong(text), RightsError::Pattern, "{text}");
        }
        let many = format!("put {}", "a ".repeat(65));
        assert_eq!(wrong(&many), RightsError::TooMany);
        assert_eq!(
            Grants::parse(["read a"; 65]).unwrap_err(),
            (64, RightsError::TooMany)
        );
    }
}
