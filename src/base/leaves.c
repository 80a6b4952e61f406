/* SPDX-License-Identifier: MIT */
#include "base/leaves.h"

static int fewest(const cz__leaves *leaves)
{
    return leaves->count / leaves->world_size;
}

/* Ranks 0 to this one - 1 have one leaf more. */
static int ranks_with_more(const cz__leaves *leaves)
{
    return leaves->count % leaves->world_size;
}

int cz__leaves_digits(int number)
{
    int digits = 0;
    for (; number > 0; number &= number - 1)
        digits++;
    return digits;
}

static int highest_digit(int number)
{
    int digit = 0;
    while (number >> digit > 1)
        digit++;
    return digit;
}

/* Of the ranks before `rank`, how many have a block of 2^digit leaves. */
static int blocks_before(const cz__leaves *leaves, int rank, int digit)
{
    const int more = ranks_with_more(leaves), few = fewest(leaves);
    const int first = rank < more ? rank : more;
    return first * ((few + 1) >> digit & 1) + (rank - first) * (few >> digit & 1);
}

/* Where a rank's block of 2^digit leaves begins. */
static int block_begin(const cz__leaves *leaves, int rank, int digit)
{
    int begin = blocks_before(leaves, rank, digit) << digit;
    for (int larger = digit + 1; larger <= highest_digit(fewest(leaves) + 1); larger++)
        begin += blocks_before(leaves, leaves->world_size, larger) << larger;
    return begin;
}

int cz__leaves_of(const cz__leaves *leaves, int rank)
{
    return fewest(leaves) + (rank < ranks_with_more(leaves));
}

int cz__leaves_at(const cz__leaves *leaves, int rank, int i)
{
    const int count = cz__leaves_of(leaves, rank);
    int digit = highest_digit(count);
    while (!(count >> digit & 1) || i >= 1 << digit) {
        i -= (count >> digit & 1) << digit;
        digit--;
    }
    return block_begin(leaves, rank, digit) + i;
}

int cz__leaves_terms(const cz__leaves *leaves, int rank)
{
    return cz__leaves_digits(cz__leaves_of(leaves, rank));
}

int cz__leaves_term(const cz__leaves *leaves, int rank, int term)
{
    const int count = cz__leaves_of(leaves, rank);
    int digit = highest_digit(count);
    for (int left = term; left > 0 || !(count >> digit & 1); digit--)
        left -= count >> digit & 1;
    return block_begin(leaves, rank, digit);
}

int cz__leaves_most_terms(const cz__leaves *leaves)
{
    const int some = cz__leaves_digits(fewest(leaves));
    const int more = ranks_with_more(leaves) > 0 ? cz__leaves_digits(fewest(leaves) + 1) : 0;
    return more > some ? more : some;
}

int cz__leaves_kept(const cz__leaves *leaves, int rank)
{
    return highest_digit(cz__leaves_of(leaves, rank));
}
