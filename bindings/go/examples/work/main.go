// Command work shares the records of a topic among workers. One worker at a time
// has a record; if the worker fails, the group redelivers the record.
//
//	work DIRECTORY
//
// writes ten jobs, runs three workers, and prints which worker finished which job.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	weir "weir.example/bindings/go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: work DIRECTORY")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(1)
	}
}

const (
	jobs    = 10
	workers = 3
)

func run(ctx context.Context, directory string, out io.Writer) error {
	store, err := weir.Open(directory, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	topic := store.Topic("jobs")
	if _, err := topic.Ensure(ctx, nil); err != nil {
		return err
	}
	for number := range jobs {
		if _, err := topic.Append(ctx, fmt.Appendf(nil, "job %d", number)); err != nil {
			return err
		}
	}
	// The last finished job ends the wait of all workers.
	ctx, done := context.WithCancel(ctx)
	defer done()
	var (
		lock  sync.Mutex
		count int
		all   sync.WaitGroup
		first error
	)
	for number := range workers {
		all.Go(func() {
			name := fmt.Sprint("worker ", number)
			err := work(ctx, topic, name, func(job string, attempt uint32) error {
				lock.Lock()
				defer lock.Unlock()
				if attempt == 1 && job == "job 3" {
					return errors.New("the first try fails")
				}
				fmt.Fprintf(out, "%s: %s, attempt %d\n", name, job, attempt)
				if count++; count == jobs {
					done()
				}
				return nil
			})
			lock.Lock()
			defer lock.Unlock()
			if first == nil {
				first = err
			}
		})
	}
	all.Wait()
	return first
}

// work processes jobs until the context ends.
func work(ctx context.Context, topic weir.Topic, name string, do func(job string, attempt uint32) error) error {
	group, err := topic.Group(ctx, "workers", weir.Shared, &weir.GroupOptions{Member: name})
	if errors.Is(err, context.Canceled) {
		// The other workers finished all jobs before this one started.
		return nil
	}
	if err != nil {
		return err
	}
	defer group.Close()
	for {
		page, err := group.Claim(ctx, 2)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		for record := range page.Records() {
			// The result of a job is reported even if the context has ended.
			if err := settle(context.WithoutCancel(ctx), group, record, do); err != nil {
				return err
			}
		}
		page.Release()
	}
}

// settle runs a job and reports its result to the group.
func settle(
	ctx context.Context,
	group *weir.Group,
	record weir.Record,
	do func(job string, attempt uint32) error,
) error {
	failed := do(string(record.Value()), record.Attempts())
	if failed != nil {
		_, err := group.Fail(ctx, 0, failed.Error(), record.Claimed())
		return err
	}
	_, err := group.DoneWith(ctx, record.Claimed())
	return err
}
