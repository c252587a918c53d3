'use strict'
// A cluster that loses its leader, and then its majority, while a session writes.

const assert = require('node:assert')
const { spawn } = require('node:child_process')
const { createInterface } = require('node:readline')
const { test } = require('node:test')
const { collect, temporaryDirectory, weir } = require('./support.js')

const [KILL, DEAD, END] = [100, 200, 300]

/** Checks that the records start at an offset, and that each arrives once and in order. */
function check(records, first) {
  const lines = records.map((record) => `${record.offset} ${record.text()}`)
  const expected = records.map((_, at) => `${first + at} ${first + at > 1 ? first + at - 2 : ''}`)
  assert.deepStrictEqual(lines, expected)
}

async function received(listening, count) {
  const records = []
  while (records.length < count) {
    const { value, done } = await listening.next()
    assert.ok(!done, `${records.length} records of ${count}`)
    records.push(value)
  }
  return records
}

const skip = !process.env.WEIR_CLUSTER && 'no WEIR_CLUSTER'
test('a killed leader loses no write, and a write is received before it is committed', { skip }, async (t) => {
  const cluster = spawn(process.env.WEIR_CLUSTER, ['cluster', temporaryDirectory(t)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = new Promise((resolve) => cluster.on('exit', resolve))
  t.after(() => {
    cluster.stdin.end()
    return ended
  })
  const lines = createInterface({ input: cluster.stdout })[Symbol.asyncIterator]()
  const store = await weir.connect((await lines.next()).value, { received: true })
  t.after(() => store.close())
  const topic = store.topic('orders')
  await topic.ensure()
  const session = await store.session(Buffer.alloc(16, 7))
  const listening = topic.follow({ start: true, timeoutMs: 60_000 })
  for (let n = 0; n < END; n++) {
    if (n === KILL) {
      check(await received(listening, KILL + 1), 1)
      cluster.stdin.write('kill\n')
    }
    if (n === DEAD) assert.match((await lines.next()).value, /^killed /)
    const [verdict] = await session.execute([['orders', weir.put('k', String(n))]])
    assert.ok(verdict.valid)
  }
  check(await received(listening, END - KILL), KILL + 2)
  await listening.return()
  const records = await collect(topic.records())
  assert.strictEqual(records.length, END + 1)
  check(records, 1)
  const value = async (consistency) => (await store.withConsistency(consistency).topic('orders').get('k')).text()
  assert.strictEqual(await value('linear'), '299')
  // The connection moves to the leader, which stays reachable.
  assert.strictEqual(await value('leader'), '299')
  cluster.stdin.write('stop\n')
  assert.strictEqual((await lines.next()).value, 'stopped')
  assert.strictEqual(await value('local'), '299')
  // No write can be committed now.
  const pending = session.send([['orders', weir.put('k', String(END))]])
  const first = Promise.race([pending.verdicts.then(() => 'committed'), pending.received.then(() => 'received')])
  assert.strictEqual(await first, 'received')
  cluster.stdin.write('continue\n')
  assert.strictEqual((await lines.next()).value, 'continued')
  assert.ok((await pending.verdicts)[0].valid)
})
