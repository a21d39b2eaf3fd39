/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiermark.c: marks of tier directories, and what they prove.
 *
 * A partition is memory: on another boot of the same host it is gone. On the same boot it is
 * gone when no mount of its device is left, and that can be known only to who sees every
 * mount namespace of the host: root in the first pid namespace. A disk may be shared with
 * another host, whose boots say nothing: machine-id tells hosts apart, and where it is
 * missing nothing is concluded from a boot.
 *
 * Device numbers of tmpfs are given anew: one that is mounted may be another's. Each mount of a
 * tmpfs has an fsid of its own, though (since Linux 5.13): where the mark's device is the file
 * system of the partition at hand, and that has another fsid, the mark's is gone. Of any other file
 * system of that device nothing is known here, and the directory stays until the next boot.
 */
#include "tiermark.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "partition.h"
#include "sys.h"

#define TITLE   "shmstore tier files 1"
#define UNKNOWN "-"

/* A host without the file is unknown; one whose file cannot be read just now is an
 * error: a mark is for long. */
static int read_host(char ret[33])
{
	char text[64];
	ssize_t n = shms_read_text("/etc/machine-id", text, sizeof(text));

	if (n < 0 && n != -ENOENT)
		return (int)n;
	text[strcspn(text, "\n")] = '\0';
	if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
		snprintf(text, sizeof(text), UNKNOWN);
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

/* *ret: the number of that mount of a tmpfs; 0: the kernel does not say. 0 or -errno. */
static int read_fsid(const struct shmstore_partition *p, uint64_t *ret)
{
	struct statfs fs;

	*ret = 0;
	if (!p->tmpfs)
		return 0;
	if (fstatfs(p->fd, &fs) < 0)
		return shms_error(errno);
	memcpy(ret, &fs.f_fsid, sizeof(*ret));
	return 0;
}

int shms_tiermark_of(const struct shmstore_partition *p, struct shms_tiermark *ret)
{
	int r;

	*ret = (struct shms_tiermark){.device = p->device};
	memcpy(ret->uuid, p->uuid, sizeof(ret->uuid));
	r = read_fsid(p, &ret->fsid);
	if (r == 0)
		r = read_host(ret->host);
	shms_boot_text(ret->boot);
	snprintf(ret->path, sizeof(ret->path), "%s", p->path);
	return r;
}

/* Boots that could not be read are all zero: they say nothing. */
static bool boot_known(const struct shms_tiermark *m)
{
	return strspn(m->boot, "0") != strlen(m->boot);
}

int shms_tiermark_format(const struct shms_tiermark *m, char ret_text[SHMS_TIERMARK_TEXT])
{
	char fsid[32] = "";
	int n;

	if (strchr(m->path, '\n'))
		return -EINVAL;
	if (m->fsid)
		snprintf(fsid, sizeof(fsid), "fsid %016" PRIx64 "\n", m->fsid);
	n = snprintf(ret_text, SHMS_TIERMARK_TEXT,
		     TITLE "\nuuid %s\nhost %s\nboot %s\ndevice %" PRIu64 "\n%spath %s\n", m->uuid,
		     m->host, m->boot, m->device, fsid, m->path);
	return n > 0 && n < SHMS_TIERMARK_TEXT ? 0 : -EINVAL;
}

/* Takes the line "<word> <value>" off *at: its value, of digits only, copied to ret
 * (size bytes with its NUL). */
static bool take(char **at, const char *word, const char *digits, char *ret, size_t size)
{
	size_t n = strlen(word), length;
	const char *value = *at + n + 1;

	if (strncmp(*at, word, n) != 0 || (*at)[n] != ' ')
		return false;
	length = strcspn(value, "\n");
	if (length == 0 || length >= size || value[length] != '\n' ||
	    (digits && strspn(value, digits) != length))
		return false;
	memcpy(ret, value, length);
	ret[length] = '\0';
	*at += n + 1 + length + 1;
	return true;
}

int shms_tiermark_parse(char *text, struct shms_tiermark *ret)
{
	static const char hex[] = "0123456789abcdef";
	struct shms_tiermark m = {0};
	char device[24], fsid[17] = "0", *at = text + sizeof(TITLE);

	if (strncmp(text, TITLE "\n", sizeof(TITLE)) != 0)
		return strncmp(text, "shmstore tier files ", 20) == 0 ? -ENOTSUP : -EBADMSG;
	if (!take(&at, "uuid", "0123456789abcdef-", m.uuid, sizeof(m.uuid)) ||
	    !take(&at, "host", NULL, m.host, sizeof(m.host)) ||
	    !take(&at, "boot", hex, m.boot, sizeof(m.boot)) ||
	    !take(&at, "device", "0123456789", device, sizeof(device)))
		return -EBADMSG;
	take(&at, "fsid", hex, fsid, sizeof(fsid)); /* not there: unknown */
	if (!take(&at, "path", NULL, m.path, sizeof(m.path)) || *at != '\0')
		return -EBADMSG;
	if (strlen(m.uuid) != 36 || strlen(m.boot) != 32 || m.path[0] != '/')
		return -EBADMSG;
	errno = 0;
	m.device = strtoull(device, NULL, 10);
	m.fsid = strtoull(fsid, NULL, 16);
	if (errno)
		return -EBADMSG;
	*ret = m;
	return 0;
}

int shms_tiermark_read(int dirfd, struct shms_tiermark *ret)
{
	char text[SHMS_TIERMARK_TEXT];
	struct stat st, dir;
	int r;
	_fd_ int fd =
		openat(dirfd, SHMS_TIERMARK_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return shms_error(errno);
	if (fstat(fd, &st) < 0 || fstat(dirfd, &dir) < 0)
		return shms_error(errno);
	if (!S_ISREG(st.st_mode) || st.st_uid != dir.st_uid)
		return -EPERM;
	r = shms_read_whole(fd, text, sizeof(text));
	return r < 0 ? r : shms_tiermark_parse(text, ret);
}

int shms_tiermark_write(int dirfd, const struct shms_tiermark *m, uid_t uid)
{
	char text[SHMS_TIERMARK_TEXT];
	int r = shms_tiermark_format(m, text);

	return r < 0 ? r
		     : shms_textfile_replace(dirfd, SHMS_TIERMARK_NEW, SHMS_TIERMARK_FILE, text,
					     uid);
}

bool shms_tiermark_gone(const struct shms_tiermark *m, const struct shms_tiermark_facts *facts,
			const char **ret_why)
{
	const struct shms_tiermark *here = &facts->here;

	if (!boot_known(m) || !boot_known(here)) {
		*ret_why = "the tier of another partition: of which boot cannot be told";
		return false;
	}
	if (strcmp(m->boot, here->boot) != 0) {
		if (strcmp(m->host, UNKNOWN) == 0 || strcmp(m->host, here->host) != 0) {
			*ret_why =
				"the tier of a partition of another host, it seems, which may live";
			return false;
		}
		*ret_why =
			"the tier of a partition of an earlier boot: it was in memory, and is gone";
		return true;
	}
	if (m->device == here->device && m->fsid && here->fsid && m->fsid != here->fsid) {
		*ret_why = "the tier of a partition whose file system was unmounted: its device "
			   "number is that of this partition's now";
		return true;
	}
	if (facts->mounted) {
		*ret_why = "the tier of another partition, whose file system is mounted";
		return false;
	}
	if (!facts->whole) {
		*ret_why = "the tier of another partition: whether that is mounted somewhere only "
			   "root can see, outside of containers";
		return false;
	}
	*ret_why = "the tier of a partition whose file system is mounted nowhere any more";
	return true;
}

/* ---- small text files, whole ----------------------------------------------------------------- */

static int write_text(int fd, const char *text, uid_t uid)
{
	int r = shms_write_at(fd, text, strlen(text), 0);

	if (r == 0 && fchmod(fd, 0444) < 0) /* whatever the umask says */
		r = -errno;
	if (r == 0 && uid != geteuid() && fchown(fd, uid, (gid_t)-1) < 0)
		r = -errno;
	/* Else a crash of the host may leave the name with an empty file. */
	return r == 0 && fsync(fd) < 0 ? -errno : r;
}

/* By a name, and not an unnamed file that is linked later: linking does not replace, and not every
 * disk's file system has unnamed files. */
int shms_textfile_replace(int dirfd, const char *tmp_name, const char *name, const char *text,
			  uid_t uid)
{
	int r;

	if (unlinkat(dirfd, tmp_name, 0) < 0 && errno != ENOENT)
		return -errno;
	_fd_ int fd =
		openat(dirfd, tmp_name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0400);
	if (fd < 0)
		return -errno;
	r = write_text(fd, text, uid);
	if (r == 0 && renameat(dirfd, tmp_name, dirfd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, tmp_name, 0);
	return r;
}
