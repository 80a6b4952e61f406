/* SPDX-License-Identifier: MIT */
/* The passes of a step in tiles, as they come out of a reduction or go to other ranks: kernels on each while it is in
 * cache. */
#include "optim/object.h"

/* By kernels, in the host's memory, what is here of a parameter in one row, and no threads to share it with. */
bool cz__optim_takes_tiles(const cz_optim *optim)
{
    return optim->kernel && !optim->rule->update_tensor && optim->shard.in_parts &&
           !cz__optim_works_in_parts(optim);
}

cz__tiles cz__optim_tiles(cz_optim *optim)
{
    return (cz__tiles){.optim = optim, .param = -1, .factor = 1};
}

/* The tile as a piece of its span; true: it is the first one of its parameter. */
static bool find_piece(cz__tiles *tiles, int64_t param, int64_t first, cz__piece *piece)
{
    const cz_optim *optim = tiles->optim;
    const cz__local_span *spans = optim->shard.spans;
    const bool begins = param != tiles->param;
    if (begins) {
        tiles->param = param;
        tiles->place = optim->shard.first_span[param];
    }
    if (first < spans[tiles->place].begin || first >= spans[tiles->place].end)
        for (tiles->place = optim->shard.first_span[param];
             first < spans[tiles->place].begin || first >= spans[tiles->place].end;)
            tiles->place = spans[tiles->place].next;
    piece->place = tiles->place;
    piece->first = first - spans[tiles->place].begin;
    piece->gradient =
        (const char *)((uintptr_t)piece->gradient - (uintptr_t)first * optim->element_size);
    return begins;
}

/* ---- the update ---- */

void cz__optim_update_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                           const void *gradient)
{
    cz_optim *optim = tiles->optim;
    cz__piece piece = {.count = count, .gradient = gradient};
    if (tiles->factor != 1)
        (void)optim->device->scale(NULL, optim->dtype, tiles->factor, count,
                                   (char *)tiles->gradients[param] +
                                       (size_t)first * optim->element_size);
    if (find_piece(tiles, param, first, &piece))
        cz__optim_begin_param(optim, param, &tiles->prepared);
    cz__optim_update_piece(optim, &piece, &tiles->prepared);
}

/* Does a span begin what is here of a parameter that takes part? */
static bool begins_param(const cz_optim *optim, int64_t place, const uint8_t *present)
{
    const int64_t param = optim->shard.spans[place].param;
    return optim->shard.first_span[param] == place && present[param] &&
           optim->tables.trainable[param];
}

uint64_t cz__optim_end_tiles(cz__tiles *tiles, const uint8_t *present)
{
    cz_optim *optim = tiles->optim;
    uint64_t bytes = 0;
    optim->stepped = true;
    for (int64_t s = 0; s < optim->shard.span_count; s++) {
        const cz__local_span *span = &optim->shard.spans[s];
        if (!present[span->param] || !optim->tables.trainable[span->param])
            continue;
        const bool head = begins_param(optim, s, present);
        if (head && span->next < 0 && span->begin == span->end)
            cz__optim_begin_param(optim, span->param, &tiles->prepared);
        optim->steps[span->param] += head;
        bytes +=
            (uint64_t)(span->end - span->begin) * cz__optim_element_traffic(optim, span->group);
    }
    return bytes;
}

/* ---- the sums of a rule ---- */

void cz__optim_begin_sum_tiles(cz__tiles *tiles, const uint8_t *present)
{
    cz_optim *optim = tiles->optim;
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, present))
            cz__optim_begin_sums(optim, optim->shard.spans[s].param);
}

void cz__optim_sum_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                        const void *gradient)
{
    const cz_optim *optim = tiles->optim;
    cz__piece piece = {.count = count, .gradient = gradient};
    (void)find_piece(tiles, param, first, &piece);
    cz__optim_add_sums_of_piece(optim, &piece,
                                &optim->shard.prepared[optim->shard.first_span[param]],
                                cz__optim_sums(optim, param));
}

void cz__optim_end_sum_tiles(cz__tiles *tiles, const uint8_t *present)
{
    cz_optim *optim = tiles->optim;
    for (int64_t s = 0; s < optim->shard.span_count; s++)
        if (begins_param(optim, s, present))
            cz__optim_end_sums(optim, optim->shard.spans[s].param);
}
