'use strict'
// The contents of the package: its types, the programs of its pages, both kinds of modules.

const assert = require('node:assert')
const { execFileSync } = require('node:child_process')
const { readdirSync, readFileSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')
const { test } = require('node:test')
const { temporaryDirectory, weir } = require('./support.js')

const SOURCE = process.env.WEIR_PACKAGE
const run = (args, cwd) => execFileSync(process.execPath, args, { cwd, stdio: 'pipe' })
// Programs find the installed package from this directory.
const HERE = process.cwd()

test('the installed package is what is tested', () => {
  assert.ok(require.resolve('weir').startsWith(join(HERE, 'node_modules')))
})

const readme = readFileSync(join(SOURCE, 'README.md'), 'utf8')
for (const [at, [, program]] of [...readme.matchAll(/```js\n(.*?)```/gs)].entries()) {
  test(`program ${at + 1} of the README runs as printed`, (t) => {
    const file = join(HERE, `readme-${at}.${program.startsWith('import') ? 'mjs' : 'cjs'}`)
    // `console.assert` only prints; here it must fail.
    const strict = 'console.assert = (ok) => { if (!ok) throw new Error("assertion") }\n'
    const text = program.startsWith('import') ? program.replace(/^(import .*\n)/, `$1${strict}`) : strict + program
    writeFileSync(file, text)
    run([file], temporaryDirectory(t))
  })
}

for (const name of readdirSync(join(SOURCE, 'examples')).sort()) {
  test(`example ${name} runs`, (t) => {
    const file = join(HERE, name)
    writeFileSync(file, readFileSync(join(SOURCE, 'examples', name)))
    run([file], temporaryDirectory(t))
  })
}

test('WEIR_NATIVE_PATH is relative to the working directory', () => {
  const cwd = join(HERE, 'node_modules', 'weir', 'native')
  const [name] = readdirSync(cwd)
  const program = `require(${JSON.stringify(require.resolve('weir'))})`
  const env = { ...process.env, WEIR_NATIVE_PATH: `./${name}` }
  execFileSync(process.execPath, ['-e', program], { cwd, env, stdio: 'pipe' })
})

test('both kinds of modules have the same names', async () => {
  const module = await import('weir')
  const names = Object.keys(module).filter((name) => name !== 'default' && name !== 'module.exports')
  assert.deepStrictEqual(names.sort(), Object.keys(weir).sort())
})

test('the types have the same names, and hold in strict mode', { skip: !process.env.WEIR_TSC && 'no typescript' }, () => {
  const types = readFileSync(join(SOURCE, 'index.d.ts'), 'utf8')
  const values = [...types.matchAll(/^export (?:class|function|const) (\w+)/gm)].map(([, name]) => name)
  assert.deepStrictEqual([...new Set(values)].sort(), Object.keys(weir).sort())
  for (const [, name, body] of types.matchAll(/^export class (\w+)[^\n]*\{\n(.*?)^\}/gms)) {
    const kind = weir[name]
    if (kind.prototype instanceof Error) continue
    const members = Object.getOwnPropertyNames(kind.prototype)
    const methods = members.filter((m) => !m.startsWith('_') && m !== 'constructor')
    for (const member of methods) assert.match(body, new RegExp(`\\b${member}\\b`), `${name}.${member}`)
  }
  writeFileSync(join(HERE, 'types.ts'), readFileSync(join(SOURCE, 'test', 'types.ts')))
  const options = ['--strict', '--noEmit', '--target', 'es2022', '--module', 'nodenext', '--types', 'node']
  const roots = ['--typeRoots', process.env.WEIR_TYPE_ROOTS]
  try {
    run([process.env.WEIR_TSC, ...options, ...roots, 'types.ts'], HERE)
  } catch (error) {
    assert.fail(String(error.stdout))
  }
})
