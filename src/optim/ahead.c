/* SPDX-License-Identifier: MIT */
/* Gradients stand in a queue in the order in which they came, and threads take blocks of elements
 * from it. A step that may be clipped is made on trust: each block's squares are added for the
 * norm, what it had is kept, it is updated, all while it is in a cache. What has not begun when the
 * step ends waits for the norm and needs no log. Then nothing is left to do for what was updated
 * already, unless the norm says otherwise: it gets back what it had, and is updated with gradients
 * that are scaled. */
#include "optim/ahead.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/process.h"
#include "base/status.h"
#include "base/sum.h"
#include "base/thread.h"
#include "optim/undo.h"

/* Elements that a thread takes at a time, and that go through a cache together. */
enum { BLOCK = 1 << 16, TILE = 1 << 14 };

/* What is done to a block, in this order. */
enum { KEEP = 1, RESTORE = 2, SQUARE = 4, SCALE = 8, UPDATE = 16 };

typedef enum stage {
    ARRIVING, /* gradients come */
    ENDING,   /* no more come; what has not begun waits for the norm */
    MAKING,   /* the norm is known: all that is left to do */
    UNDOING   /* the step is not made */
} stage;

/* A parameter in a step. */
typedef struct entry {
    void *gradient;
    int64_t left;    /* elements that are not done in this round */
    int64_t trusted; /* those before this one were updated on trust; 1: an empty parameter was */
    bool begun;      /* its step count says so, and it is prepared */
    bool keeps;      /* there is room to undo that */
    cz__prepared prepared;
} entry;

struct cz__ahead {
    cz_optim *optim; /* borrowed */
    cz_in_backward_options options;
    cz__undo *undo;   /* owned; NULL: none */
    entry *entries;   /* owned, one for each parameter */
    int64_t *queue;   /* owned; parameters in the order in which they came */
    cz_sum *squares;  /* owned, one for each part of the work */
    void **gradients; /* owned; with undo, one for each parameter */
    int parts;
    bool is_whole; /* the rule sees whole parameters, one at a time */
    bool trusts;   /* updates are made before the norm is known */
    cz__description room;
    pid_t process;

    pthread_mutex_t lock; /* of all that follows, and of numbers that the optimizer has */
    pthread_cond_t work, idle;
    pthread_t thread;
    bool has_thread, stop, busy;
    bool leaving;   /* a part has found nothing to do: the others leave, too, and all begin again */
    bool has_guest; /* who waits does a part */
    uint64_t claimed; /* bit p: somebody does part p */
    bool open;        /* a step has begun and not ended */
    stage stage;
    double factor;                           /* that gradients are multiplied by, while MAKING */
    int64_t arrived, next, element, pending; /* of the queue; the next block; elements not begun */
};

/* ---- a block ---- */

typedef struct block {
    int64_t param, first, count;
    unsigned actions;
} block;

static int64_t elements_of(const cz__ahead *a, int64_t param)
{
    return cz_tensor_count(cz__model_value(a->optim->model, param));
}

/* Is it updated at all? */
static bool takes_part(const cz_optim *optim, int64_t param)
{
    return cz__optim_holds(optim, param) && optim->tables.trainable[param];
}

/* From this element on. */
static unsigned choose_actions(const cz__ahead *a, int64_t param, int64_t first)
{
    const entry *e = &a->entries[param];
    const bool is_plain = cz__optim_given_dtype(a->optim, param) == a->optim->dtype;
    const unsigned scale = a->factor != 1 && is_plain ? SCALE : 0;
    const bool is_done = first < e->trusted;
    if (!takes_part(a->optim, param))
        return 0;
    switch (a->stage) {
    case UNDOING:
        return is_done ? RESTORE : 0;
    case MAKING:
        if (is_done)
            return a->factor != 1 ? RESTORE | scale | UPDATE : 0;
        return scale | UPDATE;
    case ARRIVING:
        if (e->keeps)
            return KEEP | SQUARE | UPDATE;
        break;
    case ENDING:
        break;
    }
    return a->undo ? SQUARE : UPDATE;
}

/* With the lock: a parameter's turn has come. */
static void open_param(cz__ahead *a, int64_t param)
{
    cz_optim *optim = a->optim;
    entry *e = &a->entries[param];
    e->left = elements_of(a, param);
    if (a->stage == ARRIVING && a->undo && a->trusts && takes_part(optim, param))
        e->keeps = cz__undo_keep_param(a->undo, param);
    const unsigned actions = choose_actions(a, param, 0);
    if (e->begun && (a->is_whole || a->stage == UNDOING) && actions & RESTORE) {
        cz__undo_restore_param(a->undo, param);
        e->begun = false;
    }
    if (e->begun || !(actions & UPDATE))
        return;
    e->begun = optim->stepped = true;
    if (a->is_whole)
        return;
    cz__optim_begin_param(optim, param, &e->prepared);
    optim->steps[param]++;
}

/* With the lock. False: there is none. What is done to a block is done to all of it. */
static bool take_block(cz__ahead *a, block *b)
{
    if (a->next == a->arrived || a->stop)
        return false;
    const int64_t param = a->queue[a->next], first = a->element;
    const int64_t left = elements_of(a, param) - first;
    entry *e = &a->entries[param];
    if (first == 0)
        open_param(a, param);
    *b = (block){param, first, a->is_whole || left < BLOCK ? left : BLOCK,
                 choose_actions(a, param, first)};
    if (b->actions & KEEP)
        e->trusted = first + (b->count > 0 ? b->count : 1);
    a->element += b->count;
    a->pending -= b->count;
    if (b->count == left) {
        a->next++;
        a->element = 0;
    }
    return true;
}

static void update_tile(const cz__ahead *a, const block *b, int part)
{
    const entry *e = &a->entries[b->param];
    const int64_t place = a->optim->shard.first_span[b->param];
    cz__piece piece = cz__optim_piece(a->optim, place, e->gradient);
    piece.first = b->first;
    piece.count = b->count;
    piece.part = part;
    cz__optim_update_piece(a->optim, &piece, &e->prepared);
}

static void do_tile(cz__ahead *a, const block *b, int part)
{
    const cz_optim *optim = a->optim;
    const cz_device *device = optim->device;
    const cz_dtype dtype = cz__optim_given_dtype(optim, b->param);
    char *gradient =
        (char *)a->entries[b->param].gradient + (size_t)b->first * cz_dtype_size(dtype);
    if (b->actions & KEEP)
        cz__undo_keep(a->undo, b->param, b->first, b->count);
    if (b->actions & RESTORE)
        cz__undo_restore(a->undo, b->param, b->first, b->count);
    if (b->actions & SQUARE)
        (void)device->add_squares(NULL, dtype, b->count, gradient, &a->squares[part]);
    if (b->actions & SCALE)
        (void)device->scale(NULL, dtype, a->factor, b->count, gradient);
    if (b->actions & UPDATE && !a->is_whole)
        update_tile(a, b, part);
}

static void do_block(cz__ahead *a, const block *b, int part)
{
    const int64_t tile = b->actions == UPDATE ? BLOCK : TILE; /* one pass makes its own tiles */
    for (int64_t done = 0; b->actions && done < b->count; done += tile) {
        const int64_t left = b->count - done;
        do_tile(a, &(block){b->param, b->first + done, left < tile ? left : tile, b->actions},
                part);
    }
    if (b->actions & UPDATE && a->is_whole)
        cz__optim_step_param(a->optim, b->param, a->entries[b->param].gradient);
}

/* With the lock, which is let go while the program is told. */
static void end_block(cz__ahead *a, const block *b)
{
    entry *e = &a->entries[b->param];
    e->left -= b->count;
    if (e->left > 0 || !a->options.released || (a->undo && a->stage < MAKING))
        return;
    pthread_mutex_unlock(&a->lock);
    a->options.released(b->param, e->gradient, a->options.context);
    pthread_mutex_lock(&a->lock);
}

/* ---- threads ---- */

/* One of them, with the lock. */
static bool do_next(cz__ahead *a, int part)
{
    block b;
    if (!take_block(a, &b))
        return false;
    pthread_mutex_unlock(&a->lock);
    do_block(a, &b, part);
    pthread_mutex_lock(&a->lock);
    end_block(a, &b);
    return true;
}

/* With the lock, by who comes first: a kernel thread, or whoever waits for the end of the step. */
static void do_claimed(cz__ahead *a, int part)
{
    if (a->leaving || a->claimed >> part & 1u)
        return;
    a->claimed |= (uint64_t)1 << part;
    while (!a->leaving && do_next(a, part))
        ;
    a->leaving = true;
}

static void do_part(void *context, int part)
{
    cz__ahead *a = context;
    pthread_mutex_lock(&a->lock);
    do_claimed(a, part);
    pthread_mutex_unlock(&a->lock);
}

/* All that there is, with the lock. One thread at a time. */
static void work(cz__ahead *a)
{
    a->busy = true;
    while (a->next < a->arrived && !a->stop) {
        if (a->parts == 1 || a->pending < 2 * BLOCK) {
            (void)do_next(a, 0);
            continue;
        }
        a->leaving = false;
        a->claimed = 0;
        pthread_mutex_unlock(&a->lock);
        cz__kernel_threads_run(a->optim->kernel_threads, do_part, a);
        pthread_mutex_lock(&a->lock);
        a->leaving = true;
        while (a->has_guest)
            pthread_cond_wait(&a->idle, &a->lock);
    }
    a->busy = false;
    pthread_cond_broadcast(&a->idle);
}

/* With the lock: until nothing is left to do. Who waits is on a core that is awake, and does the
 * last part unless its thread has begun. */
static void await_idle(cz__ahead *a)
{
    while (a->busy || (a->has_thread && a->next < a->arrived)) {
        if (!a->leaving && !(a->claimed >> (a->parts - 1) & 1u)) {
            a->has_guest = true;
            do_claimed(a, a->parts - 1);
            a->has_guest = false;
            pthread_cond_broadcast(&a->idle);
        } else {
            pthread_cond_wait(&a->idle, &a->lock);
        }
    }
}

static void *thread_main(void *context)
{
    cz__ahead *a = context;
    CZ__OWN_FLOATS;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        work(a);
        while (!a->stop && (a->next == a->arrived || a->busy))
            pthread_cond_wait(&a->work, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- made, destroyed ---- */

static cz_status check_devices(const cz_optim *optim)
{
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (optim->shard.spans[s].device != cz_device_cpu())
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "in backward: parameter '%.60s' is on device %s, undo wants all in the "
                            "host's memory",
                            cz__model_name(optim->model, optim->shard.spans[s].param),
                            optim->shard.spans[s].device->name);
    return CZ_OK;
}

static cz_status build(cz__ahead *a)
{
    const cz_optim *optim = a->optim;
    const size_t params = (size_t)optim->param_count;
    a->is_whole = cz__optim_any_rule(optim, CZ__NEEDS_WHOLE_TENSORS) ||
                  cz__optim_any_rule(optim, CZ__HAS_PARTIAL_SUMS);
    a->parts = !a->is_whole && cz__optim_works_in_parts(optim) ? cz__optim_parts(optim) : 1;
    a->entries = cz__calloc(params, sizeof *a->entries);
    a->queue = cz__calloc(params, sizeof *a->queue);
    a->squares = cz__calloc((size_t)a->parts, sizeof *a->squares);
    a->gradients = cz__calloc(params, sizeof *a->gradients);
    if (!a->entries || !a->queue || !a->squares || !a->gradients)
        return cz__fail(CZ_ERR_MEMORY, "in backward: no memory for tables of %zu parameters",
                        params);
    if (a->options.undo) {
        CZ_TRY(check_devices(optim));
        CZ_TRY(cz__undo_create(&a->undo, a->optim,
                               a->options.undo_bytes ? a->options.undo_bytes : UINT64_MAX));
    }
    if (a->options.background && cz__thread_allowed())
        a->has_thread = cz__thread_create(&a->thread, NULL, thread_main, a) == 0;
    return CZ_OK;
}

cz_status cz__ahead_create(cz__ahead **out, cz_optim *optim, const cz_in_backward_options *options)
{
    cz__ahead *a = *out = cz__calloc(1, sizeof *a);
    if (!a)
        return cz__fail(CZ_ERR_MEMORY, "in backward: no memory for a queue");
    a->optim = optim;
    a->options = *options;
    a->trusts = a->leaving = true;
    a->factor = 1;
    a->process = cz__process();
    cz__lock_create(&a->lock);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->idle, NULL);
    const cz_status status = build(a);
    if (status != CZ_OK)
        cz__ahead_destroy(out);
    return status;
}

static bool is_elsewhere(const cz__ahead *a)
{
    return a->has_thread && a->process != cz__process();
}

static cz_status check_process(const cz__ahead *a, const char *call)
{
    return is_elsewhere(a)
               ? cz__fail(CZ_ERR_STATE,
                          "in backward %s: in a child of fork() there is no thread that updates",
                          call)
               : CZ_OK;
}

void cz__ahead_destroy(cz__ahead **out)
{
    cz__ahead *a = *out;
    if (!a)
        return;
    if (a->has_thread && !is_elsewhere(a)) {
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        pthread_cond_signal(&a->work);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    if (!is_elsewhere(a)) {
        pthread_mutex_destroy(&a->lock);
        pthread_cond_destroy(&a->work);
        pthread_cond_destroy(&a->idle);
    }
    cz__undo_destroy(&a->undo);
    cz__description_clear(&a->room);
    cz__free(a->entries);
    cz__free(a->queue);
    cz__free(a->squares);
    cz__free(a->gradients);
    cz__free(a);
    *out = NULL;
}

/* ---- a step ---- */

/* With the lock, while nothing is going on: from the first parameter on again. */
static void go_through(cz__ahead *a, stage next, double factor)
{
    a->stage = next;
    a->factor = a->optim->factor = factor;
    a->next = a->element = a->pending = 0;
    for (int64_t k = 0; k < a->arrived; k++)
        a->pending += elements_of(a, a->queue[k]);
    work(a);
}

/* The same: no step has begun. */
static void close_step(cz__ahead *a)
{
    a->open = false;
    a->arrived = a->next = 0;
}

static void take_back(cz__ahead *a)
{
    go_through(a, UNDOING, 1);
    cz__undo_restore_optim(a->undo);
    close_step(a);
}

cz_status cz__ahead_settle(cz__ahead *a)
{
    CZ_TRY(check_process(a, "begin"));
    pthread_mutex_lock(&a->lock);
    if (a->open)
        a->stage = ENDING;
    await_idle(a);
    if (a->open && a->undo)
        take_back(a);
    close_step(a);
    pthread_mutex_unlock(&a->lock);
    return CZ_OK;
}

cz_status cz__ahead_begin(cz__ahead *a)
{
    if (a->undo)
        CZ_TRY(cz__undo_begin(a->undo));
    pthread_mutex_lock(&a->lock);
    a->open = true;
    a->stage = ARRIVING;
    a->factor = 1;
    a->pending = 0;
    memset(a->squares, 0, (size_t)a->parts * sizeof *a->squares);
    for (int64_t p = 0; p < a->optim->param_count; p++) {
        a->entries[p].trusted = 0;
        a->entries[p].begun = a->entries[p].keeps = false;
    }
    pthread_mutex_unlock(&a->lock);
    return CZ_OK;
}

void cz__ahead_add(cz__ahead *a, int64_t param, void *gradient)
{
    pthread_mutex_lock(&a->lock);
    a->entries[param].gradient = gradient;
    a->queue[a->arrived++] = param;
    a->pending += elements_of(a, param);
    pthread_cond_signal(&a->work);
    if (!a->has_thread) {
        while (a->busy) /* another mark, which sees to this one as well */
            pthread_cond_wait(&a->idle, &a->lock);
        work(a);
    }
    pthread_mutex_unlock(&a->lock);
}

/* ---- its end ---- */

static void describe_end(cz__description *description, const void *context)
{
    cz__describe_options(description, &cz__step_options, context, NULL);
}

/* Over all ranks. */
static cz_status add_up(cz__ahead *a, cz_sum *sum, int *shift)
{
    const cz_optim *optim = a->optim;
    *sum = (cz_sum){{0}};
    *shift = 0;
    for (int part = 0; part < a->parts; part++) {
        cz__sum_settle(&a->squares[part]);
        for (int i = 0; i < CZ_SUM_CHUNKS; i++)
            sum->chunks[i] += a->squares[part].chunks[i];
    }
    cz__sum_settle(sum);
    if (a->options.group)
        CZ_TRY(cz_all_reduce(a->options.group, sum->chunks, CZ_SUM_CHUNKS, CZ_I64, CZ_SUM, NULL));
    *shift = cz__norm_shift(optim, sum);
    if (*shift == 0)
        return CZ_OK;
    for (int64_t k = 0; k < a->arrived; k++)
        a->gradients[a->queue[k]] = a->entries[a->queue[k]].gradient;
    cz__norm_add_shifted(optim, a->gradients, *shift, sum);
    memset(a->gradients, 0, (size_t)optim->param_count * sizeof *a->gradients);
    return a->options.group
               ? cz_all_reduce(a->options.group, sum->chunks, CZ_SUM_CHUNKS, CZ_I64, CZ_SUM, NULL)
               : CZ_OK;
}

/* The squares of all gradients have been added. */
static cz_status judge(cz__ahead *a, const cz_step_options *options, cz_status mine, double *factor,
                       cz__step_outcome *outcome)
{
    cz_optim *optim = a->optim;
    cz_sum sum;
    int shift;
    if (a->options.group)
        mine = cz__agree_on(a->options.group, "in backward end", describe_end, options, mine,
                            &a->room);
    CZ_TRY(mine);
    optim->step.max_norm = options->max_norm;
    optim->step.skip_nonfinite = options->skip_nonfinite;
    optim->step.norm = options->norm;
    if (!cz__norm_is_wanted(optim))
        return CZ_OK;
    CZ_TRY(add_up(a, &sum, &shift));
    *factor = cz__norm_judge(optim, &sum, shift, outcome);
    return CZ_OK;
}

cz_status cz__ahead_end(cz__ahead *a, const cz_step_options *options, cz_status mine,
                        cz__step_outcome *outcome)
{
    double factor = 1;
    CZ_TRY(check_process(a, "end"));
    if (mine != CZ_OK && !a->undo && !a->options.group)
        return mine;
    pthread_mutex_lock(&a->lock);
    a->stage = a->open ? ENDING : a->stage;
    await_idle(a);
    pthread_mutex_unlock(&a->lock); /* nobody else has work, and collectives take their time */
    const cz_status status = judge(a, options, mine, &factor, outcome);
    if (status != CZ_OK && !a->undo)
        return status;
    pthread_mutex_lock(&a->lock);
    if (a->open && a->undo) {
        if (status != CZ_OK || outcome->skipped)
            take_back(a);
        else
            go_through(a, MAKING, factor);
        a->trusts = factor == 1;
        a->optim->factor = 1;
    }
    close_step(a);
    pthread_mutex_unlock(&a->lock);
    return status;
}
