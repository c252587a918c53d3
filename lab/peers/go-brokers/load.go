package main

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// distinct is the number of messages of a producer after which they repeat.
// checkMessagesMax is the maximum number of messages of a check. Both are as in the
// built-in contenders of the lab.
const (
	distinct         = 4096
	checkMessagesMax = 20000
)

// load describes the messages for a broker: `messages` messages of `bytes` bytes in equal
// parts from `clients` connections, each with at most `window` unanswered ones. `batch`
// is the number of messages in a call, if the client forms calls. `batchBytes` bounds the
// batches that a client library forms. The messages are those of
// crates/weir-lab/src/contender/store.rs.
type load struct {
	clients, messages, window, batch, batchBytes uint64
	// Number of servers that store each message.
	nodes uint64

	bytes       int
	level, mode string
}

func readLoad(w words) (load, error) {
	var l load
	var err error
	number := func(name string, otherwise uint64) uint64 {
		value, wrong := w.number(name, otherwise)
		if wrong != nil {
			err = wrong
		}
		return value
	}
	l.clients = number("producers", 0)
	l.messages = number("messages", 0)
	l.bytes = int(number("bytes", 0))
	l.window = number("window", 10000)
	l.batch = number("batch", 1)
	l.batchBytes = number("batch_bytes", 1<<20)
	l.nodes = number("nodes", 1)
	l.level = w.text("level", "")
	l.mode = w.text("mode", "")
	if err != nil {
		return l, err
	}
	if l.clients == 0 || l.messages == 0 || l.messages%l.clients != 0 || l.bytes == 0 || l.window == 0 || l.batch == 0 || l.nodes == 0 {
		return l, fmt.Errorf("producers, messages (a multiple of producers), bytes, window, batch and nodes must be above 0")
	}
	return l, nil
}

// each is the number of messages of one client.
func (l load) each() uint64 { return l.messages / l.clients }

// forCheck is the load with few enough messages for a check.
func (l load) forCheck() load {
	l.messages = min(l.messages, checkMessagesMax/l.clients*l.clients)
	return l
}

// payload is the messages of one producer, one after the other.
type payload struct {
	bytes []byte
	size  int
}

func (l load) payload(producer uint64) payload {
	bytes := make([]byte, 0, distinct*l.bytes+8)
	for message := uint64(0); message < distinct; message++ {
		state := producer<<32 + message
		end := len(bytes) + l.bytes
		for len(bytes) < end {
			bytes = binary.LittleEndian.AppendUint64(bytes, splitmix(&state))
		}
		bytes = bytes[:end]
	}
	return payload{bytes, l.bytes}
}

func (p payload) message(number uint64) []byte {
	at := int(number%distinct) * p.size
	return p.bytes[at : at+p.size]
}

func splitmix(state *uint64) uint64 {
	*state += 0x9E3779B97F4A7C15
	z := *state
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// part is FNV-1a over the kind byte `r` and the message.
func part(message []byte) uint64 {
	sum := uint64(0xCBF29CE484222325) ^ 'r'
	sum *= 0x100000001B3
	for _, b := range message {
		sum = (sum ^ uint64(b)) * 0x100000001B3
	}
	return sum
}

// timed is the times of a run.
type timed struct {
	wall, cpu, touch uint64
	extra            map[string]float64
}

func (t timed) line() string {
	values := map[string]string{}
	for name, value := range t.extra {
		values[name] = strings.TrimSpace(fmt.Sprintf("%.6f", value))
	}
	return fmt.Sprintf("time\t%d\t%d\t%x%s", t.wall, t.cpu, t.touch, pairs(values))
}
