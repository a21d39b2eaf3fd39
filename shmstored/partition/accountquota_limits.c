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
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "account.h"
#include "amount.h"
#include "cleanup.h"
#include "config.h"
#include "conn.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "member.h"

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

int accountquota_reload(struct account *a, const struct config_partition *before)
{
	struct accountquota *k = a->accountquota;
	const struct config_partition *config = a->config;
	static const struct quota_limits none = {QUOTA_DEFAULT, QUOTA_DEFAULT, 0};
	int r = 0;

	/* A limit that left the configuration becomes the default, unless somebody changed it. */
	for (size_t i = 0; before && r == 0 && i < before->n_limits; i++) {
		const struct config_limit *c = &before->limits[i];

		if (!config_limit_find(config, c->kind, c->id) && is_as_in(k, c))
			r = apply(k, c->kind, c->id, &none);
	}
	for (size_t i = 0; r == 0 && i < config->n_limits; i++) {
		const struct config_limit *c = &config->limits[i];
		const struct config_limit *old = config_limit_find(before, c->kind, c->id);
		struct quota_limits l = {c->hard, c->soft, 0}, is = current(k, c->kind, c->id);
		bool unset = is.hard == QUOTA_DEFAULT && is.soft == QUOTA_DEFAULT;

		if (old ? is_as_in(k, old) : unset)
			r = apply(k, c->kind, c->id, &l);
	}
	return r < 0 ? r : accountquota_apply_partition(k);
}

/* ---- at run time ----------------------------------------------------------------------------- */

#define KEYS                                                                              \
	"limit, soft, user.UID.limit, user.UID.soft, label.NAME.limit, label.NAME.soft, " \
	"store.NAME.limit, "                                                              \
	"store.NAME.soft"

struct change {
	struct account *account;
	enum wire_limit kind;
	char id[QUOTA_ID_MAX + 1];
	bool soft;
	uint64_t bytes;
};

struct reason {
	char *text;
	size_t size;
};

static __attribute__((format(printf, 3, 4))) int fail(const struct reason *why, int error,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->text, why->size, format, args);
	va_end(args);
	return error;
}

/* PARTITION, where the text names one; advances *io behind it. */
static int parse_partition(struct host *h, char **io, struct change *ret, const struct reason *why)
{
	char *equals = strchr(*io, '='), *space = NULL;

	/* A path may have spaces; a key up to its "=" has none. */
	for (char *at = *io; at < equals; at++) {
		if (*at == ' ')
			space = at;
	}
	if (!equals)
		return fail(why, -EINVAL,
			    "\"%s\" sets nothing; write [PARTITION ]KEY=VALUE with one of the "
			    "keys " KEYS,
			    *io);
	if (!space) {
		ret->account = h->accounts;
		if (!ret->account || ret->account->next)
			return fail(why, -EINVAL, "which partition? %s; write PARTITION KEY=VALUE",
				    h->accounts ? "there are several" : "there is none");
		return 0;
	}
	*space = '\0';
	ret->account = account_find(h, *io);
	if (!ret->account)
		return fail(why, -ENOENT,
			    "no partition %s is under watch; shmstore-admin status lists them",
			    *io);
	*io = space + 1;
	return 0;
}

static int parse_key(const char *key, struct change *ret, const struct reason *why)
{
	const char *id = key, *end = strrchr(key, '.');
	char digits[16];

	ret->kind = WIRE_LIMIT_PARTITION;
	for (enum wire_limit kind = WIRE_LIMIT_USER; end && kind <= WIRE_LIMIT_STORE; kind++) {
		const char *name = quota_kind_name(kind);
		size_t n = strlen(name) + 1;

		if (strncmp(key, name, n - 1) != 0 || key[n - 1] != '.' || end < key + n)
			continue;
		ret->kind = kind;
		id = key + n;
		if (end == id || (size_t)(end - id) > QUOTA_ID_MAX)
			return fail(why, -EINVAL, "\"%s\" names no %s; write one of " KEYS, key,
				    quota_kind_name(ret->kind));
		memcpy(ret->id, id, (size_t)(end - id));
		key = end + 1;
		break;
	}
	ret->soft = strcmp(key, "soft") == 0;
	if (!ret->soft && strcmp(key, "limit") != 0)
		return fail(why, -EINVAL, "there is no key \"%s\"; write one of " KEYS, key);
	if (ret->kind != WIRE_LIMIT_USER)
		return 0;
	id = config_user_id(ret->id, digits);
	if (!id)
		return fail(why, -EINVAL, "no user is called \"%s\"; write a name, a number or *",
			    ret->id);
	if (id != ret->id)
		strcpy(ret->id, id);
	return 0;
}

static int parse_value(const char *value, struct change *io, const struct reason *why)
{
	uint64_t total = io->kind == WIRE_LIMIT_PARTITION ? io->account->tick.size : 0;

	if (strcmp(value, "none") == 0 || strcmp(value, "default") == 0) {
		io->bytes = value[0] == 'n' ? 0 : QUOTA_DEFAULT;
		return 0;
	}
	if (config_parse_size(value, total, &io->bytes) < 0 || io->bytes > QUOTA_MAX)
		return fail(why, -EINVAL,
			    "\"%s\" is no size; write bytes, or as 512MiB or 1.5G%s, or none, or "
			    "default",
			    value, total ? ", or a percentage as 50%" : "");
	return 0;
}

static int carry_out(const struct change *c)
{
	struct accountquota *k = c->account->accountquota;
	const struct config_limit *said = config_limit_find(c->account->config, c->kind, c->id);
	struct quota_limits l = current(k, c->kind, c->id);

	*(c->soft ? &l.soft : &l.hard) = c->bytes != QUOTA_DEFAULT || !said ? c->bytes
					 : c->soft                          ? said->soft
									    : said->hard;
	if (l.hard && l.hard != QUOTA_DEFAULT && l.soft != QUOTA_DEFAULT && l.soft > l.hard)
		return -EINVAL;
	return apply(k, c->kind, c->id, &l);
}

static void tell(const struct change *c)
{
	struct json_object *o = account_json(c->account);
	char key[QUOTA_ID_MAX + 64];

	jsonmake_text(o, "kind", quota_kind_name(c->kind));
	jsonmake_text(o, "id", c->id);
	if (c->bytes && c->bytes != QUOTA_DEFAULT)
		jsonmake_u64(o, c->soft ? "soft" : "hard", c->bytes);
	else
		jsonmake_null(o, c->soft ? "soft" : "hard");
	/* Another value is other news. */
	snprintf(key, sizeof(key), "%s %s %d %" PRIu64, quota_kind_name(c->kind), c->id, c->soft,
		 c->bytes);
	events_emit(c->account->host->events, EVENT_LIMIT_SET, key, o);
}

int accountquota_set(struct host *h, const char *assignment, char *ret_reason, size_t size)
{
	const struct reason why = {ret_reason, size};
	_free_ char *own = strdup(assignment);
	char *text = own, *value;
	struct change c = {0};
	int r = own ? parse_partition(h, &text, &c, &why) : fail(&why, -ENOMEM, "out of memory");

	if (r < 0)
		return r;
	value = strchr(text, '=');
	*value++ = '\0';
	r = parse_key(text, &c, &why);
	if (r == 0)
		r = parse_value(value, &c, &why);
	if (r < 0)
		return r;
	r = carry_out(&c);
	if (r == -EINVAL)
		return fail(&why, r,
			    "a soft limit above the hard one asks for nothing; set the other one "
			    "first");
	if (r < 0)
		return fail(&why, r, "out of memory");
	tell(&c);
	return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void say_whose(const struct account *a, const struct quota_answer *why, char *ret,
		      size_t size)
{
	switch (why->limit) {
	case WIRE_LIMIT_USER:
		snprintf(ret, size, "user %s on %s", why->id, a->path);
		break;
	case WIRE_LIMIT_LABEL:
		snprintf(ret, size, "stores with label \"%s\" on %s", why->id, a->path);
		break;
	case WIRE_LIMIT_PARTITION:
	case WIRE_LIMIT_STORE:
	case WIRE_LIMIT_NONE:
		snprintf(ret, size, "partition %s", a->path);
	}
}

static int say_no_disk(const struct account *a, struct conn *c, uint64_t serial,
		       const struct quota_answer *why)
{
	return conn_refuse_limit(c, serial, -ETIMEDOUT, why->limit, why->hard, why->used,
				 "no room on %s (%" PRIu64 " of %" PRIu64
				 " bytes are used or granted), and %s: it was not waited for "
				 "longer; delete objects, or make room on the disk",
				 a->path, why->used, why->hard,
				 PART_ANY(a, disk_full, a) ? "the disk tier is full"
							   : "queue-grace is over");
}

int accountquota_refuse(struct account *a, struct conn *c, uint64_t serial, int error,
			const struct quota_answer *why)
{
	/* A put that others held back was never tried: the partition is its limit. */
	const struct quota_answer untried = {
		.limit = WIRE_LIMIT_PARTITION, .hard = a->tick.size, .used = a->tick.used};
	char whose[QUOTA_ID_MAX + WIRE_PATH_MAX + 64];
	const char *how = error == -ETIMEDOUT ? "no room came in time: " : "";

	switch (error) {
	case -ECANCELED:
		return conn_refuse(c, serial, error, "the request was cancelled");
	case -EMFILE:
		return conn_refuse(
			c, serial, error,
			"too many requests of this store wait already; wait for one of them first");
	case -EPERM:
		return conn_refuse(c, serial, error,
				   "this store's page cannot be relied on; close the store and "
				   "open a new one");
	default:
		break;
	}
	if (why->limit == WIRE_LIMIT_NONE)
		why = &untried;
	a->host->counters.n_refusals++;
	if (error == -ENOBUFS)
		return say_no_disk(a, c, serial, why);
	say_whose(a, why, whose, sizeof(whose));
	return conn_refuse_limit(c, serial, error, why->limit, why->hard, why->used,
				 "%s%s: %s of %s are used or granted (%" PRIu64 " of %" PRIu64
				 " bytes); delete objects, or "
				 "ask whoever runs shmstored here for a higher limit",
				 how, whose, sizetext(why->used).text, sizetext(why->hard).text,
				 why->used, why->hard);
}
