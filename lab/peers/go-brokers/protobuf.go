package main

import (
	"encoding/binary"
	"fmt"
)

// The few parts of Protocol Buffers that the clients of UmaDB and S2 need. The clients write and read
// the messages by hand, so that they take little CPU.

const (
	wireVarint    = 0
	wireDelimited = 2
)

// appendBytes appends field `number` with a length and `content`.
func appendBytes(buffer []byte, number uint64, content []byte) []byte {
	buffer = binary.AppendUvarint(buffer, number<<3|wireDelimited)
	buffer = binary.AppendUvarint(buffer, uint64(len(content)))
	return append(buffer, content...)
}

// appendLength appends the length of a field.
func appendLength(buffer []byte, length int) []byte {
	return binary.AppendUvarint(buffer, uint64(length))
}

// bytesSize is the size of a field with a length and `length` bytes. The field number is below 16.
func bytesSize(length int) int {
	size := 2
	for rest := length; rest >= 0x80; rest >>= 7 {
		size++
	}
	return size + length
}

// fields calls `each` with every field of a message: with the number and, by type, an integer or
// bytes. Other types are an error.
func fields(message []byte, each func(number, integer uint64, content []byte) error) error {
	for len(message) > 0 {
		tag, used := binary.Uvarint(message)
		if used <= 0 {
			return fmt.Errorf("malformed message")
		}
		message = message[used:]
		integer, used := binary.Uvarint(message)
		if used <= 0 {
			return fmt.Errorf("malformed message")
		}
		message = message[used:]
		var content []byte
		switch tag & 7 {
		case wireVarint:
		case wireDelimited:
			if integer > uint64(len(message)) {
				return fmt.Errorf("malformed message")
			}
			content, message = message[:integer], message[integer:]
		default:
			return fmt.Errorf("field %d has an unexpected type", tag>>3)
		}
		if err := each(tag>>3, integer, content); err != nil {
			return err
		}
	}
	return nil
}
