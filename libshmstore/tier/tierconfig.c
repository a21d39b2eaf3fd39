/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierconfig.c: the tier's configuration as it lies in the partition: a line per value, fixed in
 * form, so that a damaged file is told from a short one. It decides where a user's objects are
 * written, so only the partition's owner, or root, may have said it.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"

#define TITLE    "shmstore tier 1"
#define TEXT_MAX 8192

int shms_tier_config_format(const struct shms_tier_config *c, char *ret_text, size_t size)
{
	int n = snprintf(ret_text, size,
			 TITLE "\npath %s\nmax %" PRIu64 "\nmin-free %" PRIu64
			       "\nlevel %d\nfsync %d\nhigh %u\nlow %u\n",
			 c->path, c->max, c->min_free, c->level, c->fsync ? 1 : 0, c->high, c->low);

	return n > 0 && (size_t)n < size ? 0 : -EINVAL;
}

/* The value of the line "<word> <value>" at *at, which goes on to the next
 * line. NULL: it is another one. */
static const char *take_line(char **at, const char *word)
{
	size_t n = strlen(word);
	char *value = *at + n + 1, *end;

	if (strncmp(*at, word, n) != 0 || (*at)[n] != ' ')
		return NULL;
	end = strchr(value, '\n');
	if (!end || end == value)
		return NULL;
	*end = '\0';
	*at = end + 1;
	return value;
}

static bool take_number(char **at, const char *word, uint64_t most, uint64_t *ret)
{
	const char *value = take_line(at, word);
	char *end;

	if (!value || value[0] < '0' || value[0] > '9')
		return false;
	errno = 0;
	*ret = strtoull(value, &end, 10);
	return !errno && *end == '\0' && *ret <= most;
}

int shms_tier_config_parse(char *text, struct shms_tier_config *ret)
{
	struct shms_tier_config c = {0};
	uint64_t level, sync, high, low;
	char *at = text + sizeof(TITLE);
	const char *path;

	if (strncmp(text, TITLE "\n", sizeof(TITLE)) != 0)
		return strncmp(text, "shmstore tier ", 14) == 0 ? -ENOTSUP : -EBADMSG;
	path = take_line(&at, "path");
	if (!path || path[0] != '/' || strlen(path) >= sizeof(c.path))
		return -EBADMSG;
	memcpy(c.path, path, strlen(path) + 1);
	if (!take_number(&at, "max", UINT64_MAX, &c.max) ||
	    !take_number(&at, "min-free", UINT64_MAX, &c.min_free) ||
	    !take_number(&at, "level", 19, &level) || !take_number(&at, "fsync", 1, &sync) ||
	    !take_number(&at, "high", 100, &high) || !take_number(&at, "low", 100, &low) ||
	    *at != '\0' || low >= high)
		return -EBADMSG;
	c.level = (int)level;
	c.fsync = sync != 0;
	c.high = (unsigned)high;
	c.low = (unsigned)low;
	*ret = c;
	return 0;
}

static int read_named(const struct shmstore_partition *p, const char *path,
		      struct shms_tier_config *ret)
{
	char text[TEXT_MAX];
	struct stat st, owner;
	ssize_t n;
	int r;
	_fd_ int fd = openat(p->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ENOENT : shms_error(errno);
	if (fstat(fd, &st) < 0 || fstat(p->fd, &owner) < 0)
		return shms_error(errno);
	if (!S_ISREG(st.st_mode) || (st.st_uid != owner.st_uid && st.st_uid != 0) ||
	    (st.st_mode & 022))
		return shms_detail(-EPERM, p->path,
				   "%s/tier/config: not written by the partition's owner", p->path);
	n = shms_pread_all(fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return shms_error((int)n);
	text[n] = '\0';
	r = strlen(text) == (size_t)n ? shms_tier_config_parse(text, ret) : -EBADMSG;
	if (r < 0)
		return shms_detail(r, p->path,
				   "%s/tier/config cannot be read: %s; set the tier again", p->path,
				   r == -ENOTSUP ? "another version wrote it" : "it is damaged");
	return 0;
}

int shms_tier_config_read(const struct shmstore_partition *p, struct shms_tier_config *ret)
{
	return read_named(p, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG, ret);
}

int shms_tier_config_read_left(const struct shmstore_partition *p, struct shms_tier_config *ret)
{
	return read_named(p, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG_NEW, ret);
}
