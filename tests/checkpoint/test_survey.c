/* SPDX-License-Identifier: MIT */
/* Folders with many generations, and with names of large numbers: time and memory are for what is
 * there. */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "checkpoint/generation.h"
#include "checkpoint/quick.h"

enum { MANY = 20000 };

static void put_generations(int count, const char *file)
{
    char path[2 * FOLDER_BYTES];
    for (int i = 1; i <= count; i++) {
        snprintf(path, sizeof path, "%s/%08d-step-%d", folder, i, i);
        assert_int_equal(mkdir(path, 0777), 0);
        if (!file)
            continue;
        snprintf(path, sizeof path, "%s/%08d-step-%d/%s", folder, i, i, file);
        const int made = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        assert_true(made >= 0);
        close(made);
    }
}

/* The newest first: *context is the next one's number. */
static cz_status count_down(const char *path, const cz__generation *g, void *context)
{
    int *next = context;
    if (g->number == *next) {
        --*next;
        return CZ_OK;
    }
    return cz_fail(CZ_ERR_STATE, "%s comes where %d is wanted", path, *next);
}

EACH_TEST(set_up, tear_down)

TEST(many_generations_are_listed_quickly)
{
    int next = MANY;
    put_generations(MANY, NULL);
    const double begin = cz__seconds();
    CZ_CHECK(cz__generations_visit(folder, count_down, &next));
    assert_int_equal(next, 0);
    assert_true(cz__seconds() - begin < 10); /* a page at a time it would be a minute */
}

TEST(notes_of_many_generations_are_few)
{
    cz__found found;
    put_generations(100, NULL);
    CZ_CHECK(cz__generation_find(&found, folder, -1));
    assert_int_equal(found.seen, 100);
    assert_int_equal(found.path.count, 0);
    assert_non_null(strstr(cz__text_get(&found.passed), "and 84 more were passed over"));
    cz__found_clear(&found);
}

TEST(large_numbers_in_names_take_no_memory)
{
    int next = 200;
    put_generations(200, "rank-00001-of-16777216.json");
    cz_test_allocation_reset_peak();
    CZ_CHECK(cz__generations_visit(folder, count_down, &next));
    assert_int_equal(next, 0);
    assert_true(cz_test_allocation_peak() < 1 << 20);
}

static cz_status survey(cz_group *group, void *context)
{
    cz__survey *s;
    const cz__generation *list;
    int count, seen = 0;
    CZ_TRY(cz__survey_begin(&s, group, folder));
    cz_status status = CZ_OK;
    do {
        status = cz__survey_next(s, &list, &count);
        for (int i = 0; status == CZ_OK && i < count; i++, seen++)
            if (list[i].world_size != 1 << 24 || list[i].missing != 0 || list[i].parts > 1)
                status = cz_fail(CZ_ERR_STATE, "generation %d: %d of %d, %d is missing",
                                 (int)list[i].number, list[i].parts, list[i].world_size,
                                 list[i].missing);
    } while (status == CZ_OK && count == CZ__GENERATIONS);
    cz__survey_end(&s);
    return status == CZ_OK && seen != 130 ? cz_fail(CZ_ERR_STATE, "%d of 130", seen) : status;
}

TEST(ranks_find_the_first_part_that_is_missing)
{
    static const int worlds[] = {1, 2, 3, 5, 7};
    put_generations(130, "rank-00001-of-16777216.json");
    for (int w = 0; w < 5; w++)
        assert_ranks_ok(worlds[w], survey, NULL);
}
