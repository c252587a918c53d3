'use strict'
// Helpers of the tests: new stores, a server, the vectors. `weir` is the installed package.

const { spawn } = require('node:child_process')
const { mkdtempSync, readdirSync, readFileSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { basename, join } = require('node:path')
const weir = require('weir')

const VECTORS = process.env.WEIR_VECTORS
/** The directory of compiled programs. */
const PROGRAMS = join(VECTORS, '..', 'programs', 'prebuilt')

/** A directory that is removed after its test. */
function temporaryDirectory(t) {
  const directory = mkdtempSync(join(tmpdir(), 'weir-node-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

/** A store that is closed after its test, and one of its topics. */
async function openStore(t, options = { durability: 'memory' }) {
  const directory = temporaryDirectory(t)
  const store = await weir.open(join(directory, 'store'), options)
  t.after(() => store.close())
  const topic = store.topic('orders')
  await topic.ensure()
  return { directory, store, topic }
}

/** Starts `weir serve` with a new store and returns its address. */
async function startServer(t) {
  return (await startServerProcess(t)).address
}

/** As `startServer`. Returns the process as well. */
async function startServerProcess(t) {
  const directory = temporaryDirectory(t)
  const flags = ['serve', '--http', 'off', '--native', '127.0.0.1:0', '--durability', 'memory']
  const server = spawn(process.env.WEIR_BINARY, [...flags, '--at', join(directory, 'served')], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, HOME: directory, XDG_CONFIG_HOME: directory },
  })
  const ended = new Promise((resolve) => server.on('exit', resolve))
  t.after(() => {
    server.kill()
    return ended
  })
  let printed = ''
  for await (const part of server.stderr) {
    printed += part
    const found = /native at (\S+)\n/.exec(printed)
    if (found) return { address: found[1], server }
  }
  throw new Error(`the server does not print its address: ${printed}`)
}

/** Stops a process, and waits until none of its threads runs. */
async function stop({ pid }) {
  process.kill(pid, 'SIGSTOP')
  const isStopped = (thread) => /\) T /.test(readFileSync(`/proc/${pid}/task/${thread}/stat`, 'latin1'))
  while (!readdirSync(`/proc/${pid}/task`).every(isStopped)) {
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** The transcripts of a folder: for each, its name and its blocks of commands and expected output. */
function transcripts(folder) {
  const files = readdirSync(join(VECTORS, folder)).filter((name) => name.endsWith('.txt')).sort()
  return files.map((file) => {
    const text = readFileSync(join(VECTORS, folder, file), 'utf8').trimEnd()
    const blocks = []
    for (const block of text.split('\n\n')) {
      const [above, below = ''] = block.split('\n----')
      const commands = above.split('\n').filter((line) => line.trim() && !line.startsWith('#'))
      if (commands.length) blocks.push({ commands, printed: below.split('\n').slice(1) })
    }
    return { name: basename(file, '.txt'), blocks }
  })
}

const printable = (bytes) => bytes.toString().replaceAll('\n', '\\n')

async function collect(iterable) {
  const found = []
  for await (const one of iterable) found.push(one)
  return found
}

module.exports = {
  PROGRAMS, collect, openStore, temporaryDirectory, startServer, startServerProcess, stop, printable, transcripts, weir,
}
