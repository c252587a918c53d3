// go-http serves the endpoints below /bench with net/http or with fasthttp, as their manuals show.
//
// lab/peers/README.md has the rules, lab/peers/bench.txt the vectors.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
)

// bodyMax is the maximum size of a body in bytes.
const bodyMax = 4 << 20

func main() {
	words := os.Args[1:]
	if len(words) == 1 && words[0] == "--version" {
		fmt.Println("go-http: fasthttp " + version("github.com/valyala/fasthttp") +
			", json " + version("github.com/go-json-experiment/json"))
		return
	}
	serve := map[string]func(net.Listener) error{"net-http": serveNetHTTP, "fasthttp": serveFastHTTP}
	if len(words) != 3 || serve[words[0]] == nil || words[1] != "--listen" {
		fmt.Fprintln(os.Stderr, "usage: go-http net-http|fasthttp --listen ADDRESS | --version")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", words[2])
	if err == nil {
		fmt.Println("listening on", listener.Addr())
		err = serve[words[0]](listener)
	}
	fmt.Fprintln(os.Stderr, "go-http:", err)
	os.Exit(1)
}

// version returns the version of a module of this program.
func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}
