/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_watch.c: "shmstore-admin watch": what the daemon tells, as it happens: for people one line of
 * text, with --json the daemon's own line. SIGINT is read of a descriptor, so that none is
 * missed between looking and waiting: Ctrl-C ends it in good order, after whole lines.
 */
#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>

#include "asking.h"
#include "frames.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "options.h"

struct watch {
	const struct admin *admin;
	uint64_t since;
	const char *events;
	uint64_t n_wanted; /* 0: without end */
};

/* From here on SIGINT can be read of the descriptor that is returned, and does nothing else. */
static int catch_interrupt(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void print_value(const char *name, struct json_object *value)
{
	const char *text = json_object_is_type(value, json_type_string)
				   ? json_object_get_string(value)
				   : json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);

	fputs("  ", stdout);
	figure_print_escaped(name);
	putchar('=');
	figure_print_escaped(text);
}

/* "12:03:04 store-came  partition=/p  name=a" */
static void print_text(const char *json)
{
	struct json_object *o = jsonin_parse(json, strlen(json));

	if (!o) {
		message_say("watch: the daemon sent an event that is no JSON object");
		return;
	}
	printf("%s ", frames_clock((time_t)jsonin_real(o, "time")));
	figure_print_escaped(jsonin_text(o, "event"));
	json_object_object_foreach(o, name, value)
	{
		if (value && strcmp(name, "time") != 0 && strcmp(name, "event") != 0 &&
		    strcmp(name, "sequence") != 0)
			print_value(name, value);
	}
	putchar('\n');
	jsonin_free(o);
}

static int follow(const struct watch *w, struct shmstore_client *c, int interrupts)
{
	struct pollfd fds[2] = {{.fd = interrupts, .events = POLLIN},
				{.fd = shmstore_client_fd(c), .events = POLLIN}};
	uint64_t n_printed = 0;
	const char *json;

	while (!fds[0].revents && !ferror(stdout) && (!w->n_wanted || n_printed < w->n_wanted)) {
		int r = shmstore_client_event(c, 0, NULL, &json);

		if (r < 0)
			return asking_explain(c, NULL, r);
		if (r == 0) {
			fflush(stdout); /* all that was there is out before we wait */
			if (poll(fds, 2, -1) < 0 && errno != EINTR)
				return message_fail("watch", "waiting failed: %s", strerror(errno));
			continue;
		}
		n_printed++;
		if (!w->admin->json)
			print_text(json);
		else if (strpbrk(json, "\n\r"))
			return message_fail("watch",
					    "the daemon sent an event that is not one line");
		else
			puts(json);
	}
	return ADMIN_OK;
}

int cmd_watch(struct admin *a, int argc, char **argv)
{
	typedef struct watch OF;
	static const struct options_row options[] = {
		{"since", 0, "NUMBER",
		 "first those that are kept, after the event of that number; 0 = all",
		 OPTIONS_NUMBER, offsetof(OF, since)},
		{"events", 0, "LIST", "only these, names separated by commas", OPTIONS_TEXT,
		 offsetof(OF, events)},
		{"count", 'n', "N", "end after N events (default: never)", OPTIONS_NUMBER,
		 offsetof(OF, n_wanted), 1},
		{NULL},
	};
	struct watch w = {.admin = a, .since = SHMSTORE_WATCH_NEW};

	OPTIONS_PARSE(a, argc, argv, "watch",
		      "Prints what happens, one event a line, until it is interrupted.\v"
		      "With --json each line is one object with a member sequence, its number, "
		      "from which --since goes on after an interruption. Exit status 0 after an "
		      "interrupt, 1 where the daemon ended. The events and what to do about each "
		      "are in docs/operations.md.",
		      .options = options, .own = &w);
	int interrupts = catch_interrupt();
	_client_ struct shmstore_client *c = asking_open(a);
	asking_check(c, "watch", shmstore_client_watch(c, w.since, w.events));
	return follow(&w, c, interrupts);
}
