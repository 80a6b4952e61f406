/* SPDX-License-Identifier: MIT */
/* Ranks that have kernel threads each: the bits of the unsharded optimizer, with every way to cut
 * and to deal out. */
#include "optim/object.h"
#include "support/cz_test.h"
#include "support/training.h"

#include <stdlib.h>

enum { PARAMS = 6 };
static const int64_t sizes[PARAMS] = {30001, 3, 0, 64, 60000, 999};

/* Parameter 4 is nowhere in step 1, parameter 0 on rank 0 only in step 2. */
static bool has_gradient(int rank, int step, int64_t param)
{
    return !(step == 1 && param == 4) && !(step == 2 && param == 0 && rank > 0);
}

static cz_status have_threads(const cz_test_subject *subject, cz_group *group)
{
    const int parts = cz__optim_parts(cz_zero_local_optim(subject->zero));
    return parts == 2 ? CZ_OK : cz_fail(CZ_ERR_STATE, "updated in %d parts", parts);
}

static void train(const cz_rule *rule, const cz_hyper *hypers, cz_partition partition)
{
    static const int worlds[] = {1, 2, 3};
    const cz_test_training training = {.param_count = PARAMS,
                                       .sizes = sizes,
                                       .dtype = CZ_F32,
                                       .rule = rule,
                                       .hypers = hypers,
                                       .partition = partition,
                                       .has_gradient = has_gradient,
                                       .steps = 3};
    char why[256];
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        if (cz_test_train(&training, worlds[i],
                          partition == CZ_PARTITION_ELEMENTS ? have_threads : NULL, why) != CZ_OK)
            fail_msg("%s, %d ranks: %s", rule->name, worlds[i], why);
}

TEST(threads_change_no_bit_of_even_cuts)
{
    train(cz_rule_adamw(), NULL, CZ_PARTITION_ELEMENTS);
    train(cz_rule_nadam(), NULL, CZ_PARTITION_ELEMENTS);
    train(cz_test_probe_rule(), NULL, CZ_PARTITION_ELEMENTS);
}

TEST(threads_change_no_bit_of_whole_parameters)
{
    train(cz_rule_sgd(), CZ_HYPERS({"lr", 0.1}, {"momentum", 0.9}), CZ_PARTITION_GREEDY);
}

int main(void)
{
    setenv("CZERO_THREADS", "2", 1);
    return cz_test_run(NULL, NULL);
}
