/* SPDX-License-Identifier: MIT */
/* Files for torch: a pickle that says what there is, and a storage for each tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/consolidated.h"
#include "checkpoint/container.h"
#include "checkpoint/pickle.h"
#include "checkpoint/torch_contents.h"
#include "checkpoint/torch_write.h"

enum {
    MOST_PICKLE = 1 << 28, /* what is read again */
    LAST_EXACT = 1 << 24,  /* larger step counts are no f32 */
    ENTRY_NAME = 40
};

/* A storage that will be written. */
typedef struct payload {
    char entry[ENTRY_NAME];
    char *
        tensor; /* owned: its name among the elements; NULL: it is `memory`, or one of the numbers */
    const void *memory; /* borrowed */
    float f32;
    double f64;
    cz_dtype dtype;
    uint64_t bytes;
    cz__bundle *elements;
} payload;

typedef struct writing {
    const cz__torch_export *what;
    const cz__torch_rule *rule; /* NULL: torch has none like it, or there is no optimizer */
    const char *rule_name;      /* NULL: there is no optimizer */
    cz__pickling p;
    cz__text name;
    payload *payloads; /* owned */
    int64_t count, capacity;
} writing;

bool cz__torch_is_name(const char *path)
{
    static const char *const ends[] = {".pt", ".pth", ".bin"};
    const size_t length = strlen(path);
    for (int i = 0; i < 3; i++) {
        const size_t end = strlen(ends[i]);
        if (length > end && strcmp(path + length - end, ends[i]) == 0)
            return true;
    }
    return false;
}

static cz_status no_memory(void)
{
    return cz__fail(CZ_ERR_MEMORY, "checkpoint export: what a file for torch holds");
}

/* ---- small things ---- */

static void begin_dict(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_DICT);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
}

static void begin_list(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_LIST);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
}

static void end_dict(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_SETITEMS);
}

static void end_list(cz__pickling *p)
{
    cz__pickle_op(p, CZ__PICKLE_OP_APPENDS);
}

static void put_ordered_dict(cz__pickling *p)
{
    cz__pickle_put_global(p, "collections", "OrderedDict");
    cz__pickle_op(p, CZ__PICKLE_OP_EMPTY_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
}

static void put_named_integer(cz__pickling *p, const char *key, int64_t value)
{
    cz__pickle_put_text(p, key);
    cz__pickle_put_integer(p, value);
}

static void put_named_bool(cz__pickling *p, const char *key, bool value)
{
    cz__pickle_put_text(p, key);
    cz__pickle_put_bool(p, value);
}

/* ---- tensors ---- */

static const char *storage_name(cz_dtype dtype)
{
    switch (dtype) {
    case CZ_F32:
        return "FloatStorage";
    case CZ_F64:
        return "DoubleStorage";
    case CZ_F16:
        return "HalfStorage";
    case CZ_BF16:
        return "BFloat16Storage";
    case CZ_I32:
        return "IntStorage";
    case CZ_I64:
        return "LongStorage";
    default:
        return "ByteStorage";
    }
}

static void put_numbers(cz__pickling *p, const int64_t *numbers, int count)
{
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(p, numbers[i]);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
}

/* ('storage', torch.FloatStorage, '7', 'cpu', 12) */
static void put_storage(cz__pickling *p, cz_dtype dtype, int64_t key, int64_t count)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, key);
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    cz__pickle_put_text(p, "storage");
    cz__pickle_put_global(p, "torch", storage_name(dtype));
    cz__pickle_put_text(p, text);
    cz__pickle_put_text(p, "cpu");
    cz__pickle_put_integer(p, count);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_PERSISTENT);
}

/* The call that makes it: _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks). */
static void put_form(cz__pickling *p, cz_dtype dtype, int64_t key, int dimensions,
                     const int64_t *shape)
{
    int64_t strides[CZ_MAX_DIMENSIONS], count = 1;
    for (int d = dimensions - 1; d >= 0; d--) {
        strides[d] = count > 0 ? count : 1;
        count *= shape[d];
    }
    cz__pickle_put_global(p, "torch._utils", "_rebuild_tensor_v2");
    cz__pickle_op(p, CZ__PICKLE_OP_MARK);
    put_storage(p, dtype, key, count);
    cz__pickle_put_integer(p, 0);
    put_numbers(p, shape, dimensions);
    put_numbers(p, strides, dimensions);
    cz__pickle_put_bool(p, false);
    put_ordered_dict(p);
    cz__pickle_op(p, CZ__PICKLE_OP_TUPLE);
    cz__pickle_op(p, CZ__PICKLE_OP_REDUCE);
}

/* A tensor with a storage of its own, which the caller fills in. */
static cz_status put_tensor(writing *w, cz_dtype dtype, int dimensions, const int64_t *shape,
                            payload **out)
{
    cz_tensor form = {.dimensions = dimensions};
    if (dimensions > 0)
        memcpy(form.shape, shape, (size_t)dimensions * sizeof *shape);
    payload *payloads = cz__grow(w->payloads, w->count, &w->capacity, sizeof *payloads);
    if (!payloads)
        return no_memory();
    w->payloads = payloads;
    put_form(&w->p, dtype, w->count, dimensions, shape);
    *out = &w->payloads[w->count];
    **out = (payload){.dtype = dtype,
                      .bytes = (uint64_t)cz_tensor_count(&form) * cz_dtype_size(dtype),
                      .elements = w->what->elements};
    snprintf((*out)->entry, sizeof(*out)->entry, "archive/data/%" PRId64, w->count);
    w->count++;
    return CZ_OK;
}

/* A value (slot NULL), or a slot in its shape. */
static cz_status put_stored(writing *w, const cz__stored *stored, const char *slot, cz_dtype dtype)
{
    payload *to;
    CZ_TRY(cz__consolidated_name(&w->name, stored->name, slot));
    CZ_TRY(put_tensor(w, dtype, stored->dimensions, stored->shape, &to));
    to->tensor = cz__strdup(cz__text_get(&w->name));
    return to->tensor ? CZ_OK : no_memory();
}

/* As torch has it: a tensor without dimensions. */
static cz_status put_scalar_tensor(writing *w, cz_dtype dtype, double number)
{
    payload *to;
    CZ_TRY(put_tensor(w, dtype, 0, NULL, &to));
    to->f32 = (float)number;
    to->f64 = number;
    return CZ_OK;
}

/* ---- the model ---- */

static cz_status put_model(writing *w)
{
    const cz__index *index = w->what->index;
    put_ordered_dict(&w->p);
    cz__pickle_op(&w->p, CZ__PICKLE_OP_MARK);
    for (int64_t i = 0; i < index->param_count + index->buffer_count; i++) {
        cz__pickle_put_text(&w->p, index->stored[i].name);
        CZ_TRY(put_stored(w, &index->stored[i], NULL, index->stored[i].dtype));
    }
    end_dict(&w->p);
    return CZ_OK;
}

/* ---- the optimizer ---- */

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
        return put_scalar_tensor(w, CZ_F32, (double)step);
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
        return put_stored(w, stored, slot, stored->dtype);
    CZ_TRY(cz_state_dict_get_real(entry, slot, &real));
    if (w->rule && w->rule->scalar)
        return put_scalar_tensor(w, CZ_F64, real);
    cz__pickle_put_real(&w->p, real);
    return CZ_OK;
}

/* `number`: torch's of the parameter. */
static cz_status put_entry(writing *w, int64_t number, const char *name)
{
    const cz_state_dict *entry;
    const cz__index *index = w->what->index;
    const int64_t place = cz__index_find(index, name);
    if (place < 0 || cz_state_dict_kind(index->entries, name) != CZ_STATE_DICT)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_dict(index->entries, name, &entry));
    cz__pickle_put_integer(&w->p, number);
    begin_dict(&w->p);
    for (int64_t i = 0; i < cz_state_dict_count(entry); i++)
        CZ_TRY(put_slot(w, &index->stored[place], entry, cz_state_dict_key(entry, i)));
    end_dict(&w->p);
    return CZ_OK;
}

/* Called for each member of the groups, in torch's order. */
typedef cz_status (*member_visitor)(writing *w, int64_t number, const char *name);

static cz_status visit_members(writing *w, member_visitor visit)
{
    int64_t number = 0;
    for (int64_t g = 0; g < group_count(w); g++) {
        const cz_state_dict *group;
        CZ_TRY(get_group(w, g, &group));
        for (int64_t k = 0; k < cz_state_dict_text_count(group, "params"); k++) {
            const char *name;
            CZ_TRY(cz_state_dict_get_text_at(group, "params", k, &name));
            CZ_TRY(visit(w, number++, name));
        }
    }
    return CZ_OK;
}

static bool is_torchs(const writing *w, const char *name)
{
    for (int i = 0; w->rule && i < CZ__TORCH_HYPERS && w->rule->hypers[i].key; i++)
        for (int k = 0; k < 2; k++)
            if (w->rule->hypers[i].ours[k] && strcmp(w->rule->hypers[i].ours[k], name) == 0)
                return true;
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
    const cz_state_dict *group;
    CZ_TRY(get_group(w, g, &group));
    begin_dict(&w->p);
    for (int i = 0; w->rule && i < CZ__TORCH_HYPERS && w->rule->hypers[i].key; i++)
        CZ_TRY(put_hyper(w, group, &w->rule->hypers[i]));
    put_manner(w);
    for (int64_t i = 0; i < cz_state_dict_count(group); i++) {
        const char *key = cz_state_dict_key(group, i);
        double value;
        if (is_torchs(w, key))
            continue;
        CZ_TRY(cz_state_dict_get_real(group, key, &value));
        cz__pickle_put_text(&w->p, key);
        cz__pickle_put_real(&w->p, value);
    }
    cz__pickle_put_text(&w->p, "params");
    begin_list(&w->p);
    for (int64_t k = 0; k < cz_state_dict_text_count(group, "params"); k++)
        cz__pickle_put_integer(&w->p, (*number)++);
    end_list(&w->p);
    end_dict(&w->p);
    return CZ_OK;
}

static cz_status put_optimizer(writing *w)
{
    int64_t number = 0;
    cz__pickle_put_text(&w->p, CZ__TORCH_OPTIMIZER);
    begin_dict(&w->p);
    cz__pickle_put_text(&w->p, "state");
    begin_dict(&w->p);
    CZ_TRY(visit_members(w, put_entry));
    end_dict(&w->p);
    cz__pickle_put_text(&w->p, "param_groups");
    begin_list(&w->p);
    for (int64_t g = 0; g < group_count(w); g++)
        CZ_TRY(put_group(w, g, &number));
    end_list(&w->p);
    end_dict(&w->p);
    return CZ_OK;
}

/* ---- what torch has no place for ---- */

static cz_status put_dict(writing *w, const cz_state_dict *dict);

static cz_status put_texts(writing *w, const cz_state_dict *dict, const char *key)
{
    begin_list(&w->p);
    for (int64_t i = 0; i < cz_state_dict_text_count(dict, key); i++) {
        const char *text;
        CZ_TRY(cz_state_dict_get_text_at(dict, key, i, &text));
        cz__pickle_put_text(&w->p, text);
    }
    end_list(&w->p);
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
        CZ_TRY(put_tensor(w, tensor.dtype, tensor.dimensions, tensor.shape, &to));
        to->memory = tensor.data;
        return CZ_OK;
    default:
        CZ_TRY(cz_state_dict_get_dict(dict, key, &inner));
        return put_dict(w, inner);
    }
}

static cz_status put_dict(writing *w, const cz_state_dict *dict)
{
    begin_dict(&w->p);
    for (int64_t i = 0; i < cz_state_dict_count(dict); i++) {
        cz__pickle_put_text(&w->p, cz_state_dict_key(dict, i));
        CZ_TRY(put_value(w, dict, cz_state_dict_key(dict, i)));
    }
    end_dict(&w->p);
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
    begin_list(&w->p);
    CZ_TRY(visit_members(w, visit));
    end_list(&w->p);
    return CZ_OK;
}

static cz_status put_own(writing *w)
{
    const cz__index *index = w->what->index;
    cz__pickle_put_text(&w->p, CZ__TORCH_KEY);
    begin_dict(&w->p);
    cz__pickle_put_text(&w->p, "format");
    cz__pickle_put_text(&w->p, CZ__CONSOLIDATED_FORMAT);
    put_named_integer(&w->p, "version", CZ__CONSOLIDATED_VERSION);
    put_named_integer(&w->p, "step", w->what->step);
    cz__pickle_put_text(&w->p, "buffers");
    begin_list(&w->p);
    for (int64_t i = 0; i < index->buffer_count; i++)
        cz__pickle_put_text(&w->p, index->stored[index->param_count + i].name);
    end_list(&w->p);
    if (w->rule_name) {
        cz__pickle_put_text(&w->p, "rule");
        cz__pickle_put_text(&w->p, w->rule_name);
        CZ_TRY(put_members(w, "params", put_name));
        CZ_TRY(put_members(w, "steps", put_count));
    }
    cz__pickle_put_text(&w->p, "common");
    CZ_TRY(put_dict(w, w->what->common));
    end_dict(&w->p);
    return CZ_OK;
}

/* ---- together ---- */

static cz_status put_all(writing *w)
{
    const cz_state_dict *optimizer = w->what->index->optimizer;
    cz__pickle_begin(&w->p);
    if (w->what->parameters_only)
        CZ_TRY(put_model(w));
    else {
        if (optimizer) {
            CZ_TRY(cz_state_dict_get_text(optimizer, "rule", &w->rule_name));
            w->rule = cz__torch_rule_find(w->rule_name);
        }
        begin_dict(&w->p);
        cz__pickle_put_text(&w->p, CZ__TORCH_MODEL);
        CZ_TRY(put_model(w));
        CZ_TRY(optimizer ? put_optimizer(w) : CZ_OK);
        CZ_TRY(put_own(w));
        end_dict(&w->p);
    }
    cz__pickle_end(&w->p);
    if (w->p.out.failed)
        return no_memory();
    return w->p.out.count <= MOST_PICKLE
               ? CZ_OK
               : cz__fail(CZ_ERR_UNSUPPORTED,
                          "checkpoint export: %zu bytes of names in a file for torch, at most %d",
                          w->p.out.count, (int)MOST_PICKLE);
}

static cz_status read_memory(uint64_t offset, void *to, size_t count, void *context)
{
    memcpy(to, (const char *)context + offset, count);
    return CZ_OK;
}

/* Parts are of whole elements: all but the last are of a size that is a power of two. */
static cz_status read_payload(uint64_t offset, void *to, size_t count, void *context)
{
    const payload *p = context;
    const size_t size = cz_dtype_size(p->dtype);
    return cz__bundle_read(p->elements, p->tensor, (int64_t)(offset / size),
                           (int64_t)((offset + count) / size), to);
}

static cz__container_item item_of(payload *p)
{
    cz__container_item item = {p->entry, p->bytes, read_payload, p};
    if (!p->tensor) {
        item.read = read_memory;
        item.context = p->memory            ? (void *)(uintptr_t)p->memory
                       : p->dtype == CZ_F32 ? (void *)&p->f32
                                            : (void *)&p->f64;
    }
    return item;
}

static cz_status write_entries(const writing *w, const char *path)
{
    static char order[] = "little", version[] = "3\n";
    static char names[][24] = {"archive/data.pkl", "archive/byteorder", "archive/version"};
    cz__container_item *items = cz__calloc((size_t)w->count + 3, sizeof *items);
    if (!items)
        return no_memory();
    items[0] = (cz__container_item){names[0], w->p.out.count, read_memory, w->p.out.bytes};
    items[1] = (cz__container_item){names[1], sizeof order - 1, read_memory, order};
    for (int64_t i = 0; i < w->count; i++)
        items[2 + i] = item_of(&w->payloads[i]);
    items[2 + w->count] = (cz__container_item){names[2], sizeof version - 1, read_memory, version};
    const cz_status status = cz__container_write(path, items, w->count + 3);
    cz__free(items);
    return status;
}

cz_status cz__torch_write(const char *path, const cz__torch_export *what)
{
    writing w = {.what = what};
    cz_status status = put_all(&w);
    if (status == CZ_OK)
        status = write_entries(&w, path);
    for (int64_t i = 0; i < w.count; i++)
        cz__free(w.payloads[i].tensor);
    cz__free(w.payloads);
    cz__text_clear(&w.p.out);
    cz__text_clear(&w.name);
    return status;
}
