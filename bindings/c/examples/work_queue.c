/*
 * A work queue. Jobs are written, claimed with a lease and acknowledged. A job that fails is delivered again; after
 * its second failure it is a dead letter.
 *
 *     work_queue DIRECTORY
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <weir.h>

enum { JOBS = 5, CLAIM_MAX = 2, LEASE_MS = 30000, WAIT_MS = 200, ATTEMPTS = 2 };

static weir_slice text(const char *from)
{
    return (weir_slice){(const uint8_t *)from, strlen(from)};
}

/* Prints the error and returns the exit code 1. */
static int failed(const char *what, const weir_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

static int write_jobs(weir *store, weir_error *error)
{
    weir_intention jobs[JOBS];
    weir_verdict verdicts[JOBS];
    char values[JOBS][16];
    for (int at = 0; at < JOBS; at++) {
        snprintf(values[at], sizeof values[at], "job %d", at);
        jobs[at] = (weir_intention){.struct_size = sizeof *jobs, .operation = WEIR_PUT, .topic = text("jobs"),
                                    .value = text(values[at])};
    }
    if (weir_topic_ensure(store, text("failed"), NULL, NULL, error) < 0 ||
        weir_topic_ensure(store, text("jobs"), NULL, NULL, error) < 0 ||
        weir_submit(store, jobs, JOBS, verdicts, NULL, error) < 0)
        return failed("jobs", error);
    for (int at = 0; at < JOBS; at++) {
        if (verdicts[at].effect != WEIR_VALID) {
            fprintf(stderr, "job %d was not stored\n", at);
            return 1;
        }
    }
    return 0;
}

/* Does one job and reports its result to the group. */
static int32_t do_job(weir_group *group, const weir_record *record, const weir_item *job, weir_error *error)
{
    weir_claim claim = {.offset = record->offset, .claim = record->claim};
    int done = job->len != 5 || memcmp(job->ptr, "job 3", 5) != 0;
    printf("%.*s, delivery %" PRIu32 ": %s\n", (int)job->len, (const char *)job->ptr, record->attempts,
           done ? "done" : "failed");
    if (done)
        return weir_group_settle(group, &claim, 1, WEIR_SETTLE_DONE, 0, text(""), NULL, NULL, error);
    return weir_group_settle(group, &claim, 1, WEIR_SETTLE_FAIL, 0, text("cannot do this job"), NULL, NULL, error);
}

/* Claims and does jobs until none arrives within WAIT_MS. */
static int work(weir *store, weir_error *error)
{
    weir_group_options options = {.struct_size = sizeof options, .mode = WEIR_GROUP_MODE_SHARED,
                                  .lease_ms = LEASE_MS, .attempts_max = ATTEMPTS, .dead_letters = text("failed")};
    weir_group *group;
    weir_page *page;
    int32_t kind;
    if (weir_group_open(store, text("jobs"), text("workers"), &options, &group, error) < 0)
        return failed("workers", error);
    while ((kind = weir_group_claim(group, CLAIM_MAX, WAIT_MS, &page, error)) == WEIR_READY) {
        size_t count;
        const weir_item *jobs = weir_page_items(page, &count);
        const weir_record *records = weir_page_records(page, &count);
        for (size_t at = 0; at < count && kind > 0; at++)
            kind = do_job(group, &records[at], &jobs[at], error);
        weir_page_release(page);
        if (kind < 0)
            break;
    }
    weir_group_free(group);
    return kind < 0 ? failed("workers", error) : 0;
}

/* Prints the dead letters. Each has two records: a description of the failure, and a copy of the job. */
static int show_dead_letters(weir *store, weir_error *error)
{
    weir_read_options options = {.struct_size = sizeof options, .from = WEIR_FROM_AFTER, .value = 1};
    weir_reader *reader;
    weir_page *page;
    int32_t kind;
    if (weir_reader_open(store, text("failed"), &options, &reader, error) < 0)
        return failed("dead letters", error);
    while ((kind = weir_reader_next(reader, 0, &page, error)) == WEIR_READY) {
        size_t count;
        const weir_item *letters = weir_page_items(page, &count);
        for (size_t at = 0; at < count; at++)
            printf("dead letter: %.*s\n", (int)letters[at].len, (const char *)letters[at].ptr);
        weir_page_release(page);
    }
    weir_reader_free(reader);
    return kind < 0 ? failed("dead letters", error) : 0;
}

int main(int count, char **words)
{
    weir *store;
    weir_error error;
    if (count != 2) {
        fprintf(stderr, "work_queue DIRECTORY\n");
        return 2;
    }
    if (weir_open(text(words[1]), NULL, &store, &error) < 0)
        return failed(words[1], &error);
    int result = write_jobs(store, &error) || work(store, &error) || show_dead_letters(store, &error);
    if (weir_close(store, &error) < 0)
        return failed("close", &error);
    return result;
}
