//! Converts the options of queries and of their sources.

use bytes::Bytes;
use weir::query::{
    BadItem, Budgets, Complex, Frames, Level, Meta, Missing, Mode, QueryText, Shape, SourceOptions,
    Span, Strings,
};
use weir::{ErrorCode, IntentionOffset, RecordKind, TopicEnd, TopicQueryOptions, TopicView};

use crate::error::{Fail, Kind};
use crate::handle::Caller;
use crate::page::bad_path;
use crate::raw;
use crate::read::position_of;
use crate::store::check_flags;

/// Flags of `weir_query_options`.
const LIMIT: u32 = 1;
const TOP: u32 = 2;
const DISTINCT: u32 = 4;
const UTF16: u32 = 8;
const RANK_COMPLEX: u32 = 16;
const DROP_MISSING: u32 = 32;
const PAGES_AHEAD: u32 = 64;
const QUERY_FLAGS: u32 = 127;

/// Flags of `weir_source_options`.
const ORDINAL: u32 = 1;
const FIRST: u32 = 2;
const SORTED: u32 = 4;
const TRUST_ORDER: u32 = 8;
const UNSTABLE: u32 = 16;
const PARTIAL: u32 = 32;
const BOUND: u32 = 64;
const SOURCE_FLAGS: u32 = 127;

fn level(number: u32) -> Result<Option<Level>, Fail> {
    Ok(match number {
        0 => None,
        1 => Some(Level::None),
        2 => Some(Level::Structural),
        3 => Some(Level::Strict),
        other => return Err(Fail::option("the level", other)),
    })
}

fn params(
    c: &Caller,
    params: *const raw::Param,
    count: usize,
) -> Result<Vec<(String, String)>, Fail> {
    let params = c.array(params, count)?.iter();
    let text = |slice, what| c.text(slice, what).map(str::to_owned);
    params
        .map(|param| Ok((text(param.name, "a name")?, text(param.value, "a value")?)))
        .collect()
}

/// The text fields of a query.
pub(crate) fn text(c: &Caller, from: &raw::QueryOptions) -> Result<QueryText, Fail> {
    let field = |slice, what| c.text(slice, what).map(str::to_owned);
    let has = |flag: u32| from.flags & flag != 0;
    check_flags(from.flags, QUERY_FLAGS, "flags")?;
    Ok(QueryText {
        filter: field(from.r#where, "where")?,
        order: field(from.order, "order")?,
        select: field(from.select, "select")?,
        group: field(from.group, "group")?,
        distinct: has(DISTINCT),
        offset: from.offset,
        limit: has(LIMIT).then_some(from.limit),
        top: has(TOP).then_some(from.top),
        params: params(c, from.params, from.param_count)?,
        strings: if has(UTF16) {
            Strings::Utf16
        } else {
            Strings::Scalar
        },
        complex: if has(RANK_COMPLEX) {
            Complex::Rank
        } else {
            Complex::Error
        },
        missing: if has(DROP_MISSING) {
            Missing::Drop
        } else {
            Missing::First
        },
        level: level(from.level)?.unwrap_or_default(),
        on_bad_item: match from.on_bad_item {
            0 => BadItem::Error,
            1 => BadItem::Skip,
            2 => BadItem::Undefined,
            other => return Err(Fail::option("on_bad_item", other)),
        },
        mode: match from.mode {
            0 => None,
            1 => Some(Mode::Sequential),
            2 => Some(Mode::Arrival),
            3 => Some(Mode::RoundRobin),
            4 => Some(Mode::Merge),
            5 => Some(Mode::Sort),
            other => return Err(Fail::option("the mode", other)),
        },
    })
}

/// Flags of `weir_topics_options`.
const RESET_EARLIEST: u32 = 1;
const NO_PUSH_DOWN: u32 = 2;

/// The options of a query over topics.
pub(crate) fn topics(
    c: &Caller,
    topics: &raw::TopicsOptions,
    from: &raw::QueryOptions,
) -> Result<TopicQueryOptions, Fail> {
    check_flags(topics.flags, RESET_EARLIEST | NO_PUSH_DOWN, "flags")?;
    let names = c.array(topics.topics, topics.topic_count)?.iter();
    let names = names.map(|name| c.text(*name, "a topic").map(str::to_owned));
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    let mut options = TopicQueryOptions::new(names).text(text(c, from)?);
    options.from = position_of(topics.from, topics.value)?;
    options.view = match topics.view {
        0 => TopicView::Log,
        1 => TopicView::Latest,
        other => return Err(Fail::option("the view", other)),
    };
    options.end = match topics.end {
        0 => TopicEnd::Now,
        1 => TopicEnd::AsOf(IntentionOffset(topics.as_of)),
        2 => TopicEnd::Follow,
        other => return Err(Fail::option("the end", other)),
    };
    if topics.kinds != 0 {
        let kinds = (0..u32::BITS).filter(|bit| topics.kinds & (1 << bit) != 0);
        let kind = |bit: u32| u8::try_from(bit).ok().and_then(RecordKind::from_number);
        let kinds = kinds.map(|bit| kind(bit).ok_or_else(|| Fail::option("a kind", bit)));
        options.kinds = kinds.collect::<Result<_, _>>()?;
    }
    options.reset_earliest = topics.flags & RESET_EARLIEST != 0;
    options.push_down = topics.flags & NO_PUSH_DOWN == 0;
    if topics.patience_ms != 0 {
        options.patience = std::time::Duration::from_millis(topics.patience_ms);
    }
    options.budgets = budgets(from, &options.budgets);
    let token = c.short(from.token)?;
    options.token = (!token.is_empty()).then(|| token.to_vec());
    Ok(options)
}

/// The budgets of a query.
pub(crate) fn budgets(from: &raw::QueryOptions, default: &Budgets) -> Budgets {
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let count = |value: u64, default: usize| match value {
        0 => default,
        value => usize::try_from(value).unwrap_or(usize::MAX),
    };
    Budgets {
        buffer_bytes_max: or(from.buffer_bytes_max, default.buffer_bytes_max),
        pages_ahead: if from.flags & PAGES_AHEAD == 0 {
            default.pages_ahead
        } else {
            from.pages_ahead
        },
        sort_bytes_max: or(from.sort_bytes_max, default.sort_bytes_max),
        groups_max: count(from.groups_max, default.groups_max),
        distinct_max: count(from.distinct_max, default.distinct_max),
        sources_max: count(u64::from(from.sources_max), default.sources_max),
        page_bytes_max: or(from.page_bytes_max, default.page_bytes_max),
        item_bytes_max: or(from.item_bytes_max, default.item_bytes_max),
        depth_max: if from.depth_max == 0 {
            default.depth_max
        } else {
            from.depth_max
        },
        page_bytes_hint: or(from.page_bytes_hint, default.page_bytes_hint),
    }
}

/// The options of a source.
pub(crate) fn source(c: &Caller, from: &raw::SourceOptions) -> Result<SourceOptions, Fail> {
    let has = |flag: u32| from.flags & flag != 0;
    check_flags(from.flags, SOURCE_FLAGS, "flags")?;
    let bound = c.array(from.bound, from.bound_count)?.iter();
    let bound = bound.map(|key| c.text(*key, "a key").map(str::to_owned));
    let bound: Vec<String> = bound.collect::<Result<_, _>>()?;
    Ok(SourceOptions {
        name: c.short(from.name)?.to_vec(),
        ordinal: has(ORDINAL).then_some(from.ordinal),
        shape: match from.shape {
            0 => Shape::Array,
            1 => {
                let path = c.text(from.member, "the member")?.parse();
                Shape::Member(path.map_err(|error| bad_path("the member", error))?)
            }
            2 => Shape::Lines,
            3 => Shape::Single,
            4 => Shape::Framed,
            5 => Shape::Values,
            other => return Err(Fail::option("the shape", other)),
        },
        level: level(from.level)?,
        first: if has(FIRST) {
            Some(Bytes::from(c.owned(from.first)?))
        } else {
            None
        },
        sorted: has(SORTED),
        trust_order: has(TRUST_ORDER),
        stable: !has(UNSTABLE),
        tie: c.text(from.tie, "the tie")?.to_owned(),
        meta: params(c, from.meta, from.meta_count)?,
        bound: has(BOUND).then_some(bound),
        partial: has(PARTIAL),
    })
}

/// Parses a shape with the parser that all interfaces share.
pub(crate) fn shape(
    c: &Caller,
    text: raw::Slice,
    shape: *mut u32,
    member: *mut raw::Slice,
) -> Result<Kind, Fail> {
    c.check_output(shape, 1)?;
    c.check_output(member, 1)?;
    let given = c.text(text, "the shape")?;
    let (number, path) = match weir::query::parse_shape(given)? {
        Shape::Array => (0, ""),
        // The path follows the word and the colon.
        Shape::Member(_) => (1, given.split_once(':').map_or("", |(_, path)| path)),
        Shape::Lines => (2, ""),
        Shape::Single => (3, ""),
        Shape::Framed => (4, ""),
        Shape::Values => (5, ""),
        _ => return Err(Fail::of(ErrorCode::Internal)),
    };
    let member_of = raw::Slice {
        ptr: path.as_ptr(),
        len: path.len(),
    };
    c.write(shape, number)?;
    c.write(member, member_of)?;
    Ok(Kind::Ok)
}

/// The positions of the items of a framed page.
pub(crate) fn frames(c: &Caller, frames: *const raw::Frames) -> Result<Option<Frames>, Fail> {
    let Some(from) = c.optional(frames)? else {
        return Ok(None);
    };
    let span = |offset, len| Span { offset, len };
    let spans = c.long_array(from.spans, from.span_count)?.iter();
    let metas = c.long_array(from.metas, from.meta_count)?.iter();
    Ok(Some(Frames {
        spans: spans.map(|frame| span(frame.offset, frame.len)).collect(),
        meta: metas
            .map(|meta| {
                Ok(match meta.kind {
                    0 => Meta::Nothing,
                    1 => Meta::Number(meta.number),
                    2 => {
                        let offset = u32::try_from(meta.number);
                        let offset = offset.map_err(|_| Fail::of(ErrorCode::BadLength))?;
                        Meta::Bytes(span(offset, meta.len))
                    }
                    other => return Err(Fail::option("the kind of a property", other)),
                })
            })
            .collect::<Result<_, _>>()?,
        ..Frames::default()
    }))
}
