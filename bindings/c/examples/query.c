/*
 * A query over two partitions of another database. Each page has a continuation, which names the next page.
 * The merge requests the pages that it needs. The pages are lent, so nothing is copied.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir.h>

/* A reply of the database: a page of a partition, and the continuation of the next page. */
typedef struct reply {
    const char *partition, *continuation, *page, *next;
} reply;

static const reply replies[] = {
    {"north", "", "[{\"n\":1,\"id\":\"a\"},{\"n\":4,\"id\":\"b\"}]", "n-2"},
    {"north", "n-2", "[{\"n\":6,\"id\":\"c\"}]", NULL},
    {"south", "", "[{\"n\":2,\"id\":\"d\"}]", "s-2"},
    {"south", "s-2", "[]", "s-3"},
    {"south", "s-3", "[{\"n\":3,\"id\":\"e\"},{\"n\":7,\"id\":\"f\"}]", NULL},
};
static const char *const partitions[] = {"north", "south"};

static weir_slice text(const char *from)
{
    return (weir_slice){(const uint8_t *)from, from ? strlen(from) : 0};
}

static void stop(const char *what, const weir_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}

static const reply *fetch(uint32_t source, const weir_item *need)
{
    for (size_t at = 0; at < sizeof replies / sizeof *replies; at++) {
        const reply *found = &replies[at];
        if (!strcmp(found->partition, partitions[source]) &&
            strlen(found->continuation) == need->len &&
            !memcmp(found->continuation, need->len ? (const char *)need->ptr : "", need->len))
            return found;
    }
    exit(1);
}

/* Enqueues the required pages and the pages to read ahead. */
static void supply(weir_query *query, weir_page *needs, weir_loans *loans, weir_error *error)
{
    size_t count;
    const weir_item *need = weir_page_items(needs, &count);
    for (size_t at = 0; at < count; at++) {
        const reply *found = fetch(need[at].source, &need[at]);
        weir_loan loan = {.loans = loans, .cookie = (uint64_t)(found - replies)};
        if (weir_query_enqueue_loan(query, need[at].source, text(found->page), NULL,
                                    text(found->next), found->next != NULL, &loan, error) < 0)
            stop("enqueue", error);
    }
    weir_page_release(needs);
}

/* One call returns many items; one call finds a value in all of them. */
static void show(weir_page *page, weir_error *error)
{
    size_t count;
    const weir_item *items = weir_page_items(page, &count);
    weir_slice *ids = calloc(count, sizeof *ids);
    if (!ids || weir_page_get(page, 0, count, text("$.id"), ids, error) < 0)
        stop("get", error);
    for (size_t at = 0; at < count; at++)
        printf("%s %.*s id %.*s\n", partitions[items[at].source], (int)items[at].len,
               (const char *)items[at].ptr, (int)ids[at].len, (const char *)ids[at].ptr);
    free(ids);
    weir_page_release(page);
}

int main(void)
{
    weir_query *query;
    weir_loans *loans;
    weir_page *page;
    weir_error error;
    int32_t kind;
    weir_query_options options = {.struct_size = sizeof options, .flags = WEIR_QUERY_LIMIT, .limit = 5};
    options.order = text("$.n");
    options.where = text("@.n != 4");
    if (weir_loans_new(&loans, &error) < 0 || weir_query_open(&options, &query, &error) < 0)
        stop("open", &error);
    for (size_t at = 0; at < 2; at++) {
        uint32_t number;
        weir_source_options source = {.struct_size = sizeof source,
                                      .flags = WEIR_SOURCE_SORTED};
        source.name = text(partitions[at]);
        if (weir_query_source(query, &source, &number, &error) < 0)
            stop("source", &error);
    }
    while ((kind = weir_query_next(query, 0, 0, &page, &error)) != WEIR_DONE) {
        if (kind == WEIR_READY)
            show(page, &error);
        else if (kind == WEIR_NEED)
            supply(query, page, loans, &error);
        else
            stop("next", &error);
    }
    weir_query_free(query);

    /* All loans were returned. */
    uint64_t cookies[8], left;
    size_t returned;
    if (weir_loans_collect(loans, cookies, 8, &returned, &left, &error) < 0)
        stop("collect", &error);
    printf("%zu pages were lent and returned, %d are out\n", returned, (int)left);
    weir_loans_free(loans);
    return left != 0;
}
