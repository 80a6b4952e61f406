/* SPDX-License-Identifier: MIT */
/* Text that is the same everywhere, and that a terminal does not obey. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain_text.h"

/* ---- names ---- */

bool cz__ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* ---- numbers ---- */
/* Numbers as text, in the C locale and our own floating-point environment. */

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Never freed: some thread may be using it. Constant data in the usual C libraries. */
static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Without memory for a locale the thread keeps the one that it has. */
cz__plain_text cz__plain_text_enter(void)
{
    cz__plain_text before = {.floats = cz__float_enter()};
    pthread_once(&once, make_locale);
    before.locale = uselocale(c_locale);
    return before;
}

void cz__plain_text_leave(const cz__plain_text *before)
{
    uselocale(before->locale);
    cz__float_leave(&before->floats);
}

void cz__real_text(char text[CZ__REAL_TEXT_BYTES], double value)
{
    static const int digits[] = {6, 15, 17};
    CZ__PLAIN_TEXT;
    for (size_t k = 0; k < sizeof digits / sizeof *digits; k++) {
        snprintf(text, CZ__REAL_TEXT_BYTES, "%.*g", digits[k], value);
        if (strtod(text, NULL) == value)
            return;
    }
}

double cz__read_real(const char *text, char **end)
{
    CZ__PLAIN_TEXT;
    return strtod(text, end);
}

/* ---- texts that may come from anywhere ---- */

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

/* Bytes of a character that should go on, and does not; 0: it is something else that is no
 * UTF-8. */
static size_t cut_character(const unsigned char *at)
{
    size_t wanted = 2, length = 1;
    if (at[0] >= 0xe0)
        wanted = at[0] >= 0xf0 ? 4 : 3;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    while (length < wanted && (at[length] & 0xc0) == 0x80)
        length++;
    return length < wanted ? length : 0;
}

void cz__make_plain(char *sentence)
{
    char *to = sentence;
    for (const char *at = sentence; *at;) {
        bool plain;
        size_t length = cz__character(at, &plain);
        const size_t cut = plain ? 0 : cut_character((const unsigned char *)at);
        if (plain || *at == '\n' || *at == '\t') {
            memmove(to, at, length);
            to += length;
        } else if (cut > 0)
            length = cut;
        else
            *to++ = '?';
        at += length;
    }
    *to = 0;
}
