/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packopen.c: opens and closes a store's packed objects. A kept store that comes back finds them in
 * its segments, and what it adopted in others'.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "pack.h"
#include "packsegs.h"
#include "page.h"
#include "segfile.h"
#include "sys.h"

/* ---- fork ------------------------------------------------------------------------------------ */

/*
 * Before a fork, the file of each segment with live views is opened anew, the byte
 * SHMS_SEGLOCK_CHILDREN + holder is locked for reading, a page of that description is mapped, and
 * the descriptor is closed. After the fork the parent unmaps the page, so that the children alone
 * have the lock. A process that can lock the byte for writing knows that no child is left.
 *
 * Where no descriptor is to be had for that, a segment of System V's shared memory is attached,
 * which children inherit: the kernel counts the processes that have it, and takes it away after the
 * last one. It costs no memory, as nobody writes to it. If that is refused too, the parent counts
 * the views as inherited for ever: that loses memory, and never a view.
 * Rejected: such a count in place of the lock, always. It ends with the
 * parent's, whom others outlive.
 */

/* Children that are forked from here on are counted. Killed before IPC_RMID we leave an entry in
 * the kernel's table, without memory. */
static bool count_children(struct shms_pack *p)
{
	int id;
	void *at;

	if (p->counter)
		return true;
	id = shmget(IPC_PRIVATE, 1, 0600);
	if (id < 0)
		return false;
	at = shmat(id, NULL, SHM_RDONLY);
	shmctl(id, IPC_RMID, NULL); /* takes effect with the last process */
	if ((intptr_t)at == -1)
		return false;
	p->counter = at;
	p->counter_id = id;
	return true;
}

static bool nobody_counted(const struct shms_pack *p)
{
	struct shmid_ds count;

	return shmctl(p->counter_id, IPC_STAT, &count) == 0 && count.shm_nattch == 1;
}

bool shms_packseg_childless(struct shms_pack *p, struct shms_packseg *g)
{
	if (g->counted && !nobody_counted(p))
		return false;
	unsigned byte = SHMS_SEGLOCK_CHILDREN + g->file->holder;
	_fd_ int fd = shms_packseg_open(p, g);
	bool none = fd >= 0 && shms_seglock_try(fd, byte) == 0;

	if (none) {
		shms_seglock_end(fd, byte);
		g->counted = false;
	}
	return none;
}

/* Returns a page that keeps the lock; NULL: the lock cannot be had. */
static void *hold(const struct shms_pack *p, const struct shms_packseg *g)
{
	unsigned byte = SHMS_SEGLOCK_CHILDREN + g->file->holder;
	_fd_ int fd = shms_packseg_open(p, g);
	void *page = MAP_FAILED;

	if (fd >= 0 && shms_lock_bytes(fd, F_RDLCK, byte, 1) == 0)
		page = mmap(NULL, SHMS_SEGMENT_PAGE, PROT_READ, MAP_SHARED, fd, 0);
	return page == MAP_FAILED ? NULL : page;
}

void shms_pack_fork_prepare(struct shms_pack *p)
{
	struct shms_packplace place;

	shms_lightlock_take(&p->lock);
	if (p->former)
		shms_pack_fork_prepare(p->former);
	/* A child locks nothing: its own page also keeps what its children inherit. */
	SHMS_PACKSEGS_EACH(p, g) {
		if (!g->n_viewed || p->child)
			continue;
		g->children = hold(p, g);
		if (!g->children && count_children(p))
			g->counted = true;
		else if (!g->children)
			g->unsure = true;
		g->inherited = true;
	}
	for (uint32_t at = 0; !p->child && shms_packviews_next(&p->views, &at, &place);) {
		uint32_t *views = shms_packviews_find(&p->views, place);

		*views |= *views & SHMS_PACK_COUNT ? SHMS_PACK_INHERITED : 0;
	}
}

void shms_pack_fork_parent(struct shms_pack *p)
{
	if (p->former)
		shms_pack_fork_parent(p->former);
	SHMS_PACKSEGS_EACH(p, g) {
		if (g->children)
			munmap(g->children, SHMS_SEGMENT_PAGE);
		g->children = NULL;
	}
	shms_lightlock_release(&p->lock);
}

void shms_pack_fork_child(struct shms_pack *p)
{
	bool grandchild = p->child;

	if (p->former)
		shms_pack_fork_child(p->former);
	p->child = true;
	shms_packlines_fork_child(&p->lines);
	p->index = (struct shms_packindex){0};
	SHMS_PACKSEGS_EACH(p, g) {
		if (grandchild)
			break;
		shms_segfile_fork_child(g->file, g->n_viewed > 0);
		if (g->own)
			g->own->fd = shms_close_fd(g->own->fd);
	}
	shms_lightlock_release(&p->lock);
}

/* Puts the key of an own name into the index. */
static int read_name(struct shms_pack *p, struct shms_packplace place,
		     const struct shms_segpacked *o)
{
	struct shms_packseg *g = &p->segments[place.segment];
	const struct shms_packhashed key =
		shms_packhash(shms_segpacked_key(&g->file->segment, o), o->key_size);
	struct shms_packplace held;
	int r;

	g->large = g->large || o->extent_size > SHMS_PACK_SMALL;
	r = shms_pack_reserve(p);
	if (r < 0)
		return r;
	if (!shms_pack_find(p, &key, &held)) {
		shms_pack_name(p, &key, place);
		return 0;
	}
	shms_pack_gain(p, place);
	/*
	 * A process was killed while it replaced the object, and the key has two: readers may have
	 * seen the one that the index means. Where there was no index they saw the first.
	 */
	if (!shms_packlines_means(&p->left, key.hash, g->file->segment.uuid, place.slot)) {
		shms_pack_lose(p, place, 0);
	} else {
		p->last.size = 0; /* which may mean held */
		shms_packindex_replace(&p->index, key.hash, held, place);
		shms_pack_lose(p, held, 0);
	}
	return 0;
}

/* Puts all names of a kept store into the index, but for what is damaged. */
static int read_names(struct shms_pack *p)
{
	int r = 0;

	for (uint32_t number = 0; r == 0 && number < p->n_segments; number++) {
		struct shms_packseg *g = &p->segments[number];
		uint32_t n = shms_segment_born(&g->file->segment);

		for (uint32_t i = 0; r == 0 && i < n; i++) {
			struct shms_segslot slot = shms_packseg_slot(g, i);
			struct shms_segpacked o;

			if (shms_packseg_named(g, i) &&
			    shms_segstate_published(shms_segword_load(slot.state)) &&
			    shms_segpacked_read(&g->file->segment, &slot, &o) == 0)
				r = read_name(p, (struct shms_packplace){number, i}, &o);
		}
	}
	return r;
}

/* No store has a place in another user's file: somebody else put it there. */
static bool is_others(const struct shms_pack *p, const char *name)
{
	struct stat st;

	return fstatat(p->options.dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_uid != geteuid();
}

static int reopen(struct shms_pack *p, const char *name)
{
	struct shms_segfile file;
	struct shms_packseg *g;
	int r = shms_segfile_reopen(p->options.dir_fd, name, p->options.uuid, &file);

	/* A link that was left over, or a file that is no segment: gc and verify see to it. */
	if (r == -ENOENT || r == -EBADMSG || r == -ENOTSUP ||
	    ((r == -EPERM || r == -EACCES) && is_others(p, name)))
		return 0;
	if (r < 0)
		return r;
	r = shms_packsegs_new(p, file.holder == SHMS_SEG_OWNER, 0, &g);
	if (r < 0) {
		shms_segfile_close(&file);
		return r;
	}
	if (g->own)
		r = shms_segown_reopen(&file, p->options.dir_fd, p->options.huge, g->own);
	else
		*g->file = file;
	return shms_packsegs_add(p, g, r, 0);
}

static int reopen_all(struct shms_pack *p)
{
	_names_ struct shms_names d = shms_names(p->options.dir_fd, ".");
	int r = d.error;

	if (r < 0)
		return r;
	p->opening = true;
	p->grow.may = UINT64_MAX;
	(void)shms_packlines_open(p->options.store_fd, p->options.uuid, &p->left);
	while (r == 0 && shms_names_next(&d)) {
		if (d.name[0] != '.')
			r = reopen(p, d.name);
	}
	if (r == 0)
		r = d.error;
	if (r == 0)
		r = read_names(p);
	p->opening = false;
	shms_packlines_close(&p->left);
	/* Until here readers go by it: no key that it has goes. */
	if (r == 0)
		r = shms_packlines_supersede(p->options.store_fd);
	if (r < 0)
		return r;
	(void)unlinkat(p->options.store_fd, SHMS_INDEX_FILE, 0);
	shms_pack_share(p);
	return 0;
}

/*
 * Gives up all names in a segment where there are views, of this process or of children. The view
 * bits stay, and so does the place, which the last of these processes keeps locked.
 */
static void drop_names(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	uint32_t n = shms_segment_born(&g->file->segment), number = shms_packseg_number(p, g);

	for (uint32_t i = 0; i < n; i++) {
		if (shms_packseg_named(g, i))
			shms_packseg_drop(p, (struct shms_packplace){number, i}, now_ms);
	}
}

/* Others may have objects in a segment of ours: what nobody has there goes now, since nobody
 * looks after it from here on. */
static void leave(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	struct stat st;

	if (p->reader) {
		shms_segfile_leave(g->file, -1, now_ms);
		return;
	}
	if (g->own && fstat(g->own->fd, &st) == 0 && st.st_nlink > 1) {
		drop_names(p, g, now_ms);
		p->grow.gave += shms_segown_trim(g->own, now_ms);
	}
	p->grow.gave += shms_segfile_leave(g->file, p->options.dir_fd, now_ms);
}

/* Views count no more from here on, and what they show stays as long as the process. */
static void retire_segment(struct shms_pack *p, struct shms_packseg *g, bool keep, uint64_t now_ms)
{
	shms_packseg_settle(p, g, now_ms);
	if (!g->n_viewed) {
		if (keep)
			shms_segfile_close(g->file);
		else
			leave(p, g, now_ms);
		shms_packsegs_free(g);
		return;
	}
	if (!keep)
		drop_names(p, g, now_ms);
	p->grow.gave += !keep && g->own ? shms_segown_trim(g->own, now_ms) : 0;
	p->grow.gave += shms_segfile_retire(g->file, p->options.dir_fd, keep, now_ms);
	if (g->own)
		g->own->fd = shms_close_fd(g->own->fd);
}

void shms_pack_retire(struct shms_pack *p, bool keep, uint64_t now_ms)
{
	SHMS_LIGHT_HELD(&p->lock);
	p->told = (struct shms_packtold){0};
	p->grow.tight = false;
	SHMS_PACKSEGS_EACH(p, g)
		retire_segment(p, g, keep, now_ms);
	/* Of a kept store others find keys by it still. */
	shms_packlines_close(&p->lines);
	p->index = (struct shms_packindex){0};
	atomic_store_explicit(&p->retired, true, memory_order_relaxed);
}

int shms_pack_open(const struct shms_pack_options *options, struct shms_pack **ret)
{
	struct shms_pack *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return -ENOMEM;
	shms_lightlock_init(&p->lock);
	p->lines = p->left = (struct shms_packlines)SHMS_PACKLINES_NULL;
	p->options = *options;
	p->path = strdup(options->path);
	p->options.path = p->path;
	if (!p->path)
		r = -ENOMEM;
	else if (options->kept)
		r = reopen_all(p);
	if (r < 0)
		shms_pack_close(p, 0);
	else
		*ret = p;
	return r;
}

void shms_pack_close(struct shms_pack *p, uint64_t now_ms)
{
	if (!p)
		return;
	if (!p->child && !atomic_load_explicit(&p->retired, memory_order_relaxed))
		shms_pack_retire(p, p->options.kept, now_ms);
	SHMS_PACKSEGS_EACH(p, g) {
		/* A child's views point into the maps, which stay as long as the process. */
		if (!(p->child && g->n_viewed))
			shms_segfile_close(g->file);
		shms_packsegs_free(g);
	}
	shms_packlines_close(&p->lines);
	if (p->counter && !p->child)
		shmdt(p->counter);
	shms_packviews_deinit(&p->views);
	pthread_mutex_destroy(&p->lock.mutex);
	shms_pack_close(p->former, now_ms);
	free(p->path);
	free(p);
}
