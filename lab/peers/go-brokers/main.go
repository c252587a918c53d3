// Command brokers is the contender of the lab for message brokers behind a socket: NATS
// JetStream, Redis streams, etcd, Kafka, UmaDB and S2, one kind in each process.
//
// It implements the line protocol of docs/guide/lab.md on standard input and output. It
// starts the real server as a child on a separate CPU, and loads it from the CPU to which
// this process is pinned. When it ends, it leaves no process and no file.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// kinds creates the broker of each name; the argument is the directory of the peers.
var kinds = map[string]func(peers string) broker{
	"nats":  newNats,
	"redis": newRedis,
	"etcd":  newEtcd,
	"kafka": newKafka,
	"umadb": newUmadb,
	"s2":    newS2,
}

// words are the name=value parameters of an input.
type words map[string]string

func (w words) text(name, otherwise string) string {
	if value, there := w[name]; there {
		return value
	}
	return otherwise
}

func (w words) number(name string, otherwise uint64) (uint64, error) {
	text, there := w[name]
	if !there {
		return otherwise, nil
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parameter `%s` is malformed", name)
	}
	return value, nil
}

func init() {
	// Servers must be killed with this thread, and children inherit its CPU mask.
	runtime.LockOSThread()
}

func main() {
	if len(os.Args) < 2 || kinds[os.Args[1]] == nil {
		// The lab looks for the programs of a kind; only their directory matters here.
		fmt.Fprintln(os.Stderr, "usage: brokers nats|redis|etcd|kafka|umadb|s2 [PROGRAM...]")
		os.Exit(2)
	}
	// The clients allocate little; garbage collection must not affect their times.
	debug.SetGCPercent(400)
	peers := "."
	if program, err := os.Executable(); err == nil {
		peers = filepath.Dir(program)
	}
	kind := kinds[os.Args[1]](peers)
	all := newContender(kind)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	lines := make(chan string)
	go func() {
		reader := bufio.NewScanner(os.Stdin)
		reader.Buffer(make([]byte, 1<<16), 1<<16)
		for reader.Scan() {
			lines <- reader.Text()
		}
		close(lines)
	}()
	defer all.close()
	fmt.Printf("hello\t1\tprofile=optimised\tcompiler=%s%s\n", runtime.Version(), pairs(kind.versions()))
	for {
		select {
		case <-ended:
			return
		case line, more := <-lines:
			if !more || line == "quit" {
				return
			}
			fmt.Println(reply(all, line))
		}
	}
}

// reply answers one line.
func reply(all *contender, line string) string {
	answer, err := serve(all, strings.Split(line, "\t"))
	if err != nil {
		flat := strings.NewReplacer("\t", " ", "\n", " ", "\r", " ")
		return "error\t" + flat.Replace(err.Error())
	}
	return answer
}

func serve(all *contender, part []string) (string, error) {
	if len(part) < 2 {
		return "", fmt.Errorf("malformed line")
	}
	input, err := strconv.Atoi(part[1])
	if err != nil {
		return "", fmt.Errorf("malformed line")
	}
	switch {
	case part[0] == "load":
		given := words{}
		for _, word := range part[2:] {
			name, value, _ := strings.Cut(word, "=")
			given[name] = value
		}
		return "ok", all.load(input, given)
	case part[0] == "check":
		content, touch, err := all.check(input)
		return fmt.Sprintf("answer\t%016x\t%x\t0\t0", content, touch), err
	case part[0] == "run" && len(part) == 3:
		iterations, err := strconv.ParseUint(part[2], 10, 64)
		if err != nil {
			return "", fmt.Errorf("malformed line")
		}
		timed, err := all.run(input, iterations)
		return timed.line(), err
	}
	return "", fmt.Errorf("malformed line")
}

// pairs renders values in order of their names, with a TAB before each.
func pairs(values map[string]string) string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	text := ""
	for _, name := range names {
		text += "\t" + name + "=" + values[name]
	}
	return text
}
