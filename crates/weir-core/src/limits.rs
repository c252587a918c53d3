//! Limits on sizes and counts of the model. Each constant is a maximum with its unit, unless its
//! comment describes something else.
//!
//! These numbers can change an outcome, so they belong to the machine version: a change of one
//! requires a new [`MACHINE_VERSION`].

/// Version of the rules and limits in this crate, stored in snapshots.
pub const MACHINE_VERSION: u16 = 1;

/// Bytes of a topic name.
pub const TOPIC_NAME_BYTES_MAX: usize = 255;
/// Bytes of a key. A record without key has zero.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Bytes of a key unless the store's options allow more.
pub const KEY_BYTES_DEFAULT: usize = 1024;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of a value unless the store's options allow more.
pub const VALUE_BYTES_DEFAULT: usize = 1 << 20;
/// Bytes of a record's metadata.
pub const META_BYTES_MAX: usize = 4096;
/// Bytes of the encoded options of a topic: far more than all known options need.
pub const OPTION_BYTES_MAX: usize = 4096;
/// Bytes of an authenticated principal's name.
pub const PRINCIPAL_BYTES_MAX: usize = 255;
/// Bytes of a program module.
pub const CODE_BYTES_MAX: usize = 8 << 20;
/// Bytes of all modules of a store, each module counted once.
pub const CODES_BYTES_MAX: u64 = 1 << 30;
/// The current meter: it counts the fuel of new programs and measures their stack. The number must
/// change with every change of fuel or stack: another engine or engine version, another price of a
/// host call, another rule for modules. docs/formats/batch.md lists the meters.
pub const METER: u32 = 1;
/// Bytes of the arguments of a program.
pub const ARGUMENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of the text of a program's rejection.
pub const REJECT_TEXT_BYTES_MAX: usize = 256;
/// Bytes of a text that explains a verdict.
pub const DETAIL_TEXT_BYTES_MAX: usize = 1024;
/// Default fuel of one call of a program: about 0.5 ms on a fast machine (docs/decisions/0053).
pub const FUEL_DEFAULT: u64 = 2_000_000;
/// Maximum fuel of one call in topic options, unless the operator of the store allows more: about
/// 2.5 ms. Other topics wait while a call runs.
pub const FUEL_OPTION_MAX_DEFAULT: u64 = 10_000_000;
/// Fuel of a start, of an upgrade, and of all steps of a transaction together; the fuel of one call
/// if that is more.
pub const START_FUEL: u64 = 100_000_000;
/// Maximum fuel of one call in topic options that an operator can allow.
pub const FUEL_MAX: u64 = 1_000_000_000;
/// Default maximum of the records that a program may write in one intention.
pub const EMITS_DEFAULT: u64 = 1024;
/// Records of one intention: the maximum in topic options.
pub const EMITS_MAX: u64 = 65_536;
/// Default maximum of the bytes of keys and values of the records of one intention, in addition to
/// one copy of the input.
pub const EMIT_BYTES_DEFAULT: u64 = 1 << 20;
/// Bytes of the records of one intention: the maximum in topic options.
pub const EMIT_BYTES_MAX: u64 = 16 << 20;
/// Default maximum of the entries of a program's state.
pub const STATE_ENTRIES_DEFAULT: u64 = 1_000_000;
/// Entries of a program's state: the maximum in topic options.
pub const STATE_ENTRIES_MAX: u64 = 16_000_000;
/// Default maximum of the bytes of a program's state. If the program reads the topic's keys, a
/// second limit of this size applies to the keys.
pub const STATE_BYTES_DEFAULT: u64 = 64 << 20;
/// Bytes of a program's state: the maximum in topic options.
pub const STATE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of old keys and values that one intention may replace in the state of a program. The limit
/// is twice the limit of the state if that is more.
pub const UNDO_BYTES_MIN: u64 = 64 << 20;
/// Bytes that each change of an entry adds to the sum that [`UNDO_BYTES_MIN`] limits, besides those
/// of its key and its old value.
pub const UNDO_ENTRY_BYTES: u64 = 40;
/// Default maximum of the bytes of a program's memory.
pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 20;
/// Bytes of a program's memory: the maximum in topic options.
pub const MEMORY_BYTES_MAX: u64 = 16 << 20;
/// Bytes of the state of all programs of a store, counted as described at [`STATE_ENTRY_BYTES`].
pub const STATES_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the state of the programs of one principal's topics. The principal is that of the
/// CREATE. A topic without principal counts only for the store.
pub const PRINCIPAL_STATES_BYTES_MAX: u64 = 256 << 20;
/// Bytes that each entry of a state adds to the sums that [`STATES_BYTES_MAX`] and
/// [`PRINCIPAL_STATES_BYTES_MAX`] limit, besides those of its key and value. In mode `memory`, the
/// maximum size of the module's memory counts, from the CREATE on.
pub const STATE_ENTRY_BYTES: u64 = 64;
/// Mutable globals of a module.
pub const GLOBALS_MAX: usize = 1000;
/// Conditions of one intention.
pub const EXPECTS_MAX: usize = 64;
/// Operations of one transaction.
pub const TXN_OPS_MAX: usize = 10_000;
/// Intentions of one batch.
pub const BATCH_ITEMS_MAX: usize = 65_536;
/// Intentions of one call.
pub const CALL_ITEMS_MAX: usize = 10_000;
/// Bytes of the items of one batch. A single intention may exceed it.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of the items of one batch, also if it contains a single intention.
pub const BATCH_BYTES_HARD_MAX: usize = 80 << 20;
/// Bytes of one encoded intention: the largest transaction, or the largest value with its key,
/// metadata and head.
pub const ITEM_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// Number of outcomes that a session stores, those of its newest nonces.
pub const SESSION_WINDOW: u64 = 10_000;
/// Bytes of texts in the outcomes that a session stores. Beyond this limit, the oldest outcomes
/// lose their text and keep their code.
pub const SESSION_TEXT_BYTES_MAX: u64 = 64 << 10;
/// Number of sessions in the table. If the table is full, a new session evicts the one that was
/// used longest ago, provided that it is older than [`SESSION_TTL_MS`]. Otherwise the new session
/// is refused.
pub const SESSIONS_MAX: usize = 4096;
/// Milliseconds of log time for which an idle session is always kept.
pub const SESSION_TTL_MS: u64 = 24 * 60 * 60 * 1000;
/// Number of stored ids that are used for one intention only ([`ONCE`](crate::intention::ONCE)).
/// One id takes less than 500 bytes of memory, its text included.
pub const ONCE_IDS_MAX: usize = 1 << 18;
/// Bytes of the text of a verdict that are stored with an id that is used once. The text of a
/// replayed outcome is cut to this length, at the end of a character.
pub const ONCE_TEXT_BYTES_MAX: usize = 128;
/// Milliseconds of log time for which an id that is used once is always kept. If the table is full
/// and the oldest id is younger, a new id is refused.
pub const ONCE_MS_MIN: u64 = 15 * 60 * 1000;
/// Milliseconds of log time after which an id that is used once expires.
pub const ONCE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Bytes of a group's name.
pub const GROUP_NAME_BYTES_MAX: usize = 64;
/// Bytes of the name of a group's member.
pub const GROUP_MEMBER_BYTES_MAX: usize = 64;
/// Groups of one topic.
pub const GROUPS_MAX: usize = 1024;
/// Default lease of a group, in milliseconds.
pub const GROUP_LEASE_MS_DEFAULT: u64 = 30_000;
/// Milliseconds of a lease, and of the delay after a negative acknowledgement.
pub const GROUP_LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Number of deliveries of a record: the maximum in the settings of a group.
pub const GROUP_ATTEMPTS_MAX: u32 = 1_000_000;
/// Default maximum of the entries of a group (records that members have, or that wait for another
/// delivery). Also the default maximum of the acknowledged records above the first entry. Delivery
/// of new records pauses at this maximum.
pub const GROUP_PENDING_DEFAULT: u32 = 100_000;
/// The largest `pending_max` in the settings of a group.
pub const GROUP_PENDING_MAX: u32 = 1_000_000;
/// Entries of all groups together: records that members have, or that wait for another delivery.
pub const GROUPS_PENDING_MAX: usize = 4_000_000;
/// Offsets in one step of a group.
pub const GROUP_LIST_MAX: usize = 10_000;
/// Dead letters of a group that are not written yet. At this maximum, a record that reached its
/// maximum of deliveries is delivered again.
pub const GROUP_DEAD_LETTERS_MAX: usize = 10_000;
/// Groups that a topic's retention may wait for.
pub const HOLD_GROUPS_MAX: usize = 16;
/// Topic names that a store can ever have.
pub const TOPICS_MAX: usize = 1 << 20;

const _: () =
    assert!(FUEL_DEFAULT <= FUEL_OPTION_MAX_DEFAULT && FUEL_OPTION_MAX_DEFAULT <= FUEL_MAX);
const _: () = assert!(BATCH_BYTES_MAX + ITEM_BYTES_MAX <= BATCH_BYTES_HARD_MAX);
const _: () = assert!(CALL_ITEMS_MAX <= BATCH_ITEMS_MAX);
const _: () = assert!(KEY_BYTES_DEFAULT <= KEY_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_DEFAULT <= VALUE_BYTES_MAX);
