/* SPDX-License-Identifier: MIT */
/* pthread_cancel() takes effect when a call has returned, whatever files it opens, reads and
 * writes, and whatever it logs: each call with a cancellation that waits from before it. */
#include "checkpoint/saves.h"

#include <pthread.h>

#include "czero/archive.h"
#include "czero/plan.h"

static small one;
static cz_group *group;
static cz_archive *archive;
static cz_shapes *shapes;
static char file[2 * SMALL_PATH];

static cz_status launched(cz_group *ranks, void *context)
{
    return cz_barrier(ranks, NULL);
}

static cz_status launch(void)
{
    const cz_launch_options two = {.size = sizeof two, .ranks = 2};
    return cz_launch(launched, NULL, &two);
}

static cz_status open_group(void)
{
    return cz_group_create_self(&group, NULL);
}

static cz_status open_all(void)
{
    return small_open(&one, group, folder, 1, 2);
}

static cz_status save(void)
{
    return save_and_wait(&one, 1, false);
}

static cz_status save_later(void)
{
    return save_and_wait(&one, 2, true);
}

static cz_status load(void)
{
    return cz_checkpoint_load(one.checkpoint, NULL, NULL);
}

static cz_status export(void)
{
    return cz_checkpoint_export(one.checkpoint, file, NULL);
}

static cz_status import(void)
{
    return cz_checkpoint_import(one.checkpoint, file, NULL, NULL);
}

static cz_status open_archive(void)
{
    return cz_archive_open(&archive, folder, CZ_NEWEST);
}

static cz_status read_archive(void)
{
    float element;
    return cz_archive_read(archive, 0, NULL, 0, 1, &element);
}

static cz_status read_dictionary(void)
{
    cz_state_dict *dict = NULL;
    const cz_status status = cz_archive_read_dict(archive, 0, &dict);
    cz_state_dict_destroy(&dict);
    return status;
}

static cz_status take_fingerprint(void)
{
    uint64_t print[2];
    return cz_archive_fingerprint(archive, print);
}

static cz_status verify_archive(void)
{
    return cz_archive_verify(archive, NULL, NULL);
}

static cz_status visit(const cz_archive_generation *generation, void *context)
{
    return CZ_OK;
}

static cz_status list(void)
{
    return cz_archive_list(folder, visit, NULL);
}

static cz_status read_shapes(void)
{
    return cz_shapes_read(&shapes, file);
}

static cz_status log_line(void)
{
    cz_log_set_sink(NULL, NULL);
    cz_log(CZ_LOG_ERROR, "this line is a test's");
    return CZ_OK;
}

static cz_status close_all(void)
{
    cz_archive_destroy(&archive);
    cz_shapes_destroy(&shapes);
    small_close(&one);
    cz_group_destroy(&group);
    return CZ_OK;
}

typedef struct call {
    const char *name;
    cz_status (*make)(void);
} call;

static const call calls[] = {{"launch", launch},
                             {"group", open_group},
                             {"checkpoint", open_all},
                             {"save", save},
                             {"asynchronous save", save_later},
                             {"load", load},
                             {"export", export},
                             {"import", import},
                             {"archive", open_archive},
                             {"read", read_archive},
                             {"dictionary", read_dictionary},
                             {"fingerprint", take_fingerprint},
                             {"verify", verify_archive},
                             {"list", list},
                             {"shapes", read_shapes},
                             {"log", log_line},
                             {"destroy", close_all}};

/* The cancellation waits from here on; what comes after the call is the first place to take it. */
static cz_status made;
static const char *sentence;
static bool returned;

static void *make_call(void *context)
{
    const call *c = context;
    pthread_cancel(pthread_self());
    made = c->make();
    returned = true;
    if (made)
        sentence = strdup(cz_last_error());
    for (;;)
        pthread_testcancel();
    return NULL;
}

EACH_TEST(set_up, tear_down)

TEST(calls_with_files_end_before_their_thread_is_cancelled)
{
    snprintf(file, sizeof file, "%s/all.safetensors", folder);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        pthread_t thread;
        returned = false;
        assert_int_equal(pthread_create(&thread, NULL, make_call, (void *)&calls[i]), 0);
        pthread_join(thread, NULL);
        if (!returned)
            fail_msg("%s: cancelled in the middle", calls[i].name);
        if (made)
            fail_msg("%s: %s", calls[i].name, sentence);
    }
}
