/* SPDX-License-Identifier: MIT */
/* FNV-1a with 64 bits (Fowler, Noll, Vo). */
#include "base/fingerprint.h"

uint64_t cz__fingerprint(uint64_t before, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;
    uint64_t hash = before ^ UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}
