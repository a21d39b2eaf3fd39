/* SPDX-License-Identifier: Apache-2.0 */
/* preemptvictim.c: see preemptvictim.h. */
#include "preemptvictim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void preemptvictim_free(struct preempt_victim *v)
{
	for (unsigned i = 0; i < v->record.n_tasks; i++)
		free(v->tasks[i].names);
	free(v->tasks);
	if (v->pidfd >= 0)
		close(v->pidfd);
	free(v);
}

static char *copy_names(const struct profile_name *name, struct profile_name *ret)
{
	size_t lang = strlen(name->lang) + 1, func = strlen(name->func) + 1, group = strlen(name->group) + 1;
	char *names = malloc(lang + func + group);

	if (names)
		*ret = (struct profile_name){memcpy(names, name->lang, lang), memcpy(names + lang, name->func, func),
					     memcpy(names + lang + func, name->group, group)};
	return names;
}

/* If there is no memory for a name, the copy has none. */
static void copy_task(struct preempt_lost *to, const struct admit_task *k)
{
	*to = (struct preempt_lost){
		.id = k->id, .parent = k->parent, .had = k->now, .uid = k->uid, .retriable = k->retriable};
	if (k->name.lang)
		to->names = copy_names(&k->name, &to->name);
}

int preemptvictim_new(const struct preemptpick_who *who, const struct policy_victim *chosen,
		      struct preempt_victim **ret)
{
	unsigned n = preemptpick_n_tasks(who), i = 0;
	int pidfd = conn_pidfd(who->conn);
	struct preempt_victim *v;

	if (pidfd < 0)
		return pidfd;
	v = calloc(1, sizeof(*v));
	if (v)
		v->tasks = calloc(n + 1, sizeof(*v->tasks));
	if (!v || !v->tasks || syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0) {
		int r = v && v->tasks ? -errno : -ENOMEM;

		close(pidfd);
		if (v)
			free(v->tasks);
		free(v);
		return r;
	}
	for (const struct admit_task *k = who->proc ? who->proc->tasks : NULL; k; k = k->proc_next)
		copy_task(&v->tasks[i++], k);
	v->pidfd = pidfd;
	v->conn = who->conn;
	v->record = (struct preempt_record){.pid = conn_peer(who->conn)->pid,
					    .uid = conn_peer(who->conn)->uid,
					    .n_tasks = n,
					    .level = chosen->worker->level,
					    .why = chosen->why,
					    .retry = chosen->retry,
					    .bytes = chosen->bytes};
	*ret = v;
	return 0;
}

const struct admit_guest *preemptvictim_guest(const struct preempt_victim *v, const struct admit_tasks *t)
{
	const struct admit_guest *g = admittask_guest(t, v->conn);

	/* The address may belong to a new connection by now. */
	return g && conn_peer(g->conn)->pid == v->record.pid ? g : NULL;
}
