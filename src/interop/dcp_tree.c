/* SPDX-License-Identifier: MIT */
/* The dictionary that was saved in a folder of torch.distributed.checkpoint, as the pickle that
 * torch.save() of it would have: its values are found by their paths, objects are taken from their
 * parts, and where a storage would be is the number of a tensor. So all that is known of files of
 * torch is known of folders. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/status.h"
#include "czero/state.h"
#include "interop/dcp.h"

enum {
    MOST_GROUPS = 1000,
    MOST_OPTIMIZERS = 8,
    FREE_BYTES = 64 * 1024, /* that an object may have in the pickle, and so many times its own */
    TIMES_BYTES = 8
};

#define STATE "state"
#define GROUPS "param_groups"

/* A step of a path. */
typedef struct key {
    const char *text; /* NULL: a place in a list */
    int64_t place;
} key;

typedef struct leaf {
    const cz__dcp_entry *entry;
    key *keys;  /* owned, as the next */
    char *copy; /* of a text that is several keys */
    int count;
    bool flattened; /* of the groups of an optimizer, by parameters */
} leaf;

typedef struct tree {
    cz__dcp *d;
    leaf *leaves; /* owned */
    int64_t count;
    cz__pickling p;
} tree;

/* Leaves that have the same keys up to a depth, and the next one. */
typedef struct branch {
    int64_t begin, end, order;
} branch;

static cz_status no_memory(const tree *t)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", t->d->path);
}

/* ---- paths ---- */

static int compare_keys(const key *a, const key *b)
{
    if (a->text && b->text)
        return strcmp(a->text, b->text);
    if (a->text || b->text)
        return a->text ? 1 : -1;
    return (a->place > b->place) - (a->place < b->place);
}

static int by_path(const void *left, const void *right)
{
    const leaf *a = left, *b = right;
    for (int i = 0; i < a->count && i < b->count; i++) {
        const int order = compare_keys(&a->keys[i], &b->keys[i]);
        if (order)
            return order;
    }
    return (a->count > b->count) - (a->count < b->count);
}

static cz_status add_leaf(tree *t, const cz__dcp_entry *e)
{
    const cz__pickle *p = t->d->metadata;
    leaf *l = &t->leaves[t->count];
    l->entry = e;
    l->count = e->path ? (int)e->path->count : 1;
    if (e->path && e->path->count >= CZ_STATE_MAX_DEPTH)
        return cz__dcp_refuse(t->d, "'%s': dictionaries in more than %d levels",
                              cz__show(e->name).text, CZ_STATE_MAX_DEPTH);
    CZ_TRY(cz__budget_spend(&t->d->budget, sizeof *l + ((size_t)l->count + 2) * sizeof *l->keys,
                            "paths of its values"));
    l->keys = cz__calloc((size_t)l->count + 2, sizeof *l->keys); /* one may become three */
    if (!l->keys)
        return no_memory(t);
    t->count++;
    l->keys[0].text = e->name;
    for (int i = 0; e->path && i < l->count; i++) {
        const cz__pickle_value *step = cz__pickle_item(p, e->path, i);
        const bool text = step->kind == CZ__PICKLE_TEXT;
        if (!text && (step->kind != CZ__PICKLE_INTEGER || step->integer < 0))
            return cz__dcp_refuse(t->d, "'%s': its path has %s for a key", cz__show(e->name).text,
                                  cz__pickle_kind_name(step->kind));
        l->keys[i] = (key){text ? step->text : NULL, text ? 0 : step->integer};
    }
    return CZ_OK;
}

/* ---- optimizers that were flattened ---- */
/* With flatten_optimizer_state_dict torch has "state.PARAMETER.SLOT" and
 * "param_groups.PARAMETER.HYPER" for keys. */

static bool begins(const char *text, const char *beginning)
{
    return text && strncmp(text, beginning, strlen(beginning)) == 0;
}

static const key *last_key(const leaf *l)
{
    return &l->keys[l->count - 1];
}

static bool same_dictionary(const leaf *a, const leaf *b)
{
    bool same = a->count == b->count;
    for (int i = 0; i < a->count - 1 && same; i++)
        same = compare_keys(&a->keys[i], &b->keys[i]) == 0;
    return same;
}

/* "state.0.weight.exp_avg": "state", "0.weight", "exp_avg". */
static cz_status split(tree *t, leaf *l, const char *beginning)
{
    const char *text = last_key(l)->text;
    const size_t first = strlen(beginning) - 1;
    const char *end = strrchr(text, '.');
    if (end <= text + first)
        return CZ_OK;
    l->copy = cz__strdup(text);
    if (!l->copy)
        return no_memory(t);
    l->copy[first] = l->copy[end - text] = 0;
    l->keys[l->count - 1] = (key){l->copy, 0};
    l->keys[l->count] = (key){l->copy + first + 1, 0};
    l->keys[l->count + 1] = (key){l->copy + (end - text) + 1, 0};
    l->count += 2;
    l->flattened = strcmp(l->copy, GROUPS) == 0;
    return CZ_OK;
}

static cz_status split_optimizers(tree *t)
{
    leaf known[MOST_OPTIMIZERS];
    int count = 0;
    for (int64_t i = 0; i < t->count && count < MOST_OPTIMIZERS; i++) {
        bool is = begins(last_key(&t->leaves[i])->text, GROUPS ".");
        for (int k = 0; k < count && is; k++)
            is = !same_dictionary(&known[k], &t->leaves[i]);
        if (is)
            known[count++] = t->leaves[i];
    }
    for (int64_t i = 0; i < t->count && count > 0; i++) {
        leaf *l = &t->leaves[i];
        bool in = false;
        for (int k = 0; k < count && !in; k++)
            in = same_dictionary(&known[k], l);
        if (in && begins(last_key(l)->text, STATE "."))
            CZ_TRY(split(t, l, STATE "."));
        else if (in && begins(last_key(l)->text, GROUPS "."))
            CZ_TRY(split(t, l, GROUPS "."));
    }
    return CZ_OK;
}

/* ---- values ---- */

/* By their lengths, whatever is in them. */
static void put_name(cz__pickling *p, const char *module, const char *name)
{
    cz__pickle_put_text(p, module);
    cz__pickle_put_text(p, name);
    cz__pickle_op(p, CZ__PICKLE_OP_STACK_GLOBAL);
}

static void put_tensor(cz__pickling *p, int64_t number)
{
    put_name(p, "torch._utils", "_rebuild_tensor_v2");
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_put_text(p, CZ__DCP_ID);
    cz__pickle_put_integer(p, number);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_PERSISTENT);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
}

/* An object that is copied from its part. */
typedef struct object {
    cz__dcp *d;
    const cz__dcp_entry *entry;
    const cz__torch *torch;
} object;

/* A tensor; what nobody reads is there by its name. A tensor that cannot be read is of that kind
 * until somebody wants it. */
static cz_status put_other(cz__pickling *p, const cz__pickle_value *v, void *context)
{
    const object *o = context;
    int64_t number;
    cz_status status = CZ_ERR_FORMAT;
    if (v->kind == CZ__PICKLE_CALL)
        status = cz__dcp_add_view(o->d, &o->entry->part, o->torch, v, o->entry->name, &number);
    if (status == CZ_OK)
        put_tensor(p, number);
    else if (status != CZ_ERR_FORMAT && status != CZ_ERR_UNSUPPORTED)
        return status;
    else if (v->kind == CZ__PICKLE_OPAQUE && v->module[0])
        put_name(p, v->module, v->name);
    else
        put_name(p, "builtins", "object");
    return CZ_OK;
}

static cz_status put_object(tree *t, cz__pickling *p, const cz__dcp_entry *e)
{
    object o = {t->d, e, NULL};
    cz__torch *torch;
    CZ_TRY(cz__dcp_open_part(t->d, &e->part, &torch));
    o.torch = torch;
    cz_status status =
        cz__pickle_copy(p, torch->pickle, cz__torch_root(torch),
                        p->out.count + FREE_BYTES + TIMES_BYTES * e->part.bytes, put_other, &o);
    if (status == CZ_ERR_FORMAT)
        status = cz__fail_in(status, cz__text_get(&torch->where));
    cz__torch_close(&torch);
    return status;
}

static cz_status put_leaf(tree *t, cz__pickling *p, const leaf *l)
{
    if (l->entry->tensor < 0)
        return put_object(t, p, l->entry);
    put_tensor(p, l->entry->tensor);
    return CZ_OK;
}

/* ---- branches ---- */

static int by_order(const void *left, const void *right)
{
    const branch *a = left, *b = right;
    return (a->order > b->order) - (a->order < b->order);
}

/* *list is for cz__free(). Those of a dictionary are in the order in which the program had them,
 * those of a list in that of the list. */
static cz_status list_branches(const tree *t, int64_t begin, int64_t end, int depth, branch **list,
                               int64_t *count)
{
    const bool texts = t->leaves[begin].keys[depth].text != NULL;
    branch *b = *list = cz__calloc((size_t)(end - begin), sizeof *b);
    *count = 0;
    if (!b)
        return no_memory(t);
    for (int64_t i = begin; i < end; i++) {
        const leaf *l = &t->leaves[i];
        if (i == begin || compare_keys(&l->keys[depth], &t->leaves[i - 1].keys[depth]) != 0)
            b[(*count)++] = (branch){i, i, l->entry->order};
        branch *last = &b[*count - 1];
        last->end = i + 1;
        last->order = l->entry->order < last->order ? l->entry->order : last->order;
    }
    if (texts)
        qsort(b, (size_t)*count, sizeof *b, by_order);
    return CZ_OK;
}

static cz_status check_branches(const tree *t, const branch *list, int64_t count, int depth)
{
    const leaf *first = &t->leaves[list[0].begin];
    for (int64_t i = 0; i < count; i++) {
        const leaf *l = &t->leaves[list[i].begin];
        const key *k = &l->keys[depth];
        if ((k->text != NULL) != (first->keys[depth].text != NULL))
            return cz__dcp_refuse(t->d,
                                  "'%s' and '%s' are in one thing, which is a list for one "
                                  "of them and a dictionary for the other",
                                  cz__show(first->entry->name).text, cz__show(l->entry->name).text);
        if (!k->text && k->place != i)
            return cz__dcp_refuse(t->d, "'%s': in a list that has no element %" PRId64,
                                  cz__show(l->entry->name).text, i);
    }
    return CZ_OK;
}

static cz_status put_branch(tree *t, cz__pickling *p, int64_t begin, int64_t end, int depth);

static cz_status put_branches(tree *t, cz__pickling *p, const branch *list, int64_t count,
                              int depth)
{
    for (int64_t i = 0; i < count; i++) {
        const key *k = &t->leaves[list[i].begin].keys[depth];
        if (k->text)
            cz__pickle_put_text(p, k->text);
        CZ_TRY(put_branch(t, p, list[i].begin, list[i].end, depth + 1));
    }
    return CZ_OK;
}

/* ---- groups of a flattened optimizer ---- */
/* Each parameter has its values: those that have the same ones are a group. */

typedef struct group {
    cz__pickling values;
    uint64_t print;
} group;

typedef struct grouping {
    group *groups;   /* owned, as the next */
    int64_t *number; /* of each parameter's group */
    int64_t count;
} grouping;

static void clear_groups(grouping *g)
{
    for (int64_t i = 0; i < g->count; i++)
        cz__text_clear(&g->groups[i].values.out);
    cz__free(g->groups);
    cz__free(g->number);
}

/* All leaves go one key deeper: a parameter's values. */
static cz_status put_values(tree *t, cz__pickling *p, int64_t begin, int64_t end, int depth)
{
    branch *list;
    int64_t count;
    cz_status status = list_branches(t, begin, end, depth, &list, &count);
    if (!status)
        status = put_branches(t, p, list, count, depth);
    cz__free(list);
    return status;
}

static cz_status find_group(tree *t, grouping *g, const branch *param, int depth, int64_t *number)
{
    if (g->count == MOST_GROUPS)
        return cz__dcp_refuse(t->d, "its optimizer has more than %d different parameter groups",
                              MOST_GROUPS);
    group *next = &g->groups[g->count];
    *next = (group){.print = 0};
    cz_status status = put_values(t, &next->values, param->begin, param->end, depth);
    const cz__text *text = &next->values.out;
    if (!status && text->failed)
        status = no_memory(t);
    next->print = status ? 0 : cz__fingerprint(0, cz__text_get(text), text->count);
    for (*number = 0; *number < g->count && !status; ++*number) {
        const group *known = &g->groups[*number];
        if (known->print == next->print && known->values.out.count == text->count &&
            memcmp(cz__text_get(&known->values.out), cz__text_get(text), text->count) == 0)
            break;
    }
    if (status || *number < g->count)
        cz__text_clear(&next->values.out);
    else
        g->count++;
    return status;
}

static void put_groups(const tree *t, cz__pickling *p, const grouping *g, const branch *params,
                       int64_t count, int depth)
{
    cz__pickle_begin_list(p);
    for (int64_t i = 0; i < g->count; i++) {
        const cz__text *values = &g->groups[i].values.out;
        cz__pickle_begin_dict(p);
        (void)cz__text_append(&p->out, cz__text_get(values), values->count);
        cz__pickle_put_text(p, "params");
        cz__pickle_begin_list(p);
        for (int64_t k = 0; k < count; k++)
            if (g->number[k] == i)
                cz__pickle_put_text(p, t->leaves[params[k].begin].keys[depth].text);
        cz__pickle_end_list(p);
        cz__pickle_end_dict(p);
    }
    cz__pickle_end_list(p);
}

static cz_status put_flattened(tree *t, cz__pickling *p, int64_t begin, int64_t end, int depth)
{
    branch *params;
    int64_t count;
    grouping g = {.groups = cz__calloc(MOST_GROUPS, sizeof *g.groups)};
    cz_status status = list_branches(t, begin, end, depth, &params, &count);
    if (!status)
        g.number = cz__calloc((size_t)count, sizeof *g.number);
    if (!status && (!g.groups || !g.number))
        status = no_memory(t);
    for (int64_t k = 0; k < count && !status; k++)
        status = find_group(t, &g, &params[k], depth + 1, &g.number[k]);
    if (!status)
        put_groups(t, p, &g, params, count, depth);
    clear_groups(&g);
    cz__free(params);
    return status;
}

/* ---- together ---- */

static cz_status put_branch(tree *t, cz__pickling *p, int64_t begin, int64_t end, int depth)
{
    branch *list = NULL;
    int64_t count;
    const leaf *first = &t->leaves[begin]; /* the shortest path */
    if (first->count == depth && end - begin > 1)
        return cz__dcp_refuse(t->d, "'%s' and '%s' have one place in the dictionary",
                              cz__show(first->entry->name).text,
                              cz__show(t->leaves[begin + 1].entry->name).text);
    if (first->count == depth)
        return put_leaf(t, p, first);
    bool flattened = true;
    for (int64_t i = begin; i < end && flattened; i++)
        flattened = t->leaves[i].flattened && t->leaves[i].count == depth + 2;
    if (flattened)
        return put_flattened(t, p, begin, end, depth);
    cz_status status = list_branches(t, begin, end, depth, &list, &count);
    if (!status)
        status = check_branches(t, list, count, depth);
    if (!status) {
        const bool is_list = !first->keys[depth].text;
        if (is_list)
            cz__pickle_begin_list(p);
        else
            cz__pickle_begin_dict(p);
        status = put_branches(t, p, list, count, depth);
        if (is_list)
            cz__pickle_end_list(p);
        else
            cz__pickle_end_dict(p);
    }
    cz__free(list);
    return status;
}

static cz_status put_all(tree *t)
{
    t->leaves = cz__calloc((size_t)t->d->entry_count, sizeof *t->leaves);
    if (!t->leaves)
        return no_memory(t);
    for (int64_t i = 0; i < t->d->entry_count; i++)
        CZ_TRY(add_leaf(t, &t->d->entries[i]));
    CZ_TRY(split_optimizers(t));
    if (t->count > 0)
        qsort(t->leaves, (size_t)t->count, sizeof *t->leaves, by_path);
    cz__pickle_begin(&t->p);
    if (t->count == 0)
        cz__pickle_op(&t->p, CZ__PICKLE_OP_EMPTY_DICT);
    else
        CZ_TRY(put_branch(t, &t->p, 0, t->count, 0));
    cz__pickle_end(&t->p);
    return t->p.out.failed ? no_memory(t) : CZ_OK;
}

static void clear_tree(tree *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        cz__free(t->leaves[i].keys);
        cz__free(t->leaves[i].copy);
    }
    cz__free(t->leaves);
    cz__text_clear(&t->p.out);
}

cz_status cz__dcp_open(cz__torch **out, const char *path)
{
    tree t = {0};
    cz__text where = {0};
    *out = NULL;
    CZ_TRY(cz__dcp_read_metadata(&t.d, path));
    const uint64_t print = t.d->fingerprint;
    cz_status status = put_all(&t);
    if (!status)
        status = cz__text_print(&where, "%s", cz__text_get(&t.d->where)) ? CZ_OK : no_memory(&t);
    if (status)
        cz__dcp_close(&t.d);
    else
        status = cz__torch_open_store(out, path, cz__text_get(&where), t.p.out.bytes, t.p.out.count,
                                      &cz__dcp_store, t.d);
    clear_tree(&t);
    cz__text_clear(&where);
    if (!status)
        (*out)->fingerprint = cz__fingerprint((*out)->fingerprint, &print, sizeof print);
    return status;
}
