/* SPDX-License-Identifier: MIT */
/* Parts: a rank adds up the gradients of its parts as a binary counter does. A partial sum waits
 * until another one stands for as many parts; then they become one. Parts are dealt out so that
 * each of these sums is one of the tree over all parts (base/leaves.h). What is left after the last
 * part is given to the owners, who put each sum in its place of that tree. */
#include "parts/parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "collective/model.h"
#include "device/print.h"
#include "group/internal.h"
#include "operation/region.h"
#include "tensor/model.h"

enum { MOST_VALUES = 65536 };
_Static_assert(CZ__MOST_LEAVES == CZ__MAX_WORLD, "a part is a source of a reduction");

/* Partial sums that wait, or are terms, are on a stack; the lowest stands for the most parts. */
enum { MOST_KEPT = 12 };

struct cz_parts {
    cz_group *group; /* borrowed, as the model */
    cz_model *model;
    const cz_device *device;
    cz__object object;
    cz__leaves leaves;
    int64_t param_count;
    int own_count, added;
    int kept_count;              /* of the stack */
    size_t kept_bytes;           /* of its memory */
    void **kept[MOST_KEPT];      /* of each parameter in it, owned; NULL: no memory yet */
    uint8_t *has[MOST_KEPT];     /* is the sum there, or has no part in it a gradient? */
    uint8_t *any;                /* has any part of this step? */
    void **given[MOST_KEPT + 1]; /* the terms, as cz__terms has them */
    void **last;                 /* the gradients of the rank's last part; NULL: none */
    uint64_t *prints;            /* two of each of these; NULL: the group is not in checked mode */
    cz__terms terms;
    char *zeros; /* CZ__TILE_BYTES of them, and as much room: */
    char *tile;
    /* Room for leaves.count addresses, beside those of `terms`, which operations use meanwhile. */
    const void **sources;
    double *shares; /* of this rank's parts */
    double *all_shares;
    bool weightless;
    cz__parts_user user;
    bool held;      /* a pass is under way */
    bool broken;    /* a part was added in part */
    bool abandoned; /* the program has destroyed them */
    bool froze;
    bool warned; /* that nobody uses them */
};

const cz__option_table cz__parts_options = CZ__OPTION_TABLE(
    cz_parts_options,
    CZ__OPTION(cz_parts_options, count, CZ__COMPARED, CZ__BETWEEN(1, CZ__MOST_LEAVES)),
    CZ__OPTION(cz_parts_options, reserved, CZ__LOCAL, CZ__RESERVED));

/* ---- creation ---- */

static cz_status check_type(const cz_parts *parts, int64_t p)
{
    const cz_dtype dtype = cz__model_value(parts->model, p)->dtype;
    if (dtype == CZ_F32 || dtype == CZ_F64)
        return CZ_OK;
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "parts: trainable parameter %" PRId64 " '%.60s' is %s, wanted f32 or f64", p,
                    cz__model_name(parts->model, p), cz_dtype_name(dtype));
}

static cz_status check_parts(const cz_parts *parts)
{
    const int world = cz_group_size(parts->group);
    CZ_TRY(cz__group_check_model(parts->group, parts->model, "parts"));
    CZ_TRY(cz__model_check_gradients(parts->model, "parts"));
    if (parts->leaves.count < world)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "parts: option count is %d, wanted at least %d, one for each rank",
                        parts->leaves.count, world);
    for (int64_t p = 0; p < parts->param_count; p++)
        if (cz__model_requires_grad(parts->model, p))
            CZ_TRY(check_type(parts, p));
    const size_t least = 64 * (size_t)cz__leaves_most_terms(&parts->leaves);
    if (parts->group->segment_bytes < least)
        return cz__fail(
            CZ_ERR_UNSUPPORTED,
            "parts: option segment_bytes of the group is %zu, wanted at least %zu for %d parts",
            parts->group->segment_bytes, least, parts->leaves.count);
    return CZ_OK;
}

static size_t bytes_of(const cz_parts *parts, int64_t p)
{
    const cz_tensor *value = cz__model_value(parts->model, p);
    return (size_t)cz_tensor_count(value) * cz_dtype_size(value->dtype);
}

static cz_status have_kept(cz_parts *parts, int level, int64_t p)
{
    const size_t bytes = bytes_of(parts, p);
    if (parts->kept[level][p] || bytes == 0)
        return CZ_OK;
    const cz_status status =
        parts->device->allocate(CZ_MEMORY_GRADIENT, bytes, &parts->kept[level][p]);
    if (status) {
        parts->kept[level][p] = NULL;
        return cz__fail(status,
                        "parts: no memory for %zu bytes of a partial sum of parameter %" PRId64
                        " '%.60s'",
                        bytes, p, cz__model_name(parts->model, p));
    }
    parts->kept_bytes += bytes;
    return CZ_OK;
}

static cz_status allocate(cz_parts *parts)
{
    const size_t params = (size_t)parts->param_count, count = (size_t)parts->leaves.count;
    bool all = true;
    for (int k = 0; k < parts->kept_count; k++) {
        parts->kept[k] = cz__calloc(params, sizeof *parts->kept[k]);
        parts->has[k] = cz__calloc(params, sizeof *parts->has[k]);
        all = all && parts->kept[k] && parts->has[k];
    }
    for (int t = 0; t < cz__leaves_terms(&parts->leaves, cz_group_rank(parts->group)); t++) {
        parts->given[t] = cz__calloc(params, sizeof *parts->given[t]);
        all = all && parts->given[t];
    }
    parts->any = cz__calloc(params, sizeof *parts->any);
    parts->last = cz__calloc(params, sizeof *parts->last);
    if (cz__group_is_checked(parts->group))
        parts->prints = cz__calloc(2 * params, sizeof *parts->prints);
    all = all && parts->last && (parts->prints || !cz__group_is_checked(parts->group));
    parts->shares = cz__calloc((size_t)parts->own_count, sizeof *parts->shares);
    parts->all_shares = cz__calloc(count, sizeof *parts->all_shares);
    parts->terms.sources = cz__calloc(count, sizeof *parts->terms.sources);
    parts->sources = cz__calloc(count, sizeof *parts->sources);
    if (!all || !parts->any || !parts->shares || !parts->all_shares || !parts->terms.sources ||
        !parts->sources)
        return cz__fail(CZ_ERR_MEMORY, "parts: no memory for tables of %zu parameters", params);
    void *zeros;
    CZ_TRY(parts->device->allocate(CZ_MEMORY_STAGING, 2 * CZ__TILE_BYTES, &zeros));
    parts->zeros = zeros;
    parts->tile = parts->zeros + CZ__TILE_BYTES;
    for (int k = 0; k < parts->kept_count; k++)
        for (int64_t p = 0; p < parts->param_count; p++)
            if (cz__model_requires_grad(parts->model, p))
                CZ_TRY(have_kept(parts, k, p));
    return CZ_OK;
}

/* All that this rank can do alone. */
static cz_status build_parts(cz_parts *parts, cz_parts_options *ours,
                             const cz_parts_options *theirs)
{
    if (!parts->model)
        return cz__fail(CZ_ERR_ARGUMENT, "parts: model is NULL");
    CZ_TRY(cz__options_read(ours, &cz__parts_options, theirs, "parts"));
    const int rank = cz_group_rank(parts->group);
    parts->leaves = (cz__leaves){ours->count, cz_group_size(parts->group)};
    parts->param_count = cz__model_param_count(parts->model);
    parts->device = cz__group_device(parts->group);
    CZ_TRY(check_parts(parts));
    parts->own_count = cz__leaves_of(&parts->leaves, rank);
    parts->kept_count = cz__leaves_kept(&parts->leaves, rank);
    CZ_TRY(allocate(parts));
    parts->terms.leaves = parts->leaves;
    parts->terms.data = (void *const *const *)parts->given;
    for (int i = 0; i < parts->own_count; i++)
        parts->shares[i] = 1;
    for (int k = 0; k < parts->leaves.count; k++)
        parts->all_shares[k] = 1;
    return CZ_OK;
}

typedef struct parts_creation {
    const cz_parts *parts;
    const cz_parts_options *options;
} parts_creation;

static void describe_parts(cz__description *d, const void *context)
{
    const parts_creation *c = context;
    cz__describe_params(d, c->parts->model);
    cz__describe_options(d, &cz__parts_options, c->options, NULL);
}

cz_status cz_parts_create(cz_parts **out, cz_group *group, cz_model *model,
                          const cz_parts_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description room = {0};
    cz_parts_options ours = {0};
    cz_status status = CZ_OK;
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "parts: group is NULL");
    cz_parts *parts = cz__calloc(1, sizeof *parts);
    if (!out) {
        status = cz__fail(CZ_ERR_ARGUMENT, "parts: out is NULL");
    } else if (!parts) {
        status = cz__fail(CZ_ERR_MEMORY, "parts: no memory for a handle");
    } else {
        parts->group = group;
        parts->model = model;
        status = build_parts(parts, &ours, options);
    }
    const parts_creation c = {parts, &ours};
    status = cz__agree_on(group, "parts", describe_parts, &c, status, &room);
    cz__description_clear(&room);
    if (status) {
        cz_parts_destroy(&parts);
        return status;
    }
    cz__object_make(&parts->object, group, CZ__OBJECT_PARTS);
    cz__model_freeze(model);
    (void)cz__model_count_parts(model, 1);
    parts->froze = true;
    *out = parts;
    return CZ_OK;
}

static void destroy(cz_parts *parts)
{
    for (int k = 0; k < MOST_KEPT; k++) {
        if (parts->kept[k])
            for (int64_t p = 0; p < parts->param_count; p++)
                parts->device->release(parts->kept[k][p]);
        cz__free(parts->kept[k]);
        cz__free(parts->has[k]);
    }
    for (int t = 0; t <= MOST_KEPT; t++)
        cz__free(parts->given[t]);
    if (parts->zeros)
        parts->device->release(parts->zeros);
    if (parts->froze) {
        (void)cz__model_count_parts(parts->model, -1);
        cz__model_thaw(parts->model);
    }
    cz__free(parts->any);
    cz__free(parts->last);
    cz__free(parts->prints);
    cz__free(parts->shares);
    cz__free(parts->all_shares);
    cz__free(parts->terms.sources);
    cz__free(parts->sources);
    cz__free(parts);
}

/* Who uses them ends with them. */
void cz_parts_destroy(cz_parts **out)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!out || !*out)
        return;
    cz_parts *parts = *out;
    *out = NULL;
    parts->abandoned = true;
    if (parts->user == CZ__PARTS_FREE)
        destroy(parts);
}

/* ---- which ---- */

int cz_parts_own(const cz_parts *parts, int i)
{
    if (!parts || i < 0 || i >= parts->own_count)
        return -1;
    return cz__leaves_at(&parts->leaves, cz_group_rank(parts->group), i);
}

bool cz_parts_is_last(const cz_parts *parts)
{
    return parts && parts->added == parts->own_count - 1;
}

cz_status cz_parts_get_info(const cz_parts *parts, cz_parts_info *info)
{
    if (!parts || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "parts get_info: %s is NULL", parts ? "info" : "parts");
    const cz_parts_info ours = {.group = parts->group,
                                .model = parts->model,
                                .count = parts->leaves.count,
                                .own_count = parts->own_count,
                                .added = parts->added,
                                .weightless = parts->weightless,
                                .kept_bytes = parts->kept_bytes};
    return cz__options_write(info, &ours, sizeof ours, "cz_parts_info");
}

cz_status cz__parts_match(const cz_parts *parts, const cz_model *model, const cz_group *group,
                          const char *part)
{
    if (parts->model != model)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: option parts is over another model", part);
    const int rank = cz_group_rank(parts->group), size = cz_group_size(parts->group);
    if (rank != cz_group_rank(group) || size != cz_group_size(group))
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: option parts: this is rank %d of %d there, rank %d of %d here", part,
                        rank, size, cz_group_rank(group), cz_group_size(group));
    return CZ_OK;
}

cz_status cz__parts_check_join(const cz_join *join, const char *part)
{
    if (cz__join_division(join) == CZ_JOIN_BY_WORLD)
        return CZ_OK;
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "%s: with option parts the mean is over all parts: option divide of the join "
                    "has to be CZ_JOIN_BY_WORLD; see cz_parts_set_weights()",
                    part);
}

void cz__describe_parts(cz__description *d, const cz_parts *parts)
{
    cz__describe_object(d, &(cz__subject){NULL, "option parts", -1, NULL, "is"},
                        parts ? &parts->object : NULL);
}

int cz__parts_count(const cz_parts *parts)
{
    return parts ? parts->leaves.count : 0;
}

size_t cz__leaves_longest(const cz__leaves *leaves, size_t longest)
{
    return leaves->count > leaves->world_size ? cz__terms_longest(leaves, longest) : longest;
}

size_t cz__parts_longest(const cz_parts *parts, size_t longest)
{
    return parts ? cz__leaves_longest(&parts->leaves, longest) : longest;
}

size_t cz__parts_bytes(const cz__leaves *leaves, int rank, int64_t param_count)
{
    const cz_parts *p = NULL;
    const size_t params = (size_t)param_count, count = (size_t)leaves->count;
    const size_t per_sum = params * (sizeof **p->kept + sizeof **p->has);
    return sizeof *p + 2 * CZ__TILE_BYTES + (size_t)cz__leaves_kept(leaves, rank) * per_sum +
           (size_t)cz__leaves_terms(leaves, rank) * params * sizeof **p->given +
           params * (sizeof *p->any + sizeof *p->last) +
           (size_t)cz__leaves_of(leaves, rank) * sizeof *p->shares +
           count * (sizeof *p->all_shares + sizeof *p->terms.sources + sizeof *p->sources);
}

cz_status cz__parts_check_free(const cz_parts *parts, const char *part)
{
    if (parts->user == CZ__PARTS_FREE)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE, "%s: option parts is used by %s already%s", part,
                    parts->user == CZ__PARTS_DDP ? "a ddp" : "a sharded optimizer",
                    parts->user == CZ__PARTS_DDP ? ": give an optimizer option ddp, too"
                                                 : "; make parts of its own");
}

void cz__parts_say_if_left_out(const cz_parts *given, cz_model *model, const cz_group *group,
                               const char *object)
{
    if (!given && cz__model_count_parts(model, 0) > 0 && cz_group_rank(group) == 0)
        cz__log(CZ_LOG_WARN,
                "%s is over a model that has parts, and is made without them: it will take the "
                "gradients of one part for those of all; give it option parts",
                object);
}

/* The sums of a step that nobody will make. */
static void say_if_nobody_uses(cz_parts *parts)
{
    if (parts->user == CZ__PARTS_FREE && !parts->warned && cz_group_rank(parts->group) == 0)
        cz__log(CZ_LOG_WARN,
                "%s: all parts of this rank were added, and nothing uses them: give a sharded "
                "optimizer or a data-parallel model option parts",
                parts->object.name);
    parts->warned = true;
}

void cz__parts_take(cz_parts *parts, cz__parts_user user)
{
    parts->user = user;
}

void cz__parts_leave(cz_parts *parts)
{
    parts->user = CZ__PARTS_FREE;
    parts->held = false;
    cz__parts_end_step(parts);
    if (parts->abandoned)
        destroy(parts);
}

void cz__parts_hold(cz_parts *parts, bool held)
{
    parts->held = held;
}

/* ---- weights ---- */

static cz_status check_weights(const cz_parts *parts, const double *weights)
{
    if (parts->held)
        return cz__fail(CZ_ERR_STATE, "parts set_weights: a pass of a ddp is under way");
    if (weights && cz__model_count_parts(parts->model, 0) > 1)
        return cz__fail(CZ_ERR_STATE, "parts set_weights: there are other parts over the same "
                                      "model, whose gradients these would weigh, too");
    if (parts->added > 0)
        return cz__fail(CZ_ERR_STATE,
                        "parts set_weights: %d of %d parts of the step were added already",
                        parts->added, parts->own_count);
    if (!weights)
        return CZ_OK;
    for (int i = 0; i < parts->own_count; i++)
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "parts set_weights: that of part %d is %g, wanted 0 or more",
                            cz_parts_own(parts, i), weights[i]);
    return CZ_OK;
}

/* Numbers of all parts on all ranks, `width` of each: bit for bit, whoever has them. */
static cz_status collect(cz_parts *parts, const double *own, int width, double *all,
                         const char *label)
{
    const int count = parts->leaves.count;
    memset(all, 0, (size_t)count * (size_t)width * sizeof *all);
    for (int i = 0; i < parts->own_count; i++)
        memcpy(all + (size_t)cz_parts_own(parts, i) * (size_t)width,
               own + (size_t)i * (size_t)width, (size_t)width * sizeof *all);
    return cz_all_reduce(parts->group, all, (int64_t)count * width, CZ_I64, CZ_OR, CZ_LABEL(label));
}

/* In the tree over parts: `width` numbers of each become one. */
static cz_status add_up(const cz_parts *parts, cz_reduction reduction, const double *all, int width,
                        double *out)
{
    for (int k = 0; k < parts->leaves.count; k++)
        parts->sources[k] = all + (size_t)k * (size_t)width;
    return cz_device_cpu()->reduce(NULL, CZ_F64, reduction, parts->leaves.count, parts->sources,
                                   width, CZ_F64, out);
}

/* Shares are 1 to the last bit where all weights are equal. */
static void take_shares(cz_parts *parts, const double *weights, double sum)
{
    const int count = parts->leaves.count;
    bool equal = true;
    for (int k = 1; k < count; k++)
        equal = equal && weights[k] == weights[0];
    for (int k = 0; k < count; k++) {
        const double times = weights[k] * count; /* which may be too large for a number */
        parts->all_shares[k] = isfinite(times) ? times / sum : weights[k] / sum * count;
        if (equal || sum == 0)
            parts->all_shares[k] = sum != 0;
    }
    for (int i = 0; i < parts->own_count; i++)
        parts->shares[i] = parts->all_shares[cz_parts_own(parts, i)];
    parts->weightless = sum == 0;
}

static cz_status exchange_weights(cz_parts *parts, const double *weights, double *all)
{
    double sum;
    CZ_TRY(collect(parts, weights, 1, all, "parts: weights"));
    CZ_TRY(add_up(parts, CZ_SUM, all, 1, &sum));
    if (!isfinite(sum))
        return cz__fail(CZ_ERR_ARGUMENT, "parts set_weights: those of all parts sum up to %g", sum);
    take_shares(parts, all, sum);
    return CZ_OK;
}

static void describe_weights(cz__description *d, const void *weights)
{
    static const char *const words[] = {"NULL", "given", NULL};
    cz__describe_word(d, &(cz__subject){NULL, "the list of weights", -1, NULL, "is"}, words,
                      weights != NULL);
}

cz_status cz_parts_set_weights(cz_parts *parts, const double *weights)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description room = {0};
    bool same;
    if (!parts)
        return cz__fail(CZ_ERR_ARGUMENT, "parts set_weights: parts is NULL");
    const size_t count = (size_t)parts->leaves.count;
    cz_status mine = check_weights(parts, weights);
    double *all = mine == CZ_OK ? cz__calloc(count, sizeof *all) : NULL;
    if (mine == CZ_OK && !all)
        mine =
            cz__fail(CZ_ERR_MEMORY, "parts set_weights: no memory for a table of %zu parts", count);
    cz_status status =
        cz__agree_for(parts->group, &parts->object, mine, weights != NULL, &same, "parts: weights");
    if (status)
        goto done;
    if (!same)
        status = cz__agree_on(parts->group, "parts set_weights", describe_weights, weights, CZ_OK,
                              &room);
    else if (weights)
        status = exchange_weights(parts, weights, all);
    if (!weights && same) {
        for (size_t k = 0; k < count; k++)
            all[k] = 1;
        take_shares(parts, all, (double)count);
    }
done:
    cz__description_clear(&room);
    cz__free(all);
    return status;
}

/* ---- means ---- */

static cz_status check_mean(const double *values, int64_t count, const double *means)
{
    if (!values || !means)
        return cz__fail(CZ_ERR_ARGUMENT, "parts mean: %s is NULL", values ? "means" : "values");
    if (count < 1 || count > MOST_VALUES)
        return cz__fail(CZ_ERR_ARGUMENT, "parts mean: count is %" PRId64 ", wanted 1 to %d", count,
                        MOST_VALUES);
    return CZ_OK;
}

static cz_status mean(cz_parts *parts, const double *values, int count, double *all, double *means)
{
    CZ_TRY(collect(parts, values, count, all, "parts: mean"));
    for (int k = 0; k < parts->leaves.count; k++)
        for (int n = 0; n < count && parts->all_shares[k] != 1; n++) {
            double *value = all + (size_t)k * (size_t)count + n;
            *value = parts->all_shares[k] == 0 ? 0 : *value * parts->all_shares[k];
        }
    CZ_TRY(add_up(parts, CZ_AVERAGE, all, count, means));
    if (parts->weightless)
        for (int n = 0; n < count; n++)
            means[n] = NAN;
    return CZ_OK;
}

static void describe_count(cz__description *d, const void *count)
{
    cz__describe_number(d, &(cz__subject){NULL, "count", -1, NULL, "is"}, CZ__FIELD_NUMBER,
                        *(const int64_t *)count);
}

cz_status cz_parts_mean(cz_parts *parts, const double *values, int64_t count, double *means)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description room = {0};
    bool same;
    if (!parts)
        return cz__fail(CZ_ERR_ARGUMENT, "parts mean: parts is NULL");
    const size_t parts_count = (size_t)parts->leaves.count;
    cz_status mine = check_mean(values, count, means);
    double *all = mine == CZ_OK ? cz__calloc(parts_count * (size_t)count, sizeof *all) : NULL;
    if (mine == CZ_OK && !all)
        mine = cz__fail(CZ_ERR_MEMORY, "parts mean: no memory for %" PRId64 " values of %zu parts",
                        count, parts_count);
    cz_status status =
        cz__agree_for(parts->group, &parts->object, mine, (uint64_t)count, &same, "parts: mean");
    if (!status && !same)
        status = cz__agree_on(parts->group, "parts mean", describe_count, &count, CZ_OK, &room);
    if (!status)
        status = mean(parts, values, (int)count, all, means);
    cz__description_clear(&room);
    cz__free(all);
    return status;
}

/* ---- adding up ---- */

/* How many waiting sums the present part completes: as many as its number here, in binary, ends
 * with ones. */
static int completed(const cz_parts *parts)
{
    int count = 0;
    while (parts->added >> count & 1)
        count++;
    return count;
}

static const void *kept_at(const cz_parts *parts, int level, int64_t p, size_t at)
{
    return parts->has[level][p] ? (const char *)parts->kept[level][p] + at : parts->zeros;
}

/* Some bytes of it: s0 + (s1 + (s2 + gradient)), from the right, two sums at a time. An addition is
 * the same from either side, so that these three are the tree over (s1, gradient, s0). */
static cz_status complete_tile(cz_parts *parts, int64_t p, const char *gradient, int base,
                               int count, size_t at, size_t bytes)
{
    const cz_dtype dtype = cz__model_value(parts->model, p)->dtype;
    const int64_t elements = (int64_t)(bytes / cz_dtype_size(dtype));
    const void *right = gradient ? gradient + at : parts->zeros;
    for (int k = count; k > 0; k -= 2) {
        const void *sources[3] = {kept_at(parts, base + k - 1, p, at), right};
        if (k > 1)
            sources[2] = kept_at(parts, base + k - 2, p, at);
        void *out = k > 2 ? parts->tile : (char *)parts->kept[base][p] + at;
        CZ_TRY(parts->device->reduce(NULL, dtype, CZ_SUM, k > 1 ? 3 : 2, sources, elements, dtype,
                                     out));
        right = out;
    }
    return CZ_OK;
}

/* A gradient and the sums that it completes become the lowest of these. */
static cz_status complete(cz_parts *parts, int64_t p, const void *gradient, int count)
{
    const int base = cz__leaves_digits(parts->added) - count;
    const size_t bytes = bytes_of(parts, p);
    bool any = gradient != NULL;
    for (int k = 0; k < count; k++)
        any = any || parts->has[base + k][p];
    if (!any)
        return CZ_OK;
    CZ_TRY(have_kept(parts, base, p));
    for (size_t at = 0, some; at < bytes; at += some) {
        some = bytes - at < CZ__TILE_BYTES ? bytes - at : CZ__TILE_BYTES;
        CZ_TRY(complete_tile(parts, p, gradient, base, count, at, some));
    }
    parts->has[base][p] = 1;
    return CZ_OK;
}

static cz_status keep_gradient(cz_parts *parts, int64_t p, const void *gradient)
{
    const int level = cz__leaves_digits(parts->added);
    parts->has[level][p] = gradient != NULL;
    if (!gradient || bytes_of(parts, p) == 0)
        return CZ_OK;
    CZ_TRY(have_kept(parts, level, p));
    return cz__copy_once(parts->device, parts->kept[level][p], gradient, bytes_of(parts, p));
}

static void print_of(const cz_parts *parts, int64_t p, const void *gradient, uint64_t print[2])
{
    const cz_tensor *value = cz__model_value(parts->model, p);
    print[0] = print[1] = 0;
    (void)cz__print_add(parts->device, 0, value->dtype, 0, cz_tensor_count(value), gradient, print);
}

cz_status cz__parts_check_last(const cz_parts *parts, int64_t p, const void *gradient)
{
    uint64_t print[2];
    const char *what = NULL;
    if (!parts->last[p])
        return CZ_OK;
    if (parts->last[p] != gradient) {
        what = "is somewhere else";
    } else if (parts->prints) {
        print_of(parts, p, gradient, print);
        if (memcmp(print, parts->prints + 2 * p, sizeof print) != 0)
            what = "was changed";
    }
    return what ? cz__fail(
                      CZ_ERR_STATE,
                      "zero step: the gradient of parameter %" PRId64
                      " '%.60s' %s since the last part was added; it stays as it is until the step",
                      p, cz__model_name(parts->model, p), what)
                : CZ_OK;
}

/* The terms of a parameter after the rank's last part: sums that are kept, and if it completes none
 * the last gradient. */
static void give(cz_parts *parts, int64_t p, void *gradient)
{
    parts->last[p] = gradient;
    if (parts->prints && gradient)
        print_of(parts, p, gradient, parts->prints + 2 * p);
    const int terms = cz__leaves_digits(parts->own_count);
    const bool ends_alone = parts->own_count & 1;
    for (int t = 0; t < terms; t++) {
        if (t == terms - 1 && ends_alone)
            parts->given[t][p] = gradient;
        else
            parts->given[t][p] = parts->has[t][p] ? parts->kept[t][p] : NULL;
    }
}

double cz__parts_share(const cz_parts *parts)
{
    return parts->shares[parts->added];
}

static cz_status add_param(cz_parts *parts, int64_t p, void *gradient)
{
    const double share = cz__parts_share(parts);
    const bool is_last = cz_parts_is_last(parts);
    const int count = completed(parts);
    parts->any[p] |= gradient != NULL;
    if (gradient)
        CZ_TRY(check_type(parts, p));
    if (share == 0)
        gradient = NULL;
    if (gradient && share != 1)
        CZ_TRY(parts->device->scale(NULL, cz__model_value(parts->model, p)->dtype, share,
                                    cz_tensor_count(cz__model_value(parts->model, p)), gradient));
    if (count > 0)
        CZ_TRY(complete(parts, p, gradient, count));
    else if (!is_last)
        CZ_TRY(keep_gradient(parts, p, gradient));
    if (is_last)
        give(parts, p, gradient);
    return CZ_OK;
}

/* Sums are made in place: a part of which some parameters are in them cannot be taken out. */
cz_status cz__parts_add_param(cz_parts *parts, int64_t p, void *gradient)
{
    const cz_status status = add_param(parts, p, gradient);
    parts->broken |= status != CZ_OK;
    return status;
}

void cz__parts_next(cz_parts *parts)
{
    parts->added++;
}

void cz__parts_skip(cz_parts *parts)
{
    cz__parts_end_step(parts);
    parts->added = parts->own_count;
}

cz_status cz_parts_add(cz_parts *parts)
{
    CZ__OWN_FLOATS;
    if (!parts)
        return cz__fail(CZ_ERR_ARGUMENT, "parts add: parts is NULL");
    if (parts->user == CZ__PARTS_DDP)
        return cz__fail(CZ_ERR_STATE, "parts add: passes of a ddp add these parts");
    CZ_TRY(cz__parts_are_whole(parts, "parts add"));
    if (parts->added == parts->own_count)
        return cz__fail(CZ_ERR_STATE,
                        "parts add: all %d parts of this rank were added; a step comes next, or "
                        "cz_parts_restart()",
                        parts->own_count);
    for (int64_t p = 0; p < parts->param_count; p++)
        if (cz__model_requires_grad(parts->model, p))
            CZ_TRY(cz__parts_add_param(parts, p, cz__model_gradient_address(parts->model, p)));
    cz__parts_next(parts);
    if (parts->added == parts->own_count)
        say_if_nobody_uses(parts);
    return CZ_OK;
}

/* ---- a step ---- */

cz_status cz__parts_are_whole(const cz_parts *parts, const char *part)
{
    return parts->broken
               ? cz__fail(CZ_ERR_STATE,
                          "%s: a part could not be added; cz_parts_restart() begins the step again",
                          part)
               : CZ_OK;
}

cz_status cz__parts_are_all(const cz_parts *parts, const char *part)
{
    CZ_TRY(cz__parts_are_whole(parts, part));
    if (parts->added == parts->own_count)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "%s: %d of %d parts of this rank were added; cz_parts_add() comes first", part,
                    parts->added, parts->own_count);
}

cz_status cz__parts_are_none(const cz_parts *parts, const char *part)
{
    if (parts->added == 0 && !parts->broken)
        return CZ_OK;
    return cz__fail(CZ_ERR_STATE,
                    "%s: %d of %d parts of this rank were added; the step comes first, or "
                    "cz_parts_restart()",
                    part, parts->added, parts->own_count);
}

bool cz__parts_has(const cz_parts *parts, int64_t param)
{
    return parts->any[param];
}

const cz__terms *cz__parts_terms(const cz_parts *parts)
{
    return parts && parts->leaves.count > parts->leaves.world_size ? &parts->terms : NULL;
}

void *const *cz__parts_single(const cz_parts *parts)
{
    return parts->given[0];
}

bool cz__parts_weightless(const cz_parts *parts)
{
    return parts->weightless;
}

void cz__parts_end_step(cz_parts *parts)
{
    const size_t params = (size_t)parts->param_count;
    for (int k = 0; k < parts->kept_count; k++)
        memset(parts->has[k], 0, params);
    for (int t = 0; t < cz__leaves_digits(parts->own_count); t++)
        memset(parts->given[t], 0, params * sizeof *parts->given[t]);
    memset(parts->any, 0, params);
    memset(parts->last, 0, params * sizeof *parts->last);
    parts->added = 0;
    parts->broken = false;
}

cz_status cz_parts_restart(cz_parts *parts)
{
    if (!parts)
        return cz__fail(CZ_ERR_ARGUMENT, "parts restart: parts is NULL");
    if (parts->held)
        return cz__fail(CZ_ERR_STATE, "parts restart: a pass of a ddp is under way");
    cz__parts_end_step(parts);
    return CZ_OK;
}

/* ---- is a part the same every time? ---- */

static cz_status copy_gradients(const cz_parts *parts, void **copies)
{
    for (int64_t p = 0; p < parts->param_count; p++) {
        const void *gradient = cz__model_gradient_address(parts->model, p);
        cz__free(copies[p]);
        copies[p] = NULL;
        if (!gradient || bytes_of(parts, p) == 0)
            continue;
        copies[p] = cz__allocate(CZ_MEMORY_GRADIENT, bytes_of(parts, p));
        if (!copies[p])
            return cz__fail(CZ_ERR_MEMORY, "parts check: no memory for a gradient of '%.60s'",
                            cz__model_name(parts->model, p));
        CZ_TRY(parts->device->copy(NULL, copies[p], gradient, bytes_of(parts, p)));
    }
    return CZ_OK;
}

static cz_status compare_param(const cz_parts *parts, int part, int64_t p, const char *copy)
{
    char block[4096];
    const char *gradient = cz__model_gradient_address(parts->model, p);
    const size_t bytes = bytes_of(parts, p);
    const size_t element = cz_dtype_size(cz__model_value(parts->model, p)->dtype);
    if (bytes > 0 && !gradient != !copy)
        return cz__fail(
            CZ_ERR_MISMATCH,
            "parts check: part %d has a gradient of parameter %" PRId64 " '%.60s' only %s", part, p,
            cz__model_name(parts->model, p), gradient ? "the second time" : "the first time");
    if (!copy)
        return CZ_OK;
    for (size_t at = 0, some; at < bytes; at += some) {
        some = bytes - at < sizeof block ? bytes - at : sizeof block;
        CZ_TRY(parts->device->copy(NULL, block, gradient + at, some));
        for (size_t i = 0; i < some; i += element)
            if (memcmp(block + i, copy + at + i, element) != 0)
                return cz__fail(CZ_ERR_MISMATCH,
                                "parts check: the gradient of parameter %" PRId64
                                " '%.60s' in part %d is not the same when the part is run again, "
                                "first in element %zu",
                                p, cz__model_name(parts->model, p), part, (at + i) / element);
    }
    return CZ_OK;
}

static cz_status clear_gradients(const cz_parts *parts)
{
    for (int64_t p = 0; p < parts->param_count; p++) {
        void *gradient = cz__model_gradient_address(parts->model, p);
        if (gradient && cz__model_requires_grad(parts->model, p) && bytes_of(parts, p) > 0)
            CZ_TRY(parts->device->zero(NULL, gradient, bytes_of(parts, p)));
    }
    return CZ_OK;
}

static cz_status check_part(const cz_parts *parts, int part, cz_parts_run run, void *context,
                            void **copies)
{
    CZ_TRY(clear_gradients(parts));
    CZ_TRY(CZ__CALL_PROGRAM(run(part, context)));
    CZ_TRY(copy_gradients(parts, copies));
    CZ_TRY(clear_gradients(parts));
    CZ_TRY(CZ__CALL_PROGRAM(run(part, context)));
    for (int64_t p = 0; p < parts->param_count; p++)
        if (cz__model_requires_grad(parts->model, p))
            CZ_TRY(compare_param(parts, part, p, copies[p]));
    return CZ_OK;
}

cz_status cz_parts_check(cz_parts *parts, cz_parts_run run, void *context)
{
    if (!parts || !run)
        return cz__fail(CZ_ERR_ARGUMENT, "parts check: %s is NULL", parts ? "run" : "parts");
    if (parts->added > 0)
        return cz__fail(CZ_ERR_STATE, "parts check: a part of the step was added already");
    void **copies = cz__calloc((size_t)parts->param_count, sizeof *copies);
    if (!copies)
        return cz__fail(CZ_ERR_MEMORY,
                        "parts check: no memory for a table of %" PRId64 " parameters",
                        parts->param_count);
    cz_status status = CZ_OK;
    for (int i = 0; i < parts->own_count && !status; i++)
        status = check_part(parts, cz_parts_own(parts, i), run, context, copies);
    for (int64_t p = 0; p < parts->param_count; p++)
        cz__free(copies[p]);
    cz__free(copies);
    return status;
}
