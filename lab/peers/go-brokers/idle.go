package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// cpus is the number of online CPUs of the machine.
var cpus = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/stat")
	count := strings.Count(string(text), "\ncpu")
	return max(1, count)
})

// idleFiles hold the microseconds each CPU spent in each idle state.
var idleFiles = sync.OnceValue(func() []string {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*/time")
	return files
})

// idleTime is the idle time of all CPUs together, in nanoseconds. Its resolution is a
// microsecond if the kernel reports idle states, otherwise a tick.
func idleTime() int64 {
	var sum int64
	for _, file := range idleFiles() {
		text, _ := os.ReadFile(file)
		microseconds, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		sum += microseconds * 1000
	}
	if sum > 0 {
		return sum
	}
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	ticks := strings.Fields(line)
	if len(ticks) < 6 {
		return 0
	}
	for _, field := range ticks[4:6] {
		value, _ := strconv.ParseInt(field, 10, 64)
		sum += value * 10_000_000
	}
	return sum
}

// runOnEachCPU runs briefly on every CPU, because the kernel counts an idle period only when
// it ends. It is called outside of the timed part, on a locked thread.
func runOnEachCPU() {
	var before, only unix.CPUSet
	if unix.SchedGetaffinity(0, &before) != nil {
		return
	}
	for cpu := range cpus() {
		only.Zero()
		only.Set(cpu)
		_ = unix.SchedSetaffinity(0, &only)
	}
	_ = unix.SchedSetaffinity(0, &before)
}
