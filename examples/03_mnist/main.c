/* SPDX-License-Identifier: MIT */
/* An MLP on Fashion-MNIST (Debian's dataset-fashion-mnist): 784 inputs, 128 ReLU, 10 classes, Adam
 * with two parameter groups, an accuracy on the test images at the end.
 *
 *     03_mnist [STEPS]        CZERO_RANKS=4 03_mnist        mpirun -n 4 03_mnist
 */
#include "mnist.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    task t = {.steps = argc > 1 ? atoi(argv[1]) : 1000};
    cz_launch_options launch = CZ_LAUNCH_OPTIONS_INIT;
    launch.ranks = getenv("CZERO_RANKS") ? 0 : 2;
    CZ_CHECK(task_read(&t));
    CZ_CHECK(cz_launch(train, &t, &launch));
    task_free(&t);
    return 0;
}
