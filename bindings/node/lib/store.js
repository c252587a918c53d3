'use strict'
// Stores, topics, groups, sessions.

const { fileURLToPath } = require('node:url')
const native = require('./native.js')
const { abortable, call, settle, StoreError } = require('./errors.js')
const {
  big, bytes, content, known, maybeBytes, needed, settings, record, Record, RecordPage, Page,
} = require('./values.js')
const { fields } = require('./query.js')

/** Milliseconds for which a listener occupies a thread before other calls may use it. */
const STEP_MS = 100

class Verdict {
  #explanation
  constructor(verdict) {
    this.#explanation = verdict.explanation
    this.effect = verdict.effect
    this.valid = verdict.effect === 'VALID'
    this.reason = verdict.reason
    this.number = verdict.number
    this.detail = verdict.detail && Object.fromEntries(
      Object.entries(verdict.detail).filter(([, value]) => value !== undefined && value !== null),
    )
    this.intention = verdict.intention
    this.offset = verdict.offset
    this.records = verdict.records
    this.replayed = verdict.replayed
    this.fuel = verdict.fuel
    Object.freeze(this)
  }
  check() {
    if (!this.valid) call(() => native.verdictError(this.number, this.#explanation))
    return this
  }
}

// The constructors of intentions.

const put = (key, value, options = {}) => ({ kind: 'put', key, value, ...options })
const del = (key, options = {}) => ({ kind: 'delete', key, ...options })
const transaction = (steps, options = {}) => ({ kind: 'transaction', steps, ...options })
const create = (options = {}) => ({ kind: 'create', options })
const alter = (options = {}) => ({ kind: 'alter', options })
const destroy = () => ({ kind: 'destroy' })

const expect = {
  keyOffset: (offset, key) => ({ kind: 'keyOffset', number: offset, key }),
  keyAbsent: (key) => ({ kind: 'keyAbsent', key }),
  keyPresent: (key) => ({ kind: 'keyPresent', key }),
  topicOffset: (offset) => ({ kind: 'topicOffset', number: offset }),
  topicAbsentOr: (offset) => ({ kind: 'topicAbsentOr', number: offset }),
  topicEmpty: () => ({ kind: 'topicEmpty' }),
  incarnation: (intention) => ({ kind: 'incarnation', number: intention }),
}

const COMPACTIONS = { __proto__: null, off: 0n, latest: 1n }

/** The fields of an intention, by its kind. */
const OP_FIELDS = {
  __proto__: null,
  put: ['kind', 'key', 'value', 'expect', 'meta'],
  delete: ['kind', 'key', 'expect', 'meta'],
  transaction: ['kind', 'steps', 'expect', 'meta'],
  create: ['kind', 'options', 'expect', 'meta'],
  alter: ['kind', 'options', 'expect', 'meta'],
  destroy: ['kind', 'expect', 'meta'],
  replace: ['kind', 'program', 'value', 'expected', 'expect', 'meta'],
}

/** The conditions that have a number. */
const NUMBERED = ['keyOffset', 'topicOffset', 'topicAbsentOr', 'incarnation']

/** Converts an intention for the native module. */
function toNative(topic, op) {
  const names = OP_FIELDS[op.kind]
  // The native module rejects an unknown kind.
  if (names) known(op, names, op.kind)
  const { holdForGroups, program, args, compaction, ...numbers } = op.options ?? {}
  if (op.kind === 'alter' && (program ?? args ?? undefined) !== undefined) {
    throw new TypeError('alter has no option program or args; use replace')
  }
  const numeric = settings(numbers)
  if (compaction !== undefined && compaction !== null) {
    const value = COMPACTIONS[compaction]
    if (value === undefined) throw new TypeError(`compaction is 'off' or 'latest', not ${compaction}`)
    numeric.push({ name: 'compaction', value })
  }
  return {
    kind: op.kind,
    topic,
    key: op.kind === 'put' || op.kind === 'delete' ? bytes(op.key, 'key') : undefined,
    value: op.kind === 'put' ? content(op.value, 'value') : maybeBytes(op.value ?? args, 'args'),
    meta: maybeBytes(op.meta, 'meta'),
    expect: op.expect?.map((one) => ({
      kind: one.kind,
      key: maybeBytes(one.key, 'key'),
      number: NUMBERED.includes(one.kind) ? needed(one.number, one.kind) : undefined,
    })),
    steps: op.steps?.map((step) => toNative('', step)),
    settings: numeric,
    groups: holdForGroups,
    program: maybeBytes(op.program ?? program, 'program'),
    expected: maybeBytes(op.expected, 'expected'),
  }
}

const POSITION = ['position', 'after', 'last', 'timeMs', 'end', 'start']
const GROUP_OPTIONS = ['leaseMs', 'attempts', 'pending', 'deadLetters', 'member', 'existing']
const CONNECT_OPTIONS = ['token', 'authority', 'agent', 'connectTimeoutMs', 'patienceMs', 'received']

/** The position at which reading, or a group, starts. The options may also have the names of `others`. */
function start(options, fallback, others = [], what = 'a position') {
  if (typeof options !== 'object') return { kind: 'position', text: String(options) }
  known(options, [...POSITION, ...others], what)
  const names = POSITION.filter(
    (name) => options[name] !== undefined && options[name] !== null && options[name] !== false,
  )
  if (names.length > 1) throw new TypeError(`there is one position, not ${names.join(' and ')}`)
  const kind = names[0] ?? fallback
  if (kind === 'position') return { kind, text: String(options.position) }
  const number = kind === 'start' || kind === 'end' ? undefined : big(options[kind])
  return { kind, number }
}

/** Repeats a step, which blocks up to a number of milliseconds, until it returns a value or the time is over. */
async function repeatUntil(step, timeoutMs, signal) {
  if (timeoutMs !== undefined && !(timeoutMs >= 0)) call(() => native.badTimeout(String(timeoutMs)))
  const end = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs
  for (;;) {
    signal?.throwIfAborted()
    const remaining = Math.max(0, Math.min(STEP_MS, Math.ceil(end - performance.now())))
    const found = await settle(() => step(remaining))
    if (found) return found
    if (performance.now() >= end) return undefined
  }
}

/** Runs one call at a time; a concurrent call fails. */
function oneAtATime() {
  let busy = false
  return async (body) => {
    if (busy) call(() => native.busy())
    busy = true
    try {
      return await body()
    } finally {
      busy = false
    }
  }
}

class Topic {
  #store
  constructor(store, name) {
    this.#store = store
    this.name = name
  }
  async #one(op, signal) {
    return (await this.#store.batch([[this.name, op]], { signal }))[0]
  }
  create(options) {
    return this.#one(create(options))
  }
  alter(options) {
    return this.#one(alter(options))
  }
  destroy() {
    return this.#one(destroy())
  }
  async replace(program, args, { expected, ...others } = {}) {
    known(others, [], 'a replacement')
    return this.#one({ kind: 'replace', program, value: args, expected })
  }
  ensure() {
    return this.#store._run((inner) => inner.ensure(this.name))
  }
  info() {
    return this.#store._run((inner) => inner.info(this.name)).then((info) => info ?? undefined)
  }
  append(value, options = {}) {
    return this.put('', value, options)
  }
  put(key, value, { signal, ...options } = {}) {
    return this.#one(put(key, value, options), signal)
  }
  delete(key, { signal, ...options } = {}) {
    return this.#one(del(key, options), signal)
  }
  transaction(steps, { signal, ...options } = {}) {
    return this.#one(transaction(steps, options), signal)
  }
  batch(ops, options) {
    return this.#store.batch(ops.map((op) => [this.name, op]), options)
  }
  async get(key) {
    return record(await this.#store._run((inner) => inner.get(this.name, bytes(key, 'key'))))
  }
  async at(offset) {
    return record(await this.#store._run((inner) => inner.at(this.name, BigInt(offset))))
  }
  async *keys(prefix = '', { after, limit = Infinity, ...others } = {}) {
    known(others, [], 'a scan of keys')
    let last = maybeBytes(after, 'after')
    for (let remaining = limit; remaining > 0; ) {
      const size = Math.min(remaining, 1000)
      const found = await this.#store._run((inner) =>
        inner.scan(this.name, bytes(prefix, 'prefix'), last, size),
      )
      for (const { key, offset } of found) yield { key: Buffer.from(key), offset }
      if (found.length < size) return
      remaining -= found.length
      last = found.at(-1).key
    }
  }
  async *pages(options = {}) {
    const from = start(options, 'start', ['signal'], 'a read')
    const reader = await this.#store._run((inner) => inner.reader(this.name, from, false))
    for (;;) {
      options.signal?.throwIfAborted()
      const table = await this.#store._run(() => reader.next(0))
      if (!table) return
      yield new RecordPage(table)
    }
  }
  async *records(options) {
    for await (const page of this.pages(options)) yield* page
  }
  async *followPages(options = {}) {
    const from = start(options, 'end', ['signal', 'timeoutMs'], 'a listener')
    const reader = await this.#store._run((inner) => inner.reader(this.name, from, true))
    for (;;) {
      const step = (remaining) => this.#store._run(() => reader.next(remaining))
      const table = await repeatUntil(step, options.timeoutMs, options.signal)
      if (!table) return
      yield new RecordPage(table)
    }
  }
  async *follow(options) {
    for await (const page of this.followPages(options)) yield* page
  }
  async *latest({ timeoutMs = 0, signal, ...others } = {}) {
    known(others, [], 'a read of keys')
    const latest = await this.#store._run((inner) => inner.latest(this.name))
    for (;;) {
      const step = () => this.#store._run(() => latest.next())
      const table = await repeatUntil(step, timeoutMs, signal)
      if (!table) return
      yield record(table)
    }
  }
  async group(name, mode = 'shared', options = {}) {
    if (typeof mode === 'object') {
      if (Object.keys(options).length > 0) throw new TypeError('the options of a group are one object')
      return this.group(name, 'shared', mode ?? {})
    }
    const from = start(options, 'start', GROUP_OPTIONS, 'a group')
    const setup = { ...options, name, mode, from }
    return new Group(await this.#store._run((inner) => inner.group(this.name, setup)), name, this.#store._opened)
  }
  groups() {
    return this.#store._run((inner) => inner.groups(this.name))
  }
}

class Work {
  constructor(found, claim, attempts) {
    this.record = found
    this.claim = claim
    this.offset = found.offset
    this.attempts = attempts
  }
}

class Group {
  #inner
  #store
  #exclusive = oneAtATime()
  constructor(inner, name, store) {
    this.#inner = inner
    this.#store = store
    this.name = name
  }
  async claim(max = 100, { timeoutMs = 0, signal, ...others } = {}) {
    known(others, [], 'a claim')
    const step = (remaining) => this.#store._run(() => this.#inner.claim(max, remaining))
    const table = await this.#exclusive(() => repeatUntil(step, timeoutMs, signal))
    if (!table) return []
    const page = new RecordPage(table)
    return Array.from(page, (one, at) => new Work(one, table.claims[at], table.attempts[at]))
  }
  #run(body) {
    return this.#exclusive(() => this.#store._run(body))
  }
  #settle(work, verb, ms = 0, reason = '') {
    const claims = work.map(({ claim, offset }) => ({ claim: BigInt(claim), offset: BigInt(offset) }))
    return this.#run(() => this.#inner.settle(claims, verb, ms, reason))
  }
  ack(work) {
    return this.#settle(work, 'done')
  }
  async ackSoon(work) {
    await this.#settle(work, 'doneSoon')
  }
  async nack(work, { delayMs = 0, reason = '', ...others } = {}) {
    known(others, [], 'a return of work')
    return this.#settle(work, 'fail', delayMs, reason)
  }
  extend(work, leaseMs) {
    return this.#settle(work, 'extend', leaseMs)
  }
  async reset(to = {}) {
    const from = start(to, 'start')
    return new Verdict(await this.#run(() => this.#inner.reset(from)))
  }
  takeOver() {
    return this.#run(() => this.#inner.takeOver())
  }
  leave() {
    return this.#run(() => this.#inner.leave())
  }
  info() {
    return this.#run(() => this.#inner.info())
  }
  async delete() {
    return new Verdict(await this.#run(() => this.#inner.delete()))
  }
}

/** Intentions that a store or session sent: two promises. */
class Pending {
  constructor([received, verdicts], sender) {
    this.received = settle(() => received)
    this.verdicts = settle(() => verdicts).then((all) => all.map((verdict) => new Verdict(verdict)))
    // The collector must not close the connection of the sender before. A caller that awaits only one promise gets no
    // unhandled rejection of the other.
    const release = () => {
      sender = undefined
    }
    this.verdicts.then(release, release)
    Object.freeze(this)
  }
}

/** At a server, a session has its own connection, which a close of the store does not end. */
class Session {
  #inner
  #store
  constructor(inner, store) {
    this.#inner = inner
    this.#store = store
  }
  nextNonce() {
    return this.#store._run(() => this.#inner.nextNonce())
  }
  resume(nonce) {
    return this.#store._run(() => this.#inner.resume(BigInt(nonce)))
  }
  async execute(intentions) {
    const ops = intentions.map(([topic, op]) => toNative(topic, op))
    return (await this.#store._run(() => this.#inner.send(ops))).map((verdict) => new Verdict(verdict))
  }
  send(intentions) {
    if (this.#store.closed) throw closed()
    const ops = intentions.map(([topic, op]) => toNative(topic, op))
    return new Pending(call(() => this.#inner.sendWithReceipt(ops)), this)
  }
}

class TopicQuery {
  #inner
  #options
  #store
  #exclusive = oneAtATime()
  constructor(inner, options, store) {
    this.#inner = inner
    this.#options = options
    this.#store = store
  }
  async next({ timeoutMs, signal, maxItems = 256, maxBytes = 1 << 20, ...others } = {}) {
    known(others, [], 'a step')
    let done = false
    const step = async (remaining) => {
      const found = await this.#store._run(() => this.#inner.next(remaining, maxItems, Number(maxBytes)))
      done = found.done
      return found.done || found.page ? found : undefined
    }
    const found = await this.#exclusive(() => repeatUntil(step, timeoutMs, signal))
    if (!found || done) return undefined
    const topics = new Map(found.topics.map(({ source, topic }) => [source, topic]))
    const { table, bytes: pageBytes } = found.page
    return new Page(table, Buffer.from(pageBytes.buffer), undefined, topics)
  }
  async *pages() {
    for (let page; (page = await this.next(this.#options)); ) yield page
  }
  async *[Symbol.asyncIterator]() {
    for await (const page of this.pages()) yield* page
  }
  token() {
    return Buffer.from(call(() => this.#inner.token()))
  }
  explain() {
    return call(() => this.#inner.explain())
  }
  get asOf() {
    return call(() => this.#inner.asOf()) ?? undefined
  }
  cancel() {
    this.#inner.cancel()
  }
}

class Store {
  #inner
  /** The store of which this is a second handle. */
  #parent
  #closed = false
  constructor(inner, parent) {
    this.#inner = inner
    this.#parent = parent
  }
  static async open(path, { durability, intervalMs, create, orConnect, program, ...numbers } = {}) {
    const nativeOptions = { durability, intervalMs, create, orConnect, program, settings: settings(numbers) }
    if (typeof path !== 'string' && !(path instanceof URL)) throw new TypeError(`path is a string or a URL, not ${path}`)
    const directory = path instanceof URL ? fileURLToPath(path) : path
    return new Store(await settle(() => native.open(directory, nativeOptions)))
  }
  static async connect(url, { identity, ...options } = {}) {
    known(options, CONNECT_OPTIONS, 'a connection')
    const nativeOptions = { ...options, certificate: identity?.[0], key: identity?.[1] }
    return new Store(await settle(() => native.connect(String(url), nativeOptions)))
  }
  /** The store that was opened, of which this is a handle. */
  get _opened() {
    return this.#parent?._opened ?? this
  }
  /** Calls into the store, unless it is closed. */
  _run(body) {
    return settle(() => {
      if (this.closed) throw closed()
      return body(this.#inner)
    })
  }
  withConsistency(consistency) {
    if (this.closed) throw closed()
    return new Store(call(() => this.#inner.withConsistency(String(consistency))), this)
  }
  topic(name) {
    if (this.closed) throw closed()
    call(() => this.#inner.checkTopic(name))
    return new Topic(this, name)
  }
  async topics({ destroyed = false, ...others } = {}) {
    known(others, [], 'a list of topics')
    return this._run((inner) => inner.topics(destroyed))
  }
  async batch(intentions, { signal, ...others } = {}) {
    known(others, [], 'a batch')
    const ops = intentions.map(([topic, op]) => toNative(topic, op))
    const verdicts = await abortable(signal, () => this._run((inner) => inner.send(ops)))
    return verdicts.map((verdict) => new Verdict(verdict))
  }
  send(intentions) {
    if (this.closed) throw closed()
    const ops = intentions.map(([topic, op]) => toNative(topic, op))
    return new Pending(call(() => this.#inner.sendWithReceipt(ops)), this)
  }
  async session(client) {
    return new Session(await this._run((inner) => inner.session(bytes(client, 'client'))), this._opened)
  }
  async query(topics, options = {}) {
    const { from, view, asOf, follow, kinds, resetEarliest, pushDown, patienceMs, ...rest } = options
    const { timeoutMs, signal, maxItems, maxBytes, ...text } = rest
    const list = typeof topics === 'string' ? [topics] : [...topics]
    const selection = {
      topics: list,
      from: from === undefined ? undefined : start(from, 'start'),
      view,
      asOf: big(asOf),
      follow,
      kinds,
      resetEarliest,
      pushDown,
      patienceMs,
    }
    const inner = await this._run((store) => store.query(selection, fields(text)))
    return new TopicQuery(inner, { timeoutMs, signal, maxItems, maxBytes }, this._opened)
  }
  durability() {
    return this._run((inner) => inner.durability())
  }
  sync() {
    return this._run((inner) => inner.sync())
  }
  get closed() {
    return this.#closed || (this.#parent?.closed ?? false)
  }
  async close() {
    this.#closed = true
    if (this.#parent === undefined) await settle(() => this.#inner.close())
  }
  [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    return this.close()
  }
}

function closed() {
  const message = 'the store is closed'
  return new StoreError({ message, code: 'CLOSED', number: native.closedNumber(), retry: 'no', advice: 'Open the store again.' })
}

module.exports = {
  Store, Topic, Group, Work, Pending, Session, TopicQuery, Verdict, Record, RecordPage,
  put, del, transaction, create, alter, destroy, expect,
}
