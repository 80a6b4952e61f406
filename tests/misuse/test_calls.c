/* SPDX-License-Identifier: MIT */
/* Every public function with every argument spoiled in turn, as its header declares them
 * (generate.awk): NULL, numbers out of range, enumerators that do not exist, structs of a wrong
 * size, with unknown bytes, or with a field out of range, texts that are empty, long, or no texts.
 * Which functions those are, and what their arguments, is said by the two headers that are included
 * first: of the library, or of a plugin (tests/mpi/misuse_fixtures.h). On one rank; on two, of
 * which one alone or both make the mistake. Each function in a process of its own: what comes back
 * is a status with a sentence (CZ_ERR_ARGUMENT where there is no object, or no place for one), and
 * never a crash, a hang, a leak or a group of no use. */
#ifndef MISUSE_FIXTURES
#define MISUSE_FIXTURES "misuse/fixtures.h"
#endif
#include MISUSE_FIXTURES

#include "misuse_calls.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { CALLS = sizeof calls / sizeof *calls, SECONDS = 20 };

/* Of one function, as far as its process has come. */
typedef struct progress {
    atomic_int spoiled, way, alone; /* the trial that runs */
    atomic_int trials, faults;      /* that have ended, and what was wrong */
} progress;

static progress *shared; /* between the processes */
static int only_one;     /* MISUSE_VERBOSE: say what every trial returned */

typedef struct running {
    const call *call;
    int spoiled, way;
    bool alone; /* the last rank only */
} running;

/* Handles whose absence no other rank can be told of: there is no group to tell it by. */
static bool is_handle(const call *c, int argument)
{
    const char *type = c->arguments[argument - 1].type;
    const size_t length = strlen(type);
    return argument > 0 && type[length - 1] == '*' && type[length - 2] == ' ' &&
           (strcmp(type, "cz_group *") == 0 || (argument == 1 && strncmp(type, "cz_", 3) == 0) ||
            strcmp(type, "cz_bucket *") == 0);
}

/* The object that a call is about, and where it puts the one that it makes: it needs them. */
static bool is_needed(const call *c, int argument)
{
    const char *type = c->arguments[argument - 1].type;
    const bool is_const = strncmp(type, "const ", 6) == 0;
    if (strcmp(c->name, "cz_set_allocator") == 0 || (strstr(c->name, "_joinable") && argument == 1))
        return false; /* NULL is malloc(), or a joinable that cz_join_begin() refuses */
    return strcmp(c->arguments[argument - 1].name, "out") == 0 ||
           (argument == 1 && strncmp(type + (is_const ? 6 : 0), "cz_", 3) == 0 &&
            type[strlen(type) - 1] == '*');
}

static void complain(const running *r, const trial *t, const char *what, const char *more)
{
    const char *argument = r->spoiled ? r->call->arguments[r->spoiled - 1].name : "nothing";
    atomic_fetch_add(&shared->faults, 1);
    fprintf(stderr, "misuse: %s() on rank %d of %d, `%s` spoiled in way %d (%s): %s %.300s\n",
            r->call->name, cz_group_rank(t->world), cz_group_size(t->world), argument, r->way,
            t->what ? t->what : "its value", what, more);
}

/* ---- one trial on one rank ---- */

static const char *const may_fail[] = {
    /* valid, and yet not allowed here */
    "cz_set_allocator", "cz_fail", "cz_fail_text", "cz_optim_scalar", "cz_group_create_custom",
};

static void check_outcome(const running *r, trial *t)
{
    const bool ended = t->status == CZ_ERR_PEER || t->status == CZ_ERR_TIMEOUT;
    if (!r->call->has_status || strncmp(r->call->name, "cz_fail", 7) == 0)
        return;
    if (only_one)
        fprintf(stderr, "%s(%s) way %d (%s)%s rank %d: %s: %.150s\n", r->call->name,
                r->spoiled ? r->call->arguments[r->spoiled - 1].name : "", r->way,
                t->what ? t->what : "", r->alone ? " alone" : "", cz_group_rank(t->world),
                cz_status_name(t->status), t->status == CZ_OK ? "" : cz_last_error());
    if (t->what && strncmp(t->what, "reserved = ", 11) == 0 && t->status == CZ_OK)
        complain(r, t, "taken for nothing:", "what is reserved must be 0");
    if (ended || t->status == CZ_ERR_INTERNAL)
        complain(r, t, cz_status_name(t->status), cz_last_error());
    if (t->status != CZ_OK && (!*cz_last_error() || strcmp(cz_last_error(), "unset") == 0))
        complain(r, t, "there is no sentence:", cz_status_name(t->status));
    if (t->spoiled && t->way == 1 && is_needed(r->call, t->spoiled) && t->status != CZ_ERR_ARGUMENT)
        complain(r, t, "NULL is not refused:", cz_status_name(t->status));
    if (r->spoiled || t->status == CZ_OK)
        return;
    for (size_t i = 0; i < sizeof may_fail / sizeof *may_fail; i++)
        if (strcmp(may_fail[i], r->call->name) == 0)
            return;
    complain(r, t, "valid arguments are refused:", cz_last_error());
}

/* A handle that a call has made or, where it failed, has not. */
static void check_out(const running *r, trial *t, const char *type, void *handle)
{
    const bool failed = r->call->has_status && t->status != CZ_OK;
    if (handle == t)
        complain(r, t, "*out was left as it was, of", type);
    if (handle && handle != t && failed)
        complain(r, t, "a handle beside an error, of", type);
}

static void end_join(cz_join **join)
{
    if (*join)
        (void)cz_join_end(join, CZ_OK);
}

#define cz_join_destroy end_join

static void clean_up(const running *r, trial *t)
{
#define END_OUT(type)                                                                              \
    check_out(r, t, #type, t->out_##type);                                                         \
    if (t->out_##type != (void *)t)                                                                \
        type##_destroy(&t->out_##type);
#define END(type) type##_destroy(&t->type);
    for (int i = 0; i < NAMED; i++)
        cz_group_destroy(&t->groups[i]);
    HANDLES(END_OUT)
    cz_object_free(in(t, "cz_object_free") && t->spoiled == 0 ? NULL : t->object);
    if (t->loaded) {
        cz_state_dict_destroy(&t->loaded->common);
        cz_state_dict_destroy(&t->loaded->own);
    }
    for (int i = 0; i < 2; i++)
        cz_sched_destroy(&t->members[i]);
    cz_state_dict_destroy(&t->spare);
    HANDLES(END)
}

static void run_call(trial *t, const running *r)
{
    t->what = NULL;
    (void)cz_fail(CZ_OK, "unset");
    t->status = CZ_OK;
    r->call->run(t);
    check_outcome(r, t);
}

typedef struct in_hook {
    trial *t;
    const running *r;
    bool done;
} in_hook;

static cz_status run_in_hook(void *state, cz_bucket *bucket)
{
    in_hook *h = state;
    if (h->done)
        return CZ_OK;
    h->done = true;
    h->t->bucket = bucket;
    run_call(h->t, h->r);
    return h->t->status;
}

static void run_in_pass(trial *t, const running *r)
{
    in_hook state = {t, r, false};
    const cz_hook hook = {
        .size = sizeof hook, .name = "misuse", .run = run_in_hook, .state = &state};
    must(t, cz_ddp_register_hook(ensure_cz_ddp(t), &hook), "a hook");
    mark_all(t);
    (void)cz_ddp_finish(t->cz_ddp);
    cz_ddp_destroy(&t->cz_ddp);
}

static char folder_root[] = "/tmp/misuse-XXXXXX";

static cz_status one_rank(cz_group *group, void *context)
{
    const running *r = context;
    const bool here = !r->alone || cz_group_rank(group) == cz_group_size(group) - 1;
    trial t = {.function = r->call->name, .world = group};
    t.spoiled = here ? r->spoiled : 0;
    t.way = here ? r->way : 0;
    snprintf(t.folder, sizeof t.folder, "%s", folder_root);
    for (size_t i = 0; i < sizeof preparations / sizeof *preparations; i++)
        if (in(&t, preparations[i].function))
            preparations[i].run(&t);
    if (strncmp(r->call->name, "cz_bucket_", 10) == 0)
        run_in_pass(&t, r);
    else
        run_call(&t, r);
    if (t.cz_work)
        (void)cz_work_wait(t.cz_work);
    clean_up(r, &t);
    if (cz_barrier(group, NULL) != CZ_OK)
        complain(r, &t, "the group is of no use any more:", cz_last_error());
    return CZ_OK;
}

/* ---- all trials of a function ---- */

static void remove_files(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/*", folder_root);
    if (system(command) != 0)
        abort();
}

static void run_trial(const running *r, int world)
{
    const cz_launch_options options = {
        .size = sizeof options, .ranks = world, .timeout_seconds = 5};
    const int64_t held = cz_test_allocations_held();
    const bool files = strncmp(r->call->name, "cz_checkpoint_", 14) == 0;
    atomic_store(&shared->spoiled, r->spoiled);
    atomic_store(&shared->way, r->way);
    atomic_store(&shared->alone, r->alone);
    running copy = *r;
    trial nobody = {.function = r->call->name};
    if (cz_launch(one_rank, &copy, &options) != CZ_OK)
        complain(r, &nobody, "the ranks did not come back:", cz_last_error());
    if (cz_test_allocations_held() != held)
        complain(r, &nobody, "memory was left", "");
    if (files)
        remove_files();
    atomic_fetch_add(&shared->trials, 1);
}

/* The trials of a function, one after the other; those before `skip` have been made. */
static void run_function(const call *c, int world, int skip)
{
    int number = 0;
    running r = {c, 0, 0, false};
    cz_log_set_sink(quiet, NULL);
    if (number++ >= skip)
        run_trial(&r, world);
    for (r.spoiled = 1; r.spoiled <= c->count; r.spoiled++)
        for (r.way = 1; r.way <= c->arguments[r.spoiled - 1].ways; r.way++)
            for (int alone = 0; alone <= (world > 1 && !is_handle(c, r.spoiled)); alone++) {
                r.alone = alone;
                if (number++ >= skip)
                    run_trial(&r, world);
            }
}

/* CZ_OK in *status, or why the process ended. False: it was stopped because it did not go on. */
static bool wait_for(pid_t child, int *status)
{
    int seen = -1, quiet_for = 0;
    while (waitpid(child, status, WNOHANG) != child) {
        const int now = atomic_load(&shared->trials);
        quiet_for = now == seen ? quiet_for + 1 : 0;
        seen = now;
        if (quiet_for > SECONDS * 1000) {
            (void)kill(child, SIGKILL);
            (void)waitpid(child, status, 0);
            return false;
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return true;
}

/* A process of its own, as it has done its work. What it has run is counted once, on one rank. */
static void end_process(int world)
{
#ifdef CZ_COVERAGE
    extern void __gcov_dump(void);
    if (world == 1)
        __gcov_dump();
#endif
    _exit(0);
}

static int try_function(const call *c, int world)
{
    int faults = 0;
    atomic_store(&shared->trials, 0);
    for (;;) {
        int status = 0;
        fflush(NULL);
        atomic_store(&shared->faults, 0);
        const pid_t child = fork();
        if (child == 0) {
            begin_process();
            run_function(c, world, atomic_load(&shared->trials));
            end_process(world);
        }
        const bool ended = wait_for(child, &status);
        faults += atomic_load(&shared->faults);
        if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0)
            return faults;
        const int spoiled = atomic_load(&shared->spoiled);
        fprintf(stderr, "misuse: %s() on %d ranks, `%s` spoiled in way %d%s: %s %d\n", c->name,
                world, spoiled ? c->arguments[spoiled - 1].name : "nothing",
                atomic_load(&shared->way), atomic_load(&shared->alone) ? " on one rank" : "",
                !ended                ? "it does not come back"
                : WIFSIGNALED(status) ? "it was ended by signal"
                                      : "it ended the process with",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        faults++;
        atomic_fetch_add(&shared->trials, 1);
    }
}

static void run_all(int world)
{
    const char *only = getenv("MISUSE_ONLY");
    int faults = 0;
    for (int i = 0; i < CALLS; i++)
        if (!only || strncmp(calls[i].name, only, strlen(only)) == 0)
            faults += try_function(&calls[i], world);
    if (faults > 0)
        fail_msg("%d faults on %d ranks, see above", faults, world);
}

static void test_no_call_with_bad_arguments_crashes_on_one_rank(void **state)
{
    run_all(1);
}

static void test_no_call_with_bad_arguments_crashes_or_waits_on_two_ranks(void **state)
{
    run_all(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_call_with_bad_arguments_crashes_on_one_rank),
        cmocka_unit_test(test_no_call_with_bad_arguments_crashes_or_waits_on_two_ranks),
    };
    only_one = getenv("MISUSE_VERBOSE") != NULL;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(folder_root) || chdir(folder_root) != 0)
        return 1; /* some of the texts are names of files */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_files();
    (void)rmdir(folder_root);
    return failed;
}
