/** An event store to open in your process, and ordered queries over raw JSON pages. */

/** Bytes, or text as UTF-8, without half of a surrogate pair. Read during the call and copied. */
export type Data = string | Uint8Array | ArrayBuffer | ArrayBufferView
/** A value to be written: bytes or text unchanged, an array or a plain object as JSON. */
export type Value = Data | readonly unknown[] | { readonly [name: string]: unknown }
/** An integer of the store. The package returns `bigint`, and accepts both. */
export type Int = number | bigint
/** A `bigint` keeps all its digits, also above 2^53. */
export type JsonScalar = null | boolean | number | bigint | string

/** The root of all errors of this package. */
export class WeirError extends Error {
  /** The name of the error, such as "CLOSED"; the same in every language. */
  readonly code: string
  /** The number of the error, the same in every language. */
  readonly number: number
  /** Whether a retry can succeed: at once, after the advice was followed, or never. */
  readonly retry: 'yes' | 'after' | 'no'
  /** A recommended action, one sentence; may be empty. */
  readonly advice: string
}
/** A verdict other than VALID where VALID was required, as by `Verdict.check`. */
export class VerdictError extends WeirError {}
/** The store did not accept the intention: nothing was logged. */
export class RefusalError extends WeirError {
  /** For a nonce of a session: the next nonce that would be executed. */
  readonly expected?: bigint
}
/** The store could not be opened, read or written, or is closed. */
export class StoreError extends WeirError {}
/** An error that this side of a connection detected. */
export class ClientError extends WeirError {}
/** An error of a query, or of a page that was enqueued. */
export class QueryError extends WeirError {
  /** Number of the source, if one was involved, and its name. */
  readonly source?: number
  readonly sourceName?: string
  /** The number of the page within its source, and of the item within its source, from 0. */
  readonly page?: number
  readonly item?: number
  /** The first wrong byte: of the page, or of the text of the query. */
  readonly offset?: number
  /** The field of the query that has the wrong text. */
  readonly field?: string
}
/** A bug in Weir. */
export class InternalError extends WeirError {}

/** More about the reason of a verdict. */
export interface Detail {
  /** The offset that a condition found. */
  readonly actual?: bigint
  /** The limit that was exceeded. */
  readonly limit?: bigint
  /** For a transaction: the step that failed, and why. */
  readonly index?: number
  readonly reason?: string
  /** For a rejection by a program: its code. */
  readonly code?: number
  /** The text of the program, or another explanation. */
  readonly text?: string
  /** The name of the trap of a program. */
  readonly trap?: string
}

/** The final result of one intention. A rejection is a value as well. */
export class Verdict {
  private constructor()
  readonly effect: 'VALID' | 'INVALID' | 'ERROR'
  readonly valid: boolean
  /** Why the verdict is not VALID: the name of an error. */
  readonly reason?: string
  /** The number of the reason. */
  readonly number?: number
  readonly detail?: Detail
  /** Position in the global order. */
  readonly intention: bigint
  /** Offset of the first record of the intention. */
  readonly offset?: bigint
  /** Number of records of the intention. */
  readonly records: number
  /** Whether the store returned the stored verdict of an earlier request with this nonce. */
  readonly replayed: boolean
  /** Fuel that the program of the topic used; 0 without a program. */
  readonly fuel: bigint
  /** Returns this verdict if it is VALID; otherwise throws `VerdictError`. */
  check(): this
}
/** The verdict of a put; if it is VALID, it has an offset. */
export interface PutVerdict extends Verdict {
  check(): this & { readonly offset: bigint }
}

/** A condition; if one does not hold, the verdict is INVALID with CONFLICT. */
export interface Expect {
  readonly kind: string
  readonly key?: Data
  readonly number?: Int
}
export const expect: {
  /** The value of the key was written at this offset. Default: the key of the intention. */
  keyOffset(offset: Int, key?: Data): Expect
  /** The key has no value. */
  keyAbsent(key?: Data): Expect
  /** The key has a value. */
  keyPresent(key?: Data): Expect
  /** The last record of the topic has this offset. */
  topicOffset(offset: Int): Expect
  /** The topic does not exist, or its last record has this offset. */
  topicAbsentOr(offset: Int): Expect
  /** The topic exists and has no record after the one that created it. */
  topicEmpty(): Expect
  /** This intention created the topic. */
  incarnation(intention: Int): Expect
}

export interface PutOptions {
  /** Conditions that must all hold. */
  expect?: Expect[]
  /** Metadata of at most 4 KiB, which the store retains and does not interpret. */
  meta?: Data
}
export interface Waiting {
  /** Ends the wait of the call. Does not undo the operation. */
  signal?: AbortSignal
}
/** Options of a topic. An absent number is not set: the limit of the store applies, or no limit. */
export interface TopicOptions {
  /** `latest` keeps the newest record of each key. Default: `off`. */
  compaction?: 'off' | 'latest'
  /** How long a compaction keeps the record of a deletion, in milliseconds. */
  tombstoneTtlMs?: Int
  /** How old a record is before a compaction may remove it, in milliseconds. */
  compactionLagMs?: Int
  /** Largest key and largest value in bytes. */
  keyBytesMax?: Int
  valueBytesMax?: Int
  /** Largest number of keys with a value. */
  keysMax?: Int
  /** Removes records that are older, in milliseconds. */
  retentionAgeMs?: Int
  /** Removes the oldest records while the topic is larger, in bytes. */
  retentionBytes?: Int
  /** Removes the oldest records while the topic has more of them. */
  retentionRecords?: Int
  /** Names of groups: retention keeps the records that these groups have not acknowledged. */
  holdForGroups?: string[]
  /** Limits of one call of the program: its fuel, memory, and emitted records. */
  fuelMax?: Int
  memoryBytesMax?: Int
  emitsMax?: Int
  emitBytesMax?: Int
  /** Limits of the state of the program. */
  stateEntriesMax?: Int
  stateBytesMax?: Int
}
export interface CreateOptions extends TopicOptions {
  /** A WebAssembly module that validates each write, and arguments for it. */
  program?: Data
  args?: Data
}

export interface PutOp extends PutOptions { readonly kind: 'put'; key: Data; value: Value }
export interface DeleteOp extends PutOptions { readonly kind: 'delete'; key: Data }
export type Step = PutOp | DeleteOp
export interface TransactionOp { readonly kind: 'transaction'; steps: Step[]; expect?: Expect[] }
export interface CreateOp { readonly kind: 'create'; options: CreateOptions }
export interface AlterOp { readonly kind: 'alter'; options: TopicOptions }
export interface DestroyOp { readonly kind: 'destroy' }
/** The kinds of intentions. */
export type Op = Step | TransactionOp | CreateOp | AlterOp | DestroyOp

export function put(key: Data, value: Value, options?: PutOptions): PutOp
export function del(key: Data, options?: PutOptions): DeleteOp
/** Executes all steps or none. The conditions apply to the whole transaction and name their keys. */
export function transaction(steps: Step[], options?: { expect?: Expect[] }): TransactionOp
export function create(options?: CreateOptions): CreateOp
export function alter(options?: TopicOptions): AlterOp
export function destroy(): DestroyOp

/** A record. Its buffers are views of its page. */
export class Record {
  private constructor()
  /** Position in the topic, from 1. */
  readonly offset: bigint
  /** Position of the intention in the global order. */
  readonly intention: bigint
  /** When the intention was proposed, in milliseconds since 1970-01-01 UTC. */
  readonly timeMs: number
  /** Number of the intention in its session; 0 without a session. */
  readonly nonce: bigint
  readonly kind: 'PUT' | 'DELETE' | 'CREATE' | 'DESTROY' | 'ALTER' | 'REPLACE'
  /** Whether the record is part of a transaction. */
  readonly transaction: boolean
  /** Whether it is the last record of its intention. */
  readonly final: boolean
  /** From `Topic.latest`: whether the record was written before the reading began. */
  readonly replay: boolean
  /** The key; empty if there is none. */
  readonly key: Buffer
  /** The value; empty if the kind has none. */
  readonly value: Buffer
  /** Metadata, which the store does not interpret. */
  readonly meta: Buffer
  /** The value as text. */
  text(): string
  /** The decoded value. As with `JSON.parse`, an integer above 2^53 is rounded; `text` has all digits. */
  json(): unknown
  /** The scalar at a singular JSONPath, decoded as by `json`; for an array or object, its text. */
  get(path: string, missing?: unknown): unknown
  /** A copy of the value. */
  toBuffer(): Buffer
  /** A summary for people: offset, kind, key and the beginning of the value. */
  toString(): string
}

/** Adjacent records, in one buffer. */
export class RecordPage implements Iterable<Record> {
  private constructor()
  /** Number of records. */
  readonly length: number
  /** Offset of the first record. */
  readonly first?: bigint
  /** Offset of the last record, after which a reader resumes. */
  readonly last?: bigint
  readonly released: boolean
  /** A record by its index; a negative index counts from the end. */
  at(index: number): Record | undefined
  [Symbol.iterator](): IterableIterator<Record>
  /** Releases the memory at once. Existing views become empty, and reading the bytes of a record throws. */
  release(): void
}

/** One result: the bytes of a JSON value, a view of its page. */
export class Item {
  private constructor()
  /** Number of the source; undefined for an item that the engine created. */
  readonly source?: number
  /** In a query over topics: the topic. */
  readonly topic?: string
  /** Index of the item among all items of its page, from 0. */
  readonly index: number
  /** Number of the page of the item within its source, from 0. */
  readonly pageNumber: number
  /** Whether the engine created the item: a group, or an aggregate. */
  readonly constructed: boolean
  /** The JSON text, as a view of the page. */
  readonly bytes: Buffer
  /** Length in bytes. */
  readonly length: number
  /** The JSON text. */
  text(): string
  /** The decoded value. As with `JSON.parse`, an integer above 2^53 is rounded; `text` has all digits. */
  json(): unknown
  /** The scalar at a singular JSONPath, decoded as by `json`; an array or object is returned as an item. */
  get(path: string, missing?: unknown): unknown
  /** A copy of the bytes. */
  toBuffer(): Buffer
}

/** Results, in order, in one buffer. */
export class Page implements Iterable<Item> {
  private constructor()
  /** Number of items. */
  readonly length: number
  /** Number of bad items that the whole query has skipped so far. */
  readonly skipped: number
  /** All items, one after the other. */
  readonly bytes: Buffer
  /** Start and length of each item in `bytes`, for callers that do not want an object for each item. */
  readonly spans: Uint32Array
  readonly released: boolean
  /** An item by its index; a negative index counts from the end. */
  at(index: number): Item | undefined
  /**
   * The values at up to 64 singular JSONPaths in each item, with one walk over each item. Returns a row for each item,
   * with a view for each path in the order of the paths. A view is undefined if the item has no value there. A row is
   * undefined throughout if the scan finds that its item is not JSON.
   */
  values(...paths: string[]): (Buffer | undefined)[][]
  [Symbol.iterator](): IterableIterator<Item>
  /** Releases the memory at once. Existing views become empty, and reading an item throws. */
  release(): void
}

/** A position in a topic; at most one field. */
export interface Position {
  /**
   * A position in the syntax of the command `weir`: `start`, `end`, an offset (the first record), `-N` (the last N
   * records), an age such as `10m`, a date or a time. Any other text fails with `BAD_OPTION`.
   */
  position?: string
  /** After this offset. */
  after?: Int
  /** This number of records before the end. */
  last?: Int
  /** At the first record with this timestamp or a later one, in milliseconds since 1970. */
  timeMs?: Int
  start?: boolean
  end?: boolean
}
export interface From extends Position, Waiting {}
export interface FollowOptions extends From {
  /** Ends after this time without a new record, in milliseconds. Default: never. */
  timeoutMs?: number
}
export interface TopicInfo {
  readonly name: string
  /** Whether the topic exists; otherwise it was destroyed. */
  readonly live: boolean
  /** The intention that created the topic, if it exists. */
  readonly incarnation?: bigint
  /** Offset of the oldest retained record; 0 if there is none. */
  readonly first: bigint
  /** Offset of the newest record. */
  readonly last: bigint
  /** Number of keys with a value. */
  readonly keys: bigint
  /** Size of the stored records in bytes. */
  readonly bytes: bigint
}
export type GroupMode = 'shared' | 'keyed' | 'exclusive'
/** The position is the start of a new group; by default the first record. */
export interface GroupOptions extends Position {
  /** How long a member may be silent before its claims end, in milliseconds. Default: 30,000. */
  leaseMs?: number
  /** Number of deliveries after which a record is moved to `deadLetters`; 0: never. */
  attempts?: number
  /** How many records all members together may have claimed. Default: 100,000. */
  pending?: number
  /** The topic for dead letters; required if and only if `attempts` is set. */
  deadLetters?: string
  /** Name of the member. A member that rejoins under its name is the same member. */
  member?: string
  /** Fails if the group does not exist. */
  existing?: boolean
}
export interface GroupInfo {
  readonly topic: string
  readonly name: string
  readonly mode: GroupMode
  /** All records up to this offset are acknowledged. */
  readonly cursor: bigint
  /** No record after this offset was delivered. */
  readonly frontier: bigint
  /** Offset of the newest record of the topic. */
  readonly last: bigint
  /** Number of offsets that are not acknowledged. */
  readonly lag: bigint
  /** Number of records that members have claimed. */
  readonly leased: bigint
  /** Number of delivered records that are neither acknowledged nor claimed. */
  readonly waiting: bigint
  /** Number of deliveries beyond the first of a record. */
  readonly redeliveries: bigint
  /** Number of records that became dead letters. */
  readonly deadLettered: bigint
  /** Number of dead letters that are not written yet. */
  readonly unwrittenDeadLetters: bigint
  /** Length of a lease in milliseconds. */
  readonly leaseMs: bigint
  /** Number of deliveries after which a record becomes a dead letter; 0: never. */
  readonly attemptsMax: number
  /** Topic for dead letters; empty if there is none. */
  readonly deadLetters: string
}
/** Identifies a claimed record. */
export interface Claim { readonly claim: Int; readonly offset: Int }
/** A claimed record. */
export class Work implements Claim {
  private constructor()
  readonly record: Record
  readonly claim: bigint
  readonly offset: bigint
  /** How often the record was delivered, including this time; 1 in an exclusive group. */
  readonly attempts: number
}

/** A member of a group. It serves one call at a time; a concurrent call fails with HANDLE_BUSY. */
export class Group {
  private constructor()
  readonly name: string
  /** Claims up to `max` records (100, at least 1); waits up to `timeoutMs` (0) for the first one. */
  claim(max?: number, options?: Waiting & { timeoutMs?: number }): Promise<Work[]>
  /** Acknowledges records durably. Returns the offsets of those that another member has claimed by now. */
  ack(work: Claim[]): Promise<bigint[]>
  /** Acknowledges records of an exclusive group: written later, with other writes. */
  ackSoon(work: Claim[]): Promise<void>
  /** Rejects records: the group can deliver them again after `delayMs` (0). Returns as `ack`. */
  nack(work: Claim[], options?: { delayMs?: number; reason?: string }): Promise<bigint[]>
  /** Extends leases: each now ends in `leaseMs`. Returns as `ack`. */
  extend(work: Claim[], leaseMs: number): Promise<bigint[]>
  /** Moves the group to a position: all earlier records count as acknowledged, all later ones as not acknowledged. */
  reset(to?: Position): Promise<Verdict>
  /** Makes this member the owner of an exclusive group and replaces the present owner. */
  takeOver(): Promise<void>
  /** Gives up the ownership of an exclusive group. */
  leave(): Promise<void>
  info(): Promise<GroupInfo>
  /** Deletes the group and its position. */
  delete(): Promise<Verdict>
}

/** Intentions that were sent, by `send` of a store or a session. */
export class Pending {
  private constructor()
  /**
   * Resolves when every intention is queued for the log or has a verdict. A queued intention can still be
   * lost. A server reports this only to a client that connected with `received`.
   */
  readonly received: Promise<void>
  readonly verdicts: Promise<Verdict[]>
}

/** A writer whose intentions are executed exactly once. */
export class Session {
  private constructor()
  /** The number of the next intention. */
  nextNonce(): Promise<bigint>
  /**
   * Sets the next number back to one without an answer. For intentions that it has already executed, the store returns
   * the recorded verdicts; it executes the others.
   */
  resume(nonce: Int): Promise<void>
  /**
   * Sends intentions with the next numbers and waits for their verdicts. Like `Store.send`, blocks the event loop while
   * the queue has no room.
   */
  execute(intentions: [topic: string, op: Op][]): Promise<Verdict[]>
  /** As `Store.send`, with the next numbers. */
  send(intentions: [topic: string, op: Op][]): Pending
}

/** A handle of a topic. */
export class Topic {
  private constructor()
  readonly name: string
  /** Creates the topic. If it exists, the verdict is INVALID with TOPIC_EXISTS. */
  create(options?: CreateOptions): Promise<Verdict>
  /** Replaces the options of the topic. */
  alter(options?: TopicOptions): Promise<Verdict>
  /** Destroys the topic and its keys. If it is created again, its offsets continue after the old ones. */
  destroy(): Promise<Verdict>
  /** Replaces the program. With `expected`, only if the current program has this SHA-256. */
  replace(program: Data, args?: Data, options?: { expected?: Data }): Promise<Verdict>
  /** Creates the topic if it does not exist. Returns true if this call created it. */
  ensure(): Promise<boolean>
  /** The current state of the topic; undefined if it was never created. */
  info(): Promise<TopicInfo | undefined>
  /** Appends a record without a key. */
  append(value: Value, options?: PutOptions & Waiting): Promise<PutVerdict>
  /** Appends a record and sets its key. */
  put(key: Data, value: Value, options?: PutOptions & Waiting): Promise<PutVerdict>
  /** Deletes a key. The verdict is VALID even if the key has no value. */
  delete(key: Data, options?: PutOptions & Waiting): Promise<Verdict>
  /** Executes all steps, in order, or none. Conditions apply to the whole; each names its key. */
  transaction(steps: Step[], options?: { expect?: Expect[] } & Waiting): Promise<Verdict>
  /** Executes several intentions in one call, independently of each other. */
  batch(ops: Op[], options?: Waiting): Promise<Verdict[]>
  /** The record with the current value of a key; undefined if there is none. */
  get(key: Data): Promise<Record | undefined>
  /** The record at an offset; undefined if it does not exist. */
  at(offset: Int): Promise<Record | undefined>
  /** Keys with a value, in byte order, each with the offset of its record. Starts after the key `after`. */
  keys(
    prefix?: Data,
    options?: { after?: Data; limit?: number },
  ): AsyncGenerator<{ key: Buffer; offset: bigint }, void>
  /** Pages up to the newest record. A string or a number is the position. */
  pages(options?: From | string | Int): AsyncGenerator<RecordPage, void>
  /** Records up to the newest record, from a position as for `pages`. */
  records(options?: From | string | Int): AsyncGenerator<Record, void>
  /**
   * Pages of new records. By default, it starts after the newest record. The topic may be created later. To end a
   * generator that waits, abort its `signal`: its `return` waits for the next page.
   */
  followPages(options?: FollowOptions | string | Int): AsyncGenerator<RecordPage, void>
  /** The records of `followPages`. */
  follow(options?: FollowOptions | string | Int): AsyncGenerator<Record, void>
  /**
   * The current record of each key, in byte order and marked `replay`; then new records, until none arrives for
   * `timeoutMs` (0).
   */
  latest(options?: Waiting & { timeoutMs?: number }): AsyncGenerator<Record, void>
  /** Joins a group as a member. Creates the group if it does not exist. Without a mode, the group is shared. */
  group(name: string, options?: GroupOptions): Promise<Group>
  group(name: string, mode?: GroupMode, options?: GroupOptions): Promise<Group>
  /** The groups of the topic, by name. */
  groups(): Promise<GroupInfo[]>
}

export type Level = 'none' | 'structural' | 'strict'
/** Limits of the memory of a query. An absent number is the default. */
export interface Budgets {
  /** Bytes of all referenced pages, including those of results. */
  bufferBytesMax?: Int
  /** How many pages of each source are requested ahead of the current page. */
  pagesAhead?: Int
  /** Bytes of a sort: pages, and the data about each of their items. */
  sortBytesMax?: Int
  /** Number of stored groups, and of stored distinct values. */
  groupsMax?: Int
  distinctMax?: Int
  /** Number of sources, including finished ones. */
  sourcesMax?: Int
  /** Bytes of one page, and of one item. */
  pageBytesMax?: Int
  itemBytesMax?: Int
  /** Levels of nesting in a page. */
  depthMax?: Int
  /** The size in bytes that a `Need` suggests for a page. */
  pageBytesHint?: Int
}
/** The fields of a query; see docs/guide/query.md. */
export interface QueryOptions {
  /** A logical expression of RFC 9535, in which both @ and $ mean the item. Default: all items. */
  where?: string
  /** Up to eight keys, separated by commas: each a path or `meta.NAME`, then optionally `asc` or `desc`. */
  order?: string
  /**
   * A path, or aggregates separated by commas (`count`, `sum(PATH)`, `min`, `max`, `avg`), each optionally with
   * `as NAME`. Default: the item. With several paths, a result is the item, without items that have no value at any
   * of them; `Page.values` returns the values.
   */
  select?: string
  /** Up to eight paths, separated by commas, each optionally with `as NAME`. */
  group?: string
  /** Retains the first of equal selected values. */
  distinct?: boolean
  /** Number of results to skip first. Default: 0. */
  offset?: Int
  /** Largest number of results. Default: no limit. */
  limit?: Int
  /** An alias of `limit`; if both are set, the smaller one applies. */
  top?: Int
  /** The values of `param('NAME')` in `where`. */
  params?: { [name: string]: JsonScalar }
  /** The order of strings: by Unicode scalar values (default), or by UTF-16 code units. */
  strings?: 'scalar' | 'utf16'
  /** An array or object as order key: an error (default), or all arrays are equal, and all objects. */
  complex?: 'error' | 'rank'
  /** Items without an order key: they sort first (default), or they are skipped. */
  missing?: 'first' | 'drop'
  /** How much of each page is checked. Default: `structural`. */
  level?: Level
  /** Items that are not JSON, in shapes with separate items: an error (default), skipped, or without values. */
  onBadItem?: 'error' | 'skip' | 'undefined'
  /** The order of the results. Default: by source without `order`, otherwise `merge` or `sort`. */
  mode?: 'sequential' | 'arrival' | 'round_robin' | 'merge' | 'sort'
  budgets?: Budgets
  /** The token of an earlier run of the same query, which this query resumes. */
  token?: Uint8Array
}
/** Limits of one page of results: the number of items (256), and approximately their bytes (1 MiB). */
export interface Bounds { maxItems?: number; maxBytes?: number }
export interface TopicQueryOptions extends QueryOptions, Bounds, Waiting {
  /**
   * The first record of each topic; a string or a number is the position. Default: the first retained record. Not
   * with the view `latest`. A query with a token ignores it.
   */
  from?: Position | string | Int
  /** `log` (default): all records. `latest`: the current record of each key. */
  view?: 'log' | 'latest'
  /** The last intention whose records are included. Default: all records that exist at the start of the query. */
  asOf?: Int
  /** Continues with new records. Default: false. */
  follow?: boolean
  /** The kinds of records that are items. Default: only PUT. */
  kinds?: string[]
  /** If retention has removed the next record of a token, continues with the first retained one. Default: an error. */
  resetEarliest?: boolean
  /** At a server: whether the server executes its part of the query. Default: true. */
  pushDown?: boolean
  /** Limit of one wait for records that exist, in milliseconds. Default: 30,000. */
  patienceMs?: number
  /** A query with `follow` ends after this time without new records, in milliseconds. */
  timeoutMs?: number
}
/**
 * A running query over topics: an iterable of items. It serves one call at a time; a concurrent call fails with
 * HANDLE_BUSY. Its pages outlive it.
 */
export class TopicQuery implements AsyncIterable<Item> {
  private constructor()
  /**
   * The next results. Returns undefined at the end, or if a query with `follow` has no result for `timeoutMs` (default:
   * no limit).
   */
  next(options?: Bounds & Waiting & { timeoutMs?: number }): Promise<Page | undefined>
  /** The pages of results, with the bounds, the `signal` and the `timeoutMs` of the query. */
  pages(): AsyncGenerator<Page, void>
  [Symbol.asyncIterator](): AsyncIterator<Item>
  /** A token with which a later query resumes after the last page. Throws NO_TOKEN if there is none. */
  token(): Buffer
  /** A description of the query, for people. */
  explain(): string
  /** The last intention that the query reads; undefined with `follow`. */
  readonly asOf?: bigint
  /** Cancels the query: waiting calls reject with CANCELLED. */
  cancel(): void
}

export interface OpenOptions {
  /**
   * When a write is acknowledged: `group` (default, after a sync that several writes share), `each` (after a sync of
   * its own), `interval` (after the write; there is a sync every `intervalMs`), `memory` (after the write).
   */
  durability?: 'group' | 'each' | 'interval' | 'memory'
  /** For `interval`: the longest time until the sync of a write, in milliseconds. Default: 1,000. */
  intervalMs?: number
  /** Whether to create a store if the directory has none. Default: true. */
  create?: boolean
  /** Whether to connect to the server that has the directory open, if there is one. Default: false. */
  orConnect?: boolean
  /** A name that is reported to others who find the store locked. */
  program?: string
  /** Limits of a key and a value in bytes. Default: 1 KiB and 1 MiB. */
  keyBytesMax?: Int
  valueBytesMax?: Int
  /** Bytes of the log after the last snapshot at which a new one is created. Default: 1 GiB. */
  snapshotLogBytes?: Int
  /** Bytes of a log segment. Default: 64 MiB. */
  logSegmentBytes?: Int
}
export interface ConnectOptions {
  /** Proves the identity of the client. */
  token?: string
  /** For `weirs://`: PEM file with the authority of the server's certificate. Default: those of the system. */
  authority?: string
  /** For `weirs://`: PEM files with the client's certificate and its key. */
  identity?: [certificate: string, key: string]
  /** Name and version of the program, for people. */
  agent?: string
  /** Limit of the first connection, in milliseconds. Default: 5,000. */
  connectTimeoutMs?: number
  /** Limit of the wait for an answer, and of the time without any connection, in milliseconds. Default: 30,000. */
  patienceMs?: number
  /** The server reports when a write is queued for its log (`Pending.received`): one more packet a write. */
  received?: boolean
}

/** Which writes a read at a cluster sees. For a directory or a single server, all values are equivalent. */
export type Consistency =
  /** Those that the node has applied. */
  | 'local'
  /** Those that the leader has applied, while its lease is valid. */
  | 'leader'
  /** All that were acknowledged anywhere before the read began. */
  | 'linear'

/** An event store, in a directory or at a server. */
export class Store {
  private constructor()
  /** Opens the store in a directory, or creates one. A `URL` has the scheme `file:`. */
  static open(path: string | URL, options?: OpenOptions): Promise<Store>
  /** Connects to a server: `weir://HOST[:PORT]`, `weirs://HOST[:PORT]` (TLS) or `unix:PATH`. */
  static connect(url: string, options?: ConnectOptions): Promise<Store>
  /**
   * A second handle whose reads have this consistency, and also its readers, groups and queries. Without it, reads
   * of keys are `linear` and all other reads are `local`. Closing the handle leaves the store open.
   */
  withConsistency(consistency: Consistency): Store
  /** A handle of a topic, which need not exist. */
  topic(name: string): Topic
  /** All existing topics, or with `destroyed` also the destroyed ones, by name. */
  topics(options?: { destroyed?: boolean }): Promise<TopicInfo[]>
  /** Executes several intentions of any topics in one call, independently of each other. */
  batch(intentions: [topic: string, op: Op][], options?: Waiting): Promise<Verdict[]>
  /**
   * Sends intentions. Returns separate promises for their reception and their verdicts. Blocks the event loop while the
   * queue has no room: 16 MiB or 100,000 intentions without an answer at a server, 64 MiB in a directory. `batch` at a
   * server waits in a thread.
   */
  send(intentions: [topic: string, op: Op][]): Pending
  /**
   * A writer whose intentions are executed exactly once. `client` is 16 bytes that no other writer uses. At a server,
   * it waits for the connection of the session.
   */
  session(client: Data): Promise<Session>
  /** A query over topics: names, or patterns like "orders.*" and "orders.**". */
  query(topics: string | Iterable<string>, options?: TopicQueryOptions): Promise<TopicQuery>
  /** When the store acknowledges a write; see `OpenOptions`. */
  durability(): Promise<'group' | 'each' | 'interval' | 'memory'>
  /** Makes every acknowledged write durable, at any level. */
  sync(): Promise<void>
  readonly closed: boolean
  /** Completes queued writes and closes the store. A second call is a no-op. */
  close(): Promise<void>
  /** As `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
export function open(path: string | URL, options?: OpenOptions): Promise<Store>
export function connect(url: string, options?: ConnectOptions): Promise<Store>

export interface SourceOptions {
  /** The name in messages and tokens. Default: the number of the source. */
  name?: string | Uint8Array
  /** Rank among equal items. Default: after the sources that already exist. */
  ordinal?: Int
  /** "array", "lines", "values" (one after the other), "single", "framed", or "member:PATH" with the path of the array. */
  shape?: string
  /** How much of a page is checked. Default: the level of the query. */
  level?: Level
  /** The name of the first page, which the query returns as the `continuation` of a `Need`. */
  first?: string | Uint8Array
  /** Declares that items arrive in the order of the query, which is checked. Default: false. */
  sorted?: boolean
  /** Disables the check of `sorted`. Default: false. */
  trustOrder?: boolean
  /** Declares that a continuation always returns the same items. Default: true. */
  stable?: boolean
  /** A path that orders and identifies items with equal keys, for tokens of sources that are not stable. */
  tie?: string
  /** The values of `meta.NAME` of all items. */
  meta?: { [name: string]: JsonScalar }
  /** A lower bound of the order keys. Required for a source that is added to a running merge. */
  bound?: JsonScalar[]
  /** Declares that the items are partial aggregates. Default: false. */
  partial?: boolean
}
/** The positions of the items of a page of the shape "framed". */
export interface Frames {
  /** Offset and length of each item. */
  frames: [offset: number, length: number][]
  /** For each property, one value for each item: a number, a range of the page, or null. */
  meta?: { [name: string]: (Int | [offset: number, length: number] | null)[] }
}
/** A source of a query. */
export class Source {
  private constructor()
  readonly query: Query
  /** The number of the source, which items refer to. */
  readonly number: number
  readonly name?: string
  /** See `Query.enqueue`. */
  enqueue(page: Data, next?: string | Uint8Array | null, frames?: Frames): void
  /** See `Query.enqueueLarge`. */
  enqueueLarge(page: Data, next?: string | Uint8Array | null, frames?: Frames): Promise<void>
  /** See `Query.finish`. */
  finish(): void
  /** See `Query.watermark`. */
  watermark(...keys: JsonScalar[]): void
  /** See `Query.replace`. */
  replace(parts: SourceOptions[]): Source[]
}
/** A page that the query requests. */
export interface Need {
  readonly source: Source
  /** The name of the page; undefined for a first page without a name. */
  readonly continuation?: Buffer
  /** Whether the next result needs the page; otherwise it is a page ahead. */
  readonly required: boolean
  /** Suggested size in bytes. */
  readonly bytes: number
}
export type QueryStep =
  | { readonly kind: 'page'; readonly page: Page }
  | { readonly kind: 'need'; readonly needs: Need[] }
  | { readonly kind: 'done' }
/** A page and the name of the next page; nothing if `fetch` has handled the source itself. */
export type Fetched = readonly [page: string | Uint8Array, next?: string | Uint8Array | null]

/** A query over pages of JSON from any source. Does no I/O. */
export class Query {
  /** Compiles a query. Throws `QueryError` with the field and the byte that is wrong. */
  constructor(options?: QueryOptions)
  addSource(options?: SourceOptions): Source
  /**
   * Enqueues a page, which is copied. `next` names the next page; without it, the page is the last one. Throws
   * `QueryError` with source, item and byte; the query is then unchanged.
   */
  enqueue(source: Source | number, page: Data, next?: string | Uint8Array | null, frames?: Frames): void
  /** Like `enqueue`, but scans the page in another thread. */
  enqueueLarge(
    source: Source | number, page: Data, next?: string | Uint8Array | null, frames?: Frames,
  ): Promise<void>
  /** Ends a source: it has no more pages. */
  finish(source: Source | number): void
  /**
   * Declares that a source of the query that returned `token` no longer exists, so its remaining rows never
   * arrive. Without this call, and without the source, `next` fails with SOURCES_OWED, which is not final.
   */
  abandon(name: string | Uint8Array): void
  /** Declares that a source has no more items below these order keys. */
  watermark(source: Source | number, ...keys: JsonScalar[]): void
  /** Replaces a source that was split by its parts, after its last enqueued page. Without parts, the source ends. */
  replace(source: Source | number, parts: SourceOptions[]): Source[]
  /** Returns results, the needed pages, or that the end is reached. An error is final. */
  next(bounds?: Bounds): QueryStep
  /** The pages that the query requests now, required ones first. */
  needs(): Need[]
  /**
   * Calls `fetch` for each page that the query needs. `fetch` returns the page. Alternatively, it enqueues a
   * page, or finishes or replaces its source, and returns nothing. If no call did any of these, or if there is
   * no `fetch`, the query fails with BAD_OPTION.
   * `fetch` also gets `signal`. When the signal is aborted, the generator no longer waits for `fetch` and
   * throws the reason of the signal; the query stays usable.
   */
  pages(
    fetch?: (need: Need, options: Waiting) => Promise<Fetched | undefined> | Fetched | undefined,
    options?: Bounds & Waiting,
  ): AsyncGenerator<Page, void>
  /** A token with which a query resumes after the last page, at most 64 KiB. Throws NO_TOKEN if there is none. */
  token(): Buffer
  /** A description of the execution, for people. */
  explain(): string
  /** Name of a source by its number; undefined if there is no such source. */
  sourceName(number: number): Buffer | undefined
  /** Bytes of referenced pages, including those of results. */
  readonly bufferedBytes: number
  /** Number of bad items that were skipped so far. */
  readonly skipped: number
}

export const version: string
/** The build profile of the native module. */
export const buildProfile: 'debug' | 'release'
