/* SPDX-License-Identifier: MIT */
/* Element types of files that the library does not compute with: known, measured, carried, and
 * loaded into nothing. */
#include <stdio.h>
#include <string.h>

#include "io/safetensors.h"
#include "support/cz_test.h"

/* A file with one tensor of that type. */
static cz_status parse(cz__safetensors **header, const char *type, const char *shape, int bytes)
{
    char file[400] = {0};
    const int count = snprintf(file + 8, sizeof file - 8,
                               "{\"w\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%d]}}",
                               type, shape, bytes);
    file[0] = (char)count;
    assert_true(count > 0 && count < 128 && count + 8 + bytes < (int)sizeof file);
    return cz__safetensors_parse(header, "FILE", file, (size_t)(8 + count),
                                 (uint64_t)(8 + count + bytes));
}

TEST(foreign_types_are_known_by_their_bits)
{
    static const struct {
        const char *type, *shown, *shape;
        int bytes;
        size_t unit;
    } cases[] = {
        {"BOOL", "bool", "[3]", 3, 1},       {"I8", "i8", "[3]", 3, 1},
        {"I16", "i16", "[3]", 6, 2},         {"U16", "u16", "[2,2]", 8, 2},
        {"U32", "u32", "[3]", 12, 4},        {"U64", "u64", "[]", 8, 8},
        {"F8_E4M3", "f8_e4m3", "[5]", 5, 1}, {"F8_E5M2", "f8_e5m2", "[5]", 5, 1},
        {"F8_E8M0", "f8_e8m0", "[5]", 5, 1}, {"C64", "c64", "[2]", 16, 8},
        {"C128", "c128", "[2]", 32, 16},     {"F4", "f4", "[3,2]", 3, 1},
        {"F6_E2M3", "f6_e2m3", "[4]", 3, 1}, {"X24_NEW", "x24_new", "[2]", 6, 1},
        {"F4", "f4", "[0]", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cz__safetensors *header;
        if (parse(&header, cases[i].type, cases[i].shape, cases[i].bytes) != CZ_OK)
            fail_msg("%s", cz_last_error());
        const cz__safetensors_entry *e = cz__safetensors_entry_at(header, 0);
        assert_true(cz__type_is_foreign(e->dtype));
        assert_int_equal(cz_dtype_size(e->dtype), 0);
        assert_string_equal(cz__type_name(e->dtype), cases[i].type);
        assert_string_equal(cz__type_shown(e->dtype), cases[i].shown);
        assert_int_equal(cz__type_unit(e->dtype), cases[i].unit);
        assert_int_equal((uint64_t)cz__type_units(e->dtype, e->dimensions, e->shape) *
                             cases[i].unit,
                         cases[i].bytes);
        assert_int_equal(cz__type_find(cases[i].type), e->dtype);
        cz__safetensors_destroy(&header);
        assert_int_equal(parse(&header, cases[i].type, cases[i].shape, cases[i].bytes + 1),
                         CZ_ERR_FORMAT);
    }
    cz__safetensors *header;
    assert_int_equal(parse(&header, "F4", "[3]", 2), CZ_ERR_FORMAT); /* a byte and a half */
    assert_non_null(strstr(cz_last_error(), "no whole number of bytes"));
}

TEST(names_that_are_no_types)
{
    static const char *const names[] = {"",
                                        "F",
                                        "8",
                                        "F08",
                                        "f32",
                                        "F32x",
                                        "F32-1",
                                        "F2048",
                                        "F8_e4m3",
                                        "F99999999999999999999",
                                        "ABCDEFGHIJKLMNOPQRSTUVW8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(cz__type_find(names[i]), 0);
    assert_null(cz__type_name((cz_dtype)0));
    assert_null(cz__type_name((cz_dtype)-1));
    assert_string_equal(cz__type_shown((cz_dtype)9999), "unknown");
}

/* Files cannot fill memory with names of types. */
TEST(few_unknown_types_are_remembered)
{
    int remembered = 0;
    for (int i = 1; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "Z%d", i);
        remembered += cz__type_find(name) != 0;
    }
    assert_true(remembered > 32 && remembered <= 64);
    assert_int_equal(cz__type_find("U16"), CZ__TYPE_U16);
}
