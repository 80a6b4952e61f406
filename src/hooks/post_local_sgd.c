/* SPDX-License-Identifier: MIT */
/* The mean over a block of ranks. A bucket's operations go over all ranks, so the block is in the
 * counts of an exchange: each rank gets its slice of the buffer from those of its block, and sends
 * them the mean of it. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "group/collective.h"
#include "hooks/hooks.h"

struct cz_post_local_sgd {
    cz__object object;
    cz_post_local_sgd_options options;
    int *members; /* owned; global ranks of the block, ascending in their group */
    int member_count;
    int64_t iter;
    int64_t first_pass; /* the ddp's count of passes at iteration 0; only if `placed` */
    bool placed;
};

/* ---- the block ---- */

static cz_status take_members(cz_post_local_sgd *s, int count)
{
    s->members = cz__calloc((size_t)count, sizeof *s->members);
    return s->members ? CZ_OK
                      : cz__fail(CZ_ERR_MEMORY, "post-local SGD: no memory for a table of %d ranks",
                                 count);
}

static cz_status read_subgroup(cz_post_local_sgd *s, const cz_group *group)
{
    bool here = false;
    s->member_count = cz_group_size(s->options.subgroup);
    CZ_TRY(take_members(s, s->member_count));
    for (int r = 0; r < s->member_count; r++) {
        s->members[r] = cz_group_global_rank(s->options.subgroup, r);
        here = here || s->members[r] == cz_group_global_rank(group, cz_group_rank(group));
    }
    return here ? CZ_OK
                : cz__fail(CZ_ERR_ARGUMENT,
                           "post-local SGD: rank %d is not in the sub-group, which was not made "
                           "from its group by splits",
                           cz_group_global_rank(group, cz_group_rank(group)));
}

/* Those whose machine has the name of this one. Collective. */
static cz_status find_machine(cz_post_local_sgd *s, cz_group *group)
{
    char name[256] = "";
    const int ranks = cz_group_size(group);
    int64_t *machines = cz__calloc((size_t)ranks, sizeof *machines);
    cz_status mine = take_members(s, ranks);
    if (mine == CZ_OK && !machines)
        mine = cz__fail(CZ_ERR_MEMORY, "post-local SGD: no memory for a table of %d ranks", ranks);
    (void)gethostname(name, sizeof name - 1);
    const int64_t machine = (int64_t)cz__fingerprint(0, name, strlen(name));
    cz_status status = cz__agree(group, mine, 0, NULL, "post-local SGD");
    if (status)
        goto done;
    status = cz_all_gather(group, &machine, machines, 1, CZ_I64, CZ_LABEL("machines"));
    if (status)
        goto done;
    for (int r = 0; r < ranks; r++)
        if (machines[r] == machine)
            s->members[s->member_count++] = cz_group_global_rank(group, r);
done:
    cz__free(machines);
    return status;
}

const cz__option_table cz__post_local_sgd_options =
    CZ__OPTION_TABLE(cz_post_local_sgd_options,
                     CZ__OPTION(cz_post_local_sgd_options, subgroup, CZ__COMPARED_APART, CZ__ANY),
                     CZ__OPTION(cz_post_local_sgd_options, start_iter, CZ__COMPARED, CZ__FROM(0)),
                     CZ__OPTION(cz_post_local_sgd_options, local_gradients, CZ__COMPARED, CZ__FLAG),
                     CZ__OPTION(cz_post_local_sgd_options, reserved, CZ__LOCAL, CZ__RESERVED));

static void describe_options(cz__description *d, const void *context)
{
    const cz_post_local_sgd_options *o = context;
    cz__describe_options(d, &cz__post_local_sgd_options, o, NULL);
    cz__describe_number(d, &(cz__subject){NULL, "the number of sub-groups given", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, o->subgroup != NULL);
}

cz_status cz_post_local_sgd_create(cz_post_local_sgd **out, cz_group *group,
                                   const cz_post_local_sgd_options *options)
{
    CZ__OWN_FLOATS;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD: group is NULL");
    cz_post_local_sgd_options read = {0};
    cz_post_local_sgd *s = cz__calloc(1, sizeof *s);
    cz_status status =
        s ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "post-local SGD: no memory for a handle");
    if (!status && !out)
        status = cz__fail(CZ_ERR_ARGUMENT, "post-local SGD: out is NULL");
    if (!status)
        status = cz__options_read(&read, &cz__post_local_sgd_options, options, "post-local SGD");
    if (s)
        s->options = read;
    if (!status && read.subgroup)
        status = read_subgroup(s, group);
    cz__description room = {0};
    status = cz__agree_on(group, "post-local SGD", describe_options, &read, status, &room);
    cz__description_clear(&room);
    if (!status && !read.subgroup)
        status = find_machine(s, group);
    if (status) {
        cz_post_local_sgd_destroy(&s);
        return status;
    }
    cz__object_make(&s->object, group, CZ__OBJECT_HOOK_STATE);
    *out = s;
    return CZ_OK;
}

void cz_post_local_sgd_destroy(cz_post_local_sgd **state)
{
    if (!state || !*state)
        return;
    cz__free((*state)->members);
    cz__free(*state);
    *state = NULL;
}

int64_t cz_post_local_sgd_iter(const cz_post_local_sgd *state)
{
    return state ? state->iter : -1;
}

cz_status cz_post_local_sgd_set_iter(cz_post_local_sgd *state, int64_t iter)
{
    if (!state || iter < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "post-local SGD: iteration %" PRId64 "%s", iter,
                        state ? "" : " of NULL");
    state->iter = iter;
    state->placed = false;
    return CZ_OK;
}

/* ---- the hook ---- */

typedef struct slice_exchange {
    cz_bucket *bucket;
    int64_t *slices;       /* of each rank of the block in all of the buffer; 0: not of it */
    int64_t *mine;         /* for each rank of the block this rank's slice */
    int64_t count;         /* of that slice */
    char *copies;          /* of it, one per rank of the block */
    int block;             /* ranks in it */
    const void *sources[]; /* the copies */
} slice_exchange;

/* This rank's slice as all of the block have it: it becomes the mean, once for each of them. */
static cz_status average(cz_status status, void *context)
{
    slice_exchange *x = context;
    cz_bucket *bucket = x->bucket;
    const cz_device *device = cz__bucket_device(bucket);
    const size_t bytes = (size_t)x->count * cz_dtype_size(cz__bucket_dtype(bucket));
    cz_work *work = NULL;
    if (status != CZ_OK)
        return status;
    CZ_TRY(device->reduce(NULL, cz__bucket_dtype(bucket), CZ_AVERAGE, x->block, x->sources,
                          x->count, x->copies));
    for (int k = 1; k < x->block; k++)
        CZ_TRY(device->copy(NULL, x->copies + (size_t)k * bytes, x->copies, bytes));
    status =
        cz_all_to_all_v(cz__bucket_group(bucket), x->copies, x->mine, cz__bucket_buffer(bucket),
                        x->slices, cz__bucket_dtype(bucket), CZ_START("slices", &work));
    cz_work_destroy(&work);
    return status;
}

static int place_in(const cz_post_local_sgd *s, int global_rank)
{
    for (int k = 0; k < s->member_count; k++)
        if (s->members[k] == global_rank)
            return k;
    return -1;
}

static void cut(const cz_post_local_sgd *s, slice_exchange *x)
{
    const cz_group *group = cz__bucket_group(x->bucket);
    const int64_t count = cz__bucket_count(x->bucket);
    int k = 0;
    for (int r = 0; r < cz_group_size(group); r++) {
        x->slices[r] = x->mine[r] = 0;
        if (place_in(s, cz_group_global_rank(group, r)) < 0)
            continue;
        x->slices[r] = count / x->block + (k < count % x->block); /* the first ones take the rest */
        if (r == cz_group_rank(group))
            x->count = x->slices[r];
        k++;
    }
    for (int r = 0; r < cz_group_size(group); r++)
        x->mine[r] = place_in(s, cz_group_global_rank(group, r)) < 0 ? 0 : x->count;
}

static cz_status plan(slice_exchange **out, const cz_post_local_sgd *s, cz_bucket *bucket)
{
    const size_t ranks = (size_t)cz_group_size(cz__bucket_group(bucket));
    const size_t block = (size_t)s->member_count;
    const size_t head = sizeof(slice_exchange) + block * sizeof(void *);
    void *memory, *copies;
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), head + 2 * ranks * sizeof(int64_t), &memory));
    slice_exchange *x = *out = memory;
    *x = (slice_exchange){.bucket = bucket, .block = s->member_count};
    x->slices = (void *)((char *)memory + head);
    x->mine = x->slices + ranks;
    cut(s, x);
    const size_t bytes = (size_t)x->count * cz_dtype_size(cz__bucket_dtype(bucket));
    CZ_TRY(cz_bucket_memory(bucket, cz__bucket_device(bucket), block * bytes, &copies));
    x->copies = copies;
    for (size_t k = 0; k < block; k++)
        x->sources[k] = x->copies + k * bytes;
    return CZ_OK;
}

static cz_status run_in_block(const cz_post_local_sgd *s, cz_bucket *bucket)
{
    slice_exchange *x;
    cz_work *work = NULL;
    CZ_TRY(plan(&x, s, bucket));
    CZ_TRY(cz_all_to_all_v(cz__bucket_group(bucket), cz__bucket_buffer(bucket), x->slices,
                           x->copies, x->mine, cz__bucket_dtype(bucket),
                           CZ_START("slices", &work)));
    const cz_status status = cz_work_then(work, average, x);
    cz_work_destroy(&work);
    return status;
}

/* Iterations are counted until the block begins. */
static cz_status run(void *state, cz_bucket *bucket)
{
    cz_post_local_sgd *s = state;
    const int64_t pass = cz__bucket_pass(bucket), start = s->options.start_iter;
    if (!s->placed)
        s->first_pass = pass - s->iter;
    s->placed = true;
    s->iter = pass - s->first_pass < start ? pass - s->first_pass : start;
    if (s->iter < start) {
        CZ_TRY(cz__hook_all_reduce(NULL, bucket));
        s->iter += cz__bucket_is_last(bucket);
        return CZ_OK;
    }
    return s->options.local_gradients ? CZ_OK : run_in_block(s, bucket);
}

/* Beyond the last iteration that is counted none differs from another. */
static void describe_hook(cz__description *d, const cz_hook *hook, int64_t pass)
{
    const cz_post_local_sgd *s = hook->state;
    const int64_t iter = s->placed ? pass - s->first_pass : s->iter, start = s->options.start_iter;
    const double value = (double)(iter < start ? iter : start);
    cz__describe_object(d, &(cz__subject){"the state", "hook", -1, hook->name, "is"}, &s->object);
    cz__hook_tell(d, hook, (const char *const[]){"the iteration", NULL}, &value);
}

cz_status cz__hook_make_post_local_sgd(cz_hook *hook, const cz_model *model, void *state)
{
    if (!state)
        return cz__fail(CZ_ERR_ARGUMENT, "hook '%s' wants a cz_post_local_sgd as its state",
                        hook->name);
    cz__hook_describe_with(run, describe_hook);
    hook->run = run;
    hook->state = state;
    return CZ_OK;
}
