/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accountquota_limits.c: which limits are in force: what the configuration says, unless
 * an operator said otherwise at run time. A reload changes what the configuration had
 * said and nobody changed since.
 *
 * The high watermark is the partition's soft limit, the low one is where asking ends, unless a soft
 * limit is set. The disk tier's marks take the place of these two where they are lower.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "account.h"
#include "accountquota.h"
#include "config.h"
#include "host.h"
#include "part.h"

#define PPM_MAX UINT64_C(1000000)

static uint64_t watermark(const struct account *a, uint64_t mark)
{
	struct statvfs fs;

	if (mark > PPM_MAX)
		return mark;
	if (!mark || fstatvfs(a->fd, &fs) < 0)
		return 0;
	return (uint64_t)((__uint128_t)fs.f_blocks * fs.f_frsize * mark / PPM_MAX);
}

int accountquota_apply_partition(struct accountquota *k)
{
	const struct config_partition *config = k->account->config;
	struct quota_limits l = k->partition;
	uint64_t high = watermark(k->account, config->watermark_high),
		 low = watermark(k->account, config->watermark_low);

	/* Recycled files go before objects do. */
	PART_EACH(k->account, marks, k->account, &high, &low);
	if (l.soft == QUOTA_DEFAULT && high) {
		l.soft = l.hard && l.hard != QUOTA_DEFAULT && high > l.hard ? l.hard : high;
		l.low = low < l.soft ? low : 0;
	}
	if (memcmp(&l, &k->applied, sizeof(l)) == 0)
		return 0;
	k->applied = l;
	return quota_limit(k->account->quota, WIRE_LIMIT_PARTITION, "", &l,
			   loop_now(k->account->host->loop));
}

/* A limit that the configuration leaves out is as the default of its kind says; "none"
 * is none whatever that says. */
static uint64_t bytes_of(uint64_t configured)
{
	if (configured == CONFIG_LIMIT_NONE)
		return 0;
	return configured ? configured : QUOTA_DEFAULT;
}

static struct quota_limits from_config(const struct config_limit *c)
{
	return (struct quota_limits){.hard = bytes_of(c->hard), .soft = bytes_of(c->soft)};
}

static bool same(const struct quota_limits *a, const struct quota_limits *b)
{
	return a->hard == b->hard && a->soft == b->soft;
}

static int apply(struct accountquota *k, enum wire_limit kind, const char *id,
		 const struct quota_limits *l)
{
	if (kind == WIRE_LIMIT_PARTITION) {
		k->partition = *l;
		return accountquota_apply_partition(k);
	}
	return quota_limit(k->account->quota, kind, id, l, loop_now(k->account->host->loop));
}

static struct quota_limits current(const struct accountquota *k, enum wire_limit kind,
				   const char *id)
{
	struct quota_limits l = {QUOTA_DEFAULT, QUOTA_DEFAULT, 0};

	if (kind == WIRE_LIMIT_PARTITION)
		return k->partition;
	if (quota_limit_get(k->account->quota, kind, id, &l) < 0)
		return l;
	/* The default of a kind knows no "as the default": none. */
	if (strcmp(id, "*") == 0) {
		l.hard = l.hard ? l.hard : QUOTA_DEFAULT;
		l.soft = l.soft ? l.soft : QUOTA_DEFAULT;
	}
	return l;
}

static struct accountquota_configured *find(struct accountquota *k, enum wire_limit kind,
					    const char *id)
{
	for (size_t i = 0; i < k->n_configured; i++) {
		if (k->configured[i].kind == kind && strcmp(k->configured[i].id, id) == 0)
			return &k->configured[i];
	}
	return NULL;
}

static void free_configured(struct accountquota_configured *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i].id);
	free(list);
}

static bool is_configured(const struct config_partition *config,
			  const struct accountquota_configured *c)
{
	for (size_t i = 0; i < config->n_limits; i++) {
		if (config->limits[i].kind == c->kind && strcmp(config->limits[i].id, c->id) == 0)
			return true;
	}
	return false;
}

/* Limits that left the configuration return to the default, unless somebody changed them. */
static int drop_old(struct accountquota *k)
{
	static const struct quota_limits none = {QUOTA_DEFAULT, QUOTA_DEFAULT, 0};

	for (size_t i = 0; i < k->n_configured; i++) {
		const struct accountquota_configured *c = &k->configured[i];
		struct quota_limits l = current(k, c->kind, c->id);
		int r;

		if (is_configured(k->account->config, c) || !same(&l, &c->limits))
			continue;
		r = apply(k, c->kind, c->id, &none);
		if (r < 0)
			return r;
	}
	return 0;
}

int accountquota_reload(struct account *a)
{
	struct accountquota *k = a->accountquota;
	const struct config_partition *config = a->config;
	struct accountquota_configured *list = calloc(config->n_limits + 1, sizeof(*list));
	int r = list ? drop_old(k) : -ENOMEM;
	size_t n = 0;

	for (; r == 0 && n < config->n_limits; n++) {
		const struct config_limit *c = &config->limits[n];
		const struct accountquota_configured *old = find(k, c->kind, c->id);
		struct quota_limits l = from_config(c), is = current(k, c->kind, c->id);
		bool unset = is.hard == QUOTA_DEFAULT && is.soft == QUOTA_DEFAULT;

		list[n] = (struct accountquota_configured){
			.kind = c->kind, .id = strdup(c->id), .limits = l};
		if (!list[n].id)
			r = -ENOMEM;
		else if (old ? same(&is, &old->limits) : unset)
			r = apply(k, c->kind, c->id, &l);
	}
	if (r == 0)
		r = accountquota_apply_partition(k);
	if (r < 0) {
		free_configured(list, n);
		return r;
	}
	free_configured(k->configured, k->n_configured);
	k->configured = list;
	k->n_configured = config->n_limits;
	return 0;
}

int accountquota_change(struct account *a, enum wire_limit kind, const char *id, bool soft,
			uint64_t bytes)
{
	struct accountquota *k = a->accountquota;
	const struct accountquota_configured *c = find(k, kind, id);
	struct quota_limits l = current(k, kind, id);
	uint64_t *value = soft ? &l.soft : &l.hard;

	*value = bytes;
	if (bytes == QUOTA_DEFAULT && c)
		*value = soft ? c->limits.soft : c->limits.hard;
	if (l.hard && l.hard != QUOTA_DEFAULT && l.soft != QUOTA_DEFAULT && l.soft > l.hard)
		return -EINVAL;
	return apply(k, kind, id, &l);
}

void accountquota_limits_deinit(struct accountquota *k)
{
	free_configured(k->configured, k->n_configured);
	k->configured = NULL;
	k->n_configured = 0;
}
