/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.c: one more reader in an access list.
 *
 * The kernel wants the entries in this order: owner, users, owning group, groups, mask, others. The mask is what groups and named
 * users have at most; it shows as the group bits of the file's mode, and chmod() of these bits changes it. So a mask that took a
 * right away (the owner's chmod 0400 after a handoff) is applied to each entry before ours is added and the mask allows reading
 * again: adding one reader must not give another one back what was taken.
 */
#include "acl.h"

#include <endian.h>
#include <errno.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct entry {
	uint16_t tag, perm;
	uint32_t id;
};

struct list {
	struct entry owner, group, other;
	struct entry named[ACL_USERS_MAX + 1]; /* users and groups */
	size_t n_named;
	uint16_t mask;
};

static int take(struct list *l, const struct entry *e)
{
	switch (e->tag) {
	case ACL_USER_OBJ:
		l->owner = *e;
		return 0;
	case ACL_GROUP_OBJ:
		l->group = *e;
		return 0;
	case ACL_OTHER:
		l->other = *e;
		return 0;
	case ACL_MASK:
		l->mask = e->perm;
		return 0;
	case ACL_USER:
	case ACL_GROUP:
		if (l->n_named == ACL_USERS_MAX)
			return -EDQUOT;
		l->named[l->n_named++] = *e;
		return 0;
	default:
		return -EINVAL;
	}
}

static int parse(const unsigned char *data, size_t n, struct list *ret)
{
	struct posix_acl_xattr_header h;
	struct posix_acl_xattr_entry x;
	struct entry e;
	int r = 0;

	if (n < sizeof(h) || (n - sizeof(h)) % sizeof(x) != 0)
		return -EINVAL;
	memcpy(&h, data, sizeof(h));
	if (le32toh(h.a_version) != POSIX_ACL_XATTR_VERSION)
		return -EINVAL;
	for (size_t at = sizeof(h); r == 0 && at < n; at += sizeof(x)) {
		memcpy(&x, data + at, sizeof(x));
		e = (struct entry){le16toh(x.e_tag), le16toh(x.e_perm), le32toh(x.e_id)};
		r = take(ret, &e);
	}
	return r;
}

/* Leaves of the named ones those that may read, but for uid, who gets a new entry. */
static void keep_readers(struct list *l, uid_t uid)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n_named; i++) {
		struct entry e = l->named[i];

		if ((e.perm & l->mask & ACL_READ) == 0 || (e.tag == ACL_USER && e.id == uid))
			continue;
		e.perm = ACL_READ;
		l->named[n++] = e;
	}
	l->n_named = n;
}

static void put(unsigned char *out, size_t *io_at, struct entry e)
{
	struct posix_acl_xattr_entry x = {htole16(e.tag), htole16(e.perm), htole32(e.id)};

	memcpy(out + *io_at, &x, sizeof(x));
	*io_at += sizeof(x);
}

static void put_named(unsigned char *out, size_t *io_at, const struct list *l, uint16_t tag)
{
	for (size_t i = 0; i < l->n_named; i++) {
		if (l->named[i].tag == tag)
			put(out, io_at, l->named[i]);
	}
}

int acl_add_reader(const void *list, size_t n, mode_t mode, uid_t uid, unsigned char ret[ACL_SIZE_MAX],
		   size_t *ret_size)
{
	const uint32_t none = (uint32_t)ACL_UNDEFINED_ID;
	struct posix_acl_xattr_header h = {htole32(POSIX_ACL_XATTR_VERSION)};
	struct list l = {
		.owner = {ACL_USER_OBJ, (uint16_t)(mode >> 6 & 7), none},
		.group = {ACL_GROUP_OBJ, (uint16_t)(mode >> 3 & 7), none},
		.other = {ACL_OTHER, (uint16_t)(mode & 7), none},
		.mask = ACL_READ | ACL_WRITE | ACL_EXECUTE,
	};
	size_t at = sizeof(h);
	int r = n ? parse(list, n, &l) : 0;

	if (r < 0)
		return r;
	keep_readers(&l, uid);
	if (l.n_named == ACL_USERS_MAX)
		return -EDQUOT;
	l.named[l.n_named++] = (struct entry){ACL_USER, ACL_READ, uid};
	l.group.perm &= l.mask & ACL_READ;
	l.other.perm &= ACL_READ;
	memcpy(ret, &h, sizeof(h));
	put(ret, &at, l.owner);
	put_named(ret, &at, &l, ACL_USER);
	put(ret, &at, l.group);
	put_named(ret, &at, &l, ACL_GROUP);
	put(ret, &at, (struct entry){ACL_MASK, ACL_READ, none});
	put(ret, &at, l.other);
	*ret_size = at;
	return 0;
}

void acl_from_mode(mode_t mode, unsigned char ret[ACL_SIZE_MAX], size_t *ret_size)
{
	const uint32_t none = (uint32_t)ACL_UNDEFINED_ID;
	struct posix_acl_xattr_header h = {htole32(POSIX_ACL_XATTR_VERSION)};
	size_t at = sizeof(h);

	memcpy(ret, &h, sizeof(h));
	put(ret, &at, (struct entry){ACL_USER_OBJ, (uint16_t)(mode >> 6 & 7), none});
	put(ret, &at, (struct entry){ACL_GROUP_OBJ, (uint16_t)(mode >> 3 & 7), none});
	put(ret, &at, (struct entry){ACL_OTHER, (uint16_t)(mode & 7), none});
	*ret_size = at;
}
