//! Items that the caller has framed: their positions in a page, and their properties.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::PyMapping;
use weir::query::{self, Meta, Plan, Span};

use crate::error::{Failure, Result};

/// Offset and length of each item in its page.
pub(crate) type Frames = Vec<(u32, u32)>;

/// Properties by name, each with one value for each item.
pub(crate) type Columns = HashMap<String, Vec<Option<Property>>>;

/// The properties of all items, from a mapping.
pub(crate) fn columns(meta: Option<&Bound<'_, PyMapping>>) -> PyResult<Columns> {
    let Some(meta) = meta else {
        return Ok(Columns::new());
    };
    let items = meta
        .items()?
        .extract::<Vec<(String, Vec<Option<Property>>)>>()?;
    Ok(items.into_iter().collect())
}

/// A property of one item.
#[derive(FromPyObject)]
pub(crate) enum Property {
    Number(u64),
    /// Offset and length in the page.
    Bytes(u32, u32),
}

/// Converts frames for the engine, which reads properties item by item, in the order of its plan.
pub(crate) fn convert(plan: &Plan, frames: &Frames, columns: &Columns) -> Result<query::Frames> {
    for (name, column) in columns {
        if column.len() != frames.len() {
            let text = format!("{name:?} has {} values", column.len());
            return Err(Failure::option("meta", &text));
        }
    }
    let columns: Vec<_> = plan.meta_names().map(|name| columns.get(name)).collect();
    let mut converted = query::Frames::default();
    for (at, (offset, len)) in frames.iter().enumerate() {
        converted.spans.push(Span {
            offset: *offset,
            len: *len,
        });
        for column in &columns {
            let value = column.and_then(|column| column.get(at)?.as_ref());
            converted.meta.push(match value {
                None => Meta::Nothing,
                Some(Property::Number(number)) => Meta::Number(*number),
                Some(Property::Bytes(offset, len)) => Meta::Bytes(Span {
                    offset: *offset,
                    len: *len,
                }),
            });
        }
    }
    Ok(converted)
}
