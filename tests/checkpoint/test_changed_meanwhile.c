/* SPDX-License-Identifier: MIT */
/* Files that change between the reading that verifies them and the one that takes their elements:
 * the load fails, and says that what is here is undefined; the next load of a file that is well is
 * as good as ever. */
#include <fcntl.h>

#include "checkpoint/saves.h"

static int quick_set_up(void **state)
{
    cz_log_set_sink(small_quiet, NULL);
    make_quick_folder(folder);
    return 0;
}

static const int saved_by[] = {1, 2, 3};
enum { WRITERS = sizeof saved_by / sizeof *saved_by };

/* What a medium, or a cache, gives from a certain reading of the victim on. */
static atomic_int readings, from_reading;

static ssize_t read_and_change(int file, void *data, size_t count, off_t offset)
{
    const ssize_t got = pread(file, data, count, offset);
    if (got > 0 && is_victim(file) && atomic_fetch_add(&readings, 1) >= atomic_load(&from_reading))
        ((char *)data)[got / 2] ^= 1;
    return got;
}

static cz_status save_once(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 1, 2));
    CZ_TRY(small_step(s));
    return save_and_wait(s, 1, false);
}
BODY(save_once)

typedef struct loads {
    int first;  /* reading that is another */
    bool ended; /* no reading was */
} loads;

static cz_status load_changed(small *s, cz_group *group, void *context)
{
    loads *l = context;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(small_open(s, group, folder, 7, 2));
    CZ_TRY(small_step(s));
    CZ_TRY(cz_barrier(group, NULL));
    const cz_status status = cz_checkpoint_load(s->checkpoint, NULL, &result);
    small_result_clear(&result);
    CZ_TRY(cz_barrier(group, NULL));
    if (status == CZ_OK && atomic_load(&readings) > l->first)
        return cz_fail(CZ_ERR_STATE, "reading %d of %d was another, and the load took it", l->first,
                       atomic_load(&readings));
    if (cz_group_rank(group) == 0)
        l->ended = status == CZ_OK;
    return status == CZ_OK ? CZ_OK
                           : small_expect(status,
                                          ONE(CZ_ERR_FORMAT) | ONE(CZ_ERR_IO) |
                                              ONE(CZ_ERR_UNSUPPORTED) | ONE(CZ_ERR_STATE),
                                          NULL, NULL);
}
BODY(load_changed)

static cz_status load_well(small *s, cz_group *group, void *context)
{
    CZ_TRY(small_open(s, group, folder, 9, 2));
    return cz_checkpoint_load(s->checkpoint, NULL, NULL);
}
BODY(load_well)

EACH_TEST(quick_set_up, tear_down)

TEST(every_reading_counts)
{
    for (int w = 0; w < WRITERS; w++) {
        assert_ranks_ok(saved_by[w], save_once_body, NULL);
        for (int ranks = 1; ranks <= 3; ranks++) {
            loads l = {0};
            victim = ".safetensors";
            cz__system_used.read = read_and_change;
            for (l.first = 0; !l.ended; l.first++) {
                atomic_store(&readings, 0);
                atomic_store(&from_reading, l.first);
                assert_ranks_ok(ranks, load_changed_body, &l);
                assert_true(l.first < 200);
            }
            assert_true(l.first > 4);
            victim = NULL;
            cz__system_used = cz__system_own;
            assert_ranks_ok(ranks, load_well_body, NULL);
        }
        remove_folder(folder);
        assert_int_equal(mkdir(folder, 0777), 0);
    }
}

/* ---- larger than a block, read in other parts than it was written ---- */

enum { LARGE = 300007 };

typedef struct large {
    cz_model *model;
    cz_checkpoint *checkpoint;
    float *values;
} large;

static cz_status large_open(large *s, cz_group *group, float first)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    *s = (large){.values = calloc(2 * LARGE, sizeof(float))};
    for (int i = 0; i < LARGE; i++)
        s->values[i] = first * (float)i;
    CZ_TRY(cz_model_create(&s->model));
    CZ_TRY(
        cz_model_add(s->model, "w", s->values, s->values + LARGE, CZ_F32, 1, (int64_t[]){LARGE}));
    options.model = s->model;
    return cz_checkpoint_create(&s->checkpoint, group, folder, &options);
}

static void large_close(large *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_model_destroy(&s->model);
    free(s->values);
}

static cz_status large_save(cz_group *group, void *context)
{
    large s;
    cz_status status = large_open(&s, group, 1);
    THEN(cz_checkpoint_save(s.checkpoint, NULL));
    large_close(&s);
    return status;
}

/* A byte of the file, before a certain reading. */
static atomic_long changed_byte;
static char changed_path[SMALL_PATH + 20], export_path[SMALL_PATH];

static void change_byte(void)
{
    char byte;
    const int other = open(changed_path, O_RDWR);
    (void)!pread(other, &byte, 1, atomic_load(&changed_byte));
    byte ^= 4;
    (void)!pwrite(other, &byte, 1, atomic_load(&changed_byte));
    close(other);
}

static ssize_t read_then_change(int file, void *data, size_t count, off_t offset)
{
    if (is_victim(file) && atomic_fetch_add(&readings, 1) == atomic_load(&from_reading))
        change_byte();
    return pread(file, data, count, offset);
}

static cz_status large_load(cz_group *group, void *context)
{
    large s;
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    cz_status status = large_open(&s, group, 3);
    THEN(cz_checkpoint_load(s.checkpoint, &options, NULL));
    if (status == CZ_OK)
        for (int i = 0; status == CZ_OK && i < LARGE; i++)
            if (s.values[i] != (float)i)
                status = cz_fail(CZ_ERR_STATE, "element %d is %g, and the load said CZ_OK", i,
                                 (double)s.values[i]);
    const bool expected = status == CZ_ERR_FORMAT;
    large_close(&s);
    return expected ? CZ_OK : status;
}

/* At any moment: either it is found, or what is loaded is what was saved. */
TEST(a_byte_of_a_large_tensor_changes_while_it_is_loaded)
{
    static const long bytes[] = {2000, 70000, 600000, 1199000};
    snprintf(changed_path, sizeof changed_path,
             "%s/00000001-step-0/rank-00000-of-00002.safetensors", folder);
    assert_ranks_ok(2, large_save, NULL);
    victim = "rank-00000-of-00002.safetensors";
    cz__system_used.read = read_then_change;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int b = 0; b < 4; b++)
            for (int moment = 0; moment < 20; moment++) {
                atomic_store(&readings, 0);
                atomic_store(&from_reading, moment);
                atomic_store(&changed_byte, bytes[b]);
                assert_ranks_ok(ranks, large_load, NULL);
                if (atomic_load(&readings) > moment)
                    change_byte(); /* back */
            }
    atomic_store(&from_reading, -1);
    assert_ranks_ok(2, large_load, NULL);
}

/* ---- a file or a folder of torch, which has checksums of entries ---- */

static cz_status large_export(cz_group *group, void *context)
{
    large s;
    cz_status status = large_open(&s, group, 1);
    THEN(cz_checkpoint_export(s.checkpoint, export_path, NULL));
    large_close(&s);
    return status;
}

static cz_status large_import(cz_group *group, void *context)
{
    large s;
    bool *taken = context;
    cz_status status = large_open(&s, group, 3);
    THEN(cz_checkpoint_import(s.checkpoint, export_path, NULL, NULL));
    *taken = status == CZ_OK;
    for (int i = 0; status == CZ_OK && i < LARGE; i++)
        if (s.values[i] != (float)i)
            status = cz_fail(CZ_ERR_STATE, "element %d is %g, and the import said CZ_OK", i,
                             (double)s.values[i]);
    const bool expected = status == CZ_ERR_FORMAT;
    large_close(&s);
    return expected ? CZ_OK : status;
}

/* `file`: in what is exported; NULL: that is it. */
static void changes_while_imported(const char *name, const char *file)
{
    static const long bytes[] = {2000, 70000, 600000, 1199000};
    bool taken = false;
    snprintf(export_path, sizeof export_path, "%s/%s", folder, name);
    snprintf(changed_path, sizeof changed_path, "%s%s", export_path, file ? file : "");
    assert_ranks_ok(2, large_export, NULL);
    victim = file ? file + 1 : name;
    for (int ranks = 1; ranks <= 3; ranks++) {
        cz__system_used.read = read_and_change;
        for (int moment = 0; moment < 60 * ranks; moment += ranks) {
            atomic_store(&readings, 0);
            atomic_store(&from_reading, moment);
            assert_ranks_ok(ranks, large_import, &taken);
        }
        cz__system_used.read = read_then_change;
        for (int moment = 0; moment < 60 * ranks; moment += 2 * ranks) {
            atomic_store(&readings, 0);
            atomic_store(&from_reading, moment);
            atomic_store(&changed_byte, bytes[moment % 4]);
            assert_ranks_ok(ranks, large_import, &taken);
            if (atomic_load(&readings) > moment)
                change_byte(); /* back */
        }
    }
    atomic_store(&from_reading, -1);
    assert_ranks_ok(2, large_import, &taken);
    assert_true(taken);
}

TEST(a_file_of_torch_changes_while_it_is_imported)
{
    changes_while_imported("large.pt", NULL);
}

TEST(a_folder_of_torch_changes_while_it_is_imported)
{
    changes_while_imported("large.dcp", "/__0_0.distcp");
}
