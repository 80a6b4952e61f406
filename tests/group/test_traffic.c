/* SPDX-License-Identifier: MIT */
/* What a rank has sent: to the byte what the algorithms of the group send, headers apart,
 * sub-groups included. */
#include "group/group_test.h"
#include "group/internal.h"
#include "group/native_backend.h"

static const int worlds[] = {1, 2, 3, 5, 7};
enum { WORLDS = sizeof worlds / sizeof *worlds, EACH = 48, ROUNDS = 3 };

/* Data bytes since the last call. */
static cz_status data_sent(cz_group *group, cz_group_info *last, uint64_t *data)
{
    const cz_group_info before = *last;
    CZ_TRY(cz_group_get_info(group, last));
    *data = (last->sent_bytes - last->header_bytes) - (before.sent_bytes - before.header_bytes);
    CHECK(last->sent_bytes >= before.sent_bytes && last->header_bytes >= before.header_bytes &&
              last->messages >= before.messages,
          "a counter went back");
    return CZ_OK;
}

static cz_status expect_data(cz_group *group, cz_group_info *last, const char *what,
                             uint64_t wanted)
{
    uint64_t data;
    CZ_TRY(data_sent(group, last, &data));
    CHECK(data == wanted, "%s: rank %d of %d sent %llu bytes, wanted %llu", what,
          cz_group_rank(group), cz_group_size(group), (unsigned long long)data,
          (unsigned long long)wanted);
    return CZ_OK;
}

static cz_status each_operation(cz_group *group, cz_group *counted, cz_group_info *last)
{
    const int size = cz_group_size(group), rank = cz_group_rank(group);
    const uint64_t others = (uint64_t)size - 1, part = EACH * sizeof(float);
    float input[EACH * 8] = {0}, output[EACH * 8];
    CZ_TRY(cz_all_gather(group, input, output, EACH, CZ_F32, NULL));
    CZ_TRY(expect_data(counted, last, "all_gather", others * part));
    CZ_TRY(cz_reduce_scatter(group, input, output, EACH, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(expect_data(counted, last, "reduce_scatter", others * part));
    CZ_TRY(cz_all_reduce(group, input, EACH * size, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(expect_data(counted, last, "all_reduce", 2 * others * part));
    CZ_TRY(cz_reduce(group, input, output, EACH, CZ_F32, CZ_SUM, size - 1, NULL));
    CZ_TRY(expect_data(counted, last, "reduce", rank == size - 1 ? 0 : part));
    CZ_TRY(cz_all_to_all(group, input, output, EACH, CZ_F32, NULL));
    CZ_TRY(expect_data(counted, last, "all_to_all", others * part));
    CZ_TRY(cz_all_to_all(group, input, output, 0, CZ_F32, NULL));
    CZ_TRY(cz_barrier(group, NULL));
    return expect_data(counted, last, "barrier", 0);
}

/* Of every operation each rank but the root sends its header up the tree, and the verdict to each
 * child. */
static cz_status count_headers(cz_group *group, cz_group_info *last)
{
    const cz_group_info before = *last;
    uint64_t mine, all, data;
    CZ_TRY(cz_barrier(group, NULL));
    CZ_TRY(data_sent(group, last, &data));
    mine = last->header_bytes - before.header_bytes;
    CHECK(mine == (last->messages - before.messages) * sizeof(cz__header),
          "headers are not of their size");
    int64_t sum = (int64_t)mine;
    CZ_TRY(cz_all_reduce(group, &sum, 1, CZ_I64, CZ_SUM, NULL));
    all = 2 * ((uint64_t)cz_group_size(group) - 1) * sizeof(cz__header);
    CHECK(sum == (int64_t)all, "all ranks: %d bytes of headers", (int)sum);
    return data_sent(group, last, &data);
}

static cz_status each_rank(cz_group *world, void *arg)
{
    cz_group_info last = CZ_GROUP_INFO_INIT;
    cz_group *half = NULL, *quarter = NULL;
    uint64_t data;
    CZ_TRY(cz_group_get_info(world, &last));
    CHECK(last.sent_bytes == 0 && last.messages == 0 && last.native == 0, "not 0 at first");
    for (int round = 0; round < ROUNDS; round++)
        CZ_TRY(each_operation(world, world, &last));
    CZ_TRY(count_headers(world, &last));
    CZ_TRY(cz_group_split(world, cz_group_rank(world) % 2, 0, &half));
    cz_status status = cz_group_split(half, 0, 0, &quarter);
    THEN(data_sent(world, &last, &data));
    if (status == CZ_OK) /* what sub-groups send counts on any of them */
        status = each_operation(half, world, &last);
    THEN(each_operation(quarter, half, &last));
    cz_group_destroy(&half);
    THEN(each_operation(quarter, world, &last));
    THEN(each_operation(world, quarter, &last));
    cz_group_destroy(&quarter);
    THEN(last.native == 0 ? cz_barrier(world, NULL)
                          : cz_fail(CZ_ERR_STATE, "collectives of the backend's own"));
    return status;
}

TEST(to_the_byte)
{
    for (int w = 0; w < WORLDS; w++) {
        expect_ok(worlds[w], 0, each_rank, NULL);
        expect_ok(worlds[w], 64, each_rank, NULL); /* cut into segments: as many bytes */
    }
}

TEST(arguments)
{
    cz_group *group;
    cz_group_info traffic = CZ_GROUP_INFO_INIT;
    assert_ok(cz_group_create_self(&group, NULL));
    assert_int_equal(cz_group_get_info(NULL, &traffic), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "group is NULL"));
    assert_int_equal(cz_group_get_info(group, NULL), CZ_ERR_ARGUMENT);
    assert_non_null(strstr(cz_last_error(), "info is NULL"));
    cz_group_destroy(&group);
}

/* A backend's own collectives are counted, and nothing is said of their bytes. The first one has a
 * header. */
static cz_status each_native(cz_group *group, void *arg)
{
    cz_group_info before = CZ_GROUP_INFO_INIT, traffic = before;
    float value = 1;
    CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(cz_group_get_info(group, &before));
    CHECK(before.native == 1 && before.sent_bytes == before.header_bytes, "data were sent");
    for (int round = 0; round < ROUNDS; round++)
        CZ_TRY(cz_all_reduce(group, &value, 1, CZ_F32, CZ_SUM, NULL));
    CZ_TRY(cz_group_get_info(group, &traffic));
    CHECK(traffic.native == 1 + ROUNDS && traffic.sent_bytes == before.sent_bytes &&
              traffic.messages == before.messages,
          "%d collectives, %d messages", (int)traffic.native, (int)traffic.messages);
    return CZ_OK;
}

TEST(native_collectives)
{
    for (int w = 0; w < WORLDS - 1; w++)
        native_expect(&native_backend, worlds[w], 0, each_native, NULL);
}
