/* SPDX-License-Identifier: Apache-2.0 */
/* sysroot.c: small files of the kernel and of /etc: sizes are bounded, numbers are checked. */
#include "sysroot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"

#define FILE_MAX (1u << 20)

char *sysroot_path(const struct admin *a, const char *path)
{
	char *full;

	if (asprintf(&full, "%s%s", a->root, path) < 0)
		message_no_memory();
	return full;
}

char *sysroot_read(const struct admin *a, const char *path)
{
	char *full = sysroot_path(a, path);
	int fd = open(full, O_RDONLY | O_CLOEXEC);
	size_t size = 0, room = 4096;
	char *text = NULL;
	ssize_t n = 0;

	free(full);
	if (fd < 0)
		return NULL;
	do {
		size += (size_t)n;
		if (!text || size + 1 == room) {
			room *= text ? 2 : 1;
			text = realloc(text, room);
			if (!text)
				message_no_memory();
		}
		n = read(fd, text + size, room - size - 1);
	} while ((n > 0 && size < FILE_MAX) || (n < 0 && errno == EINTR && (n = 0, true)));
	close(fd);
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[size] = '\0';
	if (size && text[size - 1] == '\n')
		text[size - 1] = '\0';
	return text;
}

static bool parse_number(const char *text, uint64_t *ret)
{
	char *end;

	while (*text == ' ' || *text == '\t')
		text++;
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno || (*end && *end != ' ' && *end != '\n'))
		return false;
	*ret = value;
	return true;
}

bool sysroot_number(const struct admin *a, const char *path, uint64_t *ret)
{
	char *text = sysroot_read(a, path);
	bool found = text && parse_number(text, ret);

	free(text);
	return found;
}

bool sysroot_exists(const struct admin *a, const char *path)
{
	char *full = sysroot_path(a, path);
	bool exists = access(full, F_OK) == 0;

	free(full);
	return exists;
}

int sysroot_memory(const struct admin *a, bool count_swap, struct memsource_reading *ret)
{
	char *proc = sysroot_path(a, "/proc"), *cgroup = sysroot_path(a, "/sys/fs/cgroup");
	const struct memsource_config config = {proc, cgroup, count_swap};
	int r = memsource_read(&config, ret);

	free(proc);
	free(cgroup);
	return r;
}
