/*
 * Passes random bytes to all functions of the codec. Checks that nothing is read or written out of bounds, that the
 * events and the error do not depend on the pieces, and that every loop makes progress.
 *
 *     psyc_fuzz ROUNDS SEED [FILE...]      mutates the files, or built-in texts
 *
 * Input and output end at the end of a page that precedes an inaccessible page. This also detects an error in a
 * library that was built without sanitizers. With -DLIBFUZZER, the fuzzer calls LLVMFuzzerTestOneInput. With
 * -DCOUNT_ALLOCATIONS, the program also checks that no call of the codec allocates memory.
 */
#define _DEFAULT_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <weir_psyc.h>

#ifdef COUNT_ALLOCATIONS
#include "allocations.h"
#endif

#define CHECK(it) ((it) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #it), abort()))

enum { GUARDED = 1 << 16, CAPACITY = 16 };

/* The end of the accessible memory; the memory after it must not be accessed. */
static uint8_t *map_guarded(void)
{
    uint8_t *at = mmap(NULL, 2 * GUARDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(mprotect(at + GUARDED, GUARDED, PROT_NONE) == 0);
    return at + GUARDED;
}

static uint8_t *input_end, *output_end;

/* A copy of the bytes that ends where the accessible memory ends. */
static weir_slice place_input(const uint8_t *from, size_t len)
{
    if (len)
        memcpy(input_end - len, from, len);
    return (weir_slice){input_end - len, len};
}

static uint64_t hash(uint64_t sum, const void *from, size_t len)
{
    const uint8_t *at = from;
    while (len--)
        sum = (sum ^ *at++) * 0x100000001b3u;
    return sum;
}

static void check_inside(weir_slice part, weir_slice of)
{
    if (part.len)
        CHECK(part.ptr >= of.ptr && part.len <= of.len && (size_t)(part.ptr - of.ptr) <= of.len - part.len);
}

/* A hash of the joined events, the error and the end of a stream. */
static uint64_t parse_hash(uint32_t mode, const uint8_t *from, size_t len, size_t piece, size_t capacity)
{
    weir_psyc_parser parser = {.struct_size = sizeof parser};
    weir_psyc_parser_options options = {.struct_size = sizeof options, .mode = mode};
    weir_psyc_event events[CAPACITY];
    weir_error error;
    /* A value in parts counts only after its last part, because an error may occur before it. */
    uint64_t sum = 0xcbf29ce484222325u, open = sum;
    size_t used = 0, available = 0, count = 0, now = 0;
    if (mode == WEIR_PSYC_BARE_CONTENT)
        options.content_length = len;
    CHECK(weir_psyc_parser_init(&parser, &options, NULL) == WEIR_OK);
    for (size_t calls = 0;; calls++) {
        CHECK(calls <= 8 * len + 8);
        weir_slice rest = place_input(from + used, available - used);
        int32_t done = weir_psyc_parser_read(&parser, rest, events, capacity, &count, &now, &error);
        if (done < 0) {
            CHECK(done == WEIR_E_PROTOCOL && error.offset < len);
            CHECK(weir_psyc_parser_read(&parser, rest, events, capacity, &count, &now, NULL) == done);
            return hash(hash(sum, &error.detail, sizeof error.detail), &error.offset, sizeof error.offset);
        }
        CHECK(count <= capacity && now <= rest.len);
        for (size_t at = 0; at < count; at++) {
            check_inside(events[at].name, rest);
            check_inside(events[at].value, rest);
            uint16_t kind = events[at].kind;
            uint8_t part = kind >= WEIR_PSYC_ENTITY && kind < WEIR_PSYC_COMPLETE ? (uint8_t)((kind - WEIR_PSYC_ENTITY) % 4) : 0;
            uint16_t whole = (uint16_t)(kind - part);
            if (part < 2) {
                open = hash(sum, &whole, sizeof whole);
                open = hash(open, &events[at].sized, 1);
                open = hash(open, events[at].name.ptr, events[at].name.len);
            }
            open = hash(open, events[at].value.ptr, events[at].value.len);
            if (part == 0 || part == 3)
                sum = open;
        }
        used += now;
        weir_psyc_parser_info info = {.struct_size = sizeof info};
        CHECK(weir_psyc_parser_describe(&parser, &info, NULL) == WEIR_OK && info.offset == used);
        if (done == WEIR_NEED && available == len)
            return sum;
        if (done == WEIR_NEED)
            available = available + piece < len ? available + piece : len;
    }
}

/* A hash of the joined elements of a list, and of its error. */
static uint64_t list_hash(const uint8_t *from, size_t len, size_t piece, size_t capacity)
{
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_LIST};
    weir_psyc_part parts[CAPACITY];
    weir_error error;
    /* An element in parts counts only after its last part, because an error may occur before it. */
    uint64_t sum = 0xcbf29ce484222325u, open = sum;
    size_t used = 0, available = 0, count = 0, now = 0;
    for (size_t calls = 0;; calls++) {
        CHECK(calls <= 8 * len + 8);
        weir_slice rest = place_input(from + used, available - used);
        cursor.partial = available < len;
        int32_t done = weir_psyc_walk(&cursor, rest, parts, capacity, &count, &now, &error);
        if (done < 0) {
            CHECK(done == WEIR_E_PROTOCOL && error.offset <= len);
            CHECK(weir_psyc_walk(&cursor, rest, parts, capacity, &count, &now, NULL) == done);
            return hash(hash(sum, &error.detail, sizeof error.detail), &error.offset, sizeof error.offset);
        }
        CHECK(count <= capacity && now <= rest.len);
        for (size_t at = 0; at < count; at++) {
            uint32_t kind = parts[at].kind;
            check_inside(parts[at].type, rest);
            check_inside(parts[at].value, rest);
            if (kind <= WEIR_PSYC_ELEM_START) {
                uint32_t whole = kind == WEIR_PSYC_ELEM_START ? WEIR_PSYC_ELEM : kind;
                open = hash(sum, &whole, sizeof whole);
                open = hash(open, &parts[at].sized, sizeof parts[at].sized);
                open = hash(open, parts[at].type.ptr, parts[at].type.len);
            }
            open = hash(open, parts[at].value.ptr, parts[at].value.len);
            if (kind != WEIR_PSYC_ELEM_START && kind != WEIR_PSYC_ELEM_CONT)
                sum = open;
        }
        used += now;
        if (done == WEIR_DONE) {
            CHECK(used == len);
            return sum;
        }
        if (done == WEIR_NEED) {
            CHECK(available < len);
            available = available + piece < len ? available + piece : len;
        }
    }
}

static void walk(const uint8_t *from, size_t len)
{
    weir_slice all = place_input(from, len);
    weir_psyc_part parts[CAPACITY];
    for (uint32_t what = WEIR_PSYC_LIST; what <= WEIR_PSYC_TABLE; what++) {
        if (what == WEIR_PSYC_TEXT || what == WEIR_PSYC_STRUCT)
            continue;
        weir_psyc_cursor cursor = {.what = what};
        weir_slice rest = all;
        size_t count, used, calls = 0;
        int32_t done;
        do {
            CHECK(calls++ <= 2 * len + 4);
            done = weir_psyc_walk(&cursor, rest, parts, 1 + len % CAPACITY, &count, &used, NULL);
            if (done < 0)
                break;
            CHECK(used <= rest.len);
            for (size_t at = 0; at < count; at++) {
                check_inside(parts[at].type, rest);
                check_inside(parts[at].value, rest);
            }
            rest = (weir_slice){rest.ptr + used, rest.len - used};
        } while (done != WEIR_DONE);
        /* A cursor with arbitrary state. */
        if (len >= sizeof cursor.state)
            memcpy(cursor.state, from, sizeof cursor.state);
        done = weir_psyc_walk(&cursor, all, parts, CAPACITY, &count, &used, NULL);
        CHECK(done > 0 || done == WEIR_E_PROTOCOL);
    }
    /* The first half of the bytes serves as the declaration for all of them. */
    weir_slice declaration = {all.ptr, len / 2};
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_STRUCT};
    size_t count, calls = 0;
    int32_t done;
    do {
        CHECK(calls++ <= 2 * len + 4);
        done = weir_psyc_walk_struct(&cursor, declaration, all, parts, 1 + len % CAPACITY, &count, NULL);
        for (size_t at = 0; done > 0 && at < count; at++) {
            check_inside(parts[at].type, all);
            check_inside(parts[at].value, all);
        }
    } while (done == WEIR_OK);
    if (len >= sizeof cursor.state)
        memcpy(cursor.state, from, sizeof cursor.state);
    done = weir_psyc_walk_struct(&cursor, declaration, all, parts, CAPACITY, &count, NULL);
    CHECK(done > 0 || done == WEIR_E_PROTOCOL);
}

/* Calls a render function for the size, with one byte less than this size, and with the size. */
#define CHECK_RENDER(function, ...)                                                                            \
    do {                                                                                                       \
        size_t size_ = 0, again_;                                                                              \
        int32_t done_ = function(__VA_ARGS__, NULL, 0, &size_, NULL);                                          \
        CHECK(done_ == WEIR_OK || done_ == WEIR_NEED || done_ == WEIR_E_BAD_REQUEST || done_ == WEIR_E_BAD_OPTION); \
        if (done_ == WEIR_NEED) {                                                                              \
            CHECK(size_ > 0 && size_ < GUARDED);                                                               \
            uint8_t *out_ = output_end - size_;                                                                \
            CHECK(function(__VA_ARGS__, out_ + 1, size_ - 1, &again_, NULL) == WEIR_NEED && again_ == size_);  \
            CHECK(function(__VA_ARGS__, out_, size_, &again_, NULL) == WEIR_OK && again_ == size_);            \
        }                                                                                                      \
    } while (0)

enum { PARTS = 6 };

/* Cuts the input: each byte at the start of a part is its length. */
static void cut_parts(weir_slice all, weir_slice *part)
{
    size_t at = 0;
    for (int which = 0; which < PARTS && at < all.len; which++) {
        size_t want = all.ptr[at++] % 24;
        if (want > all.len - at)
            want = all.len - at;
        part[which] = (weir_slice){all.ptr + at, want};
        at += want;
    }
}

static void render_packet(const weir_psyc_packet *packet)
{
    weir_psyc_sizes sizes = {.struct_size = sizeof sizes};
    size_t size = 0, count, used;
    CHECK_RENDER(weir_psyc_render, packet);
    int32_t done = weir_psyc_render(packet, NULL, 0, &size, NULL);
    CHECK((weir_psyc_measure(packet, &sizes, NULL) == WEIR_OK) == (done == WEIR_NEED));
    if (done != WEIR_NEED)
        return;
    CHECK(sizes.total == size && sizes.routing <= size && sizes.content <= size);
    if (packet->flags & WEIR_PSYC_PACKET_RAW)
        return; /* the bytes of a raw content need not be valid */
    weir_psyc_parser parser = {.struct_size = sizeof parser};
    weir_psyc_event events[CAPACITY];
    CHECK(weir_psyc_parser_init(&parser, NULL, NULL) == WEIR_OK);
    do
        done = weir_psyc_parser_read(&parser, (weir_slice){output_end - size, size}, events, CAPACITY, &count, &used, NULL);
    while (done == WEIR_OK);
    CHECK(done == WEIR_READY && used == size);
}

/* Renders parts of the input as packets and values. */
static void render(const uint8_t *from, size_t len)
{
    weir_slice all = place_input(from, len), part[PARTS] = {{0}};
    weir_psyc_modifier modifiers[2];
    weir_psyc_item items[2];
    weir_psyc_step steps[3];
    cut_parts(all, part);
    uint32_t flags = len ? all.ptr[len - 1] : 0;
    for (uint32_t which = 0; which < 2; which++) {
        modifiers[which] = (weir_psyc_modifier){":=+-@?!x"[flags % 8], flags / 8 % 4, part[2 * which], part[2 * which + 1]};
        items[which] = (weir_psyc_item){.type = part[2 * which], .value = part[2 * which + 1], .length = flags / 32 % 4};
    }
    for (uint32_t which = 0; which < 3; which++)
        steps[which] = (weir_psyc_step){.kind = WEIR_PSYC_KEY + (flags + which) % 4, .length = flags / 16 % 4, .number = flags, .name = part[which]};
    weir_psyc_packet packet = {.struct_size = sizeof packet, .routing = modifiers, .routing_count = flags % 3,
                               .entity = modifiers, .entity_count = flags / 3 % 3, .method = part[4], .data = part[5],
                               .length = flags / 64, .state = (uint8_t)"\0=?x"[flags / 4 % 4]};
    render_packet(&packet);
    weir_psyc_packet raw = {.struct_size = sizeof raw, .flags = WEIR_PSYC_PACKET_RAW | WEIR_PSYC_PACKET_THRESHOLD, .threshold = flags,
                            .routing = modifiers, .routing_count = flags % 3, .length = flags / 64, .content = part[5]};
    render_packet(&raw);
    CHECK_RENDER(weir_psyc_render_modifier, modifiers, flags);
    CHECK_RENDER(weir_psyc_render_list, part[5], items, 2, flags);
    weir_psyc_entry entry = {.key = part[4], .key_length = flags / 2 % 4, .value = items[0]};
    CHECK_RENDER(weir_psyc_render_dict, part[5], &entry, 1, flags);
    CHECK_RENDER(weir_psyc_render_key, part[4], flags % 4, flags);
    CHECK_RENDER(weir_psyc_render_value, items, flags);
    CHECK_RENDER(weir_psyc_render_index, steps, flags % 4, flags);
    CHECK_RENDER(weir_psyc_render_update, steps, flags % 4, ":=+-@?!x"[flags % 8], items, flags);
    weir_psyc_packet_id id = {part[0], part[1], part[2], part[3], part[4]}, back;
    CHECK_RENDER(weir_psyc_render_packet_id, &id);
    size_t size;
    weir_psyc_render_packet_id(&id, output_end - GUARDED, GUARDED, &size, NULL);
    CHECK(weir_psyc_parse_packet_id((weir_slice){output_end - GUARDED, size}, &back, NULL) == WEIR_OK);
    CHECK(back.fragment.len == id.fragment.len && (!id.fragment.len || !memcmp(back.fragment.ptr, id.fragment.ptr, id.fragment.len)));
}

/* Fills the input as a template, with a small buffer. */
static void fill_template(const uint8_t *from, size_t len)
{
    weir_slice all = place_input(from, len), part[PARTS] = {{0}};
    size_t windows = 0, size;
    int32_t done;
    cut_parts(all, part);
    weir_psyc_template template = {.struct_size = sizeof template, .text = all};
    weir_psyc_binding binding = {part[0], part[1]};
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_TEXT};
    do {
        CHECK(windows++ <= 32 * len + 4);
        done = weir_psyc_render_text(&template, &cursor, &binding, 1, output_end - 7, 7, &size, NULL);
        CHECK(done > 0 && size <= 7);
    } while (done == WEIR_NEED);
}

/* Passes the input as a name, a number and an address. */
static void parse_names(const uint8_t *from, size_t len)
{
    weir_slice all = place_input(from, len), part[PARTS] = {{0}}, out;
    weir_psyc_uniform uniform = {.struct_size = sizeof uniform};
    weir_psyc_name name = {.struct_size = sizeof name};
    weir_psyc_packet_id id;
    int64_t integer;
    uint64_t position;
    uint32_t talk;
    size_t index;
    cut_parts(all, part);
    for (uint32_t any = 0; any < 2; any++)
        if (weir_psyc_parse_uniform(all, any, &uniform, NULL) == WEIR_OK)
            check_inside(uniform.body, all);
    if (weir_psyc_parse_packet_id(all, &id, NULL) == WEIR_OK)
        check_inside(id.fragment, all);
    CHECK(weir_psyc_describe_name(all, &name, NULL) == WEIR_OK);
    weir_psyc_standard_template(all, &out, NULL);
    weir_psyc_list_index(all, &position, NULL);
    weir_psyc_integer(all, &integer, NULL);
    if (weir_psyc_date(all, &integer, NULL) == WEIR_OK)
        weir_psyc_date_from_unix(integer, &integer, NULL);
    weir_psyc_talk(all, &talk, NULL);
    for (size_t at = 0; at < len; at++)
        CHECK(weir_psyc_byte(all.ptr[at]) < 64);
    for (int at = 0; at < 2; at++) {
        int32_t done = (at ? weir_psyc_matches : weir_psyc_inherits)(part[0], all, NULL);
        CHECK(done == WEIR_OK || done == WEIR_ABSENT || done == WEIR_E_PROTOCOL);
    }
    if (weir_psyc_lookup(part, PARTS, all, &index, NULL) == WEIR_OK)
        CHECK(index < PARTS);
    weir_psyc_compact compact = {part[0], part[1]};
    CHECK(weir_psyc_expand(&compact, 1, part[2], &out, NULL) == WEIR_OK);
    check_inside(out, all);
    CHECK(weir_psyc_contract(&compact, 1, out, &out, NULL) == WEIR_OK);
    check_inside(out, all);
}

int LLVMFuzzerTestOneInput(const uint8_t *from, size_t len)
{
    if (!input_end) {
        input_end = map_guarded();
        output_end = map_guarded();
    }
    if (len > 4096)
        len = 4096;
    for (uint32_t mode = WEIR_PSYC_FULL; mode <= WEIR_PSYC_BARE_CONTENT; mode++) {
        uint64_t whole = parse_hash(mode, from, len, len + 1, CAPACITY);
        CHECK(parse_hash(mode, from, len, 1, 1) == whole);
        CHECK(parse_hash(mode, from, len, 7, 2) == whole);
    }
    uint64_t list = list_hash(from, len, len + 1, CAPACITY);
    CHECK(list_hash(from, len, 1, 1) == list);
    CHECK(list_hash(from, len, 7, 2) == list);
    walk(from, len);
    render(from, len);
    fill_template(from, len);
    parse_names(from, len);
    return 0;
}

#ifndef LIBFUZZER
static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int count, char **words)
{
    static const char *seeds[] = {
        ":_source\tpsyc://a.example/~x\n:_tag\t7\n37\n=_note 9\ttwo\nlines\n_message\nMind it.\n|\n",
        "\n=\n=_list_a\t_t| a|3 b|c\n_m\n|x\n|\n|\n", "8\n:a 00\t\n_m\n|\n", "_t{k} v{3 a}b}=_u:2 xy", "#1{2 ab}._f =_t:3 abc",
        "_struct_m{a} | x| 1{b}=_struct:7 |=_u:1 y", "*2 |k1|a|b|k2|c|d", "|=_a|=_b|=_a x|1 y", "psyc://lock.example:4405d/@gauge#north", "Hello [_nick], [_none] and [][", "\x02_a\x03""abc\x02_m\x04""data\x02_t\x05",
    };
    unsigned long rounds = count > 2 ? strtoul(words[1], NULL, 10) : 0;
    state = count > 2 ? strtoull(words[2], NULL, 10) : 0;
    uint8_t bytes[4096];
    if (!rounds || !state) {
        fprintf(stderr, "psyc_fuzz ROUNDS SEED [FILE...]\n");
        return 2;
    }
    for (unsigned long round = 0; round < rounds; round++) {
        size_t len;
        if (count > 3) {
            FILE *file = fopen(words[3 + next() % (unsigned)(count - 3)], "rb");
            CHECK(file);
            len = fread(bytes, 1, sizeof bytes / 2, file);
            fclose(file);
        } else {
            const char *seed = seeds[next() % (sizeof seeds / sizeof *seeds)];
            memcpy(bytes, seed, len = strlen(seed));
        }
        for (uint64_t edits = next() % 6; edits; edits--) {
            size_t at = len ? next() % len : 0;
            switch (next() % 4) {
            case 0: if (len) bytes[at] = (uint8_t)next(); break;
            case 1: if (len) bytes[at] = (uint8_t)"\n\t |:=0129_a{}#.["[next() % 17]; break;
            case 2: if (len) memmove(bytes + at, bytes + at + 1, --len - at); break;
            default:
                if (len < sizeof bytes / 2) {
                    memmove(bytes + at + 1, bytes + at, len++ - at);
                    bytes[at] = (uint8_t)"\n\t |:=0129_a{}#.["[next() % 17];
                }
            }
        }
#ifdef COUNT_ALLOCATIONS
        if (round == 0)
            LLVMFuzzerTestOneInput(bytes, len); /* creates the data of this thread */
        unsigned long before = allocations;
        LLVMFuzzerTestOneInput(bytes, len);
        CHECK(allocations == before);
#else
        LLVMFuzzerTestOneInput(bytes, len);
#endif
    }
#ifdef COUNT_ALLOCATIONS
    unsigned long before = allocations;
    free(malloc(1));
    CHECK(allocations > before);
#endif
    printf("psyc_fuzz: %lu inputs\n", rounds);
    return 0;
}
#endif
