/* SPDX-License-Identifier: Apache-2.0 */
/* mountinfo.c: see mountinfo.h. The library's parser of a line is linked into the tool. */
#include "mountinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "sysroot.h"

void mountinfo_read(const struct admin *a, struct mountinfo_table *ret)
{
	char *save = NULL;

	*ret = (struct mountinfo_table){.text = sysroot_read(a, "/proc/self/mountinfo")};
	for (char *line = ret->text ? strtok_r(ret->text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		struct shms_mountline *grown =
			realloc(ret->mounts, (ret->n_mounts + 1) * sizeof(*grown));
		if (!grown)
			message_no_memory();
		ret->mounts = grown;
		ret->n_mounts += shms_mountline_parse(line, &grown[ret->n_mounts]);
	}
}

void mountinfo_deinit(struct mountinfo_table *t)
{
	free(t->mounts);
	free(t->text);
	*t = (struct mountinfo_table){.mounts = NULL};
}

bool mountinfo_below(const char *path, const char *dir)
{
	return shms_mountline_covers(dir, path) && strcmp(dir, path) != 0;
}

const struct shms_mountline *mountinfo_find(const struct mountinfo_table *t, const char *path)
{
	const struct shms_mountline *found = NULL;

	for (size_t i = 0; i < t->n_mounts; i++) {
		const struct shms_mountline *m = &t->mounts[i];
		if (shms_mountline_covers(m->point, path) &&
		    (!found || strlen(m->point) >= strlen(found->point)))
			found = m;
	}
	return found;
}

bool mountinfo_option(const char *options, const char *name, char *ret_value, size_t size)
{
	size_t n;
	const char *value = shms_mountline_option(options, name, &n);

	if (value && size)
		snprintf(ret_value, size, "%.*s", (int)n, value);
	return value != NULL;
}
