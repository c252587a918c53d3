/*
 * Runs the transcripts that all languages share.
 *
 *     transcripts query FILE...
 *     transcripts api DIRECTORY FILE...     each in its own store below the directory
 *     transcripts served ADDRESS FILE       at a server with a new store
 *
 * An empty line separates blocks. A block has commands, a rule, and the expected output. Exits with 1 if the
 * output differs, or if a handle or a page was not released.
 */
#include "text.h"

typedef struct run {
    runner *runner;
    void (*command)(runner *, char *, text *);
    const char *file;
    size_t commands, wrong;
} run;

static char *content(const char *path)
{
    FILE *file = fopen(path, "rb");
    text all = {0};
    char part[4096];
    size_t some;
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    while ((some = fread(part, 1, sizeof part, file)) > 0)
        text_add(&all, part, some);
    fclose(file);
    while (all.len && all.ptr[all.len - 1] == '\n')
        all.ptr[--all.len] = 0;
    text_put(&all, "\n");
    return all.ptr;
}

static void block(run *with, char *from)
{
    text printed = {0};
    text_put(&printed, "");
    char *line = from;
    while (*line && strncmp(line, "----\n", 5) != 0) {
        char *end = strchr(line, '\n');
        *end = 0;
        if (*line && *line != '#') {
            with->commands++;
            with->command(with->runner, line, &printed);
        }
        line = end + 1;
    }
    const char *expected = *line ? line + 5 : "";
    if (strcmp(printed.ptr, expected) != 0) {
        with->wrong++;
        printf("%s: expected\n%sand not\n%s", with->file, expected, printed.ptr);
    }
    text_free(&printed);
}

static void transcript(run *with)
{
    char *all = content(with->file), *from = all;
    while (from) {
        char *end = strstr(from, "\n\n");
        char *next = NULL;
        if (end) {
            end[1] = 0;
            next = end + 2;
        }
        block(with, from);
        from = next;
    }
    free(all);
}

int main(int count, char **words)
{
    int query = count > 2 && strcmp(words[1], "query") == 0;
    int api = count > 3 && strcmp(words[1], "api") == 0;
    int served = count == 4 && strcmp(words[1], "served") == 0;
    if (!query && !api && !served) {
        fprintf(stderr, "transcripts query FILE... | api DIRECTORY FILE... | served ADDRESS FILE\n");
        return 2;
    }
    if (weir_abi_version() >> 16 != WEIR_ABI_VERSION >> 16 || weir_abi_version() < WEIR_ABI_VERSION)
        return 2;
    run with = {.command = query ? query_run : api_run};
    int first = query ? 2 : 3;
    for (int at = first; at < count; at++) {
        with.file = words[at];
        if (query) {
            with.runner = query_runner();
        } else {
            char directory[4096];
            snprintf(directory, sizeof directory, "%s/%d", words[2], at);
            with.runner = api_runner(directory, served ? words[2] : NULL);
        }
        transcript(&with);
        (query ? query_end : api_end)(with.runner);
    }
    printf("transcripts of %s: %d, commands: %zu\n", words[1], count - first, with.commands);
    if (weir_handles_open() != 0) {
        printf("%llu handles were not released\n", (unsigned long long)weir_handles_open());
        return 1;
    }
    return with.wrong ? 1 : 0;
}
