/* SPDX-License-Identifier: MIT */
/* States of hooks that differ between ranks by what happened to them since they were made: refused
 * when the pass begins, by all ranks with one sentence that has hook and setting. */
#include <string.h>

#include "czero/czero.h"
#include "support/cz_test.h"
#include "support/training.h"

enum { PARAMS = 2 };
static const int64_t sizes[PARAMS] = {48, 120};
static const int64_t rows[PARAMS] = {6, 10};
static const cz_test_training layout = {
    .param_count = PARAMS, .sizes = sizes, .rows = rows, .dtype = CZ_F32};

typedef struct subject {
    cz_group *group;
    cz_test_memory memory;
    cz_ddp *ddp;
    cz_powersgd *powersgd;
    int64_t width;
    cz_hook inner;
} subject;

static cz_status pass(const subject *s)
{
    CZ_TRY(cz_ddp_begin(s->ddp, true));
    for (int p = 0; p < PARAMS; p++) {
        for (int64_t i = 0; i < sizes[p]; i++)
            cz_test_store(s->memory.grads[p], CZ_F32, i,
                          cz_test_gradient(cz_group_rank(s->group), 1, i * i));
        CZ_TRY(cz_ddp_mark_ready(s->ddp, p));
    }
    return cz_ddp_finish(s->ddp);
}

static cz_status expect_refused(const subject *s, const char *words)
{
    const cz_status status = cz_ddp_begin(s->ddp, true);
    CHECK(status == CZ_ERR_MISMATCH && strstr(cz_last_error(), words), "%s: %.200s, wanted: %s",
          cz_status_name(status), cz_last_error(), words);
    return CZ_OK;
}

static cz_status create(subject *s, cz_group *group)
{
    *s = (subject){.group = group, .width = 8};
    CZ_TRY(cz_test_memory_create(&s->memory, &layout));
    return cz_ddp_create(&s->ddp, group, s->memory.model, NULL);
}

static void clear(subject *s)
{
    cz_ddp_destroy(&s->ddp);
    cz_powersgd_destroy(&s->powersgd);
    cz_test_memory_destroy(&s->memory);
}

/* Loaded on one rank only; then on all. */
static cz_status powersgd(subject *s, bool odd)
{
    cz_powersgd_options options = CZ_POWERSGD_OPTIONS_INIT;
    cz_state_dict *dict = NULL;
    options.start_iter = -1;
    CZ_TRY(cz_powersgd_create(&s->powersgd, s->memory.model, &options));
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "powersgd", s->powersgd));
    CZ_TRY(pass(s));
    CZ_TRY(cz_powersgd_state_dict(s->powersgd, &dict));
    cz_status status = odd ? cz_powersgd_load_state_dict(s->powersgd, dict) : CZ_OK;
    if (status == CZ_OK) /* of the same iteration even */
        status = expect_refused(s, "what was loaded (its fingerprint) of hook 'powersgd' is");
    THEN(pass(s) == CZ_ERR_MISMATCH ? CZ_OK : CZ_ERR_INTERNAL);
    THEN(cz_powersgd_load_state_dict(s->powersgd, dict));
    THEN(pass(s));
    cz_state_dict_destroy(&dict);
    return status;
}

static cz_status width(subject *s, bool odd)
{
    s->width = odd ? 16 : 8;
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "quantize_per_channel", &s->width));
    CZ_TRY(
        expect_refused(s, "the width of hook 'quantize_per_channel' is 16 on rank 1, 8 on rank"));
    s->width = 8;
    return pass(s);
}

static cz_status wrapped(subject *s, bool odd)
{
    s->width = odd ? 16 : 8;
    s->inner = (cz_hook)CZ_HOOK_INIT;
    CZ_TRY(cz_hook_find(&s->inner, "quantize_per_channel", s->memory.model, &s->width));
    CZ_TRY(cz_ddp_register_hook_by_name(s->ddp, "fp16_compress", &s->inner));
    return expect_refused(s, "the width of hook 'quantize_per_channel' is 16 on rank 1, 8 on rank");
}

typedef cz_status (*body)(subject *s, bool odd);

static cz_status each_rank(cz_group *group, void *arg)
{
    subject s;
    cz_status status = create(&s, group);
    THEN((*(const body *)arg)(&s, cz_group_rank(group) == 1));
    clear(&s);
    return status;
}

static void run(body what)
{
    for (int world = 2; world <= 3; world++)
        assert_ranks_ok(world, each_rank, &what);
}

TEST(a_powersgd_state_that_one_rank_loaded_is_refused)
{
    run(powersgd);
}

TEST(widths_of_channels_are_compared)
{
    run(width);
}

TEST(hooks_inside_others_are_compared)
{
    run(wrapped);
}

/* ---- an optimizer that does not know of the ddp ---- */

static int lines_said;

static void count_lines(cz_log_level level, const char *line, void *context)
{
    lines_said += level == CZ_LOG_WARN && strstr(line, "option ddp") != NULL;
}

static cz_status forgets(cz_group *group, void *arg)
{
    const int what = *(const int *)arg;
    cz_zero *zero = NULL;
    cz_zero_options options = CZ_ZERO_OPTIONS_INIT;
    subject s;
    CZ_TRY(create(&s, group));
    options.ddp = what == 1 ? s.ddp : NULL;
    options.gradients = what == 2 ? CZ_GRADIENTS_REDUCED : CZ_GRADIENTS_LOCAL;
    if (what == 3)
        cz_ddp_destroy(&s.ddp);
    cz_status status = cz_zero_create(&zero, group, s.memory.model, cz_rule_adam(), NULL, &options);
    if (status == CZ_OK && what == 3) /* the other way round */
        status = cz_ddp_create(&s.ddp, group, s.memory.model, NULL);
    cz_zero_destroy(&zero);
    clear(&s);
    return status;
}

TEST(a_forgotten_ddp_is_said)
{
    static const int said[] = {1, 0, 0, 1};
    char why[256];
    cz_log_set_sink(count_lines, NULL);
    for (int what = 0; what < 4; what++) {
        lines_said = 0;
        if (cz_test_run_ranks(2, forgets, &what, why) != CZ_OK)
            fail_msg("%d: %s", what, why);
        assert_int_equal(lines_said, said[what]);
    }
    cz_log_set_sink(NULL, NULL);
}
