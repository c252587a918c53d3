//! Host calls of a program as text and as JSON.

use std::fmt::Write as _;

use weir::program::script;
use weir::program::trace::{Answer, Argument, HostCall, Snippet};

use crate::bytes::{json_bytes, json_string};

/// Bytes of an argument or result in a line for people.
const SHOWN_BYTES: usize = 40;

/// The first bytes of a value, in the syntax of scripts.
pub(super) fn short(bytes: &[u8], len: usize) -> String {
    let shown = bytes.get(..SHOWN_BYTES).unwrap_or(bytes);
    let mut text = script::show(shown);
    if len > shown.len() {
        let _ = write!(text, "… ({len} bytes)");
    }
    if text.is_empty() {
        text.push_str("\"\"");
    }
    text
}

fn words(snippet: &Snippet) -> String {
    short(&snippet.bytes, snippet.len)
}

/// Level and text of a log line of a program.
pub(super) fn log_text(call: &HostCall) -> (&'static str, String) {
    let (mut level, mut message) = ("info", String::new());
    for (_, argument) in &call.arguments {
        match argument {
            Argument::Name(name) => level = name,
            Argument::Bytes(text) => message = String::from_utf8_lossy(&text.bytes).into_owned(),
            Argument::Number(_) => {}
        }
    }
    (level, message)
}

/// The call for people: its arguments, and its result.
pub(super) fn line(call: &HostCall) -> (String, String) {
    if call.name == "log" && call.answer == Answer::Done {
        // Log lines are text for people, and the message of a panic exceeds the limit for
        // arguments.
        let (level, text) = log_text(call);
        return (format!("log {level}: {text}"), String::new());
    }
    let mut shown = call.name.to_owned();
    for (name, argument) in &call.arguments {
        let _ = match argument {
            // Reads usually start at 0.
            Argument::Number(0) if *name == "from" => Ok(()),
            Argument::Bytes(bytes) => write!(shown, " {name}={}", words(bytes)),
            Argument::Number(n) => write!(shown, " {name}={n}"),
            Argument::Name(word) => write!(shown, " {word}"),
        };
    }
    let answer = match &call.answer {
        Answer::Done => String::new(),
        Answer::Number(n) => n.to_string(),
        Answer::Bytes(bytes) => words(bytes),
        Answer::Absent => "absent".to_owned(),
        Answer::Stopped(stop) => stopped(*stop),
        Answer::OutOfFuel => "out of fuel".to_owned(),
    };
    (shown, answer)
}

fn stopped(stop: weir::program::trace::Stop) -> String {
    use weir::program::trace::Stop;
    match stop {
        Stop::Trap(kind) => format!("trap: {}", kind.name()),
        Stop::Limit(max) => format!("over the limit of {max}"),
        Stop::OutOfFuel => "out of fuel".to_owned(),
    }
}

/// The call as a JSON object. Bytes are truncated as in the tracer; `NAME_len` is the full length
/// of truncated bytes.
pub(super) fn json(call: &HostCall) -> String {
    let mut members = vec![format!("\"name\":{}", json_string(call.name))];
    if call.step > 0 {
        members.push(format!("\"step\":{}", call.step));
    }
    let bytes = |members: &mut Vec<String>, name: &str, snippet: &Snippet| {
        // Null would mean that the value does not exist; an empty value does.
        members.push(match snippet.len {
            0 => format!("\"{name}\":\"\""),
            _ => json_bytes(name, &snippet.bytes),
        });
        if snippet.len > snippet.bytes.len() {
            members.push(format!("\"{name}_len\":{}", snippet.len));
        }
    };
    for (name, argument) in &call.arguments {
        match argument {
            Argument::Bytes(snippet) => bytes(&mut members, name, snippet),
            Argument::Number(n) => members.push(format!("\"{name}\":{n}")),
            Argument::Name(word) => members.push(format!("\"{name}\":{}", json_string(word))),
        }
    }
    match &call.answer {
        Answer::Done => {}
        Answer::Number(n) => members.push(format!("\"answer\":{n}")),
        Answer::Bytes(snippet) => bytes(&mut members, "answer", snippet),
        Answer::Absent => members.push("\"answer\":null".to_owned()),
        Answer::Stopped(_) | Answer::OutOfFuel => {
            let (_, why) = line(call);
            members.push(format!("\"stopped\":{}", json_string(&why)));
        }
    }
    members.push(format!("\"fuel\":{}", call.fuel));
    format!("{{{}}}", members.join(","))
}
