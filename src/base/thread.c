/* SPDX-License-Identifier: MIT */
/* Threads of the library. */
#include "base/thread.h"

#include <signal.h>
#include <stdatomic.h>

int cz__thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                      void *context)
{
    static const int errors[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        sigdelset(&all, errors[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static atomic_bool forbidden;

void cz__thread_forbid(void)
{
    atomic_store(&forbidden, true);
}

bool cz__thread_allowed(void)
{
    return !atomic_load(&forbidden);
}
