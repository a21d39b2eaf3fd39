/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_doctor.c: "shmstore-admin doctor": all findings, each with the command that
 * mends it. Changes nothing. */
#include "doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "jsonout.h"
#include "keytext.h"
#include "opening.h"
#include "options.h"

static void print_json(const struct doctor *d, const size_t counts[3])
{
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "partition", d->path);
	jsonmake_flag(o, "initialised", d->p != NULL);
	struct json_object *list = jsonmake_child(o, "findings", jsonmake_new_list());
	for (size_t i = 0; i < d->n_findings; i++) {
		const struct doctor_finding *f = &d->findings[i];
		struct json_object *item = jsonmake_new();
		jsonmake_prose(item, "check", f->check);
		jsonmake_prose(item, "level", doctor_level_name(f->level));
		jsonmake_prose(item, "found", f->found);
		jsonmake_prose(item, "fix", f->fix);
		jsonmake_append(list, item);
	}
	jsonmake_u64(o, "n_ok", counts[DOCTOR_OK]);
	jsonmake_u64(o, "n_warn", counts[DOCTOR_WARN]);
	jsonmake_u64(o, "n_fail", counts[DOCTOR_FAIL]);
	json_print(o);
}

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

static void print_text(const struct doctor *d, const size_t counts[3])
{
	static const char *const colors[] = {"\033[32m", "\033[33m", "\033[31;1m"};
	const size_t indent = 26;
	struct winsize w;
	size_t width = SIZE_MAX;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 &&
	    w.ws_col > indent + 30)
		width = w.ws_col - indent;
	for (size_t i = 0; i < d->n_findings; i++) {
		const struct doctor_finding *f = &d->findings[i];
		printf("%s%-6s%s%-20s", d->admin->color ? colors[f->level] : "",
		       doctor_level_name(f->level), d->admin->color ? "\033[0m" : "", f->check);
		/* it may hold names of other people's making */
		char *found = keytext_new(f->found, strlen(f->found));
		print_wrapped(found, indent, width);
		free(found);
		if (*f->fix) /* never wrapped: it is there to be copied */
			printf("%*s$ %s\n", (int)indent, "", f->fix);
	}
	printf("\n%s: %zu ok, %zu warnings, %zu failed\n", d->path, counts[DOCTOR_OK],
	       counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
}

int cmd_doctor(struct admin *a, int argc, char **argv)
{
	struct command_line line = OPTIONS_LINE(
		a, "doctor",
		"Checks the partition's file system, the host's limits and settings, and what the "
		"kernel can do, and says for each thing that is wrong which command mends it. "
		"Works before there is a partition, too.\v"
		"Exit status 1 if anything failed; warnings are not failures. Changes nothing.");
	static struct doctor d;
	char path[PATH_MAX];
	size_t counts[3] = {0, 0, 0};

	options_parse(&line, argc, argv);
	if (!opening_path(a, path))
		return ADMIN_FAILED;
	doctor_init(&d, a, path);
	doctor_check_mount(&d);
	doctor_check_host(&d);
	doctor_check_kernel(&d);
	doctor_check_daemon(&d);
	doctor_check_tier(&d);
	for (size_t i = 0; i < d.n_findings; i++)
		counts[d.findings[i].level]++;
	if (a->json)
		print_json(&d, counts);
	else
		print_text(&d, counts);
	doctor_deinit(&d);
	return counts[DOCTOR_FAIL] ? ADMIN_FAILED : ADMIN_OK;
}
