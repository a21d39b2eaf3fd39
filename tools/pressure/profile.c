/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_profile.c: "shmstore-admin profile SUBCOMMAND": what tasks of each kind used so far, as the
 * daemon remembers it: shown, saved, loaded, forgotten. Files are read and written here, with the
 * rights of who runs this.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/profile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "asking.h"
#include "commands.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "options.h"
#include "table.h"

#define FILE_MAX ((size_t)16 << 20)

#define USER_ROW                                                                             \
	{                                                                                    \
		"user", 0, "USER", "another user's profile: for root and the daemon's user", \
			OPTIONS_USER                                                         \
	}
static const struct options_row whose[] = {USER_ROW, {NULL}};
static const struct options_row whose_or_all[] = {
	USER_ROW,
	{"all", 0, NULL, "everybody's", OPTIONS_VALUE, .value = SHMSTORE_PROFILE_ALL},
	{NULL}};

static const struct table_column columns[] = {
	{"USER", TABLE_RIGHT}, /* the list's, not of each kind */
	{"LANG", FIGURE_TEXT, "lang"},
	{"FUNCTION", TABLE_TRUNC, "func"},
	{"GROUP", TABLE_TRUNC, "group"},
	{"TASKS", FIGURE_COUNT, "private.n"},
	{"PEAK", FIGURE_SIZE, "private.peak"},
	{"P95", FIGURE_SIZE, "private.p95"},
	{"AVERAGE", FIGURE_SIZE, "private.average"},
	{"ESTIMATE", FIGURE_SIZE, "private.estimate"},
	{"SHARED", FIGURE_SIZE, "shared.p95"},
	{"CPU", FIGURE_MS, "cpu_ms.p95"},
	{"LIFE", FIGURE_MS, "life_ms"},
	{"NOTE", FIGURE_FLAG, "preempted", "preempted|"},
};

static const struct table_column running[] = {
	{"PID", FIGURE_COUNT, "pid"},    {"USER", FIGURE_COUNT, "uid"},
	{"LANG", FIGURE_TEXT, "lang"},   {"FUNCTION", FIGURE_TEXT, "func"},
	{"GROUP", FIGURE_TEXT, "group"}, {"AGE", FIGURE_MS, "age_ms"},
	{"NOW", FIGURE_SIZE, "private"}, {"PEAK", FIGURE_SIZE, "private_peak"},
};

static void print(const struct admin *a, const struct json_object *document)
{
	size_t n = 0;
	struct table t;

	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < jsonin_count(document, "users"); i++) {
		const struct json_object *user = jsonin_at(document, "users", i);

		for (size_t j = 0; j < jsonin_count(user, "kinds"); j++, n++) {
			table_object(&t, jsonin_at(user, "kinds", j));
			table_count(&t, 0, jsonin_u64(user, "uid"));
		}
	}
	table_finish(&t);
	if (!n)
		puts("no tasks have ended yet");
	if (!jsonin_count(document, "running"))
		return;
	table_heading("running", false);
	TABLE_LIST(a, running, document, "running");
}

static int cmd_profile_show(struct admin *a, int argc, char **argv)
{
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line =
		OPTIONS_LINE(a, "profile show",
			     "Shows each kind of tasks, and what those that ended used.\v"
			     "TASKS, PEAK, P95 and AVERAGE are of private memory, ESTIMATE is what "
			     "the next one is expected to use. SHARED (bytes created in the store) "
			     "and CPU are the 95th percentile, LIFE is the median.",
			     .options = whose_or_all, .own = &user);
	struct shmstore_client *c;
	struct json_object *document;
	char *json;
	size_t n;

	options_parse(&line, argc, argv);
	int status = asking_open(a, &c);
	if (status)
		return status;
	int r = shmstore_client_profile(c, user, &json, &n);
	if (r == 0)
		r = asking_parse(json, n, &document);
	status = asking_close(c, "profile", r);
	if (status == ADMIN_OK)
		json_show(a, document, print);
	return status;
}

/* ---- save, load, reset ---- */

/* The file is there whole or not at all: it is written beside, and renamed. */
static int write_file(const char *path, const char *text, size_t n)
{
	char *fresh = NULL;
	int r = 0, fd;

	if (asprintf(&fresh, "%s.XXXXXX", path) < 0)
		message_no_memory();
	fd = mkostemp(fresh, O_CLOEXEC);
	if (fd < 0)
		r = -errno;
	while (r == 0 && n) {
		ssize_t put = write(fd, text, n);

		if (put < 0 && errno != EINTR)
			r = -errno;
		text += put > 0 ? put : 0;
		n -= put > 0 ? (size_t)put : 0;
	}
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (fd >= 0 && close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(fresh, path) < 0)
		r = -errno;
	if (r < 0 && fd >= 0)
		unlink(fresh);
	free(fresh);
	return r < 0 ? message_fail(path, "%s", strerror(-r)) : ADMIN_OK;
}

static char *read_file(const char *path, size_t *ret_n)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(FILE_MAX + 1) : NULL;
	size_t n = 0;
	int error = f ? 0 : errno;

	if (f && !text)
		message_no_memory();
	if (f) {
		n = fread(text, 1, FILE_MAX + 1, f);
		error = ferror(f) ? errno : n > FILE_MAX ? EFBIG : 0;
		fclose(f);
	}
	if (!error && n) {
		*ret_n = n;
		return text;
	}
	message_fail(path, "%s", error ? strerror(error) : "it is empty, and no profile");
	free(text);
	return NULL;
}

static const char *const file_names[] = {"FILE", NULL};

static int cmd_profile_save(struct admin *a, int argc, char **argv)
{
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line =
		OPTIONS_LINE(a, "profile save FILE", "Writes the profile to FILE, as text.",
			     .options = whose, .own = &user, .names = file_names, .n_needed = 1);
	struct shmstore_client *c;
	char *text;
	size_t n;

	options_parse(&line, argc, argv);
	int status = asking_open(a, &c);
	if (status)
		return status;
	int r = shmstore_client_profile_text(c, user, &text, &n);
	status = asking_close(c, "profile", r);
	if (status)
		return status;
	status = write_file(line.args[0], text, n);
	free(text);
	return status;
}

static int cmd_profile_load(struct admin *a, int argc, char **argv)
{
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line = OPTIONS_LINE(
		a, "profile load FILE",
		"Puts the profile in FILE in the place of what the daemon knows.\v"
		"It counts half, so that what is learned from now on outweighs it after as many "
		"tasks. A file that is cut off or damaged changes nothing.",
		.options = whose, .own = &user, .names = file_names, .n_needed = 1);
	struct shmstore_client *c;
	size_t n = 0;

	options_parse(&line, argc, argv);
	char *text = read_file(line.args[0], &n);
	if (!text)
		return ADMIN_FAILED;
	int status = asking_open(a, &c);
	if (status) {
		free(text);
		return status;
	}
	int r = shmstore_client_profile_load(c, user, text, n);
	if (r < 0)
		status = *shmstore_client_reason(c) ? asking_explain(c, line.args[0], r)
						    : message_detail(line.args[0], r);
	shmstore_client_free(c);
	free(text);
	return status;
}

static int cmd_profile_reset(struct admin *a, int argc, char **argv)
{
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line =
		OPTIONS_LINE(a, "profile reset", "Forgets what tasks used so far.",
			     .options = whose_or_all, .own = &user);
	struct shmstore_client *c;

	options_parse(&line, argc, argv);
	int status = asking_open(a, &c);
	if (status)
		return status;
	int r = shmstore_client_profile_reset(c, user);
	return asking_close(c, "profile", r);
}

int cmd_profile(struct admin *a, int argc, char **argv)
{
	static const struct admin_command subcommands[] = {
		{"show", "", "each kind of tasks, and what they used", cmd_profile_show},
		{"save", "FILE", "write the profile to a file", cmd_profile_save},
		{"load", "FILE", "take a file's content as what is known so far", cmd_profile_load},
		{"reset", "", "forget it", cmd_profile_reset},
		{NULL, NULL, NULL, NULL},
	};
	static const struct commands commands = {
		.list = subcommands,
		.of = "profile",
		.help = "Looks at what tasks used so far, as the daemon remembers it.\v",
		.tail = "\"" ADMIN_NAME
			" help profile SUBCOMMAND\" explains one; docs/governor.md has the rules.",
	};

	return commands_read(&commands, a, argc, argv);
}
