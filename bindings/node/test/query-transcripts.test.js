'use strict'
// Runs the transcripts of `vectors/query`, which every language runs.
// `crates/weir-query/tests/query/script.rs` defines their commands.

const assert = require('node:assert')
const { after, test } = require('node:test')
const { printable, transcripts, weir } = require('./support.js')

const BUDGETS = {
  buffer: 'bufferBytesMax', ahead: 'pagesAhead', sort: 'sortBytesMax', groups: 'groupsMax',
  distinct: 'distinctMax', sources: 'sourcesMax', item: 'itemBytesMax', depth: 'depthMax',
}

const cut = (line) => {
  const at = line.indexOf(' ')
  return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1)]
}
const page = (text) => text.replaceAll('\\n', '\n')

class Runner {
  fields = {}
  budgets = {}
  sources = new Map()
  options = new Map()
  out = []

  run(line) {
    const [word, rest] = cut(line)
    try {
      this[word](rest)
    } catch (error) {
      if (!(error instanceof weir.WeirError)) throw error
      this.out.push(`${error.code}: ${error.message}`)
    }
  }
  set(rest) {
    const [field, value] = cut(rest)
    const fields = {
      distinct: ['distinct', true], strings: ['strings', 'utf16'], complex: ['complex', 'rank'],
      missing: ['missing', 'drop'], strict: ['level', 'strict'],
      bad: ['onBadItem', value === 'skip' ? 'skip' : 'undefined'],
    }
    if (field === 'none') this.fields = {}
    else if (field === 'param') {
      const [name, text] = cut(value)
      this.fields.params = { ...this.fields.params, [name]: JSON.parse(text) }
    } else if (field in fields) this.fields[fields[field][0]] = fields[field][1]
    else this.fields[field] = value
  }
  budget(rest) {
    const [name, value] = cut(rest)
    this.budgets[BUDGETS[name]] = Number(value)
  }
  make(token) {
    this.sources.clear()
    this.query = undefined
    this.query = new weir.Query({ ...this.fields, budgets: this.budgets, token })
  }
  open() {
    this.make()
  }
  resume() {
    this.make(this.token)
  }
  stop() {
    this.token = this.query.token()
    this.query = undefined
  }
  explain() {
    this.out.push(...this.query.explain().trimEnd().split('\n'))
  }
  name(number) {
    for (const [name, source] of this.sources) if (source.number === number) return name
    return '?'
  }
  need({ source, continuation, required }) {
    const token = continuation ? ` ${continuation}` : ''
    this.out.push(`${required ? 'need' : 'ahead'} ${this.name(source.number)}${token}`)
  }
  needs() {
    this.query.needs().forEach((need) => this.need(need))
  }
  next(rest) {
    const step = this.query.next({ maxItems: rest ? Number(rest) : 256 })
    if (step.kind === 'done') this.out.push('done')
    else if (step.kind === 'need') step.needs.forEach((need) => this.need(need))
    else {
      for (const item of step.page) {
        const name = item.constructed ? 'constructed' : this.name(item.source)
        this.out.push(`${name} ${printable(item.bytes)}`)
      }
      if (step.page.skipped) this.out.push(`skipped ${step.page.skipped}`)
      step.page.release()
    }
  }
  values(rest) {
    const { page } = this.query.next()
    for (const row of page.values(...rest.split(' '))) {
      this.out.push(row.map((value) => value?.toString() ?? '-').join(' | '))
    }
    page.release()
  }
  source(rest) {
    const [name, words] = cut(rest)
    const options = { name }
    const flags = {
      sorted: ['sorted', true], trusted: ['trustOrder', true], unstable: ['stable', false],
      partial: ['partial', true], strict: ['level', 'strict'], none: ['level', 'none'],
    }
    for (const word of words.split(' ').filter(Boolean)) {
      const at = word.indexOf('=')
      const [key, value] = at < 0 ? [word, ''] : [word.slice(0, at), word.slice(at + 1)]
      if (key in flags) options[flags[key][0]] = flags[key][1]
      else if (key === 'bound') options.bound = value.split(',').map((one) => JSON.parse(one))
      else if (key.startsWith('meta.')) options.meta = { ...options.meta, [key.slice(5)]: JSON.parse(value) }
      else options[key] = value
    }
    this.sources.set(name, this.query.addSource(options))
    this.options.set(name, options)
  }
  at(name) {
    return this.sources.get(name) ?? 99
  }
  page(rest) {
    const [name, more] = cut(rest)
    const [next, text] = cut(more)
    this.query.enqueue(this.at(name), page(text), next)
  }
  frames(rest) {
    const [name, more] = cut(rest)
    const [text, data] = cut(more)
    const value = (text) => (text.includes('+') ? text.split('+').map(Number) : BigInt(text))
    const items = text.split(',').map((item) => item.split('/'))
    const meta = {}
    for (const [at, [, ...words]] of items.entries()) {
      for (const word of words) {
        const [key, text] = word.split('=')
        meta[key] ??= items.map(() => null)
        meta[key][at] = value(text)
      }
    }
    const frames = items.map(([span]) => value(span))
    this.query.enqueue(this.at(name), page(data), undefined, { frames, meta })
  }
  last(rest) {
    const [name, text] = cut(rest)
    this.query.enqueue(this.at(name), page(text))
  }
  finish(rest) {
    this.query.finish(this.at(rest))
  }
  abandon(rest) {
    this.query.abandon(rest)
  }
  watermark(rest) {
    const [name, ...keys] = rest.split(' ')
    this.query.watermark(this.at(name), ...keys.map((key) => JSON.parse(key)))
  }
  split(rest) {
    const [name, ...words] = rest.split(' ').filter(Boolean)
    const parts = words.map((word) => {
      const [part, first] = word.split('=')
      return { ...this.options.get(name), name: part, ordinal: undefined, first: first || undefined }
    })
    const added = this.query.replace(this.at(name), parts)
    parts.forEach((part, at) => {
      this.sources.set(part.name, added[at])
      this.options.set(part.name, part)
    })
  }
}

const all = transcripts('query')
let commands = 0
for (const { name, blocks } of all) {
  test(`query transcript ${name}`, () => {
    const runner = new Runner()
    blocks.forEach((block, at) => {
      runner.out = []
      for (const line of block.commands) runner.run(line)
      commands += block.commands.length
      assert.deepStrictEqual(runner.out, block.printed, `block ${at + 1}`)
    })
  })
}
test('there are transcripts', () => assert.ok(all.length >= 9))
after(() => console.log(`vectors/query: ${all.length} transcripts, ${commands} commands`))
