/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.c: plain ANSI on the alternate screen. Signals are blocked and read from a signalfd, so
 * that nothing runs in a handler and every way out, Ctrl-C and Ctrl-Z included, passes through
 * end().
 */
#include "frames.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* alternate screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

/* The event that ended a wait; any other value is a key. */
enum event {
	TICK = 0x100, /* the time is up */
	AGAIN,        /* the size changed, or we were stopped: draw now */
	QUIT,         /* interrupted, or ended by another signal */
};

int64_t frames_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

const char *frames_clock(time_t when)
{
	static char text[16];
	struct tm tm;

	localtime_r(&when, &tm);
	strftime(text, sizeof(text), "%H:%M:%S", &tm);
	return text;
}

/* ---- the terminal ---- */

static void measure(struct frames *f)
{
	struct winsize w;

	f->columns = 80;
	f->rows = 24;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row) {
		f->columns = w.ws_col;
		f->rows = w.ws_row;
	}
}

static void enter(struct frames *f)
{
	if (f->keyboard) {
		struct termios raw = f->before;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 0;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	}
	fputs(ENTER, stdout);
	fflush(stdout);
	measure(f);
}

static void leave(struct frames *f)
{
	fputs(LEAVE, stdout);
	fflush(stdout);
	if (f->keyboard)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &f->before);
}

static int begin(struct frames *f, bool wanted)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};
	sigset_t set;

	f->live = wanted && isatty(STDOUT_FILENO);
	sigemptyset(&set);
	for (size_t i = 0; i < (f->live ? 5 : 3); i++)
		sigaddset(&set, numbers[i]);
	f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (f->signals < 0)
		return -errno;
	sigprocmask(SIG_BLOCK, &set, NULL);
	measure(f);
	if (!f->live)
		return 0;
	f->keyboard = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &f->before) == 0;
	enter(f);
	return 0;
}

/* ---- frames ---- */

static int handle_signal(struct frames *f, int number)
{
	sigset_t set;

	switch (number) {
	case SIGINT:
		return QUIT;
	case SIGWINCH:
		measure(f);
		return AGAIN;
	case SIGTSTP:
		leave(f);
		raise(SIGSTOP);
		enter(f);
		return AGAIN;
	default: /* die of it, but with the terminal in order */
		if (f->live)
			leave(f);
		signal(number, SIG_DFL);
		raise(number);
		sigemptyset(&set);
		sigaddset(&set, number);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		return QUIT;
	}
}

/* Waits until deadline (ns of CLOCK_MONOTONIC), a key or a signal. */
static int wait_event(struct frames *f, int64_t deadline)
{
	struct pollfd fds[2] = {{.fd = f->signals, .events = POLLIN},
				{.fd = f->keyboard ? STDIN_FILENO : -1, .events = POLLIN}};

	while (true) {
		int64_t left = deadline - frames_now();
		if (left <= 0)
			return TICK;
		struct timespec timeout = {left / 1000000000, left % 1000000000};
		if (ppoll(fds, 2, &timeout, NULL) < 0 && errno != EINTR)
			return QUIT;
		struct signalfd_siginfo info;
		if (fds[0].revents &&
		    read(f->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
			return handle_signal(f, (int)info.ssi_signo);
		unsigned char key;
		if (fds[1].revents) {
			if (read(STDIN_FILENO, &key, 1) == 1)
				return key;
			fds[1].fd = -1; /* the other end hung up */
		}
	}
}

static bool show(struct frames *f)
{
	if (f->live)
		fputs("\033[H\033[J", stdout); /* the cursor at the top of an empty screen */
	bool counts = f->show(f->arg);
	fflush(stdout);
	return counts;
}

/* Waits for the next frame. False: the user, or the reader of our output, has enough. */
static bool wait_next(struct frames *f, int64_t deadline)
{
	while (!ferror(stdout)) {
		int event = wait_event(f, deadline);
		if (event == TICK)
			return true;
		if (event == QUIT || event == 'q' || event == 'Q' || event == 27)
			return false;
		if (event == 's')
			*f->sort = (*f->sort + 1) % f->n_sorts;
		if (event == 's' || event == AGAIN)
			show(f);
	}
	return false;
}

int frames_run(struct frames *f, bool wanted)
{
	int64_t interval = (int64_t)(f->interval * 1e9), deadline = frames_now();
	uint64_t shown = 0;
	int r = begin(f, wanted);

	if (r < 0)
		return r;
	while ((r = f->take(f->arg)) == 0) {
		shown += show(f);
		if (f->iterations && shown == f->iterations)
			break;
		deadline += interval;
		if (deadline < frames_now()) /* the frame took longer than an interval */
			deadline = frames_now() + interval;
		if (!wait_next(f, deadline))
			break;
	}
	if (f->live)
		leave(f);
	close(f->signals);
	f->live = false;
	return r;
}
