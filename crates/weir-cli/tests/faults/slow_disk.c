/* A library for LD_PRELOAD that delays the syncs of a running process.
 *
 * SLOW_SYNC_FILE=FILE: FILE contains the milliseconds for which each fsync and
 * fdatasync sleeps before it begins. Without FILE, 0. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_first(void) {
  const char *name = getenv("SLOW_SYNC_FILE");
  char text[16] = "";
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  long millis = bytes > 0 ? atol(text) : 0;
  struct timespec pause = {millis / 1000, millis % 1000 * 1000000};
  if (millis > 0) syscall(SYS_nanosleep, &pause, NULL);
}

int fdatasync(int fd) {
  wait_first();
  return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
  wait_first();
  return (int)syscall(SYS_fsync, fd);
}
