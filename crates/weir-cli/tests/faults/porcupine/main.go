// Checks histories of clients for linearizability.
//
// Reads lines of JSON, one for each operation, and prints one line for each
// model and part: "ok", "illegal", or "unknown" if there was not enough time.
// Exits with 1 unless all are ok.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// Maximum time for one part.
const patience = 2 * time.Minute

// An operation as the clients observed it. The comment of each model defines the use of A to D.
type operation struct {
	Model  string `json:"model"`
	Part   string `json:"part"`
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	// Negative: its end was not observed. It takes effect at any time or never.
	Return int64  `json:"return"`
	Op     string `json:"op"`
	A      int64  `json:"a"`
	B      int64  `json:"b"`
	C      int64  `json:"c"`
	D      int64  `json:"d"`
	// "ok", "no" if the state rejected it, "open" if the outcome is unknown.
	Outcome string `json:"outcome"`
}

// Maps the state before an operation to whether the operation is possible, and the state after.
type step func(state any, op operation) (bool, any)

func model(first any, next step) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, _, output any) (bool, any) {
			return next(state, output.(operation))
		},
		DescribeOperation: func(_, output any) string {
			op := output.(operation)
			return fmt.Sprintf("%s %d %d %d %d %s", op.Op, op.A, op.B, op.C, op.D, op.Outcome)
		},
	}
}

// A key. All written values are distinct; 0: no value.
//
//	put A; get -> A; cas A (expected) B (new)
func register(state any, op operation) (bool, any) {
	value := state.(int64)
	switch {
	case op.Op == "get":
		return value == op.A, value
	case op.Op == "put":
		return true, op.A
	case op.Outcome == "ok":
		return value == op.A, op.B
	case op.Outcome == "no":
		return value != op.A, value
	case value == op.A:
		return true, op.B
	default:
		return true, value
	}
}

// The offset of the newest record of a topic to which clients only append.
//
//	append -> A; last -> A
func appends(state any, op operation) (bool, any) {
	last := state.(int64)
	if op.Op == "last" {
		return last == op.A, last
	}
	return op.A > last, op.A
}

// Balances of four accounts.
//
//	transfer A (from) B (to) C (amount) D (balances as seen: from << 32 | to);
//	read A (account) -> B
func bank(state any, op operation) (bool, any) {
	balances := state.([4]int64)
	if op.Op == "read" {
		return balances[op.A] == op.B, balances
	}
	if op.Outcome == "no" {
		return true, balances
	}
	same := balances[op.A] == op.D>>32 && balances[op.B] == op.D&math.MaxUint32
	after := balances
	after[op.A] -= op.C
	after[op.B] += op.C
	if same {
		return true, after
	}
	return op.Outcome == "open", balances
}

// A job of a queue: 0 before it exists, 1 until it is done, then 2. A member may acknowledge the
// job after its lease has ended and the next member has acknowledged it. No claim follows an
// acknowledgement.
//
//	add; claim; done
func queue(state any, op operation) (bool, any) {
	job := state.(int64)
	switch {
	case op.Op == "add":
		return job == 0, int64(1)
	case op.Op == "claim":
		return job == 1, job
	case op.Outcome == "ok":
		return job >= 1, int64(2)
	case op.Outcome == "open" && job == 1:
		return true, int64(2)
	default:
		return true, job
	}
}

// The generation of the owner of an exclusive group.
//
//	take -> A; use A
func lease(state any, op operation) (bool, any) {
	generation := state.(int64)
	switch {
	case op.Op == "take":
		return op.A > generation, op.A
	case op.Outcome == "ok":
		return op.A == generation, generation
	default:
		return true, generation
	}
}

var models = map[string]porcupine.Model{
	"register": model(int64(0), register),
	"append":   model(int64(0), appends),
	"bank":     model([4]int64{100, 100, 100, 100}, bank),
	"queue":    model(int64(0), queue),
	"lease":    model(int64(0), lease),
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

func main() {
	parts := map[[2]string][]porcupine.Operation{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fail(err)
		}
		if _, known := models[op.Model]; !known {
			fail(fmt.Errorf("there is no model %q", op.Model))
		}
		end := op.Return
		if end < 0 {
			end = math.MaxInt64
		}
		part := [2]string{op.Model, op.Part}
		parts[part] = append(parts[part], porcupine.Operation{
			ClientId: op.Client, Call: op.Call, Output: op, Return: end,
		})
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
	names := make([][2]string, 0, len(parts))
	for part := range parts {
		names = append(names, part)
	}
	sort.Slice(names, func(a, b int) bool {
		return names[a][0] < names[b][0] || names[a][0] == names[b][0] && names[a][1] < names[b][1]
	})
	code := 0
	for _, part := range names {
		verdict := porcupine.CheckOperationsTimeout(models[part[0]], parts[part], patience)
		word := map[porcupine.CheckResult]string{
			porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown",
		}[verdict]
		fmt.Printf("%s %s %s %d\n", word, part[0], part[1], len(parts[part]))
		if verdict != porcupine.Ok {
			code = 1
		}
	}
	os.Exit(code)
}
