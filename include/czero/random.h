/* SPDX-License-Identifier: MIT */
/** @file random.h  Random numbers without hidden state: each is a function of a seed, a stream and
 *  a counter, the same on every rank, thread and machine. And a sampler, which says which examples
 *  of a data set a rank takes next.
 *
 *      const float weight = 0.02f * cz_random_normal(seed, 0, i);   // number i of stream 0
 *
 *      cz_sampler_options options = CZ_SAMPLER_OPTIONS_INIT;
 *      options.sample_count = 60000; options.global_batch = 256;
 *      options.rank = cz_group_rank(group); options.world_size = cz_group_size(group);
 *      CZ_TRY(cz_sampler_create(&sampler, &options));
 *      CZ_TRY(cz_sampler_next(sampler, samples, &count));            // once per step */
#ifndef CZERO_RANDOM_H
#define CZERO_RANDOM_H

#include "czero/base.h"

CZ_BEGIN_DECLS

/** Four random words, a pure function of (seed, stream, counter): Philox 4x32 with 10 rounds, key =
 *  seed, counter block = (counter, stream), low words first. The same on every machine and thread.
 *  NULL receives nothing. Local; any thread. @see Salmon et al., "Parallel random numbers: as easy
 *  as 1, 2, 3", SC11. */
CZ_API void cz_random_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);

/** Uniform in [0, 1) with 24 bits. Pure; local; any thread. */
static inline float cz_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t words[4];
    cz_random_block(seed, stream, counter, words);
    return (float)(words[0] >> 8) / 16777216.0f; /* exact, whatever the rounding */
}

/** Standard normal (Box-Muller in double, then rounded). Pure; local; any thread. */
CZ_API float cz_random_normal(uint64_t seed, uint64_t stream, uint64_t counter);

/** Deals out the samples 0 … sample_count - 1 of a data set to ranks.
 *
 *  Every epoch is one permutation of the samples, a pure function of (seed, epoch): all ranks know
 *  it without communication and without memory for it. A *global batch* is the next
 *  `global_batch` samples of that order; a rank takes a contiguous part of it, as equal as possible
 *  (the first ranks take the remainder). So the union over ranks does not depend on the world size,
 *  and the position, counted in global samples, can be restored on any number of ranks. A global
 *  batch may span the border of two epochs: no sample is dropped or repeated within an epoch.
 *
 *  With parts (parts.h) it is the parts that take contiguous pieces of the global batch, whatever
 *  the number of ranks, and a rank gets those of its parts, in the order of cz_parts_own(), one
 *  after the other.
 */
typedef struct cz_sampler cz_sampler;

typedef struct cz_sampler_options {
    size_t size;          /**< set by CZ_SAMPLER_OPTIONS_INIT */
    int64_t sample_count; /**< samples in the data set, at least 1 */
    int64_t global_batch; /**< samples per step over all ranks, at least 1 */
    int rank;             /**< 0 … world_size - 1 */
    int world_size;       /**< 0: 1 */
    uint64_t seed;
    int32_t in_order; /**< 1: epochs run through the samples in order, without shuffling; 0: not */
    /** Of a global batch (cz_parts_options), at least world_size and at most 4096; 0: each rank has
     *  one piece. */
    int32_t part_count;
} cz_sampler_options;
#define CZ_SAMPLER_OPTIONS_INIT {sizeof(cz_sampler_options), 0, 0, 0, 0, 0, 0, 0}
CZ_INIT_FUNCTION(cz_sampler_options, CZ_SAMPLER_OPTIONS_INIT)

/** Local.
 *  @return CZ_ERR_ARGUMENT: a field is out of range; CZ_ERR_MEMORY. */
CZ_API cz_status cz_sampler_create(cz_sampler **out, const cz_sampler_options *options);
CZ_API void cz_sampler_destroy(cz_sampler **sampler); /**< local; accepts NULL and *NULL */

/** This rank's samples of the next global batch, and step on. With parts: those of its next part;
 *  after its last one comes its first one of the next global batch.
 *  Local (every rank calls it once per step, or for each of its parts, to stay together). One call
 *  at a time per handle.
 *  @param samples  receives at most local_batch indices (cz_sampler_info)
 *  @param count    receives how many; 0 when there are fewer samples than ranks, or parts
 *  @return CZ_ERR_ARGUMENT: a NULL. CZ_ERR_STATE: the position would pass INT64_MAX. */
CZ_API cz_status cz_sampler_next(cz_sampler *sampler, int64_t *samples, int64_t *count);

typedef struct cz_sampler_info {
    size_t size;         /**< set by CZ_SAMPLER_INFO_INIT */
    int64_t local_batch; /**< the most samples that this rank gets in one call */
    /** Global samples since the beginning, to be saved: those of global batches of which this rank
     *  has had all. */
    int64_t position;
} cz_sampler_info;
#define CZ_SAMPLER_INFO_INIT {sizeof(cz_sampler_info), 0, 0}
CZ_INIT_FUNCTION(cz_sampler_info, CZ_SAMPLER_INFO_INIT)

/** Local. @return CZ_ERR_ARGUMENT: a NULL, or a size that was not set. */
CZ_API cz_status cz_sampler_get_info(const cz_sampler *sampler, cz_sampler_info *info);

/** Go on from a position that was saved, with any world size; with parts the next one is this
 *  rank's first. So a global batch that was saved in the middle of its parts is dealt out once
 *  more. Local; one call at a time.
 *  @return CZ_ERR_ARGUMENT: a NULL or a negative position. */
CZ_API cz_status cz_sampler_set_position(cz_sampler *sampler, int64_t position);

CZ_END_DECLS
#endif
