/* SPDX-License-Identifier: Apache-2.0 */
/* sysroot.c: small files of the kernel and of /etc: numbers are checked. */
#include "sysroot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "human.h"
#include "message.h"

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

bool sysroot_exists(const struct admin *a, const char *path)
{
	_free_ char *full = sysroot_path(a, path);

	return access(full, F_OK) == 0;
}

int sysroot_memory(const struct admin *a, bool count_swap, struct memsource_reading *ret)
{
	_free_ char *proc = sysroot_path(a, "/proc"), *cgroup = sysroot_path(a, "/sys/fs/cgroup");
	const struct memsource_config config = {proc, cgroup, count_swap};

	return memsource_read(&config, ret);
}
