//! Dead letters: records that reached the maximum of deliveries of a group.
//!
//! A dead letter is one transaction in the topic for dead letters. The transaction first writes the
//! reason, as JSON, under `TOPIC/GROUP/LETTER/why`, then the record's value and metadata under
//! `TOPIC/GROUP/LETTER`. LETTER is the intention that created the group, a dot and the letter's
//! number, so names of letters are unique in a store. A letter is written only if it does not
//! exist, and is then removed from the group's list. A crash between the two steps therefore does
//! not write the letter twice.

use std::fmt::Write as _;

use weir_core::group::Offsets;
use weir_core::machine::groups::DeadLetter;
use weir_core::{
    ConsequenceOffset, Effect, ErrorCode, Expect, GroupStep, Intention, Operation, Outcomes,
    TopicOptions, TxnOp,
};

use crate::error::StoreError;
use crate::proposal::Proposal;
use crate::reader::Page;
use crate::store::Store;

/// Maximum number of letters that are written together.
const DEAD_LETTERS_PER_STEP: usize = 100;

impl Store {
    /// Writes the unwritten dead letters of a group. Each claim also does this. Returns the number
    /// of letters that are now written. Letters that the topic for dead letters rejects stay
    /// unwritten. A letter whose record cannot be read stays unwritten, and does not stop the
    /// others.
    ///
    /// # Errors
    /// The errors of a write. After all letters, the first error of the read of a record.
    pub fn write_dead_letters(&self, topic: &str, group: &str) -> Result<u64, StoreError> {
        match self.write_readable_dead_letters(topic, group)? {
            (written, None) => Ok(written),
            (_, Some(unread)) => Err(unread),
        }
    }

    /// Like [`write_dead_letters`](Self::write_dead_letters). Returns the number of letters that
    /// are now written, and the first error of the read of a record.
    pub(crate) fn write_readable_dead_letters(
        &self,
        topic: &str,
        group: &str,
    ) -> Result<(u64, Option<StoreError>), StoreError> {
        let mut after = 0;
        let mut written = 0;
        let mut unread = None;
        loop {
            let Some((dead, created, letters)) = self.unwritten_dead_letters(topic, group, after)
            else {
                return Ok((written, unread));
            };
            after = letters.last().map_or(u64::MAX, |(number, _)| *number);
            self.create_if_missing(&dead)?;
            // The letters share a sync. The queue bounds their memory.
            let mut sent = Vec::new();
            for (number, letter) in &letters {
                let name = format!("{topic}/{group}/{created}.{number}");
                let page = match self.page_at(topic, ConsequenceOffset(letter.offset)) {
                    Ok(page) => page,
                    Err(error) => {
                        unread.get_or_insert(error);
                        continue;
                    }
                };
                let why = why(topic, group, letter, page.as_ref())?;
                let proposal = self.propose_dead_letter(&dead, &name, &why, page.as_ref())?;
                sent.extend(proposal.map(|proposal| (*number, proposal)));
            }
            let mut numbers = Vec::new();
            for (number, proposal) in sent {
                if is_written(&proposal.wait()?) {
                    numbers.push(number);
                }
            }
            if !numbers.is_empty() {
                let numbers = Offsets::Plain(&numbers);
                self.group_step(topic, group, GroupStep::DeadLettersWritten { numbers })?;
            }
            written += numbers.len() as u64;
        }
    }

    #[allow(clippy::type_complexity, reason = "read at one place")]
    fn unwritten_dead_letters(
        &self,
        topic: &str,
        group: &str,
        after: u64,
    ) -> Option<(String, u64, Vec<(u64, DeadLetter)>)> {
        let machine = self.engine.machine.read();
        let group = machine.group(topic, group)?;
        let letters: Vec<(u64, DeadLetter)> = group
            .unwritten_dead_letters()
            .filter(|(number, _)| *number > after)
            .take(DEAD_LETTERS_PER_STEP)
            .map(|(number, letter)| (number, letter.clone()))
            .collect();
        let dead = group.setup().dead_letters.to_owned();
        (!letters.is_empty()).then(|| (dead, group.created(), letters))
    }

    fn create_if_missing(&self, topic: &str) -> Result<(), StoreError> {
        if self.topic(topic).is_some_and(|info| info.live) {
            return Ok(());
        }
        let options = TopicOptions::default();
        let create = Operation::Create { options: &options };
        self.propose(&[Intention::new(topic, create)])?.wait()?;
        Ok(())
    }

    /// Proposes the write of a letter with this name. `None` if the letter exceeds a limit of this
    /// store.
    fn propose_dead_letter(
        &self,
        dead: &str,
        name: &str,
        why: &str,
        page: Option<&Page>,
    ) -> Result<Option<Proposal>, StoreError> {
        let record = page.and_then(|page| page.iter().next()).transpose()?;
        let why_key = format!("{name}/why");
        let mut ops = vec![TxnOp::Put {
            key: why_key.as_bytes(),
            value: why.as_bytes(),
            meta: &[],
        }];
        ops.extend(record.map(|record| TxnOp::Put {
            key: name.as_bytes(),
            value: record.value,
            meta: record.meta,
        }));
        let absent = [Expect::KeyAbsent(Some(why_key.as_bytes()))];
        let intention = Intention::new(dead, Operation::Txn { ops: &ops }).expecting(&absent);
        match self.propose(&[intention]) {
            Err(StoreError::Refused { .. }) => Ok(None),
            proposal => proposal.map(Some),
        }
    }
}

/// Whether the letter with this outcome exists now.
fn is_written(outcomes: &Outcomes) -> bool {
    let outcome = outcomes.iter().next();
    let commit = outcome.as_ref().and_then(|outcome| outcome.commit());
    commit.is_some_and(|commit| {
        commit.effect == Effect::Valid || commit.reason == Some(ErrorCode::Conflict)
    })
}

/// The reason, as JSON.
fn why(
    topic: &str,
    group: &str,
    letter: &DeadLetter,
    page: Option<&Page>,
) -> Result<String, StoreError> {
    let record = page.and_then(|page| page.iter().next()).transpose()?;
    let mut out = String::from("{");
    text(&mut out, "topic", topic);
    text(&mut out, "group", group);
    let _ = write!(out, "\"offset\":{},", letter.offset);
    match record.map(|record| std::str::from_utf8(record.key).map_err(|_| record.key)) {
        None | Some(Ok("")) => {}
        Some(Ok(key)) => text(&mut out, "key", key),
        Some(Err(bytes)) => {
            let mut hex = String::new();
            for byte in bytes {
                let _ = write!(hex, "{byte:02x}");
            }
            text(&mut out, "key_hex", &hex);
        }
    }
    text(&mut out, "reason", &letter.reason);
    if record.is_none() {
        out.push_str("\"record\":\"gone\",");
    }
    let (attempts, time_ms) = (letter.attempts, letter.time_ms);
    let _ = write!(out, "\"attempts\":{attempts},\"time_ms\":{time_ms}}}");
    Ok(out)
}

fn text(out: &mut String, name: &str, value: &str) {
    let _ = write!(out, "\"{name}\":\"");
    for char in value.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push_str("\",");
}
