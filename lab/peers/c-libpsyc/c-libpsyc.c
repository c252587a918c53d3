/* libpsyc, if it is installed: a new parser state for each packet. The project neither ships nor builds that library,
 * which has the AGPL; this program only calls its documented functions.
 *
 * Every name and value is touched. The hash of the content is that of crates/weir-lab/src/contender/wire.rs. */
#include "../peer.h"

#include <psyc.h>
#include <psyc/parse.h>

static struct packet {
    char *bytes;
    size_t length;
} packets[PEER_INPUTS_MAX];

/* Receives a part of a packet: `kind` is `v` for a variable, or `m` for method and data. */
typedef const char *visitor(char kind, char operation, PsycString name, PsycString value, uint64_t *sum);

/* Parses a packet and adds its parts to `sum`. */
static inline const char *parse(const struct packet *packet, visitor *visit, uint64_t *sum) {
    PsycParseState state;
    psyc_parse_state_init(&state, PSYC_PARSE_ALL);
    psyc_parse_buffer_set(&state, packet->bytes, packet->length);
    for (;;) {
        char operation = 0;
        PsycString name = {0}, value = {0};
        const char *wrong = NULL;
        switch (psyc_parse(&state, &operation, &name, &value)) {
        case PSYC_PARSE_ROUTING:
        case PSYC_PARSE_ENTITY: wrong = visit('v', operation, name, value, sum); break;
        case PSYC_PARSE_BODY: wrong = visit('m', 0, name, value, sum); break;
        case PSYC_PARSE_COMPLETE: return NULL;
        default: return "the peer refused the input";
        }
        if (wrong) return wrong;
    }
}

static inline const char *touched(char kind, char operation, PsycString name, PsycString value, uint64_t *sum) {
    (void)kind;
    *sum += (unsigned char)operation + peer_touch(name.ptr, name.length) + peer_touch(value.ptr, value.length);
    return NULL;
}

static const char *hashed(char kind, char operation, PsycString name, PsycString value, uint64_t *sum) {
    if (kind == 'm') {
        *sum += peer_part('m', name.ptr, name.length);
        if (value.length) *sum += peer_part('d', value.ptr, value.length);
        return NULL;
    }
    char full[512] = {operation};
    if (name.length >= sizeof full) return "a name is too long";
    memcpy(full + 1, name.ptr, name.length);
    *sum += peer_pair('v', full, name.length + 1, value.ptr, value.length);
    return NULL;
}

static const char *peer_load(unsigned input, const char *fields) {
    char path[4096];
    if (!peer_field(fields, "file", path, sizeof path)) return "no file";
    FILE *file = fopen(path, "rb");
    if (!file) return "cannot open the file";
    struct packet *packet = &packets[input];
    free(packet->bytes);
    packet->bytes = NULL;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    if (length > 0) packet->bytes = malloc((size_t)length);
    packet->length = packet->bytes ? fread(packet->bytes, 1, (size_t)length, file) : 0;
    fclose(file);
    return length > 0 && packet->length == (size_t)length ? NULL : "cannot read the file";
}

static const char *peer_check(unsigned input, struct peer_answer *answer) {
    const struct packet *packet = &packets[input];
    if (!packet->bytes) return "input was not loaded";
    const char *wrong = parse(packet, hashed, &answer->content);
    if (wrong) return wrong;
    uint64_t calls = peer_calls, bytes = peer_bytes;
    peer_counting = 1;
    wrong = parse(packet, touched, &answer->touch);
    peer_counting = 0;
    answer->allocations = peer_calls - calls;
    answer->bytes = peer_bytes - bytes;
    return wrong;
}

static const char *peer_run(unsigned input, uint64_t iterations, struct peer_timed *timed) {
    const struct packet *packet = &packets[input];
    uint64_t ignored = 0;
    if (!packet->bytes) return "input was not loaded";
    for (uint64_t i = 0; i < iterations / 16; i++) parse(packet, touched, &ignored);
    uint64_t cpu = peer_cpu(), wall = peer_wall();
    for (uint64_t i = 0; i < iterations; i++) {
        __asm__ volatile("" : : "r"(packet->bytes) : "memory");
        const char *wrong = parse(packet, touched, &timed->touch);
        if (wrong) return wrong;
    }
    timed->wall_ns = peer_wall() - wall;
    timed->cpu_ns = peer_cpu() - cpu;
    return NULL;
}

int main(void) { return peer_serve("\tlibpsyc=" LIBPSYC_VERSION); }
