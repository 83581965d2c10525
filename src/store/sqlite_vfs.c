/*
 * How the log is written. SQLite hands over a commit as two small writes per page, a header and the page itself, one
 * behind the other, which is a fifth of all that a batch costs. So the file of the log gathers what continues the last
 * write and passes it on in large pieces, at the latest when SQLite syncs.
 *
 * That is late enough for nobody to notice: with synchronous=FULL a commit syncs the log before its index, through which
 * all readers find their pages, tells of the new ones. Whoever reads what is still gathered through the same file has it
 * written first. A write that fails is reported by the sync or by whatever else made it necessary, and SQLite rolls back.
 *
 * Gathered bytes never outlive the transaction that they belong to: after a rollback, which also ends the lock against
 * other writers, their place in the file may hold somebody else's commit. A rollback and a close forget them.
 *
 * All else, locks and shared memory above all, is that of the system's own VFS.
 */
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "store/sqlite_internal.h"

#define VFS_NAME "capstan"
/* The system's VFS takes at most 131,071 bytes at once. */
#define GATHER_BYTES ((size_t)120 * 1024)

struct log_file {
    sqlite3_file file;
    sqlite3_file *real; /* right behind this struct */
    char *gathered;     /* NULL until the first write: most files are only read */
    size_t n;
    sqlite3_int64 offset; /* of the gathered bytes in the file */
};

static struct log_file *log_of(sqlite3_file *file)
{
    return (struct log_file *)(void *)file;
}

static int write_gathered(struct log_file *log)
{
    int n = (int)log->n;
    log->n = 0;
    return n == 0 ? SQLITE_OK : log->real->pMethods->xWrite(log->real, log->gathered, n, log->offset);
}

static int log_close(sqlite3_file *file)
{
    struct log_file *log = log_of(file);
    mem_free(log->gathered); /* what was committed has been synced */
    log->gathered = NULL;
    log->n = 0;
    return log->real->pMethods->xClose(log->real);
}

static int log_read(sqlite3_file *file, void *out, int n, sqlite3_int64 offset)
{
    struct log_file *log = log_of(file);
    if (offset + n > log->offset && offset < log->offset + (sqlite3_int64)log->n) {
        int rc = write_gathered(log);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }
    return log->real->pMethods->xRead(log->real, out, n, offset);
}

static int log_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 offset)
{
    struct log_file *log = log_of(file);
    if (log->n > 0 && (offset != log->offset + (sqlite3_int64)log->n || log->n + (size_t)n > GATHER_BYTES)) {
        int rc = write_gathered(log);
        if (rc != SQLITE_OK) {
            return rc;
        }
    }
    if ((size_t)n > GATHER_BYTES) {
        return log->real->pMethods->xWrite(log->real, bytes, n, offset);
    }
    if (log->gathered == NULL) {
        log->gathered = mem_alloc(GATHER_BYTES);
    }
    if (log->n == 0) {
        log->offset = offset;
    }
    memcpy(log->gathered + log->n, bytes, (size_t)n);
    log->n += (size_t)n;
    return SQLITE_OK;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct log_file *log = log_of(file);
    int rc = write_gathered(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xTruncate(log->real, size);
}

static int log_sync(sqlite3_file *file, int flags)
{
    struct log_file *log = log_of(file);
    int rc = write_gathered(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xSync(log->real, flags);
}

static int log_size(sqlite3_file *file, sqlite3_int64 *out)
{
    struct log_file *log = log_of(file);
    int rc = write_gathered(log);
    return rc != SQLITE_OK ? rc : log->real->pMethods->xFileSize(log->real, out);
}

static int log_lock(sqlite3_file *file, int level)
{
    return log_of(file)->real->pMethods->xLock(log_of(file)->real, level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    return log_of(file)->real->pMethods->xUnlock(log_of(file)->real, level);
}

static int log_check_lock(sqlite3_file *file, int *out)
{
    return log_of(file)->real->pMethods->xCheckReservedLock(log_of(file)->real, out);
}

static int log_control(sqlite3_file *file, int op, void *argument)
{
    return log_of(file)->real->pMethods->xFileControl(log_of(file)->real, op, argument);
}

static int log_sector_size(sqlite3_file *file)
{
    return log_of(file)->real->pMethods->xSectorSize(log_of(file)->real);
}

static int log_characteristics(sqlite3_file *file)
{
    return log_of(file)->real->pMethods->xDeviceCharacteristics(log_of(file)->real);
}

/* Version 1: shared memory and mapped pages are asked of the database's file, never of the log's. */
static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_check_lock,
    .xFileControl = log_control,
    .xSectorSize = log_sector_size,
    .xDeviceCharacteristics = log_characteristics,
};

static sqlite3_vfs *system_vfs; /* NULL: there is none, and SQLite could open nothing */

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    UNUSED(vfs);
    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return system_vfs->xOpen(system_vfs, name, file, flags, out_flags);
    }
    struct log_file *log = log_of(file);
    memset(log, 0, sizeof *log);
    log->real = (sqlite3_file *)(void *)(log + 1);
    int rc = system_vfs->xOpen(system_vfs, name, log->real, flags, out_flags);
    if (log->real->pMethods != NULL) {
        log->file.pMethods = &log_methods; /* then it is to be closed, even if it was not opened well */
    }
    return rc;
}

static void register_vfs(void)
{
    static sqlite3_vfs ours;
    system_vfs = sqlite3_vfs_find(NULL);
    if (system_vfs != NULL) {
        ours = *system_vfs;
        ours.zName = VFS_NAME;
        ours.pNext = NULL;
        ours.szOsFile = system_vfs->szOsFile + (int)sizeof(struct log_file);
        ours.xOpen = open_file;
        sqlite3_vfs_register(&ours, 0);
    }
}

static void forget_gathered(void *context)
{
    sqlite3_file *file = NULL;
    if (sqlite3_file_control(context, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) == SQLITE_OK && file != NULL &&
        file->pMethods == &log_methods) {
        log_of(file)->n = 0;
    }
}

int sqlite__open_file(const char *path, sqlite3 **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    pthread_once(&once, register_vfs);
    int rc = sqlite3_open_v2(path, out, flags, VFS_NAME);
    if (rc == SQLITE_OK) {
        sqlite3_rollback_hook(*out, forget_gathered, *out);
    }
    return rc;
}
