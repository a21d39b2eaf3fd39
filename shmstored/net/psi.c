/* SPDX-License-Identifier: Apache-2.0 */
/*
 * psi.c: a pressure trigger, polled by the loop. The kernel wakes us at most once per window.
 *
 * The cgroup of the daemon itself says nothing of the workers: what is looked at is the slice above
 * it (system.slice, or a container's root), or the whole host where there is none. A trigger of an
 * unprivileged process must have a window that is a multiple of two seconds: where ours is refused,
 * it is rounded up and tried again.
 */
#include "psi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "loop.h"
#include "memgroup.h"

#define WINDOW_STEP 2000000u /* µs: what the kernel takes from the unprivileged */

struct psi {
	struct host *host;
	struct loop_op op;
	int fd;
	char path[PATH_MAX];
};

/* "some avg10=0.12 …": the first line. */
static double average(const struct psi *p)
{
	char text[256];
	ssize_t n = pread(p->fd, text, sizeof(text) - 1, 0);
	double value = 0;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "some avg10=%lf", &value) == 1 ? value : 0;
}

static void on_pressure(struct loop_op *op, int result, unsigned flags)
{
	struct psi *p = CONTAINER_OF(op, psi, op);
	struct json_object *fields;

	if (result < 0)
		return;
	if (result & POLLERR) {
		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path),
			"the kernel took the pressure trigger back: no more such events");
		loop_cancel(p->host->loop, op);
		return;
	}
	fields = jsonmake_new();
	jsonmake_text(fields, "source", p->path);
	jsonmake_seconds(fields, "some_avg10", (int64_t)(average(p) * 1e9));
	events_emit(p->host->events, EVENT_PRESSURE, p->path, fields);
	if (!(flags & LOOP_MORE))
		loop_poll(p->host->loop, op, p->fd, POLLPRI, false);
}

static int trigger(struct psi *p, uint64_t stall_us, uint64_t window_us)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "some %llu %llu", (unsigned long long)stall_us,
			 (unsigned long long)window_us);

	p->fd = open(p->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (p->fd < 0)
		return -errno;
	/* With its NUL, as the kernel's own example does. */
	if (write(p->fd, text, (size_t)n + 1) < 0) {
		int r = -errno;

		close(p->fd);
		p->fd = -1;
		return r;
	}
	return 0;
}

static int try_trigger(struct psi *p, const struct config *c)
{
	uint64_t window_us = (c->psi_window_us + WINDOW_STEP - 1) / WINDOW_STEP * WINDOW_STEP;
	int r = trigger(p, c->psi_stall_us, c->psi_window_us);

	if (r == -EINVAL || r == -EPERM)
		r = trigger(p, c->psi_stall_us, window_us);
	return r;
}

/* The memory.pressure of the cgroup above ours: "0::/system.slice/shmstored.service" ->
 * /sys/fs/cgroup/system.slice. -ENOENT: there is none but the root. */
static int slice_path(const char *root, char *ret, size_t size)
{
	char name[PATH_MAX], text[2 * PATH_MAX], group[PATH_MAX];
	FILE *f;
	size_t n;

	snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
	f = fopen(name, "re");
	if (!f)
		return -errno;
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	if (!shms_memgroup_path(text, n, 2, group, sizeof(group)) || !shms_memgroup_parent(group) ||
	    !group[1])
		return -ENOENT;
	n = (size_t)snprintf(ret, size, "%s/sys/fs/cgroup%s/memory.pressure", root, group);
	return n >= size ? -ENAMETOOLONG : 0;
}

int psi_new(struct host *h, const char *root, struct psi **ret)
{
	struct psi *p;
	int r;

	*ret = NULL;
	if (!h->config->psi)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->host = h;
	p->fd = -1;
	p->op.fn = on_pressure;
	r = slice_path(root, p->path, sizeof(p->path));
	if (r == 0)
		r = try_trigger(p, h->config);
	if (r < 0) {
		snprintf(p->path, sizeof(p->path), "%s/proc/pressure/memory", root);
		r = try_trigger(p, h->config);
	}
	if (r == 0)
		r = loop_poll(h->loop, &p->op, p->fd, POLLPRI, false);
	if (r < 0) {
		if (p->fd >= 0)
			close(p->fd);
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct psi *psi_free(struct psi *p)
{
	int fd = p ? p->fd : -1;

	if (!p)
		return NULL;
	loop_release(p->host->loop, &p->op, p);
	close(fd);
	return NULL;
}
