/*
 * Passes random bytes to the codec through its C interface. Checks that nothing is read or written out of
 * bounds, that the events and the error do not depend on the pieces, and that every loop makes progress.
 *
 *     psyc_fuzz ROUNDS [FILE...]      mutates the files, or built-in seeds
 *
 * Input and output end at the end of a page that precedes an inaccessible page. This also detects an error in a
 * library that was built without sanitizers. With -DLIBFUZZER, the fuzzer calls LLVMFuzzerTestOneInput.
 */
#define _DEFAULT_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <weir_psyc.h>

#define CHECK(it) ((it) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #it), abort()))

enum { GUARDED = 1 << 16, ROOM = 16 };

/* The end of the accessible memory; the memory after it must not be accessed. */
static uint8_t *guarded(void)
{
    uint8_t *at = mmap(NULL, 2 * GUARDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(mprotect(at + GUARDED, GUARDED, PROT_NONE) == 0);
    return at + GUARDED;
}

static uint8_t *input_end, *output_end;

/* A copy of the bytes that ends where the accessible memory ends. */
static weir_slice placed(const uint8_t *from, size_t len)
{
    if (len)
        memcpy(input_end - len, from, len);
    return (weir_slice){input_end - len, len};
}

static uint64_t mixed(uint64_t sum, const void *from, size_t len)
{
    const uint8_t *at = from;
    while (len--)
        sum = (sum ^ *at++) * 0x100000001b3u;
    return sum;
}

static void inside(weir_slice part, weir_slice of)
{
    if (part.len)
        CHECK(part.ptr >= of.ptr && part.len <= of.len && (size_t)(part.ptr - of.ptr) <= of.len - part.len);
}

/* A hash of the joined events, the error and the end of a stream. */
static uint64_t parsed(uint32_t mode, const uint8_t *from, size_t len, size_t piece, size_t room)
{
    weir_psyc_parser parser = {.struct_size = sizeof parser};
    weir_psyc_parser_options options = {.struct_size = sizeof options, .mode = mode};
    weir_psyc_event events[ROOM];
    weir_error error;
    /* A value in parts counts only after its last part, because an error may occur before it. */
    uint64_t sum = 0xcbf29ce484222325u, open = sum;
    size_t used = 0, given = 0, count = 0, now = 0;
    if (mode == WEIR_PSYC_BARE_CONTENT)
        options.content_length = len;
    CHECK(weir_psyc_parser_init(&parser, &options, NULL) == WEIR_OK);
    for (size_t calls = 0;; calls++) {
        CHECK(calls <= 8 * len + 8);
        weir_slice rest = placed(from + used, given - used);
        int32_t done = weir_psyc_parser_read(&parser, rest, events, room, &count, &now, &error);
        if (done < 0) {
            CHECK(done == WEIR_E_PROTOCOL && error.offset < len);
            CHECK(weir_psyc_parser_read(&parser, rest, events, room, &count, &now, NULL) == done);
            return mixed(mixed(sum, &error.detail, sizeof error.detail), &error.offset, sizeof error.offset);
        }
        CHECK(count <= room && now <= rest.len);
        for (size_t at = 0; at < count; at++) {
            inside(events[at].name, rest);
            inside(events[at].value, rest);
            uint16_t kind = events[at].kind;
            uint8_t part = kind >= WEIR_PSYC_ENTITY && kind < WEIR_PSYC_COMPLETE ? (uint8_t)((kind - WEIR_PSYC_ENTITY) % 4) : 0;
            uint16_t whole = (uint16_t)(kind - part);
            if (part < 2) {
                open = mixed(sum, &whole, sizeof whole);
                open = mixed(open, &events[at].sized, 1);
                open = mixed(open, events[at].name.ptr, events[at].name.len);
            }
            open = mixed(open, events[at].value.ptr, events[at].value.len);
            if (part == 0 || part == 3)
                sum = open;
        }
        used += now;
        if (done == WEIR_NEED && given == len)
            return sum;
        if (done == WEIR_NEED)
            given = given + piece < len ? given + piece : len;
    }
}

static void walked(const uint8_t *from, size_t len)
{
    weir_slice all = placed(from, len);
    weir_psyc_part parts[ROOM];
    for (uint32_t what = WEIR_PSYC_LIST; what <= WEIR_PSYC_TABLE; what++) {
        if (what == WEIR_PSYC_TEXT || what == WEIR_PSYC_STRUCT)
            continue;
        weir_psyc_cursor cursor = {.what = what};
        weir_slice rest = all;
        size_t count, used, calls = 0;
        int32_t done;
        do {
            CHECK(calls++ <= 2 * len + 4);
            done = weir_psyc_walk(&cursor, rest, parts, 1 + len % ROOM, &count, &used, NULL);
            if (done < 0)
                break;
            CHECK(used <= rest.len);
            for (size_t at = 0; at < count; at++) {
                inside(parts[at].type, rest);
                inside(parts[at].value, rest);
            }
            rest = (weir_slice){rest.ptr + used, rest.len - used};
        } while (done != WEIR_DONE);
        /* A cursor with arbitrary state. */
        if (len >= sizeof cursor.state)
            memcpy(cursor.state, from, sizeof cursor.state);
        done = weir_psyc_walk(&cursor, all, parts, ROOM, &count, &used, NULL);
        CHECK(done > 0 || done == WEIR_E_PROTOCOL);
    }
    /* The first half of the bytes serves as the declaration for all of them. */
    weir_slice declaration = {all.ptr, len / 2};
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_STRUCT};
    size_t count, calls = 0;
    int32_t done;
    do {
        CHECK(calls++ <= 2 * len + 4);
        done = weir_psyc_walk_struct(&cursor, declaration, all, parts, 1 + len % ROOM, &count, NULL);
        for (size_t at = 0; done > 0 && at < count; at++) {
            inside(parts[at].type, all);
            inside(parts[at].value, all);
        }
    } while (done == WEIR_OK);
    if (len >= sizeof cursor.state)
        memcpy(cursor.state, from, sizeof cursor.state);
    done = weir_psyc_walk_struct(&cursor, declaration, all, parts, ROOM, &count, NULL);
    CHECK(done > 0 || done == WEIR_E_PROTOCOL);
}

/* Renders parts of the input: each length byte is used as the end of a part. */
static void rendered(const uint8_t *from, size_t len)
{
    weir_slice all = placed(from, len), part[6] = {{0}};
    size_t at = 0, size = 0, again;
    weir_psyc_modifier modifiers[2];
    weir_psyc_item items[2];
    for (int which = 0; which < 6 && at < len; which++) {
        size_t want = all.ptr[at++] % 24;
        if (want > len - at)
            want = len - at;
        part[which] = (weir_slice){all.ptr + at, want};
        at += want;
    }
    uint32_t flags = len ? all.ptr[len - 1] : 0;
    for (int which = 0; which < 2; which++) {
        modifiers[which] = (weir_psyc_modifier){":=+-@?!x"[flags % 8], flags / 8 % 4, part[2 * which], part[2 * which + 1]};
        items[which] = (weir_psyc_item){.type = part[2 * which], .value = part[2 * which + 1], .length = flags / 32 % 4};
    }
    weir_psyc_packet packet = {.struct_size = sizeof packet, .routing = modifiers, .routing_count = flags % 3,
                               .entity = modifiers, .entity_count = flags / 3 % 3, .method = part[4], .data = part[5],
                               .length = flags / 64};
    int32_t done = weir_psyc_render(&packet, NULL, 0, &size, NULL);
    if (done == WEIR_NEED) {
        CHECK(size < GUARDED);
        CHECK(weir_psyc_render(&packet, output_end - size, size, &again, NULL) == WEIR_OK && again == size);
        weir_psyc_parser parser = {.struct_size = sizeof parser};
        weir_psyc_event events[ROOM];
        size_t count, used;
        CHECK(weir_psyc_parser_init(&parser, NULL, NULL) == WEIR_OK);
        do
            done = weir_psyc_parser_read(&parser, (weir_slice){output_end - size, size}, events, ROOM, &count, &used, NULL);
        while (done == WEIR_OK);
        CHECK(done == WEIR_READY && used == size);
    } else {
        CHECK(done == WEIR_E_BAD_REQUEST || done == WEIR_E_BAD_OPTION);
    }
    if (weir_psyc_render_list(part[5], items, 2, flags, NULL, 0, &size, NULL) == WEIR_NEED)
        CHECK(weir_psyc_render_list(part[5], items, 2, flags, output_end - size, size, &again, NULL) == WEIR_OK && again == size);
    weir_psyc_entry entry = {.key = part[4], .value = items[0]};
    if (weir_psyc_render_dict(part[5], &entry, 1, flags, NULL, 0, &size, NULL) == WEIR_NEED)
        CHECK(weir_psyc_render_dict(part[5], &entry, 1, flags, output_end - size, size, &again, NULL) == WEIR_OK && again == size);
    if (weir_psyc_render_key(part[4], flags % 3, flags, NULL, 0, &size, NULL) == WEIR_NEED)
        CHECK(weir_psyc_render_key(part[4], flags % 3, flags, output_end - size, size, &again, NULL) == WEIR_OK && again == size);
    if (weir_psyc_render_value(items, flags, NULL, 0, &size, NULL) == WEIR_NEED)
        CHECK(weir_psyc_render_value(items, flags, output_end - size, size, &again, NULL) == WEIR_OK && again == size);
    weir_psyc_compact compact = {part[0], part[1]};
    weir_slice name;
    CHECK(weir_psyc_expand(&compact, 1, part[2], &name, NULL) == WEIR_OK);
    inside(name, all);
    CHECK(weir_psyc_contract(&compact, 1, name, &name, NULL) == WEIR_OK);
    inside(name, all);
    weir_psyc_template template = {.struct_size = sizeof template, .text = all};
    weir_psyc_binding binding = {part[0], part[1]};
    weir_psyc_cursor cursor = {.what = WEIR_PSYC_TEXT};
    size_t windows = 0;
    do {
        CHECK(windows++ <= 32 * len + 4);
        done = weir_psyc_render_text(&template, &cursor, &binding, 1, output_end - 7, 7, &size, NULL);
        CHECK(done > 0 && size <= 7);
    } while (done == WEIR_NEED);
}

int LLVMFuzzerTestOneInput(const uint8_t *from, size_t len)
{
    if (!input_end) {
        input_end = guarded();
        output_end = guarded();
    }
    if (len > 4096)
        len = 4096;
    for (uint32_t mode = WEIR_PSYC_FULL; mode <= WEIR_PSYC_BARE_CONTENT; mode++) {
        uint64_t whole = parsed(mode, from, len, len + 1, ROOM);
        CHECK(parsed(mode, from, len, 1, 1) == whole);
        CHECK(parsed(mode, from, len, 7, 2) == whole);
    }
    walked(from, len);
    rendered(from, len);
    weir_slice all = placed(from, len);
    weir_psyc_uniform uniform = {.struct_size = sizeof uniform};
    weir_psyc_name name = {.struct_size = sizeof name};
    weir_psyc_packet_id id;
    int64_t integer;
    uint32_t talk;
    if (weir_psyc_parse_uniform(all, 1, &uniform, NULL) == WEIR_OK)
        inside(uniform.body, all);
    if (weir_psyc_parse_packet_id(all, &id, NULL) == WEIR_OK)
        inside(id.fragment, all);
    CHECK(weir_psyc_describe_name(all, &name, NULL) == WEIR_OK);
    weir_psyc_integer(all, &integer, NULL);
    weir_psyc_date(all, &integer, NULL);
    weir_psyc_matches(all, all, NULL);
    weir_psyc_talk(all, &talk, NULL);
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
        LLVMFuzzerTestOneInput(bytes, len);
    }
    printf("psyc_fuzz: %lu inputs\n", rounds);
    return 0;
}
#endif
