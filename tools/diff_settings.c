/* SPDX-License-Identifier: MIT */
/* What two checkpoints say beside elements, compared. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "diff.h"
#include "json.h"

cz_status diff_note(comparison *c, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->other_count++;
    const bool kept = c->others ? json_array_append_new(c->others, json_any_text(text)) == 0
                                : cz__text_print(&c->notes, "%s\n", text);
    return kept ? CZ_OK : cz_fail(CZ_ERR_MEMORY, "no memory for a list of differences");
}

/* A value for a sentence; tensors are compared, not shown. */
typedef struct value_text {
    char text[240];
} value_text;

static value_text show_value(const cz_state_dict *dict, const char *key)
{
    value_text v = {"a tensor"};
    int64_t integer;
    double real;
    const char *text;
    const char *const *texts;
    switch (cz_state_dict_kind(dict, key)) {
    case CZ_STATE_INTEGER:
        if (cz_state_dict_get_integer(dict, key, &integer) == CZ_OK)
            snprintf(v.text, sizeof v.text, "%" PRId64, integer);
        break;
    case CZ_STATE_REAL:
        if (cz_state_dict_get_real(dict, key, &real) == CZ_OK)
            snprintf(v.text, sizeof v.text, "%.17g", real);
        break;
    case CZ_STATE_TEXT:
        if (cz_state_dict_get_text(dict, key, &text) == CZ_OK)
            snprintf(v.text, sizeof v.text, "'%s'", cz__show(text).text);
        break;
    case CZ_STATE_TEXTS:
        if (cz_state_dict_get_texts(dict, key, &texts, &integer) == CZ_OK)
            snprintf(v.text, sizeof v.text, "%s", show_plural(integer, "text", "texts").text);
        break;
    case CZ_STATE_DICT:
        snprintf(v.text, sizeof v.text, "a dictionary");
        break;
    case CZ_STATE_NONE:
        snprintf(v.text, sizeof v.text, "nothing");
        break;
    default:
        break;
    }
    return v;
}

static bool same_texts(const cz_state_dict *a, const cz_state_dict *b, const char *key)
{
    const char *const *x, *const *y;
    int64_t count, others;
    if (cz_state_dict_get_texts(a, key, &x, &count) != CZ_OK ||
        cz_state_dict_get_texts(b, key, &y, &others) != CZ_OK || count != others)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (strcmp(x[i], y[i]) != 0)
            return false;
    return true;
}

static bool same_tensors(const cz_state_dict *a, const cz_state_dict *b, const char *key)
{
    cz_tensor x, y;
    return cz_state_dict_get_tensor(a, key, &x) == CZ_OK &&
           cz_state_dict_get_tensor(b, key, &y) == CZ_OK && x.dtype == y.dtype &&
           x.dimensions == y.dimensions &&
           memcmp(x.shape, y.shape, (size_t)x.dimensions * sizeof *x.shape) == 0 &&
           memcmp(x.data, y.data, (size_t)cz_tensor_count(&x) * cz_dtype_size(x.dtype)) == 0;
}

/* Bit for bit, as cz_state_dict_equal() has it. Not for dictionaries. */
static bool same_value(const cz_state_dict *a, const cz_state_dict *b, const char *key)
{
    int64_t i = 0, j = 1;
    double x = 0, y = 1;
    const char *s = "", *t = "-";
    const cz_state_kind kind = cz_state_dict_kind(a, key);
    if (kind != cz_state_dict_kind(b, key))
        return false;
    switch (kind) {
    case CZ_STATE_INTEGER:
        return cz_state_dict_get_integer(a, key, &i) == CZ_OK &&
               cz_state_dict_get_integer(b, key, &j) == CZ_OK && i == j;
    case CZ_STATE_REAL:
        return cz_state_dict_get_real(a, key, &x) == CZ_OK &&
               cz_state_dict_get_real(b, key, &y) == CZ_OK &&
               ((x == y && signbit(x) == signbit(y)) || (isnan(x) && isnan(y)));
    case CZ_STATE_TEXT:
        return cz_state_dict_get_text(a, key, &s) == CZ_OK &&
               cz_state_dict_get_text(b, key, &t) == CZ_OK && strcmp(s, t) == 0;
    case CZ_STATE_TEXTS:
        return same_texts(a, b, key);
    case CZ_STATE_TENSOR:
        return same_tensors(a, b, key);
    default:
        return false;
    }
}

static cz_status compare_dicts(comparison *c, const char *where, const cz_state_dict *a,
                               const cz_state_dict *b);

static cz_status compare_key(comparison *c, const char *where, const cz_state_dict *a,
                             const cz_state_dict *b, const char *key)
{
    char path[300];
    const cz_state_dict *x, *y;
    snprintf(path, sizeof path, "%.180s%s%s", where, where[0] ? "/" : "", cz__show(key).text);
    if (cz_state_dict_kind(a, key) == CZ_STATE_DICT &&
        cz_state_dict_kind(b, key) == CZ_STATE_DICT) {
        CZ_TRY(cz_state_dict_get_dict(a, key, &x));
        CZ_TRY(cz_state_dict_get_dict(b, key, &y));
        return compare_dicts(c, path, x, y);
    }
    if (same_value(a, b, key))
        return CZ_OK;
    const value_text mine = show_value(a, key), theirs = show_value(b, key);
    if (strcmp(mine.text, theirs.text) == 0)
        return diff_note(c, "%s: differs (%s in both)", path, mine.text);
    return diff_note(c, "%s: %s in A, %s in B", path, mine.text, theirs.text);
}

static cz_status compare_dicts(comparison *c, const char *where, const cz_state_dict *a,
                               const cz_state_dict *b)
{
    if (cz_state_dict_equal(a, b))
        return CZ_OK;
    for (int64_t i = 0; i < cz_state_dict_count(a); i++)
        CZ_TRY(compare_key(c, where, a, b, cz_state_dict_key(a, i)));
    for (int64_t i = 0; i < cz_state_dict_count(b); i++)
        if (cz_state_dict_kind(a, cz_state_dict_key(b, i)) == CZ_STATE_NONE)
            CZ_TRY(compare_key(c, where, a, b, cz_state_dict_key(b, i)));
    return CZ_OK;
}

/* ---- optimizers ---- */

static cz_status compare_optimizers(comparison *c)
{
    const cz_state_dict *a = c->a->info.optimizer, *b = c->b->info.optimizer;
    if (!a || !b)
        return a == b ? CZ_OK : diff_note(c, "only %s has an optimizer", a ? "A" : "B");
    return compare_dicts(c, "optimizer", a, b);
}

static cz_status compare_common(comparison *c)
{
    cz_state_dict *a = NULL, *b = NULL;
    cz_status status = cz_archive_read_dict(c->a->archive, CZ_ALL_RANKS, &a);
    if (status)
        goto done;
    status = cz_archive_read_dict(c->b->archive, CZ_ALL_RANKS, &b);
    if (status)
        goto done;
    status = compare_dicts(c, "common", a, b);
done:
    cz_state_dict_destroy(&a);
    cz_state_dict_destroy(&b);
    return status;
}

cz_status diff_settings(comparison *c)
{
    if (c->a->info.foreign || c->b->info.foreign)
        return CZ_OK;
    const bool both = c->a->info.step >= 0 && c->b->info.step >= 0;
    if (both && c->a->info.step != c->b->info.step)
        CZ_TRY(diff_note(c, "step: %" PRId64 " in A, %" PRId64 " in B", c->a->info.step,
                         c->b->info.step));
    CZ_TRY(compare_optimizers(c));
    return compare_common(c);
}
