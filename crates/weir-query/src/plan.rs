//! Compiles the text of a query.
//!
//! Each part of an item that a query reads is a column: the value at a singular path, found
//! by the scan of a page, or a property of its record. Equal columns are stored once.
//! Planning reads no data.

use weir_scan::{BadItem, Level, Path};

use crate::error::{QueryError, path_error};
use crate::filter::Filter;
use crate::json;
use crate::kind::Strings;
use crate::options::{Complex, Missing, Mode, QueryText};
use crate::text::{self, Piece};
use weir_core::digest::hash;
use weir_core::error_code::ErrorCode;

/// Maximum number of order keys, and maximum number of group keys, of a query.
pub const KEYS_MAX: usize = 8;
/// Maximum number of aggregates of a query.
pub const AGGREGATES_MAX: usize = 32;
/// Largest size in bytes of the text of one field.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// A compiled query, reusable for any number of runs. Immutable.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Singular paths, in the order of the scan.
    pub(crate) paths: Vec<Path>,
    /// Names of properties.
    pub(crate) metas: Vec<String>,
    pub(crate) keys: Vec<OrderKey>,
    /// Order keys of constructed results: positions among the group keys, followed by the
    /// aggregates.
    pub(crate) result_keys: Vec<ResultKey>,
    pub(crate) filter: Option<Filter>,
    pub(crate) select: Select,
    /// The paths of a projection.
    pub(crate) columns: Vec<Named<usize>>,
    pub(crate) group: Vec<Named<Column>>,
    pub(crate) aggregates: Vec<Named<Aggregate>>,
    pub(crate) distinct: bool,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) strings: Strings,
    pub(crate) complex: Complex,
    pub(crate) missing: Missing,
    pub(crate) level: Level,
    pub(crate) on_bad_item: BadItem,
    pub(crate) mode: Option<Mode>,
    pub(crate) fingerprint: [u64; 2],
}

/// A part of an item that a query reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The value at the path of this index.
    Path(usize),
    /// The property of this index.
    Meta(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderKey {
    pub(crate) column: Column,
    pub(crate) descending: bool,
}

/// A column of constructed results, by which they are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResultKey {
    /// Position among the group keys, followed by the aggregates.
    pub(crate) position: usize,
    pub(crate) descending: bool,
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    /// The item, as it is in its page.
    Item,
    /// The value at the path with this index; items without it give no result.
    Path(usize),
    /// The values at the paths of a projection; items without any of them give no result.
    Columns,
    /// An object or value that the engine constructs.
    Constructed {
        /// Whether the result is the value of the only aggregate, without an object.
        bare: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    /// The name as a JSON string, with quotes.
    pub(crate) name: Vec<u8>,
    pub(crate) what: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Count,
    Sum,
    Min,
    Max,
    Avg,
}

impl Function {
    const ALL: [(&'static str, Self); 5] = [
        ("count", Self::Count),
        ("sum", Self::Sum),
        ("min", Self::Min),
        ("max", Self::Max),
        ("avg", Self::Avg),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aggregate {
    pub(crate) function: Function,
    /// Index of the path; `None`: items are counted.
    pub(crate) path: Option<usize>,
}

impl QueryText {
    /// Checks and compiles the fields.
    ///
    /// # Errors
    /// `SYNTAX`, `NOT_SINGULAR`, `TOO_COMPLEX`, `NO_PARAM` with the byte in the named
    /// field; `BAD_OPTION` for fields that contradict each other.
    pub fn compile(&self) -> Result<Plan, QueryError> {
        let mut plan = Plan {
            paths: Vec::new(),
            metas: Vec::new(),
            keys: Vec::new(),
            result_keys: Vec::new(),
            filter: None,
            select: Select::Item,
            columns: Vec::new(),
            group: Vec::new(),
            aggregates: Vec::new(),
            distinct: self.distinct,
            offset: self.offset,
            limit: match (self.limit, self.top) {
                (Some(limit), Some(top)) => Some(limit.min(top)),
                (limit, top) => limit.or(top),
            },
            strings: self.strings,
            complex: self.complex,
            missing: self.missing,
            level: self.level,
            on_bad_item: self.on_bad_item,
            mode: self.mode,
            fingerprint: self.fingerprint(),
        };
        // The filter is compiled first, because its paths are the first columns.
        if !self.filter.trim().is_empty() {
            let meta = |name: &str| plan.meta(name);
            let filter = Filter::compile(&self.filter, &self.params, meta)?;
            plan.paths.extend(filter.paths().cloned());
            plan.filter = Some(filter);
        }
        let of_results = self.orders_results()?;
        if !of_results {
            plan.order(&self.order)?;
        }
        plan.group(&self.group)?;
        plan.select(&self.select)?;
        if of_results {
            plan.result_order(&self.order)?;
        }
        plan.check()?;
        Ok(plan)
    }

    /// Returns whether results are groups or aggregates, which combine many items.
    #[must_use]
    pub fn constructs_results(&self) -> bool {
        let select = self.select.trim();
        let shows = select.is_empty() || is_path(select);
        !shows || !self.group.trim().is_empty()
    }

    /// Returns whether `order` refers to the names of constructed results, and not to
    /// items.
    fn orders_results(&self) -> Result<bool, QueryError> {
        if !self.constructs_results() {
            return Ok(false);
        }
        bounded("order", &self.order)?;
        let pieces = text::list("order", &self.order)?;
        Ok(pieces.iter().any(|piece| {
            let text = direction(*piece).0.text;
            !is_path(text) && !text.starts_with(META)
        }))
    }

    /// Returns two hashes of everything that affects the results.
    fn fingerprint(&self) -> [u64; 2] {
        let mut bytes = Vec::new();
        let fields = [&self.filter, &self.order, &self.select, &self.group];
        let params = self.params.iter().flat_map(|(name, value)| [name, value]);
        for text in fields.into_iter().chain(params) {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for number in [Some(self.offset), self.limit, self.top] {
            bytes.push(u8::from(number.is_some()));
            bytes.extend_from_slice(&number.unwrap_or(0).to_le_bytes());
        }
        bytes.extend_from_slice(&[
            u8::from(self.distinct),
            u8::from(self.strings == Strings::Utf16),
            u8::from(self.complex == Complex::Rank),
            u8::from(self.missing == Missing::Drop),
            self.on_bad_item as u8,
            self.mode.map_or(0, |mode| 1 + mode as u8),
        ]);
        [hash(1, &bytes), hash(2, &bytes)]
    }
}

/// Prefix of the properties of records.
const META: &str = "meta.";
/// Prefix of a property in a filter.
const META_CALL: &str = "meta(";

fn is_property(text: &str) -> bool {
    text.starts_with(META) || text.starts_with(META_CALL)
}

fn is_path(text: &str) -> bool {
    text.starts_with(['$', '@'])
}

/// Returns an order key without `asc` or `desc`, and whether it is descending.
fn direction(piece: Piece<'_>) -> (Piece<'_>, bool) {
    match piece.last_word() {
        (_, Some((before, "asc"))) => (before, false),
        (_, Some((before, "desc"))) => (before, true),
        (piece, _) => (piece, false),
    }
}

fn bounded(field: &'static str, text: &str) -> Result<(), QueryError> {
    let (found, max) = (text.len(), TEXT_BYTES_MAX);
    too_many(field, "bytes of text", found, max)
}

fn too_many(
    field: &'static str,
    what: &'static str,
    found: usize,
    max: usize,
) -> Result<(), QueryError> {
    if found <= max {
        return Ok(());
    }
    let mut error = QueryError::limit(ErrorCode::TooComplex, what, max as u64, found as u64);
    error.location.field = Some(field);
    Err(error)
}

impl Plan {
    /// Returns the index of a path. Adds the path if it is missing.
    pub(crate) fn path(&mut self, path: Path) -> usize {
        let known = self.paths.iter().position(|known| *known == path);
        known.unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        })
    }

    /// Returns the index of a property. Adds the property if it is missing.
    pub(crate) fn meta(&mut self, name: &str) -> usize {
        let known = self.metas.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.metas.push(name.to_owned());
            self.metas.len() - 1
        })
    }

    /// Returns whether the query has order keys.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns whether the query reads items. If not, items of framed pages are passed on
    /// unread at the level `Structural`.
    #[must_use]
    pub fn reads_items(&self) -> bool {
        !self.paths.is_empty() || self.filter.as_ref().is_some_and(Filter::walks)
    }

    /// Returns notes about the query that are not errors: patterns of the filter that are
    /// invalid in RFC 9485 or exceed a limit, and match nothing.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.filter.as_ref().map(Filter::notes).unwrap_or_default()
    }

    /// Returns the names of the columns of a result: the paths of a projection, or the
    /// members of the object of groups and aggregates. Empty if a result is one value.
    #[must_use]
    pub fn columns(&self) -> Vec<String> {
        let bare = self.select == (Select::Constructed { bare: true });
        let columns = self.columns.iter().map(|named| &named.name);
        let groups = self.group.iter().map(|named| &named.name);
        let aggregates = self.aggregates.iter().map(|named| &named.name);
        let names = columns.chain(groups.chain(aggregates).filter(|_| !bare));
        names.map(|name| json::text(name)).collect()
    }

    /// Returns the names of the properties that a framed page must contain, in this order.
    pub fn meta_names(&self) -> impl Iterator<Item = &str> {
        self.metas.iter().map(String::as_str)
    }

    fn column(&mut self, field: &'static str, piece: &Piece<'_>) -> Result<Column, QueryError> {
        if let Some(name) = piece.text.strip_prefix(META) {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(plain) {
                let at = piece.offset + 5;
                return Err(QueryError::text(
                    ErrorCode::Syntax,
                    field,
                    at,
                    "the name of a property is missing",
                ));
            }
            return Ok(Column::Meta(self.meta(name)));
        }
        if piece.text.starts_with(META_CALL) {
            let what = "`meta('NAME')` is for `where`; `order` and `group` accept `meta.NAME`";
            return Err(QueryError::text(
                ErrorCode::Syntax,
                field,
                piece.offset,
                what,
            ));
        }
        Ok(Column::Path(self.singular(field, piece)?))
    }

    fn singular(&mut self, field: &'static str, piece: &Piece<'_>) -> Result<usize, QueryError> {
        let path = Path::parse(piece.text);
        let path = path.map_err(|error| path_error(field, piece.offset, &error))?;
        Ok(self.path(path))
    }

    fn order(&mut self, text: &str) -> Result<(), QueryError> {
        bounded("order", text)?;
        for piece in text::list("order", text)? {
            let (piece, descending) = direction(piece);
            let column = self.column("order", &piece)?;
            self.keys.push(OrderKey { column, descending });
        }
        too_many("order", "order keys", self.keys.len(), KEYS_MAX)
    }

    /// Parses the order of constructed results: by their names, or by paths in `group`.
    fn result_order(&mut self, text: &str) -> Result<(), QueryError> {
        for piece in text::list("order", text)? {
            let (piece, descending) = direction(piece);
            let position = if is_path(piece.text) || piece.text.starts_with(META) {
                let column = self.column("order", &piece)?;
                self.group.iter().position(|named| named.what == column)
            } else {
                let name = text::quoted(text::unquoted(piece.text)).into_bytes();
                let groups = self.group.iter().map(|named| &named.name);
                let aggregates = self.aggregates.iter().map(|named| &named.name);
                groups.chain(aggregates).position(|known| *known == name)
            };
            let position = position.ok_or_else(|| {
                let mut error = QueryError::new(ErrorCode::Syntax).at(piece.offset);
                error = error.expected("the name of a result, or a group key");
                error.location.field = Some("order");
                error
            })?;
            self.result_keys.push(ResultKey {
                position,
                descending,
            });
        }
        too_many("order", "order keys", self.result_keys.len(), KEYS_MAX)
    }

    fn group(&mut self, text: &str) -> Result<(), QueryError> {
        bounded("group", text)?;
        for piece in text::list("group", text)? {
            let (piece, name) = piece.name("group")?;
            let column = self.column("group", &piece)?;
            let default = match column {
                Column::Path(at) => self.paths.get(at).and_then(last_name),
                Column::Meta(at) => self.metas.get(at).cloned(),
            };
            let name = name.map(str::to_owned).or(default);
            self.group.push(Named {
                name: text::quoted(&name.unwrap_or_else(|| piece.text.to_owned())).into_bytes(),
                what: column,
            });
        }
        too_many("group", "group keys", self.group.len(), KEYS_MAX)
    }

    fn select(&mut self, text: &str) -> Result<(), QueryError> {
        bounded("select", text)?;
        let pieces = text::list("select", text)?;
        if let Some(piece) = pieces.iter().find(|piece| is_property(piece.text)) {
            let what = "properties cannot be selected; `order` and `group` accept `meta.NAME`";
            return Err(QueryError::text(
                ErrorCode::Syntax,
                "select",
                piece.offset,
                what,
            ));
        }
        let mut named = false;
        if let Some(first) = pieces.first().filter(|first| is_path(first.text))
            && !self.group.is_empty()
        {
            let what = "a query with `group` can select only aggregates";
            let error = QueryError::text(ErrorCode::Syntax, "select", first.offset, what);
            return Err(error);
        }
        if let [one] = pieces.as_slice()
            && is_path(one.text)
            && one.last_word().1.is_none()
        {
            let before = self.paths.len();
            let path = self.singular("select", one)?;
            let whole = self.paths.get(path).is_some_and(|p| p.steps().is_empty());
            if whole {
                // An item needs no column.
                self.paths.truncate(before);
            } else {
                self.select = Select::Path(path);
            }
            return Ok(());
        }
        if pieces.first().is_some_and(|first| is_path(first.text)) {
            return self.project(&pieces);
        }
        for piece in pieces {
            let (piece, name) = piece.name("select")?;
            named |= name.is_some();
            let what = self.aggregate(&piece)?;
            self.aggregates.push(Named {
                name: text::quoted(name.unwrap_or(piece.text)).into_bytes(),
                what,
            });
        }
        too_many(
            "select",
            "aggregates",
            self.aggregates.len(),
            AGGREGATES_MAX,
        )?;
        if !self.aggregates.is_empty() || !self.group.is_empty() {
            let bare = self.group.is_empty() && self.aggregates.len() == 1 && !named;
            self.select = Select::Constructed { bare };
        }
        Ok(())
    }

    /// Adds a projection: several paths, or one with a name.
    fn project(&mut self, pieces: &[Piece<'_>]) -> Result<(), QueryError> {
        for piece in pieces {
            let (piece, name) = piece.name("select")?;
            if !is_path(piece.text) {
                let what = "paths and aggregates cannot be combined: group by the paths";
                let error = QueryError::text(ErrorCode::Syntax, "select", piece.offset, what);
                return Err(error);
            }
            let what = self.singular("select", &piece)?;
            let last = || self.paths.get(what).and_then(last_name);
            let name = name.map(str::to_owned).or_else(last);
            let name = text::quoted(&name.unwrap_or_else(|| piece.text.to_owned())).into_bytes();
            self.columns.push(Named { name, what });
        }
        self.select = Select::Columns;
        let found = self.columns.len();
        too_many("select", "paths", found, weir_scan::PATHS_MAX)
    }

    fn aggregate(&mut self, piece: &Piece<'_>) -> Result<Aggregate, QueryError> {
        let (word, rest) = match piece.text.split_once('(') {
            Some((word, rest)) => (word, Some(rest)),
            None => (piece.text, None),
        };
        let known = Function::ALL.iter().find(|(name, _)| *name == word.trim());
        let Some((_, function)) = known else {
            let what =
                "expected paths, or aggregates: count, sum(PATH), min(PATH), max(PATH), avg(PATH)";
            return Err(QueryError::text(
                ErrorCode::Syntax,
                "select",
                piece.offset,
                what,
            ));
        };
        let path = match rest {
            None => None,
            Some(rest) => {
                let Some(inside) = rest.strip_suffix(')') else {
                    let at = piece.offset + piece.text.len();
                    return Err(QueryError::text(
                        ErrorCode::Syntax,
                        "select",
                        at,
                        "expected `)`",
                    ));
                };
                let at = piece.offset + word.len() + 1;
                Some(self.singular("select", &Piece::new(inside, at))?)
            }
        };
        if path.is_none() && *function != Function::Count {
            let at = piece.offset + piece.text.len();
            let what = "expected `(` and a path";
            return Err(QueryError::text(ErrorCode::Syntax, "select", at, what));
        }
        Ok(Aggregate {
            function: *function,
            path,
        })
    }

    /// Rejects contradictory options.
    fn check(&self) -> Result<(), QueryError> {
        let ordered = matches!(self.mode, Some(Mode::Merge | Mode::Sort));
        let bad = |what| Err(QueryError::new(ErrorCode::BadOption).because(what));
        if ordered && self.keys.is_empty() {
            return bad("a merge or sort needs `order`");
        }
        if self.mode.is_some() && !ordered && !self.keys.is_empty() {
            return bad("`order` is for merge and sort");
        }
        let groups = self.group.iter().map(|named| &named.name);
        let names: Vec<_> = groups
            .chain(self.columns.iter().map(|named| &named.name))
            .chain(self.aggregates.iter().map(|named| &named.name))
            .collect();
        for (at, name) in names.iter().enumerate() {
            if names.iter().take(at).any(|before| before == name) {
                let name = String::from_utf8_lossy(name).into_owned();
                return Err(QueryError::new(ErrorCode::BadOption).with_value(
                    "two results have one name; set another with `as NAME`:",
                    &name,
                ));
            }
        }
        too_many("query", "paths", self.paths.len(), weir_scan::PATHS_MAX)
    }

    /// Returns whether the items of a group are adjacent.
    pub(crate) fn groups_in_order(&self) -> bool {
        let keys = self.keys.get(..self.group.len()).unwrap_or_default();
        let among = |column: &Column| keys.iter().any(|key| key.column == *column);
        !self.group.is_empty() && self.group.iter().all(|named| among(&named.what)) && {
            let grouped = |key: &OrderKey| self.group.iter().any(|g| g.what == key.column);
            keys.len() == self.group.len() && keys.iter().all(grouped)
        }
    }

    /// Returns whether equal selected values are adjacent. Different arrays that rank equally may
    /// alternate.
    pub(crate) fn distinct_in_order(&self) -> bool {
        match (self.select, self.keys.as_slice()) {
            (Select::Path(path), [key, ..]) => {
                key.column == Column::Path(path) && self.complex == Complex::Error
            }
            _ => false,
        }
    }

    /// Returns whether the engine constructs the results.
    pub(crate) const fn constructs_results(&self) -> bool {
        matches!(self.select, Select::Constructed { .. })
    }
}

fn last_name(path: &Path) -> Option<String> {
    match path.steps().last()? {
        weir_scan::Step::Name(name) => Some(name.to_string()),
        weir_scan::Step::Index(_) => None,
    }
}
