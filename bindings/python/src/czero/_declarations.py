# SPDX-License-Identifier: MIT
"""What the headers of the library declare. Written by generate.py; do not edit."""
from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p)

from ._struct import Struct

CZ_VERSION_MAJOR = 0
CZ_VERSION_MINOR = 1
CZ_VERSION_PATCH = 0
CZ_OK = 0
CZ_ERR_ARGUMENT = 1
CZ_ERR_MEMORY = 2
CZ_ERR_STATE = 3
CZ_ERR_UNSUPPORTED = 4
CZ_ERR_MISMATCH = 5
CZ_ERR_PEER = 6
CZ_ERR_TIMEOUT = 7
CZ_ERR_IO = 8
CZ_ERR_INTERNAL = 9
CZ_ERR_FORMAT = 10
CZ_F32 = 1
CZ_F64 = 2
CZ_F16 = 3
CZ_BF16 = 4
CZ_I32 = 5
CZ_I64 = 6
CZ_U8 = 7
CZ_MEMORY_GENERAL = 0
CZ_MEMORY_STATE = 1
CZ_MEMORY_STAGING = 2
CZ_MEMORY_GRADIENT = 3
CZ_MEMORY_STATE_DICT = 4
CZ_LOG_OFF = 0
CZ_LOG_ERROR = 1
CZ_LOG_WARN = 2
CZ_LOG_INFO = 3
CZ_LOG_DEBUG = 4
CZ_SUM_CHUNKS = 70
CZ_DEVICE_ABI = 5
CZ_SUM = 1
CZ_AVERAGE = 2
CZ_MAX = 3
CZ_MIN = 4
CZ_PRODUCT = 5
CZ_AND = 6
CZ_OR = 7
CZ_MAX_DIMENSIONS = 8
CZ_DENSE = 0
CZ_SPARSE_ROWS = 1
CZ_GRANULE_ROW = -1
CZ_GRANULE_WHOLE = -2
CZ_RULE_ABI = 3
CZ_RULE_COEFFICIENTS = 16
CZ_RULE_SUMS = 8
CZ_RULE_REGISTERED = 256
CZ_SLOT_ELEMENT = 0
CZ_SLOT_SCALAR = 1
CZ_STATE_MAX_DEPTH = 64
CZ_STATE_NONE = 0
CZ_STATE_INTEGER = 1
CZ_STATE_REAL = 2
CZ_STATE_TEXT = 3
CZ_STATE_TEXTS = 4
CZ_STATE_TENSOR = 5
CZ_STATE_DICT = 6
CZ_ALL_GROUPS = -1
CZ_MASTER_DEFAULT = 0
CZ_MASTER_COPY = 1
CZ_MASTER_NONE = 2
CZ_MOVING_AVERAGE_NONE = 0
CZ_MOVING_AVERAGE_EMA = 1
CZ_MOVING_AVERAGE_MEAN = 2
CZ_MISSING_NONE = 0
CZ_MISSING_KEEP = 1
CZ_MISSING_REFUSE = 2
CZ_JOIN_BY_WORLD = 0
CZ_JOIN_BY_ACTIVE = 1
CZ_JOIN_BY_WEIGHT = 2
CZ_HOOK_WHOLE = 0
CZ_HOOK_SLICE = 1
CZ_TRACE_AGREE = 0
CZ_TRACE_REDUCE = 1
CZ_TRACE_UPDATE = 2
CZ_TRACE_SYNC = 3
CZ_TRACE_FUSED = 4
CZ_ALL_RANKS = -1
CZ_PARTITION_ELEMENTS = 0
CZ_PARTITION_GREEDY = 1
CZ_PARTITION_GIVEN = 2
CZ_PARTITION_BUCKETS = 3
CZ_PARTITION_BUCKET_PIECES = 4
CZ_GRADIENTS_LOCAL = 0
CZ_GRADIENTS_REDUCED = 1
CZ_GRADIENTS_SUM = 2
CZ_OVERLAP_NONE = 0
CZ_OVERLAP_INTERLEAVED = 1
CZ_OVERLAP_STEP = 2
CZ_OVERLAP_UNINITIALIZED = 0
CZ_OVERLAP_DDP_HAS_REBUILT_BUCKETS = 1
CZ_OVERLAP_INITIALIZED = 2
CZ_NEWEST = -1
CZ_BACKEND_ABI = 1
CZ_PLAN_ALONE = -1
CZ_SHAPE_PARAM = 0
CZ_SHAPE_FROZEN = 1
CZ_SHAPE_BUFFER = 2
CZ_SCHED_TRIANGULAR = 0
CZ_SCHED_TRIANGULAR2 = 1
CZ_SCHED_EXP_RANGE = 2

ENUMS = {
    "cz_status": {
        "CZ_OK": 0,
        "CZ_ERR_ARGUMENT": 1,
        "CZ_ERR_MEMORY": 2,
        "CZ_ERR_STATE": 3,
        "CZ_ERR_UNSUPPORTED": 4,
        "CZ_ERR_MISMATCH": 5,
        "CZ_ERR_PEER": 6,
        "CZ_ERR_TIMEOUT": 7,
        "CZ_ERR_IO": 8,
        "CZ_ERR_INTERNAL": 9,
        "CZ_ERR_FORMAT": 10,
    },
    "cz_dtype": {
        "CZ_F32": 1,
        "CZ_F64": 2,
        "CZ_F16": 3,
        "CZ_BF16": 4,
        "CZ_I32": 5,
        "CZ_I64": 6,
        "CZ_U8": 7,
    },
    "cz_memory_kind": {
        "CZ_MEMORY_GENERAL": 0,
        "CZ_MEMORY_STATE": 1,
        "CZ_MEMORY_STAGING": 2,
        "CZ_MEMORY_GRADIENT": 3,
        "CZ_MEMORY_STATE_DICT": 4,
    },
    "cz_log_level": {
        "CZ_LOG_OFF": 0,
        "CZ_LOG_ERROR": 1,
        "CZ_LOG_WARN": 2,
        "CZ_LOG_INFO": 3,
        "CZ_LOG_DEBUG": 4,
    },
    "cz_reduction": {
        "CZ_SUM": 1,
        "CZ_AVERAGE": 2,
        "CZ_MAX": 3,
        "CZ_MIN": 4,
        "CZ_PRODUCT": 5,
        "CZ_AND": 6,
        "CZ_OR": 7,
    },
    "cz_layout": {
        "CZ_DENSE": 0,
        "CZ_SPARSE_ROWS": 1,
    },
    "cz_slot_kind": {
        "CZ_SLOT_ELEMENT": 0,
        "CZ_SLOT_SCALAR": 1,
    },
    "cz_state_kind": {
        "CZ_STATE_NONE": 0,
        "CZ_STATE_INTEGER": 1,
        "CZ_STATE_REAL": 2,
        "CZ_STATE_TEXT": 3,
        "CZ_STATE_TEXTS": 4,
        "CZ_STATE_TENSOR": 5,
        "CZ_STATE_DICT": 6,
    },
    "cz_master": {
        "CZ_MASTER_DEFAULT": 0,
        "CZ_MASTER_COPY": 1,
        "CZ_MASTER_NONE": 2,
    },
    "cz_moving_average_kind": {
        "CZ_MOVING_AVERAGE_NONE": 0,
        "CZ_MOVING_AVERAGE_EMA": 1,
        "CZ_MOVING_AVERAGE_MEAN": 2,
    },
    "cz_missing_state": {
        "CZ_MISSING_NONE": 0,
        "CZ_MISSING_KEEP": 1,
        "CZ_MISSING_REFUSE": 2,
    },
    "cz_join_divide": {
        "CZ_JOIN_BY_WORLD": 0,
        "CZ_JOIN_BY_ACTIVE": 1,
        "CZ_JOIN_BY_WEIGHT": 2,
    },
    "cz_hook_result": {
        "CZ_HOOK_WHOLE": 0,
        "CZ_HOOK_SLICE": 1,
    },
    "cz_trace_point": {
        "CZ_TRACE_AGREE": 0,
        "CZ_TRACE_REDUCE": 1,
        "CZ_TRACE_UPDATE": 2,
        "CZ_TRACE_SYNC": 3,
        "CZ_TRACE_FUSED": 4,
    },
    "cz_partition": {
        "CZ_PARTITION_ELEMENTS": 0,
        "CZ_PARTITION_GREEDY": 1,
        "CZ_PARTITION_GIVEN": 2,
        "CZ_PARTITION_BUCKETS": 3,
        "CZ_PARTITION_BUCKET_PIECES": 4,
    },
    "cz_gradients": {
        "CZ_GRADIENTS_LOCAL": 0,
        "CZ_GRADIENTS_REDUCED": 1,
        "CZ_GRADIENTS_SUM": 2,
    },
    "cz_overlap": {
        "CZ_OVERLAP_NONE": 0,
        "CZ_OVERLAP_INTERLEAVED": 1,
        "CZ_OVERLAP_STEP": 2,
    },
    "cz_overlap_status": {
        "CZ_OVERLAP_UNINITIALIZED": 0,
        "CZ_OVERLAP_DDP_HAS_REBUILT_BUCKETS": 1,
        "CZ_OVERLAP_INITIALIZED": 2,
    },
    "cz_shape_kind": {
        "CZ_SHAPE_PARAM": 0,
        "CZ_SHAPE_FROZEN": 1,
        "CZ_SHAPE_BUFFER": 2,
    },
    "cz_sched_cycle": {
        "CZ_SCHED_TRIANGULAR": 0,
        "CZ_SCHED_TRIANGULAR2": 1,
        "CZ_SCHED_EXP_RANGE": 2,
    },
}



class cz_allocator(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("allocate", CFUNCTYPE(c_void_p, c_size_t, c_size_t, c_void_p)),
        ("release", CFUNCTYPE(None, c_void_p, c_size_t, c_void_p)),
        ("context", c_void_p),
    ]

cz_log_sink = CFUNCTYPE(None, c_int, c_char_p, c_void_p)


class cz_sum(Struct):
    _fields_ = [
        ("chunks", c_int64 * 70),
    ]

cz_update_kernel = CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, POINTER(c_void_p),
        POINTER(c_double), c_uint)

cz_sums_kernel = CFUNCTYPE(None, c_void_p, c_int64, c_void_p, c_void_p, POINTER(c_void_p),
        POINTER(c_double), c_uint, POINTER(cz_sum))


class cz_matmul(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("rows", c_int64),
        ("columns", c_int64),
        ("inner", c_int64),
        ("transposed_a", c_bool),
        ("transposed_b", c_bool),
        ("symmetric", c_bool),
        ("alpha", c_double),
        ("beta", c_double),
        ("a", c_void_p),
        ("b", c_void_p),
        ("addend", c_void_p),
        ("c", c_void_p),
        ("scratch", c_void_p),
    ]


class cz_device(Struct):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_size_t),
        ("name", c_char_p),
        ("allocate", CFUNCTYPE(c_int, c_int, c_size_t, POINTER(c_void_p))),
        ("release", CFUNCTYPE(None, c_void_p)),
        ("copy", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)),
        ("zero", CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)),
        ("fill", CFUNCTYPE(c_int, c_void_p, c_int, c_double, c_int64, c_void_p)),
        ("scale", CFUNCTYPE(c_int, c_void_p, c_int, c_double, c_int64, c_void_p)),
        ("convert", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_int, c_void_p, c_int64)),
        ("reduce", CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, POINTER(c_void_p), c_int64,
                c_int, c_void_p)),
        ("add_squares", CFUNCTYPE(c_int, c_void_p, c_int, c_int64, c_void_p, POINTER(cz_sum))),
        ("find_update", CFUNCTYPE(cz_update_kernel, c_char_p, c_int, c_int, c_int)),
        ("copy_once", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)),
        ("add_print", CFUNCTYPE(c_int, c_void_p, c_uint64, c_int, c_int64, c_int64, c_void_p,
                POINTER(c_uint64))),
        ("convert_stochastic", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, POINTER(c_float),
                c_int64, c_uint64, c_int64)),
        ("refresh", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, POINTER(c_float), c_int64)),
        ("find_sums", CFUNCTYPE(cz_sums_kernel, c_char_p, c_int, c_int, c_int)),
        ("matmul", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(cz_matmul))),
        ("average", CFUNCTYPE(c_int, c_void_p, c_int, c_double, c_int64, c_void_p, c_void_p)),
    ]


class cz_tensor(Struct):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int),
        ("layout", c_int),
        ("dimensions", c_int),
        ("shape", c_int64 * 8),
        ("device", POINTER(cz_device)),
    ]


class cz_view(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("layers", c_int64),
        ("dimensions", c_int),
        ("shape", c_int64 * 8),
    ]


class cz_model_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("param_count", c_int64),
        ("buffer_count", c_int64),
        ("element_count", c_int64),
    ]


class cz_model_param(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("value", POINTER(cz_tensor)),
        ("gradient", POINTER(cz_tensor)),
        ("requires_grad", c_int32),
        ("reserved", c_int32),
    ]


class cz_group_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("timeout_seconds", c_double),
        ("warn_seconds", c_double),
        ("segment_bytes", c_size_t),
        ("checked", c_int32),
        ("reserved", c_int32),
    ]


class cz_group_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("backend", c_char_p),
        ("ordered_sums", c_int32),
        ("reserved", c_int32),
        ("sent_bytes", c_uint64),
        ("header_bytes", c_uint64),
        ("messages", c_uint64),
        ("native", c_uint64),
        ("local_rank", c_int32),
        ("local_size", c_int32),
    ]


class cz_operation_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("label", c_char_p),
        ("work", POINTER(c_void_p)),
    ]

cz_continuation = CFUNCTYPE(c_int, c_int, c_void_p)


class cz_replicas_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("parameters_only", c_int32),
        ("reserved", c_int32),
    ]

cz_rank_main = CFUNCTYPE(c_int, c_void_p, c_void_p)


class cz_launch_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("ranks", c_int32),
        ("reserved", c_int32),
        ("timeout_seconds", c_double),
        ("keep_job", c_int32),
        ("reserved_2", c_int32),
    ]


class cz_hyper(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
    ]


class cz_hyper_spec(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("initial", c_double),
        ("minimum", c_double),
        ("maximum", c_double),
        ("below_maximum", c_bool),
        ("flag", c_bool),
    ]


class cz_slot_spec(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("initial", c_double),
        ("initial_hyper", c_char_p),
    ]


class cz_rule_step(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("hypers", POINTER(c_double)),
        ("step", c_int64),
        ("scalars", POINTER(c_double)),
        ("argument", c_void_p),
        ("context", c_void_p),
    ]


class cz_tensor_update(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("param", POINTER(cz_tensor)),
        ("grad", c_void_p),
        ("slots", POINTER(c_void_p)),
        ("coefficients", POINTER(c_double)),
        ("flags", c_uint),
        ("scratch", c_void_p),
        ("context", c_void_p),
    ]


class cz_rule(Struct):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_size_t),
        ("name", c_char_p),
        ("context", c_void_p),
        ("hyper_size", c_size_t),
        ("slot_size", c_size_t),
        ("hyper_count", c_int),
        ("hypers", POINTER(cz_hyper_spec)),
        ("slot_count", c_int),
        ("slots", POINTER(cz_slot_spec)),
        ("state_at_create", c_bool),
        ("check", CFUNCTYPE(c_int, POINTER(c_double))),
        ("check_param", CFUNCTYPE(c_int, POINTER(cz_tensor), c_void_p)),
        ("slots_used", CFUNCTYPE(c_uint, POINTER(c_double))),
        ("begin_step", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)),
        ("prepare", CFUNCTYPE(None, POINTER(cz_rule_step), POINTER(c_double), POINTER(c_uint))),
        ("find_kernel", CFUNCTYPE(cz_update_kernel, POINTER(cz_device), c_int, c_int, c_int,
                c_void_p)),
        ("sum_count", c_int),
        ("find_sums", CFUNCTYPE(cz_sums_kernel, POINTER(cz_device), c_int, c_int, c_int,
                c_void_p)),
        ("combine", CFUNCTYPE(None, POINTER(cz_rule_step), POINTER(c_double), POINTER(c_double),
                POINTER(c_uint))),
        ("update_tensor", CFUNCTYPE(None, POINTER(cz_tensor_update))),
        ("scratch_bytes", CFUNCTYPE(c_size_t, POINTER(cz_tensor), c_void_p)),
        ("in_f32", c_bool),
        ("evaluated", CFUNCTYPE(c_double, POINTER(c_double), POINTER(c_int))),
        ("granule", c_int64),
        ("cost", CFUNCTYPE(c_double, POINTER(cz_tensor), c_void_p)),
    ]


class cz_moving_average(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("warm_up", c_int32),
        ("decay", c_double),
        ("start", c_int64),
        ("every", c_int64),
    ]
    _defaults_ = {'kind': 1, 'decay': 0.999, 'every': 1}


class cz_param_group(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("params", POINTER(c_int64)),
        ("param_count", c_int64),
        ("hypers", POINTER(cz_hyper)),
        ("master", c_int),
        ("state_dtype", c_int),
        ("rule", POINTER(cz_rule)),
        ("granule", c_int64),
        ("average", POINTER(cz_moving_average)),
    ]


class cz_loss_scale(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("scale", c_double),
        ("growth", c_double),
        ("backoff", c_double),
        ("interval", c_int64),
        ("good_steps", c_int64),
    ]
    _defaults_ = {'scale': 65536, 'growth': 2, 'backoff': 0.5, 'interval': 2000}


class cz_step_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("closure", CFUNCTYPE(c_int, POINTER(c_double), c_void_p)),
        ("closure_context", c_void_p),
        ("argument", c_void_p),
        ("gradients", POINTER(c_void_p)),
        ("gradient_count", c_int64),
        ("max_norm", c_double),
        ("skip_nonfinite", c_int32),
        ("norm", c_int32),
        ("allow_no_gradients", c_int32),
        ("reserved", c_int32),
        ("loss_scale", POINTER(cz_loss_scale)),
    ]


class cz_step_result(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("loss", c_double),
        ("norm", c_double),
        ("skipped", c_int32),
        ("reserved", c_int32),
    ]


class cz_optim_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("groups", POINTER(cz_param_group)),
        ("group_count", c_int64),
        ("threads", c_int32),
        ("reserved", c_int32),
        ("master", c_int),
        ("state_dtype", c_int),
        ("seed", c_uint64),
        ("average", POINTER(cz_moving_average)),
        ("u8_from", c_int64),
    ]


class cz_optim_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("rule", POINTER(cz_rule)),
        ("group_count", c_int64),
        ("skip_count", c_int64),
        ("state_bytes", c_size_t),
    ]


class cz_optim_load_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("missing", c_int),
        ("reserved", c_int32),
    ]


class cz_parts_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("count", c_int32),
        ("reserved", c_int32),
    ]

cz_parts_run = CFUNCTYPE(c_int, c_int, c_void_p)


class cz_parts_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("group", c_void_p),
        ("model", c_void_p),
        ("count", c_int32),
        ("own_count", c_int32),
        ("added", c_int32),
        ("weightless", c_int32),
        ("kept_bytes", c_size_t),
    ]


class cz_in_backward_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("released", CFUNCTYPE(None, c_int64, c_void_p, c_void_p)),
        ("context", c_void_p),
        ("background", c_int32),
        ("undo", c_int32),
        ("undo_bytes", c_uint64),
        ("group", c_void_p),
    ]


class cz_join_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("divide", c_int),
        ("end_early", c_int32),
        ("disabled", c_int32),
        ("step", POINTER(cz_step_options)),
    ]


class cz_joinable(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("object", c_void_p),
        ("enter", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)),
        ("shadow", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("finish", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("abandon", CFUNCTYPE(None, c_void_p, c_int)),
    ]


class cz_join_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("active_count", c_int32),
        ("source", c_int32),
        ("last", c_int32),
        ("is_last", c_int32),
        ("shadow_count", c_int64),
        ("step", POINTER(cz_step_options)),
        ("divide", c_int),
        ("reserved", c_int32),
    ]
    _defaults_ = {'source': -1, 'last': -1}


class cz_span(Struct):
    _fields_ = [
        ("param", c_int64),
        ("begin", c_int64),
        ("end", c_int64),
        ("rank", c_int),
    ]


class cz_span_iterator(Struct):
    _fields_ = [
        ("map", c_void_p),
        ("rank", c_int),
        ("range", c_int64),
        ("position", c_int64),
        ("begin", c_int64),
        ("end", c_int64),
    ]


class cz_ddp_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("bucket_bytes", c_size_t),
        ("first_bucket_bytes", c_size_t),
        ("find_unused", c_int32),
        ("keep_buckets", c_int32),
        ("keep_values", c_int32),
        ("keep_buffers", c_int32),
        ("all_reduce", c_int32),
        ("static_graph", c_int32),
        ("parts", c_void_p),
    ]


class cz_hook(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("result", c_int),
        ("run", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("state", c_void_p),
        ("release", CFUNCTYPE(None, c_void_p)),
    ]


class cz_ddp_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("model", c_void_p),
        ("hook", c_char_p),
        ("passes", c_int64),
        ("bucket_count", c_int32),
        ("rebuilt", c_int32),
    ]


class cz_bucket_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("index", c_int32),
        ("is_last", c_int32),
        ("param_count", c_int64),
        ("pass", c_int64),
        ("buffer", c_void_p),
        ("count", c_int64),
        ("dtype", c_int),
        ("reserved", c_int32),
        ("device", POINTER(cz_device)),
        ("group", c_void_p),
        ("map", c_void_p),
    ]
    _defaults_ = {'index': -1}


class cz_bucket_param(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("param", c_int64),
        ("offset", c_int64),
        ("is_used", c_int32),
        ("reserved", c_int32),
    ]
    _defaults_ = {'param': -1}


class cz_trace_totals(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("count", c_int64),
        ("seconds", c_double),
        ("bytes", c_uint64),
    ]


class cz_zero_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("partition", c_int),
        ("gradients", c_int),
        ("groups", POINTER(cz_param_group)),
        ("group_count", c_int64),
        ("owners", POINTER(c_int)),
        ("owner_count", c_int64),
        ("parameters_as_bucket_view", c_int32),
        ("overlap", c_int),
        ("moved", CFUNCTYPE(None, c_int64, c_void_p, c_void_p)),
        ("moved_context", c_void_p),
        ("ddp", c_void_p),
        ("overlap_gather", c_int32),
        ("threads", c_int32),
        ("parts", c_void_p),
        ("master", c_int),
        ("state_dtype", c_int),
        ("seed", c_uint64),
        ("average", POINTER(cz_moving_average)),
        ("u8_from", c_int64),
    ]


class cz_zero_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("group", c_void_p),
        ("model", c_void_p),
        ("ddp", c_void_p),
        ("device", POINTER(cz_device)),
        ("partition", c_int),
        ("gradients", c_int),
        ("overlap", c_int),
        ("overlap_status", c_int),
        ("group_count", c_int64),
        ("skip_count", c_int64),
        ("state_bytes", c_size_t),
        ("shard_map", c_void_p),
    ]


class cz_checkpoint_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("model", c_void_p),
        ("zero", c_void_p),
        ("optim", c_void_p),
        ("keep", c_int32),
        ("reserved", c_int32),
        ("parts", c_void_p),
    ]


class cz_save_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("common", c_void_p),
        ("own", c_void_p),
    ]


class cz_load_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("missing_ok", c_int32),
        ("fall_back", c_int32),
        ("permissive", c_int32),
        ("convert", c_int32),
    ]
    _defaults_ = {'step': -1}


class cz_load_result(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("generation", c_int64),
        ("world_size", c_int64),
        ("common", c_void_p),
        ("own", c_void_p),
    ]
    _defaults_ = {'step': -1, 'generation': -1}


class cz_export_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("common", c_void_p),
        ("max_file_bytes", c_uint64),
        ("parameters_only", c_int32),
        ("reserved", c_int32),
    ]


class cz_archive_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("path", c_char_p),
        ("kind", c_char_p),
        ("notes", c_char_p),
        ("optimizer", c_void_p),
        ("step", c_int64),
        ("generation", c_int64),
        ("world_size", c_int64),
        ("param_count", c_int64),
        ("buffer_count", c_int64),
        ("id", c_char_p),
        ("library", c_char_p),
        ("foreign", c_int32),
        ("torch", c_int32),
        ("parts", c_int64),
    ]
    _defaults_ = {'step': -1, 'generation': -1}


class cz_archive_tensor(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("type", c_char_p),
        ("dtype", c_int),
        ("dimensions", c_int32),
        ("shape", c_int64 * 8),
        ("count", c_int64),
        ("element_size", c_size_t),
        ("first_rank", c_int32),
        ("last_rank", c_int32),
    ]
    _defaults_ = {'first_rank': -1, 'last_rank': -1}

cz_archive_problem = CFUNCTYPE(c_int, c_char_p, c_void_p)


class cz_verify_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("problem", cz_archive_problem),
        ("progress", CFUNCTYPE(None, c_uint64, c_uint64, c_void_p)),
        ("context", c_void_p),
    ]


class cz_verify_result(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("problems", c_int64),
        ("tensors", c_int64),
        ("checksums", c_int64),
        ("bytes", c_uint64),
    ]


class cz_archive_generation(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("path", c_char_p),
        ("number", c_int64),
        ("step", c_int64),
        ("complete", c_int32),
        ("reserved", c_int32),
    ]

cz_archive_visitor = CFUNCTYPE(c_int, POINTER(cz_archive_generation), c_void_p)


class cz_averager_level(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("period", c_int64),
        ("ranks", c_int32),
        ("reserved", c_int32),
    ]


class cz_averager_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("warmup_steps", c_int64),
        ("allow_no_gradients", c_int32),
        ("reserved", c_int32),
    ]


class cz_transfer(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("peer", c_int),
        ("tag", c_uint64),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("device", POINTER(cz_device)),
        ("queue", c_void_p),
        ("own", c_void_p * 6),
        ("at_most", c_bool),
        ("came", c_size_t),
    ]


class cz_collective(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("tag", c_uint64),
        ("in_order", c_bool),
        ("root", c_int),
        ("input", c_void_p),
        ("output", c_void_p),
        ("count", c_int64),
        ("dtype", c_int),
        ("reduction", c_int),
        ("device", POINTER(cz_device)),
        ("queue", c_void_p),
        ("own", c_void_p * 6),
    ]


class cz_backend(Struct):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_size_t),
        ("name", c_char_p),
        ("start", CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)),
        ("post_send", CFUNCTYPE(c_int, c_void_p, POINTER(cz_transfer))),
        ("post_receive", CFUNCTYPE(c_int, c_void_p, POINTER(cz_transfer))),
        ("test", CFUNCTYPE(c_int, c_void_p, POINTER(cz_transfer), POINTER(c_bool))),
        ("withdraw", CFUNCTYPE(c_bool, c_void_p, POINTER(cz_transfer))),
        ("break_group", CFUNCTYPE(None, c_void_p, c_uint64, c_int, c_char_p)),
        ("broken", CFUNCTYPE(c_int, c_void_p, POINTER(c_uint64), c_void_p, c_size_t)),
        ("announce", CFUNCTYPE(None, c_void_p, c_uint64)),
        ("announced", CFUNCTYPE(c_uint64, c_void_p, c_int)),
        ("leave", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("poll", CFUNCTYPE(None, c_void_p)),
        ("poll_seconds", c_double),
        ("inline_only", c_bool),
        ("split", CFUNCTYPE(c_int, c_void_p, c_uint64, POINTER(c_int), c_int, c_int,
                POINTER(c_void_p))),
        ("all_reduce", CFUNCTYPE(c_int, c_void_p, POINTER(cz_collective))),
        ("reduce_scatter", CFUNCTYPE(c_int, c_void_p, POINTER(cz_collective))),
        ("all_gather", CFUNCTYPE(c_int, c_void_p, POINTER(cz_collective))),
        ("broadcast", CFUNCTYPE(c_int, c_void_p, POINTER(cz_collective))),
        ("barrier", CFUNCTYPE(c_int, c_void_p, POINTER(cz_collective))),
        ("test_collective", CFUNCTYPE(c_int, c_void_p, POINTER(cz_collective), POINTER(c_bool))),
        ("withdraw_collective", CFUNCTYPE(c_bool, c_void_p, POINTER(cz_collective))),
        ("window", CFUNCTYPE(c_void_p, c_void_p, c_int, POINTER(c_size_t))),
        ("present", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("machine", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("one_thread", c_bool),
        ("attend", CFUNCTYPE(c_bool, c_void_p, c_bool)),
        ("at_most", c_bool),
    ]

cz_powersgd_gemm = CFUNCTYPE(None, c_void_p, c_bool, c_int64, c_int64, c_int32, POINTER(c_float),
        POINTER(c_float), POINTER(c_float))


class cz_powersgd_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int32),
        ("drop_errors", c_int32),
        ("cold_start", c_int32),
        ("batched", c_int32),
        ("start_iter", c_int64),
        ("min_compression_rate", c_double),
        ("epsilon", c_double),
        ("seed", c_uint32),
        ("draw_by_shape", c_int32),
        ("log_every", c_int64),
        ("gemm", cz_powersgd_gemm),
        ("gemm_context", c_void_p),
    ]


class cz_powersgd_stats(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("iter", c_int64),
        ("before", c_int64),
        ("after", c_int64),
        ("rate", c_double),
    ]


class cz_post_local_sgd(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("local_gradients", c_int32),
        ("subgroup", c_void_p),
        ("start_iter", c_int64),
    ]


class cz_mixed_precision(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("reduce_dtype", c_int),
        ("full", POINTER(cz_tensor)),
        ("ready", CFUNCTYPE(c_int, c_void_p, c_int64)),
        ("context", c_void_p),
    ]


class cz_hook_record(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("calls", c_int64),
        ("failures", c_int64),
        ("elements", c_int64),
        ("dtype", c_int),
        ("seconds", c_double),
        ("norm_before", c_double),
        ("norm_after", c_double),
    ]


class cz_hook_recorder(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("inner", POINTER(cz_hook)),
        ("records", POINTER(cz_hook_record)),
        ("count", c_int64),
    ]


class cz_plan_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("world_size", c_int32),
        ("unsharded", c_int32),
        ("partition", c_int),
        ("ddp", c_int32),
        ("overlap", c_int),
        ("all_reduce", c_int32),
        ("views", c_int32),
        ("wire", c_int),
        ("bucket_bytes", c_size_t),
        ("first_bucket_bytes", c_size_t),
        ("segment_bytes", c_size_t),
        ("rule", POINTER(cz_rule)),
        ("hypers", POINTER(cz_hyper)),
        ("in_process", c_int32),
        ("parts", c_int32),
        ("average", c_int32),
        ("reserved", c_int32),
        ("groups", POINTER(cz_param_group)),
        ("group_count", c_int64),
        ("granule", c_int64),
    ]


class cz_plan_memory(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("param_bytes", c_uint64),
        ("buffer_bytes", c_uint64),
        ("gradient_bytes", c_uint64),
        ("state_bytes", c_uint64),
        ("view_bytes", c_uint64),
        ("hook_bytes", c_uint64),
        ("staging_bytes", c_uint64),
        ("table_bytes", c_uint64),
        ("training_bytes", c_uint64),
        ("save_bytes", c_uint64),
        ("async_save_bytes", c_uint64),
        ("export_bytes", c_uint64),
        ("consolidate_bytes", c_uint64),
        ("consolidate_all_bytes", c_uint64),
        ("file_bytes", c_uint64),
        ("sent_bytes", c_uint64),
        ("part_bytes", c_uint64),
    ]


class cz_plan_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("world_size", c_int32),
        ("bucket_count", c_int32),
        ("tensors", c_int64 * 3),
        ("elements", c_int64 * 3),
    ]


class cz_sampler_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("sample_count", c_int64),
        ("global_batch", c_int64),
        ("rank", c_int),
        ("world_size", c_int),
        ("seed", c_uint64),
        ("in_order", c_int32),
        ("part_count", c_int32),
    ]


class cz_sampler_info(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("local_batch", c_int64),
        ("position", c_int64),
    ]


class cz_sched_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("first_epoch", c_int64),
    ]

cz_sched_function = CFUNCTYPE(c_double, c_int64, c_int64, c_void_p)


class cz_sched_one_cycle_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("first_epoch", c_int64),
        ("pct_start", c_double),
        ("base_momentum", c_double),
        ("max_momentum", c_double),
        ("div_factor", c_double),
        ("final_div_factor", c_double),
        ("max_lrs", POINTER(c_double)),
        ("linear", c_int32),
        ("three_phase", c_int32),
        ("fixed_momentum", c_int32),
        ("reserved", c_int32),
    ]


class cz_sched_cyclic_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("first_epoch", c_int64),
        ("step_size_up", c_int64),
        ("step_size_down", c_int64),
        ("gamma", c_double),
        ("base_momentum", c_double),
        ("max_momentum", c_double),
        ("base_lrs", POINTER(c_double)),
        ("max_lrs", POINTER(c_double)),
        ("mode", c_int),
        ("fixed_momentum", c_int32),
    ]


class cz_sched_plateau_options(Struct):
    _fields_ = [
        ("size", c_size_t),
        ("factor", c_double),
        ("patience", c_int64),
        ("threshold", c_double),
        ("cooldown", c_int64),
        ("min_lr", c_double),
        ("eps", c_double),
        ("min_lrs", POINTER(c_double)),
        ("maximize", c_int32),
        ("absolute", c_int32),
        ("group", c_void_p),
        ("agree", c_int),
        ("reserved", c_int32),
    ]


# Of each function: what it returns, and what it is given.
FUNCTIONS = {
    "cz_all_gather": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, c_int,
            POINTER(cz_operation_options)]),
    "cz_all_gather_v": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_int64), c_int,
            POINTER(cz_operation_options)]),
    "cz_all_reduce": (c_int, [c_void_p, c_void_p, c_int64, c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_all_to_all": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, c_int,
            POINTER(cz_operation_options)]),
    "cz_all_to_all_v": (c_int, [c_void_p, c_void_p, POINTER(c_int64), c_void_p, POINTER(c_int64),
            c_int, POINTER(cz_operation_options)]),
    "cz_archive_destroy": (None, [POINTER(c_void_p)]),
    "cz_archive_file": (c_char_p, [c_void_p, c_int64]),
    "cz_archive_find": (c_int64, [c_void_p, c_char_p]),
    "cz_archive_fingerprint": (c_int, [c_void_p, POINTER(c_uint64)]),
    "cz_archive_get_info": (c_int, [c_void_p, POINTER(cz_archive_info)]),
    "cz_archive_get_tensor": (c_int, [c_void_p, c_int64, POINTER(cz_archive_tensor)]),
    "cz_archive_list": (c_int, [c_char_p, cz_archive_visitor, c_void_p]),
    "cz_archive_note": (c_char_p, [c_void_p, c_int64, POINTER(c_char_p)]),
    "cz_archive_open": (c_int, [POINTER(c_void_p), c_char_p, c_int64]),
    "cz_archive_read": (c_int, [c_void_p, c_int64, c_char_p, c_int64, c_int64, c_void_p]),
    "cz_archive_read_dict": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "cz_archive_slot": (c_char_p, [c_void_p, c_int64, c_int64, POINTER(c_int)]),
    "cz_archive_verify": (c_int, [c_void_p, POINTER(cz_verify_options),
            POINTER(cz_verify_result)]),
    "cz_averager_average": (c_int, [c_void_p, POINTER(c_int)]),
    "cz_averager_create_hierarchical": (c_int, [POINTER(c_void_p), c_void_p, c_void_p,
            POINTER(cz_averager_level), c_int64, POINTER(cz_averager_options)]),
    "cz_averager_destroy": (None, [POINTER(c_void_p)]),
    "cz_averager_load_state_dict": (c_int, [c_void_p, c_void_p]),
    "cz_averager_state_dict": (c_int, [c_void_p, POINTER(c_void_p)]),
    "cz_barrier": (c_int, [c_void_p, POINTER(cz_operation_options)]),
    "cz_broadcast": (c_int, [c_void_p, c_void_p, c_int64, c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_broadcast_object": (c_int, [c_void_p, c_void_p, c_size_t, c_int, POINTER(c_void_p),
            POINTER(c_size_t)]),
    "cz_bucket_get_info": (c_int, [c_void_p, POINTER(cz_bucket_info)]),
    "cz_bucket_get_param": (c_int, [c_void_p, c_int64, POINTER(cz_bucket_param)]),
    "cz_bucket_memory": (c_int, [c_void_p, POINTER(cz_device), c_size_t, POINTER(c_void_p)]),
    "cz_bucket_reduce": (c_int, [c_void_p, c_int]),
    "cz_bucket_replace_buffer": (c_int, [c_void_p, c_void_p, c_int]),
    "cz_bucket_then": (c_int, [c_void_p, cz_continuation, c_void_p]),
    "cz_build_info": (c_char_p, []),
    "cz_checkpoint_create": (c_int, [POINTER(c_void_p), c_void_p, c_char_p,
            POINTER(cz_checkpoint_options)]),
    "cz_checkpoint_destroy": (None, [POINTER(c_void_p)]),
    "cz_checkpoint_export": (c_int, [c_void_p, c_char_p, POINTER(cz_export_options)]),
    "cz_checkpoint_fetch_own": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "cz_checkpoint_import": (c_int, [c_void_p, c_char_p, POINTER(cz_load_options),
            POINTER(cz_load_result)]),
    "cz_checkpoint_load": (c_int, [c_void_p, POINTER(cz_load_options), POINTER(cz_load_result)]),
    "cz_checkpoint_notes": (c_char_p, [c_void_p]),
    "cz_checkpoint_save": (c_int, [c_void_p, POINTER(cz_save_options)]),
    "cz_checkpoint_save_async": (c_int, [c_void_p, POINTER(cz_save_options)]),
    "cz_checkpoint_wait": (c_int, [c_void_p]),
    "cz_ddp_abandon": (c_int, [c_void_p]),
    "cz_ddp_begin": (c_int, [c_void_p, c_bool]),
    "cz_ddp_bucket_params": (c_int64, [c_void_p, c_int, POINTER(c_int64), c_int64]),
    "cz_ddp_create": (c_int, [POINTER(c_void_p), c_void_p, c_void_p, POINTER(cz_ddp_options)]),
    "cz_ddp_destroy": (None, [POINTER(c_void_p)]),
    "cz_ddp_finish": (c_int, [c_void_p]),
    "cz_ddp_get_info": (c_int, [c_void_p, POINTER(cz_ddp_info)]),
    "cz_ddp_joinable": (c_int, [c_void_p, POINTER(cz_joinable)]),
    "cz_ddp_mark_ready": (c_int, [c_void_p, c_int64]),
    "cz_ddp_register_hook": (c_int, [c_void_p, POINTER(cz_hook)]),
    "cz_ddp_register_hook_by_name": (c_int, [c_void_p, c_char_p, c_void_p]),
    "cz_ddp_set_passes": (c_int, [c_void_p, c_int64]),
    "cz_ddp_set_uses": (c_int, [c_void_p, c_int64, c_int]),
    "cz_ddp_set_weight": (c_int, [c_void_p, c_double]),
    "cz_ddp_step_in_backward": (c_int, [c_void_p, c_void_p]),
    "cz_device_cpu": (POINTER(cz_device), []),
    "cz_dtype_name": (c_char_p, [c_int]),
    "cz_dtype_size": (c_size_t, [c_int]),
    "cz_fail_text": (c_int, [c_int, c_char_p]),
    "cz_fingerprint_chain": (None, [POINTER(c_uint64), c_int64, POINTER(c_uint64)]),
    "cz_gather": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_gather_v": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_int64), c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_group_create_custom": (c_int, [POINTER(c_void_p), c_int, c_int, POINTER(cz_backend),
            c_void_p, POINTER(cz_group_options)]),
    "cz_group_create_threads": (c_int, [POINTER(c_void_p), c_int, POINTER(cz_group_options)]),
    "cz_group_create_world": (c_int, [POINTER(c_void_p), c_char_p, c_bool,
            POINTER(cz_group_options)]),
    "cz_group_destroy": (None, [POINTER(c_void_p)]),
    "cz_group_get_info": (c_int, [c_void_p, POINTER(cz_group_info)]),
    "cz_group_global_rank": (c_int, [c_void_p, c_int]),
    "cz_group_local_cores": (c_int, [c_void_p, POINTER(c_int)]),
    "cz_group_rank": (c_int, [c_void_p]),
    "cz_group_size": (c_int, [c_void_p]),
    "cz_group_split": (c_int, [c_void_p, c_int, c_int, POINTER(c_void_p)]),
    "cz_group_subset": (c_int, [c_void_p, POINTER(c_int), c_int, POINTER(c_void_p)]),
    "cz_hook_find": (c_int, [POINTER(cz_hook), c_char_p, c_void_p, c_void_p]),
    "cz_hook_name": (c_char_p, [c_int]),
    "cz_in_backward_begin": (c_int, [c_void_p, c_void_p]),
    "cz_in_backward_create": (c_int, [POINTER(c_void_p), POINTER(c_void_p), c_int64,
            POINTER(cz_in_backward_options)]),
    "cz_in_backward_destroy": (None, [POINTER(c_void_p)]),
    "cz_in_backward_end": (c_int, [c_void_p, POINTER(cz_step_options), POINTER(cz_step_result)]),
    "cz_in_backward_mark_ready": (c_int, [c_void_p, c_int64, c_void_p]),
    "cz_join_begin": (c_int, [POINTER(c_void_p), c_void_p, POINTER(cz_joinable), c_int,
            POINTER(cz_join_options)]),
    "cz_join_end": (c_int, [POINTER(c_void_p), c_int]),
    "cz_join_get_info": (c_int, [c_void_p, POINTER(cz_join_info)]),
    "cz_join_notify": (c_int, [c_void_p, c_int]),
    "cz_last_error": (c_char_p, []),
    "cz_launch": (c_int, [cz_rank_main, c_void_p, POINTER(cz_launch_options)]),
    "cz_log_set_level": (None, [c_int]),
    "cz_log_set_sink": (None, [cz_log_sink, c_void_p]),
    "cz_log_text": (None, [c_int, c_char_p]),
    "cz_memory_bytes": (c_size_t, [c_int]),
    "cz_memory_peak_bytes": (c_size_t, [c_int]),
    "cz_memory_reset_peak": (None, []),
    "cz_model_add": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p, c_int, c_int,
            POINTER(c_int64)]),
    "cz_model_add_buffer": (c_int, [c_void_p, c_char_p, c_void_p, c_int, c_int,
            POINTER(c_int64)]),
    "cz_model_add_flat": (c_int, [c_void_p, c_void_p, c_void_p, c_int, c_int64, POINTER(c_char_p),
            POINTER(c_int64)]),
    "cz_model_add_tensor": (c_int, [c_void_p, c_char_p, POINTER(cz_tensor), POINTER(cz_tensor)]),
    "cz_model_add_views": (c_int, [c_void_p, c_void_p, c_void_p, c_int, POINTER(cz_view),
            c_int64]),
    "cz_model_check_replicas": (c_int, [c_void_p, c_void_p, POINTER(cz_replicas_options)]),
    "cz_model_create": (c_int, [POINTER(c_void_p)]),
    "cz_model_destroy": (None, [POINTER(c_void_p)]),
    "cz_model_find": (c_int64, [c_void_p, c_char_p]),
    "cz_model_get_info": (c_int, [c_void_p, POINTER(cz_model_info)]),
    "cz_model_get_param": (c_int, [c_void_p, c_int64, POINTER(cz_model_param)]),
    "cz_model_set_gradient": (c_int, [c_void_p, c_int64, c_void_p]),
    "cz_model_set_gradients_flat": (c_int, [c_void_p, c_int64, c_void_p]),
    "cz_model_set_requires_grad": (c_int, [c_void_p, c_int64, c_bool]),
    "cz_model_zero_grad": (c_int, [c_void_p]),
    "cz_object_free": (None, [c_void_p]),
    "cz_optim_add_hyper": (c_int, [c_void_p, c_int64, c_char_p, c_double]),
    "cz_optim_add_param_group": (c_int, [c_void_p, POINTER(cz_param_group)]),
    "cz_optim_create": (c_int, [POINTER(c_void_p), c_void_p, POINTER(cz_rule), POINTER(cz_hyper),
            POINTER(cz_optim_options)]),
    "cz_optim_destroy": (None, [POINTER(c_void_p)]),
    "cz_optim_evaluate": (c_int, [c_void_p, c_bool]),
    "cz_optim_fingerprint": (c_int, [c_void_p, POINTER(c_uint64)]),
    "cz_optim_get_hyper": (c_int, [c_void_p, c_int64, c_char_p, POINTER(c_double)]),
    "cz_optim_get_info": (c_int, [c_void_p, POINTER(cz_optim_info)]),
    "cz_optim_group_params": (c_int64, [c_void_p, c_int64, POINTER(c_int64), c_int64]),
    "cz_optim_hyper_name": (c_char_p, [c_void_p, c_int64, c_int]),
    "cz_optim_joinable": (c_int, [c_void_p, POINTER(cz_joinable)]),
    "cz_optim_load_state_dict": (c_int, [c_void_p, c_void_p, POINTER(cz_optim_load_options)]),
    "cz_optim_scalar": (c_int, [c_void_p, c_int64, c_char_p, POINTER(c_double)]),
    "cz_optim_set_hyper": (c_int, [c_void_p, c_int64, c_char_p, c_double]),
    "cz_optim_state": (c_int, [c_void_p, c_int64, c_char_p, c_int64, POINTER(c_void_p),
            POINTER(c_int64)]),
    "cz_optim_state_dict": (c_int, [c_void_p, POINTER(c_void_p)]),
    "cz_optim_step": (c_int, [c_void_p, POINTER(cz_step_options), POINTER(cz_step_result)]),
    "cz_optim_zero_grad": (c_int, [c_void_p, c_bool]),
    "cz_parts_add": (c_int, [c_void_p]),
    "cz_parts_check": (c_int, [c_void_p, cz_parts_run, c_void_p]),
    "cz_parts_create": (c_int, [POINTER(c_void_p), c_void_p, c_void_p,
            POINTER(cz_parts_options)]),
    "cz_parts_destroy": (None, [POINTER(c_void_p)]),
    "cz_parts_get_info": (c_int, [c_void_p, POINTER(cz_parts_info)]),
    "cz_parts_is_last": (c_bool, [c_void_p]),
    "cz_parts_mean": (c_int, [c_void_p, POINTER(c_double), c_int64, POINTER(c_double)]),
    "cz_parts_own": (c_int, [c_void_p, c_int]),
    "cz_parts_restart": (c_int, [c_void_p]),
    "cz_parts_set_weights": (c_int, [c_void_p, POINTER(c_double)]),
    "cz_plan_create": (c_int, [POINTER(c_void_p), c_void_p, POINTER(cz_plan_options)]),
    "cz_plan_destroy": (None, [POINTER(c_void_p)]),
    "cz_plan_get_info": (c_int, [c_void_p, POINTER(cz_plan_info)]),
    "cz_plan_rank": (c_int, [c_void_p, c_int, POINTER(cz_plan_memory)]),
    "cz_plan_ranks": (c_int, [c_void_p, POINTER(cz_plan_memory), POINTER(cz_plan_memory),
            POINTER(cz_plan_memory), POINTER(cz_plan_memory)]),
    "cz_post_local_optim_create": (c_int, [POINTER(c_void_p), c_void_p, c_void_p]),
    "cz_post_local_optim_destroy": (None, [POINTER(c_void_p)]),
    "cz_post_local_optim_load_state_dict": (c_int, [c_void_p, c_void_p, c_bool]),
    "cz_post_local_optim_state_dict": (c_int, [c_void_p, POINTER(c_void_p)]),
    "cz_post_local_optim_step": (c_int, [c_void_p, POINTER(cz_step_options),
            POINTER(cz_step_result)]),
    "cz_powersgd_create": (c_int, [POINTER(c_void_p), c_void_p, POINTER(cz_powersgd_options)]),
    "cz_powersgd_destroy": (None, [POINTER(c_void_p)]),
    "cz_powersgd_get_stats": (c_int, [c_void_p, POINTER(cz_powersgd_stats)]),
    "cz_powersgd_load_state_dict": (c_int, [c_void_p, c_void_p]),
    "cz_powersgd_state_dict": (c_int, [c_void_p, POINTER(c_void_p)]),
    "cz_progress": (c_int, [c_void_p]),
    "cz_random_block": (None, [c_uint64, c_uint64, c_uint64, POINTER(c_uint32)]),
    "cz_random_normal": (c_float, [c_uint64, c_uint64, c_uint64]),
    "cz_reduce": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_reduce_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_reduce_scatter_v": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_int64), c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_rule_find": (POINTER(cz_rule), [c_char_p]),
    "cz_rule_name": (c_char_p, [c_int]),
    "cz_rule_register": (c_int, [POINTER(cz_rule)]),
    "cz_sampler_create": (c_int, [POINTER(c_void_p), POINTER(cz_sampler_options)]),
    "cz_sampler_destroy": (None, [POINTER(c_void_p)]),
    "cz_sampler_get_info": (c_int, [c_void_p, POINTER(cz_sampler_info)]),
    "cz_sampler_next": (c_int, [c_void_p, POINTER(c_int64), POINTER(c_int64)]),
    "cz_sampler_set_position": (c_int, [c_void_p, c_int64]),
    "cz_scatter": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_scatter_v": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_int64), c_int, c_int,
            POINTER(cz_operation_options)]),
    "cz_sched_create_chained": (c_int, [POINTER(c_void_p), POINTER(c_void_p), c_int64]),
    "cz_sched_create_constant": (c_int, [POINTER(c_void_p), c_void_p, c_double, c_int64,
            POINTER(cz_sched_options)]),
    "cz_sched_create_cosine": (c_int, [POINTER(c_void_p), c_void_p, c_int64, c_double,
            POINTER(cz_sched_options)]),
    "cz_sched_create_cyclic": (c_int, [POINTER(c_void_p), c_void_p, c_double, c_double,
            POINTER(cz_sched_cyclic_options)]),
    "cz_sched_create_exponential": (c_int, [POINTER(c_void_p), c_void_p, c_double,
            POINTER(cz_sched_options)]),
    "cz_sched_create_lambda": (c_int, [POINTER(c_void_p), c_void_p, cz_sched_function, c_void_p,
            POINTER(cz_sched_options)]),
    "cz_sched_create_linear": (c_int, [POINTER(c_void_p), c_void_p, c_double, c_double, c_int64,
            POINTER(cz_sched_options)]),
    "cz_sched_create_multi_step": (c_int, [POINTER(c_void_p), c_void_p, POINTER(c_int64), c_int64,
            c_double, POINTER(cz_sched_options)]),
    "cz_sched_create_multiplicative": (c_int, [POINTER(c_void_p), c_void_p, cz_sched_function,
            c_void_p, POINTER(cz_sched_options)]),
    "cz_sched_create_one_cycle": (c_int, [POINTER(c_void_p), c_void_p, c_double, c_int64,
            POINTER(cz_sched_one_cycle_options)]),
    "cz_sched_create_plateau": (c_int, [POINTER(c_void_p), c_void_p,
            POINTER(cz_sched_plateau_options)]),
    "cz_sched_create_polynomial": (c_int, [POINTER(c_void_p), c_void_p, c_int64, c_double,
            POINTER(cz_sched_options)]),
    "cz_sched_create_sequential": (c_int, [POINTER(c_void_p), POINTER(c_void_p), c_int64,
            POINTER(c_int64)]),
    "cz_sched_create_step": (c_int, [POINTER(c_void_p), c_void_p, c_int64, c_double,
            POINTER(cz_sched_options)]),
    "cz_sched_create_warm_restarts": (c_int, [POINTER(c_void_p), c_void_p, c_int64, c_int64,
            c_double, POINTER(cz_sched_options)]),
    "cz_sched_destroy": (None, [POINTER(c_void_p)]),
    "cz_sched_last_lr": (c_double, [c_void_p, c_int64]),
    "cz_sched_load_state_dict": (c_int, [c_void_p, c_void_p]),
    "cz_sched_state_dict": (c_int, [c_void_p, POINTER(c_void_p)]),
    "cz_sched_step": (c_int, [c_void_p]),
    "cz_sched_step_metric": (c_int, [c_void_p, c_double]),
    "cz_sched_step_to": (c_int, [c_void_p, c_double]),
    "cz_set_allocator": (c_int, [POINTER(cz_allocator)]),
    "cz_shapes_add": (c_int, [c_void_p, c_char_p, c_int, c_int, POINTER(c_int64), c_int]),
    "cz_shapes_create": (c_int, [POINTER(c_void_p)]),
    "cz_shapes_destroy": (None, [POINTER(c_void_p)]),
    "cz_shapes_from_model": (c_int, [POINTER(c_void_p), c_void_p]),
    "cz_shapes_read": (c_int, [POINTER(c_void_p), c_char_p]),
    "cz_shared_create": (c_int, [POINTER(c_void_p), c_void_p, c_size_t, POINTER(c_void_p)]),
    "cz_shared_destroy": (None, [POINTER(c_void_p)]),
    "cz_span_next": (c_bool, [POINTER(cz_span_iterator), POINTER(cz_span)]),
    "cz_state_dict_add_dict": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "cz_state_dict_add_tensor": (c_int, [c_void_p, c_char_p, c_int, c_int, POINTER(c_int64),
            POINTER(c_void_p)]),
    "cz_state_dict_copy": (c_int, [POINTER(c_void_p), c_void_p]),
    "cz_state_dict_count": (c_int64, [c_void_p]),
    "cz_state_dict_create": (c_int, [POINTER(c_void_p)]),
    "cz_state_dict_destroy": (None, [POINTER(c_void_p)]),
    "cz_state_dict_equal": (c_bool, [c_void_p, c_void_p]),
    "cz_state_dict_get_dict": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "cz_state_dict_get_integer": (c_int, [c_void_p, c_char_p, POINTER(c_int64)]),
    "cz_state_dict_get_real": (c_int, [c_void_p, c_char_p, POINTER(c_double)]),
    "cz_state_dict_get_tensor": (c_int, [c_void_p, c_char_p, POINTER(cz_tensor)]),
    "cz_state_dict_get_text": (c_int, [c_void_p, c_char_p, POINTER(c_char_p)]),
    "cz_state_dict_get_texts": (c_int, [c_void_p, c_char_p, POINTER(POINTER(c_char_p)),
            POINTER(c_int64)]),
    "cz_state_dict_key": (c_char_p, [c_void_p, c_int64]),
    "cz_state_dict_kind": (c_int, [c_void_p, c_char_p]),
    "cz_state_dict_remove": (c_int, [c_void_p, c_char_p]),
    "cz_state_dict_set_dict": (c_int, [c_void_p, c_char_p, c_void_p]),
    "cz_state_dict_set_integer": (c_int, [c_void_p, c_char_p, c_int64]),
    "cz_state_dict_set_real": (c_int, [c_void_p, c_char_p, c_double]),
    "cz_state_dict_set_tensor": (c_int, [c_void_p, c_char_p, POINTER(cz_tensor)]),
    "cz_state_dict_set_text": (c_int, [c_void_p, c_char_p, c_char_p]),
    "cz_state_dict_set_texts": (c_int, [c_void_p, c_char_p, POINTER(c_char_p), c_int64]),
    "cz_status_name": (c_char_p, [c_int]),
    "cz_sum_add": (None, [POINTER(cz_sum), c_int64, POINTER(c_double)]),
    "cz_sum_value": (c_double, [POINTER(cz_sum)]),
    "cz_version": (c_char_p, []),
    "cz_work_destroy": (None, [POINTER(c_void_p)]),
    "cz_work_test": (c_int, [c_void_p, POINTER(c_bool)]),
    "cz_work_then": (c_int, [c_void_p, cz_continuation, c_void_p]),
    "cz_work_wait": (c_int, [c_void_p]),
    "cz_zero_add_param_group": (c_int, [c_void_p, POINTER(cz_param_group)]),
    "cz_zero_broadcast_parameters": (c_int, [c_void_p, c_int]),
    "cz_zero_check_fingerprint": (c_int, [c_void_p]),
    "cz_zero_check_replicas": (c_int, [c_void_p]),
    "cz_zero_consolidate_state_dict": (c_int, [c_void_p, c_int]),
    "cz_zero_create": (c_int, [POINTER(c_void_p), c_void_p, c_void_p, POINTER(cz_rule),
            POINTER(cz_hyper), POINTER(cz_zero_options)]),
    "cz_zero_destroy": (None, [POINTER(c_void_p)]),
    "cz_zero_evaluate": (c_int, [c_void_p, c_bool]),
    "cz_zero_fingerprint": (c_int, [c_void_p, POINTER(c_uint64)]),
    "cz_zero_get_info": (c_int, [c_void_p, POINTER(cz_zero_info)]),
    "cz_zero_joinable": (c_int, [c_void_p, POINTER(cz_joinable)]),
    "cz_zero_load_state_dict": (c_int, [c_void_p, c_void_p]),
    "cz_zero_local_optim": (c_void_p, [c_void_p]),
    "cz_zero_reshard": (c_int, [c_void_p, c_int, POINTER(c_int), c_int64]),
    "cz_zero_set_overlap": (c_int, [c_void_p, c_int, POINTER(cz_step_options)]),
    "cz_zero_set_weight": (c_int, [c_void_p, c_double]),
    "cz_zero_state_dict": (c_int, [c_void_p, POINTER(c_void_p)]),
    "cz_zero_step": (c_int, [c_void_p, POINTER(cz_step_options), POINTER(cz_step_result)]),
    "cz_zero_trace": (c_int, [c_void_p, c_int, POINTER(cz_trace_totals)]),
    "cz_zero_wait_param": (c_int, [c_void_p, c_int64]),
}
