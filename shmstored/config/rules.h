/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h: which users may hand objects to which. Pure but for looking users and groups up
 * by name when they are made. */
#ifndef RULES_H
#define RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct rule;

/* from, to: lists of "user:NAME", "group:NAME", "uid:N", "gid:N", "any". The list begins as NULL.
 * -EINVAL with *ret_bad the word that is wrong; -ENOMEM. */
int rules_add(struct rule **list, const char *name, const char *const *from, size_t n_from,
	      const char *const *to, size_t n_to, const char **ret_bad);
struct rule *rules_free(struct rule *list);
/* Supplementary groups count. ret_name: the rule that allows it; may be NULL. */
bool rules_allow(const struct rule *list, uid_t from, uid_t to, const char **ret_name);

#endif
