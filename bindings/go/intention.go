package weir

// Effect is what became of an intention.
type Effect int32

// What becomes of an intention.
const (
	Valid   Effect = 1 + iota // it was carried out
	Invalid                   // it was understood, and said no to
	Errored                   // it could not be carried out
	Refused                   // it was not tried: its number in the session is not the next one
)

// String is the name of the effect.
func (e Effect) String() string {
	switch e {
	case Valid:
		return "VALID"
	case Invalid:
		return "INVALID"
	case Errored:
		return "ERROR"
	case Refused:
		return "REFUSED"
	}
	return "UNKNOWN"
}

// Verdict is the final answer to an intention. A "no" is a value, not an error;
// [Verdict.Err] makes one of it.
type Verdict struct {
	// Effect is what became of the intention.
	Effect Effect
	// Reason is why it is not VALID; 0 when it is.
	Reason Code
	// Intention is its place in the order of the whole store.
	Intention uint64
	// Offset is that of its first record; 0 without one. Records is their
	// number.
	Offset  uint64
	Records uint32
	// Nonce is its number in its session; 0 without one. Replayed says that it
	// was carried out when it was sent before.
	Nonce    uint64
	Replayed bool
	// Fuel is what the topic's program used.
	Fuel uint64
	// Detail is more about the reason.
	Detail Detail
}

// Valid says whether the intention was carried out.
func (v Verdict) Valid() bool { return v.Effect == Valid }

// Err is nil for a verdict that is VALID, else an [*Error] with its reason.
func (v Verdict) Err() error {
	if v.Valid() {
		return nil
	}
	message := v.Reason.Sentence()
	if v.Detail.Text != "" {
		message += " " + v.Detail.Text
	}
	return &Error{Code: v.Reason, Message: message, Source: -1, Offset: NoOffset}
}

// DetailKind says what a [Detail] is about.
type DetailKind uint32

// What a detail is about.
const (
	DetailNone     DetailKind = iota // nothing
	DetailActual                     // Number: the offset that a failed condition found
	DetailLimit                      // Number: the limit that was exceeded
	DetailStep                       // Number: the step that failed; Reason: why
	DetailRejected                   // Number: the code that the program gave; Text: its words
	DetailTrap                       // Number: that of the trap; Text: its name
	DetailText                       // Text says it
	DetailNonce                      // Number: the next nonce that would be taken
)

// Detail is more about the reason of a verdict.
type Detail struct {
	Kind   DetailKind
	Number uint64
	Reason Code
	Text   string
}

// Expect is a condition of an intention: all of them hold, or it is INVALID with
// [ErrConflict] and the offset that was found.
type Expect struct {
	kind   uint32
	hasKey bool
	key    []byte
	offset uint64
}

// Of makes it a condition on another key than the intention's own.
func (e Expect) Of(key []byte) Expect {
	e.hasKey, e.key = true, key
	return e
}

// Kinds of conditions.
const (
	expectKeyOffset = 1 + iota
	expectKeyAbsent
	expectKeyPresent
	expectTopicOffset
	expectTopicAbsentOr
	expectTopicEmpty
	expectIncarnation
)

// KeyAt says that the value of the key was written at an offset.
func KeyAt(offset uint64) Expect { return Expect{kind: expectKeyOffset, offset: offset} }

// KeyAbsent says that the key has no value.
func KeyAbsent() Expect { return Expect{kind: expectKeyAbsent} }

// KeyPresent says that the key has a value.
func KeyPresent() Expect { return Expect{kind: expectKeyPresent} }

// TopicAt says that the last record of the topic has an offset.
func TopicAt(offset uint64) Expect { return Expect{kind: expectTopicOffset, offset: offset} }

// TopicAbsentOrAt says the same, or that the topic is not there.
func TopicAbsentOrAt(offset uint64) Expect {
	return Expect{kind: expectTopicAbsentOr, offset: offset}
}

// TopicEmpty says that the topic is there and has no record after the one that
// made it.
func TopicEmpty() Expect { return Expect{kind: expectTopicEmpty} }

// Incarnation says that the topic is there since an intention.
func Incarnation(intention uint64) Expect {
	return Expect{kind: expectIncarnation, offset: intention}
}

// Operation is what an [Intention] does.
type Operation uint32

// What an intention does.
const (
	OpPut Operation = 1 + iota
	OpDelete
	OpTransaction
	OpCreate
	OpDestroy
	OpAlter
	OpReplace
)

// Intention is one thing that is asked for. Its bytes belong to the caller and
// are read during the call only.
type Intention struct {
	Operation Operation
	// Topic is its name; in calls of a [Topic] empty for that one.
	Topic string
	// Key is that of a PUT (empty: none) or DELETE, Value that of a PUT, Meta
	// what goes with the record and is not read by the store.
	Key, Value, Meta []byte
	// Expect are conditions.
	Expect []Expect
	// Steps are those of a transaction.
	Steps []Change
	// Options are those of CREATE and ALTER.
	Options *TopicOptions
	// Code is the module of the program of a CREATE or REPLACE, Args are its
	// arguments, Replaced is the SHA-256 of the code that must be there.
	Code, Args, Replaced []byte
}

// Put sets a key, or appends without one.
func Put(key, value []byte, expect ...Expect) Intention {
	return Intention{Operation: OpPut, Key: key, Value: value, Expect: expect}
}

// Delete removes a key.
func Delete(key []byte, expect ...Expect) Intention {
	return Intention{Operation: OpDelete, Key: key, Expect: expect}
}

// Change is a step of a transaction: a value for a key, or its removal.
type Change struct {
	Key, Value, Meta []byte
	Delete           bool
}

// TopicOptions are the options of a topic; nil means: no limit of its own.
type TopicOptions struct {
	// Latest lets a compaction remove records whose key was written again.
	Latest bool
	// TombstoneTTLMS is how long a compaction keeps DELETE records, and
	// CompactionLagMS for how long a record is too young, in milliseconds.
	TombstoneTTLMS, CompactionLagMS *uint64
	// KeyBytes, ValueBytes and Keys are limits of what the topic takes.
	KeyBytes, ValueBytes, Keys *uint64
	// RetentionAgeMS, RetentionBytes and RetentionRecords are what stays.
	RetentionAgeMS, RetentionBytes, RetentionRecords *uint64
	// HoldForGroups keeps what these groups have not passed.
	HoldForGroups []string
	// MemoryState keeps the memory of the topic's program between calls.
	MemoryState bool
	// Fuel, MemoryBytes, Emits, EmitBytes, StateEntries and StateBytes are
	// limits of the topic's program.
	Fuel, MemoryBytes, Emits, EmitBytes, StateEntries, StateBytes *uint64
}
