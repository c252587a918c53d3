// Command go-json is a contender of the lab. It finds the items of a page, and the value
// of `$.order` in each, with libraries for Go, one in each process. It implements the
// line protocol of docs/guide/lab.md on standard input and output.
//
//	encoding-json   encoding/json, RawMessage
//	goccy           goccy/go-json, RawMessage
//	gjson           tidwall/gjson, unchecked
//	jsonparser      buger/jsonparser, unchecked
//	sonic           bytedance/sonic as it is by default, RawMessage
//	sonic-fastest   the same without checks and copies
//
// CPU time is that of the process, so it includes the garbage collector. Invariant:
// no pass knows the positions of values in the page.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/buger/jsonparser"
	"github.com/bytedance/sonic"
	goccy "github.com/goccy/go-json"
	"github.com/tidwall/gjson"
)

var errRequest = errors.New("malformed request or page")

// way finds the key of each item.
type way func(page []byte, each func(order []byte)) error

type item struct {
	Order   json.RawMessage `json:"order"`
	Payload json.RawMessage `json:"payload"`
}

type lentItem struct {
	Order   sonic.NoCopyRawMessage `json:"order"`
	Payload sonic.NoCopyRawMessage `json:"payload"`
}

var fastest = sonic.Config{NoValidateJSONMarshaler: true, NoValidateJSONSkip: true}.Froze()

var ways = map[string]way{
	"encoding-json": raw(json.Unmarshal),
	"goccy":         raw(goccy.Unmarshal),
	"sonic":         raw(sonic.Unmarshal),
	"sonic-fastest": func(page []byte, each func([]byte)) error {
		var items []lentItem
		if err := fastest.UnmarshalFromString(text(page), &items); err != nil {
			return err
		}
		for i := range items {
			each(items[i].Order)
		}
		return nil
	},
	"gjson": func(page []byte, each func([]byte)) error {
		gjson.Parse(text(page)).ForEach(func(_, item gjson.Result) bool {
			order := item.Get("order").Raw
			each(unsafe.Slice(unsafe.StringData(order), len(order)))
			return true
		})
		return nil
	},
	"jsonparser": func(page []byte, each func([]byte)) error {
		var failed error
		_, err := jsonparser.ArrayEach(page, func(item []byte, _ jsonparser.ValueType, _ int, _ error) {
			order, _, _, err := jsonparser.Get(item, "order")
			if err != nil {
				failed = err
				return
			}
			each(order)
		})
		return errors.Join(err, failed)
	},
}

// text is the page without a copy.
func text(page []byte) string { return unsafe.String(unsafe.SliceData(page), len(page)) }

func raw(unmarshal func([]byte, any) error) way {
	return func(page []byte, each func([]byte)) error {
		var items []item
		if err := unmarshal(page, &items); err != nil {
			return err
		}
		for i := range items {
			each(items[i].Order)
		}
		return nil
	}
}

func main() {
	name := ""
	if len(os.Args) == 2 {
		name = os.Args[1]
	}
	if name == "--version" {
		fmt.Println("go-json,", runtime.Version(), strings.Join(versions(), " "))
		return
	}
	find, there := ways[name]
	if !there {
		fmt.Fprintln(os.Stderr, "usage: go-json encoding-json|goccy|gjson|jsonparser|sonic|sonic-fastest")
		os.Exit(2)
	}
	fmt.Printf("hello\t1\tprofile=optimised\tcompiler=%s\t%s\n", runtime.Version(), strings.Join(versions(), "\t"))
	pages := map[string][]byte{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "quit" {
		answer, err := serve(lines.Text(), find, pages)
		if err != nil {
			answer = "error\t" + err.Error()
		}
		fmt.Println(answer)
	}
}

// versions of the libraries in this program.
func versions() []string {
	var found []string
	built, _ := debug.ReadBuildInfo()
	if built == nil {
		return found
	}
	for _, part := range built.Deps {
		switch part.Path {
		case "github.com/buger/jsonparser", "github.com/bytedance/sonic", "github.com/goccy/go-json", "github.com/tidwall/gjson":
			found = append(found, part.Path[strings.LastIndex(part.Path, "/")+1:]+"="+part.Version)
		}
	}
	return found
}

func serve(line string, find way, pages map[string][]byte) (string, error) {
	words := strings.Split(line, "\t")
	if len(words) < 2 {
		return "", errRequest
	}
	if words[0] == "load" {
		page, err := makePage(words[2:])
		pages[words[1]] = page
		return "ok", err
	}
	page, there := pages[words[1]]
	if !there {
		return "", errRequest
	}
	switch words[0] {
	case "check":
		hash := uint64(0xcbf29ce484222325)
		err := find(page, func(order []byte) {
			for _, b := range order {
				hash = (hash ^ uint64(b)) * 0x100000001b3
			}
			hash = (hash ^ ',') * 0x100000001b3
		})
		if err != nil {
			return "", err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		touch, err := pass(find, page)
		runtime.ReadMemStats(&after)
		return fmt.Sprintf("answer\t%016x\t%x\t%d\t%d", hash, touch,
			after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc), err
	case "run":
		if len(words) < 3 {
			return "", errRequest
		}
		count, err := strconv.Atoi(words[2])
		if err != nil {
			return "", errRequest
		}
		return run(find, page, count)
	}
	return "", errRequest
}

func pass(find way, page []byte) (uint64, error) {
	sum := uint64(0)
	err := find(page, func(order []byte) {
		sum += uint64(len(order)) + uint64(order[0])
	})
	return sum, err
}

func run(find way, page []byte, count int) (string, error) {
	// The process was just scheduled, so its first pass runs with cold caches.
	peak := newPeak()
	if _, err := pass(find, page); err != nil {
		return "", err
	}
	held := peak.bytes()
	runtime.GC()
	sum := uint64(0)
	wall, cpu := time.Now(), processTime()
	for range count {
		touch, err := pass(find, page)
		if err != nil {
			return "", err
		}
		sum += touch
	}
	return fmt.Sprintf("time\t%d\t%d\t%x\tpeak=%d", time.Since(wall).Nanoseconds(), processTime()-cpu, sum, held), nil
}

func processTime() int64 {
	const processCPUTime = 2
	var spec syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, processCPUTime, uintptr(unsafe.Pointer(&spec)), 0)
	return spec.Nano()
}

// peak measures memory: resident bytes at its creation, and the maximum increase since
// then. 0 if the system does not report it.
type peak int64

func newPeak() peak {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	return peak(status("VmRSS:"))
}

func (p peak) bytes() int64 { return max(0, status("VmHWM:")-int64(p)) }

func status(name string) int64 {
	lines, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(lines)) {
		if rest, there := strings.CutPrefix(line, name); there {
			var kib int64
			_, _ = fmt.Sscan(rest, &kib)
			return kib << 10
		}
	}
	return 0
}
