/* SPDX-License-Identifier: Apache-2.0 */
/* memgroup.c: lines like "4:memory,cpu:/a/b" and "0::/a/b". */
#include "memgroup.h"

#include <string.h>

/* Is "memory" one of [names, end), which commas separate? */
static bool has_memory(const char *names, const char *end)
{
	static const char memory[] = "memory";

	while (names < end) {
		const char *comma = memchr(names, ',', (size_t)(end - names));
		size_t n = (size_t)((comma ? comma : end) - names);

		if (n == sizeof(memory) - 1 && !memcmp(names, memory, n))
			return true;
		if (!comma)
			return false;
		names = comma + 1;
	}
	return false;
}

static bool leads_out(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")) != NULL; at += 3)
		if (at[3] == '/' || !at[3])
			return true;
	return false;
}

bool shms_memgroup_path(const char *text, size_t size, int version, char *ret, size_t room)
{
	const char *end = text + size;

	for (const char *next; text < end; text = next) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text)), *names, *path;
		size_t n;

		/* A line that was cut off may have lost a part of its path. */
		if (!line_end)
			return false;
		next = line_end + 1;
		names = memchr(text, ':', (size_t)(line_end - text));
		path = names ? memchr(names + 1, ':', (size_t)(line_end - names - 1)) : NULL;
		if (!path)
			continue;
		if (version == 1 ? !has_memory(names + 1, path)
				 : path != names + 1 || names != text + 1 || *text != '0')
			continue;
		path++;
		n = (size_t)(line_end - path);
		if (!n || *path != '/' || n >= room || memchr(path, 0, n))
			return false;
		memcpy(ret, path, n);
		ret[n] = 0;
		if (leads_out(ret))
			ret[1] = 0;
		return true;
	}
	return false;
}

bool shms_memgroup_parent(char *path)
{
	char *last = strrchr(path, '/');

	if (!last || !path[1])
		return false;
	*(last == path ? last + 1 : last) = 0;
	return true;
}
