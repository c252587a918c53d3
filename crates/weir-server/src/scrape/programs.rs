//! Metrics of the programs of topics.

use weir_store::ProgramTally;

use crate::metrics::Page;
use crate::shared::Shared;

/// Maximum number of topics whose programs have separate series. Clients choose the names, so a
/// bound is needed.
const TOPICS_MAX: usize = 200;

type Getter = fn(&ProgramTally) -> u64;

/// Verdicts with the labels of their effect and reason.
const VERDICTS: [(&str, &str, Getter); 9] = [
    ("VALID", "", |tally| tally.verdicts.valid),
    ("INVALID", "REJECTED", |tally| tally.verdicts.rejected),
    ("INVALID", "QUOTA", |tally| tally.verdicts.over_quota),
    ("INVALID", "TXN_ABORTED", |tally| tally.verdicts.aborted),
    ("ERROR", "TRAP", |tally| tally.verdicts.trapped),
    ("ERROR", "OUT_OF_FUEL", |tally| tally.verdicts.out_of_fuel),
    ("ERROR", "LIMIT", |tally| tally.verdicts.over_limit),
    ("INVALID", "OTHER", |tally| tally.verdicts.other_invalid),
    ("ERROR", "OTHER", |tally| tally.verdicts.other_error),
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
    let counters: [(&str, &str, Getter); 3] = [
        ("weir_program_calls", "Calls of the program", |tally| {
            tally.counts.calls
        }),
        ("weir_program_fuel", "Fuel of these calls", |tally| {
            tally.counts.fuel
        }),
        (
            "weir_program_traps",
            "Calls that trapped, ran out of fuel or exceeded a limit",
            |tally| tally.counts.traps,
        ),
    ];
    for (name, help, read) in counters {
        page.counter(name, help);
        for tally in &topics {
            // Names of topics contain no character that needs an escape.
            let labels = format!("{{topic=\"{}\"}}", tally.topic);
            page.sample(&format!("{name}_total"), &labels, read(tally));
        }
    }
    let name = "weir_program_writes";
    page.counter(name, "Writes that were passed to the program, by verdict");
    for tally in &topics {
        for (effect, reason, read) in VERDICTS {
            let topic = &tally.topic;
            let labels = format!("{{topic=\"{topic}\",effect=\"{effect}\",reason=\"{reason}\"}}");
            page.sample(&format!("{name}_total"), &labels, read(tally));
        }
    }
}
