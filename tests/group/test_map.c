/* SPDX-License-Identifier: MIT */
/* Reductions and gathers along shard maps: owner tables and even cuts over tiny, empty and large
 * parameters, some left out, some without memory on ranks that do not own them; with results and
 * values of the elements' type and of others. */
#include "group/collective.h"
#include "group/group_test.h"
#include "shard/shard.h"

enum { PARAMS = 120, LARGEST_BYTES = 3400 * 8 };

typedef enum flavour { OWNERS, EVEN_ONE_RANGE, EVEN_RANGES } flavour;

/* Equal on all ranks. */
typedef struct layout {
    uint64_t seed;
    flavour flavour;
    cz_dtype dtype;  /* of what ranks give, */
    cz_dtype result; /* of what it is reduced to, */
    cz_dtype value;  /* of what is updated */
    int64_t counts[PARAMS];
    uint8_t include[PARAMS];
} layout;

/* One rank's memory: an original to compare with, and what the operations see. */
typedef struct memory {
    cz_shard_map *map;
    guarded data_block[PARAMS], result_block[PARAMS], value_block[PARAMS];
    void *data[PARAMS], *result[PARAMS], *value[PARAMS];
} memory;

static void make_layout(layout *l, uint64_t seed, flavour kind, const cz_dtype types[3])
{
    *l = (layout){seed, kind, types[0], types[1], types[2], {0}, {0}};
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

static void *open_values(guarded *block, int64_t count, cz_dtype dtype)
{
    const size_t bytes = (size_t)count * cz_dtype_size(dtype);
    return memset(guarded_open(block, bytes, dtype), 0xee, bytes);
}

static void open_memory(memory *m, const layout *l, int rank, bool with_absent)
{
    for (int p = 0; p < PARAMS; p++) {
        m->data[p] = open_values(&m->data_block[p], l->counts[p], l->dtype);
        m->result[p] = open_values(&m->result_block[p], l->counts[p], l->result);
        m->value[p] = open_values(&m->value_block[p], l->counts[p], l->value);
        original(l, rank, p, m->data[p]);
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
        intact &= guarded_close(&m->value_block[p]);
    }
    cz__shard_map_destroy(&m->map);
    return intact;
}

/* The reduction of a parameter over all ranks, absent ones counting as zeros: as f32, of what ranks
 * have as f32. */
static void reduced(const layout *l, const memory *m, int size, cz_reduction reduction, int p,
                    void *out)
{
    const size_t bytes = (size_t)l->counts[p] * cz_dtype_size(l->result);
    void *inputs[MANY_RANKS];
    char narrow[LARGEST_BYTES];
    for (int r = 0; r < size; r++) {
        inputs[r] = calloc(1, bytes + 1);
        if (!inputs[r])
            abort();
        if (absent(l, m->map, r, p))
            continue;
        original(l, r, p, narrow);
        if (cz_device_cpu()->convert(NULL, l->result, inputs[r], l->dtype, narrow, l->counts[p]))
            abort();
    }
    plain_reduce(l->result, reduction, size, (const void *const *)inputs, l->counts[p], out);
    for (int r = 0; r < size; r++)
        free(inputs[r]);
}

/* Every element of `got` is that of `owned` where this rank (or, with rank -1, anyone) owns it and
 * the parameter takes part, and that of `elsewhere` where not. */
static cz_status compare(const layout *l, const memory *m, int rank, int p, cz_dtype dtype,
                         const char *got, const char *owned, const char *elsewhere)
{
    const size_t size = cz_dtype_size(dtype);
    cz_span span;
    for (int64_t e = 0; e < l->counts[p]; e++) {
        const bool has_owner = cz__shard_map_locate(m->map, p, e, &span);
        const bool mine = l->include[p] && has_owner && (rank < 0 || span.rank == rank);
        const char *wanted = mine ? owned : elsewhere;
        CHECK(memcmp(got + (size_t)e * size, wanted + (size_t)e * size, size) == 0,
              "parameter %d, %s element %" PRId64 " of %" PRId64 " (%s): not what it should be", p,
              cz_dtype_name(dtype), e, l->counts[p], mine ? "owned" : "not owned");
    }
    return CZ_OK;
}

static cz_status check_reduce(cz_group *group, const layout *l, memory *m, cz_reduction reduction,
                              bool with_result)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    char sum[LARGEST_BYTES], before[LARGEST_BYTES];
    const cz__mapped mapped = {.map = m->map,
                               .data = m->data,
                               .include = l->include,
                               .dtype = l->dtype,
                               .result = with_result ? m->result : NULL,
                               .result_dtype = with_result ? l->result : 0};
    CZ_TRY(cz__reduce_along_map(group, &mapped, reduction, CZ_LABEL("gradients")));
    for (int p = 0; p < PARAMS; p++) {
        reduced(l, m, size, reduction, p, sum);
        original(l, rank, p, before);
        if (m->data[p])
            CZ_TRY(
                compare(l, m, rank, p, l->dtype, m->data[p], with_result ? before : sum, before));
        memset(before, 0xee, sizeof before);
        CZ_TRY(compare(l, m, rank, p, l->result, m->result[p], with_result ? sum : before, before));
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
        CZ_TRY(compare(l, m, -1, p, l->dtype, m->data[p], all, before));
    }
    return CZ_OK;
}

/* A step: elements of `value` are what an owner updates. Tiles come once each, and with their
 * gradients. */
typedef struct updates {
    memory *memory;
    size_t gradient_size, value_size;
    int64_t count;
    bool wrong; /* some tile was larger than its span */
} updates;

/* Every byte of a gradient is in one of its value's. */
static void mix_bytes(const updates *u, int64_t param, int64_t count, const char *gradient,
                      char *value)
{
    const size_t g = u->gradient_size, v = u->value_size;
    for (size_t i = 0; i < (size_t)count; i++)
        for (size_t k = 0; k < (g > v ? g : v); k++)
            value[i * v + k % v] =
                (char)(value[i * v + k % v] + gradient[i * g + k % g] + (char)param);
}

static void update(void *context, int64_t param, int64_t first, int64_t count, const void *gradient)
{
    updates *u = context;
    char *value = (char *)u->memory->value[param] + (size_t)first * u->value_size;
    cz_span span;
    u->wrong |= count < 1 || !cz__shard_map_locate(u->memory->map, param, first, &span) ||
                first + count > span.end;
    mix_bytes(u, param, count, gradient, value);
    u->count += count;
}

/* What update() makes of a whole parameter with this gradient. */
static void updated(const layout *l, int p, const char *gradient, char *out)
{
    const updates u = {.gradient_size = cz_dtype_size(l->result),
                       .value_size = cz_dtype_size(l->value)};
    memset(out, 0xee, (size_t)l->counts[p] * u.value_size);
    mix_bytes(&u, p, l->counts[p], gradient, out);
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
    return (cz__tiled_step){.gradients = {.map = m->map,
                                          .data = m->data,
                                          .include = l->include,
                                          .dtype = l->dtype,
                                          .result = l->result == l->dtype ? NULL : m->result,
                                          .result_dtype = l->result == l->dtype ? 0 : l->result},
                            .reduces = reduces(what),
                            .reduction = CZ_AVERAGE,
                            .values = what == STEP_TO_NOBODY ? NULL : m->value,
                            .value_dtype = l->value == l->dtype ? 0 : l->value,
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
    updates u = {.memory = m,
                 .gradient_size = cz_dtype_size(l->result),
                 .value_size = cz_dtype_size(l->value)};
    const cz__tiled_step step = step_of(l, m, what, &u);
    CZ_TRY(what >= AGREED_STEP ? agree_on(group, &step, &u)
                               : cz__step_along_map(group, &step, CZ_LABEL("step")));
    CHECK(!u.wrong && u.count == owned_count(l, m, cz_group_rank(group)),
          "%" PRId64 " elements updated", u.count);
    return CZ_OK;
}

/* Where a gradient becomes the result: in its own memory, or if its type does not do there in
 * `result`, unless that has none. */
static cz_status check_gradients(cz_group *group, const layout *l, const memory *m, int p,
                                 const char *gradient)
{
    const int rank = cz_group_rank(group);
    const bool in_place = l->result == l->dtype;
    char before[LARGEST_BYTES];
    original(l, rank, p, before);
    if (m->data[p])
        CZ_TRY(compare(l, m, rank, p, l->dtype, m->data[p], in_place ? gradient : before, before));
    memset(before, 0xee, sizeof before);
    return in_place || !m->result[p]
               ? CZ_OK
               : compare(l, m, rank, p, l->result, m->result[p], gradient, before);
}

/* Every rank has all values, or its own. */
static cz_status check_step(cz_group *group, const layout *l, memory *m, question what)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    char gradient[LARGEST_BYTES], before[LARGEST_BYTES], after[LARGEST_BYTES];
    for (int p = 0; p < PARAMS && l->result != l->dtype; p += 1 + p % 3)
        m->result[p] = NULL;
    CZ_TRY(run_step(group, l, m, what));
    for (int p = 0; p < PARAMS; p++) {
        if (reduces(what))
            reduced(l, m, size, CZ_AVERAGE, p, gradient);
        else
            gathered(l, m, p, gradient);
        CZ_TRY(check_gradients(group, l, m, p, gradient));
        memset(before, 0xee, sizeof before);
        updated(l, p, gradient, after);
        CZ_TRY(compare(l, m, what == STEP_TO_NOBODY ? rank : -1, p, l->value, m->value[p], after,
                       before));
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

/* Of elements, results and values. */
static const cz_dtype alike[][3] = {
    {CZ_F32, CZ_F32, CZ_F32}, {CZ_BF16, CZ_BF16, CZ_BF16}, {CZ_F64, CZ_F64, CZ_F64}};
static const cz_dtype mixed[][3] = {
    {CZ_BF16, CZ_F32, CZ_BF16}, {CZ_F16, CZ_F32, CZ_F32}, {CZ_F16, CZ_F32, CZ_F16}};
static const cz_dtype mixed_values[][3] = {
    {CZ_F32, CZ_F32, CZ_BF16}, {CZ_F32, CZ_F32, CZ_F64}, {CZ_F32, CZ_F32, CZ_F16}};

static void try_types(question what, const cz_dtype (*types)[3])
{
    static const size_t segments[] = {64, 256, 1024, 0};
    uint64_t seed = 7;
    for (int world = 1; world <= LARGEST_WORLD; world++)
        for (int kind = OWNERS; kind <= EVEN_RANGES; kind++) {
            trial t = {.question = what};
            make_layout(&t.layout, seed++, (flavour)kind, types[(world + kind) % 3]);
            expect_ok(world, segments[(world + 2 * kind) % 4], each_rank, &t);
        }
}

static void try(question what)
{
    try_types(what, alike);
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

TEST(halves_are_reduced_to_f32_without_rounding)
{
    try_types(REDUCE_TO_RESULT, mixed);
}

TEST(a_step_with_unrounded_means)
{
    try_types(STEP, mixed);
    try_types(STEP_TO_NOBODY, mixed);
    try_types(AGREED_STEP, mixed);
}

TEST(values_of_another_type_than_their_gradients)
{
    try_types(STEP, mixed_values);
    try_types(UPDATE, mixed_values);
    try_types(AGREED_UPDATE, mixed_values);
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
