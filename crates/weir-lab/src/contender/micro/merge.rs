//! The ordered merge: items `{"o":N}` of several sources, enqueued before the clock starts.
//!
//! The heap is the floor: it merges keys that were parsed before, and touches each item. The other
//! floor copies the pages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weir::query::{Bounds, Budgets, PageIn, Plan, Query, QueryText, Shape, SourceOptions, Step};

use super::{Timer, Work};
use crate::contender::wire::touch;
use crate::contender::{ContenderError, parameter};
use crate::protocol::Fields;
use crate::rng::fnv1a64_more;

fn refused(error: impl std::fmt::Display) -> ContenderError {
    ContenderError::Refused(error.to_string())
}

/// The pages of all sources, and in each page the key and the range of each item.
struct Pages {
    pages: Vec<Vec<u8>>,
    items: Vec<Vec<(u64, std::ops::Range<usize>)>>,
}

impl Pages {
    /// Parameters: `items` in all, `sources`, and `run`: how many items of a source follow each
    /// other in the order.
    fn read(fields: &Fields) -> Result<Pages, ContenderError> {
        let total: u64 = parameter(fields, "items")?;
        let sources: u64 = parameter(fields, "sources")?;
        let run: u64 = parameter(fields, "run")?;
        if sources == 0 || run == 0 || !total.is_multiple_of(sources * run) {
            return Err(ContenderError::Parameter("items"));
        }
        let (mut pages, mut items) = (Vec::new(), Vec::new());
        for source in 0..sources {
            let (mut page, mut ranges) = (b"[".to_vec(), Vec::new());
            for item in 0..total / sources {
                let key = (item / run * sources + source) * run + item % run;
                if item > 0 {
                    page.push(b',');
                }
                let from = page.len();
                page.extend_from_slice(format!("{{\"o\":{key}}}").as_bytes());
                ranges.push((key, from..page.len()));
            }
            page.push(b']');
            pages.push(page);
            items.push(ranges);
        }
        Ok(Pages { pages, items })
    }
}

/// The query engine.
struct Merge {
    pages: Vec<PageIn>,
    plan: Arc<Plan>,
}

impl Merge {
    /// Merges all items and calls `each` with each of them.
    fn run(&self, timer: &mut Timer, mut each: impl FnMut(&[u8])) -> Result<(), ContenderError> {
        let budgets = Budgets {
            buffer_bytes_max: 1 << 30,
            ..Budgets::default()
        };
        let mut query = Query::new(Arc::clone(&self.plan), budgets);
        for page in &self.pages {
            let options = SourceOptions {
                shape: Shape::Array,
                sorted: true,
                ..SourceOptions::default()
            };
            let source = query.add_source(options).map_err(refused)?;
            query.enqueue(source, page.clone(), None).map_err(refused)?;
        }
        timer.time(|| {
            loop {
                match query.next(Bounds::default()).map_err(refused)? {
                    Step::Ready(page) => {
                        for item in page.items() {
                            each(page.bytes(item));
                        }
                    }
                    Step::Done => return Ok(()),
                    Step::Need(_) => return Err(refused("the engine needs another page")),
                }
            }
        })
    }
}

impl Work for Merge {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let mut sum = 0u64;
        self.run(timer, |item| sum = sum.wrapping_add(touch(item)))?;
        Ok(sum)
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        let mut hash = 0;
        self.run(&mut Timer::default(), |item| {
            hash = fnv1a64_more(hash, item);
        })?;
        Ok(hash)
    }
}

/// Merges by the query engine.
pub fn merged(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    let pages = Pages::read(fields)?.pages.into_iter();
    let text = QueryText {
        order: "$.o".to_owned(),
        ..QueryText::default()
    };
    Ok(Box::new(Merge {
        pages: pages
            .map(|page| PageIn {
                bytes: page.into(),
                frames: None,
            })
            .collect(),
        plan: Arc::new(text.compile().map_err(refused)?),
    }))
}

/// A binary heap of parsed keys.
struct Heap(Pages);

impl Heap {
    fn run(&self, mut each: impl FnMut(&[u8])) {
        let (pages, items) = (&self.0.pages, &self.0.items);
        let entry = |source: usize, at: usize| {
            let (key, _) = items.get(source)?.get(at)?;
            Some(Reverse((*key, source, at)))
        };
        let mut heap: BinaryHeap<_> = (0..items.len())
            .filter_map(|source| entry(source, 0))
            .collect();
        while let Some(Reverse((_, source, at))) = heap.pop() {
            let range = items.get(source).and_then(|items| items.get(at));
            let item = range.and_then(|(_, range)| pages.get(source)?.get(range.clone()));
            each(item.unwrap_or_default());
            heap.extend(entry(source, at + 1));
        }
    }
}

impl Work for Heap {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let mut sum = 0u64;
        timer.time(|| self.run(|item| sum = sum.wrapping_add(touch(item))));
        Ok(sum)
    }

    fn content(&mut self) -> Result<u64, ContenderError> {
        let mut hash = 0;
        self.run(|item| hash = fnv1a64_more(hash, item));
        Ok(hash)
    }
}

/// Merges parsed keys by a heap.
pub fn heaped(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    Ok(Box::new(Heap(Pages::read(fields)?)))
}

/// The pages are copied.
struct PlainCopy(Vec<Vec<u8>>, Vec<u8>);

impl Work for PlainCopy {
    fn pass(&mut self, timer: &mut Timer) -> Result<u64, ContenderError> {
        let (pages, out) = (&self.0, &mut self.1);
        Ok(timer.time(|| {
            let mut sum = 0u64;
            for page in pages {
                out.clear();
                out.extend_from_slice(page);
                sum = sum.wrapping_add(touch(out));
            }
            sum
        }))
    }
}

/// Copies the pages.
pub fn copied(_: usize, fields: &Fields) -> Result<Box<dyn Work>, ContenderError> {
    Ok(Box::new(PlainCopy(Pages::read(fields)?.pages, Vec::new())))
}
