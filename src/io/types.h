/* SPDX-License-Identifier: MIT */
/* Element types of files: those of the library, and foreign ones, whose elements it carries as
 * bytes and does not compute with. Of safetensors' types there may be more than anybody knows
 * today: a name that ends with a number of bits, as "F8_E4M3" and "U16", is one of that many.
 * Everything here is local, and safe on any thread. */
#ifndef CZ_IO_TYPES_H
#define CZ_IO_TYPES_H

#include "czero/tensor.h"

/* Foreign types that other files name; further ones get numbers as they are met. */
enum {
    CZ__TYPE_BOOL = 64,
    CZ__TYPE_I8,
    CZ__TYPE_I16,
    CZ__TYPE_U16,
    CZ__TYPE_U32,
    CZ__TYPE_U64,
    CZ__TYPE_F8_E4M3,
    CZ__TYPE_F8_E5M2,
    CZ__TYPE_C64,
    CZ__TYPE_C128
};

/* 0: no type, or too many of them that nobody knows. */
cz_dtype cz__type_find(const char *name);
/* "F32", "F8_E4M3"; NULL: no type. */
const char *cz__type_name(cz_dtype type);
/* "f32", "f8_e4m3": as cz_dtype_name(), to be shown; "unknown". */
const char *cz__type_shown(cz_dtype type);
static inline bool cz__type_is_foreign(cz_dtype type)
{
    return (int)type >= CZ__TYPE_BOOL;
}

static inline bool cz__type_is_complex(cz_dtype type)
{
    return (int)type == CZ__TYPE_C64 || (int)type == CZ__TYPE_C128;
}

/* What a tensor of that type is carried in: bytes of a unit (an element; a byte where elements are
 * no whole number of them), 0: no type. And how many units it has; -1: more than 64 bits count, or
 * no whole number of bytes. */
size_t cz__type_unit(cz_dtype type);
int64_t cz__type_units(cz_dtype type, int dimensions, const int64_t *shape);

/* CZ_ERR_UNSUPPORTED, with a sentence that `where` begins: a foreign type, in a dictionary, which
 * has none. */
cz_status cz__type_check(cz_dtype type, const char *where, const char *name);

/* The type whose bits are the same: u8 for truth values. */
static inline cz_dtype cz__type_in_memory(cz_dtype type)
{
    return (int)type == CZ__TYPE_BOOL ? CZ_U8 : type;
}

#endif
