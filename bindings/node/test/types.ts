// A program that the compiler must accept; it does not run.
import * as weir from 'weir'
import { open, type Fetched, type Need, type Op } from 'weir'

async function uses(): Promise<void> {
  const store: weir.Store = await open('data', { durability: 'group' })
  const topic = store.topic('orders')
  const verdict = await topic.put('k', new Uint8Array(1), { expect: [weir.expect.keyAbsent()] })
  const offset: bigint = verdict.check().offset
  const ops: Op[] = [weir.put('a', '1'), weir.del('b'), weir.transaction([weir.put('c', '2')])]
  for (const one of await topic.batch(ops)) if (!one.valid) console.log(one.reason, one.detail?.actual)
  for await (const page of topic.followPages({ after: offset, signal: AbortSignal.timeout(10) })) {
    for (const record of page) console.log(record.key.length, record.offset + 1n)
    page.release()
  }
  const query = new weir.Query({ order: '$.n', params: { p: 1 } })
  const fetch = async (need: Need, { signal }: weir.Waiting): Promise<Fetched | undefined> =>
    need.required && !signal?.aborted ? ['[]', need.continuation] : undefined
  for await (const page of query.pages(fetch, { maxItems: 10 })) console.log(page.at(0)?.get('$.n'), page.values('$.n')[0]?.[0]?.length)
  const step = query.next()
  if (step.kind === 'need') step.needs[0].source.finish()
  for await (const item of await store.query('orders.*', { follow: true, from: '10m' })) console.log(item.topic)
  await store.withConsistency('linear').topic('orders').get('k')
  // @ts-expect-error: an unknown consistency
  store.withConsistency('nearest')
  const exact: weir.SourceOptions = { bound: [offset], meta: { offset } }
  query.addSource(exact).watermark(offset)
  await store[Symbol.asyncDispose]()
  try {
    await store.close()
  } catch (error) {
    if (error instanceof weir.QueryError) console.log(error.code, error.source)
  }
  // @ts-expect-error: an unknown mode
  await topic.group('g', 'other')
  // @ts-expect-error: a number is not data
  await topic.put('k', 1)
}

void uses
