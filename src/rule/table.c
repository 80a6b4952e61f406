/* SPDX-License-Identifier: MIT */
/* Tables of rules, which may come from anywhere: what is wrong with one is found before it is
 * used. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/options.h"
#include "base/plain_text.h"
#include "base/status.h"
#include "rule/rule.h"

/* ---- hyper-parameters: found by name, held to their ranges ---- */

/* A shorter element is an older program's, a longer one a newer one's. */
static void read_spec(void *spec, size_t size, const void *table, size_t element_size, int index)
{
    memset(spec, 0, size);
    memcpy(spec, (const char *)table + (size_t)index * element_size,
           element_size < size ? element_size : size);
}

cz_hyper_spec cz__rule_hyper(const cz_rule *rule, int index)
{
    cz_hyper_spec spec;
    read_spec(&spec, sizeof spec, rule->hypers, rule->hyper_size, index);
    return spec;
}

cz_slot_spec cz__rule_slot(const cz_rule *rule, int index)
{
    cz_slot_spec spec;
    read_spec(&spec, sizeof spec, rule->slots, rule->slot_size, index);
    return spec;
}

/* "lr, beta1, beta2", as much of it as there is room for. */
static void list_names(const cz_rule *rule, char *text, size_t room)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < rule->hyper_count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s", i > 0 ? ", " : "",
                                 cz__rule_hyper(rule, i).name);
}

cz_status cz__rule_find_hyper(const cz_rule *rule, const char *name, int *place)
{
    char names[256];
    for (int i = 0; i < rule->hyper_count; i++) {
        if (strcmp(cz__rule_hyper(rule, i).name, name) == 0) {
            *place = i;
            return CZ_OK;
        }
    }
    list_names(rule, names, sizeof names);
    return cz__fail(CZ_ERR_ARGUMENT, "%s: no hyper-parameter '%s' (it has %s)", rule->name, name,
                    names);
}

bool cz__rule_has_hyper(const cz_rule *rule, const char *name)
{
    for (int i = 0; i < rule->hyper_count; i++)
        if (strcmp(cz__rule_hyper(rule, i).name, name) == 0)
            return true;
    return false;
}

static bool in_range(const cz_hyper_spec *spec, double value)
{
    if (!isfinite(value))
        return false;
    if (spec->flag)
        return value == 0 || value == 1;
    return value >= spec->minimum &&
           (spec->below_maximum ? value < spec->maximum : value <= spec->maximum);
}

static cz_status refuse(const cz_rule *rule, const cz_hyper_spec *spec, double value)
{
    CZ__PLAIN_TEXT;
    char range[128] = "a finite number";
    const char *above = spec->below_maximum ? "<" : "<=";
    if (spec->flag)
        snprintf(range, sizeof range, "0 or 1");
    else if (isfinite(spec->minimum) && isfinite(spec->maximum))
        snprintf(range, sizeof range, "%g <= %s %s %g", spec->minimum, spec->name, above,
                 spec->maximum);
    else if (isfinite(spec->minimum))
        snprintf(range, sizeof range, "%g <= %s, finite", spec->minimum, spec->name);
    else if (isfinite(spec->maximum))
        snprintf(range, sizeof range, "%s %s %g, finite", spec->name, above, spec->maximum);
    return cz__fail(CZ_ERR_ARGUMENT, "%s: %s is %g, allowed is %s", rule->name, spec->name, value,
                    range);
}

cz_status cz__rule_set(const cz_rule *rule, double *values, const char *name, double value)
{
    int place;
    CZ_TRY(cz__rule_find_hyper(rule, name, &place));
    const cz_hyper_spec spec = cz__rule_hyper(rule, place);
    if (!in_range(&spec, value))
        return refuse(rule, &spec, value);
    values[place] = value;
    return CZ_OK;
}

void cz__rule_defaults(const cz_rule *rule, double *values)
{
    for (int i = 0; i < rule->hyper_count; i++)
        values[i] = cz__rule_hyper(rule, i).initial;
}

cz_status cz__rule_set_list(const cz_rule *rule, double *values, const cz_hyper *list)
{
    for (; list && list->name; list++)
        CZ_TRY(cz__rule_set(rule, values, list->name, list->value));
    return CZ_OK;
}

cz_status cz__rule_check(const cz_rule *rule, const double *values)
{
    for (int i = 0; i < rule->hyper_count; i++)
        if (isnan(values[i]))
            return cz__fail(CZ_ERR_ARGUMENT, "%s: %s has no default and was not given", rule->name,
                            cz__rule_hyper(rule, i).name);
    return rule->check ? rule->check(values) : CZ_OK;
}

cz_status cz__rule_check_type(const cz_rule *rule, const double *values, cz_dtype dtype)
{
    if (dtype != CZ_F32 || rule->find_kernel || rule->update_tensor)
        return CZ_OK;
    for (int i = 0; i < rule->hyper_count; i++) {
        const float narrow = (float)values[i];
        const char *name = cz__rule_hyper(rule, i).name;
        if (isfinite(values[i]) && isinf(narrow))
            return cz__fail(CZ_ERR_ARGUMENT,
                            "%s: %s is %g, which is infinite in %s, the type of the parameters; "
                            "the largest allowed is %.9g",
                            rule->name, name, values[i], cz_dtype_name(dtype), (double)FLT_MAX);
        if (values[i] != 0 && narrow == 0 && strcmp(name, "eps") == 0)
            return cz__fail(CZ_ERR_ARGUMENT,
                            "%s: %s is %g, which is 0 in %s, the type of the parameters, and gives "
                            "NaN where a gradient is 0; allowed are 0 and from %.2g on",
                            rule->name, name, values[i], cz_dtype_name(dtype), 0x1p-149);
    }
    return CZ_OK;
}

unsigned cz__rule_element_slots(const cz_rule *rule, const double *values)
{
    const unsigned used = rule->slots_used(values);
    unsigned elements = 0;
    int e = 0;
    for (int i = 0; i < rule->slot_count; i++)
        if (cz__rule_slot(rule, i).kind == CZ_SLOT_ELEMENT)
            elements |= (used >> i & 1u) << e++;
    return elements;
}

/* ---- how fine parameters may be cut ---- */

/* A table of an older program ends before them. */
#define HAS(rule, field)                                                                           \
    ((rule)->size >= offsetof(cz_rule, field) + sizeof((rule)->field) && (rule)->field)

/* All of it, where it is in one granule. */
static int64_t of_tensor(int64_t elements, const cz_tensor *param)
{
    return elements > 1 && elements >= cz_tensor_count(param) ? 0 : elements;
}

int64_t cz__granule(int64_t granule, const cz_tensor *param)
{
    if (granule == CZ_GRANULE_WHOLE)
        return 0;
    if (granule == CZ_GRANULE_ROW) {
        cz_tensor row = *param;
        if (param->dimensions < 2 || cz_tensor_count(param) == 0)
            return 1;
        row.shape[0] = 1;
        granule = cz_tensor_count(&row);
    }
    return of_tensor(granule > 1 ? granule : 1, param);
}

int64_t cz__granule_of_both(int64_t a, int64_t b, const cz_tensor *param)
{
    int64_t divisor = a, rest = b;
    if (a == 0 || b == 0)
        return 0;
    while (rest > 0) {
        const int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return a / divisor > INT64_MAX / b ? 0 : of_tensor(a / divisor * b, param);
}

int64_t cz__rule_granule_given(const cz_rule *rule)
{
    if (rule->update_tensor)
        return CZ_GRANULE_WHOLE;
    return HAS(rule, granule) ? rule->granule : 0;
}

int64_t cz__rule_granule(const cz_rule *rule, const cz_tensor *param)
{
    return cz__granule(cz__rule_granule_given(rule), param);
}

cz_status cz__rule_cost(const cz_rule *rule, const cz_tensor *param, const char *name, double *cost)
{
    *cost = -1;
    if (!HAS(rule, cost))
        return CZ_OK;
    *cost = rule->cost(param, rule->context);
    return *cost >= 0 && *cost <= 1e200 /* so that sums are numbers */
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT,
                          "rule %s: the cost of parameter '%.60s' is %g, wanted: from 0 to 1e200",
                          rule->name, name, *cost);
}

/* ---- the table ---- */

enum { MOST_HYPERS = 1024 }; /* a larger number is no count of a table */

/* Only `abi` and `size` are read before they are known to be right. */
static cz_status check_size(const cz_rule *rule)
{
    if (!rule)
        return cz__fail(CZ_ERR_ARGUMENT, "rule is NULL");
    const size_t least = offsetof(cz_rule, granule); /* what came later may be missing */
    if (rule->abi != CZ_RULE_ABI || rule->size < least)
        return cz__fail(CZ_ERR_UNSUPPORTED,
                        "rule: ABI %u of %zu bytes, this library takes %u of at least %zu",
                        (unsigned)rule->abi, rule->size, CZ_RULE_ABI, least);
    return CZ_OK;
}

static cz_status check_entries(const cz_rule *rule)
{
    const char *missing = NULL;
    if (!rule->name)
        missing = "name";
    else if (!rule->slots_used)
        missing = "slots_used";
    else if (!rule->prepare)
        missing = "prepare";
    if (missing)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %s is NULL", rule->name ? rule->name : "?",
                        missing);
    if (!*rule->name)
        return cz__fail(CZ_ERR_ARGUMENT, "rule: its name is empty");
    return CZ_OK;
}

/* The sizes of elements are read only where there are some. */
static cz_status check_element(const cz_rule *rule, int count, size_t size, const char *field,
                               const char *type)
{
    if (count > 0 && (size < sizeof(char *) || size > CZ__OPTIONS_BYTES))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %s is %zu, set it to sizeof(%s)", rule->name,
                        field, size, type);
    return CZ_OK;
}

static cz_status check_hypers(const cz_rule *rule)
{
    if (rule->hyper_count < 0 || rule->hyper_count > MOST_HYPERS ||
        (rule->hyper_count > 0 && !rule->hypers))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: no table of its %d hyper-parameters", rule->name,
                        rule->hyper_count);
    CZ_TRY(check_element(rule, rule->hyper_count, rule->hyper_size, "hyper_size", "cz_hyper_spec"));
    for (int i = 0; i < rule->hyper_count; i++) {
        const char *name = cz__rule_hyper(rule, i).name;
        if (!name || !*name)
            return cz__fail(CZ_ERR_ARGUMENT, "rule %s: hyper-parameter %d has no name", rule->name,
                            i);
        for (int k = 0; k < i; k++)
            if (strcmp(cz__rule_hyper(rule, k).name, name) == 0)
                return cz__fail(CZ_ERR_ARGUMENT, "rule %s: it has two hyper-parameters '%s'",
                                rule->name, name);
    }
    return CZ_OK;
}

static cz_status check_slot(const cz_rule *rule, int i)
{
    const cz_slot_spec slot = cz__rule_slot(rule, i);
    if (!slot.name || !*slot.name)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: slot %d has no name", rule->name, i);
    if (slot.kind != CZ_SLOT_ELEMENT && slot.kind != CZ_SLOT_SCALAR)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "rule %s: slot '%s' is of kind %d, allowed are element (%d) and scalar (%d)",
            rule->name, slot.name, (int)slot.kind, CZ_SLOT_ELEMENT, CZ_SLOT_SCALAR);
    if (slot.kind != CZ_SLOT_SCALAR && strcmp(slot.name, "step") == 0)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: slot 'step' is the step count, a scalar",
                        rule->name);
    if (slot.initial_hyper && !cz__rule_has_hyper(rule, slot.initial_hyper))
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "rule %s: slot '%s' starts with hyper-parameter '%s', it has none of that name",
            rule->name, slot.name, slot.initial_hyper);
    for (int k = 0; k < i; k++)
        if (strcmp(cz__rule_slot(rule, k).name, slot.name) == 0)
            return cz__fail(CZ_ERR_ARGUMENT, "rule %s: it has two slots '%s'", rule->name,
                            slot.name);
    return CZ_OK;
}

static cz_status check_slots(const cz_rule *rule)
{
    if (rule->slot_count < 0 || rule->slot_count > CZ__RULE_SLOTS ||
        (rule->slot_count > 0 && !rule->slots))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %d slots, allowed are 0 to %d in a table",
                        rule->name, rule->slot_count, CZ__RULE_SLOTS);
    CZ_TRY(check_element(rule, rule->slot_count, rule->slot_size, "slot_size", "cz_slot_spec"));
    for (int i = 0; i < rule->slot_count; i++)
        CZ_TRY(check_slot(rule, i));
    return CZ_OK;
}

/* Partial sums and whole tensors: all that belongs to one of them, and not both. */
static cz_status check_passes(const cz_rule *rule)
{
    if (rule->sum_count < 0 || rule->sum_count > CZ_RULE_SUMS)
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: %d partial sums, allowed are 0 to %d",
                        rule->name, rule->sum_count, CZ_RULE_SUMS);
    if (rule->sum_count > 0 && (!rule->find_sums || !rule->combine))
        return cz__fail(CZ_ERR_ARGUMENT, "rule %s: it has %d partial sums and %s is NULL",
                        rule->name, rule->sum_count, rule->find_sums ? "combine" : "find_sums");
    if (rule->sum_count > 0 && rule->update_tensor)
        return cz__fail(
            CZ_ERR_ARGUMENT,
            "rule %s: it has both partial sums and update_tensor, which sees whole tensors",
            rule->name);
    return CZ_OK;
}

static cz_status check_granule(const cz_rule *rule)
{
    const int64_t granule = cz__rule_granule_given(rule);
    return granule >= CZ_GRANULE_WHOLE
               ? CZ_OK
               : cz__fail(CZ_ERR_ARGUMENT,
                          "rule %s: its granule is %" PRId64
                          ", wanted: a number of elements, CZ_GRANULE_ROW (%d) or "
                          "CZ_GRANULE_WHOLE (%d)",
                          rule->name, granule, CZ_GRANULE_ROW, CZ_GRANULE_WHOLE);
}

cz_sums_kernel cz__rule_device_sums(const cz_device *device, cz_dtype param, cz_dtype grad,
                                    cz_dtype state, void *context)
{
    return device->find_sums ? device->find_sums(context, param, grad, state) : NULL;
}

cz_status cz__rule_check_table(const cz_rule *rule)
{
    CZ_TRY(check_size(rule));
    CZ_TRY(check_entries(rule));
    CZ_TRY(check_hypers(rule));
    CZ_TRY(check_slots(rule));
    CZ_TRY(check_granule(rule));
    return check_passes(rule);
}
