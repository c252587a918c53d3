//! Options by name, as Python passes them.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};
use weir::{Compaction, Durability, GroupMode, GroupName, TopicOptions};

use crate::error::{Answer, Failure};

/// The durability level with the given name.
pub(crate) fn durability(name: &str, interval_ms: u64) -> Answer<Durability> {
    match name {
        "group" => Ok(Durability::Group),
        "each" => Ok(Durability::Each),
        "interval" => Ok(Durability::Interval(Duration::from_millis(interval_ms))),
        "memory" => Ok(Durability::Memory),
        _ => Err(Failure::option("durability", name)),
    }
}

/// The mode of a group with the given name.
pub(crate) fn mode(name: &str) -> Answer<GroupMode> {
    [GroupMode::Exclusive, GroupMode::Keyed, GroupMode::Shared]
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or_else(|| Failure::option("mode", name))
}

/// Options of a topic from keyword arguments; None means "not set".
pub(crate) fn topic(options: Option<&Bound<'_, PyDict>>) -> PyResult<TopicOptions> {
    let mut made = TopicOptions::default();
    for (name, value) in options
        .into_iter()
        .flat_map(pyo3::types::PyDictMethods::iter)
    {
        let name: String = name.extract()?;
        let number = |value: &Bound<'_, PyAny>| value.extract::<Option<u64>>();
        match name.as_str() {
            "compaction" => {
                made.compaction = match value.extract::<&str>()? {
                    "off" => Compaction::Off,
                    "latest" => Compaction::Latest,
                    other => return Err(Failure::option("compaction", other).into()),
                };
            }
            "tombstone_ttl_ms" => made.tombstone_ttl_ms = number(&value)?,
            "compaction_lag_ms" => made.compaction_lag_ms = number(&value)?,
            "key_bytes_max" => made.key_bytes_max = number(&value)?,
            "value_bytes_max" => made.value_bytes_max = number(&value)?,
            "keys_max" => made.keys_max = number(&value)?,
            "retention_age_ms" => made.retention.age_ms = number(&value)?,
            "retention_bytes" => made.retention.bytes = number(&value)?,
            "retention_records" => made.retention.records = number(&value)?,
            "hold_for_groups" => {
                let mut groups = Vec::new();
                for name in value.extract::<Vec<String>>()? {
                    let wrong = || Failure::option("hold_for_groups", &name);
                    groups.push(GroupName::new(&name).ok_or_else(wrong)?);
                }
                groups.sort();
                groups.dedup();
                made.retention.hold_for_groups = groups;
            }
            "fuel_max" => made.program.fuel_max = number(&value)?,
            "memory_bytes_max" => made.program.memory_bytes_max = number(&value)?,
            "emits_max" => made.program.emits_max = number(&value)?,
            "emit_bytes_max" => made.program.emit_bytes_max = number(&value)?,
            "state_entries_max" => made.program.state_entries_max = number(&value)?,
            "state_bytes_max" => made.program.state_bytes_max = number(&value)?,
            _ => {
                let text = format!("a topic has no option {name:?}");
                return Err(pyo3::exceptions::PyTypeError::new_err(text));
            }
        }
    }
    Ok(made)
}
