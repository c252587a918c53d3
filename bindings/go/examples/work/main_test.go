package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestEveryJobIsDoneOnceAndTheFailedOneAgain(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	printed := out.String()
	if lines := strings.Count(printed, "\n"); lines != jobs {
		t.Fatalf("%d jobs of %d\n%s", lines, jobs, printed)
	}
	if !strings.Contains(printed, "job 3, attempt 2") {
		t.Fatal(printed)
	}
}
