/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packgive.c: see packgive.h.
 *
 * First the pool goes, then objects to the disk tier, where there is one. The call that finds
 * itself asked did not want to wait for a disk, so it moves a few objects, and leaves the rest to
 * the next one. An event loop, which was woken for it, goes on for a while.
 */
#include "packgive.h"

#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arbhook.h"
#include "cleanup.h"
#include "demote.h"
#include "detail.h"
#include "evict.h"
#include "handle.h"
#include "nameslock.h"
#include "object.h"
#include "packed.h"
#include "page.h"
#include "partition.h"
#include "publish.h"
#include "sys.h"
#include "tier.h"

#define BYTES_MOST (UINT64_C(4) << 20)
#define POLL_NS    500000 /* of a close, for the thread that gives; of who asked */
#define N_MOST     64u    /* a few milliseconds on a common disk */

static void demote(struct shmstore *s, uint64_t bytes)
{
	struct shms_tier *t;

	if (s->uid == geteuid() && shms_tier_there(s->p) && shms_tier_join(s) == 0 &&
	    shms_tier_own(s->p, &t) == 0)
		shms_packdemote(s, t, bytes < BYTES_MOST ? bytes : BYTES_MOST, N_MOST);
}

/* The memory of the store's segments. */
static uint64_t memory_of(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t memory = 0, trimmed;

	if (pack)
		(void)shms_pack_pool(pack, &memory, &trimmed);
	return memory;
}

/* One thread's at a time. The request stands until it is dealt with, so that who waits knows that
 * there is something to wait for. */
static void give(struct shmstore *s)
{
	struct wire_packed *w = &s->page->packed;
	/* Acquire: pairs with the asker's write. */
	uint64_t wanted = atomic_load_explicit(&w->wanted, memory_order_acquire);
	uint64_t gave, before, after;

	if (!wanted)
		return;
	/* A sign of life, for who waits. */
	atomic_store_explicit(&w->asked_ns, shms_now_boot_ns(), memory_order_relaxed);
	/* Also what dead owners' segments have for nobody. */
	gave = shms_packedmem_trim(s);
	if (gave < wanted) {
		before = memory_of(s);
		demote(s, wanted - gave);
		/* In whole pages: a part of what objects had may stay. */
		after = memory_of(s);
		gave += before > after ? before - after : 0;
	}
	/* The rest is asked for as of now. */
	atomic_store_explicit(&w->asked_ns, shms_now_boot_ns(), memory_order_relaxed);
	atomic_fetch_add_explicit(&w->given, gave, memory_order_relaxed);
	/* Release: who sees it finds the memory free, and given raised. */
	atomic_store_explicit(&w->wanted, gave && gave < wanted ? wanted - gave : 0,
			      memory_order_release);
	if (gave)
		shms_hold_freed(s);
}

/* False: another thread gives, or the store is being opened or closed. */
static bool begin_giving(struct shmstore *s)
{
	/* Acquire: pairs with shms_packgive_may(), in another thread. */
	return !atomic_flag_test_and_set_explicit(&shms_handle(s)->packed.giving,
						  memory_order_acquire);
}

void shms_packgive_may(struct shmstore *s)
{
	atomic_flag_clear_explicit(&shms_handle(s)->packed.giving, memory_order_release);
}

void shms_packgive_end(struct shmstore *s)
{
	while (!begin_giving(s))
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

void shms_packgive_asked(struct shmstore *s)
{
	if (!begin_giving(s))
		return;
	give(s);
	shms_detail_clear(); /* that is no business of the call */
	shms_packgive_may(s);
}

/*
 * The owner's handle in this process of the store whose page this is, to give what is asked of it
 * here and now: shms_packgive_may() is owed, and the store is not closed before. NULL: another
 * process has it, or another thread gives for it.
 */
static struct shmstore *find_ours(int page_fd)
{
	struct shms_handle *h;
	struct stat page;

	if (fstat(page_fd, &page) < 0)
		return NULL;
	for (h = shms_ours_lock(); h; h = h->next) {
		if (!begin_giving(&h->s))
			continue;
		if (page.st_ino == h->s.page_inode && page.st_dev == h->s.p->device)
			break;
		shms_packgive_may(&h->s);
	}
	shms_ours_unlock();
	return h ? &h->s : NULL;
}

void shms_packgive_for(struct shmstore *s, uint64_t ns)
{
	uint64_t end = shms_now_mono_ns() + ns;

	while (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed) &&
	       shms_now_mono_ns() < end)
		shms_packgive_asked(s);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/*
 * The words of a page are read and written by calls, not by a map: its owner may cut the file. An
 * owner's page is believed about who asked it, and for how much: the result is the kernel's count.
 *
 * A wanted that stands was asked for by somebody, and its owner has made no call since. If that
 * was just now, the answer may come and is waited for; else the store is silent, and is not
 * asked again, nor waited for.
 *
 * A store of our own process may have no other thread that makes a call: it gives here, at once.
 */
#define WAIT_NS 100000000ull  /* for a sign of life */
#define WORK_NS 2000000000ull /* after it */

/* struct wire_packed as it was read. */
struct words {
	uint64_t bytes, given, wanted, asked_ns;
};
_Static_assert(offsetof(struct words, wanted) == offsetof(struct wire_packed, wanted), "words");
_Static_assert(offsetof(struct words, asked_ns) == offsetof(struct wire_packed, asked_ns), "words");

static bool read_words(int page_fd, struct words *ret)
{
	return shms_pread_all(page_fd, ret, sizeof(*ret), WIRE_PACKED_OFF) == (ssize_t)sizeof(*ret);
}

static void write_word(int page_fd, size_t member, uint64_t value)
{
	(void)shms_write_at(page_fd, &value, sizeof(value), WIRE_PACKED_OFF + member);
}

/* The page of a live store, to be written. -1: it is none, or may not be. */
static int open_page(int storefd, const struct stat *store)
{
	_fd_ int fd = shms_page_open(storefd, SHMS_PAGE_FILE);
	struct stat st;

	/* Root writes to nothing but what is the store's. */
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != store->st_uid)
		return -1;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		flock(fd, LOCK_UN);
		return -1;
	}
	return shms_take_fd(&fd);
}

/* The memory of the store's segments: a bound for the claims in its page. */
static uint64_t most_of(int storefd)
{
	_names_ struct shms_names d = shms_names(storefd, SHMS_DIR_SEGMENTS);
	uint64_t sum = 0;
	struct stat st;

	while (shms_names_next(&d))
		sum += fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? shms_blocks(&st) : 0;
	return sum;
}

/* Calls fn for each live store that has packed objects. fn returns whether it wants more, and takes
 * *page_fd by setting it to -1. */
static void each(struct shmstore_partition *p, uid_t uid, uint64_t own,
		 bool (*fn)(int *page_fd, const struct words *w, void *arg), void *arg)
{
	_names_ struct shms_names d = shms_names_beneath(p->fd, SHMS_DIR_STORES);
	uint64_t most;
	struct words w;
	struct stat st;
	bool more = true;

	while (more && shms_names_next(&d)) {
		_fd_ int fd = shms_open_beneath(d.fd, d.name, O_RDONLY | O_DIRECTORY);
		_fd_ int page_fd = -1;

		if (fd < 0 || fstat(fd, &st) < 0 ||
		    (uid != SHMSTORE_EVICT_ALL && st.st_uid != uid) || st.st_ino == own)
			continue;
		page_fd = open_page(fd, &st);
		if (page_fd < 0 || !read_words(page_fd, &w) || !w.bytes)
			continue;
		most = most_of(fd);
		w.bytes = w.bytes < most ? w.bytes : most;
		if (w.bytes)
			more = fn(&page_fd, &w, arg);
	}
}

static bool add(int *page_fd, const struct words *w, void *arg)
{
	uint64_t *sum = arg;

	(void)page_fd;
	*sum += w->bytes < UINT64_MAX - *sum ? w->bytes : 0;
	return true;
}

uint64_t shms_packask_bytes(struct shmstore_partition *p, uid_t uid, uint64_t own)
{
	uint64_t sum = 0;

	each(p, uid, own, add, &sum);
	return sum;
}

struct asking {
	struct shms_packask *k;
	uint64_t left, now_ns;
};

static bool ask(int *page_fd, const struct words *w, void *arg)
{
	struct asking *a = arg;
	uint64_t part = w->bytes < a->left ? w->bytes : a->left;
	struct shmstore *ours = find_ours(*page_fd);

	if (!ours && w->wanted && a->now_ns - w->asked_ns >= WAIT_NS)
		return true;
	if (!w->wanted) {
		write_word(*page_fd, offsetof(struct wire_packed, asked_ns), a->now_ns);
		write_word(*page_fd, offsetof(struct wire_packed, wanted), part);
	}
	while (ours && atomic_load_explicit(&ours->page->packed.wanted, memory_order_relaxed))
		give(ours);
	if (ours)
		shms_packgive_may(ours);
	a->left -= part;
	a->k->v[a->k->n++] =
		(struct shms_packasked){.page_fd = shms_take_fd(page_fd),
					.given = w->given,
					.asked_ns = w->wanted ? w->asked_ns : a->now_ns};
	return a->left && a->k->n < SHMS_PACKASK_STORES;
}

void shms_packask_begin(struct shmstore_partition *p, uid_t uid, uint64_t own, uint64_t bytes,
			struct shms_packask *ret)
{
	struct asking a = {.k = ret, .left = bytes, .now_ns = shms_now_boot_ns()};

	ret->n = 0;
	if (bytes)
		each(p, uid, own, ask, &a);
}

/* The bytes given so far. *ret_open: some have not answered; *ret_work: one of them is at it. */
static uint64_t look(const struct shms_packask *k, bool *ret_open, bool *ret_work)
{
	uint64_t sum = 0;
	struct words w;

	*ret_open = *ret_work = false;
	for (size_t i = 0; i < k->n; i++) {
		if (!read_words(k->v[i].page_fd, &w))
			continue;
		sum += w.given - k->v[i].given;
		*ret_open = *ret_open || w.wanted;
		*ret_work = *ret_work || (w.wanted && w.asked_ns != k->v[i].asked_ns);
	}
	return sum;
}

uint64_t shms_packask_end(struct shms_packask *k, uint64_t bytes)
{
	uint64_t begin = shms_now_mono_ns(), given = 0;
	bool open = k->n != 0, work;

	while (open) {
		given = look(k, &open, &work);
		if (!open || given >= bytes ||
		    shms_now_mono_ns() - begin >= (work ? WORK_NS : WAIT_NS))
			break;
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
	}
	for (size_t i = 0; i < k->n; i++)
		shms_close_fd(k->v[i].page_fd);
	k->n = 0;
	return given;
}

bool shms_packask_for(struct shmstore *s, uint64_t bytes)
{
	struct shms_packask k;
	struct shms_space space;

	if (shms_space(s->p->fd, &space) < 0)
		return false;
	shms_packask_begin(s->p, s->uid, s->readonly ? 0 : s->dir_inode,
			   bytes + shms_victim_batch(space.size), &k);
	return shms_packask_end(&k, bytes) > 0;
}

/* ---- packed objects leave for the tier ------------------------------------------------------- */

/*
 * Where this is needed the partition has no room for a file. So the object's file is laid out in
 * memory that is none of the partition's (memfd), and copied from there to the tier file, as any
 * object is (demote.h). Then, with the names locked, the stub gets the key, and the packed
 * object goes: a kill before that leaves a clean copy of an object that is no file, which is
 * dropped as such; a kill in between leaves both, and the next open keeps the stub. A view of
 * ours keeps the bytes meanwhile.
 *
 * A failure may be one object's, the disk's, or the partition's, which has no page left for a long
 * key's sidecar (demote.c). Nobody tries to tell: a batch of which no object goes is the last one,
 * and the next search begins behind it.
 */

struct moving {
	struct shmstore *s;
	struct shms_pack_view v;
	struct shms_keyname key; /* of the view's bytes */
	struct shms_demote d;
	struct shms_header header;
	int error;
};

struct run {
	struct shmstore *s;
	struct shms_tier *t;
	struct shms_pack *pack;
	struct shms_packsearch search;
	uint64_t bytes, most; /* that are wanted, of so many objects at most */
	struct shms_packdemoted done;
};

/* ---- the object as a file -------------------------------------------------------------------- */

static int write_head(int fd, const struct shms_layout *l, const struct shms_pack_view *v,
		      const uint64_t *sizes, const void *metadata)
{
	_free_ void *head = calloc(1, l->metadata_off);
	struct shms_superblock *sb = head;
	int r;

	if (!head)
		return -ENOMEM;
	shms_format_head(l, shms_pack_view_key(v), sizes, shms_nonce(), head);
	if (shms_segpacked_checksum(&v->object, v->segment->bytes + v->object.extent_off,
				    sb->buffer_hash))
		sb->compat_flags |= SHMS_FORMAT_CHECKSUM;
	sb->header_hash = shms_format_hash(head, l->metadata_off, metadata, l->metadata_size);
	r = shms_write_at(fd, head, l->metadata_off, 0);
	return r == 0 ? shms_write_at(fd, metadata, l->metadata_size, l->metadata_off) : r;
}

/* Between buffers the file has holes, which read as zero. */
static int write_object(int fd, const struct shms_pack_view *v)
{
	const struct shms_segpacked *o = &v->object;
	const uint8_t *extent = v->segment->bytes + o->extent_off;
	uint64_t sizes[SHMS_SEGOWN_BUFFERS], off = 0;
	struct shms_layout l;
	int r = o->n_buffers > SHMS_SEGOWN_BUFFERS ? -EBADMSG
						   : shms_segpacked_sizes(v->segment, o, sizes);

	if (r == 0 && !shms_layout_init(&l, o->key_size, o->metadata_size, sizes, o->n_buffers, 0))
		r = -EBADMSG;
	if (r == 0)
		r = shms_truncate(fd, l.header_size + l.buffer_size);
	if (r == 0)
		r = write_head(fd, &l, v, sizes, extent + o->metadata_off);
	for (uint32_t i = 0; r == 0 && i < o->n_buffers; i++) {
		r = shms_write_at(fd, extent + off, sizes[i], l.header_size + off);
		off = shms_layout_next(off, sizes[i]);
	}
	return r;
}

/* ---- one object ------------------------------------------------------------------------------ */

static int lay_out(struct moving *m)
{
	struct shms_demote *d = &m->d;
	int r;

	d->fd = memfd_create("shmstore-demoted", MFD_CLOEXEC);
	if (d->fd < 0)
		return -errno;
	r = write_object(d->fd, &m->v);
	if (r == 0 && fstat(d->fd, &d->st) < 0)
		r = -errno;
	return r == 0 ? shms_header_read(&m->header, d->fd, &d->st, NULL) : r;
}

/* Begins the copy. Errors here are in m->error, errors of the copy in the job's. */
static void begin(struct moving *m, struct shms_engine *e)
{
	struct shms_demote *d = &m->d;

	shms_demote_init(d);
	m->error = shms_keyname_init(&m->key, shms_pack_view_key(&m->v), m->v.object.key_size);
	m->key.instead = &m->v;
	if (m->error == 0)
		m->error = lay_out(m);
	if (m->error)
		return;
	m->error = shms_demote_copy(d, &m->header);
	if (m->error == 0)
		shms_engine_store(e, &d->job);
}

/* The copy has its names; the object has its key still. */
static int name_copy(struct moving *m, const struct shms_demote_name *n)
{
	int r = shms_names_lock(m->s);

	if (r < 0)
		return r;
	r = shms_packed_is_file(m->s, &m->key) ? -EAGAIN
					       : shms_packed_in_the_way(m->s, &m->key, true);
	if (r == 0) {
		r = shms_demote_name_copy(&m->d, n);
		if (r < 0)
			shms_tier_release(m->d.t, n->clean_fd, n->name);
	}
	shms_names_unlock(m->s);
	return r;
}

/* The key means something else by now: the copy is nobody's, unless somebody dropped it already. */
static void drop_copy(struct moving *m, const struct shms_demote_name *n)
{
	struct shms_stub stub;

	if (shms_names_lock(m->s) < 0)
		return; /* gc finds it */
	if (shms_stub_read(n->clean_fd, n->name, &stub, NULL) == 0 && stub.id == m->d.stub.id)
		shms_tier_release(m->d.t, n->clean_fd, n->name);
	shms_names_unlock(m->s);
}

static int exchange(struct moving *m)
{
	const struct shms_demote_name n = {.objects_fd = m->s->objects_fd,
					   .clean_fd = m->s->clean_fd,
					   .name = m->key.name,
					   .s = m->s};
	const struct shms_publish_from from = {
		.dir_fd = n.clean_fd, .name = n.name, .move = true, .other_key = true};
	int r = name_copy(m, &n);

	if (r < 0)
		return r;
	r = shms_publish_named(m->s, &from, &m->key, &m->header.object.layout, false);
	if (r < 0)
		drop_copy(m, &n);
	return r;
}

static void end(struct moving *m)
{
	if (m->error == 0)
		m->error = m->d.job.error;
	if (m->error == 0)
		m->error = exchange(m);
	shms_header_deinit(&m->header);
	shms_demote_end(&m->d);
	shms_pack_unget(m->v.pack, &m->v, 0);
}

/* ---- as many as are needed ------------------------------------------------------------------- */

#define BATCH       16u                 /* under way at once */
#define BATCH_BYTES (UINT64_C(8) << 20) /* that are copied for it, unless one object has more */

/* Copies some objects side by side, and then names the copies. False: none of them went,
 * and more would not, either. */
static bool batch(struct run *k, struct shms_engine *e)
{
	struct moving m[BATCH];
	/* The copies are memory, too: one at a time, where a cgroup has none to spare. */
	uint64_t most = shms_ramroom_free(&k->s->p->ram) < BATCH_BYTES ? 1 : BATCH_BYTES;
	uint64_t before = k->done.n, bytes = 0;
	unsigned n = 0;

	while (n < BATCH && bytes < most && k->done.bytes + bytes < k->bytes &&
	       k->done.n + n < k->most) {
		m[n] = (struct moving){.s = k->s, .d.t = k->t};
		if (shms_pack_victim(k->pack, &k->search, &m[n].v) < 0)
			break;
		bytes += m[n].v.object.extent_size;
		begin(&m[n++], e);
	}
	shms_engine_drain(e);
	for (unsigned i = 0; i < n; i++) {
		end(&m[i]);
		k->done.n += m[i].error == 0;
		k->done.bytes += m[i].error == 0 ? m[i].v.object.extent_size : 0;
	}
	return k->done.n > before;
}

struct shms_packdemoted shms_packdemote(struct shmstore *s, struct shms_tier *t, uint64_t bytes,
					uint64_t most)
{
	struct shms_pack *pack = shms_packed_pack(s);
	struct run k = {.s = s, .t = t, .pack = pack, .bytes = bytes, .most = most};
	struct shms_engine *e = pack ? shms_tier_engine(t) : NULL;

	if (!e)
		return k.done;
	k.search = shms_pack_search(pack, shms_now_boot_ms());
	while (k.done.bytes < bytes && k.done.n < most && batch(&k, e))
		continue;
	shms_tier_engine_back(t, e);
	if (k.done.n)
		shms_packedmem_trim(s);
	shms_count(&s->ledger->demoted_n, k.done.n);
	shms_count(&s->ledger->demoted_bytes, k.done.bytes);
	return k.done;
}
