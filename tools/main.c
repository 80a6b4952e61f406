/* SPDX-License-Identifier: MIT */
/* czero: looks into checkpoints and measures this machine. Each subcommand is a file of its own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/open.h"
#include "czero/device.h"
#include "guard.h"
#include "json.h"
#include "tool.h"

static const tool_command commands[] = {
    {"inspect", "show what a checkpoint holds", tool_inspect},
    {"verify", "check that a checkpoint is whole, undamaged, and its run's", tool_verify},
    {"convert", "write a checkpoint in another form, or for another number of ranks", tool_convert},
    {"diff", "say what differs between two checkpoints, or two runs", tool_diff},
    {"plan", "how much memory a training takes, and how much it sends", tool_plan},
    {"doctor", "say who waited for whom, from flight recordings", tool_doctor},
    {"bench", "time collectives and update rules on this machine", tool_bench},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* ---- czero --version ---- */

/* The plugins are beside the library, which may be linked into this program. */
static bool has_plugin(const char *flavour)
{
    static const char *const beside[] = {"", "../lib/", "../lib64/", "../"};
    char self[1024], path[1400];
    const char *wanted = secure_getenv("CZERO_PLUGIN_PATH");
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (wanted && *wanted) {
        snprintf(path, sizeof path, "%s/libczero-mpi-%s.so", wanted, flavour);
        return access(path, R_OK) == 0;
    }
    self[length > 0 ? length : 0] = 0;
    char *slash = strrchr(self, '/');
    if (!slash)
        return false;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(path, sizeof path, "%.*s%slibczero-mpi-%s.so", (int)(slash - self) + 1, self,
                 beside[i], flavour);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    const bool openmpi = has_plugin("openmpi"), mpich = has_plugin("mpich");
    fprintf(stream, "%s\n", cz_build_info());
    fprintf(stream, "backends here: self, threads%s%s%s\n", openmpi ? ", mpi (Open MPI)" : "",
            mpich ? ", mpi (MPICH)" : "",
            openmpi || mpich ? "" : "; no plugin for mpi (CZERO_PLUGIN_PATH says where to look)");
}

/* ---- czero COMMAND … ---- */

/* Letters that differ, from the left; a rough guess is enough to say "did you mean". */
static int apart(const char *a, const char *b)
{
    const int long_way = (int)strlen(a) - (int)strlen(b);
    int count = abs(long_way);
    for (; *a && *b; a++, b++)
        count += *a != *b && !(a[1] == b[0] && a[0] == b[1]);
    return count;
}

static void refuse(const struct argp_state *state, const char *word)
{
    const tool_command *nearest = &commands[0];
    for (int i = 1; i < COMMANDS; i++)
        if (apart(word, commands[i].name) < apart(word, nearest->name))
            nearest = &commands[i];
    if (access(word, F_OK) == 0)
        argp_error(state, "'%s' is no command. To see what is in it: czero inspect '%s'", word,
                   word);
    else if (apart(word, nearest->name) <= 3)
        argp_error(state, "'%s' is no command. Did you mean '%s'?", word, nearest->name);
    else
        argp_error(state, "'%s' is no command", word);
}

typedef struct chosen {
    const tool_command *command;
    int at;
} chosen;

static void choose(chosen *c, const char *word, struct argp_state *state)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, word) == 0)
            c->command = &commands[i];
    if (!c->command)
        refuse(state, word);
    c->at = state->next - 1;
    state->next = state->argc; /* the rest is the command's */
}

/* Beside argp's own. It may also stand behind the command, whichever that is. */
enum { NO_FILE_LIMIT = 256 };
static const struct argp_option options[] = {
    {"no-file-limit", NO_FILE_LIMIT, NULL, 0,
     "Read files whatever memory they ask for: those that somebody you trust has made. Before or "
     "behind the command",
     0},
    {0}};

static void lift_file_limit(void)
{
    (void)setenv("CZERO_FILE_LIMIT", "none", 1);
}

/* Take it out of a command's arguments. */
static int lift_if_asked(int argc, char **argv)
{
    int kept = 1;
    bool words = true; /* up to a "--" */
    for (int i = 1; i < argc; i++) {
        words = words && strcmp(argv[i], "--") != 0;
        if (words && strcmp(argv[i], "--no-file-limit") == 0)
            lift_file_limit();
        else
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    return kept;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    switch (key) {
    case NO_FILE_LIMIT:
        lift_file_limit();
        return 0;
    case ARGP_KEY_ARG:
        choose(state->input, text, state);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which command? For a first look: czero inspect CHECKPOINT");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* "Commands:" in the help, from the table. */
static char *list_commands(int key, const char *text, void *input)
{
    char *list = NULL;
    size_t bytes;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;
    FILE *stream = open_memstream(&list, &bytes);
    if (!stream)
        return (char *)text;
    fprintf(stream, "Commands:\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-10s%s\n", commands[i].name, commands[i].summary);
    fprintf(stream,
            "\n'czero COMMAND --help' has the options of each, 'man czero-COMMAND' says more.\n"
            "It ends with 0 if all is fine, 1 if the answer is no (damaged, different), 2 "
            "in trouble.");
    fclose(stream);
    return list;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "COMMAND [ARGUMENT...]",
        .doc = "Look into czero's checkpoints, check and convert them; measure this machine.\v ",
        .help_filter = list_commands};
    char name[64];
    chosen c = {0};
    cz__paths_stay = true;
    argp_err_exit_status = TOOL_TROUBLE;
    argp_program_version_hook = print_version;
    (void)argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
    if (!c.command)
        return TOOL_TROUBLE;
    snprintf(name, sizeof name, "czero %s", c.command->name);
    argv[c.at] = name;
    /* A limit of sizes is an error of a write, which is cleaned up after. */
    (void)signal(SIGXFSZ, SIG_IGN);
    guard_begin();
    json_keep_reserve();
    return c.command->run(lift_if_asked(argc - c.at, argv + c.at), argv + c.at);
}
