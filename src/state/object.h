/* SPDX-License-Identifier: MIT */
/* What a state dictionary is made of, for the files of this folder. */
#ifndef CZ_STATE_OBJECT_H
#define CZ_STATE_OBJECT_H

#include "czero/state.h"
#include "base/names.h"

typedef struct cz__state_texts {
    char **items; /* owned; the texts follow the addresses in the same block */
    int64_t count;
} cz__state_texts;

typedef struct cz__state_value {
    cz_state_kind kind;
    union {
        int64_t integer;
        double real;
        char *text; /* owned */
        cz__state_texts texts;
        cz_tensor tensor;    /* its data is owned */
        cz_state_dict *dict; /* owned */
    };
} cz__state_value;

typedef struct cz__state_entry {
    cz__state_value value;
    char key[];
} cz__state_entry;

struct cz_state_dict {
    cz__state_entry **entries; /* owned; their addresses stay */
    int64_t count, capacity;
    cz__names names;             /* key to index; empty while a look at every key is as fast */
    const cz_state_dict *parent; /* NULL: the outermost one */
    const char *key;             /* in the parent */
    int depth;                   /* 1: the outermost one */
};

/* The entry of that key, NULL if there is none. */
cz__state_entry *cz__state_find(const cz_state_dict *dict, const char *key);

/* May this key be set? Says what is NULL or empty. */
cz_status cz__state_check(const cz_state_dict *dict, const char *key);

/* Fail with "state dictionary: 'path/to/key' …"; `format` is what follows the path. */
cz_status cz__state_fail(cz_status status, const cz_state_dict *dict, const char *key,
                         const char *format, ...) CZ_PRINTF(4, 5);

#endif
