/* SPDX-License-Identifier: MIT */
/* A training in stages whose ranks have disks of their own: each stage finds the files of the one
 * before dealt out in another way, so that most ranks do not see what they need. The bits are those
 * of one process that never stopped. */
#include "checkpoint/by_checkpoint.h"
#include "checkpoint/hosts.h"
#include "group/group_test.h"
#include "zero/eventful.h"

enum { WORLDS = SANITIZED ? 3 : 5 };

typedef struct disks {
    char folder[FOLDER_BYTES];
    int variant;
} disks;

static cz_status check_result(const stages *s, cz_group *group, const cz_load_result *result)
{
    const int rank = cz_group_rank(group);
    const bool own = rank < result->world_size;
    if (result->step != s->begin)
        return cz_fail(CZ_ERR_STATE, "step %d was saved, %d is loaded", s->begin,
                       (int)result->step);
    if (!small_dict_is(result->common, s->begin))
        return cz_fail(CZ_ERR_STATE, "rank %d: the common dictionary", rank);
    if (own != (result->own != NULL) ||
        (own && !small_dict_is(result->own, small_own(s->begin, rank))))
        return cz_fail(CZ_ERR_STATE, "rank %d: its own dictionary", rank);
    return CZ_OK;
}

static cz_status load_from(const stages *s, cz_group *group, cz_zero *zero, const char *path)
{
    cz_checkpoint *checkpoint = NULL;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    CZ_TRY(open_checkpoint(group, zero, path, &checkpoint));
    cz_status status = cz_checkpoint_load(checkpoint, NULL, &result);
    THEN(check_result(s, group, &result));
    small_result_clear(&result);
    cz_checkpoint_destroy(&checkpoint);
    return status;
}

static cz_status load(const stages *s, cz_group *group, cz_zero *zero)
{
    disks *t = s->by->context;
    char path[SMALL_PATH];
    dealing d = {.hosts = cz_group_size(group), .variant = t->variant};
    snprintf(d.from, sizeof d.from, "%s/saved", t->folder);
    snprintf(d.to, sizeof d.to, "%s", t->folder);
    const bool fine = cz_group_rank(group) != 0 || deal_out(&d);
    CZ_TRY(cz_barrier(group, NULL));
    host_path(path, t->folder, cz_group_rank(group));
    cz_status status = load_from(s, group, zero, path);
    CZ_TRY(cz_barrier(group, NULL));
    if (cz_group_rank(group) == 0)
        remove_hosts(&d);
    return fine ? status : cz_fail(CZ_ERR_IO, "files cannot be dealt out");
}

static cz_status save(const stages *s, cz_group *group, cz_zero *zero)
{
    const disks *t = s->by->context;
    cz_checkpoint *checkpoint = NULL;
    cz_state_dict *common = NULL, *own = NULL;
    char path[SMALL_PATH];
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    options.step = s->end;
    snprintf(path, sizeof path, "%s/saved", t->folder);
    CZ_TRY(small_dict(&common, (int)options.step));
    CZ_TRY(small_dict(&own, small_own(options.step, cz_group_rank(group))));
    options.common = common;
    options.own = own;
    cz_status status = open_checkpoint(group, zero, path, &checkpoint);
    THEN(cz_checkpoint_save(checkpoint, &options));
    cz_checkpoint_destroy(&checkpoint);
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&own);
    return status;
}

static disks dealt;
static const handover by_disks = {load, save, &dealt};
static const int worlds[] = {1, 2, 3, 5, 7};

static void deal(int variant)
{
    dealt.variant = variant;
    make_quick_folder(dealt.folder);
}

TEST(between_world_sizes)
{
    static const int variants[] = {0, INDEX_ONCE, INDEX_ONCE | COPIES, COPIES | TWICE};
    const cz_test_training training =
        eventful(cz_rule_adam(), CZ_HYPERS({"lr", 0.5}, {"amsgrad", 1}), CZ_F32);
    for (int k = 0; k < 4; k += 1 + SANITIZED) {
        deal(variants[k]);
        check_pairs(&by_disks, &training, worlds, WORLDS);
        remove_folder(dealt.folder);
    }
}

TEST(parts_on_disks_of_ranks_go_through_many_stages)
{
    static const int variants[] = {INDEX_ONCE | COPIES, 0, COPIES};
    const cz_rule *rules[] = {cz_rule_adamw(), cz_rule_sgd(), cz_rule_nadam()};
    for (int k = 0; k < (SLOW ? 1 : 3); k++) {
        deal(variants[k]);
        check_many(&by_disks, rules[k], CZ_HYPERS({"lr", 0.5}), k == 0 ? CZ_F64 : CZ_F32);
        remove_folder(dealt.folder);
    }
}

/* ---- saved to disks of their own, too ---- */

static small_values kept;

/* The rank's disk; a job of fewer ranks gets all of them on two hosts. */
static void own_disk(char path[SMALL_PATH], const disks *t, cz_group *group, int turn)
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
    THEN(small_step(&s));
    THEN(small_load(&s, NULL, &kept, 4));
    THEN(small_save(&s, 5, false));
    THEN(small_step(&s));
    THEN(small_load(&s, NULL, &kept, 5));
    small_close(&s);
    return status;
}

TEST(disks_of_their_own)
{
    for (int from = 0; from < WORLDS; from++)
        for (int to = 0; to < WORLDS; to++) {
            disks t = {.variant = worlds[from] < worlds[to] ? worlds[from] : worlds[to]};
            char why[256];
            make_quick_folder(t.folder);
            assert_ranks_ok(worlds[from], save_on_disks, &t);
            t.variant = worlds[to] > t.variant ? worlds[to] : t.variant; /* new disks are empty */
            if (cz_test_run_ranks(worlds[to], load_from_disks, &t, why) != CZ_OK)
                fail_msg("%d ranks load what %d saved: %s", worlds[to], worlds[from], why);
            remove_folder(t.folder);
        }
}
