'use strict'
// Finds the native module: the one for this platform in the package, or the one at WEIR_NATIVE_PATH.

const path = require('node:path')

function load() {
  const name = `weir.${process.platform}-${process.arch}.node`
  const { WEIR_NATIVE_PATH } = process.env
  // `require` would look for a relative path in this folder.
  const file = WEIR_NATIVE_PATH ? path.resolve(WEIR_NATIVE_PATH) : path.join(__dirname, '..', 'native', name)
  try {
    return require(file)
  } catch (cause) {
    throw new Error(
      `the native module of weir cannot be loaded from ${file}: build it with \`node build.mjs\`, ` +
        'install a package that has it for this platform, or name it by WEIR_NATIVE_PATH',
      { cause },
    )
  }
}

module.exports = load()
