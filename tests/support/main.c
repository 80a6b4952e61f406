/* SPDX-License-Identifier: MIT */
/* Of programs that have nothing to do before their tests and after them. */
#include "support/cz_test.h"

int main(void)
{
    return cz_test_run(NULL, NULL);
}
