//! Items that the caller has framed: their positions in a page, and their properties.

use napi::bindgen_prelude::{BigInt, Uint32Array};
use napi_derive::napi;
use weir::query::{Frames, Meta, Plan, Span};

use crate::error::{Failure, Result};
use crate::input;

/// The positions of the items of a page.
#[napi(object)]
pub struct FramesIn {
    /// Offset and length of each item.
    pub spans: Uint32Array,
    pub meta: Vec<ColumnIn>,
}

/// A property of all items.
#[napi(object)]
pub struct ColumnIn {
    pub name: String,
    pub values: Vec<PropertyIn>,
}

/// A property of one item: a number, or a range of the page. If all fields are absent, there is
/// none.
#[napi(object)]
pub struct PropertyIn {
    pub number: Option<BigInt>,
    pub offset: Option<u32>,
    pub len: Option<u32>,
}

impl PropertyIn {
    fn meta(&self) -> Result<Meta> {
        Ok(match (&self.number, self.offset, self.len) {
            (Some(number), ..) => Meta::Number(input::number("a property", number)?),
            (None, Some(offset), Some(len)) => Meta::Bytes(Span { offset, len }),
            _ => Meta::Nothing,
        })
    }
}

impl FramesIn {
    /// Converts the frames for the engine, which reads properties item by item, in the order of its
    /// plan.
    pub(crate) fn of(&self, plan: &Plan) -> Result<Frames> {
        let (spans, rest) = self.spans.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Failure::option("frames", "an offset without a length"));
        }
        for column in &self.meta {
            if column.values.len() != spans.len() {
                let text = format!("{:?} has {} values", column.name, column.values.len());
                return Err(Failure::option("meta", &text));
            }
        }
        let column = |name| self.meta.iter().find(|column| column.name == name);
        let columns: Vec<_> = plan.meta_names().map(column).collect();
        let mut frames = Frames::default();
        for (at, [offset, len]) in spans.iter().enumerate() {
            frames.spans.push(Span {
                offset: *offset,
                len: *len,
            });
            for column in &columns {
                let value = column.and_then(|column| column.values.get(at));
                frames
                    .meta
                    .push(value.map_or(Ok(Meta::Nothing), PropertyIn::meta)?);
            }
        }
        Ok(frames)
    }
}
