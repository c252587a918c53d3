// A contender of the lab: the Node package on pages of JSON, compared with other ways in Node.
//
//   enqueue   the query copies and scans a page
//   next      the query returns the items of a scanned page, 256 in each call, and each item is
//             read. The time of the last call, which releases the page, is reported separately, as
//             `done`
//   views     as next, with a Buffer for the bytes of each item
//   spans     as next, with the table of spans of a page instead of an object for each item
//   loop      the lower bound of next: an equal loop over existing byte arrays
//   json      JSON.parse parses the page, and the key of each item is read
//
// Implements the line protocol of docs/guide/lab.md. The creation of the query is not timed. CPU
// time is that of the process, including the garbage collector. A run is timed after 0.3 s of
// untimed passes.

import { createInterface } from 'node:readline'
import { argv, cpuUsage, exit, hrtime, stdin, stdout, version as nodeVersion } from 'node:process'
import { buildProfile, Query, version } from 'weir'

const TITLES = { escapes: '\\"q\\\\ ', 'non-ascii': 'é€😀 ' }
const BATCH = { maxItems: 256 }
const WARM_NS = 300_000_000n

/** Adds up wall time and CPU time, in nanoseconds. */
class Clock {
  wall = 0
  cpu = 0
  done = 0
  start() {
    const { user, system } = cpuUsage()
    this.cpuBegun = user + system
    this.wallBegun = hrtime.bigint()
  }
  stop() {
    this.wall += Number(hrtime.bigint() - this.wallBegun)
    const { user, system } = cpuUsage()
    this.cpu += (user + system - this.cpuBegun) * 1000
  }
}

/** Nested arrays; depth 6 and width 10 result in 17 MB. */
function deep(depth, width) {
  if (depth === 0) return '"value"'
  const inner = deep(depth - 1, width)
  return `[${Array(width).fill(`{"key":${inner}}`).join(',')}]`
}

/** Creates the page. All contenders create equal pages from equal parameters. */
function makePage(fields) {
  const payload = deep(Number(fields.depth), Number(fields.width))
  const title = TITLES[fields.title] ?? ''
  const items = []
  for (let item = 0; item < Number(fields.objects); item++) {
    const head = `{"id":"${item}","title":"${title}Partition 1 / Item ${item} / Order ${item}","huge_data":`
    items.push(
      fields.key_last === 'true'
        ? `{"payload":${head}${payload}},"order":${item}}`
        : `{"order":${item},"payload":${head}${payload}}}`,
    )
  }
  return Buffer.from(`[${items.join(',')}]`)
}

function newQuery() {
  const query = new Query({ order: '$.order', budgets: { bufferBytesMax: 1 << 30 } })
  return [query, query.addSource({ sorted: true })]
}

function scanned(input) {
  const [query, source] = newQuery()
  source.enqueue(input.page)
  return query
}

/** Passes the key of each item to `each` if it is given. */
function drain(query, each) {
  if (!each) return
  for (let step = query.next(BATCH); step.kind === 'page'; step = query.next(BATCH)) {
    for (const item of step.page) each(String(item.get('$.order')))
    step.page.release()
  }
}

/** Reads `left` items. Returns the sum of their lengths. */
function readItems(query, left) {
  let sum = 0
  while (left > 0) {
    const { page } = query.next(BATCH)
    left -= page.length
    for (const item of page) sum += item.length
    page.release()
  }
  return sum
}

/** Reads `left` items through a Buffer for each. Returns the sum of their lengths. */
function viewed(query, left) {
  let sum = 0
  while (left > 0) {
    const { page } = query.next(BATCH)
    left -= page.length
    for (const item of page) sum += item.bytes.length
    page.release()
  }
  return sum
}

const ways = {
  enqueue(input, clock, each) {
    const [query, source] = newQuery()
    clock.start()
    source.enqueue(input.page)
    clock.stop()
    if (each) drain(query, each)
    // The collector does not see the memory of a query, so the page is released with its last item.
    else readItems(query, input.count)
    return input.page.length
  },
  next(input, clock) {
    const query = scanned(input)
    clock.start()
    const sum = readItems(query, input.count)
    clock.stop()
    const begun = hrtime.bigint()
    const step = query.next(BATCH)
    clock.done += Number(hrtime.bigint() - begun)
    if (step.kind !== 'done') throw new Error('more items than there are')
    return sum
  },
  views(input, clock) {
    const query = scanned(input)
    clock.start()
    const sum = viewed(query, input.count)
    clock.stop()
    return sum
  },
  spans(input, clock) {
    const query = scanned(input)
    clock.start()
    let sum = 0
    for (let left = input.count; left > 0; ) {
      const { page } = query.next(BATCH)
      left -= page.length
      const { spans } = page
      for (let at = 1; at < spans.length; at += 2) sum += spans[at]
      page.release()
    }
    clock.stop()
    return sum
  },
  loop(input, clock) {
    input.batches ??= cut(input)
    clock.start()
    let sum = 0
    for (const batch of input.batches) for (const item of batch) sum += item.length
    clock.stop()
    return sum
  },
  json(input, clock, each) {
    clock.start()
    const keys = JSON.parse(input.page.toString()).map((item) => item.order)
    clock.stop()
    if (each) for (const key of keys) each(String(key))
    return input.page.length
  },
}

/** The items as arrays of bytes, in batches. */
function cut(input) {
  const batches = []
  const query = scanned(input)
  for (let step = query.next(BATCH); step.kind === 'page'; step = query.next(BATCH)) {
    batches.push(Array.from(step.page, (item) => item.toBuffer()))
  }
  return batches
}

const MASK = 0xffffffffffffffffn

function check(way, input) {
  let hash = 0xcbf29ce484222325n
  const touch = way(input, new Clock(), (key) => {
    for (const byte of Buffer.from(`${key},`)) hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & MASK
  })
  return `answer\t${hash.toString(16).padStart(16, '0')}\t${touch.toString(16)}\t0\t0`
}

function run(way, input, count) {
  // The process was just scheduled. After minutes without work, the engine has discarded compiled
  // code and shrunk its heap, so it gets time to warm up.
  const begun = hrtime.bigint()
  do way(input, new Clock())
  while (hrtime.bigint() - begun < WARM_NS)
  const clock = new Clock()
  let touch = 0n
  for (let at = 0; at < count; at++) touch += BigInt(way(input, clock))
  const done = clock.done > 0 ? `\tdone=${clock.done}` : ''
  return `time\t${clock.wall}\t${clock.cpu}\t${(touch & MASK).toString(16)}${done}`
}

const inputs = new Map()

function serve(way, line) {
  const [verb, number, ...rest] = line.split('\t')
  if (verb === 'load') {
    const fields = Object.fromEntries(rest.map((word) => word.split('=', 2)))
    inputs.set(number, { page: makePage(fields), count: Number(fields.objects) })
    return 'ok'
  }
  if (verb === 'check') return check(way, inputs.get(number))
  if (verb === 'run') return run(way, inputs.get(number), Number(rest[0]))
  throw new Error(`no request ${verb}`)
}

const versions = [`node=${nodeVersion}`, `weir=${version}`, `weir_profile=${buildProfile}`]
const [, , name] = argv
if (name === '--version') {
  console.log(['node-weir', ...versions].join(', '))
  exit(0)
}
if (!Object.hasOwn(ways, name ?? '')) {
  console.error(`usage: bench.mjs ${Object.keys(ways).join('|')}`)
  exit(2)
}
const profile = buildProfile === 'release' ? 'optimised' : 'debug'
stdout.write(`hello\t1\tprofile=${profile}\t${versions.join('\t')}\n`)
for await (const line of createInterface({ input: stdin })) {
  if (line === 'quit') break
  let answer
  try {
    answer = serve(ways[name], line)
  } catch (failed) {
    answer = `error\t${String(failed).replaceAll(/\s+/g, ' ')}`
  }
  stdout.write(`${answer}\n`)
}
