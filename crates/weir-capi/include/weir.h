/*
 * weir.h: the C interface of Weir, an embeddable event store and query engine.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The bytes of every structure and the rules in full: docs/formats/abi.md. In short:
 *
 * RESULTS. A call returns a positive number for a kind of success (WEIR_OK, WEIR_READY, ...) or a
 * negative one for an error (WEIR_E_...), never 0: zeroed memory is not a success. What a call gives
 * out is written on success only; the caller's `weir_error`, which may be NULL, on failure only.
 *
 * OWNERSHIP. `weir_slice` arguments are borrowed for the call; NULL with length 0 is the empty slice.
 * A `weir_page` that was given out is the caller's: all pointers into it are good until
 * weir_page_release, which may be called on any thread, also when what it came from is gone. Handles
 * are given back with the function that says so, from any thread; giving back NULL does nothing. A
 * call that waits in a handle which is given back ends soon, as if cancelled.
 *
 * HANDLES are numbers passed as pointers; they are never followed. One that was given back,
 * never was, or is of another type is WEIR_E_BAD_HANDLE, not a crash.
 *
 * THREADS. A `weir`, a `weir_page` and a `weir_loans` may be used by any number of threads at once.
 * Any other handle is used by one thread at a time, whichever; a second one gets
 * WEIR_E_HANDLE_BUSY. The functions named ..._cancel come from any thread at any time.
 * Errors travel in the caller's structure: nothing here depends on which thread calls.
 *
 * PANICS. A mistake of ours never crosses this border: the call returns WEIR_E_PANIC, and the
 * handle answers WEIR_E_HANDLE_POISONED from then on; only giving it back works.
 *
 * STRUCTURES. Options and infos begin with `struct_size`, which the caller sets to sizeof. All zero
 * after it is the default. They grow at the end only; what an older library does not know must be
 * zero. Structures without `struct_size` never change.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#include "weir_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface: major << 16 | minor. Minor versions only add. */
#define WEIR_ABI_VERSION 0x00000006u

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(void *) == 8, "weir.h is for targets with 64-bit pointers");
#elif defined(__cplusplus) && __cplusplus >= 201103L
static_assert(sizeof(void *) == 8, "weir.h is for targets with 64-bit pointers");
#endif

/* Kinds of success. */
enum {
    WEIR_OK = 1,      /* done */
    WEIR_READY = 2,   /* a page with at least one item */
    WEIR_NEED = 3,    /* a page that lists what is needed */
    WEIR_DONE = 4,    /* nothing more will come */
    WEIR_TIMEOUT = 5, /* nothing came in time */
    WEIR_ABSENT = 6   /* it is not there */
};

#define WEIR_FOREVER UINT64_MAX   /* as a time in milliseconds: no end */
#define WEIR_NO_SOURCE UINT32_MAX /* as a source: none */
#define WEIR_NO_OFFSET UINT64_MAX /* as the offset in an error: none */

/* ------------------------------------------------------------------ bytes, errors, pages */

/* Bytes of somebody else. */
typedef struct weir_slice {
    const uint8_t *ptr;
    size_t len;
} weir_slice;

/* What went wrong. Optional everywhere; need not be initialised; written whole. Never changes. */
typedef struct weir_error {
    uint32_t reserved; /* 0 */
    int32_t code;      /* what the call returned */
    uint32_t source;   /* of a query, or WEIR_NO_SOURCE */
    uint32_t detail;   /* index of what was refused in the caller's array, or of the item; else 0 */
    uint64_t offset;   /* first wrong byte of a page or text; first offset left; next nonce */
    char message[240]; /* UTF-8, ended by a zero, cut at a character */
} weir_error;

typedef struct weir weir;                 /* a store: a directory, or a connection to a server */
typedef struct weir_session weir_session; /* a writer whose intentions are executed once */
typedef struct weir_pending weir_pending; /* verdicts that are on their way */
typedef struct weir_reader weir_reader;   /* reads one topic in order */
typedef struct weir_group weir_group;     /* a member of a group */
typedef struct weir_query weir_query;     /* a run of a query */
typedef struct weir_page weir_page;       /* something that was given out; immutable, counted */
typedef struct weir_buffer weir_buffer;   /* memory of ours to be filled and given to a query */
typedef struct weir_loans weir_loans;     /* where the numbers of returned loans arrive */

/* A span. In a page of records: the value. */
typedef struct weir_item {
    const uint8_t *ptr;
    uint64_t len;
    uint64_t offset; /* of ptr in buffer `buffer` of the page */
    uint32_t buffer; /* index; UINT32_MAX for an empty item that lies in none */
    uint32_t source; /* of a query, or WEIR_NO_SOURCE */
    uint32_t flags;  /* WEIR_ITEM_... */
    uint32_t index;  /* number of the item in the page it came in, from 0 */
} weir_item;

enum {
    WEIR_ITEM_CONSTRUCTED = 1,  /* made by the engine: a group, an aggregate */
    WEIR_ITEM_REQUIRED = 2,     /* of a need: nothing goes on without it; else worth fetching ahead */
    WEIR_ITEM_CONTINUATION = 4  /* of a need: the item is what names the page; else it has no name */
};

/* What belongs to item i of a page of records, at index i. */
typedef struct weir_record {
    uint64_t offset;    /* in its topic, from 1 */
    uint64_t intention; /* what caused it, in the order of the whole store */
    uint64_t time_ms;   /* since 1970-01-01 UTC */
    uint64_t nonce;     /* of the session; 0 without */
    uint8_t client[16]; /* of the session; zeros without */
    const uint8_t *key;
    uint64_t key_len;
    uint64_t key_offset; /* in buffer `buffer` */
    const uint8_t *meta;
    uint64_t meta_len;
    uint64_t meta_offset; /* in buffer `buffer` */
    uint64_t term;
    uint64_t claim;    /* of a group's record */
    uint32_t kind;     /* WEIR_RECORD_... */
    uint32_t flags;    /* 1: last of its intention, 2: of a transaction */
    uint32_t attempts; /* of a group's record: deliveries, this one included */
    uint32_t buffer;   /* in which key and meta lie */
} weir_record;

enum {
    WEIR_RECORD_CREATE = 1,
    WEIR_RECORD_DESTROY = 2,
    WEIR_RECORD_PUT = 3,
    WEIR_RECORD_DELETE = 4,
    WEIR_RECORD_ALTER = 5,
    WEIR_RECORD_REPLACE = 6
};

enum {
    WEIR_PAGE_RESULTS = 1, /* of a query */
    WEIR_PAGE_NEEDS = 2,   /* of a query: sources whose next page is wanted */
    WEIR_PAGE_RECORDS = 3, /* with weir_page_records */
    WEIR_PAGE_KEYS = 4,    /* the same, of a scan: one for each key */
    WEIR_PAGE_CLAIM = 5,   /* the same, of a group */
    WEIR_PAGE_TEXTS = 6    /* plain bytes: texts of verdicts, names, a token, an explanation, a packet */
};

/* All of a page with one call. The pointers are good until the page is released; NULL with 0. */
typedef struct weir_page_info {
    uint32_t struct_size;
    uint32_t kind; /* WEIR_PAGE_... */
    const weir_item *items;
    size_t item_count;
    const weir_record *records;
    size_t record_count; /* item_count, or 0 */
    const weir_slice *buffers;
    size_t buffer_count;
    uint64_t bytes;    /* of all items */
    uint64_t skipped;  /* of results: bad items left out so far, in the whole query */
    uint64_t hint;     /* of needs: suggested bytes of a page */
    uint64_t position; /* of records: where reading goes on: after this offset */
    uint64_t reserved;
} weir_page_info;

/* An error number for people: all texts static and without an ending zero. */
typedef struct weir_code_info {
    uint32_t struct_size;
    int32_t code;
    uint32_t fault; /* 1 caller, 2 peer, 3 environment, 4 us */
    uint32_t retry; /* 1 at once, 2 later or after the advice, 3 never */
    weir_slice name;
    weir_slice sentence;
    weir_slice advice;
} weir_code_info;

uint32_t weir_abi_version(void);
/* `name=value` pairs with `; ` between: version, profile, target, scanner. Static, ended by a zero. */
const char *weir_build_info(void);
int32_t weir_code_describe(int32_t code, weir_code_info *out);
/* Gives memory that is kept for pages to come back to the system; the last weir_query_free does, too. */
void weir_trim(void);
/* Handles and pages that were given out and not given back, in this process. For tests. */
uint64_t weir_handles_open(void);

int32_t weir_page_describe(const weir_page *page, weir_page_info *out, weir_error *error);
/* Parts of it. NULL and 0 when the page is none, or has none. */
const weir_item *weir_page_items(const weir_page *page, size_t *count);
const weir_record *weir_page_records(const weir_page *page, size_t *count);
const weir_slice *weir_page_buffers(const weir_page *page, size_t *count);
/* The value at a singular path in items first .. first + count, as it stands there; NULL where there
 * is none, or the item is not JSON on the way. The spans lie in the page. The path is read once a call:
 * ask for many items at once. */
int32_t weir_page_get(const weir_page *page, size_t first, size_t count, weir_slice path,
                      weir_slice *out, weir_error *error);
/* As weir_page_get for up to 64 paths, in one walk over each item (0.6). `out` has room for
 * count * path_count spans: the row of item `first + i` begins at out[i * path_count] and has the value of
 * each path, in the order of the paths. */
int32_t weir_page_values(const weir_page *page, size_t first, size_t count, const weir_slice *paths,
                         size_t path_count, weir_slice *out, weir_error *error);
/* One more weir_page_release is owed from then on. */
int32_t weir_page_retain(weir_page *page);
void weir_page_release(weir_page *page);

/* ------------------------------------------------------------------ a store */

typedef struct weir_open_options {
    uint32_t struct_size;
    uint32_t durability;         /* 0 the default (1), 1 group, 2 each, 3 interval, 4 memory */
    uint64_t interval_ms;        /* with `interval`, at least 1 */
    uint32_t flags;              /* WEIR_OPEN_... */
    uint32_t reserved;
    weir_slice program;          /* name of the program, for who finds the store locked */
    uint64_t snapshot_log_bytes; /* 0: 1 GiB */
    uint64_t log_segment_bytes;  /* 0: 64 MiB */
    uint64_t key_bytes_max;      /* 0: 1024 */
    uint64_t value_bytes_max;    /* 0: 1 MiB; at most 64 MiB */
} weir_open_options;

enum {
    WEIR_OPEN_EXISTING = 1,  /* a directory without a store is an error */
    WEIR_OPEN_OR_CONNECT = 2 /* a store that a server has open is used through its socket */
};

typedef struct weir_connect_options {
    uint32_t struct_size;
    uint32_t flags;         /* WEIR_CONNECT_... */
    weir_slice token;       /* proof of identity */
    weir_slice authority;   /* for weirs://: file with the authority, PEM; else the system's */
    weir_slice certificate; /* for weirs://: file with the own certificate, PEM */
    weir_slice key;         /* the file with its key */
    weir_slice agent;       /* name and version of the program, for people */
    uint64_t connect_ms;    /* 0: 5,000 */
    uint64_t patience_ms;   /* 0: 30,000 */
} weir_connect_options;

enum {
    WEIR_CONNECT_RECEIVED = 1 /* the server says when writes are queued: weir_pending_received */
};

typedef struct weir_info {
    uint32_t struct_size;
    uint32_t place;       /* 1: open in this process; 2: behind a server */
    uint32_t durability;  /* as in weir_open_options */
    uint32_t reserved;
    uint64_t interval_ms; /* with `interval` */
    uint8_t store_id[16];
} weir_info;

/* options may be NULL everywhere. */
int32_t weir_open(weir_slice directory, const weir_open_options *options, weir **out,
                  weir_error *error);
int32_t weir_connect(weir_slice address, const weir_connect_options *options, weir **out,
                     weir_error *error);
int32_t weir_describe(weir *store, weir_info *out, weir_error *error);
/* Makes everything answered so far durable, at any level. */
int32_t weir_sync(weir *store, weir_error *error);
/* A second handle on the same store, with a deadline. A call through it waits for a server at most so
 * long (WEIR_FOREVER: as without it), then it fails with WEIR_E_DEADLINE; a write that was handed over
 * fails with WEIR_E_INDETERMINATE, also at a directory. The same holds for calls without a time of their
 * own in what is opened through it. It costs little: make one for a single call if you like. */
int32_t weir_within(weir *store, uint64_t timeout_ms, weir **out, weir_error *error);
/* From any thread, of a handle of weir_within: the calls that wait through it and through what was opened
 * through it fail with WEIR_E_CANCELLED (a write that was handed over: WEIR_E_INDETERMINATE), and so do
 * all further ones. WEIR_E_UNSUPPORTED for a handle of weir_open or weir_connect. */
int32_t weir_cancel(weir *store);
/* Finishes what is queued and closes. The handle is gone afterwards, also when this fails; other
 * handles of the store stay, and answer WEIR_E_CLOSED. One of weir_within is given back, no more: the
 * store stays open, and so does what was opened through it. */
int32_t weir_close(weir *store, weir_error *error);

/* ------------------------------------------------------------------ writing */

/* A condition. All conditions of an intention hold, or it is INVALID with WEIR_E_CONFLICT. */
typedef struct weir_expect {
    uint32_t kind;    /* WEIR_EXPECT_... */
    uint32_t has_key; /* 0: the intention's own key */
    weir_slice key;
    uint64_t offset;
} weir_expect;

enum {
    WEIR_EXPECT_KEY_OFFSET = 1,      /* the key's value was written at `offset` */
    WEIR_EXPECT_KEY_ABSENT = 2,
    WEIR_EXPECT_KEY_PRESENT = 3,
    WEIR_EXPECT_TOPIC_OFFSET = 4,    /* the topic's last record has `offset` */
    WEIR_EXPECT_TOPIC_ABSENT_OR = 5, /* the same, or it does not live */
    WEIR_EXPECT_TOPIC_EMPTY = 6,     /* it lives, with no record after the one that made it */
    WEIR_EXPECT_INCARNATION = 7      /* it lives since the intention `offset` */
};

/* A step of a transaction. */
typedef struct weir_step {
    uint32_t operation; /* WEIR_PUT or WEIR_DELETE */
    uint32_t reserved;
    weir_slice key;
    weir_slice value;
    weir_slice meta;
} weir_step;

typedef struct weir_topic_options {
    uint32_t struct_size;
    uint32_t set;        /* WEIR_TOPIC_...: which of the numbers below hold */
    uint32_t compaction; /* 0 off, 1 latest */
    uint32_t state;      /* of a program: 0 default (2), 1 none, 2 keys and values, 3 its memory */
    uint64_t tombstone_ttl_ms;
    uint64_t compaction_lag_ms;
    uint64_t key_bytes_max;
    uint64_t value_bytes_max;
    uint64_t keys_max;
    uint64_t retention_age_ms;
    uint64_t retention_bytes;
    uint64_t retention_records;
    uint64_t fuel_max;
    uint64_t memory_bytes_max;
    uint64_t emits_max;
    uint64_t emit_bytes_max;
    uint64_t state_entries_max;
    uint64_t state_bytes_max;
    const weir_slice *hold_for_groups; /* names */
    size_t hold_for_groups_count;
} weir_topic_options;

enum {
    WEIR_TOPIC_TOMBSTONE_TTL_MS = 1,
    WEIR_TOPIC_COMPACTION_LAG_MS = 2,
    WEIR_TOPIC_KEY_BYTES_MAX = 4,
    WEIR_TOPIC_VALUE_BYTES_MAX = 8,
    WEIR_TOPIC_KEYS_MAX = 16,
    WEIR_TOPIC_RETENTION_AGE_MS = 32,
    WEIR_TOPIC_RETENTION_BYTES = 64,
    WEIR_TOPIC_RETENTION_RECORDS = 128,
    WEIR_TOPIC_FUEL_MAX = 256,
    WEIR_TOPIC_MEMORY_BYTES_MAX = 512,
    WEIR_TOPIC_EMITS_MAX = 1024,
    WEIR_TOPIC_EMIT_BYTES_MAX = 2048,
    WEIR_TOPIC_STATE_ENTRIES_MAX = 4096,
    WEIR_TOPIC_STATE_BYTES_MAX = 8192
};

/* One thing that is asked for. Arrays of it step by the struct_size of their first element, which all
 * have. */
typedef struct weir_intention {
    uint32_t struct_size;
    uint32_t operation; /* WEIR_PUT, ... */
    weir_slice topic;
    weir_slice key;                    /* of PUT (empty: no key) and DELETE */
    weir_slice value;                  /* of PUT */
    weir_slice meta;                   /* for its record, at most 4 KiB, not read by the store */
    const weir_expect *expects;        /* at most 64 */
    size_t expect_count;
    const weir_step *steps;            /* of TRANSACTION */
    size_t step_count;
    const weir_topic_options *options; /* of CREATE and ALTER; NULL: defaults */
    weir_slice code;                   /* of CREATE (with a program) and REPLACE: the module */
    weir_slice args;                   /* of the program */
    weir_slice replaced;               /* of REPLACE: SHA-256 of the code that must be there; empty: any */
} weir_intention;

enum {
    WEIR_PUT = 1,
    WEIR_DELETE = 2,
    WEIR_TRANSACTION = 3, /* all steps or none, in order */
    WEIR_CREATE = 4,
    WEIR_DESTROY = 5,
    WEIR_ALTER = 6,
    WEIR_REPLACE = 7
};

/* What became of an intention. One that is not VALID is a value, not an error of the call. */
typedef struct weir_verdict {
    int32_t effect;        /* WEIR_VALID, ... */
    int32_t reason;        /* 0, or WEIR_E_... */
    uint64_t intention;    /* place in the order of the whole store; 0 when REFUSED */
    uint64_t offset;       /* of its first record; 0 without */
    uint64_t nonce;        /* of the session; 0 without */
    uint64_t fuel;         /* that the topic's program used */
    uint64_t detail;       /* by detail_kind */
    uint32_t records;
    uint32_t flags;        /* 1: the answer to an earlier sending of the same nonce */
    uint32_t detail_kind;  /* WEIR_DETAIL_... */
    int32_t detail_reason; /* of WEIR_DETAIL_STEP */
} weir_verdict;

enum { WEIR_VALID = 1, WEIR_INVALID = 2, WEIR_ERROR = 3, WEIR_REFUSED = 4 };

enum {
    WEIR_DETAIL_ACTUAL = 1,   /* offset that a failed condition found */
    WEIR_DETAIL_LIMIT = 2,    /* the limit that was exceeded */
    WEIR_DETAIL_STEP = 3,     /* index of the step that failed; why: detail_reason */
    WEIR_DETAIL_REJECTED = 4, /* code that the program gave; its words are the text */
    WEIR_DETAIL_TRAP = 5,     /* number of the trap; its name is the text */
    WEIR_DETAIL_TEXT = 6,     /* the text says it */
    WEIR_DETAIL_NONCE = 7     /* of REFUSED: the next nonce that would be taken */
};

/* Carries out intentions and waits: `verdicts` has room for `count`. `texts`, if not NULL, gets a page
 * with one text for each, or NULL when none of them has any. An error means that none was logged, or
 * (WEIR_E_INDETERMINATE) that nobody knows. */
int32_t weir_submit(weir *store, const weir_intention *intentions, size_t count,
                    weir_verdict *verdicts, weir_page **texts, weir_error *error);
/* The same without waiting. */
int32_t weir_send(weir *store, const weir_intention *intentions, size_t count, weir_pending **out,
                  weir_error *error);
/* WEIR_OK, or WEIR_TIMEOUT and it can be asked again. `verdicts` has room for as many as were sent;
 * `room` says for how many. Verdicts are given once. */
int32_t weir_pending_wait(weir_pending *pending, uint64_t timeout_ms, weir_verdict *verdicts,
                          size_t room, weir_page **texts, weir_error *error);
/* WEIR_OK when all that was sent is queued for the log, which promises nothing, or has its verdicts;
 * WEIR_TIMEOUT. At a server it is known before the verdicts only with WEIR_CONNECT_RECEIVED. */
int32_t weir_pending_received(weir_pending *pending, uint64_t timeout_ms, weir_error *error);
/* What was sent is carried out all the same. */
void weir_pending_free(weir_pending *pending);

/* A writer with numbered intentions: sent again, they are not executed again. `client`: 16 bytes, not
 * all zero, of one writer at a time. */
int32_t weir_session_open(weir *store, weir_slice client, weir_session **out, weir_error *error);
int32_t weir_session_submit(weir_session *session, const weir_intention *intentions, size_t count,
                            weir_verdict *verdicts, weir_page **texts, weir_error *error);
int32_t weir_session_send(weir_session *session, const weir_intention *intentions, size_t count,
                          weir_pending **out, weir_error *error);
int32_t weir_session_next_nonce(weir_session *session, uint64_t *out, weir_error *error);
/* Goes back to a nonce whose answer was not seen. */
int32_t weir_session_resume(weir_session *session, uint64_t nonce, weir_error *error);
/* As weir_reader_cancel, for every call of the session; a weir_session_submit that has handed over fails
 * with WEIR_E_INDETERMINATE. */
int32_t weir_session_cancel(weir_session *session);
void weir_session_free(weir_session *session);

/* ------------------------------------------------------------------ topics and reading */

typedef struct weir_topic_info {
    uint32_t struct_size;
    uint32_t live;
    uint64_t id;
    uint64_t incarnation; /* intention that made it; 0 when it does not live */
    uint64_t first;       /* offset of the oldest record that is there; 0 for none */
    uint64_t last;        /* offset of the newest record */
    uint64_t keys;        /* with a value */
    uint64_t bytes;       /* of records, as stored */
} weir_topic_info;

/* Makes the topic live if it does not; options hold only then. `created`, if not NULL: whether it was
 * made now. */
int32_t weir_topic_ensure(weir *store, weir_slice topic, const weir_topic_options *options,
                          uint32_t *created, weir_error *error);
/* WEIR_OK, or WEIR_ABSENT when it never was made. */
int32_t weir_topic_describe(weir *store, weir_slice topic, weir_topic_info *out, weir_error *error);
/* Names in byte order, as items. `dead_too`: of topics that do not live any more, too. WEIR_ABSENT when
 * there is none. */
int32_t weir_topics(weir *store, uint32_t dead_too, weir_page **out, weir_error *error);

/* The record with the key's value: WEIR_OK and a page with it, or WEIR_ABSENT, which is no error and
 * leaves `*out` as it was. */
int32_t weir_get(weir *store, weir_slice topic, weir_slice key, weir_page **out, weir_error *error);
/* The record at an offset: the same. */
int32_t weir_at(weir *store, weir_slice topic, uint64_t offset, weir_page **out, weir_error *error);

enum {
    WEIR_SCAN_AFTER = 1, /* begin after the key `after` */
    WEIR_SCAN_VALUES = 2  /* with values; else records have key and offset alone */
};
/* Keys with a value in byte order, those that begin with `prefix`, at most `limit` (0: 1,000). WEIR_OK
 * and a page, or WEIR_DONE when there is none. Go on with `after` the page's last key. */
int32_t weir_scan(weir *store, weir_slice topic, weir_slice prefix, weir_slice after, uint64_t limit,
                  uint32_t flags, weir_page **out, weir_error *error);

typedef struct weir_read_options {
    uint32_t struct_size;
    uint32_t from;  /* WEIR_FROM_... */
    uint64_t value; /* of AFTER an offset, of LAST a number, of TIME milliseconds since 1970 */
    uint32_t flags; /* WEIR_READ_... */
    uint32_t reserved;
} weir_read_options;

enum {
    WEIR_FROM_START = 0,
    WEIR_FROM_END = 1,
    WEIR_FROM_AFTER = 2,
    WEIR_FROM_LAST = 3, /* this many offsets before the end */
    WEIR_FROM_TIME = 4
};
enum { WEIR_READ_AWAIT = 1 }; /* the topic need not be there yet */

/* Reads a position from a text, for `from` and `value` of weir_read_options, weir_group_options and
 * weir_group_step: `start`, `end`, an offset
 * (the first record that is read), `-N` (the last N records), a time ago with its unit (`10m`, `2d`),
 * `today`, `yesterday`, a date in UTC (`2026-11-01`) or a time of RFC 3339. WEIR_E_BAD_OPTION for any
 * other text. Neither pointer may be NULL. */
int32_t weir_position(weir_slice text, uint32_t *from, uint64_t *value, weir_error *error);

int32_t weir_reader_open(weir *store, weir_slice topic, const weir_read_options *options,
                         weir_reader **out, weir_error *error);
/* The next records as they lie together: WEIR_READY and a page, or WEIR_TIMEOUT when none came in this
 * time (0: do not wait). */
int32_t weir_reader_next(weir_reader *reader, uint64_t timeout_ms, weir_page **out,
                         weir_error *error);
/* From any thread: the call that waits, or else the next one, returns WEIR_E_CANCELLED. That takes the
 * mark away; marks do not add up. */
int32_t weir_reader_cancel(weir_reader *reader);
void weir_reader_free(weir_reader *reader);

/* ------------------------------------------------------------------ groups */

typedef struct weir_group_options {
    uint32_t struct_size;
    uint32_t mode;           /* 1 exclusive, 2 keyed, 3 shared */
    uint32_t flags;          /* WEIR_GROUP_EXISTING: it is not made; WEIR_E_GROUP_UNKNOWN */
    uint32_t from;           /* WEIR_FROM_...: where the group starts, if it is made now */
    weir_slice member;       /* 1 to 64 bytes; empty: made of process and time */
    uint64_t claim_lease_ms; /* of what this member claims; 0: the group's */
    /* of the group, if it is made now */
    uint64_t value;          /* as in weir_read_options */
    uint64_t lease_ms;       /* 0: 30,000 */
    uint32_t attempts_max;   /* 0: any number */
    uint32_t pending_max;    /* 0: 100,000 */
    weir_slice dead_letters; /* topic; not empty exactly with attempts_max */
} weir_group_options;

typedef struct weir_group_info {
    uint32_t struct_size;
    uint32_t mode;
    uint64_t cursor;   /* everything up to here is done */
    uint64_t frontier; /* every entry from here on is new */
    uint64_t last;     /* newest record of the topic */
    uint64_t lag;      /* offsets that are not done */
    uint64_t leased;   /* records that members have */
    uint64_t waiting;  /* seen, and to be claimed again */
    uint64_t redeliveries;
    uint64_t deaths;   /* records that were given up */
    uint64_t letters;  /* dead letters that are not written yet */
} weir_group_info;

enum { WEIR_GROUP_EXISTING = 1 };

/* A record that a member has: both numbers are in its weir_record. */
typedef struct weir_claim {
    uint64_t offset;
    uint64_t claim;
} weir_claim;

enum {
    WEIR_SETTLE_DONE = 1,      /* for good when the call returns */
    WEIR_SETTLE_DONE_SOON = 2, /* of an exclusive group: written with what follows */
    WEIR_SETTLE_FAIL = 3,      /* given back; may be claimed again after time_ms */
    WEIR_SETTLE_EXTEND = 4     /* still at it: the lease ends in time_ms from now */
};
enum {
    WEIR_GROUP_TAKE_OVER = 1, /* of an exclusive group: from its owner */
    WEIR_GROUP_LEAVE = 2,     /* of an exclusive group: another need not wait */
    WEIR_GROUP_RESET = 3,     /* everything before the position counts as done, nothing after it */
    WEIR_GROUP_DELETE = 4     /* ends the group for all; GROUP_ABSENT when there is none */
};

/* The group of this name, made if it is not there. */
int32_t weir_group_open(weir *store, weir_slice topic, weir_slice group,
                        const weir_group_options *options, weir_group **out, weir_error *error);
/* Up to `limit` records for this member: WEIR_READY and a page, or WEIR_TIMEOUT. */
int32_t weir_group_claim(weir_group *group, uint64_t limit, uint64_t timeout_ms, weir_page **out,
                         weir_error *error);
/* Says what became of records that this member has. `lost`, with room for `count`, gets the offsets of
 * those that are with somebody else by now, and `lost_count` their number; both or none are NULL.
 * `reason`: of FAIL, for people. */
int32_t weir_group_settle(weir_group *group, const weir_claim *claims, size_t count, uint32_t verb,
                          uint64_t time_ms, weir_slice reason, uint64_t *lost, size_t *lost_count,
                          weir_error *error);
/* `from` and `value`, as in weir_read_options, are the position of WEIR_GROUP_RESET; other verbs ignore
 * them. */
int32_t weir_group_step(weir_group *group, uint32_t verb, uint32_t from, uint64_t value,
                        weir_error *error);
int32_t weir_group_describe(weir_group *group, weir_group_info *out, weir_error *error);
/* As weir_reader_cancel, for weir_group_claim, and at a server for every call of the member; one that
 * writes and had begun fails with WEIR_E_INDETERMINATE. */
int32_t weir_group_cancel(weir_group *group);
/* What was claimed stays with the member until its leases end. */
void weir_group_free(weir_group *group);

/* ------------------------------------------------------------------ queries over pages of JSON */

/* A name and a JSON scalar. */
typedef struct weir_param {
    weir_slice name;
    weir_slice value;
} weir_param;

/* The fields of docs/guide/query.md. Budgets: 0 is the default. */
typedef struct weir_query_options {
    uint32_t struct_size;
    uint32_t flags;       /* WEIR_QUERY_... */
    weir_slice where;
    weir_slice order;
    weir_slice select;
    weir_slice group;
    uint64_t offset;
    uint64_t limit;       /* with WEIR_QUERY_LIMIT */
    uint64_t top;         /* with WEIR_QUERY_TOP; with both, the smaller counts */
    const weir_param *params;
    size_t param_count;
    weir_slice token;     /* to go on where an earlier run stopped; empty: from the beginning */
    uint32_t mode;        /* 0 by the order, 1 sequential, 2 arrival, 3 round robin, 4 merge, 5 sort */
    uint32_t level;       /* WEIR_LEVEL_... */
    uint32_t on_bad_item; /* 0 error, 1 skip, 2 undefined */
    uint32_t pages_ahead; /* with WEIR_QUERY_PAGES_AHEAD; else 1 */
    uint64_t buffer_bytes_max;
    uint64_t sort_bytes_max; /* of a sort: pages, and what is known of each of their items */
    uint64_t groups_max;
    uint64_t distinct_max;
    uint64_t page_bytes_max;
    uint64_t item_bytes_max;
    uint64_t page_bytes_hint;
    uint32_t sources_max;
    uint32_t depth_max;
} weir_query_options;

enum {
    WEIR_QUERY_LIMIT = 1,
    WEIR_QUERY_TOP = 2,
    WEIR_QUERY_DISTINCT = 4,
    WEIR_QUERY_UTF16 = 8,         /* strings by UTF-16 code units */
    WEIR_QUERY_RANK_COMPLEX = 16, /* arrays and objects as order keys: all equal */
    WEIR_QUERY_DROP_MISSING = 32, /* items without an order key are left out */
    WEIR_QUERY_PAGES_AHEAD = 64   /* pages_ahead holds, 0 too */
};
enum { WEIR_LEVEL_DEFAULT = 0, WEIR_LEVEL_NONE = 1, WEIR_LEVEL_STRUCTURAL = 2, WEIR_LEVEL_STRICT = 3 };

typedef struct weir_source_options {
    uint32_t struct_size;
    uint32_t flags;          /* WEIR_SOURCE_... */
    weir_slice name;         /* for messages and tokens; empty: its number */
    uint32_t shape;          /* WEIR_SHAPE_... */
    uint32_t level;          /* WEIR_LEVEL_...; default: the query's */
    weir_slice member;       /* of WEIR_SHAPE_MEMBER: path of the array */
    uint64_t ordinal;        /* with WEIR_SOURCE_ORDINAL; else after those that exist */
    weir_slice first;        /* with WEIR_SOURCE_FIRST: what names the first page */
    weir_slice tie;          /* path that orders items of equal keys; empty: none */
    const weir_param *meta;  /* properties that all its items share */
    size_t meta_count;
    const weir_slice *bound; /* with WEIR_SOURCE_BOUND: lower bound of its keys, JSON scalars */
    size_t bound_count;
} weir_source_options;

enum {
    WEIR_SOURCE_ORDINAL = 1,
    WEIR_SOURCE_FIRST = 2,
    WEIR_SOURCE_SORTED = 4,
    WEIR_SOURCE_TRUST_ORDER = 8, /* for measurements */
    WEIR_SOURCE_UNSTABLE = 16,   /* the same continuation may give other items */
    WEIR_SOURCE_PARTIAL = 32,    /* items are partial aggregates */
    WEIR_SOURCE_BOUND = 64
};
enum {
    WEIR_SHAPE_ARRAY = 0,
    WEIR_SHAPE_MEMBER = 1,
    WEIR_SHAPE_LINES = 2,
    WEIR_SHAPE_SINGLE = 3,
    WEIR_SHAPE_FRAMED = 4,
    WEIR_SHAPE_VALUES = 5 /* one JSON value after the other (0.5) */
};

typedef struct weir_topics_options {
    uint32_t struct_size;
    uint32_t view;          /* 0: all records; 1: of each key the latest */
    const weir_slice *from; /* names of topics, or patterns: `a.*` one more part, `a.**` any number */
    size_t from_count;
    uint32_t end;           /* WEIR_END_... */
    uint32_t kinds;         /* 1 << WEIR_RECORD_... of what is an item; 0: of PUT */
    uint64_t as_of;         /* an intention, of WEIR_END_AS_OF */
    uint32_t flags;         /* WEIR_TOPICS_... */
    uint32_t reserved;
    uint64_t patience_ms;   /* longest wait for records that are there; 0: 30,000 */
} weir_topics_options;

enum {
    WEIR_END_NOW = 0,   /* one cut over all topics, made when it is opened */
    WEIR_END_AS_OF = 1,
    WEIR_END_FOLLOW = 2 /* never: what comes, comes */
};
enum {
    WEIR_TOPICS_RESET_EARLIEST = 1, /* a token whose records are gone goes on at the first that is left */
    WEIR_TOPICS_NO_PUSH_DOWN = 2    /* a server sends all records; for measurements */
};

/* Gives memory back. Comes on any thread; calls nothing here, does not block, does not throw. */
typedef void (*weir_release)(void *user, const uint8_t *ptr, size_t len);

/* How a loan is returned: by `release`, or by `cookie` at `loans`; one of the two. */
typedef struct weir_loan {
    weir_release release;
    void *user;
    weir_loans *loans;
    uint64_t cookie;
} weir_loan;

/* Where the items of a page of the shape FRAMED lie. `metas` has, item by item, one entry for each
 * property that the query asks for, in the order of `weir_query_metas`. */
typedef struct weir_frame {
    uint32_t offset;
    uint32_t len;
} weir_frame;
typedef struct weir_meta {
    uint32_t kind;   /* 0 nothing, 1 number, 2 bytes of the page */
    uint32_t len;    /* of bytes */
    uint64_t number; /* or offset of bytes */
} weir_meta;
typedef struct weir_frames {
    const weir_frame *spans;
    size_t span_count;
    const weir_meta *metas;
    size_t meta_count;
} weir_frames;

/* Reads where the items of a page are: `array`, `lines`, `values`, `single`, `framed` or `member:PATH`. Writes
 * `shape` and `member` of weir_source_options; `member` lies in `text`. WEIR_E_BAD_OPTION for any other
 * text. Neither pointer may be NULL. */
int32_t weir_shape(weir_slice text, uint32_t *shape, weir_slice *member, weir_error *error);
int32_t weir_query_open(const weir_query_options *options, weir_query **out, weir_error *error);
/* A query over topics, here or at a server. It fetches its pages itself: weir_query_wait, _next, _fd, _token,
 * _explain, _source_name, _cancel and _free are for it, the others are WEIR_E_UNSUPPORTED. */
int32_t weir_query_open_topics(weir *store, const weir_topics_options *topics,
                               const weir_query_options *options, weir_query **out,
                               weir_error *error);
/* Results of a query over topics: WEIR_READY and a page, WEIR_DONE, or WEIR_TIMEOUT when none came in
 * this time. weir_query_next is the same with the time 0. */
int32_t weir_query_wait(weir_query *query, uint64_t timeout_ms, uint32_t max_items,
                        uint64_t max_bytes, weir_page **out, weir_error *error);
/* On Unix, for an event loop: a descriptor that can be read while it is worth calling weir_query_next. It
 * cannot be read after WEIR_TIMEOUT, until something came. Only to be waited for (poll, select, epoll), never
 * read or closed: it is the query's, and gone with weir_query_free. The same for each call. */
int32_t weir_query_fd(weir_query *query, int32_t *out, weir_error *error);
int32_t weir_query_source(weir_query *query, const weir_source_options *options, uint32_t *source,
                          weir_error *error);
/* A page with one item: the name of a source, or of its topic. WEIR_OK, or WEIR_ABSENT. */
int32_t weir_query_source_name(weir_query *query, uint32_t source, weir_page **out,
                               weir_error *error);
/* A page of a source, in the order of the source. has_next 0: it was the last, and `next` is empty; 1:
 * `next`, of any length, names the one after it. `frames` NULL but for the shape FRAMED. On failure
 * nothing was taken.
 * Copied: */
int32_t weir_query_enqueue_copy(weir_query *query, uint32_t source, weir_slice page,
                                const weir_frames *frames, weir_slice next, uint32_t has_next,
                                weir_error *error);
/* Lent: not copied, not to be changed until it is returned, which happens exactly once, also when the
 * query fails or is freed; then when the last page with results in it is released. May be before this
 * returns. Not after a failure. */
int32_t weir_query_enqueue_loan(weir_query *query, uint32_t source, weir_slice page,
                                const weir_frames *frames, weir_slice next, uint32_t has_next,
                                const weir_loan *loan, weir_error *error);
/* Given: the first `len` bytes of a buffer of ours. The buffer is gone on success. */
int32_t weir_query_enqueue_buffer(weir_query *query, uint32_t source, weir_buffer *buffer, size_t len,
                                  const weir_frames *frames, weir_slice next, uint32_t has_next,
                                  weir_error *error);
/* The source had its last page. */
int32_t weir_query_finish(weir_query *query, uint32_t source, weir_error *error);
/* Of a query that goes on from a token: the source of this name is gone for good, and what it had left
 * does not come. Without this, and without the source, weir_query_next fails with SOURCES_OWED, which
 * is not final. */
int32_t weir_query_abandon(weir_query *query, weir_slice name, weir_error *error);
/* Puts parts in the place of a source, which may be none. `sources` gets their numbers. `parts` steps as
 * an array of weir_intention does. */
int32_t weir_query_replace(weir_query *query, uint32_t source, const weir_source_options *parts,
                           size_t count, uint32_t *sources, weir_error *error);
/* Nothing below these keys, JSON scalars, comes from the source any more. */
int32_t weir_query_watermark(weir_query *query, uint32_t source, const weir_slice *keys, size_t count,
                             weir_error *error);
/* WEIR_READY: a page of results. WEIR_NEED: a page of needs, the required ones first: each is a source
 * and, flagged WEIR_ITEM_CONTINUATION, what names the page. WEIR_DONE: no page. 0 stands for 256 items
 * and 1 MiB. */
int32_t weir_query_next(weir_query *query, uint32_t max_items, uint64_t max_bytes, weir_page **out,
                        weir_error *error);
/* What is needed now: WEIR_NEED and a page, or WEIR_DONE. */
int32_t weir_query_needs(weir_query *query, weir_page **out, weir_error *error);
/* A page with one item: what to give as `token` to continue after the last result. */
int32_t weir_query_token(weir_query *query, weir_page **out, weir_error *error);
/* A page with one item: what the query will do, for people. */
int32_t weir_query_explain(weir_query *query, weir_page **out, weir_error *error);
/* A page with one item for each property that the query asks for: WEIR_OK, or WEIR_ABSENT. */
int32_t weir_query_metas(weir_query *query, weir_page **out, weir_error *error);
/* From any thread: the next call that is not `free` fails with WEIR_E_CANCELLED, and so does each
 * further weir_query_next. A query that is done, or failed, stays so. */
int32_t weir_query_cancel(weir_query *query);
void weir_query_free(weir_query *query);

int32_t weir_buffer_new(size_t size, weir_buffer **out, weir_error *error);
/* Where it lies, with any content at first; NULL when it is none. */
uint8_t *weir_buffer_data(weir_buffer *buffer, size_t *size);
void weir_buffer_free(weir_buffer *buffer);

int32_t weir_loans_new(weir_loans **out, weir_error *error);
/* Cookies of loans that came back, oldest first; each once. `left`, if not NULL: loans that are still
 * out, and cookies that are still here. */
int32_t weir_loans_collect(weir_loans *loans, uint64_t *cookies, size_t room, size_t *count,
                           uint64_t *left, weir_error *error);
/* Cookies that come later go nowhere. */
void weir_loans_free(weir_loans *loans);

#ifdef __cplusplus
}
#endif

#endif
