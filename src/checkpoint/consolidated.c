/* SPDX-License-Identifier: MIT */
/* Names in consolidated files. */
#include <string.h>

#include "checkpoint/consolidated.h"

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

bool cz__index_slot(const cz__index *index, int64_t param, int64_t *at, const char **slot,
                    cz_dtype *dtype)
{
    const cz_state_dict *entry;
    const char *type;
    const char *name = index->stored[param].name;
    if (cz_state_dict_kind(index->entries, name) != CZ_STATE_DICT ||
        cz_state_dict_get_dict(index->entries, name, &entry) != CZ_OK)
        return false;
    while (*at < cz_state_dict_count(entry)) {
        *slot = cz_state_dict_key(entry, (*at)++);
        if (cz_state_dict_kind(entry, *slot) != CZ_STATE_TEXT ||
            cz_state_dict_get_text(entry, *slot, &type) != CZ_OK)
            continue;
        *dtype = (cz_dtype)0;
        for (cz_dtype d = CZ_F32; d <= CZ_U8; d++)
            if (strcmp(cz_dtype_name(d), type) == 0)
                *dtype = d;
        return true;
    }
    return false;
}
