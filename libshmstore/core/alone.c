/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone.c: limits without a daemon.
 *
 * A daemon holds the lock (flock) of the partition's marker as long as it lives. A store that has none, and is short of credit,
 * takes that lock for a moment, does the sums that the daemon would do over the pages that it may read, and raises its own granted
 * where the limits that the last daemon left in its page have room. The lock makes it the only one that grants: a daemon that
 * starts waits for it, other stores that are alone come one after the other. Killed while it holds the lock: the kernel drops it;
 * granted was raised or was not.
 *
 * Order: settled of each page is read before the file system's used. Memory that becomes used in between was outstanding
 * when it was read, so it may count twice, never not at all. Nobody's granted grows meanwhile.
 *
 * What a user or a label takes is a sum that may count what is gone; the kernel's count of the whole is never less than it, so that bounds it.
 *
 * A store that is opened while the daemon is dead takes the limits from another one's page: shms_alone_inherit().
 *
 * What cannot be read (another user's page) is not in the sums of outstanding: what the kernel counts is. A lock that stays taken
 * means a daemon that lives but does not answer (stopped, or not for us): it may grant at any moment, so nobody else can.
 * Then a store lives off its credit, and gets the limit's error when that is used up.
 */
#include "alone.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "page.h"
#include "sys.h"
#include "transient.h"
#include "walk.h"

#define INHERIT_TRIES 40
#define LOCK_NS       500000 /* others hold it for a walk over the stores */

struct sums {
	const struct shmstore *s;
	uint64_t outstanding, user_outstanding, label_outstanding;
	int64_t user_fresh, label_fresh;
	char label[sizeof(((struct shms_page *)NULL)->label)];
};

static uint64_t value(_Atomic uint64_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

/* Adds without wrapping: a page may say anything. */
static uint64_t add(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static int add_store(const struct shms_walk_store *store, void *arg)
{
	struct sums *k = arg;
	struct shms_page page;
	struct wire_credit *c = &page.credit;
	uint64_t most, settled, outstanding;
	int64_t fresh;
	bool dead;

	/* Asked before the page is read: a dead one's totals are its last. */
	dead = store->fd >= 0 && shms_page_alive(store->fd) == SHMSTORE_DEAD;
	if (store->fd < 0 || shms_page_read(store->fd, &page) < 0 || !value(&c->epoch))
		return 0;
	if (dead && (value(&c->flags) & WIRE_CREDIT_GONE))
		return 0;
	most = value(&c->granted) > value(&c->charged) ? value(&c->granted) : value(&c->charged);
	settled = value(&c->settled);
	outstanding = most > settled ? most - settled : 0;
	fresh = (int64_t)(value(&c->fresh) - value(&c->last));
	if (dead) {
		/* It takes no more; what it had in flight may have got a name. */
		fresh += (int64_t)(value(&c->charged) - settled);
		outstanding = 0;
	}
	k->outstanding = add(k->outstanding, outstanding);
	if (store->st.st_uid == k->s->uid) {
		k->user_outstanding = add(k->user_outstanding, outstanding);
		k->user_fresh += fresh;
	}
	if (k->label[0] && strcmp(page.label, k->label) == 0) {
		k->label_outstanding = add(k->label_outstanding, outstanding);
		k->label_fresh += fresh;
	}
	return 0;
}

static bool fits(uint64_t hard, uint64_t used, uint64_t outstanding, uint64_t more)
{
	return !hard || add(add(used, outstanding), more) <= hard;
}

static uint64_t group_used(_Atomic int64_t *base, int64_t fresh, uint64_t most)
{
	int64_t used = atomic_load_explicit(base, memory_order_relaxed) + fresh;

	if (used <= 0)
		return 0;
	return (uint64_t)used < most ? (uint64_t)used : most;
}

static int over(int error, const char *whose, uint64_t used, uint64_t hard, uint64_t more)
{
	return shms_detail(error, NULL,
			   "the limit that shmstored set for %s is used up: %" PRIu64 " of %" PRIu64
			   " bytes are used or granted and %" PRIu64 " more were asked for",
			   whose, used, hard, more);
}

/* Is there room for more bytes of credit? 0, -ENOSPC, -EDQUOT. */
static int room(struct wire_credit *c, const struct sums *k, const struct statvfs *fs, uint64_t more)
{
	uint64_t used = (uint64_t)(fs->f_blocks - fs->f_bfree) * fs->f_frsize;
	uint64_t most = fs->f_blocks ? used : UINT64_MAX;

	uint64_t user = group_used(&c->user_base, k->user_fresh, most),
		 label = group_used(&c->label_base, k->label_fresh, most);

	if (!fits(value(&c->partition_hard), used, k->outstanding, more))
		return over(-ENOSPC, "the partition", add(used, k->outstanding), value(&c->partition_hard), more);
	if (!fits(value(&c->user_hard), user, k->user_outstanding, more))
		return over(-EDQUOT, "this user", add(user, k->user_outstanding), value(&c->user_hard), more);
	if (!fits(value(&c->label_hard), label, k->label_outstanding, more))
		return over(-EDQUOT, "this store's label", add(label, k->label_outstanding), value(&c->label_hard),
			    more);
	return 0;
}

/* The lock is held: the sums, and the grant. */
static int grant(struct shmstore *s, uint64_t n)
{
	struct wire_credit *c = s->credit.c;
	struct sums k = {.s = s};
	struct shms_walk w = {.store = add_store, .arg = &k};
	uint64_t granted = value(&c->granted), charged = value(&c->charged), base, missing, ahead;
	struct statvfs fs;
	int r;

	/* Another thread of ours was here before. */
	base = granted > charged ? granted : charged;
	missing = add(charged, n) > base ? charged + n - base : 0;
	memcpy(k.label, s->page->label, sizeof(k.label));
	r = shms_walk_run(&w, s->p);
	if (r < 0)
		return r;
	if (fstatvfs(s->p->fd, &fs) < 0)
		return shms_error(errno);
	ahead = add(missing, value(&c->credit));
	r = room(c, &k, &fs, ahead);
	if (r == 0) {
		missing = ahead;
	} else {
		r = missing ? room(c, &k, &fs, missing) : 0;
	}
	if (r == 0 && add(base, missing) > granted)
		atomic_store_explicit(&c->granted, add(base, missing), memory_order_seq_cst);
	return r;
}

/* ---- a store that no daemon has seen ---- */

struct heritage {
	const struct shmstore *s;
	struct wire_credit found; /* of the page that the last daemon wrote to; epoch 0: of none */
	bool same_label;
};

/* The limits of user and label are in the pages of those who are under them. */
static int look_at_page(const struct shms_walk_store *store, void *arg)
{
	struct heritage *h = arg;
	const struct shmstore *s = h->s;
	struct shms_page page;
	uint64_t epoch;

	if (store->fd < 0 || store->st.st_uid != s->uid || shms_page_read(store->fd, &page) < 0)
		return 0;
	epoch = value(&page.credit.epoch);
	if (epoch < value(&h->found.epoch) || !epoch)
		return 0;
	if (epoch == value(&h->found.epoch) && h->same_label)
		return 0;
	h->same_label = s->page->label[0] && strcmp(page.label, s->page->label) == 0;
	memcpy(&h->found, &page.credit, sizeof(h->found));
	return 0;
}

static void copy_limits(struct wire_credit *to, struct heritage *h)
{
	struct wire_credit *from = &h->found;
	uint64_t none = 0;

	atomic_store_explicit(&to->flags, value(&from->flags), memory_order_relaxed);
	atomic_store_explicit(&to->credit, value(&from->credit), memory_order_relaxed);
	atomic_store_explicit(&to->partition_hard, value(&from->partition_hard), memory_order_relaxed);
	atomic_store_explicit(&to->user_hard, value(&from->user_hard), memory_order_relaxed);
	atomic_store_explicit(&to->user_base, atomic_load_explicit(&from->user_base, memory_order_relaxed),
			      memory_order_relaxed);
	if (h->same_label) {
		atomic_store_explicit(&to->label_hard, value(&from->label_hard), memory_order_relaxed);
		atomic_store_explicit(&to->label_base, atomic_load_explicit(&from->label_base, memory_order_relaxed),
				      memory_order_relaxed);
	}
	/* Release: who sees the epoch sees the limits. */
	atomic_compare_exchange_strong_explicit(&to->epoch, &none, value(&from->epoch), memory_order_release,
						memory_order_relaxed);
}

void shms_alone_inherit(struct shmstore *s)
{
	struct heritage h = {.s = s};
	struct shms_walk w = {.store = look_at_page, .arg = &h};
	_locked_ int fd = shms_openat(s->p->fd, SHMS_MARKER_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);

	if (fd < 0)
		return;
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == INHERIT_TRIES)
			return;
		nanosleep(&(struct timespec){.tv_nsec = LOCK_NS}, NULL);
	}
	if (shms_walk_run(&w, s->p) == 0 && value(&h.found.epoch))
		copy_limits(&s->page->credit, &h);
}

int shms_alone_refusal(const struct shmstore *s)
{
	return value(&s->credit.c->partition_hard) ? -ENOSPC : -EDQUOT;
}

int shms_alone_grant(struct shmstore *s, uint64_t n)
{
	_locked_ int fd = shms_openat(s->p->fd, SHMS_MARKER_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
	uint64_t until = 0, now;

	if (fd < 0)
		return shms_error(errno);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return shms_error(errno);
		if (shms_attach_hurry(&s->attach))
			return 0;
		now = shms_now_mono_ns();
		until = until ? until : now + shms_attach_patience(&s->attach);
		if (now >= until) {
			shms_attach_give_up(&s->attach);
			return shms_alone_refusal(s);
		}
		nanosleep(&(struct timespec){.tv_nsec = LOCK_NS}, NULL);
	}
	return grant(s, n);
}
