//! The query engine on pages: enqueueing pages, returning items, merging.

use std::sync::Arc;

use bytes::Bytes;
use weir_query::{
    Bounds, Budgets, Frames, Meta, PageIn, Plan, Query, QueryText, Shape, SourceId, SourceOptions,
    Span, Step,
};

use crate::Spent;
use crate::page::Page;

/// The possible arguments.
pub(crate) const NAMES: [&str; 4] = ["enqueue", "next", "merge", "properties"];

/// A measured method.
pub(crate) enum Engine {
    /// A page is enqueued: scanned and checked.
    Enqueue(Arc<Plan>),
    /// The items of an enqueued page are returned.
    Next(Arc<Plan>),
    /// Small items of many enqueued sources are merged by a number.
    Merge(Arc<Plan>),
    /// Records of many topics are enqueued and merged by a property; no byte of the records is
    /// read.
    Properties(Arc<Plan>),
}

fn by(order: &str) -> Option<Arc<Plan>> {
    let text = QueryText {
        order: order.into(),
        ..QueryText::default()
    };
    text.compile().ok().map(Arc::new)
}

fn source(query: &mut Query, shape: Shape) -> Option<SourceId> {
    let options = SourceOptions {
        shape,
        sorted: true,
        ..SourceOptions::default()
    };
    query.add_source(options).ok()
}

fn query(plan: &Arc<Plan>) -> Query {
    let budgets = Budgets {
        buffer_bytes_max: 1 << 30,
        ..Budgets::default()
    };
    Query::new(Arc::clone(plan), budgets)
}

/// Maximum size of one call: a number of items, whatever their size.
const BATCH: Bounds = Bounds {
    items_max: 256,
    bytes_max: u64::MAX,
};

/// Returns all items; the result is a sum over them.
fn drain(query: &mut Query, each: &mut dyn FnMut(&[u8])) -> Option<u64> {
    let mut sum = 0_u64;
    loop {
        match query.next(BATCH).ok()? {
            Step::Ready(page) => {
                for item in page.items() {
                    sum = sum.wrapping_add(u64::from(item.len) + u64::from(item.index));
                }
                // The content of items is read only when answers are compared.
                for item in page.items() {
                    each(page.bytes(item));
                }
            }
            Step::Done => return Some(sum),
            Step::Need(_) => return None,
        }
    }
}

/// The key of an item, for answers that are compared.
fn key(item: &[u8]) -> Option<&[u8]> {
    let path = weir_scan::Path::parse("$.order").ok()?;
    let plan = weir_scan::Plan::new(Shape::Single, weir_scan::Level::Structural, &[path]).ok()?;
    let items = weir_scan::scan(item, &plan).ok()?;
    Some(items.value(0, 0).span.of(item))
}

impl Engine {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "enqueue" => Self::Enqueue(by("$.order")?),
            "next" => Self::Next(by("$.order")?),
            "merge" => Self::Merge(by("$.o")?),
            "properties" => Self::Properties(by("meta.intention")?),
            _ => return None,
        })
    }

    /// One pass, whose measured part is added to `spent`; `each` gets the keys if there are any.
    pub(crate) fn pass(
        &self,
        page: &Page,
        spent: &mut Spent,
        each: &mut dyn FnMut(&[u8]),
    ) -> Option<u64> {
        match self {
            Self::Enqueue(plan) => {
                let mut query = query(plan);
                let source = source(&mut query, Shape::Array)?;
                let bytes = page.bytes.clone();
                let start = Spent::now();
                query.enqueue(source, bytes, None).ok()?;
                spent.add_since(start);
                drain(&mut query, &mut |item| each(key(item).unwrap_or_default()))
            }
            Self::Next(plan) => {
                let mut query = query(plan);
                let source = source(&mut query, Shape::Array)?;
                query.enqueue(source, page.bytes.clone(), None).ok()?;
                let start = Spent::now();
                let sum = drain(&mut query, &mut |_| ());
                spent.add_since(start);
                sum
            }
            Self::Merge(plan) => {
                let mut query = query(plan);
                for part in &page.parts {
                    let source = source(&mut query, Shape::Array)?;
                    query.enqueue(source, part.clone(), None).ok()?;
                }
                let start = Spent::now();
                let sum = drain(&mut query, &mut |_| ());
                spent.add_since(start);
                sum
            }
            Self::Properties(plan) => {
                let pages: Vec<PageIn> = (0..)
                    .zip(&page.parts)
                    .map(|(at, part)| records(part, at, page.parts.len() as u64))
                    .collect();
                let mut query = query(plan);
                let start = Spent::now();
                for page in pages {
                    let source = source(&mut query, Shape::Framed)?;
                    query.enqueue(source, page, None).ok()?;
                }
                let sum = drain(&mut query, &mut |_| ());
                spent.add_since(start);
                sum
            }
        }
    }
}

/// The elements of a page as records of a topic, whose intentions alternate with those of the other
/// topics.
fn records(part: &Bytes, at: u64, topics: u64) -> PageIn {
    let mut frames = Frames::default();
    let mut offset = 1_usize;
    let inside = part.get(1..part.len() - 1).unwrap_or_default();
    for (number, item) in (0_u64..).zip(inside.split(|byte| *byte == b',')) {
        frames.spans.push(Span {
            offset: u32::try_from(offset).unwrap_or(0),
            len: u32::try_from(item.len()).unwrap_or(0),
        });
        frames.meta.push(Meta::Number(number * topics + at));
        offset += item.len() + 1;
    }
    PageIn {
        bytes: part.clone(),
        frames: Some(frames),
    }
}
