//! `weir-lab noise`: measures equal work, which shows the noise of the machine and how often the lab
//! finds a difference that does not exist.

use std::io::Write;
use std::path::Path;

use super::make_report;
use super::run::stop_flag;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::runner::{self, Options, Places};

/// Comparisons of one kind: half of all.
const COMPARISONS: u64 = 100;

/// Two copies of a loop.
const TWINS: &str = r#"
[experiment]
name = "noise"
title = "The noise of this machine"
question = "How much do the times of two copies of equal work differ?"
mode = "inproc"
twin = "spin"
foreign_max = 1.0
[[contender]]
name = "spin"
builtin = "spin"
[[workload]]
name = "loop"
params = { units = 100 }
[[workload]]
name = "long-loop"
params = { units = 100000 }
"#;

/// Measures twins: the difference that this machine shows between equal work. With `false_alarms`,
/// makes 200 comparisons of a contender with a copy of itself, and counts those that find a
/// difference.
pub fn noise(
    options: &Options,
    false_alarms: bool,
    places: &Places,
    out: &mut dyn Write,
) -> Result<()> {
    let text = if false_alarms {
        copies()
    } else {
        TWINS.to_owned()
    };
    let experiment = Experiment::parse(&text, Path::new("noise"))?;
    let set = runner::start(&text, experiment, options, places, stop_flag()?, out)?;
    make_report(set.dir(), out)?;
    super::print(out, &format!("results: {}\n", set.dir().display()))
}

/// An experiment with a loop of 100 lengths and packets of 100 sizes. A loop shows noise of the CPU,
/// and a packet also that of caches and memory.
fn copies() -> String {
    let sizes = |first: u64, step: u64| {
        let sizes = (0..COMPARISONS).map(|place| (first + place * step).to_string());
        sizes.collect::<Vec<_>>().join(", ")
    };
    let claims = |contender: &str| {
        let claim = |expect: &str| {
            format!(
                r#"
[[claim]]
text = "the copy is different ({expect})"
compare = ["{contender}-copy", "{contender}"]
expect = "{expect}"
min_effect = 0.01
equal = true
"#
            )
        };
        claim("lower") + &claim("higher")
    };
    format!(
        r#"
[experiment]
name = "equal-work"
title = "Comparisons of contenders with copies of themselves"
question = "How often does the lab find a difference between equal contenders?"
mode = "inproc"
twin = "parse"
foreign_max = 1.0
[[contender]]
name = "loop"
builtin = "spin"
workloads = ["loop-*"]
[[contender]]
name = "loop-copy"
builtin = "spin"
workloads = ["loop-*"]
[[contender]]
name = "parse"
builtin = "weir-psyc"
syntax = "psyc"
answers = "psyc"
workloads = ["packet-*"]
[[contender]]
name = "parse-copy"
builtin = "weir-psyc"
syntax = "psyc"
answers = "psyc"
workloads = ["packet-*"]
[[workload]]
name = "loop-{{size}}"
sizes = [{}]
params = {{ units = "{{size}}" }}
[[workload]]
name = "packet-{{size}}"
generate = "binary-packet"
sizes = [{}]
{}{}"#,
        sizes(200, 10),
        sizes(100, 100),
        claims("loop"),
        claims("parse")
    )
}
