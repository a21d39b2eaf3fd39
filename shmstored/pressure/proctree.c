/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proctree.c: an open directory, and two tables sorted by pid: one that is being filled, and the
 * last complete one.
 */
#include "proctree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "procstat.h"

#define DEPTH_MAX 64

struct process {
	pid_t pid, parent;
};

struct table {
	struct process *list;
	size_t n, room;
};

struct proctree {
	DIR *dir;
	struct table fills, whole;
	char proc[];
};

struct proctree *proctree_new(const char *proc)
{
	size_t n = strlen(proc) + 1;
	struct proctree *t = calloc(1, sizeof(*t) + n);

	if (t)
		memcpy(t->proc, proc, n);
	return t;
}

struct proctree *proctree_free(struct proctree *t)
{
	if (!t)
		return NULL;
	if (t->dir)
		closedir(t->dir);
	free(t->fills.list);
	free(t->whole.list);
	free(t);
	return NULL;
}

static int by_pid(const void *a, const void *b)
{
	const struct process *x = a, *y = b;

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
static void add(struct table *t, pid_t pid, pid_t parent)
{
	size_t room = t->room ? 2 * t->room : 256;
	struct process *list;

	if (t->n == t->room) {
		list = reallocarray(t->list, room, sizeof(*list));
		if (!list)
			return;
		t->list = list;
		t->room = room;
	}
	t->list[t->n++] = (struct process){pid, parent};
}

static void complete(struct proctree *t)
{
	struct table spare = t->whole;

	closedir(t->dir);
	t->dir = NULL;
	if (t->fills.n)
		qsort(t->fills.list, t->fills.n, sizeof(*t->fills.list), by_pid);
	t->whole = t->fills;
	t->fills = spare;
}

bool proctree_step(struct proctree *t, size_t n)
{
	const struct dirent *e;
	pid_t parent;
	char *end;
	long pid;

	if (!t->dir) {
		t->dir = opendir(t->proc);
		t->fills.n = 0;
	}
	if (!t->dir)
		return false;
	while (n > 0) {
		e = readdir(t->dir);
		if (!e) {
			complete(t);
			return true;
		}
		pid = strtol(e->d_name, &end, 10);
		if (*end || pid <= 0)
			continue;
		n--;
		parent = parent_of(dirfd(t->dir), e->d_name);
		if (parent > 0)
			add(&t->fills, (pid_t)pid, parent);
	}
	return false;
}

pid_t proctree_ancestor(const struct proctree *t, pid_t pid, bool (*is_wanted)(pid_t pid, void *arg), void *arg)
{
	struct process key = {.pid = pid};
	const struct process *p;

	for (int depth = 0; depth < DEPTH_MAX && t->whole.n; depth++) {
		p = bsearch(&key, t->whole.list, t->whole.n, sizeof(*p), by_pid);
		if (!p)
			return 0;
		if (is_wanted(p->parent, arg))
			return p->parent;
		key.pid = p->parent;
	}
	return 0;
}

size_t proctree_n(const struct proctree *t)
{
	return t->whole.n;
}

pid_t proctree_at(const struct proctree *t, size_t i)
{
	return t->whole.list[i].pid;
}
