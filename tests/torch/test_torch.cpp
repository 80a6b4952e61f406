/* SPDX-License-Identifier: MIT */
/* torch.hpp: libtorch's modules on several ranks train to the bits of one unsharded process, with
 * everything that libtorch's optimizers do; what goes wrong on one rank is seen by all. */
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include <torch/torch.h>

#include <czero/torch.hpp>

#include "../cpp/expect.hpp"

namespace ct = czero::torch;
using torch::Tensor;
using tensors = std::vector<Tensor>;

constexpr int STEPS = 4, IMAGES = 4;

static void on_ranks(int ranks, const std::function<void(czero::group &)> &main)
{
    cz_launch_options options = czero::fresh<cz_launch_options>();
    options.ranks = ranks;
    options.timeout_seconds = 120;
    czero::launch(main, options);
}

/* ---- the net ---- */

static Tensor waves(torch::IntArrayRef shape, double phase, torch::ScalarType type)
{
    const Tensor flat = torch::arange(torch::empty(shape).numel(), torch::kDouble);
    return torch::sin(flat * 0.7 + phase).reshape(shape).to(type);
}

/* A convolution, a norm with buffers, a layer that may be left out, a linear one. */
struct net : torch::nn::Module {
    explicit net(torch::ScalarType type = torch::kFloat) : type(type)
    {
        convolution = register_module("convolution", torch::nn::Conv2d(1, 3, 3));
        norm = register_module("norm", torch::nn::BatchNorm2d(3));
        spare = register_module("spare", torch::nn::Linear(12, 12));
        linear = register_module("linear", torch::nn::Linear(12, 3));
        to(type);
        const torch::NoGradGuard guard;
        double phase = 0;
        for (Tensor &one : parameters())
            one.copy_(0.4 * waves(one.sizes(), phase += 1, type));
    }
    Tensor forward(Tensor x, bool with_spare = true)
    {
        x = torch::max_pool2d(torch::relu(norm(convolution(x))), 2);
        x = x.flatten(1);
        return linear(with_spare ? torch::tanh(spare(x)) : x);
    }
    torch::nn::Conv2d convolution{nullptr};
    torch::nn::BatchNorm2d norm{nullptr};
    torch::nn::Linear spare{nullptr}, linear{nullptr};
    torch::ScalarType type;
};

static Tensor loss_of(net &of, int step, int rank, bool with_spare = true, int images = IMAGES)
{
    const Tensor x = waves({images, 1, 6, 6}, 10 * step + rank + 0.5, of.type);
    const Tensor y = torch::remainder(torch::arange(images) + step + rank, 3);
    return torch::nn::functional::cross_entropy(of.forward(x, with_spare), y);
}

static bool same_bits(const tensors &a, const tensors &b)
{
    if (a.size() != b.size())
        return false;
    for (std::size_t i = 0; i < a.size(); i++)
        if (!torch::equal(a[i], b[i]))
            return false;
    return true;
}

static double distance(const tensors &a, const tensors &b)
{
    double most = 0;
    for (std::size_t i = 0; i < a.size(); i++)
        most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
    return most;
}

static tensors copies(const tensors &of)
{
    tensors all;
    for (const Tensor &one : of)
        all.push_back(one.detach().clone());
    return all;
}

/* ---- one unsharded process ---- */

/* The ranks' passes one after the other, their mean in the order of all groups, and an optimizer of
 * C that has never heard of libtorch. */
class unsharded
{
  public:
    unsharded(int ranks, const cz_rule *rule, const czero::hypers &hypers,
              torch::ScalarType type = torch::kFloat,
              const std::vector<std::int64_t> &in_group = {})
        : of(type), ranks_(ranks)
    {
        for (const auto &item : of.named_parameters()) {
            means_.push_back(torch::zeros_like(item.value()));
            const cz_tensor value = ct::detail::view(item.key(), item.value());
            const cz_tensor mean = ct::detail::view(item.key(), means_.back());
            model.add_tensor(item.key(), value, &mean);
        }
        cz_optim_options options = czero::fresh<cz_optim_options>();
        const czero::param_groups groups({czero::param_group(in_group)});
        if (!in_group.empty()) {
            options.groups = groups.data();
            options.group_count = groups.count();
        }
        optim.emplace(model, rule, hypers, options);
    }

    /* Of each rank's loss, which runs backward, too. */
    std::vector<double> step(const std::function<Tensor(int rank)> &run, double max_norm = 0)
    {
        std::vector<double> losses;
        std::vector<tensors> all;
        const tensors own = of.parameters();
        for (int r = 0; r < ranks_; r++) {
            for (Tensor one : own)
                one.mutable_grad() = Tensor();
            const Tensor loss = run(r);
            losses.push_back(loss.item<double>());
            all.emplace_back();
            for (const Tensor &one : own)
                all.back().push_back(one.grad().defined() ? one.grad().clone() : Tensor());
        }
        for (std::size_t i = 0; i < own.size(); i++) {
            bool any = false;
            Tensor sum = torch::zeros_like(means_[i]);
            for (int r = 0; r < ranks_; r++) {
                const Tensor &one = all[static_cast<std::size_t>(r)][i];
                any = any || one.defined();
                if (one.defined())
                    sum = r == 0 ? one : sum + one;
            }
            means_[i].copy_(sum / ranks_);
            model.set_gradient(static_cast<std::int64_t>(i), any ? means_[i].data_ptr() : nullptr);
            model.set_requires_grad(static_cast<std::int64_t>(i), own[i].requires_grad());
        }
        cz_step_options options = czero::fresh<cz_step_options>();
        options.max_norm = max_norm;
        norm = optim->step(options).norm;
        return losses;
    }

    net of;
    czero::model model;
    std::optional<czero::optim> optim;
    double norm = 0;

  private:
    int ranks_;
    tensors means_;
};

static Tensor backward(Tensor loss)
{
    loss.backward();
    return loss;
}

/* ---- trainings ---- */

template <class Options>
static void train_as_unsharded(const Options &options, const char *rule,
                               const czero::hypers &hypers, torch::ScalarType type)
{
    for (const int ranks : {1, 2, 3}) {
        unsharded one(ranks, cz_rule_find(rule), hypers, type);
        std::vector<std::vector<double>> losses;
        for (int step = 0; step < STEPS; step++)
            losses.push_back(
                one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); }));
        for (const bool with_ddp : {true, false})
            on_ranks(ranks, [&](czero::group &world) {
                net own(type);
                std::optional<ct::DistributedDataParallel> ddp;
                if (with_ddp)
                    ddp.emplace(world, own);
                ct::ZeroRedundancyOptimizer optimizer =
                    with_ddp ? ct::ZeroRedundancyOptimizer(*ddp, own.parameters(), options)
                             : ct::ZeroRedundancyOptimizer(world, own.parameters(), options);
                for (int step = 0; step < STEPS; step++) {
                    optimizer.zero_grad();
                    const Tensor loss = loss_of(own, step, world.rank());
                    loss.backward();
                    optimizer.step();
                    EXPECT(loss.item<double>() == losses[static_cast<std::size_t>(step)]
                                                        [static_cast<std::size_t>(world.rank())]);
                    if (with_ddp) /* with buffers, which are rank 0's */
                        ddp->model().check_replicas(world);
                }
                EXPECT(same_bits(own.parameters(), one.of.parameters()));
            });
    }
}

static void bits_are_those_of_one_unsharded_process()
{
    train_as_unsharded(torch::optim::AdamWOptions(0.01).weight_decay(0.1), "adamw",
                       {{"lr", 0.01}, {"weight_decay", 0.1}}, torch::kFloat);
    train_as_unsharded(torch::optim::AdamWOptions(0.01).amsgrad(true).betas({0.8, 0.9}), "adamw",
                       {{"lr", 0.01}, {"amsgrad", 1}, {"beta1", 0.8}, {"beta2", 0.9}},
                       torch::kDouble);
    train_as_unsharded(torch::optim::AdamOptions(0.01).eps(1e-4), "adam",
                       {{"lr", 0.01}, {"eps", 1e-4}}, torch::kFloat);
    train_as_unsharded(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true), "sgd",
                       {{"lr", 0.1}, {"momentum", 0.9}, {"nesterov", 1}}, torch::kFloat);
    train_as_unsharded(torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true), "rmsprop",
                       {{"lr", 0.01}, {"momentum", 0.5}, {"centered", 1}}, torch::kDouble);
    train_as_unsharded(
        torch::optim::AdagradOptions(0.01).lr_decay(0.1).initial_accumulator_value(1), "adagrad",
        {{"lr", 0.01}, {"lr_decay", 0.1}, {"initial_accumulator_value", 1}}, torch::kFloat);
}

/* The same options in libtorch's own optimizer, in one process that takes all ranks' images. Its
 * schedule goes on, too. */
template <class Optimizer, class Options> static void train_as_libtorch(const Options &options)
{
    const auto whole = [](net &of, int step, int ranks) {
        Tensor sum;
        for (int r = 0; r < ranks; r++)
            sum = r == 0 ? loss_of(of, step, r) : sum + loss_of(of, step, r);
        return sum / ranks;
    };
    constexpr int ranks = 3;
    net one(torch::kDouble);
    Optimizer theirs(one.parameters(), options);
    torch::optim::StepLR schedule(theirs, 2, 0.5);
    std::vector<double> losses;
    for (int step = 0; step < 2 * STEPS; step++) {
        theirs.zero_grad();
        losses.push_back(backward(whole(one, step, ranks)).template item<double>());
        theirs.step();
        schedule.step();
    }
    on_ranks(ranks, [&](czero::group &world) {
        net own(torch::kDouble);
        ct::DistributedDataParallel ddp(world, own);
        ct::ZeroRedundancyOptimizer ours(ddp, own.parameters(), options);
        torch::optim::StepLR our_schedule(ours, 2, 0.5);
        for (int step = 0; step < 2 * STEPS; step++) {
            ours.zero_grad();
            double loss = backward(loss_of(own, step, world.rank())).item<double>();
            ours.step();
            our_schedule.step();
            world.all_reduce(loss, CZ_AVERAGE);
            EXPECT(std::fabs(loss - losses[static_cast<std::size_t>(step)]) < 1e-9);
        }
        /* The gradient of a bias before a norm is 0 but for rounding. */
        EXPECT(distance(own.parameters(), one.parameters()) < 1e-7);
        EXPECT(ours.handle().local_optim().get_hyper(0, "lr") == options.lr() * 0.125);
    });
}

static void losses_are_those_of_libtorchs_optimizers()
{
    train_as_libtorch<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
    train_as_libtorch<torch::optim::Adam>(torch::optim::AdamOptions(0.01).weight_decay(0.1));
    train_as_libtorch<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
    train_as_libtorch<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01));
    train_as_libtorch<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
}

/* A data-parallel module is none the worse for an optimizer that is not sharded. */
static void libtorchs_own_optimizers_step_on_the_mean()
{
    unsharded one(3, cz_rule_sgd(), {{"lr", 0.1}});
    for (int step = 0; step < STEPS; step++)
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
    on_ranks(3, [&](czero::group &world) {
        net own;
        ct::DistributedDataParallel ddp(world, own);
        torch::optim::SGD optimizer(own.parameters(), torch::optim::SGDOptions(0.1));
        for (int step = 0; step < STEPS; step++) {
            for (Tensor parameter : own.parameters()) /* as zero_grad() of later releases */
                parameter.mutable_grad() = Tensor();
            backward(loss_of(own, step, world.rank()));
            optimizer.step();
            ddp.model().check_replicas(world);
        }
        EXPECT(distance(own.parameters(), one.of.parameters()) < 1e-6);
    });
}

/* ---- passes ---- */

static void passes_without_synchronisation_add_up()
{
    unsharded one(3, cz_rule_sgd(), {{"lr", 0.1}});
    for (int step = 0; step < STEPS; step++)
        one.step([&](int rank) {
            backward(loss_of(one.of, step, rank + 10, step != 1));
            return backward(loss_of(one.of, step, rank, false));
        });
    for (const bool with_zero : {true, false})
        on_ranks(3, [&](czero::group &world) {
            net own;
            cz_ddp_options options = czero::fresh<cz_ddp_options>();
            options.find_unused = 1;
            ct::DistributedDataParallel ddp(world, own, options);
            std::unique_ptr<torch::optim::Optimizer> optimizer;
            if (with_zero)
                optimizer = std::make_unique<ct::ZeroRedundancyOptimizer>(
                    ddp, own.parameters(), torch::optim::SGDOptions(0.1));
            else
                optimizer = std::make_unique<torch::optim::SGD>(own.parameters(), 0.1);
            for (int step = 0; step < STEPS; step++) {
                for (Tensor parameter : own.parameters())
                    parameter.mutable_grad() = Tensor();
                {
                    const auto scope = ddp.no_sync();
                    backward(loss_of(own, step, world.rank() + 10, step != 1));
                }
                backward(loss_of(own, step, world.rank(), false));
                EXPECT(own.spare->weight.grad().defined() == (step != 1));
                optimizer->step();
            }
            EXPECT(with_zero ? same_bits(own.parameters(), one.of.parameters())
                             : distance(own.parameters(), one.of.parameters()) < 1e-6);
        });
}

/* What was added up, and then dropped: the ranks still expect something of it. */
static void gradients_dropped_between_passes_count_as_zero()
{
    on_ranks(2, [](czero::group &world) {
        net own;
        cz_ddp_options options = czero::fresh<cz_ddp_options>();
        options.find_unused = 1;
        ct::DistributedDataParallel ddp(world, own, options);
        {
            const auto scope = ddp.no_sync();
            backward(loss_of(own, 0, world.rank()));
        }
        for (Tensor parameter : own.parameters())
            parameter.mutable_grad() = Tensor();
        backward(loss_of(own, 1, world.rank(), false));
        const Tensor gradient = own.spare->weight.grad();
        EXPECT(gradient.defined() && torch::equal(gradient, torch::zeros_like(gradient)));
    });
}

/* In step 1 no rank uses the spare layer, in step 2 the last one alone does. */
static void unused_parameters_are_found()
{
    const auto used = [](int step, int rank, int ranks) {
        return step != 1 && (step != 2 || rank == ranks - 1);
    };
    for (const int ranks : {1, 2, 3}) {
        unsharded one(ranks, cz_rule_adamw(), {{"lr", 0.01}});
        for (int step = 0; step < STEPS; step++)
            one.step([&](int rank) {
                return backward(loss_of(one.of, step, rank, used(step, rank, ranks)));
            });
        for (const bool none : {true, false})
            on_ranks(ranks, [&](czero::group &world) {
                net own;
                cz_ddp_options options = czero::fresh<cz_ddp_options>();
                options.find_unused = 1;
                options.all_reduce = world.size() == 2;
                ct::DistributedDataParallel ddp(world, own, options);
                ct::ZeroRedundancyOptimizer optimizer(ddp, own.parameters(),
                                                      torch::optim::AdamWOptions(0.01));
                for (int step = 0; step < STEPS; step++) {
                    if (none)
                        for (Tensor parameter : own.parameters())
                            parameter.mutable_grad() = Tensor();
                    else
                        optimizer.zero_grad();
                    backward(
                        loss_of(own, step, world.rank(), used(step, world.rank(), world.size())));
                    const Tensor gradient = own.spare->weight.grad();
                    if (none && step == 1)
                        EXPECT(!gradient.defined());
                    if (options.all_reduce != 0 && step == 2)
                        EXPECT(gradient.defined() && torch::isfinite(gradient).all().item<bool>());
                    optimizer.step();
                }
                EXPECT(same_bits(own.parameters(), one.of.parameters()));
            });
    }
    on_ranks(3, [](czero::group &world) {
        net own;
        ct::DistributedDataParallel ddp(world, own);
        EXPECT_THROW(czero::error, "spare",
                     loss_of(own, 0, world.rank(), world.rank() != 1).backward());
        backward(loss_of(own, 1, world.rank()));
    });
}

/* The gradient of the convolution comes last, and here waits for a bucket that has begun before. */
static void buckets_travel_while_the_pass_goes_on()
{
    on_ranks(2, [](czero::group &world) {
        net own;
        cz_ddp_options options = czero::fresh<cz_ddp_options>();
        options.bucket_bytes = options.first_bucket_bytes = 64;
        ct::DistributedDataParallel ddp(world, own, options);
        std::atomic<int> begun{0};
        int seen = 0;
        ddp.handle().register_hook("watched", CZ_HOOK_SLICE, [&](czero::bucket &bucket) {
            begun++;
            bucket.reduce(CZ_AVERAGE);
        });
        own.convolution->weight.register_hook([&](const Tensor &gradient) {
            for (int i = 0; i < 6000 && begun == 0; i++)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            seen = begun;
            return gradient;
        });
        backward(loss_of(own, 0, world.rank()));
        EXPECT(seen > 0 && begun > seen);
    });
}

struct odd_data : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Throws on its way back. */
struct stumble : torch::autograd::Function<stumble> {
    static Tensor forward(torch::autograd::AutogradContext *, Tensor x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext *,
                                                   torch::autograd::variable_list)
    {
        throw odd_data("no way back");
    }
};

/* Before the pass of czero has begun, and in its midst. */
static void a_backward_pass_that_throws_ends_it_everywhere()
{
    unsharded one(3, cz_rule_adamw(), {{"lr", 0.01}});
    for (int step = 0; step < STEPS; step++)
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
    on_ranks(3, [&](czero::group &world) {
        net own;
        ct::DistributedDataParallel ddp(world, own);
        ct::ZeroRedundancyOptimizer optimizer(ddp, own.parameters(),
                                              torch::optim::AdamWOptions(0.01));
        for (int step = 0; step < STEPS; step++) {
            const Tensor x = waves({IMAGES, 1, 6, 6}, step, own.type);
            if (world.rank() == 1) {
                const Tensor loss =
                    own.linear(own.spare(stumble::apply(own.norm(own.convolution(x)))
                                             .flatten(1)
                                             .slice(1, 0, 12)))
                        .sum();
                EXPECT_THROW(odd_data, "no way back", loss.backward());
            } else {
                EXPECT_THROW(czero::error, "rank 1", loss_of(own, step, world.rank()).backward());
            }
            optimizer.zero_grad();
            backward(loss_of(own, step, world.rank()));
            optimizer.step();
        }
        EXPECT(same_bits(own.parameters(), one.of.parameters()));
    });
}

/* Who catches nothing ends, and the others do not wait. */
static void a_rank_that_ends_is_missed()
{
    EXPECT_THROW(odd_data, "no image", on_ranks(3, [](czero::group &world) {
                     net own;
                     ct::DistributedDataParallel ddp(world, own);
                     ct::ZeroRedundancyOptimizer optimizer(ddp, own.parameters(),
                                                           torch::optim::AdamWOptions(0.01));
                     for (int step = 0; step < STEPS; step++) {
                         optimizer.zero_grad();
                         if (world.rank() == 1 && step == 2)
                             throw odd_data("no image");
                         if (step == 2)
                             EXPECT_THROW(czero::error, "rank 1",
                                          loss_of(own, step, world.rank()).backward());
                         else
                             backward(loss_of(own, step, world.rank()));
                         if (step == 2)
                             return;
                         optimizer.step();
                     }
                 }));
}

/* Weighed by their number of images: as one process that takes all of them. */
static void uneven_batches_count_by_weight()
{
    constexpr int ranks = 3;
    const auto images = [](int rank) { return 2 * rank + 2; };
    const auto run = [&](net &of, int step, int rank) {
        of.norm->eval(); /* which else has other means for other batches */
        return loss_of(of, step, rank, true, images(rank));
    };
    net one(torch::kDouble);
    torch::optim::SGD theirs(one.parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < STEPS; step++) {
        Tensor sum;
        for (int r = 0; r < ranks; r++) {
            const Tensor part = run(one, step, r) * images(r);
            sum = r == 0 ? part : sum + part;
        }
        theirs.zero_grad();
        backward(sum / 12);
        theirs.step();
    }
    on_ranks(ranks, [&](czero::group &world) {
        net own(torch::kDouble);
        ct::DistributedDataParallel ddp(world, own);
        ct::ZeroRedundancyOptimizer ours(ddp, own.parameters(), torch::optim::SGDOptions(0.1));
        for (int step = 0; step < STEPS; step++) {
            ours.zero_grad();
            ddp.set_weight(images(world.rank()));
            backward(run(own, step, world.rank()));
            ours.step();
        }
        EXPECT(distance(own.parameters(), one.parameters()) < 1e-9);
    });
}

/* Rank r has r + 2 batches. */
static void ranks_without_batches_accompany_the_others()
{
    for (const bool with_ddp : {true, false})
        on_ranks(3, [&](czero::group &world) {
            net own;
            std::optional<ct::DistributedDataParallel> ddp;
            if (with_ddp)
                ddp.emplace(world, own);
            const torch::optim::AdamWOptions options(0.01);
            ct::ZeroRedundancyOptimizer optimizer =
                with_ddp ? ct::ZeroRedundancyOptimizer(*ddp, own.parameters(), options)
                         : ct::ZeroRedundancyOptimizer(world, own.parameters(), options);
            for (int epoch = 0; epoch < 2; epoch++) {
                std::vector<cz_joinable> all;
                if (with_ddp)
                    all.push_back(ddp->joinable());
                all.push_back(optimizer.joinable());
                int batches = 0;
                czero::join::run(world, all, [&](czero::join &) {
                    for (; batches < world.rank() + 2; batches++) {
                        optimizer.zero_grad();
                        backward(loss_of(own, batches, world.rank()));
                        optimizer.step();
                    }
                });
                for (auto &one : optimizer.param_groups())
                    one.options().set_lr(0.02);
                optimizer.handle().check_replicas();
            }
            optimizer.consolidate_state_dict(CZ_ALL_RANKS);
            EXPECT(static_cast<const torch::optim::AdamWParamState &>(
                       *optimizer.state().begin()->second)
                       .step() == 8);
        });
}

/* ---- the optimizer ---- */

static void closures_run_once_and_fail_everywhere()
{
    unsharded one(3, cz_rule_adamw(), {{"lr", 0.01}});
    for (int step = 0; step < STEPS; step++)
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
    for (const bool with_ddp : {true, false})
        on_ranks(3, [&](czero::group &world) {
            net own;
            std::optional<ct::DistributedDataParallel> ddp;
            if (with_ddp)
                ddp.emplace(world, own);
            const torch::optim::AdamWOptions options(0.01);
            ct::ZeroRedundancyOptimizer optimizer =
                with_ddp ? ct::ZeroRedundancyOptimizer(*ddp, own.parameters(), options)
                         : ct::ZeroRedundancyOptimizer(world, own.parameters(), options);
            for (int step = 0; step < STEPS; step++) {
                const auto stumbles = [&] {
                    optimizer.zero_grad();
                    const Tensor loss = backward(loss_of(own, step + 1, world.rank()));
                    if (world.rank() == 2)
                        throw odd_data("no image");
                    return loss;
                };
                if (world.rank() == 2)
                    EXPECT_THROW(odd_data, "no image", optimizer.step(stumbles));
                else
                    EXPECT_THROW(czero::error, "no image", optimizer.step(stumbles));
                int runs = 0;
                Tensor made;
                const Tensor loss = optimizer.step([&] {
                    runs++;
                    optimizer.zero_grad();
                    return made = backward(loss_of(own, step, world.rank()));
                });
                EXPECT(runs == 1 && loss.is_same(made));
            }
            EXPECT(same_bits(own.parameters(), one.of.parameters()));
        });
}

/* Frozen from the beginning, thawed, frozen again. */
static void frozen_layers_are_left_alone()
{
    const auto freeze = [](net &of, int step) {
        for (Tensor one : of.spare->parameters())
            one.set_requires_grad(step == 1 || step == 2);
        of.linear->bias.set_requires_grad(step != 2);
    };
    unsharded one(3, cz_rule_adamw(), {{"lr", 0.01}});
    for (int step = 0; step < STEPS; step++) {
        freeze(one.of, step);
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
    }
    for (const bool with_ddp : {true, false})
        on_ranks(3, [&](czero::group &world) {
            net own;
            freeze(own, 0);
            std::optional<ct::DistributedDataParallel> ddp;
            if (with_ddp)
                ddp.emplace(world, own);
            const torch::optim::AdamWOptions options(0.01);
            ct::ZeroRedundancyOptimizer optimizer =
                with_ddp ? ct::ZeroRedundancyOptimizer(*ddp, own.parameters(), options)
                         : ct::ZeroRedundancyOptimizer(world, own.parameters(), options);
            for (int step = 0; step < STEPS; step++) {
                freeze(own, step);
                optimizer.zero_grad();
                backward(loss_of(own, step, world.rank()));
                optimizer.step();
            }
            EXPECT(same_bits(own.parameters(), one.of.parameters()));
        });
}

/* The linear layer comes after two steps, with a rate of its own. */
static void groups_are_added()
{
    for (const int ranks : {1, 2, 3}) {
        unsharded one(ranks, cz_rule_adamw(), {{"lr", 0.01}}, torch::kFloat, {0, 1, 2, 3, 4, 5});
        const auto thaw = [](net &of, bool train) {
            for (Tensor parameter : of.linear->parameters())
                parameter.set_requires_grad(train);
        };
        thaw(one.of, false);
        for (int step = 0; step < STEPS; step++) {
            if (step == 2) {
                thaw(one.of, true);
                one.optim->add_param_group(czero::param_group({6, 7}, {{"lr", 0.05}}));
            }
            one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
        }
        for (const bool with_ddp : {true, false})
            on_ranks(ranks, [&](czero::group &world) {
                net own;
                thaw(own, false);
                std::optional<ct::DistributedDataParallel> ddp;
                if (with_ddp)
                    ddp.emplace(world, own);
                const torch::optim::AdamWOptions options(0.01);
                tensors first = own.parameters();
                first.resize(6);
                ct::ZeroRedundancyOptimizer optimizer =
                    with_ddp ? ct::ZeroRedundancyOptimizer(*ddp, first, options)
                             : ct::ZeroRedundancyOptimizer(world, first, options);
                for (int step = 0; step < STEPS; step++) {
                    if (step == 2) {
                        thaw(own, true);
                        optimizer.add_param_group(torch::optim::OptimizerParamGroup(
                            own.linear->parameters(),
                            std::make_unique<torch::optim::AdamWOptions>(0.05)));
                    }
                    optimizer.zero_grad();
                    backward(loss_of(own, step, world.rank()));
                    optimizer.step();
                }
                EXPECT(same_bits(own.parameters(), one.of.parameters()));
            });
    }
}

static void gradients_are_clipped_by_the_norm_of_their_mean()
{
    unsharded one(3, cz_rule_sgd(), {{"lr", 0.1}});
    std::vector<double> norms;
    for (int step = 0; step < STEPS; step++) {
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); },
                 step % 2 == 0 ? 0.05 : 0);
        norms.push_back(one.norm);
    }
    for (const bool with_ddp : {true, false})
        on_ranks(3, [&](czero::group &world) {
            net own;
            std::optional<ct::DistributedDataParallel> ddp;
            if (with_ddp)
                ddp.emplace(world, own);
            const torch::optim::SGDOptions options(0.1);
            ct::ZeroRedundancyOptimizer optimizer =
                with_ddp ? ct::ZeroRedundancyOptimizer(*ddp, own.parameters(), options)
                         : ct::ZeroRedundancyOptimizer(world, own.parameters(), options);
            for (int step = 0; step < STEPS; step++) {
                optimizer.zero_grad();
                backward(loss_of(own, step, world.rank()));
                optimizer.clip_grad_norm_(0.05);
                if (step % 2 == 1) /* asked of the step that fails, not of the one after it */
                    EXPECT_THROW(odd_data, "no image",
                                 optimizer.step([]() -> Tensor { throw odd_data("no image"); }));
                optimizer.step();
                if (step % 2 == 0)
                    EXPECT(optimizer.norm() == norms[static_cast<std::size_t>(step)] &&
                           optimizer.norm() > 0.05);
                else
                    EXPECT(std::isnan(optimizer.norm()));
            }
            EXPECT(same_bits(own.parameters(), one.of.parameters()));
        });
}

/* ---- saved and loaded ---- */

template <class Options>
static void save_and_load(const Options &options, const char *rule, const czero::hypers &hypers)
{
    std::string saved;
    tensors values;
    constexpr int ranks = 3;
    unsharded one(ranks, cz_rule_find(rule), hypers);
    for (int step = 0; step < STEPS; step++) {
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
        if (step == 1)
            values = copies(one.of.parameters());
    }
    const auto restore = [&](net &of) {
        const torch::NoGradGuard guard;
        tensors own = of.parameters();
        for (std::size_t i = 0; i < own.size(); i++)
            own[i].copy_(values[i]);
    };
    on_ranks(
        2,
        [&](czero::group &world) { /* each with one and a half of the three batches */
                                   net own;
                                   ct::ZeroRedundancyOptimizer optimizer(world, own.parameters(),
                                                                         options);
                                   std::ostringstream file;
                                   EXPECT_THROW(czero::error, "consolidate_state_dict",
                                                torch::save(optimizer, file));
                                   net of_all;
                                   unsharded again(ranks, cz_rule_find(rule), hypers);
                                   for (int step = 0; step < 2; step++) {
                                       again.step([&](int rank) {
                                           return backward(loss_of(again.of, step, rank));
                                       });
                                       for (std::size_t i = 0; i < own.parameters().size(); i++) {
                                           const cz_model_param mean =
                                               again.model.get_param(static_cast<std::int64_t>(i));
                                           Tensor parameter = own.parameters()[i];
                                           parameter.mutable_grad() =
                                               torch::from_blob(mean.gradient->data,
                                                                parameter.sizes())
                                                   .clone();
                                       }
                                       optimizer.step(); /* the mean of two that are equal */
                                   }
                                   optimizer.consolidate_state_dict(1);
                                   if (world.rank() == 1) {
                                       torch::save(optimizer, file);
                                       saved = file.str();
                                   } else {
                                       EXPECT_THROW(czero::error, "consolidate_state_dict",
                                                    torch::save(optimizer, file));
                                   }
        });
    on_ranks(ranks, [&](czero::group &world) {
        net own;
        restore(own);
        ct::DistributedDataParallel ddp(world, own);
        ct::ZeroRedundancyOptimizer optimizer(ddp, own.parameters(), options);
        std::istringstream file(saved);
        torch::load(optimizer, file);
        for (int step = 2; step < STEPS; step++) {
            optimizer.zero_grad();
            backward(loss_of(own, step, world.rank()));
            optimizer.step();
        }
        EXPECT(same_bits(own.parameters(), one.of.parameters()));
    });
}

template <class Optimizer, class Options> static void go_between(const Options &options)
{
    net theirs(torch::kDouble);
    Optimizer optimizer(theirs.parameters(), options);
    const auto run = [](net &of, torch::optim::Optimizer &by, int step, int rank) {
        by.zero_grad();
        backward(loss_of(of, step, rank));
        by.step();
    };
    for (int step = 0; step < 2; step++)
        run(theirs, optimizer, step, 0);
    std::ostringstream file;
    torch::save(optimizer, file);
    const tensors values = copies(theirs.parameters());
    for (int step = 2; step < STEPS; step++)
        run(theirs, optimizer, step, 0);
    std::string back;
    tensors there;
    on_ranks(2, [&](czero::group &world) {
        net ours(torch::kDouble);
        {
            const torch::NoGradGuard guard;
            tensors own = ours.parameters();
            for (std::size_t i = 0; i < own.size(); i++)
                own[i].copy_(values[i]);
        }
        ct::ZeroRedundancyOptimizer zero(world, ours.parameters(), options);
        std::istringstream from(file.str());
        torch::load(zero, from);
        run(ours, zero, 2, 0);
        zero.consolidate_state_dict();
        if (world.rank() == 0) {
            std::ostringstream to;
            torch::save(zero, to);
            back = to.str();
            there = copies(ours.parameters());
        }
    });
    net third(torch::kDouble);
    Optimizer goes_on(third.parameters(), options);
    {
        const torch::NoGradGuard guard;
        tensors own = third.parameters();
        for (std::size_t i = 0; i < own.size(); i++)
            own[i].copy_(there[i]);
    }
    std::istringstream from(back);
    torch::load(goes_on, from);
    run(third, goes_on, 3, 0);
    EXPECT(distance(third.parameters(), theirs.parameters()) < 1e-12);
}

static void state_is_saved_and_loaded()
{
    save_and_load(torch::optim::AdamWOptions(0.01), "adamw", {{"lr", 0.01}});
    save_and_load(torch::optim::SGDOptions(0.1).momentum(0.9), "sgd",
                  {{"lr", 0.1}, {"momentum", 0.9}});
    go_between<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01).amsgrad(true));
    go_between<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
    go_between<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
    go_between<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01).centered(true));
    go_between<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01));
    /* What is no archive of it on one rank is loaded on none. */
    on_ranks(2, [](czero::group &world) {
        net own;
        ct::ZeroRedundancyOptimizer optimizer(world, own.parameters(),
                                              torch::optim::AdamWOptions(0.01));
        optimizer.consolidate_state_dict(CZ_ALL_RANKS);
        std::ostringstream file, other;
        torch::save(optimizer, file);
        torch::save(torch::ones(2), other);
        std::istringstream from(world.rank() == 1 ? other.str() : file.str());
        if (world.rank() == 1)
            EXPECT_THROW(std::exception, "", torch::load(optimizer, from));
        else
            EXPECT_THROW(czero::error, "rank 1", torch::load(optimizer, from));
    });
}

/* ---- what is wrong ---- */

static void what_is_wrong_is_said()
{
    on_ranks(2, [](czero::group &world) {
        const torch::optim::AdamWOptions options(0.01);
        net own;
        ct::DistributedDataParallel ddp(world, own);
        EXPECT_THROW(czero::error, "no parameter of the data-parallel module",
                     ct::ZeroRedundancyOptimizer(ddp, net().parameters(), options));
        EXPECT_THROW(czero::error, "not contiguous",
                     ct::ZeroRedundancyOptimizer(
                         world, tensors{torch::ones({2, 3}).t().requires_grad_()}, options));
        cz_zero_options overlapped = czero::fresh<cz_zero_options>();
        overlapped.overlap = CZ_OVERLAP_STEP;
        EXPECT_THROW(czero::error, "overlap",
                     ct::ZeroRedundancyOptimizer(ddp, own.parameters(), options, overlapped));
        EXPECT_THROW(
            czero::error, "lr is -1",
            ct::ZeroRedundancyOptimizer(world, own.parameters(), torch::optim::AdamWOptions(-1)));
        ct::ZeroRedundancyOptimizer optimizer(ddp, own.parameters(), options);
        EXPECT_THROW(czero::error, "has not reduced gradients", optimizer.step());
        ct::ZeroRedundancyOptimizer alone(world, net().parameters(), options);
        EXPECT_THROW(czero::error, "gradient", alone.step());
        alone.param_groups()[0].set_options(std::make_unique<torch::optim::SGDOptions>(0.1));
        EXPECT_THROW(czero::error, "another optimizer", alone.step());
        if (world.rank() == 1)
            optimizer.param_groups()[0].options().set_lr(0.5);
        backward(loss_of(own, 0, world.rank()));
        EXPECT_THROW(czero::error, "lr", optimizer.step());
        optimizer.param_groups()[0].options().set_lr(0.01);
        if (world.rank() == 0)
            own.to(torch::kDouble);
        EXPECT_THROW(czero::error, "convolution.weight' have moved", optimizer.step());

        ct::named_tensors computed;
        computed.insert("twice", 2 * torch::ones({2}).requires_grad_());
        EXPECT_THROW(czero::error, "'twice' is computed",
                     ct::DistributedDataParallel(world, computed));

        torch::nn::Sequential bare(
            torch::nn::Linear(torch::nn::LinearOptions(2, 3).bias(false)),
            torch::nn::BatchNorm1d(
                torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false)));
        ct::DistributedDataParallel of_bare(world, *bare);
        EXPECT(of_bare.model().get_info().param_count == 1);
        EXPECT(of_bare.model().get_info().buffer_count <= 1);

        Tensor table = torch::ones({4, 2}).requires_grad_();
        Tensor none = torch::empty({0}).requires_grad_();
        ct::named_tensors list;
        list.insert("table", table);
        list.insert("again", table);
        list.insert("none", none);
        ct::DistributedDataParallel of_list(world, list);
        const Tensor rows = torch::embedding(table, torch::tensor({1, 2}), -1, false, true);
        EXPECT_THROW(czero::error, "'table' is sparse", rows.sum().backward());
        EXPECT(of_list.model().get_info().param_count == 2);
        table.mutable_grad() = Tensor();
        backward((table * (world.rank() + 1)).sum() + none.sum());
        EXPECT(torch::equal(table.grad(), torch::full({4, 2}, 1.5)));
    });
}

static void a_moved_module_keeps_its_optimizer()
{
    unsharded one(2, cz_rule_adamw(), {{"lr", 0.01}});
    for (int step = 0; step < STEPS; step++)
        one.step([&](int rank) { return backward(loss_of(one.of, step, rank)); });
    on_ranks(2, [&](czero::group &world) {
        net own;
        auto made = std::make_unique<ct::DistributedDataParallel>(world, own);
        std::optional<ct::DistributedDataParallel> ddp;
        ct::ZeroRedundancyOptimizer optimizer(*made, own.parameters(),
                                              torch::optim::AdamWOptions(0.01));
        const auto train = [&](int step) {
            optimizer.zero_grad();
            backward(loss_of(own, step, world.rank()));
            optimizer.step();
        };
        train(0);
        ddp.emplace(std::move(*made));
        made.reset();
        for (int step = 1; step < STEPS; step++)
            train(step);
        EXPECT(ddp->handle().get_info().passes == STEPS);
        EXPECT(same_bits(own.parameters(), one.of.parameters()));
    });
}

static void two_modules_and_a_compressing_hook()
{
    on_ranks(2, [](czero::group &world) {
        net first, second;
        ct::DistributedDataParallel one(world, first), two(world, second);
        two.handle().register_hook_by_name("fp16_compress");
        for (int step = 0; step < STEPS; step++) {
            first.zero_grad();
            second.zero_grad();
            backward(loss_of(first, step, world.rank()) + loss_of(second, step, world.rank()));
            EXPECT(distance({first.linear->weight.grad()}, {second.linear->weight.grad()}) < 1e-3);
        }
        EXPECT(one.handle().get_info().passes == STEPS);
        EXPECT(std::string(two.handle().get_info().hook) == "fp16_compress");
    });
}

static std::size_t bytes_held()
{
    std::size_t sum = 0;
    for (int kind = CZ_MEMORY_GENERAL; kind <= CZ_MEMORY_STATE_DICT; kind++)
        sum += cz_memory_bytes(static_cast<cz_memory_kind>(kind));
    return sum;
}

static void a_thousand_of_them_leave_nothing()
{
    on_ranks(2, [](czero::group &world) {
        net own;
        world.barrier();
        const std::size_t before = bytes_held();
        world.barrier();
        const auto accumulator = torch::autograd::impl::grad_accumulator(own.linear->bias);
        for (int i = 0; i < 1000; i++) {
            ct::DistributedDataParallel ddp(world, own);
            ct::ZeroRedundancyOptimizer optimizer(ddp, own.parameters(),
                                                  torch::optim::AdamWOptions(0.001));
            optimizer.zero_grad();
            const auto version = own.linear->bias._version();
            backward(loss_of(own, i % 7, world.rank()));
            optimizer.step();
            EXPECT(own.linear->bias._version() > version);
            EXPECT(accumulator->post_hooks().size() == 1);
        }
        EXPECT(accumulator->post_hooks().empty());
        world.barrier();
        EXPECT(bytes_held() <= before + 65536);
        world.barrier();
    });
}

/* All, or those that are named. */
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)();
    } tests[] = {
        {"bits_are_those_of_one_unsharded_process", bits_are_those_of_one_unsharded_process},
        {"losses_are_those_of_libtorchs_optimizers", losses_are_those_of_libtorchs_optimizers},
        {"libtorchs_own_optimizers_step_on_the_mean", libtorchs_own_optimizers_step_on_the_mean},
        {"passes_without_synchronisation_add_up", passes_without_synchronisation_add_up},
        {"gradients_dropped_between_passes_count_as_zero",
         gradients_dropped_between_passes_count_as_zero},
        {"unused_parameters_are_found", unused_parameters_are_found},
        {"buckets_travel_while_the_pass_goes_on", buckets_travel_while_the_pass_goes_on},
        {"a_backward_pass_that_throws_ends_it_everywhere",
         a_backward_pass_that_throws_ends_it_everywhere},
        {"a_rank_that_ends_is_missed", a_rank_that_ends_is_missed},
        {"uneven_batches_count_by_weight", uneven_batches_count_by_weight},
        {"ranks_without_batches_accompany_the_others", ranks_without_batches_accompany_the_others},
        {"closures_run_once_and_fail_everywhere", closures_run_once_and_fail_everywhere},
        {"frozen_layers_are_left_alone", frozen_layers_are_left_alone},
        {"groups_are_added", groups_are_added},
        {"gradients_are_clipped_by_the_norm_of_their_mean",
         gradients_are_clipped_by_the_norm_of_their_mean},
        {"state_is_saved_and_loaded", state_is_saved_and_loaded},
        {"what_is_wrong_is_said", what_is_wrong_is_said},
        {"a_moved_module_keeps_its_optimizer", a_moved_module_keeps_its_optimizer},
        {"two_modules_and_a_compressing_hook", two_modules_and_a_compressing_hook},
        {"a_thousand_of_them_leave_nothing", a_thousand_of_them_leave_nothing},
    };
    at::set_num_threads(1);
    for (const auto &test : tests) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++)
            wanted = wanted || std::strcmp(test.name, argv[i]) == 0;
        if (wanted)
            test.run();
    }
    std::puts("torch.hpp: all as expected");
    return 0;
}
