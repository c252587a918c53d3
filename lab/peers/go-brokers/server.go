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

// server is a running server process, or the first node of a cluster.
type server struct {
	place place
	// The other nodes of a cluster.
	others  []*server
	address string
	// Address for clients of the topic, if it is not `address`.
	leader  string
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
	end := strings.TrimSpace(string(text[max(0, len(text)-400):]))
	return fmt.Errorf("%w; the output of the server ends with %q", err, end)
}

func (s *server) pid() int { return s.command.Process.Pid }

// suspend stops the server while others are measured; resume continues it.
func (s *server) suspend() error { return s.signal(syscall.SIGSTOP) }
func (s *server) resume() error  { return s.signal(syscall.SIGCONT) }

func (s *server) signal(which syscall.Signal) error {
	for _, other := range s.others {
		if err := other.signal(which); err != nil {
			return err
		}
	}
	if s.helper != nil {
		if err := s.helper.command.Process.Signal(which); err != nil {
			return err
		}
	}
	return s.command.Process.Signal(which)
}

// end kills the server and removes its files.
func (s *server) end() {
	for _, other := range s.others {
		other.end()
	}
	if s.helper != nil {
		_ = s.helper.command.Process.Kill()
		_ = s.helper.command.Wait()
	}
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
	_ = os.RemoveAll(s.place.dir)
}

// cpuTimes returns the CPU time of each node, including its ended threads, in nanoseconds.
func (s *server) cpuTimes() []int64 {
	times := []int64{processTime(s.pid())}
	for _, other := range s.others {
		times = append(times, processTime(other.pid()))
	}
	return times
}

// cpuSince returns the CPU time since `before`: of all nodes, and of the node that used most.
func (s *server) cpuSince(before []int64) (all, busiest int64) {
	for number, now := range s.cpuTimes() {
		used := now - before[number]
		all += used
		busiest = max(busiest, used)
	}
	return all, busiest
}

// addresses returns the addresses for clients of all nodes.
func (s *server) addresses() []string {
	all := []string{s.address}
	for _, other := range s.others {
		all = append(all, other.address)
	}
	return all
}

// cluster starts `nodes` nodes, each in a separate directory. `one` starts the node with a number,
// from 0. The first node represents the cluster.
func cluster(p place, nodes uint64, one func(place, int) (*server, error)) (*server, error) {
	if nodes == 1 {
		return one(p, 0)
	}
	var first *server
	for number := range int(nodes) {
		node := place{dir: filepath.Join(p.dir, strconv.Itoa(number)), cpu: p.cpu}
		err := os.MkdirAll(node.dir, 0o700)
		var s *server
		if err == nil {
			s, err = one(node, number)
		}
		if err != nil {
			if first != nil {
				first.end()
			}
			return nil, err
		}
		if first == nil {
			first = s
		} else {
			first.others = append(first.others, s)
		}
	}
	return first, nil
}

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
