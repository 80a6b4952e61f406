/* SPDX-License-Identifier: MIT */
/* Descriptions: fields as bytes, and the first difference between two ranks as a sentence. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/plain_text.h"
#include "base/status.h"
#include "collective/description.h"

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
