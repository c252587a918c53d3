package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is the number of an error, equal in all languages and interfaces of Weir.
// A Code is also an error, for [errors.Is]:
//
//	errors.Is(err, weir.ErrConflict)
type Code int32

// Error returns the name and the number, as in "CONFLICT (E104)".
func (c Code) Error() string { return fmt.Sprintf("%s (E%d)", c.Name(), int32(c)) }

// Name returns the name of the error in capitals, as in "CONFLICT".
func (c Code) Name() string { return c.row().name }

// Sentence returns the meaning of the error, without the values of a particular case.
func (c Code) Sentence() string { return c.row().sentence }

// Advice returns a recommended action.
func (c Code) Advice() string { return c.row().advice }

// Fault returns the cause of the error.
func (c Code) Fault() Fault { return c.row().fault }

// Retry returns whether a retry can succeed.
func (c Code) Retry() Retry { return c.row().retry }

// Fault is the cause of an error.
type Fault uint8

// The causes of errors.
const (
	FaultUs          Fault = iota // Weir itself
	FaultCaller                   // the caller requested something wrong or impossible
	FaultPeer                     // the other side of a connection broke the protocol
	FaultEnvironment              // disk, network, operating system or load
)

// Retry says whether a retry of the same request can succeed.
type Retry uint8

// Whether a retry of the same request can succeed.
const (
	RetryNo    Retry = iota // never: the result is the same
	RetryYes                // at once
	RetryAfter              // later, or after the advice was followed
)

// row is the table entry of an error.
type row struct {
	name, sentence, advice string
	fault                  Fault
	retry                  Retry
}

func (c Code) row() row {
	if found, ok := table[c]; ok {
		return found
	}
	return row{
		name:     "UNKNOWN",
		sentence: "The library is newer than this package and has an error that it does not know.",
		advice:   "Use the package of the library's version.",
	}
}

// NoOffset is the Offset of an [Error] without a position.
const NoOffset = ^uint64(0)

// Error is an error of Weir with its position. [errors.Is] compares the code;
// [errors.As] extracts the Error from an error that wraps it.
type Error struct {
	// Code is the number of the error.
	Code Code
	// Message is a sentence with the values involved and the position.
	Message string
	// Source is the number of the source in the query, or -1.
	Source int
	// Offset is the first offending byte in the page or in the query text,
	// or [NoOffset].
	Offset uint64
	// Detail is a number whose meaning depends on the code, or 0.
	Detail uint32
	// cause is the error that ended the call on this side, if any.
	cause error
}

// Error returns the name of the code and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Name() + ": " + e.Message
}

// Is reports whether target is the code of e.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Unwrap returns the error of the context that ended the call, if one did. It wraps
// both ctx.Err() and [context.Cause].
func (e *Error) Unwrap() error { return e.cause }

// failure creates an error that this package detected itself.
func failure(code Code, message string) error {
	return &Error{Code: code, Message: message, Source: -1, Offset: NoOffset}
}

// negative returns an error if a number or a time is negative.
func negative[T int | time.Duration](what string, value T) error {
	if value >= 0 {
		return nil
	}
	return failure(ErrBadOption, fmt.Sprintf("%s is %v; it must not be negative", what, value))
}

// ended returns the error of a call that its context ended.
func ended(ctx context.Context) error {
	code, err, cause := ErrCancelled, ctx.Err(), context.Cause(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		code = ErrDeadline
	}
	over := &Error{Code: code, Message: cause.Error(), Source: -1, Offset: NoOffset, cause: cause}
	if !errors.Is(cause, err) {
		over.cause = errors.Join(err, cause)
	}
	return over
}

// codeOf returns the code of an error of this package.
func codeOf(err error) Code {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Code
	}
	return 0
}
