/* SPDX-License-Identifier: MIT */
/* A generation that is read: elements, wherever they are. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "checkpoint/input_file.h"
#include "checkpoint/text.h"

enum { MOST_INDEX = 1 << 30, MOST_OPEN = 64 };

static cz_status read_index(cz__input *input)
{
    cz__text path = {0};
    char *bytes = NULL;
    size_t count;
    cz_status status = cz__index_path(&path, input->path);
    if (status == CZ_OK)
        status = cz__file_read(cz__text_get(&path), MOST_INDEX, &bytes, &count);
    if (status == CZ_OK)
        status = cz__index_parse(&input->index, cz__text_get(&path), bytes, count);
    cz__free(bytes);
    cz__text_clear(&path);
    return status;
}

cz_status cz__input_open(cz__input *input, const char *path)
{
    *input = (cz__input){.path = cz__strdup(path)};
    if (!input->path)
        return cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
    CZ_TRY(read_index(input));
    input->parts = cz__calloc((size_t)input->index.world_size, sizeof *input->parts);
    return input->parts
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: a table of %d parts", path, input->index.world_size);
}

void cz__input_close(cz__input *input)
{
    for (int r = 0; input->parts && r < input->index.world_size; r++)
        cz__input_file_clear(&input->parts[r]);
    cz__input_file_clear(&input->common);
    cz__text_clear(&input->name);
    cz__free(input->parts);
    cz__free(input->path);
    cz__index_clear(&input->index);
    *input = (cz__input){0};
}

/* A part's reader; not too many at a time. */
static cz_status open_part(cz__input *input, int rank)
{
    cz__input_file *part = &input->parts[rank];
    if (part->reader)
        return CZ_OK;
    for (int r = 0; input->open >= MOST_OPEN && r < input->index.world_size; r++)
        cz__reader_close(&input->parts[r].reader);
    if (input->open >= MOST_OPEN)
        input->open = 0;
    CZ_TRY(part->header ? cz__reader_open(&part->reader, part->path)
                        : cz__input_file_open_part(part, input, rank));
    input->open++;
    return CZ_OK;
}

cz_status cz__input_part(cz__input *input, int rank)
{
    return input->parts[rank].header ? CZ_OK : open_part(input, rank);
}

cz_status cz__input_verify(cz__input *input, int rank)
{
    CZ_TRY(open_part(input, rank));
    return cz__input_file_verify(&input->parts[rank]);
}

/* ---- elements ---- */

/* The piece in which an element is, and the rank whose part has it. */
static cz_status find_piece(const cz__input *input, int64_t stored, int64_t element, cz_span *piece)
{
    const cz__stored *s = &input->index.stored[stored];
    *piece = (cz_span){stored, 0, s->count, s->owner};
    if (s->owner >= 0)
        return CZ_OK;
    if (!cz_shard_map_locate(input->index.map, stored, element, piece))
        return cz__fail(CZ_ERR_FORMAT, "%s: nobody has element %" PRId64 " of '%.60s'", input->path,
                        element, s->name);
    return CZ_OK;
}

static cz_status find_entry(cz__input *input, const cz_span *piece, const char *slot,
                            const cz__safetensors_entry **entry)
{
    const cz__input_file *part = &input->parts[piece->rank];
    CZ_TRY(
        cz__piece_name(&input->name, &input->index, piece->param, slot, piece->begin, piece->end));
    *entry = cz__safetensors_find(part->header, cz__text_get(&input->name));
    return *entry ? CZ_OK
                  : cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%.120s'", part->path,
                             cz__text_get(&input->name));
}

/* `to` NULL: only have the part. */
static cz_status read_piece(cz__input *input, const cz_span *piece, const char *slot, int64_t begin,
                            int64_t end, char *to)
{
    const cz__safetensors_entry *entry;
    cz__input_file *part = &input->parts[piece->rank];
    CZ_TRY(to ? open_part(input, piece->rank) : cz__input_part(input, piece->rank));
    CZ_TRY(find_entry(input, piece, slot, &entry));
    if (!to)
        return CZ_OK;
    const size_t size = cz_dtype_size(entry->dtype);
    return cz__reader_read(part->reader,
                           cz__safetensors_data_begin(part->header) + entry->begin +
                               (uint64_t)(begin - piece->begin) * size,
                           to, (size_t)(end - begin) * size);
}

/* A slot has the type that the outline says; an owner table keeps slots with the span, so a parameter that one
 * rank has whole beside the map has none. */
static size_t element_size(const cz__input *input, int64_t stored, const char *slot)
{
    const cz_state_dict *entry;
    const char *type = "";
    const cz__stored *s = &input->index.stored[stored];
    if (!slot)
        return cz_dtype_size(s->dtype);
    if (cz_state_dict_get_dict(input->index.entries, s->name, &entry) == CZ_OK)
        (void)cz_state_dict_get_text(entry, slot, &type);
    for (cz_dtype dtype = CZ_F32; dtype <= CZ_U8; dtype++)
        if (strcmp(cz_dtype_name(dtype), type) == 0)
            return cz_dtype_size(dtype);
    return 0;
}

static cz_status go_through(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                            int64_t end, char *to)
{
    const size_t size = element_size(input, stored, slot);
    for (int64_t at = begin; at < end;) {
        cz_span piece;
        CZ_TRY(find_piece(input, stored, at, &piece));
        const int64_t until = piece.end < end ? piece.end : end;
        CZ_TRY(read_piece(input, &piece, slot, at, until,
                          to ? to + (size_t)(at - begin) * size : NULL));
        at = until;
    }
    return CZ_OK;
}

cz_status cz__input_read(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                         int64_t end, void *to)
{
    return go_through(input, stored, slot, begin, end, to);
}

cz_status cz__input_reach(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                          int64_t end)
{
    return go_through(input, stored, slot, begin, end, NULL);
}

/* ---- dictionaries ---- */

cz_status cz__input_common(cz__input *input, cz_state_dict **out)
{
    const json_t *common = json_object_get(input->index.json, "common");
    const json_t *file = json_object_get(common, "file");
    if (file && !json_is_null(file))
        CZ_TRY(cz__input_file_open_common(&input->common, input, file));
    const cz_status status = cz__input_file_dict(
        &input->common, json_object_get(common, "dictionary"), input->path, out);
    return status == CZ_ERR_FORMAT && !input->common.path ? cz__fail_in(status, input->path)
                                                          : status;
}

cz_status cz__input_own(cz__input *input, int rank, cz_state_dict **out)
{
    CZ_TRY(open_part(input, rank));
    cz__input_file *part = &input->parts[rank];
    return cz__input_file_dict(part, json_object_get(part->mark, "own"), part->path, out);
}
