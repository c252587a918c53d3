'use strict'
// An ordered query over a partitioned source. One of its partitions splits during the query. The source
// is a table here; in practice, it is a request over HTTP that returns a page and a continuation.

const assert = require('node:assert')
const weir = require('weir')

const OPTIONS = { sorted: true, shape: 'member:$.Documents' }
const PAGES = {
  'p1/': ['{"Documents":[{"id":"a","n":1},{"id":"b","n":5}]}', 'p1-2'],
  'p1/p1-2': undefined, // the partition has split
  'p1a/p1-2': ['{"Documents":[{"id":"c","n":6}]}'],
  'p1b/p1-2': ['{"Documents":[{"id":"d","n":7}]}'],
  'p2/': ['{"Documents":[{"id":"e","n":2},{"id":"f","n":8}]}'],
}

async function fetch({ source, continuation }) {
  const page = PAGES[`${source.name}/${continuation ?? ''}`]
  if (!page) {
    source.replace(['a', 'b'].map((part) => ({ ...OPTIONS, name: source.name + part, first: continuation })))
  }
  return page
}

async function main() {
  const query = new weir.Query({ order: '$.n', select: '$.id' })
  for (const name of ['p1', 'p2']) query.addSource({ ...OPTIONS, name })
  const found = []
  for await (const page of query.pages(fetch)) for (const item of page) found.push(item.json())
  console.log(found)
  assert.deepStrictEqual(found, ['a', 'e', 'b', 'c', 'd', 'f'])
}

main()
