//! Parsers of durations and sizes, for flags, environment variables, the configuration file and
//! options of topics.

use std::time::Duration;

/// The error for a text that is not a duration or not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// A duration without a unit.
    #[error("{number} has no unit: write {number}ms, {number}s, {number}m, {number}h or {number}d")]
    NoUnit {
        /// The digits.
        number: String,
    },
    /// An unknown unit.
    #[error("{unit} is not a unit of {of}; the units are {known}")]
    Unit {
        /// The unit in the text.
        unit: String,
        /// The expected quantity: `time` or `size`.
        of: &'static str,
        /// The known units.
        known: &'static str,
    },
    /// Not a whole number, or a number above the maximum.
    #[error("{text} is not a {of} such as {example}")]
    Number {
        /// The whole text.
        text: String,
        /// The expected quantity: `duration` or `size`.
        of: &'static str,
        /// Examples of valid texts.
        example: &'static str,
    },
}

/// Splits a text after its leading digits.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Parses a duration: a whole number with `ms`, `s`, `m`, `h` or `d`.
///
/// # Errors
/// [`UnitError`] without a number, without a unit, with an unknown unit, or for
/// more than `u64::MAX` milliseconds.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let (digits, unit) = split(text);
    let wrong = || UnitError::Number {
        text: text.to_owned(),
        of: "duration",
        example: "500ms or 2s",
    };
    if digits.is_empty() {
        return Err(wrong());
    }
    let ms = match unit {
        "" => {
            let number = digits.to_owned();
            return Err(UnitError::NoUnit { number });
        }
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => {
            return Err(UnitError::Unit {
                unit: unit.to_owned(),
                of: "time",
                known: "ms, s, m, h and d",
            });
        }
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(ms)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

/// Parses a size: a whole number, with `B`, `KiB`, `MiB` or `GiB`. Without a unit, the number is in
/// bytes.
///
/// # Errors
/// [`UnitError`] without a number, with an unknown unit, or for more than
/// `u64::MAX` bytes.
pub fn size(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split(text);
    let wrong = || UnitError::Number {
        text: text.to_owned(),
        of: "size",
        example: "4096 or 64MiB",
    };
    if digits.is_empty() {
        return Err(wrong());
    }
    let bytes = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => {
            return Err(UnitError::Unit {
                unit: unit.to_owned(),
                of: "size",
                known: "B, KiB, MiB and GiB",
            });
        }
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(bytes).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("3d"), Ok(Duration::from_hours(72)));
        for text in [
            "2",
            "0",
            "s",
            "",
            "2 s",
            "2min",
            "-1s",
            "1.5s",
            "99999999999999999d",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        let advice = duration("2").map_err(|error| error.to_string());
        let wanted = "2 has no unit: write 2ms, 2s, 2m, 2h or 2d";
        assert_eq!(advice, Err(wanted.to_owned()));
    }

    #[test]
    fn a_size_is_bytes_or_has_a_binary_unit() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("7B"), Ok(7));
        assert_eq!(size("64MiB"), Ok(64 << 20));
        for text in ["", "MiB", "1K", "1GB", "1.5MiB", "18446744073709551615GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
