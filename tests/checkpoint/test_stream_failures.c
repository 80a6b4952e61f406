/* SPDX-License-Identifier: MIT */
/* Every call to the system that can fail does, by functions in between: an error that says what was
 * written and why no more, no file that looks whole, and no thread or memory left behind; or the
 * same file as ever. */
#include "checkpoint/stream_files.h"

#include "io/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>

static atomic_int writes, direct_writes;
static int fail_at, fail_with; /* number of the write that fails, 0: none; errno */

static ssize_t failing_write(int file, const void *bytes, size_t count, off_t offset)
{
    if (fcntl(file, F_GETFL) & O_DIRECT)
        atomic_fetch_add(&direct_writes, 1);
    if (atomic_fetch_add(&writes, 1) + 1 != fail_at)
        return pwrite(file, bytes, count, offset);
    errno = fail_with;
    return fail_with ? -1 : 0;
}

/* Less than was asked for, which leaves a direct write in the middle of a sector; and
 * interrupted. */
static ssize_t short_write(int file, const void *bytes, size_t count, off_t offset)
{
    const int number = atomic_fetch_add(&writes, 1);
    errno = EINTR;
    return number % 3 == 0   ? -1
           : number % 3 == 1 ? pwrite(file, bytes, count > 100000 ? 40960 : count, offset)
           : fcntl(file, F_GETFL) & O_DIRECT
               ? pwrite(file, bytes, count, offset)
               : pwrite(file, bytes, count > 3000000 ? 3000001 : count, offset);
}

/* As a file system that takes the flag and then refuses the write. */
static ssize_t refuse_direct(int file, const void *bytes, size_t count, off_t offset)
{
    errno = EINVAL;
    return fcntl(file, F_GETFL) & O_DIRECT ? -1 : pwrite(file, bytes, count, offset);
}

static void fail_write(int at, int error)
{
    cz__system_used.write = failing_write;
    fail_at = at;
    fail_with = error;
    atomic_store(&writes, 0);
    atomic_store(&direct_writes, 0);
}

static int fail_reserve(int file, int mode, off_t offset, off_t count)
{
    errno = fail_with;
    return -1;
}

static int fail_synchronise(int file)
{
    errno = fail_with;
    return -1;
}

static int fail_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                       void *context)
{
    return EAGAIN;
}

static ssize_t short_read(int file, void *to, size_t count, off_t offset)
{
    errno = EINTR;
    return atomic_fetch_add(&writes, 1) % 2 ? pread(file, to, count > 1000 ? 1000 : count, offset)
                                            : -1;
}

static ssize_t fail_read(int file, void *to, size_t count, off_t offset)
{
    errno = EIO;
    return offset >= 500000 ? -1 : pread(file, to, count, offset);
}

static int use_own(void **state)
{
    cz__system_used = cz__system_own;
    return 0;
}

static void assert_written(size_t count)
{
    CZ_CHECK(write_file(path, count, count));
    assert_file(path, data, count);
    assert_int_equal(unlink(path), 0);
}

EACH_TEST(NULL, use_own)

TEST(writes_that_fail)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EFBIG, 0};
    for (int at = 1; at <= 6; at++)
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            char written[64];
            snprintf(written, sizeof written, ": %zu of %zu bytes", (size_t)(at - 1) * 8 * MIB,
                     (size_t)LONGEST);
            fail_write(at, errors[e]);
            assert_no_file(path, LONGEST, LONGEST, written);
            assert_sentence(strerror(fail_with ? fail_with : EIO));
            assert_int_equal(atomic_load(&writes), at); /* and none after it */
        }
}

/* The next append tells of it, and all after that. */
TEST(append_tells_of_it)
{
    cz__writer *writer;
    fail_write(1, EIO);
    CZ_CHECK(cz__writer_create(&writer, path, 0));
    CZ_CHECK(cz__writer_append(writer, data, 8 * MIB));
    while (cz__writer_append(writer, data, 1) == CZ_OK)
        usleep(100);
    assert_int_equal(cz__writer_append(writer, data, 1), CZ_ERR_IO);
    assert_sentence("Input/output error");
    cz__writer_destroy(&writer);
    assert_false(exists(path));
}

TEST(short_and_refused_writes)
{
    cz__system_used.write = short_write;
    assert_written(LONGEST);
    assert_written(4097);
    cz__system_used.write = refuse_direct;
    assert_written(LONGEST);
    assert_written(4097);
    cz__system_used.direct = false;
    cz__system_used.write = short_write;
    assert_written(LONGEST);
}

/* Where this file system takes direct writes, they are what is done: also of the last block. */
TEST(writes_are_direct)
{
    void *sector = aligned_alloc(4096, 4096);
    const int file = open(path, O_WRONLY | O_CREAT, 0666);
    const bool can = fcntl(file, F_SETFL, O_WRONLY | O_DIRECT) == 0 &&
                     pwrite(file, memset(sector, 0, 4096), 4096, 0) == 4096;
    free(sector);
    close(file);
    unlink(path);
    if (!can)
        skip();
    fail_write(0, 0);
    assert_written(LONGEST);
    assert_int_equal(atomic_load(&writes), 6);
    assert_int_equal(atomic_load(&direct_writes), 6);
}

TEST(no_room_and_no_answer)
{
    static const int full[] = {ENOSPC, EDQUOT, EFBIG}, other[] = {EOPNOTSUPP, EINTR, ENOSYS, EPERM};
    cz__system_used.reserve = fail_reserve;
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
        fail_with = full[i];
        assert_no_file(path, 100, 5000, "0 of 5000 bytes written");
        assert_sentence(strerror(full[i]));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        fail_with = other[i];
        assert_written(5000);
    }
}

TEST(the_medium_fails_at_the_end)
{
    fail_with = EIO;
    cz__system_used.synchronise = fail_synchronise;
    assert_no_file(path, 5000, 5000, "5000 bytes written, but not to the medium");
    assert_no_file(path, LONGEST, 0, "Input/output error");
    cz__system_used = cz__system_own;
    CZ_CHECK(cz__file_write(path, "old", 3));
    cz__system_used.synchronise = fail_synchronise;
    assert_int_equal(cz__file_write(path, "new", 3), CZ_ERR_IO);
    assert_file(path, "old", 3);
    assert_int_equal(cz__folder_sync(folder), CZ_ERR_IO);
    fail_with = EINVAL; /* folders are not for it, there */
    CZ_CHECK(cz__folder_sync(folder));
    cz__system_used = cz__system_own;
    for (int error = 0; error <= EIO; error += EIO) {
        fail_write(1, error);
        assert_int_equal(cz__file_write(path, "new", 3), CZ_ERR_IO);
        assert_file(path, "old", 3);
    }
    assert_int_equal(unlink(path), 0);
}

TEST(no_thread)
{
    cz__system_used.thread = fail_thread;
    assert_written(LONGEST);
    fail_write(2, EIO);
    assert_no_file(path, LONGEST, 0, ": 8388608 of ");
}

TEST(reads)
{
    cz__reader *reader;
    cz__checksum sum;
    char *bytes;
    size_t count;
    CZ_CHECK(write_file(path, MIB, MIB));
    cz__system_used.read = short_read;
    assert_file(path, data, MIB);
    CZ_CHECK(cz__reader_open(&reader, path));
    CZ_CHECK(cz__reader_checksum(reader, 3, MIB - 3, &sum));
    assert_true(cz__checksum_equal(sum, cz__checksum_of(data + 3, MIB - 3)));
    cz__system_used.read = fail_read;
    sum = (cz__checksum){1, 2};
    assert_int_equal(cz__reader_checksum(reader, 0, MIB, &sum), CZ_ERR_IO);
    assert_sentence("at byte 524288: Input/output error");
    assert_true(sum.high == 1 && sum.low == 2);
    assert_int_equal(cz__file_read(path, MIB, &bytes, &count), CZ_ERR_IO);
    assert_null(bytes);
    cz__reader_close(&reader);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    return cz_test_run(set_up, tear_down);
}
