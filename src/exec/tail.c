#include "exec/tail.h"

#include <string.h>

#include "base/mem.h"

static void drop_front(struct tail *tail, size_t n)
{
    tail->n -= n;
    tail->cut += n;
    memmove(tail->data, tail->data + n, tail->n);
}

static void make_room(struct tail *tail, size_t n)
{
    if (tail->n + n > 2 * TAIL_BYTES && tail->n > TAIL_BYTES) {
        drop_front(tail, tail->n - TAIL_BYTES);
    }
    if (tail->n + n > tail->cap) {
        size_t doubled = 2 * tail->cap < 2 * TAIL_BYTES ? 2 * tail->cap : 2 * TAIL_BYTES;
        tail->cap = tail->n + n > doubled ? tail->n + n : doubled;
        tail->data = mem_realloc(tail->data, tail->cap);
    }
}

void tail_append(struct tail *tail, const char *bytes, size_t n)
{
    if (n == 0) {
        return;
    }
    if (n > TAIL_BYTES) {
        tail->cut += n - TAIL_BYTES;
        bytes += n - TAIL_BYTES;
        n = TAIL_BYTES;
        tail->cut += tail->n;
        tail->n = 0;
    }
    make_room(tail, n);
    memcpy(tail->data + tail->n, bytes, n);
    tail->n += n;
}

void tail_finish(struct tail *tail)
{
    if (tail->n > TAIL_BYTES) {
        drop_front(tail, tail->n - TAIL_BYTES);
    }
    size_t broken = 0;
    while (tail->cut > 0 && broken < 3 && broken < tail->n && ((unsigned char)tail->data[broken] & 0xc0) == 0x80) {
        broken++;
    }
    if (broken > 0) {
        drop_front(tail, broken);
    }
}

void tail_deinit(struct tail *tail)
{
    mem_free(tail->data);
    *tail = (struct tail){0};
}
