#define _GNU_SOURCE /* sigabbrev_np */
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/utf8.h"
#include "exec/command_internal.h"

/* Bytes of the last line of stderr that a message quotes. */
#define QUOTE_BYTES_MAX 1000

#define SIGNAL_EXIT_CODE 128 /* as a shell counts a program that was killed by a signal */

static int exit_code_of(struct process_exit ended)
{
    return ended.is_signaled ? SIGNAL_EXIT_CODE + ended.code : ended.code;
}

static const char *signal_name(int number)
{
    const char *name = sigabbrev_np(number);
    return name != NULL ? name : "?";
}

static void write_stream(struct buf *result, const char *name, const struct tail *tail)
{
    buf_format(result, ",\"%s\":", name);
    exec__write_text(result, tail->data, tail->n);
    if (tail->cut > 0) {
        buf_format(result, ",\"%s_cut_bytes\":%" PRIu64, name, tail->cut);
    }
}

static void write_result(const struct command_output *output, struct buf *result)
{
    buf_format(result, "{\"exit_code\":%d", exit_code_of(output->exit));
    if (output->exit.is_signaled) {
        buf_format(result, ",\"signal\":\"SIG%s\"", signal_name(output->exit.code));
    }
    write_stream(result, "stdout", &output->streams[0]);
    write_stream(result, "stderr", &output->streams[1]);
    struct exec_span value;
    if (output->streams[0].cut == 0 && exec__is_json(output->streams[0].data, output->streams[0].n, &value)) {
        buf_text(result, ",\"json\":");
        buf_append(result, value.data, value.n);
    }
    buf_char(result, '}');
}

static bool is_blank(char c)
{
    return (unsigned char)c <= ' ';
}

/* The last line that is not blank, without blanks around it. */
static struct exec_span last_line(const struct tail *tail)
{
    size_t end = tail->n;
    while (end > 0 && is_blank(tail->data[end - 1])) {
        end--;
    }
    size_t start = end;
    while (start > 0 && tail->data[start - 1] != '\n' && tail->data[start - 1] != '\r') {
        start--;
    }
    while (start < end && is_blank(tail->data[start])) {
        start++;
    }
    if (start == end) {
        return (struct exec_span){.data = "", .n = 0};
    }
    const char *line = tail->data + start;
    return (struct exec_span){.data = line, .n = utf8_clip(line, end - start, QUOTE_BYTES_MAX)};
}

static bool is_listed(const struct json *codes, int code)
{
    for (size_t i = 0; i < json_count(codes); i++) {
        int64_t listed = -1;
        if (json_int(json_at(codes, i), &listed) && listed == code) {
            return true;
        }
    }
    return false;
}

static void write_failure(const struct command *command, const struct command_output *output, struct exec_outcome *out)
{
    struct process_exit ended = output->exit;
    bool not_retryable = is_listed(command->no_retry_exit_codes, exit_code_of(ended));
    struct exec_span line = last_line(&output->streams[1]);
    const char *colon = line.n > 0 ? ": " : "";
    struct buf with = {0};
    buf_append(&with, NULL, 0);
    command__tell_limits(&command->limits, &with);
    if (ended.is_signaled) {
        exec_fail(out, not_retryable, "killed by signal %d (SIG%s)%s%.*s%s", ended.code, signal_name(ended.code), colon,
                  (int)line.n, line.data, with.data);
    } else {
        exec_fail(out, not_retryable, "exit code %d%s%.*s%s", ended.code, colon, (int)line.n, line.data, with.data);
    }
    buf_deinit(&with);
}

void command__judge(const struct command *command, struct command_output *output, struct exec_outcome *out)
{
    tail_finish(&output->streams[0]);
    tail_finish(&output->streams[1]);
    write_result(output, &out->result);
    if (output->was_stopped) {
        exec_fail(out, false, "stopped");
    } else if (command__judge_limits(&command->limits, output, out)) {
        /* that is the outcome */
    } else if (output->exit.is_signaled || output->exit.code != 0) {
        write_failure(command, output, out);
    } else {
        out->is_success = true;
    }
}
