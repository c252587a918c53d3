#!/usr/bin/env node
// A chat in a topic of Weir: what others say is shown, what is typed is said.
//
// Usage: chat.mjs URL TOPIC NAME, with a token in WEIR_TOKEN where the server asks for one.
//
// It needs no package: one request listens to the topic's records as server-sent events, and each
// line is a write, which the topic's program takes or refuses.

import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [url, topic, name] = process.argv.slice(2);
const events = `${url}/v1/topics/${encodeURIComponent(topic)}/events`;
const token = process.env.WEIR_TOKEN;
const headers = token ? { authorization: `Bearer ${token}` } : {};
/** Offset of the last record that was seen. */
let seen = 0;

/** Prints a record; events that are none have no type. */
function show(record) {
  if (record.type === undefined) return;
  seen = record.offset;
  if (record.type !== "PUT") return;
  console.log(`${record.key}: ${record.text ?? JSON.stringify(record.value)}`);
}

/** Prints each text as it comes. */
async function listen() {
  const query = `live=sse&data=record&last-event-id=${seen}`;
  const answer = await fetch(`${events}?${query}`, { headers });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  let rest = "";
  for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + part).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: {")) show(JSON.parse(line.slice("data: ".length)));
    }
  }
}

/** Writes a text, with the offset of the last record that this client has seen. */
async function say(text) {
  const offset = Buffer.alloc(8);
  offset.writeBigUInt64BE(BigInt(seen));
  const body = Buffer.concat([offset, Buffer.from(text)]);
  const query = new URLSearchParams({ key: name });
  const type = { "content-type": "application/octet-stream" };
  const answer = await fetch(`${events}?${query}`, {
    method: "POST",
    headers: { ...headers, ...type },
    body,
  });
  if (answer.ok) return void (await answer.arrayBuffer());
  const problem = await answer.json();
  console.log(`* not said: ${problem.detail}`);
}

/** A connection that breaks is made again, after what was seen. */
async function follow() {
  for (;;) {
    await listen().catch((error) => console.error(`* ${error.message}`));
    await pause(1000);
  }
}

follow();
for await (const line of createInterface({ input: process.stdin })) {
  if (line !== "") await say(line);
}
process.exit();
