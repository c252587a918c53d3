//! The results of calls: kinds of success, and errors with the fields of `weir_error`.

use weir::query::QueryError;
use weir::{ErrorCode, NameError, StoreError, WeirError};

use crate::raw;

/// Kinds of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Kind {
    Ok = 1,
    Ready = 2,
    Need = 3,
    Done = 4,
    Timeout = 5,
    Absent = 6,
}

/// A failure, with the contents of `weir_error`. Boxed, so that a result is small.
#[derive(Debug)]
pub(crate) struct Fail(Box<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    pub(crate) source: u32,
    pub(crate) detail: u32,
    pub(crate) offset: u64,
}

impl std::ops::Deref for Fail {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::ops::DerefMut for Fail {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.0
    }
}

impl Fail {
    pub(crate) fn new(code: ErrorCode, message: String) -> Self {
        Self(Box::new(Inner {
            code,
            message,
            source: u32::MAX,
            detail: 0,
            offset: u64::MAX,
        }))
    }

    /// A failure with the sentence of its number.
    pub(crate) fn of(code: ErrorCode) -> Self {
        Self::new(code, code.sentence().trim_end_matches('.').to_owned())
    }

    /// A failure of an option with an invalid value.
    pub(crate) fn option(what: &'static str, value: impl std::fmt::Display) -> Self {
        let sentence = ErrorCode::BadOption.sentence().trim_end_matches('.');
        Self::new(
            ErrorCode::BadOption,
            format!("{sentence}: {what} is {value}"),
        )
    }

    /// The failure, for the element at `index` of an array.
    pub(crate) fn at_index(mut self, index: usize) -> Self {
        self.detail = u32::try_from(index).unwrap_or(u32::MAX);
        self
    }

    /// The number that the call returns.
    pub(crate) fn number(&self) -> i32 {
        number(self.code)
    }
}

impl From<ErrorCode> for Fail {
    fn from(code: ErrorCode) -> Self {
        Self::of(code)
    }
}

/// A failure of the codec, which does not allocate: like [`Fail`] without heap memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) code: ErrorCode,
    pub(crate) detail: u32,
    pub(crate) offset: u64,
    pub(crate) text: &'static str,
}

impl Fault {
    pub(crate) const fn new(code: ErrorCode, text: &'static str) -> Self {
        Self {
            code,
            detail: 0,
            offset: u64::MAX,
            text,
        }
    }

    /// The fault, for the element at `index` of an array.
    pub(crate) fn at_index(mut self, index: usize) -> Self {
        self.detail = u32::try_from(index).unwrap_or(u32::MAX);
        self
    }
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.sentence().trim_end_matches('.'))
    }
}

impl From<Fail> for Fault {
    fn from(fail: Fail) -> Self {
        Self {
            detail: fail.detail,
            offset: fail.offset,
            ..Self::from(fail.code)
        }
    }
}

/// The number of an error, as calls and verdicts return it.
pub(crate) fn number(code: ErrorCode) -> i32 {
    -i32::from(code.number())
}

impl From<QueryError> for Fail {
    fn from(error: QueryError) -> Self {
        let mut fail = Self::new(error.code(), error.to_string());
        let location = error.location();
        fail.source = location.source.map_or(u32::MAX, |source| source.0);
        fail.detail = location
            .item
            .map_or(0, |item| u32::try_from(item).unwrap_or(u32::MAX));
        fail.offset = location.offset.unwrap_or(u64::MAX);
        fail
    }
}

impl From<NameError> for Fail {
    fn from(error: NameError) -> Self {
        Self::new(ErrorCode::BadName, error.to_string())
    }
}

impl From<StoreError> for Fail {
    fn from(error: StoreError) -> Self {
        let mut fail = Self::new(error.code(), error.to_string());
        match &error {
            StoreError::Refused { index, .. } => fail = fail.at_index(*index),
            StoreError::RecordsGone { first, .. } => fail.offset = *first,
            StoreError::Damage { position, .. } => fail.offset = *position,
            _ => {}
        }
        fail
    }
}

impl From<WeirError> for Fail {
    fn from(error: WeirError) -> Self {
        match error {
            WeirError::Store(error) => error.into(),
            WeirError::Query(error) => error.into(),
            WeirError::Nonce { code, expected, .. } => {
                let mut fail = Self::new(code, error.to_string());
                fail.offset = expected;
                fail
            }
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

/// The empty slice.
pub(crate) const EMPTY: raw::Slice = raw::Slice {
    ptr: std::ptr::null(),
    len: 0,
};
