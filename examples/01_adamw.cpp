/* SPDX-License-Identifier: MIT */
/* 01_adamw.c in C++: handles end by themselves, failures are thrown, functions are lambdas. */
#include <cstdio>
#include <vector>

#include <czero/czero.hpp>

static void train(czero::group &world)
{
    std::vector<float> weights(1000), gradients(1000);
    czero::model model;
    model.add("weights", weights, gradients);
    czero::zero zero(world, model, cz_rule_adamw(), {{"lr", 0.1}});
    for (int step = 0; step < 200; step++) {
        for (std::size_t i = 0; i < weights.size(); i++)
            gradients[i] = weights[i] - static_cast<float>(world.rank());
        zero.step(); /* mean over ranks, update, back to all ranks */
    }
    std::printf("rank %d of %d: weight %.2f, %zu bytes of optimizer state\n", world.rank(),
                world.size(), static_cast<double>(weights[0]), zero.get_info().state_bytes);
}

int main()
{
    cz_launch_options options = czero::fresh<cz_launch_options>();
    options.ranks = 4;
    try {
        czero::launch(train, options);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
