/* SPDX-License-Identifier: MIT */
/* What a sharded optimizer has in common with those of the other ranks. */
#include "base/fingerprint.h"
#include "base/options.h"
#include "optim/optim.h"
#include "zero/zero.h"

static const char *const partition_words[] = {"elements", "greedy",        "given",
                                              "buckets",  "bucket pieces", NULL};
static const char *const gradient_words[] = {"local", "reduced", "sum", NULL};

const cz__option_table cz__zero_options = CZ__OPTION_TABLE(
    cz_zero_options,
    CZ__OPTION(cz_zero_options, partition, CZ__COMPARED_APART, CZ__WORDS(partition_words)),
    CZ__OPTION(cz_zero_options, gradients, CZ__COMPARED, CZ__WORDS(gradient_words)),
    CZ__OPTION(cz_zero_options, groups, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, group_count, CZ__COMPARED_APART, CZ__FROM(0)),
    CZ__OPTION(cz_zero_options, owners, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, owner_count, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, parameters_as_bucket_view, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_zero_options, overlap, CZ__COMPARED, CZ__BETWEEN(0, CZ_OVERLAP_STEP)),
    CZ__OPTION(cz_zero_options, moved, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_zero_options, moved_context, CZ__LOCAL, CZ__ANY),
    CZ__OPTION(cz_zero_options, ddp, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, overlap_gather, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_zero_options, threads, CZ__LOCAL, CZ__FROM(0)),
    CZ__OPTION(cz_zero_options, parts, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, master, CZ__COMPARED_APART, CZ__BETWEEN(0, CZ_MASTER_NONE)),
    CZ__OPTION(cz_zero_options, state_dtype, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, seed, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, average, CZ__COMPARED_APART, CZ__ANY),
    CZ__OPTION(cz_zero_options, u8_from, CZ__COMPARED_APART, CZ__FROM(0)));

void cz__describe_partition(cz__description *d, const cz_zero *zero, cz_partition partition,
                            const int *owners)
{
    cz__describe_word(d, &(cz__subject){NULL, "option partition", -1, NULL, "is"}, partition_words,
                      partition);
    if (owners) {
        for (int64_t p = 0; p < zero->param_count; p++)
            cz__describe_number(d,
                                &(cz__subject){"the owner", "parameter", p,
                                               cz__model_name(zero->model, p), "is given as"},
                                CZ__FIELD_NUMBER, owners[p]);
    }
}

static const char *const weight_words[] = {"without weights", "with weights", NULL};

static void describe_norm(const cz_zero *zero, cz__description *d)
{
    cz__describe_options(d, &cz__step_options, cz__optim_step_options(zero->optim),
                         &(cz__subject){NULL, "the step", -1, NULL, "is"});
    cz__describe_loss_scale(d, zero->optim);
}

static void describe_settings(const cz_zero *zero, cz__description *d)
{
    cz__describe_trainable(d, zero->model);
    cz__describe_hypers(d, zero->optim);
}

void cz__describe_settings(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    describe_settings(zero, d);
}

void cz__describe_step(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    describe_norm(zero, d);
    cz__describe_word(d, &(cz__subject){NULL, "the mean", -1, NULL, "is"}, weight_words,
                      cz__zero_has_weights(zero));
    describe_settings(zero, d);
}

void cz__describe_groups(cz__description *d, const void *context)
{
    const cz_zero *zero = context;
    cz__describe_call(d, &zero->object);
    cz__describe_members(d, zero->optim);
    cz__describe_other_rules(d, zero->optim);
    describe_settings(zero, d);
}

void cz__describe_all(cz__description *d, const void *context)
{
    const cz__creation *creation = context;
    const cz_zero *zero = creation->zero;
    cz__describe_params(d, zero->model);
    cz__describe_rule(d, zero->rule);
    cz__describe_members(d, zero->optim);
    cz__describe_other_rules(d, zero->optim);
    cz__describe_partition(d, zero, creation->options->partition, creation->options->owners);
    cz__describe_object(d, &(cz__subject){NULL, "option ddp", -1, NULL, "is"},
                        zero->ddp ? cz__ddp_object(zero->ddp) : NULL);
    cz__describe_parts(d, zero->parts);
    cz__describe_options(d, &cz__zero_options, creation->options, NULL);
    cz__describe_sharing(d, zero);
    describe_settings(zero, d);
    cz__describe_buffers(d, zero->model);
}

cz_status cz__zero_write_settings(cz_zero *zero)
{
    zero->settings.count = 0;
    zero->settings.status = CZ_OK;
    cz__describe_step(&zero->settings, zero);
    return zero->settings.status;
}

/* There is room since create, unless hyper-parameters were added. */
cz_status cz__zero_have_room_for_settings(cz_zero *zero)
{
    int64_t hypers = 0;
    for (int64_t g = 0; g < cz__optim_group_count(zero->optim); g++)
        hypers += cz__optim_hyper_count(zero->optim, g);
    if (hypers == zero->described)
        return CZ_OK;
    CZ_TRY(cz__zero_write_settings(zero));
    zero->described = hypers;
    return CZ_OK;
}

uint64_t cz__zero_settings_print(const cz_zero *zero)
{
    const uint64_t weights = cz__zero_has_weights(zero);
    uint64_t print = cz__fingerprint_elements(weights, &zero->object, sizeof zero->object);
    print = cz__options_print(&cz__step_options, cz__optim_step_options(zero->optim), print);
    print = cz__loss_scale_print(zero->optim, print);
    for (int64_t g = 0; g < cz__optim_group_count(zero->optim); g++)
        print = cz__optim_hypers_print(zero->optim, g, print);
    return cz__fingerprint_elements(print, zero->tables.trainable, (size_t)zero->param_count);
}
