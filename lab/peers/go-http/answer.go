package main

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

const (
	plainMax     = 16 << 20 // bytes of a body after inflation
	primesMax    = 10_000_000
	primes       = 100_000
	typeJSON     = "application/json"
	typeBytes    = "application/octet-stream"
	typeZlib     = "application/zlib"
	fnvStart     = 0xcbf29ce484222325
	fnvPrime     = 0x100000001b3
	compression6 = 6
)

// response is the answer to a request.
type response struct {
	status int
	kind   string
	allow  string
	body   []byte
}

func good(kind string, body []byte) response {
	return response{status: 200, kind: kind, body: body}
}

func failure(status int, what string) response {
	return response{status: status, kind: typeJSON, body: []byte(`{"error":"` + what + `"}`)}
}

func wrongMethod(allow string) response {
	answer := failure(405, "method")
	answer.allow = allow
	return answer
}

// answer responds to a request; query is the text after the question mark.
func answer(method, path, query string, body []byte) response {
	switch path {
	case "/bench/json":
		switch method {
		case "GET":
			return encoded(typeJSON, struct {
				Message string `json:"message"`
			}{"Hello, World!"})
		case "POST":
			var in item
			if json.Unmarshal(body, &in) == nil {
				if out, ok := in.sums(); ok {
					return encoded(typeJSON, out)
				}
			}
			return failure(400, "bad json")
		}
		return wrongMethod("GET, POST")
	case "/bench/echo":
		if method != "POST" {
			return wrongMethod("POST")
		}
		return good(typeBytes, body)
	case "/bench/zlib":
		if method != "POST" {
			return wrongMethod("POST")
		}
		return items(body)
	case "/bench/cpu":
		if method != "GET" {
			return wrongMethod("GET")
		}
		n, ok := readPrimes(query)
		if !ok {
			return failure(400, "bad n")
		}
		return good(typeJSON, sieve(n))
	}
	return failure(404, "not found")
}

func encoded(kind string, value any) response {
	body, err := json.Marshal(value)
	if err != nil {
		return failure(500, "json")
	}
	return good(kind, body)
}

// item is an input. A missing member is nil; a repeated one is an error of the library.
type item struct {
	ID     *uint64   `json:"id"`
	Name   *string   `json:"name"`
	Tags   []*string `json:"tags"`
	Values []*int64  `json:"values"`
}

// sums is an output.
type sums struct {
	ID    uint64 `json:"id"`
	Name  string `json:"name"`
	Tags  int    `json:"tags"`
	Count int    `json:"count"`
	Sum   int64  `json:"sum"`
	Min   int64  `json:"min"`
	Max   int64  `json:"max"`
}

func (in *item) sums() (sums, bool) {
	if in.ID == nil || in.Name == nil || in.Tags == nil || in.Values == nil {
		return sums{}, false
	}
	out := sums{ID: *in.ID, Name: *in.Name, Tags: len(in.Tags), Count: len(in.Values)}
	for _, tag := range in.Tags {
		if tag == nil {
			return sums{}, false
		}
	}
	for i, value := range in.Values {
		if value == nil || overflows(out.Sum, *value) {
			return sums{}, false
		}
		out.Sum += *value
		if i == 0 {
			out.Min, out.Max = *value, *value
		}
		out.Min, out.Max = min(out.Min, *value), max(out.Max, *value)
	}
	return out, true
}

func overflows(a, b int64) bool {
	return b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b
}

func items(body []byte) response {
	from := bytes.NewReader(body)
	stream, err := zlib.NewReader(from)
	if err != nil {
		return failure(400, "bad zlib")
	}
	plain, err := io.ReadAll(io.LimitReader(stream, plainMax+1))
	if len(plain) > plainMax {
		return failure(413, "too large")
	}
	if err != nil || from.Len() > 0 {
		return failure(400, "bad zlib")
	}
	var in []item
	if json.Unmarshal(plain, &in) != nil || in == nil {
		return failure(400, "bad json")
	}
	out := make([]sums, len(in))
	for i := range in {
		sum, ok := in[i].sums()
		if !ok {
			return failure(400, "bad json")
		}
		out[i] = sum
	}
	text, err := json.Marshal(out)
	if err != nil {
		return failure(500, "json")
	}
	var packed bytes.Buffer
	// The level is valid, and writing to memory cannot fail.
	to, _ := zlib.NewWriterLevel(&packed, compression6)
	_, _ = to.Write(text)
	_ = to.Close()
	return good(typeZlib, packed.Bytes())
}

// readPrimes returns the n of a query.
func readPrimes(query string) (int, bool) {
	if query == "" {
		return primes, true
	}
	digits, ok := strings.CutPrefix(query, "n=")
	if !ok || len(digits) > 8 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 1 && n <= primesMax
}

// sieve finds the primes up to n. Byte i of the table represents the number 2i + 1.
func sieve(n int) []byte {
	divided := make([]bool, (n+1)/2)
	for i := 1; (2*i+1)*(2*i+1) <= n; i++ {
		if !divided[i] {
			for k := 2 * i * (i + 1); k < len(divided); k += 2*i + 1 {
				divided[k] = true
			}
		}
	}
	count, sum := 0, uint64(fnvStart)
	prime := func(value uint32) {
		count++
		for shift := 0; shift < 32; shift += 8 {
			sum = (sum ^ uint64(byte(value>>shift))) * fnvPrime
		}
	}
	if n >= 2 {
		prime(2)
	}
	for i := 1; i < len(divided); i++ {
		if !divided[i] {
			prime(uint32(2*i + 1))
		}
	}
	return fmt.Appendf(nil, `{"n":%d,"primes":%d,"fnv":"%016x"}`, n, count, sum)
}
