/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.c: one more reader in an access list.
 *
 * The mask is what groups and named users have at most; it shows as the group bits of the file's
 * mode, and chmod() of these bits changes it. So a mask that took a right away (the owner's chmod
 * 0400 after a handoff) is applied to each entry before ours is added and the mask allows reading
 * again: adding one reader must not give another one back what was taken.
 */
#include <acl/libacl.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "broker.h"

static bool may_read(acl_entry_t entry)
{
	acl_permset_t rights;

	return acl_get_permset(entry, &rights) == 0 && acl_get_perm(rights, ACL_READ) == 1;
}

/* Steps through a list: first, then the others. */
static bool next(acl_t list, int which, acl_entry_t *ret, acl_tag_t *ret_tag)
{
	return acl_get_entry(list, which, ret) == 1 && acl_get_tag_type(*ret, ret_tag) == 0;
}

/* An entry with at most the right to read. id: of a user or a group. */
static int add(acl_t *to, acl_tag_t tag, const void *id, bool readable)
{
	acl_entry_t e;
	acl_permset_t rights;

	if (acl_create_entry(to, &e) < 0 || acl_set_tag_type(e, tag) < 0 ||
	    (id && acl_set_qualifier(e, id) < 0) || acl_get_permset(e, &rights) < 0)
		return -1;
	return readable ? acl_add_perm(rights, ACL_READ) : 0;
}

/* One entry of the list as it shall be. */
static int keep(acl_t *to, acl_entry_t e, acl_tag_t tag, uid_t uid, bool masked_in)
{
	acl_entry_t owner;
	uid_t *id; /* or the gid, which is of this type, too */
	int r;

	switch (tag) {
	case ACL_USER_OBJ:
		return acl_create_entry(to, &owner) < 0 ? -1 : acl_copy_entry(owner, e);
	case ACL_GROUP_OBJ:
		return add(to, tag, NULL, masked_in && may_read(e));
	case ACL_OTHER:
		return add(to, tag, NULL, may_read(e));
	case ACL_USER:
	case ACL_GROUP:
		if (!masked_in || !may_read(e))
			return 0;
		id = acl_get_qualifier(e);
		if (id && tag == ACL_USER && *id == uid)
			r = 0;
		else
			r = id ? add(to, tag, id, true) : -1;
		acl_free(id);
		return r;
	default: /* the mask: ours is added at the end */
		return 0;
	}
}

static int copy(acl_t list, uid_t uid, acl_t *to)
{
	bool masked_in = true;
	acl_entry_t e;
	acl_tag_t tag;

	for (int which = ACL_FIRST_ENTRY; next(list, which, &e, &tag); which = ACL_NEXT_ENTRY)
		if (tag == ACL_MASK)
			masked_in = may_read(e);
	for (int which = ACL_FIRST_ENTRY; next(list, which, &e, &tag); which = ACL_NEXT_ENTRY) {
		if (keep(to, e, tag, uid, masked_in) < 0)
			return -1;
	}
	if (add(to, ACL_USER, &uid, true) < 0 || add(to, ACL_MASK, NULL, true) < 0)
		return -1;
	if (acl_entries(*to) > ACL_READERS_MAX + 4) { /* the owner, its group, the mask, others */
		errno = EDQUOT;
		return -1;
	}
	return acl_valid(*to);
}

acl_t acl_with_reader(acl_t list, uid_t uid)
{
	acl_t to = acl_init(acl_entries(list) + 2);
	int error;

	if (!to)
		return NULL;
	if (copy(list, uid, &to) == 0)
		return to;
	error = errno;
	acl_free(to);
	errno = error;
	return NULL;
}
