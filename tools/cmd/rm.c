/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_rm.c: "shmstore-admin rm STORE [KEY...]": removes objects of a store that nobody has open, or
 * the store. A live owner's store is its own to change: its books and its caches say what it holds.
 * The lock of the store, taken here as its owner would, is what keeps the two apart.
 */
#include <errno.h>
#include <shmstore/inspect.h>

#include "jsonin.h"
#include "message.h"
#include "opening.h"
#include "options.h"

struct rm {
	struct admin *admin;
	const char *store;
	struct json_object *keys; /* with --json: those that were removed */
	uint64_t n_removed, n_missing, n_failed;
};

/* The store as one that stays (or goes, with everything in it) when it is closed. 0, or the exit
 * status once everything is said. */
static int take(struct shmstore_partition *p, const struct shmstore_store_info *e, bool keep,
		struct shmstore **ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	int r;

	o.keep = keep;
	o.flags = SHMSTORE_OPEN_ADOPT;
	o.directory = e->path;
	o.label = e->label[0] ? e->label : NULL;
	o.daemon = SHMSTORE_DAEMON_OFF;
	r = e->readable ? shmstore_open(p, e->name, &o, ret) : -EPERM;
	if (r != -EBUSY)
		return r < 0 ? opening_explain_store(p, e->name[0] ? e->name : e->path, r)
			     : ADMIN_OK;
	message_detail(e->name, r);
	message_hint("only that process removes what is in it; end it, and its store goes with it");
	return ADMIN_FAILED;
}

static void list_key(struct rm *rm, const void *key, size_t size)
{
	struct json_object *o;

	if (!rm->keys)
		return;
	o = jsonmake_new();
	jsonmake_key(o, "key", key ? key : "", size);
	jsonmake_append(rm->keys, o);
}

static void remove_key(struct rm *rm, struct shmstore *s, const char *text)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t size;
	int r;

	if (!opening_key(text, key, &size)) {
		rm->n_failed++;
		return;
	}
	r = shmstore_delete(s, key, size);
	if (r == 0) {
		rm->n_removed++;
		list_key(rm, key, size);
	} else if (r == -ENOENT) {
		rm->n_missing++;
		message_fail(text, "the store %s has no object of that key", rm->store);
	} else {
		rm->n_failed++;
		message_detail(text, r);
	}
}

static int count(const struct shmstore_object_info *info, void *arg)
{
	struct rm *rm = arg;

	rm->n_removed++;
	if (!info->error)
		list_key(rm, info->key, info->key_size);
	return 0;
}

static void report(const struct rm *rm, const char *partition, bool whole)
{
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "partition", partition);
	jsonmake_prose(o, "store", rm->store);
	jsonmake_flag(o, "removed_store", whole);
	jsonmake_child(o, "removed", rm->keys);
	if (!rm->admin->json)
		jsonmake_u64(o, "n", rm->n_removed);
	json_say(rm->admin, o,
		 whole ? "{store}: removed, with {n} objects\n" : "{store}: {n} objects removed\n");
}

static int run(struct rm *rm, struct shmstore_partition *p, const struct command_line *line)
{
	bool whole = line->n_many == 0;
	_stores_ struct storelist list = STORELIST_NULL;
	struct shmstore *s;
	int r = storelist_read(p, &list);

	if (r < 0)
		return message_error(shmstore_partition_path(p), r);
	const struct shmstore_store_info *e = storelist_find(&list, rm->store);
	int status = e ? take(p, e, e->keep && !whole, &s)
		       : opening_explain_store(p, rm->store, -ENOENT);
	if (status)
		return status;
	if (whole)
		r = shmstore_foreach(s, count, rm);
	for (size_t i = 0; i < line->n_many; i++)
		remove_key(rm, s, line->many_args[i]);
	r = shmstore_close(s);
	/* Leases that have not ended keep the directory, and what they keep in memory. */
	if (r == 0 && whole)
		r = shmstore_partition_reap(p, e->path, SHMSTORE_GC_LEASES, NULL, NULL, NULL, NULL);
	if (r < 0 && r != -ENOENT)
		return message_detail(rm->store, r);
	report(rm, shmstore_partition_path(p), whole);
	return rm->n_failed || rm->n_missing ? ADMIN_FAILED : ADMIN_OK;
}

int cmd_rm(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"STORE", "KEY", NULL};
	struct command_line line = OPTIONS_LINE(
		a, "rm STORE [KEY...]",
		"Removes objects of STORE (a name, or the store's path), or with no KEY the store "
		"with all that is in it, objects that only tickets keep too.\v"
		"Only of stores that no live process has open: kept ones and dead ones. What other "
		"stores link stays theirs. Exit status 1 if there is no such store or key, or its "
		"owner lives.",
		.names = names, .n_needed = 1, .many = true);
	struct rm rm = {.admin = a};

	options_parse(&line, argc, argv);
	rm.store = line.args[0];
	_partition_ struct shmstore_partition *p = opening_partition(a);
	rm.keys = a->json ? jsonmake_new_list() : NULL;
	return run(&rm, p, &line);
}
