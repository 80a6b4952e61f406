/* SPDX-License-Identifier: MIT */
/* What the recordings of a group say together. All ranks call the same operations in the same
 * order: so an operation in flight on one rank and not begun on another waits for that one; and one
 * that is another thing elsewhere tells where programs went different ways. */
#include "doctor.h"
#include "show.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one recording ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static int int_of(const json_t *object, const char *key)
{
    const int64_t number = number_of(object, key);
    return number >= -1 && number <= 1 << 20 ? (int)number : -1;
}

/* The global rank of a rank of the group; -1: it has none. */
static int member_of(const json_t *root, int rank)
{
    const json_t *member = json_array_get(json_object_get(root, "members"), (size_t)rank);
    const json_int_t number = json_is_integer(member) ? json_integer_value(member) : -1;
    return number >= 0 && number <= INT_MAX ? (int)number : -1;
}

bool recording_is_whole(const json_t *root)
{
    const int size = int_of(root, "size"), rank = int_of(root, "rank");
    if (!json_is_array(json_object_get(root, "operations")) || !*text_of(root, "name") ||
        rank < 0 || rank >= size || number_of(root, "global_rank") != member_of(root, rank) ||
        json_array_size(json_object_get(root, "members")) != (size_t)size)
        return false;
    for (int r = 0; r < size; r++)
        if (member_of(root, r) < 0)
            return false;
    return true;
}

static recorded read_operation(const json_t *o)
{
    return (recorded){.sequence = number_of(o, "sequence"),
                      .operation = text_of(o, "operation"),
                      .label = text_of(o, "label"),
                      .dtype = text_of(o, "dtype"),
                      .status = text_of(o, "status"),
                      .count = number_of(o, "count"),
                      .root = int_of(o, "root"),
                      .ago = json_number_value(json_object_get(o, "seconds_ago")),
                      .in_flight = strcmp(text_of(o, "status"), "in flight") == 0};
}

static int by_sequence(const void *a, const void *b)
{
    const recorded *x = a, *y = b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

/* Number `sequence` of what the program began, NULL if it is not there. */
static const recorded *find(const recording *r, int64_t sequence)
{
    const recorded wanted = {.sequence = sequence};
    return r->operation_count > 0 ? bsearch(&wanted, r->operations, (size_t)r->operation_count,
                                            sizeof wanted, by_sequence)
                                  : NULL;
}

static bool is_lost(const recorded *o)
{
    return o->in_flight || strcmp(o->status, "CZ_ERR_TIMEOUT") == 0 ||
           strcmp(o->status, "CZ_ERR_PEER") == 0;
}

bool recording_read(recording *r, json_t *root)
{
    size_t index;
    json_t *o;
    const json_t *all = json_object_get(root, "operations");
    *r = (recording){.root = root,
                     .group = text_of(root, "name"),
                     .backend = text_of(root, "backend"),
                     .reason = text_of(root, "reason"),
                     .rank = int_of(root, "rank"),
                     .size = int_of(root, "size"),
                     .global_rank = member_of(root, int_of(root, "rank")),
                     .written = json_number_value(json_object_get(root, "written")),
                     .process = number_of(root, "process"),
                     .operations = calloc(json_array_size(all) + 1, sizeof *r->operations),
                     .last = {.sequence = -1},
                     .waited = {.sequence = -1}};
    if (!r->operations) {
        recording_clear(r);
        return false;
    }
    json_array_foreach(all, index, o)
    {
        if (number_of(o, "lane") == 0 && number_of(o, "sequence") >= 0)
            r->operations[r->operation_count++] = read_operation(o);
    }
    qsort(r->operations, (size_t)r->operation_count, sizeof *r->operations, by_sequence);
    if (r->operation_count > 0)
        r->last = r->operations[r->operation_count - 1];
    for (int64_t i = 0; i < r->operation_count && r->waited.sequence < 0; i++)
        if (is_lost(&r->operations[i]))
            r->waited = r->operations[i];
    return true;
}

void recording_clear(recording *r)
{
    json_decref(r->root);
    free(r->operations);
    *r = (recording){0};
}

/* Recordings of an earlier job, of another size, may lie in the same folder. */
static int compare_groups(const recording *a, const recording *b)
{
    const int names = strcmp(a->group, b->group);
    return names != 0 ? names : (a->size > b->size) - (a->size < b->size);
}

static int by_group(const void *a, const void *b)
{
    const recording *x = a, *y = b;
    const int groups = compare_groups(x, y);
    if (groups != 0)
        return groups;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->written < y->written) - (x->written > y->written);
}

void recordings_sort(recordings *all)
{
    int kept = 0;
    qsort(all->list, (size_t)all->count, sizeof *all->list, by_group);
    for (int i = 0; i < all->count; i++) {
        const recording *before = kept > 0 ? &all->list[kept - 1] : NULL;
        if (before && compare_groups(before, &all->list[i]) == 0 &&
            before->rank == all->list[i].rank)
            recording_clear(&all->list[i]);
        else
            all->list[kept++] = all->list[i];
    }
    all->count = kept;
}

/* ---- a group's ---- */

/* False: no memory. */
static bool put(char **list, int *count, int room, const char *format, va_list args)
{
    char *text = NULL;
    if (*count == room)
        return true;
    if (vasprintf(&text, format, args) < 0)
        return false;
    list[(*count)++] = text;
    return true;
}

__attribute__((format(printf, 2, 3))) static void say(finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    f->incomplete |= !put(f->sentences, &f->sentence_count,
                          sizeof f->sentences / sizeof *f->sentences, format, args);
    va_end(args);
}

__attribute__((format(printf, 2, 3))) static void advise(finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    f->incomplete |=
        !put(f->advice, &f->advice_count, sizeof f->advice / sizeof *f->advice, format, args);
    va_end(args);
}

typedef struct phrase {
    char text[400];
} phrase;

/* "rank 2", "ranks 0, 1, 3-7" */
static phrase ranks_of(const int *list, int count)
{
    phrase p;
    size_t length = (size_t)snprintf(p.text, sizeof p.text, count == 1 ? "rank" : "ranks");
    for (int i = 0, end; i < count && length + 40 < sizeof p.text; i = end) {
        for (end = i + 1; end < count && list[end] == list[end - 1] + 1; end++)
            ;
        const bool run = end - i > 2;
        if (!run)
            end = i + 1;
        length += (size_t)snprintf(p.text + length, sizeof p.text - length, "%s %d", i ? "," : "",
                                   list[i]);
        if (run)
            length +=
                (size_t)snprintf(p.text + length, sizeof p.text - length, "-%d", list[end - 1]);
        if (length + 40 >= sizeof p.text && end < count)
            snprintf(p.text + length, sizeof p.text - length, ", and more");
    }
    return p;
}

/* "all_reduce 'loss' (operation 17)" */
static phrase name_of(const recorded *o)
{
    phrase p;
    snprintf(p.text, sizeof p.text, "%s%s%s%s (operation %" PRId64 ")", cz__show(o->operation).text,
             *o->label ? " '" : "", cz__show(o->label).text, *o->label ? "'" : "", o->sequence);
    return p;
}

static bool are_alike(const recorded *a, const recorded *b)
{
    return strcmp(a->operation, b->operation) == 0 && strcmp(a->label, b->label) == 0 &&
           a->root == b->root && a->count == b->count && strcmp(a->dtype, b->dtype) == 0;
}

/* Where the program's ranks went different ways: the first operation that two have begun as
 * different ones. */
static bool find_difference(finding *f, const recording *list, int count)
{
    for (int i = 1; i < count; i++)
        for (int64_t k = 0; k < list[0].operation_count; k++) {
            const recorded *one = &list[0].operations[k];
            const recorded *other = find(&list[i], one->sequence);
            if (!other || are_alike(one, other))
                continue;
            f->state = FINDING_DIFFERENT;
            say(f,
                "ranks %d and %d did different things at the same place: rank %d %s of %" PRId64
                " %s, rank %d %s of %" PRId64 " %s",
                list[0].global_rank, list[i].global_rank, list[0].global_rank, name_of(one).text,
                one->count, cz__show(one->dtype).text, list[i].global_rank, name_of(other).text,
                other->count, cz__show(other->dtype).text);
            advise(f, "all ranks must make the same calls in the same order: look for a branch "
                      "that depends on the rank, or on data that differ, before that call");
            return true;
        }
    return false;
}

static void say_reasons(finding *f, const recording *list, int count)
{
    for (int i = 0; i < count; i++) {
        const char *reason = list[i].reason;
        if (!*reason || strcmp(reason, "SIGUSR2") == 0)
            continue;
        say(f, "it was given up: %s", show_path(reason).text);
        return;
    }
}

/* So many ranks have a sentence of their own; the others share one. */
enum { MOST_NAMED = 4 };

/* Some came to it long after others, which may have given up by then: by their clocks, if these can
 * be compared. */
static void find_late_comers(finding *f, const recording *list, int count, int64_t sequence)
{
    const double LONG = 1; /* seconds */
    const recording *first = NULL;
    const int before = f->late_count;
    for (int i = 0; i < count; i++)
        if (list[i].waited.sequence == sequence &&
            (!first || list[i].written - list[i].waited.ago < first->written - first->waited.ago))
            first = &list[i];
    for (int i = 0; first && i < count; i++) {
        const double after =
            list[i].written - list[i].waited.ago - (first->written - first->waited.ago);
        if (list[i].waited.sequence != sequence || after < LONG)
            continue;
        f->state = FINDING_LATE;
        f->late[f->late_count++] = list[i].global_rank;
        if (f->late_count - before <= MOST_NAMED)
            say(f, "rank %d came to it %.1f s after rank %d", list[i].global_rank, after,
                first->global_rank);
    }
    const int more = f->late_count - before - MOST_NAMED;
    if (more > 0)
        say(f, "late as well: %s", ranks_of(f->late + before + MOST_NAMED, more).text);
}

/* What a rank that has not come to it did last. */
static void say_last(finding *f, const recording *r)
{
    const recorded *last = &r->last;
    advise(f, "see where rank %d is: gdb -p %" PRId64 ", on its machine", r->global_rank,
           r->process);
    if (last->sequence < 0)
        say(f, "rank %d has not come to it: it has begun nothing in this group", r->global_rank);
    else
        say(f, "rank %d has not come to it: its last was %s, %.1f s ago, %s", r->global_rank,
            name_of(last).text, last->ago,
            last->in_flight ? "in which it waits" : "which has ended");
}

/* Who waits in the earliest operation that somebody waits in, and who has not begun that. */
static void find_waiting(finding *f, const recording *list, int count)
{
    const recording *first = NULL;
    for (int i = 0; i < count; i++)
        if (list[i].waited.sequence >= 0 &&
            (!first || list[i].waited.sequence < first->waited.sequence))
            first = &list[i];
    if (!first)
        return;
    const recorded *wanted = &first->waited;
    double longest = 0;
    f->state = FINDING_DATA;
    for (int i = 0; i < count; i++) {
        if (list[i].last.sequence < wanted->sequence)
            f->late[f->late_count++] = list[i].global_rank;
        if (list[i].waited.sequence != wanted->sequence)
            continue;
        f->waiting[f->waiting_count++] = list[i].global_rank;
        longest = list[i].waited.ago > longest ? list[i].waited.ago : longest;
    }
    const int absent = f->late_count;
    say(f, "%s %s in %s since %.1f s", ranks_of(f->waiting, f->waiting_count).text,
        f->waiting_count == 1 ? "waits" : "wait", name_of(wanted).text, longest);
    find_late_comers(f, list, count, wanted->sequence);
    if (f->late_count == 0)
        return;
    f->state = FINDING_LATE;
    for (int i = 0, named = 0; i < count && named < MOST_NAMED; i++) {
        if (list[i].last.sequence >= wanted->sequence)
            continue;
        say_last(f, &list[i]);
        named++;
    }
    if (absent > MOST_NAMED)
        say(f, "%d more have not come to it: %s", absent - MOST_NAMED,
            ranks_of(f->late + MOST_NAMED, absent - MOST_NAMED).text);
    advise(f, "if they are only slow, raise timeout_seconds or CZERO_TIMEOUT");
}

static void say_unrecorded(finding *f)
{
    if (f->unrecorded_count == 0 || f->state == FINDING_FINE)
        return;
    say(f, "there is no recording of %s: stopped, killed, cut off, or its file is elsewhere",
        ranks_of(f->unrecorded, f->unrecorded_count).text);
    if (f->state == FINDING_DATA)
        f->state = FINDING_LATE;
    advise(f,
           "look whether %s still %s, and on which machine: dmesg there tells of processes killed "
           "for memory",
           f->unrecorded_count == 1 ? "that process" : "these processes",
           f->unrecorded_count == 1 ? "runs" : "run");
    advise(f, "give all recordings to this command, of all machines; kill -USR2 PID makes one of a "
              "process that runs");
}

bool finding_make(finding *f, const recordings *all, int at)
{
    const recording *list = &all->list[at];
    int count = 1;
    *f = (finding){.group = list->group, .size = list->size};
    while (at + count < all->count && compare_groups(&list[count], list) == 0)
        count++;
    f->next = at + count;
    f->waiting = calloc((size_t)count, sizeof *f->waiting);
    f->late = calloc((size_t)count, sizeof *f->late);
    f->unrecorded = calloc((size_t)f->size, sizeof *f->unrecorded);
    if (!f->waiting || !f->late || !f->unrecorded) {
        finding_clear(f);
        return false;
    }
    for (int r = 0, k = 0; r < f->size; r++) {
        while (k < count && list[k].rank < r)
            k++;
        if (k == count || list[k].rank != r)
            f->unrecorded[f->unrecorded_count++] = member_of(list->root, r);
    }
    if (!find_difference(f, list, count))
        find_waiting(f, list, count);
    say_unrecorded(f);
    say_reasons(f, list, count);
    if (f->state == FINDING_DATA) {
        advise(f, "all have come, and data have not: look at the network between the machines, and "
                  "at ranks that are slow");
    }
    if (f->incomplete)
        finding_clear(f);
    return !f->incomplete;
}

const char *finding_state_name(finding_state state)
{
    static const char *const names[] = {"fine", "late", "different", "data"};
    return names[state];
}

void finding_clear(finding *f)
{
    for (int i = 0; i < f->sentence_count; i++)
        free(f->sentences[i]);
    for (int i = 0; i < f->advice_count; i++)
        free(f->advice[i]);
    free(f->waiting);
    free(f->late);
    free(f->unrecorded);
}
