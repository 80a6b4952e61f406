/* SPDX-License-Identifier: MIT
 * The least a program can do with an installed czero: run the version it was compiled against. */
#include <czero/czero.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    char want[64];
    snprintf(want, sizeof want, "%d.%d.%d", CZ_VERSION_MAJOR, CZ_VERSION_MINOR, CZ_VERSION_PATCH);
    printf("compiled against %s, running %s\n", want, cz_version());
    return strcmp(want, cz_version()) != 0;
}
