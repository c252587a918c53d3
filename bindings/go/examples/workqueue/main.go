// Command workqueue shares the jobs in a topic among workers. A worker leases a job. If the
// job fails, the group delivers it again; after its second failure it is a dead letter.
//
//	workqueue DIRECTORY
//
// writes ten jobs, runs three workers, and prints the result of each job.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	weir "weir.example/bindings/go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: workqueue DIRECTORY")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workqueue:", err)
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
	topic, failed := store.Topic("jobs"), store.Topic("failed")
	for _, topic := range []weir.Topic{topic, failed} {
		if _, err := topic.Ensure(ctx, nil); err != nil {
			return err
		}
	}
	for number := range jobs {
		if _, err := topic.Append(ctx, fmt.Appendf(nil, "job %d", number)); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	results, errs := make(chan string, jobs), make(chan error, workers+1)
	var all sync.WaitGroup
	start := func(run func() error) {
		all.Go(func() {
			if err := run(); err != nil && !errors.Is(err, context.Canceled) {
				errs <- err
			}
		})
	}
	for number := range workers {
		start(func() error { return work(ctx, topic, fmt.Sprint("worker ", number), results) })
	}
	start(func() error { return deadLetter(ctx, failed, results) })
	defer all.Wait()
	defer stop()
	// Each job is done or a dead letter.
	for range jobs {
		select {
		case result := <-results:
			fmt.Fprintln(out, result)
		case err := <-errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// work does jobs until the context ends.
func work(ctx context.Context, jobs weir.Topic, name string, results chan<- string) error {
	group, err := jobs.Group(ctx, "workers", weir.Shared, &weir.GroupOptions{
		Member:      name,
		Lease:       30 * time.Second,
		Attempts:    2,
		DeadLetters: "failed",
	})
	if err != nil {
		return err
	}
	defer group.Close()
	for {
		// Blocks until there is a job.
		page, err := group.Claim(ctx, 2)
		if err != nil {
			return err
		}
		err = settle(ctx, group, page, name, results)
		page.Release()
		if err != nil {
			return err
		}
	}
}

// settle does the jobs of a page and reports the result of each to the group.
func settle(ctx context.Context, group *weir.Group, page *weir.Page, name string, results chan<- string) error {
	for record := range page.Records() {
		job := string(record.Value())
		if job == "job 3" {
			if _, err := group.Fail(ctx, 0, "this job fails", record.Claimed()); err != nil {
				return err
			}
			continue
		}
		if _, err := group.DoneWith(ctx, record.Claimed()); err != nil {
			return err
		}
		results <- name + ": " + job
	}
	return nil
}

// deadLetter waits for the dead letter. Its first record describes the failure, and the
// second one is a copy of the job.
func deadLetter(ctx context.Context, failed weir.Topic, results chan<- string) error {
	var failure string
	for record, err := range failed.Follow(ctx, weir.After(1)) {
		if err != nil {
			return err
		}
		if failure == "" {
			failure = string(record.Value())
			continue
		}
		results <- "dead letter: " + string(record.Value()) + " " + failure
		return nil
	}
	return nil
}
