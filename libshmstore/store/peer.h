/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h: addresses of stores: peers/<32 hex digits of the address's XXH3-128>
 * -> ../<store's directory>. */
#ifndef SHMS_PEER_H
#define SHMS_PEER_H

struct shmstore;

/* Removes our address, if it is still ours. */
void shms_peer_withdraw(struct shmstore *s);

#endif
