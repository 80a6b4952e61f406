/* SPDX-License-Identifier: MIT */
/* czero verify --run: is a checkpoint what the log of its run says? */
#include "verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/text.h"

typedef struct digits {
    char text[33];
} digits;

static digits digits_of(const uint64_t number[2])
{
    digits d;
    run_log_digits(number, d.text);
    return d;
}

static bool equal(const uint64_t a[2], const uint64_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

/* ---- what the checkpoint says of itself ---- */

typedef struct noted {
    bool has_print, has_chain;
    uint64_t print[2], chain[2];
} noted;

static bool take(const cz_state_dict *proof, const char *key, uint64_t number[2])
{
    const char *text;
    return cz_state_dict_kind(proof, key) == CZ_STATE_TEXT &&
           cz_state_dict_get_text(proof, key, &text) == CZ_OK && run_log_scan(text, number);
}

/* Its common dictionary is the program's own: "proof" in it may be anything. */
static cz_status read_kept(const source *s, noted *out)
{
    cz_state_dict *common = NULL;
    const cz_state_dict *proof;
    *out = (noted){0};
    if (s->info.torch)
        return CZ_OK;
    CZ_TRY(cz_archive_read_dict(s->archive, CZ_ALL_RANKS, &common));
    if (cz_state_dict_kind(common, "proof") == CZ_STATE_DICT &&
        cz_state_dict_get_dict(common, "proof", &proof) == CZ_OK) {
        out->has_print = take(proof, "fingerprint", out->print);
        out->has_chain = take(proof, "chain", out->chain);
    }
    cz_state_dict_destroy(&common);
    return CZ_OK;
}

/* ---- comparing ---- */

typedef struct proof {
    const run_log *log;
    int64_t step;
    verify_told told;
    void *context;
    verify_proof *out;
} proof;

static cz_status tell(const proof *p, const char *format, ...) CZ_PRINTF(2, 3);
static cz_status tell(const proof *p, const char *format, ...)
{
    char sentence[4600];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return p->told(sentence, p->context);
}

static cz_status compare_print(const proof *p, const noted *kept)
{
    const run_step *step = run_log_find(p->log, p->step);
    const uint64_t *print = p->out->print;
    p->out->in_log = step && step->has_print;
    if (!p->out->in_log && !kept->has_print)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "%s: it has no fingerprint of step %" PRId64
                       ", and neither has the checkpoint",
                       p->log->path, p->step);
    if (p->out->in_log && !equal(step->print, print))
        CZ_TRY(
            tell(p,
                 "%s: the fingerprint of step %" PRId64
                 " is %s there, that of the checkpoint is %s: it is of another run, or was changed",
                 p->log->path, p->step, digits_of(step->print).text, digits_of(print).text));
    if (kept->has_print && !equal(kept->print, print))
        CZ_TRY(tell(p,
                    "the fingerprint that was saved with it is %s, that of what is in it %s: it "
                    "was changed",
                    digits_of(kept->print).text, digits_of(print).text));
    return CZ_OK;
}

/* From the first link on, up to the checkpoint's step; `chain` becomes the last one. */
static cz_status compare_links(const proof *p, uint64_t chain[2])
{
    const run_log *log = p->log;
    for (int64_t i = 0; i < log->count && log->steps[i].step <= p->step; i++) {
        const run_step *step = &log->steps[i];
        if (!step->has_print)
            continue;
        cz_fingerprint_chain(chain, step->step, step->print);
        if (!equal(chain, step->chain))
            return tell(p,
                        "%s: the chain breaks at step %" PRId64
                        ": %s is there, %s follows from the fingerprints up to it: lines are "
                        "missing or were changed",
                        log->path, step->step, digits_of(step->chain).text, digits_of(chain).text);
        p->out->links++;
    }
    return CZ_OK;
}

static cz_status compare_chain(const proof *p, const noted *kept)
{
    uint64_t chain[2] = {0, 0};
    CZ_TRY(compare_links(p, chain));
    return kept->has_chain && !equal(kept->chain, chain)
               ? tell(p,
                      "%s: the chain up to step %" PRId64
                      " is %s, the checkpoint was saved with %s: it is of another run",
                      p->log->path, p->step, digits_of(chain).text, digits_of(kept->chain).text)
               : CZ_OK;
}

cz_status verify_proof_of(const source *s, const run_log *log, verify_told told, void *context,
                          verify_proof *out)
{
    const proof p = {log, s->info.step, told, context, out};
    noted kept;
    *out = (verify_proof){0};
    if (s->info.step < 0)
        return cz_fail(CZ_ERR_ARGUMENT, "%s: --run: the files do not say of which step they are",
                       s->info.path);
    CZ_TRY(read_kept(s, &kept));
    CZ_TRY(cz_archive_fingerprint(s->archive, out->print));
    CZ_TRY(compare_print(&p, &kept));
    return compare_chain(&p, &kept);
}
