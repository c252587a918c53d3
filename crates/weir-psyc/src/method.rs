//! The known methods, their families, and how a client treats them.

use crate::keyword;

/// How a client displays a family of methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MethodFlags(u8);

impl MethodFlags {
    /// Shown through a text template.
    pub const TEMPLATE: MethodFlags = MethodFlags(1);
    /// A reply.
    pub const REPLY: MethodFlags = MethodFlags(2);
    /// Displayed to a person.
    pub const VISIBLE: MethodFlags = MethodFlags(4);
    /// Should be written to a log.
    pub const LOGGABLE: MethodFlags = MethodFlags(8);
    /// Written by a person.
    pub const MANUAL: MethodFlags = MethodFlags(16);

    /// The flags as in the C interface: template 1, reply 2, visible 4, loggable 8, manual 16.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: MethodFlags) -> bool {
        self.0 & other.0 == other.0
    }

    const fn and(self, other: MethodFlags) -> MethodFlags {
        MethodFlags(self.0 | other.0)
    }
}

/// The first subword of a known method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MethodFamily {
    /// `_converse`: a message that a person wrote.
    Converse = 1,
    /// `_data`: bytes for programs.
    Data = 2,
    /// `_echo`: confirms an action of the receiver.
    Echo = 3,
    /// `_error`: the request was wrong.
    Error = 4,
    /// `_failure`: the request could not be carried out.
    Failure = 5,
    /// `_info`: a reply with information.
    Info = 6,
    /// `_message`: old name of `_converse`.
    Message = 7,
    /// `_notice`: something happened.
    Notice = 8,
    /// `_request`: a request.
    Request = 9,
    /// `_status`: a reply with a state.
    Status = 10,
    /// `_warning`: succeeded, with a warning.
    Warning = 11,
}

impl MethodFamily {
    /// The number of the family, from 1. An unknown family has the number 0.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The flags of all methods of the family.
    pub const fn flags(self) -> MethodFlags {
        let shown = MethodFlags::VISIBLE.and(MethodFlags::LOGGABLE);
        let notice = shown.and(MethodFlags::TEMPLATE);
        match self {
            MethodFamily::Converse | MethodFamily::Message => shown.and(MethodFlags::MANUAL),
            MethodFamily::Data => MethodFlags(0),
            MethodFamily::Echo => MethodFlags::TEMPLATE
                .and(MethodFlags::REPLY)
                .and(MethodFlags::VISIBLE),
            MethodFamily::Notice | MethodFamily::Request => notice,
            MethodFamily::Error
            | MethodFamily::Failure
            | MethodFamily::Info
            | MethodFamily::Status
            | MethodFamily::Warning => notice.and(MethodFlags::REPLY),
        }
    }
}

/// A known method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The number, from 1. An unknown method has the number 0. Numbers are never reused.
    pub number: u8,
    /// The name.
    pub name: &'static str,
    /// The family.
    pub family: MethodFamily,
}

impl Method {
    /// The known method with the longest name that `word` inherits from. `None` if the first
    /// subword of `word` is unknown, or if `word` is not a keyword.
    pub fn from_name(word: &[u8]) -> Option<Method> {
        let &(name, (number, family)) = keyword::lookup(METHODS, word)?;
        Some(Method {
            number,
            name,
            family,
        })
    }

    /// The flags of the family.
    pub const fn flags(self) -> MethodFlags {
        self.family.flags()
    }
}

/// All known methods, in the order of their names.
pub fn methods() -> impl Iterator<Item = Method> {
    METHODS.iter().map(|&(name, (number, family))| Method {
        number,
        name,
        family,
    })
}

type Entry = (&'static str, (u8, MethodFamily));

const METHODS: &[Entry] = &[
    ("_converse", (1, MethodFamily::Converse)),
    ("_data", (2, MethodFamily::Data)),
    ("_echo", (3, MethodFamily::Echo)),
    ("_echo_context_enter", (4, MethodFamily::Echo)),
    ("_echo_context_leave", (5, MethodFamily::Echo)),
    ("_echo_hello", (6, MethodFamily::Echo)),
    ("_error", (7, MethodFamily::Error)),
    ("_failure", (8, MethodFamily::Failure)),
    ("_failure_alias_nonexistant", (9, MethodFamily::Failure)),
    ("_failure_alias_unavailable", (10, MethodFamily::Failure)),
    ("_info", (11, MethodFamily::Info)),
    ("_message", (12, MethodFamily::Message)),
    ("_message_action", (13, MethodFamily::Message)),
    ("_notice", (14, MethodFamily::Notice)),
    ("_notice_alias_add", (15, MethodFamily::Notice)),
    ("_notice_alias_change", (16, MethodFamily::Notice)),
    ("_notice_alias_remove", (17, MethodFamily::Notice)),
    ("_notice_context_enter", (18, MethodFamily::Notice)),
    ("_notice_context_leave", (19, MethodFamily::Notice)),
    ("_notice_friendship", (20, MethodFamily::Notice)),
    ("_notice_link", (21, MethodFamily::Notice)),
    ("_notice_peer_connect", (22, MethodFamily::Notice)),
    ("_notice_peer_disconnect", (23, MethodFamily::Notice)),
    ("_notice_set", (24, MethodFamily::Notice)),
    ("_notice_unlink", (25, MethodFamily::Notice)),
    ("_request", (26, MethodFamily::Request)),
    ("_request_context_enter", (27, MethodFamily::Request)),
    ("_request_context_leave", (28, MethodFamily::Request)),
    ("_request_friendship", (29, MethodFamily::Request)),
    ("_status", (30, MethodFamily::Status)),
    ("_status_contexts_entered", (31, MethodFamily::Status)),
    ("_status_hello", (32, MethodFamily::Status)),
    ("_warning", (33, MethodFamily::Warning)),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn numbers_are_dense_and_every_method_starts_with_its_family() {
        for (at, method) in methods().enumerate() {
            assert_eq!(usize::from(method.number), at + 1);
            assert_eq!(Method::from_name(method.name.as_bytes()), Some(method));
            let family = keyword::subwords(method.name.as_bytes()).next().unwrap();
            let debug = alloc::format!("{:?}", method.family);
            assert!(debug.as_bytes().eq_ignore_ascii_case(family));
        }
    }

    #[test]
    fn unknown_trailing_subwords_are_ignored() {
        let name = |word: &[u8]| Method::from_name(word).map(|method| method.name);
        assert_eq!(name(b"_notice_foo"), Some("_notice"));
        assert_eq!(
            name(b"_notice_context_enter_now"),
            Some("_notice_context_enter")
        );
        assert_eq!(name(b"_noticed"), None);
        assert_eq!(name(b"_presence"), None);
        assert_eq!(name(b"m"), None);
        assert_eq!(Method::from_name(b"_data_x").unwrap().flags().bits(), 0);
        assert_eq!(
            Method::from_name(b"_message_action")
                .unwrap()
                .flags()
                .bits(),
            28
        );
        assert_eq!(Method::from_name(b"_echo").unwrap().flags().bits(), 7);
        assert_eq!(Method::from_name(b"_error").unwrap().flags().bits(), 15);
        assert_eq!(Method::from_name(b"_request").unwrap().flags().bits(), 13);
        assert!(MethodFamily::Info.flags().contains(MethodFlags::REPLY));
    }
}
