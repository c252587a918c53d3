/* The endpoints below /bench of the C contenders of the experiment http-json,
 * without sockets or HTTP. lab/peers/README.md has the rules,
 * lab/peers/bench.txt the vectors.
 *
 * Invariants: no read is outside of the given bytes. Memory is bounded by
 * BENCH_BODY_MAX and BENCH_PLAIN_MAX. An answer depends only on the request.
 *
 * Include this file once per program. BENCH_WITHOUT_ZLIB omits the endpoint
 * that needs zlib. */
#ifndef WEIR_LAB_BENCH_H
#define WEIR_LAB_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef BENCH_WITHOUT_ZLIB
#include <zlib.h>
#endif

enum {
    BENCH_BODY_MAX = 4 << 20,   /* bytes of a body */
    BENCH_PLAIN_MAX = 16 << 20, /* bytes of an inflated body */
    BENCH_DEPTH_MAX = 128,      /* nesting of a skipped value */
    BENCH_N_MAX = 10000000,
    BENCH_N = 100000,
};

/* A growing buffer. */
struct bench_text {
    char *at;
    size_t length, room;
};

static inline void bench_room(struct bench_text *text, size_t more) {
    size_t need = text->length + more;
    if (need <= text->room) return;
    size_t room = text->room ? text->room : 256;
    while (room < need) room *= 2;
    text->at = realloc(text->at, room);
    if (!text->at) abort();
    text->room = room;
}

static inline void bench_put(struct bench_text *text, const void *bytes, size_t length) {
    if (length == 0) return;
    bench_room(text, length);
    memcpy(text->at + text->length, bytes, length);
    text->length += length;
}

#define BENCH_PUT(text, literal) bench_put(text, literal, sizeof literal - 1)

static inline void bench_put_number(struct bench_text *text, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    bench_put(text, digits + at, sizeof digits - at);
}

static inline void bench_put_signed(struct bench_text *text, int64_t value) {
    if (value < 0) BENCH_PUT(text, "-");
    bench_put_number(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* A response: a status, a type, a list of methods for 405, a body. */
struct bench_answer {
    int status;
    const char *type, *allow;
    struct bench_text body;
};

/* ---- reading JSON -------------------------------------------------------- */

struct bench_json {
    const unsigned char *at, *end;
};

static inline void bench_space(struct bench_json *in) {
    while (in->at < in->end &&
           (*in->at == ' ' || *in->at == '\n' || *in->at == '\r' || *in->at == '\t'))
        in->at++;
}

static inline bool bench_is(struct bench_json *in, char byte) {
    bench_space(in);
    if (in->at == in->end || *in->at != (unsigned char)byte) return false;
    in->at++;
    return true;
}

static bool bench_hex4(struct bench_json *in, unsigned *code) {
    *code = 0;
    if (in->end - in->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        unsigned char c = *in->at++;
        unsigned digit = c >= '0' && c <= '9'   ? c - '0' + 0u
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10u
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10u
                                                : 16u;
        if (digit > 15) return false;
        *code = *code << 4 | digit;
    }
    return true;
}

/* Length of the UTF-8 sequence at `at`; 0 if it is invalid. */
static size_t bench_utf8(const unsigned char *at, const unsigned char *end) {
    unsigned char c = at[0];
    size_t length = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (length == 0 || (size_t)(end - at) < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && at[1] < 0xA0) || (c == 0xED && at[1] > 0x9F) ||
        (c == 0xF0 && at[1] < 0x90) || (c == 0xF4 && at[1] > 0x8F))
        return 0;
    return length;
}

static void bench_put_code(struct bench_text *out, unsigned code) {
    unsigned char b[4];
    size_t length;
    if (code < 0x80) {
        b[0] = (unsigned char)code, length = 1;
    } else if (code < 0x800) {
        b[0] = (unsigned char)(0xC0 | code >> 6), length = 2;
    } else if (code < 0x10000) {
        b[0] = (unsigned char)(0xE0 | code >> 12), length = 3;
    } else {
        b[0] = (unsigned char)(0xF0 | code >> 18), length = 4;
    }
    for (size_t i = 1; i < length; i++)
        b[i] = (unsigned char)(0x80 | (code >> 6 * (length - 1 - i) & 0x3F));
    bench_put(out, b, length);
}

/* Reads a string after its opening quote; writes its value to `out` if `out` is not NULL. */
static bool bench_string(struct bench_json *in, struct bench_text *out) {
    for (;;) {
        const unsigned char *from = in->at;
        while (in->at < in->end && *in->at >= 0x20 && *in->at != '"' && *in->at != '\\') {
            size_t length = *in->at < 0x80 ? 1 : bench_utf8(in->at, in->end);
            if (length == 0) return false;
            in->at += length;
        }
        if (out) bench_put(out, from, (size_t)(in->at - from));
        if (in->at == in->end || *in->at < 0x20) return false;
        if (*in->at++ == '"') return true;
        if (in->at == in->end) return false;
        unsigned char letter = *in->at++;
        unsigned code;
        switch (letter) {
        case '"':
        case '\\':
        case '/': code = letter; break;
        case 'b': code = '\b'; break;
        case 't': code = '\t'; break;
        case 'n': code = '\n'; break;
        case 'f': code = '\f'; break;
        case 'r': code = '\r'; break;
        case 'u':
            if (!bench_hex4(in, &code)) return false;
            if (code >= 0xDC00 && code < 0xE000) return false;
            if (code >= 0xD800 && code < 0xDC00) {
                unsigned low;
                if (in->end - in->at < 6 || in->at[0] != '\\' || in->at[1] != 'u') return false;
                in->at += 2;
                if (!bench_hex4(in, &low) || low < 0xDC00 || low >= 0xE000) return false;
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            break;
        default: return false;
        }
        if (out) bench_put_code(out, code);
    }
}

/* Reads an integer: its magnitude and its sign. */
static bool bench_number(struct bench_json *in, uint64_t *size, bool *minus) {
    bench_space(in);
    *minus = in->at < in->end && *in->at == '-';
    if (*minus) in->at++;
    const unsigned char *first = in->at;
    *size = 0;
    for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++) {
        unsigned digit = *in->at - '0';
        if (*size > (UINT64_MAX - digit) / 10) return false;
        *size = *size * 10 + digit;
    }
    size_t digits = (size_t)(in->at - first);
    if (digits == 0 || (digits > 1 && *first == '0')) return false;
    return in->at == in->end || (*in->at != '.' && *in->at != 'e' && *in->at != 'E');
}

static bool bench_i64(struct bench_json *in, int64_t *value) {
    uint64_t size;
    bool minus;
    if (!bench_number(in, &size, &minus)) return false;
    if (size > (uint64_t)INT64_MAX + minus) return false;
    *value = (int64_t)(minus ? 0 - size : size);
    return true;
}

/* Skips a number of any kind. */
static bool bench_skip_number(struct bench_json *in) {
    const unsigned char *end = in->end;
#define BENCH_DIGITS                                                                               \
    do {                                                                                           \
        if (in->at == end || *in->at < '0' || *in->at > '9') return false;                         \
        while (in->at < end && *in->at >= '0' && *in->at <= '9') in->at++;                         \
    } while (0)
    if (*in->at == '-') in->at++;
    const unsigned char *first = in->at;
    BENCH_DIGITS;
    if (*first == '0' && in->at - first > 1) return false;
    if (in->at < end && *in->at == '.') {
        in->at++;
        BENCH_DIGITS;
    }
    if (in->at < end && (*in->at == 'e' || *in->at == 'E')) {
        in->at++;
        if (in->at < end && (*in->at == '+' || *in->at == '-')) in->at++;
        BENCH_DIGITS;
    }
#undef BENCH_DIGITS
    return true;
}

/* Skips the value of an unknown member. */
static bool bench_skip(struct bench_json *in, int depth) {
    bench_space(in);
    if (in->at == in->end || depth > BENCH_DEPTH_MAX) return false;
    size_t left = (size_t)(in->end - in->at);
    switch (*in->at) {
    case '"': in->at++; return bench_string(in, NULL);
    case 't': in->at += 4; return left >= 4 && memcmp(in->at - 4, "true", 4) == 0;
    case 'n': in->at += 4; return left >= 4 && memcmp(in->at - 4, "null", 4) == 0;
    case 'f': in->at += 5; return left >= 5 && memcmp(in->at - 5, "false", 5) == 0;
    case '[':
        in->at++;
        if (bench_is(in, ']')) return true;
        do
            if (!bench_skip(in, depth + 1)) return false;
        while (bench_is(in, ','));
        return bench_is(in, ']');
    case '{':
        in->at++;
        if (bench_is(in, '}')) return true;
        do
            if (!bench_is(in, '"') || !bench_string(in, NULL) || !bench_is(in, ':') ||
                !bench_skip(in, depth + 1))
                return false;
        while (bench_is(in, ','));
        return bench_is(in, '}');
    default: return bench_skip_number(in);
    }
}

/* ---- the endpoints ------------------------------------------------------- */

static void bench_put_string(struct bench_text *out, const struct bench_text *value) {
    BENCH_PUT(out, "\"");
    size_t clean = 0;
    for (size_t i = 0; i < value->length; i++) {
        unsigned char c = (unsigned char)value->at[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        bench_put(out, value->at + clean, i - clean);
        clean = i + 1;
        switch (c) {
        case '"': BENCH_PUT(out, "\\\""); break;
        case '\\': BENCH_PUT(out, "\\\\"); break;
        case '\b': BENCH_PUT(out, "\\b"); break;
        case '\t': BENCH_PUT(out, "\\t"); break;
        case '\n': BENCH_PUT(out, "\\n"); break;
        case '\f': BENCH_PUT(out, "\\f"); break;
        case '\r': BENCH_PUT(out, "\\r"); break;
        default: {
            char code[7];
            snprintf(code, sizeof code, "\\u%04x", c);
            bench_put(out, code, 6);
        }
        }
    }
    bench_put(out, value->at + clean, value->length - clean);
    BENCH_PUT(out, "\"");
}

/* Reads one object and writes its response. */
static bool bench_object(struct bench_json *in, struct bench_text *out) {
    enum { ID = 1, NAME = 2, TAGS = 4, VALUES = 8 };
    static struct bench_text member, name;
    uint64_t id = 0, tags = 0, count = 0;
    int64_t sum = 0, min = 0, max = 0;
    unsigned seen = 0;
    if (!bench_is(in, '{')) return false;
    name.length = 0;
    bool first = true;
    while (!bench_is(in, '}')) {
        if (!first && !bench_is(in, ',')) return false;
        first = false;
        member.length = 0;
        if (!bench_is(in, '"') || !bench_string(in, &member) || !bench_is(in, ':')) return false;
#define BENCH_NAMED(text)                                                                          \
    (member.length == sizeof text - 1 && memcmp(member.at, text, sizeof text - 1) == 0)
        unsigned which = BENCH_NAMED("id")       ? ID
                         : BENCH_NAMED("name")   ? NAME
                         : BENCH_NAMED("tags")   ? TAGS
                         : BENCH_NAMED("values") ? VALUES
                                                 : 0u;
#undef BENCH_NAMED
        if (seen & which) return false;
        seen |= which;
        bool minus = false;
        switch (which) {
        case ID:
            if (!bench_number(in, &id, &minus) || minus) return false;
            break;
        case NAME:
            if (!bench_is(in, '"') || !bench_string(in, &name)) return false;
            break;
        case TAGS:
            if (!bench_is(in, '[')) return false;
            if (bench_is(in, ']')) break;
            do {
                if (!bench_is(in, '"') || !bench_string(in, NULL)) return false;
                tags++;
            } while (bench_is(in, ','));
            if (!bench_is(in, ']')) return false;
            break;
        case VALUES:
            if (!bench_is(in, '[')) return false;
            if (bench_is(in, ']')) break;
            do {
                int64_t value;
                if (!bench_i64(in, &value)) return false;
                if (__builtin_add_overflow(sum, value, &sum)) return false;
                if (count == 0 || value < min) min = value;
                if (count == 0 || value > max) max = value;
                count++;
            } while (bench_is(in, ','));
            if (!bench_is(in, ']')) return false;
            break;
        default:
            if (!bench_skip(in, 0)) return false;
        }
    }
    if (seen != (ID | NAME | TAGS | VALUES)) return false;
    BENCH_PUT(out, "{\"id\":");
    bench_put_number(out, id);
    BENCH_PUT(out, ",\"name\":");
    bench_put_string(out, &name);
    BENCH_PUT(out, ",\"tags\":");
    bench_put_number(out, tags);
    BENCH_PUT(out, ",\"count\":");
    bench_put_number(out, count);
    BENCH_PUT(out, ",\"sum\":");
    bench_put_signed(out, sum);
    BENCH_PUT(out, ",\"min\":");
    bench_put_signed(out, min);
    BENCH_PUT(out, ",\"max\":");
    bench_put_signed(out, max);
    BENCH_PUT(out, "}");
    return true;
}

static void bench_error(struct bench_answer *answer, int status, const char *body) {
    answer->status = status;
    answer->type = "application/json";
    answer->body.length = 0;
    bench_put(&answer->body, body, strlen(body));
}

static void bench_post_json(const void *body, size_t length, struct bench_answer *answer) {
    struct bench_json in = {body, (const unsigned char *)body + length};
    bool good = bench_object(&in, &answer->body);
    bench_space(&in);
    if (!good || in.at != in.end) bench_error(answer, 400, "{\"error\":\"bad json\"}");
}

static void bench_cpu(const char *query, size_t length, struct bench_answer *answer) {
    uint64_t n = BENCH_N;
    if (query) {
        n = 0;
        bool good = length > 2 && length <= 10 && memcmp(query, "n=", 2) == 0;
        for (size_t i = 2; good && i < length; i++) {
            good = query[i] >= '0' && query[i] <= '9';
            n = n * 10 + (uint64_t)(query[i] - '0');
        }
        if (!good || n < 1 || n > BENCH_N_MAX) {
            bench_error(answer, 400, "{\"error\":\"bad n\"}");
            return;
        }
    }
    /* Byte i represents the number 2i + 1; 0: no divisor was found yet. */
    size_t odds = (size_t)(n + 1) / 2;
    unsigned char *divided = calloc(odds, 1);
    if (!divided) abort();
    for (size_t i = 1; (2 * i + 1) * (2 * i + 1) <= n; i++)
        if (!divided[i])
            for (size_t k = 2 * i * (i + 1); k < odds; k += 2 * i + 1) divided[k] = 1;
    uint64_t primes = 0, sum = 0xCBF29CE484222325u;
#define BENCH_PRIME(value)                                                                         \
    do {                                                                                           \
        uint32_t prime = (uint32_t)(value);                                                        \
        for (int b = 0; b < 32; b += 8) sum = (sum ^ (prime >> b & 0xFF)) * 0x100000001B3u;        \
        primes++;                                                                                  \
    } while (0)
    if (n >= 2) BENCH_PRIME(2);
    for (size_t i = 1; i < odds; i++)
        if (!divided[i]) BENCH_PRIME(2 * i + 1);
#undef BENCH_PRIME
    free(divided);
    char text[96];
    int written = snprintf(text, sizeof text, "{\"n\":%llu,\"primes\":%llu,\"fnv\":\"%016llx\"}",
                           (unsigned long long)n, (unsigned long long)primes,
                           (unsigned long long)sum);
    bench_put(&answer->body, text, (size_t)written);
}

#ifndef BENCH_WITHOUT_ZLIB
/* Inflates a whole stream. Returns 200, or the status of the error. */
static int bench_inflate(const void *body, size_t length, struct bench_text *plain) {
    static z_stream stream;
    static bool initialised;
    if (!initialised ? inflateInit(&stream) != Z_OK : inflateReset(&stream) != Z_OK) abort();
    initialised = true;
    stream.next_in = (Bytef *)(uintptr_t)body;
    stream.avail_in = (uInt)length;
    plain->length = 0;
    for (;;) {
        bench_room(plain, 4 * length + 4096);
        stream.next_out = (Bytef *)plain->at + plain->length;
        stream.avail_out = (uInt)(plain->room - plain->length);
        int got = inflate(&stream, Z_NO_FLUSH);
        plain->length = plain->room - stream.avail_out;
        if (plain->length > BENCH_PLAIN_MAX) return 413;
        if (got == Z_STREAM_END) return stream.avail_in == 0 ? 200 : 400;
        if (got != Z_OK || (stream.avail_in == 0 && stream.avail_out != 0)) return 400;
    }
}

static void bench_post_zlib(const void *body, size_t length, struct bench_answer *answer) {
    static struct bench_text plain, items;
    static z_stream stream;
    static bool initialised;
    int status = bench_inflate(body, length, &plain);
    if (status != 200) {
        bench_error(answer, status,
                    status == 413 ? "{\"error\":\"too large\"}" : "{\"error\":\"bad zlib\"}");
        return;
    }
    struct bench_json in = {(unsigned char *)plain.at, (unsigned char *)plain.at + plain.length};
    items.length = 0;
    BENCH_PUT(&items, "[");
    bool good = bench_is(&in, '[');
    if (good && !bench_is(&in, ']')) {
        for (;;) {
            good = bench_object(&in, &items);
            if (!good || !bench_is(&in, ',')) break;
            BENCH_PUT(&items, ",");
        }
        good = good && bench_is(&in, ']');
    }
    BENCH_PUT(&items, "]");
    bench_space(&in);
    if (!good || in.at != in.end) {
        bench_error(answer, 400, "{\"error\":\"bad json\"}");
        return;
    }
    if (!initialised ? deflateInit(&stream, 6) != Z_OK : deflateReset(&stream) != Z_OK) abort();
    initialised = true;
    bench_room(&answer->body, deflateBound(&stream, items.length));
    stream.next_in = (Bytef *)items.at;
    stream.avail_in = (uInt)items.length;
    stream.next_out = (Bytef *)answer->body.at;
    stream.avail_out = (uInt)answer->body.room;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) abort();
    answer->body.length = answer->body.room - stream.avail_out;
    answer->type = "application/zlib";
}
#endif

static bool bench_same(const char *text, size_t length, const char *other) {
    return strlen(other) == length && memcmp(text, other, length) == 0;
}

/* Responds to a request; `query` is NULL if the path has no question mark. */
static void bench_answer(const char *method, size_t method_length, const char *path,
                         size_t path_length, const char *query, size_t query_length,
                         const void *body, size_t length, struct bench_answer *answer) {
    bool get = bench_same(method, method_length, "GET");
    bool post = bench_same(method, method_length, "POST");
    answer->status = 200;
    answer->type = "application/json";
    answer->allow = NULL;
    answer->body.length = 0;
#define BENCH_ON(other) bench_same(path, path_length, "/bench/" other)
    if (BENCH_ON("json")) {
        answer->allow = get || post ? NULL : "GET, POST";
        if (get) {
            BENCH_PUT(&answer->body, "{\"message\":");
            static const char hello[] = "Hello, World!";
            struct bench_text text = {(char *)(uintptr_t)hello, sizeof hello - 1, 0};
            bench_put_string(&answer->body, &text);
            BENCH_PUT(&answer->body, "}");
        } else if (post) {
            bench_post_json(body, length, answer);
        }
    } else if (BENCH_ON("echo")) {
        answer->allow = post ? NULL : "POST";
        answer->type = "application/octet-stream";
        if (post) bench_put(&answer->body, body, length);
    } else if (BENCH_ON("cpu")) {
        answer->allow = get ? NULL : "GET";
        if (get) bench_cpu(query, query_length, answer);
#ifndef BENCH_WITHOUT_ZLIB
    } else if (BENCH_ON("zlib")) {
        answer->allow = post ? NULL : "POST";
        if (post) bench_post_zlib(body, length, answer);
#endif
    } else {
        bench_error(answer, 404, "{\"error\":\"not found\"}");
    }
#undef BENCH_ON
    if (answer->allow) bench_error(answer, 405, "{\"error\":\"method\"}");
}

#endif
