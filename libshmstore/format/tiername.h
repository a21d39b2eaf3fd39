/* SPDX-License-Identifier: Apache-2.0 */
/* tiername.h: the names of what the disk tier keeps, on the partition and on the
 * disk (docs/format.md). Pure. */
#ifndef SHMS_TIERNAME_H
#define SHMS_TIERNAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SHMS_DIR_TIER        "tier"
#define SHMS_TIER_NAME       24u /* bytes of "<id>.object" with its NUL */
/* In tier/: the configuration; a new one that becomes it, or what a killed process left of one. */
#define SHMS_TIER_CONFIG     "config"
#define SHMS_TIER_CONFIG_NEW "config.new"
#define SHMS_TIER_LOCK       "lock"  /* in tier/<uid>/ */
#define SHMS_TIER_ACCOUNT    ".used" /* "<uid>.used": what a user's tier files take */

void shms_tier_file_name(uint64_t id, char ret_name[SHMS_TIER_NAME]);
void shms_tier_anchor_name(uint64_t id, char ret_name[SHMS_TIER_NAME]);
void shms_tier_resident_name(uint64_t id, char ret_name[SHMS_TIER_NAME]);
/* 0, or -EBADMSG; the id of a tier file's, anchor's ("stub") or resident's ("object") name.
 * suffix NULL: a tier file. */
int shms_tier_parse_name(const char *name, const char *suffix, uint64_t *ret_id);
/* Is it the name of a user's directory? */
bool shms_tier_uid(const char *name, uid_t *ret);
/* Is it the name of a user's account, and whose? */
bool shms_tier_account_name(const char *name, uid_t *ret);

#endif
