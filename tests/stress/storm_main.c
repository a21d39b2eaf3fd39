/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm_main.c: one storm, of root's processes without a daemon.
 *
 *   storm [-dp] [-t seconds] [-s seed] [-m megabytes] [-n kills [-k time|steps]]
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sandbox.h"
#include "storm.h"

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct storm_options *o = state->input;
	switch (key) {
	case 'd':
		o->disk = "";
		return 0;
	case 'p':
		o->pack_max = STORM_PACK_MAX;
		return 0;
	case 't':
		o->seconds = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 's':
		o->seed = strtoull(arg, NULL, 10);
		return 0;
	case 'n':
		o->n_kills = strtoull(arg, NULL, 10);
		return 0;
	case 'k':
		o->steps = *arg == 's';
		return 0;
	case 'm':
		o->megabytes = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"disk", 'd', NULL, 0, "With a disk tier", 0},
		{"packed", 'p', NULL, 0, "By stores that pack objects of up to 1 MiB", 0},
		{"time", 't', "SECONDS", 0, "How long (20)", 0},
		{"seed", 's', "N", 0, "Of the random numbers (the time)", 0},
		{"megabytes", 'm', "N", 0,
		 "Of the partition (256; with 60 it is full most of the time)", 0},
		{"kills", 'n', "N", 0,
		 "So many at random instructions, however long it takes; with children", 0},
		{"kind", 'k', "KIND", 0,
		 "These come after a random time (time) or number of instructions (steps)", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "Random load and random kills.",
					 NULL,  NULL,      NULL};
	struct storm_options options = {
		.seconds = 20, .megabytes = 256, .seed = (uint64_t)time(NULL), .n_users = 1};
	struct storm_result result;
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	options.forks = options.n_kills != 0;
	if (options.disk) {
		options.disk = sandbox_disk();
		if (!options.disk) {
			printf("SKIP no directory on a disk: %s\n", strerror(errno));
			return 77;
		}
	}
	status = storm_run(&options, &result);
	if (status != 77)
		printf("storm: %u passed, %u failed\n", status == 0, status != 0);
	return status;
}
