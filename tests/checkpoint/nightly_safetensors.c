/* SPDX-License-Identifier: MIT */
/* Headers near the limit of the format, 100 MB. */
#include "checkpoint/headers.h"

static const int64_t shape[] = {5};

TEST(a_million_tensors)
{
    cz__safetensors *header = new_header();
    char name[40];
    for (int64_t i = 0; i < 1000000; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", (int)(i * 7919 % 1000000));
        assert_ok(cz__safetensors_add(header, name, CZ_F32, 1, shape));
    }
    cz__safetensors *read = again(header);
    assert_same(header, read);
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&read);
}

/* Longer than any reader would take. */
TEST(a_header_that_is_too_long)
{
    const size_t length = 50000000;
    char *name = malloc(length + 1), *bytes = NULL;
    size_t count;
    cz__safetensors *header = new_header();
    memset(name, 'n', length);
    name[length] = '\0';
    for (int i = 0; i < 2; i++) {
        name[0] = (char)('a' + i);
        assert_ok(cz__safetensors_add(header, name, CZ_U8, 0, NULL));
        assert_int_equal(cz__safetensors_dump(header, &bytes, &count),
                         i == 0 ? CZ_OK : CZ_ERR_UNSUPPORTED);
        cz__free(bytes);
    }
    assert_true(strlen(cz_last_error()) < 200);
    cz__safetensors_destroy(&header);
    free(name);
}
