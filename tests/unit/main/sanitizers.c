/*
 * sanitizers.c - what the thread sanitizer must know about DuckDB, which is not built with it: it cannot see DuckDB's own
 * locks, only some of the calls that it makes to the C library, and takes these for races. So calls from code that is not
 * instrumented are left out; our own code is watched as before.
 */
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1";
}
