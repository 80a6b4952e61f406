/* SPDX-License-Identifier: MIT */
/* The version, option structs that grow, and numbers from the environment. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/options.h"
#include "base/plain_text.h"
#include "base/process.h"
#include "base/status.h"
#include "czero/version.h"

#define TEXT(number) #number
#define DOTTED(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *cz_version(void)
{
    return DOTTED(CZ_VERSION_MAJOR, CZ_VERSION_MINOR, CZ_VERSION_PATCH);
}

cz_status cz__options_check_size(size_t size, const char *name)
{
    return size >= sizeof size && size <= CZ__OPTIONS_BYTES
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT, "%s: size is %zu, set it to sizeof(%s)", name, size,
                          name);
}

static cz_status copy(void *ours, const cz__option_table *table, const void *array, int64_t index)
{
    const size_t our_size = table->bytes;
    memset(ours, 0, our_size);
    memcpy(ours, &our_size, sizeof our_size);
    if (!array)
        return CZ_OK;
    size_t their_size;
    memcpy(&their_size, array, sizeof their_size);
    CZ_TRY(cz__options_check_size(their_size, table->name));
    const size_t both = their_size < our_size ? their_size : our_size;
    const unsigned char *bytes = (const unsigned char *)array + (size_t)index * their_size;
    memcpy((char *)ours + sizeof our_size, bytes + sizeof our_size, both - sizeof our_size);
    for (size_t i = both; i < their_size; i++)
        if (bytes[i] != 0)
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "%s: byte %zu is set, this library (%s) knows the first %zu only",
                            table->name, i, cz_version(), our_size);
    return CZ_OK;
}

static bool is_wide(const cz__option *option)
{
    return option->type == CZ__OPTION_I64 || option->type == CZ__OPTION_U64;
}

int64_t cz__option_number(const cz__option *option, const void *options)
{
    const void *at = (const char *)options + option->offset;
    int64_t wide;
    int32_t narrow;
    if (is_wide(option)) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    if (option->type == CZ__OPTION_U32 && !option->words)
        return (uint32_t)narrow;
    return narrow;
}

uint64_t cz__options_print(const cz__option_table *table, const void *options, uint64_t print)
{
    for (const cz__option *o = table->options; o->name; o++) {
        const bool is_narrow = o->type == CZ__OPTION_I32 || o->type == CZ__OPTION_U32;
        if (o->scope == CZ__COMPARED)
            print = cz__fingerprint_elements(print, (const char *)options + o->offset,
                                             is_narrow ? sizeof(int32_t) : sizeof(int64_t));
    }
    return print;
}

bool cz__range_has_whole(const cz__range *range, int64_t number)
{
    return number >= range->lowest + range->above && number <= range->highest - range->below &&
           (range->multiple == 0 || number % range->multiple == 0);
}

bool cz__range_has_real(const cz__range *range, double number)
{
    const double lowest = (double)range->lowest, highest = (double)range->highest;
    if (isinf(number))
        return number > 0 && range->infinite;
    if (!(number >= lowest) || (range->above && number == lowest))
        return false;
    return range->highest == INT64_MAX || (range->below ? number < highest : number <= highest);
}

void cz__range_text(char text[CZ__RANGE_TEXT_BYTES], const cz__range *range, bool whole)
{
    const size_t size = CZ__RANGE_TEXT_BYTES;
    const int64_t low = range->lowest, high = range->highest;
    int used = 0;
    if (range->multiple)
        used = snprintf(text, size, "a multiple of %" PRId64 ", ", range->multiple);
    if (high != INT64_MAX && !range->above && !range->below) {
        const char *between = whole && high == low + 1 ? "or" : "to";
        snprintf(text + used, size - (size_t)used, "%" PRId64 " %s %" PRId64, low, between, high);
        return;
    }
    used += snprintf(text + used, size - (size_t)used,
                     range->above ? "above %" PRId64 : "%" PRId64 " or more", low);
    if (high != INT64_MAX)
        snprintf(text + used, size - (size_t)used, ", %s %" PRId64,
                 range->below ? "below" : "at most", high);
    else if (range->infinite)
        snprintf(text + used, size - (size_t)used, ", or infinity");
}

static cz_status refuse(const cz__option *o, const cz__option_table *table, const char *what,
                        const char *found)
{
    char wanted[CZ__RANGE_TEXT_BYTES];
    if (o->range.lowest == 0 && o->range.highest == 0)
        return cz__fail(CZ_ERR_UNSUPPORTED, "%s: %s is %s, wanted 0", table->name, o->name, found);
    cz__range_text(wanted, &o->range, o->type != CZ__OPTION_REAL);
    return cz__fail(CZ_ERR_ARGUMENT, "%s: option %s is %s, wanted %s", what, o->name, found,
                    wanted);
}

static cz_status take_real(void *ours, const cz__option *o, const cz__option_table *table,
                           const char *what)
{
    CZ__OWN_FLOATS;
    double value;
    char found[CZ__REAL_TEXT_BYTES];
    memcpy(&value, (char *)ours + o->offset, sizeof value);
    if (o->range.lowest != INT64_MIN && !cz__range_has_real(&o->range, value)) {
        cz__real_text(found, value);
        return refuse(o, table, what, found);
    }
    if (value == 0 && o->standard != 0)
        value = o->standard;
    else if (value == -1 && o->has_none)
        value = 0;
    memcpy((char *)ours + o->offset, &value, sizeof value);
    return CZ_OK;
}

static cz_status take_whole(void *ours, const cz__option *o, const cz__option_table *table,
                            const char *what)
{
    int64_t value = cz__option_number(o, ours);
    char found[24];
    const bool is_beyond = o->type == CZ__OPTION_U64 && value < 0; /* of all int64_t */
    if (o->range.lowest != INT64_MIN &&
        !cz__range_has_whole(&o->range, is_beyond ? INT64_MAX : value)) {
        snprintf(found, sizeof found, is_beyond ? "%" PRIu64 : "%" PRId64, value);
        return refuse(o, table, what, found);
    }
    if (value == 0)
        value = (int64_t)o->standard;
    else if (value == -1 && o->has_none)
        value = 0;
    const int32_t narrow = (int32_t)value;
    if (is_wide(o))
        memcpy((char *)ours + o->offset, &value, sizeof value);
    else
        memcpy((char *)ours + o->offset, &narrow, sizeof narrow);
    return CZ_OK;
}

cz_status cz__options_read(void *ours, const cz__option_table *table, const void *theirs,
                           const char *what)
{
    return cz__options_read_element(ours, table, theirs, 0, what);
}

/* All its bytes are zero, which stands for nothing else and is in its range. */
static bool is_plain_zero(const void *ours, const cz__option *o)
{
    const cz__range *range = &o->range;
    const bool is_narrow = o->type == CZ__OPTION_I32 || o->type == CZ__OPTION_U32;
    uint64_t bits = 0;
    memcpy(&bits, (const char *)ours + o->offset, is_narrow ? sizeof(uint32_t) : sizeof bits);
    return bits == 0 && o->standard == 0 && range->lowest + range->above <= 0 &&
           range->highest - range->below >= 0;
}

cz_status cz__options_read_element(void *ours, const cz__option_table *table, const void *array,
                                   int64_t index, const char *what)
{
    CZ_TRY(copy(ours, table, array, index));
    for (const cz__option *o = table->options; o->name; o++) {
        if (o->type == CZ__OPTION_ADDRESS || is_plain_zero(ours, o))
            continue;
        CZ_TRY(o->type == CZ__OPTION_REAL ? take_real(ours, o, table, what)
                                          : take_whole(ours, o, table, what));
    }
    return CZ_OK;
}

cz_status cz__options_write(void *theirs, const void *ours, size_t our_size, const char *name)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    CZ_TRY(cz__options_check_size(size, name));
    const size_t both = size < our_size ? size : our_size;
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, both - sizeof size);
    return CZ_OK;
}

double cz__environment_number(const char *variable, double minimum, double maximum,
                              double otherwise)
{
    CZ__OWN_FLOATS;
    const char *text = cz__environment_text(variable);
    if (!text || !*text)
        return otherwise;
    char *end = NULL;
    const double number = cz__read_real(text, &end);
    if (end != text && *end == '\0' && number >= minimum && number <= maximum) /* no NaN either */
        return number;
    cz__log(CZ_LOG_WARN, "%s is \"%s\", expected a number from %g to %g: using %g", variable, text,
            minimum, maximum, otherwise);
    return otherwise;
}
