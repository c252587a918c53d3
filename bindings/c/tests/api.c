/* The commands of vectors/api. */
#include "text.h"

enum { OBJECTS_MAX = 16, INTENTIONS_MAX = 64, CLAIMS = 256 };

typedef struct stored_intention {
    char *line; /* the slices point into it */
    weir_intention intention;
    weir_topic_options options;
    weir_expect expects[8];
    weir_step *steps;
    char *step_lines[INTENTIONS_MAX];
} stored_intention;

typedef struct named_object {
    char *name;
    weir_session *session;
    weir_reader *reader;
    weir_group *group;
    weir_claim claims[CLAIMS];
    size_t claim_count;
} named_object;

struct runner {
    char *directory;
    const char *address; /* of a server; NULL: opens the directory */
    weir *store;
    named_object objects[OBJECTS_MAX];
    size_t count;
    stored_intention *intentions[INTENTIONS_MAX];
    size_t intention_count;
    char *steps[INTENTIONS_MAX];
    size_t step_count;
    weir_pending *pending;
    size_t sent;
};

runner *api_runner(const char *directory, const char *address)
{
    runner *self = calloc(1, sizeof *self);
    if (!self)
        abort();
    self->directory = copy_text(directory, strlen(directory));
    self->address = address;
    return self;
}

static void free_intention(stored_intention *one)
{
    for (size_t at = 0; at < one->intention.step_count; at++)
        free(one->step_lines[at]);
    free(one->steps);
    free(one->line);
    free(one);
}

void api_end(runner *self)
{
    for (size_t at = 0; at < self->count; at++) {
        weir_session_free(self->objects[at].session);
        weir_reader_free(self->objects[at].reader);
        weir_group_free(self->objects[at].group);
        free(self->objects[at].name);
    }
    for (size_t at = 0; at < self->intention_count; at++)
        free_intention(self->intentions[at]);
    for (size_t at = 0; at < self->step_count; at++)
        free(self->steps[at]);
    weir_pending_free(self->pending);
    weir_close(self->store, NULL);
    free(self->directory);
    free(self);
}

static named_object *object_of(runner *self, const char *name)
{
    for (size_t at = 0; at < self->count; at++)
        if (!strcmp(self->objects[at].name, name))
            return &self->objects[at];
    if (self->count == OBJECTS_MAX)
        abort();
    self->objects[self->count].name = copy_text(name, strlen(name));
    return &self->objects[self->count++];
}

static void put_error(text *out, int32_t code)
{
    text_put(out, "! ");
    text_code(out, code);
    text_put(out, "\n");
}

/* A key, a prefix or an offset; `-` means empty. */
static weir_slice parse_key(char *from)
{
    return strcmp(from, "-") ? slice(unescape(from)) : (weir_slice){0};
}

static void parse_topic_options(weir_topic_options *to, char *words)
{
    to->struct_size = sizeof *to;
    while (*words) {
        char *name = word(&words), *value = strchr(name, '=');
        if (!value)
            continue;
        *value++ = 0;
        if (!strcmp(name, "compaction")) {
            to->compaction = 1;
        } else if (!strcmp(name, "key_bytes_max")) {
            to->set |= WEIR_TOPIC_KEY_BYTES_MAX;
            to->key_bytes_max = number(value);
        } else if (!strcmp(name, "value_bytes_max")) {
            to->set |= WEIR_TOPIC_VALUE_BYTES_MAX;
            to->value_bytes_max = number(value);
        } else if (!strcmp(name, "keys_max")) {
            to->set |= WEIR_TOPIC_KEYS_MAX;
            to->keys_max = number(value);
        } else {
            abort();
        }
    }
}

static void parse_conditions(stored_intention *to, char *words)
{
    static const char *const names[] = {"",      "offset",          "absent",      "present",
                                        "topic", "topic-absent-or", "topic-empty", "incarnation"};
    while (words && *words) {
        char *next = strchr(words, ',');
        if (next)
            *next++ = 0;
        weir_expect *expect = &to->expects[to->intention.expect_count++];
        char *key = strchr(words, '@'), *value;
        if (key) {
            *key++ = 0;
            expect->has_key = 1;
            expect->key = slice(key);
        }
        value = strchr(words, ':');
        if (value) {
            *value++ = 0;
            expect->offset = number(value);
        }
        for (uint32_t kind = 1; kind < 8; kind++)
            if (!strcmp(words, names[kind]))
                expect->kind = kind;
        words = next;
    }
    to->intention.expects = to->expects;
}

static void take_steps(runner *self, stored_intention *to)
{
    to->steps = calloc(self->step_count + 1, sizeof *to->steps);
    if (!to->steps)
        abort();
    for (size_t at = 0; at < self->step_count; at++) {
        char *rest = to->step_lines[at] = self->steps[at];
        to->steps[at].operation = strcmp(word(&rest), "put") ? WEIR_DELETE : WEIR_PUT;
        to->steps[at].key = parse_key(word(&rest));
        to->steps[at].value = slice(unescape(rest));
    }
    to->intention.steps = to->steps;
    to->intention.step_count = self->step_count;
    self->step_count = 0;
}

/* Parses a command that writes, and stores its intention. */
static stored_intention *parse_intention(runner *self, const char *line)
{
    stored_intention *to = calloc(1, sizeof *to);
    if (!to)
        abort();
    char *rest = to->line = copy_text(line, strlen(line));
    weir_intention *intention = &to->intention;
    intention->struct_size = sizeof *intention;
    const char *verb = word(&rest);
    intention->topic = slice(word(&rest));
    if (!strcmp(verb, "create") || !strcmp(verb, "alter")) {
        intention->operation = verb[0] == 'c' ? WEIR_CREATE : WEIR_ALTER;
        parse_topic_options(&to->options, rest);
        intention->options = &to->options;
    } else if (!strcmp(verb, "destroy")) {
        intention->operation = WEIR_DESTROY;
    } else if (!strcmp(verb, "transaction")) {
        intention->operation = WEIR_TRANSACTION;
        parse_conditions(to, rest);
        take_steps(self, to);
    } else if (!strncmp(verb, "put", 3)) {
        intention->operation = WEIR_PUT;
        intention->key = parse_key(word(&rest));
        if (!strcmp(verb, "put-if"))
            parse_conditions(to, word(&rest));
        if (!strcmp(verb, "put-meta"))
            intention->meta = slice(unescape(word(&rest)));
        intention->value = slice(unescape(rest));
    } else if (!strncmp(verb, "delete", 6)) {
        intention->operation = WEIR_DELETE;
        intention->key = parse_key(word(&rest));
        parse_conditions(to, rest);
    } else {
        fprintf(stderr, "no command %s\n", verb);
        abort();
    }
    return to;
}

static void put_verdict(const weir_verdict *of, const weir_item *words, text *out)
{
    static const char *const effects[] = {"", "valid ", "invalid ", "error "};
    if (of->effect == WEIR_REFUSED) {
        text_put(out, "refused ");
        text_code(out, of->reason);
        text_put(out, " next ");
        text_number(out, of->detail);
        text_put(out, "\n");
        return;
    }
    if (of->flags & 1)
        text_put(out, "again ");
    text_put(out, effects[of->effect]);
    text_number(out, of->intention);
    if (of->records) {
        text_put(out, " at ");
        text_number(out, of->offset);
    }
    if (of->records > 1) {
        text_put(out, " +");
        text_number(out, of->records - 1);
    }
    if (of->reason) {
        text_put(out, " ");
        text_code(out, of->reason);
    }
    static const char *const details[] = {"",          " actual ", " limit ", " step ",
                                          " rejected ", " trap ",  " text "};
    text_put(out, details[of->detail_kind]);
    if (of->detail_kind >= WEIR_DETAIL_ACTUAL && of->detail_kind <= WEIR_DETAIL_REJECTED)
        text_number(out, of->detail);
    if (of->detail_kind == WEIR_DETAIL_STEP) {
        text_put(out, " ");
        text_code(out, of->detail_reason);
    }
    if (of->detail_kind == WEIR_DETAIL_REJECTED)
        text_put(out, " ");
    if (words)
        text_add(out, words->ptr, words->len);
    text_put(out, "\n");
}

static void put_verdicts(const weir_verdict *all, size_t count, weir_page *texts, text *out)
{
    size_t some;
    const weir_item *words = texts ? weir_page_items(texts, &some) : NULL;
    for (size_t at = 0; at < count; at++)
        put_verdict(&all[at], words ? &words[at] : NULL, out);
    weir_page_release(texts);
}

/* Submits intentions, in a session if there is one. */
static int32_t submit(runner *self, weir_session *session, stored_intention **all, size_t count, int wait,
                      text *out)
{
    weir_intention *intentions = calloc(count + 1, sizeof *intentions);
    weir_verdict *verdict_list = calloc(count + 1, sizeof *verdict_list);
    weir_page *texts = NULL;
    weir_error error;
    int32_t result;
    if (!intentions || !verdict_list)
        abort();
    for (size_t at = 0; at < count; at++)
        intentions[at] = all[at]->intention;
    if (!wait) {
        weir_pending_free(self->pending);
        self->pending = NULL;
        self->sent = count;
        result = weir_send(self->store, intentions, count, &self->pending, &error);
    } else if (session) {
        result = weir_session_submit(session, intentions, count, verdict_list, &texts, &error);
    } else {
        result = weir_submit(self->store, intentions, count, verdict_list, &texts, &error);
    }
    if (result == WEIR_OK && wait)
        put_verdicts(verdict_list, count, texts, out);
    for (size_t at = 0; at < count; at++)
        free_intention(all[at]);
    free(intentions);
    free(verdict_list);
    return result;
}

static int32_t submit_all(runner *self, weir_session *session, int wait, text *out)
{
    size_t count = self->intention_count;
    self->intention_count = 0;
    return submit(self, session, self->intentions, count, wait, out);
}

static int32_t submit_one(runner *self, weir_session *session, const char *line, text *out)
{
    stored_intention *one = parse_intention(self, line);
    return submit(self, session, &one, 1, 1, out);
}

static int32_t wait_for(runner *self, text *out)
{
    weir_verdict verdict_list[INTENTIONS_MAX];
    weir_page *texts = NULL;
    int32_t result =
        weir_pending_wait(self->pending, WEIR_FOREVER, verdict_list, INTENTIONS_MAX, &texts, NULL);
    if (result == WEIR_OK)
        put_verdicts(verdict_list, self->sent, texts, out);
    return result;
}

static void put_record(const weir_record *of, const weir_item *value, text *out)
{
    static const char *const kinds[] = {"", "CREATE", "DESTROY", "PUT", "DELETE", "ALTER", "REPLACE"};
    text_number(out, of->offset);
    text_put(out, " ");
    text_put(out, kinds[of->kind]);
    if (of->kind == WEIR_RECORD_PUT || of->kind == WEIR_RECORD_DELETE) {
        text_put(out, " ");
        text_put_escaped(out, of->key, of->key_len);
    }
    if (of->kind == WEIR_RECORD_PUT) {
        text_put(out, "=");
        text_put_escaped(out, value->ptr, value->len);
    }
    if (of->meta_len) {
        text_put(out, " meta ");
        text_put_escaped(out, of->meta, of->meta_len);
    }
}

/* Checks that pointers and offsets agree. */
static void check_offsets(const weir_page_info *of, size_t at)
{
    const weir_item *item = &of->items[at];
    const weir_record *row = &of->records[at];
    if (item->len && item->ptr != of->buffers[item->buffer].ptr + item->offset)
        abort();
    if (row->key_len && row->key != of->buffers[row->buffer].ptr + row->key_offset)
        abort();
    if (row->meta_len && row->meta != of->buffers[row->buffer].ptr + row->meta_offset)
        abort();
}

static weir_page_info info_of(weir_page *page)
{
    weir_page_info info = {.struct_size = sizeof info};
    if (weir_page_describe(page, &info, NULL) != WEIR_OK)
        abort();
    for (size_t at = 0; at < info.record_count; at++)
        check_offsets(&info, at);
    return info;
}

/* Prints all records of a page and returns their number. */
static size_t put_records(weir_page *page, text *out)
{
    weir_page_info info = info_of(page);
    for (size_t at = 0; at < info.item_count; at++) {
        put_record(&info.records[at], &info.items[at], out);
        text_put(out, "\n");
    }
    weir_page_release(page);
    return info.item_count;
}

static int32_t parse_position(char *text, uint32_t *from, uint64_t *number_of)
{
    char *value = strchr(text, ':');
    if (value && !strncmp(text, "text:", 5))
        return weir_position(slice(value + 1), from, number_of, NULL);
    if (value) {
        *value++ = 0;
        *number_of = number(value);
    }
    *from = !strcmp(text, "start")   ? WEIR_FROM_START
            : !strcmp(text, "end")   ? WEIR_FROM_END
            : !strcmp(text, "after") ? WEIR_FROM_AFTER
                                     : WEIR_FROM_LAST;
    return WEIR_OK;
}

static int32_t open_reader(runner *self, const char *topic, char *from, uint32_t flags, weir_reader **out)
{
    weir_read_options options = {.struct_size = sizeof options, .flags = flags};
    int32_t result = parse_position(from, &options.from, &options.value);
    if (result < 0)
        return result;
    return weir_reader_open(self->store, slice(topic), &options, out, NULL);
}

static int32_t put_log(runner *self, const char *topic, char *from, text *out)
{
    weir_reader *all;
    weir_page *page;
    int32_t result = open_reader(self, topic, from, 0, &all);
    if (result < 0)
        return result;
    while ((result = weir_reader_next(all, 0, &page, NULL)) == WEIR_READY)
        put_records(page, out);
    weir_reader_free(all);
    return result;
}

static int32_t put_scan(runner *self, const char *topic, char *rest, uint32_t flags, text *out)
{
    weir_slice prefix = parse_key(word(&rest)), after = parse_key(word(&rest));
    weir_page *page;
    if (after.len)
        flags |= WEIR_SCAN_AFTER;
    int32_t result = weir_scan(self->store, slice(topic), prefix, after, number(rest), flags, &page, NULL);
    if (result == WEIR_DONE)
        text_put(out, "done\n");
    if (result != WEIR_OK)
        return result;
    weir_page_info info = info_of(page);
    for (size_t at = 0; at < info.item_count; at++) {
        text_put_escaped(out, info.records[at].key, info.records[at].key_len);
        text_put(out, " ");
        text_number(out, info.records[at].offset);
        if (flags & WEIR_SCAN_VALUES) {
            text_put(out, " ");
            text_put_escaped(out, info.items[at].ptr, info.items[at].len);
        }
        text_put(out, "\n");
    }
    weir_page_release(page);
    return result;
}

static int32_t put_one_record(int32_t result, weir_page *page, text *out)
{
    if (result == WEIR_OK)
        put_records(page, out);
    if (result == WEIR_ABSENT)
        text_put(out, "absent\n");
    return result;
}

static int32_t put_topic_info(runner *self, const char *topic, text *out)
{
    weir_topic_info of = {.struct_size = sizeof of};
    int32_t result = weir_topic_describe(self->store, slice(topic), &of, NULL);
    if (result == WEIR_ABSENT)
        text_put(out, "absent\n");
    if (result != WEIR_OK)
        return result;
    text_put(out, of.live ? "live first " : "dead first ");
    text_number(out, of.first);
    text_put(out, " last ");
    text_number(out, of.last);
    text_put(out, " keys ");
    text_number(out, of.keys);
    text_put(out, "\n");
    return result;
}

static int32_t put_topics(runner *self, uint32_t all, text *out)
{
    weir_page *page;
    int32_t result = weir_topics(self->store, all, &page, NULL);
    if (result != WEIR_OK)
        return result;
    weir_page_info of = info_of(page);
    for (size_t at = 0; at < of.item_count; at++) {
        text_add(out, of.items[at].ptr, of.items[at].len);
        text_put(out, "\n");
    }
    weir_page_release(page);
    return result;
}

static int32_t ensure(runner *self, const char *topic, text *out)
{
    uint32_t created;
    int32_t result = weir_topic_ensure(self->store, slice(topic), NULL, &created, NULL);
    if (result == WEIR_OK)
        text_put(out, created ? "created\n" : "there\n");
    return result;
}

/* Runs a command that reads a store. Returns 0 if the command is another one. */
static int32_t run_read(runner *self, const char *verb, char *rest, text *out)
{
    weir_page *page = NULL;
    if (!strcmp(verb, "topics"))
        return put_topics(self, *rest != 0, out);
    char *topic = word(&rest);
    if (!strcmp(verb, "ensure"))
        return ensure(self, topic, out);
    if (!strcmp(verb, "get")) {
        int32_t result = weir_get(self->store, slice(topic), parse_key(rest), &page, NULL);
        return put_one_record(result, page, out);
    }
    if (!strcmp(verb, "at")) {
        int32_t result = weir_at(self->store, slice(topic), number(rest), &page, NULL);
        return put_one_record(result, page, out);
    }
    if (!strcmp(verb, "scan"))
        return put_scan(self, topic, rest, 0, out);
    if (!strcmp(verb, "scan-values"))
        return put_scan(self, topic, rest, WEIR_SCAN_VALUES, out);
    if (!strcmp(verb, "log"))
        return put_log(self, topic, rest, out);
    if (!strcmp(verb, "info"))
        return put_topic_info(self, topic, out);
    return 0;
}

static int32_t next(named_object *of, uint64_t wanted, uint64_t patience, text *out)
{
    uint64_t found = 0;
    while (found < wanted) {
        weir_page *page;
        int32_t result = weir_reader_next(of->reader, patience, &page, NULL);
        if (result == WEIR_TIMEOUT)
            text_put(out, "timeout\n");
        if (result != WEIR_READY)
            return result;
        found += put_records(page, out);
    }
    return WEIR_OK;
}

static int32_t open_session(runner *self, char *rest)
{
    uint8_t client[64];
    size_t len = 0;
    named_object *of = object_of(self, word(&rest));
    for (; rest[0] && rest[1]; rest += 2) {
        char pair[3] = {rest[0], rest[1], 0};
        client[len++] = (uint8_t)strtoul(pair, NULL, 16);
    }
    weir_session_free(of->session);
    of->session = NULL;
    return weir_session_open(self->store, (weir_slice){client, len}, &of->session, NULL);
}

static int32_t open_group(runner *self, char *rest)
{
    weir_group_options options = {.struct_size = sizeof options};
    weir_group *opened = NULL;
    char *name = word(&rest);
    weir_slice topic = slice(word(&rest)), group_name = slice(word(&rest));
    const char *mode = word(&rest);
    options.mode = mode[0] == 'e'   ? WEIR_GROUP_MODE_EXCLUSIVE
                   : mode[0] == 'k' ? WEIR_GROUP_MODE_KEYED
                                    : WEIR_GROUP_MODE_SHARED;
    options.member = slice(word(&rest));
    while (*rest) {
        char *option = word(&rest), *value = strchr(option, '=');
        if (value)
            *value++ = 0;
        if (!strcmp(option, "lease"))
            options.lease_ms = number(value);
        else if (!strcmp(option, "attempts"))
            options.attempts_max = (uint32_t)number(value);
        else if (!strcmp(option, "dead"))
            options.dead_letters = slice(value);
        else if (!strcmp(option, "start")) {
            int32_t result = parse_position(value, &options.from, &options.value);
            if (result < 0)
                return result;
        } else if (!strcmp(option, "existing"))
            options.flags |= WEIR_GROUP_EXISTING;
        else
            abort();
    }
    int32_t result = weir_group_open(self->store, topic, group_name, &options, &opened, NULL);
    if (result == WEIR_OK) {
        named_object *of = object_of(self, name);
        weir_group_free(of->group);
        of->group = opened;
        of->claim_count = 0;
    }
    return result;
}

static int32_t claim(named_object *of, uint64_t limit, uint64_t patience, text *out)
{
    weir_page *page;
    int32_t result = weir_group_claim(of->group, limit, patience, &page, NULL);
    if (result == WEIR_TIMEOUT)
        text_put(out, "timeout\n");
    if (result != WEIR_READY)
        return result;
    weir_page_info info = info_of(page);
    for (size_t at = 0; at < info.item_count; at++) {
        const weir_record *row = &info.records[at];
        put_record(row, &info.items[at], out);
        text_put(out, " attempt ");
        text_number(out, row->attempts);
        text_put(out, "\n");
        size_t index = 0;
        while (index < of->claim_count && of->claims[index].offset != row->offset)
            index++;
        if (index == CLAIMS)
            abort();
        if (index == of->claim_count)
            of->claim_count++;
        of->claims[index] = (weir_claim){row->offset, row->claim};
    }
    weir_page_release(page);
    return result;
}

static int32_t settle(named_object *of, uint32_t verb, uint64_t time, char *rest, text *out)
{
    weir_claim claims[CLAIMS];
    uint64_t lost[CLAIMS];
    size_t count = 0, lost_count = 0;
    while (*rest) {
        claims[count] = (weir_claim){number(word(&rest)), 0};
        for (size_t at = 0; at < of->claim_count; at++)
            if (of->claims[at].offset == claims[count].offset)
                claims[count] = of->claims[at];
        count++;
    }
    int32_t result = weir_group_settle(of->group, claims, count, verb, time, (weir_slice){0}, lost,
                                       &lost_count, NULL);
    for (size_t at = 0; result == WEIR_OK && at < lost_count; at++) {
        text_put(out, "lost ");
        text_number(out, lost[at]);
        text_put(out, "\n");
    }
    return result;
}

static int32_t group_info(named_object *of, text *out)
{
    weir_group_info info = {.struct_size = sizeof info};
    int32_t result = weir_group_describe(of->group, &info, NULL);
    if (result == WEIR_OK) {
        char line[128];
        snprintf(line, sizeof line, "cursor %llu lag %llu leased %llu waiting %llu\n",
                 (unsigned long long)info.cursor, (unsigned long long)info.lag,
                 (unsigned long long)info.leased, (unsigned long long)info.waiting);
        text_put(out, line);
    }
    return result;
}

/* Runs a command on a named object. Returns 0 if the command is another one. */
static int32_t run_on_object(runner *self, const char *verb, char *rest, text *out)
{
    static const char *const verbs[] = {"as",   "nonce",  "resume",    "listen", "next",  "claim",
                                        "done", "fail",   "done-soon", "extend", "leave", "take-over",
                                        "end",  "reset",  "group-info"};
    size_t index = 0;
    while (index < sizeof verbs / sizeof *verbs && strcmp(verb, verbs[index]))
        index++;
    if (index == sizeof verbs / sizeof *verbs)
        return 0;
    named_object *of = object_of(self, word(&rest));
    if (!strcmp(verb, "as"))
        return strcmp(rest, "submit") ? submit_one(self, of->session, rest, out)
                                      : submit_all(self, of->session, 1, out);
    if (!strcmp(verb, "nonce")) {
        uint64_t nonce;
        int32_t result = weir_session_next_nonce(of->session, &nonce, NULL);
        if (result == WEIR_OK) {
            text_number(out, nonce);
            text_put(out, "\n");
        }
        return result;
    }
    if (!strcmp(verb, "resume"))
        return weir_session_resume(of->session, number(rest), NULL);
    if (!strcmp(verb, "listen")) {
        char *topic = word(&rest);
        weir_reader_free(of->reader);
        of->reader = NULL;
        return open_reader(self, topic, rest, WEIR_READ_AWAIT, &of->reader);
    }
    if (!strcmp(verb, "next")) {
        uint64_t wanted = number(word(&rest));
        return next(of, wanted, number(rest), out);
    }
    if (!strcmp(verb, "claim")) {
        uint64_t limit = number(word(&rest));
        return claim(of, limit, number(rest), out);
    }
    if (!strcmp(verb, "done"))
        return settle(of, WEIR_SETTLE_DONE, 0, rest, out);
    if (!strcmp(verb, "done-soon"))
        return settle(of, WEIR_SETTLE_DONE_SOON, 0, rest, out);
    if (!strcmp(verb, "fail") || !strcmp(verb, "extend")) {
        uint32_t settle_verb = verb[0] == 'f' ? WEIR_SETTLE_FAIL : WEIR_SETTLE_EXTEND;
        uint64_t time = number(word(&rest));
        return settle(of, settle_verb, time, rest, out);
    }
    if (!strcmp(verb, "group-info"))
        return group_info(of, out);
    uint32_t step = !strcmp(verb, "take-over") ? WEIR_GROUP_TAKE_OVER
                    : !strcmp(verb, "leave")   ? WEIR_GROUP_LEAVE
                    : !strcmp(verb, "reset")   ? WEIR_GROUP_RESET
                                               : WEIR_GROUP_DELETE;
    uint32_t from = WEIR_FROM_START;
    uint64_t value = 0;
    if (step == WEIR_GROUP_RESET) {
        int32_t result = parse_position(rest, &from, &value);
        if (result < 0)
            return result;
    }
    return weir_group_step(of->group, step, from, value, NULL);
}

static int32_t open_store(runner *self)
{
    weir_open_options options = {.struct_size = sizeof options, .durability = WEIR_DURABILITY_MEMORY};
    weir *store;
    int32_t result = self->address ? weir_connect(slice(self->address), NULL, &store, NULL)
                                   : weir_open(slice(self->directory), &options, &store, NULL);
    if (result == WEIR_OK)
        self->store = store;
    return result;
}

void api_run(runner *self, char *line, text *out)
{
    char *whole = copy_text(line, strlen(line));
    char *verb = word(&line);
    int32_t result;
    if (!strcmp(verb, "open")) {
        result = open_store(self);
    } else if (!strcmp(verb, "close")) {
        result = weir_close(self->store, NULL);
        self->store = NULL;
    } else if (!strcmp(verb, "add")) {
        self->intentions[self->intention_count++] = parse_intention(self, line);
        result = WEIR_OK;
    } else if (!strcmp(verb, "step")) {
        self->steps[self->step_count++] = copy_text(line, strlen(line));
        result = WEIR_OK;
    } else if (!strcmp(verb, "wait")) {
        result = wait_for(self, out);
    } else if (!strcmp(verb, "session")) {
        result = open_session(self, line);
    } else if (!strcmp(verb, "group")) {
        result = open_group(self, line);
    } else if ((result = run_on_object(self, verb, line, out)) != 0) {
        /* already run */
    } else if (!self->store) {
        result = WEIR_E_CLOSED;
    } else if (!strcmp(verb, "submit") || !strcmp(verb, "send")) {
        result = submit_all(self, NULL, verb[1] == 'u', out);
    } else if ((result = run_read(self, verb, line, out)) == 0) {
        result = submit_one(self, NULL, whole, out);
    }
    free(whole);
    if (result < 0)
        put_error(out, result);
}
