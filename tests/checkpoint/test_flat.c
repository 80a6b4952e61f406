/* SPDX-License-Identifier: MIT */
/* What is done again and again on one group of threads takes no more memory the hundredth time than
 * the tenth: loads, imports, broadcasts, dictionaries, saves. The group is there all the time. */
#include "checkpoint/small.h"
#include "group/group_test.h"

typedef struct way {
    const char *name;
    cz_status (*run)(small *s, const char *folder);
    int rounds;
} way;

static cz_status load(small *s, const char *folder)
{
    (void)folder;
    return cz_checkpoint_load(s->checkpoint, NULL, NULL);
}

static cz_status save(small *s, const char *folder)
{
    (void)folder;
    return small_save(s, 1, false);
}

static cz_status import(small *s, const char *folder, const char *name)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return cz_checkpoint_import(s->checkpoint, path, NULL, NULL);
}

static cz_status import_safetensors(small *s, const char *folder)
{
    return import(s, folder, "whole.safetensors");
}

static cz_status import_torch(small *s, const char *folder)
{
    return import(s, folder, "whole.pt");
}

static cz_status broadcast(small *s, const char *folder)
{
    (void)folder;
    CZ_TRY(cz_zero_broadcast_parameters(s->zero, 1));
    return cz_broadcast(s->group, s->grads, SMALL_PARAMS * SMALL_LARGEST, CZ_F32, 0, NULL);
}

static cz_status broadcast_object(small *s, const char *folder)
{
    void *object = NULL;
    size_t bytes = 0;
    CZ_TRY(cz_broadcast_object(s->group, folder, strlen(folder), 0, &object, &bytes));
    cz_object_free(object);
    return CZ_OK;
}

static cz_status consolidate(small *s, const char *folder)
{
    (void)folder;
    cz_state_dict *dict = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &dict));
    const cz_status status = cz_zero_load_state_dict(s->zero, dict);
    cz_state_dict_destroy(&dict);
    return status;
}

static const way ways[] = {
    {"loads", load, 100},
    {"imports of safetensors", import_safetensors, 100},
    {"imports of PyTorch's file", import_torch, 100},
    {"broadcasts", broadcast, 300},
    {"broadcasts of objects", broadcast_object, 300},
    {"dictionaries", consolidate, 200},
    {"saves", save, 30},
};

/* Compared where no rank is in the middle of anything. */
static cz_status measure(small *s, size_t *bytes)
{
    CZ_TRY(cz_barrier(s->group, NULL));
    usleep(5000); /* the others come out of the barrier */
    *bytes = cz_memory_bytes(CZ_MEMORY_GENERAL) + cz_memory_bytes(CZ_MEMORY_STAGING);
    return cz_barrier(s->group, NULL);
}

static cz_status repeat(small *s, const way *w, const char *folder)
{
    enum { WARM = 10 };
    const int rounds = cz_group_size(s->group) > 3 ? w->rounds / 3 : w->rounds;
    size_t before = 0, after = 0;
    for (int i = 0; i < WARM; i++)
        CZ_TRY(w->run(s, folder));
    CZ_TRY(measure(s, &before));
    for (int i = 0; i < rounds; i++)
        CZ_TRY(w->run(s, folder));
    CZ_TRY(measure(s, &after));
    const size_t room = (size_t)cz_group_size(s->group) * 4096; /* works are kept for the next */
    CHECK(after <= before + room, "%s: %zu bytes after %d, %zu after %d more", w->name, before,
          WARM, after, rounds);
    return CZ_OK;
}

static cz_status export_both(small *s, const char *folder)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/whole.safetensors", folder);
    CZ_TRY(cz_checkpoint_export(s->checkpoint, path, NULL));
    snprintf(path, sizeof path, "%s/whole.pt", folder);
    return cz_checkpoint_export(s->checkpoint, path, NULL);
}

static cz_status stay_flat(cz_group *group, void *folder)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 2);
    THEN(small_step(&s));
    THEN(export_both(&s, folder));
    THEN(small_save(&s, 1, false));
    for (size_t k = 0; status == CZ_OK && k < sizeof ways / sizeof *ways; k++)
        status = repeat(&s, &ways[k], folder);
    small_close(&s);
    return status;
}

TEST(memory_stays_flat_over_loads_imports_and_broadcasts)
{
    (void)state;
    for (int world = 3; world <= 8; world += 5) {
        char folder[FOLDER_BYTES];
        make_quick_folder(folder);
        expect_ok(world, 0, stay_flat, folder);
        remove_folder(folder);
    }
}
