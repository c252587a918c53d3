//! Reads a topic in order, and waits for new records.

use std::sync::Arc;

use weir::{ConsequenceOffset, ErrorCode, ReadFrom, TopicReader};

use crate::deadline::{CHECK_INTERVAL, CancelToken};
use crate::error::{Fail, Kind};
use crate::handle::Caller;
use crate::page::Page;
use crate::raw;
use crate::registry::{self, Exclusive};
use crate::store::{check_flags, get_store};

/// Flag of `weir_read_options`.
const AWAIT: u32 = 1;

/// A reader, as a handle of the caller.
#[derive(Debug)]
pub(crate) struct Reader {
    inner: Exclusive<TopicReader>,
    cancel_token: Arc<CancelToken>,
}

/// Parses a position with the parser that all interfaces share.
pub(crate) fn position(
    c: &Caller,
    text: raw::Slice,
    from: *mut u32,
    value: *mut u64,
) -> Result<Kind, Fail> {
    c.check_output(from, 1)?;
    c.check_output(value, 1)?;
    let text = c.text(text, "the position")?;
    let position = ReadFrom::parse(text)
        .map_err(|error| Fail::new(ErrorCode::BadOption, error.to_string()))?;
    let (kind, number) = match position {
        ReadFrom::Start => (0, 0),
        ReadFrom::End => (1, 0),
        ReadFrom::After(offset) => (2, offset.0),
        ReadFrom::Last(records) => (3, records),
        ReadFrom::Time(time_ms) => (4, time_ms),
    };
    c.write(from, kind)?;
    c.write(value, number)?;
    Ok(Kind::Ok)
}

/// The position for a pair of numbers, as `weir_position` writes them.
pub(crate) fn position_of(from: u32, value: u64) -> Result<ReadFrom, Fail> {
    Ok(match from {
        0 => ReadFrom::Start,
        1 => ReadFrom::End,
        2 => ReadFrom::After(ConsequenceOffset(value)),
        3 => ReadFrom::Last(value),
        4 => ReadFrom::Time(value),
        other => return Err(Fail::option("the position", other)),
    })
}

pub(crate) fn open(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    options: *const raw::ReadOptions,
    out: *mut *mut raw::Reader,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let topic = c.text(topic, "the topic")?;
    let given = c.options(options)?;
    check_flags(given.flags, AWAIT, "flags")?;
    check_flags(given.reserved, 0, "reserved")?;
    let from = position_of(given.from, given.value)?;
    let reader = store.call(|weir| {
        let topic = weir.topic(topic)?;
        Ok(if given.flags & AWAIT == 0 {
            topic.reader(from)?
        } else {
            topic.listener(from)?
        })
    })?;
    let reader = Reader {
        inner: Exclusive::new(reader),
        cancel_token: store.cancel_token(CHECK_INTERVAL, Some(CHECK_INTERVAL)),
    };
    c.write(out, registry::insert(Arc::new(reader))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn next(
    c: &Caller,
    reader: *mut raw::Reader,
    timeout_ms: u64,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let reader = registry::get::<Reader, _>(reader)?;
    let mut inner = reader.inner.lock()?;
    c.check_output(out, 1)?;
    let slot = registry::reserve()?;
    let found = reader.cancel_token.wait(timeout_ms, |until| {
        if until.is_some() && !inner.wait(until) {
            return Ok(None);
        }
        while let Some(page) = inner.next_page()? {
            let page = Page::records(&page)?;
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
        Ok(None)
    })?;
    match found {
        Some(page) => {
            page.into_slot(slot, c, out)?;
            Ok(Kind::Ready)
        }
        None => Ok(Kind::Timeout),
    }
}

pub(crate) fn cancel(reader: *mut raw::Reader) -> Result<Kind, Fail> {
    registry::get::<Reader, _>(reader)?.cancel_token.cancel();
    Ok(Kind::Ok)
}

pub(crate) fn free(reader: *mut raw::Reader) {
    if let Ok(reader) = registry::remove::<Reader, _>(reader) {
        reader.cancel_token.free();
    }
}
