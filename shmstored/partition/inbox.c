/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox.c: the users' inboxes.
 *
 * An inbox is made by the public API as root's own store beside its place, given to its user from the inside out, and renamed to its
 * name last: killed anywhere, the next call goes on with what is there. Nobody but root can get in between, since inbox/ is root's
 * and what is being made is 0700. An inbox/ that is not root's is exchanged against one that is, in
 * one step, so that its maker cannot win by making it again.
 *
 * From then on the inbox is its user's, who may do with it as they please, and gets no more where they broke it: every part is
 * opened without following symlinks and checked by its descriptor, each time.
 *
 * Rejected: a child that takes the user's identity to make the store (fork in a process with threads, for a chown); stores/inbox-<uid>
 * (first come, first served in a directory that all may write to).
 */
#include "inbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beneath.h"
#include "leasename.h"
#include "log.h"
#include "pagewords.h"
#include "wire.h"

static const char *const PARTS[] = {"objects", "recycle", "handoff", WIRE_PAGE_FILE};

/* Is fd a directory of uid's, which nobody else may write to? 0, -EPERM, -errno. */
static int check_owner(int fd, uid_t uid)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == uid && !(st.st_mode & 022) ? 0 : -EPERM;
}

/* ---- inbox/ -------------------------------------------------------------------------------------------------------- */

/* Puts a fresh directory of ours in the place of what somebody else made there. The old one stays as .inbox-<number>, its maker's. */
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
	fd = beneath_open(partition_fd, name, O_RDONLY | O_DIRECTORY);
	r = fd < 0 ? fd : check_owner(fd, geteuid());
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
	log_say(LOG_WARNING, LOG_FIELDS(.object = WIRE_INBOX), "somebody else's inbox/ was replaced by our own");
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

/* ---- one user's ---------------------------------------------------------------------------------------------------- */

/* Gives the store in the directory fd, ours so far, to uid. Its directory last: until then nobody else is inside. */
static int give(int fd, uid_t uid)
{
	for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
		if (fchownat(fd, PARTS[i], uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	return fchown(fd, uid, (gid_t)-1) < 0 ? -errno : 0;
}

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
	if (fstatat(root_fd, making, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid != uid || uid == geteuid()) {
		r = make_store(p, uid, making);
		if (r < 0)
			return r;
		fd = beneath_open(root_fd, making, O_RDONLY | O_DIRECTORY);
		if (fd < 0)
			return fd;
		r = give(fd, uid);
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
	int r, fd = beneath_open(root_fd, name, O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return fd;
	r = check_owner(fd, uid);
	close(fd);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/handoff", name);
	fd = beneath_open(root_fd, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd == -ELOOP || fd == -ENOTDIR ? -EPERM : fd;
	r = check_owner(fd, uid);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

int inbox_open(struct shmstore_partition *p, int partition_fd, uid_t uid, int *ret_fd, const char **ret_why)
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
		*ret_why = "the receiver made something else of its inbox; removing what is in it helps";
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

/* ---- room ---------------------------------------------------------------------------------------------------------- */

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
		while (n < INBOX_LEASES_MAX && n_donor < INBOX_LEASES_DONOR_MAX && (e = readdir(dir)) != NULL) {
			if (e->d_name[0] == '.' || !stays(fd, e->d_name, now_ms, &st))
				continue;
			n++;
			n_donor += st.st_uid == donor;
		}
	}
	closedir(dir);
	return n < INBOX_LEASES_MAX && n_donor < INBOX_LEASES_DONOR_MAX ? 0 : -EDQUOT;
}
