/* SPDX-License-Identifier: MIT */
/* Update rules: a step of an optimizer over one parameter, beside a copy that moves as many
 * bytes. */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench.h"
#include "czero/optim.h"
#include "show.h"

/* A parameter and its gradient. */
typedef struct subject {
    cz_model *model;
    float *value, *gradient;
} subject;

static cz_status subject_create(subject *s, int64_t elements)
{
    int64_t shape[] = {1, elements}; /* as square as it can be, for rules that take matrices */
    for (int64_t rows = 2; rows * rows <= elements; rows++)
        if (elements % rows == 0) {
            shape[0] = rows;
            shape[1] = elements / rows;
        }
    s->value = cz__calloc((size_t)elements, sizeof *s->value);
    s->gradient = cz__calloc((size_t)elements, sizeof *s->gradient);
    if (!s->value || !s->gradient)
        return cz_fail(CZ_ERR_MEMORY, "no memory for a parameter of %s",
                       show_plural(elements, "element", "elements").text);
    for (int64_t i = 0; i < elements; i++) { /* none is so small that it is slow */
        s->value[i] = 1 + (float)(i % 13) / 16;
        s->gradient[i] = (float)(i % 7 + 1) / 64;
    }
    CZ_TRY(cz_model_create(&s->model));
    return cz_model_add(s->model, "parameter", s->value, s->gradient, CZ_F32, 2, shape);
}

static void subject_clear(subject *s)
{
    cz_model_destroy(&s->model);
    cz__free(s->value);
    cz__free(s->gradient);
}

static cz_status time_steps(cz_optim *optim, int rounds, double *seconds, double *spread)
{
    double times[BENCH_ROUNDS];
    CZ_TRY(cz_optim_step(optim, NULL, NULL)); /* the first one begins the state */
    for (int i = 0; i < rounds; i++) {
        const double begin = cz__seconds();
        CZ_TRY(cz_optim_step(optim, NULL, NULL));
        times[i] = cz__seconds() - begin;
    }
    *seconds = bench_median(times, rounds);
    *spread = bench_spread(times, rounds);
    return CZ_OK;
}

typedef struct measured {
    size_t state_bytes;
    double seconds, spread;
    double copy_seconds; /* of as many bytes as a step reads and writes */
} measured;

/* Half of them are read, half are written. */
static cz_status time_copy(size_t bytes, int rounds, double *seconds)
{
    double times[BENCH_ROUNDS];
    char *from = cz__allocate(CZ_MEMORY_GENERAL, bytes / 2);
    char *to = cz__allocate(CZ_MEMORY_GENERAL, bytes / 2);
    if (from && to) {
        for (int i = -1; i < rounds; i++) { /* the first has new pages */
            const double begin = cz__seconds();
            memcpy(to, from, bytes / 2);
            times[i < 0 ? 0 : i] = cz__seconds() - begin;
        }
    }
    *seconds = from && to ? bench_median(times, rounds) : 0;
    const bool enough = from && to;
    cz__free(from);
    cz__free(to);
    return enough ? CZ_OK : cz_fail(CZ_ERR_MEMORY, "no memory for a copy of %zu bytes", bytes / 2);
}

static cz_status measure(const bench_options *o, const char *rule, measured *m)
{
    subject s = {0};
    cz_optim *optim = NULL;
    cz_status status = subject_create(&s, o->elements);
    if (status)
        goto done;
    status = cz_optim_create(&optim, s.model, cz_rule_find(rule), CZ_HYPERS({"lr", 0x1p-10}), NULL);
    if (status)
        goto done;
    m->state_bytes = cz_memory_bytes(CZ_MEMORY_STATE);
    status = time_steps(optim, o->rounds, &m->seconds, &m->spread);
done:
    cz_optim_destroy(&optim);
    subject_clear(&s);
    CZ_TRY(status);
    /* Value and gradient are read and the value written, state is read and written. */
    const size_t traffic = 3 * sizeof(float) * (size_t)o->elements + 2 * m->state_bytes;
    return time_copy(traffic, o->rounds, &m->copy_seconds);
}

static void print_titles(table *t, const bench_options *o)
{
    printf("\nupdate rules, f32, one thread, %s, defaults\n",
           show_plural(o->elements, "element", "elements").text);
    table_row(t);
    table_cell(t, 0, "rule");
    table_cell(t, 1, "time");
    table_cell(t, 2, "an element");
    table_cell(t, 3, "state");
    table_cell(t, 4, "a copy of as many bytes");
    table_cell(t, 5, "spread");
    t->right[1] = t->right[2] = t->right[3] = t->right[4] = t->right[5] = true;
}

static cz_status put(table *t, json_t *list, const bench_options *o, const char *rule,
                     const measured *m)
{
    if (o->json)
        return json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:I, s:f, s:f}", "rule", rule,
                                                     "elements", (json_int_t)o->elements, "seconds",
                                                     m->seconds, "state_bytes",
                                                     (json_int_t)m->state_bytes, "copy_seconds",
                                                     m->copy_seconds, "spread", m->spread)) == 0
                   ? CZ_OK
                   : cz_fail(CZ_ERR_MEMORY, "no memory for JSON");
    table_row(t);
    table_cell(t, 0, "%s", rule);
    table_cell(t, 1, "%.1f us", m->seconds * 1e6);
    table_cell(t, 2, "%.2f ns", m->seconds / (double)o->elements * 1e9);
    table_cell(t, 3, "%s", show_bytes(m->state_bytes).text);
    table_cell(t, 4, "%.1f us", m->copy_seconds * 1e6);
    table_cell(t, 5, "%.0f %%", 100 * m->spread);
    return CZ_OK;
}

cz_status bench_rules(const bench_options *o, json_t *list)
{
    table t = {0};
    const char *rule;
    cz_status status = CZ_OK;
    if (!o->json)
        print_titles(&t, o);
    for (int i = 0; (rule = cz_rule_name(i)); i++) {
        measured m = {0};
        status = measure(o, rule, &m);
        if (!status)
            status = put(&t, list, o, rule, &m);
        if (status)
            break;
    }
    if (!o->json)
        table_print(&t, stdout);
    table_clear(&t);
    return status;
}
