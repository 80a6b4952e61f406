/* SPDX-License-Identifier: MIT */
/* Blocks into a new file. Direct writes are a wish: where a file system refuses them, when they are asked for or
 * at the first one, the page cache takes them, and is told to write at once. */
#include "io/output.h"

#include "base/open.h"
#include "base/thread.h"
#include "io/system.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

const cz__system cz__system_own = {pwrite, pread, fallocate, fsync, cz__thread_create, true, true};
cz__system cz__system_used = {pwrite, pread, fallocate, fsync, cz__thread_create, true, true};

static size_t whole_sectors(size_t count)
{
    return (count + CZ__SECTOR - 1) / CZ__SECTOR * CZ__SECTOR;
}

/* After the file is made: open(2) with O_DIRECT makes it, and then refuses. */
static void set_direct(cz__output *output, bool direct)
{
    const int flags = fcntl(output->file, F_GETFL);
    const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    const bool done = flags >= 0 && fcntl(output->file, F_SETFL, wanted) == 0;
    output->direct = direct && done;
}

/* Room for all of it, so that a full medium is found before the work is done; file systems for which that is
 * work of its own refuse. The size stays 0: a file that was left behind does not look whole. */
static int reserve(cz__output *output, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    if (cz__system_used.reserve(output->file, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0)
        output->reserved = bytes;
    else if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return errno;
    return 0; /* anything else will be seen by the writes, if it hinders them */
}

int cz__output_open(cz__output *output, int folder, const char *name, uint64_t bytes)
{
    *output = (cz__output){.file = cz__open_at(folder, name, O_WRONLY | O_CREAT | O_EXCL)};
    if (output->file < 0)
        return errno;
    if (cz__system_used.direct)
        set_direct(output, true);
    const int error = reserve(output, bytes);
    if (error) {
        cz__output_close(output);
        (void)unlinkat(folder, name, 0);
    }
    return error;
}

int cz__output_write(cz__output *output, const char *block, size_t count)
{
    const uint64_t begin = output->written;
    size_t done = 0;
    while (done < count) {
        const size_t left = count - done, bytes = output->direct ? whole_sectors(left) : left;
        const ssize_t now =
            cz__system_used.write(output->file, block + done, bytes, (off_t)(begin + done));
        if (now < 0 && errno == EINVAL && output->direct)
            set_direct(output, false); /* refused late, or the rest of a short one */
        else if (now < 0 && errno != EINTR)
            return errno;
        else if (now == 0)
            return EIO;
        if (now > 0) {
            output->end = begin + done + (size_t)now;
            done += (size_t)now < left ? (size_t)now : left;
            output->written = begin + done;
        }
    }
    if (!output
             ->direct) /* from now on, not when memory is full of it; the result is fsync's to tell */
        (void)sync_file_range(output->file, (off_t)begin, (off_t)count, SYNC_FILE_RANGE_WRITE);
    return 0;
}

int cz__output_finish(cz__output *output)
{
    int error = 0;
    const bool more = output->end > output->written || output->reserved > output->written;
    if (more && ftruncate(output->file, (off_t)output->written) != 0)
        error = errno;
    if (!error && cz__system_used.synchronise(output->file) != 0)
        error = errno;
    const int file = output->file;
    output->file = -1;
    if (close(file) != 0 && !error && errno != EINTR)
        error = errno;
    return error;
}

void cz__output_close(cz__output *output)
{
    if (output->file >= 0)
        close(output->file);
    output->file = -1;
}
