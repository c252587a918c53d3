// Command bench is a contender of the lab: the Go package on pages of JSON. It
// implements the line protocol of docs/guide/lab.md on standard input and output.
//
//	enqueue         lends and scans a page of Go memory
//	enqueue-copied  copies and scans the page
//	enqueue-buffer  writes the page to a buffer of the library, which takes it over
//	next            returns the scanned items, 256 items a call whatever their size;
//	                the call after the last item is reported separately, as done
//	merge           enqueues a page in two halves, merges and returns the items
//	copy            the lower bound: a copy into warm memory
//
// The time of a pass includes opening and closing its query, except for `next`.
// CPU time is that of the process. The garbage collector has its default
// settings, as in lab/peers/go-json.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	weir "weir.example/bindings/go"
	"weir.example/bindings/go/internal/pages"
)

var errRequest = errors.New("malformed request or page")

// input is a page, and memory that the passes reuse.
type input struct {
	page, scratch []byte
	items         int
}

// batch bounds one call of Next: by the number of items, whatever their size.
var batch = weir.Bounds{Items: 256, Bytes: math.MaxUint64}

// workload is one measured operation: it runs a pass, starts and stops the clock, and
// calls each with the key of every item if each is not nil.
type workload func(in *input, clock *clock, each func(key []byte)) (touch uint64, err error)

var workloads = map[string]workload{
	"enqueue": enqueue(func(in *input, source weir.Source) error {
		return source.EnqueuePinned(in.page, nil, nil)
	}),
	"enqueue-copied": enqueue(func(in *input, source weir.Source) error {
		return source.Enqueue(in.page, nil)
	}),
	"enqueue-buffer": enqueue(func(in *input, source weir.Source) error {
		buffer, err := weir.NewBuffer(len(in.page))
		if err != nil {
			return err
		}
		if _, err := buffer.Write(in.page); err != nil {
			return err
		}
		return source.EnqueueBuffer(buffer, nil)
	}),
	"next":  next,
	"merge": merge,
	"copy":  copied,
}

func main() {
	name := ""
	if len(os.Args) == 2 {
		name = os.Args[1]
	}
	if name == "--version" {
		fmt.Println("go-weir,", runtime.Version()+",", weir.BuildInfo())
		return
	}
	pass, ok := workloads[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "usage: bench enqueue|enqueue-copied|enqueue-buffer|next|merge|copy")
		os.Exit(2)
	}
	runtime.LockOSThread()
	fmt.Printf("hello\t1\tprofile=%s\tgo=%s\t%s\n", profile(), runtime.Version(), weir.BuildInfo())
	// The library reuses memory of pages as long as a query exists.
	idle, _, err := sorted(1)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	defer idle.Close()
	inputs := map[string]*input{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "quit" {
		answer, err := serve(lines.Text(), pass, inputs)
		if err != nil {
			answer = "error\t" + err.Error()
		}
		fmt.Println(answer)
	}
}

// profile is the build profile of the library, in the terms of the lab.
func profile() string {
	for field := range strings.SplitSeq(weir.BuildInfo(), "; ") {
		if field == "profile=release" {
			return "optimised"
		}
	}
	return "debug"
}

func serve(line string, pass workload, inputs map[string]*input) (string, error) {
	words := strings.Split(line, "\t")
	if len(words) < 2 {
		return "", errRequest
	}
	if words[0] == "load" {
		shape, err := shapeOf(words[2:])
		if err != nil {
			return "", err
		}
		page := pages.Make(shape)
		inputs[words[1]] = &input{page: page, scratch: make([]byte, len(page)), items: shape.Objects}
		return "ok", nil
	}
	in := inputs[words[1]]
	if in == nil {
		return "", errRequest
	}
	switch words[0] {
	case "check":
		hash := uint64(0xcbf29ce484222325)
		touch, err := pass(in, &clock{}, func(key []byte) {
			for _, b := range append(key[:len(key):len(key)], ',') {
				hash = (hash ^ uint64(b)) * 0x100000001b3
			}
		})
		return fmt.Sprintf("answer\t%016x\t%x\t0\t0", hash, touch), err
	case "run":
		if len(words) < 3 {
			return "", errRequest
		}
		count, err := strconv.Atoi(words[2])
		if err != nil {
			return "", errRequest
		}
		return run(in, pass, count)
	}
	return "", errRequest
}

func run(in *input, pass workload, count int) (string, error) {
	// The process was just scheduled, so its first pass has cold caches.
	if _, err := pass(in, &clock{}, nil); err != nil {
		return "", err
	}
	runtime.GC()
	var clock clock
	sum := uint64(0)
	for range count {
		touch, err := pass(in, &clock, nil)
		if err != nil {
			return "", err
		}
		sum += touch
	}
	answer := fmt.Sprintf("time\t%d\t%d\t%x", clock.wall, clock.cpu, sum)
	if clock.done > 0 {
		answer += fmt.Sprintf("\tdone=%d", clock.done)
	}
	return answer, nil
}

func shapeOf(fields []string) (pages.Shape, error) {
	var shape pages.Shape
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		number, err := strconv.Atoi(value)
		switch name {
		case "objects":
			shape.Objects = number
		case "depth":
			shape.Depth = number
		case "width":
			shape.Width = number
		case "title":
			shape.Title, err = value, nil
		case "key_last":
			shape.KeyLast, err = value == "true", nil
		default:
			err = nil
		}
		if err != nil {
			return shape, errRequest
		}
	}
	return shape, nil
}

// clock sums wall time and CPU time of the process.
type clock struct {
	wall, cpu           int64
	done                int64 // wall time of the calls that end a query
	wallBegun, cpuBegun int64
}

func (c *clock) start() { c.wallBegun, c.cpuBegun = now() }

func (c *clock) stop() {
	wall, cpu := now()
	c.wall += wall - c.wallBegun
	c.cpu += cpu - c.cpuBegun
}

var processStart = time.Now()

func now() (wall, cpu int64) {
	const processCPUTime = 2
	var spec syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, processCPUTime, uintptr(unsafe.Pointer(&spec)), 0)
	return time.Since(processStart).Nanoseconds(), spec.Nano()
}

// sorted creates a query that is ordered by the key, and its sources.
func sorted(sources int) (*weir.Query, []weir.Source, error) {
	query, err := weir.NewQuery(weir.QueryOptions{Order: "$.order"})
	if err != nil {
		return nil, nil, err
	}
	var added []weir.Source
	for range sources {
		source, err := query.Source(weir.SourceOptions{Sorted: true})
		if err != nil {
			query.Close()
			return nil, nil, err
		}
		added = append(added, source)
	}
	return query, added, nil
}

func enqueue(take func(in *input, source weir.Source) error) workload {
	return func(in *input, clock *clock, each func([]byte)) (uint64, error) {
		clock.start()
		defer clock.stop()
		query, sources, err := sorted(1)
		if err != nil {
			return 0, err
		}
		defer query.Close()
		err = take(in, sources[0])
		if err != nil || each == nil {
			return uint64(len(in.page)), err
		}
		_, err = drain(query, each)
		return uint64(len(in.page)), err
	}
}

// next times the calls that return items, and the call after them.
func next(in *input, clock *clock, each func([]byte)) (uint64, error) {
	query, sources, err := sorted(1)
	if err != nil {
		return 0, err
	}
	defer query.Close()
	if err := sources[0].EnqueuePinned(in.page, nil, nil); err != nil {
		return 0, err
	}
	if each != nil {
		return drain(query, each)
	}
	clock.start()
	sum := uint64(0)
	for left := in.items; left > 0; {
		_, page, err := query.Next(batch)
		if err != nil {
			return 0, err
		}
		left -= page.Len()
		for item := range page.Items() {
			sum += uint64(len(item.Bytes()))
		}
		page.Release()
	}
	clock.stop()
	begun, _ := now()
	step, _, err := query.Next(batch)
	ended, _ := now()
	clock.done += ended - begun
	if err == nil && step != weir.Done {
		err = errRequest
	}
	return sum, err
}

// drain reads all results and returns the sum of their lengths. It finds keys
// only if each is not nil.
func drain(query *weir.Query, each func([]byte)) (uint64, error) {
	sum := uint64(0)
	var keys [][]byte
	for page, err := range query.Pages(context.Background()) {
		if err != nil {
			return 0, err
		}
		for item := range page.Items() {
			sum += uint64(len(item.Bytes()))
		}
		if each != nil {
			if keys, err = page.Get("$.order", keys[:0]); err != nil {
				return 0, err
			}
			for _, key := range keys {
				each(key)
			}
		}
		page.Release()
	}
	return sum, nil
}

// merge enqueues items with even index to one source and the others to another.
func merge(in *input, clock *clock, each func([]byte)) (uint64, error) {
	halves, err := split(in)
	if err != nil {
		return 0, err
	}
	clock.start()
	defer clock.stop()
	query, sources, err := sorted(2)
	if err != nil {
		return 0, err
	}
	defer query.Close()
	for at, source := range sources {
		if err := source.EnqueuePinned(halves[at], nil, nil); err != nil {
			return 0, err
		}
	}
	return drain(query, each)
}

// split divides a page into two pages of alternating items.
func split(in *input) ([2][]byte, error) {
	var halves [2][]byte
	query, err := weir.NewQuery(weir.QueryOptions{})
	if err != nil {
		return halves, err
	}
	defer query.Close()
	source, err := query.Source(weir.SourceOptions{})
	if err != nil {
		return halves, err
	}
	if err := source.EnqueuePinned(in.page, nil, nil); err != nil {
		return halves, err
	}
	at := 0
	for item, err := range query.Items(context.Background()) {
		if err != nil {
			return halves, err
		}
		half := &halves[at%2]
		if len(*half) == 0 {
			*half = append(make([]byte, 0, len(in.page)), '[')
		} else {
			*half = append(*half, ',')
		}
		*half = append(*half, item.Bytes()...)
		at++
	}
	for half := range halves {
		if len(halves[half]) == 0 {
			halves[half] = []byte{'['}
		}
		halves[half] = append(halves[half], ']')
	}
	return halves, nil
}

func copied(in *input, clock *clock, _ func([]byte)) (uint64, error) {
	clock.start()
	copy(in.scratch, in.page)
	clock.stop()
	return uint64(len(in.scratch)), nil
}
