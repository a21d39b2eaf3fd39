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

#include "admin.h"
#include "alloc.h"
#include "asking.h"
#include "cleanup.h"
#include "jsonin.h"
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
	{"NOTE", 0, "[preempted?preempted]"},
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
	struct json_object *document = NULL;
	char *json;
	size_t n;

	OPTIONS_PARSE(a, argc, argv, "profile show",
		      "Shows each kind of tasks, and what those that ended used.\v"
		      "TASKS, PEAK, P95 and AVERAGE are of private memory, ESTIMATE is what the "
		      "next one is expected to use. SHARED (bytes created in the store) and CPU "
		      "are the 95th percentile, LIFE is the median.",
		      .options = whose_or_all, .own = &user);
	_client_ struct shmstore_client *c = asking_open(a);
	int r = shmstore_client_profile(c, user, &json, &n);
	if (r == 0)
		r = asking_parse(json, n, &document);
	asking_check(c, "profile", r);
	json_show(a, document, print);
	return ADMIN_OK;
}

/* ---- save, load, reset ---- */

/* The file is there whole or not at all: it is written beside, and renamed. */
static int write_file(const char *path, const char *text, size_t n)
{
	_free_ char *fresh = shms_printed("%s.XXXXXX", path);
	int fd = fresh ? mkostemp(fresh, O_CLOEXEC) : -1;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f)
		return message_fail(path, "%s", strerror(errno));
	bool written = fwrite(text, 1, n, f) == n && fflush(f) == 0 && fsync(fd) == 0;
	int error = written ? 0 : errno;
	if (fclose(f) != 0 && !error)
		error = errno;
	if (!error && rename(fresh, path) < 0)
		error = errno;
	if (!error)
		return ADMIN_OK;
	unlink(fresh);
	return message_fail(path, "%s", strerror(error));
}

/* The text in a file, on the heap. Ends the program where it cannot be read. */
static char *read_file(const char *path, size_t *ret_n)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(FILE_MAX + 1) : NULL;

	if (!f)
		exit(message_fail(path, "%s", strerror(errno)));
	if (!text)
		message_no_memory();
	*ret_n = fread(text, 1, FILE_MAX + 1, f);
	int error = ferror(f) ? errno : *ret_n > FILE_MAX ? EFBIG : 0;
	fclose(f);
	if (error || !*ret_n)
		exit(message_fail(path, "%s",
				  error ? strerror(error) : "it is empty, and no profile"));
	return text;
}

static const char *const file_names[] = {"FILE", NULL};

static int cmd_profile_save(struct admin *a, int argc, char **argv)
{
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line =
		OPTIONS_LINE(a, "profile save FILE", "Writes the profile to FILE, as text.",
			     .options = whose, .own = &user, .names = file_names, .n_needed = 1);
	_free_ char *text = NULL;
	size_t n;

	options_parse(&line, argc, argv);
	_client_ struct shmstore_client *c = asking_open(a);
	asking_check(c, "profile", shmstore_client_profile_text(c, user, &text, &n));
	return write_file(line.args[0], text, n);
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
	size_t n = 0;

	options_parse(&line, argc, argv);
	_free_ char *text = read_file(line.args[0], &n);
	_client_ struct shmstore_client *c = asking_open(a);
	int r = shmstore_client_profile_load(c, user, text, n);
	if (r == 0)
		return ADMIN_OK;
	return *shmstore_client_reason(c) ? asking_explain(c, line.args[0], r)
					  : message_detail(line.args[0], r);
}

static int cmd_profile_reset(struct admin *a, int argc, char **argv)
{
	uint32_t user = SHMSTORE_PROFILE_MINE;

	OPTIONS_PARSE(a, argc, argv, "profile reset", "Forgets what tasks used so far.",
		      .options = whose_or_all, .own = &user);
	_client_ struct shmstore_client *c = asking_open(a);
	asking_check(c, "profile", shmstore_client_profile_reset(c, user));
	return ADMIN_OK;
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
