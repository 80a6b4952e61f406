/* SPDX-License-Identifier: MIT */
/* Headers of safetensors files: what is written is read again, byte for byte what the format says.
 * Files that are damaged: test_safetensors_hostile.c. */
#include "checkpoint/headers.h"
#include "checkpoint/json_memory.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const int64_t shape_2_3[] = {2, 3}, shape_empty[] = {4, 0, 7}, shape_5[] = {5};

TEST(the_bytes_are_those_of_the_format)
{
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"a \\\"b\\\"\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}";
    char wanted[256], *bytes = NULL;
    size_t count = 0;
    memset(wanted, ' ', sizeof wanted);
    memcpy(wanted, "\xb8\0\0\0\0\0\0\0", 8); /* 184 = 192 - 8 */
    memcpy(wanted + 8, json, sizeof json - 1);
    cz__safetensors *header = new_header();
    assert_ok(cz__safetensors_add(header, "w", CZ_F32, 2, shape_2_3));
    assert_ok(cz__safetensors_set_metadata(header, "format", "np"));
    assert_ok(cz__safetensors_set_metadata(header, "note", "a \"b\""));
    assert_ok(cz__safetensors_set_metadata(header, "format", "pt"));
    assert_ok(cz__safetensors_add(header, "count", CZ_I64, 0, NULL));
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(cz__safetensors_dump(header, &bytes, &count));
        assert_int_equal(count, 192);
        assert_memory_equal(bytes, wanted, count);
        cz__free(bytes);
    }
    assert_string_equal(cz__safetensors_metadata(header, "format"), "pt");
    cz__safetensors *read = again(header);
    assert_same(header, read);
    assert_string_equal(cz__safetensors_metadata(read, "format"), "pt");
    assert_string_equal(cz__safetensors_metadata(read, "note"), "a \"b\"");
    assert_null(cz__safetensors_metadata(read, "w"));
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&read);
    assert_null(read);
}

TEST(nothing_at_all)
{
    cz__safetensors *header = new_header();
    cz__safetensors *read = again(header);
    assert_same(header, read);
    assert_int_equal(cz__safetensors_count(read), 0);
    assert_int_equal(cz__safetensors_data_begin(read), 64);
    assert_null(cz__safetensors_find(read, "w"));
    assert_null(cz__safetensors_find(header, "w"));
    assert_null(cz__safetensors_entry_at(read, 0));
    assert_null(cz__safetensors_entry_at(read, -1));
    assert_null(cz__safetensors_metadata(read, "w"));
    cz__safetensors_destroy(&read);
    assert_ok(cz__safetensors_set_metadata(header, "", "")); /* and only that */
    read = again(header);
    assert_same(header, read);
    assert_string_equal(cz__safetensors_metadata(read, ""), "");
    cz__safetensors_destroy(&read);
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(NULL);
}

TEST(every_type_and_form)
{
    static const int64_t deep[] = {1, 2, 1, 3, 1, 2, 1, 2};
    static const char *const names[] = {"", "F32", "F64", "F16", "BF16", "I32", "I64", "U8"};
    cz__safetensors *header = new_header();
    char name[24];
    uint64_t bytes = 0;
    for (int dtype = CZ_F32; dtype <= CZ_U8; dtype++) {
        const struct {
            int dimensions;
            const int64_t *shape;
            uint64_t count;
        } forms[] = {{2, shape_2_3, 6},
                     {0, NULL, 1},
                     {3, shape_empty, 0},
                     {1, shape_5, 5},
                     {CZ_MAX_DIMENSIONS, deep, 24}};
        for (int f = 0; f < 5; f++) {
            snprintf(name, sizeof name, "%d.%d", dtype, f);
            assert_ok(cz__safetensors_add(header, name, (cz_dtype)dtype, forms[f].dimensions,
                                          forms[f].shape));
            const cz__safetensors_entry *entry = cz__safetensors_find(header, name);
            assert_true(entry->begin == bytes);
            bytes += forms[f].count * cz_dtype_size((cz_dtype)dtype);
            assert_true(entry->end == bytes);
        }
        assert_string_equal(cz__type_name((cz_dtype)dtype), names[dtype]);
        assert_int_equal(cz__type_find(names[dtype]), dtype);
    }
    assert_null(cz__type_name((cz_dtype)0));
    assert_null(cz__type_name((cz_dtype)(CZ_U8 + 1)));
    assert_int_equal(cz__type_find("f32"), 0);
    assert_int_equal(cz__type_find(""), 0);
    cz__safetensors *read = again(header);
    assert_same(header, read);
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&read);
}

TEST(names_of_every_sort)
{
    static const char *const names[] = {"a \"quoted\" one",
                                        "two\nlines\t\\",
                                        "\x01\x1f\x7f",
                                        "größe/重み/🙂",
                                        "\xf4\x8f\xbf\xbf",
                                        "\xc2\x80",
                                        "__metadata",
                                        "__metadata__ ",
                                        " ",
                                        "dtype",
                                        "/",
                                        "w",
                                        "W",
                                        "{\"a\":[",
                                        "$tensor",
                                        "%s%n"};
    cz__safetensors *header = new_header();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ok(cz__safetensors_add(header, names[i], CZ_U8, 1, shape_5));
    cz__safetensors *read = again(header);
    assert_same(header, read);
    assert_null(cz__safetensors_find(read, "größe"));
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&read);
}

/* From none to 63 spaces, whatever the length. */
TEST(no_more_spaces_than_it_takes)
{
    char name[80] = "";
    size_t seen = 0;
    for (int length = 1; length <= 64; length++) {
        cz__safetensors *header = new_header();
        char *bytes = NULL;
        size_t count = 0, spaces = 0;
        name[length - 1] = 'n';
        assert_ok(cz__safetensors_add(header, name, CZ_U8, 0, NULL));
        assert_ok(cz__safetensors_dump(header, &bytes, &count));
        while (bytes[count - 1 - spaces] == ' ')
            spaces++;
        assert_true(spaces < 64);
        seen += spaces;
        cz__free(bytes);
        cz__safetensors_destroy(&header);
    }
    assert_int_equal(seen, 63 * 64 / 2); /* each number of them once */
}

TEST(what_cannot_be_added)
{
    static const int64_t below[] = {2, -3}, huge[] = {INT64_MAX / 4, 2}, half[] = {INT64_MAX - 5};
    static const char *const bad[] = {"\xff",
                                      "a\x80",
                                      "\xc3",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xf0\x9f\x99"};
    cz__safetensors *header = new_header(), *before = new_header();
    cz__safetensors *const both[] = {header, before};
    for (int i = 0; i < 2; i++) {
        assert_ok(cz__safetensors_add(both[i], "w", CZ_F32, 2, shape_2_3));
        assert_ok(cz__safetensors_set_metadata(both[i], "k", "v"));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(cz__safetensors_add(header, bad[i], CZ_U8, 0, NULL), CZ_ERR_ARGUMENT);
        assert_int_equal(cz__safetensors_set_metadata(header, bad[i], ""), CZ_ERR_ARGUMENT);
        assert_int_equal(cz__safetensors_set_metadata(header, "", bad[i]), CZ_ERR_ARGUMENT);
    }
    assert_int_equal(cz__safetensors_add(header, "w", CZ_U8, 0, NULL), CZ_ERR_ARGUMENT);
    assert_string_equal(cz_last_error(), "safetensors: tensor 'w': the name is there already");
    assert_int_equal(cz__safetensors_add(header, "", CZ_U8, 0, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, NULL, CZ_U8, 0, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "__metadata__", CZ_U8, 0, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", (cz_dtype)77, 0, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", CZ_U8, -1, shape_5), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", CZ_U8, 9, shape_5), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", CZ_U8, 1, NULL), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", CZ_U8, 2, below), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", CZ_F32, 2, huge), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_add(header, "a", CZ_U8, 1, half), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_set_metadata(header, NULL, ""), CZ_ERR_ARGUMENT);
    assert_int_equal(cz__safetensors_set_metadata(header, "", NULL), CZ_ERR_ARGUMENT);
    assert_same(header, before);
    cz__safetensors *read = again(header);
    char *bytes = (char *)0x1;
    size_t count;
    assert_same(header, read); /* and to what was read nothing is added */
    assert_int_equal(cz__safetensors_add(read, "a", CZ_U8, 0, NULL), CZ_ERR_STATE);
    assert_int_equal(cz__safetensors_set_metadata(read, "a", ""), CZ_ERR_STATE);
    assert_int_equal(cz__safetensors_dump(read, &bytes, &count), CZ_ERR_STATE);
    assert_null(bytes);
    cz__safetensors_destroy(&read);
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&before);
}

TEST(many_tensors)
{
    cz__safetensors *header = new_header();
    char name[32];
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", i * 7919 % 20000);
        assert_ok(cz__safetensors_add(header, name, CZ_F32, 1, shape_5));
    }
    cz__safetensors *read = again(header);
    assert_same(header, read);
    cz__safetensors_destroy(&header);
    cz__safetensors_destroy(&read);
}

static void write_file(int file, const char *bytes, size_t count)
{
    assert_int_equal(pwrite(file, bytes, count, 0), count);
    assert_int_equal(ftruncate(file, (off_t)count), 0);
}

TEST(from_a_file)
{
    static const char json[] = "{\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},"
                               "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} ";
    char path[] = "/tmp/czero_test_XXXXXX", bytes[256] = {(char)(sizeof json - 1)};
    const int file = mkstemp(path);
    const size_t header_end = 8 + sizeof json - 1;
    cz__safetensors *header = (cz__safetensors *)0x1;
    assert_true(file >= 0);
    memcpy(bytes + 8, json, sizeof json);
    write_file(file, bytes, header_end + 8);
    assert_int_equal(lseek(file, 5, SEEK_SET), 5);
    if (cz__safetensors_read(&header, file, path) != CZ_OK)
        fail_msg("%s", cz_last_error());
    assert_true(cz__safetensors_data_begin(header) == header_end);
    assert_string_equal(cz__safetensors_entry_at(header, 0)->name, "a");
    assert_string_equal(cz__safetensors_entry_at(header, 1)->name, "b");
    assert_int_equal(cz__safetensors_find(header, "b")->dtype, CZ_F16);
    assert_null(cz__safetensors_find(header, "c"));
    cz__safetensors_destroy(&header);
    for (size_t count = 0; count < header_end + 16; count++) {
        write_file(file, bytes, count);
        const bool whole = count == header_end + 8;
        const cz_status status = cz__safetensors_read(&header, file, path);
        if (status != (whole ? CZ_OK : CZ_ERR_FORMAT))
            fail_msg("%zu bytes: status %d", count, status);
        if (!whole)
            assert_ptr_equal(strstr(cz_last_error(), path), cz_last_error());
        cz__safetensors_destroy(&header);
    }
    close(file);
    unlink(path);
    assert_int_equal(cz__safetensors_read(&header, -1, "nowhere"), CZ_ERR_IO);
    assert_string_equal(cz_last_error(), "nowhere: cannot be read: Bad file descriptor");
    assert_null(header);
    const int write_only = open("/dev/null", O_WRONLY);
    assert_int_equal(cz__safetensors_read(&header, write_only, "null"), CZ_ERR_FORMAT); /* empty */
    close(write_only);
}

static cz_status make(cz__safetensors **header, char **bytes, size_t *count)
{
    CZ_TRY(cz__safetensors_create(header));
    CZ_TRY(cz__safetensors_set_metadata(*header, "a", "b"));
    for (int i = 0; i < 20; i++) {
        char name[24];
        snprintf(name, sizeof name, "w%d", i);
        CZ_TRY(cz__safetensors_add(*header, name, CZ_F32, 2, shape_2_3));
    }
    CZ_TRY(cz__safetensors_set_metadata(*header, "c", "d"));
    return cz__safetensors_dump(*header, bytes, count);
}

/* The n-th allocation fails, of the library's or of jansson's; what is there meanwhile is
 * consistent. */
TEST(without_memory_to_write)
{
    const int64_t held = cz_test_allocations_held();
    for (int whose = 0; whose < 2; whose++)
        for (int64_t n = 1;; n++) {
            cz__safetensors *header = NULL;
            char *bytes = NULL;
            size_t count;
            cz_test_fail_allocation(whose == 0 ? n : 0);
            json_fail_allocation(whose == 1 ? (long)n : 0);
            const cz_status status = make(&header, &bytes, &count);
            const bool failed = cz_test_allocation_reset() + json_allocation_reset() > 0;
            assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
            assert_true(failed == (bytes == NULL));
            if (header) {
                cz__safetensors *read = again(header);
                assert_same(header, read);
                cz__safetensors_destroy(&read);
            }
            cz__safetensors_destroy(&header);
            cz__free(bytes);
            assert_int_equal(cz_test_allocations_held(), held);
            assert_int_equal(json_held, 0);
            if (!failed)
                break;
        }
}

/* jansson takes a text for which there is no memory for one that is wrong: then it is
 * CZ_ERR_FORMAT. */
TEST(without_memory_to_read)
{
    cz__safetensors *header = NULL;
    char *bytes = NULL;
    size_t count;
    assert_ok(make(&header, &bytes, &count));
    const uint64_t file_bytes = count + cz__safetensors_data_bytes(header);
    cz__safetensors_destroy(&header);
    const int64_t held = cz_test_allocations_held();
    for (int whose = 0; whose < 2; whose++)
        for (int64_t n = 1;; n++) {
            cz_test_fail_allocation(whose == 0 ? n : 0);
            json_fail_allocation(whose == 1 ? (long)n : 0);
            const cz_status status =
                cz__safetensors_parse(&header, "file", bytes, count, file_bytes);
            const bool failed = cz_test_allocation_reset() + json_allocation_reset() > 0;
            if (whose == 1 && failed && status == CZ_ERR_FORMAT)
                assert_non_null(strstr(cz_last_error(), "file: the header is no JSON: "));
            else
                assert_int_equal(status, failed ? CZ_ERR_MEMORY : CZ_OK);
            assert_true(failed == (header == NULL));
            cz__safetensors_destroy(&header);
            assert_int_equal(cz_test_allocations_held(), held);
            assert_int_equal(json_held, 0);
            if (!failed)
                break;
        }
    cz__free(bytes);
}
