/* The commands of vectors/query. Pages are enqueued in all four ways, in turn. */
#include "text.h"

enum { NAMES = 64, LENT = 256 };

typedef struct known {
    char *name;    /* of the source */
    char *options; /* as in the command */
    uint32_t id;
} known;

struct world {
    char *where, *order, *select, *group;
    char *params[16];
    size_t param_count;
    weir_query_options options;
    weir_query *query;
    known sources[NAMES];
    size_t count;
    text token;
    weir_loans *loans;
    unsigned turn;
    unsigned lent, back;       /* by callback */
    char *pages[LENT];         /* lent by cookie: the cookie is the index */
    uint64_t cookies_out;
};

world *query_world(void)
{
    world *in = calloc(1, sizeof *in);
    if (!in || weir_loans_new(&in->loans, NULL) != WEIR_OK)
        abort();
    in->options.struct_size = sizeof in->options;
    return in;
}

static void set_none(world *in)
{
    free(in->where);
    free(in->order);
    free(in->select);
    free(in->group);
    in->where = in->order = in->select = in->group = NULL;
    for (size_t at = 0; at < in->param_count; at++)
        free(in->params[at]);
    in->param_count = 0;
    weir_query_options old = in->options;
    memset(&in->options, 0, sizeof in->options);
    in->options.struct_size = sizeof in->options;
    /* The budgets are not reset. */
    in->options.flags = old.flags & WEIR_QUERY_PAGES_AHEAD;
    in->options.pages_ahead = old.pages_ahead;
    in->options.buffer_bytes_max = old.buffer_bytes_max;
    in->options.sort_bytes_max = old.sort_bytes_max;
    in->options.groups_max = old.groups_max;
    in->options.distinct_max = old.distinct_max;
    in->options.sources_max = old.sources_max;
    in->options.item_bytes_max = old.item_bytes_max;
    in->options.depth_max = old.depth_max;
}

static void collect(world *in)
{
    uint64_t cookies[16];
    size_t some = 0;
    do {
        if (weir_loans_collect(in->loans, cookies, 16, &some, NULL, NULL) != WEIR_OK)
            abort();
        for (size_t at = 0; at < some; at++) {
            if (cookies[at] >= LENT || !in->pages[cookies[at]])
                abort(); /* returned twice */
            free(in->pages[cookies[at]]);
            in->pages[cookies[at]] = NULL;
            in->cookies_out--;
        }
    } while (some);
}

static void forget(world *in)
{
    for (size_t at = 0; at < in->count; at++) {
        free(in->sources[at].name);
        free(in->sources[at].options);
    }
    in->count = 0;
}

/* Checks that a freed query holds no loans. */
static void done(world *in)
{
    weir_query_free(in->query);
    in->query = NULL;
    collect(in);
    if (in->lent != in->back || in->cookies_out != 0)
        abort();
}

void query_end(world *in)
{
    done(in);
    set_none(in);
    forget(in);
    text_free(&in->token);
    weir_loans_free(in->loans);
    free(in);
}

static void released(void *user, const uint8_t *ptr, size_t len)
{
    world *in = user;
    (void)len;
    in->back++;
    free((void *)ptr);
}

static void failed(text *out, const weir_error *error)
{
    text_code(out, error->code);
    text_put(out, ": ");
    text_put(out, error->message);
    text_put(out, "\n");
}

static const char *name_of(world *in, uint32_t id)
{
    for (size_t at = 0; at < in->count; at++)
        if (in->sources[at].id == id)
            return in->sources[at].name;
    return "?";
}

static known *find(world *in, const char *name)
{
    for (size_t at = 0; at < in->count; at++)
        if (strcmp(in->sources[at].name, name) == 0)
            return &in->sources[at];
    return NULL;
}

static void remember(world *in, const char *name, const char *options, uint32_t id)
{
    known *place = find(in, name);
    if (!place) {
        if (in->count == NAMES)
            abort();
        place = &in->sources[in->count++];
    } else {
        free(place->name);
        free(place->options);
    }
    place->name = copied(name, strlen(name));
    place->options = copied(options, strlen(options));
    place->id = id;
}

static void set(world *in, char *rest)
{
    weir_query_options *to = &in->options;
    char *field = word(&rest), *value = copied(rest, strlen(rest));
    char **text_of = !strcmp(field, "where")    ? &in->where
                     : !strcmp(field, "order")  ? &in->order
                     : !strcmp(field, "select") ? &in->select
                     : !strcmp(field, "group")  ? &in->group
                                                : NULL;
    if (text_of) {
        free(*text_of);
        *text_of = value;
        return;
    }
    if (!strcmp(field, "param")) {
        in->params[in->param_count++] = value;
        return;
    }
    if (!strcmp(field, "none"))
        set_none(in);
    else if (!strcmp(field, "distinct"))
        to->flags |= WEIR_QUERY_DISTINCT;
    else if (!strcmp(field, "offset"))
        to->offset = number(value);
    else if (!strcmp(field, "limit")) {
        to->flags |= WEIR_QUERY_LIMIT;
        to->limit = number(value);
    } else if (!strcmp(field, "top")) {
        to->flags |= WEIR_QUERY_TOP;
        to->top = number(value);
    } else if (!strcmp(field, "strings"))
        to->flags |= WEIR_QUERY_UTF16;
    else if (!strcmp(field, "complex"))
        to->flags |= WEIR_QUERY_RANK_COMPLEX;
    else if (!strcmp(field, "missing"))
        to->flags |= WEIR_QUERY_DROP_MISSING;
    else if (!strcmp(field, "strict"))
        to->level = WEIR_LEVEL_STRICT;
    else if (!strcmp(field, "bad"))
        to->on_bad_item = strcmp(value, "skip") == 0 ? 1 : 2;
    else if (!strcmp(field, "mode")) {
        const char *modes[] = {"", "sequential", "arrival", "round_robin", "merge", "sort"};
        for (uint32_t mode = 1; mode < 6; mode++)
            if (!strcmp(value, modes[mode]))
                to->mode = mode;
    } else
        abort();
    free(value);
}

static void budget(world *in, char *rest)
{
    weir_query_options *to = &in->options;
    char *name = word(&rest);
    uint64_t value = number(rest);
    if (!strcmp(name, "buffer"))
        to->buffer_bytes_max = value;
    else if (!strcmp(name, "ahead")) {
        to->flags |= WEIR_QUERY_PAGES_AHEAD;
        to->pages_ahead = (uint32_t)value;
    } else if (!strcmp(name, "sort"))
        to->sort_bytes_max = value;
    else if (!strcmp(name, "groups"))
        to->groups_max = value;
    else if (!strcmp(name, "distinct"))
        to->distinct_max = value;
    else if (!strcmp(name, "sources"))
        to->sources_max = (uint32_t)value;
    else if (!strcmp(name, "item"))
        to->item_bytes_max = value;
    else if (!strcmp(name, "depth"))
        to->depth_max = (uint32_t)value;
    else
        abort();
}

static void open_query(world *in, int resume, text *out)
{
    weir_query_options options = in->options;
    weir_param params[16];
    char *texts[16];
    weir_error error;
    forget(in);
    done(in);
    options.where = slice(in->where ? in->where : "");
    options.order = slice(in->order ? in->order : "");
    options.select = slice(in->select ? in->select : "");
    options.group = slice(in->group ? in->group : "");
    for (size_t at = 0; at < in->param_count; at++) {
        char *rest = texts[at] = copied(in->params[at], strlen(in->params[at]));
        params[at].name = slice(word(&rest));
        params[at].value = slice(rest);
    }
    options.params = params;
    options.param_count = in->param_count;
    if (resume)
        options.token = (weir_slice){(const uint8_t *)in->token.ptr, in->token.len};
    if (weir_query_open(&options, &in->query, &error) != WEIR_OK)
        failed(out, &error);
    for (size_t at = 0; at < in->param_count; at++)
        free(texts[at]);
}

/* The options of a source as words; their pointers point into `words`. */
typedef struct source {
    weir_source_options options;
    weir_param meta[16];
    weir_slice bound[16];
    int32_t result; /* of the shape */
    weir_error error;
} source;

static void source_of(source *to, const char *name, char *words)
{
    memset(to, 0, sizeof *to);
    to->result = WEIR_OK;
    to->options.struct_size = sizeof to->options;
    to->options.name = slice(name);
    while (*words) {
        char *value = word(&words);
        weir_source_options *options = &to->options;
        if (!*value)
            continue;
        char *key = value;
        value = strchr(value, '=');
        if (value)
            *value++ = 0;
        if (!strcmp(key, "sorted"))
            options->flags |= WEIR_SOURCE_SORTED;
        else if (!strcmp(key, "trusted"))
            options->flags |= WEIR_SOURCE_TRUST_ORDER;
        else if (!strcmp(key, "unstable"))
            options->flags |= WEIR_SOURCE_UNSTABLE;
        else if (!strcmp(key, "partial"))
            options->flags |= WEIR_SOURCE_PARTIAL;
        else if (!strcmp(key, "ordinal")) {
            options->flags |= WEIR_SOURCE_ORDINAL;
            options->ordinal = number(value);
        } else if (!strcmp(key, "tie"))
            options->tie = slice(value);
        else if (!strcmp(key, "first")) {
            options->flags |= WEIR_SOURCE_FIRST;
            options->first = slice(value);
        } else if (!strcmp(key, "bound")) {
            options->flags |= WEIR_SOURCE_BOUND;
            options->bound = to->bound;
            while (value) {
                char *comma = strchr(value, ',');
                if (comma)
                    *comma++ = 0;
                to->bound[options->bound_count++] = slice(value);
                value = comma;
            }
        } else if (!strcmp(key, "strict"))
            options->level = WEIR_LEVEL_STRICT;
        else if (!strcmp(key, "none"))
            options->level = WEIR_LEVEL_NONE;
        else if (!strcmp(key, "shape")) {
            to->result = weir_shape(slice(value), &options->shape, &options->member, &to->error);
        } else if (!strncmp(key, "meta.", 5)) {
            options->meta = to->meta;
            to->meta[options->meta_count++] = (weir_param){slice(key + 5), slice(value)};
        } else
            abort();
    }
}

static void add_source(world *in, char *name, char *rest, text *out)
{
    source made;
    uint32_t id = 0;
    weir_error error;
    char *words = copied(rest, strlen(rest));
    source_of(&made, name, words);
    if (made.result != WEIR_OK)
        failed(out, &made.error);
    else if (weir_query_source(in->query, &made.options, &id, &error) == WEIR_OK)
        remember(in, name, rest, id);
    else
        failed(out, &error);
    free(words);
}

static int32_t lend(world *in, uint32_t id, char *page, const weir_frames *frames, weir_slice next,
                    uint32_t has_next, weir_error *error)
{
    weir_slice bytes = slice(page);
    weir_loan loan = {0};
    int32_t result;
    char *lent = copied(page, bytes.len);
    bytes.ptr = (const uint8_t *)lent;
    if (in->turn % 2) {
        loan.release = released;
        loan.user = in;
        in->lent++;
        result = weir_query_enqueue_loan(in->query, id, bytes, frames, next, has_next, &loan, error);
        if (result != WEIR_OK) {
            in->lent--;
            free(lent);
        }
        return result;
    }
    loan.loans = in->loans;
    for (loan.cookie = 0; in->pages[loan.cookie]; loan.cookie++)
        if (loan.cookie + 1 == LENT)
            abort();
    in->pages[loan.cookie] = lent;
    in->cookies_out++;
    result = weir_query_enqueue_loan(in->query, id, bytes, frames, next, has_next, &loan, error);
    if (result != WEIR_OK) {
        in->pages[loan.cookie] = NULL;
        in->cookies_out--;
        free(lent);
    }
    return result;
}

/* The positions of the items of a page, as `OFFSET+LEN/PROPERTY=VALUE,...`. */
typedef struct framed {
    weir_frames frames;
    weir_frame spans[64];
    weir_meta metas[256];
} framed;

static void frames_of(world *in, framed *to, char *words)
{
    weir_page *asked = NULL; /* stays NULL for WEIR_ABSENT: there are no properties */
    if (weir_query_metas(in->query, &asked, NULL) < 0)
        abort();
    size_t count;
    const weir_item *names = weir_page_items(asked, &count);
    memset(to, 0, sizeof *to);
    while (words && *words) {
        char *item = words, *property, *end;
        weir_frame *span = &to->spans[to->frames.span_count++];
        words = strchr(words, ',');
        if (words)
            *words++ = 0;
        span->offset = (uint32_t)strtoul(item, &end, 10);
        span->len = (uint32_t)strtoul(end + 1, &end, 10);
        for (property = *end ? end + 1 : NULL; property;) {
            char *next = strchr(property, '/'), *value = strchr(property, '=');
            if (next)
                *next++ = 0;
            *value++ = 0;
            for (size_t at = 0; at < count; at++) {
                weir_meta *meta = &to->metas[to->frames.meta_count + at];
                if (names[at].len != strlen(property) || memcmp(names[at].ptr, property, names[at].len))
                    continue;
                meta->kind = 1;
                meta->number = strtoull(value, &end, 10);
                if (*end == '+') {
                    meta->kind = 2;
                    meta->len = (uint32_t)strtoul(end + 1, &end, 10);
                }
            }
            property = next;
        }
        to->frames.meta_count += count;
    }
    to->frames.spans = to->spans;
    to->frames.metas = to->metas;
    weir_page_release(asked);
}

static void enqueue(world *in, uint32_t id, char *page, const weir_frames *frames, const char *name,
                    text *out)
{
    weir_slice next = name ? slice(name) : (weir_slice){0};
    uint32_t has_next = name != NULL;
    weir_error error;
    int32_t result;
    unescaped(page);
    in->turn++;
    if (in->turn % 4 < 2) {
        result = lend(in, id, page, frames, next, has_next, &error);
    } else if (in->turn % 4 == 2) {
        result = weir_query_enqueue_copy(in->query, id, slice(page), frames, next, has_next, &error);
    } else {
        weir_buffer *buffer;
        size_t len = strlen(page);
        if (weir_buffer_new(len + 8, &buffer, NULL) != WEIR_OK)
            abort();
        memcpy(weir_buffer_data(buffer, NULL), page, len);
        result = weir_query_enqueue_buffer(in->query, id, buffer, len, frames, next, has_next, &error);
        if (result != WEIR_OK)
            weir_buffer_free(buffer);
    }
    if (result != WEIR_OK)
        failed(out, &error);
    collect(in);
}

/* Prints a row for each item, with its values at the paths. */
static void values_out(weir_page *page, char *rest, text *out)
{
    weir_slice paths[16];
    size_t width = 0, count;
    weir_error error;
    do {
        paths[width++] = slice(word(&rest));
    } while (*rest);
    weir_page_items(page, &count);
    weir_slice *table = malloc(count * width * sizeof *table);
    if (!table || weir_page_values(page, 0, count, paths, width, table, &error) != WEIR_OK)
        abort();
    for (size_t at = 0; at < count * width; at++) {
        if (table[at].ptr)
            text_shown(out, table[at].ptr, table[at].len);
        else
            text_put(out, "-");
        text_put(out, at % width == width - 1 ? "\n" : " | ");
    }
    free(table);
    weir_page_release(page);
}

static void page_out(world *in, int32_t kind, weir_page *page, text *out)
{
    weir_page_info info = {.struct_size = sizeof info};
    if (weir_page_describe(page, &info, NULL) != WEIR_OK)
        abort();
    for (size_t at = 0; at < info.item_count; at++) {
        const weir_item *item = &info.items[at];
        if (kind == WEIR_NEED) {
            text_put(out, item->flags & WEIR_ITEM_REQUIRED ? "need " : "ahead ");
            text_put(out, name_of(in, item->source));
            if (item->flags & WEIR_ITEM_CONTINUATION) {
                text_put(out, " ");
                text_add(out, item->ptr, item->len);
            }
        } else {
            int made = (item->flags & WEIR_ITEM_CONSTRUCTED) != 0;
            if (item->len && item->ptr != info.buffers[item->buffer].ptr + item->offset)
                abort();
            text_put(out, made ? "made" : name_of(in, item->source));
            text_put(out, " ");
            text_shown(out, item->ptr, item->len);
        }
        text_put(out, "\n");
    }
    if (info.skipped) {
        text_put(out, "skipped ");
        text_number(out, info.skipped);
        text_put(out, "\n");
    }
    weir_page_release(page);
}

static void split(world *in, char *name, char *rest, text *out)
{
    known *old = find(in, name);
    source parts[16];
    weir_source_options options[16];
    uint32_t ids[16] = {0};
    char *words[16], *given = copied(rest, strlen(rest)), *at = given;
    const char *names[16];
    size_t count = 0;
    weir_error error;
    if (!old)
        abort();
    char *base = copied(old->options, strlen(old->options));
    while (*at) {
        char *part = word(&at);
        if (!*part)
            continue;
        char *first = strchr(part, '=');
        if (first)
            *first++ = 0;
        words[count] = copied(base, strlen(base));
        source_of(&parts[count], part, words[count]);
        parts[count].options.flags &= ~(uint32_t)(WEIR_SOURCE_ORDINAL | WEIR_SOURCE_FIRST);
        if (first) {
            parts[count].options.flags |= WEIR_SOURCE_FIRST;
            parts[count].options.first = slice(first);
        }
        names[count] = part;
        options[count] = parts[count].options;
        count++;
    }
    uint32_t id = old->id;
    if (weir_query_replace(in->query, id, options, count, ids, &error) == WEIR_OK) {
        for (size_t part = 0; part < count; part++)
            remember(in, names[part], base, ids[part]);
    } else {
        failed(out, &error);
    }
    for (size_t part = 0; part < count; part++)
        free(words[part]);
    free(base);
    free(given);
}

static void watermark(world *in, uint32_t id, char *rest, text *out)
{
    weir_slice keys[16];
    size_t count = 0;
    weir_error error;
    do {
        keys[count++] = slice(word(&rest));
    } while (*rest);
    if (weir_query_watermark(in->query, id, keys, count, &error) != WEIR_OK)
        failed(out, &error);
}

void query_run(world *in, char *line, text *out)
{
    char *verb = word(&line);
    weir_page *page = NULL;
    weir_error error;
    int32_t result = WEIR_OK;
    if (!strcmp(verb, "set")) {
        set(in, line);
        return;
    }
    if (!strcmp(verb, "budget")) {
        budget(in, line);
        return;
    }
    if (!strcmp(verb, "open") || !strcmp(verb, "resume")) {
        open_query(in, verb[0] == 'r', out);
        return;
    }
    if (!strcmp(verb, "stop")) {
        result = weir_query_token(in->query, &page, &error);
        if (result == WEIR_OK) {
            size_t one;
            const weir_item *item = weir_page_items(page, &one);
            text_clear(&in->token);
            text_add(&in->token, item->ptr, item->len);
            weir_page_release(page);
            done(in);
        }
    } else if (!strcmp(verb, "next")) {
        result = weir_query_next(in->query, (uint32_t)number(line), 0, &page, &error);
        if (result == WEIR_DONE)
            text_put(out, "done\n");
        else if (result > 0)
            page_out(in, result, page, out);
        collect(in);
    } else if (!strcmp(verb, "values")) {
        result = weir_query_next(in->query, 0, 0, &page, &error);
        if (result == WEIR_READY)
            values_out(page, line, out);
        collect(in);
    } else if (!strcmp(verb, "needs")) {
        result = weir_query_needs(in->query, &page, &error);
        if (result == WEIR_NEED)
            page_out(in, result, page, out);
    } else if (!strcmp(verb, "abandon")) {
        result = weir_query_abandon(in->query, slice(line), &error);
    } else if (!strcmp(verb, "explain")) {
        result = weir_query_explain(in->query, &page, &error);
        if (result == WEIR_OK) {
            size_t one;
            const weir_item *item = weir_page_items(page, &one);
            text_add(out, item->ptr, item->len);
            weir_page_release(page);
        }
    } else {
        char *name = word(&line);
        known *place = find(in, name);
        uint32_t id = place ? place->id : 99;
        if (!strcmp(verb, "source")) {
            add_source(in, name, line, out);
        } else if (!strcmp(verb, "page")) {
            char *next = word(&line);
            enqueue(in, id, line, NULL, next, out);
        } else if (!strcmp(verb, "last")) {
            enqueue(in, id, line, NULL, NULL, out);
        } else if (!strcmp(verb, "frames")) {
            framed to;
            frames_of(in, &to, word(&line));
            enqueue(in, id, line, &to.frames, NULL, out);
        } else if (!strcmp(verb, "finish")) {
            result = weir_query_finish(in->query, id, &error);
        } else if (!strcmp(verb, "watermark")) {
            watermark(in, id, line, out);
        } else if (!strcmp(verb, "split")) {
            split(in, name, line, out);
        } else {
            abort();
        }
    }
    if (result < 0)
        failed(out, &error);
}
