/* SPDX-License-Identifier: MIT */
/* What a system refuses, as far as a test can bring it about: an error with a sentence that names
 * the path, and no file that looks whole. */
#include "checkpoint/stream_files.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* ---- what is at a path ---- */

TEST(paths_that_cannot_be_opened_are_named)
{
    char name[320];
    cz__reader *reader;
    snprintf(name, sizeof name, "%s/none/file", folder);
    assert_no_file(name, 1, 1, "No such file or directory");
    assert_int_equal(cz__reader_open(&reader, name), CZ_ERR_IO);
    assert_int_equal(cz__file_write(name, "", 0), CZ_ERR_IO);
    CZ_CHECK(cz__file_write(path, "old", 3));
    assert_int_equal(write_file(path, 5, 5), CZ_ERR_IO); /* it exists, and stays */
    assert_sentence("File exists");
    assert_file(path, "old", 3);
    snprintf(name, sizeof name, "%s/under", path);
    assert_no_file(name, 1, 1, "Not a directory");
    assert_int_equal(cz__file_write(name, "", 0), CZ_ERR_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(write_file(small, 1, 1), CZ_ERR_IO); /* a folder is there */
    assert_int_equal(cz__reader_open(&reader, small), CZ_ERR_IO);
    assert_sentence("folder");
    assert_null(reader);
    assert_int_equal(cz__file_write(small, "new", 3), CZ_ERR_IO);
    snprintf(name, sizeof name, "%s.tmp", small);
    assert_false(exists(name));
    assert_int_equal(mkfifo(path, 0666), 0); /* nobody is at its other end */
    assert_int_equal(cz__reader_open(&reader, path), CZ_ERR_IO);
    assert_int_equal(unlink(path), 0);
}

TEST(a_file_that_is_too_short)
{
    static char bytes[2 << 20];
    cz__checksum sum;
    cz__reader *reader;
    CZ_CHECK(write_file(path, 2 * MIB, 0));
    CZ_CHECK(cz__reader_open(&reader, path));
    assert_int_equal(cz__reader_read(reader, 1, bytes, 2 * MIB), CZ_ERR_FORMAT);
    assert_int_equal(cz__reader_read(reader, 2 * MIB + 1, bytes, 0), CZ_ERR_FORMAT);
    assert_int_equal(cz__reader_checksum(reader, UINT64_MAX, 2, &sum), CZ_ERR_FORMAT);
    assert_int_equal(cz__reader_checksum(reader, 2, UINT64_MAX, &sum), CZ_ERR_FORMAT);
    CZ_CHECK(cz__reader_read(reader, 2 * MIB, bytes, 0));
    assert_int_equal(truncate(path, 1000000), 0); /* after it was opened */
    assert_int_equal(cz__reader_checksum(reader, 0, 2 * MIB, &sum), CZ_ERR_FORMAT);
    assert_sentence("ends after 1000000 bytes");
    assert_int_equal(cz__reader_read(reader, 0, bytes, 2 * MIB), CZ_ERR_FORMAT);
    assert_int_equal(cz__reader_read(reader, 1000000, bytes, 1), CZ_ERR_FORMAT);
    CZ_CHECK(cz__reader_read(reader, 999999, bytes, 1));
    cz__reader_close(&reader);
    assert_int_equal(unlink(path), 0);
}

/* ---- media that are full, or only to be read ---- */

/* A file system of 4 MiB that nobody else sees; false: not allowed here. */
static bool mount_small(const char *options, unsigned long flags)
{
    static bool own;
    if (!own && unshare(CLONE_NEWNS) != 0)
        return false;
    own = true;
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", small, "tmpfs", flags, options) == 0;
}

TEST(a_full_medium)
{
    char name[320], wanted[64];
    if (!mount_small("size=4m", 0))
        skip();
    snprintf(name, sizeof name, "%s/file", small);
    snprintf(wanted, sizeof wanted, "0 of %zu bytes written: No space left", 8 * MIB);
    assert_no_file(name, 8 * MIB, 8 * MIB, wanted); /* found before the first byte */
    snprintf(wanted, sizeof wanted, "of %zu bytes written: No space left", 5 * MIB);
    assert_no_file(name, 5 * MIB, 0, wanted); /* at the end */
    assert_no_file(name, 5 * MIB, 1, "bytes written: No space left");
    assert_no_file(name, LONGEST, 0, "bytes written: No space left"); /* on the way */
    CZ_CHECK(write_file(name, 3 * MIB, 3 * MIB));
    assert_file(name, data, 3 * MIB);
    assert_int_equal(cz__file_write(name, data, 2 * MIB), CZ_ERR_IO); /* the old one stays */
    assert_sentence("No space left");
    assert_file(name, data, 3 * MIB);
    CZ_CHECK(cz__file_write(name, data, MIB));
    assert_file(name, data, MIB);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(umount(small), 0);
}

TEST(a_read_only_medium)
{
    char name[320];
    if (!mount_small("size=4m", MS_RDONLY))
        skip();
    snprintf(name, sizeof name, "%s/file", small);
    assert_no_file(name, 1, 1, "Read-only file system");
    assert_int_equal(cz__file_write(name, "", 0), CZ_ERR_IO);
    assert_int_equal(umount(small), 0);
}

TEST(a_limit_on_sizes)
{
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 12 * MIB;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_no_file(path, 13 * MIB, 13 * MIB, "12582912 of 13631488 bytes written: File too large");
    assert_no_file(path, 13 * MIB, 0, "12582912 of 13631488 bytes written: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
}

int main(void)
{
    return cz_test_run(set_up, tear_down);
}
