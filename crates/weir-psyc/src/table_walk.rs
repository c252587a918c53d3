//! Tables as a flat sequence of rows and columns, for callers that store plain numbers between
//! steps.

use crate::container::{Element, Key, Place};
use crate::dict::{Dict, DictEvent};
use crate::list::{List, ListEvent};
use crate::scan::BAR;
use crate::table::{Table, TableError, struct_type};

/// An item that [`TableWalk`] yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEvent<'a> {
    /// A row. Its columns follow.
    Row {
        /// The key of the row.
        key: Key<'a>,
        /// The type of the struct; `None` for a width list.
        ty: Option<&'a [u8]>,
    },
    /// A column of the last row.
    Column(Element<'a>),
}

/// The item that the walker expects next, as the state of a [`Place`].
mod state {
    /// The start of the table.
    pub(super) const START: u64 = 0;
    /// A row of a dict.
    pub(super) const ROW: u64 = 1;
    /// The columns of a row: the type of the list, or the first element.
    pub(super) const COLUMNS: u64 = 2;
    /// A further element of the columns.
    pub(super) const COLUMN: u64 = 3;
    /// A cell of a width list.
    pub(super) const CELL: u64 = 4;
}

/// Walks a table in either form: a dict of structs, or a width list, which starts with `*`. Ends
/// after the last column, or after the first error.
///
/// In the [`Place`] of this walker, `at` is the end of the row. For a dict, `scanned` has the
/// length of the type and the start of the next column. For a width list, `missing` is the number
/// of columns, and `scanned` has the number of missing cells of the row.
#[derive(Clone, Debug)]
pub struct TableWalk<'a> {
    bytes: &'a [u8],
    place: Place,
    over: bool,
}

impl<'a> TableWalk<'a> {
    /// A walker over the whole value `bytes`.
    pub fn new(bytes: &'a [u8]) -> TableWalk<'a> {
        TableWalk::resume(bytes, Place::default())
    }

    /// A walker that resumes where another walker over the same value stopped.
    pub const fn resume(bytes: &'a [u8], place: Place) -> TableWalk<'a> {
        TableWalk {
            bytes,
            place,
            over: false,
        }
    }

    /// The current position of the walker.
    pub const fn place(&self) -> Place {
        self.place
    }

    fn event(&mut self) -> Result<Option<TableEvent<'a>>, TableError> {
        match self.place.state {
            state::START if self.bytes.starts_with(b"*") => {
                let (cells, width) = Table::width_list(self.bytes)?;
                self.place = Place {
                    missing: width as u64,
                    ..Place::whole(self.bytes.len() - cells.len(), state::CELL)
                };
                Ok(self.cell())
            }
            state::COLUMNS | state::COLUMN => match self.column()? {
                Some(element) => Ok(Some(TableEvent::Column(element))),
                None => self.row(),
            },
            state::CELL => Ok(self.cell()),
            _ => self.row(),
        }
    }

    fn row(&mut self) -> Result<Option<TableEvent<'a>>, TableError> {
        let state = self.place.state.min(state::ROW);
        let mut dict = Dict::resume(
            self.bytes,
            Place {
                state,
                ..self.place
            },
        );
        let [mut ty, ..] = self.place.scanned;
        let mut row = None;
        for event in dict.by_ref() {
            match event.map_err(TableError::Dict)? {
                DictEvent::Type(found) => ty = found.len() as u64,
                DictEvent::Key(key) => row = Some(key),
                DictEvent::Value(element) => {
                    let default = usize::try_from(ty).ok().and_then(|ty| self.bytes.get(..ty));
                    let default = default.filter(|ty| !ty.is_empty());
                    let own = struct_type(element.ty.or(default))?;
                    let end = dict.place().at;
                    self.place = Place {
                        scanned: [ty, end.saturating_sub(element.value.len() as u64), 0],
                        ..Place::whole(dict.place().index(self.bytes), state::COLUMNS)
                    };
                    return Ok(row.map(|key| TableEvent::Row { key, ty: Some(own) }));
                }
            }
        }
        self.place = Place::whole(self.bytes.len(), state::ROW);
        Ok(None)
    }

    fn column(&mut self) -> Result<Option<Element<'a>>, TableError> {
        let [ty, column, _] = self.place.scanned;
        let row = self.bytes.get(..self.place.index(self.bytes));
        let start = Place {
            at: column,
            state: self.place.state - state::COLUMNS,
            ..Place::default()
        };
        let mut list = List::resume(row.unwrap_or_default(), start);
        let found = loop {
            match list.next().transpose().map_err(TableError::Row)? {
                Some(ListEvent::Type(_)) => {}
                Some(ListEvent::Elem(element)) => break Some(element),
                None => break None,
            }
        };
        let more = found.is_some();
        self.place.state = if more { state::COLUMN } else { state::ROW };
        self.place.scanned = [ty, list.place().at, 0];
        Ok(found)
    }

    fn cell(&mut self) -> Option<TableEvent<'a>> {
        let start = self.place.index(self.bytes);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let cell = rest.strip_prefix(&[BAR])?;
        let end = memchr::memchr(BAR, cell).unwrap_or(cell.len());
        let value = cell.get(..end).unwrap_or_default();
        self.place.at = (start + 1 + end) as u64;
        let [missing_cells, ..] = &mut self.place.scanned;
        if let Some(fewer) = missing_cells.checked_sub(1) {
            *missing_cells = fewer;
            return Some(TableEvent::Column(Element {
                ty: None,
                value,
                sized: false,
            }));
        }
        *missing_cells = self.place.missing;
        let key = Key {
            key: value,
            sized: false,
        };
        Some(TableEvent::Row { key, ty: None })
    }
}

impl<'a> Iterator for TableWalk<'a> {
    type Item = Result<TableEvent<'a>, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let event = self.event().transpose();
        self.over = !matches!(event, Some(Ok(_)));
        event
    }
}
