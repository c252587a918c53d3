// Command cosmos-mock serves documents like a partitioned document database: over HTTP,
// each partition separately, in pages, with continuation tokens, and with a partition
// that is split during reading. The examples of foreign sources and their tests read from
// it.
//
//	cosmos-mock -partitions 3 -documents 300 -split 1 -split-after 2
//
// It prints its address on standard output, and ends when its standard input ends.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	var shape shape
	address := flag.String("listen", "127.0.0.1:0", "`address` to listen at")
	flag.IntVar(&shape.partitions, "partitions", 3, "partitions at the start, 1 to 256")
	flag.IntVar(&shape.documents, "documents", 300, "documents in all partitions together")
	flag.IntVar(&shape.payload, "payload", 100, "bytes of the payload of a document")
	flag.IntVar(&shape.split, "split", -1, "number of the `partition` that is split; -1: none")
	flag.IntVar(&shape.splitAfter, "split-after", 1, "`pages` of it that are served before")
	flag.Parse()
	if err := run(*address, shape); err != nil {
		fmt.Fprintln(os.Stderr, "cosmos-mock:", err)
		os.Exit(1)
	}
}

func run(address string, shape shape) error {
	collection, err := newCollection(shape)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := &http.Server{Handler: collection.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		// The pipe closes when the process that started this one ends.
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}
