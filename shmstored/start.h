/* SPDX-License-Identifier: Apache-2.0 */
/* start.h: the daemon's parts put together: started, stopped, given another configuration. */
#ifndef START_H
#define START_H

struct actord;
struct config;
struct host;
struct part;

/* The parts of a partition under watch (part.h), in the order of their opening, up to a NULL. */
extern const struct part *const start_parts[];

/* Starts everything that config names; -errno (said in the log). stop: in
 * good order, from any state. */
int host_start(struct host *h, struct config *config, const struct actord *actord);
void host_stop(struct host *h);
/* Applies what may change at run time of a newly read configuration, takes it over. 0,
 * -errno (nothing changed). */
int host_reload(struct host *h, struct config *config);

/* daemon.c: the main() of both programs. actord: what this one has (actord.h). */
int daemon_main(int argc, char **argv, const struct actord *actord);

#endif
