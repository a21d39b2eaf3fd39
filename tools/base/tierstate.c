/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierstate.c: the library has one code for "no tier" and for "its directory is gone"; people must
 * not take one for the other. The partition's tier/config tells them apart: it is text
 * (docs/format.md), and its second line names the directory.
 */
#include "tierstate.h"

#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fields.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"

bool tierstate_directory(struct shmstore_partition *p, char ret_path[PATH_MAX])
{
	char name[PATH_MAX + 16], line[PATH_MAX + 8];
	unsigned version = 0;
	bool found;

	snprintf(name, sizeof(name), "%s/tier/config", shmstore_partition_path(p));
	FILE *f = fopen(name, "re");
	if (!f)
		return false;
	found = fgets(line, sizeof(line), f) && sscanf(line, "shmstore tier %9u", &version) == 1 &&
		version == 1 && fgets(line, sizeof(line), f) && strncmp(line, "path /", 6) == 0;
	fclose(f);
	if (!found)
		return false;
	line[strcspn(line, "\n")] = '\0';
	snprintf(ret_path, PATH_MAX, "%.*s", PATH_MAX - 1, line + 5);
	return true;
}

bool tierstate_file(struct shmstore_partition *p, const char *link, char ret_path[PATH_MAX])
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	char text[128], id[17], dir[PATH_MAX];
	struct stat st;
	ssize_t n = readlink(link, text, sizeof(text) - 1);

	if (n < 0 || lstat(link, &st) < 0 || !tierstate_directory(p, dir) ||
	    shmstore_partition_info(p, &info) < 0)
		return false;
	text[n] = '\0';
	if (sscanf(text, "shmstore-tier:1:%16[0-9a-f]:", id) != 1 || strlen(id) != 16)
		return false;
	return snprintf(ret_path, PATH_MAX, "%s/%s/%u/%s", dir, info.uuid, st.st_uid, id) <
	       PATH_MAX;
}

int tierstate_read(struct shmstore_partition *p, struct shmstore_tier_info *ret)
{
	char path[PATH_MAX];

	memset(ret, 0, sizeof(*ret));
	ret->size = sizeof(*ret);
	int r = shmstore_tier_info(p, ret);
	if (r == -ENOENT && !*shmstore_error_path() && !tierstate_directory(p, path))
		return 0;
	return r < 0 ? r : 1;
}

int tierstate_explain(struct shmstore_partition *p, int error)
{
	const char *partition = shmstore_partition_path(p);
	char path[PATH_MAX];

	if (!tierstate_directory(p, path)) {
		if (error != -ENOENT)
			return message_detail(partition, error);
		message_fail(partition, "the partition has no disk tier");
		message_command(partition, "to give it one", "tier --set DIRECTORY");
		return ADMIN_FAILED;
	}
	message_detail(path, error);
	if (error == -ENOENT)
		message_hint("objects that are there are lost to their stores until the directory "
			     "is back where it was");
	return ADMIN_FAILED;
}

struct json_object *tierstate_json(const struct shmstore_tier_info *info)
{
	struct json_object *o;

	if (!info)
		return NULL;
	o = jsonmake_new();
	tierfigures_add(o, info);
	jsonmake_prose(o, "io", shmstore_tier_io());
	jsonmake_u64(o, "last_minute", info->last_minute);
	jsonmake_u64(o, "written_per_s", info->last_minute / 60);
	return o;
}

void tierstate_print_asked(const struct admin *a, const struct json_object *tier)
{
	figure_print(
		tier, a->bytes,
		"{state}[has path?, {original:size} of objects on {used:size} of disk, room for "
		"{available:size}, in {path}][has why?; {why}]"
		"[has retry_seconds?; tried again in {retry_seconds:time}]\n");
}
