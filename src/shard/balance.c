/* SPDX-License-Identifier: MIT */
/* Whole things dealt out by cost. The largest first is at most a third beyond the best there is
 * (Graham, SIAM J. Appl. Math. 17 (1969)); exchanges take most of that away. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "shard/map.h"
#include "shard/shard.h"

/* Of rank, in descending order of cost; -1: the end. Members are numbers in the list given. */
typedef struct exchange_state {
    int world_size;
    int64_t *loads;         /* borrowed, as the next three */
    const int64_t *costs;   /* by parameter */
    const int64_t *members; /* parameters */
    int *owners;
    int64_t *head;  /* owned, as the next two: the first member of each rank */
    int64_t *after; /* of each member */
    int *by_load;   /* ranks, the one with the smallest load first, the lowest of equals */
    int64_t steps;  /* that are left */
} exchange_state;

/* A bound for lists on which exchanges would go on for ever a little: it is in work, not in time,
 * so that all ranks end at the same point. */
enum { MOST_STEPS = 1 << 26 };

/* What the fullest rank gives, and what it gets for it; -1: nothing. */
typedef struct trade {
    int64_t given, taken;
    int64_t moved; /* the difference; 0: there is no trade that helps */
} trade;

static int64_t cost_of(const exchange_state *e, int64_t member)
{
    return member < 0 ? 0 : e->costs[e->members[member]];
}

static bool before(const exchange_state *e, int a, int b)
{
    return e->loads[a] < e->loads[b] || (e->loads[a] == e->loads[b] && a < b);
}

/* Is this nearer to half the gap, with which both would have the same? */
static bool better(int64_t moved, int64_t than, int64_t gap)
{
    const int64_t here = 2 * moved > gap ? gap - moved : moved;
    const int64_t there = 2 * than > gap ? gap - than : than;
    return here > there;
}

static void consider(const exchange_state *e, int64_t given, int64_t taken, int64_t gap,
                     trade *best)
{
    const int64_t moved = cost_of(e, given) - cost_of(e, taken);
    if (moved > 0 && moved < gap && better(moved, best->moved, gap))
        *best = (trade){given, taken, moved};
}

/* Both lists descend, so that what goes best with the next thing given is not before what went best
 * with the last. */
static trade find_trade(exchange_state *e, int from, int to)
{
    trade best = {-1, -1, 0};
    const int64_t gap = e->loads[from] - e->loads[to];
    int64_t taken = e->head[to], last = -1;
    for (int64_t given = e->head[from]; given >= 0; given = e->after[given]) {
        for (; taken >= 0 && 2 * (cost_of(e, given) - cost_of(e, taken)) < gap;
             taken = e->after[taken], e->steps--)
            last = taken;
        if (last >= 0)
            consider(e, given, last, gap, &best);
        consider(e, given, taken, gap, &best);
        e->steps--;
    }
    return best;
}

static void remove_member(exchange_state *e, int rank, int64_t member)
{
    int64_t *link = &e->head[rank];
    while (*link != member)
        link = &e->after[*link];
    *link = e->after[member];
}

static void insert_member(exchange_state *e, int rank, int64_t member)
{
    int64_t *link = &e->head[rank];
    while (*link >= 0 && cost_of(e, *link) > cost_of(e, member))
        link = &e->after[*link];
    e->after[member] = *link;
    *link = member;
    e->owners[e->members[member]] = rank;
}

/* The place of a rank whose load has changed. */
static void replace(exchange_state *e, int rank)
{
    int *list = e->by_load, place = 0;
    while (list[place] != rank)
        place++;
    for (; place > 0 && before(e, rank, list[place - 1]); place--)
        list[place] = list[place - 1];
    for (; place + 1 < e->world_size && before(e, list[place + 1], rank); place++)
        list[place] = list[place + 1];
    list[place] = rank;
}

static void make_trade(exchange_state *e, int from, int to, const trade *t)
{
    remove_member(e, from, t->given);
    if (t->taken >= 0) {
        remove_member(e, to, t->taken);
        insert_member(e, from, t->taken);
    }
    insert_member(e, to, t->given);
    e->loads[from] -= t->moved;
    e->loads[to] += t->moved;
    replace(e, from);
    replace(e, to);
}

/* The fullest rank with the emptiest that it helps. False: with none. */
static bool relieve(exchange_state *e)
{
    const int from = e->by_load[e->world_size - 1];
    for (int k = 0; k + 1 < e->world_size && e->steps > 0; k++) {
        const int to = e->by_load[k];
        const trade t = find_trade(e, from, to);
        e->steps--;
        if (t.moved == 0)
            continue;
        make_trade(e, from, to, &t);
        return true;
    }
    return false;
}

typedef struct sorted_member {
    int64_t cost, member;
} sorted_member;

static int smaller_first(const void *left, const void *right)
{
    const sorted_member *a = left, *b = right;
    if (a->cost != b->cost)
        return a->cost < b->cost ? -1 : 1;
    return a->member > b->member ? -1 : 1;
}

typedef struct sorted_rank {
    int64_t load;
    int rank;
} sorted_rank;

static int lighter_first(const void *left, const void *right)
{
    const sorted_rank *a = left, *b = right;
    if (a->load != b->load)
        return a->load < b->load ? -1 : 1;
    return a->rank < b->rank ? -1 : 1;
}

static cz_status list_all(exchange_state *e, int64_t member_count)
{
    sorted_member *sorted = cz__calloc((size_t)member_count, sizeof *sorted);
    sorted_rank *ranks = cz__calloc((size_t)e->world_size, sizeof *ranks);
    e->head = cz__calloc((size_t)e->world_size, sizeof *e->head);
    e->after = cz__calloc((size_t)member_count, sizeof *e->after);
    e->by_load = cz__calloc((size_t)e->world_size, sizeof *e->by_load);
    cz_status status = CZ_OK;
    if (!sorted || !ranks || !e->head || !e->after || !e->by_load) {
        status =
            cz__fail(CZ_ERR_MEMORY, "partition: no memory for %" PRId64 " parameters on %d ranks",
                     member_count, e->world_size);
        goto done;
    }
    for (int64_t m = 0; m < member_count; m++)
        sorted[m] = (sorted_member){cost_of(e, m), m};
    qsort(sorted, (size_t)member_count, sizeof *sorted, smaller_first);
    for (int r = 0; r < e->world_size; r++) {
        e->head[r] = -1;
        ranks[r] = (sorted_rank){e->loads[r], r};
    }
    qsort(ranks, (size_t)e->world_size, sizeof *ranks, lighter_first);
    for (int k = 0; k < e->world_size; k++)
        e->by_load[k] = ranks[k].rank;
    for (int64_t k = 0; k < member_count; k++) {
        const int owner = e->owners[e->members[sorted[k].member]];
        e->after[sorted[k].member] = e->head[owner];
        e->head[owner] = sorted[k].member;
    }
done:
    cz__free(sorted);
    cz__free(ranks);
    return status;
}

/* What no rank needs to be relieved of. */
static double enough(int world_size, const int64_t *loads, const int64_t *costs,
                     int64_t member_count, const int64_t *members)
{
    double sum = 0, largest = 0;
    for (int r = 0; r < world_size; r++)
        sum += (double)loads[r];
    for (int64_t m = 0; m < member_count; m++)
        if ((double)costs[members[m]] > largest)
            largest = (double)costs[members[m]];
    const double mean = 1.05 * sum / world_size;
    return mean > largest ? mean : largest;
}

static bool is_enough(int world_size, const int64_t *loads, double most)
{
    for (int r = 0; r < world_size; r++)
        if ((double)loads[r] > most)
            return false;
    return true;
}

cz_status cz__partition_improve(int world_size, int64_t *loads, const int64_t *costs,
                                int64_t member_count, const int64_t *members, int *owners)
{
    exchange_state e = {.world_size = world_size,
                        .loads = loads,
                        .costs = costs,
                        .members = members,
                        .owners = owners,
                        .steps = MOST_STEPS};
    const double most = enough(world_size, loads, costs, member_count, members);
    if (member_count == 0 || is_enough(world_size, loads, most))
        return CZ_OK;
    const cz_status status = list_all(&e, member_count);
    while (!status && (double)loads[e.by_load[world_size - 1]] > most && relieve(&e))
        ;
    cz__free(e.head);
    cz__free(e.after);
    cz__free(e.by_load);
    return status;
}

cz_status cz__partition_balanced(int world_size, int64_t *loads, int64_t param_count,
                                 const int64_t *costs, int64_t member_count, const int64_t *members,
                                 int *owners)
{
    CZ_TRY(cz__partition_greedy_onto(world_size, loads, param_count, costs, 1, &member_count,
                                     members, owners, NULL));
    return cz__partition_improve(world_size, loads, costs, member_count, members, owners);
}
