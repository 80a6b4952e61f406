/* SPDX-License-Identifier: MIT */
/* Safetensors files that are damaged or made to harm: each is refused with a sentence that says
 * what is wrong and where, and none does more. */
#include "support/cz_test.h"

#include "io/safetensors.h"

#include <string.h>

/* A file with that header and so many bytes behind it, of which the bytes are not looked at. */
static cz_status parse(cz__safetensors **header, const char *json, uint64_t data_bytes)
{
    const size_t length = strlen(json);
    char *bytes = malloc(8 + length); /* so that a sanitizer knows where it ends */
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, json, length);
    const cz_status status =
        cz__safetensors_parse(header, "FILE", bytes, 8 + length, 8 + length + data_bytes);
    free(bytes);
    return status;
}

#define INFO(type, shape, offsets)                                                                 \
    "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(type, shape, offsets) "{\"w\":" INFO(type, shape, offsets) "}"

static const struct {
    const char *json;
    uint64_t data_bytes;
    const char *sentence; /* its beginning */
} damaged[] = {
    {"", 0, "FILE: no safetensors file: its header does not begin with {"},
    {" {}", 0, "FILE: no safetensors file: its header does not begin with {"},
    {"[]", 0, "FILE: no safetensors file: its header does not begin with {"},
    {"{", 0, "FILE: the header is no JSON: byte "},
    {"{}}", 0, "FILE: the header is no JSON: byte "},
    {"{} x", 0, "FILE: the header is no JSON: byte "},
    {"{}", 1, "FILE: 1 bytes of data, the tensors have 0"},
    {"{\"w\":1}", 0, "FILE: tensor 'w' is described by something else than an object"},
    {"{\"w\":{}}", 0, "FILE: tensor 'w' has no \"dtype\" that is a text"},
    {"{\"w\":{\"dtype\":1}}", 0, "FILE: tensor 'w' has no \"dtype\" that is a text"},
    {"{\"w\":{\"dtype\":\"F32\"}}", 0, "FILE: tensor 'w' has no \"shape\" that is a list"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":{}}}", 0, "FILE: tensor 'w' has no \"shape\""},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "FILE: tensor 'w' has no \"data_offsets\""},
    {ONE("F32", "[1]", "[0]"), 4, "FILE: tensor 'w' has no \"data_offsets\" that are two integers"},
    {ONE("F32", "[1]", "[0,4,4]"), 4, "FILE: tensor 'w' has no \"data_offsets\""},
    {ONE("F32", "[1]", "[0,4.0]"), 4, "FILE: tensor 'w' has no \"data_offsets\""},
    {ONE("F32", "[1]", "[false,4]"), 4, "FILE: tensor 'w' has no \"data_offsets\""},
    {ONE("F32", "[1]", "\"[0,4]\""), 4, "FILE: tensor 'w' has no \"data_offsets\""},
    {ONE("F32", "[1.0]", "[0,4]"), 4, "FILE: tensor 'w' has a dimension 0 that is no integer"},
    {ONE("F32", "[1,null]", "[0,4]"), 4, "FILE: tensor 'w' has a dimension 1 that is no integer"},
    {ONE("F32", "[-1]", "[0,4]"), 4, "FILE: tensor 'w' has -1 as dimension 0, wanted 0 or more"},
    {ONE("F32", "[-1,-1]", "[0,4]"), 4, "FILE: tensor 'w' has -1 as dimension 0"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4,
     "FILE: tensor 'w' has 9 dimensions, wanted 0 to 8"},
    {ONE("F32", "[1]", "[-4,0]"), 4,
     "FILE: tensor 'w' has bytes -4 to 0, wanted 0 <= begin <= end"},
    {ONE("F32", "[1]", "[4,0]"), 4, "FILE: tensor 'w' has bytes 4 to 0, wanted 0 <= begin <= end"},
    {ONE("F32", "[1]", "[0,5]"), 4,
     "FILE: tensor 'w' ends at byte 5 of the data, of which the file has 4"},
    {ONE("F32", "[1]", "[0,4]"), 3,
     "FILE: tensor 'w' ends at byte 4 of the data, of which the file has 3"},
    {ONE("F32", "[1]", "[0,9223372036854775807]"), 4, "FILE: tensor 'w' ends at byte 92233720"},
    {ONE("F32", "[1]", "[0,9223372036854775808]"), 4, "FILE: the header is no JSON: byte "},
    {ONE("F32", "[1]", "[0,1e1]"), 10, "FILE: tensor 'w' has no \"data_offsets\""},
    {ONE("F32", "[2]", "[0,4]"), 4,
     "FILE: tensor 'w' has 4 bytes, wanted are 2 elements of 4 for its shape and type"},
    {ONE("F32", "[0]", "[0,4]"), 4, "FILE: tensor 'w' has 4 bytes, wanted are 0 elements"},
    {ONE("F32", "[]", "[0,8]"), 8, "FILE: tensor 'w' has 8 bytes, wanted are 1 elements of 4"},
    {ONE("F32", "[1]", "[0,5]"), 5, "FILE: tensor 'w' has 5 bytes, wanted are 1 elements of 4"},
    /* 2^62 elements of 4 bytes would be 0 of 64 bits */
    {ONE("F32", "[4611686018427387904]", "[0,0]"), 0,
     "FILE: tensor 'w' has 0 bytes, wanted are 46"},
    {ONE("F32", "[4294967296,4294967296]", "[0,0]"), 0, "FILE: tensor 'w' has a shape with more"},
    {ONE("F32", "[1]", "[4,8]"), 8,
     "FILE: tensor 'w' begins at byte 4 of the data, wanted 0, where the one before ends"},
    {ONE("F32", "[1]", "[0,4]"), 8, "FILE: 8 bytes of data, the tensors have 4"},
    {"{\"a\":" INFO("U8", "[4]", "[0,4]") ",\"b\":" INFO("U8", "[4]", "[3,7]") "}", 7,
     "FILE: tensor 'b' begins at byte 3 of the data, wanted 4"},
    {"{\"a\":" INFO("U8", "[4]", "[0,4]") ",\"b\":" INFO("U8", "[4]", "[0,4]") "}", 4,
     "FILE: tensor 'b' begins at byte 0 of the data, wanted 4"},
    {"{\"a\":" INFO("U8", "[4]", "[5,9]") ",\"b\":" INFO("U8", "[4]", "[0,4]") "}", 9,
     "FILE: tensor 'a' begins at byte 5 of the data, wanted 4"},
    {"{\"a\":" INFO("U8", "[4]", "[0,4]") ",\"b\":" INFO("U8", "[0]", "[2,2]") "}", 4,
     "FILE: tensor 'b' begins at byte 2 of the data, wanted 4"},
    {"{\"\":" INFO("U8", "[4]", "[0,4]") "}", 4, "FILE: a tensor's name is empty"},
    {"{\"a\":" INFO("U8", "[4]", "[0,4]") ",\"a\":" INFO("U8", "[4]", "[4,8]") "}", 8,
     "FILE: tensor 'a' is there twice"},
    {"{\"__metadata__\":{},\"__metadat\\u0061__\":{}}", 0,
     "FILE: the header is no JSON: byte 19: \"__metadata__\" is there twice"},
    {"{\"a\":" INFO("U8", "[4]", "[0,4]") " \"b\":1}", 4,
     "FILE: the header is no JSON: byte 53: wanted , or }"},
    {"{\"a\":[[[[]]]]}", 0, "FILE: tensor 'a' is described by something else than an object"},
    {"{\"a\":{\"new\":[[[[[[[[]]]]]]]]}}", 0, "FILE: tensor 'a' is described by 24 bytes in 9"},
    {"{\"a\\u0000\":" INFO("U8", "[4]", "[0,4]") "}", 4, "FILE: the header is no JSON: byte "},
    {"{\"\xff\":" INFO("U8", "[4]", "[0,4]") "}", 4, "FILE: the header is no JSON: byte "},
    {"{\"__metadata__\":1}", 0, "FILE: \"__metadata__\" is no object"},
    {"{\"__metadata__\":null}", 0, "FILE: \"__metadata__\" is no object"},
    {"{\"__metadata__\":{\"a\":1}}", 0,
     "FILE: 'a' of \"__metadata__\" is something else than a text"},
    {"{\"__metadata__\":" INFO("U8", "[4]", "[0,4]") "}", 4,
     "FILE: 'shape' of \"__metadata__\" is something else than a text"},
    {"{\"\\u001b[31m\\u009b\":1}", 0, "FILE: tensor '?[31m?' is described"},
};

TEST(each_damage_has_its_sentence)
{
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        cz__safetensors *header = (cz__safetensors *)0x1;
        const char *const sentence = damaged[i].sentence;
        if (parse(&header, damaged[i].json, damaged[i].data_bytes) != CZ_ERR_FORMAT)
            fail_msg("%s was not refused as damaged", damaged[i].json);
        if (strncmp(cz_last_error(), sentence, strlen(sentence)) != 0)
            fail_msg("%s\n  is refused with %s\n  wanted is        %s", damaged[i].json,
                     cz_last_error(), sentence);
        assert_null(header);
    }
}

TEST(types_that_we_do_not_have)
{
    cz__safetensors *header = (cz__safetensors *)0x1;
    assert_int_equal(parse(&header, ONE("float", "[1]", "[0,4]"), 4), CZ_ERR_UNSUPPORTED);
    assert_null(header);
    assert_string_equal(cz_last_error(),
                        "FILE: tensor 'w' has type 'float', wanted is F32, F64, F16, BF16, I32, "
                        "I64, U8, or another name in capitals with a number of bits");
    assert_int_equal(parse(&header, ONE("f32", "[1]", "[0,4]"), 4), CZ_ERR_UNSUPPORTED);
    assert_int_equal(parse(&header, ONE("", "[1]", "[0,4]"), 4), CZ_ERR_UNSUPPORTED);
}

/* What looks odd and is right. */
TEST(what_is_allowed)
{
    cz__safetensors *header = NULL;
    const char *const json = "{\"b\":" INFO("U8", "[4]", "[2,6]") ", \"e2\":" INFO(
        "F32", "[0,9]",
        "[2,2]") ",\n"
                 "\"e1\":" INFO("I64", "[9223372036854775807,0,2]",
                                "[2,2]") ","
                                         "\"\\u00e9\":{\"data_offsets\":[0,2],\"new\":[{}],"
                                         "\"shape\":[1],\"dtype\":\"BF16\"},"
                                         "\"__metadata__\":{\"\":\"\"}}   \n";
    if (parse(&header, json, 6) != CZ_OK)
        fail_msg("%s", cz_last_error());
    static const char *const names[] = {"é", "e2", "e1", "b"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(cz__safetensors_entry_at(header, i)->name, names[i]);
    assert_string_equal(cz__safetensors_metadata(header, ""), "");
    cz__safetensors_destroy(&header);
    /* the largest file there can be: 2^63 - 1 bytes of data */
    assert_ok(
        parse(&header, ONE("U8", "[9223372036854775807]", "[0,9223372036854775807]"), INT64_MAX));
    assert_true(cz__safetensors_find(header, "w")->end == INT64_MAX);
    cz__safetensors_destroy(&header);
}

TEST(lengths_that_are_not_there)
{
    static const struct {
        uint64_t length, file_bytes;
        size_t count;
        const char *sentence;
    } frames[] = {
        {0, 8, 8, "FILE: no safetensors file: its header does not begin with {"},
        {2, 9, 9, "FILE: the file ends in its header: it has 9 bytes, the header alone has 2"},
        {2, 12, 9, "FILE: a header of 2 bytes, of which 1 are there"},
        {100000000, 10, 10, "FILE: the file ends in its header: it has 10 bytes"},
        {100000001, INT64_MAX, 10,
         "FILE: no safetensors file, which begins with the length of its header: that would be "
         "100000001 bytes, at most 100000000 are allowed"},
        {UINT64_C(0x0000000804034b50), INT64_MAX, 10,
         "FILE: no safetensors file: it begins as a zip"},
        {UINT64_C(0x206e6f6973726576), INT64_MAX, 10, "git lfs pull"},
        {UINT64_C(0x0a20656d6f53202d), INT64_MAX, 10, "it begins as a text does"},
        {UINT64_MAX, UINT64_MAX, 10, "that would be 18446744073709551615"},
        {UINT64_MAX - 7, 10, 10, "that would be 18446744073709551608"},
        {2, 7, 7, "FILE: no safetensors file: 7 bytes, its first 8 are the length of its header"},
        {2, 0, 0, "FILE: no safetensors file: 0 bytes"},
    };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        char *bytes = malloc(frames[i].count + 1), whole[10] = "........{}";
        cz__safetensors *header = NULL;
        for (int b = 0; b < 8; b++)
            whole[b] = (char)(frames[i].length >> 8 * b);
        bytes = realloc(bytes, frames[i].count ? frames[i].count : 1);
        memcpy(bytes, whole, frames[i].count);
        assert_int_equal(
            cz__safetensors_parse(&header, "FILE", bytes, frames[i].count, frames[i].file_bytes),
            CZ_ERR_FORMAT);
        if (!strstr(cz_last_error(), frames[i].sentence))
            fail_msg("frame %zu is refused with %s", i, cz_last_error());
        free(bytes);
    }
}

/* A name of any length and any content is shown as a short text in UTF-8. */
TEST(long_names_are_cut_where_a_character_ends)
{
    char json[2048];
    for (int before = 0; before < 4; before++) {
        cz__safetensors *header = NULL;
        char *at = stpcpy(json, "{\"");
        at = stpcpy(at, &"aaaa"[before]);
        for (int i = 0; i < 300; i++)
            at = stpcpy(at, "é");
        stpcpy(at, "\":1}");
        assert_int_equal(parse(&header, json, 0), CZ_ERR_FORMAT);
        assert_true(strlen(cz_last_error()) < 170);
        const char *cut = strstr(cz_last_error(), "é…' is described");
        if (!cut)
            fail_msg("%s", cz_last_error());
    }
}

static const char small[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"w\":" INFO("F32", "[2,3]", "[0,24]") ",\"n\":" INFO("I64", "[]", "[24,32]") "}  ";

/* Accepted or refused, never more; what is accepted keeps the promises of the header. */
static bool try_bytes(const char *bytes, size_t count, uint64_t file_bytes)
{
    char *copy = malloc(count ? count : 1);
    cz__safetensors *header = NULL;
    uint64_t end = 0;
    memcpy(copy, bytes, count);
    const cz_status status = cz__safetensors_parse(&header, "FILE", copy, count, file_bytes);
    free(copy);
    assert_true((status == CZ_OK) == (header != NULL));
    if (!header) {
        assert_true(status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED);
        return false;
    }
    for (int64_t i = 0; i < cz__safetensors_count(header); i++) {
        const cz__safetensors_entry *entry = cz__safetensors_entry_at(header, i);
        assert_true(entry->begin == end && entry->end >= end);
        assert_ptr_equal(cz__safetensors_find(header, entry->name), entry);
        end = entry->end;
    }
    assert_true(end == cz__safetensors_data_bytes(header));
    cz__safetensors_destroy(&header);
    return true;
}

TEST(every_truncation_and_every_flipped_bit)
{
    const size_t count = 8 + sizeof small - 1;
    char bytes[sizeof small + 8] = {(char)(sizeof small - 1)};
    int accepted = 0;
    memcpy(bytes + 8, small, sizeof small);
    assert_true(try_bytes(bytes, count, count + 32));
    for (size_t cut = 0; cut < count; cut++) {
        assert_false(try_bytes(bytes, cut, cut));
        assert_false(try_bytes(bytes, cut, count + 32));
    }
    for (size_t cut = 0; cut < 64; cut++) /* of the data */
        assert_true(try_bytes(bytes, count, count + cut) == (cut == 32));
    for (size_t bit = 0; bit < 8 * count; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        accepted += try_bytes(bytes, count, count + 32);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_in_range(accepted, 20, 200); /* names, metadata, spaces */
}
