package main

import (
	"bufio"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

const (
	// answerTime is the maximum time without an answer of the server.
	answerTime = 60 * time.Second
	// writeBytes is collected for one write; readBytes is the buffer of one read.
	writeBytes = 64 << 10
	readBytes  = 256 << 10
)

// pipeline sends `messages` messages over `conn` with at most `window` unanswered ones,
// and returns when all are answered. `encode` appends a message. `answers` reads at least
// one answer and returns the number of newly answered messages.
func pipeline(conn net.Conn, reader *bufio.Reader, messages, window uint64,
	encode func([]byte, uint64) []byte, answers func(*bufio.Reader) (uint64, error),
) error {
	var answered atomic.Uint64
	progress := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		for answered.Load() < messages {
			if err := conn.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
				ended <- err
				return
			}
			now, err := answers(reader)
			for err == nil && now < messages && reader.Buffered() > 0 {
				now, err = answers(reader)
			}
			if err != nil {
				ended <- err
				return
			}
			answered.Store(now)
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		ended <- nil
	}()
	buffer := make([]byte, 0, writeBytes+4096)
	for next := uint64(0); next < messages; next++ {
		full := next-answered.Load() >= window
		if len(buffer) >= writeBytes || full && len(buffer) > 0 {
			if _, err := conn.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
		for next-answered.Load() >= window {
			select {
			case <-progress:
			case err := <-ended:
				if err == nil {
					err = fmt.Errorf("more answers than messages")
				}
				return err
			}
		}
		buffer = encode(buffer, next)
	}
	if _, err := conn.Write(buffer); err != nil {
		return err
	}
	return <-ended
}
