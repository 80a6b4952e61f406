/* SPDX-License-Identifier: MIT */
/* The host's processor as a device: its memory is host memory, its queue is the calling thread. */
#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/cpu/cpu.h"
#include "device/reduction.h"
#include "base/half.h"

#include <string.h>

static cz_status cpu_allocate(cz_memory_kind kind, size_t bytes, void **out)
{
    *out = cz__allocate(kind, bytes);
    return *out ? CZ_OK : cz__fail(CZ_ERR_MEMORY, "cpu: no memory for %zu bytes", bytes);
}

/* The C library leaves copies of this size to one instruction of the processor, which takes three
 * times as long where a destination is just after its source within pages: so is memory of malloc()
 * after memory of mmap(). */
static void copy_in_pieces(char *to, const char *from, size_t bytes)
{
    enum { PIECE = 1984 };
    for (size_t done = 0; done < bytes; done += PIECE)
        memcpy(to + done, from + done, bytes - done < PIECE ? bytes - done : PIECE);
}

static cz_status cpu_copy(void *queue, void *to, const void *from, size_t bytes)
{
    enum { PAGE = 4096, JUST_AFTER = 32 };
    const size_t after = ((uintptr_t)to - (uintptr_t)from) % PAGE;
    if (bytes >= PAGE && after > 0 && after < JUST_AFTER)
        copy_in_pieces(to, from, bytes);
    else if (bytes > 0) /* NULL is an ordinary address of nothing */
        memcpy(to, from, bytes);
    return CZ_OK;
}

/* Below a few lines it would only cost. */
static cz_status cpu_copy_once(void *queue, void *to, const void *from, size_t bytes)
{
    if (bytes < 1024)
        return cpu_copy(queue, to, from, bytes);
    cz__copy_past_caches(to, from, bytes);
    return CZ_OK;
}

static cz_status cpu_zero(void *queue, void *to, size_t bytes)
{
    if (bytes > 0)
        memset(to, 0, bytes);
    return CZ_OK;
}

static cz_status cpu_fill(void *queue, cz_dtype dtype, double value, int64_t count, void *to)
{
    if (dtype == CZ_F64)
        for (int64_t i = 0; i < count; i++)
            ((double *)to)[i] = value;
    else if (dtype == CZ_F32)
        for (int64_t i = 0; i < count; i++)
            ((float *)to)[i] = (float)value;
    else if (cz__has_16_bits(dtype))
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)to)[i] =
                dtype == CZ_F16 ? cz__f16_from_f32((float)value) : cz__bf16_from_f32((float)value);
    else
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: filling %s values with a number",
                        cz_dtype_name(dtype));
    return CZ_OK;
}

/* Blocks of constant length, because that is what compilers vectorise without being told to try
 * hard. */
#define SCALE(name, type)                                                                          \
    static void name(int64_t count, type *x, type factor)                                          \
    {                                                                                              \
        for (; count >= 16; count -= 16, x += 16)                                                  \
            for (int k = 0; k < 16; k++)                                                           \
                x[k] *= factor;                                                                    \
        for (int64_t i = 0; i < count; i++)                                                        \
            x[i] *= factor;                                                                        \
    }
SCALE(scale_f32, float)
SCALE(scale_f64, double)

static cz_status cpu_scale(void *queue, cz_dtype dtype, double factor, int64_t count, void *data)
{
    const float narrow = (float)factor;
    uint16_t *halves = data;
    if (dtype == CZ_F64)
        scale_f64(count, data, factor);
    else if (dtype == CZ_F32)
        scale_f32(count, data, narrow);
    else if (dtype == CZ_F16)
        for (int64_t i = 0; i < count; i++)
            halves[i] = cz__f16_from_f32(cz__f32_from_f16(halves[i]) * narrow);
    else if (dtype == CZ_BF16)
        for (int64_t i = 0; i < count; i++)
            halves[i] = cz__bf16_from_f32(cz__f32_from_bf16(halves[i]) * narrow);
    else
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: scaling %s values", cz_dtype_name(dtype));
    return CZ_OK;
}

static cz__convert_kernel find_convert(cz_dtype from, cz_dtype to)
{
    if ((unsigned)from >= CZ__DTYPE_END || (unsigned)to >= CZ__DTYPE_END)
        return NULL;
    return cz__cpu_kernels_chosen()->convert[from][to];
}

static cz_status cpu_convert(void *queue, cz_dtype to_type, void *to, cz_dtype from_type,
                             const void *from, int64_t count)
{
    const cz__convert_kernel convert = find_convert(from_type, to_type);
    const size_t size = convert ? 0 : cz_dtype_size(from_type);
    if (convert)
        convert(count, from, to);
    else if (to_type == from_type && size > 0)
        return cpu_copy(queue, to, from, (size_t)count * size);
    else
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: no conversion of %s values to %s",
                        cz_dtype_name(from_type), cz_dtype_name(to_type));
    return CZ_OK;
}

static cz_status refuse_wide(const char *what, cz_dtype dtype)
{
    return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: %s %s values, wanted are f16 or bf16", what,
                    cz_dtype_name(dtype));
}

/* The kernel has the lower half of a place: the upper one changes the key. */
static cz_status cpu_convert_stochastic(void *queue, cz_dtype to_type, void *to, const float *from,
                                        int64_t count, uint64_t key, int64_t first)
{
    const int64_t range = INT64_C(1) << 32;
    const cz__stochastic_kernel convert =
        (unsigned)to_type < CZ__DTYPE_END ? cz__cpu_kernels_chosen()->stochastic[to_type] : NULL;
    if (!convert)
        return refuse_wide("rounding by chance to", to_type);
    for (int64_t done = 0, some; done < count; done += some) {
        const int64_t place = first + done, left = range - place % range;
        some = count - done < left ? count - done : left;
        convert(key + (uint64_t)(place >> 32) * UINT64_C(0x9e3779b97f4a7c15), (uint32_t)place, some,
                from + done, (uint16_t *)to + done);
    }
    return CZ_OK;
}

static cz_status cpu_refresh(void *queue, cz_dtype dtype, const void *values, float *copies,
                             int64_t count)
{
    const cz__refresh_kernel refresh =
        (unsigned)dtype < CZ__DTYPE_END ? cz__cpu_kernels_chosen()->refresh[dtype] : NULL;
    if (!refresh)
        return refuse_wide("copies in f32 of", dtype);
    refresh(count, values, copies);
    return CZ_OK;
}

static cz_status cpu_average(void *queue, cz_dtype dtype, double weight, int64_t count,
                             const void *values, void *averages)
{
    const cz__average_kernel average =
        (unsigned)dtype < CZ__DTYPE_END ? cz__cpu_kernels_chosen()->average[dtype] : NULL;
    if (!average)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "cpu: moving averages of %s values, wanted are f32 or f64",
                        cz_dtype_name(dtype));
    average(weight, count, values, averages);
    return CZ_OK;
}

static cz__reduce_kernel find_reduce(cz_dtype dtype, cz_reduction reduction, cz_dtype result)
{
    const cz__cpu_kernels *kernels = cz__cpu_kernels_chosen();
    if ((unsigned)dtype >= CZ__DTYPE_END || (unsigned)reduction >= CZ__REDUCTION_END)
        return NULL;
    if (result == dtype)
        return kernels->reduce[dtype][reduction];
    return result == CZ_F32 ? kernels->reduce_wide[dtype][reduction] : NULL;
}

static cz_status cpu_reduce(void *queue, cz_dtype dtype, cz_reduction reduction, int source_count,
                            const void *const *sources, int64_t count, cz_dtype result, void *out)
{
    const cz__reduce_kernel reduce = find_reduce(dtype, reduction, result);
    if (!reduce && result != dtype)
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: no kernel for the %s of %s values as %s",
                        cz__reduction_name(reduction), cz_dtype_name(dtype), cz_dtype_name(result));
    if (!reduce)
        return cz__fail(CZ_ERR_UNSUPPORTED, "cpu: no kernel for the %s of %s values",
                        cz__reduction_name(reduction), cz_dtype_name(dtype));
    if (source_count < 1 || source_count > CZ__MAX_SOURCES)
        return cz__fail(CZ_ERR_ARGUMENT, "cpu: the %s of %d sources, allowed are 1 to %d",
                        cz__reduction_name(reduction), source_count, CZ__MAX_SOURCES);
    if (count > 0)
        reduce(source_count, sources, count, out);
    return CZ_OK;
}

/* Places are 64 bits wide, of which the kernel has the lower half: the upper one changes the
 * key. */
static void add_words(uint64_t key, uint64_t first, int64_t count, const uint32_t *words,
                      uint64_t print[2])
{
    const int64_t range = INT64_C(1) << 32;
    while (count > 0) {
        const int64_t left = range - (int64_t)(first % (uint64_t)range);
        const int64_t some = count < left ? count : left;
        cz__cpu_kernels_chosen()->print(key + (first >> 32) * UINT64_C(0x9e3779b97f4a7c15),
                                        (uint32_t)first, some, words, print);
        first += (uint64_t)some;
        words += some;
        count -= some;
    }
}

/* Elements of 8 bytes are two words, smaller ones than 4 a word each. */
static cz_status cpu_add_print(void *queue, uint64_t key, cz_dtype dtype, int64_t first,
                               int64_t count, const void *values, uint64_t print[2])
{
    enum { BLOCK = 2048 };
    const size_t size = cz_dtype_size(dtype);
    uint32_t block[BLOCK];
    if (size >= 4) {
        const int64_t words = (int64_t)size / 4;
        add_words(key, (uint64_t)(first * words), count * words, values, print);
        return CZ_OK;
    }
    for (int64_t done = 0, some; done < count; done += some) {
        some = count - done < BLOCK ? count - done : BLOCK;
        for (int64_t i = 0; i < some; i++)
            block[i] = size == 2 ? ((const uint16_t *)values)[done + i]
                                 : ((const uint8_t *)values)[done + i];
        add_words(key, (uint64_t)(first + done), some, block, print);
    }
    return CZ_OK;
}

static cz_update_kernel cpu_find_update(const char *rule, cz_dtype param, cz_dtype grad,
                                        cz_dtype state)
{
    return cz__cpu_find_update(cz__cpu_kernels_chosen(), rule, param, grad, state);
}

const cz_device *cz_device_cpu(void)
{
    static const cz_device cpu = {
        .abi = CZ_DEVICE_ABI,
        .size = sizeof(cz_device),
        .name = "cpu",
        .allocate = cpu_allocate,
        .release = cz__free,
        .copy = cpu_copy,
        .zero = cpu_zero,
        .fill = cpu_fill,
        .scale = cpu_scale,
        .convert = cpu_convert,
        .reduce = cpu_reduce,
        .add_squares = cz__cpu_add_squares,
        .find_update = cpu_find_update,
        .copy_once = cpu_copy_once,
        .add_print = cpu_add_print,
        .convert_stochastic = cpu_convert_stochastic,
        .refresh = cpu_refresh,
        .find_sums = cz__cpu_find_sums,
        .matmul = cz__cpu_matmul,
        .average = cpu_average,
    };
    return &cpu;
}
