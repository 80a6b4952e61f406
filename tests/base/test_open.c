/* SPDX-License-Identifier: MIT */
/* Numbers of what is opened, in programs that have closed standard input, output or error. */
#include "base/open.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cz_test.h"

enum { OPENED = 8 };

static char folder[512], path[600];

/* One of each kind. */
static int open_all(int files[OPENED])
{
    char pattern[640];
    int ends[2] = {-1, -1};
    snprintf(pattern, sizeof pattern, "%s/beside.XXXXXX", folder);
    files[0] = cz__open(path, O_WRONLY | O_CREAT);
    files[1] = cz__open_at(AT_FDCWD, path, O_RDONLY);
    files[2] = cz__open_memory("czero-test");
    files[3] = cz__open_temporary(pattern);
    (void)unlink(pattern);
    if (cz__open_pipe(ends, 0) != 0)
        return -1;
    files[4] = ends[0];
    files[5] = ends[1];
    static FILE *stream; /* they stay open, and are no leak */
    static DIR *list;
    stream = cz__open_stream(path, "w");
    list = cz__open_folder(folder);
    if (!stream || !list)
        return -1;
    files[6] = fileno(stream);
    files[7] = dirfd(list);
    return 0;
}

/* The first that is wrong, from 1 on; 0: none. `closed`: bits of the numbers that are closed
 * before. */
static int find_wrong(int closed)
{
    int files[OPENED];
    for (int number = 0; number < 3; number++)
        if (closed >> number & 1)
            close(number);
    if (open_all(files) != 0)
        return OPENED + 1;
    for (int i = 0; i < OPENED; i++)
        if (files[i] <= STDERR_FILENO || fcntl(files[i], F_GETFD) != FD_CLOEXEC)
            return i + 1;
    for (int number = 0; number < 3; number++) /* what was free is free again */
        if (closed >> number & 1 && fcntl(number, F_GETFD) != -1)
            return OPENED + 2;
    return 0;
}

TEST(no_file_has_the_number_of_standard_error)
{
    for (int closed = 0; closed < 8; closed++) {
        int result = -1;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(find_wrong(closed));
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        if (WEXITSTATUS(result) != 0)
            fail_msg("closed %d: descriptor of kind %d", closed, WEXITSTATUS(result));
    }
}

TEST(links_are_not_followed_where_that_is_asked)
{
    char link[600];
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(cz__open(link, O_RDONLY | O_NOFOLLOW), -1);
    assert_int_equal(errno, ELOOP);
    const int file = cz__open(link, O_RDONLY | O_CREAT);
    assert_true(file > STDERR_FILENO);
    close(file);
    assert_int_equal(unlink(link), 0);
}

TEST(a_folder_is_listed_from_its_beginning_each_time)
{
    const int file = cz__open(folder, O_RDONLY | O_DIRECTORY);
    assert_true(file > STDERR_FILENO);
    for (int turn = 0; turn < 2; turn++) {
        struct dirent *entry;
        int count = 0;
        DIR *list = cz__list_folder(file);
        assert_non_null(list);
        while ((entry = readdir(list)))
            count += strcmp(entry->d_name, "file") == 0;
        closedir(list);
        assert_int_equal(count, 1);
    }
    close(file);
}

static int set_up(void **state)
{
    snprintf(folder, sizeof folder, "%s/open-XXXXXX", CZ_TEST_BINARY_DIR);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    const int file = cz__open(path, O_WRONLY | O_CREAT | O_EXCL);
    return file < 0 ? -1 : close(file);
}

static int tear_down(void **state)
{
    return unlink(path) + rmdir(folder);
}

int main(void)
{
    return cz_test_run(set_up, tear_down);
}
