/*
 * api_internal.h - the HTTP API: what its files share.
 *
 * A request at a route becomes the message of the gRPC method that the route stands for (api_fields.c), is encoded, and
 * goes the way of every call (service__serve): the same scopes, the same rules, the same handler. The answer's message is
 * written as JSON (wire/json_shape.h), or as a stream. One table (api_routes.c) has all of it: what is matched, what is
 * read, what it becomes, and the words that /openapi.json is made of.
 */
#ifndef CAPSTAN_COORDINATOR_API_INTERNAL_H
#define CAPSTAN_COORDINATOR_API_INTERNAL_H

#include "base/json.h"
#include "base/limits.h"
#include "coordinator/api.h"
#include "coordinator/service_internal.h"
#include "http/http.h"

/* Where a value comes from. */
enum api_place { API_PATH, API_QUERY, API_HEADER, API_BODY };

/* What it is, and how it lies in the message. */
enum api_type {
    API_TEXT,   /* char * */
    API_UINT32, /* uint32_t */
    API_UINT64, /* uint64_t */
    API_BOOL,   /* protobuf_c_boolean */
    API_JSON,   /* char *, the JSON text of a list or an object */
    API_BYTES,  /* ProtobufCBinaryData, the JSON text of an object */
    API_FORMAT, /* not in the message: how results are written */
    API_RANGE,  /* not in the message: a whole number about which rows are wanted */
};

struct api_field {
    const char *name; /* of the member, or of the value in the query */
    enum api_place place;
    enum api_type type;
    size_t offset;    /* in the struct that `begin` returns */
    size_t is_set;    /* a boolean there that says that the value was given; 0: there is none */
    bool is_needed;   /* is told to readers of openapi.json; the rules of the message insist */
    const char *note; /* for people */
};

struct api;
struct api_call;

struct api_route {
    const char *method;
    const char *path; /* {name} is the field of API_PATH */
    const char *id;   /* operationId */
    const char *summary;
    const struct method_rule *rule; /* NULL: served by `plain` */
    const struct api_field *fields;
    uint32_t n_fields;
    bool takes_whole_body;                              /* the body is the message's API_BYTES field as it is */
    void *(*begin)(void *message, struct arena *arena); /* prepares it; returns what the fields lie in. NULL: itself */
    void (*settle)(void *target, struct http_request *http); /* when all of `http` is in it; or NULL */
    void (*write)(struct buf *out, const void *message, const struct api_call *call);
    const char *schema; /* of the answer, in the notation of api_openapi.c; NULL: a stream */
    void (*plain)(struct api *api, struct http_request *http,
                  struct http_answer *answer); /* answers at once, or defers */
    enum scope scope;                          /* of `plain` */
    bool is_for_probes;                        /* asked by machines, under whatever name they have for this one */
};

extern const struct api_route api_routes[];
extern const uint32_t api_n_routes;

struct api {
    struct service *service;
    struct http_server *server;
    char *host;               /* that it listens on, without port and brackets */
    char *advertise;          /* likewise, where others find it */
    const char *const *names; /* further ones, as a proxy in front of it has */
    uint32_t n_names;
};

enum api_format { API_FORMAT_JSON, API_FORMAT_CSV, API_FORMAT_PARQUET, API_FORMAT_ARROW };

struct rows_text;

/* Which of the rows. */
struct rows_range {
    uint64_t offset;
    uint64_t limit; /* UINT64_MAX: none */
};

/* A request that is being served. Freed with its end. */
struct api_call {
    struct api *api;
    const struct api_route *route;
    struct http_request *http;
    struct sender sender;
    char path_value[LIMIT_ID_BYTES + 1]; /* of the path's field; "": it has none */
    enum api_format format;
    struct rows_range range;
    bool has_range;
    bool is_events;
    bool has_begun;         /* the stream */
    bool is_over;           /* the reader has got his end; the exchange has not */
    bool has_more;          /* text to be made of the rows that are there */
    struct rows_text *rows; /* while rows become text */
    rpc_sent_fn *sent;
    void *sent_context;
    rpc_gone_fn *gone;
    void *gone_context;
};

/*
 * The route of a path, and the value in it, "" if there is none, in the arena. ERR_NOT_FOUND; ERR_INVALID if the path
 * takes other methods only.
 */
MUST_USE enum err api__find(const char *method, const char *path, const struct api_route **out, struct arena *arena,
                            const char **out_value, struct error *e);

/* Tells in the answer which methods the path takes. */
void api__allow(const char *path, struct http_answer *answer);

/* What a request has brought. */
struct api_input {
    struct http_request *http;    /* NULL: no query (in tests) */
    const char *value;            /* from the path; "": none */
    const struct auth_pass *pass; /* that lets it in */
    const char *body;
    size_t n_body;
};

/* Makes the route's message of it. ERR_INVALID names the field. The message lies in the arena and points to the body. */
MUST_USE enum err api__read(const struct api_route *route, const struct api_input *input, struct arena *arena,
                            void **out_message, struct error *e);

/* Whether the request may come from whoever says it does: Host and Origin. ERR_DENIED. */
MUST_USE enum err api__check_origin(const struct api *api, const char *host, const char *origin, struct error *e);

/* Plain routes. */
void api__openapi(struct api *api, struct http_request *http, struct http_answer *answer);
void api__metrics(struct api *api, struct http_request *http, struct http_answer *answer);
void api__healthz(struct api *api, struct http_request *http, struct http_answer *answer);
void api__readyz(struct api *api, struct http_request *http, struct http_answer *answer);
void api__leaderz(struct api *api, struct http_request *http, struct http_answer *answer);

/* Rows of an Arrow stream as text, or as a Parquet file, piece by piece (api_rows.c). */
struct rows_text *rows_text_new(enum api_format format, struct rows_range range);
void rows_text_free(struct rows_text *rows); /* NULL ok */

/* The next bytes of the stream; not before all text of those before has been taken. They are copied. */
void rows_text_feed(struct rows_text *rows, const void *bytes, size_t n);

/* Appends text, up to about a chunk of it. `out_more` says whether there is more without further bytes. */
MUST_USE enum err rows_text_next(struct rows_text *rows, struct buf *out, bool *out_more, struct error *e);

/* Whether all rows that were wanted have been taken, and what follows does not matter. */
bool rows_text_is_full(const struct rows_text *rows);

/* Appends what follows the last row. ERR_DATA_LOSS if the stream is not whole, unless that does not matter. */
MUST_USE enum err rows_text_end(struct rows_text *rows, struct buf *out, struct error *e);

#endif
