//! The form of the tables of resources. The router, `Allow`, rights, limits of bodies and the
//! `OpenAPI` document are read from the rows, so what is not in a row does not exist.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::context::{Call, Edge};
use super::route::Resource;
use crate::http::head::Method;
use crate::http::problem::Problem;
use crate::http::reply::{Boxed, Reply};
use crate::security::Right;

/// The resources of one module, and the schemas that their bodies refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) rows: &'static [Row],
    /// An object of schemas by name.
    pub(crate) schemas: fn() -> Value,
}

/// A resource: its path, and what can be done with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) resource: Resource,
    pub(crate) template: &'static str,
    pub(crate) operations: &'static [Operation],
}

/// What carries an operation out. The body is whole and decoded.
pub(crate) type Handler =
    for<'a> fn(&'a Arc<Edge>, &'a Call, Bytes) -> Boxed<'a, Result<Reply, Problem>>;

/// What answers a request at once, if it can.
pub(crate) type Now = fn(&Arc<Edge>, &Call) -> Option<Result<Reply, Problem>>;

/// A method of a resource. GET is HEAD as well, unless HEAD has an operation of its own.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) summary: &'static str,
    /// The right that it needs on its topic; `None`: open to everybody.
    pub(crate) right: Option<Right>,
    pub(crate) body: BodyMax,
    /// Names of the query parameters that it takes.
    pub(crate) query: &'static [&'static str],
    /// Names of the header fields that it takes, beside those of every request.
    pub(crate) fields: &'static [&'static str],
    /// Bodies that it takes; empty: none.
    pub(crate) request: &'static [Content],
    /// Answers of success.
    pub(crate) responses: &'static [Response],
    /// Statuses of problems beside those of every operation of its kind.
    pub(crate) problems: &'static [u16],
    /// Answers a request without a body at once if that waits for nothing; `None`: the handler
    /// does.
    pub(crate) now: Option<Now>,
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

/// Header fields of writes that may be sent again, and of their conditions.
pub(crate) const WRITE_FIELDS: &[&str] = &[
    "Idempotency-Key",
    "Weir-Client",
    "Weir-Nonce",
    "If-Match",
    "If-None-Match",
    "Weir-Expect",
    "Prefer",
];

/// Which setting limits the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMax {
    /// `json_max`: a small JSON text, or no use for a body at all.
    Json,
    /// `payload_max`; `body_max` if the media type is that of a batch.
    Event,
    /// `body_max`.
    Batch,
    /// The size of a module.
    Module,
}

/// An answer of success.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Its bodies by media type; empty: it has none.
    pub(crate) content: &'static [Content],
}

/// A body: media type, schema and example.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) media: &'static str,
    /// Name of a schema.
    pub(crate) schema: &'static str,
    /// JSON for a JSON type, else the text itself.
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
    /// The operation of a method.
    pub(crate) fn operation(&self, method: Method) -> Option<&'static Operation> {
        let of = |method: Method| self.operations.iter().find(|one| one.method == method);
        of(method).or_else(|| of(Method::Get).filter(|_| method == Method::Head))
    }

    /// The methods, in the order of the table; HEAD after GET.
    pub(crate) fn methods(&self) -> Vec<Method> {
        let mut methods = Vec::new();
        for operation in self.operations {
            methods.push(operation.method);
            let own = |one: &Operation| one.method == Method::Head;
            if operation.method == Method::Get && !self.operations.iter().any(own) {
                methods.push(Method::Head);
            }
        }
        methods
    }

    /// The value of `Allow`.
    pub(crate) fn allow(&self) -> String {
        let mut names: Vec<&str> = self.methods().iter().map(|method| method.name()).collect();
        names.push("OPTIONS");
        names.join(", ")
    }
}
