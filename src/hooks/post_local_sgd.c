/* SPDX-License-Identifier: MIT */
/* The mean over a block of ranks. A bucket's operations go over all ranks, so the block is in the
 * counts of an exchange: each rank gets its slice of the buffer from those of its block, and sends
 * them the mean of it. */
#include "base/options.h"
#include "base/status.h"
#include "group/collective.h"
#include "hooks/hooks.h"

const cz__option_table cz__post_local_sgd_options = CZ__OPTION_TABLE(
    cz_post_local_sgd, CZ__OPTION(cz_post_local_sgd, local_gradients, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_post_local_sgd, subgroup, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_post_local_sgd, start_iter, CZ__COMPARED, CZ__FROM(0)));

/* Is that rank of the ddp's group in this rank's block? */
static bool is_in_block(const cz_post_local_sgd *s, const cz_group *group, int rank)
{
    if (!s->subgroup)
        return cz__group_are_together(group, rank, cz_group_rank(group));
    for (int k = 0; k < cz_group_size(s->subgroup); k++)
        if (cz_group_global_rank(s->subgroup, k) == cz_group_global_rank(group, rank))
            return true;
    return false;
}

/* ---- the exchange ---- */

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
                          x->count, cz__bucket_dtype(bucket), x->copies));
    for (int k = 1; k < x->block; k++)
        CZ_TRY(device->copy(NULL, x->copies + (size_t)k * bytes, x->copies, bytes));
    status =
        cz_all_to_all_v(cz__bucket_group(bucket), x->copies, x->mine, cz__bucket_buffer(bucket),
                        x->slices, cz__bucket_dtype(bucket), CZ_START("slices", &work));
    cz_work_destroy(&work);
    return status;
}

/* slices[] has who is in the block, and then what each of them takes: the first ones take the rest.
 */
static void cut(slice_exchange *x)
{
    const cz_group *group = cz__bucket_group(x->bucket);
    const int64_t count = cz__bucket_count(x->bucket);
    const int ranks = cz_group_size(group), block = x->block > 0 ? x->block : 1;
    int k = 0;
    for (int r = 0; r < ranks; r++)
        if (x->slices[r]) {
            x->slices[r] = count / block + (k < count % block);
            x->mine[r] = 1;
            k++;
        }
    x->count = x->slices[cz_group_rank(group)];
    for (int r = 0; r < ranks; r++)
        x->mine[r] *= x->count;
}

static cz_status plan(slice_exchange **out, const cz_post_local_sgd *s, cz_bucket *bucket)
{
    const cz_group *group = cz__bucket_group(bucket);
    const int ranks = cz_group_size(group), me = cz_group_rank(group);
    void *memory, *copies;
    if (!is_in_block(s, group, me))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "post-local SGD: rank %d is not in the sub-group, which was not made from "
                        "its group by splits",
                        cz_group_global_rank(group, me));
    const size_t head = sizeof(slice_exchange) + (size_t)ranks * sizeof(void *);
    CZ_TRY(cz_bucket_memory(bucket, cz_device_cpu(), head + 2 * (size_t)ranks * sizeof(int64_t),
                            &memory));
    slice_exchange *x = *out = memory;
    *x = (slice_exchange){.bucket = bucket};
    x->slices = (void *)((char *)memory + head);
    x->mine = x->slices + ranks;
    for (int r = 0; r < ranks; r++) {
        x->slices[r] = is_in_block(s, group, r);
        x->mine[r] = 0;
        x->block += x->slices[r] != 0;
    }
    cut(x);
    const size_t bytes = (size_t)x->count * cz_dtype_size(cz__bucket_dtype(bucket));
    CZ_TRY(cz_bucket_memory(bucket, cz__bucket_device(bucket), (size_t)x->block * bytes, &copies));
    x->copies = copies;
    for (int k = 0; k < x->block; k++)
        x->sources[k] = x->copies + (size_t)k * bytes;
    return CZ_OK;
}

static cz_status run_in_block(const cz_post_local_sgd *s, cz_bucket *bucket)
{
    slice_exchange *x = NULL;
    cz_work *work = NULL;
    CZ_TRY(plan(&x, s, bucket));
    CZ_TRY(cz_all_to_all_v(cz__bucket_group(bucket), cz__bucket_buffer(bucket), x->slices,
                           x->copies, x->mine, cz__bucket_dtype(bucket),
                           CZ_START("slices", &work)));
    const cz_status status = cz_work_then(work, average, x);
    cz_work_destroy(&work);
    return status;
}

/* ---- the hook ---- */

/* The program's struct may be shorter. */
static cz_status read_state(cz_post_local_sgd *s, const void *state)
{
    return cz__options_read(s, &cz__post_local_sgd_options, state, "post-local SGD");
}

static cz_status run(void *state, cz_bucket *bucket)
{
    cz_post_local_sgd s;
    CZ_TRY(read_state(&s, state));
    if (cz__bucket_pass(bucket) < s.start_iter)
        return cz__hook_all_reduce(NULL, bucket);
    return s.local_gradients ? CZ_OK : run_in_block(&s, bucket);
}

static void describe_hook(cz__description *d, const cz_hook *hook, int64_t pass)
{
    cz_post_local_sgd s = {0};
    (void)read_state(&s, hook->state); /* it could be read when it was registered */
    cz__describe_options(d, &cz__post_local_sgd_options, &s,
                         &(cz__subject){NULL, "hook", -1, hook->name, "is"});
    cz__describe_number(d, &(cz__subject){"the number of sub-groups", "hook", -1, hook->name, "is"},
                        CZ__FIELD_NUMBER, s.subgroup != NULL);
}

cz_status cz__hook_make_post_local_sgd(cz_hook *hook, const cz_model *model, void *state)
{
    cz_post_local_sgd s;
    if (!state)
        return cz__fail(CZ_ERR_ARGUMENT, "hook '%s' wants a cz_post_local_sgd as its state",
                        hook->name);
    CZ_TRY(read_state(&s, state));
    cz__hook_describe_with(run, describe_hook);
    hook->run = run;
    hook->state = state;
    return CZ_OK;
}
