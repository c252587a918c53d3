package weir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme does what the README says, in an empty directory for each program.
func TestReadme(t *testing.T) {
	for _, heading := range []string{"## Quick start", "## Queries over foreign pages"} {
		t.Run(heading, func(t *testing.T) { program(t, heading) })
	}
}

// program runs the program below a heading.
func program(t *testing.T, heading string) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	_, start, found := strings.Cut(string(text), heading)
	if !found {
		t.Fatal("the README has no such heading")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(block(t, start, "go")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, module, _ := strings.Cut(string(text), "The module is named")
	command, want, _ := strings.Cut(block(t, start, "console"), "\n")
	program := strings.TrimPrefix(command, "$ ")
	shell := func(script string) string {
		shell := exec.Command("sh", "-euc", script)
		shell.Dir = dir
		shell.Env = append(os.Environ(), "WEIR="+filepath.Dir(filepath.Dir(here)), "GOFLAGS=-mod=mod")
		said, err := shell.Output()
		if err != nil {
			if failed, is := err.(*exec.ExitError); is {
				t.Fatalf("%s: %v: %s", script, err, failed.Stderr)
			}
			t.Fatal(err)
		}
		return string(said)
	}
	shell(block(t, module, "sh"))
	if got := shell(program); got != want {
		t.Errorf("prints\n%s\nand not\n%s", got, want)
	}
}

// block is the first fenced block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	_, text, found := strings.Cut(text, "```"+language+"\n")
	if !found {
		t.Fatalf("the README has no block of %s", language)
	}
	text, _, _ = strings.Cut(text, "```")
	return text
}
