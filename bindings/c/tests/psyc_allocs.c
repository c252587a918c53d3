/*
 * Checks that the codec allocates nothing: counts every allocating call of the C library while packets and
 * values are parsed and rendered. Does not run under sanitizers, which replace the allocator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir_psyc.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static unsigned long calls;

void *malloc(size_t size)
{
    calls++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    calls++;
    return __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size)
{
    calls++;
    return __libc_realloc(ptr, size);
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
    calls++;
    *to = __libc_memalign(alignment, size);
    return *to ? 0 : 12;
}

static weir_slice slice(const char *from)
{
    return (weir_slice){(const uint8_t *)from, strlen(from)};
}

/* Runs each function once and returns the number of successes. */
static int all(void)
{
    static const char *streams[] = {":_tag\t7\n37\n=_note 9\ttwo\nlines\n_message\nMind it.\n|\n", "\n:_a 3\tabcd\n|\n", "x"};
    int good = 0;
    weir_error error;
    size_t count, used, size;
    uint8_t out[256];
    for (int at = 0; at < 3; at++) {
        weir_psyc_parser parser = {.struct_size = sizeof parser};
        weir_psyc_event events[8];
        weir_slice rest = slice(streams[at]);
        good += weir_psyc_parser_init(&parser, NULL, &error) == WEIR_OK;
        for (int calls = 0; calls < 3; calls++)
            if (weir_psyc_parser_read(&parser, rest, events, 8, &count, &used, &error) > 0) {
                rest = (weir_slice){rest.ptr + used, rest.len - used};
                good++;
            }
    }
    for (uint32_t what = WEIR_PSYC_LIST; what <= WEIR_PSYC_UPDATE; what++) {
        weir_psyc_cursor cursor = {.what = what};
        weir_psyc_part parts[8];
        good += weir_psyc_walk(&cursor, slice("#1{2 ab} =_t:3 abc"), parts, 8, &count, &used, &error) > 0;
    }
    weir_psyc_cursor fields = {.what = WEIR_PSYC_STRUCT}, rows = {.what = WEIR_PSYC_TABLE};
    weir_psyc_part parts[8];
    weir_slice name;
    weir_psyc_compact compact = {slice("m"), slice("_message")};
    weir_psyc_item item = {.type = slice("_t"), .value = slice("a{b")};
    good += weir_psyc_walk_struct(&fields, slice("|=_a|=_b"), slice("| x| y| z"), parts, 8, &count, &error) > 0;
    good += weir_psyc_walk_struct(&fields, slice("|=_a|=_b"), slice("| x| y| z"), parts, 8, &count, &error) == WEIR_E_PROTOCOL;
    good += weir_psyc_walk(&rows, slice("_struct{a} | x| y"), parts, 8, &count, &used, &error) == WEIR_DONE;
    good += weir_psyc_expand(&compact, 1, slice("m"), &name, &error) == WEIR_OK && name.len == 8;
    good += weir_psyc_contract(&compact, 1, slice("_message"), &name, &error) == WEIR_OK && name.len == 1;
    good += weir_psyc_render_key(slice("a}b"), WEIR_PSYC_LENGTH_AUTO, WEIR_PSYC_THRESHOLD, out, sizeof out, &size, &error) == WEIR_OK && size == 7;
    good += weir_psyc_render_value(&item, WEIR_PSYC_THRESHOLD, out, sizeof out, &size, &error) == WEIR_OK && size == 9;
    weir_psyc_modifier modifier = {'=', 0, slice("_level"), slice("1234567890")};
    weir_psyc_packet packet = {.struct_size = sizeof packet, .entity = &modifier, .entity_count = 1, .method = slice("_m")};
    good += weir_psyc_render(&packet, out, sizeof out, &size, &error) == WEIR_OK;
    packet.method = slice("not a method");
    good += weir_psyc_render(&packet, out, sizeof out, &size, &error) == WEIR_E_BAD_REQUEST;
    return good;
}

int main(void)
{
    int first = all();
    unsigned long before = calls;
    int again = all();
    unsigned long counted = calls - before;
    free(malloc(1));
    printf("psyc_allocs: %lu calls for memory in %d successes\n", counted, again);
    return counted == 0 && first == again && again > 15 && calls > before ? 0 : 1;
}
