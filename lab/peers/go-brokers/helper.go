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

// helper is a process with all clients of a pass, in a language that this
// program is not written in. It is told, and answers, a line at a time:
//
//	prepare TOPIC CLIENTS MESSAGES BYTES BATCH   ready
//	put                                          done WALL
//
// or `error` and why. MESSAGES are of one client, BATCH the bytes it collects at
// most; WALL is nanoseconds.
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
	said := strings.Fields(answer)
	if len(said) == 0 || said[0] != expect {
		return nil, fmt.Errorf("helper: %s", strings.TrimSpace(answer))
	}
	return said[1:], nil
}

// prepare connects all clients when the first is asked for.
func (h *helper) prepare(topic string, l load, number uint64) error {
	if number > 0 {
		return nil
	}
	_, err := h.ask(fmt.Sprintf("prepare %s %d %d %d %d", topic, l.clients, l.each(), l.bytes, l.batchBytes), "ready")
	return err
}

// helperClient stands for one client; the first one's `put` is everybody's.
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

// clientVersion is the version of a module this program is built from.
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
