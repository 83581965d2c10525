/*
 * check.h - assertions and the few compiler attributes that the project uses.
 *
 * ASSERT is for programmer errors only and stays on in release builds: one condition each, without side effects.
 * Input from outside gets an `enum err`, never an ASSERT.
 *
 * Ownership: nothing is owned. Threads: any.
 */
#ifndef CAPSTAN_BASE_CHECK_H
#define CAPSTAN_BASE_CHECK_H

#include <stddef.h>

/* The result of a function so marked must be looked at. */
#define MUST_USE __attribute__((warn_unused_result))

/* The function takes a printf format as parameter number `fmt`, its values from parameter number `args` on. */
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

#define UNUSED(x) ((void)(x))

/* Number of elements of an array (not of a pointer). */
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The struct of type `type` whose field `member` is at `ptr`. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define ASSERT(cond) (__builtin_expect(!(cond), 0) ? check_failed(__FILE__, __LINE__, #cond) : (void)0)

/* Prints where and what to stderr and aborts the process. */
_Noreturn void check_failed(const char *file, int line, const char *text);

#endif
