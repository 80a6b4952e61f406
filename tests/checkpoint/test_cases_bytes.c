/* SPDX-License-Identifier: MIT */
/* What checkpoints send, write, read and hold. */
#include "checkpoint/saves.h"
#include "zero/large.h"

enum { SMALL = 1 << 16, LARGE = SLOW ? SMALL : 1 << 19, ROOM = 1 << 16 /* headers */ };
typedef struct subject {
    cz_model *model;
    cz_zero *zero;
    cz_checkpoint *checkpoint;
    float *values; /* owned */
} subject;

static void clear(subject *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_zero_destroy(&s->zero);
    cz_model_destroy(&s->model);
    free(s->values);
}

static cz_status open_subject(subject *s, cz_group *group)
{
    const cz_zero_options options = {.size = sizeof options, .gradients = CZ_GRADIENTS_REDUCED};
    cz_checkpoint_options saving = CZ_CHECKPOINT_OPTIONS_INIT;
    CZ_TRY(large_model(&s->model, &s->values));
    CZ_TRY(cz_zero_create(&s->zero, group, s->model, cz_rule_adam(), NULL, &options));
    saving.zero = s->zero;
    CZ_TRY(cz_checkpoint_create(&s->checkpoint, group, folder, &saving));
    return cz_zero_step(s->zero, NULL, NULL);
}

/* Values and two moments, of all ranks together. */
static long long all_bytes(void)
{
    return 3 * 8 * scale * (long long)sizeof(float);
}

#define BODY_OF(name)                                                                              \
    static cz_status name##_body(cz_group *group, void *context)                                   \
    {                                                                                              \
        subject s = {0};                                                                           \
        cz_status status = open_subject(&s, group);                                                \
        if (status == CZ_OK)                                                                       \
            status = name(&s, group, context);                                                     \
        clear(&s);                                                                                 \
        return status;                                                                             \
    }

/* ---- what is sent ---- */

typedef cz_status (*action)(subject *s);

static cz_status save_now(subject *s)
{
    return cz_checkpoint_save(s->checkpoint, NULL);
}

static cz_status save_later(subject *s)
{
    CZ_TRY(cz_checkpoint_save_async(s->checkpoint, NULL));
    return cz_checkpoint_wait(s->checkpoint);
}

static cz_status export_one(subject *s)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return cz_checkpoint_export(s->checkpoint, path, NULL);
}

static cz_status export_many(subject *s)
{
    char path[SMALL_PATH];
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/model", folder);
    options.max_file_bytes = (uint64_t)all_bytes() / 7;
    return cz_checkpoint_export(s->checkpoint, path, &options);
}

static cz_status load_newest(subject *s)
{
    return cz_checkpoint_load(s->checkpoint, NULL, NULL);
}

static cz_status import_one(subject *s)
{
    char path[SMALL_PATH];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return cz_checkpoint_import(s->checkpoint, path, NULL, NULL);
}

/* By all ranks together. */
static cz_status measure_sent(subject *s, cz_group *group, action act, int64_t *sent)
{
    cz_group_info before = CZ_GROUP_INFO_INIT, after = before;
    CZ_TRY(cz_group_get_info(group, &before));
    CZ_TRY(act(s));
    CZ_TRY(cz_group_get_info(group, &after));
    *sent = (int64_t)(after.sent_bytes - before.sent_bytes);
    return cz_all_reduce(group, sent, 1, CZ_I64, CZ_SUM, NULL);
}

/* ---- each rank writes its own, and ranks send each other names at most ---- */

static cz_status check_parts(cz_group *group)
{
    const int ranks = cz_group_size(group);
    for (int r = 0; r < ranks; r++) {
        char path[2 * SMALL_PATH];
        struct stat about;
        snprintf(path, sizeof path, "%s/00000001-step-0/rank-%05d-of-%05d.safetensors", folder, r,
                 ranks);
        CHECK(stat(path, &about) == 0, "%s", path);
        CHECK(about.st_size <= all_bytes() / ranks + ROOM, "rank %d wrote %lld bytes", r,
              (long long)about.st_size);
    }
    return CZ_OK;
}

static cz_status save_own(subject *s, cz_group *group, void *context)
{
    int64_t sent;
    CZ_TRY(measure_sent(s, group, save_now, &sent));
    CHECK(sent < 1 << 20, "%lld bytes were sent", (long long)sent);
    CZ_TRY(check_parts(group));
    CZ_TRY(measure_sent(s, group, save_later, &sent));
    CHECK(sent < 1 << 20, "%lld bytes were sent", (long long)sent);
    return CZ_OK;
}
BODY_OF(save_own)

EACH_TEST(set_up, tear_down)

TEST(a_save_sends_names_only)
{
    static const int worlds[] = {8, 5, 3, 1};
    set_scale(LARGE);
    for (int k = 0; k < 4; k++) {
        assert_ranks_ok(worlds[k], save_own_body, NULL);
        remove_folder(folder);
        mkdir(folder, 0777);
    }
}

/* ---- nor does one file take more ---- */

static cz_status export_own(subject *s, cz_group *group, void *context)
{
    int64_t sent;
    CZ_TRY(measure_sent(s, group, export_one, &sent));
    CHECK(sent < 1 << 20, "%lld bytes were sent", (long long)sent);
    CZ_TRY(measure_sent(s, group, export_many, &sent));
    CHECK(sent < 1 << 20, "%lld bytes were sent", (long long)sent);
    return CZ_OK;
}
BODY_OF(export_own)

TEST(an_export_takes_one_copy)
{
    set_scale(LARGE);
    assert_ranks_ok(8, export_own_body, NULL);
    set_scale(SMALL);
    assert_ranks_ok(3, export_own_body, NULL);
}

/* ---- and what memory it takes beside the training's ---- */

static cz_status measure_memory(subject *s, cz_group *group, action act, long long most)
{
    CZ_TRY(act(s)); /* what is kept from one call to the next, is there */
    CZ_TRY(cz_barrier(group, NULL));
    const size_t before = cz_memory_bytes(CZ_MEMORY_STAGING);
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        cz_memory_reset_peak();
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(act(s));
    CZ_TRY(cz_barrier(group, NULL));
    const size_t peak = cz_memory_peak_bytes(CZ_MEMORY_STAGING);
    CZ_TRY(cz_barrier(group, NULL));
    CHECK((long long)(peak - before) <= most, "%zu bytes beside %zu, wanted %lld", peak - before,
          before, most);
    return CZ_OK;
}

static cz_status hold_little(subject *s, cz_group *group, void *context)
{
    const long long ranks = cz_group_size(group), blocks = ranks * (8 << 20), rest = ranks * ROOM;
    CZ_TRY(measure_memory(s, group, export_one, blocks + rest));
    CZ_TRY(measure_memory(s, group, export_many, blocks + rest));
    CZ_TRY(save_now(s));
    CZ_TRY(measure_memory(s, group, load_newest, blocks + rest));
    return measure_memory(s, group, import_one, blocks + rest);
}
BODY_OF(hold_little)

TEST(saves_and_loads_are_streamed)
{
    set_scale(2 * LARGE);
    assert_ranks_ok(4, hold_little_body, NULL);
}

/* ---- nobody reads what is others' ---- */

static _Thread_local long long read_here, read_of_others; /* the rank's thread reads */
static _Thread_local char own_part[64];

static ssize_t count_read(int file, void *data, size_t count, off_t offset)
{
    char link[64], path[2 * SMALL_PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    read_here += (long long)count;
    if (strstr(path, "/rank-") && !strstr(path, own_part))
        read_of_others += (long long)count;
    return pread(file, data, count, offset);
}

/* Each byte is read to be verified, by one rank, whole parts at a time, and to be used, by the rank
 * that owns it here. */
static cz_status read_share(subject *s, cz_group *group, void *context)
{
    const int ranks = cz_group_size(group), saved = *(const int *)context;
    const long long share = all_bytes() / ranks, part = all_bytes() / saved;
    snprintf(own_part, sizeof own_part, "/rank-%05d-of-%05d.", cz_group_rank(group), saved);
    read_here = read_of_others = 0;
    CZ_TRY(cz_checkpoint_load(s->checkpoint, NULL, NULL));
    const long long edges = 16 * (64 << 10); /* what is used is compared in whole blocks */
    const long long most = share + part * ((saved + ranks - 1) / ranks) + ROOM + edges;
    CHECK(read_here <= most, "%lld bytes were read, the share is %lld", read_here, share);
    if (ranks == saved)
        CHECK(read_of_others == 0, "%lld bytes of others' parts", read_of_others);
    double all = (double)read_here;
    CZ_TRY(cz_all_reduce(group, &all, 1, CZ_F64, CZ_SUM, NULL));
    CHECK(all >= 2 * (double)all_bytes(), "%.0f bytes were read", all);
    CHECK(all <= 2 * (double)all_bytes() + ranks * (double)(ROOM + edges), "%.0f bytes were read",
          all);
    return CZ_OK;
}
BODY_OF(read_share)

static cz_status save_all(subject *s, cz_group *group, void *context)
{
    return save_now(s);
}
BODY_OF(save_all)

TEST(each_rank_reads_its_share_only)
{
    static const int worlds[] = {8, 6, 5, 2, 1};
    int saved = 8;
    set_scale(LARGE);
    assert_ranks_ok(8, save_all_body, NULL);
    cz__system_used.read = count_read;
    for (int k = 0; k < 5; k++)
        assert_ranks_ok(worlds[k], read_share_body, &saved);
}

int main(void)
{
    gradient = calloc(8 * 2 * LARGE, sizeof *gradient);
    if (!gradient)
        return 1;
    const int failures = cz_test_run(NULL, NULL);
    free(gradient);
    return failures;
}
