/* SPDX-License-Identifier: MIT */
/* The version, option structs that grow, and numbers from the environment. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

cz_status cz__options_check_reserved(int64_t value, const char *name)
{
    return value == 0 ? CZ_OK
                      : cz__fail(CZ_ERR_UNSUPPORTED, "%s: reserved is %" PRId64 ", expected 0",
                                 name, value);
}

cz_status cz__options_read(void *ours, size_t our_size, const void *theirs, const char *name)
{
    return cz__options_read_element(ours, our_size, theirs, 0, name);
}

cz_status cz__options_read_element(void *ours, size_t our_size, const void *array, int64_t index,
                                   const char *name)
{
    memset(ours, 0, our_size);
    memcpy(ours, &our_size, sizeof our_size);
    if (!array)
        return CZ_OK;
    size_t their_size;
    memcpy(&their_size, array, sizeof their_size);
    CZ_TRY(cz__options_check_size(their_size, name));
    const size_t both = their_size < our_size ? their_size : our_size;
    const unsigned char *bytes = (const unsigned char *)array + (size_t)index * their_size;
    memcpy((char *)ours + sizeof our_size, bytes + sizeof our_size, both - sizeof our_size);
    for (size_t i = both; i < their_size; i++)
        if (bytes[i] != 0)
            return cz__fail(CZ_ERR_UNSUPPORTED,
                            "%s: byte %zu is set, this library (%s) knows the first %zu only", name,
                            i, cz_version(), our_size);
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
