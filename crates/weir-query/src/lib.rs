//! Queries over JSON items: ordered merge, filter, groups and limits, without a copy of the
//! items.
//!
//! The caller supplies pages of JSON items from any number of sources (partitions of a
//! foreign database, files, topics). Results are spans of these pages, in order. Payloads
//! are not parsed into trees, rewritten or copied. The engine has no I/O: its caller
//! fetches the pages that the engine requests. See `docs/guide/query.md`.
//!
//! ```
//! use std::sync::Arc;
//! use weir_query::{Bounds, Budgets, Query, QueryText, SourceOptions, Step};
//!
//! let text = QueryText { order: "$.n desc".into(), limit: Some(2), ..QueryText::default() };
//! let mut query = Query::new(Arc::new(text.compile()?), Budgets::default());
//! let (a, b) = (
//!     query.add_source(SourceOptions { sorted: true, ..SourceOptions::default() })?,
//!     query.add_source(SourceOptions { sorted: true, ..SourceOptions::default() })?,
//! );
//! query.enqueue(a, bytes::Bytes::from_static(br#"[{"n":3},{"n":1}]"#), None)?;
//! assert!(matches!(query.next(Bounds::default())?, Step::Need(_)));
//! query.enqueue(b, bytes::Bytes::from_static(br#"[{"n":2.5}]"#), None)?;
//! let Step::Ready(page) = query.next(Bounds::default())? else { panic!() };
//! let items: Vec<&[u8]> = page.iter().collect();
//! assert_eq!(items, [&br#"{"n":3}"#[..], br#"{"n":2.5}"#]);
//! assert!(matches!(query.next(Bounds::default())?, Step::Done));
//! # Ok::<(), weir_query::QueryError>(())
//! ```
//!
//! | file | purpose |
//! |---|---|
//! | `options`, `text`, `plan` | the text of a query and its compiled form |
//! | `input`, `source`, `constant` | input pages and names; a source and its state; its
//! constant properties |
//! | `load`, `rows` | turns a page into rows; the rows of a page |
//! | `kind`, `key`, `order` | types of values; keys; order of items, and the boundary of a
//! run |
//! | `decimal`, `json` | exact numbers; strings and scalars |
//! | `engine`, `flow`, `tournament`, `sort` | stages, modes, the merge, the sort |
//! | `filter`, `fold`, `distinct` | the stages |
//! | `manage`, `resume`, `token`, `topic_token` | adding and splitting sources; stopping
//! and resuming |
//! | `records`, `pushdown`, `record_filter` | records of topics as items; the part of a
//! query that runs at the records |
//! | `explain` | the plan of a query, as text for users |
//!
//! Invariants:
//! - The crate has no I/O, clock, thread or float.
//! - No result depends on the order of a hash table.
//! - A query that fails returns an error, never a partial result.
#![forbid(unsafe_code)]

mod buffer;
mod constant;
mod decimal;
mod distinct;
mod engine;
mod error;
mod explain;
mod filter;
mod flow;
mod fold;
mod input;
mod json;
mod key;
mod kind;
mod load;
mod manage;
mod options;
mod order;
mod page;
mod plan;
mod pushdown;
mod record_filter;
mod records;
mod resume;
mod rows;
mod sort;
mod source;
mod text;
mod token;
mod topic_token;
mod tournament;

pub use buffer::Buffer;
pub use engine::{Query, Step};
pub use error::{ErrorLocation, QueryError, path_error_code};
pub use explain::Explain;
pub use input::{Frames, Meta, Need, PageIn, SourceId};
pub use json::text as unquoted;
pub use kind::{Kind, Strings};
pub use manage::{SOURCE_NAME_BYTES_MAX, SPLITS_MAX};
pub use options::{Bounds, Budgets, Complex, Missing, Mode, QueryText, SourceOptions, parse_shape};
pub use page::{Item, ResultPage};
pub use plan::{AGGREGATES_MAX, KEYS_MAX, Plan, TEXT_BYTES_MAX};
pub use pushdown::{Filtered, PushdownFilter};
pub use record_filter::RecordFilter;
pub use records::{Properties, RECORD_PROPERTIES, item_of, span_in};
pub use text::quoted;
pub use token::{TOKEN_BYTES_MAX, TOKEN_KEY_BYTES_MAX};
pub use topic_token::TopicToken;
pub use weir_scan::PathErrorKind;
pub use weir_scan::{
    BadItem, Level, PATHS_MAX, Path, PathError, PathSet, Shape, Span, Tag, Value, build_info, find,
    find_each,
};
