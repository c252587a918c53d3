//! Parses the options of a group.

use weir::{GroupMode, ReadFrom, limits};

use crate::arguments::{self, number, optional, time_ms};

/// The names of the options, as typed.
const NAMES: &str = "mode, from, lease, attempts-max, pending-max, dead-letters";

/// The options for the creation of a group.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// How the members share the topic.
    pub(super) mode: GroupMode,
    /// The first record that the group delivers.
    pub(super) from: ReadFrom,
    /// Lease of a claim in milliseconds; `None`: the default of the mode.
    pub(super) lease_ms: Option<u64>,
    /// Maximum deliveries of a record; `None`: unlimited.
    pub(super) attempts_max: Option<u32>,
    /// Maximum claimed records that are not acknowledged; `None`: the default.
    pub(super) pending_max: Option<u32>,
    /// Topic for dead letters; `None`: none.
    pub(super) dead_letters: Option<String>,
}

/// Parses arguments of the form `NAME=VALUE`.
pub(super) fn parse(list: &[String]) -> anyhow::Result<Options> {
    let mut options = Options {
        mode: GroupMode::Shared,
        from: ReadFrom::Start,
        lease_ms: None,
        attempts_max: None,
        pending_max: None,
        dead_letters: None,
    };
    arguments::each_option(list, |name, value| set(&mut options, name, value))?;
    Ok(options)
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<(), String> {
    match name {
        "mode" => {
            let modes = [GroupMode::Shared, GroupMode::Keyed, GroupMode::Exclusive];
            let mode = modes.into_iter().find(|mode| mode.name() == value);
            options.mode = mode.ok_or_else(|| {
                format!("{value} is not a mode; the modes are shared, keyed and exclusive")
            })?;
        }
        "from" => options.from = ReadFrom::parse(value).map_err(|error| error.to_string())?,
        "lease" => options.lease_ms = optional(value, lease_ms)?,
        "attempts-max" => options.attempts_max = optional(value, count)?,
        "pending-max" => options.pending_max = optional(value, count)?,
        "dead-letters" => options.dead_letters = optional(value, |name| Ok(name.to_owned()))?,
        _ => return Err(format!("the options are {NAMES}")),
    }
    Ok(())
}

fn lease_ms(text: &str) -> Result<u64, String> {
    let ms = time_ms(text)?;
    if !(1..=limits::GROUP_LEASE_MS_MAX).contains(&ms) {
        return Err(format!("{text} is not from 1ms to 24h"));
    }
    Ok(ms)
}

fn count(text: &str) -> Result<u32, String> {
    let count = number(text)?;
    u32::try_from(count).map_err(|_| format!("{text} is too large"))
}
