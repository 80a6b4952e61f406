/* SPDX-License-Identifier: MIT */
/* Curves and sums of a run: in a row of doubles, which is what travels and what a checkpoint
 * keeps. */
#include "history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- curves ---- */

bool curve_add(curve *c, int step, double value)
{
    if (c->count == c->room) {
        const int room = c->room ? 2 * c->room : 256;
        point *more = realloc(c->points, (size_t)room * sizeof *more);
        if (!more)
            return false;
        c->points = more;
        c->room = room;
    }
    c->points[c->count++] = (point){step, value};
    return true;
}

static double mean(const curve *c, int begin, int end)
{
    double sum = 0;
    begin = begin > 0 ? begin : 0;
    end = end < c->count ? end : c->count;
    for (int i = begin; i < end; i++)
        sum += c->points[i].value;
    return end > begin ? sum / (end - begin) : NAN;
}

/* Points are in the order of their steps. */
static int points_up_to(const curve *c, int step)
{
    int count = c->count;
    while (count > 0 && c->points[count - 1].step > step)
        count--;
    return count;
}

double curve_mean_before(const curve *c, int step, int count)
{
    const int end = points_up_to(c, step);
    return mean(c, end - count, end);
}

double curve_mean_after(const curve *c, int step, int count)
{
    const int begin = points_up_to(c, step);
    return mean(c, begin, begin + count);
}

/* ---- all of it as doubles: the curves' lengths, sums, and the curves ---- */

enum {
    CURVES = 5,
    OF_TRAINING = 3,
    SUMS = 6 + PHASE_COUNT + 2 * CARGO_COUNT,
    HEAD = CURVES + SUMS
};

/* The first ones are of training. */
static const char *const names[CURVES] = {"loss", "validation_loss", "learning_rate",
                                          "tokens_per_second", "resumed_on_ranks"};

static curve *curve_of(history *h, int nth)
{
    curve *const all[CURVES] = {&h->train, &h->validation, &h->rates, &h->speeds, &h->resumed};
    return all[nth];
}

/* Counts are whole numbers below 2^53. */
static void sums_out(const history *h, double *sums)
{
    const double single[] = {h->seconds,        h->paused,
                             h->smooth,         (double)h->times.steps,
                             h->update.seconds, (double)h->update.count};
    memcpy(sums, single, sizeof single);
    sums += sizeof single / sizeof *single;
    memcpy(sums, h->times.seconds, sizeof h->times.seconds);
    sums += PHASE_COUNT;
    for (int k = 0; k < CARGO_COUNT; k++) {
        *sums++ = (double)h->traffic.sent[k];
        *sums++ = (double)h->traffic.last[k];
    }
}

static void sums_in(history *h, const double *sums)
{
    h->seconds = *sums++;
    h->paused = *sums++;
    h->smooth = *sums++;
    h->times.steps = (int)*sums++;
    h->update.seconds = *sums++;
    h->update.count = (int64_t)*sums++;
    memcpy(h->times.seconds, sums, sizeof h->times.seconds);
    sums += PHASE_COUNT;
    for (int k = 0; k < CARGO_COUNT; k++) {
        h->traffic.sent[k] = (int64_t)*sums++;
        h->traffic.last[k] = (int64_t)*sums++;
    }
}

static void points_out(const curve *c, double *pairs)
{
    for (int i = 0; i < c->count; i++) {
        *pairs++ = c->points[i].step;
        *pairs++ = c->points[i].value;
    }
}

static cz_status points_in(curve *c, const double *pairs, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!curve_add(c, (int)pairs[2 * i], pairs[2 * i + 1]))
            return cz_fail(CZ_ERR_MEMORY, "no memory for a curve of %lld points", (long long)count);
    return CZ_OK;
}

void history_clear(history *h)
{
    for (int k = 0; k < CURVES; k++)
        free(curve_of(h, k)->points);
    *h = (history){0};
}

/* ---- to all ranks ---- */

static cz_status take(history *h, const double *row)
{
    const double *pairs = row + HEAD;
    history_clear(h);
    sums_in(h, row + CURVES);
    for (int k = 0; k < CURVES; k++) {
        CZ_TRY(points_in(curve_of(h, k), pairs, (int64_t)row[k]));
        pairs += 2 * (int64_t)row[k];
    }
    return CZ_OK;
}

static double *give(history *h, size_t *bytes)
{
    size_t count = HEAD;
    for (int k = 0; k < CURVES; k++)
        count += 2 * (size_t)curve_of(h, k)->count;
    *bytes = count * sizeof(double);
    double *row = malloc(*bytes), *pairs = row + HEAD;
    if (!row)
        return NULL;
    sums_out(h, row + CURVES);
    for (int k = 0; k < CURVES; k++) {
        row[k] = curve_of(h, k)->count;
        points_out(curve_of(h, k), pairs);
        pairs += 2 * curve_of(h, k)->count;
    }
    return row;
}

cz_status history_share(history *h, cz_group *world)
{
    size_t bytes = 0, come;
    void *copy;
    const bool first = cz_group_rank(world) == 0;
    double *row = first ? give(h, &bytes) : NULL; /* NULL: 0 bytes come */
    cz_status status = cz_broadcast_object(world, row, row ? bytes : 0, 0, &copy, &come);
    free(row);
    CZ_TRY(status);
    if (come == 0)
        status = cz_fail(CZ_ERR_MEMORY, "no memory for what a checkpoint keeps of the curves");
    else if (!first)
        status = take(h, copy);
    cz_object_free(copy);
    return status;
}

/* ---- in dictionaries ---- */

cz_status history_to_dicts(const history *h, cz_state_dict *training, cz_state_dict *run)
{
    void *data;
    CZ_TRY(cz_state_dict_add_tensor(run, "sums", CZ_F64, 1, (int64_t[]){SUMS}, &data));
    sums_out(h, data);
    for (int k = 0; k < CURVES; k++) {
        const curve *c = curve_of((history *)h, k);
        CZ_TRY(cz_state_dict_add_tensor(k < OF_TRAINING ? training : run, names[k], CZ_F64, 2,
                                        (int64_t[]){c->count, 2}, &data));
        points_out(c, data);
    }
    return CZ_OK;
}

cz_status history_from_dicts(history *h, const cz_state_dict *training, const cz_state_dict *run)
{
    cz_tensor tensor;
    CZ_TRY(cz_state_dict_get_tensor(run, "sums", &tensor));
    if (tensor.dtype != CZ_F64 || cz_tensor_count(&tensor) != SUMS)
        return cz_fail(CZ_ERR_FORMAT, "the checkpoint's sums are those of another version");
    history_clear(h);
    sums_in(h, tensor.data);
    for (int k = 0; k < CURVES; k++) {
        CZ_TRY(cz_state_dict_get_tensor(k < OF_TRAINING ? training : run, names[k], &tensor));
        if (tensor.dtype != CZ_F64 || tensor.dimensions != 2 || tensor.shape[1] != 2)
            return cz_fail(CZ_ERR_FORMAT, "the checkpoint's '%s' is no curve", names[k]);
        CZ_TRY(points_in(curve_of(h, k), tensor.data, tensor.shape[0]));
    }
    return CZ_OK;
}
