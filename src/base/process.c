/* SPDX-License-Identifier: MIT */
/* The number of this process, and its locks. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process.h"

static _Atomic pid_t number;
static cz__process_lock *locks; /* constructors fill it, one after the other */
static void *forsaken;

static void begin_child(void)
{
    atomic_store(&number, getpid());
    for (cz__process_lock *lock = locks; lock; lock = lock->next)
        pthread_mutex_init(&lock->mutex, NULL);
}

__attribute__((constructor)) static void watch_for_children(void)
{
    atomic_store(&number, getpid());
    pthread_atfork(NULL, NULL, begin_child);
}

pid_t cz__process(void)
{
    return atomic_load_explicit(&number, memory_order_relaxed);
}

void cz__process_lock_enlist(cz__process_lock *lock)
{
    lock->next = locks;
    locks = lock;
}

void cz__process_forsake(void *object, void **link)
{
    *link = forsaken;
    forsaken = object;
}

const char *cz__environment_text(const char *variable)
{
    return secure_getenv(variable);
}
