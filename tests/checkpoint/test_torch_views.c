/* SPDX-License-Identifier: MIT */
/* Tensors of torch that are views of their storages: of every type and order, byte by byte, or
 * refused. */
#include "checkpoint/torch_forms.h"

#include "interop/bundle.h"

typedef struct seen {
    torch_view view;
    const char *entry;
    size_t bytes;
    cz_dtype dtype;
    int64_t count;
    double values[12];
    bool big;
} seen;

static double value_at(const void *data, cz_dtype dtype, int64_t i)
{
    double value = 0;
    if (dtype == CZ_I64)
        return (double)((const int64_t *)data)[i];
    if (dtype == CZ_U8)
        return ((const uint8_t *)data)[i];
    if (dtype == CZ_F32)
        return (double)((const float *)data)[i];
    if (dtype == CZ_F64)
        return ((const double *)data)[i];
    const uint16_t bits = ((const uint16_t *)data)[i];
    if (dtype == CZ_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float f;
        memcpy(&f, &wide, sizeof f);
        value = (double)f;
    }
    return value;
}

static void check_view(const seen *s)
{
    form f;
    torch_file file;
    cz__bundle *b;
    char got[12 * 8];
    begin_form(&f, &file, NULL);
    torch_add(&file, "data/0", s->entry, s->bytes);
    if (s->big)
        torch_add(&file, "byteorder", "big", 3);
    torch_op(&file, "}(");
    torch_named(&file, "x", &s->view);
    torch_op(&file, "u");
    write_form(&f, &file);
    if (cz__bundle_open(&b, f.job.path, NULL) != CZ_OK)
        fail_msg("%s", cz_last_error());
    const cz__located *found = cz__bundle_find(b, "x");
    assert_non_null(found);
    assert_int_equal(found->entry->dtype, s->dtype);
    assert_int_equal(found->entry->end, (uint64_t)s->count * cz_dtype_size(s->dtype));
    for (int64_t begin = 0; begin <= s->count; begin++) /* any part of it */
        for (int64_t end = begin; end <= s->count; end++) {
            CZ_CHECK(cz__bundle_read(b, "x", begin, end, got));
            for (int64_t i = begin; i < end; i++)
                if (value_at(got, s->dtype, i - begin) != s->values[i])
                    fail_msg("%s, element %d is %g, wanted %g", s->view.storage, (int)i,
                             value_at(got, s->dtype, i - begin), s->values[i]);
        }
    cz__bundle_close(&b);
    remove_folder(f.job.folder);
}

TEST(views_are_read_as_pytorch_sees_them)
{
    static const unsigned char bf16[] = {0x80, 0x3f, 0, 0x40, 0x40, 0x40}; /* 1 2 3 */
    static const unsigned char big[] = {0x3f, 0x80, 0, 0, 0x40, 0, 0, 0};
    static const unsigned char longs[] = {0, 0, 0, 0, 0, 0, 1, 2};
    const char *const raw = (const char *)floats;
    const seen views[] = {
        {{"FloatStorage", "0", 12, 0, {3, 4, -1}, {1, 3, -1}},
         raw,
         48,
         CZ_F32,
         12,
         {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11},
         false}, /* transposed */
        {{"FloatStorage", "0", 12, 1, {2, 2, 2, -1}, {1, 6, 2, -1}},
         raw,
         48,
         CZ_F32,
         8,
         {1, 3, 7, 9, 2, 4, 8, 10},
         false},
        {{"FloatStorage", "0", 12, 2, {2, 3, -1}, {0, 1, -1}},
         raw,
         48,
         CZ_F32,
         6,
         {2, 3, 4, 2, 3, 4},
         false}, /* expanded */
        {{"FloatStorage", "0", 12, 5, {4, -1}, {0, -1}}, raw, 48, CZ_F32, 4, {5, 5, 5, 5}, false},
        {{"FloatStorage", "0", 12, 3, {2, 2, -1}, {4, 1, -1}},
         raw,
         48,
         CZ_F32,
         4,
         {3, 4, 7, 8},
         false}, /* columns of a matrix */
        {{"FloatStorage", "0", 12, 11, {-1}, {-1}}, raw, 48, CZ_F32, 1, {11}, false},
        {{"FloatStorage", "0", 12, 11, {1, 1, -1}, {1000, 7, -1}}, raw, 48, CZ_F32, 1, {11}, false},
        {{"FloatStorage", "0", 12, 12, {3, 0, -1}, {0, 1, -1}}, raw, 48, CZ_F32, 0, {0}, false},
        {{"BFloat16Storage", "0", 3, 0, {3, -1}, {1, -1}},
         (const char *)bf16,
         6,
         CZ_BF16,
         3,
         {1, 2, 3},
         false},
        {{"BoolStorage", "0", 2, 0, {2, -1}, {1, -1}}, "\1\0", 2, CZ_U8, 2, {1, 0}, false},
        {{"FloatStorage", "0", 2, 0, {2, -1}, {1, -1}},
         (const char *)big,
         8,
         CZ_F32,
         2,
         {1, 2},
         true},
        {{"LongStorage", "0", 1, 0, {2, -1}, {0, -1}},
         (const char *)longs,
         8,
         CZ_I64,
         2,
         {258, 258},
         true},
        {{"ByteStorage", "0", 2, 0, {2, -1}, {1, -1}}, "\1\2", 2, CZ_U8, 2, {1, 2}, true},
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        check_view(&views[i]);
}

static void refuse_view(const torch_view *view, size_t bytes, cz_status status, const char *says)
{
    form f;
    torch_file file;
    begin_form(&f, &file, NULL);
    torch_add(&file, "data/0", floats, bytes);
    torch_op(&file, "}(");
    torch_named(&file, "layer.x", view);
    torch_op(&file, "u");
    write_form(&f, &file);
    expect_import(&f.job, 3, status, "'layer.x'", says);
    remove_folder(f.job.folder);
}

TEST(views_that_are_refused)
{
    static const struct {
        torch_view view;
        cz_status status;
        const char *says;
    } cases[] = {
        {{"FloatStorage", "0", 12, 1, {3, 4, -1}, {4, 1, -1}}, CZ_ERR_FORMAT, "beyond its storage"},
        {{"FloatStorage", "0", 12, 12, {-1}, {-1}}, CZ_ERR_FORMAT, "beyond its storage"},
        {{"FloatStorage", "0", 12, 0, {2, -1}, {12, -1}}, CZ_ERR_FORMAT, "beyond its storage"},
        {{"FloatStorage", "0", 12, INT64_MAX, {2, -1}, {1, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "0", 12, 0, {INT64_MAX, INT64_MAX, -1}, {0, 0, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "0", 12, 0, {3, -1}, {INT64_MAX, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "0", 12, 2, {3, -1}, {-2, -1}}, CZ_ERR_FORMAT, "a stride that is no"},
        {{"FloatStorage", "0", 12, 2, {-3, -1}, {1, -1}}, CZ_ERR_FORMAT, "a size that is no"},
        {{"FloatStorage", "0", 12, -5, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "offset"},
        {{"FloatStorage", "0", 12, 0, {3, -1}, {1, 1, -1}}, CZ_ERR_FORMAT, "as many strides"},
        {{"FloatStorage", "0", 13, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "48 bytes, wanted 52"},
        {{"DoubleStorage", "0", 12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "48 bytes, wanted 96"},
        {{"FloatStorage", "0", -12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "size"},
        {{"FloatStorage", "0", INT64_MAX, 0, {3, -1}, {1, -1}},
         CZ_ERR_FORMAT,
         "beyond its storage"},
        {{"FloatStorage", "7", 12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "'7' is not in the file"},
        {{"FloatStorage", "../version", 12, 0, {3, -1}, {1, -1}}, CZ_ERR_FORMAT, "not in the file"},
        {{"QInt8Storage", "0", 48, 0, {3, -1}, {1, -1}}, CZ_ERR_UNSUPPORTED, "torch.QInt8Storage"},
        {{"FloatStorage",
          "0",
          12,
          0,
          {1, 1, 1, 1, 1, 1, 1, 1, 1, -1},
          {1, 1, 1, 1, 1, 1, 1, 1, 1, -1}},
         CZ_ERR_UNSUPPORTED,
         "9 dimensions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse_view(&cases[i].view, sizeof floats, cases[i].status, cases[i].says);
}

/* Types that are only carried: a part of it, in either order of bytes; the two halves of a complex
 * number stay. */
TEST(types_that_are_only_carried)
{
    static const struct {
        const char *storage;
        int64_t count;
        int type;
        const char *from, *from_big;
    } cases[] = {
        {"CharStorage", 4, CZ__TYPE_I8, "abcd", "abcd"},
        {"ShortStorage", 4, CZ__TYPE_I16, "aAbBcCdD", "AaBbCcDd"},
        {"ComplexFloatStorage", 2, CZ__TYPE_C64, "abcdABCDefghEFGH", "dcbaDCBAhgfeHGFE"},
    };
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        form f;
        torch_file file;
        cz__bundle *b;
        char got[16];
        const bool big = i % 2 == 1;
        const int64_t count = cases[i / 2].count, from = count / 4, to = count - from;
        const size_t bytes = strlen(cases[i / 2].from), size = bytes / (size_t)count;
        begin_form(&f, &file, NULL);
        torch_add(&file, "data/0", big ? cases[i / 2].from_big : cases[i / 2].from, bytes);
        if (big)
            torch_add(&file, "byteorder", "big", 3);
        torch_op(&file, "}(");
        torch_named(&file, "x",
                    &(torch_view){cases[i / 2].storage, "0", count, 0, {count, -1}, {1, -1}});
        torch_op(&file, "u");
        write_form(&f, &file);
        CZ_CHECK(cz__bundle_open(&b, f.job.path, NULL));
        assert_int_equal(cz__bundle_find(b, "x")->entry->dtype, cases[i / 2].type);
        CZ_CHECK(cz__bundle_read(b, "x", from, to, got));
        assert_memory_equal(got, cases[i / 2].from + (size_t)from * size,
                            (size_t)(to - from) * size);
        cz__bundle_close(&b);
        remove_folder(f.job.folder);
    }
}
