/*
 * weir_psyc.h: the PSYC codec of Weir for C: packets, lists, dicts, updates, names, addresses, texts.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * docs/formats/psyc.md has the syntax, docs/formats/abi.md the layout of every structure. The rules of
 * weir.h apply (results, errors, slices, struct_size), and these:
 *
 * MEMORY. The codec does not lock or do I/O, and does not use a pointer after its call. It does not
 * allocate, except for the text of a rejected argument. Results point into the bytes of the caller. A
 * weir_psyc_parser and a weir_psyc_cursor are memory of the caller and need no release. Only one thread at
 * a time may use one. Their bytes may be copied as a whole and must not be changed, except `partial` of a
 * cursor. No memory that a call writes may overlap memory that it reads. WEIR_E_BAD_OPTION reports an
 * overlap of buffers, arrays and states; an overlap of counts and single results is not detected.
 *
 * BATCHES. A call fills an array as far as it can. If an error in the bytes follows after some results, the
 * call returns these with WEIR_OK, and the next call returns the error.
 *
 * ERRORS. Bytes that the syntax does not allow are WEIR_E_PROTOCOL. For a packet, `detail` of the error is
 * the number in docs/formats/psyc.md without its sign; for values and names, the number in the table of
 * docs/formats/abi.md. `offset` is the position of the byte, or WEIR_NO_OFFSET. A value that cannot be
 * rendered is WEIR_E_BAD_REQUEST, and `detail` is WEIR_PSYC_RENDER_... For other codes, `detail` is the
 * index in the array of the caller.
 *
 * OUTPUT. Every render function first computes the exact size and writes it to `size`. WEIR_NEED: the size
 * is larger than `room`, and nothing was written. So a call with NULL and 0 returns the size. WEIR_OK:
 * `size` bytes were written.
 */
#ifndef WEIR_PSYC_H
#define WEIR_PSYC_H

#include "weir.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_PSYC_GREETING "|\n"            /* the empty packet: each side sends it first on a circuit */
#define WEIR_PSYC_PORT 4404                 /* default port of circuits over TCP */
#define WEIR_PSYC_EPOCH INT64_C(1440444041) /* Unix seconds of _date 0 */
#define WEIR_PSYC_THRESHOLD UINT64_C(9)     /* default threshold: longest value without a length, in bytes */
#define WEIR_PSYC_SHORTEST UINT64_MAX       /* as a threshold: lengths only where the syntax requires them */

/* ------------------------------------------------------------------ packets in */

enum { WEIR_PSYC_FULL = 1, WEIR_PSYC_ROUTING_ONLY = 2, WEIR_PSYC_BARE_CONTENT = 3 };

/* A parser. Set struct_size to sizeof, then call weir_psyc_parser_init. */
typedef struct weir_psyc_parser {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t opaque[39];
} weir_psyc_parser;

/* Limits. 0 means the default of docs/formats/psyc.md. Sizes are in bytes. */
typedef struct weir_psyc_parser_options {
    uint32_t struct_size;
    uint32_t mode;           /* 0: WEIR_PSYC_FULL */
    uint64_t content_length; /* of WEIR_PSYC_BARE_CONTENT: its bytes, including the final line feed */
    uint64_t unsized_content;
    uint64_t unsized_value;
    uint64_t routing_header;
    uint64_t sized_content;
    uint64_t sized_value;
    uint32_t routing_modifiers;
    uint32_t entity_modifiers;
    uint32_t name;
    uint32_t reserved;
} weir_psyc_parser_options;

enum {
    WEIR_PSYC_ROUTING = 1,       /* operation, name, value */
    WEIR_PSYC_STATE_RESET = 2,
    WEIR_PSYC_STATE_RESYNC = 3,
    WEIR_PSYC_ENTITY = 4,        /* operation, name, sized, value */
    WEIR_PSYC_ENTITY_START = 5,  /* operation, name, total, value: the first part, possibly empty */
    WEIR_PSYC_ENTITY_CONT = 6,   /* value: a part, never empty */
    WEIR_PSYC_ENTITY_END = 7,    /* value: the last part, never empty */
    WEIR_PSYC_BODY = 8,          /* name: the method; sized; value: the data */
    WEIR_PSYC_BODY_START = 9,
    WEIR_PSYC_BODY_CONT = 10,
    WEIR_PSYC_BODY_END = 11,
    WEIR_PSYC_CONTENT = 12,      /* of WEIR_PSYC_ROUTING_ONLY: sized; value: the raw content */
    WEIR_PSYC_CONTENT_START = 13,
    WEIR_PSYC_CONTENT_CONT = 14,
    WEIR_PSYC_CONTENT_END = 15,
    WEIR_PSYC_COMPLETE = 16      /* the end mark: process the packet only now */
};

/* A part of a packet. Slices point into the bytes of the call. This structure never changes. */
typedef struct weir_psyc_event {
    uint16_t kind;
    uint8_t operation; /* ':', '=', '+', '-', '@', '?' or '!'; else 0 */
    uint8_t sized;     /* 1: the length was announced */
    uint32_t reserved;
    weir_slice name;
    weir_slice value;
    uint64_t total;    /* of ..._START: sum of the bytes of all parts; else 0 */
} weir_psyc_event;

enum { WEIR_PSYC_CLEAN = 1, WEIR_PSYC_CONTENT_SIZED = 2, WEIR_PSYC_VALUE_SIZED = 4 };

/* The state of a parser. */
typedef struct weir_psyc_parser_info {
    uint32_t struct_size;
    uint32_t flags;          /* CLEAN: it is between two packets; ..._SIZED: the length below was announced */
    uint64_t offset;         /* position of the next byte, counted from weir_psyc_parser_init */
    uint64_t content_length; /* of the current content */
    uint64_t value_length;   /* of the last returned value or data */
    uint64_t wanted;         /* after WEIR_NEED: lower bound of the missing bytes; 0 if unknown */
} weir_psyc_parser_info;

/* Initialises or resets a parser. `options` may be NULL. */
int32_t weir_psyc_parser_init(weir_psyc_parser *parser, const weir_psyc_parser_options *options, weir_error *error);
/* Parses the next bytes. `bytes` starts with the bytes that earlier calls have not used. Writes up to
 * `room` (1 to 65,536) events. The call has used `used` bytes; pass the bytes after them to the next call.
 * Returns WEIR_READY after WEIR_PSYC_COMPLETE, WEIR_NEED if more bytes are needed, WEIR_OK if `events` is
 * full. After an error every call returns it, until the next weir_psyc_parser_init. */
int32_t weir_psyc_parser_read(weir_psyc_parser *parser, weir_slice bytes, weir_psyc_event *events, size_t room, size_t *count, size_t *used, weir_error *error);
/* Describes a parser. WEIR_E_BAD_HANDLE if its memory is not an initialised parser; weir_psyc_parser_read
 * fails in the same way. */
int32_t weir_psyc_parser_describe(const weir_psyc_parser *parser, weir_psyc_parser_info *out, weir_error *error);

/* ------------------------------------------------------------------ values in */

enum { WEIR_PSYC_LIST = 1, WEIR_PSYC_DICT = 2, WEIR_PSYC_INDEX = 3, WEIR_PSYC_UPDATE = 4, WEIR_PSYC_TEXT = 5, WEIR_PSYC_STRUCT = 6, WEIR_PSYC_TABLE = 7 };

/* The position of a walk. Before the first call, set `what`, and set all other bytes to zero. Invalid bytes
 * are safe: they give an error or a wrong result. */
typedef struct weir_psyc_cursor {
    uint32_t what;    /* WEIR_PSYC_LIST, ... */
    uint32_t partial; /* set before each call: 1 if more bytes of the list follow its bytes, else 0 */
    uint64_t state[6];
} weir_psyc_cursor;

enum {
    WEIR_PSYC_TYPE = 1,       /* type: the type of all elements or values that have none */
    WEIR_PSYC_ELEM = 2,       /* type, value, sized: of a list, or a column of a table */
    WEIR_PSYC_ELEM_START = 3, /* type, number: bytes of all parts, value: the first part, possibly empty */
    WEIR_PSYC_ELEM_CONT = 4,  /* value: a part, never empty */
    WEIR_PSYC_ELEM_END = 5,   /* value: the last part, never empty */
    WEIR_PSYC_KEY = 6,        /* value, sized: of a dict, an index or a row of a table; type: of the row */
    WEIR_PSYC_VALUE = 7,      /* type, value, sized: of the preceding key or field, or of an update */
    WEIR_PSYC_POS = 8,        /* number: a position in a list, from 0 */
    WEIR_PSYC_FIELD = 9,      /* value: a field of a struct, which is also its type */
    WEIR_PSYC_OP = 10         /* operation, type: of an update */
};

/* A part of a value. Slices point into the bytes of the call. This structure never changes. */
typedef struct weir_psyc_part {
    uint32_t kind;
    uint32_t operation;
    weir_slice type; /* `ptr` NULL: none */
    weir_slice value;
    uint64_t number;
    uint32_t sized;
    uint32_t reserved;
} weir_psyc_part;

/* Continues a walk of a list, dict, index, update or table. Writes up to `room` (1 to 65,536) parts.
 * WEIR_DONE: the walk has ended. WEIR_OK: `parts` is full. WEIR_NEED, only for a list: more bytes are
 * needed. For a list, pass the bytes after the `used` ones to the next call. For other values, pass the
 * same bytes again; `used` is 0. A table is a dict of structs, or a width list if it starts with '*'. KEY
 * begins each row, and one ELEM follows for each column. */
int32_t weir_psyc_walk(weir_psyc_cursor *cursor, weir_slice bytes, weir_psyc_part *parts, size_t room, size_t *count, size_t *used, weir_error *error);

/* Continues a walk of a struct value, with a cursor for WEIR_PSYC_STRUCT. As weir_psyc_walk, but with the
 * same declaration and bytes in every call. Each field of the declaration gives FIELD, and VALUE if the
 * value has an element for it. Without bytes, this checks only the declaration. */
int32_t weir_psyc_walk_struct(weir_psyc_cursor *cursor, weir_slice declaration, weir_slice bytes, weir_psyc_part *parts, size_t room, size_t *count, weir_error *error);

enum { /* `detail` of WEIR_E_PROTOCOL for a struct or a table, in addition to those of lists and dicts */
    WEIR_PSYC_STRUCT_FIELD = 16,       /* a field of a declaration has no type, or it has a value */
    WEIR_PSYC_STRUCT_TOO_MANY = 17,    /* more elements than fields */
    WEIR_PSYC_STRUCT_DECLARATION = 18, /* the declaration is not a list; `offset` is its byte */
    WEIR_PSYC_TABLE_NOT_A_STRUCT = 19, /* a row has no type, or its type is not a struct */
    WEIR_PSYC_TABLE_WIDTH = 20,        /* a width list does not start with its width */
    WEIR_PSYC_TABLE_CELLS = 21         /* the cells do not fill the last row */
};

/* A packet id, which is a list of exactly five elements. An absent element is empty. This structure never
 * changes. */
typedef struct weir_psyc_packet_id {
    weir_slice context;
    weir_slice source;
    weir_slice target;
    weir_slice counter;
    weir_slice fragment;
} weir_psyc_packet_id;

/* `detail` of an error is that of a list, or 14: not five elements, 15: the list has a type. */
int32_t weir_psyc_parse_packet_id(weir_slice bytes, weir_psyc_packet_id *out, weir_error *error);

enum {
    WEIR_PSYC_ROOT = 1,
    WEIR_PSYC_PERSON = 2,
    WEIR_PSYC_PLACE = 3,
    WEIR_PSYC_SERVICE = 4,
    WEIR_PSYC_OTHER = 5,
    WEIR_PSYC_FOREIGN = 6 /* another scheme than psyc: only scheme, body and full are set */
};

enum { WEIR_PSYC_UNREACHABLE = 1 };

/* An address. Slices point into the bytes of the call; `ptr` NULL means absent. */
typedef struct weir_psyc_uniform {
    uint32_t struct_size;
    uint32_t kind;
    uint32_t port_number; /* port without its sign; 0: none */
    uint32_t flags;       /* UNREACHABLE: the port is negative */
    weir_slice scheme;
    weir_slice slashes;
    weir_slice host;
    weir_slice port;
    weir_slice transport;
    weir_slice slash;
    weir_slice resource;
    weir_slice channel;
    weir_slice host_port; /* host through transport */
    weir_slice root;      /* start through transport */
    weir_slice entity;    /* start through resource */
    weir_slice path;      /* slash to the end */
    weir_slice body;      /* host to the end */
    weir_slice full;
    weir_slice nick;      /* resource without its type byte */
} weir_psyc_uniform;

/* Parses an address. `any` 1: of any scheme; 0: only of psyc. `detail` of an error is the invalid part: 1
 * scheme, 2 slashes, 3 host, 4 port, 5 transport, 6 resource, 7 channel. */
int32_t weir_psyc_parse_uniform(weir_slice bytes, uint32_t any, weir_psyc_uniform *out, weir_error *error);

/* Parse a number of 64 bits: a signed decimal integer, and `#` with an unsigned one. WEIR_E_PROTOCOL for any
 * other bytes, and for a number that does not fit. */
int32_t weir_psyc_integer(weir_slice bytes, int64_t *out, weir_error *error);
int32_t weir_psyc_list_index(weir_slice bytes, uint64_t *out, weir_error *error);
/* Convert a _date to Unix seconds, and Unix seconds to a _date. WEIR_E_PROTOCOL as above. */
int32_t weir_psyc_date(weir_slice bytes, int64_t *unix_seconds, weir_error *error);
int32_t weir_psyc_date_from_unix(int64_t unix_seconds, int64_t *out, weir_error *error);

/* ------------------------------------------------------------------ names */

/* Whether `word` equals `base` or extends it by further subwords: WEIR_OK or WEIR_ABSENT. WEIR_E_PROTOCOL
 * if one of them is not a keyword. */
int32_t weir_psyc_inherits(weir_slice base, weir_slice word, weir_error *error);
/* Whether the subwords of `shorter` are in `longer` in the same order: WEIR_OK or WEIR_ABSENT. */
int32_t weir_psyc_matches(weir_slice shorter, weir_slice longer, weir_error *error);
/* Index of the longest of `keys` that `word` inherits from, or WEIR_ABSENT. WEIR_E_PROTOCOL if `word` or a
 * key is not a keyword; `detail` is then the index of the key. Takes linear time. */
int32_t weir_psyc_lookup(const weir_slice *keys, size_t count, weir_slice word, size_t *index, weir_error *error);

/* A compact name, and the long name for which the two ends of a circuit use it. This structure never
 * changes. */
typedef struct weir_psyc_compact {
    weir_slice compact;
    weir_slice name;
} weir_psyc_compact;

/* Convert a compact name to the long name, and a long name to the compact one. `out` is `word` if the
 * table does not have it. Of equal entries, the first one applies. `out` points into the table or into
 * `word`. Takes linear time. */
int32_t weir_psyc_expand(const weir_psyc_compact *table, size_t count, weir_slice word, weir_slice *out, weir_error *error);
int32_t weir_psyc_contract(const weir_psyc_compact *table, size_t count, weir_slice word, weir_slice *out, weir_error *error);

enum { WEIR_PSYC_IS_KEYWORD = 1, WEIR_PSYC_IS_LIST = 2 };

enum { /* routing variables */
    WEIR_PSYC_AMOUNT_FRAGMENTS = 1,
    WEIR_PSYC_CONTEXT = 2,
    WEIR_PSYC_COUNTER = 3,
    WEIR_PSYC_FRAGMENT = 4,
    WEIR_PSYC_SOURCE = 5,
    WEIR_PSYC_SOURCE_RELAY = 6,
    WEIR_PSYC_TAG = 7,
    WEIR_PSYC_TAG_RELAY = 8,
    WEIR_PSYC_TARGET = 9,
    WEIR_PSYC_TARGET_RELAY = 10
};

enum { /* types */
    WEIR_PSYC_TYPE_AMOUNT = 1,
    WEIR_PSYC_TYPE_COLOR = 2,
    WEIR_PSYC_TYPE_COUNTER = 3,
    WEIR_PSYC_TYPE_DATE = 4,
    WEIR_PSYC_TYPE_DEGREE = 5,
    WEIR_PSYC_TYPE_DICT = 6,
    WEIR_PSYC_TYPE_ENTITY = 7,
    WEIR_PSYC_TYPE_FLAG = 8,
    WEIR_PSYC_TYPE_LANGUAGE = 9,
    WEIR_PSYC_TYPE_LIST = 10,
    WEIR_PSYC_TYPE_NICK = 11,
    WEIR_PSYC_TYPE_PAGE = 12,
    WEIR_PSYC_TYPE_STRUCT = 13,
    WEIR_PSYC_TYPE_TIME = 14,
    WEIR_PSYC_TYPE_UNIFORM = 15
};

enum { /* families of methods */
    WEIR_PSYC_FAMILY_CONVERSE = 1,
    WEIR_PSYC_FAMILY_DATA = 2,
    WEIR_PSYC_FAMILY_ECHO = 3,
    WEIR_PSYC_FAMILY_ERROR = 4,
    WEIR_PSYC_FAMILY_FAILURE = 5,
    WEIR_PSYC_FAMILY_INFO = 6,
    WEIR_PSYC_FAMILY_MESSAGE = 7,
    WEIR_PSYC_FAMILY_NOTICE = 8,
    WEIR_PSYC_FAMILY_REQUEST = 9,
    WEIR_PSYC_FAMILY_STATUS = 10,
    WEIR_PSYC_FAMILY_WARNING = 11
};

enum {
    WEIR_PSYC_METHOD_TEMPLATE = 1,
    WEIR_PSYC_METHOD_REPLY = 2,
    WEIR_PSYC_METHOD_VISIBLE = 4,
    WEIR_PSYC_METHOD_LOGGABLE = 8,
    WEIR_PSYC_METHOD_MANUAL = 16
};

/* The meaning of a name. Numbers are 0 if unknown. */
typedef struct weir_psyc_name {
    uint32_t struct_size;
    uint32_t flags;        /* WEIR_PSYC_IS_... */
    uint32_t routing;      /* as a routing variable */
    uint32_t type;         /* as a variable or a type */
    uint32_t method;       /* number of the known method that it equals or inherits from */
    uint32_t family;       /* family of the method */
    uint32_t method_flags; /* WEIR_PSYC_METHOD_... of the family */
    uint32_t reserved;
    weir_slice known;      /* name of the method, static */
} weir_psyc_name;

/* Describes a name, which may be any bytes. */
int32_t weir_psyc_describe_name(weir_slice name, weir_psyc_name *out, weir_error *error);

enum {
    WEIR_PSYC_BYTE_OPERATOR = 1,
    WEIR_PSYC_BYTE_DIGIT = 2,
    WEIR_PSYC_BYTE_ALPHA = 4,
    WEIR_PSYC_BYTE_KEYWORD = 8,
    WEIR_PSYC_BYTE_HOST = 16,
    WEIR_PSYC_BYTE_NAME = 32 /* in the resource or channel of an address */
};

/* Where the syntax permits a byte: WEIR_PSYC_BYTE_... */
uint32_t weir_psyc_byte(uint8_t byte);

enum {
    WEIR_PSYC_TALK_PSYC = 1,
    WEIR_PSYC_TALK_OLD = 2, /* respond with one _failure packet and close */
    WEIR_PSYC_TALK_HTTP = 3,
    WEIR_PSYC_TALK_TLS = 4,
    WEIR_PSYC_TALK_UNKNOWN = 5
};

/* Detects the protocol of a peer by its first bytes, on a port that several protocols share: WEIR_OK, or
 * WEIR_NEED if more bytes are needed. */
int32_t weir_psyc_talk(weir_slice bytes, uint32_t *out, weir_error *error);

/* ------------------------------------------------------------------ texts */

/* A template. */
typedef struct weir_psyc_template {
    uint32_t struct_size;
    uint32_t reserved;
    weir_slice text;
    weir_slice open;  /* empty: "[" */
    weir_slice close; /* empty: "]" */
} weir_psyc_template;

/* The replacement of a name. Of equal names, the last one applies. This structure never changes. */
typedef struct weir_psyc_binding {
    weir_slice name;
    weir_slice value;
} weir_psyc_binding;

/* The standard template of the method that `word` equals or inherits from, or WEIR_ABSENT. `out` is
 * static. */
int32_t weir_psyc_standard_template(weir_slice word, weir_slice *out, weir_error *error);
/* Writes the text of a template into `out`, one part per call, with a cursor for WEIR_PSYC_TEXT.
 * WEIR_NEED: `out` is full; call again for the next part. WEIR_DONE: the text is complete. WEIR_ABSENT:
 * the text is complete, and no name was replaced. Pass the same template and bindings in every call.
 * `written` is the number of bytes of this part. */
int32_t weir_psyc_render_text(const weir_psyc_template *text, weir_psyc_cursor *cursor, const weir_psyc_binding *bindings, size_t count, uint8_t *out, size_t room, size_t *written, weir_error *error);

/* ------------------------------------------------------------------ packets and values out */

enum {
    WEIR_PSYC_LENGTH_AUTO = 0,   /* where the syntax or the threshold requires it */
    WEIR_PSYC_LENGTH_FORCE = 1,  /* always, except for an empty value */
    WEIR_PSYC_LENGTH_FORBID = 2  /* never: WEIR_E_BAD_REQUEST where the syntax requires it */
};

enum { /* `detail` of WEIR_E_BAD_REQUEST */
    WEIR_PSYC_RENDER_NAME_MISSING = 1,
    WEIR_PSYC_RENDER_NAME_INVALID = 2,
    WEIR_PSYC_RENDER_VALUE_NEWLINE = 3,
    WEIR_PSYC_RENDER_METHOD_INVALID = 4,
    WEIR_PSYC_RENDER_METHOD_MISSING = 5,
    WEIR_PSYC_RENDER_TYPE_INVALID = 6,
    WEIR_PSYC_RENDER_CONTENT_UNTERMINATED = 7,
    WEIR_PSYC_RENDER_LENGTH_FORBIDDEN = 8
};

/* A modifier to render. This structure never changes. */
typedef struct weir_psyc_modifier {
    uint32_t operation; /* the byte: ':', '=', '+', '-', '@', '?', '!' */
    uint32_t length;    /* WEIR_PSYC_LENGTH_...; has no effect in a routing header */
    weir_slice name;
    weir_slice value;
} weir_psyc_modifier;

enum { WEIR_PSYC_PACKET_RAW = 1, WEIR_PSYC_PACKET_THRESHOLD = 2 };

/* A packet to render: at most 65,536 modifiers in each header. */
typedef struct weir_psyc_packet {
    uint32_t struct_size;
    uint32_t flags;     /* RAW: `content` replaces state, entity, method and data; THRESHOLD: `threshold` is set */
    uint32_t state;     /* 0 none, '=' reset, '?' resync */
    uint32_t length;    /* WEIR_PSYC_LENGTH_... of the content */
    uint64_t threshold;
    const weir_psyc_modifier *routing;
    size_t routing_count;
    const weir_psyc_modifier *entity;
    size_t entity_count;
    weir_slice method;  /* empty: none */
    weir_slice data;    /* empty: none */
    weir_slice content;
} weir_psyc_packet;

enum { WEIR_PSYC_HAS_CONTENT = 1, WEIR_PSYC_WITH_LENGTH = 2 };

/* The sizes of a rendered packet, in bytes. */
typedef struct weir_psyc_sizes {
    uint32_t struct_size;
    uint32_t flags;   /* HAS_CONTENT: it has a content part; WITH_LENGTH: its length is written */
    uint64_t routing; /* the routing header */
    uint64_t content; /* the content through its last line feed */
    uint64_t total;
} weir_psyc_sizes;

/* An element of a list, or the value of an entry or an update. This structure never changes. */
typedef struct weir_psyc_item {
    weir_slice type; /* empty: none */
    weir_slice value;
    uint32_t length; /* WEIR_PSYC_LENGTH_... */
    uint32_t reserved;
} weir_psyc_item;

/* An entry of a dict. This structure never changes. */
typedef struct weir_psyc_entry {
    weir_slice key;
    uint32_t key_length; /* WEIR_PSYC_LENGTH_... */
    uint32_t reserved;
    weir_psyc_item value;
} weir_psyc_entry;

/* A step of an index. This structure never changes. */
typedef struct weir_psyc_step {
    uint32_t kind;   /* WEIR_PSYC_POS, WEIR_PSYC_FIELD or WEIR_PSYC_KEY */
    uint32_t length; /* of a key: WEIR_PSYC_LENGTH_... */
    uint64_t number; /* of a position */
    weir_slice name; /* of a field or key */
} weir_psyc_step;

/* Computes the sizes of a packet, and reports every error that weir_psyc_render reports. */
int32_t weir_psyc_measure(const weir_psyc_packet *packet, weir_psyc_sizes *out, weir_error *error);
/* Renders a packet. */
int32_t weir_psyc_render(const weir_psyc_packet *packet, uint8_t *out, size_t room, size_t *size, weir_error *error);
/* Renders one line of an entity header. */
int32_t weir_psyc_render_modifier(const weir_psyc_modifier *modifier, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
/* Render a list or a dict. Without a type, the result is a piece: concatenated pieces are one list or
 * dict. */
int32_t weir_psyc_render_list(weir_slice type, const weir_psyc_item *items, size_t count, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
int32_t weir_psyc_render_dict(weir_slice type, const weir_psyc_entry *entries, size_t count, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
/* Render one entry of a dict in two parts: the key with its braces, then the value. `length` is
 * WEIR_PSYC_LENGTH_... */
int32_t weir_psyc_render_key(weir_slice key, uint32_t length, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
int32_t weir_psyc_render_value(const weir_psyc_item *value, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
/* Renders the steps of an index (0.7). */
int32_t weir_psyc_render_index(const weir_psyc_step *steps, size_t count, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
/* Renders an update expression. `operation` is that of a modifier. */
int32_t weir_psyc_render_update(const weir_psyc_step *steps, size_t count, uint32_t operation, const weir_psyc_item *item, uint64_t threshold, uint8_t *out, size_t room, size_t *size, weir_error *error);
/* Renders a packet id. Equal ids have equal bytes, so there is no threshold. */
int32_t weir_psyc_render_packet_id(const weir_psyc_packet_id *id, uint8_t *out, size_t room, size_t *size, weir_error *error);

#ifdef __cplusplus
}
#endif

#endif
