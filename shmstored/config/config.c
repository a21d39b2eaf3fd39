/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c: a configuration as a whole: the defaults, the files in their order, what the
 * values must be among themselves.
 *
 * The main file comes first, then FILE.d/ *.conf by name: a later one says over again what it
 * names, and leaves the rest. Without any file the defaults hold: one partition, the library's own.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <shmstore/shmstore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "wire.h"

static void partition_deinit(struct config_partition *p)
{
	for (size_t i = 0; i < p->n_limits; i++)
		free(p->limits[i].id);
	free(p->limits);
	configread_clear(true, p);
	free(p->path);
}

struct config_partition *config_partition_find(const struct config *c, const char *path)
{
	for (size_t i = 0; i < c->n_partitions; i++) {
		if (strcmp(c->partitions[i].path, path) == 0)
			return &c->partitions[i];
	}
	return NULL;
}

struct config_partition *config_partition_add(struct config *c, const char *path)
{
	struct config_partition *list = reallocarray(c->partitions, c->n_partitions + 1,
						     sizeof(*list)),
				*p;

	if (!list)
		return NULL;
	c->partitions = list;
	p = &list[c->n_partitions];
	*p = (struct config_partition){.path = strdup(path)};
	if (!p->path || configread_standards(true, p) < 0) {
		partition_deinit(p);
		return NULL;
	}
	c->n_partitions++;
	return p;
}

struct config_limit *config_limit_find(const struct config_partition *p, uint32_t kind,
				       const char *id)
{
	for (size_t i = 0; p && i < p->n_limits; i++) {
		if (p->limits[i].kind == kind && strcmp(p->limits[i].id, id) == 0)
			return &p->limits[i];
	}
	return NULL;
}

struct config_limit *config_limit_get(struct config_partition *p, uint32_t kind, const char *id)
{
	struct config_limit *list = config_limit_find(p, kind, id);

	if (list)
		return list;
	list = reallocarray(p->limits, p->n_limits + 1, sizeof(*list));
	if (!list)
		return NULL;
	p->limits = list;
	list[p->n_limits] =
		(struct config_limit){kind, strdup(id), CONFIG_LIMIT_DEFAULT, CONFIG_LIMIT_DEFAULT};
	return list[p->n_limits].id ? &list[p->n_limits++] : NULL;
}

static void partitions_free(struct config *c)
{
	for (size_t i = 0; i < c->n_partitions; i++)
		partition_deinit(&c->partitions[i]);
	free(c->partitions);
	c->partitions = NULL;
	c->n_partitions = 0;
}

struct config *config_free(struct config *c)
{
	if (!c)
		return NULL;
	partitions_free(c);
	rules_free(c->rules);
	configread_clear(false, c);
	free(c);
	return NULL;
}

int config_set_partitions(struct config *c, const char *const *paths, size_t n)
{
	partitions_free(c);
	for (size_t i = 0; i < n; i++) {
		if (!config_partition_add(c, paths[i]))
			return -ENOMEM;
	}
	return 0;
}

/* Says why the configuration is refused. Returns error. */
static __attribute__((format(printf, 3, 4))) int fail(char **ret_error, int error,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (vasprintf(ret_error, format, args) < 0)
		*ret_error = NULL;
	va_end(args);
	return error;
}

static int is_conf(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return e->d_name[0] != '.' && n > 5 && strcmp(e->d_name + n - 5, ".conf") == 0;
}

static int read_dropins(struct config *c, const char *file, char **ret_error)
{
	struct dirent **list;
	char dir[PATH_MAX], path[2 * PATH_MAX];
	int n, r = 0;

	snprintf(dir, sizeof(dir), "%s.d", file);
	n = scandir(dir, &list, is_conf, alphasort);
	if (n < 0 && errno == ENOENT)
		return 0; /* most have none */
	if (n < 0)
		return fail(ret_error, -errno, "%s: %s; check the path and its permissions", dir,
			    strerror(errno));
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
		if (r == 0)
			r = configread_file(c, path, ret_error);
		free(list[i]);
	}
	free(list);
	return r;
}

/* Of two watermarks that were said in the same way, the first is not below the second. */
static bool is_above(uint64_t low, uint64_t high)
{
	return low && high && (low > 1000000) == (high > 1000000) && low >= high;
}

/* Checks the rules that relate several keys. */
static int check(const struct config *c, const char *file, char **ret_error)
{
	for (size_t i = 0; i < c->n_partitions; i++) {
		const struct config_partition *p = &c->partitions[i];

		if (p->watermark_high &&
		    (p->watermark_low > 1000000) == (p->watermark_high > 1000000) &&
		    p->watermark_low > p->watermark_high)
			return fail(ret_error, -EINVAL,
				    "%s: partition \"%s\": watermark-low is above watermark-high",
				    file, p->path);
		if (p->disk.low >= p->disk.high)
			return fail(ret_error, -EINVAL,
				    "%s: partition \"%s\": disk.low is not below disk.high", file,
				    p->path);
	}
	if (c->arbiter.lease && c->arbiter.lease_small > c->arbiter.lease)
		return fail(ret_error, -EINVAL, "%s: arbiter: lease-small is above lease", file);
	if (is_above(c->pressure.low, c->pressure.gate))
		return fail(ret_error, -EINVAL, "%s: pressure: low is not below gate", file);
	if (is_above(c->pressure.gate, c->pressure.kill))
		return fail(ret_error, -EINVAL, "%s: pressure: gate is not below kill", file);
	if (c->pressure.ramp > c->pressure.ramp_max)
		return fail(ret_error, -EINVAL, "%s: pressure: ramp is above ramp-max", file);
	if (c->socket_group && !getgrnam(c->socket_group))
		return fail(ret_error, -EINVAL,
			    "%s: socket-group: no such group: %s; make it, or leave the key out",
			    file, c->socket_group);
	return 0;
}

int config_default_socket(struct config *c)
{
	const char *named = getenv("SHMSTORE_SOCKET");

	if (c->socket)
		return 0;
	if (named && *named)
		c->socket = strdup(named);
	else if (geteuid() == 0)
		c->socket = strdup(WIRE_SOCKET);
	else if (asprintf(&c->socket, "%s/" WIRE_OWN_SOCKET, c->partitions[0].path) < 0)
		c->socket = NULL;
	return c->socket ? 0 : -ENOMEM;
}

int config_read(const char *file, struct config **ret, char **ret_error)
{
	const char *name = file ? file : CONFIG_FILE;
	struct config *c = calloc(1, sizeof(*c));
	struct config_partition *p;
	char *error = NULL, path[PATH_MAX];
	int r;

	if (!c)
		return -ENOMEM;
	c->stage.rules = stage_defaults;
	r = configread_standards(false, c);
	if (r == 0 && (file || access(name, F_OK) == 0 || errno != ENOENT))
		r = configread_file(c, name, &error);
	if (r == 0)
		r = read_dropins(c, name, &error);
	if (r == 0)
		r = check(c, name, &error);
	if (r == 0 && c->n_partitions == 0) {
		r = shmstore_default_path(path, sizeof(path));
		p = r == 0 ? config_partition_add(c, path) : NULL;
		if (p)
			p->create = true;
		else if (r == 0)
			r = -ENOMEM;
	}
	if (r < 0) {
		config_free(c);
		*ret_error = error;
		return r;
	}
	*ret = c;
	return 0;
}

/* ---- rules ----------------------------------------------------------------------------------- */

/*
 * Rules say who may hand to whom. Each is two lists of users and groups; any rule that names both
 * sides allows it. Names are looked up when the rule is made, and again at reload; the groups that
 * a user is in are asked of the system (getgrouplist) at each handoff between users, so that who is
 * put out of a group loses its right without a reload.
 */

enum who_kind {
	WHO_ANY,
	WHO_USER,
	WHO_GROUP
};

struct who {
	enum who_kind kind;
	uint32_t id;
};

struct rule {
	struct rule *next;
	char *name;
	size_t n_from, n_to;
	struct who who[]; /* from, then to */
};

struct rule *rules_free(struct rule *list)
{
	for (struct rule *next; list; list = next) {
		next = list->next;
		free(list->name);
		free(list);
	}
	return NULL;
}

static bool parse_who(const char *word, struct who *ret)
{
	const struct passwd *pw;
	const struct group *gr;
	uint64_t id;

	*ret = (struct who){.kind = WHO_ANY};
	if (strcmp(word, "any") == 0)
		return true;
	if (strncmp(word, "uid:", 4) == 0 || strncmp(word, "gid:", 4) == 0) {
		if (configkey_number(word + 4, 10, 0, UINT32_MAX - 1, &id) < 0)
			return false;
		*ret = (struct who){*word == 'u' ? WHO_USER : WHO_GROUP, (uint32_t)id};
		return true;
	}
	if (strncmp(word, "user:", 5) == 0 && (pw = getpwnam(word + 5)) != NULL) {
		*ret = (struct who){WHO_USER, pw->pw_uid};
		return true;
	}
	if (strncmp(word, "group:", 6) == 0 && (gr = getgrnam(word + 6)) != NULL) {
		*ret = (struct who){WHO_GROUP, gr->gr_gid};
		return true;
	}
	return false;
}

int rules_add(struct rule **list, const char *name, const char *const *from, size_t n_from,
	      const char *const *to, size_t n_to, const char **ret_bad)
{
	size_t n = n_from + n_to;
	struct rule *rule = calloc(1, sizeof(*rule) + n * sizeof(rule->who[0]));

	if (!rule)
		return -ENOMEM;
	*rule = (struct rule){.name = strdup(name), .n_from = n_from, .n_to = n_to};
	for (size_t i = 0; rule->name && i < n; i++) {
		const char *word = i < n_from ? from[i] : to[i - n_from];

		if (!parse_who(word, &rule->who[i])) {
			*ret_bad = word;
			rules_free(rule);
			return -EINVAL;
		}
	}
	if (!rule->name) {
		rules_free(rule);
		return -ENOMEM;
	}
	LL_APPEND(*list, rule);
	return 0;
}

static bool in_group(uid_t uid, gid_t gid)
{
	const struct passwd *pw = getpwuid(uid);
	gid_t *groups = NULL;
	int n = 0;
	bool found = false;

	if (!pw)
		return false;
	/* The first call says how many there are. */
	getgrouplist(pw->pw_name, pw->pw_gid, NULL, &n);
	if (n <= 0)
		return pw->pw_gid == gid;
	groups = calloc((size_t)n, sizeof(*groups));
	if (groups && getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) >= 0) {
		for (int i = 0; i < n && !found; i++)
			found = groups[i] == gid;
	}
	free(groups);
	return found;
}

static bool matches(const struct who *list, size_t n, uid_t uid)
{
	for (size_t i = 0; i < n; i++) {
		if (list[i].kind == WHO_ANY || (list[i].kind == WHO_USER && list[i].id == uid) ||
		    (list[i].kind == WHO_GROUP && in_group(uid, list[i].id)))
			return true;
	}
	return false;
}

bool rules_allow(const struct rule *list, uid_t from, uid_t to, const char **ret_name)
{
	for (const struct rule *rule = list; rule; rule = rule->next) {
		if (matches(rule->who, rule->n_from, from) &&
		    matches(rule->who + rule->n_from, rule->n_to, to)) {
			if (ret_name)
				*ret_name = rule->name;
			return true;
		}
	}
	return false;
}
