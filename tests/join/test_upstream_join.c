/* SPDX-License-Identifier: MIT */
/* Counterpart of upstream's test of joins: gradients and parameters of a data-parallel run with
 * uneven inputs are recorded on the rank with most of them; then a sharded optimizer, behind a
 * joinable of the program's own that writes the recorded gradients, has the same parameters after
 * every step, those of shadows too. And what upstream gets wrong: the two together, without that
 * help. */
#include "support/joinables.h"
#include "zero/upstream.h"
#include "tensor/model.h"

enum { EPOCHS = 2, BATCH = 20, PARAMS = 6, MAX_STEPS = 64 };
static const cz_test_net_shape shape = {.layers = 3, .widths = {2, 3, 3, 3}};
static const double rate = 0.01;

typedef struct recording {
    int64_t count; /* numbers of one step: all gradients, or all parameters */
    float *grads, *values;
} recording;

typedef struct runner {
    cz_group *group;
    cz_test_net net;
    cz_ddp *ddp;
    cz_optim *optim;
    cz_zero *zero;
    cz_join *join;
    recording *record;
    int steps;
    float inputs[BATCH * 2], targets[BATCH * 3];
} runner;

static void close_runner(runner *r)
{
    if (r->join)
        (void)cz_join_end(&r->join, CZ_ERR_STATE);
    cz_zero_destroy(&r->zero);
    cz_optim_destroy(&r->optim);
    cz_ddp_destroy(&r->ddp);
    cz_test_net_destroy(&r->net);
}

static int inputs_of(const runner *r)
{
    return EPOCHS * (3 + cz_group_rank(r->group));
}

/* One step's gradients or values, in one piece. */
static void copy_out(const runner *r, float *to, bool grads)
{
    for (int64_t p = 0; p < PARAMS; p++) {
        const int64_t count = cz_tensor_count(cz__model_value(r->net.model, p));
        memcpy(to, grads ? r->net.grads[p] : cz_test_net_value(&r->net, p), (size_t)count * 4);
        to += count;
    }
}

static cz_status backward(runner *r, int batch)
{
    double loss;
    cz_test_stream_f32((uint64_t)(1000 * cz_group_rank(r->group) + batch), BATCH * 2, r->inputs);
    for (int p = 0; p < PARAMS; p++)
        memset(r->net.grads[p], 0, (size_t)cz_tensor_count(cz__model_value(r->net.model, p)) * 4);
    return cz_test_net_pass(&r->net, BATCH, r->inputs, r->targets, true, &loss);
}

static cz_status one_pass(runner *r, int batch)
{
    CZ_TRY(cz_ddp_begin(r->ddp, true));
    CZ_TRY(backward(r, batch));
    for (int64_t p = PARAMS - 1; p >= 0; p--)
        CZ_TRY(cz_ddp_mark_ready(r->ddp, p));
    return cz_ddp_finish(r->ddp);
}

/* The reference: passes in a join, an unsharded optimizer. */
static cz_status record_run(runner *r)
{
    cz_join_options options = CZ_JOIN_OPTIONS_INIT;
    CZ_TRY(cz_ddp_create(&r->ddp, r->group, r->net.model, NULL));
    CZ_TRY(cz_optim_create(&r->optim, r->net.model, cz_rule_adam(), CZ_HYPERS({"lr", rate}), NULL));
    CZ_TRY(
        cz_join_begin(&r->join, r->group, (cz_joinable[]){cz_test_join_ddp(r->ddp)}, 1, &options));
    for (int batch = 0; batch < inputs_of(r); batch++) {
        CZ_TRY(one_pass(r, batch));
        copy_out(r, r->record->grads + batch * r->record->count, true);
        CZ_TRY(cz_optim_step(r->optim, NULL, NULL));
        copy_out(r, r->record->values + batch * r->record->count, false);
    }
    CZ_TRY(cz_join_end(&r->join, CZ_OK));
    const int last = cz_group_size(r->group) - 1;
    const int64_t numbers = EPOCHS * (3 + last) * r->record->count;
    CZ_TRY(cz_broadcast(r->group, r->record->grads, numbers, CZ_F32, last, NULL));
    return cz_broadcast(r->group, r->record->values, numbers, CZ_F32, last, NULL);
}

/* After that many steps. */
static cz_status compare(const runner *r, int steps)
{
    static _Thread_local float values[256];
    copy_out(r, values, false);
    if (memcmp(values, r->record->values + (steps - 1) * r->record->count,
               (size_t)r->record->count * 4) == 0)
        return CZ_OK;
    return cz_fail(CZ_ERR_STATE, "rank %d of %d: parameters differ after step %d",
                   cz_group_rank(r->group), cz_group_size(r->group), steps);
}

/* ---- the gradient setter ---- */

static cz_status enter(void *object, cz_join *join, int number)
{
    ((runner *)object)->join = join;
    return CZ_OK;
}

/* Those of the next step, which belongs to a shadow or not. */
static cz_status set_gradients(runner *r)
{
    const float *from = r->record->grads + r->steps++ * r->record->count;
    for (int64_t p = 0; p < PARAMS; p++) {
        const int64_t count = cz_tensor_count(cz__model_value(r->net.model, p));
        memcpy(r->net.grads[p], from, (size_t)count * 4);
        CZ_TRY(cz_model_set_gradient(r->net.model, p, r->net.grads[p]));
        from += count;
    }
    return CZ_OK;
}

static cz_status shadow(void *object, cz_join *join)
{
    CZ_TRY(compare(object,
                   ((runner *)object)->steps)); /* of the shadow before, or the last own step */
    return set_gradients(object);
}

static cz_status set_by_hand(runner *r)
{
    const cz_joinable list[] = {{sizeof(cz_joinable), "setter", r, enter, shadow, NULL, NULL},
                                cz_test_join_zero(r->zero)};
    cz_join *join;
    CZ_TRY(cz_join_begin(&join, r->group, list, 2, NULL));
    for (int batch = 0; batch < inputs_of(r); batch++) {
        CZ_TRY(cz_join_notify(join, 0));
        CZ_TRY(set_gradients(r));
        CZ_TRY(cz_zero_step(r->zero, NULL, NULL));
        CZ_TRY(compare(r, r->steps));
    }
    CZ_TRY(cz_join_end(&join, CZ_OK));
    return compare(r, EPOCHS * (3 + cz_group_size(r->group) - 1));
}

/* ddp and a sharded optimizer, nothing else. */
static cz_status together(runner *r)
{
    CZ_TRY(cz_join_begin(&r->join, r->group,
                         (cz_joinable[]){cz_test_join_ddp(r->ddp), cz_test_join_zero(r->zero)}, 2,
                         NULL));
    for (int batch = 0; batch < inputs_of(r); batch++) {
        CZ_TRY(one_pass(r, batch));
        CZ_TRY(cz_zero_step(r->zero, NULL, NULL));
        CZ_TRY(compare(r, batch + 1));
    }
    CZ_TRY(cz_join_end(&r->join, CZ_OK));
    return compare(r, EPOCHS * (3 + cz_group_size(r->group) - 1));
}

static cz_status open_runner(runner *r, cz_group *group, recording *record)
{
    r->group = group;
    r->record = record;
    CZ_TRY(cz_test_net_create(&r->net, &shape, 0));
    record->count = cz__model_element_count(r->net.model);
    return CZ_OK;
}

static cz_status joined(runner *r, recording *record, cz_group *group, bool by_hand)
{
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    options.gradients = CZ_GRADIENTS_REDUCED;
    CZ_TRY(open_runner(r, group, record));
    if (!by_hand)
        CZ_TRY(cz_ddp_create(&r->ddp, group, r->net.model, NULL));
    options.ddp = r->ddp;
    CZ_TRY(cz_zero_create(&r->zero, group, r->net.model, cz_rule_adam(), CZ_HYPERS({"lr", rate}),
                          &options));
    return by_hand ? set_by_hand(r) : together(r);
}

static cz_status body(cz_group *group, void *context)
{
    static _Thread_local float grads[MAX_STEPS * 256], values[MAX_STEPS * 256];
    recording record = {0, grads, values};
    runner reference = {0}, sharded = {0};
    cz_status status = open_runner(&reference, group, &record);
    THEN(record_run(&reference));
    THEN(joined(&sharded, &record, group, *(const bool *)context));
    close_runner(&reference);
    close_runner(&sharded);
    return status;
}

static void run_worlds(bool by_hand)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++)
        assert_ranks_ok(worlds[w], body, &by_hand);
}

TEST(upstream_zero_join)
{
    run_worlds(true);
}

TEST(difference_join_of_ddp_and_zero)
{
    run_worlds(false);
}
