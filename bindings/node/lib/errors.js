'use strict'
// The classes of errors, and the only place that creates them.

const PREFIX = 'weir:'

class WeirError extends Error {
  constructor(fields) {
    super(fields.message)
    this.code = fields.code
    this.number = fields.number
    this.retry = fields.retry
    this.advice = fields.advice
  }
  get name() {
    return this.constructor.name
  }
}
class VerdictError extends WeirError {}
class RefusalError extends WeirError {
  constructor(fields) {
    super(fields)
    if (fields.expected !== undefined) this.expected = BigInt(fields.expected)
  }
}
class StoreError extends WeirError {}
class ClientError extends WeirError {}
class QueryError extends WeirError {
  constructor(fields) {
    super(fields)
    for (const name of ['source', 'page', 'item', 'offset']) {
      if (fields[name] !== undefined) this[name] = Number(fields[name])
    }
    for (const name of ['sourceName', 'field']) {
      if (fields[name] !== undefined) this[name] = fields[name]
    }
  }
}
class InternalError extends WeirError {}

const CLASSES = {
  verdict: VerdictError,
  refusal: RefusalError,
  store: StoreError,
  client: ClientError,
  query: QueryError,
  internal: InternalError,
}

/** Converts a native error to an instance of its class; other errors are returned unchanged. */
function toWeirError(error) {
  const text = error instanceof Error ? error.message : ''
  if (!text.startsWith(PREFIX)) return error
  const fields = JSON.parse(text.slice(PREFIX.length))
  return new (CLASSES[fields.class] ?? WeirError)(fields)
}

/** Calls into the native module. */
function call(body) {
  try {
    return body()
  } catch (error) {
    throw toWeirError(error)
  }
}

/** Calls a function of the native module that returns a promise. */
async function settle(body) {
  try {
    return await body()
  } catch (error) {
    throw toWeirError(error)
  }
}

/** Waits for the promise of `body`. A signal ends the wait, not the operation. */
async function abortable(signal, body) {
  if (!signal) return body()
  signal.throwIfAborted()
  let onAbort
  const ended = new Promise((_, reject) => {
    onAbort = () => reject(signal.reason)
    signal.addEventListener('abort', onAbort)
  })
  try {
    return await Promise.race([body(), ended])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

module.exports = {
  WeirError,
  VerdictError,
  RefusalError,
  StoreError,
  ClientError,
  QueryError,
  InternalError,
  call,
  settle,
  abortable,
}
