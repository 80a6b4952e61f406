/* SPDX-License-Identifier: MIT */
/* A table from names to numbers: open addressing, the next place where one is taken. The
 * hash is keyed: names come from files. */
#include "base/names.h"

#include "base/fingerprint.h"
#include "base/memory.h"

#include <string.h>

static size_t home_of(const cz__names *names, const char *text)
{
    return (size_t)cz__keyed_hash(text, strlen(text)) & (names->capacity - 1);
}

/* Where the name is, or the free place where it would go. */
static cz__name *place_of(const cz__names *names, const char *text)
{
    size_t i = home_of(names, text);
    while (names->places[i].text && strcmp(names->places[i].text, text) != 0)
        i = (i + 1) & (names->capacity - 1);
    return &names->places[i];
}

void cz__names_clear(cz__names *names)
{
    cz__free(names->places);
    *names = (cz__names){0};
}

bool cz__names_find(const cz__names *names, const char *text, int64_t *number)
{
    const cz__name *place = names->capacity ? place_of(names, text) : NULL;
    if (!place || !place->text)
        return false;
    *number = place->number;
    return true;
}

bool cz__names_reserve(cz__names *names, int64_t more)
{
    if ((uint64_t)more > SIZE_MAX / 8)
        return false;
    cz__names larger = {.capacity = names->capacity ? names->capacity : 16};
    while (larger.capacity < 2 * (names->count + (size_t)more))
        larger.capacity *= 2;
    if (larger.capacity == names->capacity)
        return true;
    larger.places = cz__calloc(larger.capacity, sizeof *larger.places);
    if (!larger.places)
        return false;
    for (size_t i = 0; i < names->capacity; i++)
        if (names->places[i].text)
            cz__names_add(&larger, names->places[i].text, names->places[i].number);
    cz__free(names->places);
    *names = larger;
    return true;
}

void cz__names_add(cz__names *names, const char *text, int64_t number)
{
    *place_of(names, text) = (cz__name){text, number};
    names->count++;
}

/* Names after a free place that were put off by a taken one move up, so that a search still ends at
 * the first free place. */
void cz__names_remove(cz__names *names, const char *text)
{
    const size_t mask = names->capacity - 1;
    cz__name *const places = names->places;
    size_t hole = (size_t)(place_of(names, text) - places);
    for (size_t i = (hole + 1) & mask; places[i].text; i = (i + 1) & mask) {
        const size_t home = home_of(names, places[i].text);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            places[hole] = places[i];
            hole = i;
        }
    }
    places[hole] = (cz__name){0};
    names->count--;
}
