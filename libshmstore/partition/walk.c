/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c: the one walk over directories that books, verify and gc share.
 *
 * Model: a depth-first descent with one open directory per level. Each directory is in one `where`,
 * which says what its names mean and where its subdirectories are; only directories that may be
 * stores are asked for a .store file. Names are read with readdir (32 KiB a call: reading the names
 * is a small part of the cost, the stat of each is the large one) and statted relative to their
 * directory. Directories are opened by openat2 without symlinks and without crossing mounts; a bind
 * mount of the same file system would otherwise be walked twice, or for ever.
 *
 * The walk may miss names that come or go while it runs, and skips those that it cannot stat.
 */
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "mount.h"
#include "name.h"
#include "page.h"
#include "partition.h"
#include "sys.h"
#include "wire.h"

#define DEPTH_MAX 192u /* levels below the start: each holds a descriptor */

enum where {
	IN_REST,    /* outside the partition */
	IN_ROOT,    /* the partition's own directory */
	IN_STORES,  /* stores/, inbox/ */
	IN_PEERS,   /* peers/ */
	IN_ANY,     /* elsewhere below the partition: may be a store */
	IN_FOREIGN, /* below a part of a store or peers/: no store, nothing of ours */
	IN_OBJECTS,
	IN_HANDOFF,
	IN_RECYCLE,
	IN_CLEAN,
	IN_SEGMENTS,
	IN_TIER,      /* tier/ */
	IN_TIER_USER, /* tier/<uid>/ */
};

struct walker {
	struct shms_walk *w;
	struct shmstore_partition *p;
	struct stat root; /* of the partition */
	bool met;         /* the partition was come across */
	char *path;       /* of the directory being read; empty outside the partition */
	size_t length, size;
	uint32_t n_stores;
	unsigned depth;
};

static int enter(struct walker *k, int parentfd, const char *name, enum where where,
		 enum where parent);

static int path_push(struct walker *k, const char *name)
{
	size_t n = strlen(name);
	int r = SHMS_GROW(k->path, k->size, k->length, n + 2);

	if (r < 0)
		return r;
	if (k->length)
		k->path[k->length++] = '/';
	memcpy(k->path + k->length, name, n + 1);
	k->length += n;
	return 0;
}

static void path_cut(struct walker *k, size_t length)
{
	k->length = length;
	if (k->path)
		k->path[length] = '\0';
}

static int unreadable(struct walker *k, const struct stat *st, int error)
{
	k->w->n_unreadable++;
	return k->w->unreadable ? k->w->unreadable(k->path ? k->path : "", st, error, k->w->arg)
				: 0;
}

/* A file in objects/ or clean/, by its name: of an object's key, or something else. */
static enum shms_place place_of_key(const char *name, enum shms_place object)
{
	unsigned char key[SHMS_NAME_SIZE];
	size_t n;

	switch (shms_name_decode(name, key, &n)) {
	case SHMS_NAME_PLAIN:
	case SHMS_NAME_HASHED:
		return object;
	case SHMS_NAME_SIDECAR:
		return object == SHMS_PLACE_OBJECT ? SHMS_PLACE_SIDECAR : SHMS_PLACE_FOREIGN;
	case SHMS_NAME_FOREIGN:
	default:
		return SHMS_PLACE_FOREIGN;
	}
}

static enum shms_place place_of_stub(enum where where, const char *name,
				     const struct shms_stub *stub)
{
	uint64_t number;

	if (where == IN_OBJECTS)
		return place_of_key(name, SHMS_PLACE_STUB);
	if (where == IN_CLEAN)
		return place_of_key(name, SHMS_PLACE_CLEAN);
	if (where == IN_HANDOFF && shms_lease_parse(name, &number))
		return SHMS_PLACE_LEASE;
	if (where == IN_TIER_USER && shms_tier_parse_name(name, "stub", &number) == 0 &&
	    number == stub->id)
		return SHMS_PLACE_ANCHOR;
	return SHMS_PLACE_FOREIGN;
}

static enum shms_place place_of_file(enum where where, const char *name)
{
	uint64_t number;
	uid_t uid;
	bool ours = false;

	if (where == IN_OBJECTS)
		return place_of_key(name, SHMS_PLACE_OBJECT);
	if (where == IN_CLEAN)
		return place_of_key(name, SHMS_PLACE_MOVING);
	if (where == IN_HANDOFF)
		return shms_lease_parse(name, &number) ? SHMS_PLACE_LEASE : SHMS_PLACE_FOREIGN;
	if (where == IN_RECYCLE)
		return SHMS_PLACE_POOL;
	if (where == IN_SEGMENTS)
		return SHMS_PLACE_SEGMENT;
	if (where == IN_ROOT && strcmp(name, SHMS_MARKER_FILE) == 0)
		return SHMS_PLACE_MARKER;
	if (where == IN_TIER_USER && shms_tier_parse_name(name, "object", &number) == 0)
		return SHMS_PLACE_RESIDENT;
	/* Before they have their names a page, the tier's account and the marker are in the
	 * partition's own directory, where O_TMPFILE is refused. */
	if (where == IN_ROOT)
		ours = shms_unnamed_is(name);
	else if (where == IN_TIER)
		ours = strcmp(name, SHMS_TIER_CONFIG) == 0 ||
		       strcmp(name, SHMS_TIER_CONFIG_NEW) == 0 ||
		       shms_tier_account_name(name, &uid);
	else if (where == IN_TIER_USER)
		ours = strcmp(name, SHMS_TIER_LOCK) == 0;
	return ours ? SHMS_PLACE_TIER : SHMS_PLACE_FOREIGN;
}

static bool may_hold_stubs(enum where where)
{
	return where == IN_OBJECTS || where == IN_CLEAN || where == IN_HANDOFF ||
	       where == IN_TIER_USER;
}

static int emit(struct walker *k, struct shms_walk_entry e)
{
	e.dir = k->path ? k->path : "";
	return k->w->entry ? k->w->entry(&e, k->w->arg) : 0;
}

static int emit_directory(struct walker *k, int parentfd, const char *name, const struct stat *st,
			  const struct shms_walk_store *store)
{
	return emit(k, (struct shms_walk_entry){.place = SHMS_PLACE_DIRECTORY,
						.dirfd = parentfd,
						.name = name,
						.st = st,
						.store = store});
}

/* Tells a name that is no directory. */
static int emit_name(struct walker *k, enum where where, int dirfd, const char *name,
		     const struct stat *st, const struct shms_walk_store *store)
{
	struct shms_walk_entry e = {.place = SHMS_PLACE_FOREIGN,
				    .dirfd = dirfd,
				    .name = name,
				    .st = st,
				    .store = store};
	struct shms_stub stub;
	int r;

	if (S_ISREG(st->st_mode)) {
		e.place = place_of_file(where, name);
	} else if (S_ISLNK(st->st_mode) && where == IN_PEERS) {
		e.place = SHMS_PLACE_PEER;
	} else if (S_ISLNK(st->st_mode) && may_hold_stubs(where)) {
		r = shms_stub_of(dirfd, name, st, &stub);
		if (r < 0 && !shms_stub_none(r))
			return shms_error(r);
		e.place = r < 0 ? SHMS_PLACE_FOREIGN : place_of_stub(where, name, &stub);
		e.stub = e.place == SHMS_PLACE_FOREIGN ? NULL : &stub;
	}
	return emit(k, e);
}

/* The kind of a subdirectory. */
static enum where below(enum where where, const char *name)
{
	uid_t uid;

	if (where == IN_REST)
		return IN_REST; /* enter() tells the partition itself by its inode */
	if (where == IN_ROOT) {
		if (strcmp(name, SHMS_DIR_STORES) == 0 || strcmp(name, SHMS_DIR_INBOX) == 0)
			return IN_STORES;
		if (strcmp(name, SHMS_DIR_TIER) == 0)
			return IN_TIER;
		return strcmp(name, SHMS_DIR_PEERS) == 0 ? IN_PEERS : IN_ANY;
	}
	if (where == IN_TIER)
		return shms_tier_uid(name, &uid) ? IN_TIER_USER : IN_FOREIGN;
	return where == IN_STORES || where == IN_ANY ? IN_ANY : IN_FOREIGN;
}

/* A store's own directories, in the order in which they are walked. */
static const struct {
	const char *name;
	enum where where;
} parts[] = {{SHMS_DIR_OBJECTS, IN_OBJECTS},
	     {SHMS_DIR_CLEAN, IN_CLEAN},
	     {SHMS_DIR_RECYCLE, IN_RECYCLE},
	     {SHMS_DIR_HANDOFF, IN_HANDOFF},
	     {SHMS_DIR_SEGMENTS, IN_SEGMENTS}};
#define N_PARTS (sizeof(parts) / sizeof(*parts))

static bool is_part(const char *name)
{
	for (size_t i = 0; i < N_PARTS; i++) {
		if (strcmp(name, parts[i].name) == 0)
			return true;
	}
	return false;
}

/* Was it done already, or is it no part of this directory's names? */
static bool passed(enum where where, bool of_store, bool directory, const char *name)
{
	if (where == IN_ROOT && directory && strcmp(name, SHMS_DIR_TIER) == 0)
		return true;
	return of_store && (directory ? is_part(name)
				      : strcmp(name, SHMS_PAGE_FILE) == 0 ||
						strcmp(name, SHMS_INDEX_FILE) == 0);
}

/* Reads the names of the directory fd, which it consumes. of_store: it is a store's own directory,
 * whose parts and page were done; store: it is a part of that store. */
static int names(struct walker *k, int consume_fd, enum where where, bool of_store,
		 const struct shms_walk_store *store)
{
	_names_ struct shms_names d = shms_names_of(consume_fd);
	bool entries = k->w->flags & SHMS_WALK_ENTRIES;
	struct stat st;

	if (!d.dir)
		return shms_error(d.error);
	while (shms_names_next(&d)) {
		bool directory = d.type == DT_DIR;

		if (!directory && (entries || d.type == DT_UNKNOWN)) {
			if (fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
				k->w->n_unreadable += errno != ENOENT;
				continue;
			}
			directory = S_ISDIR(st.st_mode);
		}
		if (passed(where, of_store, directory, d.name))
			continue;
		if (directory)
			d.error = enter(k, d.fd, d.name, below(where, d.name), where);
		else if (entries)
			d.error = emit_name(k, where, d.fd, d.name, &st, store);
	}
	return d.error;
}

/* One of a store's own directories. */
static int part(struct walker *k, const struct shms_walk_store *store, const char *name,
		enum where where)
{
	size_t length = k->length;
	struct stat st;
	int r, fd = shms_open_beneath(store->fd, name, O_RDONLY | O_DIRECTORY);

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	r = path_push(k, name);
	if (fd < 0) {
		if (r == 0)
			r = shms_fatal(fd) ? shms_error(fd) : unreadable(k, &store->st, fd);
	} else if (r == 0) {
		if (fstat(fd, &st) == 0 && st.st_blocks)
			r = emit_directory(k, store->fd, name, &st, store);
		if (r == 0)
			r = names(k, fd, where, false, store);
		else
			shms_close_fd(fd);
	} else {
		shms_close_fd(fd);
	}
	path_cut(k, length);
	return r;
}

static int store_entries(struct walker *k, const struct shms_walk_store *store,
			 const struct stat *page)
{
	struct stat st;
	int r = emit(k, (struct shms_walk_entry){.place = SHMS_PLACE_PAGE,
						 .dirfd = store->fd,
						 .name = SHMS_PAGE_FILE,
						 .st = page,
						 .store = store});

	if (r == 0 && fstatat(store->fd, SHMS_INDEX_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = emit(k,
			 (struct shms_walk_entry){.place = S_ISREG(st.st_mode) ? SHMS_PLACE_INDEX
									       : SHMS_PLACE_FOREIGN,
						  .dirfd = store->fd,
						  .name = SHMS_INDEX_FILE,
						  .st = &st,
						  .store = store});
	if (r == 0 && store->st.st_blocks)
		r = emit_directory(k, store->parentfd, store->name, &store->st, store);
	for (size_t i = 0; r == 0 && i < N_PARTS; i++)
		r = part(k, store, parts[i].name, parts[i].where);
	return r;
}

static int store(struct walker *k, const struct shms_walk_store *s, const struct stat *page)
{
	int r = k->w->store ? k->w->store(s, k->w->arg) : 0;

	if (r == 0 && s->fd >= 0 && k->w->flags & SHMS_WALK_ENTRIES)
		r = store_entries(k, s, page);
	if (r == 0 && s->fd >= 0 && k->w->store_end)
		r = k->w->store_end(s, k->w->arg);
	return r;
}

/* A directory that may be a store. page: of its .store, NULL where there is none. fd -1: it may
 * be one, and cannot be read. */
static int candidate(struct walker *k, int parentfd, const char *name, int fd,
		     const struct stat *st, const struct stat *page)
{
	struct shms_walk_store s = {.name = name, .parentfd = parentfd, .fd = fd, .st = *st};
	_free_ char *path = NULL;

	if (fd >= 0 && !page && !k->w->other)
		return 0;
	path = strdup(k->path); /* k->path moves while it is walked */
	if (!path)
		return -ENOMEM;
	s.path = path;
	s.below = path + strlen(k->p->path) + 1;
	if (fd >= 0 && !page)
		return k->w->other(&s, k->w->arg);
	s.number = ++k->n_stores;
	return store(k, &s, page);
}

/* A directory that could not be opened. */
static int closed(struct walker *k, int parentfd, const char *name, enum where where,
		  enum where parent, int error)
{
	struct stat st;

	if (shms_fatal(error))
		return shms_error(error);
	if (error == -ENOENT || error == -ENOTDIR || error == -ELOOP ||
	    fstatat(parentfd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return 0; /* gone, or become something else */
	/* Without stores/ there is no answer to give; -EACCES: a right lost since the open. */
	if (where == IN_STORES && error != -EACCES && strcmp(name, SHMS_DIR_STORES) == 0)
		return shms_detail(shms_error(error), k->path, "%s cannot be looked into: %s",
				   k->path, strerror(-error));
	if (where == IN_ANY && parent == IN_STORES) {
		k->w->n_unreadable++;
		return candidate(k, parentfd, name, -1, &st, NULL);
	}
	return unreadable(k, &st, error);
}

/* Walks the open directory fd, which it consumes. */
static int walk(struct walker *k, int parentfd, const char *name, int consume_fd, enum where where)
{
	_fd_ int fd = consume_fd;
	struct stat st, page;
	bool is_store = false;
	int r = 0;

	if (fstat(fd, &st) < 0)
		return 0;
	if (where == IN_ANY) {
		/* A page that cannot be looked at is not one that is not there. */
		if (fstatat(fd, SHMS_PAGE_FILE, &page, AT_SYMLINK_NOFOLLOW) == 0)
			is_store = S_ISREG(page.st_mode);
		else if (errno != ENOENT)
			return shms_fatal(-errno) ? shms_error(errno) : unreadable(k, &st, -errno);
		r = candidate(k, parentfd, name, fd, &st, is_store ? &page : NULL);
	}
	if (r == 0 && !is_store && st.st_blocks && k->w->flags & SHMS_WALK_ENTRIES) {
		bool ours = where == IN_ROOT || where == IN_STORES || where == IN_PEERS ||
			    where == IN_TIER || where == IN_TIER_USER;
		r = ours ? emit_directory(k, parentfd, name, &st, NULL)
			 : emit(k, (struct shms_walk_entry){
					   .dirfd = parentfd, .name = name, .st = &st});
	}
	/* Before the stores: a sum of their links knows the tier's links then. */
	if (r == 0 && where == IN_ROOT && k->w->flags & SHMS_WALK_ENTRIES)
		r = enter(k, fd, SHMS_DIR_TIER, IN_TIER, where);
	return r ? r : names(k, shms_take_fd(&fd), where, is_store, NULL);
}

static int enter(struct walker *k, int parentfd, const char *name, enum where where,
		 enum where parent)
{
	size_t length = k->length;
	struct stat st;
	int r = 0, fd;

	if (where == IN_REST && !k->met && fstatat(parentfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == k->root.st_ino && st.st_dev == k->root.st_dev) {
		where = IN_ROOT;
		k->met = true;
		r = path_push(k, k->p->path);
	} else if (where != IN_REST) {
		r = path_push(k, name);
	}
	if (r < 0)
		return r;
	fd = k->depth < DEPTH_MAX ? shms_open_beneath(parentfd, name, O_RDONLY | O_DIRECTORY)
				  : -EPERM;
	k->depth++;
	if (fd >= 0)
		r = walk(k, parentfd, name, fd, where);
	else
		r = closed(k, parentfd, name, where, parent, fd);
	k->depth--;
	path_cut(k, length);
	return r;
}

static int start(struct walker *k, int startfd, enum where where)
{
	int r, fd = openat(startfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return closed(k, startfd, ".", where, where, -errno);
	r = where != IN_REST ? path_push(k, k->p->path) : 0;
	if (r < 0)
		shms_close_fd(fd);
	else
		r = walk(k, startfd, ".", fd, where);
	path_cut(k, 0);
	return r;
}

int shms_walk_run(struct shms_walk *w, struct shmstore_partition *p)
{
	struct walker k = {.w = w, .p = p};
	int r = 0;

	w->n_unreadable = 0;
	if (w->flags & SHMS_WALK_REST)
		w->flags |= SHMS_WALK_ENTRIES;
	if (fstat(p->fd, &k.root) < 0)
		return shms_error(errno);
	if (w->flags & SHMS_WALK_REST) {
		bool whole = false;
		_fd_ int fd = shms_mount_open(p->device, p->mount, &whole);
		struct stat st;

		if (fd < 0 && shms_fatal(fd))
			return fd;
		if (fd < 0 || !whole)
			w->n_unreadable++;
		if (fd >= 0 && fstat(fd, &st) == 0) {
			k.met = st.st_ino == k.root.st_ino;
			r = start(&k, fd, k.met ? IN_ROOT : IN_REST);
		}
	}
	/* The mount we could look at may not lead to the partition. */
	if (r == 0 && !k.met)
		r = start(&k, p->fd, IN_ROOT);
	free(k.path);
	return r;
}

int shms_walk_stores(struct shmstore_partition *p,
		     int (*fn)(const struct shms_walk_store *store, void *arg), void *arg)
{
	return shms_walk_run(&(struct shms_walk){.store = fn, .arg = arg}, p);
}

int shms_walk_one(struct shms_walk *w, int storefd)
{
	struct walker k = {.w = w};
	struct shms_walk_store s = {
		.path = "", .name = "", .below = "", .number = 1, .parentfd = -1, .fd = storefd};
	struct stat page;
	int r;

	w->n_unreadable = 0;
	w->flags = SHMS_WALK_ENTRIES;
	if (fstat(storefd, &s.st) < 0 ||
	    fstatat(storefd, SHMS_PAGE_FILE, &page, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	r = store_entries(&k, &s, &page);
	free(k.path);
	return r;
}
