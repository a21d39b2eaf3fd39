/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procmem.c: reads statm at each look, which the kernel writes in 2 us. If some of the host's swap
 * is in use it also reads status, which takes the kernel 12 us, for the bytes that are swapped out.
 *
 * The private pages of statm are the resident ones less the shared ones: the kernel counts pages of
 * files and of shared memory as shared, and the rest is RssAnon. The swapped bytes of a process are
 * read again when its resident pages became fewer, as they may be in the swap then, and else at
 * each tenth look, which differs between processes. In between, the value is too low for a process
 * that grows while it is swapped out, and too high for one that is swapped in again.
 */
#include "procmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "memtext.h"

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

/* ---- descendants ----------------------------------------------------------------------------- */

void procmem_children_begin(struct procmem *m)
{
	m->cut = false;
	for (size_t i = 0; i < m->n_children; i++)
		m->children[i].seen = false;
}

void procmem_child(struct procmem *m, pid_t pid)
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
