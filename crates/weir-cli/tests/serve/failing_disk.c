/* A library for LD_PRELOAD that makes the disk of a running process fail when a
 * file appears.
 *
 * FAIL_SYNC=FILE: when FILE exists, the next fdatasync of a log segment fails
 * with EIO, and FILE is renamed to FILE.done. Later calls succeed, like those of
 * a kernel that has dropped the pages.
 *
 * SYNC_CALLS=FILE: each fdatasync of a log segment appends a line, "sync" or
 * "fail", to FILE.
 *
 * BLOCK_SYNC=FILE, BLOCK_PATH=TEXT: an fdatasync of a file whose path contains
 * TEXT creates FILE, and never returns.
 *
 * FAIL_WRITE=FILE: when FILE exists, each pwritev of the process fails with EIO
 * from then on, and FILE is renamed to FILE.done. A kernel filter (seccomp)
 * injects the error, because the process calls pwritev without the C library. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void done(const char *file) {
  char name[PATH_MAX];
  snprintf(name, sizeof name, "%s.done", file);
  if (rename(file, name) != 0) abort();
}

static void count(const char *line) {
  int fd = open(getenv("SYNC_CALLS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, line, strlen(line)) < 0) abort();
  close(fd);
}

int fdatasync(int fd) {
  const char *file = getenv("FAIL_SYNC");
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t bytes = readlink(link, path, sizeof path - 1);
  path[bytes < 0 ? 0 : bytes] = 0;
  const char *block = getenv("BLOCK_SYNC");
  if (block && strstr(path, getenv("BLOCK_PATH"))) {
    int made = open(block, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (made < 0) abort();
    close(made);
    for (;;) pause();
  }
  if (strstr(path, "/log/") && strstr(path, ".log")) {
    if (file && access(file, F_OK) == 0) {
      count("fail\n");
      done(file);
      errno = EIO;
      return -1;
    }
    int result = (int)syscall(SYS_fdatasync, fd);
    int error = errno;
    count("sync\n");
    errno = error;
    return result;
  }
  return (int)syscall(SYS_fdatasync, fd);
}

static void *watch(void *file) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
  while (access(file, F_OK) != 0) usleep(1000);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
              SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
    abort();
  done(file);
  return NULL;
}

__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  char *file = getenv("FAIL_WRITE");
  if (file && pthread_create(&thread, NULL, watch, file) != 0) abort();
}
