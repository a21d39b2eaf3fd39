/* SPDX-License-Identifier: Apache-2.0 */
/* A rule lets users hand objects to others: every pair of its two sides, and no other. */
#include <criterion/criterion.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "config.h"

static struct rule *with(const char *from, const char *to)
{
	const char *bad = NULL;
	struct rule *r = NULL;

	cr_assert_eq(rules_add(&r, "one", &from, 1, &to, 1, &bad), 0);
	return r;
}

Test(rules, nothing_is_allowed_without_a_rule)
{
	struct rule *r = NULL;

	cr_assert(!rules_allow(r, 0, 0, NULL));
	cr_assert(!rules_allow(r, 0, 1000, NULL));
	cr_assert_null(rules_free(r));
	cr_assert_null(rules_free(NULL));
}

Test(rules, a_rule_has_one_direction)
{
	struct rule *r = with("uid:1000", "uid:1001");
	const char *name = NULL;

	cr_assert(rules_allow(r, 1000, 1001, &name));
	cr_assert_str_eq(name, "one");
	cr_assert(!rules_allow(r, 1001, 1000, NULL));
	cr_assert(!rules_allow(r, 1000, 1002, NULL));
	cr_assert(!rules_allow(r, 1002, 1001, NULL));
	rules_free(r);
}

Test(rules, any_is_anybody_on_its_side_only)
{
	struct rule *r = with("any", "uid:1001");

	cr_assert(rules_allow(r, 4000000, 1001, NULL));
	cr_assert(!rules_allow(r, 1001, 4000000, NULL));
	rules_free(r);
}

Test(rules, names_are_users_and_groups)
{
	struct rule *r = with("user:root", "group:daemon");
	const struct passwd *daemon = getpwnam("daemon");

	cr_assert(daemon);
	cr_assert(rules_allow(r, 0, daemon->pw_uid, NULL), "its primary group counts");
	cr_assert(!rules_allow(r, daemon->pw_uid, daemon->pw_uid, NULL));
	cr_assert(!rules_allow(r, 0, 0, NULL));
	cr_assert(!rules_allow(r, 0, 3999999999u, NULL),
		  "a user that does not exist is in no group");
	rules_free(r);
}

Test(rules, any_of_several_rules_and_words_allows)
{
	static const char *const from[] = {"uid:1", "uid:2"}, *const to[] = {"uid:3", "gid:0"};
	struct rule *r = with("uid:7", "uid:8");
	const char *bad, *name = NULL;

	cr_assert_eq(rules_add(&r, "two", from, 2, to, 2, &bad), 0);
	cr_assert(rules_allow(r, 7, 8, NULL));
	cr_assert(rules_allow(r, 2, 3, &name));
	cr_assert_str_eq(name, "two");
	cr_assert(rules_allow(r, 1, 0, NULL), "root is in group 0");
	cr_assert(!rules_allow(r, 7, 3, NULL), "sides of two rules");
	rules_free(r);
}

Test(rules, a_wrong_word_is_named_and_adds_nothing)
{
	static const char *const wrong[] = {
		"",       "nobody", "user:",        "user:no such user", "group:no such group",
		"uid:-1", "uid:",   "uid:12x",      "uid:4294967295",    "gid:99999999999",
		"uid: 1", "ANY",    "user:root,any"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		static const char *const any = "any";
		const char *bad = NULL;
		struct rule *r = NULL;

		cr_assert_eq(rules_add(&r, "x", &wrong[i], 1, &any, 1, &bad), -EINVAL, "\"%s\"",
			     wrong[i]);
		cr_assert_eq(bad, wrong[i]);
		cr_assert_eq(rules_add(&r, "x", &any, 1, &wrong[i], 1, &bad), -EINVAL, "\"%s\"",
			     wrong[i]);
		cr_assert(!rules_allow(r, 0, 0, NULL));
		rules_free(r);
	}
}
