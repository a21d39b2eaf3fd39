/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account.c: opening and closing a partition under watch, and the fast tick.
 *
 * The lock on the marker comes first: from then on no store that is alone grants itself anything,
 * and no other daemon counts here. Then the watch on stores/, then one look at all stores
 * (synchronous: before it, nothing may be granted), then the first survey in a worker.
 *
 * The tick reads the mapped pages and asks statfs once: no system call for each store.
 *
 * An account is freed when nothing is in flight for it any more: members, jobs, timers each hold
 * a reference (account_ref()).
 */
#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "member.h"
#include "socket.h"

#define TICK_NS UINT64_C(1000000000)

/* ---- the lock -------------------------------------------------------------------------------- */

/*
 * One daemon per partition, and stores that know that it lives: a flock on the partition's marker.
 *
 * In a partition that several users share every one of them can open the marker, and so hold its
 * lock. That must not keep the daemon away: a root daemon asks /proc/locks who it is, and where
 * that is a process of an ordinary user, says so and watches without the lock until it is free.
 * Meanwhile no store that is alone can grant itself anything, since it cannot have the lock either.
 * The user is read from the process's status: the owner of its /proc directory is root's as soon as
 * it makes itself undumpable. In a partition of one user the holder is a daemon of that user, or a
 * store that is alone and takes it for a moment.
 */
#define MARKER ".shmstore"
#define TRIES  200u     /* a store that is alone takes the lock for a moment */
#define NAP_NS 5000000l /* between tries */

static int user_of(pid_t pid, uid_t *ret)
{
	char text[4096];
	const char *at;

	if (process_read(pid, "status", text, sizeof(text)) < 0)
		return -ENOENT;
	at = strstr(text, "\nUid:");
	return at && sscanf(at, "\nUid: %u", ret) == 1 ? 0 : -ENOENT;
}

int accountlock_holder(const struct stat *file, pid_t *ret_pid, uid_t *ret_uid)
{
	unsigned major_number, minor_number;
	char line[256];
	uint64_t inode;
	int pid, r = -ENOENT;
	FILE *f = fopen("/proc/locks", "re");

	if (!f)
		return -ENOENT;
	/* "1: FLOCK  ADVISORY  WRITE 4711 00:2d:5 0 EOF"; those who wait for one have "->" behind
	 * the number. */
	while (r < 0 && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%" SCNu64, &pid, &major_number,
			   &minor_number, &inode) != 4)
			continue;
		if (inode == file->st_ino && makedev(major_number, minor_number) == file->st_dev &&
		    pid > 0 && user_of(pid, ret_uid) == 0) {
			*ret_pid = pid;
			r = 0;
		}
	}
	fclose(f);
	return r;
}

/* Is the lock held by somebody who is no daemon that this partition's users should obey? */
static bool held_by_a_user(const struct account *a, int fd)
{
	struct stat root, marker;
	uid_t uid;
	pid_t pid;

	if (geteuid() != 0 || fstat(a->fd, &root) < 0 || fstat(fd, &marker) < 0 ||
	    (root.st_mode & 01777) != 01777 || accountlock_holder(&marker, &pid, &uid) < 0 ||
	    uid == 0)
		return false;
	log_say(LOG_WARNING, LOG_FIELDS(.object = a->path),
		"process %d of user %u holds the lock of the partition's marker, and is no daemon: "
		"watching without it; should we end meanwhile, stores that need more credit get "
		"none",
		pid, (unsigned)uid);
	return true;
}

static int open_marker(const struct account *a)
{
	int fd = openat(a->fd, MARKER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/* Takes it into a->lock_fd. 0; -EBUSY: another daemon has it; -errno. Said in the log. */
static int take_lock(struct account *a)
{
	int r = 0, fd = open_marker(a);

	if (fd < 0)
		return fd;
	for (unsigned i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		r = -errno;
		if (r != -EWOULDBLOCK || i == TRIES)
			break;
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		r = 0;
	}
	if (r == 0) {
		a->lock_fd = fd;
		return 0;
	}
	if (r == -EWOULDBLOCK)
		r = held_by_a_user(a, fd) ? 0 : -EBUSY;
	close(fd);
	if (r == -EBUSY)
		log_say(LOG_ERR, LOG_FIELDS(.object = a->path),
			"another daemon watches this partition: its marker " MARKER " is locked");
	return r;
}

/* ---- the fast tick --------------------------------------------------------------------------- */

static void add_member(struct account_tick *t, struct member *m)
{
	const struct shmstore_counters *c = &m->last;
	const int64_t elapsed_ns = t->time_ns - m->account->tick.time_ns;

	member_refresh(m);
	m->put_bytes_per_s = 0;
	if (elapsed_ns > 0 && c->put_bytes > m->put_bytes)
		m->put_bytes_per_s = (uint64_t)((double)(c->put_bytes - m->put_bytes) * 1e9 /
						(double)elapsed_ns);
	m->put_bytes = c->put_bytes;
	t->n_members++;
	t->n_objects += c->linked_n;
	t->linked += c->linked_bytes;
	t->pool += c->pool_bytes;
	t->mapped += c->mapped_bytes;
	t->reserved += c->reserved_bytes;
	account_add_totals(t, c);
}

static void lost(struct member *m)
{
	struct account *a = m->account;
	struct json_object *fields = account_json(a);
	struct conn *c = m->conn;

	fields_of(fields, m, SAME(path), SAME(pid), SAME(uid));
	jsonmake_text(fields, "what", "its page was cut short");
	events_emit(a->host->events, EVENT_LIAR, m->path, fields);
	member_gone(m, "its page was cut short");
	if (c)
		conn_drop(c, CONN_E_PROTOCOL, "the page of your store was cut short");
}

static void read_tick(struct account *a)
{
	struct account_tick t = a->gone;
	struct member *next;
	struct statvfs fs;

	t.time_ns = (int64_t)clock_ns(CLOCK_REALTIME);
	t.used_max = a->tick.used_max;
	for (struct member *m = a->members; m; m = next) {
		next = m->next;
		add_member(&t, m);
		if (pages_lost(m->page))
			lost(m);
	}
	if (fstatvfs(a->fd, &fs) == 0) {
		t.size = (uint64_t)fs.f_blocks * fs.f_frsize;
		t.used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
		t.inodes_size = fs.f_files;
		t.inodes_used = fs.f_files - fs.f_ffree;
	}
	if (t.used > t.used_max)
		t.used_max = t.used;
	a->before = a->tick;
	a->tick = t;
}

static void add_history(struct account *a)
{
	const struct account_tick *t = &a->tick;
	struct history_sample s = {
		.time_ns = t->time_ns,
		.size = t->size,
		.used = t->used,
		.linked = t->linked,
		.pool = t->pool,
		.n_members = t->n_members,
		.put_n = t->put_n,
		.get_n = t->get_n,
		.handoff_n = t->handoff_n,
		.adopt_n = t->adopt_n,
		.put_bytes = t->put_bytes,
	};

	/* The ledgers count a shared object once per store; the survey knows
	 * better, but not every second. */
	if (a->survey) {
		s.linked = a->survey->usage.linked;
		s.pool = a->survey->usage.pool;
		s.ghosts = a->survey->usage.ghosts;
		s.inflight = a->survey->usage.inflight;
		s.foreign = a->survey->usage.foreign;
	}
	history_add(&a->history, &s);
}

static void on_tick(struct loop_op *op, int result, unsigned flags)
{
	struct account *a = CONTAINER_OF(op, account, tick_op);
	int fd;

	if (a->closing) {
		if (!(flags & LOOP_MORE))
			account_unref(a);
		return;
	}
	if (result < 0)
		return;
	/* The lock is taken where it could not be had at the start. */
	fd = a->lock_fd < 0 ? open_marker(a) : -1;
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
	} else if (fd >= 0) {
		a->lock_fd = fd;
		log_say(LOG_NOTICE, LOG_FIELDS(.object = a->path),
			"the lock of the partition's marker is free, and ours now");
	}
	read_tick(a);
	add_history(a);
	accountquota_tick(a); /* asks for recycled files; what these do not free, the tier takes */
	PART_EACH(a, tick, a);
	surveyor_tick(a, loop_clock());
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_partition(struct account *a)
{
	const struct config_partition *c = a->config;
	struct shmstore_partition_info info;
	unsigned flags = 0;
	int r;

	if (c->create)
		/* It is the default one, which nobody named. */
		flags = SHMSTORE_CREATE | SHMSTORE_TRUSTED | (c->shared ? SHMSTORE_SHARED : 0);
	r = shmstore_partition_open(c->path, flags, &a->partition);
	if (r == 0)
		r = shmstore_partition_info(a->partition, &info);
	if (r < 0)
		return r;
	a->path = shmstore_partition_path(a->partition);
	memcpy(a->uuid, info.uuid, sizeof(a->uuid));
	a->fd = open(a->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return a->fd < 0 ? -errno : 0;
}

/* One store of the first look. Those that cannot be watched are counted by
 * the surveys all the same. */
static int take_store(const struct shmstore_store_info *info, void *arg)
{
	struct account *a = arg;
	struct member *m;
	int r;

	if (info->alive == SHMSTORE_ALIVE) {
		r = member_get(a, info->path, (uid_t)-1, &m);
		if (r < 0 && r != -ENOENT)
			log_say(LOG_WARNING, LOG_FIELDS(.object = info->path, .error = r),
				"a live store cannot be watched");
	} else if (info->alive == SHMSTORE_DEAD) {
		accountquota_left(a, info->path, info->uid, info->label,
				  info->counters.linked_bytes + info->counters.pool_bytes);
		/* a kept one stays, but for its expired leases and its pool */
		reaper_look(a, info->path);
	}
	return 0;
}

static int start(struct account *a)
{
	int r = accountquota_open(a);

	if (r < 0)
		return r;
	r = finder_open(a);
	if (r < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.object = a->path, .error = r),
			"stores/ cannot be watched: stores that do not register are found by "
			"surveys only");
	r = shmstore_partition_stores(a->partition, take_store, a);
	if (r < 0)
		return r;
	read_tick(a);
	a->before = a->tick;
	add_history(a);
	for (const struct part *const *p = a->host->parts; r == 0 && p && *p; p++)
		r = (*p)->open ? (*p)->open(a) : 0;
	if (r == 0)
		r = surveyor_open(a);
	if (r == 0) {
		a->tick_op.fn = on_tick;
		r = loop_timer(a->host->loop, &a->tick_op, loop_clock() + TICK_NS, TICK_NS);
	}
	if (r == 0)
		account_ref(a);
	return r;
}

int account_open(struct host *h, const struct config_partition *config, struct account **ret)
{
	struct account *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->n_refs = 1;
	a->host = h;
	a->config = config;
	a->fd = a->lock_fd = -1;
	r = pages_init();
	if (r == 0)
		r = open_partition(a);
	if (r == 0)
		r = take_lock(a);
	if (r < 0 && r != -EBUSY) /* that was said */
		log_say(LOG_ERR, LOG_FIELDS(.object = config->path, .error = r),
			"the partition cannot be opened%s",
			r == -ENOENT ? "; make it with shmstore-admin -p PATH init, or say create "
				       "= yes in shmstored.conf"
				     : "");
	if (r == 0) {
		r = start(a);
		if (r < 0)
			log_say(LOG_ERR, LOG_FIELDS(.object = a->path, .error = r),
				"the partition cannot be watched");
	}
	if (r < 0) {
		account_close(a);
		return r;
	}
	*ret = a;
	return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

struct account *account_close(struct account *a)
{
	size_t n = 0;

	if (!a)
		return NULL;
	a->closing = true;
	if (a->tick_op.busy)
		loop_cancel(a->host->loop, &a->tick_op);
	finder_close(a);
	surveyor_close(a);
	while (a->host->parts && a->host->parts[n])
		n++;
	while (n-- > 0)
		if (a->host->parts[n]->close)
			a->host->parts[n]->close(a);
	reaper_close(a);
	while (a->members)
		member_gone(a->members, "the daemon ends");
	accountquota_close(a);
	/* Last: from here on the stores are alone. */
	if (a->lock_fd >= 0)
		close(a->lock_fd);
	a->lock_fd = -1;
	account_unref(a);
	return NULL;
}

/* ---- history --------------------------------------------------------------------------------- */

/*
 * The one ring takes every sample, the other one every tenth: what leaves the first is still in the
 * second, so both together are less than 300 KiB a partition whatever happens.
 */

#define TENS 10u

static void ring_add(struct history_ring *r, const struct history_sample *s)
{
	r->samples[r->next] = *s;
	r->next = (r->next + 1) % HISTORY_SECONDS;
	if (r->n < HISTORY_SECONDS)
		r->n++;
}

void history_add(struct history *h, const struct history_sample *s)
{
	ring_add(&h->seconds, s);
	if (h->n_added++ % TENS == 0)
		ring_add(&h->tens, s);
}

const struct history_sample *history_at(const struct history_ring *r, size_t i)
{
	if (i >= r->n)
		return NULL;
	return &r->samples[(r->next + HISTORY_SECONDS - r->n + i) % HISTORY_SECONDS];
}
