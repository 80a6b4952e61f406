/* SPDX-License-Identifier: MIT */
/* Ranks with and without inputs: before each call of a joinable all of them exchange a word, in
 * which those that go on say what comes next, and those that have joined, or failed, say so. */
#include "join/join.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/collective.h"
#include "collective/description.h"
#include "optim/optim.h"

enum { LONG_SHADOW = 1000 };

enum { WORD_JOINED, WORD_ACTIVE, WORD_FAILED };

typedef struct word {
    int32_t state;
    int32_t number; /* active: the joinable; joined: has this rank made no shadow? */
} word;

/* By what ranks tell joinables apart, beside their names. */
typedef struct identity {
    cz__object object;     /* of the library's own that have a group; of others zeroed */
    const cz_optim *optim; /* one that is not sharded; else NULL */
} identity;

struct cz_join {
    cz_group *group; /* owned */
    cz_join_options options;
    cz_step_options step;   /* what options.step points to */
    int rank;               /* in the group that it was given */
    cz_joinable *joinables; /* owned */
    identity *identities;   /* owned: of each joinable */
    int count, entered;     /* the first so many have entered */
    word *words;            /* owned: of each rank */
    /* Of the last exchange: how many were active, the highest of them, what they are about to
     * do. */
    int active, source, next;
    int64_t shadows;
    int held; /* calls under way here that others are shadowing */
    int last; /* the highest rank of those that were last; -1: not known yet */
    bool is_last;
    cz_status failed; /* all ranks know it */
    char why[320];
};

/* ---- the exchange ---- */

/* All ranks know: nothing more is exchanged. */
static cz_status fail_all(cz_join *join, cz_status status)
{
    join->failed = status;
    snprintf(join->why, sizeof join->why, "%s", cz_last_error());
    return status;
}

static const char *name_of(const cz_join *join, int number)
{
    return number >= 0 && number < join->count && join->joinables[number].name
               ? join->joinables[number].name
               : "joinable";
}

static cz_status different_calls(cz_join *join, int rank)
{
    return fail_all(
        join, cz__fail(CZ_ERR_MISMATCH,
                       "join: rank %d is about to use '%.40s' (%d), rank %d '%.40s' (%d)",
                       cz_group_global_rank(join->group, join->source), name_of(join, join->next),
                       join->next, cz_group_global_rank(join->group, rank),
                       name_of(join, join->words[rank].number), join->words[rank].number));
}

/* Read the words of all ranks, alike on all of them. `mine`: this rank's failure, with its sentence
 * in `why`. */
static cz_status read_words(cz_join *join, cz_status mine, const char *why)
{
    const int ranks = cz_group_size(join->group);
    int joined = -1, failed = 0;
    join->active = 0;
    for (int r = 0; r < ranks; r++) {
        failed += join->words[r].state == WORD_FAILED;
        joined = join->words[r].state == WORD_JOINED && joined < 0 ? r : joined;
        if (join->words[r].state != WORD_ACTIVE)
            continue;
        join->active++;
        join->source = r;
        join->next = join->words[r].number;
    }
    if (failed) {
        if (mine != CZ_OK)
            mine = cz__fail(mine, "%s", why);
        return fail_all(join, cz__agree(join->group, mine, 0, NULL, "join: failure"));
    }
    if (join->options.end_early && joined >= 0 && join->active > 0)
        return fail_all(
            join, cz__fail(CZ_ERR_STATE,
                           "join: rank %d has no more inputs, %d ranks have (option end_early)",
                           cz_group_global_rank(join->group, joined), join->active));
    for (int r = 0; r < ranks; r++)
        if (join->words[r].state == WORD_ACTIVE && join->words[r].number != join->next)
            return different_calls(join, r);
    return CZ_OK;
}

static cz_status exchange(cz_join *join, word mine, cz_status failure, const char *why)
{
    const cz_status status =
        cz_all_gather(join->group, &mine, join->words, 2, CZ_I32, CZ_LABEL("join"));
    return status ? fail_all(join, status) : read_words(join, failure, why);
}

cz_status cz_join_notify(cz_join *join, int number)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!join || number < 0 || number >= join->count)
        return cz__fail(CZ_ERR_ARGUMENT, "join notify: %s",
                        join ? "no such joinable" : "join is NULL");
    if (join->options.disabled)
        return CZ_OK;
    if (join->failed != CZ_OK)
        return cz__fail(join->failed, "%s", join->why);
    if (join->held > 0)
        return cz__fail(CZ_ERR_STATE,
                        "join notify: '%.40s' in the middle of a pass, in which joined ranks wait",
                        name_of(join, number));
    return exchange(join, (word){WORD_ACTIVE, number}, CZ_OK, "");
}

/* ---- the beginning ---- */

static const char *const divide_words[] = {"world", "active", "weight", NULL};

const cz__option_table cz__join_options = CZ__OPTION_TABLE(
    cz_join_options, CZ__OPTION(cz_join_options, divide, CZ__COMPARED, CZ__WORDS(divide_words)),
    CZ__OPTION(cz_join_options, end_early, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_join_options, disabled, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_join_options, step, CZ__COMPARED_APART, CZ__ANY));

const cz__option_table cz__joinable_options =
    CZ__OPTION_TABLE(cz_joinable, CZ__OPTION(cz_joinable, name, CZ__COMPARED_APART, CZ__ANY),
                     CZ__OPTION(cz_joinable, object, CZ__LOCAL, CZ__ANY),
                     CZ__OPTION(cz_joinable, enter, CZ__LOCAL, CZ__ANY),
                     CZ__OPTION(cz_joinable, shadow, CZ__COMPARED_APART, CZ__ANY),
                     CZ__OPTION(cz_joinable, finish, CZ__COMPARED_APART, CZ__ANY),
                     CZ__OPTION(cz_joinable, abandon, CZ__LOCAL, CZ__ANY));

static cz_status read_options(cz_join *join, const cz_joinable *joinables,
                              const cz_join_options *theirs)
{
    cz_join_options *ours = &join->options;
    CZ_TRY(cz__options_read(ours, &cz__join_options, theirs, "join"));
    if (ours->step)
        CZ_TRY(cz__options_read(&join->step, &cz__step_options, ours->step, "join step"));
    if (join->step.closure || join->step.gradients)
        return cz__fail(CZ_ERR_ARGUMENT, "join: option step has %s",
                        join->step.closure ? "a closure" : "gradients");
    ours->step = ours->step ? &join->step : NULL;
    for (int k = 0; k < join->count; k++) {
        size_t size;
        memcpy(&size, (const char *)joinables + (size_t)k * joinables->size, sizeof size);
        if (size != joinables->size)
            return cz__fail(CZ_ERR_ARGUMENT, "join: joinable %d has size %zu, the first one %zu", k,
                            size, joinables->size);
        CZ_TRY(cz__options_read_element(&join->joinables[k], &cz__joinable_options, joinables, k,
                                        "join"));
    }
    return CZ_OK;
}

static void leave(cz_join *join)
{
    while (join->entered > 0) {
        const cz_joinable *joinable = &join->joinables[--join->entered];
        if (joinable->enter)
            (void)joinable->enter(joinable->object, NULL, join->entered);
    }
}

/* All that this rank can do alone. */
static cz_status build_join(cz_join *join, int ranks, const cz_joinable *joinables, int count,
                            const cz_join_options *options)
{
    if (!joinables || count < 1)
        return cz__fail(CZ_ERR_ARGUMENT, "join: %d joinables%s", count,
                        joinables ? ", wanted 1 or more" : " at NULL");
    join->joinables = cz__calloc((size_t)count, sizeof *join->joinables);
    join->identities = cz__calloc((size_t)count, sizeof *join->identities);
    join->words = cz__calloc((size_t)ranks, sizeof *join->words);
    if (!join->joinables || !join->identities || !join->words)
        return cz__fail(CZ_ERR_MEMORY, "join: no memory for tables of %d joinables, %d ranks",
                        count, ranks);
    join->count = count;
    CZ_TRY(read_options(join, joinables, options));
    for (int k = 0; k < count; k++) {
        const cz_joinable *joinable = &join->joinables[k];
        if (joinable->enter)
            CZ_TRY(joinable->enter(joinable->object, join, k));
        join->entered++;
    }
    return CZ_OK;
}

/* All of it that has collective operations. */
static void describe_joinable(const cz_join *join, int k, cz__description *d)
{
    static const char *const presence[] = {"absent", "given", NULL};
    const char *name = name_of(join, k);
    cz__describe(d, &(cz__subject){"the name", "joinable", k, NULL, "is"}, CZ__FIELD_TEXT, name,
                 strlen(name));
    cz__describe_object(d, &(cz__subject){NULL, "joinable", k, NULL, "is"},
                        &join->identities[k].object);
    cz__describe_word(d, &(cz__subject){"shadow", "joinable", k, name, "is"}, presence,
                      join->joinables[k].shadow != NULL);
    cz__describe_word(d, &(cz__subject){"finish", "joinable", k, name, "is"}, presence,
                      join->joinables[k].finish != NULL);
    cz__describe_word(d, &(cz__subject){"an unsharded optimizer", "joinable", k, name, "is"},
                      presence, join->identities[k].optim != NULL);
    if (join->identities[k].optim) {
        cz__describe_rule(d, cz__optim_rule(join->identities[k].optim));
        cz__describe_named_members(d, join->identities[k].optim);
        cz__describe_other_rules(d, join->identities[k].optim);
        cz__describe_hypers(d, join->identities[k].optim);
    }
}

static void describe_join(cz__description *d, const void *context)
{
    const cz_join *join = context;
    cz__describe_number(d, &(cz__subject){NULL, "the number of joinables", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, join->count);
    for (int k = 0; k < join->count; k++)
        describe_joinable(join, k, d);
    cz__describe_options(d, &cz__join_options, &join->options, NULL);
    cz__describe_options(d, &cz__step_options, &join->step,
                         &(cz__subject){NULL, "option step", -1, NULL, "is"});
}

static void destroy(cz_join *join)
{
    if (!join)
        return;
    leave(join);
    cz_group_destroy(&join->group);
    cz__free(join->joinables);
    cz__free(join->identities);
    cz__free(join->words);
    cz__free(join);
}

cz_status cz_join_begin(cz_join **out, cz_group *group, const cz_joinable *joinables, int count,
                        const cz_join_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz__description room = {0};
    if (out)
        *out = NULL;
    if (!group)
        return cz__fail(CZ_ERR_ARGUMENT, "join: group is NULL");
    cz_join *join = out ? cz__calloc(1, sizeof *join) : NULL;
    cz_status status;
    if (join) {
        join->last = -1;
        join->rank = cz_group_rank(group);
        join->active = cz_group_size(group);
        join->source = join->active - 1;
        status = build_join(join, cz_group_size(group), joinables, count, options);
    } else if (out) {
        status = cz__fail(CZ_ERR_MEMORY, "join: no memory for a handle");
    } else {
        status = cz__fail(CZ_ERR_ARGUMENT, "join: out is NULL");
    }
    status = cz__agree_on(group, "join", describe_join, join, status, &room);
    cz__description_clear(&room);
    if (status)
        goto fail;
    status = cz_group_split(group, 0, 0, &join->group);
    if (status)
        goto fail;
    cz__object object;
    cz__object_make(&object, group, CZ__OBJECT_JOIN);
    cz__group_serve(join->group, &object);
    *out = join;
    return CZ_OK;
fail:
    destroy(join);
    return status;
}

/* ---- the end ---- */

static cz_status shadow(cz_join *join)
{
    const cz_joinable *joinable = &join->joinables[join->next];
    if (++join->shadows == LONG_SHADOW + 1)
        cz__log(CZ_LOG_WARN,
                "join: rank %d has shadowed %d calls of other ranks: inputs are very uneven",
                cz_group_global_rank(join->group, cz_group_rank(join->group)), LONG_SHADOW);
    return joinable->shadow ? CZ__CALL_PROGRAM(joinable->shadow(joinable->object, join)) : CZ_OK;
}

/* Take part in what others do until nobody has inputs. */
static cz_status accompany(cz_join *join)
{
    for (;;) {
        CZ_TRY(exchange(join, (word){WORD_JOINED, join->shadows == 0}, CZ_OK, ""));
        if (join->active == 0)
            return CZ_OK;
        const cz_status status = shadow(join);
        if (status == CZ_OK)
            continue;
        char why[sizeof join->why];
        snprintf(why, sizeof why, "%.40s, as a shadow: %.240s", name_of(join, join->next),
                 cz_last_error());
        return exchange(join, (word){WORD_FAILED, 0}, status, why);
    }
}

static cz_status finish(cz_join *join)
{
    for (int r = 0; r < cz_group_size(join->group); r++)
        join->last = join->words[r].number ? r : join->last;
    join->is_last = join->shadows == 0;
    for (int k = 0; k < join->count; k++)
        if (join->joinables[k].finish)
            CZ_TRY(cz__agree(
                join->group,
                CZ__CALL_PROGRAM(join->joinables[k].finish(join->joinables[k].object, join)), 0,
                NULL, "join: finish"));
    return CZ_OK;
}

/* The body failed: what it has left open is ended first, because others wait in it. */
static cz_status give_up(cz_join *join, cz_status body)
{
    char why[sizeof join->why];
    snprintf(why, sizeof why, "%s", cz_last_error());
    for (int k = 0; k < join->count; k++)
        if (join->joinables[k].abandon)
            join->joinables[k].abandon(join->joinables[k].object, cz__fail(body, "%s", why));
    return exchange(join, (word){WORD_FAILED, 0}, body, why);
}

static cz_status end_join(cz_join *join, cz_status body)
{
    if (join->options.disabled)
        return body;
    if (join->failed != CZ_OK)
        return cz__fail(join->failed, "%s", join->why);
    if (body != CZ_OK)
        return give_up(join, body);
    CZ_TRY(accompany(join));
    return finish(join);
}

cz_status cz_join_end(cz_join **join, cz_status body)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!join || !*join) /* what began it has failed: the sentence is that one's */
        return body != CZ_OK ? body : cz__fail(CZ_ERR_ARGUMENT, "join end: join is NULL");
    const cz_status status = end_join(*join, body);
    const cz__sentence own = cz__sentence_hold();
    destroy(*join);
    cz__sentence_resume(own);
    *join = NULL;
    return status;
}

/* ---- asked ---- */

int cz__join_active_count(const cz_join *join)
{
    return join ? join->active : 0;
}

int cz__join_last(const cz_join *join)
{
    return join ? join->last : -1;
}

int cz__join_source(const cz_join *join)
{
    return join ? join->source : -1;
}

cz_join_divide cz__join_division(const cz_join *join)
{
    return join ? join->options.divide : CZ_JOIN_BY_WORLD;
}

const cz_step_options *cz__join_step(const cz_join *join)
{
    return join ? join->options.step : NULL;
}

cz_status cz_join_get_info(const cz_join *join, cz_join_info *info)
{
    if (!join || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "join get_info: %s is NULL", join ? "info" : "join");
    const cz_join_info ours = {.active_count = join->active,
                               .source = join->source,
                               .last = join->last,
                               .is_last = join->is_last,
                               .shadow_count = join->shadows,
                               .step = join->options.step,
                               .divide = join->options.divide};
    return cz__options_write(info, &ours, sizeof ours, "cz_join_info");
}

cz_status cz__join_enter(cz_join **present, cz_join *join, int number, const cz_group *group,
                         const cz__object *object, const char *what)
{
    if (join && *present)
        return cz__fail(CZ_ERR_STATE, "join: the %s has joined already", what);
    if (join && cz_group_size(group) != join->active)
        return cz__fail(CZ_ERR_ARGUMENT, "join: the %s has %d ranks, the group %d", what,
                        cz_group_size(group), join->active);
    if (join && cz_group_rank(group) != join->rank)
        return cz__fail(CZ_ERR_ARGUMENT, "join: this is rank %d of the %s, rank %d of the group",
                        cz_group_rank(group), what, join->rank);
    if (join)
        join->identities[number].object = *object;
    *present = join && !join->options.disabled ? join : NULL;
    return CZ_OK;
}

void cz__join_hold(cz_join *join, int change)
{
    join->held += change;
}

/* ---- an optimizer that is not sharded ---- */

static cz_status enter_optim(void *object, cz_join *join, int number)
{
    if (!object)
        return cz__fail(CZ_ERR_ARGUMENT, "join: optim is NULL");
    if (join) /* ranks compare its rule, groups and values: it has no group to be known by */
        join->identities[number].optim = object;
    return CZ_OK;
}

static cz_status shadow_optim(void *object, cz_join *join)
{
    return cz_optim_step(object, cz__join_step(join), NULL);
}

cz_status cz_optim_joinable(cz_optim *optim, cz_joinable *out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "optim joinable: out is NULL");
    const cz_joinable ours = {sizeof(cz_joinable), "optim", optim, enter_optim,
                              shadow_optim,        NULL,    NULL};
    return cz__options_write(out, &ours, sizeof ours, "cz_joinable");
}
