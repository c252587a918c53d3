package weir_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	weir "weir.example/bindings/go"
)

// TestMain fails when the tests left anything open in the library.
func TestMain(m *testing.M) {
	code := m.Run()
	// What was dropped comes back by the collector, in a goroutine of its own.
	until := time.Now().Add(10 * time.Second)
	for weir.OpenHandles() > 1 && time.Now().Before(until) {
		runtime.GC()
		runtime.Gosched()
	}
	if left := weir.OpenHandles(); code == 0 && left > 1 {
		fmt.Fprintln(os.Stderr, left, "handles of the library are open")
		code = 1
	}
	os.Exit(code)
}
