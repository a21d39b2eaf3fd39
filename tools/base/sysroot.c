/* SPDX-License-Identifier: Apache-2.0 */
/* sysroot.c: small files of the kernel and of /etc: numbers are checked. */
#include "sysroot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "alloc.h"
#include "cleanup.h"
#include "jsonin.h"

char *sysroot_path(const struct admin *a, const char *path)
{
	char *full = shms_printed("%s%s", a->root, path);

	if (!full)
		message_no_memory();
	return full;
}

char *sysroot_read(const struct admin *a, const char *path)
{
	_free_ char *full = sysroot_path(a, path);
	FILE *f = fopen(full, "re");
	char *text = NULL;
	size_t room = 0;

	if (!f)
		return NULL;
	ssize_t n = getdelim(&text, &room, '\0', f); /* which no such file has */
	if (n < 0 && !ferror(f)) {                   /* an empty file */
		free(text);
		text = strdup("");
		n = 0;
	}
	fclose(f);
	if (n < 0 || !text) {
		free(text);
		return NULL;
	}
	if (n && text[n - 1] == '\n')
		text[n - 1] = '\0';
	return text;
}

bool sysroot_number(const struct admin *a, const char *path, uint64_t *ret)
{
	_free_ char *text = sysroot_read(a, path);

	return text && human_number(text, UINT64_MAX, ret);
}

int sysroot_memory(const struct admin *a, bool count_swap, struct memsource_reading *ret)
{
	_free_ char *proc = sysroot_path(a, "/proc"), *cgroup = sysroot_path(a, "/sys/fs/cgroup");
	const struct memsource_config config = {proc, cgroup, count_swap};

	return memsource_read(&config, ret);
}

/* ---- what is mounted where ------------------------------------------------------------------- */

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

uint64_t mountinfo_inodes(uint64_t size)
{
	uint64_t pages = size / 4096;

	return pages < 1u << 20 ? 1u << 20 : pages;
}
