/* SPDX-License-Identifier: MIT */
/* Files of torch in the forms that people write them, and a small training that imports them. */
#ifndef CZ_TEST_TORCH_FORMS_H
#define CZ_TEST_TORCH_FORMS_H

#include "checkpoint/torch_files.h"
#include "optim/optim.h"

/* ---- a small training ---- */

typedef struct little {
    cz_model *model;
    cz_optim *optim;
    cz_checkpoint *checkpoint;
    float w[6], b[2], grads[8];
    int64_t n;
} little;

static inline void close_little(little *l)
{
    cz_checkpoint_destroy(&l->checkpoint);
    cz_optim_destroy(&l->optim);
    cz_model_destroy(&l->model);
}

static inline cz_status open_little(little *l, cz_group *group, const char *rule)
{
    static const int64_t matrix[] = {2, 3}, two = 2;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    *l = (little){.w = {9, 9, 9, 9, 9, 9}, .b = {9, 9}, .n = 9};
    CZ_TRY(cz_model_create(&l->model));
    CZ_TRY(cz_model_add(l->model, "w", l->w, l->grads, CZ_F32, 2, matrix));
    CZ_TRY(cz_model_add(l->model, "b", l->b, l->grads + 6, CZ_F32, 1, &two));
    CZ_TRY(cz_model_add_buffer(l->model, "n", &l->n, CZ_I64, 0, NULL));
    if (rule)
        CZ_TRY(
            cz_optim_create(&l->optim, l->model, cz_rule_find(rule), CZ_HYPERS({"lr", 1}), NULL));
    options.model = l->model;
    options.optim = l->optim;
    return cz_checkpoint_create(&l->checkpoint, group, "not used", &options);
}

/* ---- what is in the files ---- */

static const float floats[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const torch_view w_view = {"FloatStorage", "0", 12, 1, {2, 3, -1}, {3, 1, -1}};
static const torch_view b_view = {"FloatStorage", "0", 12, 10, {2, -1}, {1, -1}};
static const torch_view n_view = {"LongStorage", "1", 1, 0, {-1}, {-1}};

static inline void add_storages(torch_file *f)
{
    static const int64_t seven = 7;
    torch_add(f, "data/0", floats, sizeof floats);
    torch_add(f, "data/1", &seven, sizeof seven);
}

static inline void put_model(torch_file *f)
{
    torch_op(f, "}(");
    torch_named(f, "w", &w_view);
    torch_named(f, "b", &b_view);
    torch_named(f, "n", &n_view);
    torch_op(f, "u");
}

static inline void put_entry(torch_file *f, int number, const torch_view *view, double step)
{
    cz__pickle_put_integer(&f->p, number);
    torch_op(f, "}(");
    if (number == 0) /* as a number, and as a tensor */
        torch_named_real(f, "step", step);
    else {
        const float as_tensor = (float)step;
        torch_add(f, "data/2", &as_tensor, sizeof as_tensor);
        torch_named(f, "step", &(torch_view){"FloatStorage", "2", 1, 0, {-1}, {-1}});
    }
    torch_named(f, "exp_avg", view);
    torch_named(f, "exp_avg_sq", view);
    torch_op(f, "u");
}

static inline void put_group_values(torch_file *f)
{
    torch_named_real(f, "lr", 0.25);
    cz__pickle_put_text(&f->p, "betas");
    cz__pickle_put_real(&f->p, 0.5);
    cz__pickle_put_real(&f->p, 0.75);
    torch_op(f, "\x86");
    torch_named_real(f, "eps", 1e-6);
    torch_named_real(f, "weight_decay", 0);
    torch_named_real(f, "initial_lr", 0.5);
    cz__pickle_put_text(&f->p, "amsgrad");
    cz__pickle_put_bool(&f->p, false);
    cz__pickle_put_text(&f->p, "fused");
    cz__pickle_put_none(&f->p);
    cz__pickle_put_text(&f->p, "name");
    cz__pickle_put_text(&f->p, "all of them");
}

static inline void put_optimizer(torch_file *f)
{
    torch_op(f, "}(");
    cz__pickle_put_text(&f->p, "state");
    torch_op(f, "}(");
    put_entry(f, 0, &w_view, 3);
    put_entry(f, 1, &b_view, 4);
    torch_op(f, "u");
    cz__pickle_put_text(&f->p, "param_groups");
    torch_op(f, "](}(");
    put_group_values(f);
    cz__pickle_put_text(&f->p, "params");
    torch_op(f, "](");
    cz__pickle_put_integer(&f->p, 0);
    cz__pickle_put_integer(&f->p, 1);
    torch_op(f, "eueu"); /* the list, the group, the groups, the optimizer */
}

/* ---- what has to be here then ---- */

typedef struct form {
    job job;
    const char *rule;
    bool state, values;
    const char *note; /* NULL: any */
} form;

static inline cz_status check_values(const little *l, bool loaded)
{
    for (int i = 0; i < 6; i++)
        if (l->w[i] != (loaded ? (float)(i + 1) : 9))
            return cz_fail(CZ_ERR_STATE, "w[%d] is %g", i, (double)l->w[i]);
    return l->b[0] == (loaded ? 10 : 9) && l->b[1] == (loaded ? 11 : 9) && l->n == (loaded ? 7 : 9)
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "b or n is wrong");
}

static inline cz_status check_state(const little *l)
{
    const void *data;
    int64_t count;
    double lr, beta2, initial;
    CZ_TRY(cz_optim_get_hyper(l->optim, 0, "lr", &lr));
    CZ_TRY(cz_optim_get_hyper(l->optim, 0, "beta2", &beta2));
    CZ_TRY(cz_optim_get_hyper(l->optim, 0, "initial_lr", &initial));
    if (lr != 0.25 || beta2 != 0.75 || initial != 0.5)
        return cz_fail(CZ_ERR_STATE, "lr %g, beta2 %g, initial_lr %g", lr, beta2, initial);
    if (cz__optim_step_count(l->optim, 0) != 3 || cz__optim_step_count(l->optim, 1) != 4)
        return cz_fail(CZ_ERR_STATE, "other steps");
    CZ_TRY(cz_optim_state(l->optim, 0, "exp_avg_sq", 0, &data, &count));
    return count == 6 && memcmp(data, floats + 1, 24) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "exp_avg_sq of w is wrong");
}

static inline cz_status import_form(cz_group *group, void *context)
{
    const form *f = context;
    little l;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_status status = open_little(&l, group, f->rule);
    THEN(cz_checkpoint_import(l.checkpoint, f->job.path, &f->job.load, &result));
    THEN(check_values(&l, f->values));
    if (status == CZ_OK && f->state)
        status = check_state(&l);
    if (status == CZ_OK && result.step != -1)
        status = cz_fail(CZ_ERR_STATE, "a step");
    if (status == CZ_OK && f->note && !strstr(cz_checkpoint_notes(l.checkpoint), f->note))
        status = cz_fail(CZ_ERR_STATE, "notes: '%s'", cz_checkpoint_notes(l.checkpoint));
    small_result_clear(&result);
    close_little(&l);
    return status;
}

static inline void import_everywhere(form *f)
{
    for (int world = 1; world <= 7; world += 2)
        assert_ranks_ok(world, import_form, f);
}

static inline void begin_form(form *f, torch_file *file, const char *rule)
{
    *f = (form){.rule = rule, .values = true};
    begin(&f->job, "model.pt");
    *file = (torch_file){.count = 0};
    cz__pickle_begin(&file->p);
}

static inline void write_form(form *f, torch_file *file)
{
    cz__pickle_end(&file->p);
    torch_write(file, f->job.path);
}

#endif
