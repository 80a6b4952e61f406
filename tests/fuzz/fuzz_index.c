/* SPDX-License-Identifier: MIT */
/* The index of a checkpoint from JSON: the input is sealed first, so that what is behind the checksum is reached. Of what
 * is accepted every element is in one rank's part exactly once, and it comes out the same when it is written and
 * read again. */
#include "fuzz.h"

#include <jansson.h>
#include <string.h>

#include "checkpoint/index.h"
#include "checkpoint/seal.h"

enum { MOST_RANKS = 64, MOST_ELEMENTS = 1 << 20 }; /* of what is walked through */

/* Any number that depends on all of the pieces, and elements of values. */
typedef struct walk {
    const cz__index *index;
    uint64_t mixed;
    int64_t elements;
} walk;

static cz_status visit(const cz__piece *piece, void *context)
{
    walk *w = context;
    const cz__stored *stored = &w->index->stored[piece->stored];
    CZ_FUZZ_CHECK(piece->begin >= 0 && piece->begin < piece->end && piece->end <= stored->count);
    CZ_FUZZ_CHECK(piece->dtype == stored->dtype && strstr(piece->name, stored->name));
    for (const char *c = piece->name; *c; c++)
        w->mixed = w->mixed * 31 + (unsigned char)*c;
    if (!piece->slot)
        w->elements += piece->end - piece->begin;
    return CZ_OK;
}

static int64_t elements_of(const cz__index *index)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < index->param_count + index->buffer_count && sum <= MOST_ELEMENTS; i++)
        sum += index->stored[i].count > MOST_ELEMENTS ? MOST_ELEMENTS + 1 : index->stored[i].count;
    return sum;
}

static uint64_t go_through(const cz__index *index)
{
    walk w = {.index = index};
    for (int rank = 0; rank < index->world_size; rank++)
        CZ_CHECK(cz__index_visit(index, rank, visit, &w));
    CZ_FUZZ_CHECK(w.elements == elements_of(index));
    return w.mixed;
}

static void write_again(const cz__index *index, uint64_t mixed)
{
    char *text;
    size_t bytes;
    cz__index again;
    json_t *common = json_object();
    CZ_CHECK(cz__index_print(index, common, &text, &bytes));
    CZ_CHECK(cz__index_parse(&again, "AGAIN", text, bytes));
    CZ_FUZZ_CHECK(go_through(&again) == mixed && again.step == index->step);
    cz__index_clear(&again);
    free(text);
    json_decref(common);
}

static void take(const char *text, size_t bytes)
{
    cz__index index;
    const cz_status status = cz__index_parse(&index, "FILE", text, bytes);
    if (status != CZ_OK)
        CZ_FUZZ_CHECK(
            (status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED || status == CZ_ERR_MEMORY) &&
            strncmp(cz_last_error(), "FILE: ", 6) == 0);
    else if (index.world_size <= MOST_RANKS && elements_of(&index) <= MOST_ELEMENTS)
        write_again(&index, go_through(&index));
    cz__index_clear(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char *text = NULL;
    size_t length;
    json_t *json = json_loadb((const char *)bytes, count, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json))
        json_object_del(json, "checksum");
    if (json_is_object(json) && json_object_size(json) > 0 &&
        cz__seal(json, &text, &length) == CZ_OK)
        take(text, length);
    free(text);
    json_decref(json);
    return 0;
}

#define HEAD                                                                                       \
    "{\"format\":\"czero checkpoint\",\"version\":1,\"library\":\"0.1.0\",\"id\":"                 \
    "\"355e16b1ba3f70d1f49ccb2fd7a27a0e\",\"generation\":1,\"step\":12,\"world_size\":2,"

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const char *const seeds[] = {
        HEAD
        "\"parameters\":[],\"buffers\":[],\"map\":{\"kind\":\"owners\",\"owners\":[],\"order\":[]},"
        "\"optimizer\":null,\"common\":{\"dictionary\":{},\"file\":null}}",
        HEAD
        "\"parameters\":[{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[7,9]},{\"name\":\"b\","
        "\"dtype\":\"F32\","
        "\"shape\":[3]}],\"buffers\":[{\"name\":\"n\",\"dtype\":\"I64\",\"shape\":[],\"owner\":1}],"
        "\"map\":{\"kind\":"
        "\"even\",\"element_size\":4,\"ranges\":[0,2,2],\"order\":[1,0]},\"optimizer\":{\"rule\":"
        "\"adamw\",\"state\":"
        "{\"w\":{\"step\":1,\"exp_avg\":\"f32\",\"exp_avg_sq\":\"f32\"}},\"param_groups\":{\"0\":{"
        "\"lr\":0.001,"
        "\"params\":[\"w\",\"b\"]}}},\"common\":{\"dictionary\":{\"position\":12},\"file\":null}}",
        HEAD "\"parameters\":[{\"name\":\"w\",\"dtype\":\"F64\",\"shape\":[5]},{\"name\":\"e\","
             "\"dtype\":\"F64\",\"shape\":[0]},"
             "{\"name\":\"f\",\"dtype\":\"BF16\",\"shape\":[2,2],\"owner\":0}],\"buffers\":[],"
             "\"map\":{\"kind\":\"owners\","
             "\"owners\":[1,0,-1],\"order\":[1,0]},\"optimizer\":{\"rule\":\"sgd\",\"state\":{"
             "\"w\":{\"step\":2,"
             "\"momentum_buffer\":\"f64\"}},\"param_groups\":{}},\"common\":{\"dictionary\":{},"
             "\"file\":null}}",
    };
    if (number < 0 || number >= (int)(sizeof seeds / sizeof *seeds) || strlen(seeds[number]) > room)
        return 0;
    memcpy(bytes, seeds[number], strlen(seeds[number]));
    return strlen(seeds[number]);
}
