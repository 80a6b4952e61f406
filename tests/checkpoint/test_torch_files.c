/* SPDX-License-Identifier: MIT */
/* Files as other programs write them: the forms of a checkpoint, views of storages, byte orders; and those that nobody
 * should have written. */
#include "checkpoint/torch_files.h"

#include "checkpoint/bundle.h"

/* ---- a small training ---- */

typedef struct little {
    cz_model *model;
    cz_optim *optim;
    cz_checkpoint *checkpoint;
    float w[6], b[2], grads[8];
    int64_t n;
} little;

static void close_little(little *l)
{
    cz_checkpoint_destroy(&l->checkpoint);
    cz_optim_destroy(&l->optim);
    cz_model_destroy(&l->model);
}

static cz_status open_little(little *l, cz_group *group, const char *rule)
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

static void add_storages(torch_file *f)
{
    static const int64_t seven = 7;
    torch_add(f, "data/0", floats, sizeof floats);
    torch_add(f, "data/1", &seven, sizeof seven);
}

static void put_model(torch_file *f)
{
    torch_op(f, "}(");
    torch_named(f, "w", &w_view);
    torch_named(f, "b", &b_view);
    torch_named(f, "n", &n_view);
    torch_op(f, "u");
}

static void put_entry(torch_file *f, int number, const torch_view *view, double step)
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

static void put_group_values(torch_file *f)
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

static void put_optimizer(torch_file *f)
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

static cz_status check_values(const little *l, bool loaded)
{
    for (int i = 0; i < 6; i++)
        if (l->w[i] != (loaded ? (float)(i + 1) : 9))
            return cz_fail(CZ_ERR_STATE, "w[%d] is %g", i, (double)l->w[i]);
    return l->b[0] == (loaded ? 10 : 9) && l->b[1] == (loaded ? 11 : 9) && l->n == (loaded ? 7 : 9)
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "b or n is wrong");
}

static cz_status check_state(const little *l)
{
    const void *data;
    int64_t count;
    double lr, beta2, initial;
    CZ_TRY(cz_optim_get_hyper(l->optim, 0, "lr", &lr));
    CZ_TRY(cz_optim_get_hyper(l->optim, 0, "beta2", &beta2));
    CZ_TRY(cz_optim_get_hyper(l->optim, 0, "initial_lr", &initial));
    if (lr != 0.25 || beta2 != 0.75 || initial != 0.5)
        return cz_fail(CZ_ERR_STATE, "lr %g, beta2 %g, initial_lr %g", lr, beta2, initial);
    if (cz_optim_step_count(l->optim, 0) != 3 || cz_optim_step_count(l->optim, 1) != 4)
        return cz_fail(CZ_ERR_STATE, "other steps");
    CZ_TRY(cz_optim_state(l->optim, 0, "exp_avg_sq", 0, &data, &count));
    return count == 6 && memcmp(data, floats + 1, 24) == 0
               ? CZ_OK
               : cz_fail(CZ_ERR_STATE, "exp_avg_sq of w is wrong");
}

static cz_status import_form(cz_group *group, void *context)
{
    const form *f = context;
    little l;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    cz_status status = open_little(&l, group, f->rule);
    if (status == CZ_OK)
        status = cz_checkpoint_import(l.checkpoint, f->job.path, &f->job.load, &result);
    if (status == CZ_OK)
        status = check_values(&l, f->values);
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

static void import_everywhere(form *f)
{
    for (int world = 1; world <= 7; world += 2)
        run(import_form, world, (job *)f);
}

static void begin_form(form *f, torch_file *file, const char *rule)
{
    *f = (form){.rule = rule, .values = true};
    begin(&f->job, "model.pt");
    *file = (torch_file){.count = 0};
    cz__pickle_begin(&file->p);
}

static void write_form(form *f, torch_file *file)
{
    cz__pickle_end(&file->p);
    torch_write(file, f->job.path);
}

/* ---- the forms that people write ---- */

static void test_a_model_alone(void **state)
{
    form f;
    torch_file file;
    begin_form(&f, &file, NULL);
    add_storages(&file);
    put_model(&file);
    write_form(&f, &file);
    import_everywhere(&f);
    f.rule = "adam"; /* whose state stays as it is */
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

static void test_a_model_under_a_name(void **state)
{
    static const char *const names[] = {"model", "model_state_dict", "state_dict"};
    for (int i = 0; i < 3; i++) {
        form f;
        torch_file file;
        begin_form(&f, &file, "sgd");
        file.prefix = "some_name";
        add_storages(&file);
        torch_add(&file, "byteorder", "little", 6);
        torch_add(&file, ".data/serialization_id", "0123456789", 10);
        torch_add(&file, ".format_version", "1", 1);
        torch_add(&file, "version", "3\n", 2);
        torch_op(&file, "}(");
        cz__pickle_put_text(&file.p, "epoch");
        cz__pickle_put_integer(&file.p, 12);
        cz__pickle_put_text(&file.p, names[i]);
        put_model(&file);
        torch_op(&file, "u");
        write_form(&f, &file);
        import_everywhere(&f);
        remove_folder(f.job.folder);
    }
}

static void test_a_model_and_its_optimizer(void **state)
{
    form f;
    torch_file file;
    begin_form(&f, &file, "adam");
    add_storages(&file);
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "model_state_dict");
    put_model(&file);
    cz__pickle_put_text(&file.p, "optimizer_state_dict");
    put_optimizer(&file);
    torch_op(&file, "u");
    write_form(&f, &file);
    f.state = true;
    import_everywhere(&f);
    f.rule = "adamw"; /* whose groups have the same values */
    import_everywhere(&f);
    f.rule = "sgd";
    char why[256];
    assert_int_equal(cz_test_run_ranks(2, import_form, &f, why), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(why, "rule is sgd, in the checkpoint adam"));
    remove_folder(f.job.folder);
}

static void test_an_optimizer_alone(void **state)
{
    form f;
    torch_file file;
    begin_form(&f, &file, "adam");
    add_storages(&file);
    put_optimizer(&file);
    write_form(&f, &file);
    f.state = true;
    f.values = false;
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

/* A program with several, as Lightning writes even one: what is not read is said. */
static void test_a_list_of_optimizers(void **state)
{
    form f;
    torch_file file;
    begin_form(&f, &file, "adam");
    add_storages(&file);
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "state_dict");
    put_model(&file);
    cz__pickle_put_text(&file.p, "optimizer_states");
    torch_op(&file, "](");
    put_optimizer(&file);
    torch_op(&file, "eu");
    write_form(&f, &file);
    f.note = "'optimizer_states' is a list, wanted the dictionary of one optimizer";
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

/* Each allocation that fails is said, and nothing is left. */
static void test_memory(void **state)
{
    form f;
    torch_file file;
    begin_form(&f, &file, NULL);
    add_storages(&file);
    torch_op(&file, "}(");
    cz__pickle_put_text(&file.p, "state_dict");
    put_model(&file);
    cz__pickle_put_text(&file.p, "optimizer");
    put_optimizer(&file);
    torch_op(&file, "u");
    write_form(&f, &file);
    const int64_t before = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz__bundle *b;
        cz_test_fail_allocation(n);
        const cz_status status = cz__bundle_open(&b, f.job.path, NULL);
        const bool failed = cz_test_allocation_reset();
        assert_true(failed || strstr(cz__bundle_notes(b), "Adam or AdamW"));
        cz__bundle_close(&b);
        assert_int_equal(cz_test_allocations_held(), before);
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        if (!failed)
            break;
        assert_true(n < 1000);
    }
    remove_folder(f.job.folder);
}

/* ---- views ---- */

typedef struct seen {
    torch_view view;
    const char *entry;
    size_t bytes;
    cz_dtype dtype;
    int64_t count;
    double values[12];
    bool big;
} seen;

static double value_at(const void *data, cz_dtype dtype, int64_t i)
{
    double value = 0;
    if (dtype == CZ_I64)
        return (double)((const int64_t *)data)[i];
    if (dtype == CZ_U8)
        return ((const uint8_t *)data)[i];
    if (dtype == CZ_F32)
        return (double)((const float *)data)[i];
    if (dtype == CZ_F64)
        return ((const double *)data)[i];
    const uint16_t bits = ((const uint16_t *)data)[i];
    if (dtype == CZ_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float f;
        memcpy(&f, &wide, sizeof f);
        value = (double)f;
    }
    return value;
}

static void check_view(const seen *s)
{
    form f;
    torch_file file;
    cz__bundle *b;
    char got[12 * 8];
    begin_form(&f, &file, NULL);
    torch_add(&file, "data/0", s->entry, s->bytes);
    if (s->big)
        torch_add(&file, "byteorder", "big", 3);
    torch_op(&file, "}(");
    torch_named(&file, "x", &s->view);
    torch_op(&file, "u");
    write_form(&f, &file);
    if (cz__bundle_open(&b, f.job.path, NULL) != CZ_OK)
        fail_msg("%s", cz_last_error());
    const cz__located *found = cz__bundle_find(b, "x");
    assert_non_null(found);
    assert_int_equal(found->entry->dtype, s->dtype);
    assert_int_equal(found->entry->end, (uint64_t)s->count * cz_dtype_size(s->dtype));
    for (int64_t begin = 0; begin <= s->count; begin++) /* any part of it */
        for (int64_t end = begin; end <= s->count; end++) {
            CZ_CHECK(cz__bundle_read(b, "x", begin, end, got));
            for (int64_t i = begin; i < end; i++)
                if (value_at(got, s->dtype, i - begin) != s->values[i])
                    fail_msg("%s, element %d is %g, wanted %g", s->view.storage, (int)i,
                             value_at(got, s->dtype, i - begin), s->values[i]);
        }
    cz__bundle_close(&b);
    remove_folder(f.job.folder);
}

static void test_views(void **state)
{
    static const unsigned char bf16[] = {0x80, 0x3f, 0, 0x40, 0x40, 0x40}; /* 1 2 3 */
    static const unsigned char big[] = {0x3f, 0x80, 0, 0, 0x40, 0, 0, 0};
    static const unsigned char longs[] = {0, 0, 0, 0, 0, 0, 1, 2};
    const char *const raw = (const char *)floats;
    const seen views[] = {
        {{"FloatStorage", "0", 12, 0, {3, 4, -1}, {1, 3, -1}},
         raw,
         48,
         CZ_F32,
         12,
         {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11},
         false}, /* transposed */
        {{"FloatStorage", "0", 12, 1, {2, 2, 2, -1}, {1, 6, 2, -1}},
         raw,
         48,
         CZ_F32,
         8,
         {1, 3, 7, 9, 2, 4, 8, 10},
         false},
        {{"FloatStorage", "0", 12, 2, {2, 3, -1}, {0, 1, -1}},
         raw,
         48,
         CZ_F32,
         6,
         {2, 3, 4, 2, 3, 4},
         false}, /* expanded */
        {{"FloatStorage", "0", 12, 5, {4, -1}, {0, -1}}, raw, 48, CZ_F32, 4, {5, 5, 5, 5}, false},
        {{"FloatStorage", "0", 12, 3, {2, 2, -1}, {4, 1, -1}},
         raw,
         48,
         CZ_F32,
         4,
         {3, 4, 7, 8},
         false}, /* columns of a matrix */
        {{"FloatStorage", "0", 12, 11, {-1}, {-1}}, raw, 48, CZ_F32, 1, {11}, false},
        {{"FloatStorage", "0", 12, 11, {1, 1, -1}, {1000, 7, -1}}, raw, 48, CZ_F32, 1, {11}, false},
        {{"FloatStorage", "0", 12, 12, {3, 0, -1}, {0, 1, -1}}, raw, 48, CZ_F32, 0, {0}, false},
        {{"BFloat16Storage", "0", 3, 0, {3, -1}, {1, -1}},
         (const char *)bf16,
         6,
         CZ_BF16,
         3,
         {1, 2, 3},
         false},
        {{"BoolStorage", "0", 2, 0, {2, -1}, {1, -1}}, "\1\0", 2, CZ_U8, 2, {1, 0}, false},
        {{"FloatStorage", "0", 2, 0, {2, -1}, {1, -1}},
         (const char *)big,
         8,
         CZ_F32,
         2,
         {1, 2},
         true},
        {{"LongStorage", "0", 1, 0, {2, -1}, {0, -1}},
         (const char *)longs,
         8,
         CZ_I64,
         2,
         {258, 258},
         true},
        {{"ByteStorage", "0", 2, 0, {2, -1}, {1, -1}}, "\1\2", 2, CZ_U8, 2, {1, 2}, true},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        check_view(&views[i]);
}

static void refuse_view(const torch_view *view, size_t bytes, cz_status status, const char *says)
{
    form f;
    torch_file file;
    begin_form(&f, &file, NULL);
    torch_add(&file, "data/0", floats, bytes);
    torch_op(&file, "}(");
    torch_named(&file, "layer.x", view);
    torch_op(&file, "u");
    write_form(&f, &file);
    expect(&f.job, 3, status, "'layer.x'", says);
    remove_folder(f.job.folder);
}

static void test_views_that_are_refused(void **state)
{
    static const struct {
        torch_view view;
        cz_status status;
        const char *says;
    } cases[] = {
        {{"FloatStorage", "0", 12, 1, {3, 4, -1}, {4, 1, -1}}, CZ_ERR_FORMAT, "beyond its storage"},
        {{"FloatStorage", "0", 12, 12, {-1}, {-1}}, CZ_ERR_FORMAT, "beyond its storage"},
        {{"FloatStorage", "0", 12, 0, {2, -1}, {12, -1}}, CZ_ERR_FORMAT, "beyond its storage"},
        {{"FloatStorage", "0", 12, INT64_MAX, {2, -1}, {1, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "0", 12, 0, {INT64_MAX, INT64_MAX, -1}, {0, 0, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "0", 12, 0, {3, -1}, {INT64_MAX, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "0", 12, 2, {3, -1}, {-2, -1}}, CZ_ERR_FORMAT, "a stride that is no"},
        {{"FloatStorage", "0", 12, 2, {-3, -1}, {1, -1}}, CZ_ERR_FORMAT, "a size that is no"},
        {{"FloatStorage", "0", 12, -5, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "offset"},
        {{"FloatStorage", "0", 12, 0, {3, -1}, {1, 1, -1}}, CZ_ERR_FORMAT, "as many strides"},
        {{"FloatStorage", "0", 13, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "48 bytes, wanted 52"},
        {{"DoubleStorage", "0", 12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "48 bytes, wanted 96"},
        {{"FloatStorage", "0", -12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "size"},
        {{"FloatStorage", "0", INT64_MAX, 0, {3, -1}, {1, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "7", 12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "'7' is not in the file"},
        {{"FloatStorage", "../version", 12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "not in the file"},
        {{"ShortStorage", "0", 24, 0, {3, -1}, {1, -1}}, CZ_ERR_UNSUPPORTED, "torch.ShortStorage"},
        {{"ComplexFloatStorage", "0", 6, 0, {3, -1}, {1, -1}}, CZ_ERR_UNSUPPORTED, "ComplexFloat"},
        {{"FloatStorage",
          "0",
          12,
          0,
          {1, 1, 1, 1, 1, 1, 1, 1, 1, -1},
          {1, 1, 1, 1, 1, 1, 1, 1, 1, -1}},
         CZ_ERR_UNSUPPORTED,
         "9 dimensions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse_view(&cases[i].view, sizeof floats, cases[i].status, cases[i].says);
}

/* ---- forms that are refused ---- */

static void refuse_form(const char *opcodes, size_t count, cz_status status, const char *says)
{
    form f;
    torch_file file = {.count = 0};
    begin_form(&f, &file, NULL);
    cz__text_clear(&file.p.out);
    (void)cz__text_append(&file.p.out, opcodes, count);
    torch_write(&file, f.job.path);
    expect(&f.job, 2, status, "model.pt", says);
    remove_folder(f.job.folder);
}

#define REFUSE(literal, status, says) refuse_form(literal, sizeof(literal) - 1, status, says)

static void test_forms_that_are_refused(void **state)
{
    REFUSE("\x80\2K\1.", CZ_ERR_FORMAT, "an integer, wanted a dictionary");
    REFUSE("\x80\2}(X\5\0\0\0epochK\1X\3\0\0\0net}u.", CZ_ERR_FORMAT, "'epoch', 'net'");
    REFUSE("\x80\2}(X\5\0\0\0model}X\x0a\0\0\0state_dict}u.", CZ_ERR_FORMAT, "which of them");
    REFUSE("\x80\2}(X\5\0\0\0model}X\x09\0\0\0optimizer}u.", CZ_ERR_FORMAT, "'param_groups'");
    REFUSE("\x80\2}(X\5\0\0\0model}(X\1\0\0\0wK\1uu.", CZ_ERR_FORMAT, "'w' is an integer");
    REFUSE("\x80\2}(X\5\0\0\0model}(K\1K\1uu.", CZ_ERR_FORMAT, "an integer as the name");
    REFUSE("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups]u.", CZ_ERR_FORMAT,
           "no parameter groups");
    REFUSE("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups](}eu.", CZ_ERR_FORMAT,
           "no list of params");
    REFUSE("\x80\2}(X\5\0\0\0state}X\x0c\0\0\0param_groups](}(X\6\0\0\0params](K\1eueu.",
           CZ_ERR_FORMAT, "which is which");
    REFUSE("\x80\2}(X\5\0\0\0model}X\5\0\0\0czero}u.", CZ_ERR_FORMAT, "'czero'");
    REFUSE("\x80\2cposix\nsystem\n.", CZ_ERR_FORMAT, "posix.system");
}

/* ---- containers that are refused ---- */

static void write_entries(form *f, torch_file *file, const char *name, const char *bytes)
{
    begin_form(f, file, NULL);
    add_storages(file);
    if (name)
        torch_add(file, name, bytes, strlen(bytes));
    put_model(file);
    write_form(f, file);
}

static void test_containers_that_are_refused(void **state)
{
    static const struct {
        const char *name, *bytes;
        cz_status status;
        const char *says;
    } cases[] = {
        {"byteorder", "middle", CZ_ERR_FORMAT, "'middle'"},
        {"version", "11\n", CZ_ERR_UNSUPPORTED, "version 11"},
        {"version", "x", CZ_ERR_UNSUPPORTED, "version 0"},
        {"constants.pkl", "x", CZ_ERR_UNSUPPORTED, "torch.jit.load(old).state_dict()"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        form f;
        torch_file file;
        write_entries(&f, &file, cases[i].name, cases[i].bytes);
        expect(&f.job, 2, cases[i].status, "model.pt", cases[i].says);
        remove_folder(f.job.folder);
    }
}

/* What the file said is overwritten where it stands last: in the central directory. */
static void forge(const form *f, const char *name, size_t offset, const void *bytes, size_t count)
{
    size_t size;
    char *all = read_whole(f->job.path, &size), *at = NULL, *next = all;
    while ((next = memmem(next, size - (size_t)(next - all), name, strlen(name))))
        at = next++;
    assert_non_null(at);
    memcpy(at - 46 + offset, bytes, count); /* the name is behind 46 bytes of its header */
    write_whole(f->job.path, all, size);
    free(all);
}

static void test_directories_that_lie(void **state)
{
    static const struct {
        const char *name;
        size_t offset;
        const char *bytes;
        size_t count;
        const char *says;
    } lies[] = {
        {"archive/data/0", 10, "\x08", 1, "compressed"},
        {"archive/data/0", 8, "\x01", 1, "encrypted"},
        {"archive/data/0", 16, "abcd", 4, "CRC"},
        {"archive/data.pkl", 16, "abcd", 4, "CRC"},
        {"archive/data/0", 24, "\x31", 1, ""}, /* another size */
        {"archive/data/0", 20, "\xff\xff\xff\x7f", 4, ""},
        {"archive/data/1", 42, "\0\0\0\0", 4, ""}, /* the bytes of another entry */
        {"archive/data/1", 42, "\xff\xff\xff\x7f", 4, ""},
        {"archive/data/1", 59, "0", 1, "twice"}, /* its name */
        {"archive/data.pkl", 54, "x", 1, "NAME/data.pkl"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        form f;
        torch_file file;
        write_entries(&f, &file, NULL, NULL);
        forge(&f, lies[i].name, lies[i].offset, lies[i].bytes, lies[i].count);
        expect(&f.job, 2, CZ_ERR_FORMAT, "model.pt", lies[i].says);
        remove_folder(f.job.folder);
    }
}

/* Cut off anywhere, and with any byte another one: refused, or as it was. */
static void test_files_that_are_damaged(void **state)
{
    form f;
    torch_file file;
    size_t count;
    cz__bundle *b;
    write_entries(&f, &file, "version", "3\n");
    char *all = read_whole(f.job.path, &count);
    for (size_t n = 0; n < count; n += 1 + n / 64) {
        write_whole(f.job.path, all, n);
        assert_int_not_equal(cz__bundle_open(&b, f.job.path, NULL), CZ_OK);
        assert_null(b);
    }
    for (size_t n = 0; n < count; n += n % 7 ? 3 : 1) {
        all[n] = (char)(all[n] ^ 0xff);
        write_whole(f.job.path, all, count);
        if (cz__bundle_open(&b, f.job.path, NULL) == CZ_OK)
            (void)cz__bundle_verify(b, 0, 1);
        cz__bundle_close(&b);
        all[n] = (char)(all[n] ^ 0xff);
    }
    free(all);
    remove_folder(f.job.folder);
}

static void test_files_of_older_versions(void **state)
{
    job j;
    begin(&j, "old.pt");
    write_whole(j.path, "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3.", 20);
    expect(&j, 3, CZ_ERR_UNSUPPORTED, "old.pt", "torch.save(torch.load(old), new)");
    remove_folder(j.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_alone),
        cmocka_unit_test(test_a_model_under_a_name),
        cmocka_unit_test(test_a_model_and_its_optimizer),
        cmocka_unit_test(test_an_optimizer_alone),
        cmocka_unit_test(test_a_list_of_optimizers),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_views_that_are_refused),
        cmocka_unit_test(test_forms_that_are_refused),
        cmocka_unit_test(test_containers_that_are_refused),
        cmocka_unit_test(test_directories_that_lie),
        cmocka_unit_test(test_files_that_are_damaged),
        cmocka_unit_test(test_files_of_older_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
