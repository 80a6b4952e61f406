/* SPDX-License-Identifier: MIT */
/* Lists of shapes from texts, JSON and files, what is wrong with others, and options that do not go
 * together. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "czero/optim.h"
#include "czero/plan.h"
#include "support/cz_test.h"
#include "plan/object.h"

static char path[512];

static cz_status read_text(cz_shapes **shapes, const char *text, size_t count)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return cz_shapes_read(shapes, path);
}

static void check(const char *text, size_t count, int64_t trained, int64_t frozen, int64_t buffers)
{
    cz_shapes *shapes;
    if (read_text(&shapes, text, count) != CZ_OK)
        fail_msg("%s", cz_last_error());
    assert_int_equal(cz__shapes_elements(shapes, CZ_SHAPE_PARAM), trained);
    assert_int_equal(cz__shapes_elements(shapes, CZ_SHAPE_FROZEN), frozen);
    assert_int_equal(cz__shapes_elements(shapes, CZ_SHAPE_BUFFER), buffers);
    cz_shapes_destroy(&shapes);
}

TEST(shapes_are_read_from_lines_and_json)
{
    static const char lines[] = "# a model\n\nw f32 3 4 # matrix\nb,F32,4\n scalar f32\r\n"
                                "old f32 7 frozen\nmask u8 5 2 buffer\nempty f32 0 9\n";
    static const char json[] =
        " {\"__metadata__\": {\"a\": \"b\"}, "
        "\"w\": {\"dtype\": \"F32\", \"shape\": [3, 4], \"data_offsets\": [0, 48]},"
        "\"ids\": {\"dtype\": \"I64\", \"shape\": [6]},"
        "\"old\": {\"dtype\": \"F32\", \"shape\": [7], \"kind\": \"frozen\"},"
        "\"s\": {\"dtype\": \"F32\", \"shape\": [], \"kind\": \"buffer\"}}";
    static const char header[] = "{\"w\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}";
    char file[8 + sizeof header + 8] = {0};
    check(lines, sizeof lines - 1, 12 + 4 + 1, 7, 10);
    check(json, sizeof json - 1, 12, 7, 6 + 1);
    file[0] = (char)(sizeof header - 1);
    memcpy(file + 8, header, sizeof header - 1);
    check(file, 8 + sizeof header - 1 + 8, 4, 0, 0);
}

/* Values of 16 bits have state in f32, and a master. */
TEST(values_of_16_bits_have_state_in_f32)
{
    cz_shapes *shapes;
    cz_plan *plan;
    cz_plan_options options = CZ_PLAN_OPTIONS_INIT;
    cz_plan_memory memory = CZ_PLAN_MEMORY_INIT;
    cz_model *model;
    cz_optim *optim;
    cz_optim_info info = CZ_OPTIM_INFO_INIT;
    static uint16_t values[96], gradients[96];
    assert_ok(cz_model_create(&model));
    assert_ok(cz_model_add(model, "w", values, gradients, CZ_BF16, 1, &(int64_t){96}));
    assert_ok(cz_optim_create(&optim, model, cz_rule_adamw(), NULL, NULL));
    assert_ok(cz_optim_get_info(optim, &info));
    assert_ok(cz_shapes_create(&shapes));
    assert_ok(cz_shapes_add(shapes, "w", CZ_BF16, 1, &(int64_t){96}, CZ_SHAPE_PARAM));
    options.unsharded = 1;
    assert_ok(cz_plan_create(&plan, shapes, &options));
    assert_ok(cz_plan_rank(plan, 0, &memory));
    assert_int_equal(info.state_bytes, 96 * 12);
    assert_int_equal(memory.state_bytes, info.state_bytes);
    assert_int_equal(memory.param_bytes, 96 * 2);
    assert_int_equal(memory.gradient_bytes, 96 * 2);
    assert_int_equal(memory.file_bytes, 96 * (2 + 12));
    cz_plan_destroy(&plan);
    cz_shapes_destroy(&shapes);
    cz_optim_destroy(&optim);
    cz_model_destroy(&model);
}

static void refuse(const char *text, cz_status wanted, const char *why)
{
    cz_shapes *shapes = NULL;
    assert_int_equal(read_text(&shapes, text, strlen(text)), wanted);
    assert_null(shapes);
    if (!strstr(cz_last_error(), why))
        fail_msg("'%s' does not say '%s'", cz_last_error(), why);
}

TEST(refusals)
{
    cz_shapes *shapes;
    refuse("", CZ_ERR_ARGUMENT, "no tensor");
    refuse("# nothing\n", CZ_ERR_ARGUMENT, "no tensor");
    refuse("w f32 3\nb 4\n", CZ_ERR_FORMAT, "line 2: 'b'");
    refuse("w f32 3 -1\n", CZ_ERR_FORMAT, "line 1: 'w'");
    refuse("w f32 3x\n", CZ_ERR_FORMAT, "line 1: 'w'");
    refuse("w f32 1 1 1 1 1 1 1 1 1\n", CZ_ERR_FORMAT, "8 sizes");
    refuse("w i32 3\n", CZ_ERR_FORMAT, "floating");
    refuse("w f32 4000000000 4000000000\n", CZ_ERR_FORMAT, "counted");
    refuse("a f32 100000000000000000\nb f32 100000000000000000\n", CZ_ERR_FORMAT, "counted");
    refuse("{\"w\": 3}", CZ_ERR_FORMAT, "'w'");
    refuse("{\"w\": {\"dtype\": \"F32\", \"shape\": [2.5]}}", CZ_ERR_FORMAT, "whole number");
    refuse("{\"w\": ", CZ_ERR_FORMAT, "wanted JSON");
    refuse("[1]", CZ_ERR_FORMAT, "line 1");
    refuse("\n[ {\"name\": \"w\"}]", CZ_ERR_FORMAT, "wanted JSON");
    refuse("w f32 1\nv f32 2\nw f32 3 buffer\nv f32 4\nw f32 5\n", CZ_ERR_FORMAT,
           "line 3: 'w' is there already, in line 1");
    refuse("a\x1b[31mb f99\n", CZ_ERR_FORMAT, "line 1: 'a?[31mb'");
    refuse("a\x1b[31mb i32 3\n", CZ_ERR_FORMAT, "'a?[31mb' is i32");
    refuse("{\"w\": \x1b}", CZ_ERR_FORMAT, "wanted JSON");
    assert_null(strchr(cz_last_error(), '\x1b'));
    assert_int_equal(cz_shapes_read(&shapes, CZ_TEST_BINARY_DIR "/no-such-file"), CZ_ERR_IO);
    assert_int_equal(cz_shapes_read(&shapes, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz_shapes_read(&shapes, CZ_TEST_BINARY_DIR "/tests"), CZ_ERR_ARGUMENT);
}

/* Neither is waited for nor read to its end. */
TEST(no_files)
{
    char pipe[600];
    cz_shapes *shapes;
    snprintf(pipe, sizeof pipe, "%s.pipe", path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(cz_shapes_read(&shapes, pipe), CZ_ERR_IO);
    assert_non_null(strstr(cz_last_error(), "pipe"));
    assert_int_equal(unlink(pipe), 0);
    assert_int_equal(cz_shapes_read(&shapes, "/dev/zero"), CZ_ERR_IO);
    assert_ok(read_text(&shapes, "w f32 3\n", 8));
    cz_shapes_destroy(&shapes);
    assert_int_equal(truncate(path, (off_t)1 << 30), 0);
    assert_int_equal(cz_shapes_read(&shapes, path), CZ_ERR_FORMAT);
    assert_non_null(strstr(cz_last_error(), "at most"));
}

/* ---- options ---- */

static void refuse_plan(const cz_shapes *shapes, cz_plan_options o, cz_status wanted,
                        const char *why)
{
    cz_plan *plan = NULL;
    assert_int_equal(cz_plan_create(&plan, shapes, &o), wanted);
    assert_null(plan);
    if (!strstr(cz_last_error(), why))
        fail_msg("'%s' does not say '%s'", cz_last_error(), why);
}

TEST(options)
{
    const cz_plan_options defaults = CZ_PLAN_OPTIONS_INIT;
    cz_plan_options o = defaults;
    cz_shapes *shapes;
    assert_ok(read_text(&shapes, "w f32 9\n", 8));
    o.world_size = -1;
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "world_size");
    o = defaults, o.partition = CZ_PARTITION_GIVEN;
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "partition");
    o = defaults, o.overlap = (cz_overlap)3;
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "overlap is 3");
    o = defaults, o.unsharded = 1, o.views = 1;
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "views");
    o = defaults, o.wire = CZ_F16;
    refuse_plan(shapes, o, CZ_ERR_UNSUPPORTED, "all_reduce");
    o = defaults, o.unsharded = 1, o.wire = CZ_F32;
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "f16 or bf16");
    o = defaults, o.segment_bytes = 100;
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "segment_bytes");
    o = defaults, o.hypers = CZ_HYPERS({"beta3", 1});
    refuse_plan(shapes, o, CZ_ERR_ARGUMENT, "beta3");
    o = defaults, o.rule = cz_rule_lamb(), o.overlap = CZ_OVERLAP_INTERLEAVED;
    refuse_plan(shapes, o, CZ_ERR_UNSUPPORTED, "rule lamb has partial sums");
    refuse_plan(NULL, defaults, CZ_ERR_ARGUMENT, "shapes");
    cz_shapes_destroy(&shapes);
    assert_ok(read_text(&shapes, "w f32 9 frozen\n", 15));
    refuse_plan(shapes, defaults, CZ_ERR_ARGUMENT, "trainable");
    cz_shapes_destroy(&shapes);
    assert_ok(read_text(&shapes, "w f32 9\nv f16 9\n", 16));
    refuse_plan(shapes, defaults, CZ_ERR_ARGUMENT, "parameter 'v' is f16, the first one f32");
    cz_shapes_destroy(&shapes);
}

/* State follows the rule and its values. */
TEST(slots)
{
    static const struct {
        const char *rule;
        cz_hyper hypers[2];
        unsigned slots;
    } cases[] = {{"sgd", {{NULL, 0}}, 0},
                 {"sgd", {{"momentum", 0.9}, {NULL, 0}}, 1},
                 {"adamw", {{NULL, 0}}, 2},
                 {"adam", {{"amsgrad", 1}, {NULL, 0}}, 3},
                 {"lars", {{NULL, 0}}, 1},
                 {"ademamix", {{NULL, 0}}, 3},
                 {"schedule_free_adamw", {{NULL, 0}}, 2},
                 {"adam_mini", {{NULL, 0}}, 1}};
    cz_shapes *shapes;
    assert_ok(read_text(&shapes, "w f64 64\n", 9));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cz_plan_options o = CZ_PLAN_OPTIONS_INIT;
        cz_plan_memory m = CZ_PLAN_MEMORY_INIT;
        cz_plan *plan;
        o.world_size = 2;
        o.rule = cz_rule_find(cases[k].rule);
        o.hypers = cases[k].hypers;
        assert_ok(cz_plan_create(&plan, shapes, &o));
        assert_ok(cz_plan_rank(plan, 1, &m));
        assert_int_equal(m.state_bytes, cases[k].slots * 32 * sizeof(double));
        assert_ok(cz_plan_rank(plan, CZ_PLAN_ALONE, &m));
        assert_int_equal(m.state_bytes, cases[k].slots * 64 * sizeof(double));
        assert_int_equal(m.sent_bytes, 0);
        assert_int_equal(cz_plan_rank(plan, 2, &m), CZ_ERR_ARGUMENT);
        assert_int_equal(cz_plan_rank(plan, -2, &m), CZ_ERR_ARGUMENT);
        m.size = 3;
        assert_int_equal(cz_plan_rank(plan, 0, &m), CZ_ERR_ARGUMENT);
        cz_plan_destroy(&plan);
    }
    cz_shapes_destroy(&shapes);
}

/* Of a million ranks that need more than a number can hold, together. */
TEST(enormous)
{
    cz_plan_options o = CZ_PLAN_OPTIONS_INIT;
    cz_plan_memory least = CZ_PLAN_MEMORY_INIT, most = least, mean = least, sum = least;
    cz_shapes *shapes;
    cz_plan *plan;
    o.world_size = 1 << 20;
    assert_ok(read_text(&shapes, "a f32 4000000000000\n", 20));
    assert_ok(cz_plan_create(&plan, shapes, &o));
    assert_ok(cz_plan_ranks(plan, &least, &most, &mean, &sum));
    assert_true(least.training_bytes >= (uint64_t)32000000000000);
    assert_true(least.training_bytes <= mean.training_bytes);
    assert_true(mean.training_bytes <= most.training_bytes);
    assert_true(mean.param_bytes == (uint64_t)16000000000000);
    assert_true(sum.training_bytes == UINT64_MAX);
    cz_plan_destroy(&plan);
    cz_shapes_destroy(&shapes);
}

/* An owner of all sends it to everybody: more than a number can hold. */
TEST(enormous_sent)
{
    const int64_t size = INT64_MAX / 64;
    cz_plan_options o = CZ_PLAN_OPTIONS_INIT;
    cz_plan_memory least = CZ_PLAN_MEMORY_INIT, most = least;
    cz_shapes *shapes;
    cz_plan *plan;
    o.world_size = 1 << 20;
    o.partition = CZ_PARTITION_GREEDY;
    assert_ok(cz_shapes_create(&shapes));
    assert_ok(cz_shapes_add(shapes, "a", CZ_F64, 1, &size, CZ_SHAPE_PARAM));
    assert_ok(cz_plan_create(&plan, shapes, &o));
    assert_ok(cz_plan_ranks(plan, &least, &most, NULL, NULL));
    assert_true(most.sent_bytes == UINT64_MAX);
    assert_true(least.sent_bytes == (uint64_t)size * 8);
    cz_plan_destroy(&plan);
    cz_shapes_destroy(&shapes);
}

/* Every allocation fails in turn. */
TEST(no_memory)
{
    cz_plan_options o = CZ_PLAN_OPTIONS_INIT;
    o.world_size = 5;
    o.overlap = CZ_OVERLAP_INTERLEAVED;
    const int64_t held = cz_test_allocations_held();
    for (int64_t n = 1;; n++) {
        cz_shapes *shapes = NULL;
        cz_plan *plan = NULL;
        cz_test_fail_allocation(n);
        cz_status status = cz_shapes_create(&shapes);
        for (int64_t p = 0; p < 40 && status == CZ_OK; p++)
            status = cz_shapes_add(shapes, "w", CZ_F32, 1, &p, CZ_SHAPE_PARAM);
        THEN(cz_plan_create(&plan, shapes, &o));
        const bool failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        cz_plan_destroy(&plan);
        cz_shapes_destroy(&shapes);
        assert_int_equal(cz_test_allocations_held(), held);
        if (!failed)
            break;
    }
}

TEST(no_memory_reading)
{
    cz_shapes *shapes = NULL;
    assert_ok(read_text(&shapes, "a f32 3\nb f32 4\nc u8 1 buffer\n", 30));
    cz_shapes_destroy(&shapes);
    const int64_t held = cz_test_allocations_held();
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
        cz_test_fail_allocation(n);
        const cz_status status = cz_shapes_read(&shapes, path);
        failed = cz_test_allocation_reset();
        assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
        cz_shapes_destroy(&shapes);
        assert_int_equal(cz_test_allocations_held(), held);
    }
}

static int remove_file(void **state)
{
    return unlink(path);
}

int main(void)
{
    snprintf(path, sizeof path, "%s/shapes-%d", CZ_TEST_BINARY_DIR, (int)getpid());
    return cz_test_run(NULL, remove_file);
}
