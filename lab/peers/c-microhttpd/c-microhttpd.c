/* The endpoints below /bench on libmicrohttpd, used as in its manual: one
 * internal thread on epoll. The first call for a request creates its state, the
 * next calls have data, the last one responds.
 *
 *   c-microhttpd --listen ADDRESS:PORT     c-microhttpd --version */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <microhttpd.h>
#include <unistd.h>

#include "../bench.h"

enum { BACKLOG = 4096, CONNECTIONS = 2048 };

static struct bench_answer answer;

static enum MHD_Result respond(struct MHD_Connection *connection) {
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer.body.length, answer.body.at, MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "content-type", answer.type);
    if (answer.allow) MHD_add_response_header(response, "allow", answer.allow);
    enum MHD_Result queued =
        MHD_queue_response(connection, (unsigned)answer.status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result refuse(struct MHD_Connection *connection) {
    answer.allow = NULL;
    bench_error(&answer, 413, "{\"error\":\"too large\"}");
    return respond(connection);
}

static enum MHD_Result call(void *closure, struct MHD_Connection *connection, const char *path,
                            const char *method, const char *version, const char *data,
                            size_t *length, void **state) {
    (void)closure;
    (void)version;
    struct bench_text *body = *state;
    if (!body) {
        const char *declared = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                           MHD_HTTP_HEADER_CONTENT_LENGTH);
        if (declared && strtoull(declared, NULL, 10) > BENCH_BODY_MAX) return refuse(connection);
        *state = body = calloc(1, sizeof *body);
        return body ? MHD_YES : MHD_NO;
    }
    if (*length) {
        /* Bytes above the limit are dropped. */
        if (body->length <= BENCH_BODY_MAX) bench_put(body, data, *length);
        *length = 0;
        return MHD_YES;
    }
    if (body->length > BENCH_BODY_MAX) return refuse(connection);
    const char *n = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "n");
    char query[64];
    int written = n ? snprintf(query, sizeof query, "n=%s", n) : 0;
    size_t query_length = written < (int)sizeof query ? (size_t)written : 0;
    bench_answer(method, strlen(method), path, strlen(path), n ? query : NULL, query_length,
                 body->at, body->length, &answer);
    return respond(connection);
}

static void done(void *closure, struct MHD_Connection *connection, void **state,
                 enum MHD_RequestTerminationCode why) {
    (void)closure;
    (void)connection;
    (void)why;
    struct bench_text *body = *state;
    if (!body) return;
    free(body->at);
    free(body);
    *state = NULL;
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "--version") == 0) {
        printf("libmicrohttpd %s, zlib %s, gcc %s\n", MHD_get_version(), zlibVersion(),
               __VERSION__);
        return 0;
    }
    char *colon = count == 3 ? strrchr(words[2], ':') : NULL;
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (colon) *colon = 0;
    if (!colon || strcmp(words[1], "--listen") != 0 ||
        inet_pton(AF_INET, words[2], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: c-microhttpd --listen ADDRESS:PORT | --version\n");
        return 2;
    }
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, call, NULL, MHD_OPTION_SOCK_ADDR, &address,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, (unsigned)BACKLOG, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_NOTIFY_COMPLETED, done, NULL,
        MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "c-microhttpd: cannot listen\n");
        return 1;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    printf("listening on 127.0.0.1:%u\n", info ? info->port : ntohs(address.sin_port));
    fflush(stdout);
    for (;;) pause();
}
