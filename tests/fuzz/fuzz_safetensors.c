/* SPDX-License-Identifier: MIT */
/* Headers of safetensors files. An input begins with 8 bytes: if the last of them is 0xff, what
 * follows is a header and the first 7 say how many bytes of data the file has; otherwise it is a
 * file as it stands. What is accepted fills its data, and comes out the same when it is written and
 * read again. */
#include "fuzz.h"

#include "base/memory.h"
#include "io/safetensors.h"

#include <string.h>

static void check_entries(const cz__safetensors *header)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < cz__safetensors_count(header); i++) {
        const cz__safetensors_entry *const entry = cz__safetensors_entry_at(header, i);
        CZ_FUZZ_CHECK(entry->name[0] && entry->begin == end && entry->end >= end);
        CZ_FUZZ_CHECK(entry->end - entry->begin ==
                      (uint64_t)cz__type_units(entry->dtype, entry->dimensions, entry->shape) *
                          cz__type_unit(entry->dtype));
        CZ_FUZZ_CHECK(cz__safetensors_find(header, entry->name) == entry);
        end = entry->end;
    }
    CZ_FUZZ_CHECK(end == cz__safetensors_data_bytes(header));
}

static void check_same(const cz__safetensors *a, const cz__safetensors *b)
{
    CZ_FUZZ_CHECK(cz__safetensors_count(a) == cz__safetensors_count(b));
    for (int64_t i = 0; i < cz__safetensors_count(a); i++) {
        const cz__safetensors_entry *const x = cz__safetensors_entry_at(a, i);
        const cz__safetensors_entry *const y = cz__safetensors_entry_at(b, i);
        CZ_FUZZ_CHECK(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype);
        CZ_FUZZ_CHECK(x->dimensions == y->dimensions && x->begin == y->begin && x->end == y->end);
        CZ_FUZZ_CHECK(memcmp(x->shape, y->shape, sizeof x->shape) == 0);
    }
}

static void write_again(const cz__safetensors *header)
{
    cz__safetensors *written = NULL, *read = NULL;
    char *bytes = NULL;
    size_t count = 0;
    CZ_CHECK(cz__safetensors_create(&written));
    for (int64_t i = 0; i < cz__safetensors_count(header); i++) {
        const cz__safetensors_entry *const entry = cz__safetensors_entry_at(header, i);
        CZ_CHECK(cz__safetensors_add(written, entry->name, entry->dtype, entry->dimensions,
                                     entry->shape));
    }
    CZ_CHECK(cz__safetensors_dump(written, &bytes, &count));
    CZ_CHECK(cz__safetensors_parse(&read, "again", bytes, count,
                                   count + cz__safetensors_data_bytes(written)));
    check_same(header, written);
    check_same(written, read);
    cz__free(bytes);
    cz__safetensors_destroy(&read);
    cz__safetensors_destroy(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz__safetensors *header = NULL;
    cz_status status;
    if (count >= 8 && bytes[7] == 0xff) {
        uint64_t data_bytes = 0;
        uint8_t *file = malloc(count);
        CZ_FUZZ_CHECK(file);
        memcpy(file, bytes, count);
        for (int i = 0; i < 8; i++) {
            data_bytes |= (uint64_t)(i < 7 ? bytes[i] : 0) << 8 * i;
            file[i] = (uint8_t)((uint64_t)(count - 8) >> 8 * i);
        }
        status = cz__safetensors_parse(&header, "FILE", file, count, count + data_bytes);
        free(file);
    } else {
        status = cz__safetensors_parse(&header, "FILE", bytes, count, count);
    }
    CZ_FUZZ_CHECK((status == CZ_OK) == (header != NULL));
    if (header) {
        check_entries(header);
        write_again(header);
    } else {
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED);
        CZ_FUZZ_CHECK(strncmp(cz_last_error(), "FILE: ", 6) == 0);
    }
    cz__safetensors_destroy(&header);
    return 0;
}

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const struct {
        uint64_t data_bytes;
        const char *json;
    } seeds[] = {
        {0, "{}"},
        {24, "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}  "},
        {9, "{\"__metadata__\":{\"format\":\"pt\"},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]},"
            "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}"},
        {18, "{\"\\u00e9\\n\":{\"dtype\":\"F16\",\"shape\":[0,3],\"data_offsets\":[0,0]},"
             "\"x\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[16,18]},"
             "\"y\":{\"dtype\":\"F64\",\"shape\":[1,2],\"data_offsets\":[0,16]}}"},
        {UINT64_C(1) << 54, "{\"w\":{\"dtype\":\"I32\",\"shape\":[4294967296,1048576],"
                            "\"data_offsets\":[0,18014398509481984]}}"},
        {4, "{\"w\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]}}"},
    };
    const int count = (int)(sizeof seeds / sizeof *seeds);
    if (number < 0 || number >= 2 * count) /* first as headers, then as files with their data */
        return 0;
    const uint64_t data_bytes = seeds[number % count].data_bytes;
    const size_t length = strlen(seeds[number % count].json);
    const size_t data = number < count || data_bytes > 64 ? 0 : (size_t)data_bytes;
    if (8 + length + data > room)
        return 0;
    memset(bytes, 0, 8 + length + data);
    for (int i = 0; i < 7; i++)
        bytes[i] = (uint8_t)((number < count ? data_bytes : (uint64_t)length) >> 8 * i);
    bytes[7] = number < count ? 0xff : 0;
    memcpy(bytes + 8, seeds[number % count].json, length);
    return 8 + length + data;
}
