//! The source data: one week of earthquakes, compiled into the program.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde_json::Value;
use serde_json::value::RawValue;

/// A `GeoJSON` collection of the US Geological Survey, byte for byte as
/// published (see `data/README.md`).
const SOURCE: &[u8] = include_bytes!("../../../../data/earthquakes.json");

/// One earthquake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quake {
    /// Its id, unique in the source.
    pub(super) id: &'static str,
    /// Code of the seismic network that reported it.
    pub(super) network: &'static str,
    /// Milliseconds since 1970, unique in the source.
    pub(super) time_ms: u64,
    /// Magnitude.
    pub(super) magnitude: f64,
    /// The feature's exact bytes in the source.
    pub(super) bytes: &'static [u8],
}

/// All earthquakes, oldest first.
#[derive(Debug)]
pub(super) struct Quakes {
    all: Vec<Quake>,
    networks: BTreeMap<&'static str, Vec<Quake>>,
}

impl Quakes {
    /// Parses the source.
    pub(super) fn read() -> anyhow::Result<Self> {
        let parts: BTreeMap<&str, &'static RawValue> =
            serde_json::from_slice(SOURCE).context("the earthquakes in this program")?;
        let features = parts.get("features").context("no features")?.get();
        let features: Vec<&'static RawValue> = serde_json::from_str(features)?;
        let mut all = Vec::with_capacity(features.len());
        for feature in features {
            all.push(quake(feature).context("a feature without id, network, time or magnitude")?);
        }
        all.sort_unstable_by_key(|quake| quake.time_ms);
        let mut networks: BTreeMap<&str, Vec<Quake>> = BTreeMap::new();
        for quake in &all {
            networks.entry(quake.network).or_default().push(*quake);
        }
        ensure!(!all.is_empty(), "the source contains no earthquake");
        Ok(Self { all, networks })
    }

    /// All earthquakes, oldest first.
    pub(super) fn all(&self) -> &[Quake] {
        &self.all
    }

    /// Earthquakes by network, each list oldest first. Networks are in the order of their codes.
    pub(super) fn networks(&self) -> impl Iterator<Item = (&'static str, &[Quake])> {
        self.networks
            .iter()
            .map(|(network, quakes)| (*network, quakes.as_slice()))
    }

    /// Codes of the networks, in order.
    pub(super) fn codes(&self) -> Vec<&'static str> {
        self.networks.keys().copied().collect()
    }

    /// The strongest earthquake.
    pub(super) fn strongest(&self) -> Option<Quake> {
        let stronger = |a: &&Quake, b: &&Quake| a.magnitude.total_cmp(&b.magnitude);
        self.all.iter().max_by(stronger).copied()
    }
}

impl Quake {
    /// Name of the topic of this earthquake.
    pub(super) fn topic(&self) -> String {
        topic(self.network)
    }

    /// This feature with another magnitude.
    pub(super) fn revised(&self, magnitude: &str) -> anyhow::Result<String> {
        let text = std::str::from_utf8(self.bytes)?;
        let (before, rest) = text.split_once("\"mag\":").context("no magnitude")?;
        let (_, after) = rest
            .split_once(',')
            .context("nothing after the magnitude")?;
        Ok(format!("{before}\"mag\":{magnitude},{after}"))
    }
}

/// Name of a network's topic.
pub(super) fn topic(network: &str) -> String {
    format!("quakes.{network}")
}

fn quake(feature: &'static RawValue) -> Option<Quake> {
    let top: BTreeMap<&'static str, &'static RawValue> =
        serde_json::from_str(feature.get()).ok()?;
    let properties: BTreeMap<&'static str, &'static RawValue> =
        serde_json::from_str(top.get("properties")?.get()).ok()?;
    let text = |value: &'static RawValue| serde_json::from_str::<&'static str>(value.get()).ok();
    let number = |name| serde_json::from_str::<Value>(properties.get(name)?.get()).ok();
    Some(Quake {
        id: text(top.get("id")?)?,
        network: text(properties.get("net")?)?,
        time_ms: number("time")?.as_u64()?,
        magnitude: number("mag")?.as_f64()?,
        bytes: feature.get().as_bytes(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_source_has_the_counts_of_its_readme() {
        let quakes = Quakes::read().unwrap();
        assert_eq!(quakes.all().len(), 1707);
        assert_eq!(quakes.networks().count(), 12);
        let strong = quakes.all().iter().filter(|quake| quake.magnitude >= 5.0);
        assert_eq!(strong.count(), 39);
        let mut ids: Vec<&str> = quakes.all().iter().map(|quake| quake.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1707, "ids are unique");
        assert!(quakes.all().is_sorted_by(|a, b| a.time_ms < b.time_ms));
    }

    #[test]
    fn a_revision_changes_the_magnitude_and_nothing_else() {
        let quakes = Quakes::read().unwrap();
        let quake = quakes.strongest().unwrap();
        let revised = quake.revised("9.9").unwrap();
        let old: Value = serde_json::from_slice(quake.bytes).unwrap();
        let mut new: Value = serde_json::from_str(&revised).unwrap();
        assert_eq!(new["properties"]["mag"], 9.9);
        new["properties"]["mag"] = old["properties"]["mag"].clone();
        assert_eq!(new, old);
    }
}
