/* SPDX-License-Identifier: MIT */
/* State of torch's optimizers, which number their parameters, goes to the right ones where the
 * program here registers parameters of equal shapes in another order: by the names of the file's
 * model, or those that its groups have; and where the file has none, that is noted. */
#include "checkpoint/torch_forms.h"
#include "tensor/model.h"
#include "optim/optim.h"

/* Two vectors of two, "a" and "b". */
static const torch_view a_view = {"FloatStorage", "0", 12, 1, {2, -1}, {1, -1}};

typedef struct named {
    form form;
    bool groups;      /* in the file and here: one for each parameter */
    bool swapped;     /* here "b" comes first */
    bool alone;       /* no model in the file */
    int first;        /* which parameter number 0 is: 0 for "a" */
    bool names;       /* param_names: "b", "a" */
    const char *note; /* NULL: none */
} named;

static void put_params(torch_file *f, const named *n, int from, int count)
{
    static const char *const names[] = {"b", "a"};
    torch_op(f, "}(");
    put_group_values(f);
    cz__pickle_put_text(&f->p, "params");
    torch_op(f, "](");
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(&f->p, from + i);
    torch_op(f, "e");
    if (n->names) {
        cz__pickle_put_text(&f->p, "param_names");
        torch_op(f, "](");
        for (int i = 0; i < count; i++)
            cz__pickle_put_text(&f->p, names[from + i]);
        torch_op(f, "e");
    }
    torch_op(f, "u");
}

static void write_named(named *n)
{
    torch_file file;
    begin_form(&n->form, &file, "adam");
    add_storages(&file);
    torch_op(&file, "}(");
    if (!n->alone) {
        cz__pickle_put_text(&file.p, "model");
        torch_op(&file, "}(");
        torch_named(&file, "a", &a_view);
        torch_named(&file, "b", &b_view);
        torch_op(&file, "u");
    }
    cz__pickle_put_text(&file.p, "optimizer");
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "state");
    torch_op(&file, "}(");
    put_entry(&file, 0, &a_view, 3);
    put_entry(&file, 1, &b_view, 4);
    torch_op(&file, "u");
    cz__pickle_put_text(&file.p, "param_groups");
    torch_op(&file, "](");
    put_params(&file, n, 0, n->groups ? 1 : 2);
    if (n->groups)
        put_params(&file, n, 1, 1);
    torch_op(&file, "euu");
    write_form(&n->form, &file);
}

static cz_status look(const named *n, const cz_optim *optim, const cz_model *model,
                      const char *notes)
{
    for (int number = 0; number < 2; number++) {
        const void *data;
        int64_t count;
        const int64_t param = cz_model_find(model, (number == 0) == (n->first == 0) ? "a" : "b");
        CZ_TRY(cz_optim_state(optim, param, "exp_avg", 0, &data, &count));
        if (cz__optim_step_count(optim, param) != 3 + number ||
            ((const float *)data)[0] != (number ? 10 : 1))
            return cz_fail(CZ_ERR_STATE, "'%s' has step %d and exp_avg %g",
                           cz__model_name(model, param), (int)cz__optim_step_count(optim, param),
                           (double)((const float *)data)[0]);
    }
    const char *found = strstr(notes, "numbers its parameters and does not name them");
    const bool right = n->note ? found && strstr(found, n->note) : !found;
    return right ? CZ_OK : cz_fail(CZ_ERR_STATE, "notes: '%s'", notes);
}

static cz_status import_named(cz_group *group, void *context)
{
    static const int64_t two[] = {2}, members[][1] = {{0}, {1}};
    const named *n = context;
    float values[2][2] = {{0}}, grads[2][2];
    cz_model *model = NULL;
    cz_optim *optim = NULL;
    cz_checkpoint *checkpoint = NULL;
    const cz_param_group groups[] = {{sizeof *groups, members[0], 1, NULL},
                                     {sizeof *groups, members[1], 1, NULL}};
    cz_optim_options of_optim = CZ_OPTIM_OPTIONS_INIT;
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    of_optim.groups = n->groups ? groups : NULL;
    of_optim.group_count = n->groups ? 2 : 0;
    cz_status status = cz_model_create(&model);
    for (int p = 0; status == CZ_OK && p < 2; p++)
        status = cz_model_add(model, (p == 0) == n->swapped ? "b" : "a", values[p], grads[p],
                              CZ_F32, 1, two);
    THEN(cz_optim_create(&optim, model, cz_rule_adam(), NULL, &of_optim));
    options.model = model;
    options.optim = optim;
    THEN(cz_checkpoint_create(&checkpoint, group, "not used", &options));
    cz_load_options load = CZ_LOAD_OPTIONS_INIT;
    load.permissive = n->alone;
    THEN(cz_checkpoint_import(checkpoint, n->form.job.path, &load, NULL));
    THEN(look(n, optim, model, cz_checkpoint_notes(checkpoint)));
    cz_checkpoint_destroy(&checkpoint);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
    return status;
}

static void import(named n)
{
    write_named(&n);
    for (int world = 1; world <= 3; world += 2)
        assert_ranks_ok(world, import_named, &n);
    remove_folder(n.form.job.folder);
}

TEST(numbers_are_of_the_order_of_the_files_model)
{
    import((named){.swapped = false});
    import((named){.swapped = true});
}

TEST(names_of_groups_are_followed)
{
    for (int swapped = 0; swapped < 2; swapped++)
        for (int alone = 0; alone < 2; alone++)
            import((named){.swapped = swapped, .names = true, .first = 1, .alone = alone});
}

TEST(what_no_name_says_is_noted)
{
    import((named){.groups = true, .note = "in the order of the file's model"});
    import((named){.groups = true, .swapped = true, .first = 1, .note = "the optimizer here"});
    import((named){.alone = true, .note = "in its order"});
    import((named){.alone = true, .swapped = true, .first = 1, .note = "in its order"});
}
