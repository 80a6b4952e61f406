/* SPDX-License-Identifier: MIT */
/* Files of a checkpoint dealt out to folders of single ranks, as if each had a disk of its own. */
#ifndef CZ_TEST_HOSTS_H
#define CZ_TEST_HOSTS_H

#include <dirent.h>
#include <sys/stat.h>

#include "checkpoint/small.h"

enum {
    INDEX_ONCE = 1, /* one host has the index, and the common dictionary's tensors; otherwise all */
    COPIES = 2,     /* files are copied; otherwise they are the same, under several names */
    TWICE = 4,      /* two hosts have each part */
    VARIANTS = 8
};

/* A generation's files, and where they go. */
typedef struct dealing {
    int hosts, variant;
    char from[SMALL_PATH], to[SMALL_PATH]; /* "TO/host0" and so on */
} dealing;

static inline void host_path(char path[SMALL_PATH], const char *folder, int host)
{
    snprintf(path, SMALL_PATH, "%.500s/host%d", folder, host);
}

static inline bool copy_file(const char *from, const char *to)
{
    char block[4096];
    size_t count;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    bool fine = in && out;
    while (fine && (count = fread(block, 1, sizeof block, in)) > 0)
        fine = fwrite(block, 1, count, out) == count;
    if (in)
        fclose(in);
    return out && fclose(out) == 0 && fine;
}

static inline bool deal_file(const dealing *d, const char *generation, const char *name, int host)
{
    char from[2 * SMALL_PATH], to[2 * SMALL_PATH], path[SMALL_PATH];
    host_path(path, d->to, host);
    mkdir(path, 0777);
    snprintf(to, sizeof to, "%s/%s", path, generation);
    mkdir(to, 0777);
    snprintf(to, sizeof to, "%s/%s/%s", path, generation, name);
    snprintf(from, sizeof from, "%s/%s/%s", d->from, generation, name);
    if (access(to, F_OK) == 0)
        return true;
    return d->variant & COPIES ? copy_file(from, to) : link(from, to) == 0;
}

static inline bool deal_name(const dealing *d, const char *generation, const char *name)
{
    int rank;
    bool fine = true;
    if (sscanf(name, "rank-%d-of", &rank) == 1) {
        const int host = (rank + 1 + d->variant) % d->hosts;
        fine = deal_file(d, generation, name, host);
        if (d->variant & TWICE)
            fine = fine && deal_file(d, generation, name, (host + 1) % d->hosts);
    } else
        for (int host = d->variant & INDEX_ONCE ? d->hosts - 1 : 0; host < d->hosts; host++)
            fine = fine && deal_file(d, generation, name, host);
    return fine;
}

/* All generations; false: something could not be written. */
static inline bool deal_out(const dealing *d)
{
    bool fine = true;
    char path[2 * SMALL_PATH];
    struct dirent *generation, *file;
    DIR *all = opendir(d->from), *one;
    while (all && (generation = readdir(all))) {
        snprintf(path, sizeof path, "%s/%s", d->from, generation->d_name);
        if (!strstr(generation->d_name, "-step-") || !(one = opendir(path)))
            continue;
        while ((file = readdir(one)))
            if (file->d_name[0] != '.')
                fine = deal_name(d, generation->d_name, file->d_name) && fine;
        closedir(one);
    }
    if (all)
        closedir(all);
    return fine && all;
}

static inline void remove_hosts(const dealing *d)
{
    for (int host = 0; host < d->hosts; host++) {
        char path[SMALL_PATH];
        host_path(path, d->to, host);
        remove_folder(path);
    }
}

#endif
