/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiletasks.c: see profiletasks.h. A guest is a client that runs tasks, from its first one until
 * its connection ends. Its statm stays open: a look is one system call, and a look at a dead
 * process finds nothing, even if another process has its number. The timer runs while tasks do.
 */
#include "profiletasks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "conn.h"
#include "host.h"
#include "loop.h"
#include "member.h"
#include "profiletrack.h"

struct task {
	uint64_t id;
	char *names; /* three, each with its NUL */
	struct profile_name name;
	uint64_t began_ns;
	bool seen;     /* its process could be looked at when it began: */
	uint64_t base; /* what that had then */
	bool has_told;
	uint64_t told; /* by the client, the last time */
	struct profiletrack track;
	UT_hash_handle hh;
};

struct guest {
	uint64_t key; /* its connection */
	struct profiletasks *of;
	struct conn *conn;
	struct conn_end end;
	int statm_fd;   /* -1: we may not */
	uint64_t floor; /* the least that the process had when one of its tasks began */
	struct task *tasks;
	UT_hash_handle hh;
};

struct profiletasks {
	struct host *host;
	struct profiles *profiles;
	struct guest *guests;
	uint64_t page;
	struct loop_op timer;
	bool closing;
};

/* ---- looking at a process ---- */

/* Bytes in the store that are no object yet: arrays born there, and objects being written. */
static uint64_t unpublished(const struct guest *g)
{
	struct member *m = conn_member(g->conn);

	if (!m)
		return 0;
	member_refresh(m);
	return m->last.reserved_bytes;
}

/*
 * The process's anonymous pages (its resident ones, less those of files and of shared memory), and
 * what is unpublished. False: they are not known.
 */
static bool look(const struct profiletasks *t, const struct guest *g, uint64_t *ret)
{
	uint64_t size, resident, shared;
	char text[128];
	ssize_t n;

	if (g->statm_fd < 0)
		return false;
	n = pread(g->statm_fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &size, &resident, &shared) != 3 || !size)
		return false;
	*ret = (resident > shared ? (resident - shared) * t->page : 0) + unpublished(g);
	return true;
}

static uint64_t age_ms(const struct task *k)
{
	return (loop_clock() - k->began_ns) / 1000000;
}

static void note(struct task *k, bool seen, uint64_t now)
{
	uint64_t grown = k->seen && seen && now > k->base ? now - k->base : 0;

	if ((k->seen && seen) || k->has_told)
		profiletrack_note(&k->track, age_ms(k), grown > k->told ? grown : k->told);
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct profiletasks *t = CONTAINER_OF(op, profiletasks, timer);
	bool any = false;

	if (t->closing) {
		free(t);
		return;
	}
	for (struct guest *g = t->guests; g; g = g->hh.next) {
		uint64_t now = 0;
		bool seen = g->tasks && look(t, g, &now);

		for (struct task *k = g->tasks; k; k = k->hh.next)
			note(k, seen, now);
		any |= g->tasks != NULL;
	}
	if (any && result >= 0)
		loop_timer(t->host->loop, op, loop_clock() + t->host->config->profile.interval_ns, 0);
}

/* ---- guests and tasks ---- */

static void task_free(struct guest *g, struct task *k)
{
	HASH_DEL(g->tasks, k);
	free(k->names);
	free(k);
}

static void guest_free(struct guest *g)
{
	struct task *k, *next;

	HASH_ITER(hh, g->tasks, k, next)
	task_free(g, k);
	HASH_DEL(g->of->guests, g);
	if (g->statm_fd >= 0)
		close(g->statm_fd);
	free(g);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	guest_free(CONTAINER_OF(e, guest, end));
}

static struct guest *guest_of(const struct profiletasks *t, const struct conn *c)
{
	uint64_t key = (uint64_t)(uintptr_t)c;
	struct guest *g;

	HASH_FIND(hh, t->guests, &key, sizeof(key), g);
	return g;
}

static int open_statm(pid_t pid)
{
	char path[64];

	if (pid <= 0) /* of a pid namespace that we do not see */
		return -1;
	snprintf(path, sizeof(path), "/proc/%ld/statm", (long)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static struct guest *guest_new(struct profiletasks *t, struct conn *c)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->key = (uint64_t)(uintptr_t)c;
	g->of = t;
	g->conn = c;
	HASH_ADD(hh, t->guests, key, sizeof(g->key), g);
	if (!g->hh.tbl) {
		free(g);
		return NULL;
	}
	g->statm_fd = open_statm(conn_peer(c)->pid);
	g->end.fn = on_end;
	conn_on_end(c, &g->end);
	return g;
}

static struct task *task_of(const struct guest *g, uint32_t id)
{
	uint64_t key = id;
	struct task *k = NULL;

	if (g)
		HASH_FIND(hh, g->tasks, &key, sizeof(key), k);
	return k;
}

static struct task *task_new(uint32_t id, const struct profile_name *name)
{
	size_t lang = strlen(name->lang) + 1, func = strlen(name->func) + 1, group = strlen(name->group) + 1;
	struct task *k = calloc(1, sizeof(*k));

	if (k)
		k->names = malloc(lang + func + group);
	if (!k || !k->names) {
		free(k);
		return NULL;
	}
	k->id = id;
	k->name = (struct profile_name){memcpy(k->names, name->lang, lang), memcpy(k->names + lang, name->func, func),
					memcpy(k->names + lang + func, name->group, group)};
	profiletrack_init(&k->track);
	return k;
}

int profiletasks_begin(struct profiletasks *t, struct conn *c, uint32_t task, const struct profile_name *name)
{
	struct guest *g = guest_of(t, c);
	struct task *k;

	if (strlen(name->lang) > PROFILE_NAME || strlen(name->func) > PROFILE_NAME ||
	    strlen(name->group) > PROFILE_NAME)
		return -EINVAL;
	if (task_of(g, task))
		return -EEXIST;
	if (g && HASH_COUNT(g->tasks) == PROFILETASKS_MAX)
		return -EMFILE;
	if (!g)
		g = guest_new(t, c);
	k = g ? task_new(task, name) : NULL;
	if (!k)
		return -ENOMEM;
	HASH_ADD(hh, g->tasks, id, sizeof(k->id), k);
	if (!k->hh.tbl) {
		free(k->names);
		free(k);
		return -ENOMEM;
	}
	k->began_ns = loop_clock();
	k->seen = look(t, g, &k->base);
	if (k->seen && (!g->floor || k->base < g->floor))
		g->floor = k->base;
	note(k, k->seen, k->base);
	if (!t->timer.busy)
		loop_timer(t->host->loop, &t->timer, loop_clock() + t->host->config->profile.interval_ns, 0);
	return 0;
}

int profiletasks_sample(struct profiletasks *t, const struct conn *c, uint32_t task, uint64_t bytes)
{
	struct guest *g = guest_of(t, c);
	struct task *k = task_of(g, task);
	uint64_t now = 0;
	bool seen;

	if (!k)
		return -ENOENT;
	k->has_told = true;
	k->told = bytes;
	seen = look(t, g, &now);
	note(k, seen, now);
	return 0;
}

/*
 * A process that keeps memory that earlier tasks freed, as malloc does, does not grow when the next task uses it. As far as kept memory
 * explains it, such a task had as much as its kind has on average; and none had nothing.
 */
static uint64_t with_kept(const struct profiletasks *t, const struct guest *g, const struct task *k)
{
	const struct profile *p = profiles_find(t->profiles, conn_peer(g->conn)->uid);
	const struct profile_key *kind = p ? profile_find(p, &k->name) : NULL;
	uint64_t usual = kind ? profile_stat(kind, PROFILE_PRIVATE).average : 0,
		 most = k->track.peak + (k->seen ? k->base - g->floor : 0), used = usual < most ? usual : most;

	used = used > k->track.peak ? used : k->track.peak;
	return used > t->page ? used : t->page;
}

int profiletasks_end(struct profiletasks *t, struct conn *c, uint32_t task, const struct profile_task *told,
		     enum profiles_end how)
{
	struct guest *g = guest_of(t, c);
	struct task *k = task_of(g, task);
	struct profile_task ended = *told;
	uint64_t now = 0;
	bool seen;
	int r;

	if (!k)
		return -ENOENT;
	seen = look(t, g, &now);
	note(k, seen, now);
	if (!told->has[PROFILE_PRIVATE] || k->track.peak > told->used[PROFILE_PRIVATE])
		ended.used[PROFILE_PRIVATE] = k->track.peak;
	if (!told->has[PROFILE_PRIVATE] && k->track.n_samples)
		ended.used[PROFILE_PRIVATE] = with_kept(t, g, k);
	ended.has[PROFILE_PRIVATE] = told->has[PROFILE_PRIVATE] || k->track.n_samples;
	profiletrack_end(&k->track, age_ms(k), &ended);
	r = profiles_ended(t->profiles, conn_peer(c)->uid, &k->name, &ended, how);
	task_free(g, k);
	return r;
}

void profiletasks_each(const struct profiletasks *t, void (*fn)(const struct profiletasks_row *row, void *arg),
		       void *arg)
{
	for (const struct guest *g = t->guests; g; g = g->hh.next) {
		const struct conn_peer *peer = conn_peer(g->conn);

		for (const struct task *k = g->tasks; k; k = k->hh.next) {
			struct profiletasks_row row = {.uid = peer->uid,
						       .task = (uint32_t)k->id,
						       .pid = peer->pid,
						       .name = k->name,
						       .age_ms = age_ms(k),
						       .now = k->track.now,
						       .peak = k->track.peak};

			fn(&row, arg);
		}
	}
}

struct profiletasks *profiletasks_new(struct host *h, struct profiles *p)
{
	struct profiletasks *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->host = h;
	t->profiles = p;
	t->page = (uint64_t)sysconf(_SC_PAGESIZE);
	t->timer.fn = on_timer;
	return t;
}

struct profiletasks *profiletasks_free(struct profiletasks *t)
{
	struct guest *g, *next;

	if (!t)
		return NULL;
	t->closing = true;
	HASH_ITER(hh, t->guests, g, next)
	{
		conn_off_end(g->conn, &g->end);
		guest_free(g);
	}
	if (t->timer.busy)
		loop_cancel(t->host->loop, &t->timer); /* on_timer() frees */
	else
		free(t);
	return NULL;
}
