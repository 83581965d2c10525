/*
 * arrow.h - the Arrow C data interface: columns of memory that two libraries hand to each other without a copy.
 *
 * The three structs are fixed by the Arrow project (the C data interface and the C stream interface), and any library
 * that knows them can be used with these. The guards are Arrow's own, so that a program which has the structs from
 * elsewhere can include this header too.
 *
 * Ownership: a struct is released by its owner with its `release` callback, once; a released struct has `release` NULL.
 * To move one, copy its bytes and set `release` of the source to NULL. Children are released by their parent.
 * Threads: as the producer says; one at a time unless it says more.
 */
#ifndef CAPSTAN_ARROW_H
#define CAPSTAN_ARROW_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *schema);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *array);
    void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

/* Callbacks return 0 or an errno. The end of a stream is an array that is released already. */
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *stream, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *stream, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *stream);
    void (*release)(struct ArrowArrayStream *stream);
    void *private_data;
};

#endif

#ifdef __cplusplus
}
#endif

#endif
