/* The query engine of Weir from C, through weir.h and the shared library, on pages of JSON. The argument
 * is one of:
 *
 *   enqueue  lends a page to a query, which scans it; includes opening and freeing the query
 *   next     returns the items of a scanned page, 256 items a call whatever their size, and reads the
 *            length of each; the call after the last item is reported separately, as done
 *
 * Pages, and the hash of the keys, are those of bindings/go/bench. CPU time is that of the process. */
#include "../peer.h"

#include <weir.h>

enum { BATCH = 256 };

static struct page {
    uint8_t *bytes;
    size_t length, room, items;
} pages[PEER_INPUTS_MAX];

static int is_next;

/* ---- pages --------------------------------------------------------------- */

static void put(struct page *page, const char *text) {
    size_t length = strlen(text);
    if (page->room - page->length < length) {
        page->room = 2 * (page->room + length);
        page->bytes = realloc(page->bytes, page->room);
        if (!page->bytes) abort();
    }
    memcpy(page->bytes + page->length, text, length);
    page->length += length;
}

/* Nested arrays; depth 6 and width 10 result in 17 MB. */
static void put_payload(struct page *page, size_t depth, size_t width) {
    if (depth == 0) {
        put(page, "\"value\"");
        return;
    }
    put(page, "[");
    for (size_t i = 0; i < width; i++) {
        put(page, i ? ",{\"key\":" : "{\"key\":");
        put_payload(page, depth - 1, width);
        put(page, "}");
    }
    put(page, "]");
}

static size_t number(const char *fields, const char *name) {
    char text[32];
    return peer_field(fields, name, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

static const char *peer_load(unsigned input, const char *fields) {
    struct page *page = &pages[input];
    size_t items = number(fields, "objects"), depth = number(fields, "depth");
    size_t width = number(fields, "width");
    if (!items || !depth || !width) return "objects, depth or width is missing";
    page->length = 0;
    page->items = items;
    put(page, "[");
    for (size_t i = 0; i < items; i++) {
        char head[256];
        snprintf(head, sizeof head,
                 "%s{\"order\":%zu,\"payload\":{\"id\":\"%zu\",\"title\":\"Partition 1 / Item %zu / "
                 "Order %zu\",\"huge_data\":",
                 i ? "," : "", i, i, i, i);
        put(page, head);
        put_payload(page, depth, width);
        put(page, "}}");
    }
    put(page, "]");
    return NULL;
}

/* ---- passes -------------------------------------------------------------- */

/* Opens a query that is ordered by the key, with one source; NULL if a call fails. */
static weir_query *open_query(uint32_t *source) {
    weir_query_options options = {.struct_size = sizeof options};
    weir_source_options from = {.struct_size = sizeof from, .flags = WEIR_SOURCE_SORTED};
    weir_query *query;
    options.order = (weir_slice){(const uint8_t *)"$.order", 7};
    if (weir_query_open(&options, &query, NULL) <= 0) return NULL;
    if (weir_query_source(query, &from, source, NULL) > 0) return query;
    weir_query_free(query);
    return NULL;
}

/* Pages live as long as the process. */
static void no_release(void *user, const uint8_t *bytes, size_t length) {
    (void)user, (void)bytes, (void)length;
}

static int lend(weir_query *query, uint32_t source, const struct page *page) {
    weir_slice bytes = {page->bytes, page->length}, none = {NULL, 0};
    weir_loan loan = {.release = no_release};
    return weir_query_enqueue_loan(query, source, bytes, NULL, none, 0, &loan, NULL) > 0;
}

static int pass_enqueue(const struct page *page, struct peer_timed *timed) {
    uint32_t source;
    uint64_t cpu = peer_cpu(), wall = peer_wall();
    weir_query *query = open_query(&source);
    int good = query && lend(query, source, page);
    weir_query_free(query);
    timed->wall_ns += peer_wall() - wall;
    timed->cpu_ns += peer_cpu() - cpu;
    timed->touch += page->length;
    return good;
}

/* Reads the length of each item. */
static int read_items(weir_query *query, size_t items, uint64_t *touch) {
    while (items) {
        weir_page *results;
        size_t count;
        if (weir_query_next(query, BATCH, UINT64_MAX, &results, NULL) != WEIR_READY) return 0;
        const weir_item *item = weir_page_items(results, &count);
        for (size_t i = 0; i < count; i++) *touch += item[i].len;
        weir_page_release(results);
        if (count == 0 || count > items) return 0;
        items -= count;
    }
    return 1;
}

static int pass_next(const struct page *page, struct peer_timed *timed, uint64_t *done) {
    uint32_t source;
    weir_page *none = NULL;
    weir_query *query = open_query(&source);
    int good = query && lend(query, source, page);
    uint64_t cpu = peer_cpu(), wall = peer_wall();
    good = good && read_items(query, page->items, &timed->touch);
    timed->wall_ns += peer_wall() - wall;
    timed->cpu_ns += peer_cpu() - cpu;
    wall = peer_wall();
    good = good && weir_query_next(query, BATCH, UINT64_MAX, &none, NULL) == WEIR_DONE;
    *done += peer_wall() - wall;
    weir_query_free(query);
    return good;
}

static int pass(const struct page *page, struct peer_timed *timed, uint64_t *done) {
    return is_next ? pass_next(page, timed, done) : pass_enqueue(page, timed);
}

/* Computes the hash of the keys in their order. */
static int hash_keys(const struct page *page, uint64_t *hash) {
    const weir_slice path = {(const uint8_t *)"$.order", 7};
    weir_slice keys[BATCH];
    uint32_t source;
    weir_query *query = open_query(&source);
    int good = query && lend(query, source, page);
    *hash = 0xCBF29CE484222325u;
    for (size_t left = page->items; good && left;) {
        weir_page *results;
        size_t count;
        if (weir_query_next(query, BATCH, UINT64_MAX, &results, NULL) != WEIR_READY) {
            good = 0;
            break;
        }
        weir_page_items(results, &count);
        good = count > 0 && count <= left && count <= BATCH &&
               weir_page_get(results, 0, count, path, keys, NULL) > 0;
        for (size_t i = 0; good && i < count; i++)
            *hash = peer_fnv(peer_fnv(*hash, keys[i].ptr, keys[i].len), ",", 1);
        weir_page_release(results);
        left -= good ? count : 0;
    }
    weir_query_free(query);
    return good;
}

static const char *peer_check(unsigned input, struct peer_answer *answer) {
    const struct page *page = &pages[input];
    struct peer_timed timed = {0};
    uint64_t done = 0;
    if (!page->items) return "input was not loaded";
    if (!hash_keys(page, &answer->content)) return "the library refused the page";
    uint64_t calls = peer_calls, bytes = peer_bytes;
    peer_counting = 1;
    int good = pass(page, &timed, &done);
    peer_counting = 0;
    answer->touch = timed.touch;
    answer->allocations = peer_calls - calls;
    answer->bytes = peer_bytes - bytes;
    return good ? NULL : "the library refused the page";
}

static const char *peer_run(unsigned input, uint64_t iterations, struct peer_timed *timed) {
    const struct page *page = &pages[input];
    struct peer_timed first = {0};
    uint64_t done = 0;
    if (!page->items) return "input was not loaded";
    /* The process was just scheduled, so its first pass has cold caches. */
    int good = pass(page, &first, &done);
    done = 0;
    for (uint64_t i = 0; good && i < iterations; i++) good = pass(page, timed, &done);
    if (is_next) snprintf(timed->extra, sizeof timed->extra, "\tdone=%" PRIu64, done);
    return good ? NULL : "the library refused the page";
}

int main(int argc, char **argv) {
    char version[256];
    uint32_t source;
    is_next = argc == 2 && strcmp(argv[1], "next") == 0;
    if (argc != 2 || (!is_next && strcmp(argv[1], "enqueue") != 0)) {
        fputs("usage: c-query enqueue|next\n", stderr);
        return 2;
    }
    if (!strstr(weir_build_info(), "profile=release")) {
        fputs("c-query: the C library is not a release build\n", stderr);
        return 1;
    }
    /* The library reuses memory of pages as long as a query exists. */
    if (!open_query(&source)) return 1;
    snprintf(version, sizeof version, "\tweir=%s", weir_build_info());
    return peer_serve(version);
}
