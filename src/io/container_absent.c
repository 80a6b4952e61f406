/* SPDX-License-Identifier: MIT */
/* In place of container_read.c and container_write.c where the library is built without libzip. */
#include "base/status.h"
#include "io/container.h"

static cz_status absent(const char *path)
{
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "%s: this library was built without libzip, which files of torch take", path);
}

cz_status cz__container_open(cz__container **out, const char *path)
{
    *out = NULL;
    return absent(path);
}

cz_status cz__container_open_part(cz__container **out, const char *path, cz__reader *reader,
                                  const cz__verified *part)
{
    *out = NULL;
    return absent(path);
}

void cz__container_close(cz__container **container)
{
}

int64_t cz__container_count(const cz__container *container)
{
    return 0;
}

const cz__container_entry *cz__container_at(const cz__container *container, int64_t index)
{
    return NULL;
}

const cz__container_entry *cz__container_find(const cz__container *container, const char *name)
{
    return NULL;
}

cz_status cz__container_take(cz__container *container, const cz__container_entry *entry,
                             size_t most, char **bytes)
{
    *bytes = NULL;
    return absent(entry->name);
}

cz_status cz__container_verify(cz__container *container, const cz__container_entry *entry)
{
    return absent(entry->name);
}

cz_status cz__container_read(cz__container *container, const cz__container_entry *entry,
                             uint64_t offset, void *to, size_t count)
{
    return absent(entry->name);
}

void cz__container_leave(cz__container *container, const cz__container_entry *entry)
{
}

uint64_t *cz__container_sums(cz__container *container, int64_t *count)
{
    *count = 0;
    return NULL;
}

void cz__container_trust(cz__container *container, const cz__container_entry *entry)
{
}

cz_status cz__container_write(const char *path, const cz__container_item *items, int64_t count)
{
    return absent(path);
}

cz_status cz__container_row_create(cz__container_row **out, const char *path)
{
    *out = NULL;
    return absent(path);
}

cz_status cz__container_row_add(cz__container_row *row, const cz__container_item *items,
                                int64_t count, uint64_t *begin, uint64_t *bytes)
{
    return absent("file");
}

cz_status cz__container_row_finish(cz__container_row **row)
{
    return absent("file");
}

void cz__container_row_destroy(cz__container_row **row)
{
}
