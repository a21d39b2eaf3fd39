/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: the daemon's parts put together: started, stopped, given another configuration. */
#ifndef DAEMON_H
#define DAEMON_H

struct actord;
struct config;
struct host;

/* The parts of a partition under watch, in the order of their opening, up to a NULL. */
extern const struct part *const start_parts[];

/* Starts everything that config names; -errno (said in the log). stop: in
 * good order, from any state. */
int host_start(struct host *h, struct config *config, const struct actord *actord);
void host_stop(struct host *h);

/* The main() of both programs. actord: what this one has (actord.h). */
int daemon_main(int argc, char **argv, const struct actord *actord);

#endif
