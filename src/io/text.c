/* SPDX-License-Identifier: MIT */
/* Text in memory that grows. */
#include "io/text.h"

#include "base/memory.h"
#include "base/plain_text.h"

#include <jansson.h>
#include <stdarg.h>
#include <string.h>

static bool reserve(cz__text *text, size_t more)
{
    size_t capacity = text->capacity ? text->capacity : 128;
    if (more >= SIZE_MAX / 4 - text->count)
        return false;
    while (capacity < text->count + more + 1)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    char *bytes = cz__allocate(CZ_MEMORY_GENERAL, capacity);
    if (!bytes)
        return false;
    if (text->bytes)
        memcpy(bytes, text->bytes, text->count);
    cz__free(text->bytes);
    bytes[text->count] = '\0';
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

bool cz__text_append(cz__text *text, const char *bytes, size_t count)
{
    if (!reserve(text, count)) {
        text->failed = true;
        return false;
    }
    memcpy(text->bytes + text->count, bytes, count);
    cz__text_cut(text, text->count + count);
    return true;
}

bool cz__text_print(cz__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (count < 0 || !reserve(text, (size_t)count)) {
        text->failed = true;
        return false;
    }
    va_start(args, format);
    vsnprintf(text->bytes + text->count, (size_t)count + 1, format, args);
    va_end(args);
    text->count += (size_t)count;
    return true;
}

static int append_piece(const char *bytes, size_t count, void *text)
{
    return cz__text_append(text, bytes, count) ? 0 : -1;
}

bool cz__text_quote(cz__text *text, const char *value)
{
    CZ__PLAIN_TEXT;
    const size_t before = text->count;
    json_t *json = json_string(value);
    const bool done = json && json_dump_callback(json, append_piece, text, JSON_ENCODE_ANY) == 0;
    json_decref(json);
    if (!done && text->bytes)
        cz__text_cut(text, before);
    return done;
}

bool cz__text_json(cz__text *text, const json_t *json)
{
    CZ__PLAIN_TEXT;
    return json_dump_callback(json, append_piece, text, JSON_COMPACT) == 0 && !text->failed;
}

void cz__text_cut(cz__text *text, size_t count)
{
    text->count = count;
    if (text->bytes)
        text->bytes[count] = '\0';
}

void cz__text_clear(cz__text *text)
{
    cz__free(text->bytes);
    *text = (cz__text){0};
}
