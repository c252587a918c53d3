package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// broker is one kind of server with its clients. Except for `put` of a client, all calls
// come from one goroutine.
type broker interface {
	// versions of server and client, for the report.
	versions() map[string]string
	// start starts a server for the level in `l` with its files in `place.dir`, and returns
	// when the server answers.
	start(place place, l load) (*server, error)
	// create creates the empty topic.
	create(s *server, topic string, l load) error
	// client connects client `number`, and returns when it is ready to send.
	client(s *server, topic string, l load, number uint64) (client, error)
	// stored asks the server for the number of messages in the topic.
	stored(s *server, topic string) (uint64, error)
	// read passes every message of the topic to a function, in any order.
	read(s *server, topic string, each func([]byte)) error
	// drop removes the topic.
	drop(s *server, topic string) error
}

// client is one connection, or its equivalent for a broker.
type client interface {
	// put sends all messages and returns when all are acknowledged.
	put(p payload) error
	close()
}

// contender executes the requests of the lab with one broker.
type contender struct {
	kind    broker
	inputs  map[int]*input
	servers map[string]*server
	topics  int
}

type input struct {
	load   load
	server *server
}

func newContender(kind broker) *contender {
	return &contender{kind: kind, inputs: map[int]*input{}, servers: map[string]*server{}}
}

// load prepares an input. Inputs of one level and number of nodes share a server, which is started
// with the first of these inputs.
func (c *contender) load(number int, w words) error {
	l, err := readLoad(w)
	if err != nil {
		return err
	}
	dir := w.text("dir", "")
	if dir == "" {
		return fmt.Errorf("parameter `dir` is missing")
	}
	key := fmt.Sprintf("%s %d", l.level, l.nodes)
	running := c.servers[key]
	if running == nil {
		removeLeftFiles(dir)
		cpu, err := serverCPU(w.text("server_cpu", "auto"))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("broker-%d-%d", os.Getpid(), len(c.servers))
		place := place{dir: filepath.Join(dir, name), cpu: cpu}
		if err := os.MkdirAll(place.dir, 0o700); err != nil {
			return err
		}
		running, err = c.kind.start(place, l)
		if err != nil {
			_ = os.RemoveAll(place.dir)
			return err
		}
		c.servers[key] = running
		warm, err := w.number("warm", 0)
		if err != nil {
			return err
		}
		// Servers that compile at run time need calls before they are measured.
		for rest := int64(warm); rest > 0 && err == nil; rest -= int64(l.messages) {
			_, _, err = c.pass(&input{l, running}, l, false)
		}
		if err != nil {
			return err
		}
		if err := running.suspend(); err != nil {
			return err
		}
	}
	c.inputs[number] = &input{l, running}
	return nil
}

func (c *contender) input(number int) (*input, error) {
	if in := c.inputs[number]; in != nil {
		return in, nil
	}
	return nil, fmt.Errorf("input %d was not loaded", number)
}

// check executes a small form of the load once, and reads all messages back.
func (c *contender) check(number int) (content, touch uint64, err error) {
	in, err := c.input(number)
	if err != nil {
		return 0, 0, err
	}
	if err := in.server.resume(); err != nil {
		return 0, 0, err
	}
	_, content, err = c.pass(in, in.load.forCheck(), true)
	if err == nil {
		err = in.server.suspend()
	}
	return content, in.load.messages, err
}

// run executes the load `iterations` times, each time with a new topic.
func (c *contender) run(number int, iterations uint64) (timed, error) {
	sum := timed{extra: map[string]float64{}}
	in, err := c.input(number)
	if err != nil {
		return sum, err
	}
	if err := in.server.resume(); err != nil {
		return sum, err
	}
	for range iterations {
		one, _, err := c.pass(in, in.load, false)
		if err != nil {
			return sum, err
		}
		sum.wall += one.wall
		sum.cpu += one.cpu
		sum.touch += one.touch
		for name, value := range one.extra {
			sum.extra[name] += value
		}
	}
	return sum, in.server.suspend()
}

// pass puts `l` into a new topic and then removes the topic.
func (c *contender) pass(in *input, l load, readBack bool) (took timed, content uint64, err error) {
	topic := fmt.Sprintf("lab%d", c.topics)
	c.topics++
	s := in.server
	fail := func(err error) (timed, uint64, error) { return took, 0, s.explain(err) }
	if err := c.kind.create(s, topic, l); err != nil {
		return fail(err)
	}
	clients := make([]client, 0, l.clients)
	defer func() {
		for _, one := range clients {
			one.close()
		}
	}()
	payloads := make([]payload, 0, l.clients)
	for number := range l.clients {
		one, err := c.kind.client(s, topic, l, number)
		if err != nil {
			return fail(err)
		}
		clients = append(clients, one)
		payloads = append(payloads, l.payload(number))
	}
	took, err = s.measure(clients, payloads, l.messages)
	if err != nil {
		return fail(err)
	}
	took.touch, err = c.kind.stored(s, topic)
	if err != nil {
		return fail(err)
	}
	if took.touch != l.messages {
		return fail(fmt.Errorf("%d messages of %d are stored", took.touch, l.messages))
	}
	if readBack {
		err = c.kind.read(s, topic, func(message []byte) { content += part(message) })
		if err != nil {
			return fail(err)
		}
	}
	if err := c.kind.drop(s, topic); err != nil {
		return fail(err)
	}
	return took, content, nil
}

func (c *contender) close() {
	for _, s := range c.servers {
		s.end()
	}
}

// measure runs `put` of all clients concurrently. Wall time ends with the slowest client.
func (s *server) measure(clients []client, payloads []payload, messages uint64) (timed, error) {
	var took timed
	// The dirty pages of other contenders must not be written in the timed part.
	if err := syncFileSystem(s.place.dir); err != nil {
		return took, err
	}
	wrong := make([]error, len(clients))
	var started, ready, done sync.WaitGroup
	started.Add(1)
	for number, one := range clients {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			ready.Done()
			started.Wait()
			wrong[number] = one.put(payloads[number])
		}()
	}
	ready.Wait()
	runOnEachCPU()
	idle, begun := idleTime(), time.Now()
	before, clientsUsed := s.cpuTimes(), s.clientCPUTime()
	from := time.Now()
	started.Done()
	done.Wait()
	took.wall = uint64(time.Since(from))
	took.cpu = uint64(s.clientCPUTime() - clientsUsed)
	server, busiest := s.cpuSince(before)
	if s.helper != nil {
		// The clients are threads of a helper, which measures its own times.
		took.wall = s.helper.wall
	}
	window := time.Since(begun)
	runOnEachCPU()
	for _, err := range wrong {
		if err != nil {
			return took, err
		}
	}
	took.extra = map[string]float64{
		"server_us":  float64(server) / 1e3 / float64(messages),
		"busiest_us": float64(busiest) / 1e3 / float64(messages),
		"idle":       min(1, max(0, float64(idleTime()-idle)/float64(window)/float64(cpus()))),
	}
	return took, nil
}

// removeLeftFiles removes the files of killed contenders.
func removeLeftFiles(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "broker-*-*"))
	for _, path := range left {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(path), "-")[1])
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = os.RemoveAll(path)
		}
	}
}

func syncFileSystem(dir string) error {
	at, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	return unix.Syncfs(int(at.Fd()))
}
