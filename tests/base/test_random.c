/* SPDX-License-Identifier: MIT */
/* Random numbers: the published vectors of the generator, then bounds of six standard deviations on
 * what is drawn. Nothing here varies from run to run. */
#include "support/cz_test.h"

#include "czero/random.h"

#include <math.h>

#define DRAWS (1 << 18)

/* "Known answers" of the Random123 distribution for philox4x32 with 10 rounds. */
TEST(philox_gives_its_published_vectors)
{
    static const struct {
        uint64_t seed, stream, counter;
        uint32_t words[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {UINT64_C(0x299f31d0a4093822), /* digits of pi */
         UINT64_C(0x0370734413198a2e),
         UINT64_C(0x85a308d3243f6a88),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[4];
        cz_random_block(cases[i].seed, cases[i].stream, cases[i].counter, words);
        assert_memory_equal(words, cases[i].words, sizeof words);
    }
}

TEST(each_argument_counts)
{
    uint32_t base[4], other[4];
    cz_random_block(1, 2, 3, base);
    for (int bit = 0; bit < 64; bit++) {
        for (int which = 0; which < 3; which++) {
            const uint64_t flip = UINT64_C(1) << bit;
            cz_random_block(1 ^ (which == 0 ? flip : 0), 2 ^ (which == 1 ? flip : 0),
                            3 ^ (which == 2 ? flip : 0), other);
            int changed = 0;
            for (int w = 0; w < 4; w++)
                changed += __builtin_popcount(base[w] ^ other[w]);
            assert_in_range(changed, 64 - 34, 64 + 34); /* of 128: 6 times sqrt(32) */
        }
    }
}

TEST(uniform)
{
    double sum = 0, chi = 0;
    int bins[256] = {0};
    for (int i = 0; i < DRAWS; i++) {
        const float u = cz_random_uniform(7, 1, (uint64_t)i);
        assert_true(u >= 0 && u < 1 && u * 0x1p24f == floorf(u * 0x1p24f));
        sum += (double)u;
        bins[(int)(u * 256)]++;
    }
    for (int b = 0; b < 256; b++)
        chi += pow(bins[b] - DRAWS / 256.0, 2) / (DRAWS / 256.0);
    assert_true(fabs(sum / DRAWS - 0.5) < 6 * sqrt(1.0 / 12 / DRAWS));
    assert_true(fabs(chi - 255) < 6 * sqrt(2 * 255.0));
}

TEST(normal)
{
    double power[5] = {0}, neighbours = 0, last = 0;
    int below[3] = {0}; /* -1, 0, 2 */
    for (int i = 0; i < DRAWS; i++) {
        const double x = (double)cz_random_normal(7, 2, (uint64_t)i);
        assert_true(fabs(x) < 8.6); /* sqrt(-2 ln 2^-53) */
        for (int k = 1; k < 5; k++)
            power[k] += pow(x, k) / DRAWS;
        neighbours += x * last / DRAWS;
        last = x;
        below[0] += x < -1;
        below[1] += x < 0;
        below[2] += x < 2;
    }
    const double unit = 6 / sqrt(DRAWS); /* six standard deviations of a mean of variance 1 */
    assert_true(fabs(power[1]) < unit);
    assert_true(fabs(power[2] - 1) < unit * sqrt(2));
    assert_true(fabs(power[3]) < unit * sqrt(15));
    assert_true(fabs(power[4] - 3) < unit * sqrt(96));
    assert_true(fabs(neighbours) < unit);
    assert_true(fabs(below[0] / (double)DRAWS - 0.1586553) < unit * sqrt(0.1587 * 0.8413));
    assert_true(fabs(below[1] / (double)DRAWS - 0.5) < unit * 0.5);
    assert_true(fabs(below[2] / (double)DRAWS - 0.9772499) < unit * sqrt(0.9772 * 0.0228));
}

static double correlation(uint64_t seed, uint64_t stream, uint64_t lag)
{
    double sum = 0;
    for (int i = 0; i < DRAWS; i++)
        sum += ((double)cz_random_uniform(7, 1, (uint64_t)i) - 0.5) *
               ((double)cz_random_uniform(seed, stream, (uint64_t)i + lag) - 0.5);
    return 12 * sum / DRAWS;
}

TEST(streams_are_independent)
{
    assert_true(fabs(correlation(7, 1, 0) - 1) < 0.02); /* with itself */
    assert_true(fabs(correlation(7, 1, 1)) < 6 / sqrt(DRAWS));
    assert_true(fabs(correlation(7, 2, 0)) < 6 / sqrt(DRAWS));
    assert_true(fabs(correlation(8, 1, 0)) < 6 / sqrt(DRAWS));
}
