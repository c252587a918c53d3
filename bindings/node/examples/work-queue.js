'use strict'
// A work queue: workers claim jobs with a lease; a failed job is redelivered, then a dead letter.

const assert = require('node:assert')
const { mkdtempSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const weir = require('weir')

async function main() {
  const store = await weir.open(mkdtempSync(join(tmpdir(), 'weir-example-')))
  await store.topic('failed').ensure()
  const jobs = store.topic('jobs')
  await jobs.ensure()
  await jobs.batch([0, 1, 2, 3, 4].map((job) => weir.put('', JSON.stringify({ job }))))

  const options = { leaseMs: 30_000, attempts: 2, deadLetters: 'failed' }
  const group = await jobs.group('workers', 'shared', options)
  const done = []
  for (let work; (work = await group.claim(2, { timeoutMs: 200 })).length > 0; ) {
    for (const one of work) {
      const job = one.record.get('$.job')
      if (job === 3) {
        await group.nack([one], { reason: 'cannot do this one' })
      } else {
        await group.ack([one])
        done.push(job)
      }
    }
  }
  assert.deepStrictEqual(done.sort(), [0, 1, 2, 4])

  for await (const page of store.topic('failed').followPages({ after: 1, timeoutMs: 5000 })) {
    // The reason of the failure comes before the original value.
    assert.strictEqual(page.at(0).get('$.reason'), 'cannot do this one')
    assert.strictEqual(page.at(1).get('$.job'), 3)
    console.log('dead letter', page.at(1).text())
    break
  }
  await store.close()
}

main()
