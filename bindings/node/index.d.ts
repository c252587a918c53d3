/** An event store to open in your process, and ordered queries over raw JSON pages. */

/** Bytes, or text as UTF-8. Read during the call and copied. */
export type Data = string | Uint8Array | ArrayBuffer | ArrayBufferView
/** A value to be written: bytes or text as they are, an array or a plain object as JSON. */
export type Value = Data | readonly unknown[] | { readonly [name: string]: unknown }
/** A number of the store; `bigint` on the way out, either on the way in. */
export type Int = number | bigint
export type JsonScalar = null | boolean | number | string

/** The root of all errors of this package. */
export class WeirError extends Error {
  /** Its name, such as "CLOSED"; the same in every language. */
  readonly code: string
  readonly number: number
  /** Whether the same again can help: at once, after the advice was followed, never. */
  readonly retry: 'yes' | 'after' | 'no'
  readonly advice: string
}
/** A verdict that is not VALID where one was required, as by `Verdict.check`. */
export class VerdictError extends WeirError {}
/** The store did not take it: nothing was logged. */
export class RefusalError extends WeirError {
  /** For a nonce of a session: the next one that would be executed. */
  readonly expected?: bigint
}
/** The store could not be opened, read or written, or is closed. */
export class StoreError extends WeirError {}
/** Found out on this side of a connection. */
export class ClientError extends WeirError {}
/** Of a query, or a page it was given. */
export class QueryError extends WeirError {
  readonly source?: number
  readonly sourceName?: string
  readonly page?: number
  readonly item?: number
  /** The first byte that is wrong: of the page, or of the text of the query. */
  readonly offset?: number
  /** Which field of the query the text is of. */
  readonly field?: string
}
/** A mistake of Weir. */
export class InternalError extends WeirError {}

/** More about the reason of a verdict. */
export interface Detail {
  /** The offset that a condition found. */
  readonly actual?: bigint
  readonly limit?: bigint
  /** Of a transaction: which step, and why. */
  readonly index?: number
  readonly reason?: string
  /** Of a program. */
  readonly code?: number
  readonly text?: string
  readonly trap?: string
}

/** The final answer to one intention: a value, also when it is no. */
export class Verdict {
  private constructor()
  readonly effect: 'VALID' | 'INVALID' | 'ERROR'
  readonly valid: boolean
  /** Why not: the name of an error. */
  readonly reason?: string
  readonly number?: number
  readonly detail?: Detail
  /** Position in the global order. */
  readonly intention: bigint
  /** Offset of its first record. */
  readonly offset?: bigint
  readonly records: number
  /** Whether this is the kept answer to an earlier sending of the same nonce. */
  readonly replayed: boolean
  readonly fuel: bigint
  /** Itself when it is VALID; else throws `VerdictError`. */
  check(): this
}
/** Of a value that was put: when it is VALID it has written a record. */
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
  /** The key's value was written at this offset. Without a key: that of the intention. */
  keyOffset(offset: Int, key?: Data): Expect
  keyAbsent(key?: Data): Expect
  keyPresent(key?: Data): Expect
  /** The topic's last record has this offset. */
  topicOffset(offset: Int): Expect
  topicAbsentOr(offset: Int): Expect
  topicEmpty(): Expect
  incarnation(intention: Int): Expect
}

export interface PutOptions {
  expect?: Expect[]
  /** At most 4 KiB that the store keeps and does not read. */
  meta?: Data
}
export interface Waiting {
  /** Ends the wait, not what is waited for. */
  signal?: AbortSignal
}
export interface TopicOptions {
  compaction?: 'off' | 'latest'
  tombstoneTtlMs?: Int
  compactionLagMs?: Int
  keyBytesMax?: Int
  valueBytesMax?: Int
  keysMax?: Int
  retentionAgeMs?: Int
  retentionBytes?: Int
  retentionRecords?: Int
  holdForGroups?: string[]
  fuelMax?: Int
  memoryBytesMax?: Int
  emitsMax?: Int
  emitBytesMax?: Int
  stateEntriesMax?: Int
  stateBytesMax?: Int
}
export interface CreateOptions extends TopicOptions {
  /** A WebAssembly module that judges each write, and arguments for it. */
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
/** What can be asked for. */
export type Op = Step | TransactionOp | CreateOp | AlterOp | DestroyOp

export function put(key: Data, value: Value, options?: PutOptions): PutOp
export function del(key: Data, options?: PutOptions): DeleteOp
/** All steps or none; conditions are for the whole, with keys of their own. */
export function transaction(steps: Step[], options?: { expect?: Expect[] }): TransactionOp
export function create(options?: CreateOptions): CreateOp
export function alter(options?: TopicOptions): AlterOp
export function destroy(): DestroyOp

/** A record. Its buffers are views of its page. */
export class Record {
  private constructor()
  readonly offset: bigint
  readonly intention: bigint
  readonly timeMs: number
  readonly nonce: bigint
  readonly kind: 'PUT' | 'DELETE' | 'CREATE' | 'DESTROY' | 'ALTER' | 'REPLACE'
  readonly transaction: boolean
  /** Whether it is the last record of its intention. */
  readonly final: boolean
  /** From `Topic.latest`: whether it is from before the reading began. */
  readonly replay: boolean
  readonly key: Buffer
  readonly value: Buffer
  readonly meta: Buffer
  text(): string
  json(): unknown
  /** The scalar at a singular JSONPath, decoded; the text of an array or object. */
  get(path: string, missing?: unknown): unknown
  /** A copy of the value. */
  toBuffer(): Buffer
  /** For people: offset, kind, key and the beginning of the value. */
  toString(): string
}

/** Records that were read together, in one buffer. */
export class RecordPage implements Iterable<Record> {
  private constructor()
  readonly length: number
  readonly first?: bigint
  readonly last?: bigint
  readonly released: boolean
  at(index: number): Record | undefined
  [Symbol.iterator](): IterableIterator<Record>
  /** Gives the memory back now; its records have no bytes from then on. */
  release(): void
}

/** One result: the bytes of a JSON value, a view of its page. */
export class Item {
  private constructor()
  /** Number of the source; none for an item that the engine made. */
  readonly source?: number
  /** In a query over topics: the topic. */
  readonly topic?: string
  readonly index: number
  readonly pageNumber: number
  readonly constructed: boolean
  readonly bytes: Buffer
  readonly length: number
  text(): string
  json(): unknown
  /** The scalar at a singular JSONPath, decoded; an array or object as an item. */
  get(path: string, missing?: unknown): unknown
  toBuffer(): Buffer
}

/** Results, in order, in one buffer. */
export class Page implements Iterable<Item> {
  private constructor()
  readonly length: number
  /** Bad items that were left out so far, in the whole query. */
  readonly skipped: number
  /** All items, one after the other. */
  readonly bytes: Buffer
  /** Start and length of each item in `bytes`, for callers that want no object for each item. */
  readonly spans: Uint32Array
  readonly released: boolean
  at(index: number): Item | undefined
  /**
   * The values at up to 64 singular JSONPaths in each item, in one walk over each: a row for each item, of a view for
   * each path, in the order of the paths; nothing where there is none, and throughout for an item that is not JSON on
   * the way.
   */
  values(...paths: string[]): (Buffer | undefined)[][]
  [Symbol.iterator](): IterableIterator<Item>
  /** Gives the memory back now; views of it are empty from then on, and to ask its items is an error. */
  release(): void
}

/** A position in a topic; at most one field. */
export interface Position {
  /**
   * A position as the command `weir` takes it: `start`, `end`, an offset (the first record), `-N` (the last N
   * records), a time ago such as `10m`, a date or a time. The error of any other text is `BAD_OPTION`.
   */
  position?: string
  /** After this offset. */
  after?: Int
  /** At so many records before the end. */
  last?: Int
  /** At the first record stamped then or later. */
  timeMs?: Int
  start?: boolean
  end?: boolean
}
export interface From extends Position, Waiting {}
export interface Listening extends From {
  /** Ends when nothing came for so long; without it, never. */
  timeoutMs?: number
}
export interface TopicInfo {
  readonly name: string
  readonly live: boolean
  readonly incarnation?: bigint
  readonly first: bigint
  readonly last: bigint
  readonly keys: bigint
  readonly bytes: bigint
}
export type GroupMode = 'shared' | 'keyed' | 'exclusive'
/** The position is that at which a group that is made starts; by default the first record. */
export interface GroupOptions extends Position {
  leaseMs?: number
  /** Deliveries after which a record goes to `deadLetters`; 0: never. */
  attempts?: number
  pending?: number
  deadLetters?: string
  /** A name that comes back as the same member. */
  member?: string
  /** The group is not made. */
  existing?: boolean
}
export interface GroupInfo {
  readonly topic: string
  readonly name: string
  readonly mode: GroupMode
  readonly cursor: bigint
  readonly lag: bigint
  readonly leased: bigint
  readonly waiting: bigint
  readonly redeliveries: bigint
  readonly deaths: bigint
  readonly leaseMs: bigint
  readonly attemptsMax: number
  readonly deadLetters: string
}
/** What names a record that a member has. */
export interface Claim { readonly claim: Int; readonly offset: Int }
/** A record that a member has. */
export class Work implements Claim {
  private constructor()
  readonly record: Record
  readonly claim: bigint
  readonly offset: bigint
  readonly attempts: number
}

/** A member of a group. */
export class Group {
  private constructor()
  readonly name: string
  claim(max?: number, options?: Waiting & { timeoutMs?: number }): Promise<Work[]>
  /** Done, for good; the offsets of those that are with somebody else by now. */
  ack(work: Claim[]): Promise<bigint[]>
  ackSoon(work: Claim[]): Promise<void>
  nack(work: Claim[], options?: { delayMs?: number; reason?: string }): Promise<bigint[]>
  extend(work: Claim[], leaseMs: number): Promise<bigint[]>
  /** Moves the group: everything before the position counts as done, and nothing after it. */
  reset(to?: Position): Promise<Verdict>
  takeOver(): Promise<void>
  leave(): Promise<void>
  info(): Promise<GroupInfo>
  delete(): Promise<Verdict>
}

/** Intentions that were sent, by `send` of a store or a session. */
export class Pending {
  private constructor()
  /**
   * They are queued for the log, which promises nothing, or answered. A server says it to who connected
   * with `received`.
   */
  readonly received: Promise<void>
  readonly verdicts: Promise<Verdict[]>
}

/** A writer whose intentions are executed exactly once. */
export class Session {
  private constructor()
  nextNonce(): Promise<bigint>
  resume(nonce: Int): Promise<void>
  execute(intentions: [topic: string, op: Op][]): Promise<Verdict[]>
  send(intentions: [topic: string, op: Op][]): Pending
}

/** A handle on a topic. */
export class Topic {
  private constructor()
  readonly name: string
  create(options?: CreateOptions): Promise<Verdict>
  alter(options?: TopicOptions): Promise<Verdict>
  destroy(): Promise<Verdict>
  /** Another program; with `expected`, the SHA-256 of its code, only in the place of that one. */
  replace(program: Data, args?: Data, options?: { expected?: Data }): Promise<Verdict>
  /** Makes the topic live unless it does; whether it was made now. */
  ensure(): Promise<boolean>
  info(): Promise<TopicInfo | undefined>
  append(value: Value, options?: PutOptions & Waiting): Promise<PutVerdict>
  put(key: Data, value: Value, options?: PutOptions & Waiting): Promise<PutVerdict>
  delete(key: Data, options?: PutOptions & Waiting): Promise<Verdict>
  transaction(steps: Step[], options?: { expect?: Expect[] } & Waiting): Promise<Verdict>
  /** Many intentions in one call, independent of each other. */
  batch(ops: Op[], options?: Waiting): Promise<Verdict[]>
  get(key: Data): Promise<Record | undefined>
  at(offset: Int): Promise<Record | undefined>
  keys(
    prefix?: Data,
    options?: { after?: Data; limit?: number },
  ): AsyncGenerator<{ key: Buffer; offset: bigint }, void>
  /** Pages up to the newest record. */
  pages(options?: From): AsyncGenerator<RecordPage, void>
  records(options?: From): AsyncGenerator<Record, void>
  /** Pages as they come; the topic need not be there yet. */
  listen(options?: Listening): AsyncGenerator<RecordPage, void>
  tail(options?: Listening): AsyncGenerator<Record, void>
  /** What each key has, marked `replay`; then what comes. */
  latest(options?: Waiting & { timeoutMs?: number }): AsyncGenerator<Record, void>
  group(name: string, mode?: GroupMode, options?: GroupOptions): Promise<Group>
  groups(): Promise<GroupInfo[]>
}

export type Level = 'none' | 'structural' | 'strict'
/** The fields of a query; see docs/guide/query.md. */
export interface QueryOptions {
  where?: string
  order?: string
  select?: string
  group?: string
  distinct?: boolean
  offset?: Int
  limit?: Int
  top?: Int
  params?: { [name: string]: JsonScalar }
  strings?: 'scalar' | 'utf16'
  complex?: 'error' | 'rank'
  missing?: 'first' | 'drop'
  level?: Level
  onBadItem?: 'error' | 'skip' | 'undefined'
  mode?: 'sequential' | 'arrival' | 'round_robin' | 'merge' | 'sort'
  budgets?: { [name: string]: Int }
  /** Where an earlier run of the same query stood. */
  token?: Uint8Array
}
export interface Bounds { maxItems?: number; maxBytes?: number }
export interface TopicQueryOptions extends QueryOptions, Bounds, Waiting {
  view?: 'log' | 'latest'
  asOf?: Int
  follow?: boolean
  kinds?: string[]
  resetEarliest?: boolean
  pushDown?: boolean
  patienceMs?: number
  /** A query that follows ends when nothing came for so long. */
  timeoutMs?: number
}
/** A query over topics that runs. */
export class TopicQuery implements AsyncIterable<Item> {
  private constructor()
  next(options?: Bounds & Waiting & { timeoutMs?: number }): Promise<Page | undefined>
  pages(): AsyncGenerator<Page, void>
  [Symbol.asyncIterator](): AsyncIterator<Item>
  token(): Buffer
  explain(): string
  readonly asOf?: bigint
  cancel(): void
}

export interface OpenOptions {
  durability?: 'group' | 'each' | 'interval' | 'memory'
  intervalMs?: number
  create?: boolean
  program?: string
  snapshotLogBytes?: Int
  logSegmentBytes?: Int
}
export interface ConnectOptions {
  token?: string
  authority?: string
  identity?: [certificate: string, key: string]
  agent?: string
  connectTimeoutMs?: number
  patienceMs?: number
  /** The server says when a write is queued for its log: `Pending.received`. A packet more for each. */
  received?: boolean
}

/** An event store, in a directory or behind a server. */
export class Store {
  private constructor()
  static open(path: string | URL, options?: OpenOptions): Promise<Store>
  static connect(url: string, options?: ConnectOptions): Promise<Store>
  topic(name: string): Topic
  topics(options?: { dead?: boolean }): Promise<TopicInfo[]>
  batch(intentions: [topic: string, op: Op][], options?: Waiting): Promise<Verdict[]>
  /** Intentions whose reception and verdicts are awaited apart. */
  send(intentions: [topic: string, op: Op][]): Pending
  session(client: Data): Promise<Session>
  /** A query over topics: names, or patterns like "orders.*" and "orders.**". */
  query(topics: string | Iterable<string>, options?: TopicQueryOptions): Promise<TopicQuery>
  durability(): Promise<'group' | 'each' | 'interval' | 'memory'>
  sync(): Promise<void>
  readonly closed: boolean
  close(): Promise<void>
}
export function open(path: string | URL, options?: OpenOptions): Promise<Store>
export function connect(url: string, options?: ConnectOptions): Promise<Store>

export interface SourceOptions {
  name?: string | Uint8Array
  ordinal?: Int
  /** "array", "lines", "values" (one after the other), "single", "framed", or "member:PATH" with the path of the array. */
  shape?: string
  level?: Level
  /** What names the first page. */
  first?: string | Uint8Array
  sorted?: boolean
  trustOrder?: boolean
  stable?: boolean
  tie?: string
  meta?: { [name: string]: JsonScalar }
  bound?: JsonScalar[]
  partial?: boolean
}
/** Where the items of a page of the shape "framed" are. */
export interface Frames {
  /** Place and length of each item. */
  frames: [offset: number, length: number][]
  /** By name one value for each item: a number, place and length of bytes in the page, or nothing. */
  meta?: { [name: string]: (Int | [offset: number, length: number] | null)[] }
}
/** A source of a query. */
export class Source {
  private constructor()
  readonly query: Query
  readonly number: number
  readonly name?: string
  enqueue(page: Data, next?: string | Uint8Array | null, frames?: Frames): void
  enqueueLarge(page: Data, next?: string | Uint8Array | null, frames?: Frames): Promise<void>
  finish(): void
  watermark(...keys: JsonScalar[]): void
  replace(parts: SourceOptions[]): Source[]
}
/** A page that the query would like to have. */
export interface Need {
  readonly source: Source
  readonly continuation?: Buffer
  readonly required: boolean
  readonly bytes: number
}
export type QueryStep =
  | { readonly kind: 'page'; readonly page: Page }
  | { readonly kind: 'need'; readonly needs: Need[] }
  | { readonly kind: 'done' }
/** A page and what names the one after it; nothing if `fetch` has dealt with the source itself. */
export type Fetched = readonly [page: string | Uint8Array, next?: string | Uint8Array | null]

/** A query over pages of JSON from anywhere; does no I/O. */
export class Query {
  constructor(options?: QueryOptions)
  addSource(options?: SourceOptions): Source
  /** Hands in a page, which is copied; without `next` it was the last. */
  enqueue(source: Source | number, page: Data, next?: string | Uint8Array | null, frames?: Frames): void
  /** The same, scanned beside the event loop. */
  enqueueLarge(
    source: Source | number, page: Data, next?: string | Uint8Array | null, frames?: Frames,
  ): Promise<void>
  finish(source: Source | number): void
  /**
   * Says that a source of the run that `token` is of is gone for good: the rows it had left do not
   * come. Without this, and without the source, `next` fails with SOURCES_OWED, which is not final.
   */
  abandon(name: string | Uint8Array): void
  watermark(source: Source | number, ...keys: JsonScalar[]): void
  replace(source: Source | number, parts: SourceOptions[]): Source[]
  next(bounds?: Bounds): QueryStep
  needs(): Need[]
  /**
   * `fetch` is asked for the pages that are needed. It gives them, or hands in, finishes or replaces its
   * source itself and gives nothing; when nothing came of any, or there is no `fetch`: BAD_OPTION.
   * `fetch` gets `signal` as well. When that is aborted, the running calls of `fetch` are not awaited
   * any longer: the generator throws the signal's reason, and the query can be read on.
   */
  pages(
    fetch?: (need: Need, options: Waiting) => Promise<Fetched | undefined> | Fetched | undefined,
    options?: Bounds & Waiting,
  ): AsyncGenerator<Page, void>
  token(): Buffer
  explain(): string
  sourceName(number: number): Buffer | undefined
  readonly bufferedBytes: number
  readonly skipped: number
}

export const version: string
/** How the native module was built. */
export const buildProfile: 'debug' | 'release'
