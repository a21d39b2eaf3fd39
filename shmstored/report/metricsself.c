/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metricsself.c: the daemon's own process as Prometheus's client libraries tell it: process_*. Read
 * from /proc/self when somebody asks; what cannot be read is left out.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "metricswrite.h"
#include "procstat.h"

/* In seconds with two decimals. */
static void write_hundredths(const struct metric_out *o, const char *name, const char *help, bool counter,
			     uint64_t value)
{
	metric_begin(o, name, counter ? "counter" : "gauge", help);
	fprintf(o->file, "%s%s %" PRIu64 ".%02" PRIu64 "\n", name, counter ? "_total" : "", value / 100, value % 100);
}

static void write_descriptors(struct metric_out *o)
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
		metric_number(o, "process_open_fds", false, "Open file descriptors.", n - 1);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		metric_number(o, "process_max_fds", false, "File descriptors that it may open.", limit.rlim_cur);
}

/* 0: the text does not have it. */
static uint64_t number(const char *text, enum procstat_field field)
{
	const char *at = procstat_find(text, field);

	return at ? strtoull(at, NULL, 10) : 0;
}

void metricsself_write(struct metric_out *o, int64_t started_ns)
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
		write_hundredths(o, "process_cpu_seconds", "Processor time, of user and system.", true,
				 cpu * 100 / ticks);
		metric_number(o, "process_threads", false, "Threads.", number(text, PROCSTAT_THREADS));
		metric_number(o, "process_virtual_memory_bytes", false, "Address space.", number(text, PROCSTAT_BYTES));
		metric_number(o, "process_resident_memory_bytes", false, "Memory that is resident.",
			      number(text, PROCSTAT_RESIDENT_PAGES) * page);
	}
	write_hundredths(o, "process_start_time_seconds", "When it began, since the epoch.", false,
			 (uint64_t)started_ns / 10000000);
	write_descriptors(o);
}
