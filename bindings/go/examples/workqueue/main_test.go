package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestEachJobIsDoneOnceAndTheFailedOneIsADeadLetter(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	printed := out.String()
	if lines, done := strings.Count(printed, "\n"), strings.Count(printed, "worker "); lines != jobs || done != jobs-1 {
		t.Fatalf("%d lines, %d done\n%s", lines, done, printed)
	}
	for _, part := range []string{"dead letter: job 3 {", `"reason":"this job fails"`, `"attempts":2`} {
		if !strings.Contains(printed, part) {
			t.Fatalf("no %s in\n%s", part, printed)
		}
	}
}
