/* SPDX-License-Identifier: MIT */
/* Reductions and gathers along shard maps: owner tables and even cuts over tiny, empty and large
 * parameters, some left out, some without memory on ranks that do not own them. */
#include "group/collective.h"
#include "group/group_test.h"
#include "shard/shard.h"

enum { PARAMS = 120 };

typedef enum flavour { OWNERS, EVEN_ONE_RANGE, EVEN_RANGES } flavour;

/* Equal on all ranks. */
typedef struct layout {
    uint64_t seed;
    flavour flavour;
    cz_dtype dtype;
    int64_t counts[PARAMS];
    uint8_t include[PARAMS];
} layout;

/* One rank's memory: an original to compare with, and what the operations see. */
typedef struct memory {
    cz_shard_map *map;
    guarded data_block[PARAMS], result_block[PARAMS];
    void *data[PARAMS], *result[PARAMS];
} memory;

static void make_layout(layout *l, uint64_t seed, flavour kind, cz_dtype dtype)
{
    *l = (layout){.seed = seed, .flavour = kind, .dtype = dtype};
    cz_test_sizes(seed, PARAMS, 60, l->counts);
    for (int i = 0; i < 5; i++)
        l->counts[draw(&seed, PARAMS)] = 300 + draw(&seed, 3000);
    for (int p = 0; p < PARAMS; p++)
        l->include[p] = draw(&seed, 5) > 0;
}

static cz_status make_map(const layout *l, int world, cz_shard_map **map)
{
    uint64_t state = l->seed;
    int64_t order[PARAMS], ranges[] = {0, 0, 7, 40, 40, 100};
    int owners[PARAMS];
    for (int p = 0; p < PARAMS; p++) {
        const unsigned other = draw(&state, (unsigned)p + 1);
        order[p] = order[other];
        order[other] = p;
        owners[p] = (int)draw(&state, (unsigned)world + 1) - (draw(&state, 4) == 0);
        if (owners[p] >= world)
            owners[p] = 0; /* some more for rank 0 */
    }
    if (l->flavour == OWNERS)
        return cz__shard_map_create_owners(map, world, PARAMS, l->counts, owners, order);
    return cz__shard_map_create_even(
        map, world, PARAMS, l->counts, order, l->flavour == EVEN_RANGES ? 6 : 0,
        l->flavour == EVEN_RANGES ? ranges : NULL, cz_dtype_size(l->dtype));
}

/* What rank `rank` holds of parameter `p` at the start. */
static void original(const layout *l, int rank, int p, void *out)
{
    fill(l->dtype, l->seed * 100000 + (uint64_t)(rank * PARAMS + p), l->counts[p], out);
}

static bool owns_some(const cz_shard_map *map, int rank, int p)
{
    cz_span span;
    for (int64_t e = 0; cz__shard_map_locate(map, p, e, &span); e = span.end)
        if (span.rank == rank)
            return true;
    return false;
}

/* The memory of this parameter is NULL there. */
static bool absent(const layout *l, const cz_shard_map *map, int rank, int p)
{
    return mix(l->seed + (uint64_t)(rank * 1000 + p)) % 3 == 0 && !owns_some(map, rank, p);
}

static void open_memory(memory *m, const layout *l, int rank, bool with_absent)
{
    for (int p = 0; p < PARAMS; p++) {
        const size_t bytes = (size_t)l->counts[p] * cz_dtype_size(l->dtype);
        m->data[p] = guarded_open(&m->data_block[p], bytes, l->dtype);
        m->result[p] = guarded_open(&m->result_block[p], bytes, l->dtype);
        original(l, rank, p, m->data[p]);
        memset(m->result[p], 0xee, bytes);
        if (with_absent && absent(l, m->map, rank, p))
            m->data[p] = NULL;
    }
}

static bool close_memory(memory *m)
{
    bool intact = true;
    for (int p = 0; p < PARAMS; p++) {
        intact &= guarded_close(&m->data_block[p]);
        intact &= guarded_close(&m->result_block[p]);
    }
    cz__shard_map_destroy(&m->map);
    return intact;
}

/* The reduction of a parameter over all ranks, absent ones counting as zeros. */
static void reduced(const layout *l, const memory *m, int size, cz_reduction reduction, int p,
                    void *out)
{
    const size_t bytes = (size_t)l->counts[p] * cz_dtype_size(l->dtype);
    void *inputs[MANY_RANKS];
    for (int r = 0; r < size; r++) {
        inputs[r] = calloc(1, bytes + 1);
        if (!inputs[r])
            abort();
        if (!absent(l, m->map, r, p))
            original(l, r, p, inputs[r]);
    }
    plain_reduce(l->dtype, reduction, size, (const void *const *)inputs, l->counts[p], out);
    for (int r = 0; r < size; r++)
        free(inputs[r]);
}

/* Every element of `got` is that of `owned` where this rank (or, with rank -1, anyone) owns it and
 * the parameter takes part, and that of `elsewhere` where not. */
static cz_status compare(const layout *l, const memory *m, int rank, int p, const char *got,
                         const char *owned, const char *elsewhere)
{
    const size_t size = cz_dtype_size(l->dtype);
    cz_span span;
    for (int64_t e = 0; e < l->counts[p]; e++) {
        const bool has_owner = cz__shard_map_locate(m->map, p, e, &span);
        const bool mine = l->include[p] && has_owner && (rank < 0 || span.rank == rank);
        const char *wanted = mine ? owned : elsewhere;
        CHECK(memcmp(got + (size_t)e * size, wanted + (size_t)e * size, size) == 0,
              "parameter %d, element %" PRId64 " of %" PRId64 " (%s): not what it should be", p, e,
              l->counts[p], mine ? "owned" : "not owned");
    }
    return CZ_OK;
}

enum { LARGEST_BYTES = 3400 * 8 };

static cz_status check_reduce(cz_group *group, const layout *l, memory *m, cz_reduction reduction,
                              bool with_result)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    char sum[LARGEST_BYTES], before[LARGEST_BYTES];
    const cz__mapped mapped = {.map = m->map,
                               .data = m->data,
                               .include = l->include,
                               .dtype = l->dtype,
                               .result = with_result ? m->result : NULL};
    CZ_TRY(cz__reduce_along_map(group, &mapped, reduction, CZ_LABEL("gradients")));
    for (int p = 0; p < PARAMS; p++) {
        reduced(l, m, size, reduction, p, sum);
        original(l, rank, p, before);
        if (m->data[p])
            CZ_TRY(compare(l, m, rank, p, m->data[p], with_result ? before : sum, before));
        memset(before, 0xee, sizeof before);
        CZ_TRY(compare(l, m, rank, p, m->result[p], with_result ? sum : before, before));
    }
    return CZ_OK;
}

/* What each owner held, put together. */
static void gathered(const layout *l, const memory *m, int p, char *out)
{
    const size_t size = cz_dtype_size(l->dtype);
    char theirs[LARGEST_BYTES];
    cz_span span;
    for (int64_t e = 0; cz__shard_map_locate(m->map, p, e, &span); e = span.end) {
        original(l, span.rank, p, theirs);
        memcpy(out + (size_t)span.begin * size, theirs + (size_t)span.begin * size,
               (size_t)(span.end - span.begin) * size);
    }
}

static cz_status check_gather(cz_group *group, const layout *l, memory *m)
{
    char all[LARGEST_BYTES], before[LARGEST_BYTES];
    const cz__mapped mapped = {
        .map = m->map, .data = m->data, .include = l->include, .dtype = l->dtype};
    CZ_TRY(cz__gather_along_map(group, &mapped, CZ_LABEL("parameters")));
    for (int p = 0; p < PARAMS; p++) {
        original(l, cz_group_rank(group), p, before);
        gathered(l, m, p, all);
        CZ_TRY(compare(l, m, -1, p, m->data[p], all, before));
    }
    return CZ_OK;
}

/* A step: elements of `result` are what an owner updates. Tiles come once each, and with their
 * gradients. */
typedef struct updates {
    memory *memory;
    cz_dtype dtype;
    int64_t count;
    bool wrong; /* some tile was larger than its span */
} updates;

static void update(void *context, int64_t param, int64_t first, int64_t count, const void *gradient)
{
    updates *u = context;
    const size_t size = cz_dtype_size(u->dtype);
    char *value = (char *)u->memory->result[param] + (size_t)first * size;
    cz_span span;
    u->wrong |= count < 1 || !cz__shard_map_locate(u->memory->map, param, first, &span) ||
                first + count > span.end;
    for (size_t i = 0; i < (size_t)count * size; i++)
        value[i] = (char)(value[i] + ((const char *)gradient)[i] + (char)param);
    u->count += count;
}

/* What update() makes of a whole parameter with this gradient. */
static void updated(const layout *l, int p, const char *gradient, char *out)
{
    for (size_t i = 0; i < (size_t)l->counts[p] * cz_dtype_size(l->dtype); i++)
        out[i] = (char)(0xee + gradient[i] + p);
}

static int64_t owned_count(const layout *l, const memory *m, int rank)
{
    int64_t count = 0;
    cz_span_iterator iterator;
    cz_span span;
    cz_span_iterate(m->map, rank, &iterator);
    while (cz_span_next(&iterator, &span))
        count += l->include[span.param] ? span.end - span.begin : 0;
    return count;
}

typedef enum question {
    REDUCE,
    REDUCE_TO_RESULT,
    GATHER,
    STEP,
    STEP_TO_NOBODY,
    UPDATE,
    AGREED_STEP,
    AGREED_UPDATE
} question;

static bool reduces(question what)
{
    return what != UPDATE && what != AGREED_UPDATE;
}

static cz__tiled_step step_of(const layout *l, memory *m, question what, updates *u)
{
    return (cz__tiled_step){
        .gradients = {.map = m->map, .data = m->data, .include = l->include, .dtype = l->dtype},
        .reduces = reduces(what),
        .reduction = CZ_AVERAGE,
        .values = what == STEP_TO_NOBODY ? NULL : m->result,
        .update = update,
        .context = u};
}

/* The ways in which the last rank may not agree with the others. */
typedef enum dissent { OTHER_FINGERPRINT, NO_STEP, OTHER_PARAMETERS, FAILED, DISSENTS } dissent;

static cz_status dissent_as(cz_group *group, const cz__tiled_step *step, dissent how, bool *same)
{
    static const uint8_t none[PARAMS];
    cz__tiled_step other = *step;
    other.gradients.include = none;
    switch (how) {
    case OTHER_FINGERPRINT:
        return cz__agree_on_step(group, step, 8, same, "step");
    case NO_STEP:
        return cz__agree(group, CZ_OK, 7, same, "step");
    case OTHER_PARAMETERS:
        return cz__agree_on_step(group, &other, 9, same, "step");
    default:
        return cz__agree(group, cz_fail(CZ_ERR_MEMORY, "no memory"), 0, same, "step");
    }
}

/* No rank makes a step with which not all agree. */
static cz_status disagree(cz_group *group, const cz__tiled_step *step, dissent how)
{
    const int rank = cz_group_rank(group), last = cz_group_size(group) - 1;
    bool same = true;
    const cz_status status = rank < last ? cz__agree_on_step(group, step, 7, &same, "step")
                                         : dissent_as(group, step, how, &same);
    CHECK(status == (how == FAILED ? CZ_ERR_MEMORY : CZ_OK), "way %d: %s", how,
          cz_status_name(status));
    CHECK(!same, "way %d: all are the same", how);
    return CZ_OK;
}

static cz_status agree_on(cz_group *group, const cz__tiled_step *step, const updates *u)
{
    bool same;
    for (int how = 0; how < DISSENTS && cz_group_size(group) > 1; how++)
        CZ_TRY(disagree(group, step, (dissent)how));
    CHECK(u->count == 0, "%" PRId64 " elements updated without agreement", u->count);
    CZ_TRY(cz__agree_on_step(group, step, 7, &same, "step"));
    CHECK(same, "not the same");
    return CZ_OK;
}

static cz_status run_step(cz_group *group, const layout *l, memory *m, question what)
{
    updates u = {.memory = m, .dtype = l->dtype};
    const cz__tiled_step step = step_of(l, m, what, &u);
    CZ_TRY(what >= AGREED_STEP ? agree_on(group, &step, &u)
                               : cz__step_along_map(group, &step, CZ_LABEL("step")));
    CHECK(!u.wrong && u.count == owned_count(l, m, cz_group_rank(group)),
          "%" PRId64 " elements updated", u.count);
    return CZ_OK;
}

/* Values are those of `result`: every rank has all, or its own. */
static cz_status check_step(cz_group *group, const layout *l, memory *m, question what)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    char gradient[LARGEST_BYTES], before[LARGEST_BYTES], after[LARGEST_BYTES];
    CZ_TRY(run_step(group, l, m, what));
    for (int p = 0; p < PARAMS; p++) {
        if (reduces(what))
            reduced(l, m, size, CZ_AVERAGE, p, gradient);
        else
            gathered(l, m, p, gradient);
        original(l, rank, p, before);
        if (m->data[p])
            CZ_TRY(compare(l, m, rank, p, m->data[p], gradient, before));
        memset(before, 0xee, sizeof before);
        updated(l, p, gradient, after);
        CZ_TRY(compare(l, m, what == STEP_TO_NOBODY ? rank : -1, p, m->result[p], after, before));
    }
    return CZ_OK;
}

typedef struct trial {
    layout layout;
    question question;
} trial;

static cz_status each_rank(cz_group *group, void *arg)
{
    const trial *t = arg;
    memory m = {.map = NULL};
    CZ_TRY(make_map(&t->layout, cz_group_size(group), &m.map));
    open_memory(&m, &t->layout, cz_group_rank(group), t->question != GATHER);
    const cz_reduction reduction = t->layout.seed % 2 ? CZ_AVERAGE : CZ_SUM;
    const cz_status status = t->question == GATHER ? check_gather(group, &t->layout, &m)
                             : t->question >= STEP ? check_step(group, &t->layout, &m, t->question)
                                                   : check_reduce(group, &t->layout, &m, reduction,
                                                                  t->question == REDUCE_TO_RESULT);
    CHECK(close_memory(&m), "bytes were written outside the parameters");
    return status;
}

static void try(question what)
{
    static const cz_dtype dtypes[] = {CZ_F32, CZ_BF16, CZ_F64};
    static const size_t segments[] = {64, 256, 1024, 0};
    uint64_t seed = 7;
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (int kind = OWNERS; kind <= EVEN_RANGES; kind++) {
            trial t = {.question = what};
            make_layout(&t.layout, seed++, (flavour)kind, dtypes[(world + kind) % 3]);
            expect_ok(world, segments[(world + 2 * kind) % 4], each_rank, &t);
        }
}

TEST(a_map_reduces_to_its_owners)
{
    try(REDUCE);
}

TEST(reduce_to_another_place)
{
    try(REDUCE_TO_RESULT);
}

TEST(a_map_gathers_from_its_owners)
{
    try(GATHER);
}

TEST(step)
{
    try(STEP);
}

TEST(step_without_values)
{
    try(STEP_TO_NOBODY);
}

TEST(ranks_that_agree_make_a_step_and_others_do_not)
{
    try(AGREED_STEP);
    try(AGREED_UPDATE);
}

TEST(an_update_along_a_map)
{
    try(UPDATE);
}

/* Nothing to do is done by all. */
static cz_status each_rank_nothing(cz_group *group, void *arg)
{
    const int64_t counts[] = {0, 5};
    const int owners[] = {0, -1};
    const uint8_t include[] = {1, 1}, none[] = {0, 0};
    float values[5] = {1, 2, 3, 4, 5};
    void *data[] = {NULL, values};
    cz_shard_map *map = NULL;
    CZ_TRY(cz__shard_map_create_owners(&map, cz_group_size(group), 2, counts, owners, NULL));
    const cz__mapped mapped = {.map = map, .data = data, .include = include, .dtype = CZ_F32};
    const cz__mapped left_out = {.map = map, .data = data, .include = none, .dtype = CZ_F32};
    cz_status status = cz__reduce_along_map(group, &mapped, CZ_SUM, NULL);
    THEN(cz__gather_along_map(group, &mapped, NULL));
    THEN(cz__reduce_along_map(group, &left_out, CZ_SUM, NULL));
    cz__shard_map_destroy(&map);
    CZ_TRY(status);
    for (int i = 0; i < 5; i++)
        CHECK(values[i] == (float)(i + 1), "element %d became %g", i, values[i]);
    return CZ_OK;
}

TEST(nothing_to_move)
{
    for (int world = 1; world <= 3; world++)
        expect_ok(world, 0, each_rank_nothing, NULL);
}
