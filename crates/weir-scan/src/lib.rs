//! JSON span scanner: bytes in, spans out.
//!
//! Invariants:
//! - A span is inside its page (I8).
//! - Every kernel gives equal results for equal bytes, including an error and its offset.
//! - Memory is a fixed number of bytes for each item.
//! - The crate copies no payload bytes, builds no tree, and has no floats and no I/O.
//! - No input bytes cause a panic, or a read outside of the page.
//! - Only `kernel/` has unsafe code.
//!
//! | need | use |
//! | --- | --- |
//! | items of a page and values in them | [`Plan`], [`scan`], [`scan_into`], [`Items`] |
//! | values in one item, or a table of those in several | [`PathSet`], [`find`], [`find_each`] |
//! | JSONPath: more than one value, or true and false | [`Query`], [`Filter`] |
//! | comparing values by their spans | [`compare_numbers`], [`Number`], [`Text`], [`equal`], [`fingerprint`] |
//!
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod children;
mod cursor;
mod equality;
mod error;
mod find;
mod items;
mod jsonpath;
mod kernel;
mod number;
mod path;
mod path_set;
mod plan;
mod scan;
mod strict;
mod text;
mod token;
mod walk;

pub use equality::{equal, fingerprint};
pub use error::{
    ExpressionLimit, OutOfSteps, PathError, PathErrorKind, PlanError, ScanError, ScanErrorKind,
};
pub use find::{find, find_each};
pub use items::{Items, Span, Tag, Value};
pub use jsonpath::{
    Bindings, Filter, PatternFault, PatternText, Query, STEPS_MIN, STEPS_PER_BYTE,
    WALKS_COUNTED_MAX, pattern_fault,
};
pub use kernel::{Simd, build_info};
pub use number::{Number, compare_numbers};
pub use path::{EXPRESSION_BYTES_MAX, PATH_STEPS_MAX, Path, Step};
pub use path_set::{PASS_WORK, PATHS_MAX, PathSet};
pub use plan::{BadItem, DEPTH_LIMIT, Level, Limits, PAGE_BYTES_LIMIT, Plan, Shape};
pub use scan::{PART_ITEMS, scan, scan_framed, scan_into, scan_parts};
pub use text::Text;
