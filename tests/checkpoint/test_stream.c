/* SPDX-License-Identifier: MIT */
/* Files of every size around sectors and blocks, appended in pieces of every size: the same bytes
 * and sums as of one plain write. Small files: whole, or as before. */
#include "support/cz_test.h"

#include "base/memory.h"
#include "io/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MIB ((size_t)1 << 20)

static char folder[256], path[300], other[300];
static unsigned char *data, *back; /* 3 × 8 MiB + 5 bytes each */
enum { LONGEST = (24 << 20) + 5 };

static int set_up(void **state)
{
    uint64_t random = 1;
    snprintf(folder, sizeof folder, "%s/stream_XXXXXX", CZ_TEST_BINARY_DIR);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    data = malloc(LONGEST);
    back = malloc(LONGEST);
    for (size_t i = 0; i < LONGEST; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        data[i] = (unsigned char)(random >> 56);
    }
    return 0;
}

static int tear_down(void **state)
{
    free(data);
    free(back);
    return rmdir(folder); /* nothing is left in it */
}

static bool exists(const char *name)
{
    struct stat about;
    return lstat(name, &about) == 0;
}

/* The oracle: xxHash's own function over everything at once. */
static void assert_sum(cz__checksum got, const void *bytes, size_t count)
{
    const XXH128_hash_t want = XXH3_128bits(bytes, count);
    assert_true(got.high == want.high64 && got.low == want.low64);
}

static void assert_file(const char *name, const void *bytes, size_t count)
{
    struct stat about;
    const int file = open(name, O_RDONLY);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &about), 0);
    assert_int_equal(about.st_size, count);
    for (size_t done = 0; done < count;) {
        const ssize_t now = read(file, back + done, count - done);
        assert_true(now > 0);
        done += (size_t)now;
    }
    close(file);
    assert_memory_equal(back, bytes, count);
}

/* Write data[0, count) in appends of `piece` bytes. */
static void write_in_pieces(size_t count, size_t piece, uint64_t expected)
{
    cz__writer *writer;
    CZ_CHECK(cz__writer_create(&writer, path, expected));
    for (size_t done = 0; done < count;) {
        const size_t now = count - done < piece ? count - done : piece;
        CZ_CHECK(cz__writer_append(writer, data + done, now));
        done += now;
        assert_int_equal(cz__writer_position(writer), done);
    }
    assert_sum(cz__writer_checksum(writer), data, count);
    CZ_CHECK(cz__writer_finish(&writer));
    assert_null(writer);
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STAGING), 0);
    assert_file(path, data, count);
    assert_int_equal(unlink(path), 0);
}

static const size_t sizes[] = {0,           1,       4095,        4096,     4097,
                               8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB, 3 * 8 * MIB + 5};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(files_of_every_size_are_written_and_read)
{
    for (int i = 0; i < SIZES; i++) {
        write_in_pieces(sizes[i], LONGEST, sizes[i]); /* one huge append */
        write_in_pieces(sizes[i], 1000003, 0);        /* it does not know how many */
        cz__system_used.direct = false;
        write_in_pieces(sizes[i], 3 * MIB, sizes[i]);
        cz__system_used.direct = true;
    }
}

TEST(what_was_expected_is_a_hint)
{
    for (int i = 0; i < SIZES - 2; i++) {
        write_in_pieces(sizes[i], 3 * MIB, sizes[i] / 2);
        write_in_pieces(sizes[i], 3 * MIB, 2 * sizes[i]);
    }
}

TEST(tiny_appends)
{
    write_in_pieces(9000, 1, 9000);
    write_in_pieces(8 * MIB + 777, 61, 0);
}

/* Room for more than there is in the end is given back. */
TEST(less_than_expected)
{
    struct stat about;
    cz__writer *writer;
    CZ_CHECK(cz__writer_create(&writer, path, 20 * MIB));
    CZ_CHECK(cz__writer_append(writer, data, 5));
    CZ_CHECK(cz__writer_finish(&writer));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 5);
    assert_true(about.st_blocks * 512 < (blkcnt_t)MIB);
    assert_int_equal(unlink(path), 0);
}

TEST(a_sum_for_each_part)
{
    static const size_t ends[] = {0, 1, 240, 241, 100000, 9 * MIB, 9 * MIB, 17 * MIB + 3};
    cz__checksum sum;
    cz__writer *writer;
    cz__reader *reader;
    CZ_CHECK(cz__writer_create(&writer, path, 17 * MIB + 3));
    assert_sum(cz__writer_checksum(writer), data, 0);
    for (size_t i = 1; i < sizeof ends / sizeof *ends; i++) {
        const size_t count = ends[i] - ends[i - 1];
        CZ_CHECK(cz__writer_append(writer, data + ends[i - 1], count));
        assert_sum(cz__writer_checksum(writer), data + ends[i - 1], count);
    }
    CZ_CHECK(cz__writer_finish(&writer));
    CZ_CHECK(cz__reader_open(&reader, path));
    assert_int_equal(cz__reader_bytes(reader), 17 * MIB + 3);
    for (size_t i = 1; i < sizeof ends / sizeof *ends; i++) {
        const size_t begin = ends[i - 1], count = ends[i] - begin;
        CZ_CHECK(cz__reader_checksum(reader, begin, count, &sum));
        assert_sum(sum, data + begin, count);
        memset(back, 0, count);
        CZ_CHECK(cz__reader_read(reader, begin, back, count));
        assert_memory_equal(back, data + begin, count);
    }
    cz__reader_close(&reader);
    assert_null(reader);
    assert_int_equal(unlink(path), 0);
}

TEST(sums_as_text)
{
    static const char *const bad[] = {
        "", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdef0",
        "0123456789abcdef0123456789abcdeF", "0123456789abcdef 123456789abcdef"};
    char text[33];
    cz__checksum sum = cz__checksum_of(data, 1000), again = {0, 0};
    assert_sum(sum, data, 1000);
    cz__checksum_print(sum, text);
    assert_true(cz__checksum_scan(text, &again) && cz__checksum_equal(sum, again));
    again.low ^= 1;
    assert_false(cz__checksum_equal(sum, again));
    cz__checksum_print((cz__checksum){.high = 0x12, .low = 0xabcdef}, text);
    assert_string_equal(text, "00000000000000120000000000abcdef");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cz__checksum_scan(bad[i], &again));
}

/* xxHash's own text of nothing: what xxh128sum prints. */
TEST(the_known_sum)
{
    char text[33];
    cz__checksum_print(cz__checksum_of("", 0), text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
}

TEST(small_files)
{
    char *bytes, name[320];
    size_t count;
    snprintf(name, sizeof name, "%s.tmp", path);
    CZ_CHECK(cz__file_write(name, "left behind", 11)); /* PATH.tmp.tmp, renamed */
    for (size_t size = 0; size < 20000; size = size * 3 + 1) {
        CZ_CHECK(cz__file_write(path, data, size));
        assert_file(path, data, size);
        assert_false(exists(name));
        CZ_CHECK(cz__file_read(path, size, &bytes, &count));
        assert_int_equal(count, size);
        assert_memory_equal(bytes, data, size);
        assert_int_equal(bytes[size], 0);
        cz__free(bytes);
        if (size > 0) {
            assert_int_equal(cz__file_read(path, size - 1, &bytes, &count), CZ_ERR_FORMAT);
            assert_null(bytes);
        }
    }
    assert_int_equal(chdir(folder), 0); /* a name without a folder */
    CZ_CHECK(cz__file_write("file", "here", 4));
    assert_file(path, "here", 4);
    CZ_CHECK(cz__folder_sync(folder));
    assert_int_equal(cz__folder_sync(path), CZ_ERR_IO);
    assert_int_equal(unlink(path), 0);
}

TEST(nothing_to_end)
{
    cz__writer *writer = NULL;
    cz__reader *reader = NULL;
    cz__writer_destroy(NULL);
    cz__writer_destroy(&writer);
    cz__reader_close(NULL);
    cz__reader_close(&reader);
}

/* At any moment: before anything was appended, in a block, with blocks on their way. */
TEST(destroyed_before_the_end)
{
    for (int i = 0; i < SIZES; i++) {
        cz__writer *writer;
        CZ_CHECK(cz__writer_create(&writer, path, sizes[i]));
        CZ_CHECK(cz__writer_append(writer, data, sizes[i]));
        assert_true(exists(path));
        cz__writer_destroy(&writer);
        assert_null(writer);
        assert_false(exists(path));
    }
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STAGING), 0);
}

TEST(memory)
{
    cz__writer *writer;
    cz__reader *reader;
    cz__checksum sum;
    cz_memory_reset_peak();
    CZ_CHECK(cz__writer_create(&writer, path, (uint64_t)1 << 30));
    CZ_CHECK(cz__writer_append(writer, data, LONGEST));
    CZ_CHECK(cz__writer_finish(&writer));
    CZ_CHECK(cz__reader_open(&reader, path));
    CZ_CHECK(cz__reader_checksum(reader, 0, LONGEST, &sum));
    cz__reader_close(&reader);
    assert_true(cz_memory_peak_bytes(CZ_MEMORY_STAGING) <= 32 * MIB);
    assert_int_equal(unlink(path), 0);
    cz_memory_reset_peak(); /* small files have small blocks */
    CZ_CHECK(cz__writer_create(&writer, path, 5000));
    CZ_CHECK(cz__writer_append(writer, data, 5000));
    cz__writer_destroy(&writer);
    assert_true(cz_memory_peak_bytes(CZ_MEMORY_STAGING) <= 3 * CZ__SECTOR);
}

static cz_status everything(void)
{
    cz__writer *writer = NULL;
    cz__reader *reader = NULL;
    cz__checksum sum;
    char *bytes = NULL;
    size_t count;
    cz_status status = cz__writer_create(&writer, path, 100000);
    THEN(cz__writer_append(writer, data, 100000));
    THEN(cz__writer_finish(&writer));
    THEN(cz__reader_open(&reader, path));
    THEN(cz__reader_checksum(reader, 0, 100000, &sum));
    THEN(cz__file_write(other, "new", 3));
    THEN(cz__file_read(other, 3, &bytes, &count));
    cz__free(bytes);
    cz__reader_close(&reader);
    cz__writer_destroy(&writer);
    return status;
}

TEST(every_allocation_fails)
{
    for (int64_t n = 1;; n++) {
        unlink(path);
        CZ_CHECK(cz__file_write(other, "old", 3));
        cz_test_fail_allocation(n);
        const cz_status status = everything();
        if (!cz_test_allocation_reset()) {
            assert_ok(status);
            assert_true(n > 8);
            break;
        }
        assert_int_equal(status, CZ_ERR_MEMORY);
        assert_non_null(strstr(cz_last_error(), folder));
        assert_int_equal(cz_test_allocations_held(), 0);
    }
    assert_file(other, "new", 3);
    assert_int_equal(unlink(path) + unlink(other), 0);
}

int main(void)
{
    return cz_test_run(set_up, tear_down);
}
