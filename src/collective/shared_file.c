/* SPDX-License-Identifier: MIT */
/* Memory between processes of one machine: an anonymous file of one of them, which the others open
 * by way of its table of open files. So nothing has a name that could be left over, whoever is
 * killed. */
#include "collective/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fingerprint.h"
#include "base/open.h"
#include "base/status.h"

#define HUGE_PAGE ((size_t)2 << 20)

uint64_t cz__shared_id(void)
{
    static atomic_uint made;
    struct {
        uint64_t chance;
        struct timespec now;
        int64_t process;
        unsigned number;
    } parts;
    memset(&parts, 0, sizeof parts);
    if (getrandom(&parts.chance, sizeof parts.chance, GRND_NONBLOCK) < 0)
        parts.chance = (uintptr_t)&parts; /* then the others have to tell it from others */
    (void)clock_gettime(CLOCK_REALTIME, &parts.now);
    parts.process = getpid();
    parts.number = atomic_fetch_add(&made, 1);
    const uint64_t id = cz__fingerprint(1, &parts, sizeof parts);
    return id ? id : 1;
}

void cz__shared_host(char host[64])
{
    memset(host, 0, 64);
    if (gethostname(host, 63) != 0)
        host[0] = '?';
}

static void name_file(char *name, size_t bytes, uint64_t id)
{
    snprintf(name, bytes, "czero-shared-%016" PRIx64, id);
}

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Beyond the limit of files a signal would end the process. */
static bool may_have(size_t bytes)
{
    struct rlimit limit;
    const bool may = getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur;
    errno = may ? errno : EFBIG;
    return may;
}

/* NULL: no address space. What lies before and after the aligned part is given back. */
static void *map(int file, size_t bytes)
{
    const size_t pages = whole_pages(bytes);
    char *all = mmap(NULL, pages + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE;
    void *data = mmap(all + before, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    if (data == MAP_FAILED) {
        (void)munmap(all, pages + HUGE_PAGE);
        return NULL;
    }
    if (before > 0)
        (void)munmap(all, before);
    (void)munmap(all + before + pages, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_PAGE)
        (void)madvise(data, pages, MADV_HUGEPAGE); /* a wish; refused on some kernels */
#endif
    return data;
}

void cz__shared_file_unmap(void *data, size_t bytes)
{
    if (data)
        (void)munmap(data, whole_pages(bytes));
}

cz_status cz__shared_file_create(cz__shared_file *file, size_t bytes, void **data)
{
    char name[64];
    name_file(name, sizeof name, file->id);
    const int number = cz__open_memory(name);
    file->number = number;
    *data = NULL;
    errno = number < 0 ? errno : ENOMEM;
    if (number >= 0 && bytes <= PTRDIFF_MAX - 2 * HUGE_PAGE && may_have(whole_pages(bytes)) &&
        ftruncate(number, (off_t)whole_pages(bytes)) == 0)
        *data = map(number, bytes);
    if (*data)
        return CZ_OK;
    const int error = errno;
    cz__shared_file_close(file);
    return cz__fail(CZ_ERR_MEMORY, "shared: no memory for a block of %zu bytes: %s", bytes,
                    strerror(error));
}

void cz__shared_file_close(cz__shared_file *file)
{
    if (file->number >= 0)
        (void)close((int)file->number);
    file->number = -1;
}

/* Another process's file, if it is the one: any other is not touched. Below 0: errno says why. */
static int open_file(const cz__shared_file *file)
{
    char path[64], name[64], wanted[96], found[96] = "";
    name_file(name, sizeof name, file->id);
    snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", name);
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, file->owner, file->number);
    if (readlink(path, found, sizeof found - 1) < 0)
        return -1;
    errno = ENOENT;
    return strcmp(found, wanted) == 0 ? cz__open(path, O_RDWR) : -1;
}

static cz_status check_host(const cz__shared_file *file)
{
    char here[64];
    cz__shared_host(here);
    if (memcmp(here, file->host, sizeof here) == 0)
        return CZ_OK;
    return cz__fail(
        CZ_ERR_UNSUPPORTED,
        "shared: this is machine '%.40s', rank 0 is on '%.40s'; make the block over a group of one "
        "machine's ranks (cz_group_split()), or let each rank have memory of its own",
        here, file->host);
}

cz_status cz__shared_file_open(const cz__shared_file *file, size_t bytes, void **data)
{
    struct stat its;
    *data = NULL;
    CZ_TRY(check_host(file));
    const int number = open_file(file);
    if (number < 0)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "shared: the memory of rank 0 cannot be opened (%s); let each rank have "
                        "memory of its own",
                        strerror(errno));
    if (fstat(number, &its) == 0 && its.st_size == (off_t)whole_pages(bytes))
        *data = map(number, bytes);
    const int error = errno;
    (void)close(number);
    return *data ? CZ_OK
                 : cz__fail(CZ_ERR_MEMORY, "shared: no memory for a block of %zu bytes: %s", bytes,
                            strerror(error));
}
