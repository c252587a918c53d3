package main

import (
	"fmt"
	"strconv"
	"strings"
)

// makePage is the page that rust-json makes from the same parameters: `deep(0, w)`
// is `"value"`, `deep(d, w)` an array of w objects `{"key": deep(d-1, w)}`.
func makePage(fields []string) ([]byte, error) {
	words := map[string]string{}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		words[name] = value
	}
	number := func(name string) int {
		n, err := strconv.Atoi(words[name])
		if err != nil {
			return -1
		}
		return n
	}
	items, depth, width := number("objects"), number("depth"), number("width")
	if items < 0 || depth < 0 || width < 0 {
		return nil, errRequest
	}
	title := map[string]string{"escapes": `\"q\\ `, "non-ascii": "é€😀 "}[words["title"]]
	payload := deep(nil, depth, width)
	out := []byte{'['}
	for item := range items {
		if item > 0 {
			out = append(out, ',')
		}
		head := fmt.Sprintf(`{"id":"%d","title":"%sPartition 1 / Item %d / Order %d","huge_data":`, item, title, item, item)
		if words["key_last"] == "true" {
			out = append(out, `{"payload":`+head...)
			out = append(out, payload...)
			out = append(out, fmt.Sprintf(`},"order":%d}`, item)...)
		} else {
			out = append(out, fmt.Sprintf(`{"order":%d,"payload":%s`, item, head)...)
			out = append(out, payload...)
			out = append(out, "}}"...)
		}
	}
	return append(out, ']'), nil
}

func deep(out []byte, depth, width int) []byte {
	if depth == 0 {
		return append(out, `"value"`...)
	}
	out = append(out, '[')
	for index := range width {
		if index > 0 {
			out = append(out, ',')
		}
		out = append(out, `{"key":`...)
		out = deep(out, depth-1, width)
		out = append(out, '}')
	}
	return append(out, ']')
}
