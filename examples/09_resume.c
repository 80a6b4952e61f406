/* SPDX-License-Identifier: MIT */
/* Checkpoints: stop, and go on with another number of ranks, with the same samples in the same
 * order, so that losses are those of a training without a break. A checkpoint is a folder in which
 * each rank writes what it owns; a job that is killed while it saves leaves the checkpoint before.
 * The model is y = slope x + offset.
 *
 *     CZERO_RANKS=2 09_resume saved 60        trains 60 steps and saves
 *     CZERO_RANKS=5 09_resume saved 120       goes on from there to step 120
 */
#include <stdlib.h>

#include "czero/czero.h"

enum { SAMPLES = 200, BATCH = 20, SEED = 4 };

typedef struct job {
    const char *folder;
    int steps;
} job;

/* Model and optimizer are saved as a matter of course, and with them where the data are. */
static cz_status save(cz_checkpoint *checkpoint, const cz_sampler *sampler, int step)
{
    cz_save_options options = CZ_SAVE_OPTIONS_INIT;
    cz_sampler_info info = CZ_SAMPLER_INFO_INIT;
    cz_state_dict *common;
    CZ_TRY(cz_sampler_get_info(sampler, &info));
    CZ_TRY(cz_state_dict_create(&common));
    CZ_TRY(cz_state_dict_set_integer(common, "position", info.position));
    options.step = step;
    options.common = common;
    CZ_TRY(cz_checkpoint_save(checkpoint, &options));
    cz_state_dict_destroy(&common);
    return CZ_OK;
}

/* The steps that were done in what was saved; 0 if there is nothing. */
static cz_status load(cz_checkpoint *checkpoint, cz_sampler *sampler, int *step)
{
    cz_load_options options = CZ_LOAD_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    int64_t position;
    *step = 0;
    options.missing_ok = 1;
    CZ_TRY(cz_checkpoint_load(checkpoint, &options, &result));
    if (result.step < 0)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_integer(result.common, "position", &position));
    CZ_TRY(cz_sampler_set_position(sampler, position));
    *step = (int)result.step;
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    return CZ_OK;
}

static cz_status train(cz_group *group, void *context)
{
    const job *j = context;
    const int rank = cz_group_rank(group), ranks = cz_group_size(group);
    float line[2] = {0, 0}, gradient[2]; /* slope and offset */
    int step;
    cz_sampler *sampler;
    cz_checkpoint *checkpoint;
    cz_sampler_options deal = CZ_SAMPLER_OPTIONS_INIT;
    cz_checkpoint_options parts = CZ_CHECKPOINT_OPTIONS_INIT;
    deal.sample_count = SAMPLES;
    deal.global_batch = BATCH;
    deal.rank = rank;
    deal.world_size = ranks;
    deal.seed = SEED;
    CZ_TRY(cz_sampler_create(&sampler, &deal));
    CZ_TRY(cz_model_create(&parts.model));
    CZ_TRY(cz_model_add(parts.model, "line", line, gradient, CZ_F32, 1, (int64_t[]){2}));
    CZ_TRY(cz_zero_create(&parts.zero, group, parts.model, cz_rule_adam(), CZ_HYPERS({"lr", 0.05}),
                          NULL));
    CZ_TRY(cz_checkpoint_create(&checkpoint, group, j->folder, &parts));
    CZ_TRY(load(checkpoint, sampler, &step));
    while (step < j->steps) {
        int64_t samples[BATCH], count;
        double loss = 0;
        CZ_TRY(cz_sampler_next(sampler, samples, &count));
        CZ_TRY(cz_zero_zero_grad(parts.zero, false));
        for (int64_t k = 0; k < count; k++) {
            const float x = cz_random_normal(SEED, 0, (uint64_t)samples[k]);
            const float error = line[0] * x + line[1] - (3 * x - 1);
            loss += error * error / BATCH;
            gradient[0] += 2 * error * x * (float)ranks / BATCH; /* the step takes the mean */
            gradient[1] += 2 * error * (float)ranks / BATCH;
        }
        CZ_TRY(cz_all_reduce(group, &loss, 1, CZ_F64, CZ_SUM, CZ_LABEL("loss")));
        CZ_TRY(cz_zero_step(parts.zero, NULL, NULL));
        if (++step % 20 == 0 && rank == 0)
            printf("step %3d  loss %.4f\n", step, loss);
    }
    CZ_TRY(save(checkpoint, sampler, step));
    cz_checkpoint_destroy(&checkpoint);
    cz_zero_destroy(&parts.zero);
    cz_model_destroy(&parts.model);
    cz_sampler_destroy(&sampler);
    return CZ_OK;
}

int main(int argc, char **argv)
{
    job j = {argc > 1 ? argv[1] : "09_resume.saved", argc > 2 ? atoi(argv[2]) : 60};
    CZ_CHECK(cz_launch(train, &j, NULL));
    return 0;
}
