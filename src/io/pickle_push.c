/* SPDX-License-Identifier: MIT */
/* Opcodes that push a value: constants, texts, names. And the bytes that follow opcodes. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "io/pickle.h"
#include "io/pickle_machine.h"
#include "io/types.h"

typedef cz__pickle_machine machine;

/* The next `count` bytes; NULL: they are not there. */
static unsigned char *take_bytes(machine *m, uint64_t count)
{
    unsigned char *bytes = cz__pickle_bytes_of(m) + m->at;
    if (count > m->count - m->at)
        return NULL;
    m->at += (size_t)count;
    return bytes;
}

cz_status cz__pickle_take_number(machine *m, int bytes, uint64_t *number)
{
    const unsigned char *p = take_bytes(m, (uint64_t)bytes);
    *number = 0;
    if (!p)
        return cz__pickle_fail(m, "it ends in an opcode");
    for (int i = 0; i < bytes; i++)
        *number |= (uint64_t)p[i] << 8 * i;
    return CZ_OK;
}

/* ---- values ---- */

cz_status cz__pickle_push_none(machine *m, int argument)
{
    cz__pickle_value *v;
    return cz__pickle_push_new(m, CZ__PICKLE_NONE, &v);
}

cz_status cz__pickle_push_bool(machine *m, int argument)
{
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BOOL, &v));
    v->integer = argument;
    return CZ_OK;
}

cz_status cz__pickle_push_empty(machine *m, int argument)
{
    cz__pickle_value *v;
    return cz__pickle_push_new(m, (cz__pickle_kind)argument, &v);
}

/* `argument`: bytes of it, 4: with a sign. */
cz_status cz__pickle_push_integer(machine *m, int argument)
{
    uint64_t number;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &number));
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_INTEGER, &v));
    v->integer = argument == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
    return CZ_OK;
}

/* Of so many bytes as stand before, little-endian with a sign. What 64 bits do not hold is no
 * number of ours. */
cz_status cz__pickle_push_long(machine *m, int argument)
{
    uint64_t count, number = 0;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &count));
    const unsigned char *bytes = take_bytes(m, count);
    if (!bytes)
        return cz__pickle_fail(m, "an integer of %" PRIu64 " bytes, %zu are left", count,
                               m->count - m->at);
    const bool negative = count > 0 && bytes[count - 1] & 0x80;
    while (count > 8 && bytes[count - 1] == (negative ? 0xff : 0)) /* more bytes than it needs */
        count--;
    if (count > 8 || (count == 8 && negative != bytes[7] >> 7))
        return cz__pickle_push_opaque(m, "", "an integer of more than 64 bits", NULL);
    for (uint64_t i = 0; i < 8; i++) {
        const unsigned char beyond = negative ? 0xff : 0;
        number |= (uint64_t)(i < count ? bytes[i] : beyond) << 8 * i;
    }
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_INTEGER, &v));
    v->integer = (int64_t)number;
    return CZ_OK;
}

cz_status cz__pickle_push_real(machine *m, int argument)
{
    uint64_t number;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, 8, &number));
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_REAL, &v));
    number = __builtin_bswap64(number);
    memcpy(&v->real, &number, sizeof v->real);
    return CZ_OK;
}

/* Moved by one byte, over what said its length, so that there is room for its end. */
cz_status cz__pickle_push_text(machine *m, int argument)
{
    uint64_t length;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &length));
    unsigned char *bytes = take_bytes(m, length);
    if (!bytes)
        return cz__pickle_fail(m, "a text of %" PRIu64 " bytes, %zu are left", length,
                               m->count - m->at);
    char *text = (char *)memmove(bytes - 1, bytes, (size_t)length);
    text[length] = 0;
    if (strlen(text) != length) { /* what Python had as bytes, before it had an opcode for them */
        CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BYTES, &v));
        v->bytes = text;
        v->length = (int64_t)length;
        return CZ_OK;
    }
    if (!cz__utf8(text))
        return cz__pickle_fail(m, "a text that is not UTF-8");
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_TEXT, &v));
    v->text = text;
    return CZ_OK;
}

cz_status cz__pickle_push_bytes(machine *m, int argument)
{
    uint64_t length;
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_take_number(m, argument, &length));
    const unsigned char *bytes = take_bytes(m, length);
    if (!bytes)
        return cz__pickle_fail(m, "%" PRIu64 " bytes, %zu are left", length, m->count - m->at);
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_BYTES, &v));
    v->bytes = (const char *)bytes;
    v->length = (int64_t)length;
    return CZ_OK;
}

/* ---- names ---- */

cz_status cz__pickle_push_opaque(machine *m, const char *module, const char *name, const char *note)
{
    cz__pickle_value *v;
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_OPAQUE, &v));
    v->module = module;
    v->name = name;
    v->note = note;
    return CZ_OK;
}

/* Could it be a name of Python's? */
static bool is_name(const char *name)
{
    bool plain = *name != 0;
    for (const char *at = name; *at && plain;)
        at += cz__character(at, &plain);
    return plain;
}

static cz_status push_name(machine *m, const char *module, const char *name)
{
    cz__pickle_value *v;
    const cz__pickle_global *global = cz__pickle_global_find(module, name);
    if (cz__pickle_is_attack(module, name))
        return cz__pickle_fail(m,
                               "the name %s.%s, which no data have: refused, nothing was executed. "
                               "The file is made to harm whoever loads it in Python",
                               cz__show(module).text, cz__show(name).text);
    if (!is_name(module) || !is_name(name))
        return cz__pickle_fail(m, "the name %s.%s, which can be none of Python's",
                               cz__show(module).text, cz__show(name).text);
    m->pickle->opaque_count += global ? 0 : 1;
    if (!global || global->role == CZ__PICKLE_REFUSED)
        return cz__pickle_push_opaque(m, global ? global->module : module,
                                      global ? global->name : name, global ? global->note : NULL);
    CZ_TRY(cz__pickle_push_new(m, CZ__PICKLE_GLOBAL, &v));
    v->global = global;
    return CZ_OK;
}

/* A line, whose end becomes that of a text; NULL: there is none. */
static char *take_line(machine *m)
{
    char *line = (char *)cz__pickle_bytes_of(m) + m->at;
    char *end = memchr(line, '\n', m->count - m->at);
    if (!end)
        return NULL;
    *end = 0;
    m->at += (size_t)(end - line) + 1;
    return line;
}

cz_status cz__pickle_push_global(machine *m, int argument)
{
    const char *module = take_line(m);
    const char *name = module ? take_line(m) : NULL;
    return name ? push_name(m, module, name) : cz__pickle_fail(m, "a name that does not end");
}

cz_status cz__pickle_push_stack_global(machine *m, int argument)
{
    const cz__pickle_value *values = m->pickle->values;
    if (cz__pickle_above(m) < 2 || values[m->stack[m->depth - 1]].kind != CZ__PICKLE_TEXT ||
        values[m->stack[m->depth - 2]].kind != CZ__PICKLE_TEXT)
        return cz__pickle_fail(m, "STACK_GLOBAL without two texts");
    m->depth -= 2;
    return push_name(m, values[m->stack[m->depth]].text, values[m->stack[m->depth + 1]].text);
}

/* ---- names that a pickle may have ---- */

#define STORAGE(name, dtype, bytes)                                                                \
    {                                                                                              \
        "torch", name "Storage", CZ__PICKLE_STORAGE, dtype, bytes, NULL                            \
    }
#define DTYPE(name, dtype, bytes)                                                                  \
    {                                                                                              \
        "torch", name, CZ__PICKLE_DTYPE, dtype, bytes, NULL                                        \
    }
#define NO_DTYPE ((cz_dtype)0)
/* What describes a distributed checkpoint, as versions of torch call it. */
#define RECORD(module, name)                                                                       \
    {                                                                                              \
        module, name, CZ__PICKLE_RECORD, NO_DTYPE, 0, NULL                                         \
    }
#define CHECKPOINT "torch.distributed.checkpoint."
#define CHECKPOINT_OF_1 "torch.distributed._shard.checkpoint." /* of torch 1.13 */
#define REFUSED(name, note)                                                                        \
    {                                                                                              \
        "torch._utils", name, CZ__PICKLE_REFUSED, NO_DTYPE, 0, note                                \
    }

static const cz__pickle_global globals[] = {
    {"collections", "OrderedDict", CZ__PICKLE_DICT_CLASS, NO_DTYPE, 0, NULL},
    {"collections", "Counter", CZ__PICKLE_DICT_CLASS, NO_DTYPE, 0, NULL},
    {"collections", "defaultdict", CZ__PICKLE_DEFAULT_CLASS, NO_DTYPE, 0, NULL},
    {"_codecs", "encode", CZ__PICKLE_ENCODE, NO_DTYPE, 0, NULL},
    {"numpy", "dtype", CZ__PICKLE_NUMPY_TYPE, NO_DTYPE, 0, NULL},
    {"numpy.core.multiarray", "scalar", CZ__PICKLE_NUMPY, NO_DTYPE, 0, NULL},
    {"numpy._core.multiarray", "scalar", CZ__PICKLE_NUMPY, NO_DTYPE, 0, NULL},
    {"torch", "Size", CZ__PICKLE_SIZE_CLASS, NO_DTYPE, 0, NULL},
    {"torch", "device", CZ__PICKLE_DEVICE, NO_DTYPE, 0, NULL},
    {"torch", "Tensor", CZ__PICKLE_CLASS, NO_DTYPE, 0, NULL},
    {"torch.nn.parameter", "Parameter", CZ__PICKLE_CLASS, NO_DTYPE, 0, NULL},
    {"torch.nn.parameter", "Buffer", CZ__PICKLE_CLASS, NO_DTYPE, 0, NULL},
    {"torch._utils", "_rebuild_tensor_v2", CZ__PICKLE_REBUILD, NO_DTYPE, 0, NULL},
    {"torch._utils", "_rebuild_tensor_v3", CZ__PICKLE_REBUILD_AS, NO_DTYPE, 0, NULL},
    {"torch._utils", "_rebuild_parameter", CZ__PICKLE_PARAMETER, NO_DTYPE, 0, NULL},
    {"torch._utils", "_rebuild_parameter_with_state", CZ__PICKLE_PARAMETER, NO_DTYPE, 0, NULL},
    {"torch._tensor", "_rebuild_from_type_v2", CZ__PICKLE_FROM_TYPE, NO_DTYPE, 0, NULL},
    RECORD(CHECKPOINT "metadata", "Metadata"),
    RECORD(CHECKPOINT "metadata", "MetadataIndex"),
    RECORD(CHECKPOINT "metadata", "TensorStorageMetadata"),
    RECORD(CHECKPOINT "metadata", "ChunkStorageMetadata"),
    RECORD(CHECKPOINT "metadata", "BytesStorageMetadata"),
    RECORD(CHECKPOINT "metadata", "TensorProperties"),
    RECORD(CHECKPOINT "filesystem", "_StorageInfo"),
    RECORD(CHECKPOINT_OF_1 "metadata", "Metadata"),
    RECORD(CHECKPOINT_OF_1 "metadata", "MetadataIndex"),
    RECORD(CHECKPOINT_OF_1 "metadata", "TensorStorageMetadata"),
    RECORD(CHECKPOINT_OF_1 "metadata", "ChunkStorageMetadata"),
    RECORD(CHECKPOINT_OF_1 "metadata", "BytesStorageMetadata"),
    RECORD(CHECKPOINT_OF_1 "filesystem", "_StorageInfo"),
    RECORD("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"),
    STORAGE("Float", CZ_F32, 4),
    STORAGE("Double", CZ_F64, 8),
    STORAGE("Half", CZ_F16, 2),
    STORAGE("BFloat16", CZ_BF16, 2),
    STORAGE("Int", CZ_I32, 4),
    STORAGE("Long", CZ_I64, 8),
    STORAGE("Byte", CZ_U8, 1),
    STORAGE("Bool", CZ_U8, 1), /* 0 and 1 */
    STORAGE("Char", (cz_dtype)CZ__TYPE_I8, 1),
    STORAGE("Short", (cz_dtype)CZ__TYPE_I16, 2),
    STORAGE("ComplexFloat", (cz_dtype)CZ__TYPE_C64, 8),
    STORAGE("ComplexDouble", (cz_dtype)CZ__TYPE_C128, 16),
    STORAGE("QInt8", NO_DTYPE, 1),
    STORAGE("QUInt8", NO_DTYPE, 1),
    STORAGE("QInt32", NO_DTYPE, 4),
    STORAGE("Untyped", NO_DTYPE, 0),
    {"torch.storage", "UntypedStorage", CZ__PICKLE_STORAGE, NO_DTYPE, 0, NULL},
    {"torch.storage", "_UntypedStorage", CZ__PICKLE_STORAGE, NO_DTYPE, 0, NULL},
    {"torch.storage", "TypedStorage", CZ__PICKLE_STORAGE, NO_DTYPE, 0, NULL},
    DTYPE("float32", CZ_F32, 4),
    DTYPE("float64", CZ_F64, 8),
    DTYPE("float16", CZ_F16, 2),
    DTYPE("bfloat16", CZ_BF16, 2),
    DTYPE("int32", CZ_I32, 4),
    DTYPE("int64", CZ_I64, 8),
    DTYPE("uint8", CZ_U8, 1),
    DTYPE("bool", CZ_U8, 1),
    DTYPE("int8", (cz_dtype)CZ__TYPE_I8, 1),
    DTYPE("int16", (cz_dtype)CZ__TYPE_I16, 2),
    DTYPE("uint16", (cz_dtype)CZ__TYPE_U16, 2),
    DTYPE("uint32", (cz_dtype)CZ__TYPE_U32, 4),
    DTYPE("uint64", (cz_dtype)CZ__TYPE_U64, 8),
    DTYPE("complex32", NO_DTYPE, 4),
    DTYPE("complex64", (cz_dtype)CZ__TYPE_C64, 8),
    DTYPE("complex128", (cz_dtype)CZ__TYPE_C128, 16),
    DTYPE("float8_e4m3fn", (cz_dtype)CZ__TYPE_F8_E4M3, 1),
    DTYPE("float8_e5m2", (cz_dtype)CZ__TYPE_F8_E5M2, 1),
    REFUSED("_rebuild_sparse_tensor", "sparse tensors: save them as .to_dense()"),
    REFUSED("_rebuild_sparse_csr_tensor", "sparse tensors: save them as .to_dense()"),
    REFUSED("_rebuild_qtensor", "quantised tensors: save them as .dequantize()"),
    REFUSED("_rebuild_meta_tensor_no_storage", "tensors on the meta device, without elements"),
    REFUSED("_rebuild_wrapper_subclass", "tensors of a class of the program's own"),
};

const cz__pickle_global *cz__pickle_global_find(const char *module, const char *name)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (strcmp(globals[i].name, name) == 0 && strcmp(globals[i].module, module) == 0)
            return &globals[i];
    return NULL;
}

bool cz__pickle_is_attack(const char *module, const char *name)
{
    static const char *const modules[] = {
        "os",      "posix",      "nt",        "subprocess", "sys",    "runpy",    "pty",
        "shutil",  "webbrowser", "importlib", "ctypes",     "socket", "code",     "pickle",
        "_pickle", "torch.hub",  "timeit",    "pdb",        "bdb",    "cProfile", "imp",
        "marshal", "pip",        "commands",  "popen2"};
    static const char *const own[] = {
        "eval", "exec",    "execfile", "compile", "open", "input",  "setattr",    "delattr",
        "vars", "globals", "locals",   "apply",   "map",  "filter", "__import__", "breakpoint"};
    const bool builtin = strcmp(module, "builtins") == 0 || strcmp(module, "__builtin__") == 0;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strcmp(module, modules[i]) == 0)
            return true;
    if (builtin) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (strcmp(name, own[i]) == 0)
                return true;
    }
    const bool opens =
        strcmp(name, "open") == 0 && (!strcmp(module, "io") || !strcmp(module, "_io"));
    return opens || (strcmp(name, "load") == 0 &&
                     (strcmp(module, "torch") == 0 || strcmp(module, "torch.serialization") == 0));
}
