/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_pressure.c: what one look at the host's memory costs the daemon: the host and its cgroups,
 * and 1 and 64 processes that are each a child of this one. Prints microseconds of processor time
 * for one look, the median of ROUNDS, and the share of a core that it is at 100 ms.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memsource.h"
#include "pressure.h"

#define ROUNDS    501
#define PROCESSES 64
#define LOOKS     10

static double cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void say(const char *what, double *us)
{
	qsort(us, ROUNDS, sizeof(*us), by_value);
	printf("%-44s %8.2f us  %6.4f %% of a core at 100 ms\n", what, us[ROUNDS / 2],
	       us[ROUNDS / 2] / 1000);
}

static pid_t start_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void measure_host(void)
{
	struct memsource_config config = {0};
	struct memsource_reading reading = MEMSOURCE_NULL;
	static double all[ROUNDS], again[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		double began = cpu_us();

		memsource_deinit(&reading);
		if (memsource_read(&config, &reading) < 0)
			exit(1);
		all[i] = cpu_us() - began;
		began = cpu_us();
		if (memsource_again(&config, &reading) < 0)
			exit(1);
		again[i] = cpu_us() - began;
	}
	say("host, all of its cgroups (each tenth look)", all);
	say("host, cgroups with a limit (each look)", again);
	memsource_deinit(&reading);
}

static void measure_processes(struct procmem *const *list, int n, bool swap, const char *what)
{
	static double us[ROUNDS];
	struct amount sum = amount_of(0);

	for (int i = 0; i < ROUNDS; i++) {
		double began = cpu_us();

		/* Each tenth look reads more of a process. */
		for (int look = 0; look < LOOKS; look++)
			for (int k = 0; k < n; k++)
				sum = amount_add(sum, procmem_read(list[k], swap));
		us[i] = (cpu_us() - began) / LOOKS;
	}
	if (!sum.known)
		printf("(unknown) ");
	say(what, us);
}

int main(void)
{
	struct procmem *list[PROCESSES];
	pid_t pids[PROCESSES];

	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = start_child();
		list[i] = pids[i] > 0 ? procmem_new("/proc", pids[i]) : NULL;
		if (!list[i])
			return 1;
	}
	measure_host();
	measure_processes(list, 1, false, "1 process, near the gate");
	measure_processes(list, PROCESSES, false, "64 processes, near the gate");
	measure_processes(list, 1, true, "1 process, swap in use");
	measure_processes(list, PROCESSES, true, "64 processes, swap in use");
	for (int i = 0; i < PROCESSES; i++) {
		procmem_free(list[i]);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return 0;
}
