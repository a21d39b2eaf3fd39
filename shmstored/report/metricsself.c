/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metricsself.c: the daemon's own process as Prometheus's client libraries tell it: process_*. Read from /proc/self when somebody asks; what cannot be
 * read is left out.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "metricswrite.h"
#include "procstat.h"

/* In seconds with two decimals, where it is hundredths. */
static void write_one(const struct metric_out *o, const char *name, const char *help, bool counter, uint64_t value,
		      bool hundredths)
{
	const char *total = counter ? "_total" : "";

	metric_begin(o, name, counter ? "counter" : "gauge", help);
	if (hundredths)
		fprintf(o->file, "%s%s %" PRIu64 ".%02" PRIu64 "\n", name, total, value / 100, value % 100);
	else
		fprintf(o->file, "%s%s %" PRIu64 "\n", name, total, value);
}

static void write_descriptors(const struct metric_out *o)
{
	struct rlimit limit;
	struct dirent *e;
	uint64_t n = 0;
	DIR *dir = opendir("/proc/self/fd");

	if (dir) {
		while ((e = readdir(dir)) != NULL)
			n += e->d_name[0] != '.';
		closedir(dir);
		/* Without the one that was just open. */
		write_one(o, "process_open_fds", "Open file descriptors.", false, n - 1, false);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		write_one(o, "process_max_fds", "File descriptors that it may open.", false, limit.rlim_cur, false);
}

/* 0: the text does not have it. */
static uint64_t number(const char *text, enum procstat_field field)
{
	const char *at = procstat_find(text, field);

	return at ? strtoull(at, NULL, 10) : 0;
}

void metricsself_write(const struct metric_out *o, int64_t started_ns)
{
	uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK), page = (uint64_t)sysconf(_SC_PAGESIZE), cpu;
	FILE *f = fopen("/proc/self/stat", "re");
	char text[PROCSTAT_MAX];
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = '\0';
	if (number(text, PROCSTAT_RESIDENT_PAGES) && ticks) {
		cpu = number(text, PROCSTAT_USER_TICKS) + number(text, PROCSTAT_SYSTEM_TICKS);
		write_one(o, "process_cpu_seconds", "Processor time, of user and system.", true, cpu * 100 / ticks,
			  true);
		write_one(o, "process_threads", "Threads.", false, number(text, PROCSTAT_THREADS), false);
		write_one(o, "process_virtual_memory_bytes", "Address space.", false, number(text, PROCSTAT_BYTES),
			  false);
		write_one(o, "process_resident_memory_bytes", "Memory that is resident.", false,
			  number(text, PROCSTAT_RESIDENT_PAGES) * page, false);
	}
	write_one(o, "process_start_time_seconds", "When it began, since the epoch.", false,
		  (uint64_t)started_ns / 10000000, true);
	write_descriptors(o);
}
