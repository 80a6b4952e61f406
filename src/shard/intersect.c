/* SPDX-License-Identifier: MIT */
/* What has to move where when one shard map becomes another. */
#include <inttypes.h>

#include "base/status.h"
#include "shard/map.h"

static cz_status check(const cz_shard_map *from, int rank, const cz_shard_map *to,
                       cz_intersection_visitor visitor)
{
    if (!from || !to || !visitor)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: intersect: %s is NULL",
                        !from ? "from"
                        : !to ? "to"
                              : "visitor");
    if (rank < 0 || rank >= from->world_size)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: intersect: rank %d of %d", rank,
                        from->world_size);
    if (from->param_count != to->param_count)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "shard map: intersect: %" PRId64 " parameters against %" PRId64,
                        from->param_count, to->param_count);
    for (int64_t p = 0; p < from->param_count; p++)
        if (from->counts[p] != to->counts[p])
            return cz__fail(CZ_ERR_ARGUMENT,
                            "shard map: intersect: parameter %" PRId64 " has %" PRId64
                            " elements against %" PRId64,
                            p, from->counts[p], to->counts[p]);
    return CZ_OK;
}

static cz_status cut_span(const cz_span *span, const cz_shard_map *to,
                          cz_intersection_visitor visitor, void *context)
{
    for (cz_span piece = *span; piece.begin < span->end; piece.begin = piece.end) {
        cz_span there;
        const bool is_owned = cz_shard_map_locate(to, piece.param, piece.begin, &there);
        piece.end = is_owned && there.end < span->end ? there.end : span->end;
        CZ_TRY(visitor(&piece, is_owned ? there.rank : -1, context));
    }
    return CZ_OK;
}

cz_status cz_shard_map_intersect(const cz_shard_map *from, int rank, const cz_shard_map *to,
                                 cz_intersection_visitor visitor, void *context)
{
    cz_span_iterator iterator;
    cz_span span;
    CZ_TRY(check(from, rank, to, visitor));
    cz_span_iterate(from, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        CZ_TRY(cut_span(&span, to, visitor, context));
    return CZ_OK;
}
