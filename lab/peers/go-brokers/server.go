package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTime is the maximum time until a server answers.
const startTime = 60 * time.Second

// place is the directory and the CPU of a server. CPU -1 means any.
type place struct {
	dir string
	cpu int
}

// server is a running server process.
type server struct {
	place   place
	address string
	command *exec.Cmd
	helper  *helper
	state   any
}

// launch starts `line` with its output in a file of `p.dir`, on CPU `p.cpu`. The child is
// killed when this process ends.
func launch(p place, line ...string) (*server, error) {
	log, err := os.Create(filepath.Join(p.dir, "output"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(line[0], line[1:]...)
	command.Dir = p.dir
	command.Stdout, command.Stderr = log, log
	// For servers in Go: the garbage collector uses more memory and less time.
	command.Env = append(os.Environ(), "GOGC=400")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startOn(command, p.cpu); err != nil {
		return nil, err
	}
	return &server{place: p, command: command}, nil
}

// startOn starts `command` while the CPU mask of this thread is `cpu`, because the child
// inherits the mask.
func startOn(command *exec.Cmd, cpu int) error {
	if cpu < 0 {
		return command.Start()
	}
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("CPU %d: %w", cpu, err)
	}
	err := command.Start()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// serverCPU reads the parameter `server_cpu`: a number, `none`, or `auto`, the lowest CPU
// that this process is not pinned to.
func serverCPU(text string) (int, error) {
	if text == "none" {
		return -1, nil
	}
	if text != "auto" {
		return strconv.Atoi(text)
	}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		return 0, err
	}
	if mine.Count() > 1 {
		return -1, nil
	}
	for cpu := range cpus() {
		if !mine.IsSet(cpu) {
			return cpu, nil
		}
	}
	return -1, nil
}

// freePorts returns `count` ports of the loopback interface that were free at the moment
// of the call.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// await polls until the server answers or ends, or the time is up.
func (s *server) await(ask func() error) error {
	deadline := time.Now().Add(startTime)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		var state syscall.WaitStatus
		pid, _ := syscall.Wait4(s.pid(), &state, syscall.WNOHANG, nil)
		if pid == s.pid() || time.Now().After(deadline) {
			err = s.explain(err)
			s.end()
			return fmt.Errorf("did not start: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// explain adds the end of the server output to an error.
func (s *server) explain(err error) error {
	text, _ := os.ReadFile(filepath.Join(s.place.dir, "output"))
	said := strings.TrimSpace(string(text[max(0, len(text)-400):]))
	return fmt.Errorf("%w; the server said: %q", err, said)
}

func (s *server) pid() int { return s.command.Process.Pid }

// freeze stops the server while others are measured; thaw continues it.
func (s *server) freeze() error { return s.signal(syscall.SIGSTOP) }
func (s *server) thaw() error   { return s.signal(syscall.SIGCONT) }

func (s *server) signal(which syscall.Signal) error {
	if s.helper != nil {
		if err := s.helper.command.Process.Signal(which); err != nil {
			return err
		}
	}
	return s.command.Process.Signal(which)
}

// end kills the server and removes its files.
func (s *server) end() {
	if s.helper != nil {
		_ = s.helper.command.Process.Kill()
		_ = s.helper.command.Wait()
	}
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
	_ = os.RemoveAll(s.place.dir)
}

// cpuTime is the CPU time of all threads that the server ever had, in nanoseconds.
func (s *server) cpuTime() int64 { return processTime(s.pid()) }

// clientCPUTime is the CPU time of the process that runs the clients.
func (s *server) clientCPUTime() int64 {
	if s.helper != nil {
		return processTime(s.helper.command.Process.Pid)
	}
	return clock(unix.CLOCK_PROCESS_CPUTIME_ID)
}

// processTime reads the clock of another process: clock_getcpuclockid(3).
func processTime(pid int) int64 { return clock(int32(^pid)<<3 | 2) }

func clock(id int32) int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		return 0
	}
	return now.Nano()
}
