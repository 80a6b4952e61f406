/* SPDX-License-Identifier: MIT */
/* Lists of shapes: the first byte is 'J' for JSON, and anything else for lines of text. What is
 * accepted can be counted. */
#include "fuzz.h"

#include "interop/shapes.h"
#include "plan/object.h"

#include <string.h>

static cz_status add(const cz__file_shape *shape, void *context)
{
    const cz_tensor *t = &shape->tensor;
    return cz_shapes_add(context, shape->name, t->dtype, t->dimensions, t->shape, CZ_SHAPE_BUFFER);
}

static cz_status read_text(cz_shapes *shapes, const uint8_t *bytes, size_t count)
{
    FILE *const file = fmemopen((void *)(uintptr_t)bytes, count, "r");
    CZ_FUZZ_CHECK(file);
    const cz_status status = cz__shapes_read_text(shapes, file, "FILE");
    fclose(file);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    cz_shapes *shapes = NULL;
    if (count < 2)
        return 0;
    CZ_CHECK(cz_shapes_create(&shapes));
    const cz_status status =
        bytes[0] == 'J' ? cz__json_shapes("FILE", (const char *)bytes + 1, count - 1, add, shapes)
                        : read_text(shapes, bytes + 1, count - 1);
    if (status != CZ_OK)
        CZ_FUZZ_CHECK(status == CZ_ERR_FORMAT || status == CZ_ERR_UNSUPPORTED ||
                      status == CZ_ERR_ARGUMENT);
    else
        CZ_FUZZ_CHECK(shapes->count >= 0);
    cz_shapes_destroy(&shapes);
    return 0;
}

size_t cz_fuzz_seed(int number, uint8_t *bytes, size_t room)
{
    static const char *const seeds[] = {
        "J{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"kind\":\"frozen\"},\"__metadata__\":{}}",
        "J{\"a\":{\"dtype\":\"i64\",\"shape\":[]},\"b\":{\"dtype\":\"BF16\",\"shape\":[0,7]}}",
        "Tw1 f32 768 3072 frozen # a note\n\nb, bf16, 3, buffer\n",
    };
    if (number < 0 || number >= (int)(sizeof seeds / sizeof *seeds) || strlen(seeds[number]) > room)
        return 0;
    memcpy(bytes, seeds[number], strlen(seeds[number]));
    return strlen(seeds[number]);
}
