/* SPDX-License-Identifier: MIT */
/* What tests of failing writers share: a folder of their own, and what has to hold after each
 * failure. */
#ifndef CZ_TEST_STREAM_FILES_H
#define CZ_TEST_STREAM_FILES_H

#include "support/cz_test.h"

#include "base/memory.h"
#include "io/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char folder[256], path[300], small[300]; /* small: where a file system of 4 MiB may be */
static unsigned char *data;
enum { LONGEST = (40 << 20) + 5 };

static inline int set_up(void **state)
{
    snprintf(folder, sizeof folder, "%s/stream_XXXXXX", CZ_TEST_BINARY_DIR);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(small, sizeof small, "%s/small", folder);
    if (!(data = malloc(LONGEST)) || mkdir(small, 0777) != 0)
        return -1;
    for (size_t i = 0; i < LONGEST; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 20);
    return 0;
}

static inline int tear_down(void **state)
{
    free(data);
    return rmdir(small) + rmdir(folder); /* nothing is left in them */
}

static inline bool exists(const char *name)
{
    struct stat about;
    return lstat(name, &about) == 0;
}

static inline cz_status write_file(const char *name, size_t count, uint64_t expected)
{
    cz__writer *writer;
    CZ_TRY(cz__writer_create(&writer, name, expected));
    cz_status status = cz__writer_append(writer, data, count);
    THEN(cz__writer_finish(&writer));
    if (status != CZ_OK) /* it keeps to it */
        assert_int_equal(cz__writer_finish(&writer), status);
    cz__writer_destroy(&writer);
    return status;
}

static inline void assert_sentence(const char *part)
{
    if (!strstr(cz_last_error(), part))
        fail_msg("\"%s\" is not in: %s", part, cz_last_error());
}

static inline void assert_no_file(const char *name, size_t count, uint64_t expected,
                                  const char *why)
{
    assert_int_equal(write_file(name, count, expected), CZ_ERR_IO);
    assert_sentence(name);
    assert_sentence(why);
    assert_false(exists(name));
    assert_int_equal(cz_memory_bytes(CZ_MEMORY_STAGING) + cz_memory_bytes(CZ_MEMORY_GENERAL), 0);
}

static inline void assert_file(const char *name, const void *bytes, size_t count)
{
    cz__reader *reader;
    char *have = malloc(count + 1);
    CZ_CHECK(cz__reader_open(&reader, name));
    assert_int_equal(cz__reader_bytes(reader), count);
    CZ_CHECK(cz__reader_read(reader, 0, have, count));
    assert_memory_equal(have, bytes, count);
    cz__reader_close(&reader);
    free(have);
}

#endif
