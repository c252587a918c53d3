package weir

import (
	"context"
	"errors"
	"fmt"
)

// Code is the number of an error: the same in every language and on every door
// of Weir. A Code is an error itself, for [errors.Is]:
//
//	errors.Is(err, weir.ErrConflict)
type Code int32

// Error is the name and the number, as in "CONFLICT (E104)".
func (c Code) Error() string { return fmt.Sprintf("%s (E%d)", c.Name(), int32(c)) }

// Name is the name of the error in capitals, as in "CONFLICT".
func (c Code) Name() string { return c.row().name }

// Sentence says what the error means, without the values of one case.
func (c Code) Sentence() string { return c.row().sentence }

// Advice says what to try.
func (c Code) Advice() string { return c.row().advice }

// Fault says whose doing the error is.
func (c Code) Fault() Fault { return c.row().fault }

// Retry says whether doing the same again can help.
func (c Code) Retry() Retry { return c.row().retry }

// Fault says whose doing an error is.
type Fault uint8

// Whose doing an error is.
const (
	FaultUs          Fault = iota // Weir itself
	FaultCaller                   // who called asked for something wrong or impossible
	FaultPeer                     // the other side of a connection broke the protocol
	FaultEnvironment              // disk, network, operating system or load
)

// Retry says whether sending the same again can help.
type Retry uint8

// Whether sending the same again can help.
const (
	RetryNo    Retry = iota // never: the same again gets the same answer
	RetryYes                // at once
	RetryAfter              // later, or once the advice was followed
)

// row is what the table says of an error.
type row struct {
	name, sentence, advice string
	fault                  Fault
	retry                  Retry
}

func (c Code) row() row {
	if found, there := table[c]; there {
		return found
	}
	return row{
		name:     "UNKNOWN",
		sentence: "The library is newer than this package and has an error that it does not know.",
		advice:   "Use the package of the library's version.",
	}
}

// NoOffset is the Offset of an [Error] that has no place in bytes.
const NoOffset = ^uint64(0)

// Error is an error of Weir with its place. [errors.Is] compares its code;
// [errors.As] gets it out of what wraps it.
type Error struct {
	// Code is the number.
	Code Code
	// Message is a sentence with the values involved and the place.
	Message string
	// Source is the number of the query's source, or -1.
	Source int
	// Offset is the first offending byte in the page or in the query text,
	// or [NoOffset].
	Offset uint64
	// Detail is a number that belongs to the code, else 0.
	Detail uint32
	// cause is what made this side give up, if it was this side.
	cause error
}

// Error is the name of the code and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Name() + ": " + e.Message
}

// Is says whether target is the code of e.
func (e *Error) Is(target error) bool {
	code, is := target.(Code)
	return is && code == e.Code
}

// Unwrap is the error of the context that ended the call, if one did.
func (e *Error) Unwrap() error { return e.cause }

// failure makes an error that this package found itself.
func failure(code Code, message string) error {
	return &Error{Code: code, Message: message, Source: -1, Offset: NoOffset}
}

// ended is the error of a call that its context ended.
func ended(ctx context.Context) error {
	code := ErrCancelled
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = ErrDeadline
	}
	return &Error{Code: code, Message: cause.Error(), Source: -1, Offset: NoOffset, cause: cause}
}

// codeOf is the code of an error of this package.
func codeOf(err error) Code {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Code
	}
	return 0
}
