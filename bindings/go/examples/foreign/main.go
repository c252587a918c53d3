// Command foreign merges the partitions of a document database that has no order
// across partitions. The command reads pages over HTTP when the query needs them,
// and prints the documents in order. If a partition is split, the command continues
// with the parts.
//
//	foreign -limit 20 http://127.0.0.1:8081
//
// lab/peers/cosmos-mock is a server to try it with.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"

	weir "weir.example/bindings/go"
)

func main() {
	limit := flag.Uint64("limit", 0, "most documents; 0: all")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: foreign [-limit N] URL")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *limit, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}

// run prints the documents at url in order.
func run(ctx context.Context, url string, limit uint64, out io.Writer) error {
	data := &dataBase{url: url, partitions: map[uint32]string{}}
	options := weir.QueryOptions{Order: "$.order, $.id", Fetch: data.fetch}
	if limit > 0 {
		options.Limit = &limit
	}
	query, err := weir.NewQuery(options)
	if err != nil {
		return err
	}
	defer query.Close()
	ranges, err := data.ranges(ctx)
	if err != nil {
		return err
	}
	for _, partition := range ranges {
		source, err := query.Source(sourceOf(partition.ID))
		if err != nil {
			return err
		}
		data.partitions[source.Number()] = partition.ID
	}
	lines := bufio.NewWriter(out)
	for item, err := range query.Items(ctx) {
		if err != nil {
			return err
		}
		// The bytes of the document as the server sent them.
		if _, err := fmt.Fprintf(lines, "%s\n", item.Bytes()); err != nil {
			return err
		}
	}
	return lines.Flush()
}

// sourceOf describes the pages of a partition.
func sourceOf(partition string) weir.SourceOptions {
	return weir.SourceOptions{Name: partition, Shape: "member:$.Documents", Sorted: true}
}

// dataBase is a client of the database.
type dataBase struct {
	url string
	// partitions maps the number of a source to its partition.
	partitions map[uint32]string
}

// keyRange is a partition as the server lists it.
type keyRange struct {
	ID      string   `json:"id"`
	Parents []string `json:"parents"`
}

// ranges lists the partitions.
func (d *dataBase) ranges(ctx context.Context) ([]keyRange, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/pkranges", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Ranges []keyRange `json:"PartitionKeyRanges"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	return answer.Ranges, nil
}

// fetch fetches all pages that the query needs, including those to read ahead.
func (d *dataBase) fetch(ctx context.Context, needs []weir.Need) error {
	for _, need := range needs {
		if err := d.page(ctx, need); err != nil {
			return err
		}
	}
	return nil
}

// page fetches one page and enqueues it.
func (d *dataBase) page(ctx context.Context, need weir.Need) error {
	partition := d.partitions[need.Source.Number()]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+"/docs", nil)
	if err != nil {
		return err
	}
	request.Header.Set("x-ms-documentdb-partitionkeyrangeid", partition)
	request.Header.Set("x-ms-max-item-count", "10")
	if need.Continuation != nil {
		request.Header.Set("x-ms-continuation", string(need.Continuation))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusGone:
		return d.split(ctx, need, partition)
	default:
		return fmt.Errorf("partition %s: %s", partition, response.Status)
	}
	// The engine takes over this buffer, so the page is not copied.
	buffer, err := weir.NewBuffer(int(max(response.ContentLength, 0)))
	if err != nil {
		return err
	}
	if _, err := buffer.ReadFrom(response.Body); err != nil {
		buffer.Free()
		return err
	}
	var next []byte
	if token := response.Header.Get("x-ms-continuation"); token != "" {
		next = []byte(token)
	}
	err = need.Source.EnqueueBuffer(buffer, next)
	if !need.Required && errors.Is(err, weir.ErrOverBudget) {
		// The query has no space for a page ahead, and requests it again later.
		buffer.Free()
		return nil
	}
	return err
}

// split replaces a partition by its parts, which continue after the last page of
// the partition.
func (d *dataBase) split(ctx context.Context, need weir.Need, partition string) error {
	ranges, err := d.ranges(ctx)
	if err != nil {
		return err
	}
	var names []string
	var parts []weir.SourceOptions
	for _, part := range ranges {
		for _, parent := range part.Parents {
			if parent == partition {
				options := sourceOf(part.ID)
				options.First = need.Continuation
				names, parts = append(names, part.ID), append(parts, options)
			}
		}
	}
	sources, err := need.Source.Replace(parts...)
	for at, source := range sources {
		d.partitions[source.Number()] = names[at]
	}
	return err
}
