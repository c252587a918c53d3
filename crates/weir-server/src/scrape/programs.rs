//! Metrics of the programs of topics.

use weir_store::ProgramTally;

use crate::metrics::Page;
use crate::shared::Shared;

/// Maximum number of topics whose programs have separate series. Clients choose the names, so a
/// bound is needed.
const TOPICS_MAX: usize = 200;

type Read = fn(&ProgramTally) -> u64;

/// Verdicts with the labels of their effect and reason.
const VERDICTS: [(&str, &str, Read); 9] = [
    ("VALID", "", |one| one.verdicts.valid),
    ("INVALID", "REJECTED", |one| one.verdicts.rejected),
    ("INVALID", "QUOTA", |one| one.verdicts.over_quota),
    ("INVALID", "TXN_ABORTED", |one| one.verdicts.aborted),
    ("ERROR", "TRAP", |one| one.verdicts.trapped),
    ("ERROR", "OUT_OF_FUEL", |one| one.verdicts.out_of_fuel),
    ("ERROR", "LIMIT", |one| one.verdicts.over_limit),
    ("INVALID", "OTHER", |one| one.verdicts.other_invalid),
    ("ERROR", "OTHER", |one| one.verdicts.other_error),
];

pub(super) fn programs(page: &mut Page, shared: &Shared) {
    let (topics, count) = shared.store.program_counts(TOPICS_MAX);
    page.family("weir_programs", "gauge", "Topics that have a program");
    page.sample("weir_programs", "", count as u64);
    page.family(
        "weir_programs_left_out",
        "gauge",
        "Topics with a program and without separate series",
    );
    page.sample(
        "weir_programs_left_out",
        "",
        count.saturating_sub(topics.len()) as u64,
    );
    if topics.is_empty() {
        return;
    }
    let counters: [(&str, &str, Read); 3] = [
        ("weir_program_calls", "Calls of the program", |one| {
            one.counts.calls
        }),
        ("weir_program_fuel", "Fuel of these calls", |one| {
            one.counts.fuel
        }),
        (
            "weir_program_traps",
            "Calls that trapped, ran out of fuel or exceeded a limit",
            |one| one.counts.traps,
        ),
    ];
    for (name, help, read) in counters {
        page.counter(name, help);
        for one in &topics {
            // Names of topics contain no character that needs an escape.
            let labels = format!("{{topic=\"{}\"}}", one.topic);
            page.sample(&format!("{name}_total"), &labels, read(one));
        }
    }
    let name = "weir_program_writes";
    page.counter(name, "Writes that the program judged, by verdict");
    for one in &topics {
        for (effect, reason, read) in VERDICTS {
            let topic = &one.topic;
            let labels = format!("{{topic=\"{topic}\",effect=\"{effect}\",reason=\"{reason}\"}}");
            page.sample(&format!("{name}_total"), &labels, read(one));
        }
    }
}
