/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c: shmstore-replay FILE…, runs files of scenarios against the daemon's pure modules and
 * says which lines do not hold.
 *
 * A file's first word or its extension tells its format; each format is a row of the table below
 * and a function that runs a script. Time is the script's, nothing is random, no daemon, partition
 * or thread is involved: what fails here fails always.
 *
 * Exit status: 0 all lines hold, 1 one did not or a file or line could not be read, 2 usage.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbscript.h"
#include "scnscript.h"
#include "script.h"
#include "verdict.h"

static const struct format {
	const char *first, *extension; /* either tells it; NULL: any */
	bool quotes;
	void (*run)(struct verdict *v, const struct script *s);
} formats[] = {
	{"scenario", NULL, true, arbscript_run},
	{"case", ".scn", false, scnscript_run},
};

static const char usage_text[] =
	"usage: shmstore-replay [--verbose] [--list] [--only ID]… FILE…\n"
	"\n"
	"Runs scenario files against the daemon's pure modules. Prints each line that does not "
	"hold as\n"
	"file:line, with what was expected and what was found, and a summary.\n"
	"\n"
	"  -v, --verbose   say each line with what was found, and each scenario\n"
	"  -l, --list      name the scenarios, run none\n"
	"  -o, --only ID   this scenario only; may be given again\n"
	"  -h, --help      this text\n"
	"\n"
	"Exit status: 0 all hold, 1 one does not or something could not be read, 2 usage.\n";

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* A file that begins with neither word has a mistake there, which its format may say better. */
static const struct format *format_of(const struct script *s)
{
	const size_t n = sizeof(formats) / sizeof(formats[0]);

	for (size_t i = 0; i < n; i++)
		if (script_begins(s, formats[i].first))
			return &formats[i];
	for (size_t i = 0; i < n; i++)
		if (formats[i].extension && ends_with(s->path, formats[i].extension))
			return &formats[i];
	return NULL;
}

static void add(struct verdict *total, const struct verdict *v)
{
	total->n_passed += v->n_passed;
	total->n_failed += v->n_failed;
	total->n_skipped += v->n_skipped;
	total->n_errors += v->n_errors;
}

static void say(const char *what, const struct verdict *v)
{
	printf("%s%s%u passed, %u failed", what, *what ? ": " : "", v->n_passed, v->n_failed);
	if (v->n_skipped)
		printf(", %u skipped", v->n_skipped);
	if (v->n_errors)
		printf(", %u errors", v->n_errors);
	putchar('\n');
}

static void replay(struct verdict *total, const char *path)
{
	const struct format *format = NULL;
	struct script s = SCRIPT_NULL;
	struct verdict v = *total;
	int err;

	v.path = path;
	v.n_passed = v.n_failed = v.n_skipped = v.n_errors = 0;
	err = script_read(&s, path);
	if (err >= 0) {
		format = format_of(&s);
		err = script_cut(&s, format && format->quotes);
	}
	if (err < 0)
		verdict_error(&v, NULL, "cannot be read: %s", strerror(-err));
	else if (s.n_lines == 0)
		verdict_error(&v, NULL, "nothing in it");
	else if (!format)
		verdict_error(&v, &s.lines[0], "no format is known that begins like this");
	else
		format->run(&v, &s);
	if (!v.list)
		say(path, &v);
	add(total, &v);
	script_deinit(&s);
}

static int finish(struct verdict *total, int n_files)
{
	for (size_t i = 0; i < total->n_only; i++)
		if (!total->only_met[i]) {
			fprintf(stderr, "shmstore-replay: --only %s: no such scenario\n",
				total->only[i]);
			total->n_errors++;
		}
	if (!total->list && n_files > 1)
		say("total", total);
	return total->n_failed || total->n_errors ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int usage(const char *why, const char *what)
{
	if (why)
		fprintf(stderr, "shmstore-replay: %s%s\n", why, what);
	fputs(usage_text, why ? stderr : stdout);
	return why ? 2 : 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"verbose", no_argument, NULL, 'v'},
		{"list", no_argument, NULL, 'l'},
		{"only", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct verdict total = {0};
	int c, status = 2;

	total.only = calloc((size_t)argc, sizeof(*total.only));
	total.only_met = calloc((size_t)argc, sizeof(*total.only_met));
	if (!total.only || !total.only_met) {
		fputs("shmstore-replay: out of memory\n", stderr);
		status = 1;
		goto out;
	}
	while ((c = getopt_long(argc, argv, "vlo:h", options, NULL)) != -1) {
		if (c == 'h') {
			status = usage(NULL, "");
			goto out;
		}
		if (c == '?') {
			fputs(usage_text, stderr);
			goto out;
		}
		total.verbose |= c == 'v';
		total.list |= c == 'l';
		if (c == 'o')
			total.only[total.n_only++] = optarg;
	}
	if (optind >= argc) {
		status = usage("no file is named", "");
		goto out;
	}
	for (int i = optind; i < argc; i++)
		replay(&total, argv[i]);
	status = finish(&total, argc - optind);
out:
	free(total.only);
	free(total.only_met);
	return status;
}
