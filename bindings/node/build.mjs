// Builds the native module and copies it to the place where the package looks for it.
//
//   node build.mjs [--dev]

import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const dev = process.argv.includes('--dev')
const options = ['build', '--locked', '--package', 'weir-node', '--message-format=json']
const profile = dev ? ['--features', 'workspace-features'] : ['--release']
const built = execFileSync('cargo', [...options, ...profile], {
  cwd: here,
  stdio: ['ignore', 'pipe', 'inherit'],
  maxBuffer: 1 << 28,
  encoding: 'utf8',
})
const messages = built.split('\n').filter(Boolean).map((line) => JSON.parse(line))
const artifact = messages.find((one) => one.target?.name === 'weir_node' && one.filenames)
const library = artifact.filenames.find((name) => /\.(so|dylib|dll)$/.test(name))
mkdirSync(join(here, 'native'), { recursive: true })
const name = `weir.${process.platform}-${process.arch}.node`
copyFileSync(library, join(here, 'native', name))
console.log(`native/${name}`)
