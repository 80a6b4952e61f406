/* SPDX-License-Identifier: MIT */
/* Known values: in parameters, a buffer, a slot of an optimizer, and dictionaries. A mixture of two
 * steps has a value of the wrong one. */
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 6, PARTS = 8, FEW_NUMBERS = 33, MANY_NUMBERS = 400000 };

static const int64_t sizes[PARAMETERS] = {4000, 1, 333, 64, 9001, 17};

/* A whole number below 2^24: exact, and no two steps near each other have the same. */
static float value_of(int64_t step, int64_t place)
{
    const uint64_t mixed =
        (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)place * 0xbf58476d1ce4e5b9u;
    return (float)(mixed >> 40);
}

static int64_t element_count(void)
{
    int64_t count = 0;
    for (int p = 0; p < PARAMETERS; p++)
        count += sizes[p];
    return count;
}

/* ---- a rule whose step makes known values ---- */

static const cz_slot_spec slots[] = {{"step", CZ_SLOT_SCALAR, 0, NULL},
                                     {"shadow", CZ_SLOT_ELEMENT, 0, NULL}};

static unsigned slots_used(const double *hypers)
{
    (void)hypers;
    return 3;
}

static void prepare(const cz_rule_step *step, double *coefficients, unsigned *flags)
{
    (void)step, (void)coefficients, (void)flags;
}

static float shadow_of(float value)
{
    return -1 - value;
}

static void kernel(void *queue, int64_t count, void *param, const void *grad, void *const *slot,
                   const double *coefficients, unsigned flags)
{
    float *p = param, *shadow = slot[0];
    const float *g = grad;
    (void)queue, (void)coefficients, (void)flags;
    for (int64_t i = 0; i < count; i++) {
        p[i] = g[i];
        shadow[i] = shadow_of(g[i]);
    }
}

static cz_update_kernel find_kernel(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context)
{
    (void)grad, (void)state, (void)context;
    return device == cz_device_cpu() && param == CZ_F32 ? kernel : NULL;
}

static const cz_rule rule = {.abi = CZ_RULE_ABI,
                             .size = sizeof(cz_rule),
                             .name = "stamp",
                             .slot_size = sizeof(cz_slot_spec),
                             .slot_count = 2,
                             .slots = slots,
                             .slots_used = slots_used,
                             .prepare = prepare,
                             .find_kernel = find_kernel};

/* ---- making it ---- */

static cz_status add_parameters(kill_state *s)
{
    int64_t begin = 0;
    for (int p = 0; p < PARAMETERS; begin += sizes[p++]) {
        char name[24];
        snprintf(name, sizeof name, "layer/%d", p);
        CZ_TRY(cz_model_add(s->model, name, s->params + begin, s->grads + begin, CZ_F32, 1,
                            &sizes[p]));
    }
    return cz_model_add_buffer(s->model, "seen", s->buffer, CZ_F32, 1, (int64_t[]){64});
}

cz_status kill_state_create(kill_state *s, cz_group *world, const char *folder,
                            cz_partition partition, int keep)
{
    cz_zero_options sharded = CZ_ZERO_OPTIONS_INIT;
    cz_checkpoint_options what = CZ_CHECKPOINT_OPTIONS_INIT;
    *s = (kill_state){.world = world};
    s->params = calloc((size_t)element_count(), sizeof *s->params);
    s->grads = calloc((size_t)element_count(), sizeof *s->grads);
    if (!s->params || !s->grads)
        return cz_fail(CZ_ERR_MEMORY, "no memory");
    CZ_TRY(cz_model_create(&s->model));
    CZ_TRY(add_parameters(s));
    sharded.partition = partition;
    CZ_TRY(cz_parts_create(&s->parts, world, s->model,
                           &(cz_parts_options){sizeof(cz_parts_options), PARTS, 0}));
    sharded.parts = s->parts;
    CZ_TRY(cz_zero_create(&s->zero, world, s->model, &rule, NULL, &sharded));
    what.zero = s->zero;
    what.keep = keep;
    return cz_checkpoint_create(&s->checkpoint, world, folder, &what);
}

void kill_state_clear(kill_state *s)
{
    cz_checkpoint_destroy(&s->checkpoint);
    cz_zero_destroy(&s->zero);
    cz_parts_destroy(&s->parts);
    cz_model_destroy(&s->model);
    free(s->params);
    free(s->grads);
}

cz_status kill_state_advance(kill_state *s)
{
    s->step++;
    for (int64_t i = 0; i < element_count(); i++) /* the mean of 8 of them is the same number */
        s->grads[i] = value_of(s->step, i);
    for (int i = 0; cz_parts_own(s->parts, i) >= 0; i++)
        CZ_TRY(cz_parts_add(s->parts));
    for (int i = 0; i < 64; i++)
        s->buffer[i] = value_of(s->step, -1 - i);
    return cz_zero_step(s->zero, NULL, NULL);
}

/* ---- saving ---- */

/* Now and then a rank has much more to write than the others, and is the last to be done. */
static int64_t number_count(int64_t step, int64_t place)
{
    return (int64_t)value_of(step, -place) % 6 == 0 ? MANY_NUMBERS : FEW_NUMBERS;
}

static cz_status fill_dict(cz_state_dict *dict, int64_t step, int64_t place)
{
    const int64_t count = number_count(step, place);
    void *numbers;
    CZ_TRY(cz_state_dict_set_integer(dict, "step", step));
    CZ_TRY(cz_state_dict_set_integer(dict, "place", place));
    CZ_TRY(cz_state_dict_add_tensor(dict, "numbers", CZ_F32, 1, &count, &numbers));
    for (int64_t i = 0; i < count; i++)
        ((float *)numbers)[i] = value_of(step, place + i);
    return CZ_OK;
}

static cz_status make_dict(cz_state_dict **dict, int64_t step, int64_t place)
{
    CZ_TRY(cz_state_dict_create(dict));
    return fill_dict(*dict, step, place);
}

/* Where the numbers of the dictionaries begin: the common one, and a rank's own. */
static int64_t place_of_common(void)
{
    return 1000000;
}

static int64_t place_of_own(int rank)
{
    return 2000000 + 1000 * (int64_t)rank;
}

cz_status kill_state_save(kill_state *s, bool later)
{
    cz_state_dict *common = NULL, *own = NULL;
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    cz_status status = make_dict(&common, s->step, place_of_common());
    if (status == CZ_OK)
        status = make_dict(&own, s->step, place_of_own(cz_group_rank(s->world)));
    options.step = s->step;
    options.common = common;
    options.own = own;
    if (status == CZ_OK)
        status = later ? cz_checkpoint_save_async(s->checkpoint, &options)
                       : cz_checkpoint_save(s->checkpoint, &options);
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&own);
    return status;
}

/* ---- looking at what was loaded ---- */

static cz_status compare(const char *what, const float *found, int64_t count, int64_t step,
                         int64_t place, bool shadow, int direction)
{
    for (int64_t i = 0; i < count; i++) {
        const float wanted = value_of(step, place + direction * i);
        if (found[i] != (shadow ? shadow_of(wanted) : wanted))
            return cz_fail(CZ_ERR_FORMAT, "%s: element %" PRId64 " is %g, step %" PRId64 " has %g",
                           what, i, (double)found[i], step,
                           (double)(shadow ? shadow_of(wanted) : wanted));
    }
    return CZ_OK;
}

static cz_status compare_dict(const char *what, const cz_state_dict *dict, int64_t step,
                              int64_t place)
{
    cz_state_dict *wanted = NULL;
    cz_status status = make_dict(&wanted, step, place);
    if (status == CZ_OK && !cz_state_dict_equal(dict, wanted))
        status = cz_fail(CZ_ERR_FORMAT, "%s dictionary is not that of step %" PRId64, what, step);
    cz_state_dict_destroy(&wanted);
    return status;
}

static cz_status compare_state(const cz_state_dict *dict, int64_t step)
{
    const cz_state_dict *state, *of;
    int64_t begin = 0, steps;
    CZ_TRY(cz_state_dict_get_dict(dict, "state", &state));
    for (int p = 0; p < PARAMETERS; begin += sizes[p++]) {
        char name[24];
        cz_tensor shadow;
        snprintf(name, sizeof name, "layer/%d", p);
        CZ_TRY(cz_state_dict_get_dict(state, name, &of));
        CZ_TRY(cz_state_dict_get_integer(of, "step", &steps));
        CZ_TRY(cz_state_dict_get_tensor(of, "shadow", &shadow));
        if (steps != step)
            return cz_fail(CZ_ERR_FORMAT, "%s was updated %" PRId64 " times, not %" PRId64, name,
                           steps, step);
        CZ_TRY(compare("state", shadow.data, sizes[p], step, begin, true, 1));
    }
    return CZ_OK;
}

static cz_status look_at_state(kill_state *s)
{
    cz_state_dict *dict = NULL;
    CZ_TRY(cz_zero_consolidate_state_dict(s->zero, CZ_ALL_RANKS));
    CZ_TRY(cz_zero_state_dict(s->zero, &dict));
    const cz_status status = compare_state(dict, s->step);
    cz_state_dict_destroy(&dict);
    return status;
}

static cz_status look_at_own(kill_state *s, int rank)
{
    cz_state_dict *own = NULL;
    CZ_TRY(cz_checkpoint_fetch_own(s->checkpoint, rank, &own));
    const cz_status status = compare_dict("a rank's own", own, s->step, place_of_own(rank));
    cz_state_dict_destroy(&own);
    return status;
}

static cz_status look(kill_state *s, const cz_load_result *result)
{
    CZ_TRY(look_at_state(s));
    CZ_TRY(compare("parameters", s->params, element_count(), s->step, 0, false, 1));
    CZ_TRY(compare("buffer", s->buffer, 64, s->step, -1, false, -1));
    CZ_TRY(compare_dict("the common", result->common, s->step, place_of_common()));
    if (result->own)
        CZ_TRY(
            compare_dict("the own", result->own, s->step, place_of_own(cz_group_rank(s->world))));
    for (int rank = 0; rank < result->world_size; rank++)
        CZ_TRY(look_at_own(s, rank));
    return CZ_OK;
}

cz_status kill_state_load(kill_state *s, int64_t step, int64_t *found)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    options.step = step;
    options.missing_ok = 1;
    CZ_TRY(cz_checkpoint_load(s->checkpoint, &options, &result));
    *found = result.step;
    cz_status status = CZ_OK;
    if (result.step >= 0) {
        s->step = result.step;
        status = look(s, &result);
    }
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    return status;
}
