//! Any bytes as a resume token, which is either rejected or resumed. A resumed query runs to its
//! end, on pages that fit and on pages that do not, and returns tokens again.
//!
//! Half of the inputs get a correct checksum, so that the code after the checksum test is reached.

use std::sync::Arc;

use bytes::Bytes;
use weir_query::{
    Bounds, Budgets, Mode, PushdownFilter, Query, QueryText, Shape, SourceOptions, Step, TopicToken,
};

/// Number of turns after which a run is stopped.
const TURNS_MAX: usize = 64;

fn texts() -> [QueryText; 5] {
    let text = |order: &str, select: &str, group: &str, mode| QueryText {
        order: order.into(),
        select: select.into(),
        group: group.into(),
        limit: Some(9),
        mode,
        ..QueryText::default()
    };
    [
        text("$.a, $.b desc", "", "", None),
        text("", "count, sum($.a)", "", Some(Mode::Sequential)),
        text("$.b", "min($.a)", "$.b", None),
        QueryText {
            distinct: true,
            ..text("$.a", "$.a", "", None)
        },
        text("$.b", "", "", Some(Mode::Sort)),
    ]
}

/// A token with the fingerprint of the query and a correct checksum. The bytes between them come
/// from the fuzzer.
fn forged(query: &Query, data: &[u8]) -> Vec<u8> {
    let mut token = query.token().unwrap_or_default();
    token.truncate(17);
    token.extend_from_slice(data);
    let sum = twox_hash::XxHash3_64::oneshot_with_seed(5, &token);
    token.extend_from_slice(&sum.to_le_bytes());
    token
}

/// The fuzz target.
pub fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else {
        return;
    };
    let _ = TopicToken::decode(data);
    let Some(text) = texts().into_iter().nth(usize::from(which >> 4) % 5) else {
        return;
    };
    let _ = PushdownFilter::new(&text, "t", which & 8 != 0);
    let Ok(plan) = text.compile() else {
        return;
    };
    let plan = Arc::new(plan);
    let token = if which & 4 == 0 {
        data.to_vec()
    } else {
        let mut fresh = Query::new(Arc::clone(&plan), Budgets::default());
        for name in ["x", "y"] {
            let _ = fresh.add_source(options(name));
        }
        forged(&fresh, data)
    };
    let Ok(mut query) = Query::resume(plan, Budgets::default(), &token) else {
        return;
    };
    for name in ["x", "y"] {
        if query.add_source(options(name)).is_err() {
            return;
        }
    }
    for turn in 0..TURNS_MAX {
        match query.next(Bounds::default()) {
            Ok(Step::Need(needs)) => {
                for need in needs {
                    // Replaces the source, at any position, by one part or by several.
                    if usize::from(which & 3) > turn {
                        let parts = (0..=turn).map(|part| SourceOptions {
                            first: need.continuation.clone(),
                            ..options(&format!("{}.{turn}.{part}", need.source))
                        });
                        let _ = query.replace(need.source, parts.collect());
                        continue;
                    }
                    let page =
                        Bytes::from_static(b"[{\"a\":1,\"b\":\"x\"},{\"a\":2},{\"a\":2,\"b\":0}]");
                    let next = (turn < 3).then(|| Bytes::from(turn.to_string()));
                    if query.enqueue(need.source, page, next).is_err() {
                        return;
                    }
                }
            }
            Ok(Step::Ready(page)) => {
                assert!(!page.items().is_empty());
                let _ = query.token();
            }
            Ok(Step::Done) | Err(_) => return,
        }
    }
}

fn options(name: &str) -> SourceOptions {
    SourceOptions {
        name: name.as_bytes().to_vec(),
        shape: Shape::Array,
        sorted: true,
        ..SourceOptions::default()
    }
}
