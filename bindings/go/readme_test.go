package weir_test

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme follows the README, in an empty directory for each program.
func TestReadme(t *testing.T) {
	for _, heading := range []string{"## Quick start", "## Queries over pages from any source"} {
		t.Run(heading, func(t *testing.T) { program(t, heading) })
	}
}

// program runs the program under a heading.
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
	_, module, _ := strings.Cut(string(text), "The module is")
	command, want, _ := strings.Cut(block(t, start, "console"), "\n")
	program := strings.TrimPrefix(command, "$ ")
	shell := func(script string) string {
		shell := exec.Command("sh", "-euc", script)
		shell.Dir = dir
		shell.Env = append(os.Environ(), "WEIR="+filepath.Dir(filepath.Dir(here)), "GOFLAGS=-mod=mod")
		output, err := shell.Output()
		if err != nil {
			if failed, ok := err.(*exec.ExitError); ok {
				t.Fatalf("%s: %v: %s", script, err, failed.Stderr)
			}
			t.Fatal(err)
		}
		return string(output)
	}
	shell(block(t, module, "sh"))
	if got := shell(program); got != want {
		t.Errorf("prints\n%s\nand not\n%s", got, want)
	}
}

// block returns the first fenced block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	_, text, found := strings.Cut(text, "```"+language+"\n")
	if !found {
		t.Fatalf("the README has no block of %s", language)
	}
	text, _, _ = strings.Cut(text, "```")
	return text
}

// TestModuleFromAnotherRepository builds a program that fetches the module from another
// repository, through a module proxy in a directory.
func TestModuleFromAnotherRepository(t *testing.T) {
	const path, fork, version = "weir.example/bindings/go", "fork.example/owner/weir/bindings/go", "v0.1.0"
	proxy, dir := t.TempDir(), t.TempDir()
	versions := filepath.Join(proxy, filepath.FromSlash(fork), "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	for _, pattern := range []string{"go.mod", "*.go", "internal/*/*.go"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			into, err := archive.Create(fork + "@" + version + "/" + filepath.ToSlash(name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := into.Write(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	program := "package main\n\nimport weir \"" + path + "\"\n\nfunc main() { println(weir.Valid.String()) }\n"
	for name, text := range map[string][]byte{
		filepath.Join(versions, version+".info"): []byte(`{"Version":"` + version + `"}`),
		filepath.Join(versions, version+".mod"):  module,
		filepath.Join(versions, version+".zip"):  packed.Bytes(),
		filepath.Join(dir, "main.go"):            []byte(program),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range [][]string{
		{"mod", "init", "quick"},
		{"mod", "edit", "-require", path + "@" + version, "-replace", path + "=" + fork + "@" + version},
		{"vet", "-modcacherw", "."},
	} {
		command := exec.Command("go", words...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOPROXY=file://"+proxy, "GONOSUMDB=*", "GOFLAGS=-mod=mod",
			"GOMODCACHE="+t.TempDir(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", words, err, output)
		}
	}
}
