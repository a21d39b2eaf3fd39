/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapping.c: what /proc says of a mapping. Pure. Most lines of most processes are of other devices,
 * so the device is looked at first and the numbers are read last.
 */
#include <stdlib.h>
#include <string.h>

#include "holders.h"
#include "page.h"

#define UUID_DIGITS 32

static const char DELETED[] = " (deleted)";

bool shms_mapping_in_dir(const char *path, size_t length, const char *parent, const char **ret_name)
{
	const char *slash = memrchr(path, '/', length);
	size_t n = strlen(parent);

	*ret_name = slash ? slash + 1 : path;
	return slash && (size_t)(slash - path) >= n && memcmp(slash - n, parent, n) == 0;
}

bool shms_mapping_recycled(const char *path, size_t length)
{
	const char *name;

	return shms_mapping_in_dir(path, length, "/" SHMS_DIR_RECYCLE, &name);
}

/* Its name is a uuid: its owner also maps it by the name that the kernel gave it before. */
static bool is_segment(const char *path, size_t length)
{
	const char *name, *end = path + length;

	if (!shms_mapping_in_dir(path, length, "/" SHMS_DIR_SEGMENTS, &name) ||
	    end - name != UUID_DIGITS)
		return false;
	while (name < end && strchr("0123456789abcdef", *name))
		name++;
	return name == end;
}

bool shms_mapping_deleted(const char *path, size_t *io_length)
{
	size_t n = sizeof(DELETED) - 1;

	if (*io_length <= n || memcmp(path + *io_length - n, DELETED, n) != 0)
		return false;
	*io_length -= n;
	return true;
}

/* The start of field number n (from 0) of a line whose fields are set apart by one space. */
static const char *field(const char *line, const char *end, int n)
{
	const char *s = line;

	for (; s && n > 0; n--) {
		s = memchr(s, ' ', (size_t)(end - s));
		s = s ? s + 1 : NULL;
	}
	return s;
}

bool shms_mapping_parse(const char *line, size_t length, const char *device,
			struct shms_mapping *ret)
{
	/* "start-end perms offset device inode   path" */
	const char *end = line + length, *perms, *offset, *dev = field(line, end, 3);
	struct shms_mapping m = {0};
	size_t n = strlen(device);
	char *rest;

	if (!dev || (size_t)(end - dev) <= n || memcmp(dev, device, n) != 0)
		return false;
	m.ino = strtoull(dev + n, &rest, 10);
	m.path = memchr(rest, '/', (size_t)(end - rest));
	if (!m.path)
		return false;
	m.path_length = (size_t)(end - m.path);
	m.deleted = shms_mapping_deleted(m.path, &m.path_length);
	m.recycled = !m.deleted && shms_mapping_recycled(m.path, m.path_length);
	m.segment = is_segment(m.path, m.path_length);
	if (!m.deleted && !m.recycled && !m.segment)
		return false;
	perms = field(line, end, 1);
	offset = field(line, end, 2);
	if (offset - perms != 5)
		return false;
	m.start = strtoul(line, &rest, 16);
	if (*rest != '-')
		return false;
	m.end = strtoul(rest + 1, NULL, 16);
	m.writer = perms[1] == 'w' && perms[3] == 's';
	m.offset = strtoull(offset, NULL, 16);
	if (m.end <= m.start)
		return false;
	*ret = m;
	return true;
}
