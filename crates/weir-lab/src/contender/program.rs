//! Shared parts of the contenders of the program experiments: the committed reference modules, and
//! stores with one topic that has a program.
//!
//! A plain topic is the contender with the program `plain`. So the cost of a program is the
//! difference of two cells that differ only in the program.

pub mod deploy;
pub mod hostile;
pub mod write;

use std::path::Path;

use weir::{Durability, TopicOptions, Weir};

use super::ContenderError;
use super::store::{TOPIC, failed, options, remove};

/// The module of the reference program `name`; empty for `plain`.
pub fn module(name: &str) -> Result<&'static [u8], ContenderError> {
    Ok(match name {
        "plain" => &[],
        "nothing" => include_bytes!("../../../../programs/prebuilt/nothing.wasm"),
        "vanilla" => include_bytes!("../../../../programs/prebuilt/vanilla.wasm"),
        "vanilla-memory" => include_bytes!("../../../../programs/prebuilt/vanilla-memory.wasm"),
        "counter" => include_bytes!("../../../../programs/prebuilt/counter.wasm"),
        "balance" => include_bytes!("../../../../programs/prebuilt/balance.wasm"),
        "balance-cas" => include_bytes!("../../../../programs/prebuilt/balance-cas.wasm"),
        "chat" => include_bytes!("../../../../programs/prebuilt/chat.wasm"),
        _ => return Err(ContenderError::Parameter("program")),
    })
}

/// Arguments that the reference program `name` accepts.
pub fn arguments(name: &str) -> &'static [u8] {
    match name {
        "balance-cas" => &[0, 4],
        "chat" => &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
        _ => &[],
    }
}

/// A new store in `path` whose topic has the program `code`, or no program if `code` is empty.
fn fresh(path: &Path, durability: Durability, code: &[u8]) -> Result<Weir, ContenderError> {
    remove(path)?;
    let weir = Weir::open_with(path, &options(durability)).map_err(failed)?;
    create(&weir, TOPIC, code, &[])?;
    Ok(weir)
}

/// Creates `topic` with the program `code` and its arguments; without a program if `code` is empty.
pub fn create(weir: &Weir, topic: &str, code: &[u8], args: &[u8]) -> Result<(), ContenderError> {
    let topic = weir.topic(topic).map_err(failed)?;
    let created = if code.is_empty() {
        topic.create(&TopicOptions::default())
    } else {
        topic.create_program(&TopicOptions::default(), code, args)
    };
    match created.map_err(failed)?.reason() {
        None => Ok(()),
        Some(code) => Err(failed(format!(
            "the topic was not created: {}",
            code.name()
        ))),
    }
}
