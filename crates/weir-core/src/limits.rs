//! Every size and count that the model bounds, by name, with its unit.
//!
//! These numbers can change an outcome, so they belong to the machine version:
//! a change of one is a change of [`MACHINE_VERSION`].

/// Version of the rules and limits in this crate, kept in snapshots.
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
/// Bytes of the encoded options of a topic: far more than all that are known.
pub const OPTION_BYTES_MAX: usize = 4096;
/// Bytes of an authenticated principal's name.
pub const PRINCIPAL_BYTES_MAX: usize = 255;
/// Bytes of a program module.
pub const CODE_BYTES_MAX: usize = 8 << 20;
/// Bytes of all modules that a store keeps, each counted once.
pub const CODES_BYTES_MAX: u64 = 1 << 30;
/// By what the fuel of new programs is counted, and their stack measured. A
/// new number for whatever changes either: another engine or version of it,
/// another price of a host call, another rule about modules
/// (docs/formats/batch.md has the list).
pub const METER: u32 = 1;
/// Bytes of the arguments of a program.
pub const ARGUMENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of the text that a program gives with a reject.
pub const REJECT_TEXT_BYTES_MAX: usize = 256;
/// Bytes of a text that explains a verdict.
pub const DETAIL_TEXT_BYTES_MAX: usize = 1024;
/// Fuel of one call of a program, unless the topic's options say otherwise:
/// some 0.5 ms of a fast machine (docs/decisions/0053).
pub const FUEL_DEFAULT: u64 = 2_000_000;
/// Fuel of one call that options may ask for, unless the operator of the store
/// allows more: some 2.5 ms. Other topics wait while a call runs.
pub const FUEL_ASKED_DEFAULT: u64 = 10_000_000;
/// Fuel of a start, of an upgrade, and of all steps of a transaction together;
/// that of one call if it is more.
pub const START_FUEL: u64 = 100_000_000;
/// Fuel that options may allow for one call, whatever the operator allows.
pub const FUEL_MAX: u64 = 1_000_000_000;
/// Records of one intention by a program, unless the options say otherwise.
pub const EMITS_DEFAULT: u64 = 1024;
/// Records of one intention that options may allow.
pub const EMITS_MAX: u64 = 65_536;
/// Bytes of keys and values of these records, beyond one copy of the input.
pub const EMIT_BYTES_DEFAULT: u64 = 1 << 20;
/// Bytes of records that options may allow.
pub const EMIT_BYTES_MAX: u64 = 16 << 20;
/// Entries of a program's state, unless the options say otherwise.
pub const STATE_ENTRIES_DEFAULT: u64 = 1_000_000;
/// Entries of state that options may allow.
pub const STATE_ENTRIES_MAX: u64 = 16_000_000;
/// Bytes of a program's state, unless the options say otherwise. The topic's
/// own keys have the same limit again when the program reads them.
pub const STATE_BYTES_DEFAULT: u64 = 64 << 20;
/// Bytes of state that options may allow.
pub const STATE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of old keys and values that an intention may replace in the state of
/// a program; more where the state itself may be large: twice its limit.
pub const UNDO_BYTES_MIN: u64 = 64 << 20;
/// Bytes that each change of an entry counts for there, beside those of its
/// key and its old value.
pub const UNDO_ENTRY_BYTES: u64 = 40;
/// Bytes of a program's memory, unless the options say otherwise.
pub const MEMORY_BYTES_DEFAULT: u64 = 1 << 20;
/// Bytes of memory that options may allow.
pub const MEMORY_BYTES_MAX: u64 = 16 << 20;
/// Bytes that the state of all programs of a store may take, as [`STATE_ENTRY_BYTES`]
/// says.
pub const STATES_BYTES_MAX: u64 = 1 << 30;
/// Bytes that the state of the programs of one principal's topics may take. The
/// principal is that of the CREATE; a topic without one counts for the store alone.
pub const PRINCIPAL_STATES_BYTES_MAX: u64 = 256 << 20;
/// Bytes that each entry counts for there, beside those of its key and value. In
/// mode `memory` all that the module may grow to counts, from its CREATE on.
pub const STATE_ENTRY_BYTES: u64 = 64;
/// Mutable globals of a module.
pub const GLOBALS_MAX: usize = 1000;
/// Conditions of one intention.
pub const EXPECTS_MAX: usize = 64;
/// Operations of one transaction.
pub const TXN_OPS_MAX: usize = 10_000;
/// Intentions of one batch.
pub const BATCH_ITEMS_MAX: usize = 65_536;
/// Intentions that one call may hand over together.
pub const CALL_ITEMS_MAX: usize = 10_000;
/// Bytes of the items of one batch, one over-long intention apart.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of the items of one batch in any case.
pub const BATCH_BYTES_HARD_MAX: usize = 80 << 20;
/// Bytes of one encoded intention: the largest transaction or value with its
/// key, metadata and head.
pub const ITEM_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// Outcomes that a session keeps for its latest nonces.
pub const SESSION_WINDOW: u64 = 10_000;
/// Bytes of texts in these outcomes; of the oldest ones the code alone is kept.
pub const SESSION_TEXT_BYTES_MAX: u64 = 64 << 10;
/// Sessions that the table keeps. When it is full, the one that was used
/// longest ago makes room if it is older than [`SESSION_TTL_MS`]; else the new
/// one is refused.
pub const SESSIONS_MAX: usize = 4096;
/// Milliseconds of log time for which an idle session is kept in any case.
pub const SESSION_TTL_MS: u64 = 24 * 60 * 60 * 1000;
/// Ids that are good for one intention ([`ONCE`](crate::intention::ONCE)) and
/// are kept. One takes less than 500 bytes of memory, its text included.
pub const ONCE_IDS_MAX: usize = 1 << 18;
/// Bytes that are kept with such an id of the text of its verdict; what a repeat
/// is told is cut there, at the end of a character.
pub const ONCE_TEXT_BYTES_MAX: usize = 128;
/// Milliseconds of log time for which such an id is kept in any case; when
/// there is no room, and the oldest one is younger, a new one is refused.
pub const ONCE_MS_MIN: u64 = 15 * 60 * 1000;
/// Milliseconds of log time for which it is kept while there is room.
pub const ONCE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Bytes of a group's name.
pub const GROUP_NAME_BYTES_MAX: usize = 64;
/// Bytes of the name of a group's member.
pub const GROUP_MEMBER_BYTES_MAX: usize = 64;
/// Groups of one topic.
pub const GROUPS_MAX: usize = 1024;
/// Milliseconds of a lease unless the group says otherwise.
pub const GROUP_LEASE_MS_DEFAULT: u64 = 30_000;
/// Milliseconds of a lease, and of the pause after a record that was given
/// back.
pub const GROUP_LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Deliveries of a record that a group may ask for.
pub const GROUP_ATTEMPTS_MAX: u32 = 1_000_000;
/// Records of a group that are with members or wait to be delivered again,
/// and records that are done above the first of these, unless the group says
/// otherwise. Delivery of new records pauses there.
pub const GROUP_PENDING_DEFAULT: u32 = 100_000;
/// What a group may ask for instead.
pub const GROUP_PENDING_MAX: u32 = 1_000_000;
/// Records of all groups together that are with members or wait to be
/// delivered again.
pub const GROUPS_PENDING_MAX: usize = 4_000_000;
/// Offsets that one step of a group may name.
pub const GROUP_LIST_MAX: usize = 10_000;
/// Dead letters of a group that are not written yet. While it has so many, a
/// record that was delivered too often is delivered again.
pub const GROUP_LETTERS_MAX: usize = 10_000;
/// Groups that a topic's retention may wait for.
pub const HOLD_GROUPS_MAX: usize = 16;
/// Topic names that a store ever knows.
pub const TOPICS_MAX: usize = 1 << 20;

const _: () = assert!(FUEL_DEFAULT <= FUEL_ASKED_DEFAULT && FUEL_ASKED_DEFAULT <= FUEL_MAX);
const _: () = assert!(BATCH_BYTES_MAX + ITEM_BYTES_MAX <= BATCH_BYTES_HARD_MAX);
const _: () = assert!(CALL_ITEMS_MAX <= BATCH_ITEMS_MAX);
const _: () = assert!(KEY_BYTES_DEFAULT <= KEY_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_DEFAULT <= VALUE_BYTES_MAX);
