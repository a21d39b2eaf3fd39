/* SPDX-License-Identifier: Apache-2.0 */
/* accountquota_set.c: a limit at run time, as "[PARTITION ]KEY=VALUE": accountquota.h says which
 * keys and values there are. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "accountquota.h"
#include "config.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"

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

static int fail(const struct reason *why, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int fail(const struct reason *why, int error, const char *format, ...)
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

static int parse_user(struct change *io, const struct reason *why)
{
	char digits[16];
	const char *id = config_user_id(io->id, digits);

	if (!id)
		return fail(why, -EINVAL, "no user is called \"%s\"; write a name, a number or *",
			    io->id);
	if (id != io->id)
		strcpy(io->id, id);
	return 0;
}

static int parse_key(const char *key, struct change *ret, const struct reason *why)
{
	const char *id = key, *end = strrchr(key, '.');

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
	return ret->kind == WIRE_LIMIT_USER ? parse_user(ret, why) : 0;
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

static int set(struct host *h, char *text, const struct reason *why)
{
	struct change c = {0};
	char *value;
	int r = parse_partition(h, &text, &c, why);

	if (r < 0)
		return r;
	value = strchr(text, '=');
	*value++ = '\0';
	r = parse_key(text, &c, why);
	if (r == 0)
		r = parse_value(value, &c, why);
	if (r < 0)
		return r;
	r = accountquota_change(c.account, c.kind, c.id, c.soft, c.bytes);
	if (r == -EINVAL)
		return fail(why, r,
			    "a soft limit above the hard one asks for nothing; set the other one "
			    "first");
	if (r < 0)
		return fail(why, r, "out of memory");
	tell(&c);
	return 0;
}

int accountquota_set(struct host *h, const char *assignment, char *ret_reason, size_t size)
{
	struct reason why = {ret_reason, size};
	char *text = strdup(assignment);
	int r = text ? set(h, text, &why) : fail(&why, -ENOMEM, "out of memory");

	free(text);
	return r;
}
