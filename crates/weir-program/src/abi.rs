//! The interface `weir1`: what each imported function does, once for all
//! engines. Pointers are checked here, against the memory as it is now.

use weir_core::desk::{Desk, Stop};
use weir_core::{TrapKind, program::Entry};

use crate::lines::Lines;

/// Name of the module that a program imports from.
pub(crate) const MODULE: &str = "weir1";
/// Function that returns the version of the interface.
pub(crate) const VERSION_NAME: &str = "weir_abi";
/// Version that it must return.
pub(crate) const VERSION: i32 = 1;

/// Fuel of every call of a host function.
const CALL_FUEL: u64 = 100;
/// Fuel of an emitted record, on top.
const EMIT_FUEL: u64 = 500;
/// Fuel of looking an entry up, on top.
const LOOKUP_FUEL: u64 = 100;
/// Fuel of changing an entry of the state, on top: it may have to be put back.
const CHANGE_FUEL: u64 = 200;
/// Fuel of each hashed byte.
const HASH_BYTE_FUEL: u64 = 4;

/// Name of the exported function of an entry.
pub(crate) fn entry_name(entry: Entry) -> &'static str {
    match entry {
        Entry::Init => "weir_init",
        Entry::Apply => "weir_apply",
        Entry::Upgrade => "weir_upgrade",
    }
}

/// Imported functions: name, number of `i32` parameters, result.
pub(crate) const IMPORTS: [(&str, usize, Returns); 15] = [
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
    ("log", 3, Returns::Nothing),
];

/// What an imported function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    Nothing,
    I32,
    I64,
}

/// A finished host call: its result and the fuel it costs.
pub(crate) struct Done {
    pub(crate) result: i64,
    pub(crate) fuel: u64,
    /// Where it wrote into the guest's memory: first byte and number.
    pub(crate) wrote: (usize, usize),
}

fn done(result: i64, moved: usize) -> Done {
    Done {
        result,
        fuel: CALL_FUEL + moved as u64 / 8,
        wrote: (0, 0),
    }
}

fn emitted(moved: usize) -> Done {
    Done {
        result: 0,
        fuel: CALL_FUEL + EMIT_FUEL + moved as u64 / 8,
        wrote: (0, 0),
    }
}

const BAD_POINTER: Stop = Stop::Trap(TrapKind::Pointer);
const ABSENT: i64 = -1;

fn size(value: i32) -> usize {
    value.cast_unsigned() as usize
}

/// A piece of the guest's memory.
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

/// Copies a value from `off` on into the guest; the full length is returned.
fn hand(
    memory: &mut [u8],
    value: Option<&[u8]>,
    (off, ptr, cap): (i32, i32, i32),
) -> Result<Done, Stop> {
    let to = piece_mut(memory, ptr, cap)?;
    let Some(value) = value else {
        return Ok(done(ABSENT, 0));
    };
    let moved = copy(value.get(size(off)..).unwrap_or(&[]), to);
    let full = i64::try_from(value.len()).unwrap_or(i64::MAX);
    Ok(Done {
        wrote: (size(ptr), moved),
        ..done(full, moved)
    })
}

/// A key that was looked for is paid for: it was compared with others.
fn looked(mut done: Done, klen: i32) -> Done {
    done.fuel += LOOKUP_FUEL + size(klen) as u64 / 8;
    done
}

/// Does something to the entries of a desk: how many bytes were noted so that
/// it can be put back as it was. They are paid for, whatever becomes of it.
fn noting<T>(
    d: &mut Desk,
    change: impl FnOnce(&mut Desk) -> Result<T, Stop>,
) -> Result<(T, usize), Stop> {
    let before = d.noted_bytes();
    let done = change(d)?;
    let noted = d.noted_bytes() - before;
    Ok((done, usize::try_from(noted).unwrap_or(usize::MAX)))
}

fn changed(moved: usize) -> Done {
    let mut done = done(0, moved);
    done.fuel += CHANGE_FUEL;
    done
}

pub(crate) fn input_info(m: &mut [u8], d: &mut Desk, ptr: i32) -> Result<Done, Stop> {
    let header = d.header();
    let len = i32::try_from(header.len()).unwrap_or(i32::MAX);
    piece_mut(m, ptr, len)?.copy_from_slice(&header);
    Ok(Done {
        wrote: (size(ptr), header.len()),
        ..done(0, header.len())
    })
}

pub(crate) fn input_read(
    m: &mut [u8],
    d: &mut Desk,
    (what, off, ptr, cap): (i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let to = piece_mut(m, ptr, cap)?;
    let moved = copy(d.input(what.cast_unsigned(), size(off))?, to);
    let result = i64::try_from(moved).unwrap_or(i64::MAX);
    Ok(Done {
        wrote: (size(ptr), moved),
        ..done(result, moved)
    })
}

pub(crate) fn emit_put(
    m: &mut [u8],
    d: &mut Desk,
    (kptr, klen, vptr, vlen): (i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let (key, value) = (piece(m, kptr, klen)?, piece(m, vptr, vlen)?);
    let ((), noted) = noting(d, |d| d.emit_put(key, value))?;
    Ok(emitted(key.len() + value.len() + noted))
}

pub(crate) fn emit_delete(m: &mut [u8], d: &mut Desk, kptr: i32, klen: i32) -> Result<Done, Stop> {
    let key = piece(m, kptr, klen)?;
    let ((), noted) = noting(d, |d| d.emit_delete(key))?;
    Ok(emitted(key.len() + noted))
}

pub(crate) fn emit_input(d: &mut Desk) -> Result<Done, Stop> {
    let (bytes, noted) = noting(d, Desk::emit_input)?;
    Ok(emitted(bytes + noted))
}

pub(crate) fn emit_value(
    m: &mut [u8],
    d: &mut Desk,
    (kptr, klen, voff, vlen): (i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let key = piece(m, kptr, klen)?;
    let ((), noted) = noting(d, |d| d.emit_value(key, size(voff), size(vlen)))?;
    Ok(emitted(key.len() + size(vlen) + noted))
}

pub(crate) fn reject_text(m: &mut [u8], d: &mut Desk, ptr: i32, len: i32) -> Result<Done, Stop> {
    let text = piece(m, ptr, len)?;
    d.reject_text(text)?;
    Ok(done(0, text.len()))
}

pub(crate) fn state_get(
    m: &mut [u8],
    d: &mut Desk,
    (kptr, klen, off, ptr, cap): (i32, i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let value = d.state_get(piece(m, kptr, klen)?)?;
    Ok(looked(hand(m, value, (off, ptr, cap))?, klen))
}

pub(crate) fn state_put(
    m: &mut [u8],
    d: &mut Desk,
    (kptr, klen, vptr, vlen): (i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let (key, value) = (piece(m, kptr, klen)?, piece(m, vptr, vlen)?);
    let ((), noted) = noting(d, |d| d.state_put(key, value))?;
    Ok(changed(value.len() + noted))
}

pub(crate) fn state_delete(m: &mut [u8], d: &mut Desk, kptr: i32, klen: i32) -> Result<Done, Stop> {
    let key = piece(m, kptr, klen)?;
    let ((), noted) = noting(d, |d| d.state_delete(key))?;
    Ok(changed(noted.max(key.len())))
}

pub(crate) fn state_next(
    m: &mut [u8],
    d: &mut Desk,
    (kptr, klen, ptr, cap): (i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let next = d.state_next(piece(m, kptr, klen)?)?;
    Ok(looked(hand(m, next, (0, ptr, cap))?, klen))
}

pub(crate) fn key_get(
    m: &mut [u8],
    d: &mut Desk,
    (kptr, klen, off, ptr, cap): (i32, i32, i32, i32, i32),
) -> Result<Done, Stop> {
    let value = d.key(piece(m, kptr, klen)?).map(|(_, value)| value);
    Ok(looked(hand(m, value, (off, ptr, cap))?, klen))
}

pub(crate) fn key_offset(m: &mut [u8], d: &mut Desk, kptr: i32, klen: i32) -> Result<Done, Stop> {
    let offset = d.key(piece(m, kptr, klen)?).map_or(0, |(offset, _)| offset);
    let result = i64::try_from(offset).unwrap_or(i64::MAX);
    Ok(looked(done(result, 0), klen))
}

pub(crate) fn hash(m: &mut [u8], (alg, ptr, len, out): (i32, i32, i32, i32)) -> Result<Done, Stop> {
    let bytes = piece(m, ptr, len)?;
    let hashed = bytes.len() as u64;
    let digest: [u8; 32] = match alg {
        1 => sha256(bytes),
        2 => *blake3::hash(bytes).as_bytes(),
        _ => return Err(Stop::Trap(TrapKind::Argument)),
    };
    piece_mut(m, out, 32)?.copy_from_slice(&digest);
    Ok(Done {
        result: 0,
        fuel: CALL_FUEL + hashed * HASH_BYTE_FUEL,
        wrote: (size(out), digest.len()),
    })
}

/// SHA-256 of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}

pub(crate) fn log(
    m: &mut [u8],
    d: &Desk,
    lines: &Lines,
    (level, ptr, len): (i32, i32, i32),
) -> Result<Done, Stop> {
    let text = piece(m, ptr, len)?;
    lines.add(d, level, text);
    Ok(done(0, text.len()))
}

/// Links all functions of `weir1` into a linker of either engine, whose
/// interfaces differ in the name of the crate only.
macro_rules! link_all {
    ($engine:ident, $linker:expr, $stop:path, $lines:expr) => {{
        use $crate::abi::{self, Done};
        type Guest<'a> = $engine::Caller<'a, Data>;
        fn host(
            mut guest: Guest<'_>,
            call: impl FnOnce(&mut [u8], &mut ::weir_core::desk::Desk) -> Result<Done, Stop>,
        ) -> Result<i64, $engine::Error> {
            let Some(memory) = guest.data().memory else {
                return Err($stop(guest, Stop::Trap(TrapKind::Other)));
            };
            let (bytes, data) = memory.data_and_store_mut(&mut guest);
            let done = match call(bytes, &mut data.desk) {
                Ok(done) => done,
                Err(stop) => return Err($stop(guest, stop)),
            };
            data.wrote(done.wrote);
            let left = guest.get_fuel()?;
            match left.checked_sub(done.fuel) {
                Some(left) => {
                    guest.set_fuel(left)?;
                    Ok(done.result)
                }
                None => {
                    guest.data_mut().out_of_fuel = true;
                    Err($stop(guest, Stop::Limit(0)))
                }
            }
        }
        fn low(result: Result<i64, $engine::Error>) -> Result<i32, $engine::Error> {
            result.map(|n| i32::try_from(n).unwrap_or(i32::MAX))
        }
        let module = abi::MODULE;
        let l = &mut $linker;
        l.func_wrap(module, "input_info", |g: Guest<'_>, p: i32| {
            host(g, |m, d| abi::input_info(m, d, p)).map(drop)
        })?;
        l.func_wrap(
            module,
            "input_read",
            |g: Guest<'_>, w: i32, o: i32, p: i32, c: i32| {
                low(host(g, |m, d| abi::input_read(m, d, (w, o, p, c))))
            },
        )?;
        l.func_wrap(
            module,
            "emit_put",
            |g: Guest<'_>, k: i32, kl: i32, v: i32, vl: i32| {
                host(g, |m, d| abi::emit_put(m, d, (k, kl, v, vl))).map(drop)
            },
        )?;
        l.func_wrap(module, "emit_delete", |g: Guest<'_>, k: i32, kl: i32| {
            host(g, |m, d| abi::emit_delete(m, d, k, kl)).map(drop)
        })?;
        l.func_wrap(module, "emit_input", |g: Guest<'_>| {
            host(g, |_, d| abi::emit_input(d)).map(drop)
        })?;
        l.func_wrap(
            module,
            "emit_value",
            |g: Guest<'_>, k: i32, kl: i32, o: i32, l: i32| {
                host(g, |m, d| abi::emit_value(m, d, (k, kl, o, l))).map(drop)
            },
        )?;
        l.func_wrap(module, "reject_text", |g: Guest<'_>, p: i32, l: i32| {
            host(g, |m, d| abi::reject_text(m, d, p, l)).map(drop)
        })?;
        l.func_wrap(
            module,
            "state_get",
            |g: Guest<'_>, k: i32, kl: i32, o: i32, p: i32, c: i32| {
                low(host(g, |m, d| abi::state_get(m, d, (k, kl, o, p, c))))
            },
        )?;
        l.func_wrap(
            module,
            "state_put",
            |g: Guest<'_>, k: i32, kl: i32, v: i32, vl: i32| {
                host(g, |m, d| abi::state_put(m, d, (k, kl, v, vl))).map(drop)
            },
        )?;
        l.func_wrap(module, "state_delete", |g: Guest<'_>, k: i32, kl: i32| {
            host(g, |m, d| abi::state_delete(m, d, k, kl)).map(drop)
        })?;
        l.func_wrap(
            module,
            "state_next",
            |g: Guest<'_>, k: i32, kl: i32, p: i32, c: i32| {
                low(host(g, |m, d| abi::state_next(m, d, (k, kl, p, c))))
            },
        )?;
        l.func_wrap(
            module,
            "key_get",
            |g: Guest<'_>, k: i32, kl: i32, o: i32, p: i32, c: i32| {
                low(host(g, |m, d| abi::key_get(m, d, (k, kl, o, p, c))))
            },
        )?;
        l.func_wrap(module, "key_offset", |g: Guest<'_>, k: i32, kl: i32| {
            host(g, |m, d| abi::key_offset(m, d, k, kl))
        })?;
        l.func_wrap(
            module,
            "hash",
            |g: Guest<'_>, a: i32, p: i32, l: i32, o: i32| {
                host(g, |m, _| abi::hash(m, (a, p, l, o))).map(drop)
            },
        )?;
        let lines = ::std::sync::Arc::clone($lines);
        l.func_wrap(
            module,
            "log",
            move |g: Guest<'_>, v: i32, p: i32, l: i32| {
                host(g, |m, d| abi::log(m, d, &lines, (v, p, l))).map(drop)
            },
        )?;
    }};
}
pub(crate) use link_all;
