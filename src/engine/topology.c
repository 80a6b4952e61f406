/* SPDX-License-Identifier: MIT */
/* Where the ranks of a group are, and who does what for whom: worked out once, alike on all
 * ranks. */
#include "engine/topology.h"

#include "base/memory.h"

/* ---- machines ---- */

/* Number machines in the order of their first ranks; how many there are. */
static int number_machines(const cz_group *group, int *machine_of)
{
    int count = 0;
    for (int r = 0; r < group->size; r++) {
        const int first = group->backend->machine ? group->backend->machine(group->endpoint, r) : 0;
        machine_of[r] = first == r ? count++ : machine_of[first];
    }
    return count;
}

static void fill_machines(cz__topology *topology)
{
    int *next = topology->numbers;
    for (int r = 0; r < topology->size; r++)
        topology->machines[topology->machine_of[r]].rank_count++;
    for (int m = 0; m < topology->machine_count; m++) {
        topology->machines[m].ranks = next;
        next += topology->machines[m].rank_count;
        topology->machines[m].rank_count = 0;
    }
    for (int r = 0; r < topology->size; r++) {
        cz__machine *machine = &topology->machines[topology->machine_of[r]];
        topology->place_of[r] = machine->rank_count;
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

static void add_subtrees(const cz__topology *topology, int m, int first, int count)
{
    cz__machine *machine = &topology->machines[m];
    int here = 0;
    for (int r = first; r < first + count; r++)
        here += topology->machine_of[r] == m;
    if (here == count) {
        machine->subtrees[machine->subtree_count++] = (cz__subtree){first, count};
        machine->slots += count > 1 ? 2 : 1;
    } else if (here > 0) {
        const int left = largest_power_below(count);
        add_subtrees(topology, m, first, left);
        add_subtrees(topology, m, first + left, count - left);
    }
}

static void fill_subtrees(cz__topology *topology)
{
    cz__subtree *next = topology->all_subtrees;
    for (int m = 0; m < topology->machine_count; m++) {
        topology->machines[m].subtrees = next;
        add_subtrees(topology, m, 0, topology->size);
        next += topology->machines[m].subtree_count;
    }
}

/* ---- duties: ranks of other machines take turns with those here ---- */

int cz__topology_leader(const cz__topology *topology, int m, int rank)
{
    const cz__machine *machine = &topology->machines[m];
    return machine->ranks[topology->place_of[rank] % machine->rank_count];
}

static void fill_duties(cz__topology *topology, int me)
{
    int *of_rank =
        topology->numbers + topology->size; /* how many each rank of this machine has so far */
    for (int r = 0; r < topology->size; r++) {
        topology->leader[r] = topology->duty[r] = -1;
        if (topology->machine_of[r] == topology->here)
            continue;
        topology->leader[r] = cz__topology_leader(topology, topology->here, r);
        topology->duty[r] = of_rank[topology->leader[r]]++;
        if (topology->leader[r] == me)
            topology->duties[topology->duty_count++] = r;
    }
}

/* The most that one rank of a machine has. */
static int most_duties(const cz__topology *topology, int m)
{
    int most = 0;
    for (int other = 0; other < topology->machine_count; other++) {
        const int its = topology->machines[other].rank_count,
                  here = topology->machines[m].rank_count;
        most += other == m ? 0 : (its + here - 1) / here;
    }
    return most;
}

/* ---- slots and messages of a round ---- */

static void lay_out_slots(cz__topology *topology)
{
    for (int m = 0; m < topology->machine_count; m++) {
        const int duties = most_duties(topology, m);
        int slots = topology->size + 1 + duties * (topology->machines[m].slots + 1);
        if (m == topology->here)
            topology->duty_slots = duties;
        for (int other = 0; other < topology->machine_count; other++)
            slots += other == m ? 0 : topology->machines[other].slots;
        topology->slots = slots > topology->slots ? slots : topology->slots;
    }
    int at =
        topology->size + 1 + topology->duty_slots * (topology->machines[topology->here].slots + 1);
    for (int m = 0; m < topology->machine_count; m++) {
        topology->machines[m].at = at;
        at += m == topology->here ? 0 : topology->machines[m].slots;
    }
}

int cz__topology_slot_of_sums(const cz__topology *topology, int duty)
{
    return topology->size + 1 + duty * topology->machines[topology->here].slots;
}

int cz__topology_slot_of_result(const cz__topology *topology, int duty)
{
    return cz__topology_slot_of_sums(topology, topology->duty_slots) + duty;
}

/* ---- made and freed ---- */

void cz__topology_destroy(cz__topology **topology)
{
    if (!*topology)
        return;
    cz__free((*topology)->machines);
    cz__free((*topology)->numbers);
    cz__free((*topology)->all_subtrees);
    cz__free(*topology);
    *topology = NULL;
}

static bool allocate(cz__topology *topology)
{
    const size_t size = (size_t)topology->size;
    topology->machines = cz__calloc(size, sizeof *topology->machines);
    topology->numbers = cz__calloc(7 * size, sizeof *topology->numbers);
    topology->all_subtrees = cz__calloc(size, sizeof *topology->all_subtrees);
    if (!topology->machines || !topology->numbers || !topology->all_subtrees)
        return false;
    topology->machine_of = topology->numbers + 2 * size;
    topology->place_of = topology->numbers + 3 * size;
    topology->leader = topology->numbers + 4 * size;
    topology->duty = topology->numbers + 5 * size;
    topology->duties = topology->numbers + 6 * size;
    return true;
}

cz__topology *cz__topology_create(const cz_group *group, bool *useless)
{
    cz__topology *topology = cz__calloc(1, sizeof *topology);
    *useless = false;
    if (!topology)
        return NULL;
    topology->size = group->size;
    if (!allocate(topology))
        goto fail;
    topology->machine_count = number_machines(group, topology->machine_of);
    *useless = topology->machine_count == group->size;
    if (*useless)
        goto fail;
    topology->here = topology->machine_of[group->rank];
    fill_machines(topology);
    fill_subtrees(topology);
    fill_duties(topology, group->rank);
    lay_out_slots(topology);
    return topology;
fail:
    cz__topology_destroy(&topology);
    return NULL;
}
