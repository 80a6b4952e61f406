/* SPDX-License-Identifier: MIT */
/* What is in a checkpoint against what is here: names, shapes, types, the rule. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/compare.h"
#include "tensor/convert.h"

void cz__comparison_clear(cz__comparison *comparison)
{
    cz__free(comparison->from);
    cz__text_clear(&comparison->differences);
    *comparison = (cz__comparison){0};
}

static const char *noun(const cz__index *index, int64_t place)
{
    return place < index->param_count ? "parameter" : "buffer";
}

static void print_shape(char *text, size_t size, const cz__stored *stored)
{
    size_t length = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < stored->dimensions && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%" PRId64, d ? ", " : "",
                                   stored->shape[d]);
    if (length < size)
        snprintf(text + length, size - length, "]");
}

/* Does every value of one type have the same value in the other? */
static bool is_exact(cz_dtype from, cz_dtype to)
{
    return from == to || (from == CZ_F32 && to == CZ_F64) ||
           ((from == CZ_F16 || from == CZ_BF16) && (to == CZ_F32 || to == CZ_F64));
}

static bool types_fit(cz_dtype from, cz_dtype to, bool convert)
{
    return is_exact(cz__type_in_memory(from), to) ||
           (convert && cz__converts(from) && cz__converts(to));
}

static bool shapes_are_equal(const cz__stored *a, const cz__stored *b)
{
    return a->dimensions == b->dimensions &&
           memcmp(a->shape, b->shape, (size_t)a->dimensions * sizeof *a->shape) == 0;
}

/* Of one tensor here: its place in the file if it is to be loaded. */
static int64_t compare_tensor(cz__comparison *c, const cz__index *here, const cz__index *file,
                              int64_t place, bool convert)
{
    const cz__stored *mine = &here->stored[place];
    const int64_t from = cz__index_find_tied(file, mine->name);
    const char *what = noun(here, place);
    char shape[200], saved[200];
    if (from < 0) {
        print_shape(shape, sizeof shape, mine);
        cz__text_print(&c->differences, "%s '%s' %s of shape %s is not in the checkpoint\n", what,
                       cz__show(mine->name).text, cz__type_shown(mine->dtype), shape);
        return -1;
    }
    const cz__stored *theirs = &file->stored[from];
    if ((from < file->param_count) != (place < here->param_count)) {
        cz__text_print(&c->differences, "%s '%s' is a %s in the checkpoint\n", what,
                       cz__show(mine->name).text, noun(file, from));
        return -1;
    }
    if (!shapes_are_equal(mine, theirs)) {
        print_shape(shape, sizeof shape, mine);
        print_shape(saved, sizeof saved, theirs);
        cz__text_print(&c->differences, "%s '%s' has shape %s, in the checkpoint %s\n", what,
                       cz__show(mine->name).text, shape, saved);
        return -1;
    }
    if (!types_fit(theirs->dtype, mine->dtype, convert)) {
        cz__text_print(
            &c->differences, "%s '%s' is %s, in the checkpoint %s%s\n", what,
            cz__show(mine->name).text, cz__type_shown(mine->dtype), cz__type_shown(theirs->dtype),
            types_fit(theirs->dtype, mine->dtype, true) ? " (option convert rounds it)" : "");
        return -1;
    }
    return from;
}

static bool rules_fit(const char *mine, const char *theirs)
{
    return strcmp(mine, theirs) == 0 || (strcmp(theirs, CZ__ADAM_OR_ADAMW) == 0 &&
                                         (strcmp(mine, "adam") == 0 || strcmp(mine, "adamw") == 0));
}

static void compare_rules(cz__comparison *c, const cz__index *here, const cz__index *file)
{
    const char *mine = NULL, *theirs = NULL;
    if (here->optimizer)
        (void)cz_state_dict_get_text(here->optimizer, "rule", &mine);
    if (file->optimizer)
        (void)cz_state_dict_get_text(file->optimizer, "rule", &theirs);
    c->state = mine && theirs && rules_fit(mine, theirs);
    if (c->state || file->says_nothing_of_state || (!mine && !theirs))
        return;
    cz__text_print(&c->differences, "the optimizer's rule is %s, in the checkpoint %s\n",
                   mine ? mine : "none", theirs ? cz__show(theirs).text : "none");
}

cz_status cz__compare(cz__comparison *comparison, const cz__index *here, const cz__index *file,
                      bool convert)
{
    const int64_t count = here->param_count + here->buffer_count;
    *comparison = (cz__comparison){0};
    comparison->from = cz__calloc((size_t)count, sizeof *comparison->from);
    if (!comparison->from)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: a table of %" PRId64 " tensors", count);
    for (int64_t i = 0; i < count; i++)
        comparison->from[i] = compare_tensor(comparison, here, file, i, convert);
    for (int64_t i = 0; i < file->param_count + file->buffer_count; i++)
        if (cz__index_find(here, file->stored[i].name) < 0) {
            char shape[200];
            print_shape(shape, sizeof shape, &file->stored[i]);
            cz__text_print(&comparison->differences,
                           "%s '%s' %s of shape %s of the checkpoint is not here\n", noun(file, i),
                           cz__show(file->stored[i].name).text,
                           cz__type_shown(file->stored[i].dtype), shape);
        }
    compare_rules(comparison, here, file);
    return comparison->differences.failed
               ? cz__fail(CZ_ERR_MEMORY, "checkpoint: a list of differences")
               : CZ_OK;
}
