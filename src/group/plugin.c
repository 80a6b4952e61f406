/* SPDX-License-Identifier: MIT */
/* Groups by the name of their backend. The core does not link to MPI: the plugin does, and which
 * one fits is seen from what the process has loaded, or from who started it. */
#include "group/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/float_mode.h"
#include "base/options.h"
#include "base/process.h"
#include "base/status.h"
#include "base/thread.h"
#include "group/starter.h"
#include "group/internal.h"

typedef cz_status (*world_function)(cz_group **out, bool initialise,
                                    const cz_group_options *options);

/* In a program that has the static library of the plugin in it, as czero::mpi_static has; else
 * NULL. */
#define IF_THERE __attribute__((weak, visibility("default")))
extern IF_THERE cz_status cz_plugin_mpi_world(cz_group **out, bool initialise,
                                              const cz_group_options *options);
extern IF_THERE void cz_plugin_mpi_finish(void);
extern IF_THERE void cz_plugin_mpi_give_up(bool keep_job);

CZ__PROCESS_LOCK(lock)
static world_function world;
static void (*finish)(void);
static void (*give_up)(bool keep_job);

/* A symbol that only that MPI has tells which one is in the process. */
static const char *flavour(void)
{
    int processes;
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"))
        return "openmpi";
    if (dlsym(RTLD_DEFAULT, "MPIR_Dup_fn"))
        return "mpich";
    return cz__starter_find(&processes) == CZ__STARTER_PMI ? "mpich" : "openmpi";
}

/* ---- where plugins are ---- */

/* That this library, or the program that it is part of, was loaded from; "": that is not known. */
static char own_folder[PATH_MAX];
static bool is_static; /* part of the program: nothing beside it says where plugins are */

/* The program's own headers are at the beginning of what it was loaded as. */
static bool is_program(const Dl_info *info)
{
    return getauxval(AT_PHDR) - (uintptr_t)info->dli_fbase <= 16 * sizeof(Elf64_Ehdr);
}

/* A name may be relative to the folder that is the present one now, and later no more. */
__attribute__((constructor)) static void find_own_folder(void)
{
    Dl_info info;
    char name[PATH_MAX] = "";
    if (!dladdr((const void *)&lock, &info) || !info.dli_fname)
        return;
    is_static = is_program(&info);
    if (is_static && readlink("/proc/self/exe", name, sizeof name - 1) < 0)
        return;
    if (!is_static)
        snprintf(name, sizeof name, "%s", info.dli_fname);
    char *slash = strrchr(name, '/');
    if (slash)
        *slash = '\0';
    if (!realpath(slash ? name : ".", own_folder))
        own_folder[0] = '\0';
}

static void *open_in(const char *folder, const char *name, bool *found)
{
    char path[PATH_MAX + 64];
    if (folder[0] != '/')
        return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *found = access(path, F_OK) == 0;
    return *found ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* In the folder that the program's user names or nowhere; else beside this library, else where
 * it was to be installed. Never where the present folder, or a list of the linker's that has
 * it, says. */
static cz_status open_plugin(const char *name, void **plugin)
{
    const char *wanted = cz__environment_text("CZERO_PLUGIN_PATH");
    const char *const folders[] = {own_folder, CZ_PLUGIN_FOLDER};
    bool found = false;
    if (wanted && *wanted && wanted[0] != '/')
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "backend mpi: CZERO_PLUGIN_PATH is '%.200s', wanted is an absolute path",
                        wanted);
    if (wanted && *wanted) {
        *plugin = open_in(wanted, name, &found);
        if (!found)
            return cz__fail(
                CZ_ERR_UNSUPPORTED,
                "backend mpi: there is no %s in %.200s, the folder in CZERO_PLUGIN_PATH", name,
                wanted);
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++)
        *plugin = open_in(folders[i], name, &found);
    if (!found)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "backend mpi: there is no %s in %.200s%s%.200s; %sset CZERO_PLUGIN_PATH to "
                        "the folder in which it is",
                        name, own_folder, *own_folder ? " or " : "", CZ_PLUGIN_FOLDER,
                        is_static ? "the program has the library linked in statically, so nobody "
                                    "knows where plugins are: link czero::mpi_static, or with "
                                    "-rdynamic, and then "
                                  : "");
    return *plugin ? CZ_OK : cz__fail(CZ_ERR_UNSUPPORTED, "backend mpi: %s", dlerror());
}

/* Functions come as object pointers from dlsym(); POSIX says that they are the same. */
static cz_status look_up(void *plugin, const char *name)
{
    struct link_map *map = NULL;
    *(void **)&world = dlsym(plugin, "cz_plugin_mpi_world");
    *(void **)&finish = dlsym(plugin, "cz_plugin_mpi_finish");
    *(void **)&give_up = dlsym(plugin, "cz_plugin_mpi_give_up");
    if (world && finish && give_up)
        return CZ_OK;
    const bool known = dlinfo(plugin, RTLD_DI_LINKMAP, &map) == 0 && map;
    return cz__fail(CZ_ERR_UNSUPPORTED,
                    "backend mpi: %.400s is no plugin of this version of the library: set "
                    "CZERO_PLUGIN_PATH to the folder of the one that is",
                    known ? map->l_name : name);
}

/* The lock is held. */
static cz_status load(void)
{
    char name[64];
    void *plugin = NULL;
    if (world && finish && give_up)
        return CZ_OK;
    if (is_static && cz_plugin_mpi_world && cz_plugin_mpi_finish && cz_plugin_mpi_give_up) {
        world = cz_plugin_mpi_world;
        finish = cz_plugin_mpi_finish;
        give_up = cz_plugin_mpi_give_up;
        return CZ_OK;
    }
    snprintf(name, sizeof name, "libczero-mpi-%s.so", flavour());
    CZ_TRY(open_plugin(name, &plugin));
    return look_up(plugin, name);
}

/* ---- the world, and its end ---- */

static void finish_job(void)
{
    if (finish)
        finish();
}

/* After MPI was initialised, whose own handlers are to come later. */
static void finish_at_exit(void)
{
    static bool asked;
    cz__process_lock_take(&lock);
    const bool first = !asked;
    asked = true;
    cz__process_lock_release(&lock);
    if (first)
        atexit(finish_job);
}

cz_status cz_group_create_world(cz_group **out, const char *backend, bool initialise,
                                const cz_group_options *options)
{
    CZ__OWN_FLOATS;
    CZ__UNCANCELLED;
    if (!out || !backend)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_world: %s is NULL", out ? "backend" : "out");
    *out = NULL;
    if (strcmp(backend, "self") == 0)
        return cz__group_create_self(out, options);
    if (strcmp(backend, "mpi") != 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group_create_world: no backend '%s'; there are self and mpi", backend);
    cz__process_lock_take(&lock);
    const cz_status loaded = load();
    cz__process_lock_release(&lock);
    CZ_TRY(loaded);
    const cz_status made = world(out, initialise, options);
    if (initialise) /* also where it could not be made: MPI may be there */
        finish_at_exit();
    return made;
}

void cz__plugin_give_up(bool keep_job)
{
    if (give_up)
        give_up(keep_job);
}
