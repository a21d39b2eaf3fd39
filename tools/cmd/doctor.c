/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c: "shmstore-admin doctor": all findings, each with the command that
 * mends it. Changes nothing. */
#include "doctor.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cleanup.h"
#include "figure.h"
#include "jsonin.h"
#include "jsonout.h"
#include "opening.h"
#include "options.h"

/* Prints text in lines of at most width characters, all but the first indented. */
static void print_wrapped(const char *text, size_t indent, size_t width)
{
	while (strlen(text) > width) {
		size_t cut = width;
		while (cut && text[cut] != ' ')
			cut--;
		if (!cut)
			break; /* one long word, such as a path */
		printf("%.*s\n%*s", (int)cut, text, (int)indent, "");
		text += cut + 1;
	}
	puts(text);
}

static void print_text(const struct admin *a, const struct json_object *o)
{
	const size_t indent = 26;
	struct winsize w;
	size_t width = SIZE_MAX;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 &&
	    w.ws_col > indent + 30)
		width = w.ws_col - indent;
	for (size_t i = 0; i < jsonin_count(o, "findings"); i++) {
		const struct json_object *f = jsonin_at(o, "findings", i);
		const char *level = jsonin_text(f, "level"), *fix = jsonin_text(f, "fix");
		const char *color = strcmp(level, "ok") == 0     ? "\033[32m"
				    : strcmp(level, "warn") == 0 ? "\033[33m"
								 : "\033[31;1m";

		printf("%s%-6s%s%-20s", a->color ? color : "", level, a->color ? "\033[0m" : "",
		       jsonin_text(f, "check"));
		/* it may hold names of other people's making */
		const char *text = jsonin_text(f, "found");
		_free_ char *found = figure_escaped(text, strlen(text));
		print_wrapped(found, indent, width);
		if (*fix) /* never wrapped: it is there to be copied */
			printf("%*s$ %s\n", (int)indent, "", fix);
	}
	putchar('\n');
	figure_print(o, false, "{partition}: {n_ok} ok, {n_warn} warnings, {n_fail} failed\n");
}

int cmd_doctor(struct admin *a, int argc, char **argv)
{
	static struct doctor d;
	char path[PATH_MAX];
	struct json_object *o;

	OPTIONS_PARSE(
		a, argc, argv, "doctor",
		"Checks the partition's file system, the host's limits and settings, and what the "
		"kernel can do, and says for each thing that is wrong which command mends it. "
		"Works before there is a partition, too.\v"
		"Exit status 1 if anything failed; warnings are not failures. Changes nothing.");
	opening_path(a, path);
	doctor_init(&d, a, path);
	doctor_check_mount(&d);
	doctor_check_host(&d);
	doctor_check_kernel(&d);
	doctor_check_daemon(&d);
	doctor_check_tier(&d);
	o = jsonmake_new();
	jsonmake_prose(o, "partition", path);
	jsonmake_flag(o, "initialised", d.p != NULL);
	jsonmake_child(o, "findings", d.findings);
	jsonmake_u64(o, "n_ok", d.counts[DOCTOR_OK]);
	jsonmake_u64(o, "n_warn", d.counts[DOCTOR_WARN]);
	jsonmake_u64(o, "n_fail", d.counts[DOCTOR_FAIL]);
	json_show(a, o, print_text);
	doctor_deinit(&d);
	return d.counts[DOCTOR_FAIL] ? ADMIN_FAILED : ADMIN_OK;
}
