'use strict'
// Stores: properties of the JavaScript API that the transcripts do not test.

const assert = require('node:assert')
const { createHash } = require('node:crypto')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { test } = require('node:test')
const { inspect } = require('node:util')
const { PROGRAMS, collect, openStore, temporaryDirectory, startServer, weir } = require('./support.js')

const code = (name, kind = weir.WeirError) => (error) => error instanceof kind && error.code === name

test('values are read as they were written', async (t) => {
  const { topic } = await openStore(t)
  const verdict = (await topic.put('k', '{"a":[1,{"b":"x\\u00e9"}],"n":1.5,"z":null}', { meta: 'm' })).check()
  assert.strictEqual(verdict.offset, 2n)
  const record = await topic.get(Buffer.from('k'))
  assert.deepStrictEqual([record.offset, record.kind, record.final, record.transaction], [2n, 'PUT', true, false])
  assert.strictEqual(record.key.toString(), 'k')
  assert.strictEqual(record.meta.toString(), 'm')
  assert.strictEqual(record.get('$.a[1].b'), 'x\u00e9')
  assert.strictEqual(record.get('$.z', 7), null)
  assert.strictEqual(record.get('$.none', 7), 7)
  assert.strictEqual(record.get('$.a').toString(), '[1,{"b":"x\\u00e9"}]')
  assert.strictEqual(record.json().n, 1.5)
  assert.strictEqual(await topic.get('none'), undefined)
  for (const value of [new Uint8Array([118]), new Uint8Array([118]).buffer, new DataView(new Uint8Array([118]).buffer)]) {
    ;(await topic.put('v', value)).check()
    assert.strictEqual((await topic.get('v')).text(), 'v')
  }
  await assert.rejects(topic.put('k', 1), TypeError)
})

test('arrays and plain objects are written as JSON', async (t) => {
  const { topic } = await openStore(t)
  const order = { state: 'open', total: 12, note: '\u00e4\n', parts: [1.5, null, true] }
  const bare = Object.assign(Object.create(null), { a: 1 })
  for (const value of [order, {}, [], [order, [order]], bare]) {
    ;(await topic.put('k', value)).check()
    assert.deepStrictEqual((await topic.get('k')).json(), value === bare ? { a: 1 } : value)
  }
  await assert.rejects(async () => topic.put('k', { a: [NaN] }), TypeError)
  await assert.rejects(async () => topic.put('k', { toJSON() {} }), TypeError)
  const first = (await topic.append(order)).check()
  assert.strictEqual((await topic.at(first.offset)).text(), JSON.stringify(order))
  const verdicts = await topic.batch([weir.put('a', order), weir.put('b', [1])])
  assert.ok(verdicts.every((verdict) => verdict.valid))
  const cycle = []
  cycle.push(cycle)
  for (const bad of [cycle, { n: 1n }, new Date(), new Map(), null, undefined, () => 1]) {
    await assert.rejects(async () => topic.put('k', bad), TypeError)
  }
  for (const key of [{}, []]) await assert.rejects(async () => topic.put(key, 'v'), TypeError)
  await assert.rejects(async () => topic.put('k', 5), /value is a string, bytes, an array or a plain object, not number/)
})

test('a position can be the argument, and a group needs no mode', async (t) => {
  const { topic } = await openStore(t)
  for (const value of ['a', 'b']) await topic.append(value)
  for (const position of ['-1', -1, '3', 3, 3n]) {
    assert.deepStrictEqual((await collect(topic.records(position))).map((record) => record.text()), ['b'])
  }
  const group = await topic.group('g', { position: '-1' })
  assert.deepStrictEqual((await group.info()).mode, 'shared')
  assert.deepStrictEqual((await group.claim()).map((work) => work.record.text()), ['b'])
})

test('a record prints its fields', async (t) => {
  const { topic } = await openStore(t)
  await topic.put('4711', { state: 'open' })
  const record = await topic.get('4711')
  assert.strictEqual(String(record), '2 PUT 4711={"state":"open"}')
  assert.strictEqual(String(await topic.at(1)), '1 CREATE')
  const shown = inspect(record)
  for (const part of ['offset: 2n', "kind: 'PUT'", "key: '4711'", '{"state":"open"}']) assert.ok(shown.includes(part), shown)
  await topic.put('long', 'x'.repeat(101))
  assert.strictEqual(String(await topic.get('long')), `3 PUT long=${'x'.repeat(100)}…`)
  await topic.put(Buffer.from([255]), Buffer.from([255, 0]))
  assert.strictEqual(String(await topic.get(Buffer.from([255]))), '4 PUT <1 bytes>=<2 bytes>')
  for (const [length, end] of [[100, ''], [101, '…']]) {
    await topic.put('face', '\u{1f600}'.repeat(length))
    assert.ok(String(await topic.get('face')).endsWith(`PUT face=${'\u{1f600}'.repeat(100)}${end}`))
  }
  // A deleted key has no value, unlike a key with an empty one.
  await topic.put('k', '')
  await topic.delete('k')
  const [empty, deleted] = await collect(topic.records('-2'))
  assert.deepStrictEqual([String(empty), String(deleted)], ['7 PUT k=', '8 DELETE k'])
  assert.ok(!inspect(deleted).includes('value') && inspect(empty).includes("value: ''"))
  // A record is one line, without control characters.
  await topic.put('a\n9 PUT b', 'x\x1b[2J\ty')
  assert.strictEqual(String(await topic.at(9)), '9 PUT a 9 PUT b=x\ufffd[2J y')
})

test('a verdict that is not VALID is a value', async (t) => {
  const { topic } = await openStore(t)
  const verdict = await topic.put('k', 'x', { expect: [weir.expect.keyPresent()] })
  assert.deepStrictEqual([verdict.valid, verdict.effect, verdict.reason], [false, 'INVALID', 'CONFLICT'])
  assert.deepStrictEqual(verdict.detail, { actual: 0n })
  assert.throws(() => verdict.check(), code('CONFLICT', weir.VerdictError))
})

test('a program is replaced only where the expected one is', async (t) => {
  const { store } = await openStore(t)
  const [first, other] = ['nothing', 'vanilla'].map((name) => readFileSync(join(PROGRAMS, `${name}.wasm`)))
  const digest = (program) => createHash('sha256').update(program).digest()
  const topic = store.topic('judged')
  ;(await topic.create({ program: first })).check()
  const late = await topic.replace(other, '', { expected: digest(other) })
  assert.deepStrictEqual([late.valid, late.reason], [false, 'CONFLICT'])
  for (const options of [{ expected: digest(first) }, {}]) {
    ;(await topic.replace(other, '', options)).check()
  }
  assert.deepStrictEqual((await collect(topic.records())).map((one) => one.kind), ['CREATE', 'REPLACE', 'REPLACE'])
  await assert.rejects(topic.replace(other, '', { expected: 'short' }), code('BAD_OPTION'))
})

test('views end with their page, copies do not', async (t) => {
  const { topic } = await openStore(t)
  await topic.put('k', 'value')
  const [page] = await collect(topic.pages({ after: 1 }))
  const { value } = page.at(-1)
  const copy = page.at(0).toBuffer()
  assert.strictEqual(value.buffer, page.at(0).key.buffer)
  page.release()
  page.release()
  assert.ok(page.released)
  assert.strictEqual(value.length, 0)
  assert.strictEqual(copy.toString(), 'value')
  assert.throws(() => page.at(0).value, /released/)
  assert.strictEqual(page.at(0).offset, 2n)
  // A write of JavaScript into its page does not affect other pages.
  const [other] = await collect(topic.pages({ after: 1 }))
  other.at(0).value.fill(0)
  assert.strictEqual((await topic.get('k')).text(), 'value')
  assert.strictEqual((await collect(topic.pages({ after: 1 })))[0].at(0).text(), 'value')
})

test('a page outlives its store', async (t) => {
  const { store, topic } = await openStore(t)
  await topic.put('k', 'value')
  const [page] = await collect(topic.pages())
  await store.close()
  assert.strictEqual(page.at(1).text(), 'value')
})

test('more listeners than threads receive every record', async (t) => {
  const { topic } = await openStore(t)
  const received = Array.from({ length: 50 }, async () => {
    const found = []
    for await (const record of topic.follow({ after: 1 })) {
      found.push(record.offset)
      if (found.length === 3) return found
    }
  })
  await Promise.all(['a', 'b', 'c'].map((value) => topic.append(value)))
  for (const found of await Promise.all(received)) assert.deepStrictEqual(found, [2n, 3n, 4n])
})

test('a signal or a timeout ends a wait', async (t) => {
  const { topic } = await openStore(t)
  const controller = new AbortController()
  const listening = collect(topic.followPages({ signal: controller.signal }))
  await topic.put('k', 'v')
  controller.abort()
  await assert.rejects(listening, { name: 'AbortError' })
  assert.deepStrictEqual(await collect(topic.followPages({ timeoutMs: 5 })), [])
  await assert.rejects(topic.put('k', 'v', { signal: AbortSignal.abort() }), { name: 'AbortError' })
})

test('latest values come before new records', async (t) => {
  const { topic } = await openStore(t)
  for (const [key, value] of [['b', '1'], ['a', '1'], ['b', '2']]) await topic.put(key, value)
  const found = (await collect(topic.latest())).map((r) => [r.key.toString(), r.text(), r.replay])
  assert.deepStrictEqual(found, [['a', '1', true], ['b', '2', true]])
})

test('writes share syncs', async (t) => {
  const { store, topic } = await openStore(t, {})
  assert.strictEqual(await store.durability(), 'group')
  const verdicts = await Promise.all(Array.from({ length: 300 }, (_, n) => topic.put(String(n), 'v')))
  assert.strictEqual(new Set(verdicts.map((verdict) => verdict.offset)).size, 300)
  assert.ok((await topic.put('large', Buffer.alloc(1 << 20))).valid)
  assert.strictEqual((await collect(topic.keys())).length, 301)
})

test('one object serves one call at a time', async (t) => {
  const { store, topic } = await openStore(t)
  const group = await topic.group('g')
  const claiming = group.claim(1, { timeoutMs: 30_000 })
  await assert.rejects(group.info(), { code: 'HANDLE_BUSY', number: 605 })
  await topic.append('x')
  assert.strictEqual((await claiming).length, 1)
  // This also holds if the first call need not wait.
  for (let n = 0; n < 20; n++) {
    const query = await store.query('orders', { select: 'count' })
    const first = query.next()
    await assert.rejects(query.next(), code('HANDLE_BUSY', weir.WeirError))
    assert.strictEqual((await first).at(0).text(), '1')
  }
  await store.sync()
})

test('calls of a closed store fail with CLOSED', async (t) => {
  const { directory, store, topic } = await openStore(t)
  const listening = topic.followPages({ start: true })
  await listening.next()
  const [group, query] = [await topic.group('g'), await store.query('orders')]
  const session = await store.session(Buffer.alloc(16, 7))
  await store.close()
  await store.close()
  assert.ok(store.closed)
  assert.throws(() => store.topic('x'), code('CLOSED', weir.StoreError))
  for (const use of [
    () => topic.put('k', 'v'),
    () => topic.get('k'),
    () => store.topics(),
    () => collect(topic.pages()),
    () => listening.next(),
    () => store.query('orders'),
    () => group.claim(),
    () => group.info(),
    () => query.next(),
    () => session.nextNonce(),
    () => session.execute([['orders', weir.put('k', 'v')]]),
  ]) {
    await assert.rejects(use(), code('CLOSED', weir.StoreError))
  }
  const again = await weir.open(join(directory, 'store'), { create: false })
  assert.deepStrictEqual((await again.topics()).map((info) => info.name), ['orders'])
  await again.close()
})

test('errors have a message and an advice', async (t) => {
  const { directory, store } = await openStore(t)
  assert.throws(() => store.topic('a b'), code('BAD_NAME', weir.RefusalError))
  await assert.rejects(weir.open(join(directory, 'store')), (error) => {
    assert.deepStrictEqual([error.name, error.code, error.retry], ['StoreError', 'LOCKED', 'after'])
    return error.advice.length > 0
  })
  await assert.rejects(weir.open(join(directory, 'no'), { create: false }), code('NOT_A_STORE'))
  await assert.rejects(weir.open(directory, { durability: 'some' }), code('BAD_OPTION'))
  await assert.rejects(store.topic('t').put('k'.repeat(100_000), ''), code('TOO_LARGE', weir.RefusalError))
  await assert.rejects(store.topic('t').create({ colour: 1 }), code('BAD_OPTION'))
  await assert.rejects(store.topic('t').at(-1), code('BAD_OPTION'))
  await assert.rejects(collect(store.topic('t').pages({ after: 1, last: 1 })), TypeError)
  await assert.rejects(collect(store.topic('t').pages({ position: '5', last: 1 })), TypeError)
  await assert.rejects(collect(store.topic('t').pages({ position: 'soon' })), code('BAD_OPTION'))
  await assert.rejects(weir.open(directory, { durabilty: 'memory' }), /durabilty is not an option/)
  assert.throws(() => new weir.Query({ filter: 'x' }), TypeError)
  const { WEIR_NATIVE_PATH } = process.env
  assert.ok(WEIR_NATIVE_PATH === undefined, 'the tests are of the installed package')
})

test('a number that is negative or not whole is an error with its name', async (t) => {
  const { directory, store, topic } = await openStore(t)
  const group = await topic.group('g')
  const work = [{ claim: 1, offset: 2 }]
  const query = await store.query('orders')
  const path = join(directory, 'other')
  for (const bad of [-1, 1.5, NaN, 2 ** 32]) {
    const message = (name) => ({ code: 'BAD_OPTION', message: `${name} is ${bad}, not a whole number from 0 to 2^32 - 1` })
    for (const name of ['leaseMs', 'attempts', 'pending']) {
      await assert.rejects(topic.group('other', { [name]: bad }), message(name))
    }
    await assert.rejects(group.claim(bad), message('max'))
    await assert.rejects(group.extend(work, bad), message('leaseMs'))
    await assert.rejects(group.nack(work, { delayMs: bad }), message('delayMs'))
    await assert.rejects(query.next({ maxItems: bad }), message('maxItems'))
    await assert.rejects(store.query('orders', { patienceMs: bad }), message('patienceMs'))
    await assert.rejects(weir.open(path, { durability: 'interval', intervalMs: bad }), message('intervalMs'))
    await assert.rejects(weir.connect('weir://127.0.0.1:1', { connectTimeoutMs: bad }), message('connectTimeoutMs'))
  }
  for (const timeoutMs of [-1, NaN]) {
    const message = `timeoutMs is ${timeoutMs}, not a number from 0`
    await assert.rejects(group.claim(1, { timeoutMs }), { code: 'BAD_OPTION', message })
  }
  assert.deepStrictEqual((await topic.groups()).map((one) => one.name), ['g'])
})

test('a query starts at a position', async (t) => {
  const { store, topic } = await openStore(t)
  for (const n of [0, 1, 2]) await topic.append(String(n))
  // The topic begins with the record of its creation.
  for (const [from, expected] of [['start', '012'], [{ after: 2 }, '12'], [-1, '2'], [{ end: true }, ''], ['1h', '012']]) {
    const found = await collect(await store.query('orders', { from }))
    assert.strictEqual(found.map((item) => item.text()).join(''), expected)
  }
  await assert.rejects(store.query('orders', { from: 'sometime' }), code('BAD_OPTION'))
  await assert.rejects(store.query('orders', { from: { after: 1, last: 1 } }), TypeError)
  await assert.rejects(store.query('orders', { from: 'end', view: 'latest' }), code('BAD_OPTION'))
})

async function readWithEachConsistency(store) {
  const topic = store.topic('levels')
  await topic.ensure()
  await topic.put('k', 'v')
  for (const consistency of ['local', 'leader', 'linear']) {
    const reads = store.withConsistency(consistency)
    assert.strictEqual((await reads.topic('levels').get('k')).text(), 'v')
    assert.strictEqual((await collect(await reads.query('levels')))[0].text(), 'v')
    await reads.close()
    assert.deepStrictEqual([reads.closed, store.closed], [true, false])
    await assert.rejects(reads.topics(), code('CLOSED'))
  }
  assert.throws(() => store.withConsistency('nearest'), { code: 'BAD_OPTION', message: /"nearest"/ })
  const reads = store.withConsistency('linear')
  await store.close()
  assert.ok(reads.closed)
  await assert.rejects(reads.topics(), code('CLOSED'))
}

test('a directory reads the same with every consistency', async (t) => {
  await readWithEachConsistency((await openStore(t)).store)
})

test('a single server reads the same with every consistency', async (t) => {
  await readWithEachConsistency(await weir.connect(await startServer(t)))
})

test('topics of a store are queried', async (t) => {
  const { store, topic } = await openStore(t)
  await store.topic('people').ensure()
  await topic.batch([0, 1, 2, 3].map((n) => weir.put(`o${n}`, JSON.stringify({ n, by: n % 2 }))))
  await store.topic('people').put('p', '{"n":2.5}')
  const query = await store.query(['orders', 'people'], { where: '@.n > 1', order: '$.n desc' })
  const found = (await collect(query)).map((item) => [item.topic, item.get('$.n')])
  assert.deepStrictEqual(found, [['orders', 3], ['people', 2.5], ['orders', 2]])
  const counted = await store.query('orders', { select: 'count as n', group: '$.by as by', order: '$.by' })
  assert.deepStrictEqual((await collect(counted)).map((item) => item.json()), [{ by: 0, n: 2 }, { by: 1, n: 2 }])
  await assert.rejects(store.query('none'), code('TOPIC_UNKNOWN'))
  await assert.rejects(store.query('orders', { where: '@.n >' }), (error) => error.field === 'where')

  const following = await store.query('orders', { follow: true, select: '$.n', where: '@.n > 3' })
  assert.strictEqual(await following.next({ timeoutMs: 5 }), undefined)
  await topic.put('o9', '{"n":9}')
  assert.strictEqual((await following.next()).at(0).text(), '9')
  const again = await store.query('orders', { follow: true, select: '$.n', where: '@.n > 3', token: following.token() })
  await topic.put('o8', '{"n":8}')
  assert.strictEqual((await again.next()).at(0).text(), '8')
  const waiting = again.next()
  again.cancel()
  await assert.rejects(waiting, code('CANCELLED'))
})

test('pages ahead that exceed the budget are requested again', async () => {
  let fetched = 0
  const fetch = async ({ source, continuation }) => {
    fetched++
    const at = Number(continuation ?? 0)
    const page = `[${10 * at + source.number}]`.padEnd(at === 0 ? 30 : 60)
    return at < 3 ? [page, String(at + 1)] : [page]
  }
  const budgets = { bufferBytesMax: 150, pageBytesHint: 1, pagesAhead: 2 }
  const query = new weir.Query({ order: '$', budgets })
  for (let at = 0; at < 3; at++) query.addSource({ sorted: true })
  const found = []
  for await (const page of query.pages(fetch)) {
    for (const item of page) found.push(Number(item.text()))
    page.release()
  }
  assert.deepStrictEqual(found, [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32])
  assert.ok(fetched > found.length)
})

test('needed pages are fetched at the same time, and pages are released', async () => {
  const pages = {
    a: { '': ['[{"n":1},{"n":4}]', 'a2'], a2: ['[{"n":6}]'] },
    b: { '': ['[{"n":2}]', 'b2'], b2: [`[{"n":5}]${' '.repeat(300_000)}`] },
  }
  let together = 0
  let most = 0
  const fetch = async ({ source, continuation }) => {
    most = Math.max(most, ++together)
    await null
    together--
    return pages[source.name][continuation ?? '']
  }
  const query = new weir.Query({ order: '$.n' })
  for (const name of ['a', 'b']) query.addSource({ name, sorted: true })
  const found = []
  for await (const page of query.pages(fetch)) {
    for (const item of page) found.push(item.get('$.n'))
    page.release()
  }
  assert.deepStrictEqual(found, [1, 2, 4, 5, 6])
  assert.strictEqual(most, 2)
})

test('a fetch receives the signal, which ends the wait for it', { timeout: 60_000 }, async () => {
  const query = new weir.Query()
  query.addSource({ name: 'north' })
  const controller = new AbortController()
  let given
  const fetch = (need, { signal }) => {
    given = signal
    queueMicrotask(() => controller.abort())
    // A host that never replies and ignores the signal.
    return new Promise(() => {})
  }
  const found = collect(query.pages(fetch, { signal: controller.signal }))
  await assert.rejects(found, { name: 'AbortError' })
  assert.strictEqual(given, controller.signal)
  // The query is still usable, and requests the page again.
  assert.deepStrictEqual(query.next().needs.map((need) => need.source.name), ['north'])
  // An error of `fetch` after the end is ignored.
  const again = new AbortController()
  let late
  const failing = () => new Promise((_, reject) => {
    late = reject
    queueMicrotask(() => again.abort(new Error('enough')))
  })
  await assert.rejects(collect(query.pages(failing, { signal: again.signal })), { message: 'enough' })
  late(new Error('too late'))
  await new Promise((resolve) => setImmediate(resolve))
})

test('a fetch that throws leaves no rejection of the others unhandled', async (t) => {
  const unhandled = []
  const note = (error) => unhandled.push(error.message)
  process.on('unhandledRejection', note)
  t.after(() => process.off('unhandledRejection', note))
  const query = new weir.Query({ order: '$' })
  for (const name of ['north', 'south']) query.addSource({ name, sorted: true })
  const fetch = ({ source }) => {
    if (source.name === 'south') throw new Error('no south')
    return Promise.reject(new Error('no north'))
  }
  await assert.rejects(collect(query.pages(fetch)), { message: /^no (north|south)$/ })
  await new Promise((resolve) => setImmediate(resolve))
  assert.deepStrictEqual(unhandled, [])
})

test('a fetch that enqueues nothing is an error', async () => {
  const idle = async () => {}
  for (const [fetch, message] of [
    [undefined, 'a page of source north is needed; give `fetch`'],
    [idle, '`fetch` enqueued nothing, and a page of source north is needed'],
  ]) {
    const query = new weir.Query()
    const source = query.addSource({ name: 'north' })
    await assert.rejects(collect(query.pages(fetch)), { code: 'BAD_OPTION', message })
    // The query is still usable.
    source.enqueue('[1,2]')
    assert.deepStrictEqual((await collect(query.pages())).map((page) => page.length), [2])
  }
  const query = new weir.Query()
  query.addSource()
  const finish = async ({ source }) => source.finish()
  assert.deepStrictEqual(await collect(query.pages(finish)), [])
})

test('errors of queries have a position', () => {
  assert.throws(() => new weir.Query({ order: '$.a, $$' }), (error) => {
    assert.deepStrictEqual([error.name, error.code, error.field, error.offset], ['QueryError', 'SYNTAX', 'order', 6])
    return true
  })
  const query = new weir.Query()
  const source = query.addSource({ name: 's' })
  assert.throws(() => source.enqueue('[1,}'), (error) => {
    assert.deepStrictEqual([error.source, error.sourceName, error.page, error.offset], [0, 's', 0, 3])
    return true
  })
  source.enqueue('[{"a":{"b":[1]}}]')
  const { page } = query.next()
  const inner = page.at(0).get('$.a')
  assert.deepStrictEqual([inner.text(), inner.get('$.b').json(), page.bytes.toString()], ['{"b":[1]}', [1], '{"a":{"b":[1]}}'])
})

test('items of a page are read with and without an object for each', () => {
  const query = new weir.Query({ order: '$.n', mode: 'sort' })
  const [a, b] = ['a', 'b'].map((name) => query.addSource({ name }))
  a.enqueue('[{"n":2},{"n":4}]', 'more')
  a.enqueue('[{"n":30}]')
  b.enqueue('[{"n":1}]')
  const { page } = query.next()
  const properties = Array.from(page, (item) => [item.source, item.index, item.pageNumber, item.constructed, item.text()])
  assert.deepStrictEqual(properties, [
    [1, 0, 0, false, '{"n":1}'],
    [0, 0, 0, false, '{"n":2}'],
    [0, 1, 0, false, '{"n":4}'],
    [0, 0, 1, false, '{"n":30}'],
  ])
  assert.deepStrictEqual([...page.spans], [0, 7, 7, 7, 14, 7, 21, 8])
  assert.deepStrictEqual([page.at(-1).get('$.n'), page.at(4), page.at(-5), page.at(NaN)], [30, undefined, undefined, undefined])
  const [value] = page.values('$.n')[3]
  assert.deepStrictEqual([value.toString(), page.values()], ['30', [[], [], [], []]])
  assert.throws(() => page.values('$.n', '$..n'), { code: 'NOT_SINGULAR' })
  assert.throws(() => page.values(...Array(65).fill('$.n')), { code: 'TOO_COMPLEX', message: 'more than 64 paths' })
  page.release()
  assert.strictEqual(value.length, 0)
})

test('a released page is unusable, and the next page may reuse its memory', () => {
  const query = new weir.Query()
  const source = query.addSource()
  source.enqueue('["a","b","c","d","e","f","g","hhh","ij"]')
  const next = () => query.next({ maxItems: 2 }).page
  const calls = (page, item) => [
    () => page.at(0), () => [...page], () => page.spans, () => page.bytes, () => item.bytes, () => item.text(),
    () => item.json(), () => item.get('$'), () => page.values('$'), () => item.toBuffer(), () => item.source, () => item.index,
    () => item.pageNumber, () => item.constructed,
  ]
  // There is no view of the first page, so its memory is reused for the next page.
  const first = next()
  const kept = first.at(0)
  assert.deepStrictEqual(Array.from(first, (item) => item.json()), ['a', 'b'])
  first.release()
  const second = next()
  first.release()
  for (const call of calls(first, kept)) assert.throws(call, /the page was released/)
  assert.deepStrictEqual([first.length, first.released, kept.length], [2, true, 3])
  // There are views of these two: views of bytes become empty, numbers do not change.
  const third = next()
  const { bytes, spans } = second
  const item = third.at(1).bytes
  second.release()
  third.release()
  assert.deepStrictEqual([bytes.length, item.length, [...spans]], [0, 0, [0, 3, 3, 3]])
  const fourth = next()
  assert.deepStrictEqual([fourth.bytes.toString(), bytes.length, item.length, [...spans]], ['"g""hhh"', 0, 0, [0, 3, 3, 3]])
  assert.deepStrictEqual([...fourth.spans], [0, 3, 3, 5])
  const fifth = next()
  fourth.release()
  assert.deepStrictEqual(Array.from(fifth, (one) => [one.index, one.text()]), [[8, '"ij"']])
  // The holder of a view may transfer its memory.
  structuredClone(null, { transfer: [fifth.bytes.buffer] })
  fifth.release()
})

test('a page keeps its bounds, and buffers grow for a larger page', () => {
  const query = new weir.Query()
  const sizes = [1, 3000, 10, 700_000, 2]
  query.addSource().enqueue(JSON.stringify(sizes.map((size) => 'x'.repeat(size))))
  for (const size of sizes) {
    const { page } = query.next({ maxBytes: 1 })
    assert.deepStrictEqual([page.length, page.at(0).json().length], [1, size])
    page.release()
  }
  assert.strictEqual(query.next().kind, 'done')
  for (const maxBytes of [-1, 1.5, NaN]) assert.throws(() => query.next({ maxBytes }), code('BAD_OPTION'))
})

test('a store at a server has the same interface', { skip: !process.env.WEIR_BINARY && 'no WEIR_BINARY' }, async (t) => {
  const store = await weir.connect(await startServer(t))
  const topic = store.topic('orders')
  assert.ok(await topic.ensure())
  await Promise.all(Array.from({ length: 100 }, (_, n) => topic.put(`k${n}`, JSON.stringify({ n }))))
  assert.strictEqual((await topic.put('k1', '', { expect: [weir.expect.keyAbsent()] })).reason, 'CONFLICT')
  assert.strictEqual((await topic.get('k7')).get('$.n'), 7)
  assert.strictEqual((await collect(topic.records())).length, 101)
  const query = await store.query('orders', { where: '@.n >= 98', order: '$.n' })
  assert.deepStrictEqual((await collect(query)).map((item) => item.get('$.n')), [98, 99])
  const listening = topic.follow({ timeoutMs: 30_000, after: 101 })
  const received = listening.next()
  await topic.append('later')
  assert.strictEqual((await received).value.text(), 'later')
  await listening.return()
  const group = await topic.group('g')
  const work = await group.claim(1000, { timeoutMs: 5000 })
  assert.deepStrictEqual(await group.ack(work), [])
  const session = await store.session(Buffer.alloc(16, 7))
  assert.ok((await session.execute([['orders', weir.put('s', '1')]]))[0].valid)
  assert.strictEqual(await session.nextNonce(), 2n)
  await store.close()
  await assert.rejects(store.topics(), code('CLOSED'))
  await assert.rejects(session.nextNonce(), code('CLOSED'))
  assert.throws(() => session.send([['orders', weir.put('s', '1')]]), code('CLOSED'))
})

test('a write is received and then committed', { skip: !process.env.WEIR_BINARY && 'no WEIR_BINARY' }, async (t) => {
  const store = await weir.connect(await startServer(t), { received: true })
  t.after(() => store.close())
  await store.topic('orders').ensure()
  const puts = [1, 2, 3].map((n) => ['orders', weir.put('k', String(n))])
  const session = await store.session(Buffer.alloc(16, 7))
  for (const pending of [store.send(puts), session.send(puts)]) {
    assert.strictEqual(await pending.received, undefined)
    assert.deepStrictEqual((await pending.verdicts).map((verdict) => verdict.valid), [true, true, true])
  }
  const large = weir.put('k', '1', { meta: 'x'.repeat(5000) })
  assert.throws(() => store.send([['orders', large]]), weir.RefusalError)
})

test('an unreachable server is an error after the timeout', async () => {
  const options = { connectTimeoutMs: 200 }
  await assert.rejects(weir.connect('weir://127.0.0.1:1', options), code('UNREACHABLE', weir.ClientError))
  await assert.rejects(weir.connect('http://localhost'), code('BAD_ADDRESS', weir.ClientError))
})
