/* SPDX-License-Identifier: MIT */
/* Texts that grow, that are UTF-8, and that may be shown though a file has them. */
#include "checkpoint/text.h"

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

/* Bytes of the character there, 0: there is none. */
static size_t character(const unsigned char *at, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = 1;
    uint32_t value = at[0];
    *code = value;
    if (value < 0x80)
        return 1;
    if (value >= 0xc2 && value < 0xe0)
        length = 2;
    else if (value >= 0xe0 && value < 0xf0)
        length = 3;
    else if (value >= 0xf0 && value < 0xf5)
        length = 4;
    else
        return 0;
    value &= 0x7fu >> length;
    for (size_t i = 1; i < length; i++) { /* a NUL is no such byte, so nothing behind it is read */
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (at[i] & 0x3f);
    }
    *code = value;
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    return value < least[length] || value > 0x10ffff || surrogate ? 0 : length;
}

size_t cz__character(const char *at, bool *plain)
{
    uint32_t code;
    const size_t length = character((const unsigned char *)at, &code);
    const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool turns = (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                       (code >= 0x2060 && code <= 0x2069) || code == 0xfeff;
    *plain = length > 0 && !control && !turns;
    return length > 0 ? length : 1;
}

bool cz__utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    uint32_t code;
    while (*at) {
        const size_t length = character(at, &code);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

cz__shown cz__show(const char *name)
{
    return cz__show_part(name, strlen(name));
}

cz__shown cz__show_part(const char *name, size_t bytes)
{
    static const char more[] = "…";
    cz__shown shown = {{0}};
    size_t count = 0, length;
    const size_t end = strnlen(name, bytes);
    for (size_t at = 0; at < end; at += length) {
        bool plain;
        length = cz__character(name + at, &plain);
        plain = plain && length <= end - at;
        if (count + length + sizeof more > sizeof shown.text) {
            memcpy(shown.text + count, more, sizeof more);
            break;
        }
        memcpy(shown.text + count, plain ? name + at : "?", plain ? length : 1);
        count += plain ? length : 1;
    }
    return shown;
}
