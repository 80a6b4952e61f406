/* SPDX-License-Identifier: MIT */
/* Zip files that are read, as they stand. What is accepted has entries inside the file that share
 * no bytes, and each of them can be read, or is refused. */
#include "fuzz.h"

#include "base/memory.h"
#include "io/container.h"

#include <string.h>
#include <unistd.h>

static void check_entry(cz__container *c, const cz__container_entry *e, size_t size)
{
    char *bytes = NULL;
    CZ_FUZZ_CHECK(cz__container_find(c, e->name) == e);
    if (!e->unusual && e->bytes > 0)
        CZ_FUZZ_CHECK(e->offset <= size && e->bytes <= size - e->offset);
    const cz_status status = cz__container_take(c, e, 4096, &bytes);
    CZ_FUZZ_CHECK(status == CZ_OK || status == CZ_ERR_FORMAT);
    CZ_FUZZ_CHECK((status == CZ_OK) == (bytes != NULL));
    CZ_FUZZ_CHECK(e->bytes > 4096 || cz__container_verify(c, e) == status);
    if (bytes && e->bytes > 0) { /* what libzip reads is where we read it */
        char own[4096];
        CZ_FUZZ_CHECK(cz__container_read(c, e, 0, own, (size_t)e->bytes) == CZ_OK);
        CZ_FUZZ_CHECK(memcmp(own, bytes, (size_t)e->bytes) == 0);
    }
    cz__free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz__container *c = NULL;
    const cz_status status = cz__container_pretend(&c, "FILE", bytes, count);
    CZ_FUZZ_CHECK((status == CZ_OK) == (c != NULL));
    if (!c)
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT && strncmp(cz_last_error(), "FILE: ", 6) == 0);
    for (int64_t i = 0; c && i < cz__container_count(c); i++)
        check_entry(c, cz__container_at(c, i), count);
    cz__container_close(&c);
    return 0;
}

static cz_status give(uint64_t offset, void *to, size_t count, void *context)
{
    memcpy(to, (const char *)context + offset, count);
    return CZ_OK;
}

/* A new file, which is gone then. */
static size_t write_and_read(const cz__container_item *items, int64_t number, uint8_t *bytes,
                             size_t room)
{
    char folder[] = "/tmp/czero-fuzz-XXXXXX", name[40];
    CZ_FUZZ_CHECK(mkdtemp(folder));
    snprintf(name, sizeof name, "%s/seed", folder);
    CZ_FUZZ_CHECK(cz__container_write(name, items, number) == CZ_OK);
    FILE *made = fopen(name, "rb");
    CZ_FUZZ_CHECK(made);
    const size_t count = fread(bytes, 1, room, made);
    CZ_FUZZ_CHECK(fclose(made) == 0 && unlink(name) == 0 && rmdir(folder) == 0);
    return count;
}

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static char names[][24] = {"archive/data.pkl", "archive/data/0", "archive/version"};
    static char contents[] = "what is in the entries, some bytes of it";
    static uint8_t made[3][CZ_FUZZ_ROOM]; /* a seed is wanted many times, and written once */
    static size_t sizes[3];
    cz__container_item items[3];
    if (number < 0 || number > 2)
        return 0;
    for (int i = 0; i < 3; i++)
        items[i] = (cz__container_item){names[i], (uint64_t)(12 * i), give, contents};
    if (sizes[number] == 0)
        sizes[number] = write_and_read(items, number + 1, made[number], sizeof made[number]);
    const size_t count = sizes[number] <= room ? sizes[number] : 0;
    memcpy(bytes, made[number], count);
    return count;
}
