//! The functions of `weir1` for a host with a tracer. Each executes the plain function, and records
//! the call.

use std::sync::Arc;

use wasmtime::{Error, FuncType, Linker, Val, ValType};
use weir_core::call_context::{CallContext, Stop};

use super::{Data, stopped};
use crate::abi::{self, FuelBudget, HostCallResult, Returns};
use crate::lines::{LINE_BYTES_MAX, Level, Lines};
use crate::trace::{Answer, Argument, HostCall, SNIPPET_BYTES_MAX, Snippet, Tracer};

/// Maximum number of arguments of a function.
const ARGUMENTS_MAX: usize = 5;
type Arguments = [i32; ARGUMENTS_MAX];

/// Links all functions.
pub(super) fn link(
    linker: &mut Linker<Data>,
    tracer: &Arc<Tracer>,
    lines: &Arc<Lines>,
) -> Result<(), Error> {
    for (name, count, returns) in abi::IMPORTS {
        let result = match returns {
            Returns::Nothing => None,
            Returns::I32 => Some(ValType::I32),
            Returns::I64 => Some(ValType::I64),
        };
        let parameters = std::iter::repeat_n(ValType::I32, count);
        let kind = FuncType::new(linker.engine(), parameters, result);
        let (tracer, lines) = (Arc::clone(tracer), Arc::clone(lines));
        linker.func_new(abi::MODULE, name, kind, move |guest, values, results| {
            let mut args: Arguments = [0; ARGUMENTS_MAX];
            for (to, from) in args.iter_mut().zip(values) {
                *to = from.i32().unwrap_or(0);
            }
            let result = host(guest, (&tracer, &lines), (name, returns), &args)?;
            if let Some(to) = results.first_mut() {
                *to = match returns {
                    Returns::I64 => Val::I64(result),
                    _ => Val::I32(i32::try_from(result).unwrap_or(i32::MAX)),
                };
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Executes a call and charges it, as the plain functions do.
fn host(
    mut guest: wasmtime::Caller<'_, Data>,
    (tracer, lines): (&Tracer, &Lines),
    (name, returns): (&'static str, Returns),
    args: &Arguments,
) -> Result<i64, Error> {
    let Some(memory) = guest.data().memory else {
        return Err(stopped(guest, Stop::Trap(weir_core::TrapKind::Other)));
    };
    let left = guest.get_fuel()?;
    let (bytes, data) = memory.data_and_store_mut(&mut guest);
    let intention = data.context.intention();
    let recorded = tracer.records(name, intention).then(|| HostCall {
        topic: Arc::clone(data.context.topic()),
        intention,
        time_ms: data.context.time_ms(),
        step: data.context.step(),
        name,
        arguments: arguments(name, args, bytes),
        answer: Answer::Done,
        fuel: 0,
    });
    let mut fuel_budget = FuelBudget::new(left);
    let called = call(
        name,
        bytes,
        (&mut data.context, &mut fuel_budget),
        lines,
        args,
    );
    if let Some(mut recorded) = recorded {
        (recorded.fuel, recorded.answer) = match &called {
            Ok(done) => (
                fuel_budget.used(),
                answer(name, returns, done.result, args, bytes),
            ),
            Err(Stop::OutOfFuel) => (left, Answer::OutOfFuel),
            Err(stop) => (0, Answer::Stopped(*stop)),
        };
        tracer.add(recorded);
    }
    match called {
        Ok(done) => {
            data.wrote(done.wrote);
            guest.set_fuel(fuel_budget.left())?;
            Ok(done.result)
        }
        Err(stop) => Err(stopped(guest, stop)),
    }
}

#[allow(clippy::many_single_char_names, reason = "arguments by their place")]
fn call(
    name: &str,
    memory: &mut [u8],
    (context, fuel): (&mut CallContext, &mut FuelBudget),
    lines: &Lines,
    args: &Arguments,
) -> Result<HostCallResult, Stop> {
    let [a, b, c, e, f] = *args;
    match name {
        "input_info" => abi::input_info(memory, context, fuel, a),
        "input_read" => abi::input_read(memory, context, fuel, (a, b, c, e)),
        "emit_put" => abi::emit_put(memory, context, fuel, (a, b, c, e)),
        "emit_delete" => abi::emit_delete(memory, context, fuel, (a, b)),
        "emit_input" => abi::emit_input(context, fuel),
        "emit_value" => abi::emit_value(memory, context, fuel, (a, b, c, e)),
        "reject_text" => abi::reject_text(memory, context, fuel, (a, b)),
        "state_get" => abi::state_get(memory, context, fuel, (a, b, c, e, f)),
        "state_put" => abi::state_put(memory, context, fuel, (a, b, c, e)),
        "state_delete" => abi::state_delete(memory, context, fuel, (a, b)),
        "state_next" => abi::state_next(memory, context, fuel, (a, b, c, e)),
        "key_get" => abi::key_get(memory, context, fuel, (a, b, c, e, f)),
        "key_offset" => abi::key_offset(memory, context, fuel, (a, b)),
        "hash" => abi::hash(memory, fuel, (a, b, c, e)),
        "json_find" => abi::json_find(memory, context, fuel, (a, b, c, e, f)),
        "log" => abi::log(memory, context, fuel, lines, (a, b, c)),
        _ => Err(Stop::Trap(weir_core::TrapKind::Other)),
    }
}

/// A part of the guest's memory; empty if it is outside of the memory.
fn piece(m: &[u8], ptr: i32, len: i32) -> Snippet {
    piece_to(m, ptr, len, SNIPPET_BYTES_MAX)
}

fn piece_to(m: &[u8], ptr: i32, len: i32, max: usize) -> Snippet {
    let (from, len) = (ptr.cast_unsigned() as usize, len.cast_unsigned() as usize);
    let bytes = m.get(from..).unwrap_or(&[]);
    Snippet::new(bytes.get(..len).unwrap_or(bytes), len, max)
}

/// Names of the parts of the input, by their number.
const INPUTS: [&str; 5] = ["key", "value", "args", "principal", "old_code"];

/// The arguments of a call, read from the guest before the call.
#[allow(clippy::many_single_char_names, reason = "arguments by their place")]
fn arguments(name: &str, args: &Arguments, m: &[u8]) -> Vec<(&'static str, Argument)> {
    let [a, b, c, e, _] = *args;
    let bytes = |name, ptr, len| (name, Argument::Bytes(piece(m, ptr, len)));
    let number = |name, n: i32| (name, Argument::Number(u64::from(n.cast_unsigned())));
    match name {
        "input_read" => {
            let part = INPUTS.get(usize::try_from(a).unwrap_or(usize::MAX));
            let part = ("what", Argument::Name(part.copied().unwrap_or("unknown")));
            vec![part, number("from", b)]
        }
        "emit_put" | "state_put" => vec![bytes("key", a, b), bytes("value", c, e)],
        "emit_value" => vec![bytes("key", a, b), number("from", c), number("len", e)],
        "emit_delete" | "state_delete" | "state_next" | "key_offset" => vec![bytes("key", a, b)],
        "state_get" | "key_get" => vec![bytes("key", a, b), number("from", c)],
        "reject_text" => vec![bytes("text", a, b)],
        "hash" => {
            let algorithm = match a {
                1 => "sha256",
                2 => "blake3",
                _ => "unknown",
            };
            vec![("alg", Argument::Name(algorithm)), bytes("bytes", b, c)]
        }
        "json_find" => {
            let part = INPUTS.get(usize::try_from(a).unwrap_or(usize::MAX));
            let part = ("what", Argument::Name(part.copied().unwrap_or("unknown")));
            vec![part, number("flags", b), bytes("paths", c, e)]
        }
        "log" => {
            let level = Level::from_number(a).name();
            let text = Argument::Bytes(piece_to(m, b, c, LINE_BYTES_MAX));
            vec![("level", Argument::Name(level)), ("text", text)]
        }
        _ => Vec::new(),
    }
}

/// The results of a call, read from the memory of the guest after the call.
fn answer(name: &str, returns: Returns, result: i64, args: &Arguments, m: &[u8]) -> Answer {
    let [_, _, c, e, f] = *args;
    let full = usize::try_from(result);
    let written = |ptr, cap: i32, rest: usize| {
        let len = rest.min(cap.cast_unsigned() as usize);
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        Answer::Bytes(piece(m, ptr, len))
    };
    match (name, full) {
        ("state_get" | "key_get" | "state_next", Err(_)) => Answer::Absent,
        ("input_read" | "state_next", Ok(full)) => written(c, e, full),
        ("state_get" | "key_get", Ok(full)) => {
            written(e, f, full.saturating_sub(c.cast_unsigned() as usize))
        }
        ("hash", _) => Answer::Bytes(piece(m, e, 32)),
        _ if returns == Returns::Nothing => Answer::Done,
        _ => Answer::Number(result),
    }
}
