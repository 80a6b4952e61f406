/* SPDX-License-Identifier: MIT */
/* Shard maps that cut ranges of the fixed layout into one slice per rank, in closed form: a range
 * knows how many blocks each rank gets from a few numbers, whatever the number of ranks. */
#include <inttypes.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/map.h"
#include "shard/shard.h"

/* Ranks inner_begin … inner_end - 1 get `inner` blocks each, all others `outer`; one of the two is
 * floor(blocks / ranks), the other one more, so that it can be the extra ranks or the rest that
 * lies between the ends. Slices follow each other in rank order. */
typedef struct even_range {
    int64_t first;  /* position of its first parameter in the layout */
    int64_t unit;   /* as in cz__cuts */
    int64_t block;  /* elements of a granule; of single elements those in 64 bytes */
    int64_t begin;  /* element of the layout at which it begins */
    int64_t length; /* elements; the last block may be short */
    int64_t outer;
    int64_t inner;
    int inner_begin;
    int inner_end;
} even_range;

typedef struct even_map {
    cz_shard_map head;
    size_t element_size;
    int64_t *order;    /* owned: the parameter at each position */
    int64_t *position; /* owned: the inverse */
    int64_t *offset; /* owned, param_count + 1: element of the layout at which a position begins */
    int64_t range_count;
    even_range *ranges; /* owned */
} even_map;

static const even_map *even_of(const cz_shard_map *map)
{
    return (const even_map *)map;
}

/* Where the slice of `rank` begins, counted from the range's start; rank world_size: the end. */
static int64_t slice_begin(const even_range *range, int rank)
{
    int64_t inner = rank - range->inner_begin;
    if (inner < 0)
        inner = 0;
    if (inner > range->inner_end - range->inner_begin)
        inner = range->inner_end - range->inner_begin;
    const int64_t begin =
        range->block * (rank * range->outer + inner * (range->inner - range->outer));
    return begin < range->length ? begin : range->length;
}

static int rank_of_block(const even_range *range, int64_t block)
{
    const int64_t before = range->inner_begin * range->outer;
    const int64_t within = (range->inner_end - range->inner_begin) * range->inner;
    if (block < before)
        return (int)(block / range->outer);
    if (block < before + within)
        return range->inner_begin + (int)((block - before) / range->inner);
    return range->inner_end + (int)((block - before - within) / range->outer);
}

/* The last range that begins at or before a position: of those that begin there, only the last one
 * is not empty. */
static const even_range *range_of(const even_map *even, int64_t position)
{
    int64_t low = 0, high = even->range_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (even->ranges[middle].first <= position)
            low = middle;
        else
            high = middle;
    }
    return &even->ranges[low];
}

/* The position whose parameter holds an element of the layout. */
static int64_t position_of(const even_map *even, int64_t element)
{
    int64_t low = 0, high = even->head.param_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (even->offset[middle] <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* An empty parameter lives with the element that follows it, at the end of a range with the last
 * one; in a range without elements with rank 0. */
static int home(const cz_shard_map *map, int64_t param)
{
    const even_map *even = even_of(map);
    const int64_t position = even->position[param];
    const even_range *range = range_of(even, position);
    int64_t element = even->offset[position] - range->begin;
    if (range->length == 0)
        return 0;
    if (element == range->length)
        element--;
    return rank_of_block(range, element / range->block);
}

static bool locate(const cz_shard_map *map, int64_t param, int64_t element, cz_span *span)
{
    const even_map *even = even_of(map);
    const int64_t position = even->position[param];
    const even_range *range = range_of(even, position);
    const int64_t start = even->offset[position] - range->begin; /* of the parameter in the range */
    const int rank = rank_of_block(range, (start + element) / range->block);
    const int64_t begin = slice_begin(range, rank) - start;
    const int64_t end = slice_begin(range, rank + 1) - start;
    *span = (cz_span){param, begin > 0 ? begin : 0, map->counts[param], rank};
    if (end < span->end)
        span->end = end;
    return true;
}

/* begin … end: what is left of the slice of the present range, in elements of the layout. */
static void enter_range(cz_span_iterator *iterator)
{
    const even_map *even = even_of(iterator->map);
    const even_range *range = &even->ranges[iterator->range];
    if (range->length == 0) {
        iterator->begin = iterator->end = range->begin;
        return;
    }
    iterator->begin = range->begin + slice_begin(range, iterator->rank);
    iterator->end = range->begin + slice_begin(range, iterator->rank + 1);
    if (iterator->begin < iterator->end)
        iterator->position = position_of(even, iterator->begin);
}

static void iterate(cz_span_iterator *iterator)
{
    enter_range(iterator);
}

static bool next(cz_span_iterator *iterator, cz_span *span)
{
    const even_map *even = even_of(iterator->map);
    while (iterator->begin == iterator->end) {
        if (iterator->range + 1 >= even->range_count)
            return false;
        iterator->range++;
        enter_range(iterator);
    }
    while (even->offset[iterator->position + 1] <= iterator->begin) /* past empty parameters */
        iterator->position++;
    const int64_t start = even->offset[iterator->position];
    const int64_t stop = even->offset[iterator->position + 1];
    const int64_t end = stop < iterator->end ? stop : iterator->end;
    *span = (cz_span){even->order[iterator->position], iterator->begin - start, end - start,
                      iterator->rank};
    iterator->begin = end;
    return true;
}

static void release(cz_shard_map *map)
{
    even_map *even = (even_map *)map;
    cz__free(even->order);
    cz__free(even->position);
    cz__free(even->offset);
    cz__free(even->ranges);
}

static int64_t listed(const cz_shard_map *map, int64_t place)
{
    return place < map->param_count ? even_of(map)->order[place] : -1;
}

/* Ranks first … last each have the same more. */
static void add(int64_t *differences, int first, int last, int64_t more)
{
    differences[first] += more;
    differences[last + 1] -= more;
}

/* The elements of one parameter, rank by rank: all of a slice but for the first and the last. */
static void tally_param(const even_map *even, const even_range *range, int64_t position,
                        int64_t *elements, int64_t *spans)
{
    const int64_t begin = even->offset[position] - range->begin;
    const int64_t end = even->offset[position + 1] - range->begin;
    const int first = rank_of_block(range, begin / range->block);
    const int last = rank_of_block(range, (end - 1) / range->block);
    add(spans, first, last, 1);
    if (first == last) {
        add(elements, first, first, end - begin);
        return;
    }
    add(elements, first, first, slice_begin(range, first + 1) - begin);
    add(elements, last, last, end - slice_begin(range, last));
    if (first + 1 == last)
        return;
    add(elements, first + 1, last - 1, range->block * range->outer);
    const int from = range->inner_begin > first ? range->inner_begin : first + 1;
    const int to = range->inner_end < last ? range->inner_end - 1 : last - 1;
    if (from > to)
        return;
    add(elements, from, to, range->block * (range->inner - range->outer));
    if (range->inner == 0) /* fewer blocks than ranks */
        add(spans, from, to, -1);
}

static void tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                  int64_t *spans)
{
    const even_map *even = even_of(map);
    const even_range *range = even->ranges;
    for (int64_t k = 0; k < map->param_count; k++) {
        while (range + 1 < even->ranges + even->range_count && range[1].first <= k)
            range++;
        if (map->counts[even->order[k]] > 0 && (!include || include[even->order[k]]))
            tally_param(even, range, k, elements, spans);
    }
}

static int64_t ranges(const cz_shard_map *map, size_t *element_size, int64_t *begins,
                      int64_t *units, int64_t room)
{
    const even_map *even = even_of(map);
    *element_size = even->element_size;
    for (int64_t k = 0; k < even->range_count && k < room; k++) {
        begins[k] = even->ranges[k].first;
        units[k] = even->ranges[k].unit;
    }
    return even->range_count;
}

static size_t bytes(const cz_shard_map *map)
{
    return cz__even_map_bytes(map->param_count, even_of(map)->range_count);
}

size_t cz__even_map_bytes(int64_t param_count, int64_t range_count)
{
    const even_map *even = NULL;
    const size_t per_param =
        sizeof *even->head.counts + sizeof *even->order + sizeof *even->position;
    return sizeof *even + (size_t)param_count * per_param +
           ((size_t)param_count + 1) * sizeof *even->offset +
           (size_t)range_count * sizeof *even->ranges;
}

static const cz__map_kind even_kind = {
    .cuts = true,
    .home = home,
    .locate = locate,
    .iterate = iterate,
    .next = next,
    .listed = listed,
    .tally = tally,
    .ranges = ranges,
    .bytes = bytes,
    .release = release,
};

/* Deal out the extra blocks, which are fewer than ranks, cyclically. Single elements: to the ranks
 * just before *extra, which moves there. The first range's extra ranks end at the last rank, since
 * that one also holds the short last block: were its slice a block smaller than others as well,
 * ranks would differ by nearly two blocks. Granules, all of them full, go to the ranks from *extra
 * on, from the first rank: so who has more of one kind has less of the other, and a parameter's
 * remainder can stay with its last granule. */
static void cut(even_range *range, int world_size, int *extra)
{
    const int64_t blocks = range->length / range->block + (range->length % range->block != 0);
    const int64_t base = blocks / world_size;
    const int extras = (int)(blocks % world_size);
    const int back = (*extra + world_size - extras) % world_size;
    const int begin = range->unit == 1 ? back : *extra;
    const bool wraps = extras > world_size - begin;
    range->outer = wraps ? base + 1 : base;
    range->inner = wraps ? base : base + 1;
    range->inner_begin = wraps ? extras - (world_size - begin) : begin;
    range->inner_end = wraps ? begin : begin + extras;
    *extra = range->unit == 1 ? back : (int)(((int64_t)*extra + extras) % world_size);
}

static cz_status check_ranges(int64_t param_count, const cz__cuts *cuts)
{
    const int64_t *begins = cuts->begins;
    if (cuts->range_count < 0 || cuts->range_count > CZ__LONGEST_LIST ||
        (cuts->range_count > 0 && !begins))
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: %" PRId64 " ranges, range_begins %s",
                        cuts->range_count, begins ? "given" : "NULL");
    for (int64_t k = 0; k < cuts->range_count; k++) {
        if (begins[k] < (k ? begins[k - 1] : 0) || begins[k] > param_count ||
            (k == 0 && begins[k] != 0))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "shard map: range %" PRId64 " begins at %" PRId64
                            ", wanted: ascending from 0 to %" PRId64,
                            k, begins[k], param_count);
        if (cuts->units && cuts->units[k] < 0)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "shard map: range %" PRId64 " has granules of %" PRId64
                            " elements, wanted at least 0",
                            k, cuts->units[k]);
    }
    return CZ_OK;
}

static cz_status allocate(even_map *even, const int64_t *order)
{
    const size_t count = (size_t)even->head.param_count;
    CZ_TRY(cz__permutation_copy(&even->order, even->head.param_count, order));
    even->position = cz__calloc(count, sizeof *even->position);
    even->offset = cz__calloc(count + 1, sizeof *even->offset);
    even->ranges = cz__calloc((size_t)even->range_count, sizeof *even->ranges);
    if (!even->position || !even->offset || !even->ranges)
        return cz__fail(CZ_ERR_MEMORY,
                        "shard map: no memory for %" PRId64 " parameters in %" PRId64 " ranges",
                        even->head.param_count, even->range_count);
    return CZ_OK;
}

/* A rank's extra blocks of single elements and of granules are dealt apart. */
static void build_map(even_map *even, const cz__cuts *cuts)
{
    const int64_t param_count = even->head.param_count;
    for (int64_t k = 0; k < param_count; k++) {
        even->position[even->order[k]] = k;
        even->offset[k + 1] = even->offset[k] + even->head.counts[even->order[k]];
    }
    int extra = 0, extra_granule = 0;
    for (int64_t k = 0; k < even->range_count; k++) {
        even_range *range = &even->ranges[k];
        const int64_t end = k + 1 < even->range_count ? cuts->begins[k + 1] : param_count;
        range->first = cuts->range_count > 0 ? cuts->begins[k] : 0;
        range->begin = even->offset[range->first];
        range->length = even->offset[end] - range->begin;
        range->unit = cuts->units && cuts->range_count > 0 ? cuts->units[k] : 1;
        range->block = range->unit > 1 ? range->unit : 64 / (int64_t)even->element_size;
        cut(range, even->head.world_size, range->unit == 1 ? &extra : &extra_granule);
    }
}

static cz_status fill(even_map *even, const cz__cuts *cuts)
{
    const size_t size = cuts->element_size;
    if (size != 1 && size != 2 && size != 4 && size != 8)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: elements of %zu bytes, wanted 1, 2, 4 or 8",
                        size);
    CZ_TRY(check_ranges(even->head.param_count, cuts));
    even->element_size = size;
    even->range_count = cuts->range_count > 0 ? cuts->range_count : 1;
    CZ_TRY(allocate(even, cuts->order));
    build_map(even, cuts);
    return CZ_OK;
}

cz_status cz__even_map_create(cz_shard_map **out, int world_size, int64_t param_count,
                              const int64_t *counts, const cz__cuts *cuts)
{
    cz_shard_map *map = NULL;
    *out = NULL;
    CZ_TRY(cz__map_create(&map, sizeof(even_map), &even_kind, world_size, param_count, counts));
    const cz_status status = fill((even_map *)map, cuts);
    if (status != CZ_OK)
        cz__shard_map_destroy(&map);
    *out = map;
    return status;
}

cz_status cz__shard_map_create_even(cz_shard_map **out, int world_size, int64_t param_count,
                                    const int64_t *counts, const int64_t *order,
                                    int64_t range_count, const int64_t *range_begins,
                                    size_t element_size)
{
    const cz__cuts cuts = {.order = order,
                           .range_count = range_count,
                           .begins = range_begins,
                           .element_size = element_size};
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "shard map: out is NULL");
    return cz__even_map_create(out, world_size, param_count, counts, &cuts);
}
