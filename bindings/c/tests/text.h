/* Text for the tests: growing strings, and the words of a line. */
#ifndef TEXT_H
#define TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir.h>

typedef struct text {
    char *ptr;
    size_t len, capacity;
} text;

static inline void text_add(text *to, const void *from, size_t len)
{
    if (to->len + len + 1 > to->capacity) {
        to->capacity = 2 * (to->len + len + 1);
        to->ptr = realloc(to->ptr, to->capacity);
        if (!to->ptr)
            abort();
    }
    if (len)
        memcpy(to->ptr + to->len, from, len);
    to->len += len;
    to->ptr[to->len] = 0;
}

static inline void text_put(text *to, const char *from)
{
    text_add(to, from, strlen(from));
}

static inline void text_number(text *to, unsigned long long number)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%llu", number);
    text_put(to, digits);
}

/* Appends the bytes with line feeds as `\n`. */
static inline void text_put_escaped(text *to, const uint8_t *from, size_t len)
{
    for (size_t at = 0; at < len; at++) {
        if (from[at] == '\n')
            text_put(to, "\\n");
        else
            text_add(to, from + at, 1);
    }
}

static inline void text_clear(text *of)
{
    of->len = 0;
    if (of->ptr)
        of->ptr[0] = 0;
}

static inline void text_free(text *of)
{
    free(of->ptr);
    memset(of, 0, sizeof *of);
}

static inline char *copy_text(const char *from, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy)
        abort();
    memcpy(copy, from, len);
    copy[len] = 0;
    return copy;
}

/* Replaces each `\n` in a text by a line feed, in place. */
static inline char *unescape(char *line)
{
    char *to = line;
    for (const char *from = line; *from; from++) {
        if (from[0] == '\\' && from[1] == 'n') {
            *to++ = '\n';
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
    return line;
}

/* Splits the first word off a line; `*line` becomes the rest. */
static inline char *word(char **line)
{
    char *first = *line, *blank = strchr(first, ' ');
    if (blank) {
        *blank = 0;
        *line = blank + 1;
    } else {
        *line = first + strlen(first);
    }
    return first;
}

static inline weir_slice slice(const char *from)
{
    return (weir_slice){(const uint8_t *)from, strlen(from)};
}

static inline uint64_t number(const char *from)
{
    return strtoull(from, NULL, 10);
}

/* Appends the name of an error. */
static inline void text_code(text *to, int32_t code)
{
    weir_code_info info = {.struct_size = sizeof info};
    if (weir_code_describe(code, &info) != WEIR_OK)
        abort();
    text_add(to, info.name.ptr, info.name.len);
}

/* Runs the commands of transcripts. */
typedef struct runner runner;
runner *query_runner(void);
void query_run(runner *self, char *line, text *out);
void query_end(runner *self);
runner *api_runner(const char *directory, const char *address);
void api_run(runner *self, char *line, text *out);
void api_end(runner *self);

#endif
