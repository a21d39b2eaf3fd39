/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memsource.c: one level after the other, from the process's own cgroup up to the root
 * of the tree that is mounted.
 *
 * In a container without a cgroup namespace /proc/self/cgroup names a path of the host, which is
 * not in the tree that the container sees. Directories that are not there are passed over on the
 * way up, so that at least the tree's root counts, which is the container's own cgroup. Rejected:
 * the root alone, as a limit lies where its service manager put it, mostly further down.
 */
#include "memsource.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jsonmake.h"
#include "memgroup.h"
#include "memtext.h"

/* more than the largest memory.stat; what is longer is cut, which readers notice */
#define FILE_MAX_BYTES 65536u

struct text {
	bool there;
	size_t size;
	char bytes[FILE_MAX_BYTES];
};

/* at: a directory, or AT_FDCWD with a path. Never waits: a made-up tree may have a pipe in it. */
static void read_text(int at, const char *path, struct text *ret)
{
	int fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n = 1;

	ret->there = false;
	ret->size = 0;
	if (fd < 0)
		return;
	while (n > 0 && ret->size < sizeof(ret->bytes)) {
		n = read(fd, ret->bytes + ret->size, sizeof(ret->bytes) - ret->size);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			ret->size += (size_t)n;
	}
	close(fd);
	ret->there = n >= 0;
	if (n < 0)
		ret->size = 0;
}

static void add_term(struct memsource_level *l, const char *name, struct amount value,
		     bool unlimited)
{
	l->terms[l->n_terms++] = (struct memsource_term){
		.name = name,
		.state = value.known ? MEMSOURCE_READ
			 : unlimited ? MEMSOURCE_UNLIMITED
				     : MEMSOURCE_UNKNOWN,
		.bytes = value.bytes,
	};
}

static struct memsource_level *add_level(struct memsource_reading *r, const char *path, int version)
{
	struct memsource_level *levels = reallocarray(r->levels, r->n_levels + 1, sizeof(*levels));

	if (!levels)
		return NULL;
	r->levels = levels;
	levels[r->n_levels] = (struct memsource_level){.path = strdup(path), .version = version};
	return levels[r->n_levels].path ? &levels[r->n_levels++] : NULL;
}

static int read_host(const struct memsource_config *c, const char *proc, struct text *t,
		     struct memsource_reading *r)
{
	struct memhost_fields f;
	struct memsource_level *l;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/meminfo", proc);
	l = add_level(r, path, 0);
	if (!l)
		return -ENOMEM;
	read_text(AT_FDCWD, path, t);
	memhost_read(&f, t->bytes, t->size);
	add_term(l, "MemTotal", f.total, false);
	add_term(l, "MemAvailable", f.available, false);
	add_term(l, "MemFree", f.free, false);
	add_term(l, "Cached", f.cached, false);
	add_term(l, "Buffers", f.buffers, false);
	add_term(l, "Shmem", f.shmem, false);
	add_term(l, "SwapTotal", f.swap_total, false);
	add_term(l, "SwapFree", f.swap_free, false);
	l->use = memlimit_clamp(memhost_use(&f, c->count_swap));
	return 0;
}

static const struct names {
	const char *limit, *current, *inactive, *active, *swap_limit, *swap_current;
} names_of[] = {
	[1] = {"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat total_inactive_file",
	       "memory.stat total_active_file", "memory.memsw.limit_in_bytes",
	       "memory.memsw.usage_in_bytes"},
	[2] = {"memory.max", "memory.current", "memory.stat inactive_file",
	       "memory.stat active_file", "memory.swap.max", "memory.swap.current"},
};

static struct amount read_number(int at, const char *name, struct text *t)
{
	read_text(at, name, t);
	return memtext_number(t->bytes, t->size);
}

static struct amount read_limit(int at, const char *name, struct text *t, bool *ret_unlimited)
{
	struct amount limit;

	read_text(at, name, t);
	limit = memcgroup_read_limit(t->bytes, t->size);
	*ret_unlimited = !limit.known && ((t->size == 4 && !memcmp(t->bytes, "max\n", 4)) ||
					  memtext_number(t->bytes, t->size).known);
	return limit;
}

/* One cgroup, if it is one: the root of version 2 has no files of its own. */
static int read_group(const struct memsource_config *c, int version, const char *path,
		      struct text *t, struct memsource_reading *r)
{
	const struct names *names = &names_of[version];
	struct memcgroup_files f = {0};
	bool unlimited, swap_unlimited;
	struct memsource_level *l;
	int at = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (at < 0)
		return 0;
	f.limit = read_limit(at, names->limit, t, &unlimited);
	f.current = read_number(at, names->current, t);
	/* A swap limit of 0 is one: no swap. */
	f.swap_limit = read_limit(at, names->swap_limit, t, &swap_unlimited);
	if (version == 2 && memtext_number(t->bytes, t->size).known) {
		f.swap_limit = memtext_number(t->bytes, t->size);
		swap_unlimited = false;
	}
	f.swap_current = read_number(at, names->swap_current, t);
	read_text(at, "memory.stat", t);
	memcgroup_read_stat(&f, version, t->bytes, t->size);
	close(at);
	if (!f.limit.known && !unlimited && !f.current.known)
		return 0;
	l = add_level(r, path, version);
	if (!l)
		return -ENOMEM;
	add_term(l, names->limit, f.limit, unlimited);
	add_term(l, names->current, f.current, false);
	add_term(l, names->inactive, f.inactive_file, false);
	add_term(l, names->active, f.active_file, false);
	add_term(l, names->swap_limit, f.swap_limit, swap_unlimited);
	add_term(l, names->swap_current, f.swap_current, false);
	l->use = memlimit_clamp(memcgroup_use(&f, version, c->count_swap));
	return 0;
}

static bool is_directory(const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Where the tree of this version is mounted; both may be, and then memory is a
 * controller of one of them. */
static bool tree_of(const char *cgroup, int version, char *ret, size_t room)
{
	snprintf(ret, room, "%s/%s", cgroup, version == 1 ? "memory" : "unified");
	if (is_directory(ret))
		return true;
	snprintf(ret, room, "%s", cgroup);
	return version == 2 && is_directory(ret);
}

static int read_groups(const struct memsource_config *c, const char *proc, const char *cgroup,
		       struct text *t, struct memsource_reading *r)
{
	char path[PATH_MAX], tree[PATH_MAX], group[2 * PATH_MAX];
	int version, err = 0;

	snprintf(path, sizeof(path), "%s/self/cgroup", proc);
	read_text(AT_FDCWD, path, t);
	for (version = 1; version <= 2; version++)
		if (shms_memgroup_path(t->bytes, t->size, version, path, sizeof(path)) &&
		    tree_of(cgroup, version, tree, sizeof(tree)))
			break;
	if (version > 2)
		return 0;
	do {
		snprintf(group, sizeof(group), "%s%s", tree, path[1] ? path : "");
		err = read_group(c, version, group, t, r);
	} while (err == 0 && shms_memgroup_parent(path));
	return err;
}

static void choose(struct memsource_reading *r)
{
	r->tightest = 0;
	for (size_t i = 1; i < r->n_levels; i++) {
		struct amount least = r->levels[r->tightest].use.total,
			      total = r->levels[i].use.total;

		/* Of two that are alike, the cgroup's, and of cgroups the inner one's. */
		if (total.known && (!least.known || total.bytes < least.bytes ||
				    (total.bytes == least.bytes && r->tightest == 0)))
			r->tightest = i;
	}
}

int memsource_read(const struct memsource_config *config, struct memsource_reading *ret)
{
	const char *proc = config->proc ? config->proc : "/proc";
	const char *cgroup = config->cgroup ? config->cgroup : "/sys/fs/cgroup";
	struct memsource_reading r = MEMSOURCE_NULL;
	struct text *t = malloc(sizeof(*t));
	int err = t ? read_host(config, proc, t, &r) : -ENOMEM;

	if (err == 0)
		err = read_groups(config, proc, cgroup, t, &r);
	free(t);
	if (err < 0) {
		memsource_deinit(&r);
		return err;
	}
	choose(&r);
	*ret = r;
	return 0;
}

/* Reads one level anew. On failure, also for want of memory, the level is unknown from here on. */
static void read_again(const struct memsource_config *c, const char *proc,
		       struct memsource_level *l, struct text *t)
{
	struct memsource_reading one = MEMSOURCE_NULL;
	int err = l->version ? read_group(c, l->version, l->path, t, &one)
			     : read_host(c, proc, t, &one);

	if (err == 0 && one.n_levels) {
		free(l->path);
		*l = one.levels[0];
		one.n_levels = 0;
	} else {
		l->use = (struct memlimit_use){AMOUNT_UNKNOWN, AMOUNT_UNKNOWN};
		for (size_t i = 0; i < l->n_terms; i++)
			l->terms[i].state = MEMSOURCE_UNKNOWN;
	}
	memsource_deinit(&one);
}

int memsource_again(const struct memsource_config *config, struct memsource_reading *io)
{
	struct text *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < io->n_levels; i++)
		if (i == 0 || io->levels[i].use.total.known)
			read_again(config, config->proc ? config->proc : "/proc", &io->levels[i],
				   t);
	free(t);
	choose(io);
	return 0;
}

void memsource_deinit(struct memsource_reading *r)
{
	for (size_t i = 0; i < r->n_levels; i++)
		free(r->levels[i].path);
	free(r->levels);
	*r = MEMSOURCE_NULL;
}

/* One object for the host and for each cgroup. */
void memjson_amount(struct json_object *o, const char *name, struct amount a)
{
	if (a.known)
		jsonmake_i64(o, name, a.bytes);
	else
		jsonmake_null(o, name);
}

static struct json_object *level_json(const struct memsource_level *l, bool tightest)
{
	static const char *const states[] = {"read", "unlimited", "unknown"};
	struct json_object *o = jsonmake_new(), *terms;

	jsonmake_text(o, "source", l->path);
	if (l->version)
		jsonmake_u64(o, "cgroup_version", (uint64_t)l->version);
	else
		jsonmake_null(o, "cgroup_version");
	memjson_amount(o, "total", l->use.total);
	memjson_amount(o, "used", l->use.used);
	jsonmake_flag(o, "tightest", tightest);
	terms = jsonmake_child(o, "terms", jsonmake_new_list());
	for (size_t i = 0; i < l->n_terms; i++) {
		const struct memsource_term *t = &l->terms[i];
		struct json_object *term = jsonmake_append(terms, jsonmake_new());

		jsonmake_text(term, "term", t->name);
		memjson_amount(term, "size", (struct amount){t->state == MEMSOURCE_READ, t->bytes});
		jsonmake_text(term, "state", states[t->state]);
	}
	return o;
}

void memjson_levels(struct json_object *o, const struct memsource_reading *r)
{
	struct json_object *levels = jsonmake_child(o, "memories", jsonmake_new_list());

	for (size_t i = 0; i < r->n_levels; i++)
		jsonmake_append(levels, level_json(&r->levels[i], i == r->tightest));
}
