/* SPDX-License-Identifier: Apache-2.0 */
/* storm_stand.c: all processes of a storm are stopped where they are, or come to rest between two
 * calls, and the books are looked at. See storm_run.h. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storm_run.h"

#define REST_MS 120000u

/* The state of a process, as /proc says it; 0: it is gone. */
static char state_of(pid_t pid)
{
	char path[64], text[512];
	const char *end;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

unsigned storm_signal_all(int signal)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	unsigned n = 0;

	while (dir && (e = readdir(dir)) != NULL) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		char state = pid > 1 && pid != getpid() ? state_of(pid) : 0;

		if (!state || state == 'Z' || state == 'X')
			continue;
		n += state != 'T';
		kill(pid, signal);
	}
	if (dir)
		closedir(dir);
	return n;
}

static void stop_all(struct run *r)
{
	uint64_t end_ms = storm_now_ms() + REST_MS;

	/* Again: one may have made another just before it was stopped. */
	while (storm_signal_all(SIGSTOP))
		if (storm_now_ms() > end_ms) {
			storm_fail(&r->st, "some processes do not stop");
			return;
		}
}

void storm_stand_still(struct run *r)
{
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		r->st.shared->n_stopped[i]++;
	stop_all(r);
	storm_in_child(r, storm_reconcile_step);
	r->n_reconciled++;
	storm_signal_all(SIGCONT);
	memset(r->stopped_until_ms, 0, sizeof(r->stopped_until_ms));
}

void storm_rest_and_compare(struct run *r)
{
	unsigned n = STORM_WORKERS * (r->options->writers ? STORM_THREADS : STORM_THREADS - 1);
	uint64_t end_ms = storm_now_ms() + REST_MS;

	for (unsigned i = 0; i < STORM_WORKERS; i++) {
		kill(r->pids[i], SIGCONT);
		r->stopped_until_ms[i] = 0;
	}
	r->st.shared->n_resting = 0;
	r->st.shared->rest = true;
	while (r->st.shared->n_resting < n && !r->st.shared->failed) {
		if (storm_now_ms() > end_ms)
			storm_fail(&r->st, "%u threads of %u do not come back from a call",
				   n - r->st.shared->n_resting, n);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (!r->st.shared->failed)
		storm_in_child(r, storm_ledger_step);
	r->n_rests++;
	r->st.shared->rest = false;
	while (r->st.shared->n_resting && !r->st.shared->failed)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
