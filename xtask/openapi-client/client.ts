// Publishes, reads and claims with types that are generated from the description of the HTTP API.
// A body without a schema would have the type `unknown`, and would not compile.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type Written = components["schemas"]["Written"];
type BatchResult = components["schemas"]["BatchResult"];

const client = createClient<paths, "application/json">({ baseUrl: process.argv[2] });

/** The body of a response; throws if it is an error or empty. */
function body<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  if (answer.data === undefined) {
    throw new Error(`${answer.response.url}: ${answer.response.status} ${JSON.stringify(answer.error)}`);
  }
  return answer.data;
}

function equal(found: unknown, expected: unknown, what: string): void {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) {
    throw new Error(`${what}: ${a} instead of ${b}`);
  }
}

const topic = { topic: "generated" };
const group = { topic: "generated", group: "mail" };

const created = body(
  await client.PUT("/v1/topics/{topic}", {
    params: { path: topic },
    body: { options: { keys_max: 10 } },
  }),
);
const keysMax: number | undefined = created.options.keys_max;
equal([created.name, keysMax], ["generated", 10], "the topic");

const published = body(
  await client.POST("/v1/topics/{topic}/events", {
    params: { path: topic, query: { key: "a" } },
    body: { id: 1 },
  }),
) as Written;
equal([published.offset, published.effect], [2, "valid"], "the event");

const batch = body(
  await client.POST("/v1/topics/{topic}/events", {
    params: { path: topic },
    headers: { "content-type": "application/x-ndjson" },
    body: '{"id":2}\n{"id":3}\n',
    bodySerializer: (text) => text as string,
  }),
) as BatchResult;
equal([batch.items, batch.valid, batch.runs], [2, 2, [[0, 2, "valid", 3]]], "the batch");

const records = body(
  await client.GET("/v1/topics/{topic}/events", {
    params: { path: topic, query: { after: "1", limit: 2 } },
  }),
);
equal(
  records.map((record) => [record.offset, record.type, record.key, record.value]),
  [
    [2, "PUT", "a", { id: 1 }],
    [3, "PUT", undefined, { id: 2 }],
  ],
  "the records",
);

body(
  await client.PUT("/v1/topics/{topic}/groups/{group}", {
    params: { path: group },
    body: { mode: "shared", lease_ms: 60_000 },
  }),
);
const claim = body(
  await client.POST("/v1/topics/{topic}/groups/{group}/claim", {
    params: { path: group, query: { member: "worker-1", max: 10 } },
  }),
);
const offsets: number[] = claim.records.map((record) => record.offset);
equal(offsets, [2, 3, 4], "the claim");
if (claim.claim === undefined) {
  throw new Error("a claim with records has a number");
}
const step = body(
  await client.POST("/v1/topics/{topic}/groups/{group}/ack", {
    params: { path: group },
    body: { claim: claim.claim, offsets },
  }),
);
equal(step.effect, "valid", "the acknowledgement");
const state = body(
  await client.GET("/v1/topics/{topic}/groups/{group}", { params: { path: group } }),
);
equal([state.cursor, state.lag, state.leased], [4, 0, 0], "the group");

const missing = await client.GET("/v1/topics/{topic}", { params: { path: { topic: "missing" } } });
equal([missing.response.status, missing.data], [404, undefined], "a topic that does not exist");
