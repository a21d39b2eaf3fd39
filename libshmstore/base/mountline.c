/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mountline.c: a line is: id parent major:minor root point options [optional...] -
 * fstype source super-options. Space, tab, newline and backslash in paths are octal
 * escapes. The source may be empty.
 */
#include "mountline.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

static bool octal(const char *s)
{
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' &&
	       s[2] <= '7';
}

/* "\040" -> ' ', in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (*s == '\\' && octal(s + 1)) {
			*to++ = (char)(((s[1] - '0') << 6) | ((s[2] - '0') << 3) | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

bool shms_mountline_parse(char *line, struct shms_mountline *ret)
{
	char *field[6], *save = NULL, *tail = strstr(line, " - ");
	unsigned major = 0, minor = 0;
	char *type, *super, *next, end;

	if (!tail)
		return false;
	*tail = '\0';
	for (size_t i = 0; i < 6; i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " ", &save);
		if (!field[i])
			return false;
	}
	/* NOLINTNEXTLINE(cert-err34-c): the kernel's own numbers, and the count is checked */
	if (sscanf(field[2], "%u:%u%c", &major, &minor, &end) != 2)
		return false;
	next = tail + 3; /* strsep: the source may be empty */
	type = strsep(&next, " ");
	if (!strsep(&next, " ") || !next)
		return false;
	super = strsep(&next, " \n");
	unescape(field[3]);
	unescape(field[4]);
	*ret = (struct shms_mountline){.device = makedev(major, minor),
				       .root = field[3],
				       .point = field[4],
				       .type = type,
				       .options = field[5],
				       .super = super ? super : ""};
	return true;
}

bool shms_mountline_covers(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	if (n == 1 && dir[0] == '/')
		return path[0] == '/';
	return strncmp(dir, path, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

const char *shms_mountline_option(const char *options, const char *name, size_t *ret_size)
{
	size_t n = strlen(name);

	for (const char *o = options; o; o = strchr(o, ',')) {
		o += *o == ',';
		if (strncmp(o, name, n) != 0 || (o[n] && o[n] != ',' && o[n] != '='))
			continue;
		o += n + (o[n] == '=');
		*ret_size = strcspn(o, ",");
		return o;
	}
	return NULL;
}
