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
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "configkey.h"
#include "rules.h"
#include "wire.h"

#define MIB    (1ull << 20)
#define SECOND 1000000000ull

static const struct config DEFAULTS = {
	.socket_mode = 0666,
	.max_clients = 4096,
	.max_clients_per_user = 1024,
	.hello_timeout_ns = 5 * SECOND,
	.output_max = 256u << 10,
	.http = true,
	.http_port = 9477,
	.credit = 64 * MIB,
	.credit_idle_ns = 10 * SECOND,
	.psi = true,
	.psi_stall_us = 150000,
	.psi_window_us = 2000000,
	.log_level = LOG_INFO,
	.arbiter = {.enabled = true,
		    .headroom = 10000,
		    .wait_ns = 60 * SECOND,
		    .tick_ns = SECOND / 10,
		    .call_ns = 5 * SECOND,
		    .lease = 4 * MIB,
		    .lease_small = 256u << 10,
		    .max_bypass = 64,
		    .suspect_ticks = 1,
		    .split_ticks = 10,
		    .retry_limit = 500,
		    .early_detect = true,
		    .max_contexts = 16384,
		    .max_tasks = 16384,
		    .max_reservations = 65536,
		    .max_pools = 16},
	.pressure = {.interval_ns = SECOND / 10,
		     .window = 10,
		     .hold = 3,
		     .ramp = 1,
		     .ramp_max = 64,
		     .grace_ns = SECOND,
		     .term_ns = SECOND},
	.stage = {.slots = 1}, /* and stage_defaults */
	.profile = {.fallback = 128 * MIB,
		    .interval_ns = SECOND / 10,
		    .save_ns = 60 * SECOND,
		    .max_kinds = 1000},
	.peers = {.timeout_ns = 5 * SECOND,
		  .sync_ns = 10 * SECOND,
		  .copies = {.num = {.k = 1, .text = "explicit:1"},
			     .frequency_ns = 5 * SECOND,
			     .retry = 3},
		  .recover_ns = 10 * SECOND},
};

struct config_partition *config_partition_add(struct config *c, const char *path)
{
	struct config_partition *list = reallocarray(c->partitions, c->n_partitions + 1,
						     sizeof(*list)),
				*p;

	if (!list)
		return NULL;
	c->partitions = list;
	p = &list[c->n_partitions];
	*p = (struct config_partition){
		.path = strdup(path),
		.watermark_low = 800000,
		.watermark_high = 900000,
		.survey_interval_ns = 30 * SECOND,
		.ghost_age_ns = 60 * SECOND,
		.queue_per_store = 64,
		.queue_max_bypass = 64,
		.disk = {.min_free = 1024 * MIB,
			 .level = 1,
			 .high = 85,
			 .low = 75,
			 .scrub_ns = 7 * UINT64_C(86400) * SECOND,
			 .scrub_rate = 16 * MIB},
	};
	if (!p->path)
		return NULL;
	c->n_partitions++;
	return p;
}

struct config_limit *config_limit_get(struct config_partition *p, uint32_t kind, const char *id)
{
	struct config_limit *list;

	for (size_t i = 0; i < p->n_limits; i++) {
		if (p->limits[i].kind == kind && strcmp(p->limits[i].id, id) == 0)
			return &p->limits[i];
	}
	list = reallocarray(p->limits, p->n_limits + 1, sizeof(*list));
	if (!list)
		return NULL;
	p->limits = list;
	list[p->n_limits] = (struct config_limit){.kind = kind, .id = strdup(id)};
	return list[p->n_limits].id ? &list[p->n_limits++] : NULL;
}

static void partitions_free(struct config *c)
{
	for (size_t i = 0; i < c->n_partitions; i++) {
		for (size_t j = 0; j < c->partitions[i].n_limits; j++)
			free(c->partitions[i].limits[j].id);
		free(c->partitions[i].limits);
		free(c->partitions[i].disk.path);
		free(c->partitions[i].path);
	}
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
	free(c->socket);
	free(c->socket_group);
	free(c->http_address);
	free(c->pressure.proc);
	free(c->pressure.cgroup);
	free(c->profile.directory);
	free(c->peers.name);
	free(c->peers.listen);
	free(c->peers.connect);
	free(c->peers.secret_file);
	config_copies_clear(&c->peers.copies);
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

static int new_config(struct config **ret)
{
	struct config *c = malloc(sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = DEFAULTS;
	c->stage.rules = stage_defaults;
	c->http_address = strdup("127.0.0.1");
	if (!c->http_address || rules_new(&c->rules) < 0) {
		config_free(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
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
	if (n < 0) {
		r = -errno;
		if (asprintf(ret_error, "%s: %s; check the path and its permissions", dir,
			     strerror(-r)) < 0)
			*ret_error = NULL;
		return r;
	}
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
		    p->watermark_low > p->watermark_high &&
		    asprintf(ret_error,
			     "%s: partition \"%s\": watermark-low is above watermark-high", file,
			     p->path) >= 0)
			return -EINVAL;
		if (p->disk.low >= p->disk.high &&
		    asprintf(ret_error, "%s: partition \"%s\": disk.low is not below disk.high",
			     file, p->path) >= 0)
			return -EINVAL;
	}
	if (c->arbiter.lease && c->arbiter.lease_small > c->arbiter.lease &&
	    asprintf(ret_error, "%s: arbiter: lease-small is above lease", file) >= 0)
		return -EINVAL;
	if (is_above(c->pressure.low, c->pressure.gate) &&
	    asprintf(ret_error, "%s: pressure: low is not below gate", file) >= 0)
		return -EINVAL;
	if (is_above(c->pressure.gate, c->pressure.kill) &&
	    asprintf(ret_error, "%s: pressure: gate is not below kill", file) >= 0)
		return -EINVAL;
	if (c->pressure.ramp > c->pressure.ramp_max &&
	    asprintf(ret_error, "%s: pressure: ramp is above ramp-max", file) >= 0)
		return -EINVAL;
	if (c->socket_group && !getgrnam(c->socket_group) &&
	    asprintf(ret_error,
		     "%s: socket-group: no such group: %s; make it, or leave the key out", file,
		     c->socket_group) >= 0)
		return -EINVAL;
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

static int add_default_partition(struct config *c)
{
	char path[PATH_MAX];
	struct config_partition *p;
	int r = shmstore_default_path(path, sizeof(path));

	if (r < 0)
		return r;
	p = config_partition_add(c, path);
	if (!p)
		return -ENOMEM;
	p->create = true;
	return 0;
}

int config_read(const char *file, struct config **ret, char **ret_error)
{
	const char *name = file ? file : CONFIG_FILE;
	struct config *c;
	char *error = NULL;
	int r = new_config(&c);

	if (r < 0)
		return r;
	if (file || access(name, F_OK) == 0 || errno != ENOENT)
		r = configread_file(c, name, &error);
	if (r == 0)
		r = read_dropins(c, name, &error);
	if (r == 0)
		r = check(c, name, &error);
	if (r == 0 && c->n_partitions == 0)
		r = add_default_partition(c);
	if (r < 0) {
		config_free(c);
		*ret_error = error;
		return r;
	}
	*ret = c;
	return 0;
}
