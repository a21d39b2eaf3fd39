/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moving.c: "shmstore-admin demote STORE KEY...", "shmstore-admin promote STORE KEY...": the keys
 * that were named, or all that lie on the other side, one after the other, so that each has its own
 * outcome and its own sentence where it failed. Where many are brought back, a batch is begun
 * together first; the outcome is still that of the single moves. A signal ends it between two
 * objects.
 *
 * A demotion is for every store that links the object. The choice of an eviction does not matter
 * here: a user that names an object wants that one gone from memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "alloc.h"
#include "cleanup.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"

#define MOVING_BATCH 64 /* keys that are begun together */

struct moving_way {
	const char *name; /* of the command */
	int to;           /* SHMSTORE_IN_TIER or SHMSTORE_IN_MEMORY */
	int (*move)(struct shmstore *s, const void *key, size_t key_size, unsigned flags);
	const char *usage, *help; /* as of a struct command_line */
};

struct moving {
	const struct admin *admin;
	const struct moving_way *way;
	const char *store;
	bool all;
	unsigned n_threads;
	struct iovec *keys; /* each on the heap */
	size_t n_keys, room;
	uint64_t n_moved, n_already, n_failed; /* objects */
	uint64_t n_pinned;                     /* left out of --all */
	struct json_object *objects;           /* with --json */
};

static void check(const struct argp_state *state, const struct command_line *line)
{
	const struct moving *m = line->own;

	if (m->all && line->n_many)
		options_usage(state, "--all does not go with keys");
	if (!m->all && line->n_args == 1 && !line->n_many)
		options_usage(state, "KEY is missing, or --all");
}

/* ---- keys ---- */

static void add_key(struct moving *m, const void *key, size_t key_size)
{
	void *copy = malloc(key_size + 1);

	if (SHMS_GROW(m->keys, m->room, m->n_keys, 1) < 0 || !copy)
		message_no_memory();
	memcpy(copy, key, key_size);
	m->keys[m->n_keys++] = (struct iovec){copy, key_size};
}

/* The objects on the other side. A damaged one has no key to be moved by. */
static int add_object(const struct shmstore_object_info *info, void *arg)
{
	struct moving *m = arg;
	const bool to_tier = m->way->to == SHMSTORE_IN_TIER;

	if (info->error || info->demoted == to_tier)
		return 0;
	if (to_tier && info->pinned) {
		m->n_pinned++;
		return 0;
	}
	add_key(m, info->key ? info->key : "", info->key_size);
	progress_set(m->n_keys, 0);
	return 0;
}

/* ---- moving ---- */

static void add_json(struct moving *m, const struct iovec *key, int before, int error)
{
	struct json_object *o = jsonmake_new();
	const char *detail = shmstore_error_detail(), *path = shmstore_error_path();

	jsonmake_key(o, "key", key->iov_base, key->iov_len);
	jsonmake_flag(o, "moved", !error && before != m->way->to);
	jsonmake_prose(o, "error", !error ? NULL : *detail ? detail : shmstore_strerror(error));
	jsonmake_prose(o, "path", error && *path ? path : NULL);
	jsonmake_append(m->objects, o);
}

/* Prints what to do below an error of move(). */
static void hint(const char *partition, bool to_tier, int error)
{
	if (error == -ENOSPC && to_tier) {
		message_command(partition, "to see what fills the tier", "tier");
		message_command(partition, "to let it grow", "tier --max SIZE");
	} else if (error == -ENOSPC) {
		message_command(partition, "to make room", "evict --to 50%%");
	} else if (error == -EBADMSG && !to_tier) {
		message_command(partition,
				"what is lost with it has to be made anew; to check all tier files",
				"verify --tier");
	}
}

/* before: where it was, SHMSTORE_IN_… */
static void move_one(struct moving *m, struct shmstore_partition *p, struct shmstore *s,
		     const struct iovec *key, int before)
{
	int r = m->way->move(s, key->iov_base, key->iov_len, 0);

	if (m->admin->json)
		add_json(m, key, before, r);
	if (r == 0) {
		if (before == m->way->to)
			m->n_already++;
		else
			m->n_moved++;
		return;
	}
	_free_ char *text = figure_escaped(key->iov_base, key->iov_len);
	m->n_failed++;
	if (r == -ENOENT && !*shmstore_error_path())
		opening_explain_key(p, s, text, r);
	else
		message_detail(text, r);
	hint(shmstore_partition_path(p), m->way->to == SHMSTORE_IN_TIER, r);
	if (r == -ETIMEDOUT)
		message_hint("a process of its store is stopped in the midst of a change: continue "
			     "it, or end it");
}

static void move_all(struct moving *m, struct shmstore_partition *p, struct shmstore *s)
{
	int before[MOVING_BATCH];

	for (size_t i = 0; i < m->n_keys && !interrupt_pending();) {
		size_t n = m->n_keys - i < MOVING_BATCH ? m->n_keys - i : MOVING_BATCH;
		for (size_t k = 0; k < n; k++)
			before[k] =
				shmstore_locate(s, m->keys[i + k].iov_base, m->keys[i + k].iov_len);
		/* Only so that the disk and the processors have more than one to work at; how each
		 * of them ends, the moves after it say. */
		if (m->way->to == SHMSTORE_IN_MEMORY && n > 1)
			(void)shmstore_prefetch(s, m->keys + i, n, m->n_threads, 0, NULL);
		for (size_t k = 0; k < n && !interrupt_pending(); k++) {
			move_one(m, p, s, &m->keys[i + k], before[k]);
			progress_set(m->n_moved + m->n_already + m->n_failed, 0);
		}
		i += n;
	}
}

static void report(const struct moving *m)
{
	const bool to_tier = m->way->to == SHMSTORE_IN_TIER;
	struct json_object *o = jsonmake_new();

	jsonmake_prose(o, "store", m->store);
	jsonmake_u64(o, to_tier ? "demoted" : "promoted", m->n_moved);
	jsonmake_u64(o, "already", m->n_already);
	jsonmake_u64(o, "failed", m->n_failed);
	jsonmake_u64(o, "pinned", m->n_pinned);
	jsonmake_child(o, "objects", m->objects);
	if (!m->admin->json)
		jsonmake_u64(o, "left", m->n_keys - m->n_moved - m->n_already - m->n_failed);
	json_say(m->admin, o,
		 "[has demoted?{demoted:object} demoted|{promoted:object} promoted]"
		 "[already?, {already} in [has demoted?the tier|memory] already]"
		 "[pinned?, {pinned} pinned][failed?, {failed} failed][left?, {left} not begun]\n");
}

static int run(struct moving *m, const struct command_line *line)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t size;
	int r = 0;

	for (size_t i = 0; i < line->n_many; i++) {
		if (!opening_key(line->many_args[i], key, &size))
			return ADMIN_FAILED;
		add_key(m, key, size);
	}
	_partition_ struct shmstore_partition *p = opening_partition(m->admin);
	if (m->way->to == SHMSTORE_IN_TIER)
		storelist_join_tier(p);
	struct shmstore *s = opening_store(p, m->store);
	if (m->admin->json)
		m->objects = jsonmake_new_list();
	interrupt_catch(); /* what was begun is finished */
	progress_begin(m->way->name);
	if (m->all)
		r = shmstore_foreach(s, add_object, m);
	progress_set(0, 0); /* from here on: moved */
	move_all(m, p, s);
	progress_end();
	if (r < 0)
		message_error(m->store, r);
	report(m);
	shmstore_close(s);
	interrupt_finish();
	return r < 0 || m->n_failed ? ADMIN_FAILED : ADMIN_OK;
}

/* Reads the command line, moves, and says what became of it. Returns the exit status. */
static int moving_run(struct admin *a, int argc, char **argv, const struct options_row *options,
		      const struct moving_way *way)
{
	static const char *const names[] = {"STORE", "KEY", NULL};
	struct moving m = {.admin = a, .way = way};
	struct command_line line =
		OPTIONS_LINE(a, way->usage, way->help, .names = names, .n_needed = 1, .many = true,
			     .options = options, .own = &m, .check = check);

	options_parse(&line, argc, argv);
	m.store = line.args[0];
	int status = run(&m, &line);
	for (size_t i = 0; i < m.n_keys; i++)
		free(m.keys[i].iov_base);
	free(m.keys);
	return status;
}

/* ---- the two ways ---- */

typedef struct moving OF;

int cmd_demote(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"all", 'a', NULL, "every object of the store but those that are pinned",
		 OPTIONS_FLAG, offsetof(OF, all)},
		{NULL},
	};
	static const struct moving_way way = {
		.name = "demote",
		.to = SHMSTORE_IN_TIER,
		.move = shmstore_demote,
		.usage = "demote STORE KEY...\ndemote STORE --all",
		.help = "Moves objects to the partition's disk tier, each for all stores that link "
			"it.\v"
			"Their names stay: the next get brings them back. The memory of an object "
			"that is mapped is free when the last view is gone. Exit status 1 if one "
			"could not be moved; it is in memory still.",
	};

	return moving_run(a, argc, argv, options, &way);
}

int cmd_promote(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"all", 'a', NULL, "every object of the store that is in the tier", OPTIONS_FLAG,
		 offsetof(OF, all)},
		{"threads", 't', "N", "that check and decompress (default: 0, none but its own)",
		 OPTIONS_UNSIGNED, offsetof(OF, n_threads)},
		{NULL},
	};
	static const struct moving_way way = {
		.name = "promote",
		.to = SHMSTORE_IN_MEMORY,
		.move = shmstore_promote,
		.usage = "promote STORE KEY...\npromote STORE --all",
		.help = "Brings objects back from the disk tier into memory, as a get does.\v"
			"Where the partition is full, others are moved to the tier for them. Their "
			"tier files stay as long as their names do, so that moving them there "
			"again costs no write.",
	};

	return moving_run(a, argc, argv, options, &way);
}
