//! Events of a topic and the latest values of its keys: reads and writes.

pub(crate) mod hub;
pub(crate) mod missed;
pub(crate) mod read;
pub(crate) mod tail;
pub(crate) mod write;
