/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_verify.c: "shmstore-admin verify": checks the marker, every store's page, every object's header and table, and the
 * checksums where there are some. Reads nothing but what has a checksum: a partition of objects without checksums is fast.
 */
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>

#include "human.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"
#include "progress.h"
#include "table.h"

struct verify {
	const struct admin *admin;
	struct json_object *bad;
	struct table table;
	uint64_t n_checked, n_bad, bytes;
};

static int add(const struct shmstore_verify_finding *finding, void *arg)
{
	struct verify *v = arg;

	v->n_checked++;
	v->bytes = finding->bytes;
	progress_set(v->n_checked, v->bytes);
	if (!finding->error)
		return 0;
	v->n_bad++;
	const char *reason = finding->reason && *finding->reason ? finding->reason : shmstore_strerror(finding->error);
	if (v->admin->json) {
		struct json_object *o = json_new();
		json_text(o, "path", finding->path);
		json_text(o, "reason", reason);
		json_i64(o, "error", finding->error);
		json_append(v->bad, o);
	} else {
		table_row(&v->table);
		table_text(&v->table, 0, finding->path);
		table_text(&v->table, 1, reason);
		table_color(&v->table, 1, "red");
	}
	return 0;
}

static void finish(struct verify *v)
{
	char size[HUMAN_SIZE];

	if (v->admin->json) {
		struct json_object *o = json_new();
		json_u64(o, "checked", v->n_checked);
		json_u64(o, "bytes", v->bytes);
		json_child(o, "bad", v->bad);
		json_print(o);
		return;
	}
	table_finish(&v->table);
	printf("%" PRIu64 " files checked, %s read, %" PRIu64 " bad\n", v->n_checked,
	       human_bytes(v->bytes, v->admin->bytes, size), v->n_bad);
}

int cmd_verify(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = {
		NULL,
		options_common,
		"verify",
		"Checks the marker, every store's page, and every object: header, table, and checksum where it has "
		"one.\v"
		"Exit status 1 if anything is bad. Nothing is changed.",
		options_children,
		NULL,
		NULL,
	};
	static const struct table_column columns[] = {{"BAD", 0}, {"BECAUSE", TABLE_WRAP}};
	struct verify v = {.admin = a};
	struct command_line line = {.admin = a};
	struct shmstore_partition *p;

	options_parse(&argp, &line, argc, argv);
	int status = opening_partition(a, &p);
	if (status)
		return status;
	v.bad = table_or_list(&v.table, a, columns, 2);
	progress_begin("verify");
	int r = shmstore_partition_verify(p, add, &v);
	progress_end();
	if (r < 0)
		status = message_error(shmstore_partition_path(p), r);
	else
		finish(&v);
	if (v.n_bad) {
		status = message_fail(shmstore_partition_path(p), "%" PRIu64 " of %" PRIu64 " files are bad", v.n_bad,
				      v.n_checked);
		message_hint(
			"a damaged object is of no use to anybody: delete it through its store, or remove the file");
	}
	shmstore_partition_unref(p);
	return status;
}
