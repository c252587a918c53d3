package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// callTime is the maximum time until a request to the API of JetStream is answered.
const callTime = 5 * time.Second

// nats is a NATS server, or a cluster of them, with JetStream. A topic is a stream in files with
// one subject and a replica on every node. The level is the value of sync_interval. Modes: `single`,
// an answer to each message; `fast`, one fast batch for each client, whose answers cover ranges;
// `atomic`, batches of `batch` messages with one answer each.
type nats struct{ program string }

func newNats(peers string) broker { return nats{filepath.Join(peers, "nats-server")} }

func (n nats) versions() map[string]string {
	return map[string]string{"nats-server": output(n.program, "--version"), "client": "own, pipelined"}
}

func (n nats) start(p place, l load) (*server, error) {
	ports, err := freePorts(2 * int(l.nodes))
	if err != nil {
		return nil, err
	}
	s, err := cluster(p, l.nodes, func(p place, number int) (*server, error) {
		return n.node(p, l, number, ports)
	})
	if err != nil {
		return nil, err
	}
	return s, s.await(func() error {
		_, err := natsCall(s, "INFO", nil)
		return err
	})
}

// node starts node `number`, which has a port for clients and one for the other nodes.
func (n nats) node(p place, l load, number int, ports []int) (*server, error) {
	// The buffers have room for all messages in flight.
	text := fmt.Sprintf(`
host: 127.0.0.1
port: %d
max_pending: 1GB
write_deadline: "60s"
jetstream {
  store_dir: %q
  sync_interval: %q
  max_buffered_msgs: 10000000
  max_buffered_size: 4GB
}
`, ports[2*number], p.dir, l.level)
	if l.nodes > 1 {
		var routes []string
		for other := range int(l.nodes) {
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[2*other+1]))
		}
		text += fmt.Sprintf("server_name: n%d\ncluster { name: lab, listen: \"127.0.0.1:%d\", routes: [%s] }\n",
			number, ports[2*number+1], strings.Join(routes, ", "))
	}
	file := filepath.Join(p.dir, "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := launch(p, n.program, "-c", file)
	if err != nil {
		return nil, err
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", ports[2*number])
	return s, nil
}

// create creates the stream. In a cluster, clients connect to the leader of the stream, so that no
// node forwards their requests.
func (nats) create(s *server, topic string, l load) error {
	if l.nodes == 1 {
		return natsCreate(s, topic, l)
	}
	// Nodes that were stopped may elect leaders first.
	return s.await(func() error { return natsCreate(s, topic, l) })
}

func natsCreate(s *server, topic string, l load) error {
	answer, err := natsCall(s, "STREAM.CREATE."+topic, map[string]any{
		"name": topic, "subjects": []string{topic}, "retention": "limits", "storage": "file",
		"num_replicas": l.nodes, "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "discard": "old",
		"duplicate_window": 100_000_000,
		"allow_batched":    true, "allow_atomic": true,
	})
	if err != nil || l.nodes == 1 {
		return err
	}
	var made struct{ Cluster struct{ Leader string } }
	if err := json.Unmarshal(answer, &made); err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimPrefix(made.Cluster.Leader, "n"))
	if err != nil {
		return fmt.Errorf("the stream has no leader: %s", answer)
	}
	for _, node := range append([]*server{s}, s.others...) {
		if filepath.Base(node.place.dir) == strconv.Itoa(number) || (number == 0 && node == s) {
			s.leader = node.address
		}
	}
	return nil
}

func (nats) drop(s *server, topic string) error {
	_, err := natsCall(s, "STREAM.DELETE."+topic, nil)
	return err
}

func (nats) stored(s *server, topic string) (uint64, error) {
	answer, err := natsCall(s, "STREAM.INFO."+topic, nil)
	if err != nil {
		return 0, err
	}
	var info struct{ State struct{ Messages uint64 } }
	err = json.Unmarshal(answer, &info)
	return info.State.Messages, err
}

func (nats) read(s *server, topic string, each func([]byte)) error {
	count, err := nats{}.stored(s, topic)
	if err != nil {
		return err
	}
	c, err := natsDial(s, topic, load{}, 0)
	if err != nil {
		return err
	}
	defer c.close()
	subject := "$JS.API.STREAM.MSG.GET." + topic
	for number := uint64(1); number <= count; number++ {
		answer, err := c.call(subject, []byte(fmt.Sprintf(`{"seq":%d}`, number)))
		if err != nil {
			return err
		}
		var got struct{ Message struct{ Data []byte } }
		if err := json.Unmarshal(answer, &got); err != nil {
			return err
		}
		each(got.Message.Data)
	}
	return nil
}

type natsClient struct {
	conn   net.Conn
	reader *bufio.Reader
	load   load
	topic  string
	inbox  string
}

func (nats) client(s *server, topic string, l load, number uint64) (client, error) {
	return natsDial(s, topic, l, number)
}

func natsDial(s *server, topic string, l load, number uint64) (*natsClient, error) {
	address := s.address
	if topic != "" && s.leader != "" {
		address = s.leader
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &natsClient{conn, bufio.NewReaderSize(conn, readBytes), l, topic, fmt.Sprintf("_INBOX.c%d", number)}
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	hello := `CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"go","version":"1","protocol":1}`
	_, err = fmt.Fprintf(conn, "%s\r\nSUB %s.> 1\r\nPING\r\n", hello, c.inbox)
	for err == nil {
		var line []byte
		line, err = c.reader.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("PONG")) {
			return c, conn.SetDeadline(time.Time{})
		}
		if bytes.HasPrefix(line, []byte("-ERR")) {
			err = fmt.Errorf("nats: %s", bytes.TrimSpace(line))
		}
	}
	_ = conn.Close()
	return nil, err
}

func (c *natsClient) put(p payload) error {
	messages := c.load.each()
	size := strconv.Itoa(c.load.bytes) + "\r\n"
	plain := "PUB " + c.topic + " " + c.inbox + ".a " + size
	var answered uint64
	switch c.load.mode {
	case "", "single":
		encode := func(buffer []byte, number uint64) []byte {
			buffer = append(buffer, plain...)
			buffer = append(buffer, p.message(number)...)
			return append(buffer, '\r', '\n')
		}
		return pipeline(c.conn, c.reader, messages, c.load.window, encode, func(*bufio.Reader) (uint64, error) {
			body, err := c.answer()
			if err == nil && !bytes.Contains(body, []byte(`"seq":`)) {
				err = fmt.Errorf("nats: %s", body)
			}
			answered++
			return answered, err
		})
	case "fast":
		return c.putFast(p)
	case "atomic":
		return c.putAtomic(p)
	}
	return fmt.Errorf("mode is single, fast or atomic")
}

// putFast sends all messages as one fast batch. The reply subject has the position in the
// batch, and an answer has the last stored position.
func (c *natsClient) putFast(p payload) error {
	messages := c.load.each()
	size := " " + strconv.Itoa(c.load.bytes) + "\r\n"
	// Inbox, unique name of the batch, interval of answers, no gaps.
	head := "PUB " + c.topic + " " + c.inbox + "." + c.inbox[7:] + ".65535.fail."
	encode := func(buffer []byte, number uint64) []byte {
		operation := ".1.$FI"
		if number == 0 {
			operation = ".0.$FI"
		}
		if number+1 == messages {
			operation = ".2.$FI"
		}
		buffer = append(buffer, head...)
		buffer = strconv.AppendUint(buffer, number+1, 10)
		buffer = append(buffer, operation...)
		buffer = append(buffer, size...)
		buffer = append(buffer, p.message(number)...)
		return append(buffer, '\r', '\n')
	}
	return pipeline(c.conn, c.reader, messages, c.load.window, encode, func(*bufio.Reader) (uint64, error) {
		body, err := c.answer()
		if err != nil {
			return 0, err
		}
		var got struct {
			Type  string
			Seq   uint64
			Count uint64
			Error any
		}
		if err := json.Unmarshal(body, &got); err != nil {
			return 0, err
		}
		switch {
		case got.Error != nil || got.Type == "gap" || got.Type == "err":
			return 0, fmt.Errorf("nats: %s", body)
		case got.Type == "ack":
			// Only the end of the batch is answered.
			return min(got.Seq, messages-1), nil
		}
		return got.Count, nil
	})
}

// putAtomic sends batches; each is stored whole or not at all.
func (c *natsClient) putAtomic(p payload) error {
	messages, batch := c.load.each(), c.load.batch
	var answered uint64
	encode := func(buffer []byte, number uint64) []byte {
		at := number%batch + 1
		last := at == batch || number+1 == messages
		head := "NATS/1.0\r\nNats-Batch-Id:" + c.inbox[7:] + "-" + strconv.FormatUint(number/batch, 10) +
			"\r\nNats-Batch-Sequence:" + strconv.FormatUint(at, 10) + "\r\n"
		reply := ""
		if last {
			head += "Nats-Batch-Commit:1\r\n"
			reply = c.inbox + ".a "
		}
		head += "\r\n"
		buffer = append(buffer, "HPUB "...)
		buffer = append(buffer, c.topic...)
		buffer = append(buffer, ' ')
		buffer = append(buffer, reply...)
		buffer = strconv.AppendInt(buffer, int64(len(head)), 10)
		buffer = append(buffer, ' ')
		buffer = strconv.AppendInt(buffer, int64(len(head)+c.load.bytes), 10)
		buffer = append(buffer, '\r', '\n')
		buffer = append(buffer, head...)
		buffer = append(buffer, p.message(number)...)
		return append(buffer, '\r', '\n')
	}
	return pipeline(c.conn, c.reader, messages, c.load.window, encode, func(*bufio.Reader) (uint64, error) {
		body, err := c.answer()
		if err == nil && !bytes.Contains(body, []byte(`"seq":`)) {
			err = fmt.Errorf("nats: %s", body)
		}
		answered = min(answered+batch, messages)
		return answered, err
	})
}

func (c *natsClient) close() { _ = c.conn.Close() }

// answer reads the next message to the inbox. Its result is valid until the next call.
func (c *natsClient) answer() ([]byte, error) {
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")):
			length, err := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1 : len(line)-2]))
			if err != nil {
				return nil, err
			}
			body, err := c.reader.Peek(length + 2)
			if err != nil {
				return nil, err
			}
			_, err = c.reader.Discard(length + 2)
			return body[:length], err
		case bytes.HasPrefix(line, []byte("PING")):
			if _, err := io.WriteString(c.conn, "PONG\r\n"); err != nil {
				return nil, err
			}
		case bytes.HasPrefix(line, []byte("PONG")), bytes.HasPrefix(line, []byte("INFO")):
		default:
			return nil, fmt.Errorf("nats: %s", bytes.TrimSpace(line))
		}
	}
}

func (c *natsClient) call(subject string, body []byte) ([]byte, error) {
	// A cluster that has no leader does not answer.
	_ = c.conn.SetDeadline(time.Now().Add(callTime))
	if _, err := fmt.Fprintf(c.conn, "PUB %s %s.r %d\r\n%s\r\n", subject, c.inbox, len(body), body); err != nil {
		return nil, err
	}
	answer, err := c.answer()
	if err == nil && bytes.Contains(answer, []byte(`"error":`)) {
		err = fmt.Errorf("nats: %s", answer)
	}
	return answer, err
}

// natsCall calls the JetStream API on a separate connection.
func natsCall(s *server, what string, request any) ([]byte, error) {
	body := []byte{}
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return nil, err
		}
	}
	c, err := natsDial(s, "", load{}, 0)
	if err != nil {
		return nil, err
	}
	defer c.close()
	answer, err := c.call("$JS.API."+what, body)
	return bytes.Clone(answer), err
}

// output is the first output line of a program, for the greeting.
func output(line ...string) string {
	text, err := exec.Command(line[0], line[1:]...).Output()
	if err != nil {
		return "not installed"
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.ReplaceAll(first, "\t", " ")
}
