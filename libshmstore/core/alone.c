/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alone.c: limits without a daemon.
 *
 * A daemon holds the lock (flock) of the partition's marker as long as it lives. A store that has
 * none, and is short of credit, takes that lock for a moment, does the sums that the daemon would
 * do over the pages that it may read, and raises its own granted where the limits that the last
 * daemon left in its page have room. The lock makes it the only one that grants: a daemon that
 * starts waits for it, other stores that are alone come one after the other. Killed while it holds
 * the lock: the kernel drops it; granted was raised or was not.
 *
 * Order: settled of each page is read before the file system's used. Memory that becomes used
 * in between was outstanding when it was read, so it may count twice, never not at all.
 * Nobody's granted grows meanwhile.
 *
 * A user's or a label's sum may count memory that is gone; the kernel's count of all bounds it.
 *
 * A store that is opened while the daemon is dead takes the limits from another
 * one's page: shms_alone_inherit(). A store that goes leaves in the others' pages what its own page
 * says of memory that stays, or that others brought: shms_alone_leave(). It writes before its page
 * goes, and a sum reads the pages before the base: what counts twice in between counts once at
 * least.
 *
 * Credit that other stores were given ahead, and have not spent, is no reason to refuse: a living
 * daemon would take it back for a store in need. So a store that would be refused takes it from
 * other stores of its user as the daemon does, by lowering granted under the same lock. They come
 * here themselves when they run short.
 *
 * Totals that cannot be true, and more under way than a limit lets anybody have, are a liar's, and
 * count for nobody. A lie that may be true does, as long as that process lives.
 *
 * The sums of outstanding lack pages that cannot be read (other users'); the kernel's count has
 * their memory. A lock that stays taken means a daemon that lives but does not answer (stopped, or
 * not for us): it may grant at any moment, so nobody else can. Then a store lives off its credit,
 * and gets the limit's error when that is used up.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "attach.h"
#include "cleanup.h"
#include "credit.h"
#include "detail.h"
#include "opened.h"
#include "page.h"
#include "sys.h"
#include "tier.h"
#include "walk.h"

#define INHERIT_MS 20u
#define SKEW_NS    (UINT64_C(86400000000000) * 400) /* between two time namespaces */
#define LOCK_NS    500000                           /* others hold it for a walk over the stores */

struct sums {
	const struct shmstore *s;
	uint64_t outstanding, user_outstanding, label_outstanding;
	uint64_t user_fresh, label_fresh; /* below zero as sums that wrapped */
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

/* Adds what a store may still take, of which none has more than the limit. */
static void add_under(_Atomic uint64_t *hard, uint64_t outstanding, uint64_t *io)
{
	if (outstanding <= value(hard))
		*io = add(*io, outstanding);
}

static int add_store(const struct shms_walk_store *store, void *arg)
{
	struct sums *k = arg;
	struct shms_page page;
	struct wire_credit *c = &page.credit, *ours = k->s->credit;
	uint64_t most, settled, outstanding, fresh;
	bool dead;

	/* Asked before the page is read: a dead one's totals are its last. */
	dead = store->fd >= 0 && shms_page_alive(store->fd) == SHMSTORE_DEAD;
	if (store->fd < 0 || shms_page_read_true(store->fd, &page) < 0 || !value(&c->epoch))
		return 0;
	if (dead && (value(&c->flags) & WIRE_CREDIT_GONE))
		return 0;
	most = value(&c->granted) > value(&c->charged) ? value(&c->granted) : value(&c->charged);
	settled = value(&c->settled);
	outstanding = most > settled ? most - settled : 0;
	fresh = value(&c->fresh) - value(&c->last);
	if (dead) {
		/* It takes no more; what it had in flight may have got a name. */
		fresh += value(&c->charged) - settled;
		outstanding = 0;
	}
	add_under(&ours->partition_hard, outstanding, &k->outstanding);
	if (store->st.st_uid == k->s->uid) {
		add_under(&ours->user_hard, outstanding, &k->user_outstanding);
		k->user_fresh += fresh;
	}
	if (k->label[0] && strcmp(page.label, k->label) == 0) {
		add_under(&ours->label_hard, outstanding, &k->label_outstanding);
		k->label_fresh += fresh;
	}
	return 0;
}

static uint64_t group_used(_Atomic int64_t *base, uint64_t fresh, uint64_t most)
{
	int64_t used =
		(int64_t)((uint64_t)atomic_load_explicit(base, memory_order_relaxed) + fresh);

	if (used <= 0)
		return 0;
	return (uint64_t)used < most ? (uint64_t)used : most;
}

/* The bytes that are missing. */
struct lack {
	uint64_t bytes;
	bool of_label; /* what stores of other labels have does not matter */
};

/* Is there room for more bytes of credit? 0, -ENOSPC, -EDQUOT and *ret. */
static int room(struct wire_credit *c, const struct sums *k, const struct statvfs *fs,
		uint64_t more, struct lack *ret)
{
	uint64_t kernel = (uint64_t)(fs->f_blocks - fs->f_bfree) * fs->f_frsize;
	uint64_t most = fs->f_blocks ? kernel : UINT64_MAX;
	const struct {
		const char *whose;
		uint64_t hard, used, outstanding;
		int error;
	} limits[] = {
		{"the partition", value(&c->partition_hard), kernel, k->outstanding, -ENOSPC},
		{"this user", value(&c->user_hard), group_used(&c->user_base, k->user_fresh, most),
		 k->user_outstanding, -EDQUOT},
		{"this store's label", value(&c->label_hard),
		 group_used(&c->label_base, k->label_fresh, most), k->label_outstanding, -EDQUOT},
	};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t sum = add(limits[i].used, limits[i].outstanding);

		if (!limits[i].hard || add(sum, more) <= limits[i].hard)
			continue;
		*ret = (struct lack){add(sum, more) - limits[i].hard, i == 2};
		return shms_detail(limits[i].error, NULL,
				   "the limit that shmstored set for %s is used up: %" PRIu64
				   " of %" PRIu64 " bytes are used or granted and %" PRIu64
				   " more were asked for",
				   limits[i].whose, sum, limits[i].hard, more);
	}
	return 0;
}

/* ---- what others do not spend ---- */

struct taker {
	const struct shmstore *s;
	const struct lack *lack;
	uint64_t taken;
};

/* Lowers granted by half of what is unspent, or by as much as is lacking. */
static uint64_t take_from(struct wire_credit *c, uint64_t lacking)
{
	uint64_t granted = value(&c->granted), charged = value(&c->charged), unspent, n, left;

	if (!value(&c->epoch) || granted == UINT64_MAX || charged >= granted)
		return 0;
	unspent = granted - charged;
	n = lacking > unspent / 2 ? lacking : unspent / 2;
	n = n < unspent ? n : unspent;
	/* It may have charged meanwhile what was taken: that much it keeps. */
	left = wire_credit_revoke(c, granted - n);
	return left < granted ? granted - left : 0;
}

static int take_unspent(const struct shms_walk_store *store, void *arg)
{
	struct taker *t = arg;
	struct shms_page page, *map;

	if (store->fd < 0 || store->st.st_uid != t->s->uid || store->st.st_ino == t->s->dir_inode ||
	    shms_page_alive(store->fd) == SHMSTORE_DEAD || shms_page_read(store->fd, &page) < 0)
		return 0;
	if (t->lack->of_label && strcmp(page.label, t->s->page->label) != 0)
		return 0;
	map = shms_page_map(store->fd, SHMS_PAGE_FILE, t->s->uid);
	if (!map)
		return 0;
	t->taken += take_from(&map->credit, t->lack->bytes - t->taken);
	munmap(map, SHMS_PAGE_SIZE);
	return t->taken >= t->lack->bytes;
}

/* ---- the grant; the lock is held ---- */

static int sum_up(struct shmstore *s, struct sums *ret, struct statvfs *ret_fs)
{
	int r;

	*ret = (struct sums){.s = s};
	memcpy(ret->label, s->page->label, sizeof(ret->label));
	r = shms_walk_stores(s->p, add_store, ret);
	if (r == 0 && fstatvfs(s->p->fd, ret_fs) < 0)
		r = shms_error(errno);
	return r;
}

/* Room for n bytes, which others' unspent credit makes if need be. 0: *io
 * is how many may be granted. */
static int make_room(struct shmstore *s, uint64_t *io)
{
	struct wire_credit *c = s->credit;
	uint64_t n = *io, taken = 0;
	struct lack lack;
	struct statvfs fs;
	struct sums k;
	int r = sum_up(s, &k, &fs);

	if (r < 0)
		return r;
	*io = add(n, value(&c->credit));
	if (room(c, &k, &fs, *io, &lack) == 0)
		return 0;
	*io = n;
	if (!n)
		return 0;
	/* Once for each kind of limit. */
	for (int i = 0; i < 3 && (r = room(c, &k, &fs, n, &lack)) < 0; i++) {
		struct taker t = {.s = s, .lack = &lack};

		shms_walk_stores(s->p, take_unspent, &t);
		if (t.taken < lack.bytes) /* there were no more */
			return r;
		taken += t.taken - lack.bytes;
		if (sum_up(s, &k, &fs) < 0)
			return r;
	}
	/* Credit taken beyond n serves the next puts. */
	if (r == 0 && taken && room(c, &k, &fs, add(n, taken), &lack) == 0)
		*io = add(n, taken);
	return r;
}

static int grant(struct shmstore *s, uint64_t n)
{
	struct wire_credit *c = s->credit;
	/* Another thread of ours may have been here before. */
	uint64_t granted = value(&c->granted), charged = value(&c->charged);
	uint64_t base = granted > charged ? granted : charged;
	uint64_t more = add(charged, n) > base ? charged + n - base : 0;
	int r = make_room(s, &more);

	if (r == 0 && add(base, more) > granted)
		atomic_store_explicit(&c->granted, add(base, more), memory_order_seq_cst);
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

	if (store->fd < 0 || store->st.st_uid != s->uid ||
	    shms_page_read_true(store->fd, &page) < 0)
		return 0;
	epoch = value(&page.credit.epoch);
	/* The later daemon's; none began in the time to come, whatever its clock. */
	if (epoch < value(&h->found.epoch) || !epoch || epoch > shms_now_boot_ns() + SKEW_NS)
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

#define COPY(member)                                                                     \
	atomic_store_explicit(&to->member,                                               \
			      atomic_load_explicit(&from->member, memory_order_relaxed), \
			      memory_order_relaxed)
	COPY(flags);
	COPY(credit);
	COPY(partition_hard);
	COPY(user_hard);
	COPY(user_base);
	if (h->same_label) {
		COPY(label_hard);
		COPY(label_base);
	}
#undef COPY
	/* Release: who sees the epoch sees the limits. */
	atomic_compare_exchange_strong_explicit(&to->epoch, &none, value(&from->epoch),
						memory_order_release, memory_order_relaxed);
}

void shms_alone_inherit(struct shmstore *s)
{
	struct heritage h = {.s = s};
	_locked_ int fd = shms_open_file(s->p->fd, SHMS_MARKER_FILE, O_RDONLY);

	if (fd < 0 || shms_tier_flock(fd, INHERIT_MS) < 0)
		return;
	if (shms_walk_stores(s->p, look_at_page, &h) == 0 && value(&h.found.epoch))
		copy_limits(&s->page->credit, &h);
}

/* ---- a store that goes ---- */

struct leaver {
	const struct shms_page *page;
	struct stat st; /* of its directory */
	int64_t bytes;
};

static int leave_to(const struct shms_walk_store *store, void *arg)
{
	const struct leaver *l = arg;
	struct shms_page *map;

	if (store->fd < 0 || store->st.st_uid != l->st.st_uid || store->st.st_ino == l->st.st_ino)
		return 0;
	map = shms_page_map(store->fd, SHMS_PAGE_FILE, l->st.st_uid);
	if (!map)
		return 0;
	if (value(&map->credit.epoch)) {
		atomic_fetch_add_explicit(&map->credit.user_base, l->bytes, memory_order_relaxed);
		if (l->page->label[0] &&
		    strncmp(map->label, l->page->label, sizeof(map->label)) == 0)
			atomic_fetch_add_explicit(&map->credit.label_base, l->bytes,
						  memory_order_relaxed);
	}
	munmap(map, SHMS_PAGE_SIZE);
	return 0;
}

void shms_alone_leave(struct shmstore_partition *p, int storefd, uint64_t freed)
{
	struct shms_page page;
	struct wire_credit *c = &page.credit;
	struct leaver l = {.page = &page};

	/* No limit counts what it had, or a daemon has counted it when it died. */
	if (shms_page_read_true(storefd, &page) < 0 || !value(&c->epoch) ||
	    (value(&c->flags) & (WIRE_CREDIT_LAST | WIRE_CREDIT_GONE)) != WIRE_CREDIT_LAST ||
	    fstat(storefd, &l.st) < 0)
		return;
	l.bytes = (int64_t)(value(&c->fresh) - value(&c->last) - freed + value(&c->charged) -
			    value(&c->settled));
	if (!l.bytes)
		return;
	_locked_ int fd = shms_open_file(p->fd, SHMS_MARKER_FILE, O_RDONLY);

	/* Against shms_alone_inherit(). Where a daemon has the lock, nobody inherits, and it writes
	 * each base anew when it hears that the store is gone. */
	if (fd >= 0)
		(void)shms_tier_flock(fd, INHERIT_MS);
	(void)shms_walk_stores(p, leave_to, &l);
}

int shms_alone_refusal(const struct shmstore *s)
{
	return value(&s->credit->partition_hard) ? -ENOSPC : -EDQUOT;
}

int shms_alone_grant(struct shmstore *s, uint64_t n)
{
	_locked_ int fd = shms_open_file(s->p->fd, SHMS_MARKER_FILE, O_RDONLY);
	uint64_t since = 0, now;

	if (fd < 0)
		return shms_error(errno);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return shms_error(errno);
		if (shms_attach_hurry(shms_attach_of(s)))
			return 0;
		now = shms_now_mono_ns();
		since = since ? since : now;
		/* Asked each time: the one that held the lock at first may have died meanwhile,
		 * and another one be starting. */
		if (now - since >= shms_attach_patience(shms_attach_of(s))) {
			shms_attach_give_up(shms_attach_of(s));
			return shms_alone_refusal(s);
		}
		nanosleep(&(struct timespec){.tv_nsec = LOCK_NS}, NULL);
	}
	return grant(s, n);
}
