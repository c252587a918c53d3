// Package pages generates the pages of the measurements: items with a key and a
// payload that is an array of arrays of arrays.
package pages

import "fmt"

// Shape is the number of items of a page, and the depth and width of each payload;
// 6 by 10 is a payload of 17 MB.
type Shape struct {
	Objects, Depth, Width int
	// Title precedes each title: "escapes", "non-ascii" or nothing.
	Title string
	// KeyLast puts the key after the payload.
	KeyLast bool
}

// Make generates a page.
func Make(shape Shape) []byte {
	title := map[string]string{"escapes": `\"q\\ `, "non-ascii": "é€😀 "}[shape.Title]
	payload := deep(nil, shape.Depth, shape.Width)
	out := make([]byte, 0, shape.Objects*(len(payload)+128)+2)
	out = append(out, '[')
	for item := range shape.Objects {
		if item > 0 {
			out = append(out, ',')
		}
		head := fmt.Sprintf(`{"id":"%d","title":"%sPartition 1 / Item %d / Order %d","huge_data":`, item, title, item, item)
		if shape.KeyLast {
			out = append(append(append(out, `{"payload":`...), head...), payload...)
			out = fmt.Appendf(out, `},"order":%d}`, item)
			continue
		}
		out = fmt.Appendf(out, `{"order":%d,"payload":%s`, item, head)
		out = append(append(out, payload...), "}}"...)
	}
	return append(out, ']')
}

func deep(out []byte, depth, width int) []byte {
	if depth == 0 {
		return append(out, `"value"`...)
	}
	out = append(out, '[')
	for at := range width {
		if at > 0 {
			out = append(out, ',')
		}
		out = append(deep(append(out, `{"key":`...), depth-1, width), '}')
	}
	return append(out, ']')
}
