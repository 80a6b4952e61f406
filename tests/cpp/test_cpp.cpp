/* SPDX-License-Identifier: MIT */
/* czero.hpp: trainings give the bits of C; what functions of the program throw comes out where the
 * program called, and other ranks see a failure; nothing is left. */
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include <czero/czero.hpp>

#include "expect.hpp"

/* No exception of the standard library, and one that is. */
struct foreign {
    const char *text;
    const char *what() const { return text; }
};
struct odd_data : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr int RANKS = 3, N = 1000;

static void on_ranks(const std::function<void(czero::group &)> &main, int ranks = RANKS)
{
    cz_launch_options options = czero::fresh<cz_launch_options>();
    options.ranks = ranks;
    options.timeout_seconds = 60;
    czero::launch(main, options);
}

static void fill(std::vector<float> &gradients, int step, int rank)
{
    for (std::size_t i = 0; i < gradients.size(); i++)
        gradients[i] = cz_random_normal(7, static_cast<std::uint64_t>(rank),
                                        static_cast<std::uint64_t>(step) * N + i);
}

/* ---- trainings ---- */

static std::vector<float> train_unsharded(int steps)
{
    std::vector<float> weights(N, 0.5F), mean(N), one(N);
    czero::model model;
    model.add("w", weights, mean, {N / 10, 10});
    czero::optim optim(model, cz_rule_adamw(), {{"lr", 0.1}, {"weight_decay", 0.2}});
    for (int step = 0; step < steps; step++) {
        std::vector<std::vector<float>> all(RANKS, std::vector<float>(N));
        for (int r = 0; r < RANKS; r++)
            fill(all[static_cast<std::size_t>(r)], step, r);
        for (std::size_t i = 0; i < N; i++) /* the tree of three */
            mean[i] = ((all[0][i] + all[1][i]) + all[2][i]) / 3;
        optim.step();
    }
    return weights;
}

static void bits_are_those_of_one_process()
{
    const std::vector<float> expected = train_unsharded(5);
    on_ranks([&](czero::group &world) {
        std::vector<float> weights(N, 0.5F), gradients(N);
        czero::model model;
        model.add("w", weights, gradients, {N / 10, 10});
        czero::zero zero(world, model, cz_rule_adamw(), {{"lr", 0.1}, {"weight_decay", 0.2}});
        for (int step = 0; step < 5; step++) {
            const cz_step_result result = zero.step([&] {
                fill(gradients, step, world.rank());
                return 1.5 * step;
            });
            EXPECT(result.loss == 1.5 * step);
        }
        EXPECT(weights == expected);
        EXPECT(zero.get_info().state_bytes < N * 2 * sizeof(float));
        const auto spans = zero.shard_map().spans(world.rank());
        EXPECT(spans.size() == 1 && spans[0].param == 0 && spans[0].rank == world.rank());
        zero.consolidate_state_dict(0);
        if (world.rank() == 0) {
            const czero::state_dict dict = zero.state_dict();
            EXPECT(dict.get_dict("state").get_dict("w").get_integer("step") == 5);
            EXPECT(dict.get_text("rule") == "adamw");
        }
        EXPECT(zero.local_optim().get_hyper(0, "lr") == 0.1);
        EXPECT(zero.trace(CZ_TRACE_AGREE).count > 0);
    });
}

static void a_pass_gives_the_same_bits()
{
    const std::vector<float> expected = train_unsharded(3);
    on_ranks([&](czero::group &world) {
        std::vector<float> weights(N, 0.5F), gradients(N);
        int hooked = 0;
        czero::model model;
        model.add("w", weights, gradients, {N / 10, 10});
        czero::ddp ddp(world, model);
        cz_zero_options options = czero::fresh<cz_zero_options>();
        options.ddp = ddp;
        options.overlap = CZ_OVERLAP_STEP;
        czero::zero zero(world, model, cz_rule_adamw(), {{"lr", 0.1}, {"weight_decay", 0.2}},
                         options);
        ddp.register_hook("mean", CZ_HOOK_SLICE, [&](czero::bucket &bucket) {
            EXPECT(bucket.buffer<float>().size() == N && bucket.get_param(0).param == 0);
            hooked++;
            bucket.reduce(CZ_AVERAGE);
            bucket.then([&](cz_status status) { EXPECT(status == CZ_OK && hooked > 0); });
        });
        for (int step = 0; step < 3; step++) {
            ddp.begin();
            fill(gradients, step, world.rank());
            ddp.mark_ready(0);
            ddp.finish();
        }
        EXPECT(hooked == 3 && weights == expected);
        EXPECT(ddp.bucket_params(0).size() == 1);
    });
}

/* ---- operations ---- */

static void operations_take_containers_arrays_and_numbers()
{
    on_ranks([](czero::group &world) {
        const int rank = world.rank(), size = world.size();
        float sum = 1;
        world.all_reduce(sum, CZ_SUM, "how many");
        EXPECT(sum == static_cast<float>(size));
        std::vector<std::int64_t> all(static_cast<std::size_t>(size));
        const std::int64_t mine = rank;
        world.all_gather(mine, all);
        for (int r = 0; r < size; r++)
            EXPECT(all[static_cast<std::size_t>(r)] == r);
        double block[2] = {1.0 * rank, 2};
        std::vector<double> gathered(world.rank() == 1 ? 2 * all.size() : 0);
        world.gather(block, gathered, 1);
        EXPECT(rank != 1 || (gathered[2] == 1 && gathered[5] == 2));
        world.broadcast(block, 2);
        EXPECT(block[0] == 2);
        std::vector<float> parts(static_cast<std::size_t>(size), 1), part(1);
        world.reduce_scatter(parts, part, CZ_SUM);
        EXPECT(part[0] == static_cast<float>(size));
        world.scatter(parts, part, 0);
        world.all_to_all(std::vector<float>(parts), parts);
        world.reduce(part, part, CZ_MAX, 0);
        const std::vector<std::int64_t> counts{1, 0, 2};
        std::vector<float> uneven(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]),
                                  static_cast<float>(rank)),
            whole(3);
        world.all_gather_v(uneven, whole, counts);
        EXPECT(whole[0] == 0 && whole[1] == 2 && whole[2] == 2);
        world.reduce_scatter_v(whole, uneven, counts, CZ_SUM);
        world.gather_v(uneven, whole, counts, 0);
        world.scatter_v(whole, uneven, counts, 0);
        world.all_to_all_v(std::vector<float>(3), {1, 1, 1}, whole, {1, 1, 1});
        EXPECT(world.broadcast_object(rank == 0 ? "hello" : "", 0) == "hello");
        world.progress();
        world.barrier();
        czero::group half = world.split(rank == 1 ? -1 : 0, -rank);
        EXPECT(rank == 1 ? !half : half.rank() == (rank == 0) && half.global_rank(0) == 2);
        EXPECT(world.subset({1, 2}).size() == (rank == 0 ? 0 : 2));
    });
}

static void works_are_waited_for()
{
    on_ranks([](czero::group &world) {
        std::vector<float> data(10, 1);
        float more = 1;
        std::atomic<int> told{0};
        czero::work work;
        world.all_reduce(data, CZ_SUM, czero::start(work, "sum"));
        work.then([&](cz_status status) {
            told = status == CZ_OK ? 1 : 2;
            czero::work next;
            world.all_reduce(more, CZ_SUM, "more");
        });
        work.wait();
        EXPECT(work.test() && told == 1 && data[9] == RANKS && more == RANKS);
        czero::work other;
        world.barrier(czero::start(other));
        other.then([](cz_status) { throw odd_data("continued to no good end"); });
        EXPECT_THROW(odd_data, "no good end", other.wait());
        world.barrier();
    });
}

static void sizes_that_do_not_fit_are_refused()
{
    on_ranks([](czero::group &world) {
        std::vector<float> one(1), two(2), none;
        czero::model model;
        EXPECT_THROW(czero::error, "output has 2 elements, expected 3", world.all_gather(one, two));
        EXPECT_THROW(czero::error, "value has 2 elements, expected 6",
                     model.add("w", two, two, {2, 3}));
        EXPECT_THROW(czero::error, "gradient has 1 elements, expected 2", model.add("w", two, one));
        EXPECT_THROW(czero::error, "list of counts has 1", world.all_gather_v(one, two, {1}));
        model.add("w", two, czero::no_gradient<float>);
        EXPECT(model.find("w") == 0 && !model.get_param(0).gradient && model.find("v") == -1);
        const cz_view views[] = {{"h.*", 2, 2, {2, 3}}, {"b", 0, 1, {4}}};
        std::vector<float> block(16), gradients(16);
        EXPECT_THROW(czero::error, "block of values has 2 elements, expected 16",
                     model.add_views(two, czero::no_gradient<float>, views));
        EXPECT_THROW(czero::error, "block of gradients has 2 elements, expected 16",
                     model.add_views(block, two, views));
        model.add_views(block, czero::no_gradient<float>, views);
        EXPECT(model.get_param(model.find("h.1")).value->data == &block[6]);
        model.set_gradients_flat(1, gradients.data());
        EXPECT(model.get_param(model.find("b")).gradient->data == &gradients[12]);
    });
}

/* ---- what is thrown ---- */

static void a_rank_that_throws_ends_the_launch()
{
    for (int thrower = 0; thrower < RANKS; thrower++) {
        EXPECT_THROW(foreign, "of its own kind", on_ranks([&](czero::group &world) {
                         float sum = 1;
                         world.all_reduce(sum, CZ_SUM);
                         if (world.rank() == thrower)
                             throw foreign{"of its own kind"};
                         world.all_reduce(sum, CZ_SUM); /* the others do not hang */
                     }));
        EXPECT_THROW(std::out_of_range, "vector", on_ranks([&](czero::group &world) {
                         if (world.rank() == thrower)
                             (void)std::vector<int>().at(3);
                         world.barrier();
                     }));
    }
    for (int ranks = 1; ranks <= 2; ranks++)
        EXPECT_THROW(
            odd_data, "xxxx",
            on_ranks([](czero::group &) { throw odd_data(std::string(600, 'x')); }, ranks));
    EXPECT_THROW(czero::error, "NULL",
                 on_ranks([](czero::group &) { czero::check(cz_model_create(nullptr)); }, 1));
}

static void a_closure_that_throws_ends_the_step()
{
    on_ranks([](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N, 1);
        czero::model model;
        model.add("w", weights, gradients);
        czero::zero zero(world, model, cz_rule_sgd(), {{"lr", 0.5}});
        const auto step = [&] {
            zero.step([&] {
                if (world.rank() == 1)
                    throw odd_data("a bad batch");
            });
        };
        if (world.rank() == 1)
            EXPECT_THROW(odd_data, "a bad batch", step());
        else
            EXPECT_THROW(czero::error, "rank 1: closure: a bad batch", step());
        EXPECT(weights[0] == 1);
        zero.step(); /* the group is usable */
        EXPECT(weights[0] == 0.5F);
        czero::optim alone(model, cz_rule_sgd(), {{"lr", 0.5}});
        EXPECT_THROW(foreign, "!", alone.step([] { throw foreign{"!"}; }));
    });
}

static void a_hook_that_throws_ends_the_pass()
{
    on_ranks([](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N, 1);
        bool bad = true;
        czero::model model;
        model.add("w", weights, gradients);
        czero::ddp ddp(world, model);
        ddp.register_hook("sum", CZ_HOOK_WHOLE, [&](czero::bucket &bucket) {
            if (bad && world.rank() == 2)
                throw odd_data("not this bucket");
            bucket.group().all_reduce(bucket.buffer<float>(), CZ_SUM);
        });
        for (int pass = 0; pass < 2; pass++, bad = false) {
            ddp.begin();
            ddp.mark_ready(0);
            if (!bad)
                ddp.finish();
            else if (world.rank() == 2)
                EXPECT_THROW(odd_data, "not this bucket", ddp.finish());
            else
                EXPECT_THROW(czero::error, "rank 2: ddp: hook 'sum' failed", ddp.finish());
        }
        EXPECT(gradients[0] == RANKS);
        bad = true;
    });
}

static void a_join_body_that_throws_ends_the_join()
{
    on_ranks([](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N, 1);
        czero::model model;
        model.add("w", weights, gradients);
        czero::ddp ddp(world, model);
        const auto pass = [&] {
            ddp.begin();
            ddp.mark_ready(0);
            ddp.finish();
        };
        int passes = 0;
        czero::join::run(world, {ddp.joinable()}, [&](czero::join &) {
            while (passes < world.rank() + 1) { /* uneven */
                pass();
                passes++;
            }
        });
        EXPECT(passes == world.rank() + 1);
        const auto joined = [&] {
            czero::join::run(world, {ddp.joinable()}, [&](czero::join &) {
                if (world.rank() == 0)
                    throw odd_data("the file ends");
                pass();
            });
        };
        if (world.rank() == 0)
            EXPECT_THROW(odd_data, "the file ends", joined());
        else
            EXPECT_THROW(czero::error, "rank 0: the file ends", joined());
    });
}

struct counter : czero::joinable_object {
    explicit counter(czero::group &over) : joinable_object("counter"), world(over) {}
    void enter(cz_join *, int) override {}
    void shadow(cz_join *) override { add(0); }
    void add(double one)
    {
        world.all_reduce(one, CZ_SUM);
        sum += one;
    }
    czero::group &world;
    double sum = 0;
};

static void a_joinable_of_ones_own_is_shadowed()
{
    on_ranks([](czero::group &world) {
        counter mine(world);
        czero::join::run(world, {mine.joinable()}, [&](czero::join &join) {
            for (int i = 0; i < world.rank() + 1; i++) {
                join.notify(0);
                mine.add(1);
            }
        });
        EXPECT(mine.sum == 6);
    });
}

/* ---- rules and schedules ---- */

static std::atomic<bool> kernel_throws{false}, begin_throws{false};

static czero::rule make_rule()
{
    czero::rule rule("signum");
    rule.hyper("lr", 0.01, 0).hyper("keep", 0.9, 0, 1).slot("momentum");
    rule.check([](const double *hypers) {
        if (hypers[0] > 10)
            throw std::invalid_argument("a rate above 10");
    });
    rule.begin_step([](cz_optim *, const void *) {
        if (begin_throws)
            throw odd_data("cannot begin");
    });
    rule.prepare([](const cz_rule_step &step, double *coefficients, unsigned &) {
        coefficients[0] = step.hypers[0];
        coefficients[1] = step.hypers[1];
    });
    rule.kernel<float>([](std::int64_t count, float *param, const float *gradient,
                          czero::slots<float> slots, const double *coefficients, unsigned) {
        const float lr = static_cast<float>(coefficients[0]),
                    keep = static_cast<float>(coefficients[1]);
        if (kernel_throws)
            throw odd_data("a kernel has failed");
        for (std::int64_t i = 0; i < count; i++) {
            slots[0][i] = keep * slots[0][i] + gradient[i];
            param[i] -= lr * static_cast<float>((slots[0][i] > 0) - (slots[0][i] < 0));
        }
    });
    return rule;
}

static void a_rule_is_made_of_lambdas()
{
    const czero::rule rule = make_rule();
    on_ranks([&](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N, 1);
        czero::model model;
        model.add("w", weights, gradients);
        EXPECT_THROW(std::invalid_argument, "a rate above 10",
                     czero::optim(model, rule, czero::hypers{{"lr", 11}}));
        EXPECT_THROW(std::invalid_argument, "a rate above 10",
                     czero::zero(world, model, rule, czero::hypers{{"lr", 11}}));
        czero::zero zero(world, model, rule, {{"lr", 0.25}});
        zero.step();
        EXPECT(weights[0] == 0.75F && weights[N - 1] == 0.75F);
        EXPECT(zero.local_optim().get_info().state_bytes > 0);
        world.barrier();
        begin_throws = true;
        world.barrier();
        EXPECT_THROW(odd_data, "cannot begin", zero.step());
        world.barrier();
        begin_throws = false;
        world.barrier();
        zero.step();
        EXPECT(weights[0] == 0.5F);
    });
    std::vector<float> weights(N, 1), gradients(N, 1);
    czero::model model;
    model.add("w", weights, gradients);
    czero::optim optim(model, rule, {{"lr", 0.25}});
    kernel_throws = true;
    EXPECT_THROW(odd_data, "a kernel has failed", optim.step());
    kernel_throws = false;
    optim.step();
    EXPECT(optim.state<float>(0, "momentum").size() == N);
}

static void groups_have_rules_of_their_own()
{
    const czero::rule rule = make_rule();
    on_ranks([&](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N, 1), bias(3, 1), bias_gradients(3, 1);
        czero::model model;
        model.add("w", weights, gradients);
        model.add("b", bias, bias_gradients);
        const czero::param_groups groups({czero::param_group({0}, {}, rule)});
        cz_zero_options options = czero::fresh<cz_zero_options>();
        options.groups = groups.data();
        options.group_count = groups.count();
        czero::zero zero(world, model, cz_rule_adamw(), {}, options);
        zero.add_param_group(czero::param_group({1}, {{"lr", 0.5}}, cz_rule_sgd()));
        zero.step();
        EXPECT(weights[0] == 1 - 0.01F && bias[2] == 0.5F);
        EXPECT(zero.local_optim().get_hyper(0, "keep") == 0.9);
        EXPECT_THROW(std::invalid_argument, "a rate above 10",
                     zero.local_optim().set_hyper(0, "lr", 11));
    });
}

static void a_rule_of_sums_and_one_of_tensors()
{
    std::vector<float> weights(N, 1), gradients(N, 2);
    czero::model model;
    model.add("w", weights, gradients);
    czero::rule normed("normed");
    normed.hyper("lr", 1);
    normed.prepare([](const cz_rule_step &, double *, unsigned &) {});
    normed.sums<float>(1, [](std::int64_t count, const float *, const float *gradient,
                             czero::slots<float>, const double *, unsigned, cz_sum *sum) {
        for (std::int64_t i = 0; i < count; i++) {
            const double square =
                static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
            cz_sum_add(sum, 1, &square);
        }
    });
    normed.combine([](const cz_rule_step &, const double *sums, double *coefficients, unsigned &) {
        coefficients[0] = 1 / std::sqrt(sums[0]);
    });
    normed.kernel<float>([](std::int64_t count, float *param, const float *gradient,
                            czero::slots<float>, const double *coefficients, unsigned) {
        for (std::int64_t i = 0; i < count; i++)
            param[i] -= static_cast<float>(coefficients[0]) * gradient[i];
    });
    {
        czero::optim optim(model, normed);
        optim.step();
    }
    EXPECT(std::fabs(static_cast<double>(weights[0]) - (1 - 1 / std::sqrt(1.0 * N))) < 1e-6);
    czero::rule whole("whole");
    whole.update_tensor([](const cz_tensor_update &update) {
        float *values = static_cast<float *>(update.param->data);
        std::fill(values, values + cz_tensor_count(update.param), 3.0F);
    });
    czero::optim optim(model, whole);
    optim.step();
    EXPECT(weights[N - 1] == 3);
}

static void schedules_call_lambdas()
{
    std::vector<float> weights(N, 1), gradients(N, 2);
    czero::model model;
    model.add("w", weights, gradients);
    czero::optim optim(model, cz_rule_sgd(), {{"lr", 1}});
    czero::sched sched = czero::sched::create_lambda(optim, [](std::int64_t epoch, std::int64_t) {
        if (epoch == 3)
            throw odd_data("no rate for epoch 3");
        return 1.0 / static_cast<double>(epoch + 1);
    });
    optim.step();
    sched.step();
    EXPECT(sched.last_lr() == 0.5 && optim.get_hyper(0, "lr") == 0.5);
    sched.step();
    EXPECT_THROW(odd_data, "no rate for epoch 3", sched.step());
    EXPECT(optim.get_hyper(0, "lr") == 1.0 / 3);
    std::vector<czero::sched> members;
    members.push_back(czero::sched::create_linear(optim, 0.5, 1, 4));
    members.push_back(czero::sched::create_cosine(optim, 10));
    czero::sched both = czero::sched::create_sequential(members, {4});
    EXPECT(!members[0] && !members[1]);
    both.step();
    EXPECT(both.state_dict().get_text("type").size() > 0);
    EXPECT_THROW(czero::error, "step_size", czero::sched::create_step(optim, 0, 1));
}

/* ---- parts, checkpoints, archives, plans ---- */

static void parts_are_run()
{
    on_ranks([](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N);
        czero::model model;
        model.add("w", weights, gradients);
        czero::parts parts(world, model, 8);
        const auto run = [&](int part) {
            std::fill(gradients.begin(), gradients.end(), static_cast<float>(part));
        };
        parts.check_runs(run);
        EXPECT_THROW(odd_data, "part", parts.check_runs([](int) { throw odd_data("no part"); }));
        cz_zero_options options = czero::fresh<cz_zero_options>();
        options.parts = parts;
        czero::zero zero(world, model, cz_rule_sgd(), {{"lr", 1}}, options);
        std::vector<double> losses;
        for (const int part : parts.own()) {
            run(part);
            parts.add();
            losses.push_back(part);
        }
        zero.step();
        EXPECT(weights[0] == 1 - 3.5F && parts.mean(losses)[0] == 3.5);
    });
}

static void checkpoints_are_saved_and_read()
{
    const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                         ("czero-cpp-" + std::to_string(std::random_device()()));
    std::filesystem::create_directory(folder);
    const std::string saves = (folder / "saves").string(),
                      file = (folder / "m.safetensors").string();
    on_ranks([&](czero::group &world) {
        std::vector<float> weights(N, 1), gradients(N, 1),
            mean(3, static_cast<float>(world.rank()));
        czero::model model;
        model.add("w", weights, gradients, {10, N / 10});
        model.add_buffer("mean", mean);
        czero::zero zero(world, model, cz_rule_adamw(), {{"lr", 0.1}});
        czero::checkpoint checkpoint(world, saves, zero);
        zero.step();
        czero::state_dict common, own;
        common.set_real("best", 0.25);
        own.set_integer("rank", world.rank());
        checkpoint.save(1, common, own);
        const std::vector<float> saved = weights;
        const auto print = zero.fingerprint();
        zero.step();
        EXPECT(weights != saved && zero.fingerprint() != print);
        const czero::load_result loaded = checkpoint.load();
        EXPECT(loaded.step == 1 && loaded.common.get_real("best") == 0.25);
        EXPECT(loaded.own.get_integer("rank") == world.rank());
        EXPECT(weights == saved && zero.fingerprint() == print);
        EXPECT(checkpoint.fetch_own(0).get_integer("rank") == 0);
        checkpoint.export_to(file);
        EXPECT(checkpoint.import_from(file).step == 0);
        cz_load_options missing = czero::fresh<cz_load_options>();
        missing.step = 77;
        EXPECT_THROW(czero::error, "77", checkpoint.load(missing));
    });
    czero::archive archive(saves);
    EXPECT(archive.get_info().step == 1 && archive.read<float>("w").size() == N);
    EXPECT(archive.read<float>("w", "exp_avg").size() == N);
    EXPECT_THROW(czero::error, "expected f64", archive.read<double>("w"));
    EXPECT(archive.verify([](const char *) {}).problems == 0);
    int generations = 0;
    czero::archive::list(saves, [&](const cz_archive_generation &) { generations++; });
    EXPECT(generations == 1);
    EXPECT_THROW(foreign, "stop", czero::archive::list(saves, [](const cz_archive_generation &) {
                     throw foreign{"stop"};
                 }));
    const czero::shapes shapes = czero::shapes::read(file);
    EXPECT(czero::plan(shapes).get_info().elements[CZ_SHAPE_PARAM] == N);
    EXPECT(czero::plan(shapes).rank(0).param_bytes == N * sizeof(float));
    std::filesystem::remove_all(folder);
}

static void handles_move_and_leave_nothing()
{
    const auto held = [] {
        std::size_t bytes = 0;
        for (int kind = CZ_MEMORY_GENERAL; kind <= CZ_MEMORY_STATE_DICT; kind++)
            bytes += cz_memory_bytes(static_cast<cz_memory_kind>(kind));
        return bytes;
    };
    std::vector<float> weights(N, 1), gradients(N, 1);
    std::size_t before = 0;
    for (int round = 0; round < 10000; round++) {
        if (round == 10)
            before = held();
        czero::group self = czero::group::create_self();
        czero::model made;
        made.add("w", weights, gradients);
        czero::model model = std::move(made);
        EXPECT(!made && model);
        czero::zero first(self, model, cz_rule_sgd(), {{"lr", 0.5}});
        czero::zero zero = std::move(first);
        zero.step([] {});
        if (round % 2 != 0) {
            zero = czero::zero(self, model, cz_rule_adamw());
            zero.step();
        }
    }
    EXPECT(held() == before);
}

/* ---- moves, temporaries, statuses ---- */

static void what_was_moved_from_is_a_null()
{
    czero::group self = czero::group::create_self();
    std::vector<float> data(4, 1), gradients(4);
    czero::model model;
    model.add("w", data, gradients);
    czero::work work;
    self.all_reduce(data, CZ_SUM, czero::start(work));
    czero::work other = std::move(work);
    other.wait();
    EXPECT_THROW(czero::error, "NULL", work.wait());
    czero::ddp ddp(self, model);
    const czero::ddp moved = std::move(ddp);
    EXPECT_THROW(czero::error, "NULL", ddp.begin());
    czero::zero zero(self, model, cz_rule_sgd(), {{"lr", 1}});
    czero::zero &same = zero;
    zero = std::move(same);
    EXPECT(zero.get());
    EXPECT_THROW(czero::error, "NULL", czero::group().all_gather_v(data, data, {}));
    EXPECT_THROW(czero::error, "expected f64",
                 zero.local_optim().state<double>(0, "momentum_buffer"));
}

static void a_work_is_waited_for_where_an_exception_ends_its_buffers()
{
    on_ranks([](czero::group &world) {
        try {
            std::vector<float> data(1 << 20, 1);
            czero::work work;
            world.all_reduce(data, CZ_SUM, czero::start(work));
            throw odd_data("too early");
        } catch (const odd_data &) {
        }
        world.barrier();
    });
}

static void closures_may_return_a_status_and_rules_throw_at_once()
{
    std::vector<float> data(4, 1), gradients(4, 1);
    czero::model model;
    model.add("w", data, gradients);
    czero::optim optim(model, cz_rule_sgd(), {{"lr", 1}});
    EXPECT_THROW(czero::error, "no file", optim.step([] { return cz_fail(CZ_ERR_IO, "no file"); }));
    const czero::rule rule = make_rule();
    czero::optim own(model, rule, {{"lr", 1}});
    EXPECT_THROW(std::invalid_argument, "above 10", own.set_hyper(0, "lr", 11));
    EXPECT_THROW(czero::error, "nonexistent", own.set_hyper(0, "nonexistent", 1));
    czero::rule greedy("greedy");
    greedy.update_tensor([](const cz_tensor_update &) {});
    greedy.scratch_bytes([](const cz_tensor &) -> std::size_t { throw odd_data("no idea"); });
    EXPECT_THROW(odd_data, "no idea", czero::optim(model, greedy));
}

int main()
{
    bits_are_those_of_one_process();
    a_pass_gives_the_same_bits();
    operations_take_containers_arrays_and_numbers();
    works_are_waited_for();
    sizes_that_do_not_fit_are_refused();
    a_rank_that_throws_ends_the_launch();
    a_closure_that_throws_ends_the_step();
    a_hook_that_throws_ends_the_pass();
    a_join_body_that_throws_ends_the_join();
    a_joinable_of_ones_own_is_shadowed();
    a_rule_is_made_of_lambdas();
    groups_have_rules_of_their_own();
    a_rule_of_sums_and_one_of_tensors();
    schedules_call_lambdas();
    parts_are_run();
    checkpoints_are_saved_and_read();
    handles_move_and_leave_nothing();
    what_was_moved_from_is_a_null();
    a_work_is_waited_for_where_an_exception_ends_its_buffers();
    closures_may_return_a_status_and_rules_throw_at_once();
    std::puts("czero.hpp: all as expected");
    return 0;
}
