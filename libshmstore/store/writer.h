/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h: the private memory that writers keep for the next small object. */
#ifndef SHMS_WRITER_H
#define SHMS_WRITER_H

struct shmstore;

/* The handle goes. */
void shms_writer_deinit(struct shmstore *s);
/* In a forked child, which did not inherit it. */
void shms_writer_forked(struct shmstore *s);

#endif
