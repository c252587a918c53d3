/* A server of the endpoints below /bench on one thread, with epoll and without
 * a library. A build with -DFAULTY can simulate one of six faults.
 *
 *   c-epoll --listen ADDRESS:PORT [--fault NAME]     c-epoll --version
 *
 * Rules for such a server; comments below refer to their numbers:
 *
 *   N1 The state of the connection decides the next step, never the result of
 *      one read.
 *   N2 Level-triggered: one read for each event; remaining bytes cause another
 *      event.
 *   N3 After a read, all complete requests in the buffer are handled; the rest
 *      remains in the buffer.
 *   N4 A head waits for its body. A client that expects a 100 receives it once.
 *   N5 Output that the socket does not accept is kept, and EPOLLOUT is
 *      requested. While much output waits, nothing more is read.
 *   N6 When the output has drained, the input buffer is checked again, because
 *      its bytes cause no further event.
 *   N7 The end of input does not end the connection: received requests are
 *      answered first.
 *   N8 Field names may have any case; a body that is too long is refused.
 *   N9 TCP_NODELAY, and head and body in one write.
 *
 * Invariants: no wait for a single client, and every buffer has a limit. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../bench.h"

enum {
    BACKLOG = 4096,
    EVENTS = 256,
    READ_BYTES = 64 << 10,
    SHORT_READ = 4096,         /* bytes of a read, with the fault edge-short-read */
    HEAD_MAX = 64 << 10,       /* bytes of a head */
    OUT_MAX = 256 << 10,       /* unsent bytes; above this, nothing is read */
    KEEP_BYTES = 64 << 10,     /* bytes of the buffers of an idle connection */
    CHUNK_LINE_MAX = 1 << 10,  /* bytes of a size line */
};

#ifdef FAULTY
enum fault { NONE, STATELESS, EDGE_SHORT_READ, NO_CONTINUE, DROP_REST, FORGET_WRITE, ACCEPT_ONE };
static const char *const FAULTS[] = {"none",      "stateless",    "edge-short-read", "no-continue",
                                     "drop-rest", "forget-write", "accept-one"};
static enum fault fault;
#define HAS(which) (fault == (which))
#else
#define HAS(which) 0
#endif

/* The next part that a connection awaits. */
enum phase { HEAD, LENGTH, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, LAST };

struct connection {
    int fd;
    uint32_t mask;
    enum phase phase;
    bool ended, keep, expects;
    struct bench_text in; /* from `start` to its length */
    size_t start, scanned;
    struct bench_text out; /* from `sent` to its length */
    size_t sent;
    /* The request whose body is being received. */
    char method[16], path[64], query[64];
    size_t method_length, path_length, query_length;
    bool has_query;
    size_t left;            /* remaining bytes of a body or chunk */
    struct bench_text body; /* joined from chunks */
};

static int poller;

static void watch(struct connection *c) {
    size_t waiting = c->out.length - c->sent;
    uint32_t mask = (waiting ? EPOLLOUT : 0u) | EPOLLRDHUP;
    if (!c->ended && c->phase != LAST && waiting < OUT_MAX) mask |= EPOLLIN;
    if (c->ended || c->phase == LAST) mask &= ~(uint32_t)EPOLLRDHUP;
    if (HAS(EDGE_SHORT_READ)) mask |= EPOLLET;
    if (mask == c->mask) return;
    struct epoll_event event = {.events = mask, .data.ptr = c};
    epoll_ctl(poller, c->mask ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &event);
    c->mask = mask;
}

static void drop(struct connection *c) {
    close(c->fd);
    free(c->in.at);
    free(c->out.at);
    free(c->body.at);
    free(c);
}

/* ---- answers ------------------------------------------------------------- */

static const char *date(void) {
    static char line[48];
    static time_t second;
    time_t now = time(NULL);
    if (now != second) {
        struct tm parts;
        gmtime_r(&now, &parts);
        strftime(line, sizeof line, "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
        second = now;
    }
    return line;
}

static const char *reason(int status) {
    switch (status) {
    case 200: return "200 OK";
    case 404: return "404 Not Found";
    case 405: return "405 Method Not Allowed";
    case 413: return "413 Content Too Large";
    case 431: return "431 Request Header Fields Too Large";
    default: return "400 Bad Request";
    }
}

static void send_answer(struct connection *c, const struct bench_answer *answer, bool closes) {
    struct bench_text *out = &c->out;
    bench_room(out, 256 + answer->body.length);
    BENCH_PUT(out, "HTTP/1.1 ");
    const char *words = reason(answer->status);
    bench_put(out, words, strlen(words));
    BENCH_PUT(out, "\r\ncontent-type: ");
    bench_put(out, answer->type, strlen(answer->type));
    BENCH_PUT(out, "\r\ncontent-length: ");
    bench_put_number(out, answer->body.length);
    BENCH_PUT(out, "\r\n");
    if (answer->allow) {
        BENCH_PUT(out, "allow: ");
        bench_put(out, answer->allow, strlen(answer->allow));
        BENCH_PUT(out, "\r\n");
    }
    if (closes) BENCH_PUT(out, "connection: close\r\n");
    const char *line = date();
    bench_put(out, line, strlen(line));
    BENCH_PUT(out, "\r\n");
    bench_put(out, answer->body.at, answer->body.length);
}

static struct bench_answer answer;

static void refuse(struct connection *c, int status, const char *body) {
    answer.allow = NULL;
    bench_error(&answer, status, body);
    send_answer(c, &answer, true);
    c->phase = LAST;
}

static void respond(struct connection *c, const void *body, size_t length) {
    bench_answer(c->method, c->method_length, c->path, c->path_length,
                 c->has_query ? c->query : NULL, c->query_length, body, length, &answer);
    send_answer(c, &answer, !c->keep);
    c->phase = c->keep ? HEAD : LAST;
}

/* ---- requests ------------------------------------------------------------ */

static bool copy(char *to, size_t room, size_t *length, const char *from, const char *end) {
    *length = (size_t)(end - from);
    if (*length >= room) return false;
    memcpy(to, from, *length);
    to[*length] = 0;
    return true;
}

/* Parses the request line, without its end. Returns false if it is invalid. A path
 * or query that does not fit is stored as an empty one, which no endpoint accepts. */
static bool request_line(struct connection *c, const char *line, const char *end) {
    const char *space = memchr(line, ' ', (size_t)(end - line));
    if (!space || end - space < 11 || memcmp(end - 9, " HTTP/1.", 8) != 0) return false;
    if (end[-1] != '0' && end[-1] != '1') return false;
    c->keep = end[-1] == '1';
    if (!copy(c->method, sizeof c->method, &c->method_length, line, space)) return false;
    const char *path = space + 1, *last = end - 9;
    if (path >= last || *path != '/' || memchr(path, ' ', (size_t)(last - path))) return false;
    const char *question = memchr(path, '?', (size_t)(last - path));
    c->has_query = question != NULL;
    c->query_length = 0;
    if (question && !copy(c->query, sizeof c->query, &c->query_length, question + 1, last))
        c->query_length = 0;
    if (!copy(c->path, sizeof c->path, &c->path_length, path, question ? question : last))
        c->path_length = 0;
    return true;
}

static bool named(const char *line, const char *colon, const char *name) {
    size_t length = strlen(name);
    return (size_t)(colon - line) == length && strncasecmp(line, name, length) == 0;
}

/* Parses the head in `text`, without its blank line. Sets the phase. */
static void read_head(struct connection *c, const char *text, const char *end) {
    static const char bad[] = "{\"error\":\"bad request\"}";
    const char *line = memmem(text, (size_t)(end - text), "\r\n", 2);
    if (!line || !request_line(c, text, line)) {
        refuse(c, 400, bad);
        return;
    }
    bool chunked = false, has_length = false;
    size_t length = 0;
    c->expects = false;
    for (line += 2; line < end;) {
        const char *next = memmem(line, (size_t)(end - line), "\r\n", 2);
        const char *colon = next ? memchr(line, ':', (size_t)(next - line)) : NULL;
        if (!colon || colon == line || colon[-1] == ' ') {
            refuse(c, 400, bad);
            return;
        }
        const char *value = colon + 1, *last = next;
        while (value < last && (*value == ' ' || *value == '\t')) value++;
        while (last > value && (last[-1] == ' ' || last[-1] == '\t')) last--;
        size_t bytes = (size_t)(last - value);
        if (named(line, colon, "content-length")) {
            bool good = !has_length && bytes > 0 && bytes < 19;
            for (size_t i = 0; good && i < bytes; i++) {
                good = value[i] >= '0' && value[i] <= '9';
                length = length * 10 + (size_t)(value[i] - '0');
            }
            if (!good) {
                refuse(c, 400, bad);
                return;
            }
            has_length = true;
        } else if (named(line, colon, "transfer-encoding")) {
            chunked = bytes == 7 && strncasecmp(value, "chunked", 7) == 0;
            if (!chunked) {
                refuse(c, 400, bad);
                return;
            }
        } else if (named(line, colon, "expect")) {
            c->expects = bytes == 12 && strncasecmp(value, "100-continue", 12) == 0;
        } else if (named(line, colon, "connection")) {
            if (bytes == 5 && strncasecmp(value, "close", 5) == 0) c->keep = false;
            if (bytes == 10 && strncasecmp(value, "keep-alive", 10) == 0) c->keep = true;
        }
        line = next + 2;
    }
    if (chunked && has_length) {
        refuse(c, 400, bad);
    } else if (length > BENCH_BODY_MAX) {
        refuse(c, 413, "{\"error\":\"too large\"}"); /* N8 */
    } else {
        c->left = length;
        c->body.length = 0;
        c->phase = chunked ? CHUNK_SIZE : LENGTH;
    }
}

/* Reads a chunk line at `at`; NULL if it is incomplete. */
static const char *chunk_line(struct connection *c, const char *at, size_t have) {
    const char *end = memmem(at, have, "\r\n", 2);
    if (!end && have > CHUNK_LINE_MAX) refuse(c, 400, "{\"error\":\"bad request\"}");
    return end;
}

static bool chunk_size(const char *at, const char *end, size_t *size) {
    *size = 0;
    const char *first = at;
    for (; at < end && end - first < 16; at++) {
        unsigned char digit = (unsigned char)*at;
        unsigned value = digit >= '0' && digit <= '9'   ? digit - '0' + 0u
                         : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10u
                         : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10u
                                                        : 16u;
        if (value > 15) break;
        *size = *size << 4 | value;
    }
    return at > first && (at == end || *at == ';');
}

/* Handles one step of the buffered input. Returns false if more is needed. */
static bool step(struct connection *c) {
    char *at = c->in.at + c->start;
    size_t have = c->in.length - c->start;
    switch (c->phase) {
    case HEAD: {
        while (have >= 2 && c->scanned == 0 && at[0] == '\r' && at[1] == '\n') {
            c->start += 2, at += 2, have -= 2;
        }
        char *end = have ? memmem(at + c->scanned, have - c->scanned, "\r\n\r\n", 4) : NULL;
        if (!end) {
            c->scanned = have > 3 ? have - 3 : 0;
            if (have > HEAD_MAX) refuse(c, 431, "{\"error\":\"bad request\"}");
            return have > HEAD_MAX;
        }
        c->start += (size_t)(end + 4 - at);
        c->scanned = 0;
        read_head(c, at, end + 2);
        return true;
    }
    case LENGTH:
        if (have < c->left) break;
        c->start += c->left;
        respond(c, at, c->left);
        return true;
    case CHUNK_SIZE: {
        const char *end = chunk_line(c, at, have);
        if (!end) return c->phase == LAST;
        if (!chunk_size(at, end, &c->left)) {
            refuse(c, 400, "{\"error\":\"bad request\"}");
        } else if (c->left > BENCH_BODY_MAX - c->body.length) {
            refuse(c, 413, "{\"error\":\"too large\"}");
        } else {
            c->start += (size_t)(end + 2 - at);
            c->phase = c->left ? CHUNK_DATA : TRAILER;
        }
        return true;
    }
    case CHUNK_DATA: {
        size_t take = have < c->left ? have : c->left;
        bench_put(&c->body, at, take);
        c->start += take;
        c->left -= take;
        if (c->left) break;
        c->phase = CHUNK_END;
        return true;
    }
    case CHUNK_END:
        if (have < 2) return false;
        if (at[0] != '\r' || at[1] != '\n') refuse(c, 400, "{\"error\":\"bad request\"}");
        else c->phase = CHUNK_SIZE, c->start += 2;
        return true;
    case TRAILER: {
        const char *end = chunk_line(c, at, have);
        if (!end) return c->phase == LAST;
        c->start += (size_t)(end + 2 - at);
        if (end == at) respond(c, c->body.at, c->body.length);
        return true;
    }
    case LAST: c->start = c->in.length; return false;
    }
    if (c->expects && have == 0 && !HAS(NO_CONTINUE)) /* N4 */
        BENCH_PUT(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    c->expects = false;
    return false;
}

/* Sends the waiting output. Returns false if the connection is lost. */
static bool flush(struct connection *c) {
    while (c->sent < c->out.length) {
        ssize_t count = send(c->fd, c->out.at + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno != EAGAIN) return false;
        if (count > 0) c->sent += (size_t)count;
        if (HAS(FORGET_WRITE)) c->sent = c->out.length;
        if (c->sent == c->out.length) break;
        if (c->sent > OUT_MAX) { /* remove the sent bytes */
            c->out.length -= c->sent;
            memmove(c->out.at, c->out.at + c->sent, c->out.length);
            c->sent = 0;
        }
        if (count < 0) return true; /* N5 */
    }
    c->sent = c->out.length = 0;
    return true;
}

/* Frees a buffer that is larger than the limit of an idle connection. */
static void release_buffer(struct bench_text *text) {
    if (text->room <= KEEP_BYTES) return;
    free(text->at);
    memset(text, 0, sizeof *text);
}

/* Handles all complete requests (N3, N6). Returns false if the connection has ended. */
static bool advance(struct connection *c) {
    for (;;) {
        while (c->out.length - c->sent < OUT_MAX && step(c))
            if (HAS(DROP_REST) && c->phase == HEAD) c->start = c->in.length;
        size_t waiting = c->out.length - c->sent;
        if (!flush(c)) return false;
        /* Sent responses leave space for further requests. */
        if (waiting < OUT_MAX || c->out.length) break;
    }
    if (HAS(STATELESS)) {
        c->start = c->in.length;
        c->phase = c->phase == LAST ? LAST : HEAD;
        c->scanned = 0;
    }
    size_t rest = c->in.length - c->start;
    if (c->start && rest) memmove(c->in.at, c->in.at + c->start, rest);
    c->in.length = rest;
    c->start = 0;
    if (!rest) release_buffer(&c->in);
    if (!c->out.length) release_buffer(&c->out);
    if (c->phase == HEAD) release_buffer(&c->body);
    if (c->out.length) return true;
    return !c->ended && c->phase != LAST; /* N7 */
}

/* Reads once. Returns false if the connection is lost. */
static bool receive(struct connection *c) {
    size_t most = HAS(EDGE_SHORT_READ) ? SHORT_READ : READ_BYTES;
    /* Most requests are small; the buffer grows with a large body. */
    bench_room(&c->in, c->phase == HEAD && !c->in.length && !HAS(STATELESS) ? 4096 : most);
    size_t room = c->in.room - c->in.length;
    ssize_t count = recv(c->fd, c->in.at + c->in.length, room < most ? room : most, 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    c->ended |= count == 0;
    c->in.length += (size_t)count;
    return true;
}

/* Closes the connection after the client could read the last response. */
static void finish(struct connection *c) {
    if (c->phase == LAST && !c->ended) {
        char discarded[4096];
        shutdown(c->fd, SHUT_WR);
        for (int i = 0; i < 64 && recv(c->fd, discarded, sizeof discarded, 0) > 0; i++) {}
    }
    drop(c);
}

static void serve(struct connection *c, uint32_t events) {
    bool good = true;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) && !c->ended && c->phase != LAST)
        good = receive(c);
    if (!good) drop(c);
    else if (!advance(c)) finish(c);
    else watch(c);
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* N9 */
#ifdef FAULTY
        int bytes = 512 << 10; /* so that an answer of 3 MB needs several writes */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
#endif
        struct connection *c = calloc(1, sizeof *c);
        if (!c) abort();
        c->fd = fd;
        watch(c);
        if (HAS(ACCEPT_ONE)) return;
    }
}

static int usage(void) {
    fprintf(stderr, "usage: c-epoll --listen ADDRESS:PORT [--fault NAME] | --version\n");
    return 2;
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "--version") == 0) {
#ifdef BENCH_WITHOUT_ZLIB
        printf("c-epoll, gcc %s\n", __VERSION__);
#else
        printf("c-epoll, zlib %s, gcc %s\n", zlibVersion(), __VERSION__);
#endif
        return 0;
    }
    if (count < 3 || strcmp(words[1], "--listen") != 0) return usage();
    if (count > 3) {
#ifdef FAULTY
        size_t which = 0, faults = sizeof FAULTS / sizeof *FAULTS;
        if (count != 5 || strcmp(words[3], "--fault") != 0) return usage();
        while (which < faults && strcmp(FAULTS[which], words[4]) != 0) which++;
        if (which == faults) return usage();
        fault = (enum fault)which;
#else
        return usage();
#endif
    }
    char *colon = strrchr(words[2], ':');
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (!colon) return usage();
    *colon = 0;
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, words[2], &address.sin_addr) != 1) return usage();
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, BACKLOG)) {
        perror("c-epoll");
        return 1;
    }
    socklen_t length = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("listening on 127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | (HAS(ACCEPT_ONE) ? EPOLLET : 0u)};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    static struct epoll_event events[EVENTS];
    for (;;) {
        int ready = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr) serve(events[i].data.ptr, events[i].events);
            else accept_all(listener);
        }
    }
}
