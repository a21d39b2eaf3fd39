/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partition.c: making and opening a partition: a directory on a tmpfs with
 * a marker, stores/ and peers/.
 *
 * The marker is text, linked into place whole and last: a directory with a marker is a complete
 * partition. Killed before that leaves empty stores/ and peers/, with which the next creation goes
 * on. A partition object holds one descriptor, by which these are found, and is constant after
 * open; references are counted.
 */
#include "partition.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "hexdigits.h"
#include "mount.h"
#include "page.h"
#include "sys.h"

#define SHARED_MARKER 0444 /* mode of a shared partition's marker */
#define OPEN_FLAGS    (SHMSTORE_CREATE | SHMSTORE_ALLOW_DISK | SHMSTORE_SHARED | SHMSTORE_TRUSTED)

struct marker {
	uint32_t version;
	char uuid[37];
	char boot[33];
	bool disk;
};

/* The marker's text, fixed in form so that a damaged one is told from another version's. */
static int parse_marker(const char *text, struct marker *ret)
{
	struct marker m = {0};
	char disk[8];
	int end = 0;

	if (sscanf(text, "shmstore partition %u\n", &m.version) != 1)
		return -EBADMSG;
	if (m.version != SHMS_MARKER_VERSION)
		return shms_detail(
			-ENOTSUP, NULL,
			"the marker is of format version %u; this library knows version %u",
			m.version, SHMS_MARKER_VERSION);
	if (sscanf(text,
		   "shmstore partition %*u\nuuid %36[0-9a-f-]\nboot %32[0-9a-f]\non %7[a-z]\n%n",
		   m.uuid, m.boot, disk, &end) != 3 ||
	    end == 0 || text[end] != '\0' || text[end - 1] != '\n' || strlen(m.uuid) != 36 ||
	    strlen(m.boot) != 32)
		return -EBADMSG;
	m.disk = strcmp(disk, "disk") == 0;
	if (!m.disk && strcmp(disk, "tmpfs") != 0)
		return -EBADMSG;
	*ret = m;
	return 0;
}

static int read_marker(int dirfd, struct marker *ret)
{
	char text[256];
	_fd_ int fd =
		openat(dirfd, SHMS_MARKER_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	int r = fd < 0 ? shms_error(errno) : shms_read_whole(fd, text, sizeof(text));

	return r < 0 ? r : parse_marker(text, ret);
}

static int write_marker(int dirfd, bool disk, mode_t mode)
{
	uint8_t id[16];
	char hex[32], boot[33], text[256];
	int n, r;

	_fd_ int fd = shms_unnamed_open(&(struct shms_unnamed){dirfd, dirfd, "."}, O_WRONLY, mode);
	if (fd < 0)
		return shms_error(errno);
	shms_random(id, sizeof(id));
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40); /* RFC 4122, version 4 */
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
	shms_hexdigits_write_bytes(id, sizeof(id), hex);
	shms_boot_text(boot);
	n = snprintf(text, sizeof(text),
		     "shmstore partition %u\nuuid %.8s-%.4s-%.4s-%.4s-%.12s\nboot %s\non %s\n",
		     SHMS_MARKER_VERSION, hex, hex + 8, hex + 12, hex + 16, hex + 20, boot,
		     disk ? "disk" : "tmpfs");
	r = shms_write_at(fd, text, (size_t)n, 0);
	if (r < 0)
		return shms_error(r);
	r = shms_link_fd(fd, dirfd, SHMS_MARKER_FILE);
	return r == -EEXIST ? 0 : shms_error(r);
}

/* Is there anything that we would not have made? */
static int check_empty(int dirfd)
{
	_names_ struct shms_names d = shms_names(dirfd, ".");

	d.error = shms_error(d.error);
	while (shms_names_next(&d)) {
		if (strcmp(d.name, SHMS_MARKER_FILE) != 0 && strcmp(d.name, SHMS_DIR_STORES) != 0 &&
		    strcmp(d.name, SHMS_DIR_PEERS) != 0 && strcmp(d.name, SHMS_DIR_INBOX) != 0 &&
		    !shms_unnamed_is(d.name))
			return -EEXIST;
	}
	return d.error;
}

/* By descriptor: a name that somebody put there before us may be a symlink to
 * what is not ours to change. */
static int make_dir(int dirfd, const char *name, mode_t mode)
{
	if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
		return shms_error(errno);
	_fd_ int fd = shms_open_dir(dirfd, name);
	if (fd < 0)
		return fd == -ELOOP || fd == -ENOTDIR
			       ? shms_detail(-EPERM, NULL,
					     "something that is no directory is where %s is to be",
					     name)
			       : shms_error(fd);
	return fchmod(fd, mode) < 0 ? shms_error(errno) : 0;
}

/* Ends the sharing of a partition that a kill cut short before its last step. */
static int finish_shared(int dirfd, const struct stat *st)
{
	struct stat marker;

	if (st->st_uid != geteuid() || (st->st_mode & 07777) == 01777 ||
	    fstatat(dirfd, SHMS_MARKER_FILE, &marker, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (marker.st_mode & 07777) != SHARED_MARKER)
		return 0;
	return fchmod(dirfd, 01777) < 0 ? shms_error(errno) : 0;
}

static int create(int dirfd, bool tmpfs, unsigned flags)
{
	bool shared = (flags & SHMSTORE_SHARED) != 0;
	int r;

	if (!tmpfs && !(flags & SHMSTORE_ALLOW_DISK))
		return -ENOTSUP;
	r = check_empty(dirfd);
	/* For several users the directory itself is opened to them last: until then nobody else
	 * can put anything in its place. */
	if (r == 0 && shared && fchmod(dirfd, 0755) < 0)
		r = shms_error(errno);
	if (r == 0)
		r = make_dir(dirfd, SHMS_DIR_STORES, shared ? 01777 : 0700);
	if (r == 0)
		r = make_dir(dirfd, SHMS_DIR_PEERS, shared ? 01777 : 0700);
	/* Root's own: shmstored puts there what comes from other users. */
	if (r == 0 && shared && geteuid() == 0)
		r = make_dir(dirfd, SHMS_DIR_INBOX, 0755);
	if (r == 0)
		r = write_marker(dirfd, !tmpfs, shared ? SHARED_MARKER : 0400);
	if (r == 0 && shared && fchmod(dirfd, 01777) < 0)
		r = shms_error(errno);
	return r;
}

#define MAKE_IT \
	"make it with shmstore-admin -p %s init, or open it with SHMSTORE_CREATE (create=True)"

static int cannot_open(const char *path, int error)
{
	struct stat st;

	switch (error) {
	case ENOENT:
		return shms_detail(-ENOENT, NULL, "there is no directory %s; " MAKE_IT, path, path);
	case ENOTDIR:
		return shms_detail(-ENOENT, NULL, "%s, or what is above it, is no directory", path);
	case EACCES:
	case EPERM:
		/* fs.protected_symlinks: in a directory that all may write to. */
		if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
			return shms_detail(
				-EPERM, NULL,
				"%s is a symlink of user %u, and user %u may not follow it, or not "
				"open where it leads; name the directory itself",
				path, (unsigned)st.st_uid, (unsigned)geteuid());
		return shms_detail(-EPERM, NULL, "user %u may not open %s", (unsigned)geteuid(),
				   path);
	default:
		return shms_detail(shms_error(error), NULL, "%s cannot be opened: %s", path,
				   strerror(error));
	}
}

static int not_on_disk(const char *path)
{
	return shms_detail(-ENOTSUP, NULL,
			   "%s is on disk, not on a tmpfs; SHMSTORE_ALLOW_DISK (init --allow-disk) "
			   "makes a partition there all the same",
			   path);
}

/* One step after the other, each with its error.
 * NOLINTNEXTLINE(readability-function-cognitive-complexity) */
static int open_dirs(struct shmstore_partition *p, const char *path, unsigned flags)
{
	struct marker m;
	struct statfs fs;
	struct stat st;
	char boot[33];
	int r;

	p->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->fd < 0)
		return cannot_open(path, errno);
	if (fstatfs(p->fd, &fs) < 0 || fstat(p->fd, &st) < 0)
		return shms_error(errno);
	/* Before anything in it is believed, or made. */
	if ((flags & SHMSTORE_TRUSTED) && st.st_uid != geteuid() && st.st_uid != 0)
		return shms_detail(-EPERM, path,
				   "the partition %s belongs to user %u: only one of our user (%u) "
				   "or of root is taken for granted; who means this one names it",
				   path, (unsigned)st.st_uid, (unsigned)geteuid());
	p->tmpfs = fs.f_type == TMPFS_MAGIC;
	p->device = st.st_dev;
	r = read_marker(p->fd, &m);
	if (r == -ENOENT && (flags & SHMSTORE_CREATE)) {
		r = create(p->fd, p->tmpfs, flags);
		if (r == 0)
			r = read_marker(p->fd, &m);
		if (r == -EEXIST)
			shms_detail(
				r, NULL,
				"%s holds files that are no partition's; choose an empty directory",
				path);
		else if (r == -ENOTSUP && !p->tmpfs && !(flags & SHMSTORE_ALLOW_DISK))
			not_on_disk(path);
	} else if (r == -ENOENT && !p->tmpfs) {
		r = not_on_disk(path);
	} else if (r == 0 && (flags & SHMSTORE_CREATE) && (flags & SHMSTORE_SHARED)) {
		r = finish_shared(p->fd, &st);
	}
	if (r == -ENOENT)
		return shms_detail(r, NULL, "%s is no partition yet; " MAKE_IT, path, path);
	if (r == -EBADMSG)
		return shms_detail(r, NULL,
				   "the marker %s/.shmstore is damaged; make the partition anew in "
				   "an empty directory",
				   path);
	if (r < 0)
		return r;
	if (!p->tmpfs && !m.disk)
		return not_on_disk(path);
	if (fstat(p->fd, &st) < 0)
		return shms_error(errno);
	p->open_to_others = st.st_uid != geteuid() || (st.st_mode & 077);
	shms_boot_text(boot);
	p->same_boot = p->tmpfs || strcmp(boot, m.boot) == 0;
	p->version = m.version;
	memcpy(p->uuid, m.uuid, sizeof(p->uuid));
	_fd_ int stores_fd = shms_open_dir(p->fd, SHMS_DIR_STORES);
	_fd_ int peers_fd = stores_fd < 0 ? stores_fd : shms_open_dir(p->fd, SHMS_DIR_PEERS);
	return peers_fd >= 0 ? 0 : peers_fd == -ENOENT ? -EBADMSG : shms_error(peers_fd);
}

int shmstore_default_path(char *ret_path, size_t size)
{
	const char *from = getenv("SHMSTORE_PARTITION");
	char path[PATH_MAX];
	size_t n = 0;

	if (!ret_path)
		return shms_detail_null("ret_path");
	if (!from || !*from) {
		for (const char *s = SHMSTORE_DEFAULT_PARTITION; *s && n < sizeof(path) - 16; s++) {
			if (s[0] == '%' && s[1] == 'u') {
				n += (size_t)snprintf(path + n, 16, "%u", (unsigned)geteuid());
				s++;
			} else {
				path[n++] = *s;
			}
		}
		path[n] = '\0';
		from = path;
	}
	if (strlen(from) >= size)
		return shms_detail(-EINVAL, NULL, "%zu bytes are too few for the path %.256s", size,
				   from);
	memcpy(ret_path, from, strlen(from) + 1);
	return 0;
}

static void deinit(struct shmstore_partition *p)
{
	if (p->tier)
		p->tier_close(p->tier);
	shms_turns_deinit(&p->making);
	pthread_mutex_destroy(&p->tier_lock);
	shms_close_fd(p->fd);
	free(p->path);
	free(p->mount);
	free(p);
}

/* The canonical path and the mount it is on. */
static int find_paths(struct shmstore_partition *p, const char *path)
{
	char mount[PATH_MAX], link[48];

	/* The descriptor's own path: the one that was opened, whatever
	 * happens to the name meanwhile. */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", p->fd);
	p->path = realpath(link, NULL);
	if (!p->path)
		p->path = realpath(path, NULL);
	if (!p->path)
		return shms_error(errno);
	if (shms_mount_find(p->path, p->device, mount, sizeof(mount), p->huge, sizeof(p->huge)) < 0)
		/* No /proc: everything but the walk over the rest of the mount works. */
		snprintf(mount, sizeof(mount), "%s", p->path);
	p->mount = strdup(mount);
	return p->mount ? 0 : -ENOMEM;
}

int shmstore_partition_open(const char *path, unsigned flags, struct shmstore_partition **ret)
{
	char named[PATH_MAX];
	struct shmstore_partition *p;
	bool made = false;
	int r;

	if (!ret || (flags & ~OPEN_FLAGS))
		return !ret ? shms_detail_null("ret") : shms_detail_flags(flags, OPEN_FLAGS);
	if (!path) {
		r = shmstore_default_path(named, sizeof(named));
		if (r < 0)
			return r;
		path = named;
		flags |= SHMSTORE_TRUSTED;
	}
	if (!*path || strlen(path) >= PATH_MAX)
		return shms_detail(-EINVAL, NULL,
				   "the partition's path is empty, or longer than a path may be");
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->fd = -1;
	shms_turns_init(&p->making);
	pthread_mutex_init(&p->tier_lock, NULL);
	atomic_init(&p->n_ref, 1);
	r = open_dirs(p, path, flags);
	if (r == -ENOENT && p->fd < 0 && (flags & SHMSTORE_CREATE)) {
		made = mkdirat(AT_FDCWD, path, 0700) == 0;
		r = made || errno == EEXIST ? open_dirs(p, path, flags) : shms_error(errno);
	}
	if (r == 0)
		r = find_paths(p, path);
	if (r < 0 && made)
		/* what we cannot make a partition of, e.g. on disk, we do not leave behind */
		rmdir(path);
	if (r < 0) {
		deinit(p);
		return r;
	}
	*ret = p;
	return 0;
}

uint64_t shms_partition_n_stores(const struct shmstore_partition *p)
{
	struct stat st;

	/* A directory of a tmpfs has a link of each directory in it, and two of its own. */
	return fstatat(p->fd, SHMS_DIR_STORES, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink > 2
		       ? st.st_nlink - 2
		       : 0;
}

struct shmstore_partition *shmstore_partition_ref(struct shmstore_partition *p)
{
	if (p)
		atomic_fetch_add_explicit(&p->n_ref, 1, memory_order_relaxed);
	return p;
}

struct shmstore_partition *shmstore_partition_unref(struct shmstore_partition *p)
{
	SHMS_NO_CANCEL;

	/* Release so that all uses of p come before the free; acquire on
	 * the last one pairs with it. */
	if (p && atomic_fetch_sub_explicit(&p->n_ref, 1, memory_order_acq_rel) == 1)
		deinit(p);
	return NULL;
}

const char *shmstore_partition_path(const struct shmstore_partition *p)
{
	return p->path;
}

int shmstore_partition_info(struct shmstore_partition *p, struct shmstore_partition_info *ret)
{
	struct statvfs fs;
	struct stat st;

	if (!p || !ret)
		return shms_detail_null(!p ? "p" : "ret");
	if (fstatvfs(p->fd, &fs) < 0 || fstat(p->fd, &st) < 0)
		return shms_error(errno);
	*ret = (struct shmstore_partition_info){
		.size = sizeof(*ret),
		.path = p->path,
		.mount = p->mount,
		.version = p->version,
		.tmpfs = p->tmpfs,
		.same_boot = p->same_boot,
		.bytes_size = (uint64_t)fs.f_blocks * fs.f_frsize,
		.bytes_used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize,
		.bytes_available = (uint64_t)fs.f_bavail * fs.f_frsize,
		.inodes_size = fs.f_files,
		.inodes_used = fs.f_files - fs.f_ffree,
		.inodes_free = fs.f_ffree,
		.device = st.st_dev,
		.uid = st.st_uid,
		.mode = st.st_mode & 07777,
	};
	memcpy(ret->uuid, p->uuid, sizeof(ret->uuid));
	memcpy(ret->huge, p->huge, sizeof(ret->huge));
	return 0;
}
