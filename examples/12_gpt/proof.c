/* SPDX-License-Identifier: MIT */
/* Fingerprints, their chain, and both in a checkpoint: "proof", with "fingerprint" and "chain" in
 * digits, which `czero verify --run` compares as well. */
#include "proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBERS = 3
}; /* of a link in a checkpoint: its step and its fingerprint; chains follow from them */

void proof_clear(proof *p)
{
    free(p->links);
    *p = (proof){0};
}

cz_status proof_look(cz_zero *zero, const cz_optim *optim, uint64_t print[2])
{
    return zero ? cz_zero_fingerprint(zero, print) : cz_optim_fingerprint(optim, print);
}

bool proof_is_due(const proof *p, int step)
{
    return p->every > 0 && step % p->every == 0;
}

cz_status proof_add(proof *p, int step, const uint64_t print[2])
{
    if (p->count == p->room) {
        const int room = p->room ? 2 * p->room : 256;
        proof_link *more = realloc(p->links, (size_t)room * sizeof *more);
        if (!more)
            return cz_fail(CZ_ERR_MEMORY, "no memory for %d fingerprints", room);
        p->links = more;
        p->room = room;
    }
    proof_link *link = &p->links[p->count];
    *link = (proof_link){.step = step, .print = {print[0], print[1]}};
    if (p->count > 0)
        memcpy(link->chain, link[-1].chain, sizeof link->chain);
    cz_fingerprint_chain(link->chain, step, print);
    p->count++;
    return CZ_OK;
}

const proof_link *proof_find(const proof *p, int step)
{
    int begin = 0, end = p->count;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (p->links[middle].step == step)
            return &p->links[middle];
        if (p->links[middle].step < step)
            begin = middle + 1;
        else
            end = middle;
    }
    return NULL;
}

void proof_digits(const uint64_t number[2], char out[33])
{
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, number[0], number[1]);
}

/* ---- in a checkpoint ---- */

/* Zeros before the first. */
static void chain_digits(const proof *p, char out[33])
{
    const uint64_t none[2] = {0, 0};
    proof_digits(p->count > 0 ? p->links[p->count - 1].chain : none, out);
}

cz_status proof_to_dict(const proof *p, const uint64_t print[2], cz_state_dict *common)
{
    cz_state_dict *dict;
    char digits[33];
    void *data;
    if (p->every == 0)
        return CZ_OK;
    CZ_TRY(cz_state_dict_add_dict(common, "proof", &dict));
    CZ_TRY(cz_state_dict_set_integer(dict, "every", p->every));
    proof_digits(print, digits);
    CZ_TRY(cz_state_dict_set_text(dict, "fingerprint", digits));
    chain_digits(p, digits);
    CZ_TRY(cz_state_dict_set_text(dict, "chain", digits));
    CZ_TRY(
        cz_state_dict_add_tensor(dict, "links", CZ_I64, 2, (int64_t[]){p->count, NUMBERS}, &data));
    int64_t *numbers = data;
    for (int i = 0; i < p->count; i++, numbers += NUMBERS) {
        numbers[0] = p->links[i].step;
        memcpy(numbers + 1, p->links[i].print, sizeof p->links[i].print);
    }
    return CZ_OK;
}

static cz_status compare(const char *what, const char *then, const char *now)
{
    return strcmp(then, now) == 0
               ? CZ_OK
               : cz_fail(
                     CZ_ERR_MISMATCH,
                     "--resume: the %s of what was loaded is %s, when it was saved it was %.40s: "
                     "the checkpoint was changed, or what loads it differs",
                     what, now, then);
}

static cz_status read_links(proof *p, const cz_state_dict *dict)
{
    cz_tensor tensor;
    CZ_TRY(cz_state_dict_get_tensor(dict, "links", &tensor));
    if (tensor.dtype != CZ_I64 || tensor.dimensions != 2 || tensor.shape[1] != NUMBERS)
        return cz_fail(CZ_ERR_FORMAT, "the checkpoint's 'proof/links' are no fingerprints");
    const int64_t *numbers = tensor.data;
    for (int64_t i = 0; i < tensor.shape[0]; i++, numbers += NUMBERS) {
        uint64_t print[2];
        memcpy(print, numbers + 1, sizeof print);
        CZ_TRY(proof_add(p, (int)numbers[0], print));
    }
    return CZ_OK;
}

/* The fingerprint of what was loaded, and the chain up to there. */
static cz_status check(proof *p, const uint64_t print[2], const cz_state_dict *dict)
{
    const char *then;
    char now[33];
    CZ_TRY(cz_state_dict_get_text(dict, "fingerprint", &then));
    proof_digits(print, now);
    CZ_TRY(compare("fingerprint", then, now));
    CZ_TRY(read_links(p, dict));
    CZ_TRY(cz_state_dict_get_text(dict, "chain", &then));
    chain_digits(p, now);
    return compare("chain of fingerprints", then, now);
}

cz_status proof_from_dict(proof *p, cz_zero *zero, const cz_optim *optim,
                          const cz_state_dict *common)
{
    const cz_state_dict *dict;
    uint64_t print[2];
    int64_t every;
    if (cz_state_dict_kind(common, "proof") == CZ_STATE_NONE)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_dict(common, "proof", &dict));
    CZ_TRY(cz_state_dict_get_integer(dict, "every", &every));
    if (every != p->every)
        return cz_fail(CZ_ERR_ARGUMENT,
                       "--resume: --proof is %d, with %lld the run was saved: its chain of "
                       "fingerprints would be another",
                       p->every, (long long)every);
    CZ_TRY(proof_look(zero, optim, print));
    return check(p, print, dict);
}
