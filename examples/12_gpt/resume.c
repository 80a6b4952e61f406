/* SPDX-License-Identifier: MIT */
/* Checkpoints. Which samples come in a step, and the learning rate, are functions of the step; so a
 * run goes on as it would have gone with parameters, the optimizer's state and the step. What its
 * report is made of is kept as well: what depends on where it ran is rank 0's own, so that with
 * --parts an export is the same whatever ranks there were. */
#include "resume.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

static volatile sig_atomic_t stop_asked;

static void ask_to_stop(int signal)
{
    (void)signal;
    stop_asked = 1;
}

bool resume_stop_asked(void)
{
    return stop_asked != 0;
}

static void listen_to_signals(void)
{
    struct sigaction action = {.sa_handler = ask_to_stop,
                               .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* mpirun and batch systems pass this one on, and kill nobody soon after */
    sigaction(SIGUSR1, &action, NULL);
}

/* ---- what decides which samples come ---- */

/* Of its characters: CRC-32. */
static uint64_t fingerprint(const text *t)
{
    unsigned char block[4096];
    uLong print = crc32(0, NULL, 0);
    for (int64_t i = 0, filled = 0; i < t->count; i++) {
        block[filled++] = (unsigned char)t->characters[t->tokens[i]];
        if (filled == sizeof block || i + 1 == t->count) {
            print = crc32(print, block, (uInt)filled);
            filled = 0;
        }
    }
    return print;
}

typedef struct setting {
    const char *key, *what;
    int64_t value;
} setting;

enum { SETTINGS = 4 };

static void settings_of(const trainer *t, setting *out)
{
    const options *o = &t->options;
    const setting all[SETTINGS] = {
        {"batch", "--batch", o->batch},
        {"block", "--block", o->model.block_size},
        {"seed", "--seed", (int64_t)o->seed},
        {"text", "the text's fingerprint", (int64_t)fingerprint(t->text)},
    };
    memcpy(out, all, sizeof all);
}

static cz_status check_settings(const trainer *t, const cz_state_dict *dict)
{
    setting settings[SETTINGS];
    settings_of(t, settings);
    for (int i = 0; i < SETTINGS; i++) {
        int64_t then;
        CZ_TRY(cz_state_dict_get_integer(dict, settings[i].key, &then));
        if (then != settings[i].value)
            return cz_fail(
                CZ_ERR_ARGUMENT,
                "--resume: %s is %lld, with %lld the run was saved in %s: other samples would come",
                settings[i].what, (long long)settings[i].value, (long long)then, t->options.save);
    }
    return CZ_OK;
}

/* ---- saving ---- */

static cz_status fill(const trainer *t, const history *h, const uint64_t print[2],
                      cz_state_dict *common, cz_state_dict *own)
{
    setting settings[SETTINGS];
    cz_sampler_info sampler = CZ_SAMPLER_INFO_INIT;
    cz_state_dict *past;
    settings_of(t, settings);
    for (int i = 0; i < SETTINGS; i++)
        CZ_TRY(cz_state_dict_set_integer(common, settings[i].key, settings[i].value));
    CZ_TRY(cz_sampler_get_info(t->sampler, &sampler));
    CZ_TRY(cz_state_dict_set_integer(common, "samples", sampler.position));
    if (t->options.loss_scale > 0) {
        CZ_TRY(cz_state_dict_set_real(common, "loss_scale", t->loss_scale.scale));
        CZ_TRY(cz_state_dict_set_integer(common, "good_steps", t->loss_scale.good_steps));
    }
    CZ_TRY(proof_to_dict(&t->proof, print, common));
    CZ_TRY(cz_state_dict_add_dict(common, "history", &past));
    return history_to_dicts(h, past, own);
}

cz_status resume_update_time(const trainer *t, cz_trace_totals *update)
{
    cz_trace_totals now = CZ_TRACE_TOTALS_INIT, fused = CZ_TRACE_TOTALS_INIT;
    if (t->zero)
        CZ_TRY(cz_zero_trace(t->zero, CZ_TRACE_UPDATE, &now));
    if (t->zero)
        CZ_TRY(cz_zero_trace(t->zero, CZ_TRACE_FUSED, &fused));
    update->count = t->update_before.count + now.count;
    update->seconds = t->update_before.seconds + now.seconds + fused.seconds;
    return CZ_OK;
}

/* Rank 0's, on all ranks. */
static cz_status look_back(trainer *t, history *h)
{
    cz_trace_totals update = CZ_TRACE_TOTALS_INIT;
    traffic sent = t->traffic;
    *h = (history){0};
    CZ_TRY(resume_update_time(t, &update));
    CZ_TRY(traffic_agree(&sent, t->world));
    if (t->report)
        report_look_back(t->report, &t->times, &update, &sent, h);
    return history_share(h, t->world);
}

/* With --proof: the fingerprint of what is saved, which this step may have had. Collective. */
static cz_status look_now(trainer *t, int step, uint64_t print[2])
{
    const proof_link *link = proof_find(&t->proof, step);
    if (link)
        memcpy(print, link->print, sizeof link->print);
    return link || !t->proof.every ? CZ_OK : proof_look(t->zero, t->optim, print);
}

static cz_status save(trainer *t, const history *h, int step, bool later)
{
    uint64_t print[2] = {0, 0};
    CZ_TRY(look_now(t, step, print));
    cz_save_options what = CZ_SAVE_OPTIONS_INIT;
    cz_state_dict *common = NULL, *own = NULL;
    cz_status status = cz_state_dict_create(&common);
    if (status == CZ_OK)
        status = cz_state_dict_create(&own);
    if (status == CZ_OK)
        status = fill(t, h, print, common, own);
    what.step = step;
    what.common = common;
    what.own = t->rank == 0 ? own : NULL;
    /* a rank that fails here leaves, and the others hear of it in the save */
    if (status == CZ_OK)
        status = later ? cz_checkpoint_save_async(t->checkpoint, &what)
                       : cz_checkpoint_save(t->checkpoint, &what);
    cz_state_dict_destroy(&common);
    cz_state_dict_destroy(&own);
    return status;
}

cz_status resume_save(trainer *t, int step, bool later)
{
    history h;
    cz_status status = look_back(t, &h);
    if (t->report)
        report_pause(t->report, true);
    if (status == CZ_OK)
        status = save(t, &h, step, later);
    if (t->report)
        report_pause(t->report, false);
    else
        history_clear(&h);
    t->saved = step;
    return status;
}

cz_status resume_wait(trainer *t)
{
    return t->checkpoint ? cz_checkpoint_wait(t->checkpoint) : CZ_OK;
}

/* ---- going on ---- */

static cz_status create(trainer *t)
{
    cz_checkpoint_options what = CZ_CHECKPOINT_OPTIONS_INIT;
    what.model = t->model;
    what.zero = t->zero;
    what.optim = t->optim;
    what.parts = t->parts;
    what.keep = t->options.keep;
    return cz_checkpoint_create(&t->checkpoint, t->world, t->options.save, &what);
}

static cz_status take(trainer *t, const cz_load_result *result, const cz_state_dict *run,
                      history *past)
{
    const cz_state_dict *training;
    int64_t position;
    CZ_TRY(cz_state_dict_get_integer(result->common, "samples", &position));
    CZ_TRY(cz_sampler_set_position(t->sampler, position));
    CZ_TRY(cz_state_dict_get_dict(result->common, "history", &training));
    CZ_TRY(history_from_dicts(past, training, run));
    t->step = (int)result->step;
    t->times = past->times;
    t->update_before = past->update;
    memcpy(t->traffic.sent, past->traffic.sent, sizeof t->traffic.sent);
    memcpy(t->traffic.last, past->traffic.last, sizeof t->traffic.last);
    return t->step <= t->options.steps
               ? CZ_OK
               : cz_fail(CZ_ERR_ARGUMENT, "--resume: %s is at step %d already, --steps is %d",
                         t->options.save, t->step, t->options.steps);
}

/* One that adapts goes on from where it was, if there was one. */
static cz_status take_loss_scale(trainer *t, const cz_state_dict *common)
{
    if (!t->options.loss_scale_adapts || cz_state_dict_kind(common, "loss_scale") != CZ_STATE_REAL)
        return CZ_OK;
    CZ_TRY(cz_state_dict_get_real(common, "loss_scale", &t->loss_scale.scale));
    return cz_state_dict_get_integer(common, "good_steps", &t->loss_scale.good_steps);
}

/* If it is of this training, and what was saved. */
static cz_status go_on(trainer *t, const cz_load_result *result, history *past)
{
    cz_state_dict *run;
    CZ_TRY(check_settings(t, result->common));
    CZ_TRY(take_loss_scale(t, result->common));
    CZ_TRY(proof_from_dict(&t->proof, t->zero, t->optim, result->common));
    CZ_TRY(cz_checkpoint_fetch_own(t->checkpoint, 0, &run));
    const cz_status status = take(t, result, run, past);
    cz_state_dict_destroy(&run);
    return status;
}

static void tell(const trainer *t, const cz_load_result *result)
{
    if (t->rank != 0 || t->options.quiet)
        return;
    fputs(cz_checkpoint_notes(t->checkpoint), stdout);
    if (result->step < 0)
        printf("resume no complete checkpoint in %s: from the beginning\n", t->options.save);
    else
        printf("resume after step %lld of %d on %d rank%s: generation %lld in %s, saved by %lld "
               "rank%s\n",
               (long long)result->step, t->options.steps, t->size, t->size == 1 ? "" : "s",
               (long long)result->generation, t->options.save, (long long)result->world_size,
               result->world_size == 1 ? "" : "s");
}

static cz_status load(trainer *t, history *past)
{
    cz_load_options what = CZ_LOAD_OPTIONS_INIT;
    cz_load_result result = CZ_LOAD_RESULT_INIT;
    what.missing_ok = 1;
    what.fall_back = t->options.fall_back;
    CZ_TRY(cz_checkpoint_load(t->checkpoint, &what, &result));
    tell(t, &result);
    const cz_status status = result.step >= 0 ? go_on(t, &result, past) : CZ_OK;
    cz_state_dict_destroy(&result.common);
    cz_state_dict_destroy(&result.own);
    return status;
}

cz_status resume_begin(trainer *t, history *past)
{
    if (!t->options.save)
        return CZ_OK;
    listen_to_signals();
    CZ_TRY(create(t));
    return t->options.resume ? load(t, past) : CZ_OK;
}
