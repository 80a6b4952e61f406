/* SPDX-License-Identifier: MIT */
/* What hooks around another hook share. */
#include "base/options.h"
#include "base/status.h"
#include "hooks/hooks.h"

cz_status cz__hook_check_inner(const cz_hook *hook, const cz_hook *inner)
{
    if (inner->size < sizeof *inner || !inner->run || !inner->name)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the hook inside it has no %s; see cz_hook_find()", hook->name,
                        inner->size < sizeof *inner ? "size"
                        : inner->run                ? "name"
                                                    : "run");
    cz_hook read;
    CZ_TRY(cz__options_read(&read, sizeof read, inner, "cz_hook"));
    if (read.result != CZ_HOOK_WHOLE && read.result != CZ_HOOK_SLICE)
        return cz__fail(CZ_ERR_ARGUMENT,
                        "hook '%s': the result of the hook inside it is %d, "
                        "wanted 0 or 1",
                        hook->name, (int)read.result);
    return CZ_OK;
}

void cz__hook_release_inner(void *inner)
{
    cz_hook *hook = inner;
    if (hook->release)
        hook->release(hook->state);
}

void cz__hook_describe_inner(cz__description *description, const cz_hook *hook, int64_t pass)
{
    const cz_hook *inner = hook->state;
    if (inner)
        cz__hook_describe(description, inner, pass);
}
