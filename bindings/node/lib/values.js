'use strict'
// Bytes and numbers on their way in and out; pages, and what looks into them.

const native = require('./native.js')
const { call, QueryError } = require('./errors.js')

const KINDS = ['', 'CREATE', 'DESTROY', 'PUT', 'DELETE', 'ALTER', 'REPLACE']
const NONE = 0xffffffff

/** Bytes of a string, or bytes as they are. */
function bytes(data, what = 'data') {
  if (typeof data === 'string') return Buffer.from(data)
  if (data instanceof Uint8Array) return data
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  if (data instanceof ArrayBuffer) return new Uint8Array(data)
  throw new TypeError(`${what} is a string or bytes, not ${data === null ? 'null' : typeof data}`)
}

/** The same, if there is any. */
const maybeBytes = (data, what) => (data === undefined || data === null ? undefined : bytes(data, what))

/** A number as `bigint`, if there is one. */
const big = (value) => (value === undefined || value === null ? undefined : BigInt(value))

/** Numbers by name. */
function settings(options) {
  return Object.entries(options).map(([name, value]) => ({ name, value: big(value) }))
}

/** What a value in JSON stands for: text of an array or object, else decoded. */
function decoded(view, path, missing, nested) {
  const found = call(() => native.find(view, path))
  if (!found) return missing
  const [at, length, isNested] = found
  const part = view.subarray(at, at + length)
  return isNested ? nested(at, length) : JSON.parse(part.toString())
}

/** Memory that many views share and that can be given back at once. */
class Memory {
  constructor(view) {
    this.view = Buffer.from(view.buffer, view.byteOffset, view.byteLength)
    this.released = false
  }
  cut(at, length) {
    if (this.released) throw new TypeError('the page was released')
    return this.view.subarray(at, at + length)
  }
  release() {
    if (this.released) return
    this.released = true
    const { buffer } = this.view
    this.view = Buffer.alloc(0)
    if (buffer.byteLength > 0) native.detach(buffer)
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
    const place = this.#at * 8 + 2 + field * 2
    return this.#memory.cut(this.#table.spans[place], this.#table.spans[place + 1])
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
    return decoded(value, path, missing, (at, length) => value.subarray(at, at + length))
  }
  toBuffer() {
    return Buffer.from(this.value)
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

/** Numbers of an item behind all spans: source, index, whether it was made, number of its page. */
const MARKS = 5

class Item {
  #page
  #row
  #at
  #length
  /** Of a page the item of a row, or a part of it. */
  constructor(page, row, at, length) {
    this.#page = page
    this.#row = row
    this.#at = at
    this.#length = length
  }
  #mark(field) {
    return this.#page.table[this.#page.marks + this.#row * MARKS + field]
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
    return this.#page.memory.cut(this.#at, this.#length)
  }
  get length() {
    return this.#length
  }
  text() {
    return this.bytes.toString()
  }
  json() {
    return JSON.parse(this.text())
  }
  get(path, missing) {
    const nested = (at, length) => new Item(this.#page, this.#row, this.#at + at, length)
    return decoded(this.bytes, path, missing, nested)
  }
  toBuffer() {
    return Buffer.from(this.bytes)
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
    const { table, length } = this.#page
    if (row >= length) return { done: true, value: undefined }
    this.#next = row + 1
    return { done: false, value: new Item(this.#page, row, table[row * 2], table[row * 2 + 1]) }
  }
}

class Page {
  /** What items look into. */
  #inner
  constructor({ bytes, table, skipped }, topics) {
    const length = table.length / (2 + MARKS)
    this.#inner = { memory: new Memory(bytes), table, length, marks: length * 2, topics }
    this.length = length
    this.skipped = skipped
  }
  at(index) {
    const row = index < 0 ? this.length + index : index
    if (!(row >= 0 && row < this.length)) return undefined
    const { table } = this.#inner
    return new Item(this.#inner, row, table[row * 2], table[row * 2 + 1])
  }
  [Symbol.iterator]() {
    return new Items(this.#inner)
  }
  get spans() {
    return this.#inner.table.subarray(0, this.length * 2)
  }
  get bytes() {
    const { memory } = this.#inner
    return memory.cut(0, memory.view.length)
  }
  get released() {
    return this.#inner.memory.released
  }
  release() {
    this.#inner.memory.release()
  }
}

module.exports = { big, bytes, maybeBytes, settings, record, Record, RecordPage, Item, Page, QueryError }
