/*
 * sanitizers.c - what the sanitizers must know about gRPC. A program that is linked with this file needs no options.
 *
 * gRPC, abseil and the libraries below them are not built with the thread sanitizer. It cannot see the locks inside
 * them (abseil makes its own, from futexes), only some of the calls that they make to the C library, such as free and
 * recvmsg, and takes nearly each of these for a race. So calls from code that is not instrumented are left out. Our own
 * code is watched as before; what passes from one of our threads to another must do so under a lock of ours.
 *
 * c-ares 1.18, with which gRPC resolves names, loses the ten bytes of "localhost" each time it looks it up.
 */
const char *__tsan_default_options(void);
const char *__lsan_default_suppressions(void);

const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1";
}

const char *__lsan_default_suppressions(void)
{
    return "leak:libcares.so\n";
}
