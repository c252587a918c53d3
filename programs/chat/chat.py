#!/usr/bin/env python3
"""A chat in a topic of Weir: shows the texts of others, and sends what you type.

Usage: chat.py URL TOPIC NAME. Set WEIR_TOKEN to a token if the server requires one.

It needs only the standard library. One request listens to the records of the topic as server-sent
events. Each line is a write, which the program of the topic accepts or rejects.
"""

import base64
import http.client
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request


class Room:
    """A topic with the program `chat`, and the offset of the last received record."""

    def __init__(self, url, topic, name):
        self.events = f"{url}/v1/topics/{urllib.parse.quote(topic)}/events"
        self.name = name
        self.seen = 0

    def request(self, query, body=None):
        """Sends a request; the caller reads the response."""
        request = urllib.request.Request(f"{self.events}?{query}", data=body)
        request.add_header("Content-Type", "application/octet-stream")
        if token := os.environ.get("WEIR_TOKEN"):
            request.add_header("Authorization", f"Bearer {token}")
        return urllib.request.urlopen(request)

    def listen(self):
        """Prints each text when it arrives. Reconnects after the last received record if necessary."""
        while True:
            try:
                query = f"live=sse&data=record&last-event-id={self.seen}"
                with self.request(query) as events:
                    for line in events:
                        if line.startswith(b"data: {"):
                            self.show(json.loads(line[len(b"data: ") :]))
            except (OSError, http.client.HTTPException) as error:
                print(f"* {error}", file=sys.stderr, flush=True)
            time.sleep(1)

    def show(self, record):
        """Prints a record; other events have no type."""
        if "type" not in record:
            return
        self.seen = record["offset"]
        if record["type"] == "PUT":
            print(plain(f"{record['key']}: {text_of(record)}"), flush=True)

    def say(self, text):
        """Sends a text with the offset of the last received record."""
        body = self.seen.to_bytes(8, "big") + text.encode()
        try:
            with self.request(urllib.parse.urlencode({"key": self.name}), body):
                pass
        except urllib.error.HTTPError as refused:
            problem = json.load(refused)
            print(f"* not said: {problem['detail']}", flush=True)
        except (OSError, http.client.HTTPException) as error:
            print(f"* perhaps not said: {error}", flush=True)


def text_of(record):
    """The text of a record. JSON arrives as a value, JSON with many levels in base64."""
    if "value64" in record:
        return base64.b64decode(record["value64"]).decode(errors="replace")
    return record["text"] if "text" in record else json.dumps(record["value"])


def plain(text):
    """The text without control characters, with which an author could control this terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\ufffd", text)


def main():
    """Listens on one thread and reads lines on the other."""
    _, url, topic, name = sys.argv
    room = Room(url, topic, name)
    threading.Thread(target=room.listen, daemon=True).start()
    for line in sys.stdin:
        if text := line.rstrip("\n"):
            room.say(text)


main()
