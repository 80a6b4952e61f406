/* SPDX-License-Identifier: MIT */
/* Indices and marks that are sealed as they should be and say what cannot be: an error that names
 * the file, on all ranks, and nothing here has changed. */
#include <jansson.h>

#include "checkpoint/damaged_files.h"
#include "czero/archive.h"
#include "io/json.h"

enum { STEP = 6 };

static char folder[FOLDER_BYTES], generation[SMALL_PATH];
static small_values saved;

static cz_status fill(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 1, 5);
    THEN(small_step(&s));
    if (status == CZ_OK && cz_group_rank(group) == 0)
        saved = s.values;
    THEN(small_save(&s, STEP, false));
    small_close(&s);
    return status;
}

static int set_up(void **state)
{
    make_quick_folder(folder);
    cz_log_set_sink(small_quiet, NULL);
    snprintf(generation, sizeof generation, "%s/00000001-step-6", folder);
    assert_ranks_ok(2, fill, NULL);
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(folder);
    return 0;
}

/* ---- lies ---- */

/* One member gets another value: `path` has keys and numbers of entries, "parameters/0/shape".
 * `value` is JSON; NULL: the member goes. `make` makes what is too long to be written here. */
typedef struct lie {
    const char *path, *value;
    json_t *(*make)(void);
} lie;

static json_t *deep(int levels)
{
    json_t *json = json_integer(1);
    for (int i = 0; i < levels; i++)
        json = json_pack("{s:o}", "a", json);
    return json;
}

static json_t *deep_dictionary(void)
{
    return deep(1000);
}

static json_t *deep_state(void)
{
    return json_pack("{s:o}", "layer0.weight", deep(1000));
}

static json_t *repeated(json_t *entry)
{
    json_t *array = json_array();
    for (int i = 0; i < 100000; i++)
        json_array_append(array, entry);
    json_decref(entry);
    return array;
}

static json_t *many_zeros(void)
{
    return repeated(json_integer(0));
}

static json_t *many_texts(void)
{
    return repeated(json_string("layer0.weight"));
}

static json_t *many_params(void)
{
    return repeated(json_pack("{s:s, s:s, s:[i]}", "name", "x", "dtype", "F32", "shape", 1));
}

/* Each fits; their sum does not. */
static json_t *large_params(void)
{
    json_t *array = json_array();
    for (int i = 0; i < 40; i++) {
        char name[24];
        snprintf(name, sizeof name, "p%d", i);
        json_array_append_new(array, json_pack("{s:s, s:s, s:[I], s:i}", "name", name, "dtype",
                                               "F32", "shape", (json_int_t)1 << 58, "owner", 0));
    }
    return array;
}

#define MAP_OF(order, ranges)                                                                      \
    "{\"kind\":\"even\",\"element_size\":4,\"ranges\":" ranges ",\"order\":" order "}"
#define OWNERS_OF(order, owners) "{\"kind\":\"owners\",\"owners\":" owners ",\"order\":" order "}"
#define GRANULES_OF(ranges, units, owners)                                                         \
    "{\"kind\":\"granules\",\"order\":[0, 1, 2],\"element_size\":4,\"ranges\":" ranges             \
    ",\"units\":" units ",\"owners\":" owners "}"
#define STATE "optimizer/state/layer0.weight"
#define SUM "\"00000000000000000000000000000000\""

static const lie index_lies[] = {
    {"format", "\"czero\"", NULL},
    {"format", NULL, NULL},
    {"version", "3", NULL},
    {"version", "0", NULL},
    {"version", "\"1\"", NULL},
    {"version", "1e300", NULL},
    {"id", "\"short\"", NULL},
    {"id", "\"ffffffffffffffffffffffffffffffff\"", NULL},
    {"id", "7", NULL},
    {"generation", "2", NULL},
    {"generation", "-1", NULL},
    {"step", "7", NULL},
    {"step", "-6", NULL},
    {"world_size", "0", NULL},
    {"world_size", "-2", NULL},
    {"world_size", "1", NULL},
    {"world_size", "3", NULL},
    {"world_size", "1000000000000", NULL},
    {"world_size", "9223372036854775807", NULL},
    {"world_size", "2.0", NULL},
    {"parts", "0", NULL},
    {"parts", "-12", NULL},
    {"parts", "1000000000000", NULL},
    {"parts", "12.5", NULL},
    {"parts", "\"12\"", NULL},
    {"parts", "null", NULL},
    {"parameters", NULL, NULL},
    {"parameters", "[]", NULL},
    {"parameters", "[1]", NULL},
    {"parameters", "{\"0\":0}", NULL},
    {"parameters", NULL, many_params},
    {"parameters", NULL, large_params},
    {"parameters/0/name", "\"layer1.weight\"", NULL},
    {"parameters/0/name", "\"running_mean\"", NULL},
    {"parameters/0/name", "\"\"", NULL},
    {"parameters/0/name", "\"a\\u0000b\"", NULL},
    {"parameters/0/name", "null", NULL},
    {"parameters/0/dtype", "\"F8_E4M3\"", NULL},
    {"parameters/0/dtype", "\"F64\"", NULL},
    {"parameters/0/dtype", "\"I64\"", NULL},
    {"parameters/0/dtype", "4", NULL},
    {"parameters/0/shape", "[-1]", NULL},
    {"parameters/0/shape", "[19]", NULL},
    {"parameters/0/shape", "[20, 1]", NULL},
    {"parameters/0/shape", "[4611686018427387904, 4]", NULL},
    {"parameters/0/shape", "[9223372036854775807]", NULL},
    {"parameters/0/shape", "[576460752303423487]", NULL},
    {"parameters/0/shape", "[1, 1, 1, 1, 1, 1, 1, 1, 20]", NULL},
    {"parameters/0/shape", "[20.0]", NULL},
    {"parameters/0/shape", "20", NULL},
    {"parameters/0/shape", NULL, many_zeros},
    {"parameters/0/owner", "0", NULL},
    {"parameters/0/owner", "1", NULL},
    {"parameters/0/owner", "2", NULL},
    {"parameters/0/owner", "-1", NULL},
    {"parameters/0/owner", "\"0\"", NULL},
    {"buffers", NULL, NULL},
    {"buffers", "[]", NULL},
    {"buffers/0/owner", NULL, NULL},
    {"buffers/0/owner", "2", NULL},
    {"buffers/0/owner", "4294967296", NULL},
    {"buffers/0/shape", "[6]", NULL},
    {"buffers/0/dtype", "\"F32\"", NULL},
    {"map", NULL, NULL},
    {"map", "[]", NULL},
    {"map/kind", "\"odd\"", NULL},
    {"map/kind", "\"owners\"", NULL},
    {"map/order", "[0, 0, 1]", NULL},
    {"map/order", "[0, 1]", NULL},
    {"map/order", "[0, 1, 3]", NULL},
    {"map/order", "[0, 1, -1]", NULL},
    {"map/order", "[0, 1, 2]", NULL},
    {"map/order", "[0, 1, 2, 0]", NULL},
    {"map/order", NULL, many_zeros},
    {"map/ranges", "[1]", NULL},
    {"map/ranges", "[2, 0]", NULL},
    {"map/ranges", "[0, 2, 1]", NULL},
    {"map/ranges", "[0, 4]", NULL},
    {"map/ranges", NULL, many_texts},
    {"map/element_size", "0", NULL},
    {"map/element_size", "3", NULL},
    {"map/element_size", "16", NULL},
    {"map", MAP_OF("[0, 1, 2]", "[]"), NULL},
    {"map", MAP_OF("[0, 1, 2]", "[0, 1]"), NULL},
    {"map", OWNERS_OF("[0, 1, 2]", "[0, 1, 2]"), NULL},
    {"map", OWNERS_OF("[0, 1, 2]", "[0, 1]"), NULL},
    {"map", OWNERS_OF("[0, 1, 2]", "[0, 1, 1, 1]"), NULL},
    {"map", OWNERS_OF("[]", "[-1, -1, -1]"), NULL},
    {"map", OWNERS_OF("[0, 1, 2]", "[0, 1, -1]"), NULL},
    {"map", OWNERS_OF("[0, 1, 2]", "[0, 1, 0]"), NULL},
    {"map/kind", "\"granules\"", NULL},
    {"map", GRANULES_OF("[0]", "[]", "[-1, -1, -1]"), NULL},
    {"map", GRANULES_OF("[]", "[]", "[-1, -1, -1]"), NULL},
    {"map", GRANULES_OF("[0]", "[0, 1]", "[0, 1, 0]"), NULL},
    {"map", GRANULES_OF("[0]", "[-1]", "[0, 1, 0]"), NULL},
    {"map", GRANULES_OF("[0]", "[0.5]", "[0, 1, 0]"), NULL},
    {"map", GRANULES_OF("[0]", "[0]", "[0, 1]"), NULL},
    {"map", GRANULES_OF("[0]", "[0]", "[0, 1, -1]"), NULL},
    {"map", GRANULES_OF("[0]", "[0]", "[0, 1, 2]"), NULL},
    {"map", GRANULES_OF("[0]", "[0]", "[0, 1, 0]"), NULL},
    {"map", GRANULES_OF("[0]", "[9223372036854775807]", "[1, 1, 1]"), NULL},
    {"map", GRANULES_OF("[0]", "[2]", "[-1, -1, -1]"), NULL},
    {"optimizer", "null", NULL},
    {"optimizer", "\"adam\"", NULL},
    {"optimizer", "{}", NULL},
    {"optimizer", NULL, deep_dictionary},
    {"optimizer/rule", "\"sgd\"", NULL},
    {"optimizer/rule", "\"\"", NULL},
    {"optimizer/rule", "5", NULL},
    {"optimizer/state", NULL, NULL},
    {"optimizer/state", "[\"layer0.weight\"]", NULL},
    {"optimizer/state", NULL, deep_state},
    {"optimizer/state/unknown", "{\"step\": 1}", NULL},
    {"optimizer/state/running_mean", "{\"step\": 1}", NULL},
    {STATE, "7", NULL},
    {STATE "/step", "-1", NULL},
    {STATE "/step", "1e300", NULL},
    {STATE "/step", "0.5", NULL},
    {STATE "/step", "{\"$real\": \"nan\"}", NULL},
    {STATE "/step", "\"f32\"", NULL},
    {STATE "/step", NULL, NULL},
    {STATE "/exp_avg", "\"f64\"", NULL},
    {STATE "/exp_avg", "\"u8\"", NULL},
    {STATE "/exp_avg", "\"float\"", NULL},
    {STATE "/exp_avg", "1.5", NULL},
    {STATE "/exp_avg", "[\"f32\"]", NULL},
    {STATE "/exp_avg", "{\"$tensor\": \"parameters/layer2.weight[0:1]\"}", NULL},
    {STATE "/exp_avg", NULL, NULL},
    {STATE "/momentum_buffer", "\"f32\"", NULL},
    {STATE "/max_exp_avg_sq", "\"f32\"", NULL},
    {STATE "/constant", "1.0", NULL},
    {"optimizer/param_groups", NULL, NULL},
    {"optimizer/param_groups", "{}", NULL},
    {"optimizer/param_groups", "{\"1\": {}}", NULL},
    {"optimizer/param_groups/1", "{\"params\": []}", NULL},
    {"optimizer/param_groups/0/lr", "-1.0", NULL},
    {"optimizer/param_groups/0/lr", "\"0.1\"", NULL},
    {"optimizer/param_groups/0/lr", "{\"$real\": \"nan\"}", NULL},
    {"optimizer/param_groups/0/lr", "{\"$real\": \"what\"}", NULL},
    {"optimizer/param_groups/0/params", NULL, NULL},
    {"optimizer/param_groups/0/params", "[]", NULL},
    {"optimizer/param_groups/0/params", "\"layer0.weight\"", NULL},
    {"optimizer/param_groups/0/params", "[\"layer0.weight\"]", NULL},
    {"optimizer/param_groups/0/params", "[\"layer0.weight\", \"layer0.weight\", \"layer1.weight\"]",
     NULL},
    {"optimizer/param_groups/0/params", "[\"layer0.weight\", \"layer1.weight\", \"other\"]", NULL},
    {"optimizer/param_groups/0/params", NULL, many_texts},
    {"common/dictionary", "5", NULL},
    {"common/dictionary", NULL, deep_dictionary},
    {"common/dictionary/tensor", "{\"$tensor\": \"common/other\"}", NULL},
    {"common/dictionary/tensor", "{\"$tensor\": 5}", NULL},
    {"common/dictionary/tensor", "{\"$odd\": 5}", NULL},
    {"common/file", "null", NULL},
    {"common/file", "5", NULL},
    {"common/file/bytes", "-1", NULL},
    {"common/file/bytes", "1", NULL},
    {"common/file/header", SUM, NULL},
    {"common/file/header", "\"x\"", NULL},
    {"common/file/tensors", "[]", NULL},
    {"common/file/tensors", "[" SUM ", " SUM "]", NULL},
    {"common/file/tensors", "[null, 5]", NULL},
    {"common/file/tensors", NULL, many_zeros},
};

static const lie mark_lies[] = {
    {"format", "\"czero checkpoint\"", NULL},
    {"id", "\"ffffffffffffffffffffffffffffffff\"", NULL},
    {"id", "\"\"", NULL},
    {"rank", "1", NULL},
    {"rank", "-1", NULL},
    {"world_size", "3", NULL},
    {"generation", "2", NULL},
    {"step", "5", NULL},
    {"version", "2", NULL},
    {"bytes", "0", NULL},
    {"bytes", "-1", NULL},
    {"bytes", "9223372036854775807", NULL},
    {"header", SUM, NULL},
    {"header", "5", NULL},
    {"tensors", "[]", NULL},
    {"tensors", NULL, many_zeros},
    {"tensors/0", SUM, NULL},
    {"tensors/0", "null", NULL},
    {"own", "5", NULL},
    {"own", NULL, deep_dictionary},
    {"own/tensor", "{\"$tensor\": \"own/other\"}", NULL},
};

/* Is a lie of that number about an entry of an array? Otherwise it is a key. */
static bool replace(json_t *at, const char *key, json_t *value)
{
    if (json_is_array(at))
        return json_array_set_new(at, (size_t)atoi(key), value) == 0;
    return value ? json_object_set_new(at, key, value) == 0 : json_object_del(at, key) == 0;
}

static cz_status tell(json_t *root, const lie *l)
{
    char path[128], *key, *rest = NULL;
    json_t *at = root, *value = NULL;
    snprintf(path, sizeof path, "%s", l->path);
    key = strtok_r(path, "/", &rest);
    for (char *next; (next = strtok_r(NULL, "/", &rest)); key = next)
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
    if (l->make || l->value)
        value = l->make ? l->make() : json_loads(l->value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if ((l->value && !value) || !at || !replace(at, key, value))
        return cz_fail(CZ_ERR_STATE, "the test cannot tell %s", l->path);
    return CZ_OK;
}

/* The file with the lie, sealed. */
static cz_status forge(const kept_file *p, const lie *l)
{
    cz__text text = {0};
    json_t *root = json_loadb(p->bytes, p->count, 0, NULL);
    cz_status status = root && json_object_del(root, "checksum") == 0
                           ? tell(root, l)
                           : cz_fail(CZ_ERR_STATE, "the test cannot read %.120s", p->path);
    THEN(cz__seal(root, &text));
    THEN(put_bytes(p->path, cz__text_get(&text), text.count));
    cz__text_clear(&text);
    json_decref(root);
    return status;
}

/* ---- what has to hold ---- */

static cz_status one(small *s, const kept_file *p, const lie *l)
{
    const unsigned allowed = ONE(CZ_ERR_FORMAT) | ONE(CZ_ERR_UNSUPPORTED) | ONE(CZ_ERR_ARGUMENT);
    if (cz_group_rank(s->group) == 0)
        CZ_TRY(forge(p, l));
    CZ_TRY(cz_barrier(s->group, NULL));
    cz_status status = small_expect(cz_checkpoint_load(s->checkpoint, NULL, NULL), allowed,
                                    "00000001-step-6", NULL);
    THEN(small_unchanged(s));
    CZ_TRY(cz_barrier(s->group, NULL));
    return status == CZ_OK ? CZ_OK
                           : cz_fail(status, "%s is %.40s: %.160s", l->path,
                                     l->value ? l->value : "other", cz_last_error());
}

static cz_status lies(small *s, const char *file, const lie *list, size_t count)
{
    kept_file p;
    cz_status status = keep_file(&p, generation, file);
    CZ_TRY(cz_barrier(s->group, NULL));
    for (size_t i = 0; status == CZ_OK && i < count; i++)
        status = one(s, &p, &list[i]);
    if (status == CZ_OK && cz_group_rank(s->group) == 0)
        status = restore_file(&p);
    free(p.bytes);
    CZ_TRY(status);
    CZ_TRY(cz_barrier(s->group, NULL));
    CZ_TRY(small_load(s, NULL, &saved, STEP));
    CZ_TRY(small_step(s));
    return small_remember(s);
}

static cz_status body(cz_group *group, void *context)
{
    small s;
    cz_status status = small_open(&s, group, folder, 50, 5);
    THEN(small_step(&s));
    THEN(small_remember(&s));
    THEN(lies(&s, "index.json", index_lies, sizeof index_lies / sizeof *index_lies));
    THEN(lies(&s, "rank-00000-of-00002.json", mark_lies, sizeof mark_lies / sizeof *mark_lies));
    small_close(&s);
    return status;
}

EACH_TEST(set_up, tear_down)

/* What no load would take is no checkpoint for anybody: it is not opened, so not verified as fine,
 * nor converted. */
TEST(parameter_groups_that_cannot_be_are_not_opened)
{
    static const struct {
        lie told;
        const char *says;
    } lies[] = {
        {{"optimizer/param_groups", NULL, NULL}, "no dictionary 'param_groups'"},
        {{"optimizer/param_groups/0/params", NULL, NULL}, "no list of names 'params'"},
        {{"optimizer/param_groups/0/params", "[\"layer0.weight\", \"other\"]", NULL},
         "'other' of parameter group 0 is no parameter"},
        {{"optimizer/param_groups/0/params", "[\"layer0.weight\", \"running_mean\"]", NULL},
         "'running_mean' of parameter group 0 is no parameter"},
        {{"optimizer/param_groups/0/params", "[\"layer0.weight\", \"layer0.weight\"]", NULL},
         "'layer0.weight' of parameter group 0 is in the groups twice"},
        {{"optimizer/param_groups/0/params", NULL, many_texts}, "is in the groups twice"},
        {{"optimizer/param_groups/1", "{\"params\": [\"layer0.weight\"]}", NULL},
         "'layer0.weight' of parameter group 1 is in the groups twice"},
    };
    kept_file p;
    CZ_CHECK(keep_file(&p, generation, "index.json"));
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        cz_archive *archive;
        CZ_CHECK(forge(&p, &lies[i].told));
        assert_int_equal(cz_archive_open(&archive, folder, CZ_NEWEST), CZ_ERR_FORMAT);
        if (!strstr(cz_last_error(), lies[i].says) || !strstr(cz_last_error(), "index.json"))
            fail_msg("%s", cz_last_error());
    }
    CZ_CHECK(restore_file(&p));
    free(p.bytes);
}

TEST(lies_are_found)
{
    for (int world = 1; world <= 3; world += 1 + SANITIZED)
        assert_ranks_ok(world, body, NULL);
}
