/* SPDX-License-Identifier: MIT */
/* Exports in a folder to which others may write: what they put in place of a file that is being
 * written is not written to, and not published. */
#include <fcntl.h>

#include "checkpoint/saves.h"

static const char *const forms[] = {"model.safetensors", "model.pt", "folder"};
enum { FORMS = sizeof forms / sizeof *forms };

enum { SYMBOLIC, HARD, MOVED, KINDS };

typedef struct trial {
    int form, kind;
} trial;

static atomic_bool done;
static const trial *now;
static char victim_path[SMALL_PATH];

/* The file that is called so until it is complete. */
static void name_unfinished(char path[2 * SMALL_PATH])
{
    static const char *const names[] = {"model.safetensors", "model.pt.elements",
                                        "folder/model-00001-of-00001.safetensors"};
    snprintf(path, 2 * SMALL_PATH, "%s/%s.czero-unfinished", folder, names[now->form]);
}

static void exchange(void)
{
    char path[2 * SMALL_PATH];
    name_unfinished(path);
    if (unlink(path) != 0)
        return;
    if (now->kind == SYMBOLIC)
        (void)!symlink(victim_path, path);
    else if (now->kind == HARD)
        (void)!link(victim_path, path);
    else
        (void)!rename(victim_path, path);
}

/* At the first thing that is written, which tells ranks that it is this file. */
static ssize_t write_and_exchange(int file, const void *data, size_t count, off_t offset)
{
    const ssize_t written = pwrite(file, data, count, offset);
    if (is_victim(file) && !atomic_exchange(&done, true))
        exchange();
    return written;
}

static cz_status export_while_exchanged(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH];
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.max_file_bytes = now->form == 2 ? 1 << 20 : 0;
    CZ_TRY(small_open(s, group, folder, 1, 2));
    snprintf(path, sizeof path, "%s/%s", folder, forms[now->form]);
    return small_expect(cz_checkpoint_export(s->checkpoint, path, &options), ONE(CZ_ERR_IO),
                        "another program", "czero-unfinished");
}
BODY(export_while_exchanged)

static const char secret[] = "of somebody else, and longer than a token";

/* Under its name, or, where it was moved, the one that it was moved to. */
static void assert_victim(void)
{
    char path[2 * SMALL_PATH], text[sizeof secret] = "";
    struct stat about;
    name_unfinished(path);
    FILE *file = fopen(victim_path, "r");
    if (!file && now->kind == MOVED)
        file = fopen(path, "r");
    if (!file && now->kind == MOVED)
        return; /* who was let into the folder has moved it, and it was not written to */
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &about), 0);
    assert_int_equal(about.st_size, sizeof secret - 1);
    assert_int_equal(fread(text, 1, sizeof secret - 1, file), sizeof secret - 1);
    assert_string_equal(text, secret);
    fclose(file);
}

EACH_TEST(set_up, tear_down)

TEST(what_is_put_in_the_place_of_a_file_is_not_written_to)
{
    snprintf(victim_path, sizeof victim_path, "%s/victim", folder);
    victim = "czero-unfinished";
    for (int form = 0; form < FORMS; form++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int ranks = 1; ranks <= 3; ranks++) {
                const trial t = {form, kind};
                now = &t;
                FILE *file = fopen(victim_path, "w");
                fputs(secret, file);
                fclose(file);
                atomic_store(&done, false);
                cz__system_used.write = write_and_exchange;
                assert_ranks_ok(ranks, export_while_exchanged_body, NULL);
                cz__system_used = cz__system_own;
                assert_true(atomic_load(&done));
                assert_victim();
                assert_false(exists(folder, form == 2 ? "folder/model.safetensors.index.json"
                                                      : forms[form]));
                remove_folder(folder);
                assert_int_equal(mkdir(folder, 0777), 0);
            }
}
