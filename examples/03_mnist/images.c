/* SPDX-License-Identifier: MIT */
/* The data: IDX files, gzipped, with big-endian headers. */
#include "mnist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    MOST_BYTES = 1 << 28
}; /* what a file may say that it has: five times the largest of these */

#define FOLDER "/usr/share/datasets/fashion-mnist/"

static uint32_t big_endian(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The payload of an IDX file whose header has `words` words after the magic number. */
static cz_status read_idx(const char *path, int words, size_t each, unsigned char **data,
                          int64_t *count)
{
    unsigned char header[16];
    gzFile file = gzopen(path, "rb");
    if (!file)
        return cz_fail(CZ_ERR_IO, "%s: %s (package dataset-fashion-mnist)", path, strerror(errno));
    const int length = 4 + 4 * words;
    const bool headed = gzread(file, header, (unsigned)length) == length;
    *count = headed ? big_endian(header + 4) : 0;
    const bool fits = headed && (size_t)*count <= MOST_BYTES / each;
    *data = fits ? malloc((size_t)*count * each) : NULL;
    const unsigned bytes = fits ? (unsigned)((size_t)*count * each) : 0;
    const bool whole = *data && gzread(file, *data, bytes) == (int)bytes;
    gzclose(file);
    return whole ? CZ_OK : cz_fail(CZ_ERR_IO, "%s: not a whole IDX file", path);
}

static cz_status read_images(images *out, const char *pixels, const char *labels)
{
    int64_t label_count;
    *out = (images){0};
    CZ_TRY(read_idx(pixels, 3, PIXELS, &out->pixels, &out->count));
    CZ_TRY(read_idx(labels, 1, 1, &out->labels, &label_count));
    return label_count == out->count ? CZ_OK
                                     : cz_fail(CZ_ERR_IO, "%s: %lld labels for %lld images", labels,
                                               (long long)label_count, (long long)out->count);
}

cz_status task_read(task *t)
{
    CZ_TRY(read_images(&t->training, FOLDER "train-images-idx3-ubyte.gz",
                       FOLDER "train-labels-idx1-ubyte.gz"));
    return read_images(&t->test, FOLDER "t10k-images-idx3-ubyte.gz",
                       FOLDER "t10k-labels-idx1-ubyte.gz");
}

void task_free(task *t)
{
    free(t->training.pixels);
    free(t->training.labels);
    free(t->test.pixels);
    free(t->test.labels);
}
