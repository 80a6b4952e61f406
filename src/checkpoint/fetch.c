/* SPDX-License-Identifier: MIT */
/* Elements to where they belong here: from the files, or from memory in the type of the file. */
#include "base/status.h"
#include "checkpoint/loading.h"
#include "tensor/model.h"

enum { BLOCK = 64 * 1024, IN_BLOCK = BLOCK / 8 /* elements of any type */ };

const cz_state_dict *cz__restore_entry(const cz__loading *l, int64_t place)
{
    const cz_state_dict *outline = l->adapted ? l->adapted : l->input.index.optimizer;
    const cz_state_dict *entries, *entry;
    if (!l->state || cz_state_dict_get_dict(outline, "state", &entries) != CZ_OK ||
        cz_state_dict_kind(entries, l->here.stored[place].name) != CZ_STATE_DICT ||
        cz_state_dict_get_dict(entries, l->here.stored[place].name, &entry) != CZ_OK)
        return NULL;
    return entry;
}

/* Where elements [begin, end) go; NULL if there are none. */
static cz_status find_target(const cz__loading *l, int64_t place, const char *slot, int64_t begin,
                             int64_t end, char **to)
{
    *to = cz__contents_address(l->checkpoint, place, slot, begin);
    return *to || begin == end
               ? CZ_OK
               : cz__fail(CZ_ERR_INTERNAL, "checkpoint: no memory for '%.60s' of '%.60s'",
                          slot ? slot : "the value", l->here.stored[place].name);
}

/* State has the type of its parameter. */
static cz_dtype type_in_file(const cz__loading *l, int64_t place)
{
    return cz__type_in_memory(l->input.index.stored[l->comparison.from[place]].dtype);
}

/* A block at most, of the type in the file, to any device's memory. */
static cz_status put_block(const cz__loading *l, int64_t place, char *to, const char *block,
                           int64_t count)
{
    char converted[BLOCK];
    const cz_dtype from = type_in_file(l, place), dtype = l->here.stored[place].dtype;
    if (from != dtype)
        cz__convert(dtype, converted, from, block, count);
    return cz__contents_device(l->checkpoint, place)
        ->copy(NULL, to, from == dtype ? block : converted, (size_t)count * cz_dtype_size(dtype));
}

cz_status cz__restore_put(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                          int64_t end, const char *elements)
{
    char *to;
    const size_t from = cz_dtype_size(type_in_file(l, place)),
                 here = cz_dtype_size(l->here.stored[place].dtype);
    CZ_TRY(find_target(l, place, slot, begin, end, &to));
    for (int64_t at = begin; at < end; at += IN_BLOCK)
        CZ_TRY(put_block(l, place, to + (size_t)(at - begin) * here,
                         elements + (size_t)(at - begin) * from,
                         end - at < IN_BLOCK ? end - at : IN_BLOCK));
    return CZ_OK;
}

/* Through blocks: another type, or another device's memory. */
static cz_status fetch_blocks(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                              int64_t end, char *to)
{
    char block[BLOCK];
    const size_t size = cz_dtype_size(l->here.stored[place].dtype);
    for (int64_t at = begin; at < end; at += IN_BLOCK) {
        const int64_t count = end - at < IN_BLOCK ? end - at : IN_BLOCK;
        CZ_TRY(cz__input_read(&l->input, l->comparison.from[place], slot, at, at + count, block));
        CZ_TRY(put_block(l, place, to + (size_t)(at - begin) * size, block, count));
    }
    return CZ_OK;
}

cz_status cz__restore_fetch(cz__loading *l, int64_t place, const char *slot, int64_t begin,
                            int64_t end)
{
    char *to;
    CZ_TRY(find_target(l, place, slot, begin, end, &to));
    if (!to)
        return CZ_OK;
    if (type_in_file(l, place) == l->here.stored[place].dtype &&
        cz__contents_device(l->checkpoint, place) == cz_device_cpu())
        return cz__input_read(&l->input, l->comparison.from[place], slot, begin, end, to);
    return fetch_blocks(l, place, slot, begin, end, to);
}
