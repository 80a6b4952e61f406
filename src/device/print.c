/* SPDX-License-Identifier: MIT */
#include "device/print.h"

#include <string.h>

#include "base/fingerprint.h"
#include "base/status.h"

/* The finalizer of MurmurHash3 (Appleby): every bit of the result depends on all of these. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ bits >> 33) * UINT64_C(0xff51afd7ed558ccd);
    bits = (bits ^ bits >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return bits ^ bits >> 33;
}

uint64_t cz__print_key(const char *param, const char *what)
{
    return mix(cz__fingerprint(cz__fingerprint(0, param, strlen(param) + 1), what, strlen(what)));
}

/* On a device without the kernel: by the host's, a block at a time. */
static cz_status add_from(const cz_device *device, uint64_t key, cz_dtype dtype, int64_t first,
                          int64_t count, const char *values, uint64_t print[2])
{
    char block[16384];
    const int64_t most = (int64_t)(sizeof block / cz_dtype_size(dtype));
    for (int64_t done = 0, some; done < count; done += some) {
        some = count - done < most ? count - done : most;
        const size_t bytes = (size_t)some * cz_dtype_size(dtype);
        CZ_TRY(device->copy(NULL, block, values + (size_t)done * cz_dtype_size(dtype), bytes));
        CZ_TRY(cz_device_cpu()->add_print(NULL, key, dtype, first + done, some, block, print));
    }
    return CZ_OK;
}

cz_status cz__print_add(const cz_device *device, uint64_t key, cz_dtype dtype, int64_t first,
                        int64_t count, const void *values, uint64_t print[2])
{
    if (device->add_print)
        return device->add_print(NULL, key, dtype, first, count, values, print);
    return add_from(device, key, dtype, first, count, values, print);
}

void cz__print_add_bits(uint64_t key, uint64_t bits, uint64_t print[2])
{
    print[0] += mix(key ^ bits);
    print[1] += mix(key + mix(~bits));
}
