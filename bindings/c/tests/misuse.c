/*
 * Mistakes that a C caller can make, run under the sanitizers: NULL, handles of a wrong type or already
 * released, lengths beyond any memory, a page released by another thread after its query, two threads in one
 * handle. Also a server that closes connections, while SIGPIPE ends the process.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text.h"

#define CHECK(is)                                                                  \
    do {                                                                           \
        if (!(is)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #is); \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

static weir_query *query_of(uint32_t *source)
{
    weir_query *query;
    weir_source_options options = {.struct_size = sizeof options};
    CHECK(weir_query_open(NULL, &query, NULL) == WEIR_OK);
    CHECK(weir_query_source(query, &options, source, NULL) == WEIR_OK);
    return query;
}

static void null_and_stale(void)
{
    uint32_t source;
    weir_page *page;
    weir_query *query = query_of(&source);
    weir_slice many = {NULL, 1}, endless = {(const uint8_t *)"", SIZE_MAX}, none = {0};
    CHECK(weir_query_next(NULL, 0, 0, &page, NULL) == WEIR_E_NULL_POINTER);
    CHECK(weir_query_next(query, 0, 0, NULL, NULL) == WEIR_E_NULL_POINTER);
    CHECK(weir_query_enqueue_copy(query, source, many, NULL, none, 0, NULL) == WEIR_E_NULL_POINTER);
    CHECK(weir_query_enqueue_copy(query, source, endless, NULL, none, 0, NULL) == WEIR_E_BAD_LENGTH);
    CHECK(weir_sync((weir *)query, NULL) == WEIR_E_BAD_HANDLE);
    CHECK(weir_pending_received((weir_pending *)query, 0, NULL) == WEIR_E_BAD_HANDLE);
    CHECK(weir_pending_received(NULL, 0, NULL) == WEIR_E_NULL_POINTER);
    weir_page_release((weir_page *)query);
    CHECK(weir_query_next((weir_query *)&source, 0, 0, &page, NULL) == WEIR_E_BAD_HANDLE);
    weir_query_free(query);
    weir_query_free(query);
    CHECK(weir_query_next(query, 0, 0, &page, NULL) == WEIR_E_BAD_HANDLE);
    weir_error garbage;
    memset(&garbage, 0xA5, sizeof garbage);
    CHECK(weir_query_cancel(query) == WEIR_E_BAD_HANDLE);
    CHECK(weir_query_token(query, &page, &garbage) == garbage.code);
    CHECK(garbage.source == WEIR_NO_SOURCE && strlen(garbage.message) > 0);
}

static void consistencies(weir *store)
{
    weir *reads = NULL;
    weir_page *page;
    weir_error error;
    for (uint32_t consistency = WEIR_CONSISTENCY_LOCAL; consistency <= WEIR_CONSISTENCY_LINEAR; consistency++) {
        CHECK(weir_with_consistency(store, consistency, &reads, &error) == WEIR_OK);
        CHECK(weir_get(reads, slice("t"), slice("k"), &page, &error) == WEIR_ABSENT);
        CHECK(weir_close(reads, &error) == WEIR_OK);
        reads = NULL;
    }
    CHECK(weir_with_consistency(store, 4, &reads, &error) == WEIR_E_BAD_OPTION && !reads);
    CHECK(strstr(error.message, "the consistency is 4"));
}

/* A query of the topic `t` with a position and a size of its structure. */
static int32_t query_from(weir *store, uint32_t from, size_t size)
{
    weir_query *query;
    weir_slice name = slice("t");
    weir_topics_options topics = {
        .struct_size = (uint32_t)size, .topics = &name, .topic_count = 1, .from = from, .value = UINT64_MAX};
    int32_t result = weir_query_open_topics(store, &topics, NULL, &query, NULL);
    if (result == WEIR_OK)
        weir_query_free(query);
    return result;
}

static void options_of_reads(const char *directory)
{
    weir *store;
    weir_open_options memory = {.struct_size = sizeof memory, .durability = WEIR_DURABILITY_MEMORY};
    CHECK(weir_open(slice(directory), &memory, &store, NULL) == WEIR_OK);
    CHECK(weir_topic_ensure(store, slice("t"), NULL, NULL, NULL) == WEIR_OK);
    consistencies(store);
    for (uint32_t from = WEIR_FROM_START; from <= WEIR_FROM_TIME; from++)
        CHECK(query_from(store, from, sizeof(weir_topics_options)) == WEIR_OK);
    CHECK(query_from(store, WEIR_FROM_TIME + 1, sizeof(weir_topics_options)) == WEIR_E_BAD_OPTION);
    /* Version 0.6 had 56 bytes, without `value`. */
    CHECK(query_from(store, WEIR_FROM_AFTER, 56) == WEIR_OK);
    CHECK(query_from(store, WEIR_FROM_START, 55) == WEIR_E_BAD_STRUCT);
    CHECK(weir_close(store, NULL) == WEIR_OK);
}

static void freed(void *user, const uint8_t *ptr, size_t len)
{
    (void)len;
    ++*(int *)user;
    free((void *)ptr);
}

static void *read_and_release(void *page)
{
    size_t count;
    const weir_item *items = weir_page_items(page, &count);
    CHECK(count == 2 && items[1].len == 1 && items[1].ptr[0] == '2');
    weir_page_release(page);
    return NULL;
}

static void released_elsewhere(void)
{
    int returned = 0;
    uint32_t source;
    weir_page *page;
    pthread_t thread;
    weir_query *query = query_of(&source);
    weir_slice page_bytes = slice(copy_text("[1,2]", 5)), none = {0};
    weir_loan loan = {.release = freed, .user = &returned};
    CHECK(weir_query_enqueue_loan(query, source, page_bytes, NULL, none, 0, &loan, NULL) == WEIR_OK);
    CHECK(weir_query_next(query, 0, 0, &page, NULL) == WEIR_READY);
    weir_query_free(query);
    CHECK(returned == 0);
    CHECK(pthread_create(&thread, NULL, read_and_release, page) == 0);
    pthread_join(thread, NULL);
    CHECK(returned == 1);
}

static void *call(void *query)
{
    int done = 0;
    while (done < 2000) {
        weir_page *page;
        int32_t kind = weir_query_next(query, 0, 0, &page, NULL);
        CHECK(kind == WEIR_NEED || kind == WEIR_E_HANDLE_BUSY);
        if (kind == WEIR_NEED) {
            weir_page_release(page);
            done++;
        }
    }
    return NULL;
}

static void two_threads(void)
{
    uint32_t source;
    pthread_t threads[2];
    weir_query *query = query_of(&source);
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, call, query) == 0);
    for (int at = 0; at < 2; at++)
        pthread_join(threads[at], NULL);
    weir_query_free(query);
}

/* The number of paths in one call is limited, and the error names the limit. */
static void too_many_paths(void)
{
    weir_error error;
    weir_slice paths[65];
    weir_frame found[65];
    for (size_t at = 0; at < 65; at++)
        paths[at] = slice("$.a");
    CHECK(weir_find(slice("{\"a\":12}"), paths, 64, found, &error) == WEIR_OK);
    CHECK(found[63].offset == 5 && found[63].len == 2);
    CHECK(weir_find(slice("{\"a\":12}"), paths, 65, found, &error) == WEIR_E_TOO_COMPLEX);
    CHECK(!strcmp(error.message, "more than 64 paths"));
}

/* Closes each connection at once, and resets it, so that a write of the client fails. */
static void *close_connections(void *listener)
{
    struct linger none = {.l_onoff = 1};
    int peer;
    while ((peer = accept(*(int *)listener, NULL, NULL)) >= 0) {
        shutdown(peer, SHUT_WR);
        setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        close(peer);
    }
    return NULL;
}

/* Connects often, because the client may write before or after the reset. */
static void broken_connections(void)
{
    static const char *const schemes[] = {"weir", "weirs"};
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    char address[64];
    pthread_t thread;
    weir *store;
    weir_connect_options options = {.struct_size = sizeof options, .connect_ms = 100};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 16) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
    CHECK(pthread_create(&thread, NULL, close_connections, &listener) == 0);
    for (int round = 0; round < 20; round++) {
        snprintf(address, sizeof address, "%s://127.0.0.1:%d", schemes[round % 2], ntohs(at.sin_port));
        CHECK(weir_connect(slice(address), &options, &store, NULL) < 0);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
}

/* The argument is a directory for a store. */
int main(int count, char **words)
{
    if (count != 2)
        return 2;
    null_and_stale();
    options_of_reads(words[1]);
    released_elsewhere();
    two_threads();
    too_many_paths();
    broken_connections();
    CHECK(weir_handles_open() == 0);
    return 0;
}
