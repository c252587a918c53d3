//! The part of a query that a server runs for one topic.
//!
//! Invariant: the server runs only stages that this process would run for a local store.

use weir_core::codec::put_bytes;
use weir_core::{ErrorCode, IntentionOffset};
use weir_protocol::{ListenQuery, PushdownQuery, QUERY_PARAMS_BYTES_MAX, QUERY_TEXT_BYTES_MAX};
use weir_query::{Complex, Level, Missing, QueryText, Strings};

/// The part of a query that the server runs.
#[derive(Clone, Debug)]
pub(crate) struct QueryPart {
    text: QueryText,
    params: Vec<u8>,
    cut: bool,
}

impl QueryPart {
    /// The part of this query; `None` if a text is too long to be sent.
    pub(crate) fn new(text: &QueryText, cut: bool) -> Option<Self> {
        let mut params = Vec::new();
        for (name, value) in &text.params {
            put_bytes(&mut params, name.as_bytes());
            put_bytes(&mut params, value.as_bytes());
        }
        let texts = [&text.filter, &text.order, &text.group, &text.select];
        let short = texts.iter().all(|text| text.len() <= QUERY_TEXT_BYTES_MAX);
        (short && params.len() <= QUERY_PARAMS_BYTES_MAX).then(|| Self {
            text: text.clone(),
            params,
            cut,
        })
    }

    /// Whether the server sends selected values instead of whole values.
    pub(crate) fn cuts(&self) -> bool {
        self.cut
    }

    fn pushdown(&self) -> PushdownQuery<'_> {
        let text = &self.text;
        PushdownQuery {
            filter: text.filter.as_bytes(),
            params: &self.params,
            order: text.order.as_bytes(),
            group: text.group.as_bytes(),
            select: text.select.as_bytes(),
            strict: text.level == Level::Strict,
            on_bad_item: text.on_bad_item,
            utf16: text.strings == Strings::Utf16,
            rank: text.complex == Complex::Rank,
            drop: text.missing == Missing::Drop,
            cut: self.cut,
        }
    }
}

/// The query options of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct PushdownRequest {
    /// The stages that the server runs on each record; `None` if it runs none.
    pub(crate) query_part: Option<std::sync::Arc<QueryPart>>,
    /// Wanted kinds of records, one bit each.
    pub(crate) kinds: u8,
    /// Maximum number of wanted records.
    pub(crate) limit: Option<u64>,
    /// Last wanted intention.
    pub(crate) until: Option<IntentionOffset>,
    /// Whether the server reports marks: up to which intention it has sent everything.
    pub(crate) marks: bool,
    /// Whether the listener may start at a key of the latest values.
    pub(crate) begins: bool,
}

impl PushdownRequest {
    /// Kinds that the server selects, one bit each. 0 means all, so that the server can send its
    /// stored pages without reading them.
    pub(crate) fn kinds(&self) -> u8 {
        if self.query_part.is_some() || self.limit.is_some() {
            self.kinds
        } else {
            0
        }
    }

    pub(crate) fn query<'a>(&'a self, follow: bool, from: &'a [u8]) -> ListenQuery<'a> {
        ListenQuery {
            pushdown: self.query_part.as_deref().map(QueryPart::pushdown),
            limit: self.limit,
            until: self.until.map(|until| until.0),
            marks: self.marks && follow,
            from: Some(from).filter(|from| self.begins && !from.is_empty()),
        }
    }
}

/// A record that a server could not read for the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) code: ErrorCode,
    pub(crate) record: u64,
    pub(crate) byte: Option<u64>,
}
