//! Options of a topic as words.

use weir::{Compaction, ErrorCode, TopicOptions};

use crate::report::Failure;
use crate::settings;

/// The names, as typed.
const NAMES: &str = "compaction, tombstone-ttl, compaction-lag, key-bytes-max, \
                     value-bytes-max, keys-max";

/// Reads `NAME=VALUE` words on top of what holds now.
pub(super) fn parse(words: &[String], now: &TopicOptions) -> anyhow::Result<TopicOptions> {
    let mut options = now.clone();
    for word in words {
        set(&mut options, word).map_err(|why| {
            Failure::new(
                ErrorCode::BadOption,
                format!("cannot use the option {word}"),
            )
            .because(why)
        })?;
    }
    options.check().map_err(|name| {
        let what = format!("cannot use the option {name}");
        Failure::new(ErrorCode::BadOption, what).because("it is zero or over the limit")
    })?;
    Ok(options)
}

fn set(options: &mut TopicOptions, word: &str) -> Result<(), String> {
    let pair = word.split_once('=');
    let (name, text) = pair.ok_or_else(|| "an option has the form NAME=VALUE".to_owned())?;
    let time = || -> Result<Option<u64>, String> {
        optional(text, |text| {
            let ms = settings::duration(text)?.as_millis();
            u64::try_from(ms).map_err(|_| "too long".to_owned())
        })
    };
    match name.replace('_', "-").as_str() {
        "compaction" => {
            options.compaction = match text {
                "off" | "none" => Compaction::Off,
                "latest" => Compaction::Latest,
                _ => return Err(format!("{text} is neither off nor latest")),
            };
        }
        "tombstone-ttl" | "tombstone-ttl-ms" => options.tombstone_ttl_ms = time()?,
        "compaction-lag" | "compaction-lag-ms" => options.compaction_lag_ms = time()?,
        "key-bytes-max" => options.key_bytes_max = optional(text, settings::size)?,
        "value-bytes-max" => options.value_bytes_max = optional(text, settings::size)?,
        "keys-max" => {
            let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number"));
            options.keys_max = optional(text, number)?;
        }
        _ => return Err(format!("the options are {NAMES}")),
    }
    Ok(())
}

fn optional(
    text: &str,
    parse: impl FnOnce(&str) -> Result<u64, String>,
) -> Result<Option<u64>, String> {
    match text {
        "none" => Ok(None),
        text => parse(text).map(Some),
    }
}

/// The compaction in words.
pub(super) fn compaction(options: &TopicOptions) -> &'static str {
    match options.compaction {
        Compaction::Off => "off",
        Compaction::Latest => "latest",
    }
}

/// The options that are set, as JSON.
pub(crate) fn json(options: &TopicOptions) -> String {
    let mut members = vec![format!("\"compaction\":\"{}\"", compaction(options))];
    let mut number = |name: &str, value: Option<u64>| {
        members.extend(value.map(|value| format!("\"{name}\":{value}")));
    };
    number("tombstone_ttl_ms", options.tombstone_ttl_ms);
    number("compaction_lag_ms", options.compaction_lag_ms);
    number("key_bytes_max", options.key_bytes_max);
    number("value_bytes_max", options.value_bytes_max);
    number("keys_max", options.keys_max);
    format!("{{{}}}", members.join(","))
}
