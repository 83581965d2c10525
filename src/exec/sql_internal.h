/*
 * sql_internal.h - the executor `sql` from inside: what its runs share, and one run.
 *
 * A run (struct sql_run) is one task on one slot. While it is under way, a thread of the executor (sql_watch.c) looks at
 * its stop and interrupts what the run says that it is busy with; that thread also tells how far it is.
 *
 * What runs share: one DuckDB instance for fragments, one planner, and the plans that tasks of the same query need
 * again and again. Each is made at the first use.
 *
 * Ownership: said at each function. Threads: a run belongs to its slot's thread; what the watcher uses of it is changed
 * with sql__run_ functions only. The rest may be called from any.
 */
#ifndef CAPSTAN_EXEC_SQL_INTERNAL_H
#define CAPSTAN_EXEC_SQL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"
#include "base/list.h"
#include "base/map.h"
#include "base/sha256.h"
#include "capstan/arrow.h"
#include "duck/duck.h"
#include "exchange/fetch.h"
#include "exec/exec_internal.h"
#include "exec/executor.h"
#include "exec/operator.h"
#include "query/physical.h"
#include "query/planner.h"

/* Defaults of the coordinator's settings, for plans that do not say. */
#define SQL_SINGLE_TASK_BYTES UINT64_C(33554432)
#define SQL_BROADCAST_BYTES UINT64_C(67108864)
#define SQL_TAIL_BYTES (4ULL * 1024 * 1024) /* a task reads so much in the time that one more stage takes */

/* ---- what runs share ---- */

/* DuckDB for fragments. Counted, because one that has broken is replaced while others may still use it. */
struct sql_instance {
    struct duck *duck;
    uint32_t refs;    /* with the executor's mutex */
    struct map files; /* that DuckDB may remember (sql_files.c); with the mutex, too */
};

/* A plan that was read. Counted: it stays while somebody uses it, and a while after. */
struct sql_plan {
    struct list link; /* in the executor's list, the last used in front */
    uint8_t hash[SHA256_BYTES];
    struct arena arena;
    struct physical_plan *plan;
    uint32_t refs; /* with the mutex of the list */
};

struct sql_watch {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct list runs;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
};

/* Where fragments run (sql_room.c). */
struct sql_room {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t n_inside;
    uint32_t n_wanting; /* to be alone */
    bool is_taken;      /* by one that is alone */
};

struct sql_executor {
    struct executor base;
    struct sql_options options; /* with the next three as its texts */
    char *worker_id;
    char *temp_folder;
    char *notes_folder;
    pthread_mutex_t mutex; /* guards the next five */
    struct sql_instance *instance;
    bool is_careful; /* instances are */
    struct planner *planner;
    bool is_planning;    /* somebody has the planner */
    struct list folders; /* of jobs that write files, until they are over */
    pthread_cond_t planner_is_free;
    pthread_mutex_t plans_mutex; /* guards the next four; held while a plan is read, for others want the same one */
    struct list plans;
    uint32_t n_plans;
    struct list known; /* plans of queries, in case these come again (sql_known.c) */
    uint32_t n_known;
    struct sql_watch watch;
    struct sql_room room;
};

/* ERR_UNAVAILABLE if there is no library. The caller gives it back; `is_broken`: nobody gets it any more. */
MUST_USE enum err sql__take_instance(struct sql_executor *sql, struct sql_instance **out, struct error *e);
void sql__give_instance(struct sql_executor *sql, struct sql_instance *instance, bool is_broken);

/* Later instances are careful, from the next one on. */
void sql__take_care(struct sql_executor *sql);

/*
 * The planner, for this run alone. Waits for it until the run is stopped: ERR_CANCELED. With `is_spoiled` it is closed
 * when it is given back: it was interrupted, and nobody knows where.
 */
struct sql_run;
MUST_USE enum err sql__take_planner(struct sql_run *run, struct planner **out, struct error *e);
void sql__give_planner(struct sql_run *run, struct planner *planner, bool is_spoiled);

/* The plan of that text, read now or before. ERR_INVALID as physical_read. */
MUST_USE enum err sql__take_plan(struct sql_executor *sql, const char *text, size_t n, struct sql_plan **out,
                                 struct error *e);
void sql__give_plan(struct sql_executor *sql, struct sql_plan *plan);

/*
 * The plan of a query that was planned before, if the files that it depends on are what they were: appended to `out`.
 * `key` stands for all that was asked.
 */
bool sql__known_find(struct sql_executor *sql, const uint8_t key[SHA256_BYTES], struct buf *out);

/* Files and folders that a plan depends on, and when its planning began. */
struct sql_known_files {
    const char *const *paths;
    uint32_t n;
    int64_t planned_ms;
};

/* Keeps a plan; not if one of its files has changed since its planning began, or so shortly before that one cannot be sure. */
void sql__known_add(struct sql_executor *sql, const uint8_t key[SHA256_BYTES], const struct buf *plan,
                    const struct sql_known_files *files);
void sql__known_deinit(struct sql_executor *sql);

/* ---- one run ---- */

#define SQL_CONNECTIONS_MAX 2

struct sql_run {
    struct sql_executor *sql;
    const struct exec_task *task;
    struct exec_stop *stop;
    struct exec_outcome *out;
    atomic_uint_fast64_t rows;          /* written so far */
    atomic_uint_fast64_t bytes;         /* the same */
    atomic_uint_fast64_t rows_in;       /* of all inputs, read so far */
    atomic_uint_fast64_t rows_expected; /* of all inputs */
    /* With the watcher's mutex: */
    struct list link;
    struct duck_connection *connections[SQL_CONNECTIONS_MAX]; /* busy ones, the first with the fragment */
    struct planner *planner;
    struct exchange_fetch **fetches;
    uint32_t n_fetches;
    uint32_t n_ticks;
};

/* Starts and ends the watcher. */
void sql__watch_init(struct sql_watch *watch);
void sql__watch_deinit(struct sql_watch *watch);

/* From now on the run is watched. ERR_EXHAUSTED if no thread can be started. */
MUST_USE enum err sql__run_begin(struct sql_run *run, struct error *e);
void sql__run_end(struct sql_run *run);

void sql__room_init(struct sql_room *room);
void sql__room_deinit(struct sql_room *room);

/* Waits until the run can run, beside others or `is_alone`. False: it was stopped meanwhile. Whoever is in leaves. */
MUST_USE bool sql__room_enter(struct sql_run *run, bool is_alone);
void sql__room_leave(struct sql_run *run);

/* What is to be interrupted at a stop; NULL and 0: nothing any more. Before it is used, and before it is closed. */
void sql__run_set_connection(struct sql_run *run, uint32_t i, struct duck_connection *connection);
void sql__run_set_planner(struct sql_run *run, struct planner *planner);
void sql__run_set_fetches(struct sql_run *run, struct exchange_fetch **fetches, uint32_t n);

/* What can be done about a mistake in DuckDB (duck_has_failed). */
void sql__hint_of_failure(struct error *e);

/* Makes the run a failure with the error's message and hint. */
void sql__fail(struct sql_run *run, bool not_retryable, const struct error *e);

/* ---- the kinds of tasks ---- */

/* Plans a query, whose inputs are read already; if one task is enough, runs it. */
void sql__plan(struct sql_run *run, const struct json *inputs);

/* The plan becomes the run's outcome. False, with a failed one, if it is too large. */
bool sql__write_plan(struct sql_run *run, const struct physical_plan *plan);

/* Goes on planning with the sizes of what is finished. */
void sql__refine(struct sql_run *run, const struct physical_plan *plan);

/* Runs task number `task` of the stage at that position. The output is that of the run's own task. */
void sql__run_stage(struct sql_run *run, const struct physical_plan *plan, uint32_t stage, uint32_t task);

/* Runs one SELECT whose rows are the result of the run. */
void sql__run_select(struct sql_run *run, const char *select);

/* The sources of the run's task that belong to parent number `parent`: those of one stage, which are together. */
struct sql_sources {
    const struct exec_source *list;
    uint32_t n;
};

/*
 * Parts the sources by stage. ERR_INTERNAL if these are not as many as the plan says. The array lies in the arena.
 */
MUST_USE enum err sql__part_sources(const struct exec_task *task, uint32_t n_parents, struct arena *arena,
                                    struct sql_sources **out, struct error *e);

/* ---- files that a task reads ---- */

/* Whether one of the task's files has: those of its splits, and those that all tasks of the stage read. */
bool sql__files_have_changed(const struct physical_stage *stage, uint32_t task, struct error *e);

/* What DuckDB remembers of the task's files: it may be used, it must not be used this time, or it is wrong for good. */
enum sql_trust { SQL_TRUST, SQL_TRUST_NONE, SQL_TRUST_LOST };
enum sql_trust sql__files_trust(struct sql_executor *sql, struct sql_instance *instance,
                                const struct physical_stage *stage, uint32_t task);

/* Frees what has been put down about an instance's files. */
void sql__files_forget(struct map *files);

/* ---- queries that write files ---- */

/* Where a task's file is until it is published. */
struct sql_file {
    const char *folder;
    const char *name;
    const char *path; /* of the file; NULL: there is none */
};

/* Makes the folder, unless the target exists: ERR_INVALID. Texts lie in the arena. */
MUST_USE enum err sql__file_begin(struct sql_run *run, const struct physical_stage *stage, struct arena *arena,
                                  struct sql_file *out, struct error *e);

/* Runs the SELECT and writes its rows. Errors as duck_rows. */
MUST_USE enum err sql__file_write(struct duck_connection *connection, const struct physical_write *write,
                                  const struct sql_file *file, const char *select, uint64_t *out_rows, struct error *e);

/* Of a task that has failed. */
void sql__file_drop(const struct sql_file *file);

/* Runs the SELECT, which yields the names of files and their numbers of rows, and makes these the target. */
MUST_USE enum err sql__publish(struct sql_run *run, const struct physical_publish *what,
                               struct duck_connection *connection, const char *select, struct arena *arena,
                               uint64_t *out_rows, struct error *e);

/* ---- hidden folders of jobs that write ---- */

/* `.<target>.capstan-<job>`, beside the target. Lies in the arena. */
const char *sql__folder_of(const char *to, const char *job, struct arena *arena);

/* Removes all files from a folder but those of these names, which are sorted by sql__compare_names. */
int sql__compare_names(const void *a, const void *b);
MUST_USE enum err sql__folder_keep(const char *folder, const char *const *names, uint32_t n, struct error *e);

/* Removes a folder with the files in it, if it is there. */
void sql__folder_remove(const char *folder);

/* The folder may be made from now on, by this worker or another: when the job is over, it is removed. */
void sql__folder_remember(struct sql_executor *sql, const char *job, const char *path);

/* The same for all folders that tasks of the plan write to. */
void sql__folders_of_plan(struct sql_executor *sql, const char *job, const struct physical_plan *plan);

/* Remembers what an earlier process has noted. */
void sql__folders_load(struct sql_executor *sql);

/* Removes the folders of a job that is over. `job` NULL: forgets all, and removes none. */
void sql__drop_folders(struct sql_executor *sql, const char *job);

/* Names the jobs that have folders. */
void sql__each_folder_job(struct sql_executor *sql, exec_job_fn *fn, void *context);

/* ---- streams that remember why they failed ---- */

/*
 * Passes on what another stream yields, and keeps its error, which DuckDB would wrap into one of its own. It must
 * outlive the stream that is made of it, whose receiver releases the other one with it.
 */
struct sql_tap {
    struct ArrowArrayStream inner;
    struct error error;            /* code ERR_OK: none. To be read when nobody reads the stream any more */
    atomic_uint_fast64_t *rows_in; /* counted there; NULL: not counted */
};
void sql__tap(struct sql_tap *tap, struct ArrowArrayStream *out);

/* The rows of a query as a stream. As with a tap, it must outlive the stream; the result is closed with that. */
struct sql_rows {
    struct duck_result *result;
    struct error error;
};
void sql__rows_stream(struct sql_rows *rows, struct ArrowArrayStream *out);

#endif
