//! What operators and machines ask the server about itself.

use std::sync::Arc;

use super::route::Resource;
use crate::http::accept;
use crate::http::json::Object;
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::service::{Call, Edge};
use crate::shared::Phase;

/// GET of one of these resources.
pub(crate) fn get(edge: &Arc<Edge>, call: &Call, resource: Resource) -> Result<Reply, Problem> {
    match resource {
        Resource::Root => Ok(root(edge)),
        Resource::Healthz => Ok(plain(200, "ok\n")),
        Resource::Readyz => ready(edge, call),
        Resource::OpenApi => Ok(Reply::new(200)
            .field("cache-control", "no-cache")
            .with("application/json", super::openapi::DOCUMENT.as_bytes())),
        Resource::Problem => explain(&call.matched.name),
        _ => Err(Problem::new(Kind::NotFound, "")),
    }
}

fn plain(status: u16, text: &'static str) -> Reply {
    Reply::new(status)
        .field("cache-control", "no-store")
        .with("text/plain; charset=utf-8", text)
}

fn root(edge: &Edge) -> Reply {
    let store = &edge.shared.store;
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .text("name", "weir")
        .text("version", env!("CARGO_PKG_VERSION"));
    object
        .text("durability", store.durability().name())
        .flag("acknowledged_is_synced", store.durability().is_synced());
    object.number("applied", store.applied().0);
    let mut links = Object::new(object.place("links"));
    links
        .text("topics", "/v1/topics")
        .text("openapi", "/openapi.json")
        .text("health", "/healthz")
        .text("ready", "/readyz")
        .text("metrics", "/metrics");
    links.end();
    object.end();
    body.push(b'\n');
    Reply::new(200)
        .field("cache-control", "no-cache")
        .with("application/json", body)
}

/// Whether requests should be sent here.
fn ready(edge: &Edge, call: &Call) -> Result<Reply, Problem> {
    let shared = &edge.shared;
    let store_takes = !shared.store.is_poisoned();
    let stays = shared.phase() == Phase::Open;
    let good = store_takes && stays;
    let status = if good { 200 } else { 503 };
    if !call.query.flag("verbose")? {
        return Ok(plain(status, if good { "ready\n" } else { "not ready\n" }));
    }
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .flag("ready", good)
        .flag("store", store_takes)
        .flag("draining", !stays);
    object.number("in_flight_bytes", shared.admission.bytes() as u64);
    object.end();
    body.push(b'\n');
    Ok(Reply::new(status)
        .field("cache-control", "no-store")
        .with("application/json", body))
}

/// GET of what is counted.
pub(crate) async fn metrics(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let open = accept::names(&call.head, "application/openmetrics-text");
    let shared = Arc::clone(&edge.shared);
    let text = offload::run(move || Ok(shared.metrics.render(&shared, open))).await?;
    let media_type = if open {
        OPEN
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    };
    Ok(Reply::new(200)
        .field("cache-control", "no-store")
        .field("vary", "accept")
        .with(media_type, text))
}

/// The page that the `type` of a problem names.
fn explain(name: &str) -> Result<Reply, Problem> {
    let kind = Kind::ALL.iter().find(|kind| kind.name() == name);
    let kind = kind.ok_or_else(|| Problem::new(Kind::NotFound, "no problem has this name"))?;
    let text = format!(
        "{}\n\n{}\nStatus: {}\n",
        kind.name(),
        kind.title(),
        kind.status()
    );
    Ok(Reply::new(200)
        .field("cache-control", "max-age=86400")
        .with("text/plain; charset=utf-8", text))
}
