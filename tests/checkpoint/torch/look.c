/* SPDX-License-Identifier: MIT */
/* look FILE: a line for each tensor of consolidated files: name, type, shape, and the sum of its
 * elements and of each with its place (from 1), read in parts. wild.py compares them with torch's.
 * What was left of the file, the rule and the values of the first group go to stderr. Exit 1, and
 * the sentence: it is refused. */
#include <inttypes.h>
#include <stdio.h>

#include "interop/bundle.h"
#include "tensor/model.h"

enum { PART = 1000 };

static double element(const void *data, cz_dtype dtype, int64_t i)
{
    double value;
    switch (dtype) {
    case CZ_I64:
        return (double)((const int64_t *)data)[i];
    case CZ_I32:
        return ((const int32_t *)data)[i];
    case CZ_U8:
        return ((const uint8_t *)data)[i];
    default:
        cz__convert(CZ_F64, &value, dtype, (const char *)data + (size_t)i * cz_dtype_size(dtype),
                    1);
        return value;
    }
}

static cz_status look(cz__bundle *b, const cz__safetensors_entry *e)
{
    double part[PART], sum = 0, placed = 0;
    const int64_t count = (int64_t)(e->end / cz_dtype_size(e->dtype));
    for (int64_t at = 0; at < count; at += PART) {
        const int64_t end = at + PART < count ? at + PART : count;
        CZ_TRY(cz__bundle_read(b, e->name, at, end, part));
        for (int64_t i = 0; i < end - at; i++) {
            sum += element(part, e->dtype, i);
            placed += element(part, e->dtype, i) * (double)(at + i + 1);
        }
    }
    printf("%s %s (", e->name, cz_dtype_name(e->dtype));
    for (int d = 0; d < e->dimensions; d++)
        printf("%s%" PRId64, d ? "," : "", e->shape[d]);
    printf(") %.17g %.17g\n", sum, placed);
    return CZ_OK;
}

static void say_group(const cz_state_dict *optimizer)
{
    const cz_state_dict *groups, *group;
    const char *rule;
    double value;
    if (cz_state_dict_get_text(optimizer, "rule", &rule) != CZ_OK ||
        cz_state_dict_get_dict(optimizer, "param_groups", &groups) != CZ_OK ||
        cz_state_dict_get_dict(groups, "0", &group) != CZ_OK)
        return;
    fprintf(stderr, "rule=%s", rule);
    for (int64_t i = 0; i < cz_state_dict_count(group); i++)
        if (cz_state_dict_get_real(group, cz_state_dict_key(group, i), &value) == CZ_OK)
            fprintf(stderr, " %s=%g", cz_state_dict_key(group, i), value);
    fprintf(stderr, "\n");
}

static cz_status look_at_optimizer(cz__bundle *b)
{
    cz__index index;
    const cz_status status = cz__bundle_index(b, NULL, &index);
    if (status == CZ_OK && index.optimizer)
        say_group(index.optimizer);
    cz__index_clear(&index);
    return status;
}

int main(int count, char **words)
{
    cz__bundle *b = NULL;
    cz_status status = count == 2 ? cz__bundle_open(&b, words[1], NULL) : CZ_ERR_ARGUMENT;
    if (status == CZ_OK)
        status = cz__bundle_verify(b, 0, 1);
    if (status == CZ_OK && cz__bundle_notes(b))
        fprintf(stderr, "%s\n", cz__bundle_notes(b));
    if (status == CZ_OK)
        status = look_at_optimizer(b);
    for (int64_t i = 0; status == CZ_OK && i < b->tensor_count; i++)
        status = look(b, b->tensors[i].entry);
    if (status != CZ_OK)
        fprintf(stderr, "%s\n", cz_last_error());
    cz__bundle_close(&b);
    return status == CZ_OK ? 0 : 1;
}
