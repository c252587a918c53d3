//! Chapters on rejected writes: conditions and transactions.

use anyhow::{Context, ensure};
use serde_json::json;
use weir::{
    Detail, Effect, ErrorCode, Expect, Intention, Operation, TopicOptions, TxnOp, Verdict, Weir,
};

use super::facts::Facts;
use super::output::{DemoOutput, count};
use super::quakes::Quakes;
use super::write::client;

/// Intentions in one call.
const CALL_EVENTS: usize = 500;

/// Two analysts revise the magnitude of one earthquake.
pub(super) fn analysts(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    quakes: &Quakes,
) -> anyhow::Result<()> {
    output.step("revise", |_| {
        let quake = quakes.strongest().context("no earthquake")?;
        let topic = weir.topic(&quake.topic())?;
        let seen = topic
            .get(quake.id)?
            .context("the strongest earthquake is gone")?;
        let seen = seen.record().offset.0;
        let write = |magnitude: &str, offset: u64| -> anyhow::Result<Verdict> {
            let value = quake.revised(magnitude)?;
            Ok(topic.put_if(quake.id, value, &[Expect::KeyOffset(None, offset)])?)
        };
        let first = write("6.5", seen)?;
        let first = offset(&first).context("the first revision was rejected")?;
        let second = write("6.3", seen)?;
        let found = conflict(&second).context("the second revision did not conflict")?;
        ensure!(
            found == first,
            "the conflict names offset {found}, not {first}"
        );
        let again = write("6.3", found)?;
        let again = offset(&again).context("the second revision was rejected again")?;
        let now = topic
            .get(quake.id)?
            .context("the revised earthquake is gone")?;
        ensure!(
            now.record().offset.0 == again,
            "the key is not at the newest revision"
        );
        facts.insert(
            "analysts".into(),
            json!({"earthquake": quake.id, "accepted": 2, "rejected": 1, "seen": seen,
                   "first": first, "found": found, "again": again}),
        );
        let line = format!(
            "2 analysts revise {} at offset {seen}: the first one writes offset {first}; the second \
             one gets a conflict with {first}, retries, and writes offset {again}",
            quake.id
        );
        Ok((line, ()))
    })
}

/// Writes the whole feed a second time. Only new events may be written.
pub(super) fn same_feed(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
    quakes: &Quakes,
) -> anyhow::Result<()> {
    output.step("repeat", |_| {
        let store = weir.store()?;
        let records = || -> u64 {
            let topics = store.topics(false);
            topics.iter().map(|topic| topic.last.0).sum()
        };
        let before = records();
        let mut session = weir.session(client(100));
        let mut rejected = 0;
        for part in quakes.all().chunks(CALL_EVENTS) {
            let topics: Vec<String> = part.iter().map(super::quakes::Quake::topic).collect();
            let puts: Vec<Intention<'_>> = part
                .iter()
                .zip(&topics)
                .map(|(quake, topic)| {
                    let operation = Operation::Put {
                        key: quake.id.as_bytes(),
                        value: quake.bytes,
                    };
                    Intention::new(topic, operation).expecting(&[Expect::KeyAbsent(None)])
                })
                .collect();
            for (verdict, quake) in session.execute(&puts)?.iter().zip(part) {
                conflict(verdict).with_context(|| format!("{} was not rejected", quake.id))?;
                rejected += 1;
            }
        }
        let written = records() - before;
        ensure!(
            written == 0,
            "{written} records were written in spite of the condition"
        );
        facts.insert(
            "same_feed".into(),
            json!({"rejected": rejected, "written": written}),
        );
        let line = format!(
            "the whole feed sent again with the condition \"id is absent\": {} rejected, 0 written",
            count(rejected)
        );
        Ok((line, ()))
    })
}

/// Runs a transaction within the limits, and one that exceeds them.
pub(super) fn transactions(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: &Weir,
) -> anyhow::Result<()> {
    output.step("together", |_| {
        let topic = weir.topic("shifts")?;
        let mut options = TopicOptions::default();
        options.keys_max = Some(3);
        ensure!(topic.create(&options)?.is_valid(), "the topic was not created");
        let put = |key| TxnOp::Put {
            key,
            value: b"{\"on\":true}",
            meta: b"",
        };
        let fits = topic.txn(&[put(b"mon"), put(b"tue")], &[])?;
        ensure!(
            fits.is_valid() && fits.records() == 2,
            "a transaction within the limit was rejected"
        );
        let before = topic.info().context("the topic is gone")?;
        let over = topic.txn(&[put(b"wed"), put(b"thu")], &[])?;
        let full = Detail::Operation {
            index: 1,
            reason: ErrorCode::Quota,
        };
        ensure!(
            over.effect() == Effect::Invalid && over.detail() == full,
            "a transaction over the limit was not rejected at its second step"
        );
        let after = topic.info().context("the topic is gone")?;
        ensure!(
            before == after,
            "a rejected transaction changed the topic"
        );
        ensure!(
            topic.get("wed")?.is_none(),
            "the first step of a rejected transaction was executed"
        );
        facts.insert(
            "transactions".into(),
            json!({"executed": 1, "aborted": 1, "events": fits.records()}),
        );
        let line = "a transaction of 2 puts is written; one that exceeds the key limit at step 2 writes nothing";
        Ok((line.to_owned(), ()))
    })
}

/// Offset of an executed write.
fn offset(verdict: &Verdict) -> Option<u64> {
    verdict.offset().map(|offset| offset.0)
}

/// The offset that a failed condition found.
fn conflict(verdict: &Verdict) -> Option<u64> {
    let failed = (verdict.effect(), verdict.reason());
    if failed != (Effect::Invalid, Some(ErrorCode::Conflict)) {
        return None;
    }
    match verdict.detail() {
        Detail::Actual(offset) => Some(offset),
        _ => None,
    }
}
