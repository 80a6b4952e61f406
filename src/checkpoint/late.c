/* SPDX-License-Identifier: MIT */
/* Dictionaries of a file that another rank has: made first, without elements, which are filled in as they come. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/input_file.h"

cz_status cz__input_file_wait_for(cz__input_file *file, int64_t entry, void *data)
{
    cz__late_tensor *late =
        cz__grow(file->late, file->late_count, &file->late_capacity, sizeof *late);
    if (!late)
        return cz__fail(CZ_ERR_MEMORY, "%s: a list of tensors", file->path);
    file->late = late;
    file->late[file->late_count++] = (cz__late_tensor){entry, data};
    return CZ_OK;
}

void cz__input_file_come(const cz__input_file *file, uint64_t offset, const char *bytes,
                         size_t count)
{
    for (int64_t i = 0; i < file->late_count; i++) {
        const cz__safetensors_entry *entry =
            cz__safetensors_entry_at(file->header, file->late[i].entry);
        const uint64_t begin = entry->begin > offset ? entry->begin : offset;
        const uint64_t end = entry->end < offset + count ? entry->end : offset + count;
        if (begin < end)
            memcpy(file->late[i].data + (begin - entry->begin), bytes + (begin - offset),
                   (size_t)(end - begin));
    }
}

cz_status cz__input_file_check_late(const cz__input_file *file)
{
    for (int64_t i = 0; i < file->late_count; i++) {
        const cz__late_tensor *late = &file->late[i];
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, late->entry);
        CZ_TRY(cz__input_file_check(
            file, late->entry, cz__checksum_of(late->data, (size_t)(entry->end - entry->begin))));
    }
    return CZ_OK;
}

void cz__input_file_region(const cz__input_file *file, bool own, uint64_t *begin, uint64_t *end)
{
    *begin = *end = own ? 0 : cz__safetensors_data_bytes(file->header);
    if (!own) {
        *begin = 0;
        return;
    }
    for (int64_t i = cz__safetensors_count(file->header) - 1; i >= 0; i--) {
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(file->header, i);
        if (strncmp(entry->name, "own/", 4) != 0)
            continue;
        *end = *end ? *end : entry->end;
        *begin = entry->begin;
    }
}
