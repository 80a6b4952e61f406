/* SPDX-License-Identifier: MIT */
/* JSON files. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/plain_text.h"
#include "base/status.h"
#include "io/json.h"
#include "io/stream.h"

/* ---- a scan ---- */
/* JSON looked at before it is read: a pass over its bytes, which knows texts, brackets and nothing
 * more. */

/* What jansson allocates for each: an object with its first table, a list with its first block, a
 * text or key with its place in a table, a number or word with its place in a list. */
enum { OBJECT_COST = 250, LIST_COST = 140, TEXT_COST = 72, OTHER_COST = 48 };

typedef enum kind { OTHER, BLANK, QUOTE, COMMA, OPENS, CLOSES } kind;

/* What a character is outside of texts; COMMA is a colon, too. */
static const uint8_t kinds[256] = {
    [' '] = BLANK, ['\t'] = BLANK, ['\n'] = BLANK, ['\r'] = BLANK, ['"'] = QUOTE, [','] = COMMA,
    [':'] = COMMA, ['['] = OPENS,  ['{'] = OPENS,  [']'] = CLOSES, ['}'] = CLOSES};

static kind kind_of(char c)
{
    return (kind)kinds[(unsigned char)c];
}

/* The place behind the text that begins at `at`; `count`: it does not end. */
static size_t skip_text(const char *bytes, size_t count, size_t at)
{
    for (at++; at < count; at++) {
        if (bytes[at] == '"')
            return at + 1;
        at += bytes[at] == '\\' ? 1 : 0;
    }
    return count;
}

static size_t skip_other(const char *bytes, size_t count, size_t at)
{
    while (at < count && kind_of(bytes[at]) == OTHER)
        at++;
    return at;
}

uint64_t cz__json_cost(const char *bytes, size_t count)
{
    uint64_t cost = 0;
    for (size_t at = 0; at < count;) {
        const size_t begin = at;
        switch (kind_of(bytes[at])) {
        case QUOTE:
            at = skip_text(bytes, count, at);
            cost += TEXT_COST + (at - begin);
            break;
        case OTHER:
            at = skip_other(bytes, count, at);
            cost += OTHER_COST;
            break;
        case OPENS:
            cost += bytes[at++] == '{' ? OBJECT_COST : LIST_COST;
            break;
        default:
            at++;
        }
    }
    return cost;
}

static void skip_blanks(cz__json_scan *scan)
{
    while (scan->at < scan->count && kind_of(scan->bytes[scan->at]) == BLANK)
        scan->at++;
}

/* A character that has to be there, after blanks. */
static bool take_member(cz__json_scan *scan, char wanted)
{
    skip_blanks(scan);
    if (scan->at >= scan->count || scan->bytes[scan->at] != wanted)
        return false;
    scan->at++;
    return true;
}

/* Past a value that begins at `at`; false: it does not end. */
static bool skip_value(cz__json_scan *scan, int *depth)
{
    int open = 0;
    *depth = 0;
    for (size_t at = scan->at; at < scan->count; scan->at = at) {
        const kind k = kind_of(scan->bytes[at]);
        if (k == QUOTE)
            at = skip_text(scan->bytes, scan->count, at);
        else if (k == OTHER)
            at = skip_other(scan->bytes, scan->count, at);
        else
            at++;
        open += k == OPENS ? 1 : 0;
        open -= k == CLOSES ? 1 : 0;
        *depth = open > *depth ? open : *depth;
        if (open == 0) {
            scan->at = at;
            return true;
        }
    }
    return false;
}

static cz__json_step finish_scan(cz__json_scan *scan, const char **why)
{
    skip_blanks(scan);
    *why = "wanted nothing more";
    return scan->at == scan->count ? CZ__JSON_END : CZ__JSON_WRONG;
}

cz__json_step cz__json_next(cz__json_scan *scan, cz__json_member *member, const char **why)
{
    const bool first = !scan->begun;
    *why = "wanted {";
    if (first && !take_member(scan, '{'))
        return CZ__JSON_WRONG;
    scan->begun = true;
    if (take_member(scan, '}'))
        return finish_scan(scan, why);
    *why = "wanted , or }";
    if (!first && !take_member(scan, ','))
        return CZ__JSON_WRONG;
    skip_blanks(scan);
    *why = "wanted a key in quotes";
    if (scan->at >= scan->count || scan->bytes[scan->at] != '"')
        return CZ__JSON_WRONG;
    member->key = scan->at;
    scan->at = skip_text(scan->bytes, scan->count, scan->at);
    member->key_bytes = scan->at - member->key;
    *why = "wanted a : behind the key";
    if (!take_member(scan, ':'))
        return CZ__JSON_WRONG;
    skip_blanks(scan);
    *why = "wanted a value that ends";
    member->value = scan->at;
    if (scan->at >= scan->count || strchr(",:]}", scan->bytes[scan->at]) ||
        !skip_value(scan, &member->depth))
        return CZ__JSON_WRONG;
    member->value_bytes = scan->at - member->value;
    return CZ__JSON_MEMBER;
}

/* ---- a seal ---- */
/* JSON files that end with a checksum of themselves, and what is read from them. */

#define BEFORE ",\"checksum\":\""
#define AFTER "\"}\n"
enum { DIGITS = 32, TAIL = sizeof BEFORE - 1 + DIGITS + sizeof AFTER - 1 };

cz_status cz__seal(const json_t *object, cz__text *text)
{
    char digits[DIGITS + 1];
    if (!cz__text_json(text, object))
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a JSON text");
    cz__text_cut(text, text->count - 1); /* the last } */
    cz__checksum_print(cz__checksum_of(text->bytes, text->count), digits);
    return cz__text_print(text, BEFORE "%s" AFTER, digits)
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a JSON text");
}

static cz_status check_seal(const char *path, const char *bytes, size_t count)
{
    char digits[DIGITS + 1] = "";
    cz__checksum stored;
    const char *tail = count < TAIL ? bytes : bytes + count - TAIL;
    if (count < TAIL || memcmp(tail, BEFORE, sizeof BEFORE - 1) != 0 ||
        memcmp(bytes + count - (sizeof AFTER - 1), AFTER, sizeof AFTER - 1) != 0)
        return cz__fail(
            CZ_ERR_FORMAT,
            "%s: it does not end with a checksum, but after %zu bytes: it is damaged or cut off",
            path, count);
    memcpy(digits, tail + sizeof BEFORE - 1, DIGITS);
    if (!cz__checksum_scan(digits, &stored) ||
        !cz__checksum_equal(stored, cz__checksum_of(bytes, count - TAIL)))
        return cz__fail(CZ_ERR_FORMAT,
                        "%s: its checksum is not that of its %zu bytes: it is damaged", path,
                        count);
    return CZ_OK;
}

cz_status cz__unseal(json_t **out, const char *path, const char *bytes, size_t count)
{
    *out = NULL;
    CZ_TRY(check_seal(path, bytes, count));
    return cz__json_parse(out, path, bytes, count);
}

cz_status cz__json_parse(json_t **out, const char *path, const char *bytes, size_t count)
{
    CZ__PLAIN_TEXT;
    json_error_t error = {.text = ""};
    cz__budget budget = cz__budget_of(path, count);
    *out = NULL;
    CZ_TRY(cz__budget_spend(&budget, cz__json_cost(bytes, count), "its JSON"));
    errno = 0; /* where memory ends within a text, jansson says that the text does */
    json_t *json = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, &error);
    const bool memory = !json && errno == ENOMEM;
    *out = json_is_object(json) ? json : NULL;
    if (*out)
        return CZ_OK;
    if (memory ||
        (!json && (!error.text[0] || json_error_code(&error) == json_error_out_of_memory)))
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for its %zu bytes of JSON", path, count);
    const cz_status status = cz__fail(CZ_ERR_FORMAT, "%s: %s (line %d, column %d)", path,
                                      json ? "no JSON object" : cz__show(error.text).text,
                                      json ? 1 : error.line, json ? 1 : error.column);
    json_decref(json);
    return status;
}

static const char *type_name(const json_t *json)
{
    static const char *const names[] = {"an object", "an array", "a text", "an integer",
                                        "a real",    "true",     "false",  "null"};
    return json ? names[json_typeof(json)] : "missing";
}

cz_status cz__json_integer(const json_t *object, const char *path, const char *key, int64_t lowest,
                           int64_t highest, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return cz__fail(CZ_ERR_FORMAT, "%s: '%s' is %s, wanted an integer", path, key,
                        type_name(value));
    *out = json_integer_value(value);
    if (*out < lowest || *out > highest)
        return cz__fail(CZ_ERR_FORMAT, "%s: '%s' is %" PRId64 ", wanted %" PRId64 " to %" PRId64,
                        path, key, *out, lowest, highest);
    return CZ_OK;
}

cz_status cz__json_text(const json_t *object, const char *path, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || json_string_length(value) != strlen(json_string_value(value)))
        return cz__fail(CZ_ERR_FORMAT, "%s: '%s' is %s, wanted a text", path, key,
                        json_is_string(value) ? "a text with a NUL" : type_name(value));
    *out = json_string_value(value);
    return CZ_OK;
}

cz_status cz__json_array(const json_t *object, const char *path, const char *key, json_t **out)
{
    *out = json_object_get(object, key);
    if (!json_is_array(*out))
        return cz__fail(CZ_ERR_FORMAT, "%s: '%s' is %s, wanted an array", path, key,
                        type_name(*out));
    return CZ_OK;
}

cz_status cz__json_set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for '%s' in JSON", key);
}

cz_status cz__json_integers(const json_t *object, const char *path, const char *key, int64_t lowest,
                            int64_t highest, int64_t **out, int64_t *count)
{
    json_t *array;
    *out = NULL;
    CZ_TRY(cz__json_array(object, path, key, &array));
    *count = (int64_t)json_array_size(array);
    int64_t *numbers = cz__calloc((size_t)*count, sizeof *numbers);
    if (!numbers)
        return cz__fail(CZ_ERR_MEMORY, "%s: no memory for %" PRId64 " numbers", path, *count);
    for (int64_t i = 0; i < *count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        numbers[i] = json_integer_value(value);
        if (!json_is_integer(value) || numbers[i] < lowest || numbers[i] > highest) {
            cz__free(numbers);
            return cz__fail(CZ_ERR_FORMAT,
                            "%s: '%s' has %s at %" PRId64 ", wanted an integer from %" PRId64
                            " to %" PRId64,
                            path, key, type_name(value), i, lowest, highest);
        }
    }
    *out = numbers;
    return CZ_OK;
}

json_t *cz__json_from_integers(const int64_t *numbers, int64_t count)
{
    json_t *array = json_array();
    if (array) {
        for (int64_t i = 0; i < count; i++)
            if (json_array_append_new(array, json_integer(numbers[i])) != 0) {
                json_decref(array);
                return NULL;
            }
    }
    return array;
}
