//! Verifies the HTTP contenders: all give equal answers, however a request is split, and no request
//! stalls.
//!
//! | module | content |
//! |---|---|
//! | `vector` | the requests, and the expected answers |
//! | `server` | a server process and connections to it |
//! | `pieces` | every vector whole, cut at every byte, and several at once |
//! | `stall` | the known ways in which servers stall |
//! | `faults` | servers with a deliberate fault, and where each must stall |
//!
//! Invariants: a server counts as silent only after it has answered on other connections meanwhile,
//! so a good server on a slow machine does not fail. Every fault must be detected on its server, so
//! a check that detects nothing fails.

pub mod faults;
pub mod pieces;
pub mod server;
pub mod stall;
pub mod vector;

use std::fs;
use std::io::Write;

use crate::child::guarded;
use crate::error::{LabError, Result};
use crate::experiment::Experiment;
use crate::report::Table;
use crate::runner::{Options, Places};
use server::{Running, SilenceLimit};
use stall::{COLUMNS, Outcome};

/// The experiment whose contenders are checked.
const EXPERIMENT: &str = "http-json";
/// The vectors, below the repository.
const VECTORS: &str = "lab/peers/bench.txt";
/// The program with the faults, among the peers.
const FAULTY: &str = "c-epoll-faulty";

/// The servers of the contenders of the experiment: name and words. The caller that starts a server
/// replaces the last word by a port. A contender that takes part in some workloads only is left
/// out, because it does not serve every endpoint; the check of a run compares its answers.
fn servers(
    experiment: &Experiment,
    places: &Places,
    only: &[String],
) -> Vec<(String, Vec<String>)> {
    let mut servers = Vec::new();
    for contender in &experiment.contenders {
        if !contender.workloads.is_empty() {
            continue;
        }
        let words = contender.command.iter().flatten();
        let mut words = words.map(|word| {
            word.replace("{peers}", &places.peers.display().to_string())
                .replace("{root}", &places.root.display().to_string())
        });
        let client = words.next().unwrap_or_default();
        if client.ends_with("/http-load") && (only.is_empty() || only.contains(&contender.name)) {
            servers.push((contender.name.clone(), words.collect()));
        }
    }
    servers
}

/// Checks every contender of the experiment and prints the results. Fails if a contender, or a
/// faulty server, does not behave as expected.
pub fn contenders(options: &Options, places: &Places, out: &mut dyn Write) -> Result<()> {
    let path = crate::command::find(places, EXPERIMENT)?;
    let experiment = Experiment::read(&path)?;
    let path = places.root.join(VECTORS);
    let text = fs::read_to_string(&path).map_err(LabError::io(&path))?;
    let vectors = vector::read(&text)?;
    let mut print = |text: &str| writeln!(out, "{text}").map_err(LabError::io("standard output"));
    let mut wrong: Option<LabError> = None;
    let heads = std::iter::once("server").chain(COLUMNS.iter().map(|(name, _)| *name));
    let heads: Vec<&str> = heads.collect();
    let mut table = Table::new(&heads);
    for (name, words) in servers(&experiment, places, &options.only) {
        let words = guarded(&places.lab, &words);
        let mut server = Running::start(&name, &words, SilenceLimit::Seconds(5))?;
        match pieces::check(&mut server, &vectors) {
            Ok(count) => print(&format!("{name}: {count} answers are as expected"))?,
            Err(error) => {
                print(&format!("{error}"))?;
                wrong.get_or_insert(error);
            }
        }
        let mut row = vec![name.clone()];
        for (column, check) in COLUMNS {
            let mut server = Running::start(&name, &words, SilenceLimit::Seconds(5))?;
            let outcome = check(&mut server)?;
            if outcome != Outcome::Good {
                let what = format!("{column}: {outcome}");
                wrong.get_or_insert(LabError::contender(&name, what));
            }
            row.push(outcome.to_string());
        }
        table.row(row);
    }
    for (fault, expected) in faults::FAULTS {
        let words = [
            places.peers.join(FAULTY).display().to_string(),
            "--listen".to_owned(),
            "127.0.0.1:{port}".to_owned(),
            "--fault".to_owned(),
            (*fault).to_owned(),
        ];
        let seen = faults::seen(fault, &words)?;
        if seen != *expected {
            let what = format!("expected {expected:?}, saw {seen:?}");
            wrong.get_or_insert(LabError::contender(fault, what));
        }
        let mut row = vec![format!("fault: {fault}")];
        row.extend(seen.iter().map(ToString::to_string));
        table.row(row);
    }
    print(&format!("\n{}", table.render()))?;
    match wrong {
        None => Ok(()),
        Some(error) => Err(LabError::WrongBehaviour {
            what: error.to_string(),
        }),
    }
}
