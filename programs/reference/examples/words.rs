//! Emits the words of a text, sorted and without repetitions. It shows the use of a heap: `String`,
//! `Vec` and `format!`.
//!
//! A key is any text, a value is words with blanks between them. The record has the sorted words
//! with one blank between two. A key that is a number requires more words than that; with fewer, a
//! bug of this program ends the call as a trap with a message.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_guest::{Input, Op, Outcome, emit_input, emit_put, reject};

weir_guest::program!(apply);

/// Maximum number of words of a text.
const WORDS_MAX: usize = 8;

fn apply(input: &Input) -> Outcome {
    if input.op() != Op::Put {
        emit_input();
        return Ok(());
    }
    let Ok(text) = String::from_utf8(input.value_to_vec()) else {
        return reject(1, "a value is text");
    };
    let sorted: BTreeSet<&str> = text.split_whitespace().collect();
    if sorted.len() > WORDS_MAX {
        let count = sorted.len();
        return reject(2, &format!("{count} words, at most {WORDS_MAX}"));
    }
    let words: Vec<&str> = sorted.into_iter().collect();
    let key = input.key_to_vec();
    if let Some(number) = str::from_utf8(&key)
        .ok()
        .and_then(|key| key.parse::<usize>().ok())
    {
        weir_guest::log(weir_guest::Level::Info, words[number]);
    }
    emit_put(&key, words.join(" ").as_bytes());
    Ok(())
}
