/* SPDX-License-Identifier: MIT */
/* The names of Python that mean something here, all of them; and some that never do. */
#include <string.h>

#include "io/pickle.h"
#include "io/types.h"

#define STORAGE(name, dtype, bytes)                                                                \
    {                                                                                              \
        "torch", name "Storage", CZ__PICKLE_STORAGE, dtype, bytes, NULL                            \
    }
#define DTYPE(name, dtype, bytes)                                                                  \
    {                                                                                              \
        "torch", name, CZ__PICKLE_DTYPE, dtype, bytes, NULL                                        \
    }
#define NO_DTYPE ((cz_dtype)0)
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
    for (size_t i = 0; builtin && i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return true;
    const bool opens =
        strcmp(name, "open") == 0 && (!strcmp(module, "io") || !strcmp(module, "_io"));
    return opens || (strcmp(name, "load") == 0 &&
                     (strcmp(module, "torch") == 0 || strcmp(module, "torch.serialization") == 0));
}
