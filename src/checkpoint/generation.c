/* SPDX-License-Identifier: MIT */
/* Generations in a folder: names and files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/index.h"

static void begin(cz__text *path, const char *folder)
{
    cz__text_cut(path, 0);
    cz__text_print(path, "%s/", folder);
}

static cz_status end(const cz__text *path)
{
    return path->failed ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path") : CZ_OK;
}

void cz__generation_name(char name[64], int64_t number, int64_t step)
{
    snprintf(name, 64, "%08" PRId64 "-step-%" PRId64, number, step);
}

cz_status cz__generation_path(cz__text *path, const char *folder, int64_t number, int64_t step)
{
    char name[64];
    cz__generation_name(name, number, step);
    begin(path, folder);
    cz__text_print(path, "%s", name);
    return end(path);
}

cz_status cz__index_path(cz__text *path, const char *generation)
{
    begin(path, generation);
    cz__text_print(path, "index.json");
    return end(path);
}

cz_status cz__common_path(cz__text *path, const char *generation)
{
    begin(path, generation);
    cz__text_print(path, "common.safetensors");
    return end(path);
}

cz_status cz__part_path(cz__text *path, const char *generation, int rank, int world_size,
                        const char *suffix)
{
    begin(path, generation);
    cz__text_print(path, "rank-%05d-of-%05d.%s", rank, world_size, suffix);
    return end(path);
}

bool cz__part_parse(const char *name, int *rank, int *world_size, const char **suffix)
{
    char again[64];
    *suffix = strchr(name, '.');
    if (!*suffix || sscanf(name, "rank-%d-of-%d.", rank, world_size) != 2 || *rank < 0 ||
        *rank >= *world_size || *world_size > CZ__MOST_RANKS)
        return false;
    snprintf(again, sizeof again, "rank-%05d-of-%05d", *rank, *world_size);
    const size_t length = strlen(again);
    const bool same = strncmp(again, name, length) == 0 && *suffix == name + length;
    *suffix += same;
    return same;
}
