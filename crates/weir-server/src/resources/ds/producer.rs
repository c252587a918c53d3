//! Producers: writers whose retries the server recognizes.
//!
//! A producer numbers its writes from 0 in each of its epochs. The last accepted write is a record
//! of the stream under `.ds/producer/ID`, written in the transaction of the data. A write has the
//! condition that this record is unchanged since its sequence was checked.

use serde::{Deserialize, Serialize};

use super::view::View;
use crate::http::head::{FieldName, Head};
use crate::http::problem::{Kind, Problem};
use crate::http::query::offset_of;
use crate::resources::streams::config::single;
use crate::resources::streams::terms::{PRODUCER, PRODUCER_ID_BYTES_MAX, PRODUCER_NUMBER_MAX};

/// The epoch and number of the last accepted write: the value of its record, as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) seq: u64,
}

/// A producer, and the number of its write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) id: String,
    pub(super) write: State,
}

/// How a write relates to the last accepted write of its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// The next write.
    New,
    /// A write that was accepted before, with the last accepted one.
    Repeated(State),
    /// A write of an old epoch, with the current epoch.
    Stale(u64),
    /// Earlier writes are missing, from this number on.
    Gap(u64),
    /// The first write of an epoch, with a number other than 0.
    NotFirst,
}

impl Producer {
    /// Parses the three fields, which must be present together or not at all.
    pub(super) fn read(head: &Head) -> Result<Option<Self>, Problem> {
        let id = single(head, FieldName::ProducerId)?;
        let epoch = single(head, FieldName::ProducerEpoch)?;
        let seq = single(head, FieldName::ProducerSeq)?;
        let (id, epoch, seq) = match (id, epoch, seq) {
            (None, None, None) => return Ok(None),
            (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
            _ => {
                return Err(Problem::bad(
                    "set Producer-Id, Producer-Epoch and Producer-Seq together, or none of them",
                ));
            }
        };
        if id.is_empty() {
            return Err(Problem::bad("Producer-Id is empty"));
        }
        if id.len() > PRODUCER_ID_BYTES_MAX {
            return Err(Problem::bad(format!(
                "Producer-Id is longer than {PRODUCER_ID_BYTES_MAX} bytes"
            )));
        }
        let number = |text: &str, name: &str| {
            let number = offset_of(text).filter(|number| *number <= PRODUCER_NUMBER_MAX);
            number.ok_or_else(|| {
                Problem::bad(format!(
                    "{name} must be a number up to {PRODUCER_NUMBER_MAX}"
                ))
            })
        };
        Ok(Some(Self {
            id: id.to_owned(),
            write: State {
                epoch: number(epoch, "Producer-Epoch")?,
                seq: number(seq, "Producer-Seq")?,
            },
        }))
    }

    /// The key of the record of this producer.
    pub(super) fn key(&self) -> Vec<u8> {
        [PRODUCER, self.id.as_bytes()].concat()
    }

    /// Relates the write to the last accepted write.
    pub(super) fn sequence_after(&self, last: Option<State>) -> Sequence {
        let State { epoch, seq } = self.write;
        match last {
            None if seq == 0 => Sequence::New,
            None => Sequence::Gap(0),
            Some(last) if epoch < last.epoch => Sequence::Stale(last.epoch),
            Some(last) if epoch > last.epoch && seq != 0 => Sequence::NotFirst,
            Some(last) if epoch > last.epoch => Sequence::New,
            Some(last) if seq <= last.seq => Sequence::Repeated(last),
            Some(last) if seq == last.seq + 1 => Sequence::New,
            Some(last) => Sequence::Gap(last.seq + 1),
        }
    }

    /// The problem of a write that is not accepted.
    pub(super) fn refuse(&self, sequence: Sequence, view: &View) -> Problem {
        match sequence {
            Sequence::Stale(epoch) => view
                .refuse(
                    Kind::StreamEpoch,
                    "a producer with this id has a newer epoch",
                )
                .number("epoch", epoch)
                .field("producer-epoch", epoch.to_string()),
            Sequence::Gap(expected) => view
                .refuse(Kind::StreamOrder, "writes of the producer are missing")
                .number("expected", expected)
                .field("producer-expected-seq", expected.to_string())
                .field("producer-received-seq", self.write.seq.to_string()),
            _ => Problem::bad("the first Producer-Seq of an epoch must be 0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Producer, Sequence, State};

    #[test]
    fn writes_are_compared_with_the_last_accepted_write() {
        let sequence_after = |epoch, seq, last: Option<(u64, u64)>| {
            let producer = Producer {
                id: "a".to_owned(),
                write: State { epoch, seq },
            };
            producer.sequence_after(last.map(|(epoch, seq)| State { epoch, seq }))
        };
        let last = State { epoch: 2, seq: 5 };
        for (epoch, seq, sequence) in [
            (1, 9, Sequence::Stale(2)),
            (2, 0, Sequence::Repeated(last)),
            (2, 5, Sequence::Repeated(last)),
            (2, 6, Sequence::New),
            (2, 7, Sequence::Gap(6)),
            (3, 0, Sequence::New),
            (3, 1, Sequence::NotFirst),
        ] {
            assert_eq!(
                sequence_after(epoch, seq, Some((2, 5))),
                sequence,
                "{epoch} {seq}"
            );
        }
        assert_eq!(sequence_after(7, 0, None), Sequence::New);
        assert_eq!(sequence_after(0, 3, None), Sequence::Gap(0));
    }
}
