//! The tables of resources. The router, `Allow`, rights, limits of bodies and the `OpenAPI`
//! document are generated from the rows, so every operation needs a row.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::context::{Call, Edge};
use super::route::Resource;
use crate::http::head::Method;
use crate::http::problem::Problem;
use crate::http::reply::{Boxed, Reply};
use crate::security::Right;

/// The resources of one module, and the schemas of their bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) rows: &'static [Row],
    /// Returns an object of schemas by name.
    pub(crate) schemas: fn() -> Value,
}

/// A resource: its path and its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) resource: Resource,
    pub(crate) template: &'static str,
    pub(crate) operations: &'static [Operation],
}

/// Runs an operation. The body is complete and decoded.
pub(crate) type Handler =
    for<'a> fn(&'a Arc<Edge>, &'a Call, Bytes) -> Boxed<'a, Result<Reply, Problem>>;

/// Responds to a request at once, if possible.
pub(crate) type ImmediateHandler = fn(&Arc<Edge>, &Call) -> Option<Result<Reply, Problem>>;

/// A method of a resource. GET also serves HEAD, unless HEAD is an operation of the resource.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) summary: &'static str,
    /// The right that the operation needs on its topic; `None`: no right.
    pub(crate) right: Option<Right>,
    pub(crate) body: BodyMax,
    /// Names of the query parameters.
    pub(crate) query: &'static [&'static str],
    /// Names of the header fields, in addition to those of every request.
    pub(crate) fields: &'static [&'static str],
    /// Request bodies; empty: none.
    pub(crate) request: &'static [Content],
    /// Successful responses.
    pub(crate) responses: &'static [Response],
    /// Statuses of problems, in addition to those of every operation with such a method.
    pub(crate) problems: &'static [u16],
    /// Responds at once to a request without a body if that needs no wait. `None`: the handler must
    /// run.
    pub(crate) immediate: Option<ImmediateHandler>,
    pub(crate) handler: Handler,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operation")
            .field("method", &self.method)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// Header fields that make a write safe to retry, and those of its conditions.
pub(crate) const WRITE_FIELDS: &[&str] = &[
    "Idempotency-Key",
    "Weir-Client",
    "Weir-Nonce",
    "If-Match",
    "If-None-Match",
    "Weir-Expect",
    "Prefer",
];

/// The setting that limits the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMax {
    /// `json_max`: a small JSON text, or a body that is ignored.
    Json,
    /// `payload_max`; `body_max` if the media type is that of a batch.
    Event,
    /// `body_max`.
    Batch,
    /// The maximum size of a module.
    Module,
}

/// A successful response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The bodies by media type; empty: no body.
    pub(crate) content: &'static [Content],
}

/// A body: media type, schema and example.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) media: &'static str,
    /// Name of a schema.
    pub(crate) schema: &'static str,
    /// JSON for a JSON type, otherwise the text itself.
    pub(crate) example: &'static str,
}

impl Content {
    pub(crate) const fn new(
        media: &'static str,
        schema: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            media,
            schema,
            example,
        }
    }

    pub(crate) const fn json(schema: &'static str, example: &'static str) -> Self {
        Self::new("application/json", schema, example)
    }
}

impl Response {
    pub(crate) const fn empty(status: u16) -> Self {
        Self {
            status,
            content: &[],
        }
    }
}

impl Row {
    /// Returns the operation of a method.
    pub(crate) fn operation(&self, method: Method) -> Option<&'static Operation> {
        let find = |method: Method| {
            self.operations
                .iter()
                .find(|operation| operation.method == method)
        };
        find(method).or_else(|| find(Method::Get).filter(|_| method == Method::Head))
    }

    /// Returns the methods in the order of the table; HEAD follows GET.
    pub(crate) fn methods(&self) -> Vec<Method> {
        let mut methods = Vec::new();
        for operation in self.operations {
            methods.push(operation.method);
            let is_head = |operation: &Operation| operation.method == Method::Head;
            if operation.method == Method::Get && !self.operations.iter().any(is_head) {
                methods.push(Method::Head);
            }
        }
        methods
    }

    /// Returns the value of `Allow`.
    pub(crate) fn allow(&self) -> String {
        let mut names: Vec<&str> = self.methods().iter().map(|method| method.name()).collect();
        names.push("OPTIONS");
        names.join(", ")
    }
}
