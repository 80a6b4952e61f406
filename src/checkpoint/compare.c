/* SPDX-License-Identifier: MIT */
/* What is in a checkpoint against what is here: names, shapes, types, the rule, parts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/loading.h"
#include "optim/optim.h"
#include "tensor/model.h"

void cz__comparison_clear(cz__comparison *comparison)
{
    cz__free(comparison->from);
    cz__text_clear(&comparison->differences);
    *comparison = (cz__comparison){0};
}

static const char *noun(const cz__index *index, int64_t place)
{
    return place < index->param_count ? "parameter" : "buffer";
}

static void print_shape(char *text, size_t size, const cz__stored *stored)
{
    size_t length = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < stored->dimensions && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%" PRId64, d ? ", " : "",
                                   stored->shape[d]);
    if (length < size)
        snprintf(text + length, size - length, "]");
}

/* Does every value of one type have the same value in the other? */
static bool is_exact(cz_dtype from, cz_dtype to)
{
    return from == to || (from == CZ_F32 && to == CZ_F64) ||
           (cz__has_16_bits(from) && (to == CZ_F32 || to == CZ_F64));
}

static bool types_fit(cz_dtype from, cz_dtype to, bool convert)
{
    return is_exact(cz__type_in_memory(from), to) ||
           (convert && cz__converts(from) && cz__converts(to));
}

static bool shapes_are_equal(const cz__stored *a, const cz__stored *b)
{
    return a->dimensions == b->dimensions &&
           memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) == 0;
}

/* Find the place in the file of one tensor here, if it is to be loaded. */
static int64_t compare_tensor(cz__comparison *c, const cz__index *here, const cz__index *file,
                              int64_t place, bool convert)
{
    const cz__stored *mine = &here->stored[place];
    const int64_t from = cz__index_find_tied(file, mine->name);
    const char *what = noun(here, place);
    char shape[200], saved[200];
    if (from < 0) {
        print_shape(shape, sizeof shape, mine);
        cz__text_print(&c->differences, "%s '%s' %s of shape %s is not in the checkpoint\n", what,
                       cz__show(mine->name).text, cz__type_shown(mine->dtype), shape);
        return -1;
    }
    const cz__stored *theirs = &file->stored[from];
    if ((from < file->param_count) != (place < here->param_count)) {
        cz__text_print(&c->differences, "%s '%s' is a %s in the checkpoint\n", what,
                       cz__show(mine->name).text, noun(file, from));
        return -1;
    }
    if (!shapes_are_equal(mine, theirs)) {
        print_shape(shape, sizeof shape, mine);
        print_shape(saved, sizeof saved, theirs);
        cz__text_print(&c->differences, "%s '%s' has shape %s, in the checkpoint %s%s\n", what,
                       cz__show(mine->name).text, shape, saved,
                       theirs->count == mine->count ? " (czero convert --reshape gives it another)"
                                                    : "");
        return -1;
    }
    if (!types_fit(theirs->dtype, mine->dtype, convert)) {
        cz__text_print(
            &c->differences, "%s '%s' is %s, in the checkpoint %s%s\n", what,
            cz__show(mine->name).text, cz__type_shown(mine->dtype), cz__type_shown(theirs->dtype),
            types_fit(theirs->dtype, mine->dtype, true) ? " (option convert rounds it)" : "");
        return -1;
    }
    return from;
}

static bool rules_fit(const char *mine, const char *theirs)
{
    return strcmp(mine, theirs) == 0 || (strcmp(theirs, CZ__ADAM_OR_ADAMW) == 0 &&
                                         (strcmp(mine, "adam") == 0 || strcmp(mine, "adamw") == 0));
}

static cz_status get_group(const cz_state_dict *groups, int64_t number, const cz_state_dict **entry)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, number);
    return cz_state_dict_get_dict(groups, key, entry);
}

/* Which group of an outline is each parameter in? */
static cz_status list_members(cz__names *names, const cz_state_dict *groups)
{
    int64_t other;
    for (int64_t g = 0; g < cz_state_dict_count(groups); g++) {
        const cz_state_dict *entry;
        CZ_TRY(get_group(groups, g, &entry));
        const char *const *members;
        int64_t count;
        CZ_TRY(cz_state_dict_get_texts(entry, "params", &members, &count));
        if (count > 0 && !cz__names_reserve(names, count))
            return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a table of names");
        for (int64_t k = 0; k < count; k++)
            if (!cz__names_find(names, members[k], &other))
                cz__names_add(names, members[k], g);
    }
    return CZ_OK;
}

/* Of one group here: of its members, as far as they are in groups there, one after the other. */
static cz_status compare_group_rules(cz__comparison *c, const cz__index *here,
                                     const cz__index *file, const cz__names *in, int64_t g)
{
    const cz_state_dict *mine, *theirs, *group, *other;
    const char *const *members;
    int64_t count, number;
    CZ_TRY(cz_state_dict_get_dict(here->optimizer, "param_groups", &mine));
    CZ_TRY(cz_state_dict_get_dict(file->optimizer, "param_groups", &theirs));
    CZ_TRY(get_group(mine, g, &group));
    CZ_TRY(cz_state_dict_get_texts(group, "params", &members, &count));
    const char *rule = cz__outline_rule_of(here->optimizer, group);
    for (int64_t k = 0; k < count; k++) {
        if (!cz__names_find(in, members[k], &number))
            continue;
        CZ_TRY(get_group(theirs, number, &other));
        const char *saved = cz__outline_rule_of(file->optimizer, other);
        if (rules_fit(rule, saved))
            continue;
        cz__text_print(&c->differences,
                       "the rule of parameter group %" PRId64
                       " is %s, that of its parameter '%s' in the checkpoint %s\n",
                       g, rule, cz__show(members[k]).text, cz__show(saved).text);
        c->state = false;
        return CZ_OK;
    }
    return CZ_OK;
}

static cz_status compare_each_rule(cz__comparison *c, const cz__index *here, const cz__index *file)
{
    const cz_state_dict *mine, *theirs;
    cz__names in = {0};
    c->state = true;
    CZ_TRY(cz_state_dict_get_dict(here->optimizer, "param_groups", &mine));
    CZ_TRY(cz_state_dict_get_dict(file->optimizer, "param_groups", &theirs));
    cz_status status = list_members(&in, theirs);
    for (int64_t g = 0; !status && g < cz_state_dict_count(mine); g++)
        status = compare_group_rules(c, here, file, &in, g);
    cz__names_clear(&in);
    return status;
}

/* What an index says where it is to be said in a word. */
static const char *rule_in_words(const cz__index *index)
{
    if (!index->optimizer)
        return "none";
    const char *only = cz__outline_only_rule(index->optimizer);
    return only ? only : "another one for some parameter groups";
}

static cz_status compare_rules(cz__comparison *c, const cz__index *here, const cz__index *file)
{
    const char *mine = here->optimizer ? cz__outline_only_rule(here->optimizer) : NULL;
    const char *theirs = file->optimizer ? cz__outline_only_rule(file->optimizer) : NULL;
    if (here->optimizer && file->optimizer && (!mine || !theirs))
        return compare_each_rule(c, here, file);
    c->state = mine && theirs && rules_fit(mine, theirs);
    if (!c->state && !file->says_nothing_of_state && (here->optimizer || file->optimizer))
        cz__text_print(&c->differences, "the optimizer's rule is %s, in the checkpoint %s\n",
                       rule_in_words(here), cz__show(rule_in_words(file)).text);
    return CZ_OK;
}

/* A checkpoint without a number of parts says nothing of them: it may be older than parts are. */
static void compare_parts(cz__comparison *c, const cz__index *here, const cz__index *file)
{
    if (file->part_count == 0 || file->part_count == here->part_count)
        return;
    cz__text_print(&c->differences, "a batch has ");
    if (here->part_count > 0)
        cz__text_print(&c->differences, "%d parts", here->part_count);
    else
        cz__text_print(&c->differences, "no parts");
    cz__text_print(&c->differences, ", in the checkpoint %d (see cz_parts_create())\n",
                   file->part_count);
}

cz_status cz__compare(cz__comparison *comparison, const cz__index *here, const cz__index *file,
                      bool convert)
{
    const int64_t count = here->param_count + here->buffer_count;
    *comparison = (cz__comparison){0};
    comparison->from = cz__calloc((size_t)count, sizeof *comparison->from);
    if (!comparison->from)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a table of %" PRId64 " tensors",
                        count);
    for (int64_t i = 0; i < count; i++)
        comparison->from[i] = compare_tensor(comparison, here, file, i, convert);
    for (int64_t i = 0; i < file->param_count + file->buffer_count; i++)
        if (cz__index_find(here, file->stored[i].name) < 0) {
            char shape[200];
            print_shape(shape, sizeof shape, &file->stored[i]);
            cz__text_print(&comparison->differences,
                           "%s '%s' %s of shape %s of the checkpoint is not here\n", noun(file, i),
                           cz__show(file->stored[i].name).text,
                           cz__type_shown(file->stored[i].dtype), shape);
        }
    CZ_TRY(compare_rules(comparison, here, file));
    compare_parts(comparison, here, file);
    return comparison->differences.failed
               ? cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of differences")
               : CZ_OK;
}

/* ---- what fits of an outline ---- */

typedef struct adaptation {
    const cz_optim *optim;
    const cz__index *here, *file;
    const cz__comparison *comparison;
    cz__names groups; /* of the file: the number of the group that a parameter is in */
    cz__text *notes;
} adaptation;

static bool is_loaded(const adaptation *a, const char *name)
{
    const int64_t place = cz__index_find(a->here, name);
    return place >= 0 && place < a->here->param_count && a->comparison->from[place] >= 0 &&
           cz__optim_group_of(a->optim, place) >= 0;
}

static cz_status adapt_state(const adaptation *a, cz_state_dict *state)
{
    const cz_state_dict *entries = a->file->entries, *entry;
    for (int64_t i = 0; i < cz_state_dict_count(entries); i++) {
        const char *name = cz_state_dict_key(entries, i);
        if (!is_loaded(a, name))
            continue;
        CZ_TRY(cz_state_dict_get_dict(entries, name, &entry));
        CZ_TRY(cz_state_dict_set_dict(state, name, entry));
    }
    return CZ_OK;
}

static const char *member_of(const adaptation *a, int64_t group, int64_t place)
{
    return a->here->stored[cz__optim_group_param(a->optim, group, place)].name;
}

/* The group that the first member known there was in, -1: none is known. That others were in
 * another one is said. */
static int64_t find_group(const adaptation *a, int64_t number)
{
    int64_t first = 0, found = -1, other;
    for (int64_t k = 0; k < cz__optim_group_param_count(a->optim, number); k++) {
        if (!cz__names_find(&a->groups, member_of(a, number, k), &other))
            continue;
        if (found < 0) {
            found = other;
            first = k;
        }
        if (other == found)
            continue;
        cz__text_print(a->notes,
                       "parameter group %" PRId64 " goes on with the values of saved group %" PRId64
                       ", in which '%.60s' was; '%.60s' was in group %" PRId64 "\n",
                       number, found, member_of(a, number, first), member_of(a, number, k), other);
        break;
    }
    return found;
}

/* Where no group is known they stay as they are. */
static cz_status adapt_values(const adaptation *a, const cz_state_dict *groups, int64_t number,
                              cz_state_dict *out)
{
    const cz_state_dict *entry = NULL;
    const int64_t from = find_group(a, number);
    if (from >= 0)
        CZ_TRY(get_group(groups, from, &entry));
    if (!entry)
        return CZ_OK;
    for (int64_t i = 0; i < cz_state_dict_count(entry); i++) {
        const char *key = cz_state_dict_key(entry, i);
        double value;
        if (strcmp(key, "params") == 0 || cz_state_dict_kind(entry, key) == CZ_STATE_TEXT)
            continue;
        CZ_TRY(cz_state_dict_get_real(entry, key, &value));
        CZ_TRY(cz_state_dict_set_real(out, key, value));
    }
    return CZ_OK;
}

static cz_status adapt_members(const adaptation *a, int64_t number, cz_state_dict *out)
{
    const int64_t count = cz__optim_group_param_count(a->optim, number);
    const char **names = cz__calloc((size_t)count, sizeof *names);
    if (!names)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a list of names");
    for (int64_t k = 0; k < count; k++)
        names[k] = member_of(a, number, k);
    const cz_status status = cz_state_dict_set_texts(out, "params", names, count);
    cz__free(names);
    return status;
}

static cz_status adapt_groups(adaptation *a, cz_state_dict *out)
{
    const cz_state_dict *groups;
    CZ_TRY(cz_state_dict_get_dict(a->file->optimizer, "param_groups", &groups));
    CZ_TRY(list_members(&a->groups, groups));
    for (int64_t g = 0; g < cz__optim_group_count(a->optim); g++) {
        char key[24];
        cz_state_dict *entry;
        snprintf(key, sizeof key, "%" PRId64, g);
        CZ_TRY(cz_state_dict_add_dict(out, key, &entry));
        CZ_TRY(adapt_values(a, groups, g, entry));
        CZ_TRY(cz_state_dict_set_text(entry, "rule", cz__optim_group_rule(a->optim, g)->name));
        CZ_TRY(adapt_members(a, g, entry));
    }
    return CZ_OK;
}

static cz_status adapt(adaptation *a, cz_state_dict *out)
{
    const char *rule;
    cz_state_dict *state, *groups;
    CZ_TRY(cz_state_dict_get_text(a->file->optimizer, "rule", &rule));
    CZ_TRY(cz_state_dict_set_text(out, "rule", rule));
    CZ_TRY(cz_state_dict_add_dict(out, "state", &state));
    CZ_TRY(adapt_state(a, state));
    CZ_TRY(cz_state_dict_add_dict(out, "param_groups", &groups));
    return adapt_groups(a, groups);
}

cz_status cz__adapt_outline(cz_state_dict **out, const cz_optim *optim, const cz__index *here,
                            const cz__index *file, const cz__comparison *comparison,
                            cz__text *notes)
{
    adaptation a = {optim, here, file, comparison, {0}, notes};
    CZ_TRY(cz_state_dict_create(out));
    const cz_status status = adapt(&a, *out);
    cz__names_clear(&a.groups);
    if (status != CZ_OK)
        cz_state_dict_destroy(out);
    return status;
}
