package weir_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	weir "weir.example/bindings/go"
)

// trial is a cluster of three nodes that executes requests: kill the leader, stop the other nodes, let them
// continue. WEIR_CLUSTER is the command that starts it.
type trial struct {
	address string
	t       *testing.T
	input   *os.File
	output  *bufio.Scanner
}

func cluster(t *testing.T) *trial {
	t.Helper()
	command := os.Getenv("WEIR_CLUSTER")
	if command == "" {
		t.Skip("WEIR_CLUSTER does not name what starts a cluster")
	}
	started := exec.Command(command, "cluster", t.TempDir())
	started.Stderr = os.Stderr
	childInput, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	started.Stdin = childInput
	output, err := started.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := started.Start(); err != nil {
		t.Fatal(err)
	}
	_ = childInput.Close()
	t.Cleanup(func() {
		_ = input.Close()
		_ = started.Wait()
	})
	found := &trial{t: t, input: input, output: bufio.NewScanner(output)}
	found.address = found.readLine()
	return found
}

func (c *trial) readLine() string {
	c.t.Helper()
	if !c.output.Scan() {
		c.t.Fatal("the cluster has ended")
	}
	return c.output.Text()
}

// request sends a request to the cluster.
func (c *trial) request(what string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.input, what); err != nil {
		c.t.Fatal(err)
	}
}

// checkRecords reads the records after offset last up to offset to, and checks that each arrives once and in order.
func checkRecords(ctx context.Context, t *testing.T, reader *weir.Reader, last, to uint64) {
	t.Helper()
	for last < to {
		page, err := reader.Next(ctx)
		if err != nil {
			t.Fatalf("after %d: %v", last, err)
		}
		for record := range page.Records() {
			last++
			want := ""
			if last > 1 {
				want = fmt.Sprint(last - 2)
			}
			if record.Offset() != last || string(record.Value()) != want {
				t.Fatalf("%d %q instead of %d %q", record.Offset(), record.Value(), last, want)
			}
		}
		page.Release()
	}
	if last != to {
		t.Fatalf("%d records instead of %d", last, to)
	}
}

// checkValue checks the value of the key k, which it reads with a consistency.
func checkValue(ctx context.Context, t *testing.T, store *weir.Store, consistency weir.Consistency, want string) {
	t.Helper()
	reads, err := store.WithConsistency(consistency)
	if err != nil {
		t.Fatal(err)
	}
	defer reads.Close()
	record, ok, err := reads.Topic("orders").Get(ctx, []byte("k"))
	if err != nil || !ok || string(record.Value()) != want {
		t.Fatal(consistency, ok, err)
	}
}

func TestAKilledLeaderLosesNoWriteAndAWriteIsReceivedBeforeItIsCommitted(t *testing.T) {
	const kill, dead, end = 100, 200, 300
	started := cluster(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	store, err := weir.Connect(ctx, started.address, &weir.ConnectOptions{Received: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	orders := topic(t, store, "orders")
	session, err := store.Session(ctx, [16]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	listener, err := orders.Listener(ctx, weir.FromStart())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for n := range end {
		if n == kill {
			checkRecords(ctx, t, listener, 0, kill+1)
			started.request("kill")
		}
		if n == dead {
			if line := started.readLine(); !strings.HasPrefix(line, "killed ") {
				t.Fatal(line)
			}
		}
		put := weir.Put([]byte("k"), fmt.Append(nil, n))
		put.Topic = "orders"
		verdicts, err := session.Submit(ctx, put)
		if err != nil || verdicts[0].Effect != weir.Valid {
			t.Fatal(n, verdicts, err)
		}
	}
	checkRecords(ctx, t, listener, kill+1, end+1)
	reader, err := orders.Reader(ctx, weir.FromStart())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	checkRecords(ctx, t, reader, 0, end+1)
	if page, err := reader.TryNext(ctx); page != nil || err != nil {
		t.Fatal("a page after the last record", err)
	}
	checkValue(ctx, t, store, weir.ConsistencyLinear, "299")
	// The connection moves to the leader, which stays reachable.
	checkValue(ctx, t, store, weir.ConsistencyLeader, "299")
	started.request("stop")
	if line := started.readLine(); line != "stopped" {
		t.Fatal(line)
	}
	checkValue(ctx, t, store, weir.ConsistencyLocal, "299")
	// No write can be committed now.
	put := weir.Put([]byte("k"), fmt.Append(nil, end))
	put.Topic = "orders"
	pending, err := session.Send(ctx, put)
	if err != nil {
		t.Fatal(err)
	}
	if err := pending.Received(ctx); err != nil {
		t.Fatal(err)
	}
	started.request("continue")
	if line := started.readLine(); line != "continued" {
		t.Fatal(line)
	}
	if verdicts, err := pending.Wait(ctx); err != nil || !verdicts[0].Valid() {
		t.Fatal(verdicts, err)
	}
}
