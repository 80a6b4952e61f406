/* SPDX-License-Identifier: MIT */
/* What a header is made of, for the files that write and read it. */
#ifndef CZ_IO_SAFETENSORS_OBJECT_H
#define CZ_IO_SAFETENSORS_OBJECT_H

#include <jansson.h>

#include "io/safetensors.h"
#include "io/text.h"
#include "tensor/names.h"

#define CZ__SAFETENSORS_METADATA "__metadata__"
#define CZ__SAFETENSORS_HEADER_MAX 100000000 /* what the format allows */

struct cz__safetensors {
    cz__safetensors_entry *entries; /* owned; in the order of their data */
    int64_t count, capacity;
    json_t *metadata;    /* owned; NULL: none */
    uint64_t data_bytes; /* at most INT64_MAX, so that every offset is an integer of JSON */

    /* one to be written: what it will be is written down as it grows */
    cz__names names;        /* to indices; each entry owns its name */
    cz__text metadata_json; /* "{…}" */
    cz__text tensors_json;  /* "NAME":{…},"NAME":{…} */

    /* one that was read. Names are from anywhere, so they are sorted: a table can be made slow by who
     * chooses them. */
    bool was_read;
    uint64_t data_begin;
    char *name_bytes;                      /* owned: all names, in the order of the JSON */
    const cz__safetensors_entry **by_name; /* owned */
};

#endif
