//! Converts errors to refusals.

use weir_core::ErrorCode;
use weir_core::intention::IntentionError;
use weir_protocol::{Encoder, Message, Packet, RefusalMessage, TEXT_BYTES_MAX};
use weir_store::StoreError;

use crate::cluster::ClientAddresses;
use crate::limits::budget::BudgetExhausted;

/// First pause before a client looks for a leader again: about the time of a transfer of
/// leadership. A client doubles it, up to 100 ms.
const NO_LEADER_RETRY_MS: u64 = 10;

/// A refusal with its own text.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) message: Box<RefusalMessage<'static>>,
    pub(super) text: String,
    /// Address of another server to use instead; empty: none.
    pub(super) address: String,
}

impl Refused {
    /// Creates a refusal with a text that is more specific than the sentence of its code.
    pub(super) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            message: Box::new(RefusalMessage::new(code)),
            text: text.into(),
            address: String::new(),
        }
    }

    /// Creates a refusal with the sentence of its code.
    pub(super) fn plain(code: ErrorCode) -> Self {
        Self::new(code, code.sentence())
    }

    /// Creates the refusal of a request for which other requests leave no capacity.
    pub(super) fn exhausted(exhausted: BudgetExhausted) -> Self {
        let mut refused = Self::new(ErrorCode::Busy, exhausted.text);
        refused.message.limit = Some(exhausted.limit as u64);
        refused
    }

    /// Makes the refusal close the connection.
    pub(super) fn fatal(mut self) -> Self {
        self.message.fatal = true;
        self
    }

    /// Appends the refusal as a packet.
    pub(super) fn encode(&self, tag: &[u8], encoder: &mut Encoder, out: &mut Vec<u8>) {
        let mut message = *self.message;
        let end = self.text.floor_char_boundary(TEXT_BYTES_MAX);
        message.address = self.address.as_bytes();
        message.text = self.text.get(..end).unwrap_or_default().as_bytes();
        encoder.encode(&Packet::tagged(tag, Message::Refusal(message)), out);
    }
}

/// Converts an error of the store for the client. Paths and texts of the system are omitted. The
/// exception is the cause that stopped all writes, because operators look for it through a
/// client.
pub(super) fn of_store(error: &StoreError) -> Refused {
    match error {
        StoreError::Refused { index, error } => {
            let mut refused = Refused::new(code_of(error), error.to_string());
            refused.message.item = Some(*index as u64);
            if let IntentionError::TooLarge { max, .. } | IntentionError::TooMany { max, .. } =
                error
            {
                refused.message.limit = Some(*max as u64);
            }
            refused
        }
        StoreError::TopicUnknown { .. } => Refused::new(ErrorCode::TopicUnknown, error.to_string()),
        StoreError::GroupUnknown { .. } => Refused::new(ErrorCode::GroupUnknown, error.to_string()),
        StoreError::RecordsGone { first, last } => {
            let mut refused = Refused::plain(ErrorCode::Gone);
            refused.message.first = Some(*first);
            refused.message.last = Some(*last);
            refused
        }
        StoreError::LimitExceeded { limit, .. } => {
            let mut refused = Refused::new(ErrorCode::TooLarge, error.to_string());
            refused.message.limit = Some(*limit);
            refused
        }
        StoreError::DiskFull { .. } => Refused::plain(ErrorCode::ReadOnly),
        StoreError::Poisoned { .. }
        | StoreError::TopicsUnwritable { .. }
        | StoreError::InDoubt { .. }
        | StoreError::PartlyLogged { .. } => Refused::new(error.code(), error.to_string()),
        StoreError::Closed => Refused::plain(ErrorCode::Draining),
        StoreError::ProgramsOff | StoreError::ProgramUnable { .. } => {
            Refused::plain(ErrorCode::EngineMissing)
        }
        StoreError::Elsewhere { client, .. } => redirect(client),
        StoreError::Remote { code, text } => {
            let mut refused = Refused::new(*code, text.clone());
            refused.message.retry_ms = (*code == ErrorCode::NoLeader).then_some(NO_LEADER_RETRY_MS);
            refused
        }
        StoreError::Damage { .. } => Refused::plain(ErrorCode::Damaged),
        StoreError::Io { .. } => Refused::plain(ErrorCode::Io),
        _ => Refused::plain(ErrorCode::Internal),
    }
}

/// Redirects a client to the leader with these addresses.
fn redirect(client: &str) -> Refused {
    let Some(native) = ClientAddresses::read(client).native else {
        let text = "another node is the leader, and it has no native port";
        return Refused::new(ErrorCode::Unsupported, text);
    };
    let mut refused = Refused::plain(ErrorCode::Redirect);
    native.clone_into(&mut refused.address);
    refused
}

/// The code for an intention that is refused before it is logged.
pub(super) fn code_of(error: &IntentionError) -> ErrorCode {
    match error {
        IntentionError::Name(_) => ErrorCode::BadName,
        IntentionError::TooLarge { .. } | IntentionError::TooMany { .. } => ErrorCode::TooLarge,
        IntentionError::Option(_) => ErrorCode::BadOption,
        _ => ErrorCode::BadRequest,
    }
}
