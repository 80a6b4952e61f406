/* SPDX-License-Identifier: MIT */
/* Rules known by name: built-in ones, those that a program registers, from several threads at
 * once. */
#include "support/built_in_rules.h"
#include "czero/rule.h"
#include "support/cz_test.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 4, EACH = 20 };

TEST(built_in_names)
{
    for (int i = 0; i < BUILT_IN_RULES; i++)
        assert_string_equal(cz_rule_name(i), built_in_rules[i]);
    assert_null(cz_rule_name(BUILT_IN_RULES));
    assert_null(cz_rule_name(-1));
    assert_null(cz_rule_find(NULL));
}

TEST(register)
{
    static cz_rule mine, again;
    mine = *cz_rule_adam();
    mine.name = "mine";
    assert_null(cz_rule_find("mine"));
    assert_ok(cz_rule_register(&mine));
    assert_ptr_equal(cz_rule_find("mine"), &mine);
    assert_string_equal(cz_rule_name(BUILT_IN_RULES), "mine");
    assert_null(cz_rule_name(BUILT_IN_RULES + 1));
    again = *cz_rule_sgd();
    again.name = "mine";
    assert_int_equal(cz_rule_register(&again), CZ_ERR_STATE);
    assert_string_equal(cz_last_error(), "rule mine: there is a rule of that name");
    assert_int_equal(cz_rule_register(cz_rule_sgd()), CZ_ERR_STATE);
    assert_string_equal(cz_last_error(), "rule sgd: there is a rule of that name");
    again.name = NULL;
    assert_int_equal(cz_rule_register(&again), CZ_ERR_ARGUMENT);
    again = *cz_rule_sgd();
    again.abi--;
    assert_int_equal(cz_rule_register(&again), CZ_ERR_UNSUPPORTED);
    assert_ptr_equal(cz_rule_find("mine"), &mine);
    assert_null(cz_rule_name(BUILT_IN_RULES + 1));
}

static cz_rule many[CZ_RULE_REGISTERED];
static char names[CZ_RULE_REGISTERED][24];

/* Every thread tries all names: each is taken once. Meanwhile they look. */
static void *register_all(void *count)
{
    int *taken = count;
    for (int i = 0; i < THREADS * EACH; i++) {
        const cz_status status = cz_rule_register(&many[i]);
        *taken += status == CZ_OK;
        if (cz_rule_find(names[i]) != &many[i] || !cz_rule_name(BUILT_IN_RULES + 1))
            *taken += 1000000;
    }
    return NULL;
}

TEST(threads)
{
    pthread_t threads[THREADS];
    int taken[THREADS] = {0}, all = 0;
    for (int i = 0; i < CZ_RULE_REGISTERED; i++) {
        snprintf(names[i], sizeof names[i], "rule %d", i);
        many[i] = *cz_rule_adam();
        many[i].name = names[i];
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, register_all, &taken[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        all += taken[t];
    }
    assert_int_equal(all, THREADS * EACH);
    assert_null(cz_rule_name(BUILT_IN_RULES + 1 + THREADS * EACH));
}

TEST(no_room)
{
    int i = THREADS * EACH;
    for (; i < CZ_RULE_REGISTERED - 1; i++)
        assert_ok(cz_rule_register(&many[i]));
    assert_int_equal(cz_rule_register(&many[i]), CZ_ERR_STATE);
    assert_string_equal(cz_last_error(),
                        "rule rule 255: 256 rules are registered, that is the most");
}
