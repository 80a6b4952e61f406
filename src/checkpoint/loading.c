/* SPDX-License-Identifier: MIT */
/* What loads have in common, wherever they are from: options, the comparison with what is here, the
 * result. */
#include <inttypes.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "checkpoint/loading.h"
#include "group/collective.h"
#include "collective/description.h"
#include "zero/zero.h"

void cz__loading_clear(cz__loading *l)
{
    if (l->checkpoint->optim)
        cz__optim_drop_unpacked(l->checkpoint->optim);
    cz__load_destroy(&l->state); /* before the dictionary, which it borrows */
    cz_state_dict_destroy(&l->adapted);
    cz_state_dict_destroy(&l->common);
    cz_state_dict_destroy(&l->own);
    cz__comparison_clear(&l->comparison);
    cz__index_clear(&l->here);
    cz__placement_clear(&l->placement);
    cz__input_close(&l->input);
}

/* ---- the beginning ---- */

const cz__option_table cz__load_options = CZ__OPTION_TABLE(
    cz_load_options, CZ__OPTION(cz_load_options, step, CZ__COMPARED, CZ__FROM(CZ_NEWEST)),
    CZ__OPTION(cz_load_options, missing_ok, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_load_options, fall_back, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_load_options, permissive, CZ__COMPARED, CZ__FLAG),
    CZ__OPTION(cz_load_options, convert, CZ__COMPARED, CZ__FLAG));

static void describe_load(cz__description *description, const void *context)
{
    const cz__loading *l = context;
    cz__describe_call(description, &l->checkpoint->object);
    cz__describe_options(description, &cz__load_options, &l->options, NULL);
}

static cz_status read_options(cz__loading *l, const cz_load_options *options,
                              const cz_load_result *result)
{
    CZ_TRY(cz__options_read(&l->options, &cz__load_options, options, l->call));
    if (!options)
        l->options.step = CZ_NEWEST;
    if (result)
        CZ_TRY(cz__options_check_size(result->size, "cz_load_result"));
    if (l->checkpoint->optim)
        CZ_TRY(cz__optim_check_trained(l->checkpoint->optim, l->call));
    return l->checkpoint->zero ? cz__zero_check_idle(l->checkpoint->zero) : CZ_OK;
}

/* Its size was checked when the load began. */
static void put_result(cz_load_result *result, cz_load_result full)
{
    (void)cz__options_write(result, &full, sizeof full, "cz_load_result");
}

cz_status cz__loading_begin(cz__loading *l, const char *call, cz_status mine,
                            const cz_load_options *options, cz_load_result *result)
{
    cz__description room = {0};
    l->call = call;
    if (mine == CZ_OK)
        mine = read_options(l, options, result);
    const cz_status status =
        cz__agree_on(l->checkpoint->group, call, describe_load, l, mine, &room);
    cz__description_clear(&room);
    if (!status && result)
        put_result(result, (cz_load_result){.step = -1, .generation = -1});
    return status;
}

/* ---- comparing ---- */

static cz_status compare(cz__loading *l)
{
    CZ_TRY(cz__compare(&l->comparison, &l->here, &l->input.index, l->options.convert != 0));
    const char *differences = cz__text_get(&l->comparison.differences);
    if (differences[0] && !l->options.permissive)
        return cz__fail(CZ_ERR_ARGUMENT, "%s: %s is of something else:\n%s", l->call, l->input.path,
                        differences);
    cz__text_print(&l->checkpoint->notes, "%s", differences);
    const cz_status status = cz__restore_prepare(l);
    return status == CZ_ERR_ARGUMENT ? cz__fail_in(status, l->input.path) : status;
}

cz_status cz__loading_compare(cz__loading *l)
{
    return cz__agree(l->checkpoint->group, compare(l), 0, NULL, "checkpoint: compare");
}

/* ---- the end ---- */

static void hand_over(cz__loading *l, cz_load_result *result)
{
    put_result(result, (cz_load_result){.step = l->input.index.step,
                                        .generation = l->input.index.generation,
                                        .world_size = l->input.index.world_size,
                                        .common = l->common,
                                        .own = l->own});
    l->common = l->own = NULL;
}

cz_status cz__loading_finish(cz__loading *l, cz_load_result *result)
{
    CZ_TRY(cz__restore(l));
    if (l->checkpoint->zero)
        cz__zero_forget_dict(l->checkpoint->zero);
    if (result)
        hand_over(l, result);
    return CZ_OK;
}
