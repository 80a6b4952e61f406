/* SPDX-License-Identifier: MIT */
/* A small convolutional net of libtorch on Fashion-MNIST (Debian's dataset-fashion-mnist). Each
 * rank takes its part of every batch; gradients are averaged inside backward(), the state of AdamW
 * is sharded. The losses are those of one process with libtorch's own AdamW: that is what `alone`
 * trains.
 *
 *     13_libtorch [STEPS]      CZERO_RANKS=3 13_libtorch      mpirun -n 2 13_libtorch
 *     13_libtorch STEPS alone
 */
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/torch.h>
#include <zlib.h>

#include <czero/torch.hpp>

constexpr std::int64_t BATCH = 60, SIDE = 28, CLASSES = 10;

struct net : torch::nn::Module {
    net()
    {
        first = register_module("first",
                                torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 5).stride(2)));
        second = register_module("second",
                                 torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).stride(2)));
        last = register_module("last", torch::nn::Linear(16 * 5 * 5, CLASSES));
    }
    torch::Tensor forward(const torch::Tensor &images)
    {
        const torch::Tensor features = torch::relu(second(torch::relu(first(images))));
        return last(features.flatten(1));
    }
    torch::nn::Conv2d first{nullptr}, second{nullptr};
    torch::nn::Linear last{nullptr};
};

/* ---- the data: IDX files, gzipped; so many words in the header ---- */

static torch::Tensor read_idx(const std::string &name, int words, std::int64_t count,
                              std::int64_t each)
{
    const std::string path = "/usr/share/datasets/fashion-mnist/" + name + "-ubyte.gz";
    std::vector<char> header(4 + 4 * static_cast<std::size_t>(words));
    const torch::Tensor bytes = torch::empty({count, each}, torch::kByte);
    gzFile file = gzopen(path.c_str(), "rb");
    const bool whole =
        file &&
        gzread(file, header.data(), static_cast<unsigned>(header.size())) ==
            static_cast<int>(header.size()) &&
        gzread(file, bytes.data_ptr(), static_cast<unsigned>(bytes.numel())) == bytes.numel();
    if (file)
        gzclose(file);
    if (!whole)
        throw std::runtime_error(path + ": no whole IDX file (package dataset-fashion-mnist)");
    return bytes;
}

struct data {
    data(const std::string &name, std::int64_t count)
        : images(read_idx(name + "-images-idx3", 3, count, SIDE * SIDE)
                     .to(torch::kFloat)
                     .div_(255)
                     .reshape({count, 1, SIDE, SIDE})),
          labels(read_idx(name + "-labels-idx1", 1, count, 1).to(torch::kLong).flatten())
    {
    }
    torch::Tensor images, labels;
};

/* ---- training ---- */

/* With the usual 1e-8 a gradient that is 0 but for rounding would move its weight as far as any. */
static const torch::optim::AdamWOptions OPTIONS = torch::optim::AdamWOptions(3e-3).eps(1e-5);

/* A step on `count` images from `begin` on: the mean of their losses. */
static double step(net &of, torch::optim::Optimizer &optimizer, const data &from,
                   std::int64_t begin, std::int64_t count)
{
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(
        of.forward(from.images.narrow(0, begin, count)), from.labels.narrow(0, begin, count));
    loss.backward();
    optimizer.step();
    return loss.item<double>();
}

static double accuracy(net &of, const data &from)
{
    const torch::NoGradGuard guard;
    return of.forward(from.images)
        .argmax(1)
        .eq(from.labels)
        .to(torch::kDouble)
        .mean()
        .item<double>();
}

static void report(int number, int steps, double loss)
{
    if (number % 20 == 0 || number == steps - 1)
        std::printf("step %4d: loss %.6f\n", number, loss);
}

static void train_alone(net &of, const data &training, int steps)
{
    torch::optim::AdamW optimizer(of.parameters(), OPTIONS);
    torch::optim::StepLR schedule(optimizer, 100, 0.8);
    for (int s = 0; s < steps; s++) {
        report(s, steps, step(of, optimizer, training, s * BATCH % 60000, BATCH));
        schedule.step();
    }
}

static void train(czero::group &world, net &of, const data &training, int steps)
{
    czero::torch::DistributedDataParallel ddp(world, of); /* the values are rank 0's */
    czero::torch::ZeroRedundancyOptimizer optimizer(ddp, of.parameters(), OPTIONS);
    torch::optim::StepLR schedule(optimizer, 100, 0.8);
    const std::int64_t begin = BATCH * world.rank() / world.size();
    const std::int64_t count = BATCH * (world.rank() + 1) / world.size() - begin;
    ddp.set_weight(static_cast<double>(count)); /* they may differ by one */
    for (int s = 0; s < steps; s++) {
        double loss = step(of, optimizer, training, s * BATCH % 60000 + begin, count);
        schedule.step();
        loss *= static_cast<double>(count) / static_cast<double>(BATCH);
        world.all_reduce(loss, CZ_SUM);
        if (world.rank() == 0)
            report(s, steps, loss);
    }
    if (world.rank() == 0)
        std::printf("%d ranks, %zu bytes of optimizer state on rank 0\n", world.size(),
                    optimizer.handle().get_info().state_bytes);
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? std::atoi(argv[1]) : 400;
    try {
        at::set_num_threads(1); /* ranks are threads */
        torch::manual_seed(1);
        const data training("train", 60000), test("t10k", 10000);
        net first;
        if (argc > 2 && argv[2] == std::string("alone")) {
            train_alone(first, training, steps);
        } else {
            cz_launch_options options = czero::fresh<cz_launch_options>();
            options.ranks = std::getenv("CZERO_RANKS") ? 0 : 2;
            czero::launch(
                [&](czero::group &world) {
                    net another;
                    train(world, world.rank() == 0 ? first : another, training, steps);
                    if (world.rank() == 0)
                        std::printf("accuracy on the test images: %.3f\n", accuracy(first, test));
                },
                options);
        }
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
