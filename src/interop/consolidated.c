/* SPDX-License-Identifier: MIT */
/* Names in consolidated files. */
#include "interop/consolidated.h"

#include "base/status.h"

cz_status cz__consolidated_name(cz__text *name, const char *stored, const char *slot)
{
    cz__text_cut(name, 0);
    if (slot)
        cz__text_print(name, CZ__CONSOLIDATED_STATE "%s/%s", slot, stored);
    else
        cz__text_print(name, "%s", stored);
    return name->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: a name") : CZ_OK;
}
