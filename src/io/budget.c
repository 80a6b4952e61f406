/* SPDX-License-Identifier: MIT */
/* What a file may cost. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "io/budget.h"
#include "io/text.h"

/* What every file may cost: CZERO_FILE_LIMIT in MiB, or "none". A word that is neither changes nothing, and is said. */
static uint64_t free_bytes(void)
{
    static atomic_bool said;
    const char *word = secure_getenv(CZ__BUDGET_VARIABLE);
    char *end = NULL;
    if (!word || !*word)
        return CZ__BUDGET_FREE;
    if (strcmp(word, "none") == 0)
        return UINT64_MAX;
    const unsigned long long mebibytes = strtoull(word, &end, 10);
    const bool fits = !*end && *word != '-' && mebibytes <= UINT64_MAX >> 21;
    if (!fits && !atomic_exchange(&said, true))
        cz__log(CZ_LOG_WARN, CZ__BUDGET_VARIABLE " is '%s', wanted a number of MiB or none: %d",
                cz__show(word).text, (int)(CZ__BUDGET_FREE >> 20));
    return fits ? (uint64_t)mebibytes << 20 : CZ__BUDGET_FREE;
}

cz__budget cz__budget_of(const char *where, uint64_t input)
{
    const uint64_t given = free_bytes();
    const uint64_t times =
        input > UINT64_MAX / 4 / CZ__BUDGET_TIMES ? UINT64_MAX / 4 : input * CZ__BUDGET_TIMES;
    return (cz__budget){where, input, given > UINT64_MAX - times ? UINT64_MAX : given + times, 0};
}

cz_status cz__budget_spend(cz__budget *b, uint64_t bytes, const char *what)
{
    if (bytes <= b->most - b->used) {
        b->used += bytes;
        return CZ_OK;
    }
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "%s: %s would cost %" PRIu64 " bytes%s, a file of %" PRIu64
                    " bytes may cost %" PRIu64
                    ": if it is from somebody you trust, " CZ__BUDGET_VARIABLE
                    "=none (or a number of MiB) lifts this limit",
                    b->where, what, bytes, b->used > 0 ? " more" : "", b->input, b->most);
}
