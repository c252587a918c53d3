//! Reads: one record, one key, keys in order, pages of records.
//!
//! A page ends after a number of records or bytes, whichever comes first, but has at least one
//! record. A read within one block runs inline if it need not wait; every other read runs on a
//! thread that may block.
//!
//! | module | purpose |
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
pub(crate) use self::one::{event, event_if_ready, key, key_if_ready};
pub(crate) use self::page::page;
pub(crate) use self::position::{SCAN_BYTES_MAX, is_not_modified, no_topic, seek, start};
