/* SPDX-License-Identifier: MIT */
/* Differences for a reader: what is alike is one line. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "diff.h"
#include "base/names.h"

enum { MANY_ULPS = 1 << 16, FEW_NOTES = 3 };

/* ---- tensors ---- */

typedef struct row {
    char *key;        /* owned: the name with stars for numbers, a newline, the slot */
    const char *slot; /* in it; NULL: the value */
    int64_t tensors;
    distance d;
} row;

struct diff_fold {
    row *rows; /* owned */
    int64_t count, capacity;
    cz__names names; /* keys to rows */
};

/* "layers.*.w" of "layers.11.w". */
static bool put_pattern(cz__text *key, const char *name, bool all)
{
    for (const char *at = name; *at;) {
        size_t length = strcspn(at, ".");
        size_t digits = strspn(at, "0123456789");
        const bool number = !all && digits > 0 && digits == length;
        if (!cz__text_append(key, number ? "*" : at, number ? 1 : length))
            return false;
        at += length;
        length = strspn(at, ".");
        if (!cz__text_append(key, at, length))
            return false;
        at += length;
    }
    return true;
}

static cz_status no_memory(void)
{
    return cz_fail(CZ_ERR_MEMORY, "no memory for a table");
}

static cz_status add_row(diff_fold *f, const char *key, const char *slot, int64_t *place)
{
    row *rows = cz__grow(f->rows, f->count, &f->capacity, sizeof *rows);
    f->rows = rows ? rows : f->rows;
    char *copy = cz__strdup(key);
    if (!rows || !copy || !cz__names_reserve(&f->names, 1)) {
        cz__free(copy);
        return no_memory();
    }
    *place = f->count++;
    f->rows[*place] = (row){.key = copy, .d.at = -1};
    char *end = strchr(copy, '\n');
    f->rows[*place].slot = slot ? end + 1 : NULL;
    cz__names_add(&f->names, copy, *place);
    return CZ_OK;
}

cz_status diff_fold_add(comparison *c, const char *name, const char *slot, const distance *d)
{
    cz__text key = {0};
    int64_t place;
    if (!c->fold)
        c->fold = cz__calloc(1, sizeof *c->fold);
    if (!c->fold)
        return no_memory();
    cz_status status =
        put_pattern(&key, name, c->all) && cz__text_print(&key, "\n%s", slot ? slot : "")
            ? CZ_OK
            : no_memory();
    if (status == CZ_OK && !cz__names_find(&c->fold->names, cz__text_get(&key), &place))
        status = add_row(c->fold, cz__text_get(&key), slot, &place);
    cz__text_clear(&key);
    CZ_TRY(status);
    row *r = &c->fold->rows[place];
    if (r->tensors++ == 0)
        r->d.at = d->at;
    ulps_add(&r->d, d);
    return CZ_OK;
}

static void put_row(table *t, const row *r)
{
    char name[4096];
    const distance *d = &r->d;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(r->key, "\n"), r->key);
    table_row(t);
    if (r->tensors > 1)
        table_cell(t, 0, "%s (%s)", cz__show(name).text, show_count(r->tensors).text);
    else
        table_cell(t, 0, "%s", cz__show(name).text);
    table_cell(t, 1, "%s", r->slot ? cz__show(r->slot).text : "value");
    table_cell(t, 2, "%s", show_count(d->different).text);
    table_cell(t, 3, "of %s", show_count(d->count).text);
    if (d->different == 0)
        return;
    if (d->size > 0)
        table_cell(t, 4, "%.2g", ulps_relative(d));
    table_cell(t, 5, "%.3g", d->absolute);
    if (d->ulps <= MANY_ULPS)
        table_cell(t, 6, "%" PRIu64, d->ulps);
    if (d->nans > 0)
        table_cell(t, 7, "%" PRId64 " NaN on one side", d->nans);
    else if (d->at > 0 && r->tensors == 1)
        table_cell(t, 7, "first at element %" PRId64, d->at);
}

void diff_fold_print(const comparison *c)
{
    static const char *const titles[] = {"tensor",   "what",     "different", "",
                                         "relative", "greatest", "ulps"};
    table t = {0};
    if (!c->fold)
        return;
    table_row(&t);
    for (int k = 0; k < 7; k++)
        table_cell(&t, k, "%s", titles[k]);
    t.right[2] = t.right[4] = t.right[5] = t.right[6] = true;
    for (int64_t i = 0; i < c->fold->count; i++)
        put_row(&t, &c->fold->rows[i]);
    table_print(&t, stdout);
    printf("relative: the norm of the difference over that of A, of the elements that differ; "
           "greatest: the\n"
           "greatest difference; ulps: the same in steps from one number of their type to the "
           "next, where\n"
           "they are few. Tensors that are alike but for a number are one line (--all: each).\n\n");
    table_clear(&t);
}

void diff_fold_destroy(diff_fold **fold)
{
    if (!*fold)
        return;
    for (int64_t i = 0; i < (*fold)->count; i++)
        cz__free((*fold)->rows[i].key);
    cz__free((*fold)->rows);
    cz__names_clear(&(*fold)->names);
    cz__free(*fold);
    *fold = NULL;
}

/* ---- notes ---- */

/* The parts of "FIRST/…/LAST: what", or of "NAME: what", that alike ones have in common. */
typedef struct signature {
    const char *line, *last, *what;
    size_t first_length, last_length, what_length;
    bool path; /* it has a name in between that does not count */
} signature;

static signature signature_of(const char *line)
{
    const size_t length = strcspn(line, "\n");
    const char *colon = memchr(line, ':', length);
    signature s = {.line = line, .last = line, .what = colon ? colon : line};
    s.what_length = (size_t)(line + length - s.what);
    const char *slash = memchr(line, '/', (size_t)(s.what - line));
    if (!slash)
        return s;
    s.first_length = (size_t)(slash - line);
    for (const char *at = slash; at < s.what; at++)
        if (*at == '/')
            s.last = at;
    s.last_length = (size_t)(s.what - s.last);
    s.path = s.last != slash;
    return s;
}

/* "only in A, f32 [3]" is as any other of A. */
static bool alike(const signature *a, const signature *b)
{
    static const char *const only[] = {": only in A", ": only in B"};
    for (int i = 0; i < 2; i++)
        if (strncmp(a->what, only[i], strlen(only[i])) == 0)
            return strncmp(b->what, only[i], strlen(only[i])) == 0;
    return a->path && b->path && a->first_length == b->first_length &&
           memcmp(a->line, b->line, a->first_length) == 0 && a->last_length == b->last_length &&
           memcmp(a->last, b->last, a->last_length) == 0 && a->what_length == b->what_length &&
           memcmp(a->what, b->what, a->what_length) == 0;
}

/* Lines that stand together; those of one kind do. */
static void print_run(const signature *s, const char *from, int64_t count)
{
    if (s->path) {
        printf("%.*s/…%.*s, %" PRId64 " times%.*s\n", (int)s->first_length, s->line,
               (int)s->last_length, s->last, count, (int)s->what_length, s->what);
        return;
    }
    for (int k = 0; k < FEW_NOTES; k++, from = strchr(from, '\n') + 1)
        printf("%.*s\n", (int)strcspn(from, "\n"), from);
    printf("… and %" PRId64 " more%.11s (--all: each)\n", count - FEW_NOTES, s->what);
}

void diff_notes_print(const comparison *c)
{
    const char *at = cz__text_get(&c->notes);
    while (*at) {
        const signature s = signature_of(at);
        const char *next = strchr(at, '\n') + 1;
        int64_t count = 1;
        while (*next) {
            const signature other = signature_of(next);
            if (!alike(&s, &other))
                break;
            next = strchr(next, '\n') + 1;
            count++;
        }
        if (c->all || count <= FEW_NOTES)
            printf("%.*s", (int)(next - at), at);
        else
            print_run(&s, at, count);
        at = next;
    }
}

/* ---- names ---- */

/* How many of one's names are the other's with this before them. */
static int64_t count_prefixed(const source *one, const source *other, const char *prefix,
                              size_t length, cz__text *name)
{
    int64_t count = 0;
    for (int64_t i = 0; i < source_count(one); i++) {
        cz__text_cut(name, 0);
        count += cz__text_print(name, "%.*s%s", (int)length, prefix, source_tensor(one, i).name) &&
                 cz_archive_find(other->archive, cz__text_get(name)) >= 0;
    }
    return count;
}

/* The first name of `one` with something before it, in `other`. */
static bool find_prefix(comparison *c, bool of_b)
{
    const source *one = of_b ? c->b : c->a, *other = of_b ? c->a : c->b;
    const int64_t count = source_count(one);
    const char *name = source_tensor(one, 0).name;
    cz__text text = {0};
    bool found = false;
    for (int64_t i = 0; !found && i < source_count(other); i++) {
        const char *longer = source_tensor(other, i).name;
        if (!cz__ends_with(longer, name) || strcmp(longer, name) == 0)
            continue;
        const size_t before = strlen(longer) - strlen(name);
        const int64_t same = count_prefixed(one, other, longer, before, &text);
        found = 2 * same > count;
        if (!found)
            continue;
        cz__text_cut(&text, 0);
        if (cz__text_append(&text, longer, before))
            cz__text_print(&c->hint,
                           "the names of %c are those of %c with '%s' before them, %s of %s: a "
                           "model that was wrapped or renamed? Nothing of these is compared",
                           of_b ? 'A' : 'B', of_b ? 'B' : 'A', cz__show(cz__text_get(&text)).text,
                           show_count(same).text, show_plural(count, "tensor", "tensors").text);
    }
    cz__text_clear(&text);
    return found;
}

static bool same_shapes(const source *a, const source *b)
{
    if (a->info.param_count != b->info.param_count || a->info.buffer_count != b->info.buffer_count)
        return false;
    for (int64_t i = 0; i < source_count(a); i++) {
        const cz_archive_tensor x = source_tensor(a, i), y = source_tensor(b, i);
        if (x.dimensions != y.dimensions ||
            memcmp(x.shape, y.shape, (size_t)x.dimensions * sizeof *x.shape) != 0)
            return false;
    }
    return true;
}

cz_status diff_find_renamed(comparison *c)
{
    if (c->compared > 0 || source_count(c->a) == 0 || source_count(c->b) == 0)
        return CZ_OK;
    if (!find_prefix(c, false) && !find_prefix(c, true))
        cz__text_print(&c->hint, "no tensor of A has the name of one of B%s",
                       same_shapes(c->a, c->b) ? "; they have the same shapes in the same order: a "
                                                 "model that was renamed? Nothing is compared"
                                               : ": two models");
    return c->hint.failed ? no_memory() : CZ_OK;
}
