/* SPDX-License-Identifier: MIT */
/* State dictionaries: keys in order, found one by one while they are few and by a table when many. */
#include "base/memory.h"
#include "base/status.h"
#include "state/object.h"

#include <string.h>

#define FEW 8

cz_status cz__state_dict_make(cz_state_dict **out, const cz_state_dict *parent)
{
    *out = cz__calloc(1, sizeof **out);
    if (!*out)
        return cz__fail(CZ_ERR_MEMORY, "state dictionary: %zu bytes", sizeof **out);
    (*out)->depth = parent ? parent->depth + 1 : 1;
    return CZ_OK;
}

cz_status cz_state_dict_create(cz_state_dict **out)
{
    if (!out)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: out is NULL");
    return cz__state_dict_make(out, NULL);
}

void cz_state_dict_destroy(cz_state_dict **dict)
{
    cz_state_dict *d = dict ? *dict : NULL;
    if (d && !d->parent) {
        for (int64_t i = 0; i < d->count; i++) {
            cz__state_value_clear(&d->entries[i]->value);
            cz__free(d->entries[i]);
        }
        cz__names_clear(&d->names);
        cz__free(d->entries);
        cz__free(d);
    }
    if (dict)
        *dict = NULL;
}

static int64_t index_of(const cz_state_dict *dict, const char *key)
{
    int64_t index = -1;
    if (dict->names.count > 0)
        return cz__names_find(&dict->names, key, &index) ? index : -1;
    for (int64_t i = 0; i < dict->count; i++)
        if (strcmp(dict->entries[i]->key, key) == 0)
            return i;
    return -1;
}

cz__state_entry *cz__state_find(const cz_state_dict *dict, const char *key)
{
    const int64_t index = index_of(dict, key);
    return index < 0 ? NULL : dict->entries[index];
}

cz_status cz__state_check(const cz_state_dict *dict, const char *key)
{
    if (!dict || !key)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: %s is NULL", dict ? "key" : "dict");
    if (!*key)
        return cz__fail(CZ_ERR_ARGUMENT, "state dictionary: a key is empty");
    return CZ_OK;
}

static bool reserve_entry(cz_state_dict *dict)
{
    if (dict->count < dict->capacity)
        return true;
    const int64_t capacity = dict->capacity > 0 ? 2 * dict->capacity : 4;
    cz__state_entry **entries = cz__calloc((size_t)capacity, sizeof(cz__state_entry *));
    if (!entries)
        return false;
    if (dict->count > 0)
        memcpy(entries, dict->entries, (size_t)dict->count * sizeof(cz__state_entry *));
    cz__free(dict->entries);
    dict->entries = entries;
    dict->capacity = capacity;
    return true;
}

/* The table has all keys or none. */
static bool reserve_name(cz_state_dict *dict)
{
    if (dict->names.count > 0)
        return cz__names_reserve(&dict->names, 1);
    if (dict->count < FEW)
        return true;
    if (!cz__names_reserve(&dict->names, dict->count + 1))
        return false;
    for (int64_t i = 0; i < dict->count; i++)
        cz__names_add(&dict->names, dict->entries[i]->key, i);
    return true;
}

/* A new entry without a value; NULL: out of memory. */
static cz__state_entry *append(cz_state_dict *dict, const char *key)
{
    const size_t key_bytes = strlen(key) + 1;
    cz__state_entry *entry = cz__calloc(1, sizeof *entry + key_bytes);
    if (!entry || !reserve_entry(dict) || !reserve_name(dict)) {
        cz__free(entry);
        return NULL;
    }
    memcpy(entry->key, key, key_bytes);
    if (dict->names.count > 0)
        cz__names_add(&dict->names, entry->key, dict->count);
    dict->entries[dict->count++] = entry;
    return entry;
}

cz_status cz__state_put(cz_state_dict *dict, const char *key, cz__state_value *value)
{
    cz__state_entry *entry = cz__state_find(dict, key);
    if (!entry && !(entry = append(dict, key))) {
        cz__state_value_clear(value);
        return cz__state_fail(CZ_ERR_MEMORY, dict, key, "could not be added: out of memory");
    }
    cz__state_value_clear(
        &entry->value); /* from here on `key` may be gone: it may be a text in it */
    entry->value = *value;
    if (value->kind == CZ_STATE_DICT) {
        value->dict->parent = dict;
        value->dict->key = entry->key;
    }
    return CZ_OK;
}

int64_t cz_state_dict_count(const cz_state_dict *dict)
{
    return dict ? dict->count : -1;
}

const char *cz_state_dict_key(const cz_state_dict *dict, int64_t index)
{
    return dict && index >= 0 && index < dict->count ? dict->entries[index]->key : NULL;
}

cz_state_kind cz_state_dict_kind(const cz_state_dict *dict, const char *key)
{
    const cz__state_entry *entry = dict && key ? cz__state_find(dict, key) : NULL;
    return entry ? entry->value.kind : CZ_STATE_NONE;
}

cz_status cz_state_dict_remove(cz_state_dict *dict, const char *key)
{
    CZ_TRY(cz__state_check(dict, key));
    const int64_t index = index_of(dict, key);
    if (index < 0)
        return cz__state_fail(CZ_ERR_ARGUMENT, dict, key, "is not there, nothing to remove");
    cz__state_entry *entry = dict->entries[index], *last = dict->entries[dict->count - 1];
    if (dict->names.count > 0) {
        cz__names_remove(&dict->names, entry->key);
        if (last != entry) {
            cz__names_remove(&dict->names, last->key);
            cz__names_add(&dict->names, last->key, index);
        }
    }
    dict->entries[index] = last;
    dict->count--;
    cz__state_value_clear(&entry->value);
    cz__free(entry);
    return CZ_OK;
}
