//! Chapter "strongest": queries over the topics of all networks.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use weir::query::{Bounds, QueryText};
use weir::{TopicQueryOptions, TopicStep, Weir};

use super::facts::{Facts, seconds};
use super::output::{DemoOutput, count, time};
use super::quakes::{Quake, Quakes};

/// Earthquakes that are shown.
const SHOWN: usize = 5;
/// Characters of a place that are shown.
const PLACE_CHARS: usize = 50;
/// Columns of the longest bar.
const BAR_COLUMNS: u64 = 48;
/// Magnitudes with a separate bar; one bar counts all earthquakes below the last one.
const MAGNITUDES: [u32; 6] = [6, 5, 4, 3, 2, 1];

/// Queries all topics for the strongest earthquakes, and counts earthquakes by magnitude.
pub(super) fn run(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    quakes: &Quakes,
) -> anyhow::Result<()> {
    output.step("query", |_| {
        let start = Instant::now();
        let found = results(
            weir,
            QueryText {
                order: "$.properties.mag desc, $.id".to_owned(),
                limit: Some(SHOWN as u64),
                ..QueryText::default()
            },
        )?;
        let took = start.elapsed();
        let mut wanted: Vec<&Quake> = quakes.all().iter().collect();
        let weaker = |a: &Quake, b: &Quake| b.magnitude.total_cmp(&a.magnitude);
        wanted.sort_unstable_by(|a, b| weaker(a, b).then(a.id.cmp(b.id)));
        wanted.truncate(SHOWN);
        let is_same = wanted.iter().map(|quake| quake.bytes).eq(found.iter());
        ensure!(
            is_same,
            "the strongest earthquakes are not those of the source"
        );
        let mut line = format!(
            "the {SHOWN} strongest of {} earthquakes in all topics, found in {}:",
            count(quakes.all().len() as u64),
            time(took)
        );
        for quake in &found {
            let quake: Value = serde_json::from_slice(quake)?;
            let properties = &quake["properties"];
            let magnitude = properties["mag"].as_f64().context("no magnitude")?;
            let place = properties["place"].as_str().context("no place")?;
            let place: String = place.chars().take(PLACE_CHARS).collect();
            write!(line, "\n                {magnitude:.1}  {place}")?;
        }
        facts.insert(
            "strongest".into(),
            json!({"shown": found.len(), "seconds": seconds(took)}),
        );
        Ok((line, ()))
    })?;
    output.step("count", |_| {
        let mut rows = Vec::new();
        let mut above = None;
        for from in MAGNITUDES.iter().map(Some).chain([None]) {
            let mut filter = from.map_or(String::new(), |n| format!("@.properties.mag >= {n}"));
            if let Some(above) = above {
                let and = if filter.is_empty() { "" } else { " && " };
                write!(filter, "{and}@.properties.mag < {above}")?;
            }
            let is_in = |quake: &&Quake| {
                from.is_none_or(|n| quake.magnitude >= f64::from(*n))
                    && above.is_none_or(|n: u32| quake.magnitude < f64::from(n))
            };
            let wanted = quakes.all().iter().filter(is_in).count() as u64;
            let found = results(
                weir,
                QueryText {
                    filter,
                    select: "count".to_owned(),
                    ..QueryText::default()
                },
            )?;
            let found: Value = serde_json::from_slice(found.first().context("no count")?)?;
            let found = found.as_u64().context("no count")?;
            ensure!(found == wanted, "{found} earthquakes instead of {wanted}");
            let name = from.map_or("less".to_owned(), |n| format!("{n} to {}", n + 1));
            rows.push((name, found));
            above = from.copied();
        }
        let most = rows
            .iter()
            .map(|(_, found)| *found)
            .max()
            .unwrap_or(1)
            .max(1);
        let mut line = "earthquakes by magnitude:".to_owned();
        for (name, found) in &rows {
            let columns = (found * BAR_COLUMNS).div_ceil(most);
            let bar = "█".repeat(usize::try_from(columns)?);
            write!(line, "\n              {name:>6} {:>5} {bar}", count(*found))?;
        }
        let counts: Vec<u64> = rows.iter().map(|(_, found)| *found).collect();
        facts.insert("magnitudes".into(), json!(counts));
        Ok((line, ()))
    })
}

/// The results of a query over all topics with earthquakes.
fn results(weir: &Weir, text: QueryText) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut query = weir.query(TopicQueryOptions::new(["quakes.*"]).text(text))?;
    let mut found = Vec::new();
    loop {
        match query.next(Bounds::default(), None)? {
            TopicStep::Page(page) => {
                let items = page.items().iter();
                found.extend(items.map(|item| page.bytes(item).to_vec()));
            }
            TopicStep::Idle => {}
            TopicStep::Done => return Ok(found),
        }
    }
}
