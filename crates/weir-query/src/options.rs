//! The options of a query and of its sources, and its budgets.

use bytes::Bytes;
use weir_core::error_code::ErrorCode;
use weir_scan::{BadItem, Level, Shape};

use crate::error::{QueryError, path_error};
use crate::kind::Strings;

/// The fields of a query as text, equal in all interfaces: the command line, an HTTP query
/// string, the C interface. If all fields are empty, the results are all items, source by
/// source.
///
/// ```
/// use weir_query::QueryText;
/// let text = QueryText {
///     filter: "@.status == 'open'".into(),
///     order: "$.updated desc, $.id".into(),
///     limit: Some(20),
///     ..QueryText::default()
/// };
/// assert!(text.compile().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryText {
    /// `where`: a logical expression of RFC 9535 in which `@` and `$` are the item. Empty:
    /// all items.
    pub filter: String,
    /// `order`: keys separated by commas, at most 8. A key is a singular path or
    /// `meta.NAME`, optionally followed by `asc` (default) or `desc`. With groups or
    /// aggregates, a key may also be the name of a result (`count desc`): then the results
    /// are sorted, not the items.
    pub order: String,
    /// `select`: singular paths separated by commas, or aggregates (`count`, `sum(PATH)`,
    /// `min`, `max`, `avg`), each optionally followed by `as NAME`. One path without a name
    /// gives its value. Several paths, or one with a name, give a projection, see
    /// [`ResultPage::values`](crate::ResultPage::values). Empty: the item.
    pub select: String,
    /// `group`: singular paths separated by commas, at most 8, each optionally followed by
    /// `as NAME`.
    pub group: String,
    /// Keep only the first result of each distinct selected value.
    pub distinct: bool,
    /// Number of results to omit at the start; 0 by default.
    pub offset: u64,
    /// Maximum number of results; `None`: no limit.
    pub limit: Option<u64>,
    /// Maximum number of results, as `limit`. If both are set, the smaller one applies.
    pub top: Option<u64>,
    /// Values for `param(NAME)`: the name, and a JSON scalar.
    pub params: Vec<(String, String)>,
    /// How strings are ordered.
    pub strings: Strings,
    /// Treatment of arrays and objects as order keys.
    pub complex: Complex,
    /// Treatment of items without an order key.
    pub missing: Missing,
    /// Level of checking of each page, if its source does not set one. At `Structural`,
    /// framed items that the query does not read (see
    /// [`Plan::reads_items`](crate::Plan::reads_items)) are passed on unchecked, even if
    /// they are not JSON. `Strict` checks all items.
    pub level: Level,
    /// Treatment of items that are not JSON, or in which the filter takes too many steps,
    /// on pages whose items are framed independently.
    pub on_bad_item: BadItem,
    /// Order of the results. `None`: by source without `order`; with `order`, a merge if
    /// all sources are sorted, else a sort.
    pub mode: Option<Mode>,
}

/// Arrays and objects as order keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Complex {
    /// The query fails.
    #[default]
    Error,
    /// All arrays are equal, all objects are equal, and arrays come before objects.
    Rank,
}

/// Items without an order key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// They sort before all other items.
    #[default]
    First,
    /// They are omitted.
    Drop,
}

/// Order of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All items of the first source, then all of the next.
    Sequential,
    /// Order of arrival of the pages. Not reproducible.
    Arrival,
    /// One item of each source in turn. Only items that pass the filter count, because the
    /// result must not depend on where the filter runs.
    RoundRobin,
    /// By the order keys; every source is sorted.
    Merge,
    /// By the order keys; all items are stored, or offset + limit items.
    Sort,
}

impl Mode {
    /// Returns the name of the mode.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Arrival => "arrival",
            Self::RoundRobin => "round_robin",
            Self::Merge => "merge",
            Self::Sort => "sort",
        }
    }
}

/// Options of a source.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent options, not a state"
)]
pub struct SourceOptions {
    /// Name for messages and resume tokens. Empty: the number of the source. If two sources
    /// have equal names, the query has no tokens.
    pub name: Vec<u8>,
    /// Rank among equal items, unique among the added sources. `None`: its rank in the
    /// previous run if there is a token, else the next rank after all sources.
    pub ordinal: Option<u64>,
    /// Location of the items in a page.
    pub shape: Shape,
    /// Level of checking of a page. `None`: that of the query.
    pub level: Option<Level>,
    /// Continuation of the first page, which the engine returns when it needs that page.
    pub first: Option<Bytes>,
    /// Whether the items arrive in the order of the query.
    pub sorted: bool,
    /// Whether the order of items is not checked. For measurements.
    pub trust_order: bool,
    /// Whether equal continuations always give equal items.
    pub stable: bool,
    /// A singular path that orders and identifies items with equal keys, for tokens if
    /// sources are not stable or are split. Empty: none.
    pub tie: String,
    /// Values of `meta.NAME` that all items of the source share, as JSON scalars.
    pub meta: Vec<(String, String)>,
    /// A lower bound for the order keys of the items, as JSON scalars. Needed to add a
    /// source to a merge that has returned results.
    pub bound: Option<Vec<String>>,
    /// Whether the items are partial aggregates (`{"count":..,"sum":..,"min":..,"max":..}`)
    /// instead of values to aggregate.
    pub partial: bool,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            name: Vec::new(),
            ordinal: None,
            shape: Shape::Array,
            level: None,
            first: None,
            sorted: false,
            trust_order: false,
            stable: true,
            tie: String::new(),
            meta: Vec::new(),
            bound: None,
            partial: false,
        }
    }
}

/// Prefix of a shape with a path.
const MEMBER: &str = "member:";

/// Parses the location of the items in a page: `array`, `lines`, `values`, `single`,
/// `framed`, or `member:PATH` with the singular path of their array.
///
/// # Errors
/// `BadOption` for any other word, or the error of the path, at its byte.
pub fn parse_shape(text: &str) -> Result<Shape, QueryError> {
    Ok(match text {
        "array" => Shape::Array,
        "lines" => Shape::Lines,
        "values" => Shape::Values,
        "single" => Shape::Single,
        "framed" => Shape::Framed,
        _ => {
            let path = text.strip_prefix(MEMBER).ok_or_else(|| {
                QueryError::new(ErrorCode::BadOption).with_value(
                    "shapes are array, lines, values, single, framed and member:PATH, not",
                    text,
                )
            })?;
            let path = path.parse();
            Shape::Member(path.map_err(|error| path_error("shape", MEMBER.len(), &error))?)
        }
    })
}

/// Memory limits of a query. See `docs/guide/query.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Maximum number of bytes of referenced pages, including those of result pages; default
    /// 256 MiB. One page of each source may exceed the limit if the query cannot continue
    /// without it.
    pub buffer_bytes_max: u64,
    /// Number of pages of each source to read ahead; default 1.
    pub pages_ahead: u32,
    /// Maximum number of bytes that a sort stores: pages, and the keys of their items;
    /// default 256 MiB.
    pub sort_bytes_max: u64,
    /// Maximum number of groups at a time; default 1,000,000.
    pub groups_max: usize,
    /// Maximum number of distinct values at a time; default 1,000,000.
    pub distinct_max: usize,
    /// Maximum number of sources, including finished ones; default 4096.
    pub sources_max: usize,
    /// Largest page in bytes; default 1 GiB.
    pub page_bytes_max: u64,
    /// Largest item in bytes; default 64 MiB.
    pub item_bytes_max: u64,
    /// Deepest nesting in a page; default 512.
    pub depth_max: u32,
    /// Suggested size of a page in bytes; default 1 MiB.
    pub page_bytes_hint: u64,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            buffer_bytes_max: 256 << 20,
            pages_ahead: 1,
            sort_bytes_max: 256 << 20,
            groups_max: 1_000_000,
            distinct_max: 1_000_000,
            sources_max: 4096,
            page_bytes_max: 1 << 30,
            item_bytes_max: 64 << 20,
            depth_max: 512,
            page_bytes_hint: 1 << 20,
        }
    }
}

/// Limits of the results of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of items; default 256.
    pub items_max: usize,
    /// Number of bytes of items after which no further item is added; default 1 MiB. One
    /// item is always returned.
    pub bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            items_max: 256,
            bytes_max: 1 << 20,
        }
    }
}
