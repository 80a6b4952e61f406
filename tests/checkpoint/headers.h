/* SPDX-License-Identifier: MIT */
/* Headers of safetensors files, written, read again and compared. */
#ifndef CZ_TESTS_CHECKPOINT_HEADERS_H
#define CZ_TESTS_CHECKPOINT_HEADERS_H

#include "support/cz_test.h"

#include "base/memory.h"
#include "io/safetensors.h"

#include <string.h>

static inline cz__safetensors *new_header(void)
{
    cz__safetensors *header = NULL;
    assert_ok(cz__safetensors_create(&header));
    return header;
}

/* What is dumped, read again. */
static inline cz__safetensors *again(const cz__safetensors *header)
{
    char *bytes = NULL;
    size_t count = 0;
    cz__safetensors *read = NULL;
    assert_ok(cz__safetensors_dump(header, &bytes, &count));
    assert_int_equal(count % 64, 0);
    assert_true(count == cz__safetensors_data_begin(header));
    if (cz__safetensors_parse(&read, "again", bytes, count,
                              count + cz__safetensors_data_bytes(header)) != CZ_OK)
        fail_msg("%s", cz_last_error());
    cz__free(bytes);
    return read;
}

static inline void assert_same(const cz__safetensors *a, const cz__safetensors *b)
{
    assert_true(cz__safetensors_data_begin(a) == cz__safetensors_data_begin(b));
    assert_true(cz__safetensors_data_bytes(a) == cz__safetensors_data_bytes(b));
    assert_true(cz__safetensors_count(a) == cz__safetensors_count(b));
    for (int64_t i = 0; i < cz__safetensors_count(a); i++) {
        const cz__safetensors_entry *x = cz__safetensors_entry_at(a, i);
        const cz__safetensors_entry *y = cz__safetensors_entry_at(b, i);
        assert_string_equal(x->name, y->name);
        assert_true(x->dtype == y->dtype && x->dimensions == y->dimensions);
        assert_memory_equal(x->shape, y->shape, sizeof x->shape);
        assert_true(x->begin == y->begin && x->end == y->end);
        assert_ptr_equal(cz__safetensors_find(a, y->name), x);
        assert_ptr_equal(cz__safetensors_find(b, x->name), y);
    }
}

#endif
