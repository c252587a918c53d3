/*
 * Runs the test vectors of the codec, which all implementations share.
 *
 *     psyc FOLDER          the folder vectors/psyc
 *
 * Prints the number of cases of each file. Exits with 1 if an output differs.
 */
#include "text.h"

#include <weir_psyc.h>

enum { CAPACITY = 64, SETTINGS = 64, WINDOW = 4096 };

typedef struct test {
    char title[256];
    char *settings[SETTINGS]; /* lines before the expected output, as `word rest` */
    size_t count;
    text expected;
} test;

static size_t wrong;

static void put_visible(text *to, weir_slice from)
{
    for (size_t at = 0; at < from.len; at++) {
        char byte[8];
        if (from.ptr[at] >= 0x20 && from.ptr[at] <= 0x7e && from.ptr[at] != '\\')
            snprintf(byte, sizeof byte, "%c", from.ptr[at]);
        else
            snprintf(byte, sizeof byte, "\\x%02x", from.ptr[at]);
        text_put(to, byte);
    }
}

static int digit(char from)
{
    return from <= '9' ? from - '0' : (from | 32) - 'a' + 10;
}

/* Converts the escapes `\n`, `\t`, `\\` and `\xHH` to bytes. */
static weir_slice bytes_of(const char *from)
{
    uint8_t *to = malloc(strlen(from) + 1);
    size_t len = 0;
    if (!to)
        abort();
    while (*from) {
        if (*from != '\\') {
            to[len++] = (uint8_t)*from++;
            continue;
        }
        switch (from[1]) {
        case 'n': to[len++] = '\n'; from += 2; break;
        case 't': to[len++] = '\t'; from += 2; break;
        case '\\': to[len++] = '\\'; from += 2; break;
        default: to[len++] = (uint8_t)(digit(from[2]) * 16 + digit(from[3])); from += 4;
        }
    }
    return (weir_slice){to, len};
}

static void release(weir_slice bytes)
{
    free((void *)bytes.ptr);
}

static const char *setting(const test *of, const char *name)
{
    size_t len = strlen(name);
    for (size_t at = 0; at < of->count; at++)
        if (strncmp(of->settings[at], name, len) == 0 && (of->settings[at][len] == ' ' || !of->settings[at][len]))
            return of->settings[at] + len + (of->settings[at][len] == ' ');
    return NULL;
}

/* Compares the output with the expected lines of TAB-separated fields. */
static void check(const test *of, const text *printed, const char *how)
{
    text as = {0};
    text_put(&as, "");
    for (const char *at = printed->ptr ? printed->ptr : ""; *at; at++) {
        if (*at == '\t')
            text_put(&as, " \xe2\x90\x89 ");
        else if (*at == '\n') {
            while (as.len && as.ptr[as.len - 1] == ' ')
                as.ptr[--as.len] = 0;
            text_put(&as, "\n");
        } else
            text_add(&as, at, 1);
    }
    if (strcmp(as.ptr, of->expected.ptr) != 0) {
        wrong++;
        printf("%s (%s): expected\n%sand not\n%s", of->title, how, of->expected.ptr, as.ptr);
    }
    text_free(&as);
}

/* ---------------------------------------------------------------- packets */

static const char *packet_errors[] = {"", "error", "length", "mod-name", "mod-tab", "mod-len", "mod-nl", "method", "end", "no-len", "mod-no-len", "limit"};

static void put_line(text *to, const char *kind, char operation, weir_slice name, int sized, weir_slice value)
{
    char one[] = {operation, 0};
    text_put(to, kind);
    if (operation) {
        text_put(to, "\t");
        text_put(to, one);
    }
    if (name.ptr) {
        text_put(to, "\t");
        put_visible(to, name);
    }
    if (sized >= 0)
        text_put(to, sized ? "\tlen" : "\t-");
    text_put(to, "\t");
    put_visible(to, value);
    text_put(to, "\n");
}

/* A value joined from its parts. */
typedef struct joined {
    text name, value;
    char operation;
} joined;

static void put_event(text *to, joined *in, const weir_psyc_event *of)
{
    static const weir_slice none = {0};
    const char *kinds[] = {"entity", "body", "content"};
    switch (of->kind) {
    case WEIR_PSYC_ROUTING: put_line(to, "routing", (char)of->operation, of->name, -1, of->value); return;
    case WEIR_PSYC_STATE_RESET: text_put(to, "state-reset\n"); return;
    case WEIR_PSYC_STATE_RESYNC: text_put(to, "state-resync\n"); return;
    case WEIR_PSYC_COMPLETE: text_put(to, "complete\n"); return;
    case WEIR_PSYC_CONTENT: put_line(to, "content", 0, none, of->sized, of->value); return;
    default: break;
    }
    int kind = (of->kind - WEIR_PSYC_ENTITY) / 4;
    switch ((of->kind - WEIR_PSYC_ENTITY) % 4) {
    case 0:
        put_line(to, kinds[kind], (char)of->operation, of->name, of->sized, of->value);
        return;
    case 1:
        text_clear(&in->name);
        text_clear(&in->value);
        text_add(&in->name, of->name.ptr, of->name.len);
        in->operation = (char)of->operation;
        break;
    default: break;
    }
    text_add(&in->value, of->value.ptr, of->value.len);
    if ((of->kind - WEIR_PSYC_ENTITY) % 4 == 3) {
        weir_slice name = {(uint8_t *)in->name.ptr, in->name.len};
        weir_slice value = {(uint8_t *)in->value.ptr, in->value.len};
        put_line(to, kinds[kind], in->operation, kind == 2 ? none : name, 1, value);
    }
}

/* Feeds the input in pieces of `piece` bytes, with space for `capacity` events. */
static void feed(text *to, uint32_t mode, weir_slice input, size_t piece, size_t capacity)
{
    weir_psyc_parser parser = {.struct_size = sizeof parser};
    weir_psyc_parser_options options = {.struct_size = sizeof options, .mode = mode};
    if (mode == WEIR_PSYC_BARE_CONTENT)
        options.content_length = input.len;
    weir_psyc_event events[CAPACITY];
    weir_error error;
    joined in = {0};
    size_t from = 0, available = 0, count, used;
    if (weir_psyc_parser_init(&parser, &options, NULL) != WEIR_OK)
        abort();
    for (;;) {
        weir_slice rest = {input.ptr + from, available - from};
        int32_t done = weir_psyc_parser_read(&parser, rest, events, capacity, &count, &used, &error);
        if (done < 0) {
            char number[32];
            snprintf(number, sizeof number, "error\t-%u\t", error.detail);
            text_put(to, number);
            text_put(to, packet_errors[error.detail]);
            text_put(to, "\n");
            break;
        }
        from += used;
        for (size_t at = 0; at < count; at++)
            put_event(to, &in, &events[at]);
        if (done == WEIR_NEED && available == input.len) {
            weir_psyc_parser_info info = {.struct_size = sizeof info};
            if (weir_psyc_parser_describe(&parser, &info, NULL) != WEIR_OK)
                abort();
            text_put(to, info.flags & WEIR_PSYC_CLEAN ? "eof\tclean\n" : "eof\tpartial\n");
            break;
        }
        if (done == WEIR_NEED)
            available = available + piece < input.len ? available + piece : input.len;
    }
    text_free(&in.name);
    text_free(&in.value);
}

static void packets(test *of)
{
    const char *mode = setting(of, "mode");
    uint32_t number = !mode ? WEIR_PSYC_FULL : strcmp(mode, "content") == 0 ? WEIR_PSYC_BARE_CONTENT : WEIR_PSYC_ROUTING_ONLY;
    weir_slice input = bytes_of(setting(of, "in"));
    for (size_t piece = 1; piece <= input.len + 1; piece++) {
        for (size_t capacity = 1; capacity <= CAPACITY; capacity += CAPACITY - 1) {
            text printed = {0};
            feed(&printed, number, input, piece, capacity);
            check(of, &printed, piece == 1 ? "byte by byte" : "in pieces");
            text_free(&printed);
        }
    }
    release(input);
}

/* ---------------------------------------------------------------- values */

static const char *value_errors[] = {"", "elem-start", "elem-type", "elem-length", "key-start", "key-length", "key-end", "value-type", "value-length", "short", "index", "oper", "type", "length", "", "",
                                    "field", "too-many", "declaration", "not-a-struct", "width", "cells"};

static void put_part(text *to, uint32_t what, const weir_psyc_part *of)
{
    char operation[] = {(char)of->operation, 0};
    switch (of->kind) {
    case WEIR_PSYC_TYPE: text_put(to, what == WEIR_PSYC_LIST ? "list-type\t" : "dict-type\t"); put_visible(to, of->type); break;
    case WEIR_PSYC_ELEM: text_put(to, what == WEIR_PSYC_TABLE ? "column\t" : "elem\t"); put_visible(to, of->type); text_put(to, "\t"); put_visible(to, of->value); break;
    case WEIR_PSYC_KEY:
        text_put(to, what == WEIR_PSYC_TABLE ? "row\t" : "key\t");
        put_visible(to, of->value);
        if (what == WEIR_PSYC_TABLE) {
            text_put(to, "\t");
            put_visible(to, of->type);
        }
        break;
    case WEIR_PSYC_VALUE:
        text_put(to, "value\t");
        if (what != WEIR_PSYC_UPDATE) {
            put_visible(to, of->type);
            text_put(to, "\t");
        }
        put_visible(to, of->value);
        break;
    case WEIR_PSYC_POS: text_put(to, "pos\t"); text_number(to, of->number); break;
    case WEIR_PSYC_FIELD: text_put(to, "field\t"); put_visible(to, of->value); break;
    case WEIR_PSYC_OP: text_put(to, "op\t"); text_put(to, operation); text_put(to, "\t"); put_visible(to, of->type); break;
    default: text_put(to, "?");
    }
    text_put(to, "\n");
}

static void value(test *of, uint32_t what)
{
    weir_slice input = bytes_of(setting(of, "in"));
    weir_slice declaration = bytes_of(what == WEIR_PSYC_STRUCT ? setting(of, "type") : "");
    for (size_t capacity = 1; capacity <= CAPACITY; capacity += CAPACITY - 1) {
        weir_psyc_cursor cursor = {.what = what};
        weir_psyc_part parts[CAPACITY];
        weir_slice rest = input;
        weir_error error;
        text printed = {0};
        size_t count, used = 0;
        int32_t done;
        do {
            done = what == WEIR_PSYC_STRUCT ? weir_psyc_walk_struct(&cursor, declaration, rest, parts, capacity, &count, &error)
                                            : weir_psyc_walk(&cursor, rest, parts, capacity, &count, &used, &error);
            if (done > 0) {
                rest = (weir_slice){rest.ptr + used, rest.len - used};
                for (size_t at = 0; at < count; at++)
                    put_part(&printed, what, &parts[at]);
            }
        } while (done == WEIR_OK);
        if (done < 0) {
            text_put(&printed, "error\t");
            text_put(&printed, value_errors[error.detail]);
            text_put(&printed, "\n");
        } else {
            text_put(&printed, "end\n");
        }
        check(of, &printed, "walked");
        text_free(&printed);
    }
    release(input);
    release(declaration);
}

static void lists(test *of) { value(of, WEIR_PSYC_LIST); }
static void dicts(test *of) { value(of, WEIR_PSYC_DICT); }
static void indexes(test *of) { value(of, WEIR_PSYC_INDEX); }
static void updates(test *of) { value(of, WEIR_PSYC_UPDATE); }
static void structs(test *of) { value(of, WEIR_PSYC_STRUCT); }
static void tables(test *of) { value(of, WEIR_PSYC_TABLE); }

static void uniforms(test *of)
{
    static const char *errors[] = {"", "scheme", "slashes", "host", "port", "transport", "resource", "channel"};
    static const char *kinds[] = {"", "root", "~", "@", "$", "-"};
    weir_slice input = bytes_of(setting(of, "in"));
    weir_psyc_uniform uniform = {.struct_size = sizeof uniform};
    weir_error error;
    text printed = {0};
    if (weir_psyc_parse_uniform(input, 0, &uniform, &error) < 0) {
        text_put(&printed, "error\t");
        text_put(&printed, errors[error.detail]);
        text_put(&printed, "\n");
    } else {
        const struct { const char *name; weir_slice part; } parts[] = {
            {"host", uniform.host}, {"port", uniform.port}, {"transport", uniform.transport},
            {"resource", uniform.resource}, {"channel", uniform.channel}, {"nick", uniform.nick},
            {"kind", slice(kinds[uniform.kind])}, {"host_port", uniform.host_port}, {"entity", uniform.entity},
        };
        for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
            text_put(&printed, parts[at].name);
            text_put(&printed, "\t");
            put_visible(&printed, parts[at].part);
            text_put(&printed, "\n");
        }
    }
    check(of, &printed, "parsed");
    text_free(&printed);
    release(input);
}

/* ---------------------------------------------------------------- texts and names */

static void templates(test *of)
{
    weir_slice input = bytes_of(setting(of, "in"));
    weir_psyc_binding bindings[] = {{slice("_a"), slice("1")}, {slice("_nick"), slice("heron")}, {slice("_e"), slice("")}};
    weir_psyc_template template = {.struct_size = sizeof template, .text = input};
    for (size_t window = 1; window <= WINDOW; window = window < 40 ? window + 1 : window + WINDOW - 40) {
        weir_psyc_cursor cursor = {.what = WEIR_PSYC_TEXT};
        uint8_t out[WINDOW];
        text printed = {0}, all = {0};
        size_t written;
        int32_t done;
        text_put(&all, "");
        do {
            done = weir_psyc_render_text(&template, &cursor, bindings, 3, out, window, &written, NULL);
            if (done < 0)
                abort();
            text_add(&all, out, written);
        } while (done == WEIR_NEED);
        if (done == WEIR_ABSENT) {
            text_put(&printed, "no-substitution\n");
        } else {
            text_put(&printed, "text\t");
            text_put(&printed, all.ptr);
            text_put(&printed, "\n");
        }
        check(of, &printed, "in windows");
        text_free(&printed);
        text_free(&all);
    }
    release(input);
}

static void standard(test *of)
{
    weir_slice template;
    text printed = {0};
    if (weir_psyc_standard_template(slice(strrchr(of->title, ' ') + 1), &template, NULL) == WEIR_OK) {
        text_put(&printed, "text\t");
        put_visible(&printed, template);
        text_put(&printed, "\n");
    }
    check(of, &printed, "looked up");
    text_free(&printed);
}

static void keywords(test *of)
{
    const char *names[] = {"inherits", "matches"};
    text printed = {0};
    for (int at = 0; at < 2; at++) {
        const char *words = setting(of, names[at]);
        if (!words)
            continue;
        char *first = copy_text(words, strlen(words)), *second = first, *one = word(&second);
        weir_slice left = slice(strcmp(one, "~") ? one : ""), right = slice(strcmp(second, "~") ? second : "");
        int32_t done = (at ? weir_psyc_matches : weir_psyc_inherits)(left, right, NULL);
        text_put(&printed, done == WEIR_OK ? "true\n" : done == WEIR_ABSENT ? "false\n" : "invalid\n");
        free(first);
    }
    check(of, &printed, "compared");
    text_free(&printed);
}

static void names(test *of)
{
    char line_of[256];
    const char *at = strstr(of->title, ": ");
    weir_psyc_name name = {.struct_size = sizeof name};
    weir_slice bytes = bytes_of(at ? at + 2 : "");
    if (weir_psyc_describe_name(bytes, &name, NULL) != WEIR_OK)
        abort();
    snprintf(line_of, sizeof line_of, "routing\t%u\ntype\t%u\nlist\t%d\nmethod\t%u\t%u\t%u\n", name.routing, name.type,
             (name.flags & WEIR_PSYC_IS_LIST) != 0, name.method, name.family, name.method_flags);
    text printed = {0};
    text_put(&printed, line_of);
    check(of, &printed, "described");
    text_free(&printed);
    release(bytes);
}

static void compact(test *of)
{
    weir_psyc_compact table[SETTINGS];
    char *rows[SETTINGS];
    size_t count = 0;
    const char *expand = setting(of, "expand"), *contract = setting(of, "contract");
    weir_slice name;
    text printed = {0};
    for (size_t at = 0; at < of->count; at++) {
        if (strncmp(of->settings[at], "entry ", 6) != 0)
            continue;
        char *row = rows[count] = copy_text(of->settings[at] + 6, strlen(of->settings[at] + 6)), *one = word(&row);
        table[count++] = (weir_psyc_compact){slice(one), slice(row)};
    }
    if ((expand ? weir_psyc_expand : weir_psyc_contract)(table, count, slice(expand ? expand : contract), &name, NULL) != WEIR_OK)
        abort();
    text_put(&printed, "name\t");
    put_visible(&printed, name);
    text_put(&printed, "\n");
    check(of, &printed, "looked up");
    text_free(&printed);
    while (count)
        free(rows[--count]);
}

static void packet_ids(test *of)
{
    const char *given = setting(of, "parts"), *in = setting(of, "in");
    text printed = {0};
    weir_error error;
    weir_psyc_packet_id id, back;
    if (in) {
        weir_slice input = bytes_of(in);
        if (weir_psyc_parse_packet_id(input, &id, &error) != WEIR_E_PROTOCOL || !error.detail)
            abort();
        text_put(&printed, "error\n");
        check(of, &printed, "parsed");
        release(input);
    } else {
        char *words = copy_text(given, strlen(given)), *left = words;
        weir_slice five[5];
        uint8_t out[WINDOW];
        size_t size;
        for (int at = 0; at < 5; at++) {
            char *one = word(&left);
            five[at] = bytes_of(strcmp(one, "-") ? one : "");
        }
        id = (weir_psyc_packet_id){five[0], five[1], five[2], five[3], five[4]};
        if (weir_psyc_render_packet_id(&id, out, sizeof out, &size, NULL) != WEIR_OK ||
            weir_psyc_parse_packet_id((weir_slice){out, size}, &back, NULL) != WEIR_OK ||
            back.target.len != five[2].len || (five[2].len && memcmp(back.target.ptr, five[2].ptr, five[2].len)))
            abort();
        text_put(&printed, "id\t");
        put_visible(&printed, (weir_slice){out, size});
        text_put(&printed, "\n");
        check(of, &printed, "rendered");
        for (int at = 0; at < 5; at++)
            release(five[at]);
        free(words);
    }
    text_free(&printed);
}

/* ---------------------------------------------------------------- rendering */

static const char *render_errors[] = {"", "NameMissing", "NameInvalid", "ValueNewline", "MethodInvalid", "MethodMissing", "TypeInvalid", "ContentUnterminated", "LengthForbidden"};

/* `<op><name>\t<value>` */
static weir_psyc_modifier modifier(weir_slice item, uint32_t length)
{
    const uint8_t *tab = memchr(item.ptr, '\t', item.len);
    size_t name = (size_t)(tab - item.ptr) - 1;
    return (weir_psyc_modifier){item.ptr[0], length, {item.ptr + 1, name}, {tab + 1, item.len - name - 2}};
}

/* Renders into a buffer of exactly the required size, and into one that is one byte smaller. */
static void put_rendered(text *to, const char *kind, int32_t (*render)(void *, uint8_t *, size_t, size_t *, weir_error *), void *of)
{
    weir_error error;
    size_t size = 0, again = 0;
    int32_t done = render(of, NULL, 0, &size, &error);
    if (done < 0) {
        text_put(to, "error\t");
        text_put(to, render_errors[error.detail]);
        text_put(to, "\n");
        return;
    }
    uint8_t *out = malloc(size + 1);
    if (!out || (done == WEIR_OK) != (size == 0))
        abort();
    if (size && (render(of, out, size - 1, &again, NULL) != WEIR_NEED || again != size))
        abort();
    if (render(of, out, size, &again, NULL) != WEIR_OK || again != size)
        abort();
    text_put(to, kind);
    text_put(to, "\t");
    put_visible(to, (weir_slice){out, size});
    text_put(to, "\n");
    free(out);
}

static int32_t packet_of(void *of, uint8_t *out, size_t capacity, size_t *size, weir_error *error)
{
    weir_psyc_sizes sizes = {.struct_size = sizeof sizes};
    int32_t measured = weir_psyc_measure(of, &sizes, NULL), done = weir_psyc_render(of, out, capacity, size, error);
    if ((measured == WEIR_OK) != (done > 0) || (done > 0 && sizes.total != *size))
        abort();
    return done;
}

static void render(test *of)
{
    weir_psyc_modifier routing[SETTINGS], entity[SETTINGS];
    weir_psyc_packet packet = {.struct_size = sizeof packet, .routing = routing, .entity = entity};
    weir_slice items[SETTINGS];
    size_t count = 0;
    text printed = {0};
    const char *threshold = setting(of, "threshold");
    if (threshold) {
        packet.flags |= WEIR_PSYC_PACKET_THRESHOLD;
        packet.threshold = strcmp(threshold, "max") ? number(threshold) : WEIR_PSYC_SHORTEST;
    }
    for (size_t at = 0; at < of->count; at++) {
        if (strncmp(of->settings[at], "item ", 5) != 0)
            continue;
        weir_slice item = items[count++] = bytes_of(of->settings[at] + 5);
        uint32_t length = item.ptr[0] == '!' ? WEIR_PSYC_LENGTH_FORCE : item.ptr[0] == '-' ? WEIR_PSYC_LENGTH_FORBID : WEIR_PSYC_LENGTH_AUTO;
        if (length)
            item = (weir_slice){item.ptr + 1, item.len - 1};
        weir_slice rest = {item.ptr + 1, item.len - 1};
        switch (item.ptr[0]) {
        case 'R': routing[packet.routing_count++] = modifier(rest, length); break;
        case 'E': entity[packet.entity_count++] = modifier(rest, length); break;
        case 'S': packet.state = rest.ptr[0]; break;
        case 'M': packet.method = rest; break;
        case 'D': packet.data = rest; break;
        case 'C': packet.content = rest; packet.flags |= WEIR_PSYC_PACKET_RAW; break;
        default: packet.length = rest.ptr[0] == '!' ? WEIR_PSYC_LENGTH_FORCE : WEIR_PSYC_LENGTH_FORBID;
        }
    }
    put_rendered(&printed, "packet", packet_of, &packet);
    check(of, &printed, "rendered");
    text_free(&printed);
    while (count)
        release(items[--count]);
}

typedef struct container {
    const char *kind;
    weir_slice type;
    weir_psyc_item items[SETTINGS];
    weir_psyc_entry entries[SETTINGS];
    weir_psyc_step steps[SETTINGS];
    size_t item_count, entry_count, step_count;
    uint32_t operation;
} container;

static int32_t container_of(void *from, uint8_t *out, size_t capacity, size_t *size, weir_error *error)
{
    const container *of = from;
    if (strcmp(of->kind, "list") == 0)
        return weir_psyc_render_list(of->type, of->items, of->item_count, WEIR_PSYC_THRESHOLD, out, capacity, size, error);
    if (strcmp(of->kind, "dict") == 0)
        return weir_psyc_render_dict(of->type, of->entries, of->entry_count, WEIR_PSYC_THRESHOLD, out, capacity, size, error);
    if (strcmp(of->kind, "key") == 0)
        return weir_psyc_render_key(of->entries[0].key, WEIR_PSYC_LENGTH_AUTO, WEIR_PSYC_THRESHOLD, out, capacity, size, error);
    if (strcmp(of->kind, "value") == 0)
        return weir_psyc_render_value(&of->entries[0].value, WEIR_PSYC_THRESHOLD, out, capacity, size, error);
    return weir_psyc_render_update(of->steps, of->step_count, of->operation, of->items, WEIR_PSYC_THRESHOLD, out, capacity, size, error);
}

/* The fields of a line, separated by TAB; `~` is an absent field. */
static size_t fields(weir_slice from, weir_slice *to)
{
    size_t count = 0, start = 0;
    for (size_t at = 0; at <= from.len; at++) {
        if (at < from.len && from.ptr[at] != '\t')
            continue;
        to[count] = (weir_slice){from.ptr + start, at - start};
        if (to[count].len == 1 && to[count].ptr[0] == '~')
            to[count].len = 0;
        count++;
        start = at + 1;
    }
    return count;
}

static void render_containers(test *of)
{
    static container in;
    weir_slice items[SETTINGS], row[8];
    size_t count = 0;
    text printed = {0};
    memset(&in, 0, sizeof in);
    in.kind = setting(of, "kind");
    for (size_t at = 0; at < of->count; at++) {
        if (strncmp(of->settings[at], "item ", 5) != 0)
            continue;
        weir_slice item = items[count++] = bytes_of(of->settings[at] + 5);
        fields(item, row);
        switch (row[0].ptr[0] == 'e' ? row[0].ptr[1] : row[0].ptr[0]) {
        case 't': in.type = row[1]; break;
        case 'l': in.items[in.item_count++] = (weir_psyc_item){.type = row[1], .value = row[2]}; break;
        case 'n': in.entries[in.entry_count++] = (weir_psyc_entry){.key = row[1], .value = {.type = row[2], .value = row[3]}}; break;
        case 'o': in.operation = row[1].ptr[0]; in.items[0] = (weir_psyc_item){.type = row[2], .value = row[3]}; break;
        default: {
            weir_slice name = {row[1].ptr + 1, row[1].len - 1};
            char digits[32] = {0};
            weir_psyc_step step = {.name = name, .kind = row[1].ptr[0] == '.' ? WEIR_PSYC_FIELD : WEIR_PSYC_KEY};
            if (row[1].ptr[0] == '#') {
                memcpy(digits, name.ptr, name.len < 31 ? name.len : 31);
                step = (weir_psyc_step){.kind = WEIR_PSYC_POS, .number = number(digits)};
            }
            in.steps[in.step_count++] = step;
        }
        }
    }
    put_rendered(&printed, in.kind, container_of, &in);
    /* The file shows a blank before an operator as an escape. */
    char *blank = printed.ptr ? strstr(printed.ptr, "\t +") : NULL;
    if (blank) {
        text again = {0};
        text_add(&again, printed.ptr, (size_t)(blank - printed.ptr));
        text_put(&again, "\t\\x20");
        text_put(&again, blank + 2);
        check(of, &again, "rendered");
        text_free(&again);
    } else {
        check(of, &printed, "rendered");
    }
    text_free(&printed);
    while (count)
        release(items[--count]);
}

/* ---------------------------------------------------------------- files */

typedef struct file {
    const char *name;
    void (*run)(test *);
    const char *settings; /* words that begin a setting */
} file;

static const file files[] = {
    {"packets.txt", packets, " in mode "},
    {"lists.txt", lists, " in "},
    {"dicts.txt", dicts, " in "},
    {"indexes.txt", indexes, " in "},
    {"updates.txt", updates, " in "},
    {"structs.txt", structs, " type in "},
    {"tables.txt", tables, " in "},
    {"uniforms.txt", uniforms, " in "},
    {"templates.txt", templates, " in "},
    {"standard-templates.txt", standard, " "},
    {"keywords.txt", keywords, " inherits matches "},
    {"names.txt", names, " "},
    {"compact.txt", compact, " entry expand contract "},
    {"packet-ids.txt", packet_ids, " parts in "},
    {"render.txt", render, " item threshold "},
    {"render-containers.txt", render_containers, " item kind "},
};

static size_t run(const file *of, const char *folder)
{
    char path[4096], row[8192];
    size_t cases = 0;
    test now = {0};
    snprintf(path, sizeof path, "%s/%s", folder, of->name);
    FILE *from = fopen(path, "rb");
    if (!from) {
        printf("cannot read %s\n", path);
        exit(2);
    }
    for (int more = 1; more;) {
        more = fgets(row, sizeof row, from) != NULL;
        size_t len = more ? strlen(row) : 0;
        while (len && (row[len - 1] == '\n'))
            row[--len] = 0;
        if (!more || strncmp(row, "== ", 3) == 0) {
            if (cases)
                of->run(&now);
            while (now.count)
                free(now.settings[--now.count]);
            text_clear(&now.expected);
            text_put(&now.expected, "");
            cases += (size_t)more;
            snprintf(now.title, sizeof now.title, "%s: %.200s", of->name, more ? row + 3 : "");
            continue;
        }
        if (!cases || !len)
            continue;
        char key[64];
        snprintf(key, sizeof key, " %.*s ", (int)(strcspn(row, " ") > 60 ? 60 : strcspn(row, " ")), row);
        if (strlen(key) > 2 && strstr(of->settings, key)) {
            now.settings[now.count++] = copy_text(row, len);
        } else {
            while (len && row[len - 1] == ' ')
                row[--len] = 0;
            text_put(&now.expected, row);
            text_put(&now.expected, "\n");
        }
    }
    fclose(from);
    text_free(&now.expected);
    return cases;
}

int main(int count, char **words)
{
    size_t all = 0;
    if (count != 2) {
        fprintf(stderr, "psyc FOLDER\n");
        return 2;
    }
    for (size_t at = 0; at < sizeof files / sizeof *files; at++) {
        size_t cases = run(&files[at], words[1]);
        printf("%s: %zu\n", files[at].name, cases);
        all += cases;
    }
    printf("psyc vectors: %zu cases, %zu wrong\n", all, wrong);
    return wrong ? 1 : 0;
}
