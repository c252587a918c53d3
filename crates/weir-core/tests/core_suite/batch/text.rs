//! Batches as text, and items as intentions.

use std::fmt::Write as _;

use weir_core::batch::{Action, Batch, BatchBuilder, Item};
use weir_core::intention::{Intention, IntentionError, IntentionLimits};
use weir_core::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use weir_core::{BatchError, Expect, Operation, ProgramOptions, Retention, TopicOptions, TxnOp};

/// The largest limits that the model permits.
pub(crate) const WIDE: IntentionLimits = IntentionLimits {
    key_bytes_max: KEY_BYTES_MAX,
    value_bytes_max: VALUE_BYTES_MAX,
};

/// All items, or the first error.
pub(crate) fn read(bytes: &[u8]) -> Result<(Batch<'_>, Vec<Item<'_>>), BatchError> {
    let batch = Batch::read(bytes, 1)?;
    let items = batch.items().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(items.len(), batch.count as usize);
    Ok((batch, items))
}

/// Describes a batch item by item, and what the builder writes for the same items.
pub(crate) fn describe(bytes: &[u8]) -> String {
    let (batch, items) = match read(bytes) {
        Ok(read) => read,
        Err(BatchError { at, item, what }) => {
            return format!("error at byte {at}, item {item}: expected {what}\n");
        }
    };
    let mut out = format!("{} items, time {}\n", batch.count, batch.time_ms);
    for item in &items {
        describe_item(item, &mut out);
    }
    match rewrite(&batch, &items) {
        Ok(written) if written == bytes => out.push_str("written again: the same bytes\n"),
        Ok(written) => {
            let _ = writeln!(out, "written again: {} bytes", written.len());
        }
        Err(error) => {
            let _ = writeln!(out, "written again: {error}");
        }
    }
    out
}

fn describe_item(item: &Item<'_>, out: &mut String) {
    let show = |bytes: &[u8]| format!("\"{}\"", bytes.escape_ascii());
    if item.client.is_none() {
        out.push_str("no session");
    } else {
        let _ = write!(out, "client {} nonce {}", item.client, item.nonce);
    }
    let _ = write!(out, ", topic {}", show(item.topic));
    for (name, bytes) in [("meta", item.meta), ("principal", item.principal)] {
        if !bytes.is_empty() {
            let _ = write!(out, ", {name} {}", show(bytes));
        }
    }
    if let Some(fingerprint) = item.fingerprint {
        let _ = write!(out, ", fingerprint {fingerprint:016x}");
    }
    out.push('\n');
    for expect in item.expects.iter() {
        let _ = writeln!(out, "  if {expect:?}");
    }
    let _ = match item.action {
        Action::Create {
            options,
            code,
            args,
            meter,
        } => {
            let options = options_text(options);
            let (code, args) = (code.len(), args.len());
            let meter = match meter {
                0 => String::new(),
                meter => format!("meter {meter}, "),
            };
            writeln!(
                out,
                "  CREATE, program of {code} bytes, arguments of {args}, {meter}{options}"
            )
        }
        Action::Replace {
            expected,
            code,
            args,
            meter,
        } => {
            let (code, args) = (code.len(), args.len());
            let expected = expected.map_or("any".to_owned(), |hash| hash.to_string());
            writeln!(
                out,
                "  REPLACE of {expected}, program of {code} bytes, arguments of {args}, meter {meter}"
            )
        }
        Action::Quarantine { stopped } => writeln!(out, "  QUARANTINE {stopped}"),
        Action::Trim { through } => writeln!(out, "  TRIM {through}"),
        Action::Destroy => writeln!(out, "  DESTROY"),
        Action::Put { key, value } => writeln!(out, "  PUT {} = {}", show(key), show(value)),
        Action::Delete { key } => writeln!(out, "  DELETE {}", show(key)),
        Action::Alter { options } => {
            writeln!(out, "  ALTER, {}", options_text(options))
        }
        Action::Cursor { group, step } => writeln!(out, "  group {group:?}: {step:?}"),
        Action::ExpireSessions { idle_ms } => writeln!(out, "  drop sessions idle for {idle_ms}"),
        Action::Txn(steps) => {
            for step in steps.iter() {
                let _ = match step {
                    TxnOp::Put { key, value, meta } => {
                        let (key, value) = (show(key), show(value));
                        writeln!(out, "  step PUT {key} = {value}, meta {}", show(meta))
                    }
                    TxnOp::Delete { key, meta } => {
                        writeln!(out, "  step DELETE {}, meta {}", show(key), show(meta))
                    }
                };
            }
            writeln!(out, "  TXN of {}", steps.len())
        }
    };
}

/// Options as text. Options of programs are shown only if they are set.
fn options_text(bytes: &[u8]) -> String {
    let options = TopicOptions::decode(bytes).unwrap();
    let text = format!("{options:?}");
    let cut = |text: String, field: &str, is_default: bool| match text.split_once(field) {
        Some((before, _)) if is_default => format!("{before} }}"),
        _ => text,
    };
    let plain = options.retention == Retention::default();
    let text = cut(text, ", retention:", plain);
    let plain = plain && options.program == ProgramOptions::default();
    cut(text, ", program:", plain)
}

/// The bytes that the builder writes for these items, or the error of the first item that it
/// rejects.
pub(crate) fn rewrite(batch: &Batch<'_>, items: &[Item<'_>]) -> Result<Vec<u8>, IntentionError> {
    let mut builder = BatchBuilder::default();
    for item in items {
        with_intention(item, |intention| builder.push(intention, &WIDE))?;
    }
    Ok(builder.to_bytes(batch.time_ms))
}

/// Calls `take` with the intention that the item encodes.
pub(crate) fn with_intention<T>(item: &Item<'_>, take: impl FnOnce(&Intention<'_>) -> T) -> T {
    let expect: Vec<Expect<'_>> = item.expects.iter().collect();
    let (options, ops): (TopicOptions, Vec<TxnOp<'_>>);
    let operation = match item.action {
        Action::Create {
            options: bytes,
            code,
            args,
            ..
        } => {
            options = TopicOptions::decode(bytes).unwrap();
            let options = &options;
            if code.is_empty() {
                Operation::Create { options }
            } else {
                Operation::CreateProgram {
                    options,
                    code,
                    args,
                }
            }
        }
        Action::Replace {
            expected,
            code,
            args,
            ..
        } => Operation::Replace {
            expected,
            code,
            args,
        },
        Action::Alter { options: bytes } => {
            options = TopicOptions::decode(bytes).unwrap();
            Operation::Alter { options: &options }
        }
        Action::Destroy => Operation::Destroy,
        Action::Put { key, value } => Operation::Put { key, value },
        Action::Delete { key } => Operation::Delete { key },
        Action::Cursor { group, step } => Operation::Cursor { group, step },
        Action::ExpireSessions { idle_ms } => Operation::ExpireSessions { idle_ms },
        Action::Quarantine { stopped } => Operation::Quarantine { stopped },
        Action::Trim { through } => Operation::Trim { through },
        Action::Txn(steps) => {
            ops = steps.iter().collect();
            Operation::Txn { ops: &ops }
        }
    };
    take(&Intention {
        client: item.client,
        nonce: item.nonce,
        topic: std::str::from_utf8(item.topic).unwrap(),
        operation,
        expect: &expect,
        meta: item.meta,
        principal: item.principal,
        fingerprint: item.fingerprint,
    })
}
