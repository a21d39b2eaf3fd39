/* SPDX-License-Identifier: Apache-2.0 */
/*
 * finder.c: inotify on stores/. A directory that comes is no store yet: its page is linked into it
 * a moment later. So a name that came is looked at some times, ever more seldom, until it is a
 * store, or is gone. A name that went may have been a member.
 *
 * The next survey finds missed stores (too many names at once, a store outside stores/). Rejected:
 * a watch on each store's directory (a limited number per user, for one event each).
 */

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "account.h"
#include "host.h"
#include "loop.h"
#include "member.h"

#define MS          UINT64_C(1000000)
#define NAMES_MAX   4096u
#define LOOK_MS     20u
#define LOOKS_MAX   8u /* 20, 40, 80 … ms: 5 s in all */
#define EVENTS_SIZE 16384u

struct name {
	struct name *next;
	uint64_t due_ns;
	unsigned n_looks;
	char text[];
};

struct finder {
	struct account *account;
	int fd;
	struct loop_op poll_op, timer_op;
	struct name *names;
	unsigned n_names;
};

static void gone(void *object)
{
	struct finder *f = object;
	struct name *next;

	for (struct name *n = f->names; n; n = next) {
		next = n->next;
		free(n);
	}
	close(f->fd);
	account_unref(f->account);
	free(f);
}

static void start_timer(struct finder *f)
{
	uint64_t due_ns = UINT64_MAX;

	for (const struct name *n = f->names; n; n = n->next) {
		if (n->due_ns < due_ns)
			due_ns = n->due_ns;
	}
	/* A failure: the survey finds them. */
	if (f->names && !f->timer_op.busy)
		(void)loop_timer(f->account->host->loop, &f->timer_op, due_ns, 0);
}

/* false where the name is longer than a path may be. */
static bool path_of(const struct finder *f, const char *name, char ret[PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/stores/%s", f->account->path, name);

	return n > 0 && n < PATH_MAX;
}

/* True where nothing more is to be found out about it. */
static bool look(struct finder *f, const struct name *n)
{
	char path[PATH_MAX];
	struct member *m;
	int r;

	if (!path_of(f, n->text, path) || member_find(f->account, path))
		return true;
	r = member_get(f->account, path, (uid_t)-1, &m);
	return r != -ENOENT; /* what is wrong with it is the surveys' to tell */
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct finder *f = CONTAINER_OF(op, finder, timer_op);
	struct name **at = &f->names;
	uint64_t now_ns = loop_clock();

	if (result < 0)
		return;
	while (*at) {
		struct name *n = *at;

		if (n->due_ns > now_ns) {
			at = &n->next;
		} else if (look(f, n) || ++n->n_looks == LOOKS_MAX) {
			*at = n->next;
			free(n);
			f->n_names--;
		} else {
			n->due_ns = now_ns + ((uint64_t)LOOK_MS << n->n_looks) * MS;
			at = &n->next;
		}
	}
	start_timer(f);
}

static void came(struct finder *f, const char *text)
{
	size_t size = strlen(text) + 1;
	struct name *n;

	if (f->n_names == NAMES_MAX)
		return;
	n = malloc(sizeof(*n) + size);
	if (!n)
		return;
	*n = (struct name){.next = f->names, .due_ns = loop_clock() + LOOK_MS * MS};
	memcpy(n->text, text, size);
	f->names = n;
	f->n_names++;
}

static void take(struct finder *f, const struct inotify_event *e)
{
	char path[PATH_MAX];

	if (!(e->mask & IN_ISDIR) || e->len == 0)
		return; /* IN_Q_OVERFLOW too: the survey finds what was missed */
	if (e->mask & (IN_CREATE | IN_MOVED_TO))
		came(f, e->name);
	else if (e->mask & (IN_DELETE | IN_MOVED_FROM) && path_of(f, e->name, path) &&
		 member_find(f->account, path))
		reaper_look(f->account, path);
}

static void read_events(struct finder *f)
{
	char buffer[EVENTS_SIZE] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	/* The kernel bounds its queue (fs.inotify.max_queued_events). */
	while ((n = read(f->fd, buffer, sizeof(buffer))) > 0) {
		for (char *at = buffer; at < buffer + n;) {
			const struct inotify_event *e =
				(const struct inotify_event *)(const void *)at;

			take(f, e);
			at += sizeof(*e) + e->len;
		}
	}
}

static void on_events(struct loop_op *op, int result, unsigned flags)
{
	struct finder *f = CONTAINER_OF(op, finder, poll_op);

	if (result >= 0)
		read_events(f);
	start_timer(f);
	if (!(flags & LOOP_MORE) && result >= 0)
		(void)loop_poll(f->account->host->loop, op, f->fd, POLLIN, false);
}

int finder_open(struct account *a)
{
	struct finder *f = calloc(1, sizeof(*f));
	char path[PATH_MAX];
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->account = a;
	f->poll_op.fn = on_events;
	f->timer_op.fn = on_timer;
	f->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (f->fd < 0 || !path_of(f, "", path) ||
	    inotify_add_watch(f->fd, path,
			      IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_ONLYDIR) < 0)
		r = -errno;
	if (r == 0)
		r = loop_poll(a->host->loop, &f->poll_op, f->fd, POLLIN, false);
	if (r < 0) {
		if (f->fd >= 0)
			close(f->fd);
		free(f);
		return r;
	}
	account_ref(a);
	a->finder = f;
	return 0;
}

void finder_close(struct account *a)
{
	struct finder *f = a->finder;

	if (!f)
		return;
	a->finder = NULL;
	loop_release_all(a->host->loop, (struct loop_op *const[]){&f->poll_op, &f->timer_op}, 2,
			 gone, f);
}
