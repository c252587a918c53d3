//! Chapter "read": reads by key and by prefix.

use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::json;
use weir::Weir;

use super::facts::{Facts, seconds};
use super::output::{DemoOutput, count, time};
use super::quakes::{Quakes, topic};

/// Gets every earthquake by its id, and scans the ids of one network.
pub(super) fn keys(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    quakes: &Quakes,
) -> anyhow::Result<()> {
    output.step("get", |_| {
        let start = Instant::now();
        for quake in quakes.all() {
            let value = weir.topic(&quake.topic())?.get(quake.id)?;
            let value = value.with_context(|| format!("{} has no value", quake.id))?;
            ensure!(
                value.value() == quake.bytes,
                "the value of {} differs from the source",
                quake.id
            );
        }
        let took = start.elapsed();
        let gets = quakes.all().len() as u64;
        facts.insert(
            "get".into(),
            json!({"keys": gets, "seconds": seconds(took)}),
        );
        let line = format!(
            "{} values read by id in {}, each equal to the source byte for byte",
            count(gets),
            time(took)
        );
        Ok((line, ()))
    })?;
    output.step("scan", |_| {
        let mut found = 0;
        for (network, quakes) in quakes.networks() {
            // An id starts with the code of the network that assigned it. Another network may have
            // reported the earthquake.
            let mut wanted: Vec<&[u8]> = quakes.iter().map(|quake| quake.id.as_bytes()).collect();
            wanted.retain(|id| id.starts_with(network.as_bytes()));
            wanted.sort_unstable();
            let entries =
                weir.topic(&topic(network))?
                    .scan(network.as_bytes(), None, usize::MAX)?;
            let keys: Vec<&[u8]> = entries.iter().map(|entry| &*entry.key).collect();
            ensure!(
                keys == wanted,
                "the scan of {network} is not the sorted list of ids"
            );
            found += keys.len() as u64;
        }
        facts.insert("scan".into(), json!({"keys": found}));
        let line = format!("{} ids found by prefix, in byte order", count(found));
        Ok((line, ()))
    })
}
