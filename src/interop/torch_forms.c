/* SPDX-License-Identifier: MIT */
/* Which of the forms that people write a file of torch has: the model, the optimizer and what czero
 * adds in it. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "interop/consolidated.h"
#include "interop/torch.h"

static cz_status no_memory(const cz__torch_contents *c)
{
    return cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", c->file->path);
}

/* ---- the model ---- */

/* Something that modules keep beside their tensors, as `_extra_state`, and that nobody takes for
 * one. */
static bool is_aside(const cz__pickle_value *value)
{
    return value->kind == CZ__PICKLE_NONE || value->kind == CZ__PICKLE_BYTES ||
           value->kind == CZ__PICKLE_OBJECT || (value->kind == CZ__PICKLE_OPAQUE && !value->note);
}

/* The first ones by their names. */
static cz_status note_aside(cz__torch_contents *c, const char *name, const cz__pickle_value *value,
                            int64_t number)
{
    enum { FEW = 5 };
    const char *where = cz__text_get(&c->file->where);
    if (number > FEW)
        return number == FEW + 1 ? cz__torch_note(c, "%s: and others", where) : CZ_OK;
    return cz__torch_note(c, "%s: '%s' of the model is %s, no tensor: left", where,
                          cz__show(name).text, cz__pickle_kind_name(value->kind));
}

static cz_status read_model(cz__torch_contents *c, const cz__pickle_value *model)
{
    const cz__pickle *p = c->file->pickle;
    int64_t aside = 0;
    c->has_model = true;
    for (int64_t i = 0; i < model->count; i += 2) {
        cz_dtype dtype;
        const cz__pickle_value *key = cz__pickle_item(p, model, i);
        if (key->kind != CZ__PICKLE_TEXT || !key->text[0])
            return cz__torch_refuse(c, "%s as the name of a tensor of the model",
                                    cz__pickle_kind_name(key->kind));
        const cz__pickle_value *value = cz__pickle_item(p, model, i + 1);
        if (is_aside(value))
            CZ_TRY(note_aside(c, key->text, value, ++aside));
        else
            CZ_TRY(cz__torch_contents_add(c, value, NULL, key->text, &dtype));
    }
    return CZ_OK;
}

/* ---- what czero adds ---- */

static cz_status put_value(cz__torch_contents *c, cz_state_dict *to, const char *key,
                           const cz__pickle_value *value, int depth);

static cz_status put_items(cz__torch_contents *c, cz_state_dict *to, const cz__pickle_value *dict,
                           int depth)
{
    for (int64_t i = 0; i < dict->count; i += 2) {
        const cz__pickle_value *key = cz__pickle_item(c->file->pickle, dict, i);
        if (key->kind != CZ__PICKLE_TEXT || !key->text[0] ||
            cz_state_dict_kind(to, key->text) != CZ_STATE_NONE)
            return cz__torch_refuse(c, "the common dictionary has a key that is no text, or twice");
        CZ_TRY(put_value(c, to, key->text, cz__pickle_item(c->file->pickle, dict, i + 1), depth));
    }
    return CZ_OK;
}

static cz_status put_texts(cz__torch_contents *c, cz_state_dict *to, const char *key,
                           const cz__pickle_value *list)
{
    cz_status status = CZ_OK;
    const char **texts = cz__calloc((size_t)list->count, sizeof *texts);
    if (!texts)
        return no_memory(c);
    for (int64_t i = 0; i < list->count; i++) {
        const cz__pickle_value *text = cz__pickle_item(c->file->pickle, list, i);
        if (text->kind == CZ__PICKLE_TEXT)
            texts[i] = text->text;
        else
            status = cz__torch_refuse(c, "the common dictionary has a list that is not of texts");
        if (!status)
            status = cz__torch_contents_spend(c);
        if (status)
            goto done;
    }
    status = cz_state_dict_set_texts(to, key, texts, list->count);
done:
    cz__free(texts);
    return status;
}

/* Its elements are read here: it is small. */
static cz_status put_tensor(cz__torch_contents *c, cz_state_dict *to, const char *key,
                            const cz__pickle_value *value)
{
    void *data;
    cz__torch_tensor tensor;
    CZ_TRY(cz__torch_tensor_of(c->file, value, key, &tensor));
    const cz__safetensors_entry *form = &tensor.form;
    CZ_TRY(cz__type_check(form->dtype, cz__text_get(&c->file->where), key));
    if (form->end > (uint64_t)c->bytes)
        return cz__torch_refuse(c, "the common dictionary has more elements than the file");
    c->bytes -= (int64_t)form->end;
    CZ_TRY(cz_state_dict_add_tensor(to, key, form->dtype, form->dimensions, form->shape, &data));
    return cz__torch_read(c->file, &tensor, 0, (int64_t)(form->end / cz__type_unit(form->dtype)),
                          data);
}

static cz_status put_value(cz__torch_contents *c, cz_state_dict *to, const char *key,
                           const cz__pickle_value *value, int depth)
{
    cz_state_dict *inner;
    CZ_TRY(cz__torch_contents_spend(c));
    switch (value->kind) {
    case CZ__PICKLE_BOOL:
    case CZ__PICKLE_INTEGER:
        return cz_state_dict_set_integer(to, key, value->integer);
    case CZ__PICKLE_REAL:
        return cz_state_dict_set_real(to, key, value->real);
    case CZ__PICKLE_TEXT:
        return cz_state_dict_set_text(to, key, value->text);
    case CZ__PICKLE_LIST:
        return put_texts(c, to, key, value);
    case CZ__PICKLE_CALL:
        return put_tensor(c, to, key, value);
    case CZ__PICKLE_DICT:
        if (depth >= CZ_STATE_MAX_DEPTH)
            return cz__torch_refuse(c, "dictionaries in more than %d levels", CZ_STATE_MAX_DEPTH);
        CZ_TRY(cz_state_dict_add_dict(to, key, &inner));
        return put_items(c, inner, value, depth + 1);
    default:
        return cz__torch_refuse(c, "the common dictionary has %s",
                                cz__pickle_kind_name(value->kind));
    }
}

static bool is_list_of_texts(const cz__torch_contents *c, const cz__pickle_value *v)
{
    if (v && v->kind == CZ__PICKLE_LIST) {
        for (int64_t i = 0; i < v->count; i++)
            if (cz__pickle_item(c->file->pickle, v, i)->kind != CZ__PICKLE_TEXT)
                return false;
    }
    return v && v->kind == CZ__PICKLE_LIST;
}

static cz_status read_own(cz__torch_contents *c)
{
    const cz__pickle *p = c->file->pickle;
    const cz__pickle_value *format = cz__pickle_get(p, c->own, "format");
    const cz__pickle_value *version = cz__pickle_get(p, c->own, "version");
    const cz__pickle_value *step = cz__pickle_get(p, c->own, "step");
    const cz__pickle_value *common = cz__pickle_get(p, c->own, "common");
    c->buffers = cz__pickle_get(p, c->own, "buffers");
    if (!format || !cz__pickle_is_text(format, CZ__CONSOLIDATED_FORMAT) || !version ||
        version->kind != CZ__PICKLE_INTEGER)
        return cz__torch_refuse(c, "'" CZ__TORCH_KEY "' is not what this library writes there");
    if (version->integer > CZ__CONSOLIDATED_VERSION)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "%s: version %" PRId64 " of the form; this library knows up to %d",
                        cz__text_get(&c->file->where), version->integer, CZ__CONSOLIDATED_VERSION);
    if (!step || step->kind != CZ__PICKLE_INTEGER || step->integer < 0 || !common ||
        common->kind != CZ__PICKLE_DICT || !is_list_of_texts(c, c->buffers))
        return cz__torch_refuse(c, "'" CZ__TORCH_KEY "' has no step, common dictionary or buffers");
    c->ours = true;
    c->step = step->integer;
    CZ_TRY(cz_state_dict_create(&c->common));
    return put_items(c, c->common, common, 1);
}

/* ---- which form ---- */

static const cz__pickle_value *get_dict(const cz__torch_contents *c, const char *key)
{
    const cz__pickle_value *v = cz__pickle_get(c->file->pickle, c->root, key);
    return v && v->kind == CZ__PICKLE_DICT ? v : NULL;
}

/* The one of those keys that is there; CZ_ERR_FORMAT: two are. */
static cz_status choose(const cz__torch_contents *c, const char *const *keys, int count,
                        const cz__pickle_value **found)
{
    const char *before = NULL;
    *found = NULL;
    for (int i = 0; i < count; i++) {
        const cz__pickle_value *v = get_dict(c, keys[i]);
        if (v && before)
            return cz__torch_refuse(c, "it has '%s' and '%s': which of them is meant is not clear",
                                    before, keys[i]);
        before = v ? keys[i] : before;
        *found = v ? v : *found;
    }
    return CZ_OK;
}

static bool is_optimizer(const cz__torch_contents *c, const cz__pickle_value *v)
{
    const cz__pickle_value *state = cz__pickle_get(c->file->pickle, v, "state");
    const cz__pickle_value *groups = cz__pickle_get(c->file->pickle, v, "param_groups");
    const bool lists_groups = groups && groups->kind == CZ__PICKLE_LIST;
    if (!state) /* one that is empty leaves nothing behind in a folder */
        return lists_groups && c->file->store;
    return state->kind == CZ__PICKLE_DICT && lists_groups;
}

/* Is it a state dictionary itself: tensors under texts, and nothing else but what modules keep
 * beside them? */
static bool is_model(const cz__torch_contents *c, const cz__pickle_value *dict)
{
    bool tensors = dict->count == 0;
    for (int64_t i = 0; i < dict->count; i += 2) {
        const cz__pickle_value *value = cz__pickle_item(c->file->pickle, dict, i + 1);
        const bool tensor = value->kind == CZ__PICKLE_CALL ||
                            (value->kind == CZ__PICKLE_OPAQUE && value->note); /* said later */
        if (cz__pickle_item(c->file->pickle, dict, i)->kind != CZ__PICKLE_TEXT ||
            (!tensor && !is_aside(value)))
            return false;
        tensors = tensors || tensor;
    }
    return tensors;
}

static cz_status refuse_form(const cz__torch_contents *c, const cz__pickle_value *root)
{
    cz__text keys = {0};
    const cz__pickle *p = c->file->pickle;
    for (int64_t i = 0; i < root->count && i < 12; i += 2)
        if (cz__pickle_item(p, root, i)->kind == CZ__PICKLE_TEXT)
            cz__text_print(&keys, "%s'%.40s'", i ? ", " : "",
                           cz__show(cz__pickle_item(p, root, i)->text).text);
    const cz_status status = cz__torch_refuse(
        c,
        "its keys are %s%s: wanted a model under 'model', 'model_state_dict' or 'state_dict' (and "
        "its optimizer under 'optimizer', 'optimizer_state_dict' or 'optim'), or a state "
        "dictionary itself",
        cz__text_get(&keys), root->count > 12 ? ", …" : "");
    cz__text_clear(&keys);
    return status;
}

static cz_status read_optimizer(cz__torch_contents *c, const cz__pickle_value *optimizer)
{
    if (is_optimizer(c, optimizer))
        return cz__torch_read_optimizer(c, optimizer);
    return c->has_model && !cz__torch_knows_model(c->here)
               ? cz__torch_note(c, "%s: its optimizer has no 'state' and 'param_groups': left",
                                cz__text_get(&c->file->where))
               : cz__torch_refuse(c, "its optimizer has no 'state' and 'param_groups'");
}

/* Its parameters have numbers, and no shapes where there is no state. */
static cz_status refuse_alone(const cz__torch_contents *c)
{
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "%s: it has an optimizer and no model, so which parameters it is of is not "
                    "said: import it with cz_checkpoint_import(), which knows the model",
                    cz__text_get(&c->file->where));
}

/* As Lightning has them, or a program with several. */
static cz_status note_others(cz__torch_contents *c)
{
    static const char *const keys[] = {CZ__TORCH_OPTIMIZER, "optimizer_state_dict", "optim",
                                       "optimizer_states", "optimizers"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cz__pickle_value *v = cz__pickle_get(c->file->pickle, c->root, keys[i]);
        if (v && v->kind != CZ__PICKLE_NONE && (v->kind != CZ__PICKLE_DICT || i >= 3))
            CZ_TRY(cz__torch_note(
                c, "%s: '%s' is %s, wanted the dictionary of one optimizer under 'optimizer': left",
                cz__text_get(&c->file->where), keys[i], cz__pickle_kind_name(v->kind)));
    }
    return CZ_OK;
}

/* What was skipped, by a few names. */
static cz_status note_opaque(cz__torch_contents *c)
{
    cz__text list = {0};
    if (c->file->pickle->opaque_count == 0)
        return CZ_OK;
    cz_status status = cz__pickle_list_opaque(c->file->pickle, &list) ? CZ_OK : no_memory(c);
    if (!status && list.count > 0)
        status = cz__torch_note(c,
                                "%s: it has objects of Python's that are no tensors (%s): skipped, "
                                "nothing was executed",
                                cz__text_get(&c->file->where), cz__text_get(&list));
    cz__text_clear(&list);
    return status;
}

static const char *const models[] = {CZ__TORCH_MODEL, "model_state_dict", "state_dict"};
static const char *const optimizers[] = {CZ__TORCH_OPTIMIZER, "optimizer_state_dict", "optim"};
enum { MODELS = 3, OPTIMIZERS = 3 };

/* All in one object of the program's: {"app": {"model": …, "optim": …}}. */
static bool is_wrapped(const cz__torch_contents *c, const cz__pickle_value *root)
{
    const cz__pickle *p = c->file->pickle;
    if (root->kind != CZ__PICKLE_DICT || cz__pickle_dict_count(root) != 1 ||
        cz__pickle_item(p, root, 0)->kind != CZ__PICKLE_TEXT)
        return false;
    const cz__pickle_value *inner = cz__pickle_item(p, root, 1);
    for (int i = 0; i < MODELS; i++) {
        const cz__pickle_value *v = cz__pickle_get(p, inner, models[i]);
        if (cz__pickle_get(p, root, models[i]))
            return false;
        if (v && v->kind == CZ__PICKLE_DICT)
            return true;
    }
    return false;
}

/* A model's tensors beside its optimizer, in one dictionary. */
static cz_status read_model_beside(cz__torch_contents *c, const cz__pickle_value *root)
{
    const cz__pickle *p = c->file->pickle;
    for (int64_t i = 0; i < root->count; i += 2) {
        cz_dtype dtype;
        const cz__pickle_value *key = cz__pickle_item(p, root, i);
        const cz__pickle_value *value = cz__pickle_item(p, root, i + 1);
        if (key->kind != CZ__PICKLE_TEXT || !key->text[0] || value->kind != CZ__PICKLE_CALL)
            continue;
        c->has_model = true;
        CZ_TRY(cz__torch_contents_add(c, value, NULL, key->text, &dtype));
    }
    return CZ_OK;
}

static cz_status read_root(cz__torch_contents *c)
{
    const cz__pickle_value *root = cz__torch_root(c->file), *model, *optimizer;
    if (root->kind == CZ__PICKLE_OPAQUE)
        return cz__torch_refuse(c,
                                "it is of %s.%s, wanted a dictionary: torch.save() of its "
                                "state_dict() writes its values",
                                cz__show(root->module).text, cz__show(root->name).text);
    if (root->kind != CZ__PICKLE_DICT)
        return cz__torch_refuse(c, "it is %s, wanted a dictionary",
                                cz__pickle_kind_name(root->kind));
    if (is_wrapped(c, root))
        root = cz__pickle_item(c->file->pickle, root, 1);
    c->root = root;
    CZ_TRY(choose(c, models, MODELS, &model));
    CZ_TRY(choose(c, optimizers, OPTIMIZERS, &optimizer));
    c->own = get_dict(c, CZ__TORCH_KEY);
    if (!model && optimizer)
        CZ_TRY(read_model_beside(c, root));
    const bool alone = !model && !c->has_model && (optimizer || is_optimizer(c, root));
    if (alone && !cz__torch_knows_model(c->here))
        return refuse_alone(c);
    if (!model && !optimizer && is_optimizer(c, root))
        return read_optimizer(c, root);
    if (!model && !optimizer && !c->own && is_model(c, root))
        return read_model(c, root);
    if (!model && !optimizer)
        return refuse_form(c, root);
    if (c->own)
        CZ_TRY(read_own(c));
    if (model)
        CZ_TRY(read_model(c, model));
    CZ_TRY(note_others(c));
    return optimizer ? read_optimizer(c, optimizer) : CZ_OK;
}

/* ---- opening ---- */

cz_status cz__torch_contents_read(cz__torch_contents **out, cz__torch *file, const cz__index *here)
{
    int64_t checksums;
    uint64_t bytes;
    cz__torch_contents *c = *out = cz__calloc(1, sizeof *c);
    if (!c) {
        const cz_status status = cz__fail(CZ_ERR_MEMORY, "%s: no memory to read it", file->path);
        cz__torch_close(&file);
        return status;
    }
    c->file = file;
    c->here = here;
    c->step = -1;
    c->values = 2 * file->pickle->count; /* some are in several places */
    cz__torch_measure(file, &checksums, &bytes);
    c->bytes = (int64_t)bytes;
    c->elements = cz__budget_of(file->path, bytes);
    cz_status status = read_root(c);
    if (!status)
        status = note_opaque(c);
    c->here = NULL;
    c->root = NULL;
    if (status != CZ_OK)
        cz__torch_contents_close(out);
    return status;
}

cz_status cz__torch_contents_open(cz__torch_contents **out, const char *path, const cz__index *here)
{
    cz__torch *file;
    *out = NULL;
    CZ_TRY(cz__torch_open(&file, path));
    return cz__torch_contents_read(out, file, here);
}
