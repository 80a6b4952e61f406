/* SPDX-License-Identifier: MIT */
/* czero doctor: flight recordings of several ranks, read together: who waited for whom, in which
 * operation. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open.h"
#include "doctor.h"
#include "io/json.h"
#include "io/stream.h"
#include "io/text.h"
#include "json.h"
#include "tool.h"

enum { OPTION_ALL = 'a', OPTION_JSON = 'j' };
enum { LARGEST_FILE = 1 << 20, MOST_FILES = 100000 };

typedef struct doctor_options {
    const char **paths; /* owned */
    int count;
    bool all, json;
} doctor_options;

static error_t parse(int key, char *text, struct argp_state *state)
{
    doctor_options *o = state->input;
    switch (key) {
    case OPTION_ALL:
        o->all = true;
        return 0;
    case OPTION_JSON:
        o->json = true;
        return 0;
    case ARGP_KEY_INIT:
        o->paths = calloc((size_t)state->argc + 1, sizeof *o->paths);
        return o->paths ? 0 : ENOMEM;
    case ARGP_KEY_ARG:
        o->paths[o->count++] = text;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which recordings? Give the folder that CZERO_FLIGHT_RECORDER named");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"all", OPTION_ALL, NULL, 0, "also groups in which nobody waits", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PATH...",
    .doc = "Read the flight recordings of the ranks of a job, from folders or files, and say who "
           "waited for whom, in which operation, and what to try.\vRecordings are written where "
           "CZERO_FLIGHT_RECORDER names a folder: when a group breaks, and of all groups of a "
           "process that gets SIGUSR2. It ends with 0 if nobody waits, 1 if somebody does, 2 if "
           "there is nothing to read."};

/* ---- files ---- */

/* The bytes of a file, LARGEST_FILE + 1 where it has more; -1: why was said. Bytes that are not
 * ASCII may be half a character. */
static ssize_t read_text(const char *command, const char *path, char *text)
{
    const int file = cz__open(path, O_RDONLY | O_NONBLOCK);
    ssize_t length = 0, got = file < 0 ? -1 : 1;
    while (got > 0 && length <= LARGEST_FILE) {
        got = read(file, text + length, (size_t)(LARGEST_FILE + 1 - length));
        length += got > 0 ? got : 0;
    }
    const int why = errno;
    if (file >= 0)
        close(file);
    if (got < 0) {
        (void)tool_trouble(command, "%s: %s", path, strerror(why));
        return -1;
    }
    for (ssize_t i = 0; i < length; i++)
        if ((unsigned char)text[i] >= 0x80)
            text[i] = '?';
    return length;
}

/* All files together may cost what one of all their bytes may: they are in memory at the same
 * time. */
static bool pay(recordings *all, const char *path, const char *text, size_t length)
{
    cz__budget budget = cz__budget_of(path, all->bytes + length);
    budget.used = all->cost < budget.most ? all->cost : budget.most;
    if (cz__budget_spend(&budget, cz__json_cost(text, length), "its JSON") != CZ_OK)
        return false;
    all->bytes += length;
    all->cost = budget.used;
    return true;
}

/* NULL: it is no recording, and why was said. */
static json_t *load(const char *command, recordings *all, const char *path)
{
    static char text[LARGEST_FILE + 1];
    json_t *root = NULL;
    const ssize_t length = read_text(command, path, text);
    if (length < 0)
        return NULL;
    if (length <= LARGEST_FILE && !pay(all, path, text, (size_t)length)) {
        (void)tool_failed(command);
        return NULL;
    }
    if (length <= LARGEST_FILE)
        (void)cz__json_parse(&root, path, text, (size_t)length);
    if (!root || !recording_is_whole(root)) {
        (void)tool_trouble(command, "%s is no flight recording", path);
        json_decref(root);
        return NULL;
    }
    return root;
}

static void add(const char *command, recordings *all, const char *path)
{
    json_t *root = all->count < MOST_FILES ? load(command, all, path) : NULL;
    recording *larger = root ? realloc(all->list, (size_t)(all->count + 1) * sizeof *larger) : NULL;
    all->list = larger ? larger : all->list;
    if (larger && recording_read(&all->list[all->count], root)) {
        all->count++;
        return;
    }
    if (root)
        (void)tool_trouble(command, "%s: no memory for it", path);
    if (!larger)
        json_decref(root);
    all->unread++;
}

static bool is_named_so(const char *name)
{
    const char *end = strrchr(name, '.');
    return strncmp(name, "czero-", 6) == 0 && strstr(name, "-rank") && end &&
           strcmp(end, ".json") == 0;
}

/* False: it cannot be looked at. */
static bool add_path(const char *command, recordings *all, const char *path)
{
    cz__text whole = {0};
    DIR *folder = cz__open_folder(path);
    if (!folder && errno != ENOTDIR) {
        (void)tool_trouble(command, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!folder)
        add(command, all, path);
    errno = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder)); errno = 0) {
        if (!is_named_so(entry->d_name))
            continue;
        cz__text_cut(&whole, 0);
        if (cz__text_print(&whole, "%s/%s", path, entry->d_name))
            add(command, all, cz__text_get(&whole));
        else
            all->unread++;
    }
    const bool seen = !folder || errno == 0;
    if (!seen)
        (void)tool_trouble(command, "%s: %s", path, strerror(errno));
    cz__text_clear(&whole);
    if (folder)
        closedir(folder);
    return seen;
}

/* ---- the result ---- */

static void say(const finding *f)
{
    printf("group %s: %d %s", cz__show(f->group).text, f->size, f->size == 1 ? "rank" : "ranks");
    for (int i = 0; i < f->sentence_count; i++) {
        printf("\n  ");
        tool_say(stdout, f->sentences[i]);
    }
    for (int i = 0; i < f->advice_count; i++) {
        printf("\n  try: ");
        tool_say(stdout, f->advice[i]);
    }
    printf("\n");
}

static json_t *texts(char *const *list, int count)
{
    json_t *array = json_array();
    for (int i = 0; array && i < count; i++)
        array = json_added(array, json_any_text(list[i]));
    return array;
}

static json_t *numbers(const int *list, int count)
{
    json_t *array = json_array();
    for (int i = 0; array && i < count; i++)
        array = json_added(array, json_integer(list[i]));
    return array;
}

static json_t *describe_finding(const finding *f)
{
    return json_pack("{s:o, s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "name", json_any_text(f->group),
                     "size", f->size, "state", finding_state_name(f->state), "waiting",
                     numbers(f->waiting, f->waiting_count), "late", numbers(f->late, f->late_count),
                     "unrecorded", numbers(f->unrecorded, f->unrecorded_count), "sentences",
                     texts(f->sentences, f->sentence_count), "advice",
                     texts(f->advice, f->advice_count));
}

/* Groups one after the other; *waits: somebody does. */
static bool judge(const doctor_options *o, recordings *all, json_t *groups, bool *waits)
{
    finding f;
    for (int at = 0; at < all->count; at = f.next) {
        if (!finding_make(&f, all, at))
            return false;
        *waits |= f.state != FINDING_FINE;
        if (groups && json_array_append_new(groups, describe_finding(&f)) != 0) {
            finding_clear(&f);
            return false;
        }
        if (!groups && (o->all || f.state != FINDING_FINE))
            say(&f);
        finding_clear(&f);
    }
    return true;
}

static void clear(doctor_options *o, recordings *all)
{
    for (int i = 0; i < all->count; i++)
        recording_clear(&all->list[i]);
    free(all->list);
    free(o->paths);
}

int tool_doctor(int argc, char **argv)
{
    doctor_options o = {0};
    recordings all = {0};
    bool seen = true, waits = false;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &o);
    for (int i = 0; i < o.count; i++)
        seen &= add_path(argv[0], &all, o.paths[i]);
    if (seen && all.count == 0)
        (void)tool_trouble(
            argv[0], "no flight recording there: set CZERO_FLIGHT_RECORDER to a folder before the "
                     "job starts, and send SIGUSR2 to its processes when it hangs");
    if (!seen || all.count == 0) {
        clear(&o, &all);
        return TOOL_TROUBLE;
    }
    recordings_sort(&all);
    json_t *root = o.json ? json_pack("{s:[]}", "groups") : NULL;
    bool fine = (!o.json || root) && judge(&o, &all, json_object_get(root, "groups"), &waits);
    const bool well = !waits && all.unread == 0;
    if (fine && !o.json && well)
        printf("%d %s: nobody waits\n", all.count, all.count == 1 ? "recording" : "recordings");
    fine = fine && (!root || (json_object_set_new(root, "fine", json_boolean(well)) == 0 &&
                              json_finish(root)));
    const int count = all.count, unread = all.unread;
    clear(&o, &all);
    if (!fine)
        return tool_trouble(argv[0], "out of memory, or the output cannot be written");
    if (unread > 0)
        (void)tool_trouble(
            argv[0],
            "of %d recordings %d could not be read, see above: this is what the others say%s",
            count + unread, unread, waits ? "" : ", in which nobody waits");
    if (!waits && unread > 0)
        return TOOL_TROUBLE;
    return tool_end(argv[0], waits ? TOOL_NO : TOOL_FINE);
}
