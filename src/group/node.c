/* SPDX-License-Identifier: MIT */
/* Where the ranks of a group are, and who does what for whom: worked out once, alike on all
 * ranks. */
#include "group/node.h"

#include <string.h>

#include "base/memory.h"

/* ---- machines ---- */

/* Number machines in the order of their first ranks; how many there are. */
static int number_machines(const cz_group *group, int *machine_of)
{
    int count = 0;
    for (int r = 0; r < group->size; r++) {
        const int first = group->backend->machine(group->endpoint, r);
        machine_of[r] = first == r ? count++ : machine_of[first];
    }
    return count;
}

static void fill_machines(cz__node *node)
{
    int *next = node->numbers;
    for (int r = 0; r < node->size; r++)
        node->machines[node->machine_of[r]].rank_count++;
    for (int m = 0; m < node->machine_count; m++) {
        node->machines[m].ranks = next;
        next += node->machines[m].rank_count;
        node->machines[m].rank_count = 0;
    }
    for (int r = 0; r < node->size; r++) {
        cz__machine *machine = &node->machines[node->machine_of[r]];
        node->place_of[r] = machine->rank_count;
        machine->ranks[machine->rank_count++] = r;
    }
}

static int largest_power_below(int count)
{
    int power = 1;
    while (2 * power < count)
        power *= 2;
    return power;
}

static void add_subtrees(const cz__node *node, int m, int first, int count)
{
    cz__machine *machine = &node->machines[m];
    int here = 0;
    for (int r = first; r < first + count; r++)
        here += node->machine_of[r] == m;
    if (here == count) {
        machine->subtrees[machine->subtree_count++] = (cz__subtree){first, count};
        machine->slots += count > 1 ? 2 : 1;
    } else if (here > 0) {
        const int left = largest_power_below(count);
        add_subtrees(node, m, first, left);
        add_subtrees(node, m, first + left, count - left);
    }
}

static void fill_subtrees(cz__node *node)
{
    cz__subtree *next = node->all_subtrees;
    for (int m = 0; m < node->machine_count; m++) {
        node->machines[m].subtrees = next;
        add_subtrees(node, m, 0, node->size);
        next += node->machines[m].subtree_count;
    }
}

/* ---- duties: ranks of other machines take turns with those here ---- */

int cz__node_leader(const cz__node *node, int m, int rank)
{
    const cz__machine *machine = &node->machines[m];
    return machine->ranks[node->place_of[rank] % machine->rank_count];
}

static void fill_duties(cz__node *node, int me)
{
    int *of_rank = node->numbers + node->size; /* how many each rank of this machine has so far */
    for (int r = 0; r < node->size; r++) {
        node->leader[r] = node->duty[r] = -1;
        if (node->machine_of[r] == node->here)
            continue;
        node->leader[r] = cz__node_leader(node, node->here, r);
        node->duty[r] = of_rank[node->leader[r]]++;
        if (node->leader[r] == me)
            node->duties[node->duty_count++] = r;
    }
}

/* The most that one rank of a machine has. */
static int most_duties(const cz__node *node, int m)
{
    int most = 0;
    for (int other = 0; other < node->machine_count; other++) {
        const int its = node->machines[other].rank_count, here = node->machines[m].rank_count;
        most += other == m ? 0 : (its + here - 1) / here;
    }
    return most;
}

/* ---- slots and messages of a round ---- */

/* Published for each rank; a result; sums for each duty; sums from each other machine; results of
 * each duty. */
static void lay_out_slots(cz__node *node)
{
    for (int m = 0; m < node->machine_count; m++) {
        const int duties = most_duties(node, m);
        int slots = node->size + 1 + duties * (node->machines[m].slots + 1);
        if (m == node->here)
            node->duty_slots = duties;
        for (int other = 0; other < node->machine_count; other++)
            slots += other == m ? 0 : node->machines[other].slots;
        node->slots = slots > node->slots ? slots : node->slots;
    }
    int at = node->size + 1 + node->duty_slots * (node->machines[node->here].slots + 1);
    for (int m = 0; m < node->machine_count; m++) {
        node->machines[m].at = at;
        at += m == node->here ? 0 : node->machines[m].slots;
    }
}

int cz__node_slot_of_sums(const cz__node *node, int duty)
{
    return node->size + 1 + duty * node->machines[node->here].slots;
}

int cz__node_slot_of_result(const cz__node *node, int duty)
{
    return cz__node_slot_of_sums(node, node->duty_slots) + duty;
}

/* ---- made and freed ---- */

void cz__node_destroy(cz__node **node)
{
    if (!*node)
        return;
    cz__free((*node)->machines);
    cz__free((*node)->numbers);
    cz__free((*node)->all_subtrees);
    cz__free((*node)->all_leaves);
    if (!(*node)->stuck)
        cz__free((*node)->all_requests);
    cz__free((*node)->neutral);
    cz__free((*node)->tiles);
    cz__free((*node)->tile_sources);
    cz__free((*node)->wide);
    cz__free(*node);
    *node = NULL;
}

static bool allocate_places(cz__node *node)
{
    const size_t size = (size_t)node->size;
    node->machines = cz__calloc(size, sizeof *node->machines);
    node->numbers = cz__calloc(7 * size, sizeof *node->numbers);
    node->all_subtrees = cz__calloc(size, sizeof *node->all_subtrees);
    if (!node->machines || !node->numbers || !node->all_subtrees)
        return false;
    node->machine_of = node->numbers + 2 * size;
    node->place_of = node->numbers + 3 * size;
    node->leader = node->numbers + 4 * size;
    node->duty = node->numbers + 5 * size;
    node->duties = node->numbers + 6 * size;
    return true;
}

static bool is_of_use(const cz__node *node)
{
    bool shared = false;
    for (int m = 0; m < node->machine_count; m++)
        shared |= node->machines[m].rank_count > 1;
    return shared && node->machine_count > 1;
}

cz__node *cz__node_create(const cz_group *group, bool *none)
{
    cz__node *node = cz__calloc(1, sizeof *node);
    *none = false;
    if (!node)
        return NULL;
    node->size = group->size;
    if (!allocate_places(node)) {
        cz__node_destroy(&node);
        return NULL;
    }
    node->machine_count = number_machines(group, node->machine_of);
    fill_machines(node);
    *none = !is_of_use(node);
    if (*none) {
        cz__node_destroy(&node);
        return NULL;
    }
    node->here = node->machine_of[group->rank];
    fill_subtrees(node);
    fill_duties(node, group->rank);
    lay_out_slots(node);
    node->request_count = 2 * (node->duty_count + node->machine_count);
    return node;
}

bool cz__node_equip(cz__node *node, int lanes, size_t slot_bytes)
{
    const size_t rounds = (size_t)lanes * CZ__LANE_ROUNDS, size = (size_t)node->size;
    node->all_leaves = cz__calloc(rounds * size, sizeof *node->all_leaves);
    node->all_requests =
        cz__calloc(rounds * (size_t)node->request_count, sizeof *node->all_requests);
    node->neutral = cz__allocate(CZ_MEMORY_STAGING, slot_bytes);
    node->tiles = cz__allocate(CZ_MEMORY_STAGING, (size + 2) * CZ__NODE_TILE * sizeof(float));
    node->tile_sources = cz__calloc(size, sizeof *node->tile_sources);
    node->wide = cz__calloc(size, sizeof *node->wide);
    for (int lane = 0; lane < lanes && node->all_leaves && node->all_requests; lane++) {
        const size_t before = (size_t)lane * CZ__LANE_ROUNDS;
        node->lanes[lane].leaves = node->all_leaves + before * size;
        node->lanes[lane].requests = node->all_requests + before * (size_t)node->request_count;
    }
    return node->all_leaves && node->all_requests && node->neutral && node->tiles &&
           node->tile_sources && node->wide;
}

/* ---- of an operation ---- */

cz__node_lane *cz__node_lane_of(const cz_work *work)
{
    return &work->group->window->node->lanes[cz__run_of(work)->lane];
}

cz__leaf *cz__node_leaf(const cz_work *work, uint32_t round, int rank)
{
    const int size = work->group->size;
    return &cz__node_lane_of(work)->leaves[(int)(round % CZ__LANE_ROUNDS) * size + rank];
}

cz__request *cz__node_request(const cz_work *work, uint32_t round, cz__node_message message,
                              int number)
{
    const cz__node *node = work->group->window->node;
    const int begin[] = {0, node->duty_count, 2 * node->duty_count,
                         2 * node->duty_count + node->machine_count};
    return &cz__node_lane_of(work)->requests[(int)(round % CZ__LANE_ROUNDS) * node->request_count +
                                             begin[message] + number];
}
