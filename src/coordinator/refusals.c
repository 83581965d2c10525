#include "coordinator/refusals.h"

#include <inttypes.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/log.h"

#define LINE_EVERY_MS 1000

void refusals_tell(struct refusals *refusals, const char *peer, const char *what, const char *why)
{
    int64_t now_ms = clock_mono_ms();
    int_fast64_t next_ms = atomic_load(&refusals->next_mono_ms);
    bool is_mine =
        now_ms >= next_ms && atomic_compare_exchange_strong(&refusals->next_mono_ms, &next_ms, now_ms + LINE_EVERY_MS);
    if (!is_mine) {
        atomic_fetch_add(&refusals->n_untold, 1);
        return;
    }
    uint64_t n_untold = atomic_exchange(&refusals->n_untold, 0);
    if (n_untold == 0) {
        log_warn("auth", "refused %s from %s: %s", what, peer, why);
    } else {
        log_warn("auth", "refused %s from %s: %s; and %" PRIu64 " more calls since the last such line", what, peer, why,
                 n_untold);
    }
}
