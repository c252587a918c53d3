/* Writes to a store and reads from it: store DIRECTORY */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <weir.h>

static weir_slice text(const char *from)
{
    return (weir_slice){(const uint8_t *)from, strlen(from)};
}

/* Prints the error and returns the exit code 1. */
static int failed(const char *what, const weir_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

static void show(weir_page *page)
{
    weir_page_info info = {.struct_size = sizeof info};
    if (weir_page_describe(page, &info, NULL) != WEIR_OK)
        return;
    for (size_t at = 0; at < info.record_count; at++) {
        const weir_record *record = &info.records[at];
        const weir_item *value = &info.items[at];
        printf("%" PRIu64 " %.*s %.*s\n", record->offset, (int)record->key_len,
               (const char *)record->key, (int)value->len, (const char *)value->ptr);
    }
    weir_page_release(page);
}

/* Two writes in one call. The second has a condition: the key still has the value of the first write. */
static int write(weir *store, weir_error *error)
{
    weir_intention intentions[2] = {{.struct_size = sizeof *intentions},
                                    {.struct_size = sizeof *intentions}};
    weir_verdict verdicts[2];
    weir_expect expect = {.kind = WEIR_EXPECT_KEY_OFFSET, .offset = 2};
    for (int at = 0; at < 2; at++) {
        intentions[at].operation = WEIR_PUT;
        intentions[at].topic = text("orders");
        intentions[at].key = text("4711");
    }
    intentions[0].value = text("{\"state\":\"open\"}");
    intentions[1].value = text("{\"state\":\"paid\"}");
    intentions[1].expects = &expect;
    intentions[1].expect_count = 1;
    if (weir_submit(store, intentions, 2, verdicts, NULL, error) < 0)
        return failed("submit", error);
    for (int at = 0; at < 2; at++) {
        /* A verdict other than VALID is a value, not an error. */
        if (verdicts[at].effect != WEIR_VALID)
            printf("refused with %d\n", (int)verdicts[at].reason);
        else
            printf("written at %" PRIu64 "\n", verdicts[at].offset);
    }
    return 0;
}

static int read(weir *store, weir_error *error)
{
    weir_reader *reader;
    weir_page *page;
    int32_t kind;
    kind = weir_get(store, text("orders"), text("4711"), &page, error);
    if (kind < 0)
        return failed("get", error);
    if (kind == WEIR_OK) /* with WEIR_ABSENT there is no page */
        show(page);
    weir_read_options all = {.struct_size = sizeof all, .from = WEIR_FROM_START};
    if (weir_reader_open(store, text("orders"), &all, &reader, error) < 0)
        return failed("read", error);
    /* Pages of adjacent records. A timeout of 0 returns only records that exist now. */
    while ((kind = weir_reader_next(reader, 0, &page, error)) == WEIR_READY)
        show(page);
    weir_reader_free(reader);
    return kind < 0 ? failed("read", error) : 0;
}

int main(int count, char **words)
{
    weir *store;
    weir_error error;
    if (count != 2) {
        fprintf(stderr, "store DIRECTORY\n");
        return 2;
    }
    if (weir_open(text(words[1]), NULL, &store, &error) < 0)
        return failed(words[1], &error);
    int result = 1;
    if (weir_topic_ensure(store, text("orders"), NULL, NULL, &error) < 0)
        failed("orders", &error);
    else
        result = write(store, &error) || read(store, &error);
    if (weir_close(store, &error) < 0)
        return failed("close", &error);
    return result;
}
