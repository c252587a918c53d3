//! Parses arguments: options of topics and groups in the form `NAME=VALUE`, and their values.
//!
//! An option has its name in the HTTP API, with `-` for `_`. The name of a duration has no unit,
//! because the value has one. `none` resets an option.

use weir::{ErrorCode, PositionError, ReadFrom, units};

use crate::report::Failure;

/// Calls `set` with the name and the value of each `NAME=VALUE` argument.
pub(crate) fn each_option(
    list: &[String],
    mut set: impl FnMut(&str, &str) -> Result<(), String>,
) -> anyhow::Result<()> {
    for argument in list {
        let pair = argument.split_once('=');
        let pair = pair.ok_or_else(|| "an option has the form NAME=VALUE".to_owned());
        pair.and_then(|(name, value)| set(name, value))
            .map_err(|why| {
                let what = format!("cannot use the option {argument}");
                Failure::new(ErrorCode::BadOption, what).because(why)
            })?;
    }
    Ok(())
}

/// Parses a duration. Returns milliseconds.
pub(crate) fn time_ms(text: &str) -> Result<u64, String> {
    let time = units::duration(text).map_err(|error| error.to_string())?;
    u64::try_from(time.as_millis()).map_err(|_| format!("{text} is too long"))
}

/// Parses a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|error| error.to_string())
}

/// Parses an integer.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

/// Parses a value, or `None` for `none`.
pub(crate) fn optional<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    match text {
        "none" => Ok(None),
        text => parse(text).map(Some),
    }
}

/// Parses the start position of an argument.
pub(crate) fn position(text: &str) -> Result<ReadFrom, PositionError> {
    ReadFrom::parse(text)
}
