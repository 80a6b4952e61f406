/* SPDX-License-Identifier: MIT */
/* An export that fails, on one rank or on all: every rank says so, what was there before is there,
 * and nothing beside. */
#include "checkpoint/exports.h"

#include <errno.h>
#include <stdatomic.h>

#include "io/folder.h"
#include "io/stream.h"

enum { RANKS = 3 };

typedef struct job {
    char folder[FOLDER_BYTES], path[EXPORT_PATH], elsewhere[EXPORT_PATH];
    cz_status status; /* wanted; CZ_OK: any, and it is kept in `got` */
    const char *word, *other;
    uint64_t max_file_bytes;
    /* What rank 1 does otherwise. */
    bool no_path, other_path, other_step, other_model, other_common, later;
    cz_status got[RANKS];
} job;

static const manner evenly = {.partition = CZ_PARTITION_ELEMENTS};

static void begin(job *j, const char *name)
{
    *j = (job){.status = CZ_ERR_IO};
    make_folder(j->folder);
    snprintf(j->path, sizeof j->path, "%s/%s", j->folder, name);
    snprintf(j->elsewhere, sizeof j->elsewhere, "%s/elsewhere", j->folder);
}

static void end(job *j)
{
    cz__system_used = cz__system_own;
    remove_folder(j->folder);
}

static cz_status export_as(trainee *s, const job *j)
{
    const bool odd = cz_group_rank(s->group) == 1;
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    cz_state_dict *common = NULL;
    cz_status status = small_dict(&common, odd && j->other_common ? 5 : 4);
    options.common = common;
    options.step = odd && j->other_step ? 9 : 8;
    options.max_file_bytes = j->max_file_bytes;
    THEN(cz_checkpoint_export(s->checkpoint,
                              odd && j->no_path      ? NULL
                              : odd && j->other_path ? j->elsewhere
                                                     : j->path,
                              &options));
    cz_state_dict_destroy(&common);
    return status;
}

/* An export that works, then `fails`, then another that works: group and checkpoint are usable. */
static cz_status fail_here(cz_group *group, void *context)
{
    job *j = context;
    trainee s;
    cz_status status = trainee_open(&s, group, &evenly, 2);
    THEN(trainee_train(&s));
    THEN(export_as(&s, j));
    j->got[cz_group_rank(group)] = status;
    status = j->status == CZ_OK ? CZ_OK : small_expect(status, ONE(j->status), j->word, j->other);
    THEN(cz_barrier(group, NULL));
    trainee_close(&s);
    return status;
}

static void expect_failure(job *j, cz_status status, const char *word, const char *other)
{
    j->status = status;
    j->word = word;
    j->other = other;
    assert_ranks_ok(RANKS, fail_here, j);
}

static void must_work(job *j)
{
    char why[256];
    j->status = CZ_OK;
    if (cz_test_run_ranks(RANKS, fail_here, j, why) != CZ_OK || j->got[0] != CZ_OK)
        fail_msg("%s", why);
}

/* ---- what stands in the way ---- */

TEST(the_way_is_blocked)
{
    job j;
    begin(&j, "model");
    mkdir(j.path, 0777);
    expect_failure(&j, CZ_ERR_IO, "is a folder", j.path);
    assert_int_equal(count_files(j.path), 0);
    remove_folder(j.path);
    write_whole(j.path, "a file", 6);
    j.max_file_bytes = 500;
    expect_failure(&j, CZ_ERR_IO, "no folder", j.path);
    j.max_file_bytes = 0;
    strcat(j.path, "/below");
    expect_failure(&j, CZ_ERR_IO, "below.czero-unfinished", "rank 0");
    assert_int_equal(count_files(j.folder), 1);
    end(&j);
}

TEST(a_folder_that_is_made_goes_again)
{
    char inside[2 * EXPORT_PATH];
    job j;
    begin(&j, "model");
    j.max_file_bytes = 500;
    must_work(&j);
    const int files = count_files(j.path);
    snprintf(inside, sizeof inside, "%s/model.safetensors.index.json", j.path);
    assert_int_equal(unlink(inside), 0);
    mkdir(inside, 0777);
    expect_failure(&j, CZ_ERR_IO, "is a folder", "index.json");
    assert_int_equal(count_files(j.path), files);
    snprintf(inside, sizeof inside, "%s/model-00002-of-%05d.safetensors", j.path, files - 1);
    unlink(inside);
    mkdir(inside, 0777);
    expect_failure(&j, CZ_ERR_IO, "is a folder", "model-00002");
    assert_int_equal(count_files(j.path), files);
    remove_folder(j.path);
    j.other_path = true;
    expect_failure(&j, CZ_ERR_IO, "share", "rank 1");
    assert_int_equal(count_files(j.folder), 0);
    end(&j);
}

/* ---- ranks that differ ---- */

TEST(ranks_that_differ)
{
    job j;
    begin(&j, "model");
    j.no_path = true;
    expect_failure(&j, CZ_ERR_ARGUMENT, "path is NULL", "rank 1");
    j.no_path = false;
    j.other_step = true;
    expect_failure(&j, CZ_ERR_MISMATCH, "step", "rank 1");
    j.other_step = false;
    j.other_common = true;
    expect_failure(&j, CZ_ERR_MISMATCH, "common dictionary", "rank 1");
    assert_int_equal(count_files(j.folder), 0);
    end(&j);
}

/* Models may grow after the checkpoint was made. */
static cz_status other_model(cz_group *group, void *context)
{
    const job *j = context;
    const int rank = cz_group_rank(group);
    const int64_t shape = 4;
    float values[2][4] = {{0}};
    cz_model *model = NULL;
    cz_checkpoint *checkpoint = NULL;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_status status = cz_model_create(&model);
    THEN(cz_model_add(model, "w", values[0], NULL, CZ_F32, 1, &shape));
    options.model = model;
    THEN(cz_checkpoint_create(&checkpoint, group, "not used", &options));
    THEN(cz_model_add(model, rank == 1 ? "b" : "c", values[1], NULL, CZ_F32, 1, &shape));
    THEN(small_expect(cz_checkpoint_export(checkpoint, j->path, NULL), ONE(CZ_ERR_MISMATCH),
                      "parameter 1 is 'b' on rank 1", "'c' on rank 0"));
    cz_checkpoint_destroy(&checkpoint);
    cz_model_destroy(&model);
    return status;
}

static cz_status taken_names(cz_group *group, void *context)
{
    static const char *const names[] = {"optimizer/exp_avg/w", "common/w", "\xff", "__metadata__"};
    const job *j = context;
    const int64_t shape = 4;
    float values[4] = {0};
    cz_status status = CZ_OK;
    for (int i = 0; status == CZ_OK && i < 4; i++) {
        cz_model *model = NULL;
        cz_checkpoint *checkpoint = NULL;
        cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
        cz_export_options alone = CZ_EXPORT_OPTIONS_INIT;
        alone.parameters_only = 1;
        CZ_TRY(cz_model_create(&model));
        CZ_TRY(cz_model_add(model, names[i], values, NULL, CZ_F32, 1, &shape));
        options.model = model;
        CZ_TRY(cz_checkpoint_create(&checkpoint, group, "not used", &options));
        status = small_expect(cz_checkpoint_export(checkpoint, j->path, NULL), ONE(CZ_ERR_ARGUMENT),
                              i == 2 ? "'?'" : names[i], NULL);
        const cz_status only = cz_checkpoint_export(checkpoint, j->path, &alone);
        if (status == CZ_OK && (only == CZ_OK) != (i < 2))
            status = cz_fail(CZ_ERR_STATE, "'%s' alone: %s", names[i], cz_status_name(only));
        cz_checkpoint_destroy(&checkpoint);
        cz_model_destroy(&model);
    }
    return status;
}

TEST(models_that_cannot_be)
{
    job j;
    begin(&j, "model");
    assert_ranks_ok(2, other_model, &j);
    assert_int_equal(count_files(j.folder), 0);
    assert_ranks_ok(2, taken_names, &j);
    end(&j);
}

/* ---- a folder that is not shared ---- */

TEST(a_rank_that_sees_another_folder)
{
    char beside[EXPORT_PATH + 24];
    job j;
    begin(&j, "model");
    j.other_path = true;
    expect_failure(&j, CZ_ERR_IO, "rank 1", "elsewhere.czero-unfinished");
    expect_failure(&j, CZ_ERR_IO, "rank 1", "the folder must be one that all ranks share");
    assert_int_equal(count_files(j.folder), 0);
    /* it has the file of a job before it */
    snprintf(beside, sizeof beside, "%s" CZ__UNFINISHED, j.elsewhere);
    char *old = calloc(1, 100000);
    write_whole(beside, old, 100000);
    expect_failure(&j, CZ_ERR_IO, "not the file that rank 0 has made",
                   "elsewhere.czero-unfinished");
    assert_int_equal(count_files(j.folder), 1);
    free(old);
    end(&j);
}

/* By another name it may be the same. */
TEST(a_rank_that_has_another_name_for_it)
{
    job j;
    begin(&j, "model");
    j.other_path = true;
    snprintf(j.elsewhere, sizeof j.elsewhere, "%s/./model", j.folder);
    must_work(&j);
    assert_int_equal(count_files(j.folder), 1);
    end(&j);
}

/* ---- the system fails ---- */

static atomic_int calls;
static int fail_at, fail_with;

static bool fails(void)
{
    errno = fail_with;
    return atomic_fetch_add(&calls, 1) + 1 == fail_at;
}

static ssize_t write_or_fail(int file, const void *data, size_t count, off_t offset)
{
    return fails() ? fail_with ? -1 : 0 : pwrite(file, data, count, offset);
}

static ssize_t read_or_fail(int file, void *data, size_t count, off_t offset)
{
    return fails() ? -1 : pread(file, data, count, offset);
}

static int reserve_or_fail(int file, int mode, off_t offset, off_t count)
{
    return fails() ? -1 : fallocate(file, mode, offset, count);
}

static int synchronise_or_fail(int file)
{
    return fails() ? -1 : fsync(file);
}

/* A system of which one kind of call fails. */
typedef void (*breaker)(void);
static void break_write(void)
{
    cz__system_used.write = write_or_fail;
}
static void break_read(void)
{
    cz__system_used.read = read_or_fail;
}
static void break_reserve(void)
{
    cz__system_used.reserve = reserve_or_fail;
}
static void break_synchronise(void)
{
    cz__system_used.synchronise = synchronise_or_fail;
}

/* Each call in turn fails; until an export makes no more of them. In a file that was there before,
 * "before" is. */
static void fail_each(job *j, breaker breaks, int error, int most)
{
    size_t count;
    int failed = 0;
    for (fail_at = 1; fail_at <= most; fail_at++) {
        write_whole(j->path, "before", 6);
        breaks();
        fail_with = error;
        atomic_store(&calls, 0);
        char why[256];
        j->status = CZ_OK;
        assert_ok(cz_test_run_ranks(RANKS, fail_here, j, why));
        const bool reached = atomic_load(&calls) >= fail_at;
        cz__system_used = cz__system_own;
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(j->got[r], reached ? CZ_ERR_IO : CZ_OK);
        char *bytes = read_whole(j->path, &count);
        /* The last call, of the folder, comes after the new name, which is taken back. */
        if (reached)
            assert_memory_equal(bytes, "before", 7);
        free(bytes);
        assert_int_equal(count_files(j->folder), 1);
        failed += reached;
        if (!reached)
            break;
    }
    assert_true(failed > 0 && failed < most);
}

TEST(every_call_to_the_system_fails_in_turn)
{
    job j;
    begin(&j, "model");
    fail_each(&j, break_write, ENOSPC, 1000);
    fail_each(&j, break_write, 0, 1000);
    fail_each(&j, break_read, EIO, 1000);
    fail_each(&j, break_reserve, ENOSPC, 1000);
    fail_each(&j, break_synchronise, EIO, 1000); /* the token, three ranks, the folder */
    end(&j);
}

static int refuse_reserve(int file, int mode, off_t offset, off_t count)
{
    errno = EOPNOTSUPP;
    return -1;
}

static ssize_t write_little(int file, const void *data, size_t count, off_t offset)
{
    errno = EINTR;
    return offset != 0 && atomic_fetch_add(&calls, 1) % 2
               ? -1
               : pwrite(file, data, count > 100 && offset != 0 ? 100 : count, offset);
}

/* Where nothing can be reserved, and writes do less than they are asked for, it is the same
 * file. */
TEST(a_system_that_does_less)
{
    char wanted[EXPORT_PATH];
    job j;
    begin(&j, "wanted");
    must_work(&j);
    memcpy(wanted, j.path, sizeof wanted);
    snprintf(j.path, sizeof j.path, "%s/got", j.folder);
    cz__system_used.reserve = refuse_reserve;
    cz__system_used.write = write_little;
    must_work(&j);
    assert_true(same_file(wanted, j.path));
    end(&j);
}

/* ---- no memory ---- */

TEST(every_allocation_fails_in_turn)
{
    char why[256];
    job j;
    begin(&j, "model");
    j.max_file_bytes = 900;
    for (int64_t n = 1;; n += n < 400 ? 1 : 3) {
        j.status = CZ_OK;
        cz_test_fail_allocation(n);
        const cz_status status = cz_test_run_ranks(RANKS, fail_here, &j, why);
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            break;
        }
        for (int r = 0; r < RANKS; r++)
            assert_true(j.got[r] != CZ_ERR_IO && j.got[r] != CZ_ERR_FORMAT);
        if (j.got[0] != CZ_OK) /* the index tells whether it was published */
            assert_int_equal(count_files(j.path), 0);
        remove_folder(j.path);
    }
    end(&j);
}
