/*
 * Classes and profiles: who can run what, worked out once per pair instead of once per task.
 *
 * A class is all tasks with equal requirement, priority and workers to avoid; a profile is all workers with equal
 * offers. A link says that the two fit. A class with ready tasks is announced through its links: each holder keeps the
 * links of announced classes by priority, so a poll sees only classes that it can run, however many others there are.
 * Classes that name allowed_nodes are linked to those workers one by one instead of to profiles.
 */
#include <string.h>

#include "base/mem.h"
#include "core/core_internal.h"

#define UNUSED_CLASSES_MAX 256
#define STUCK_EVENTS_PER_CHECK 1000

/* ---- needs ---- */

static bool need_matches(const void *value, const void *key)
{
    return requirement_equal(((const struct need *)value)->value, key);
}

static struct need *need_get(struct core *core, const struct requirement *requirement)
{
    uint64_t hash = requirement_hash(requirement);
    struct need *need = map_get(&core->needs, hash, need_matches, requirement);
    if (need == NULL) {
        need = mem_calloc(1, sizeof *need);
        need->value = requirement_copy(requirement);
        need->hash = hash;
        map_put(&core->needs, hash, need);
    }
    need->refs++;
    return need;
}

static void need_unref(struct core *core, struct need *need)
{
    if (--need->refs == 0) {
        map_take_value(&core->needs, need->hash, need);
        mem_free(need->value);
        mem_free(need);
    }
}

/* ---- holders and links ---- */

static void holder_add(struct link *link)
{
    struct holder *holder = link->holder;
    uint8_t p = link->class->priority;
    holder->ready[p] = mem_grow(holder->ready[p], &holder->cap[p], holder->n_ready[p] + 1, sizeof *holder->ready[p]);
    link->index = holder->n_ready[p]++;
    holder->ready[p][link->index] = link;
    link->is_queued = true;
}

void holder_drop(struct link *link)
{
    struct holder *holder = link->holder;
    uint8_t p = link->class->priority;
    if (link->is_queued) {
        struct link *last = holder->ready[p][--holder->n_ready[p]];
        ASSERT(holder->ready[p][link->index] == link);
        holder->ready[p][link->index] = last;
        last->index = link->index;
        link->is_queued = false;
    }
}

void holder_deinit(struct holder *holder)
{
    for (int p = 0; p < PRIORITY_COUNT; p++) {
        mem_free(holder->ready[p]);
    }
}

static void link_wake(struct core *core, struct link *link)
{
    if (link->profile != NULL) {
        if (!list_is_linked(&link->profile->in_hot) && !list_is_empty(&link->profile->parked)) {
            list_push_back(&core->hot_profiles, &link->profile->in_hot);
        }
    } else if (link->worker != NULL && list_is_linked(&link->worker->in_parked)) {
        poll_reconsider(core, link->worker);
    }
}

static struct link *link_add(struct class *class, struct holder *holder)
{
    struct link *link = mem_calloc(1, sizeof *link);
    link->class = class;
    link->holder = holder;
    link->next = class->links;
    class->links = link;
    if (list_is_empty(&class->queue)) {
        class->is_announced = false;
    } else {
        holder_add(link);
    }
    return link;
}

static void link_profile(struct core *core, struct class *class, struct profile *profile)
{
    const struct requirement *need = class->need->value;
    bool fits = !class->child && need->allowed_nodes.count == 0 &&
                requirement_match(need, profile->offer, NULL) == MISMATCH_NONE;
    if (BUG(core, custom_op_to_anyone) && !fits && need->ops.count > 0 && need->allowed_nodes.count == 0) {
        struct requirement without = *need;
        without.ops.count = 0;
        fits = requirement_match(&without, profile->offer, NULL) == MISMATCH_NONE;
    }
    if (BUG(core, ignore_placement) && !fits && !class->child && need->capabilities.count > 0) {
        struct requirement without = *need;
        without.capabilities.count = 0;
        fits = requirement_match(&without, profile->offer, NULL) == MISMATCH_NONE;
    }
    if (fits) {
        link_add(class, &profile->holder)->profile = profile;
    }
}

static void link_worker(struct class *class, struct worker *worker)
{
    const struct requirement *need = class->need->value;
    if (!class->child && string_list_has(need->allowed_nodes, worker->id) &&
        !string_list_has(need->forbidden_nodes, worker->id) &&
        requirement_match(need, worker->profile->offer, NULL) == MISMATCH_NONE) {
        link_add(class, &worker->own)->worker = worker;
    }
}

static void unlink_holder(struct core *core, const struct holder *holder)
{
    LIST_EACH(at, &core->all_classes) {
        struct class *class = CONTAINER_OF(at, struct class, in_core);
        for (struct link **end = &class->links; *end != NULL;) {
            struct link *link = *end;
            if (link->holder != holder) {
                end = &link->next;
                continue;
            }
            *end = link->next;
            holder_drop(link);
            mem_free(link);
        }
    }
}

/* ---- classes ---- */

struct class_key {
    const struct need *need;
    char *const *avoid;
    uint32_t n_avoid;
    uint8_t priority;
    bool child;
};

static bool class_matches(const void *value, const void *key)
{
    const struct class *class = value;
    const struct class_key *wanted = key;
    if (class->need != wanted->need || class->priority != wanted->priority || class->child != wanted->child ||
        class->n_avoid != wanted->n_avoid) {
        return false;
    }
    for (uint32_t i = 0; i < class->n_avoid; i++) {
        if (strcmp(class->avoid[i], wanted->avoid[i]) != 0) {
            return false;
        }
    }
    return true;
}

static uint64_t class_hash(const struct core *core, const struct class_key *key)
{
    uint64_t hash = key->need->hash * 8 + key->priority * 2u + key->child;
    for (uint32_t i = 0; i < key->n_avoid; i++) {
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + core__hash(core, key->avoid[i]);
    }
    return hash;
}

static struct class *class_new(struct core *core, const struct class_key *key, uint64_t hash)
{
    struct class *class = mem_calloc(1, sizeof *class);
    class->need = need_get(core, key->need->value);
    class->priority = key->priority;
    class->child = key->child;
    class->hash = hash;
    class->n_avoid = key->n_avoid;
    class->avoid = mem_calloc(key->n_avoid, sizeof *class->avoid);
    for (uint32_t i = 0; i < key->n_avoid; i++) {
        class->avoid[i] = mem_strdup(key->avoid[i]);
    }
    list_init(&class->queue);
    list_init(&class->stuck);
    list_push_back(&core->all_classes, &class->in_core);
    map_put(&core->classes, hash, class);
    core->stats.classes++;
    if (class->child) {
        link_add(class, &core->child_holder);
        return class;
    }
    LIST_EACH(at, &core->profiles) {
        link_profile(core, class, CONTAINER_OF(at, struct profile, in_core));
    }
    for (uint32_t i = 0; i < class->need->value->allowed_nodes.count; i++) {
        struct worker *worker = worker_find(core, class->need->value->allowed_nodes.items[i]);
        if (worker != NULL && !class_fits_worker(class, worker)) {
            link_worker(class, worker);
        }
    }
    return class;
}

static void class_free(struct core *core, struct class *class)
{
    if (core->last_class == class) {
        core->last_class = NULL;
    }
    map_take_value(&core->classes, class->hash, class);
    list_remove(&class->in_core);
    list_remove(&class->in_unused);
    while (class->links != NULL) {
        struct link *link = class->links;
        class->links = link->next;
        holder_drop(link);
        mem_free(link);
    }
    for (uint32_t i = 0; i < class->n_avoid; i++) {
        mem_free(class->avoid[i]);
    }
    mem_free(class->avoid);
    need_unref(core, class->need);
    mem_free(class);
    core->stats.classes--;
}

static void class_ref(struct core *core, struct class *class)
{
    if (class->refs == 0 && list_is_linked(&class->in_unused)) {
        list_remove(&class->in_unused);
        core->n_unused_classes--;
    }
    class->refs++;
}

static struct class *class_intern(struct core *core, const struct class_key *key)
{
    uint64_t hash = class_hash(core, key);
    struct class *class = map_get(&core->classes, hash, class_matches, key);
    if (class == NULL) {
        class = class_new(core, key, hash);
    }
    class_ref(core, class);
    return class;
}

struct class *class_get(struct core *core, const struct requirement *requirement, uint8_t priority, bool child)
{
    /* One job after the other asks for the same, so the last answer is tried first. */
    struct class *last = core->last_class;
    if (last != NULL && last->priority == priority && last->child == child &&
        requirement_equal(last->need->value, requirement)) {
        class_ref(core, last);
        return last;
    }
    struct need *need = need_get(core, requirement);
    struct class_key key = {.need = need, .priority = priority, .child = child};
    core->last_class = class_intern(core, &key);
    need_unref(core, need);
    return core->last_class;
}

bool class_avoids(const struct class *class, const char *worker_id)
{
    for (uint32_t i = 0; i < class->n_avoid; i++) {
        if (strcmp(class->avoid[i], worker_id) == 0) {
            return true;
        }
    }
    return false;
}

/* The class with the same requirement that also avoids `worker_id`. Remembers only so many; the list stays sorted. */
struct class *class_avoiding(struct core *core, struct class *class, const char *worker_id)
{
    char *avoid[LIMIT_ATTEMPTS_REMEMBERED];
    uint32_t n = 0;
    char *added = mem_strdup(worker_id);
    if (class_avoids(class, worker_id) || class->n_avoid == LIMIT_ATTEMPTS_REMEMBERED) {
        memcpy(avoid, class->avoid, class->n_avoid * sizeof *avoid);
        n = class->n_avoid;
    } else {
        bool placed = false;
        for (uint32_t i = 0; i < class->n_avoid; i++) {
            if (!placed && strcmp(added, class->avoid[i]) < 0) {
                avoid[n++] = added;
                placed = true;
            }
            avoid[n++] = class->avoid[i];
        }
        if (!placed) {
            avoid[n++] = added;
        }
    }
    struct class_key key = {class->need, avoid, n, class->priority, class->child};
    struct class *result = class_intern(core, &key);
    mem_free(added);
    return result;
}

void class_unref(struct core *core, struct class *class)
{
    ASSERT(class->refs > 0);
    if (--class->refs > 0) {
        return;
    }
    ASSERT(list_is_empty(&class->queue) && list_is_empty(&class->stuck));
    list_push_back(&core->unused_classes, &class->in_unused);
    if (++core->n_unused_classes > UNUSED_CLASSES_MAX) {
        core->n_unused_classes--;
        class_free(core, CONTAINER_OF(list_first(&core->unused_classes), struct class, in_unused));
    }
}

bool class_fits_worker(const struct class *class, const struct worker *worker)
{
    for (const struct link *link = class->links; link != NULL; link = link->next) {
        if (link->holder == &worker->own || (worker->profile != NULL && link->holder == &worker->profile->holder)) {
            return true;
        }
    }
    return false;
}

/* Live workers that fit, wherever they stand with their limits. */
uint32_t class_live_workers(const struct core *core, const struct class *class)
{
    uint32_t n = 0;
    for (const struct link *link = class->links; link != NULL; link = link->next) {
        n += link->profile != NULL ? link->profile->n_live : (link->worker != NULL && link->worker->is_counted_live);
    }
    struct string_list forbidden = class->need->value->forbidden_nodes;
    for (uint32_t i = 0; i < forbidden.count && n > 0; i++) {
        const struct worker *worker = worker_find(core, forbidden.items[i]);
        if (worker != NULL && worker->is_counted_live && class_fits_worker(class, worker)) {
            n--;
        }
    }
    return n;
}

/* Workers that could take it now or soon, other than those that it avoids. */
static uint32_t able_others(const struct core *core, const struct class *class)
{
    uint32_t n = 0;
    for (const struct link *link = class->links; link != NULL; link = link->next) {
        n += link->profile != NULL ? link->profile->n_able : (link->worker != NULL && link->worker->is_counted_able);
    }
    for (uint32_t i = 0; i < class->n_avoid; i++) {
        const struct worker *worker = worker_find(core, class->avoid[i]);
        n -= worker != NULL && worker->is_counted_able && class_fits_worker(class, worker);
    }
    struct string_list forbidden = class->need->value->forbidden_nodes;
    for (uint32_t i = 0; i < forbidden.count && n > 0; i++) {
        const struct worker *worker = worker_find(core, forbidden.items[i]);
        if (worker != NULL && worker->is_counted_able && class_fits_worker(class, worker) &&
            !class_avoids(class, worker->id)) {
            n--;
        }
    }
    return n;
}

/* True if this worker, although its offer fits, must leave the class to others. */
bool class_blocks_worker(const struct core *core, const struct class *class, const struct worker *worker)
{
    if (string_list_has(class->need->value->forbidden_nodes, worker->id) && !BUG(core, ignore_placement)) {
        return true;
    }
    return class->n_avoid > 0 && class_avoids(class, worker->id) && able_others(core, class) > 0;
}

/* The class has ready tasks: put it before everyone who can run it. */
void class_announce(struct core *core, struct class *class)
{
    if (class->is_announced && core->n_parked == 0) {
        return;
    }
    for (struct link *link = class->links; link != NULL; link = link->next) {
        if (!link->is_queued) {
            holder_add(link);
        }
        link_wake(core, link);
    }
    class->is_announced = true;
}

/* ---- stuck classes ---- */

static void stuck_report(struct core *core, struct class *class)
{
    for (int n = 0; n < STUCK_EVENTS_PER_CHECK; n++) {
        struct list *first = list_first(&class->queue);
        if (first == NULL) {
            return;
        }
        struct jobqueue *queue = CONTAINER_OF(first, struct jobqueue, in_class);
        struct task *task = jobqueue_top(core, queue);
        if (task == NULL) {
            jobqueue_leave(queue);
            continue;
        }
        if (queue->since_ms + core->config.stuck_task_warn_ms > core->now_ms) {
            return;
        }
        list_remove(&queue->in_class);
        list_push_back(&class->stuck, &queue->in_class);
        core__task_event(core, EVENT_STUCK, task, NULL, why_class(core, queue->job, class, &core->fx->arena));
    }
}

/* Somebody who fits came: those that were reported go back to the front of the line. */
static void stuck_release(struct core *core, struct class *class)
{
    class->unmatched_at_ms = 0;
    if (list_is_empty(&class->stuck)) {
        return;
    }
    while (!list_is_empty(&class->stuck)) {
        struct list *last = list_last(&class->stuck);
        list_remove(last);
        list_push_front(&class->queue, last);
    }
    class_announce(core, class);
}

/* Since when nobody fits: since the first of them waits, or since the fleet changed last. */
static int64_t unmatched_since(const struct core *core, const struct class *class)
{
    const struct list *first = list_first(&class->queue);
    int64_t since_ms = first == NULL ? core->now_ms : CONTAINER_OF(first, struct jobqueue, in_class)->since_ms;
    return since_ms > core->fleet_changed_ms ? since_ms : core->fleet_changed_ms;
}

void class_check_stuck(struct core *core)
{
    LIST_EACH(at, &core->all_classes) {
        struct class *class = CONTAINER_OF(at, struct class, in_core);
        bool is_waiting = !list_is_empty(&class->queue) || !list_is_empty(&class->stuck);
        if (!is_waiting || class->child || class_live_workers(core, class) > 0) {
            stuck_release(core, class);
        } else if (class->unmatched_at_ms == 0) {
            class->unmatched_at_ms = unmatched_since(core, class);
        }
        if (class->unmatched_at_ms != 0 && core->now_ms - class->unmatched_at_ms >= core->config.stuck_task_warn_ms) {
            stuck_report(core, class);
        }
    }
}

/* ---- profiles ---- */

static struct profile *profile_find(struct core *core, const struct offer *offer)
{
    LIST_EACH(at, &core->profiles) {
        struct profile *profile = CONTAINER_OF(at, struct profile, in_core);
        if (offer_equal(profile->offer, offer)) {
            return profile;
        }
    }
    return NULL;
}

static struct profile *profile_new(struct core *core, const struct offer *offer)
{
    struct profile *profile = mem_calloc(1, sizeof *profile);
    profile->offer = offer_copy(offer);
    list_init(&profile->parked);
    list_push_back(&core->profiles, &profile->in_core);
    core->stats.profiles++;
    LIST_EACH(at, &core->all_classes) {
        link_profile(core, CONTAINER_OF(at, struct class, in_core), profile);
    }
    return profile;
}

/* Counts the worker in its profile as what it is now. Call after anything that changes whether it can take work. */
void profile_recount(struct core *core, struct worker *worker)
{
    bool live = worker->is_live;
    bool able = live && worker_is_able(worker);
    struct profile *profile = worker->profile;
    profile->n_live = profile->n_live - worker->is_counted_live + live;
    profile->n_able = profile->n_able - worker->is_counted_able + able;
    bool lost_able = worker->is_counted_able && !able;
    bool became_live = live && !worker->is_counted_live;
    worker->is_counted_live = live;
    worker->is_counted_able = able;
    if (lost_able) {
        /* Tasks that left this work to others may have nobody else now. */
        core->is_everyone_hot = true;
        core->fleet_changed_ms = core->now_ms;
    }
    if (became_live) {
        core->is_stuck_due = true;
    }
}

void profile_join(struct core *core, struct worker *worker, const struct offer *offer)
{
    struct profile *profile = profile_find(core, offer);
    if (profile == NULL) {
        profile = profile_new(core, offer);
    }
    profile->n_workers++;
    worker->profile = profile;
    LIST_EACH(at, &core->all_classes) {
        struct class *class = CONTAINER_OF(at, struct class, in_core);
        if (class->need->value->allowed_nodes.count > 0) {
            link_worker(class, worker);
        }
    }
    profile_recount(core, worker);
    core->is_stuck_due = true;
}

void profile_leave(struct core *core, struct worker *worker)
{
    struct profile *profile = worker->profile;
    ASSERT(!list_is_linked(&worker->in_parked));
    profile->n_live -= worker->is_counted_live;
    profile->n_able -= worker->is_counted_able;
    worker->is_counted_live = false;
    worker->is_counted_able = false;
    worker->profile = NULL;
    core->is_everyone_hot = true;
    core->fleet_changed_ms = core->now_ms;
    unlink_holder(core, &worker->own);
    if (--profile->n_workers > 0) {
        return;
    }
    unlink_holder(core, &profile->holder);
    list_remove(&profile->in_core);
    list_remove(&profile->in_hot);
    holder_deinit(&profile->holder);
    mem_free(profile->offer);
    mem_free(profile);
    core->stats.profiles--;
}

void classes_free(struct core *core)
{
    LIST_EACH_SAFE(at, next, &core->all_classes) {
        class_free(core, CONTAINER_OF(at, struct class, in_core));
    }
}
