'use strict'
// An event store to open in your process, and ordered queries over raw JSON pages.

const native = require('./lib/native.js')
const errors = require('./lib/errors.js')
const store = require('./lib/store.js')
const { Query, Source } = require('./lib/query.js')
const { Item, Page } = require('./lib/values.js')
const { version } = require('./package.json')

const { call, settle, abortable, ...classes } = errors

module.exports = {
  ...classes,
  ...store,
  Query,
  Source,
  Item,
  Page,
  open: store.Store.open,
  connect: store.Store.connect,
  version,
  buildProfile: native.buildProfile(),
}
