/* SPDX-License-Identifier: MIT */
/* Which process this is. A child of fork() has the memory of its parent and the one thread that
 * called fork(): whoever waits there for another thread of the parent's, or for a lock that one of
 * them held, waits for ever. */
#ifndef CZ_BASE_PROCESS_H
#define CZ_BASE_PROCESS_H

#include <pthread.h>
#include <sys/types.h>

/* Its number, without asking the system. What has threads keeps the number of the process that it
 * was made in, and is not touched where the number is another one. Any thread, also in a handler of
 * a signal. */
pid_t cz__process(void);

/* A lock of the whole process. In a child it is free, whoever held it in the parent. */
typedef struct cz__process_lock {
    pthread_mutex_t mutex;
    struct cz__process_lock *next;
} cz__process_lock;

void cz__process_lock_enlist(cz__process_lock *lock);

/* A static lock of that name. */
#define CZ__PROCESS_LOCK(name)                                                                     \
    static cz__process_lock name = {PTHREAD_MUTEX_INITIALIZER, NULL};                              \
    __attribute__((constructor)) static void enlist_##name(void)                                   \
    {                                                                                              \
        cz__process_lock_enlist(&name);                                                            \
    }

static inline void cz__process_lock_take(cz__process_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
}

static inline void cz__process_lock_release(cz__process_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}

/* Keep what a dead object has where a search for leaks finds it: it cannot be freed in a child of
 * fork(). `link` is the object's own room for the list. */
void cz__process_forsake(void *object, void **link);

/* The value of an environment variable; NULL: it is not set, or the process has more rights than
 * who started it, whose variables are then not believed. */
const char *cz__environment_text(const char *variable);

#endif
