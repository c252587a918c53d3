package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
)

// helper is a process with all clients of a pass, in another language than this
// program. Requests and answers are lines:
//
//	prepare TOPIC CLIENTS MESSAGES BYTES BATCH   ready
//	put                                          done WALL
//
// or `error` and the reason. MESSAGES is for each client, BATCH is the maximum bytes of a
// batch, and WALL is nanoseconds.
type helper struct {
	command *exec.Cmd
	in      io.Writer
	out     *bufio.Reader
	wall    uint64
}

func startHelper(p place, line []string) (*helper, error) {
	log, err := os.Create(filepath.Join(p.dir, "helper"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(line[0], line[1:]...)
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &helper{command: command, in: in, out: bufio.NewReader(out)}, command.Start()
}

// ask sends a line and returns the words of the answer after `expect`.
func (h *helper) ask(line, expect string) ([]string, error) {
	if _, err := fmt.Fprintln(h.in, line); err != nil {
		return nil, err
	}
	answer, err := h.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	words := strings.Fields(answer)
	if len(words) == 0 || words[0] != expect {
		return nil, fmt.Errorf("helper: %s", strings.TrimSpace(answer))
	}
	return words[1:], nil
}

// prepare connects all clients when the first one is requested.
func (h *helper) prepare(topic string, l load, number uint64) error {
	if number > 0 {
		return nil
	}
	_, err := h.ask(fmt.Sprintf("prepare %s %d %d %d %d", topic, l.clients, l.each(), l.bytes, l.batchBytes), "ready")
	return err
}

// helperClient represents one client; `put` of the first one runs all clients.
type helperClient struct {
	helper *helper
	number uint64
}

func (c *helperClient) put(payload) error {
	if c.number > 0 {
		return nil
	}
	times, err := c.helper.ask("put", "done")
	if err != nil {
		return err
	}
	_, err = fmt.Sscan(strings.Join(times, " "), &c.helper.wall)
	return err
}

func (c *helperClient) close() {}

// clientVersion is the version of a module in this program.
func clientVersion(module string) string {
	built, _ := debug.ReadBuildInfo()
	if built != nil {
		for _, part := range built.Deps {
			if part.Path == module {
				return part.Version
			}
		}
	}
	return "unknown"
}
