/* SPDX-License-Identifier: MIT */
/* A rank leaves in the middle of a step, while another one updates: all others hear of it, and
 * nobody waits for ever. Through a window, and by messages. */
#include "group/group_test.h"

#include "group/collective.h"
#include "shard/shard.h"

enum { PARAMS = 3, COUNT = 20000 };

/* Which rank goes, and how far the ranks are. */
typedef struct plan {
    int leaver;
    atomic_int updating, gone;
} plan;

/* One rank's. */
typedef struct stepping {
    plan *plan;
    int rank, tiles;
    cz_shard_map *map;
    float grads[PARAMS][COUNT], values[PARAMS][COUNT];
    void *data[PARAMS], *to[PARAMS];
} stepping;

/* The first rank that stays holds up the step until the leaver has gone. */
static void update(void *context, int64_t param, int64_t first, int64_t count, const void *gradient)
{
    stepping *s = context;
    memcpy(s->values[param] + first, gradient, (size_t)count * sizeof(float));
    if (s->tiles++ != 0 || s->rank != (s->plan->leaver == 0))
        return;
    atomic_store(&s->plan->updating, 1);
    (void)comes(&s->plan->gone, 1);
}

static cz_status prepare(stepping *s, int size)
{
    static const int64_t counts[PARAMS] = {COUNT, COUNT, COUNT};
    for (int p = 0; p < PARAMS; p++) {
        s->data[p] = s->grads[p];
        s->to[p] = s->values[p];
    }
    return cz__shard_map_create_even(&s->map, size, PARAMS, counts, NULL, 0, NULL, sizeof(float));
}

static cz_status step(cz_group *group, stepping *s, cz_work **work)
{
    static const uint8_t include[PARAMS] = {1, 1, 1};
    const cz_operation_options options = {sizeof options, "step", work};
    const cz__tiled_step step = {
        .gradients = {.map = s->map, .data = s->data, .include = include, .dtype = CZ_F32},
        .reduces = true,
        .reduction = CZ_AVERAGE,
        .values = s->to,
        .update = update,
        .context = s};
    return cz__step_along_map(group, &step, &options);
}

static cz_status leave(cz_group **group, stepping *s)
{
    cz_work *work;
    CZ_TRY(step(*group, s, &work));
    CHECK(comes(&s->plan->updating, 1), "nobody updates");
    cz_group_destroy(group);
    atomic_store(&s->plan->gone, 1);
    const cz_status status = cz_work_wait(work);
    cz_work_destroy(&work);
    CHECK(status == CZ_ERR_STATE, "the leaver: %s", cz_status_name(status));
    return CZ_OK;
}

static cz_status stay(cz_group *group, stepping *s)
{
    const bool by_messages = window_blind == 0; /* the leaver may have sent all that others need */
    const cz_status status = step(group, s, NULL);
    CHECK((by_messages && status == CZ_OK) ||
              (status == CZ_ERR_PEER && strstr(cz_last_error(), "left")),
          "%s: %s", cz_status_name(status), cz_last_error());
    CHECK(step(group, s, NULL) == CZ_ERR_PEER, "a step on a broken group");
    return CZ_OK;
}

typedef struct seat {
    cz_group *group;
    plan *plan;
    int rank;
    outcome outcome;
    pthread_t thread;
} seat;

static void *seat_main(void *context)
{
    seat *its = context;
    stepping *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->plan = its->plan;
    s->rank = its->rank;
    cz_status status = prepare(s, cz_group_size(its->group));
    THEN(s->rank == s->plan->leaver ? leave(&its->group, s) : stay(its->group, s));
    note(&its->outcome, status);
    cz_group_destroy(&its->group);
    cz__shard_map_destroy(&s->map);
    free(s);
    return NULL;
}

static void carry_out(int world, int leaver)
{
    cz_group *groups[MANY_RANKS];
    seat seats[MANY_RANKS];
    plan p = {.leaver = leaver};
    assert_ok(window_create(groups, world, NULL));
    for (int r = 0; r < world; r++) {
        seats[r] = (seat){.group = groups[r], .plan = &p, .rank = r};
        assert_int_equal(pthread_create(&seats[r].thread, NULL, seat_main, &seats[r]), 0);
    }
    for (int r = 0; r < world; r++)
        pthread_join(seats[r].thread, NULL);
    for (int r = 0; r < world; r++)
        if (seats[r].outcome.status != CZ_OK)
            fail_msg("rank %d of %d, leaver %d: %s", r, world, leaver, seats[r].outcome.sentence);
}

static void try_all(void)
{
    static const int worlds[] = {2, 3, 5};
    const int64_t held = cz_test_allocations_held();
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int leaver = 0; leaver < worlds[i]; leaver++)
            carry_out(worlds[i], leaver);
    assert_int_equal(cz_test_allocations_held(), held);
}

TEST(through_a_window)
{
    const int before = atomic_load(&window_messages);
    window_blind = -1;
    try_all();
    assert_int_equal(atomic_load(&window_messages), before);
}

TEST(by_messages)
{
    const int before = atomic_load(&window_messages);
    window_blind = 0;
    try_all();
    assert_true(atomic_load(&window_messages) > before);
}

int main(void)
{
    setenv("CZ_TEST_RANKS", "segment", 1);
    return cz_test_run(NULL, NULL);
}
