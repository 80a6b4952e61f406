/* SPDX-License-Identifier: MIT */
/* From a path to a checkpoint that is open. */
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/folder.h"
#include "interop/consolidated.h"
#include "io/unfinished.h"
#include "guard.h"

/* A folder called as generations are, though its index may be missing. */
static bool is_generation(const char *path, const cz__look *look)
{
    int64_t number, step;
    const char *slash = strrchr(path, '/');
    return look->generation ||
           sscanf(slash ? slash + 1 : path, "%8" SCNd64 "-step-%" SCNd64, &number, &step) == 2;
}

static bool has_generations(const char *path, const cz__look *look)
{
    return look->folder && !is_generation(path, look) && !cz__look_consolidated(look);
}

cz_status source_is_folder(const char *path, bool *is)
{
    cz__look look;
    CZ_TRY(cz__look_at(&look, path));
    *is = has_generations(path, &look);
    return CZ_OK;
}

/* ---- any of them ---- */

static cz_status open_newest(source *s, const char *folder, int64_t step)
{
    const cz_status status = cz__input_open_newest(&s->input, folder, step, &s->notes);
    return status == CZ_ERR_STATE && step >= 0
               ? cz__fail(status, "%s. Without --step the newest one is taken", cz_last_error())
               : status;
}

static cz_status open_generation(source *s, const char *path, const cz__look *look)
{
    if (!look->generation)
        return cz__fail(CZ_ERR_STATE,
                        "%s: this generation was never completed: there is no index.json. If "
                        "nothing is writing it, it can be removed. For the newest complete one "
                        "give the folder that it is in",
                        path);
    return cz__input_open(&s->input, path);
}

/* A part of a checkpoint is a safetensors file too. */
static cz_status check_part(const cz__bundle *b)
{
    const char *format = cz__safetensors_metadata(b->files[0].header, "format");
    return format && strcmp(format, "czero checkpoint part") == 0
               ? cz__fail(CZ_ERR_ARGUMENT,
                          "%s: this is one file of a checkpoint; give the folder that it is in",
                          b->path)
               : CZ_OK;
}

static cz_status open_bundle(source *s, const char *path)
{
    cz__index here = {0};
    cz_status status = CZ_OK;
    if (s->rule)
        status = cz_state_dict_create(&here.optimizer);
    if (status == CZ_OK && s->rule)
        status = cz_state_dict_set_text(here.optimizer, "rule", s->rule);
    if (status == CZ_OK)
        status = cz__input_open_bundle(&s->input, path, s->rule ? &here : NULL);
    cz_state_dict_destroy(&here.optimizer);
    if (cz__input_bundle(&s->input) && cz__input_bundle(&s->input)->count > 0)
        CZ_TRY(check_part(cz__input_bundle(&s->input)));
    s->foreign = s->input.index.says_nothing_of_state;
    if (cz__input_bundle(&s->input) && cz__bundle_notes(cz__input_bundle(&s->input)))
        cz__text_print(&s->notes, "note: %s\n", cz__bundle_notes(cz__input_bundle(&s->input)));
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

#define MAKE_AGAIN                                                                                 \
    "a conversion or an export that was killed left this, or one is under way. If it was killed: " \
    "start it again, which replaces this, or remove it"

/* A path that is not there: was it to be made? */
static cz_status none_there(const char *path)
{
    cz__text left = {0};
    cz__unfinished_list(&left, path);
    const cz_status status =
        left.count > 0
            ? cz__fail(CZ_ERR_ARGUMENT, "%s: there is no such file or folder; " MAKE_AGAIN ":\n%s",
                       path, cz__text_get(&left))
            : cz__fail(CZ_ERR_ARGUMENT, "%s: there is no such file or folder", path);
    cz__text_clear(&left);
    return status;
}

static void note_unfinished(source *s, const char *path)
{
    cz__text left = {0};
    cz__unfinished_list(&left, path);
    if (left.count > 0)
        cz__text_print(&s->notes, "note: " MAKE_AGAIN ":\n%s", cz__text_get(&left));
    cz__text_clear(&left);
}

static cz_status open_path(source *s, const char *path, int64_t step)
{
    cz__look look;
    CZ_TRY(cz__look_at(&look, path));
    if (!look.there)
        return none_there(path);
    note_unfinished(s, path);
    if (!look.folder && !look.file)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: is a device, pipe or socket, not a file", path);
    if (has_generations(path, &look))
        return open_newest(s, path, step);
    if (step >= 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: --step chooses among the generations in a folder, and this is none",
                        path);
    if (look.file || cz__look_consolidated(&look))
        return open_bundle(s, path);
    return open_generation(s, path, &look);
}

/* Where the files leave the rule open they now have the one that was given. */
static cz_status settle_rule(source *s)
{
    const char *says = NULL;
    cz_state_dict *optimizer = s->input.index.optimizer;
    if (!optimizer || cz_state_dict_get_text(optimizer, "rule", &says) != CZ_OK)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "%s: --rule %s, but no state of an optimizer is read there", s->input.path,
                        s->rule);
    if (strcmp(says, s->rule) == 0)
        return CZ_OK;
    if (strcmp(says, CZ__ADAM_OR_ADAMW) == 0 &&
        (strcmp(s->rule, "adam") == 0 || strcmp(s->rule, "adamw") == 0))
        return cz_state_dict_set_text(optimizer, "rule", s->rule);
    return cz__fail(CZ_ERR_ARGUMENT, "%s: --rule %s, but its optimizer is %s", s->input.path,
                    s->rule, cz__show(says).text);
}

cz_status source_open(source *s, const char *path, int64_t step)
{
    return source_open_of_rule(s, path, step, NULL);
}

cz_status source_open_of_rule(source *s, const char *path, int64_t step, const char *rule)
{
    *s = (source){.rule = rule};
    char *copy = cz__path_copy(path);
    if (!copy)
        return cz__fail(CZ_ERR_MEMORY, "no memory for a path");
    if (ends_with(copy, "/index.json") || ends_with(copy, "/" CZ__CONSOLIDATED_INDEX))
        *strrchr(copy, '/') = 0;
    cz_status status = guard_read(copy);
    if (status == CZ_OK)
        status = open_path(s, copy, step);
    s->generation = !cz__input_bundle(&s->input); /* whatever the path was when it was looked at */
    if (status == CZ_OK && s->generation)
        status = guard_read(s->input.path);
    cz__free(copy);
    return status == CZ_OK && rule ? settle_rule(s) : status;
}

void source_close(source *s)
{
    cz__input_close(&s->input);
    cz__text_clear(&s->notes);
}

cz_status source_verify_entries(const source *s)
{
    return s->generation ? CZ_OK : cz__bundle_verify(cz__input_bundle(&s->input), 0, 1);
}

const char *source_path(const source *s)
{
    return s->input.path;
}

const char *source_kind(const source *s)
{
    if (s->generation)
        return "a checkpoint in parts";
    if (cz__input_bundle(&s->input)->torch)
        return s->foreign ? "a model in a file of torch" : "a checkpoint in a file of torch";
    if (s->foreign)
        return cz__input_bundle(&s->input)->count > 1 ? "a model in several safetensors files"
                                                      : "a model in one safetensors file";
    return cz__input_bundle(&s->input)->count > 1 ? "a consolidated checkpoint in several files"
                                                  : "a consolidated checkpoint in one file";
}

/* ---- what an index says of a tensor ---- */

void source_owners(const cz__index *index, int64_t stored, int *first, int *last)
{
    const cz__stored *s = &index->stored[stored];
    cz_span span;
    *first = *last = s->owner;
    if (s->owner >= 0 || !index->map)
        return;
    *first = *last = cz_shard_map_home(index->map, stored);
    if (s->count > 0 && cz_shard_map_locate(index->map, stored, s->count - 1, &span))
        *last = span.rank;
}

uint64_t source_value_bytes(const cz__index *index, int64_t stored)
{
    const cz__stored *s = &index->stored[stored];
    return (uint64_t)s->count * cz__type_unit(s->dtype);
}

uint64_t source_state_bytes(const cz__index *index, int64_t stored)
{
    const char *slot;
    cz_dtype dtype;
    uint64_t bytes = 0;
    if (stored >= index->param_count)
        return 0;
    for (int64_t at = 0; cz__index_slot(index, stored, &at, &slot, &dtype);)
        bytes += (uint64_t)index->stored[stored].count * cz_dtype_size(dtype);
    return bytes;
}
