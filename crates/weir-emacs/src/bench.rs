//! Functions for the benchmarks of `emacs/bench`, which measure the boundary without a store.
#![allow(unsafe_code, reason = "the macro registers functions by initialisers")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the macro converts arguments into owned values and wants a Result"
)]

use std::sync::LazyLock;

use emacs::{Env, IntoLisp, Result, Value, defun};
use serde::Deserialize;
use weir_jira::notes;
use weir_scan::{Level, Path, PathSet, Plan, Shape, Step, Tag, find, scan};

use crate::answer::or_signal;
use crate::failure::Failure;
use crate::text;
use crate::threads::thread;

/// Limit on the threads that send requests at the same time.
const THREADS_MAX: usize = 64;

/// A node of the tree of the experiment `emacs-json`.
#[derive(Deserialize)]
struct Node {
    value: i64,
    left: Option<Box<Node>>,
    #[allow(dead_code, reason = "it has to be decoded too")]
    right: Option<Box<Node>>,
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// Returns how the module was built: "optimised" or "debug".
#[defun(name = "-bench-profile")]
fn profile() -> Result<String> {
    let optimised = !cfg!(debug_assertions);
    Ok(if optimised { "optimised" } else { "debug" }.to_owned())
}

/// Does nothing.
#[defun(name = "-bench-nothing")]
fn nothing() -> Result<()> {
    Ok(())
}

/// Returns NUMBER plus one.
#[defun(name = "-bench-next")]
fn next(number: i64) -> Result<i64> {
    Ok(number.wrapping_add(1))
}

/// Returns a string of SIZE letters R.
#[defun(name = "-bench-make")]
fn make(size: usize) -> Result<String> {
    Ok("R".repeat(size))
}

/// Returns a unibyte string of SIZE letters R.
#[defun(name = "-bench-bytes")]
fn bytes(size: usize) -> Result<Vec<u8>> {
    Ok(vec![b'R'; size])
}

/// Copies TEXT into a buffer that is reused, and returns its length.
#[defun(name = "-bench-take")]
fn take(text: Value<'_>) -> Result<usize> {
    text::bytes(text, <[u8]>::len)
}

/// Copies TEXT into new memory, as the `emacs` crate does, and returns its length.
#[defun(name = "-bench-take-owned")]
fn take_owned(text: String) -> Result<usize> {
    Ok(text.len())
}

/// Returns the sum of the bytes of TEXT.
#[defun(name = "-bench-sum")]
fn sum_of(text: Value<'_>) -> Result<u64> {
    text::bytes(text, sum)
}

/// Creates a string of SIZE letters and calls FUNCTION with it.
#[defun(name = "-bench-call")]
fn call<'e>(env: &'e Env, size: usize, function: Value<'e>) -> Result<Value<'e>> {
    function.call(("R".repeat(size).into_lisp(env)?,))
}

/// Creates a string of SIZE letters and sums its bytes without Lisp.
#[defun(name = "-bench-direct")]
fn direct(size: usize) -> Result<u64> {
    Ok(sum("R".repeat(std::hint::black_box(size)).as_bytes()))
}

/// Decodes the tree in TEXT. Returns the value of its deepest leftmost node, or nil.
#[defun(name = "-bench-json")]
fn json(text: Value<'_>) -> Result<Option<i64>> {
    text::bytes(text, |bytes| {
        let mut node: Node = serde_json::from_slice(bytes).ok()?;
        while let Some(left) = node.left {
            node = *left;
        }
        Some(node.value)
    })
}

/// Limit on the depth of the tree for `weir--bench-json-strict`.
const DEPTH_MAX: usize = 32;

/// The value of the leftmost node at each depth. The document is checked entirely.
static LEFTMOST: LazyLock<Option<Plan>> = LazyLock::new(|| {
    let path = |depth: usize| {
        let left = || Step::Name("left".into());
        let mut steps: Vec<Step> = std::iter::repeat_with(left).take(depth).collect();
        steps.push(Step::Name("value".into()));
        Path::new(steps)
    };
    let paths: std::result::Result<Vec<Path>, _> = (0..DEPTH_MAX).map(path).collect();
    Plan::new(Shape::Single, Level::Strict, &paths.ok()?).ok()
});

/// Parses a value of a document as an integer.
fn integer(bytes: &[u8], value: weir_scan::Value) -> Option<i64> {
    let text = std::str::from_utf8(value.span.of(bytes)).ok()?;
    text.parse().ok()
}

/// Checks the whole document in TEXT (RFC 8259). Returns the value of the deepest leftmost node of
/// its tree, or nil.
#[defun(name = "-bench-json-strict")]
fn json_strict(text: Value<'_>) -> Result<Option<i64>> {
    text::bytes(text, |bytes| {
        let found = scan(bytes, LEFTMOST.as_ref()?).ok()?;
        let values = found.values(0).iter();
        let deepest = values.rev().find(|value| value.tag == Tag::Number);
        integer(bytes, *deepest?)
    })
}

/// Returns the integer at PATH of the document in TEXT, or nil. Does not read the bytes after it.
#[defun(name = "-bench-json-path")]
fn json_path(text: Value<'_>, path: Value<'_>) -> Result<Option<i64>> {
    let path = text::text(path)?;
    text::bytes(text, |bytes| {
        let paths = PathSet::new(&[Path::parse(&path).ok()?]).ok()?;
        let mut found = Vec::new();
        find(bytes, &paths, &mut found).ok()?;
        integer(bytes, *found.first()?)
    })
}

/// Reads the notes at URL, over a new connection if FRESH is non-nil. Returns a list of their
/// messages.
#[defun(name = "-bench-notes")]
fn bench_notes<'e>(env: &'e Env, url: Value<'e>, fresh: Value<'e>) -> Result<Value<'e>> {
    let url = text::text(url)?;
    let notes = notes::read(&url, fresh.is_not_nil()).map_err(Failure::from);
    let messages = or_signal(env, notes)?.into_iter();
    let messages: Result<Vec<_>> = messages.map(|text| text.into_lisp(env)).collect();
    env.list(&messages?)
}

/// Reads the notes at URL COUNT times without Lisp, from THREADS threads at the same time. FRESH is
/// as for `weir--bench-notes`. Returns the number of notes that were read.
#[defun(name = "-bench-notes-loop")]
fn notes_loop(
    env: &Env,
    url: Value<'_>,
    count: usize,
    fresh: Value<'_>,
    threads: usize,
) -> Result<usize> {
    let (url, fresh) = (text::text(url)?, fresh.is_not_nil());
    let threads = threads.clamp(1, THREADS_MAX);
    if threads == 1 {
        return or_signal(env, read(&url, fresh, 0..count));
    }
    let (sender, sums) = std::sync::mpsc::channel();
    for number in 0..threads {
        let (url, sender) = (url.clone(), sender.clone());
        let started = thread("weir-bench", move || {
            let part = (number..count).step_by(threads);
            drop(sender.send(read(&url, fresh, part)));
        });
        or_signal(env, started)?;
    }
    drop(sender);
    or_signal(env, sums.iter().sum())
}

/// Reads the notes once for each number. Returns the number of notes that were read.
fn read(
    url: &str,
    fresh: bool,
    mut numbers: impl Iterator<Item = usize>,
) -> std::result::Result<usize, Failure> {
    numbers.try_fold(0, |sum, _| Ok(sum + notes::read(url, fresh)?.len()))
}

/// Calls FUNCTION without arguments COUNT times. Returns its last value.
#[defun(name = "-bench-repeat")]
fn repeat<'e>(env: &'e Env, function: Value<'e>, count: usize) -> Result<Value<'e>> {
    let mut last = ().into_lisp(env)?;
    for _ in 0..count {
        last = function.call([])?;
    }
    Ok(last)
}
