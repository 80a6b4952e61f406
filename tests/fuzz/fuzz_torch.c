/* SPDX-License-Identifier: MIT */
/* Pickles of torch's files, over storages that are pretended. What is accepted has tensors that lie
 * in their storages, all parts of which can be read, and dictionaries that can be walked. */
#include "fuzz.h"

#include "base/memory.h"
#include "interop/torch.h"

#include <string.h>

enum { MOST = 64 };

static char names[][24] = {"archive/data/0", "archive/data/1", "archive/data/2"};
static const cz__container_entry entries[] = {
    {.name = names[0], .bytes = 48, .offset = 64},
    {.name = names[1], .bytes = 8, .offset = 128, .number = 1},
    {.name = names[2], .bytes = 4, .offset = 192, .number = 2}};

/* Its first and last elements, and what is left out is inside its storage. */
static void check_tensor(const cz__torch *file, const cz__torch_tensor *t)
{
    char block[MOST * 16];
    const size_t size = cz__type_unit(t->form.dtype);
    const int64_t count = (int64_t)(t->form.end / size);
    uint64_t last = t->first;
    CZ_FUZZ_CHECK(size > 0 && t->form.begin == 0 && t->form.name[0]);
    CZ_FUZZ_CHECK((count == 0) == (t->storage == NULL));
    if (count == 0)
        return;
    for (int d = 0; d < t->form.dimensions; d++)
        last += (uint64_t)(t->form.shape[d] - 1) * (uint64_t)t->strides[d] * size;
    CZ_FUZZ_CHECK(t->first <= last && last + size <= t->storage->bytes);
    const int64_t part = count < MOST ? count : MOST;
    CZ_FUZZ_CHECK(cz__torch_read(file, t, 0, part, block) == CZ_OK);
    CZ_FUZZ_CHECK(cz__torch_read(file, t, count - part, count, block) == CZ_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz__torch *file;
    cz__torch_contents *contents = NULL;
    cz_status status = cz__torch_pretend(&file, "FILE", bytes, count, entries, 3);
    CZ_FUZZ_CHECK((status == CZ_OK) == (file != NULL));
    if (file)
        status = cz__torch_contents_read(&contents, file, NULL);
    CZ_FUZZ_CHECK((status == CZ_OK) == (contents != NULL));
    if (!contents) {
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED);
        CZ_FUZZ_CHECK(strncmp(cz_last_error(), "FILE: ", 6) == 0);
    }
    for (int64_t i = 0; contents && i < contents->count; i++)
        check_tensor(contents->file, &contents->tensors[i]);
    cz__torch_contents_close(&contents);
    return 0;
}

/* ---- seeds ---- */

static void put_tensor(cz__pickling *p, const char *storage, const char *key, int64_t count,
                       int64_t rows, int64_t columns)
{
    const int64_t numbers[][2] = {{rows, columns}, {1, rows}};
    cz__pickle_put_global(p, "torch._utils", "_rebuild_tensor_v2");
    cz__pickle_op(p, '(');
    cz__pickle_op(p, '(');
    cz__pickle_put_text(p, "storage");
    cz__pickle_put_global(p, "torch", storage);
    cz__pickle_put_text(p, key);
    cz__pickle_put_text(p, "cpu");
    cz__pickle_put_integer(p, count);
    cz__pickle_op(p, 't');
    cz__pickle_op(p, 'Q');
    cz__pickle_put_integer(p, 0);
    for (int i = 0; i < 2; i++) {
        cz__pickle_op(p, '(');
        for (int k = 0; rows > 0 && k < 2; k++)
            cz__pickle_put_integer(p, numbers[i][k]);
        cz__pickle_op(p, 't');
    }
    cz__pickle_put_bool(p, false);
    cz__pickle_put_global(p, "collections", "OrderedDict");
    cz__pickle_op(p, ')');
    cz__pickle_op(p, 'R');
    cz__pickle_op(p, 't');
    cz__pickle_op(p, 'R');
}

static void put_model(cz__pickling *p)
{
    cz__pickle_op(p, '}');
    cz__pickle_op(p, '(');
    cz__pickle_put_text(p, "w");
    put_tensor(p, "FloatStorage", "0", 12, 3, 4);
    cz__pickle_put_text(p, "n");
    put_tensor(p, "LongStorage", "1", 1, 0, 0);
    cz__pickle_op(p, 'u');
}

static void put_optimizer(cz__pickling *p)
{
    cz__pickle_op(p, '}');
    cz__pickle_op(p, '(');
    cz__pickle_put_text(p, "state");
    cz__pickle_op(p, '}');
    cz__pickle_put_integer(p, 0);
    cz__pickle_op(p, '}');
    cz__pickle_op(p, '(');
    cz__pickle_put_text(p, "step");
    put_tensor(p, "FloatStorage", "2", 1, 0, 0);
    cz__pickle_put_text(p, "square_avg");
    put_tensor(p, "FloatStorage", "0", 12, 3, 4);
    cz__pickle_op(p, 'u');
    cz__pickle_op(p, 's');
    cz__pickle_put_text(p, "param_groups");
    cz__pickle_op(p, ']');
    cz__pickle_op(p, '}');
    cz__pickle_op(p, '(');
    static const char *const keys[] = {"lr",       "momentum",     "alpha",     "eps",
                                       "centered", "weight_decay", "initial_lr"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        cz__pickle_put_text(p, keys[i]);
        cz__pickle_put_real(p, 0.5);
    }
    cz__pickle_put_text(p, "params");
    cz__pickle_op(p, ']');
    cz__pickle_put_integer(p, 0);
    cz__pickle_op(p, 'a');
    cz__pickle_op(p, 'u');
    cz__pickle_op(p, 'a');
    cz__pickle_op(p, 'u');
}

static void put_own(cz__pickling *p)
{
    static const char *const texts[] = {"format", "czero consolidated"};
    cz__pickle_put_text(p, "czero");
    cz__pickle_op(p, '}');
    cz__pickle_op(p, '(');
    cz__pickle_put_text(p, texts[0]);
    cz__pickle_put_text(p, texts[1]);
    cz__pickle_put_text(p, "version");
    cz__pickle_put_integer(p, 1);
    cz__pickle_put_text(p, "step");
    cz__pickle_put_integer(p, 70000);
    cz__pickle_put_text(p, "buffers");
    cz__pickle_op(p, ']');
    cz__pickle_put_text(p, "n");
    cz__pickle_op(p, 'a');
    cz__pickle_put_text(p, "common");
    cz__pickle_op(p, '}');
    cz__pickle_put_text(p, "inner");
    put_model(p);
    cz__pickle_op(p, 's');
    cz__pickle_op(p, 'u');
}

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    cz__pickling p = {0};
    cz__pickle_begin(&p);
    if (number == 0)
        put_model(&p);
    else if (number == 1)
        put_optimizer(&p);
    else if (number == 2) {
        cz__pickle_op(&p, '}');
        cz__pickle_op(&p, '(');
        cz__pickle_put_text(&p, "model");
        put_model(&p);
        cz__pickle_put_text(&p, "optimizer");
        put_optimizer(&p);
        put_own(&p);
        cz__pickle_op(&p, 'u');
    } else
        p.out.count = 0;
    if (p.out.count > 0)
        cz__pickle_end(&p);
    const size_t count = p.out.count <= room ? p.out.count : 0;
    memcpy(bytes, cz__text_get(&p.out), count);
    cz__text_clear(&p.out);
    return count;
}
