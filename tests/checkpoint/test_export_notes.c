/* SPDX-License-Identifier: MIT */
/* An export that cannot remove what it has replaced is an export, and says what stays. */
#include "checkpoint/saves.h"

static cz_status export_twice(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH], old[SMALL_PATH + 64];
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.max_file_bytes = 100; /* many files, and then one */
    CZ_TRY(small_open(s, group, folder, 1, 2));
    snprintf(path, sizeof path, "%s/hf", folder);
    snprintf(old, sizeof old, "%s/taken", path);
    CZ_TRY(cz_checkpoint_export(s->checkpoint, path, &options));
    CZ_TRY(want(strcmp(cz_checkpoint_notes(s->checkpoint), "") == 0, "nothing to say"));
    CZ_TRY(cz_barrier(group, NULL));
    struct dirent *entry;
    DIR *list = opendir(path);
    while (list && cz_group_rank(group) == 0 && (entry = readdir(list))) {
        if (strncmp(entry->d_name, "model-00002-of-", 15) != 0)
            continue;
        snprintf(old, sizeof old, "%s/%.60s", path, entry->d_name);
        if (unlink(old) != 0 || mkdir(old, 0777) != 0)
            return cz_fail(CZ_ERR_IO, "%s", old);
    }
    if (list)
        closedir(list);
    options.max_file_bytes = 1 << 20;
    CZ_TRY(cz_checkpoint_export(s->checkpoint, path, &options));
    const bool says = strstr(cz_checkpoint_notes(s->checkpoint), " stays: ") != NULL;
    CZ_TRY(want(says == (cz_group_rank(group) == 0), "a note of rank 0"));
    CZ_TRY(cz_checkpoint_import(s->checkpoint, path, NULL, NULL));
    CZ_TRY(want(!strstr(cz_checkpoint_notes(s->checkpoint), " stays: "), "no old notes"));
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        remove_folder(path);
    return cz_barrier(group, NULL);
}
BODY(export_twice)

EACH_TEST(set_up, tear_down)

TEST(an_export_says_what_it_could_not_remove)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        assert_ranks_ok(ranks, export_twice_body, NULL);
}
