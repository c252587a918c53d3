// Prints one line for each test: its result and, if it failed, the error.

export default async function* reporter(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue
    const skipped = data.skip !== undefined && data.skip !== false
    const outcome = type === 'test:fail' ? 'failed' : skipped ? 'skipped' : 'passed'
    const error = data.details?.error
    const why = skipped ? String(data.skip) : String(error?.cause?.message ?? error?.message ?? '')
    yield `${JSON.stringify({ name: data.name, outcome, why })}\n`
  }
}
