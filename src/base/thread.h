/* SPDX-License-Identifier: MIT */
/* Threads of the library, and locks that they hold for a moment. */
#ifndef CZ_BASE_THREAD_H
#define CZ_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create(), with all signals blocked but for those of an error in the thread itself:
 * signals are the program's, which may wait for them in a thread of its own. */
int cz__thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                      void *context);

/* A program at a level of MPI that allows one thread only: from now on the library starts none. */
void cz__thread_forbid(void);
bool cz__thread_allowed(void);

/* pthread_cancel() of a thread that is inside a call of the library takes effect when the call has
 * returned: a rank that ends in the middle of an operation would leave others waiting, and locks
 * locked. As the first declaration of a function that may wait:
 *     CZ__UNCANCELLED;
 * It holds until the function returns. */
static inline void cz__cancel_restore(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

static inline int cz__cancel_disable(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

#define CZ__UNCANCELLED                                                                            \
    __attribute__((cleanup(cz__cancel_restore), unused)) const int cancel_before =                 \
        cz__cancel_disable()

/* A lock that is held for some nanoseconds at a time: whoever finds it taken looks a few times
 * before it sleeps. */
static inline void cz__lock_create(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP /* of the C library's, where it has it */
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

#endif
