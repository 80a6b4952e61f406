/* SPDX-License-Identifier: MIT */
/* Reading a checkpoint without ranks, model and optimizer: what is in it, and some of its numbers.
 * What is read is any path that `czero inspect` takes; without one, a checkpoint that two ranks
 * make first.
 *
 *     10_read_checkpoint [PATH]
 */
#include <czero/czero.h>

enum { N = 6 };
static const char folder[] = "10_read_checkpoint.saved";

/* Each rank saves the half of the optimizer's state that it owns. */
static cz_status save(cz_group *group, void *context)
{
    float weights[N] = {0}, gradients[N] = {1, 2, 3, 4, 5, 6};
    cz_checkpoint_options options = CZ_CHECKPOINT_OPTIONS_INIT;
    cz_save_options progress = CZ_SAVE_OPTIONS_INIT;
    cz_checkpoint *checkpoint;
    CZ_TRY(cz_model_create(&options.model));
    CZ_TRY(cz_model_add(options.model, "weights", weights, gradients, CZ_F32, 1, (int64_t[]){N}));
    CZ_TRY(cz_zero_create(&options.zero, group, options.model, cz_rule_sgd(),
                          CZ_HYPERS({"lr", 0.5}, {"momentum", 0.9}), NULL));
    CZ_TRY(cz_zero_step(options.zero, NULL, NULL));
    CZ_TRY(cz_checkpoint_create(&checkpoint, group, folder, &options));
    progress.step = 1;
    CZ_TRY(cz_checkpoint_save(checkpoint, &progress));
    cz_checkpoint_destroy(&checkpoint);
    cz_zero_destroy(&options.zero);
    cz_model_destroy(&options.model);
    return CZ_OK;
}

/* The first numbers of a value (slot NULL) or a slot, of a tensor of 32-bit floats. */
static void print_numbers(cz_archive *archive, int64_t place, const char *slot, int64_t count)
{
    float numbers[N];
    count = count < N ? count : N;
    CZ_CHECK(cz_archive_read(archive, place, slot, 0, count, numbers));
    printf("  %s", slot ? slot : "value");
    for (int64_t i = 0; i < count; i++)
        printf(" %g", numbers[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    cz_archive *archive;
    cz_archive_info info = CZ_ARCHIVE_INFO_INIT;
    cz_archive_tensor tensor = CZ_ARCHIVE_TENSOR_INIT;
    const char *slot;
    if (argc < 2)
        CZ_CHECK(cz_launch(save, NULL,
                           &(cz_launch_options){.size = sizeof(cz_launch_options), .ranks = 2}));
    CZ_CHECK(cz_archive_open(&archive, argc < 2 ? folder : argv[1], CZ_NEWEST));
    CZ_CHECK(cz_archive_verify(archive, NULL, NULL)); /* every checksum; the first that is wrong */
    CZ_CHECK(cz_archive_get_info(archive, &info));
    printf("%s of step %lld\n", info.kind, (long long)info.step);
    for (int64_t place = 0; place < info.param_count + info.buffer_count; place++) {
        CZ_CHECK(cz_archive_get_tensor(archive, place, &tensor));
        printf("%s: %lld elements of %s\n", tensor.name, (long long)tensor.count, tensor.type);
        if (tensor.dtype != CZ_F32)
            continue;
        print_numbers(archive, place, NULL, tensor.count);
        for (int64_t i = 0; (slot = cz_archive_slot(archive, place, i, &tensor.dtype)); i++)
            if (tensor.dtype == CZ_F32)
                print_numbers(archive, place, slot, tensor.count);
    }
    cz_archive_destroy(&archive);
    return 0;
}
