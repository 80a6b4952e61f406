/* SPDX-License-Identifier: MIT */
/* Ranks meet by messages: headers go up a binomial tree, merged at each rank, and down again as the
 * verdict. Rank r's parent is r without its lowest set bit; its children are r + 1, r + 2, r + 4
 * and so on below that bit. */
#include "base/status.h"
#include "engine/engine.h"

enum { STEP_UP = 1, STEP_DOWN = 2 };
enum { MOST_CHILDREN = 12 }; /* log2(CZ__MAX_WORLD) */

typedef enum place { AT_BEGIN, GOING_UP, AT_TOP, GOING_DOWN } place;

typedef struct tree {
    place at;
    /* With each child: first its header comes, then the verdict goes. */
    cz__request children[MOST_CHILDREN];
    cz__request up_to;     /* the merged header to the parent */
    cz__request down_from; /* the verdict from it */
    cz__header from_child[MOST_CHILDREN];
} tree;

static tree *tree_of(const cz_work *work)
{
    return work->rendezvous.state;
}

static size_t bytes(int size, bool in_process)
{
    return in_process ? 0 : sizeof(tree);
}

static bool takes(const cz_work *work)
{
    return true;
}

static void begin(cz_work *work)
{
    tree *t = tree_of(work);
    t->at = AT_BEGIN;
    t->up_to.up = t->down_from.up = false;
    for (int i = 0; i < MOST_CHILDREN; i++)
        t->children[i].up = false;
}

static cz_status open_receives(cz_work *work)
{
    tree *t = tree_of(work);
    const int rank = work->group->rank;
    for (int i = 0, child; (child = cz__header_child(work->group, i)) >= 0; i++)
        CZ_TRY(cz__request_receive(work, &t->children[i], child, STEP_UP, &t->from_child[i],
                                   sizeof(cz__header)));
    if (rank)
        CZ_TRY(cz__request_receive(work, &t->down_from, cz__header_parent(work->group), STEP_DOWN,
                                   &work->verdict, sizeof(cz__header)));
    return CZ_OK;
}

/* What the children sent, or what was sent to them, has landed. */
static cz_status settle(cz_work *work, bool *settled)
{
    tree *t = tree_of(work);
    *settled = true;
    for (int i = 0; i < MOST_CHILDREN; i++) {
        bool landed;
        CZ_TRY(cz__request_landed(work, &t->children[i], &landed));
        *settled = *settled && landed;
    }
    return CZ_OK;
}

static cz_status pass_down(cz_work *work)
{
    for (int i = 0, child; (child = cz__header_child(work->group, i)) >= 0; i++)
        CZ_TRY(cz__request_send(work, &tree_of(work)->children[i], child, STEP_DOWN, &work->verdict,
                                sizeof work->verdict));
    return CZ_OK;
}

static cz_status advance(cz_work *work, cz__engine_progress *progress)
{
    tree *t = tree_of(work);
    cz_group *group = work->group;
    cz__header *header = &work->operation.header;
    bool landed;
    switch (t->at) {
    case AT_BEGIN:
        t->at = GOING_UP;
        *progress = CZ__MOVED;
        return open_receives(work);
    case GOING_UP:
        CZ_TRY(settle(work, &landed));
        if (!landed)
            return CZ_OK;
        for (int i = 0; cz__header_child(group, i) >= 0; i++)
            cz__header_merge(header, &t->from_child[i], work->sequence);
        t->at = AT_TOP;
        *progress = CZ__TO_TELL;
        return CZ_OK;
    case AT_TOP:
        t->at = GOING_DOWN;
        *progress = group->rank ? CZ__MOVED : CZ__HEARD;
        if (group->rank)
            return cz__request_send(work, &t->up_to, cz__header_parent(group), STEP_UP, header,
                                    sizeof *header);
        work->verdict = *header;
        return CZ_OK;
    default:
        CZ_TRY(cz__request_landed(work, &t->up_to, &landed));
        if (landed)
            CZ_TRY(cz__request_landed(work, &t->down_from, &landed));
        *progress = landed ? CZ__DONE : CZ__WAITS;
        return landed ? pass_down(work) : CZ_OK;
    }
}

static void withdraw(cz_work *work)
{
    tree *t = tree_of(work);
    for (int i = 0; i < MOST_CHILDREN; i++)
        cz__request_withdraw(work, &t->children[i]);
    cz__request_withdraw(work, &t->up_to);
    cz__request_withdraw(work, &t->down_from);
}

static bool awaits(const cz_work *work, int rank)
{
    const tree *t = tree_of(work);
    bool any = cz__request_awaits(&t->up_to, rank) || cz__request_awaits(&t->down_from, rank);
    for (int i = 0; i < MOST_CHILDREN && !any; i++)
        any = cz__request_awaits(&t->children[i], rank);
    return any;
}

const cz__engine cz__engine_tree = {.meets = true,
                                    .takes = takes,
                                    .bytes = bytes,
                                    .begin = begin,
                                    .advance = advance,
                                    .settle = settle,
                                    .withdraw = withdraw,
                                    .awaits = awaits};
