/* SPDX-License-Identifier: MIT */
/* What ranks compare of the state of a hook: numbers with names. */
#include "hooks/hooks.h"

void cz__hook_tell(cz__description *description, const cz_hook *hook, const char *const *names,
                   const double *values)
{
    for (int k = 0; names[k]; k++)
        cz__describe(description, &(cz__subject){names[k], "hook", -1, hook->name, "is"},
                     CZ__FIELD_REAL, &values[k], sizeof values[k]);
}
