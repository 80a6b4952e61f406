/* SPDX-License-Identifier: MIT */
/* Update rules: a step of an optimizer over one parameter. */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
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
    s->value = cz__calloc((size_t)elements, sizeof *s->value);
    s->gradient = cz__calloc((size_t)elements, sizeof *s->gradient);
    if (!s->value || !s->gradient)
        return cz__fail(CZ_ERR_MEMORY, "no memory for a parameter of %s",
                        show_plural(elements, "element", "elements").text);
    for (int64_t i = 0; i < elements; i++) { /* none is so small that it is slow */
        s->value[i] = 1 + (float)(i % 13) / 16;
        s->gradient[i] = (float)(i % 7 + 1) / 64;
    }
    CZ_TRY(cz_model_create(&s->model));
    return cz_model_add(s->model, "parameter", s->value, s->gradient, CZ_F32, 1, &elements);
}

static void subject_clear(subject *s)
{
    cz_model_destroy(&s->model);
    cz__free(s->value);
    cz__free(s->gradient);
}

static cz_status time_steps(cz_optim *optim, int rounds, double *seconds)
{
    double times[BENCH_ROUNDS];
    CZ_TRY(cz_optim_step(optim, NULL, NULL)); /* the first one begins the state */
    for (int i = 0; i < rounds; i++) {
        const double begin = cz__seconds();
        CZ_TRY(cz_optim_step(optim, NULL, NULL));
        times[i] = cz__seconds() - begin;
    }
    *seconds = bench_median(times, rounds);
    return CZ_OK;
}

static cz_status measure(const bench_options *o, const char *rule, double *seconds, size_t *bytes)
{
    subject s = {0};
    cz_optim *optim = NULL;
    cz_status status = subject_create(&s, o->elements);
    if (status == CZ_OK)
        status =
            cz_optim_create(&optim, s.model, cz_rule_find(rule), CZ_HYPERS({"lr", 0x1p-10}), NULL);
    if (status == CZ_OK)
        *bytes = cz_memory_bytes(CZ_MEMORY_STATE);
    if (status == CZ_OK)
        status = time_steps(optim, o->rounds, seconds);
    cz_optim_destroy(&optim);
    subject_clear(&s);
    return status;
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
    t->right[1] = t->right[2] = t->right[3] = true;
}

static cz_status put(table *t, json_t *list, const bench_options *o, const char *rule,
                     double seconds, size_t bytes)
{
    if (o->json)
        return json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:I}", "rule", rule,
                                                     "elements", (json_int_t)o->elements, "seconds",
                                                     seconds, "state_bytes", (json_int_t)bytes)) ==
                       0
                   ? CZ_OK
                   : cz__fail(CZ_ERR_MEMORY, "no memory for JSON");
    table_row(t);
    table_cell(t, 0, "%s", rule);
    table_cell(t, 1, "%.1f us", seconds * 1e6);
    table_cell(t, 2, "%.2f ns", seconds / (double)o->elements * 1e9);
    table_cell(t, 3, "%s", show_bytes(bytes).text);
    return CZ_OK;
}

cz_status bench_rules(const bench_options *o, json_t *list)
{
    table t = {0};
    const char *rule;
    cz_status status = CZ_OK;
    if (!o->json)
        print_titles(&t, o);
    for (int i = 0; status == CZ_OK && (rule = cz_rule_name(i)); i++) {
        double seconds = 0;
        size_t bytes = 0;
        status = measure(o, rule, &seconds, &bytes);
        if (status == CZ_OK)
            status = put(&t, list, o, rule, seconds, bytes);
    }
    if (!o->json)
        table_print(&t, stdout);
    table_clear(&t);
    return status;
}
