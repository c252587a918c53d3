//! The type of a variable, which the first subword of its name decides, and the numbers of values.

use core::fmt;

use crate::class::is_digit;
use crate::keyword;

/// The type of the value of a variable. A value without a type is opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VarType {
    /// `_amount`: signed decimal integer.
    Amount = 1,
    /// `_color`: colour name or `#rrggbb`.
    Color = 2,
    /// `_counter`: signed decimal integer.
    Counter = 3,
    /// `_date`: signed decimal seconds since the PSYC epoch.
    Date = 4,
    /// `_degree`: one digit.
    Degree = 5,
    /// `_dict`: dict.
    Dict = 6,
    /// `_entity`: uniform.
    Entity = 7,
    /// `_flag`: `0` or `1`.
    Flag = 8,
    /// `_language`: language tag.
    Language = 9,
    /// `_list`: list.
    List = 10,
    /// `_nick`: name for display.
    Nick = 11,
    /// `_page`: URL.
    Page = 12,
    /// `_struct`: struct, written as a list.
    Struct = 13,
    /// `_time`: signed decimal seconds, a duration.
    Time = 14,
    /// `_uniform`: uniform.
    Uniform = 15,
}

const TYPES: [(&str, VarType); 15] = [
    ("_amount", VarType::Amount),
    ("_color", VarType::Color),
    ("_counter", VarType::Counter),
    ("_date", VarType::Date),
    ("_degree", VarType::Degree),
    ("_dict", VarType::Dict),
    ("_entity", VarType::Entity),
    ("_flag", VarType::Flag),
    ("_language", VarType::Language),
    ("_list", VarType::List),
    ("_nick", VarType::Nick),
    ("_page", VarType::Page),
    ("_struct", VarType::Struct),
    ("_time", VarType::Time),
    ("_uniform", VarType::Uniform),
];

impl VarType {
    /// The type of the variable or element type with the name `name`.
    pub fn from_name(name: &[u8]) -> Option<VarType> {
        keyword::lookup(&TYPES, name).map(|&(_, ty)| ty)
    }

    /// The name prefix of the type.
    pub fn prefix(self) -> &'static str {
        TYPES
            .iter()
            .find(|(_, ty)| *ty == self)
            .map_or("", |(prefix, _)| prefix)
    }

    /// The number of the type, from 1. No type has the number 0.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// Whether `name` is `_list` or starts with `_list_`.
pub fn is_list(name: &[u8]) -> bool {
    name.strip_prefix(b"_list")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_"))
}

/// A number is malformed or does not fit. There is never a partial result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberError;

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a decimal number of 64 bits")
    }
}

impl core::error::Error for NumberError {}

/// Reads an integer of at most 64 bits: optional `-`, at least one digit, no other bytes.
pub fn parse_integer(bytes: &[u8]) -> Result<i64, NumberError> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let magnitude = i128::from(parse_unsigned(digits)?);
    let number = if digits.len() == bytes.len() {
        magnitude
    } else {
        -magnitude
    };
    i64::try_from(number).map_err(|_| NumberError)
}

/// Reads a list index: `#` and an unsigned number.
pub fn parse_list_index(bytes: &[u8]) -> Result<u64, NumberError> {
    parse_unsigned(bytes.strip_prefix(b"#").ok_or(NumberError)?)
}

fn parse_unsigned(digits: &[u8]) -> Result<u64, NumberError> {
    if digits.is_empty() {
        return Err(NumberError);
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = if is_digit(byte) {
            u64::from(byte - b'0')
        } else {
            return Err(NumberError);
        };
        let next = number
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(digit));
        next.ok_or(NumberError)
    })
}

/// The PSYC epoch in Unix seconds.
pub const EPOCH: i64 = 1_440_444_041;

/// Converts a `_date` value to Unix seconds.
pub fn parse_date(bytes: &[u8]) -> Result<i64, NumberError> {
    parse_integer(bytes)?.checked_add(EPOCH).ok_or(NumberError)
}

/// Converts Unix seconds to the number of a `_date` value.
pub fn date_from_unix(seconds: i64) -> Result<i64, NumberError> {
    seconds.checked_sub(EPOCH).ok_or(NumberError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_name_ignores_further_subwords() {
        for (at, (prefix, ty)) in TYPES.iter().enumerate() {
            assert_eq!(VarType::from_name(prefix.as_bytes()), Some(*ty));
            assert_eq!(ty.prefix(), *prefix);
            assert_eq!(usize::from(ty.number()), at + 1);
            let longer = alloc::format!("{prefix}_x_y");
            assert_eq!(VarType::from_name(longer.as_bytes()), Some(*ty));
        }
        for none in ["_colorful", "_x_color", "color", "_list_", "_listfoo", ""] {
            assert_eq!(VarType::from_name(none.as_bytes()), None, "{none}");
        }
        assert!(is_list(b"_list") && is_list(b"_list_x") && is_list(b"_list_"));
        assert!(!is_list(b"_listfoo") && !is_list(b"_lis") && !is_list(b"list"));
    }

    #[test]
    fn parse_integer_rejects_overflow_and_trailing_bytes() {
        for (text, number) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("-12", Ok(-12)),
            ("007", Ok(7)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(NumberError)),
            ("-9223372036854775809", Err(NumberError)),
            ("99999999999999999999999", Err(NumberError)),
            ("", Err(NumberError)),
            ("-", Err(NumberError)),
            ("--1", Err(NumberError)),
            ("1x", Err(NumberError)),
            ("+1", Err(NumberError)),
            (" 1", Err(NumberError)),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), number, "{text}");
        }
        assert_eq!(parse_list_index(b"#12"), Ok(12));
        assert_eq!(parse_list_index(b"#18446744073709551615"), Ok(u64::MAX));
        for bad in ["12", "#", "#-1", "#1x", "#18446744073709551616"] {
            assert_eq!(parse_list_index(bad.as_bytes()), Err(NumberError), "{bad}");
        }
        assert_eq!(parse_date(b"0"), Ok(EPOCH));
        assert_eq!(parse_date(b"-1440444041"), Ok(0));
        assert_eq!(date_from_unix(EPOCH + 5), Ok(5));
        assert_eq!(parse_date(b"9223372036854775807"), Err(NumberError));
        assert_eq!(date_from_unix(i64::MIN), Err(NumberError));
    }
}
