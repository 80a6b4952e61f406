/* SPDX-License-Identifier: MIT */
/* The version of the library that is loaded. */
#include "czero/version.h"

#define TEXT(number) #number
#define DOTTED(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *cz_version(void)
{
    return DOTTED(CZ_VERSION_MAJOR, CZ_VERSION_MINOR, CZ_VERSION_PATCH);
}
