/* SPDX-License-Identifier: MIT */
/* Shard maps as other parts use them. */
#ifndef CZ_SHARD_SHARD_H
#define CZ_SHARD_SHARD_H

#include "czero/shard.h"

/* The span that holds element `element` of `param`. False if nobody owns it or there is no such
 * element, or for a NULL. Time logarithmic at most in the number of ranges. */
bool cz__shard_map_locate(const cz_shard_map *map, int64_t param, int64_t element, cz_span *span);

/* ---- making maps ---- */

/* Whole parameters with an owner each. `counts`: elements of each parameter. `owners`: the rank
 * that owns each; -1: nobody does, and no span has it. `order`: the parameters, each once, as a
 * rank's spans are listed; NULL: ascending. All three are copied. CZ_ERR_ARGUMENT: `out` is NULL,
 * no ranks, a NULL where there are parameters, a count below 0, an owner outside -1 … world_size -
 * 1, `order` is not a permutation; CZ_ERR_MEMORY. */
cz_status cz__shard_map_create_owners(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, const int *owners,
                                      const int64_t *order);

/* The same with this owner for all. */
cz_status cz__shard_map_create_single(cz_shard_map **out, int world_size, int64_t param_count,
                                      const int64_t *counts, int owner);

/* Even cuts. The fixed layout is the parameters one after the other in `order` (as above); each
 * range of it is cut into world_size slices, in rank order, at multiples of 64 bytes counted from
 * the range's start. Remainder blocks rotate over the ranks from range to range, so that two ranks
 * never differ by more than one block in the whole layout (a range's short last block counts as
 * one). `range_begins`: positions in `order` at which ranges begin, ascending, the first 0; range k
 * ends where k + 1 begins. 0 and NULL: one range. `element_size`: 1, 2, 4 or 8 bytes. Errors as
 * above. */
cz_status cz__shard_map_create_even(cz_shard_map **out, int world_size, int64_t param_count,
                                    const int64_t *counts, const int64_t *order,
                                    int64_t range_count, const int64_t *range_begins,
                                    size_t element_size);

/* Even cuts at granules: what no cut goes through. All borrowed. A parameter is its whole granules,
 * which are cut, and a remainder, shorter than one, which has an owner. The order, ranges and the
 * rest are as above. */
typedef struct cz__cuts {
    const int64_t *order;
    int64_t range_count;
    const int64_t *begins;
    /* Of each range: elements of a granule. 1: single elements, which are cut as above. 0: whole
     * tensors, which are all remainder. NULL: 1 for all. */
    const int64_t *units;
    size_t element_size;
    /* Of each parameter with a remainder: who has it. That is the owner of the parameter's last
     * granule, or none of the ranks from the first one's owner to it: a rank has one span of a
     * parameter at most. NULL: there are none. */
    const int *owners;
} cz__cuts;

/* In closed form as above; remainders are in a table of owners. In the order of the ranges granules
 * left over from an even share go to one rank after the other, from the first rank on; with ranges
 * in descending order of their granules, ranks differ by one granule at most. Errors as above. */
cz_status cz__shard_map_create_cuts(cz_shard_map **out, int world_size, int64_t param_count,
                                    const int64_t *counts, const cz__cuts *cuts);

/* Owners for remainders in cuts without any, in `owners` (param_count of them), so that ranks have
 * as many elements as others of the parameters with a flag (NULL: of all): to the rank that has
 * least, the largest first, as far as the rule above allows, and improved by exchange. Owners that
 * are not -1 stay and count for nothing; so do parameters without a flag. CZ_ERR_MEMORY, and as
 * above. */
cz_status cz__cuts_deal_remainders(const cz__cuts *cuts, int world_size, int64_t param_count,
                                   const int64_t *counts, const uint8_t *include, int *owners);

void cz__shard_map_destroy(cz_shard_map **map); /* accepts NULL and *NULL */

/* PyTorch's greedy partition: parameter groups in order; inside a group the largest parameter first
 * (equal sizes keep their order), each to the rank with the smallest load so far, the lowest on
 * ties; loads carry over from group to group. Group g holds the next group_sizes[g] parameters of
 * `group_params`; 0 and NULL: one group of all, ascending. `owners` receives param_count ranks, -1
 * for parameters in no group; `order`, if not NULL, the order in which parameters were dealt out (a
 * rank's storage order), those in no group last. CZ_ERR_ARGUMENT: a NULL, no ranks, an index out of
 * range or twice, a count below 0; CZ_ERR_MEMORY. */
cz_status cz__partition_greedy(int world_size, int64_t param_count, const int64_t *counts,
                               int64_t group_count, const int64_t *group_sizes,
                               const int64_t *group_params, int *owners, int64_t *order);

/* The same, beginning with `loads` (world_size element counts, brought up to date). Owners of
 * parameters in no group are left as they are; `order` gets those in groups only. */
cz_status cz__partition_greedy_onto(int world_size, int64_t *loads, int64_t param_count,
                                    const int64_t *counts, int64_t group_count,
                                    const int64_t *group_sizes, const int64_t *group_params,
                                    int *owners, int64_t *order);

/* Owners for whole things of these costs: the costliest first, each to the rank with the smallest
 * load so far; then the fullest rank gives one to another, or exchanges one with it, until it has
 * at most 1.05 times the mean, or just one thing, or nothing helps. `members`: those of
 * param_count that are dealt out. `loads` (one for each rank) is brought up to date. The same on
 * every rank: it is all made of whole numbers. CZ_ERR_MEMORY, and as above. */
cz_status cz__partition_balanced(int world_size, int64_t *loads, int64_t param_count,
                                 const int64_t *costs, int64_t member_count, const int64_t *members,
                                 int *owners);

/* The second half of that: `owners` of the members are there, and `loads` with them. */
cz_status cz__partition_improve(int world_size, int64_t *loads, const int64_t *costs,
                                int64_t member_count, const int64_t *members, int *owners);

/* What a map allocates, made or only planned. */
size_t cz__shard_map_bytes(const cz_shard_map *map);
size_t cz__even_map_bytes(int64_t param_count, int64_t range_count);
size_t cz__owner_table_bytes(int world_size, int64_t param_count);

/* ---- asking them ---- */

/* What a map was made with; 0, -1 and false for NULL. May a parameter have several owners? */
int cz__shard_map_world_size(const cz_shard_map *map);
int64_t cz__shard_map_param_count(const cz_shard_map *map);
bool cz__shard_map_cuts(const cz_shard_map *map);

/* Elements of a parameter; -1: NULL, or no such one. */
int64_t cz__shard_map_count(const cz_shard_map *map, int64_t param);

/* The rank that owns element 0 of a parameter (empty ones have a home too), -1: nobody, or no such
 * parameter. */
int cz__shard_map_home(const cz_shard_map *map, int64_t param);

/* The parameter at a place of the map's order: with even cuts, of the fixed layout; in a table of
 * owners, rank by rank, empty parameters too, those that nobody owns left out. -1 beyond the last,
 * and for NULL. */
int64_t cz__shard_map_listed(const cz_shard_map *map, int64_t place);

/* Of even cuts: how many ranges there are, the size of an element, and where the first `room` of
 * them begin, and their granules. -1: it is a table of owners (cz__shard_map_home() and
 * cz__shard_map_listed() have all of it). The order is cz__shard_map_listed() in both. */
int64_t cz__shard_map_ranges(const cz_shard_map *map, size_t *element_size, int64_t *begins,
                             int64_t *units, int64_t room);

/* The rank that has the remainder of a parameter; -1: it has none. */
int cz__shard_map_remainder_owner(const cz_shard_map *map, int64_t param);

/* Elements and spans that each rank has of the parameters with a flag (NULL: of all), in time
 * proportional to parameters and ranks, not to their product. Both have room for world_size + 1
 * numbers. */
void cz__shard_map_tally(const cz_shard_map *map, const uint8_t *include, int64_t *elements,
                         int64_t *spans);

#endif
