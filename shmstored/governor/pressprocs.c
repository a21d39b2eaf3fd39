/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressprocs.c: finds processes through their stores' connections, whose credentials the kernel
 * vouches for; a store's page may name any pid.
 *
 * A pass over all processes of the host finds descendants, a few processes in each interval, so
 * that it costs the same on any host. The next pass begins a second after the last.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "alloc.h"
#include "client.h"
#include "host.h"
#include "member.h"
#include "pressure.h"
#include "process.h"
#include "procmem.h"

#define STEP    8u /* processes of a pass in an interval */
#define PASS_NS UINT64_C(1000000000)

/*
 * Finds descendants of processes, by a pass over procfs that takes a few processes at a
 * time, so that no call takes long on any host. Not all kernels have /proc/PID/task/TID/children.
 */
#define DEPTH_MAX 64

static int by_pid(const void *a, const void *b)
{
	const struct pressproc_parent *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* 0: the process is gone. */
static pid_t parent_of(int dir, const char *name)
{
	char path[300], text[PROCSTAT_MAX];
	const char *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/stat", name);
	fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = procstat_find(text, PROCSTAT_PARENT);
	return at ? (pid_t)strtol(at, NULL, 10) : 0;
}

/* If there is no memory for an entry, its process is no descendant in this pass. */
static void add(struct pressproc_parents *t, pid_t pid, pid_t parent)
{
	if (SHMS_GROW(t->list, t->room, t->n, 1) == 0)
		t->list[t->n++] = (struct pressproc_parent){pid, parent};
}

static void complete(struct pressprocs *p)
{
	struct pressproc_parents spare = p->whole;

	closedir(p->dir);
	p->dir = NULL;
	if (p->fills.n)
		qsort(p->fills.list, p->fills.n, sizeof(*p->fills.list), by_pid);
	p->whole = p->fills;
	p->fills = spare;
}

/*
 * Reads n more processes. True: the pass is complete, and the tree is of it; the next call begins
 * another.
 */
static bool pass_on(struct pressprocs *p, size_t n)
{
	const struct dirent *e;
	pid_t parent;
	char *end;
	long pid;

	if (!p->dir) {
		p->dir = opendir(p->proc);
		p->fills.n = 0;
	}
	if (!p->dir)
		return false;
	while (n > 0) {
		e = readdir(p->dir);
		if (!e) {
			complete(p);
			return true;
		}
		pid = strtol(e->d_name, &end, 10);
		if (*end || pid <= 0)
			continue;
		n--;
		parent = parent_of(dirfd(p->dir), e->d_name);
		if (parent > 0)
			add(&p->fills, (pid_t)pid, parent);
	}
	return false;
}

int pressprocs_init(struct pressprocs *p, struct host *h, const char *proc)
{
	*p = (struct pressprocs){.host = h, .proc = strdup(proc ? proc : "/proc")};
	return p->proc ? 0 : -ENOMEM;
}

struct pressproc *pressprocs_find(const struct pressprocs *p, pid_t pid)
{
	struct pressproc *proc;

	HASH_FIND(hh, p->by_pid, &pid, sizeof(pid), proc);
	return proc;
}

static struct pressproc *proc_new(struct pressprocs *p, const struct conn_peer *peer)
{
	struct pressproc *proc = calloc(1, sizeof(*proc));

	if (!proc)
		return NULL;
	proc->pid = peer->pid;
	proc->uid = peer->uid;
	HASH_ADD(hh, p->by_pid, pid, sizeof(proc->pid), proc);
	if (!proc->hh.tbl) {
		free(proc);
		return NULL;
	}
	proc->mem = procmem_new(p->proc, peer->pid);
	DL_PREPEND(p->list, proc);
	p->n++;
	return proc;
}

static void left(struct client *c)
{
	struct pressproc *proc = c->proc;
	struct pressprocs *p;

	if (--proc->n_clients)
		return;
	p = &c->host->pressure->procs;
	HASH_DEL(p->by_pid, proc);
	DL_DELETE(p->list, proc);
	p->n--;
	procmem_free(proc->mem);
	free(proc);
}

struct pressproc *pressprocs_link(struct pressprocs *p, struct client *c)
{
	const struct conn_peer *peer = &c->conn->peer;

	if (c->proc || peer->pid <= 0)
		return c->proc;
	c->proc = pressprocs_find(p, peer->pid);
	if (!c->proc)
		c->proc = proc_new(p, peer);
	if (!c->proc)
		return NULL;
	c->proc->n_clients++;
	c->left[CLIENT_PROC] = left;
	return c->proc;
}

void pressprocs_deinit(struct pressprocs *p)
{
	if (p->dir)
		closedir(p->dir);
	free(p->fills.list);
	free(p->whole.list);
	free(p->proc);
	*p = (struct pressprocs){0};
}

/* ---- descendants ----------------------------------------------------------------------------- */

/* The nearest of pid's ancestors that is registered. NULL: none is. */
static struct pressproc *ancestor_of(const struct pressprocs *p, pid_t pid)
{
	const struct pressproc_parents *t = &p->whole;
	struct pressproc_parent key = {.pid = pid};

	for (int depth = 0; depth < DEPTH_MAX && t->n; depth++) {
		const struct pressproc_parent *found =
			bsearch(&key, t->list, t->n, sizeof(*found), by_pid);
		struct pressproc *proc = found ? pressprocs_find(p, found->parent) : NULL;

		if (!found || proc)
			return proc;
		key.pid = found->parent;
	}
	return NULL;
}

static void share_out(struct pressprocs *p)
{
	for (struct pressproc *proc = p->list; proc; proc = proc->next)
		if (proc->mem)
			procmem_children_begin(proc->mem);
	for (size_t i = 0; i < p->whole.n; i++) {
		pid_t pid = p->whole.list[i].pid;
		struct pressproc *proc = pressprocs_find(p, pid) ? NULL : ancestor_of(p, pid);

		if (proc && proc->mem)
			procmem_child(proc->mem, pid);
	}
	for (struct pressproc *proc = p->list; proc; proc = proc->next)
		if (proc->mem)
			procmem_children_end(proc->mem);
}

void pressprocs_look(struct pressprocs *p, uint64_t now_ns)
{
	struct client *c;

	for (const struct account *a = p->host->accounts; a; a = a->next)
		for (const struct member *m = a->members; m; m = m->next)
			if (m->conn && (c = client_get(m->conn)) != NULL)
				pressprocs_link(p, c);
	if (!p->list || now_ns < p->pass_ns || !pass_on(p, STEP))
		return;
	p->pass_ns = now_ns + PASS_NS;
	share_out(p);
}

/* ---- reading --------------------------------------------------------------------------------- */

void pressprocs_read_one(const struct pressprocs *p, struct pressproc *proc)
{
	proc->private = proc->mem ? procmem_read(proc->mem, p->swap) : AMOUNT_UNKNOWN;
}

void pressprocs_read(struct pressprocs *p, bool swap)
{
	p->swap = swap;
	for (struct pressproc *proc = p->list; proc; proc = proc->next)
		pressprocs_read_one(p, proc);
}

struct amount pressprocs_sum(const struct pressprocs *p)
{
	struct amount sum = amount_of(0);

	for (const struct pressproc *proc = p->list; proc; proc = proc->next)
		sum = amount_add(sum, proc->private);
	return sum;
}

/* ---- clients --------------------------------------------------------------------------------- */

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	struct client *k = CONTAINER_OF(e, client, end);

	for (int i = 0; i < CLIENT_PARTS; i++)
		if (k->left[i])
			k->left[i](k);
	DL_DELETE(k->host->clients, k);
	free(k);
}

struct client *client_find(const struct conn *c)
{
	struct conn_end *e = conn_find_end(c, on_end);

	return e ? CONTAINER_OF(e, client, end) : NULL;
}

struct client *client_get(struct conn *c)
{
	struct client *k = client_find(c);

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	*k = (struct client){.host = c->host, .conn = c, .end.fn = on_end, .statm_fd = -1};
	conn_on_end(c, &k->end);
	DL_APPEND(k->host->clients, k);
	return k;
}
