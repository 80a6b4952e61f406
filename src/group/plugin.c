/* SPDX-License-Identifier: MIT */
/* Groups by the name of their backend. The core does not link to MPI: the plugin does, and which one fits
 * is seen from what the process has loaded, or from who started it. */
#include "group/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/status.h"

typedef cz_status (*world_function)(cz_group **out, bool initialise,
                                    const cz_group_options *options);
typedef void (*finish_function)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static world_function world;
static finish_function finish;

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static bool started_by_openmpi(void)
{
    return is_set("OMPI_COMM_WORLD_SIZE");
}

static bool started_by_mpich(void)
{
    return is_set("PMI_SIZE") && is_set("PMI_RANK");
}

bool cz__plugin_in_job(void)
{
    return started_by_openmpi() || started_by_mpich();
}

/* A symbol that only that MPI has tells which one is in the process. */
static const char *flavour(void)
{
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world"))
        return "openmpi";
    if (dlsym(RTLD_DEFAULT, "MPIR_Dup_fn"))
        return "mpich";
    return started_by_mpich() && !started_by_openmpi() ? "mpich" : "openmpi";
}

/* The folder that this library was loaded from, with the slash; "" if that is not known. */
static void own_folder(char *folder, size_t bytes)
{
    Dl_info info;
    folder[0] = '\0';
    if (!dladdr((const void *)&lock, &info) || !info.dli_fname)
        return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash)
        snprintf(folder, bytes, "%.*s", (int)(slash - info.dli_fname) + 1, info.dli_fname);
}

static void *open_plugin(const char *name)
{
    char folder[2048], path[4096];
    const char *wanted = getenv("CZERO_PLUGIN_PATH");
    if (wanted && *wanted) { /* there or nowhere */
        snprintf(path, sizeof path, "%s/%s", wanted, name);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    own_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s%s", folder, name);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return plugin ? plugin : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* Functions come as object pointers from dlsym(); POSIX says that they are the same. */
static cz_status look_up(void *plugin, const char *name)
{
    *(void **)&world = dlsym(plugin, "cz_plugin_mpi_world");
    *(void **)&finish = dlsym(plugin, "cz_plugin_mpi_finish");
    return world && finish ? CZ_OK
                           : cz__fail(CZ_ERR_UNSUPPORTED,
                                      "backend mpi: %s is no plugin of this "
                                      "library",
                                      name);
}

/* The lock is held. */
static cz_status load(void)
{
    char name[64];
    if (world && finish)
        return CZ_OK;
    snprintf(name, sizeof name, "libczero-mpi-%s.so", flavour());
    void *plugin = open_plugin(name);
    if (!plugin)
        return cz__fail(CZ_ERR_UNSUPPORTED, "backend mpi: %s", dlerror());
    return look_up(plugin, name);
}

static void finish_at_exit(void)
{
    atexit(cz__plugin_finish);
}

cz_status cz_group_create_world(cz_group **out, const char *backend, bool initialise,
                                const cz_group_options *options)
{
    CZ__OWN_FLOATS;
    if (!out || !backend)
        return cz__fail(CZ_ERR_ARGUMENT, "group_create_world: %s is NULL", out ? "backend" : "out");
    *out = NULL;
    if (strcmp(backend, "self") == 0)
        return cz_group_create_self(out, options);
    if (strcmp(backend, "mpi") != 0)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "group_create_world: no backend '%s'; there are self and mpi", backend);
    pthread_mutex_lock(&lock);
    const cz_status status = load();
    pthread_mutex_unlock(&lock);
    CZ_TRY(status);
    CZ_TRY(world(out, initialise, options));
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (initialise)
        pthread_once(&once, finish_at_exit);
    return CZ_OK;
}

void cz__plugin_finish(void)
{
    if (finish)
        finish();
}
