/* SPDX-License-Identifier: MIT */
/* Files of torch that are exported and imported: the same bytes whoever writes them, the same bits
 * whoever reads them, and failures that all ranks see. tests/checkpoint/torch/ has torch itself
 * read and write them. */
#include "checkpoint/torch_files.h"

#include <errno.h>

#include "io/folder.h"
#include "io/stream.h"

static const int worlds[] = {1, 2, 3, 5, 7};
enum { WORLDS = 5 };

/* ---- the same bytes ---- */

static cz_status write_some(cz_group *group, void *context)
{
    const job *j = context;
    const manner how = {.unsharded = j->max_file_bytes == 99,
                        .partition = (cz_partition)j->allowed};
    return write_as(group, j, &how);
}

TEST(the_same_bytes_whoever_writes)
{
    job wanted, got;
    begin(&wanted, "wanted.pt");
    got = wanted;
    wanted.max_file_bytes = 99;
    snprintf(got.path, sizeof got.path, "%s/got.pth", got.folder);
    assert_ranks_ok(1, write_some, &wanted);
    for (int w = 0; w < WORLDS; w++)
        for (int p = 0; p < 5; p++) {
            got.allowed = (unsigned)p;
            assert_ranks_ok(worlds[w], write_some, &got);
            if (!same_file(wanted.path, got.path))
                fail_msg("world %d, partition %d: other bytes", worlds[w], p);
        }
    assert_int_equal(count_files(got.folder), 2); /* and nothing beside */
    remove_folder(got.folder);
}

/* ---- there and back ---- */

TEST(there_and_back)
{
    job j;
    begin(&j, "all.pt");
    for (int w = 0; w < WORLDS; w++)
        assert_ranks_ok(worlds[w], there_and_back, &j);
    remove_folder(j.folder);
}

/* ---- entries ---- */

TEST(every_entry_is_aligned_and_whole)
{
    job j;
    cz__container *c;
    begin(&j, "all.bin");
    assert_ranks_ok(2, write_some, &j);
    CZ_CHECK(cz__container_open(&c, j.path));
    assert_true(cz__container_count(c) > 20);
    for (int64_t i = 0; i < cz__container_count(c); i++) {
        const cz__container_entry *e = cz__container_at(c, i);
        assert_int_equal(e->offset % 64, 0);
        assert_null(e->unusual);
        CZ_CHECK(cz__container_verify(c, e));
        assert_ptr_equal(cz__container_find(c, e->name), e);
    }
    assert_null(cz__container_find(c, "archive/data/x"));
    cz__container_close(&c);
    remove_folder(j.folder);
}

/* Every byte of elements that changes is found, and nothing changed here. */
TEST(elements_that_changed)
{
    job j;
    cz__container *c;
    size_t count;
    begin(&j, "all.pt");
    assert_ranks_ok(2, write_some, &j);
    char *bytes = read_whole(j.path, &count);
    CZ_CHECK(cz__container_open(&c, j.path));
    for (int64_t i = 0; i < cz__container_count(c); i++) {
        const cz__container_entry *e = cz__container_at(c, i);
        if (e->bytes == 0 || i % 3 != 0)
            continue;
        bytes[e->offset + e->bytes - 1] ^= 0x40;
        write_whole(j.path, bytes, count);
        expect_import(&j, 3, CZ_ERR_FORMAT, e->name, "CRC");
        bytes[e->offset + e->bytes - 1] ^= 0x40;
    }
    cz__container_close(&c);
    free(bytes);
    remove_folder(j.folder);
}

/* ---- failures ---- */

static _Atomic int writes_left;

static ssize_t fail_to_write(int file, const void *data, size_t count, off_t offset)
{
    if (writes_left-- > 0)
        return pwrite(file, data, count, offset);
    errno = ENOSPC;
    return -1;
}

static cz_status fail_then_write(cz_group *group, void *context)
{
    const job *j = context;
    trainee s;
    cz_status status = trainee_open(&s, group, &evenly, 0);
    THEN(trainee_train(&s));
    if (status == CZ_OK) {
        const cz_status failed = trainee_export(&s, j->path, 0);
        status = failed == CZ_OK
                     ? CZ_OK
                     : small_expect(failed, ONE(CZ_ERR_IO), CZ__UNFINISHED, "No space left");
    }
    trainee_close(&s);
    return status;
}

TEST(a_full_medium)
{
    job j;
    int failures = 0;
    begin(&j, "all.pt");
    assert_ranks_ok(3, write_some, &j);
    char *before = read_whole(j.path, &(size_t){0});
    for (int n = 0; n < 200; n += n < 12 ? 1 : 9) {
        writes_left = n;
        cz__system_used.write = fail_to_write;
        assert_ranks_ok(3, fail_then_write, &j);
        failures += writes_left < 0;
        cz__system_used = cz__system_own;
        assert_int_equal(count_files(j.folder), 1);
    }
    size_t count;
    char *after = read_whole(j.path, &count);
    assert_memory_equal(before, after, count);
    assert_true(failures > 12);
    free(before);
    free(after);
    remove_folder(j.folder);
}

static cz_status refuse_folder(cz_group *group, void *context)
{
    const job *j = context;
    trainee s;
    cz_export_options options = CZ_EXPORT_OPTIONS_INIT;
    options.max_file_bytes = 1000;
    cz_status status = trainee_open(&s, group, &evenly, 0);
    THEN(small_expect(cz_checkpoint_export(s.checkpoint, j->path, &options), ONE(CZ_ERR_ARGUMENT),
                      "max_file_bytes", "one file for torch"));
    if (status == CZ_OK) /* rank 1 would write another form */
        status = small_expect(
            cz_checkpoint_export(
                s.checkpoint, cz_group_rank(group) == 1 ? "elsewhere.safetensors" : j->path, NULL),
            ONE(CZ_ERR_MISMATCH), "a file for torch", NULL);
    trainee_close(&s);
    return status;
}

TEST(one_file_only)
{
    job j;
    begin(&j, "all.pt");
    assert_ranks_ok(2, refuse_folder, &j);
    assert_int_equal(count_files(j.folder), 0);
    remove_folder(j.folder);
}

/* ---- what is in its way ---- */

/* Files of the user's that have names as files under way often have stay as they are; what an
 * export left goes, also where it is a link, and not what that points to. */
TEST(files_beside)
{
    static const char *const ends[] = {".tmp", ".elements.tmp", ".part"};
    char path[700];
    job j;
    size_t count;
    begin(&j, "all.pt");
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", j.path, ends[i]);
        write_whole(path, "PK\3\4 mine", 9);
    }
    snprintf(path, sizeof path, "%s" CZ__UNFINISHED, j.path);
    write_whole(path, "PK\3\4 left", 9);
    char link[700];
    snprintf(link, sizeof link, "%s" CZ__ELEMENTS CZ__UNFINISHED, j.path);
    snprintf(path, sizeof path, "%s%s", j.path, ends[2]);
    assert_int_equal(symlink(path, link), 0);
    assert_ranks_ok(2, write_some, &j);
    assert_int_equal(count_files(j.folder), 4); /* all.pt and the user's */
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", j.path, ends[i]);
        char *bytes = read_whole(path, &count);
        assert_int_equal(count, 9);
        assert_memory_equal(bytes, "PK\3\4 mine", 9);
        free(bytes);
    }
    remove_folder(j.folder);
}
