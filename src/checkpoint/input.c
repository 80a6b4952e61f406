/* SPDX-License-Identifier: MIT */
/* What a load reads: elements, wherever they are. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/generation.h"
#include "checkpoint/input.h"
#include "io/text.h"
#include "shard/shard.h"

enum { MOST_INDEX = 1 << 30, MOST_OPEN = 64 };

cz_status cz__input_name(cz__input *input, const char *path)
{
    *input = (cz__input){.path = cz__strdup(path)};
    return input->path ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "checkpoint: no memory for a path");
}

cz_status cz__input_index_bytes(const cz__input *input, char **bytes, size_t *count)
{
    cz__text path = {0};
    *bytes = NULL;
    cz_status status = cz__index_path(&path, input->path);
    if (!status)
        status = cz__file_read(cz__text_get(&path), MOST_INDEX, bytes, count);
    cz__text_clear(&path);
    return status;
}

cz_status cz__input_parse(cz__input *input, const char *bytes, size_t count)
{
    cz__text path = {0};
    cz_status status = cz__index_path(&path, input->path);
    if (!status)
        status = cz__index_parse(&input->index, cz__text_get(&path), bytes, count);
    cz__text_clear(&path);
    CZ_TRY(status);
    input->parts = cz__calloc((size_t)input->index.world_size, sizeof *input->parts);
    return input->parts ? CZ_OK
                        : cz__fail(CZ_ERR_MEMORY, "%s: no memory for a table of %d parts",
                                   input->path, input->index.world_size);
}

cz_status cz__input_open(cz__input *input, const char *path)
{
    char *bytes;
    size_t count;
    CZ_TRY(cz__input_name(input, path));
    CZ_TRY(cz__input_index_bytes(input, &bytes, &count));
    const cz_status status = cz__input_parse(input, bytes, count);
    cz__free(bytes);
    return status;
}

void cz__input_close(cz__input *input)
{
    if (input->parts)
        for (int r = 0; r < input->index.world_size; r++)
            cz__input_file_clear(&input->parts[r]);
    if (input->blocks)
        for (int r = 0; r < input->index.world_size; r++)
            cz__block_table_clear(&input->blocks[r]);
    cz__free(input->blocks);
    cz__held_clear(&input->held);
    cz__input_file_clear(&input->common);
    cz__text_clear(&input->name);
    cz__free(input->parts);
    cz__free(input->path);
    cz__index_clear(&input->index);
    if (input->form)
        input->form->close(input);
    *input = (cz__input){0};
}

/* A part's reader; not too many at a time. */
cz_status cz__input_open_part(cz__input *input, int rank)
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
    return input->parts[rank].header ? CZ_OK : cz__input_open_part(input, rank);
}

cz_status cz__input_verify(cz__input *input, int rank)
{
    return cz__input_verify_each(input, rank, NULL, NULL);
}

cz_status cz__input_verify_each(cz__input *input, int rank, cz__damage_visitor tell, void *context)
{
    CZ_TRY(cz__input_open_part(input, rank));
    CZ_TRY(cz__input_have_blocks(input));
    return cz__input_file_verify(&input->parts[rank], tell, context, &input->blocks[rank]);
}

/* ---- what was verified, once more: is it the same? ---- */

/* The data of a part. */
static cz__verified region_of(const cz__input *input, int part)
{
    const cz__safetensors *header = input->parts[part].header;
    const uint64_t bytes = cz__safetensors_data_bytes(header);
    return (cz__verified){cz__safetensors_data_begin(header), bytes, cz__block_bytes(bytes),
                          input->blocks[part].sums};
}

cz_status cz__input_have_blocks(cz__input *input)
{
    if (!input->blocks)
        input->blocks = cz__calloc((size_t)input->index.world_size, sizeof *input->blocks);
    return input->blocks
               ? CZ_OK
               : cz__fail(CZ_ERR_MEMORY, "%s: no memory for checksums of blocks", input->path);
}

cz_status cz__input_hold(cz__input *input, int rank)
{
    if (!input->blocks || !input->blocks[rank].sums)
        return CZ_OK;
    const cz__verified region = region_of(input, rank);
    return cz__held_have(&input->held, input->parts[rank].path, &region);
}

cz_status cz__input_read_part(cz__input *input, int rank, uint64_t offset, char *to, size_t count)
{
    const cz__input_file *file = &input->parts[rank];
    if (!input->blocks || !input->blocks[rank].sums)
        return cz__reader_read(file->reader, cz__safetensors_data_begin(file->header) + offset, to,
                               count);
    const cz__verified region = region_of(input, rank);
    return cz__reader_read_verified(file->reader, &region, &input->held, offset, to, count);
}

/* ---- elements ---- */

cz_status cz__input_piece(const cz__input *input, int64_t stored, int64_t element, cz_span *piece)
{
    const cz__stored *s = &input->index.stored[stored];
    *piece = (cz_span){stored, 0, s->count, s->owner};
    if (s->owner >= 0)
        return CZ_OK;
    if (!cz__shard_map_locate(input->index.map, stored, element, piece))
        return cz__fail(CZ_ERR_FORMAT, "%s: nobody has element %" PRId64 " of '%s'", input->path,
                        element, cz__show(s->name).text);
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
                  : cz__fail(CZ_ERR_FORMAT, "%s: no tensor '%s'", part->path,
                             cz__show(cz__text_get(&input->name)).text);
}

/* `to` NULL: only have the part. */
static cz_status read_piece(cz__input *input, const cz_span *piece, const char *slot, int64_t begin,
                            int64_t end, char *to)
{
    const cz__safetensors_entry *entry;
    CZ_TRY(to ? cz__input_open_part(input, piece->rank) : cz__input_part(input, piece->rank));
    CZ_TRY(find_entry(input, piece, slot, &entry));
    if (!to)
        return cz__input_hold(input, piece->rank);
    const size_t size = cz__type_unit(entry->dtype);
    return cz__input_read_part(input, piece->rank,
                               entry->begin + (uint64_t)(begin - piece->begin) * size, to,
                               (size_t)(end - begin) * size);
}

static cz_status go_through(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                            int64_t end, char *to)
{
    const size_t size = cz__type_unit(cz__index_dtype(&input->index, stored, slot));
    for (int64_t at = begin; at < end;) {
        cz_span piece;
        CZ_TRY(cz__input_piece(input, stored, at, &piece));
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
    return input->form ? input->form->read(input, stored, slot, begin, end, to)
                       : go_through(input, stored, slot, begin, end, to);
}

cz_status cz__input_reach(cz__input *input, int64_t stored, const char *slot, int64_t begin,
                          int64_t end)
{
    return input->form ? input->form->read(input, stored, slot, begin, end, NULL)
                       : go_through(input, stored, slot, begin, end, NULL);
}

/* ---- dictionaries ---- */

cz_status cz__input_common_dict(const cz__input *input, cz__input_file *file, cz_state_dict **out)
{
    const json_t *common = json_object_get(input->index.json, "common");
    const cz_status status =
        cz__input_file_dict(file, json_object_get(common, "dictionary"), input->path, out);
    return status == CZ_ERR_FORMAT && !file->path ? cz__fail_in(status, input->path) : status;
}

cz_status cz__input_common(cz__input *input, cz_state_dict **out)
{
    if (input->form)
        return input->form->common(input, out);
    const json_t *file = cz__input_common_file(input);
    if (file)
        CZ_TRY(cz__input_file_open_common(&input->common, input, file));
    return cz__input_common_dict(input, &input->common, out);
}

cz_status cz__input_own_dict(cz__input_file *part, cz_state_dict **out)
{
    return cz__input_file_dict(part, json_object_get(part->mark, "own"), part->path, out);
}

cz_status cz__input_own(cz__input *input, int rank, cz_state_dict **out)
{
    CZ_TRY(cz__input_open_part(input, rank));
    return cz__input_own_dict(&input->parts[rank], out);
}
