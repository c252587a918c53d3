/* The codec of Weir from C, through weir_psyc.h and the shared library. The first argument is `fresh` (a
 * new parser for each packet) or `stream` (one parser for all packets).
 *
 * One call returns all events of a packet. Every name and value is touched. The hash of the content is that of
 * crates/weir-lab/src/contender/wire.rs. */
#include "../peer.h"

#include <weir_psyc.h>

enum { EVENTS = 64 };

static struct packet {
    uint8_t *bytes;
    size_t length;
} packets[PEER_INPUTS_MAX];

static int fresh;
static weir_psyc_parser parser = {.struct_size = sizeof parser};

/* Returns the number of events of a packet; 0 if the parser rejects it. */
static inline size_t events_of(const struct packet *packet, weir_psyc_event *events) {
    weir_slice bytes = {packet->bytes, packet->length};
    size_t count, used;
    if (fresh && weir_psyc_parser_init(&parser, NULL, NULL) != WEIR_OK) return 0;
    int32_t done = weir_psyc_parser_read(&parser, bytes, events, EVENTS, &count, &used, NULL);
    return done == WEIR_READY ? count : 0;
}

static inline int pass(const struct packet *packet, uint64_t *touch) {
    weir_psyc_event events[EVENTS];
    size_t count = events_of(packet, events);
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += events[i].operation;
        sum += peer_touch(events[i].name.ptr, events[i].name.len);
        sum += peer_touch(events[i].value.ptr, events[i].value.len);
    }
    *touch = sum;
    return count != 0;
}

static const char *peer_load(unsigned input, const char *fields) {
    char path[4096];
    if (!peer_field(fields, "file", path, sizeof path)) return "parameter `file` is missing";
    FILE *file = fopen(path, "rb");
    if (!file) return "the file cannot be read";
    struct packet *packet = &packets[input];
    size_t room = 1 << 16;
    packet->length = 0;
    free(packet->bytes);
    packet->bytes = malloc(room);
    for (;;) {
        if (!packet->bytes) abort();
        size_t got = fread(packet->bytes + packet->length, 1, room - packet->length, file);
        packet->length += got;
        if (packet->length < room) break;
        packet->bytes = realloc(packet->bytes, room *= 2);
    }
    fclose(file);
    return NULL;
}

static const char *peer_check(unsigned input, struct peer_answer *answer) {
    const struct packet *packet = &packets[input];
    weir_psyc_event events[EVENTS];
    if (!packet->bytes) return "input was not loaded";
    size_t count = events_of(packet, events);
    if (!count) return "the peer refused the input";
    for (size_t i = 0; i < count; i++) {
        const weir_psyc_event *at = &events[i];
        if (at->kind == WEIR_PSYC_BODY) {
            answer->content += peer_part('m', at->name.ptr, at->name.len);
            if (at->value.len) answer->content += peer_part('d', at->value.ptr, at->value.len);
        } else if (at->kind != WEIR_PSYC_COMPLETE) {
            char name[512] = {(char)at->operation};
            if (at->name.len >= sizeof name) return "a name is too long";
            memcpy(name + 1, at->name.ptr, at->name.len);
            answer->content += peer_pair('v', name, at->name.len + 1, at->value.ptr, at->value.len);
        }
    }
    uint64_t calls = peer_calls, bytes = peer_bytes;
    peer_counting = 1;
    int good = pass(packet, &answer->touch);
    peer_counting = 0;
    answer->allocations = peer_calls - calls;
    answer->bytes = peer_bytes - bytes;
    return good ? NULL : "the peer refused the input";
}

static const char *peer_run(unsigned input, uint64_t iterations, struct peer_timed *timed) {
    const struct packet *packet = &packets[input];
    uint64_t touch = 0;
    if (!packet->bytes) return "input was not loaded";
    for (uint64_t i = 0; i < iterations / 16; i++) pass(packet, &touch);
    uint64_t cpu = peer_cpu(), wall = peer_wall();
    for (uint64_t i = 0; i < iterations; i++) {
        __asm__ volatile("" : : "r"(packet->bytes) : "memory");
        if (!pass(packet, &touch)) return "the peer refused the input";
        timed->touch += touch;
    }
    timed->wall_ns = peer_wall() - wall;
    timed->cpu_ns = peer_cpu() - cpu;
    return NULL;
}

int main(int argc, char **argv) {
    char version[256];
    fresh = argc == 2 && strcmp(argv[1], "fresh") == 0;
    if (argc != 2 || (!fresh && strcmp(argv[1], "stream") != 0)) {
        fputs("usage: c-weir fresh|stream\n", stderr);
        return 2;
    }
    if (!strstr(weir_build_info(), "profile=release")) {
        fputs("c-weir: the C library is not a release build\n", stderr);
        return 1;
    }
    if (weir_psyc_parser_init(&parser, NULL, NULL) != WEIR_OK) return 1;
    snprintf(version, sizeof version, "\tweir=%s", weir_build_info());
    return peer_serve(version);
}
