/* SPDX-License-Identifier: MIT */
/* An update in tiles, as they come out of a reduction: the rule's kernel on each while it is in cache. */
#include "optim/object.h"

/* Element-wise, in the host's memory, what is here of a parameter in one row, and no threads to share it with. */
bool cz__optim_takes_tiles(const cz_optim *optim)
{
    return optim->kernel && !optim->rule->update_tensor && optim->rule->sum_count == 0 &&
           optim->shard.in_parts && !cz__optim_works_in_parts(optim);
}

static void begin_param(cz__tiles *tiles, int64_t param)
{
    tiles->param = param;
    tiles->place = tiles->optim->shard.first_span[param];
    cz__optim_begin_param(tiles->optim, param, &tiles->prepared);
}

void cz__optim_update_tile(cz__tiles *tiles, int64_t param, int64_t first, int64_t count,
                           const void *gradient)
{
    cz_optim *optim = tiles->optim;
    if (param != tiles->param)
        begin_param(tiles, param);
    const cz__local_span *spans = optim->shard.spans;
    if (first < spans[tiles->place].begin || first >= spans[tiles->place].end)
        for (tiles->place = optim->shard.first_span[param];
             first < spans[tiles->place].begin || first >= spans[tiles->place].end;)
            tiles->place = spans[tiles->place].next;
    const cz__piece piece = {
        .place = tiles->place,
        .first = first - spans[tiles->place].begin,
        .count = count,
        .gradient = (const char *)((uintptr_t)gradient - (uintptr_t)first * optim->element_size),
    };
    cz__optim_update_piece(optim, &piece, &tiles->prepared);
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
        const bool head = optim->shard.first_span[span->param] == s;
        if (head && span->next < 0 && span->begin == span->end)
            begin_param(tiles, span->param);
        optim->steps[span->param] += head;
        bytes +=
            (uint64_t)(span->end - span->begin) * cz__optim_element_traffic(optim, span->group);
    }
    return bytes;
}
