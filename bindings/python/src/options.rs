//! Options by name, as Python passes them.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};
use weir::{Compaction, Consistency, Durability, GroupMode, GroupName, TopicOptions};

use crate::error::{Failure, Result};

/// The durability level with the given name.
pub(crate) fn durability(name: &str, interval_ms: u64) -> Result<Durability> {
    match name {
        "group" => Ok(Durability::Group),
        "each" => Ok(Durability::Each),
        "interval" => Ok(Durability::Interval(Duration::from_millis(interval_ms))),
        "memory" => Ok(Durability::Memory),
        _ => {
            let words = ["group", "each", "interval", "memory"];
            Err(Failure::word("durability", name, &words))
        }
    }
}

/// The consistency with the given name.
pub(crate) fn consistency(name: &str) -> Result<Consistency> {
    let words = ["local", "leader", "linear"];
    Consistency::from_name(name.as_bytes())
        .ok_or_else(|| Failure::word("consistency", name, &words))
}

/// The mode of a group with the given name.
pub(crate) fn mode(name: &str) -> Result<GroupMode> {
    let modes = [GroupMode::Shared, GroupMode::Keyed, GroupMode::Exclusive];
    let found = modes.into_iter().find(|mode| mode.name() == name);
    found.ok_or_else(|| Failure::word("mode", name, &modes.map(GroupMode::name)))
}

/// Options of a topic from keyword arguments; None means "not set".
pub(crate) fn topic(options: Option<&Bound<'_, PyDict>>) -> PyResult<TopicOptions> {
    let mut parsed = TopicOptions::default();
    for (name, value) in options
        .into_iter()
        .flat_map(pyo3::types::PyDictMethods::iter)
    {
        let name: String = name.extract()?;
        let number = |value: &Bound<'_, PyAny>| value.extract::<Option<u64>>();
        match name.as_str() {
            "compaction" => {
                parsed.compaction = match value.extract::<&str>()? {
                    "off" => Compaction::Off,
                    "latest" => Compaction::Latest,
                    other => {
                        let words = ["off", "latest"];
                        return Err(Failure::word("compaction", other, &words).into());
                    }
                };
            }
            "tombstone_ttl_ms" => parsed.tombstone_ttl_ms = number(&value)?,
            "compaction_lag_ms" => parsed.compaction_lag_ms = number(&value)?,
            "key_bytes_max" => parsed.key_bytes_max = number(&value)?,
            "value_bytes_max" => parsed.value_bytes_max = number(&value)?,
            "keys_max" => parsed.keys_max = number(&value)?,
            "retention_age_ms" => parsed.retention.age_ms = number(&value)?,
            "retention_bytes" => parsed.retention.bytes = number(&value)?,
            "retention_records" => parsed.retention.records = number(&value)?,
            "hold_for_groups" => {
                let mut groups = Vec::new();
                for name in value.extract::<Vec<String>>()? {
                    let invalid = || Failure::option("hold_for_groups", &name);
                    groups.push(GroupName::new(&name).ok_or_else(invalid)?);
                }
                groups.sort();
                groups.dedup();
                parsed.retention.hold_for_groups = groups;
            }
            "fuel_max" => parsed.program.fuel_max = number(&value)?,
            "memory_bytes_max" => parsed.program.memory_bytes_max = number(&value)?,
            "emits_max" => parsed.program.emits_max = number(&value)?,
            "emit_bytes_max" => parsed.program.emit_bytes_max = number(&value)?,
            "state_entries_max" => parsed.program.state_entries_max = number(&value)?,
            "state_bytes_max" => parsed.program.state_bytes_max = number(&value)?,
            _ => {
                let text = format!("a topic has no option {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(text));
            }
        }
    }
    Ok(parsed)
}
