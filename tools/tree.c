/* SPDX-License-Identifier: MIT */
/* The tree of names. A node is a part of a name between points. */
#include "tree.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/memory.h"
#include "base/names.h"
#include "source.h"

enum { MOST_LEVELS = 24 }; /* what is deeper is part of the last label */

typedef struct tree_node {
    char *path;                /* owned: the name up to here */
    size_t label;              /* where in it this part begins */
    int64_t first, last, next; /* children, and the next sibling; -1: none */
    int64_t stored;            /* the tensor of that name, -1: none */
    uint64_t print;            /* of everything below, but numbers that repeat */
    int64_t elements;          /* below, as the next */
    uint64_t bytes;
} tree_node;

typedef struct tree {
    const source *source;
    const tree_options *options;
    tree_node *nodes; /* owned; 0 is the root */
    int64_t count, capacity;
    cz__names names; /* paths to nodes */
    table *rows;
    bool folded;
    int alike; /* levels above that stand for several: whose ranks are not those of one */
} tree;

static cz_status no_memory(void)
{
    return cz_fail(CZ_ERR_MEMORY, "no memory for a tree of names");
}

static void clear(tree *t)
{
    for (int64_t i = 0; i < t->count; i++)
        cz__free(t->nodes[i].path);
    cz__free(t->nodes);
    cz__names_clear(&t->names);
}

/* ---- making it ---- */

static cz_status add_node(tree *t, int64_t parent, const char *name, size_t bytes, size_t label,
                          int64_t *out)
{
    tree_node *nodes = cz__grow(t->nodes, t->count, &t->capacity, sizeof *nodes);
    t->nodes = nodes ? nodes : t->nodes;
    char *path = cz__calloc(bytes + 1, 1);
    if (!nodes || !path || !cz__names_reserve(&t->names, 1)) {
        cz__free(path);
        return no_memory();
    }
    memcpy(path, name, bytes);
    *out = t->count++;
    t->nodes[*out] = (tree_node){
        .path = path, .label = label, .first = -1, .last = -1, .next = -1, .stored = -1};
    if (parent < 0)
        return CZ_OK;
    cz__names_add(&t->names, path, *out);
    if (t->nodes[parent].last >= 0)
        t->nodes[t->nodes[parent].last].next = *out;
    else
        t->nodes[parent].first = *out;
    t->nodes[parent].last = *out;
    return CZ_OK;
}

static cz_status find_or_add(tree *t, int64_t parent, const char *name, size_t bytes, size_t label,
                             int64_t *out)
{
    char *path = cz__calloc(bytes + 1, 1);
    if (!path)
        return no_memory();
    memcpy(path, name, bytes);
    const bool found = cz__names_find(&t->names, path, out);
    cz__free(path);
    return found ? CZ_OK : add_node(t, parent, name, bytes, label, out);
}

static cz_status add_name(tree *t, int64_t stored)
{
    const char *name = source_tensor(t->source, stored).name, *point = name;
    int64_t at = 0;
    size_t begin = 0;
    for (int level = 0; point; level++) {
        /* a part is never empty: points at its beginning, and one at the end of the name, belong to
         * it */
        point = level < MOST_LEVELS && name[begin] ? strchr(name + begin + 1, '.') : NULL;
        point = point && point[1] ? point : NULL;
        const size_t end = point ? (size_t)(point - name) : strlen(name);
        CZ_TRY(find_or_add(t, at, name, end, begin, &at));
        begin = end + 1;
    }
    t->nodes[at].stored = stored;
    return CZ_OK;
}

/* ---- what is alike ---- */

static uint64_t mix(uint64_t print, const void *bytes, size_t count)
{
    return cz__fingerprint(print, bytes, count);
}

static const char *label_of(const tree_node *n)
{
    return n->path + n->label;
}

/* The digits at the end of a label, that begin at *digits; -1: none, or too many. */
static int64_t number_of(const char *label, size_t *digits)
{
    size_t end = strlen(label);
    *digits = end;
    while (*digits > 0 && isdigit((unsigned char)label[*digits - 1]))
        --*digits;
    if (*digits == end || end - *digits > 9 || (label[*digits] == '0' && end - *digits > 1))
        return -1;
    return strtoll(label + *digits, NULL, 10);
}

static uint64_t print_of_tensor(const tree *t, int64_t stored)
{
    const cz_archive_tensor tensor = source_tensor(t->source, stored);
    const int64_t facts[] = {tensor.dimensions, stored >= t->source->info.param_count,
                             (int64_t)source_state_bytes(t->source, stored)};
    const uint64_t print = mix(mix(1, facts, sizeof facts), tensor.type, strlen(tensor.type));
    return mix(print, tensor.shape, (size_t)tensor.dimensions * sizeof *tensor.shape);
}

/* Children come after their parents in the list. */
static void sum_up(tree *t)
{
    for (int64_t i = t->count - 1; i >= 0; i--) {
        tree_node *n = &t->nodes[i];
        if (n->stored >= 0) {
            n->print = print_of_tensor(t, n->stored);
            n->elements = source_tensor(t->source, n->stored).count;
            n->bytes =
                source_value_bytes(t->source, n->stored) + source_state_bytes(t->source, n->stored);
        }
        for (int64_t c = n->first; c >= 0; c = t->nodes[c].next) {
            const char *label = label_of(&t->nodes[c]);
            n->print = mix(mix(n->print, label, strlen(label)), &t->nodes[c].print,
                           sizeof t->nodes[c].print);
            n->elements += t->nodes[c].elements;
            n->bytes += t->nodes[c].bytes;
        }
    }
}

/* The last sibling that is as this one, with a number that goes on counting. */
static int64_t last_alike(const tree *t, int64_t from)
{
    size_t digits, other;
    const tree_node *n = &t->nodes[from];
    int64_t number = number_of(label_of(n), &digits), last = from;
    if (t->options->all || number < 0)
        return from;
    for (int64_t c = n->next; c >= 0; c = t->nodes[c].next) {
        const tree_node *next = &t->nodes[c];
        if (next->print != n->print || number_of(label_of(next), &other) != ++number ||
            other != digits || memcmp(label_of(next), label_of(n), digits) != 0)
            break;
        last = c;
    }
    return last;
}

/* ---- showing it ---- */

static void show_tensor(const tree *t, int64_t stored, const char *label, int depth)
{
    const cz_archive_tensor s = source_tensor(t->source, stored);
    table_row(t->rows);
    table_cell(t->rows, 0, "%*s%s", 2 * depth, "", label);
    table_cell(t->rows, 1, "%s", s.type);
    table_cell(t->rows, 2, "%s", show_shape(s.dimensions, s.shape).text);
    table_cell(t->rows, 3, "%s", show_count(s.count).text);
    table_cell(t->rows, 4, "%s", show_bytes(source_value_bytes(t->source, stored)).text);
    if (source_state_bytes(t->source, stored) > 0)
        table_cell(t->rows, 5, "%s", show_bytes(source_state_bytes(t->source, stored)).text);
    if (t->options->ranks && t->alike == 0)
        table_cell(t->rows, 6, "%s", show_ranks(s.first_rank, s.last_rank).text);
    if (stored >= t->source->info.param_count)
        table_cell(t->rows, 7, "buffer");
}

static void show_branch(const tree *t, const tree_node *n, const char *label, int64_t times,
                        int depth)
{
    table_row(t->rows);
    table_cell(t->rows, 0, "%*s%s", 2 * depth, "", label);
    if (times > 1)
        table_cell(t->rows, 2, "%" PRId64 " alike, each:", times);
    table_cell(t->rows, 3, "%s", show_count(n->elements).text);
}

static void print_children(tree *t, int64_t parent, int depth);

/* "layers" and, of several that are alike, "{0-11}"; *times: how many. */
static void append_label(tree *t, cz__text *label, int64_t from, int64_t last, int64_t *times)
{
    size_t digits;
    const char *own = label_of(&t->nodes[from]);
    if (last == from) {
        cz__text_print(label, "%s", own);
        return;
    }
    const int64_t number = number_of(own, &digits);
    *times = number_of(label_of(&t->nodes[last]), &digits) - number + 1;
    cz__text_print(label, "%.*s{%" PRId64 "-%" PRId64 "}", (int)digits, own, number,
                   number + *times - 1);
    t->folded = true;
}

/* A part with one thing below it, or only things that are alike, is shown in one line with that. */
static int64_t join(tree *t, int64_t at, cz__text *label, int64_t *times)
{
    while (t->nodes[at].stored < 0 && t->nodes[at].first >= 0) {
        const int64_t first = t->nodes[at].first, last = last_alike(t, first);
        if (last != t->nodes[at].last || (last != first && *times > 1))
            break;
        cz__text_print(label, ".");
        append_label(t, label, first, last, times);
        at = first;
    }
    return at;
}

static void print_node(tree *t, int64_t from, int64_t last, int depth)
{
    cz__text label = {0};
    int64_t times = 1;
    append_label(t, &label, from, last, &times);
    const int64_t at = join(t, from, &label, &times);
    const tree_node *n = &t->nodes[at];
    if (times > 1 && n->first < 0)
        cz__text_print(&label, " (%" PRId64 " alike, each:)", times);
    t->rows->failed |= label.failed;
    const cz__shown safe = cz__show(cz__text_get(&label));
    cz__text_clear(&label);
    t->alike += times > 1;
    if (n->stored >= 0 && (times == 1 || n->first < 0))
        show_tensor(t, n->stored, safe.text, depth);
    else
        show_branch(t, n, safe.text, times, depth);
    if (n->stored >= 0 && times > 1 && n->first >= 0)
        show_tensor(t, n->stored, "(itself)", depth + 1);
    print_children(t, at, depth + 1);
    t->alike -= times > 1;
}

static void print_children(tree *t, int64_t parent, int depth)
{
    for (int64_t c = t->nodes[parent].first, last; c >= 0; c = t->nodes[last].next) {
        last = last_alike(t, c);
        print_node(t, c, last, depth);
    }
}

static void print_titles(table *t, bool ranks)
{
    static const char *const titles[] = {"tensor", "type",  "shape",     "elements",
                                         "value",  "state", "written by"};
    table_row(t);
    for (int c = 0; c < (ranks ? 7 : 6); c++)
        table_cell(t, c, "%s", titles[c]);
    t->right[3] = t->right[4] = t->right[5] = true;
}

cz_status tree_rows(table *rows, const source *s, const tree_options *options, bool *folded,
                    int64_t *count)
{
    tree t = {.source = s, .options = options, .rows = rows};
    int64_t root;
    *count = 0;
    cz_status status = add_node(&t, -1, "", 0, 0, &root);
    for (int64_t i = 0; status == CZ_OK && i < source_count(s); i++) {
        if (options->pattern && fnmatch(options->pattern, source_tensor(s, i).name, 0) != 0)
            continue;
        status = add_name(&t, i);
        ++*count;
    }
    if (status == CZ_OK && *count > 0) {
        sum_up(&t);
        print_titles(rows, options->ranks);
        print_children(&t, 0, 0);
    }
    *folded = t.folded;
    clear(&t);
    return status == CZ_OK && rows->failed ? no_memory() : status;
}
