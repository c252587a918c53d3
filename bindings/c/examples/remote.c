/* Writes and queries at a server: remote ADDRESS, as in `remote weir://localhost:7071` */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <weir.h>

static weir_slice text(const char *from)
{
    return (weir_slice){(const uint8_t *)from, strlen(from)};
}

static int failed(const char *what, const weir_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

/* Writes in a session. After a connection breaks, the client sends the writes again with their numbers, and
 * the server executes none of them twice. */
static int write(weir *server, weir_error *error)
{
    static const uint8_t client[16] = "an example of c";
    weir_session *session;
    if (weir_session_open(server, (weir_slice){client, sizeof client}, &session, error) < 0)
        return failed("session", error);
    weir_intention intention = {.struct_size = sizeof intention, .operation = WEIR_PUT};
    intention.topic = text("greetings");
    intention.value = text("{\"from\":\"c\",\"n\":1}");
    weir_verdict verdict;
    int32_t kind = weir_session_submit(session, &intention, 1, &verdict, NULL, error);
    weir_session_free(session);
    if (kind < 0)
        return failed("submit", error);
    if (verdict.effect != WEIR_VALID)
        printf("refused with %d\n", (int)verdict.reason);
    else
        printf("written at %" PRIu64 "\n", verdict.offset);
    return 0;
}

/* The server filters the records and applies the limit. */
static int query_greetings(weir *server, weir_error *error)
{
    weir_query *query;
    weir_page *page;
    int32_t kind;
    weir_slice pattern = text("greetings");
    weir_topics_options topics = {.struct_size = sizeof topics, .topics = &pattern, .topic_count = 1};
    weir_query_options options = {.struct_size = sizeof options};
    options.where = text("$.n > 0");
    options.select = text("$.from");
    if (weir_query_open_topics(server, &topics, &options, &query, error) < 0)
        return failed("query", error);
    while ((kind = weir_query_wait(query, WEIR_FOREVER, 0, 0, &page, error)) == WEIR_READY) {
        size_t count;
        const weir_item *items = weir_page_items(page, &count);
        for (size_t at = 0; at < count; at++)
            printf("from %.*s\n", (int)items[at].len, (const char *)items[at].ptr);
        weir_page_release(page);
    }
    weir_query_free(query);
    return kind < 0 ? failed("query", error) : 0;
}

int main(int count, char **words)
{
    weir *server;
    weir_error error;
    if (count != 2) {
        fprintf(stderr, "remote ADDRESS\n");
        return 2;
    }
    if (weir_connect(text(words[1]), NULL, &server, &error) < 0)
        return failed(words[1], &error);
    int result = 1;
    if (weir_topic_ensure(server, text("greetings"), NULL, NULL, &error) < 0)
        failed("greetings", &error);
    else
        result = write(server, &error) || query_greetings(server, &error);
    weir_close(server, &error);
    return result;
}
