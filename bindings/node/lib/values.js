'use strict'
// Conversion of bytes and numbers; pages, and the objects that read them.

const { isUtf8 } = require('node:buffer')
const { inspect } = require('node:util')
const native = require('./native.js')
const { call, QueryError } = require('./errors.js')

const NO_BYTES = Buffer.alloc(0)
/** The class whose objects are Buffers. Its constructor takes a third of the time of `subarray`. */
const FastBuffer = Buffer[Symbol.species]
const KINDS = ['', 'CREATE', 'DESTROY', 'PUT', 'DELETE', 'ALTER', 'REPLACE']
const NONE = 0xffffffff

/** The bytes of a string or of an object with bytes. */
function bytes(data, what = 'data', kinds = 'a string or bytes') {
  if (typeof data === 'string') {
    // `Buffer.from` would write U+FFFD, and so give one key to different strings.
    if (!data.isWellFormed()) throw new TypeError(`${what} has half of a surrogate pair, which UTF-8 does not have`)
    return Buffer.from(data)
  }
  if (data instanceof Uint8Array) return data
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  if (data instanceof ArrayBuffer) return new Uint8Array(data)
  throw new TypeError(`${what} is ${kinds}, not ${data === null ? 'null' : typeof data}`)
}

/** The bytes of a value; an array or a plain object is converted to JSON. */
function content(value, what) {
  const asBytes = () => bytes(value, what, 'a string, bytes, an array or a plain object')
  if (value === null || typeof value !== 'object' || ArrayBuffer.isView(value)) return asBytes()
  const kind = Object.getPrototypeOf(value)
  if (!Array.isArray(value) && kind !== Object.prototype && kind !== null) return asBytes()
  const json = JSON.stringify(value, finite)
  if (json === undefined) throw new TypeError(`${what ?? 'data'} has no JSON`)
  return Buffer.from(json)
}

/** Rejects NaN and Infinity, which JSON lacks and `JSON.stringify` would silently write as null. */
function finite(key, value) {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`${key || 'a number'} is ${value}, which JSON does not have`)
  return value
}

/** A JSON scalar as text; a bigint keeps all its digits. */
function scalar(value, what) {
  if (typeof value === 'bigint') return String(value)
  const json = JSON.stringify(value, (key, part) => finite(key || what, part))
  if (json === undefined) throw new TypeError(`${what} is a JSON scalar, not ${typeof value}`)
  return json
}

/** Characters of a key or value that the summary of a record shows. */
const SUMMARY_CHARS = 100

/** The beginning of a text, or the number of bytes if they are not UTF-8. */
function summary(view) {
  if (!isUtf8(view)) return `<${view.length} bytes>`
  // A character has up to two units of UTF-16 and up to four bytes.
  const start = view.toString('utf8', 0, SUMMARY_CHARS * 4 + 4)
  const characters = Array.from(start.slice(0, SUMMARY_CHARS * 2 + 2))
  return characters.length > SUMMARY_CHARS ? `${characters.slice(0, SUMMARY_CHARS).join('')}…` : start
}

/** A line of text: white space is a blank, other control characters are U+FFFD. */
const printable = (text) => text.replace(/[\t\n\r]/g, ' ').replace(/\p{Cc}/gu, '\ufffd')

/** `bytes`, or undefined without data. */
const maybeBytes = (data, what) => (data === undefined || data === null ? undefined : bytes(data, what))

/** A number as `bigint`, or undefined. */
const big = (value) => (value === undefined || value === null ? undefined : BigInt(value))

/** A number that must not be absent, as `bigint`. */
function needed(value, what) {
  if (value === undefined || value === null) throw new TypeError(`${what} is a number, not ${value}`)
  return BigInt(value)
}

/** Rejects options with other names, which would be ignored. */
function known(options, names, what) {
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new TypeError(`${what} has no option ${name}`)
  }
}

/** Converts an object of numbers for the native module. */
function settings(options) {
  return Object.entries(options).map(([name, value]) => {
    const fits = value === null || ['number', 'bigint', 'undefined'].includes(typeof value)
    if (!fits) throw new TypeError(`${name} is not an option, or its value is not a number`)
    return { name, value: big(value) }
  })
}

/** Decodes a JSON value; an array or object is returned as text. */
function decodeAt(view, path, missing, nested) {
  const found = call(() => native.find(view, path))
  if (!found) return missing
  const [at, length, isNested] = found
  return isNested ? nested(at, length) : JSON.parse(view.toString('utf8', at, at + length))
}

/** Releases memory, unless it was transferred. */
function detach(buffer) {
  if (buffer.byteLength > 0) native.detach(buffer)
}

function releasedError() {
  return new TypeError('the page was released')
}

/** Memory that many views share and that can be released at once. */
class Memory {
  constructor(view) {
    this.view = Buffer.from(view.buffer, view.byteOffset, view.byteLength)
    this.released = false
  }
  cut(at, length) {
    if (this.released) throw releasedError()
    return this.view.subarray(at, at + length)
  }
  release() {
    if (this.released) return
    this.released = true
    const { buffer } = this.view
    this.view = NO_BYTES
    detach(buffer)
  }
}

class Record {
  #memory
  #table
  #at
  constructor(memory, table, at) {
    this.#memory = memory
    this.#table = table
    this.#at = at
  }
  #number(field) {
    return this.#table.numbers[this.#at * 4 + field]
  }
  #part(field) {
    const index = this.#at * 8 + 2 + field * 2
    return this.#memory.cut(this.#table.spans[index], this.#table.spans[index + 1])
  }
  get offset() {
    return this.#number(0)
  }
  get intention() {
    return this.#number(1)
  }
  get timeMs() {
    return Number(this.#number(2))
  }
  get nonce() {
    return this.#number(3)
  }
  get kind() {
    return KINDS[this.#table.spans[this.#at * 8]]
  }
  get transaction() {
    return (this.#table.spans[this.#at * 8 + 1] & 2) !== 0
  }
  get final() {
    return (this.#table.spans[this.#at * 8 + 1] & 1) !== 0
  }
  get replay() {
    return this.#table.replay === true
  }
  get key() {
    return this.#part(0)
  }
  get value() {
    return this.#part(1)
  }
  get meta() {
    return this.#part(2)
  }
  text() {
    return this.value.toString()
  }
  json() {
    return JSON.parse(this.text())
  }
  get(path, missing) {
    const { value } = this
    return decodeAt(value, path, missing, (at, length) => value.subarray(at, at + length))
  }
  toBuffer() {
    return Buffer.from(this.value)
  }
  /** The fields that a summary shows: a key or value only if the record has one. */
  #fields() {
    const { offset, kind, key, value } = this
    const isPut = kind === 'PUT'
    const shown = { offset, kind }
    if (isPut || key.length + value.length > 0) shown.key = summary(key)
    if (isPut || value.length > 0) shown.value = summary(value)
    return shown
  }
  toString() {
    const { offset, kind, key, value } = this.#fields()
    const content = value === undefined ? key : `${key}=${value}`
    return content === undefined ? `${offset} ${kind}` : `${offset} ${kind} ${printable(content)}`
  }
  [inspect.custom](depth, options) {
    return `Record ${inspect(this.#fields(), options)}`
  }
}

class RecordPage {
  #memory
  #table
  constructor(table) {
    this.#table = table
    this.#memory = new Memory(table.bytes)
    this.length = table.numbers.length / 4
  }
  at(index) {
    const at = index < 0 ? this.length + index : index
    return at >= 0 && at < this.length ? new Record(this.#memory, this.#table, at) : undefined
  }
  *[Symbol.iterator]() {
    for (let at = 0; at < this.length; at++) yield new Record(this.#memory, this.#table, at)
  }
  get first() {
    return this.at(0)?.offset
  }
  get last() {
    return this.at(-1)?.offset
  }
  get released() {
    return this.#memory.released
  }
  release() {
    this.#memory.release()
  }
}

/** The only record of a table. */
const record = (table) => (table ? new RecordPage(table).at(0) : undefined)

/** Counts of numbers in the table of a page: its head, and the first and second part of each item. */
const HEAD = 4
const SPAN = 2
const MARKS = 5
/** Receives the size of a page from the native module if there is no room for the page. */
const HEAD_TABLE = new Uint32Array(HEAD)
/** Largest buffer, in bytes, that a query retains for its next page. */
const REUSED_BYTES_MAX = 4 << 20

/** Memory for the next page of a query. Released memory without views is reused here. */
class PageBuffers {
  table = HEAD_TABLE
  bytes = NO_BYTES
  /** Grows the memory to the size of the page in the table. Returns whether it had to grow. */
  growIfNeeded() {
    const [count, size] = this.table
    const numbers = HEAD + count * (SPAN + MARKS)
    const enough = this.table.length >= numbers && this.bytes.length >= size
    if (this.table.length < numbers) this.table = new Uint32Array(numbers)
    if (this.bytes.length < size) this.bytes = Buffer.allocUnsafeSlow(size)
    return !enough
  }
  /** The page that was written here. */
  page() {
    const page = new Page(this.table, this.bytes, this)
    this.table = HEAD_TABLE
    this.bytes = NO_BYTES
    return page
  }
}

/** The data that items read. */
class Results {
  released = false
  /** Whether there is a view of the bytes, or of the table (`hasTableView`). */
  hasByteView = false
  hasTableView = false
  constructor(table, bytes, buffers, topics) {
    this.table = table
    this.bytes = bytes
    // To read them from `bytes` for each view takes longer than the view.
    this.memory = bytes.buffer
    this.start = bytes.byteOffset
    this.buffers = buffers
    this.topics = topics
    this.length = table[0]
    this.size = table[1]
    this.marks = HEAD + table[0] * SPAN
  }
  /** A number of the table. */
  number(at) {
    if (this.released) throw releasedError()
    return this.table[at]
  }
  /** A view for internal use only. */
  peek(at, length) {
    if (this.released) throw releasedError()
    return new FastBuffer(this.memory, this.start + at, length)
  }
  cut(at, length) {
    this.hasByteView = true
    return this.peek(at, length)
  }
  text(at, length) {
    if (this.released) throw releasedError()
    return this.bytes.toString('utf8', at, at + length)
  }
  spans() {
    if (this.released) throw releasedError()
    this.hasTableView = true
    return this.table.subarray(HEAD, this.marks)
  }
  /** A row for each item, with a view of the value at each path. */
  values(paths) {
    if (this.released) throw releasedError()
    const items = this.table.subarray(HEAD, this.marks)
    const found = call(() => native.findEach(this.bytes, items, paths))
    const view = (at) => (found[at + 1] ? this.cut(found[at], found[at + 1]) : undefined)
    const row = (_, row) => paths.map((_, path) => view((row * paths.length + path) * 2))
    return Array.from({ length: this.length }, row)
  }
  item(row) {
    if (this.released) throw releasedError()
    const at = HEAD + row * SPAN
    return new Item(this, row, this.table[at], this.table[at + 1])
  }
  release() {
    if (this.released) return
    this.released = true
    const { table, bytes, buffers, hasByteView, hasTableView } = this
    // Memory with a view must not be reused for the next page.
    const isReusable = (memory, current) => memory.byteLength <= REUSED_BYTES_MAX && memory.length > current.length
    if (buffers && !hasTableView && isReusable(table, buffers.table)) buffers.table = table
    if (buffers && !hasByteView && isReusable(bytes, buffers.bytes)) buffers.bytes = bytes
    else detach(this.memory)
  }
}

class Item {
  #page
  #row
  #at
  #length
  /** The item of a row of a page, or a part of that item. */
  constructor(page, row, at, length) {
    this.#page = page
    this.#row = row
    this.#at = at
    this.#length = length
  }
  #mark(field) {
    return this.#page.number(this.#page.marks + this.#row * MARKS + field)
  }
  get source() {
    const source = this.#mark(0)
    return source === NONE ? undefined : source
  }
  get index() {
    return this.#mark(1)
  }
  get constructed() {
    return this.#mark(2) === 1
  }
  get pageNumber() {
    return this.#mark(3) + this.#mark(4) * 2 ** 32
  }
  get topic() {
    return this.#page.topics?.get(this.#mark(0))
  }
  get bytes() {
    return this.#page.cut(this.#at, this.#length)
  }
  get length() {
    return this.#length
  }
  text() {
    return this.#page.text(this.#at, this.#length)
  }
  json() {
    return JSON.parse(this.text())
  }
  get(path, missing) {
    const nested = (at, length) => new Item(this.#page, this.#row, this.#at + at, length)
    return decodeAt(this.#page.peek(this.#at, this.#length), path, missing, nested)
  }
  toBuffer() {
    return Buffer.from(this.#page.peek(this.#at, this.#length))
  }
}

/** The items of a page in order. */
class Items {
  #page
  #next = 0
  constructor(page) {
    this.#page = page
  }
  [Symbol.iterator]() {
    return this
  }
  next() {
    const row = this.#next
    if (row >= this.#page.length) return { done: true, value: undefined }
    this.#next = row + 1
    return { done: false, value: this.#page.item(row) }
  }
}

class Page {
  #inner
  constructor(table, bytes, buffers, topics) {
    this.#inner = new Results(table, bytes, buffers, topics)
    this.length = table[0]
    this.skipped = table[2] + table[3] * 2 ** 32
  }
  at(index) {
    const row = index < 0 ? this.length + index : index
    return row >= 0 && row < this.length ? this.#inner.item(row) : undefined
  }
  [Symbol.iterator]() {
    return new Items(this.#inner)
  }
  values(...paths) {
    return this.#inner.values(paths)
  }
  get spans() {
    return this.#inner.spans()
  }
  get bytes() {
    return this.#inner.cut(0, this.#inner.size)
  }
  get released() {
    return this.#inner.released
  }
  release() {
    this.#inner.release()
  }
}

module.exports = {
  big, bytes, content, known, maybeBytes, needed, scalar, settings,
  record, Record, RecordPage, Item, Page, PageBuffers, QueryError,
}
