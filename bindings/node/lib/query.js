'use strict'
// The query engine over pages from any source.

const native = require('./native.js')
const { abortable, call, settle } = require('./errors.js')
const { big, bytes, known, maybeBytes, scalar, settings, PageBuffers } = require('./values.js')

/** Size in bytes above which a page is scanned in another thread. */
const LARGE = 256 << 10

const FIELDS = new Set([
  'where', 'order', 'select', 'group', 'distinct', 'offset', 'limit', 'top', 'params', 'strings',
  'complex', 'missing', 'level', 'onBadItem', 'mode', 'budgets', 'token',
])

/** JSON scalars by name. */
const namedValues = (values = {}) =>
  Object.entries(values).map(([name, value]) => ({ name, value: scalar(value, name) }))

/** Converts the fields of a query for the native module. */
function fields(options) {
  for (const name of Object.keys(options)) {
    if (!FIELDS.has(name)) throw new TypeError(`a query has no field ${name}`)
  }
  const { where, offset, limit, top, params, budgets, token, ...rest } = options
  return {
    ...rest,
    filter: where,
    offset: big(offset),
    limit: big(limit),
    top: big(top),
    params: namedValues(params),
    budgets: settings(budgets ?? {}),
    token: maybeBytes(token, 'token'),
  }
}

const SOURCE_OPTIONS = [
  'name', 'ordinal', 'shape', 'level', 'first', 'sorted', 'trustOrder', 'stable', 'tie', 'meta', 'bound', 'partial',
]

/** Converts the options of a source for the native module. */
function source(options) {
  known(options, SOURCE_OPTIONS, 'a source')
  const { name, ordinal, first, meta, bound, ...rest } = options
  return {
    ...rest,
    name: maybeBytes(name, 'name'),
    ordinal: big(ordinal),
    first: maybeBytes(first, 'first'),
    meta: namedValues(meta),
    bound: bound?.map((key) => scalar(key, 'a key of bound')),
  }
}

/** The offset and the length of a range of a page. A conversion to 32 bits would change any other number. */
function range([offset, len]) {
  for (const number of [offset, len]) {
    const fits = Number.isInteger(number) && number >= 0 && number <= 0xffffffff
    if (!fits) throw new TypeError(`a range has ${number}, not a whole number from 0 to 2^32 - 1`)
  }
  return [offset, len]
}

/** Converts the frames of a page for the native module. */
function framesToNative(options = {}) {
  known(options, ['frames', 'meta'], 'a page')
  const { frames, meta } = options
  if (frames === undefined && meta === undefined) return undefined
  const value = (property) => {
    if (property === null || property === undefined) return {}
    if (!Array.isArray(property)) return { number: BigInt(property) }
    const [offset, len] = range(property)
    return { offset, len }
  }
  return {
    spans: Uint32Array.from((frames ?? []).flatMap(range)),
    meta: Object.entries(meta ?? {}).map(([name, values]) => ({ name, values: values.map(value) })),
  }
}

class Source {
  constructor(query, number) {
    this.query = query
    this.number = number
    Object.freeze(this)
  }
  get name() {
    return this.query.sourceName(this.number)?.toString()
  }
  enqueue(page, next, options) {
    this.query.enqueue(this, page, next, options)
  }
  enqueueLarge(page, next, options) {
    return this.query.enqueueLarge(this, page, next, options)
  }
  finish() {
    this.query.finish(this)
  }
  watermark(...keys) {
    this.query.watermark(this, ...keys)
  }
  replace(parts) {
    return this.query.replace(this, parts)
  }
}

/** The number of a source, which callers give as an object or a number. */
const sourceNumber = (id) => (id instanceof Source ? id.number : id)

class Query {
  #inner
  #sources = new Map()
  /** Number of calls that advanced a source. */
  #advanced = 0
  #buffers = new PageBuffers()
  constructor(options = {}) {
    this.#inner = call(() => native.makeQuery(fields(options)))
  }
  #source(id) {
    let found = this.#sources.get(id)
    if (!found) this.#sources.set(id, (found = new Source(this, id)))
    return found
  }
  addSource(options = {}) {
    return this.#source(call(() => this.#inner.addSource(source(options))))
  }
  enqueue(id, page, next, options) {
    const [number, frames] = [sourceNumber(id), framesToNative(options)]
    call(() => this.#inner.enqueue(number, bytes(page, 'page'), maybeBytes(next, 'next'), frames))
    this.#advanced++
  }
  async enqueueLarge(id, page, next, options) {
    const [number, frames] = [sourceNumber(id), framesToNative(options)]
    await settle(() => this.#inner.enqueueLarge(number, bytes(page, 'page'), maybeBytes(next, 'next'), frames))
    this.#advanced++
  }
  finish(id) {
    call(() => this.#inner.finish(sourceNumber(id)))
    this.#advanced++
  }
  abandon(name) {
    call(() => this.#inner.abandon(bytes(name, 'name')))
  }
  watermark(id, ...keys) {
    call(() => this.#inner.watermark(sourceNumber(id), keys.map((key) => scalar(key, 'a key'))))
    this.#advanced++
  }
  replace(id, parts) {
    const ids = call(() => this.#inner.replace(sourceNumber(id), parts.map(source)))
    this.#advanced++
    return ids.map((id) => this.#source(id))
  }
  #need(need) {
    return {
      source: this.#source(need.source),
      continuation: need.continuation ? Buffer.from(need.continuation) : undefined,
      required: need.required,
      bytes: Number(need.bytes),
    }
  }
  next({ maxItems = 256, maxBytes = 1 << 20, ...others } = {}) {
    known(others, [], 'a step')
    const buffers = this.#buffers
    const step = () => this.#inner.next(maxItems, Number(maxBytes), buffers.table, buffers.bytes)
    let found = call(step)
    if (found === true && buffers.growIfNeeded()) found = call(step)
    if (found === true) return { kind: 'page', page: buffers.page() }
    if (found === false) return { kind: 'done' }
    return { kind: 'need', needs: found.map((need) => this.#need(need)) }
  }
  needs() {
    return call(() => this.#inner.needs()).map((need) => this.#need(need))
  }
  /**
   * The results, page by page. Calls `fetch` for all needed pages at the same time. `fetch` gets the
   * signal, which also ends the wait for a `fetch` that ignores the signal.
   */
  async *pages(fetch, { signal, ...bounds } = {}) {
    for (;;) {
      signal?.throwIfAborted()
      const step = this.next(bounds)
      if (step.kind === 'done') return
      if (step.kind === 'page') {
        yield step.page
        continue
      }
      const { number } = step.needs[0].source
      if (!fetch) call(() => this.#inner.missingPageError(number, false))
      const before = this.#advanced
      // Asynchronous, so that one that throws leaves no promise of the others unhandled.
      const all = () => Promise.all(step.needs.map(async (need) => fetch(need, { signal })))
      const fetched = await abortable(signal, all)
      for (const [at, found] of fetched.entries()) {
        if (!found) continue
        const [page, next] = found
        const { source, required } = step.needs[at]
        try {
          if (page.length > LARGE) await this.enqueueLarge(source, page, next)
          else this.enqueue(source, page, next)
        } catch (error) {
          // The query has no room for a page ahead, and requests it again later.
          if (required || error.code !== 'OVER_BUDGET') throw error
        }
      }
      if (this.#advanced === before) call(() => this.#inner.missingPageError(number, true))
    }
  }
  token() {
    return Buffer.from(call(() => this.#inner.token()))
  }
  explain() {
    return call(() => this.#inner.explain())
  }
  sourceName(id) {
    const name = call(() => this.#inner.sourceName(id))
    return name ? Buffer.from(name) : undefined
  }
  get bufferedBytes() {
    return Number(call(() => this.#inner.bufferedBytes()))
  }
  get skipped() {
    return Number(call(() => this.#inner.skipped()))
  }
}

module.exports = { Query, Source, fields }
