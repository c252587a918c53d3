package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
)

// s2 is a server of S2 with its files in a directory. Every five milliseconds, it writes the appended
// records to files, and then answers. It does not sync the files: a user gets durability from an object
// store, which is missing here. A topic is a stream. Each client has one append session with at most
// `window` unanswered records, in calls of `batch` records.
type s2 struct{ program string }

const (
	s2Basin = "weir-lab"
	// s2Page is the number of records of a read.
	s2Page = 1000
)

func newS2(peers string) broker { return s2{filepath.Join(peers, "s2-lite")} }

func (b s2) versions() map[string]string {
	return map[string]string{"s2-lite": output(b.program, "--version"), "client": "own, append sessions over HTTP/2"}
}

func (b s2) start(p place, _ load) (*server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	// By default the server writes a line for each request.
	s, err := launch(p, "env", "RUST_LOG=warn", b.program,
		"--local-root", filepath.Join(p.dir, "data"), "--port", strconv.Itoa(ports[0]))
	if err != nil {
		return nil, err
	}
	s.address = "http://127.0.0.1:" + strconv.Itoa(ports[0])
	return s, s.await(func() error {
		_, err := s2Call(s, http.MethodPut, "/v1/basins/"+s2Basin, "{}", "")
		return err
	})
}

func (s2) create(s *server, topic string, _ load) error {
	_, err := s2Call(s, http.MethodPost, "/v1/streams", fmt.Sprintf(`{"stream":%q}`, topic), "")
	return err
}

func (s2) drop(s *server, topic string) error {
	_, err := s2Call(s, http.MethodDelete, "/v1/streams/"+topic, "", "")
	return err
}

func (s2) stored(s *server, topic string) (uint64, error) {
	text, err := s2Call(s, http.MethodGet, "/v1/streams/"+topic+"/records/tail", "", "")
	if err != nil {
		return 0, err
	}
	var answer struct {
		Tail struct {
			SeqNum uint64 `json:"seq_num"`
		} `json:"tail"`
	}
	err = json.Unmarshal(text, &answer)
	return answer.Tail.SeqNum, err
}

func (b s2) read(s *server, topic string, each func([]byte)) error {
	end, err := b.stored(s, topic)
	if err != nil {
		return err
	}
	for from := uint64(0); from < end; {
		path := fmt.Sprintf("/v1/streams/%s/records?seq_num=%d&count=%d", topic, from, s2Page)
		batch, err := s2Call(s, http.MethodGet, path, "", "application/protobuf")
		if err != nil {
			return err
		}
		before := from
		err = fields(batch, func(number, _ uint64, record []byte) error {
			if number != 1 {
				return nil
			}
			from++
			var body []byte
			err := fields(record, func(number, _ uint64, content []byte) error {
				if number == 4 {
					body = content
				}
				return nil
			})
			each(body)
			return err
		})
		if err != nil {
			return err
		}
		if from == before {
			return fmt.Errorf("no record at %d, before the end at %d", from, end)
		}
	}
	return nil
}

// s2Transport returns a transport for HTTP/2 without TLS and without compressed answers.
func s2Transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols, DisableCompression: true}
}

func s2Request(within context.Context, s *server, method, path string, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(within, method, s.address+path, body)
	if err == nil {
		request.Header.Set("s2-basin", s2Basin)
	}
	return request, err
}

// s2Call sends one request and returns the body of its answer. `accept` is JSON by default.
func s2Call(s *server, method, path, body, accept string) ([]byte, error) {
	within, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	request, err := s2Request(within, s, method, path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		request.Header.Set("content-type", "application/json")
	}
	if accept != "" {
		request.Header.Set("accept", accept)
	}
	transport := s2Transport()
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("s2: %s %s: %s %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	return text, err
}

type s2Client struct {
	server    *server
	topic     string
	load      load
	transport *http.Transport
}

func (s2) client(s *server, topic string, l load, _ uint64) (client, error) {
	c := &s2Client{s, topic, l, s2Transport()}
	// Connects before the timing.
	within, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	request, err := s2Request(within, s, http.MethodGet, "/v1/streams/"+topic+"/records/tail", nil)
	if err != nil {
		return nil, err
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return c, err
}

func (c *s2Client) put(p payload) error {
	messages := c.load.each()
	within, cancel := context.WithTimeout(context.Background(), 5*answerTime)
	defer cancel()
	body, input := io.Pipe()
	request, err := s2Request(within, c.server, http.MethodPost, "/v1/streams/"+c.topic+"/records", body)
	if err != nil {
		return err
	}
	request.Header.Set("content-type", "s2s/proto")
	slots := make(chan struct{}, max(1, c.load.window/c.load.batch))
	go c.send(within, input, slots, p)
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("s2: %s %s", response.Status, bytes.TrimSpace(text))
	}
	reader := bufio.NewReaderSize(response.Body, readBytes)
	for answered := uint64(0); answered < messages; {
		count, err := s2Acknowledged(reader)
		if err != nil {
			return err
		}
		answered += count
		<-slots
	}
	return nil
}

// send writes all calls of a client. Each takes a slot, which the answer frees.
func (c *s2Client) send(within context.Context, input *io.PipeWriter, slots chan struct{}, p payload) {
	messages, batch := c.load.each(), c.load.batch
	writer := bufio.NewWriterSize(input, writeBytes)
	var frame []byte
	for from := uint64(0); from < messages; from += batch {
		select {
		case slots <- struct{}{}:
		default:
			if writer.Flush() != nil {
				return
			}
			select {
			case slots <- struct{}{}:
			case <-within.Done():
				return
			}
		}
		frame = appendFrame(frame[:0], p, from, min(messages, from+batch))
		if _, err := writer.Write(frame); err != nil {
			return
		}
	}
	if writer.Flush() == nil {
		_ = input.Close()
	}
}

// appendFrame appends a frame with the messages from `from` up to but not `until`: three bytes of
// length, a flag, and an AppendInput.
func appendFrame(buffer []byte, p payload, from, until uint64) []byte {
	buffer = append(buffer, 0, 0, 0, 0)
	for number := from; number < until; number++ {
		message := p.message(number)
		buffer = append(buffer, 1<<3|wireDelimited)
		buffer = appendLength(buffer, bytesSize(len(message)))
		buffer = appendBytes(buffer, 3, message)
	}
	length := len(buffer) - 3
	buffer[0], buffer[1], buffer[2] = byte(length>>16), byte(length>>8), byte(length)
	return buffer
}

// s2Acknowledged reads one answer of a session and returns the number of its records.
func s2Acknowledged(reader *bufio.Reader) (uint64, error) {
	var head [4]byte
	if _, err := io.ReadFull(reader, head[:]); err != nil {
		return 0, err
	}
	content := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if len(content) == 0 {
		return 0, fmt.Errorf("s2: an empty answer")
	}
	content = content[:len(content)-1]
	if _, err := io.ReadFull(reader, content); err != nil {
		return 0, err
	}
	const terminal = 0x80
	if head[3]&terminal != 0 {
		return 0, fmt.Errorf("s2: the session ended: %q", content)
	}
	var ends [3]uint64
	err := fields(content, func(number, _ uint64, position []byte) error {
		if number > 2 {
			return nil
		}
		return fields(position, func(field, integer uint64, _ []byte) error {
			if field == 1 {
				ends[number] = integer
			}
			return nil
		})
	})
	if err == nil && ends[2] <= ends[1] {
		err = fmt.Errorf("s2: an answer without records")
	}
	return ends[2] - ends[1], err
}

func (c *s2Client) close() { c.transport.CloseIdleConnections() }
