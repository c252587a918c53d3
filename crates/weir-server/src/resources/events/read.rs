//! Reads: one record, one key, keys in order, pages of records.
//!
//! A page ends after a number of records or of bytes, whichever comes first,
//! but never before its first record. What lies in one block is read in place
//! if nothing has to be waited for; everything else on a thread that may block.
//!
//! | module | room |
//! |---|---|
//! | `one` | one record, by offset or by key |
//! | `page`, `descending`, `filter` | records of a topic, forwards and backwards |
//! | `keys` | keys in order |
//! | `position` | where a read starts |

mod descending;
mod filter;
mod keys;
mod one;
mod page;
mod position;

pub(crate) use self::filter::Filter;
pub(crate) use self::keys::keys;
pub(crate) use self::one::{event, event_now, key, key_if_ready};
pub(crate) use self::page::page;
pub(crate) use self::position::{gone, is_known, no_topic, seek, start};
