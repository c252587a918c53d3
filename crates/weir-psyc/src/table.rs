//! Tables: each row has one key, and its columns in a list.
//!
//! A table is a dict whose values are structs. Older documents write a table as a list with a width
//! mark. This module reads that form and never writes it.

use core::fmt;

use crate::container::{ContainerError, Element};
use crate::dict::{Dict, DictEvent};
use crate::list::List;
use crate::vartype::VarType;

/// Why a value is not a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The value is not a dict.
    Dict(ContainerError),
    /// A row is not a list.
    Row(ContainerError),
    /// A row has no type, or its type is not a struct.
    NotAStruct,
    /// A width list does not start with `*`, digits and an optional blank.
    Width,
    /// The cells of a width list do not fill its rows.
    Cells,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Dict(error) | TableError::Row(error) => {
                write!(f, "malformed table: {error}")
            }
            TableError::NotAStruct => f.write_str("the rows of a table are structs"),
            TableError::Width => f.write_str("a width list starts with its width"),
            TableError::Cells => f.write_str("the cells of a width list do not fill its rows"),
        }
    }
}

impl core::error::Error for TableError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            TableError::Dict(error) | TableError::Row(error) => Some(error),
            _ => None,
        }
    }
}

/// A table.
///
/// ```
/// use weir_psyc::Table;
///
/// let table = Table::from_width_list(b"*2 |k1|a|b|k2|c|d")?;
/// let row = table.rows().nth(1).unwrap()?;
/// assert_eq!(row.key, b"k2");
/// let columns: Result<Vec<_>, _> = row.columns().collect();
/// assert_eq!(columns?, [b"c", b"d"]);
/// # Ok::<(), weir_psyc::TableError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    source: Source<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Dict(&'a [u8]),
    /// The cells, each after its `|`, and the number of columns of a row.
    Width(&'a [u8], usize),
}

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key of the row.
    pub key: &'a [u8],
    /// The type of the struct; `None` for a width list.
    pub ty: Option<&'a [u8]>,
    /// The columns as a list; for a width list, each cell after its `|`.
    columns: &'a [u8],
    list: bool,
}

impl<'a> Table<'a> {
    /// A table in the form of a dict. Each row is checked when it is read.
    pub const fn from_dict(bytes: &'a [u8]) -> Table<'a> {
        Table {
            source: Source::Dict(bytes),
        }
    }

    /// A table in the form of a list with a width mark: `*` and the number of columns. For each
    /// row, a key and that number of cells follow. All rows are checked in this call, in one pass.
    pub fn from_width_list(bytes: &'a [u8]) -> Result<Table<'a>, TableError> {
        let (cells, width) = Table::width_list(bytes)?;
        Ok(Table {
            source: Source::Width(cells, width),
        })
    }

    /// The cells of a width list, each after its `|`, and the number of columns of a row.
    pub(crate) fn width_list(bytes: &'a [u8]) -> Result<(&'a [u8], usize), TableError> {
        let rest = bytes.strip_prefix(b"*").ok_or(TableError::Width)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = rest.split_at(digits);
        let width = core::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok());
        let width: usize = width.ok_or(TableError::Width)?;
        let cells = rest.strip_prefix(b" ").unwrap_or(rest);
        if !cells.is_empty() && !cells.starts_with(b"|") {
            return Err(TableError::Width);
        }
        let count = memchr::memchr_iter(b'|', cells).count();
        let row = width.checked_add(1).ok_or(TableError::Width)?;
        if !count.is_multiple_of(row) {
            return Err(TableError::Cells);
        }
        Ok((cells, width))
    }

    /// The rows, in order. An error is the last item.
    pub fn rows(&self) -> Rows<'a> {
        match self.source {
            Source::Dict(bytes) => Rows {
                dict: Some(Dict::new(bytes)),
                ty: None,
                cells: &[],
                width: 0,
            },
            Source::Width(cells, width) => Rows {
                dict: None,
                ty: None,
                cells,
                width,
            },
        }
    }
}

impl<'a> Row<'a> {
    /// The columns as one list value, for [`StructType`](crate::StructType). `None` for a width
    /// list.
    pub fn list(&self) -> Option<&'a [u8]> {
        self.list.then_some(self.columns)
    }

    /// The columns, in order. An error is the last item.
    pub fn columns(&self) -> impl Iterator<Item = Result<&'a [u8], TableError>> + use<'a> {
        let list = List::new(if self.list { self.columns } else { b"" });
        let cells = if self.list { b"" } else { self.columns };
        let cells = cells.split(|&byte| byte == b'|').skip(1).map(Ok);
        let values = list.elements().map(|element| match element {
            Ok(Element { value, .. }) => Ok(value),
            Err(error) => Err(TableError::Row(error)),
        });
        values.chain(cells)
    }
}

/// Checks that the type of a row is a struct, and returns it.
pub(crate) fn struct_type(ty: Option<&[u8]>) -> Result<&[u8], TableError> {
    ty.filter(|ty| VarType::from_name(ty) == Some(VarType::Struct))
        .ok_or(TableError::NotAStruct)
}

/// Iterator over the rows of a table.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    dict: Option<Dict<'a>>,
    ty: Option<&'a [u8]>,
    cells: &'a [u8],
    width: usize,
}

impl<'a> Rows<'a> {
    fn entry(&mut self) -> Result<Option<Row<'a>>, TableError> {
        let Some(dict) = &mut self.dict else {
            return Ok(self.cells());
        };
        let mut key: &[u8] = b"";
        for event in dict.by_ref() {
            match event.map_err(TableError::Dict)? {
                DictEvent::Type(ty) => self.ty = Some(ty),
                DictEvent::Key(found) => key = found.key,
                DictEvent::Value(element) => {
                    let ty = struct_type(element.ty.or(self.ty))?;
                    return Ok(Some(Row {
                        key,
                        ty: Some(ty),
                        columns: element.value,
                        list: true,
                    }));
                }
            }
        }
        Ok(None)
    }

    fn cells(&mut self) -> Option<Row<'a>> {
        let cells = self.cells.strip_prefix(b"|")?;
        let end = memchr::memchr(b'|', cells).unwrap_or(cells.len());
        let (key, columns) = cells.split_at(end);
        // The next row starts after one further bar for each column.
        let next = memchr::memchr_iter(b'|', columns)
            .nth(self.width)
            .unwrap_or(columns.len());
        let (columns, rest) = columns.split_at(next);
        self.cells = rest;
        Some(Row {
            key,
            ty: None,
            columns,
            list: false,
        })
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<Row<'a>, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.entry().transpose();
        if matches!(row, Some(Err(_))) {
            self.dict = None;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn shown(table: &Table<'_>) -> Result<Vec<String>, TableError> {
        table
            .rows()
            .map(|row| {
                let row = row?;
                let columns: Result<Vec<_>, _> = row.columns().collect();
                let columns = columns?.join(&b","[..]);
                let text = alloc::format!("{}={}", row.key.escape_ascii(), columns.escape_ascii());
                Ok(text)
            })
            .collect()
    }

    #[test]
    fn rows_of_a_dict_are_structs() {
        let bytes = b"_struct_member{psyc://a.example/~x} | x| 1{psyc://b.example/~y} | y| 2";
        let table = Table::from_dict(bytes);
        let rows = shown(&table).unwrap();
        assert_eq!(rows, ["psyc://a.example/~x=x,1", "psyc://b.example/~y=y,2"]);
        assert_eq!(
            table.rows().next().unwrap().unwrap().list(),
            Some(&b"| x| 1"[..])
        );
        assert_eq!(
            shown(&Table::from_dict(b"{a}=_struct_m:6 | {| }")).unwrap(),
            ["a={,}"]
        );
        assert_eq!(shown(&Table::from_dict(b"_struct")).unwrap(), [""; 0]);
        assert_eq!(
            shown(&Table::from_dict(b"{a} | x")),
            Err(TableError::NotAStruct)
        );
        assert_eq!(
            shown(&Table::from_dict(b"_list{a} | x")),
            Err(TableError::NotAStruct)
        );
        assert!(matches!(
            shown(&Table::from_dict(b"_struct{a} |x")),
            Err(TableError::Row(_))
        ));
        assert!(matches!(
            shown(&Table::from_dict(b"_struct{a")),
            Err(TableError::Dict(_))
        ));
    }

    #[test]
    fn width_lists_fill_their_rows() {
        let rows = |bytes: &[u8]| shown(&Table::from_width_list(bytes)?);
        assert_eq!(rows(b"*2 |k1|a|b|k2|c|d").unwrap(), ["k1=a,b", "k2=c,d"]);
        assert_eq!(rows(b"*1 |k1|a|k2|").unwrap(), ["k1=a", "k2="]);
        assert_eq!(rows(b"*0 |k1|k2||k4").unwrap(), ["k1=", "k2=", "=", "k4="]);
        assert_eq!(rows(b"*2|k|a|b").unwrap(), ["k=a,b"]);
        assert_eq!(rows(b"*2 ").unwrap(), [""; 0]);
        assert_eq!(rows(b"*2 |k|a"), Err(TableError::Cells));
        for bad in [
            "",
            "2 |k",
            "* |k",
            "*2 k",
            "*x |k",
            "*99999999999999999999 |k",
        ] {
            assert_eq!(rows(bad.as_bytes()), Err(TableError::Width), "{bad}");
        }
    }
}
