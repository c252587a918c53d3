/* The interface for a program of a topic of Weir: its input, its records, its
 * state.
 *
 * A program exports weir_abi and weir_apply, with the macros WEIR_PROGRAM and
 * WEIR_APPLY. weir_apply checks one write and returns 0 (VALID) or, with
 * WEIR_REJECT, a code from 1 to 65,535. If a call is rejected or traps, none of its
 * records and changes of the state remain.
 *
 * The header needs no C library, only <stddef.h> and <stdint.h>, which belong to
 * the compiler. All bytes belong to the program. The store writes only into the
 * buffer of the current call and keeps no pointer. A pointer or length outside of
 * the memory of the program is a trap. Lengths are in bytes.
 *
 * The interface is `weir1`; the README of weir-program specifies its bytes.
 */
#ifndef WEIR_GUEST_H
#define WEIR_GUEST_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_IMPORT(name) __attribute__((import_module("weir1"), import_name(name)))
#define WEIR_EXPORT(name) __attribute__((export_name(name)))

/* Entry points. A program must contain WEIR_PROGRAM once. WEIR_INIT runs when the topic is created,
 * WEIR_UPGRADE when the program replaces another one; both are optional. The body of a function
 * must follow each, except WEIR_PROGRAM. */
#define WEIR_PROGRAM \
  WEIR_EXPORT("weir_abi") int32_t weir_program_abi(void) { return 1; }
#define WEIR_APPLY WEIR_EXPORT("weir_apply") int32_t weir_program_apply(void)
#define WEIR_INIT WEIR_EXPORT("weir_init") int32_t weir_program_init(void)
#define WEIR_UPGRADE WEIR_EXPORT("weir_upgrade") int32_t weir_program_upgrade(void)

/* Version of the layout of the state, a number; default 0. A program with another version can
 * replace this one only if it has WEIR_UPGRADE. */
#define WEIR_STATE(version) \
  WEIR_EXPORT("weir_state") int32_t weir_program_state(void) { return (version); }

/* The operation (weir_input.op). */
enum { WEIR_OP_INIT = 0, WEIR_OP_PUT = 1, WEIR_OP_DELETE = 2, WEIR_OP_UPGRADE = 3 };

/* Bits of weir_input.flags: the write is a step of a transaction; the store knows the
 * principal. */
enum { WEIR_IN_TRANSACTION = 1, WEIR_HAS_PRINCIPAL = 2 };

/* The header with facts about the write, which the store fills in. */
typedef struct weir_input {
  uint32_t op;
  uint32_t flags;
  uint64_t intention_offset; /* position in the order of the whole store */
  uint64_t next_offset;      /* offset of the next emitted record */
  uint64_t term;             /* of the leader that ordered the write; 1 without a cluster */
  uint64_t time_ms;          /* milliseconds since 1970; equal on every node */
  uint64_t nonce;            /* the client's number of the write; 0 without a session */
  uint8_t client_id[16];     /* the client id */
  uint32_t key_len;
  uint32_t value_len;
  uint32_t args_len;
  uint32_t principal_len;
  uint32_t step;  /* index of the step in its transaction, from 0 */
  uint32_t steps; /* number of steps; 1 outside of a transaction */
  uint8_t reserved[40];
} weir_input;

_Static_assert(sizeof(weir_input) == 128, "the store writes 128 bytes");
_Static_assert(offsetof(weir_input, flags) == 4, "flags");
_Static_assert(offsetof(weir_input, intention_offset) == 8, "intention offset");
_Static_assert(offsetof(weir_input, next_offset) == 16, "next offset");
_Static_assert(offsetof(weir_input, term) == 24, "term");
_Static_assert(offsetof(weir_input, time_ms) == 32, "time");
_Static_assert(offsetof(weir_input, nonce) == 40, "nonce");
_Static_assert(offsetof(weir_input, client_id) == 48, "client id");
_Static_assert(offsetof(weir_input, key_len) == 64, "key");
_Static_assert(offsetof(weir_input, value_len) == 68, "value");
_Static_assert(offsetof(weir_input, args_len) == 72, "arguments");
_Static_assert(offsetof(weir_input, principal_len) == 76, "principal");
_Static_assert(offsetof(weir_input, step) == 80, "step");
_Static_assert(offsetof(weir_input, steps) == 84, "steps");
_Static_assert(offsetof(weir_input, reserved) == 88, "reserved");

/* Fills in the header. */
WEIR_IMPORT("input_info") void weir_input_info(weir_input *info);

/* Parts of the input (`what` of weir_input_read). The replaced code exists only in WEIR_UPGRADE:
 * the SHA-256 of the code that is replaced. */
enum {
  WEIR_KEY = 0,
  WEIR_VALUE = 1,
  WEIR_ARGS = 2,
  WEIR_PRINCIPAL = 3,
  WEIR_REPLACED_CODE = 4
};

/* Copies bytes from byte `from` on, as many as fit; returns their number. */
WEIR_IMPORT("input_read")
uint32_t weir_input_read(uint32_t what, size_t from, void *into, size_t cap);

/* Emits a PUT record. */
WEIR_IMPORT("emit_put")
void weir_emit_put(const void *key, size_t key_len, const void *value, size_t value_len);

/* Emits a DELETE record. */
WEIR_IMPORT("emit_delete") void weir_emit_delete(const void *key, size_t key_len);

/* Emits the write itself as a record, without a copy of its bytes. */
WEIR_IMPORT("emit_input") void weir_emit_input(void);

/* Emits a PUT record with a part of the written value, without a copy of its bytes. */
WEIR_IMPORT("emit_value")
void weir_emit_value(const void *key, size_t key_len, size_t from, size_t len);

/* Sets a text for the rejected caller, in UTF-8. A text of more than 256 bytes is a trap. */
WEIR_IMPORT("reject_text") void weir_reject_text(const char *text, size_t len);

/* State of mode `kv`, a map of bytes. Copies the value of a key from byte `from`
 * on, as much as fits. Returns the length of the whole value, or -1 if there is
 * none. */
WEIR_IMPORT("state_get")
int32_t weir_state_get(const void *key, size_t key_len, size_t from, void *into, size_t cap);

/* Sets the value of a key of the state. */
WEIR_IMPORT("state_put")
void weir_state_put(const void *key, size_t key_len, const void *value, size_t value_len);

/* Removes a key of the state. */
WEIR_IMPORT("state_delete") void weir_state_delete(const void *key, size_t key_len);

/* Copies the smallest key of the state after the given one, as much as fits.
 * Returns its whole length, or -1 if there is none. An empty key is before all
 * others. */
WEIR_IMPORT("state_next")
int32_t weir_state_next(const void *key, size_t key_len, void *into, size_t cap);

/* The topic's own keys as its readers see them, including the records of this call; as
 * weir_state_get. */
WEIR_IMPORT("key_get")
int32_t weir_key_get(const void *key, size_t key_len, size_t from, void *into, size_t cap);

/* Offset of the record with the value of the key; 0 if it has none. */
WEIR_IMPORT("key_offset") int64_t weir_key_offset(const void *key, size_t key_len);

/* Algorithms of weir_hash, which writes 32 bytes. */
enum { WEIR_SHA256 = 1, WEIR_BLAKE3 = 2 };
WEIR_IMPORT("hash")
void weir_hash(uint32_t algorithm, const void *bytes, size_t len, uint8_t out[32]);

/* Finds values by their paths, one on each line. `flags` 1: checks the whole input. Writes 12 bytes
 * for each path to `out`, little-endian: kind (0 none, 1 null, 2 false, 3 true, 4 number, 5 string,
 * 6 array, 7 object), first byte, length. Returns the number of found values, -1 if the input is
 * not JSON (`out` begins with the index of the wrong byte), -2 if a path is invalid. */
WEIR_IMPORT("json_find") int32_t weir_json_find(uint32_t what, uint32_t flags, const void *paths,
                                                size_t len, void *out);

/* Writes a line to the log of the operator; the line is not part of the outcome. */
enum { WEIR_ERROR = 1, WEIR_WARN = 2, WEIR_INFO = 3, WEIR_DEBUG = 4, WEIR_TRACE = 5 };
WEIR_IMPORT("log") void weir_log(uint32_t level, const char *text, size_t len);

/* Ends the call as a trap: for states that cannot occur. WEIR_PANIC("why") first writes its
 * literal to the log of the operator, which `weir program trace` and `weir program logs`
 * show. */
#define WEIR_TRAP() __builtin_trap()
#define WEIR_PANIC(text) weir_panicked("" text, sizeof(text) - 1)
static inline _Noreturn void weir_panicked(const char *text, size_t len) {
  weir_log(WEIR_ERROR, text, len);
  WEIR_TRAP();
}

/* Unless the condition holds, ends the call as WEIR_PANIC does, with file, line and condition.
 * <assert.h> is not needed. NDEBUG has no effect: optimising compilers define it, and the checks of
 * a program must not depend on it. */
#undef assert
#define WEIR_LINE_TEXT(line) #line
#define WEIR_LINE(line) WEIR_LINE_TEXT(line)
#define assert(condition) \
  ((condition) ? (void)0  \
               : WEIR_PANIC("assertion failed at " __FILE__ ":" WEIR_LINE(__LINE__) ": " #condition))

/* Rejects a call: `return WEIR_REJECT(1, "at most 100 bytes");` with a literal and a code from 1 to
 * 65,535. Any other code is a trap: 0 would mean VALID. */
#define WEIR_REJECT(code, text) (weir_reject_text("" text, sizeof(text) - 1), weir_rejected(code))
static inline int32_t weir_rejected(int32_t code) {
  if (code < 1 || code > 65535) WEIR_TRAP();
  return code;
}

/* Whether two pieces of memory have the same bytes. */
static inline int weir_equal(const void *left, const void *right, size_t len) {
  const uint8_t *a = (const uint8_t *)left, *b = (const uint8_t *)right;
  for (size_t i = 0; i < len; i++) {
    if (a[i] != b[i]) return 0;
  }
  return 1;
}

/* Read and write big-endian numbers. */
static inline uint64_t weir_get_be(const uint8_t *bytes, size_t len) {
  uint64_t number = 0;
  for (size_t i = 0; i < len; i++) number = number << 8 | bytes[i];
  return number;
}
static inline void weir_put_be(uint8_t *bytes, size_t len, uint64_t number) {
  while (len > 0) {
    bytes[--len] = (uint8_t)number;
    number >>= 8;
  }
}
static inline uint16_t weir_get_u16(const uint8_t *bytes) { return (uint16_t)weir_get_be(bytes, 2); }
static inline uint32_t weir_get_u32(const uint8_t *bytes) { return (uint32_t)weir_get_be(bytes, 4); }
static inline uint64_t weir_get_u64(const uint8_t *bytes) { return weir_get_be(bytes, 8); }
static inline int64_t weir_get_i64(const uint8_t *bytes) { return (int64_t)weir_get_be(bytes, 8); }
static inline void weir_put_u16(uint8_t *bytes, uint16_t number) { weir_put_be(bytes, 2, number); }
static inline void weir_put_u32(uint8_t *bytes, uint32_t number) { weir_put_be(bytes, 4, number); }
static inline void weir_put_u64(uint8_t *bytes, uint64_t number) { weir_put_be(bytes, 8, number); }
static inline void weir_put_i64(uint8_t *bytes, int64_t number) {
  weir_put_be(bytes, 8, (uint64_t)number);
}

#endif
