#!/usr/bin/env node
// A chat in a topic of Weir: shows the texts of others, and sends what you type.
//
// Usage: chat.mjs URL TOPIC NAME. Set WEIR_TOKEN to a token if the server requires one.
//
// It needs no package. One request listens to the records of the topic as server-sent events. Each
// line is a write, which the program of the topic accepts or rejects.

import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [url, topic, name] = process.argv.slice(2);
const events = `${url}/v1/topics/${encodeURIComponent(topic)}/events`;
const token = process.env.WEIR_TOKEN;
const headers = token ? { authorization: `Bearer ${token}` } : {};
/** Offset of the last received record. */
let seen = 0;

/** The text without control characters, with which an author could control this terminal. */
function plain(text) {
  return text.replace(/\p{Cc}/gu, "\ufffd");
}

/** The text of a record. JSON arrives as a value, JSON with many levels in base64. */
function textOf(record) {
  if (record.value64 !== undefined) return Buffer.from(record.value64, "base64").toString();
  return record.text ?? JSON.stringify(record.value);
}

/** Prints a record; other events have no type. */
function show(record) {
  if (record.type === undefined) return;
  seen = record.offset;
  if (record.type !== "PUT") return;
  console.log(plain(`${record.key}: ${textOf(record)}`));
}

/** Prints each text when it arrives. */
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

/** Sends a text with the offset of the last received record. */
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

/** Reconnects after a lost connection, and continues after the last received record. */
async function follow() {
  for (;;) {
    await listen().catch((error) => console.error(`* ${error.message}`));
    await pause(1000);
  }
}

follow();
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "") continue;
  await say(line).catch((error) => console.log(`* perhaps not said: ${error.message}`));
}
process.exit();
