/* SPDX-License-Identifier: MIT */
/* Files for torch: a pickle that says what there is, and a storage for each tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/torch.h"
#include "interop/torch_write.h"

enum { MOST_PICKLE = 1 << 28 }; /* what is read again */

typedef cz__torch_writing writing;
typedef cz__torch_payload payload;

bool cz__torch_is_name(const char *path)
{
    return cz__ends_with(path, ".pt") || cz__ends_with(path, ".pth") || cz__ends_with(path, ".bin");
}

static void put_named_integer(cz__pickling *p, const char *key, int64_t value)
{
    cz__pickle_put_text(p, key);
    cz__pickle_put_integer(p, value);
}

/* ---- the model ---- */

static cz_status put_model(writing *w)
{
    const cz__index *index = w->what->index;
    cz__torch_put_ordered_dict(&w->p);
    cz__pickle_op(&w->p, CZ__PICKLE_OP_MARK);
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        cz__pickle_put_text(&w->p, index->stored[i].name);
        CZ_TRY(cz__torch_put_stored(w, &index->stored[i], NULL, index->stored[i].dtype));
    }
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

/* ---- the optimizer: parameters by number, values under torch's names ---- */

enum { LAST_EXACT = 1 << 24 }; /* larger step counts are no f32 */

static void put_named_bool(cz__pickling *p, const char *key, bool value)
{
    cz__pickle_put_text(p, key);
    cz__pickle_put_bool(p, value);
}

/* ---- state ---- */

static cz_status get_group(const writing *w, int64_t number, const cz_state_dict **group)
{
    char key[24];
    const cz_state_dict *groups;
    snprintf(key, sizeof key, "%" PRId64, number);
    CZ_TRY(cz_state_dict_get_dict(w->what->index->optimizer, "param_groups", &groups));
    return cz_state_dict_get_dict(groups, key, group);
}

static int64_t group_count(const writing *w)
{
    const cz_state_dict *groups;
    return cz_state_dict_get_dict(w->what->index->optimizer, "param_groups", &groups) == CZ_OK
               ? cz_state_dict_count(groups)
               : 0;
}

static cz_status put_step(writing *w, int64_t step)
{
    if (w->rule && w->rule->step_is_tensor && step <= LAST_EXACT)
        return cz__torch_put_scalar(w, CZ_F32, (double)step);
    cz__pickle_put_integer(&w->p, step);
    return CZ_OK;
}

/* One value of a parameter's state; slots are texts in an outline. */
static cz_status put_slot(writing *w, const cz__stored *stored, const cz_state_dict *entry,
                          const char *slot)
{
    double real;
    int64_t step;
    if (strcmp(slot, "step") == 0 && w->rule && !w->rule->counts)
        return CZ_OK;
    cz__pickle_put_text(&w->p, slot);
    if (strcmp(slot, "step") == 0) {
        CZ_TRY(cz_state_dict_get_integer(entry, slot, &step));
        return put_step(w, step);
    }
    if (cz_state_dict_kind(entry, slot) == CZ_STATE_TEXT)
        return cz__torch_put_stored(
            w, stored, slot,
            cz__index_dtype(w->what->index, stored - w->what->index->stored, slot));
    CZ_TRY(cz_state_dict_get_real(entry, slot, &real));
    if (w->rule && w->rule->scalar)
        return cz__torch_put_scalar(w, CZ_F64, real);
    cz__pickle_put_real(&w->p, real);
    return CZ_OK;
}

/* `number`: torch's of the parameter. */
static void put_member(writing *w, int64_t number, const char *name)
{
    if (w->named)
        cz__pickle_put_text(&w->p, name);
    else
        cz__pickle_put_integer(&w->p, number);
}

static cz_status put_entry(writing *w, int64_t number, const char *name)
{
    const cz_state_dict *entry;
    const cz__index *index = w->what->index;
    const int64_t place = cz__index_find(index, name);
    if (place < 0 || cz_state_dict_kind(index->entries, name) != CZ_STATE_DICT)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_dict(index->entries, name, &entry));
    put_member(w, number, name);
    cz__pickle_begin_dict(&w->p);
    for (int64_t i = 0; i < cz_state_dict_count(entry); i++)
        CZ_TRY(put_slot(w, &index->stored[place], entry, cz_state_dict_key(entry, i)));
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

typedef cz_status (*member_visitor)(writing *w, int64_t number, const char *name);

/* Call `visit` for each member of the groups, in torch's order. */
static cz_status visit_members(writing *w, member_visitor visit)
{
    int64_t number = 0;
    for (int64_t g = 0; g < group_count(w); g++) {
        const cz_state_dict *group;
        const char *const *names;
        int64_t count;
        CZ_TRY(get_group(w, g, &group));
        CZ_TRY(cz_state_dict_get_texts(group, "params", &names, &count));
        for (int64_t k = 0; k < count; k++)
            CZ_TRY(visit(w, number++, names[k]));
    }
    return CZ_OK;
}

/* ---- groups ---- */

static bool is_torchs(const writing *w, const char *name)
{
    if (w->rule) {
        for (int i = 0; i < CZ__TORCH_HYPERS && w->rule->hypers[i].key; i++)
            for (int k = 0; k < 2; k++)
                if (w->rule->hypers[i].ours[k] && strcmp(w->rule->hypers[i].ours[k], name) == 0)
                    return true;
    }
    return strcmp(name, "params") == 0;
}

static cz_status put_hyper(writing *w, const cz_state_dict *group, const cz__torch_hyper *hyper)
{
    double value;
    cz__pickle_put_text(&w->p, hyper->key);
    if (hyper->ours[1])
        cz__pickle_op(&w->p, CZ__PICKLE_OP_MARK);
    for (int k = 0; k < 2 && hyper->ours[k]; k++) {
        CZ_TRY(cz_state_dict_get_real(group, hyper->ours[k], &value));
        if (hyper->flag)
            cz__pickle_put_bool(&w->p, value != 0);
        else
            cz__pickle_put_real(&w->p, value);
    }
    if (hyper->ours[1])
        cz__pickle_op(&w->p, CZ__PICKLE_OP_TUPLE);
    return CZ_OK;
}

/* What torch's classes have beside the rule's own: it computes as it likes. */
static void put_manner(writing *w)
{
    cz__pickle_put_text(&w->p, "foreach");
    cz__pickle_put_none(&w->p);
    put_named_bool(&w->p, "capturable", false);
    put_named_bool(&w->p, "differentiable", false);
    cz__pickle_put_text(&w->p, "fused");
    cz__pickle_put_none(&w->p);
    if (w->rule && (strcmp(w->rule->rule, "adam") == 0 || strcmp(w->rule->rule, "adamw") == 0))
        put_named_bool(&w->p, "decoupled_weight_decay", w->rule->decoupled != 0);
}

static cz_status put_group(writing *w, int64_t g, int64_t *number)
{
    const char *const *names;
    int64_t count;
    const cz_state_dict *group;
    CZ_TRY(get_group(w, g, &group));
    cz__pickle_begin_dict(&w->p);
    if (w->rule)
        for (int i = 0; i < CZ__TORCH_HYPERS && w->rule->hypers[i].key; i++)
            CZ_TRY(put_hyper(w, group, &w->rule->hypers[i]));
    put_manner(w);
    for (int64_t i = 0; i < cz_state_dict_count(group); i++) {
        const char *key = cz_state_dict_key(group, i);
        double value;
        if (is_torchs(w, key) || cz_state_dict_kind(group, key) == CZ_STATE_TEXT) /* the rule */
            continue;
        CZ_TRY(cz_state_dict_get_real(group, key, &value));
        cz__pickle_put_text(&w->p, key);
        cz__pickle_put_real(&w->p, value);
    }
    cz__pickle_put_text(&w->p, "params");
    cz__pickle_begin_list(&w->p);
    CZ_TRY(cz_state_dict_get_texts(group, "params", &names, &count));
    for (int64_t k = 0; k < count; k++)
        put_member(w, (*number)++, names[k]);
    cz__pickle_end_list(&w->p);
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

static cz_status put_optimizer(writing *w)
{
    int64_t number = 0;
    cz__pickle_put_text(&w->p, CZ__TORCH_OPTIMIZER);
    cz__pickle_begin_dict(&w->p);
    cz__pickle_put_text(&w->p, "state");
    cz__pickle_begin_dict(&w->p);
    CZ_TRY(visit_members(w, put_entry));
    cz__pickle_end_dict(&w->p);
    cz__pickle_put_text(&w->p, "param_groups");
    cz__pickle_begin_list(&w->p);
    for (int64_t g = 0; g < group_count(w); g++)
        CZ_TRY(put_group(w, g, &number));
    cz__pickle_end_list(&w->p);
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

/* ---- what torch has no place for ---- */

static cz_status put_dict(writing *w, const cz_state_dict *dict);

static cz_status put_texts(writing *w, const cz_state_dict *dict, const char *key)
{
    const char *const *texts;
    int64_t count;
    CZ_TRY(cz_state_dict_get_texts(dict, key, &texts, &count));
    cz__pickle_begin_list(&w->p);
    for (int64_t i = 0; i < count; i++)
        cz__pickle_put_text(&w->p, texts[i]);
    cz__pickle_end_list(&w->p);
    return CZ_OK;
}

static cz_status put_value(writing *w, const cz_state_dict *dict, const char *key)
{
    int64_t integer;
    double real;
    const char *text;
    const cz_state_dict *inner;
    cz_tensor tensor;
    payload *to;
    switch (cz_state_dict_kind(dict, key)) {
    case CZ_STATE_INTEGER:
        CZ_TRY(cz_state_dict_get_integer(dict, key, &integer));
        cz__pickle_put_integer(&w->p, integer);
        return CZ_OK;
    case CZ_STATE_REAL:
        CZ_TRY(cz_state_dict_get_real(dict, key, &real));
        cz__pickle_put_real(&w->p, real);
        return CZ_OK;
    case CZ_STATE_TEXT:
        CZ_TRY(cz_state_dict_get_text(dict, key, &text));
        cz__pickle_put_text(&w->p, text);
        return CZ_OK;
    case CZ_STATE_TEXTS:
        return put_texts(w, dict, key);
    case CZ_STATE_TENSOR:
        CZ_TRY(cz_state_dict_get_tensor(dict, key, &tensor));
        CZ_TRY(cz__torch_put_tensor(w, key, tensor.dtype, tensor.dimensions, tensor.shape, &to));
        to->memory = tensor.data;
        return CZ_OK;
    default:
        CZ_TRY(cz_state_dict_get_dict(dict, key, &inner));
        return put_dict(w, inner);
    }
}

static cz_status put_dict(writing *w, const cz_state_dict *dict)
{
    cz__pickle_begin_dict(&w->p);
    for (int64_t i = 0; i < cz_state_dict_count(dict); i++) {
        cz__pickle_put_text(&w->p, cz_state_dict_key(dict, i));
        CZ_TRY(put_value(w, dict, cz_state_dict_key(dict, i)));
    }
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

static cz_status put_name(writing *w, int64_t number, const char *name)
{
    cz__pickle_put_text(&w->p, name);
    return CZ_OK;
}

/* -1: there is no state. */
static cz_status put_count(writing *w, int64_t number, const char *name)
{
    int64_t step = -1;
    const cz_state_dict *entry, *entries = w->what->index->entries;
    if (cz_state_dict_kind(entries, name) == CZ_STATE_DICT) {
        CZ_TRY(cz_state_dict_get_dict(entries, name, &entry));
        if (cz_state_dict_kind(entry, "step") == CZ_STATE_INTEGER)
            CZ_TRY(cz_state_dict_get_integer(entry, "step", &step));
    }
    cz__pickle_put_integer(&w->p, step);
    return CZ_OK;
}

static cz_status put_members(writing *w, const char *key, member_visitor visit)
{
    cz__pickle_put_text(&w->p, key);
    cz__pickle_begin_list(&w->p);
    CZ_TRY(visit_members(w, visit));
    cz__pickle_end_list(&w->p);
    return CZ_OK;
}

static cz_status put_own(writing *w)
{
    const cz__index *index = w->what->index;
    cz__pickle_put_text(&w->p, CZ__TORCH_KEY);
    cz__pickle_begin_dict(&w->p);
    cz__pickle_put_text(&w->p, "format");
    cz__pickle_put_text(&w->p, CZ__CONSOLIDATED_FORMAT);
    put_named_integer(&w->p, "version", CZ__FIRST_VERSION);
    put_named_integer(&w->p, "step", w->what->step);
    cz__pickle_put_text(&w->p, "buffers");
    cz__pickle_begin_list(&w->p);
    for (int64_t i = 0; i < index->buffer_count; i++)
        cz__pickle_put_text(&w->p, index->stored[index->param_count + i].name);
    cz__pickle_end_list(&w->p);
    if (w->rule_name) {
        cz__pickle_put_text(&w->p, "rule");
        cz__pickle_put_text(&w->p, w->rule_name);
        CZ_TRY(put_members(w, "params", put_name));
        CZ_TRY(put_members(w, "steps", put_count));
    }
    cz__pickle_put_text(&w->p, "common");
    CZ_TRY(put_dict(w, w->what->common));
    cz__pickle_end_dict(&w->p);
    return CZ_OK;
}

/* ---- together ---- */

/* An optimizer of torch's has one class, and so one rule. */
static cz_status find_rule(writing *w, const cz_state_dict *optimizer)
{
    const char *rule = cz__outline_only_rule(optimizer);
    if (!rule)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "checkpoint export: its parameter groups have several rules, and an "
                        "optimizer of PyTorch's has one; export it as safetensors, or with option "
                        "parameters_only");
    w->rule_name = rule;
    w->rule = cz__torch_rule_find(rule);
    return CZ_OK;
}

cz_status cz__torch_put_all(writing *w)
{
    const cz_state_dict *optimizer = w->what->index->optimizer;
    cz__pickle_begin(&w->p);
    if (w->what->parameters_only)
        CZ_TRY(put_model(w));
    else {
        if (optimizer) {
            CZ_TRY(find_rule(w, optimizer));
        }
        cz__pickle_begin_dict(&w->p);
        cz__pickle_put_text(&w->p, CZ__TORCH_MODEL);
        CZ_TRY(put_model(w));
        CZ_TRY(optimizer ? put_optimizer(w) : CZ_OK);
        CZ_TRY(put_own(w));
        cz__pickle_end_dict(&w->p);
    }
    cz__pickle_end(&w->p);
    if (w->p.out.failed)
        return cz__torch_no_memory();
    return w->p.out.count <= MOST_PICKLE
               ? CZ_OK
               : cz__fail(CZ_ERR_UNSUPPORTED,
                          "checkpoint export: %zu bytes of names in a file for torch, at most %d",
                          w->p.out.count, (int)MOST_PICKLE);
}

cz_status cz__torch_write(const char *path, const cz__torch_export *what)
{
    writing w = {.what = what};
    cz_status status = cz__torch_put_all(&w);
    if (!status)
        status = cz__torch_write_entries(&w, path);
    cz__torch_writing_clear(&w);
    return status;
}
