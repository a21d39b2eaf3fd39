/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opening.c: from what a user typed to open handles. The library's codes are few; what they mean
 * for a path is found out here by looking at it, so that each refusal has a message of its own and
 * says what to do. Looking may race with others: then the message is the general one.
 */
#include "opening.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "admin.h"
#include "cleanup.h"
#include "fields.h"
#include "jsonin.h"
#include "sysroot.h"

void opening_path(const struct admin *a, char ret_path[PATH_MAX])
{
	int r = a->partition ? 0 : shmstore_default_path(ret_path, PATH_MAX);

	if (r < 0)
		exit(message_error("the default partition", r));
	if (a->partition && snprintf(ret_path, PATH_MAX, "%s", a->partition) >= PATH_MAX)
		exit(message_fail(a->partition, "the path is longer than %d bytes", PATH_MAX - 1));
}

unsigned opening_flags(const struct admin *a)
{
	return a->partition ? 0 : SHMSTORE_TRUSTED;
}

static void explain_missing(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		message_fail(path, "there is no such directory");
		message_command(path, "to make a partition there", "init");
	} else if (!S_ISDIR(st.st_mode)) {
		message_fail(path, "is no directory");
	} else {
		message_fail(path, "is no partition: it holds no .shmstore");
		message_command(path, "to make it one", "init");
	}
}

unsigned opening_marker_version(const char *path)
{
	char marker[PATH_MAX + 16];
	unsigned version = 0;

	snprintf(marker, sizeof(marker), "%s/.shmstore", path);
	FILE *f = fopen(marker, "re");
	if (!f)
		return 0;
	// NOLINTNEXTLINE(cert-err34-c): nine digits fit
	if (fscanf(f, "shmstore partition %9u", &version) != 1)
		version = 0;
	fclose(f);
	return version;
}

/* -ENOTSUP: another file system, or another version's marker. */
static void explain_unsupported(const struct admin *a, const char *path)
{
	struct statfs fs;
	_mounts_ struct mountinfo_table mounts = {0};
	unsigned version = opening_marker_version(path);

	if (version && version != OPENING_MARKER_VERSION) {
		message_fail(path,
			     "is a partition of format version %u, which this program (%s) does "
			     "not know",
			     version, shmstore_version());
		message_command(path,
				"use the shmstore that made it, or empty the directory and run",
				"init");
		return;
	}
	bool looked = statfs(path, &fs) == 0;
	if (version || (looked ? fs.f_type == TMPFS_MAGIC : errno != ENOENT)) {
		message_detail(path, -ENOTSUP);
		message_command(path, "to see what is missing", "doctor");
		return;
	}
	_free_ char *canonical = realpath(path, NULL);
	mountinfo_read(a, &mounts);
	const struct shms_mountline *m = mountinfo_find(&mounts, canonical ? canonical : path);
	message_fail(
		path,
		"is on a disk file system (%s), not on a tmpfs: objects would not be shared memory",
		m ? m->type : "of unknown type");
	message_command(path, "as root, to mount a tmpfs there", "init --size 50%%");
	message_command(path, "to use the disk all the same", "init --allow-disk");
}

static void explain_forbidden(const char *path)
{
	struct stat st;

	/* The kernel forbids nothing to its owner, nor to root: the library says what it was. */
	if (stat(path, &st) < 0 || geteuid() == 0 || geteuid() == st.st_uid) {
		message_detail(path, -EPERM);
		return;
	}
	message_fail(path, "not allowed: it belongs to user %u, mode %04o, and you are user %u",
		     st.st_uid, st.st_mode & 07777, geteuid());
	message_hint("run this as its owner or as root, or make a partition for several users: "
		     "init --shared");
}

int opening_explain(const struct admin *a, const char *path, int error)
{
	switch (-error) {
	case ENOENT:
		explain_missing(path);
		break;
	case ENOTSUP:
		explain_unsupported(a, path);
		break;
	case EEXIST:
		message_fail(path,
			     "is not empty and holds no partition: what is in it stays untouched");
		message_hint("name an empty or a new directory");
		break;
	case EBADMSG:
		message_fail(path, "its marker .shmstore is damaged");
		message_hint("if nothing in it is needed any more, remove %s/.shmstore, stores and "
			     "peers, then run: " ADMIN_NAME " -p %s init",
			     shellword(path), shellword(path));
		break;
	case EPERM:
		explain_forbidden(path);
		break;
	case ENOSPC:
		message_fail(path, "its file system is full");
		message_hint("to see what fills it: df -h %s; df -i %s", shellword(path),
			     shellword(path));
		break;
	default:
		message_detail(path, error);
	}
	return ADMIN_FAILED;
}

struct shmstore_partition *opening_partition(const struct admin *a)
{
	struct shmstore_partition *p;
	char path[PATH_MAX];

	opening_path(a, path);
	int r = shmstore_partition_open(path, opening_flags(a), &p);
	if (r < 0)
		exit(opening_explain(a, path, r));
	return p;
}

int opening_explain_store(struct shmstore_partition *p, const char *name, int error)
{
	switch (-error) {
	case ENOENT:
		message_fail(name, "there is no such store in %s", shmstore_partition_path(p));
		message_command(shmstore_partition_path(p), "to see the stores", "du");
		break;
	case EPERM:
		if (geteuid() == 0) {
			message_detail(name, error);
			break;
		}
		message_fail(name, "the store belongs to another user");
		message_hint("run this as its owner or as root");
		break;
	case EINVAL:
		message_fail(
			name,
			"is no name of a store: 1 to %u bytes, no '/', no '.' at its beginning",
			SHMSTORE_NAME_MAX);
		break;
	default:
		message_detail(name, error);
	}
	return ADMIN_FAILED;
}

struct shmstore *opening_store(struct shmstore_partition *p, const char *name)
{
	_stores_ struct storelist list = STORELIST_NULL;
	struct shmstore *s;
	int r = storelist_read(p, &list);

	if (r == 0) {
		const struct shmstore_store_info *found = storelist_find(&list, name);
		r = !found ? -ENOENT : !found->readable ? -EPERM : storelist_open(p, found, &s);
	}
	if (r < 0)
		exit(opening_explain_store(p, name, r));
	return s;
}

int opening_explain_key(struct shmstore_partition *p, struct shmstore *s, const char *key,
			int error)
{
	const char *partition = shmstore_partition_path(p);

	if (error == -ENOENT) {
		message_fail(key, "the store %s holds no such key", shmstore_name(s));
		message_command(partition, "to see its keys", "ls %s", shellword(shmstore_name(s)));
	} else if (error == -EBADMSG && *shmstore_error_path()) {
		message_detail(key, error);
		message_hint("its tier file: %s", shmstore_error_path());
		message_command(partition, "to check all of them", "verify --tier");
	} else if (error == -EBADMSG) {
		message_fail(key, "the object is damaged");
		message_command(partition, "to see what is wrong with it", "verify");
	} else {
		message_detail(key, error);
	}
	return ADMIN_FAILED;
}

bool opening_key(const char *text, unsigned char *key, size_t *ret_size)
{
	if (printable_parse(text, key, SHMSTORE_KEY_MAX, ret_size))
		return true;
	message_fail("the key", "is longer than %u bytes", SHMSTORE_KEY_MAX);
	return false;
}

/* ---- the disk tier --------------------------------------------------------------------------- */

/*
 * The library has one code for "no tier" and for "its directory is gone"; people must not take one
 * for the other. The partition's tier/config tells them apart: it is text (docs/format.md), and its
 * second line names the directory.
 */
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

/* ---- a list of stores ------------------------------------------------------------------------ */

/*
 * The list is read first and stores are opened later, so that no command works inside the library's
 * walk. Stores come and go meanwhile: whoever opens one must be ready for -ENOENT.
 */

static const char *copy(const char *text)
{
	const char *made = strdup(text);

	if (!made)
		message_no_memory();
	return made;
}

static int add(const struct shmstore_store_info *info, void *arg)
{
	struct storelist *l = arg;
	struct shmstore_store_info *e;

	l->stores = reallocarray(l->stores, l->n_stores + 1, sizeof(*e));
	if (!l->stores)
		message_no_memory();
	e = &l->stores[l->n_stores++];
	*e = *info;
	e->name = copy(info->name);
	e->path = copy(info->path);
	e->label = copy(info->label);
	return 0;
}

int storelist_read(struct shmstore_partition *p, struct storelist *ret)
{
	*ret = STORELIST_NULL;
	int r = shmstore_partition_stores(p, add, ret);
	if (r < 0)
		storelist_deinit(ret);
	return r;
}

void storelist_deinit(struct storelist *l)
{
	for (size_t i = 0; i < l->n_stores; i++) {
		free((void *)(uintptr_t)l->stores[i].name);
		free((void *)(uintptr_t)l->stores[i].path);
		free((void *)(uintptr_t)l->stores[i].label);
	}
	free(l->stores);
	*l = STORELIST_NULL;
}

const struct shmstore_store_info *storelist_find(const struct storelist *l, const char *name)
{
	const struct shmstore_store_info *found = NULL;

	for (size_t i = 0; i < l->n_stores; i++) {
		const struct shmstore_store_info *e = &l->stores[i];
		if (strcmp(name[0] == '/' ? e->path : e->name, name) != 0)
			continue;
		if (!found || e->alive == SHMSTORE_ALIVE)
			found = e;
	}
	return found;
}

int storelist_open(struct shmstore_partition *p, const struct shmstore_store_info *entry,
		   struct shmstore **ret)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;

	options.directory = entry->path;
	options.flags = SHMSTORE_OPEN_READONLY;
	/* An operator names whose store is meant; what is shown of it is bytes. */
	if (geteuid() == 0)
		options.flags |= SHMSTORE_OPEN_ANY_USER;
	return shmstore_open(p, entry->name, &options, ret);
}

void storelist_join_tier(struct shmstore_partition *p)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	_stores_ struct storelist list = STORELIST_NULL;
	struct shmstore *s;
	char tier[PATH_MAX], clean[PATH_MAX + 8];

	if (!tierstate_directory(p, tier))
		return;
	storelist_read(p, &list); /* where it fails, what comes next says why */
	for (size_t i = 0; i < list.n_stores; i++) {
		const struct shmstore_store_info *e = &list.stores[i];
		snprintf(clean, sizeof(clean), "%s/clean", e->path); /* docs/format.md */
		if (!e->readable || !e->keep || e->alive != SHMSTORE_DEAD || e->uid != geteuid() ||
		    access(clean, F_OK) == 0)
			continue;
		options.keep = true;
		options.recycle_max = 0;
		options.label = e->label[0] ? e->label : NULL;
		options.directory = e->path;
		if (shmstore_open(p, e->name, &options, &s) == 0)
			shmstore_close(s);
	}
}
