package weir_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	weir "weir.example/bindings/go"
)

// TestMain fails if the tests left anything open in the library.
func TestMain(m *testing.M) {
	code := m.Run()
	// The collector releases dropped objects in its own goroutine.
	until := time.Now().Add(time.Minute)
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
