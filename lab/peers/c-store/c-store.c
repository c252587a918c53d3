/* SQLite as a peer of the store experiments: messages as rows of one table,
 * write-ahead log, one connection, prepared statements. Parameters of an input:
 *
 *   messages, bytes   number and size of the messages
 *   producers         number of producers; their messages are written one after the other
 *   rows              rows of a transaction
 *   level             group (synchronous=FULL: a commit is synced before it
 *                     returns) or memory (synchronous=OFF)
 *   work=scan         the rows are written once, untimed, and every iteration
 *                     reads all of them in order
 *
 * Checkpoints of the log are not timed: there are none while messages are written, and a scan begins after
 * one. The rewriting of Redis and the snapshots of etcd are not timed either.
 *
 * The timed writes overwrite an earlier log of at least their length, as in a database in continuous use. In a
 * new log, each sync would also write the new length of the file. The files of our store and of the floor are
 * allocated before the timed part, too.
 *
 * The messages and the content of a check are those of
 * crates/weir-lab/src/contender/store.rs. */
#include "../peer.h"

#include <sqlite3.h>
#include <unistd.h>

#define CREATE_LOG "CREATE TABLE log(id INTEGER PRIMARY KEY, value BLOB)"

enum { DISTINCT = 4096, CHECK_MESSAGES_MAX = 20000, PATH_MAX_BYTES = 4096 };

static struct input {
    int loaded;
    uint64_t messages, producers, rows;
    size_t bytes;
    const char *synchronous;
    int scan;
    sqlite3 *scanned; /* the database of a scan, open until the end */
    char path[PATH_MAX_BYTES];
} inputs[PEER_INPUTS_MAX];

static uint64_t number(const char *fields, const char *name) {
    char text[32];
    return peer_field(fields, name, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

static const char *peer_load(unsigned at, const char *fields) {
    struct input *input = &inputs[at];
    char level[16] = "", work[16] = "", dir[PATH_MAX_BYTES - 64];
    input->messages = number(fields, "messages");
    input->producers = number(fields, "producers");
    input->rows = number(fields, "rows");
    input->bytes = number(fields, "bytes");
    if (!input->messages || !input->producers || !input->rows || !input->bytes)
        return "messages, producers, rows and bytes must be above 0";
    if (!peer_field(fields, "level", level, sizeof level)) return "parameter `level` is missing";
    if (strcmp(level, "group") == 0) input->synchronous = "PRAGMA synchronous=FULL";
    else if (strcmp(level, "memory") == 0) input->synchronous = "PRAGMA synchronous=OFF";
    else return "level is group or memory";
    if (!peer_field(fields, "dir", dir, sizeof dir)) return "parameter `dir` is missing";
    input->scan = peer_field(fields, "work", work, sizeof work) && strcmp(work, "scan") == 0;
    snprintf(input->path, sizeof input->path, "%s/sqlite-%ld-%u.db", dir, (long)getpid(), at);
    input->loaded = 1;
    return NULL;
}

static void clean(const struct input *input) {
    static const char *const endings[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_MAX_BYTES + 16];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(path, sizeof path, "%s%s", input->path, endings[i]);
        unlink(path);
    }
}

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The distinct messages of a producer, one after the other. */
static unsigned char *payload(const struct input *input, uint64_t producer) {
    unsigned char *bytes = malloc(DISTINCT * input->bytes);
    if (!bytes) return NULL;
    for (uint64_t message = 0; message < DISTINCT; message++) {
        uint64_t state = (producer << 32) + message;
        for (size_t at = 0; at < input->bytes; at += 8) {
            uint64_t value = splitmix(&state);
            size_t left = input->bytes - at;
            memcpy(bytes + message * input->bytes + at, &value, left < 8 ? left : 8);
        }
    }
    return bytes;
}

/* Writes `messages` messages; times only the writes. */
static const char *write_all(const struct input *input, sqlite3 *db, uint64_t messages,
                             struct peer_timed *timed) {
    const char *wrong = NULL;
    sqlite3_stmt *insert = NULL, *begin = NULL, *commit = NULL;
    uint64_t open = 0, part = messages / input->producers;
    unsigned char **payloads = calloc(input->producers, sizeof *payloads);
    for (uint64_t p = 0; payloads && p < input->producers; p++) payloads[p] = payload(input, p);
    if (!payloads || sqlite3_prepare_v2(db, "INSERT INTO log(value) VALUES(?)", -1, &insert, NULL) ||
        sqlite3_prepare_v2(db, "BEGIN IMMEDIATE", -1, &begin, NULL) ||
        sqlite3_prepare_v2(db, "COMMIT", -1, &commit, NULL))
        return "cannot prepare";
    uint64_t cpu = peer_cpu(), wall = peer_wall();
    for (uint64_t p = 0; p < input->producers && !wrong; p++)
        for (uint64_t i = 0; i < part && !wrong; i++) {
            const unsigned char *value = payloads[p] + (i % DISTINCT) * input->bytes;
            if (open == 0 && (sqlite3_step(begin) != SQLITE_DONE || sqlite3_reset(begin))) wrong = "begin";
            sqlite3_bind_blob(insert, 1, value, (int)input->bytes, SQLITE_STATIC);
            if (sqlite3_step(insert) != SQLITE_DONE || sqlite3_reset(insert)) wrong = "insert";
            if (++open == input->rows || (p + 1 == input->producers && i + 1 == part)) {
                if (sqlite3_step(commit) != SQLITE_DONE || sqlite3_reset(commit)) wrong = "commit";
                open = 0;
            }
        }
    timed->wall_ns += peer_wall() - wall;
    timed->cpu_ns += peer_cpu() - cpu;
    timed->touch += part * input->producers;
    sqlite3_finalize(insert);
    sqlite3_finalize(begin);
    sqlite3_finalize(commit);
    for (uint64_t p = 0; p < input->producers; p++) free(payloads[p]);
    free(payloads);
    return wrong;
}

static sqlite3 *fresh(const struct input *input) {
    sqlite3 *db = NULL;
    clean(input);
    if (sqlite3_open(input->path, &db) || sqlite3_wal_autocheckpoint(db, 0) ||
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) ||
        sqlite3_exec(db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL) ||
        sqlite3_exec(db, input->synchronous, NULL, NULL, NULL) ||
        sqlite3_exec(db, CREATE_LOG, NULL, NULL, NULL)) {
        sqlite3_close(db);
        return NULL;
    }
    return db;
}

/* Extends the log of a fresh database to the length that a timed pass needs: writes the messages and removes them.
 * After the checkpoint, the next write restarts the log from the beginning. This write creates the table, so that
 * the timed part begins as after `fresh`. Debian's SQLite erases deleted rows by default. This is off, because it
 * would write each page of the table once more. */
static const char *extend_log(const struct input *input, sqlite3 *db) {
    struct peer_timed unused = {0};
    const char *wrong = write_all(input, db, input->messages, &unused);
    if (wrong) return wrong;
    if (sqlite3_exec(db, "PRAGMA secure_delete=OFF; DROP TABLE log; VACUUM", NULL, NULL, NULL))
        return "cannot empty the database";
    if (sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL)) return "cannot checkpoint";
    return sqlite3_exec(db, CREATE_LOG, NULL, NULL, NULL) ? "cannot create the table" : NULL;
}

/* Reads all rows in order. Adds the content hashes or the touch sums of their values to `sum`. */
static const char *read_all(sqlite3 *db, int content, uint64_t *sum) {
    sqlite3_stmt *select = NULL;
    if (sqlite3_prepare_v2(db, "SELECT value FROM log ORDER BY id", -1, &select, NULL))
        return "cannot select";
    int step;
    while ((step = sqlite3_step(select)) == SQLITE_ROW) {
        const void *value = sqlite3_column_blob(select, 0);
        size_t bytes = (size_t)sqlite3_column_bytes(select, 0);
        *sum += content ? peer_part('r', value, bytes) : peer_touch(value, bytes);
    }
    sqlite3_finalize(select);
    return step == SQLITE_DONE ? NULL : "cannot read";
}

static const char *check_scan(struct input *input, struct peer_answer *answer) {
    struct peer_timed unused = {0};
    const char *wrong = NULL;
    if (!input->scanned) {
        input->scanned = fresh(input);
        if (!input->scanned) return "cannot create a database";
        wrong = write_all(input, input->scanned, input->messages, &unused);
        if (!wrong && sqlite3_wal_checkpoint_v2(input->scanned, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL))
            wrong = "cannot checkpoint";
    }
    if (!wrong) wrong = read_all(input->scanned, 1, &answer->content);
    if (!wrong) wrong = read_all(input->scanned, 0, &answer->touch);
    return wrong;
}

static const char *run_scan(struct input *input, uint64_t iterations, struct peer_timed *timed) {
    const char *wrong = NULL;
    struct peer_answer unused = {0, 0, 0, 0};
    if (!input->scanned) wrong = check_scan(input, &unused);
    uint64_t cpu = peer_cpu(), wall = peer_wall();
    for (uint64_t i = 0; i < iterations && !wrong; i++) wrong = read_all(input->scanned, 0, &timed->touch);
    timed->wall_ns = peer_wall() - wall;
    timed->cpu_ns = peer_cpu() - cpu;
    return wrong;
}

static const char *peer_check(unsigned at, struct peer_answer *answer) {
    struct input *input = &inputs[at];
    struct peer_timed unused = {0};
    uint64_t most = CHECK_MESSAGES_MAX / input->producers * input->producers;
    if (!input->loaded) return "input was not loaded";
    if (input->scan) return check_scan(input, answer);
    sqlite3 *db = fresh(input);
    if (!db) return "cannot create a database";
    const char *wrong = write_all(input, db, input->messages < most ? input->messages : most, &unused);
    if (!wrong) wrong = read_all(db, 1, &answer->content);
    sqlite3_close(db);
    clean(input);
    answer->touch = input->messages / input->producers * input->producers;
    return wrong;
}

static const char *peer_run(unsigned at, uint64_t iterations, struct peer_timed *timed) {
    struct input *input = &inputs[at];
    const char *wrong = NULL;
    if (!input->loaded) return "input was not loaded";
    if (input->scan) return run_scan(input, iterations, timed);
    for (uint64_t i = 0; i < iterations && !wrong; i++) {
        sqlite3 *db = fresh(input);
        if (!db) return "cannot create a database";
        wrong = extend_log(input, db);
        if (!wrong) wrong = write_all(input, db, input->messages, timed);
        sqlite3_close(db);
        clean(input);
    }
    return wrong;
}

int main(void) {
    char versions[64];
    snprintf(versions, sizeof versions, "\tsqlite=%s", sqlite3_libversion());
    int code = peer_serve(versions);
    for (unsigned at = 0; at < PEER_INPUTS_MAX; at++)
        if (inputs[at].loaded) {
            sqlite3_close(inputs[at].scanned);
            clean(&inputs[at]);
        }
    return code;
}
