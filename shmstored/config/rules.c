/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c: who may hand to whom. A rule is two lists of users and groups; any rule that names both
 * sides allows it. Names are looked up when the rule is made, and again at reload; which groups a
 * user is in is asked of the system (getgrouplist) at each handoff between users, so that who is
 * put out of a group loses its right without a reload.
 */
#include "rules.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "configkey.h"

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
