/* SPDX-License-Identifier: MIT */
/* How a conversion goes on: how much there is to write, what was written, and Ctrl-C: once, nothing
 * is made and nothing is left; twice, it ends at once. */
#include <signal.h>

#include "convert.h"

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    interrupted = number;
}

void convert_catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

cz_status convert_wrote(size_t bytes, void *context)
{
    conversion *c = context;
    c->bytes += bytes;
    progress_add(&c->bar, bytes);
    return interrupted ? cz_fail(CZ_ERR_STATE, "interrupted; nothing was made") : CZ_OK;
}

uint64_t convert_bytes(const conversion *c, int64_t stored, const char *slot)
{
    const cz__index *index = &c->input->index;
    return (uint64_t)index->stored[stored].count *
           cz__type_unit(cz__index_dtype(index, stored, slot));
}

uint64_t convert_state_bytes(const conversion *c, int64_t stored)
{
    const char *slot;
    cz_dtype dtype;
    uint64_t bytes = 0;
    if (stored >= c->input->index.param_count)
        return 0;
    for (int64_t at = 0; cz__index_slot(&c->input->index, stored, &at, &slot, &dtype);)
        bytes += convert_bytes(c, stored, slot);
    return bytes;
}
