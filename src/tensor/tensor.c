/* SPDX-License-Identifier: MIT */
/* Views: how many elements a shape has. */
#include "czero/tensor.h"

int64_t cz_tensor_count(const cz_tensor *tensor)
{
    if (!tensor || tensor->dimensions < 0 || tensor->dimensions > CZ_MAX_DIMENSIONS)
        return -1;
    bool empty = false;
    int64_t count = 1;
    for (int d = 0; d < tensor->dimensions; d++) {
        if (tensor->shape[d] < 0)
            return -1;
        empty = empty || tensor->shape[d] == 0;
    }
    for (int d = 0; d < tensor->dimensions && !empty; d++)
        if (__builtin_mul_overflow(count, tensor->shape[d], &count))
            return -1;
    return empty ? 0 : count;
}
