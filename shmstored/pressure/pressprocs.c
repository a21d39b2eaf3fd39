/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressprocs.c: finds processes through their stores' connections, whose credentials the kernel
 * vouches for; a store's page may name any pid.
 *
 * A pass over all processes of the host finds descendants, a few processes in each interval, so
 * that it costs the same on any host. The next pass begins a second after the last.
 */
#include "pressprocs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "host.h"
#include "member.h"
#include "procmem.h"
#include "proctree.h"

#define STEP    8u /* processes of a pass in an interval */
#define PASS_NS UINT64_C(1000000000)

int pressprocs_init(struct pressprocs *p, struct host *h, const char *proc)
{
	*p = (struct pressprocs){.host = h, .proc = strdup(proc ? proc : "/proc")};
	p->tree = p->proc ? proctree_new(p->proc) : NULL;
	return p->tree ? 0 : -ENOMEM;
}

struct pressproc *pressprocs_find(const struct pressprocs *p, pid_t pid)
{
	struct pressproc *proc;

	HASH_FIND(hh, p->by_pid, &pid, sizeof(pid), proc);
	return proc;
}

static void forget(struct pressprocs *p, struct pressproc *proc)
{
	HASH_DEL(p->by_pid, proc);
	*proc->prev = proc->next;
	if (proc->next)
		proc->next->prev = proc->prev;
	p->n--;
	procmem_free(proc->mem);
	free(proc);
}

static struct pressproc *get(struct pressprocs *p, const struct conn_peer *peer)
{
	struct pressproc *proc = pressprocs_find(p, peer->pid);

	if (proc) {
		proc->n_links++;
		return proc;
	}
	proc = calloc(1, sizeof(*proc));
	if (!proc)
		return NULL;
	proc->pid = peer->pid;
	proc->uid = peer->uid;
	HASH_ADD(hh, p->by_pid, pid, sizeof(proc->pid), proc);
	if (!proc->hh.tbl) {
		free(proc);
		return NULL;
	}
	proc->n_links = 1;
	proc->mem = procmem_new(p->proc, peer->pid);
	proc->next = p->list;
	proc->prev = &p->list;
	if (proc->next)
		proc->next->prev = &proc->next;
	p->list = proc;
	p->n++;
	return proc;
}

static void unlink_it(struct presslink *l)
{
	struct pressprocs *p = l->procs;

	HASH_DEL(p->links, l);
	if (l->proc && --l->proc->n_links == 0)
		forget(p, l->proc);
	free(l);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	unlink_it(CONTAINER_OF(e, presslink, end));
}

struct presslink *pressprocs_link(struct pressprocs *p, struct conn *c)
{
	const struct conn_peer *peer = conn_peer(c);
	struct presslink *l;

	HASH_FIND(hh, p->links, &c, sizeof(struct conn *), l);
	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->conn = c;
	l->procs = p;
	HASH_ADD(hh, p->links, conn, sizeof(struct conn *), l);
	if (!l->hh.tbl) {
		free(l);
		return NULL;
	}
	l->proc = peer->pid > 0 ? get(p, peer) : NULL;
	l->end.fn = on_end;
	conn_on_end(c, &l->end);
	return l;
}

void pressprocs_deinit(struct pressprocs *p)
{
	struct presslink *l, *next;

	HASH_ITER(hh, p->links, l, next)
	{
		conn_off_end(l->conn, &l->end);
		unlink_it(l);
	}
	p->tree = proctree_free(p->tree);
	free(p->proc);
	p->proc = NULL;
}

/* ---- descendants --------------------------------------------------------------------------------------------------- */

static bool is_registered(pid_t pid, void *arg)
{
	return pressprocs_find(arg, pid) != NULL;
}

static void share_out(struct pressprocs *p)
{
	for (struct pressproc *proc = p->list; proc; proc = proc->next)
		if (proc->mem)
			procmem_children_begin(proc->mem);
	for (size_t i = 0; i < proctree_n(p->tree); i++) {
		pid_t pid = proctree_at(p->tree, i);
		pid_t ancestor = pressprocs_find(p, pid) ? 0 : proctree_ancestor(p->tree, pid, is_registered, p);
		struct pressproc *proc = ancestor ? pressprocs_find(p, ancestor) : NULL;

		if (proc && proc->mem)
			procmem_child(proc->mem, pid);
	}
	for (struct pressproc *proc = p->list; proc; proc = proc->next)
		if (proc->mem)
			procmem_children_end(proc->mem);
}

void pressprocs_look(struct pressprocs *p, uint64_t now_ns)
{
	for (const struct account *a = p->host->accounts; a; a = a->next)
		for (const struct member *m = a->members; m; m = m->next)
			if (m->conn)
				pressprocs_link(p, m->conn);
	if (!p->list || now_ns < p->pass_ns || !proctree_step(p->tree, STEP))
		return;
	p->pass_ns = now_ns + PASS_NS;
	share_out(p);
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

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
