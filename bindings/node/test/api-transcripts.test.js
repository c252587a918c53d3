'use strict'
// Runs the transcripts of `vectors/api`, which every language runs. The README in that folder defines
// their commands.

const assert = require('node:assert')
const { join } = require('node:path')
const { after, test } = require('node:test')
const { collect, temporaryDirectory, startServer, printable, transcripts, weir } = require('./support.js')

const cut = (line) => {
  const at = line.indexOf(' ')
  return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1)]
}
const empty = (word) => (word === '-' ? '' : word)
const value = (text) => text.replaceAll('\\n', '\n')

function conditions(text) {
  const makers = {
    offset: weir.expect.keyOffset,
    absent: (_, key) => weir.expect.keyAbsent(key),
    present: (_, key) => weir.expect.keyPresent(key),
    topic: weir.expect.topicOffset,
    'topic-absent-or': weir.expect.topicAbsentOr,
    'topic-empty': weir.expect.topicEmpty,
    incarnation: weir.expect.incarnation,
  }
  return text.split(',').filter(Boolean).map((one) => {
    const [what, key] = one.split('@')
    const [word, number] = what.split(':')
    return makers[word](number === undefined ? undefined : BigInt(number), key)
  })
}

function options(words) {
  const names = { key_bytes_max: 'keyBytesMax', value_bytes_max: 'valueBytesMax', keys_max: 'keysMax' }
  return Object.fromEntries(words.split(' ').filter(Boolean).map((word) => {
    const [name, value] = word.split('=')
    return name === 'compaction' ? [name, value] : [names[name], BigInt(value)]
  }))
}

function recordLine(record) {
  let line = `${record.offset} ${record.kind}`
  if (record.kind === 'DELETE') line += ` ${printable(record.key)}`
  if (record.kind === 'PUT') line += ` ${printable(record.key)}=${printable(record.value)}`
  return record.meta.length ? `${line} meta ${printable(record.meta)}` : line
}

function verdictLine(verdict) {
  let line = `${verdict.replayed ? 'again ' : ''}${verdict.effect.toLowerCase()} ${verdict.intention}`
  if (verdict.offset !== undefined) line += ` at ${verdict.offset}`
  if (verdict.records > 1) line += ` +${verdict.records - 1}`
  if (verdict.reason) line += ` ${verdict.reason}`
  const { actual, limit, index, reason, code, text, trap } = verdict.detail ?? {}
  if (actual !== undefined) line += ` actual ${actual}`
  else if (limit !== undefined) line += ` limit ${limit}`
  else if (index !== undefined) line += ` step ${index} ${reason}`
  else if (code !== undefined) line += ` rejected ${code} ${text}`
  else if (trap !== undefined) line += ` trap ${trap}`
  else if (text !== undefined) line += ` text ${text}`
  return line
}

function from(text) {
  if (text.startsWith('text:')) return { position: text.slice(5) }
  const [word, number] = text.split(':')
  return { [word]: number === undefined ? true : BigInt(number) }
}

class Closed extends Error {
  code = 'CLOSED'
}

class Runner {
  batch = []
  steps = []
  sessions = new Map()
  readers = new Map()
  groups = new Map()
  out = []

  /** In a directory, or at a server. */
  constructor(directory, server) {
    this.directory = directory
    this.server = server
  }
  async run(line) {
    const [word, rest] = cut(line)
    try {
      await this[word.replaceAll('-', '_')](rest)
    } catch (error) {
      if (!(error instanceof weir.WeirError || error instanceof Closed)) throw error
      const refused = error.expected !== undefined
      this.out.push(refused ? `refused ${error.code} next ${error.expected}` : `! ${error.code}`)
    }
  }
  get open_store() {
    if (!this.store) throw new Closed()
    return this.store
  }
  topic(name) {
    return this.open_store.topic(name)
  }
  async open() {
    this.store = this.server
      ? await weir.connect(this.server)
      : await weir.open(this.directory, { durability: 'memory' })
  }
  close() {
    return this.open_store.close()
  }
  op(line) {
    const [word, after] = cut(line)
    const [topic, rest] = cut(after)
    const [key, text] = cut(rest)
    const [second, third] = cut(text)
    switch (word) {
      case 'create': return [topic, weir.create(options(rest))]
      case 'alter': return [topic, weir.alter(options(rest))]
      case 'destroy': return [topic, weir.destroy()]
      case 'transaction': {
        const steps = this.steps.splice(0)
        return [topic, weir.transaction(steps, { expect: conditions(rest) })]
      }
      case 'put': return [topic, weir.put(empty(key), value(text))]
      case 'put-meta': return [topic, weir.put(empty(key), value(third), { meta: second })]
      case 'put-if': return [topic, weir.put(empty(key), value(third), { expect: conditions(second) })]
      case 'delete': return [topic, weir.del(empty(rest))]
      case 'delete-if': return [topic, weir.del(empty(key), { expect: conditions(text) })]
      default: throw new Error(`no command ${word}`)
    }
  }
  async write(line) {
    const [topic, op] = this.op(line)
    this.print(await this.topic(topic).batch([op]))
  }
  print(verdicts) {
    for (const verdict of verdicts) this.out.push(verdictLine(verdict))
  }
  add(rest) {
    this.batch.push(this.op(rest))
  }
  async submit() {
    const batch = this.batch.splice(0)
    // An empty list is an error in languages that pass a list with its length.
    if (batch.length === 0) this.out.push('! BAD_OPTION')
    else this.print(await this.open_store.batch(batch))
  }
  send() {
    this.sent = this.open_store.batch(this.batch.splice(0))
  }
  async wait() {
    this.print(await this.sent)
  }
  step(rest) {
    const [word, more] = cut(rest)
    const [key, text] = cut(more)
    this.steps.push(word === 'put' ? weir.put(empty(key), value(text)) : weir.del(empty(key)))
  }
  async session(rest) {
    const [name, hex] = cut(rest)
    this.sessions.set(name, await this.open_store.session(Buffer.from(hex, 'hex')))
  }
  async as(rest) {
    const [name, command] = cut(rest)
    const intentions = command === 'submit' ? this.batch.splice(0) : [this.op(command)]
    this.print(await this.sessions.get(name).execute(intentions))
  }
  async nonce(name) {
    this.out.push(String(await this.sessions.get(name).nextNonce()))
  }
  resume(rest) {
    const [name, number] = cut(rest)
    return this.sessions.get(name).resume(BigInt(number))
  }
  async ensure(name) {
    this.out.push((await this.topic(name).ensure()) ? 'created' : 'there')
  }
  record(found) {
    this.out.push(found ? recordLine(found) : 'absent')
  }
  async get(rest) {
    const [name, key] = cut(rest)
    this.record(await this.topic(name).get(empty(key)))
  }
  async at(rest) {
    const [name, offset] = cut(rest)
    this.record(await this.topic(name).at(BigInt(offset)))
  }
  async scan(rest, values = false) {
    const [name, prefix, after, limit] = rest.split(' ')
    const settings = { after: empty(after) || undefined, limit: Number(limit) }
    const keys = await collect(this.topic(name).keys(empty(prefix), settings))
    for (const { key, offset } of keys) {
      const found = values ? ` ${printable((await this.topic(name).get(key)).value)}` : ''
      this.out.push(`${printable(key)} ${offset}${found}`)
    }
    if (keys.length === 0) this.out.push('done')
  }
  scan_values(rest) {
    return this.scan(rest, true)
  }
  async log(rest) {
    const [name, start] = cut(rest)
    for await (const record of this.topic(name).records(from(start))) this.record(record)
  }
  async listen(rest) {
    const [reader, name, start] = rest.split(' ')
    // The iterator resolves the position `end` at its first call, so this calls it now.
    const settings = { ...from(start) }
    if (settings.end) {
      const info = await this.topic(name).info()
      settings.end = undefined
      settings.after = info ? info.last : 0n
    } else if (settings.last !== undefined) {
      const { last } = await this.topic(name).info()
      settings.after = last > settings.last ? last - settings.last : 0n
      settings.last = undefined
    }
    this.readers.set(reader, { topic: this.topic(name), options: settings, unused: [] })
  }
  async next(rest) {
    const [name, count, ms] = rest.split(' ')
    const reader = this.readers.get(name)
    while (reader.unused.length < Number(count)) {
      const iterator = reader.topic.followPages({ ...reader.options, timeoutMs: Number(ms) })
      const { value: page } = await iterator.next()
      await iterator.return()
      if (!page) break
      reader.unused.push(...page)
      reader.options = { after: page.last }
    }
    const records = reader.unused.splice(0, Number(count))
    for (const record of records) this.record(record)
    if (records.length < Number(count)) this.out.push('timeout')
  }
  async info(name) {
    const info = await this.topic(name).info()
    if (!info) return void this.out.push('absent')
    const { live, first, last, keys } = info
    this.out.push(`${live ? 'live' : 'dead'} first ${first} last ${last} keys ${keys}`)
  }
  async topics(rest) {
    const found = await this.open_store.topics({ destroyed: rest === 'all' })
    this.out.push(...found.map((info) => info.name))
  }
  async group(rest) {
    const [name, topic, group, mode, member, ...words] = rest.split(' ')
    const settings = { member }
    for (const word of words) {
      const [option, text] = word.split('=')
      if (option === 'lease') settings.leaseMs = Number(text)
      else if (option === 'dead') settings.deadLetters = text
      else if (option === 'existing') settings.existing = true
      else if (option === 'start') Object.assign(settings, from(text))
      else settings[option] = Number(text)
    }
    const joined = await this.topic(topic).group(group, mode, settings)
    this.groups.set(name, { group: joined, claims: new Map() })
  }
  async claim(rest) {
    const [name, limit, ms] = rest.split(' ')
    const { group, claims } = this.groups.get(name)
    const work = await group.claim(Number(limit), { timeoutMs: Number(ms) })
    for (const one of work) {
      claims.set(String(one.offset), one.claim)
      this.out.push(`${recordLine(one.record)} attempt ${one.attempts}`)
    }
    if (work.length === 0) this.out.push('timeout')
  }
  named(name, offsets) {
    const { claims } = this.groups.get(name)
    return offsets.map((offset) => ({ claim: claims.get(offset) ?? 0n, offset: BigInt(offset) }))
  }
  lost(offsets) {
    this.out.push(...offsets.map((offset) => `lost ${offset}`))
  }
  async done(rest) {
    const [name, ...offsets] = rest.split(' ')
    this.lost(await this.groups.get(name).group.ack(this.named(name, offsets)))
  }
  done_soon(rest) {
    const [name, ...offsets] = rest.split(' ')
    return this.groups.get(name).group.ackSoon(this.named(name, offsets))
  }
  async fail(rest) {
    const [name, ms, ...offsets] = rest.split(' ')
    const settings = { delayMs: Number(ms) }
    this.lost(await this.groups.get(name).group.nack(this.named(name, offsets), settings))
  }
  async extend(rest) {
    const [name, ms, ...offsets] = rest.split(' ')
    this.lost(await this.groups.get(name).group.extend(this.named(name, offsets), Number(ms)))
  }
  take_over(name) {
    return this.groups.get(name).group.takeOver()
  }
  leave(name) {
    return this.groups.get(name).group.leave()
  }
  async reset(rest) {
    const [name, position] = cut(rest)
    ;(await this.groups.get(name).group.reset(from(position))).check()
  }
  async end(name) {
    ;(await this.groups.get(name).group.delete()).check()
  }
  async group_info(name) {
    const { cursor, lag, leased, waiting } = await this.groups.get(name).group.info()
    this.out.push(`cursor ${cursor} lag ${lag} leased ${leased} waiting ${waiting}`)
  }
}
for (const word of ['put', 'put-meta', 'put-if', 'delete', 'delete-if', 'create', 'alter', 'destroy', 'transaction']) {
  Runner.prototype[word.replaceAll('-', '_')] = function (rest) {
    return this.write(rest ? `${word} ${rest}` : word)
  }
}

/** Runs the blocks of a transcript and returns the number of commands. */
async function runBlocks(t, runner, blocks) {
  let commands = 0
  t.after(() => runner.store?.close())
  for (const [at, block] of blocks.entries()) {
    runner.out = []
    for (const line of block.commands) await runner.run(line)
    commands += block.commands.length
    assert.deepStrictEqual(runner.out, block.printed, `block ${at + 1}`)
  }
  return commands
}

const all = transcripts('api')
const counts = [0, 0]
for (const { name, blocks } of all) {
  test(`api transcript ${name}`, async (t) => {
    counts[0] += await runBlocks(t, new Runner(join(temporaryDirectory(t), 'store')), blocks)
  })
}
// At a server, without the transcripts about directories.
const skip = !process.env.WEIR_BINARY && 'no WEIR_BINARY'
const remote = all.filter(({ name }) => !name.startsWith('directory-'))
for (const { name, blocks } of remote) {
  test(`api transcript ${name}, served`, { skip }, async (t) => {
    const address = await startServer(t)
    counts[1] += await runBlocks(t, new Runner(undefined, address), blocks)
  })
}
test('there are transcripts', () => assert.ok(remote.length >= 8))
after(() => {
  console.log(`vectors/api: ${all.length} transcripts, ${counts[0]} commands`)
  if (!skip) console.log(`vectors/api, served: ${remote.length} transcripts, ${counts[1]} commands`)
})
