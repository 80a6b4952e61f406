/* SPDX-License-Identifier: MIT */
/* A training in legs whose ranks have disks of their own: each leg finds the files of the one before dealt out in
 * another way, so that most ranks do not see what they need. The bits are those of one process that never stopped. */
#include "checkpoint/hosts.h"
#include "group/group_test.h"
#include "zero/legs.h"

enum { WORLDS = SANITIZED ? 3 : 5 };

typedef struct trip {
    char folder[FOLDER_BYTES];
    int variant;
    int world; /* of the leg before */
} trip;

static cz_status open_checkpoint(const luggage *l, cz_group *group, cz_zero *zero, const char *path,
                                 cz_checkpoint **checkpoint)
{
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    options.zero = zero;
    return cz_checkpoint_create(checkpoint, group, path, &options);
}

static cz_status check_result(const luggage *l, cz_group *group, const cz_load_result *result)
{
    const int rank = cz_group_rank(group);
    const bool own = rank < result->world_size;
    if (result->step != l->step)
        return cz_fail(CZ_ERR_STATE, "step %d was saved, %d is loaded", l->step, (int)result->step);
    if (!small_dict_is(result->common, l->step))
        return cz_fail(CZ_ERR_STATE, "rank %d: the common dictionary", rank);
    if (own != (result->own != NULL) ||
        (own && !small_dict_is(result->own, small_own(l->step, rank))))
        return cz_fail(CZ_ERR_STATE, "rank %d: its own dictionary", rank);
    return CZ_OK;
}

static cz_status load_from(const luggage *l, cz_group *group, cz_zero *zero, const char *path)
{
    cz_checkpoint *checkpoint = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(open_checkpoint(l, group, zero, path, &checkpoint));
    cz_status status = cz_checkpoint_load(checkpoint, NULL, &result);
    if (status == CZ_OK)
        status = check_result(l, group, &result);
    small_result_clear(&result);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status load(const luggage *l, cz_group *group, cz_zero *zero)
{
    trip *t = l->way->context;
    char path[SMALL_PATH];
    dealing d = {.hosts = cz_group_size(group), .variant = t->variant};
    snprintf(d.from, sizeof d.from, "%s/saved", t->folder);
    snprintf(d.to, sizeof d.to, "%s", t->folder);
    const bool fine = cz_group_rank(group) != 0 || deal_out(&d);
    CZ_TRY(cz_barrier(group, NULL));
    host_path(path, t->folder, cz_group_rank(group));
    cz_status status = load_from(l, group, zero, path);
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        remove_hosts(&d);
    return fine ? status : cz_fail(CZ_ERR_IO, "files cannot be dealt out");
}

static cz_status save(const luggage *l, cz_group *group, cz_zero *zero)
{
    const trip *t = l->way->context;
    cz_checkpoint *checkpoint = NULL;
    cz_state_dict *common = NULL, *own = NULL;
    char path[SMALL_PATH];
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = l->step + l->leg->steps;
    snprintf(path, sizeof path, "%s/saved", t->folder);
    CZ_TRY(small_dict(&common, (int)options.step));
    CZ_TRY(small_dict(&own, small_own(options.step, cz_group_rank(group))));
    options.common = common;
    options.own = own;
    cz_status status = open_checkpoint(l, group, zero, path, &checkpoint);
    if (status == CZ_OK)
        status = cz_checkpoint_save(checkpoint, &options);
    cz_checkpoint_destroy(&checkpoint);
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&own);
    return status;
}

static void along(int variant, const cz_rule *rule, const cz_hyper *hypers, cz_dtype dtype,
                  void (*test)(const course *))
{
    trip t = {.variant = variant};
    const travel dealt = {.go_on = load, .leave = save, .brings_values = true, .context = &t};
    make_quick_folder(t.folder);
    with_course(&dealt, rule, hypers, dtype, test);
    remove_folder(t.folder);
}

/* From every world size to every other, in time. */
static void pairs(const course *c)
{
    static const int worlds[] = {1, 2, 3, 5, 7}, orders[] = {1, 2, 4, 5, 7, 8};
    for (int from = 0; from < WORLDS; from++)
        for (int to = 0; to < WORLDS; to++) {
            const leg legs[] = {
                {worlds[from], 3 + (from + to) % 7, (cz_partition)((from + to) % 3), orders[from]},
                {worlds[to], STEPS, (cz_partition)((from + 2 * to + 1) % 3), orders[to + 1]}};
            run_course(c, legs, 2);
        }
}

TEST(between_world_sizes)
{
    static const int variants[] = {0, INDEX_ONCE, INDEX_ONCE | COPIES, COPIES | TWICE};
    for (int k = 0; k < 4; k += 1 + SANITIZED)
        along(variants[k], cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32, pairs);
}

TEST(many_legs)
{
    along(INDEX_ONCE | COPIES, cz_rule_adamw(), CZ_HYPERS({"lr", 0.5}), CZ_F64, many_legs);
    if (SLOW)
        return;
    along(0, cz_rule_sgd(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
    along(COPIES, cz_rule_nadam(), CZ_HYPERS({"lr", 0.5}), CZ_F32, many_legs);
}

/* ---- saved to disks of their own, too ---- */

static small_values kept;

/* The rank's disk; a job of fewer ranks gets all of them on two hosts. */
static void own_disk(char path[SMALL_PATH], const trip *t, cz_group *group, int turn)
{
    const int size = cz_group_size(group), hosts = t->variant < size ? t->variant : size;
    host_path(path, t->folder, (cz_group_rank(group) + turn) % hosts);
}

static cz_status save_on_disks(cz_group *group, void *context)
{
    char path[SMALL_PATH];
    own_disk(path, context, group, 0);
    return small_save_four(group, path, &kept);
}

/* Loaded, and saved again, and loaded. */
static cz_status load_from_disks(cz_group *group, void *context)
{
    small s;
    char path[SMALL_PATH];
    own_disk(path, context, group, 1);
    cz_status status = small_open(&s, group, path, 9, 2);
    if (status == CZ_OK)
        status = small_step(&s);
    if (status == CZ_OK)
        status = small_load(&s, NULL, &kept, 4);
    if (status == CZ_OK)
        status = small_save(&s, 5, false);
    if (status == CZ_OK)
        status = small_step(&s);
    if (status == CZ_OK)
        status = small_load(&s, NULL, &kept, 5);
    small_close(&s);
    return status;
}

TEST(disks_of_their_own)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (int from = 0; from < WORLDS; from++)
        for (int to = 0; to < WORLDS; to++) {
            trip t = {.variant = worlds[from] < worlds[to] ? worlds[from] : worlds[to]};
            char why[256];
            make_quick_folder(t.folder);
            assert_ranks_ok(worlds[from], save_on_disks, &t);
            t.variant = worlds[to] > t.variant ? worlds[to] : t.variant; /* new disks are empty */
            if (cz_test_run_ranks(worlds[to], load_from_disks, &t, why) != CZ_OK)
                fail_msg("%d ranks load what %d saved: %s", worlds[to], worlds[from], why);
            remove_folder(t.folder);
        }
}
