/* The commands of vectors/query. Pages are enqueued in all four ways, in turn. */
#include "text.h"

enum { SOURCES_MAX = 64, LOANS_MAX = 256 };

typedef struct named_source {
    char *name;    /* of the source */
    char *options; /* as in the command */
    uint32_t id;
} named_source;

struct runner {
    char *where, *order, *select, *group;
    char *params[16];
    size_t param_count;
    weir_query_options options;
    weir_query *query;
    named_source sources[SOURCES_MAX];
    size_t count;
    text token;
    weir_loans *loans;
    unsigned turn;
    unsigned loans_made, loans_returned; /* with a callback */
    char *pages[LOANS_MAX];              /* loans with a cookie, which is the index */
    uint64_t cookies_out;
};

runner *query_runner(void)
{
    runner *self = calloc(1, sizeof *self);
    if (!self || weir_loans_new(&self->loans, NULL) != WEIR_OK)
        abort();
    self->options.struct_size = sizeof self->options;
    return self;
}

static void reset_settings(runner *self)
{
    free(self->where);
    free(self->order);
    free(self->select);
    free(self->group);
    self->where = self->order = self->select = self->group = NULL;
    for (size_t at = 0; at < self->param_count; at++)
        free(self->params[at]);
    self->param_count = 0;
    weir_query_options old = self->options;
    memset(&self->options, 0, sizeof self->options);
    self->options.struct_size = sizeof self->options;
    /* The budgets are not reset. */
    self->options.flags = old.flags & WEIR_QUERY_PAGES_AHEAD;
    self->options.pages_ahead = old.pages_ahead;
    self->options.buffer_bytes_max = old.buffer_bytes_max;
    self->options.sort_bytes_max = old.sort_bytes_max;
    self->options.groups_max = old.groups_max;
    self->options.distinct_max = old.distinct_max;
    self->options.sources_max = old.sources_max;
    self->options.item_bytes_max = old.item_bytes_max;
    self->options.depth_max = old.depth_max;
}

static void collect(runner *self)
{
    uint64_t cookies[16];
    size_t count = 0;
    do {
        if (weir_loans_collect(self->loans, cookies, 16, &count, NULL, NULL) != WEIR_OK)
            abort();
        for (size_t at = 0; at < count; at++) {
            if (cookies[at] >= LOANS_MAX || !self->pages[cookies[at]])
                abort(); /* returned twice */
            free(self->pages[cookies[at]]);
            self->pages[cookies[at]] = NULL;
            self->cookies_out--;
        }
    } while (count);
}

static void clear_sources(runner *self)
{
    for (size_t at = 0; at < self->count; at++) {
        free(self->sources[at].name);
        free(self->sources[at].options);
    }
    self->count = 0;
}

/* Checks that a freed query holds no loans. */
static void free_query(runner *self)
{
    weir_query_free(self->query);
    self->query = NULL;
    collect(self);
    if (self->loans_made != self->loans_returned || self->cookies_out != 0)
        abort();
}

void query_end(runner *self)
{
    free_query(self);
    reset_settings(self);
    clear_sources(self);
    text_free(&self->token);
    weir_loans_free(self->loans);
    free(self);
}

static void return_loan(void *user, const uint8_t *ptr, size_t len)
{
    runner *self = user;
    (void)len;
    self->loans_returned++;
    free((void *)ptr);
}

static void put_error(text *out, const weir_error *error)
{
    text_code(out, error->code);
    text_put(out, ": ");
    text_put(out, error->message);
    text_put(out, "\n");
}

static const char *name_of(runner *self, uint32_t id)
{
    for (size_t at = 0; at < self->count; at++)
        if (self->sources[at].id == id)
            return self->sources[at].name;
    return "?";
}

static named_source *find(runner *self, const char *name)
{
    for (size_t at = 0; at < self->count; at++)
        if (strcmp(self->sources[at].name, name) == 0)
            return &self->sources[at];
    return NULL;
}

static void put_source(runner *self, const char *name, const char *options, uint32_t id)
{
    named_source *entry = find(self, name);
    if (!entry) {
        if (self->count == SOURCES_MAX)
            abort();
        entry = &self->sources[self->count++];
    } else {
        free(entry->name);
        free(entry->options);
    }
    entry->name = copy_text(name, strlen(name));
    entry->options = copy_text(options, strlen(options));
    entry->id = id;
}

static void set(runner *self, char *rest)
{
    weir_query_options *to = &self->options;
    char *field = word(&rest), *value = copy_text(rest, strlen(rest));
    char **text_of = !strcmp(field, "where")    ? &self->where
                     : !strcmp(field, "order")  ? &self->order
                     : !strcmp(field, "select") ? &self->select
                     : !strcmp(field, "group")  ? &self->group
                                                : NULL;
    if (text_of) {
        free(*text_of);
        *text_of = value;
        return;
    }
    if (!strcmp(field, "param")) {
        self->params[self->param_count++] = value;
        return;
    }
    if (!strcmp(field, "none"))
        reset_settings(self);
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

static void budget(runner *self, char *rest)
{
    weir_query_options *to = &self->options;
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

static void open_query(runner *self, int resume, text *out)
{
    weir_query_options options = self->options;
    weir_param params[16];
    char *texts[16];
    weir_error error;
    clear_sources(self);
    free_query(self);
    options.where = slice(self->where ? self->where : "");
    options.order = slice(self->order ? self->order : "");
    options.select = slice(self->select ? self->select : "");
    options.group = slice(self->group ? self->group : "");
    for (size_t at = 0; at < self->param_count; at++) {
        char *rest = texts[at] = copy_text(self->params[at], strlen(self->params[at]));
        params[at].name = slice(word(&rest));
        params[at].value = slice(rest);
    }
    options.params = params;
    options.param_count = self->param_count;
    if (resume)
        options.token = (weir_slice){(const uint8_t *)self->token.ptr, self->token.len};
    if (weir_query_open(&options, &self->query, &error) != WEIR_OK)
        put_error(out, &error);
    for (size_t at = 0; at < self->param_count; at++)
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

static void parse_source(source *to, const char *name, char *words)
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

static void add_source(runner *self, char *name, char *rest, text *out)
{
    source parsed;
    uint32_t id = 0;
    weir_error error;
    char *words = copy_text(rest, strlen(rest));
    parse_source(&parsed, name, words);
    if (parsed.result != WEIR_OK)
        put_error(out, &parsed.error);
    else if (weir_query_source(self->query, &parsed.options, &id, &error) == WEIR_OK)
        put_source(self, name, rest, id);
    else
        put_error(out, &error);
    free(words);
}

static int32_t enqueue_loan(runner *self, uint32_t id, char *page, const weir_frames *frames, weir_slice next,
                    uint32_t has_next, weir_error *error)
{
    weir_slice bytes = slice(page);
    weir_loan loan = {0};
    int32_t result;
    char *copy = copy_text(page, bytes.len);
    bytes.ptr = (const uint8_t *)copy;
    if (self->turn % 2) {
        loan.release = return_loan;
        loan.user = self;
        self->loans_made++;
        result = weir_query_enqueue_loan(self->query, id, bytes, frames, next, has_next, &loan, error);
        if (result != WEIR_OK) {
            self->loans_made--;
            free(copy);
        }
        return result;
    }
    loan.loans = self->loans;
    for (loan.cookie = 0; self->pages[loan.cookie]; loan.cookie++)
        if (loan.cookie + 1 == LOANS_MAX)
            abort();
    self->pages[loan.cookie] = copy;
    self->cookies_out++;
    result = weir_query_enqueue_loan(self->query, id, bytes, frames, next, has_next, &loan, error);
    if (result != WEIR_OK) {
        self->pages[loan.cookie] = NULL;
        self->cookies_out--;
        free(copy);
    }
    return result;
}

/* The positions of the items of a page, as `OFFSET+LEN/PROPERTY=VALUE,...`. */
typedef struct frame_list {
    weir_frames frames;
    weir_frame spans[64];
    weir_meta metas[256];
} frame_list;

static void parse_frames(runner *self, frame_list *to, char *words)
{
    weir_page *property_names = NULL; /* stays NULL for WEIR_ABSENT: there are no properties */
    if (weir_query_metas(self->query, &property_names, NULL) < 0)
        abort();
    size_t count;
    const weir_item *names = weir_page_items(property_names, &count);
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
    weir_page_release(property_names);
}

static void enqueue(runner *self, uint32_t id, char *page, const weir_frames *frames, const char *name,
                    text *out)
{
    weir_slice next = name ? slice(name) : (weir_slice){0};
    uint32_t has_next = name != NULL;
    weir_error error;
    int32_t result;
    unescape(page);
    self->turn++;
    if (self->turn % 4 < 2) {
        result = enqueue_loan(self, id, page, frames, next, has_next, &error);
    } else if (self->turn % 4 == 2) {
        result = weir_query_enqueue_copy(self->query, id, slice(page), frames, next, has_next, &error);
    } else {
        weir_buffer *buffer;
        size_t len = strlen(page);
        if (weir_buffer_new(len + 8, &buffer, NULL) != WEIR_OK)
            abort();
        memcpy(weir_buffer_data(buffer, NULL), page, len);
        result = weir_query_enqueue_buffer(self->query, id, buffer, len, frames, next, has_next, &error);
        if (result != WEIR_OK)
            weir_buffer_free(buffer);
    }
    if (result != WEIR_OK)
        put_error(out, &error);
    collect(self);
}

/* Prints a row for each item, with its values at the paths. */
static void put_values(weir_page *page, char *rest, text *out)
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
            text_put_escaped(out, table[at].ptr, table[at].len);
        else
            text_put(out, "-");
        text_put(out, at % width == width - 1 ? "\n" : " | ");
    }
    free(table);
    weir_page_release(page);
}

static void put_page(runner *self, int32_t kind, weir_page *page, text *out)
{
    weir_page_info info = {.struct_size = sizeof info};
    if (weir_page_describe(page, &info, NULL) != WEIR_OK)
        abort();
    for (size_t at = 0; at < info.item_count; at++) {
        const weir_item *item = &info.items[at];
        if (kind == WEIR_NEED) {
            text_put(out, item->flags & WEIR_ITEM_REQUIRED ? "need " : "ahead ");
            text_put(out, name_of(self, item->source));
            if (item->flags & WEIR_ITEM_CONTINUATION) {
                text_put(out, " ");
                text_add(out, item->ptr, item->len);
            }
        } else {
            int constructed = (item->flags & WEIR_ITEM_CONSTRUCTED) != 0;
            if (item->len && item->ptr != info.buffers[item->buffer].ptr + item->offset)
                abort();
            text_put(out, constructed ? "constructed" : name_of(self, item->source));
            text_put(out, " ");
            text_put_escaped(out, item->ptr, item->len);
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

static void split(runner *self, char *name, char *rest, text *out)
{
    named_source *old = find(self, name);
    source parts[16];
    weir_source_options options[16];
    uint32_t ids[16] = {0};
    char *words[16], *text_copy = copy_text(rest, strlen(rest)), *at = text_copy;
    const char *names[16];
    size_t count = 0;
    weir_error error;
    if (!old)
        abort();
    char *base = copy_text(old->options, strlen(old->options));
    while (*at) {
        char *part = word(&at);
        if (!*part)
            continue;
        char *first = strchr(part, '=');
        if (first)
            *first++ = 0;
        words[count] = copy_text(base, strlen(base));
        parse_source(&parts[count], part, words[count]);
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
    if (weir_query_replace(self->query, id, options, count, ids, &error) == WEIR_OK) {
        for (size_t part = 0; part < count; part++)
            put_source(self, names[part], base, ids[part]);
    } else {
        put_error(out, &error);
    }
    for (size_t part = 0; part < count; part++)
        free(words[part]);
    free(base);
    free(text_copy);
}

static void watermark(runner *self, uint32_t id, char *rest, text *out)
{
    weir_slice keys[16];
    size_t count = 0;
    weir_error error;
    do {
        keys[count++] = slice(word(&rest));
    } while (*rest);
    if (weir_query_watermark(self->query, id, keys, count, &error) != WEIR_OK)
        put_error(out, &error);
}

void query_run(runner *self, char *line, text *out)
{
    char *verb = word(&line);
    weir_page *page = NULL;
    weir_error error;
    int32_t result = WEIR_OK;
    if (!strcmp(verb, "set")) {
        set(self, line);
        return;
    }
    if (!strcmp(verb, "budget")) {
        budget(self, line);
        return;
    }
    if (!strcmp(verb, "open") || !strcmp(verb, "resume")) {
        open_query(self, verb[0] == 'r', out);
        return;
    }
    if (!strcmp(verb, "stop")) {
        result = weir_query_token(self->query, &page, &error);
        if (result == WEIR_OK) {
            size_t one;
            const weir_item *item = weir_page_items(page, &one);
            text_clear(&self->token);
            text_add(&self->token, item->ptr, item->len);
            weir_page_release(page);
            free_query(self);
        }
    } else if (!strcmp(verb, "next")) {
        result = weir_query_next(self->query, (uint32_t)number(line), 0, &page, &error);
        if (result == WEIR_DONE)
            text_put(out, "done\n");
        else if (result > 0)
            put_page(self, result, page, out);
        collect(self);
    } else if (!strcmp(verb, "values")) {
        result = weir_query_next(self->query, 0, 0, &page, &error);
        if (result == WEIR_READY)
            put_values(page, line, out);
        collect(self);
    } else if (!strcmp(verb, "needs")) {
        result = weir_query_needs(self->query, &page, &error);
        if (result == WEIR_NEED)
            put_page(self, result, page, out);
    } else if (!strcmp(verb, "abandon")) {
        result = weir_query_abandon(self->query, slice(line), &error);
    } else if (!strcmp(verb, "explain")) {
        result = weir_query_explain(self->query, &page, &error);
        if (result == WEIR_OK) {
            size_t one;
            const weir_item *item = weir_page_items(page, &one);
            text_add(out, item->ptr, item->len);
            weir_page_release(page);
        }
    } else {
        char *name = word(&line);
        named_source *entry = find(self, name);
        uint32_t id = entry ? entry->id : 99;
        if (!strcmp(verb, "source")) {
            add_source(self, name, line, out);
        } else if (!strcmp(verb, "page")) {
            char *next = word(&line);
            enqueue(self, id, line, NULL, next, out);
        } else if (!strcmp(verb, "last")) {
            enqueue(self, id, line, NULL, NULL, out);
        } else if (!strcmp(verb, "frames")) {
            frame_list to;
            parse_frames(self, &to, word(&line));
            enqueue(self, id, line, &to.frames, NULL, out);
        } else if (!strcmp(verb, "finish")) {
            result = weir_query_finish(self->query, id, &error);
        } else if (!strcmp(verb, "watermark")) {
            watermark(self, id, line, out);
        } else if (!strcmp(verb, "split")) {
            split(self, name, line, out);
        } else {
            abort();
        }
    }
    if (result < 0)
        put_error(out, &error);
}
