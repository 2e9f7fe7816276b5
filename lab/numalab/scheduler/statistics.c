/*
 * Reads the statistics of a scheduler that serves them by the crate scx_stats (version 1.1.4): a
 * line of JSON for a request on a socket. Its counts are those since the request before. So this
 * asks once when it starts, and again at SIGTERM, and prints the second answer. Ends with 1 without
 * a server, 2 without a first answer, 3 without a second.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SOCKET "/var/run/scx/root/stats"
#define REQUEST "{\"req\":\"stats\",\"args\":{\"target\":\"top\"}}\n"
#define LONGEST 65536
#define ATTEMPTS 30 /* the server starts after the scheduler is enabled */

static int connected(void)
{
	const struct timespec pause = { .tv_nsec = 100000000 };
	const struct timeval patience = { .tv_sec = 5 };
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (server < 0)
			return -1;
		if (!connect(server, (const struct sockaddr *)&address, sizeof(address))) {
			setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
			setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
			return server;
		}
		close(server);
		nanosleep(&pause, NULL);
	}
	return -1;
}

/* Read one line into `line`; its length, or 0 without a whole line. */
static size_t answer(int server, char *line)
{
	size_t length = 0;

	if (write(server, REQUEST, strlen(REQUEST)) != (ssize_t)strlen(REQUEST))
		return 0;
	while (length < LONGEST) {
		ssize_t more = read(server, line + length, LONGEST - length);

		if (more <= 0 && !(more < 0 && errno == EINTR))
			return 0;
		length += more > 0 ? (size_t)more : 0;
		if (length && line[length - 1] == '\n')
			return length;
	}
	return 0;
}

int main(void)
{
	static char line[LONGEST];
	sigset_t end;
	int server, which;
	size_t length;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	signal(SIGPIPE, SIG_IGN);
	server = connected();
	if (server < 0)
		return 1;
	if (!answer(server, line))
		return 2;
	sigwait(&end, &which);
	length = answer(server, line);
	return length && fwrite(line, 1, length, stdout) == length ? 0 : 3;
}
