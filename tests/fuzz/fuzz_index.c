/* SPDX-License-Identifier: MIT */
/* Indices of checkpoints: an input is one without its checksum, which is put to its end. What is
 * accepted gives each element of each tensor to one rank, and comes out the same when it is written
 * and read again. */
#include "fuzz.h"

#include "base/memory.h"
#include "checkpoint/index.h"
#include "io/stream.h"
#include "shard/shard.h"

#include <string.h>

enum { MOST_RANKS = 64 }; /* that are gone through */

/* ---- the seal ---- */

/* For free(). The bytes up to the last } are sealed, whatever they are. */
static char *seal(const uint8_t *bytes, size_t count, size_t *sealed)
{
    char digits[33];
    const size_t length = count > 0 && bytes[count - 1] == '}' ? count - 1 : count;
    char *const text = malloc(length + 64);
    CZ_FUZZ_CHECK(text);
    if (length > 0)
        memcpy(text, bytes, length);
    cz__checksum_print(cz__checksum_of(text, length), digits);
    *sealed = length + (size_t)sprintf(text + length, ",\"checksum\":\"%s\"}\n", digits);
    return text;
}

/* ---- what an index promises ---- */

typedef struct counting {
    const cz__index *index;
    int64_t *counts; /* elements of values that were seen */
} counting;

static cz_status count_piece(const cz__piece *piece, void *context)
{
    const counting *c = context;
    const cz__stored *stored = &c->index->stored[piece->stored];
    CZ_FUZZ_CHECK(piece->begin >= 0 && piece->begin < piece->end && piece->end <= stored->count);
    CZ_FUZZ_CHECK(piece->slot || piece->dtype == stored->dtype); /* a slot has a type of its own */
    if (!piece->slot)
        c->counts[piece->stored] += piece->end - piece->begin;
    return CZ_OK;
}

static void check_pieces(const cz__index *index)
{
    const int64_t tensors = index->param_count + index->buffer_count;
    counting c = {index, calloc((size_t)tensors + 1, sizeof *c.counts)};
    CZ_FUZZ_CHECK(c.counts);
    for (int rank = 0; rank < index->world_size && index->world_size <= MOST_RANKS; rank++)
        CZ_CHECK(cz__index_visit(index, rank, count_piece, &c));
    for (int64_t i = 0; i < tensors && index->world_size <= MOST_RANKS; i++)
        CZ_FUZZ_CHECK(c.counts[i] == index->stored[i].count);
    for (int64_t i = 0; i < tensors; i++)
        CZ_FUZZ_CHECK(cz__index_find(index, index->stored[i].name) == i);
    free(c.counts);
}

static void check_same(const cz__index *a, const cz__index *b)
{
    CZ_FUZZ_CHECK(strcmp(a->id, b->id) == 0 && a->step == b->step);
    CZ_FUZZ_CHECK(a->generation == b->generation && a->world_size == b->world_size);
    CZ_FUZZ_CHECK(a->param_count == b->param_count && a->buffer_count == b->buffer_count);
    for (int64_t i = 0; i < a->param_count + a->buffer_count; i++) {
        CZ_FUZZ_CHECK(strcmp(a->stored[i].name, b->stored[i].name) == 0);
        CZ_FUZZ_CHECK(a->stored[i].owner == b->stored[i].owner);
        CZ_FUZZ_CHECK(memcmp(a->stored[i].shape, b->stored[i].shape, sizeof a->stored->shape) == 0);
        if (i < a->param_count)
            CZ_FUZZ_CHECK(cz__shard_map_home(a->map, i) == cz__shard_map_home(b->map, i));
    }
    CZ_FUZZ_CHECK((a->optimizer != NULL) == (b->optimizer != NULL));
    CZ_FUZZ_CHECK(!a->optimizer || cz_state_dict_equal(a->optimizer, b->optimizer));
}

static void write_again(const cz__index *index)
{
    cz__index again;
    cz__text text = {0};
    json_t *const common = json_null();
    CZ_CHECK(cz__index_print(index, common, &text));
    CZ_CHECK(cz__index_parse(&again, "AGAIN", cz__text_get(&text), text.count));
    check_same(index, &again);
    cz__text_clear(&text);
    cz__index_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz__index index;
    size_t sealed;
    char *const text = seal(bytes, count, &sealed);
    const cz_status status = cz__index_parse(&index, "FILE", text, sealed);
    free(text);
    if (status == CZ_OK) {
        check_pieces(&index);
        write_again(&index);
    } else {
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED);
        CZ_FUZZ_CHECK(strncmp(cz_last_error(), "FILE", 4) == 0);
    }
    cz__index_clear(&index);
    return 0;
}

#define HEAD(world)                                                                                \
    "{\"format\":\"czero checkpoint\",\"version\":1,\"id\":\"0123456789abcdef0123456789abcdef\","  \
    "\"generation\":2,\"step\":6,\"world_size\":" world ","
#define PARAMS                                                                                     \
    "\"parameters\":[{\"name\":\"a\",\"dtype\":\"F32\",\"shape\":[20]},"                           \
    "{\"name\":\"b\",\"dtype\":\"F32\",\"shape\":[3,4]},"                                          \
    "{\"name\":\"c\",\"dtype\":\"F32\",\"shape\":[0]}],"                                           \
    "\"buffers\":[{\"name\":\"d\",\"dtype\":\"BF16\",\"shape\":[],\"owner\":1}],"
#define STATE                                                                                      \
    "\"optimizer\":{\"rule\":\"adam\",\"state\":{\"a\":{\"step\":1,\"exp_avg\":\"f32\"}},"         \
    "\"param_groups\":{\"0\":{\"lr\":0.5,\"params\":[\"a\",\"b\",\"c\"]}}},"
#define COMMON "\"common\":{\"dictionary\":{},\"file\":null}}"

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const char *const seeds[] = {
        HEAD("2") PARAMS "\"map\":{\"kind\":\"even\",\"element_size\":4,\"ranges\":[0,2],"
                         "\"order\":[2,1,0]}," STATE COMMON,
        HEAD("3") PARAMS
        "\"map\":{\"kind\":\"owners\",\"owners\":[2,0,1],\"order\":[0,2,1]}," STATE COMMON,
        HEAD("2") "\"parameters\":[{\"name\":\"a\",\"dtype\":\"F64\",\"shape\":[2],\"owner\":1}],"
                  "\"buffers\":[],\"map\":{\"kind\":\"owners\",\"owners\":[-1],\"order\":[]},"
                  "\"optimizer\":null," COMMON,
        HEAD("1") "\"parameters\":[],\"buffers\":[],\"map\":{\"kind\":\"even\","
                  "\"element_size\":4,\"ranges\":[],\"order\":[]},\"optimizer\":null," COMMON,
    };
    if (number < 0 || number >= (int)(sizeof seeds / sizeof *seeds) || strlen(seeds[number]) > room)
        return 0;
    memcpy(bytes, seeds[number], strlen(seeds[number]));
    return strlen(seeds[number]);
}
