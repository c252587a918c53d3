//! Errors of a query, and their locations.

use std::fmt;

use weir_scan::PathErrorKind;

use crate::input::SourceId;
use weir_core::error_code::ErrorCode;

/// An error of a query: its code, the location, and the values involved. The code
/// determines the cause and whether a retry can help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    pub(crate) code: ErrorCode,
    /// Boxed, so that a `Result` stays small.
    pub(crate) location: Box<ErrorLocation>,
    pub(crate) detail: Detail,
}

/// The location of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The source, if one was involved.
    pub source: Option<SourceId>,
    /// The name of that source.
    pub name: Box<[u8]>,
    /// Index of the page within its source, from 0.
    pub page: Option<u64>,
    /// Index of the item within its source, from 0.
    pub item: Option<u64>,
    /// Offset of the record in its topic, from 1. If set, `offset` is a byte of its value.
    pub record: Option<u64>,
    /// First wrong byte of the page, or of the text of the query.
    pub offset: Option<u64>,
    /// Field of the query that contains the text.
    pub field: Option<&'static str>,
}

/// The values involved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The sentence of the code is complete.
    #[default]
    None,
    /// An explanation.
    Text(&'static str),
    /// The expected input.
    Expected(&'static str),
    /// A name or a value of the caller.
    Value(&'static str, Box<str>),
    /// Names of sources.
    Names(Vec<Box<str>>),
    /// A limit was exceeded.
    Limit {
        what: &'static str,
        max: u64,
        found: u64,
    },
}

/// Maximum number of names that the text of an error lists.
const NAMES_SHOWN_MAX: usize = 16;
/// Explains `TOO_COMPLEX`. With the sentence of the code and the location, it fits the 240
/// bytes of a message of the C interface.
const FILTER_STEPS: &str = "the filter takes more steps than the size of the item allows: 128 a byte \
                            and walk (1 to 8 walks), at least 4194304";

const _: () = assert!(
    weir_scan::STEPS_PER_BYTE == 128
        && weir_scan::WALKS_COUNTED_MAX == 8
        && weir_scan::STEPS_MIN == 4_194_304
);

impl QueryError {
    /// The filter exceeded its steps in an item.
    pub(crate) fn out_of_steps() -> Self {
        Self::new(ErrorCode::TooComplex).because(FILTER_STEPS)
    }

    pub(crate) fn new(code: ErrorCode) -> Self {
        Self {
            code,
            location: Box::default(),
            detail: Detail::None,
        }
    }

    /// An error at a byte of the text of a field.
    pub(crate) fn text(
        code: ErrorCode,
        field: &'static str,
        offset: usize,
        what: &'static str,
    ) -> Self {
        let mut error = Self::new(code).because(what).at(offset);
        error.location.field = Some(field);
        error
    }

    /// A limit was exceeded.
    pub(crate) fn limit(code: ErrorCode, what: &'static str, max: u64, found: u64) -> Self {
        let mut error = Self::new(code);
        error.detail = Detail::Limit { what, max, found };
        error
    }

    /// An error about a query as a whole, with an explanation.
    #[must_use]
    pub fn about(code: ErrorCode, what: &'static str) -> Self {
        Self::new(code).because(what)
    }

    pub(crate) fn because(mut self, what: &'static str) -> Self {
        self.detail = Detail::Text(what);
        self
    }

    pub(crate) fn expected(mut self, what: &'static str) -> Self {
        self.detail = Detail::Expected(what);
        self
    }

    pub(crate) fn with_value(mut self, what: &'static str, value: &str) -> Self {
        self.detail = Detail::Value(what, value.into());
        self
    }

    pub(crate) fn naming<'a>(mut self, names: impl Iterator<Item = &'a [u8]>) -> Self {
        let names = names.map(|name| String::from_utf8_lossy(name).into());
        self.detail = Detail::Names(names.collect());
        self
    }

    pub(crate) fn at(mut self, offset: usize) -> Self {
        self.location.offset = Some(offset as u64);
        self
    }

    pub(crate) fn of(mut self, source: SourceId, name: &[u8]) -> Self {
        self.location.source = Some(source);
        self.location.name = name.into();
        self
    }

    /// An error about a record of a topic that another process found.
    #[must_use]
    pub fn of_record(code: ErrorCode, topic: &str, record: u64, byte: Option<u64>) -> Self {
        let error = match code {
            ErrorCode::TooComplex => Self::out_of_steps(),
            _ => Self::new(code),
        };
        error.in_record(topic, record, byte)
    }

    /// Changes the location to a topic as a whole, without positions that depend on how its
    /// records arrived.
    #[must_use]
    pub fn in_topic(mut self, topic: &str) -> Self {
        self.location.name = topic.as_bytes().into();
        self.location.page = None;
        self.location.item = None;
        self.location.offset = None;
        self
    }

    /// Changes the location to a record, instead of page and item.
    #[must_use]
    pub fn in_record(mut self, topic: &str, record: u64, byte: Option<u64>) -> Self {
        self.location.name = topic.as_bytes().into();
        self.location.page = None;
        self.location.item = None;
        self.location.record = Some(record);
        self.location.offset = byte;
        self
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns the location of the error.
    #[must_use]
    pub fn location(&self) -> &ErrorLocation {
        &self.location
    }
}

impl QueryError {
    /// Returns the cause and the values involved, without the location.
    #[must_use]
    pub fn reason(&self) -> String {
        let sentence = self.code.sentence().trim_end_matches('.');
        match &self.detail {
            Detail::None => sentence.to_owned(),
            Detail::Text(what) => format!("{sentence}: {what}"),
            Detail::Expected(what) => format!("{sentence}: expected {what}"),
            Detail::Value(what, value) => format!("{sentence}: {what} `{value}`"),
            Detail::Names(names) => {
                let shown = names.iter().take(NAMES_SHOWN_MAX);
                let shown: Vec<&str> = shown.map(|name| &**name).collect();
                let more = match names.len() - shown.len() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("{sentence}: {}{more}", shown.join(", "))
            }
            Detail::Limit { what, max, found } => {
                format!("{sentence}: {found} {what}, at most {max}")
            }
        }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())?;
        let mut separator = ", at";
        if let Some(offset) = self.location.offset {
            write!(f, "{separator} byte {offset}")?;
            separator = " of";
        }
        if let Some(field) = self.location.field {
            write!(f, "{separator} `{field}`")?;
            separator = " of";
        }
        if let Some(item) = self.location.item {
            write!(f, "{separator} item {item}")?;
            separator = " of";
        }
        if let Some(record) = self.location.record {
            let name = String::from_utf8_lossy(&self.location.name);
            return write!(f, "{separator} record {record} of topic {name}");
        }
        if let Some(page) = self.location.page {
            write!(f, "{separator} page {page}")?;
            separator = " of";
        }
        if let Some(source) = self.location.source {
            if self.location.name.is_empty() {
                write!(f, "{separator} source number {source}")?;
            } else {
                let name = String::from_utf8_lossy(&self.location.name);
                write!(f, "{separator} source {name}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for QueryError {}

/// The code of an error in a path.
#[must_use]
pub fn path_error_code(kind: PathErrorKind) -> ErrorCode {
    match kind {
        PathErrorKind::NotSingular => ErrorCode::NotSingular,
        PathErrorKind::TooComplex(_) => ErrorCode::TooComplex,
        _ => ErrorCode::Syntax,
    }
}

/// An error in a path of a field.
pub(crate) fn path_error(
    field: &'static str,
    at: usize,
    error: &weir_scan::PathError,
) -> QueryError {
    let what = match error.kind {
        PathErrorKind::NotSingular => "a path of names and indexes is needed",
        PathErrorKind::TooComplex(limit) => limit.sentence(),
        PathErrorKind::Syntax(expected) => {
            let mut found = QueryError::new(ErrorCode::Syntax).at(at + error.offset);
            found = found.expected(expected);
            found.location.field = Some(field);
            return found;
        }
        PathErrorKind::UnknownFunction => "unknown function",
        PathErrorKind::WrongType => "wrong type at this position",
        _ => "not understood",
    };
    QueryError::text(path_error_code(error.kind), field, at + error.offset, what)
}
