package weir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// transcriptRunner runs the commands of transcripts.
type transcriptRunner interface {
	// run runs a command and returns its output.
	run(line string) string
	// close releases the handles that the commands left open.
	close()
}

// vectors returns the folder of a set of transcripts. It is beside the module, unless
// WEIR_VECTORS is set.
func vectors(t *testing.T, set string) string {
	t.Helper()
	root := os.Getenv("WEIR_VECTORS")
	if root == "" {
		root = filepath.Join("..", "..", "vectors")
	}
	return filepath.Join(root, set)
}

// replay runs every transcript of a set: commands above a rule, the expected output
// below it. The text after a comma in set names the mode. If there is one, transcripts
// about directories are skipped.
func replay(t *testing.T, set string, newRunner func(t *testing.T) transcriptRunner) {
	folder, _, served := strings.Cut(set, ", ")
	paths, err := filepath.Glob(filepath.Join(vectors(t, folder), "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if served {
		paths = slices.DeleteFunc(paths, func(path string) bool {
			return strings.HasPrefix(filepath.Base(path), "directory-")
		})
	}
	steps := 0
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			runner := newRunner(t)
			defer runner.close()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			steps += runBlocks(t, string(text), runner)
		})
	}
	if len(paths) == 0 || steps == 0 {
		t.Fatalf("there are no transcripts of %s", set)
	}
	fmt.Printf("transcripts of %s: %d, steps: %d\n", set, len(paths), steps)
}

// runBlocks runs the blocks of a transcript and returns the number of commands.
func runBlocks(t *testing.T, text string, runner transcriptRunner) int {
	t.Helper()
	steps, line := 0, 1
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		commands, want, ruled := strings.Cut("\n"+block+"\n", "\n----\n")
		var printed strings.Builder
		for command := range strings.Lines(commands) {
			command = strings.TrimSuffix(command, "\n")
			if strings.TrimSpace(command) == "" || command[0] == '#' {
				continue
			}
			steps++
			printed.WriteString(runner.run(command))
		}
		if got := printed.String(); ruled && got != want {
			t.Errorf("the block at line %d prints\n%sand not\n%s", line, got, want)
		} else if !ruled && got != "" {
			t.Errorf("the block at line %d has no rule", line)
		}
		line += strings.Count(block, "\n") + 2
	}
	return steps
}
