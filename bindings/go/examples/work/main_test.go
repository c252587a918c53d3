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
	said := out.String()
	if lines := strings.Count(said, "\n"); lines != jobs {
		t.Fatalf("%d jobs of %d\n%s", lines, jobs, said)
	}
	if !strings.Contains(said, "job 3, attempt 2") {
		t.Fatal(said)
	}
}
