/* Shared parts of the C and C++ peers of the lab: the loop that answers the
 * requests of the lab, clocks, the content hash and the count of allocations.
 * crates/weir-lab/src/protocol.rs describes the protocol.
 *
 * A peer defines `peer_load`, `peer_check` and `peer_run` and calls
 * `peer_serve`. Include this file once per program. */
#ifndef WEIR_LAB_PEER_H
#define WEIR_LAB_PEER_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PEER_INPUTS_MAX = 4096, PEER_LINE_MAX = 65536 };

/* Answer to `check`. */
struct peer_answer {
    uint64_t content, touch, allocations, bytes;
};

/* Answer to `run`; `extra` is empty or begins with a TAB. */
struct peer_timed {
    uint64_t wall_ns, cpu_ns, touch;
    char extra[512];
};

/* Each returns NULL, or an error text. `fields` is the rest of the line:
 * name=value words separated by TAB; see peer_field. */
static const char *peer_load(unsigned input, const char *fields);
static const char *peer_check(unsigned input, struct peer_answer *answer);
static const char *peer_run(unsigned input, uint64_t iterations, struct peer_timed *timed);

static inline uint64_t peer_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t peer_wall(void) { return peer_clock(CLOCK_MONOTONIC); }
static inline uint64_t peer_cpu(void) { return peer_clock(CLOCK_PROCESS_CPUTIME_ID); }

/* FNV-1a, and the hashes of parts of a packet. */
static inline uint64_t peer_fnv(uint64_t sum, const void *bytes, size_t length) {
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t i = 0; i < length; i++) sum = (sum ^ at[i]) * 0x100000001B3u;
    return sum;
}
static inline uint64_t peer_part(char kind, const void *bytes, size_t length) {
    return peer_fnv(peer_fnv(0xCBF29CE484222325u, &kind, 1), bytes, length);
}
static inline uint64_t peer_pair(char kind, const void *name, size_t name_length,
                                 const void *value, size_t value_length) {
    uint64_t sum = peer_fnv(peer_part(kind, name, name_length), "", 1);
    return peer_fnv(sum, value, value_length);
}

/* The value that a touched slice adds to the sum. */
static inline uint64_t peer_touch(const void *bytes, size_t length) {
    const unsigned char *at = (const unsigned char *)bytes;
    return length == 0 ? 0 : length + at[0] + at[length - 1];
}

/* Copies the value of field `name` to `into`; returns 0 if there is none. */
static inline int peer_field(const char *fields, const char *name, char *into, size_t room) {
    size_t length = strlen(name);
    while (fields && *fields) {
        const char *end = strchr(fields, '\t');
        size_t word = end ? (size_t)(end - fields) : strlen(fields);
        if (word > length && fields[length] == '=' && memcmp(fields, name, length) == 0) {
            size_t value = word - length - 1;
            if (value >= room) return 0;
            memcpy(into, fields + length + 1, value);
            into[value] = 0;
            return 1;
        }
        fields = end ? end + 1 : NULL;
    }
    return 0;
}

/* Counts allocations: these functions replace those of the C library and forward to
 * its internal names. They count only during a check. */
static int peer_counting;
static uint64_t peer_calls, peer_bytes;
#ifdef __cplusplus
extern "C" {
#endif
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static inline void peer_note(size_t size) {
    if (__builtin_expect(peer_counting, 0)) {
        peer_calls++;
        peer_bytes += size;
    }
}
void *malloc(size_t size) {
    peer_note(size);
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
    peer_note(count * size);
    return __libc_calloc(count, size);
}
void *realloc(void *pointer, size_t size) {
    peer_note(size);
    return __libc_realloc(pointer, size);
}
#ifdef __cplusplus
}
#endif

/* Prints a greeting with `versions` (empty, or name=value words, each after a TAB),
 * and responds to requests until the input ends. */
static int peer_serve(const char *versions) {
#if defined(__OPTIMIZE__) && defined(NDEBUG)
    const char *profile = "optimised";
#else
    const char *profile = "not optimised";
#endif
    static char line[PEER_LINE_MAX];
    printf("hello\t1\tprofile=%s\tcompiler=%s%s\n", profile, __VERSION__, versions);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        const char *wrong = NULL;
        unsigned input = 0;
        uint64_t iterations = 0;
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "quit") == 0) break;
        if (sscanf(line, "load\t%u%n", &input, &at) == 1 && at > 0) {
            wrong = input < PEER_INPUTS_MAX ? peer_load(input, line + at + (line[at] == '\t'))
                                            : "input number too large";
            if (!wrong) printf("ok\n");
        } else if (sscanf(line, "check\t%u", &input) == 1) {
            struct peer_answer a;
            memset(&a, 0, sizeof a);
            wrong = input < PEER_INPUTS_MAX ? peer_check(input, &a) : "input number too large";
            if (!wrong)
                printf("answer\t%016" PRIx64 "\t%" PRIx64 "\t%" PRIu64 "\t%" PRIu64 "\n", a.content,
                       a.touch, a.allocations, a.bytes);
        } else if (sscanf(line, "run\t%u\t%" SCNu64, &input, &iterations) == 2) {
            static struct peer_timed t;
            memset(&t, 0, sizeof t);
            wrong = input < PEER_INPUTS_MAX ? peer_run(input, iterations, &t)
                                            : "input number too large";
            if (!wrong)
                printf("time\t%" PRIu64 "\t%" PRIu64 "\t%" PRIx64 "%s\n", t.wall_ns, t.cpu_ns,
                       t.touch, t.extra);
        } else {
            wrong = "malformed line";
        }
        if (wrong) printf("error\t%s\n", wrong);
        fflush(stdout);
    }
    return 0;
}

#endif
