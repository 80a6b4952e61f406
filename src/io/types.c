/* SPDX-License-Identifier: MIT */
/* Element types of files. */
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "io/text.h"
#include "io/types.h"

enum { NAME_BYTES = 24, MOST_BITS = 1024, MOST_MET = 64, FIRST_MET = 128 };

typedef struct type {
    char name[NAME_BYTES], shown[NAME_BYTES];
    int bits; /* of an element */
} type;

/* By number; the first are the library's. */
static const type known[] = {
    [CZ_F32] = {"F32", "f32", 32},
    [CZ_F64] = {"F64", "f64", 64},
    [CZ_F16] = {"F16", "f16", 16},
    [CZ_BF16] = {"BF16", "bf16", 16},
    [CZ_I32] = {"I32", "i32", 32},
    [CZ_I64] = {"I64", "i64", 64},
    [CZ_U8] = {"U8", "u8", 8},
    [CZ__TYPE_BOOL] = {"BOOL", "bool", 8},
    [CZ__TYPE_I8] = {"I8", "i8", 8},
    [CZ__TYPE_I16] = {"I16", "i16", 16},
    [CZ__TYPE_U16] = {"U16", "u16", 16},
    [CZ__TYPE_U32] = {"U32", "u32", 32},
    [CZ__TYPE_U64] = {"U64", "u64", 64},
    [CZ__TYPE_F8_E4M3] = {"F8_E4M3", "f8_e4m3", 8},
    [CZ__TYPE_F8_E5M2] = {"F8_E5M2", "f8_e5m2", 8},
    [CZ__TYPE_C64] = {"C64", "c64", 64},
    [CZ__TYPE_C128] = {"C128", "c128", 128},
};
enum { KNOWN = sizeof known / sizeof *known };

/* Those that were met in files: never changed once they are counted, and few, whatever files
 * say. */
static type met[MOST_MET];
static atomic_int met_count;
static pthread_mutex_t met_lock = PTHREAD_MUTEX_INITIALIZER;

static const type *type_of(cz_dtype number)
{
    const int i = (int)number;
    if (i > 0 && i < KNOWN && known[i].bits > 0)
        return &known[i];
    return i >= FIRST_MET && i < FIRST_MET + atomic_load(&met_count) ? &met[i - FIRST_MET] : NULL;
}

/* Letters, a number of bits, and perhaps more behind a _; 0: it is no such name. */
static int bits_of(const char *name)
{
    int bits = 0;
    const size_t letters = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    const char *at = name + letters;
    if (letters == 0 || *at == '0' || strlen(name) >= NAME_BYTES)
        return 0;
    for (; isdigit((unsigned char)*at) && bits <= MOST_BITS; at++)
        bits = 10 * bits + (*at - '0');
    if (*at && (*at != '_' || at[strspn(at, "_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")]))
        return 0;
    return bits <= MOST_BITS ? bits : 0;
}

static int find_met(const char *name)
{
    const int count = atomic_load(&met_count);
    for (int i = 0; i < count; i++)
        if (strcmp(met[i].name, name) == 0)
            return FIRST_MET + i;
    return 0;
}

static int meet(const char *name, int bits)
{
    pthread_mutex_lock(&met_lock);
    int number = find_met(name);
    const int count = atomic_load(&met_count);
    if (!number && count < MOST_MET) {
        type *t = &met[count];
        t->bits = bits;
        snprintf(t->name, sizeof t->name, "%s", name);
        for (size_t i = 0; i < sizeof t->name; i++)
            t->shown[i] = (char)tolower((unsigned char)t->name[i]);
        atomic_store(&met_count, count + 1);
        number = FIRST_MET + count;
    }
    pthread_mutex_unlock(&met_lock);
    return number;
}

cz_dtype cz__type_find(const char *name)
{
    for (int i = 1; i < KNOWN; i++)
        if (known[i].bits > 0 && strcmp(known[i].name, name) == 0)
            return (cz_dtype)i;
    const int number = find_met(name), bits = number ? 0 : bits_of(name);
    return (cz_dtype)(bits > 0 ? meet(name, bits) : number);
}

const char *cz__type_name(cz_dtype number)
{
    const type *t = type_of(number);
    return t ? t->name : NULL;
}

const char *cz__type_shown(cz_dtype number)
{
    const type *t = type_of(number);
    return t ? t->shown : "unknown";
}

cz_status cz__type_check(cz_dtype number, const char *where, const char *name)
{
    return cz__type_is_foreign(number)
               ? cz__fail(CZ_ERR_UNSUPPORTED, "%s: tensor '%s' of a dictionary is of type %s",
                          where, cz__show(name).text, cz__type_name(number))
               : CZ_OK;
}

size_t cz__type_unit(cz_dtype number)
{
    const type *t = type_of(number);
    const int bits = t ? t->bits : 0;
    const bool whole = bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128;
    return whole ? (size_t)bits / 8 : bits > 0;
}

int64_t cz__type_units(cz_dtype number, int dimensions, const int64_t *shape)
{
    cz_tensor form = {.dtype = number, .dimensions = dimensions};
    const type *t = type_of(number);
    int64_t bits;
    if (!t || dimensions < 0 || dimensions > CZ_MAX_DIMENSIONS)
        return -1;
    if (dimensions > 0)
        memcpy(form.shape, shape, (size_t)dimensions * sizeof *shape);
    const int64_t count = cz_tensor_count(&form);
    if (cz__type_unit(number) * 8 == (size_t)t->bits || count <= 0)
        return count;
    return __builtin_mul_overflow(count, (int64_t)t->bits, &bits) || bits % 8 != 0 ? -1 : bits / 8;
}
