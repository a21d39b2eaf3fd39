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
#include <string.h>
#include <sys/statvfs.h>

#include "account.h"
#include "accountquota.h"
#include "config.h"
#include "host.h"
#include "part.h"

int accountquota_apply_partition(struct accountquota *k)
{
	const struct config_partition *config = k->account->config;
	struct quota_limits l = k->partition;
	struct statvfs fs;
	uint64_t size = fstatvfs(k->account->fd, &fs) < 0 ? 0 : (uint64_t)fs.f_blocks * fs.f_frsize;
	uint64_t high = config_watermark(config->watermark_high, size),
		 low = config_watermark(config->watermark_low, size);

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

_Static_assert(CONFIG_LIMIT_DEFAULT == QUOTA_DEFAULT, "a limit's bytes are the configuration's");

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

/* Is it still what that configuration said? */
static bool is_as_in(const struct accountquota *k, const struct config_limit *c)
{
	struct quota_limits l = current(k, c->kind, c->id);

	return l.hard == c->hard && l.soft == c->soft;
}

/* NULL: that configuration does not have it. */
static const struct config_limit *find(const struct config_partition *c, uint32_t kind,
				       const char *id)
{
	for (size_t i = 0; c && i < c->n_limits; i++) {
		if (c->limits[i].kind == kind && strcmp(c->limits[i].id, id) == 0)
			return &c->limits[i];
	}
	return NULL;
}

/* Limits that left the configuration return to the default, unless somebody changed them. */
static int drop_old(struct accountquota *k, const struct config_partition *before)
{
	static const struct quota_limits none = {QUOTA_DEFAULT, QUOTA_DEFAULT, 0};
	int r = 0;

	for (size_t i = 0; before && r == 0 && i < before->n_limits; i++) {
		const struct config_limit *c = &before->limits[i];

		if (!find(k->account->config, c->kind, c->id) && is_as_in(k, c))
			r = apply(k, c->kind, c->id, &none);
	}
	return r;
}

int accountquota_reload(struct account *a, const struct config_partition *before)
{
	struct accountquota *k = a->accountquota;
	const struct config_partition *config = a->config;
	int r = drop_old(k, before);

	for (size_t i = 0; r == 0 && i < config->n_limits; i++) {
		const struct config_limit *c = &config->limits[i];
		const struct config_limit *old = find(before, c->kind, c->id);
		struct quota_limits l = {c->hard, c->soft, 0}, is = current(k, c->kind, c->id);
		bool unset = is.hard == QUOTA_DEFAULT && is.soft == QUOTA_DEFAULT;

		if (old ? is_as_in(k, old) : unset)
			r = apply(k, c->kind, c->id, &l);
	}
	return r < 0 ? r : accountquota_apply_partition(k);
}

int accountquota_change(struct account *a, enum wire_limit kind, const char *id, bool soft,
			uint64_t bytes)
{
	struct accountquota *k = a->accountquota;
	const struct config_limit *c = find(a->config, kind, id);
	struct quota_limits l = current(k, kind, id);
	uint64_t *value = soft ? &l.soft : &l.hard;

	*value = bytes;
	if (bytes == QUOTA_DEFAULT && c)
		*value = soft ? c->soft : c->hard;
	if (l.hard && l.hard != QUOTA_DEFAULT && l.soft != QUOTA_DEFAULT && l.soft > l.hard)
		return -EINVAL;
	return apply(k, kind, id, &l);
}
