/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procmem.c: statm where nothing is swapped out, which the kernel writes in 2 us, else status, which takes it 12.
 *
 * The private pages of statm are the resident without the shared ones: the kernel counts files' and shared memory's as shared, and the rest is RssAnon.
 */
#include "procmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memproc.h"

#define STATUS_MAX 4096u

struct entry {
	pid_t pid;
	int statm, status; /* -1: could not be opened */
	bool seen;
};

struct procmem {
	struct entry self;
	struct entry *children;
	size_t n_children, room;
	bool cut; /* there are more */
	int64_t page;
	char proc[];
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
	size_t n = strlen(proc) + 1;
	struct procmem *m = calloc(1, sizeof(*m) + n);

	if (!m)
		return NULL;
	memcpy(m->proc, proc, n);
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

/* ---- descendants --------------------------------------------------------------------------------------------------- */

void procmem_children_begin(struct procmem *m)
{
	m->cut = false;
	for (size_t i = 0; i < m->n_children; i++)
		m->children[i].seen = false;
}

static bool grow(struct procmem *m)
{
	size_t room = m->room ? 2 * m->room : 8;
	struct entry *children;

	if (m->n_children < m->room)
		return true;
	children = m->n_children < PROCMEM_CHILDREN_MAX ? reallocarray(m->children, room, sizeof(*children)) : NULL;
	if (!children)
		return false;
	m->children = children;
	m->room = room;
	return true;
}

void procmem_child(struct procmem *m, pid_t pid)
{
	for (size_t i = 0; i < m->n_children; i++) {
		if (m->children[i].pid == pid) {
			m->children[i].seen = true;
			return;
		}
	}
	if (grow(m))
		m->children[m->n_children++] = open_entry(m->proc, pid);
	else
		m->cut = true;
}

void procmem_children_end(struct procmem *m)
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

size_t procmem_n_children(const struct procmem *m)
{
	return m->n_children;
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

static struct amount parse_statm(const char *text, int64_t page)
{
	long long size, resident, shared;

	if (sscanf(text, "%lld %lld %lld", &size, &resident, &shared) != 3 || resident < 0 || shared < 0)
		return AMOUNT_UNKNOWN;
	return amount_of(amount_product(resident > shared ? resident - shared : 0, page));
}

static struct amount read_entry(const struct entry *e, int64_t page, bool swap)
{
	char text[STATUS_MAX];
	int fd = swap ? e->status : e->statm;
	ssize_t n;

	if (fd < 0)
		return AMOUNT_UNKNOWN;
	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n < 0 && errno == ESRCH)
		return amount_of(0); /* it has ended */
	if (n <= 0)
		return AMOUNT_UNKNOWN;
	text[n] = '\0';
	if (!swap)
		return parse_statm(text, page);
	/* One that has ended, and whose parent did not look yet, has no such lines; nor has it memory. */
	if (strstr(text, "\nState:\tZ") || strstr(text, "\nState:\tX"))
		return amount_of(0);
	return memproc_private(text, (size_t)n);
}

struct amount procmem_read(const struct procmem *m, bool swap)
{
	struct amount sum = read_entry(&m->self, m->page, swap);

	for (size_t i = 0; i < m->n_children; i++) {
		/* A descendant that was gone before its file was opened is none any more. */
		if (m->children[i].statm >= 0)
			sum = amount_add(sum, read_entry(&m->children[i], m->page, swap));
	}
	return m->cut ? AMOUNT_UNKNOWN : sum;
}
