//! Selects records of a topic by key, prefix and type.

use weir_core::{Record, RecordKind};

use crate::http::problem::Problem;
use crate::resources::context::Call;

/// Selects records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    key: Option<Vec<u8>>,
    prefix: Option<Vec<u8>>,
    kind: Option<RecordKind>,
}

const KINDS: &[(&str, RecordKind)] = &[
    ("put", RecordKind::Put),
    ("delete", RecordKind::Delete),
    ("create", RecordKind::Create),
    ("destroy", RecordKind::Destroy),
    ("alter", RecordKind::Alter),
    ("replace", RecordKind::Replace),
    ("PUT", RecordKind::Put),
    ("DELETE", RecordKind::Delete),
    ("CREATE", RecordKind::Create),
    ("DESTROY", RecordKind::Destroy),
    ("ALTER", RecordKind::Alter),
    ("REPLACE", RecordKind::Replace),
];

impl Filter {
    pub(crate) fn read(call: &Call) -> Result<Self, Problem> {
        Ok(Self {
            key: call.query.bytes("key").map(<[u8]>::to_vec),
            prefix: call.query.bytes("prefix").map(<[u8]>::to_vec),
            kind: call.query.word("type", KINDS)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.key.is_none() && self.prefix.is_none() && self.kind.is_none()
    }

    pub(crate) fn matches(&self, record: &Record<'_>) -> bool {
        self.key.as_ref().is_none_or(|key| key == record.key)
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| record.key.starts_with(prefix))
            && self.kind.is_none_or(|kind| kind == record.kind)
    }
}
