/* SPDX-License-Identifier: MIT */
/* Files whose numbers or nesting ask for far more memory than they have bytes: each is refused
 * before it has it, with a sentence that says the limit and how to lift it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/index.h"
#include "interop/torch.h"
#include "io/safetensors.h"
#include "io/stream.h"
#include "support/cz_test.h"

/* ---- what jansson has ---- */

enum { ROOM = 32 }; /* before each block: its size */
static size_t json_held, json_peak;

static void *count_malloc(size_t bytes)
{
    char *const block = malloc(bytes + ROOM);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    json_held += bytes;
    json_peak = json_held > json_peak ? json_held : json_peak;
    return block + ROOM;
}

static void count_free(void *memory)
{
    size_t bytes;
    if (!memory)
        return;
    memcpy(&bytes, (char *)memory - ROOM, sizeof bytes);
    json_held -= bytes;
    free((char *)memory - ROOM);
}

static int set_up(void **state)
{
    json_set_alloc_funcs(count_malloc, count_free);
    unsetenv("CZERO_FILE_LIMIT");
    return 0;
}

static void begin_counting(void)
{
    json_peak = json_held;
    cz_test_allocation_reset_peak();
}

static void assert_limit(cz_status status)
{
    assert_int_equal(status, CZ_ERR_UNSUPPORTED);
    if (!strstr(cz_last_error(), "may cost") || !strstr(cz_last_error(), "CZERO_FILE_LIMIT=none"))
        fail_msg("%s", cz_last_error());
}

/* ---- headers of safetensors ---- */

enum { HEADER = 8 << 20 };

/* A header of `open`, then `piece` again and again, then `close`. */
static cz_status parse_header(const char *open, const char *piece, const char *close)
{
    cz__safetensors *header;
    char *const bytes = malloc(8 + HEADER);
    size_t at = 8;
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)HEADER >> 8 * i);
    memset(bytes + 8, ' ', HEADER);
    memcpy(bytes + at, open, strlen(open));
    for (at += strlen(open); at + strlen(piece) + strlen(close) <= HEADER; at += strlen(piece))
        memcpy(bytes + at, piece, strlen(piece));
    memcpy(bytes + at, close, strlen(close));
    begin_counting();
    const clock_t begin = clock();
    const cz_status status = cz__safetensors_parse(&header, "FILE", bytes, 8 + HEADER, 8 + HEADER);
    assert_true(clock() - begin < 5 * CLOCKS_PER_SEC);
    assert_null(header);
    free(bytes);
    return status;
}

TEST(headers_of_many_values_make_no_trees)
{
    static const char *const headers[][3] = {{"{\"w\":", "{\"a\":", "1"},
                                             {"{\"w\":", "[", "1"},
                                             {"{\"w\":[", "1,", "1]}"},
                                             {"{\"w\":{\"shape\":[", "1,", "1]}}"},
                                             {"{\"w\":{\"shape\":[", "{},", "1]}}"},
                                             {"{\"__metadata__\":{\"a\":[", "[],", "1]}}"},
                                             {"[", "[],", "1]"}};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        assert_int_equal(parse_header(headers[i][0], headers[i][1], headers[i][2]), CZ_ERR_FORMAT);
        assert_int_equal(json_held, 0);
        assert_true(json_peak < 1 << 20);
        assert_true(cz_test_allocation_peak() < 1 << 20);
    }
    /* as many tensors as fit: some times the header, and the first wrong one ends it */
    assert_int_equal(parse_header("{", "\"\":1,", "\"\":1}"), CZ_ERR_FORMAT);
    assert_true(cz_test_allocation_peak() < 24 * (int64_t)HEADER);
    /* and texts: many small ones are dear */
    assert_limit(parse_header("{\"__metadata__\":{", "\"\":\"\",", "\"\":\"\"}}"));
    assert_true(json_peak < 1 << 20);
}

/* ---- indices ---- */

static cz_status parse_index(const char *members)
{
    cz__index index;
    cz__text text = {0};
    char digits[33];
    cz__text_print(&text,
                   "{\"format\":\"czero checkpoint\",\"version\":1,"
                   "\"id\":\"0123456789abcdef0123456789abcdef\",\"generation\":1,\"step\":6,%s",
                   members);
    cz__checksum_print(cz__checksum_of(text.bytes, text.count), digits);
    cz__text_print(&text, ",\"checksum\":\"%s\"}\n", digits);
    begin_counting();
    const cz_status status = cz__index_parse(&index, "FILE", text.bytes, text.count);
    cz__index_clear(&index);
    cz__text_clear(&text);
    return status;
}

#define NOBODY                                                                                     \
    "\"parameters\":[],\"buffers\":[],\"map\":{\"kind\":\"owners\",\"owners\":[],\"order\":[]},"   \
    "\"optimizer\":null"

TEST(a_number_of_ranks_is_paid_for)
{
    assert_limit(parse_index("\"world_size\":16777216," NOBODY));
    assert_non_null(strstr(cz_last_error(), "FILE: its number of ranks would cost 2147483648"));
    assert_true(cz_test_allocation_peak() < 1 << 20);
    assert_ok(parse_index("\"world_size\":100000," NOBODY));
    setenv("CZERO_FILE_LIMIT", "none", 1);
    assert_ok(parse_index("\"world_size\":16777216," NOBODY));
    assert_true(cz_test_allocation_peak() < 1 << 20);
    setenv("CZERO_FILE_LIMIT", "4096", 1);
    assert_ok(parse_index("\"world_size\":16777216," NOBODY));
    setenv("CZERO_FILE_LIMIT", "1", 1);
    assert_limit(parse_index("\"world_size\":100000," NOBODY));
    setenv("CZERO_FILE_LIMIT", "one", 1); /* no number: as if it were not there */
    assert_ok(parse_index("\"world_size\":100000," NOBODY));
    unsetenv("CZERO_FILE_LIMIT");
}

TEST(an_index_of_brackets_makes_no_tree)
{
    cz__text text = {0};
    cz__text_print(&text, "\"world_size\":1,\"parameters\":[");
    for (int i = 0; i < 2 << 20; i++)
        (void)cz__text_append(&text, "{},", 3);
    cz__text_print(&text, "1]");
    assert_limit(parse_index(cz__text_get(&text)));
    assert_true(json_peak < 1 << 20);
    cz__text_clear(&text);
}

TEST(a_text_with_holes_is_not_brought_into_memory)
{
    char *bytes;
    size_t count;
    char path[] = CZ_TEST_BINARY_DIR "/budget_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0 && write(file, "{", 1) == 1);
    assert_int_equal(ftruncate(file, 1000 << 20), 0);
    assert_true(pwrite(file, "}", 1, 1000 << 20) == 1);
    close(file);
    begin_counting();
    assert_int_equal(cz__file_read(path, 1 << 30, &bytes, &count), CZ_ERR_FORMAT);
    assert_null(bytes);
    assert_non_null(strstr(cz_last_error(), "a zero byte at 1 of 1048576001"));
    assert_true(cz_test_allocation_peak() < 1 << 20);
    unlink(path);
}

/* ---- pickles ---- */

/* `count` calls OrderedDict(d), or persistent values of a tuple, with `size` items. */
static cz_status read_copies(bool storages, int size, int count)
{
    cz__pickling p = {0};
    cz__pickle *pickle;
    cz__pickle_begin(&p);
    cz__pickle_op(&p, ']');
    cz__pickle_op(&p, '(');
    cz__pickle_put_global(&p, "collections", "OrderedDict");
    (void)cz__text_append(&p.out, "q\1", 2);
    cz__pickle_op(&p, storages ? ')' : '}');
    cz__pickle_op(&p, '(');
    for (int i = 0; i < size; i++) {
        cz__pickle_op(&p, storages ? 'N' : 'K');
        (void)cz__text_append(&p.out, "\1N", storages ? 0 : 2);
    }
    cz__pickle_op(&p, storages ? 't' : 'u');
    (void)cz__text_append(&p.out, "q\2", 2);
    for (int i = 0; i < count; i++)
        (void)cz__text_append(&p.out, storages ? "h\2Q" : "h\1h\2\x85R", storages ? 3 : 6);
    cz__pickle_op(&p, 'e');
    cz__pickle_end(&p);
    begin_counting();
    const cz_status status = cz__pickle_read(&pickle, "FILE", p.out.bytes, p.out.count);
    cz__pickle_destroy(&pickle);
    cz__text_clear(&p.out);
    return status;
}

TEST(copies_in_a_pickle_are_paid_for)
{
    assert_ok(read_copies(false, 100, 100));
    assert_limit(read_copies(false, 10000, 15000));
    assert_true(cz_test_allocation_peak() < 96 << 20);
    assert_ok(read_copies(true, 30000, 30000)); /* these are no copies */
    assert_true(cz_test_allocation_peak() < 16 << 20);
}

static cz_status read_view(int64_t rows, int64_t stride)
{
    static char name[] = "archive/data/0";
    const cz__container_entry entry = {.name = name, .bytes = 4, .offset = 64};
    cz__torch_contents *contents = NULL;
    cz__torch *file;
    cz__pickling p = {0};
    cz__pickle_begin(&p);
    cz__pickle_op(&p, '}');
    cz__pickle_put_text(&p, "w");
    cz__pickle_put_global(&p, "torch._utils", "_rebuild_tensor_v2");
    (void)cz__text_append(&p.out, "((", 2);
    cz__pickle_put_text(&p, "storage");
    cz__pickle_put_global(&p, "torch", "FloatStorage");
    cz__pickle_put_text(&p, "0");
    cz__pickle_put_text(&p, "cpu");
    (void)cz__text_append(&p.out, "K\1tQK\0(", 7);
    cz__pickle_put_integer(&p, rows);
    (void)cz__text_append(&p.out, "t(", 2);
    cz__pickle_put_integer(&p, stride);
    cz__pickle_op(&p, 't');
    cz__pickle_put_bool(&p, false);
    cz__pickle_put_global(&p, "collections", "OrderedDict");
    (void)cz__text_append(&p.out, ")RtRs", 5);
    cz__pickle_end(&p);
    CZ_CHECK(cz__torch_pretend(&file, "FILE", p.out.bytes, p.out.count, &entry, 1));
    const cz_status status = cz__torch_contents_read(&contents, file, NULL);
    cz__torch_contents_close(&contents);
    cz__text_clear(&p.out);
    return status;
}

TEST(expanded_tensors_are_paid_for)
{
    CZ_CHECK(read_view(1000, 0));
    assert_limit(read_view(INT64_C(1) << 28, 0));
    assert_non_null(strstr(cz_last_error(), "FILE: tensor 'w', a view of less, would cost"));
    setenv("CZERO_FILE_LIMIT", "none", 1);
    CZ_CHECK(read_view(INT64_C(1) << 28, 0));
    unsetenv("CZERO_FILE_LIMIT");
}

int main(void)
{
    return cz_test_run(set_up, NULL);
}
