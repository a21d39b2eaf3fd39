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
#include "host.h"
#include "member.h"
#include "memtext.h"
#include "pressure.h"
#include "process.h"

/* ---- the memory of a process ----------------------------------------------------------------- */

/*
 * A look reads statm, which the kernel writes in 2 us. If some of the host's swap is in
 * use it also reads status, which takes the kernel 12 us, for the bytes that are swapped out.
 *
 * The private pages of statm are the resident ones less the shared ones: the kernel counts pages of
 * files and of shared memory as shared, and the rest is RssAnon. The swapped bytes of a process are
 * read again when its resident pages became fewer, as they may be in the swap then, and else at
 * each tenth look, which differs between processes. In between, the value is too low for a process
 * that grows while it is swapped out, and too high for one that is swapped in again.
 */
#define STATUS_MAX 4096u
#define STATM_MAX  128u
#define SELDOM     10u /* looks between two at status */

struct entry {
	pid_t pid;
	int statm, status; /* -1: could not be opened */
	bool seen;
	unsigned due;          /* looks until status is read; 0: now */
	int64_t resident;      /* bytes at the last look */
	struct amount swapped; /* when status was read last */
};

struct procmem {
	struct entry self;
	struct entry *children;
	size_t n_children, room;
	bool cut; /* there are more */
	int64_t page;
	const char *proc;
};

static int open_file(const char *proc, pid_t pid, const char *name)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%d/%s", proc, (int)pid, name);
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static struct entry open_entry(const char *proc, pid_t pid)
{
	return (struct entry){
		.pid = pid,
		.statm = open_file(proc, pid, "statm"),
		.status = open_file(proc, pid, "status"),
		.seen = true,
		.due = (unsigned)pid % SELDOM,
		.swapped = AMOUNT_UNKNOWN,
	};
}

static void close_entry(struct entry *e)
{
	if (e->statm >= 0)
		close(e->statm);
	if (e->status >= 0)
		close(e->status);
	e->statm = e->status = -1;
}

struct procmem *procmem_new(const char *proc, pid_t pid)
{
	struct procmem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->proc = proc;
	m->page = sysconf(_SC_PAGESIZE);
	m->self = open_entry(proc, pid);
	return m;
}

struct procmem *procmem_free(struct procmem *m)
{
	if (!m)
		return NULL;
	close_entry(&m->self);
	for (size_t i = 0; i < m->n_children; i++)
		close_entry(&m->children[i]);
	free(m->children);
	free(m);
	return NULL;
}

/* ---- its descendants ------------------------------------------------------------------------- */

/* A descendant that is known already costs nothing. */
static void procmem_child(struct procmem *m, pid_t pid)
{
	for (size_t i = 0; i < m->n_children; i++) {
		if (m->children[i].pid == pid) {
			m->children[i].seen = true;
			return;
		}
	}
	if (m->n_children == PROCMEM_CHILDREN_MAX ||
	    SHMS_GROW(m->children, m->room, m->n_children, 1) < 0) {
		m->cut = true;
		return;
	}
	m->children[m->n_children++] = open_entry(m->proc, pid);
}

static void forget_unseen(struct procmem *m)
{
	for (size_t i = 0; i < m->n_children;) {
		if (m->children[i].seen) {
			i++;
			continue;
		}
		close_entry(&m->children[i]);
		m->children[i] = m->children[--m->n_children];
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

static struct amount parse_statm(const char *text, int64_t page)
{
	long long resident, shared;
	char *end;

	(void)strtoll(text, &end, 10); /* its address space */
	resident = strtoll(end, &end, 10);
	text = end;
	shared = strtoll(text, &end, 10);
	if (end == text || resident < 0 || shared < 0)
		return AMOUNT_UNKNOWN;
	return amount_of(amount_product(resident > shared ? resident - shared : 0, page));
}

/* 1; 0: the process has ended; -1: it cannot be read. */
static int read_text(int fd, char *text, size_t size)
{
	ssize_t n = fd >= 0 ? pread(fd, text, size - 1, 0) : -1;

	if (n < 0 && fd >= 0 && errno == ESRCH)
		return 0;
	if (n <= 0)
		return -1;
	text[n] = '\0';
	return 1;
}

/* Reads from status the whole, and, for later looks, how much of it is swapped out. */
static struct amount read_status(struct entry *e, struct amount resident)
{
	struct amount all = amount_of(0);
	char text[STATUS_MAX];
	int r = read_text(e->status, text, sizeof(text));

	if (r < 0)
		return AMOUNT_UNKNOWN;
	/* A process that has ended, and that its parent did not wait for yet, has no such lines,
	 * and no memory. */
	if (r > 0 && !strstr(text, "\nState:\tZ") && !strstr(text, "\nState:\tX"))
		all = memproc_private(text, strlen(text));
	e->swapped = amount_subtract(all, resident);
	if (e->swapped.known && e->swapped.bytes < 0)
		e->swapped = amount_of(0);
	return all;
}

static struct amount read_entry(struct entry *e, int64_t page, bool swap)
{
	struct amount resident = amount_of(0);
	char text[STATM_MAX];
	int r = read_text(e->statm, text, sizeof(text));
	bool fewer, due = !e->due;

	if (r < 0)
		return AMOUNT_UNKNOWN;
	if (r > 0)
		resident = parse_statm(text, page);
	fewer = !resident.known || resident.bytes < e->resident;
	e->resident = resident.known ? resident.bytes : 0;
	if (!swap || r == 0) {
		e->swapped = AMOUNT_UNKNOWN;
		return resident;
	}
	e->due = due ? SELDOM - 1 : e->due - 1;
	return fewer || due || !e->swapped.known ? read_status(e, resident)
						 : amount_add(resident, e->swapped);
}

struct amount procmem_read(struct procmem *m, bool swap)
{
	struct amount sum = read_entry(&m->self, m->page, swap);

	for (size_t i = 0; i < m->n_children; i++) {
		/* A process that was gone before its file was opened is no descendant any more. */
		if (m->children[i].statm >= 0)
			sum = amount_add(sum, read_entry(&m->children[i], m->page, swap));
	}
	return m->cut ? AMOUNT_UNKNOWN : sum;
}

/* ---- the processes --------------------------------------------------------------------------- */

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
		/* If there is no memory for an entry, its process is no descendant in this pass. */
		if (parent > 0 && SHMS_GROW(p->fills.list, p->fills.room, p->fills.n, 1) == 0)
			p->fills.list[p->fills.n++] = (struct pressproc_parent){(pid_t)pid, parent};
	}
	return false;
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
	for (struct pressproc *proc = p->list; proc; proc = proc->next) {
		if (!proc->mem)
			continue;
		proc->mem->cut = false;
		for (size_t i = 0; i < proc->mem->n_children; i++)
			proc->mem->children[i].seen = false;
	}
	for (size_t i = 0; i < p->whole.n; i++) {
		pid_t pid = p->whole.list[i].pid;
		struct pressproc *proc = pressprocs_find(p, pid) ? NULL : ancestor_of(p, pid);

		if (proc && proc->mem)
			procmem_child(proc->mem, pid);
	}
	for (struct pressproc *proc = p->list; proc; proc = proc->next)
		if (proc->mem) {
			forget_unseen(proc->mem);
			proc->n_descendants = proc->mem->n_children;
		}
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
