package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// redis is a Redis server; a topic is a stream, a message one XADD. Levels:
// `no`, `everysec` and `always` of appendfsync.
type redis struct{}

func newRedis(string) broker { return redis{} }

func (redis) versions() map[string]string {
	return map[string]string{"redis": output("redis-server", "--version"), "client": "own, pipelined"}
}

func (redis) start(p place, l load) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	settings := []string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(ports[0]),
		"dir " + p.dir,
		"appendonly yes",
		"appendfsync " + l.level,
		// No dump and no rewrite of the file while messages arrive.
		`save ""`,
		"auto-aof-rewrite-percentage 0",
		"tcp-backlog 128",
		"io-threads 1",
	}
	file := filepath.Join(p.dir, "redis.conf")
	if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	s, err := launch(p, "redis-server", file)
	if err != nil {
		return nil, err
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	return s, s.await(func() error {
		answer, err := redisCall(s, "PING")
		if err == nil && string(answer[0]) != "PONG" {
			err = fmt.Errorf("answered %q", answer[0])
		}
		return err
	})
}

func (redis) create(*server, string, load) error { return nil }

func (redis) drop(s *server, topic string) error {
	_, err := redisCall(s, "UNLINK", topic)
	return err
}

func (redis) stored(s *server, topic string) (uint64, error) {
	answer, err := redisCall(s, "XLEN", topic)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(answer[0]), 10, 64)
}

func (redis) read(s *server, topic string, each func([]byte)) error {
	from := "-"
	for {
		answer, err := redisCall(s, "XRANGE", topic, from, "+", "COUNT", "1000")
		if err != nil || len(answer) == 0 {
			return err
		}
		// An entry consists of its id, the name of the field and its value.
		for at := 0; at+2 < len(answer); at += 3 {
			each(answer[at+2])
			from = "(" + string(answer[at])
		}
	}
}

type redisClient struct {
	conn   net.Conn
	reader *bufio.Reader
	load   load
	head   []byte
}

func (redis) client(s *server, topic string, l load, _ uint64) (client, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nv\r\n$%d\r\n", len(topic), topic, l.bytes)
	return &redisClient{conn, bufio.NewReaderSize(conn, readBytes), l, []byte(head)}, nil
}

func (c *redisClient) put(p payload) error {
	var answered uint64
	encode := func(buffer []byte, number uint64) []byte {
		buffer = append(buffer, c.head...)
		buffer = append(buffer, p.message(number)...)
		return append(buffer, '\r', '\n')
	}
	return pipeline(c.conn, c.reader, c.load.each(), c.load.window, encode, func(r *bufio.Reader) (uint64, error) {
		// The id of the entry: `$` length CR LF bytes CR LF.
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != '$' {
			return 0, fmt.Errorf("redis: %s", bytes.TrimSpace(line))
		}
		length, err := strconv.Atoi(string(line[1 : len(line)-2]))
		if err != nil {
			return 0, err
		}
		answered++
		_, err = r.Discard(length + 2)
		return answered, err
	})
}

func (c *redisClient) close() { _ = c.conn.Close() }

// redisCall sends one command and returns the strings of its answer.
func redisCall(s *server, command ...string) ([][]byte, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	text := fmt.Sprintf("*%d\r\n", len(command))
	for _, word := range command {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		return nil, err
	}
	var answer [][]byte
	err = redisAnswer(bufio.NewReader(conn), &answer)
	return answer, err
}

func redisAnswer(r *bufio.Reader, into *[][]byte) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	line = bytes.TrimSpace(line)
	switch line[0] {
	case '-':
		return fmt.Errorf("redis: %s", line[1:])
	case '*':
		count, _ := strconv.Atoi(string(line[1:]))
		for range count {
			if err := redisAnswer(r, into); err != nil {
				return err
			}
		}
		return nil
	case '$':
		length, _ := strconv.Atoi(string(line[1:]))
		value := make([]byte, length+2)
		for at := 0; at < len(value); {
			n, err := r.Read(value[at:])
			if err != nil {
				return err
			}
			at += n
		}
		*into = append(*into, value[:length])
		return nil
	}
	*into = append(*into, line[1:])
	return nil
}
