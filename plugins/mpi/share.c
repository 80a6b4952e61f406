/* SPDX-License-Identifier: MIT */
/* Memory that the ranks of a group on one machine share. The lowest of them makes it, as a file
 * without a name that is gone with the last process that has it, and tells the others where; who
 * hears that opens it. Nobody waits: until all have it, and where some rank cannot, messages carry
 * the data. (Windows of MPI's own are made and freed by collective calls that wait for all ranks:
 * one that does not come would hold up the others for ever, and two groups that end in another
 * order on another rank would lock each other up.) */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* Of each rank, the same on all machines: enough in small groups, not too much of all together in
 * large ones. What goes between machines needs slots of its own. */
static size_t part_bytes(const cz__endpoint *of)
{
    const size_t LARGEST = (size_t)(of->machines > 1 ? 16 : 4) << 20, TOGETHER = (size_t)128 << 20;
    const size_t PAGE = 4096, share = TOGETHER / (size_t)of->crowd / PAGE * PAGE;
    return share < LARGEST ? share : LARGEST;
}

static size_t all_bytes(const cz__endpoint *of)
{
    return part_bytes(of) * (size_t)of->here;
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
    const char *set = secure_getenv("CZERO_MPI_WINDOW");
    if (set && strcmp(set, "0") == 0)
        say_that_there_is_none("CZERO_MPI_WINDOW is 0");
    else if (of->size > 1 && of->crowd == 1)
        say_that_there_is_none("every rank is on a machine of its own");
    return of->crowd > 1 && !(set && strcmp(set, "0") == 0);
}

/* `file` -1: a rank that is alone on its machine, in a group that has others. */
static bool map(cz__endpoint *of, int file)
{
    const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    char *base = mmap(NULL, all_bytes(of), PROT_READ | PROT_WRITE, flags, file, 0);
    if (base == MAP_FAILED)
        return false;
    of->share_bytes = all_bytes(of);
    of->share_part = part_bytes(of);
    atomic_store(&of->share, base);
    return true;
}

/* Beyond the limit of files a signal would end the process. */
static bool may_have(size_t bytes)
{
    struct rlimit limit;
    const bool may = getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur;
    errno = may ? errno : EFBIG;
    return may;
}

static void name_file(char *name, size_t bytes, uint64_t token)
{
    snprintf(name, bytes, "czero-%016" PRIx64, token);
}

static void say_failed(const char *what)
{
    char why[200];
    snprintf(why, sizeof why, "%s: %s", what, strerror(errno));
    say_that_there_is_none(why);
}

/* ---- where ranks are ---- */

bool cz__share_machine_name(char *name, size_t bytes)
{
    const char *set = secure_getenv("CZERO_MPI_NODE");
    memset(name, 0, bytes);
    if (!set || !*set)
        return gethostname(name, bytes - 1) == 0;
    snprintf(name, bytes, "%s", set);
    return true;
}

static uint64_t name_of(const cz__endpoint *of, int rank)
{
    return of->wire->names[of->peers[rank].address];
}

/* The lowest rank on the same machine: that of the one before, or one that is a lowest rank
 * itself. */
static int lowest_with(const cz__endpoint *of, int rank)
{
    if (rank > 0 && name_of(of, rank - 1) == name_of(of, rank))
        return of->peers[rank - 1].machine;
    for (int r = 0; r < rank; r++)
        if (of->peers[r].machine == r && name_of(of, r) == name_of(of, rank))
            return r;
    return rank;
}

void cz__share_locate(cz__endpoint *of)
{
    if (of->located)
        return;
    for (int r = 0; r < of->size; r++) {
        cz__peer *peer = &of->peers[r];
        peer->machine = lowest_with(of, r);
        peer->place = of->peers[peer->machine].crowd++;
        of->machines += peer->machine == r;
        if (of->peers[peer->machine].crowd > of->crowd)
            of->crowd = of->peers[peer->machine].crowd;
    }
    of->here = of->peers[of->peers[of->rank].machine].crowd;
    of->located = true;
}

int cz__share_machine(void *endpoint, int rank)
{
    return ((const cz__endpoint *)endpoint)->peers[rank].machine;
}

/* ---- made ---- */

/* A file, or memory of that name, with no number of standard input, output or error: what anybody
 * prints would land in it. Where the program has closed these, they are held by descriptors that
 * nobody can write to. */
static int open_above(const char *path, const char *name)
{
    int held[3], count = 0;
    for (int i = 0; i < 3; i++) {
        const int low = open("/", O_PATH | O_CLOEXEC);
        if (low > 2)
            close(low);
        if (low < 0 || low > 2)
            break;
        held[count++] = low;
    }
    const int file = path ? open(path, O_RDWR | O_CLOEXEC) : memfd_create(name, MFD_CLOEXEC);
    const int error = errno;
    while (count > 0)
        close(held[--count]);
    errno = error;
    return file;
}

static void create_file(cz__endpoint *of)
{
    char name[64];
    uint64_t token;
    if (getrandom(&token, sizeof token, GRND_NONBLOCK) != sizeof token) {
        say_failed("getrandom");
        return;
    }
    name_file(name, sizeof name, token);
    const int file = open_above(NULL, name);
    if (file < 0 || !may_have(all_bytes(of)) || ftruncate(file, (off_t)all_bytes(of)) != 0 ||
        !map(of, file)) {
        say_failed("memfd_create");
        if (file >= 0)
            close(file);
        return;
    }
    of->share_file = file;
    of->share_opening = of->here - 1;
    of->share_token = token;
    for (int r = of->rank + 1; r < of->size; r++)
        of->peers[r].share_due = of->peers[r].machine == of->rank;
}

void cz__share_create(cz__endpoint *of)
{
    cz__share_locate(of);
    if (of->peers[of->rank].machine != of->rank || !is_wanted(of))
        return;
    if (of->here > 1)
        create_file(of);
    else
        (void)map(of, -1);
}

bool cz__share_describe(const cz__endpoint *of, uint64_t place[3], char *host, size_t bytes)
{
    place[0] = (uint64_t)getpid();
    place[1] = (uint64_t)of->share_file;
    place[2] = of->share_token;
    return cz__share_machine_name(host, bytes);
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
    return strcmp(found, wanted) == 0 ? open_above(path, NULL) : -1;
}

void cz__share_open(cz__endpoint *of, const uint64_t place[3], const char *host)
{
    char here[CZ_MPI_SENTENCE_BYTES] = "";
    if (atomic_load(&of->share) || !is_wanted(of))
        return;
    if (!cz__share_machine_name(here, sizeof here) || strcmp(here, host) != 0)
        return; /* two names with one number */
    const int file = open_place(place);
    struct stat its;
    if (file < 0 || fstat(file, &its) != 0 || its.st_size != (off_t)all_bytes(of) || !map(of, file))
        say_failed("the memory of the machine's first rank");
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
    if (of->peers[rank].machine != of->peers[of->rank].machine)
        base = NULL;
    *bytes = base ? of->share_part : 0;
    return base ? base + (size_t)of->peers[rank].place * of->share_part : NULL;
}
