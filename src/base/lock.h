/* SPDX-License-Identifier: MIT */
/* A lock that is held for some nanoseconds at a time: whoever finds it taken looks a few times before it sleeps. */
#ifndef CZ_BASE_LOCK_H
#define CZ_BASE_LOCK_H

#include <pthread.h>

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
