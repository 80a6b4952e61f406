/* SPDX-License-Identifier: MIT */
/* Pickles, the serialisation of Python, as far as state dictionaries need it. A pickle is a program
 * for a small machine that may call anything it can name. This machine knows only the names of a
 * closed list, calls nothing, and makes of all of it a tree of values. Of any other name, and of
 * what is made with it, it keeps that it is there; names that only an attack has, and opcodes that
 * no torch writes, are refused. Everything here is local. */
#ifndef CZ_IO_PICKLE_H
#define CZ_IO_PICKLE_H

#include "czero/tensor.h"
#include "io/text.h"

/* What a name of Python stands for. */
typedef enum cz__pickle_role {
    CZ__PICKLE_DICT_CLASS,    /* called: an empty dictionary, or a copy of one */
    CZ__PICKLE_DEFAULT_CLASS, /* called: an empty dictionary, whatever the arguments */
    CZ__PICKLE_SIZE_CLASS,    /* called with a tuple: that tuple */
    CZ__PICKLE_DEVICE,        /* called: a text; where a tensor was makes no difference */
    CZ__PICKLE_REBUILD,       /* called: a tensor over a storage */
    CZ__PICKLE_REBUILD_AS,    /* the same, the element type is said beside */
    CZ__PICKLE_PARAMETER,     /* called: the tensor that is its first argument */
    CZ__PICKLE_FROM_TYPE,     /* called: what its first argument gives when called with its third */
    CZ__PICKLE_ENCODE,        /* called with a text of latin-1: its bytes */
    CZ__PICKLE_NUMPY_TYPE,    /* called: an object with the name of the type, "f8" */
    CZ__PICKLE_NUMPY,         /* called with a type and bytes: a number */
    CZ__PICKLE_CLASS,         /* a type of tensors; not called */
    CZ__PICKLE_RECORD,        /* called: an object, whose attributes are kept */
    CZ__PICKLE_STORAGE,       /* a type of storages, of elements of `dtype`; not called */
    CZ__PICKLE_DTYPE,         /* not called */
    CZ__PICKLE_REFUSED        /* known, and why not: `note` */
} cz__pickle_role;

typedef struct cz__pickle_global {
    const char *module, *name;
    cz__pickle_role role;
    cz_dtype dtype; /* 0: the library has none like it, or it is untyped */
    int bytes;      /* of an element; 0: untyped storage */
    const char *note;
} cz__pickle_global;

/* NULL: not in the list. */
const cz__pickle_global *cz__pickle_global_find(const char *module, const char *name);
/* A name that no data have, and that a program which runs pickles would regret. */
bool cz__pickle_is_attack(const char *module, const char *name);

typedef enum cz__pickle_kind {
    CZ__PICKLE_NONE,
    CZ__PICKLE_BOOL, /* `integer` is 0 or 1 */
    CZ__PICKLE_INTEGER,
    CZ__PICKLE_REAL,
    CZ__PICKLE_TEXT,
    /* `bytes`, `length` of them; those of a text with zeros in it may be no UTF-8 */
    CZ__PICKLE_BYTES,
    CZ__PICKLE_LIST,
    CZ__PICKLE_TUPLE,
    CZ__PICKLE_DICT, /* `items`: key, value, key, value, … */
    CZ__PICKLE_GLOBAL,
    CZ__PICKLE_PERSISTENT, /* `items`: the tuple that says what it is */
    CZ__PICKLE_CALL,       /* `items`: the global, the arguments */
    CZ__PICKLE_OBJECT,     /* `items`: the global of its class, and its attributes if it has some */
    /* A thing of Python's that no state dictionary needs: its class by `module` and `name`, and
     * nothing else of it */
    CZ__PICKLE_OPAQUE
} cz__pickle_kind;

typedef struct cz__pickle_value {
    cz__pickle_kind kind;
    union {
        int64_t integer;
        double real;
        const char *text; /* UTF-8; owned by the pickle */
        struct {
            const char *bytes; /* owned by the pickle */
            int64_t length;
            bool of_latin; /* they stand for latin-1 in UTF-8 */
        };
        const cz__pickle_global *global;
        struct {
            const char *module, *name; /* owned by the pickle, or static; module "": Python's own */
            const char *note; /* static: why it is not more than that; NULL: nobody reads it */
        };
        struct {
            int32_t *items; /* the pickle's; places among its values */
            int64_t count, capacity;
        };
    };
} cz__pickle_value;

typedef struct cz__pickle {
    char *bytes;              /* owned: texts are in it */
    cz__pickle_value *values; /* owned */
    int64_t count, capacity;
    struct cz__pickle_items *items; /* owned; where items of values are */
    int32_t root;
    int64_t opaque_count; /* names that are not known */
} cz__pickle;

/* Read one. `where` begins sentences. A value may be in several places, and in itself: whoever
 * walks bounds the depth. CZ_ERR_FORMAT: no pickle, a damaged one, opcodes or names that are not
 * those of state dictionaries: which. CZ_ERR_UNSUPPORTED: what the library has no tensors for.
 * CZ_ERR_MEMORY. */
cz_status cz__pickle_read(cz__pickle **out, const char *where, const void *bytes, size_t count);
void cz__pickle_destroy(cz__pickle **pickle); /* accepts NULL and *NULL */

/* Item of a list, tuple, call or persistent value; the key and value of a dictionary. */
static inline const cz__pickle_value *cz__pickle_item(const cz__pickle *p,
                                                      const cz__pickle_value *v, int64_t i)
{
    return &p->values[v->items[i]];
}
static inline int64_t cz__pickle_dict_count(const cz__pickle_value *v)
{
    return v->count / 2;
}
/* The value under a text in a dictionary, as Python has it: the last one. NULL: none, or no
 * dictionary. */
const cz__pickle_value *cz__pickle_get(const cz__pickle *p, const cz__pickle_value *dict,
                                       const char *key);
static inline bool cz__pickle_is_text(const cz__pickle_value *v, const char *text)
{
    return v->kind == CZ__PICKLE_TEXT && __builtin_strcmp(v->text, text) == 0;
}
/* An attribute of an object of a class of that name. NULL: there is none, or no such object. */
const cz__pickle_value *cz__pickle_attribute(const cz__pickle *p, const cz__pickle_value *object,
                                             const char *class_name, const char *attribute);
const char *cz__pickle_kind_name(cz__pickle_kind kind); /* "a list" */
/* The names that are not known, a few of them: "pathlib.PosixPath, builtins.set, …"; "": there are
 * none. Names from the file are shown as they may be. False: no memory. */
bool cz__pickle_list_opaque(const cz__pickle *p, cz__text *list);

/* ---- writing ----
 *
 * Opcodes of protocol 2, appended to a text; whether there was memory is known at the end. */

typedef struct cz__pickling {
    cz__text out;
    const char *names[32]; /* of globals that have been written: what follows them says the same */
    int name_count;
} cz__pickling;

void cz__pickle_begin(cz__pickling *p);
void cz__pickle_put_none(cz__pickling *p);
void cz__pickle_put_bool(cz__pickling *p, bool value);
void cz__pickle_put_integer(cz__pickling *p, int64_t value);
void cz__pickle_put_real(cz__pickling *p, double value);
void cz__pickle_put_text(cz__pickling *p, const char *text);
/* `name` stays until the end; no two modules have the same one. */
void cz__pickle_put_global(cz__pickling *p, const char *module, const char *name);
/* What is put between is keys and values, or items. */
void cz__pickle_begin_dict(cz__pickling *p);
void cz__pickle_end_dict(cz__pickling *p);
void cz__pickle_begin_list(cz__pickling *p);
void cz__pickle_end_list(cz__pickling *p);
/* A value of a pickle and all that is in it, which must not make more than `most` bytes of the text
 * (CZ_ERR_FORMAT, without the name of a file), nor go too deep: `other` is called for what is no
 * None, truth value, number, text or container, and for containers that are in too many. */
typedef cz_status (*cz__pickle_other)(cz__pickling *to, const cz__pickle_value *value,
                                      void *context);
cz_status cz__pickle_copy(cz__pickling *to, const cz__pickle *from, const cz__pickle_value *value,
                          size_t most, cz__pickle_other other, void *context);
void cz__pickle_op(cz__pickling *p, char opcode);
void cz__pickle_end(cz__pickling *p);

/* The opcodes that a writer needs by name. */
#define CZ__PICKLE_OP_MARK '('
#define CZ__PICKLE_OP_TUPLE 't'
#define CZ__PICKLE_OP_EMPTY_TUPLE ')'
#define CZ__PICKLE_OP_EMPTY_LIST ']'
#define CZ__PICKLE_OP_EMPTY_DICT '}'
#define CZ__PICKLE_OP_APPENDS 'e'
#define CZ__PICKLE_OP_SETITEMS 'u'
#define CZ__PICKLE_OP_REDUCE 'R'
#define CZ__PICKLE_OP_PERSISTENT 'Q'
#define CZ__PICKLE_OP_STACK_GLOBAL '\x93'
#define CZ__PICKLE_OP_NEW '\x81'
#define CZ__PICKLE_OP_BUILD 'b'
#define CZ__PICKLE_OP_GET 'h'
#define CZ__PICKLE_OP_POP '0'

#endif
