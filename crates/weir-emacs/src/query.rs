//! Runs queries over topics, and deploys programs of topics, as tasks.

use std::time::{Duration, Instant};

use weir::query::{Bounds, Level, QueryText};
use weir::{TopicOptions, TopicQueryOptions, TopicStep, TopicView, Weir};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::work::{self, CANCEL_POLL, Parts};

/// The parameters of a query.
pub(crate) struct QueryRequest {
    pub(crate) from: Vec<String>,
    pub(crate) text: QueryText,
    pub(crate) latest: bool,
}

/// Starts a query as a task, whose parts are its results.
pub(crate) fn start(weir: Weir, request: QueryRequest) -> Result<u64, Failure> {
    work::task("weir-query", move |parts| run(&weir, request, parts))
}

fn run(weir: &Weir, request: QueryRequest, parts: &Parts) -> Result<Answer, Failure> {
    let mut text = request.text;
    // Results are passed on as JSON, so they must be valid.
    text.level = Level::Strict;
    let mut options = TopicQueryOptions::new(request.from).text(text);
    if request.latest {
        options.view = TopicView::Latest;
    }
    let mut query = weir.query(options)?;
    let canceller = query.canceller();
    parts.cancel.on_cancel(move || canceller.cancel());
    loop {
        match query.next(Bounds::default(), Some(Instant::now() + CANCEL_POLL))? {
            TopicStep::Page(page) => {
                let items = page.iter().map(<[u8]>::to_vec).collect();
                if !parts.send(Answer::Items(items)) {
                    return Ok(Answer::Nothing);
                }
            }
            TopicStep::Idle => {}
            TopicStep::Done => return Ok(Answer::Nothing),
        }
    }
}

/// Creates a topic with a program, or replaces the program of a topic that exists.
pub(crate) fn deploy(
    weir: &Weir,
    name: &str,
    code: &[u8],
    arguments: &[u8],
) -> Result<Answer, Failure> {
    let topic = weir.topic(name)?;
    let live = topic.try_info()?.is_some_and(|info| info.live);
    let verdict = if live {
        topic.replace_program(None, code, arguments)?
    } else {
        topic.create_program(&TopicOptions::default(), code, arguments)?
    };
    match Failure::of_verdict(name, &verdict) {
        Some(failure) => Err(failure),
        None => Ok(Answer::Nothing),
    }
}

/// Ends all work and closes all stores, within half a second. Returns whether all ended in time.
pub(crate) fn shut_down() -> bool {
    const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
    let ended = work::end_all(deadline);
    crate::store::close_all(deadline) && ended
}
