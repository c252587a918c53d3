'use strict'
// Arguments and errors of calls, and objects that only a promise references.

const assert = require('node:assert')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { test } = require('node:test')
const { pathToFileURL } = require('node:url')
const { setFlagsFromString } = require('node:v8')
const { runInNewContext } = require('node:vm')
const { PROGRAMS, collect, openStore, temporaryDirectory, startServerProcess, stop, weir } = require('./support.js')

test('an error of a verdict has its retry, its advice and the details', async (t) => {
  const { store, topic } = await openStore(t)
  const conflict = await topic.put('k', 'x', { expect: [weir.expect.keyPresent()] })
  assert.throws(() => conflict.check(), (error) => {
    assert.ok(error instanceof weir.VerdictError && error.advice.length > 0)
    assert.deepStrictEqual([error.code, error.number, error.retry], ['CONFLICT', 104, 'after'])
    return true
  })
  const shaped = store.topic('shaped')
  const program = readFileSync(join(PROGRAMS, 'json-shape.wasm'))
  ;(await shaped.create({ program, args: 'integer 0..9 $.n', fuelMax: 10_000_000 })).check()
  const rejected = await shaped.put('k', { n: 10 })
  assert.throws(() => rejected.check(), { code: 'REJECTED', message: /out of range: rule 1/ })
})

test('a directory is a path or a URL of a file', async (t) => {
  const path = join(temporaryDirectory(t), 'store')
  await (await weir.open(pathToFileURL(path))).close()
  await (await weir.open(path, { create: false })).close()
  await assert.rejects(weir.open(new URL('http://localhost/store')), TypeError)
})

test('a bigint is a JSON scalar, and NaN is not', () => {
  const query = new weir.Query({ where: "@.n == param('p')", order: '$.n', params: { p: 12n } })
  const source = query.addSource({ sorted: true })
  source.enqueue('[{"n":11},{"n":12}]')
  assert.strictEqual(query.next().page.at(0).text(), '{"n":12}')
  for (const bad of [NaN, Infinity, undefined]) {
    assert.throws(() => new weir.Query({ where: "@ == param('p')", params: { p: bad } }), /^TypeError: p is/)
    assert.throws(() => query.addSource({ bound: [bad] }), /^TypeError: a key of bound is/)
    assert.throws(() => source.watermark(bad), /^TypeError: a key is/)
  }
})

test('a store has limits of keys and values', async (t) => {
  const options = { durability: 'memory', orConnect: true, keyBytesMax: 4, valueBytesMax: 8n }
  const { topic } = await openStore(t, options)
  ;(await topic.put('1234', '12345678')).check()
  for (const [key, value] of [['12345', ''], ['1234', '123456789']]) {
    await assert.rejects(topic.put(key, value), { code: 'TOO_LARGE' })
  }
})

test('the state of a group has its positions', async (t) => {
  const { topic } = await openStore(t)
  for (const value of ['a', 'b', 'c']) await topic.append(value)
  const group = await topic.group('g')
  assert.strictEqual((await group.claim(2)).length, 2)
  const { cursor, frontier, last, unwrittenDeadLetters } = await group.info()
  assert.ok(cursor < frontier && frontier <= last, `${cursor} ${frontier} ${last}`)
  assert.deepStrictEqual([last, unwrittenDeadLetters], [4n, 0n])
})

test('half of a surrogate pair is an error', async (t) => {
  const { topic } = await openStore(t)
  for (const half of ['\ud800', 'a\udc00']) {
    await assert.rejects(topic.put(half, 'v'), /key has half of a surrogate pair/)
    await assert.rejects(topic.put('k', half), /value has half of a surrogate pair/)
  }
  ;(await topic.put('\u{1f600}', '\u{1f600}')).check()
  assert.strictEqual((await topic.get('\u{1f600}')).text(), '\u{1f600}')
})

test('options that would be ignored are errors', async (t) => {
  const { store, topic } = await openStore(t)
  const alone = { identity: ['certificate.pem'] }
  await assert.rejects(weir.connect('weir://127.0.0.1:1', alone), { code: 'BAD_OPTION', message: /alone/ })
  await assert.rejects(store.topic('t').create({ compaction: 'lates' }), /compaction is 'off' or 'latest', not lates/)
  const group = await topic.group('g')
  await assert.rejects(group.claim(0), { code: 'BAD_OPTION', message: /max is 0/ })
  const rejected = (call, text) => assert.rejects(call, { name: 'TypeError', message: text })
  await rejected(topic.put('k', 'v', { expects: [weir.expect.keyAbsent()] }), 'put has no option expects')
  await rejected(topic.transaction([{ ...weir.del('k'), if: 1 }]), 'delete has no option if')
  await rejected(collect(topic.records({ offset: 1 })), 'a read has no option offset')
  await rejected(collect(topic.follow({ timeout: 1 })), 'a listener has no option timeout')
  await rejected(topic.group('other', { lease: 1 }), 'a group has no option lease')
  await rejected(group.reset({ offset: 1 }), 'a position has no option offset')
  await rejected(topic.replace('', '', { expect: 'digest' }), 'a replacement has no option expect')
  await rejected(topic.alter({ program: '' }), 'alter has no option program or args; use replace')
  await rejected(collect(topic.keys('', { offset: 1 })), 'a scan of keys has no option offset')
  await rejected(collect(topic.latest({ timeout: 1 })), 'a read of keys has no option timeout')
  await rejected(group.claim(1, { timeout: 1 }), 'a claim has no option timeout')
  await rejected(group.nack([], { delay: 1 }), 'a return of work has no option delay')
  await rejected((await store.query('orders')).next({ timeout: 1 }), 'a step has no option timeout')
  await rejected(store.topics({ all: true }), 'a list of topics has no option all')
  await rejected(topic.batch([], { timeoutMs: 1 }), 'a batch has no option timeoutMs')
  await rejected(weir.connect('weir://127.0.0.1:1', { connectTimeout: 1 }), 'a connection has no option connectTimeout')
  const query = new weir.Query()
  assert.throws(() => query.next({ items: 1 }), { name: 'TypeError', message: 'a step has no option items' })
  assert.throws(() => query.addSource({ sort: true }), { name: 'TypeError', message: 'a source has no option sort' })
  const source = query.addSource()
  assert.throws(() => source.enqueue('[]', null, { frame: [] }), { name: 'TypeError', message: 'a page has no option frame' })
  assert.throws(() => source.enqueue('[]', null, { meta: { time: [1] } }), { code: 'BAD_OPTION' })
})

test('a range of a page is not converted to 32 bits', () => {
  const query = new weir.Query({ where: "meta('time') == 1" })
  const source = query.addSource({ shape: 'framed' })
  for (const bad of [-1, 0.5, NaN, undefined, 2 ** 32]) {
    const message = `a range has ${bad}, not a whole number from 0 to 2^32 - 1`
    for (const frames of [[[bad, 1]], [[0, bad]]]) {
      assert.throws(() => source.enqueue('1', null, { frames }), { name: 'TypeError', message })
    }
    const meta = { time: [[bad, 1]] }
    assert.throws(() => source.enqueue('1', null, { frames: [[0, 1]], meta }), { name: 'TypeError', message })
  }
  source.enqueue('12', null, { frames: [[0, 1], [1, 1]], meta: { time: [1, 2] } })
  assert.deepStrictEqual(Array.from(query.next().page, (item) => item.text()), ['1'])
})

test('an absent key, number or path is an error', async (t) => {
  const { topic } = await openStore(t)
  for (const absent of [undefined, null]) {
    const rejected = (call, what) => assert.rejects(call, { name: 'TypeError', message: `${what}, not ${absent}` })
    await rejected(topic.put(absent, 'v'), 'key is a string or bytes')
    await rejected(topic.delete(absent), 'key is a string or bytes')
    await rejected(topic.transaction([weir.put(absent, 'v')]), 'key is a string or bytes')
    for (const condition of [weir.expect.keyOffset(absent), weir.expect.topicOffset(absent)]) {
      await rejected(topic.put('k', 'v', { expect: [condition] }), `${condition.kind} is a number`)
    }
    await rejected(weir.open(absent), 'path is a string or a URL')
  }
  assert.deepStrictEqual((await collect(topic.records())).map((record) => record.kind), ['CREATE'])
})

test('a position of null is absent', async (t) => {
  const { topic } = await openStore(t)
  await topic.append('v')
  const found = await collect(topic.records({ after: null, last: 1 }))
  assert.deepStrictEqual(found.map((record) => record.text()), ['v'])
})

const served = { skip: !process.env.WEIR_BINARY && 'no WEIR_BINARY' }

test('writes for which the queue has no room wait in threads', served, async (t) => {
  const { address, server } = await startServerProcess(t)
  const store = await weir.connect(address, { patienceMs: 60_000 })
  t.after(() => store.close())
  const topic = store.topic('orders')
  await topic.ensure()
  const value = Buffer.alloc(500_000, 'x')
  await stop(server)
  let writes
  try {
    // More than the queue holds.
    writes = Array.from({ length: 40 }, (_, n) => topic.put(String(n), value))
    await new Promise((resolve) => setImmediate(resolve))
  } finally {
    server.kill('SIGCONT')
  }
  for (const verdict of await Promise.all(writes)) assert.ok(verdict.valid)
})

test('a session is not collected before its verdicts', served, async (t) => {
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc')
  const { address, server } = await startServerProcess(t)
  const store = await weir.connect(address)
  t.after(() => store.close())
  await store.topic('orders').ensure()
  let session = await store.session(Buffer.alloc(16, 7))
  await stop(server)
  try {
    const pending = session.send([['orders', weir.put('k', 'v')]])
    const dropped = new WeakRef(session)
    session = undefined
    for (let round = 0; round < 3; round++) {
      await new Promise((resolve) => setImmediate(resolve))
      collectGarbage()
    }
    assert.ok(dropped.deref(), 'the session was collected')
    server.kill('SIGCONT')
    assert.ok((await pending.verdicts)[0].valid)
  } finally {
    server.kill('SIGCONT')
  }
})
