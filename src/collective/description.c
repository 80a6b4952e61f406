/* SPDX-License-Identifier: MIT */
/* Descriptions of what ranks must have alike: fields as bytes, of options, objects, models and
 * state dictionaries; compared, with the first difference between two ranks as a sentence. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/plain_text.h"
#include "base/status.h"
#include "group/collective.h"
#include "collective/description.h"
#include "tensor/model.h"

/* ---- fields ---- */

typedef uint32_t field_size; /* precedes each field's bytes */

static bool reserve(cz__description *d, size_t more)
{
    if (d->capacity - d->count >= more)
        return true;
    const size_t capacity = (d->count + more) * 2;
    uint8_t *bytes = cz__calloc(1, capacity);
    if (!bytes)
        return false;
    if (d->count > 0)
        memcpy(bytes, d->bytes, d->count);
    cz__free(d->bytes);
    d->bytes = bytes;
    d->capacity = capacity;
    return true;
}

static void write_field(cz__description *d, const void *value, size_t bytes)
{
    const field_size size = (field_size)bytes;
    if (!reserve(d, sizeof size + bytes)) {
        d->status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for a description of %zu bytes", d->part,
                             d->count + bytes);
        return;
    }
    memcpy(d->bytes + d->count, &size, sizeof size);
    if (bytes > 0)
        memcpy(d->bytes + d->count + sizeof size, value, bytes);
    d->count += sizeof size + bytes;
}

static void print_shape(char *text, size_t size, const uint8_t *value, size_t bytes)
{
    size_t length = (size_t)snprintf(text, size, "[");
    for (size_t at = 0; at + sizeof(int64_t) <= bytes && length < size; at += sizeof(int64_t)) {
        int64_t extent;
        memcpy(&extent, value + at, sizeof extent);
        length +=
            (size_t)snprintf(text + length, size - length, "%s%" PRId64, at ? ", " : "", extent);
    }
    if (length < size)
        snprintf(text + length, size - length, "]");
}

static void print_word(char *text, size_t size, cz__field_kind kind, int64_t value)
{
    if (kind == CZ__FIELD_DTYPE)
        snprintf(text, size, "%s", cz_dtype_name((cz_dtype)value));
    else if (kind == CZ__FIELD_LAYOUT)
        snprintf(text, size, "%s", value == CZ_DENSE ? "dense" : "sparse");
    else if (kind == CZ__FIELD_BLOCK && value < 0)
        snprintf(text, size, "alone");
    else if (kind == CZ__FIELD_BLOCK)
        snprintf(text, size, "in flat block %" PRId64, value);
    else if (kind == CZ__FIELD_TRAINABLE)
        snprintf(text, size, "%s", value ? "trainable" : "frozen");
    else
        snprintf(text, size, "%" PRId64, value);
}

static void print_choice(char *text, size_t size, const char *const *words, int64_t value)
{
    for (; *words && value > 0; words++)
        value--;
    snprintf(text, size, "%s", *words && value == 0 ? *words : "unknown");
}

static void print_value(char *text, size_t size, const char *const *words, cz__field_kind kind,
                        const uint8_t *value, size_t bytes)
{
    int64_t number = 0;
    double real = 0;
    if (kind == CZ__FIELD_OBJECT) {
        cz__object object = {0};
        memcpy(&object, value, bytes < sizeof object ? bytes : sizeof object);
        snprintf(text, size, "%.*s", CZ__OBJECT_NAME_BYTES - 1, object.name);
    } else if (kind == CZ__FIELD_TEXT) {
        snprintf(text, size, "'%.*s'", bytes < 60 ? (int)bytes : 60, (const char *)value);
    } else if (kind == CZ__FIELD_SHAPE) {
        print_shape(text, size, value, bytes);
    } else if (bytes != sizeof number) {
        snprintf(text, size, "(%zu bytes)", bytes);
    } else if (kind == CZ__FIELD_REAL) {
        memcpy(&real, value, sizeof real);
        char shortest[CZ__REAL_TEXT_BYTES];
        cz__real_text(shortest, real);
        snprintf(text, size, "%s", shortest);
    } else {
        memcpy(&number, value, sizeof number);
        if (kind == CZ__FIELD_WORD)
            print_choice(text, size, words, number);
        else
            print_word(text, size, kind, number);
    }
}

static void print_subject(char *text, size_t size, const cz__subject *subject)
{
    char index[24] = "";
    if (subject->index >= 0)
        snprintf(index, sizeof index, " %" PRId64, subject->index);
    snprintf(text, size, "%.60s%s%s%s%s%.60s%s %s", subject->of ? subject->of : "",
             subject->of ? " of " : "", subject->noun, index, subject->name ? " '" : "",
             subject->name ? subject->name : "", subject->name ? "'" : "", subject->says);
}

static void differ(cz__description *d, const cz__subject *subject, cz__field_kind kind,
                   const void *value, size_t bytes, const uint8_t *other, size_t other_bytes)
{
    char what[256], mine[200], theirs[200];
    print_subject(what, sizeof what, subject);
    print_value(mine, sizeof mine, d->words, kind, value, bytes);
    print_value(theirs, sizeof theirs, d->words, kind, other, other_bytes);
    d->status = cz__fail(CZ_ERR_MISMATCH, "%s: %s %s on rank %d, %s%s on rank %d%s%s", d->part,
                         what, mine, d->rank, strcmp(mine, theirs) == 0 ? "another " : "", theirs,
                         d->root, d->advice ? "; " : "", d->advice ? d->advice : "");
}

static void compare_field(cz__description *d, const cz__subject *subject, cz__field_kind kind,
                          const void *value, size_t bytes)
{
    field_size size = 0;
    const size_t left = d->other_count - d->position;
    if (left >= sizeof size)
        memcpy(&size, d->others + d->position, sizeof size);
    if (left < sizeof size || left - sizeof size < size) {
        d->status =
            cz__fail(CZ_ERR_INTERNAL, "%s: the description of rank 0 ends too early", d->part);
        return;
    }
    const uint8_t *other = d->others + d->position + sizeof size;
    if (size != bytes || (bytes > 0 && memcmp(other, value, bytes) != 0))
        differ(d, subject, kind, value, bytes, other, size);
    d->position += sizeof size + size;
}

void cz__describe(cz__description *description, const cz__subject *subject, cz__field_kind kind,
                  const void *value, size_t bytes)
{
    if (description->status != CZ_OK)
        return;
    if (description->others)
        compare_field(description, subject, kind, value, bytes);
    else
        write_field(description, value, bytes);
}

void cz__describe_number(cz__description *description, const cz__subject *subject,
                         cz__field_kind kind, int64_t value)
{
    cz__describe(description, subject, kind, &value, sizeof value);
}

void cz__describe_word(cz__description *description, const cz__subject *subject,
                       const char *const *words, int64_t number)
{
    description->words = words;
    cz__describe_number(description, subject, CZ__FIELD_WORD, number);
}

static void describe_option(cz__description *d, const cz__option *option, const void *options,
                            const cz__subject *subject)
{
    const int64_t number = cz__option_number(option, options);
    if (option->type == CZ__OPTION_REAL)
        cz__describe(d, subject, CZ__FIELD_REAL, (const char *)options + option->offset,
                     sizeof(double));
    else if (option->words)
        cz__describe_word(d, subject, option->words, number);
    else
        cz__describe_number(d, subject, CZ__FIELD_NUMBER, number);
}

void cz__describe_options(cz__description *description, const cz__option_table *table,
                          const void *options, const cz__subject *owner)
{
    char name[80];
    for (const cz__option *option = table->options; option->name; option++) {
        if (option->scope != CZ__COMPARED)
            continue;
        cz__subject subject = {NULL, name, -1, NULL, "is"};
        snprintf(name, sizeof name, "option %s", option->name);
        if (owner) {
            subject = *owner;
            subject.of = option->name;
        }
        describe_option(description, option, options, &subject);
    }
}

void cz__describe_object(cz__description *description, const cz__subject *subject,
                         const cz__object *object)
{
    static const cz__object none = {.name = "none"};
    if (!object || !object->name[0])
        object = &none;
    cz__describe(description, subject, CZ__FIELD_OBJECT, object, sizeof *object);
}

void cz__describe_call(cz__description *description, const cz__object *object)
{
    description->advice = "all ranks make calls on their objects in one order";
    cz__describe_object(description, &(cz__subject){NULL, "the call", -1, NULL, "is on"}, object);
    description->advice = NULL;
}

void cz__description_clear(cz__description *description)
{
    cz__free(description->bytes);
    *description = (cz__description){0};
}

/* ---- a model ---- */

static void describe_tensor(cz__description *d, const char *noun, int64_t index, const char *name,
                            const cz_tensor *tensor)
{
    cz__describe(d, &(cz__subject){NULL, noun, index, NULL, "is"}, CZ__FIELD_TEXT, name,
                 strlen(name));
    cz__describe(d, &(cz__subject){NULL, noun, index, name, "has shape"}, CZ__FIELD_SHAPE,
                 tensor->shape, (size_t)tensor->dimensions * sizeof *tensor->shape);
    cz__describe_number(d, &(cz__subject){NULL, noun, index, name, "has type"}, CZ__FIELD_DTYPE,
                        tensor->dtype);
    cz__describe_number(d, &(cz__subject){NULL, noun, index, name, "is"}, CZ__FIELD_LAYOUT,
                        tensor->layout);
    const char *device = cz__device_of(tensor)->name;
    cz__describe(d, &(cz__subject){NULL, noun, index, name, "is on device"}, CZ__FIELD_TEXT, device,
                 strlen(device));
}

void cz__describe_params(cz__description *description, const cz_model *model)
{
    const int64_t count = cz__model_param_count(model);
    cz__describe_number(description,
                        &(cz__subject){NULL, "the number of parameters", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, count);
    for (int64_t p = 0; p < count; p++) {
        const char *name = cz__model_name(model, p);
        describe_tensor(description, "parameter", p, name, cz__model_value(model, p));
        cz__describe_number(description,
                            &(cz__subject){"the gradient", "parameter", p, name, "has type"},
                            CZ__FIELD_DTYPE, cz__model_gradient_dtype(model, p));
        cz__describe_number(description, &(cz__subject){NULL, "parameter", p, name, "lies"},
                            CZ__FIELD_BLOCK, cz__model_block(model, p));
    }
}

void cz__describe_trainable(cz__description *description, const cz_model *model)
{
    for (int64_t p = 0; p < cz__model_param_count(model); p++)
        cz__describe_number(description,
                            &(cz__subject){NULL, "parameter", p, cz__model_name(model, p), "is"},
                            CZ__FIELD_TRAINABLE, cz__model_requires_grad(model, p));
}

void cz__describe_buffers(cz__description *description, const cz_model *model)
{
    const int64_t count = cz__model_buffer_count(model);
    cz__describe_number(description, &(cz__subject){NULL, "the number of buffers", -1, NULL, "is"},
                        CZ__FIELD_NUMBER, count);
    for (int64_t b = 0; b < count; b++)
        describe_tensor(description, "buffer", b, cz__model_buffer_name(model, b),
                        cz__model_buffer(model, b));
}

/* ---- a state dictionary: the order of keys, too ---- */

static const char *const kinds[] = {"missing",         "an integer", "a real",       "a text",
                                    "a list of texts", "a tensor",   "a dictionary", NULL};

static const char next_entry[] = "has as next entry";
static const char no_more[] = "(no more)";

enum { PATH = 160 }; /* a longer one is cut: it is for sentences only */

/* "a/b of the common dictionary is". */
static void describe_bytes(cz__description *d, const char *what, const char *path, const char *says,
                           cz__field_kind kind, const void *value, size_t bytes)
{
    cz__describe(d, &(cz__subject){path, what, -1, NULL, says}, kind, value, bytes);
}

static void describe_dict_tensor(cz__description *d, const char *what, const char *path,
                                 const cz_tensor *tensor)
{
    const int64_t dtype = tensor->dtype;
    const size_t bytes = (size_t)cz_tensor_count(tensor) * cz_dtype_size(tensor->dtype);
    const int64_t print = (int64_t)cz__fingerprint_elements(0, tensor->data, bytes);
    describe_bytes(d, what, path, "has shape", CZ__FIELD_SHAPE, tensor->shape,
                   (size_t)tensor->dimensions * sizeof *tensor->shape);
    describe_bytes(d, what, path, "has type", CZ__FIELD_DTYPE, &dtype, sizeof dtype);
    describe_bytes(d, what, path, "has elements of fingerprint", CZ__FIELD_NUMBER, &print,
                   sizeof print);
}

static void describe_texts(cz__description *d, const char *what, const char *path,
                           const cz_state_dict *dict, const char *key)
{
    const char *const *texts = NULL;
    int64_t count = 0;
    (void)cz_state_dict_get_texts(dict, key, &texts, &count);
    describe_bytes(d, what, path, "has so many texts:", CZ__FIELD_NUMBER, &count, sizeof count);
    for (int64_t k = 0; k < count; k++)
        describe_bytes(d, what, path, "has the text", CZ__FIELD_TEXT, texts[k], strlen(texts[k]));
}

static void describe_value(cz__description *d, const char *what, const char *path,
                           const cz_state_dict *dict, const char *key)
{
    const int64_t kind = cz_state_dict_kind(dict, key);
    const cz_state_dict *child = NULL;
    const char *text = "";
    int64_t integer = 0;
    double real = 0;
    cz_tensor tensor;
    cz__describe_word(d, &(cz__subject){path, what, -1, NULL, "is"}, kinds, kind);
    if (kind == CZ_STATE_INTEGER && cz_state_dict_get_integer(dict, key, &integer) == CZ_OK)
        describe_bytes(d, what, path, "is", CZ__FIELD_NUMBER, &integer, sizeof integer);
    else if (kind == CZ_STATE_REAL && cz_state_dict_get_real(dict, key, &real) == CZ_OK)
        describe_bytes(d, what, path, "is", CZ__FIELD_REAL, &real, sizeof real);
    else if (kind == CZ_STATE_TEXT && cz_state_dict_get_text(dict, key, &text) == CZ_OK)
        describe_bytes(d, what, path, "is", CZ__FIELD_TEXT, text, strlen(text));
    else if (kind == CZ_STATE_TEXTS)
        describe_texts(d, what, path, dict, key);
    else if (kind == CZ_STATE_TENSOR && cz_state_dict_get_tensor(dict, key, &tensor) == CZ_OK)
        describe_dict_tensor(d, what, path, &tensor);
    else if (kind == CZ_STATE_DICT && cz_state_dict_get_dict(dict, key, &child) == CZ_OK)
        cz__describe_dict(d, what, path, child);
}

void cz__describe_dict(cz__description *d, const char *what, const char *path,
                       const cz_state_dict *dict)
{
    char inner[PATH];
    const int64_t count = dict ? cz_state_dict_count(dict) : 0;
    for (int64_t i = 0; i < count; i++) {
        const char *key = cz_state_dict_key(dict, i);
        snprintf(inner, sizeof inner, "%s%s%s", path ? path : "", path ? "/" : "", key);
        describe_bytes(d, what, path, next_entry, CZ__FIELD_TEXT, key, strlen(key));
        describe_value(d, what, inner, dict, key);
    }
    describe_bytes(d, what, path, next_entry, CZ__FIELD_TEXT, no_more, sizeof no_more - 1);
}

/* ---- comparing ---- */

static cz_status compare_with_root(cz_group *group, const char *part, cz__describer describe,
                                   const void *context, const uint8_t *bytes, size_t count)
{
    cz__description against = {.others = bytes,
                               .other_count = count,
                               .rank = cz_group_global_rank(group, cz_group_rank(group)),
                               .root = cz_group_global_rank(group, 0),
                               .part = part};
    describe(&against, context);
    return cz__agree(group, against.status, 0, NULL, part);
}

/* Bring rank 0's description to all, and let each rank look for its first difference. Its length
 * travels first, as ranks may differ in it. */
cz_status cz__compare_descriptions(cz_group *group, const char *part, cz__describer describe,
                                   const void *context, const cz__description *mine)
{
    const bool root = cz_group_rank(group) == 0;
    int64_t count = (int64_t)mine->count;
    cz_status status = CZ_OK;
    CZ_TRY(cz_broadcast(group, &count, 1, CZ_I64, 0, CZ_LABEL(part)));
    uint8_t *bytes = root ? mine->bytes : cz__calloc(1, (size_t)count);
    if (!bytes)
        status = cz__fail(CZ_ERR_MEMORY, "%s: no memory for a description of %" PRId64 " bytes",
                          part, count);
    status = cz__agree(group, status, 0, NULL, part);
    if (status)
        goto done;
    status = cz_broadcast(group, bytes, count, CZ_U8, 0, CZ_LABEL(part));
    if (status)
        goto done;
    status = compare_with_root(group, part, describe, context, bytes, (size_t)count);
done:
    if (!root)
        cz__free(bytes);
    return status;
}

cz_status cz__find_difference(cz_group *group, const char *part, cz__describer describe,
                              const void *context, const cz__description *mine)
{
    CZ_TRY(cz__compare_descriptions(group, part, describe, context, mine));
    return cz__fail(CZ_ERR_INTERNAL, "%s: ranks differ in bytes but in no field", part);
}

cz_status cz__agree_on(cz_group *group, const char *part, cz__describer describe,
                       const void *context, cz_status mine, cz__description *room)
{
    bool same;
    room->count = 0;
    room->status = CZ_OK;
    room->part = part;
    if (mine == CZ_OK) {
        describe(room, context);
        mine = room->status;
    }
    const uint64_t fingerprint =
        mine == CZ_OK ? cz__fingerprint_elements(0, room->bytes, room->count) : 0;
    CZ_TRY(cz__agree(group, mine, fingerprint, &same, part));
    return same ? CZ_OK : cz__find_difference(group, part, describe, context, room);
}

static void describe_call(cz__description *d, const void *object)
{
    cz__describe_call(d, object);
}

cz_status cz__agree_for(cz_group *group, const cz__object *object, cz_status mine,
                        uint64_t fingerprint, bool *same, const char *label)
{
    static const cz__object none;
    cz__description room = {0};
    if (!object)
        object = &none;
    const uint64_t print = cz__fingerprint(fingerprint, object, sizeof *object);
    CZ_TRY(cz__agree(group, mine, print, same, label));
    const cz_status status =
        *same ? CZ_OK : cz__agree_on(group, label, describe_call, object, CZ_OK, &room);
    cz__description_clear(&room);
    return status;
}
