package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// umadb is a server of UmaDB, an event store whose appends can depend on a query. It syncs before it
// answers, and one sync covers all appends that arrived during the previous sync. A message is an event. A
// client has at most `window` appends in flight, each with `batch` events. Events cannot be removed, so
// each topic is a new server with an empty directory.
type umadb struct{ program string }

func newUmadb(peers string) broker { return umadb{filepath.Join(peers, "umadb")} }

func (u umadb) versions() map[string]string {
	return map[string]string{"umadb": output(u.program, "--version"), "client": "own, over grpc " + clientVersion("google.golang.org/grpc")}
}

func (u umadb) start(p place, _ load) (*server, error) {
	s, err := u.launch(p)
	if err != nil {
		return nil, err
	}
	return s, s.await(func() error { return u.ready(s) })
}

// launch starts a server with a new directory. The directory of an earlier server stays until
// `create` removes it.
func (u umadb) launch(p place) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(ports[0])
	s, err := launch(p, u.program, "--listen", address, "--db-path", filepath.Join(p.dir, "data-"+strconv.Itoa(ports[0])))
	if err != nil {
		return nil, err
	}
	s.address = address
	return s, nil
}

func (umadb) ready(s *server) error {
	_, err := umadbHead(s)
	return err
}

func (u umadb) create(s *server, _ string, _ load) error {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
	old, err := filepath.Glob(filepath.Join(s.place.dir, "data-*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	again, err := u.launch(s.place)
	if err != nil {
		return err
	}
	s.command, s.address = again.command, again.address
	return s.await(func() error { return u.ready(s) })
}

func (umadb) drop(*server, string) error { return nil }

// stored is the position of the last event. Positions begin with 1 and have no gaps.
func (umadb) stored(s *server, _ string) (uint64, error) { return umadbHead(s) }

func (umadb) read(s *server, _ string, each func([]byte)) error {
	return withUmadb(s, func(within context.Context, conn *grpc.ClientConn) error {
		stream, err := conn.NewStream(within, &grpc.StreamDesc{ServerStreams: true}, "/umadb.v1.DCB/Read", rawCalls...)
		if err != nil {
			return err
		}
		request := raw{}
		if err := errors.Join(stream.SendMsg(&request), stream.CloseSend()); err != nil {
			return err
		}
		for {
			var answer raw
			if err := stream.RecvMsg(&answer); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := umadbEvents(answer.bytes, each); err != nil {
				return err
			}
		}
	})
}

// umadbEvents passes the data of the events of a ReadResponse to `each`.
func umadbEvents(response []byte, each func([]byte)) error {
	return fields(response, func(number, _ uint64, sequenced []byte) error {
		if number != 1 {
			return nil
		}
		return fields(sequenced, func(number, _ uint64, event []byte) error {
			if number != 2 {
				return nil
			}
			return fields(event, func(number, _ uint64, data []byte) error {
				if number == 3 {
					each(data)
				}
				return nil
			})
		})
	})
}

// umadbHead returns the position of the last event, or 0.
func umadbHead(s *server) (position uint64, err error) {
	err = withUmadb(s, func(within context.Context, conn *grpc.ClientConn) error {
		var answer raw
		if err := conn.Invoke(within, "/umadb.v1.DCB/Head", &raw{}, &answer, rawCalls...); err != nil {
			return err
		}
		return fields(answer.bytes, func(number, integer uint64, _ []byte) error {
			if number == 1 {
				position = integer
			}
			return nil
		})
	})
	return position, err
}

// raw is an encoded message.
type raw struct{ bytes []byte }

// rawCodec passes encoded messages through.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) ([]byte, error) {
	encoded, is := message.(*raw)
	if !is {
		return nil, fmt.Errorf("not an encoded message")
	}
	return encoded.bytes, nil
}

func (rawCodec) Unmarshal(data []byte, message any) error {
	encoded, is := message.(*raw)
	if !is {
		return fmt.Errorf("not an encoded message")
	}
	encoded.bytes = append([]byte(nil), data...)
	return nil
}

var rawCalls = []grpc.CallOption{grpc.ForceCodec(rawCodec{})}

func dialUmadb(s *server) (*grpc.ClientConn, error) {
	const window = 64 << 20
	return grpc.NewClient(s.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithWriteBufferSize(256<<10), grpc.WithReadBufferSize(256<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(window), grpc.MaxCallSendMsgSize(window)),
	)
}

func withUmadb(s *server, work func(context.Context, *grpc.ClientConn) error) error {
	conn, err := dialUmadb(s)
	if err != nil {
		return err
	}
	defer conn.Close()
	within, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return work(within, conn)
}

type umadbClient struct {
	conn *grpc.ClientConn
	load load
}

func (umadb) client(s *server, _ string, l load, _ uint64) (client, error) {
	conn, err := dialUmadb(s)
	if err != nil {
		return nil, err
	}
	// Connects before the timing.
	within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := conn.Invoke(within, "/umadb.v1.DCB/Head", &raw{}, &raw{}, rawCalls...); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &umadbClient{conn, l}, nil
}

func (c *umadbClient) put(p payload) error {
	messages, batch := c.load.each(), c.load.batch
	calls := (messages + batch - 1) / batch
	var next atomic.Uint64
	var wrong atomic.Pointer[error]
	var done sync.WaitGroup
	for range min(c.load.window, calls) {
		done.Go(func() {
			var request, answer raw
			for wrong.Load() == nil {
				call := next.Add(1) - 1
				if call >= calls {
					return
				}
				request.bytes = appendEvents(request.bytes[:0], p, call*batch, min(messages, (call+1)*batch))
				if err := c.conn.Invoke(context.Background(), "/umadb.v1.DCB/Append", &request, &answer, rawCalls...); err != nil {
					wrong.Store(&err)
				}
			}
		})
	}
	done.Wait()
	if err := wrong.Load(); err != nil {
		return *err
	}
	return nil
}

// appendEvents appends an AppendRequest with the messages from `from` up to but not `until`.
func appendEvents(buffer []byte, p payload, from, until uint64) []byte {
	kind := []byte("lab")
	for number := from; number < until; number++ {
		message := p.message(number)
		size := bytesSize(len(kind)) + bytesSize(len(message))
		buffer = append(buffer, 1<<3|wireDelimited)
		buffer = appendLength(buffer, size)
		buffer = appendBytes(buffer, 1, kind)
		buffer = appendBytes(buffer, 3, message)
	}
	return buffer
}

func (c *umadbClient) close() { _ = c.conn.Close() }
