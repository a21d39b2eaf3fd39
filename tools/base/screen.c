/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen.c: plain ANSI on the alternate screen. Signals are blocked and read from a signalfd, so
 * that nothing runs in a handler and every way out, Ctrl-C and Ctrl-Z included, passes through
 * screen_end().
 */
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* alternate screen, no cursor, no wrapping */
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

int64_t screen_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

const char *screen_clock(time_t when)
{
	static char text[16];
	struct tm tm;

	localtime_r(&when, &tm);
	strftime(text, sizeof(text), "%H:%M:%S", &tm);
	return text;
}

static void measure(struct screen *s)
{
	struct winsize w;

	s->columns = 80;
	s->rows = 24;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row) {
		s->columns = w.ws_col;
		s->rows = w.ws_row;
	}
}

static void enter(struct screen *s)
{
	if (s->keyboard) {
		struct termios raw = s->before;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 0;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	}
	fputs(ENTER, stdout);
	fflush(stdout);
	measure(s);
}

static void leave(struct screen *s)
{
	fputs(LEAVE, stdout);
	fflush(stdout);
	if (s->keyboard)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
}

int screen_begin(struct screen *s, bool wanted)
{
	sigset_t set;

	*s = (struct screen){.live = wanted && isatty(STDOUT_FILENO)};
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (s->live) {
		sigaddset(&set, SIGWINCH);
		sigaddset(&set, SIGTSTP);
	}
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0)
		return -errno;
	sigprocmask(SIG_BLOCK, &set, NULL);
	measure(s);
	if (!s->live)
		return 0;
	s->keyboard = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->before) == 0;
	enter(s);
	return 0;
}

void screen_end(struct screen *s)
{
	if (s->live)
		leave(s);
	if (s->signals >= 0)
		close(s->signals);
	s->signals = -1;
	s->live = false;
}

void screen_frame(struct screen *s)
{
	if (s->live)
		fputs("\033[H\033[J", stdout);
}

static int handle_signal(struct screen *s, int number)
{
	switch (number) {
	case SIGINT:
		return SCREEN_QUIT;
	case SIGWINCH:
		measure(s);
		return SCREEN_AGAIN;
	case SIGTSTP:
		leave(s);
		raise(SIGSTOP);
		enter(s);
		return SCREEN_AGAIN;
	default: /* die of it, but with the terminal in order */
		screen_end(s);
		signal(number, SIG_DFL);
		raise(number);
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, number);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		return SCREEN_ENDED;
	}
}

int screen_wait(struct screen *s, int64_t deadline_ns)
{
	struct pollfd fds[2] = {{.fd = s->signals, .events = POLLIN},
				{.fd = s->keyboard ? STDIN_FILENO : -1, .events = POLLIN}};

	while (true) {
		int64_t left = deadline_ns - screen_now();
		if (left <= 0)
			return SCREEN_TICK;
		struct timespec timeout = {left / 1000000000, left % 1000000000};
		if (ppoll(fds, 2, &timeout, NULL) < 0 && errno != EINTR)
			return SCREEN_QUIT;
		struct signalfd_siginfo info;
		if (fds[0].revents &&
		    read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
			return handle_signal(s, (int)info.ssi_signo);
		unsigned char key;
		if (fds[1].revents) {
			if (read(STDIN_FILENO, &key, 1) == 1)
				return key;
			fds[1].fd = -1; /* the other end hung up */
		}
	}
}
