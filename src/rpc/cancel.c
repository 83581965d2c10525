#include "base/mem.h"
#include "rpc/rpc_internal.h"

struct rpc_cancel {
    pthread_mutex_t lock;
    bool has_fired;
    struct list calls; /* of struct rpc__cancelable */
};

struct rpc_cancel *rpc_cancel_new(void)
{
    struct rpc_cancel *cancel = mem_calloc(1, sizeof(*cancel));
    pthread_mutex_init(&cancel->lock, NULL);
    list_init(&cancel->calls);
    return cancel;
}

void rpc_cancel_free(struct rpc_cancel *cancel)
{
    if (cancel == NULL) {
        return;
    }
    ASSERT(list_is_empty(&cancel->calls));
    pthread_mutex_destroy(&cancel->lock);
    mem_free(cancel);
}

/* A call takes itself off the list before it is given up, so what is on the list under the lock can be canceled. */
void rpc_cancel_fire(struct rpc_cancel *cancel)
{
    pthread_mutex_lock(&cancel->lock);
    cancel->has_fired = true;
    LIST_EACH(at, &cancel->calls) {
        grpc_call_cancel(CONTAINER_OF(at, struct rpc__cancelable, link)->call, NULL);
    }
    pthread_mutex_unlock(&cancel->lock);
}

void rpc_cancel_reset(struct rpc_cancel *cancel)
{
    pthread_mutex_lock(&cancel->lock);
    cancel->has_fired = false;
    pthread_mutex_unlock(&cancel->lock);
}

bool rpc__cancel_add(struct rpc_cancel *cancel, struct rpc__cancelable *call)
{
    if (cancel == NULL) {
        return true;
    }
    pthread_mutex_lock(&cancel->lock);
    bool may_start = !cancel->has_fired;
    if (may_start) {
        list_push_back(&cancel->calls, &call->link);
    }
    pthread_mutex_unlock(&cancel->lock);
    return may_start;
}

void rpc__cancel_remove(struct rpc_cancel *cancel, struct rpc__cancelable *call)
{
    if (cancel != NULL) {
        pthread_mutex_lock(&cancel->lock);
        list_remove(&call->link);
        pthread_mutex_unlock(&cancel->lock);
    }
}
