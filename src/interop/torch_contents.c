/* SPDX-License-Identifier: MIT */
/* What was read of a file of torch: tensors, notes, and how much may still be taken of it. */
#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/torch_contents.h"

cz_status cz__torch_refuse(const cz__torch_contents *c, const char *format, ...)
{
    char what[500];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return cz__fail(CZ_ERR_FORMAT, "%s: %s", cz__text_get(&c->file->where), what);
}

static cz_status no_memory(const cz__torch_contents *c)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", c->file->path);
}

cz_status cz__torch_note(cz__torch_contents *c, const char *format, ...)
{
    char what[800];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    cz__make_plain(what);
    return cz__text_print(&c->notes, "%s%s", c->notes.count ? "\n" : "", what) ? CZ_OK
                                                                               : no_memory(c);
}

bool cz__torch_knows_model(const cz__index *here)
{
    return here && (cz_state_dict_kind(here->optimizer, "param_groups") == CZ_STATE_DICT ||
                    here->param_count + here->buffer_count > 0);
}

cz_status cz__torch_contents_spend(cz__torch_contents *c)
{
    return c->values-- > 0
               ? CZ_OK
               : cz__torch_refuse(c, "the same values again and again, or in themselves");
}

/* ---- tensors ---- */

static cz_status pay_for_elements(cz__torch_contents *c, const cz__torch_tensor *tensor)
{
    char what[160];
    snprintf(what, sizeof what, "tensor '%s', a view of less,", cz__show(tensor->form.name).text);
    return cz__budget_spend(&c->elements, tensor->form.end, what);
}

cz_status cz__torch_contents_add(cz__torch_contents *c, const cz__pickle_value *value,
                                 const char *slot, const char *name, cz_dtype *dtype)
{
    cz__text full = {0};
    cz__torch_tensor *tensors = cz__grow(c->tensors, c->count, &c->capacity, sizeof *tensors);
    if (!tensors)
        return no_memory(c);
    c->tensors = tensors;
    cz__torch_tensor *tensor = &c->tensors[c->count];
    CZ_TRY(cz__torch_contents_spend(c));
    cz_status status = cz__consolidated_name(&full, name, slot);
    if (status == CZ_OK)
        status = cz__torch_tensor_of(c->file, value, cz__text_get(&full), tensor);
    if (status == CZ_OK)
        status = pay_for_elements(c, tensor);
    tensor->form.name = status == CZ_OK ? cz__strdup(cz__text_get(&full)) : NULL;
    cz__text_clear(&full);
    if (status != CZ_OK)
        return status;
    if (!tensor->form.name)
        return no_memory(c);
    *dtype = tensor->form.dtype;
    c->count++;
    return CZ_OK;
}

void cz__torch_contents_close(cz__torch_contents **contents)
{
    if (!contents || !*contents)
        return;
    cz__torch_contents *c = *contents;
    for (int64_t i = 0; i < c->count; i++)
        cz__free((char *)(uintptr_t)c->tensors[i].form.name);
    cz__free(c->tensors);
    cz__text_clear(&c->notes);
    cz_state_dict_destroy(&c->outline);
    cz_state_dict_destroy(&c->common);
    cz__torch_close(&c->file);
    cz__free(c);
    *contents = NULL;
}
