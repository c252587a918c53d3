//! The interface `weir1`: the implementation of each imported function, shared by all engines. This
//! module checks every pointer against the current size of the memory.

use weir_core::call_context::{CallContext, Stop};
use weir_core::exact::{to_i32, to_i64};
use weir_core::{TrapKind, program::Entry};
use weir_scan::{Level, PASS_WORK, Path, Plan, Shape, Tag};

use crate::lines::Lines;

/// Name of the module that a program imports from.
pub(crate) const MODULE: &str = "weir1";
/// Exported function that returns the version of the interface.
pub(crate) const VERSION_NAME: &str = "weir_abi";
/// The only supported version.
pub(crate) const VERSION: i32 = 1;
/// Exported function that returns the version of the layout of the state.
pub(crate) const STATE_VERSION_NAME: &str = "weir_state";

/// Bytes of a page of linear memory.
pub(crate) const PAGE_BYTES: u64 = 65_536;

/// Fuel of every call of a host function.
const CALL_FUEL: u64 = 100;
/// Additional fuel of an emitted record.
const EMIT_FUEL: u64 = 500;
/// Additional fuel of each lookup of an entry. Also the fuel of each JSON path and of each of its
/// steps, which become a tree.
const LOOKUP_FUEL: u64 = 100;
/// Additional fuel of each change of an entry of the state, because the old value is kept for a
/// rollback.
const CHANGE_FUEL: u64 = 200;
/// Fuel of each hashed byte.
const HASH_BYTE_FUEL: u64 = 4;
/// Fuel of each byte of JSON, for each pass over it. It covers the slowest kernel, because all
/// nodes must agree.
const JSON_BYTE_FUEL: u64 = 2;
/// Fuel of each byte of the paths, charged before they are parsed.
const PATH_BYTE_FUEL: u64 = 16;
/// Maximum size of all paths of a call, in bytes.
const PATHS_BYTES_MAX: usize = 4096;
/// Bytes that `json_find` writes for each path.
const FOUND_BYTES: usize = 12;

/// Name of the exported function for an entry point.
pub(crate) fn entry_name(entry: Entry) -> &'static str {
    match entry {
        Entry::Init => "weir_init",
        Entry::Apply => "weir_apply",
        Entry::Upgrade => "weir_upgrade",
    }
}

/// Imported functions: name, number of `i32` parameters, type of the result.
pub(crate) const IMPORTS: [(&str, usize, Returns); 16] = [
    ("input_info", 1, Returns::Nothing),
    ("input_read", 4, Returns::I32),
    ("emit_put", 4, Returns::Nothing),
    ("emit_delete", 2, Returns::Nothing),
    ("emit_input", 0, Returns::Nothing),
    ("emit_value", 4, Returns::Nothing),
    ("reject_text", 2, Returns::Nothing),
    ("state_get", 5, Returns::I32),
    ("state_put", 4, Returns::Nothing),
    ("state_delete", 2, Returns::Nothing),
    ("state_next", 4, Returns::I32),
    ("key_get", 5, Returns::I32),
    ("key_offset", 2, Returns::I64),
    ("hash", 4, Returns::Nothing),
    ("json_find", 5, Returns::I32),
    ("log", 3, Returns::Nothing),
];

/// The type of the result of an imported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    Nothing,
    I32,
    I64,
}

/// A finished host call: its result, and where it wrote into the memory of the guest (first byte,
/// number of bytes).
pub(crate) struct HostCallResult {
    pub(crate) result: i64,
    pub(crate) wrote: (usize, usize),
}

impl HostCallResult {
    const EMPTY: Self = Self::value(0);

    const fn value(result: i64) -> Self {
        Self {
            result,
            wrote: (0, 0),
        }
    }
}

/// The fuel that a host call may use. A call is charged before it is executed, so a call that runs
/// out of fuel causes no work.
pub(crate) struct FuelBudget {
    left: u64,
    used: u64,
}

impl FuelBudget {
    pub(crate) fn new(left: u64) -> Self {
        Self { left, used: 0 }
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    fn charge(&mut self, fuel: u64) -> Result<(), Stop> {
        self.left = self.left.checked_sub(fuel).ok_or(Stop::OutOfFuel)?;
        self.used += fuel;
        Ok(())
    }

    /// Charges a call that moves `bytes` bytes; `beside` is the fuel of its other work.
    fn charge_move(&mut self, bytes: usize, beside: u64) -> Result<(), Stop> {
        self.charge(CALL_FUEL + beside + bytes as u64 / 8)
    }
}

const BAD_POINTER: Stop = Stop::Trap(TrapKind::Pointer);
const ABSENT: i64 = -1;

fn size(value: i32) -> usize {
    value.cast_unsigned() as usize
}

/// A part of the memory of the guest.
fn piece(memory: &[u8], ptr: i32, len: i32) -> Result<&[u8], Stop> {
    let (from, len) = (size(ptr), size(len));
    let end = from.checked_add(len).ok_or(BAD_POINTER)?;
    memory.get(from..end).ok_or(BAD_POINTER)
}

fn piece_mut(memory: &mut [u8], ptr: i32, len: i32) -> Result<&mut [u8], Stop> {
    let (from, len) = (size(ptr), size(len));
    let end = from.checked_add(len).ok_or(BAD_POINTER)?;
    memory.get_mut(from..end).ok_or(BAD_POINTER)
}

/// Copies as much of `from` as fits.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let len = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..len), to.get_mut(..len)) {
        to.copy_from_slice(from);
    }
    len
}

/// Copies a value into the guest, starting at `off`. Returns the full length. The bytes of the key
/// are charged too, because the lookup compares them.
fn copy_out(
    memory: &mut [u8],
    value: Option<&[u8]>,
    klen: i32,
    (off, ptr, cap): (i32, i32, i32),
    fuel_budget: &mut FuelBudget,
) -> Result<HostCallResult, Stop> {
    let looked = LOOKUP_FUEL + size(klen) as u64 / 8;
    let to = piece_mut(memory, ptr, cap)?;
    let Some(value) = value else {
        fuel_budget.charge_move(0, looked)?;
        return Ok(HostCallResult::value(ABSENT));
    };
    let rest = value.get(size(off)..).unwrap_or(&[]);
    fuel_budget.charge_move(rest.len().min(to.len()), looked)?;
    let moved = copy(rest, to);
    Ok(HostCallResult {
        result: to_i64(value.len(), "a slice is shorter"),
        wrote: (size(ptr), moved),
    })
}

pub(crate) fn input_info(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    ptr: i32,
) -> Result<HostCallResult, Stop> {
    let header = d.header();
    let len = to_i32(header.len(), "a header has a few dozen bytes");
    let to = piece_mut(m, ptr, len)?;
    p.charge_move(header.len(), 0)?;
    to.copy_from_slice(&header);
    Ok(HostCallResult {
        result: 0,
        wrote: (size(ptr), header.len()),
    })
}

pub(crate) fn input_read(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (what, off, ptr, cap): (i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let to = piece_mut(m, ptr, cap)?;
    let from = d.input(what.cast_unsigned(), size(off))?;
    p.charge_move(from.len().min(to.len()), 0)?;
    let moved = copy(from, to);
    Ok(HostCallResult {
        result: to_i64(moved, "a slice is shorter"),
        wrote: (size(ptr), moved),
    })
}

pub(crate) fn emit_put(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen, vptr, vlen): (i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let (key, value) = (piece(m, kptr, klen)?, piece(m, vptr, vlen)?);
    let bytes = key.len() + value.len();
    d.emit_put(key, value, |undo_bytes| {
        p.charge_move(bytes + undo_bytes, EMIT_FUEL)
    })?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn emit_delete(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen): (i32, i32),
) -> Result<HostCallResult, Stop> {
    let key = piece(m, kptr, klen)?;
    d.emit_delete(key, |undo_bytes| {
        p.charge_move(key.len() + undo_bytes, EMIT_FUEL)
    })?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn emit_input(d: &mut CallContext, p: &mut FuelBudget) -> Result<HostCallResult, Stop> {
    d.emit_input(|bytes| p.charge_move(bytes, EMIT_FUEL))?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn emit_value(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen, voff, vlen): (i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let key = piece(m, kptr, klen)?;
    let bytes = key.len() + size(vlen);
    let charge = |undo_bytes| p.charge_move(bytes + undo_bytes, EMIT_FUEL);
    d.emit_value(key, size(voff), size(vlen), charge)?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn reject_text(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (ptr, len): (i32, i32),
) -> Result<HostCallResult, Stop> {
    let text = piece(m, ptr, len)?;
    // A text that is too long is rejected before it is charged.
    d.reject_text(text)?;
    p.charge_move(text.len(), 0)?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn state_get(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen, off, ptr, cap): (i32, i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let value = d.state_get(piece(m, kptr, klen)?)?;
    copy_out(m, value, klen, (off, ptr, cap), p)
}

pub(crate) fn state_put(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen, vptr, vlen): (i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let (key, value) = (piece(m, kptr, klen)?, piece(m, vptr, vlen)?);
    d.state_put(key, value, |undo_bytes| {
        p.charge_move(value.len() + undo_bytes, CHANGE_FUEL)
    })?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn state_delete(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen): (i32, i32),
) -> Result<HostCallResult, Stop> {
    let key = piece(m, kptr, klen)?;
    d.state_delete(key, |undo_bytes| {
        p.charge_move(undo_bytes.max(key.len()), CHANGE_FUEL)
    })?;
    Ok(HostCallResult::EMPTY)
}

pub(crate) fn state_next(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen, ptr, cap): (i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let next = d.state_next(piece(m, kptr, klen)?)?;
    copy_out(m, next, klen, (0, ptr, cap), p)
}

pub(crate) fn key_get(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen, off, ptr, cap): (i32, i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let value = d.key(piece(m, kptr, klen)?).map(|(_, value)| value);
    copy_out(m, value, klen, (off, ptr, cap), p)
}

pub(crate) fn key_offset(
    m: &mut [u8],
    d: &mut CallContext,
    p: &mut FuelBudget,
    (kptr, klen): (i32, i32),
) -> Result<HostCallResult, Stop> {
    let offset = d.key(piece(m, kptr, klen)?).map_or(0, |(offset, _)| offset);
    p.charge_move(0, LOOKUP_FUEL + size(klen) as u64 / 8)?;
    Ok(HostCallResult::value(
        i64::try_from(offset).unwrap_or(i64::MAX),
    ))
}

pub(crate) fn hash(
    m: &mut [u8],
    p: &mut FuelBudget,
    (alg, ptr, len, out): (i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let bytes = piece(m, ptr, len)?.len() as u64;
    let digest: fn(&[u8]) -> [u8; 32] = match alg {
        1 => sha256,
        2 => |bytes| *blake3::hash(bytes).as_bytes(),
        _ => return Err(Stop::Trap(TrapKind::Argument)),
    };
    piece(m, out, 32)?;
    p.charge(CALL_FUEL + bytes * HASH_BYTE_FUEL)?;
    let digest = digest(piece(m, ptr, len)?);
    piece_mut(m, out, 32)?.copy_from_slice(&digest);
    Ok(HostCallResult {
        result: 0,
        wrote: (size(out), digest.len()),
    })
}

/// SHA-256 of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}

/// The input is not valid JSON. The position of the first wrong byte is written.
const NOT_JSON: i64 = -1;
/// A path is invalid.
const NOT_PATHS: i64 = -2;

/// Finds values in a part of the input by their paths, one path per line. With `flags` 1 the whole
/// part must be JSON as in RFC 8259. Otherwise it is checked only as far as an error could change
/// the results.
pub(crate) fn json_find(
    m: &mut [u8],
    d: &CallContext,
    p: &mut FuelBudget,
    (what, flags, paths, plen, out): (i32, i32, i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let text = piece(m, paths, plen)?;
    let level = match flags {
        0 => Level::Structural,
        1 => Level::Strict,
        _ => return Err(Stop::Trap(TrapKind::Argument)),
    };
    let input = d.input(what.cast_unsigned(), 0)?;
    if text.len() > PATHS_BYTES_MAX {
        // Rejected before the paths are parsed.
        p.charge_move(0, 0)?;
        return Ok(HostCallResult::value(NOT_PATHS));
    }
    p.charge_move(0, text.len() as u64 * PATH_BYTE_FUEL)?;
    let count = text.split(|&byte| byte == b'\n').count();
    let len = i32::try_from(count * FOUND_BYTES).unwrap_or(i32::MAX);
    piece(m, out, len)?;
    let steps = text.iter().filter(|byte| matches!(byte, b'.' | b'['));
    p.charge((count + steps.count()) as u64 * LOOKUP_FUEL)?;
    let Some(wanted) = parse_paths(text, level) else {
        return Ok(HostCallResult::value(NOT_PATHS));
    };
    p.charge(search_fuel(input.len(), &wanted))?;
    let done = |result, wrote| HostCallResult {
        result,
        wrote: (size(out), wrote),
    };
    let to = piece_mut(m, out, len)?;
    let items = match weir_scan::scan(input, &wanted) {
        Ok(items) => items,
        Err(error) => {
            let at = u32::try_from(error.offset).unwrap_or(u32::MAX);
            if let Some(first) = to.first_chunk_mut::<4>() {
                *first = at.to_le_bytes();
            }
            return Ok(done(NOT_JSON, 4));
        }
    };
    let mut found = 0;
    for (at, place) in to.chunks_exact_mut(FOUND_BYTES).enumerate() {
        let value = items.value(0, at);
        found += i64::from(value.tag != Tag::Undefined);
        let fields = [value.tag as u32, value.span.offset, value.span.len];
        for (field, to) in fields.iter().zip(place.as_chunks_mut::<4>().0) {
            *to = field.to_le_bytes();
        }
    }
    Ok(done(found, to.len()))
}

/// Fuel of a search through `bytes` bytes. Each byte is charged for the largest number of passes
/// that the paths may need.
fn search_fuel(bytes: usize, wanted: &Plan) -> u64 {
    bytes as u64 * JSON_BYTE_FUEL * wanted.paths().work() / PASS_WORK
}

/// The plan for the paths; `None` if one of them is invalid.
fn parse_paths(text: &[u8], level: Level) -> Option<Plan> {
    let lines = std::str::from_utf8(text).ok()?.split('\n');
    let paths: Result<Vec<Path>, _> = lines.map(Path::parse).collect();
    Plan::new(Shape::Single, level, &paths.ok()?).ok()
}

pub(crate) fn log(
    m: &mut [u8],
    d: &CallContext,
    p: &mut FuelBudget,
    lines: &Lines,
    (level, ptr, len): (i32, i32, i32),
) -> Result<HostCallResult, Stop> {
    let text = piece(m, ptr, len)?;
    p.charge_move(text.len(), 0)?;
    lines.add(d, level, text);
    Ok(HostCallResult::EMPTY)
}

/// Links all functions of `weir1` into a linker of one engine. The interfaces of both engines
/// differ only in the name of the crate.
macro_rules! link_all {
    ($engine:ident, $linker:expr, $stop:path, $lines:expr) => {{
        use $crate::abi::{self, FuelBudget, HostCallResult};
        type Guest<'a> = $engine::Caller<'a, Data>;
        fn host(
            mut guest: Guest<'_>,
            call: impl FnOnce(
                &mut [u8],
                &mut ::weir_core::call_context::CallContext,
                &mut FuelBudget,
            ) -> Result<HostCallResult, Stop>,
        ) -> Result<i64, $engine::Error> {
            let Some(memory) = guest.data().memory else {
                return Err($stop(guest, Stop::Trap(TrapKind::Other)));
            };
            let mut fuel_budget = FuelBudget::new(guest.get_fuel()?);
            let (bytes, data) = memory.data_and_store_mut(&mut guest);
            let done = match call(bytes, &mut data.context, &mut fuel_budget) {
                Ok(done) => done,
                Err(stop) => return Err($stop(guest, stop)),
            };
            data.wrote(done.wrote);
            guest.set_fuel(fuel_budget.left())?;
            Ok(done.result)
        }
        fn low(result: Result<i64, $engine::Error>) -> Result<i32, $engine::Error> {
            result.map(|n| i32::try_from(n).unwrap_or(i32::MAX))
        }
        let module = abi::MODULE;
        let l = &mut $linker;
        l.func_wrap(module, "input_info", |g: Guest<'_>, p: i32| {
            host(g, |m, d, f| abi::input_info(m, d, f, p)).map(drop)
        })?;
        l.func_wrap(
            module,
            "input_read",
            |g: Guest<'_>, w: i32, o: i32, p: i32, c: i32| {
                low(host(g, |m, d, f| abi::input_read(m, d, f, (w, o, p, c))))
            },
        )?;
        l.func_wrap(
            module,
            "emit_put",
            |g: Guest<'_>, k: i32, kl: i32, v: i32, vl: i32| {
                host(g, |m, d, f| abi::emit_put(m, d, f, (k, kl, v, vl))).map(drop)
            },
        )?;
        l.func_wrap(module, "emit_delete", |g: Guest<'_>, k: i32, kl: i32| {
            host(g, |m, d, f| abi::emit_delete(m, d, f, (k, kl))).map(drop)
        })?;
        l.func_wrap(module, "emit_input", |g: Guest<'_>| {
            host(g, |_, d, f| abi::emit_input(d, f)).map(drop)
        })?;
        l.func_wrap(
            module,
            "emit_value",
            |g: Guest<'_>, k: i32, kl: i32, o: i32, l: i32| {
                host(g, |m, d, f| abi::emit_value(m, d, f, (k, kl, o, l))).map(drop)
            },
        )?;
        l.func_wrap(module, "reject_text", |g: Guest<'_>, p: i32, l: i32| {
            host(g, |m, d, f| abi::reject_text(m, d, f, (p, l))).map(drop)
        })?;
        l.func_wrap(
            module,
            "state_get",
            |g: Guest<'_>, k: i32, kl: i32, o: i32, p: i32, c: i32| {
                low(host(g, |m, d, f| abi::state_get(m, d, f, (k, kl, o, p, c))))
            },
        )?;
        l.func_wrap(
            module,
            "state_put",
            |g: Guest<'_>, k: i32, kl: i32, v: i32, vl: i32| {
                host(g, |m, d, f| abi::state_put(m, d, f, (k, kl, v, vl))).map(drop)
            },
        )?;
        l.func_wrap(module, "state_delete", |g: Guest<'_>, k: i32, kl: i32| {
            host(g, |m, d, f| abi::state_delete(m, d, f, (k, kl))).map(drop)
        })?;
        l.func_wrap(
            module,
            "state_next",
            |g: Guest<'_>, k: i32, kl: i32, p: i32, c: i32| {
                low(host(g, |m, d, f| abi::state_next(m, d, f, (k, kl, p, c))))
            },
        )?;
        l.func_wrap(
            module,
            "key_get",
            |g: Guest<'_>, k: i32, kl: i32, o: i32, p: i32, c: i32| {
                low(host(g, |m, d, f| abi::key_get(m, d, f, (k, kl, o, p, c))))
            },
        )?;
        l.func_wrap(module, "key_offset", |g: Guest<'_>, k: i32, kl: i32| {
            host(g, |m, d, f| abi::key_offset(m, d, f, (k, kl)))
        })?;
        l.func_wrap(
            module,
            "hash",
            |g: Guest<'_>, a: i32, p: i32, l: i32, o: i32| {
                host(g, |m, _, f| abi::hash(m, f, (a, p, l, o))).map(drop)
            },
        )?;
        l.func_wrap(
            module,
            "json_find",
            |g: Guest<'_>, w: i32, f: i32, p: i32, l: i32, o: i32| {
                low(host(g, |m, d, u| abi::json_find(m, d, u, (w, f, p, l, o))))
            },
        )?;
        let lines = ::std::sync::Arc::clone($lines);
        l.func_wrap(
            module,
            "log",
            move |g: Guest<'_>, v: i32, p: i32, l: i32| {
                host(g, |m, d, f| abi::log(m, d, f, &lines, (v, p, l))).map(drop)
            },
        )?;
    }};
}
pub(crate) use link_all;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_enough_fuel_has_no_effect() {
        let long = 4096;
        let mut m = vec![7; 8192];
        let mut poor = FuelBudget::new(CALL_FUEL + EMIT_FUEL);
        let stopped = |done: Result<HostCallResult, Stop>| {
            assert_eq!(done.err(), Some(Stop::OutOfFuel));
        };
        stopped(hash(&mut m, &mut poor, (1, 0, long, 8000)));
        assert_eq!(m, [7; 8192], "nothing is hashed");
        let lines = Lines::default();
        let d = &mut CallContext::default();
        stopped(log(
            &mut m,
            d,
            &mut FuelBudget::new(CALL_FUEL),
            &lines,
            (0, 0, 9),
        ));
        assert_eq!(lines.read().0, []);
        assert_eq!((poor.left(), poor.used()), (CALL_FUEL + EMIT_FUEL, 0));
        let mut rich = FuelBudget::new(CALL_FUEL + HASH_BYTE_FUEL * 4096);
        assert!(hash(&mut m, &mut rich, (1, 0, long, 8000)).is_ok());
        assert_eq!(
            (rich.left(), rich.used()),
            (0, CALL_FUEL + HASH_BYTE_FUEL * 4096)
        );
        assert_ne!(m, [7; 8192]);
    }
}
