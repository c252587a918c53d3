package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	weir "weir.example/bindings/go"
)

func TestQueryTranscripts(t *testing.T) {
	replay(t, "query", func(t *testing.T) transcriptRunner {
		return &queries{t: t, options: map[string]weir.SourceOptions{}}
	})
}

// queries runs the commands of vectors/query.
type queries struct {
	t       *testing.T
	text    weir.QueryOptions
	query   *weir.Query
	sources map[string]weir.Source
	options map[string]weir.SourceOptions
	token   []byte
	out     strings.Builder
}

func (w *queries) close() {
	if w.query != nil {
		w.query.Close()
	}
}

func (w *queries) run(line string) string {
	w.out.Reset()
	word, rest, _ := strings.Cut(line, " ")
	if err := w.command(word, rest); err != nil {
		var failed *weir.Error
		if !errors.As(err, &failed) {
			w.t.Fatalf("%s: %v is not an error of the package", line, err)
		}
		fmt.Fprintf(&w.out, "%s: %s\n", failed.Code.Name(), failed.Message)
	}
	return w.out.String()
}

func (w *queries) command(word, rest string) error {
	name, args, _ := strings.Cut(rest, " ")
	switch word {
	case "set":
		w.set(name, args)
		return nil
	case "budget":
		w.budget(name, w.number(args))
		return nil
	case "open":
		w.text.Token = nil
		return w.open()
	case "resume":
		w.text.Token = w.token
		return w.open()
	case "stop":
		token, err := w.query.Token()
		if err != nil {
			return err
		}
		w.token = token
		w.query.Close()
		return nil
	case "next":
		return w.next(rest)
	case "values":
		return w.values(strings.Fields(rest))
	case "needs":
		needs, err := w.query.Needs()
		w.needs(needs)
		return err
	case "abandon":
		return w.query.Abandon(rest)
	case "explain":
		text, err := w.query.Explain()
		w.out.WriteString(text)
		return err
	case "source":
		options := w.source(name, args)
		source, err := w.query.Source(options)
		if err == nil {
			w.sources[name], w.options[name] = source, options
		}
		return err
	}
	source, ok := w.sources[name]
	if !ok {
		source = w.query.SourceAt(99)
	}
	bytes := func(text string) []byte { return []byte(strings.ReplaceAll(text, `\n`, "\n")) }
	switch word {
	case "page":
		next, page, _ := strings.Cut(args, " ")
		return source.Enqueue(bytes(page), []byte(next))
	case "frames":
		frames, page, _ := strings.Cut(args, " ")
		return source.EnqueueFramed(bytes(page), nil, w.frames(frames))
	case "last":
		return source.Enqueue(bytes(args), nil)
	case "finish":
		return source.Finish()
	case "watermark":
		return source.Watermark(strings.Split(args, " ")...)
	case "split":
		return w.split(name, source, args)
	}
	w.t.Fatalf("no command %s", word)
	return nil
}

// frames parses the positions of items and their properties.
func (w *queries) frames(text string) weir.Frames {
	span := func(text string) (uint32, uint32) {
		offset, length, _ := strings.Cut(text, "+")
		return uint32(w.number(offset)), uint32(w.number(length))
	}
	items := strings.Split(text, ",")
	frames := weir.Frames{Meta: map[string][]weir.Property{}}
	for at, item := range items {
		position, rest, _ := strings.Cut(item, "/")
		offset, length := span(position)
		frames.Items = append(frames.Items, weir.Frame{Offset: offset, Len: length})
		for word := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r == '/' }) {
			name, value, _ := strings.Cut(word, "=")
			if frames.Meta[name] == nil {
				frames.Meta[name] = make([]weir.Property, len(items))
			}
			if strings.Contains(value, "+") {
				frames.Meta[name][at] = weir.BytesProperty(span(value))
			} else {
				frames.Meta[name][at] = weir.NumberProperty(w.number(value))
			}
		}
	}
	return frames
}

func (w *queries) open() error {
	w.close()
	w.sources = map[string]weir.Source{}
	query, err := weir.NewQuery(w.text)
	if err == nil {
		w.query = query
	}
	return err
}

func (w *queries) next(rest string) error {
	var bounds weir.Bounds
	if rest != "" {
		bounds.Items = int(w.number(rest))
	}
	step, page, err := w.query.Next(bounds)
	switch {
	case err != nil:
		return err
	case step == weir.Done:
		w.out.WriteString("done\n")
	case step == weir.Needing:
		needs, err := w.query.Needs()
		w.needs(needs)
		return err
	default:
		defer page.Release()
		for item := range page.Items() {
			name := "constructed"
			if !item.Constructed() {
				name = w.name(item.Source())
			}
			text := strings.ReplaceAll(string(item.Bytes()), "\n", `\n`)
			fmt.Fprintf(&w.out, "%s %s\n", name, text)
		}
		if skipped := page.Skipped(); skipped > 0 {
			fmt.Fprintf(&w.out, "skipped %d\n", skipped)
		}
	}
	return nil
}

func (w *queries) values(paths []string) error {
	_, page, err := w.query.Next(weir.Bounds{})
	if err != nil {
		return err
	}
	defer page.Release()
	table, err := page.Values(nil, paths...)
	for row := range slices.Chunk(table, len(paths)) {
		for at, value := range row {
			if at > 0 {
				w.out.WriteString(" | ")
			}
			if value == nil {
				value = []byte("-")
			}
			w.out.Write(value)
		}
		w.out.WriteByte('\n')
	}
	return err
}

func (w *queries) needs(needs []weir.Need) {
	for _, need := range needs {
		word := "ahead"
		if need.Required {
			word = "need"
		}
		fmt.Fprintf(&w.out, "%s %s", word, w.name(need.Source.Number()))
		if need.Continuation != nil {
			fmt.Fprintf(&w.out, " %s", need.Continuation)
		}
		w.out.WriteByte('\n')
	}
}

func (w *queries) name(number uint32) string {
	for name, source := range w.sources {
		if source.Number() == number {
			return name
		}
	}
	return "?"
}

func (w *queries) split(name string, source weir.Source, args string) error {
	whole := w.options[name]
	var names []string
	var parts []weir.SourceOptions
	for part := range strings.FieldsSeq(args) {
		name, first, _ := strings.Cut(part, "=")
		options := whole
		options.Name, options.Ordinal, options.First = name, nil, nil
		if first != "" {
			options.First = []byte(first)
		}
		names, parts = append(names, name), append(parts, options)
	}
	sources, err := source.Replace(parts...)
	for at, source := range sources {
		w.sources[names[at]], w.options[names[at]] = source, parts[at]
	}
	return err
}

func (w *queries) number(text string) uint64 {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return number
}

func (w *queries) set(field, value string) {
	text := &w.text
	switch field {
	case "none":
		*text = weir.QueryOptions{Budgets: text.Budgets}
	case "where":
		text.Where = value
	case "order":
		text.Order = value
	case "select":
		text.Select = value
	case "group":
		text.Group = value
	case "distinct":
		text.Distinct = true
	case "offset":
		text.Offset = w.number(value)
	case "limit":
		limit := w.number(value)
		text.Limit = &limit
	case "top":
		top := w.number(value)
		text.Top = &top
	case "param":
		name, value, _ := strings.Cut(value, " ")
		text.Params = append(text.Params, weir.Field{Name: name, Value: value})
	case "strings":
		text.Strings = weir.ByUTF16
	case "complex":
		text.Complex = weir.ComplexRank
	case "missing":
		text.Missing = weir.MissingDrop
	case "strict":
		text.Level = weir.LevelStrict
	case "bad":
		text.BadItems = weir.BadItemUndefined
		if value == "skip" {
			text.BadItems = weir.BadItemSkip
		}
	case "mode":
		text.Mode = map[string]weir.Mode{
			"sequential":  weir.ModeSequential,
			"arrival":     weir.ModeArrival,
			"round_robin": weir.ModeRoundRobin,
			"merge":       weir.ModeMerge,
			"sort":        weir.ModeSort,
		}[value]
	default:
		w.t.Fatalf("no field %s", field)
	}
}

func (w *queries) budget(name string, value uint64) {
	budgets := &w.text.Budgets
	switch name {
	case "buffer":
		budgets.BufferBytes = value
	case "ahead":
		budgets.PagesAhead = int(value)
		if value == 0 {
			budgets.PagesAhead = -1
		}
	case "sort":
		budgets.SortBytes = value
	case "groups":
		budgets.Groups = value
	case "distinct":
		budgets.Distinct = value
	case "sources":
		budgets.Sources = value
	case "item":
		budgets.ItemBytes = value
	case "depth":
		budgets.Depth = uint32(value)
	default:
		w.t.Fatalf("no budget %s", name)
	}
}

func (w *queries) source(name, rest string) weir.SourceOptions {
	options := weir.SourceOptions{Name: name}
	for word := range strings.FieldsSeq(rest) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "sorted":
			options.Sorted = true
		case "trusted":
			options.TrustOrder = true
		case "unstable":
			options.Unstable = true
		case "partial":
			options.Partial = true
		case "ordinal":
			ordinal := w.number(value)
			options.Ordinal = &ordinal
		case "tie":
			options.Tie = value
		case "first":
			options.First = []byte(value)
		case "bound":
			options.Bound = strings.Split(value, ",")
		case "strict":
			options.Level = weir.LevelStrict
		case "none":
			options.Level = weir.LevelNone
		case "shape":
			options.Shape = value
		default:
			property, ok := strings.CutPrefix(key, "meta.")
			if !ok {
				w.t.Fatalf("no option %s", word)
			}
			options.Meta = append(options.Meta, weir.Field{Name: property, Value: value})
		}
	}
	return options
}
