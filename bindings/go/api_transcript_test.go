package weir_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	weir "weir.example/bindings/go"
)

func TestAPITranscripts(t *testing.T) {
	replay(t, "api", func(t *testing.T) transcriptRunner { return newStores(t, "") })
}

func TestAPITranscriptsServed(t *testing.T) {
	replay(t, "api, served", func(t *testing.T) transcriptRunner { return newStores(t, serve(t)) })
}

// newStores returns a runner with a new directory, or with a server.
func newStores(t *testing.T, server string) *stores {
	return &stores{
		t:        t,
		dir:      t.TempDir(),
		server:   server,
		sessions: map[string]*weir.Session{},
		readers:  map[string]*reading{},
		groups:   map[string]*member{},
	}
}

// stores runs the commands of vectors/api.
type stores struct {
	t        *testing.T
	dir      string
	server   string // its address; empty: opens the directory
	store    *weir.Store
	batch    []weir.Intention
	steps    []weir.Change
	pending  *weir.Pending
	sessions map[string]*weir.Session
	readers  map[string]*reading
	groups   map[string]*member
	out      strings.Builder
}

// reading is a reader, and the records of its last page that were not used yet.
type reading struct {
	reader *weir.Reader
	unused []weir.Record
}

// member is a member of a group, and its claims.
type member struct {
	group  *weir.Group
	claims map[uint64]weir.Claimed
}

func (w *stores) close() {
	for _, session := range w.sessions {
		session.Close()
	}
	for _, reading := range w.readers {
		reading.reader.Close()
	}
	for _, member := range w.groups {
		member.group.Close()
	}
	if w.store != nil {
		if err := w.store.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *stores) run(line string) string {
	w.out.Reset()
	word, rest, _ := strings.Cut(line, " ")
	if err := w.command(context.Background(), word, rest); err != nil {
		var failed *weir.Error
		if !errors.As(err, &failed) {
			w.t.Fatalf("%s: %v is not an error of the package", line, err)
		}
		fmt.Fprintf(&w.out, "! %s\n", failed.Code.Name())
	}
	return w.out.String()
}

func (w *stores) printLine(format string, values ...any) {
	fmt.Fprintf(&w.out, format+"\n", values...)
}

// topic returns a handle of a topic; if the store was never opened, the handle
// of a closed store.
func (w *stores) topic(name string) weir.Topic { return w.opened().Topic(name) }

func (w *stores) opened() *weir.Store {
	if w.store == nil {
		return new(weir.Store)
	}
	return w.store
}

func (w *stores) command(ctx context.Context, word, rest string) error {
	words := strings.Split(rest, " ")
	switch word {
	case "open":
		return w.open()
	case "close":
		return w.store.Close()
	case "ensure":
		created, err := w.topic(rest).Ensure(ctx, nil)
		if err == nil {
			w.printLine("%s", map[bool]string{true: "created", false: "there"}[created])
		}
		return err
	case "add":
		word, rest, _ := strings.Cut(rest, " ")
		intention := w.intention(word, rest)
		w.batch = append(w.batch, intention)
		return nil
	case "step":
		key, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(rest, "put "), "delete "), " ")
		w.steps = append(w.steps, weir.Change{
			Key: bytesOf(key), Value: bytesOf(value), Delete: words[0] == "delete",
		})
		return nil
	case "send":
		pending, err := w.store.Send(ctx, w.takeBatch()...)
		w.pending = pending
		return err
	case "wait":
		verdicts, err := w.pending.Wait(ctx)
		w.verdicts(verdicts)
		return err
	case "as":
		name, rest, _ := strings.Cut(rest, " ")
		word, rest, _ := strings.Cut(rest, " ")
		return w.write(word, rest, func(intentions []weir.Intention) ([]weir.Verdict, error) {
			return w.sessions[name].Submit(ctx, intentions...)
		})
	case "session", "nonce", "resume":
		return w.session(ctx, word, words)
	case "get", "at", "scan", "scan-values", "log", "info", "topics":
		return w.read(ctx, word, words)
	case "listen", "next":
		return w.listen(ctx, word, words)
	}
	if writes[word] {
		return w.write(word, rest, func(intentions []weir.Intention) ([]weir.Verdict, error) {
			return w.opened().Submit(ctx, intentions...)
		})
	}
	return w.group(ctx, word, words)
}

// writes are the commands that write.
var writes = map[string]bool{
	"create": true, "alter": true, "destroy": true, "put": true, "put-meta": true, "put-if": true,
	"delete": true, "delete-if": true, "transaction": true, "submit": true,
}

func (w *stores) open() error {
	if w.server != "" {
		store, err := weir.Connect(context.Background(), w.server, nil)
		if err == nil {
			w.store = store
		}
		return err
	}
	// The library, not this test, rejects a second one.
	store, err := weir.Open(w.dir, &weir.OpenOptions{Durability: weir.DurabilityMemory})
	if err == nil {
		w.store = store
	}
	return err
}

func (w *stores) takeBatch() []weir.Intention {
	batch := w.batch
	w.batch = nil
	return batch
}

// write sends one intention, or the stored ones.
func (w *stores) write(word, rest string, send func([]weir.Intention) ([]weir.Verdict, error)) error {
	intentions := w.batch
	if word == "submit" {
		w.batch = nil
	} else {
		intentions = []weir.Intention{w.intention(word, rest)}
	}
	verdicts, err := send(intentions)
	w.verdicts(verdicts)
	return err
}

// intention parses a command that writes.
func (w *stores) intention(word, rest string) weir.Intention {
	topic, rest, _ := strings.Cut(rest, " ")
	intention := weir.Intention{Topic: topic}
	key, value, _ := strings.Cut(rest, " ")
	switch word {
	case "create", "alter":
		intention.Operation, intention.Options = weir.OpCreate, options(w.t, rest)
		if word == "alter" {
			intention.Operation = weir.OpAlter
		}
	case "destroy":
		intention.Operation = weir.OpDestroy
	case "put":
		intention.Operation, intention.Key, intention.Value = weir.OpPut, bytesOf(key), bytesOf(value)
	case "put-meta":
		meta, value, _ := strings.Cut(value, " ")
		intention.Operation, intention.Key, intention.Value, intention.Meta = weir.OpPut, bytesOf(key), bytesOf(value), bytesOf(meta)
	case "put-if":
		conditions, value, _ := strings.Cut(value, " ")
		intention.Operation, intention.Key, intention.Value = weir.OpPut, bytesOf(key), bytesOf(value)
		intention.Expect = expects(w.t, conditions)
	case "delete":
		intention.Operation, intention.Key = weir.OpDelete, bytesOf(key)
	case "delete-if":
		intention.Operation, intention.Key, intention.Expect = weir.OpDelete, bytesOf(key), expects(w.t, value)
	case "transaction":
		intention.Operation, intention.Steps, intention.Expect = weir.OpTransaction, w.steps, expects(w.t, rest)
		w.steps = nil
	default:
		w.t.Fatalf("no command %s", word)
	}
	return intention
}

// bytesOf parses a key or value.
func bytesOf(text string) []byte {
	if text == "-" {
		return nil
	}
	return []byte(strings.ReplaceAll(text, `\n`, "\n"))
}

func numberOf(t *testing.T, text string) uint64 {
	t.Helper()
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func options(t *testing.T, words string) *weir.TopicOptions {
	parsed := &weir.TopicOptions{}
	for word := range strings.FieldsSeq(words) {
		name, value, _ := strings.Cut(word, "=")
		if word == "compaction=latest" {
			parsed.Latest = true
			continue
		}
		number := numberOf(t, value)
		switch name {
		case "key_bytes_max":
			parsed.KeyBytes = &number
		case "value_bytes_max":
			parsed.ValueBytes = &number
		case "keys_max":
			parsed.Keys = &number
		default:
			t.Fatalf("no option %s", word)
		}
	}
	return parsed
}

func expects(t *testing.T, text string) []weir.Expect {
	var found []weir.Expect
	if text == "" {
		return nil
	}
	for condition := range strings.SplitSeq(text, ",") {
		condition, key, other := strings.Cut(condition, "@")
		name, value, _ := strings.Cut(condition, ":")
		var number uint64
		if value != "" {
			number = numberOf(t, value)
		}
		expect, ok := map[string]weir.Expect{
			"offset":          weir.KeyAt(number),
			"absent":          weir.KeyAbsent(),
			"present":         weir.KeyPresent(),
			"topic":           weir.TopicAt(number),
			"topic-absent-or": weir.TopicAbsentOrAt(number),
			"topic-empty":     weir.TopicEmpty(),
			"incarnation":     weir.Incarnation(number),
		}[name]
		if !ok {
			t.Fatalf("no condition %s", condition)
		}
		if other {
			expect = expect.Of([]byte(key))
		}
		found = append(found, expect)
	}
	return found
}

func (w *stores) verdicts(verdicts []weir.Verdict) {
	for _, verdict := range verdicts {
		line := ""
		if verdict.Replayed {
			line = "again "
		}
		effect := strings.ToLower(verdict.Effect.String())
		switch verdict.Effect {
		case weir.Valid:
			line += fmt.Sprint(effect, " ", verdict.Intention)
			if verdict.Records > 0 {
				line += fmt.Sprint(" at ", verdict.Offset)
			}
			if verdict.Records > 1 {
				line += fmt.Sprint(" +", verdict.Records-1)
			}
		case weir.Refused:
			line += fmt.Sprint(effect, " ", verdict.Reason.Name(), " next ", verdict.Detail.Number)
		default:
			line += fmt.Sprint(effect, " ", verdict.Intention, " ", verdict.Reason.Name(), detail(verdict.Detail))
		}
		w.printLine("%s", line)
	}
}

func detail(detail weir.Detail) string {
	switch detail.Kind {
	case weir.DetailActual:
		return fmt.Sprint(" actual ", detail.Number)
	case weir.DetailLimit:
		return fmt.Sprint(" limit ", detail.Number)
	case weir.DetailStep:
		return fmt.Sprint(" step ", detail.Number, " ", detail.Reason.Name())
	case weir.DetailRejected:
		return fmt.Sprint(" rejected ", detail.Number, " ", detail.Text)
	case weir.DetailTrap:
		return " trap " + detail.Text
	case weir.DetailText:
		return " text " + detail.Text
	}
	return ""
}

func (w *stores) session(ctx context.Context, word string, words []string) error {
	name := words[0]
	switch word {
	case "session":
		bytes, err := hex.DecodeString(words[1])
		if err != nil {
			w.t.Fatal(err)
		}
		if len(bytes) != 16 {
			// The type fixes the length of a client id, so this error cannot reach the library.
			return &weir.Error{Code: weir.ErrBadOption}
		}
		session, err := w.store.Session(ctx, [16]byte(bytes))
		if err == nil {
			w.sessions[name] = session
		}
		return err
	case "nonce":
		nonce, err := w.sessions[name].NextNonce(ctx)
		if err == nil {
			w.printLine("%d", nonce)
		}
		return err
	}
	return w.sessions[name].Resume(ctx, numberOf(w.t, words[1]))
}

// place parses a start position.
func (w *stores) position(text string) (weir.From, error) {
	name, value, _ := strings.Cut(text, ":")
	switch name {
	case "start":
		return weir.FromStart(), nil
	case "end":
		return weir.FromEnd(), nil
	case "after":
		return weir.After(numberOf(w.t, value)), nil
	case "text":
		return weir.ParseFrom(value)
	}
	return weir.Last(numberOf(w.t, value)), nil
}

// kinds are the names of the record kinds.
var kinds = []string{"", "CREATE", "DESTROY", "PUT", "DELETE", "ALTER", "REPLACE"}

func recordText(record weir.Record) string {
	line := fmt.Sprint(record.Offset(), " ", kinds[record.Kind()])
	switch record.Kind() {
	case weir.RecordPut:
		line += fmt.Sprintf(" %s=%s", record.Key(), strings.ReplaceAll(string(record.Value()), "\n", `\n`))
	case weir.RecordDelete:
		line += fmt.Sprintf(" %s", record.Key())
	}
	if meta := record.Meta(); len(meta) > 0 {
		line += fmt.Sprintf(" meta %s", meta)
	}
	return line
}

func (w *stores) read(ctx context.Context, word string, words []string) error {
	topic := w.topic(words[0])
	var record weir.Record
	var ok bool
	var err error
	switch word {
	case "get", "at":
		if word == "get" {
			record, ok, err = topic.Get(ctx, bytesOf(words[1]))
		} else {
			record, ok, err = topic.At(ctx, numberOf(w.t, words[1]))
		}
		if ok {
			w.printLine("%s", recordText(record))
		} else if err == nil {
			w.printLine("absent")
		}
	case "scan", "scan-values":
		err = w.scan(ctx, topic, word == "scan", words)
	case "log":
		from, err := w.position(words[1])
		if err != nil {
			return err
		}
		for record, err := range topic.Records(ctx, from) {
			if err != nil {
				return err
			}
			w.printLine("%s", recordText(record))
		}
	case "info":
		var info weir.Info
		info, ok, err = topic.Info(ctx)
		if ok {
			live := map[bool]string{true: "live", false: "dead"}[info.Live]
			w.printLine("%s first %d last %d keys %d", live, info.First, info.Last, info.Keys)
		} else if err == nil {
			w.printLine("absent")
		}
	case "topics":
		var names []string
		if words[0] == "all" {
			names, err = w.store.AllTopics(ctx)
		} else {
			names, err = w.store.Topics(ctx)
		}
		for _, name := range names {
			w.printLine("%s", name)
		}
	}
	return err
}

func (w *stores) scan(ctx context.Context, topic weir.Topic, keysOnly bool, words []string) error {
	page, err := topic.ScanPage(ctx, weir.ScanOptions{
		Prefix:   bytesOf(words[1]),
		After:    bytesOf(words[2]),
		Limit:    int(numberOf(w.t, words[3])),
		KeysOnly: keysOnly,
	})
	if err != nil {
		return err
	}
	if page == nil {
		w.printLine("done")
		return nil
	}
	defer page.Release()
	for at := range page.Len() {
		record := weir.Record{Item: page.At(at)}
		if keysOnly {
			w.printLine("%s %d", record.Key(), record.Offset())
		} else {
			w.printLine("%s %d %s", record.Key(), record.Offset(), record.Value())
		}
	}
	return nil
}

// within returns a context with a timeout in milliseconds.
func (w *stores) within(ctx context.Context, milliseconds string) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(numberOf(w.t, milliseconds))*time.Millisecond)
}

func (w *stores) listen(ctx context.Context, word string, words []string) error {
	name := words[0]
	if word == "listen" {
		from, err := w.position(words[2])
		if err != nil {
			return err
		}
		reader, err := w.topic(words[1]).Listener(ctx, from)
		if err == nil {
			w.readers[name] = &reading{reader: reader}
		}
		return err
	}
	reading := w.readers[name]
	for wanted := numberOf(w.t, words[1]); wanted > 0; {
		if len(reading.unused) == 0 {
			page, err := w.page(ctx, words[2], reading.reader.Next, reading.reader.TryNext)
			if err != nil {
				return err
			}
			if page == nil {
				w.printLine("timeout")
				return nil
			}
			for record := range page.Records() {
				reading.unused = append(reading.unused, record.Clone())
			}
			page.Release()
			continue
		}
		w.printLine("%s", recordText(reading.unused[0]))
		reading.unused = reading.unused[1:]
		wanted--
	}
	return nil
}

// page waits up to a number of milliseconds for a page; nil if none arrives.
func (w *stores) page(
	ctx context.Context,
	milliseconds string,
	wait func(context.Context) (*weir.Page, error),
	try func(context.Context) (*weir.Page, error),
) (*weir.Page, error) {
	if milliseconds == "0" {
		return try(ctx)
	}
	ctx, cancel := w.within(ctx, milliseconds)
	defer cancel()
	page, err := wait(ctx)
	if errors.Is(err, weir.ErrDeadline) {
		return nil, nil
	}
	return page, err
}

func (w *stores) group(ctx context.Context, word string, words []string) error {
	name := words[0]
	if word == "group" {
		return w.join(ctx, name, words[1:])
	}
	member, ok := w.groups[name]
	if !ok {
		w.t.Fatalf("no command or member: %s %s", word, name)
	}
	group := member.group
	claims := func(words []string) []weir.Claimed {
		var found []weir.Claimed
		for _, word := range words {
			offset := numberOf(w.t, word)
			claim, mine := member.claims[offset]
			if !mine {
				claim = weir.Claimed{Offset: offset}
			}
			found = append(found, claim)
		}
		return found
	}
	milliseconds := func(text string) time.Duration {
		return time.Duration(numberOf(w.t, text)) * time.Millisecond
	}
	var lost []uint64
	var err error
	switch word {
	case "claim":
		return w.claim(ctx, member, words)
	case "done":
		lost, err = group.DoneWith(ctx, claims(words[1:])...)
	case "done-soon":
		err = group.DoneSoon(ctx, claims(words[1:])...)
	case "fail":
		lost, err = group.Fail(ctx, milliseconds(words[1]), "a reason", claims(words[2:])...)
	case "extend":
		lost, err = group.Extend(ctx, milliseconds(words[1]), claims(words[2:])...)
	case "take-over":
		err = group.TakeOver(ctx)
	case "leave":
		err = group.Leave(ctx)
	case "reset":
		var to weir.From
		if to, err = w.position(words[1]); err == nil {
			err = group.Reset(ctx, to)
		}
	case "end":
		err = group.Delete(ctx)
	case "group-info":
		var info weir.GroupInfo
		info, err = group.Info(ctx)
		if err == nil {
			w.printLine("cursor %d lag %d leased %d waiting %d", info.Cursor, info.Lag, info.Leased, info.Waiting)
		}
	default:
		w.t.Fatalf("no command %s", word)
	}
	for _, offset := range lost {
		w.printLine("lost %d", offset)
	}
	return err
}

func (w *stores) join(ctx context.Context, name string, words []string) error {
	options := &weir.GroupOptions{Member: words[3]}
	for _, word := range words[4:] {
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "existing":
			options.Existing = true
		case "lease":
			options.Lease = time.Duration(numberOf(w.t, value)) * time.Millisecond
		case "attempts":
			options.Attempts = uint32(numberOf(w.t, value))
		case "dead":
			options.DeadLetters = value
		case "start":
			from, err := w.position(value)
			if err != nil {
				return err
			}
			options.Start = from
		default:
			w.t.Fatalf("no option %s", word)
		}
	}
	mode := weir.GroupMode(1 + slices.Index([]string{"exclusive", "keyed", "shared"}, words[2]))
	group, err := w.topic(words[0]).Group(ctx, words[1], mode, options)
	if err == nil {
		w.groups[name] = &member{group: group, claims: map[uint64]weir.Claimed{}}
	}
	return err
}

func (w *stores) claim(ctx context.Context, member *member, words []string) error {
	limit := int(numberOf(w.t, words[1]))
	page, err := w.page(ctx, words[2],
		func(ctx context.Context) (*weir.Page, error) { return member.group.Claim(ctx, limit) },
		func(ctx context.Context) (*weir.Page, error) { return member.group.TryClaim(ctx, limit) })
	if err != nil {
		return err
	}
	if page == nil {
		w.printLine("timeout")
		return nil
	}
	defer page.Release()
	for record := range page.Records() {
		member.claims[record.Offset()] = record.Claimed()
		w.printLine("%s attempt %d", recordText(record), record.Attempts())
	}
	return nil
}
