/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preemptpick.c: a process is as willing to be preempted as the least willing of its tasks, can be tried again if all of them can, and began with the last of them. One of
 * which a task is NEVER is no candidate, of whatever policy.
 */
#include "preemptpick.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "admit.h"
#include "host.h"
#include "member.h"
#include "memlimit.h"
#include "pressure.h"

#define BUFFER_PPM  50000 /* a twentieth of the host is freed below kill, */
#define BUFFER_MOST (INT64_C(3) << 30)

const struct conn *preemptpick_conn(const struct admit_proc *p)
{
	return p->tasks->guest->conn;
}

unsigned preemptpick_n_tasks(const struct admit_proc *p)
{
	unsigned n = 0;

	for (const struct admit_task *k = p->tasks; k; k = k->proc_next)
		n++;
	return n;
}

static bool may_signal(const struct admit_proc *p)
{
	uid_t me = geteuid();

	return p->pid > 1 && p->pid != getpid() && (me == 0 || conn_peer(preemptpick_conn(p))->uid == me);
}

static enum policylevel level_of(const struct admit_proc *p)
{
	enum policylevel least = POLICYLEVEL_ALWAYS;

	for (const struct admit_task *k = p->tasks; k; k = k->proc_next) {
		enum policylevel level = admittask_level(k);

		least = level < least ? level : least;
	}
	return least;
}

static const struct survey_store *find_store(const struct survey *s, const char *path)
{
	for (size_t i = 0; s && i < s->n_stores; i++)
		if (strcmp(s->stores[i].path, path) == 0)
			return &s->stores[i];
	return NULL;
}

/* Of the store, what nobody else refers to, as of the last survey: its end frees it, unless the store is kept. */
static struct amount sole_of(const struct host *h, pid_t pid)
{
	int64_t sum = 0;

	for (const struct account *a = h->accounts; a; a = a->next)
		for (const struct member *m = a->members; m; m = m->next) {
			const struct survey_store *s = m->conn && conn_peer(m->conn)->pid == pid && !m->keep
							       ? find_store(a->survey, m->path)
							       : NULL;

			if (s)
				sum = amount_sum(sum, (int64_t)s->books.uss);
		}
	return amount_of(sum);
}

static struct policy_worker worker_of(const struct host *h, const struct admit_proc *p, uint64_t id)
{
	const struct pressproc *seen = pressprocs_find(&h->pressure->procs, p->pid);
	struct policy_worker w = {.id = id,
				  .retries = -1,
				  .work = POLICY_TASK,
				  .level = level_of(p),
				  .private = seen ? seen->private : AMOUNT_UNKNOWN,
				  .sole = sole_of(h, p->pid)};

	for (const struct admit_task *k = p->tasks; k; k = k->proc_next) {
		if (!k->retriable)
			w.retries = 0;
		if ((int64_t)k->since_ns >= w.start) {
			w.start = (int64_t)k->since_ns;
			w.owner = k->parent;
		}
	}
	return w;
}

int preemptpick_init(struct preemptpick *p, const struct host *h)
{
	const struct admit_tasks *t = admit_tasks(h->admit);
	size_t most = HASH_COUNT(t->procs);

	*p = (struct preemptpick){0};
	if (!most)
		return 0;
	p->workers = calloc(most, sizeof(*p->workers));
	p->procs = calloc(most, sizeof(*p->procs));
	p->victims = calloc(most, sizeof(*p->victims));
	if (!p->workers || !p->procs || !p->victims) {
		preemptpick_deinit(p);
		return -ENOMEM;
	}
	for (const struct admit_proc *proc = t->procs; proc; proc = proc->hh.next) {
		p->n_never += level_of(proc) == POLICYLEVEL_NEVER;
		if (level_of(proc) == POLICYLEVEL_NEVER)
			continue;
		p->n_foreign += !may_signal(proc);
		if (!may_signal(proc))
			continue;
		p->workers[p->n] = worker_of(h, proc, p->n);
		p->procs[p->n] = proc;
		p->n++;
	}
	return 0;
}

void preemptpick_deinit(struct preemptpick *p)
{
	free(p->workers);
	free(p->procs);
	free(p->victims);
	*p = (struct preemptpick){0};
}

struct policy preemptpick_policy(const struct host *h, enum policy_kind kind)
{
	const struct pressure *p = h->pressure;
	struct amount buffer = memlimit_buffer(p->total, RATIO_PPM(BUFFER_PPM), BUFFER_MOST);

	return (struct policy){
		.kind = kind,
		.kill = p->limited ? amount_of(p->limits.kill) : AMOUNT_UNKNOWN,
		.gate = p->limited ? amount_of(p->limits.gate) : AMOUNT_UNKNOWN,
		.buffer = buffer.known ? buffer.bytes : 0,
		.idle = POLICY_IDLE_BYTES,
	};
}
