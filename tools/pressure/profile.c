/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_profile.c: "shmstore-admin profile SUBCOMMAND": what tasks of each kind used so far, as the daemon remembers it: shown, saved, loaded, forgotten. Files are
 * read and written here, with the rights of who runs this.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

enum {
	OPTION_USER = 0x100,
	OPTION_ALL
};

static const struct argp_option whose[] = {
	{"user", OPTION_USER, "USER", 0, "another user's profile: for root and the daemon's user", 0},
	{NULL, 0, NULL, 0, NULL, 0},
};
static const struct argp_option whose_or_all[] = {
	{"user", OPTION_USER, "USER", 0, "another user's profile: for root and the daemon's user", 0},
	{"all", OPTION_ALL, NULL, 0, "everybody's", 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	uint32_t *user = line->own;

	switch (key) {
	case OPTION_USER:
		*user = options_user(state, arg);
		return 0;
	case OPTION_ALL:
		*user = SHMSTORE_PROFILE_ALL;
		return 0;
	default:
		return options_common(key, arg, state);
	}
}

/* ---- show ---- */

#define COLUMNS(X)                           \
	X(USER, "USER", TABLE_RIGHT)         \
	X(LANG, "LANG", 0)                   \
	X(FUNC, "FUNCTION", TABLE_TRUNC)     \
	X(GROUP, "GROUP", TABLE_TRUNC)       \
	X(TASKS, "TASKS", TABLE_RIGHT)       \
	X(PEAK, "PEAK", TABLE_RIGHT)         \
	X(P95, "P95", TABLE_RIGHT)           \
	X(AVERAGE, "AVERAGE", TABLE_RIGHT)   \
	X(ESTIMATE, "ESTIMATE", TABLE_RIGHT) \
	X(SHARED, "SHARED", TABLE_RIGHT)     \
	X(CPU, "CPU", TABLE_RIGHT)           \
	X(LIFE, "LIFE", TABLE_RIGHT)         \
	X(NOTE, "NOTE", 0)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

static void print_kind(struct table *t, uint64_t uid, const struct json_object *k)
{
	const struct json_object *memory = jsonin_object(k, "private"), *shared = jsonin_object(k, "shared"),
				 *cpu = jsonin_object(k, "cpu_ms");

	table_row(t);
	table_printf(t, USER, "%" PRIu64, uid);
	table_text(t, LANG, jsonin_text(k, "lang"));
	table_text(t, FUNC, jsonin_text(k, "func"));
	table_text(t, GROUP, jsonin_text(k, "group"));
	table_count(t, TASKS, jsonin_u64(memory, "n"));
	table_size(t, PEAK, jsonin_u64(memory, "peak"));
	table_size(t, P95, jsonin_u64(memory, "p95"));
	table_size(t, AVERAGE, jsonin_u64(memory, "average"));
	table_size(t, ESTIMATE, jsonin_u64(memory, "estimate"));
	table_size(t, SHARED, jsonin_u64(shared, "p95"));
	table_printf(t, CPU, "%.1f s", (double)jsonin_u64(cpu, "p95") / 1e3);
	table_printf(t, LIFE, "%.1f s", (double)jsonin_u64(k, "life_ms") / 1e3);
	table_text(t, NOTE, jsonin_flag(k, "preempted") ? "preempted" : "");
}

static void print_running(const struct admin *a, const struct json_object *document)
{
	static const struct table_column running[] = {{"PID", TABLE_RIGHT}, {"USER", TABLE_RIGHT}, {"LANG", 0},
						      {"FUNCTION", 0},      {"GROUP", 0},          {"AGE", TABLE_RIGHT},
						      {"NOW", TABLE_RIGHT}, {"PEAK", TABLE_RIGHT}};
	size_t n = jsonin_count(document, "running");
	struct table t;

	if (!n)
		return;
	table_heading("running", false);
	table_init(&t, a, running, sizeof(running) / sizeof(running[0]));
	for (size_t i = 0; i < n; i++) {
		const struct json_object *o = jsonin_at(document, "running", i);

		table_row(&t);
		table_printf(&t, 0, "%" PRId64, jsonin_i64(o, "pid"));
		table_printf(&t, 1, "%" PRIu64, jsonin_u64(o, "uid"));
		table_text(&t, 2, jsonin_text(o, "lang"));
		table_text(&t, 3, jsonin_text(o, "func"));
		table_text(&t, 4, jsonin_text(o, "group"));
		table_printf(&t, 5, "%.1f s", (double)jsonin_u64(o, "age_ms") / 1e3);
		table_size(&t, 6, jsonin_u64(o, "private"));
		table_size(&t, 7, jsonin_u64(o, "private_peak"));
	}
	table_finish(&t);
}

static void print(const struct admin *a, const struct json_object *document)
{
	size_t n = 0;
	struct table t;

	table_init(&t, a, columns, N_COLUMNS);
	for (size_t i = 0; i < jsonin_count(document, "users"); i++) {
		const struct json_object *user = jsonin_at(document, "users", i);

		for (size_t j = 0; j < jsonin_count(user, "kinds"); j++, n++)
			print_kind(&t, jsonin_u64(user, "uid"), jsonin_at(user, "kinds", j));
	}
	table_finish(&t);
	if (!n)
		puts("no tasks have ended yet");
	print_running(a, document);
}

static int cmd_profile_show(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(
		whose_or_all, parse, "profile show",
		"Shows each kind of tasks, and what those that ended used.\v"
		"TASKS, PEAK, P95 and AVERAGE are of private memory, ESTIMATE is what the next one is expected to use. "
		"SHARED (bytes created in the store) and CPU are the 95th percentile, LIFE is the median.");
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line = {.admin = a, .own = &user};
	struct shmstore_client *c;
	struct json_object *document;
	char *json;
	size_t n;

	options_parse(&argp, &line, argc, argv);
	int status = asking_open(a, &c);
	if (status)
		return status;
	int r = shmstore_client_profile(c, user, &json, &n);
	if (r < 0)
		status = asking_explain(c, "profile", r);
	shmstore_client_free(c);
	if (status)
		return status;
	document = jsonin_parse(json, n);
	free(json);
	if (!document)
		return message_fail("profile", "the daemon's answer is no JSON document");
	if (a->json) {
		json_print(document);
		return ADMIN_OK;
	}
	print(a, document);
	jsonin_free(document);
	return ADMIN_OK;
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
	static const struct argp argp =
		OPTIONS_ARGP(whose, parse, "profile save FILE", "Writes the profile to FILE, as text.");
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line = {.admin = a, .own = &user, .names = file_names, .n_needed = 1};
	struct shmstore_client *c;
	char *text;
	size_t n;

	options_parse(&argp, &line, argc, argv);
	int status = asking_open(a, &c);
	if (status)
		return status;
	int r = shmstore_client_profile_text(c, user, &text, &n);
	if (r < 0)
		status = asking_explain(c, "profile", r);
	shmstore_client_free(c);
	if (status)
		return status;
	status = write_file(line.args[0], text, n);
	free(text);
	return status;
}

static int cmd_profile_load(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(whose, parse, "profile load FILE",
						     "Puts the profile in FILE in the place of what the daemon knows.\v"
						     "It counts half, so that what is learned from now on outweighs it "
						     "after as many tasks. A file that is cut "
						     "off or damaged changes nothing.");
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line = {.admin = a, .own = &user, .names = file_names, .n_needed = 1};
	struct shmstore_client *c;
	size_t n = 0;

	options_parse(&argp, &line, argc, argv);
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
	static const struct argp argp =
		OPTIONS_ARGP(whose_or_all, parse, "profile reset", "Forgets what tasks used so far.");
	uint32_t user = SHMSTORE_PROFILE_MINE;
	struct command_line line = {.admin = a, .own = &user};
	struct shmstore_client *c;

	options_parse(&argp, &line, argc, argv);
	int status = asking_open(a, &c);
	if (status)
		return status;
	int r = shmstore_client_profile_reset(c, user);
	if (r < 0)
		status = asking_explain(c, "profile", r);
	shmstore_client_free(c);
	return status;
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
		.kind = "subcommand",
		.heading = "Subcommands",
		.of = "profile",
		.usage = "profile SUBCOMMAND [ARGUMENT...]",
		.help = "Looks at what tasks used so far, as the daemon remembers it.\v",
		.tail = "\"" ADMIN_NAME " help profile SUBCOMMAND\" explains one; docs/profiles.md has the rules.",
	};

	return commands_read(&commands, a, argc, argv);
}
