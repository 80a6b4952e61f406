/* SPDX-License-Identifier: MIT */
/* The library's 64-bit tags as MPI tags, which have 15 bits at least and 28 or 31 in practice.
 *
 * A tag on the wire keeps the low bits of the sequence and of the descendant. It is unambiguous
 * while all transfers that are under way at a rank, per lane, have sequences within 2^sequence_bits
 * of each other. The window sees to that. That is enough also where the other side has sent already
 * and forgotten: operations post their transfers in order, so messages under one tag arrive in the
 * order in which they are received. Waiting cannot lock up, because no operation waits for a later
 * one. */
#include <stdlib.h>

#include "internal.h"

enum { STEP_BITS = 3, LANE_BITS = 1 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

cz__tag_layout cz__tag_layout_of(int tag_upper_bound)
{
    int bits = 0;
    while (bits < 31 && ((int64_t)1 << (bits + 1)) - 1 <= tag_upper_bound)
        bits++;
    bits -= STEP_BITS + LANE_BITS;
    const int number = least(17, bits - bits / 4);
    return (cz__tag_layout){.port_bits = least(10, bits - number),
                            .sequence_bits = {least(12, number), number - number / 2},
                            .child_bits = number / 2};
}

typedef struct place {
    int lane;
    uint64_t sequence;
    uint32_t child;
} place;

static place place_of(uint64_t core)
{
    return (place){(int)(core >> 63), core >> 24 & (((uint64_t)1 << 39) - 1),
                   (uint32_t)(core >> 8 & 0xffff)};
}

static uint64_t low_bits(uint64_t value, int bits)
{
    return value & (((uint64_t)1 << bits) - 1);
}

int cz__tag(const cz__tag_layout *layout, int port, uint64_t core)
{
    const place at = place_of(core);
    const int bits = layout->sequence_bits[at.lane];
    const int number = layout->sequence_bits[1] + layout->child_bits > layout->sequence_bits[0]
                           ? layout->sequence_bits[1] + layout->child_bits
                           : layout->sequence_bits[0];
    uint64_t tag = low_bits(at.sequence, bits);
    if (at.lane)
        tag |= low_bits(at.child, layout->child_bits) << bits;
    tag |= (uint64_t)at.lane << number | (uint64_t)port << (number + LANE_BITS);
    return (int)(tag << STEP_BITS | (core & 0xff));
}

/* ---- the window ---- */

bool cz__tag_window_open(cz__tag_window *window, const cz__tag_layout *layout)
{
    *window = (cz__tag_window){.layout = layout};
    for (int lane = 0; lane < 2; lane++)
        window->slots[lane] =
            calloc((size_t)1 << layout->sequence_bits[lane], sizeof *window->slots[lane]);
    return window->slots[0] && window->slots[1];
}

void cz__tag_window_close(cz__tag_window *window)
{
    free(window->slots[0]);
    free(window->slots[1]);
}

static cz__slot *slot_of(const cz__tag_window *window, int lane, uint64_t sequence)
{
    return &window->slots[lane][low_bits(sequence, window->layout->sequence_bits[lane])];
}

/* Do lowest … highest and `value` fit into 2^bits numbers? */
static bool within(uint64_t lowest, uint64_t highest, uint64_t value, int bits)
{
    const uint64_t first = value < lowest ? value : lowest,
                   last = value > highest ? value : highest;
    return (last - first) >> bits == 0;
}

bool cz__tag_window_admits(const cz__tag_window *window, uint64_t core)
{
    const place at = place_of(core);
    if (window->under_way[at.lane] == 0)
        return true;
    if (!within(window->oldest[at.lane], window->newest[at.lane], at.sequence,
                window->layout->sequence_bits[at.lane]))
        return false;
    const cz__slot *slot = slot_of(window, at.lane, at.sequence);
    return at.lane == 0 || slot->count == 0 ||
           within(slot->lowest, slot->highest, at.child, window->layout->child_bits);
}

void cz__tag_window_begin(cz__tag_window *window, uint64_t core)
{
    const place at = place_of(core);
    cz__slot *slot = slot_of(window, at.lane, at.sequence);
    uint64_t *oldest = &window->oldest[at.lane], *newest = &window->newest[at.lane];
    const bool first = window->under_way[at.lane]++ == 0;
    if (first || at.sequence < *oldest)
        *oldest = at.sequence;
    if (first || at.sequence > *newest)
        *newest = at.sequence;
    if (slot->count == 0 || at.child < slot->lowest)
        slot->lowest = at.child;
    if (slot->count == 0 || at.child > slot->highest)
        slot->highest = at.child;
    slot->count++;
}

bool cz__tag_window_end(cz__tag_window *window, uint64_t core)
{
    const place at = place_of(core);
    const bool last = --slot_of(window, at.lane, at.sequence)->count == 0;
    if (--window->under_way[at.lane] == 0)
        return true;
    while (slot_of(window, at.lane, window->oldest[at.lane])->count == 0)
        window->oldest[at.lane]++;
    return last;
}
