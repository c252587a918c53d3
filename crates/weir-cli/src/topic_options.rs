//! Parses and prints the options of a topic, as in `fuel-max=2000000`.

use weir::{Compaction, ErrorCode, GroupName, StateMode, TopicOptions};

use crate::arguments::{self, bytes, number, optional, time_ms};
use crate::report::Failure;

/// The names of the options.
const NAMES: &str = "compaction, tombstone-ttl, compaction-lag, key-bytes-max, \
                     value-bytes-max, keys-max, retention-age, retention-bytes, \
                     retention-records, hold-for-groups; for a program state, fuel-max, memory-bytes-max, \
                     emits-max, emit-bytes-max, state-entries-max, state-bytes-max";

/// Parses `NAME=VALUE` arguments, and applies them to the current options.
pub(crate) fn parse(list: &[String], now: &TopicOptions) -> anyhow::Result<TopicOptions> {
    let mut options = now.clone();
    arguments::each_option(list, |name, value| set(&mut options, name, value))?;
    options.check().map_err(|name| {
        let what = format!("cannot use the option {name}");
        Failure::new(ErrorCode::BadOption, what).because("its value is zero or over the limit")
    })?;
    Ok(options)
}

fn set(options: &mut TopicOptions, name: &str, text: &str) -> Result<(), String> {
    let time = || optional(text, time_ms);
    match name {
        "compaction" => {
            options.compaction = match text {
                "off" | "none" => Compaction::Off,
                "latest" => Compaction::Latest,
                _ => return Err(format!("{text} is neither off nor latest")),
            };
        }
        "tombstone-ttl" => options.tombstone_ttl_ms = time()?,
        "compaction-lag" => options.compaction_lag_ms = time()?,
        "key-bytes-max" => options.key_bytes_max = optional(text, bytes)?,
        "value-bytes-max" => options.value_bytes_max = optional(text, bytes)?,
        "keys-max" => options.keys_max = optional(text, number)?,
        "retention-age" => options.retention.age_ms = time()?,
        "retention-bytes" => options.retention.bytes = optional(text, bytes)?,
        "retention-records" => options.retention.records = optional(text, number)?,
        "hold-for-groups" => options.retention.hold_for_groups = groups(text)?,
        "state" => {
            let modes = [StateMode::None, StateMode::Kv, StateMode::Memory];
            let mode = modes.into_iter().find(|mode| mode.name() == text);
            options.program.state =
                mode.ok_or_else(|| format!("{text} is neither none, kv nor memory"))?;
        }
        "fuel-max" => options.program.fuel_max = optional(text, number)?,
        "memory-bytes-max" => {
            options.program.memory_bytes_max = optional(text, bytes)?;
        }
        "emits-max" => options.program.emits_max = optional(text, number)?,
        "emit-bytes-max" => options.program.emit_bytes_max = optional(text, bytes)?,
        "state-entries-max" => options.program.state_entries_max = optional(text, number)?,
        "state-bytes-max" => options.program.state_bytes_max = optional(text, bytes)?,
        _ => return Err(format!("the options are {NAMES}")),
    }
    Ok(())
}

/// Names of groups, in any order.
fn groups(text: &str) -> Result<Vec<GroupName>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let name =
        |name| GroupName::new(name).ok_or_else(|| format!("{name} is not a valid name of a group"));
    let mut names = text.split(',').map(name).collect::<Result<Vec<_>, _>>()?;
    names.sort();
    names.dedup();
    Ok(names)
}

/// The groups that retention waits for, separated by commas; `None` if there are none.
pub(super) fn hold_for_groups(options: &TopicOptions) -> Option<String> {
    let names = &options.retention.hold_for_groups;
    let names: Vec<&str> = names.iter().map(GroupName::as_str).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// The name of a compaction.
pub(super) fn compaction(options: &TopicOptions) -> &'static str {
    match options.compaction {
        Compaction::Off => "off",
        Compaction::Latest => "latest",
    }
}

/// The options that are not at their default, as JSON.
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
    number("retention_age_ms", options.retention.age_ms);
    number("retention_bytes", options.retention.bytes);
    number("retention_records", options.retention.records);
    let program = &options.program;
    number("fuel_max", program.fuel_max);
    number("memory_bytes_max", program.memory_bytes_max);
    number("emits_max", program.emits_max);
    number("emit_bytes_max", program.emit_bytes_max);
    number("state_entries_max", program.state_entries_max);
    number("state_bytes_max", program.state_bytes_max);
    if let Some(names) = hold_for_groups(options) {
        let names = names.replace(',', "\",\"");
        members.push(format!("\"hold_for_groups\":[\"{names}\"]"));
    }
    if program.state != StateMode::default() {
        members.push(format!("\"state\":\"{}\"", program.state.name()));
    }
    format!("{{{}}}", members.join(","))
}
