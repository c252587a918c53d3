//! Verdicts as rows, and their exit codes.

use std::borrow::Cow;

use weir::limits::{
    EMIT_BYTES_DEFAULT, EMITS_DEFAULT, FUEL_DEFAULT, FUEL_MAX, FUEL_OPTION_MAX_DEFAULT,
    KEY_BYTES_MAX, STATE_BYTES_DEFAULT, STATE_ENTRIES_DEFAULT, VALUE_BYTES_MAX,
};
use weir::{Commit, Detail, Effect, ErrorCode, TopicOptions, Weir};

use crate::output::{Cell, Field, field, wide};
use crate::report::Failure;

/// Exit code of a verdict that is not VALID.
pub(crate) const NOT_VALID: u8 = 3;

/// Fields of a verdict.
pub(crate) const FIELDS: &[Field] = &[
    field("effect", "text", "VALID, INVALID or ERROR"),
    field("topic", "text", "name of the topic"),
    field(
        "offset",
        "number",
        "offset of the first record that was written, null: none",
    ),
    wide("records", "number", "number of records that were written"),
    field(
        "intention",
        "number",
        "position of the intention in the order of the store",
    ),
    field(
        "reason",
        "text",
        "why the verdict is not VALID; null if it is VALID",
    ),
    field("detail", "text", "details of the reason, null: none"),
    wide(
        "nonce",
        "number",
        "number of the intention in its session; 0 without a session",
    ),
    wide(
        "replayed",
        "bool",
        "whether this is the stored verdict of an earlier attempt",
    ),
    wide(
        "fuel",
        "number",
        "fuel that the program of the topic used; 0 without a program, or if replayed",
    ),
];

/// The detail of the verdict for a REPLACE in a topic without a program.
const PLAIN: &str = "the topic has no program to replace";

/// The row of a verdict.
pub(crate) fn row<'a>(topic: &'a str, commit: &Commit, replayed: bool) -> [Cell<'a>; 10] {
    let offset = (commit.records > 0).then_some(commit.first.0);
    let detail = detail(&commit.detail);
    [
        Cell::Text(Cow::Borrowed(commit.effect.name())),
        Cell::Text(Cow::Borrowed(topic)),
        offset.map_or(Cell::Nothing, Cell::Count),
        Cell::Count(u64::from(commit.records)),
        Cell::Count(commit.intention.0),
        commit.reason.map_or(Cell::Nothing, |reason| {
            Cell::Text(Cow::Borrowed(reason.name()))
        }),
        detail.map_or(Cell::Nothing, |text| Cell::Text(Cow::Owned(text))),
        Cell::Count(commit.nonce),
        Cell::Flag(replayed),
        Cell::Count(commit.fuel),
    ]
}

/// The detail of a verdict for people, beyond its reason; `None` if it has none.
pub(crate) fn detail(detail: &Detail) -> Option<String> {
    (*detail != Detail::None).then(|| detail.to_string())
}

/// The failure for a verdict that is not VALID.
pub(crate) fn failure(topic: &str, commit: &Commit) -> Option<Failure> {
    if commit.effect == Effect::Valid {
        return None;
    }
    let code = commit.reason.unwrap_or(ErrorCode::Internal);
    let what = format!("{} {} in {topic}", commit.effect.name(), code.name());
    let failure = Failure::new(code, what);
    Some(match detail(&commit.detail) {
        Some(detail) => failure.because(format!("{} ({detail})", code.sentence())),
        None => failure,
    })
}

/// Like `failure`, with advice that uses the options of the topic.
pub(crate) fn failure_in(weir: &Weir, topic: &str, commit: &Commit) -> Option<Failure> {
    let failure = failure(topic, commit)?;
    let intention = commit.intention.0;
    let advice = match (commit.reason, &commit.detail) {
        (Some(ErrorCode::Trap), _) => Some(format!(
            "see what the program did, and where: `weir program trace {topic} {intention}`"
        )),
        (Some(ErrorCode::OutOfFuel), _) => {
            let info = weir.topic(topic).and_then(|topic| topic.try_info());
            let set = info.ok().flatten().map(|info| info.options.program);
            let fuel = set.and_then(|set| set.fuel_max).unwrap_or(FUEL_DEFAULT);
            Some(fuel_advice(topic, intention, fuel))
        }
        (Some(ErrorCode::Rejected), _) => Some(format!(
            "change what was sent; `weir program trace {topic} {intention}` shows what the program did"
        )),
        (Some(ErrorCode::TopicExists), _) => Some(match weir.program(topic) {
            Ok(Some(_)) => format!(
                "use the existing topic; `weir program replace {topic} FILE` replaces its program, \
                     `weir topic rm {topic}` removes it"
            ),
            _ => format!(
                "use the existing topic, or remove it first (`weir topic rm {topic}`); a topic \
                     gets a program only when it is created"
            ),
        }),
        (Some(ErrorCode::BadProgram), Detail::Text(text)) if &**text == PLAIN => Some(format!(
            "a plain topic gets no program: `weir program deploy` makes one with a program under \
             another name, or under this one after `weir topic rm {topic}`"
        )),
        (Some(ErrorCode::Conflict), Detail::Text(_)) => Some(format!(
            "see which program runs there (`weir program show {topic}`), and give its sha256 to --expect"
        )),
        (Some(ErrorCode::Limit), Detail::Limit(max)) => {
            let info = weir.topic(topic).and_then(|topic| topic.try_info());
            let options = info.ok().flatten().map(|info| info.options);
            let names = options.map(|options| of_limit(&options, *max));
            names.filter(|names| !names.is_empty()).map(|names| {
                let first = names.first().copied().unwrap_or_default();
                format!(
                    "the limit is that of the option {}; `weir topic set {topic} {first}=N` changes it",
                    names.join(" or ")
                )
            })
        }
        _ => None,
    };
    Some(match advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    })
}

/// The advice for a program that used up the fuel of a call.
fn fuel_advice(topic: &str, intention: u64, fuel: u64) -> String {
    let raise = if fuel < FUEL_OPTION_MAX_DEFAULT {
        format!("`weir topic set {topic} fuel-max=N` raises it")
    } else if fuel < FUEL_MAX {
        "only a server with a higher `program_fuel_max` accepts more, so do less in one call"
            .to_owned()
    } else {
        "this is the maximum, so do less in one call".to_owned()
    };
    format!(
        "the option fuel-max is {fuel}; {raise}; `weir program trace {topic} {intention}` shows what the \
         program did, and where"
    )
}

/// The topic options that are set to `max`. If there are none, the unset options whose default is
/// `max`.
fn of_limit(options: &TopicOptions, max: u64) -> Vec<&'static str> {
    let program = &options.program;
    let all = [
        ("key-bytes-max", options.key_bytes_max, KEY_BYTES_MAX as u64),
        (
            "value-bytes-max",
            options.value_bytes_max,
            VALUE_BYTES_MAX as u64,
        ),
        ("keys-max", options.keys_max, 0),
        ("emits-max", program.emits_max, EMITS_DEFAULT),
        ("emit-bytes-max", program.emit_bytes_max, EMIT_BYTES_DEFAULT),
        (
            "state-entries-max",
            program.state_entries_max,
            STATE_ENTRIES_DEFAULT,
        ),
        (
            "state-bytes-max",
            program.state_bytes_max,
            STATE_BYTES_DEFAULT,
        ),
        ("fuel-max", program.fuel_max, FUEL_DEFAULT),
    ];
    let set = all.iter().filter(|(_, set, _)| *set == Some(max));
    let set: Vec<_> = set.map(|(name, ..)| *name).collect();
    if !set.is_empty() {
        return set;
    }
    let by_default = all
        .iter()
        .filter(|(_, set, default)| set.is_none() && *default == max);
    by_default.map(|(name, ..)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuel_at_its_maximum_cannot_be_raised() {
        for (fuel, expected) in [
            (
                FUEL_OPTION_MAX_DEFAULT - 1,
                "`weir topic set t fuel-max=N` raises it; ",
            ),
            (
                FUEL_OPTION_MAX_DEFAULT,
                "; only a server with a higher `program_fuel_max`",
            ),
            (FUEL_MAX, "; this is the maximum, so do less in one call; "),
        ] {
            let advice = fuel_advice("t", 7, fuel);
            assert!(advice.contains(expected), "{advice}");
            assert!(advice.contains("`weir program trace t 7`"), "{advice}");
        }
    }

    #[test]
    fn a_limit_names_its_option() {
        let mut options = TopicOptions::default();
        assert_eq!(of_limit(&options, EMITS_DEFAULT), ["emits-max"]);
        assert!(of_limit(&options, 5).is_empty());
        options.program.emits_max = Some(5);
        options.keys_max = Some(EMITS_DEFAULT);
        assert_eq!(of_limit(&options, 5), ["emits-max"]);
        assert_eq!(of_limit(&options, EMITS_DEFAULT), ["keys-max"]);
    }
}
