//! The context of a call: all data that a program can read or change during an intention.
//!
//! The machine sets the input, an engine runs the program with the context, and the machine then
//! commits or reverts the changes. All limits are checked here, before anything is stored. The
//! memory of a context is reused for the next call.

use std::ops::Range;
use std::sync::Arc;

use crate::code::{CodeHash, StateMode, TrapKind};
use crate::digest::{hash, mix};
use crate::exact::{part, to_u32};
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset};
pub use crate::image::{IMAGE_PAGE_BYTES, Image, ImageMemory};
use crate::kv::KvMap;
use crate::limits::{KEY_BYTES_MAX, REJECT_TEXT_BYTES_MAX, UNDO_BYTES_MIN, VALUE_BYTES_MAX};
use crate::options::ProgramLimits;

/// Bytes of the header that a program reads.
pub const HEADER_BYTES: usize = 128;
/// Bytes before a value in the copy of the topic's keys: the offset of its record.
pub(crate) const OFFSET_BYTES: usize = 8;
/// Maximum bytes of a buffer that are retained for the next call.
const RETAINED_BYTES_MAX: usize = 256 << 10;
/// Maximum number of emits whose memory is retained for the next call.
const RETAINED_EMITS_MAX: usize = 1024;

/// Why the context rejects a request of the program. The call ends with this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The program did something that is not permitted.
    Trap(TrapKind),
    /// A limit was exceeded; its value.
    Limit(u64),
    /// The request costs more fuel than is left.
    OutOfFuel,
}

/// Properties of the call other than key and value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallInfo {
    pub(crate) op: u32,
    pub(crate) txn: bool,
    pub(crate) intention: IntentionOffset,
    pub(crate) term: u64,
    pub(crate) time_ms: u64,
    pub(crate) client: ClientId,
    pub(crate) nonce: u64,
    pub(crate) op_index: u32,
    pub(crate) op_count: u32,
}

/// Operation numbers in the header.
pub(crate) mod op {
    pub(crate) const INIT: u32 = 0;
    pub(crate) const PUT: u32 = 1;
    pub(crate) const DELETE: u32 = 2;
    pub(crate) const UPGRADE: u32 = 3;
}

/// Location of the bytes of an emitted key or value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// In the context's arena: start and length.
    Arena(usize, usize),
    /// The key of the operation.
    Key,
    /// A part of the value of the operation: start and length.
    Value(usize, usize),
}

/// A record that a program requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emit {
    /// Index of the operation that was being judged.
    pub(crate) op_index: u32,
    pub(crate) delete: bool,
    pub(crate) key: Source,
    pub(crate) value: Source,
}

/// The context of a call; see the module.
#[derive(Debug, Default)]
pub struct CallContext {
    /// Name of the topic, for reports about the program. Programs cannot read it.
    topic: Arc<str>,
    info: CallInfo,
    mode: StateMode,
    limits: ProgramLimits,
    key: Vec<u8>,
    value: Vec<u8>,
    principal: Vec<u8>,
    key_bytes: usize,
    value_bytes: usize,
    principal_bytes: usize,
    args: Arc<[u8]>,
    old_code: Option<CodeHash>,
    /// Offset of the first record of this intention.
    first: ConsequenceOffset,
    emits: Vec<Emit>,
    arena: Vec<u8>,
    emit_bytes: u64,
    emit_bytes_max: u64,
    text: Vec<u8>,
    state: KvMap,
    /// The topic's keys, for programs that read them: offset (8 bytes) and value. `None` for other
    /// programs.
    keys: Option<KvMap>,
    image: Image,
    /// Hash of all changes.
    digest: u64,
    fuel: u64,
}

impl CallContext {
    pub(crate) fn new(mode: StateMode, limits: ProgramLimits, args: Arc<[u8]>) -> Self {
        Self {
            mode,
            limits,
            args,
            ..Self::default()
        }
    }

    /// A copy of the state that the program keeps between intentions, without the data of the last
    /// intention. O(1), because a snapshot calls this while writers wait.
    pub(crate) fn without_call(&self) -> Self {
        Self {
            topic: Arc::clone(&self.topic),
            mode: self.mode,
            limits: self.limits,
            args: Arc::clone(&self.args),
            state: self.state.clone(),
            keys: self.keys.clone(),
            image: self.image.clone(),
            ..Self::default()
        }
    }

    pub(crate) fn set_topic(&mut self, topic: &str) {
        self.topic = Arc::from(topic);
    }

    /// Starts an intention. Its first record would have this offset.
    pub(crate) fn begin_intention(&mut self, first: ConsequenceOffset) {
        self.first = first;
        self.emits.clear();
        self.arena.clear();
        self.text.clear();
        self.emit_bytes = 0;
        self.emit_bytes_max = self.limits.emit_bytes_max;
        self.digest = 0;
        self.fuel = 0;
    }

    /// Ends an intention: frees the memory that a large one used, so that an idle topic uses
    /// little.
    pub(crate) fn release_memory(&mut self) {
        for bytes in [&mut self.arena, &mut self.value] {
            if bytes.capacity() > RETAINED_BYTES_MAX {
                bytes.clear();
                bytes.shrink_to(RETAINED_BYTES_MAX);
            }
        }
        if self.emits.capacity() > RETAINED_EMITS_MAX {
            self.emits.clear();
            self.emits.shrink_to(RETAINED_EMITS_MAX);
        }
    }

    /// Sets the operation. The bytes are copied only if `copies`, for a program that may read them.
    pub(crate) fn set_input(&mut self, info: CallInfo, key: &[u8], value: &[u8], copies: bool) {
        self.info = info;
        (self.key_bytes, self.value_bytes) = (key.len(), value.len());
        // The program may emit one copy of the input in addition to the limit.
        self.emit_bytes_max += (key.len() + value.len()) as u64;
        if copies {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.value.clear();
            self.value.extend_from_slice(value);
        }
    }

    pub(crate) fn set_principal(&mut self, principal: &[u8]) {
        self.principal_bytes = principal.len();
        self.principal.clear();
        self.principal.extend_from_slice(principal);
    }

    pub(crate) fn set_old_code(&mut self, old: Option<CodeHash>) {
        self.old_code = old;
    }

    pub(crate) fn set_limits(&mut self, limits: ProgramLimits) {
        self.limits = limits;
    }

    pub(crate) fn limits(&self) -> &ProgramLimits {
        &self.limits
    }

    pub(crate) fn set_args(&mut self, args: Arc<[u8]>) {
        self.args = args;
    }

    /// Starts to keep a copy of the topic's keys, or stops.
    pub(crate) fn track_keys(&mut self, track: bool) {
        self.keys = track.then(KvMap::default);
    }

    pub(crate) fn state_mut(&mut self) -> &mut KvMap {
        &mut self.state
    }

    pub(crate) fn keys_mut(&mut self) -> Option<&mut KvMap> {
        self.keys.as_mut()
    }

    pub(crate) fn keys(&self) -> Option<&KvMap> {
        self.keys.as_ref()
    }

    pub(crate) fn image_mut(&mut self) -> &mut Image {
        &mut self.image
    }

    pub(crate) fn commit(&mut self) {
        self.state.commit();
        if let Some(keys) = &mut self.keys {
            keys.commit();
        }
    }

    pub(crate) fn revert(&mut self) {
        self.state.rollback();
        if let Some(keys) = &mut self.keys {
            keys.rollback();
        }
    }

    pub(crate) fn emits(&self) -> &[Emit] {
        &self.emits
    }

    pub(crate) fn resolve<'a>(
        &'a self,
        source: Source,
        key: &'a [u8],
        value: &'a [u8],
    ) -> &'a [u8] {
        let (bytes, start, len) = match source {
            Source::Arena(start, len) => (&self.arena[..], start, len),
            Source::Value(start, len) => (value, start, len),
            Source::Key => return key,
        };
        part(bytes, start..start + len, "the requested part was checked")
    }

    /// Hash of all changes of the intention.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    // ---- interface for engines ----

    /// The state mode of the program.
    #[must_use]
    pub fn mode(&self) -> StateMode {
        self.mode
    }

    /// The state entries of mode `kv`.
    #[must_use]
    pub fn state(&self) -> &KvMap {
        &self.state
    }

    /// The memory of mode `memory`.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Name of the topic of the program.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Offset of the current intention.
    #[must_use]
    pub fn intention(&self) -> IntentionOffset {
        self.info.intention
    }

    /// Index of the current step of a transaction, from 0; 0 for other writes.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.info.op_index
    }

    /// Time stamp of the intention, milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.info.time_ms
    }

    /// Adds to the fuel of the intention.
    pub fn consume_fuel(&mut self, fuel: u64) {
        self.fuel = self.fuel.saturating_add(fuel);
    }

    /// Fuel charged to the calls of this intention so far.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// The header of the call, little-endian (crates/weir-program/README.md).
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let info = &self.info;
        let flags = u32::from(info.txn) | u32::from(self.principal_bytes != 0) << 1;
        let mut out = [0; HEADER_BYTES];
        let mut at = 0;
        let mut field = |bytes: &[u8]| {
            if let Some(to) = out.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
            at += bytes.len();
        };
        field(&info.op.to_le_bytes());
        field(&flags.to_le_bytes());
        field(&info.intention.0.to_le_bytes());
        field(&self.next_offset().to_le_bytes());
        field(&info.term.to_le_bytes());
        field(&info.time_ms.to_le_bytes());
        field(&info.nonce.to_le_bytes());
        field(&info.client.0);
        for len in [
            self.key_bytes,
            self.value_bytes,
            self.args.len(),
            self.principal_bytes,
        ] {
            field(&length(len).to_le_bytes());
        }
        field(&info.op_index.to_le_bytes());
        field(&info.op_count.to_le_bytes());
        out
    }

    fn next_offset(&self) -> u64 {
        self.first.0 + self.emits.len() as u64
    }

    /// A part of the input, from the byte `from` on. `what` is 0 key, 1 value, 2 arguments, 3
    /// principal, 4 hash of the replaced code. Empty if `from` is after the end.
    pub fn input(&self, what: u32, from: usize) -> Result<&[u8], Stop> {
        let bytes = match what {
            0 => &self.key[..],
            1 => &self.value,
            2 => &self.args,
            3 => &self.principal,
            4 => self.old_code.as_ref().map_or(&[][..], |hash| &hash.0),
            _ => return Err(Stop::Trap(TrapKind::Argument)),
        };
        Ok(bytes.get(from..).unwrap_or(&[]))
    }

    /// Requests a PUT record. Before it copies anything, the method calls `charge` with the bytes
    /// of keys and values that it will save for a revert. If `charge` fails, nothing changes. This
    /// holds for all methods with `charge`.
    pub fn emit_put(
        &mut self,
        key: &[u8],
        value: &[u8],
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        charge(self.may_put(key, value.len())?)?;
        let source = self.store(key);
        let value_source = self.store(value);
        self.digest = mix(mix(mix(self.digest, 1), hash(0, key)), hash(1, value));
        self.track_put(key, value);
        self.emit(false, source, value_source);
        Ok(())
    }

    /// Requests a DELETE record; `charge` as for [`emit_put`](Self::emit_put).
    pub fn emit_delete(
        &mut self,
        key: &[u8],
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if key.is_empty() {
            return Err(Stop::Trap(TrapKind::Argument));
        }
        self.may_emit(key.len(), 0)?;
        charge(self.undo_bytes_of_delete(key))?;
        let source = self.store(key);
        self.digest = mix(mix(self.digest, 2), hash(0, key));
        if let Some(keys) = &mut self.keys {
            keys.delete(key);
        }
        self.emit(true, source, Source::Arena(0, 0));
        Ok(())
    }

    /// Requests the operation itself as a record. `charge` gets the sum of the bytes of its key and
    /// value and of the bytes that will be saved for a revert.
    pub fn emit_input(
        &mut self,
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let delete = match self.info.op {
            op::PUT => false,
            op::DELETE => true,
            _ => return Err(Stop::Trap(TrapKind::Argument)),
        };
        let bytes = self.key_bytes + self.value_bytes;
        if self.keys.is_none() {
            self.may_emit(self.key_bytes, self.value_bytes)?;
            charge(bytes)?;
        } else {
            // The input was copied, because the context keeps the topic's keys.
            let (key, value) = (
                std::mem::take(&mut self.key),
                std::mem::take(&mut self.value),
            );
            let charge = |undo_bytes| charge(bytes + undo_bytes);
            let done = self.track_input(delete, &key, &value, charge);
            (self.key, self.value) = (key, value);
            done?;
        }
        self.digest = mix(self.digest, 3);
        self.emit(delete, Source::Key, Source::Value(0, self.value_bytes));
        Ok(())
    }

    /// Requests a PUT record with a part of the operation's value; `charge` as for
    /// [`emit_put`](Self::emit_put).
    pub fn emit_value(
        &mut self,
        key: &[u8],
        from: usize,
        len: usize,
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if from
            .checked_add(len)
            .is_none_or(|end| end > self.value_bytes)
        {
            return Err(Stop::Trap(TrapKind::Pointer));
        }
        charge(self.may_put(key, len)?)?;
        let source = self.store(key);
        let place = mix(from as u64, len as u64);
        self.digest = mix(mix(mix(self.digest, 4), hash(0, key)), place);
        if self.keys.is_some() {
            let value = std::mem::take(&mut self.value);
            let copied = "a topic that stores keys copies its input";
            self.track_put(key, part(&value, from..from + len, copied));
            self.value = value;
        }
        self.emit(false, source, Source::Value(from, len));
        Ok(())
    }

    fn may_emit(&mut self, key: usize, value: usize) -> Result<(), Stop> {
        let limits = &self.limits;
        if self.emits.len() as u64 >= limits.emits_max {
            return Err(Stop::Limit(limits.emits_max));
        }
        if key > KEY_BYTES_MAX {
            return Err(Stop::Limit(KEY_BYTES_MAX as u64));
        }
        self.emit_bytes += (key + value) as u64;
        if self.emit_bytes > self.emit_bytes_max {
            return Err(Stop::Limit(limits.emit_bytes_max));
        }
        Ok(())
    }

    /// Checks the limits of a PUT record. Returns the bytes that will be saved for a revert. A
    /// DELETE has no such limits: the key could be set once, whatever the current options are.
    fn may_put(&mut self, key: &[u8], value: usize) -> Result<usize, Stop> {
        let limits = &self.limits;
        if key.len() as u64 > limits.key_bytes_max {
            return Err(Stop::Limit(limits.key_bytes_max));
        }
        let value_max = limits.value_bytes_max.min(VALUE_BYTES_MAX as u64);
        if value as u64 > value_max {
            return Err(Stop::Limit(value_max));
        }
        let mut undo_bytes = 0;
        if let Some(keys) = &self.keys
            && !key.is_empty()
        {
            let value = (OFFSET_BYTES + value) as u64;
            let old = keys.get(key);
            undo_bytes = key.len() + old.map_or(0, <[u8]>::len);
            let (bytes, new) = match old {
                Some(old) => (keys.bytes() - old.len() as u64 + value, false),
                None => (keys.bytes() + key.len() as u64 + value, true),
            };
            if bytes > limits.state_bytes_max {
                return Err(Stop::Limit(limits.state_bytes_max));
            }
            if new && keys.len() as u64 >= limits.state_entries_max {
                return Err(Stop::Limit(limits.state_entries_max));
            }
        }
        self.may_emit(key.len(), value)?;
        Ok(undo_bytes)
    }

    /// Bytes that will be saved for a revert if the key is deleted.
    fn undo_bytes_of_delete(&self, key: &[u8]) -> usize {
        let old = self.keys.as_ref().and_then(|keys| keys.get(key));
        old.map_or(0, |old| key.len() + old.len())
    }

    fn track_input(
        &mut self,
        delete: bool,
        key: &[u8],
        value: &[u8],
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if !delete {
            charge(self.may_put(key, value.len())?)?;
            self.track_put(key, value);
            return Ok(());
        }
        self.may_emit(key.len(), 0)?;
        charge(self.undo_bytes_of_delete(key))?;
        if let Some(keys) = &mut self.keys {
            keys.delete(key);
        }
        Ok(())
    }

    fn store(&mut self, bytes: &[u8]) -> Source {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        Source::Arena(start, bytes.len())
    }

    fn track_put(&mut self, key: &[u8], value: &[u8]) {
        let offset = self.next_offset().to_le_bytes();
        if let Some(keys) = &mut self.keys
            && !key.is_empty()
        {
            keys.put(key, [&offset, value]);
        }
    }

    fn emit(&mut self, delete: bool, key: Source, value: Source) {
        self.digest = mix(self.digest, u64::from(self.info.op_index));
        self.emits.push(Emit {
            op_index: self.info.op_index,
            delete,
            key,
            value,
        });
    }

    /// Sets the text of a rejection. The last call counts.
    pub fn reject_text(&mut self, text: &[u8]) -> Result<(), Stop> {
        if text.len() > REJECT_TEXT_BYTES_MAX {
            return Err(Stop::Trap(TrapKind::Pointer));
        }
        self.text.clear();
        self.text.extend_from_slice(text);
        Ok(())
    }

    fn in_kv(&self) -> Result<(), Stop> {
        if self.mode == StateMode::Kv {
            Ok(())
        } else {
            Err(Stop::Trap(TrapKind::Mode))
        }
    }

    /// The value of a key of the state.
    pub fn state_get(&self, key: &[u8]) -> Result<Option<&[u8]>, Stop> {
        self.in_kv()?;
        Ok(self.state.get(key))
    }

    /// Sets the value of a key of the state; `charge` as for [`emit_put`](Self::emit_put).
    pub fn state_put(
        &mut self,
        key: &[u8],
        value: &[u8],
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.in_kv()?;
        let limits = &self.limits;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Stop::Trap(TrapKind::Argument));
        }
        let old = self.state.get(key);
        let bytes = match old {
            Some(old) => self.state.bytes() - old.len() as u64,
            None => self.state.bytes() + key.len() as u64,
        };
        if bytes + value.len() as u64 > limits.state_bytes_max {
            return Err(Stop::Limit(limits.state_bytes_max));
        }
        if old.is_none() && self.state.len() as u64 >= limits.state_entries_max {
            return Err(Stop::Limit(limits.state_entries_max));
        }
        let undo_bytes = key.len() + old.map_or(0, <[u8]>::len);
        self.check_undo(undo_bytes)?;
        charge(undo_bytes)?;
        self.digest = mix(mix(mix(self.digest, 5), hash(0, key)), hash(1, value));
        self.state.put(key, [value, &[]]);
        Ok(())
    }

    /// Checks that the undo log has space for `bytes` more in this intention.
    fn check_undo(&self, bytes: usize) -> Result<(), Stop> {
        let max = UNDO_BYTES_MIN.max(2 * self.limits.state_bytes_max);
        if self.state.undo_log_bytes() + bytes as u64 > max {
            return Err(Stop::Limit(max));
        }
        Ok(())
    }

    /// Removes a key of the state; `charge` as for [`emit_put`](Self::emit_put).
    pub fn state_delete(
        &mut self,
        key: &[u8],
        charge: impl FnOnce(usize) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.in_kv()?;
        let old = self.state.get(key).map(<[u8]>::len);
        self.check_undo(key.len() + old.unwrap_or(0))?;
        charge(old.map_or(0, |old| key.len() + old))?;
        self.digest = mix(mix(self.digest, 6), hash(0, key));
        self.state.delete(key);
        Ok(())
    }

    /// The smallest key of the state after the given one.
    pub fn state_next(&self, key: &[u8]) -> Result<Option<&[u8]>, Stop> {
        self.in_kv()?;
        Ok(self.state.next(key))
    }

    /// Offset and value of a key of the topic, including the records of this intention.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<(u64, &[u8])> {
        let (offset, value) = self.keys.as_ref()?.get(key)?.split_first_chunk::<8>()?;
        Some((u64::from_le_bytes(*offset), value))
    }

    /// Stores the memory after a call as the new state. Compares only the ranges in `written`,
    /// which are ascending; if no memory was stored before, compares all of it.
    pub fn keep_memory(&mut self, memory: &[u8], written: impl Iterator<Item = Range<usize>>) {
        let fresh = self.image.memory.is_empty();
        if self.image.memory.len() != memory.len() {
            self.digest = mix(self.digest, memory.len() as u64);
            self.image.memory.resize(memory.len());
        }
        if fresh {
            return self.keep_pages(memory, 0..memory.len());
        }
        written.for_each(|part| self.keep_pages(memory, part));
    }

    fn keep_pages(&mut self, memory: &[u8], part: Range<usize>) {
        let (first, end) = (
            part.start / IMAGE_PAGE_BYTES,
            part.end.div_ceil(IMAGE_PAGE_BYTES),
        );
        let pages = memory.chunks(IMAGE_PAGE_BYTES).enumerate();
        for (number, new) in pages.take(end).skip(first) {
            if self.image.memory.set_page(number, new) {
                self.digest = mix(mix(self.digest, number as u64), hash(2, new));
            }
        }
    }

    /// Stores the globals after a call, as raw bits, as the new state.
    pub fn keep_globals(&mut self, globals: impl Iterator<Item = u64>) {
        self.image.globals.clear();
        self.image.globals.extend(globals);
        for global in &self.image.globals {
            self.digest = mix(self.digest, *global);
        }
    }
}

fn length(bytes: usize) -> u32 {
    to_u32(bytes, "keys and values are limited")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_between_calls_uses_little_memory() {
        let mut context = CallContext::default();
        context.set_input(CallInfo::default(), b"k", &vec![1; 4 << 20], true);
        context.arena = vec![1; 4 << 20];
        context.state.put(b"k", [b"v", b""]);
        for n in 0..100_000_u32 {
            context.state.put(&n.to_le_bytes(), [b"v", b""]);
        }
        context.commit();
        context.release_memory();
        let held = context.value.capacity() + context.arena.capacity();
        assert!(held <= 2 * RETAINED_BYTES_MAX, "{held}");
        assert_eq!(context.state.undo_log_bytes(), 0);
        assert!(context.state.undo_capacity() <= 256 << 10);
    }

    #[test]
    fn only_written_ranges_are_compared() {
        let mut context = CallContext::default();
        let mut memory = vec![0; 8 * IMAGE_PAGE_BYTES];
        memory[5] = 1;
        context.keep_memory(&memory, std::iter::empty());
        assert_eq!(
            context.image().memory.pages().count(),
            1,
            "all of the first"
        );
        (memory[2 * IMAGE_PAGE_BYTES], memory[6 * IMAGE_PAGE_BYTES]) = (2, 3);
        let digest = context.digest();
        context.keep_memory(&memory, std::iter::empty());
        assert_eq!(context.digest(), digest);
        let part = 2 * IMAGE_PAGE_BYTES..2 * IMAGE_PAGE_BYTES + 1;
        context.keep_memory(&memory, std::iter::once(part));
        assert_ne!(context.digest(), digest);
        assert_eq!(context.image().memory.pages().count(), 2, "but not page 6");
    }
}
