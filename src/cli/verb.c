#include "cli/verb.h"

#include <stdio.h>
#include <string.h>

#include "cli/value.h"

static const struct option every_verb[] = {
    {"json", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "print JSON for machines, on one line"},
    {"config", 0, false, OPTION_FILE, "FILE", NULL, 0, 0, "read settings from this file; flags and environment win"},
    {"help", 'h', false, OPTION_FLAG, NULL, NULL, 0, 0, "print this text"},
};

static const struct option clients[] = {
    {"server", 0, false, OPTION_ADDRESSES, "HOST:PORT[,...]", "127.0.0.1:7400", 0, 0, "where coordinators listen"},
    {"timeout", 0, false, OPTION_DURATION, "TIME", "10s", 1, 86400000, "how long to try to reach one"},
};

static const struct option credentials[] = {
    {"token-file", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "file with the token to send; else CAPSTAN_TOKEN is the token itself"},
    {"tls", 0, false, OPTION_FLAG, NULL, NULL, 0, 0, "encrypt, and trust what this machine trusts"},
    {"tls-ca", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "encrypt, and trust these certificates (PEM); workers read the file again when it changes"},
    {"tls-cert", 0, false, OPTION_FILE, "FILE", NULL, 0, 0,
     "certificate to present (PEM); workers also listen with it, and read it again when it changes"},
    {"tls-key", 0, false, OPTION_FILE, "FILE", NULL, 0, 0, "its key (PEM)"},
};

static const struct option logs[] = {
    {"log-level", 0, false, OPTION_CHOICE, "debug|info|warn|error|none", "info", 0, 0, "least level that is logged"},
    {"log-format", 0, false, OPTION_CHOICE, "text|json", "text", 0, 0, "form of the lines on stderr"},
};

#define PARTS_MAX 5

struct part {
    const struct option *options;
    uint32_t n;
};

static uint32_t parts_of(const struct verb *verb, struct part out[PARTS_MAX])
{
    uint32_t n = 0;
    out[n++] = (struct part){verb->options, verb->n_options};
    if ((verb->groups & VERB_CLIENT) != 0) {
        out[n++] = (struct part){clients, ARRAY_LEN(clients)};
    }
    if ((verb->groups & (VERB_CLIENT | VERB_CREDENTIALS)) != 0) {
        out[n++] = (struct part){credentials, ARRAY_LEN(credentials)};
    }
    if ((verb->groups & VERB_LOGS) != 0) {
        out[n++] = (struct part){logs, ARRAY_LEN(logs)};
    }
    out[n++] = (struct part){every_verb, ARRAY_LEN(every_verb)};
    return n;
}

const struct option *verb_group_options(unsigned group, uint32_t *out_n)
{
    struct part part = group == VERB_CLIENT        ? (struct part){clients, ARRAY_LEN(clients)}
                       : group == VERB_CREDENTIALS ? (struct part){credentials, ARRAY_LEN(credentials)}
                       : group == VERB_LOGS        ? (struct part){logs, ARRAY_LEN(logs)}
                                                   : (struct part){every_verb, ARRAY_LEN(every_verb)};
    *out_n = part.n;
    return part.options;
}

uint32_t verb_option_count(const struct verb *verb)
{
    struct part parts[PARTS_MAX];
    uint32_t n_parts = parts_of(verb, parts);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        n += parts[i].n;
    }
    return n;
}

const struct option *verb_option_at(const struct verb *verb, uint32_t i)
{
    struct part parts[PARTS_MAX];
    uint32_t n_parts = parts_of(verb, parts);
    for (uint32_t p = 0; p < n_parts; p++) {
        if (i < parts[p].n) {
            return &parts[p].options[i];
        }
        i -= parts[p].n;
    }
    return NULL;
}

int verb_option_find(const struct verb *verb, const char *name)
{
    uint32_t n = verb_option_count(verb);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(verb_option_at(verb, i)->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const struct verb *verb_find(const struct verb_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->n_verbs; i++) {
        if (strcmp(table->verbs[i]->name, name) == 0) {
            return table->verbs[i];
        }
    }
    return NULL;
}

static enum err check_range(const struct option *option, const char *text, int64_t number, struct error *e)
{
    if (number < option->min) {
        return error_set(e, ERR_INVALID, "%s is too small", text);
    }
    if (option->max != 0 && number > option->max) {
        return error_set(e, ERR_INVALID, "%s is too large", text);
    }
    return ERR_OK;
}

static enum err check_addresses(const char *text, struct error *e)
{
    char address[VALUE_ADDRESS_BYTES];
    uint32_t i = 0;
    while (value_list_at(text, i, address, sizeof address)) {
        enum err err = value_address(address, e);
        if (err != ERR_OK) {
            return err;
        }
        i++;
    }
    /* A part that is too long ends the walk as the end of the text does; the number of commas tells which it was. */
    uint32_t parts = 1;
    for (const char *p = text; *p != '\0'; p++) {
        parts += *p == ',' ? 1 : 0;
    }
    return i == parts ? ERR_OK : error_set(e, ERR_INVALID, "an address in the list is too long");
}

enum err option_check(const struct option *option, const char *text, int64_t *out_number, struct error *e)
{
    int64_t number = 0;
    size_t name_n = 0;
    bool is_set = false;
    enum err err = ERR_OK;
    struct value_range range = {option->min, option->max == 0 ? INT64_MAX : option->max};
    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_FILE:
    case OPTION_FOLDER:
        return text[0] != '\0' ? ERR_OK : error_set(e, ERR_INVALID, "the value is empty");
    case OPTION_ID:
        return value_id(text, e);
    case OPTION_ADDRESS:
        return value_address(text, e);
    case OPTION_ADDRESSES:
        return check_addresses(text, e);
    case OPTION_PAIR:
        return value_pair(text, &name_n, e);
    case OPTION_CHOICE:
        return value_choice(text, option->argument, e);
    case OPTION_FLAG:
        err = value_bool(text, &is_set, e);
        number = is_set ? 1 : 0;
        break;
    case OPTION_NUMBER:
        err = value_number(text, range, &number, e);
        break;
    case OPTION_DURATION:
        err = value_duration_ms(text, &number, e);
        err = err == ERR_OK ? check_range(option, text, number, e) : err;
        break;
    case OPTION_SIZE:
        err = value_bytes(text, &number, e);
        err = err == ERR_OK ? check_range(option, text, number, e) : err;
        break;
    }
    if (err == ERR_OK) {
        *out_number = number;
    }
    return err;
}

void option_variable(const struct option *option, char out[OPTION_VARIABLE_BYTES])
{
    int n = snprintf(out, OPTION_VARIABLE_BYTES, "CAPSTAN_%s", option->name);
    ASSERT(n < OPTION_VARIABLE_BYTES);
    for (char *p = out; *p != '\0'; p++) {
        *p = (char)(*p == '-' ? '_' : *p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    }
}
