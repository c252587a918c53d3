//! Stores in this process or at a server, and the calls on their topics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{BigInt, Object, Uint8Array};
use napi_derive::napi;
use weir::{
    ClientId, ConnectOptions, Consistency, Durability, ErrorCode, Intention, OpenOptions, Proposal,
    Weir,
};

use crate::error::{Failure, Result};
use crate::group::{Group, GroupIn, GroupInfoOut};
use crate::input::{self, OpIn, Setting, bytes, maybe, millis};
use crate::pool::promise;
use crate::query::QueryIn;
use crate::reader::{FromIn, Latest, Reader};
use crate::records::RecordsOut;
use crate::session::Session;
use crate::topic_query::{TopicQuery, TopicsIn};
use crate::verdict;

/// If a call has more bytes, a thread of the pool proposes its intentions, because the queue may be
/// full.
const QUEUED_BYTES: usize = 1 << 20;
/// Default interval between syncs at the durability level `interval`.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long one call of a reading of latest values waits.
const LATEST_WAIT: Duration = Duration::from_millis(50);

/// Options of an open.
#[napi(object)]
pub struct OpenIn {
    pub durability: Option<String>,
    pub interval_ms: Option<f64>,
    pub create: Option<bool>,
    pub or_connect: Option<bool>,
    pub program: Option<String>,
    pub settings: Option<Vec<Setting>>,
}

/// Options of a connection to a server.
#[napi(object)]
pub struct ConnectIn {
    pub token: Option<String>,
    pub authority: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    pub agent: Option<String>,
    pub connect_timeout_ms: Option<f64>,
    pub patience_ms: Option<f64>,
    pub received: Option<bool>,
}

/// The state of a topic.
#[napi(object)]
pub struct TopicInfoOut {
    pub name: String,
    pub live: bool,
    pub incarnation: Option<BigInt>,
    pub first: BigInt,
    pub last: BigInt,
    pub keys: BigInt,
    pub bytes: BigInt,
}

impl From<weir::TopicInfo> for TopicInfoOut {
    fn from(info: weir::TopicInfo) -> Self {
        Self {
            name: info.name,
            live: info.live,
            incarnation: info.incarnation.map(|offset| offset.0.into()),
            first: info.first.0.into(),
            last: info.last.0.into(),
            keys: info.keys.into(),
            bytes: info.bytes.into(),
        }
    }
}

/// A key and the offset of its record.
#[napi(object)]
pub struct KeyOut {
    pub key: Uint8Array,
    pub offset: BigInt,
}

/// An open store.
#[napi]
pub struct Store(Arc<Mutex<Option<Weir>>>);

impl Store {
    fn new(weir: Weir) -> Self {
        Self(Arc::new(Mutex::new(Some(weir))))
    }

    fn weir(&self) -> Result<Weir> {
        let weir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || Failure::new(ErrorCode::Closed, "the store is closed");
        weir.clone().ok_or_else(closed)
    }

    fn topic(&self, name: &str) -> Result<weir::Topic> {
        Ok(self.weir()?.topic(name)?)
    }
}

/// Opens the store in a directory.
///
/// # Errors
/// Throws for an unknown option; other errors reject the promise.
#[napi]
pub fn open(env: &Env, path: String, from_js: OpenIn) -> napi::Result<Object<'_>> {
    let mut options = OpenOptions::default();
    let interval = millis("intervalMs", from_js.interval_ms)?.unwrap_or(INTERVAL);
    options.durability = match from_js.durability.as_deref().unwrap_or("group") {
        "group" => Durability::Group,
        "each" => Durability::Each,
        "interval" => Durability::Interval(interval),
        "memory" => Durability::Memory,
        other => return Err(Failure::option("durability", other).into()),
    };
    options.create = from_js.create.unwrap_or(true);
    options.program = from_js.program.unwrap_or(options.program);
    for setting in from_js.settings.unwrap_or_default() {
        let Some(value) = maybe(&setting.name, setting.value.as_ref())? else {
            continue;
        };
        match setting.name.as_str() {
            "snapshotLogBytes" => options.snapshot_log_bytes = value,
            "logSegmentBytes" => options.log_segment_bytes = value,
            "keyBytesMax" => {
                options.limits.key_bytes_max = usize::try_from(value).unwrap_or(usize::MAX);
            }
            "valueBytesMax" => {
                options.limits.value_bytes_max = usize::try_from(value).unwrap_or(usize::MAX);
            }
            other => return Err(Failure::option("an option", other).into()),
        }
    }
    let or_connect = from_js.or_connect.unwrap_or(false);
    promise(env, move || {
        Ok(Store::new(if or_connect {
            Weir::open_or_connect(path, &options, &ConnectOptions::default())?
        } else {
            Weir::open_with(path, &options)?
        }))
    })
}

/// Connects to a server.
///
/// # Errors
/// Throws for an invalid option; other errors reject the promise.
#[napi]
pub fn connect(env: &Env, url: String, from_js: ConnectIn) -> napi::Result<Object<'_>> {
    let mut options = ConnectOptions::default();
    options.token = from_js.token;
    options.received = from_js.received.unwrap_or(false);
    options.authority = from_js.authority.map(Into::into);
    options.identity = match (from_js.certificate, from_js.key) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        _ => return Err(Failure::option("identity", "a certificate or a key alone").into()),
    };
    let agent = concat!("weir-node/", env!("CARGO_PKG_VERSION"));
    options.agent = from_js.agent.unwrap_or_else(|| agent.to_owned());
    if let Some(timeout) = millis("connectTimeoutMs", from_js.connect_timeout_ms)? {
        options.connect_timeout = timeout;
    }
    if let Some(patience) = millis("patienceMs", from_js.patience_ms)? {
        options.patience = patience.max(Duration::from_millis(1));
    }
    promise(env, move || {
        Ok(Store::new(Weir::connect_with(&url, &options)?))
    })
}

#[napi]
impl Store {
    /// Proposes intentions. Returns a promise of their verdicts.
    #[napi]
    pub fn send<'env>(&self, env: &'env Env, ops: Vec<OpIn>) -> napi::Result<Object<'env>> {
        let (owned, size) = input::to_owned_intentions(ops)?;
        let weir = self.weir()?;
        if size <= QUEUED_BYTES {
            let borrowed = input::borrow(&owned)?;
            if let Some(proposal) = propose_now(&weir, &input::intentions(&borrowed))? {
                return verdict::promise(env, proposal);
            }
        }
        // The thread that proposes the intentions also waits for their verdicts.
        promise(env, move || {
            let borrowed = input::borrow(&owned)?;
            let outcomes = weir.propose(&input::intentions(&borrowed))?.wait()?;
            verdict::VerdictOut::all(&outcomes)
        })
    }

    /// Like `send`. Returns two promises: that the intentions are queued for the log, and of their
    /// verdicts. It may block until the queue has room.
    #[napi]
    pub fn send_with_receipt<'env>(
        &self,
        env: &'env Env,
        ops: Vec<OpIn>,
    ) -> napi::Result<Vec<Object<'env>>> {
        let (owned, _) = input::to_owned_intentions(ops)?;
        let borrowed = input::borrow(&owned)?;
        let proposal = self.weir()?.propose(&input::intentions(&borrowed));
        verdict::promises(env, proposal.map_err(Failure::from)?)
    }

    /// A second handle whose reads have a consistency.
    #[napi]
    pub fn with_consistency(&self, consistency: String) -> napi::Result<Store> {
        let level = Consistency::from_name(consistency.as_bytes());
        let level = level.ok_or_else(|| Failure::option("consistency", &consistency))?;
        Ok(Self::new(self.weir()?.with_consistency(level)))
    }

    /// Checks the name of a topic.
    #[napi]
    pub fn check_topic(&self, name: String) -> napi::Result<()> {
        Ok(self.topic(&name).map(drop)?)
    }

    /// Creates the topic if it does not exist.
    #[napi]
    pub fn ensure<'env>(&self, env: &'env Env, topic: String) -> napi::Result<Object<'env>> {
        let topic = self.topic(&topic)?;
        promise(env, move || Ok(topic.ensure()?))
    }

    /// The state of a topic.
    #[napi]
    pub fn info<'env>(&self, env: &'env Env, topic: String) -> napi::Result<Object<'env>> {
        let topic = self.topic(&topic)?;
        promise(env, move || Ok(topic.try_info()?.map(TopicInfoOut::from)))
    }

    /// The states of all topics.
    #[napi]
    pub fn topics<'env>(&self, env: &'env Env, destroyed: bool) -> napi::Result<Object<'env>> {
        let weir = self.weir()?;
        promise(env, move || {
            let found = weir.topics(destroyed)?.into_iter();
            Ok(found.map(TopicInfoOut::from).collect::<Vec<_>>())
        })
    }

    /// The record with the current value of a key.
    #[napi]
    pub fn get<'env>(
        &self,
        env: &'env Env,
        topic: String,
        key: Uint8Array,
    ) -> napi::Result<Object<'env>> {
        let (topic, key) = (self.topic(&topic)?, key.to_vec());
        promise(env, move || {
            Ok(topic.get(&key)?.as_ref().map(RecordsOut::value))
        })
    }

    /// The record at an offset.
    #[napi]
    pub fn at<'env>(
        &self,
        env: &'env Env,
        topic: String,
        offset: BigInt,
    ) -> napi::Result<Object<'env>> {
        let topic = self.topic(&topic)?;
        let offset = weir::ConsequenceOffset(input::number("an offset", &offset)?);
        promise(env, move || {
            Ok(topic.at(offset)?.as_ref().map(RecordsOut::value))
        })
    }

    /// Keys in order.
    #[napi]
    pub fn scan<'env>(
        &self,
        env: &'env Env,
        topic: String,
        prefix: Uint8Array,
        after: Option<Uint8Array>,
        limit: u32,
    ) -> napi::Result<Object<'env>> {
        let (topic, prefix) = (self.topic(&topic)?, prefix.to_vec());
        let after = after.map(|after| bytes(Some(&after)));
        promise(env, move || {
            let found = topic
                .scan(&prefix, after.as_deref(), limit as usize)?
                .into_iter();
            let keys = found.map(|entry| KeyOut {
                key: entry.key.into_vec().into(),
                offset: entry.offset.0.into(),
            });
            Ok(keys.collect::<Vec<_>>())
        })
    }

    /// A reader of the existing records.
    #[napi]
    pub fn reader<'env>(
        &self,
        env: &'env Env,
        topic: String,
        from: FromIn,
        await_creation: bool,
    ) -> napi::Result<Object<'env>> {
        let (topic, from) = (self.topic(&topic)?, from.get()?);
        promise(env, move || {
            Ok(Reader::new(if await_creation {
                topic.listener(from)?
            } else {
                topic.reader(from)?
            }))
        })
    }

    /// Reads the current values, then new records.
    #[napi]
    pub fn latest<'env>(&self, env: &'env Env, topic: String) -> napi::Result<Object<'env>> {
        let topic = self.topic(&topic)?;
        promise(env, move || Ok(Latest::new(topic.latest(LATEST_WAIT)?)))
    }

    /// Joins a group as a member.
    #[napi]
    pub fn group<'env>(
        &self,
        env: &'env Env,
        topic: String,
        from_js: GroupIn,
    ) -> napi::Result<Object<'env>> {
        let topic = self.topic(&topic)?;
        promise(env, move || Group::open(&topic, &from_js))
    }

    /// The groups of a topic.
    #[napi]
    pub fn groups<'env>(&self, env: &'env Env, topic: String) -> napi::Result<Object<'env>> {
        let topic = self.topic(&topic)?;
        promise(env, move || {
            let found = topic.groups()?.into_iter();
            Ok(found.map(GroupInfoOut::from).collect::<Vec<_>>())
        })
    }

    /// Opens a session.
    #[napi]
    pub fn session<'env>(&self, env: &'env Env, client: Uint8Array) -> napi::Result<Object<'env>> {
        let id = <[u8; 16]>::try_from(&*client).ok().map(ClientId);
        let Some(id) = id.filter(|id| !id.is_none()) else {
            let text = "client is 16 bytes, not all of them zero";
            return Err(Failure::new(ErrorCode::BadOption, text).into());
        };
        let weir = self.weir()?;
        promise(env, move || {
            let session = weir.session(id);
            // Waits for the connection of the session here, so that a later `send` does not.
            session.try_next_nonce()?;
            Ok(Session::new(session))
        })
    }

    /// Starts a query over topics.
    #[napi]
    pub fn query<'env>(
        &self,
        env: &'env Env,
        topics: TopicsIn,
        query: QueryIn,
    ) -> napi::Result<Object<'env>> {
        let weir = self.weir()?;
        let options = topics.options(&query)?;
        promise(env, move || Ok(TopicQuery::new(weir.query(options)?)))
    }

    /// Makes every acknowledged write durable.
    #[napi]
    pub fn sync<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let weir = self.weir()?;
        promise(env, move || Ok(weir.sync()?))
    }

    /// The durability of an acknowledged write.
    #[napi]
    pub fn durability<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let weir = self.weir()?;
        promise(env, move || Ok(weir.durability()?.name().to_owned()))
    }

    /// Closes the store. A second call is a no-op.
    #[napi]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let weir = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        promise(env, move || match weir {
            Some(weir) => Ok(weir.close()?),
            None => Ok(()),
        })
    }
}

/// Proposes intentions. Returns `None` if this would wait for room in the queue for a server.
fn propose_now(weir: &Weir, intentions: &[Intention<'_>]) -> Result<Option<Proposal>> {
    // Every wait is cancelled, before anything is queued.
    let is_cancelled = Arc::new(|| true);
    match weir::interruptible(Duration::ZERO, is_cancelled, || weir.propose(intentions)) {
        Ok(proposal) => Ok(Some(proposal)),
        Err(error) if error.code() == ErrorCode::Cancelled => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The build profile of this module: "debug" or "release".
#[napi]
#[must_use]
pub fn build_profile() -> &'static str {
    if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    }
}

/// The number of the error `CLOSED`.
#[napi]
#[must_use]
pub fn closed_number() -> u32 {
    u32::from(ErrorCode::Closed.number())
}

/// Throws the error for an object that another call is using.
///
/// # Errors
/// `HANDLE_BUSY`, always.
#[napi]
pub fn busy() -> napi::Result<()> {
    let code = ErrorCode::HandleBusy;
    Err(Failure::new(code, code.sentence()).into())
}

/// Throws the error for a timeout that is negative or not a number.
///
/// # Errors
/// `BAD_OPTION`, always.
#[napi]
pub fn bad_timeout(timeout_ms: String) -> napi::Result<()> {
    let text = format!("timeoutMs is {timeout_ms}, not a number from 0");
    Err(Failure::new(ErrorCode::BadOption, text).into())
}
