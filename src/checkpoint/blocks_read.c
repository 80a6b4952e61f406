/* SPDX-License-Identifier: MIT */
/* Reading what was verified once more, and seeing that it is the same. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/input.h"
#include "checkpoint/input_file.h"

enum {
    TOGETHER = 16
}; /* whole blocks that are read at once; still in a cache when they are added up */

/* Which bytes of a part's data. */
typedef struct extent {
    int part;
    uint64_t data_bytes, block; /* all; of a block */
} extent;

static extent look(const cz__input *input, int part)
{
    const uint64_t bytes = cz__safetensors_data_bytes(input->parts[part].header);
    return (extent){part, bytes, cz__block_bytes(bytes)};
}

static cz_status changed(const cz__input *input, int part)
{
    return cz__fail(
        CZ_ERR_FORMAT,
        "%s: it has changed since it was verified, a moment ago: values and state that are "
        "loaded from it are undefined here until a load succeeds",
        input->parts[part].path);
}

cz_status cz__input_have_blocks(cz__input *input)
{
    if (!input->blocks)
        input->blocks = cz__calloc((size_t)input->index.world_size, sizeof *input->blocks);
    return input->blocks ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "%s: checksums of blocks", input->path);
}

cz_status cz__input_hold(cz__input *input, int rank)
{
    if (!input->blocks || !input->blocks[rank].sums)
        return CZ_OK;
    const extent e = look(input, rank);
    const size_t bytes = (size_t)(e.block < e.data_bytes ? e.block : e.data_bytes);
    if (bytes <= input->held_room)
        return CZ_OK;
    cz__free(input->held);
    input->held = cz__allocate(CZ_MEMORY_STAGING, bytes);
    input->held_room = input->held ? bytes : 0;
    input->held_bytes = 0;
    return input->held ? CZ_OK
                       : cz__fail(CZ_ERR_MEMORY, "%s: a block of %zu bytes",
                                  input->parts[rank].path, bytes);
}

static cz_status read_bytes(cz__input *input, int part, uint64_t offset, char *to, size_t count)
{
    const cz__input_file *file = &input->parts[part];
    return cz__reader_read(file->reader, cz__safetensors_data_begin(file->header) + offset, to,
                           count);
}

/* One block, of which a part is wanted. */
static cz_status hold_block(cz__input *input, const extent *e, uint64_t number)
{
    const uint64_t begin = number * e->block, left = e->data_bytes - begin;
    const size_t bytes = (size_t)(left < e->block ? left : e->block);
    if (input->held_bytes > 0 && input->held_part == e->part && input->held_number == number)
        return CZ_OK;
    CZ_TRY(cz__input_hold(input, e->part));
    input->held_bytes = 0;
    CZ_TRY(read_bytes(input, e->part, begin, input->held, bytes));
    if (!cz__block_is(&input->blocks[e->part], number, input->held, bytes))
        return changed(input, e->part);
    input->held_bytes = bytes;
    input->held_part = e->part;
    input->held_number = number;
    return CZ_OK;
}

/* Whole blocks, straight to where they belong: they come as fast as without checksums. */
static cz_status read_blocks(cz__input *input, const extent *e, uint64_t number, char *to,
                             size_t count)
{
    const size_t bytes = count * (size_t)e->block;
    CZ_TRY(read_bytes(input, e->part, number * e->block, to, bytes));
    for (size_t i = 0; i < count; i++)
        if (!cz__block_is(&input->blocks[e->part], number + i, to + i * (size_t)e->block,
                          (size_t)e->block))
            return changed(input, e->part);
    return CZ_OK;
}

cz_status cz__input_read_part(cz__input *input, int rank, uint64_t offset, char *to, size_t count)
{
    if (!input->blocks || !input->blocks[rank].sums)
        return read_bytes(input, rank, offset, to, count);
    const extent e = look(input, rank);
    for (size_t done = 0, part; done < count; done += part) {
        const uint64_t at = offset + done, number = at / e.block;
        const size_t within = (size_t)(at % e.block), left = count - done;
        if (within == 0 && left >= e.block) {
            const size_t blocks =
                left / (size_t)e.block < TOGETHER ? left / (size_t)e.block : TOGETHER;
            part = blocks * (size_t)e.block;
            CZ_TRY(read_blocks(input, &e, number, to + done, blocks));
            continue;
        }
        const size_t room = (size_t)e.block - within;
        part = left < room ? left : room;
        CZ_TRY(hold_block(input, &e, number));
        if (within + part > input->held_bytes)
            return changed(input, rank);
        memcpy(to + done, input->held + within, part);
    }
    return CZ_OK;
}
