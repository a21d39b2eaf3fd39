/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.c: see links.h.
 *
 * Why a handed-off name needs no look at its inode: it came in alone, so no other name of the store
 * meant that inode then, and every later one comes by shms_links_add(), which looks at the unknown
 * ones first: each once, and only a store that adopts what others link looks at all.
 *
 * One way does not pass the owner: a peer of the same user links an object by its path in objects/.
 * It notes that in the owner's page before (shms_page_exposed()); from then on what comes back is
 * looked for in the directory too.
 */
#include "links.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "cleanup.h"
#include "handle.h"
#include "name.h"
#include "sys.h"

#define SIZE_MIN 64
#define LINKS(s) (&shms_handle(s)->links)

struct shms_link {
	struct shms_link *next, *next_inode; /* of the same buckets */
	struct shms_link *ring, *back; /* other names of its inode; itself where there is none */
	uint64_t hash;
	uint64_t inode; /* 0 = not known */
	char name[];
};

void shms_links_init(struct shms_links *l)
{
	memset(l, 0, sizeof(*l));
	pthread_mutex_init(&l->lock, NULL);
	shms_random(&l->seed, sizeof(l->seed));
}

void shms_links_deinit(struct shms_links *l)
{
	for (size_t i = 0; i < l->size; i++) {
		while (l->by_name[i]) {
			struct shms_link *link = l->by_name[i];

			l->by_name[i] = link->next;
			free(link);
		}
	}
	free(l->by_name);
	free(l->by_inode);
	l->by_name = l->by_inode = NULL;
	l->size = 0;
	atomic_store_explicit(&l->n, 0, memory_order_relaxed);
	pthread_mutex_destroy(&l->lock);
}

/* Without the lock, too: threads that hold store.names shared drop names
 * each of its own (handoff.c). */
static bool none(const struct shms_links *l)
{
	return !atomic_load_explicit(&l->n, memory_order_relaxed);
}

/* ---- the table; the lock is held ------------------------------------------------------------- */

/* add: 1, or SIZE_MAX for one less. */
static void count(struct shms_links *l, size_t add)
{
	atomic_store_explicit(&l->n, atomic_load_explicit(&l->n, memory_order_relaxed) + add,
			      memory_order_relaxed);
}

static uint64_t hash_of(const struct shms_links *l, const char *name)
{
	return XXH3_64bits_withSeed(name, strlen(name), l->seed);
}

static struct shms_link *find(const struct shms_links *l, const char *name)
{
	struct shms_link *link;
	uint64_t hash;

	if (none(l))
		return NULL;
	hash = hash_of(l, name);
	link = l->by_name[hash & (l->size - 1)];
	while (link && (link->hash != hash || strcmp(link->name, name) != 0))
		link = link->next;
	return link;
}

static struct shms_link **inode_bucket(const struct shms_links *l, uint64_t inode)
{
	return &l->by_inode[(inode * 0x9E3779B97F4A7C15u >> 32) & (l->size - 1)];
}

static void put(struct shms_links *l, struct shms_link *link)
{
	struct shms_link **to = &l->by_name[link->hash & (l->size - 1)];

	link->next = *to;
	*to = link;
	to = inode_bucket(l, link->inode);
	link->next_inode = *to;
	*to = link;
}

static int grow(struct shms_links *l)
{
	struct shms_links old = *l;

	if (atomic_load_explicit(&l->n, memory_order_relaxed) < l->size)
		return 0;
	l->size = l->size ? 2 * l->size : SIZE_MIN;
	l->by_name = calloc(l->size, sizeof(struct shms_link *));
	l->by_inode = calloc(l->size, sizeof(struct shms_link *));
	if (!l->by_name || !l->by_inode) {
		free(l->by_name);
		free(l->by_inode);
		l->by_name = old.by_name;
		l->by_inode = old.by_inode;
		l->size = old.size;
		return l->size ? 0 : -ENOMEM; /* longer lists, no more */
	}
	for (size_t i = 0; i < old.size; i++) {
		while (old.by_name[i]) {
			struct shms_link *link = old.by_name[i];

			old.by_name[i] = link->next;
			put(l, link);
		}
	}
	free(old.by_name);
	free(old.by_inode);
	return 0;
}

static void insert(struct shms_links *l, struct shms_link *link)
{
	link->hash = hash_of(l, link->name);
	put(l, link);
	count(l, 1);
}

static void leave_inode(struct shms_links *l, const struct shms_link *link)
{
	struct shms_link **at = inode_bucket(l, link->inode);

	while (*at != link)
		at = &(*at)->next_inode;
	*at = link->next_inode;
}

static void set_inode(struct shms_links *l, struct shms_link *link, uint64_t inode)
{
	struct shms_link **to;

	if (link->inode == inode)
		return;
	leave_inode(l, link);
	link->inode = inode;
	to = inode_bucket(l, inode);
	link->next_inode = *to;
	*to = link;
}

static void drop(struct shms_links *l, struct shms_link *link)
{
	struct shms_link **at = &l->by_name[link->hash & (l->size - 1)];

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	leave_inode(l, link);
	count(l, SIZE_MAX);
	link->ring->back = link->back;
	link->back->ring = link->ring;
	free(link);
}

static void unite(struct shms_link *a, struct shms_link *b)
{
	struct shms_link *next = a->ring;

	/* Of one ring already? Who is alone is of no other's. */
	for (const struct shms_link *link = next; a != b && b->ring != b && link != a;
	     link = link->ring) {
		if (link == b)
			return;
	}
	if (a == b)
		return;
	/* Two rings become one where their next ones are exchanged. */
	next->back = b;
	b->ring->back = a;
	a->ring = b->ring;
	b->ring = next;
}

static uint64_t inode_of(const struct shmstore *s, const char *name)
{
	struct stat st;

	return fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

struct shms_link *shms_links_new(const char *name)
{
	size_t n = strlen(name) + 1;
	struct shms_link *link = malloc(sizeof(*link) + n);

	if (!link)
		return NULL;
	*link = (struct shms_link){.ring = link, .back = link};
	memcpy(link->name, name, n);
	return link;
}

static struct shms_link *get(struct shms_links *l, const char *name)
{
	struct shms_link *link = find(l, name);

	if (link)
		return link;
	link = grow(l) == 0 ? shms_links_new(name) : NULL;
	if (link)
		insert(l, link);
	return link;
}

/* ---- inodes ---------------------------------------------------------------------------------- */

/* Have others exchanged names with stubs since we looked? */
static bool moved(const struct shmstore *s)
{
	return atomic_load_explicit(&s->tier_on, memory_order_relaxed) &&
	       atomic_load_explicit(&s->page->moved.n, memory_order_relaxed) != LINKS(s)->moved_n;
}

bool shms_links_listed(int objects_fd, uint64_t inode, const char *but, char *ret_name)
{
	_names_ struct shms_names d = shms_names(objects_fd, ".");

	while (shms_names_next(&d)) {
		if (d.ino == inode && strcmp(d.name, but) != 0) {
			snprintf(ret_name, SHMS_NAME_SIZE, "%s", d.name);
			return true;
		}
	}
	return false;
}

/* All inodes are looked at anew. */
static void look_again(struct shmstore *s)
{
	struct shms_links *l = LINKS(s);

	for (size_t i = 0; i < l->size; i++) {
		for (struct shms_link *link = l->by_name[i]; link; link = link->next)
			set_inode(l, link, inode_of(s, link->name));
	}
	l->moved_n = atomic_load_explicit(&s->page->moved.n, memory_order_relaxed);
}

/* Looks up unknown inodes. Names that somebody else removed stay unknown, which is harmless. */
static void look_at_unknown(struct shmstore *s)
{
	struct shms_link *link = *inode_bucket(LINKS(s), 0), *next;

	for (; link; link = next) {
		next = link->next_inode;
		if (!link->inode)
			set_inode(LINKS(s), link, inode_of(s, link->name));
	}
}

/* The entry of another name than but that means the inode. */
static struct shms_link *find_inode(struct shmstore *s, uint64_t inode, const char *but)
{
	struct shms_link *link;
	char name[SHMS_NAME_SIZE];

	if (!none(LINKS(s)) && moved(s))
		look_again(s);
	for (int i = 0; !none(LINKS(s)) && i < 2; i++) {
		for (link = *inode_bucket(LINKS(s), inode); link; link = link->next_inode) {
			if (link->inode == inode && strcmp(link->name, but) != 0)
				return link;
		}
		look_at_unknown(s);
	}
	if (!atomic_load_explicit(&s->page->moved.exposed, memory_order_relaxed) ||
	    !shms_links_listed(s->objects_fd, inode, but, name))
		return NULL;
	link = get(LINKS(s), name);
	if (link)
		set_inode(LINKS(s), link, inode);
	return link;
}

/* ---- the calls ------------------------------------------------------------------------------- */

int shms_links_handed(struct shmstore *s, const char *name)
{
	SHMS_HELD(&LINKS(s)->lock);
	return get(LINKS(s), name) ? 0 : -ENOMEM;
}

bool shms_links_add(struct shmstore *s, struct shms_link *link, uint64_t inode)
{
	struct shms_link *other;

	SHMS_HELD(&LINKS(s)->lock);
	other = find_inode(s, inode, link->name);
	link->inode = inode;
	if (grow(LINKS(s)) < 0) {
		free(link);
	} else {
		insert(LINKS(s), link);
		if (other)
			unite(other, link);
	}
	return !other;
}

int shms_links_know(struct shmstore *s, const char *name, uint64_t inode)
{
	struct shms_link *link;

	SHMS_HELD(&LINKS(s)->lock);
	link = get(LINKS(s), name);
	if (link)
		set_inode(LINKS(s), link, inode);
	return link ? 0 : -ENOMEM;
}

void shms_links_moved(struct shmstore *s, const char *name)
{
	struct shms_link *link;

	SHMS_HELD(&LINKS(s)->lock);
	link = find(LINKS(s), name);
	if (link)
		set_inode(LINKS(s), link, 0);
}

bool shms_links_back(struct shmstore *s, const char *name, uint64_t inode)
{
	struct shms_link *link, *other;

	SHMS_HELD(&LINKS(s)->lock);
	other = find_inode(s, inode, name);
	link = other ? get(LINKS(s), name) : find(LINKS(s), name);
	if (link)
		set_inode(LINKS(s), link, inode);
	if (link && other)
		unite(other, link);
	return !other;
}

enum shms_links_of shms_links_of(struct shmstore *s, const char *name)
{
	const struct shms_link *link, *at;
	uint64_t inode;
	bool others;

	if (none(LINKS(s)))
		return SHMS_LINKS_PRIVATE;
	SHMS_HELD(&LINKS(s)->lock);
	link = find(LINKS(s), name);
	others = link && link->ring != link;
	if (others && atomic_load_explicit(&s->tier_on, memory_order_relaxed)) {
		inode = inode_of(s, name);
		for (at = link->ring; at != link && inode_of(s, at->name) != inode; at = at->ring)
			;
		others = at != link;
	}
	return others ? SHMS_LINKS_OTHERS : link ? SHMS_LINKS_KNOWN : SHMS_LINKS_PRIVATE;
}

void shms_links_drop(struct shmstore *s, const char *name)
{
	struct shms_link *link;

	if (none(LINKS(s)))
		return;
	SHMS_HELD(&LINKS(s)->lock);
	link = find(LINKS(s), name);
	if (link)
		drop(LINKS(s), link);
}

bool shms_links_hold_private(struct shmstore *s, const char *name)
{
	pthread_mutex_lock(&LINKS(s)->lock);
	return !find(LINKS(s), name);
}

void shms_links_release(struct shmstore *s)
{
	pthread_mutex_unlock(&LINKS(s)->lock);
}

int shms_links_read(struct shmstore *s)
{
	_names_ struct shms_names d = shms_names(s->dir_fd, SHMS_DIR_OBJECTS);
	unsigned char key[SHMS_NAME_SIZE];
	struct stat st;
	size_t n;

	while (shms_names_next(&d)) {
		if (d.name[0] == '.' || shms_name_decode(d.name, key, &n) > SHMS_NAME_HASHED ||
		    fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink == 1)
			continue;
		struct shms_link *link = shms_links_new(d.name);
		if (!link)
			return -ENOMEM;
		shms_links_add(s, link, st.st_ino);
	}
	return d.error;
}
