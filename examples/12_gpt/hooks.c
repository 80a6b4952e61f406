/* SPDX-License-Identifier: MIT */
/* Hooks that the example trains with: those of the library's registry, each with its state, and a
 * hook that wraps another one as "fp16_compress(powersgd)". */
#include "hooks.h"

#include <stdio.h>
#include <string.h>

#include "model.h"

/* What a hook of the registry is not for here; NULL: it is. */
static const char *refusal(const char *name)
{
    static const char *const refusals[][2] = {
        {"no_op", "leaves each rank its own gradients: ranks would train different models"},
        {"zero_step", "is no reduction but where a sharded optimizer steps"},
        {"zero_step_interleaved",
         "is no reduction but where a sharded optimizer steps: so it does without --hook"},
        {"record", "reduces nothing: it watches another hook"},
    };
    for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++)
        if (strcmp(refusals[k][0], name) == 0)
            return refusals[k][1];
    return NULL;
}

static bool is_wrapper(const char *name)
{
    return strcmp(name, "fp16_compress") == 0 || strcmp(name, "bf16_compress") == 0;
}

static bool is_in_registry(const char *name)
{
    for (int k = 0; cz_hook_name(k); k++)
        if (strcmp(cz_hook_name(k), name) == 0)
            return true;
    return false;
}

typedef struct parts {
    char outer[HOOK_NAME_BYTES], inner[HOOK_NAME_BYTES]; /* inner: "" or what is in parentheses */
} parts;

static parts split(const char *name)
{
    parts p = {"", ""};
    const size_t length = strlen(name);
    const char *open = strchr(name, '(');
    snprintf(p.outer, sizeof p.outer, "%s", name);
    if (open && open > name && name[length - 1] == ')') {
        p.outer[open - name] = '\0';
        snprintf(p.inner, sizeof p.inner, "%.*s", (int)(name + length - 2 - open), open + 1);
    }
    return p;
}

static void list_names(char *out, size_t bytes)
{
    size_t length = 0;
    out[0] = '\0';
    for (int k = 0; cz_hook_name(k) && length < bytes; k++)
        if (!refusal(cz_hook_name(k)))
            length += (size_t)snprintf(out + length, bytes - length, "%s%s", length ? ", " : "",
                                       cz_hook_name(k));
}

bool hook_check(const char *name, char *sentence, size_t bytes)
{
    char names[400];
    const parts p = split(name);
    const char *const both[] = {p.outer, p.inner};
    for (int k = 0; k < (*p.inner ? 2 : 1); k++) {
        const char *why = refusal(both[k]);
        if (why)
            snprintf(sentence, bytes, "hook '%s' %s", both[k], why);
        if (why)
            return false;
        if (is_in_registry(both[k]))
            continue;
        list_names(names, sizeof names);
        snprintf(sentence, bytes,
                 "there is no hook '%.40s'; there are %s, and fp16_compress and bf16_compress "
                 "around one of them: 'fp16_compress(powersgd)'",
                 both[k], names);
        return false;
    }
    if (*p.inner && !is_wrapper(p.outer))
        snprintf(sentence, bytes, "hook '%s' goes around no other: fp16_compress, bf16_compress do",
                 p.outer);
    return !*p.inner || is_wrapper(p.outer);
}

static bool is_or_wraps(const char *name, const char *wanted)
{
    const parts p = split(name);
    return strcmp(*p.inner ? p.inner : p.outer, wanted) == 0;
}

bool hook_gives_slices(const char *name)
{
    return is_or_wraps(name, "reduce_scatter");
}

bool hook_goes_alone(const char *name)
{
    return is_or_wraps(name, "post_local_sgd");
}

bool hook_has_state(const char *name)
{
    return hook_goes_alone(name) || strstr(name, "powersgd");
}

/* ---- states ---- */

enum { BLAS_COLUMNS = 4 }; /* with fewer the library's own loops are faster */

/* A cz_powersgd_gemm. Columns side by side are rows of the transposed matrix: thin M^T, or thin
 * M. */
static void product(void *context, bool transposed, int64_t rows, int64_t cols, int32_t r,
                    const float *matrix, const float *thin, float *out)
{
    if (transposed)
        matmul_nn(r, (int)cols, (int)rows, 1, thin, (int)rows, matrix, (int)cols, 0, out,
                  (int)cols);
    else
        matmul_nt(r, (int)rows, (int)cols, 1, thin, (int)cols, matrix, (int)cols, 0, out,
                  (int)rows);
}

static cz_status make_powersgd(hook_state *s, const cz_model *model, const options *o,
                               const char *name)
{
    cz_powersgd_options chosen = CZ_POWERSGD_OPTIONS_INIT;
    chosen.rank = strstr(name, "_rank2") ? 2 : o->powersgd_rank;
    chosen.batched = strncmp(name, "batched", 7) == 0;
    chosen.start_iter = o->compress_after > 0 ? o->compress_after : -1;
    if (matmul_has_blas() && !o->powersgd_loops && chosen.rank >= BLAS_COLUMNS)
        chosen.gemm = product;
    return cz_powersgd_create(&s->powersgd, model, &chosen);
}

/* NULL is the state of those that need none. All kinds of PowerSGD are one hook with other
 * options. */
static cz_status make_state(hook_state *s, const cz_model *model, const options *o,
                            const char **name, void **state)
{
    *state = NULL;
    if (strstr(*name, "powersgd")) {
        CZ_TRY(make_powersgd(s, model, o, *name));
        *state = s->powersgd;
        *name = "powersgd";
    } else if (strcmp(*name, "post_local_sgd") == 0) {
        s->local = (cz_post_local_sgd)CZ_POST_LOCAL_SGD_INIT;
        s->local.start_iter = o->compress_after;
        s->local.local_gradients = 1;
        *state = &s->local;
    } else if (strcmp(*name, "mixed_precision") == 0) {
        s->mixed = (cz_mixed_precision)CZ_MIXED_PRECISION_INIT;
        s->mixed.reduce_dtype = CZ_BF16;
        *state = &s->mixed;
    }
    return CZ_OK;
}

cz_status hook_register(hook_state *s, cz_ddp *ddp, const options *o, const char *name)
{
    cz_ddp_info about = CZ_DDP_INFO_INIT;
    CZ_TRY(cz_ddp_get_info(ddp, &about));
    const parts p = split(name);
    const char *base = *p.inner ? p.inner : p.outer;
    void *state;
    CZ_TRY(make_state(s, about.model, o, &base, &state));
    if (!*p.inner)
        return cz_ddp_register_hook_by_name(ddp, base, state);
    s->inner = (cz_hook)CZ_HOOK_INIT;
    CZ_TRY(cz_hook_find(&s->inner, base, about.model, state));
    return cz_ddp_register_hook_by_name(ddp, p.outer, &s->inner);
}

void hook_state_clear(hook_state *s)
{
    cz_powersgd_destroy(&s->powersgd);
}
