/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packfork.c: what forked children inherit.
 *
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
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "cleanup.h"
#include "packsegs.h"
#include "segfile.h"
#include "sys.h"

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

void shms_pack_count_end(struct shms_pack *p)
{
	if (p->counter && !p->child)
		shmdt(p->counter);
	p->counter = NULL;
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
