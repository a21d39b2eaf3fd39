/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.h: POSIX access lists as the kernel gives and takes them in the attribute system.posix_acl_access (linux/posix_acl_xattr.h).
 * Pure. Not libacl: one operation on one attribute, whose layout is the kernel's interface.
 */
#ifndef ACL_H
#define ACL_H

#include <stddef.h>
#include <sys/types.h>

#define ACL_ATTRIBUTE "system.posix_acl_access"
#define ACL_USERS_MAX 64u                              /* users and groups that one file may be readable for */
#define ACL_SIZE_MAX  (4u + 8u * (ACL_USERS_MAX + 4u)) /* bytes */

/*
 * The access list of n bytes (0: the file has none, and its mode says all) with reading allowed to one more user. Everybody but the
 * owner keeps at most the right to read, as far as it was in force; who had none is left out.
 * 0 and *ret_size bytes in ret; -EINVAL (no access list), -EDQUOT (too many users).
 */
int acl_add_reader(const void *list, size_t n, mode_t mode, uid_t uid, unsigned char ret[ACL_SIZE_MAX],
		   size_t *ret_size);
/* A list that says what the mode says: the kernel takes it for none. */
void acl_from_mode(mode_t mode, unsigned char ret[ACL_SIZE_MAX], size_t *ret_size);

#endif
