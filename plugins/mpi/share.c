/* SPDX-License-Identifier: MIT */
/* Memory that the ranks of a group on one machine share. Rank 0 makes it, as a file without a name that is gone
 * with the last process that has it, and tells the others where; who hears that opens it. Nobody waits: until all
 * have it, and where some rank cannot, messages carry the data. (Windows of MPI's own are made and freed by
 * collective calls that wait for all ranks: one that does not come would hold up the others for ever, and two groups
 * that end in another order on another rank would lock each other up.) */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Of each rank: enough in small groups, not too much of all together in large ones. */
static size_t part_bytes(int size)
{
    const size_t LARGEST = (size_t)4 << 20, TOGETHER = (size_t)128 << 20, PAGE = 4096;
    const size_t share = TOGETHER / (size_t)size / PAGE * PAGE;
    return share < LARGEST ? share : LARGEST;
}

/* Once per process. */
static void say_that_there_is_none(const char *why)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        cz_log(CZ_LOG_INFO, "mpi: data go by messages, not through shared memory: %s", why);
}

static bool is_wanted(const cz__endpoint *of)
{
    const char *set = getenv("CZERO_MPI_WINDOW");
    if (set && strcmp(set, "0") == 0)
        say_that_there_is_none("CZERO_MPI_WINDOW is 0");
    return of->size > 1 && !(set && strcmp(set, "0") == 0);
}

static bool map(cz__endpoint *of, int file)
{
    const size_t part = part_bytes(of->size), bytes = part * (size_t)of->size;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED)
        return false;
    of->share_bytes = bytes;
    of->share_part = part;
    atomic_store(&of->share, base);
    return true;
}

static void name_file(char *name, size_t bytes, uint64_t token)
{
    snprintf(name, bytes, "czero-%016" PRIx64, token);
}

static void fail(const char *what)
{
    char why[200];
    snprintf(why, sizeof why, "%s: %s", what, strerror(errno));
    say_that_there_is_none(why);
}

void cz__share_create(cz__endpoint *of)
{
    char name[64];
    uint64_t token;
    if (of->rank != 0 || !is_wanted(of))
        return;
    if (getrandom(&token, sizeof token, GRND_NONBLOCK) != sizeof token) {
        fail("getrandom");
        return;
    }
    name_file(name, sizeof name, token);
    const int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)(part_bytes(of->size) * (size_t)of->size)) != 0 ||
        !map(of, file)) {
        fail("memfd_create");
        if (file >= 0)
            close(file);
        return;
    }
    of->share_file = file;
    of->share_opening = of->size - 1;
    of->share_token = token;
    for (int r = 1; r < of->size; r++)
        of->peers[r].share_due = true;
}

bool cz__share_describe(const cz__endpoint *of, uint64_t place[3], char *host, size_t bytes)
{
    place[0] = (uint64_t)getpid();
    place[1] = (uint64_t)of->share_file;
    place[2] = of->share_token;
    memset(host, 0, bytes);
    return gethostname(host, bytes - 1) == 0;
}

/* Another process's file, if it is the one: any other is not touched. */
static int open_place(const uint64_t place[3])
{
    char path[64], name[64], wanted[96], found[96] = "";
    name_file(name, sizeof name, place[2]);
    snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", name);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)place[0], (int)place[1]);
    const ssize_t length = readlink(path, found, sizeof found - 1);
    if (length < 0)
        return -1;
    errno = ENOENT;
    return strcmp(found, wanted) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

void cz__share_open(cz__endpoint *of, const uint64_t place[3], const char *host)
{
    char here[CZ_MPI_SENTENCE_BYTES] = "";
    if (atomic_load(&of->share) || !is_wanted(of))
        return;
    if (gethostname(here, sizeof here - 1) != 0 || strcmp(here, host) != 0) {
        say_that_there_is_none("not all ranks are on one machine");
        return;
    }
    const int file = open_place(place);
    struct stat its;
    if (file < 0 || fstat(file, &its) != 0 ||
        its.st_size != (off_t)(part_bytes(of->size) * (size_t)of->size) || !map(of, file))
        fail("the memory of rank 0");
    if (file >= 0)
        close(file);
}

void cz__share_opened(cz__endpoint *of)
{
    if (of->share_opening > 0 && --of->share_opening == 0)
        close(of->share_file);
}

void cz__share_close(cz__endpoint *of)
{
    char *base = atomic_load(&of->share);
    if (base)
        munmap(base, of->share_bytes);
    if (of->share_opening > 0)
        close(of->share_file);
}

void *cz__share_part(void *endpoint, int rank, size_t *bytes)
{
    cz__endpoint *of = endpoint;
    char *base = atomic_load(&of->share);
    *bytes = base ? of->share_part : 0;
    return base ? base + (size_t)rank * of->share_part : NULL;
}
