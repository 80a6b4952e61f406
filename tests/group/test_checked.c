/* SPDX-License-Identifier: MIT */
/* Checked mode: what ranks disagree in beyond what every operation compares, found at the first
 * operation that differs; and unchecked groups do not mind. */
#include "group/collective.h"
#include "group_test.h"
#include "shard/shard.h"

static cz_status labels_differ(cz_group *group, void *arg)
{
    float value = 1;
    const int odd = *(const int *)arg, rank = cz_group_rank(group);
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_LABEL("same")));
    const cz_status status =
        cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, CZ_LABEL(rank == odd ? "w2" : "w1"));
    CHECK(status == CZ_ERR_MISMATCH, "rank %d: %s", rank, cz_status_name(status));
    CHECK(strstr(cz_last_error(), "'w1'") && strstr(cz_last_error(), "'w2'"), "%s",
          cz_last_error());
    CHECK(value == (float)cz_group_size(group), "data was moved");
    return cz_barrier(group, NULL); /* the group lives */
}

static cz_status other_parameters(cz_group *group, void *arg)
{
    const int rank = cz_group_rank(group), size = cz_group_size(group);
    const int64_t counts[] = {4, 4};
    const int owners[] = {0, size - 1};
    float a[4] = {1, 1, 1, 1}, b[4] = {1, 1, 1, 1};
    void *data[] = {a, b};
    const uint8_t first[] = {1, 0}, second[] = {0, 1}; /* equally many elements */
    cz_shard_map *map;
    CZ_TRY(cz__shard_map_create_owners(&map, size, 2, counts, owners, NULL));
    const cz__mapped memory = {
        .map = map, .data = data, .include = rank == 1 ? second : first, .dtype = CZ_F32};
    const cz_status status = cz__reduce_along_map(group, &memory, CZ_SUM, CZ_LABEL("gradients"));
    cz__shard_map_destroy(&map);
    CHECK(status == CZ_ERR_MISMATCH, "rank %d: %s", rank, cz_status_name(status));
    CHECK(strstr(cz_last_error(), "rank 1 has other parameters"), "%s", cz_last_error());
    return CZ_OK;
}

static cz_status labels_are_free(cz_group *group, void *arg)
{
    float value = 1;
    return cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM,
                         CZ_LABEL(cz_group_rank(group) ? "w2" : "w1"));
}

TEST(only_when_asked)
{
    assert_int_equal(setenv("CZERO_DEBUG", "collective,collectives2", 1), 0);
    assert_ranks_ok(3, labels_are_free, NULL);
    assert_int_equal(setenv("CZERO_DEBUG", "other,collectives", 1), 0);
}

TEST(labels)
{
    char why[256];
    for (int size = 2; size <= 5; size++)
        for (int odd = 0; odd < size; odd++)
            if (cz_test_run_ranks(size, labels_differ, &odd, why) != CZ_OK)
                fail_msg("%d ranks, rank %d differs: %s", size, odd, why);
}

TEST(parameters)
{
    assert_ranks_ok(2, other_parameters, NULL);
}

TEST(option_range)
{
    cz_group *group;
    cz_group_options options = CZ_GROUP_OPTIONS_INIT;
    options.checked = 2;
    assert_int_equal(cz_group_create_self(&group, &options), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "checked is 2"));
    options.checked = 0;
    options.reserved = 1;
    assert_int_equal(cz_group_create_self(&group, &options), CZ_ERR_UNSUPPORTED);
    assert_non_null(strstr(cz_last_error(), "reserved is 1"));
}
