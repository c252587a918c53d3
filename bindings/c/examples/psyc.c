/*
 * Reads packets from standard input as they arrive and replies to each on standard output. Allocates nothing.
 *
 *     printf ':_tag\t7\n\n_ping\n|\n' | psyc
 */
#include <stdio.h>
#include <string.h>

#include <weir_psyc.h>

enum { BUFFER = 1 << 16, EVENTS = 64 };

static int is(weir_slice name, const char *text)
{
    return name.len == strlen(text) && memcmp(name.ptr, text, name.len) == 0;
}

/* Writes the reply to a request, with the tag of the request. */
static void answer(weir_slice method, weir_slice tag)
{
    static uint8_t out[BUFFER];
    size_t size;
    weir_psyc_modifier relay = {':', WEIR_PSYC_LENGTH_AUTO, {(const uint8_t *)"_tag_relay", 10}, tag};
    weir_psyc_packet packet = {.struct_size = sizeof packet, .routing = &relay, .routing_count = tag.len != 0};
    weir_psyc_name name = {.struct_size = sizeof name};
    weir_psyc_describe_name(method, &name, NULL);
    packet.method = (weir_slice){(const uint8_t *)(name.method ? "_echo" : "_failure"), name.method ? 5 : 8};
    packet.data = method;
    if (weir_psyc_render(&packet, out, sizeof out, &size, NULL) == WEIR_OK)
        fwrite(out, 1, size, stdout);
}

int main(void)
{
    static uint8_t buffer[BUFFER];
    size_t start = 0, read = 0, filled = 0; /* ends: last packet, parsed bytes, received bytes */
    weir_psyc_parser parser = {.struct_size = sizeof parser};
    weir_psyc_event events[EVENTS];
    weir_slice method = {0}, tag = {0};
    weir_error error;
    if (weir_psyc_parser_init(&parser, NULL, &error) != WEIR_OK)
        return 1;
    for (;;) {
        size_t count, used;
        weir_slice rest = {buffer + read, filled - read};
        int32_t done = weir_psyc_parser_read(&parser, rest, events, EVENTS, &count, &used, &error);
        if (done < 0) {
            fprintf(stderr, "byte %llu: %s\n", (unsigned long long)error.offset, error.message);
            return 1;
        }
        read += used;
        for (size_t at = 0; at < count; at++) {
            if (events[at].kind == WEIR_PSYC_ROUTING && is(events[at].name, "_tag"))
                tag = events[at].value;
            /* Data with an announced length may arrive in parts. The first event has the method. */
            if (events[at].kind == WEIR_PSYC_BODY || events[at].kind == WEIR_PSYC_BODY_START)
                method = events[at].name;
        }
        if (done == WEIR_READY) {
            if (method.len)
                answer(method, tag);
            method = tag = (weir_slice){0};
            start = read;
        }
        if (done != WEIR_NEED)
            continue;
        /* The slices of a packet are used when it ends, so its bytes must not move before that. */
        if (start == read && start) {
            memmove(buffer, buffer + start, filled - start);
            filled -= start;
            read = start = 0;
        }
        size_t more = filled < BUFFER ? fread(buffer + filled, 1, 1, stdin) : 0;
        if (!more)
            return start == filled ? 0 : 1;
        filled += more;
    }
}
