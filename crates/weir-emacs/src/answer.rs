//! Converts results of calls and tasks to Lisp values.

use emacs::{Env, IntoLisp, Result, Value};
use serde_json::Value as Json;

use crate::failure::{Failure, Property};

/// A record in the form for Lisp.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) time_ms: u64,
    pub(crate) kind: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Row {
    pub(crate) fn of(record: &weir::Record<'_>) -> Self {
        Self {
            offset: record.offset.0,
            time_ms: record.time_ms,
            kind: record.kind.name(),
            key: record.key.to_vec(),
            value: record.value.to_vec(),
        }
    }
}

/// The result of a call or a task.
pub(crate) enum Answer {
    Nothing,
    /// The offset of the first record of a write.
    Offset(Option<u64>),
    /// A value of a key.
    Bytes(Option<Vec<u8>>),
    /// Keys with their values.
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
    Rows(Vec<Row>),
    Topics(Vec<weir::TopicInfo>),
    /// Results of a query.
    Items(Vec<Vec<u8>>),
    /// Objects become property lists, arrays lists, `false` and `null` nil.
    Json(Json),
    /// A value to which Lisp has a pointer.
    Handle(Box<dyn IntoLispPointer>),
}

/// A multibyte string if the bytes are UTF-8, otherwise a unibyte string.
pub(crate) fn string<'e>(env: &'e Env, bytes: &[u8]) -> Result<Value<'e>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into_lisp(env),
        Err(_) => bytes.into_lisp(env),
    }
}

/// A list of Lisp.
pub(crate) fn list<'e>(env: &'e Env, items: &[Value<'e>]) -> Result<Value<'e>> {
    env.call("list", items)
}

/// `[OFFSET TIME-MS KIND KEY VALUE]`.
fn row<'e>(env: &'e Env, row: &Row) -> Result<Value<'e>> {
    let kind = env.intern(row.kind)?;
    let (key, value) = (string(env, &row.key)?, string(env, &row.value)?);
    env.call("vector", (row.offset, row.time_ms, kind, key, value))
}

/// JSON as Lisp.
pub(crate) fn json<'e>(env: &'e Env, value: &Json) -> Result<Value<'e>> {
    match value {
        Json::Null | Json::Bool(false) => ().into_lisp(env),
        Json::Bool(true) => true.into_lisp(env),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into_lisp(env),
            (None, part) => part.unwrap_or_default().into_lisp(env),
        },
        Json::String(text) => text.as_str().into_lisp(env),
        Json::Array(items) => {
            let items: Result<Vec<_>> = items.iter().map(|item| json(env, item)).collect();
            list(env, &items?)
        }
        Json::Object(fields) => {
            let mut all = Vec::with_capacity(2 * fields.len());
            for (name, value) in fields {
                // Our names have no NUL; a NUL would end the name of a symbol.
                all.push(env.intern(&format!(":{}", name.replace('\0', "")))?);
                all.push(json(env, value)?);
            }
            list(env, &all)
        }
    }
}

impl Answer {
    pub(crate) fn into_value(self, env: &Env) -> Result<Value<'_>> {
        match self {
            Self::Nothing | Self::Bytes(None) => ().into_lisp(env),
            Self::Offset(offset) => offset.into_lisp(env),
            Self::Bytes(Some(bytes)) => string(env, &bytes),
            Self::Pairs(pairs) => {
                let pair = |(key, value): &(Vec<u8>, Vec<u8>)| {
                    env.cons(string(env, key)?, string(env, value)?)
                };
                let pairs: Result<Vec<_>> = pairs.iter().map(pair).collect();
                list(env, &pairs?)
            }
            Self::Rows(rows) => {
                let rows: Result<Vec<_>> = rows.iter().map(|one| row(env, one)).collect();
                list(env, &rows?)
            }
            Self::Topics(topics) => {
                let topic = |topic: &weir::TopicInfo| {
                    let (first, last) = (topic.first.0, topic.last.0);
                    let name = topic.name.as_str();
                    env.call("vector", (name, first, last, topic.keys, topic.bytes))
                };
                let topics: Result<Vec<_>> = topics.iter().map(topic).collect();
                list(env, &topics?)
            }
            Self::Items(items) => {
                let items: Result<Vec<_>> = items.iter().map(|item| string(env, item)).collect();
                list(env, &items?)
            }
            Self::Json(value) => json(env, &value),
            Self::Handle(handle) => handle.into_pointer(env),
        }
    }
}

/// A value that a task created, and that Lisp will own.
pub(crate) trait IntoLispPointer: Send {
    /// Transfers the value to Lisp, which drops it after the last reference is gone.
    fn into_pointer(self: Box<Self>, env: &Env) -> Result<Value<'_>>;
}

impl<T: Send + 'static> IntoLispPointer for T {
    fn into_pointer(self: Box<Self>, env: &Env) -> Result<Value<'_>> {
        Box::new(std::cell::RefCell::new(*self)).into_lisp(env)
    }
}

/// `(SYMBOL MESSAGE :code CODE …)`, with the properties of the failure at the end.
pub(crate) fn failure<'e>(env: &'e Env, failure: &Failure) -> Result<Value<'e>> {
    env.cons(
        env.intern(failure.symbol)?,
        list(env, &data(env, failure)?)?,
    )
}

/// The items of `(MESSAGE :code CODE …)`.
fn data<'e>(env: &'e Env, failure: &Failure) -> Result<Vec<Value<'e>>> {
    let mut items = vec![
        failure.text.as_str().into_lisp(env)?,
        env.intern(":code")?,
        failure.code.as_str().into_lisp(env)?,
    ];
    for (name, property) in &failure.properties {
        items.push(env.intern(name)?);
        items.push(match property {
            Property::Number(number) => (*number).into_lisp(env)?,
            Property::Bytes(bytes) => string(env, bytes)?,
        });
    }
    Ok(items)
}

/// Signals a failure, or returns the value.
pub(crate) fn or_signal<T>(env: &Env, result: std::result::Result<T, Failure>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(failure) if failure.is_quit() => {
            crate::quit::pending(env)?;
            env.signal(env.intern("quit")?, Vec::<Value<'_>>::new().as_slice())
        }
        Err(failure) => {
            let data = data(env, &failure)?;
            env.signal(env.intern(failure.symbol)?, data.as_slice())
        }
    }
}
