//! Reading a topic in order, one page for each call.

use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use napi::Env;
use napi::bindgen_prelude::{BigInt, Object};
use napi_derive::napi;
use weir::{ConsequenceOffset, ErrorCode, ReadFrom, TopicReader};

use crate::error::{Failure, Result};
use crate::input::number;
use crate::pool::promise;
use crate::records::RecordsOut;

/// A start position.
#[napi(object)]
pub struct FromIn {
    pub kind: String,
    pub number: Option<BigInt>,
    pub text: Option<String>,
}

impl FromIn {
    pub(crate) fn get(&self) -> Result<ReadFrom> {
        let number = || match &self.number {
            Some(value) => number(&self.kind, value),
            None => Ok(0),
        };
        if let Some(text) = &self.text {
            let position = ReadFrom::parse(text);
            return position.map_err(|error| Failure::new(ErrorCode::BadOption, error.to_string()));
        }
        Ok(match self.kind.as_str() {
            "start" => ReadFrom::Start,
            "end" => ReadFrom::End,
            "after" => ReadFrom::After(ConsequenceOffset(number()?)),
            "last" => ReadFrom::Last(number()?),
            "timeMs" => ReadFrom::Time(number()?),
            other => return Err(Failure::option("the start of reading", other)),
        })
    }
}

/// Calls `work` with the value that the lock guards.
///
/// # Errors
/// `HANDLE_BUSY` while another call uses the value, `HANDLE_POISONED` if a panic ended an earlier use.
pub(crate) fn with_lock<T, R>(
    lock: &Mutex<T>,
    work: impl FnOnce(&mut T) -> Result<R>,
) -> Result<R> {
    let code = match lock.try_lock() {
        Ok(mut guarded) => return work(&mut guarded),
        Err(TryLockError::WouldBlock) => ErrorCode::HandleBusy,
        Err(TryLockError::Poisoned(_)) => ErrorCode::HandlePoisoned,
    };
    Err(Failure::new(code, code.sentence()))
}

/// Pages of a topic, in order.
#[napi]
pub struct Reader(Arc<Mutex<TopicReader>>);

impl Reader {
    pub(crate) fn new(reader: TopicReader) -> Self {
        Self(Arc::new(Mutex::new(reader)))
    }
}

#[napi]
impl Reader {
    /// The next page, or nothing if none arrived within the given milliseconds.
    #[napi]
    pub fn next<'env>(&self, env: &'env Env, wait_ms: u32) -> napi::Result<Object<'env>> {
        let reader = Arc::clone(&self.0);
        promise(env, move || {
            with_lock(&reader, |reader| {
                let mut page = reader.next_page()?;
                if page.is_none() && wait_ms > 0 {
                    let wait = Duration::from_millis(u64::from(wait_ms));
                    if reader.wait(Instant::now().checked_add(wait)) {
                        page = reader.next_page()?;
                    }
                }
                page.as_ref().map(RecordsOut::page).transpose()
            })
        })
    }
}

/// The current values, then new records.
#[napi]
pub struct Latest(Arc<Mutex<weir::Latest>>);

impl Latest {
    pub(crate) fn new(latest: weir::Latest) -> Self {
        Self(Arc::new(Mutex::new(latest)))
    }
}

#[napi]
impl Latest {
    /// The next record, or nothing if none arrived within the patience of this reader.
    #[napi]
    pub fn next<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let latest = Arc::clone(&self.0);
        promise(env, move || {
            with_lock(&latest, |latest| {
                let found = latest.next().transpose()?;
                Ok(found.map(|current| RecordsOut {
                    replay: Some(current.replay),
                    ..RecordsOut::value(&current.value)
                }))
            })
        })
    }
}
