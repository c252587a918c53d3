package weir

import "fmt"

// Effect is the outcome of an intention.
type Effect int32

// The outcomes of an intention.
const (
	Valid   Effect = 1 + iota // it was executed
	Invalid                   // it was understood and rejected
	Errored                   // it could not be executed
	Refused                   // it was not attempted: its number in the session is not the next one
)

// String returns the name of the effect.
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

// Verdict is the final result of an intention. A rejection is a value, not an
// error; [Verdict.Err] converts it to an error.
type Verdict struct {
	// Effect is the outcome of the intention.
	Effect Effect
	// Reason is why the intention is not VALID; 0 if it is VALID.
	Reason Code
	// Intention is the position of the intention in the order of the whole store.
	Intention uint64
	// Offset is the offset of the first record; 0 if there is none. Records is the
	// number of records.
	Offset  uint64
	Records uint32
	// Nonce is the number of the intention in its session; 0 without a session.
	// Replayed: an earlier request with this number was already executed.
	Nonce    uint64
	Replayed bool
	// Fuel is the fuel that the program of the topic used.
	Fuel uint64
	// Detail has more about the reason.
	Detail Detail
}

// Valid reports whether the intention was executed.
func (v Verdict) Valid() bool { return v.Effect == Valid }

// String returns a summary for people, such as "VALID at 2" or "INVALID CONFLICT".
func (v Verdict) String() string {
	switch {
	case !v.Valid():
		return v.Effect.String() + " " + v.Reason.Name()
	case v.Offset == 0:
		return "VALID"
	}
	return fmt.Sprintf("VALID at %d", v.Offset)
}

// Err returns nil if the verdict is VALID, and otherwise an [*Error] with its reason.
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

// DetailKind is the kind of a [Detail].
type DetailKind uint32

// The kinds of details.
const (
	DetailNone     DetailKind = iota // nothing
	DetailActual                     // Number: the offset that a failed condition found
	DetailLimit                      // Number: the limit that was exceeded
	DetailStep                       // Number: the step that failed; Reason: the cause
	DetailRejected                   // Number: the code that the program returned; Text: its message
	DetailTrap                       // Number: the number of the trap; Text: its name
	DetailText                       // Text: the description
	DetailNonce                      // Number: the next nonce that would be accepted
)

// Detail has more about the reason of a verdict.
type Detail struct {
	Kind   DetailKind
	Number uint64
	Reason Code
	Text   string
}

// Expect is a condition of an intention. If one condition fails, the verdict is
// INVALID with [ErrConflict] and the offset that was found.
type Expect struct {
	kind   uint32
	hasKey bool
	key    []byte
	offset uint64
}

// Of returns the condition for another key than that of the intention.
func (e Expect) Of(key []byte) Expect {
	e.hasKey, e.key = true, key
	return e
}

// The kinds of conditions.
const (
	expectKeyOffset = 1 + iota
	expectKeyAbsent
	expectKeyPresent
	expectTopicOffset
	expectTopicAbsentOr
	expectTopicEmpty
	expectIncarnation
)

// KeyAt requires that the value of the key was written at the offset.
func KeyAt(offset uint64) Expect { return Expect{kind: expectKeyOffset, offset: offset} }

// KeyAbsent requires that the key has no value.
func KeyAbsent() Expect { return Expect{kind: expectKeyAbsent} }

// KeyPresent requires that the key has a value.
func KeyPresent() Expect { return Expect{kind: expectKeyPresent} }

// TopicAt requires that the last record of the topic has the offset.
func TopicAt(offset uint64) Expect { return Expect{kind: expectTopicOffset, offset: offset} }

// TopicAbsentOrAt requires that the topic does not exist, or that its last record
// has the offset.
func TopicAbsentOrAt(offset uint64) Expect {
	return Expect{kind: expectTopicAbsentOr, offset: offset}
}

// TopicEmpty requires that the topic exists and has no record after the one that
// created it.
func TopicEmpty() Expect { return Expect{kind: expectTopicEmpty} }

// Incarnation requires that the given intention created the topic.
func Incarnation(intention uint64) Expect {
	return Expect{kind: expectIncarnation, offset: intention}
}

// Operation is the kind of an [Intention].
type Operation uint32

// The kinds of intentions.
const (
	OpPut Operation = 1 + iota
	OpDelete
	OpTransaction
	OpCreate
	OpDestroy
	OpAlter
	OpReplace
)

// Intention is one requested change. The caller owns its bytes, which are read
// during the call only.
type Intention struct {
	Operation Operation
	// Topic is the name of the topic; in calls of a [Topic], empty means this topic.
	Topic string
	// Key is the key of a PUT (empty: none) or DELETE, Value the value of a PUT.
	// Meta is stored with the record and not interpreted by the store.
	Key, Value, Meta []byte
	// Expect are the conditions.
	Expect []Expect
	// Steps are the steps of a transaction.
	Steps []Change
	// Options are the options of CREATE and ALTER.
	Options *TopicOptions
	// Code is the module of the program of a CREATE or REPLACE, and Args are its
	// arguments. Replaced is the SHA-256 of the code that the topic must have.
	Code, Args, Replaced []byte
}

// Put sets the value of a key; without a key, it appends.
func Put(key, value []byte, expect ...Expect) Intention {
	return Intention{Operation: OpPut, Key: key, Value: value, Expect: expect}
}

// Delete deletes a key.
func Delete(key []byte, expect ...Expect) Intention {
	return Intention{Operation: OpDelete, Key: key, Expect: expect}
}

// Change is a step of a transaction: a value for a key, or its deletion.
type Change struct {
	Key, Value, Meta []byte
	Delete           bool
}

// TopicOptions are the options of a topic; nil means that there is no limit.
type TopicOptions struct {
	// Latest lets a compaction remove records whose key has a newer value.
	Latest bool
	// TombstoneTTLMS is how long a compaction retains DELETE records.
	// CompactionLagMS is the minimum age of a record that a compaction may remove.
	// Both are in milliseconds.
	TombstoneTTLMS, CompactionLagMS *uint64
	// KeyBytes, ValueBytes and Keys are limits for what the topic accepts.
	KeyBytes, ValueBytes, Keys *uint64
	// RetentionAgeMS, RetentionBytes and RetentionRecords limit what is retained.
	RetentionAgeMS, RetentionBytes, RetentionRecords *uint64
	// HoldForGroups names groups; records that they have not acknowledged are retained.
	HoldForGroups []string
	// MemoryState retains the memory of the topic's program between calls.
	MemoryState bool
	// Fuel, MemoryBytes, Emits, EmitBytes, StateEntries and StateBytes are limits for
	// the program of the topic.
	Fuel, MemoryBytes, Emits, EmitBytes, StateEntries, StateBytes *uint64
}
