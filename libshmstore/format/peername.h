/* SPDX-License-Identifier: Apache-2.0 */
/* peername.h: the name in peers/ of a worker's address: 32 hex digits of its XXH3-128. Pure. */
#ifndef SHMS_PEERNAME_H
#define SHMS_PEERNAME_H

#define SHMS_PEER_NAME 33 /* bytes, with the NUL */

void shms_peer_name(const char *address, char ret_name[SHMS_PEER_NAME]);

#endif
