//! What is asked: the fields of a query, of its sources, and its budgets.

use bytes::Bytes;
use weir_core::error_code::ErrorCode;
use weir_scan::{BadItem, Level, Shape};

use crate::error::{QueryError, path_error};
use crate::kind::Strings;

/// The fields of a query as text, the same on every door: the command line, an
/// HTTP query string, the C interface. All empty: every item, source by source.
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
    /// `where`: a logical expression of RFC 9535 in which `@` and `$` stand for
    /// the item. Empty: all items.
    pub filter: String,
    /// `order`: keys with commas between, each a singular path or `meta.NAME`,
    /// then optionally `asc` or `desc`. At most 8. Of groups and aggregates also
    /// names of results (`count desc`): then the results are sorted, not the
    /// items.
    pub order: String,
    /// `select`: singular paths with commas between, or aggregates (`count`,
    /// `sum(PATH)`, `min`, `max`, `avg`), each optionally followed by
    /// `as NAME`. One path without a name: its value. Several, or one with a
    /// name: a projection, see [`ResultPage::values`](crate::ResultPage::values).
    /// Empty: the item.
    pub select: String,
    /// `group`: singular paths with commas between, each optionally followed by
    /// `as NAME`. At most 8.
    pub group: String,
    /// Keep the first of each equal selected value.
    pub distinct: bool,
    /// Results to leave out first.
    pub offset: u64,
    /// Most results.
    pub limit: Option<u64>,
    /// Most results, as in `limit`; with both, the smaller counts.
    pub top: Option<u64>,
    /// Values for `param(NAME)`: name, and a JSON scalar.
    pub params: Vec<(String, String)>,
    /// How strings are ordered.
    pub strings: Strings,
    /// What an array or object as order key is.
    pub complex: Complex,
    /// What becomes of items without an order key.
    pub missing: Missing,
    /// How much of each page is checked, where its source does not say. At
    /// `Structural` framed items that the query does not look into
    /// (see [`Plan::reads_items`](crate::Plan::reads_items)) go through unread,
    /// and those that are not JSON with them; `Strict` checks all.
    pub level: Level,
    /// What becomes of items that are not JSON, or in which the filter takes
    /// too many steps, where items are framed independently.
    pub on_bad_item: BadItem,
    /// In which order results come. `None`: by source without `order`; with it,
    /// a merge if all sources are sorted, else a sort.
    pub mode: Option<Mode>,
}

/// Arrays and objects as order keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Complex {
    /// An error.
    #[default]
    Error,
    /// All arrays equal, all objects equal, arrays first.
    Rank,
}

/// Items without an order key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// They sort before everything else.
    #[default]
    First,
    /// They are left out.
    Drop,
}

/// In which order results come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All of the first source, then all of the next.
    Sequential,
    /// As pages come. Not reproducible.
    Arrival,
    /// One item of each source in turn, of those that the filter lets through:
    /// a turn that nobody sees would only depend on where the filter runs.
    RoundRobin,
    /// By the order keys; every source is sorted.
    Merge,
    /// By the order keys; everything is held, or offset + limit items.
    Sort,
}

impl Mode {
    /// Its name.
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

/// One source.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a form with boxes to tick, not a state"
)]
pub struct SourceOptions {
    /// For messages and resume tokens. Empty: its number. Where two are the same
    /// there are no tokens.
    pub name: Vec<u8>,
    /// Rank among equal items; no two sources that are added have the same.
    /// `None`: that of the run that a token is of, else after those that are
    /// there.
    pub ordinal: Option<u64>,
    /// Where items are in a page.
    pub shape: Shape,
    /// How much of a page is checked. `None`: as the query says.
    pub level: Option<Level>,
    /// What names the first page, handed back when it is wanted.
    pub first: Option<Bytes>,
    /// Whether the items come in the order of the query.
    pub sorted: bool,
    /// Whether sortedness is taken on trust. For measurements.
    pub trust_order: bool,
    /// Whether the same continuation gives the same items again.
    pub stable: bool,
    /// A singular path that orders and identifies items of equal keys: for
    /// tokens where sources are not stable. Empty: none.
    pub tie: String,
    /// Values of `meta.NAME` that all items of the source share: JSON scalars.
    pub meta: Vec<(String, String)>,
    /// A lower bound for the order keys of its items, JSON scalars; needed to
    /// add a source to an ordered query that has handed out results.
    pub bound: Option<Vec<String>>,
    /// Whether its items are partial aggregates (`{"count":..,"sum":..,
    /// "min":..,"max":..}`) in place of what is aggregated.
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

/// The word of a shape with a path.
const MEMBER: &str = "member:";

/// Reads where the items of a page are, as every surface spells it: `array`, `lines`, `values`,
/// `single`, `framed`, or `member:PATH` with the singular path of their array.
///
/// # Errors
/// `BadOption` for any other word; what is wrong with the path, at its byte.
pub fn parse_shape(text: &str) -> Result<Shape, QueryError> {
    Ok(match text {
        "array" => Shape::Array,
        "lines" => Shape::Lines,
        "values" => Shape::Values,
        "single" => Shape::Single,
        "framed" => Shape::Framed,
        _ => {
            let path = text.strip_prefix(MEMBER).ok_or_else(|| {
                QueryError::new(ErrorCode::BadOption).given(
                    "shapes are array, lines, values, single, framed and member:PATH, not",
                    text,
                )
            })?;
            let path = path.parse();
            Shape::Member(path.map_err(|error| path_error("shape", MEMBER.len(), &error))?)
        }
    })
}

/// What a query may hold. See `docs/guide/query.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Bytes of all pages that are referenced, by result pages too. One page
    /// of each source is taken beyond it when nothing can go on without.
    pub buffer_bytes_max: u64,
    /// Pages asked for ahead of the one in use, per source.
    pub pages_ahead: u32,
    /// Bytes that a sort holds: pages, and what is known of each of their items.
    pub sort_bytes_max: u64,
    /// Groups at a time.
    pub groups_max: usize,
    /// Distinct values at a time.
    pub distinct_max: usize,
    /// Sources, finished ones included.
    pub sources_max: usize,
    /// Bytes in one page.
    pub page_bytes_max: u64,
    /// Bytes in one item.
    pub item_bytes_max: u64,
    /// Levels of nesting in a page.
    pub depth_max: u32,
    /// What a need suggests as the size of a page, in bytes.
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

/// How much one call hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most items.
    pub items_max: usize,
    /// Bytes of items after which no other is added; at least one item comes.
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
