/* SPDX-License-Identifier: MIT */
/* Random numbers as a pure function of seed, stream and counter; and the sampler, which deals out
 * the samples of a data set by them. */
#include <inttypes.h>
#include <math.h>

#include "base/float_mode.h"
#include "base/leaves.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "czero/random.h"

/* ---- numbers ---- */
/* Random numbers as a pure function of (seed, stream, counter): Philox 4x32, 10 rounds.
 * Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11. */

#define PHILOX_ROUNDS 10

void cz_random_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4])
{
    uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32);
    uint32_t x2 = (uint32_t)stream, x3 = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    if (!out)
        return;
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t a = UINT64_C(0xd2511f53) * x0, b = UINT64_C(0xcd9e8d57) * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ key0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ key1;
        x3 = (uint32_t)a;
        key0 += 0x9e3779b9u; /* golden ratio */
        key1 += 0xbb67ae85u; /* sqrt(3) - 1 */
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* 53 bits of two words, in [0, 2^53). */
static double upper_bits(uint32_t high, uint32_t low)
{
    return (double)(((uint64_t)high << 32 | low) >> 11);
}

float cz_random_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    CZ__OWN_FLOATS;
    uint32_t words[4];
    cz_random_block(seed, stream, counter, words);
    const double u =
        (upper_bits(words[0], words[1]) + 1) * 0x1p-53; /* (0, 1]: the logarithm exists */
    const double turn = upper_bits(words[2], words[3]) * 0x1p-53;
    /* Through memory: a compiler may make what is only returned after the modes are the program's
     * again, as clang does. */
    volatile const float normal =
        (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * turn));
    return normal;
}

/* ---- samples ---- */
/* Deals out samples: every epoch is a keyed permutation, computed element by element.
 *
 * A Feistel network permutes the numbers of an even count of bits; walking its cycle until the
 * number is below sample_count restricts it to those, and is still a permutation. Luby, Rackoff,
 * SIAM J. Comput. 17 (1988); Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
 * 2002. */

#define FEISTEL_ROUNDS 8
#define MIN_HALF_BITS 3 /* with less, whatever the rounds, some orders never come (measured) */

struct cz_sampler {
    cz_sampler_options options;
    int half_bits; /* the network permutes 2^(2 half_bits) numbers: sample_count of them or more */
    cz__leaves pieces; /* of a global batch: parts, or one for each rank */
    int given;         /* of this rank's pieces of the present one */
    int64_t position;  /* where that begins */
};

const cz__option_table cz__sampler_options = CZ__OPTION_TABLE(
    cz_sampler_options, CZ__OPTION(cz_sampler_options, sample_count, CZ__LOCAL, CZ__FROM(1)),
    CZ__OPTION(cz_sampler_options, global_batch, CZ__LOCAL, CZ__FROM(1)),
    CZ__OPTION(cz_sampler_options, rank, CZ__LOCAL, CZ__FROM(0)),
    CZ__OPTION(cz_sampler_options, world_size, CZ__LOCAL, CZ__FROM(0), CZ__ZERO_IS(1)),
    CZ__OPTION(cz_sampler_options, seed, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_sampler_options, in_order, CZ__LOCAL, CZ__FLAG),
    CZ__OPTION(cz_sampler_options, part_count, CZ__LOCAL, CZ__BETWEEN(0, CZ__MOST_LEAVES)));

cz_status cz_sampler_create(cz_sampler **out, const cz_sampler_options *options)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler: out is NULL");
    *out = NULL;
    cz_sampler_options ours;
    CZ_TRY(cz__options_read(&ours, &cz__sampler_options, options, "sampler"));
    if (ours.rank >= ours.world_size)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler: rank %d of %d", ours.rank, ours.world_size);
    if (ours.part_count > 0 && ours.part_count < ours.world_size)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "sampler: option part_count is %d, wanted at least %d, one for each rank",
                        ours.part_count, ours.world_size);
    cz_sampler *sampler = cz__calloc(1, sizeof *sampler);
    if (!sampler)
        return cz__fail(CZ_ERR_MEMORY, "sampler: no memory for %zu bytes", sizeof *sampler);
    sampler->options = ours;
    sampler->pieces.count = ours.part_count > 0 ? ours.part_count : ours.world_size;
    sampler->pieces.world_size = ours.world_size;
    sampler->half_bits = MIN_HALF_BITS;
    while (sampler->half_bits < 32 && (ours.sample_count - 1) >> (2 * sampler->half_bits) > 0)
        sampler->half_bits++;
    *out = sampler;
    return CZ_OK;
}

void cz_sampler_destroy(cz_sampler **sampler)
{
    if (!sampler)
        return;
    cz__free(*sampler);
    *sampler = NULL;
}

/* One pass of the network: (left, right) becomes (right, left ^ f(round, right)), round after
 * round. */
static uint64_t permute(const cz_sampler *sampler, uint64_t epoch, uint64_t number)
{
    const int bits = sampler->half_bits;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t left = number >> bits, right = number & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t words[4];
        /* Streams from the top down: a program that draws with the same seed begins at the
         * bottom. */
        cz_random_block(sampler->options.seed, ~epoch, round << 32 | right, words);
        const uint64_t next = left ^ (words[0] & mask);
        left = right;
        right = next;
    }
    return left << bits | right;
}

static int64_t sample_at(const cz_sampler *sampler, int64_t position)
{
    const uint64_t count = (uint64_t)sampler->options.sample_count;
    const uint64_t epoch = (uint64_t)position / count;
    uint64_t number = (uint64_t)position % count;
    if (sampler->options.in_order)
        return (int64_t)number;
    do
        number = permute(sampler, epoch, number);
    while (number >= count); /* ends: the cycle leads back to where it began, which is below */
    return (int64_t)number;
}

/* The first pieces take the remainder, one sample each. */
static int64_t piece_begin(const cz_sampler *sampler, int piece)
{
    const int64_t all = sampler->options.global_batch, pieces = sampler->pieces.count;
    return all / pieces * piece + (piece < all % pieces ? piece : all % pieces);
}

static int64_t piece_size(const cz_sampler *sampler, int piece)
{
    const int64_t all = sampler->options.global_batch, pieces = sampler->pieces.count;
    return all / pieces + (piece < all % pieces);
}

static int64_t local_batch(const cz_sampler *sampler)
{
    const int rank = sampler->options.rank, own = cz__leaves_of(&sampler->pieces, rank);
    int64_t most = 0;
    for (int i = 0; i < own; i++) {
        const int64_t size = piece_size(sampler, cz__leaves_at(&sampler->pieces, rank, i));
        most = size > most ? size : most;
    }
    return most;
}

cz_status cz_sampler_next(cz_sampler *sampler, int64_t *samples, int64_t *count)
{
    if (!sampler)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler_next: sampler is NULL");
    if (!samples || !count)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler_next: %s is NULL", samples ? "count" : "samples");
    const cz_sampler_options *o = &sampler->options;
    if (sampler->position > INT64_MAX - o->global_batch)
        return cz__fail(CZ_ERR_STATE,
                        "sampler_next: no batch of %" PRId64 " after position %" PRId64,
                        o->global_batch, sampler->position);
    const int piece = cz__leaves_at(&sampler->pieces, o->rank, sampler->given);
    const int64_t begin = sampler->position + piece_begin(sampler, piece);
    *count = piece_size(sampler, piece);
    for (int64_t i = 0; i < *count; i++)
        samples[i] = sample_at(sampler, begin + i);
    sampler->given++;
    if (sampler->given == cz__leaves_of(&sampler->pieces, o->rank)) {
        sampler->given = 0;
        sampler->position += o->global_batch;
    }
    return CZ_OK;
}

cz_status cz_sampler_get_info(const cz_sampler *sampler, cz_sampler_info *info)
{
    if (!sampler || !info)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler_get_info: %s is NULL",
                        sampler ? "info" : "sampler");
    const cz_sampler_info ours = {.local_batch = local_batch(sampler),
                                  .position = sampler->position};
    return cz__options_write(info, &ours, sizeof ours, "cz_sampler_info");
}

cz_status cz_sampler_set_position(cz_sampler *sampler, int64_t position)
{
    if (!sampler)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler_set_position: sampler is NULL");
    if (position < 0)
        return cz__fail(CZ_ERR_ARGUMENT, "sampler_set_position: %" PRId64 " is below 0", position);
    sampler->position = position;
    sampler->given = 0;
    return CZ_OK;
}
