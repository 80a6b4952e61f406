/* SPDX-License-Identifier: MIT */
/* From one form of a checkpoint to another, elements a few MiB at a time. */
#ifndef CZ_TOOL_CONVERT_H
#define CZ_TOOL_CONVERT_H

#include "convert_rules.h"
#include "progress.h"
#include "source.h"

#include "checkpoint/input.h"

typedef enum convert_format {
    FORMAT_NONE,
    FORMAT_SHARDED,
    FORMAT_SAFETENSORS,
    FORMAT_HF,
    FORMAT_TORCH,
    FORMAT_DISTRIBUTED
} convert_format;

typedef struct conversion {
    source *from;
    cz__input *original; /* borrowed: that of `from` */
    cz__input *input;    /* borrowed: the same, or the next, where names and shapes become others */
    cz__input view;
    const char *to;
    convert_format format;
    int ranks;
    uint64_t max_file_bytes;
    bool parameters_only, averages, quiet;
    progress bar;
    cz__text made;  /* the path of what was made */
    uint64_t bytes; /* elements written */
    int64_t lost;   /* dictionaries of ranks alone that have no place in the new form */
} conversion;

/* ---- convert_progress.c ---- */

/* From here on Ctrl-C is seen by the next. */
void convert_catch_signals(void);
/* CZ_OK, or CZ_ERR_STATE: somebody pressed Ctrl-C. Counts bytes for the bar; `context`: the
 * conversion. */
cz_status convert_wrote(size_t bytes, void *context);

/* Bytes of a value of `input`, and of all slots of its state. */
uint64_t convert_bytes(const conversion *c, int64_t stored, const char *slot);
uint64_t convert_state_bytes(const conversion *c, int64_t stored);

/* ---- convert_view.c, convert_target.c ---- */

/* `original` with the names and shapes that the rules make, and with averages in the place of
 * values if they are wanted, as an input; closed with cz__input_close(), before `original`.
 * CZ_ERR_ARGUMENT: two tensors would have one name, shapes do not fit, a rule fits nothing, there
 * are no averages; CZ_ERR_MEMORY. */
cz_status convert_view(cz__input *view, cz__input *original, convert_rules *rules, bool averages);

/* May what is there under that name be replaced, or added to? What a conversion that was killed
 * left there is no reason against it, and is said. CZ_ERR_ARGUMENT: not without --force, or
 * never. */
cz_status convert_check_target(const conversion *c, bool force);
/* Nothing that is read is among what will be written, replaced or removed. CZ_ERR_ARGUMENT. */
cz_status convert_check_apart(const conversion *c);

/* ---- convert_files.c, convert_parts.c ---- */

/* One file, or a folder of them. What was there under that name stays until the new one is
 * complete. */
cz_status convert_to_files(conversion *c);

/* A generation more in a folder, saved by `ranks` ranks. */
cz_status convert_to_parts(conversion *c);

#endif
