package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// serve starts the server of the lab and returns its address. WEIR_COSMOS_MOCK
// names the program; if it is not set, the test builds the program.
func serve(t *testing.T, flags ...string) string {
	t.Helper()
	program := os.Getenv("WEIR_COSMOS_MOCK")
	if program == "" {
		program = filepath.Join(t.TempDir(), "cosmos-mock")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
		build.Dir = filepath.Join("..", "..", "..", "..", "lab", "peers", "cosmos-mock")
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	server := exec.Command(program, flags...)
	// The server exits when this pipe is closed.
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestDocumentsStayInOrderAcrossASplit(t *testing.T) {
	for name, flags := range map[string][]string{
		"whole":         {"-partitions", "3"},
		"split":         {"-partitions", "3", "-split", "1", "-split-after", "2"},
		"split at once": {"-partitions", "2", "-split", "0", "-split-after", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, append(flags, "-documents", "300")...)
			var out bytes.Buffer
			if err := run(context.Background(), url, 0, &out); err != nil {
				t.Fatal(err)
			}
			got := ids(t, &out)
			want := ordered(t, url)
			if len(got) != len(want) {
				t.Fatalf("%d documents of %d", len(got), len(want))
			}
			for at := range want {
				if got[at] != want[at] {
					t.Fatalf("document %d is %s, not %s", at, got[at], want[at])
				}
			}
		})
	}
}

func TestALimitEndsTheReading(t *testing.T) {
	url := serve(t, "-documents", "300", "-split", "2", "-split-after", "1")
	var out bytes.Buffer
	if err := run(context.Background(), url, 5, &out); err != nil {
		t.Fatal(err)
	}
	got, want := ids(t, &out), ordered(t, url)[:5]
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("%v, not %v", got, want)
	}
}

func ids(t *testing.T, lines *bytes.Buffer) []string {
	t.Helper()
	var found []string
	for line := range bytes.Lines(lines.Bytes()) {
		var document struct{ ID string }
		if err := json.Unmarshal(line, &document); err != nil {
			t.Fatal(err)
		}
		found = append(found, document.ID)
	}
	return found
}

func ordered(t *testing.T, url string) []string {
	t.Helper()
	response, err := http.Get(url + "/ordered")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var ids []string
	if err := json.NewDecoder(response.Body).Decode(&ids); err != nil {
		t.Fatal(err)
	}
	return ids
}
