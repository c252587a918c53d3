/*
 * weir.h: the C interface of Weir, an embeddable event store and query engine.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * docs/formats/abi.md has the layout of every structure and the complete rules. In short:
 *
 * RESULTS. A call returns a positive number for a kind of success (WEIR_OK, WEIR_READY, ...) or a
 * negative one for an error (WEIR_E_...). It never returns 0, so zeroed memory is not a success. Output
 * arguments are written only on success. The caller's `weir_error`, which may be NULL, is written only
 * on failure.
 *
 * OWNERSHIP. `weir_slice` arguments are borrowed during the call; NULL with length 0 is the empty slice.
 * The caller owns each returned `weir_page`. All pointers into a page are valid until weir_page_release,
 * even if the object that returned the page was released before. Any thread may release a page or
 * another handle, with the function for its type. Releasing NULL is a no-op. If a call waits in a handle
 * that another thread releases, the call ends as if cancelled.
 *
 * HANDLES are numbers passed as pointers; the library never dereferences them. A call with a handle that
 * was released, was never created, or has another type returns WEIR_E_BAD_HANDLE.
 *
 * THREADS. Any number of threads may use a `weir`, a `weir_page` or a `weir_loans` at the same time.
 * Only one thread at a time may use any other handle; a second one gets WEIR_E_HANDLE_BUSY. Any thread
 * may call the functions named ..._cancel at any time. No state depends on the calling thread: errors
 * are in the structure of the caller.
 *
 * SIGNALS. A broken connection raises no SIGPIPE. The first program that runs in this process installs
 * handlers for SIGSEGV, SIGILL and SIGFPE, which pass faults of other code to the earlier handlers. A handler
 * that is installed later must do so too. After fork, only the parent may use handles.
 *
 * PANICS. A panic in the library never reaches the caller. The call returns WEIR_E_PANIC, and later
 * calls with the handle return WEIR_E_HANDLE_POISONED; the handle can only be released.
 *
 * STRUCTURES. Options and infos begin with `struct_size`, which the caller sets to sizeof. If all other
 * bytes are zero, every field has its default. These structures grow only at the end. A field that the
 * caller does not know has its default; fields that an older library does not know must be zero.
 * Structures without `struct_size` never change.
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
#define WEIR_ABI_VERSION 0x00000007u

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(void *) == 8, "weir.h is for targets with 64-bit pointers");
#elif defined(__cplusplus) && __cplusplus >= 201103L
static_assert(sizeof(void *) == 8, "weir.h is for targets with 64-bit pointers");
#endif

/* Kinds of success. */
enum {
    WEIR_OK = 1,      /* success */
    WEIR_READY = 2,   /* a page with at least one item */
    WEIR_NEED = 3,    /* a page that lists what is needed */
    WEIR_DONE = 4,    /* the end: no more results */
    WEIR_TIMEOUT = 5, /* nothing arrived before the timeout */
    WEIR_ABSENT = 6   /* the requested object does not exist */
};

#define WEIR_FOREVER UINT64_MAX   /* as a time in milliseconds: no limit */
#define WEIR_NO_SOURCE UINT32_MAX /* as a source: none */
#define WEIR_NO_OFFSET UINT64_MAX /* as the offset in an error: none */

/* ------------------------------------------------------------------ bytes, errors, pages */

/* Borrowed bytes. */
typedef struct weir_slice {
    const uint8_t *ptr;
    size_t len;
} weir_slice;

/* The error of a call. Optional in every call; need not be initialised; a failure writes all of its
 * fields. This structure never changes. */
typedef struct weir_error {
    uint32_t reserved; /* 0 */
    int32_t code;      /* the return value of the call */
    uint32_t source;   /* number of a source of a query, or WEIR_NO_SOURCE */
    uint32_t detail;   /* index in the caller's array of the rejected element, or index of the item; else 0 */
    uint64_t offset;   /* first wrong byte of a page or text; first remaining offset; next nonce */
    char message[240]; /* UTF-8, zero-terminated, truncated at a character */
} weir_error;

typedef struct weir weir;                 /* a store: a directory, or a connection to a server */
typedef struct weir_session weir_session; /* a writer whose intentions are executed once */
typedef struct weir_pending weir_pending; /* verdicts that are pending */
typedef struct weir_reader weir_reader;   /* reads one topic in order */
typedef struct weir_group weir_group;     /* a member of a group */
typedef struct weir_query weir_query;     /* a run of a query */
typedef struct weir_page weir_page;       /* a result; immutable, reference-counted */
typedef struct weir_buffer weir_buffer;   /* memory of the library that the caller fills and passes to a query */
typedef struct weir_loans weir_loans;     /* a list that receives the cookies of returned loans */

/* A span. In a page of records: the value. */
typedef struct weir_item {
    const uint8_t *ptr;
    uint64_t len;
    uint64_t offset; /* of `ptr` in buffer `buffer` of the page */
    uint32_t buffer; /* index of a buffer; UINT32_MAX for an empty item outside of all buffers */
    uint32_t source; /* number of a source of a query, or WEIR_NO_SOURCE */
    uint32_t flags;  /* WEIR_ITEM_... */
    uint32_t index;  /* number of the item in its input page, from 0 */
} weir_item;

enum {
    WEIR_ITEM_CONSTRUCTED = 1,  /* computed by the engine: a group, an aggregate */
    WEIR_ITEM_REQUIRED = 2,     /* of a need: the query cannot continue without it; else a prefetch */
    WEIR_ITEM_CONTINUATION = 4  /* of a need: the item is the name of the page; else the page has no name */
};

/* Element i describes item i of a page of records. */
typedef struct weir_record {
    uint64_t offset;    /* position in its topic, from 1 */
    uint64_t intention; /* position of its intention in the order of the whole store */
    uint64_t time_ms;   /* milliseconds since 1970-01-01 UTC */
    uint64_t nonce;     /* of the session; 0 without */
    uint8_t client[16]; /* of the session; zeros without */
    const uint8_t *key;
    uint64_t key_len;
    uint64_t key_offset; /* in buffer `buffer` */
    const uint8_t *meta;
    uint64_t meta_len;
    uint64_t meta_offset; /* in buffer `buffer` */
    uint64_t term;
    uint64_t claim;    /* of a record from a group: id of the claim */
    uint32_t kind;     /* WEIR_RECORD_... */
    uint32_t flags;    /* 1: last record of its intention; 2: part of a transaction */
    uint32_t attempts; /* of a record from a group: deliveries, including this one */
    uint32_t buffer;   /* index of the buffer with key and meta */
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
    WEIR_PAGE_NEEDS = 2,   /* of a query: sources whose next page it needs */
    WEIR_PAGE_RECORDS = 3, /* with weir_page_records */
    WEIR_PAGE_KEYS = 4,    /* of a scan: one record for each key; with weir_page_records */
    WEIR_PAGE_CLAIM = 5,   /* of a group; with weir_page_records */
    WEIR_PAGE_TEXTS = 6    /* plain bytes: texts of verdicts, names, a token, an explanation, a packet */
};

/* The whole content of a page. The pointers are valid until the page is released; NULL if the count is 0. */
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
    uint64_t skipped;  /* of results: bad items skipped so far, in the whole query */
    uint64_t hint;     /* of needs: suggested size of a page, in bytes */
    uint64_t position; /* of records: the next read continues after this offset */
    uint64_t reserved;
} weir_page_info;

/* The description of an error. All texts are static and not zero-terminated. */
typedef struct weir_code_info {
    uint32_t struct_size;
    int32_t code;
    uint32_t fault; /* who caused it: 1 caller, 2 peer, 3 environment, 4 Weir */
    uint32_t retry; /* when to retry: 1 immediately, 2 later or after following the advice, 3 never */
    weir_slice name;
    weir_slice sentence;
    weir_slice advice;
} weir_code_info;

uint32_t weir_abi_version(void);
/* `name=value` pairs separated by `; `: version, profile, target, scanner. Static, zero-terminated. */
const char *weir_build_info(void);
/* Describes an error: WEIR_OK, or WEIR_ABSENT if the library does not know the number. */
int32_t weir_code_describe(int32_t code, weir_code_info *out);
/* Frees the memory that the library retains for incoming pages. The last weir_query_free does so too. */
void weir_trim(void);
/* The number of handles and pages of this process that were not released. For tests. */
uint64_t weir_handles_open(void);

/* Describes a page. */
int32_t weir_page_describe(const weir_page *page, weir_page_info *out, weir_error *error);
/* Parts of a page. NULL and 0 if the handle is not a page, or if the page has no such part. `count` must not
 * be NULL. */
const weir_item *weir_page_items(const weir_page *page, size_t *count);
const weir_record *weir_page_records(const weir_page *page, size_t *count);
const weir_slice *weir_page_buffers(const weir_page *page, size_t *count);
/* A range of bytes in a text or a page. */
typedef struct weir_frame {
    uint32_t offset;
    uint32_t len;
} weir_frame;
/* The value at a singular path in items first .. first + count, as the bytes of the item. NULL where there
 * is no value, or where the item is not JSON before the value. The spans point into the page. The path is
 * parsed once per call, so request many items at once. */
int32_t weir_page_get(const weir_page *page, size_t first, size_t count, weir_slice path,
                      weir_slice *out, weir_error *error);
/* As weir_page_get for up to 64 paths, in one pass over each item (0.6). `out` must have room for count *
 * path_count spans. The row of item `first + i` begins at out[i * path_count] and has the value of each
 * path, in the order of the paths. WEIR_E_TOO_COMPLEX for more paths. */
int32_t weir_page_values(const weir_page *page, size_t first, size_t count, const weir_slice *paths,
                         size_t path_count, weir_slice *out, weir_error *error);
/* As weir_page_values for one JSON text of the caller, of less than 4 GiB (0.6). Writes the range of the value
 * at each path; `len` is 0 where there is no value. The library keeps no pointer. */
int32_t weir_find(weir_slice json, const weir_slice *paths, size_t path_count, weir_frame *out,
                  weir_error *error);
/* Adds a reference to the page, which needs one more weir_page_release. */
int32_t weir_page_retain(weir_page *page);
void weir_page_release(weir_page *page);

/* ------------------------------------------------------------------ a store */

typedef struct weir_open_options {
    uint32_t struct_size;
    uint32_t durability;         /* WEIR_DURABILITY_...; 0: WEIR_DURABILITY_GROUP */
    uint64_t interval_ms;        /* of `interval`, at least 1 */
    uint32_t flags;              /* WEIR_OPEN_... */
    uint32_t reserved;
    weir_slice program;          /* name of the program, for the message to others that find the store locked */
    uint64_t snapshot_log_bytes; /* 0: 1 GiB */
    uint64_t log_segment_bytes;  /* 0: 64 MiB */
    uint64_t key_bytes_max;      /* 0: 1024 */
    uint64_t value_bytes_max;    /* 0: 1 MiB; at most 64 MiB */
} weir_open_options;

enum {
    WEIR_OPEN_EXISTING = 1,  /* do not create a store: fail if the directory has none */
    WEIR_OPEN_OR_CONNECT = 2 /* if a server has the store open, connect to its socket */
};
/* When a write is acknowledged. */
enum {
    WEIR_DURABILITY_GROUP = 1,    /* after a sync that all waiting writes share */
    WEIR_DURABILITY_EACH = 2,     /* after a sync of this call alone */
    WEIR_DURABILITY_INTERVAL = 3, /* before the sync, which follows within `interval_ms` */
    WEIR_DURABILITY_MEMORY = 4    /* before the sync, which follows when the store is closed */
};

typedef struct weir_connect_options {
    uint32_t struct_size;
    uint32_t flags;         /* WEIR_CONNECT_... */
    weir_slice token;       /* token that proves the identity of the client */
    weir_slice authority;   /* for weirs://: file with the certificate authority, PEM; empty: the system's */
    weir_slice certificate; /* for weirs://: file with the client certificate, PEM */
    weir_slice key;         /* file with the key of the certificate, PEM */
    weir_slice agent;       /* name and version of the client program, for people */
    uint64_t connect_ms;    /* 0: 5,000 */
    uint64_t patience_ms;   /* 0: 30,000 */
} weir_connect_options;

enum {
    WEIR_CONNECT_RECEIVED = 1 /* the server reports when writes are queued: weir_pending_received */
};

typedef struct weir_info {
    uint32_t struct_size;
    uint32_t place;       /* WEIR_PLACE_... */
    uint32_t durability;  /* WEIR_DURABILITY_... */
    uint32_t reserved;
    uint64_t interval_ms; /* of `interval` */
    uint8_t store_id[16];
} weir_info;

enum { WEIR_PLACE_PROCESS = 1, WEIR_PLACE_SERVER = 2 }; /* where the store is open */

/* `options` may be NULL in every call except weir_group_open: the defaults. `out` must not be NULL. */

/* Opens the store in a directory, and creates it if there is none. `directory` is a path of the system,
 * without a zero byte. WEIR_E_LOCKED if another process, or this one, has the store open. */
int32_t weir_open(weir_slice directory, const weir_open_options *options, weir **out,
                  weir_error *error);
/* Connects to a server. `address` is `weir://HOST[:PORT]`, `weirs://HOST[:PORT]` (TLS) or `unix:PATH`; for a
 * cluster, `weir://HOST[:PORT],HOST[:PORT],...`. The default port is 7071. WEIR_E_UNREACHABLE if no server
 * responds within `connect_ms`. */
int32_t weir_connect(weir_slice address, const weir_connect_options *options, weir **out,
                     weir_error *error);
/* Describes a store. */
int32_t weir_describe(weir *store, weir_info *out, weir_error *error);
/* Makes all acknowledged writes durable, at any durability level. */
int32_t weir_sync(weir *store, weir_error *error);
/* A second handle to a store, with a timeout for its calls. A call that waits longer for a server fails
 * with WEIR_E_DEADLINE. A write that was already sent fails with WEIR_E_INDETERMINATE, also at a
 * directory. The timeout also applies to sessions, readers, groups and queries that are opened through the
 * handle, in calls without a `timeout_ms`. WEIR_FOREVER: the limits of the first handle. A handle is cheap
 * enough for a single call. */
int32_t weir_within(weir *store, uint64_t timeout_ms, weir **out, weir_error *error);
enum {
    WEIR_CONSISTENCY_LOCAL = 1,  /* the writes that the node has applied */
    WEIR_CONSISTENCY_LEADER = 2, /* the writes that the leader has applied, while its lease is valid */
    WEIR_CONSISTENCY_LINEAR = 3  /* all writes that were acknowledged anywhere before the read began */
};
/* A second handle to a store, as of weir_within without a timeout, with a consistency of its reads at a
 * cluster (0.7). It also applies to readers, groups and queries that are opened through the handle. The
 * default is LINEAR for keys, else LOCAL. For a directory or a single server, all values are equivalent.
 * WEIR_E_BAD_OPTION for any other number. */
int32_t weir_with_consistency(weir *store, uint32_t consistency, weir **out, weir_error *error);
/* Cancels a handle of weir_within or weir_with_consistency, from any thread. All waiting and later calls
 * through the handle, and through handles that were opened through it, fail with WEIR_E_CANCELLED. A write
 * that was already sent fails with WEIR_E_INDETERMINATE. WEIR_E_UNSUPPORTED for a handle of weir_open or
 * weir_connect. */
int32_t weir_cancel(weir *store);
/* Executes the queued writes and closes the store. Releases the handle, even if the call fails. Other
 * handles of the store remain valid, and their calls fail with WEIR_E_CLOSED. A call that waits at a server for
 * verdicts of a session (weir_session_submit, weir_pending_wait) waits at most `patience_ms` longer, and then
 * fails with WEIR_E_INDETERMINATE. For a handle of weir_within or weir_with_consistency, only releases the
 * handle: the store and the handles that were opened through it stay open. */
int32_t weir_close(weir *store, weir_error *error);

/* ------------------------------------------------------------------ writing */

/* A condition. If a condition of an intention does not hold, the intention is INVALID with
 * WEIR_E_CONFLICT. */
typedef struct weir_expect {
    uint32_t kind;    /* WEIR_EXPECT_... */
    uint32_t has_key; /* 0: the key of the intention */
    weir_slice key;
    uint64_t offset;
} weir_expect;

enum {
    WEIR_EXPECT_KEY_OFFSET = 1,      /* the value of the key was written at `offset` */
    WEIR_EXPECT_KEY_ABSENT = 2,
    WEIR_EXPECT_KEY_PRESENT = 3,
    WEIR_EXPECT_TOPIC_OFFSET = 4,    /* the last record of the topic has `offset` */
    WEIR_EXPECT_TOPIC_ABSENT_OR = 5, /* the last record of the topic has `offset`, or the topic does not exist */
    WEIR_EXPECT_TOPIC_EMPTY = 6,     /* the topic exists, without a record after the one of its creation */
    WEIR_EXPECT_INCARNATION = 7      /* the topic exists, and the intention `offset` created it */
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
    uint32_t set;        /* WEIR_TOPIC_...: which of the numbers below are set */
    uint32_t compaction; /* WEIR_COMPACTION_... */
    uint32_t state;      /* of a program: WEIR_STATE_...; 0: WEIR_STATE_KV */
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
    const weir_slice *hold_for_groups; /* names of groups */
    size_t hold_for_groups_count;
} weir_topic_options;

enum { WEIR_COMPACTION_OFF = 0, WEIR_COMPACTION_LATEST = 1 };
enum {
    WEIR_STATE_NONE = 1,
    WEIR_STATE_KV = 2,    /* a map of keys and values */
    WEIR_STATE_MEMORY = 3 /* the memory of the module */
};

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

/* An operation to execute. All elements of an array must have the struct_size of the first one, which is
 * the step of the array. */
typedef struct weir_intention {
    uint32_t struct_size;
    uint32_t operation; /* WEIR_PUT, ... */
    weir_slice topic;
    weir_slice key;                    /* of PUT and DELETE; empty: PUT without a key */
    weir_slice value;                  /* of PUT */
    weir_slice meta;                   /* stored with the record, at most 4 KiB, not interpreted */
    const weir_expect *expects;        /* at most 64 conditions */
    size_t expect_count;
    const weir_step *steps;            /* of TRANSACTION */
    size_t step_count;
    const weir_topic_options *options; /* of CREATE and ALTER; NULL: defaults */
    weir_slice code;                   /* of CREATE (with a program) and REPLACE: the module */
    weir_slice args;                   /* arguments of the program */
    weir_slice replaced;               /* of REPLACE: SHA-256 of the code to be replaced; empty: any */
} weir_intention;

enum {
    WEIR_PUT = 1,
    WEIR_DELETE = 2,
    WEIR_TRANSACTION = 3, /* executes all steps in order, or none */
    WEIR_CREATE = 4,
    WEIR_DESTROY = 5,
    WEIR_ALTER = 6,
    WEIR_REPLACE = 7
};

/* The verdict on an intention. A verdict other than VALID is a value, not an error of the call. */
typedef struct weir_verdict {
    int32_t effect;        /* WEIR_VALID, ... */
    int32_t reason;        /* 0, or WEIR_E_... */
    uint64_t intention;    /* position in the order of the whole store; 0 if REFUSED */
    uint64_t offset;       /* of its first record; 0 if it has none */
    uint64_t nonce;        /* of the session; 0 without */
    uint64_t fuel;         /* that the program of the topic used */
    uint64_t detail;       /* its meaning depends on detail_kind */
    uint32_t records;
    uint32_t flags;        /* 1: stored verdict of an earlier attempt with the same nonce */
    uint32_t detail_kind;  /* WEIR_DETAIL_... */
    int32_t detail_reason; /* of WEIR_DETAIL_STEP: WEIR_E_... */
} weir_verdict;

enum { WEIR_VALID = 1, WEIR_INVALID = 2, WEIR_ERROR = 3, WEIR_REFUSED = 4 };

enum {
    WEIR_DETAIL_ACTUAL = 1,   /* the offset that a failed condition found */
    WEIR_DETAIL_LIMIT = 2,    /* the limit that was exceeded */
    WEIR_DETAIL_STEP = 3,     /* the index of the failed step; detail_reason has the error */
    WEIR_DETAIL_REJECTED = 4, /* the code that the program returned; its message is the text */
    WEIR_DETAIL_TRAP = 5,     /* the number of the trap; its name is the text */
    WEIR_DETAIL_TEXT = 6,     /* the text describes it */
    WEIR_DETAIL_NONCE = 7     /* of REFUSED: the next nonce that the store would execute */
};

/* Executes intentions and waits for their verdicts. `verdicts` must have room for `count`. `texts`, if not
 * NULL, receives a page with one text for each verdict, or NULL if no verdict has a text. An error means
 * that no intention was logged; WEIR_E_INDETERMINATE means that this is unknown. */
int32_t weir_submit(weir *store, const weir_intention *intentions, size_t count,
                    weir_verdict *verdicts, weir_page **texts, weir_error *error);
/* Sends intentions without waiting for their verdicts. */
int32_t weir_send(weir *store, const weir_intention *intentions, size_t count, weir_pending **out,
                  weir_error *error);
/* Waits for the verdicts: WEIR_OK, or WEIR_TIMEOUT, after which the call can be repeated. `room` is the
 * size of `verdicts`, at least the number of intentions. Verdicts are returned once. */
int32_t weir_pending_wait(weir_pending *pending, uint64_t timeout_ms, weir_verdict *verdicts,
                          size_t room, weir_page **texts, weir_error *error);
/* Waits until all intentions are queued for the log, or have verdicts: WEIR_OK or WEIR_TIMEOUT. A queued
 * intention is not durable. A server reports it before the verdicts only with WEIR_CONNECT_RECEIVED. */
int32_t weir_pending_received(weir_pending *pending, uint64_t timeout_ms, weir_error *error);
/* Releases the verdicts. The intentions are still executed. */
void weir_pending_free(weir_pending *pending);

/* Opens a session, which numbers its intentions: an intention that is resent is not executed again.
 * `client` has 16 bytes, not all zero. Only one writer may use a client id at a time. */
int32_t weir_session_open(weir *store, weir_slice client, weir_session **out, weir_error *error);
/* As weir_submit, weir_send, in a session. */
int32_t weir_session_submit(weir_session *session, const weir_intention *intentions, size_t count,
                            weir_verdict *verdicts, weir_page **texts, weir_error *error);
int32_t weir_session_send(weir_session *session, const weir_intention *intentions, size_t count,
                          weir_pending **out, weir_error *error);
/* The nonce of the next intention. */
int32_t weir_session_next_nonce(weir_session *session, uint64_t *out, weir_error *error);
/* Continues at a nonce whose verdict was not received. */
int32_t weir_session_resume(weir_session *session, uint64_t nonce, weir_error *error);
/* As weir_reader_cancel, for every call of the session. A weir_session_submit that has already sent its
 * intentions fails with WEIR_E_INDETERMINATE. */
int32_t weir_session_cancel(weir_session *session);
void weir_session_free(weir_session *session);

/* ------------------------------------------------------------------ topics and reading */

typedef struct weir_topic_info {
    uint32_t struct_size;
    uint32_t live;        /* 1 if it exists, else 0 */
    uint64_t id;
    uint64_t incarnation; /* the intention that created it; 0 if it does not exist */
    uint64_t first;       /* offset of the oldest remaining record; 0 for none */
    uint64_t last;        /* offset of the newest record */
    uint64_t keys;        /* number of keys with a value */
    uint64_t bytes;       /* stored size of its records */
} weir_topic_info;

/* Creates the topic with `options` if it does not exist. `created`, if not NULL, receives 1 if this call
 * created it, else 0. */
int32_t weir_topic_ensure(weir *store, weir_slice topic, const weir_topic_options *options,
                          uint32_t *created, weir_error *error);
/* WEIR_OK, or WEIR_ABSENT if the topic never was created. */
int32_t weir_topic_describe(weir *store, weir_slice topic, weir_topic_info *out, weir_error *error);
/* The names of topics as items, in byte order. `with_destroyed` 0: only topics that exist. WEIR_ABSENT if
 * there is none. */
int32_t weir_topics(weir *store, uint32_t with_destroyed, weir_page **out, weir_error *error);

/* The record with the value of a key: WEIR_OK and a page, or WEIR_ABSENT, which does not write `*out`. */
int32_t weir_get(weir *store, weir_slice topic, weir_slice key, weir_page **out, weir_error *error);
/* The record at an offset: WEIR_OK and a page, or WEIR_ABSENT. */
int32_t weir_at(weir *store, weir_slice topic, uint64_t offset, weir_page **out, weir_error *error);

enum {
    WEIR_SCAN_AFTER = 1, /* start after the key `after` */
    WEIR_SCAN_VALUES = 2  /* with values; else records have only key and offset */
};
/* Keys that have a value and begin with `prefix`, in byte order, at most `limit` (0: 1,000). WEIR_OK and a
 * page, or WEIR_DONE if there is none. To continue, pass the last key of the page as `after`. */
int32_t weir_scan(weir *store, weir_slice topic, weir_slice prefix, weir_slice after, uint64_t limit,
                  uint32_t flags, weir_page **out, weir_error *error);

typedef struct weir_read_options {
    uint32_t struct_size;
    uint32_t from;  /* WEIR_FROM_... */
    uint64_t value; /* AFTER: an offset; LAST: a number of offsets; TIME: milliseconds since 1970 */
    uint32_t flags; /* WEIR_READ_... */
    uint32_t reserved;
} weir_read_options;

enum {
    WEIR_FROM_START = 0,
    WEIR_FROM_END = 1,
    WEIR_FROM_AFTER = 2,
    WEIR_FROM_LAST = 3, /* `value` offsets before the end */
    WEIR_FROM_TIME = 4
};
enum { WEIR_READ_AWAIT = 1 }; /* the topic may be created later */

/* Parses a position, for `from` and `value` of weir_read_options, weir_group_options, weir_group_step and
 * weir_topics_options. A position is `start`, `end`, an offset (the first record to read), `-N` (the last N
 * records), a duration before now (`10m`, `2d`), `today`, `yesterday`, a date in UTC (`2026-11-01`) or a
 * time of RFC 3339. WEIR_E_BAD_OPTION for any other text. `from` and `value` must not be NULL. */
int32_t weir_position(weir_slice text, uint32_t *from, uint64_t *value, weir_error *error);

/* Opens a reader of a topic. */
int32_t weir_reader_open(weir *store, weir_slice topic, const weir_read_options *options,
                         weir_reader **out, weir_error *error);
/* The next records: WEIR_READY and a page, or WEIR_TIMEOUT if none arrives within `timeout_ms` (0: does
 * not wait). */
int32_t weir_reader_next(weir_reader *reader, uint64_t timeout_ms, weir_page **out,
                         weir_error *error);
/* Cancels one call, from any thread: the call that waits, or else the next one, returns WEIR_E_CANCELLED.
 * Several cancellations before that call count as one. */
int32_t weir_reader_cancel(weir_reader *reader);
void weir_reader_free(weir_reader *reader);

/* ------------------------------------------------------------------ groups */

typedef struct weir_group_options {
    uint32_t struct_size;
    uint32_t mode;           /* WEIR_GROUP_MODE_... */
    uint32_t flags;          /* WEIR_GROUP_EXISTING: do not create the group; WEIR_E_GROUP_UNKNOWN */
    uint32_t from;           /* WEIR_FROM_...: the position at which a new group starts */
    weir_slice member;       /* name of the member, 1 to 64 bytes; empty: from process id and time */
    uint64_t claim_lease_ms; /* lease of the claims of this member; 0: the lease of the group */
    /* the fields below apply to a new group */
    uint64_t value;          /* as `value` of weir_read_options */
    uint64_t lease_ms;       /* 0: 30,000 */
    uint32_t attempts_max;   /* 0: no limit */
    uint32_t pending_max;    /* 0: 100,000 */
    weir_slice dead_letters; /* topic; set if and only if attempts_max is set */
} weir_group_options;

typedef struct weir_group_info {
    uint32_t struct_size;
    uint32_t mode;
    uint64_t cursor;   /* every record up to this offset is acknowledged */
    uint64_t frontier; /* every record after this offset is new */
    uint64_t last;     /* newest record of the topic */
    uint64_t lag;      /* number of offsets that are not acknowledged */
    uint64_t leased;   /* records that members have claimed */
    uint64_t waiting;  /* records to be claimed again */
    uint64_t redeliveries;
    uint64_t dead_lettered;          /* records that became dead letters after attempts_max deliveries */
    uint64_t unwritten_dead_letters; /* dead letters that are not in their topic yet */
} weir_group_info;

enum { WEIR_GROUP_EXISTING = 1 };
enum {
    WEIR_GROUP_MODE_EXCLUSIVE = 1, /* one member at a time gets the records, in order */
    WEIR_GROUP_MODE_KEYED = 2,     /* one member at a time gets the records of a key, in order */
    WEIR_GROUP_MODE_SHARED = 3     /* each record is delivered to one member */
};

/* A claimed record. Its weir_record has both numbers. */
typedef struct weir_claim {
    uint64_t offset;
    uint64_t claim;
} weir_claim;

enum {
    WEIR_SETTLE_DONE = 1,      /* acknowledge: durable when the call returns */
    WEIR_SETTLE_DONE_SOON = 2, /* acknowledge, in an exclusive group: written later, with other writes */
    WEIR_SETTLE_FAIL = 3,      /* reject: may be claimed again after time_ms */
    WEIR_SETTLE_EXTEND = 4     /* extend: the lease ends time_ms from now */
};
enum {
    WEIR_GROUP_TAKE_OVER = 1, /* of an exclusive group: become the owner in place of the present one */
    WEIR_GROUP_LEAVE = 2,     /* of an exclusive group: end the ownership of this member */
    WEIR_GROUP_RESET = 3,     /* every record before the position counts as acknowledged, no later one */
    WEIR_GROUP_DELETE = 4     /* delete the group for all members; WEIR_E_GROUP_ABSENT if it does not exist */
};

/* Opens the group of this name. Creates it if it does not exist. `options` must have a mode. */
int32_t weir_group_open(weir *store, weir_slice topic, weir_slice group,
                        const weir_group_options *options, weir_group **out, weir_error *error);
/* Claims up to `limit` records for this member: WEIR_READY and a page, or WEIR_TIMEOUT. */
int32_t weir_group_claim(weir_group *group, uint64_t limit, uint64_t timeout_ms, weir_page **out,
                         weir_error *error);
/* Acknowledges, rejects or extends records that this member has claimed. `lost` must have room for
 * `count`: it receives the offsets of records that now belong to another member, and `lost_count` their
 * number. Either both are NULL or neither is. `reason` is a text for people, used by WEIR_SETTLE_FAIL. */
int32_t weir_group_settle(weir_group *group, const weir_claim *claims, size_t count, uint32_t verb,
                          uint64_t time_ms, weir_slice reason, uint64_t *lost, size_t *lost_count,
                          weir_error *error);
/* `verb` is WEIR_GROUP_TAKE_OVER, ... `from` and `value`, as in weir_read_options, are the position of
 * WEIR_GROUP_RESET. */
int32_t weir_group_step(weir_group *group, uint32_t verb, uint32_t from, uint64_t value,
                        weir_error *error);
/* Describes a group. */
int32_t weir_group_describe(weir_group *group, weir_group_info *out, weir_error *error);
/* As weir_reader_cancel, for weir_group_claim, and at a server for every call of the member. A write that
 * has begun fails with WEIR_E_INDETERMINATE. */
int32_t weir_group_cancel(weir_group *group);
/* Claimed records remain with the member until their leases expire. */
void weir_group_free(weir_group *group);

/* ------------------------------------------------------------------ queries over pages of JSON */

/* A name and a JSON scalar. */
typedef struct weir_param {
    weir_slice name;
    weir_slice value;
} weir_param;

/* The fields of docs/guide/query.md. A budget of 0 is the default. */
typedef struct weir_query_options {
    uint32_t struct_size;
    uint32_t flags;       /* WEIR_QUERY_... */
    weir_slice where;
    weir_slice order;
    weir_slice select;
    weir_slice group;
    uint64_t offset;
    uint64_t limit;       /* with WEIR_QUERY_LIMIT */
    uint64_t top;         /* with WEIR_QUERY_TOP; with both, the smaller one applies */
    const weir_param *params;
    size_t param_count;
    weir_slice token;     /* to resume an earlier run; empty: from the beginning */
    uint32_t mode;        /* WEIR_MODE_...; 0: derived from `order` */
    uint32_t level;       /* WEIR_LEVEL_... */
    uint32_t on_bad_item; /* WEIR_BAD_ITEM_... */
    uint32_t pages_ahead; /* with WEIR_QUERY_PAGES_AHEAD; default 1 */
    uint64_t buffer_bytes_max;
    uint64_t sort_bytes_max; /* of a sort: bytes of its pages and of what it stores for each item */
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
    WEIR_QUERY_UTF16 = 8,         /* compare strings by UTF-16 code units */
    WEIR_QUERY_RANK_COMPLEX = 16, /* arrays and objects are equal as order keys */
    WEIR_QUERY_DROP_MISSING = 32, /* skip items without an order key */
    WEIR_QUERY_PAGES_AHEAD = 64   /* pages_ahead is set; 0 is a value */
};
enum {
    WEIR_MODE_SEQUENTIAL = 1,
    WEIR_MODE_ARRIVAL = 2,
    WEIR_MODE_ROUND_ROBIN = 3,
    WEIR_MODE_MERGE = 4,
    WEIR_MODE_SORT = 5
};
enum { WEIR_BAD_ITEM_ERROR = 0, WEIR_BAD_ITEM_SKIP = 1, WEIR_BAD_ITEM_UNDEFINED = 2 };
enum { WEIR_LEVEL_DEFAULT = 0, WEIR_LEVEL_NONE = 1, WEIR_LEVEL_STRUCTURAL = 2, WEIR_LEVEL_STRICT = 3 };

typedef struct weir_source_options {
    uint32_t struct_size;
    uint32_t flags;          /* WEIR_SOURCE_... */
    weir_slice name;         /* name in messages and tokens; empty: the number of the source */
    uint32_t shape;          /* WEIR_SHAPE_... */
    uint32_t level;          /* WEIR_LEVEL_...; default: that of the query */
    weir_slice member;       /* of WEIR_SHAPE_MEMBER: path of the array */
    uint64_t ordinal;        /* with WEIR_SOURCE_ORDINAL; default: after the existing sources */
    weir_slice first;        /* with WEIR_SOURCE_FIRST: the name of the first page */
    weir_slice tie;          /* path of the value that orders items with equal keys; empty: none */
    const weir_param *meta;  /* properties that all items of the source share */
    size_t meta_count;
    const weir_slice *bound; /* with WEIR_SOURCE_BOUND: lower bound of the keys, JSON scalars */
    size_t bound_count;
} weir_source_options;

enum {
    WEIR_SOURCE_ORDINAL = 1,
    WEIR_SOURCE_FIRST = 2,
    WEIR_SOURCE_SORTED = 4,
    WEIR_SOURCE_TRUST_ORDER = 8, /* for measurements */
    WEIR_SOURCE_UNSTABLE = 16,   /* a repeated request for a page may return other items */
    WEIR_SOURCE_PARTIAL = 32,    /* items are partial aggregates */
    WEIR_SOURCE_BOUND = 64
};
enum {
    WEIR_SHAPE_ARRAY = 0,
    WEIR_SHAPE_MEMBER = 1,
    WEIR_SHAPE_LINES = 2,
    WEIR_SHAPE_SINGLE = 3,
    WEIR_SHAPE_FRAMED = 4,
    WEIR_SHAPE_VALUES = 5 /* concatenated JSON values (0.5) */
};

typedef struct weir_topics_options {
    uint32_t struct_size;
    uint32_t view;            /* WEIR_VIEW_... */
    const weir_slice *topics; /* names of topics, or patterns: `a.*` one more part, `a.**` one or more */
    size_t topic_count;
    uint32_t end;             /* WEIR_END_... */
    uint32_t kinds;           /* bits 1 << WEIR_RECORD_...: which records are items; 0: PUT */
    uint64_t as_of;           /* of WEIR_END_AS_OF: an intention */
    uint32_t flags;           /* WEIR_TOPICS_... */
    uint32_t from;            /* WEIR_FROM_...: first record of each topic; START with WEIR_VIEW_LATEST */
    uint64_t patience_ms;     /* longest wait for records that exist; 0: 30,000 */
    uint64_t value;           /* as `value` of weir_read_options */
} weir_topics_options;

enum {
    WEIR_VIEW_LOG = 0,   /* all records */
    WEIR_VIEW_LATEST = 1 /* the latest record of each key */
};
enum {
    WEIR_END_NOW = 0,   /* at the newest intention when the query is opened: one cut over all topics */
    WEIR_END_AS_OF = 1,
    WEIR_END_FOLLOW = 2 /* never: returns new records as they arrive */
};
enum {
    WEIR_TOPICS_RESET_EARLIEST = 1, /* records of the token were removed: resume at the first remaining */
    WEIR_TOPICS_NO_PUSH_DOWN = 2    /* a server sends all records; for measurements */
};

/* Returns lent memory to the caller. The library calls it on any thread. It must not call the library,
 * block or throw. */
typedef void (*weir_release)(void *user, const uint8_t *ptr, size_t len);

/* How a loan is returned: with a call of `release`, or by adding `cookie` to `loans`. Set exactly one of
 * `release` and `loans`. */
typedef struct weir_loan {
    weir_release release;
    void *user;
    weir_loans *loans;
    uint64_t cookie;
} weir_loan;

/* A property of an item of a page of the shape FRAMED. */
typedef struct weir_meta {
    uint32_t kind;   /* 0 nothing, 1 number, 2 bytes of the page */
    uint32_t len;    /* length of the bytes */
    uint64_t number; /* the number, or the offset of the bytes */
} weir_meta;
/* The positions of the items of a page of the shape FRAMED. `metas` has, item by item, one entry for each
 * property that the query uses, in the order of `weir_query_metas`. */
typedef struct weir_frames {
    const weir_frame *spans;
    size_t span_count;
    const weir_meta *metas;
    size_t meta_count;
} weir_frames;

/* Parses a shape: `array`, `lines`, `values`, `single`, `framed` or `member:PATH`. Writes `shape` and
 * `member` of weir_source_options; `member` points into `text`. WEIR_E_BAD_OPTION for any other text.
 * `shape` and `member` must not be NULL. */
int32_t weir_shape(weir_slice text, uint32_t *shape, weir_slice *member, weir_error *error);
/* Opens a query over pages that the caller adds: with weir_query_source, then weir_query_enqueue_... */
int32_t weir_query_open(const weir_query_options *options, weir_query **out, weir_error *error);
/* Opens a query over topics of a store, which fetches its pages itself. weir_query_wait, _next, _fd,
 * _token, _explain, _source_name, _cancel and _free accept it. The other functions of queries fail with
 * WEIR_E_UNSUPPORTED. */
int32_t weir_query_open_topics(weir *store, const weir_topics_options *topics,
                               const weir_query_options *options, weir_query **out,
                               weir_error *error);
/* The next results of a query over topics: WEIR_READY and a page, WEIR_DONE, or WEIR_TIMEOUT if none
 * arrives within `timeout_ms`. weir_query_next does the same with a timeout of 0. */
int32_t weir_query_wait(weir_query *query, uint64_t timeout_ms, uint32_t max_items,
                        uint64_t max_bytes, weir_page **out, weir_error *error);
/* A descriptor for an event loop, on Unix. It is readable while weir_query_next may have results. After
 * WEIR_TIMEOUT it is not readable until new records may have arrived. Only wait for it (poll, select,
 * epoll): the query owns it, so do not read or close it, and weir_query_free closes it. Each call returns
 * the same descriptor. */
int32_t weir_query_fd(weir_query *query, int32_t *out, weir_error *error);
/* Adds a source. `source` receives its number; the first one is 0. */
int32_t weir_query_source(weir_query *query, const weir_source_options *options, uint32_t *source,
                          weir_error *error);
/* A page with one item, the name of a source or of its topic: WEIR_OK, or WEIR_ABSENT. */
int32_t weir_query_source_name(weir_query *query, uint32_t source, weir_page **out,
                               weir_error *error);
/* The three functions below add a page of a source. Pages are added in the order of the source. `has_next`
 * 0: this is the last page, and `next` is empty. 1: `next`, of any length, is the name of the page after
 * it. `frames` is NULL except for the shape FRAMED. If the call fails, the query does not have the page.
 * This function copies the bytes of the page. */
int32_t weir_query_enqueue_copy(weir_query *query, uint32_t source, weir_slice page,
                                const weir_frames *frames, weir_slice next, uint32_t has_next,
                                weir_error *error);
/* This function borrows the page without a copy. The caller must not change it until the loan is returned.
 * A loan is returned exactly once: when neither the query nor a page of results needs it any more. That
 * also holds if the query fails or is freed. It may be returned before this call returns. If this call
 * fails, it is not returned. */
int32_t weir_query_enqueue_loan(weir_query *query, uint32_t source, weir_slice page,
                                const weir_frames *frames, weir_slice next, uint32_t has_next,
                                const weir_loan *loan, weir_error *error);
/* This function moves the first `len` bytes of a buffer into the query. On success the buffer is released. */
int32_t weir_query_enqueue_buffer(weir_query *query, uint32_t source, weir_buffer *buffer, size_t len,
                                  const weir_frames *frames, weir_slice next, uint32_t has_next,
                                  weir_error *error);
/* Declares that the source has no more pages. */
int32_t weir_query_finish(weir_query *query, uint32_t source, weir_error *error);
/* For a query that resumes from a token: declares that the source of this name no longer exists, so its
 * remaining items are lost. If such a source is neither added nor abandoned, weir_query_next fails with
 * WEIR_E_SOURCES_OWED, which is not final. */
int32_t weir_query_abandon(weir_query *query, weir_slice name, weir_error *error);
/* Replaces a source by parts; `count` may be 0. `sources` receives the numbers of the parts. The elements
 * of `parts` follow the rule of arrays of weir_intention. */
int32_t weir_query_replace(weir_query *query, uint32_t source, const weir_source_options *parts,
                           size_t count, uint32_t *sources, weir_error *error);
/* Declares that no later item of the source is below these keys, which are JSON scalars. */
int32_t weir_query_watermark(weir_query *query, uint32_t source, const weir_slice *keys, size_t count,
                             weir_error *error);
/* The next results. WEIR_READY: a page of results. WEIR_NEED: a page of needs, the required ones first;
 * each has a source and, with the flag WEIR_ITEM_CONTINUATION, the name of the page. WEIR_DONE: no page.
 * `max_items` 0 means 256, `max_bytes` 0 means 1 MiB. */
int32_t weir_query_next(weir_query *query, uint32_t max_items, uint64_t max_bytes, weir_page **out,
                        weir_error *error);
/* The pages that the query needs now: WEIR_NEED and a page, or WEIR_DONE. */
int32_t weir_query_needs(weir_query *query, weir_page **out, weir_error *error);
/* A page with one item: the `token` to resume after the last result. */
int32_t weir_query_token(weir_query *query, weir_page **out, weir_error *error);
/* A page with one item: the plan of the query, for people. */
int32_t weir_query_explain(weir_query *query, weir_page **out, weir_error *error);
/* A page with one item for each property that the query uses: WEIR_OK, or WEIR_ABSENT. */
int32_t weir_query_metas(weir_query *query, weir_page **out, weir_error *error);
/* Cancels a query, from any thread: the next call except weir_query_free fails with WEIR_E_CANCELLED, and
 * so does each later weir_query_next. Has no effect on a query that has ended or failed. */
int32_t weir_query_cancel(weir_query *query);
void weir_query_free(weir_query *query);

/* Allocates a buffer of `size` bytes. WEIR_E_BAD_LENGTH if there is not enough memory. */
int32_t weir_buffer_new(size_t size, weir_buffer **out, weir_error *error);
/* The memory of a buffer, initially with any content. `size` may be NULL. NULL and 0 if the buffer has no
 * bytes, the handle is not a buffer, or another thread uses it. */
uint8_t *weir_buffer_data(weir_buffer *buffer, size_t *size);
void weir_buffer_free(weir_buffer *buffer);

/* Creates a list, for `loans` of weir_loan. */
int32_t weir_loans_new(weir_loans **out, weir_error *error);
/* Removes the cookies of returned loans from the list, oldest first, and writes them to `cookies`, which has
 * room for `room` (at most 65,536). `count` receives their number. `left`, if not NULL, receives the number
 * of loans that are not returned, plus the number of cookies that remain in the list. */
int32_t weir_loans_collect(weir_loans *loans, uint64_t *cookies, size_t room, size_t *count,
                           uint64_t *left, weir_error *error);
/* Cookies of loans that return later are lost. */
void weir_loans_free(weir_loans *loans);

#ifdef __cplusplus
}
#endif

#endif
