//! Converts the options of the command line to the fields of a query.

use serde::de::IgnoredAny;
use weir::ReadFrom;
use weir::query::{BadItem, Complex, Level, Missing, Mode, QueryError, QueryText, Strings};

use super::QueryArgs;

/// The fields of the query.
pub(super) fn fields(args: &QueryArgs) -> QueryText {
    QueryText {
        filter: filter(args),
        order: args.order_by.clone(),
        select: args.select.clone(),
        group: args.group_by.clone(),
        distinct: args.distinct,
        offset: args.offset,
        limit: args.limit.filter(|_| args.checkpoint.is_none()),
        top: None,
        params: args.params.clone(),
        strings: if args.utf16 {
            Strings::Utf16
        } else {
            Strings::Scalar
        },
        complex: if args.rank_complex {
            Complex::Rank
        } else {
            Complex::Error
        },
        missing: if args.drop_missing {
            Missing::Drop
        } else {
            Missing::First
        },
        level: args.level.map_or_else(Level::default, Level::from),
        on_bad_item: args
            .on_bad_item
            .map_or_else(BadItem::default, BadItem::from),
        mode: args.mode.map(|mode| match mode {
            super::Mode::Sequential => Mode::Sequential,
            super::Mode::Turns => Mode::RoundRobin,
            super::Mode::Arrival => Mode::Arrival,
        }),
    }
}

/// The filter. With `--latest`, it excludes values from before the time of `--from`.
fn filter(args: &QueryArgs) -> String {
    let (true, Some(ReadFrom::Time(ms))) = (args.latest, args.from) else {
        return args.filter.clone();
    };
    let since = format!("meta('time_ms') >= {ms}");
    match args.filter.trim() {
        "" => since,
        filter => format!("({filter}) && {since}"),
    }
}

/// Parses the position of `--from`.
pub(super) fn parse_from(text: &str) -> Result<ReadFrom, String> {
    ReadFrom::parse(text).map_err(|error| format!("{error}; `--topic` names the topics"))
}

/// Converts an error in the text of the query; names the option that has the error.
pub(crate) fn failed(error: &QueryError) -> anyhow::Error {
    let place = error.location();
    let option = match place.field {
        Some("where") => "--where",
        Some("order") => "--order-by",
        Some("select") => "--select",
        Some("group") => "--group-by",
        _ => return super::query_failure("cannot query".to_owned(), error, error.to_string()),
    };
    super::query_failure(format!("cannot read {option}"), error, error.to_string())
}

/// Parses `NAME=VALUE`. The value is JSON if it is a scalar, else a string.
pub(crate) fn parse_param(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text} has no `=`"))?;
    // A number of any size is JSON, and so is half of a surrogate pair.
    let is_json = serde_json::from_str::<IgnoredAny>(value).is_ok();
    let is_scalar = is_json && !value.trim_start().starts_with(['[', '{']);
    let value = if is_scalar {
        value.to_owned()
    } else {
        serde_json::Value::from(value).to_string()
    };
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::parse_param;

    #[test]
    fn parameters_are_json_or_texts() {
        let check = |text: &str, value: &str| {
            let param = parse_param(text).map(|(_, value)| value);
            assert_eq!(param.as_deref(), Ok(value), "{text}");
        };
        check("a=1", "1");
        check("a=-1e999", "-1e999");
        check("a=\"\\ud83d\"", "\"\\ud83d\"");
        check("a=\"x\"", "\"x\"");
        check("a=open", "\"open\"");
        check("a=[1]", "\"[1]\"");
        check("a=", "\"\"");
        check("a=x=y", "\"x=y\"");
        assert!(parse_param("a").is_err());
    }
}
