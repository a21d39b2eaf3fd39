/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker.c: moves a lease from its donor's store into another user's inbox.
 *
 * We are root and walk through directories that users may change at any moment, so nothing is
 * believed of a path. Of the path that the sender names only the last two components are used,
 * below the store that it registered; every directory is opened without following anything, and
 * must be the sender's own. The file is held by an O_PATH descriptor from the first look at it on,
 * and it is this inode that is checked, made readable and linked (by /proc/self/fd): a name swapped
 * meanwhile changes nothing. It is never opened: what waits in a FIFO, a lease or a device does not
 * concern us. Whether it is an object at all the receiver checks, as it checks every object.
 *
 * The descriptor does not keep the file's content: O_PATH is no open file to the donor's test
 * before it recycles one. So after the access list is set, which keeps it for good, we look whether
 * the lease still names the file.
 *
 * Order: the access list, a second look at the lease, the link in the inbox, the donor's lease.
 * Killed after the first: a reader more on a file of which the receiver has no name, in directories
 * that it may not enter. After the second: a lease too many, until it expires.
 *
 * Rejected: renaming the lease (what arrives is what had the name at that instant, which may be
 * another file than the one that was checked, and the receiver sees it before we can take it back);
 * changing the file's owner (its donor pays for the memory).
 */
#include "broker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beneath.h"
#include "log.h"
#include "pagewords.h"
#include "wire.h"

/*
 * The users' inboxes.
 *
 * An inbox is made by the public API as root's own store beside its place, given to its user from
 * the inside out, and renamed to its name last: killed anywhere, the next call goes on with what is
 * there. Nobody but root can get in between, since inbox/ is root's and what is being made is 0700.
 * An inbox/ that is not root's is exchanged against one that is, in one step, so that its maker
 * cannot win by making it again.
 *
 * From then on the inbox is its user's, who may do with it as they please, and gets no
 * more where they broke it: every part is opened without following symlinks and checked
 * by its descriptor, each time.
 *
 * Rejected: a child that takes the user's identity to make the store (fork in a process
 * with threads, for a chown); stores/inbox-<uid> (first come, first served in a
 * directory that all may write to).
 */
static const char *const PARTS[] = {"objects", "recycle", "handoff", WIRE_PAGE_FILE};

/* Is fd a directory of uid's, which nobody else may write to? 0, -EPERM, -errno. */
static int check_owner(int fd, uid_t uid)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == uid && !(st.st_mode & 022) ? 0 : -EPERM;
}

/* Opens the directory, which has to be such a one. -ELOOP, -ENOTDIR: it is none. */
static int open_own(int at, const char *name, uid_t uid)
{
	int fd = beneath_open(at, name, O_RDONLY | O_DIRECTORY),
	    r = fd < 0 ? fd : check_owner(fd, uid);

	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}

/* ---- inbox/ ---------------------------------------------------------------------------------- */

/* Puts a fresh directory of ours in the place of what somebody else made there. The old one stays
 * as .inbox-<number>, its maker's. */
static int oust(int partition_fd)
{
	char name[32];
	uint64_t number;
	int fd, r;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -EIO;
	snprintf(name, sizeof(name), ".inbox-%016llx", (unsigned long long)number);
	if (mkdirat(partition_fd, name, 0700) < 0)
		return -errno;
	fd = open_own(partition_fd, name, geteuid());
	r = fd < 0 ? fd : 0;
	if (r == 0 && fchmod(fd, 0755) < 0)
		r = -errno;
	if (r == 0 && renameat2(partition_fd, name, partition_fd, WIRE_INBOX, RENAME_EXCHANGE) < 0)
		r = -errno;
	/* Ours where that failed; else whoever made it may have filled it: then it is left. */
	if (unlinkat(partition_fd, name, AT_REMOVEDIR) < 0)
		unlinkat(partition_fd, name, 0);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	log_say(LOG_WARNING, LOG_FIELDS(.object = WIRE_INBOX),
		"somebody else's inbox/ was replaced by our own");
	return fd;
}

static int open_root(int partition_fd)
{
	int fd, r = mkdirat(partition_fd, WIRE_INBOX, 0755) < 0 ? -errno : 0;

	if (r < 0 && r != -EEXIST)
		return r;
	fd = beneath_open(partition_fd, WIRE_INBOX, O_RDONLY | O_DIRECTORY);
	if (fd == -ELOOP || fd == -ENOTDIR)
		return oust(partition_fd);
	if (fd < 0)
		return fd;
	if (check_owner(fd, geteuid()) == 0) {
		/* All must be able to pass, whatever our umask is. */
		r = r == 0 && fchmod(fd, 0755) < 0 ? -errno : 0;
		if (r == 0)
			return fd;
		close(fd);
		return r;
	}
	close(fd);
	return oust(partition_fd);
}

/* ---- one user's ------------------------------------------------------------------------------ */

static int make_store(struct shmstore_partition *p, uid_t uid, const char *making)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	char directory[64], name[32];
	struct shmstore *s;
	int r;

	snprintf(directory, sizeof(directory), WIRE_INBOX "/%s", making);
	snprintf(name, sizeof(name), "inbox-%u", (unsigned)uid);
	o.keep = true;
	o.label = "inbox";
	o.directory = directory;
	o.recycle_max = 0;
	o.flags = SHMSTORE_OPEN_FRESH;
	o.daemon = SHMSTORE_DAEMON_OFF;
	r = shmstore_open(p, name, &o, &s);
	return r < 0 ? r : shmstore_close(s);
}

static int make(struct shmstore_partition *p, int root_fd, uid_t uid, const char *name)
{
	char making[32];
	struct stat st;
	int fd, r = 0;

	snprintf(making, sizeof(making), ".making-%u", (unsigned)uid);
	/* Given already: a daemon was killed between this and the rename. */
	if (fstatat(root_fd, making, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid != uid ||
	    uid == geteuid()) {
		r = make_store(p, uid, making);
		if (r < 0)
			return r;
		fd = beneath_open(root_fd, making, O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return fd;
		/* Its directory last: until then nobody else is inside. */
		for (size_t i = 0; r == 0 && i < sizeof(PARTS) / sizeof(PARTS[0]); i++)
			if (fchownat(fd, PARTS[i], uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
				r = -errno;
		if (r == 0 && fchown(fd, uid, (gid_t)-1) < 0)
			r = -errno;
		close(fd);
	}
	if (r == 0 && renameat2(root_fd, making, root_fd, name, RENAME_NOREPLACE) < 0)
		r = -errno;
	return r;
}

/* The open handoff/ of an inbox. -ENOENT: there is no inbox, or it lost its handoff/. */
static int open_handoff(int root_fd, uid_t uid, const char *name)
{
	char path[48];
	int fd = open_own(root_fd, name, uid);

	if (fd < 0)
		return fd;
	close(fd);
	snprintf(path, sizeof(path), "%s/handoff", name);
	fd = open_own(root_fd, path, uid);
	return fd == -ELOOP || fd == -ENOTDIR ? -EPERM : fd;
}

int inbox_open(struct shmstore_partition *p, int partition_fd, uid_t uid, int *ret_fd,
	       const char **ret_why)
{
	char name[16];
	int fd, root_fd = open_root(partition_fd);

	*ret_why = "the partition's inbox/ cannot be made";
	if (root_fd < 0)
		return root_fd;
	snprintf(name, sizeof(name), "%u", (unsigned)uid);
	fd = open_handoff(root_fd, uid, name);
	if (fd == -ENOENT) {
		/* Its user took it apart, or it never was. */
		int r = unlinkat(root_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -EPERM : 0;

		*ret_why = "the receiver's inbox cannot be made";
		fd = r < 0 ? r : make(p, root_fd, uid, name);
		if (fd == 0)
			fd = open_handoff(root_fd, uid, name);
	}
	close(root_fd);
	if (fd == -EPERM)
		*ret_why = "the receiver made something else of its inbox; removing what is in it "
			   "helps";
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

/* ---- room ------------------------------------------------------------------------------------ */

static DIR *list(int fd)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own >= 0 ? fdopendir(own) : NULL;

	if (!dir && own >= 0)
		close(own);
	return dir;
}

/* Is the name still there, after an expired lease was removed? And whose is it? */
static bool stays(int fd, const char *name, uint64_t now_ms, struct stat *ret)
{
	uint64_t expiry;

	if (shms_lease_parse(name, &expiry) && expiry <= now_ms && unlinkat(fd, name, 0) == 0)
		return false;
	return fstatat(fd, name, ret, AT_SYMLINK_NOFOLLOW) == 0;
}

int inbox_room(int fd, uid_t donor, uint64_t now_ms)
{
	unsigned n = 0, n_donor = 0;
	struct dirent *e;
	struct stat st;
	DIR *dir = list(fd);

	if (!dir)
		return -errno;
	/* The names alone say in most cases that there is room. */
	while (n < INBOX_LEASES_DONOR_MAX && (e = readdir(dir)) != NULL)
		n += e->d_name[0] != '.';
	if (n == INBOX_LEASES_DONOR_MAX) {
		n = 0;
		rewinddir(dir);
		while (n < INBOX_LEASES_MAX && n_donor < INBOX_LEASES_DONOR_MAX &&
		       (e = readdir(dir)) != NULL) {
			if (e->d_name[0] == '.' || !stays(fd, e->d_name, now_ms, &st))
				continue;
			n++;
			n_donor += st.st_uid == donor;
		}
	}
	closedir(dir);
	return n < INBOX_LEASES_MAX && n_donor < INBOX_LEASES_DONOR_MAX ? 0 : -EDQUOT;
}

#define PROC_FD_SIZE 32

struct source {
	const char *name; /* in dir_fd */
	int dir_fd;
	int fd; /* O_PATH */
	char proc[PROC_FD_SIZE];
	uint64_t expiry_ms;
	struct stat st;
	acl_t had; /* the access list that it came with */
};

static int fail(struct broker_answer *ret, int error, const char *why)
{
	ret->why = why;
	return error;
}

/* The name of the lease (of the object) that the sender means: its path must lie in its own store
 * by its text. NULL: it does not. */
static const char *own_name(const struct broker_ask *ask, const char *part)
{
	char own[PATH_MAX + 16];
	const char *last = strrchr(ask->path, '/');
	size_t n = (size_t)snprintf(own, sizeof(own), "/%s/%s/", ask->store, part);

	if (!last || (size_t)(last + 1 - ask->path) < n || !last[1])
		return NULL;
	return strncmp(last + 1 - n, own, n) == 0 ? last + 1 : NULL;
}

static int open_part(const struct broker_ask *ask, const char *part, struct source *from,
		     struct broker_answer *ret)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", ask->store, part);
	from->dir_fd = beneath_open(ask->partition_fd, path, O_RDONLY | O_DIRECTORY);
	if (from->dir_fd < 0)
		return fail(ret, -ESTALE, "the sender's store is gone");
	if (check_owner(from->dir_fd, ask->from) < 0)
		return fail(ret, -EPERM, "the sender's store is not its own");
	return 0;
}

static int open_file(const struct broker_ask *ask, struct source *from, struct broker_answer *ret)
{
	from->fd = beneath_open(from->dir_fd, from->name, O_PATH | O_NOFOLLOW);
	if (from->fd < 0)
		return from->fd == -ENOENT
			       ? fail(ret, -ESTALE,
				      "there is no such lease: it was taken, or it expired")
			       : fail(ret, -EBADMSG, "the lease cannot be opened");
	if (fstat(from->fd, &from->st) < 0 || !S_ISREG(from->st.st_mode))
		return fail(ret, -EBADMSG, "the lease is no regular file");
	snprintf(from->proc, sizeof(from->proc), "/proc/self/fd/%d", from->fd);
	if (ask->lease_ms)
		return 0;
	if (from->st.st_uid != ask->from)
		return fail(ret, -EPERM,
			    "the object is another user's: only its owner may hand it on");
	if (from->st.st_mode & 06333) /* the sticky bit says that it is pinned */
		return fail(ret, -EBADMSG,
			    "others than its owner may write to the file, or it may be executed");
	return 0;
}

/* Finds the file, and checks it. */
static int find(const struct broker_ask *ask, struct source *from, struct broker_answer *ret)
{
	const char *part = ask->lease_ms ? "objects" : "handoff";
	uint64_t now_ms = shmstore_lease_clock_ms();
	int r;

	from->name = own_name(ask, part);
	if (!from->name)
		return fail(ret, -EPERM, "the path is not one of the sender's own store");
	from->expiry_ms = now_ms + ask->lease_ms;
	if (!ask->lease_ms && !shms_lease_parse(from->name, &from->expiry_ms))
		return fail(ret, -EPERM, "the path is not that of a lease");
	if (from->expiry_ms <= now_ms)
		return fail(ret, -ESTALE, "the lease has expired");
	if (from->expiry_ms > now_ms + WIRE_BROKER_LEASE)
		return fail(ret, -EINVAL, "a lease for another user may last a day at most");
	r = open_part(ask, part, from, ret);
	return r < 0 ? r : open_file(ask, from, ret);
}

/* Lets the receiver read the file, whatever becomes of its names. */
static int make_readable(const struct broker_ask *ask, struct source *from,
			 struct broker_answer *ret)
{
	static const char none[] = "the partition's file system has no access lists (tmpfs needs "
				   "CONFIG_TMPFS_POSIX_ACL)";
	acl_t list;
	bool done;
	int error;

	from->had = acl_get_file(from->proc, ACL_TYPE_ACCESS);
	if (!from->had)
		return errno == ENOTSUP
			       ? fail(ret, -ENOTSUP, none)
			       : fail(ret, -EPERM, "the object's access list cannot be read");
	list = acl_with_reader(from->had, ask->to);
	if (!list)
		return errno == EDQUOT
			       ? fail(ret, -EDQUOT, "the object was handed to too many users")
			       : fail(ret, -ENOSPC,
				      "there is no memory for the object's access list");
	done = acl_set_file(from->proc, ACL_TYPE_ACCESS, list) == 0;
	error = errno;
	acl_free(list);
	if (done)
		return 0;
	switch (error) {
	case ENOTSUP:
		return fail(ret, -ENOTSUP, none);
	case ENOSPC:
	case ENOMEM:
		return fail(ret, -ENOSPC, "there is no memory for the object's access list");
	default:
		return fail(ret, -EPERM, "the object's access list cannot be changed");
	}
}

/*
 * While the lease has its name, its donor does not write to the file again; from the access list
 * on, never (recycle.c). In between the lease may have ended and been collected, and the file may
 * hold what the donor put next: that nobody gave away. Then the list is again what it was. Nobody
 * could read the file by it meanwhile: its names are in directories of the donor's alone.
 */
static int look_again(const struct source *from, struct broker_answer *ret)
{
	struct stat st;

	if (fstatat(from->dir_fd, from->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == from->st.st_ino && st.st_dev == from->st.st_dev)
		return 0;
	/* Of a file that had none this list says what the mode said, and
	 * the kernel keeps no list. */
	if (acl_set_file(from->proc, ACL_TYPE_ACCESS, from->had) < 0)
		return fail(ret, -EIO,
			    "the lease was taken meanwhile, and the file's access list cannot be "
			    "set back");
	return fail(ret, -ESTALE, "the lease was taken meanwhile, or it expired");
}

/* The file's name in the inbox; then the donor's lease goes. */
static int deliver(const struct broker_ask *ask, const struct source *from, int inbox_fd,
		   struct broker_answer *ret)
{
	char lease[SHMS_LEASE_NAME_SIZE];
	struct stat st;

	if (leasename_make(from->expiry_ms, lease) < 0)
		return fail(ret, -EIO, "there are no random numbers");
	if (linkat(AT_FDCWD, from->proc, inbox_fd, lease, AT_SYMLINK_FOLLOW) < 0) {
		switch (errno) {
		case ENOENT:
			return fail(ret, -ESTALE, "the lease was taken meanwhile");
		case ENOSPC:
			return fail(ret, -ENOSPC, "the partition has no room for one more name");
		default:
			return fail(ret, -EPERM,
				    "the lease cannot be linked into the receiver's inbox");
		}
	}
	if (!ask->lease_ms && fstatat(from->dir_fd, from->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == from->st.st_ino)
		unlinkat(from->dir_fd, from->name, 0);
	snprintf(ret->path, sizeof(ret->path), WIRE_INBOX "/%u/handoff/%s", (unsigned)ask->to,
		 lease);
	ret->bytes = (uint64_t)from->st.st_blocks * 512;
	return 0;
}

static int run(const struct broker_ask *ask, struct source *from, int *inbox_fd,
	       struct broker_answer *ret)
{
	int r = find(ask, from, ret);

	if (r < 0)
		return r;
	r = inbox_open(ask->partition, ask->partition_fd, ask->to, inbox_fd, &ret->why);
	if (r < 0)
		return r;
	if (inbox_room(*inbox_fd, from->st.st_uid, shmstore_lease_clock_ms()) < 0)
		return fail(ret, -EDQUOT,
			    "the receiver's inbox is full: it has to take, or to delete, what is "
			    "there");
	if (!ask->lease_ms)
		r = make_readable(ask, from, ret);
	if (r == 0 && !ask->lease_ms)
		r = look_again(from, ret);
	return r < 0 ? r : deliver(ask, from, *inbox_fd, ret);
}

int broker_run(const struct broker_ask *ask, struct broker_answer *ret)
{
	struct source from = {.dir_fd = -1, .fd = -1};
	int inbox_fd = -1, r = run(ask, &from, &inbox_fd, ret);

	acl_free(from.had);
	if (inbox_fd >= 0)
		close(inbox_fd);
	if (from.fd >= 0)
		close(from.fd);
	if (from.dir_fd >= 0)
		close(from.dir_fd);
	return r;
}
