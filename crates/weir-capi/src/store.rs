//! Stores: opens and describes them, and reads topics, values and keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::{
    Compaction, ConnectOptions, ConsequenceOffset, Consistency, Durability, ErrorCode, GroupName,
    OpenOptions, StateMode, StoreError, TopicOptions, Weir, WeirError,
};

use crate::deadline::{CHECK_INTERVAL, CancelSource, CancelToken, Scope, WaitContext};
use crate::error::{Fail, Kind};
use crate::handle::{Caller, ELEMENTS_MAX, zeroed};
use crate::page::{Page, into_handle_or};
use crate::raw;
use crate::registry;

/// Flags of `weir_open_options`.
const EXISTING: u32 = 1;
const OR_CONNECT: u32 = 2;
/// Flag of `weir_connect_options`.
const RECEIVED: u32 = 1;
/// Flags of `weir_scan`.
const AFTER: u32 = 1;
const VALUES: u32 = 2;
/// Number of keys of a scan whose caller sets no limit.
const SCAN_KEYS: u64 = 1000;

/// A store, as a handle of the caller: from an open, or derived from another handle.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) weir: Weir,
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) scope: Arc<Scope>,
    /// Whether the handle was released.
    pub(crate) freed: AtomicBool,
    /// How long a close waits for the verdicts of writes that were sent to a server.
    patience: Duration,
}

impl Store {
    /// Whether the store is local.
    pub(crate) fn is_local(&self) -> bool {
        self.weir.local().is_some()
    }

    /// The limits of the waits of a call that begins now. If an open created the handle, the waits
    /// end when the store is closed.
    pub(crate) fn wait_context(self: &Arc<Self>) -> WaitContext {
        let derived = self.scope.derived;
        let watch = derived.then(|| -> Arc<dyn CancelSource> { Arc::<Self>::clone(self) });
        WaitContext::new(&self.scope, watch)
    }

    /// The token of a handle that is opened through this store. `every` is the pause between two
    /// checks of the token.
    pub(crate) fn cancel_token(
        &self,
        every: Duration,
        unanswered: Option<Duration>,
    ) -> Arc<CancelToken> {
        CancelToken::new((&self.closed, &self.scope), every, unanswered, None)
    }

    /// The token of a session. A close does not end the connection of a session to a server, so the
    /// token ends its calls.
    pub(crate) fn session_token(&self) -> Arc<CancelToken> {
        let drain = (!self.is_local()).then_some(self.patience);
        CancelToken::new((&self.closed, &self.scope), CHECK_INTERVAL, None, drain)
    }

    /// Runs a call that may wait for a server.
    pub(crate) fn call<T>(
        self: &Arc<Self>,
        call: impl FnOnce(&Weir) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        self.wait_context().run(|| call(&self.weir))
    }
}

impl CancelSource for Store {
    fn is_over(&self) -> bool {
        self.scope.is_over() || self.freed.load(Ordering::Acquire)
    }
}

pub(crate) fn get_store(store: *mut raw::Weir) -> Result<Arc<Store>, Fail> {
    let store = registry::get::<Store, _>(store)?;
    if store.closed.load(Ordering::Acquire) {
        return Err(Fail::of(ErrorCode::Closed));
    }
    Ok(store)
}

fn create_handle(
    c: &Caller,
    weir: Weir,
    patience: Duration,
    out: *mut *mut raw::Weir,
) -> Result<Kind, Fail> {
    let store = Store {
        weir,
        closed: Arc::default(),
        scope: Arc::default(),
        freed: AtomicBool::new(false),
        patience,
    };
    c.write(out, registry::insert(Arc::new(store))?)?;
    Ok(Kind::Ok)
}

fn path(c: &Caller, slice: raw::Slice) -> Result<PathBuf, Fail> {
    let bytes = c.short(slice)?;
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(Fail::option("the path", "empty, or has a zero byte"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)).to_path_buf())
    }
    #[cfg(not(unix))]
    {
        Ok(Path::new(c.text(slice, "the path")?).to_path_buf())
    }
}

fn millis(ms: u64, default: Duration) -> Duration {
    if ms == 0 {
        default
    } else {
        Duration::from_millis(ms)
    }
}

/// Rejects unknown flags. No flag of a reserved field is known.
pub(crate) fn check_flags(flags: u32, known: u32, what: &'static str) -> Result<(), Fail> {
    if flags & !known == 0 {
        Ok(())
    } else {
        Err(Fail::option(what, format_args!("{flags:#x}")))
    }
}

fn durability(options: &raw::OpenOptions) -> Result<Durability, Fail> {
    Ok(match options.durability {
        0 | 1 => Durability::Group,
        2 => Durability::Each,
        3 if options.interval_ms == 0 => return Err(Fail::option("the interval", 0)),
        3 => Durability::Interval(Duration::from_millis(options.interval_ms)),
        4 => Durability::Memory,
        other => return Err(Fail::option("the durability", other)),
    })
}

pub(crate) fn open(
    c: &Caller,
    directory: raw::Slice,
    options: *const raw::OpenOptions,
    out: *mut *mut raw::Weir,
) -> Result<Kind, Fail> {
    c.check_output(out, 1)?;
    let directory = path(c, directory)?;
    let given = c.options(options)?;
    check_flags(given.flags, EXISTING | OR_CONNECT, "flags")?;
    check_flags(given.reserved, 0, "reserved")?;
    let mut options = OpenOptions {
        durability: durability(&given)?,
        create: given.flags & EXISTING == 0,
        ..OpenOptions::default()
    };
    let program = c.text(given.program, "the program")?;
    if !program.is_empty() {
        program.clone_into(&mut options.program);
    }
    let set = |to: &mut u64, value: u64| {
        if value != 0 {
            *to = value;
        }
    };
    set(&mut options.snapshot_log_bytes, given.snapshot_log_bytes);
    set(&mut options.log_segment_bytes, given.log_segment_bytes);
    if given.key_bytes_max != 0 {
        options.limits.key_bytes_max = usize::try_from(given.key_bytes_max).unwrap_or(usize::MAX);
    }
    if given.value_bytes_max != 0 {
        let max = usize::try_from(given.value_bytes_max).unwrap_or(usize::MAX);
        options.limits.value_bytes_max = max;
    }
    let server = ConnectOptions::default();
    let weir = if given.flags & OR_CONNECT == 0 {
        Weir::open_with(&directory, &options)?
    } else {
        Weir::open_or_connect(&directory, &options, &server)?
    };
    create_handle(c, weir, server.patience, out)
}

pub(crate) fn connect(
    c: &Caller,
    address: raw::Slice,
    options: *const raw::ConnectOptions,
    out: *mut *mut raw::Weir,
) -> Result<Kind, Fail> {
    c.check_output(out, 1)?;
    let address = c.text(address, "the address")?;
    let given = c.options(options)?;
    check_flags(given.flags, RECEIVED, "flags")?;
    let mut options = ConnectOptions::default();
    options.received = given.flags & RECEIVED != 0;
    let token = c.text(given.token, "the token")?;
    options.token = (!token.is_empty()).then(|| token.to_owned());
    if given.authority.len > 0 {
        options.authority = Some(path(c, given.authority)?);
    }
    options.identity = match (given.certificate.len, given.key.len) {
        (0, 0) => None,
        (0, _) | (_, 0) => {
            return Err(Fail::option("the identity", "a certificate or a key alone"));
        }
        _ => Some((path(c, given.certificate)?, path(c, given.key)?)),
    };
    let agent = c.text(given.agent, "the agent")?;
    if !agent.is_empty() {
        agent.clone_into(&mut options.agent);
    }
    options.connect_timeout = millis(given.connect_ms, options.connect_timeout);
    options.patience = millis(given.patience_ms, options.patience);
    let weir = Weir::connect_with(address, &options)?;
    create_handle(c, weir, options.patience, out)
}

pub(crate) fn describe(
    c: &Caller,
    store: *mut raw::Weir,
    out: *mut raw::Info,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    let mut info = zeroed::<raw::Info>();
    info.place = if store.is_local() { 1 } else { 2 };
    let (durability, store_id) = store.call(|weir| Ok((weir.durability()?, weir.store_id()?)))?;
    info.durability = match durability {
        Durability::Group => 1,
        Durability::Each => 2,
        Durability::Interval(interval) => {
            info.interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            3
        }
        Durability::Memory => 4,
    };
    info.store_id = store_id;
    c.write_info(out, &info)?;
    Ok(Kind::Ok)
}

pub(crate) fn sync(_: &Caller, store: *mut raw::Weir) -> Result<Kind, Fail> {
    get_store(store)?.call(|weir| Ok(weir.sync()?))?;
    Ok(Kind::Ok)
}

pub(crate) fn close(_: &Caller, store: *mut raw::Weir) -> Result<Kind, Fail> {
    if store.is_null() {
        return Ok(Kind::Ok);
    }
    let store = registry::remove::<Store, _>(store)?;
    store.freed.store(true, Ordering::Release);
    if !store.scope.derived {
        store.closed.store(true, Ordering::Release);
        store.weir.clone().close()?;
    }
    Ok(Kind::Ok)
}

/// `WEIR_FOREVER`.
const FOREVER: u64 = u64::MAX;

pub(crate) fn within(
    c: &Caller,
    store: *mut raw::Weir,
    timeout_ms: u64,
    out: *mut *mut raw::Weir,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let limit = (timeout_ms != FOREVER).then(|| Duration::from_millis(timeout_ms));
    let scope = store.scope.within(limit)?;
    let weir = match scope.limit {
        Some(limit) => store.weir.within(limit),
        None => store.weir.clone(),
    };
    create_derived_handle(c, &store, (weir, scope), out)
}

pub(crate) fn with_consistency(
    c: &Caller,
    store: *mut raw::Weir,
    consistency: u32,
    out: *mut *mut raw::Weir,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let consistency = match consistency {
        1 => Consistency::Local,
        2 => Consistency::Leader,
        3 => Consistency::Linear,
        other => return Err(Fail::option("the consistency", other)),
    };
    let scope = store.scope.within(None)?;
    let weir = store.weir.with_consistency(consistency);
    create_derived_handle(c, &store, (weir, scope), out)
}

fn create_derived_handle(
    c: &Caller,
    parent: &Store,
    (weir, scope): (Weir, Scope),
    out: *mut *mut raw::Weir,
) -> Result<Kind, Fail> {
    let store = Store {
        weir,
        closed: Arc::clone(&parent.closed),
        scope: Arc::new(scope),
        freed: AtomicBool::new(false),
        patience: parent.patience,
    };
    c.write(out, registry::insert(Arc::new(store))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn cancel(store: *mut raw::Weir) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    if !store.scope.derived {
        let text = "a handle of weir_open or weir_connect cannot be cancelled; close it";
        return Err(Fail::new(ErrorCode::Unsupported, text.to_owned()));
    }
    store.scope.cancelled.store(true, Ordering::Release);
    Ok(Kind::Ok)
}

/// Options of a topic.
pub(crate) fn topic_options(
    c: &Caller,
    options: *const raw::TopicOptions,
) -> Result<TopicOptions, Fail> {
    let given = c.options(options)?;
    let mut options = TopicOptions::default();
    options.compaction = match given.compaction {
        0 => Compaction::Off,
        1 => Compaction::Latest,
        other => return Err(Fail::option("the compaction", other)),
    };
    options.program.state = match given.state {
        0 => StateMode::default(),
        other => StateMode::from_number(u64::from(other))
            .ok_or_else(|| Fail::option("the state", other))?,
    };
    let program = &mut options.program;
    let retention = &mut options.retention;
    let numbers = [
        (&mut options.tombstone_ttl_ms, given.tombstone_ttl_ms),
        (&mut options.compaction_lag_ms, given.compaction_lag_ms),
        (&mut options.key_bytes_max, given.key_bytes_max),
        (&mut options.value_bytes_max, given.value_bytes_max),
        (&mut options.keys_max, given.keys_max),
        (&mut retention.age_ms, given.retention_age_ms),
        (&mut retention.bytes, given.retention_bytes),
        (&mut retention.records, given.retention_records),
        (&mut program.fuel_max, given.fuel_max),
        (&mut program.memory_bytes_max, given.memory_bytes_max),
        (&mut program.emits_max, given.emits_max),
        (&mut program.emit_bytes_max, given.emit_bytes_max),
        (&mut program.state_entries_max, given.state_entries_max),
        (&mut program.state_bytes_max, given.state_bytes_max),
    ];
    check_flags(given.set, (1 << numbers.len()) - 1, "set")?;
    for (bit, (to, value)) in numbers.into_iter().enumerate() {
        *to = (given.set & 1 << bit != 0).then_some(value);
    }
    for name in c.array(given.hold_for_groups, given.hold_for_groups_count)? {
        let name = c.text(*name, "the name of a group")?;
        let name = GroupName::new(name).ok_or_else(|| Fail::option("the name of a group", name))?;
        options.retention.hold_for_groups.push(name);
    }
    options.retention.hold_for_groups.sort();
    options.retention.hold_for_groups.dedup();
    Ok(options)
}

pub(crate) fn ensure(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    options: *const raw::TopicOptions,
    created: *mut u32,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    let topic = c.text(topic, "the topic")?;
    if !created.is_null() {
        c.check_output(created, 1)?;
    }
    let options = topic_options(c, options)?;
    let topic = store.weir.topic(topic)?;
    let waits = store.wait_context();
    let is_live = waits.run(|| match topic.try_info() {
        Ok(info) => Ok(info.is_some_and(|info| info.live)),
        // A caller without the right to read may still have the right to create.
        Err(WeirError::Store(StoreError::Remote {
            code: ErrorCode::Forbidden,
            ..
        })) => Ok(false),
        Err(error) => Err(error.into()),
    })?;
    let create = || Ok(topic.create(&options)?.reason());
    let is_created = !is_live
        && match waits.write(create)? {
            None => true,
            // Another client created the topic first.
            Some(ErrorCode::TopicExists) => false,
            Some(code) => return Err(WeirError::NotCreated { code }.into()),
        };
    c.write_if(created, u32::from(is_created))?;
    Ok(Kind::Ok)
}

pub(crate) fn topic_describe(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    out: *mut raw::TopicInfo,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.info_size(out)?;
    let topic = c.text(topic, "the topic")?;
    let Some(found) = store.call(|weir| Ok(weir.topic(topic)?.try_info()?))? else {
        return Ok(Kind::Absent);
    };
    let mut info = zeroed::<raw::TopicInfo>();
    info.live = u32::from(found.live);
    info.id = u64::from(found.id.0);
    info.incarnation = found.incarnation.map_or(0, |offset| offset.0);
    info.first = found.first.0;
    info.last = found.last.0;
    info.keys = found.keys;
    info.bytes = found.bytes;
    c.write_info(out, &info)?;
    Ok(Kind::Ok)
}

pub(crate) fn topics(
    c: &Caller,
    store: *mut raw::Weir,
    with_destroyed: u32,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    let topics = store.call(|weir| Ok(weir.topics(with_destroyed != 0)?))?;
    let page = Page::texts(topics.iter().map(|info| info.name.as_str()));
    into_handle_or(page, c, out, Kind::Absent, Kind::Ok)
}

pub(crate) fn get(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    key: raw::Slice,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    let (topic, key) = (c.text(topic, "the topic")?, c.short(key)?);
    let Some(value) = store.call(|weir| Ok(weir.topic(topic)?.get(key)?))? else {
        return Ok(Kind::Absent);
    };
    Page::value(&value).into_handle(c, out)?;
    Ok(Kind::Ok)
}

pub(crate) fn at(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    offset: u64,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    let (topic, offset) = (c.text(topic, "the topic")?, ConsequenceOffset(offset));
    let Some(value) = store.call(|weir| Ok(weir.topic(topic)?.at(offset)?))? else {
        return Ok(Kind::Absent);
    };
    Page::value(&value).into_handle(c, out)?;
    Ok(Kind::Ok)
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
pub(crate) fn scan(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    prefix: raw::Slice,
    after: raw::Slice,
    limit: u64,
    flags: u32,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    check_flags(flags, AFTER | VALUES, "flags")?;
    let topic = c.text(topic, "the topic")?;
    let limit = if limit == 0 { SCAN_KEYS } else { limit };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let limit = limit.min(ELEMENTS_MAX).min(weir::SCAN_KEYS_MAX);
    let after = c.short(after)?;
    let after = (flags & AFTER != 0).then_some(after);
    let prefix = c.short(prefix)?;
    let entries = store.call(|weir| {
        let topic = weir.topic(topic)?;
        let mut entries = Vec::new();
        let mut after = after.map(<[u8]>::to_vec);
        // A page of keys that all lost their values since the scan is not the end.
        while entries.is_empty() {
            let found = topic.scan(prefix, after.as_deref(), limit)?;
            let Some(last) = found.last() else { break };
            after = Some(last.key.to_vec());
            for entry in found {
                if flags & VALUES == 0 {
                    entries.push((entry, None));
                    continue;
                }
                // The key changed since the scan: use its current value, if it has one.
                let value = match topic.value(&entry)? {
                    Some(value) => Some(value),
                    None => topic.get(&entry.key)?,
                };
                if value.is_some() {
                    entries.push((entry, value));
                }
            }
        }
        Ok(entries)
    })?;
    into_handle_or(Page::keys(&entries), c, out, Kind::Done, Kind::Ok)
}
