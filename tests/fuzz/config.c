/*
 * config.c - the settings file of --config, and every kind of value that can stand in it.
 *
 * Promises: lines come in order; sections and keys are short words; values have no control characters; an error names
 * the file; a value that a kind refuses comes with a message.
 */
#include <string.h>

#include "base/check.h"
#include "cli/config.h"
#include "cli/verb.h"
#include "fuzz/fuzz.h"

struct seen {
    uint32_t line;
};

static void check_word(const char *word)
{
    size_t n = strlen(word);
    ASSERT(n <= CONFIG_WORD_BYTES_MAX);
    ASSERT(strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n);
}

static void try_kinds(const char *value)
{
    for (int kind = OPTION_FLAG; kind <= OPTION_CHOICE; kind++) {
        struct option option = {.name = "x", .kind = (enum option_kind)kind, .argument = "a|b|c"};
        struct error e = {0};
        int64_t number = 0;
        if (option_check(&option, value, &number, &e) != ERR_OK) {
            ASSERT(e.message[0] != '\0');
        }
    }
}

static enum err look(void *context, const struct config_line *line, struct error *e)
{
    struct seen *seen = context;
    ASSERT(line->number > seen->line);
    seen->line = line->number;
    check_word(line->section);
    if (line->key == NULL) {
        return ERR_OK;
    }
    check_word(line->key);
    for (const char *p = line->value; *p != '\0'; p++) {
        ASSERT((unsigned char)*p >= 0x20 || *p == '\t');
    }
    try_kinds(line->value);
    return strcmp(line->key, "stop") == 0 ? error_set(e, ERR_INVALID, "stopped") : ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct seen seen = {0};
    struct error e = {0};
    if (config_parse("file", (const char *)bytes, n, look, &seen, &e) != ERR_OK) {
        ASSERT(strncmp(e.message, "file:", 5) == 0);
    }
    return 0;
}
