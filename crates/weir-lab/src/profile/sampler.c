/* Samples the CPU time of a process from inside, where `perf` is missing or not permitted. The lab
 * preloads this library (LD_PRELOAD) into a contender. The servers that the contender starts inherit
 * it. At each SIGPROF, the handler stores the addresses of the call stack.
 *
 * WEIR_LAB_SAMPLES is a directory. Process N writes two files there:
 *   N.maps    the mappings of the process at its start
 *   N.stacks  for each sample, the number of its addresses and the addresses, innermost first: numbers
 *             of 64 bits, low byte first. Zeros follow the last sample.
 * The stacks are a shared mapping, so they are complete also if the process is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRAMES_MAX = 100, WORDS_MAX = 4 << 20, TICK_US = 4000 };

static uint64_t *words;
static atomic_size_t used;

/* The address of the instruction that the signal interrupted. */
static void *interrupted(const void *context) {
    const mcontext_t *machine = &((const ucontext_t *)context)->uc_mcontext;
#if defined(__x86_64__)
    return (void *)machine->gregs[REG_RIP];
#elif defined(__aarch64__)
    return (void *)machine->pc;
#else
#error "the sampler does not know this processor"
#endif
}

static void on_tick(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    int error = errno;
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    /* The innermost frames are those of this handler. */
    int first = 0;
    while (first < count && frames[first] != interrupted(context))
        first++;
    if (first == count) {
        frames[0] = interrupted(context);
        first = 0;
        count = 1;
    }
    size_t length = (size_t)(count - first);
    size_t at = atomic_fetch_add(&used, length + 1);
    if (at + length + 1 <= WORDS_MAX) {
        for (size_t i = 0; i < length; i++)
            words[at + 1 + i] = (uint64_t)(uintptr_t)frames[first + (int)i];
        words[at] = length;
    }
    errno = error;
}

/* Copies the mappings of this process. Returns 0, or -1 after an error. */
static int copy_maps(const char *path) {
    char buffer[4096];
    int from = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t count = from < 0 || to < 0 ? -1 : 1;
    while (count > 0) {
        count = read(from, buffer, sizeof buffer);
        if (count > 0 && write(to, buffer, (size_t)count) != count)
            count = -1;
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    return (int)count;
}

/* Maps the file for the stacks. Returns 0, or -1 after an error. */
static int map_stacks(const char *path) {
    size_t bytes = (size_t)WORDS_MAX * sizeof *words;
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        return -1;
    void *mapped = MAP_FAILED;
    if (ftruncate(file, (off_t)bytes) == 0)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return -1;
    words = mapped;
    return 0;
}

/* Whether this program only starts another one in its place: a shell, or the guard of a server. The
 * timer would continue in that program, and end it before it has a handler. */
static int is_starter(int count, char **arguments) {
    const char *name = count > 0 ? strrchr(arguments[0], '/') : NULL;
    name = name ? name + 1 : count > 0 ? arguments[0] : "";
    size_t length = strlen(name);
    const char *first = count > 1 ? arguments[1] : "";
    int is_shell = length >= 2 && strcmp(name + length - 2, "sh") == 0;
    return is_shell || strcmp(first, "guard") == 0 || strcmp(first, "--guard") == 0;
}

__attribute__((constructor)) static void start(int count, char **arguments, char **environment) {
    (void)environment;
    const char *directory = getenv("WEIR_LAB_SAMPLES");
    char path[PATH_MAX];
    int process = (int)getpid();
    if (!directory || is_starter(count, arguments))
        return;
    if (snprintf(path, sizeof path, "%s/%d.maps", directory, process) >= (int)sizeof path ||
        copy_maps(path) < 0)
        return;
    if (snprintf(path, sizeof path, "%s/%d.stacks", directory, process) >= (int)sizeof path ||
        map_stacks(path) < 0)
        return;
    /* Loads the unwinder now, because the handler must not load it. */
    void *frame[1];
    (void)backtrace(frame, 1);
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval tick = {{0, TICK_US}, {0, TICK_US}};
    if (sigaction(SIGPROF, &action, NULL) == 0)
        setitimer(ITIMER_PROF, &tick, NULL);
}
