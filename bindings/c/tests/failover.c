/*
 * A cluster loses its leader while a session writes and a reader listens. No write is lost or executed twice.
 * Then all nodes other than the leader are stopped: the server reports a write as received, but cannot commit it,
 * and only reads with the consistency LOCAL have an answer.
 * The argument is the address of the cluster. The test prints the requests `kill`, `stop` and `continue`, and
 * reads the answer to each from standard input.
 */
#include "text.h"

enum { KILL = 100, DEAD = 200, END = 300, WAIT_MS = 60000 };

static weir_error error;

static int32_t ok_or_exit(int32_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, error.message);
        exit(1);
    }
    return result;
}

static void check(int is, const char *what, uint64_t at)
{
    if (!is) {
        fprintf(stderr, "%s at %llu\n", what, (unsigned long long)at);
        exit(1);
    }
}

/* Reads the records after offset `last` up to offset `to`; checks that each arrives once. */
static void check_records(weir_reader *reader, uint64_t last, uint64_t to)
{
    while (last < to) {
        weir_page *page;
        check(ok_or_exit(weir_reader_next(reader, WAIT_MS, &page, &error), "next") == WEIR_READY, "no record",
              last);
        weir_page_info info = {.struct_size = sizeof info};
        ok_or_exit(weir_page_describe(page, &info, &error), "describe");
        for (size_t at = 0; at < info.record_count; at++) {
            char value[32] = "";
            last++;
            check(info.records[at].offset == last, "another offset", last);
            if (last > 1)
                snprintf(value, sizeof value, "%llu", (unsigned long long)last - 2);
            size_t len = strlen(value);
            check(info.items[at].len == len && (!len || !memcmp(info.items[at].ptr, value, len)),
                  "another value", last);
        }
        weir_page_release(page);
    }
    check(last == to, "more records than were written", last);
}

/* Reads the key with a consistency, and checks its value. */
static void check_value(weir *store, uint32_t consistency, const char *value)
{
    weir *reads;
    weir_page *page;
    size_t items;
    ok_or_exit(weir_with_consistency(store, consistency, &reads, &error), "consistency");
    check(ok_or_exit(weir_get(reads, slice("orders"), slice("k"), &page, &error), "get") == WEIR_OK, "no value",
          consistency);
    const weir_item *item = weir_page_items(page, &items);
    check(items == 1 && item->len == strlen(value) && !memcmp(item->ptr, value, item->len), "another value",
          consistency);
    weir_page_release(page);
    ok_or_exit(weir_close(reads, &error), "close");
}

static void request(const char *what)
{
    puts(what);
    fflush(stdout);
}

static void await_answer(void)
{
    char line[64];
    check(fgets(line, sizeof line, stdin) != NULL, "no answer", 0);
}

/* Sends a put and waits until the server has received it. */
static weir_pending *send_put(weir_session *session, uint64_t n)
{
    char value[32];
    weir_pending *pending;
    weir_intention put = {.struct_size = sizeof put, .operation = WEIR_PUT, .topic = slice("orders"), .key = slice("k")};
    snprintf(value, sizeof value, "%llu", (unsigned long long)n);
    put.value = slice(value);
    ok_or_exit(weir_session_send(session, &put, 1, &pending, &error), "send");
    check(ok_or_exit(weir_pending_received(pending, WAIT_MS, &error), "received") == WEIR_OK, "not received", n);
    return pending;
}

static void check_valid(weir_pending *pending, uint64_t n)
{
    weir_verdict verdict;
    check(ok_or_exit(weir_pending_wait(pending, WAIT_MS, &verdict, 1, NULL, &error), "wait") == WEIR_OK,
          "no verdict", n);
    weir_pending_free(pending);
    check(verdict.effect == WEIR_VALID, "not valid", n);
}

int main(int count, char **words)
{
    weir *store;
    weir_session *session;
    weir_pending *pending;
    weir_reader *listener, *reader;
    weir_page *page;
    weir_slice topic = slice("orders");
    weir_read_options listening = {.struct_size = sizeof listening, .flags = WEIR_READ_AWAIT};
    weir_read_options reading = {.struct_size = sizeof reading};
    weir_connect_options options = {.struct_size = sizeof options, .flags = WEIR_CONNECT_RECEIVED};
    uint8_t client[16] = {7};
    if (count != 2)
        return 2;
    ok_or_exit(weir_connect(slice(words[1]), &options, &store, &error), "connect");
    ok_or_exit(weir_topic_ensure(store, topic, NULL, NULL, &error), "ensure");
    ok_or_exit(weir_session_open(store, (weir_slice){client, sizeof client}, &session, &error), "session");
    ok_or_exit(weir_reader_open(store, topic, &listening, &listener, &error), "listen");
    for (uint64_t n = 0; n < END; n++) {
        if (n == KILL) {
            check_records(listener, 0, KILL + 1);
            request("kill");
        }
        if (n == DEAD)
            await_answer();
        check_valid(send_put(session, n), n);
    }
    check_records(listener, KILL + 1, END + 1);
    ok_or_exit(weir_reader_open(store, topic, &reading, &reader, &error), "read");
    check_records(reader, 0, END + 1);
    check(ok_or_exit(weir_reader_next(reader, 0, &page, &error), "next") == WEIR_TIMEOUT, "one more record",
          END);
    check_value(store, WEIR_CONSISTENCY_LINEAR, "299");
    /* The connection moves to the leader, which stays reachable. */
    check_value(store, WEIR_CONSISTENCY_LEADER, "299");
    request("stop");
    await_answer();
    check_value(store, WEIR_CONSISTENCY_LOCAL, "299");
    pending = send_put(session, END);
    weir_verdict verdict;
    check(ok_or_exit(weir_pending_wait(pending, 0, &verdict, 1, NULL, &error), "wait") == WEIR_TIMEOUT,
          "a verdict without a majority", END);
    request("continue");
    await_answer();
    check_valid(pending, END);
    weir_reader_free(reader);
    weir_reader_free(listener);
    weir_session_free(session);
    return ok_or_exit(weir_close(store, &error), "close") < 0;
}
