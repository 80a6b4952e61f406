/* SPDX-License-Identifier: MIT */
/* State dictionaries from JSON. What is accepted comes out the same when it is written and read
 * again; every tensor is two numbers, whatever its name. */
#include "fuzz.h"

#include "io/json.h"

#include <string.h>

static cz_status find(const char *name, cz_state_dict *dict, const char *key, void *context)
{
    static const int64_t shape[] = {2};
    void *data;
    *(int64_t *)context += 1;
    return cz_state_dict_add_tensor(dict, key, CZ_F32, 1, shape, &data);
}

static cz_status visit(const char *name, const cz_tensor *tensor, void *context)
{
    CZ_FUZZ_CHECK(strncmp(name, "at:", 3) == 0 && tensor->dtype == CZ_F32);
    *(int64_t *)context -= 1;
    return CZ_OK;
}

static void write_again(const cz_state_dict *dict, int64_t tensors)
{
    json_t *json = NULL;
    cz_state_dict *again = NULL;
    int64_t found = 0;
    CZ_CHECK(cz__dict_to_json(&json, dict, "at:", visit, &tensors));
    CZ_FUZZ_CHECK(tensors == 0);
    char *const text = json_dumps(json, 0); /* reals have to get through the text as well */
    CZ_FUZZ_CHECK(text);
    json_decref(json);
    json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    CZ_CHECK(cz__dict_from_json(&again, json, "AGAIN", find, &found));
    CZ_FUZZ_CHECK(cz_state_dict_equal(dict, again));
    free(text);
    json_decref(json);
    cz_state_dict_destroy(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz_state_dict *dict = NULL;
    int64_t tensors = 0;
    json_t *const json =
        json_loadb((const char *)bytes, count,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const cz_status status = cz__dict_from_json(&dict, json, "FILE", find, &tensors);
    json_decref(json);
    CZ_FUZZ_CHECK((status == CZ_OK) == (dict != NULL));
    if (dict)
        write_again(dict, tensors);
    else
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT && strncmp(cz_last_error(), "FILE: ", 6) == 0);
    cz_state_dict_destroy(&dict);
    return 0;
}

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const char *const seeds[] = {
        "{}",
        "{\"epoch\":-9223372036854775808,\"rate\":0.1,\"name\":\"adamw\",\"names\":[\"a\",\"\"]}",
        "{\"state\":{\"w1\":{\"exp_avg\":{\"$tensor\":\"at:state/w1/exp_avg\"}}},\"$$x\":5e-324}",
        ("{\"a\":{\"$real\":\"nan\"},\"b\":{\"$real\":\"-inf\"},\"c\":{\"$real\":\"-0\"},"
         "\"d\":{\"$real\":\"0x7ff8000000000001\"},\"e\":-1e308}"),
        "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"\\u00e9\":\"\\ud83d\\ude42\"}}}}}}}}",
        "{\"a\":null,\"$b\":{\"$real\":1},\"c\":[[]]}",
    };
    if (number < 0 || number >= (int)(sizeof seeds / sizeof *seeds) || strlen(seeds[number]) > room)
        return 0;
    memcpy(bytes, seeds[number], strlen(seeds[number]));
    return strlen(seeds[number]);
}
