/* SPDX-License-Identifier: MIT */
/* Adam or AdamW, from files of torch that do not say it. */
#include "checkpoint/torch_forms.h"

#include "interop/bundle.h"

/* Keys of a group in their order. The values are numbers, or: ! True, ? False, - None; betas have
 * their own. */
typedef struct order {
    const char *keys;
    const char *rule; /* for a reader that has no model */
} order;

#define START "lr betas eps weight_decay amsgrad? "
#define EITHER CZ__ADAM_OR_ADAMW

static const order orders[] = {
    {START, EITHER},                                   /* 1.10 */
    {START "maximize?", EITHER},                       /* 1.11 */
    {START "foreach- maximize? capturable?", "adamw"}, /* 1.13 */
    {START "maximize? foreach- capturable?", EITHER},  /* 1.12, or later from 1.10 */
    {START "maximize? foreach- capturable? differentiable? fused?", "adam"}, /* 1.13 */
    {START "maximize? foreach- capturable? differentiable? fused!", "adam"}, /* 2.0 */
    {START "maximize? foreach- capturable? differentiable? fused-", EITHER}, /* 2.0 */
    {START "foreach- maximize? capturable? differentiable? fused- initial_lr", "adamw"},
    {START "initial_lr foreach- maximize? capturable?", EITHER},
    {"weight_decay lr betas eps amsgrad? foreach! maximize! capturable!", "adamw"},
    {"foreach! " START "maximize? capturable?", EITHER}, /* of either, from the program */
    {"foreach! maximize? capturable? " START, EITHER},
    {START "foreach- maximize? capturable? decoupled_weight_decay?", "adam"},
    {START "maximize? foreach- capturable? differentiable? fused? decoupled_weight_decay!",
     "adamw"},
    {"amsgrad? betas capturable? eps foreach- fused? lr maximize? weight_decay", EITHER},
};

static void put_key(torch_file *f, const char *key, int length)
{
    char name[32];
    const char kind = key[length - 1];
    snprintf(name, sizeof name, "%.*s", strchr("!?-", kind) ? length - 1 : length, key);
    cz__pickle_put_text(&f->p, name);
    if (kind == '-')
        cz__pickle_put_none(&f->p);
    else if (kind == '!' || kind == '?')
        cz__pickle_put_bool(&f->p, kind == '!');
    else
        cz__pickle_put_real(&f->p, 0.25);
    if (strcmp(name, "betas") == 0) {
        cz__pickle_put_real(&f->p, 0.5);
        torch_op(f, "\x86");
    }
}

static void put_group(torch_file *f, const char *keys, int first, int count)
{
    torch_op(f, "}(");
    for (int length; (length = (int)strcspn(keys, " ")) > 0; keys += length + (keys[length] == ' '))
        put_key(f, keys, length);
    cz__pickle_put_text(&f->p, "params");
    torch_op(f, "](");
    for (int i = 0; i < count; i++)
        cz__pickle_put_integer(&f->p, first + i);
    torch_op(f, "eu");
}

/* Up to the state in the optimizer's dictionary, which is next. */
static void begin_optimizer(form *f, torch_file *file)
{
    begin_form(f, file, "adam");
    add_storages(file);
    torch_op(file, "}(");
    cz__pickle_put_text(&file->p, "model");
    put_model(file);
    cz__pickle_put_text(&file->p, "optimizer");
    torch_op(file, "}(");
    cz__pickle_put_text(&file->p, "state");
}

/* `second` NULL: one group with both parameters. */
static void write_orders(form *f, const char *first, const char *second)
{
    torch_file file;
    begin_optimizer(f, &file);
    torch_op(&file, "}(");
    put_entry(&file, 0, &w_view, 3);
    put_entry(&file, 1, &b_view, 4);
    torch_op(&file, "u");
    cz__pickle_put_text(&file.p, "param_groups");
    torch_op(&file, "](");
    put_group(&file, first, 0, second ? 1 : 2);
    if (second)
        put_group(&file, second, 1, 1);
    torch_op(&file, "euu"); /* the groups, the optimizer, the file */
    write_form(f, &file);
}

/* What a reader says of it; `here` NULL: one that knows nothing. */
static void check_rule(const form *f, const cz__index *here, const char *rule, const char *note)
{
    cz__bundle *b;
    cz__index index;
    const char *says;
    CZ_CHECK(cz__bundle_open(&b, f->job.path, here));
    CZ_CHECK(cz__bundle_index(b, here, &index));
    assert_non_null(index.optimizer);
    CZ_CHECK(cz_state_dict_get_text(index.optimizer, "rule", &says));
    assert_string_equal(says, rule);
    const char *notes = cz__bundle_notes(b);
    if (note && (!notes || !strstr(notes, note)))
        fail_msg("notes are '%s', wanted '%s'", notes ? notes : "", note);
    if (!note && notes)
        fail_msg("notes are '%s'", notes);
    cz__index_clear(&index);
    cz__bundle_close(&b);
}

static void check_wanted(const form *f, const char *wanted, const char *rule, const char *note)
{
    cz__index here = {0};
    CZ_CHECK(cz_state_dict_create(&here.optimizer));
    CZ_CHECK(cz_state_dict_set_text(here.optimizer, "rule", wanted));
    check_rule(f, &here, rule, note);
    cz_state_dict_destroy(&here.optimizer);
}

TEST(orders)
{
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        const order *o = &orders[i];
        const bool said = strstr(o->keys, "decoupled") != NULL;
        form f;
        print_message("%s\n", o->keys);
        write_orders(&f, o->keys, NULL);
        check_rule(&f, NULL, o->rule,
                   said                           ? NULL
                   : strcmp(o->rule, EITHER) == 0 ? "is Adam or AdamW, the file does not say which"
                                                  : "as torch's gives its keys in that order");
        for (int k = 0; k < 2; k++) {
            const char *wanted = k ? "adamw" : "adam";
            const bool other = strcmp(o->rule, EITHER) != 0 && strcmp(o->rule, wanted) != 0;
            check_wanted(&f, wanted, said ? o->rule : wanted,
                         other && !said ? "as wanted, but torch's" : NULL);
        }
        check_wanted(&f, "sgd", o->rule, said ? NULL : "its optimizer");
        remove_folder(f.job.folder);
    }
}

#define IS_ADAMW START "foreach- maximize? capturable?"
#define IS_ADAM START "maximize? foreach- capturable? differentiable? fused?"

/* A reader that has an optimizer of that rule, w and b in a group of their own each. */
static void check_load(const form *f, const char *rule, const char *note)
{
    static const char *const names[] = {"w", "b"};
    cz__index here = {0};
    cz_state_dict *groups, *group;
    CZ_CHECK(cz_state_dict_create(&here.optimizer));
    CZ_CHECK(cz_state_dict_set_text(here.optimizer, "rule", rule));
    CZ_CHECK(cz_state_dict_add_dict(here.optimizer, "param_groups", &groups));
    for (int g = 0; g < 2; g++) {
        CZ_CHECK(cz_state_dict_add_dict(groups, g ? "1" : "0", &group));
        CZ_CHECK(cz_state_dict_set_texts(group, "params", names + g, 1));
    }
    check_rule(f, &here, rule, note);
    cz_state_dict_destroy(&here.optimizer);
}

/* A load knows the rule; what speaks against it is said. Groups that contradict each other say
 * nothing. */
TEST(groups_of_a_load)
{
    static const struct {
        const char *first, *second, *against;
    } cases[] = {{START, START, NULL},
                 {START, IS_ADAMW, "adam"},
                 {IS_ADAMW, IS_ADAMW, "adam"},
                 {IS_ADAM, START, "adamw"},
                 {IS_ADAM, IS_ADAMW, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        form f;
        write_orders(&f, cases[i].first, cases[i].second);
        for (int k = 0; k < 2; k++) {
            const char *rule = k ? "adamw" : "adam";
            const bool against = cases[i].against && strcmp(cases[i].against, rule) == 0;
            check_load(&f, rule, against ? "as wanted, but torch's" : NULL);
        }
        remove_folder(f.job.folder);
    }
}

TEST(notes_of_an_import)
{
    form f;
    write_orders(&f, IS_ADAMW, NULL);
    f.note = "is taken for adam, as wanted, but torch's adamw gives its keys in that order";
    import_everywhere(&f);
    remove_folder(f.job.folder);
}

/* A short file that would be long work: a group of many keys, many times in the list. */
TEST(one_group_again_and_again)
{
    enum { MANY = 3000 };
    form f;
    torch_file file;
    cz__bundle *b;
    begin_optimizer(&f, &file);
    torch_op(&file, "}");
    cz__pickle_put_text(&file.p, "param_groups");
    torch_op(&file, "](}(");
    cz__pickle_put_text(&file.p, "params");
    torch_op(&file, "]");
    for (int i = 0; i < MANY; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        torch_named_real(&file, key, 0);
    }
    torch_op(&file, "uq\372"); /* under a number that nothing else has */
    for (int i = 0; i < MANY; i++)
        torch_op(&file, "h\372");
    torch_op(&file, "euu");
    write_form(&f, &file);
    assert_int_equal(cz__bundle_open(&b, f.job.path, NULL), CZ_ERR_FORMAT);
    assert_non_null(strstr(cz_last_error(), "the same parameter groups again and again"));
    remove_folder(f.job.folder);
}
