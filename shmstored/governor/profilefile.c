/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profilefile.c: see profiles.h. Names: profile-UID; .profile-UID.new while it is written;
 * profile-UID.refused.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles.h"

#define PREFIX       "profile-"
#define FILE_NAME    sizeof(".profile-4294967295.refused")
#define OF_ROOT      "/var/lib/shmstored/profiles"
#define BELOW_STATE  "shmstored/profiles"
#define STATE_OF_OWN ".local/state"

static char *default_path(void)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n;

	if (geteuid() == 0)
		return strdup(OF_ROOT);
	if (state && *state == '/')
		n = asprintf(&path, "%s/" BELOW_STATE, state);
	else if (home && *home == '/')
		n = asprintf(&path, "%s/" STATE_OF_OWN "/" BELOW_STATE, home);
	else
		return NULL;
	return n < 0 ? NULL : path;
}

/* Makes the directory and those above it. */
static int make_directories(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		int r = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
		*slash = '/';
		/* A directory that exists may be on a read-only file system, or unsearchable.
		 * The next one below it shows whether that matters. */
		if (r < 0 && r != -EROFS && r != -EACCES)
			return r;
	}
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* May nobody but us put files there? */
static int check_ours(int fd, mode_t type)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & S_IFMT) != type || (st.st_uid != geteuid() && st.st_uid != 0) ||
	    st.st_mode & 022)
		return -EPERM;
	return 0;
}

int profilefile_open(const char *configured, char **ret_path)
{
	char *path = configured ? strdup(configured) : default_path();
	int fd, r;

	*ret_path = path;
	if (!path)
		return configured ? -ENOMEM : -ENOENT;
	r = make_directories(path);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = check_ours(fd, S_IFDIR);
	if (r == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

static const char *file_name(uint32_t uid, const char *before, const char *after,
			     char ret[FILE_NAME])
{
	snprintf(ret, FILE_NAME, "%s" PREFIX "%u%s", before, (unsigned)uid, after);
	return ret;
}

/* The number behind the prefix, written as we write it. */
static int uid_of(const char *name, uint32_t *ret)
{
	char again[FILE_NAME], *end;
	unsigned long uid;

	if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) != 0)
		return -EINVAL;
	errno = 0;
	uid = strtoul(name + sizeof(PREFIX) - 1, &end, 10);
	if (errno || *end || uid >= UINT32_MAX)
		return -EINVAL;
	*ret = (uint32_t)uid;
	return strcmp(file_name(*ret, "", "", again), name) == 0 ? 0 : -EINVAL;
}

int profilefile_each(int dir_fd, void (*fn)(uint32_t uid, void *arg), void *arg)
{
	struct dirent **list;
	uint32_t uid;
	int n = scandirat(dir_fd, ".", &list, NULL, alphasort);

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		if (uid_of(list[i]->d_name, &uid) == 0)
			fn(uid, arg);
		free(list[i]);
	}
	free(list);
	return 0;
}

static int read_all(int fd, char **ret_text, size_t *ret_n)
{
	struct stat st;
	char *text;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((size_t)st.st_size > PROFILEFILE_MAX)
		return -EFBIG;
	text = malloc((size_t)st.st_size + 1);
	n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
	if (n < 0) {
		int r = text ? -errno : -ENOMEM;

		free(text);
		return r;
	}
	*ret_text = text;
	*ret_n = (size_t)n;
	return 0;
}

int profilefile_read(int dir_fd, uint32_t uid, char **ret_text, size_t *ret_n)
{
	char name[FILE_NAME];
	int fd = openat(dir_fd, file_name(uid, "", "", name),
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
	    r;

	if (fd < 0)
		return errno == ELOOP ? -EPERM : -errno;
	r = check_ours(fd, S_IFREG);
	if (r == 0)
		r = read_all(fd, ret_text, ret_n);
	close(fd);
	return r;
}

static int write_all(int fd, const char *text, size_t n)
{
	while (n) {
		ssize_t put = write(fd, text, n);

		if (put < 0 && errno != EINTR)
			return -errno;
		text += put > 0 ? put : 0;
		n -= put > 0 ? (size_t)put : 0;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

int profilefile_write(int dir_fd, uint32_t uid, const char *text, size_t n)
{
	char name[FILE_NAME], fresh[FILE_NAME];
	int fd, r;

	file_name(uid, "", "", name);
	file_name(uid, ".", ".new", fresh);
	/* A killed daemon may have left one. */
	if (unlinkat(dir_fd, fresh, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, n);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(dir_fd, fresh, dir_fd, name) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dir_fd, fresh, 0);
		return r;
	}
	return fsync(dir_fd) < 0 ? -errno : 0;
}

int profilefile_put_aside(int dir_fd, uint32_t uid)
{
	char name[FILE_NAME], aside[FILE_NAME];

	file_name(uid, "", "", name);
	file_name(uid, "", ".refused", aside);
	return renameat(dir_fd, name, dir_fd, aside) < 0 ? -errno : 0;
}
