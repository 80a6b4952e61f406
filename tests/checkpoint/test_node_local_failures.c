/* SPDX-License-Identifier: MIT */
/* Ranks with disks of their own, and what goes wrong there: files that nobody has, damaged ones,
 * others under the same name, reads and allocations that fail. All ranks get the same error, and
 * nothing has changed. */
#include "checkpoint/hosts.h"
#include "checkpoint/saves.h"
#include "checkpoint/damaged_files.h"

#include "group/group_test.h"

enum { SAVERS = 3, LOADERS = 4, STRIDE = 7 };

static int set_up_quick(void **state)
{
    cz_log_set_sink(small_quiet, NULL);
    make_quick_folder(folder);
    return 0;
}

/* Two generations, of steps 1 and 2, in "saved"; what was saved. */
static small_values first, second;

static cz_status save_two(small *s, cz_group *group, void *context)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, (const char *)context);
    CZ_TRY(small_open(s, group, path, 1, 2));
    CZ_TRY(small_step(s));
    if (cz_group_rank(group) == 0)
        first = s->values;
    CZ_TRY(small_save(s, 1, false));
    CZ_TRY(small_step(s));
    if (cz_group_rank(group) == 0)
        second = s->values;
    return small_save(s, 2, false);
}
BODY(save_two)

static dealing hosts_of(int variant)
{
    dealing d = {.hosts = LOADERS, .variant = variant};
    snprintf(d.from, sizeof d.from, "%s/saved", folder);
    snprintf(d.to, sizeof d.to, "%s", folder);
    return d;
}

/* Each rank with its own disk, and something in memory. */
static cz_status open_on_disk(small *s, cz_group *group)
{
    char path[SMALL_PATH];
    host_path(path, folder, cz_group_rank(group));
    CZ_TRY(small_open(s, group, path, 9, 2));
    CZ_TRY(small_step(s));
    return small_remember(s);
}

/* A file of the newest generation on each disk that has it. */
static int each_copy(const char *name, bool (*change)(const char *path, void *context),
                     void *context)
{
    int count = 0;
    for (int host = 0; host < LOADERS; host++) {
        char disk[SMALL_PATH], path[2 * SMALL_PATH];
        host_path(disk, folder, host);
        snprintf(path, sizeof path, "%s/00000002-step-2/%s", disk, name);
        count += access(path, F_OK) == 0 && change(path, context);
    }
    return count;
}

static bool is_removed(const char *path, void *context)
{
    return unlink(path) == 0;
}

/* ---- what is not as it should be ---- */

typedef struct damage {
    const char *name;
    bool (*change)(const char *path, void *context);
    void *context;
    cz_status status;
    const char *sentence, *other;
    int variant;
} damage;

static cz_status load_damaged(small *s, cz_group *group, void *context)
{
    const damage *w = context;
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    CZ_TRY(open_on_disk(s, group));
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), ONE(w->status), w->sentence,
                        w->other));
    CZ_TRY(small_unchanged(s));
    options.fall_back = 1;
    CZ_TRY(small_load(s, &options, &first, 1));
    return want(strstr(cz_checkpoint_notes(s->checkpoint), w->sentence), w->sentence);
}
BODY(load_damaged)

static void run_damage(const damage *w)
{
    const dealing d = hosts_of(w->variant);
    assert_true(deal_out(&d));
    assert_true(each_copy(w->name, w->change, w->context) > 0);
    assert_ranks_ok(LOADERS, load_damaged_body, (void *)w);
    remove_hosts(&d);
}

static bool has_another_byte(const char *path, void *context)
{
    kept_file p = {0};
    snprintf(p.path, sizeof p.path, "%s", path);
    if (get_bytes(path, &p.bytes, &p.count) != CZ_OK)
        return false;
    const size_t at = p.count - 1 - *(const size_t *)context % p.count;
    const bool done = set_byte(path, at, (char)(p.bytes[at] ^ 16)) == CZ_OK;
    free(p.bytes);
    return done;
}

EACH_TEST(set_up_quick, tear_down)

TEST(damage_is_found_on_whichever_disk_it_is)
{
    size_t last = 0, inside = 300;
    const damage damages[] = {
        {"rank-00001-of-00003.safetensors", has_another_byte, &last, CZ_ERR_FORMAT, "rank-00001-of",
         "tensor 'own/", COPIES},
        {"rank-00002-of-00003.safetensors", has_another_byte, &inside, CZ_ERR_FORMAT,
         "rank-00002-of", "host", COPIES | INDEX_ONCE},
        {"rank-00000-of-00003.json", has_another_byte, &inside, CZ_ERR_FORMAT, "rank-00000-of",
         "host", COPIES | TWICE},
        {"index.json", has_another_byte, &inside, CZ_ERR_FORMAT, "index.json", "host", COPIES},
        {"common.safetensors", has_another_byte, &last, CZ_ERR_FORMAT, "common.safetensors",
         "tensor 'common/", COPIES | INDEX_ONCE},
    };
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"saved"});
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        run_damage(&damages[i]);
}

TEST(files_that_nobody_has)
{
    const damage damages[] = {
        {"rank-00001-of-00003.safetensors", is_removed, NULL, CZ_ERR_IO, "rank-00001-of", "host",
         0},
        {"common.safetensors", is_removed, NULL, CZ_ERR_IO, "common.safetensors", NULL, INDEX_ONCE},
    };
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"saved"});
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        run_damage(&damages[i]);
}

/* A generation whose marks are not all to be found was never complete. */
static cz_status load_older(small *s, cz_group *group, void *context)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    CZ_TRY(open_on_disk(s, group));
    options.step = 2;
    CZ_TRY(small_expect(cz_checkpoint_load(s->checkpoint, &options, NULL), ONE(CZ_ERR_STATE),
                        "the part of rank 1 of 3 is missing", NULL));
    CZ_TRY(small_unchanged(s));
    return small_load(s, NULL, &first, 1);
}
BODY(load_older)

TEST(a_part_that_nobody_has)
{
    const dealing d = hosts_of(TWICE);
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"saved"});
    assert_true(deal_out(&d));
    assert_int_equal(each_copy("rank-00001-of-00003.json", is_removed, NULL), 2);
    assert_ranks_ok(LOADERS, load_older_body, NULL);
}

/* ---- files of another save under the same name ---- */

/* The lowest host that has it gets it from the other save. */
static bool is_another(const char *path, void *context)
{
    char other[2 * SMALL_PATH];
    int *left = context;
    if (*left == 0)
        return false;
    --*left;
    snprintf(other, sizeof other, "%s/other/%s", folder, strstr(path, "00000002-step-2"));
    (void)unlink(path);
    return copy_file(other, path);
}

TEST(files_of_another_save)
{
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"other"});
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"saved"});
    for (int variant = 0; variant < VARIANTS; variant += SLOW ? 3 : 1) {
        int one = 1, all = LOADERS;
        if (!(variant & INDEX_ONCE))
            run_damage(&(damage){"index.json", is_another, &one, CZ_ERR_FORMAT,
                                 "indices of different saves", NULL, variant});
        run_damage(&(damage){"rank-00001-of-00003.json", is_another, &all, CZ_ERR_FORMAT,
                             "it belongs to another save", "rank-00001-of", variant});
    }
}

/* ---- reads that fail ---- */

static atomic_int reads_left; /* of files with the victim's name */

static ssize_t read_until_failure(int file, void *data, size_t count, off_t offset)
{
    errno = EIO;
    if (is_victim(file) && atomic_fetch_sub(&reads_left, 1) == 1)
        return -1;
    return pread(file, data, count, offset);
}

static cz_status fail_each_read(small *s, cz_group *group, void *context)
{
    bool failed = true;
    CZ_TRY(open_on_disk(s, group));
    for (int n = 1; failed; n++) {
        CZ_TRY(cz_barrier(group, NULL));
        if (cz_group_rank(group) == 0)
            atomic_store(&reads_left, n);
        CZ_TRY(cz_barrier(group, NULL));
        const cz_status status = cz_checkpoint_load(s->checkpoint, NULL, NULL);
        CZ_TRY(status == CZ_OK ? CZ_OK : small_expect(status, ONE(CZ_ERR_IO), victim, "rank "));
        CZ_TRY(cz_barrier(group, NULL));
        failed = atomic_load(&reads_left) <= 0;
        CZ_TRY(want(failed == (status != CZ_OK), "the failure on all ranks"));
    }
    CZ_TRY(cz_barrier(group, NULL));
    atomic_store(&reads_left, 0); /* they are all well from now on */
    CZ_TRY(cz_barrier(group, NULL));
    return small_load(s, NULL, &second, 2);
}
BODY(fail_each_read)

TEST(reads_that_fail)
{
    const dealing d = hosts_of(INDEX_ONCE);
    static const char *const files[] = {"rank-00001-of-00003.safetensors", "common.safetensors"};
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"saved"});
    assert_true(deal_out(&d));
    for (int k = 0; k < 2; k++) {
        victim = files[k];
        cz__system_used.read = read_until_failure;
        assert_ranks_ok(LOADERS, fail_each_read_body, NULL);
        cz__system_used = cz__system_own;
    }
}

/* ---- allocations that fail ---- */

static pthread_barrier_t together; /* allocates nothing */
static atomic_bool failed;

static cz_status load_short_of_memory(small *s, int64_t n)
{
    char sentence[200];
    const bool leads = cz_group_rank(s->group) == 0;
    CZ_TRY(small_step(s));
    CZ_TRY(small_remember(s));
    pthread_barrier_wait(&together);
    if (leads)
        cz_test_fail_allocation(n);
    pthread_barrier_wait(&together);
    const cz_status status = cz_checkpoint_load(s->checkpoint, NULL, NULL);
    snprintf(sentence, sizeof sentence, "%s", status == CZ_OK ? "" : cz_last_error());
    pthread_barrier_wait(&together);
    if (leads)
        atomic_store(&failed, cz_test_allocation_reset());
    pthread_barrier_wait(&together);
    if (status != CZ_OK && (status != CZ_ERR_MEMORY || !atomic_load(&failed)))
        return cz_fail(CZ_ERR_STATE, "allocation %d: %s: %s", (int)n, cz_status_name(status),
                       sentence);
    return status == CZ_OK ? CZ_OK : small_unchanged(s);
}

static cz_status run_out(small *s, cz_group *group, void *context)
{
    CZ_TRY(open_on_disk(s, group));
    cz_status status = CZ_OK;
    atomic_store(&failed, true);
    for (int64_t n = 1 + *(const int *)context; status == CZ_OK && atomic_load(&failed);
         n += STRIDE) {
        pthread_barrier_wait(&together); /* all have looked */
        status = load_short_of_memory(s, n);
    }
    return status == CZ_OK ? small_load(s, NULL, &second, 2) : status;
}
BODY(run_out)

TEST(allocations_that_fail)
{
    if (SLOW) /* it is long, and about memory, not about threads */
        return;
    assert_ranks_ok(SAVERS, save_two_body, (char[]){"saved"});
    for (int k = 0; k < 2; k++) {
        const dealing d = hosts_of(k == 0 ? INDEX_ONCE : COPIES | TWICE);
        assert_true(deal_out(&d));
        pthread_barrier_init(&together, NULL, LOADERS);
        assert_ranks_ok(LOADERS, run_out_body, &k);
        pthread_barrier_destroy(&together);
        remove_hosts(&d);
        assert_int_equal(cz_test_allocations_held(), 0);
    }
}
