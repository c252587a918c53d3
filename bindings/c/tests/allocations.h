/*
 * Counts the allocating calls of the C library in this process. Does not work with sanitizers, which replace the
 * allocator.
 */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#include <stddef.h>

static unsigned long allocations;

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size)
{
    allocations++;
    return __libc_realloc(ptr, size);
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
    allocations++;
    *to = __libc_memalign(alignment, size);
    return *to ? 0 : 12;
}

#endif
