/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.c: the stores under watch. A member is made for a page whose lock is held, and
 * goes when the lock is free or the page is no longer there; pid and connection are only
 * hints to look. A page's words are copied once and checked; the kernel's view of its file
 * (owner, size, inode) counts more.
 *
 * The page is opened by its path below the partition at each look: no descriptor is kept but the
 * pidfd. Nothing here blocks: the partition is a tmpfs.
 */
#include "member.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "beneath.h"
#include "clocks.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "socket.h"

#define FDS_RESERVE 256u

/* ---- the file -------------------------------------------------------------------------------- */

/* One store has one path: no empty component, none that begins with a dot and is nothing else. */
static bool is_plain(const char *below)
{
	for (const char *at = below, *end; at; at = end ? end + 1 : NULL) {
		end = strchr(at, '/');
		size_t n = end ? (size_t)(end - at) : strlen(at);

		if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
			return false;
	}
	return true;
}

/* Opens the page of the store at path, without symlinks and never outside the partition. -errno. */
static int open_page(const struct account *a, const char *path, int flags)
{
	size_t n = strlen(a->path);
	char below[WIRE_PATH_MAX + sizeof(WIRE_PAGE_FILE) + 2];
	int fd, length;

	if (strncmp(path, a->path, n) != 0 || path[n] != '/' || !is_plain(path + n + 1))
		return -EPERM;
	length = snprintf(below, sizeof(below), "%s/%s", path + n + 1, WIRE_PAGE_FILE);
	if (length < 0 || (size_t)length >= sizeof(below))
		return -EPERM;
	fd = beneath_open(a->fd, below, flags | O_NONBLOCK | O_NOFOLLOW);
	switch (fd) {
	case -ENOTDIR:
		return -ENOENT;
	case -EXDEV:
	case -ELOOP:
	case -EACCES:
		return -EPERM;
	default:
		return fd;
	}
}

/* Only its owner holds a page's lock exclusively, for its life; all others
 * look for a moment, shared. */
static bool is_locked(int fd)
{
	return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* A kept store's next owner writes itself into the page that its last one left. */
bool member_is_taken_over(const struct member *m)
{
	const struct page_head *head = m->page;
	uint64_t start_time;
	int64_t created_ns;

	memcpy(&start_time, &head->start_time, sizeof(start_time));
	memcpy(&created_ns, &head->created_ns, sizeof(created_ns));
	return start_time != m->start_time || created_ns != m->created_ns;
}

enum member_state member_state(const struct member *m)
{
	enum member_state state = MEMBER_CLOSED;
	int fd = open_page(m->account, m->path, O_RDONLY);
	struct stat st;

	if (fd == -ENOENT || fd == -EPERM)
		return MEMBER_CLOSED;
	if (fd < 0)
		return MEMBER_LIVES; /* out of descriptors: nothing is known */
	if (fstat(fd, &st) == 0 && st.st_ino == m->inode && !member_is_taken_over(m))
		state = is_locked(fd) ? MEMBER_LIVES : MEMBER_DEAD;
	close(fd);
	return state;
}

/* ---- its process ----------------------------------------------------------------------------- */

static void member_free(struct member *m)
{
	struct account *a = m->account;
	int pidfd = m->pidfd;

	free(m->path);
	loop_release(a->host->loop, &m->pid_op, m);
	if (pidfd >= 0)
		close(pidfd);
	account_unref(a);
}

static void on_process_end(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct member *m = CONTAINER_OF(op, member, pid_op);

	if (result < 0)
		return;
	m->ended = true;
	reaper_look(m->account, m->path);
}

static void watch_process(struct member *m, pid_t pid)
{
	struct rlimit limit;
	int r;

	if (m->pidfd >= 0)
		return;
	m->pidfd = owner_open(pid, m->start_time);
	/* Connections and surveys cannot do without descriptors; a death is also seen by its
	 * connection, or a survey. */
	if (m->pidfd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY &&
	    (rlim_t)m->pidfd >= limit.rlim_cur - MIN(limit.rlim_cur / 2, FDS_RESERVE)) {
		close(m->pidfd);
		m->pidfd = -1;
	}
	if (m->pidfd < 0)
		return;
	m->pid_op.fn = on_process_end;
	r = loop_poll(m->account->host->loop, &m->pid_op, m->pidfd, POLLIN, true);
	if (r < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.object = m->path, .error = r),
			"its process cannot be watched: its death is seen by its connection, or "
			"the next survey");
}

/* ---- coming and going ------------------------------------------------------------------------ */

/* NULL where memory is out. The caller puts it. */
static struct json_object *describe(const struct member *m)
{
	struct json_object *o = account_json(m->account);

	fields_of(o, m, SAME(path), SAME(name), SAME(label), SAME(pid), SAME(uid));
	return o;
}

struct member *member_find(struct account *a, const char *path)
{
	struct member *m;

	HASH_FIND(hh, a->by_path, path, strlen(path), m);
	return m;
}

struct member *member_by_id(const struct host *h, uint64_t id)
{
	for (struct account *a = h->accounts; a; a = a->next)
		for (struct member *m = a->members; m; m = m->next)
			if (m->id == id)
				return m;
	return NULL;
}

static int fill(struct member *m, int fd, bool write, const struct stat *st,
		const struct page_head *head)
{
	int r = pages_map(fd, write, &m->page);

	if (r < 0)
		return r;
	if (write)
		m->credit = (struct wire_credit *)(void *)((char *)m->page + WIRE_CREDIT_OFF);
	m->uid = st->st_uid;
	m->inode = st->st_ino;
	m->pid = (pid_t)head->pid;
	m->start_time = head->start_time;
	m->created_ns = head->created_ns;
	m->keep = head->flags & PAGE_KEEP;
	snprintf(m->name, sizeof(m->name), "%s",
		 head->name[0] ? head->name : strrchr(m->path, '/') + 1);
	snprintf(m->label, sizeof(m->label), "%s", head->label);
	return 0;
}

static int make(struct account *a, const char *path, int fd, bool write, const struct stat *st,
		struct member **ret)
{
	static uint64_t last_id;
	struct page_head head;
	struct member *m;
	int r = pages_read_head(fd, &head);

	if (r < 0)
		return r;
	/* Gc, ours too, holds the lock of a dead store while it takes it apart. */
	if (reaper_knows_dead(a, path, &head))
		return -ENOENT;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	account_ref(a);
	m->account = a;
	m->pidfd = -1;
	m->id = ++last_id;
	m->path = strdup(path);
	r = m->path ? fill(m, fd, write, st, &head) : -ENOMEM;
	if (r == 0)
		r = quota_add(a->quota, m->uid, m->label, m->name, m, loop_now(a->host->loop),
			      &m->quota);
	if (r == 0)
		HASH_ADD_KEYPTR(hh, a->by_path, m->path, strlen(m->path), m);
	if (r == 0 && !m->hh.tbl)
		r = -ENOMEM;
	if (r < 0) {
		accountquota_remove(m);
		pages_unmap(m->page);
		member_free(m);
		return r;
	}
	DL_PREPEND(a->members, m);
	a->n_members++;
	watch_process(m, m->pid);
	member_refresh(m);
	m->put_bytes = m->last.put_bytes;
	PART_EACH(a, came, m);
	events_emit(a->host->events, EVENT_STORE_CAME, m->path, describe(m));
	*ret = m;
	return 0;
}

int member_get(struct account *a, const char *path, uid_t uid_wanted, struct member **ret)
{
	struct member *m = member_find(a, path);
	struct stat st;
	bool write = true;
	int r, fd;

	/* Another store may have that path by now. */
	if (m && member_state(m) != MEMBER_LIVES) {
		m->ending = true;
		reaper_look(a, path);
		member_gone(m, "died");
		m = NULL;
	}
	if (m) {
		if (uid_wanted != (uid_t)-1 && m->uid != uid_wanted)
			return -EPERM;
		*ret = m;
		return 0;
	}
	fd = open_page(a, path, O_RDWR);
	if (fd == -EPERM) {
		write = false;
		fd = open_page(a, path, O_RDONLY);
	}
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_size != WIRE_PAGE_SIZE)
		r = -EBADMSG;
	else if (uid_wanted != (uid_t)-1 && st.st_uid != uid_wanted)
		r = -EPERM;
	else if (!is_locked(fd))
		r = -ENOENT;
	else
		r = make(a, path, fd, write, &st, ret);
	close(fd);
	return r;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void on_conn_end(struct conn_end *e, UNUSED struct conn *c)
{
	member_disconnected(CONTAINER_OF(e, member, end));
}

void member_connect(struct member *m, struct conn *c, pid_t pid)
{
	assert(!m->conn);
	m->conn = c;
	m->ending = false;
	m->registered_ns = (int64_t)clock_ns(CLOCK_REALTIME);
	if (pid > 0) {
		m->pid = pid;
		watch_process(m, pid);
	}
	m->end = (struct conn_end){.fn = on_conn_end};
	c->member = m;
	conn_on_end(c, &m->end);
}

static void disconnect(struct member *m)
{
	struct conn *c = m->conn;

	if (!c)
		return;
	/* Its waiting requests end; it may live on. */
	if (m->quota)
		quota_cancel_all(m->account->quota, m->quota);
	PART_EACH(m->account, left, m);
	m->conn = NULL;
	conn_off_end(c, &m->end);
	c->member = NULL;
}

void member_disconnected(struct member *m)
{
	if (!m->conn)
		return;
	/* The look before the end: what it leaves behind is known to be on its way back when others
	 * are told that it is gone. */
	m->ending = true;
	reaper_look(m->account, m->path);
	disconnect(m);
}

/* ---- its page -------------------------------------------------------------------------------- */

/* Grows with whatever its owner does, and with nothing that others do to its objects. */
static uint64_t deeds(const struct shmstore_counters *c)
{
	return c->put_n + c->get_n + c->delete_n + c->handoff_n + c->adopt_n + c->alias_n;
}

static uint64_t word_at(const struct member *m, size_t offset)
{
	const void *at = (const char *)m->page + offset;

	return atomic_load_explicit((const _Atomic uint64_t *)at, memory_order_relaxed);
}

/* A word of the ledger, less what others have moved (wire_linked()). */
static uint64_t less_moved(const struct member *m, uint64_t value, size_t word)
{
	return wire_linked(value, word_at(m, WIRE_MOVED_OFF + word * sizeof(uint64_t)));
}

void member_refresh(struct member *m)
{
	struct shmstore_counters *c = &m->last;
	uint64_t *to = (uint64_t *)(void *)c, before = deeds(c);

	for (size_t i = 0; i < sizeof(*c) / sizeof(*to); i++)
		to[i] = word_at(m, WIRE_LEDGER_OFF + i * sizeof(*to));
	c->linked_bytes = less_moved(m, c->linked_bytes, 1);
	c->pool_n = less_moved(m, c->pool_n, WIRE_MOVED_POOL);
	c->pool_bytes = less_moved(m, c->pool_bytes, WIRE_MOVED_POOL + 1);
	if (deeds(c) != before)
		m->active_ns = loop_now(m->account->host->loop);
	/* Set last by whoever opens a store, which may be after the store is known here. */
	if (!pages_lost(m->page))
		m->keep = word_at(m, offsetof(struct page_head, flags)) & PAGE_KEEP;
	memcpy(m->address, ((const struct page_head *)m->page)->address, sizeof(m->address));
	m->address[sizeof(m->address) - 1] = '\0';
}

void member_gone(struct member *m, const char *why)
{
	struct account *a = m->account;
	struct json_object *fields;

	if (m->gone)
		return;
	m->gone = true;
	disconnect(m);
	member_refresh(m);
	account_add_totals(&a->gone, &m->last);
	HASH_DEL(a->by_path, m);
	DL_DELETE(a->members, m);
	a->n_members--;
	accountquota_remove(m);
	if (!a->closing) {
		fields = describe(m);
		jsonmake_text(fields, "why", why);
		events_emit(a->host->events, EVENT_STORE_WENT, m->path, fields);
	}
	pages_unmap(m->page);
	member_free(m);
}

/*
 * Pids are evidence, never a reason: what a page says of its owner's pid is of the owner's pid
 * namespace, and may be of a process long gone. The start time tells two processes of one pid
 * apart, and the pidfd, once checked, stays with its process.
 */

int owner_open(pid_t pid, uint64_t start_time)
{
	uint64_t started = 0;
	int fd;

	if (pid <= 0)
		return -ESRCH;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno == EINVAL ? -ESRCH : -errno; /* EINVAL: a thread's */
	/* After the pidfd: what is read now is of its process, or of none. */
	if (process_start(pid, &started) < 0 || started != start_time) {
		close(fd);
		return -ESRCH;
	}
	return fd;
}

bool owner_is(pid_t pid, pid_t inner)
{
	char text[4096], *at, *end;

	if (pid == inner)
		return true;
	if (pid <= 0)
		return false;
	if (process_read(pid, "status", text, sizeof(text)) < 0)
		return false;
	at = strstr(text, "\nNSpid:");
	if (!at)
		return false;
	at += strlen("\nNSpid:");
	while (*at == '\t') {
		if (strtol(at + 1, &end, 10) == inner)
			return true;
		at = end;
	}
	return false;
}
