/* SPDX-License-Identifier: Apache-2.0 */
/* survivor.c: see survivor.h. One byte on a socket pair asks, one byte answers; messages
 * go through the shared page. */
#include "survivor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN_LEASE_MS 60000u

static const struct {
	const char *key;
	struct content content;
} held[] = {
	{"s1", {101, 200000}},
	{"s2", {102, 900}},
	{"a-key-too-long-for-a-file-name-----------------------------------------------------------"
	 "------------------"
	 "-----------------------------------------------------------------------------------------"
	 "------------------"
	 "-----------------------------------------------------------------------------------------"
	 "------------------",
	 {103, 70000}},
};
#define N_HELD 3

struct self {
	struct world *w;
	struct shmstore_partition *p;
	struct shmstore *s;
	struct shmstore_view *views[N_HELD];
	bool keeps_s4; /* handed to the victim, and kept */
	struct shmstore *reader;
	struct shmstore_view *read;
};

static int say(struct self *me, const char *what, int rc)
{
	return rc < 0 ? world_fail(me->w, "survivor: %s: %d (%s)", what, rc, shmstore_strerror(rc))
		      : 0;
}

static int make_segments(struct self *me)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/stores/" SURVIVOR "/segments", me->w->path);
	return mkdir(path, 0700) == 0 ? 0 : world_fail(me->w, "survivor: %s: %m", path);
}

static int do_open(struct self *me)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.recycle_max = 0; /* what it deletes is gone: the tree is as before */
	options.pack_max = survivor_packs(me->w->sc) ? PACK_MAX : 0;
	if (say(me, "partition", shmstore_partition_open(me->w->path, 0, &me->p)) < 0 ||
	    say(me, "open", shmstore_open(me->p, SURVIVOR, &options, &me->s)) < 0)
		return -1;
	/* The first packed object that it adopts makes this directory, which stays. */
	if ((me->w->sc->flags & PACKED) && make_segments(me) < 0)
		return -1;
	for (size_t i = 0; i < N_HELD; i++) {
		const char *key = held[i].key;
		if (say(me, "put", content_put(me->s, key, strlen(key), held[i].content, 0)) < 0 ||
		    say(me, "get",
			shmstore_get(me->s, key, strlen(key), i == 1 ? SHMSTORE_COW : 0,
				     &me->views[i])) < 0)
			return -1;
	}
	return 0;
}

static int do_verify(struct self *me)
{
	for (size_t i = 0; i < N_HELD; i++) {
		struct content c;
		const char *why = content_check(me->views[i], &c);
		if (why || c.seed != held[i].content.seed)
			return world_fail(me->w, "survivor: view of %.10s: %s", held[i].key,
					  why ? why : "wrong seed");
		int rc = content_get(me->s, held[i].key, strlen(held[i].key), &c, &why);
		if (rc < 0 || c.seed != held[i].content.seed)
			return world_fail(me->w, "survivor: object %.10s: %d %s", held[i].key, rc,
					  why ? why : "");
	}
	struct content c = {0, 0};
	int rc = me->keeps_s4 ? content_get(me->s, "s4", 2, &c, NULL) : 0;
	if (me->keeps_s4 && (rc < 0 || c.seed != 104))
		return world_fail(me->w, "survivor: object s4: %d %s", rc, shmstore_error_detail());
	return 0;
}

/* "s1", of which we have a view, or "s4", of which nobody has: to keep, or so that it exists
 * nowhere but in its lease. */
static int do_handoff(struct self *me)
{
	unsigned flags = me->w->sc->flags;
	bool s4 = flags & (TICKET_LAST | TICKET_SHARED);
	const char *key = s4 ? "s4" : "s1";
	int rc = s4 ? content_put(me->s, key, 2, (struct content){104, 5000}, 0) : 0;
	if (rc == 0 && (flags & TICKET_TIER))
		rc = shmstore_demote(me->s, key, 2, 0);
	if (rc == 0)
		rc = shmstore_handoff_flags(me->s, key, 2, IN_LEASE_MS,
					    flags & TICKET_TIER ? SHMSTORE_AS_IS : 0,
					    &me->w->shared->in);
	if (rc == 0 && (flags & TICKET_LAST))
		rc = shmstore_delete(me->s, key, 2);
	me->keeps_s4 = rc == 0 && (flags & TICKET_SHARED);
	return say(me, "handoff", rc);
}

static int do_adopt(struct self *me)
{
	struct shared *sh = me->w->shared;
	/* Under another key a packed object takes a segment of the survivor's, which stays. */
	const char *key = me->w->sc->flags & PACKED ? "a" : "from";
	int rc = shmstore_adopt(me->s, key, strlen(key), &sh->out, SHMSTORE_VERIFY);
	if (rc == -ESTALE && world_now_boot_ms() + 1 >= sh->out_expiry_ms)
		return 0;
	if (say(me, "adopt after the donor's end", rc) < 0)
		return -1;
	struct content c;
	const char *why = NULL;
	rc = content_get(me->s, key, strlen(key), &c, &why);
	if (rc < 0 || c.seed != 1)
		return world_fail(me->w, "survivor: adopted object: %d %s", rc, why ? why : "");
	return say(me, "delete", shmstore_delete(me->s, key, strlen(key)));
}

static int count_one(const struct shmstore_object_info *info, void *arg)
{
	if (info->error == 0)
		++*(unsigned *)arg;
	return 0;
}

/* Lists as many objects as it finds by their keys, and n_more. */
static int check_list(struct self *me, unsigned n_found)
{
	unsigned n = 0, expected = n_found + me->w->sc->n_more;
	int rc = say(me, "list", shmstore_foreach(me->reader, count_one, &n));
	return rc < 0 || n == expected
		       ? rc
		       : world_fail(me->w, "survivor: lists %u objects of %u", n, expected);
}

static int do_begin_to_read(struct self *me)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	unsigned n = 0;
	options.flags = SHMSTORE_OPEN_READONLY;
	if (say(me, "open to read", shmstore_open(me->p, VICTIM, &options, &me->reader)) < 0 ||
	    say(me, "get", shmstore_get(me->reader, "a", 1, 0, &me->read)) < 0)
		return -1;
	for (size_t i = 0; i < 6 && me->w->sc->keys[i].key; i++)
		n += me->w->sc->keys[i].before != 0;
	return check_list(me, n);
}

static int do_read_on(struct self *me)
{
	struct content c;
	const char *why = content_check(me->read, &c);
	unsigned n = 0;
	if (why || c.seed != 1)
		return world_fail(me->w, "survivor: its view of " VICTIM "/a: %s",
				  why ? why : "wrong seed");
	for (size_t i = 0; i < 6 && me->w->sc->keys[i].key; i++) {
		const struct expect *e = &me->w->sc->keys[i];
		int rc = content_get(me->reader, e->key, strlen(e->key), &c, &why);
		uint64_t seen = rc == 0 ? c.seed : 0;
		if ((rc < 0 && rc != -ENOENT) || (seen != e->before && seen != e->after))
			return world_fail(me->w, "survivor: reads %.12s: %d %s, seed %llu", e->key,
					  rc, shmstore_error_detail(), (unsigned long long)seen);
		n += seen != 0;
	}
	return check_list(me, n);
}

static int read_next_owners(struct self *me, struct shmstore *s)
{
	struct content c = {0, 0};
	for (uint64_t seed = 7; seed < 9; seed++) {
		if (say(me, "put as the next owner",
			content_put(s, "new", 3, (struct content){seed, 10}, SHMSTORE_REPLACE)) < 0)
			return -1;
		int rc = content_get(me->reader, "new", 3, &c, NULL);
		if (rc < 0 || c.seed != seed)
			return world_fail(
				me->w, "survivor: reads what the next owner put: %d %s, seed %llu",
				rc, shmstore_error_detail(), (unsigned long long)c.seed);
	}
	return say(me, "delete as the next owner", shmstore_delete(s, "new", 3));
}

static int do_end_reading(struct self *me)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	options.keep = true;
	options.pack_max = PACK_MAX;
	int rc = say(me, "open as the next owner", shmstore_open(me->p, VICTIM, &options, &s));
	if (rc == 0)
		rc = read_next_owners(me, s);
	me->read = shmstore_view_unref(me->read);
	if (say(me, "close what was read", shmstore_close(me->reader)) < 0 ||
	    (s && say(me, "close", shmstore_close(s)) < 0))
		rc = -1;
	me->reader = NULL;
	return rc;
}

static int do_stop(struct self *me)
{
	for (size_t i = 0; i < N_HELD; i++)
		me->views[i] = shmstore_view_unref(me->views[i]);
	int rc = say(me, "close", shmstore_close(me->s));
	shmstore_partition_unref(me->p);
	return rc;
}

static void serve(struct world *w, int fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	struct self me = {.w = w};
	char ask = 'o';
	do {
		int rc = -1;
		switch (ask) {
		case 'o':
			rc = do_open(&me);
			break;
		case 'v':
			rc = do_verify(&me);
			break;
		case 'h':
			rc = do_handoff(&me);
			break;
		case 'a':
			rc = do_adopt(&me);
			break;
		case 'b':
			rc = do_begin_to_read(&me);
			break;
		case 'r':
			rc = do_read_on(&me);
			break;
		case 'e':
			rc = do_end_reading(&me);
			break;
		case 'q':
			rc = do_stop(&me);
			break;
		default:
			break;
		}
		char answer = rc == 0 ? 'y' : 'n';
		if (write(fd, &answer, 1) != 1 || ask == 'q')
			break;
	} while (read(fd, &ask, 1) == 1);
	_exit(0);
}

static int answer_of(struct survivor *v, struct world *w, const char *what)
{
	char answer;
	ssize_t n;
	do {
		n = read(v->fd, &answer, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		return world_fail(w, "survivor: died at %s", what);
	return answer == 'y' ? 0 : -1;
}

static int ask_for(struct survivor *v, struct world *w, char what, const char *name)
{
	if (send(v->fd, &what, 1, MSG_NOSIGNAL) != 1)
		return world_fail(w, "survivor: gone before %s", name);
	return answer_of(v, w, name);
}

int survivor_start(struct survivor *v, struct world *w)
{
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return world_fail(w, "socketpair: %m");
	v->pid = fork();
	if (v->pid < 0)
		return world_fail(w, "fork: %m");
	if (v->pid == 0) {
		close(fds[0]);
		serve(w, fds[1]);
	}
	close(fds[1]);
	v->fd = fds[0];
	return answer_of(v, w, "open");
}

int survivor_verify(struct survivor *v, struct world *w)
{
	return ask_for(v, w, 'v', "verify");
}

int survivor_handoff(struct survivor *v, struct world *w)
{
	return ask_for(v, w, 'h', "handoff");
}

int survivor_adopt(struct survivor *v, struct world *w)
{
	return ask_for(v, w, 'a', "adopt");
}

int survivor_begins_to_read(struct survivor *v, struct world *w)
{
	return ask_for(v, w, 'b', "begin to read");
}

int survivor_reads_on(struct survivor *v, struct world *w)
{
	return ask_for(v, w, 'r', "read on");
}

int survivor_ends_reading(struct survivor *v, struct world *w)
{
	return ask_for(v, w, 'e', "end of reading");
}

int survivor_stop(struct survivor *v, struct world *w)
{
	int rc = ask_for(v, w, 'q', "stop");
	close(v->fd);
	v->fd = -1;
	while (waitpid(v->pid, NULL, 0) < 0 && errno == EINTR)
		;
	return rc;
}
