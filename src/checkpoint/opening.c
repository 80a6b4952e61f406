/* SPDX-License-Identifier: MIT */
/* The newest generation that is complete, or why there is none. */
#include "checkpoint/opening.h"

#include <inttypes.h>

#include "base/status.h"
#include "checkpoint/folder.h"

/* Lines, without the end of the last one. */
static int length(const cz__text *lines)
{
    return lines->count > 0 ? (int)lines->count - 1 : 0;
}

static cz_status none_found(const cz__found *f, const char *folder, const cz__text *notes)
{
    if (f->seen == 0 && notes->count > 0)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: there is no checkpoint in this folder.\n%.*s", folder,
                        length(notes), cz__text_get(notes));
    if (f->seen == 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: there is no checkpoint in this folder. Wanted: folders such as "
                        "00000001-step-100 (czero's), or model.safetensors or "
                        "model.safetensors.index.json (Hugging Face's)",
                        folder);
    if (f->step >= 0)
        return cz__fail(CZ_ERR_STATE, "%s: no complete generation of step %" PRId64, folder,
                        f->step);
    return cz__fail(CZ_ERR_STATE, "%s: no generation is complete:\n%.*s", folder,
                    length(&f->passed), cz__text_get(&f->passed));
}

cz_status cz__input_open_newest(cz__input *input, const char *folder, int64_t step, cz__text *notes)
{
    cz__found found;
    cz_status status = cz__generation_find(&found, folder, step);
    if (status == CZ_OK)
        status = found.path.count > 0 ? cz__input_open(input, cz__text_get(&found.path))
                                      : none_found(&found, folder, notes);
    if (!cz__text_print(notes, "%s", cz__text_get(&found.passed)) && status == CZ_OK)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for what was passed over", folder);
    cz__found_clear(&found);
    return status;
}
