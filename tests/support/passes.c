/* SPDX-License-Identifier: MIT */
/* Trainings over passes of a data-parallel model. */
#include "support/passes.h"

#include <pthread.h>
#include <string.h>

#include "czero/hooks.h"
#include "support/cz_test.h"
#include "tensor/model.h"

/* What all ranks look at: the reference's values after each step, its state at the end of the
 * stretch, and what the stretch before has left. */
typedef struct shared {
    const cz_test_passes *t;
    const cz_test_stretch *stretch;
    int first, steps; /* of this stretch; of all */
    size_t bytes;     /* of all values */
    char *snapshots;  /* owned: steps + 1 of them, the first before the first step */
    cz_test_memory memory;
    cz_optim *optim;
    cz_sched *sched;
    cz_state_dict *wanted;                /* owned: the reference's, at the end of the stretch */
    cz_state_dict *saved, *saved_sched;   /* owned: from the stretch before; NULL: none */
    cz_state_dict *handed, *handed_sched; /* owned: by the last rank, for the next one */
} shared;

static int micro_batches(const cz_test_passes *t, int step)
{
    return t->micro_batches ? t->micro_batches(step) : 1;
}

static bool uses(const cz_test_passes *t, int rank, int step, int micro, int64_t param)
{
    return !t->uses || t->uses(rank, step, micro, param);
}

static int marks(const cz_test_passes *t, int64_t param)
{
    return t->marks ? t->marks(param) : 1;
}

/* What one of the marks adds to a gradient: exact in every order of sums. */
static double part(int rank, int step, int micro, int mark, int64_t param, int64_t i)
{
    return (double)((rank + 1) * ((i + param + step) % 5 - 2) + micro + 3 * mark) / 32;
}

static cz_status edit(const cz_test_passes *t, const cz_test_subject *subject, int step)
{
    return t->edit ? t->edit(subject, step) : CZ_OK;
}

static size_t bytes_of(const cz_test_passes *t, int64_t param)
{
    return (size_t)t->sizes[param] * cz_dtype_size(t->dtype);
}

static void *value_of(const cz_model *model, int64_t param)
{
    return cz__model_value(model, param)->data;
}

static char *snapshot(const shared *s, int step) /* before that step */
{
    return s->snapshots + (size_t)step * s->bytes;
}

/* ---- the reference ---- */

/* Values shared by a group, or NULL: not. */
static cz_status create_memory(const cz_test_passes *t, cz_test_memory *memory, cz_group *group)
{
    const cz_test_training layout = {.param_count = t->param_count,
                                     .sizes = t->sizes,
                                     .dtype = t->dtype,
                                     .flat = t->flat,
                                     .rule = t->rule};
    return group ? cz_test_memory_share(memory, &layout, group)
                 : cz_test_memory_create(memory, &layout);
}

/* The mean over ranks of what they have added up; false: nobody has anything. */
static bool set_mean(const shared *s, int step, int64_t param)
{
    const cz_test_passes *t = s->t;
    const int ranks = s->stretch->world_size;
    bool any = false;
    for (int64_t i = 0; i < t->sizes[param] || i == 0; i++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++)
            for (int m = 0; m < micro_batches(t, step); m++)
                for (int k = 0; k < marks(t, param) && uses(t, r, step, m, param); k++) {
                    sum += part(r, step, m, k, param, i);
                    any = true;
                }
        if (t->sizes[param] > 0)
            cz_test_store(s->memory.grads[param], t->dtype, i,
                          t->dtype == CZ_F64 ? sum / ranks : (double)((float)sum / (float)ranks));
    }
    return any;
}

static cz_status reference_step(shared *s, int step)
{
    const cz_test_passes *t = s->t;
    const cz_test_subject subject = {s->memory.model, s->optim, NULL};
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    options.max_norm = t->max_norm;
    CZ_TRY(edit(t, &subject, step));
    for (int64_t p = 0; p < t->param_count; p++)
        CZ_TRY(cz_model_set_gradient(s->memory.model, p,
                                     set_mean(s, step, p) ? s->memory.grads[p] : NULL));
    CZ_TRY(cz_optim_step(s->optim, &options, NULL));
    if (s->sched)
        CZ_TRY(cz_sched_step(s->sched));
    char *to = snapshot(s, step + 1);
    for (int64_t p = 0; p < t->param_count; p++) {
        memcpy(to, s->memory.values[p], bytes_of(t, p));
        to += bytes_of(t, p);
    }
    return CZ_OK;
}

static cz_status open_reference(shared *s, const cz_test_stretch *stretches)
{
    const cz_test_passes *t = s->t;
    const cz_optim_options groups = {sizeof groups, t->groups, t->group_count, 0, 0};
    for (; stretches->world_size > 0; stretches++)
        s->steps += stretches->steps;
    for (int64_t p = 0; p < t->param_count; p++)
        s->bytes += bytes_of(t, p);
    s->snapshots = calloc((size_t)s->steps + 1, s->bytes + 1);
    if (!s->snapshots)
        return cz_fail(CZ_ERR_MEMORY, "test: %d snapshots", s->steps);
    CZ_TRY(create_memory(t, &s->memory, NULL));
    char *to = s->snapshots;
    for (int64_t p = 0; p < t->param_count; p++) {
        memcpy(to, s->memory.values[p], bytes_of(t, p));
        to += bytes_of(t, p);
    }
    CZ_TRY(edit(t, &(cz_test_subject){s->memory.model, NULL, NULL}, -1));
    CZ_TRY(cz_optim_create(&s->optim, s->memory.model, t->rule, t->hypers, &groups));
    return t->schedule ? t->schedule(&s->sched, s->optim) : CZ_OK;
}

/* ---- a rank ---- */

typedef struct part_of_training {
    const shared *s;
    cz_group *group;
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_zero *zero;
    cz_sched *sched;
    int step, micro;
    int64_t order[CZ_TEST_PASSES_PARAMS]; /* of marks in this pass */
} part_of_training;

static void clear(part_of_training *r)
{
    cz_sched_destroy(&r->sched);
    cz_zero_destroy(&r->zero);
    cz_ddp_destroy(&r->ddp);
    cz_test_memory_destroy(&r->memory);
}

static void told(int64_t param, void *value, void *context)
{
}

/* Only rank 0 knows the values: making the data-parallel model brings them to all. */
static void set_values(part_of_training *r)
{
    const cz_test_passes *t = r->s->t;
    const char *from = snapshot(r->s, r->s->first);
    for (int64_t p = 0; p < t->param_count; p++) {
        if (cz_group_rank(r->group) == 0)
            memcpy(r->memory.values[p], from, bytes_of(t, p));
        else if (!t->shared)
            memset(r->memory.values[p], 0x41, bytes_of(t, p));
        from += bytes_of(t, p);
    }
}

static cz_status make_optimizer(part_of_training *r)
{
    const cz_test_passes *t = r->s->t;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    int owners[CZ_TEST_PASSES_PARAMS];
    for (int64_t p = 0; p < t->param_count; p++)
        owners[p] = (int)((p * p + 1) % cz_group_size(r->group));
    options.groups = t->groups;
    options.group_count = t->group_count;
    options.partition = r->s->stretch->partition;
    options.owners = options.partition == CZ_PARTITION_GIVEN ? owners : NULL;
    options.owner_count = options.owners ? t->param_count : 0;
    options.parameters_as_bucket_view = t->views;
    options.moved = told;
    options.overlap = r->s->stretch->overlap;
    options.overlap_gather = t->late && options.overlap == CZ_OVERLAP_INTERLEAVED;
    options.ddp = r->ddp;
    return cz_zero_create(&r->zero, r->group, r->memory.model, t->rule, t->hypers, &options);
}

/* What earlier stretches did between steps is done again; then their state is loaded. */
static cz_status catch_up(part_of_training *r)
{
    const cz_test_passes *t = r->s->t;
    const cz_test_subject subject = {r->memory.model, NULL, r->zero};
    for (int step = 0; step < r->s->first; step++)
        CZ_TRY(edit(t, &subject, step));
    if (r->s->saved_sched)
        CZ_TRY(cz_sched_load_state_dict(r->sched, r->s->saved_sched));
    return r->s->saved ? cz_zero_load_state_dict(r->zero, r->s->saved) : CZ_OK;
}

static cz_status create(part_of_training *r)
{
    const cz_test_passes *t = r->s->t;
    CZ_TRY(create_memory(t, &r->memory, t->shared ? r->group : NULL));
    set_values(r);
    CZ_TRY(edit(t, &(cz_test_subject){r->memory.model, NULL, NULL}, -1));
    CZ_TRY(cz_ddp_create(&r->ddp, r->group, r->memory.model, &t->buckets));
    for (int64_t p = 0; p < t->param_count; p++)
        CZ_TRY(cz_ddp_set_uses(r->ddp, p, marks(t, p)));
    if (t->hook)
        CZ_TRY(cz_ddp_register_hook_by_name(r->ddp, t->hook, NULL));
    CZ_TRY(make_optimizer(r));
    if (t->schedule)
        CZ_TRY(t->schedule(&r->sched, cz_zero_local_optim(r->zero)));
    return catch_up(r);
}

/* Another order in each pass, on each rank. */
static void shuffle(part_of_training *r)
{
    uint64_t random = (uint64_t)(r->step * 7919 + r->micro * 104729 + cz_group_rank(r->group)) + 1;
    for (int64_t k = 0; k < r->s->t->param_count; k++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t j = (int64_t)((random >> 33) % (uint64_t)(k + 1));
        r->order[k] = r->order[j];
        r->order[j] = k;
    }
}

/* What is read until the last mark. */
static cz_status check_old(const part_of_training *r, int64_t param)
{
    const char *wanted = snapshot(r->s, r->step);
    for (int64_t p = 0; p < param; p++)
        wanted += bytes_of(r->s->t, p);
    return memcmp(value_of(r->memory.model, param), wanted, bytes_of(r->s->t, param)) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "rank %d, step %d: parameter %d was written before its mark",
                         cz_group_rank(r->group), r->step, (int)param);
}

/* Thread `first` of `stride` makes its part of the gradients and marks them. */
static cz_status make_gradients(part_of_training *r, int first, int stride)
{
    const cz_test_passes *t = r->s->t;
    const int rank = cz_group_rank(r->group);
    for (int64_t k = first; k < t->param_count; k += stride) {
        const int64_t p = r->order[k];
        void *grad = r->memory.grads[p];
        for (int m = 0; m < marks(t, p) && uses(t, rank, r->step, r->micro, p); m++) {
            for (int64_t i = 0; i < t->sizes[p]; i++)
                cz_test_store(grad, t->dtype, i,
                              cz_test_load(grad, t->dtype, i) +
                                  part(rank, r->step, r->micro, m, p, i));
            if (t->shared)
                CZ_TRY(check_old(r, p));
            CZ_TRY(cz_ddp_mark_ready(r->ddp, p));
        }
    }
    return CZ_OK;
}

typedef struct helper {
    part_of_training *rank;
    pthread_t thread;
    int number;
    cz_status status;
} helper;

static void *help(void *context)
{
    helper *h = context;
    h->status = make_gradients(h->rank, h->number, h->rank->s->t->threads);
    return NULL;
}

static cz_status backward(part_of_training *r)
{
    enum { MOST = 8 };
    helper helpers[MOST];
    const int count = r->s->t->threads;
    cz_status status = CZ_OK;
    if (count == 0)
        return make_gradients(r, 0, 1);
    for (int k = 0; k < count && k < MOST; k++) {
        helpers[k] = (helper){.rank = r, .number = k, .status = CZ_OK};
        if (pthread_create(&helpers[k].thread, NULL, help, &helpers[k]) != 0)
            abort(); /* the others are in the middle of it */
    }
    for (int k = 0; k < count && k < MOST; k++) {
        pthread_join(helpers[k].thread, NULL);
        status = status == CZ_OK ? helpers[k].status : status;
    }
    return status == CZ_OK ? CZ_OK : cz_fail(status, "a thread's mark was refused");
}

static cz_status compare(const part_of_training *r)
{
    const cz_test_passes *t = r->s->t;
    const char *wanted = snapshot(r->s, r->step + 1);
    for (int64_t p = 0; p < t->param_count; p++) {
        CZ_TRY(cz_zero_wait_param(r->zero, p));
        if (memcmp(value_of(r->memory.model, p), wanted, bytes_of(t, p)) != 0)
            return cz_fail(CZ_ERR_STATE, "rank %d, step %d: parameter %d differs",
                           cz_group_rank(r->group), r->step, (int)p);
        wanted += bytes_of(t, p);
    }
    return CZ_OK;
}

static cz_status one_step(part_of_training *r)
{
    const cz_test_passes *t = r->s->t;
    const cz_test_subject subject = {r->memory.model, NULL, r->zero};
    cz_step_options options = CZ_STEP_OPTIONS_INIT;
    cz_zero_info info = CZ_ZERO_INFO_INIT;
    options.max_norm = t->max_norm;
    CZ_TRY(cz_zero_get_info(r->zero, &info));
    const bool inside = info.overlap != CZ_OVERLAP_NONE;
    CZ_TRY(edit(t, &subject, r->step));
    CZ_TRY(cz_zero_zero_grad(r->zero, false));
    if (inside && t->max_norm > 0)
        CZ_TRY(cz_zero_set_overlap(r->zero, info.overlap, &options));
    const int last = micro_batches(t, r->step) - 1;
    for (r->micro = 0; r->micro <= last; r->micro++) {
        shuffle(r);
        CZ_TRY(cz_ddp_begin(r->ddp, r->micro == last));
        CZ_TRY(backward(r));
        CZ_TRY(cz_ddp_finish(r->ddp));
    }
    CZ_TRY(cz_zero_step(r->zero, inside ? NULL : &options, NULL));
    if (r->sched)
        CZ_TRY(cz_sched_step(r->sched));
    CZ_TRY(compare(r));
    return t->visit ? t->visit(&subject, r->group, r->step) : CZ_OK;
}

/* The last rank gets all state, which has the reference's bits. */
static cz_status hand_over(part_of_training *r)
{
    shared *s = (shared *)r->s;
    const int last = cz_group_size(r->group) - 1;
    CZ_TRY(cz_zero_consolidate_state_dict(r->zero, last));
    if (cz_group_rank(r->group) != last)
        return CZ_OK;
    CZ_TRY(cz_zero_state_dict(r->zero, &s->handed));
    if (r->sched)
        CZ_TRY(cz_sched_state_dict(r->sched, &s->handed_sched));
    return cz_state_dict_equal(s->handed, s->wanted)
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "the dictionary after step %d differs", r->step - 1);
}

static cz_status train(part_of_training *r)
{
    const int end = r->s->first + r->s->stretch->steps;
    CZ_TRY(create(r));
    for (r->step = r->s->first; r->step < end; r->step++)
        CZ_TRY(one_step(r));
    return hand_over(r);
}

static cz_status rank_body(cz_group *group, void *context)
{
    part_of_training r = {.s = context, .group = group};
    const cz_status status = train(&r);
    clear(&r);
    return status;
}

/* Ranks 1, 3, 5, … of twice as many, in reverse order; the others are not in it. */
static cz_status some_body(cz_group *group, void *context)
{
    enum { MOST = 32 };
    const shared *s = context;
    const int count = s->stretch->world_size;
    int ranks[MOST];
    cz_group *sub = NULL;
    for (int k = 0; k < count && k < MOST; k++)
        ranks[k] = 2 * (count - 1 - k) + 1;
    CZ_TRY(cz_group_subset(group, ranks, count, &sub));
    const cz_status status = sub ? rank_body(sub, context) : CZ_OK;
    cz_group_destroy(&sub);
    return status;
}

static cz_status run_stretch(shared *s, char why[256])
{
    const int ranks = s->stretch->world_size, end = s->first + s->stretch->steps;
    cz_state_dict_destroy(&s->wanted);
    for (int step = s->first; step < end; step++)
        CZ_TRY(reference_step(s, step));
    CZ_TRY(cz_optim_state_dict(s->optim, &s->wanted));
    CZ_TRY(s->t->sub_group ? cz_test_run_ranks(2 * ranks, some_body, s, why)
                           : cz_test_run_ranks(ranks, rank_body, s, why));
    cz_state_dict_destroy(&s->saved);
    cz_state_dict_destroy(&s->saved_sched);
    s->saved = s->handed;
    s->saved_sched = s->handed_sched;
    s->handed = s->handed_sched = NULL;
    s->first = end;
    return CZ_OK;
}

cz_status cz_test_passes_run(const cz_test_passes *passes, const cz_test_stretch *stretches,
                             char why[256])
{
    shared s = {.t = passes};
    why[0] = '\0';
    cz_status status = open_reference(&s, stretches);
    for (; status == CZ_OK && stretches->world_size > 0; stretches++) {
        s.stretch = stretches;
        status = run_stretch(&s, why);
    }
    if (status != CZ_OK && !why[0])
        snprintf(why, 256, "reference: %s", cz_last_error());
    cz_sched_destroy(&s.sched);
    cz_optim_destroy(&s.optim);
    cz_test_memory_destroy(&s.memory);
    cz_state_dict_destroy(&s.wanted);
    cz_state_dict_destroy(&s.saved);
    cz_state_dict_destroy(&s.saved_sched);
    cz_state_dict_destroy(&s.handed);
    cz_state_dict_destroy(&s.handed_sched);
    free(s.snapshots);
    return status;
}

cz_status cz_test_passes_on(const cz_test_passes *passes, cz_test_stretch stretch, char why[256])
{
    const cz_test_stretch one[] = {stretch, {0, 0, CZ_PARTITION_ELEMENTS, CZ_OVERLAP_NONE}};
    return cz_test_passes_run(passes, one, why);
}
