/* SPDX-License-Identifier: MIT */
/* The fingerprint of what an archive has: that of the optimizer which saved it. */
#include <inttypes.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "czero/archive.h"
#include "device/print.h"

enum { BLOCK_BYTES = 1 << 20 };

static cz_status add_tensor(cz_archive *archive, int64_t place, const cz_archive_tensor *tensor,
                            const char *slot, void *block, uint64_t print[2])
{
    const uint64_t key = cz__print_key(tensor->name, slot ? slot : "");
    const int64_t most = BLOCK_BYTES / (int64_t)tensor->element_size;
    for (int64_t begin = 0, end; begin < tensor->count; begin = end) {
        end = tensor->count - begin < most ? tensor->count : begin + most;
        CZ_TRY(cz_archive_read(archive, place, slot, begin, end, block));
        CZ_TRY(
            cz__print_add(cz_device_cpu(), key, tensor->dtype, begin, end - begin, block, print));
    }
    return CZ_OK;
}

static cz_status add_param(cz_archive *archive, int64_t place, void *block, uint64_t print[2])
{
    cz_archive_tensor tensor = CZ_ARCHIVE_TENSOR_INIT;
    const char *slot;
    CZ_TRY(cz_archive_get_tensor(archive, place, &tensor));
    if (!tensor.dtype)
        return cz__fail(CZ_ERR_UNSUPPORTED, "archive fingerprint: parameter '%.60s' is %s",
                        tensor.name, tensor.type);
    CZ_TRY(add_tensor(archive, place, &tensor, NULL, block, print));
    for (int64_t i = 0; (slot = cz_archive_slot(archive, place, i, &tensor.dtype)); i++) {
        tensor.element_size = cz_dtype_size(tensor.dtype);
        CZ_TRY(add_tensor(archive, place, &tensor, slot, block, print));
    }
    return CZ_OK;
}

/* Step counts and scalars of each parameter, from the optimizer's outline. */
static cz_status add_scalars(const cz_state_dict *state, uint64_t print[2])
{
    for (int64_t p = 0; p < cz_state_dict_count(state); p++) {
        const char *name = cz_state_dict_key(state, p), *key;
        const cz_state_dict *entry;
        CZ_TRY(cz_state_dict_get_dict(state, name, &entry));
        for (int64_t k = 0; (key = cz_state_dict_key(entry, k)); k++) {
            int64_t whole;
            double real;
            uint64_t bits;
            if (cz_state_dict_kind(entry, key) == CZ_STATE_INTEGER) {
                CZ_TRY(cz_state_dict_get_integer(entry, key, &whole));
                bits = (uint64_t)whole;
            } else if (cz_state_dict_kind(entry, key) == CZ_STATE_REAL) {
                CZ_TRY(cz_state_dict_get_real(entry, key, &real));
                memcpy(&bits, &real, sizeof bits);
            } else {
                continue;
            }
            cz__print_add_bits(cz__print_key(name, key), bits, print);
        }
    }
    return CZ_OK;
}

cz_status cz_archive_fingerprint(cz_archive *archive, uint64_t fingerprint[2])
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    cz_archive_info info = CZ_ARCHIVE_INFO_INIT;
    const cz_state_dict *state;
    uint64_t print[2] = {0, 0};
    if (!archive || !fingerprint)
        return cz__fail(CZ_ERR_ARGUMENT, "archive fingerprint: %s is NULL",
                        archive ? "fingerprint" : "archive");
    CZ_TRY(cz_archive_get_info(archive, &info));
    void *block = cz__allocate(CZ_MEMORY_GENERAL, BLOCK_BYTES);
    if (!block)
        return cz__fail(CZ_ERR_MEMORY, "archive fingerprint: no memory for %d bytes",
                        (int)BLOCK_BYTES);
    cz_status status = CZ_OK;
    for (int64_t place = 0; place < info.param_count && !status; place++)
        status = add_param(archive, place, block, print);
    if (!status && info.optimizer &&
        cz_state_dict_get_dict(info.optimizer, "state", &state) == CZ_OK)
        status = add_scalars(state, print);
    if (!status)
        memcpy(fingerprint, print, sizeof print);
    cz__free(block);
    return status;
}
