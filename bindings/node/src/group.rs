//! Members of groups, which claim records, and acknowledge or reject them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{BigInt, Object};
use napi_derive::napi;
use weir::{Claim, ConsequenceOffset, ErrorCode, GroupMode, GroupSetup, Settle};

use crate::error::{Failure, Result};
use crate::input::{number, whole};
use crate::pool::promise;
use crate::reader::{FromIn, with_lock};
use crate::records::RecordsOut;
use crate::verdict::VerdictOut;

/// The arguments of `Topic.group`: the group, and the options of a new one.
#[napi(object)]
pub struct GroupIn {
    pub name: String,
    pub mode: String,
    pub from: FromIn,
    pub lease_ms: Option<f64>,
    pub attempts: Option<f64>,
    pub pending: Option<f64>,
    pub dead_letters: Option<String>,
    pub member: Option<String>,
    pub existing: Option<bool>,
}

/// Identifies a claimed record.
#[napi(object)]
pub struct ClaimIn {
    pub claim: BigInt,
    pub offset: BigInt,
}

/// The state of a group.
#[napi(object)]
pub struct GroupInfoOut {
    pub topic: String,
    pub name: String,
    pub mode: String,
    pub cursor: BigInt,
    pub frontier: BigInt,
    pub last: BigInt,
    pub lag: BigInt,
    pub leased: BigInt,
    pub waiting: BigInt,
    pub redeliveries: BigInt,
    pub dead_lettered: BigInt,
    pub unwritten_dead_letters: BigInt,
    pub lease_ms: BigInt,
    pub attempts_max: u32,
    pub dead_letters: String,
}

impl From<weir::GroupInfo> for GroupInfoOut {
    fn from(info: weir::GroupInfo) -> Self {
        Self {
            topic: info.topic,
            name: info.name,
            mode: info.mode.name().to_owned(),
            cursor: info.cursor.0.into(),
            frontier: info.frontier.0.into(),
            last: info.last.0.into(),
            lag: info.lag.into(),
            leased: info.leased.into(),
            waiting: info.waiting.into(),
            redeliveries: info.redeliveries.into(),
            dead_lettered: info.dead_lettered.into(),
            unwritten_dead_letters: info.unwritten_dead_letters.into(),
            lease_ms: info.lease_ms.into(),
            attempts_max: info.attempts_max,
            dead_letters: info.dead_letters,
        }
    }
}

/// A member of a group.
#[napi]
pub struct Group(Arc<Mutex<weir::Group>>);

impl Group {
    /// Joins a group. Creates it if it does not exist, unless `existing` is set.
    pub(crate) fn open(topic: &weir::Topic, options: &GroupIn) -> Result<Self> {
        let modes = [GroupMode::Exclusive, GroupMode::Keyed, GroupMode::Shared];
        let mode = modes.into_iter().find(|mode| mode.name() == options.mode);
        let mut setup =
            GroupSetup::new(mode.ok_or_else(|| Failure::option("mode", &options.mode))?);
        if let Some(ms) = options.lease_ms {
            setup.lease_ms = whole("leaseMs", ms)?.into();
        }
        if let Some(attempts) = options.attempts {
            setup.attempts_max = whole("attempts", attempts)?;
        }
        if let Some(pending) = options.pending {
            setup.pending_max = whole("pending", pending)?;
        }
        setup.dead_letters = options.dead_letters.as_deref().unwrap_or_default();
        if options.existing == Some(true) && topic.group_info(&options.name)?.is_none() {
            let text = format!("topic {} has no group {}", topic.name(), options.name);
            return Err(Failure::new(ErrorCode::GroupUnknown, text));
        }
        setup.start = topic.offset_before(options.from.get()?)?.0;
        let mut group = topic.group_with(&options.name, &setup)?;
        if let Some(member) = &options.member {
            group = group.member(member);
        }
        Ok(Self(Arc::new(Mutex::new(group))))
    }

    fn job<'env, T: napi::bindgen_prelude::ToNapiValue + Send + 'static>(
        &self,
        env: &'env Env,
        work: impl FnOnce(&mut weir::Group) -> Result<T> + Send + 'static,
    ) -> napi::Result<Object<'env>> {
        let group = Arc::clone(&self.0);
        promise(env, move || with_lock(&group, work))
    }
}

#[napi]
impl Group {
    /// Claims up to `max` records; waits up to `wait_ms` for the first one.
    #[napi]
    pub fn claim<'env>(
        &self,
        env: &'env Env,
        max: f64,
        wait_ms: u32,
    ) -> napi::Result<Object<'env>> {
        let max = whole("max", max)?;
        if max == 0 {
            // It would never find a record, and a wait without a timeout would not end.
            let text = "max is 0, not a whole number from 1 to 2^32 - 1";
            return Err(Failure::new(ErrorCode::BadOption, text).into());
        }
        self.job(env, move |group| {
            let wait = Duration::from_millis(u64::from(wait_ms));
            let works = group.claim(max as usize, wait)?;
            Ok((!works.is_empty()).then(|| RecordsOut::works(&works)))
        })
    }

    /// Acknowledges, rejects or extends records; `verb` is "done", "doneSoon", "fail" or "extend".
    /// Returns the offsets of records that another member has claimed by now.
    #[napi]
    pub fn settle<'env>(
        &self,
        env: &'env Env,
        claims: Vec<ClaimIn>,
        verb: String,
        ms: f64,
        reason: String,
    ) -> napi::Result<Object<'env>> {
        let claims = claims.iter().map(|claim| {
            Ok(Claim {
                claim: number("a claim", &claim.claim)?,
                offset: ConsequenceOffset(number("an offset", &claim.offset)?),
            })
        });
        let claims = claims.collect::<Result<Vec<Claim>>>()?;
        let what = if verb == "fail" { "delayMs" } else { "leaseMs" };
        let time = Duration::from_millis(whole(what, ms)?.into());
        self.job(env, move |group| {
            let verb = match verb.as_str() {
                "done" => Settle::Done,
                "doneSoon" => Settle::DoneSoon,
                "fail" => Settle::Fail {
                    delay: time,
                    reason: &reason,
                },
                "extend" => Settle::Extend { lease: time },
                other => return Err(Failure::option("verb", other)),
            };
            let lost = group.settle(&claims, verb)?.into_iter();
            Ok(lost
                .map(|offset| BigInt::from(offset.0))
                .collect::<Vec<_>>())
        })
    }

    /// Moves the group to a position.
    #[napi]
    pub fn reset<'env>(&self, env: &'env Env, to: FromIn) -> napi::Result<Object<'env>> {
        let to = to.get()?;
        self.job(env, move |group| {
            let verdict = group.reset(to)?;
            Ok(VerdictOut::new(verdict.commit(), verdict.is_replayed()))
        })
    }

    /// Takes over an exclusive group.
    #[napi]
    pub fn take_over<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.job(env, |group| Ok(group.take_over()?))
    }

    /// Gives up the ownership of an exclusive group.
    #[napi]
    pub fn leave<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.job(env, |group| Ok(group.leave()?))
    }

    /// The current state of the group.
    #[napi]
    pub fn info<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.job(env, |group| Ok(GroupInfoOut::from(group.info()?)))
    }

    /// Deletes the group.
    #[napi]
    pub fn delete<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.job(env, |group| {
            let verdict = group.delete()?;
            Ok(VerdictOut::new(verdict.commit(), verdict.is_replayed()))
        })
    }
}
