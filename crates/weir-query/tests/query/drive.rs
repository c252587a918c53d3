//! A caller that supplies the pages that the engine requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weir_query::{
    Bounds, Budgets, Need, Plan, Query, QueryError, QueryText, SourceId, SourceOptions, Step,
};

/// A source: its options and its pages.
#[derive(Clone, Debug)]
pub(crate) struct Supply {
    pub(crate) options: SourceOptions,
    pub(crate) pages: Vec<Vec<u8>>,
}

pub(crate) fn compile(text: &QueryText) -> Arc<Plan> {
    Arc::new(text.compile().unwrap())
}

/// A query with its sources. The continuation of a page is its number.
pub(crate) struct Host<'a> {
    pub(crate) query: Query,
    pub(crate) supplies: BTreeMap<SourceId, &'a Supply>,
}

impl<'a> Host<'a> {
    pub(crate) fn new(plan: &Arc<Plan>, supplies: &'a [Supply]) -> Self {
        Self::with(Query::new(Arc::clone(plan), Budgets::default()), supplies)
    }

    pub(crate) fn with(mut query: Query, supplies: &'a [Supply]) -> Self {
        let mut known = BTreeMap::new();
        for (at, supply) in supplies.iter().enumerate() {
            let mut options = supply.options.clone();
            if options.name.is_empty() {
                options.name = format!("s{at}").into_bytes();
            }
            known.insert(query.add_source(options).unwrap(), supply);
        }
        Self {
            query,
            supplies: known,
        }
    }

    /// Supplies one page.
    pub(crate) fn serve(&mut self, need: &Need) -> Result<(), QueryError> {
        let supply = self.supplies[&need.source];
        let at = match &need.continuation {
            None => 0,
            Some(text) => std::str::from_utf8(text).unwrap().parse::<usize>().unwrap(),
        };
        let Some(page) = supply.pages.get(at) else {
            return self.query.finish(need.source);
        };
        let more = at + 1 < supply.pages.len();
        let next = more.then(|| Bytes::from((at + 1).to_string()));
        self.query
            .enqueue(need.source, Bytes::from(page.clone()), next)
    }

    /// Calls `next` once and supplies all pages that it requests. Returns `None` at the
    /// end.
    pub(crate) fn advance(
        &mut self,
        bounds: Bounds,
        pick: &mut impl FnMut(&mut Vec<Need>),
    ) -> Result<Option<Vec<Vec<u8>>>, QueryError> {
        loop {
            match self.query.next(bounds)? {
                Step::Ready(page) => {
                    assert!(!page.items().is_empty());
                    return Ok(Some(page.iter().map(<[u8]>::to_vec).collect()));
                }
                Step::Done => return Ok(None),
                Step::Need(mut needs) => {
                    assert!(needs.iter().any(|need| need.required), "nothing is needed");
                    pick(&mut needs);
                    for need in &needs {
                        self.serve(need)?;
                    }
                }
            }
        }
    }

    pub(crate) fn run(
        &mut self,
        bounds: Bounds,
        mut pick: impl FnMut(&mut Vec<Need>),
    ) -> Result<Vec<Vec<u8>>, QueryError> {
        let mut all = Vec::new();
        while let Some(items) = self.advance(bounds, &mut pick)? {
            all.extend(items);
        }
        Ok(all)
    }
}
