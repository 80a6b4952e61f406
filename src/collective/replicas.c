/* SPDX-License-Identifier: MIT */
/* Do all ranks hold the same bits? */
#include "collective/replicas.h"

#include <inttypes.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "group/collective.h"
#include "collective/description.h"
#include "collective/model.h"
#include "tensor/model.h"

typedef struct comparison {
    cz_group *group;
    const cz__asker *asker;
    const cz__replica *list;
    int64_t count;
    int64_t *own;              /* owned, as all: the fingerprint of each here */
    int64_t *lowest, *highest; /* of each over the ranks */
    int64_t *of_ranks;         /* of one of them, rank by rank */
} comparison;

static void comparison_clear(comparison *c)
{
    cz__free(c->own);
    cz__free(c->lowest);
    cz__free(c->highest);
    cz__free(c->of_ranks);
}

/* What lies in a device's memory comes from there a block at a time; blocks are the same
 * everywhere. */
static cz_status take_fingerprint(const cz__replica *replica, int64_t *out)
{
    uint8_t block[16384];
    uint64_t print = 0;
    const bool here = replica->device == cz_device_cpu();
    for (size_t done = 0, part; done < replica->bytes; done += part) {
        const uint8_t *from = (const uint8_t *)replica->data + done;
        part = replica->bytes - done < sizeof block ? replica->bytes - done : sizeof block;
        if (!here)
            CZ_TRY(replica->device->copy(NULL, block, from, part));
        print = cz__fingerprint_elements(print, here ? from : block, part);
    }
    *out = (int64_t)print;
    return CZ_OK;
}

static cz_status take_fingerprints(comparison *c)
{
    const size_t count = (size_t)c->count;
    c->own = cz__calloc(count, sizeof *c->own);
    c->lowest = cz__calloc(count, sizeof *c->lowest);
    c->highest = cz__calloc(count, sizeof *c->highest);
    c->of_ranks = cz__calloc((size_t)cz_group_size(c->group), sizeof *c->of_ranks);
    if (!c->own || !c->lowest || !c->highest || !c->of_ranks)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for tables of %zu tensors", c->asker->part,
                        count);
    for (int64_t k = 0; k < c->count; k++) {
        CZ_TRY(take_fingerprint(&c->list[k], &c->own[k]));
        c->lowest[k] = c->highest[k] = c->own[k];
    }
    return CZ_OK;
}

/* The first rank that does not hold what most do; if no value has a majority, what rank 0 holds. */
static int odd_rank(const comparison *c)
{
    const int ranks = cz_group_size(c->group);
    int64_t usual = c->of_ranks[0];
    for (int r = 0, most = 0; r < ranks; r++) {
        int same = 0;
        for (int s = 0; s < ranks; s++)
            same += c->of_ranks[s] == c->of_ranks[r];
        if (same > most && (r == 0 || 2 * same > ranks)) {
            most = same;
            usual = c->of_ranks[r];
        }
    }
    int odd = 0;
    while (odd < ranks - 1 && c->of_ranks[odd] == usual)
        odd++;
    return odd;
}

/* Seen alike by all ranks. */
static cz_status name_difference(comparison *c, int64_t first, int64_t differ)
{
    char after[48] = "", place[CZ__GROUP_PLACE_BYTES];
    cz__group_place(c->group, place);
    const cz__replica *replica = &c->list[first];
    const int64_t mine = c->own[first];
    CZ_TRY(
        cz_all_gather(c->group, &mine, c->of_ranks, 1, CZ_I64, CZ_LABEL("check_replicas: ranks")));
    if (c->asker->steps >= 0)
        snprintf(after, sizeof after, " after %" PRId64 " steps", c->asker->steps);
    return cz__fail(CZ_ERR_MISMATCH,
                    "%s: rank %d holds other values of %s%s%s %" PRId64
                    " '%.60s'%s; ranks differ in %" PRId64 " of %" PRId64 " tensors%s",
                    c->asker->part, cz_group_global_rank(c->group, odd_rank(c)),
                    replica->of ? replica->of : "", replica->of ? " of " : "", replica->noun,
                    replica->index, replica->name, after, differ, c->count, place);
}

static cz_status compare(comparison *c, cz_status mine)
{
    int64_t first = -1, differ = 0;
    bool same;
    if (mine == CZ_OK)
        mine = take_fingerprints(c);
    CZ_TRY(cz__agree_for(c->group, c->asker->object, mine, 0, &same, c->asker->part));
    CZ_TRY(cz_all_reduce(c->group, c->lowest, c->count, CZ_I64, CZ_MIN,
                         CZ_LABEL("check_replicas: lowest")));
    CZ_TRY(cz_all_reduce(c->group, c->highest, c->count, CZ_I64, CZ_MAX,
                         CZ_LABEL("check_replicas: highest")));
    for (int64_t k = c->count - 1; k >= 0; k--) {
        if (c->lowest[k] == c->highest[k])
            continue;
        first = k;
        differ++;
    }
    return first < 0 ? CZ_OK : name_difference(c, first, differ);
}

cz_status cz__check_replicas(cz_group *group, const cz__asker *asker, const cz__replica *list,
                             int64_t count, cz_status mine)
{
    comparison c = {.group = group, .asker = asker, .list = list, .count = count};
    const cz_status status = compare(&c, mine);
    comparison_clear(&c);
    return status;
}

/* ---- of a model ---- */

static cz__replica replica_of(const char *noun, int64_t index, const char *name,
                              const cz_tensor *tensor)
{
    return (cz__replica){.noun = noun,
                         .index = index,
                         .name = name,
                         .device = cz__device_of(tensor),
                         .data = tensor->data,
                         .bytes = (size_t)cz_tensor_count(tensor) * cz_dtype_size(tensor->dtype)};
}

cz__replica cz__replica_of_param(const cz_model *model, int64_t param)
{
    return replica_of("parameter", param, cz__model_name(model, param),
                      cz__model_value(model, param));
}

cz_status cz__model_check_replicas(cz_group *group, const cz__asker *asker, const cz_model *model,
                                   bool buffers, cz_status mine)
{
    const int64_t params = cz__model_param_count(model);
    const int64_t count = params + (buffers ? cz__model_buffer_count(model) : 0);
    cz__replica *list = cz__calloc((size_t)count, sizeof *list);
    if (!list && mine == CZ_OK)
        mine = cz__fail(CZ_ERR_MEMORY, "%s: no memory for a list of %" PRId64 " tensors",
                        asker->part, count);
    if (list) {
        for (int64_t k = 0; k < count; k++)
            list[k] = k < params ? cz__replica_of_param(model, k)
                                 : replica_of("buffer", k - params,
                                              cz__model_buffer_name(model, k - params),
                                              cz__model_buffer(model, k - params));
    }
    const cz_status status = cz__check_replicas(group, asker, list, count, mine);
    cz__free(list);
    return status;
}

const cz__option_table cz__replicas_options = CZ__OPTION_TABLE(
    cz_replicas_options, CZ__OPTION(cz_replicas_options, parameters_only, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_replicas_options, reserved, CZ__LOCAL, CZ__RESERVED));

typedef struct question {
    cz_replicas_options options;
    const cz_model *model;
} question;

static void describe_question(cz__description *d, const void *context)
{
    const question *q = context;
    cz__describe_options(d, &cz__replicas_options, &q->options, NULL);
    cz__describe_params(d, q->model);
    if (!q->options.parameters_only)
        cz__describe_buffers(d, q->model);
}

static cz_status read_question(question *q, const cz_group *group, const cz_model *model,
                               const cz_replicas_options *options)
{
    CZ_TRY(cz__options_read(&q->options, &cz__replicas_options, options, "model check_replicas"));
    if (!model)
        return cz__fail(CZ_ERR_ARGUMENT, "model check_replicas: model is NULL");
    q->model = model;
    return cz__group_check_model(group, model, "model check_replicas");
}

cz_status cz_model_check_replicas(cz_group *group, const cz_model *model,
                                  const cz_replicas_options *options)
{
    static const cz__asker asker = {"model check_replicas", NULL, -1};
    question q = {0};
    cz__description room = {0};
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "model check_replicas: group is NULL");
    cz_status status = read_question(&q, group, model, options);
    status = cz__agree_on(group, asker.part, describe_question, &q, status, &room);
    cz__description_clear(&room);
    if (status == CZ_OK)
        status = cz__model_check_replicas(group, &asker, model, !q.options.parameters_only, CZ_OK);
    return status;
}
